"""What error privacy adds to a prediction, from public numbers."""

from __future__ import annotations

from collections.abc import Callable

from dpfast.estimator.plan import Plan, least
from dpfast.releases.minimisers import ObjectivePerturbation
from dpfast.statistics import MOST_ROWS_IF_PRIVATE

# Mean squared norm of rows as a fraction of their squared bound, where nothing is known.
SPREAD = 0.25


def planned(
    calibrated: Callable[[int], ObjectivePerturbation], n: int, target: float, spread: float, relative_to: str
) -> Plan:
    """Plan for n people, whose predictions are as large as the outcomes' bound: shrinkage counts against that.

    The mechanism is calibrated for a number of people.
    """

    def error(people: int) -> float:
        mechanism = calibrated(people)
        outcome = mechanism.bounds.outcome_bound
        return mechanism.prediction_error(people, spread, outcome) / outcome

    mechanism = calibrated(n)
    own = mechanism.noise_scales
    needed = least(lambda people: error(people) <= target, MOST_ROWS_IF_PRIVATE)
    notes = {"strong convexity": own.strong_convexity, "epsilon left for the noise": own.noise_epsilon}
    return Plan(n, min(error(n), 1.0), target, needed, mechanism.scales, relative_to=relative_to, notes=notes)
