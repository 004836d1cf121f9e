"""Policy evaluation: the paper's chain, where every state is visited, and games of Gymnasium, where some rarely are."""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.datasets.decision_processes import (
    chain_trajectories,
    chain_values,
    exploring_policy,
    gymnasium_table,
    table_trajectories,
    table_values,
)
from dpfast.plotting import saved
from dpfast.policy_evaluation import PolicyEvaluation
from dpfast.privacy import UtilityWarning
from dpfast.statistics import Trajectories, first_visit_returns

EPSILONS, DELTA = (0.1, 1.0, 10.0), 1e-6
SIZES = (2_000, 20_000)
REPEATS = 5
GAMMA, EXPLORE = 0.95, 0.2


class Game(NamedTuple):
    """A game and what is declared of it: the range of returns, and after how many steps a trajectory is cut."""

    title: str
    name: str
    return_range: tuple[float, float]
    horizon: int
    shape: tuple[int, int] | None


GAMES = (
    Game("FrozenLake 4x4", "frozen_lake_4x4", (0.0, 1.0), 60, (4, 4)),
    Game("FrozenLake 8x8", "frozen_lake_8x8", (0.0, 1.0), 100, (8, 8)),
    Game("CliffWalking", "cliff_walking", (-200.0, 0.0), 40, (4, 12)),
    Game("Taxi", "taxi", (-40.0, 20.0), 40, None),
)


def show(output: Path) -> None:
    """Fit, print and plot; there are games where Gymnasium is installed."""
    print("\nPolicy evaluation: the value of states, from people's trajectories. Errors in % of the range of values")
    print(f"  {'':16}  {'people':>6}  {'exact':>6}  " + "  ".join(f"{f'eps = {e:g}':>9}" for e in EPSILONS))
    truth = chain_values(GAMMA)
    for m in SIZES:
        walks = Trajectories(*chain_trajectories(m, seed=m))
        _line("chain, lsw", walks, truth, method="lsw", return_range=(0.0, 1.0))
    if find_spec("gymnasium") is None:
        return
    for game in GAMES:
        model = _play(game)
        if game.name == "frozen_lake_8x8" and find_spec("matplotlib") is not None:
            path = saved(model.plot(game.shape), output, "dpfast-demo-policy-evaluation.png")
            print(f"  Plot of the values at epsilon = {EPSILONS[-1]:g}: {path}")


def _play(game: Game) -> PolicyEvaluation:
    """Evaluate a policy that plays well most of the time; return the last model."""
    table, start = gymnasium_table(game.name)
    policy = exploring_policy(table, GAMMA, EXPLORE)
    truth = table_values(table, GAMMA, policy)
    for m in SIZES:
        flat = table_trajectories(table, m, start=start, horizon=game.horizon, policy=policy, seed=m)
        model = _line(
            game.title,
            Trajectories(*flat),
            truth,
            return_range=game.return_range,
            horizon=game.horizon,
        )
    return model


def _line(title: str, walks: Trajectories, truth: FloatArray, **options: Any) -> PolicyEvaluation:
    """Print the errors of states as often as they are visited; return the last model."""
    visits = first_visit_returns(walks, GAMMA, horizon=options.get("horizon")).counts
    spread = truth[visits > 0].max() - truth[visits > 0].min()

    def error(model: PolicyEvaluation) -> float:
        return 100.0 * math.sqrt(visits @ (model.value_ - truth) ** 2 / visits.sum()) / float(spread)

    exact = PolicyEvaluation(math.inf, gamma=GAMMA, **options).fit(walks)
    found = []
    with warnings.catch_warnings():
        # The table shows where there are too few people.
        warnings.simplefilter("ignore", UtilityWarning)
        for epsilon in EPSILONS:
            models = [PolicyEvaluation(epsilon, DELTA, gamma=GAMMA, **options).fit(walks) for _ in range(REPEATS)]
            found.append(float(np.mean([error(model) for model in models])))
    print(f"  {title:16}  {len(walks):6}  {error(exact):6.2g}  " + "  ".join(f"{value:9.2g}" for value in found))
    return models[-1]
