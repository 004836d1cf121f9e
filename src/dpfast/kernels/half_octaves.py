"""Sizes of numbers by half-octaves, each sqrt(2) times the one before: public bins for counts of people.

A bin is told by an integer code. The sizes up to 2**(first/2) have the code 0, those above 2**((first + k - 1)/2) up to
2**((first + k)/2) the code k, and the last code, last - first, has all that is larger too. The code of a negative
number is negative, so that codes keep the order of numbers. An edge halfway between two powers of two is the double
that is nearest to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HalfOctaves:
    """Which half-octaves are told apart."""

    first: int = -80
    last: int = 80

    def __post_init__(self) -> None:
        # Where squares of sizes neither overflow nor lose bits.
        if not -800 <= self.first < self.last <= 800:
            raise ValueError(f"first and last must be in order, from -800 to 800, got {self.first} and {self.last}")

    @property
    def largest_code(self) -> int:
        """Code of the largest sizes."""
        return self.last - self.first

    @property
    def n_bins(self) -> int:
        """Number of codes, negative ones included: bin i is that of the code i - largest_code."""
        return 2 * self.largest_code + 1

    def size(self, code: int) -> float:
        """Return the largest size with a code; the last code has no largest."""
        whole, half = divmod(self.first + code, 2)
        return math.ldexp(math.sqrt(2.0) if half else 1.0, whole)

    @property
    def sizes(self) -> Floats:
        """The largest size with each code that is not negative."""
        whole, half = np.divmod(np.arange(self.first, self.last + 1), 2)
        return np.ldexp(np.where(half, math.sqrt(2.0), 1.0), whole)

    def limits(self) -> tuple[Floats, Floats]:
        """Return the least and the largest number of every bin; 0 stands for all in the middle one."""
        nearer, farther = self.sizes[:-1], self.sizes[1:]
        low = np.concatenate([-farther[::-1], [0.0], nearer])
        return low, np.concatenate([-nearer[::-1], [0.0], farther])
