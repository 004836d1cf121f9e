"""Errors of estimates by a step along noisy sums: those of repeated releases, none where noise hides a direction."""

import math

import numpy as np
import pytest

from dpfast.solvers.inference import Rates, Sums, errors, newton_step

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


def test_a_direction_that_stands_out_a_little_is_not_known():
    """Noise would multiply a step along it by 8.5 over the curvature, a quarter at most."""
    for curvature, is_known in ((30.0, False), (40.0, True)):
        sums = Sums(np.diag([400.0, 300.0, curvature]), J, np.ones(3), 6.0, 25.0)
        assert errors(THETA, sums).known.tolist() == [True, True, is_known]


def test_noise_in_curvatures_counts_even_if_the_last_step_seems_short():
    """By the errors of the coefficients themselves, which the step shares."""
    inverse, h = np.linalg.inv(H), 12.0
    plain = inverse @ (J + 625.0 * np.eye(3)) @ inverse
    added = inverse @ (h**2 * (np.trace(plain) * np.eye(3) + plain)) @ inverse
    found = errors(THETA, Sums(H, J, np.zeros(3), h, 25.0))
    np.testing.assert_allclose(found.covariance, plain + added, rtol=1e-9)


def test_without_noise_a_step_is_newtons():
    sums = Sums(H, J, H @ [0.1, 0.2, 0.3], 0.0, 0.0)
    np.testing.assert_allclose(newton_step(THETA, sums), THETA + np.array([0.1, 0.2, 0.3]))
    found = errors(THETA, sums)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(H) @ J @ np.linalg.inv(H), rtol=1e-10)
    np.testing.assert_array_equal(found.covariance, found.covariance.T)


LENGTH = math.hypot(1.0, 0.25)


def sums_of_counts(theta, rows, outcomes, constant=0.25, noise=1e-6):
    """Sums without noise, that are said to have a little."""
    rates = np.exp(rows @ theta)
    scored = rows * (outcomes - rates)[:, None]
    curvature = (rows * rates[:, None]).T @ rows
    return Sums(curvature, scored.T @ scored, scored.sum(axis=0), noise, noise, Rates(constant, LENGTH))


def counted(rate, n=2_000):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 3)) / 3.0
    rows[:, 2] = 0.25
    theta = np.array([0.8, -0.5, 4.0 * math.log(rate)])
    return rows, np.exp(rows @ theta), theta


@pytest.mark.parametrize("away", [-2.9, -0.5, 0.0, 1.0, 2.9])
def test_one_step_of_counts_undoes_any_shift_of_predictions(away):
    rows, outcomes, theta = counted(0.05)
    start = np.add(theta, [0.0, 0.0, 4.0 * away])
    np.testing.assert_allclose(newton_step(start, sums_of_counts(start, rows, outcomes)), theta, atol=1e-6)
    assert errors(start, sums_of_counts(start, rows, outcomes)).known.all()


def test_shifted_sums_are_those_at_the_shifted_coefficients():
    """Errors too are those there, but for the scores' squares."""
    rows, outcomes, theta = counted(0.05)
    shifted = np.add(theta, [0.2, 0.1, 0.0])
    shifted[2] += 4.0 * math.log(outcomes.sum() / np.exp(rows @ shifted).sum())
    start = shifted - [0.0, 0.0, 6.0]
    there, here = (sums_of_counts(one, rows, outcomes) for one in (shifted, start))
    np.testing.assert_allclose(newton_step(start, here), newton_step(shifted, there), rtol=1e-9)
    here = here._replace(squares=there.squares)
    np.testing.assert_allclose(errors(start, here).covariance, errors(shifted, there).covariance, rtol=1e-5)


def test_steps_of_counts_are_held_and_errors_after_a_held_one_are_not_known():
    """To a change of 2 for the longest row, beyond the shift."""
    rows, outcomes, theta = counted(0.5)
    for far, is_close in ((0.5, True), (20.0, False)):
        sums = sums_of_counts(theta, rows, outcomes)
        sums = sums._replace(score=sums.curvature @ [far, 0.0, 0.0])
        sums = sums._replace(score=sums.score - sums.curvature[2] * sums.score[2] / sums.curvature[2, 2])
        found = errors(theta, sums)
        moved = found.theta - theta
        assert found.known.tolist() == [is_close] * 3
        assert np.linalg.norm(moved[:2]) + 0.25 * abs(moved[2]) == pytest.approx(0.54 if is_close else 2.0, rel=1e-3)


