"""Private quantiles of columns: count rows below public candidates, pick one of these, and tell it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from dpfast.column_quantiles.mechanism import QuantilePick, counts_below
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_is_fitted

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator.base import Fitted, PrivateEstimator, Solved, Summed
from dpfast.estimator.bounded import columns_of
from dpfast.estimator.plan import Plan
from dpfast.io.summaries import Estimates
from dpfast.ledger import Release
from dpfast.privacy import Privacy

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(eq=False, repr=False)
class ColumnQuantiles(PrivateEstimator):
    """Differentially private quantiles of columns, each one of some public candidates.

    Privacy: candidates are released, picked with epsilon-differential privacy for one row, under either relation; they
    make no use of delta.

    Parameters
    ----------
    epsilon, delta, adjacency
        As for every estimator.
    candidates : sequence of float
        What a quantile may be: two numbers or more, increasing.
    percent : int, default 50
        Which quantile, from 1 to 99.
    random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound"}
        No paper prints another.

    Attributes
    ----------
    quantiles_ : ndarray of shape (n_features,)
        A candidate for every column.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import ColumnQuantiles
    >>> ages = np.linspace(20.0, 60.0, 10_000).reshape(-1, 1)
    >>> ColumnQuantiles(1.0, candidates=range(0, 101, 10), random_state=0).fit(ages).quantiles_
    array([40.])
    """

    _: KW_ONLY
    candidates: Sequence[float]
    percent: int = 50
    calibration: Literal["sound"] = "sound"

    quantiles_: FloatArray = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: NDArray[np.object_] = field(init=False)

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = ("sound",)

    @suppress_float_warnings
    def fit(self, X: Any, y: None = None) -> Self:
        """Fit from rows: any table.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        return self._fit(self._checked(), X, columns=columns_of(X))

    def summary(self) -> DataFrame:
        """Tabulate the quantiles, a row a feature."""
        check_is_fitted(self)
        features = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return Estimates({"feature": features}, {"estimate": self.quantiles_}, self._header()).frame()

    @classmethod
    def plan(cls, n: int, n_features: int, *, target: float = 0.1, **parameters: Any) -> Plan:
        """Say by what share of the rows a pick may miss, beyond the best candidate; no data is touched, nothing spent.

        Parameters
        ----------
        n : int
            Number of rows.
        n_features : int
            Number of columns.
        target : float, default 0.1
            Share of the rows wanted.
        **parameters
            The estimator's.
        """
        sizes = {"n": n, "n_features": n_features}
        estimator, privacy = cls._planned_for(sizes, {"target": target}, parameters)
        mechanism = QuantilePick.calibrate(privacy, estimator._grid, estimator.percent, n_features)
        error = mechanism.missed()
        return Plan(n, min(error / n, 1.0), target, math.ceil(error / target), mechanism.scales, "the rows")

    @property
    def _grid(self) -> list[float]:
        return [check.real("candidates", one) for one in check.sequence("candidates", self.candidates)]

    def _check_parameters(self, privacy: Privacy) -> None:
        if not 1 <= check.positive_integer("percent", self.percent) <= 99:
            raise ValueError(f"percent must be from 1 to 99, got {self.percent!r}")
        grid = self._grid
        if len(grid) < 2 or not np.isfinite(grid).all() or any(np.diff(grid) <= 0.0):
            raise ValueError(f"candidates must be two or more increasing finite numbers, got {self.candidates!r}")

    def _sum(self, privacy: Privacy, source: noise.BitSource, X: Any) -> Summed:
        counts = counts_below(X, self._grid)
        if privacy.adjacency == "replace_one":
            check.positive_integer("the number of rows", int(counts[0, -1]))
        return Summed(QuantilePick.calibrate(privacy, self._grid, self.percent, len(counts)), counts)

    def _solve(self, mechanism: object, found: Release, public: None) -> Fitted:
        picked = found.values["quantiles"]
        return Fitted({"quantiles_": picked, "n_features_in_": len(picked)})

    def _fit_without_noise(self, X: Any) -> Solved:
        rows = check_array(X, dtype=np.float64)
        release = self._exact_release({"quantiles": np.percentile(rows, self.percent, axis=0)})
        return Solved((release,), self._solve(None, release, None).attributes)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "quantiles_", (check.positive_integer("n_features_in_", self.n_features_in_),)
