"""The release of a perturbed minimiser: exact privacy in one dimension, law, tolerance, calibration."""

import math
from dataclasses import replace

import numpy as np
import pytest
from reference.perturbed import IntervalLaw, divergences
from scipy import stats

from dpfast import Privacy, noise
from dpfast.privacy import objective_noise
from dpfast.releases.objective_bounds import (
    ObjectiveBounds,
    ObjectivePerturbation,
    TableLoss,
    loss_of_moments,
    loss_of_rows,
)
from dpfast.solvers import (
    Box,
    CappedLogisticLoss,
    ElasticNet,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    PoissonLoss,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
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
COMBINATIONS += [
    pytest.param(loss, None, id=str(loss))
    for loss in (LogisticLoss(3.0), CappedLogisticLoss(0.3), SmoothedQuantile(0.8, 0.3), PoissonLoss(1.0))
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
    ends = (-1.0, 1.0) if loss.is_classification else (0.0, 0.5, 1.0) if loss.is_of_counts else (-1.0, 0.0, 1.0)
    # A row and its negative have slopes of one size if the loss has them of either sign.
    records = [(x, y) for x in (1.0, -1.0 if loss.kind == "smoothed_quantile" else 0.4) for y in ends]
    for base in ([], [(1.0, 1.0), (1.0, ends[0]), (0.5, 1.0)]):
        if adjacency == "add_remove":
            for record in records:
                yield [*base, record], base
                yield base, [*base, record]
        else:
            for record in records:
                for other in records:
                    yield [*base, record], [*base, other]


def told_apart(chosen, adjacency, epsilon, n=1001):
    """What every pair is told apart by: the largest ratio, and the mass beyond a claim."""
    return (divergences(law(chosen, a), law(chosen, b), epsilon, n) for a, b in pairs(chosen.bounds.loss, adjacency))


def worst(chosen, adjacency, epsilon, n=1001):
    return np.array(list(told_apart(chosen, adjacency, epsilon, n))).max(axis=0)


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
    broken = told_apart(replace(chosen, noise_scales=replace(own, scale=own.scale / 5.0)), adjacency, 1.0)
    if delta == 0.0:
        assert ratio <= epsilon * (1.0 + 1e-9)
        assert any(broken_ratio > 1.0 for broken_ratio, _ in broken)
    else:
        assert mass <= delta
        assert any(broken_mass > delta for _, broken_mass in broken)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_privacy_is_tight_where_the_slope_is_at_its_bound(adjacency):
    """The hinge is straight on this set: pure noise is used up, and all of a delta."""
    bounds = ObjectiveBounds(
        SmoothedHinge(0.3), 1, 1.0, 1.0, L2Ball(0.5), n_rows=4 if adjacency == "replace_one" else None
    )
    for delta in (0.0, 1e-3):
        chosen = ObjectivePerturbation.calibrate(Privacy(1.0, delta, adjacency), bounds, 1e3)
        ratio, mass = worst(chosen, adjacency, chosen.noise_scales.noise_epsilon, 10_001)
        assert ratio > 0.99 * chosen.noise_scales.noise_epsilon if delta == 0.0 else 0.98 * delta < mass <= delta


def test_a_squared_loss_without_a_constraint_is_not_private():
    """The noise that is right on [-1, 1] is not where nothing bounds the gradient: no noise is."""
    with pytest.raises(ValueError, match=r"constraint must be given with SquaredLoss\(\) .* no bound"):
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


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_noise_in_the_objective_has_the_calibrated_law(delta):
    """Recovered from released minimisers of a loss whose gradient is known, over a set they never leave."""
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-0.5, 0.5, (40, 3)), rng.uniform(-1.0, 1.0, 40)
    exact = gram(X, y, bound_x=1.0, bound_y=1.0)
    privacy = Privacy(4.0, delta)
    bounds = ObjectiveBounds(SquaredLoss(), 3, 1.0 + 1e-6, 1.0 + 1e-6, L2Ball(1e3), None, 40)
    chosen = ObjectivePerturbation.calibrate(privacy, bounds, 1e7)
    sizes = TableLoss(SquaredLoss(), 1.0).sizes(3)
    loss, own, source = loss_of_moments(exact, sizes), chosen.noise_scales, noise.SeededSource(3)
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
    factor = 2.0 if adjacency == "replace_one" else 1.0

    def scale(one, factor, geometry, dim=5):
        changes = {geometry: factor * one.gradient}
        return objective_noise(
            Privacy(1.0, 1e-6, adjacency), changes=changes, curvature=one.curvature, strong_convexity=30.0, dim=dim
        ).scale

    # A slope of one sign, as of logistic loss.
    pair = "two segments" if adjacency == "replace_one" else "segment"
    assert chosen.noise_scales.scale == pytest.approx(scale(bounds, factor, pair))
    assert chosen.ridge == 30.0
    # Of either sign.
    turning = replace(bounds, loss=SmoothedHuber(0.5))
    chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6, adjacency), turning, 30.0)
    pair = "two lines" if adjacency == "replace_one" else "line"
    assert chosen.noise_scales.scale == pytest.approx(scale(turning, factor, pair))
    # Squared loss turns by its longest prediction, 2; in one dimension its change keeps to a line, too, far or near.
    if adjacency == "replace_one":
        for radius, least in ((2.0, "disk"), (20.0, "line")):
            single = replace(bounds, loss=SquaredLoss(), n_features=1, constraint=L2Ball(radius))
            chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6), single, 30.0)
            length = single.gradient_change
            changes = {least: (length, radius * (1.0 + 2.0**-44)) if least == "disk" else length}
            expected = objective_noise(
                Privacy(1.0, 1e-6), changes=changes, curvature=single.curvature, strong_convexity=30.0, dim=1
            )
            assert chosen.noise_scales.scale == pytest.approx(expected.scale)


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
            summed = TableLoss(loss, 1.0)
            rows, outcomes, _ = summed.bounded(rng.normal(size=(300, 3)), y[:, None])
            bounds = summed.bounds(3, L1Ball(2.0), None, 300 if adjacency == "replace_one" else None)
            chosen = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6, adjacency), bounds)
            function = loss_of_rows(rows, outcomes[:, 0], loss, summed.sizes(3))
            b = rng.normal(size=3) * 10.0
            close = replace(chosen, tolerance=1e-12 if adjacency == "add_remove" else chosen.tolerance)
            distance = np.linalg.norm(chosen.minimise(function, b) - close.minimise(function, b))
            assert distance <= chosen.tolerance + close.tolerance
            assert chosen.tolerance < 1e-8
            half_a_grid = 0.5 * math.sqrt(3) * noise.finest_grid(chosen.noise_scales.scale)
            hidden = chosen.tolerance + half_a_grid / chosen.noise_scales.strong_convexity
            assert chosen.finishing_scale >= 2.0 * hidden / chosen.noise_scales.finishing_epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_printed_noise_is_valid_where_it_was_proved(epsilon, delta):
    """Algorithm 1 of the paper, to the letter; under replace-one it is too little."""
    for adjacency in ADJACENCIES:
        n_rows = 20 if adjacency == "replace_one" else None
        bounds = TableLoss(LogisticLoss(), 1.0).bounds(1, L2Ball(1.0), None, n_rows)
        chosen = ObjectivePerturbation.calibrate(Privacy(epsilon, delta, adjacency), bounds, 0.0, calibration="paper")
        own, zeta = chosen.noise_scales, bounds.gradient
        assert own.strong_convexity == max(2.0 * bounds.curvature / epsilon, bounds.least_convexity)
        printed = zeta * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon if delta else 2 * zeta / epsilon
        assert own.scale == pytest.approx(printed)
        assert chosen.guaranteed == (adjacency == "add_remove")
        ratio, mass = worst(chosen, adjacency, own.privacy.epsilon - own.finishing_epsilon)
        assert ratio <= epsilon if not delta else mass <= delta


def test_only_curvature_that_fades_is_charged_less():
    for loss, fades in ((LogisticLoss(3.0), True), (CappedLogisticLoss(0.3), False), (SmoothedHinge(0.5), False)):
        for n_rows, adjacency in ((100, "replace_one"), (None, "add_remove")):
            bounds = ObjectiveBounds(loss, 4, 1.0, 1.0, n_rows=n_rows)
            own = ObjectivePerturbation.calibrate(Privacy(1.0, 1e-6, adjacency), bounds, 1.0).noise_scales
            plain = math.log1p(bounds.curvature / own.strong_convexity)
            assert own.curvature_epsilon < 0.5 * plain if fades else own.curvature_epsilon >= plain


def test_an_enormous_epsilon_leaves_a_delta_for_gaussian_noise():
    chosen = ObjectivePerturbation.calibrate(
        Privacy(1e6, 1e-6), ObjectiveBounds(SmoothedHuber(1.0), 3, 1.0, 1.0, n_rows=9)
    )
    assert (chosen.noise_scales.mechanism, chosen.guaranteed) == ("Gaussian", True)
