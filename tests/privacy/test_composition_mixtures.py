"""What mixtures come to: the accountant's numbers, rounded up; never below them, never more than a sum."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfast.privacy import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpfast.privacy.composition import mixture_epsilon


def exact_delta(mu, epsilons, epsilon):
    """Every sequence of answers, one by one, and the Gaussian's delta in 40 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(epsilons)):
            chance, left = mpmath.mpf(1), mpmath.mpf(epsilon)
            for sign, one in zip(signs, epsilons, strict=True):
                chance /= 1 + mpmath.exp(-sign * mpmath.mpf(one))
                left -= sign * mpmath.mpf(one)
            if mu == 0.0:
                total += chance * max(mpmath.mpf(0), 1 - mpmath.exp(left))
            else:
                one, other = mu / 2 - left / mu, -mu / 2 - left / mu
                total += chance * (mpmath.ncdf(one) - mpmath.exp(left) * mpmath.ncdf(other))
        return total


@pytest.mark.parametrize(
    ("mu", "epsilons"),
    [
        (0.1, [0.1]),
        (0.1, [0.1, 0.1, 0.03, 0.5]),
        (0.0, [0.2] * 6),
        (0.0, [0.3, 0.1, 0.02]),
        (1e-5, [1e-5, 3e-5]),
        (3.0, [2.0, 1.0, 1.0]),
        (0.02, [2.0]),
    ],
)
@pytest.mark.parametrize("delta", [0.2, 1e-6, 1e-15, 1e-30])
def test_it_is_the_least_epsilon_with_that_delta(mu, epsilons, delta):
    epsilon = mixture_epsilon(mu, epsilons, delta)
    assert exact_delta(mu, epsilons, epsilon) <= delta
    if epsilon > 0.0 and epsilon < sum(epsilons):
        assert exact_delta(mu, epsilons, epsilon * (1.0 - 1e-6)) > delta


@given(
    st.floats(0.0, 1.0),
    st.lists(st.floats(1e-3, 1.0), max_size=7),
    st.floats(-12.0, -1.0).map(lambda power: 10.0**power),
)
@settings(max_examples=40)
def test_any_mixture_is_rounded_up_and_no_more_than_its_sum(mu, epsilons, delta):
    mu = 0.0 if mu < 1e-3 else mu
    epsilon = mixture_epsilon(mu, epsilons, delta)
    assert exact_delta(mu, epsilons, epsilon) <= delta * (1.0 + 1e-12)
    assert epsilon <= math.fsum(epsilons) * (1 + 1e-15) + (gaussian_epsilon(1.0, delta, mu) if mu else 0.0)


def test_many_ratios_are_rounded_up_by_little(monkeypatch):
    epsilons = [0.01 * number for number in range(1, 12)]
    exact = mixture_epsilon(0.1, epsilons, 1e-6)
    monkeypatch.setattr("dpfast.privacy.composition._POINTS", 512)
    rounded = mixture_epsilon(0.1, epsilons, 1e-6)
    assert exact < rounded < 1.03 * exact
    monkeypatch.setattr("dpfast.privacy.composition._KINDS", 5)
    assert rounded < mixture_epsilon(0.1, epsilons, 1e-6) < 1.3 * exact


def test_a_gaussian_alone_and_pure_releases_without_delta_are_what_they_are():
    assert mixture_epsilon(0.2, [], 1e-6) == gaussian_epsilon(1.0, 1e-6, 0.2)
    assert mixture_epsilon(0.0, [0.1, 0.2], 0.0) == math.fsum([0.1, 0.2])
    assert mixture_epsilon(0.0, [], 1e-6) == 0.0
    assert mixture_epsilon(0.1, [0.1], 0.0) == math.inf
    assert mixture_epsilon(0.0, [math.inf], 1e-6) == math.inf
    assert mixture_epsilon(0.0, [*np.linspace(0.1, 1.0, 80).tolist(), math.inf], 1e-6) == math.inf  # of many kinds
    assert mixture_epsilon(0.01, [], 0.9) == 0.0


def test_ten_and_a_hundred_gaussian_fits_cost_what_they_cost():
    mu = gaussian_mu(0.1, 1e-7)
    for count, epsilon in ((10, 0.204052), (100, 0.745405)):
        found = mixture_epsilon(math.sqrt(count) * mu, [], 1e-4)
        assert found == pytest.approx(epsilon, abs=1e-6)
        assert gaussian_delta(1.0, found, math.sqrt(count) * mu) <= 1e-4 * (1 + 1e-12)


@pytest.mark.parametrize("count", [1, 200])
def test_weights_are_probabilities(count):
    from dpfast.privacy.composition import _ratios

    ratios, weights = _ratios({0.05: count, 0.3: 2})
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    # The mean likelihood ratio of the other table to this one is 1.
    assert weights @ np.exp(-ratios) == pytest.approx(1.0, abs=1e-3)
