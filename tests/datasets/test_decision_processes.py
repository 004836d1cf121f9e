import math
import sys

import numpy as np
import pytest

from dpfast.datasets.decision_processes import (
    GYMNASIUM_ENVIRONMENTS,
    adjacent_pairs,
    chain_trajectories,
    chain_values,
    exploring_policy,
    gymnasium_values,
    markov_trajectories,
    table_trajectories,
    table_values,
)


def first_visit_means(data, gamma):
    """Mean first-visit return per state, step by step."""
    sums, counts = np.zeros(data.n_states), np.zeros(data.n_states)
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        value, first = 0.0, {}
        for state, reward in zip(data.states[start:stop][::-1], data.rewards[start:stop][::-1], strict=True):
            value = reward + gamma * value
            first[state] = value
        for state, value in first.items():
            sums[state] += value
            counts[state] += 1
    return sums / counts, counts


def test_chain_has_the_papers_shape():
    data = chain_trajectories(50, seed=1)
    assert data.states.dtype == np.int32
    assert data.n_states == 40
    assert data.offsets[-1] == len(data.states) == len(data.rewards)
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        states = data.states[start:stop]
        assert states[0] == 0
        assert set(np.diff(states)) <= {0, 1}
        assert np.count_nonzero(states == 39) == 1
        assert data.rewards[start:stop].sum() == data.rewards[stop - 1] == 1.0


def test_chain_stays_with_the_given_probability():
    """5 standard errors: false-reject rate 6e-7. A stay of geometric length has mean 2 and variance 2."""
    data = chain_trajectories(2000, seed=2)
    dwell = (len(data.states) - 2000) / (2000 * 39)
    assert abs(dwell - 2.0) <= 5 * math.sqrt(2 / (2000 * 39))


def test_chain_values_are_the_expected_first_visit_returns():
    """5.5 standard errors, a return having a standard deviation of at most 1/2: rate below 2e-6 for 6 means."""
    gamma, m = 0.9, 3000
    data = chain_trajectories(m, n_states=6, stay=0.3, seed=3)
    means, counts = first_visit_means(data, gamma)
    assert (counts == m).all()
    values = chain_values(gamma, n_states=6, stay=0.3)
    assert np.abs(means - values).max() <= 5.5 * 0.5 / math.sqrt(m)
    assert values == pytest.approx((gamma * 0.7 / (1 - gamma * 0.3)) ** np.arange(5, -1, -1), rel=1e-14)


def test_markov_trajectories_have_the_values_of_their_chain():
    """5.5 standard errors, returns lying in [0, 1]; a fair share of trajectories starts in each state."""
    m, transitions = 4000, 0.3 * np.eye(6) + 0.7 * np.eye(6, k=1)
    transitions[-1] = 0.0
    data = markov_trajectories(
        transitions, m, start=np.full(6, 1 / 6), horizon=10_000, rewards=[0, 0, 0, 0, 0, 1], seed=5
    )
    means, counts = first_visit_means(data, 0.9)
    assert counts[5] == m == len(data.offsets) - 1
    assert (np.abs(means - chain_values(0.9, n_states=6, stay=0.3)) <= 5.5 * 0.5 / np.sqrt(counts)).all()
    starts = np.bincount(data.states[data.offsets[:-1]], minlength=6)
    assert np.abs(starts - m / 6).max() <= 5.5 * math.sqrt(m * 5 / 36)


def test_markov_trajectories_follow_the_policy_and_stop_at_the_horizon():
    forwards, nowhere = np.eye(3, k=1), np.zeros((3, 3))
    forwards[-1, 0] = 1.0
    both = np.stack([forwards, nowhere], axis=1)
    data = markov_trajectories(both, 2, start=[0, 1, 0], horizon=5, policy=np.tile([1.0, 0.0], (3, 1)))
    assert data.states.tolist() == [1, 2, 0, 1, 2] * 2
    ended = markov_trajectories(both, 3, start=[0, 1, 0], horizon=5, policy=np.tile([0.0, 1.0], (3, 1)))
    assert ended.states.tolist() == [1, 1, 1]
    assert ended.rewards.tolist() == [0.0, 0.0, 0.0]


