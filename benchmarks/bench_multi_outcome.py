"""Whole private fits, beside scikit-learn's fit without privacy; and the cost of importing dpfast."""

import subprocess
import sys
import time

import numpy as np
from sklearn.linear_model import Ridge

from dpfast import MultiOutcomeRidge


class Fit:
    params = ([10_000, 200_000], [20, 100], [1, 100])
    param_names = ("rows", "features", "outcomes")

    def setup(self, rows, features, outcomes):
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1.0, 1.0, size=(rows, features)) / np.sqrt(features)
        self.y = rng.uniform(-1.0, 1.0, size=(rows, outcomes)) / np.sqrt(outcomes)
        self.private = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0)
        self.exact = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky")

    def time_fit(self, rows, features, outcomes):
        self.private.fit(self.x, self.y)

    def peakmem_fit(self, rows, features, outcomes):
        self.private.fit(self.x, self.y)

    def track_ratio_to_ridge_without_privacy(self, rows, features, outcomes):
        """Median of scikit-learn's time over ours, alternating: above 1 the private fit is the faster one."""
        ratios = []
        for _ in range(7):
            start = time.perf_counter()
            self.private.fit(self.x, self.y)
            middle = time.perf_counter()
            self.exact.fit(self.x, self.y)
            ratios.append((time.perf_counter() - middle) / (middle - start))
        return float(np.median(ratios))


class Import:
    def track_seconds_beyond_numpy_and_scipy_linalg(self):
        """Median over seven pairs of fresh processes; the bar is 0.1."""
        base = "import numpy, scipy.linalg"
        return float(np.median([_seconds(f"{base}, dpfast") - _seconds(base) for _ in range(7)]))


def _seconds(code):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start
