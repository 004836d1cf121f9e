"""Bounded rows: the public maps that bound them, and their second moments, exactly, on a public grid.

*Maps* are applied before rows are summed: clip to a declared box, scale onto a norm, centre, change units. Rows known
to lie in a box lie closer to its centre than to the origin: for [0, 1]^d the bound on the squared norm falls from d to
d/4, and the noise with it. Its half-widths are the units in which no column outweighs another, whatever units it came
in. The map depends on declared numbers alone, so it costs no privacy.

The image of a row depends on that row alone, to the bit: not on the rows beside it, nor on how the table lies in
memory. Every norm and every product of rows on their way to a sum is taken here, by one kernel (row_map.c), in one
order of operations. NumPy's own reductions add in another order where a block has one row, or its columns are
contiguous: then one person more would move the rounded rows of others.

*Second moments.* A row longer than its bound is scaled onto it, then rounded to the nearest multiples of ``2**-k``,
where k depends on the bound alone; its squared length in grid units never exceeds the integer
`dpfast.privacy.moment_scales.padded_squared_bound`. The sums of products of such rows are integers, kept exactly, so
the result is the same to the bit for any order, split, thread count or machine, and one person moves it by exactly what
the sensitivity says: floating-point arithmetic leaves no gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.io.people import People
from dpfast.kernels import gram as kernel
from dpfast.kernels import row_maps
from dpfast.kernels.columns import CodedBlock, CodeLayout, FixedPoint, Rows, SparseBlock, is_readable, readable
from dpfast.privacy.block_moments import BlockBounds
from dpfast.privacy.guarantee import sqrt_up
from dpfast.privacy.moment_scales import padded_bound, padded_squared_block_bounds, padded_squared_bound

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
            raise ValueError(
                f"rows must have at most {MOST_COLUMNS:,} entries to be clipped to a norm, got {n_columns:,}"
            )
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
    if isinstance(box, tuple | list | np.ndarray) and getattr(box, "ndim", 1) > 0 and len(box) != 2:
        raise ValueError(f"box_x must be two: all lows, and all highs, got {len(box)}; {_BOTH_WAYS}")
    if not isinstance(box, tuple | list):
        raise check.mistyped(
            "box_x", "limits by name, {name: (low, high)}, or a pair (low, high) of arrays, as the box of Columns", box
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


def clipped_to_norm(rows: Rows, bound: float) -> FloatArray:
    """Scale rows longer than a bound onto it, to within NORM_SLACK; those that are not finite become NaN."""
    return RowMap(bound=bound)(rows)


# Integers 2**62 hold the products of so many rows at least: those of one person must fit.
_MOST_ROWS_OF_ONE = 1 << 17


@dataclass(frozen=True)
class PersonUnit:
    """The declared limits of people: public numbers for calibrations."""

    #: Most rows of a person that count.
    max_rows: int
    #: Frobenius norms that a person's X'X and X'Y were clipped to, by one common factor; None where no more is asked
    #: than the rows' own bounds give: max_rows bound_x^2 and max_rows bound_x bound_y.
    bound_xx: float | None = None
    bound_xy: float | None = None

    @classmethod
    def checked(
        cls, max_rows: object, bound_xx: object, bound_xy: object, bound_x: float, bound_y: float | None
    ) -> PersonUnit:
        """Return the unit, without block bounds that the rows' bounds imply."""
        rows = check.positive_integer("max_rows", max_rows)
        xx = check.optional(check.positive, "bound_xx", bound_xx)
        xy = check.optional(check.positive, "bound_xy", bound_xy)
        if xy is not None and bound_y is None:
            raise ValueError("bound_xy was given, but there are no outcomes")
        if xx is not None and Fraction(xx) >= rows * Fraction(bound_x) ** 2:
            xx = None
        if xy is not None and bound_y is not None and Fraction(xy) >= rows * Fraction(bound_x) * Fraction(bound_y):
            xy = None
        unit = cls(rows, xx, xy)
        if unit.clips_blocks and rows > _MOST_ROWS_OF_ONE:
            raise ValueError(f"max_rows must be at most {_MOST_ROWS_OF_ONE} with bound_xx or bound_xy, got {rows}")
        return unit

    @property
    def clips_blocks(self) -> bool:
        """Whether a block may have to be clipped although each of its rows is within its bounds."""
        return self.bound_xx is not None or self.bound_xy is not None


@dataclass(frozen=True)
class BlockLimits:
    """The bounds of a person's block as the kernel tests them, in grid units."""

    #: Norm onto which a larger X'X or X'Y is scaled, and largest squared norm after rounding.
    xx: tuple[float, int]
    xy: tuple[float, int]
    #: So many rows never exceed them.
    safe_rows: int
    #: The same in the units of the table, rounded up: what to calibrate with.
    bounds: BlockBounds


