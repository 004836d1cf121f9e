"""Error bounds of private synthetic control: formulas written out again, and held against the printed mechanisms.

The mechanisms run here in plain NumPy; every comparison of a mean leaves six standard errors (false-reject rate 2e-9).
"""

import math

import numpy as np
import pytest

from dpfast.papers import synthetic_control as theory
from dpfast.privacy import weight_sensitivity

RUNS = 400


def l2_laplace(rng, scale, shape):
    """One vector a run, of density exp(-||v||/scale): a direction and a Gamma radius."""
    direction = rng.normal(size=shape)
    dim = math.prod(shape[1:])
    norms = np.sqrt(np.sum(direction**2, axis=tuple(range(1, len(shape))), keepdims=True))
    radii = rng.gamma(dim, scale, size=shape[0]).reshape(norms.shape)
    return direction / norms * radii


class Panel:
    """The model of Section 2.1, many draws of Z and z: M = slope * t, m = M'f with f on one donor, uniform noise."""

    def __init__(self, n, n_pre, n_post, seed):
        rng = np.random.default_rng(seed)
        times = np.arange(1, n_pre + n_post + 1) / (n_pre + n_post)
        self.sizes = {"n_donors": n, "n_pre": n_pre, "n_post": n_post}
        self.signals = np.outer(np.linspace(0.5, 0.9, n), times)
        self.true_weights = np.eye(n)[0]
        self.signal = self.signals[0]
        self.noise_std = 0.05 / math.sqrt(3.0)
        self.donors = self.signals + rng.uniform(-0.05, 0.05, size=(RUNS, *self.signals.shape))
        self.target = self.signal + rng.uniform(-0.05, 0.05, size=(RUNS, self.signal.size))

    def split(self):
        n_pre = self.sizes["n_pre"]
        return self.donors[:, :, :n_pre], self.donors[:, :, n_pre:], self.target[:, :n_pre]

    def weights(self, penalty, tilt=0.0):
        """Minimise ||y - X'f||^2 + penalty/2 ||f||^2 + tilt'f in every run."""
        pre, _, target = self.split()
        kernel = pre @ pre.transpose(0, 2, 1) + penalty / 2 * np.eye(pre.shape[1])
        right = (pre @ target[:, :, None])[:, :, 0] - np.asarray(tilt) / 2
        return np.linalg.solve(kernel, right[:, :, None])[:, :, 0]

    def facts(self, ridge):
        """What the theorems take as given."""
        errors = np.linalg.norm(self.weights(ridge) - self.true_weights, axis=1)
        return {
            "signal_norm": np.linalg.norm(self.signals[:, self.sizes["n_pre"] :], 2),
            "weights_error": mean_above(errors),
            "largest_weight": math.sqrt(self.sizes["n_pre"] / (2.0 * ridge)),
            "noise_std": self.noise_std,
        }

    def rmse(self, weights, donor_scale, rng):
        """Errors of X~'f against the signal, a run each."""
        _, post, _ = self.split()
        noisy = post + l2_laplace(rng, donor_scale, post.shape)
        predicted = np.einsum("rij,ri->rj", noisy, weights)
        gap = predicted - self.signal[self.sizes["n_pre"] :]
        return np.linalg.norm(gap, axis=1) / math.sqrt(self.sizes["n_post"])


def mean_above(values):
    return np.mean(values) + 6.0 * np.std(values) / math.sqrt(len(values))


def mean_below(values):
    return np.mean(values) - 6.0 * np.std(values) / math.sqrt(len(values))


def algorithm_3(epsilon, delta, n, n_pre, ridge, c):
    """epsilon_0, lambda + Delta and beta as Algorithm 3 prints them."""
    if epsilon > math.log(1.0 + 2.0 * c / ridge + c**2 / ridge**2):
        left, penalty = epsilon - math.log(1.0 + 2.0 * c / ridge + c**2 / ridge**2), ridge
    else:
        left, penalty = epsilon / 2.0, c / (math.exp(epsilon / 4.0) - 1.0)
    beta = 4.0 * n_pre * math.sqrt(8 + n) / left
    if delta == 0.0:
        return left, penalty, min(beta, (c * math.sqrt(n) + 4 * n_pre) / left)
    return left, penalty, beta * math.sqrt(2 * math.log(2 / delta) + 2 * left)


