"""Histograms of declared columns and sums of numbers, in one release; and the counts that it is made from.

A person is a row at first, and counts once, in one bin, in each of K histograms. The bins of a category are its
declared levels, other values, and missing ones. The bins of a number are equal bins of its limits, to which it is
clipped, and missing values. The bins of two categories are the pairs of their levels, and the rest. For each of M
numbers a person adds w z as well, with w = 1/2 public. Here z in [-1, 1] is the number in units of half the width of
its limits about their middle. It lies on a grid that has -1 and 1, and is 0 if missing. All of it is one vector of
integers, summed exactly.

Replaced, a person leaves one bin of each histogram for another, and moves each w z by 2w at most: in the L2 norm
sqrt(2 K + 4 w^2 M) = sqrt(2 K + M), in the L1 norm 2 K + 2 w M = 2 K + M. Who comes or goes moves sqrt(K + M/4) and
K + M/2. All four are attained, by a person whose numbers go from their least to their largest. So one calibration is
for all of it: Gaussian noise by the L2 norm, independent Laplace noise by the L1 norm where delta is 0.

A person may have several rows. The first `max_rows` = k count, and the person adds the sum of their parts. In each
histogram this sum is a vector of nonnegative integers with a total of at most k, so its norm is at most k. Two of them
have no negative inner product: replaced, they differ by sqrt(2) k at most, and by 2k in the L1 norm. Each number moves
k times as far, too. So all four are k times those above, attained by k such rows. How many rows count is private then:
a replaced person may have fewer.

Rows may have weights. A row's part is then multiplied by v in [0, 1], its weight's share of the largest one that
counts, a public number. v is clipped, then rounded to a grid that has 0 and 1, and depends on that row alone. How far a
person moves the sums is a convex function of each v. So it is largest where each is 0 or 1, which are rows that do not
count or count fully: all four stay as they are. The sum of the weights is private, under either adjacency.

The bin and z of an entry depend on that entry alone: bins by comparison with public edges, z by three exact or
correctly rounded operations. All histograms have the same total, and it is public if a person, of one row, is replaced.
This is used after the release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from dpfast._arrays import FloatArray, IntArray
from dpfast.io import Boolean, Category, Number, People
from dpfast.io.columns import Column
from dpfast.io.frames import MISSING, UNDECLARED, Entries
from dpfast.io.table import check_shares
from dpfast.io.transforms import middle_and_half
from dpfast.kernels.columns import FixedPoint
from dpfast.privacy import Privacy, Unit
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.releases.mechanism import Named, NoisySum

#: Bits of the grid of z, and of its share w of a count: a person adds z in units of 2**-21, and counts 2**21 of them.
_BITS = 20
#: What a number adds over what a count does. Means then have 3.5 times the noise of a count, in half-widths, where
#: counts have 1.22 times what they would have alone; of a weight of 1 it would be 2.4 and 1.7 times.
WEIGHT = 0.5
_EXPONENT = -_BITS - 1
#: Bits of the grid of shares of the largest weight: with those of z, sums of 2**27 rows are within a word.
_SHARE_BITS = 16


class Histogram(NamedTuple):
    """The bins of a column, or of the pairs of two."""

    columns: tuple[Column, ...]
    #: Of numbers; empty for categories.
    edges: FloatArray
    #: Names of the bins, the last of them that of missing entries, or of what no pair of levels holds.
    bins: tuple[str, ...]

    @classmethod
    def of(cls, column: Column, n_bins: int) -> Self:
        """Return the histogram of a column."""
        if isinstance(column, Number):
            edges = np.linspace(*column.ends("its bins need"), n_bins + 1)
            return cls((column,), edges, (*map(str, range(n_bins)), "missing"))
        return cls((column,), np.empty(0), (*map(str, levels_of(column)), "other", "missing"))

    @classmethod
    def of_pairs(cls, first: Column, second: Column) -> Self:
        """Return that of the pairs of two categories."""
        pairs = [f"{one}, {other}" for one in levels_of(first) for other in levels_of(second)]
        return cls((first, second), np.empty(0), (*pairs, "other or missing"))

    @property
    def has_room(self) -> bool:
        """Whether the bins of a number, and half of all their width, are more than rounding leaves."""
        _, half = middle_and_half(self.edges[0], self.edges[-1])
        return bool(np.isfinite(self.edges).all() and np.all(np.diff(self.edges) > 0.0) and half > 0.0)

    @property
    def name(self) -> str:
        """The column, or both."""
        return " x ".join(column.name for column in self.columns)

    def codes(self, batch: Entries) -> IntArray:
        """Return the bin of every row."""
        if len(self.columns) == 1:
            return self._codes_of_one(batch, len(self.bins) - 1)
        first, second = (Histogram.of(column, 0) for column in self.columns)
        (one, other), n_levels = (own.codes(batch) for own in (first, second)), len(second.bins) - 2
        both = (one < len(first.bins) - 2) & (other < n_levels)
        return np.where(both, one * n_levels + other, len(self.bins) - 1)

    def _codes_of_one(self, batch: Entries, missing: int) -> IntArray:
        (column,) = self.columns
        if isinstance(column, Number):
            values = batch.numbers(column.name)
            places = np.searchsorted(self.edges[1:-1], values, side="right")
            return np.where(np.isnan(values), missing, places)
        codes = (Category(column.name, (0, 1)) if isinstance(column, Boolean) else column).codes(batch)
        codes[codes == UNDECLARED] = missing - 1
        codes[codes == MISSING] = missing
        return codes.astype(np.int64)


def levels_of(column: Column) -> Sequence[Any]:
    """Return the levels of a category; those of booleans are False and True."""
    if isinstance(column, Number):
        raise ValueError(f"column {column.name!r} is of numbers, and has no levels to count pairs of")
    return column.levels if isinstance(column, Category) else (False, True)


class Counted(NamedTuple):
    """The exact sum of what people add, and how many they are: the data owner's."""

    sums: FixedPoint
    n_rows: int


