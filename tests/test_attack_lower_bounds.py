"""Lower bounds stay below the truth, and near it."""

import math

import lower_bounds
import numpy as np
import pytest
from lower_bounds import epsilon_lower_bound, mu_lower_bound
from scipy import stats

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


def test_the_threshold_is_chosen_by_every_other_output_alone(monkeypatch):
    """It is judged by the others: they may be anything, and the thresholds that are looked at stay."""
    exceed, looked_at = lower_bounds._exceed, []

    def seen(scores, thresholds, sign):
        looked_at.append(thresholds.tolist())
        return exceed(scores, thresholds, sign)

    monkeypatch.setattr(lower_bounds, "_exceed", seen)
    rng = np.random.default_rng(3)
    scores = [rng.normal(size=400), rng.normal(0.5, size=400)]
    calls = []
    for bound in (lambda first, second: epsilon_lower_bound(first, second, 0.0), mu_lower_bound):
        for shift in (0.0, 7.0):
            looked_at.clear()
            bound(*(one + shift * (np.arange(400) % 2) for one in scores))
            calls.append(list(looked_at))
    same = calls[0] == calls[1], calls[2] == calls[3]  # compared first: pytest would show all the numbers
    assert all(same)
