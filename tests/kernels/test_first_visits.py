"""Sums of first visits: tables beyond the cache, levels of vector instructions, and what is added twice."""

import numpy as np
import pytest
from reference.trajectories import unit_sums

from dpfast.kernels.first_visits import FirstVisits
from dpfast.statistics import ReturnGrid, Trajectories

GAMMA, GRID = 0.9, ReturnGrid.for_range(-1.0, 2.0)


def walks(state_dtype, reward_dtype, n_states, n=300, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 60, n))])
    # Half of the steps in a few states, so that trajectories come back to them.
    states = np.where(rng.random(offsets[-1]) < 0.5, rng.integers(0, 9, offsets[-1]), n_states - 9) + rng.integers(
        0, 9, offsets[-1]
    )
    rewards = rng.normal(size=offsets[-1]).astype(reward_dtype)
    return Trajectories(np.minimum(states, n_states - 1).astype(state_dtype), rewards, offsets, n_states)


def kernel_of(trajectories):
    grid = {"low": GRID.low, "scale": 2.0**GRID.exponent, "largest": float(GRID.largest)}
    return FirstVisits(trajectories.n_states, GAMMA, 1 << 62, trajectories.longest, **grid)


def sums_after(kernel, trajectories, *ranges):
    for first, last in ranges:
        kernel.add(trajectories.states, trajectories.rewards, trajectories.offsets, first, last)
    units, counts = np.zeros((2, trajectories.n_states), np.int64)
    kernel.add_to(units, counts)
    return units.tolist(), counts.tolist()


@pytest.mark.parametrize("state_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reward_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_states", [20, 2048, 2049, 30_000])
def test_tables_of_any_size_equal_the_twin(state_dtype, reward_dtype, n_states):
    trajectories = walks(state_dtype, reward_dtype, n_states)
    found = sums_after(kernel_of(trajectories), trajectories, (0, len(trajectories)))
    assert found == unit_sums(trajectories, GAMMA, GRID)


@pytest.mark.parametrize("level", ["baseline", "avx2"])
def test_every_level_gives_the_same_bits(level, monkeypatch):
    trajectories = walks(np.int32, np.float64, 20)
    whole = 0, len(trajectories)
    expected = sums_after(kernel_of(trajectories), trajectories, whole)
    monkeypatch.setenv("DPFAST_CPU", level)
    assert sums_after(kernel_of(trajectories), trajectories, whole) == expected


def test_calls_add_up():
    trajectories = walks(np.int32, np.float64, 20)
    n = len(trajectories)
    expected = sums_after(kernel_of(trajectories), trajectories, (0, n))
    assert sums_after(kernel_of(trajectories), trajectories, (n - 7, n), (0, 1), (1, n - 7)) == expected
    with pytest.raises(ValueError, match="a sum and a count for each state"):
        kernel_of(trajectories).add_to(np.zeros(20, np.int64), np.zeros(19, np.int64))
