"""The bias of clipped residuals, from sums of what the clip cuts off."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, DescentResult
from dpfast.solvers.clipping_bias import (
    FEWER,
    Excess,
    RareBiases,
    Tail,
    _posterior,
    corrected,
    corrected_about,
    hidden_share,
    tail,
)

EDGES = np.exp2(np.arange(-20, 13) / 2.0)
N = 10_000.0


def counted(spread, people=1e6):
    """Counts of lognormal sizes, from each edge to the next."""
    above = people * stats.lognorm(spread).sf(EDGES)
    return -np.diff(above, append=0.0)


@pytest.mark.parametrize("spread", [0.5, 0.9, 1.4])
@pytest.mark.parametrize("share", [0.03, 0.13, 0.3])
def test_the_tail_of_lognormal_sizes_is_found(spread, share):
    law = stats.lognorm(spread)
    clip = law.isf(share)
    found = tail(counted(spread), 10.0, EDGES, clip, share, 1e6)
    assert found.clip == pytest.approx(law.isf(share * FEWER), rel=0.05)
    mean = integrate.quad(law.sf, clip, math.inf)[0]
    up_to_clip = integrate.quad(law.sf, clip, law.isf(share * FEWER))[0]
    assert found.mean == pytest.approx(mean, rel=0.1)
    assert found.factor == pytest.approx(mean / up_to_clip, rel=0.05)


@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e9])
def test_any_counts_have_a_tail(clip):
    rng = np.random.default_rng(0)
    for deviation in (1.0, 1e9):
        found = tail(deviation * rng.normal(size=len(EDGES)), deviation, EDGES, clip, 0.2, N)
        assert found.clip > clip
        assert found.factor > 1.0
        assert 0.0 < found.mean < math.inf


def excess(total, deviation, factor=1.0, mean=1.0):
    return Excess(total, deviation, Tail(1.0, factor, mean, 1.8, 0.13))


def coordinates(features, constant, noise=1.0):
    return replace(
        Coordinates.plain(np.zeros(features), math.sqrt(features), N, constant=constant),
        xx=N * np.eye(features + constant),
        noise=noise,
    )


def nobody(coordinates, outcomes):
    """No column of few people."""
    features, size = len(coordinates.whitening), len(coordinates.xx)
    nothing = np.zeros((outcomes, features))
    return RareBiases(np.eye(features, size), nothing, nothing, np.zeros(features), np.zeros(features, bool))


def found_at(theta, deviation=1e-3):
    size = len(theta)
    covariance = deviation**2 * np.eye(size)
    return DescentResult(theta, covariance, np.zeros((size, size)))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("outcomes", [1, 3])
@pytest.mark.parametrize("features", [1, 4])
def test_a_bias_far_above_the_noise_is_taken_off(constant, outcomes, features):
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(features + constant, outcomes))
    bias = 0.3 * theta
    measured, here = excess(N * bias, 1e-4 * N), coordinates(features, constant)
    told = corrected(found_at(theta), here, measured, (theta + bias)[-1], 1e-8, nobody(here, outcomes))
    np.testing.assert_allclose(told.theta, theta + bias, atol=3e-3)
    assert told.covariance.shape == (outcomes, features + constant, features + constant)
    assert np.abs(told.covariance).max() < 1e-5
    # What is extrapolated counts as uncertain.
    measured = excess(N * bias, 1e-4 * N, factor=1.2)
    more = corrected(found_at(theta), here, measured, theta[-1], 1e8, nobody(here, outcomes))
    lead = theta[:features, 0]
    assert np.trace(more.covariance[0]) > 100.0 * np.trace(told.covariance[0])
    assert (more.theta - theta)[:features, 0] @ lead > 1.1 * (told.theta - theta)[:features, 0] @ lead


@pytest.mark.parametrize("constant", [False, True])
def test_limits_are_about_the_whole_bias_where_a_ridge_against_noise_would_take_a_third(constant):
    theta = np.random.default_rng(1).normal(size=(4 + constant, 1))
    bias, here = 0.3 * theta, coordinates(4, constant, noise=N / 8.0)
    np.testing.assert_allclose(N * here.ridged_inverse(), np.eye(len(theta)) / 1.5)
    measured = excess(N * bias, 1e-4 * N)
    told = corrected(found_at(theta), here, measured, (theta + bias)[-1], 1e-8, nobody(here, 1))
    np.testing.assert_allclose(told.center, theta + bias, atol=3e-3)
    # Estimates are moved by what is above the noise.
    np.testing.assert_allclose(told.theta, theta + bias / 1.5, atol=3e-3)


@pytest.mark.parametrize("level", [None, 0.5])
def test_the_constant_shows_how_large_a_bias_may_be_of_which_nothing_is_seen(level):
    theta = np.full((3, 1), 0.3)
    here, measured = coordinates(2, True), excess(np.zeros((3, 1)), None, mean=1e-3)
    told = corrected(found_at(theta), here, measured, theta[-1] + (level or 0.0), 1e-4, nobody(here, 1))
    widths = np.sqrt(np.diag(told.covariance[0])[:2])
    assert np.all(widths > 0.2) if level else np.all(widths < 0.05)


@pytest.mark.parametrize("constant", [False, True])
def test_what_may_be_noise_is_mostly_left_and_limits_allow_for_it(constant):
    rng = np.random.default_rng(2)
    errors, allowed = [], []
    theta, here = rng.normal(size=(5 + constant, 1)), coordinates(5, constant)
    for _ in range(200):
        total = 1e-2 * N * rng.normal(size=theta.shape)
        level = theta[-1] + 1e-2 * rng.normal(size=1)
        measured = excess(total, 1e-2 * N, mean=0.1)
        told = corrected(found_at(theta), here, measured, level, 1e-4, nobody(here, 1))
        errors.append(np.sum((told.theta - theta) ** 2))
        allowed.append(np.trace(told.covariance[0]))
    noise = 1e-4 * len(theta)
    assert np.mean(errors) < 0.1 * noise
    assert np.mean(errors) < np.mean(allowed) < 0.6 * noise


@pytest.mark.parametrize("deviation", [30.0, None])
def test_a_constant_may_lie_in_any_direction(deviation):
    """What is expected of coefficients in other coordinates is the same, in them."""
    rng = np.random.default_rng(2)
    turned, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    theta, total = rng.normal(size=(4, 2)), 300.0 * rng.normal(size=(4, 2))
    plain = coordinates(4, constant=False)
    last = replace(plain, constant=True)
    seen = np.zeros((4, 2)) if deviation is None else total
    rare = RareBiases(
        rng.normal(size=(2, 4)), *rng.normal(0.0, 0.1, (2, 2, 2)) ** 2, rng.uniform(size=2), np.array([True, False])
    )
    expected = corrected(found_at(theta), last, excess(seen, deviation, 1.5), theta[-1], None, rare)
    there = found_at(turned @ theta), plain, excess(turned @ seen, deviation, 1.5)
    found = corrected_about(3.0 * turned[:, -1], *there, rare._replace(directions=rare.directions @ turned.T))
    np.testing.assert_allclose(turned[:, -1] @ found.theta, expected.theta[-1], atol=1e-9)
    np.testing.assert_allclose(found.center, turned @ expected.center, atol=1e-9)
    scale = np.max(np.abs(expected.covariance))
    np.testing.assert_allclose(found.covariance, turned @ expected.covariance @ turned.T, atol=1e-6 * scale)


def test_a_bias_that_a_rare_column_may_have_is_no_others():
    """Coefficients may all be biased along themselves: what is expected of the rare one is not shared out so."""
    here, theta = coordinates(4, constant=False), np.array([[1.0], [0.5], [-0.5], [2.0]])
    rare = nobody(here, 1)
    rare.deviation[0, 3] = 3.0 * np.sqrt(excess(theta, None, 1.5).tail.mean)
    seen = here, excess(np.zeros((4, 1)), None, 1.5), theta[-1], 1.0
    spread = {
        name: np.sqrt(np.diag(corrected(found_at(theta), *seen, rare._replace(is_rare=is_rare)).covariance[0]))
        for name, is_rare in (("none", np.zeros(4, bool)), ("last", np.arange(4) == 3))
    }
    nothing = np.sqrt(np.diag(corrected(found_at(theta), *seen, nobody(here, 1)).covariance[0]))
    print(spread, nothing)
    np.testing.assert_allclose(spread["last"][:3], nothing[:3], rtol=0.02)
    assert spread["none"][0] > 1.2 * nothing[0]
    assert spread["last"][3] > 2.0 * nothing[3]


def test_a_bias_of_which_nothing_is_seen_is_as_uncertain_as_a_priori():
    """With probability .15 there is none; its squares are as likely as each other."""
    _, covariance = _posterior(np.zeros(3), np.full(3, 1e4), np.zeros((3, 3)), 2, 1.0, np.zeros(4), 1.0)
    assert covariance[0, 0] == pytest.approx(0.85 * np.mean(np.exp2([-6.0, -4.0, -2.0, 0.0])), rel=1e-3)


@pytest.mark.parametrize("skew", [0.0, 0.1])
def test_posterior_limits_hold_nine_times_in_ten_for_biases_about_as_assumed(skew):
    rng = np.random.default_rng(3)
    theta = np.append(rng.normal(size=4), 1.5)[:, None]
    own = theta[:4, 0] / np.linalg.norm(theta[:4])
    here, inside = coordinates(4, True), []
    for _ in range(300):
        size = skew * rng.choice([0.25, 0.5, 1.0]) * rng.normal() / math.sqrt(5)
        bias = np.append(abs(size) * rng.choice([0.0, 0.5, 1.0]) * own, size)
        noisy = bias + 0.01 * rng.normal(size=5)
        level = theta[-1] + size + 3e-3 * rng.normal(size=1)
        measured = excess(N * noisy[:, None], 0.01 * N, mean=skew)
        told = corrected(found_at(theta), here, measured, level, 9e-6, nobody(here, 1))
        for direction in (np.eye(5)[-1], np.append(own, 0.0)):
            off = direction @ (told.center[:, 0] - theta[:, 0] - bias)
            inside.append(off**2 <= 1.96**2 * direction @ told.covariance[0] @ direction + 1e-12)
    assert np.mean(inside) > 0.88


def test_clipped_steps_on_skewed_outcomes_end_at_least_squares():
    """Costs, whose spread grows with their mean: the fixed point of clipped steps, and the exact excess there."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.normal(size=(20_000, 2)), np.ones(20_000)])
    y = np.exp(x @ [0.4, -0.3, 0.0] + 0.6 * rng.normal(size=20_000))
    exact, theta = np.linalg.lstsq(x, y)[0], np.zeros(3)
    lengths, share = np.linalg.norm(x, axis=1), 0.13
    for _ in range(60):
        r = y - x @ theta
        sizes = lengths * np.abs(r)
        clip = np.quantile(sizes, 1.0 - share)
        theta = theta + np.linalg.solve(x.T @ x, x.T @ (r * np.minimum(1.0, clip / sizes)))
    counts = np.histogram(sizes, np.append(EDGES, math.inf))[0].astype(float)
    told = tail(counts, 20.0, EDGES, clip, share, 20_000.0)
    cut = x.T @ (r * (np.minimum(1.0, told.clip / sizes) - np.minimum(1.0, clip / sizes)))
    here = replace(coordinates(2, True), xx=x.T @ x)
    measured = Excess(cut[:, None], 20.0, told)
    better = corrected(found_at(theta[:, None]), here, measured, exact[-1:], 1e9, nobody(here, 1)).theta[:, 0]
    assert np.abs(theta - exact).max() > 0.1
    assert np.abs(better - exact).max() < 0.25 * np.abs(theta - exact).max()


