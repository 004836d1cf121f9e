"""The person as the unit of privacy: the rows of people, and the bounds of the block that one person's add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast.io.people import People
from dpfast.kernels.columns import Rows, is_readable, readable
from dpfast.privacy import rounding
from dpfast.privacy.block_moments import BlockBounds
from dpfast.privacy.moment_scales import padded_squared_block_bounds

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
    bounds = BlockBounds(rounding.sqrt_up(xx / unit_xx**2))
    if outcomes > 0:
        norm_y = rounding.sqrt_up(k * m_y / Fraction(scale_y) ** 2)
        bounds = BlockBounds(bounds.xx, rounding.sqrt_up(xy / unit_xy**2), norm_y)
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
