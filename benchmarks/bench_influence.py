"""Influence of every donor at once against refitting without each."""

import numpy as np
from scipy import linalg

from benchmarks.timing import seconds
from dpfast.datasets import synthetic_control_panel
from dpfast.statistics import influence


def refits(donors, n_pre, target_pre, ridge, left_out):
    """Predictions without each of the first donors, as one would write it."""
    changes = np.empty((left_out, donors.shape[1] - n_pre))
    for donor in range(left_out):
        kept = np.delete(donors, donor, axis=0)
        pre = kept[:, :n_pre]
        kernel = pre.T @ pre + ridge / 2 * np.eye(n_pre)
        changes[donor] = kept[:, n_pre:].T @ (pre @ linalg.solve(kernel, target_pre, assume_a="pos"))
    return changes


class Influence:
    params = ((100, 1000), (10, 100))
    param_names = ("donors", "n_pre")

    def setup(self, n, n_pre):
        self.donors, target, _ = synthetic_control_panel(n, n_pre, seed=0)
        self.arguments = self.donors, n_pre, target[:n_pre]

    def time_influence(self, n, n_pre):
        influence(*self.arguments)

    def track_ratio_refits_over_ours(self, n, n_pre):
        """Of all n refits, which take the same time each: a tenth of them are made."""
        ratios, left_out = [], n // 10
        for _ in range(3):
            theirs = seconds(lambda: refits(*self.arguments, ridge=float(n_pre), left_out=left_out)) * n / left_out
            ratios.append(theirs / min(seconds(lambda: influence(*self.arguments)) for _ in range(5)))
        return float(np.median(ratios))
