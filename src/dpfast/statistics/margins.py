"""Exact counts of rows by margin and by class, in histograms in each of which a row is in one cell.

Margins of a row are its products with coefficients, after it is clipped to a norm, and an offset each. One margin has
one histogram: the cell is the bin of the margin, and the side of the row's outcome. Several margins, a class each, have
a histogram for each class: the cell is the bin of the gap from the largest other margin to that of the class, and
whether the row is of the class. A row counts for the weight of its class, at most 1, to the nearest multiple of 2^-20:
sums are of integers. The result for a row depends on that row alone, to the bit. Products are those of RowMap, and all
else is comparisons and differences within the row.
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
from dpfast.kernels.columns import FixedPoint, Rows
from dpfast.statistics.rows import RowMap

_LOG2_UNITS = 20


def gaps(margins: FloatArray) -> FloatArray:
    """Return by how much each margin (n, l) is above the largest of the others in its row; a single one is its own."""
    if margins.shape[1] == 1:
        return margins
    every, largest = np.arange(len(margins)), margins.argmax(axis=1)
    others = margins.copy()
    others[every, largest] = -np.inf
    above = np.broadcast_to(margins[every, largest][:, None], margins.shape).copy()
    above[every, largest] = others.max(axis=1)
    return np.asarray(margins - above)


@dataclass(frozen=True, eq=False)
class MarginCells:
    """Which cells a row is in, all of it public."""

    #: Its basis are the coefficients (d, l).
    row_map: RowMap
    offset: FloatArray
    #: Where bins end; another has what is above the last one.
    edges: FloatArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Histograms, whether a row is of the class, and bins."""
        return len(self.offset), 2, len(self.edges) + 1

    def margins(self, x: Rows, n_threads: int | None = 1) -> FloatArray:
        """Return the margins of rows (n, l)."""
        margins = np.empty((len(x), len(self.offset)))
        if not self.row_map.into(x, margins, n_threads):
            raise check.not_finite("X")
        return margins + self.offset

    def of(self, x: Rows, y: Rows, n_threads: int | None = 1) -> IntArray:
        """Return the cells of rows (n, l), one a histogram: `y` is positive in the column of their class alone."""
        n_histograms, sides, bins = self.shape
        place = np.searchsorted(self.edges, gaps(self.margins(x, n_threads)), side="right")
        return (sides * np.arange(n_histograms) + (np.asarray(y) > 0.0)) * bins + place


def margin_counts(
    table: io.Table, cells: MarginCells, n_threads: int | None = None, *, groups: Any = None
) -> FixedPoint:
    """Count the rows of a table in every cell, exactly: (n_histograms, n_cells). Outcomes are as large as a row counts.

    Of the people that rows belong to, `groups`, the first row of each counts.

    Not private: in each histogram a person adds at most 1 to one cell.
    """
    if table.partitions is not None:
        of_part = partial(margin_counts, cells=cells, n_threads=n_threads or 1)
        return table.reduce(of_part, operator.add, groups=groups)
    if groups is not None:
        first = io.people(groups, 1)
        rows = np.arange(first.n_rows) if first.order is None else first.order
        table = io.open_table(*(np.asarray(one)[rows] for one in table.whole()))
    counts = np.zeros((cells.shape[0], math.prod(cells.shape[1:])), np.int64)
    for x, y in table.blocks():
        assert y is not None
        # Fewer than 2^32 numbers of up to 2^20 units add up exactly, in any order.
        units = np.rint(np.ldexp(np.minimum(np.abs(y).max(axis=1), 1.0), _LOG2_UNITS))
        places = cells.of(x, y, n_threads)
        weights = np.broadcast_to(units[:, None], places.shape)
        counts += np.bincount(places.ravel(), weights.ravel(), counts.size).astype(np.int64).reshape(counts.shape)
    return FixedPoint.from_integers(counts, -_LOG2_UNITS)
