"""The release of a perturbed minimiser: exact privacy in one dimension, bounds, law, tolerance, what is recorded."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from reference.perturbed import IntervalLaw, divergences
from scipy import stats

from dpfast import Privacy, Release, noise
from dpfast.privacy import UnsoundCalibrationWarning, objective_noise
from dpfast.releases.minimisers import (
    ObjectiveBounds,
    ObjectivePerturbation,
    bounded_rows,
    loss_of_moments,
    loss_of_rows,
    moment_bounds,
    objective_perturbation,
    row_bounds,
)
from dpfast.solvers import (
    Box,
    CallableLoss,
    ElasticNet,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    SmoothedHinge,
    SmoothedHuber,
    SquaredLoss,
)
from dpfast.statistics import gram

FALSE_REJECT = 1e-7
LOSSES = [SquaredLoss(), SmoothedHuber(0.5), LogisticLoss(), SmoothedHinge(0.3)]
SETS = {"L2": L2Ball(1.0), "L1": L1Ball(0.5), "box": Box(low=-0.5, high=2.0), "none": None}
ADJACENCIES = ["replace_one", "add_remove"]

COMBINATIONS = [
    pytest.param(loss, region, id=f"{loss.kind}-{name}")
    for loss in LOSSES
    for name, region in SETS.items()
    if region is not None or not isinstance(loss, SquaredLoss)
]


def interval(region):
    return (-6.0, 6.0) if region is None else tuple(float(region.project([end])[0]) for end in (-1e9, 1e9))


def law(chosen, rows):
    """Of the minimiser for one-dimensional rows (x, y), before its finishing noise."""
    loss, own = chosen.bounds.loss, chosen.noise_scales
    x, y = np.array(rows, float).reshape(-1, 2).T

    def summed(derivative, power):
        return lambda t: np.sum(x**power * derivative(np.multiply.outer(t, x), y), axis=-1)

    low, high = interval(chosen.bounds.constraint)
    return IntervalLaw(
        summed(loss.derivative, 1), summed(loss.second_derivative, 2), m=own.strong_convexity,
        l1=chosen.bounds.penalty.l1 if chosen.bounds.penalty else 0.0, low=low, high=high, scale=own.scale,
        gaussian=own.mechanism == "Gaussian",
    )  # fmt: skip


def pairs(loss, adjacency):
    """Tables that differ in one record: at its bounds, at the middle, gone."""
    ends = (-1.0, 1.0) if loss.is_classification else (-1.0, 0.0, 1.0)
    records = [(x, y) for x in (1.0, 0.4) for y in ends]
    for base in ([], [(1.0, 1.0), (1.0, -1.0), (0.5, 1.0)]):
        if adjacency == "add_remove":
            for record in records:
                yield [*base, record], base
                yield base, [*base, record]
        else:
            for record in records:
                for other in records:
                    yield [*base, record], [*base, other]


def worst(chosen, adjacency, epsilon):
    found = np.array(
        [divergences(law(chosen, a), law(chosen, b), epsilon, 1001) for a, b in pairs(chosen.bounds.loss, adjacency)]
    )
    return found.max(axis=0)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("loss", "region"), COMBINATIONS)
def test_privacy_is_exact_in_one_dimension(loss, region, adjacency, delta):
    """Interior density and atoms at both ends and at 0 (a lasso), against what finishing noise leaves of the claim.

    The rows span a claim of 1 to some extent, so that a copy with a third of the noise is caught.
    """
    n_rows = 4 if adjacency == "replace_one" else None
    bounds = ObjectiveBounds(loss, 1, 1.0, 1.0, region, Lasso(0.2), n_rows)
    chosen = ObjectivePerturbation.calibrate(Privacy(1.0, delta, adjacency), bounds)
    own = chosen.noise_scales
    epsilon = own.noise_epsilon + own.curvature_epsilon
    ratio, mass = worst(chosen, adjacency, epsilon)
    broken_ratio, broken_mass = worst(replace(chosen, noise_scales=replace(own, scale=own.scale / 5.0)), adjacency, 1.0)
    if delta == 0.0:
        assert ratio <= epsilon * (1.0 + 1e-9)
        assert broken_ratio > 1.0
    else:
        assert mass <= delta
        assert broken_mass > delta


def test_privacy_is_tight_where_the_slope_is_at_its_bound():
    """The hinge is straight on this set: pure noise is used up, and of a delta the half, as the worst change of
    gradient would turn with the noise.
    """
    bounds = ObjectiveBounds(SmoothedHinge(0.3), 1, 1.0, 1.0, L2Ball(0.5))
    for delta in (0.0, 1e-3):
        chosen = ObjectivePerturbation.calibrate(Privacy(1.0, delta, "add_remove"), bounds, 1e3)
        ratio, mass = worst(chosen, "add_remove", chosen.noise_scales.noise_epsilon)
        assert ratio > 0.99 * chosen.noise_scales.noise_epsilon if delta == 0.0 else 0.45 * delta < mass < 0.55 * delta


def test_a_squared_loss_without_a_constraint_is_not_private():
    """The noise that is right on [-1, 1] is not where nothing bounds the gradient: no noise is."""
    with pytest.raises(ValueError, match=r"constraint must be given with SquaredLoss\(\): .* no bound"):
        ObjectiveBounds(SquaredLoss(), 1, 1.0, 1.0)
    chosen = ObjectivePerturbation.calibrate(
        Privacy(1.0, 0.0, "add_remove"), ObjectiveBounds(SquaredLoss(), 1, 1.0, 1.0, L2Ball(1.0))
    )
    unbounded = [law(chosen, rows) for rows in ([(1.0, 1.0)], [])]
    for one in unbounded:
        one.low, one.high = -30.0, 30.0
    ratio, mass = divergences(*reversed(unbounded), 1.0)
    assert ratio > 5.0
    assert mass > 1e-4


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_nobody_moves_gradient_and_curvature_further(loss):
    """Hill-climbed in three dimensions, the parameters at will within the ball; tight under add/remove."""
    region = L2Ball(1.5)
    bounds = ObjectiveBounds(loss, 3, 2.0, 0.7 if not loss.is_classification else 1.0, region, None, 1)

    def record(parameters):
        y = np.tanh(parameters[3]) * bounds.outcome_bound
        return row_in_ball(parameters[:3], 2.0), np.sign(y) if loss.is_classification else y

    def gradient(parameters):
        x, y = record(parameters)
        return float(np.linalg.norm(x) * abs(loss.derivative(x @ region.project(parameters[4:7]), y)))

    def curvature(parameters):
        x, y = record(parameters)
        return float(x @ x * loss.second_derivative(x @ region.project(parameters[4:7]), y))

    rng = np.random.default_rng(0)
    for change, bound in ((gradient, bounds.gradient), (curvature, bounds.curvature)):
        largest, _ = climb(change, 7, rng, restarts=6, screened=60)
        assert largest <= bound
        assert largest > 0.97 * bound


def test_a_replaced_record_moves_the_gradient_within_a_plane():
    """Twice the bound of one, reached by rows of opposite sign; never left, whatever the parameters."""
    rng = np.random.default_rng(1)
    loss, bounds = LogisticLoss(), ObjectiveBounds(LogisticLoss(), 4, 1.0, 1.0, L2Ball(2.0), None, 1)
    rows = [row_in_ball(rng.normal(size=4), 1.0) for _ in range(2)]
    plane = np.linalg.qr(np.column_stack(rows))[0]
    for theta in L2Ball(2.0).project(rng.normal(size=(50, 4)) * 3.0):
        h = rows[0] * loss.derivative(rows[0] @ theta, 1.0) - rows[1] * loss.derivative(rows[1] @ theta, -1.0)
        assert np.linalg.norm(h - plane @ (plane.T @ h)) < 1e-14
        assert np.linalg.norm(h) <= 2.0 * bounds.gradient


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_noise_in_the_objective_has_the_calibrated_law(delta):
    """Recovered from released minimisers of a loss whose gradient is known, over a set they never leave."""
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-0.5, 0.5, (40, 3)), rng.uniform(-1.0, 1.0, 40)
    exact = gram(X, y, bound_x=1.0, bound_y=1.0)
    privacy = Privacy(4.0, delta)
    bounds = ObjectiveBounds(SquaredLoss(), 3, 1.0 + 1e-6, 1.0 + 1e-6, L2Ball(1e3), None, 40)
    chosen = ObjectivePerturbation.calibrate(privacy, bounds, 1e7)
    loss, own, source = loss_of_moments(exact), chosen.noise_scales, noise.SeededSource(3)
    released = np.array([chosen.release(loss, source, "").values["coef"] for _ in range(1500)])
    assert np.linalg.norm(released, axis=1).max() < 999.0
    recovered = -(released @ exact.xx - exact.xy[:, 0] + own.strong_convexity * released) / own.scale
    # Finishing noise is 1e-6 of it and less.
    assert chosen.finishing_scale * own.strong_convexity < 1e-5 * own.scale
    if delta:
        assert stats.kstest(recovered.ravel(), "norm").pvalue > FALSE_REJECT
    else:
        assert stats.kstest(np.linalg.norm(recovered, axis=1), stats.gamma(3).cdf).pvalue > FALSE_REJECT
    wrong = recovered * 1.2
    law_of = stats.norm.cdf if delta else stats.gamma(3).cdf
    assert stats.kstest(wrong.ravel() if delta else np.linalg.norm(wrong, axis=1), law_of).pvalue < FALSE_REJECT


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_scales_are_those_of_the_calibration(adjacency):
    bounds = ObjectiveBounds(LogisticLoss(), 5, 1.0, 1.0, L2Ball(2.0), None, 9 if adjacency == "replace_one" else None)
    chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6, adjacency), bounds, 30.0)
    factor, geometry = (2.0, "plane") if adjacency == "replace_one" else (1.0, "line")
    expected = objective_noise(
        Privacy(1.0, 1e-6, adjacency), gradient=factor * bounds.gradient, curvature=bounds.curvature,
        strong_convexity=30.0, geometry=geometry, dim=5,
    )  # fmt: skip
    assert chosen.noise_scales.scale == pytest.approx(expected.scale)
    assert chosen.ridge == 30.0
    # In one dimension the change of a replaced record keeps to a line too.
    single = ObjectivePerturbation.calibrate(
        Privacy(1.0, 1e-6), replace(bounds, n_features=1, n_rows=9), 30.0
    ).noise_scales.scale
    on_a_line = objective_noise(
        Privacy(1.0, 1e-6), gradient=2.0 * bounds.gradient, curvature=bounds.curvature, strong_convexity=30.0,
        geometry="line", dim=1,
    )  # fmt: skip
    assert single == pytest.approx(on_a_line.scale)


def test_the_strong_convexity_of_a_penalty_counts():
    bounds = ObjectiveBounds(LogisticLoss(), 2, 1.0, 1.0, None, ElasticNet(0.1, 50.0), 9)
    chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6), bounds)
    assert chosen.noise_scales.strong_convexity == 50.0
    assert chosen.ridge == 0.0
    more = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6), bounds, 10.0)
    assert more.noise_scales.strong_convexity == 60.0
    assert more.ridge == 10.0


def test_the_tolerance_is_that_of_every_table():
    """It follows from public numbers, is met, and under add/remove does not depend on the number of rows."""
    rng = np.random.default_rng(4)
    for adjacency in ADJACENCIES:
        for loss in LOSSES[1:]:
            y = np.sign(rng.normal(size=300)) if loss.is_classification else rng.uniform(-1, 1, 300)
            rows, outcomes = bounded_rows(rng.normal(size=(300, 3)), y, 1.0, 1.0)
            sizes = row_bounds(1.0, 1.0)
            n_rows = 300 if adjacency == "replace_one" else None
            bounds = ObjectiveBounds(loss, 3, constraint=L1Ball(2.0), n_rows=n_rows, **sizes)
            chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6, adjacency), bounds)
            function, b = loss_of_rows(rows, outcomes, loss, **sizes), rng.normal(size=3) * 10.0
            close = replace(chosen, tolerance=1e-12 if adjacency == "add_remove" else chosen.tolerance)
            distance = np.linalg.norm(chosen.minimise(function, b) - close.minimise(function, b))
            assert distance <= chosen.tolerance + close.tolerance
            assert chosen.tolerance < 1e-8
            half_a_grid = 0.5 * math.sqrt(3) * noise.finest_grid(chosen.noise_scales.scale)
            hidden = chosen.tolerance + half_a_grid / chosen.noise_scales.strong_convexity
            assert chosen.finishing_scale >= 2.0 * hidden / chosen.noise_scales.finishing_epsilon


def test_moments_are_kept_to_twice_the_precision():
    rng = np.random.default_rng(5)
    rows, y = rng.uniform(-0.5, 0.5, (5000, 3)), rng.uniform(-1, 1, 5000)
    exact = gram(rows, y, bound_x=1.0, bound_y=1.0, sums=True)
    for constant in (0.0, 0.5):
        loss = loss_of_moments(exact, constant)
        x = rng.normal(size=(2, loss.n)) * np.array([[1.0], [2.0**-54]])
        unit = Fraction(2) ** exact.exact_xx.exponent
        moments = [[Fraction(exact.exact_xx.integer((i, j))) * unit for j in range(3)] for i in range(3)]
        cross_unit, sum_unit = (Fraction(2) ** one.exponent for one in (exact.exact_xy, exact.exact_x_sum))
        cross = [Fraction(exact.exact_xy.integer((i, 0))) * cross_unit for i in range(3)]
        if constant:
            sums = [Fraction(exact.exact_x_sum.integer(i)) * sum_unit for i in range(3)]
            a = Fraction(constant)
            moments = [[*row, a * total] for row, total in zip(moments, sums, strict=True)]
            moments.append([*(a * total for total in sums), a * a * 5000])
            cross.append(a * Fraction(exact.exact_y_sum.integer(0)) * Fraction(2) ** exact.exact_y_sum.exponent)
        point = [Fraction(high) + Fraction(low) for high, low in x.T.tolist()]
        gradient = loss.gradient(x)
        error = [
            Fraction(gradient[0, i]) + Fraction(gradient[1, i]) + cross[i]
            - sum(m * t for m, t in zip(moments[i], point, strict=True))
            for i in range(loss.n)
        ]  # fmt: skip
        norm = float(np.linalg.norm(x[0]))
        assert math.sqrt(sum(float(e) ** 2 for e in error)) <= loss.gradient_error(norm)
        assert loss.gradient_error(norm) < 1e-20
        assert np.linalg.norm(gradient[0]) <= loss.gradient_bound(norm)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_release_records_what_it_cost(adjacency, delta):
    rng = np.random.default_rng(6)
    X, y = rng.uniform(-1, 1, (50, 2)), np.ones(50)
    privacy = Privacy(2.0, delta, adjacency)
    release = objective_perturbation(
        X, y, loss=LogisticLoss(), privacy=privacy, bound_x=1.0, constraint=L1Ball(1.0), source=noise.SeededSource(0)
    )
    assert release.privacy == privacy
    assert release.mechanism == ("Gaussian objective" if delta else "L2-Laplace objective")
    assert set(release.scales) == {"objective", "coef"}
    assert release.reproducible
    assert release.guaranteed
    assert np.abs(release.values["coef"]).sum() <= 1.0 + 1e-12
    parts = [float(word) for word in release.name.translate(str.maketrans("", "", ",()")).split() if word[0].isdigit()]
    assert sum(parts[:3]) == pytest.approx(2.0, rel=0.01)
    assert Release.from_dict(release.to_dict()).scales == release.scales


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_printed_noise_is_valid_where_it_was_proved(epsilon, delta):
    """Algorithm 1 of the paper, to the letter; under replace-one it is too little, and there is a warning."""
    X, y = np.ones((20, 1)), np.ones(20)
    for adjacency in ADJACENCIES:
        n_rows = 20 if adjacency == "replace_one" else None
        bounds = ObjectiveBounds(LogisticLoss(), 1, constraint=L2Ball(1.0), n_rows=n_rows, **row_bounds(1.0, 1.0))
        chosen = ObjectivePerturbation.calibrate(Privacy(epsilon, delta, adjacency), bounds, 0.0, calibration="paper")
        own, zeta = chosen.noise_scales, bounds.gradient
        assert own.strong_convexity == max(2.0 * bounds.curvature / epsilon, bounds.least_convexity)
        printed = zeta * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon if delta else 2 * zeta / epsilon
        assert own.scale == pytest.approx(printed)
        assert chosen.guaranteed == (adjacency == "add_remove")
        ratio, mass = worst(chosen, adjacency, own.privacy.epsilon - own.finishing_epsilon)
        assert ratio <= epsilon if not delta else mass <= delta
    arguments = {"loss": LogisticLoss(), "bound_x": 1.0, "constraint": L2Ball(1.0), "calibration": "paper"}
    with pytest.warns(UnsoundCalibrationWarning, match="the printed calibration does not give"):
        release = objective_perturbation(X, y, privacy=Privacy(epsilon, delta), **arguments)
    assert not release.guaranteed
    assert objective_perturbation(X, y, privacy=Privacy(epsilon, delta, "add_remove"), **arguments).guaranteed


def test_a_loss_given_by_functions():
    """Its minimiser is the one of a loss of the library that it equals."""
    rng = np.random.default_rng(7)
    X, y = rng.uniform(-0.5, 0.5, (400, 3)), rng.uniform(-1, 1, 400)
    own = SmoothedHuber(1.0, 0.5)
    same = CallableLoss(
        own.value,
        own.derivative,
        own.second_derivative,
        slope_bound=own.derivative_bound(math.inf),
        curvature_bound=1.0,
    )
    arguments = {"privacy": Privacy(1.0, 1e-6), "bound_x": 1.0, "constraint": L2Ball(2.0)}
    released = [
        objective_perturbation(X, y, loss=loss, source=noise.SeededSource(1), **arguments) for loss in (own, same)
    ]
    assert released[0].scales["objective"] == released[1].scales["objective"]
    difference = released[0].values["coef"] - released[1].values["coef"]
    assert np.abs(difference).max() < 40.0 * max(one.scales["coef"] for one in released) < 1e-2
    with pytest.raises(ValueError, match="adjacency must be 'replace_one' with a loss given by functions"):
        objective_perturbation(X, y, loss=same, **(arguments | {"privacy": Privacy(1.0, 1e-6, "add_remove")}))
    with pytest.raises(ValueError, match="slope must return an array of the shape it was given"):
        objective_perturbation(
            X, y, loss=CallableLoss(own.value, lambda z, y: 0.0, own.value, slope_bound=1.0, curvature_bound=1.0),
            **arguments,
        )  # fmt: skip


class GroupLasso:
    """||x||_2, which keeps the minimiser at 0 or away from it."""

    def value(self, x):
        return float(np.linalg.norm(x))

    def prox(self, v, step):
        norm = np.linalg.norm(v)
        return v * max(0.0, 1.0 - step / norm) if norm > 0.0 else v

    def prox_error(self, norm, step):
        return 2.0**-49 * norm


def test_any_proximable_penalty():
    rng = np.random.default_rng(8)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    y = np.sign(X @ [1.0, 1.0, 0.0])
    for adjacency in ADJACENCIES:
        release = objective_perturbation(
            X, y, loss=LogisticLoss(), privacy=Privacy(4.0, 1e-6, adjacency), bound_x=1.0, penalty=GroupLasso(),
            source=noise.SeededSource(0),
        )  # fmt: skip
        # Where the number of rows is private, the bound on proximal errors leaves room for all there could be.
        least = 1.0 if adjacency == "replace_one" else -40.0 * release.scales["coef"]
        assert release.values["coef"][:2].min() > least
    with pytest.raises(ValueError, match="constraint must be None with a GroupLasso as penalty"):
        ObjectiveBounds(LogisticLoss(), 3, 1.0, 1.0, L2Ball(1.0), GroupLasso(), 5)


ROWS = {"X": np.ones((3, 2)), "y": np.ones(3), "loss": LogisticLoss(), "privacy": Privacy(1.0, 1e-6), "bound_x": 1.0}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"X": np.ones(3)}, ValueError, "X must have rows and columns"),
        ({"X": np.empty((3, 0))}, ValueError, "X must have rows and columns"),
        ({"X": np.empty((0, 2)), "y": np.empty(0)}, ValueError, "X has no rows"),
        ({"y": np.ones(4)}, ValueError, "an entry for each row"),
        ({"X": np.full((3, 2), np.nan)}, ValueError, "X must be finite"),
        ({"y": np.array([1.0, np.inf, 1.0])}, ValueError, "y must be finite"),
        ({"X": np.full((3, 2), "a")}, TypeError, "X and y must hold real numbers"),
        ({"y": np.array([1.0, 0.0, 1.0])}, ValueError, "outcomes must be -1 or 1"),
        ({"y": None}, ValueError, "y and bound_x must be given"),
        ({"bound_x": 0.0}, ValueError, "bound_x must be positive"),
        ({"bound_y": -1.0}, ValueError, "bound_y must be positive"),
        ({"loss": "logistic"}, TypeError, "loss must be a GeneralisedLinearLoss, got str"),
        ({"loss": SquaredLoss()}, ValueError, "constraint must be given"),
        ({"constraint": 1.0}, TypeError, "constraint must be L2Ball, L1Ball, Box or None, got float"),
        ({"constraint": Box(low=[0.0] * 3, high=[1.0] * 3)}, ValueError, "the box has 3 coordinates"),
        ({"penalty": 1.0}, TypeError, "penalty must be Lasso, ElasticNet, Ridge, .* got float"),
        ({"ridge": -1.0}, ValueError, "ridge must be at least 0"),
        ({"privacy": Privacy(math.inf)}, ValueError, "epsilon must be finite"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(changes, error, message):
    arguments = ROWS | changes
    with pytest.raises(error, match=message):
        objective_perturbation(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_a_gram_has_outcomes_and_bounds_of_its_own():
    exact = gram(np.ones((3, 2)), np.ones(3), bound_x=1.0, bound_y=1.0)
    arguments = {"privacy": Privacy(1.0, 1e-6), "constraint": Box(1.0)}
    with pytest.raises(ValueError, match="a Gram goes with"):
        objective_perturbation(exact, loss=LogisticLoss(), **arguments)
    with pytest.raises(ValueError, match="a Gram goes with"):
        objective_perturbation(exact, loss=SquaredLoss(), bound_x=1.0, **arguments)
    two = gram(np.ones((3, 2)), np.ones((3, 2)), bound_x=1.0, bound_y=1.0)
    with pytest.raises(ValueError, match="gram must have one outcome, got 2"):
        objective_perturbation(two, loss=SquaredLoss(), **arguments)
    with pytest.raises(ValueError, match="n_rows must be given under adjacency='replace_one'"):
        ObjectivePerturbation.calibrate(Privacy(1.0), ObjectiveBounds(LogisticLoss(), 1, 1.0, 1.0))


def test_rows_beyond_their_bound_are_scaled_onto_it():
    X = np.array([[3.0, 4.0], [0.0, 0.5], [1e200, 1e200], [0.6, 0.8]])
    rows, y = bounded_rows(X, np.array([2.0, -0.5, -7.0, 0.0]), 1.0, 1.0, 0.5)
    np.testing.assert_allclose(rows, [[0.6, 0.8, 0.5], [0, 0.5, 0.5], [0.5**0.5, 0.5**0.5, 0.5], [0.6, 0.8, 0.5]])
    assert np.linalg.norm(rows[:, :2], axis=1).max() <= 1.0 + 2.0**-30
    assert rows[3, :2].tolist() == X[3].tolist()
    assert y.tolist() == [1.0, -0.5, -1.0, 0.0]


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_no_row_is_longer_than_the_bound_that_noise_is_for(constant):
    """In exact arithmetic, for rows within a few roundings of their bound and far beyond it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3))
    near = 1.0 + rng.uniform(-1.0, 1.0, (2000, 1)) * 10.0 ** rng.uniform(-16.0, 2.0, (2000, 1))
    rows *= 0.7 * near / np.linalg.norm(rows, axis=1, keepdims=True)
    bounded, _ = bounded_rows(rows, np.zeros(2000), 0.7, 1.0, constant)
    limit = Fraction(row_bounds(0.7, 1.0, constant)["row_bound"]) ** 2
    lengths = [sum(Fraction(entry) ** 2 for entry in row) for row in bounded.tolist()]
    assert max(lengths) <= limit
    # A bound without slack would not hold: some are beyond it.
    assert max(lengths) > Fraction(0.7) ** 2 + Fraction(constant) ** 2


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_no_row_or_outcome_of_moments_is_beyond_the_bounds_that_noise_is_for(constant):
    """One row's exact moments give it back, on its grid, where it may have been rounded upwards."""
    rng, beyond = np.random.default_rng(1), 0
    for _ in range(200):
        bound_x, bound_y = rng.uniform(0.5, 2.0, 2)
        x = rng.normal(size=(1, 2))
        one = gram(10.0 * x, [10.0], bound_x=bound_x, bound_y=bound_y, sums=True)
        bounds = moment_bounds(one, constant)
        row, outcome = (
            [total.integer(i) * Fraction(2) ** total.exponent for i in range(total.shape[0])]
            for total in (one.exact_x_sum, one.exact_y_sum)
        )
        length = sum(entry**2 for entry in row) + Fraction(constant) ** 2
        assert length <= Fraction(bounds["row_bound"]) ** 2
        assert abs(outcome[0]) <= Fraction(bounds["outcome_bound"])
        beyond += abs(outcome[0]) > Fraction(bound_y)
    assert beyond > 20
