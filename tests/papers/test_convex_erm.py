"""Error bounds of objective perturbation: formulas written out again, and held against Algorithm 1 in plain NumPy.

Every comparison of a mean leaves six standard errors (false-reject rate 2e-9); frequencies are held against limits that
a binomial variable passes with probability below 1e-9.
"""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from dpfast.papers import Bound
from dpfast.papers import convex_erm as theory

DELTA = 1e-5
RUNS = 4000


def printed_noise(rng, epsilon, delta, dim, gradient, runs=RUNS):
    """Draws of b as Algorithm 1 prints them."""
    normal = rng.normal(size=(runs, dim))
    if delta > 0.0:
        return gradient * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon * normal
    radii = rng.gamma(dim, 2 * gradient / epsilon, size=(runs, 1))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True) * radii


def minimise_over_ball(eigenvalues, coefficients, radius):
    """Minimise theta'diag(eigenvalues)theta/2 - coefficients'theta over a ball, a row each, by bisection."""
    low, high = np.zeros(len(coefficients)), np.linalg.norm(coefficients, axis=1) / radius
    for _ in range(200):
        middle = 0.5 * (low + high)
        outside = np.linalg.norm(coefficients / (eigenvalues + middle[:, None]), axis=1) > radius
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    inside = np.linalg.norm(coefficients / eigenvalues, axis=1) <= radius
    return coefficients / (eigenvalues + np.where(inside, 0.0, high)[:, None])


class Quadratic:
    """A summed squared loss with a diagonal Hessian, minimised at theta_hat inside a ball of radius 1."""

    def __init__(self, eigenvalues, minimiser):
        self.eigenvalues, self.minimiser = np.asarray(eigenvalues, float), np.asarray(minimiser, float)
        self.norm = float(np.linalg.norm(minimiser))

    def private(self, noise, added):
        return minimise_over_ball(self.eigenvalues + added, self.eigenvalues * self.minimiser - noise, 1.0)

    def excess(self, thetas):
        """n times the excess risk, a run each."""
        return 0.5 * (thetas - self.minimiser) ** 2 @ self.eigenvalues


def mean_below(values):
    return np.mean(values) - 6.0 * np.std(values) / math.sqrt(len(values))


def most_failures(probability, runs):
    return stats.binom.isf(1e-9, runs, probability)


@pytest.mark.parametrize("added", [0.3, 5.0, 100.0])
def test_lemma_3_holds_for_quadratics_over_a_ball_and_for_every_draw(added):
    rng = np.random.default_rng(1)
    for dim in (1, 3, 12):
        loss = Quadratic(added * rng.uniform(0.2, 5.0, dim), np.full(dim, 0.6 / math.sqrt(dim)))
        noise = added * rng.normal(size=(RUNS, dim)) * rng.choice([0.1, 1.0, 4.0], size=(RUNS, 1))
        excess = loss.excess(loss.private(noise, added))
        bounds = [
            theory.empirical_risk(size, n=7, strong_convexity=added, norm=loss.norm)
            for size in np.linalg.norm(noise, axis=1)
        ]
        corrected = np.array([bound.corrected for bound in bounds])
        assert (excess <= 7 * corrected * (1 + 1e-9)).all()
        assert (corrected <= [bound.printed for bound in bounds]).all()


