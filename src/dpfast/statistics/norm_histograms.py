"""Counts of people by the sizes of their rows, of their outcomes and of their entries, in half-octaves. Not private.

A person counts once in every histogram, in one bin: with the largest of their rows' codes, and for signed entries with
the least of them too, where people may own several rows. So of h histograms one person changes h bins, or when replaced
2h. The noise is calibrated for that (releases.mechanism). A code is computed from its row alone, in one order of
operations (kernels/sizes.c).

*Half-octaves.* Public bins, each sqrt(2) times the one before. A bin is told by an integer code. The sizes up to
2**(first/2) have the code 0, those above 2**((first + k - 1)/2) up to 2**((first + k)/2) the code k, and the last code,
last - first, has all that is larger too. The code of a negative number is negative, so that codes keep the order of
numbers. An edge halfway between two powers of two is the double that is nearest to it.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import IntArray
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.kernels import sizes as kernel
from dpfast.kernels.coded_step import CodedNorms
from dpfast.kernels.columns import CodedBlock, CodeLayout, FixedPoint, Rows, readable
from dpfast.statistics.coded import PairTables
from dpfast.statistics.rows import RowMap

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LogarithmicBins:
    """Which half-octaves are told apart."""

    first: int = -80
    last: int = 80

    def __post_init__(self) -> None:
        # Where squares of sizes neither overflow nor lose bits.
        if not -800 <= self.first < self.last <= 800:
            raise ValueError(f"first and last must be in order, from -800 to 800, got {self.first} and {self.last}")

    @property
    def largest_code(self) -> int:
        """Code of the largest sizes."""
        return self.last - self.first

    @property
    def n_bins(self) -> int:
        """Number of codes, negative ones included: bin i is that of the code i - largest_code."""
        return 2 * self.largest_code + 1

    def size(self, code: int) -> float:
        """Return the largest size with a code; the last code has no largest."""
        whole, half = divmod(self.first + code, 2)
        return math.ldexp(math.sqrt(2.0) if half else 1.0, whole)

    @property
    def sizes(self) -> Floats:
        """The largest size with each code that is not negative."""
        whole, half = np.divmod(np.arange(self.first, self.last + 1), 2)
        return np.ldexp(np.where(half, math.sqrt(2.0), 1.0), whole)

    def limits(self) -> tuple[Floats, Floats]:
        """Return the least and the largest number of every bin; 0 stands for all in the middle one."""
        nearer, farther = self.sizes[:-1], self.sizes[1:]
        low = np.concatenate([-farther[::-1], [0.0], nearer])
        return low, np.concatenate([-nearer[::-1], [0.0], farther])


Codes = NDArray[np.int16]

_ENTRIES_PER_RANGE = 1 << 16
_LEAST = np.iinfo(np.int16).min
_ALL_OCTAVES = LogarithmicBins()


@dataclass(frozen=True)
class NormHistograms:
    """Which sizes are counted: norms of rows, norms of outcome rows, and entries of rows, each feature by itself.

    If `each` is above 0, there are so many outcomes, and each is counted by itself, by its absolute value.
    """

    rows: bool = False
    outcomes: bool = False
    entries: bool = False
    bins: LogarithmicBins = _ALL_OCTAVES
    each: int = 0

    def n_histograms(self, n_features: int, *, several_rows: bool = False) -> int:
        """Count the histograms: in this order, and of people's several rows the least entries after the largest."""
        return self.rows + self.n_of_outcomes + (n_features * (1 + several_rows) if self.entries else 0)

    @property
    def n_of_outcomes(self) -> int:
        """Number of histograms of outcomes."""
        return (self.each or 1) if self.outcomes else 0

    def of(self, x: Rows, y: Rows | None) -> list[tuple[str, Rows, bool]]:
        """List what is counted of a block: the name of its table, its rows, and whether by their norms."""
        if self.outcomes and y is None:
            raise ValueError("Y is needed: its rows' norms are to be counted")
        measured = [("X", x, True)] if self.rows else []
        if self.outcomes and y is not None:
            columns = np.split(np.asarray(y), self.each, axis=1) if self.each else [y]
            measured += [("Y", one, True) for one in columns]
        return measured + ([("X", x, False)] if self.entries else [])


def size_counts(
    table: io.Table,
    sizes: NormHistograms,
    *,
    map_x: io.BlockMap | None = None,
    map_y: io.BlockMap | None = None,
    groups: ArrayLike | io.PersonIds | None = None,
    max_rows: int | None = None,
    n_threads: int | None = None,
) -> FixedPoint:
    """Count people by size, exactly: (n_histograms, n_bins), negative numbers first. Maps are as for `gram`."""
    threads_for(0, n_threads)
    if table.partitions is not None:
        options: dict[str, Any] = {"map_x": map_x, "map_y": map_y, "max_rows": max_rows, "n_threads": n_threads or 1}
        of_part = partial(size_counts, sizes=sizes, **options)
        return table.reduce(of_part, operator.add, groups=groups)
    if groups is None:
        counts = np.zeros((sizes.n_histograms(table.n_features), sizes.bins.n_bins), np.int64)
        layout, pairs = None, None
        for x, y in table.blocks():
            if isinstance(x, CodedBlock) and x.layout != layout:
                layout, pairs = x.layout, _pairs_of(sizes, x.layout, map_x)
            own = pairs if isinstance(x, CodedBlock) else None
            _add_rows(sizes, x, y, (map_x, map_y), counts, n_threads, own)
        return FixedPoint.from_integers(counts, 0)
    if max_rows is None:
        raise ValueError("max_rows is needed with groups: the most rows of one person, a public number")
    counts = _counts_of_people(table, sizes, (map_x, map_y), io.people(groups, max_rows))
    return FixedPoint.from_integers(counts, 0)


