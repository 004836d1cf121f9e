"""What error privacy adds to a sparse regression, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpfast.estimator.plan import Plan, least
from dpfast.sparse_regression.mechanism import SparseMechanism


def relative_error(mechanism: SparseMechanism, n: int, n_features: int) -> float:
    """Return the error as a share of predictions, where nothing is known; what is missed is off by all of it."""
    found = mechanism.errors(n, n_features)
    return math.hypot(found.moved / found.prediction, math.sqrt(found.missed))


def planned(
    calibrated: Callable[[int], SparseMechanism],
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
        found = calibrated(people).errors(people, n_features, spread, signal)
        return math.hypot(found.moved / found.bound, math.sqrt(found.missed))

    needed = least(lambda people: error(people) <= target)
    mechanism = calibrated(n)
    found = mechanism.errors(n, n_features, spread, signal)
    expected_score = score * ((1.0 - found.missed) - (found.moved / found.prediction) ** 2)
    return Plan(n, min(error(n), 1.0), target, needed, mechanism.scales, score=score, expected_score=expected_score)
