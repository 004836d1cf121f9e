"""Tools of the solvers: checked arrays, threads for large batches, and bounds on rounding errors.

Many small problems are solved at a time, in threads if there are enough. Bounds computed in double arithmetic have
margins for rounding. Vectors in need of more precision are sums of two rows: arithmetic in twice the working precision,
as in kernels/pairs.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads
from dpfast.kernels.columns import in_c_order

Number = TypeVar("Number", float, FloatArray)

UNIT = 2.0**-53
# More than the rounding errors of the few double operations on positive numbers that a bound takes.
ROUND_UP = 1.0 + 2.0**-40
# The same for one or two operations, if privacy is calibrated by their result.
ROUND_UP_ONE = 1.0 + 2.0**-48

_ENTRIES_PER_THREAD = 20_000  # some 0.1 ms of one core: below, starting a thread costs more than it brings
_ENTRIES_PER_RANGE = 4_000_000  # some 50 ms of one core: how long an interrupt waits


def finite_array(name: str, values: Any, dimensions: tuple[int, ...], *, empty: bool = False) -> FloatArray:
    """Return a contiguous float64 array of finite entries with one of the given numbers of dimensions."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in dimensions or (array.size == 0 and not empty):
        accepted = " or ".join(map(str, dimensions)) + " dimensions" + ("" if empty else " and at least one entry")
        raise ValueError(f"{name} must have {accepted}, got shape {array.shape}")
    array = in_c_order(array, np.float64)
    if not np.logical_and.reduce(np.isfinite(array), axis=None):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def in_ranges(n: int, size: int, n_threads: int | None, work: Callable[[int, int], None]) -> None:
    """Call work(start, stop) for ranges that cover n problems of `size` entries, in threads if there are enough."""
    threads = resolve_n_threads(n_threads) if n_threads is not None or n > 1 else 1
    threads = max(1, min(threads, n * size // _ENTRIES_PER_THREAD))
    ranges = RowRanges(n, max(1, min(_ENTRIES_PER_RANGE // size, -(-n // (4 * threads)))))

    def task() -> None:
        for start, stop in ranges:
            work(start, stop)

    run_in_threads([task] * threads, ranges.stop)


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
    """Return the sum, and its rounding error (Knuth)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def exact_product(a: FloatArray | float, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the product, and its rounding error (Dekker)."""
    a_high, b_high = (134217729.0 * x - (134217729.0 * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.asarray(product), np.asarray(rest)
