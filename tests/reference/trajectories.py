"""Plain twins of what is summed over trajectories: loops over steps, fractions, every k."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def episodes_of(trajectories):
    """(states, rewards) of each trajectory, as lists."""
    edges = zip(trajectories.offsets, trajectories.offsets[1:], strict=False)
    return [(trajectories.states[a:b].tolist(), trajectories.rewards[a:b].tolist()) for a, b in edges]


def returns_of(rewards, gamma):
    """The return from each step on, in floats, by the recursion."""
    value, values = 0.0, []
    for reward in reversed(rewards):
        value = reward + gamma * value
        values.append(value)
    return values[::-1]


def first_visits(states, rewards, gamma, horizon=None, lag=0):
    """State to the return from its first visit on, of those that are first seen before the lag."""
    counted = states[: None if horizon is None else horizon - lag]
    values = returns_of(rewards[:horizon], gamma)[: len(counted)]
    found = {}
    for state, value in zip(counted, values, strict=True):
        found.setdefault(state, value)
    return found


def to_unit(value, grid):
    """The grid unit of a return: the twin's own arithmetic is that of floats, as the promise is about these."""
    unit = (value - grid.low) * 2.0**grid.exponent
    return round(Fraction(min(max(unit, 0.0), grid.largest)))


def unit_sums(trajectories, gamma, grid, horizon=None, lag=0):
    """(units, counts) of first visits, in Python integers."""
    units, counts = [0] * trajectories.n_states, [0] * trajectories.n_states
    for states, rewards in episodes_of(trajectories):
        for state, value in first_visits(states, rewards, gamma, horizon, lag).items():
            units[state] += to_unit(value, grid)
            counts[state] += 1
    return units, counts


def plain_sums(trajectories, gamma, horizon=None, lag=0, *, every=False):
    """(sums, counts) of first or of all visits, in floats, in the order of trajectories."""
    sums, counts = np.zeros(trajectories.n_states), np.zeros(trajectories.n_states, np.int64)
    for states, rewards in episodes_of(trajectories):
        if every:
            visits = zip(states[:horizon], returns_of(rewards[:horizon], gamma), strict=True)
        else:
            visits = first_visits(states, rewards, gamma, horizon, lag).items()
        for state, value in visits:
            sums[state] += value
            counts[state] += 1
    return sums, counts


def diagonal_moments(trajectories, gamma, grid, weights, horizon, bound_a, bound_b):
    """Each trajectory's vectors A and b, exact before rounding: arrays of fractions (n_states,), clipped together."""
    rho = [Fraction(float(w)) for w in weights]
    blocks = []
    for states, rewards in episodes_of(trajectories):
        a, b = [Fraction(0)] * len(rho), [Fraction(0)] * len(rho)
        for state, value in first_visits(states, rewards, gamma, horizon).items():
            a[state] = rho[state]
            b[state] = rho[state] * to_unit(value, grid) / Fraction(2) ** grid.exponent
        factor = min(1.0, over(bound_a, a), over(bound_b, b))
        blocks.append(([factor * float(x) for x in a], [factor * float(x) for x in b]))
    return blocks


def over(bound, vector):
    norm = math.sqrt(float(sum(x * x for x in vector)))
    return math.inf if bound is None or norm == 0.0 else bound / norm


def largest_over_all_k(counts, weights, beta, top=None):
    """max over k of exp(-k beta) phi_k of DP-LSW in mpmath, k by k."""
    import mpmath as mp

    best = mp.mpf(0)
    with mp.workdps(40):
        for k in range(max(max(counts), 1)):
            terms = sorted((mp.mpf(float(w)) / max(v - k, 1) ** 2 for v, w in zip(counts, weights, strict=True)))
            best = max(best, mp.exp(-k * mp.mpf(beta)) * mp.fsum(terms if top is None else terms[-top:]))
        return best


def largest_over_all_k_lsl(counts, weights, beta, m, feature_norm, ridge, top=None):
    """The same of DP-LSL."""
    import mpmath as mp

    with mp.workdps(40):
        rho = [mp.mpf(float(w)) for w in weights]
        slope = mp.mpf(feature_norm) * max(rho) / mp.sqrt(2 * mp.mpf(ridge))
        squares = sorted(r**2 for r in rho)
        constant = mp.sqrt(mp.fsum(squares if top is None else squares[-top:]))
        best = mp.mpf(0)
        for k in range(m - min(counts) + 1):
            visits = mp.fsum(r * min(v + k, m) for v, r in zip(counts, rho, strict=True))
            best = max(best, mp.exp(-k * mp.mpf(beta)) * (slope * mp.sqrt(visits) + constant) ** 2)
        return best
