"""A description of a table, from one release: how many people are in each bin, and what numbers add up to.

The counts and sums of its declared columns are released at once, as every fit releases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._documents import card, grid
from dpfast._redacted import suppress_float_warnings
from dpfast.description.mechanism import WEIGHT, Counted, Histogram, TableCounts, count_rows
from dpfast.estimator.base import Expected, Fitted, PrivateEstimator, Solved, Summed
from dpfast.estimator.bounded import check_most, check_people
from dpfast.estimator.plan import Plan
from dpfast.io import Columns
from dpfast.io.columns import Column, column_of
from dpfast.io.summaries import Estimates, normal_reach
from dpfast.io.transforms import middle_and_half
from dpfast.ledger import Ledger, Release
from dpfast.ledger.entries import guarantee_html, header_of, releases_html
from dpfast.privacy import Adjacency, Privacy, Unit
from dpfast.releases.mechanism import run
from dpfast.solvers.inference import NoisyRatio

if TYPE_CHECKING:
    from pandas import DataFrame


#: What lies within one standard deviation of a normal law.
_ONE_DEVIATION = 0.6826894921370859

_QUARTILES = 0.25, 0.5, 0.75
_FIELDS = "column", "statistic", "estimate", "std_error", "low", "high"

Target = Literal["population", "table"]
_Row = tuple[str, str, float, float, float, float]


class _Ratio(NamedTuple):
    """A numerator over a number of people, and what is known of their errors.

    With t the ratio, numerator - t denominator has the variance of the noise, v0 - 2 t v1 + t^2 v2, and that of
    sampling, s0 + s1 t (1 - t).
    """

    numerator: float
    denominator: float
    noise: tuple[float, float, float]
    sampling: tuple[float, float]
    low: float = 0.0
    high: float = 1.0

    @property
    def estimate(self) -> float:
        return min(max(self.numerator / max(self.denominator, 1.0), self.low), self.high)

    @property
    def deviation(self) -> float:
        """Standard deviation, to first order; no more than half of all there can be."""
        deviation = math.sqrt(max(self.variance(self.estimate), 0.0)) / max(self.denominator, 1.0)
        return min(deviation, (self.high - self.low) / 2.0)

    def variance(self, t: float) -> float:
        """Variance of numerator - t denominator."""
        (v0, v1, v2), (s0, s1) = self.noise, self.sampling
        return v0 - 2.0 * t * v1 + t * t * v2 + s0 + s1 * t * (1.0 - t)

    def limits(self, reach: float) -> tuple[float, float]:
        """Return the ratios for which numerator - t denominator is within so many of its standard deviations."""
        (v0, v1, v2), (s0, s1) = self.noise, self.sampling
        # A numerator that no ratio has leaves next to no ratios: that it is so is noise, and wider limits hold as well.
        ends = sorted(end * self.denominator for end in (self.low, self.high))
        numerator = min(max(self.numerator, ends[0]), ends[1])
        terms = numerator, self.denominator, v0 + s0, v2 - s1, v1 - s1 / 2.0
        found = NoisyRatio(*map(np.asarray, terms)).limits(reach, np.asarray(self.low), np.asarray(self.high))
        # Beside a number of people below 0 the estimate may be none of them.
        return min(float(found[0]), self.estimate), max(float(found[1]), self.estimate)


@dataclass(frozen=True, repr=False)
class Description:
    """The release of a table; `describe` makes it.

    Parameters
    ----------
    releases_ : tuple of Release
        All that left the table: noisy counts of people by bin, and sums of numbers.
    privacy_spent_ : Privacy
        Its cost.
    """

    releases_: tuple[Release, ...]
    privacy_spent_: Privacy
    _histograms: tuple[Histogram, ...] = field(compare=False)
    #: None where it is private.
    _n_rows: int | None
    #: Most rows of a person; None where a person is a row.
    _max_rows: int | None = None
    #: The largest weight that counts; None where rows count alike.
    _largest: float | None = None

    def summary(
        self, *, level: float = 0.95, target: Target = "population", quantiles: Sequence[float] = _QUARTILES
    ) -> DataFrame:
        """Tabulate shares, means and quantiles, with limits.

        Privacy: computed from what was released; nothing further is spent.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits, each on its own.
        target : {"population", "table"}, default "population"
            The target of the limits. It is the law of the rows, with sampling as part of the error. Or it is the table
            itself, clipped to its limits, with noise as the only error. Where people have several rows, the variance of
            sampling is taken to be the largest possible: `max_rows` times that of independent rows. So it is where rows
            have weights: that of so many rows as the sum of the weights is of the largest.
        quantiles : sequence of float, default (0.25, 0.5, 0.75)
            Which quantiles of numbers. Their estimates are interpolated within a bin; their limits are ends of bins.

        Returns
        -------
        pandas.DataFrame
            Index levels ``column`` and ``statistic``; columns ``estimate``, ``std_error``, ``low`` and ``high``. First
            the number of rows, or the sum of their weights. For a number: ``mean`` and the quantiles, of the people
            with a value, and the share of rows where it is ``missing``. For categories, and for pairs of two: the share
            of all rows at each level, ``other`` and ``missing``. The error of a quantile is half of its limits at one
            standard deviation.

        Raises
        ------
        ValueError
            If an argument is out of its range.
        ImportError
            If pandas is not installed.
        """
        return self._estimates(level, target, quantiles).frame()

    def _estimates(
        self, level: float = 0.95, target: Target = "population", quantiles: Sequence[float] = _QUARTILES
    ) -> Estimates:
        """Return the table of `summary`, for files."""
        found = dict(zip(_FIELDS, zip(*self._rows(level, target, quantiles), strict=True), strict=True))
        index = {name: found.pop(name) for name in _FIELDS[:2]}
        header = {"estimator": "Description", "n": self._n_rows, "unit": "rows", "level": level}
        header |= {"target": target} | header_of(self.releases_, self.privacy_spent_)
        return Estimates(index, found, header)

    def _rows(self, level: float, target: Target, quantiles: Sequence[float]) -> list[_Row]:
        normal = normal_reach(level)
        # Laplace noise has longer tails, and sums of it shorter ones than a single draw.
        reach = max(normal, -math.log1p(-level) / math.sqrt(2.0)) if self._is_heavy else normal
        of_population = check.choice("target", target, ("population", "table")) == "population"
        listed = check.sequence("quantiles", quantiles)
        wanted = [check.share(f"quantiles[{place}]", one) for place, one in enumerate(listed)]
        n, n_deviation = self._people
        least, most = (max(n + side * reach * n_deviation, 0.0) for side in (-1.0, 1.0))
        unit, what = (1.0, "rows") if self._largest is None else (self._largest, "weights")
        rows = [("(table)", what, unit * max(n, 0.0), unit * n_deviation, unit * least, unit * most)]
        number = 0
        for place, one in enumerate(self._histograms):
            if len(one.edges) > 0:
                rows += self._of_numbers(place, number, wanted, reach, of_population)
                number += 1
                names = {len(one.bins) - 1: "missing"}
            else:
                names = dict(enumerate(one.bins))
            for bin_, name in names.items():
                ratio = self._ratio(place, np.eye(len(one.bins))[bin_], np.ones(len(one.bins)), of_population)
                rows.append((one.name, name, ratio.estimate, ratio.deviation, *ratio.limits(reach)))
        return rows

    def _repr_html_(self) -> str:
        """Show the table, and what it cost."""
        rows = [(*row[:2], *map("{:.5g}".format, row[2:])) for row in self._rows(0.95, "population", _QUARTILES)]
        promised = guarantee_html(self.releases_, self.privacy_spent_)
        return card("Description", promised, grid(_FIELDS, rows), releases_html(self.releases_))

    def __repr__(self) -> str:
        columns = ", ".join(one.name for one in self._histograms)
        return f"<Description of {columns}: {self.privacy_spent_}>"

    @property
    def _is_heavy(self) -> bool:
        return self.releases_[0].mechanism == "Laplace"

    @cached_property
    def _variance(self) -> float:
        """Variance of the noise in an entry."""
        return float(self.releases_[0].scales.get("sum", 0.0)) ** 2

    @cached_property
    def _noisy_counts(self) -> list[FloatArray]:
        ends = np.cumsum([len(one.bins) for one in self._histograms])
        return np.split(self.releases_[0].values["sum"], ends)[:-1]

    @cached_property
    def _sums(self) -> FloatArray:
        """Sums of z."""
        n_bins = sum(len(one.bins) for one in self._histograms)
        return np.asarray(self.releases_[0].values["sum"][n_bins:] / WEIGHT)

    @cached_property
    def _people(self) -> tuple[float, float]:
        """Return the number of rows, or the sum of their weights, and its error: totals by their precision."""
        if self._n_rows is not None and self._largest is None:
            return float(self._n_rows), 0.0
        weights = np.array([1.0 / len(counts) for counts in self._noisy_counts])
        totals = np.array([counts.sum() for counts in self._noisy_counts])
        return float(totals @ weights / weights.sum()), math.sqrt(self._variance / float(weights.sum()))

    @cached_property
    def _counts(self) -> list[FloatArray]:
        """Counts as those of every histogram add up to the number of rows: least squares."""
        n, _ = self._people
        return [counts + (n - counts.sum()) / len(counts) for counts in self._noisy_counts]

    def _covariance(self, one: FloatArray, other: FloatArray) -> float:
        """Return the covariance of the noise in sums of adjusted counts with these weights.

        Noise e of a histogram becomes e - mean(e), plus the independent noise in the number of rows, spread evenly.
        """
        both = float(one.sum() * other.sum())
        shared = both / len(one) ** 2 * self._people[1] ** 2
        return self._variance * (float(one @ other) - both / len(one)) + shared

    def _ratio(self, place: int, top: FloatArray, bottom: FloatArray, of_population: bool) -> _Ratio:
        """Return the ratio of two sums of counts, the first of which are among the second."""
        counts = self._counts[place]
        people = float(counts @ bottom)
        noise_of = self._covariance(top, top), self._covariance(top, bottom), self._covariance(bottom, bottom)
        return _Ratio(float(counts @ top), people, noise_of, (0.0, max(people, 1.0) * self._likeness * of_population))

    @property
    def _likeness(self) -> float:
        """The largest variance of a sum of rows over that of independent ones: rows of a person may be all alike."""
        return float(self._max_rows or 1)

    def _of_numbers(
        self, place: int, number: int, quantiles: Sequence[float], reach: float, of_population: bool
    ) -> Iterator[_Row]:
        """Yield the mean and the quantiles of a column of numbers."""
        histogram = self._histograms[place]
        edges, name = histogram.edges, histogram.name
        mean = self._mean(place, number, of_population)
        middle, half = middle_and_half(edges[0], edges[-1])
        low, high = (float(middle + half * end) for end in mean.limits(reach))
        yield name, "mean", float(middle + half * mean.estimate), float(half * mean.deviation), low, high
        for quantile in quantiles:
            low, high = self._quantile(place, quantile, reach, of_population)
            # The spread of what is not normal.
            one_deviation = -math.log1p(-_ONE_DEVIATION) / math.sqrt(2.0) if self._is_heavy else 1.0
            least, most = self._quantile(place, quantile, min(one_deviation, reach), of_population)
            shares = np.cumsum(np.maximum(self._counts[place][:-1], 0.0))
            cumulative = np.append(0.0, shares / max(float(shares[-1]), 1e-300))
            estimate = min(max(float(np.interp(quantile, cumulative, edges)), low), high)
            yield name, f"{100.0 * quantile:g}%", estimate, (most - least) / 2.0, low, high

    def _mean(self, place: int, number: int, of_population: bool) -> _Ratio:
        """Return the mean of z, of those who have it."""
        counts, n_bins = self._counts[place], len(self._histograms[place].bins)
        present = np.append(np.ones(n_bins - 1), 0.0)
        people = float(counts @ present)
        of_mean = float(self._sums[number]) / max(people, 1.0)
        # Squares of distances of bins' middles: what the noise may have hidden of them is given to sampling.
        middles = (2.0 * np.arange(n_bins - 1) + 1.0) / (n_bins - 1) - 1.0
        weights = np.append((middles - np.clip(of_mean, -1.0, 1.0)) ** 2, 0.0)
        squares = float(counts @ weights) + math.sqrt(max(self._covariance(weights, weights), 0.0))
        spread = min(max(squares, 0.0) / max(people, 1.0) + 1.0 / (3.0 * (n_bins - 1) ** 2), 1.0)
        noise_of = self._variance / WEIGHT**2, 0.0, self._covariance(present, present)
        sampling = max(people, 1.0) * spread * self._likeness if of_population else 0.0
        return _Ratio(float(self._sums[number]), people, noise_of, (sampling, 0.0), -1.0, 1.0)

    def _quantile(self, place: int, quantile: float, reach: float, of_population: bool) -> tuple[float, float]:
        """Return limits of a quantile: ends of bins, from either side, up to the first that may be beyond it.

        Of the least end above the quantile, the share of people below is at least what it is to be. That it is less is
        rejected by chance with the stated probability, and so is every end up to it.
        """
        edges = self._histograms[place].edges
        n_bins = len(edges) - 1
        present = np.append(np.ones(n_bins), 0.0)
        below = [np.append(np.arange(n_bins) < end, False).astype(np.float64) for end in range(1, n_bins)]
        apart = np.zeros(n_bins - 1)
        for end, weights in enumerate(below):
            ratio = self._ratio(place, weights, present, of_population)
            variance = ratio.variance(quantile)
            difference = ratio.numerator - quantile * ratio.denominator
            # Without noise, an end that has just so many people below is the quantile.
            apart[end] = difference and difference * (math.inf if variance <= 0.0 else 1.0 / math.sqrt(variance))
        first = int(np.argmin(np.append(apart < -reach, False)))
        last = int(np.argmin(np.append(apart[::-1] > reach, False)))
        return float(edges[first]), float(edges[n_bins - last])


_NAME = "describe"
_MOST_BINS = 1_000
#: What is public of rows: how many, how many of a person, the largest weight; None where it is not, or there is none.
_PUBLIC = "_n_rows", "_max_rows", "_largest"


@suppress_float_warnings
def describe(
    table: Any,
    columns: Mapping[str, Any] | Columns,
    epsilon: float,
    delta: float = 0.0,
    *,
    adjacency: Adjacency = "replace_one",
    crosstabs: Sequence[tuple[str, str]] = (),
    n_bins: int = 32,
    groups: ArrayLike | None = None,
    max_rows: int | None = None,
    sample_weight: ArrayLike | None = None,
    max_weight: float | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Description:
    """Describe a table before it is modelled: rows, shares, crosstabs, means and quantiles, each with limits.

    Privacy: one release, of noisy counts of people by bin and of sums of numbers, is (epsilon, delta)-differentially
    private under `adjacency`; it is paid for from the ledger, where one is given. A person is a row, or all rows of one
    of the `groups`.

    Parameters
    ----------
    table : table
        A pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), a query, a path to a
        ``.parquet`` or ``.csv`` file, or whatever else `dpfast.io.Columns.encode` reads: once, some rows at a time.
    columns : mapping or Columns
        What is described: ``{"age": (18, 90), "sex": ["f", "m"], "smoker": "boolean"}``, a tuple of two numbers for
        limits, and a list of levels; or columns as they are declared for a fit, numbers with `low` and `high`. Numbers
        are clipped to their limits. An undeclared level is counted as ``other``. A missing value is counted as missing,
        whatever value is declared to represent it.
    epsilon, delta : float
        Budget of the whole description: the smaller, the more private, and the more noise. With delta 0 noise is
        Laplace, else Gaussian; without noise where epsilon is ``inf``.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public; if not, it is estimated. With `groups` it never is.
    crosstabs : sequence of pairs of str, optional
        Two categories each, whose pairs of levels are counted. One costs as much as one more column.
    n_bins : int, default 32
        Bins of a number's limits, for quantiles. More are finer, and have more noise between them.
    groups : array of shape (n_rows,), optional
        The owner of each row, if people may own several: the person is then the unit of privacy, and the noise
        `max_rows` times as large. Rows are counted, not people. For a file, `dpfast.io.RowOwners` reads its column of
        ids.
    max_rows : int, optional
        Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
    sample_weight : array of shape (n_rows,), optional
        Weight of each row, as private as the row: counts, shares, means and quantiles are weighted. Their sum is
        estimated in place of the number of rows.
    max_weight : float, optional
        Goes with `sample_weight`: the largest weight that counts, a public number; larger ones count as much.
    ledger : Ledger, optional
        The budget to pay from.
    random_state : int, optional
        A seed for tests, which voids the guarantee.

    Returns
    -------
    Description
        With ``summary()`` and ``releases_``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind, or the table lacks a declared column; nothing is spent
        then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. JASA 22: limits of
    shares, here with the variance of the noise beside that of sampling.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import dpfast
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.uniform(18, 90, 5_000), "sex": rng.choice(["f", "m"], 5_000)})
    >>> found = dpfast.describe(people, {"age": (18, 90), "sex": ["f", "m"]}, 1.0, 1e-6, random_state=0)
    >>> table = found.summary()
    >>> table.loc[("age", "mean"), ["low", "high"]].round(1).tolist()
    [53.3, 54.6]
    >>> table.loc[("sex", "f"), ["low", "high"]].round(2).tolist()
    [0.49, 0.51]
    """
    options: dict[str, Any] = {"adjacency": adjacency, "ledger": ledger, "random_state": random_state}
    options |= {"columns": columns, "crosstabs": crosstabs, "n_bins": n_bins, "max_weight": max_weight}
    return TableDescriber(epsilon, delta, **options).fit(table, groups, max_rows, sample_weight).description_


@dataclass(eq=False, repr=False)
class TableDescriber(PrivateEstimator):
    """Description of a table: counts, shares, crosstabs, means and quantiles, with limits.

    Privacy: that of `describe`. This is the form of it that can be saved and planned.

    Parameters
    ----------
    columns
        As for `describe`.
    crosstabs : sequence of pairs of str, optional
        Two categories each, whose pairs of levels are counted. One costs as much as one more column.
    n_bins : int, default 32
        Bins of a number's limits, for quantiles. More are finer, and have more noise between them.
    max_weight : float, optional
        For `sample_weight`: the largest weight that counts, a public number; larger ones count as much.
    epsilon, delta, adjacency, random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound"}
        No paper prints another.

    Attributes
    ----------
    releases_, privacy_spent_
        As for every estimator.
    """

    _: KW_ONLY
    columns: Mapping[str, Any] | Columns
    crosstabs: Sequence[tuple[str, str]] = ()
    n_bins: int = 32
    max_weight: float | None = None
    calibration: Literal["sound"] = "sound"

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = ("sound",)

    @suppress_float_warnings
    def fit(
        self,
        table: Any,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Release the counts and sums of a table; as `describe`."""
        privacy, has_several = self._checked(), check_people(groups, max_rows)
        if sample_weight is not None:
            self._check_takes_weights()
        if math.isinf(privacy.epsilon) and has_several:
            raise ValueError("groups need a finite epsilon: without noise there is no person to hide")
        unit: Unit = "person" if has_several else "row"
        return self._fit(privacy, table, groups, max_rows, sample_weight, unit=unit)

    def _check_takes_weights(self) -> None:
        check_most(self.max_weight)

    @property
    def description_(self) -> Description:
        """What was released."""
        check_is_fitted(self)
        public = self._n_rows, self._max_rows, self._largest
        return Description(self.releases_, self.privacy_spent_, self._histograms, *public)

    def complete(self) -> Any:
        """As for every estimator; returns what `describe` would have returned."""
        super().complete()
        return self.description_

    def summary(self, **options: Any) -> DataFrame:
        """Tabulate the description."""
        return self.description_.summary(**options)

    @classmethod
    def plan(cls, n: int, *, target: float = 0.01, max_rows: int | None = None, **parameters: Any) -> Plan:
        """Say what error privacy will add to a share of rows, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        target : float, default 0.01
            Error wanted, of a share.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, columns, ...

        Returns
        -------
        Plan
            Expected error of a share, and the number of people needed.
        """
        describer, privacy = cls._planned_for({"n": n}, {"target": target}, parameters, max_rows)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {})
        scales = TableCounts.calibrate(privacy, describer._histograms, max_rows).scales
        return Plan.of_sums(n, target, scales, max_rows, "the number of rows")

    @property
    def _is_gaussian(self) -> bool:
        return True

    @property
    def _columns(self) -> Columns:
        return self.columns if isinstance(self.columns, Columns) else Columns(_declared(self.columns))

    @property
    def _histograms(self) -> tuple[Histogram, ...]:
        return _histograms(self._columns, self.crosstabs, check.positive_integer("n_bins", self.n_bins))

    def _check_parameters(self, privacy: Privacy) -> None:
        # Columns of a file were made without their checks.
        for column in self._columns.declared:
            replace(column)
        _ = self._histograms
        check.optional(check.positive, "max_weight", self.max_weight)

    def _sum(
        self,
        privacy: Privacy,
        source: noise.BitSource,
        table: Any,
        groups: Any = None,
        max_rows: int | None = None,
        sample_weight: Any = None,
    ) -> Summed:
        histograms = self._histograms
        io.check_aligned(table=table, groups=groups, sample_weight=sample_weight)
        whose = None if max_rows is None else io.people(groups, max_rows, ordered=False)
        largest = None if sample_weight is None else check_most(self.max_weight)
        shares = None if largest is None else io.shares_of(table, None, sample_weight, largest)
        counted = _counted(table, self._columns, histograms, whose, shares)
        n_rows = _some(counted.n_rows) if self.adjacency == "replace_one" and max_rows is None else None
        expected = None if n_rows is None else Expected(0.0, n_rows, "rows")
        mechanism = TableCounts.calibrate(privacy, histograms, max_rows)
        return Summed(mechanism, counted.sums, (n_rows, max_rows, largest), expected)

    def _release(self, summed: Summed, source: noise.BitSource) -> tuple[tuple[Release, ...], Any]:
        return run(summed.mechanism, summed.statistic, source, _NAME)

    def _solve(self, mechanism: Any, found: Any, public: tuple[Any, ...]) -> Fitted:
        return Fitted(dict(zip(_PUBLIC, public, strict=True)))

    def _fit_without_noise(self, table: Any, _: Any = None, __: Any = None, sample_weight: Any = None) -> Solved:
        io.check_aligned(table=table, sample_weight=sample_weight)
        largest = shares = None
        if sample_weight is not None:
            # None is clipped: they are shares of the largest that there is.
            shares = io.shares_of(table, None, sample_weight, 1.0, clips=False)
            largest = float(shares.max())
            shares /= largest
        counted = _counted(table, self._columns, self._histograms, None, shares)
        n_rows = _some(counted.n_rows)
        release = self._exact_release({"sum": counted.sums.to_float64()}, _NAME)
        public = n_rows if self.adjacency == "replace_one" else None, None, largest
        return Solved((release,), dict(zip(_PUBLIC, public, strict=True)))


