"""What error privacy adds to a sparse regression, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scipy.special import ndtri

from dpfast.estimator.plan import Plan, least
from dpfast.privacy import gaussian_mu
from dpfast.releases.minimisers import ObjectivePerturbation
from dpfast.releases.pursuit import UNCLIPPED, Pursuit
from dpfast.releases.selection import ScoredSelection, VotedSelection
from dpfast.solvers import refining
from dpfast.sparse_regression.mechanism import USUAL_COEFFICIENT

Stages = tuple[ScoredSelection | VotedSelection, ObjectivePerturbation]


# Assumed where nothing is known: mean squared norm of rows on the support as a fraction of its squared bound, the
# smallest coefficient, and R^2 without privacy.
SPREAD, SIGNAL, R2 = 0.25, 0.5, 0.5
# Deviations of outcomes within which nearly all of them are; and of residual parts, of the clip that is best for steps.
_NEARLY_ALL, _CLIP = 3.0, 1.5


class Errors(NamedTuple):
    """What to expect, in the units of outcomes."""

    #: Root mean squared error of predictions on the right support.
    moved: float
    #: Share of the support that is missed.
    missed: float
    #: Root mean square of predictions with usual coefficients.
    prediction: float
    #: Largest outcome.
    bound: float


def errors(stages: Stages | Pursuit, n: int, n_features: int, spread: float = SPREAD, signal: float = SIGNAL) -> Errors:
    """Return what to expect of n people."""
    if isinstance(stages, Pursuit):
        return _errors_of_pursuit(stages, n, spread, signal)
    selection, regression = stages
    bounds = regression.bounds
    if isinstance(selection, ScoredSelection):
        # Without one feature of the support, its part of the sum of squares is left.
        left = 0.5 * n * spread * bounds.curvature / bounds.n_features * signal**2
        missed = selection.missed(left, n_features)
    else:
        missed = selection.missed(n_features)
    prediction = math.sqrt(spread) * bounds.row_bound * USUAL_COEFFICIENT
    return Errors(regression.prediction_error(n, spread, prediction), missed, prediction, bounds.outcome_bound)


def _errors_of_pursuit(pursuit: Pursuit, n: int, spread: float, signal: float) -> Errors:
    """Expect of every round what the first is: residuals are normal and as large as all outcomes."""
    size, n_features = pursuit.size, pursuit.shape[0]
    radius = pursuit.radius(size)
    prediction = math.sqrt(spread) * radius * USUAL_COEFFICIENT
    outcome = min(prediction / math.sqrt(R2), pursuit.outcome_bound)
    squares = n * spread * radius**2 / size
    # Of the curvature, the share that the clip leaves.
    score = UNCLIPPED * squares * signal
    odds = score / pursuit.pick(outcome * float(ndtri(0.5 + UNCLIPPED / 2.0))).scales["feature"]
    others = n_features - size
    missed = 1.0 / (1.0 + math.exp(min(odds, 700.0)) / others) if others else 0.0
    # The fit is of residuals: by moments alone, or by steps, in coordinates in which rows have so many units of length.
    left = math.sqrt(1.0 - R2) * outcome
    mu = gaussian_mu(*pursuit.privacy.target) if pursuit.privacy.delta > 0.0 else 0.0
    has_steps = refining.has_steps(n, mu, pursuit.fit.shape)
    noise = pursuit.fit.planned_noise(
        (radius, min(_NEARLY_ALL * left, pursuit.outcome_bound)), 1.0, has_steps=has_steps
    )
    if has_steps:
        steps = 1.0 / math.sqrt(math.fsum(one**-2 for one in noise.sums))
        moved = steps * _CLIP * left * size / n
    else:
        moved = noise.moments.cross * math.sqrt(size / (n * squares))
    moved = min(moved, prediction)
    return Errors(moved, missed, prediction, pursuit.outcome_bound)


def relative_error(stages: Stages | Pursuit, n: int, n_features: int) -> float:
    """Return the error as a share of predictions, where nothing is known; what is missed is off by all of it."""
    found = errors(stages, n, n_features)
    return math.hypot(found.moved / found.prediction, math.sqrt(found.missed))


def planned(
    calibrated: Callable[[int], Stages | Pursuit],
    n: int,
    n_features: int,
    target: float,
    spread: float,
    signal: float,
    score: float,
) -> Plan:
    """Plan for n people; of an error of the whole bound, as much counts as of the support is missed.

    What is calibrated may hang on the number of people.
    """

    def error(people: int) -> float:
        found = errors(calibrated(people), people, n_features, spread, signal)
        return math.hypot(found.moved / found.bound, math.sqrt(found.missed))

    needed = least(lambda people: error(people) <= target)
    stages = calibrated(n)
    found = errors(stages, n, n_features, spread, signal)
    expected_score = score * ((1.0 - found.missed) - (found.moved / found.prediction) ** 2)
    scales = stages.scales if isinstance(stages, Pursuit) else stages[0].scales | stages[1].scales
    return Plan(n, min(error(n), 1.0), target, needed, scales, score=score, expected_score=expected_score)
