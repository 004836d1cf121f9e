"""Noise on donors' weights: what is computed, what is added to it, and what that hides, exactly where that can be."""

import math
from fractions import Fraction
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpfast import Privacy, Release, noise
from dpfast.privacy import gaussian_delta, weight_sensitivity
from dpfast.synthetic_control.donor_weights import (
    BoundedPanel,
    DonorObjectivePerturbation,
    OutputPerturbation,
    PanelBounds,
    PrintedObjectivePerturbation,
    PrintedOutputPerturbation,
    output_half_width,
    prediction,
    ridge_weights,
)

FALSE_REJECT = 1e-7
N, T0, T = 12, 6, 10


def panel(n=N, n_pre=T0, n_post=T - T0, seed=0, row_bound=(None, None)):
    rng = np.random.default_rng(seed)
    pre, post = rng.uniform(-1, 1, (n, n_pre)), rng.uniform(-1, 1, (n, n_post))
    target = rng.uniform(-1, 1, n_pre)
    bounds = PanelBounds.of(n, n_post, target, row_bound)
    return BoundedPanel.of(np.hstack([pre, post]), target, bounds), bounds


@pytest.mark.parametrize("ridge", [1e-3, 1.0, T0, 300.0])
def test_ridge_weights_are_the_textbook_ones(ridge):
    rows, _ = panel()
    x, y = rows.pre, rows.target
    textbook = np.linalg.solve(x @ x.T + 0.5 * ridge * np.eye(N), x @ y)
    np.testing.assert_allclose(ridge_weights(x, y, ridge), textbook, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_pre", [2, 6, 20])
@pytest.mark.parametrize("ridge", [1e-9, 1e-4, 10.0])
def test_weights_are_within_their_proved_error(ridge, n_pre):
    """Against 50 digits, on donors that are nearly the same, for which the system is as ill-conditioned as can be."""
    rng = np.random.default_rng(3)
    x = np.ones((8, n_pre)) - 1e-6 * rng.uniform(size=(8, n_pre))
    y = rng.uniform(-1, 1, n_pre)
    bounds = PanelBounds.of(8, 1, y)
    with mp.workdps(50):
        exact_x, exact_y = mp.matrix(x.tolist()), mp.matrix(y.tolist())
        moments = exact_x.T * exact_x + mp.mpf(ridge) / 2 * mp.eye(n_pre)
        exact = exact_x * mp.lu_solve(moments, exact_y)
        error = mp.norm(exact - mp.matrix(ridge_weights(x, y, ridge).tolist()))
    assert error <= bounds.weight_error(ridge)


def test_a_ridge_that_double_precision_cannot_take_is_refused():
    rows, bounds = panel()
    with pytest.raises(ValueError, match="ridge must be larger"):
        OutputPerturbation.calibrate(Privacy(1.0), bounds, 1e-14)
    assert OutputPerturbation.calibrate(Privacy(1.0), bounds, 1e-6).release(rows, noise.SeededSource(0), "").shapes


def test_rows_beyond_their_bounds_are_scaled_onto_them():
    rows, bounds = panel(row_bound=(0.5, None))
    norms = np.linalg.norm(rows.pre, axis=1)
    assert norms.max() <= bounds.row_pre
    assert norms == pytest.approx(0.5)
    # The box's own bound leaves every row as it is, those at the corners too.
    corners = np.ones((3, T0))
    assert np.array_equal(BoundedPanel.of(np.hstack([corners, corners]), rows.target, panel()[1]).pre, corners)
    assert repr(rows) == "BoundedPanel(not private)"


def test_nobody_moves_the_computed_projection_further():
    rng = np.random.default_rng(4)
    for _ in range(200):
        rows, bounds = panel(seed=int(rng.integers(1000)))
        weights = rng.normal(size=N) * 10.0 ** rng.uniform(-8, 8)
        donor = int(np.abs(weights).argmax())
        pair = [rows.post.copy(), rows.post.copy()]
        pair[0][donor], pair[1][donor] = 1.0, -1.0
        released = [(post.T @ weights) / np.abs(weights).max() for post in pair]
        moved = np.linalg.norm(released[0] - released[1])
        # The donor with the largest weight, from one corner to the other: tight.
        assert moved <= bounds.projection_sensitivity
        assert moved == pytest.approx(bounds.projection_sensitivity, rel=1e-8)


@pytest.mark.parametrize("n", [1, 100, 100_000])
def test_twice_the_rounding_of_a_projection_is_part_of_its_sensitivity(n):
    """Sums of n donors, each with a weight of at most 1, are off by at most (n + 2) u times the sum of their norms."""
    found = Fraction(PanelBounds(n, T0, 4, 1.0, 2.0, 3.0).projection_sensitivity)
    rounding = 2 * Fraction(n + 2, 2**53) * n * 3
    assert 6 + rounding <= found <= (6 + 2 * rounding) * (1 + Fraction(1, 2**43))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_of_output_perturbation_has_the_calibrated_law(delta):
    rows, bounds = panel()
    chosen = OutputPerturbation.calibrate(Privacy(2.0, delta), bounds, float(T0))
    scales = chosen.noise_scales
    repeats = 1500
    weights, projections = chosen.repeat(rows, noise.SeededSource(5), repeats)
    exact = ridge_weights(rows.pre, rows.target, float(T0))
    residuals = [weights - exact[:, None], projections - rows.post.T @ weights / np.abs(weights).max(axis=0)]
    for residual, scale in zip(residuals, (scales.weight_scale, scales.projection_scale), strict=True):
        if delta:
            assert stats.kstest((residual / scale).ravel(), "norm").pvalue > FALSE_REJECT
        else:
            radii = np.linalg.norm(residual / scale, axis=0)
            assert stats.kstest(radii, stats.gamma(len(residual)).cdf).pvalue > FALSE_REJECT
    needed = weight_sensitivity(T0, bounds.target_norm, n_donors=N, row_norm=bounds.row_pre)
    if delta:
        mu = math.hypot(needed / scales.weight_scale, bounds.projection_sensitivity / scales.projection_scale)
        assert gaussian_delta(1.0, 2.0, mu) <= delta
    else:
        assert needed / scales.weight_scale + bounds.projection_sensitivity / scales.projection_scale <= 2.0


def test_the_printed_noise_is_two_joint_draws():
    """Radii are Gamma with as many dimensions as there are weights, and donors times periods."""
    rows, bounds = panel()
    chosen = PrintedOutputPerturbation.calibrate(Privacy(2.0), bounds, float(T0), split=(0.5, 1.5))
    scales = chosen.noise_scales
    assert scales.weight_scale == pytest.approx(4.0 * math.sqrt(8 + N) / 0.5)
    assert scales.donor_scale == pytest.approx(2.0 * math.sqrt(T - T0) / 1.5)
    source = noise.SeededSource(6)
    exact = ridge_weights(rows.pre, rows.target, float(T0))
    releases = [chosen.release(rows, source, "") for _ in range(400)]
    radii = [np.linalg.norm(one.values["weights"] - exact) / scales.weight_scale for one in releases]
    assert stats.kstest(radii, stats.gamma(N).cdf).pvalue > FALSE_REJECT
    radii = [np.linalg.norm(one.values["donors"] - rows.post) / scales.donor_scale for one in releases]
    assert stats.kstest(radii, stats.gamma(N * (T - T0)).cdf).pvalue > FALSE_REJECT
    release = releases[0]
    assert release.calibration == "paper"
    assert release.guaranteed
    np.testing.assert_allclose(prediction(release), release.values["donors"].T @ release.values["weights"])


def test_noise_in_the_prediction_against_the_printed():
    """It is (||f||_2/||f||_inf) sqrt((n (T - T0) + 1)/(T - T0 + 1)) times more, for the same weights and epsilon."""
    periods = T - T0
    printed_scale = 2.0 * math.sqrt(periods)
    weights = ridge_weights(panel()[0].pre, panel()[0].target, float(T0))
    source = noise.SeededSource(7)
    size = 1500
    printed = [
        noise.l2_laplace(printed_scale, N * periods, source).reshape(N, periods).T @ weights for _ in range(size)
    ]
    ours = [noise.l2_laplace(printed_scale, periods, source) * np.abs(weights).max() for _ in range(size)]
    ratio = np.std(printed) / np.std(ours)
    formula = np.linalg.norm(weights) / np.abs(weights).max() * math.sqrt((N * periods + 1.0) / (periods + 1.0))
    # Six standard errors of a standard deviation from 1500 vectors, fourth moments of up to 6 included.
    assert ratio == pytest.approx(formula, rel=6.0 * math.sqrt(6.0 / 4.0 * 2.0 / size))


def exact_scalar(x, y, m, b):
    """The minimiser for a single donor, from its closed form."""
    return float(np.clip((2.0 * x @ y - b) / (2.0 * x @ x + m), -1.0, 1.0))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_minimiser_of_a_single_donor(delta):
    rows, bounds = panel(n=1)
    chosen = DonorObjectivePerturbation.calibrate(Privacy(20.0, delta), bounds, 3.0)
    for b in np.linspace(-30.0, 30.0, 101):
        found = chosen.minimise(rows, np.array([b]))
        assert abs(found[0] - exact_scalar(rows.pre[0], rows.target, chosen.ridge, b)) <= chosen.tolerance


def test_the_minimiser_is_optimal():
    """No feasible direction improves: the smallest gradient entry at a vertex's price, weights within the ball."""
    rows, bounds = panel()
    chosen = DonorObjectivePerturbation.calibrate(Privacy(50.0, 1e-6), bounds, 3.0)
    rng = np.random.default_rng(8)
    for scale in (0.0, 1.0, chosen.noise_scales.weights.scale):
        b = rng.normal(size=N) * scale
        f = chosen.minimise(rows, b)
        gradient = 2.0 * rows.pre @ (rows.pre.T @ f - rows.target) + chosen.ridge * f + b
        assert np.abs(f).sum() <= 1.0 + 1e-12
        # Frank-Wolfe gap, which bounds (m/2) distance^2.
        gap = gradient @ f + np.abs(gradient).max()
        assert gap <= 1e-9 * (1.0 + np.abs(gradient).max())


def test_the_release_of_objective_perturbation_records_what_it_cost():
    rows, bounds = panel()
    chosen = DonorObjectivePerturbation.calibrate(Privacy(2.0, 1e-6), bounds, 3.0)
    release = chosen.release(rows, noise.SeededSource(9), "weights")
    own = chosen.noise_scales.weights
    assert release.privacy == Privacy(2.0, 1e-6)
    assert set(release.scales) == {"objective", "weights", "projection"}
    assert release.scales["weights"] == pytest.approx(2.0 * chosen.tolerance / own.finishing_epsilon, rel=1e-15)
    assert f"epsilon {own.finishing_epsilon:.3g}" in release.name
    assert f"{chosen.tolerance:.3g}" in release.name
    assert np.abs(release.values["weights"]).sum() <= 1.0 + 1e-12
    assert Release.from_dict(release.to_dict()).scales == release.scales


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_released_weights_of_a_single_donor_have_the_exact_law(delta):
    """The whole release, solver and finishing noise included, against the closed form of its distribution."""
    x, t = 0.7, 4
    rows = BoundedPanel(np.full((1, t), x), np.ones((1, 1)), np.ones(t))
    bounds = PanelBounds.of(1, 1, rows.target)
    chosen = DonorObjectivePerturbation.calibrate(Privacy(20.0, delta), bounds, 3.0)
    own = chosen.noise_scales.weights
    law = law_of_noise(own.mechanism, own.scale)
    source = noise.SeededSource(14)
    n_draws = 1000
    draws = np.array([chosen.release(rows, source, "").values["weights"][0] for _ in range(n_draws)])
    for weight in (-0.999, -0.5, 0.0, 0.3, 0.6, 0.999):
        # f <= w where b is at least 2 x'y - (2 x'x + m) w; the finishing noise moves that by 1e-5 or so.
        below = law.sf(2.0 * t * x - (2.0 * t * x * x + chosen.ridge) * weight)
        assert stats.binomtest(int((draws <= weight).sum()), n_draws, below).pvalue > FALSE_REJECT


def divergences(density, other, atoms, other_atoms, width, epsilon):
    """Both hockey-stick divergences of two laws given on a grid, with atoms."""

    def one(p, q, a, b):
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * width) + float(
            np.maximum(a - math.exp(epsilon) * b, 0.0).sum()
        )

    return max(one(density, other, atoms, other_atoms), one(other, density, other_atoms, atoms))


