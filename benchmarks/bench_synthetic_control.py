"""Synthetic control: fits, intervals, and what a repeated fit costs beside drawing its noise."""

import time
import warnings

from benchmarks.timing import median_ratio
from dpfast import SyntheticControl, UtilityWarning, noise
from dpfast.datasets import synthetic_control_panel

REPEATS = 500


class Fit:
    params = ([(1_000, 10), (10_000, 100)],)
    param_names = ("donors and periods",)

    def setup(self, sizes):
        self.n_pre = sizes[1]
        self.donors, self.target, _ = synthetic_control_panel(*sizes, seed=0)
        self.fitted = SyntheticControl(1.0, 1e-6).fit(self.donors, self.n_pre)

    def time_fit(self, sizes):
        SyntheticControl(1.0, 1e-6).fit(self.donors, self.n_pre)

    def time_interval(self, sizes):
        self.fitted.interval(self.target[: self.n_pre])


class Repetitions:
    """500 releases of a panel of 100 donors and 100 earlier periods: summed once, they cost their noise."""

    def setup(self):
        warnings.simplefilter("ignore", UtilityWarning)
        self.donors, self.target, _ = synthetic_control_panel(100, 100, seed=0)
        self.model = SyntheticControl(1.0, 1e-9)
        (batch,) = self.model.fit_repeatedly(self.donors, 100, REPEATS)
        calibration = batch.section.joint
        scales = calibration.scales
        scales |= {"xx_diagonal": scales["xx"], "xx_above": calibration.off_diagonal}
        self.draws = [(scales[name], value.shape) for name, value in batch.release.values.items()]

    def draw_alone(self):
        source = noise.SecureSource()
        return [noise.gaussian(scale, size, source) for scale, size in self.draws]

    def track_ratio_of_fits_to_their_noise(self):
        """Median over alternating runs, in processor time: the bar is 1.3."""
        return median_ratio(
            self.draw_alone,
            lambda: self.model.fit_repeatedly(self.donors, 100, REPEATS),
            11,
            clock=time.process_time,
        )

    track_ratio_of_fits_to_their_noise.unit = "ratio"