@pytest.mark.parametrize(("noise", "added", "theta"), [(1.0, 2.0, 0.5), (30.0, 0.1, 2.0), (0.0, 4.0, 1.0)])
def test_lemma_3_as_corrected_is_attained(noise, added, theta):
    """By the loss g |x - theta|, with g half of b + Delta theta."""
    slope = 0.5 * (noise + added * theta)
    private = optimize.minimize_scalar(
        lambda x: slope * abs(x - theta) + added / 2 * x**2 + noise * x,
        bounds=(-2 * noise / added - 1, theta + 1),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    bound = theory.empirical_risk(noise, n=1, strong_convexity=added, norm=theta)
    assert slope * abs(private - theta) == pytest.approx(bound.corrected, rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("gamma", [0.5, 0.05, 0.001])
def test_theorem_26(delta, gamma):
    epsilon, gradient, n, dim, added = 0.7, 1.3, 50, 4, 60.0
    bound = theory.empirical_risk_tail(
        epsilon, delta, n=n, n_features=dim, gradient=gradient, strong_convexity=added, norm=0.8, gamma=gamma
    )
    if delta == 0.0:
        printed = 8 * gradient**2 * dim**2 * math.log(dim / gamma) ** 2 / (n * epsilon**2 * added)
        longest = stats.gamma(dim, scale=2 * gradient / epsilon).isf(gamma)
    else:
        tail = 8 * math.log(2 / delta) + 4 * epsilon
        printed = 4 * dim * gradient**2 * tail * math.log(1 / gamma) / (n * epsilon**2 * added)
        longest = gradient * math.sqrt(tail) / epsilon * stats.chi(dim).isf(gamma)
    assert bound.printed == pytest.approx(printed + added * 0.8**2 / (2 * n), rel=1e-12)
    assert bound.corrected == pytest.approx((longest + added * 0.8) ** 2 / (4 * added * n), rel=1e-9)
    loss = Quadratic(np.full(dim, added), [0.8, 0.0, 0.0, 0.0])
    noise = printed_noise(np.random.default_rng(2), epsilon, delta, dim, gradient)
    excess = loss.excess(loss.private(noise, added)) / n
    assert np.sum(excess > bound.corrected) <= most_failures(gamma, RUNS)


def test_lemma_28_as_it_is_used_fails_at_large_p_and_gamma():
    """Half of the draws should be at most as long as it says; here none is."""
    dim, gamma = 200, 0.9
    with_norm_only = {"n": 1, "n_features": dim, "gradient": 1.0, "strong_convexity": 1.0, "norm": 0.0}
    bound = theory.empirical_risk_tail(1.0, DELTA, **with_norm_only, gamma=gamma)
    squares = np.sum(printed_noise(np.random.default_rng(3), 1.0, DELTA, dim, 1.0) ** 2, axis=1)
    assert (2.0 * squares > bound.printed).all()
    assert np.sum(squares / 4.0 > bound.corrected) <= most_failures(gamma, RUNS)
    assert np.sum(squares / 4.0 > bound.corrected) >= stats.binom.ppf(1e-9, RUNS, gamma)


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("dim", [1, 6, 30])
def test_theorem_4(delta, dim):
    epsilon, gradient, curvature, norm, n = 0.8, 2.0, 0.5, 0.9, 1000
    sizes = {"n_features": dim, "gradient": gradient}
    best = theory.best_strong_convexity(epsilon, delta, **sizes, curvature=curvature, norm=norm)
    at_printed, at_best = (
        theory.expected_risk(epsilon, delta, n=n, **sizes, strong_convexity=added, norm=norm) for added in best
    )
    if delta == 0.0:
        moment = (2 * gradient / epsilon) ** 2 * dim * (dim + 1)
        added = max(gradient * dim * math.log(dim) / (epsilon * norm), curvature / (2 * epsilon))
        printed = 8 * (gradient * dim * math.log(dim) / epsilon) ** 2 / added + added * norm**2 / 2
    else:
        tail = 8 * math.log(2 / delta) + 4 * epsilon
        moment = gradient**2 * tail / epsilon**2 * dim
        added = max(gradient * math.sqrt(dim * math.log(1 / delta)) / (epsilon * norm), curvature / (2 * epsilon))
        printed = 4 * dim * gradient**2 * tail / epsilon**2 / added + added * norm**2 / 2
    assert best.printed == pytest.approx(added, rel=1e-12)
    assert best.corrected == pytest.approx(max(math.sqrt(moment) / norm, 2 * curvature / epsilon), rel=1e-12)
    assert at_printed.printed == pytest.approx(printed / n, rel=1e-12)
    for factor in (0.9, 1.0, 1.1):
        moved = factor * best.corrected
        other = theory.expected_risk(epsilon, delta, n=n, **sizes, strong_convexity=moved, norm=norm)
        assert other.corrected == pytest.approx((moment + moved**2 * norm**2) / (4 * moved * n), rel=1e-12)
        assert other.corrected >= at_best.corrected

    draws = printed_noise(np.random.default_rng(4), epsilon, delta, dim, gradient)
    assert abs(np.mean(np.sum(draws**2, axis=1)) - moment) <= 6 * np.std(np.sum(draws**2, axis=1)) / math.sqrt(RUNS)
    loss = Quadratic(np.full(dim, best.corrected), np.full(dim, norm / math.sqrt(dim)))
    assert mean_below(loss.excess(loss.private(draws, best.corrected)) / n) <= at_best.corrected


def test_theorem_4_as_printed_fails_with_one_feature():
    """log 1 = 0 leaves no noise in part 1; the loss |x - theta| shows what there is."""
    epsilon, gradient, added, slope, n = 0.5, 1.0, 0.5, 4.0, 1
    draws = printed_noise(np.random.default_rng(5), epsilon, 0.0, 1, gradient)[:, 0]
    # theta_hat = 0: soft thresholding.
    private = -np.sign(draws) * np.maximum(np.abs(draws) - slope, 0.0) / added
    sizes = {"n": n, "n_features": 1, "gradient": gradient, "strong_convexity": added, "norm": 0.0}
    bound = theory.expected_risk(epsilon, 0.0, **sizes)
    assert bound.printed == 0.0
    assert bound.printed < mean_below(slope * np.abs(private))
    assert mean_below(slope * np.abs(private)) <= bound.corrected


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1.25])
def test_theorem_4_as_printed_lets_curvature_spend_all_of_epsilon(epsilon):
    best = theory.best_strong_convexity(epsilon, DELTA, n_features=2, gradient=1e-9, curvature=3.0, norm=1.0)
    assert math.log1p(3.0 / best.printed) > epsilon
    assert math.log1p(3.0 / best.corrected) <= epsilon / 2