def law_of_noise(mechanism, scale):
    return stats.norm(scale=scale) if mechanism == "Gaussian" else stats.laplace(scale=scale)


def scalar_law(law, x, t, m, grid):
    """Density within (-1, 1) and atoms at its ends of the constrained weight of one donor, x in every period, y = 1."""
    curvature, slope = 2.0 * t * x * x + m, 2.0 * t * x
    atoms = np.array([law.cdf(slope - curvature), law.sf(slope + curvature)])[::-1]
    return curvature * law.pdf(slope - curvature * grid), atoms


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 20.0])
def test_sound_objective_perturbation_keeps_its_epsilon_exactly(epsilon, delta):
    """A single donor, T0 = 10: density on a grid, and the atoms on the boundary; donors all along the target."""
    t = 10
    bounds = PanelBounds.of(1, 1, np.ones(t))
    own = DonorObjectivePerturbation.calibrate(Privacy(epsilon, delta), bounds, 10.0).noise_scales.weights
    claim = own.noise_epsilon + own.curvature_epsilon
    law = law_of_noise(own.mechanism, own.scale)
    grid, width = np.linspace(-1.0, 1.0, 4000, endpoint=False) + 1.0 / 4000.0, 2.0 / 4000.0
    laws = [scalar_law(law, x, t, own.strong_convexity, grid) for x in np.linspace(-1.0, 1.0, 17)]
    for density, atoms in laws:
        assert density.sum() * width + atoms.sum() == pytest.approx(1.0, abs=1e-5)
    worst = max(divergences(p, q, a, b, width, claim) for p, a in laws for q, b in laws)
    # Densities are exact at the points of the grid, so ratios are too; a pure claim leaves rounding alone.
    assert worst <= own.privacy.delta + 1e-12
    if delta == 0.0:
        # And it is no idle claim: at two thirds of it, donors are found that tell it apart.
        assert max(divergences(p, q, a, b, width, 0.5 * claim) for p, a in laws for q, b in laws) > 1e-5


