"""Sums of rows times the residuals of their outcomes, each person's part clipped to a bound, exactly.

A row x, mapped, and followed by a 1 if requested, has the residual r = y - theta'x, or the negative slope of another
loss, and the product p = W x, or x itself. If p is longer than some length it is first scaled onto that, and r by as
much if it is as long as outcomes may be. So the row has less weight, by a factor that does not depend on its outcomes.
The weights leave the coefficients of a fit where they were. The row adds the matrix p r', of norm ||p|| ||r||: longer
ones are scaled onto the clip. A matrix of rank one does not change if its factors are scaled against each other by a
power of two, so p is first brought to a length from 1 to 2. Then both have a grid that depends on the clip alone,
however large rows, W or theta are: p is rounded to multiples of ``2**-a``, r, at most as long as the clip, to those of
``2**-b``. An integer test ``||p||**2 ||r||**2 <= M`` decides; r is scaled down until it holds. M is
`dpfast.privacy.moment_scales.padded_squared_product_bound`. Integers are summed, so the result is the same to the bit
for any split or order of rows, and one person moves it by M's root at most, in grid units.

For a person with several rows the summed matrix is clipped, by one factor on all r, and tested as integers. Before,
each of their rows is clipped to 16 times the clip. This keeps the integers small for rows that cancel.

Norms and products are sums, in the order of columns and from 0, of products of doubles. So the result for a row depends
on that row alone, to the bit. Rows with codes (`CodedBlock`) have their products by look-ups of what a level adds to
them, in an order of their own: the same up to rounding, and from the row alone too. Which rows come so is declared.
Residuals of squared losses need not even these, for most rows: `dpfast.statistics.coded` has their tables. Their
parts have the same bound; they are summed on a finer grid.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import suppress_float_warnings
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.io.people import People
from dpfast.kernels import coded_step, residual_step
from dpfast.kernels.columns import CodedBlock, CodeLayout, FixedPoint, Rows, is_readable, range_of, readable
from dpfast.kernels.row_maps import CodedMapKernel, RowMapKernel
from dpfast.privacy.guarantee import remembered
from dpfast.privacy.moment_scales import padded_bound, padded_squared_bound, padded_squared_product_bound
from dpfast.statistics.coded import PairTables
from dpfast.statistics.rows import CodedTables, RowMap, checked_bound, grid_exponent, people_within

#: p is rounded to this grid: from 2^21 to 2^22 units long.
_EXPONENT_P = 21
#: How many times the clip a row of a person with several may be.
_ROW_OF_SEVERAL = 16
#: Rows of one person: their integers fit 62 bits.
MOST_ROWS_OF_ONE = 1 << 14
_SMALLEST, _LARGEST = 1e-100, 1e100
#: Norms of p and of r are at most this: the square of what a person's rows add up to does not overflow.
_LARGEST_NORM = 1e74
#: theta'x where a link makes slopes of it, and the differences of its entries: they do not overflow.
_LARGEST_MARGIN = 1e300
_LARGEST_HALF_OCTAVE = 900
_PRODUCTS_PER_RANGE = 100_000_000  # some 60 ms of one core: how long an interrupt waits
_PRODUCTS_PER_THREAD = 2_000_000  # below this, starting a thread costs more than it brings
_SHORTEST_RANGE, _LONGEST_RANGE = 64, 8_192
_LONGEST_CODED_RANGE, _PRODUCTS_OF_CODES = 65_536, 64
#: Products are kept from pass to pass where there are so many a row, in this much memory at most.
_FEWEST_KEPT, _BYTES_KEPT = 48, 1 << 28


Link: TypeAlias = Literal["identity", "logistic", "softmax", "huber", "quantile", "poisson"]


@dataclass(frozen=True, eq=False)
class ResidualStep:
    """The public inputs of residuals: coefficients, maps of rows, and the factors of rows.

    With z = theta'x, residuals r of outcomes y are, by `link`, ``y - z``; ``y_j sigmoid(-sign(y_j) z_j)``, of classes
    +-w, w their weights (or 0), each outcome on its own; ``y - sum(y) softmax(z)`` of one outcome a class, w at that of
    the row and 0 elsewhere; of "huber", "quantile" and "poisson" each outcome's `SmoothedHuber`, `SmoothedQuantile`
    and `PoissonLoss` of dpfast.solvers, whose numbers are `smoothing`: minus the derivative in z of squared, logistic,
    cross-entropy, Huber's, quantile and Poisson losses.

    Whatever the maps let through must not overflow: ValueError if the declared bounds cannot rule that out.
    """

    theta: FloatArray  # (D, l), D the columns of X, and one more if `constant`
    map_x: RowMap  # must bound rows
    map_y: RowMap
    whitening: FloatArray | None = None  # (k, D), fastest where lower triangular; None for no change, k = D
    constant: bool = False  # whether rows are followed by a 1
    link: Link = "identity"
    longest: float = math.inf  # norm of p beyond which a row has less weight
    # Of "huber": threshold, width; of "quantile": level, width; of "poisson": largest rate, start of the smoothing.
    smoothing: tuple[float, float] = (1.0, 1.0)
    beyond: float = 0.0  # only what exceeds this length is left of p r'

    @np.errstate(over="ignore")
    def __post_init__(self) -> None:
        if self.theta.ndim != 2:
            raise _theta_error()
        n_columns, n_outcomes = self.theta.shape
        if n_columns <= self.constant or n_outcomes < 1:
            raise ValueError("theta must have a row for each column of X and a column for each outcome")
        if self.map_x.basis is not None or self.map_y.basis is not None:
            raise ValueError("map_x and map_y must have no basis: whitening does that")
        check.choice("link", self.link, tuple(residual_step.LINKS))
        if not self.longest >= _SMALLEST:
            raise ValueError(f"longest must be at least {_SMALLEST}, got {self.longest!r}")
        length_x, _ = self._lengths
        length_p = math.hypot(length_x, float(self.constant))
        if self.whitening is not None:
            if self.whitening.ndim != 2 or self.whitening.shape[1] != n_columns or len(self.whitening) < 1:
                raise ValueError(f"whitening must have {n_columns} columns, as many as theta has rows")
            if not _SMALLEST <= float(np.maximum.reduce(np.abs(self.whitening), axis=None)) <= _LARGEST:
                raise ValueError("whitening must hold finite numbers, the largest from 1e-100 to 1e100 in size")
            length_p = self._longest_product(self.whitening, length_x)
        if not length_p <= _LARGEST_NORM:
            raise _overflow_error()
        self.at(self.theta, self.beyond)

    def at(self, theta: FloatArray, beyond: float = 0.0) -> ResidualStep:
        """Return the step for other coefficients: what does not depend on them is not computed again."""
        if theta.shape != self.theta.shape:
            raise ValueError("theta must have as many rows and columns as before")
        if not 0.0 <= beyond <= _LARGEST:
            raise ValueError(f"beyond must be a number from 0 to {_LARGEST}, got {beyond!r}")
        length_x, of_y = self._lengths
        sizes = [*map(abs, theta.ravel().tolist())]  # sums of these overflow without a warning
        last = len(sizes) - theta.shape[1] if self.constant else len(sizes)
        margin = length_x * sum(sizes[:last]) + sum(sizes[last:])
        if self.link not in ("logistic", "softmax"):
            reach = of_y + margin
        else:
            # |r_j| <= |y_j|, or |y_j| and the sum of all |y|.
            reach = 2.0 * theta.shape[1] * of_y if margin <= _LARGEST_MARGIN else math.inf
        if not reach <= _LARGEST_NORM:
            raise _overflow_error() if np.isfinite(theta).all() else _theta_error()
        moved = object.__new__(ResidualStep)
        moved.__dict__.update(vars(self), _maps=self._maps, theta=theta, beyond=beyond)
        return moved

    @cached_property
    def _lengths(self) -> tuple[float, float]:
        """Norms that no row, and no outcome, exceeds."""
        return self.map_x.largest_norm(self.n_features), self.map_y.largest_norm(self.theta.shape[1])

    @cached_property
    def _maps(self) -> tuple[RowMapKernel, RowMapKernel]:
        """What maps rows and outcomes; threads share it."""
        return self.map_x.kernel(self.n_features), self.map_y.kernel(self.theta.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: kernels are made anew in another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.theta) - self.constant

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a person's part: k and l."""
        return len(self.theta) if self.whitening is None else len(self.whitening), self.theta.shape[1]

    def _longest_product(self, matrix: FloatArray, length_x: float) -> float:
        """Return what the product of a matrix with a row, and the 1 after it, is no longer than."""
        sizes = np.add.reduce(np.abs(matrix), axis=0)
        if not self.constant:
            return length_x * float(np.add.reduce(sizes))
        return length_x * float(np.add.reduce(sizes[:-1])) + float(sizes[-1])

    def kernel_arguments(self) -> tuple[Any, ...]:
        """Return what the kernel reads rows with."""
        of_rows = self.theta.T, self.whitening, self.constant
        return *self._maps, *of_rows, self.link, self.longest, self.smoothing, self.beyond


