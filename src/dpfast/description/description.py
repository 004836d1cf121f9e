"""A description of a table, from one release: how many people are in each bin, and what numbers add up to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._html import card, grid
from dpfast.description.mechanism import WEIGHT, Histogram
from dpfast.io.summaries import Estimates, normal_reach
from dpfast.ledger import Release
from dpfast.ledger.release import guarantee_html, header_of, releases_html
from dpfast.privacy import Privacy
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
        return float(found[0]), float(found[1])


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
            sampling is taken to be the largest possible: `max_rows` times that of independent rows.
        quantiles : sequence of float, default (0.25, 0.5, 0.75)
            Which quantiles of numbers. Their estimates are interpolated within a bin; their limits are ends of bins.

        Returns
        -------
        pandas.DataFrame
            Index levels ``column`` and ``statistic``; columns ``estimate``, ``std_error``, ``low`` and ``high``. First
            the number of rows. For a number: ``mean`` and the quantiles, of the people with a value, and the share of
            rows where it is ``missing``. For categories, and for pairs of two: the share of all rows at each level,
            ``other`` and ``missing``. The error of a quantile is half of its limits at one standard deviation.

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

    def _rows(
        self, level: float = 0.95, target: Target = "population", quantiles: Sequence[float] = _QUARTILES
    ) -> list[_Row]:
        normal = normal_reach(level)
        # Laplace noise has longer tails, and sums of it shorter ones than a single draw.
        reach = max(normal, -math.log1p(-level) / math.sqrt(2.0)) if self._is_heavy else normal
        of_population = check.choice("target", target, ("population", "table")) == "population"
        wanted = [check.share(f"quantiles[{place}]", one) for place, one in enumerate(quantiles)]
        n, n_deviation = self._people
        least, most = (max(n + side * reach * n_deviation, 0.0) for side in (-1.0, 1.0))
        rows = [("(table)", "rows", max(n, 0.0), n_deviation, least, most)]
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
        rows = [(*row[:2], *map("{:.5g}".format, row[2:])) for row in self._rows()]
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
        """Return how many rows there are, and the standard deviation of that: totals, weighted by their variances."""
        if self._n_rows is not None:
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
        middle, half = edges[0] / 2.0 + edges[-1] / 2.0, edges[-1] / 2.0 - edges[0] / 2.0
        low, high = (float(middle + half * end) for end in mean.limits(reach))
        yield name, "mean", float(middle + half * mean.estimate), float(half * mean.deviation), low, high
        for quantile in quantiles:
            low, high = self._quantile(place, quantile, reach, of_population)
            # The spread of what is not normal.
            least, most = self._quantile(place, quantile, min(self._one_deviation, reach), of_population)
            shares = np.cumsum(np.maximum(self._counts[place][:-1], 0.0))
            cumulative = np.append(0.0, shares / max(float(shares[-1]), 1e-300))
            estimate = min(max(float(np.interp(quantile, cumulative, edges)), low), high)
            yield name, f"{100.0 * quantile:g}%", estimate, (most - least) / 2.0, low, high

    @property
    def _one_deviation(self) -> float:
        return -math.log1p(-_ONE_DEVIATION) / math.sqrt(2.0) if self._is_heavy else 1.0

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
            apart[end] = np.sign(difference) * np.inf if variance <= 0.0 else difference / math.sqrt(variance)
        # Without noise, an end that has just so many people below is the quantile.
        apart = np.nan_to_num(apart, posinf=np.inf, neginf=-np.inf)
        first = int(np.argmin(np.append(apart < -reach, False)))
        last = int(np.argmin(np.append(apart[::-1] > reach, False)))
        return float(edges[first]), float(edges[n_bins - last])