@pytest.mark.parametrize(
    ("delta", "epsilon", "printed_delta"),
    [(0.0, 0.5, 1.29e-3), (0.0, 1.0, 3.19e-3), (0.0, 2.0, 9.47e-3), (1e-6, 1.0, 1.78e-2)],
)
def test_printed_objective_perturbation_is_not_private(delta, epsilon, printed_delta):
    """docs/defects.md: n = 1, T0 = 10, lambda = 10, y = 1, donor 0 against 1; the weight has all of R."""
    t = 10
    bounds = PanelBounds.of(1, 1, np.ones(t))
    chosen = PrintedObjectivePerturbation.calibrate(
        Privacy(2.0 * epsilon, delta), bounds, 10.0, split=(epsilon, epsilon)
    )
    own = chosen.noise_scales.weights
    law = law_of_noise(own.mechanism, own.scale)
    grid = np.linspace(-400.0, 400.0, 4_000_001)
    laws = [
        curvature * law.pdf(slope - curvature * grid)
        for curvature, slope in ((2.0 * t * x * x + own.strong_convexity, 2.0 * t * x) for x in (0.0, 1.0))
    ]
    none = np.zeros(1)
    found = divergences(*laws, none, none, grid[1] - grid[0], epsilon)
    assert found == pytest.approx(printed_delta, rel=5e-3)
    assert found > 100.0 * delta


