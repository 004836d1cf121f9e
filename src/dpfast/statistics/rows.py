"""Public maps of rows, applied before they are summed: clip to a declared box, scale onto a norm, centre, change units.

Rows known to lie in a box lie closer to its centre than to the origin: for [0, 1]^d the bound on the squared norm falls
from d to d/4, and the noise with it. Its half-widths are the units in which no column outweighs another, whatever units
it came in. The map depends on declared numbers alone, so it costs no privacy.

The image of a row depends on that row alone, to the bit: not on the rows beside it, nor on how the table lies in
memory. Every norm and every product of rows on their way to a sum is taken here, by one kernel (row_map.c), in one
order of operations. NumPy's own reductions add in another order where a block has one row, or its columns are
contiguous: then one person more would move the rounded rows of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.kernels import row_maps
from dpfast.kernels.columns import CodedBlock, CodeLayout, Rows, SparseBlock, readable

#: Norms are compared in floating point with their bounds; what is calibrated allows for rows longer by as much. The
#: kernel keeps to three quarters of it, for rows of up to MOST_COLUMNS entries: row_map.c has the proof.
NORM_SLACK = 2.0**-30
#: Where the number of rows is private, tables have at most so many: only bounds on rounding errors count on it.
MOST_ROWS_IF_PRIVATE = 2**30
MOST_COLUMNS = 2**24
#: Bounds below this would be lost in the rounding of the smallest doubles.
SMALLEST_BOUND = 2.0**-1022
# Columns are multiplied by the inverse of their units.
_SMALLEST_UNIT = 2.0**-1000
_ENTRIES_PER_THREAD = 1 << 19  # below this, starting a thread costs more than it brings
_ROWS_PER_RANGE = 4096


def public_rows(n_rows: int, adjacency: str) -> int | None:
    """Return the number of rows if it is public; None if it is private, for any table that is small enough."""
    if adjacency != "replace_one":
        if n_rows > MOST_ROWS_IF_PRIVATE:
            raise ValueError(f"X must have at most {MOST_ROWS_IF_PRIVATE:,} rows under adjacency={adjacency!r}")
        return None
    if n_rows == 0:
        raise ValueError("X has no rows: at least one is needed")
    return n_rows


@dataclass(frozen=True)
class RowMap:
    """A public map of rows, each on its own.

    In this order: entries v become (v - offset)/unit and are clipped to [low, high], those missing put at the centre;
    rows with a norm above `bound` are scaled onto it; `center` is subtracted; the difference is multiplied by
    ``1/scale``; products with `basis` are taken.

    The image is at most ``bound * (1 + NORM_SLACK)`` before the centre is subtracted, and a row no longer than `bound`
    stays as it is. A row with NaN or infinity becomes NaN.
    """

    low: FloatArray | None = None  # entrywise limits (d,) or (1,), both or neither; they may be infinite
    high: FloatArray | None = None
    bound: float = math.inf  # L2 norm of all of a row's entries, or of the `top` largest; at least SMALLEST_BOUND
    center: FloatArray | None = None  # (d,)
    scale: FloatArray | None = None  # (d,), positive, from 2**-1000 to 2**1000
    top: int | None = None
    basis: FloatArray | None = None  # (d, n_features)
    offset: float = 0.0  # with `unit`, goes with finite limits
    unit: float = 1.0
    fills: bool = False  # whether NaN stands for an entry that is missing, which becomes the centre's, 0 without one

    #: Blocks of columns that lie apart are passed to it as they are.
    reads_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.bound >= SMALLEST_BOUND:
            raise ValueError(f"bound must be at least {SMALLEST_BOUND!r}, got {self.bound!r}")

    def __call__(self, rows: Rows) -> FloatArray:
        """Map one block of rows, shape (n, d); those with NaN or infinity become NaN, to be refused in their sum."""
        out = np.empty((len(rows), rows.shape[1] if self.basis is None else self.basis.shape[1]))
        self.into(rows, out)
        return out

    def largest_norm(self, n_columns: int) -> float:
        """Return an upper bound on the L2 norm of mapped rows, before a basis; infinite where nothing bounds them."""
        center = np.zeros(n_columns) if self.center is None else self.center
        lengths = [math.inf]
        if self.low is not None and self.high is not None:
            farthest = np.maximum(np.abs(self.high - center), np.abs(self.low - center))
            if self.bound < math.inf:
                # Rows scaled onto the bound may leave the box towards the origin.
                farthest = np.maximum(farthest, np.abs(center))
            farthest = farthest if self.scale is None else farthest / self.scale
            lengths.append(math.sqrt(farthest.dot(farthest)))
        if self.top is None:
            least = 1.0 if self.scale is None else float(np.minimum.reduce(self.scale))
            lengths.append((self.bound + math.sqrt(center.dot(center))) / least)
        return min(lengths) * (1.0 + 2.0 * NORM_SLACK)

    def undone(self, coef: FloatArray, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear functions of rows from those of their images, if nothing is clipped: (l, d) and (l,)."""
        if self.scale is not None:
            coef = coef / self.scale
        return coef, intercept if self.center is None else intercept - coef @ self.center

    def of_entries(self, columns: list[int]) -> RowMap:
        """Return what is done to the entries of some columns, each on its own: no norm is held, no basis changed."""
        sides = (self.low, self.high, self.center, self.scale)
        low, high, center, scale = (side if side is None or len(side) == 1 else side[columns] for side in sides)
        return RowMap(low, high, center=center, scale=scale, offset=self.offset, unit=self.unit, fills=self.fills)

    @property
    def keeps_zeros(self) -> bool:
        """Whether every entry is mapped by itself, all columns alike, and 0 to 0: so may be those of sparse rows."""
        is_of_all = self.bound == math.inf and self.basis is None and self.center is None and self.scale is None
        is_plain = (self.offset, self.unit) == (0.0, 1.0) and not self.fills
        sides = [np.zeros(1) if side is None else side for side in (self.low, self.high)]
        return is_of_all and is_plain and all(len(side) == 1 for side in sides) and bool(sides[0] <= 0.0 <= sides[1])

    def of_sparse(self, rows: SparseBlock) -> SparseBlock:
        """Map rows by their entries, an entry a cell at most, where the map `keeps_zeros`."""
        block = rows.distinct()
        return SparseBlock(block.indptr, block.indices, self(block.data[:, np.newaxis])[:, 0], block.shape[1])

    def kernel(self, n_columns: int) -> row_maps.RowMapKernel:
        """Return what maps rows of so many columns."""
        if n_columns > MOST_COLUMNS:
            raise ValueError(f"rows must have at most {MOST_COLUMNS:,} entries to be held to a norm, got {n_columns:,}")
        return row_maps.RowMapKernel(n_columns, **vars(self))

    def reusing_room(self) -> MapIntoRoom:
        """Return the map for one thread. Its results hold until the next call, as that writes to the same memory."""
        return MapIntoRoom(self)

    def into(self, rows: Rows, out: FloatArray, n_threads: int | None = 1) -> bool:
        """Map rows into the first of `out`, whose columns are adjacent; returns whether all of them were finite."""
        n_rows, n_columns = rows.shape
        if isinstance(rows, CodedBlock) and self.basis is not None:
            out[:n_rows] = self.reusing_room()(rows)
            return bool(np.isfinite(out[:n_rows]).all())
        kernel = self.kernel(n_columns)
        source = readable(rows)
        n_workers = threads_for(n_rows * n_columns // _ENTRIES_PER_THREAD, n_threads)
        if n_workers == 1:
            return kernel.map_rows(source, out, 0, n_rows)
        ranges = RowRanges(n_rows, _ROWS_PER_RANGE)
        return all(run_in_threads([partial(_map_ranges, kernel, source, out, ranges)] * n_workers, ranges.stop))


#: Sums of so few are far from overflow, and bounds above the inverse keep their squares.
_LARGEST_WEIGHT = 1e74


class CodedTables(NamedTuple):
    """The image of rows with codes under a map with a basis: sums of rows of these tables, which are public.

    The image of such a row depends on that row alone, to the bit. As it is added up in another order, it differs by
    rounding from what becomes of the row with its indicators written out.
    """

    map_numbers: row_maps.RowMapKernel | None
    #: Of each category.
    levels: tuple[int, ...]
    #: Norm that rows are clipped to, the squared norm of absent indicators, and what a level adds to it.
    bound: float
    squared_absent: float
    slot_squares: FloatArray
    #: Of numbers, then rows of the basis.
    center: FloatArray
    inverse_scale: FloatArray
    of_numbers: FloatArray
    #: What a level adds to products; a row of 0 follows those of each category.
    of_slots: FloatArray
    #: What absent indicators add, and what centres do, and whatever else is in every row.
    absent: FloatArray
    constant: FloatArray

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, row_map: RowMap, layout: CodeLayout, constant: FloatArray | None = None) -> CodedTables | None:
        """Return the tables, or None where a map needs all columns: nothing private decides on it."""
        basis = row_map.basis
        if basis is None or row_map.top is not None or row_map.fills or row_map.bound < 1.0 / _LARGEST_WEIGHT:
            return None
        numbers, indicators, d = list(layout.places), layout.indicators, layout.n_columns
        weights = np.zeros((d, -(-basis.shape[1] // 16) * 16))
        weights[:, : basis.shape[1]] = basis
        in_every_row = np.zeros(weights.shape[1])
        if constant is not None:
            in_every_row[: len(constant)] = constant
        before = replace(row_map, center=None, scale=None, basis=None)
        absent, present = before.of_entries(indicators)(np.repeat([[0.0], [1.0]], len(indicators), axis=1))
        center = np.zeros(d) if row_map.center is None else np.broadcast_to(row_map.center, d)
        inverse_scale = np.ones(d) if row_map.scale is None else 1.0 / np.broadcast_to(row_map.scale, d)
        in_units = inverse_scale[indicators, None] * weights[indicators]
        tables = cls(
            before.of_entries(numbers).kernel(len(numbers)) if numbers else None,
            layout.levels,
            row_map.bound,
            float(np.sum(absent**2)),
            _with_none(present**2 - absent**2, layout),
            center[numbers],
            inverse_scale[numbers],
            weights[numbers],
            _with_none((present - absent)[:, None] * in_units, layout),
            np.sum(absent[:, None] * in_units, axis=0),
            in_every_row - np.sum(center[indicators, None] * in_units, axis=0),
        )
        is_small = all(np.max(np.abs(part), initial=0.0) <= _LARGEST_WEIGHT for part in tables[3:])
        return tables if is_small else None


def _with_none(levels: FloatArray, layout: CodeLayout) -> FloatArray:
    """Put a 0 after what belongs to the levels of each category."""
    return np.insert(levels, np.cumsum(layout.levels), 0.0, axis=0)


class MapIntoRoom:
    """A map of many blocks, which stay in the cache."""

    reads_columns: ClassVar[bool] = True

    def __init__(self, row_map: RowMap) -> None:
        self._row_map = row_map
        self._kernel: row_maps.RowMapKernel | None = None
        self._n_columns = 0
        self._room = np.empty((0, 0))
        self._layout: CodeLayout | None = None
        self._coded_room = np.empty((0, 0))
        self._coded: row_maps.CodedMapKernel | None = None

    def __call__(self, rows: Rows) -> FloatArray:
        """Map one block of rows."""
        if isinstance(rows, CodedBlock) and (kernel := self._of_codes(rows.layout)) is not None:
            return self._looked_up(kernel, rows)
        n_rows, n_columns = rows.shape
        if self._kernel is None or n_columns != self._n_columns:
            self._kernel, self._n_columns = self._row_map.kernel(n_columns), n_columns
            self._room = np.empty((0, self._kernel.n_features))
        if len(self._room) < n_rows:
            self._room = np.empty((n_rows, self._kernel.n_features))
        out = self._room[:n_rows]
        self._kernel.map_rows(readable(rows), out, 0, n_rows)
        return out

    def _of_codes(self, layout: CodeLayout) -> row_maps.CodedMapKernel | None:
        if layout != self._layout:
            tables = CodedTables.of(self._row_map, layout)
            self._layout = layout
            self._coded = None if tables is None else row_maps.CodedMapKernel(*tables)
        return self._coded

    def _looked_up(self, kernel: row_maps.CodedMapKernel, rows: CodedBlock) -> FloatArray:
        assert self._row_map.basis is not None
        n_features = self._row_map.basis.shape[1]
        stride = -(-n_features // 16) * 16
        if len(self._coded_room) < len(rows):
            self._coded_room = np.empty((len(rows), stride))
        kernel.map_rows(readable(rows.numbers), rows.codes, self._coded_room)
        return self._coded_room[: len(rows), :n_features]


def _map_ranges(kernel: row_maps.RowMapKernel, rows: Rows, out: FloatArray, ranges: RowRanges) -> bool:
    all_finite = True
    for start, stop in ranges:
        all_finite &= kernel.map_rows(rows, out, start, stop)
    return all_finite


_BOTH_WAYS = (
    "write limits by name, {'age': (18, 90), 'dose': (0, 5)}, or arrays of all lows and all highs, "
    "(numpy.array([18, 0]), numpy.array([90, 5]))"
)


def check_box(box: object) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the declared limits as two arrays of numbers, finite and in order."""
    if isinstance(box, tuple | list | np.ndarray) and len(box) != 2:
        raise ValueError(f"box_x must be two: all lows, and all highs, got {len(box)}; {_BOTH_WAYS}")
    if not isinstance(box, tuple | list):
        raise TypeError(
            "box_x must be limits by name, {name: (low, high)}, or a pair (low, high), each of one entry a feature, "
            f"got {type(box).__name__}"
        )
    low, high = (np.asarray(side) for side in box)
    for name, side in (("low", low), ("high", high)):
        if side.dtype.kind not in "iuf" or side.ndim > 1 or not np.all(np.isfinite(side)):
            raise ValueError(f"box_x's {name} must be a finite number or a one-dimensional array of them")
    if not {low.size, high.size} <= {1, max(low.size, high.size)}:
        raise ValueError(f"box_x's low and high must have one length, got {low.size} and {high.size}")
    if not np.all(low <= high) or not np.any(low < high):
        pairs = f": lows come first, and then highs, not a pair for each feature; {_BOTH_WAYS}" if low.ndim else ""
        raise ValueError(f"box_x's low must be at most its high everywhere, and below it somewhere{pairs}")
    # Lists and tuples may be a pair for each of two features; arrays are columns of numbers.
    may_be_pairs = low.shape == high.shape == (2,) and low[0] < low[1] and high[0] < high[1]
    if may_be_pairs and not any(isinstance(side, np.ndarray) for side in box):
        raise ValueError(f"box_x is ambiguous: two pairs for two features, or lows and highs? {_BOTH_WAYS}")
    return low, high


def limits_of(box: object, features: int) -> tuple[FloatArray, FloatArray]:
    """Return the declared limits of each of so many features."""
    low, high = (_broadcast(side, features) for side in check_box(box))
    return low, high


def _broadcast(side: NDArray[Any], features: int) -> FloatArray:
    if side.ndim == 1 and len(side) != features:
        raise ValueError(f"box_x must have a low and a high for each of {features} features, got {len(side)} of each")
    return np.broadcast_to(side, (features,)).astype(np.float64)


def half_widths(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the units of a box's columns: half the width of their limits, the size of those that have none."""
    widths = high / 2.0 - low / 2.0
    sizes = np.where(widths >= _SMALLEST_UNIT, widths, np.abs(low))
    return np.where(sizes >= _SMALLEST_UNIT, sizes, 1.0)


def scaled(low: FloatArray, high: FloatArray, bound: float = math.inf) -> tuple[RowMap, float]:
    """Return the map of a box's rows to units of its half-widths, and the largest norm of what comes out.

    Rows are clipped to the bound in the units they come in.
    """
    units = half_widths(low, high)
    return RowMap(low, high, bound, scale=units), _steady(math.sqrt(_longest(low, high, bound, units)))


def centred(low: FloatArray, high: FloatArray, bound: float = math.inf) -> tuple[RowMap, float]:
    """Return the map of a box's rows to its centre and to units of its half-widths, and the largest norm after it.

    Let d columns vary, and c be the centre in those units. The bound is the root of d. If rows are known or scaled to
    have a squared norm of at most s, it is the root of s - 2 min c'x + ||c||^2 if that is smaller.
    """
    units = half_widths(low, high)
    center = low / 2.0 + high / 2.0
    squared = float(np.sum(((high / 2.0 - low / 2.0) / units) ** 2))
    if math.isfinite(bound):
        at = center / units
        length, longest = float(np.linalg.norm(at)), _longest(low, high, bound, units)
        least = max(float(np.sum(np.minimum(at * (low / units), at * (high / units)))), -math.sqrt(longest) * length)
        cut = longest - 2.0 * least + length**2
        # Not positive if no row of the box is within the bound: then they are scaled out of it, and clipped to its
        # size.
        squared = min(squared, cut) if cut > 0.0 else squared
    return RowMap(low, high, bound, center, units), _steady(math.sqrt(squared))


def bounded_rows(features: int, bound: float | None, box: object, *, about_center: bool) -> tuple[RowMap, float]:
    """Return the map of rows within a bound or a box, or both, and the largest norm of what comes out.

    It is about the centre of the box where an intercept makes up for that, in units of its half-widths.
    """
    largest = math.inf if bound is None else bound
    if box is None:
        return RowMap(bound=largest), largest
    return (centred if about_center else scaled)(*limits_of(box, features), largest)


def _longest(low: FloatArray, high: FloatArray, bound: float, units: FloatArray) -> float:
    """Return the largest squared norm, in other units, of rows within a box and a bound.

    Squared entries fill the bound, those of the smallest units first.
    """
    farthest = np.minimum(np.maximum(np.abs(low), np.abs(high)), bound)
    if math.isinf(bound):
        return float(np.sum((farthest / units) ** 2))
    order = np.argsort(units)
    filled = np.minimum(np.cumsum((farthest[order] / bound) ** 2), 1.0)
    return float(np.sum((np.sqrt(np.diff(filled, prepend=0.0)) * bound / units[order]) ** 2))


def _steady(radius: float) -> float:
    """Round to 32 bits, which is less than norms may exceed a bound by.

    Seeded noise depends on the radius: it must not change in its last bits where a column and its limits change units.
    """
    mantissa, exponent = math.frexp(radius)
    return math.ldexp(round(math.ldexp(mantissa, 32)), exponent - 32)


def shortened(rows: Rows, bound: float) -> FloatArray:
    """Scale rows longer than a bound onto it, to within NORM_SLACK; those that are not finite become NaN."""
    return RowMap(bound=bound)(rows)
