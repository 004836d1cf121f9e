"""The audit stays below every claim and catches every mechanism that has lost its noise."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfast import Privacy
from dpfast.audit import (
    all_attacks,
    epsilon_lower_bound,
    minimiser_attacks,
    moment_attack,
    mu_lower_bound,
    output_attack,
    sampled_moment_attack,
    smooth_gaussian_attack,
    weight_attacks,
)
from dpfast.privacy import gaussian_epsilon, gaussian_mu

CLAIM = Privacy(1.0, 1e-5)
# Each bound fails with probability at most 1e-3 per attack: eight attacks, false-reject rate 0.8% a run for the exact
# worst case; the sampled pairs lose less than the claim, which makes it far less.
N = 2000


@pytest.mark.parametrize("index", range(8))
def test_claims_hold_and_broken_copies_are_caught(index):
    attack = list(all_attacks(CLAIM))[index]
    broken = list(all_attacks(CLAIM, weaken=6.0))[index]
    # A variance that depends on the data shows in rare outputs only.
    n = 10 * N if "smooth" in attack.name else N
    assert attack.lower_bound(n) <= attack.privacy.epsilon
    assert broken.lower_bound(n) > broken.privacy.epsilon


def test_the_attack_on_moments_is_the_worst_case():
    """Its mean shift, in units of noise, is the mu of the release: the audit looks where the bound is tight."""
    for adjacency in ("replace_one", "add_remove"):
        attack = moment_attack(Privacy(1.0, 1e-6, adjacency))
        here, there = attack.scores(False, 4000), attack.scores(True, 4000)
        mu = gaussian_mu(1.0, 1e-6)
        # The score's variance is its mean shift, mu^2. Standard error of the shift: mu sqrt(2/4000); five of them.
        assert np.mean(there) - np.mean(here) == pytest.approx(mu**2, abs=5.0 * mu * math.sqrt(2 / 4000))


@pytest.mark.parametrize("index", [0, 2, *(pytest.param(index, marks=pytest.mark.slow) for index in (1, 3))])
def test_weights_of_donors_keep_their_claims_and_broken_copies_are_caught(index):
    """The same rate of false rejects as above; 600 outputs can show an epsilon of 3.6 at most."""
    claim = Privacy(2.0, 1e-5)
    attack = list(weight_attacks(claim))[index]
    broken = list(weight_attacks(claim, weaken=8.0))[index]
    assert attack.lower_bound(600) <= attack.privacy.epsilon
    assert broken.lower_bound(600) > broken.privacy.epsilon


@pytest.mark.parametrize("index", [0, 1])
def test_minimisers_keep_their_claims_and_broken_copies_are_caught(index):
    """The same rate of false rejects as above; 600 outputs can show an epsilon of 3.6 at most."""
    claim = Privacy(2.0, 1e-5, "add_remove")
    attack = list(minimiser_attacks(claim))[index]
    broken = list(minimiser_attacks(claim, weaken=12.0))[index]
    assert attack.lower_bound(600) <= attack.privacy.epsilon
    assert broken.lower_bound(600) > broken.privacy.epsilon


def test_the_attack_on_weights_is_the_worst_case():
    """Both parts of output perturbation are at their bounds: the score's mean shift is mu^2."""
    attack = output_attack(Privacy(4.0, 1e-5))
    here, there = attack.scores(False, 1500), attack.scores(True, 1500)
    mu = gaussian_mu(4.0, 1e-5)
    # The score's variance is its mean shift; five standard errors.
    assert np.mean(there) - np.mean(here) == pytest.approx(mu**2, abs=5.0 * mu * math.sqrt(2 / 1500))


@pytest.mark.slow
def test_an_audit_of_the_release_is_sharp_and_sound():
    """With 40,000 outputs a release that lacks a fifth of its noise is caught; the real one stays below its claim."""
    for adjacency in ("replace_one", "add_remove"):
        claim = Privacy(8.0, 1e-2, adjacency)
        assert moment_attack(claim).lower_bound(40_000) <= 8.0
        assert moment_attack(claim, weaken=1.25).lower_bound(40_000) > 8.0


@pytest.mark.slow
def test_the_release_of_a_sample_keeps_its_claim_and_its_broken_copy_is_caught():
    """Simulated 300 times, the bound on the broken copy is 2.2 with a standard deviation of 0.24: five above 1."""
    attack = list(all_attacks(CLAIM))[8]
    assert "sample" in attack.name
    assert attack.lower_bound(2 * N) <= 1.0
    assert sampled_moment_attack(CLAIM, weaken=6.0).lower_bound(2 * N) > 1.0


@pytest.mark.slow
def test_the_attack_on_a_smooth_variance_is_sharp_and_sound():
    """At a delta that outputs can show, a fifth of the noise missing is caught; the bound fails with 1e-6 at most."""
    claim = Privacy(1.0, 0.05)
    here, there = (smooth_gaussian_attack(claim).scores(neighbour, 200_000) for neighbour in (False, True))
    assert 0.8 < epsilon_lower_bound(here, there, 0.05, 1 - 1e-6) <= 1.0
    here, there = (smooth_gaussian_attack(claim, weaken=1.25).scores(neighbour, 200_000) for neighbour in (False, True))
    assert epsilon_lower_bound(here, there, 0.05, 1 - 1e-6) > 1.0


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
