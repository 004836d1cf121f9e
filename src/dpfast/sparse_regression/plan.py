"""What error privacy adds to a sparse regression, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpfast.estimator.plan import Plan, least
from dpfast.releases.minimisers import ObjectivePerturbation
from dpfast.releases.selection import ScoredSelection, VotedSelection
from dpfast.sparse_regression.mechanism import USUAL_COEFFICIENT

Stages = tuple[ScoredSelection | VotedSelection, ObjectivePerturbation]


# Assumed where nothing is known: mean squared norm of rows on the support as a fraction of its squared bound, the
# smallest coefficient, and R^2 without privacy.
SPREAD, SIGNAL, R2 = 0.25, 0.5, 0.5


def errors(
    stages: Stages, n: int, n_features: int, spread: float = SPREAD, signal: float = SIGNAL
) -> tuple[float, float]:
    """Return the root mean squared error of predictions on the right support, and the share of it that is missed."""
    selection, regression = stages
    bounds = regression.bounds
    if isinstance(selection, ScoredSelection):
        # Without one feature of the support, its part of the sum of squares is left.
        left = 0.5 * n * spread * bounds.curvature / bounds.n_features * signal**2
        missed = selection.missed(left, n_features)
    else:
        missed = selection.missed(n_features)
    return regression.prediction_error(n, spread, _prediction(regression, spread)), missed


def relative_error(stages: Stages, n: int, n_features: int) -> float:
    """Return the error as a share of predictions, where nothing is known; what is missed is off by all of it."""
    moved, missed = errors(stages, n, n_features)
    return math.hypot(moved / _prediction(stages[1], SPREAD), math.sqrt(missed))


def _prediction(regression: ObjectivePerturbation, spread: float) -> float:
    """Return the root mean square of predictions with usual coefficients."""
    return math.sqrt(spread) * regression.bounds.row_bound * USUAL_COEFFICIENT


def planned(
    calibrated: Callable[[int], Stages],
    n: int,
    n_features: int,
    target: float,
    spread: float,
    signal: float,
    score: float,
) -> Plan:
    """Plan for n people; of an error of the whole bound, as much counts as of the support is missed.

    Both stages are calibrated for a number of people.
    """

    def error(people: int) -> float:
        stages = calibrated(people)
        moved, missed = errors(stages, people, n_features, spread, signal)
        return math.hypot(moved / stages[1].bounds.outcome_bound, math.sqrt(missed))

    needed = least(lambda people: error(people) <= target)
    stages = selection, regression = calibrated(n)
    moved, missed = errors(stages, n, n_features, spread, signal)
    expected_score = score * ((1.0 - missed) - (moved / _prediction(regression, spread)) ** 2)
    scales = selection.scales | regression.scales
    return Plan(n, min(error(n), 1.0), target, needed, scales, score=score, expected_score=expected_score)
