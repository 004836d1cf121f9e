"""Arrays of exact 128-bit fixed-point numbers: what the sums of grid-rounded rows are kept in.

An element is the integer ``high * 2**64 + low`` (two's complement, ``high`` signed and ``low`` unsigned) times the
public power of two ``2**exponent``. Sums over 1e9 rows on a grid of 2**-22 need 75 bits, so 64 do not suffice, and a
floating-point total would depend on the order of the additions, which would leave a gap in every sensitivity bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast.kernels import limbs
from dpfast.kernels.columns import in_c_order

_WORD = 1 << 64


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Exact values ``(high * 2**64 + low) * 2**exponent``; both limbs, the upper one signed, have one shape."""

    high: NDArray[np.int64]
    low: NDArray[np.uint64]
    exponent: int

    @classmethod
    def zeros(cls, shape: tuple[int, ...], exponent: int) -> FixedPoint:
        """Exact zeros."""
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.uint64), exponent)

    @classmethod
    def from_integers(cls, values: object, exponent: int) -> FixedPoint:
        """From anything NumPy reads as an array of (Python or int64) integers."""
        if isinstance(values, np.ndarray) and values.dtype == np.int64:
            return cls(values >> 63, values.astype(np.uint64), exponent)
        exact = np.asarray(values, dtype=object)
        high = np.empty(exact.shape, np.int64)
        low = np.empty(exact.shape, np.uint64)
        for index, value in np.ndenumerate(exact):
            high[index], low[index] = divmod(int(value), _WORD)
        return cls(high, low, exponent)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of either limb."""
        return self.high.shape

    def integer(self, index: int | tuple[int, ...]) -> int:
        """Return one element as a Python integer, in units of ``2**exponent``."""
        return int(self.high[index]) * _WORD + int(self.low[index])

    def __getitem__(self, index: Any) -> FixedPoint:
        """Return the elements that NumPy indexing picks."""
        high, low = np.asarray(self.high[index]), np.asarray(self.low[index])
        return FixedPoint(high, low, self.exponent)

    def in_a_row(self) -> FixedPoint:
        """Return all elements in one row, as kernels read them."""
        return FixedPoint(in_c_order(self.high).ravel(), in_c_order(self.low).ravel(), self.exponent)

    def followed_by(self, integer: int) -> FixedPoint:
        """Return all elements in one row, and after them an integer in the same units."""
        size = self.high.size
        high, low = np.empty(size + 1, np.int64), np.empty(size + 1, np.uint64)
        high[:size], low[:size] = self.high.ravel(), self.low.ravel()
        high[size], low[size] = divmod(integer, _WORD)
        return FixedPoint(high, low, self.exponent)

    def in_units(self, exponent: int) -> FixedPoint:
        """Return the same values on a finer grid; OverflowError if one leaves 128 bits."""
        if exponent == self.exponent:
            return self
        shift, largest = self.exponent - exponent, 1 << 127
        if shift < 0:
            raise ValueError(f"a grid of exponent {exponent} is coarser than one of {self.exponent}")
        integers = [self.integer(index) << shift for index in np.ndindex(self.shape)]
        if any(not -largest <= integer < largest for integer in integers):
            raise OverflowError("an exact sum has left the range of 128 bits")
        flat = np.empty(len(integers), object)
        flat[:] = integers
        return FixedPoint.from_integers(flat.reshape(self.shape), exponent)

    def __add__(self, other: FixedPoint) -> FixedPoint:
        """Exact sum of two arrays on the same grid; OverflowError if it leaves 128 bits."""
        if not isinstance(other, FixedPoint):
            return NotImplemented
        if other.exponent != self.exponent:
            raise ValueError(f"exponents differ: {self.exponent} and {other.exponent}")
        shape = self.high.shape
        if other.high.shape != shape:
            raise ValueError(f"shapes differ: {shape} and {other.shape}")
        high, low = np.empty(shape, np.int64), np.empty(shape, np.uint64)
        parts = (self.high, self.low, other.high, other.low, high, low)
        limbs.add(*(in_c_order(part).reshape(-1) for part in parts))
        return FixedPoint(high, low, self.exponent)

    def __eq__(self, other: object) -> bool:
        """Whether every element, and the unit, is the same."""
        if not isinstance(other, FixedPoint):
            return NotImplemented
        return (
            self.exponent == other.exponent
            and np.array_equal(self.high, other.high)
            and np.array_equal(self.low, other.low)
        )

    __hash__ = None  # type: ignore[assignment]

    def to_float64(self) -> NDArray[np.float64]:
        """Return the values rounded to nearest double (ties to even)."""
        values = np.empty(self.high.size)
        limbs.to_float64(in_c_order(self.high).ravel(), in_c_order(self.low).ravel(), values)
        return np.asarray(np.ldexp(values, self.exponent).reshape(self.shape))

    def to_float64_pair(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return doubles whose exact sum is within 2**-106 of each value, relative: rounded values, and remainders.

        For values of fewer than 116 bits.
        """
        rounded = self.to_float64()
        units = np.ldexp(rounded, -self.exponent)
        # Exact, as a remainder is; of a negative number it is the lower limb's negative.
        remainder = np.fmod(np.abs(units), float(_WORD)).astype(np.uint64)
        # What is left fits the lower limb, whose wrap takes care of signs.
        left = np.where(units < 0.0, self.low + remainder, self.low - remainder).view(np.int64).astype(np.float64)
        return rounded, np.ldexp(left, self.exponent)
