"""Calibrations of synthetic control: bounds on one donor's influence against hill-climbed donors; budgets add up."""

import math

import numpy as np
import pytest
from neighbours import climb, row_in_ball

from dpfast import Privacy
from dpfast.privacy import (
    donor_curvature,
    donor_gradient,
    donor_objective_noise,
    gaussian_delta,
    gaussian_mu,
    output_noise,
    weight_sensitivity,
)

T0 = 3
B = math.sqrt(T0)


def panels(parameters, n, row_norm, width=T0):
    """Two panels that differ in the first donor, rows within their norm."""
    rows = [row_in_ball(part, row_norm) for part in np.split(parameters, n + 1)]
    first = np.array(rows[:n])
    second = np.array([rows[n], *rows[1:n]])
    assert first.shape == second.shape == (n, width)
    return first, second


def weights(x, y, ridge):
    return np.linalg.solve(x @ x.T + 0.5 * ridge * np.eye(len(x)), x @ y)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("ridge", [0.3, T0, 20.0, 200.0])
def test_no_donor_moves_the_weights_further(n, ridge):
    y = np.array([1.0, -0.5, 0.2])
    bound = weight_sensitivity(ridge, np.linalg.norm(y), n_donors=n, row_norm=B)

    def change(parameters):
        first, second = panels(parameters, n, B)
        return np.linalg.norm(weights(first, y, ridge) - weights(second, y, ridge))

    found, _ = climb(change, (n + 1) * T0, np.random.default_rng(0), restarts=6)
    assert found <= bound
    # The case that attains the bound for small ridges is the next test's; climbs come near it.
    assert found >= bound * (0.9 if ridge <= 2 * T0 else 0.4)


def test_the_sensitivity_is_attained_by_one_flipped_row():
    y = np.array([1.0, -1.0, 1.0])
    ridge = 1.7
    row = y * math.sqrt(0.5 * ridge) / np.linalg.norm(y)
    first, second = (np.vstack([sign * row, np.zeros((4, T0))]) for sign in (1.0, -1.0))
    moved = np.linalg.norm(weights(first, y, ridge) - weights(second, y, ridge))
    assert moved == pytest.approx(weight_sensitivity(ridge, np.linalg.norm(y), n_donors=5, row_norm=B), rel=1e-12)
    # At lambda = T0 and a target at its bounds: the root of 2, whatever the sizes.
    assert weight_sensitivity(50.0, 50.0**0.5, n_donors=7, row_norm=50.0**0.5) == pytest.approx(math.sqrt(2.0))


def loss_gradient(x, y, f):
    return 2.0 * x @ (x.T @ f - y)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("target_norm", [B, 0.4, 4.0])
def test_no_donor_moves_the_gradient_on_the_l1_ball_further(n, target_norm):
    bound = donor_gradient(n, B, target_norm)
    y = np.eye(T0)[0] * target_norm

    def change(parameters):
        first, second = panels(parameters[: (n + 1) * T0], n, B)
        f = parameters[(n + 1) * T0 :]
        f = f / max(1.0, np.abs(f).sum())
        return np.linalg.norm(loss_gradient(first, y, f) - loss_gradient(second, y, f))

    found, _ = climb(change, (n + 1) * T0 + n, np.random.default_rng(1), restarts=1, screened=40)
    assert 0.8 * bound < found <= bound


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 40])
@pytest.mark.parametrize("target_norm", [B, 0.4, 4.0, 40.0])
def test_the_gradient_bound_is_attained(n, target_norm):
    """By rows along the target, all weight on the donor that is replaced or all on another."""

    def change(distance, owner):
        first = np.full((n, 1), B)
        second = first.copy()
        first[0] = B - distance
        f = np.eye(n)[owner]
        y = np.array([-target_norm])
        return np.linalg.norm(loss_gradient(first, y, f) - loss_gradient(second, y, f))

    reached = max(change(distance, owner) for distance in np.linspace(0.0, 2.0 * B, 4001) for owner in {0, n - 1})
    bound = donor_gradient(n, B, target_norm)
    assert bound * (1.0 - 1e-6) <= reached <= bound


def test_the_gradient_outside_the_ball_has_no_bound():
    """What makes the printed, unconstrained objective perturbation not private."""
    y = np.ones(T0)
    first, second = np.zeros((1, T0)), np.ones((1, T0))
    moved = [np.linalg.norm(loss_gradient(first, y, f) - loss_gradient(second, y, f)) for f in ([1.0], [1e6])]
    assert moved[0] <= donor_gradient(1, B, B) < moved[1] / 1e5


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_no_donor_bends_the_loss_further(n):
    bound = donor_curvature(n, B)

    def eigenvalues(parameters):
        first, second = panels(parameters, n, B)
        return np.linalg.eigvalsh(2.0 * (second @ second.T - first @ first.T))

    found, best = climb(
        lambda parameters: np.abs(eigenvalues(parameters)).max(), (n + 1) * T0, np.random.default_rng(2)
    )
    assert bound * (1.0 - 1e-6) <= found <= bound
    # At most one negative eigenvalue, as the calibration needs.
    assert (eigenvalues(best) < -1e-9 * bound).sum() <= 1
    # The printed guidance is sound, and larger.
    guidance = T0 * (1.0 + math.sqrt(16.0 * n - 15.0))
    assert bound <= guidance * (1.0 + 1e-12)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_constants_of_entries_within_one(n):
    assert donor_gradient(n, 10.0, 10.0) == pytest.approx(400.0 * math.sqrt(max(4, n)))
    assert donor_curvature(n, 10.0) == pytest.approx(400.0 * math.sqrt(n - 1))
    assert donor_gradient(n, 10.0, 10.0) <= 400.0 * math.sqrt(8 + n)


