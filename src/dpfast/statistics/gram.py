"""Second moments of bounded rows, exactly, and the public grid they are sums on.

A row longer than its bound is scaled onto it, then rounded to the nearest multiples of ``2**-k``, where k depends on
the bound alone; its squared length in grid units never exceeds the integer
`dpfast.privacy.sensitivity.padded_squared_bound`. The sums of products of such rows are integers, kept exactly, so the
result is the same to the bit for any order, split, thread count or machine, and one person moves it by exactly what
the sensitivity says: floating-point arithmetic leaves no gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast.kernels import gram as kernel
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.privacy.block_moments import BlockBounds
from dpfast.privacy.sensitivity import padded_bound, padded_squared_bound
from dpfast.statistics.person_unit import PersonUnit, block_limits

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
        return cls(_grid_exponent(bound_x), None if bound_y is None else _grid_exponent(bound_y))


def _grid_exponent(bound: float) -> int:
    mantissa, exponent = math.frexp(bound)
    return _LOG2_LENGTH - exponent + (mantissa == 0.5)


class Layout(Protocol):
    """What a Gram and an accumulator of one have in common: shape, bounds and grid, all public."""

    n_features: int
    n_outcomes: int
    bound_x: float
    bound_y: float | None
    grid: Grid


class Gram:
    """Exact second moments of bounded rows. **Not private**: it belongs to the owner of the data.

    Parameters
    ----------
    xx : FixedPoint or array_like (n_features, n_features)
        Sum of x x' over rows; an array must hold exact multiples of the grid's unit.
    xy : FixedPoint, array_like (n_features, n_outcomes) or None
        Sum of x y'.
    n_rows : int
        Rows summed.
    bound_x, bound_y : float, float or None
        L2 norms that rows of X and of Y were held to.
    grid : Grid
        The grid rows were rounded to.
    x_sum, y_sum : FixedPoint, array_like or None
        Sums of the rows of X (n_features,) and of Y (n_outcomes,), if they were asked for.

    Attributes
    ----------
    xx, xy : ndarray of float64, read-only
        The exact sums, each rounded once to the nearest double; xy is None without outcomes.
    exact_xx, exact_xy, exact_x_sum, exact_y_sum : FixedPoint or None
        The exact sums themselves.
    unit : PersonUnit or None
        What was declared of people who own several rows; None where every row is a person of its own.
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
        self,
        xx: FixedPoint | ArrayLike,
        xy: FixedPoint | ArrayLike | None,
        n_rows: int,
        bound_x: float,
        bound_y: float | None,
        grid: Grid,
        *,
        x_sum: FixedPoint | ArrayLike | None = None,
        y_sum: FixedPoint | ArrayLike | None = None,
    ) -> None:
        bound_x, bound_y = checked_bounds(bound_x, bound_y, has_outcomes=xy is not None)
        if grid != Grid.for_bounds(bound_x, bound_y):
            raise ValueError(f"grid {grid} is not the one of these bounds: {Grid.for_bounds(bound_x, bound_y)}")
        n_rows = check.integer_of_at_least("n_rows", n_rows, 0)
        k_x, k_y = grid.exponent_x, grid.exponent_y or 0
        exact_xx = _as_exact(xx, -2 * k_x, "xx")
        exact_xy = None if xy is None else _as_exact(xy, -(k_x + k_y), "xy")
        exact_x_sum = None if x_sum is None else _as_exact(x_sum, -k_x, "x_sum")
        exact_y_sum = None if y_sum is None else _as_exact(y_sum, -k_y, "y_sum")
        _check_shapes(exact_xx, exact_xy, exact_x_sum, exact_y_sum)
        d, m = exact_xx.shape[0], 0 if exact_xy is None else exact_xy.shape[1]
        zeros = FixedPoint.zeros((d + m,), 0)
        products = [exact_xx] if exact_xy is None else [exact_xx, exact_xy]
        columns = (
            [zeros] if exact_x_sum is None else [exact_x_sum] if exact_y_sum is None else [exact_x_sum, exact_y_sum]
        )
        squared_bound = max(squared for *_, squared in kernel_tables(d, m, bound_x, bound_y, grid))
        totals = kernel.restore_totals(
            d,
            m,
            squared_bound,
            n_rows,
            np.hstack([product.high for product in products]),
            np.hstack([product.low for product in products]),
            np.hstack([column.high for column in columns]),
            np.hstack([column.low for column in columns]),
        )
        self._set(totals, d, m, bound_x, bound_y, grid, has_sums=exact_x_sum is not None)

    def _set(
        self,
        totals: kernel.GramTotals,
        n_features: int,
        n_outcomes: int,
        bound_x: float,
        bound_y: float | None,
        grid: Grid,
        *,
        has_sums: bool,
        unit: PersonUnit | None = None,
        n_people: int | None = None,
    ) -> Gram:
        self._totals = totals
        self.n_features = n_features
        self.n_outcomes = n_outcomes
        self.bound_x = bound_x
        self.bound_y = bound_y
        self.grid = grid
        self._has_sums = has_sums
        self.unit = unit
        self.n_people = n_people
        return self

    @classmethod
    def _of(
        cls,
        totals: kernel.GramTotals,
        like: Layout,
        *,
        has_sums: bool,
        unit: PersonUnit | None = None,
        n_people: int | None = None,
    ) -> Gram:
        """Wrap totals, which nothing else may change from now on."""
        return cls.__new__(cls)._set(
            totals,
            like.n_features,
            like.n_outcomes,
            like.bound_x,
            like.bound_y,
            like.grid,
            has_sums=has_sums,
            unit=unit,
            n_people=n_people,
        )

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
        """Sum of the rows of X, (n_features,), exactly, or None if it was not asked for."""
        if not self._has_sums:
            return None
        high, low = self._totals.columns()
        return FixedPoint(high[: self.n_features], low[: self.n_features], -self.grid.exponent_x)

    @property
    def exact_y_sum(self) -> FixedPoint | None:
        """Sum of the rows of Y, (n_outcomes,), exactly, or None."""
        if not self._has_sums or self.grid.exponent_y is None:
            return None
        high, low = self._totals.columns()
        return FixedPoint(high[self.n_features :], low[self.n_features :], -self.grid.exponent_y)

    @cached_property
    def xx(self) -> NDArray[np.float64]:
        """Sum of x x', (n_features, n_features), in the units of X squared."""
        return _read_only(self._totals.symmetric_as_float64(math.ldexp(1.0, -2 * self.grid.exponent_x)))

    @cached_property
    def xy(self) -> NDArray[np.float64] | None:
        """Sum of x y', (n_features, n_outcomes), or None."""
        exact = self.exact_xy
        return None if exact is None else _read_only(exact.to_float64())

    @property
    def squared_bound_x(self) -> float:
        """Largest squared L2 norm of a rounded row of X: what to calibrate with in place of bound_x**2."""
        return _squared_bound(self.bound_x, self.grid.exponent_x, self.n_features)

    @property
    def squared_bound_y(self) -> float | None:
        """Largest squared L2 norm of a rounded row of Y, or None."""
        if self.bound_y is None or self.grid.exponent_y is None:
            return None
        return _squared_bound(self.bound_y, self.grid.exponent_y, self.n_outcomes)

    @property
    def block_bounds(self) -> BlockBounds | None:
        """Bounds on one person's rounded block: what to calibrate with, or None where every row is a person."""
        if self.unit is None:
            return None
        return block_limits(self.unit, kernel_tables(*self._layout()[:4], self.grid)).bounds

    def _layout(self) -> tuple[int, int, float, float | None, bool, PersonUnit | None]:
        return self.n_features, self.n_outcomes, self.bound_x, self.bound_y, self._has_sums, self.unit

    def __add__(self, other: object) -> Gram:
        """Return the moments of both sets of rows, exactly.

        ValueError if shapes, bounds or sums kept differ, or if people own several rows: a person in both would count
        twice.
        """
        if not isinstance(other, Gram):
            return NotImplemented
        if self.unit is not None or other.unit is not None:
            raise ValueError("sums over people do not add, as somebody may be in both: sum all rows at once")
        if self._layout() != other._layout():
            raise ValueError(f"{self!r} and {other!r} differ in shape, bounds or sums kept")
        totals = self._totals.copy()
        totals.add(other._totals)
        return Gram._of(totals, self, has_sums=self._has_sums)

    def __eq__(self, other: object) -> bool:
        """Whether shapes, bounds, number of rows and every exact sum agree."""
        if not isinstance(other, Gram):
            return NotImplemented
        return (
            self._layout() == other._layout() and self.n_people == other.n_people and self._totals.equals(other._totals)
        )

    def __getstate__(self) -> dict[str, Any]:
        # The rounded sums follow from the exact ones: no need to send them.
        return {name: value for name, value in self.__dict__.items() if name not in ("xx", "xy")}

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Gram of {describe(self)}: not private>"


