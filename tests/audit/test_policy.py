"""The audit of DP-LSW: below the claim, and not blind to noise that is too small or not smooth."""

from dataclasses import replace

import pytest

from dpfast import Privacy
from dpfast.audit import epsilon_lower_bound, policy_evaluation_attack


@pytest.mark.slow
def test_the_release_keeps_its_claim_and_a_copy_with_less_noise_is_caught():
    """Bounds fail with probability 1e-6 at most. Two thirds of the noise are missing in the copy."""
    claim = Privacy(1.0, 0.05)

    def bound(attack):
        return epsilon_lower_bound(attack.scores(False, 10_000), attack.scores(True, 10_000), 0.05, 1 - 1e-6)

    assert 0.2 < bound(policy_evaluation_attack(claim)) <= 1.0
    assert bound(policy_evaluation_attack(claim, weaken=3.0)) > 1.0


def test_local_in_place_of_smooth_sensitivity_is_caught():
    """Two visitors or one: their local sensitivities differ twice, in 40 coordinates."""

    def local(calibration):
        return replace(calibration, beta=50.0)

    claim = Privacy(1.0, 0.01)
    for broken, attack in (
        (False, policy_evaluation_attack(claim, n_states=40, n_visitors=2)),
        (True, policy_evaluation_attack(claim, n_states=40, n_visitors=2, weakened=local)),
    ):
        bound = epsilon_lower_bound(attack.scores(False, 1500), attack.scores(True, 1500), 0.01, 1 - 1e-6)
        assert (bound > 1.0) == broken
