"""Trajectories of Markov chains with known values: the conference paper's chain, and any table of transitions.

Nothing here is private: trajectories are drawn with NumPy's generators, and values come from the true transitions by
dynamic programming, to compare estimates with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.datasets.tables import generator

#: ``table[state][action]`` lists (probability, next state, reward, terminated): Gymnasium's ``env.unwrapped.P``.
Table = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]

Seed = int | np.random.Generator | None
States = NDArray[np.int64]
Move = Callable[[np.random.Generator, States], tuple[FloatArray, States, NDArray[np.bool_]]]

#: Environments of Gymnasium whose ``unwrapped.P`` is known: name here -> (Gymnasium's id, options).
GYMNASIUM_ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "frozen_lake_4x4": ("FrozenLake-v1", {"map_name": "4x4"}),
    "frozen_lake_8x8": ("FrozenLake-v1", {"map_name": "8x8"}),
    "cliff_walking": ("CliffWalking-v1", {}),
    "taxi": ("Taxi-v4", {}),
}


class FlatTrajectories(NamedTuple):
    """Trajectories as flat arrays: number i holds the steps from ``offsets[i]`` to ``offsets[i + 1] - 1``.

    Each step has a state in ``range(n_states)`` and the reward collected there: what `dpfast.Trajectories` takes.
    """

    states: NDArray[np.int32]
    rewards: FloatArray
    offsets: NDArray[np.int64]
    n_states: int


def chain_trajectories(m: int, *, n_states: int = 40, stay: float = 0.5, seed: Seed = None) -> FlatTrajectories:
    """Draw trajectories of the paper's chain.

    Each starts in state 0. It stays in its state with probability `stay`, else moves to the next one. It ends in the
    last state, included, the only one with a reward, of 1. Discounted returns lie in [0, 1].

    Parameters
    ----------
    m : int
        Number of trajectories, at least 1.
    n_states : int
        Length of the chain, N = 40 in the paper.
    stay : float
        In [0, 1); 0.5 in the paper.
    seed : int, numpy.random.Generator or None
        Of the data; None for others each time.

    Returns
    -------
    FlatTrajectories
        About ``m * n_states/(1 - stay)`` steps.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    Balle, Gomrokchi and Precup (2016), "Differentially private policy evaluation", ICML, Section 6.

    Examples
    --------
    >>> from dpfast.datasets import chain_trajectories
    >>> data = chain_trajectories(2, n_states=3, stay=0.0, seed=0)
    >>> data.states.tolist(), data.rewards.tolist(), data.offsets.tolist()
    ([0, 1, 2, 0, 1, 2], [0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0, 3, 6])
    """
    m, n_states = check.positive_integer("m", m), check.positive_integer("n_states", n_states)
    rng = generator(seed)
    dwells = np.ones((m, n_states), np.int64)
    dwells[:, :-1] = rng.geometric(1.0 - _stay(stay), (m, n_states - 1))
    offsets = np.concatenate(([0], np.cumsum(dwells.sum(axis=1))))
    states = np.repeat(np.tile(np.arange(n_states, dtype=np.int32), m), dwells.ravel())
    return FlatTrajectories(states, (states == n_states - 1).astype(np.float64), offsets, n_states)


def markov_trajectories(
    transitions: ArrayLike,
    m: int,
    *,
    start: ArrayLike,
    horizon: int,
    rewards: ArrayLike | None = None,
    policy: ArrayLike | None = None,
    seed: Seed = None,
) -> FlatTrajectories:
    """Draw trajectories from known transitions, to simulate how often states are visited, say.

    Parameters
    ----------
    transitions : array_like (n_states, n_states), or (n_states, n_actions, n_states) with a policy
        Probabilities of the next state; 1 minus the sum of a row is the probability of ending there.
    m : int
        Number of trajectories, at least 1.
    start : array_like (n_states,)
        Probability of each state to be the first, adding up to 1.
    horizon : int
        Most states in a trajectory, at least 1.
    rewards : array_like (n_states,), optional
        Collected at each state; 0 by default.
    policy : array_like (n_states, n_actions), optional
        Probability of each action in each state.
    seed : int, numpy.random.Generator or None
        Of the data; None for others each time.

    Returns
    -------
    FlatTrajectories
        m trajectories of 1 to `horizon` steps.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.datasets import markov_trajectories
    >>> data = markov_trajectories([[0, 1], [0, 0]], 2, start=[1, 0], horizon=10)
    >>> data.states.tolist(), data.offsets.tolist()
    ([0, 1, 0, 1], [0, 2, 4])
    """
    table, first = check.array("transitions", transitions), check.array("start", start)
    if policy is not None:
        chosen = check.array("policy", policy)
        if table.ndim != 3 or chosen.shape != table.shape[:2]:
            raise ValueError(
                "with a policy of shape (n_states, n_actions) transitions must be of shape (n_states, n_actions, "
                f"n_states), got {chosen.shape} and {table.shape}"
            )
        table = np.einsum("sa,sat->st", chosen, table)
    if first.ndim != 1 or table.shape != (len(first), len(first)):
        raise ValueError(f"transitions and start must agree on n_states, got {table.shape} and {first.shape}")
    if not (table >= 0.0).all() or not (table.sum(axis=1) <= 1.0 + 1e-9).all():
        raise ValueError("transitions must hold probabilities that add up to at most 1 in each row")
    collected = np.zeros(len(first)) if rewards is None else check.array("rewards", rewards)
    if collected.shape != first.shape:
        raise ValueError(f"rewards must be of shape {first.shape}, got {collected.shape}")
    # Beyond all states lies the end; a row or a start that adds up to 1 but for its rounding never goes there by it.
    cumulative = np.cumsum(table, axis=1)
    cumulative[cumulative[:, -1] > 1.0 - 1e-9, -1] = 1.0

    def move(rng: np.random.Generator, current: States) -> tuple[FloatArray, States, NDArray[np.bool_]]:
        following = (cumulative[current] <= rng.random(len(current))[:, None]).sum(axis=1)
        return collected[current], following, following < len(first)

    return _trajectories(first, m, horizon, seed, move)


def chain_values(gamma: float = 0.99, *, n_states: int = 40, stay: float = 0.5) -> FloatArray:
    """Return the true value function of the paper's chain.

    Parameters
    ----------
    gamma : float
        Discount, in (0, 1]; 0.99 in the paper.
    n_states, stay
        As for `chain_trajectories`.

    Returns
    -------
    ndarray of shape (n_states,)
        1 in the last state; in the one before, ``gamma (1 - stay)/(1 - gamma stay)`` times the next value.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.datasets import chain_values
    >>> chain_values(0.5, n_states=3, stay=0.0).tolist()
    [0.25, 0.5, 1.0]
    """
    n_states, stay = check.positive_integer("n_states", n_states), _stay(stay)
    transitions = stay * np.eye(n_states) + (1.0 - stay) * np.eye(n_states, k=1)
    # The trajectory ends in the last state.
    transitions[-1] = 0.0
    rewards = np.zeros(n_states)
    rewards[-1] = 1.0
    return _solve(transitions, rewards, gamma)


def adjacent_pairs(n_states: int) -> FloatArray:
    """Return features that aggregate states 0 and 1, 2 and 3, and so on, as the paper does on its chain.

    Parameters
    ----------
    n_states : int
        At least 1; where it is odd the last state is alone.

    Returns
    -------
    ndarray of shape (n_states, ceil(n_states/2))
        1 where the state belongs to the pair, else 0.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.datasets import adjacent_pairs
    >>> adjacent_pairs(3).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    pairs = np.arange(check.positive_integer("n_states", n_states)) // 2
    return np.eye(pairs[-1] + 1)[pairs]