@pytest.mark.parametrize("epsilon", [1.0, 1e4])
def test_theorem_29(epsilon):
    """Linear losses -x'theta over the unit ball, x of unit norm: theta_bar is the direction of E x."""
    n, dim, runs = 100, 5, 2000
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(runs, n, dim))
    rows *= np.where(rng.uniform(size=(runs, n, 1)) < 0.55, np.sign(rows[:, :, :1]), -np.sign(rows[:, :, :1]))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    tilt = np.array([rows[:, :, 0].mean(), 0.0, 0.0, 0.0, 0.0])
    sums, noise = rows.sum(axis=1), printed_noise(rng, epsilon, DELTA, dim, 1.0, runs)
    sizes = {"n": n, "n_features": dim, "bound_x": 1.0, "derivative": 1.0, "norm": 1.0}
    least = math.sqrt(8 * n + dim * (8 * math.log(2 / DELTA) + 4 * epsilon) / epsilon**2)
    corrected = {}
    for added in (0.5, least, 1.1 * least, 0.9 * least):
        bound = theory.expected_population_risk(epsilon, DELTA, **sizes, strong_convexity=added)
        empirical = theory.expected_risk(
            epsilon, DELTA, n=n, n_features=dim, gradient=1.0, strong_convexity=added, norm=1.0
        )
        assert bound == Bound(empirical.printed, empirical.corrected + 2.0 / added)
        private = minimise_over_ball(np.full(dim, added), sums - noise, 1.0)
        excess = tilt[0] - private @ tilt
        assert mean_below(excess) <= bound.corrected
        corrected[added] = bound.corrected
        if epsilon == 1e4 and added == 0.5:
            assert bound.printed < 0.2 * mean_below(excess)
    assert min(corrected, key=corrected.__getitem__) == least


