"""What is said of noise beforehand is what is measured of it, to a few percent, family by family."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dpfast import Privacy, noise
from dpfast.convex_erm.mechanism import SPREAD, NoisyDescent, clip_of_slopes, lost_of_released
from dpfast.multi_outcome.mechanism import FeatureScaling, MomentMechanism, Options
from dpfast.noise import SeededSource
from dpfast.privacy import weight_sensitivity
from dpfast.releases.moments import JointMoments, prediction_costs
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation, draw_perturbation
from dpfast.solvers import LogisticLoss
from dpfast.sparse_regression.mechanism import SupportThenFit, bounds_on_support
from dpfast.statistics.rows import RowMap


@pytest.mark.parametrize(("delta", "n"), [(0.0, 10**12), (1e-6, 300)])
def test_noise_of_predictions_by_a_minimiser(delta, n):
    """Of rows that are even over directions; of very many people the finishing noise is all there is."""
    d, spread = 5, 0.7
    mechanism = ObjectivePerturbation.calibrate(
        Privacy(1.0, delta), ObjectiveBounds(LogisticLoss(), d, 2.0, 1.0, n_rows=300), 3.0
    )
    own, source = mechanism.noise_scales, SeededSource(0)
    total = n * spread * mechanism.bounds.curvature / d + own.strong_convexity
    moved = [
        draw_perturbation(own, d, source) / total + noise.l2_laplace(mechanism.finishing_scale, d, source)
        for _ in range(1000)
    ]
    measured = math.sqrt(spread) * 2.0 * math.sqrt(np.mean(np.square(moved)))
    # Four standard deviations of the root of a mean of 1,000 squared lengths: but for one seed in 10,000.
    assert mechanism.prediction_noise(n, spread)[0] == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(("delta", "n"), [(0.0, 10**12), (1e-6, 300)])
def test_noise_of_predictions_by_a_minimiser_with_an_intercept(delta, n):
    """The constant has a curvature of its own, and is no part of what tells features apart."""
    d, spread, row, constant = 5, 0.4, 2.0, 1.5
    bounds = ObjectiveBounds(LogisticLoss(), d, math.hypot(row, constant), 1.0, n_rows=300, constant=constant)
    mechanism = ObjectivePerturbation.calibrate(Privacy(1.0, delta), bounds, 3.0)
    own, source = mechanism.noise_scales, SeededSource(0)
    steepest = n * LogisticLoss().second_derivative_bound()
    squares = np.append(np.full(d - 1, spread * row**2 / (d - 1)), constant**2)
    moved = [
        draw_perturbation(own, d, source) / (steepest * squares + own.strong_convexity)
        + noise.l2_laplace(mechanism.finishing_scale, d, source)
        for _ in range(1000)
    ]
    measured = math.sqrt(np.mean(np.square(moved) @ squares))
    assert mechanism.prediction_noise(n, spread)[0] == pytest.approx(measured, rel=0.06)


def test_error_of_predictions_on_a_support():
    """Noise moves coefficients and convexity shrinks them; squared loss is as curved everywhere."""
    size, n, privacy = 3, 3_000, Privacy(1.0, 1e-6)
    regression = ObjectivePerturbation.calibrate(privacy, bounds_on_support(size, 40, 1.0, 1.0, n), 3.0)
    fit = SupportThenFit(privacy, SimpleNamespace(missed=lambda left, n_features: left), regression)
    spread, own, source = 0.6, regression.noise_scales, SeededSource(0)
    expected = fit.errors(n, 40, spread, signal=0.8)
    # Half the sum of squares that a coefficient of 0.8 explains, of rows that are even over the support.
    feature = math.sqrt(spread / size) * regression.bounds.row_bound * np.where(np.arange(n) % 2, 1.0, -1.0)
    assert expected.missed == pytest.approx(0.5 * np.sum((0.8 * feature) ** 2))
    total = n * spread * regression.bounds.row_bound**2 / size + own.strong_convexity
    moved = [
        draw_perturbation(own, size, source) / total + noise.l2_laplace(regression.finishing_scale, size, source)
        for _ in range(1000)
    ]
    noisy = math.sqrt(spread) * regression.bounds.row_bound * math.sqrt(np.mean(np.square(moved)))
    shrunk = expected.prediction * own.strong_convexity / total
    assert expected.moved == pytest.approx(math.hypot(noisy, shrunk), rel=0.06)


@pytest.mark.parametrize("n", [3_000, 30_000])
def test_what_noise_takes_of_released_margins(n):
    """As much as the correlation of noisy margins with those before the noise lacks to 1."""
    d, row, loss = 5, 2.0, LogisticLoss(1.0)
    mechanism = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-5), ObjectiveBounds(loss, d, row, 1.0, n_rows=n), 3.0)
    coef, rng = np.full(d, 1.5), np.random.default_rng(0)
    released = math.sqrt(SPREAD / d) * row * np.linalg.norm(coef) * rng.normal(size=100_000)
    share = loss.second_derivative(np.abs(released), 1.0).mean() / loss.second_derivative_bound()
    noisy, _ = mechanism.prediction_noise(n, SPREAD, share)
    before = math.sqrt(np.var(released) - noisy**2) * rng.normal(size=100_000)
    correlation = np.corrcoef(before, before + noisy * rng.normal(size=100_000))[0, 1]
    assert lost_of_released(mechanism, n, coef) == pytest.approx(1.0 - correlation, rel=0.1)
    # Nothing is lost of very many people, and everything of no margins, or of fewer than show any.
    assert lost_of_released(mechanism, 10**10, coef) < 1e-6
    assert lost_of_released(mechanism, n, 0.0 * coef) == lost_of_released(mechanism, n, 1e-3 * coef) == 1.0


def test_noise_of_moments():
    calibrated = JointMoments.calibrate(Privacy(1.0, 1e-6), (1.0, 1.0), (4, 1), {"xx": 1.0, "xy": 1.0})
    drawn = calibrated.noise_alone(20_000, SeededSource(0))
    said = calibrated.noise
    off = drawn["xx"][:, *np.triu_indices(4, 1)]
    assert said.diagonal == pytest.approx(np.einsum("nii->ni", drawn["xx"]).std(), rel=0.02)
    assert said.off_diagonal == pytest.approx(off.std(), rel=0.02)
    assert said.cross == pytest.approx(drawn["xy"].std(), rel=0.02)


def test_costs_of_noise_in_predictions():
    """Of rows along axes, of one length: the errors that noise of variance 1 in a sum makes, times an eigenvalue."""
    features, outcomes, radius, bound_y, signal = 4, 2, 3.0, 5.0, 7.0
    rng, n = np.random.default_rng(0), 40
    x = radius * np.tile(np.eye(features), (n // features, 1))
    eigenvalue = (x.T @ x)[0, 0]
    costs = prediction_costs(features, outcomes, radius, bound_y, signal)
    theta = math.sqrt(signal) * np.eye(features)[0]
    upper = np.triu(rng.normal(size=(20_000, features, features)), 1) * math.sqrt(0.5)
    symmetric = upper + upper.transpose(0, 2, 1) + np.eye(features) * rng.normal(size=(20_000, 1, features))
    assert costs["xx"] == pytest.approx(np.mean(np.sum((symmetric @ theta) ** 2, axis=1)), rel=0.03)
    assert costs["xy"] == features * outcomes
    # The mean prediction is off by noise / n in each row, and that in n by bound_y as much.
    assert costs["y"] == pytest.approx(outcomes * eigenvalue * n * (1.0 / n) ** 2)
    assert costs["n"] == pytest.approx(eigenvalue * n * (bound_y / n) ** 2)
    assert costs["x"] == pytest.approx(features * bound_y**2 + signal * eigenvalue / n)


def test_agreement_of_descent():
    """The cosine of a gradient with itself beside noise of the whole budget."""
    mechanism = NoisyDescent(Privacy(0.5, 1e-5), "logistic", RowMap(bound=1.0), (400, 1), False, 3000)
    length = clip_of_slopes("logistic", 1, mechanism.row_bound) * math.sqrt(2.0 / (math.pi * 400)) * 3000
    gradient = np.full(400, length / 20.0)
    noisy = gradient + mechanism.whole.deviation * np.random.default_rng(0).normal(size=(500, 400))
    cosines = noisy @ gradient / length / np.linalg.norm(noisy, axis=1)
    assert mechanism.agreement(3000) == pytest.approx(cosines.mean(), rel=0.03)


@pytest.mark.parametrize("n", [1, 9])
@pytest.mark.parametrize("ridge", [2.0, 50.0, 4000.0])
def test_weights_move_as_strong_convexity_lets_them(n, ridge):
    target, row = 3.0, 2.0
    # The weights of one row are t'x / (x'x + ridge / 2), at most this over rows of length up to `row`.
    lengths = np.linspace(1e-3, row, 100_001)
    own = np.max(target * lengths / (lengths**2 + ridge / 2.0))
    convex = 4.0 * row / ridge * math.hypot(target + own * row, own * row * math.sqrt(n - 1.0))
    limit = min(target * math.sqrt(2.0 / ridge), convex)
    assert limit * (1.0 - 1e-9) <= weight_sensitivity(ridge, target, n_donors=n, row_norm=row) <= limit * 1.05


@pytest.mark.parametrize("printed", [False, True])
def test_costs_of_a_way_to_sum(printed):
    """Printed noise is the same in all entries of X'X, and so counts twice off the diagonal."""
    scaling, privacy, options = FeatureScaling(None, 1.0, False, False), Privacy(1.0, 1e-6), Options(printed=printed)
    chosen = MomentMechanism.cheapest([scaling], privacy, 1.0, (4, 1), options)
    drawn = chosen.calibration.noise_alone(20_000, SeededSource(0))
    theta = math.sqrt(4.0) * np.eye(4)[0]
    missed = np.sum((drawn["xx"] @ theta) ** 2, axis=1) + np.sum(drawn["xy"] ** 2, axis=(1, 2))
    assert chosen.cost == pytest.approx(missed.mean(), rel=0.03)
