"""A batch job of multi-outcome regression: what its section [estimator] takes, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpfast.multi_outcome.estimator import MultiOutcomeRidge

KIND = "multi_outcome_ridge"
ESTIMATOR = MultiOutcomeRidge
PARAMETERS = ("bound_x", "bound_y", "ridge", "refine", "mechanism", "n_subsample", "fit_intercept", "nonnegative")


def parameters(given: Mapping[str, Any], box: Sequence[Any] | None, n_rows: int | None) -> dict[str, Any]:
    """Return the estimator's parameters; rows are bounded by `box` too, and their number is None of a stream."""
    if "bound_y" not in given:
        raise ValueError("[estimator] lacks the key 'bound_y'")
    if "bound_x" not in given and box is None:
        raise ValueError("[estimator] lacks the key 'bound_x', and there is no box that would bound the rows")
    if n_rows is None and "n_subsample" in given:
        raise ValueError(
            "[estimator] n_subsample needs a pair of .npy files, as [input] x and y: no sample is drawn of a stream"
        )
    return {"bound_x": None, **given, **({} if box is None else {"box_x": tuple(box)})}


def check(parameters: Mapping[str, Any], n_rows: int, shape: tuple[int, int], max_rows: int | None) -> None:
    """Refuse what a fit would refuse of the parameters: a plan does, which needs public sizes only."""
    # What bounds do not go with that are to be found; where they are, a plan needs numbers in their place.
    stand_in = ESTIMATOR(**parameters).checked_stand_in()
    numbers = {name: getattr(stand_in, name) for name in parameters}
    ESTIMATOR.plan(n_rows, *shape, max_rows=max_rows, **numbers)


def coefficients(
    model: MultiOutcomeRidge, feature_names: Sequence[str], outcome_names: Sequence[str]
) -> Iterator[Sequence[object]]:
    """Yield the rows of coefficients.csv."""
    yield "outcome", "feature", "coefficient", "noise_std"
    for k, outcome in enumerate(outcome_names):
        if model.fit_intercept:
            yield outcome, "(intercept)", float(model.intercept_[k]), ""
        for j, feature in enumerate(feature_names):
            yield outcome, feature, float(model.coef_[k, j]), float(model.coef_std_[k, j])
