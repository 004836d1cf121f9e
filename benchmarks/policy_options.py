"""Is the default of policy evaluation as good as its best option in hindsight? FrozenLake, and long horizons.

    python -m benchmarks.policy_options [--people 200,2000] [--epsilon 0.3,1,3] [--fits 12] [--only lake]

Prints a line a cell: the root mean square error of values, as a share of the range, of states that ten people or more
visit; that of the best other option, which is chosen after the fact, and of the best constant; and the ratio of the
first to the second. Options are sums at once (automatic ridge, three ridges, shrinkage, a "private" range), both of the
paper's methods, and the default with half of the horizon, and with a quarter.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings

import numpy as np

from benchmarks.policy_limits import UNIT, at_random, births, chain, first_visits, ring, values_of, walks_of
from dpfast import PolicyEvaluation
from dpfast.datasets.decision_processes import exploring_policy, table_trajectories, table_values
from dpfast.statistics import Trajectories

HOLES, GOAL, SIDE = {5, 7, 11, 12}, 15, 4


def lake():
    """Return FrozenLake 4x4, slippery, as Gymnasium has it: probability, next state, reward and end by action."""
    moves, table = ((0, -1), (1, 0), (0, 1), (-1, 0)), {}
    for state in range(SIDE * SIDE):
        table[state] = {}
        for action in range(4):
            outcomes = []
            for slip in (action - 1, action, action + 1):
                (row, column), (down, right) = divmod(state, SIDE), moves[slip % 4]
                row, column = min(max(row + down, 0), SIDE - 1), min(max(column + right, 0), SIDE - 1)
                to = SIDE * row + column
                outcomes.append((1.0 / 3.0, to, float(to == GOAL), to in HOLES or to == GOAL))
            is_end = state in HOLES or state == GOAL
            table[state][action] = [(1.0, state, 0.0, True)] if is_end else outcomes
    return table


class Lake:
    """Players who take a good action four times out of five."""

    def __init__(self, gamma, horizon):
        self.options = {"gamma": gamma, "horizon": horizon, "return_range": (0.0, 1.0)}
        self.policy = exploring_policy(lake(), gamma, 0.2)

    def drawn(self, people, seed):
        found = table_trajectories(
            lake(), people, start=np.eye(16)[0], horizon=self.options["horizon"], policy=self.policy, seed=seed
        )
        return Trajectories(*found)

    @property
    def values(self):
        return table_values(lake(), self.options["gamma"], self.policy)


class Chain:
    """A Markov chain of `benchmarks.policy_limits`."""

    def __init__(self, world):
        self.world, self.options = world, world.options
        self.values = values_of(world)

    def drawn(self, people, seed):
        return walks_of(self.world, people, seed)


def _long(horizon, gamma=0.99, **ranges):
    return {"options": {"gamma": gamma, "horizon": horizon} | ranges, "is_good": True}


def _uniform(rng, n):
    return rng.uniform(0, 1, n)


PLACES = {
    "lake": Lake(0.95, 60),
    "lake, 100 steps": Lake(0.95, 100),
    "lake, patient": Lake(0.99, 200),
    "long: dense": Chain(at_random(51, 8, _uniform, **_long(500))),
    "long: dense, 30 states": Chain(at_random(52, 30, _uniform, **_long(500))),
    "long: chain of 40": Chain(chain(40, 0.5, 1.0, **_long(400, **UNIT))),
    "long: ring": Chain(ring(12, 0.3, 1.0, **_long(300))),
    "long: births and deaths": Chain(births(8, 0.25, 0.26, 3, 1, **_long(400))),
}


def options_of(place, people):
    """Yield the name and the parameters of each option; data in an iterator are summed at once."""
    horizon = place.options["horizon"]
    yield "default", {}
    yield "at once", {"ridge": None}
    for part in (1e-3, 1e-2, 1e-1):
        yield f"ridge {part:g} m", {"ridge": part * people}
    yield "shrinkage", {"shrinkage": True}
    yield "private range", {"return_range": "private"}
    yield "lsw", {"method": "lsw"}
    yield "lsl", {"method": "lsl"}
    yield "half the horizon", {"horizon": horizon // 2}
    yield "a quarter of it", {"horizon": horizon // 4}


def errors_of(place, people, epsilon, fits):
    """Return mean squares by option, and of the best constant."""
    low, high = place.options.get("return_range", (0.0, 1.0 / (1.0 - place.options["gamma"])))
    true, squares, known = place.values, {}, None
    for seed in range(fits):
        data = place.drawn(people, seed)
        if known is None:
            visits = np.bincount(first_visits(data, place.options["gamma"])[0], minlength=len(true))
            known = visits >= 10
        for name, given in options_of(place, people):
            parameters = {"delta": 1e-6, "random_state": seed} | place.options | given
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = PolicyEvaluation(epsilon, **parameters).fit(iter([data]) if name == "at once" else data)
            off = (model.value_ - true)[known] / (high - low)
            squares.setdefault(name, []).append(float(np.mean(off**2)))
    return {name: math.sqrt(np.mean(one)) for name, one in squares.items()}, np.std(true[known]) / (high - low)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--people", default="200,2000")
    parser.add_argument("--epsilon", default="0.3,1,3")
    parser.add_argument("--fits", type=int, default=12)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    print(f"{'':26}{'people':>7}{'eps':>5}{'default':>9}{'best':>8}  {'':18}{'constant':>9}{'ratio':>7}")
    ratios = []
    for name, place in PLACES.items():
        if chosen.only not in name:
            continue
        for people, epsilon in itertools.product(
            map(int, chosen.people.split(",")), map(float, chosen.epsilon.split(","))
        ):
            found, constant = errors_of(place, people, epsilon, chosen.fits)
            default = found.pop("default")
            best = min(found, key=found.get)
            ratios.append(default / found[best])
            print(
                f"{name:26}{people:7}{epsilon:5g}{default:9.4f}{found[best]:8.4f}  {best:18}{constant:9.4f}"
                f"{ratios[-1]:7.2f}",
                flush=True,
            )
    print(f"the default over the best: median {np.median(ratios):.2f}, at most {max(ratios):.2f}")


if __name__ == "__main__":
    main()
