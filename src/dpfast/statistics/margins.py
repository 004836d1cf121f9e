"""Exact counts of rows by margin and by class: each row in one cell, for as much as its class counts.

Margins of a row are its products with coefficients, after it is held to a norm, and an offset each. With one margin the
cell is the bin of it, and the side of the row's outcome. With several, a class each, it is the bin of the gap between
the largest and the next one, and whether the row is of the largest one's class, of the next one's, or of another. A
row counts for the weight of its class, at most 1, to the nearest multiple of 2^-20: sums are of integers. What becomes
of a row is decided by that row alone, to the bit: products are those of RowMap, all else goes row by row.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast.kernels.columns import Rows
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.statistics.rows import RowMap

_LOG2_UNITS = 20


@dataclass(frozen=True, eq=False)
class MarginCells:
    """Which cell a row is in, all of it public."""

    #: Its basis are the coefficients (d, l).
    row_map: RowMap
    offset: FloatArray
    #: Where bins end; another has what is above the last one.
    edges: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Sides, or classes next to the largest margin's, and bins."""
        return (2 if len(self.offset) == 1 else 3), len(self.edges) + 1

    def margins(self, x: Rows, n_threads: int | None = 1) -> FloatArray:
        """Return the margins of rows (n, l)."""
        margins = np.empty((len(x), len(self.offset)))
        if not self.row_map.into(x, margins, n_threads):
            raise check.not_finite("X")
        return margins + self.offset

    def of(self, x: Rows, y: Rows, n_threads: int | None = 1) -> IntArray:
        """Return the cells of rows: `y` is positive in the column of their class, and in no other."""
        margins, positive = self.margins(x, n_threads), np.asarray(y) > 0.0
        if margins.shape[1] == 1:
            return self._cell(positive[:, 0].astype(np.intp), margins[:, 0])
        every, largest = np.arange(len(margins)), margins.argmax(axis=1)
        others = margins.copy()
        others[every, largest] = -np.inf
        following, own = others.argmax(axis=1), positive.argmax(axis=1)
        place = np.where(own == largest, 1, np.where(own == following, 0, 2))
        return self._cell(place, margins[every, largest] - margins[every, following])

    def _cell(self, place: IntArray, value: FloatArray) -> IntArray:
        return place * self.shape[1] + np.searchsorted(self.edges, value, side="right")


def margin_counts(table: io.Table, cells: MarginCells, n_threads: int | None = None) -> FixedPoint:
    """Count the rows of a table in every cell, exactly: (1, n_cells). Not private: a row adds at most 1 to one of them.

    Outcomes are as large as the row counts for, at most 1.
    """
    if table.partitions is not None:
        of_part = partial(_of_part, cells=cells, n_threads=n_threads or 1)
        total: FixedPoint = table.reduce(of_part, operator.add)
        return total
    counts = np.zeros((1, math.prod(cells.shape)), np.int64)
    for x, y in table.blocks():
        assert y is not None
        # Fewer than 2^32 numbers of up to 2^20 units add up exactly, in any order.
        units = np.rint(np.ldexp(np.minimum(np.abs(y).max(axis=1), 1.0), _LOG2_UNITS))
        counts += np.bincount(cells.of(x, y, n_threads), units, counts.size).astype(np.int64)
    return FixedPoint.from_integers(counts, -_LOG2_UNITS)


def _of_part(table: io.Table, groups: Any, **options: Any) -> FixedPoint:
    return margin_counts(table, **options)
