"""Error of policy evaluation at epsilon = 1: games of Gymnasium and the paper's chain, beside what it was.

`before` is how states were summed at first: noise for norms of whole trajectories, returns from the lower end of their
range, drawn towards it, nothing clipped, no lag. Weights that are unlike by a rounding error still ask for just that.
Errors are root mean squares over states that are ever visited, and over visits, of `REPEATS` fits on four data sets.
Ranges of returns are those of the demo; wide ones, which a private range is for, what rewards and horizon allow.
Run ``python benchmarks/papers/policy_accuracy.py``: some minutes.
"""

import argparse
import itertools
import warnings
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from dpfast import PolicyEvaluation, UtilityWarning
from dpfast.datasets.decision_processes import (
    chain_trajectories,
    chain_values,
    exploring_policy,
    gymnasium_table,
    table_trajectories,
    table_values,
)
from dpfast.demo import EXPLORE, GAMES, GAMMA
from dpfast.statistics import Trajectories, first_visit_returns

EPSILON, DELTA = 1.0, 1e-5
SIZES, REPEATS, DATASETS = (2_000, 20_000), 20, 4
#: Of each step of a game.
REWARDS = {"frozen_lake_4x4": (0, 1), "frozen_lake_8x8": (0, 1), "cliff_walking": (-100, -1), "taxi": (-10, 20)}


class Cell(NamedTuple):
    """What is evaluated: trajectories, true values, and what is declared of them."""

    name: str
    m: int
    walks: list[Trajectories]
    truth: np.ndarray
    declared: dict
    wide: dict | None


def cells(sizes=SIZES, games=GAMES):
    """Yield the chain and the games, played mostly well or at random, of each number of trajectories."""
    for m in sizes:
        walks = [Trajectories(*chain_trajectories(m, seed=m + run)) for run in range(DATASETS)]
        chain = {"gamma": 0.99, "return_range": (0.0, 1.0)}
        yield Cell("chain", m, walks, chain_values(0.99), chain, None)
    for explore, m, game in itertools.product((EXPLORE, 1.0), sizes, games if find_spec("gymnasium") else ()):
        table, start = gymnasium_table(game.name)
        policy = exploring_policy(table, GAMMA, explore)
        steps = {"start": start, "horizon": game.horizon, "policy": policy}
        walks = [Trajectories(*table_trajectories(table, m, seed=m + run, **steps)) for run in range(DATASETS)]
        public = {"gamma": GAMMA, "horizon": game.horizon}
        yield Cell(
            game.title + (" at random" if explore == 1.0 else ""),
            m,
            walks,
            table_values(table, GAMMA, policy),
            public | {"return_range": game.return_range},
            public | {"reward_range": REWARDS[game.name]},
        )


def errors(cell, adjacency, repeats=REPEATS, *, before=False, **options):
    """Root mean square error over visited states, and over visits."""
    counts = [first_visit_returns(walks, 1.0, horizon=10**9).counts for walks in cell.walks]
    if before:
        weights = np.ones(len(cell.truth))
        weights[0] += 2.0**-50
        options |= {"weights": weights, "lag": 0}
    by_state, by_visit = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        for run in range(repeats):
            model = PolicyEvaluation(EPSILON, DELTA, adjacency=adjacency, **options).fit(cell.walks[run % DATASETS])
            values, visits = model.offset_ + model.coef_ if before else model.value_, counts[run % DATASETS]
            squares = (values - cell.truth) ** 2
            by_state.append(squares[visits > 0].mean())
            by_visit.append(squares @ visits / visits.sum())
    return np.sqrt([np.mean(by_state), np.mean(by_visit)])


def table(adjacency="replace_one", sizes=SIZES, repeats=REPEATS, games=GAMES):
    """Yield a row for each cell: errors before, and what they are divided by now, over states and over visits."""
    for cell in cells(sizes, games):
        first = errors(cell, adjacency, repeats, before=True, **cell.declared)
        row = {"what": f"{cell.name}, m = {cell.m:,}", "before": _pair(first)}
        for name, options in (("default", {}), ("shrinkage", {"shrinkage": True})):
            row[name] = _pair(first / errors(cell, adjacency, repeats, **cell.declared, **options))
        row |= dict.fromkeys(("before, wide range", "private range", "with shrinkage"), "")
        if cell.wide is not None:
            first = errors(cell, adjacency, repeats, before=True, **cell.wide)
            row["before, wide range"] = _pair(first)
            for name, options in (("private range", {}), ("with shrinkage", {"shrinkage": True})):
                private = cell.wide | {"return_range": "private"} | options
                row[name] = _pair(first / errors(cell, adjacency, repeats, **private))
        yield row


def _pair(values):
    return ", ".join(f"{value:.3g}" for value in values)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two fits on the smallest")
    options = parser.parse_args()
    repeats, sizes, games = (2, SIZES[:1], GAMES[:1]) if options.quick else (REPEATS, SIZES, GAMES)
    for adjacency in ("replace_one", "add_remove"):
        print(f"{adjacency}, epsilon = {EPSILON:g}, delta = {DELTA:g}: errors over visited states, and over visits")
        for row in table(adjacency, sizes, repeats, games):
            print("  ".join(f"{name}: {value}" if name != "what" else value for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
