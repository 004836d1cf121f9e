"""Limits of a ratio cover it at their level whatever its denominator is, and are the range where that says nothing."""

import numpy as np
import pytest
from scipy.special import ndtri

from dpfast.solvers.inference import NoisyRatio


def ratio(numerator, denominator, variances=(1.0, 1.0), covariance=0.0):
    return NoisyRatio(*np.broadcast_arrays(numerator, denominator, *variances, covariance))


@pytest.mark.parametrize("covariance", [0.0, 0.6, -0.6])
@pytest.mark.parametrize("denominator", [0.0, 0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("truth", [-0.5, 0.0, 0.8])
def test_limits_cover_at_their_level_or_more(truth, denominator, covariance):
    rng = np.random.default_rng(0)
    noise = rng.multivariate_normal([0.0, 0.0], [[1.0, covariance], [covariance, 1.0]], 4000)
    found = ratio(truth * denominator + noise[:, 0], denominator + noise[:, 1], covariance=covariance)
    low, high = found.limits(float(ndtri(0.95)), np.full(4000, -2.0), np.full(4000, 2.0))
    # Of 4,000 the share is known to 0.005; the ends of what is not an interval cover more than the set itself.
    covered = np.mean((low <= truth) & (truth <= high))
    assert covered >= 0.88
    if denominator == 30.0:
        assert covered <= 0.92


def test_limits_are_the_ends_of_the_set_within_the_range():
    rng = np.random.default_rng(1)
    for _ in range(300):
        numerator, denominator = rng.normal(size=2) * [2.0, 3.0]
        covariance = rng.uniform(-0.9, 0.9)
        found = ratio(numerator, denominator, covariance=covariance)
        low, high = (float(one) for one in found.limits(1.6, np.array(-1.0), np.array(1.0)))
        grid = np.linspace(-1.0, 1.0, 20001)
        spread = 1.0 - 2.0 * grid * covariance + grid**2
        inside = grid[np.abs(numerator - grid * denominator) <= 1.6 * np.sqrt(spread)]
        if len(inside):
            np.testing.assert_allclose([low, high], [inside[0], inside[-1]], atol=2e-4)
        else:
            # Nothing of the set is in the range: its nearest end, or, of a set on both sides of it, all of the range.
            assert low == high in (-1.0, 1.0) or (low, high) == (-1.0, 1.0)


def test_without_noise_it_is_the_ratio():
    found = ratio(np.array([1.0, -3.0]), 4.0, variances=(0.0, 0.0))
    low, high = found.limits(1.6, np.full(2, -2.0), np.full(2, 2.0))
    np.testing.assert_allclose(low, [0.25, -0.75])
    np.testing.assert_allclose(high, [0.25, -0.75])
