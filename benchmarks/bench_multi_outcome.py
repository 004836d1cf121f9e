"""Whole private fits, beside scikit-learn's fit without privacy; and the cost of importing dpfast."""

import subprocess
import sys

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.timing import median_ratio, often, seconds, sized
from dpfast import MultiOutcomeRidge, noise
from dpfast.statistics import gram, sampled_gram


class Fit:
    params = ([10_000, sized(200_000)], [20, 100], [1, 100])
    param_names = ("rows", "features", "outcomes")

    def setup(self, rows, features, outcomes):
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1.0, 1.0, size=(rows, features)) / np.sqrt(features)
        self.y = rng.uniform(-1.0, 1.0, size=(rows, outcomes)) / np.sqrt(outcomes)
        self.private = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, fit_intercept=False)
        self.exact = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky")

    def time_fit(self, rows, features, outcomes):
        self.private.fit(self.x, self.y)

    def peakmem_fit(self, rows, features, outcomes):
        self.private.fit(self.x, self.y)

    def track_ratio_to_ridge_without_privacy(self, rows, features, outcomes):
        """Median of scikit-learn's time over ours, alternating: above 1 the private fit is the faster one."""
        return median_ratio(lambda: self.private.fit(self.x, self.y), lambda: self.exact.fit(self.x, self.y), 7)


class Refined:
    """Residual steps beside moments alone."""

    params = ([sized(1_000_000)], [20])
    param_names = ("rows", "features")
    timeout = 300

    def setup(self, rows, features):
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1.0, 1.0, size=(rows, features)) / np.sqrt(features)
        self.y = self.x.sum(axis=1) / np.sqrt(features) + 0.1 * rng.uniform(-1.0, 1.0, size=rows)
        self.without = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, fit_intercept=False)
        self.refined = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=3, fit_intercept=False)

    def track_ratio_of_three_steps_to_none(self, rows, features):
        """Median time of a fit with three steps over one without, alternating."""
        return median_ratio(lambda: self.without.fit(self.x, self.y), lambda: self.refined.fit(self.x, self.y), 7)


class Subsample:
    """PRIMO's Algorithm 4: X'X of a sample. Its noise and its sampling error are what `plan` says, not timed here."""

    params = (
        [(sized(n), d, k) for n, d, k in [(1_000_000, 20, 1), (200_000, 100, 5), (40_000, 500, 5)]],
        [0.5, 0.1, 0.02],
    )
    param_names = ("size", "sampled")
    timeout = 300

    def setup(self, size, sampled):
        rows, features, outcomes = size
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1.0, 1.0, size=(rows, features)) / np.sqrt(features)
        self.y = rng.uniform(-1.0, 1.0, size=(rows, outcomes)) / np.sqrt(outcomes)
        self.whole = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, fit_intercept=False)
        self.sampled = MultiOutcomeRidge(
            1.0, 1e-6, bound_x=1.0, bound_y=1.0, n_subsample=round(sampled * rows), fit_intercept=False
        )

    def time_fit(self, size, sampled):
        self.sampled.fit(self.x, self.y)

    def track_ratio_to_all_rows(self, size, sampled):
        """Median time of a fit of all rows over one of the sample, alternating."""
        return median_ratio(lambda: self.sampled.fit(self.x, self.y), lambda: self.whole.fit(self.x, self.y), 7)

    def track_ratio_of_sums(self, size, sampled):
        """The same of the exact sums alone, without calibration, noise and solution."""
        rows = noise.sample_without_replacement(len(self.x), self.sampled.n_subsample, noise.SecureSource())
        bounds = {"bound_x": 1.0, "bound_y": 1.0}
        return median_ratio(
            lambda: sampled_gram(self.x, self.y, rows, **bounds), lambda: gram(self.x, self.y, **bounds), 7
        )


class Import:
    """Fresh processes, the shortest of several, without the start of Python."""

    def _taken(self, code):
        def run():
            subprocess.run([sys.executable, "-c", code], check=True)

        return min(seconds(run) for _ in range(often(7)))

    def track_ratio_of_a_backend_beyond_numpy_to_numpy(self):
        """The bar is 0.6."""
        bare, base = self._taken("pass"), self._taken("import numpy")
        ours = self._taken("import numpy, dpfast.statistics, dpfast.kernels, dpfast.noise, dpfast.privacy")
        return (ours - base) / (base - bare)

    def track_ratio_of_an_estimator_to_sklearn_base(self):
        """The bar is 1.15."""
        bare = self._taken("pass")
        ours, base = self._taken("from dpfast import MultiOutcomeRidge"), self._taken("import sklearn.base")
        return (ours - bare) / (base - bare)