def table_values(table: Table, gamma: float, policy: ArrayLike | None = None) -> FloatArray:
    """Return the true values of a policy from a table of transitions, by dynamic programming.

    Parameters
    ----------
    table : mapping
        ``table[state][action]`` lists (probability, next state, reward, terminated): Gymnasium's ``env.unwrapped.P``.
        States and actions are numbered from 0.
    gamma : float
        Discount, in (0, 1]; 1 only where every state reaches an end, or a value is not defined.
    policy : array_like (n_states, n_actions), optional
        Probability of each action in each state; by default all actions are equally likely.

    Returns
    -------
    ndarray of shape (n_states,)
        Expected discounted return from each state, the reward of a transition counted at the state it leaves. A state
        has value 0 if all its transitions terminate without reward, as recorded at the end of an episode. If a table
        lets an episode restart from its last state (Taxi), that state has the value of starting there.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.datasets import table_values
    >>> table = {0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    >>> table_values(table, gamma=1.0).tolist()
    [1.0, 0.0]
    """
    moves = _Moves.of(table)
    weights = _checked_policy(policy, moves)[:, :, None] * moves.probabilities
    transitions = np.zeros((len(weights), len(weights)))
    states = np.broadcast_to(np.arange(len(weights))[:, None, None], weights.shape)
    np.add.at(transitions, (states, moves.successors), np.where(moves.terminated, 0.0, weights))
    rewards = np.sum(weights * moves.rewards, axis=(1, 2))
    return _solve(transitions, rewards, gamma)


