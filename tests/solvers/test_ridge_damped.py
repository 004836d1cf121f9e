"""Damped inverses of noisy moments, and what can be told of the moments behind the noise."""

import math

import numpy as np
import pytest
from scipy import linalg

from dpfast.solvers import (
    DenoisedMoments,
    components_beyond,
    damped_solve,
    hidden_reach,
    noise_edge,
    noise_floor,
    ridge_from_rows,
)


def symmetric_noise(d, sigma, rng):
    upper = np.triu(rng.normal(scale=sigma, size=(d, d)), 1)
    return upper + upper.T + np.diag(rng.normal(scale=np.sqrt(2.0) * sigma, size=d))


def moments(d=6, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, d))
    return rows.T @ rows, rng.normal(size=(d, 2))


def test_without_a_floor_it_is_ridge():
    xx, right = moments()
    expected = linalg.solve(xx + 2.5 * np.eye(6), right)
    np.testing.assert_allclose(damped_solve(xx, right, 2.5, 0.0), expected, rtol=1e-10)


def test_a_floor_lifts_small_eigenvalues_alone():
    values, vectors = np.array([-3.0, 0.5, 2.0, 50.0]), linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    xx = (vectors * values) @ vectors.T
    inverse = damped_solve(xx, np.eye(4), 1.0, 4.0)
    np.testing.assert_allclose(inverse, (vectors / [4.0, 4.0, 4.0, 51.0]) @ vectors.T, atol=1e-12)


@pytest.mark.parametrize("keep", [1, 2, 6])
def test_truncation_keeps_the_largest(keep):
    xx, right = moments()
    values, vectors = linalg.eigh(xx)
    kept = vectors[:, -keep:]
    expected = kept @ np.diag(1.0 / (values[-keep:] + 1.0)) @ kept.T @ right
    np.testing.assert_allclose(damped_solve(xx, right, 1.0, 0.0, keep), expected, atol=1e-12)


def test_leading_axes_are_matrices_of_their_own():
    matrices = np.array([moments(seed=seed)[0] for seed in range(6)]).reshape(2, 3, 6, 6)
    right = moments()[1]
    together = damped_solve(matrices, right, 1.0, 5.0, 4)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(together[index], damped_solve(matrices[index], right, 1.0, 5.0, 4), atol=1e-13)


def test_the_edge_is_where_the_spectrum_of_noise_ends():
    d, rng = 300, np.random.default_rng(2)
    largest = [linalg.eigvalsh(symmetric_noise(d, 3.0, rng))[-1] for _ in range(5)]
    # Tracy-Widom: the largest eigenvalue is edge (1 - 0.6 d^(-2/3)) give or take 0.6 d^(-2/3); six of these.
    np.testing.assert_allclose(largest, noise_edge(d, 3.0), rtol=0.6 * 7 * d ** (-2 / 3))
    assert noise_floor(d, 3.0) > max(largest)


def test_components_beyond_counts_at_least_one():
    assert components_beyond(np.diag([10.0, 5.0, 1.0]), 4.0) == 2
    assert components_beyond(np.diag([1.0, -5.0]), 4.0) == 1


