"""Sums over sparse tables beside dense ones: seconds and memory on one thread.

python -m benchmarks.sparse_tables
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from scipy import sparse

from dpfast.statistics import gram

#: Rows, features, and the share of entries that are not zero.
TABLES = ((400_000, 50, 0.05), (100_000, 200, 0.02), (20_000, 1000, 0.01))
REPEATS = 3


def seconds(call: Callable[[], object]) -> float:
    """Return the least of some times."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)


def megabytes(call: Callable[[], object]) -> float:
    """Return the most that is allocated meanwhile."""
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    for n, d, density in TABLES:
        rows = sparse.random_array((n, d), density=density, rng=rng, format="csr")
        dense = rows.toarray()
        exact, least = gram(dense, bound_x=1.0), seconds(lambda: gram(dense, bound_x=1.0, n_threads=1))  # noqa: B023
        held = (rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes) / 2**20
        print(
            f"{n:,} rows of {d}, {density:.0%} not zero: "
            f"{dense.nbytes / 2**20:.0f} MB dense, {held:.0f} MB sparse; {least:.3f} s dense"
        )
        for kind in ("csr", "csc", "coo"):
            table = rows.asformat(kind)
            assert gram(table, bound_x=1.0) == exact
            ratio = seconds(lambda: gram(table, bound_x=1.0, n_threads=1)) / least  # noqa: B023
            room = megabytes(lambda: gram(table, bound_x=1.0, n_threads=1))  # noqa: B023
            print(f"  {kind}: {ratio:.2f} times the time, {room:.0f} MB of room")


if __name__ == "__main__":
    main()