@pytest.mark.parametrize("constant", [0.25, 0.0])
def test_a_last_step_is_judged_by_the_rates_that_it_changes(constant):
    """Far for the few who have a feature, it is taken whole, and errors are known; before the last it is cut."""
    for share, is_close in ((0.003, True), (0.3, False)):
        rng = np.random.default_rng(0)
        rows = np.full((4_000, 2 + (constant > 0.0)), constant)
        rows[:, 0], rows[:, 1] = rng.normal(size=4_000) / 3.0, 0.9 * (rng.random(4_000) < share)
        theta = np.zeros(rows.shape[1])
        sums = sums_of_counts(theta, rows, np.ones(4_000), constant=constant)
        sums = sums._replace(score=sums.curvature @ np.r_[0.1, 4.0, theta[2:]])
        found = errors(theta, sums)
        assert found.known.tolist() == [is_close] * len(theta)
        assert (found.theta[1] == pytest.approx(4.0, rel=0.1)) == is_close
        assert newton_step(theta, sums)[1] < 2.2


def test_counts_that_are_no_more_than_noise_tell_nothing():
    rows, outcomes, theta = counted(0.05)
    sums = sums_of_counts(theta, rows, outcomes)
    total = 0.25 * outcomes.sum()
    assert errors(theta, sums._replace(noise_of_score=0.45 * total)).known.all()
    assert not errors(theta, sums._replace(noise_of_score=0.55 * total)).known.any()


def test_without_a_constant_steps_of_counts_are_newtons_and_held():
    rows, outcomes, _ = counted(0.5)
    rows, start = rows[:, :2], np.array([0.2, -0.3])
    sums = sums_of_counts(start, rows, outcomes, constant=0.0)
    plain = newton_step(start, sums._replace(rates=None))
    np.testing.assert_array_equal(newton_step(start, sums), plain)
    held = newton_step(start, sums._replace(score=1e3 * sums.score))
    assert np.linalg.norm(held - start) * LENGTH == pytest.approx(2.0)


@pytest.mark.parametrize("constant", [0.25, 0.0])
def test_the_largest_prediction_is_reached_and_not_passed(constant):
    theta = np.array([1.5, -2.0, -1.0])
    turned = np.random.default_rng(0).normal(size=(20_000, 2 if constant else 3))
    rows = math.sqrt(LENGTH**2 - constant**2) * turned / np.linalg.norm(turned, axis=1, keepdims=True)
    if constant:
        rows = np.column_stack([rows, np.full(len(rows), constant)])
    assert (
        Rates(constant, LENGTH).most(theta) * (1.0 - 1e-3)
        <= (rows @ theta).max()
        <= Rates(constant, LENGTH).most(theta)
    )


@pytest.mark.slow
@pytest.mark.parametrize("away", [-0.3, 0.0, 0.3])
def test_errors_of_counts_are_those_of_repeated_releases(away):
    """Of 2,000: limits cover 92% to 98%, wherever the step begins, noise in curvatures included."""
    rng, (rows, means, theta) = np.random.default_rng(1), counted(0.5)
    start, covered = theta + np.array([0.1, -0.1, 4.0 * away]), []
    for _ in range(2_000):
        sums = sums_of_counts(start, rows, rng.poisson(means), noise=4.0)
        turned = np.triu(rng.normal(size=(3, 3)), 1)
        noise = 4.0 * (turned + turned.T + np.diag(math.sqrt(2.0) * rng.normal(size=3)))
        score = sums.score + 20.0 * rng.normal(size=3)
        found = errors(start, sums._replace(curvature=sums.curvature + noise, score=score, noise_of_score=20.0))
        covered.append(np.abs(found.theta - theta) < 1.96 * np.sqrt(np.diag(found.covariance)))
    held = np.mean(covered, axis=0)
    assert np.all((held > 0.92) & (held < 0.98)), held