def _some(n_rows: int) -> int:
    if n_rows == 0:
        raise ValueError("the table has no rows: at least one is needed")
    return n_rows


def _counted(table: Any, declared: Columns, histograms: Sequence[Histogram], *whose: Any) -> Counted:
    rows = table if isinstance(table, io.EncodedTable) else declared.encode(table)
    return count_rows(histograms, rows.batches(), *whose)


def _declared(columns: object) -> list[Column]:
    """Return columns that are declared by name: limits, or levels."""
    if not isinstance(columns, Mapping):
        raise check.mistyped("columns", "a mapping of names to limits or levels, or a dpfast.io.Columns", columns)
    check.by_name("columns", columns)
    return [column_of("columns", name, one) for name, one in columns.items()]


def _histograms(declared: Columns, crosstabs: object, n_bins: int) -> tuple[Histogram, ...]:
    """Return what is counted: every column, and then pairs."""
    if n_bins > _MOST_BINS:
        raise ValueError(f"n_bins must be at most {_MOST_BINS}, got {n_bins}")
    by_name = {column.name: column for column in declared.declared}
    found = [Histogram.of(column, n_bins) for column in by_name.values()]
    for one in found:
        if len(one.edges) > 0 and not one.has_room:
            raise ValueError(f"limits of column {one.name!r} are too near each other, or too far, for {n_bins} bins")
    if isinstance(crosstabs, str) or not isinstance(crosstabs, Sequence):
        raise TypeError(f"crosstabs must be a sequence of pairs of names, got {type(crosstabs).__name__}")
    for place, pair in enumerate(crosstabs):
        names = check.pair(f"crosstabs[{place}]", pair, "of names of two columns")
        for name in names:
            if name not in by_name:
                raise ValueError(f"crosstabs[{place}] has {name!r}, which is no declared column")
        if names[0] == names[1]:
            raise ValueError(f"crosstabs[{place}] must be of two columns, got {names[0]!r} twice")
        found.append(Histogram.of_pairs(*map(by_name.__getitem__, names)))
    for one in found:
        if len(set(one.bins)) < len(one.bins):
            raise ValueError(f"levels of {one.name!r} must differ from each other, and from 'other' and 'missing'")
    return tuple(found)