def test_the_noise_of_the_printed_density_is_n_times_longer_than_equation_10_says():
    n, scale = 40, 0.7
    norms = np.linalg.norm(l2_laplace(np.random.default_rng(1), scale, (20_000, n)), axis=1)
    assert abs(np.mean(norms) - n * scale) <= 6.0 * scale * math.sqrt(n / 20_000)
    sizes = {"n_donors": n, "n_pre": 10, "n_post": 3, "ridge": 10.0}
    bound = theory.output_rmse(
        4.0, 1e12, **sizes, signal_norm=math.sqrt(3.0), weights_error=0.0, largest_weight=0.0, noise_std=0.0
    )
    assert bound.printed == pytest.approx(math.sqrt(48), rel=1e-9)
    assert bound.corrected / bound.printed == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("size", [(3, 5, 1), (10, 10, 3), (40, 10, 3), (10, 60, 3)])
@pytest.mark.parametrize("epsilon", [1.0, 20.0, 500.0])
def test_corrected_output_bound_holds_for_the_printed_mechanism(size, epsilon):
    n, n_pre, n_post = size
    panel, ridge, rng = Panel(*size, seed=2), float(n_pre), np.random.default_rng(3)
    scale = 4 * n_pre * math.sqrt(8 + n) / (ridge * epsilon)
    weights = panel.weights(ridge) + l2_laplace(rng, scale, (RUNS, n))
    errors = panel.rmse(weights, 2 * math.sqrt(n_post) / epsilon, rng)
    bound = theory.output_rmse(epsilon, epsilon, **panel.sizes, ridge=ridge, **panel.facts(ridge))
    assert mean_below(errors) <= bound.corrected
    if n >= 10 and epsilon == 1.0:
        assert mean_below(errors) > bound.printed


