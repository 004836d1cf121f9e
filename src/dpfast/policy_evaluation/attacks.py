"""Attacks on policy evaluation: a person with returns, or visited states, as different from another's as possible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, GaussianShift, claimed, claims
from dpfast.estimator.bounded_attacks import Rows, Table, first_release, shifted_attack, stage_attack, stages_attack
from dpfast.policy_evaluation.estimator import PolicyEvaluation
from dpfast.privacy import Privacy
from dpfast.statistics import Trajectories

# Enough for counts a few fewer not to make the smooth bound larger than the local one.
_VISITORS = 4000
# All visit both states; the second reward is discounted by this.
_GAMMA = 0.5


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack every method of `PolicyEvaluation`."""
    one = replace(privacy, adjacency="replace_one")
    for calibration in ("sound", "paper", "icml"):
        for method in ("lsw", "lsl"):
            yield _mean_attack(one, method, calibration)
    yield _mean_attack(one, "lsw", "sound", features=np.array([[1.0], [1.0]]))
    for claim in claims(privacy):
        for tabular in (True, False):
            yield _visit_attack(claim, tabular=tabular)
        yield _range_attack(claim)
        if claim.delta > 0.0:
            yield _staged_attack(claim)


def _mean_attack(privacy: Privacy, method: str, calibration: str, features: FloatArray | None = None) -> Attack:
    """Attack noise of data-dependent size: all see both states and collect nothing, but one, who collects all.

    Counts are equal on both tables, and so is the noise. The coefficients differ by the local sensitivity.
    """
    # Strong convexity alone bounds how far ridge regression moves: it does so exactly where that is all there is.
    ridge = None if method == "lsw" else 1e4 * _VISITORS
    estimator = PolicyEvaluation(
        gamma=_GAMMA,
        return_range=(0.0, 1.0),
        horizon=2,
        method=method,  # type: ignore[arg-type]
        ridge=ridge,
        features=features,
        n_threads=1,
        calibration=calibration,  # type: ignore[arg-type]
        **claimed(privacy),
    )
    starts = np.arange(0, 2 * _VISITORS + 1, 2)
    states = np.tile([0, 1], _VISITORS)
    tables, centres = [], []
    for collected in (0.0, 1.0):
        rewards = np.zeros(2 * _VISITORS)
        # Both first-visit returns of the last visitor are the reward collected.
        rewards[-2:] = (1.0 - _GAMMA) * collected, collected
        tables.append(Trajectories(states, rewards, starts, 2))
        centres.append(_coefficients(collected, ridge, features))

    def seen(neighbour: bool) -> FloatArray:
        return np.asarray(estimator.fit(tables[neighbour]).coef_ - centres[neighbour])

    shift = centres[1] - centres[0]
    # The size of the noise is private and not recorded; it is equal in all coordinates.
    law = GaussianShift(shift, None)
    kind = "" if features is None else " with features"
    name = f"DP-{method.upper()}{kind}, {calibration}, {privacy.adjacency}"
    # Its smoothness is searched for anew in every fit.
    return Attack(name, privacy, law, seen, (estimator,), effort=0.4 if method == "lsl" else 1.0)


def _coefficients(collected: float, ridge: float | None, features: FloatArray | None) -> FloatArray:
    """Coefficients without noise of returns that only the last visitor has, of both states with weight 1/2."""
    phi = np.eye(2) if features is None else features
    if ridge is None:
        return np.asarray(np.linalg.lstsq(phi, np.full(2, collected / _VISITORS), rcond=None)[0])
    system = 0.5 * _VISITORS * phi.T @ phi + 0.5 * ridge * np.eye(phi.shape[1])
    return np.asarray(np.linalg.solve(system, 0.5 * phi.T @ np.full(2, collected)))


