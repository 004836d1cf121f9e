"""Rigorous enclosures of real numbers in decimal arithmetic of any precision.

Python's decimal rounds the four operations as told and the square root, exponential and logarithm correctly, so an
interval whose ends are rounded outwards contains the real number it stands for, whatever the processor's own functions
do. Only the rare draws that double arithmetic does not decide, and the tables of the discrete Gaussian, come here.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

# All that a context has: what is left out would be that of the process, which a caller may change. For the same reason
# no operator of Decimal's is used, but for comparisons: they round, and trap, as the thread's context says.
_LIMITS = {
    "Emin": decimal.MIN_EMIN,
    "Emax": decimal.MAX_EMAX,
    "capitals": 1,
    "clamp": 0,
    "flags": [],
    "traps": [decimal.InvalidOperation],
}


@functools.lru_cache(maxsize=64)
def contexts(digits: int) -> tuple[decimal.Context, decimal.Context]:
    """Return the contexts of `digits` digits that round down and up."""
    return (
        decimal.Context(prec=digits, rounding=decimal.ROUND_FLOOR, **_LIMITS),  # type: ignore[arg-type]
        decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING, **_LIMITS),  # type: ignore[arg-type]
    )


def negligible(digits: int) -> Decimal:
    """Return the unit of the last of so many digits of 1."""
    return contexts(digits)[0].power(10, -digits)


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, computed with `digits` digits."""

    low: Decimal
    high: Decimal
    digits: int

    @classmethod
    def of(cls, value: Fraction | int, digits: int, greatest: Fraction | None = None) -> Interval:
        """Enclose a rational number, or all from it to the greatest."""
        ends = Fraction(value), Fraction(value) if greatest is None else greatest
        low, high = (
            context.divide(Decimal(end.numerator), Decimal(end.denominator))
            for context, end in zip(contexts(digits), ends, strict=True)
        )
        return cls(low, high, digits)

    def __add__(self, other: Interval) -> Interval:
        down, up = contexts(self.digits)
        return Interval(down.add(self.low, other.low), up.add(self.high, other.high), self.digits)

    def __neg__(self) -> Interval:
        return Interval(self.high.copy_negate(), self.low.copy_negate(), self.digits)

    def __sub__(self, other: Interval) -> Interval:
        return self + (-other)

    def __mul__(self, other: Interval) -> Interval:
        return self._hull(decimal.Context.multiply, other)

    def __truediv__(self, other: Interval) -> Interval:
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor's interval contains zero")
        return self._hull(decimal.Context.divide, other)

    def _hull(self, operation: Callable[[decimal.Context, Decimal, Decimal], Decimal], other: Interval) -> Interval:
        """Enclose an operation that is monotonic in either of its arguments: its extremes are at ends."""
        down, up = contexts(self.digits)
        pairs = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(operation(down, *p) for p in pairs), max(operation(up, *p) for p in pairs), self.digits)

    def exp(self) -> Interval:
        """Enclose the exponential."""
        down, up = contexts(self.digits)
        # decimal rounds exp and ln to nearest whatever the context says: one unit outwards contains the true value.
        return Interval(down.next_minus(down.exp(self.low)), up.next_plus(up.exp(self.high)), self.digits)

    def ln(self) -> Interval:
        """Enclose the natural logarithm of a positive number."""
        down, up = contexts(self.digits)
        return Interval(down.next_minus(down.ln(self.low)), up.next_plus(up.ln(self.high)), self.digits)

    def sqrt(self) -> Interval:
        """Enclose the square root of a number known to be nonnegative."""
        down, up = contexts(self.digits)
        low = down.next_minus(down.sqrt(max(self.low, Decimal(0))))
        return Interval(max(low, Decimal(0)), up.next_plus(up.sqrt(self.high)), self.digits)

    def scaled(self, bits: int) -> tuple[int, int]:
        """Return integers (a, b) with a <= x * 2**bits <= b for every x of the interval."""
        return _floor_scaled(self.low, bits), -_floor_scaled(self.high.copy_negate(), bits)


def _floor_scaled(value: Decimal, bits: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return int((numerator << bits) // denominator)


@functools.lru_cache(maxsize=64)
def pi(digits: int) -> Interval:
    """Enclose pi (Machin's formula, 16 arctan(1/5) - 4 arctan(1/239))."""
    scale: int = 10 ** (digits + 10)

    def arctan_of_inverse(x: int) -> int:
        power = total = scale // x
        n, sign = 1, -1
        while power:
            power //= x * x
            n += 2
            total += sign * (power // n)
            sign = -sign
        return total

    approximate = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)
    # Each term is truncated by less than 2 units, and there are fewer than 2 (digits + 10) of them.
    error = 80 * (digits + 10)
    return Interval.of(Fraction(approximate - error, scale), digits, Fraction(approximate + error, scale))


def cosine(angle: Interval) -> Interval:
    """Enclose the cosine of an angle within [-7, 7] by its Taylor series, which alternates."""
    return _alternating(angle, Interval.of(1, angle.digits), 0)


def sine(angle: Interval) -> Interval:
    """Enclose the sine of an angle within [-7, 7]."""
    return _alternating(angle, angle, 1)


def _alternating(angle: Interval, term: Interval, power: int) -> Interval:
    digits = angle.digits
    square = angle * angle
    square = Interval(max(square.low, Decimal(0)), square.high, digits)
    total = term
    small = negligible(digits)
    while term.low.copy_abs() > small or term.high.copy_abs() > small or power < 8:
        term = -(term * square / Interval.of((power + 1) * (power + 2), digits))
        total = total + term
        power += 2
    # Beyond power 8 the terms shrink and alternate, so what is left out is smaller than the last term.
    rest = Interval(small.copy_negate(), small, digits)
    return total + rest
