"""Noisy counts of people by size, and the bounds that they give: a stage before a mechanism that needs bounds.

A person counts once in each of h histograms (statistics/sizes.py), and moves one bin of each or, when replaced, two:
the noise is that of `NoisySum.of_counts`. All that follows is a function of the noisy counts and public numbers: of
each histogram the smallest bound above which few people are (solvers/bounds.py).

What comes after is a release of its own. Gaussian ones, or pure ones, share the budget with it by `parts_of`; any
others by basic composition, and then the counts have Gaussian noise or pure Laplace noise, whichever is less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, parts_of
from dpfast.releases.noisy_sum import NoisySum
from dpfast.solvers.bounds import last_bin
from dpfast.statistics.sizes import Sizes

#: Of the budget, where bounds are found within it.
SHARE = 0.1
#: Of the people, that a bound may cut off.
FEW = 0.01


class FoundBounds(NamedTuple):
    """Bounds computed from a release; None for what was not counted."""

    rows: float | None
    outcomes: float | None
    box: tuple[FloatArray, FloatArray] | None
    #: Whether every histogram shows people beyond noise.
    are_certain: bool


@dataclass(frozen=True)
class NoisySizes:
    """The mechanism: noise for counts by size of people whose rows have so many features."""

    sizes: Sizes
    n_features: int
    noise: NoisySum

    @classmethod
    def calibrate(cls, privacy: Privacy, sizes: Sizes, n_features: int, *, unit: Unit = "row") -> Self:
        """Noise for counts of people who own a row each or, where they are the unit, several."""
        n_histograms = sizes.n_histograms(n_features, several_rows=unit == "person")
        return cls(sizes, n_features, NoisySum.of_counts(privacy, n_histograms, sizes.bins.n_bins, unit=unit))

    @classmethod
    def within(
        cls, privacy: Privacy, is_gaussian: bool, sizes: Sizes, n_features: int, *, unit: Unit = "row"
    ) -> tuple[Self, Privacy]:
        """Calibrate for a share of a budget, and return what is left of it for one release more.

        `is_gaussian` says whether that will be a Gaussian one, if delta is above 0.
        """
        shares = SHARE, 1.0 - SHARE
        splits = [parts_of(privacy, shares)]
        if privacy.delta > 0.0 and not is_gaussian:
            pure, rest = parts_of(Privacy(privacy.epsilon, 0.0, privacy.adjacency), shares)
            splits = [parts_of(privacy, shares, "basic"), (pure, Privacy(rest.epsilon, privacy.delta, rest.adjacency))]
        ways = [(cls.calibrate(part, sizes, n_features, unit=unit), rest) for part, rest in splits]
        return min(ways, key=lambda way: way[0].noise.deviation)

    def found(self, release: Release, people: int | None, *, nonnegative: bool = False) -> FoundBounds:
        """Return the bounds that the noisy counts give.

        `people` is how many they are where that is public, else None; `nonnegative` entries are known to be so.
        """
        counts, bins, sizes = release.values["sum"], self.sizes.bins, self.sizes
        middle = bins.largest_code
        low, high = bins.limits()
        certain = []

        def last(histogram: FloatArray) -> int:
            heavy = self.noise.law == "Laplace"
            place, is_certain = last_bin(histogram, self.noise.deviation, share=FEW, people=people, heavy=heavy)
            certain.append(is_certain)
            return place

        norms = [bins.size(last(histogram[middle:])) for histogram in counts[: sizes.rows + sizes.outcomes]]
        box = None
        if sizes.entries:
            entries = counts[len(norms) :]
            largest, least = entries[: self.n_features], entries[-self.n_features :]
            first = middle if nonnegative else 0
            highest = np.array([high[first + last(one[first:])] for one in largest])
            lowest = np.array([low[len(low) - 1 - last(one[: first - 1 if first else None : -1])] for one in least])
            box = _opened(lowest, highest, bins.size(0))
        rows, outcomes = norms[0] if sizes.rows else None, norms[-1] if sizes.outcomes else None
        return FoundBounds(rows, outcomes, box, all(certain))


def _opened(low: FloatArray, high: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    """Put limits in order, and apart by the least size, where noise or equal entries have them otherwise."""
    low = np.minimum(low, high)
    return low, np.maximum(high, low + np.maximum(least, np.abs(low) * 2.0**-20))