def _theta_error() -> ValueError:
    return ValueError("theta must be a matrix of finite numbers")


def _overflow_error() -> ValueError:
    return ValueError(
        "the bounds of rows and outcomes, theta and whitening must be so that products of rows and residuals cannot "
        "overflow"
    )


class StepTables(NamedTuple):
    """Public tables of a step for rows with codes."""

    #: The terms of products with a row.
    products: CodedTables
    #: What replaces them for most rows, where residuals are of squares and tables of pairs are small enough.
    pairs: PairTables | None


def coded_tables(step: ResidualStep, layout: CodeLayout) -> StepTables | None:
    """Return the tables of a step for rows of a layout, or None if all columns are needed."""
    if step.whitening is None:
        return None
    n_outcomes, n_products = step.theta.shape[1], len(step.whitening)
    first = -(-n_outcomes // 8) * 8
    weights = np.zeros((len(step.theta), first + -(-n_products // 8) * 8))
    weights[:, :n_outcomes] = step.theta
    weights[:, first : first + n_products] = step.whitening.T
    row_map = replace(step.map_x, basis=weights[: step.n_features])
    products = CodedTables.of(row_map, layout, weights[-1] if step.constant else None)
    if products is None:
        return None
    pairs = None
    if step.link == "identity" and step.beyond == 0.0:
        pairs = PairTables.of(step.map_x, layout, products, step.shape, step.longest)
    return StepTables(products, pairs)


class Clip(NamedTuple):
    """A bound on people's parts, and the grid that belongs to it: public."""

    #: Frobenius norm that parts are scaled onto.
    bound: float
    shape: tuple[int, int]
    #: Most rows of a person; None where every row is a person.
    max_rows: int | None
    #: Exponents of the grids of p and r.
    exponents: tuple[int, int]
    #: Squared norm of a person's part, in grid units, that none exceeds.
    squared_bound: int
    #: Norm that a single row's part is scaled onto.
    row_bound: float
    #: Norm of a person's part, rounded up, that none exceeds: to calibrate with.
    norm: float
    #: Units of the grids, limits of rows and limits of people, as the kernel takes them.
    limits: tuple[tuple[float, float], tuple[float, int], tuple[float, int]]

    @property
    def exponent(self) -> int:
        """Exponent of the unit of products."""
        return -sum(self.exponents)


@remembered
def clip_of(bound: float, shape: tuple[int, int], max_rows: int | None = None) -> Clip:
    """Return the clip of parts of a shape to a bound."""
    if not _SMALLEST <= bound <= _LARGEST:  # most are known without a call
        checked_bound(bound, "clip")
    a, b = exponents = _EXPONENT_P, grid_exponent(bound)
    row_bound, n_rows = bound, 1
    if max_rows is not None:
        check_most_rows(max_rows)
        row_bound, n_rows = _ROW_OF_SEVERAL * bound, max_rows
    squared = squared_row = padded_squared_product_bound(bound, exponents, shape, n_rows)
    if max_rows is not None:
        squared_row = padded_squared_product_bound(row_bound, exponents, shape)
    of_rows, of_people = (math.ldexp(row_bound, b), squared_row), (math.ldexp(bound, a + b), squared)
    limits = (math.ldexp(1.0, a), math.ldexp(1.0, b)), of_rows, of_people
    return Clip(bound, shape, max_rows, exponents, squared, row_bound, padded_bound(squared, a + b), limits)


def check_most_rows(max_rows: int | None) -> None:
    """Refuse more rows of a person than integers have room for; None is for people with one row each."""
    if max_rows is not None and check.positive_integer("max_rows", max_rows) > MOST_ROWS_OF_ONE:
        raise ValueError(f"max_rows must be at most {MOST_ROWS_OF_ONE} for residual sums, got {max_rows}")


class ResidualSums(NamedTuple):
    """Exact sums over people: not private."""

    #: Sum of people's p r' (k, l), each clipped; or in one row with, at its end, the number of people beyond the clip.
    products: FixedPoint
    #: Sum of people's squared residuals (l,), each person's vector of them clipped to `bound_squares`, if requested.
    squares: FixedPoint | None
    #: How many people's products were beyond the clip.
    n_beyond: int


def residual_bound(clip: float, step: ResidualStep, max_rows: int | None = None) -> float:
    """Return the norm that no person's part of `residual_sums` exceeds, to calibrate with."""
    return clip_of(float(clip), step.shape, max_rows).norm


def squares_bound(bound_squares: float, step: ResidualStep) -> float:
    """Return the norm that no person's squared residuals in `residual_sums` exceed, to calibrate with."""
    k = grid_exponent(checked_bound(bound_squares, "bound_squares"))
    return padded_bound(_squares_limit(bound_squares, step), k)


def residual_sums(
    table: io.Table,
    step: ResidualStep,
    clip: float,
    *,
    bound_squares: float | None = None,
    whose: People | io.PersonIds | None = None,
    max_rows: int | None = None,
    n_threads: int | None = None,
    kept: list[ThreadSums] | None = None,
    unit: float | None = None,
) -> ResidualSums:
    """Sum people's parts, each clipped to `clip` in Frobenius norm; `whose` has the rows' owners, if not one each.

    With `bound_squares` squared residuals are summed too, each person's vector of them clipped to it in the L2 norm.
    With `unit` the number of people clipped is the last entry of the products, in this unit, a power of two.
    What reads rows for the first thread is `kept` for the next sum, unless this one fails.
    """
    held = clip_of(float(clip), step.shape, max_rows)
    if bound_squares is not None:
        checked_bound(bound_squares, "bound_squares")
    of_count = None if unit is None else math.frexp(unit)[1] - 1  # an exponent
    parts: list[ThreadSums] = []
    products: KeptProducts | None = None
    if kept and bound_squares is None and (part := kept.pop()).goes_on(table, step, held):
        products = None if whose is not None else part.keep_for(table)
        if whose is None and part.whole is not None and part.whole[0] is table:
            _, x, y = part.whole
            shift = None if of_count is None else of_count - held.exponent
            status, high, low, n_beyond = part.kernel.sum_again(x, y, step.theta.T, step.beyond, *held.limits, shift)
            _check_added([status])
            kept.append(part)
            return ResidualSums(FixedPoint(high, low, held.exponent), None, n_beyond)
        part.kernel.again(step.theta.T, step.beyond, *held.limits)
        parts.append(part)
    again = partial(residual_sums, step=step, clip=held.bound, bound_squares=bound_squares)
    new_part = partial(ThreadSums, step, held, bound_squares, products=products)
    found = _over_people(table, step, whose, max_rows, parts, new_part, again, _add_sums, n_threads)
    if kept is not None and bound_squares is None:
        kept.extend(parts[:1])
    if of_count is not None:  # products of rows with codes are on a finer grid
        counted = found.n_beyond << of_count - found.products.exponent
        found = found._replace(products=found.products.followed_by(counted))
    return found


def residual_sizes(
    table: io.Table,
    step: ResidualStep,
    half_octaves: tuple[int, int],
    *,
    whose: People | io.PersonIds | None = None,
    max_rows: int | None = None,
    n_threads: int | None = None,
) -> IntArray:
    """Count people by the norm of their part, before any clip: each in one of ``last - first + 2`` bins.

    Bins end at ``2**(j/2)`` for j from first to last, `half_octaves`: the first has all that is below the first edge,
    the last all from the last edge on, and another is closed at its lower edge.
    """
    first, last = half_octaves
    if not -_LARGEST_HALF_OCTAVE <= first <= last <= _LARGEST_HALF_OCTAVE:
        raise ValueError(f"half_octaves must be two increasing integers within {_LARGEST_HALF_OCTAVE} of 0")
    again = partial(residual_sizes, step=step, half_octaves=half_octaves)
    new_part = partial(ThreadSizes, step, half_octaves)
    return _over_people(table, step, whose, max_rows, [], new_part, again, operator.add, n_threads)


def _add_sums(one: ResidualSums, other: ResidualSums) -> ResidualSums:
    both = one.squares, other.squares
    squares = None if both[0] is None or both[1] is None else both[0] + both[1]
    return ResidualSums(_on_finer_grid(one.products, other.products), squares, one.n_beyond + other.n_beyond)


def _on_finer_grid(one: FixedPoint, other: FixedPoint) -> FixedPoint:
    """Add sums whose units differ by a public power of two."""
    finest = min(one.exponent, other.exponent)
    return one.in_units(finest) + other.in_units(finest)


class ThreadRows(ABC):
    """Reader of the rows for one thread."""

    kernel: residual_step.ResidualRows
    #: Adds most rows with codes; the kernel adds the others.
    coded: coded_step.CodedRows | None = None
    #: A table, and its arrays, that it has read alone and in one go: it can again.
    whole: tuple[io.Table, Rows, Rows] | None = None
    _step: ResidualStep
    _tables: StepTables | None = None

    def begin_coded(self, tables: StepTables) -> None:
        """Prepare for rows with codes."""
        if tables is not self._tables:
            self._tables = tables
            options: dict[str, Any] = {"block_rows": self.kernel.block_rows, "level": self.kernel.level}
            self.kernel.begin_coded(CodedMapKernel(*tables.products, **options))
            self.coded = None if tables.pairs is None else self._begin_pairs(tables.pairs)

    @abstractmethod
    def _begin_pairs(self, tables: PairTables) -> coded_step.CodedRows | None:
        """Prepare for rows with codes by pairs of levels, or return None."""

    @property
    def _map_y(self) -> RowMapKernel:
        return self._step._maps[1]


class KeptProducts(NamedTuple):
    """Rows' products, in units, that passes over a table in memory share; see the kernel's `keep`."""

    table: io.Table
    products: NDArray[np.float32]
    sizes: FloatArray
    n_rows: NDArray[np.uint8]


class ThreadSums(ThreadRows):
    """The sums of one thread."""

    kernel: residual_step.ResidualSums
    coded: coded_step.CodedSums | None = None
    _products: KeptProducts | None = None

    def __init__(
        self,
        step: ResidualStep,
        held: Clip,
        bound_squares: float | None = None,
        level: int = -1,
        products: KeptProducts | None = None,
    ) -> None:
        self._step, self._held = step, held
        self._sums: ResidualSums | None = None
        self._unit_of_squares: int | None = None
        limits = None
        if bound_squares is not None:
            k = grid_exponent(bound_squares)
            self._unit_of_squares = -k
            limits = math.ldexp(1.0, k), math.ldexp(bound_squares, k), _squares_limit(bound_squares, step)
        units, of_rows, of_people = held.limits
        self.kernel = residual_step.ResidualSums(
            *step.kernel_arguments(),
            units=units,
            row_limits=of_rows,
            person_limits=of_people,
            squares_limits=limits,
            level=level,
        )
        if products is not None:
            self.kernel.keep(*products[1:])

    def keep_for(self, table: io.Table) -> KeptProducts | None:
        """Keep products of the table's rows for later passes, if that saves time, or go on with those that are kept."""
        step, arrays = self._step, table.arrays
        if step.whitening is None or step.shape[0] < _FEWEST_KEPT:  # most are known without a call
            return None
        if self._products is None:
            if arrays is None or arrays[1] is None or not is_readable(arrays[0], arrays[1]):
                return None
            products, block = step.shape[0], self.kernel.block_rows
            n_blocks = min(-(-len(arrays[0]) // block), _BYTES_KEPT // (block * (4 * products + 24)))
            if n_blocks == 0:
                return None
            room = np.empty((n_blocks, products * block), np.float32), np.empty((n_blocks, 3 * block))
            self._products = KeptProducts(table, *room, np.zeros(n_blocks, np.uint8))
            self.kernel.keep(*self._products[1:])
        return self._products

    def goes_on(self, table: io.Table, step: ResidualStep, held: Clip) -> bool:
        """Take other coefficients and another clip, for the kernel to begin anew; False if more than these differs."""
        if self._products is not None and self._products.table is not table:
            return False
        if step._maps is not self._step._maps or self._tables is not None or self._unit_of_squares is not None:
            return False
        self._step, self._held, self._sums = step, held, None
        return True

    def begin_coded(self, tables: StepTables) -> None:
        """Prepare for rows with codes."""
        if tables is not self._tables and self.coded is not None:
            self._take_coded()
        super().begin_coded(tables)

    def _begin_pairs(self, tables: PairTables) -> coded_step.CodedSums | None:
        held = self._held
        limits = tables.clip(held.bound, held.squared_bound, held.exponent)
        if limits is None or self._unit_of_squares is not None:
            return None
        return coded_step.CodedSums(tables, self._map_y, limits, level=self.kernel.level)

    def _take_coded(self) -> None:
        assert self.coded is not None
        assert self._tables is not None
        assert self._tables.pairs is not None
        by_slot, high, low, n_beyond = self.coded.take()
        products = self._tables.pairs.total(by_slot, high, low, self._held.bound)
        found = ResidualSums(products, None, n_beyond)
        self._sums = found if self._sums is None else _add_sums(self._sums, found)

    def make_room(self, n_rows: int) -> None:
        """See to it that so many rows can be added."""
        if self.kernel.room < n_rows or (self.coded is not None and self.coded.room < n_rows):
            self.taken()

    def taken(self) -> ResidualSums:
        """Return the exact sums so far."""
        if self.coded is not None:
            self._take_coded()
        products, squares, n_beyond = self.kernel.take()
        unit = self._unit_of_squares
        of_squares = None if unit is None else FixedPoint.from_integers(squares, unit)
        exact = FixedPoint(products >> 63, products.view(np.uint64), self._held.exponent)
        found = ResidualSums(exact, of_squares, n_beyond)
        self._sums = found if self._sums is None else _add_sums(self._sums, found)
        return self._sums


class ThreadSizes(ThreadRows):
    """The counts of one thread."""

    kernel: residual_step.ResidualSizes
    coded: coded_step.CodedSizes | None = None

    def __init__(self, step: ResidualStep, half_octaves: tuple[int, int], level: int = -1) -> None:
        self._step, self._bins = step, half_octaves
        first, last = half_octaves
        self.kernel = residual_step.ResidualSizes(*step.kernel_arguments(), first=first, last=last, level=level)
        self._counts = np.zeros(last - first + 2, np.int64)

    def begin_coded(self, tables: StepTables) -> None:
        """Prepare for rows with codes."""
        if tables is not self._tables:
            self.taken()
        super().begin_coded(tables)

    def _begin_pairs(self, tables: PairTables) -> coded_step.CodedSizes:
        first, last = self._bins
        return coded_step.CodedSizes(tables, self._map_y, first=first, last=last, level=self.kernel.level)

    def make_room(self, n_rows: int) -> None:
        """Do nothing: counts have room for any number of rows."""

    def taken(self) -> IntArray:
        """Return the counts so far."""
        self._counts += self.kernel.take()
        if self.coded is not None:
            self._counts += self.coded.take()
        return self._counts


_Part = TypeVar("_Part", ThreadSums, ThreadSizes)
_Total = TypeVar("_Total")


def _over_people(
    table: io.Table,
    step: ResidualStep,
    whose: People | io.PersonIds | None,
    max_rows: int | None,
    parts: list[_Part],
    new_part: Callable[[], _Part],
    again: Callable[..., _Total],
    add: Callable[[_Total, _Total], _Total],
    n_threads: int | None,
) -> _Total:
    """Read every row once, in threads that each have a part of their own, or `again` each partition; add up."""
    if (table.n_features, table.n_outcomes) != (step.n_features, step.shape[1]):
        raise ValueError(f"theta is for {step.n_features} features and {step.shape[1]} outcomes, the table has others")
    if (whose is None) != (max_rows is None):
        raise ValueError("max_rows needs groups")
    if table.partitions is not None:
        of_partition = partial(_of_partition, again, max_rows, n_threads or 1)
        return table.reduce(of_partition, add, groups=whose, may_copy=whose is not None)
    if whose is not None and table.arrays is None:
        raise TypeError("residuals of people with several rows need whole arrays, .npy files or frames")
    if not parts:
        parts.append(new_part())
    if whose is None:
        layout, tables = None, None
        for x, y in table.blocks() if table.arrays is None else (table.arrays,):
            assert y is not None
            if x.shape[1] != table.n_features or y.shape[1] != table.n_outcomes:
                raise ValueError(
                    f"blocks of X and Y must have {table.n_features} and {table.n_outcomes} columns, as the first"
                )
            if isinstance(x, CodedBlock) and x.layout != layout:
                layout, tables = x.layout, coded_tables(step, x.layout)
            own = tables if isinstance(x, CodedBlock) else None
            in_one_go = _add_ranges(parts, new_part, step, len(x), n_threads, partial(_add_rows, x, y, own), own)
            parts[0].whole = (table, x, y) if in_one_go and table.arrays is not None and is_readable(x, y) else None
    else:
        assert isinstance(whose, People)
        assert table.arrays is not None
        x, y = table.arrays
        assert y is not None
        whose.check_length(len(x))
        _add_ranges(parts, new_part, step, int(whose.offsets[-1]), n_threads, partial(_add_people, x, y, whose))
    found: _Total = reduce(add, map(operator.methodcaller("taken"), parts))
    return found


@suppress_float_warnings
def _of_partition(
    again: Callable[..., _Total], max_rows: int | None, n_threads: int, table: io.Table, groups: Any
) -> _Total:
    whose = None if max_rows is None else io.people(groups, max_rows)
    return again(table, whose=whose, max_rows=max_rows, n_threads=n_threads)


def _add_ranges(
    parts: list[_Part],
    new_part: Callable[[], _Part],
    step: ResidualStep,
    n_rows: int,
    n_threads: int | None,
    add: Callable[[_Part, int, int], int],
    tables: StepTables | None = None,
) -> bool:
    """Add all rows; return whether it was done in one go."""
    k, outcomes = step.shape
    products = (k + len(step.theta)) * outcomes + (0 if step.whitening is None else step.whitening.size) + 8 * k
    longest = max(_SHORTEST_RANGE, min(_LONGEST_RANGE, _PRODUCTS_PER_RANGE // products))
    if tables is not None and tables.pairs is not None:
        products, longest = _PRODUCTS_OF_CODES * outcomes, _LONGEST_CODED_RANGE
    most = n_rows * products // _PRODUCTS_PER_THREAD
    is_small = most <= 1 and type(n_threads) is int and n_threads > 0  # known without a call
    n_workers = 1 if is_small else threads_for(most, n_threads)
    in_one_go = n_workers == 1 and 0 < n_rows <= longest
    if in_one_go:
        statuses = [add(parts[0], 0, n_rows)]
    else:
        while len(parts) < n_workers:
            parts.append(new_part())
        if n_workers > 1:
            longest = min(longest, max(_SHORTEST_RANGE, n_rows // (8 * n_workers)))
        # Whole blocks: passes find again what others have kept of them.
        statuses = _in_threads(
            parts[:n_workers], RowRanges(n_rows, longest - longest % parts[0].kernel.block_rows), add
        )
    _check_added(statuses)
    return in_one_go


def _check_added(statuses: list[int]) -> None:
    for status, name in ((residual_step.X_NOT_FINITE, "X"), (residual_step.Y_NOT_FINITE, "Y")):
        if status in statuses:
            raise check.not_finite(name)


def _in_threads(parts: list[_Part], ranges: RowRanges, add: Callable[[_Part, int, int], int]) -> list[int]:
    def add_ranges(part: _Part) -> int:
        for start, stop in ranges:
            status = add(part, start, stop)
            if status != residual_step.ADDED:
                ranges.stop()
                return status
        return residual_step.ADDED

    return run_in_threads([partial(add_ranges, part) for part in parts], ranges.stop)


def _add_rows(x: Rows, y: Rows, tables: StepTables | None, part: _Part, start: int, stop: int) -> int:
    if part.kernel.room < stop - start or part.coded is not None:  # most are known without a call
        part.make_room(stop - start)
    if isinstance(x, CodedBlock) and tables is not None:
        part.begin_coded(tables)
        return _add_coded(x, y, part, start, stop)
    if is_readable(x, y):
        return part.kernel.add(x, y, None, start, stop)
    return part.kernel.add(*range_of(x, y, None, start, stop))


def _add_coded(x: CodedBlock, y: Rows, part: ThreadRows, start: int, stop: int) -> int:
    if part.coded is not None:
        left_out = np.empty(stop - start, np.uint8)
        if is_readable(x.numbers, y):
            status = part.coded.add(x.numbers, x.codes, y, start, stop, left_out)
        else:
            rows = x[start:stop]
            of_rows = readable(rows.numbers), rows.codes, readable(y[start:stop])
            status = part.coded.add(*of_rows, 0, stop - start, left_out)
        if status != residual_step.ADDED or not left_out.any():
            return status
        chosen: Any = start + np.flatnonzero(left_out)
    else:
        chosen = slice(start, stop)
    rows = x[chosen]
    return part.kernel.add_coded(readable(rows.numbers), rows.codes, readable(y[chosen]), 0, len(rows))


def _add_people(x: Rows, y: Rows, whose: People, part: ThreadSums | ThreadSizes, start: int, stop: int) -> int:
    """Add the people whose first row is one of start to stop."""
    people = people_within(x, y, whose, start, stop)
    *_, offsets, first, last = people
    part.make_room(int(offsets[last] - offsets[first]))
    return part.kernel.add_people(*people)


def _squares_limit(bound: float, step: ResidualStep) -> int:
    return padded_squared_bound(bound, grid_exponent(bound), step.shape[1])