def block_limits(unit: PersonUnit, tables: Sequence[tuple[int, float, float, int]]) -> BlockLimits:
    """Return the limits of a person's block, from the columns, scale, bound and squared bound of both tables."""
    (d, scale_x, _, m_x), (outcomes, scale_y, _, m_y) = tables
    k, unit_xx, unit_xy = unit.max_rows, Fraction(scale_x) ** 2, Fraction(scale_x) * Fraction(scale_y)
    in_units = [
        None if bound is None else Fraction(bound) * size
        for bound, size in ((unit.bound_xx, unit_xx), (unit.bound_xy, unit_xy))
    ]
    xx, xy = padded_squared_block_bounds(
        k, m_x, m_y, n_features=d, n_outcomes=outcomes, block_xx=in_units[0], block_xy=in_units[1]
    )
    safe_rows = min(math.isqrt(xx) // m_x, math.isqrt(xy // (m_x * m_y)), k)
    bounds = BlockBounds(sqrt_up(xx / unit_xx**2))
    if outcomes > 0:
        norm_y = sqrt_up(k * m_y / Fraction(scale_y) ** 2)
        bounds = BlockBounds(bounds.xx, sqrt_up(xy / unit_xy**2), norm_y)
    target_xx, target_xy = (math.inf if bound is None else float(bound) for bound in in_units)
    return BlockLimits((target_xx, xx), (target_xy, xy), safe_rows, bounds)


def people_within(x: Rows, y: Rows | None, whose: People, start: int, stop: int) -> tuple[Any, ...]:
    """Return the people whose first row is one of start to stop, as kernels take them.

    These are tables, the order of their rows, where the rows of each person begin, the first person and the last. Only
    rows of these people are converted, where kernels do not read a dtype in place.
    """
    first, last = np.searchsorted(whose.offsets[:-1], (start, stop)).tolist()
    if is_readable(x) and (y is None or is_readable(y)):
        return x, y, whose.order, whose.offsets, first, last
    offsets = whose.offsets[first : last + 1]
    selected: Any = slice(offsets[0], offsets[-1])
    selected = selected if whose.order is None else whose.order[selected]
    y_rows = None if y is None else readable(y[selected])
    return readable(x[selected]), y_rows, None, offsets - offsets[0], 0, last - first


# Rows reach this many grid units: about 2^-23 relative rounding error, and some 500 rows sum exactly in doubles.
_LOG2_LENGTH = 22
# Bounds within this range keep every power of two used here a normal double.
_SMALLEST_BOUND, _LARGEST_BOUND = 1e-100, 1e100


@dataclass(frozen=True)
class Grid:
    """The public grid of a `Gram`: X is rounded to multiples of ``2**-exponent_x``, Y of ``2**-exponent_y``.

    The smallest k with ``bound * 2**k > 2**21``: a function of the bounds alone, so that sums of different rows under
    the same bounds merge. xx has the unit ``4**-exponent_x``, xy ``2**-(exponent_x + exponent_y)``.
    """

    exponent_x: int
    exponent_y: int | None = None

    @classmethod
    def for_bounds(cls, bound_x: float, bound_y: float | None = None) -> Grid:
        """Return the grid that belongs to the bounds."""
        return cls(grid_exponent(bound_x), None if bound_y is None else grid_exponent(bound_y))


def grid_exponent(bound: float, log2_length: int = _LOG2_LENGTH) -> int:
    """Return the largest k with ``bound * 2**k <= 2**log2_length``."""
    mantissa, exponent = math.frexp(bound)
    return log2_length - exponent + (mantissa == 0.5)


class Layout:
    """Common properties of a Gram and its accumulator: shape, bounds and grid, all public."""

    def __init__(
        self, n_features: int, n_outcomes: int, bound_x: float, bound_y: float | None, sums: bool = False
    ) -> None:
        self.n_features = check.positive_integer("n_features", n_features)
        self.n_outcomes = check.integer_of_at_least("n_outcomes", n_outcomes, 0)
        self.bound_x, self.bound_y = checked_bounds(bound_x, bound_y, has_outcomes=self.n_outcomes > 0)
        self.sums = bool(sums)
        self.grid = Grid.for_bounds(self.bound_x, self.bound_y)

    def _tables(self) -> list[tuple[int, float, float, int]]:
        """Return columns, scale, bound and squared bound of both tables, as the kernel wants them."""
        x = self.n_features, self.bound_x, self.grid.exponent_x
        if self.bound_y is None or self.grid.exponent_y is None:
            return [_table(*x), (0, 1.0, 1.0, 1)]
        return [_table(*x), _table(self.n_outcomes, self.bound_y, self.grid.exponent_y)]

    def _arguments(self) -> tuple[int, int, float, float | None, bool]:
        return self.n_features, self.n_outcomes, self.bound_x, self.bound_y, self.sums

    def _check_same(self, other: Layout) -> None:
        if self._arguments() != other._arguments():
            raise ValueError(f"{self!r} and {other!r} differ in shape, bounds or sums kept")

    def _check_block(self, x: Rows, y: Rows | None) -> None:
        if x.shape[1] != self.n_features:
            raise ValueError(f"X has {x.shape[1]} columns, n_features is {self.n_features}")
        if y is None:
            if self.n_outcomes > 0:
                raise ValueError(f"Y is needed: n_outcomes is {self.n_outcomes}")
            return
        if y.shape[1] != self.n_outcomes:
            raise ValueError(f"Y has {y.shape[1]} columns, n_outcomes is {self.n_outcomes}")
        if len(y) != len(x):
            raise ValueError("X and Y have different numbers of rows")

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.n_features} features, {self.n_outcomes} outcomes, "
            f"bound_x={self.bound_x}, bound_y={self.bound_y}: not private>"
        )


