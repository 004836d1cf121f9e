"""A private mean: sum rows exactly, release the sum, divide by their public number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from dpfast.mean_of_rows.mechanism import sum_of_rows
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
from dpfast.statistics import gram

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(eq=False, repr=False)
class MeanOfRows(PrivateEstimator):
    """Differentially private mean of rows within a ball.

    Privacy: their noisy sum is released, (epsilon, delta)-differentially private for one row that is replaced.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    bound : float
        L2 norm of a row, at most; longer rows are scaled onto it.
    random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        The noisy sum over the number of rows.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import MeanOfRows
    >>> rows = np.tile([0.6, 0.8], (10_000, 1))
    >>> MeanOfRows(1.0, 1e-6, bound=1.0, random_state=0).fit(rows).mean_.round(1)
    array([0.6, 0.8])
    """

    _: KW_ONLY
    bound: float
    adjacency: Literal["replace_one"] = "replace_one"
    calibration: Literal["sound"] = "sound"

    mean_: FloatArray = field(init=False)
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
        """Tabulate the mean, a row a feature."""
        check_is_fitted(self)
        features = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return Estimates({"feature": features}, {"mean": self.mean_}, self._header()).frame()

    @classmethod
    def plan(cls, n: int, n_features: int, *, target: float = 0.1, **parameters: Any) -> Plan:
        """Say what error privacy will add, before any data is touched; nothing is spent."""
        sizes = {"n": n, "n_features": n_features}
        estimator, privacy = cls._planned_for(sizes, {"target": target}, parameters)
        mechanism = sum_of_rows(privacy, estimator.bound, n_features)
        error = mechanism.scales["sum"] * math.sqrt(n_features) / estimator.bound
        return Plan(n, min(error / n, 1.0), target, math.ceil(error / target), mechanism.scales, "the bound")

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: sum of rows"

    def _check_parameters(self, privacy: Privacy) -> None:
        check.choice("adjacency", self.adjacency, ("replace_one",))
        check.positive("bound", self.bound)

    def _sum(self, privacy: Privacy, source: noise.BitSource, X: Any) -> Summed:
        sums = gram(X, bound_x=self.bound, sums=True, n_threads=self.n_threads)
        check.positive_integer("the number of rows", sums.n_rows)
        mechanism = sum_of_rows(privacy, self.bound, sums.n_features)
        return Summed(mechanism, sums.exact_x_sum, sums.n_rows)

    def _solve(self, mechanism: object, found: Release, public: int) -> Fitted:
        total = found.values["sum"]
        return Fitted({"mean_": total / public, "n_features_in_": len(total)})

    def _fit_without_noise(self, X: Any) -> Solved:
        rows: FloatArray = check_array(X, dtype=np.float64)
        release = self._exact_release({"sum": rows.sum(axis=0)})
        return Solved((release,), self._solve(None, release, len(rows)).attributes)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "mean_", (check.positive_integer("n_features_in_", self.n_features_in_),)
