"""Where features lie, privately: a standardising transformer, and bounds on rows as a function.

The transformer takes means and standard deviations within limits from one release. The function has the method of
estimators with a "private" bound, for any use by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._documents import card, caution, grid
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator import Plan
from dpfast.estimator.base import Expected, Fitted, Solved, Summed, explains_parameters
from dpfast.estimator.bounded import BoundedEstimator, Measured, check_people, columns_of, rows_to_predict
from dpfast.estimator.persistence import Waiting
from dpfast.io.summaries import Estimates, normal_reach
from dpfast.ledger import Ledger, Release, paying
from dpfast.ledger.entries import guarantee_html, header_of, releases_html
from dpfast.privacy import Adjacency, Privacy, Unit, gaussian_mu
from dpfast.releases.size_counts import NoisySizes
from dpfast.scaling.mechanism import PairSums, sum_pairs
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.statistics.rows import check_box, half_widths, limits_of

if TYPE_CHECKING:
    from pandas import DataFrame


#: Scale of a feature whose entries "private" cannot tell from noise: the largest limit there is reduces it to nothing.
_UNSEEN = LogarithmicBins().size(LogarithmicBins().largest_code)


class _Public(NamedTuple):
    """Limits, and the number of people where it is public."""

    low: FloatArray
    high: FloatArray
    n_people: int | None


@explains_parameters
@dataclass(eq=False, repr=False)
class PrivateStandardScaler(OneToOneFeatureMixin, TransformerMixin, BoundedEstimator):
    """Standardise features by differentially private means and standard deviations.

    It replaces scikit-learn's ``StandardScaler`` in a pipeline of private rows. The latter uses the exact means and
    deviations of the rows, and later steps of the pipeline leak them outside of the budget.

    Privacy: one release of the sums of features and of their squares is (epsilon, delta)-differentially private under
    `adjacency`; every attribute is computed from it. Transformed rows are as private as the original ones.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    box_x : mapping, tuple of (low, high) or "private"
        Limits of every feature, in its units: by name, ``{"age": (18, 90), "smoker": (0, 1)}``, or lows and highs, each
        a number or an array of shape (n_features,). Entries are clipped to them when means are computed, but not when
        rows are transformed. The noise in a mean is in proportion to the width. "private" finds limits for a tenth of
        the budget, from noisy counts of people by the size of every feature; about 1% of the people are beyond them. A
        feature whose entries cannot be told from noise gets limits (0, 0), with a warning, and is left out: it is
        divided by 2**40.
    with_mean : bool, default True
        Whether to subtract means.
    with_std : bool, default True
        Whether to divide by standard deviations.
    adjacency, random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound"}
        "sound": no paper prints another.

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (n_features,)
        Means, variances and their roots; no variance is below the level that the known noise gives a constant feature.
        A feature that is left out has mean 0, variance NaN and scale 2**40.
    mean_std_ : ndarray of shape (n_features,)
        Standard deviation of `mean_` from the privacy noise alone (first order); NaN for a feature left out.
    box_x_ : ndarray of shape (2, n_features)
        The limits found, if `box_x` is "private".
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    Dwork, C., Smith, A. (2009). Differential privacy for statistics: what we know and what we want to learn. Journal of
    Privacy and Confidentiality 1(2): moments of bounded rows by noise in their sums.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import PrivateStandardScaler
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(18, 100, 20_000), rng.integers(0, 2, 20_000)])
    >>> scaler = PrivateStandardScaler(1.0, 1e-6, box_x=([0, 0], [120, 1]), random_state=0).fit(X)
    >>> scaler.mean_.round(1), scaler.scale_.round(1)
    (array([59.3,  0.5]), array([23.6,  0.5]))
    """

    _: KW_ONLY
    box_x: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | Literal["private"]
    with_mean: bool = True
    with_std: bool = True
    calibration: Literal["sound"] = "sound"

    mean_: FloatArray = field(init=False)
    var_: FloatArray = field(init=False)
    scale_: FloatArray = field(init=False)
    mean_std_: FloatArray = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: NDArray[np.object_] = field(init=False)

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = ("sound",)

    @suppress_float_warnings
    def fit(self, X: Any, y: Any = None, groups: ArrayLike | None = None, max_rows: int | None = None) -> Self:
        """Learn means and standard deviations.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row: arrays, data frames, Arrow or Dask tables, files, or iterables of blocks.
        y : ignored
            For pipelines: its index must be that of X.
        groups : array of shape (n_rows,), optional
            The owner of each row, if people may own several: the person is then the unit of privacy. Means are of rows.
        max_rows : int, optional
            Goes with `groups`: most rows of a person that count, a public number; further ones are left out.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        options: dict[str, Any] = {"columns": lambda: columns_of(X), "opened": _without_outcomes}
        return self._fit_people(X, y, groups=groups, max_rows=max_rows, **options)

    @suppress_float_warnings
    def transform(self, X: ArrayLike) -> FloatArray:
        """Subtract the means and divide by the standard deviations.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            Need not be within limits; private rows stay private.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        return np.asarray((rows - self._center) / self._unit)

    @suppress_float_warnings
    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Bring transformed rows back to their units.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            As `transform` returns them.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        check_is_fitted(self)
        return np.asarray(rows_to_predict(self, X) * self._unit + self._center)

    def summary(self, *, level: float = 0.95) -> DataFrame:
        """Tabulate the means and standard deviations of the features.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits.

        Returns
        -------
        pandas.DataFrame
            A row a feature. Columns: ``mean``; ``std_privacy``, its standard deviation from the privacy noise alone
            (first order), and ``low`` and ``high``, limits for that; ``variance``; ``scale``.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1).
        ImportError
            If pandas is not installed.
        """
        return self._estimates(level=level).frame()

    def _estimates(self, features: Sequence[Any] | None = None, *, level: float = 0.95) -> Estimates:
        """Return the columns of `summary`, for files by names of their own."""
        check_is_fitted(self)
        mean_std = self.mean_std_
        reach = normal_reach(level) * mean_std
        columns = {"mean": self.mean_, "std_privacy": mean_std, "low": self.mean_ - reach, "high": self.mean_ + reach}
        columns |= {"variance": self.var_, "scale": self.scale_}
        if features is None:
            features = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return Estimates({"feature": features}, columns, self._header(level=level, target="table"))

    @classmethod
    def plan(
        cls, n: int, n_features: int, *, target: float = 0.01, max_rows: int | None = None, **parameters: Any
    ) -> Plan:
        """Say what error privacy will add to the means, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        n_features : int
            Width of X.
        target : float, default 0.01
            Error wanted, as a fraction of half the width of a feature's limits.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, box_x, ...

        Returns
        -------
        Plan
            Expected error of a mean, and the number of people needed.

        Examples
        --------
        >>> from dpfast import PrivateStandardScaler
        >>> plan = PrivateStandardScaler.plan(10_000, 5, epsilon=1.0, delta=1e-6, box_x=(0, 1))
        >>> plan.expected_error < 0.01
        True
        """
        sizes = {"n": n, "n_features": n_features}
        estimator, privacy = cls._planned_for(sizes, {"target": target}, parameters, max_rows)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {})
        limits_of(estimator.box_x, n_features)
        scales = PairSums.calibrate(privacy, n_features, max_rows).scales
        return Plan.of_sums(n, target, scales, max_rows, "half the width of a feature's limits")

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: sums of features and of their squares"

    @property
    def _is_gaussian(self) -> bool:
        return True

    @property
    def _center(self) -> Any:
        return self.mean_ if self.with_mean else 0.0

    @property
    def _unit(self) -> Any:
        return self.scale_ if self.with_std else np.where(self.scale_ == _UNSEEN, _UNSEEN, 1.0)

    def _check_parameters(self, privacy: Privacy) -> None:
        check_box(self.box_x)
        check.boolean("with_mean", self.with_mean)
        check.boolean("with_std", self.with_std)

    def _check_takes_people(self, privacy: Privacy) -> None:
        if math.isinf(privacy.epsilon):
            raise ValueError("groups need a finite epsilon: without noise there is no person to hide")

    def _measured(self, X: Any, groups: Any = None, max_rows: int | None = None) -> Measured:
        return Measured(X, None, groups=groups, max_rows=max_rows)

    def _sum(
        self, privacy: Privacy, source: noise.BitSource, X: Any, groups: Any = None, max_rows: int | None = None
    ) -> Summed:
        table = io.open_table(X)
        low, high = limits_of(self.box_x, table.n_features)
        mechanism = PairSums.calibrate(privacy, table.n_features, max_rows)
        sums = sum_pairs(table, low, high, groups=groups, max_rows=max_rows)
        n_people = None
        if not mechanism.counted:
            n_people = PairSums.people(sums, table.n_features)
            if n_people == 0:
                raise ValueError("X has no rows: at least one is needed")
        expected = None if n_people is None else Expected(0.0, n_people)
        return Summed(mechanism, sums, _Public(low, high, n_people), expected)

    def _solve(self, mechanism: PairSums, found: FloatArray, public: _Public) -> Fitted:
        mean, variance, noise_of_variance, noise_of_mean = mechanism.moments(found, public.n_people)
        units = half_widths(public.low, public.high)
        middle = public.low / 2.0 + public.high / 2.0
        least = np.maximum(variance, noise_of_variance)
        attributes = _attributes(middle + units * mean, units**2 * least, units * noise_of_mean)
        # Left in its units, a feature that nothing is known of could be all that later steps see.
        # The largest limits stand for a box of which "private" has found nothing at all.
        unseen = ((public.low == 0.0) & (public.high == 0.0)) | (units == _UNSEEN)
        unknown = {"mean_": 0.0, "var_": np.nan, "scale_": _UNSEEN, "mean_std_": np.nan}
        return Fitted(attributes | {name: np.where(unseen, one, attributes[name]) for name, one in unknown.items()})

    def _fit_without_noise(self, X: Any) -> Solved:
        rows: FloatArray = check_array(X, dtype=np.float64)
        attributes = _attributes(rows.mean(axis=0), rows.var(axis=0), np.zeros(rows.shape[1]))
        return Solved((self._exact_release({"mean": attributes["mean_"], "var": attributes["var_"]}),), attributes)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name in ("mean_", "var_", "scale_", "mean_std_"):
            yield name, (self.n_features_in_,)

    def _check_fitted(self) -> None:
        if not np.all(self.scale_ > 0.0):
            raise ValueError("scale_ must be positive")


def _without_outcomes(X: Any, y: Any, groups: Any = None, max_rows: int | None = None) -> tuple[Any, ...]:
    # Later steps of a pipeline receive y beside rows without their index.
    io.check_aligned(X=X, y=y, groups=groups)
    return (X,) if groups is None else (X, groups, max_rows)


def _attributes(mean: FloatArray, variance: FloatArray, mean_std: FloatArray) -> dict[str, Any]:
    # A feature that does not vary is left in its units.
    scale = np.where(variance > 0.0, np.sqrt(variance), 1.0)
    return {"mean_": mean, "var_": variance, "scale_": scale, "mean_std_": mean_std, "n_features_in_": len(mean)}


@dataclass(frozen=True)
class PrivateBounds:
    """Bounds found, and their release.

    Parameters
    ----------
    bound_x, bound_y : float or None
        L2 norms seldom exceeded by the rows of X, and of Y; None if not requested.
    box_x : tuple of (low, high) or None
        Limits of every feature, arrays of shape (n_features,).
    are_certain : bool
        Whether every histogram shows people beyond noise; if not, some bound is a guess.
    release : Release
        The noisy counts of people.
    feature_names : tuple of str, optional
        Names of the features, if X has any.
    """

    bound_x: float | None
    bound_y: float | None
    box_x: tuple[FloatArray, FloatArray] | None
    are_certain: bool
    release: Release
    feature_names: tuple[str, ...] | None = None

    def _rows(self) -> list[tuple[Any, ...]]:
        """Return the bounds: for each its kind, its feature and its limits."""
        norms = {"bound_x": self.bound_x, "bound_y": self.bound_y}
        rows: list[tuple[Any, ...]] = [(name, "", 0.0, one) for name, one in norms.items() if one is not None]
        if self.box_x is not None:
            low, high = self.box_x
            features = self.feature_names or range(len(low))
            rows += [("box_x", *one) for one in zip(features, low.tolist(), high.tolist(), strict=True)]
        return rows

    def _repr_html_(self) -> str:
        """Show the bounds, and their privacy cost."""
        rows = [(name, feature, f"{low:.6g}", f"{high:.6g}") for name, feature, low, high in self._rows()]
        unseen = caution("Some histogram shows no people beyond noise: nothing is known of what it counts.")
        guesses = [] if self.are_certain else [unseen]
        cost = [guarantee_html([self.release], self.release.privacy), releases_html([self.release])]
        return card("PrivateBounds", *guesses, grid(("bound", "feature", "low", "high"), rows), *cost)

    def summary(self) -> DataFrame:
        """Tabulate the bounds.

        Returns
        -------
        pandas.DataFrame
            A row a norm that is bounded, and a feature of the box: index levels ``bound`` and ``feature``, columns
            ``low`` and ``high``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        bounds, features, lows, highs = zip(*self._rows(), strict=True)
        header = {"estimator": "PrivateBounds"} | header_of([self.release], self.release.privacy)
        return Estimates({"bound": bounds, "feature": features}, {"low": lows, "high": highs}, header).frame()