@pytest.mark.parametrize("gamma", [0.4, 0.01])
def test_theorems_30_and_31(gamma):
    epsilon, gradient, n, dim, added, convexity = 0.9, 0.4, 30, 3, 20.0, 300.0
    noise = printed_noise(np.random.default_rng(7), epsilon, DELTA, dim, gradient)
    # As weak as allowed in one direction, which holds all of theta_hat.
    loss = Quadratic([convexity, 3 * convexity, 2 * convexity], [0.5, 0.0, 0.0])
    sizes = {"n_features": dim, "gradient": gradient, "strong_convexity": added, "loss_convexity": convexity}
    found = theory.parameter_distance(epsilon, DELTA, **sizes, norm=loss.norm, gamma=gamma)
    risk = theory.strongly_convex_risk_tail(epsilon, DELTA, n=n, **sizes, norm=loss.norm, gamma=gamma)

    scale = gradient * math.sqrt(8 * math.log(2 / DELTA) + 4 * epsilon) / epsilon
    total, quantile = added + convexity, scale * stats.chi(dim).isf(gamma)
    tail = scale * math.sqrt(2 * dim * math.log(1 / gamma))
    shrunk = math.sqrt(added / total) * 0.5
    assert found.from_ridge == pytest.approx((tail / total, quantile / total))
    both = (quantile + added * 0.5) / total
    assert found.from_minimiser == pytest.approx((tail / total + shrunk, both))
    # sqrt(32 p) is four times sqrt(2 p).
    assert found.radius == pytest.approx((4 * tail / total + 2 * shrunk, both))
    assert risk == pytest.approx(
        (
            2 * tail**2 / (n * total) + added * 0.25 / (2 * n),
            (quantile + added * 0.5) ** 2 / (2 * n * (2 * added + convexity)),
        )
    )

    private, ridge = loss.private(noise, added), loss.private(np.zeros((1, dim)), added)
    most = most_failures(gamma, RUNS)
    assert np.sum(np.linalg.norm(private - ridge, axis=1) > found.from_ridge.corrected) <= most
    assert np.sum(np.linalg.norm(private - loss.minimiser, axis=1) > found.from_minimiser.corrected) <= most
    assert np.sum(loss.excess(private) / n > risk.corrected) <= most


def test_theorem_30_as_corrected_is_attained_in_one_dimension():
    epsilon, gradient, added, convexity, gamma = 1.0, 1.0, 30.0, 100.0, 0.25
    noise = printed_noise(np.random.default_rng(8), epsilon, DELTA, 1, gradient)
    loss = Quadratic([convexity], [0.0])
    found = theory.parameter_distance(
        epsilon, DELTA, n_features=1, gradient=gradient, strong_convexity=added, loss_convexity=convexity, norm=0.0,
        gamma=gamma,
    )  # fmt: skip
    failed = np.sum(np.abs(loss.private(noise, added)) > found.from_ridge.corrected)
    assert stats.binom.ppf(1e-9, RUNS, gamma) <= failed <= most_failures(gamma, RUNS)


def test_curvature_inside_the_radius_of_theorem_30_is_enough():
    """A loss that is flat beyond it: slope constant outside the radius, in one dimension."""
    epsilon, gradient, added, convexity, gamma = 1.0, 0.5, 10.0, 50.0, 0.02
    sizes = {"gradient": gradient, "strong_convexity": added, "loss_convexity": convexity}
    found = theory.parameter_distance(epsilon, DELTA, n_features=1, **sizes, norm=0.3, gamma=gamma)
    radius = found.radius.corrected
    noise = printed_noise(np.random.default_rng(9), epsilon, DELTA, 1, gradient)[:, 0]
    # Slope of loss + ridge + noise at theta_hat + radius t, t in [-1, 1], and on the flat parts.
    centre = noise + added * 0.3
    inside = -centre / (added + convexity)
    outside = -(centre - np.sign(centre) * convexity * radius) / added
    moved = np.where(np.abs(inside) <= radius, inside, outside)
    assert np.sum(np.abs(moved) > found.from_minimiser.corrected) <= most_failures(gamma, RUNS)


def test_theorem_5():
    epsilon, gradient, curvature, n, dim, convexity = 0.6, 0.2, 2.0, 500, 4, 400.0
    added = 2 * curvature / epsilon
    loss = Quadratic(convexity * np.array([1.0, 1.0, 2.0, 5.0]), [0.6, 0.0, 0.0, 0.0])
    sizes = {"n_features": dim, "gradient": gradient, "curvature": curvature, "loss_convexity": convexity}
    bound = theory.expected_strongly_convex_risk(epsilon, DELTA, n=n, **sizes, norm=0.6)
    tail = 8 * math.log(2 / DELTA) + 4 * epsilon
    printed = 4 * dim * gradient**2 * tail / (n * epsilon**2 * convexity) + curvature * 0.36 / (n * epsilon)
    moment = dim * gradient**2 * tail / epsilon**2
    assert bound.printed == pytest.approx(printed, rel=1e-12)
    assert bound.corrected == pytest.approx(
        (moment + (added * 0.6) ** 2) / (2 * n * (2 * added + convexity)), rel=1e-12
    )
    noise = printed_noise(np.random.default_rng(10), epsilon, DELTA, dim, gradient)
    assert mean_below(loss.excess(loss.private(noise, added)) / n) <= bound.corrected


