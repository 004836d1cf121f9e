"""Noisy counts of people by size, and bounds computed from them: a stage before a mechanism with public bounds.

A person counts once in each of h histograms (statistics/norm_histograms.py), and moves one bin of each or, when
replaced, two: the noise is that of `NoisySum.of_counts`. Everything else is a function of the noisy counts and public
numbers. The bound from each histogram is the smallest one with few people above it (solvers/averaged_descent.py). Zeros
have a bin of their own, and so have the least sizes: neither is ever a scale. Rows, outcomes or entries with an empty
histogram get bounds that reduce them to nothing.

The next mechanism is a release of its own: `NoisySum.counts_within` divides the budget between both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit
from dpfast.releases.mechanism import NoisySum
from dpfast.solvers.averaged_descent import (
    DEFAULT_CAUTION,
    Caution,
    UpperQuantileBin,
    WithoutZeros,
    upper_quantile_bin,
    upper_quantile_of_side,
    without_zeros,
)
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms

#: Share of the budget, if bounds are found within it.
SHARE = 0.1
#: Share of people that a bound may clip.
FEW = 0.01
#: Half-octaves, and standard deviations of noise that people in them exceed, for a bound that is not certain to be
#: better than a declared one.
_SEEN_TOGETHER, _LIKELY = 4, 3.0
#: Half-octaves below a declared bound among which a smaller one is looked for.
_TOLD_APART = 40
#: For the bound of counts. None of them may be clipped, so any noise above the last one raises it: with the usual
#: caution a ninth of the bounds were more than twice the median one, and with this a hundredth are.
OF_COUNTS = Caution(1e-4, 2, 1.5)


class FoundBounds(NamedTuple):
    """Bounds computed from a release; None for what was not counted."""

    rows: float | None
    #: Of several outcomes that were counted each by itself, an array.
    outcomes: float | FloatArray | None
    box: tuple[FloatArray, FloatArray] | None
    #: Whether every histogram shows people beyond noise, on both sides; the box is (0, 0) for those that do not.
    are_certain: bool
    #: The largest size with a bin of its own.
    widest: float
    nonnegative: bool

    @property
    def usable_box(self) -> tuple[FloatArray, FloatArray] | None:
        """The box; if no people were seen at all, one so wide that it reduces every row to nothing."""
        if self.box is None or np.any(self.box[0] < self.box[1]):
            return self.box
        high = np.full_like(self.box[1], self.widest)
        return (np.zeros_like(high) if self.nonnegative else -high), high


class Lowered(NamedTuple):
    """A declared bound of outcomes of which a smaller one is looked for, and the share of people it may clip."""

    bound: float
    share: float
    #: Least size of an outcome that is not 0.
    least: float = 0.0
    #: The bound over the size that is found.
    room: float = 1.0
    caution: Caution = DEFAULT_CAUTION

    @property
    def sizes(self) -> NormHistograms:
        """Sizes to count: all above the bound are in the last bin."""
        last = math.ceil(2.0 * math.log2(self.bound))
        first = max(last - _TOLD_APART, -800)
        if self.least > 0.0:
            first = min(max(first, math.ceil(2.0 * math.log2(self.least)) - 1), last - 1)
        return NormHistograms(outcomes=True, bins=LogarithmicBins(first, last))


@dataclass(frozen=True)
class NoisySizes:
    """The mechanism: noise for counts by size of people with rows of this many features."""

    sizes: NormHistograms
    n_features: int
    noise: NoisySum

    @classmethod
    def calibrate(cls, privacy: Privacy, sizes: NormHistograms, n_features: int, *, unit: Unit = "row") -> Self:
        """Noise for counts of people with one row each or, if they are the unit, several."""
        n_histograms = sizes.n_histograms(n_features, several_rows=unit == "person")
        return cls(sizes, n_features, NoisySum.of_counts(privacy, n_histograms, sizes.bins.n_bins, unit=unit))

    @classmethod
    def within(
        cls, privacy: Privacy, is_gaussian: bool, sizes: NormHistograms, n_features: int, *, unit: Unit = "row"
    ) -> tuple[Self, Privacy]:
        """Calibrate for a share of a budget, and return the rest of it for one more release.

        `is_gaussian` says whether that one will be Gaussian, if delta is above 0.
        """
        shape = sizes.n_histograms(n_features, several_rows=unit == "person"), sizes.bins.n_bins
        own, rest = NoisySum.counts_within(privacy, is_gaussian, SHARE, *shape, unit=unit)
        return cls(sizes, n_features, own), rest

    def found(
        self, release: Release, people: int | None, *, nonnegative: bool = False, declared: Lowered | None = None
    ) -> FoundBounds:
        """Return the bounds computed from the noisy counts.

        `people` is their number if it is public, else None; `nonnegative` says that entries are known to be so. The
        outcomes' bound is at most a `declared` one.
        """
        counts, bins, sizes = release.values["sum"], self.sizes.bins, self.sizes
        outcomes: float | FloatArray | None = None
        rows, box, are_certain = None, None, True
        of_norms = [one[bins.largest_code :] for one in counts[: sizes.rows + sizes.n_of_outcomes]]
        norms = [self._largest(one, people) for one in of_norms]
        # If no people are found, use bounds that reduce coefficients to nothing: the longest rows with a bin, the least
        # outcomes.
        if sizes.rows:
            rows, are_certain = bins.size(bins.largest_code if norms[0] is None else norms[0]), norms[0] is not None
        if sizes.outcomes:
            if declared is None:
                several = [bins.size(place or 0) for place in norms[sizes.rows :]]
                outcomes = np.array(several) if sizes.each else several[0]
                are_certain &= None not in norms[sizes.rows :]
            else:
                outcomes = self._lowered(self._without_zeros(of_norms[-1], people), declared)
        if sizes.entries:
            zero = 0 if nonnegative else bins.largest_code
            entries = counts[len(norms) :, bins.largest_code - zero :]
            pairs = zip(entries[: self.n_features], entries[-self.n_features :], strict=True)
            limits = [self._limits(*pair, people, zero) for pair in pairs]
            are_certain &= None not in limits
            low, high = np.array([one or (0.0, 0.0) for one in limits]).T
            box = low.copy(), high.copy()
        return FoundBounds(rows, outcomes, box, are_certain, bins.size(bins.largest_code), nonnegative)

    def _largest(self, histogram: FloatArray, people: int | None) -> int | None:
        """Return the code of the largest norm with few people beyond it; None if no people are distinct from noise."""
        found = self._last(self._without_zeros(histogram, people))
        return found.place if found.is_certain and found.place > 0 else None

    def _lowered(self, counted: WithoutZeros, declared: Lowered) -> float:
        """Return the largest size with few people beyond it; the declared bound if it is as likely noise."""
        found = self._last(counted, declared.share, declared.caution)
        seen = counted.counts[max(0, found.place - _SEEN_TOGETHER + 1) : found.place + 1]
        if not found.is_certain and float(seen.sum()) < _LIKELY * self.noise.deviation * math.sqrt(len(seen)):
            return declared.bound
        return min(declared.bound, declared.room * self.sizes.bins.size(max(found.place, 1)))

    def _limits(
        self, largest: FloatArray, least: FloatArray, people: int | None, zero: int
    ) -> tuple[float, float] | None:
        """Return limits with few entries beyond them, on either side; None if no people are distinct from noise.

        0 is between the limits if there are zeros. The histograms are of people's largest and of their least entries:
        the same one if a row is a person.
        """
        above, below = (self._without_zeros(one, people, zero) for one in (largest, least))
        last = len(least) - 1
        highest, lowest = self._last(above), self._last(below._replace(counts=below.counts[::-1]))
        seen = highest.place, last - lowest.place
        if not (highest.is_certain and lowest.is_certain) or set(seen) == {zero}:
            return None
        reach = max(abs(place - zero) for place in seen)
        places = (
            self._last_of_side(above, seen[0], zero, reach),
            last - self._last_of_side(below._replace(counts=below.counts[::-1]), lowest.place, last - zero, reach),
        )
        low, high = (limits[self.sizes.bins.largest_code - zero :] for limits in self.sizes.bins.limits())
        # With noise the ends may be in reverse order.
        limits = float(low[min(places)]), float(high[max(places)])
        has_zeros = above.has_zeros or below.has_zeros
        return (min(limits[0], 0.0), max(limits[1], 0.0)) if has_zeros else limits

    def _without_zeros(self, histogram: FloatArray, people: int | None, zero: int = 0) -> WithoutZeros:
        return without_zeros(histogram, zero, self.noise.deviation, people=people, heavy=self._is_heavy)

    def _last(self, counted: WithoutZeros, share: float = FEW, caution: Caution = DEFAULT_CAUTION) -> UpperQuantileBin:
        return upper_quantile_bin(
            counted.counts,
            self.noise.deviation,
            share=share,
            people=counted.people,
            heavy=self._is_heavy,
            caution=caution,
        )

    def _last_of_side(self, counted: WithoutZeros, place: int, zero: int, reach: int) -> int:
        return upper_quantile_of_side(
            counted.counts, place, zero, reach, self.noise.deviation, share=FEW, people=counted.people
        )

    @property
    def _is_heavy(self) -> bool:
        return self.noise.law == "Laplace"
