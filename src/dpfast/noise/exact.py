"""The exact decision of a draw: a uniform variable revealed bit by bit against rigorous bounds of a tail probability.

A symmetric law is drawn as a sign and a magnitude z, with z > x exactly when p < tail(x) for one uniform p in [0, 1).
So the grid cell of a draw depends on p and on the tail at the cells' boundaries. It is found without ever inverting the
tail: bounds of tail(x) are sharpened and bits of p revealed until they part (docs/proofs/noise.md).

Bounds are enclosures of real numbers in decimal arithmetic of any precision. Python's decimal rounds the four
operations in the requested direction, and the square root, exponential and logarithm correctly. So an interval with its
ends rounded outwards contains the real number it stands for, whatever the processor's own functions do. The
series of the normal tail is summed in integers, each term rounded down and up. Only two cases use this arithmetic: the
rare draws that double arithmetic does not decide, and the tables of the discrete Gaussian.
"""

from __future__ import annotations

import decimal
import functools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

#: Bits to which bounds are computed beyond those revealed: one decision in 2**30 needs another round for want of them.
_GUARD_BITS = 32
_HALF = Fraction(1, 2)
_ONE, _NARROW = Decimal(1), Decimal("1e-9")
_BELOW_THE_LAST_BIT = (0, 1)

#: Integers (low, high) with low <= tail(x) * 2**bits <= high, for x >= 0, as (x, bits) -> (low, high).
Tail = Callable[[Fraction, int], tuple[int, int]]

# All fields of a context: a missing one would be taken from the process, where a caller may change it. For the same
# reason no operator of Decimal is used, except comparisons: operators round, and trap, as the thread's context says.
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
    """Return the unit of the last of that many digits of 1."""
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
        if type(value) is int and greatest is None:
            low, high = (context.plus(Decimal(value)) for context in contexts(digits))
            return cls(low, high, digits)
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
        if self.low >= 0 and other.low >= 0:  # ends grow with ends
            down, up = contexts(self.digits)
            return Interval(down.multiply(self.low, other.low), up.multiply(self.high, other.high), self.digits)
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
        """Enclose the exponential; one call of decimal's is enough for ends that are close to each other."""
        down, up = contexts(self.digits)
        # decimal rounds exp and ln to nearest whatever the context says: one unit outwards contains the true value.
        least, length = down.exp(self.low), up.subtract(self.high, self.low)
        if length < _NARROW:
            # exp(low + h) <= exp(low) / (1 - h), for 0 <= h < 1.
            most = up.divide(up.next_plus(least), down.subtract(_ONE, length))
        else:
            most = up.next_plus(up.exp(self.high))
        return Interval(down.next_minus(least), most, self.digits)

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
    # Beyond power 8 the terms shrink and alternate, so the truncation error is smaller than the last term.
    rest = Interval(small.copy_negate(), small, digits)
    return total + rest


