"""Policy evaluation: the paper's chain, with every state visited, and games of Gymnasium, with rarely visited ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dpfast.datasets.decision_processes import chain_trajectories, exploring_policy, gymnasium_table, table_trajectories
from dpfast.demo.comparison import Comparison, Line
from dpfast.policy_evaluation import PolicyEvaluation
from dpfast.statistics import Trajectories

EPSILON, DELTA = 1.0, 1e-6
PEOPLE = 20_000
GAMMA, EXPLORE = 0.95, 0.2


class Game(NamedTuple):
    """A game and its declarations: the range of returns, and the number of steps to truncate trajectories to."""

    title: str
    name: str
    return_range: tuple[float, float]
    horizon: int


GAMES = (
    Game("FrozenLake 4x4", "frozen_lake_4x4", (0.0, 1.0), 60),
    Game("FrozenLake 8x8", "frozen_lake_8x8", (0.0, 1.0), 100),
    Game("CliffWalking", "cliff_walking", (-200.0, 0.0), 40),
    Game("Taxi", "taxi", (-40.0, 20.0), 40),
)
#: Those that are played here.
SHOWN = GAMES[1:3]
# The first of them, which is drawn: a grid, from one corner to the other.
SHAPE, START, GOAL = (8, 8), 0, 63
HOLES = (19, 29, 35, 41, 42, 46, 49, 52, 54, 59)


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield the results of fits, and the fits; games need Gymnasium."""
    if find_spec("gymnasium") is None:
        walks = Trajectories(*chain_trajectories(PEOPLE, seed=0), truncated=False)
        yield _evaluated("a chain of 40 states", walks, 0, return_range=(0.0, 1.0)).line(EPSILON, DELTA)
        return
    for game in SHOWN:
        table, start = gymnasium_table(game.name)
        policy = exploring_policy(table, GAMMA, EXPLORE)
        flat = table_trajectories(table, PEOPLE, start=start, horizon=game.horizon, policy=policy, seed=0)
        declared = {"return_range": game.return_range, "horizon": game.horizon}
        yield _evaluated(game.title, Trajectories(*flat), int(np.argmax(start)), **declared).line(EPSILON, DELTA)


def _evaluated(title: str, walks: Trajectories, start: int, **declared: Any) -> Comparison:
    """Describe the value of a policy from the first state, estimated from its trajectories."""

    def fit(epsilon: float, delta: float) -> PolicyEvaluation:
        return PolicyEvaluation(epsilon, delta, gamma=GAMMA, **declared).fit(walks)

    return Comparison(title, len(walks), "value", fit, partial(_value, start))


def _value(state: int, model: PolicyEvaluation) -> float:
    return float(model.value_[state])
