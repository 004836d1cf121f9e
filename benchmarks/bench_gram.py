"""The exact Gram against what a user would write in NumPy, at the same number of threads.

asv runs it at a fifth of the rows. ``python -m benchmarks.bench_gram [--cpu]`` prints the whole table at full size;
--cpu compares processor seconds, for one thread on a busy machine.
"""

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import median_ratio, sized
from dpfast.statistics import gram

SIZES = [(sized(n), d) for n, d in [(1_000_000, 20), (200_000, 100), (40_000, 500), (20_000, 1000)]]
N_OUTCOMES = 5


def clip(X, bound):
    """Rows scaled onto the bound, as one would write it in NumPy."""
    return X * np.minimum(1.0, bound / np.linalg.norm(X, axis=1))[:, np.newaxis]


def cases(n_rows, n_features, n_threads):
    """Name to (ours, theirs). No row is beyond the bound, except in "half clipped"."""
    rng = np.random.default_rng(0)
    X, Y = rng.random((n_rows, n_features)), rng.random((n_rows, N_OUTCOMES))
    X32 = X.astype(np.float32)
    rows = rng.permutation(n_rows)[: n_rows // 10]
    bound_x, bound_y = n_features**0.5, N_OUTCOMES**0.5
    median_norm = (n_features / 3) ** 0.5

    def ours(table, **arguments):
        moments = gram(table, n_threads=n_threads, **{"bound_x": bound_x} | arguments)
        return moments.xx, moments.xy

    def product(A):
        return A.T @ A

    both = {"Y": Y, "bound_y": bound_y}
    return {
        "float64": (lambda: ours(X), lambda: product(X)),
        "float32": (lambda: ours(X32), lambda: product(X32.astype(np.float64))),
        "with outcomes": (lambda: ours(X, **both), lambda: (X.T @ X, X.T @ Y)),
        "against clip": (lambda: ours(X), lambda: product(clip(X, bound_x))),
        "half clipped": (lambda: ours(X, bound_x=median_norm), lambda: product(clip(X, median_norm))),
        "subset": (lambda: ours(X, rows=rows), lambda: product(clip(X[rows], bound_x))),
        "subset against reading it": (lambda: ours(X, rows=rows), lambda: X[rows]),
        "subset float32": (lambda: ours(X32, rows=rows), lambda: product(clip(X32[rows].astype(float), bound_x))),
    }


def ratio(ours, theirs, rounds, clock=time.perf_counter):
    # BLAS's idle threads spin for a while after a call: without a pause each side would pay for the other's.
    return median_ratio(ours, theirs, rounds, clock=clock, pause=0.1)


class AgainstNumpy:
    params = ([(n_rows // 5, n_features) for n_rows, n_features in SIZES], [1, 2])
    param_names = ("size", "n_threads")
    timeout = 300

    def setup(self, size, n_threads):
        self.limits = threadpool_limits(n_threads)
        self.cases = cases(*size, n_threads)

    def teardown(self, size, n_threads):
        self.limits.restore_original_limits()

    def track_ratio_float64(self, size, n_threads):
        return ratio(*self.cases["float64"], rounds=5)

    def track_ratio_float32(self, size, n_threads):
        return ratio(*self.cases["float32"], rounds=5)

    def track_ratio_with_outcomes(self, size, n_threads):
        return ratio(*self.cases["with outcomes"], rounds=5)

    def track_ratio_half_clipped(self, size, n_threads):
        return ratio(*self.cases["half clipped"], rounds=5)

    def track_ratio_subset(self, size, n_threads):
        return ratio(*self.cases["subset"], rounds=5)


class Memory:
    """Rows that share their memory: what is left is what the sums themselves need."""

    params = ([10_000, sized(1_000_000)], [20, 500])
    param_names = ("n_rows", "n_features")

    def setup(self, n_rows, n_features):
        self.X = np.broadcast_to(np.ones((1, n_features)), (n_rows if n_features == 20 else n_rows // 50, n_features))

    def peakmem_gram(self, n_rows, n_features):
        gram(self.X, bound_x=1.0, n_threads=2)


def main():
    clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
    for n_threads in (1,) if "--cpu" in sys.argv else (1, 2):
        with threadpool_limits(n_threads):
            for size in SIZES:
                table = cases(*size, n_threads)
                ratios = (f"{name} {ratio(*pair, 9, clock):.2f}" for name, pair in table.items())
                print(f"{n_threads} thread(s) {size}: {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
