"""What is known to be broken is caught, and what is put in order is not."""

import math

import pytest

from dpfast import noise
from dpfast.attack import Finding
from dpfast.audit import broken_attacks, literature
from dpfast.privacy import Privacy, gaussian_scale

# All attacks of a run at once are right with a probability of 99.9%.
ERROR = 0.001 / 40
ATTACKS = {attack.name: attack for attack in broken_attacks()}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_what_is_known_to_be_broken_is_caught(name):
    """Again and again: a bound misses its claim by several of its deviations."""
    found = [ATTACKS[name].run(100, ERROR).epsilon for _ in range(2)]
    assert min(found) > ATTACKS[name].privacy.epsilon


def test_each_says_what_is_wrong():
    assert all(attack.defect and attack.name.endswith(", replace_one") for attack in ATTACKS.values())


def test_a_repaired_mechanism_is_not_caught(monkeypatch):
    """Each attack with its defect mended finds no more than the claim."""
    monkeypatch.setattr(literature, "classic_gaussian_scale", gaussian_scale)
    [mended] = [attack for attack in broken_attacks() if attack.name.startswith("Gaussian noise by the classic")]
    assert not mended.run(100, 1e-7).broken


def test_a_sound_mechanism_in_doubles_shows_no_such_bits():
    """The event that gives the naive one away never happens on either table of noise on a public grid."""
    attack = ATTACKS["Laplace noise in doubles, replace_one"]
    source = noise.SecureSource()
    released = [noise.laplace(1.0, (1000, 1), source) + centre for centre in (0.0, 1.0)]
    assert all((table * 2.0**53 % 1.0 == 0.0).all() for table in released)
    assert attack.seen(False).any()
    assert not attack.seen(True).any()


def test_verdicts_tell_what_is_expected():
    claim = Privacy(1.0)
    cases = [(0.5, "", "holds", True), (2.0, "", "BROKEN", False)]
    cases += [(2.0, "known", "broken, as is known", True), (0.5, "known", "NOT CAUGHT", False)]
    for epsilon, defect, verdict, expected in cases:
        finding = Finding("one", claim, epsilon, math.nan, True, 100, 0.0, defect)
        assert (finding.verdict, finding.expected) == (verdict, expected)
