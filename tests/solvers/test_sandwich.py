"""Errors of estimates by a step along noisy sums: those of repeated releases, none where noise hides a direction."""

import numpy as np
import pytest

from dpfast.solvers.sandwich import Sums, errors, newton_step

H = np.array([[400.0, 120.0, 0.0], [120.0, 300.0, 40.0], [0.0, 40.0, 250.0]])
J = 0.6 * H + 30.0 * np.eye(3)
THETA = np.array([0.5, -1.0, 0.25])


def released(rng, away, noise_of_curvature=6.0, noise_of_score=25.0, curvature=H):
    """Sums at coefficients so far from what people drawn at random say, with noise."""
    turned = np.triu(rng.normal(size=(3, 3)), 1)
    noise = noise_of_curvature * (turned + turned.T + np.diag(np.sqrt(2.0) * rng.normal(size=3)))
    sampled = np.linalg.cholesky(J) @ rng.normal(size=3)
    score = curvature @ away + sampled + noise_of_score * rng.normal(size=3)
    return Sums(curvature + noise, J + 2.0 * noise, score, noise_of_curvature, noise_of_score)


@pytest.mark.slow
@pytest.mark.parametrize("length", [0.0, 1.0])
def test_errors_are_those_of_repeated_releases(length):
    """Of 4,000: deviations within a tenth, and limits cover 93% to 97%, whatever led to where the step begins."""
    rng = np.random.default_rng(0)
    away = length * np.array([0.6, -0.6, 0.5])
    found = [errors(THETA - away, released(rng, away)) for _ in range(4_000)]
    off = np.array([one.theta for one in found]) - THETA
    said = np.sqrt([np.diag(one.covariance) for one in found])
    assert all(one.known.all() for one in found)
    np.testing.assert_allclose(np.sqrt(np.mean(said**2, axis=0)), off.std(axis=0), rtol=0.1)
    covered = np.mean(np.abs(off) < 1.96 * said, axis=0)
    assert np.all((covered > 0.93) & (covered < 0.975))


def test_a_direction_that_does_not_stand_out_is_not_known():
    rng = np.random.default_rng(1)
    hidden = np.diag([400.0, 300.0, 1.0])
    for _ in range(20):
        found = errors(THETA, released(rng, np.zeros(3), curvature=hidden))
        assert found.known.tolist() == [True, True, False]
        assert np.all(np.isfinite(found.covariance))


def test_without_noise_a_step_is_newtons():
    sums = Sums(H, J, H @ [0.1, 0.2, 0.3], 0.0, 0.0)
    np.testing.assert_allclose(newton_step(THETA, sums), THETA + np.array([0.1, 0.2, 0.3]))
    found = errors(THETA, sums)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(H) @ J @ np.linalg.inv(H), rtol=1e-10)
    np.testing.assert_array_equal(found.covariance, found.covariance.T)
