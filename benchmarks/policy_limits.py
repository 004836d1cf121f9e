"""Do 95% limits of values hold? Coverage per state over redrawn data, of Markov chains with known values.

    python -m benchmarks.policy_limits [judged|unseen|tuned|all] [--fits 40] [--people 500,5000] [--epsilon 0.3,1]

Prints a line a cell, of states that ten people or more visit: the share of values within their limits, the least share
of any state, the share of limits that are withheld, the median half width over the root mean square error, that error
of all states as a share of the range, the share of fits that warned of limits, and the error over the planned one, for
true guesses of visits, spreads and truncation. The last lines also compare with the plan's upper end, if truncated
tails are unlike what is seen. Constants were chosen on the chains called tuned.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from typing import NamedTuple

import numpy as np

from dpfast import PolicyEvaluation
from dpfast.datasets import markov_trajectories
from dpfast.statistics import Trajectories


class World(NamedTuple):
    """A chain, and what is declared of it."""

    transitions: np.ndarray
    start: np.ndarray
    rewards: np.ndarray
    options: dict
    #: Whether limits should hold, and warn of what noise may hide alone: at most a quarter is cut, nobody is beyond it.
    is_good: bool
    #: How rewards are drawn about those of the states.
    drawn: str = "as they are"


def at_random(seed, n_states, rewards, *, concentration=0.3, **options):
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(n_states, concentration), n_states)
    return World(transitions, np.full(n_states, 1 / n_states), rewards(rng, n_states), **options)


def chain(n_states, stay, reward, *, ends=True, chains=1, **options):
    """Chains side by side: a step ahead or none; the reward is in the last state of each, times 1, 1/2, ..."""
    one = stay * np.eye(n_states) + (1 - stay) * np.eye(n_states, k=1)
    one[-1] = 0.0 if ends else np.eye(n_states)[-1]
    start = np.zeros(n_states * chains)
    start[::n_states] = 1 / chains
    rewards = np.zeros(n_states * chains)
    rewards[n_states - 1 :: n_states] = reward / np.arange(1, chains + 1)
    return World(np.kron(np.eye(chains), one), start, rewards, **options)


def illness(*, costs=False, **options):
    """Well, ill, very ill, recovered; who dies leaves."""
    transitions = np.array([[0.90, 0.08, 0, 0], [0.1, 0.6, 0.2, 0.1], [0, 0.15, 0.55, 0.05], [0.02, 0.02, 0.0, 0.95]])
    rewards = np.array([0.1, 1.0, 3.0, 0.2]) if costs else np.array([1.0, 0.6, 0.2, 0.9])
    return World(transitions, np.array([0.5, 0.3, 0.1, 0.1]), rewards, **options)


def ring(n_states, back, reward, **options):
    """A circle with drift, a reward in one state."""
    transitions = (1 - back) * np.roll(np.eye(n_states), 1, axis=1) + back * np.roll(np.eye(n_states), -1, axis=1)
    return World(transitions, np.eye(n_states)[0], reward * np.eye(n_states)[n_states // 2], **options)


def board(side, **options):
    """A random walk on a square; a reward in a corner ends it."""
    transitions = np.zeros((side * side, side * side))
    for row, column in itertools.product(range(side), repeat=2):
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            to = min(max(row + down, 0), side - 1), min(max(column + right, 0), side - 1)
            transitions[row * side + column, to[0] * side + to[1]] += 0.25
    transitions[-1] = 0.0
    return World(transitions, np.eye(side * side)[0], np.eye(side * side)[-1], **options)


def branches(**options):
    """From a start into one of two classes of four states that nobody leaves: one collects, the other does not."""
    rng = np.random.default_rng(5)
    transitions = np.zeros((9, 9))
    transitions[0, 1], transitions[0, 5] = 0.6, 0.4
    transitions[1:5, 1:5], transitions[5:, 5:] = (rng.dirichlet(np.ones(4), 4) for _ in range(2))
    return World(transitions, np.eye(9)[0], np.r_[0.2, rng.uniform(0.5, 1, 4), rng.uniform(0, 0.3, 4)], **options)


def grid(columns, rows, slip, **options):
    """Right or down, at times the other way; a reward in the last corner ends it, and a hole in the middle does."""
    transitions = np.zeros((rows * columns, rows * columns))
    for row, column in itertools.product(range(rows), range(columns)):
        for (down, right), share in zip(
            ((0, 1), (1, 0), (0, -1), (-1, 0)), np.repeat([1 - slip, slip], 2), strict=True
        ):
            to = min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)
            transitions[row * columns + column, to[0] * columns + to[1]] += share / 2
    transitions[-1] = transitions[rows // 2 * columns + columns // 2] = 0.0
    return World(transitions, np.eye(len(transitions))[0], np.eye(len(transitions))[-1], **options)


def arms(n_states, **options):
    """One step, of a reward by its state, or seldom another."""
    alike = np.full(n_states, 1 / n_states)
    return World(0.3 * np.tile(alike, (n_states, 1)), alike, np.linspace(0.1, 0.9, n_states), **options)


def cycle(n_states, ahead, **options):
    """Ahead or not, in a circle that begins anywhere; a third of it pays."""
    transitions = ahead * np.roll(np.eye(n_states), 1, axis=1) + (1 - ahead) * np.eye(n_states)
    pays = (np.arange(n_states) < n_states // 3).astype(float)
    return World(transitions, np.full(n_states, 1 / n_states), pays, **options)


def _options(gamma, horizon, **ranges):
    return {"gamma": gamma, "horizon": horizon} | ranges


def _uniform(rng, n):
    return rng.uniform(0, 1, n)


def _skewed(rng, n):
    return np.minimum(rng.exponential(0.1, n), 1.0)


UNIT = {"return_range": (0.0, 1.0)}
TUNED = {
    "dense": at_random(1, 8, _uniform, options=_options(0.9, 15), is_good=True),
    "dense, long": at_random(2, 8, _uniform, options=_options(0.9, 40), is_good=True),
    "dense, noisy, cut": at_random(3, 10, _uniform, options=_options(0.95, 15), is_good=False, drawn="from 0 to twice"),
    "chain": chain(6, 0.5, 1.0, options=_options(0.9, 40, **UNIT), is_good=True),
    "two chains, hardly reached": chain(8, 0.6, 1.0, chains=2, options=_options(0.95, 10, **UNIT), is_good=False),
    "illness": illness(options=_options(0.9, 30), is_good=True),
    "board": board(3, options=_options(0.95, 60, **UNIT), is_good=True),
    "rare rewards": at_random(4, 6, _skewed, options=_options(0.9, 30), is_good=True, drawn="1 or 0"),
    "dense, range too narrow": at_random(1, 8, _uniform, options=_options(0.9, 40, return_range=(0, 5)), is_good=False),
    "chain, range too narrow": chain(6, 0.5, 1.0, options=_options(0.9, 40, return_range=(0, 0.5)), is_good=False),
}
ALSO_TUNED = {
    "ring": ring(8, 0.3, 1.0, options=_options(0.95, 50), is_good=True),
    "ring, cut": ring(8, 0.3, 1.0, options=_options(0.95, 20), is_good=False),
    "dense, 20 states": at_random(11, 20, _uniform, concentration=1.0, options=_options(0.9, 25), is_good=True),
    "dense, half cut": at_random(12, 8, _uniform, options=_options(0.97, 20), is_good=False, drawn="from 0 to twice"),
    "skewed": at_random(13, 10, _skewed, options=_options(0.9, 40), is_good=True, drawn="1 or 0"),
    "costs of illness": illness(
        costs=True, options=_options(0.95, 60, return_range=(0.0, 50.0)), is_good=True, drawn="from 0 to twice"
    ),
    "branches": branches(options=_options(0.9, 30), is_good=True),
    "branches, cut": branches(options=_options(0.9, 12), is_good=False),
    "board, larger": board(4, options=_options(0.97, 100, **UNIT), is_good=True),
    "board, cut": board(4, options=_options(0.97, 15, **UNIT), is_good=False),
    "chain to a state that pays for ever": chain(6, 0.6, 1.0, ends=False, options=_options(0.9, 10), is_good=False),
    "long chain, hardly reached": chain(12, 0.5, 1.0, options=_options(0.95, 15, **UNIT), is_good=False),
    "months of which half are seen": chain(16, 0.0, 1.0, options=_options(0.95, 8, **UNIT), is_good=False),
    "three chains, all reached": chain(5, 0.3, 1.0, chains=3, options=_options(0.9, 30, **UNIT), is_good=True),
    "illness, range too narrow below": illness(
        options=_options(0.9, 30, return_range=(4.0, 10.0)), is_good=False, drawn="from 0 to twice"
    ),
    "costs of illness, rewards of 0 to 1": illness(costs=True, options=_options(0.9, 40), is_good=False),
    "ring, range too narrow": ring(8, 0.3, 1.0, options=_options(0.95, 50, return_range=(0, 3.0)), is_good=False),
}


JUDGED = {
    "dense, 12 states": at_random(31, 12, _uniform, concentration=0.15, options=_options(0.92, 40), is_good=True),
    "dense, cut at 12": at_random(32, 6, _uniform, options=_options(0.92, 12), is_good=False),
    "rare and rewarded": at_random(33, 9, _skewed, options=_options(0.85, 25), is_good=True, drawn="1 or 0"),
    "ring of 12": ring(12, 0.1, 1.0, options=_options(0.93, 40), is_good=True),
    "ring of 20, half seen": ring(20, 0.2, 1.0, options=_options(0.95, 15), is_good=False),
    "four chains, mostly reached": chain(4, 0.5, 1.0, chains=4, options=_options(0.95, 40, **UNIT), is_good=True),
    "three chains, hardly reached": chain(9, 0.4, 1.0, chains=3, options=_options(0.93, 9, **UNIT), is_good=False),
    "chain to a state that pays, far": chain(10, 0.3, 1.0, ends=False, options=_options(0.92, 12), is_good=False),
    "board of 9, cut": board(3, options=_options(0.95, 10, **UNIT), is_good=False),
    "illness, dear": illness(costs=True, options=_options(0.93, 50, return_range=(0.0, 40.0)), is_good=True),
    "illness, dear, range too narrow": illness(
        costs=True, options=_options(0.93, 50, return_range=(0.0, 5.0)), is_good=False
    ),
    "four chains, range too narrow": chain(
        4, 0.5, 1.0, chains=4, options=_options(0.95, 40, return_range=(0.0, 0.7)), is_good=False
    ),
    "grid": grid(5, 4, 0.3, options=_options(0.95, 60, **UNIT), is_good=True),
    "grid, cut": grid(4, 4, 0.3, options=_options(0.95, 8, **UNIT), is_good=False),
    "chain of 15": chain(15, 0.3, 1.0, options=_options(0.97, 60, **UNIT), is_good=True),
    "chain of 15, cut": chain(15, 0.3, 1.0, options=_options(0.97, 20, **UNIT), is_good=False),
    "arms": arms(10, options=_options(0.9, 20), is_good=True, drawn="1 or 0"),
    "cycle": cycle(9, 0.7, options=_options(0.9, 30), is_good=True),
    "cycle, cut": cycle(9, 0.7, options=_options(0.95, 12), is_good=False),
    "cycle, range too narrow": cycle(9, 0.7, options=_options(0.9, 30, return_range=(0.0, 5.0)), is_good=False),
}


def cliff(**options):
    """Four rows of eight: up, along the second row, down to the goal; who slips off the last row starts again."""
    transitions = np.zeros((32, 32))
    for row, column in itertools.product(range(4), range(8)):
        ahead = (1, 0) if column == 7 else (-1, 0) if row > 1 else (0, 1) if row == 1 else (1, 0)
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            to = min(max(row + down, 0), 3), min(max(column + right, 0), 7)
            place = 24 if to[0] == 3 and 0 < to[1] < 7 else 8 * to[0] + to[1]
            transitions[8 * row + column, place] += 0.775 if (down, right) == ahead else 0.075
    transitions[31] = 0.0
    return World(transitions, np.eye(32)[24], np.eye(32)[31], **options)


def taxi(side, **options):
    """A square, without and with a passenger: to the last corner for one, to the first for 1; then for the next."""
    cells = side * side
    transitions, start = np.zeros((2 * cells, 2 * cells)), np.zeros(2 * cells)
    for aboard, cell in itertools.product((0, 1), range(cells)):
        target, (row, column) = (0 if aboard else cells - 1), divmod(cell, side)
        to_row, to_column = divmod(target, side)
        step = side * np.sign(to_row - row) if row != to_row else np.sign(to_column - column)
        state, first = aboard * cells + cell, aboard * cells
        if cell == target:
            transitions[state, (1 - aboard) * cells + cell] = 1.0
        else:
            for to, share in ((cell + step, 0.8), (cell, 0.1), ((cell + 1) % cells, 0.1)):
                transitions[state, first + to] += share
    start[:cells] = 1 / cells
    return World(transitions, start, np.eye(2 * cells)[cells], **options)


def sparse(seed, n_states, successors, *, end=0.0, starts=3, **options):
    """Few successors of each state, and few first states: most are visited rarely."""
    rng, transitions, start = np.random.default_rng(seed), np.zeros((n_states, n_states)), np.zeros(n_states)
    for row in transitions:
        row[rng.choice(n_states, successors, replace=False)] = rng.dirichlet(np.ones(successors)) * (1 - end)
    start[rng.choice(n_states, starts, replace=False)] = 1 / starts
    return World(transitions, start, rng.beta(0.5, 0.5, n_states), **options)


def births(n_states, up, down, first, power, **options):
    """Up or down by one, which ends in the first state."""
    stay = (1 - up - down) * np.eye(n_states)
    transitions = stay + up * np.eye(n_states, k=1) + down * np.eye(n_states, k=-1)
    transitions[-1, -1], transitions[0] = 1 - down, 0.0
    return World(transitions, np.eye(n_states)[first], np.linspace(0, 1, n_states) ** power, **options)


def stages(worse, dies, better, worth, start, **options):
    """Stages of an illness; who died stays on record, for nothing."""
    k = len(worth)
    transitions = np.zeros((k + 1, k + 1))
    transitions[:k, k], transitions[k, k] = dies, 1.0
    transitions[:k, :k] += np.diag(worse, 1) + np.diag(better, -1)
    transitions += np.diag(1.0 - transitions.sum(axis=1))
    return World(transitions, np.r_[start, 0.0], np.r_[worth, 0.0], **options)


UNSEEN = {
    "cliff": cliff(options=_options(0.95, 60, **UNIT), is_good=True),
    "cliff, cut": cliff(options=_options(0.98, 20, **UNIT), is_good=False),
    "taxi": taxi(3, options=_options(0.95, 40), is_good=True),
    "taxi of 16 places": taxi(4, options=_options(0.93, 50, return_range=(0.0, 3.0)), is_good=True),
    "sparse, 15 states": sparse(71, 15, 2, options=_options(0.9, 40), is_good=True),
    "sparse, 30 states that end": sparse(72, 30, 3, end=0.05, options=_options(0.95, 50), is_good=True),
    "sparse, 40 states, cut": sparse(83, 40, 4, starts=8, options=_options(0.95, 15), is_good=False),
    "births and deaths": births(8, 0.25, 0.3, 3, 1, options=_options(0.95, 60), is_good=True),
    "births and deaths, slow": births(6, 0.05, 0.06, 2, 2, options=_options(0.9, 40), is_good=True),
    "births and deaths, cut": births(10, 0.3, 0.3, 4, 1, options=_options(0.97, 15), is_good=False),
    "stages, four": stages(
        [0.06, 0.1, 0.15],
        [0.005, 0.02, 0.06, 0.2],
        [0.05, 0.03, 0.02],
        [0.95, 0.8, 0.55, 0.3],
        [0.4, 0.3, 0.2, 0.1],
        options=_options(0.9, 40),
        is_good=True,
    ),
    "stages, the last rare": stages(
        [0.05] * 4,
        [0.01, 0.02, 0.04, 0.08, 0.2],
        [0.1, 0.1, 0.05, 0.05],
        [1.0, 0.9, 0.6, 0.4, 0.2],
        [0.9, 0.08, 0.02, 0.0, 0.0],
        options=_options(0.92, 30),
        is_good=True,
    ),
}


def values_of(world):
    identity = np.eye(len(world.start))
    return np.linalg.solve(identity - world.options["gamma"] * world.transitions, world.rewards)


def walks_of(world, people, seed):
    flat = markov_trajectories(
        world.transitions, people, start=world.start, horizon=world.options["horizon"], rewards=world.rewards, seed=seed
    )
    rng, rewards = np.random.default_rng([seed, 1]), flat.rewards
    if world.drawn == "from 0 to twice":
        rewards = rewards * rng.uniform(0.0, 2.0, len(rewards))
    elif world.drawn == "1 or 0":
        rewards = (rng.random(len(rewards)) < rewards).astype(np.float64)
    return Trajectories(flat.states, rewards, flat.offsets, flat.n_states)


def first_visits(data, gamma):
    """States of first visits, and their returns, not filled."""
    lengths = np.diff(data.offsets)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    steps = np.arange(data.n_steps) - data.offsets[:-1][owners]
    rewards = np.zeros((len(lengths), lengths.max()))
    rewards[owners, steps] = data.rewards
    for step in range(rewards.shape[1] - 1)[::-1]:
        rewards[:, step] += gamma * rewards[:, step + 1]
    _, first = np.unique(owners * data.n_states + data.states, return_index=True)
    return np.asarray(data.states)[first], rewards[owners, steps][first]


def cell(world, people, epsilon, adjacency, fits):
    true = values_of(world)
    held, errors, halves, warned, n_states = [], [], [], 0, len(true)
    visits, spread, truncated = np.zeros(n_states), 0.0, 0.0
    for seed in range(fits):
        data = walks_of(world, people, 1000 * people + seed)
        if seed < 4:
            states, found = first_visits(data, world.options["gamma"])
            visits += np.bincount(states, minlength=n_states) / 4
            spread += float(np.std(found)) / 4
            truncated += float(np.mean(np.diff(data.offsets) == world.options["horizon"])) / 4
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = PolicyEvaluation(epsilon, 1e-6, adjacency=adjacency, random_state=seed, **world.options).fit(data)
        warned += any("limits" in str(one.message) for one in said)
        half = 1.96 * model.value_std_
        off = np.abs(model.value_ - true)
        held.append(np.where(np.isnan(half), np.nan, off <= half))
        errors.append(off)
        halves.append(half)
    low, high = world.options.get("return_range", (0.0, 1.0 / (1.0 - world.options["gamma"])))
    error = math.sqrt(np.mean(np.square(errors))) / (high - low)
    distances = np.abs(np.clip(true, low, high) - visits @ true / visits.sum()) / (high - low)
    guesses = {"visited": np.clip(visits / people, 1e-4, 1.0), "spread": min(max(spread / (high - low), 1e-4), 1.0)}
    guesses |= {"value_spread": np.clip(distances, 1e-4, 1.0), "truncated": truncated}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"epsilon": epsilon, "delta": 1e-6, "adjacency": adjacency} | world.options
        plan = PolicyEvaluation.plan(people, n_states, **guesses, **settings)
    known = visits >= 10.0
    coverage, rms = np.array(held)[:, known], np.sqrt(np.mean(np.square(errors), axis=0))[known]
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, means = np.nanmean(coverage), np.nanmean(coverage, axis=0)
        wide = np.nanmedian(np.nanmedian(halves, axis=0)[known] / rms)
    return {
        "mean": mean,
        "least": np.nanmin(means) if not np.isnan(means).all() else np.nan,
        "withheld": np.mean(np.isnan(coverage)),
        "wide": wide,
        "error": error,
        "warned": warned / fits,
        "planned": error / plan.expected_error,
        "most": error / max(plan.expected_error, *plan.notes.values()),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=("judged", "unseen", "tuned", "all"), nargs="?", default="judged")
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--people", default="500,5000,20000")
    parser.add_argument("--epsilon", default="0.3,1,3")
    parser.add_argument("--adjacency", default="replace_one,add_remove")
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    tuned = TUNED | ALSO_TUNED
    worlds = {"judged": JUDGED, "unseen": UNSEEN, "tuned": tuned, "all": tuned | JUDGED | UNSEEN}[chosen.group]
    print(
        f"{'':38}{'people':>7}{'eps':>5} {'':11}{'mean':>6}{'least':>6}{'none':>6}{'width':>7}{'error':>8}"
        f"{'warned':>7}{'plan':>6}"
    )
    kept = []
    for name, world in worlds.items():
        if chosen.only not in name:
            continue
        for people, epsilon, adjacency in itertools.product(
            map(int, chosen.people.split(",")), map(float, chosen.epsilon.split(",")), chosen.adjacency.split(",")
        ):
            found = cell(world, people, epsilon, adjacency, chosen.fits)
            kept.append((world.is_good, found))
            print(
                f"{name:38}{people:7}{epsilon:5g} {adjacency:11}{found['mean']:6.2f}{found['least']:6.2f}"
                f"{found['withheld']:6.2f}{found['wide']:7.1f}{found['error']:8.4f}{found['warned']:7.2f}{found['planned']:6.2f}",
                flush=True,
            )
    for is_good, label in ((True, "horizons and ranges that hold"), (False, "others")):
        cells = [found for good, found in kept if good is is_good]
        if cells:
            means, least = np.array([one["mean"] for one in cells]), np.array([one["least"] for one in cells])
            print(
                f"{label}: {len(cells)} cells; coverage {np.nanmin(means):.2f} to {np.nanmax(means):.2f}, "
                f"{np.nanmean(means):.3f} in the mean; a state below .90 in {np.mean(least < 0.9):.0%}, below "
                f".80 in {np.mean(least < 0.8):.0%}; warned {np.mean([one['warned'] for one in cells]):.1%}, at most "
                f"{max(one['warned'] for one in cells):.0%} of a cell; withheld "
                f"{np.mean([one['withheld'] for one in cells]):.1%}; median width "
                f"{np.nanmedian([one['wide'] for one in cells]):.2f}, error "
                f"{np.mean([one['error'] for one in cells]):.4f}; within 1.5 times the plan "
                f"{np.mean([1 / 1.5 <= one['planned'] <= 1.5 for one in cells]):.0%}, and no more than 1.5 times its "
                f"upper end for tails in {np.mean([one['most'] <= 1.5 for one in cells]):.0%}"
            )


if __name__ == "__main__":
    main()