def table_trajectories(
    table: Table, m: int, *, start: ArrayLike, horizon: int, policy: ArrayLike | None = None, seed: Seed = None
) -> FlatTrajectories:
    """Draw trajectories of a policy from a table of transitions, all at once: much faster than step by step.

    The states recorded are those an action was taken in, each with the reward of that action, as by
    `Trajectories.from_gymnasium`. `start` holds the probability of each state to be the first: Gymnasium's
    ``env.unwrapped.initial_state_distrib``; the rest is as for `markov_trajectories`.
    """
    moves = _Moves.of(table)
    n_states = len(moves.probabilities)
    weights = (_checked_policy(policy, moves)[:, :, None] * moves.probabilities).reshape(n_states, -1)
    successors, rewards, terminated = (
        part.reshape(n_states, -1) for part in (moves.successors, moves.rewards, moves.terminated)
    )
    first = check.array("start", start)
    if first.shape != (n_states,):
        raise ValueError(f"start must hold {n_states} probabilities, got shape {first.shape}")
    cumulative = np.cumsum(weights, axis=1)

    def move(rng: np.random.Generator, current: States) -> tuple[FloatArray, States, NDArray[np.bool_]]:
        # Below the last sum, whatever that is rounded to: so no outcome of probability 0 is drawn, nor one beyond all.
        last = cumulative[current, -1]
        levels = np.minimum(rng.random(len(current)) * last, np.nextafter(last, 0.0))
        outcome = (cumulative[current] <= levels[:, None]).sum(axis=1)
        return rewards[current, outcome], successors[current, outcome], ~terminated[current, outcome]

    return _trajectories(first, m, horizon, seed, move)


def exploring_policy(table: Table, gamma: float, explore: float) -> FloatArray:
    """Return a policy that takes the best action, but for a share of the time, `explore`, any.

    Actions are best for a discount in (0, 1), by value iteration, to within 1e-9 or so.
    """
    moves = _Moves.of(table)
    gamma, explore = check.positive("gamma", gamma), check.nonnegative("explore", explore)
    if gamma >= 1.0 or explore > 1.0:
        raise ValueError(f"gamma must lie in (0, 1) and explore in [0, 1], got {gamma!r} and {explore!r}")
    values = np.zeros(len(moves.probabilities))
    for _ in range(math.ceil(math.log(1e-9) / math.log(gamma))):
        following = np.where(moves.terminated, 0.0, values[moves.successors])
        actions = np.sum(moves.probabilities * (moves.rewards + gamma * following), axis=2)
        values = actions.max(axis=1)
    policy = np.full(actions.shape, explore / actions.shape[1])
    policy[np.arange(len(policy)), actions.argmax(axis=1)] += 1.0 - explore
    return policy


def gymnasium_values(name: str, gamma: float, policy: ArrayLike | None = None) -> FloatArray:
    """Return the true values of a policy in an environment of Gymnasium, from its own table of transitions.

    Parameters
    ----------
    name : {"frozen_lake_4x4", "frozen_lake_8x8", "cliff_walking", "taxi"}
        A key of `GYMNASIUM_ENVIRONMENTS`.
    gamma, policy
        As for `table_values`. The environments' limits on the length of an episode are no part of the value.

    Returns
    -------
    ndarray of shape (n_states,)
        Expected discounted return from each state.

    Raises
    ------
    ImportError, ValueError, TypeError
        If Gymnasium is not installed, or an argument is out of its range.
    """
    return table_values(gymnasium_table(name)[0], gamma, policy)


def gymnasium_table(name: str) -> tuple[Table, FloatArray]:
    """Return an environment's transitions, and the probability of each state to be the first."""
    identifier, options = GYMNASIUM_ENVIRONMENTS[check.choice("name", name, tuple(GYMNASIUM_ENVIRONMENTS))]
    environment: Any = optional("gymnasium", f"the game {name}").make(identifier, **options)
    try:
        return environment.unwrapped.P, environment.unwrapped.initial_state_distrib
    finally:
        environment.close()


