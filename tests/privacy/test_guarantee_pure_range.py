"""Choices whose odds move within a range: the Gaussian that promises no more, and no less than it need."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import expit, logit, ndtri

from dpfast.privacy import compose_mu, gaussian_delta, range_mu, range_of_mu

EPSILONS = [1e-8, 1e-3, 0.1, 0.999999, 1.0, 3.0, 40.0, 700.0, 1e4]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_mu_of_a_range_is_the_quantile_rounded_up(epsilon):
    with mpmath.workdps(60):
        exact = mpmath.mpf(epsilon)
        # erf(mu/sqrt(8)) = tanh(epsilon/2); on a log scale where both are close to 1.
        log_c = -mpmath.log1p(mpmath.exp(exact))
        mu = mpmath.mpf(range_mu(2.0 * epsilon))
        log_tail = mpmath.log(mpmath.erfc(mu / mpmath.sqrt(8)) / 2)
        assert log_tail <= log_c
        slightly_less = mu * (1 - mpmath.mpf(10) ** -12)
        assert mpmath.log(mpmath.erfc(slightly_less / mpmath.sqrt(8)) / 2) > log_c


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_the_gaussian_of_a_pure_release_dominates_randomised_response(epsilon):
    # Binary randomised response is the worst epsilon-DP mechanism: its delta at t is (e^epsilon - e^t)/(1 + e^epsilon).
    scale = 1.0 / range_mu(2.0 * epsilon)
    for t in np.linspace(0.0, epsilon, 50):
        worst = (math.exp(epsilon) - math.exp(t)) / (1.0 + math.exp(epsilon))
        assert gaussian_delta(scale, t) >= worst * (1.0 - 1e-12)
    assert gaussian_delta(scale, 0.0) == pytest.approx(math.tanh(epsilon / 2.0), rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_range_is_positive_and_finite(epsilon):
    with pytest.raises(ValueError, match="length"):
        range_mu(2.0 * epsilon)


@pytest.mark.parametrize("length", [1e-3, 0.5, 2.0, 10.0])
def test_no_choice_within_a_range_is_told_apart_better_than_its_gaussian(length):
    # Two choices whose logits differ by all of the range are the worst of all; the even ones reach it.
    q = expit(np.linspace(-30.0, 30.0, 4001) - length / 2.0)
    apart = ndtri(expit(logit(q) + length)) - ndtri(q)
    assert apart.max() <= range_mu(length) * (1.0 + 1e-9)
    assert apart[2000] == pytest.approx(range_mu(length), rel=1e-9)


@pytest.mark.parametrize("weights", [[1.0, 1.0], [5.0, 1.0, 0.1], [1.0, 1.0, 1.0, 1e-3]])
def test_exponential_mechanisms_stay_below_the_gaussian_at_every_threshold(weights):
    rng = np.random.default_rng(0)
    length = 1.3
    scale = 1.0 / range_mu(length)
    for trial in range(200):
        changes = rng.uniform(0.0, length, len(weights)) if trial % 2 else length * rng.integers(0, 2, len(weights))
        p, q = np.array(weights), np.array(weights) * np.exp(-changes)
        p, q = p / p.sum(), q / q.sum()
        for t in np.linspace(0.0, length, 14):
            for one, other in ((p, q), (q, p)):
                assert np.maximum(one - math.exp(t) * other, 0.0).sum() <= gaussian_delta(scale, t) * (1.0 + 1e-9)


@pytest.mark.parametrize("mu", [1e-8, 1e-3, 0.2, 1.0, 4.0, 30.0])
def test_the_range_of_a_mu_is_within_it_and_no_shorter_than_need_be(mu):
    length = range_of_mu(mu)
    assert range_mu(length) <= mu
    assert range_mu(length * (1.0 + 1e-5)) > mu


def test_picks_and_gaussian_noise_composed_by_an_accountant_cost_no_more_than_their_mu():
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution

    mu, picks = 0.4, 3
    length = range_of_mu(mu)
    # Randomised response between two, with odds of exp(length/2): the worst of a bounded range.
    flipped = 1.0 / (1.0 + math.exp(length / 2.0))
    one = privacy_loss_distribution.from_randomized_response(2.0 * flipped, 2, value_discretization_interval=1e-4)
    noise = privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=1e-4)
    together = noise.compose(one.self_compose(picks))
    for epsilon in (0.5, 1.0, 2.0):
        bound = gaussian_delta(1.0 / compose_mu([0.5] + [mu] * picks), epsilon)
        assert 0.1 * bound < together.get_delta_for_epsilon(epsilon) <= bound