@lru_cache(maxsize=64)
def _table(n_columns: int, bound: float, k: int) -> tuple[int, float, float, int]:
    return n_columns, math.ldexp(1.0, k), math.ldexp(bound, k), padded_squared_bound(bound, k, n_columns)


class Gram(Layout):
    """Exact second moments of bounded rows. **Not private**: it belongs to the owner of the data.

    Made by `gram` and by `GramAccumulator.gram`.

    Attributes
    ----------
    xx, xy : ndarray of float64, read-only
        The exact sums, each rounded once to the nearest double; xy is None without outcomes.
    exact_xx, exact_xy, exact_x_sum, exact_y_sum : FixedPoint or None
        The exact sums themselves: of x x', of x y' and, if they were requested, of the rows of X and of Y.
    n_rows : int
        Rows summed.
    bound_x, bound_y : float, float or None
        L2 norms that rows of X and of Y were clipped to.
    grid : Grid
        The grid rows were rounded to.
    unit : PersonUnit or None
        The declared limits for people with several rows; None if every row is a person of its own.
    n_people : int or None
        Number of people, where `unit` is given.

    Examples
    --------
    >>> from dpfast.statistics import gram
    >>> moments = gram([[3.0, 4.0], [0.0, 0.5]], bound_x=1.0)
    >>> moments
    <Gram of 2 features, 0 outcomes, bound_x=1.0, bound_y=None: not private>
    >>> moments.xx.round(3)
    array([[0.36, 0.48],
           [0.48, 0.89]])
    """

    def __init__(
        self, totals: kernel.GramTotals, like: Layout, unit: PersonUnit | None = None, n_people: int | None = None
    ) -> None:
        """Wrap totals, which nothing else may change from now on."""
        # Checked there.
        self.n_features, self.n_outcomes, self.bound_x, self.bound_y, self.sums = like._arguments()
        self.grid, self._totals, self.unit, self.n_people = like.grid, totals, unit, n_people

    @property
    def n_rows(self) -> int:
        """Rows summed."""
        return self._totals.n_rows

    @property
    def exact_xx(self) -> FixedPoint:
        """Sum of x x', (n_features, n_features), exactly."""
        return FixedPoint(*self._totals.symmetric(), -2 * self.grid.exponent_x)

    @property
    def exact_xy(self) -> FixedPoint | None:
        """Sum of x y', (n_features, n_outcomes), exactly, or None."""
        if self.grid.exponent_y is None:
            return None
        return FixedPoint(*self._totals.cross(), -(self.grid.exponent_x + self.grid.exponent_y))

    @property
    def exact_x_sum(self) -> FixedPoint | None:
        """Sum of the rows of X, (n_features,), exactly, or None if it was not requested."""
        return self._column_sums(slice(0, self.n_features), self.grid.exponent_x)

    @property
    def exact_y_sum(self) -> FixedPoint | None:
        """Sum of the rows of Y, (n_outcomes,), exactly, or None."""
        return self._column_sums(slice(self.n_features, None), self.grid.exponent_y)

    def _column_sums(self, columns: slice, k: int | None) -> FixedPoint | None:
        if not self.sums or k is None:
            return None
        high, low = self._totals.columns()
        return FixedPoint(high[columns], low[columns], -k)

    @cached_property
    def xx(self) -> FloatArray:
        """Sum of x x', (n_features, n_features), in the units of X squared."""
        return _read_only(self._totals.symmetric_as_float64(math.ldexp(1.0, -2 * self.grid.exponent_x)))

    @cached_property
    def xy(self) -> FloatArray | None:
        """Sum of x y', (n_features, n_outcomes), or None."""
        exact = self.exact_xy
        return None if exact is None else _read_only(exact.to_float64())

    @property
    def squared_bound_x(self) -> float:
        """Largest squared L2 norm of a rounded row of X: what to calibrate with in place of bound_x**2."""
        # Exact: the integer is below 2^53, and the scale a power of two.
        return math.ldexp(self._tables()[0][-1], -2 * self.grid.exponent_x)

    @property
    def block_bounds(self) -> BlockBounds | None:
        """Bounds on one person's rounded block, to calibrate with, or None if every row is a person."""
        return None if self.unit is None else block_limits(self.unit, self._tables()).bounds

    def __add__(self, other: object) -> Gram:
        """Return the moments of both sets of rows, exactly; ValueError if they differ in public facts."""
        if not isinstance(other, Gram):
            return NotImplemented
        if self.unit is not None or other.unit is not None:
            raise ValueError("sums over people do not add, as somebody may be in both: sum all rows at once")
        return sum_of_parts(self, other)

    def __eq__(self, other: object) -> bool:
        """Whether shapes, bounds, number of rows and every exact sum agree."""
        if not isinstance(other, Gram):
            return NotImplemented
        public = [(one._arguments(), one.unit, one.n_people) for one in (self, other)]
        return public[0] == public[1] and self._totals.equals(other._totals)

    def __getstate__(self) -> dict[str, Any]:
        # The rounded sums follow from the exact ones: no need to send them.
        return {name: value for name, value in self.__dict__.items() if name not in ("xx", "xy")}

    __hash__ = None  # type: ignore[assignment]