def _visit_attack(privacy: Privacy, *, tabular: bool) -> Attack:
    """Attack sums of visits and returns: each person visits one state, and collects all there is.

    States have a feature each, or such features as are worst.
    """
    options: dict[str, Any] = {"gamma": _GAMMA, "return_range": (0.0, 1.0), "horizon": 1, "weights": np.ones(2)}
    options |= {"method": "sufficient_statistics", "ridge": 1.0} | claimed(privacy)
    rows = Rows(
        "sums of visits and returns",
        {"nonnegative": True},
        cosines=np.zeros(1),
        signs=(1.0,),
        diagonal=True,
        # Counted from the middle of the range.
        outcome=0.5,
    )
    if not tabular:
        # Of persons who collect as much, features at this angle move both sums most.
        pair = _pair(-0.5)
        record = first_release(PolicyEvaluation(features=pair, **options), _visits(pair, (pair, np.ones(2))))
        cosine = -min(1.0, 0.5 * (record.scales["xx"] / record.scales["xy"]) ** 2)
        rows = Rows("sums of visits and returns with features", cosines=np.array([cosine]), signs=(1.0,))
        options["features"] = np.vstack([table[0] for table in rows.tables(cosine, 1.0, "replace_one")])
    features = options.get("features", np.eye(2))
    return shifted_attack(rows, privacy.adjacency, PolicyEvaluation(**options), partial(_visits, features))


def _pair(cosine: float) -> FloatArray:
    return np.array([[1.0, 0.0], [cosine, math.sqrt(1.0 - cosine**2)]])


def _visits(features: FloatArray, table: Table) -> tuple[Any, ...]:
    """Return visitors of one state each, told by its features, who all collect the most there is."""
    states = np.argmax(table[0] @ features.T, axis=1)
    return (Trajectories(states, np.ones(len(states)), np.arange(len(states) + 1), 2),)


def _range_attack(privacy: Privacy) -> Attack:
    """Attack a private range and the sums over it: all collect the most or the least there is, so that it stays.

    One person goes from one end of the range, and one state, to the other, or comes. With pure privacy the counts alone
    are attacked, whose budget is separate.
    """
    estimator = PolicyEvaluation(
        gamma=_GAMMA,
        reward_range=(-1.0, 1.0),
        return_range="private",
        horizon=1,
        weights=np.ones(2),
        **claimed(privacy),
    )
    crowd = [(0, -1.0), (0, 1.0)] * 400
    last = [(1, -1.0)] if privacy.adjacency == "replace_one" else []
    people = [np.array(who) for who in ([*crowd, (0, 1.0)], crowd + last)]
    tables = [(Trajectories(who[:, 0].astype(int), who[:, 1], np.arange(len(who) + 1), 2),) for who in people]
    if privacy.delta == 0.0:
        return stage_attack("counts of people by their returns", estimator, tables)
    return stages_attack("sums over a private range of returns", estimator, tables)


def _staged_attack(privacy: Privacy) -> Attack:
    """Attack every stage: all collect about as much in one state, but for one person, who collects the most or nothing.

    Replaced, they go to another state, to another bin of distances, and to the other end of all means; they visit one
    state or both. Their returns exceed the reach found, and their visits the clip. So they move all sums by the
    sensitivity, whatever was released before, except for a few percent in squares and discounts.
    """
    estimator = PolicyEvaluation(gamma=_GAMMA, return_range=(-2.0, 2.0), horizon=2, n_threads=1, **claimed(privacy))
    crowd = [([0], [0.0])] * (2 * _VISITORS)
    last = [([1, 2], [-1.0, -1.0])] if privacy.adjacency == "replace_one" else []
    people = [*crowd, ([0], [1.0])], crowd + last
    tables = []
    for who in people:
        states, rewards = (np.concatenate([one[part] for one in who]) for part in (0, 1))
        offsets = np.concatenate([[0], np.cumsum([len(one[0]) for one in who])])
        tables.append((Trajectories(states, rewards, offsets, 3),))
    return stages_attack("visits in stages", estimator, tables)
