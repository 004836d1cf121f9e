"""Model selection within a budget, beside the fits that it makes."""

import numpy as np

from benchmarks.timing import fastest_ratio, sized
from dpfast import MultiOutcomeRidge, select


class Selecting:
    """Three candidates: their fits and the last one are most of it."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.X = rng.uniform(-0.2, 0.2, (sized(100_000), 20))
        self.y = self.X @ rng.normal(size=20) / 3.0 + 0.1 * rng.normal(size=len(self.X))
        shared = {"bound_x": 1.0, "bound_y": 1.0}
        self.candidates = [MultiOutcomeRidge(1.0, 1e-6, ridge=ridge, **shared) for ridge in (1.0, 100.0, 10_000.0)]

    def time_select(self):
        select(self.candidates, self.X, self.y, epsilon=1.0, delta=1e-6, bound_y=1.0)

    def track_times_of_four_fits(self):
        def fits():
            for candidate in [*self.candidates, self.candidates[0]]:
                candidate.fit(self.X, self.y)

        return 1.0 / fastest_ratio(self.time_select, fits, 3)