def test_the_ridge_of_the_final_estimate_keeps_directions_below_the_noise_where_they_are():
    here = replace(coordinates(2, False, noise=10.0), xx=np.diag([1e4, -5.0]))
    inverse = here.ridged_inverse()
    assert inverse[0, 0] == pytest.approx(1e-4, rel=0.01)
    assert 0.0 < inverse[1, 1] <= 1.0 / (2.0 * 10.0 * math.sqrt(2.0)) * (1.0 + 1e-12)
    assert descent.inverse(inverse)[1, 1] > 0.0


def test_a_second_clip_is_at_most_half_as_far_again_for_few_people():
    own, none = (tail(counted(1.0), 10.0, EDGES, 5.0, 0.05, 1e6, far) for far in (1e9, 0.0))
    nearer = tail(counted(1.0), 10.0, EDGES, 5.0, 0.05, 1e6, 1.2 * none.clip)
    assert own.clip == pytest.approx(1.5 * none.clip)
    assert nearer.clip == pytest.approx(1.2 * none.clip)
    assert own.mean == none.mean
    assert 1.0 < own.factor < nearer.factor < none.factor


def test_less_of_a_bias_is_beyond_a_clip_that_is_farther_out():
    parts = hidden_share(np.array([0.5, 2.0, 4.0, 6.0, 1e9]))
    assert parts[:2].tolist() == [1.0, 1.0]
    assert np.all(np.diff(parts[1:]) < 0.0)
    assert parts[-1] == 0.0