@dataclass(frozen=True, eq=False)
class _Moves:
    """A table of transitions as arrays (n_states, n_actions, n_outcomes), padded with outcomes of probability 0."""

    probabilities: FloatArray
    successors: NDArray[np.int64]
    rewards: FloatArray
    terminated: NDArray[np.bool_]

    @classmethod
    def of(cls, table: Table) -> _Moves:
        n_states = len(table)
        n_actions = len(table[0]) if n_states and 0 in table else 0
        if n_actions == 0 or any(set(table.get(s, {})) != set(range(n_actions)) for s in range(n_states)):
            raise ValueError("table must map states 0, 1, ... to mappings of the same actions 0, 1, ...")
        most = max(len(outcomes) for actions in table.values() for outcomes in actions.values())
        shape = (n_states, n_actions, most)
        moves = cls(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape), np.ones(shape, np.bool_))
        for state, action in np.ndindex(n_states, n_actions):
            outcomes = table[state][action]
            if abs(sum(probability for probability, *_ in outcomes) - 1.0) > 1e-9:
                raise ValueError(f"probabilities of table[{state}][{action}] must add up to 1")
            parts = moves.probabilities, moves.successors, moves.rewards, moves.terminated
            for part, values in zip(parts, zip(*outcomes, strict=True), strict=True):
                part[state, action, : len(outcomes)] = values
        return moves


def _trajectories(first: FloatArray, m: int, horizon: int, seed: Seed, move: Move) -> FlatTrajectories:
    """Walk all at once from starts of these probabilities; a move gives rewards, next states, and who goes on."""
    if not (first >= 0.0).all() or abs(first.sum() - 1.0) > 1e-9:
        raise ValueError(f"start must hold {len(first)} probabilities that add up to 1")
    rng = generator(seed)
    current = rng.choice(len(first), check.positive_integer("m", m), p=first / first.sum())
    walkers = np.arange(m)
    steps = []
    for _ in range(check.positive_integer("horizon", horizon)):
        rewards, following, going = move(rng, current)
        steps.append((walkers, current, rewards))
        walkers, current = walkers[going], following[going]
        if len(walkers) == 0:
            break
    owners, states, collected = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.argsort(owners, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=m))))
    return FlatTrajectories(states[order].astype(np.int32), collected[order], offsets, len(first))


def _checked_policy(policy: ArrayLike | None, moves: _Moves) -> FloatArray:
    n_states, n_actions, _ = moves.probabilities.shape
    chosen = np.full((n_states, n_actions), 1.0 / n_actions) if policy is None else check.array("policy", policy)
    if chosen.shape != (n_states, n_actions):
        raise ValueError(f"policy must be of shape ({n_states}, {n_actions}), got {chosen.shape}")
    if not (chosen >= 0.0).all() or not np.allclose(chosen.sum(axis=1), 1.0, rtol=0.0, atol=1e-9):
        raise ValueError("policy must hold probabilities that add up to 1 in each state")
    return chosen


def _solve(transitions: FloatArray, rewards: FloatArray, gamma: float) -> FloatArray:
    """Return V = rewards + gamma transitions V, corrected once for the rounding of the solve."""
    gamma = check.positive("gamma", gamma)
    if gamma > 1.0:
        raise ValueError(f"gamma must lie in (0, 1], got {gamma!r}")
    if gamma == 1.0 and not _all_end(transitions):
        raise ValueError("gamma must be below 1 where some state never reaches an end")
    system = np.eye(len(rewards)) - gamma * transitions
    values = np.linalg.solve(system, rewards)
    return np.asarray(values + np.linalg.solve(system, rewards - system @ values))


def _all_end(transitions: FloatArray) -> bool:
    """Whether from every state a row that lacks mass, an end, can be reached."""
    ends = transitions.sum(axis=1) < 1.0 - 1e-12
    for _ in range(len(ends)):
        ends |= transitions @ ends > 0.0
    return bool(ends.all())


def _stay(value: object) -> float:
    stay = check.nonnegative("stay", value)
    if stay >= 1.0:
        raise ValueError(f"stay must lie in [0, 1), got {stay!r}")
    return stay
