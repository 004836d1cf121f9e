"""The strong convexity that objective perturbation takes by itself, held against the bound that it is to make small."""

import math

import numpy as np
import pytest

from dpfast import Privacy
from dpfast.papers import convex_erm as theory
from dpfast.privacy import objective_scale
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.solvers import Box, LogisticLoss, SmoothedHinge, SquaredLoss


def calibrated(epsilon, delta, *, loss=None, n_features=30, n_rows=400, constraint=None, ridge="auto"):
    bounds = ObjectiveBounds(loss or LogisticLoss(), n_features, 1.0, 1.0, constraint, None, n_rows)
    adjacency = "add_remove" if n_rows is None else "replace_one"
    return ObjectivePerturbation.calibrate(Privacy(epsilon, delta, adjacency), bounds, ridge)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", [LogisticLoss(), SmoothedHinge()])
@pytest.mark.parametrize("n_rows", [30, 10**6, None])
def test_no_other_strong_convexity_has_a_lower_bound(epsilon, delta, loss, n_rows):
    """Without curvature known of the table the bound is Theorem 4's; shrinkage counts for predictions of 10."""
    chosen = calibrated(epsilon, delta, loss=loss, n_rows=n_rows)
    own, bounds, p = chosen.noise_scales, chosen.bounds, 30
    left = epsilon - own.finishing_epsilon
    person = bounds.gradient * (1.0 if n_rows is None else 2.0)
    curved = 0.0 if n_rows is None else n_rows * bounds.curvature / (8 * p)

    def bound(convexity):
        noise = left - math.log1p(bounds.curvature / convexity)
        if bounds.curvature_fades:
            # Slopes short of their bound by a part r hide that much of the curvature of the others.
            noises, r = np.linspace(0.0, left, 4001), np.linspace(0.0, 1.0, 201)[:, None]
            gain = np.log1p(4.0 * bounds.curvature * r * (1.0 - r) / convexity)
            paid = (gain - r * noises * (1.0 if n_rows is None else 0.5)).max(axis=0)
            noise = noises[noises + paid <= left * (1.0 + 1e-9)].max(initial=0.0)
        if noise <= 0.0:
            return math.inf
        if delta == 0.0:
            moment = (person / noise) ** 2 * p * (p + 1)
        else:
            geometry = "segment" if n_rows is None else "two segments"
            moment = objective_scale(noise, delta, person, geometry=geometry) ** 2 * p
        return (moment + (10.0 * convexity) ** 2) / (2.0 * (2.0 * convexity + curved))

    best = bound(own.strong_convexity)
    assert all(bound(factor * own.strong_convexity) >= best * (1 - 1e-3) for factor in np.geomspace(0.01, 100, 60))


def test_the_bound_is_theorem_4s_and_5s():
    """With the noise of Algorithm 1 and the curvature that the calibration takes for usual."""
    p, n, added, gradient = 7, 90, 3.0, 2.0
    bounds = ObjectiveBounds(LogisticLoss(), p, 1.0, 1.0, None, None, None)
    deviation = 2 * gradient / 0.5 * math.sqrt(p + 1)
    expected = theory.expected_risk(0.5, 0.0, n=n, n_features=p, gradient=gradient, strong_convexity=added, norm=10.0)
    assert bounds.typical_excess(0.0)(deviation, added) == pytest.approx(n * expected.corrected, rel=1e-12)
    deviation = gradient * math.sqrt(8 * math.log(2e6) + 4 * 0.5) / 0.5
    refined = theory.expected_strongly_convex_risk(
        0.5, 1e-6, n=n, n_features=p, gradient=gradient, curvature=added * 0.25, loss_convexity=40.0, norm=10.0
    )
    assert bounds.typical_excess(40.0)(deviation, added) == pytest.approx(n * refined.corrected, rel=1e-12)


def test_noise_asks_for_more_strong_convexity_and_curvature_for_less():
    weak, strong = calibrated(0.1, 1e-6), calibrated(4.0, 1e-6)
    assert weak.noise_scales.strong_convexity > 10 * strong.noise_scales.strong_convexity
    few, many = (calibrated(1.0, 1e-6, n_rows=n).noise_scales.strong_convexity for n in (100, 10**7))
    assert many < 0.5 * few


def test_what_is_asked_for_is_kept_where_privacy_allows_it():
    auto = calibrated(1.0, 1e-6).noise_scales.strong_convexity
    assert auto > 1.5
    for ridge in (1.5, auto, 1e4):
        assert calibrated(1.0, 1e-6, ridge=ridge).noise_scales.strong_convexity == ridge
    assert 0.0 < calibrated(1.0, 1e-6, ridge=0.0).noise_scales.strong_convexity < 1.5


def test_small_sets_take_more_strong_convexity():
    """The parameters of a box of half width 0.01 are small, and so is what shrinking them costs."""
    wide, narrow = (
        calibrated(1.0, 1e-6, loss=SquaredLoss(), n_features=4, constraint=Box(radius)) for radius in (1.0, 0.01)
    )
    assert narrow.noise_scales.strong_convexity > wide.noise_scales.strong_convexity
