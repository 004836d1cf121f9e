from functools import partial

import numpy as np
import pytest
from attacks import CLAIM

from dpfast.attack import claims
from dpfast.convex_erm import attacks


@pytest.mark.parametrize("others", [120, 280])
@pytest.mark.parametrize("claim", [*claims(CLAIM, delta=True)], ids=lambda claim: claim.adjacency)
def test_descents_that_are_attacked_take_as_many_steps_whatever_noise_says_of_their_people(others, claim, monkeypatch):
    """A law has one entry for each release; noise in the number of people, ten deviations of it, changes none."""

    def lengths():
        descents = (
            partial(attacks._classes_descent_attack, copies=1),
            partial(attacks._classes_descent_attack, copies=2),
            partial(attacks._scores_descent_attack, inference=False),
            partial(attacks._scores_descent_attack, inference=False, copies=3),
            partial(attacks._scores_descent_attack, inference=True),
        )
        return [len(np.atleast_1d(attack(claim).law.shift)) for attack in descents]

    usual = lengths()
    monkeypatch.setattr(attacks, "_OTHERS", others)
    assert lengths() == usual
