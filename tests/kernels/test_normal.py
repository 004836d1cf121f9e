import math

import mpmath as mp
import numpy as np
import pytest
from reference.gaussian import exact_delta

from dpfast.kernels import normal

# Relative; a tenth of the margin that dpfast.privacy.guarantee allows.
TOLERANCE = 4e-15


def random_tails(n, seed):
    """Pairs (mu, epsilon) in every branch of the kernel: t from -8 to 37, mu from 1e-7 to 150."""
    rng = np.random.default_rng(seed)
    while n > 0:
        mu, t = math.exp(rng.uniform(-16, 5)), rng.uniform(-8, 37)
        if mu * t + mu * mu / 2 >= 0:
            n -= 1
            yield mu, mu * t + mu * mu / 2


@pytest.mark.parametrize("seed", range(4))
def test_delta_is_accurate_in_every_branch(seed):
    for mu, epsilon in random_tails(250, seed):
        # With scale 3 the ratio sensitivity/scale is no float: its low part counts.
        delta = normal.gaussian_delta(3.0, epsilon, 3.0 * mu)
        assert abs(mp.mpf(delta) / exact_delta(3.0, epsilon, 3.0 * mu) - 1) < TOLERANCE


@pytest.mark.parametrize("edge", [-1.0, 3.0])
@pytest.mark.parametrize("mu", [1e-6, 0.5, 0.999, 1.0, 1.001, 2.999, 3.0, 3.001, 20.0])
def test_delta_is_accurate_at_the_edges_of_branches(edge, mu):
    for t in edge + np.array([-1e-3, -1e-9, 0.0, 1e-9, 1e-3]):
        epsilon = mu * t + mu * mu / 2
        if epsilon >= 0:
            delta = normal.gaussian_delta(1.0, epsilon, mu)
            assert abs(mp.mpf(delta) / exact_delta(1.0, epsilon, mu) - 1) < TOLERANCE


def test_solutions_have_the_delta_asked_for():
    for mu, epsilon in random_tails(300, 7):
        target = math.log(normal.gaussian_delta(1.0, epsilon, mu))
        solved = normal.solve_mu(epsilon, target)
        # One unit in the last place of mu moves log delta by (1 + t v) 2**-52; log delta itself has 2**-52 |log delta|.
        slope = 1 + abs(epsilon / mu - mu / 2) * (epsilon / mu + mu / 2)
        error = math.log(normal.gaussian_delta(1.0, epsilon, solved)) - target
        assert abs(error) < 4 * 2.0**-52 * (slope + abs(target) + 1)
        solved = normal.solve_epsilon(1.0, mu, target)
        error = math.log(normal.gaussian_delta(1.0, solved, mu)) - target
        assert abs(error) < 4 * 2.0**-52 * (slope + abs(target) + 1)


def test_epsilon_is_zero_where_delta_is_met_without():
    assert normal.solve_epsilon(1.0, 1e-3, math.log(0.5)) == 0.0


def test_newton_starts_are_bounds_and_logarithms_concave():
    """What makes the iterations monotone: log delta is concave in log mu and in epsilon."""
    for mu, epsilon in random_tails(300, 9):
        if epsilon == 0.0:
            continue
        step = 1e-2
        by_mu = [math.log(normal.gaussian_delta(1.0, epsilon, mu * math.exp(k * step))) for k in (-1, 0, 1)]
        by_epsilon = [math.log(normal.gaussian_delta(1.0, epsilon * (1 + k * step), mu)) for k in (-1, 0, 1)]
        for low, middle, high in (by_mu, by_epsilon):
            assert low + high <= 2 * middle + 1e-12 * abs(middle)