def test_aggregation_pairs_neighbours():
    features = adjacent_pairs(40)
    assert features.shape == (40, 20)
    assert np.array_equal(features.sum(axis=0), np.full(20, 2.0))
    assert np.array_equal(np.argmax(features, axis=1), np.arange(40) // 2)


def test_table_of_the_chain_has_the_chains_values():
    table = {s: {0: [(0.5, s, 0.0, False), (0.5, s + 1, 0.0, False)], 1: [(1.0, s, -1e6, True)]} for s in range(39)} | {
        39: {0: [(1.0, 39, 1.0, True)], 1: [(1.0, 39, 0.0, True)]}
    }
    only_first = np.tile([1.0, 0.0], (40, 1))
    assert table_values(table, 0.99, only_first) == pytest.approx(chain_values(0.99), rel=1e-12)


def test_table_values_solve_bellmans_equation():
    """A random table, by value iteration."""
    rng = np.random.default_rng(4)
    table = {
        s: {
            a: [(0.3, int(rng.integers(6)), rng.normal(), False), (0.7, int(rng.integers(6)), rng.normal(), a == 1)]
            for a in range(2)
        }
        for s in range(6)
    }
    policy = rng.dirichlet([1.0, 1.0], 6)
    values = np.zeros(6)
    for _ in range(2000):
        values = np.array(
            [
                sum(
                    policy[s, a] * q * (reward + 0.9 * (not ended) * values[t])
                    for a in range(2)
                    for q, t, reward, ended in table[s][a]
                )
                for s in range(6)
            ]
        )
    assert table_values(table, 0.9, policy) == pytest.approx(values, rel=1e-10)


def test_table_trajectories_have_the_values_of_their_table():
    """Of 20,000 that mostly end soon, mean first-visit returns: within six standard errors in each of 5 states."""
    rng = np.random.default_rng(5)
    table = {
        s: {
            a: [(0.4, int(rng.integers(5)), 1.0, False), (0.0, 0, 99.0, False), (0.6, (s + 1) % 5, float(a), a == 1)]
            for a in range(2)
        }
        for s in range(5)
    }
    policy = rng.dirichlet([1.0, 1.0], 5)
    data = table_trajectories(table, 20_000, start=np.full(5, 0.2), horizon=400, policy=policy, seed=0)
    assert 99.0 not in data.rewards
    assert np.bincount(data.states[data.offsets[:-1]]) == pytest.approx(4000, rel=0.1)
    means, counts = first_visit_means(data, 0.8)
    # A return lies in [0, 1/(1 - 0.8)], so its standard deviation is 2.5 at most.
    assert np.all(np.abs(means - table_values(table, 0.8, policy)) < 6 * 2.5 / np.sqrt(counts))
    assert np.diff(table_trajectories(table, 50, start=np.full(5, 0.2), horizon=2, seed=0).offsets).max() == 2


def test_the_exploring_policy_is_best_where_it_does_not_explore():
    """On four states against every deterministic policy."""
    rng = np.random.default_rng(6)
    table = {
        s: {a: [(1.0, int(rng.integers(4)), float(rng.normal()), bool(rng.random() < 0.3))] for a in range(2)}
        for s in range(4)
    }
    best = exploring_policy(table, 0.9, 0.0)
    assert set(best.ravel()) == {0.0, 1.0}
    for choice in np.ndindex(2, 2, 2, 2):
        assert np.all(table_values(table, 0.9, np.eye(2)[list(choice)]) <= table_values(table, 0.9, best) + 1e-8)
    assert exploring_policy(table, 0.9, 0.5) == pytest.approx(0.25 + 0.5 * best)


@pytest.mark.parametrize("name", GYMNASIUM_ENVIRONMENTS)
def test_gymnasium_values_of_a_uniform_policy(name):
    gymnasium = pytest.importorskip("gymnasium")
    values = gymnasium_values(name, 0.95)
    identifier, options = GYMNASIUM_ENVIRONMENTS[name]
    environment = gymnasium.make(identifier, **options)
    assert len(values) == environment.observation_space.n
    table = environment.unwrapped.P
    environment.close()
    for s in range(0, len(values), 7):
        backup = np.mean(
            [
                sum(q * (reward + 0.95 * (not ended) * values[t]) for q, t, reward, ended in table[s][a])
                for a in table[s]
            ]
        )
        assert backup == pytest.approx(values[s], rel=1e-10, abs=1e-14)


def test_frozen_lake_is_crossed_at_the_known_rate():
    """The chance of a uniform random walk to reach the goal, 0.0139, is in many tutorials."""
    pytest.importorskip("gymnasium")
    assert gymnasium_values("frozen_lake_4x4", 1.0)[0] == pytest.approx(0.01394, abs=5e-6)


def test_gymnasium_is_loaded_only_when_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"dpfast\[gym\]"):
        gymnasium_values("taxi", 0.9)


