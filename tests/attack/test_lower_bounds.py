"""Lower bounds stay below the truth, and near it."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfast.audit import epsilon_lower_bound, mu_lower_bound
from dpfast.privacy import gaussian_epsilon


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_lower_bounds_are_below_the_truth_and_not_far(mu):
    rng = np.random.default_rng(0)
    failures, gaps = 0, []
    for _ in range(50):
        here, there = rng.normal(size=4000), rng.normal(mu, size=4000)
        bound = mu_lower_bound(here, there, 0.99)
        failures += bound > mu
        gaps.append(mu - bound)
        assert epsilon_lower_bound(here, there, 1e-2, 0.99) <= gaussian_epsilon(1.0 / mu, 1e-2) * 1.3
    # At most 1% of bounds fail; 50 trials see more than 5 with probability below 1e-5.
    assert failures <= stats.binom.isf(1e-5, 50, 0.01)
    assert np.mean(gaps) < 0.25


def test_a_randomised_response_is_measured():
    """Pure epsilon of a coin that tells the truth with probability 3/4 is log 3."""
    rng = np.random.default_rng(1)
    here, there = (rng.random(20_000) < p for p in (0.25, 0.75))
    bound = epsilon_lower_bound(here.astype(float), there.astype(float), 0.0)
    assert 0.9 * math.log(3.0) < bound <= math.log(3.0)
