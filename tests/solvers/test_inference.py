"""Inference from released moments: the textbook's where there is no noise, and as good as its word where there is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, special, stats

from dpfast.solvers import MomentNoise, NoisyMoments, Shrinkage, inference_of_moments, ridge_from_moments
from dpfast.solvers.inference import InferenceState, Textbook
from dpfast.solvers.ridge import denoised_eigenvalues

EXACT = MomentNoise(0.0, 0.0, 0.0)


def table(n=400, d=5, outcomes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(1.0, 0.2, d) + 0.5
    y = x @ rng.normal(size=(d, outcomes)) + rng.normal(size=(n, outcomes)) + 2.0
    return x, y


def sums(x, y, noise=EXACT):
    return NoisyMoments(x.T @ x, x.T @ y, noise, x.sum(axis=0), y.sum(axis=0), float(len(x)))


def symmetric_noise(rng, d, off_diagonal):
    entries = rng.normal(scale=off_diagonal, size=(d, d))
    return (entries + entries.T) / np.sqrt(2.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_with_hardly_any_noise_limits_are_the_textbooks(fit_intercept):
    x, y = table(100_000)
    state = inference_of_moments(sums(x, y, MomentNoise(*[1e-4] * 6)), fit_intercept=fit_intercept)
    design = np.column_stack([x, np.ones(len(x))]) if fit_intercept else x
    theta = linalg.lstsq(design, y)[0]
    variance = np.sum((y - design @ theta) ** 2, axis=0) / (len(x) - design.shape[1])
    errors = np.sqrt(np.outer(variance, np.diag(np.linalg.inv(design.T @ design))))
    law = state.posterior(variance, 0.9, of_population=True)
    # Shrunk by as much as sampling hides.
    assert np.all(np.abs(law.center - theta.T) < 0.1 * errors)
    # An intercept's takes sampling errors to be independent in directions in which those of noise are.
    close = np.append(np.full(5, 0.02), 0.1)[: errors.shape[1]] * errors
    assert np.all(np.abs(law.deviation - errors) < close)
    assert np.all(np.abs(law.high - law.center - 1.6448536 * errors) < 1.6448536 * close)
    assert np.all(np.abs(law.center - law.low - 1.6448536 * errors) < 1.6448536 * close)
    np.testing.assert_allclose(law.opposite, special.ndtr(-np.abs(theta.T) / errors), rtol=0.2, atol=1e-9)
    of_rows = state.posterior(variance, 0.9, of_population=False)
    np.testing.assert_allclose(of_rows.center, theta.T, rtol=1e-6)
    assert np.all(of_rows.deviation < 1e-4 * errors)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_where_noise_is_small_the_deviation_is_that_of_unpenalised_coefficients(fit_intercept):
    x, y = table(20_000)
    noise = MomentNoise(0.0, 0.0, 3.0, 0.0, 30.0, 20.0)
    moments = sums(x, y, noise)
    first_order = ridge_from_moments(moments, 0.0, fit_intercept=fit_intercept).coef_std
    # The prediction at the centre stands for the constant: nearly so in a centred table.
    moments = sums(x, y - y.mean(axis=0), noise)
    posterior = inference_of_moments(moments, fit_intercept=fit_intercept).posterior(
        np.zeros(2), 0.95, of_population=False
    )
    if fit_intercept:
        first_order = ridge_from_moments(sums(x - x.mean(axis=0), y - y.mean(axis=0), noise), 0.0).coef_std
        shift = x.mean(axis=0)
        response = np.linalg.inv(moments.xx - len(x) * np.outer(shift, shift))
        first_order = np.sqrt(first_order**2 + 900.0 * (response @ shift) ** 2)
    np.testing.assert_allclose(posterior.deviation[:, :5], first_order, rtol=1e-2)
    if fit_intercept:
        # At most what the noise of the mean outcome and of the coefficients' part add up to.
        of_mean = 30.0 / len(x)
        assert np.all(posterior.deviation[:, 5] >= of_mean)
        assert np.all(posterior.deviation[:, 5] <= 1.01 * (of_mean + np.abs(shift) @ first_order.T))


def test_eigenvalues_are_given_back_what_noise_took():
    rng = np.random.default_rng(3)
    d, scale = 200, 2.0
    edge = 2.0 * scale * np.sqrt(d)
    alone = denoised_eigenvalues(np.linalg.eigvalsh(symmetric_noise(rng, d, scale)), scale)
    assert np.mean(alone) < 0.03 * edge
    alike = denoised_eigenvalues(np.linalg.eigvalsh(3.0 * edge * np.eye(d) + symmetric_noise(rng, d, scale)), scale)
    assert np.sqrt(np.mean((alike / (3.0 * edge) - 1.0) ** 2)) < 0.02
    spiked = np.linalg.eigvalsh(3.0 * edge * np.outer(np.eye(d)[0], np.eye(d)[0]) + symmetric_noise(rng, d, scale))
    assert denoised_eigenvalues(spiked, scale)[-1] == pytest.approx(np.sqrt(spiked[-1] ** 2 - edge**2), rel=0.01)
    assert np.array_equal(denoised_eigenvalues(np.array([-1.0, 2.0]), 0.0), [0.0, 2.0])


# Five standard deviations of what so many fits say of the coverage. At condition 100 half of the directions hide, which
# leaves few to tell tau by: limits are wide then.
@pytest.mark.slow
@pytest.mark.parametrize(("condition", "least", "most"), [(1.0, 0.93, 0.97), (10.0, 0.93, 0.97), (100.0, 0.93, 0.99)])
@pytest.mark.parametrize("of_population", [False, True])
def test_limits_cover_as_often_as_they_say(condition, least, most, of_population):
    rng = np.random.default_rng(5)
    n, d, outcomes, repeats = 2_000, 6, 2, 100
    noise = MomentNoise(60.0, 60.0 / np.sqrt(2.0), 80.0)
    lengths = np.geomspace(1.0, condition**-0.5, d)
    covered = np.empty(repeats)
    for repeat in range(repeats):
        x = rng.normal(size=(n, d)) * lengths
        theta = rng.normal(size=(d, outcomes))
        y = x @ theta + rng.normal(size=(n, outcomes))
        noisy_xx = x.T @ x + symmetric_noise(rng, d, noise.off_diagonal)
        moments = NoisyMoments(noisy_xx, x.T @ y + rng.normal(scale=noise.cross, size=(d, outcomes)), noise)
        law = inference_of_moments(moments).posterior(np.ones(outcomes), 0.95, of_population=of_population)
        truth = theta if of_population else np.linalg.solve(x.T @ x, x.T @ y)
        covered[repeat] = np.mean((law.low < truth.T) & (law.high > truth.T))
    slack = 5.0 * np.std(covered) / np.sqrt(repeats)
    assert least - slack < np.mean(covered) < most + slack


def test_limits_widen_where_nothing_is_known():
    rng = np.random.default_rng(7)
    noise = MomentNoise(1e4, 1e4 / np.sqrt(2.0), 1e4)
    moments = NoisyMoments(symmetric_noise(rng, 5, noise.off_diagonal), rng.normal(scale=1e4, size=(5, 2)), noise)
    law = inference_of_moments(moments).posterior(np.ones(2), 0.95, of_population=True)
    assert np.all(np.abs(law.center) < 2.0 * law.deviation)
    assert np.all(law.deviation > 0.5)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_where_nothing_of_the_moments_is_above_their_noise_nothing_is_known(fit_intercept):
    x, y = table(20)
    moments = sums(x, y, MomentNoise(*[1.0] * 6))
    state = inference_of_moments(replace(moments, xx=-moments.xx), fit_intercept=fit_intercept)
    for of_population in (False, True):
        law = state.posterior(np.ones(2), 0.95, of_population=of_population)
        assert all(part.shape == (2, 5 + fit_intercept) and np.isnan(part).all() for part in law)


def test_a_least_signal_leaves_what_is_known_and_says_what_is_not():
    noise = MomentNoise(10.0, 10.0 / np.sqrt(2.0), 1.0)
    state = inference_of_moments(NoisyMoments(np.diag([1e6, 1e6, 0.0]), np.zeros((3, 1)), noise))
    usual, floored = (
        replace(state, least_signal=least).posterior(np.full(1, 4.0), 0.95, of_population=True) for least in (0.0, 0.25)
    )
    np.testing.assert_allclose(floored.deviation[0, :2], usual.deviation[0, :2], rtol=0.1)
    assert usual.deviation[0, 2] < 0.5
    assert np.isnan([part[0, 2] for part in floored]).all()


def test_hidden_least_squares_coefficients_may_be_anything_that_sampling_makes_of_them():
    noise = MomentNoise(10.0, 10.0 / np.sqrt(2.0), 1.0)
    hidden = np.diag([1e4, 1e4, 0.0])
    state = inference_of_moments(NoisyMoments(hidden, np.zeros((3, 1)), noise))
    wide, narrow = (state.posterior(np.ones(1), 0.95, of_population=one).deviation[0, 2] for one in (False, True))
    assert wide > np.sqrt(9.0 / noise.off_diagonal) * 0.9
    assert narrow < wide


def test_units_go_with_the_coefficients():
    x, y = table()
    noise = MomentNoise(3.0, 3.0 / np.sqrt(2.0), 4.0)
    units = np.array([1.0, 10.0, 0.1, 3.0, 7.0])
    plain, own = (
        inference_of_moments(sums(x, y, noise), units=each).posterior(np.ones(2), 0.95, of_population=True)
        for each in (None, units)
    )
    np.testing.assert_allclose(own.center * units, plain.center)
    np.testing.assert_allclose(own.deviation * units, plain.deviation)


def test_a_sample_of_rows_adds_its_error():
    x, y = table()
    all_rows, sampled = (
        inference_of_moments(NoisyMoments(x.T @ x, x.T @ y, MomentNoise(3.0, 3.0 / np.sqrt(2.0), 4.0, sampling=one)))
        for one in (0.0, 0.01)
    )
    small, large = (one.posterior(np.ones(2), 0.95, of_population=False).deviation for one in (all_rows, sampled))
    assert np.all(large > 1.2 * small)


def test_shrunk_moments_are_refused():
    x, y = table()
    shrunk = NoisyMoments(x.T @ x, x.T @ y, EXACT, shrinkage=Shrinkage(np.ones(2), np.ones(2), np.eye(5)))
    with pytest.raises(ValueError, match="as they were released"):
        inference_of_moments(shrunk)


@pytest.mark.parametrize("constants", [0, 1])
def test_the_textbook_is_the_normal_equations(constants):
    x, y = table(60)
    design = np.column_stack([x, np.ones(60)]) if constants else x
    theta = linalg.lstsq(design, y)[0]
    variance = np.sum((y - design @ theta) ** 2, axis=0) / (60 - 5 - constants)
    errors = np.sqrt(np.outer(variance, np.diag(np.linalg.inv(design.T @ design))[:5]))
    law = Textbook.of(design, y, functions=np.eye(5 + constants)[:5]).posterior(0.9)
    np.testing.assert_allclose(law.center, theta.T[:, :5])
    np.testing.assert_allclose(law.deviation, errors)
    quantile = stats.t(55 - constants).ppf(0.95)
    np.testing.assert_allclose(law.high - law.low, 2.0 * quantile * errors)
    np.testing.assert_allclose(law.opposite, stats.t(55 - constants).sf(np.abs(theta.T[:, :5]) / errors))


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.35, 0.5])
def test_a_released_residual_variance_is_widened_by_its_noise(noise):
    """A standard normal estimate, and its variance with noise; 1.96 deviations hold it in 90% at a noise of .5."""
    rng = np.random.default_rng(0)
    released = np.maximum(1.0 + noise * rng.normal(size=200_000), noise)
    moments = NoisyMoments(np.eye(1), np.ones((1, 1)), MomentNoise(0.0, 0.0, 1.0))
    told = replace(inference_of_moments(moments), residual_noise=noise / released)
    estimates = np.abs(rng.normal(size=200_000))
    assert 0.945 < np.mean(estimates < 1.96 * np.sqrt(told.widened(released))) < 0.99
    exact = replace(told, residual_noise=0.0).widened(np.ones(3))
    np.testing.assert_allclose(exact, 1.0, rtol=1e-4)


def test_a_coefficient_that_mainly_the_prior_places_has_no_limits():
    """The 95% limits of a large one among hidden ones held it in 52 of these fits."""
    rng = np.random.default_rng(12)
    gains, theta = np.repeat([5.0, 1.0, 0.1], [4, 8, 20]), np.full((32, 1), 0.1)
    theta[[0, -1]] = 3.0
    held = []
    for _ in range(100):
        xy = gains[:, None] * theta + rng.normal(size=(32, 1))
        state = InferenceState(np.diag(gains), np.diag(1.0 / gains), xy, np.eye(32)[None], least_signal=0.05)
        law = state.posterior(np.ones(1), 0.95, of_population=True)
        unknown = np.isnan(law.center[0])
        assert all(np.array_equal(np.isnan(part[0]), unknown) for part in law)
        assert unknown[12:].all()
        assert not unknown[:4].any()
        held.append((law.low[0, 0] < 3.0) & (law.high[0, 0] > 3.0))
    assert np.mean(held) > 0.88


@pytest.mark.parametrize("place", [0, 5, 14])
def test_limits_hold_the_coefficient_that_has_all_of_the_signal(place):
    """Limits for coefficients that are alike are too narrow for it: it had none."""
    rng = np.random.default_rng(3)
    gains, theta = np.full(20, 2.0), np.zeros((20, 1))
    theta[place] = 2.2
    held = []
    for _ in range(100):
        xy = gains[:, None] * theta + rng.normal(size=(20, 1))
        state = InferenceState(np.diag(gains), np.diag(1.0 / gains), xy, np.eye(20)[None], least_signal=0.45)
        law = state.posterior(np.ones(1), 0.95, of_population=True)
        held.append((law.low[0] <= theta[:, 0]) & (theta[:, 0] <= law.high[0]))
    assert np.min(np.mean(held, axis=0)) > 0.8


def test_a_column_that_varies_less_may_have_a_coefficient_as_much_larger():
    """As if it were in a unit in which it varies like the mean one, and limits in its own."""
    rng, unit = np.random.default_rng(4), np.array([1.0, 1.0, 1.0, math.sqrt(15.25)])
    covariance, bias, rotation = (one @ one.T for one in rng.normal(size=(3, 4, 4)))
    theta, start, constant = rng.normal(size=(4, 1)), rng.normal(size=(4, 1)), rng.normal(size=4)

    def in_units(unit, people):
        per, products = unit[:, None], np.outer(unit, unit)
        return InferenceState(
            np.eye(4),
            np.diag(1.0 / (np.array([20.0, 20.0, 20.0, 1.0]) * unit**2)),
            theta / per,
            (covariance / products)[None],
            spread=0.5,
            bias=(bias / products)[None],
            lengths=rotation * unit,
            start=start / per,
            units=1.0 / unit,
            constant=constant * unit,
            least_signal=people,
        )

    # What is explained is the same, over the sum of squares.
    sized = replace(in_units(np.ones(4), 1.0 / 61.0), squares=np.array([20.0, 20.0, 20.0, 1.0]))
    laws = [one.posterior(np.ones(1), 0.95, of_population=True) for one in (sized, in_units(unit, 1.0 / 75.25))]
    for part, other in zip(*laws, strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-9)


def test_noise_in_xx_counts_by_the_distance_from_where_the_sums_were_taken():
    """Far from there limits are wider: by the length that the distance has."""
    theta = np.array([[3.0], [-2.0]])
    state = InferenceState(np.eye(2), np.eye(2), theta, 1e-2 * np.eye(2)[None], spread=1.0, lengths=np.diag([1.0, 2.0]))
    # C (1 + |distance|^2 + 5 variance).
    for start, variance in ((theta, 0.0105), (theta - [[3.0], [0.0]], 0.105), (theta - [[0.0], [3.0]], 0.389)):
        law = replace(state, start=start).posterior(np.zeros(1), 0.95, of_population=False)
        np.testing.assert_allclose(law.deviation**2, variance, rtol=0.25)


def test_a_least_size_of_coefficients_counts_once_however_many_smaller_ones_are_tried(monkeypatch):
    """A flat law up to the least has its mass: each smaller size that is tried had as much."""
    rng = np.random.default_rng(11)
    gains, theta = np.repeat([5.0, 0.3], [3, 17]), rng.normal(size=(20, 1))
    xx, xy = np.diag(gains), gains[:, None] * theta + rng.normal(size=(20, 1))
    state = InferenceState(xx, np.linalg.inv(xx), xy, np.eye(20)[None], least_signal=0.3)
    usual = state.posterior(np.ones(1), 0.95, of_population=False)
    # As densely.
    monkeypatch.setattr("dpfast.solvers.inference._SMALLEST", 1e-6)
    monkeypatch.setattr("dpfast.solvers.inference._TRIED", 321)
    more = state.posterior(np.ones(1), 0.95, of_population=False)
    np.testing.assert_allclose(more.deviation, usual.deviation, rtol=2e-3)
    np.testing.assert_allclose(more.center, usual.center, rtol=2e-3, atol=2e-3)