def test_the_printed_objective_perturbation_promises_nothing():
    rows, bounds = panel()
    chosen = PrintedObjectivePerturbation.calibrate(Privacy(2.0, 1e-6), bounds, 3.0)
    release = chosen.release(rows, noise.SeededSource(10), "")
    assert not chosen.guaranteed
    assert not release.guaranteed
    assert release.guarantee.startswith("none")
    source = noise.SeededSource(11)
    draws = np.array([chosen.release(rows, source, "").values["weights"] for _ in range(600)])
    # The noise that gives these weights, from the condition of the first order.
    b = 2.0 * (rows.pre @ rows.target)[:, None] - (2.0 * rows.pre @ rows.pre.T + chosen.ridge * np.eye(N)) @ draws.T
    assert stats.kstest((b / chosen.noise_scales.weight_scale).ravel(), "norm").pvalue > FALSE_REJECT


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("printed", [False, True])
def test_half_widths_cover_at_least_their_level(delta, printed):
    if printed and delta:
        pytest.skip("Algorithm 2 has no Gaussian form")
    rng = np.random.default_rng(12)
    # Outcomes at the ends of the range: the worst case that half-widths allow for.
    pre, post = rng.uniform(-1, 1, (N, T0)), rng.choice([-1.0, 1.0], (N, T - T0))
    target = rng.uniform(-1, 1, T0)
    bounds = PanelBounds.of(N, T - T0, target)
    rows = BoundedPanel.of(np.hstack([pre, post]), target, bounds)
    kind = PrintedOutputPerturbation if printed else OutputPerturbation
    chosen = kind.calibrate(Privacy(10.0, delta), bounds, float(T0))
    exact = post.T @ ridge_weights(pre, target, float(T0))
    source = noise.SeededSource(13)
    releases = [chosen.release(rows, source, "") for _ in range(400)]
    covered = np.mean([np.abs(prediction(one) - exact) <= output_half_width(chosen, one, 0.9) for one in releases])
    # Per period binomial; 1600 dependent cases, at worst 400 independent ones: five standard errors.
    assert covered >= 0.9 - 5.0 * math.sqrt(0.09 / 400.0)
    if delta:
        assert covered <= 0.9 + 5.0 * math.sqrt(0.09 / 400.0)


