"""Laws of minimisers of perturbed objectives in one dimension, exactly up to quadrature."""

import numpy as np
from scipy import stats


class IntervalLaw:
    """The minimiser over [low, high] of loss(t) + l1 |t| + (m/2) t^2 + b t: its density inside, and its atoms.

    ``slope`` and ``curvature`` are the loss's derivatives as functions of an array. The minimiser falls as b grows, so
    that its distribution is that of b, turned around.
    """

    def __init__(self, slope, curvature, *, m, l1, low, high, scale, gaussian):
        self.m, self.l1, self.low, self.high = m, l1, low, high
        self.slope, self.curvature = slope, curvature
        self.noise = stats.norm(scale=scale) if gaussian else stats.laplace(scale=scale)

    def gradient(self, t, side):
        return self.slope(t) + self.m * t + self.l1 * side

    def log_density(self, t):
        """At points that are neither ends nor 0."""
        return self.noise.logpdf(-self.gradient(t, np.sign(t))) + np.log(self.curvature(t) + self.m)

    def atoms(self):
        """Masses at the lower end, the upper end and 0."""
        ends = np.array([self.low, self.high])
        lower, upper = self.gradient(ends, np.where(ends == 0.0, [1.0, -1.0], np.sign(ends)))
        masses = [self.noise.sf(-lower), self.noise.cdf(-upper)]
        zero = np.zeros(1)
        inside = self.low < 0.0 < self.high
        around = self.noise.cdf(-self.gradient(zero, -1.0)) - self.noise.cdf(-self.gradient(zero, 1.0))
        return np.array([*masses, float(around[0]) if inside and self.l1 > 0.0 else 0.0])


def divergences(here, there, epsilon, n=40_001):
    """Largest log ratio of two laws on one interval, and the mass of one beyond e^epsilon times the other."""
    edges = np.linspace(here.low, here.high, n)
    t = (edges[1:] + edges[:-1]) / 2.0
    p, q = here.log_density(t), there.log_density(t)
    beyond = np.exp(p) * np.maximum(-np.expm1(epsilon + q - p), 0.0)
    atoms = [(a, b) for a, b in zip(here.atoms(), there.atoms(), strict=True) if a > 0.0]
    ratios = [float(np.max(p - q)), *(np.log(a) - np.log(b) for a, b in atoms)]
    mass = beyond.sum() * (edges[1] - edges[0]) + sum(max(a - np.exp(epsilon) * b, 0.0) for a, b in atoms)
    return max(ratios), float(mass)
