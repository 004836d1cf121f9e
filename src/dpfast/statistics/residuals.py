"""Sums of rows times what coefficients leave of their outcomes, each person's part held to a bound, exactly.

A row x, mapped, and followed by a 1 if asked for, has the residual r = y - theta'x and the product p = W x, or x
itself. It adds the matrix p r', of norm ||p|| ||r||: longer ones are scaled onto the clip. A matrix of rank one does
not change if its factors are scaled against each other by a power of two, so p is first brought to a length from 1 to
2. Then both have a grid that depends on the clip alone, however large rows, W or theta are: p is rounded to multiples
of ``2**-a``, r, at most as long as the clip, to those of ``2**-b``. An integer test ``||p||**2 ||r||**2 <= M``
decides; r is shortened until it holds. M is `dpfast.privacy.sensitivity.padded_squared_product_bound`. Integers are
summed, so the result is the same to the bit for any split or order of rows, and one person moves it by M's root at
most, in grid units.

Of a person with several rows the summed matrix is held to the clip, by one factor on all r, and tested as integers;
each of their rows is held to 16 times the clip before, which keeps the integers of rows that cancel small.

Norms and products are sums, in the order of columns and from 0, of products of doubles: what becomes of a row depends
on that row alone, to the bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast._quiet import quiet
from dpfast.io.people import People
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.kernels.threads import resolve_n_threads
from dpfast.privacy.sensitivity import padded_bound, padded_squared_bound, padded_squared_product_bound
from dpfast.statistics.rows import RowMap

#: p is rounded to this grid: from 2^21 to 2^22 units long.
_EXPONENT_P = 21
_LOG2_CLIP = 22
#: How many times the clip a row of a person with several may be.
_ROW_OF_SEVERAL = 16
#: Rows of one person: their integers fit 62 bits.
MOST_ROWS_OF_ONE = 1 << 14
_SMALLEST, _LARGEST = 1e-100, 1e100
#: Norms of p and of r are at most this, so that nothing overflows.
_LARGEST_NORM = 1e150
#: Squared norms of p below this count as 0: they have lost bits.
_SMALLEST_SQUARE = 2.0**-960
_LARGEST_HALF_OCTAVE = 1000


@dataclass(frozen=True, eq=False)
class ResidualStep:
    """What residuals are taken of, all of it public: coefficients, maps of rows, and what rows are multiplied by.

    Whatever the maps let through must not overflow: ValueError if the declared bounds cannot rule that out.
    """

    theta: FloatArray  # (D, l), D the columns of X, and one more if `constant`
    map_x: RowMap  # must bound rows
    map_y: RowMap
    whitening: FloatArray | None = None  # (k, D), fastest where lower triangular; None for no change, k = D
    constant: bool = False  # whether rows are followed by a 1

    def __post_init__(self) -> None:
        if self.theta.ndim != 2 or not np.isfinite(self.theta).all():
            raise ValueError("theta must be a matrix of finite numbers")
        n_columns, n_outcomes = self.theta.shape
        if n_columns <= self.constant or n_outcomes < 1:
            raise ValueError("theta must have a row for each column of X and a column for each outcome")
        length_x = math.hypot(self.map_x.largest_norm(n_columns - self.constant), float(self.constant))
        with np.errstate(over="ignore"):
            reach = self.map_y.largest_norm(n_outcomes) + length_x * float(np.sum(np.abs(self.theta)))
        length_p = length_x
        if self.whitening is not None:
            if self.whitening.ndim != 2 or self.whitening.shape[1] != n_columns or len(self.whitening) < 1:
                raise ValueError(f"whitening must have {n_columns} columns, as many as theta has rows")
            if not _SMALLEST <= float(np.max(np.abs(self.whitening))) <= _LARGEST:
                raise ValueError("whitening must hold finite numbers, the largest from 1e-100 to 1e100 in size")
            length_p *= float(np.sum(np.abs(self.whitening)))
        if not (length_p <= _LARGEST_NORM and reach <= _LARGEST_NORM):
            raise ValueError(
                "the bounds of rows and outcomes, theta and whitening must be so that products of rows and residuals "
                "cannot overflow"
            )

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.theta) - self.constant

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a person's part: k and l."""
        return len(self.theta) if self.whitening is None else len(self.whitening), self.theta.shape[1]


