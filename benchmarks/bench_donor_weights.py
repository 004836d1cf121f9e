"""Synthetic control by noise on weights: repeats of one panel against drawing their noise, in one process."""

import numpy as np

from benchmarks.timing import seconds
from dpfast import Privacy, noise
from dpfast.synthetic_control.donor_weights import (
    BoundedPanel,
    DonorObjectivePerturbation,
    OutputPerturbation,
    PanelBounds,
    ridge_weights,
)

N, N_PRE, N_POST, REPEATS = 100, 100, 3, 500


def _panel():
    rng = np.random.default_rng(0)
    pre, post = rng.uniform(-1, 1, (N, N_PRE)), rng.uniform(-1, 1, (N, N_POST))
    target = rng.uniform(-1, 1, N_PRE)
    bounds = PanelBounds.of(N, N_POST, target)
    return BoundedPanel.of(np.hstack([pre, post]), target, bounds), bounds


def _fastest(work, runs=40):
    return min(seconds(work) for _ in range(runs))


class OutputRepeats:
    params = ([1e-6, 0.0],)
    param_names = ("delta",)

    def setup(self, delta):
        self.rows, bounds = _panel()
        self.chosen = OutputPerturbation.calibrate(Privacy(1.0, delta), bounds, float(N_PRE))
        self.source = noise.SecureSource()
        self.exact = ridge_weights(self.rows.pre, self.rows.target, float(N_PRE))

    def time_repeats(self, delta):
        self.chosen.repeat(self.rows, self.source, REPEATS, exact=self.exact)

    def track_ratio_to_drawing_the_noise(self, delta):
        """Against the noise about the same centres, drawn alone; the system is solved once, before."""
        scales = self.chosen.noise_scales
        _, projections = self.chosen.repeat(self.rows, self.source, REPEATS)
        centres = np.repeat(self.exact[:, np.newaxis], REPEATS, axis=1), projections

        def alone():
            for scale, about in zip((scales.weight_scale, scales.projection_scale), centres, strict=True):
                if delta:
                    noise.gaussian(scale, about.shape, self.source, center=about)
                else:
                    for centre in np.ascontiguousarray(about.T):
                        noise.l2_laplace(scale, len(centre), self.source, center=centre)

        runs = 40 if delta else 5
        ratios = [_fastest(lambda: self.time_repeats(delta), runs) / _fastest(alone, runs) for _ in range(3)]
        return float(np.median(ratios))


class Calibration:
    def setup(self):
        _, self.bounds = _panel()

    def time_output(self):
        OutputPerturbation.calibrate(Privacy(1.0, 1e-6), self.bounds, float(N_PRE))

    def time_objective(self):
        DonorObjectivePerturbation.calibrate(Privacy(1.0, 1e-6), self.bounds, float(N_PRE))