_LOOP = {0: {0: [(1.0, 0, 0.0, False)]}}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: chain_trajectories(0), ValueError, "m must be at least 1"),
        (lambda: chain_trajectories(1, stay=1.0), ValueError, "stay must lie in"),
        (lambda: chain_values(0.0), ValueError, "gamma"),
        (lambda: chain_values(1.01), ValueError, "gamma must lie in"),
        (lambda: adjacent_pairs(2.0), TypeError, "n_states"),
        (lambda: table_values({}, 0.9), ValueError, "table must map"),
        (lambda: table_values({1: {0: []}}, 0.9), ValueError, "table must map"),
        (lambda: table_values({0: {0: [(0.5, 0, 0.0, False)]}}, 0.9), ValueError, "must add up to 1"),
        (lambda: table_values({0: {0: [(1.0, 0, 0.0, False)]}}, 1.0), ValueError, "never reaches an end"),
        (lambda: table_values({0: {0: [(1.0, 0, 0.0, False)]}}, 0.9, [[0.5]]), ValueError, "policy must hold"),
        (lambda: table_values({0: {0: [(1.0, 0, 0.0, False)]}}, 0.9, [0.5]), ValueError, "policy must be of shape"),
        (lambda: table_trajectories(_LOOP, 1, start=[0.5], horizon=1), ValueError, "start must hold 1 probabilities"),
        (lambda: table_trajectories(_LOOP, 0, start=[1.0], horizon=1), ValueError, "m must be at least 1"),
        (lambda: exploring_policy(_LOOP, 1.0, 0.1), ValueError, "gamma must lie in"),
        (lambda: exploring_policy(_LOOP, 0.9, 1.1), ValueError, "explore in"),
        (lambda: gymnasium_values("CartPole-v1", 0.9), ValueError, "name must be"),
        (lambda: markov_trajectories(np.ones((2, 2)), 1, start=[1, 0], horizon=5), ValueError, "transitions must hold"),
        (lambda: markov_trajectories(np.eye(2), 1, start=[1, 1], horizon=5), ValueError, "start must hold"),
        (lambda: markov_trajectories(np.eye(2), 1, start=[1, 0, 0], horizon=5), ValueError, "agree on n_states"),
        (lambda: markov_trajectories(np.eye(2), 1, start=[1, 0], horizon=0), ValueError, "horizon"),
        (
            lambda: markov_trajectories(np.eye(2), 1, start=[1, 0], horizon=2, rewards=[1]),
            ValueError,
            "rewards must be",
        ),
        (
            lambda: markov_trajectories(np.eye(2), 1, start=[1, 0], horizon=2, policy=np.ones((2, 1))),
            ValueError,
            "with a policy",
        ),
    ],
)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