def test_section_h_bounds_gradient_and_curvature_of_linear_regression():
    """Both are attained: x and theta of norm sqrt(p) in opposite directions, y = p."""
    rng = np.random.default_rng(11)
    for dim in (1, 4, 9):
        setting = theory.linear_regression(dim)
        x, theta = (radius * draws / np.linalg.norm(draws, axis=1, keepdims=True)
                    for radius, draws in ((math.sqrt(dim), rng.normal(size=(500, dim))) for _ in range(2)))  # fmt: skip
        y = rng.uniform(-dim, dim, size=500)
        gradients = np.abs(y - np.sum(x * theta, axis=1)) * np.linalg.norm(x, axis=1)
        assert gradients.max() <= setting.gradient * (1 + 1e-12)
        corner = np.full(dim, 1.0)
        assert np.linalg.norm(corner * (dim + corner @ corner)) == pytest.approx(setting.gradient)
        assert np.linalg.norm(np.outer(corner, corner), 2) == pytest.approx(setting.curvature)
        assert setting.radius == pytest.approx(math.sqrt(dim))


def test_table_1_has_the_printed_exponents():
    sizes = {"epsilon": 0.5, "delta": DELTA}
    small, wide = theory.table_1(n=10**6, n_features=50, **sizes), theory.table_1(n=10**6, n_features=100, **sizes)
    # Exactly p^3 log p and p^(5/2); Theorem 5's p^4/n^2 + p^2/n tends to the second at n large.
    logs = math.log(100) / math.log(50)
    assert wide.gamma.printed / small.gamma.printed == pytest.approx(8 * logs, rel=1e-12)
    assert wide.gaussian.printed / small.gaussian.printed == pytest.approx(2**2.5, rel=1e-12)
    assert wide.gaussian.corrected / small.gaussian.corrected == pytest.approx(2**2.5, rel=1e-12)
    assert wide.gamma.corrected / small.gamma.corrected == pytest.approx(8, rel=0.02)
    many = [theory.table_1(n=10**12, n_features=p, **sizes).strongly_convex for p in (50, 100)]
    assert many[1].printed / many[0].printed == pytest.approx(4.0, rel=1e-3)
    more = theory.table_1(n=2 * 10**12, n_features=50, **sizes).strongly_convex
    assert many[0].printed / more.printed == pytest.approx(2.0, rel=1e-3)
    assert many[0].corrected / more.corrected == pytest.approx(4.0, rel=1e-3)


SIZES = {"n": 10, "n_features": 2, "gradient": 1.0}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: theory.empirical_risk(-1.0, n=1, strong_convexity=1.0, norm=1.0), "noise_norm"),
        (lambda: theory.empirical_risk(1.0, n=0, strong_convexity=1.0, norm=1.0), "n must"),
        (lambda: theory.empirical_risk(1.0, n=1, strong_convexity=0.0, norm=1.0), "strong_convexity"),
        (lambda: theory.expected_risk(0.0, DELTA, **SIZES, strong_convexity=1.0, norm=1.0), "epsilon"),
        (lambda: theory.expected_risk(1.0, 2.0, **SIZES, strong_convexity=1.0, norm=1.0), "delta"),
        (lambda: theory.expected_risk(1.0, 0.0, **SIZES, strong_convexity=1.0, norm=-1.0), "norm"),
        (
            lambda: theory.empirical_risk_tail(1.0, 0.0, **SIZES, strong_convexity=1.0, norm=1.0, gamma=1.0),
            "gamma",
        ),
        (
            lambda: theory.best_strong_convexity(1.0, 0.0, n_features=2, gradient=1.0, curvature=1.0, norm=0.0),
            "norm",
        ),
        (
            lambda: theory.expected_strongly_convex_risk(
                1.0, 0.0, **SIZES, curvature=1.0, loss_convexity=1.0, norm=1.0
            ),
            "delta = 0",
        ),
        (
            lambda: theory.expected_strongly_convex_risk(
                1.0, DELTA, **SIZES, curvature=1.0, loss_convexity=0.0, norm=1.0
            ),
            "loss_convexity",
        ),
        (lambda: theory.linear_regression(0), "n_features"),
        (lambda: theory.table_1(1.0, 0.0, n=1, n_features=1), "delta = 0"),
    ],
)
def test_bad_numbers_are_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()
