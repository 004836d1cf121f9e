"""Whole private evaluations of a policy, beside the sums without privacy; and choosing the calibration."""

import math

import numpy as np

from benchmarks.timing import median_ratio, sized
from dpfast import PolicyEvaluation
from dpfast.statistics import Trajectories, first_visit_returns


def walks(n_states, n_steps):
    """Trajectories of 50 to 150 steps over states drawn uniformly."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(50, 151, n_steps // 100))])
    return Trajectories(
        rng.integers(0, n_states, offsets[-1], dtype=np.int32), rng.random(offsets[-1]), offsets, n_states
    )


class Fit:
    params = ([40, 10_000], ["lsw", "lsl", "sufficient_statistics"], [None, 20])
    param_names = ("states", "method", "features")

    def setup(self, states, method, features):
        self.walks = walks(states, sized(1_000_000))
        phi = None if features is None else np.random.default_rng(0).normal(size=(states, features))
        options = {"gamma": 0.99, "return_range": (0.0, 100.0), "horizon": 150, "method": method, "features": phi}
        self.private = PolicyEvaluation(8.0, 1e-2, **options)
        self.exact = PolicyEvaluation(math.inf, **options)

    def time_fit(self, states, method, features):
        self.private.fit(self.walks)

    def peakmem_fit(self, states, method, features):
        self.private.fit(self.walks)

    def track_ratio_to_no_privacy(self, states, method, features):
        """Median time of the fit without privacy over the private one, alternating."""
        return median_ratio(lambda: self.private.fit(self.walks), lambda: self.exact.fit(self.walks), 5)


class Sums:
    def setup(self):
        self.walks = walks(40, sized(1_000_000))

    def time_first_visit_returns(self):
        first_visit_returns(self.walks, 0.99, return_range=(0.0, 100.0), horizon=150)
