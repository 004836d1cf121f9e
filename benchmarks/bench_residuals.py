"""Residual steps against what they must read at least, X once and X @ theta in NumPy, and against the Gram before them.

Alternating in one process; tables of 20 million entries.
"""

import math

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import fastest_ratio, sized
from dpfast import io
from dpfast.statistics import gram
from dpfast.statistics.residuals import ResidualStep, residual_sizes, residual_sums
from dpfast.statistics.rows import RowMap, centred

ENTRIES, BOUND_Y = 100 * sized(200_000), 20.0


class ResidualSteps:
    """Rows held to a norm, or to a box and a norm as well; about one in twenty is clipped."""

    params = (["norm", "box and norm"], [(20, 1), (20, 8), (100, 1)], [1, 2])
    param_names = ("map", "columns and outcomes", "threads")

    def setup(self, name, shape, n_threads):
        d, outcomes = shape
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(ENTRIES // d, d))
        self.theta = rng.normal(size=(d, outcomes))
        Y = self.X @ self.theta + rng.normal(size=(len(self.X), outcomes))
        self.table, self.n_threads, bound = io.open_table(self.X, Y), n_threads, 1.5 * math.sqrt(d)
        self.map_x = RowMap(bound=bound) if name == "norm" else centred(-3.0 * np.ones(d), 3.0 * np.ones(d), bound)[0]
        factor = np.linalg.inv(np.linalg.cholesky(np.eye(d) + 0.1))
        self.plain, self.whitened = (
            ResidualStep(self.theta, self.map_x, RowMap(bound=BOUND_Y * outcomes), whitening)
            for whitening in (None, factor)
        )
        self.clip, self.bound_x = 2.0 * math.sqrt(d * outcomes), bound

    def _sum(self, step):
        residual_sums(self.table, step, self.clip, n_threads=self.n_threads)

    def _read(self):
        with threadpool_limits(self.n_threads):
            self.X.sum()
            self.X @ (self.theta if self.theta.shape[1] > 1 else self.theta[:, 0])

    def time_sums(self, name, shape, n_threads):
        self._sum(self.plain)

    def track_sums_over_reading(self, name, shape, n_threads):
        return 1.0 / fastest_ratio(lambda: self._sum(self.plain), self._read, 7)

    def track_whitened_sums_over_reading(self, name, shape, n_threads):
        return 1.0 / fastest_ratio(lambda: self._sum(self.whitened), self._read, 7)

    def track_three_whitened_steps_over_the_gram(self, name, shape, n_threads):
        def steps():
            for _ in range(3):
                residual_sizes(self.table, self.whitened, (-10, 20), n_threads=self.n_threads)
                self._sum(self.whitened)

        def moments():
            gram(self.table, bound_x=self.bound_x, bound_y=BOUND_Y * self.theta.shape[1], map_x=self.map_x,
                 n_threads=self.n_threads)  # fmt: skip

        return 1.0 / fastest_ratio(steps, moments, 5)


class KeptProducts:
    """Passes of one whitening over wide rows: the third on, which finds products, against one that makes them."""

    params = ([50, 100, 400],)
    param_names = ("columns",)

    def setup(self, d):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(ENTRIES // d // 4, d))
        self.table = io.open_table(X, X @ rng.normal(size=(d, 1)))
        factor = np.linalg.inv(np.linalg.cholesky(np.eye(d) + 0.1))
        bounds = RowMap(bound=1.5 * math.sqrt(d)), RowMap(bound=BOUND_Y)
        self.step, self.kept = ResidualStep(np.zeros((d, 1)), *bounds, factor), []
        for _ in range(3):
            self._sum(self.kept)

    def _sum(self, kept=None):
        residual_sums(self.table, self.step, 1.0, n_threads=1, kept=kept)

    def time_kept(self, d):
        self._sum(self.kept)

    def track_ratio_kept_to_new(self, d):
        return fastest_ratio(lambda: self._sum(self.kept), self._sum, 7)


class LinkedSteps:
    """Slopes of logistic and cross-entropy losses against residuals."""

    params = ([("logistic", 20, 1), ("logistic", 100, 1), ("softmax", 20, 10), ("softmax", 64, 10)],)
    param_names = ("link, columns and outcomes",)

    def setup(self, case):
        link, d, outcomes = case
        rng, bound = np.random.default_rng(0), math.sqrt(d)
        X = rng.normal(size=(ENTRIES // d // 4, d))
        labels = rng.integers(0, max(2, outcomes), len(X))
        Y = 2.0 * labels[:, None] - 1.0 if link == "logistic" else np.eye(outcomes)[labels]
        self.table, self.clip = io.open_table(X, Y), 0.25 * bound
        maps, theta = (RowMap(bound=bound), RowMap(bound=1.0)), rng.normal(size=(d, outcomes)) / bound
        self.plain = ResidualStep(theta, *maps)
        self.linked = ResidualStep(theta, *maps, link=link)

    def _sum(self, step):
        residual_sums(self.table, step, self.clip, n_threads=1)

    def time_linked_sums(self, case):
        self._sum(self.linked)

    def track_linked_over_plain(self, case):
        return 1.0 / fastest_ratio(lambda: self._sum(self.linked), lambda: self._sum(self.plain), 9)