@dataclass
class LazyUniform:
    """A uniform variable on [0, 1) whose first `n_bits` digits, read as an integer, are `prefix`; `more` gives 64."""

    prefix: int
    n_bits: int
    more: Callable[[], int]

    def reveal(self) -> None:
        """Reveal 64 more digits."""
        self.prefix = self.prefix << 64 | self.more()
        self.n_bits += 64

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Return the dyadic interval [low, high) known to hold the variable."""
        unit = 1 << self.n_bits
        return Fraction(self.prefix, unit), Fraction(self.prefix + 1, unit)

    def below(self, bound: Callable[[int], tuple[int, int]]) -> bool:
        """Whether the variable is less than a real number, known by its bounds as integers at any number of bits."""
        while True:
            bits = self.n_bits + _GUARD_BITS
            low, high = bound(bits)
            if (self.prefix + 1) << _GUARD_BITS <= low:
                return True
            if self.prefix << _GUARD_BITS >= high:
                return False
            self.reveal()


def digits_for(bits: int) -> int:
    """Decimal digits that hold `bits` bits, with some to spare for the roundings on the way."""
    return int(bits * 0.30103) + 12


def exponential_tail(x: Fraction, bits: int) -> tuple[int, int]:
    """Bound exp(-x): the tail of the magnitude of a standard Laplace variable."""
    if x > bits:
        return _BELOW_THE_LAST_BIT
    # The absolute error of the argument is the relative error of the result, hence digits for its whole part.
    digits = digits_for(bits) + len(str(int(x)))
    return (-Interval.of(x, digits)).exp().scaled(bits)


def gaussian_tail(x: Fraction, bits: int) -> tuple[int, int]:
    """Bound 2 Q(x), Q the upper tail of the standard normal law: the tail of the half-normal magnitude.

    2 Q(x) = 1 - sqrt(2/pi) x S, with S the sum over n >= 0 of (-u)^n / (n! (2n+1)) and u = x^2/2 (Abramowitz and Stegun
    7.1.5). No term is above e^u, and as many bits more as that has are kept.
    """
    above, below = x.numerator, x.denominator
    square, unit = above * above, 2 * below * below
    if square > bits * unit:
        # 2 Q(x) <= exp(-x^2/2), and the series would take x^2 terms.
        return _BELOW_THE_LAST_BIT
    places = bits + 24 + 3 * square // (2 * unit)
    places += -places % 32
    least, most = _density_times_sum((square << places) // unit, places)
    shift = 2 * places - bits
    return (1 << bits) + (-most * above // below >> shift), (1 << bits) - (least * above // below >> shift)


def _density_times_sum(u: int, places: int) -> tuple[int, int]:
    """Bound sqrt(2/pi) S, in units of 4**-places: `u` is that of S, in units of 2**-places, rounded down."""
    low = high = low_term = high_term = 1 << places
    n = 0
    while high_term > 1:
        n += 1
        low_term = (low_term * u >> places) // n
        high_term = -((-high_term * (u + 1) >> places) // n)
        least, most = low_term // (2 * n + 1), -(-high_term // (2 * n + 1))
        low, high = (low - most, high - least) if n % 2 else (low + least, high + most)
    # No u^n / n! is below 1 before n is above u. From here terms shrink and alternate: the rest is less than the last.
    least_density, most_density = _largest_density(places)
    return least_density * (low - high_term), most_density * (high + high_term)


@functools.lru_cache(maxsize=64)
def _largest_density(places: int) -> tuple[int, int]:
    """Bound the density of the half-normal law at 0, the root of 2/pi, in units of 2**-places."""
    digits = digits_for(places)
    return (Interval.of(2, digits) / pi(digits)).sqrt().scaled(places)


def gaussian_magnitude(p: float) -> float:
    """Return roughly the x with 2 Q(x) = p, to start the search from."""
    return -statistics.NormalDist().inv_cdf(p / 2)


def exponential_magnitude(p: float) -> float:
    """Return roughly the x with exp(-x) = p."""
    return -math.log(p)


def decide_offset(
    word: int,
    more: Callable[[], int],
    fraction: Fraction,
    steps: Fraction,
    tail: Tail,
    magnitude: Callable[[float], float],
) -> int:
    """Return the integer nearest fraction + sign * steps * z, exactly.

    `word` is the sign and the first 63 digits of p, of which `more` gives 64 a call; `magnitude` is the inverse of the
    law's tail, roughly: a poor one costs time only.
    """
    negative = bool(word >> 63)
    prefix = word & ((1 << 63) - 1)
    p = LazyUniform(prefix, 63, more)

    def beyond(cell: int) -> bool:
        """Whether the draw lies above the upper boundary of a cell."""
        x = (cell + _HALF - fraction) / steps
        if negative:
            return x < 0 and not p.below(lambda bits: tail(-x, bits))
        return x < 0 or p.below(lambda bits: tail(x, bits))

    guess = float(steps) * magnitude((prefix + 0.5) * 2.0**-63)
    return _search(beyond, math.floor(float(fraction) + (-guess if negative else guess)))


def _search(beyond: Callable[[int], bool], start: int) -> int:
    """Return the least cell that is not left behind, by doubling steps from `start` and bisection."""
    if beyond(start):
        low, high, step = start, start + 1, 1
        while beyond(high):
            low, high, step = high, high + 2 * step, 2 * step
    else:
        low, high, step = start - 1, start, 1
        while not beyond(low):
            low, high, step = low - 2 * step, low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if beyond(middle) else (low, middle)
    return high
