"""Which estimators jobs fit: each family that takes jobs says in its ``job.py`` how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from dpfast import registry


class Kind(Protocol):
    """What a family's ``job.py`` declares of an estimator of rows."""

    #: Its name in job files.
    KIND: str
    ESTIMATOR: type[Any]
    #: Keys of [estimator] that are its parameters, beside those of every estimator.
    PARAMETERS: tuple[str, ...]

    def parameters(self, given: Mapping[str, Any], box: Sequence[Any] | None, n_rows: int | None) -> dict[str, Any]:
        """Return the estimator's parameters; rows are bounded by `box` too, and their number is None of a stream."""

    def check(self, parameters: Mapping[str, Any], n_rows: int, shape: tuple[int, int], max_rows: int | None) -> None:
        """Refuse, from public numbers, what a fit would refuse of the parameters."""

    def coefficients(
        self, model: Any, feature_names: Sequence[str], outcome_names: Sequence[str]
    ) -> Iterable[Sequence[object]]:
        """Return the rows of coefficients.csv."""


def kinds() -> dict[str, Kind]:
    """Return what jobs fit, by name."""
    return {kind.KIND: kind for kind in (cast(Kind, module) for module in registry.parts("job"))}
