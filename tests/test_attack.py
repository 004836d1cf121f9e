"""What follows from events, of which nothing is assumed."""

import math

import numpy as np
import pytest

from dpfast import Privacy
from dpfast.attack import Attack, Events, GaussianShift, NormShift, SampledShift


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


def _radial(rng, n, size):
    towards = rng.normal(size=(n, size))
    return towards / np.linalg.norm(towards, axis=1, keepdims=True) * rng.gamma(size, size=(n, 1))


def _sampled(rng, n):
    noise = rng.normal(size=(n, 2)) * [1.0, 3.0]
    noise[rng.random(n) < 0.3, 0] = np.nan
    return noise


_ONES = (np.ones(2), np.ones(2), np.ones(2))
_PARTS = tuple(np.repeat(np.eye(3, dtype=bool), 2, axis=1))
NOISE = {
    "Gaussian": (GaussianShift(np.ones(6), None, _PARTS), lambda rng, n: 2.0 * rng.normal(size=(n, 6))),
    "sampled": (SampledShift((1.0, 1.0), (1.0, 3.0), (3, 10)), _sampled),
    "L2-Laplace": (NormShift(_ONES, (1.0,) * 3), lambda rng, n: np.hstack([_radial(rng, n, 2) for _ in range(3)])),
    "Laplace": (NormShift(_ONES, (1.0,) * 3, "Laplace"), lambda rng, n: rng.laplace(size=(n, 6))),
}


def test_noise_of_the_stated_form_is_rarely_rejected_and_other_noise_always():
    rng = np.random.default_rng(0)
    for law, draw in NOISE.values():
        here, there = (draw(rng, 400) for _ in range(2))
        assert 1e-4 < law.goodness_of_fit((here, there)) <= 1.0
        for other in (np.abs(there), np.cbrt(there)):
            assert law.goodness_of_fit((here, other)) < 1e-4


def test_a_bound_on_p_values_of_several_tests_is_rarely_small():
    """It is below .05 at most that often: more than 8 of 20 times by chance less than once in a million."""
    rng = np.random.default_rng(0)
    law = NormShift((np.ones(2),) * 8, (1.0,) * 8)
    draws = (tuple(np.hstack([_radial(rng, 40, 2) for _ in range(8)]) for _ in range(2)) for _ in range(20))
    assert sum(law.goodness_of_fit(seen) < 0.05 for seen in draws) <= 8