@pytest.mark.parametrize("size", [(3, 5, 1), (10, 10, 3), (40, 10, 3), (10, 60, 3)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [1.0, 20.0, 500.0])
def test_corrected_objective_bounds_hold_for_the_printed_mechanism(size, delta, epsilon):
    n, n_pre, n_post = size
    panel, ridge, rng = Panel(*size, seed=4), float(n_pre), np.random.default_rng(5)
    c = theory.curvature(n, n_pre).printed
    _, penalty, beta = algorithm_3(epsilon, delta, n, n_pre, ridge, c)
    tilt = beta * rng.normal(size=(RUNS, n)) if delta else l2_laplace(rng, beta, (RUNS, n))
    weights = panel.weights(penalty, tilt)
    given = {"n_donors": n, "n_pre": n_pre, "ridge": ridge, "curvature": c}
    distance = theory.objective_distance(epsilon, delta, **given)
    moved = np.linalg.norm(weights - panel.weights(ridge), axis=1)
    assert mean_below(moved) <= distance.corrected
    # Far from vacuous where noise and penalty swamp the donors.
    assert epsilon > 1.0 or delta > 0.0 or np.mean(moved) >= 0.4 * distance.corrected
    bound = theory.objective_rmse(epsilon, epsilon, delta, **given, n_post=n_post, **panel.facts(ridge))
    errors = panel.rmse(weights, 2 * math.sqrt(n_post) / epsilon, rng)
    assert mean_below(errors) <= bound.corrected
    if n == 40 and delta == 0.0 and epsilon == 500.0:
        assert mean_below(moved) > distance.printed


@pytest.mark.parametrize(("level", "ridge"), [(1.0, 400.0), (1.0, 20_000.0), (0.9, 400.0), (0.9, 20_000.0)])
def test_corrected_error_of_the_weights_holds_under_the_assumptions(level, ridge):
    """Entries of X are 1 or -1 with mean +-level: isotropic, of full rank, noise of one variance (zero at level 1)."""
    n, n_pre, xi = 4, 400, 0.5
    rng = np.random.default_rng(6)
    true_weights = np.array([0.4, -0.3, 0.2, 0.1])
    signals = level * rng.choice([-1.0, 1.0], size=(n, n_pre))
    errors = []
    for _ in range(RUNS if level < 1.0 else 1):
        donors = np.where(rng.random((n, n_pre)) < (1.0 + level) / 2.0, 1.0, -1.0) * np.sign(signals)
        noise = np.where(rng.random(n_pre) < (1.0 + level) / 2.0, 1.0 - level, -1.0 - level)
        assert np.linalg.eigvalsh(donors @ donors.T)[0] >= (1.0 - xi) * n_pre
        right = donors @ (true_weights @ signals + noise)
        weights = np.linalg.solve(donors @ donors.T + ridge / 2 * np.eye(n), right)
        errors.append(np.linalg.norm(weights - true_weights))
    sigma, reach = math.sqrt(1.0 - level**2), 1.0 + level if level < 1.0 else 0.0
    given = {"n_donors": n, "n_pre": n_pre, "ridge": ridge, "noise_std": sigma, "reach": reach, "xi": xi}
    bound = theory.weights_error(**given)
    assert mean_below(errors) <= bound.corrected
    if level == 1.0:
        # Only the ridge moves the weights then, and the printed bound divides it by T0.
        assert mean_below(errors) > bound.printed


def test_formulas_written_out():
    n, n_pre, n_post, ridge, e1, e2 = 7, 12, 3, 9.0, 2.0, 5.0
    sigma, psi, s, xi, c = 0.1, 0.3, 0.4, 0.25, 30.0
    sizes = {"n_donors": n, "n_pre": n_pre, "n_post": n_post, "ridge": ridge}
    facts = {"signal_norm": 2.0, "weights_error": 0.5, "largest_weight": psi, "noise_std": sigma}
    a, u = 4 * n_pre * math.sqrt(8 + n) / (ridge * e1), math.sqrt(2) / e2
    found = theory.output_rmse(e1, e2, **sizes, **facts)
    left, right = math.sqrt(n) * sigma, math.sqrt(n) * psi
    assert found.printed == pytest.approx(2 / math.sqrt(3) * (0.5 + a) + (left + u) * (right + a))
    more = left + n * 2 * math.sqrt(n_post) / e2 * math.sqrt(n_post)
    assert found.corrected == pytest.approx(2 / math.sqrt(3) * (0.5 + n * a) + more * (right + n * a))

    closed = {"largest_weight": psi, "noise_std": sigma, "reach": s, "xi": xi}
    found = theory.output_rmse_closed_form(e1, e2, **sizes, **closed)
    noise = (math.sqrt(2 * n * sigma**2) + math.sqrt(2 * n * sigma**2 * s**2)) * n_pre
    lemma = [(noise + r) / (0.75 * n_pre + r) for r in (ridge / (2 * n_pre), ridge / 2)]
    assert found.printed == pytest.approx(math.sqrt(n) * (lemma[0] + a) + (left + u) * (right + a))
    assert found.corrected == pytest.approx(math.sqrt(n) * (lemma[1] + n * a) + more * (right + n * a))

    for delta, epsilon in ((0.0, 2.0), (1e-5, 2.0), (0.0, 20.0), (1e-5, 20.0)):
        eps0, penalty, beta = algorithm_3(epsilon, delta, n, n_pre, ridge, c)
        if delta:
            tail = math.sqrt(2 * math.log(2 / delta) + eps0)
            norm = math.sqrt(n * n_pre * 4 * math.sqrt(8 + n) * tail / eps0)
            mean = beta * math.sqrt(2) * math.gamma(4.0) / math.gamma(3.5)
        else:
            norm, mean = beta, n * beta
        far = (1 / ridge + 1 / penalty) * 2 * n_pre**2 * math.sqrt(n) if penalty != ridge else 0.0
        v = 2 / penalty * norm + far
        true_v = mean / penalty + (penalty - ridge) / penalty * math.sqrt(n_pre / (2 * ridge))
        objective = {"curvature": c, **sizes}
        found = theory.objective_rmse(epsilon, e2, delta, **objective, **facts)
        assert found.printed == pytest.approx(2 / math.sqrt(3) * (0.5 + v) + (left + u) * (right + v))
        assert found.corrected == pytest.approx(2 / math.sqrt(3) * (0.5 + true_v) + more * (right + true_v))
        found = theory.objective_rmse_closed_form(epsilon, e2, delta, **objective, **closed)
        assert found.printed == pytest.approx(math.sqrt(n) * (lemma[0] + v) + (left + u) * (right + v))
        assert found.corrected == pytest.approx(math.sqrt(n) * (lemma[1] + true_v) + more * (right + true_v))


def hessian_change(donors, row):
    """Largest eigenvalue, in absolute value, of 2 (X'X'^T - XX^T) where the first donor becomes `row`."""
    changed = np.vstack([row, donors[1:]])
    return np.abs(np.linalg.eigvalsh(2 * (changed @ changed.T - donors @ donors.T))).max()


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_curvature_is_attained_and_never_exceeded(n):
    bound = theory.curvature(n, 6)
    ones = np.ones((n, 6))
    worst = np.zeros(6) if n == 1 else -np.ones(6)
    assert hessian_change(ones, worst) == pytest.approx(bound.corrected, rel=1e-9)
    assert bound.corrected <= bound.printed * (1.0 + 1e-12)
    rng = np.random.default_rng(7)
    for _ in range(300):
        donors, row = rng.choice([-1.0, 0.0, 1.0, rng.uniform(-1, 1)], size=(n, 6)), rng.uniform(-1, 1, 6)
        assert hessian_change(donors, row) <= bound.corrected


@pytest.mark.parametrize(("n", "ratio"), [(10, 12.0), (100, 29.4)])
def test_the_printed_noise_is_many_times_what_it_takes(n, ratio):
    printed = theory.printed_output_noise(1.0, 1.0, n_donors=n, n_pre=n, n_post=3, ridge=float(n))
    needed = weight_sensitivity(n, math.sqrt(n), n_donors=n, row_norm=math.sqrt(n))
    assert printed.weight_scale / needed == pytest.approx(ratio, rel=0.01)
    assert printed.donor_scale == pytest.approx(2.0 * math.sqrt(3.0))


def test_the_printed_output_noise_is_private_for_every_ridge():
    for n in (1, 2, 10, 1000):
        for before in (1, 10, 100):
            for ridge in np.geomspace(1e-3, 1e6, 50):
                printed = theory.printed_output_noise(1.0, 1.0, n_donors=n, n_pre=before, n_post=1, ridge=ridge)
                root = math.sqrt(before)
                assert weight_sensitivity(ridge, root, n_donors=n, row_norm=root) < printed.weight_scale


def test_printed_objective_noise_follows_the_algorithm():
    def printed(epsilon, delta, **changes):
        sizes = {"n_donors": 10, "n_pre": 10, "n_post": 3, "ridge": 10.0, "curvature": 120.0}
        return theory.printed_objective_noise(epsilon, 1.0, delta, **(sizes | changes))

    low = printed(1.0, 0.0)
    assert low.weights.noise_epsilon == 0.5
    assert low.weights.strong_convexity == pytest.approx(120.0 / (math.exp(0.25) - 1.0))
    assert low.weight_scale == pytest.approx(min(40.0 * math.sqrt(18.0), 120.0 * math.sqrt(10.0) + 40.0) / 0.5)
    gaussian = printed(1.0, 1e-6)
    assert gaussian.weight_scale == pytest.approx(40.0 * math.sqrt(18.0) * math.sqrt(2.0 * math.log(2e6) + 1.0) / 0.5)
    # Where epsilon is large enough no convexity is added.
    high = printed(6.0, 0.0)
    assert high.weights.strong_convexity == 10.0
    assert high.weights.noise_epsilon == pytest.approx(6.0 - 2.0 * math.log(13.0))


def test_printed_noise_names_what_it_refuses():
    with pytest.raises(ValueError, match="ridge must be positive"):
        theory.printed_output_noise(1.0, 1.0, n_donors=1, n_pre=1, n_post=1, ridge=0.0)
    with pytest.raises(ValueError, match="epsilon_donors must be positive"):
        theory.printed_objective_noise(1.0, 0.0, 0.0, n_donors=1, n_pre=1, n_post=1, ridge=1.0, curvature=1.0)


def test_recommended_ridge_is_the_number_of_pre_periods():
    assert theory.recommended_ridge(10) == 10.0
    with pytest.raises(ValueError, match="n_pre must be at least 1"):
        theory.recommended_ridge(0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise_std", -1.0, "noise_std must be at least 0"),
        ("xi", 1.0, r"xi must lie in \(0, 1\)"),
        ("ridge", 0.0, "ridge must be positive"),
        ("n_donors", 0, "n_donors must be at least 1"),
    ],
)
def test_bad_input_is_named(name, value, message):
    given = {"n_donors": 4, "n_pre": 5, "ridge": 1.0, "noise_std": 0.1, "reach": 1.0, "xi": 0.5}
    with pytest.raises(ValueError, match=message):
        theory.weights_error(**(given | {name: value}))