@pytest.mark.parametrize("unseen", [0.0, 0.5, 1.0])
def test_limits_of_a_coefficient_of_few_people_hold_the_bias_that_is_not_seen(unseen):
    """Biases as they are expected a priori: 87% of limits of 95% are less than seven deviations of a binomial law."""
    rng = np.random.default_rng(5)
    here, theta = coordinates(4, True), np.array([0.3, -0.2, 0.1, 0.0, 1.0])[:, None]
    rare, inside, known = nobody(here, 1), [], []
    rare.deviation[0, 3], rare.mean[0, 3], rare.hidden[3] = 0.05, 0.05, unseen
    for _ in range(1_000):
        bias = np.array([0.0, 0.0, 0.0, 0.05 + 0.05 * rng.normal(), 0.0])
        seen = bias * (1.0 - unseen) + 0.01 * rng.normal(size=5)
        seen[3] += 0.5 * unseen * 0.05 * rng.normal()
        told = corrected(found_at(theta), here, excess(N * seen[:, None], 0.01 * N, mean=1e-3), theta[-1], 1e-6, rare)
        off = told.center[3, 0] - theta[3, 0] - bias[3]
        inside.append(abs(off) <= 1.96 * math.sqrt(told.covariance[0, 3, 3]))
        known.append(told.covariance[0, 3, 3])
    assert np.mean(inside) > 0.87
    assert (0.02 < math.sqrt(np.mean(known)) < 0.06) == (unseen > 0.0)