@suppress_float_warnings
def private_bounds(
    X: Any,
    Y: Any = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency = "replace_one",
    norms: bool = True,
    box: bool = False,
    groups: ArrayLike | None = None,
    max_rows: int | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
    n_threads: int | None = None,
) -> PrivateBounds:
    """Find bounds exceeded by about 1% of people, from noisy counts of people by the size of their rows.

    Privacy: one release of the counts is (epsilon, delta)-differentially private under `adjacency`; it is paid for from
    the ledger, if one is given.

    Parameters
    ----------
    X : table of shape (n_rows, n_features)
        Anything that estimators fit.
    Y : table of shape (n_rows, n_outcomes) or (n_rows,), optional
        Outcomes; their norm gets a separate bound.
    epsilon, delta : float
        Budget of this release alone: the smaller, the more private, and the more noise. With delta 0 noise is Laplace,
        else Gaussian.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of people is public.
    norms : bool, default True
        Whether to bound the L2 norm of rows.
    box : bool, default False
        Whether to find limits of every feature, from a histogram each: the noise grows with the root of their number.
    groups, max_rows : optional
        Groups (the person each row belongs to) and the number of rows counted per person: all of these are within the
        bounds.
    ledger : Ledger, optional
        The budget to pay from.
    random_state : int, optional
        A seed for tests, which voids the guarantee.
    n_threads : int, optional
        The result does not depend on it.

    Returns
    -------
    PrivateBounds
        Powers of the root of 2, between 2**-40 and 2**40, and 0 as a limit.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind; nothing is spent then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Bounds from noisy histograms of logarithms, with a guarantee on the number clipped: Wilson, R. et al. (2020).
    Differentially private SQL with bounded user contribution. PoPETs, Section 5.1.1 (approximate bounds).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import private_bounds
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(18, 100, 5_000), rng.integers(0, 2, 5_000)])
    >>> found = private_bounds(X, epsilon=0.5, delta=1e-6, box=True, random_state=0)
    >>> found.bound_x, [limits.tolist() for limits in found.box_x]
    (128.0, [[16.0, 0.0], [128.0, 1.0]])
    """
    privacy = Privacy(epsilon, delta, adjacency)
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise bounds reveal the largest row")
    groups = io.groups_of(X, groups)
    has_outcomes = Y is not None or (isinstance(X, io.Partitions) and X.n_outcomes > 0)
    sizes = NormHistograms(check.boolean("norms", norms), has_outcomes, check.boolean("box", box))
    if not sizes.n_histograms(1):
        raise ValueError("norms or box must be True, or Y given: nothing else has bounds")
    unit: Unit = "person" if check_people(groups, max_rows) else "row"
    mu = gaussian_mu(epsilon, delta) if privacy.delta > 0.0 else None
    with paying(ledger, privacy).reserving(privacy, unit=unit, random_state=random_state, mu=mu) as reservation:
        io.check_aligned(X=X, Y=Y, groups=groups)
        table = io.open_table(X, Y)
        names = columns_of(X).get("feature_names_in_")
        source = noise.resolve_source(random_state, reservation)
        mechanism = NoisySizes.calibrate(privacy, sizes, table.n_features, unit=unit)
        counts = size_counts(table, sizes, groups=groups, max_rows=max_rows, n_threads=n_threads)
        n_people = int(counts.low[0].sum()) if adjacency == "replace_one" else None
        release = mechanism.noise.release(counts, source, "private_bounds: counts of people by size")
        waiting = Waiting([release], partial(_found, mechanism, release, n_people, names))
        reservation.commit(release)
    return waiting.complete()


def _found(mechanism: NoisySizes, release: Release, n_people: int | None, names: Sequence[str] | None) -> PrivateBounds:
    found = mechanism.found(release, n_people)
    assert not isinstance(found.outcomes, np.ndarray)
    named = None if names is None else tuple(names)
    return PrivateBounds(found.rows, found.outcomes, found.box, found.are_certain, release, named)
