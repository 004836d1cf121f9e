"""Rounding towards privacy: single operations exactly, and one margin for what a formula's rounding may add up to."""

from __future__ import annotations

import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy._search import remembered

#: Factors on a computed positive number. Each covers 500 roundings of 2^-53 of it: a formula of a few dozen operations
#: whose terms have one sign, with elementary functions, which libraries compute to a few units in the last place.
ROUND_UP, ROUND_DOWN = 1.0 + 2.0**-44, 1.0 - 2.0**-44


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
    above, below = exact.numerator, exact.denominator
    if above == 0:
        return 0.0
    # Scaled so that the integer root keeps more than 53 bits and no intermediate leaves the range of floats.
    shift = 2 * ((128 - above.bit_length() + below.bit_length()) // 2)
    root = math.isqrt(-(-(above << max(shift, 0)) // (below << max(-shift, 0))) - 1) + 1
    value = up(Fraction(root << max(-shift // 2, 0), 1 << max(shift // 2, 0)))
    lower = math.nextafter(value, 0.0)
    numerator, denominator = lower.as_integer_ratio()
    return lower if numerator**2 * below >= above * denominator**2 else value


def sqrt_down(exact: Fraction) -> float:
    """Return the largest float whose square is at most a nonnegative rational."""
    root = sqrt_up(exact)
    return root if Fraction(root) ** 2 == exact else math.nextafter(root, 0.0)


@remembered
def _quotient_up(size: float, bound: float) -> float:
    return up(Fraction(size) / Fraction(bound))


def quotient_up(**numbers: float) -> float:
    """Return the first number over the second, which may be infinite, rounded up; their names are for messages."""
    (above, sensitivity), (below, budget) = numbers.items()
    bound = check.positive_or_inf(below, budget)
    size = check.positive(above, sensitivity)
    if bound == math.inf:
        return 0.0
    quotient = _quotient_up(size, bound)
    if quotient == math.inf:
        raise ValueError(f"{above}/{below} is beyond the largest float")
    return quotient
