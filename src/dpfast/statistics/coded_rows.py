"""Rows with codes through public maps: numbers are mapped, and what indicators become is known beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray, IntArray
from dpfast.io import BlockMap
from dpfast.kernels.columns import CodedBlock, CodeLayout, Rows, readable
from dpfast.statistics.rows import MapIntoRoom, RowMap

_ENTRIES_AT_A_TIME = 1 << 16  # of numbers that pass through maps, and stay in the cache until they are summed
#: Indicators of so many units are not summed as integers: their squares would not be exact.
_MOST_UNITS = 2.0**31
#: Squares of bounds below this may be lost.
_SMALLEST_SQUARE = 1e-290
#: Rows that are not within their bound by so much of its square are left to the map itself.
_CLEARLY = 1.0 - 2.0**-20


@dataclass(frozen=True)
class CodedMap:
    """A public map, for rows of a layout: the bits are those of all columns passed through it.

    Maps work on entries, except for the norm that they clip rows to. Rows that are not clearly within it are left out,
    to be mapped column by column.
    """

    layout: CodeLayout
    row_map: RowMap

    @classmethod
    def of(cls, layout: CodeLayout, block_map: BlockMap | None) -> CodedMap | None:
        """Return the map of such rows, where there is one: not of other callables, nor of a basis."""
        row_map = RowMap() if block_map is None else block_map
        if not isinstance(row_map, RowMap) or row_map.basis is not None:
            return None
        is_bounded = math.isfinite(row_map.bound)
        # A missing entry counts as long as the centre; few ask for both.
        if is_bounded and (row_map.fills or not row_map.bound**2 >= _SMALLEST_SQUARE):
            return None
        return cls(layout, row_map)

    @property
    def rows_at_a_time(self) -> int:
        """Rows to map at a time."""
        return max(1, _ENTRIES_AT_A_TIME // (len(self.layout.places) + 1))

    def values(self, scale: float) -> IntArray:
        """Return what an indicator becomes on a grid of so many units in 1, (2, n_indicators): absent and present."""
        units = np.clip(self._ends(self.row_map) * scale, -_MOST_UNITS, _MOST_UNITS)
        return np.rint(units).astype(np.int64)

    def numbers(self, rows: CodedBlock) -> tuple[Rows, NDArray[np.uint8]]:
        """Return the numbers, mapped, and which of the rows are left out."""
        beyond = np.zeros(len(rows), np.uint8)
        if self.layout.places and math.isfinite(self.row_map.bound):
            clipped = self._clipped(rows.numbers)
            with np.errstate(over="ignore", invalid="ignore"):
                # The order of this sum decides on no bit: both ways lead to the same.
                squared = np.einsum("ij,ij->i", clipped, clipped) + self._longest_codes
                np.logical_not(squared <= _CLEARLY * self.row_map.bound**2, out=beyond.view(np.bool_))
        elif math.isfinite(self.row_map.bound):
            beyond[:] = not self._longest_codes <= _CLEARLY * self.row_map.bound**2
        return readable(rows.numbers) if self._is_bare else self._mapped(rows.numbers), beyond

    def _ends(self, row_map: RowMap) -> FloatArray:
        columns = self.layout.indicators
        ends = np.repeat([[0.0], [1.0]], len(columns), axis=1)
        return row_map.of_entries(columns)(ends)

    @property
    def _is_bare(self) -> bool:
        """Whether numbers stay as they are."""
        own = self.row_map
        is_moved = any(side is not None for side in (own.low, own.center, own.scale))
        return not self.layout.places or not (is_moved or own.fills or (own.offset, own.unit) != (0.0, 1.0))

    @property
    def _unmoved(self) -> RowMap:
        """The operations before the norm is taken."""
        return replace(self.row_map, center=None, scale=None)

    @cached_property
    def _longest_codes(self) -> float:
        """Most that indicators add to a squared norm."""
        absent, present = self._ends(self._unmoved) ** 2
        ends = np.cumsum(self.layout.levels)[:-1]
        return float(np.sum(absent) + sum(max(0.0, float(part.max())) for part in np.split(present - absent, ends)))

    @cached_property
    def _mapped(self) -> MapIntoRoom:
        return self.row_map.of_entries(list(self.layout.places)).reusing_room()

    @cached_property
    def _clipped(self) -> MapIntoRoom:
        return self._unmoved.of_entries(list(self.layout.places)).reusing_room()