def sum_of_parts(one: Gram, other: Gram) -> Gram:
    """Add two sums; where people own several rows, over different people, as parts of a table are declared to be."""
    one._check_same(other)
    if one.unit != other.unit:
        raise ValueError("sums over people differ in what was declared of a person")
    totals = one._totals.copy()
    totals.add(other._totals)
    people = None if one.n_people is None or other.n_people is None else one.n_people + other.n_people
    return Gram(totals, one, one.unit, people)


def rounded_bound(bound: float, n_columns: int) -> float:
    """Return the largest L2 norm that a row of some columns, clipped to `bound`, has once it is rounded to its grid.

    The norm to calibrate with: a few parts in ten million above `bound`, and never below the exact value.

    Examples
    --------
    >>> from dpfast.statistics import rounded_bound
    >>> 1.0 < rounded_bound(1.0, 100) < 1.00001
    True
    """
    return _rounded_bound(checked_bound(bound, "bound"), n_columns)


@lru_cache(maxsize=64, typed=True)
def _rounded_bound(bound: float, n_columns: int) -> float:
    k = grid_exponent(bound)
    return padded_bound(padded_squared_bound(bound, k, n_columns), k)


def person_block_bounds(
    max_rows: int,
    n_features: int,
    n_outcomes: int = 0,
    *,
    bound_x: float,
    bound_y: float | None = None,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
) -> BlockBounds:
    """Bounds on one person's block once rows are rounded to their grid: what to calibrate with, before any are read.

    Arguments are those of `gram`; the result is for `dpfast.privacy.block_moment_mu`, with one common factor: a few
    parts in ten million above what was declared, never below the exact values.

    Examples
    --------
    >>> from dpfast.statistics import person_block_bounds
    >>> bounds = person_block_bounds(50, 10, 1, bound_x=1.0, bound_y=2.0, bound_xx=20.0)
    >>> round(bounds.xx, 3), round(bounds.xy, 3), round(bounds.outcomes**2, 3)
    (20.0, 100.0, 200.0)
    """
    layout = Layout(n_features, n_outcomes, bound_x, bound_y)
    unit = PersonUnit.checked(max_rows, bound_xx, bound_xy, layout.bound_x, layout.bound_y)
    return block_limits(unit, layout._tables()).bounds


def checked_bounds(bound_x: object, bound_y: object, *, has_outcomes: bool) -> tuple[float, float | None]:
    """Return the bounds as floats; `bound_y` goes with outcomes."""
    x = checked_bound(bound_x, "bound_x")
    if bound_y is None:
        if has_outcomes:
            raise ValueError("bound_y is needed where there are outcomes")
        return x, None
    if not has_outcomes:
        raise ValueError("bound_y was given, but there are no outcomes")
    return x, checked_bound(bound_y, "bound_y")


def checked_bound(bound: object, name: str) -> float:
    """Return a bound as a float, from 1e-100 to 1e100."""
    number = bound if type(bound) is float else check.real(name, bound)
    if not _SMALLEST_BOUND <= number <= _LARGEST_BOUND:
        raise ValueError(f"{name} must be a positive number from 1e-100 to 1e100, got {number!r}")
    return number


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array
