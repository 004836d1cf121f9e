"""What follows from events, of which nothing is assumed."""

import math

import numpy as np
import pytest

from dpfast import Privacy
from dpfast.attack import Attack, Events


def test_events_are_bounded_by_frequencies_of_either_table():
    law = Events()
    often, rare = np.repeat([1.0, 0.0], [900, 100])[:, None], np.repeat([1.0, 0.0], [100, 900])[:, None]
    found = law.epsilon((often, rare), 0.0, 0.001)
    assert law.epsilon((rare, often), 0.0, 0.001) == found
    assert math.log(0.86 / 0.14) < found < math.log(9.0)
    assert law.epsilon((often, rare), 0.5, 0.001) == pytest.approx(math.log(0.37 / 0.138), abs=0.06)
    assert law.epsilon((often, often), 0.0, 0.001) == 0.0


def test_events_never_pass_the_true_epsilon_more_often_than_stated():
    """Randomised response of epsilon 1, with an error of 0.05 and a hundred tries: 17 false ones in a million times."""
    kept = math.e / (1.0 + math.e)
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        seen = tuple((rng.random((200, 1)) < p).astype(float) for p in (kept, 1.0 - kept))
        wrong += Events().epsilon(seen, 0.0, 0.05) > 1.0
    assert wrong <= 15


def test_an_attack_runs_as_often_as_its_effort_says():
    calls = []
    attack = Attack("one", Privacy(1.0, 1e-6), Events(), lambda one: calls.append(one) or np.zeros(1), (), effort=2.5)
    attack.run(3)
    assert calls == [False] * 8 + [True] * 8
