"""First-visit sums: the twin to the bit, what must not change a bit, and how far one trajectory moves them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import climb
from reference.trajectories import first_visits, plain_sums, returns_of, unit_sums

from dpfast.kernels.first_visits import FirstVisits
from dpfast.privacy.guarantee import sqrt_up
from dpfast.statistics import (
    ReturnGrid,
    Trajectories,
    every_visit_returns,
    first_visit_returns,
    return_range,
    smooth_sensitivity,
)

RANGE = (-1.0, 2.5)


def random_trajectories(rng, n=60, most=30, n_states=9, state_dtype=np.int64, reward_dtype=np.float64):
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, n))])
    states = rng.integers(0, n_states, offsets[-1]).astype(state_dtype)
    return Trajectories(states, rng.normal(size=offsets[-1]).astype(reward_dtype), offsets, n_states)


def sums_of(kernel, n_states):
    units, counts = np.zeros(n_states, np.int64), np.zeros(n_states, np.int64)
    kernel.add_to(units, counts)
    return np.column_stack([units, counts])


def assert_is_twin(returns, trajectories, gamma, horizon=None, lag=0):
    units, counts = unit_sums(trajectories, gamma, returns.grid, horizon, lag)
    assert returns.units.tolist() == units
    assert returns.counts.tolist() == counts


@pytest.mark.parametrize("state_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reward_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(("gamma", "horizon"), [(0.9, None), (1.0, 12), (0.3, 1), (0.99, 1000)])
def test_equals_the_twin(state_dtype, reward_dtype, n_threads, gamma, horizon):
    rng = np.random.default_rng(5)
    trajectories = random_trajectories(rng, state_dtype=state_dtype, reward_dtype=reward_dtype)
    found = first_visit_returns(trajectories, gamma, return_range=RANGE, horizon=horizon, n_threads=n_threads)
    assert_is_twin(found, trajectories, gamma, horizon)
    assert found.n_trajectories == 60


@pytest.mark.parametrize("lengths", [[1], [1] * 9000, [3000, 1, 9000, 2], [20_000], [70_000, 5, 66_000, 1, 1]], ids=len)
@pytest.mark.parametrize("horizon", [None, 1, 500, 10_000])
def test_batches_of_all_lengths_equal_the_twin(lengths, horizon):
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    trajectories = Trajectories(rng.integers(0, 50, offsets[-1]), rng.random(offsets[-1]), offsets, 50)
    found = first_visit_returns(trajectories, 0.95, return_range=(0.0, 15.0), horizon=horizon)
    assert_is_twin(found, trajectories, 0.95, horizon)


def test_threads_order_and_splits_change_no_bit():
    rng = np.random.default_rng(2)
    trajectories = random_trajectories(rng, n=60_000, most=10, n_states=300)
    options = {"return_range": RANGE}
    expected = first_visit_returns(trajectories, 0.9, **options, n_threads=1)
    for n_threads in (2, 3, 7):
        assert first_visit_returns(trajectories, 0.9, **options, n_threads=n_threads) == expected
    shuffled = trajectories[rng.permutation(len(trajectories))]
    assert first_visit_returns(shuffled, 0.9, **options, n_threads=2) == expected
    blocks = (shuffled[a:b] for a, b in [(0, 1), (1, 30_000), (30_000, 60_000)])
    assert first_visit_returns(blocks, 0.9, **options) == expected
    other = first_visit_returns(trajectories[:1], 0.9, **options)
    assert other + expected == expected + other != expected


def test_stamps_begin_again_before_they_run_out():
    kernel = FirstVisits(2, 0.5, 100, 2, scale=1.0, largest=10.0)
    states, rewards, offsets = np.array([0, 1, 0]), np.array([4.0, 2.0, 8.0]), np.array([0, 2, 3])
    kernel.add(states, rewards, offsets, 0, 2)
    kernel.use_stamps_up_to((1 << 31) - 2)
    for _ in range(3):
        kernel.add(states, rewards, offsets, 0, 2)
    np.testing.assert_array_equal(sums_of(kernel, 2), [[4 * (5 + 8), 8], [8, 4]])


@pytest.mark.parametrize("lengths", [[1] * 9000, [3, 1, 9, 2, 12, 30] * 50, [3000, 1, 9000, 2]], ids=len)
@pytest.mark.parametrize(("horizon", "lag"), [(12, 5), (12, 11), (500, 1), (5000, 3000), (3, 1), (3, 0)])
def test_visits_within_the_lag_of_the_horizon_do_not_count(lengths, horizon, lag):
    rng = np.random.default_rng(8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    trajectories = Trajectories(rng.integers(0, 9, offsets[-1]), rng.random(offsets[-1]), offsets, 9)
    options = {"horizon": horizon, "lag": lag}
    found = first_visit_returns(trajectories, 0.95, return_range=(0.0, 15.0), **options)
    assert_is_twin(found, trajectories, 0.95, **options)
    sums, counts = plain_sums(trajectories, 0.95, **options)
    plain = first_visit_returns(trajectories, 0.95, **options)
    np.testing.assert_array_equal(plain.sums, sums)
    np.testing.assert_array_equal(plain.counts, counts)


@pytest.mark.parametrize("seed", range(5))
def test_whether_a_visit_counts_depends_on_what_was_before_it_alone(seed):
    """Whatever comes after a step, the visits up to it that count are the same."""
    rng = np.random.default_rng(seed)
    states, horizon, lag = rng.integers(0, 9, 12), 9, 4
    for stop in range(1, 12):
        one, other = states.copy(), states.copy()
        other[stop:] = rng.integers(0, 9, 12 - stop)
        seen = []
        for walk, length in ((one, 12), (other, 12), (one, stop)):
            options = {"horizon": horizon, "lag": lag}
            counts = first_visit_returns(
                Trajectories(walk[:length], rng.random(length), [0, length], 9), 0.9, **options
            ).counts
            before = np.unique(walk[: min(stop, horizon - lag)])
            seen.append(counts[before].tolist())
        assert seen[0] == seen[1] == seen[2] == [1] * len(seen[0])


@pytest.mark.parametrize("horizon", [None, 7])
def test_plain_sums(horizon):
    trajectories = random_trajectories(np.random.default_rng(3))
    sums, counts = plain_sums(trajectories, 0.9, horizon)
    found = first_visit_returns(trajectories, 0.9, horizon=horizon)
    np.testing.assert_array_equal(found.sums, sums)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.means(), np.where(counts > 0, sums / np.maximum(counts, 1), 0.0))
    for found, expected in zip(
        every_visit_returns(trajectories, 0.9, horizon=horizon),
        plain_sums(trajectories, 0.9, horizon, every=True),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=60)
@given(
    low=st.floats(-1e3, 1e3),
    width=st.floats(1e-3, 1e5),
    n=st.integers(1, 30),
    seed=st.integers(0, 2**31),
)
def test_the_grid_keeps_within_the_range_and_means_within_their_error(low, width, n, seed):
    rng = np.random.default_rng(seed)
    grid = ReturnGrid.for_range(low, low + width)
    unit = Fraction(1, 2) ** grid.exponent if grid.exponent >= 0 else Fraction(2) ** -grid.exponent
    exact_width = Fraction(grid.high) - Fraction(grid.low)
    assert 0 <= exact_width - grid.largest * unit < unit
    assert 1 << 30 <= grid.largest <= 1 << 31
    assert Fraction(grid.width) == grid.largest * unit
    rewards = rng.uniform(low - width, low + 2 * width, n)
    trajectories = Trajectories(rng.integers(0, 3, n), rewards, np.arange(n + 1), 3)
    found = first_visit_returns(trajectories, 0.5, return_range=(grid.low, grid.high))
    for state, mean in enumerate(found.means(grid.top)):
        if found.counts[state] == 0:
            assert mean == grid.top
            continue
        exact = Fraction(grid.low) + int(found.units[state]) * unit / int(found.counts[state])
        assert abs(Fraction(float(mean)) - exact) <= Fraction(found.grid.mean_error)
        assert grid.low <= mean <= grid.top <= grid.high
        total = exact * int(found.counts[state])
        slack = 2.0**-51 * int(found.counts[state]) * max(abs(grid.low), abs(grid.high))
        assert abs(Fraction(float(found.sums[state])) - total) <= Fraction(slack)


def test_computed_returns_are_within_the_stated_error():
    rng = np.random.default_rng(4)
    for gamma, n in ((1.0, 400), (0.999, 400), (0.7, 50)):
        rewards = rng.choice([-1.0, 1.0], n) * rng.uniform(0.9, 1.0, n)
        exact = [Fraction(0)]
        for reward in reversed(rewards):
            exact.append(Fraction(reward) + Fraction(gamma) * exact[-1])
        reach = sum(gamma**t for t in range(n))
        errors = [abs(Fraction(f) - e) for f, e in zip(returns_of(rewards.tolist(), gamma), exact[:0:-1], strict=True)]
        assert max(errors) <= 3 * 2.0**-53 * reach**2


def test_rewards_at_the_edge_of_the_range_of_floats_are_clipped():
    trajectories = Trajectories([0, 0, 1], [1e200, 1e200, -1e200], [0, 2, 3], 2)
    found = first_visit_returns(trajectories, 1.0, return_range=RANGE, horizon=5)
    assert found.sums.tolist() == [2.5, -1.0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", ["uniform", "random"])
def test_no_neighbour_is_beyond_the_local_bound(seed, weights):
    """Replace the last trajectory by any other: means move by the width times sqrt(phi_0) at most, in w's norm.

    Counts are of either of the two sets. The parameters of a pair are rewards and, rounded, states.
    """
    rng = np.random.default_rng(seed)
    n_states, n, length, gamma = 4, 3, 4, 0.8
    w = np.full(n_states, 0.25) if weights == "uniform" else rng.random(n_states)
    others = random_trajectories(rng, n=n - 1, most=length, n_states=n_states)
    width = first_visit_returns(others, gamma, return_range=RANGE).grid.width

    def returns(parameters):
        states = np.clip(np.abs(parameters[:length]) * 2.0, 0, n_states - 1).astype(int)
        one = Trajectories(states, 4.0 * parameters[length:], [0, length], n_states)
        return first_visit_returns(Trajectories.concatenate([others, one]), gamma, return_range=RANGE)

    def change(parameters):
        first, second = returns(parameters[: 2 * length]), returns(parameters[2 * length :])
        distance = math.sqrt(np.sum(w * (first.means() - second.means()) ** 2))
        phi = min(np.sum(w / np.maximum(r.counts, 1.0) ** 2) for r in (first, second))
        return distance / (width * math.sqrt(phi))

    worst, parameters = climb(change, 4 * length, rng, restarts=3, screened=200)
    assert worst <= 1.0 + 1e-12
    # The same bound as privacy uses it: with its error, and rounded up.
    pair = returns(parameters[: 2 * length]), returns(parameters[2 * length :])
    distance = math.sqrt(np.sum(w * (pair[0].means() - pair[1].means()) ** 2))
    for one in pair:
        local = width * sqrt_up(Fraction(smooth_sensitivity(one.counts, w, 100.0)))
        assert distance <= local + 2 * one.grid.mean_error * math.sqrt(np.sum(w))


def test_the_local_bound_is_attained():
    """Every state visited by one trajectory only, the lowest return everywhere against the highest."""
    low, high = (Trajectories([0, 1, 2], [r, r, r], [0, 3], 3) for r in (-9.0, 9.0))
    means = [first_visit_returns(t, 0.5, return_range=RANGE).means() for t in (low, high)]
    weights = np.array([0.5, 0.2, 0.3])
    distance = math.sqrt(np.sum(weights * (means[1] - means[0]) ** 2))
    assert distance == pytest.approx(3.5 * math.sqrt(smooth_sensitivity([1, 1, 1], weights, 1.0)), rel=1e-12)


def test_one_trajectory_moves_integer_sums_within_the_range():
    rng = np.random.default_rng(6)
    for _ in range(50):
        trajectories = random_trajectories(rng, n=4, n_states=5)
        without, whole = (first_visit_returns(t, 0.9, return_range=RANGE) for t in (trajectories[:3], trajectories))
        visited = first_visits(trajectories[3:].states.tolist(), trajectories[3:].rewards.tolist(), 0.9)
        moved = whole.units - without.units
        assert np.all((moved >= 0) & (moved <= whole.grid.largest))
        assert np.flatnonzero(whole.counts - without.counts).tolist() == sorted(visited)
        assert np.all(moved[whole.counts == without.counts] == 0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (((0.0, 1.0), 0.5), (0.0, 2.0)),
        (((0.0, 1.0), 1.0, 7), (0.0, 7.0)),
        (((-1.0, 3.0), 0.5, 2), (-1.5, 4.5)),
        (((1.0, 3.0), 0.5, 2), (1.0, 4.5)),
        (((-3.0, -1.0), 0.5, 2), (-4.5, -1.0)),
        (((2.0, 2.0), 0.5, 1), (2.0, 2.0)),
    ],
)
def test_return_range(arguments, expected):
    assert return_range(*arguments) == pytest.approx(expected, rel=1e-15)


def test_returns_stay_within_their_range():
    rng = np.random.default_rng(7)
    for rewards in ((0.2, 1.0), (-2.0, 1.0), (-2.0, -1.0)):
        values = rng.uniform(*rewards, 40)
        low, high = return_range(rewards, 0.9, 40)
        assert all(low <= value <= high for value in returns_of(values.tolist(), 0.9))


ONE = Trajectories([0], [0.0], [0, 1], 1)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((ONE, 0.0), {}, ValueError, "gamma must lie in \\(0, 1\\]"),
        ((ONE, 1.5), {}, ValueError, "gamma must lie in \\(0, 1\\]"),
        ((ONE, math.nan), {}, ValueError, "gamma must lie in \\(0, 1\\]"),
        ((ONE, "a"), {}, TypeError, "gamma must be a real number"),
        ((ONE, 1.0), {"return_range": RANGE}, ValueError, "gamma = 1 needs a horizon"),
        ((ONE, 0.5), {"horizon": 0}, ValueError, "horizon must be at least 1"),
        ((ONE, 0.5), {"horizon": 1.5}, TypeError, "horizon must be an integer"),
        ((ONE, 0.5), {"lag": 1}, ValueError, "lag needs a horizon"),
        ((ONE, 0.5), {"lag": 3, "horizon": 3}, ValueError, "lag must be below horizon, 3, got 3"),
        ((ONE, 0.5), {"lag": -1}, ValueError, "lag must be at least 0"),
        ((ONE, 0.5), {"return_range": (1.0, 1.0)}, ValueError, "return_range must be a pair"),
        ((ONE, 0.5), {"return_range": (2.0, 1.0)}, ValueError, "finite and increasing"),
        ((ONE, 0.5), {"return_range": (0.0, math.inf)}, ValueError, "finite and increasing"),
        ((ONE, 0.5), {"return_range": (0.0, 1e150)}, ValueError, "within 1e100"),
        ((ONE, 0.5), {"return_range": 1.0}, TypeError, "return_range must be a pair"),
        ((ONE, 0.5), {"n_threads": 0}, ValueError, "n_threads"),
        (([ONE, 3], 0.5), {}, TypeError, "yield Trajectories, got int"),
        ((3, 0.5), {}, TypeError, "iterable of them, got int"),
        (([], 0.5), {}, ValueError, "at least one block"),
        (([ONE, Trajectories([0], [0.0], [0, 1], 2)], 0.5), {}, ValueError, "different numbers of states"),
    ],
)
def test_refused(arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        first_visit_returns(*arguments, **options)


def test_the_top_of_a_grid_is_the_last_float_within_it():
    # The exact end lies .75 of an ulp above the float below it.
    grid = ReturnGrid.for_range(3 * 2.0**-55, 1.0)
    end = Fraction(grid.low) + Fraction(grid.width)
    assert float(end) > end
    assert Fraction(grid.top) < end < Fraction(math.nextafter(grid.top, math.inf))


def test_means_and_sums_refused():
    found = first_visit_returns(ONE, 0.5, return_range=RANGE)
    for default in (3.0, math.nextafter(found.grid.top, math.inf), math.nextafter(RANGE[0], -math.inf)):
        with pytest.raises(ValueError, match="default must lie in the rounded range"):
            found.means(default)
    with pytest.raises(ValueError, match="differ"):
        found + first_visit_returns(ONE, 0.6, return_range=RANGE)
    with pytest.raises(TypeError, match="must be Trajectories"):
        every_visit_returns([ONE], 0.5)
    with pytest.raises(ValueError, match="differ"):
        first_visit_returns(ONE, 0.5, horizon=3) + first_visit_returns(ONE, 0.5, horizon=3, lag=1)
    huge = type(found)(found.counts, found.units, 1 << 32, found.grid, 0.5)
    with pytest.raises(OverflowError, match="64 bits"):
        huge + found


def test_the_repr_tells_only_what_is_public():
    found = first_visit_returns(ONE, 0.5, return_range=RANGE, horizon=4)
    assert repr(found) == (
        "<FirstVisitReturns of 1 states, gamma=0.5, horizon=4, return_range=(-1.0, 2.5): not private>"
    )
