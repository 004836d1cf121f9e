"""Calibrations: microseconds a call, and how many times faster than what a user would call instead."""

import math
import statistics
from importlib import import_module

from benchmarks.timing import often, seconds
from dpfast.privacy import best_beta, gaussian_mu, gaussian_scale, moment_mu, moment_scales, smooth_gaussian

smooth_module = import_module("dpfast.privacy.smooth_gaussian")  # hidden by the function of that name
BUDGETS = [(1.0, 1e-6), (1e-3, 1e-12), (1000.0, 1e-30)]


def ratio(ours, theirs, calls, rounds=9):
    """Median over alternating rounds of their time over ours."""

    ratios = (seconds(theirs, repeats=calls) / seconds(ours, repeats=20 * calls) for _ in range(often(rounds)))
    return statistics.median(ratios)


class GaussianScale:
    params = (BUDGETS,)
    param_names = ("budget",)

    def time_gaussian_scale(self, budget):
        gaussian_scale(*budget)

    def time_gaussian_mu(self, budget):
        gaussian_mu(*budget)


class AgainstScipy:
    """A root of the textbook formula by scipy's brentq, in logarithms to survive small deltas."""

    params = (BUDGETS,)
    param_names = ("budget",)

    def setup(self, budget):
        from scipy.optimize import brentq
        from scipy.special import log_ndtr

        epsilon, delta = budget

        def excess(log_scale):
            scale = math.exp(log_scale)
            first = log_ndtr(0.5 / scale - epsilon * scale)
            second = epsilon + log_ndtr(-0.5 / scale - epsilon * scale)
            return first + math.log(-math.expm1(min(second - first, -1e-300))) - math.log(delta)

        self.scipy = lambda: math.exp(brentq(excess, -10.0, 20.0))

    def track_ratio_scipy_brentq(self, budget):
        return ratio(lambda: gaussian_scale(*budget), self.scipy, calls=20)

    track_ratio_scipy_brentq.unit = "times faster"


class AgainstDiffprivlib:
    """Building diffprivlib's mechanism is its calibration; epsilon and delta where it gives an answer."""

    params = (BUDGETS[:2],)
    param_names = ("budget",)

    def setup(self, budget):
        try:
            from diffprivlib.mechanisms import GaussianAnalytic
        except ImportError as missing:
            raise NotImplementedError("diffprivlib does not import") from missing
        self.mechanism = GaussianAnalytic

    def track_ratio_diffprivlib(self, budget):
        epsilon, delta = budget
        return ratio(
            lambda: gaussian_scale(epsilon, delta),
            lambda: self.mechanism(epsilon=epsilon, delta=delta, sensitivity=1.0),
            calls=10,
        )

    track_ratio_diffprivlib.unit = "times faster"


class Moments:
    """The joint calibration of all blocks; the pair has a closed form, the rest a small convex program."""

    params = ([("xx", "xy"), ("xx", "x", "xy", "y")],)
    param_names = ("blocks",)

    def setup(self, blocks):
        self.weights = dict.fromkeys(blocks, 1.0)
        self.options = {"adjacency": "replace_one", "n_features": 20}
        self.scales = moment_scales(0.2, 1.0, 1.0, self.weights, **self.options)

    def time_moment_scales(self, blocks):
        moment_scales(0.2, 1.0, 1.0, self.weights, **self.options)

    def time_moment_mu(self, blocks):
        moment_mu(self.scales, 1.0, 1.0, **self.options)


class SmoothGaussian:
    """Noise of smooth variance: every call calibrates anew, then a fit's repeated call, which finds the result kept."""

    params = ([(1.0, 1e-6, 10), (0.01, 1e-12, 10_000), (20.0, 0.1, 1)],)
    param_names = ("budget_and_dim",)

    def setup(self, budget_and_dim):
        self.beta = 0.5 * smooth_gaussian(*budget_and_dim).beta

    def forget(self):
        smooth_module._smallest_alpha.cache_clear()
        smooth_module._largest_beta.cache_clear()

    def time_default_beta(self, budget_and_dim):
        self.forget()
        smooth_gaussian(*budget_and_dim)

    def time_given_beta(self, budget_and_dim):
        self.forget()
        smooth_gaussian(*budget_and_dim, self.beta)

    def time_kept(self, budget_and_dim):
        smooth_gaussian(*budget_and_dim)

    def time_best_beta(self, budget_and_dim):
        self.forget()
        best_beta(*budget_and_dim, lambda beta: max(1e-6, math.exp(-900.0 * beta)))


class SmoothAgainstScipy:
    """A root, by scipy's brentq, of the textbook difference of two noncentral chi-square tails."""

    def setup(self):
        from scipy.optimize import brentq
        from scipy.stats import ncx2

        epsilon, delta, dim, beta = 1.0, 1e-6, 10, 0.0036
        b = math.expm1(beta)

        def excess(log_alpha):
            square = math.exp(-2.0 * log_alpha)
            bound = 2.0 * (1.0 + b) / b * (epsilon + 0.5 * dim * beta + square / (2.0 * b))
            first = ncx2.sf(bound / (1.0 + b), dim, square * (1.0 + b) / b**2)
            return math.log(first - math.exp(epsilon) * ncx2.sf(bound, dim, square / b**2)) - math.log(delta)

        self.scipy = lambda: math.exp(brentq(excess, math.log(3.0), math.log(10.0)))
        assert abs(self.scipy() / smooth_gaussian(epsilon, delta, dim, beta).alpha - 1.0) < 1e-6

        def ours():
            smooth_module._smallest_alpha.cache_clear()
            smooth_gaussian(epsilon, delta, dim, beta)

        self.ours = ours

    def track_ratio_scipy_brentq(self):
        return ratio(self.ours, self.scipy, calls=2)

    track_ratio_scipy_brentq.unit = "times faster"