@pytest.mark.parametrize(("n", "found"), [(1, 0.885), (5, 0.899)])
def test_gaussian_half_widths_cover_a_little_less_where_few_donors_make_the_largest_weight(n, found):
    """At the worst found: one weight of three deviations, and noise in the prediction of the weights' own scale."""
    rng, runs = np.random.default_rng(14), 4000
    chosen = OutputPerturbation.calibrate(Privacy(1.0, 1e-6), PanelBounds.of(n, 1, np.ones(T0)), float(T0))
    scales = {"weights": 1.0, "projection": math.sqrt(n)}
    noisy = rng.normal(size=(runs, n))
    weights = noisy + 3.0 * np.eye(n)[0]
    largest = np.abs(weights).max(axis=1)
    errors = np.abs(noisy.sum(axis=1) + largest * math.sqrt(n) * rng.normal(size=runs))
    widths = [output_half_width(chosen, SimpleNamespace(values={"weights": f}, scales=scales), 0.9) for f in weights]
    assert abs(np.mean(errors <= widths) - found) <= 5.0 * math.sqrt(0.1 / runs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PanelBounds.of(3, 2, np.zeros(4)), "target must not be at the middle"),
        (lambda: panel(row_bound=(-1.0, None)), "row_bound must be positive"),
        (lambda: OutputPerturbation.calibrate(Privacy(1.0), panel()[1], 0.0), "ridge must be positive"),
        (lambda: OutputPerturbation.calibrate(Privacy(math.inf), panel()[1], 1.0), "epsilon must be finite"),
        (lambda: DonorObjectivePerturbation.calibrate(Privacy(1.0), panel()[1], -1.0), "ridge must be at least 0"),
        (lambda: PrintedOutputPerturbation.calibrate(Privacy(1.0, 1e-6), panel()[1], 1.0), "delta must be 0"),
        (
            lambda: PrintedOutputPerturbation.calibrate(Privacy(1.0), panel()[1], 1.0, split=(0.9, 0.2)),
            "split must add up to epsilon at most",
        ),
        (
            lambda: PrintedOutputPerturbation.calibrate(Privacy(1.0), PanelBounds.of(1, 1, np.full(4, 99.0)), 1.0),
            "target must lie within the declared range",
        ),
        (lambda: PrintedObjectivePerturbation.calibrate(Privacy(math.inf), panel()[1], 1.0), "epsilon must be finite"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("declared", [(0.5, None), (None, 0.5), (0.3, 0.4)])
def test_no_row_is_longer_than_what_noise_is_for(declared):
    """Before and after the intervention, in exact arithmetic."""
    rows, bounds = panel(n=400, row_bound=declared)
    for part, limit, own in ((rows.pre, bounds.row_pre, declared[0]), (rows.post, bounds.row_post, declared[1])):
        lengths = [sum(Fraction(entry) ** 2 for entry in row) for row in part.tolist()]
        assert max(lengths) <= Fraction(limit) ** 2
        if own is not None:
            assert math.sqrt(max(lengths)) == pytest.approx(own)
    assert bounds.projection_sensitivity >= 2.0 * bounds.row_post


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_output_noise_is_for_computed_weights(delta, ridge):
    """Both tables' weights may be off by the solver's error: in exact arithmetic, epsilon pays for that too."""
    bounds = panel()[1]
    scales = OutputPerturbation.calibrate(Privacy(2.0, delta), bounds, ridge).noise_scales
    weights = Fraction(weight_sensitivity(ridge, bounds.target_norm, n_donors=N, row_norm=bounds.row_pre))
    weights += 2 * Fraction(bounds.weight_error(ridge))
    parts = [weights / Fraction(scales.weight_scale)]
    parts.append(Fraction(bounds.projection_sensitivity) / Fraction(scales.projection_scale))
    if delta:
        assert sum(part**2 for part in parts) <= Fraction(scales.mu) ** 2
    else:
        assert sum(parts) <= 2


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_tolerance_of_objective_perturbation_covers_every_rounding_before_the_solver(delta):
    """In exact arithmetic: half a grid an entry of b, and sums with noise that is absurdly long; all of it over m."""
    for epsilon, row in ((1e-3, None), (1.0, None), (1.0, 1e-3)):
        bounds = panel(row_bound=(row, None))[1]
        chosen = DonorObjectivePerturbation.calibrate(Privacy(epsilon, delta), bounds, 0.0)
        own = chosen.noise_scales.weights
        root = Fraction(math.sqrt(N))
        longest = 2**20 * Fraction(own.scale) * (root if delta else N)
        linear = 2 * root * Fraction(bounds.row_pre) * Fraction(bounds.target_norm)
        sums = Fraction(11, 10) / 2**53 * ((T0 + 2) * linear + longest)
        rounded = root / 2 * Fraction(noise.finest_grid(own.scale)) + sums
        # The other half of the tolerance is the solver's.
        assert Fraction(chosen.tolerance) / 2 >= rounded / Fraction(own.strong_convexity)


@pytest.mark.parametrize("t", [1, 3, 10])
def test_the_targets_norm_is_no_shorter_than_it_is(t):
    for seed in range(200):
        target = np.random.default_rng(seed).uniform(-1.0, 1.0, t)
        bound = Fraction(PanelBounds.of(2, 1, target).target_norm)
        exact = sum(Fraction(value) ** 2 for value in target.tolist())
        assert exact <= bound**2 <= exact * (1 + Fraction(1, 2**40))
