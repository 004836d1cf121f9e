"""Exact scores of features: sums over people of each entry of their row times what is unexplained of their outcomes.

Entries, at most `entry_bound` in size, are rounded to nearest on a grid of 2^-20 of that bound; residuals, clipped to
an L2 norm of `clip`, on one of 2^-20 of the clip. So every product is an integer below 2^41 in size, sums of 4096 of
them are exact in doubles in any order, fused or not, and blocks of as many rows are added in integers: the sums do not
depend on threads, nor on how the table is cut. Rounding lengthens an entry by half a unit at most, and a residual row
of l entries by sqrt(l)/2: `part_bound` allows for both, so that one person's part in the sums of a feature, a vector of
l numbers, is never longer.

The result for a row depends on that row alone, to the bit: entries and norms come from the kernel of RowMap, all else
goes entry by entry.
"""

from __future__ import annotations

import math

import numpy as np

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.kernels.columns import Rows, SparseBlock
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.statistics.gram import grid_exponent
from dpfast.statistics.rows import NORM_SLACK, RowMap, shortened

_LOG2_UNITS = 20  # of a bound, on its grid
_BLOCK_ROWS = 4096  # 2**12 products below 2**41 add up to less than 2**53
_BLOCKS = 512  # of less than 2**53 add up to less than 2**62
_ENTRIES_PER_THREAD = 1 << 19
_ROUND_UP = 1.0 + 2.0**-40


def part_bound(entry_bound: float, clip: float, n_outcomes: int) -> float:
    """Return the L2 norm that no person's part in the sums of a feature exceeds, to calibrate with."""
    entry = entry_bound * (1.0 + NORM_SLACK) + math.ldexp(0.5, -grid_exponent(entry_bound, _LOG2_UNITS))
    residual = clip * (1.0 + NORM_SLACK) + math.sqrt(n_outcomes) * math.ldexp(0.5, -grid_exponent(clip, _LOG2_UNITS))
    return entry * residual * _ROUND_UP


def score_error(n_rows: int, part: float, n_outcomes: int) -> float:
    """Bound how far a norm computed of rounded sums over so many rows is from that of the exact ones."""
    return n_rows * part * (n_outcomes + 8) * 2.0**-53


def residual_scores(
    table: io.Table,
    residuals: FloatArray,
    row_map: RowMap,
    entry_bound: float,
    clip: float,
    n_threads: int | None = None,
) -> FixedPoint:
    """Sum x_ij r_i over people i, for all features j: (n_features, n_outcomes). Not private.

    Entries of mapped rows must be within `entry_bound`; `residuals` has a row for each row of the table.
    """
    exponents = grid_exponent(entry_bound, _LOG2_UNITS), grid_exponent(clip, _LOG2_UNITS)
    rounded = np.rint(_in_units(shortened(residuals, clip), exponents[1]))
    if not np.isfinite(rounded).all():
        raise check.not_finite("y")
    total, start = FixedPoint.zeros((table.n_features, residuals.shape[1]), -sum(exponents)), 0
    for x, _ in table.blocks():
        if start + len(x) > len(rounded):
            raise ValueError("X gave more rows than the time before: every pass must read the same table")
        total += _block_scores(x, rounded[start : start + len(x)], row_map, exponents, n_threads)
        start += len(x)
    if start != len(rounded):
        raise ValueError("X gave fewer rows than the time before: every pass must read the same table")
    return total


def _block_scores(
    x: Rows, rounded: FloatArray, row_map: RowMap, exponents: tuple[int, int], n_threads: int | None
) -> FixedPoint:
    n_rows, n_features = x.shape
    shape = n_features, rounded.shape[1]
    ranges = RowRanges(n_rows, _BLOCK_ROWS)
    n_workers = threads_for(n_rows * n_features // _ENTRIES_PER_THREAD, n_threads)

    def add_ranges() -> FixedPoint:
        mapped, sums = row_map.reusing_room(), np.zeros(shape, np.int64)
        exact = FixedPoint.zeros(shape, -sum(exponents))
        for number, (start, stop) in enumerate(ranges, 1):
            if isinstance(x, SparseBlock) and row_map.keeps_zeros:
                products = _sparse_products(row_map.of_sparse(x[start:stop]), rounded[start:stop], exponents[0])
            else:
                entries = mapped(x[start:stop])
                np.rint(_in_units(entries, exponents[0]), out=entries)
                products = entries.T @ rounded[start:stop]
            if not np.isfinite(products).all():
                raise check.not_finite("X")
            sums += products.astype(np.int64)
            if number % _BLOCKS == 0:
                exact, sums = exact + FixedPoint.from_integers(sums, exact.exponent), np.zeros(shape, np.int64)
        return exact + FixedPoint.from_integers(sums, exact.exponent)

    total = FixedPoint.zeros(shape, -sum(exponents))
    for part in run_in_threads([add_ranges] * n_workers, ranges.stop):
        total += part
    return total


def _sparse_products(entries: SparseBlock, rounded: FloatArray, exponent: int) -> FloatArray:
    """Return the products of mapped rows and residuals, which are sums of integers: exact in any order."""
    rows, units = entries.rows, np.rint(_in_units(entries.data, exponent))
    parts = [np.bincount(entries.indices, units * column[rows], entries.shape[1]) for column in rounded.T]
    return np.stack(parts, axis=1)


def _in_units(values: FloatArray, exponent: int) -> FloatArray:
    """Multiply by a power of two, in place; in two steps, none of which overflows."""
    for part in (exponent // 2, exponent - exponent // 2):
        values *= math.ldexp(1.0, part)
    return values