@dataclass(frozen=True)
class Clip:
    """A bound on people's parts, and the grid that belongs to it: public."""

    #: Frobenius norm that parts are scaled onto.
    bound: float
    shape: tuple[int, int]
    #: Most rows of a person; None where every row is a person.
    max_rows: int | None = None

    def __post_init__(self) -> None:
        _check_bound("clip", self.bound)
        if self.max_rows is not None and check.positive_integer("max_rows", self.max_rows) > MOST_ROWS_OF_ONE:
            raise ValueError(f"max_rows must be at most {MOST_ROWS_OF_ONE} for residual sums, got {self.max_rows}")

    @property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the grids of p and r."""
        return _EXPONENT_P, _grid_exponent(self.bound)

    @property
    def exponent(self) -> int:
        """Exponent of the unit of products."""
        return -sum(self.exponents)

    @cached_property
    def squared_bound(self) -> int:
        """Squared norm of a person's part, in grid units, that none exceeds."""
        return padded_squared_product_bound(self.bound, self.exponents, self.shape, self.max_rows or 1)

    @property
    def row_bound(self) -> float:
        """Norm that a single row's part is scaled onto."""
        return self.bound if self.max_rows is None else _ROW_OF_SEVERAL * self.bound

    @cached_property
    def squared_row_bound(self) -> int:
        """Squared norm of a single row's part, in grid units, that none exceeds."""
        return padded_squared_product_bound(self.row_bound, self.exponents, self.shape)


class ResidualSums(NamedTuple):
    """Exact sums over people: not private."""

    #: Sum of people's p r' (k, l), each held to the clip.
    products: FixedPoint
    #: Sum of people's squared residuals (l,), each person's vector of them held to `bound_squares`, if asked for.
    squares: FixedPoint | None


def residual_bound(clip: float, step: ResidualStep, max_rows: int | None = None) -> float:
    """Return the norm that no person's part of `residual_sums` exceeds: what to calibrate with."""
    held = Clip(float(clip), step.shape, max_rows)
    return padded_bound(held.squared_bound, sum(held.exponents))


def squares_bound(bound_squares: float, step: ResidualStep) -> float:
    """Return the norm that no person's squared residuals in `residual_sums` exceed: what to calibrate with."""
    k = _grid_exponent(_check_bound("bound_squares", bound_squares))
    return padded_bound(padded_squared_bound(bound_squares, k, step.shape[1]), k)


@quiet
def residual_sums(
    table: io.Table,
    step: ResidualStep,
    clip: float,
    *,
    bound_squares: float | None = None,
    whose: People | None = None,
    max_rows: int | None = None,
    n_threads: int | None = None,
) -> ResidualSums:
    """Sum people's parts, each held to `clip` in the Frobenius norm; `whose` says who owns which rows, if not one each.

    `bound_squares` asks for the sums of squared residuals too, each person's vector of them held to it in the L2 norm.
    """
    resolve_n_threads(n_threads)
    _check_table(table, step, whose, max_rows)
    held = Clip(float(clip), step.shape, max_rows)
    if bound_squares is not None:
        _check_bound("bound_squares", bound_squares)
    if table.collections is not None:
        function = partial(_sums_of, step=step, held=held, bound_squares=bound_squares)
        total: ResidualSums = io.reduce_partitions(*table.collections, function, _add_sums)
        return total
    products, squares = _Total(held.shape), _Total(held.shape[1:])
    for p, r in _people_blocks(table, step, whose):
        _add_people(p, r, held, bound_squares, products, squares)
    if bound_squares is None:
        return ResidualSums(products.fixed(held.exponent), None)
    return ResidualSums(products.fixed(held.exponent), squares.fixed(-_grid_exponent(bound_squares)))


