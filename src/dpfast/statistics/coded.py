"""Rows with codes: their maps, and residual steps whose products are neither formed nor summed.

Numbers go through a public map, and what indicators become is known beforehand (`CodedMap`). Residual steps need pairs
of levels and sums by level (`PairTables`).

A step adds p r' of every row, p = W x, r = y - theta'x. Here x has the numbers of a row, rounded to a grid, and a 1
at its slot of each category: a level, or none. What centres and absent indicators add is in the slots of the first
category, of which every row has one. W is rounded too, to V: a column is integers times a power of two. So the sum of
p r' over rows is V times that of x r', exactly: the kernel sums integers by number and by slot
(kernels/coded_step.c), and V is applied to their totals. The norm of p, on which the clip depends, follows from
entries of V'V, one a pair of slots, with an error below a public `slack`.

*One person moves the total by at most the bound b of all steps (added), 2b (replaced).* Let p^ = sum of v_j x^_j, v_j a
column of V and x^ the row's integers, r^ the residuals on a grid of the clip and of public lengths. Noise is added to
the total, the sum of p^ r^' over people.

1. The sums of x^_j r^ are sums of integers below 2^53 in a block, and of 128 bits beyond it; those of a slot are below
   2^53 for 2^28 rows. V is applied in integers. So the total is exact, in any order.
2. ``||p^||^2 <= q + slack``, q the computed sum of A_ij x^_i x^_j, A_ij = v_i'v_j exact in doubles (the sizes of the
   products of integers add up to at most 2^53). The sum has a term for each pair of levels of two categories, number
   and level, pair of numbers, level, and number. With K categories and m numbers a term is in fewer than
   t = K^2 + K + 2m + 16 roundings, so ``|q - ||p^||^2| <= gamma_t sum |A_ij x^_i x^_j| <= gamma_t R^2``
   (Cauchy-Schwarz), gamma_t = t u/(1 - t u). R adds the largest ||v_j|| of each category's slots, and 2^20 ||v_j|| of
   each number, as |x^_j| <= 2^20 is tested. R is from 2^-200 to 2^200: nothing overflows, and underflow is far below
   u R^2. The slack is 2 t u R^2.
3. r^ is the residual, or what q + slack says brings it to the clip, rounded. A row passes if
   ``(q + slack) ||r^||^2 <= b^2 (1 - 2^-40)`` in doubles. With at most 2^12 outcomes the product loses less than 2^-40
   of itself, so ``||p^|| ||r^|| <= b``.
4. Rows that do not pass are left out here, and add at most b by look-ups. The row and public numbers decide which, in
   one order without fused operations. Histograms count a row once, by a size computed so.

V and x^ need not be near W and the row for this.

Rows for which that does not do are left to `residual_step`: those longer than the norm that the map holds rows to, or
than the step's own, and those with integers that would be too large. Their parts have the same bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray, IntArray
from dpfast._threads import single_threaded_blas
from dpfast.io import BlockMap
from dpfast.kernels.columns import CodedBlock, CodeLayout, FixedPoint, Rows, readable
from dpfast.statistics.rows import CodedTables, MapIntoRoom, RowMap

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


#: Bits of numbers in units, and of residuals whose part is at the clip, of the longest rows. The kernel holds numbers
#: to 20 bits and residuals to 25.
_NUMBER_BITS, _RESIDUAL_BITS = 20, 20
#: Bits by which columns of V may have finer grids than the coarsest.
_FINER = 16
#: Entries of tables of pairs, and columns of V, that are worth it.
_MOST_PAIRS, _MOST_COLUMNS = 1 << 18, 1 << 10
#: Up to so many outcomes the error of a squared norm is below what is left of the limit.
_MOST_OUTCOMES = 1 << 12
_WITHIN = 1.0 - 2.0**-40
#: Below this times a bound no rounding error takes a part beyond it.
_ONTO_CLIP = 2.0**-20
_EXACT_BITS = 53
#: Sizes far from where doubles overflow or lose bits.
_LARGEST = 2.0**200
#: Bits of a person's part in units of totals: the others of 128 are for the number of people.
_MOST_BITS = 96
#: Integers are split into so many bits, whose products with V are exact in 64 bits.
_LIMB_BITS, _LIMBS = 24, 6


class PairTables(NamedTuple):
    """The public tables of `kernels.coded_step`, and V."""

    levels: tuple[int, ...]
    #: Of numbers.
    low: FloatArray | None
    high: FloatArray | None
    center: FloatArray
    inverse_scale: FloatArray
    units: FloatArray
    #: Squared norm beyond which the map scales rows; that of absent indicators, and what a level adds to it.
    squared_bound: float
    squared_absent: float
    slot_squares: FloatArray
    #: Of a slot: twice its products with numbers, theta, and its own square.
    of_slots: FloatArray
    #: Of numbers in units: products, doubled off the diagonal, and theta (n_outcomes, n_numbers).
    products: FloatArray
    theta: FloatArray
    #: Twice the products of slots of two categories, one pair of categories after the other.
    pairs: FloatArray
    #: At least the error of a squared norm of p, and the square of the longest p that is not scaled.
    slack: float
    squared_longest: float
    #: What norms of p are up to.
    longest: float
    #: V's columns, in rows, as integers, and the exponents by which these are too large.
    integers: FloatArray
    exponents: IntArray

    @classmethod
    def of(
        cls, row_map: RowMap, layout: CodeLayout, tables: CodedTables, shape: tuple[int, int], longest: float
    ) -> PairTables | None:
        """Return the tables of a step with parts of a shape (k, l), whose theta and W are in `tables`.

        None where rows are to be read in the other way: nothing private decides on it.
        """
        (n_products, n_outcomes), n_numbers = shape, len(layout.places)
        sizes = [n_levels + 1 for n_levels in layout.levels]
        n_pairs = sum(one * other for one, other in combinations(sizes, 2))
        is_small = n_pairs <= _MOST_PAIRS and n_numbers + sum(sizes) <= _MOST_COLUMNS and n_outcomes <= _MOST_OUTCOMES
        if not is_small or (row_map.offset, row_map.unit) != (0.0, 1.0):
            return None
        low, high = (_of_numbers(side, layout) for side in (row_map.low, row_map.high))
        largest = _largest(low, high, row_map.bound, tables)
        if not np.all(largest <= _LARGEST):
            return None
        number_exponents = _NUMBER_BITS - np.frexp(largest)[1]
        weights = np.vstack([np.ldexp(tables.of_numbers, -number_exponents[:, None]), tables.of_slots])
        # Every row has a slot of the first category.
        weights[n_numbers : n_numbers + sizes[0]] += tables.absent + tables.constant
        first = -(-n_outcomes // 8) * 8
        theta, whitening = weights[:, :n_outcomes], weights[:, first : first + n_products]
        scales = np.repeat([2.0**_NUMBER_BITS, 1.0], [n_numbers, sum(sizes)])
        integers, exponents = _integers(whitening, scales)
        # Exact, as sums of integers of up to 53 bits are in any order. Threads of BLAS would spin beside the pass over
        # the rows that follows.
        with single_threaded_blas():
            products = integers @ integers.T
        products = np.ldexp(products, -np.add.outer(exponents, exponents))
        own = np.diag(products)
        lengths = np.sqrt(own) * scales
        of_numbers, *of_slots = np.split(lengths, n_numbers + np.cumsum([0, *sizes[:-1]]))
        reach = math.fsum([*of_numbers, *(part.max() for part in of_slots)]) * (1.0 + 2.0**-40)
        if not (1.0 / _LARGEST <= reach <= _LARGEST and longest >= reach / _LARGEST):
            return None
        n_roundings = len(sizes) ** 2 + len(sizes) + 2 * n_numbers + 16
        table = np.zeros((sum(sizes), (n_numbers + n_outcomes + 8) // 8 * 8))
        table[:, :n_numbers] = 2.0 * products[n_numbers:, :n_numbers]
        table[:, n_numbers : n_numbers + n_outcomes] = theta[n_numbers:]
        table[:, n_numbers + n_outcomes] = own[n_numbers:]
        slots = np.split(np.arange(n_numbers, len(own)), np.cumsum(sizes)[:-1])
        pairs = [2.0 * products[np.ix_(one, other)].ravel() for one, other in combinations(slots, 2)]
        return cls(
            layout.levels,
            low,
            high,
            tables.center,
            tables.inverse_scale,
            np.ldexp(1.0, number_exponents),
            tables.bound * tables.bound,
            tables.squared_absent,
            tables.slot_squares,
            table,
            2.0 * products[:n_numbers, :n_numbers] - np.diag(own[:n_numbers]),
            np.ascontiguousarray(theta[:n_numbers].T),
            np.concatenate([*pairs, np.zeros(0)]),
            n_roundings * 2.0**-52 * reach**2,
            longest * longest,
            min(longest, reach),
            integers,
            exponents,
        )

    @classmethod
    def of_basis(cls, row_map: RowMap, layout: CodeLayout) -> PairTables | None:
        """Return the tables for norms of rows under a map with a basis; None where they are not had so."""
        tables = CodedTables.of(row_map, layout)
        if row_map.basis is None or tables is None:
            return None
        return cls.of(row_map, layout, tables, (row_map.basis.shape[1], 0), math.inf)

    def clip(self, bound: float, squared_bound: int, exponent: int) -> tuple[float, float, float, float] | None:
        """Return the kernel's `clip` for parts of a norm, none beyond a squared bound in units of a power of two.

        None if totals might not fit.
        """
        units = self.unit_exponent(bound)
        if math.frexp(bound)[1] - self.exponent(bound) > _MOST_BITS:
            return None
        return (
            math.ldexp(1.0, units),
            math.ldexp(bound, units) * (1.0 - _ONTO_CLIP * math.sqrt(len(self.theta))),
            math.ldexp(float(squared_bound), 2 * (exponent + units)) * _WITHIN,
            bound**2,
        )

    def unit_exponent(self, bound: float) -> int:
        """Exponent of the units of residuals in 1, for a clip."""
        return _RESIDUAL_BITS + math.frexp(self.longest / bound)[1]

    def exponent(self, bound: float) -> int:
        """Exponent of the unit of totals, for a clip."""
        return -int(self.exponents.max()) - self.unit_exponent(bound)

    def total(self, by_slot: FloatArray, high: IntArray, low: NDArray[np.uint64], bound: float) -> FixedPoint:
        """Return V times the sums of residuals by number, of two limbs, and by slot, exactly."""
        numbers = high.astype(object) * 2**64 + low.astype(object)
        sums = np.concatenate([numbers, by_slot.astype(np.int64).astype(object)])
        sums <<= (self.exponents.max() - self.exponents).astype(object)[:, None]
        weights = self.integers.T.astype(np.int64)
        total = np.zeros((len(weights), by_slot.shape[1]), object)
        for limb in range(_LIMBS):
            is_last = limb == _LIMBS - 1
            part = (sums if is_last else sums & ((1 << _LIMB_BITS) - 1)).astype(np.int64)
            total += (weights @ part).astype(object) << _LIMB_BITS * limb
            sums >>= _LIMB_BITS
        return FixedPoint.from_integers(total, self.exponent(bound))


def _of_numbers(side: FloatArray | None, layout: CodeLayout) -> FloatArray | None:
    return None if side is None else np.broadcast_to(side, layout.n_columns)[list(layout.places)]


def _largest(low: FloatArray | None, high: FloatArray | None, bound: float, tables: CodedTables) -> FloatArray:
    """Return what mapped numbers are at most in size."""
    largest = bound + np.abs(tables.center)
    if low is not None and high is not None:
        farthest = np.maximum(np.abs(high - tables.center), np.abs(low - tables.center))
        largest = np.minimum(largest, farthest)
    return np.asarray(largest * tables.inverse_scale)


def _integers(columns: FloatArray, scales: FloatArray) -> tuple[FloatArray, IntArray]:
    """Round the columns of W, given as rows, to integers times 2**-exponents, so that no sum of products passes 2**53.

    `scales` has the most that columns are multiplied by.
    """
    bits = (_EXACT_BITS - (columns.shape[1] - 1).bit_length()) // 2
    of_scales = np.frexp(scales)[1] - 1
    largest = np.max(np.abs(columns), axis=1)
    exponents = bits - np.frexp(largest)[1] - of_scales
    finest = int(np.min(exponents, where=largest > 0.0, initial=2000)) + _FINER
    exponents = np.where(largest > 0.0, np.minimum(exponents, finest), finest) + of_scales
    return np.rint(np.ldexp(columns, exponents[:, None])), exponents.astype(np.int64)