@dataclass(frozen=True)
class TableCounts(Named[NoisySum]):
    """The mechanism: noise for the counts of all bins, histogram by histogram, and then for the sums of numbers."""

    histograms: tuple[Histogram, ...]

    @classmethod
    def calibrate(cls, privacy: Privacy, histograms: Sequence[Histogram], max_rows: int | None = None) -> Self:
        """Noise for people who count once in each histogram, or once for each counted row."""
        k, m = len(histograms), sum(len(one.edges) > 0 for one in histograms)
        size = sum(len(one.bins) for one in histograms) + m
        replaced, alone = 2.0 * k + 4.0 * WEIGHT**2 * m, k + WEIGHT**2 * m
        most = max_rows or 1
        unit: Unit = "row" if max_rows is None else "person"
        lengths = math.sqrt(replaced) * most * ROUND_UP, math.sqrt(alone) * most * ROUND_UP
        in_l1 = (2.0 * k + 2.0 * WEIGHT * m) * most, (k + WEIGHT * m) * most
        noise = NoisySum.moved_by(privacy, *lengths, (size,), in_l1=in_l1, unit=unit)
        return cls("counts of bins and sums of numbers", noise, tuple(histograms))


def count_rows(
    histograms: Sequence[Histogram],
    batches: Iterable[Entries],
    whose: People | None = None,
    shares: FloatArray | None = None,
) -> Counted:
    """Sum what people add, a row each or as `whose` has them, exactly; rows count for their `shares`, if any."""
    counts = [np.zeros(len(one.bins), np.int64) for one in histograms]
    numbers = [one.columns[0] for one in histograms if len(one.edges) > 0]
    sums, n_rows, start = [0] * len(numbers), 0, 0
    bits = 0 if shares is None else _SHARE_BITS
    units = None if shares is None else np.rint(np.ldexp(shares, bits))
    all_rows = ((batch, None) for batch in batches)
    for batch, kept in all_rows if whose is None else whose.along(batches, len, "the table"):
        rows = slice(None) if kept is None else kept
        n_rows += len(batch) if kept is None else int(np.count_nonzero(kept))
        own, start = None if units is None else units[start : start + len(batch)], start + len(batch)
        if own is not None:
            check_shares(batch, own)
            own = own[rows]
        for total, one in zip(counts, histograms, strict=True):
            # Sums of weights are whole numbers far below 2**53.
            total += np.bincount(one.codes(batch)[rows], own, len(total)).astype(np.int64)
        sums = [before + _sum_of(column, batch, rows, own) for before, column in zip(sums, numbers, strict=True)]
    if units is not None:
        check_shares(range(start), units)
    whole = [int(count) << -_EXPONENT for count in np.concatenate(counts)]
    return Counted(FixedPoint.from_integers([*whole, *sums], _EXPONENT - bits), n_rows)


def _sum_of(column: Column, batch: Entries, rows: Any, weights: FloatArray | None) -> int:
    """Sum z of some rows in grid units: a batch has far fewer than 2**26."""
    assert isinstance(column, Number)
    limits = column.ends("its sum needs")
    values, (middle, half) = np.clip(batch.numbers(column.name)[rows], *limits), middle_and_half(*limits)
    units = np.rint(np.ldexp((np.where(np.isnan(values), middle, values) - middle) / half, _BITS))
    units = np.clip(units, -(1 << _BITS), 1 << _BITS)
    return int((units if weights is None else units * weights).astype(np.int64).sum())
