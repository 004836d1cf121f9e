"""The law of a released minimiser in one and two dimensions, by change of variables: what neighbours tell apart."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from reference.perturbed import IntervalLaw, divergences

from dpfast import Privacy
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.solvers import CappedLogisticLoss, L2Ball, LogisticLoss, SmoothedHinge, SmoothedHuber, SquaredLoss

ADJACENCIES = ["replace_one", "add_remove"]
DELTA = 0.01


@dataclass(frozen=True)
class OneSignedHuber(SmoothedHuber):
    """A broken copy, which says that its slope has one sign."""

    slope_sign: ClassVar[bool] = True


def calibrated(loss, adjacency, epsilon=1.0, delta=DELTA, size=2, ridge=1000.0):
    n_rows = 1 if adjacency == "replace_one" else None
    # Where the loss is squared, so short that its slope hardly turns, and so long that the minimiser stays within.
    region = L2Ball(0.05) if isinstance(loss, SquaredLoss) else None
    bounds = ObjectiveBounds(loss, size, 1.0, 5.0 if isinstance(loss, SmoothedHuber) else 1.0, region, n_rows=n_rows)
    return ObjectivePerturbation.calibrate(Privacy(epsilon, delta, adjacency), bounds, ridge)


def plane_mass(chosen, here, there, n):
    """Mass of the minimiser on one record (x, y) beyond e^epsilon times its mass on another; None for no record."""
    loss, own = chosen.bounds.loss, chosen.noise_scales
    ends = (8.0 * own.scale + 1.0) / own.strong_convexity
    t, step = np.linspace(-ends, ends, n, retstep=True)
    theta = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1)

    def log_density(record):
        noise, bent = own.strong_convexity * theta, 0.0
        if record is not None:
            x, y = record
            z = theta @ x
            noise, bent = noise + loss.derivative(z, y)[..., None] * x, x @ x * loss.second_derivative(z, y)
        # The Hessian is m plus one matrix of rank one.
        return np.log(own.strong_convexity + bent) - 0.5 * np.sum((noise / own.scale) ** 2, axis=-1)

    p, q = log_density(here), log_density(there)
    epsilon = own.noise_epsilon + own.curvature_epsilon
    beyond = np.exp(p) * -np.expm1(np.minimum(epsilon + q - p, 0.0))
    return float(beyond.sum()) * step**2 * own.strong_convexity / (2.0 * math.pi * own.scale**2)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "loss",
    [SmoothedHinge(0.5), CappedLogisticLoss(0.25), LogisticLoss(), SmoothedHuber(0.5), SquaredLoss()],
    ids=lambda loss: loss.kind,
)
def test_no_neighbours_in_the_plane_are_told_apart_beyond_the_claim(loss, adjacency):
    """Hill-climbed over records; losses that are straight here use all of delta, and Huber's half."""
    chosen = calibrated(loss, adjacency)
    own = chosen.noise_scales
    claim = DELTA * math.exp(-0.5 * own.finishing_epsilon)

    def record(parameters):
        # Minus one is as good an outcome as one: it turns the row around.
        y = 1.0 if loss.is_classification else chosen.bounds.outcome_bound * np.tanh(parameters[2])
        return row_in_ball(parameters[:2], 1.0), y

    def change(parameters, n=81):
        other = record(parameters[3:]) if adjacency == "replace_one" else None
        here = record(parameters)
        return max(plane_mass(chosen, here, other, n), plane_mass(chosen, other, here, n))

    _, worst = climb(change, 6, np.random.default_rng(3), restarts=2, screened=24)
    found = change(worst, 601)
    assert found <= claim * 1.001
    if isinstance(loss, SmoothedHinge | CappedLogisticLoss):
        assert found > 0.97 * claim
        broken = replace(chosen, noise_scales=replace(own, scale=0.97 * own.scale))
        person, opposite = ((np.array([end, 0.0]), 1.0) for end in (1.0, -1.0))
        assert plane_mass(broken, person, opposite if adjacency == "replace_one" else None, 601) > claim
    if not loss.is_classification:
        least = 0.45 if isinstance(loss, SmoothedHuber) else 0.8 if adjacency == "replace_one" else 0.3
        assert found > least * claim


def line_mass(chosen, y):
    """The largest mass beyond the claim's epsilon by which a record (1, y) that comes or goes shows, on a line."""
    loss, own = chosen.bounds.loss, chosen.noise_scales
    end = (9.0 * own.scale + 1.0) / own.strong_convexity + 3.0

    def law(there):
        return IntervalLaw(
            lambda t: there * loss.derivative(t, y), lambda t: there * loss.second_derivative(t, y),
            m=own.strong_convexity, l1=0.0, low=-end, high=end, scale=own.scale, gaussian=True,
        )  # fmt: skip

    epsilon = own.noise_epsilon + own.curvature_epsilon
    return max(divergences(law(a), law(b), epsilon, 20_001)[1] for a, b in ((0.0, 1.0), (1.0, 0.0)))


def test_a_slope_that_turns_with_the_noise_needs_the_delta_of_both_its_signs():
    """Huber's slope is of the sign of the minimiser: one sign's delta is a sixth too little."""
    claims = {"epsilon": 24.0, "delta": 0.5, "size": 1, "ridge": 0.05}
    with np.errstate(over="ignore"):
        one, both = (
            line_mass(calibrated(loss(1.0, 2.0**-7), "add_remove", **claims), 0.0) / 0.5
            for loss in (OneSignedHuber, SmoothedHuber)
        )
    assert one > 1.15
    assert both <= 1.0


def test_curvature_that_is_left_out_shows():
    """With a sixteenth of the strong convexity that its share of epsilon is for, a hinge's bend tells of the record."""
    chosen = calibrated(SmoothedHinge(0.5), "add_remove", size=1, ridge=0.0)
    own = chosen.noise_scales
    assert line_mass(chosen, 1.0) <= DELTA
    assert (
        line_mass(replace(chosen, noise_scales=replace(own, strong_convexity=own.strong_convexity / 16.0)), 1.0)
        > 2.0 * DELTA
    )
