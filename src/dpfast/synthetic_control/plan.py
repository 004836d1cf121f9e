"""What a synthetic control will cost in accuracy, from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from dpfast.estimator.plan import Plan, least
from dpfast.synthetic_control.donor_weights import DonorMechanism
from dpfast.synthetic_control.steps import DonorSteps

# What the errors are relative to.
_SIGNAL = "the signal's root mean square"
#: Mean square of mapped outcomes that is assumed where nothing is known: as of outcomes around half their bound.
SPREAD = 0.25


def error_of_moments(steps: DonorSteps, n: int, ridge: float | Literal["auto"], spread: float = SPREAD) -> float:
    """Return the root mean squared error of a prediction relative to the signal, for `n` donors.

    Of shrinking towards the centre and of noise, first order and second, and of the centre where that is private.
    `spread` is the mean square of the mapped outcomes about the centre; the target is taken to be like its donors,
    which vary along one path.
    """
    section = steps.expected(spread)
    rows = section.rows
    center = float(np.linalg.norm(rows.center[: rows.n_pre])) if rows.restored and rows.center is not None else 0.0
    # No row is longer before the intervention.
    signal = n * min(spread * rows.n_pre, (rows.bound_pre + center) ** 2)
    least_counted = max(rows.penalty(ridge) / 2.0, section.floor)
    damped = max(signal + rows.penalty(ridge) / 2.0, section.floor)
    # All donors are off a noisy centre alike: moments undo that as far as it stands out of their noise.
    of_center = steps.path_error(n)
    if of_center > 0.0:
        of_center *= min(1.0, least_counted / (n * rows.n_pre * of_center**2)) / math.sqrt(spread)
    return math.hypot(1.0 - signal / damped, math.sqrt(section.cost) / damped, of_center)


def error_of_weights(mechanism: DonorMechanism, spread: float = SPREAD) -> float:
    """Return the same for released weights, whose noise does not weigh less with more donors."""
    return mechanism.expected_error / math.sqrt(spread)


def planned_without_noise(n: int, target: float) -> Plan:
    """Plan for the textbook estimate."""
    return Plan(n, 0.0, target, 1, {}, _SIGNAL)


def planned_with_moments(
    steps: DonorSteps, n: int, target: float, ridge: float | Literal["auto"], spread: float
) -> Plan:
    """Plan for noise in moments, which weighs the less the more donors there are."""
    error = error_of_moments(steps, n, ridge, spread)
    needed = least(lambda count: error_of_moments(steps, count, ridge, spread) <= target)
    return Plan(n, min(error, 1.0), target, needed, steps.expected(spread).scales, _SIGNAL)


def planned_with_weights(calibrated: Callable[[int], DonorMechanism], n: int, target: float, spread: float) -> Plan:
    """Plan for noise on weights, of which there are more with more donors: the error does not fall with them."""
    mechanism = calibrated(n)
    needed = 1 if error_of_weights(calibrated(1), spread) <= target else None
    return Plan(n, min(error_of_weights(mechanism, spread), 1.0), target, needed, mechanism.scales, _SIGNAL)
