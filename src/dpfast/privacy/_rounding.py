"""Directed rounding of single operations: the exact rational result decides, so no error bound is needed."""

from __future__ import annotations

import math
from fractions import Fraction


def up(exact: Fraction) -> float:
    """Return the smallest float that is at least a nonnegative rational; inf beyond the largest float."""
    try:
        value = float(exact)
    except OverflowError:
        return math.inf
    return value if math.isinf(value) or Fraction(value) >= exact else math.nextafter(value, math.inf)


def down(exact: Fraction) -> float:
    """Return the largest float that is at most a nonnegative rational."""
    value = up(exact)
    return value if math.isfinite(value) and Fraction(value) == exact else math.nextafter(value, 0.0)


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least a nonnegative rational."""
    if exact == 0:
        return 0.0
    # Scaled so that the integer root keeps more than 53 bits and no intermediate leaves the range of floats.
    shift = 2 * ((128 - exact.numerator.bit_length() + exact.denominator.bit_length()) // 2)
    scaled = exact * Fraction(2) ** shift
    root = math.isqrt(-(-scaled.numerator // scaled.denominator) - 1) + 1
    value = up(Fraction(root) / Fraction(2) ** (shift // 2))
    lower = math.nextafter(value, 0.0)
    return lower if Fraction(lower) ** 2 >= exact else value


def sqrt_down(exact: Fraction) -> float:
    """Return the largest float whose square is at most a nonnegative rational."""
    root = sqrt_up(exact)
    return root if Fraction(root) ** 2 == exact else math.nextafter(root, 0.0)
