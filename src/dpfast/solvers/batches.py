"""Many small problems at a time: checked arrays of them, and threads where they pay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads
from dpfast.kernels.columns import in_c_order

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
    if not np.isfinite(array).all():
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
