"""Rules of noisy descent: what they keep to, and that they reach the minimiser where there is no noise to speak of."""

import math

import numpy as np
import pytest

from dpfast.convex_erm import mechanism as descent


@pytest.mark.parametrize("link", ["logistic", "softmax"])
@pytest.mark.parametrize("people", [-5.0, 1.0, 300.0, 1e5, 1e9])
@pytest.mark.parametrize("deviation", [1e-3, 1.0, 1e3])
def test_descent_is_stable_on_the_stiffest_table_of_bounded_rows(link, people, deviation):
    bound, shape = 2.0, (20, 1 if link == "logistic" else 4)
    steps = descent.schedule(link, shape, bound, people, deviation)
    assert 30 <= steps.n_steps <= 80
    assert 0.0 <= steps.momentum < 1.0
    # One direction, all rows along it, with the largest curvature that the loss has.
    curvature = (0.25 if link == "logistic" else 0.5) * bound**2 * max(people, 1.0)
    iterate = descent.Iterate(np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    for number in range(steps.n_steps):
        iterate = descent.next_iterate(
            iterate, steps, -curvature * iterate.theta, averaged=number >= steps.first_averaged
        )
        # The roots of the recursion are -1 and -momentum at worst.
        assert abs(iterate.theta[0, 0]) <= 2.0 / (1.0 - steps.momentum) + 1e-6
    assert abs(descent.averaged(iterate, steps)[0, 0]) <= 1.0


def test_noise_gathers_to_a_fixed_length_whatever_it_is_and_however_many_steps():
    for shape, people, deviation in (((5, 1), 50.0, 3.0), ((500, 1), 400.0, 0.5), ((50, 1), 4e3, 2.0)):
        steps = descent.schedule("logistic", shape, 2.0, people, deviation)
        gathered = steps.size * steps.n_steps * deviation * math.sqrt(shape[0])
        assert 2.0 * gathered == pytest.approx(15.0)


def test_clips_are_half_of_the_longest_first_slope():
    for classes in (2, 3, 10):
        slope = np.eye(classes)[0] - 1.0 / classes
        assert descent.first_slope("softmax", classes) == pytest.approx(np.linalg.norm(slope))
        assert descent.clip_of_slopes("softmax", classes, 3.0) == pytest.approx(1.5 * np.linalg.norm(slope))
    assert descent.clip_of_slopes("logistic", 1, 3.0) == 0.75


def test_only_late_iterates_are_averaged():
    steps = descent.Schedule(4, 1.0, 0.0)
    iterate = descent.Iterate.start((1, 1))
    for number, slope in enumerate([1.0, 2.0, 3.0, 4.0]):
        iterate = descent.next_iterate(iterate, steps, np.full((1, 1), slope), averaged=number >= steps.first_averaged)
    assert descent.averaged(iterate, steps)[0, 0] == (6.0 + 10.0) / 2.0


def test_more_people_and_less_noise_agree_better():
    values = [descent.agreement("softmax", (20, 3), 1.0, n, 10.0) for n in (1, 100, 10_000, 10**8)]
    assert values == sorted(values)
    assert 0.0 < values[0] < 0.1
    assert values[-1] > 0.999
    assert descent.agreement("softmax", (20, 3), 1.0, 100, 1.0) > values[1]
