"""Sparse regression: scoring supports against np.linalg.lstsq on each, picking, and whole fits.

``python -m benchmarks.bench_sparse_regression`` prints all figures: times and ratios of scoring, and how often both
selectors recover the support against the number of people, beside Theorem 8's bound.
"""

import itertools
import math
import statistics
import sys
import time

import numpy as np
from scipy.special import ndtr

from benchmarks.timing import fastest_ratio, sized
from dpfast import SparseRegression
from dpfast.noise import ExponentialPick, SecureSource
from dpfast.papers.sparse_regression import recovery_probability
from dpfast.solvers import SupportScores

SIZES = [(60, 3), (50, 5)]


def table(n, p, s, seed=0, correlation=0.0):
    """Entries in [-1, 1], coefficients of 0.5 to 1 on a random support, errors of 0.2.

    Entries are uniform; with a correlation, each is the uniform quantile of a normal one that all pairs share it in.
    """
    rng = np.random.default_rng(seed)
    if correlation == 0.0:
        x = rng.uniform(-1.0, 1.0, size=(n, p))
    else:
        shared = math.sqrt(correlation) * rng.normal(size=(n, 1))
        x = 2.0 * ndtr(shared + math.sqrt(1.0 - correlation) * rng.normal(size=(n, p))) - 1.0
    support = np.sort(rng.choice(p, s, replace=False))
    coefficients = np.zeros(p)
    coefficients[support] = rng.choice([-1.0, 1.0], s) * rng.uniform(0.5, 1.0, s)
    y = x @ coefficients + 0.2 * rng.normal(size=n)
    return x, y, coefficients


def scores_of(n, p, s, scale=1.0):
    x, y, _ = table(n, p, s)
    return x, scale * y, SupportScores(x.T @ x, scale * x.T @ y, s, ridge=1e-6, tolerance=1e-4)


def seconds_a_support(scores, n_threads):
    start = time.perf_counter()
    n_scored = sum(len(block) for block in scores.blocks(n_threads))
    return (time.perf_counter() - start) / n_scored


def seconds_of_lstsq(a, b, p, s, n_fits):
    """A support, fitted the usual way: to the rows, or to their moments."""
    rng = np.random.default_rng(1)
    supports = [np.sort(rng.choice(p, s, replace=False)) for _ in range(n_fits)]
    moments = a.shape[0] == p
    start = time.perf_counter()
    for one in supports:
        np.linalg.lstsq(a[np.ix_(one, one)] if moments else a[:, one], b[one] if moments else b, rcond=None)
    return (time.perf_counter() - start) / n_fits


class Scoring:
    params = (SIZES, [1, 2])
    param_names = ("p and s", "n_threads")

    def setup(self, sizes, n_threads):
        self.x, self.y, self.scores = scores_of(1000, *sizes)

    def time_score_all(self, sizes, n_threads):
        seconds_a_support(self.scores, n_threads)

    def track_ratio_to_lstsq_of_moments(self, sizes, n_threads):
        xx, xy = self.x.T @ self.x, self.x.T @ self.y
        ratios = [seconds_of_lstsq(xx, xy, *sizes, 500) / seconds_a_support(self.scores, n_threads) for _ in range(5)]
        return statistics.median(ratios)


class Picking:
    def setup(self):
        self.block = np.random.default_rng(0).exponential(size=1 << 17)

    def time_pick_of_131072(self):
        pick = ExponentialPick(1.0, SecureSource())
        pick.update(self.block)


class Fitting:
    params = ("exponential", "sample_aggregate", "pursuit")
    param_names = ("selector",)

    def setup(self, selector):
        self.x, self.y, _ = table(40_000, 60, 3)

    def time_fit(self, selector):
        SparseRegression(2.0, 1e-6, n_nonzero=3, selector=selector).fit(self.x, self.y)


class Pursuing:
    """Three of many features: a pass over the table each, and the fit of those chosen."""

    def setup(self):
        self.x, self.y, _ = table(sized(100_000), 200, 3)
        self.model = SparseRegression(1.0, 1e-6, n_nonzero=3, selector="pursuit")

    def time_fit(self):
        self.model.fit(self.x, self.y)

    def track_times_of_correlations(self):
        """Over three products of the table with the outcomes."""

        def products():
            for _ in range(3):
                self.x.T @ self.y

        return 1.0 / fastest_ratio(self.time_fit, products, 3)


def print_scoring():
    print("scoring: microseconds a support on two threads; times np.linalg.lstsq on 1,000 rows, and on s by s moments")
    for (p, s), scale in itertools.product(SIZES, (1.0, 4.0)):
        x, y, scores = scores_of(1000, p, s, scale)
        of_rows, of_moments, ours = [], [], []
        for _ in range(5):
            ours.append(seconds_a_support(scores, 2))
            of_rows.append(seconds_of_lstsq(x, y, p, s, 200) / ours[-1])
            of_moments.append(seconds_of_lstsq(x.T @ x, x.T @ y, p, s, 500) / ours[-1])
        total = statistics.median(ours) * scores.n_supports
        print(
            f"C({p}, {s}) = {scores.n_supports:,}, outcomes times {scale:g}: {1e6 * statistics.median(ours):.3f} us, "
            f"all in {total:.2f} s; {statistics.median(of_rows):.0f}, {statistics.median(of_moments):.0f} times lstsq"
        )


def print_recovery(repeats=10):
    p, s, epsilon = 60, 3, 2.0
    print(f"recovery of the support, p = {p}, s = {s}, epsilon = {epsilon:g} in all, {repeats} runs")
    for n in (500, 1000, 2000, 4000, 10_000, 40_000):
        found = {"exponential": 0, "sample_aggregate": 0, "pursuit": 0}
        for selector, seed in itertools.product(found, range(repeats)):
            x, y, coefficients = table(n, p, s, seed)
            model = SparseRegression(epsilon, 1e-6, n_nonzero=s, selector=selector).fit(x, y)
            found[selector] += bool(np.all(coefficients[model.support_]))
        bound = recovery_probability(n_features=p, n_nonzero=s, epsilon=epsilon / 2, n_blocks=round(math.sqrt(n)))
        print(f"n = {n:6,}: {found}, Theorem 8 at least {bound:.3f}")


if __name__ == "__main__":
    print_scoring()
    print_recovery()
    sys.exit()
