"""Batch jobs of regression on a few features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfast.estimator.linear import Names
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.jobs.rows import Rows, RowsInput
from dpfast.sparse_regression.estimator import SparseRegression

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEATURES = """
dose = { low = -3, high = 3 }
smoker = { kind = "boolean", missing = false }
site = { levels = ["Bern", "Basel", "Genf"], undeclared = "zeros" }
"""


class Sparse(JobType):
    """A choice of features, then coefficients on it."""

    JOB_TYPE = "sparse_regression"
    ESTIMATOR = SparseRegression
    INPUT_TYPE = RowsInput(SparseRegression, needs_bounds=False, example=(_FEATURES, 'days = "number"'))
    OVERRIDES = Overrides(examples={"n_nonzero": "2", "bound_y": "30.0"})
    NOTE = (
        "The choice of features is noisy too: with few people, a feature that is not in the support may be as good as "
        "one that is. All coefficients outside of it are 0."
    )

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; entries are scaled by their limits."""
        if data.box is not None and "bound_x" in given:
            raise ValueError("[estimator] bound_x and low, high in [features] exclude each other: give one of them")
        return super().parameters(given, data)

    def check(self, parameters: Mapping[str, Any], data: Rows) -> None:
        """Refuse several outcomes where one is taken, besides."""
        super().check(parameters, data)
        selector = parameters.get("selector", "auto")
        one = selector not in ("auto", "pursuit") or parameters.get("calibration") == "paper"
        if not one and {"bound_x", "box_x"}.isdisjoint(parameters):
            raise ValueError(
                "nothing bounds the rows: declare low and high of every number in [features], or box_x in [estimator], "
                "which is [-1, 1] for features that are scaled already"
            )
        if one and data.outcome_names is not None and len(data.outcome_names) > 1:
            raise ValueError(f"[outcomes] must declare one column with selector = {selector!r}")

    def tables(
        self, model: SparseRegression, features: Sequence[str], outcomes: Sequence[str]
    ) -> dict[str, Mapping[str, Any]]:
        """Return the support, and a row for each outcome and feature that was chosen."""
        return {
            "support": {"number": model.support_.tolist(), "feature": [features[j] for j in model.support_]},
            "coefficients": model._estimates(Names(features, outcomes)).written(),
        }

    def figures(self, model: SparseRegression, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
        """Draw the coefficients on the support."""
        return {"coefficients": model.plot(feature_names=features, outcome_names=outcomes)}

    def facts(self, model: SparseRegression) -> list[tuple[str, str]]:
        """Say how many features were chosen."""
        return [("features chosen", f"{len(model.support_)} of {model.n_features_in_}")]


JOB_TYPES = (Sparse(),)