def calibrated_output(privacy, **changes):
    sizes = {"n_donors": 50, "n_post": 5, "weight_norm": 0.7}
    return output_noise(privacy, weight_sensitivity=1.5, projection_sensitivity=4.0, **(sizes | changes))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_output_noise_adds_up_to_the_guarantee(epsilon):
    gaussian = calibrated_output(Privacy(epsilon, 1e-6))
    used = math.hypot(1.5 / gaussian.weight_scale, 4.0 / gaussian.projection_scale)
    assert used <= gaussian.mu <= used * (1.0 + 1e-11)
    assert gaussian_delta(1.0, epsilon, gaussian.mu) <= 1e-6
    pure = calibrated_output(Privacy(epsilon))
    used = 1.5 / pure.weight_scale + 4.0 / pure.projection_scale
    assert epsilon * (1.0 - 1e-11) <= used <= epsilon
    assert pure.mu is None


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_output_split_has_the_least_predicted_error(delta):
    found = calibrated_output(Privacy(1.0, delta))

    def error(share):
        if delta:
            mu = gaussian_mu(1.0, delta)
            first, second = 1.5 / (mu * math.sqrt(share)), 4.0 / (mu * math.sqrt(1.0 - share))
        else:
            first, second = 1.5 / share * math.sqrt(51.0), 4.0 / (1.0 - share) * math.sqrt(6.0)
        largest = 0.7**2 + 2.0 * math.log(100.0) * first**2
        return math.sqrt(50.0 / 3.0 * first**2 + largest * second**2)

    least = min(error(share) for share in np.linspace(0.05, 0.95, 500))
    assert least * (1.0 - 1e-6) <= found.expected_error <= least * (1.0 + 1e-3)


def calibrated_objective(privacy, **changes):
    bounds = {"gradient": donor_gradient(20, 3.0, 3.0), "curvature": donor_curvature(20, 3.0), "ridge": 9.0}
    sizes = {"projection_sensitivity": 4.0, "n_donors": 20, "n_pre": 9, "n_post": 4}
    return donor_objective_noise(privacy, **(bounds | sizes | changes))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_objective_noise_adds_up_to_the_guarantee(epsilon, delta):
    found = calibrated_objective(Privacy(epsilon, delta))
    rest = epsilon - found.weights.privacy.epsilon
    if delta:
        assert gaussian_delta(found.projection_scale, rest, 4.0) + found.weights.privacy.delta <= delta
    else:
        assert 4.0 / found.projection_scale <= rest
        assert found.weights.privacy.delta == 0.0
    assert found.weights.strong_convexity >= 9.0


def test_a_single_donor_is_on_a_line():
    """With one weight the gradient's change has one dimension, which takes less noise."""
    one = calibrated_objective(Privacy(2.0, 1e-6), n_donors=1, gradient=40.0, curvature=18.0)
    two = calibrated_objective(Privacy(2.0, 1e-6), n_donors=2, gradient=40.0, curvature=18.0)
    shares = [found.weights for found in (one, two)]
    ratios = [part.scale / 40.0 * part.noise_epsilon / math.sqrt(2.0 * math.log(1e6)) for part in shares]
    assert ratios[0] < ratios[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: weight_sensitivity(0.0, 1.0, n_donors=1, row_norm=1.0), "ridge must be positive"),
        (lambda: donor_gradient(0, 1.0, 1.0), "n_donors must be at least 1"),
        (lambda: donor_curvature(3, -1.0), "row_norm must be positive"),
        (lambda: calibrated_output(Privacy(math.inf)), "epsilon must be finite"),
        (lambda: calibrated_output(Privacy(1.0), n_post=0), "n_post must be at least 1"),
        (lambda: calibrated_objective(Privacy(math.inf)), "epsilon must be finite"),
        (lambda: calibrated_objective(Privacy(1.0), ridge=-1.0), "ridge must be at least 0"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_predicted_error_has_what_convexity_takes_from_a_signal_that_all_donors_share(epsilon):
    found = calibrated_objective(Privacy(epsilon, 1e-6), gradient=1e-9, projection_sensitivity=1e-9)
    signal = np.full(9, math.sqrt(1.0 / 3.0))
    donors = np.tile(signal, (20, 1))
    kept = weights(donors, signal, found.weights.strong_convexity).sum() / weights(donors, signal, 9.0).sum()
    assert kept < 0.95
    assert found.expected_error == pytest.approx(1.0 - kept, rel=1e-3)
