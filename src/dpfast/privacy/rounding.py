"""Rounding towards privacy, and the searches that calibrations share.

Single operations are rounded exactly, and one margin covers the accumulated rounding of a formula. The results of
searches are verified, so no search needs to be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

from dpfast import _arguments as check

Found = TypeVar("Found")
Asked = ParamSpec("Asked")

#: Factors on a computed positive number. Each covers 500 relative roundings of 2^-53: a formula of a few dozen
#: operations with terms of one sign, and elementary functions, computed by libraries to a few units in the last place.
ROUND_UP, ROUND_DOWN = 1.0 + 2.0**-44, 1.0 - 2.0**-44

_TRIES = 48
_REMEMBERED = 256


def remembered(search: Callable[Asked, Found]) -> Callable[Asked, Found]:
    """Cache a search's latest answers: fits with the same public numbers search once.

    Its arguments are checked numbers and words. They alone decide the answer, and nobody can change it. No argument is
    private, so the order of earlier calls is not private either. No object of the caller is kept, as it could change.
    """
    return cast("Callable[Asked, Found]", lru_cache(maxsize=_REMEMBERED, typed=True)(search))


def first_that_holds(
    candidate: Callable[[float], Found],
    holds: Callable[[Found], bool],
    otherwise: str = "the arguments ask for noise beyond the range of floats",
) -> Found:
    """Return the first candidate that holds, each made with a little more to spare: (2^k - 1) 2^-52, k = 0, 1, ...

    Almost always the first one holds. More are needed if rounding an answer moves the checked value by more than a
    margin.
    """
    for attempt in range(_TRIES):
        found = candidate((2.0**attempt - 1.0) * 2.0**-52)
        if holds(found):
            return found
    raise ValueError(otherwise)


def largest_within(
    function: Callable[[float], float], target: float, guess: float, *, precision: float = 1e-12, slack: float = 0.0
) -> float:
    """Return nearly the largest positive number at which an increasing function is verified to be at most the target.

    To the (relative) precision, or within `slack` of the target. Secant steps in the logarithm of the number,
    bracketed, with Illinois's rule against a side that stays.
    """
    low = high = guess
    at_low = at_high = function(guess) - target
    factor = 1.5
    while at_low > 0.0:
        high, at_high = low, at_low
        low, factor = low / factor, min(factor * factor, 16.0)
        at_low = function(low) - target
    while at_high <= 0.0:
        low, at_low = high, at_high
        high, factor = high * factor, min(factor * factor, 16.0)
        at_high = function(high) - target
    weight_low, weight_high, last = at_low, at_high, 0.0
    while high - low > precision * low and at_low < -slack:
        share = weight_low / (weight_low - weight_high)
        middle = low * (high / low) ** min(max(share, 1e-3), 1.0 - 1e-3)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        at_middle = function(middle) - target
        # If one side stays while the other moves twice, plain secant steps would be slow.
        stays = 0.5 if at_middle * last > 0.0 else 1.0
        if at_middle <= 0.0:
            low, at_low, weight_low, weight_high = middle, at_middle, at_middle, stays * weight_high
        else:
            high, weight_high, weight_low = middle, at_middle, stays * weight_low
        last = at_middle
    return low


def bisected(holds: Callable[[float], bool], low: float, high: float, steps: int) -> tuple[float, float]:
    """Halve an interval with a condition that holds at its low end and fails at its high end."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def least_at(cost: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    """Return approximately the minimiser, within an interval, of a function with one minimum."""
    from scipy.optimize import minimize_scalar  # takes longer to import than all of dpfast.privacy

    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": tolerance}).x)


def up(exact: Fraction) -> float:
    """Return the smallest float that is at least a nonnegative rational; inf beyond the largest float."""
    return _ratio_up(exact.numerator, exact.denominator)


def _ratio_up(above: int, below: int) -> float:
    try:
        value = above / below  # of integers correctly rounded, however long they are
    except OverflowError:
        return math.inf
    numerator, denominator = value.as_integer_ratio()
    return value if numerator * below >= above * denominator else math.nextafter(value, math.inf)


def down(exact: Fraction) -> float:
    """Return the largest float that is at most a nonnegative rational."""
    value = up(exact)
    return value if math.isfinite(value) and Fraction(value) == exact else math.nextafter(value, 0.0)


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least a nonnegative rational."""
    return sqrt_ratio_up(exact.numerator, exact.denominator)


def sqrt_ratio_up(above: int, below: int) -> float:
    """Return the smallest float whose square is at least a nonnegative quotient of integers."""
    if above == 0:
        return 0.0
    # Scaled so that the integer root keeps more than 53 bits and no intermediate leaves the range of floats.
    shift = 2 * ((128 - above.bit_length() + below.bit_length()) // 2)
    root = math.isqrt(-(-(above << max(shift, 0)) // (below << max(-shift, 0))) - 1) + 1
    value = _ratio_up(root << max(-shift // 2, 0), 1 << max(shift // 2, 0))
    lower = math.nextafter(value, 0.0)
    numerator, denominator = lower.as_integer_ratio()
    return lower if numerator**2 * below >= above * denominator**2 else value


def sqrt_down(exact: Fraction) -> float:
    """Return the largest float whose square is at most a nonnegative rational."""
    root = sqrt_up(exact)
    return root if Fraction(root) ** 2 == exact else math.nextafter(root, 0.0)


def quotient_up(**numbers: float) -> float:
    """Return the first number over the second (possibly infinite), rounded up; the names are for error messages."""
    (above, size), (below, bound) = numbers.items()
    if type(bound) is not float or not bound > 0.0:  # most are told without a call
        bound = check.positive_or_inf(below, bound)
    if type(size) is not float or not 0.0 < size < math.inf:
        size = check.positive(above, size)
    if bound == math.inf:
        return 0.0
    (numerator, unit), (denominator, unit_below) = size.as_integer_ratio(), bound.as_integer_ratio()
    quotient = _ratio_up(numerator * unit_below, unit * denominator)
    if quotient == math.inf:
        raise ValueError(f"{above}/{below} is beyond the largest float")
    return quotient
