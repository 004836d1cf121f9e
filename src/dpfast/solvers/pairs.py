"""What rounding leaves: margins for bounds that double arithmetic computes, and vectors that are sums of two rows.

The second kind is arithmetic in twice the working precision, as in kernels/pairs.h.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dpfast._arrays import FloatArray

Number = TypeVar("Number", float, FloatArray)

UNIT = 2.0**-53
# More than the rounding errors of the few double operations on positive numbers that a bound takes.
ROUND_UP = 1.0 + 2.0**-40
# The same for one or two operations, where privacy is calibrated by what comes out.
ROUND_UP_ONE = 1.0 + 2.0**-48


def in_two_rows(x: FloatArray) -> FloatArray:
    """Return x and zeros."""
    return np.stack([x, np.zeros_like(x)])


def normalised(high: FloatArray, low: FloatArray) -> FloatArray:
    """Return the same sum, its second row within rounding of the first (Knuth's exact sum)."""
    return np.stack(exact_sum(high, low))


def sum_of_pairs(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of two vectors that are sums of two rows each, as the kernels' pairs are added."""
    high, low = normalised(a[0], b[0]), normalised(a[1], b[1])
    first = normalised(high[0], high[1] + low[0])
    return normalised(first[0], low[1] + first[1])


def exact_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """Return the sum, and what rounding took from it (Knuth)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def exact_product(a: FloatArray | float, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the product, and what rounding took from it (Dekker)."""
    a_high, b_high = (134217729.0 * x - (134217729.0 * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.asarray(product), np.asarray(rest)
