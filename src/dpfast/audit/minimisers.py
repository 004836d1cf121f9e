"""Attacks on the minimisers of perturbed objectives in one dimension, by their exact likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dpfast import noise
from dpfast.audit.attacks import Attack
from dpfast.privacy import Privacy
from dpfast.releases.minimisers import ObjectiveBounds, ObjectivePerturbation, loss_of_rows
from dpfast.solvers import L2Ball, SmoothedHinge

FloatArray = NDArray[np.float64]

# Finishing noise blurs the ends of [-1, 1] by a few of its scales, and by less than e^-30 further.
_BLURRED = 30.0


def minimiser_attacks(privacy: Privacy, weaken: float = 1.0) -> Iterator[Attack]:
    """Attack objective perturbation of a hinge, Gaussian and pure.

    Parameters
    ----------
    privacy : Privacy
        Claim, under add/remove; its delta is used by the Gaussian one alone.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    """
    for delta in (privacy.delta, 0.0):
        yield minimiser_attack(replace(privacy, delta=delta), weaken)


def minimiser_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack the minimiser over [-1, 1] with a row of 1/2 that is there or not.

    The hinge, bent from a margin of 1/2 on, has its steepest slope there throughout. In the place of no row is one of
    0, which adds a constant to the objective.

    Parameters
    ----------
    privacy : Privacy
        Claim, under add/remove; pure where its delta is 0.
    weaken : float, default 1.0
        Divides the noise.
    """
    bounds = ObjectiveBounds(SmoothedHinge(0.5), 1, 0.5, 1.0, L2Ball(1.0))
    # Of strong convexity only what privacy asks for: more leaves less to tell the tables by.
    chosen = ObjectivePerturbation.calibrate(privacy, bounds, 0.0)
    own = chosen.noise_scales
    broken = replace(chosen, noise_scales=replace(own, scale=own.scale / weaken))
    gaussian = own.mechanism == "Gaussian"
    end, source = 1.0 - _BLURRED * chosen.finishing_scale, noise.SecureSource()

    def log_density(slope: float, value: float) -> float:
        return perturbed_log_density(value, slope, own.strong_convexity, own.scale, gaussian, end)

    def scores(neighbour: bool, n: int) -> FloatArray:
        rows = np.full((1, 1), 0.5 if neighbour else 0.0)
        loss = loss_of_rows(rows, np.ones(1), bounds.loss, row_bound=0.5, outcome_bound=1.0)
        released = [float(broken.release(loss, source, "audit").values["coef"][0]) for _ in range(n)]
        return np.array([log_density(0.5, value) - log_density(0.0, value) for value in released])

    return Attack(f"minimiser of a hinge, {own.mechanism}", privacy, scores, gaussian=False)


def perturbed_log_density(
    value: float, slope: float, curvature: float, scale: float, gaussian: bool, end: float
) -> float:
    """Log density of the minimiser of curvature x^2/2 - slope x + b x over [-1, 1], up to a constant of the noise.

    Parameters
    ----------
    value : float
        Where.
    slope, curvature : float
        Of the objective.
    scale : float
        Of the noise b.
    gaussian : bool
        Whether it is Gaussian, and not Laplace noise.
    end : float
        From which on a value is taken to be 1 or, if it is negative, -1; the log mass is returned there.

    Returns
    -------
    float
    """
    if abs(value) < end:
        z = (slope - curvature * value) / scale
        return math.log(curvature) - (0.5 * z * z if gaussian else abs(z))
    # At the upper end b is at most slope - curvature, at the lower one at least slope + curvature.
    z = ((slope if value > 0.0 else -slope) - curvature) / scale
    if gaussian:
        return float(log_ndtr(z))
    return (z if z < 0.0 else math.log(2.0 - math.exp(-z))) - math.log(2.0)