def test_denoising_undoes_what_noise_does_on_average():
    d, sigma, rng = 60, 1.0, np.random.default_rng(3)
    path = np.ones(d) / np.sqrt(d)
    across = np.r_[1.0, -1.0, np.zeros(d - 2)] / np.sqrt(2.0)
    estimates, raw, along, outside, inside, hidden = [], [], [], [], [], []
    for _ in range(200):
        noisy = 40.0 * np.outer(path, path) + symmetric_noise(d, sigma, rng)
        denoised = DenoisedMoments.of(noisy, sigma)
        estimates.append(linalg.eigvalsh(denoised.xx)[-1])
        raw.append(linalg.eigvalsh(noisy)[-1])
        columns = np.stack([path, path + across], axis=1)
        inside.append(linalg.norm(denoised.inside(columns)[:, 0]))
        back = denoised.turned_back(columns)
        left_over = back - denoised.vectors @ (denoised.vectors.T @ back)
        along.append(np.sum(left_over[:, 0] ** 2))
        outside.append(np.sum(left_over[:, 1] ** 2))
        hidden.append(denoised.hidden(columns))
    # The standard deviation of an estimate is sqrt(2) sigma: the mean's is 0.1, six of which are allowed.
    assert np.mean(estimates) == pytest.approx(40.0, abs=0.6)
    assert np.mean(raw) == pytest.approx(40.0 + d / 40.0, abs=0.6)
    # Turned by d/40^2 = 0.037 in the square: nothing of it is left, the path keeps its length, and one that is truly
    # outside stays there.
    assert np.mean(along) < 0.01
    assert np.mean(inside) == pytest.approx(1.0, abs=0.005)
    assert np.mean(outside) == pytest.approx(1.0, abs=0.02)
    # A hidden part is seen where there is one, and by chance in a quarter of cases (23 or fewer of 200, or 78 or more,
    # with probability 1e-5 each), shorter than what noise put there, 0.19.
    by_chance = np.array(hidden)[:, 0]
    assert 23 < np.sum(by_chance > 0.0) < 78
    assert np.max(by_chance) < 0.19
    assert np.mean(np.array(hidden)[:, 1]) == pytest.approx(1.0, abs=0.05)


def test_hidden_reach_is_attained():
    rng, penalty, floor, energy = np.random.default_rng(4), 3.0, 20.0, 2.0
    reach = hidden_reach(energy, penalty, floor)
    for _ in range(200):
        k = rng.uniform(0.0, floor - penalty, 5)
        target, outcomes = (column / linalg.norm(column) for column in rng.normal(size=(2, 5)))
        lost = target @ (np.sqrt(k) * np.sqrt(energy) * outcomes * (1.0 / (k + penalty) - 1.0 / floor))
        assert abs(lost) <= reach
    worst = np.linspace(1e-4, floor - penalty, 100_000)
    assert reach == pytest.approx(np.max(np.sqrt(energy * worst) * (1.0 / (worst + penalty) - 1.0 / floor)), rel=1e-4)
    assert hidden_reach(energy, floor, floor) == 0.0
    assert hidden_reach(energy, 0.0, floor) < math.inf


@pytest.mark.parametrize("penalty", [0.0, 2.5])
@pytest.mark.parametrize("shape", [(12, 5), (4, 9)])
def test_ridge_from_rows_is_ridge(penalty, shape):
    rng = np.random.default_rng(4)
    rows, outcomes = rng.normal(size=shape), rng.normal(size=(shape[0], 2))
    d = shape[1]
    expected = linalg.pinv(rows.T @ rows + penalty * np.eye(d), rtol=1e-10) @ rows.T @ outcomes
    np.testing.assert_allclose(ridge_from_rows(rows, outcomes, penalty), expected, atol=1e-10)


def test_ridge_from_rows_thresholds_singular_values():
    rng = np.random.default_rng(5)
    rows, outcomes = rng.normal(size=(12, 5)), rng.normal(size=(12, 2))
    left, singular, right = linalg.svd(rows, full_matrices=False)
    truncated = (left[:, :2] * singular[:2]) @ right[:2]
    expected = linalg.pinv(truncated) @ outcomes
    np.testing.assert_allclose(ridge_from_rows(rows, outcomes, 0.0, 2), expected, atol=1e-10)


def test_noise_alone_stands_out_of_itself_about_once_in_a_hundred_times():
    """A little less often in few dimensions: 42 of 8,000 times, give or take 6.5."""
    d, times, rng = 20, 8000, np.random.default_rng(4)
    noise = rng.normal(size=(times, d, d))
    noise = (noise + np.swapaxes(noise, 1, 2)) / np.sqrt(2.0)
    largest = np.argsort(np.linalg.eigvalsh(noise)[:, -1])[-200:]
    assert 20 <= sum(len(DenoisedMoments.of(noise[one], 1.0).values) > 0 for one in largest) <= 100
