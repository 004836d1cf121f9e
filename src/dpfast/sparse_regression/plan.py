"""What error privacy adds to a sparse regression, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpfast.estimator.plan import Plan, least
from dpfast.releases.minimisers import ObjectivePerturbation
from dpfast.releases.selection import ScoredSelection, VotedSelection
from dpfast.sparse_regression.mechanism import USUAL_COEFFICIENT

Stages = tuple[ScoredSelection | VotedSelection, ObjectivePerturbation]


def planned(
    calibrated: Callable[[int], Stages], n: int, n_features: int, target: float, spread: float, signal: float
) -> Plan:
    """Plan for n people; a wrong choice of features counts as an error of the whole bound.

    Both stages are calibrated for a number of people.
    """

    def error(people: int) -> tuple[float, dict[str, float]]:
        """Error relative to the outcome's bound, and the scales of the noise."""
        selection, regression = calibrated(people)
        bounds = regression.bounds
        if isinstance(selection, ScoredSelection):
            # Without one feature of the support, its part of the sum of squares is left.
            left = 0.5 * people * spread * bounds.curvature / bounds.n_features * signal**2
            wrong = selection.failure(left, n_features)
        else:
            wrong = selection.failure(n_features)
        prediction = math.sqrt(spread) * bounds.row_bound * USUAL_COEFFICIENT
        moved = regression.prediction_error(people, spread, prediction) / bounds.outcome_bound
        return math.sqrt(moved**2 + wrong), selection.scales | regression.scales

    needed = least(lambda people: error(people)[0] <= target)
    expected, scales = error(n)
    return Plan(n, min(expected, 1.0), target, needed, scales)
