"""What error privacy adds to a prediction, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.estimator.plan import Plan, least
from dpfast.statistics import MOST_ROWS_IF_PRIVATE

if TYPE_CHECKING:
    from dpfast.convex_erm.estimator import PerturbedObjective

# Mean squared norm of rows as a fraction of their squared bound, where nothing is known.
SPREAD = 0.25


def planned(
    kind: type[PerturbedObjective],
    n: int,
    n_features: int,
    target: float,
    spread: float,
    parameters: Mapping[str, Any],
    relative_to: str = "the outcomes' bound",
) -> Plan:
    """Plan for n people, whose predictions are as large as the outcomes' bound: shrinkage counts against that."""
    sizes = {"n": n, "n_features": n_features}
    estimator, privacy = kind._planned_for(sizes, {"target": target, "spread": spread}, parameters)
    if math.isinf(privacy.epsilon):
        return Plan.from_error(n, 0.0, target, {})

    def error(people: int) -> float:
        chosen = estimator._calibrated(privacy, n_features, people)
        outcome = chosen.bounds.outcome_bound
        return chosen.prediction_error(people, spread, outcome) / outcome

    chosen = estimator._calibrated(privacy, n_features, n)
    own = chosen.noise_scales
    needed = least(lambda people: error(people) <= target, MOST_ROWS_IF_PRIVATE)
    notes = {"strong convexity": own.strong_convexity, "epsilon left for the noise": own.noise_epsilon}
    return Plan(n, min(error(n), 1.0), target, needed, chosen.scales, relative_to=relative_to, notes=notes)
