"""Sparse regression keeps its claims at the neighbours that move each release most, and broken copies are caught."""

import pytest

from dpfast import Privacy
from dpfast.audit import coefficient_attack, score_attack, vote_attack

# A lower bound is too high with probability at most 1e-6.
CONFIDENCE = 1.0 - 1e-6


def check(attack_on, privacy, weaken, n):
    attack, broken = attack_on(privacy), attack_on(privacy, weaken)
    assert attack.lower_bound(n, CONFIDENCE) <= privacy.epsilon
    assert broken.lower_bound(n, CONFIDENCE) > privacy.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_choice_by_scores(adjacency):
    check(score_attack, Privacy(2.0, 0.0, adjacency), 4.0, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-2])
def test_the_choice_by_votes(delta):
    check(vote_attack, Privacy(1.0, delta), 8.0, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-2])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_coefficients(adjacency, delta):
    check(coefficient_attack, Privacy(1.0, delta, adjacency), 40.0, 800)


def test_attacks_are_named_after_their_noise():
    names = [vote_attack(Privacy(1.0, delta)).name for delta in (0.0, 1e-5)]
    assert names == ["support by votes, Laplace, replace_one", "support by votes, Gaussian, replace_one"]
    assert coefficient_attack(Privacy(1.0)).name == "coefficient, L2-Laplace, replace_one"
