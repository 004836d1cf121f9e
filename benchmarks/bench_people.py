"""People who own several rows, against the plain Gram of the same rows and against a loop over people in NumPy.

asv runs it at a tenth of the rows. ``python -m benchmarks.bench_people`` prints the whole table at full size.
"""

import itertools

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import median_ratio, sized
from dpfast.noise import SecureSource, sample_without_replacement
from dpfast.statistics import gram

SIZES = [(sized(n), d) for n, d in [(1_000_000, 20), (200_000, 100), (40_000, 500)]]
ROWS_EACH = 20
N_OUTCOMES = 5


def clipped_by_hand(X, Y, starts, bound_xx):
    """Sum each person's block, scaled onto a bound, as one would write it in NumPy for consecutive rows."""
    xx, xy = np.zeros((X.shape[1],) * 2), np.zeros((X.shape[1], Y.shape[1]))
    for start, stop in itertools.pairwise(starts):
        x, y = X[start:stop], Y[start:stop]
        block = x.T @ x
        factor = min(1.0, bound_xx / np.linalg.norm(block))
        xx += factor * block
        xy += factor * (x.T @ y)
    return xx, xy


def cases(n_rows, n_features, n_threads):
    """Name to (ours, theirs): plain Gram over ours, but for the last."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, n_features)), rng.standard_normal((n_rows, N_OUTCOMES))
    groups = np.repeat(np.arange(n_rows // ROWS_EACH), ROWS_EACH)
    shuffled = rng.permutation(groups)
    shared = {"bound_x": 2 * n_features**0.5, "bound_y": 2 * N_OUTCOMES**0.5, "n_threads": n_threads}
    # Norms of people's blocks lie closely about this: half of them are clipped.
    typical = float(np.linalg.norm(X[:ROWS_EACH].T @ X[:ROWS_EACH]))

    def plain():
        return gram(X, Y, **shared)

    def grouped(ids, **bounds):
        return lambda: gram(X, Y, **shared, groups=ids, max_rows=ROWS_EACH, **bounds)

    starts = np.arange(0, n_rows + 1, ROWS_EACH)
    return {
        "sorted": (grouped(groups), plain),
        "shuffled": (grouped(shuffled), plain),
        "block bound, nobody clipped": (grouped(groups, bound_xx=2 * typical), plain),
        "block bound, half clipped": (grouped(groups, bound_xx=typical), plain),
        "block bound, shuffled": (grouped(shuffled, bound_xx=2 * typical), plain),
        "half clipped against numpy": (
            grouped(groups, bound_xx=typical),
            lambda: clipped_by_hand(X, Y, starts, typical),
        ),
    }


class AgainstPlainGram:
    params = ([(n_rows // 10, n_features) for n_rows, n_features in SIZES], [1, 2])
    param_names = ("size", "n_threads")
    timeout = 300

    def setup(self, size, n_threads):
        self.limits = threadpool_limits(n_threads)
        self.cases = cases(*size, n_threads)

    def teardown(self, size, n_threads):
        self.limits.restore_original_limits()

    def track_ratio_sorted(self, size, n_threads):
        return median_ratio(*self.cases["sorted"], rounds=5)

    def track_ratio_shuffled(self, size, n_threads):
        return median_ratio(*self.cases["shuffled"], rounds=5)

    def track_ratio_block_bound(self, size, n_threads):
        return median_ratio(*self.cases["block bound, nobody clipped"], rounds=5)

    def track_ratio_half_clipped_against_numpy(self, size, n_threads):
        return median_ratio(*self.cases["half clipped against numpy"], rounds=3)


class Sample:
    """A secret sample against NumPy's insecure one, which permutes all rows."""

    params = ([0.01, 0.1, 0.5],)
    param_names = ("share",)
    n_rows = sized(1_000_000)

    def setup(self, share):
        self.n_sampled = int(share * self.n_rows)
        self.rng = np.random.default_rng(0)

    def ours(self):
        sample_without_replacement(self.n_rows, self.n_sampled, SecureSource())

    def time_sample(self, share):
        self.ours()

    def peakmem_sample(self, share):
        self.ours()

    def track_ratio_numpy(self, share):
        return median_ratio(
            self.ours, lambda: np.sort(self.rng.choice(self.n_rows, self.n_sampled, replace=False)), rounds=5
        )


def main():
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            for size in SIZES:
                table = cases(*size, n_threads)
                ratios = (f"{name} {median_ratio(*pair, 7):.2f}" for name, pair in table.items())
                print(f"{n_threads} thread(s) {size}: {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
