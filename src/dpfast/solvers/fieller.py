"""Limits of a ratio with a denominator that may be pure noise.

A numerator and a denominator are known up to normal errors of known size. Whatever the ratio is, numerator minus ratio
times denominator is normal with mean 0. The ratios that keep it below its quantile are a confidence set at the stated
level [1]_, however small the denominator is; no interval about the estimate has this property. The set may be an
interval, all numbers, or all but an interval. The last occurs if the denominator is not above the noise, and its
estimate may be chance. The same test is used in regression with noisy instruments [2]_.

References
----------
.. [1] Fieller, E. C. (1954). Some problems in interval estimation. Journal of the Royal Statistical Society B 16.
.. [2] Anderson, T. W., Rubin, H. (1949). Estimation of the parameters of a single equation in a complete system of
   stochastic equations. Annals of Mathematical Statistics 20.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpfast._arrays import FloatArray


class NoisyRatio(NamedTuple):
    """Numerators and denominators as they were found, and variances and covariances of their errors."""

    numerator: FloatArray
    denominator: FloatArray
    numerator_variance: FloatArray
    denominator_variance: FloatArray
    covariance: FloatArray

    def limits(self, quantile: float, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the set within the ranges [low, high], elementwise; those of the range if it is empty."""
        squared = quantile**2
        # a theta^2 - 2 b theta + c <= 0.
        a = self.denominator**2 - squared * self.denominator_variance
        b = self.numerator * self.denominator - squared * self.covariance
        c = self.numerator**2 - squared * self.numerator_variance
        root = np.sqrt(np.maximum(b * b - a * c, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = (b - root) / a, (b + root) / a
        first, last = np.minimum(*ends), np.maximum(*ends)
        # An interval about the estimate; or all numbers except between the roots; or all numbers.
        inside = np.clip(first, low, high), np.clip(last, low, high)
        below, above = first >= low, last <= high
        outside = np.where(below, low, np.maximum(low, last)), np.where(above, high, np.minimum(high, first))
        is_interval, is_all = a > 0.0, (b * b - a * c < 0.0) | ~(below | above) | (a == 0.0)
        smallest: FloatArray = np.where(is_interval, inside[0], np.where(is_all, low, outside[0]))
        largest: FloatArray = np.where(is_interval, inside[1], np.where(is_all, high, outside[1]))
        return smallest, largest
