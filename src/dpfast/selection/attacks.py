"""Attacks on the choice among estimators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, OddsShift, claims
from dpfast.convex_erm import ObjectivePerturbationRegressor
from dpfast.privacy import Privacy, Unit
from dpfast.selection.mechanism import HeldOutPick, cost_of_outcomes, held_out
from dpfast.solvers import Box

# One choice of two shows little in a few hundred outputs, and takes little time.
_MORE = 8.0
# Nearly everybody is held out, so that the one who differs is.
_PEOPLE = 100


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack the pick among two models, whose costs one person held out moves as far apart as can be."""
    for claim in claims(privacy, delta=False):
        yield from (_pick_attack(claim, copies) for copies in (1, 3))


def _pick_attack(privacy: Privacy, copies: int) -> Attack:
    """Attack the pick for people who have so many copies of a row each."""
    # Whatever noise is drawn in their fits, one predicts about x for everybody, and the other about -x.
    options: dict[str, Any] = {"bound_x": 1.0, "bound_y": 1.0, "fit_intercept": False}
    boxes = [Box(low=sign - 2.0**-10, high=sign + 2.0**-10) for sign in (1.0, -1.0)]
    estimators = [ObjectivePerturbationRegressor(privacy.epsilon, constraint=box, **options) for box in boxes]
    models = [estimator.fit(np.ones((1, 1)), np.ones(1)) for estimator in estimators]
    public_count = privacy.adjacency == "replace_one"
    # Under add/remove another person makes up for half of what the one who comes moves. Of all others nothing is seen.
    x, y = np.zeros((_PEOPLE, 1)), np.zeros(_PEOPLE)
    if public_count:
        x[0] = y[0] = 1.0
        tables = [(x, y), (x, np.where(x[:, 0] > 0.0, -1.0, 0.0))]
    else:
        x[:2], y[:2] = 1.0, (1.0, math.sqrt(0.5) - 1.0)
        tables = [(x, y), (x[1:], y[1:])]
    whose = None if copies == 1 else np.zeros(copies, np.intp)

    def cost(model: ObjectivePerturbationRegressor, row: FloatArray, outcome: float) -> int:
        return cost_of_outcomes(model, np.full(copies, outcome), np.tile(row, (copies, 1)), 1.0, whose)

    # The cost of each person for each model does not depend on the others held out.
    costs = [
        np.array([[cost(model, row, outcome) for model in models] for row, outcome in zip(x, y, strict=True)])
        for x, y in tables
    ]
    unit: Unit = "row" if copies == 1 else "person"
    pick, source = HeldOutPick.calibrate(privacy, unit=unit), noise.SecureSource()

    def seen(neighbour: bool) -> FloatArray:
        each = costs[neighbour]
        who = held_out(len(each), 1.0 - 1.0 / _PEOPLE, source, public_count=public_count)
        picked = pick.release(each[who].sum(axis=0).tolist(), source, "an attack")
        return np.array(picked.values["index"], np.float64)

    moved = 2.0 if public_count else 1.0
    several = "" if copies == 1 else " with several rows"
    name = f"estimator by costs of people{several} held out, {privacy.adjacency}"
    return Attack(name, pick.privacy, OddsShift(moved * pick.rate), seen, tuple(models), effort=_MORE)