def _codes_of(rows: Rows, bins: LogarithmicBins, norms: bool, name: str) -> Codes:
    codes = np.empty((len(rows), 1 if norms else rows.shape[1]), np.int16)
    if not kernel.codes_of(readable(rows), bins, norms, codes, 0, len(rows)):
        raise check.not_finite(name)
    return codes


def _add_rows(
    sizes: NormHistograms,
    x: Rows,
    y: Rows | None,
    maps: tuple[io.BlockMap | None, io.BlockMap | None],
    counts: IntArray,
    n_threads: int | None,
    pairs: PairTables | None,
) -> None:
    """Add a block of rows, each a person, to the counts."""
    n_columns = 1 if pairs is not None else x.shape[1] + (0 if y is None else y.shape[1])
    length = max(1, _ENTRIES_PER_RANGE // n_columns)
    ranges = RowRanges(len(x), length)

    def count() -> IntArray:
        found = np.zeros_like(counts)
        own_maps = [io.reusing_room(one) for one in maps]
        by_pairs = None if pairs is None else CodedNorms(pairs)
        for start, stop in ranges:
            if by_pairs is not None:
                assert isinstance(x, CodedBlock)
                codes = _codes_by_pairs(by_pairs, x[start:stop], sizes.bins, own_maps[0])
                kernel.count(codes, len(codes), sizes.bins.largest_code, found)
                continue
            block = io.map_block(x[start:stop], None if y is None else y[start:stop], *own_maps)
            place = 0
            for name, rows, norms in sizes.of(*block):
                codes = _codes_of(rows, sizes.bins, norms, name)
                histograms = found[place : (place := place + codes.shape[1])]
                kernel.count(codes, len(codes), sizes.bins.largest_code, histograms)
        return found

    for found in run_in_threads([count] * threads_for(len(x) // length, n_threads), ranges.stop):
        counts += found


def _pairs_of(sizes: NormHistograms, layout: CodeLayout, map_x: io.BlockMap | None) -> PairTables | None:
    """Return the tables of pairs of levels that norms of rows follow from, if nothing else is counted."""
    if not isinstance(map_x, RowMap) or sizes.outcomes or sizes.entries:
        return None
    return PairTables.of_basis(map_x, layout)


def _codes_by_pairs(norms: CodedNorms, rows: CodedBlock, bins: LogarithmicBins, map_x: io.BlockMap | None) -> Codes:
    lengths, left_out = np.empty(len(rows)), np.empty(len(rows), np.uint8)
    if norms.of(readable(rows.numbers), rows.codes, lengths, left_out) != 0:
        raise check.not_finite("X")
    codes = _codes_of(lengths[:, None], bins, False, "X")
    if left_out.any():
        others = np.flatnonzero(left_out)
        mapped, _ = io.map_block(rows[others], None, map_x, None)
        codes[others] = _codes_of(mapped, bins, True, "X")
    return codes


def _counts_of_people(
    table: io.Table, sizes: NormHistograms, maps: tuple[io.BlockMap | None, io.BlockMap | None], whose: io.People
) -> IntArray:
    """Count people who own several rows, each by the largest and the least of their codes."""
    owners = np.full(whose.n_rows, -1)
    numbers = np.repeat(np.arange(whose.n_people), np.diff(whose.offsets))
    owners[slice(None) if whose.order is None else whose.order] = numbers
    extremes: list[tuple[Codes, Codes]] = []
    start = 0
    for (x, y), _ in whose.along(table.blocks(*maps), lambda block: len(block[0])):
        for i, (name, rows, norms) in enumerate(sizes.of(x, y)):
            codes = _codes_of(rows, sizes.bins, norms, name)
            if len(extremes) == i:
                shape = whose.n_people, codes.shape[1]
                extremes.append((np.full(shape, _LEAST, np.int16), np.full(shape, -(_LEAST + 1), np.int16)))
            kernel.keep_extremes(codes, owners, start, start + len(x), *extremes[i])
        start += len(x)
    return _histograms(extremes, sizes)


def _histograms(extremes: list[tuple[Codes, Codes]], sizes: NormHistograms) -> IntArray:
    columns = [largest for largest, _ in extremes] + ([extremes[-1][1]] if sizes.entries else [])
    largest_code = sizes.bins.largest_code
    found = []
    for codes in columns:
        counts = np.zeros((codes.shape[1], sizes.bins.n_bins), np.int64)
        kernel.count(codes, len(codes), largest_code, counts)
        found.append(counts)
    return np.concatenate(found)