def rounded_bound(bound: float, n_columns: int) -> float:
    """Return the largest L2 norm that a row held to `bound` has once it is rounded to its grid: what to calibrate with.

    Parameters
    ----------
    bound : float
        As for `GramAccumulator`.
    n_columns : int
        Length of a row.

    Returns
    -------
    float
        A few parts in ten million above `bound`; never below the exact value.

    Examples
    --------
    >>> from dpfast.statistics import rounded_bound
    >>> 1.0 < rounded_bound(1.0, 100) < 1.00001
    True
    """
    k = _grid_exponent(_checked_bound(bound, "bound"))
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

    Parameters
    ----------
    max_rows, bound_x, bound_y, bound_xx, bound_xy
        As for `gram`.
    n_features, n_outcomes : int
        Columns of X and of Y.

    Returns
    -------
    BlockBounds
        For `dpfast.privacy.block_moment_mu`, with one common factor; a few parts in ten million above what was
        declared, never below the exact values.

    Examples
    --------
    >>> from dpfast.statistics import person_block_bounds
    >>> bounds = person_block_bounds(50, 10, 1, bound_x=1.0, bound_y=2.0, bound_xx=20.0)
    >>> round(bounds.xx, 3), round(bounds.xy, 3), round(bounds.outcomes**2, 3)
    (20.0, 100.0, 200.0)
    """
    n_features = check.positive_integer("n_features", n_features)
    n_outcomes = check.integer_of_at_least("n_outcomes", n_outcomes, 0)
    bound_x, bound_y = checked_bounds(bound_x, bound_y, has_outcomes=n_outcomes > 0)
    unit = PersonUnit.checked(max_rows, bound_xx, bound_xy, bound_x, bound_y)
    grid = Grid.for_bounds(bound_x, bound_y)
    return block_limits(unit, kernel_tables(n_features, n_outcomes, bound_x, bound_y, grid)).bounds


def kernel_tables(
    n_features: int, n_outcomes: int, bound_x: float, bound_y: float | None, grid: Grid
) -> list[tuple[int, float, float, int]]:
    """Columns, scale, bound and squared bound of both tables, as the kernel wants them."""
    tables = []
    for n_columns, bound, k in ((n_features, bound_x, grid.exponent_x), (n_outcomes, bound_y, grid.exponent_y)):
        if bound is None or k is None:
            tables.append((0, 1.0, 1.0, 1))
        else:
            squared_bound = padded_squared_bound(bound, k, n_columns)
            tables.append((n_columns, math.ldexp(1.0, k), math.ldexp(bound, k), squared_bound))
    return tables


def _check_shapes(xx: FixedPoint, xy: FixedPoint | None, x_sum: FixedPoint | None, y_sum: FixedPoint | None) -> None:
    if len(xx.shape) != 2 or xx.shape[0] != xx.shape[1] or xx.shape[0] == 0:
        raise ValueError(f"xx must be square, got shape {xx.shape}")
    if xx != FixedPoint(xx.high.T, xx.low.T, xx.exponent):
        raise ValueError("xx must be symmetric")
    n_features = xx.shape[0]
    if xy is not None and (len(xy.shape) != 2 or xy.shape[0] != n_features or xy.shape[1] == 0):
        raise ValueError(f"xy must have {n_features} rows and a column for each outcome, got shape {xy.shape}")
    if (y_sum is not None) != (x_sum is not None and xy is not None):
        raise ValueError("x_sum and y_sum go together, where there are outcomes")
    for total, length, name in ((x_sum, n_features, "x_sum"), (y_sum, 0 if xy is None else xy.shape[1], "y_sum")):
        if total is not None and total.shape != (length,):
            raise ValueError(f"{name} must have shape ({length},), got {total.shape}")


def checked_bounds(bound_x: object, bound_y: object, *, has_outcomes: bool) -> tuple[float, float | None]:
    """Return the bounds as floats; `bound_y` goes with outcomes."""
    x = _checked_bound(bound_x, "bound_x")
    if bound_y is None:
        if has_outcomes:
            raise ValueError("bound_y is needed where there are outcomes")
        return x, None
    if not has_outcomes:
        raise ValueError("bound_y was given, but there are no outcomes")
    return x, _checked_bound(bound_y, "bound_y")


def _checked_bound(bound: object, name: str) -> float:
    if isinstance(bound, (bool, np.bool_)) or not isinstance(bound, Real):
        raise TypeError(f"{name} must be a positive number, got {type(bound).__name__}")
    if not _SMALLEST_BOUND <= float(bound) <= _LARGEST_BOUND:
        raise ValueError(f"{name} must be a positive number from 1e-100 to 1e100, got {bound}")
    return float(bound)


def _squared_bound(bound: float, k: int, n_columns: int) -> float:
    # Exact: the integer is below 2^53, and the scale a power of two.
    return math.ldexp(padded_squared_bound(bound, k, n_columns), -2 * k)


def _as_exact(values: FixedPoint | ArrayLike, exponent: int, name: str) -> FixedPoint:
    if isinstance(values, FixedPoint):
        if values.exponent != exponent:
            raise ValueError(f"{name} has the exponent {values.exponent}, its grid {exponent}")
        return values
    units = np.ldexp(np.asarray(values, dtype=np.float64), -exponent)
    if not np.all(np.isfinite(units)) or np.any(units != np.rint(units)):
        raise ValueError(f"{name} must hold exact multiples of its grid's unit, 2**{exponent}")
    return FixedPoint.from_integers(
        [[int(u) for u in row] for row in units] if units.ndim == 2 else [int(u) for u in units], exponent
    )


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False
    return array


def describe(moments: Layout) -> str:
    """Return the public facts of a Gram or an accumulator, for its repr."""
    return (
        f"{moments.n_features} features, {moments.n_outcomes} outcomes, "
        f"bound_x={moments.bound_x}, bound_y={moments.bound_y}"
    )