@quiet
def residual_sizes(
    table: io.Table,
    step: ResidualStep,
    half_octaves: tuple[int, int],
    *,
    whose: People | None = None,
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
    resolve_n_threads(n_threads)
    _check_table(table, step, whose, max_rows)
    if table.collections is not None:
        function = partial(_sizes_of, step=step, half_octaves=half_octaves)
        total: IntArray = io.reduce_partitions(*table.collections, function, operator.add)
        return total
    counts = np.zeros(last - first + 2, np.int64)
    for p, r in _people_blocks(table, step, whose):
        squared = _squared_norm(p[0]) * _squared_norm(r[0]) if len(p) == 1 else _squared_norm_of_sum(p, r)
        # A half octave of the norm is an octave of its square: the exponent says which, exactly.
        exponents = np.where(np.isfinite(squared), np.frexp(squared)[1] - 1, _LARGEST_HALF_OCTAVE)
        exponents = np.where(squared < _SMALLEST_SQUARE, -_LARGEST_HALF_OCTAVE - 1, exponents)
        counts += np.bincount(np.clip(exponents - first + 1, 0, len(counts) - 1), minlength=len(counts))
    return counts


def _sums_of(x: Any, y: Any, *, step: ResidualStep, held: Clip, bound_squares: float | None) -> ResidualSums:
    return residual_sums(io.open_table(x, y), step, held.bound, bound_squares=bound_squares, n_threads=1)


def _sizes_of(x: Any, y: Any, *, step: ResidualStep, half_octaves: tuple[int, int]) -> IntArray:
    return residual_sizes(io.open_table(x, y), step, half_octaves, n_threads=1)


def _add_sums(one: ResidualSums, other: ResidualSums) -> ResidualSums:
    both = one.squares, other.squares
    squares = None if both[0] is None or both[1] is None else both[0] + both[1]
    return ResidualSums(one.products + other.products, squares)


def _check_table(table: io.Table, step: ResidualStep, whose: People | None, max_rows: int | None) -> None:
    if (table.n_features, table.n_outcomes) != (step.n_features, step.shape[1]):
        raise ValueError(f"theta is for {step.n_features} features and {step.shape[1]} outcomes, the table has others")
    if (whose is None) != (max_rows is None):
        raise ValueError("max_rows goes with whose rows are whose")
    if whose is not None and table.arrays is None:
        raise TypeError("residuals of people with several rows need whole arrays, .npy files or frames")


# From here to the end of the file: plain NumPy, entry by entry, so that nothing depends on the block.

_Rows = tuple[list[FloatArray], list[FloatArray]]  # p and r of each of a person's rows: (k, n) and (l, n)


class _Total:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros(shape, dtype=object)

    def add(self, integers: IntArray) -> None:
        self._sum = self._sum + integers.astype(object)

    def fixed(self, exponent: int) -> FixedPoint:
        return FixedPoint.from_integers(self._sum, exponent)


def _people_blocks(table: io.Table, step: ResidualStep, whose: People | None) -> Iterator[_Rows]:
    """Iterate over blocks of people, who have as many rows each."""
    if whose is None:
        for x, y in table.blocks(step.map_x, step.map_y):
            p, r = _products(x, y, step)
            yield [p], [r]
        return
    assert table.arrays is not None
    if len(table.arrays[0]) != whose.n_rows:
        raise ValueError("groups must have one id a row: X has another number of rows")
    x, y = io.map_block(*table.arrays, step.map_x, step.map_y)
    p, r = _products(x, y, step)
    for start, stop in zip(whose.offsets[:-1], whose.offsets[1:], strict=True):
        rows = np.arange(start, stop) if whose.order is None else whose.order[start:stop]
        yield [p[:, [i]] for i in rows], [r[:, [i]] for i in rows]


def _products(x: Any, y: Any, step: ResidualStep) -> tuple[FloatArray, FloatArray]:
    for name, rows in (("X", x), ("Y", y)):
        if not np.isfinite(rows).all():
            raise ValueError(f"{name} contains NaN or infinity")
    columns = np.ascontiguousarray(x.T)
    if step.constant:
        columns = np.vstack([columns, np.ones(len(x))])
    residuals = np.ascontiguousarray(y.T) - _weighted(step.theta.T, columns)
    return columns if step.whitening is None else _weighted(step.whitening, columns), residuals


def _weighted(weights: FloatArray, columns: FloatArray) -> FloatArray:
    """Multiply, column after column."""
    total = np.zeros((len(weights), columns.shape[1]))
    for j, column in enumerate(columns):
        total += weights[:, j, None] * column
    return total


def _squared_norm(columns: FloatArray) -> FloatArray:
    total = np.zeros(columns.shape[1])
    with np.errstate(under="ignore", over="ignore"):
        for column in columns:
            total += column * column
    return total


def _squared_norm_of_sum(p: list[FloatArray], r: list[FloatArray]) -> FloatArray:
    total = np.zeros((len(p[0]), len(r[0]), p[0].shape[1]))
    for one, other in zip(p, r, strict=True):
        total += one[:, None] * other
    return _squared_norm(total.reshape(-1, total.shape[-1]))


def _add_people(
    p: list[FloatArray], r: list[FloatArray], held: Clip, bound_squares: float | None, products: _Total, squares: _Total
) -> None:
    rows = [_rounded(one, other, held) for one, other in zip(p, r, strict=True)]
    if held.max_rows is None:
        ((p_units, multiplier),) = rows
        products.add(p_units @ _units(r[0], multiplier).T)
    elif rows:
        products.add(_held_block(rows, r, held))
    if bound_squares is not None and r:
        total = np.zeros_like(r[0])
        for one in r:
            with np.errstate(over="ignore"):
                total += one * one
        squares.add(_held_squares(total, bound_squares))


def _units(values: FloatArray, multiplier: FloatArray | float) -> IntArray:
    return np.rint(values * multiplier).astype(np.int64)


def _rounded(p: FloatArray, r: FloatArray, held: Clip) -> tuple[IntArray, FloatArray]:
    """Return p in grid units, and what to multiply r by so that it is."""
    (a, b), bound = held.exponents, held.squared_row_bound
    squared_p, squared_r = _squared_norm(p), _squared_norm(r)
    vanishes = squared_p < _SMALLEST_SQUARE
    half = (np.frexp(np.where(vanishes, 1.0, squared_p))[1] - 1) >> 1
    with np.errstate(divide="ignore"):
        onto_clip = math.ldexp(held.row_bound, b) / np.sqrt(np.ldexp(squared_p, -2 * half) * squared_r)
    multiplier = np.where(vanishes, 0.0, np.minimum(np.ldexp(1.0, b + half), onto_clip))
    p_units = _units(np.where(vanishes, 0.0, p), np.ldexp(1.0, a - half))
    squares = _exact_squares(p_units)
    for step in range(51):
        beyond = squares * _exact_squares(_units(r, multiplier)) > bound
        if not beyond.any():
            break
        multiplier = np.where(beyond, multiplier * (1.0 - 2.0 ** (step - 50)), multiplier)
    return p_units, multiplier


def _exact_squares(units: IntArray) -> Any:
    return np.sum(units * units, axis=0).astype(object)


def _held_block(rows: list[tuple[IntArray, FloatArray]], r: list[FloatArray], held: Clip) -> IntArray:
    """Return one person's block of integers, their r multiplied by one factor."""

    def block(factor: float) -> IntArray:
        total = np.zeros(held.shape, np.int64)
        for (p_units, multiplier), one in zip(rows, r, strict=True):
            total += p_units @ _units(one, multiplier * factor).T
        return total

    def square(integers: IntArray) -> int:
        return sum(int(entry) ** 2 for entry in integers.flat)

    integers = block(1.0)
    if (squared := square(integers)) <= held.squared_bound:
        return integers
    factor = math.ldexp(held.bound, sum(held.exponents)) / math.sqrt(float(squared))
    step = 0
    while square(integers := block(factor)) > held.squared_bound:
        factor *= 1.0 - 2.0 ** (step - 50)
        step += 1
    return integers


def _held_squares(squares: FloatArray, bound: float) -> IntArray:
    """Return squared residuals in grid units, each column of them held to the bound, summed."""
    k = _grid_exponent(bound)
    limit = padded_squared_bound(bound, k, len(squares))
    multiplier = np.full(squares.shape[1], math.ldexp(1.0, k))
    largest = np.max(squares, axis=0)
    scale = np.where(largest > 0.0, np.ldexp(1.0, -np.frexp(largest)[1]), 1.0)
    length = np.sqrt(_squared_norm(squares * scale))
    with np.errstate(divide="ignore"):
        multiplier = np.minimum(multiplier, math.ldexp(bound, k) * scale / length)
    for step in range(51):
        units = _units(squares, multiplier)
        beyond = _exact_squares(units) > limit
        if not beyond.any():
            break
        multiplier = np.where(beyond, multiplier * (1.0 - 2.0 ** (step - 50)), multiplier)
    total: IntArray = np.sum(units, axis=1)
    return total


def _grid_exponent(bound: float) -> int:
    """Smallest k with ``bound * 2**k > 2**21``."""
    mantissa, exponent = math.frexp(bound)
    return _LOG2_CLIP - exponent + (mantissa == 0.5)


def _check_bound(name: str, bound: object) -> float:
    number = check.positive(name, bound)
    if not _SMALLEST <= number <= _LARGEST:
        raise ValueError(f"{name} must be a positive number from 1e-100 to 1e100, got {number!r}")
    return number
