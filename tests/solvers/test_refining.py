"""Stages of least squares: exact without noise, generalised least squares with it, and honest of their errors."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfast.solvers.refining import (
    Belief,
    Clip,
    clip_from_counts,
    first_belief,
    has_steps,
    schedule,
    shortening_bias,
    size_edges,
    solution,
    whitened,
    with_residuals,
    with_row_moments,
)
from dpfast.solvers.ridge import MomentNoise, NoisyMoments

HARDLY = MomentNoise(1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9)


def table(n=400, d=4, outcomes=2, seed=0, shift=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(1.0, 0.1, d) + shift
    return x, x @ rng.normal(size=(d, outcomes)) + rng.normal(size=(n, outcomes)) + 2.0


def moments(x, y, noise=HARDLY, center=None, seed=None):
    """Moments with noise of its scales, or with next to none."""
    z = x if center is None else x - center
    d, outcomes = x.shape[1], y.shape[1]
    rng = np.random.default_rng(seed)
    scale = 0.0 if seed is None else 1.0
    return NoisyMoments(
        z.T @ z + scale * symmetric(rng, d, noise),
        z.T @ y + scale * noise.cross * rng.normal(size=(d, outcomes)),
        noise,
        z.sum(axis=0) + scale * noise.x * rng.normal(size=d),
        y.sum(axis=0) + scale * noise.y * rng.normal(size=outcomes),
        len(x) + scale * noise.n * rng.normal(),
    )


def symmetric(rng, d, noise):
    above = np.triu(rng.normal(size=(d, d)) * noise.off_diagonal, 1)
    return above + above.T + np.diag(rng.normal(size=d) * noise.diagonal)


def rows_of(belief, x, center=None):
    z = x if center is None else x - center
    return (np.column_stack([z, np.ones(len(z))]) if belief.constant else z) @ belief.basis


def stepped(belief, x, y, deviation, center=None, rng=None):
    estimate = belief.solve()
    rows = rows_of(belief, x, center)
    sums = rows.T @ (y - rows @ estimate.theta)
    noise = 0.0 if rng is None else deviation * rng.normal(size=sums.shape)
    return with_residuals(belief, estimate, sums + noise, deviation)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("center", [None, np.linspace(-1.0, 2.0, 4)])
@pytest.mark.parametrize("ridge", [0.0, 5.0, np.array([1.0, 0.0, 20.0, 3.0]), None])
def test_without_noise_it_is_ridge_regression_from_the_first_stage_on(fit_intercept, center, ridge):
    x, y = table()
    belief = first_belief(moments(x, y, center=center), center=center, fit_intercept=fit_intercept, ridge=ridge)
    design = np.column_stack([x, np.ones(len(x))]) if fit_intercept else x
    penalty = np.broadcast_to(0.0 if ridge is None else ridge, 4)
    gram = design.T @ design + np.diag(np.append(penalty, 0.0) if fit_intercept else penalty)
    expected = np.linalg.solve(gram, design.T @ y).T
    for _ in range(3):
        fitted = solution(belief, belief.solve())
        np.testing.assert_allclose(fitted.coef, expected[:, :4], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(fitted.intercept, expected[:, 4] if fit_intercept else 0.0, rtol=1e-6, atol=1e-6)
        belief = stepped(belief, x, y, 1e-9, center)


def test_steps_reach_least_squares_whatever_noise_there_is_in_the_moments():
    x, y = table(n=4_000, shift=0.0)
    noise = MomentNoise(40.0, 30.0, 4_000.0)
    belief = first_belief(moments(x, y, noise, seed=1))
    exact = np.linalg.lstsq(x, y, rcond=None)[0].T
    errors = []
    for _ in range(40):
        belief = stepped(belief, x, y, 1e-6)
        errors.append(np.max(np.abs(solution(belief, belief.solve()).coef - exact)))
    assert errors[-1] < 1e-6 < 1e-2 < errors[0]


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_measurements_are_pooled_as_least_squares_of_all_of_them_stacked(fit_intercept):
    x, y = table(n=50)
    noise = MomentNoise(3.0, 2.0, 5.0, 2.0, 4.0, 1.0)
    belief = first_belief(moments(x, y, noise, seed=2), fit_intercept=fit_intercept, ridge=4.0)
    rng = np.random.default_rng(3)
    size = len(belief.xx)
    measured, weights = [belief.xy], [belief.precision]
    for deviation in (2.0, 0.5):
        estimate = belief.solve()
        sums = rng.normal(size=(size, 2))
        variances = deviation**2 + belief.variance @ np.diag(estimate.covariance)
        measured.append(sums + belief.xx @ estimate.theta)
        weights.append(np.diag(1.0 / variances))
        belief = with_residuals(belief, estimate, sums, deviation)
    roots = np.vstack([np.linalg.cholesky(weight).T for weight in weights])
    targets = np.vstack([np.linalg.cholesky(weight).T @ one for weight, one in zip(weights, measured, strict=True)])
    stacked = np.linalg.lstsq(roots, targets, rcond=None)[0]
    np.testing.assert_allclose(belief.xy, stacked, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(belief.precision), np.linalg.inv(roots.T @ roots), rtol=1e-9, atol=1e-12)


def test_coordinates_are_those_in_which_moments_and_their_noise_are_the_identity():
    x, y = table(n=3_000, shift=0.0)
    noise = MomentNoise(20.0, 20.0 / math.sqrt(2.0), 10.0)
    belief = first_belief(moments(x, y, noise, seed=4))
    spectrum = math.sqrt(2.5) * noise.diagonal
    values, vectors = np.linalg.eigh(moments(x, y, noise, seed=4).xx)
    known = (vectors * np.maximum(values, 0.0)) @ vectors.T + spectrum * np.eye(4)
    np.testing.assert_allclose(belief.whitening @ known @ belief.whitening.T, np.eye(4), atol=1e-9)


def test_whitened_rows_do_not_depend_on_units():
    x, y = table(n=1_000)
    belief = first_belief(moments(x, y, MomentNoise(9.0, 5.0, 10.0), seed=5), ridge=0.0)
    units = np.array([3.0, 1e-3, 1e4, 1.0])
    squares = np.outer(units, units)
    moved = whitened(
        replace(
            belief,
            basis=belief.basis * units,
            xx=belief.xx * squares,
            variance=belief.variance * squares**2,
            xy=belief.xy * units[:, None],
            root=belief.root / units,
            metric=belief.metric * squares,
        )
    )
    own = whitened(belief)
    np.testing.assert_allclose(np.abs(rows_of(moved, x)), np.abs(rows_of(own, x)), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moved.solve().coef, own.solve().coef, rtol=1e-6)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("center", [None, np.linspace(-1.0, 2.0, 4)])
def test_rows_to_sum_are_the_coordinates_of_the_belief(fit_intercept, center):
    x, y = table()
    noise = MomentNoise(9.0, 5.0, 10.0, 2.0, 3.0, 1.0)
    belief = first_belief(moments(x, y, noise, center, seed=5), center=center, fit_intercept=fit_intercept)
    middle, basis = belief.row_map()
    z = x if center is None else x - center
    rows = rows_of(belief, x, center)
    np.testing.assert_allclose((z - middle) @ basis, rows[:, :4], atol=1e-9)
    if fit_intercept:
        assert np.ptp(rows[:, 4]) < 1e-12 < abs(rows[0, 4])


@pytest.mark.parametrize("private_count", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_moments_of_whitened_rows_count_by_their_precision(fit_intercept, private_count):
    x, y = table(n=2_000)
    noise = MomentNoise(0.9, 0.64, 300.0, 4.0, 4.0, 0.3 if private_count else 0.0)
    belief = first_belief(moments(x, y, noise, seed=6), fit_intercept=fit_intercept, ridge=0.0)
    middle, basis = belief.row_map()
    rows = (x - middle) @ basis
    sums = (rows.sum(axis=0), float(len(x)) if private_count else None) if fit_intercept else (None, None)
    told = with_row_moments(belief, rows.T @ rows, MomentNoise(1e-6, 1e-6, 0.0, 1e-6, 0.0, 1e-6), *sums)
    np.testing.assert_allclose(told.xx, rows_of(told, x).T @ rows_of(told, x), atol=1e-4)
    assert np.max(told.variance) < 1e-6
    nothing = with_row_moments(belief, rows.T @ rows, MomentNoise(1e9, 1e9, 0.0, 1e9, 0.0, 1e9), *sums)
    np.testing.assert_allclose(nothing.solve().coef, belief.solve().coef, rtol=0.01)  # coordinates move the floor


def test_what_is_unknown_of_the_coefficients_is_as_large_as_it_says():
    x = np.random.default_rng(0).normal(size=(5_000, 3)) * [1.0, 0.7, 0.5]
    y = x @ np.random.default_rng(1).normal(size=(3, 20)) + np.random.default_rng(2).normal(size=(5_000, 20))
    exact = np.linalg.lstsq(x, y, rcond=None)[0]
    noise = MomentNoise(60.0, 60.0 / math.sqrt(2.0), 100.0)
    scores = []
    for seed in range(40):
        rng = np.random.default_rng(100 + seed)
        belief = first_belief(moments(x, y, noise, seed=seed), ridge=0.0)
        for deviation in (1.0, 0.5):
            belief = stepped(belief, x, y, deviation, rng=rng)
        fitted = solution(belief, belief.solve())
        scores.append((fitted.coef.T - exact) / fitted.coef_std.T)
    # 2,400 scores, but the noise of X'X in common to 20 outcomes: in simulation within .06 of 1.
    assert 0.85 < math.sqrt(np.mean(np.square(scores))) < 1.15


def test_less_noise_never_makes_the_expected_error_larger():
    x, y = table(n=2_000, shift=0.0)
    unknown = []
    for factor in (8.0, 4.0, 2.0, 1.0):
        belief = first_belief(moments(x, y, MomentNoise(9.0 * factor, 6.0 * factor, 20.0 * factor)), ridge=0.0)
        belief = stepped(belief, x, y, factor)
        unknown.append(np.trace(x @ solution_covariance(belief) @ x.T))
    assert unknown == sorted(unknown, reverse=True)


def solution_covariance(belief: Belief):
    return belief.basis @ belief.solve().covariance @ belief.basis.T


@pytest.mark.parametrize("seed", range(5))
def test_the_clip_costs_nearly_the_least_that_any_does(seed):
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(size=3_000) * rng.uniform(0.2, 2.0)) * 10.0 ** rng.uniform(-3, 3)
    edges = size_edges(float(np.max(sizes)) * 5.0)
    counts = np.bincount(np.searchsorted(edges, sizes, side="right"), minlength=len(edges) + 1).astype(float)
    spread = rng.uniform(1.0, 100.0)

    def cost(clip):
        excess = np.maximum(sizes - clip, 0.0)
        return 8.0 * (spread * clip) ** 2 + np.sum(excess**2) + 2.0 / 4.0 * np.sum(excess) ** 2

    clip = clip_from_counts(counts, 0.0, edges, shape=(4, 2), sum_deviation=spread).size
    assert cost(clip) <= 1.1 * min(map(cost, np.geomspace(sizes.min(), edges[-1], 2_000)))


def test_the_clip_is_never_above_the_largest_size_there_can_be():
    edges = size_edges(7.0)
    assert edges[-1] == 7.0
    counts = np.zeros(len(edges) + 1)
    counts[-1] = 1e12
    assert clip_from_counts(counts, 1.0, edges, shape=(3, 1), sum_deviation=1e-9).size == 7.0
    assert clip_from_counts(np.zeros(len(edges) + 1), 1.0, edges, shape=(3, 1), sum_deviation=1.0).size < edges[0]


def test_one_lucky_count_far_up_does_not_move_the_clip():
    edges = size_edges(1e6)
    counts = np.zeros(len(edges) + 1)
    counts[np.searchsorted(edges, 1.0)] = 5_000.0
    quiet = clip_from_counts(counts, 30.0, edges, shape=(20, 1), sum_deviation=10.0).size
    counts[-5] += 2.5 * 30.0
    assert clip_from_counts(counts, 30.0, edges, shape=(20, 1), sum_deviation=10.0).size <= 4.0 * quiet


@pytest.mark.parametrize("shape", [(5, 1), (5, 6)])
@pytest.mark.parametrize("bounds", [False, True])
@pytest.mark.parametrize("steps", [None, 0, 1, 2, 5])
def test_shares_of_a_fit_add_to_the_whole(steps, bounds, shape):
    shares = schedule(steps, bounds=bounds, shape=shape)
    assert steps is None or shares.steps == steps
    one = (shares.bounds, shares.moments, shares.row_sizes, shares.row_moments, *shares.sizes, *shares.sums)
    assert min(one) >= 0.0
    assert math.fsum(one) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("center", [None, np.linspace(-1.0, 2.0, 4)])
@pytest.mark.parametrize("ridge", [None, 0.0, 2.0])
def test_whatever_is_released_there_is_an_answer(fit_intercept, center, ridge):
    rng = np.random.default_rng(0)
    for _ in range(20):
        size = 10.0 ** rng.uniform(-6, 8, size=6)
        noise = MomentNoise(*size)
        garbage = NoisyMoments(
            symmetric(rng, 4, noise), noise.cross * rng.normal(size=(4, 2)), noise, noise.x * rng.normal(size=4),
            noise.y * rng.normal(size=2), noise.n * rng.normal(),
        )  # fmt: skip
        belief = first_belief(garbage, center=center, fit_intercept=fit_intercept, ridge=ridge)
        middle, basis = belief.row_map()
        assert np.all(np.isfinite(middle))
        assert np.all(np.isfinite(basis))
        sums = (rng.normal(size=4) * size[3], size[5] * rng.normal()) if fit_intercept else (None, None)
        belief = with_row_moments(belief, symmetric(rng, 4, noise), noise, *sums, clip=Clip(1.0, size[0], 0.1))
        for deviation in size[:3]:
            estimate = belief.solve()
            counts = 10.0 * rng.normal(size=41)
            edges = size_edges(size[4])
            clip = clip_from_counts(counts, 10.0, edges, shape=(len(belief.xx), 2), sum_deviation=deviation)
            assert 0.0 < clip.size <= edges[-1]
            belief = with_residuals(belief, estimate, deviation * rng.normal(size=belief.xy.shape), deviation, clip)
        fitted = solution(belief, belief.solve())
        assert np.all(np.isfinite(fitted.coef))
        assert np.all(np.isfinite(fitted.coef_std))
        assert np.all(np.isfinite(fitted.intercept))


def test_a_sum_clipped_where_the_histogram_shows_nothing_counts_for_nothing():
    x, y = table(shift=0.0)
    belief = first_belief(moments(x, y, MomentNoise(9.0, 6.0, 20.0)), ridge=1.0)
    edges = size_edges(10.0)
    clip = clip_from_counts(np.zeros(41), 30.0, edges, shape=(4, 2), sum_deviation=1.0)
    assert clip.bias == math.inf
    told = with_residuals(belief, belief.solve(), np.full((4, 2), 1e6), 1e-3, clip)
    np.testing.assert_allclose(told.solve().coef, belief.solve().coef, rtol=1e-9)


def test_what_a_clip_cuts_off_makes_a_sum_count_for_less():
    x, y = table(shift=0.0)
    belief = first_belief(moments(x, y, MomentNoise(9.0, 6.0, 20.0)), ridge=1.0)
    estimate = belief.solve()
    trusts = [
        np.trace(with_residuals(belief, estimate, np.zeros((4, 2)), 0.5, clip).precision)
        for clip in (None, Clip(1.0, 0.5, 0.0), Clip(1.0, 0.5, 0.5), Clip(1.0, 5.0, 0.5))
    ]
    assert trusts == sorted(trusts, reverse=True)
    assert len(set(trusts)) == 4


def test_few_people_get_no_steps_and_more_people_do_where_there_is_more_to_learn():
    assert not has_steps(300, 0.25, (5, 1))
    assert has_steps(500, 0.25, (5, 1))
    assert has_steps(4_000, 0.25, (100, 1))
    assert not has_steps(4_000, 0.25, (200, 1))
    assert not has_steps(4_000, 0.25, (20, 1_000))
    shares = schedule(3).without_steps()
    assert shares.steps == 0
    assert shares.bounds + shares.moments == 1.0


def test_shortened_rows_make_the_first_moments_count_for_less():
    x, y = table()
    noise = MomentNoise(9.0, 6.0, 20.0)
    bias = shortening_bias(1e5, (2.0, 3.0), (4, 2))
    assert bias == pytest.approx(0.01 * 1e5 * 6.0 / math.sqrt(8.0))
    plain, biased = (first_belief(moments(x, y, noise), ridge=1.0, bias=one) for one in (0.0, bias))
    assert np.trace(biased.precision) < np.trace(plain.precision)
    assert shortening_bias(-5.0, (2.0, 3.0), (4, 2)) == 0.0


def test_errors_that_steps_have_in_common_are_in_what_is_unknown():
    x = np.random.default_rng(0).normal(size=(5_000, 5))
    y = x @ np.random.default_rng(1).normal(size=(5, 4)) + np.random.default_rng(2).normal(size=(5_000, 4))
    exact = np.linalg.lstsq(x, y, rcond=None)[0]
    squares = []
    for seed in range(60):
        rng = np.random.default_rng(100 + seed)
        noise = MomentNoise(800.0, 800.0 / math.sqrt(2.0), 400.0)
        belief = first_belief(moments(x, y, noise, seed=seed), ridge=0.0)
        for _ in range(3):
            belief = stepped(belief, x, y, 1.0, rng=rng)
        error = belief.xy - belief.xx @ np.linalg.solve(belief.basis, exact)
        squares.append(np.mean(error * np.linalg.solve(belief.covariance, error)) * len(error) / len(belief.xx))
    # The noise in X'X is the same in every step: as if it were not, the mean is 1.22.
    assert 0.5 < np.mean(squares) < 1.0
