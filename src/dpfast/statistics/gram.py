"""Second moments of bounded rows, exactly, and the public grid they are sums on.

A row longer than its bound is scaled onto it, then rounded to the nearest multiples of ``2**-k``, where k depends on
the bound alone; its squared length in grid units never exceeds the integer
`dpfast.privacy.moment_scales.padded_squared_bound`. The sums of products of such rows are integers, kept exactly, so
the result is the same to the bit for any order, split, thread count or machine, and one person moves it by exactly what
the sensitivity says: floating-point arithmetic leaves no gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.io.people import People
from dpfast.kernels import gram as kernel
from dpfast.kernels.columns import FixedPoint, Rows, is_readable, readable
from dpfast.privacy.block_moments import BlockBounds
from dpfast.privacy.guarantee import sqrt_up
from dpfast.privacy.moment_scales import padded_bound, padded_squared_block_bounds, padded_squared_bound

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
        super().__init__(*like._arguments())
        self._totals, self.unit, self.n_people = totals, unit, n_people

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
