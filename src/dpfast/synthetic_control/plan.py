"""Expected accuracy of a synthetic control, from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpfast.estimator.plan import Plan, least
from dpfast.synthetic_control.donor_weights import DonorMechanism
from dpfast.synthetic_control.steps import DonorSteps

# Reference of the relative errors.
_SIGNAL = "the signal's root mean square"
#: Mean square of mapped outcomes that is assumed where nothing is known: as of outcomes around half their bound.
SPREAD = 0.25
#: Assumed size of donors' differences from their mean path, as a fraction of their size.
VARIATION = 0.3
#: Assumed power by which the squares of these fall over directions: as of random walks.
DECAY = 2.0


def error_of_weights(mechanism: DonorMechanism, spread: float = SPREAD) -> float:
    """Return the same for released weights; their noise does not fall with more donors."""
    return mechanism.expected_error / math.sqrt(spread)


def planned_without_noise(n: int, target: float) -> Plan:
    """Plan for the textbook estimate."""
    return Plan(n, 0.0, target, 1, {}, _SIGNAL)


def planned_with_moments(
    calibrated: Callable[[int], DonorSteps], n: int, target: float, spread: float, variation: float, decay: float
) -> Plan:
    """Plan for noise in moments: its effect falls with more donors."""
    section, error = calibrated(n).planned(n, spread, variation, decay)
    needed = least(lambda count: calibrated(count).planned(count, spread, variation, decay)[1] <= target)
    return Plan(n, min(error, 1.0), target, needed, section.scales, _SIGNAL)


def planned_with_weights(calibrated: Callable[[int], DonorMechanism], n: int, target: float, spread: float) -> Plan:
    """Plan for noise on weights. More donors mean more weights, so the error does not fall with them."""
    mechanism = calibrated(n)
    needed = 1 if error_of_weights(calibrated(1), spread) <= target else None
    return Plan(n, min(error_of_weights(mechanism, spread), 1.0), target, needed, mechanism.scales, _SIGNAL)
