"""Filled first-visit returns: equal to the definition, bounded a person, the same for any split, person by person."""

import math
from dataclasses import replace

import numpy as np
import pytest
from neighbours import climb
from reference.trajectories import episodes_of

from dpfast.statistics import ReturnGrid, Trajectories
from dpfast.statistics.filled_returns import (
    BEYOND,
    FilledReturns,
    Residuals,
)

GAMMA, HORIZON, N_STATES = 0.8, 6, 5
GRID = ReturnGrid.for_range(-1.0, 4.0)
KINDS = {
    "cut at the horizon": FilledReturns(GAMMA, HORIZON, 0, GRID, True),
    "but for a lag": FilledReturns(GAMMA, HORIZON, 2, GRID, True),
    "without a horizon": FilledReturns(GAMMA, None, 0, GRID, True),
    "without tails": FilledReturns(GAMMA, None, 0, GRID, False),
    "by last state": FilledReturns(GAMMA, HORIZON, 1, GRID, True, by_end=True),
    "by last state, without a horizon": FilledReturns(GAMMA, None, 0, GRID, True, by_end=True),
}
# A reach below the largest distance, and one that no float of 53 bits divides exactly.
RESIDUALS = Residuals(tail=1.7, center=-(GRID.largest // 7), reach=GRID.largest / 3.3)


def walks_at_random(rng, n=30, *, flags=True):
    lengths = rng.integers(1, 9, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = offsets[-1]
    truncated = rng.random(n) < 0.5 if flags else None
    return Trajectories(
        rng.integers(0, N_STATES, steps), rng.uniform(-0.4, 1.2, steps), offsets, N_STATES, truncated=truncated
    )


def visits_of(walks, returns, tail):
    """For each trajectory its first visits that count: states, filled returns within the range, discounts; by hand.

    By last state its value is all that is cut: the last reward with what comes after.
    """
    for i, (states, rewards) in enumerate(episodes_of(walks)):
        length, horizon = len(states), math.inf if returns.horizon is None else returns.horizon
        cut = length >= horizon if walks.truncated is None else bool(walks.truncated[i]) or length > horizon
        counted = int(min(length, horizon))
        seen = counted - 1 if cut and returns.by_end else counted
        found = {}
        for t in range(counted if returns.horizon is None else min(counted, returns.horizon - returns.lag)):
            collected = sum(GAMMA ** (k - t) * rewards[k] for k in range(t, seen))
            discount = GAMMA ** (seen - t) if cut and returns.has_tails else 0.0
            value = float(np.clip(collected + discount * tail, GRID.low, GRID.high))
            found.setdefault(int(states[t]), (value, discount))
        yield found


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_visits_are_what_they_are_defined_as(kind, flags):
    returns, clip = KINDS[kind], 1.6
    walks = walks_at_random(np.random.default_rng(1), flags=flags)
    rows = 4 if returns.has_tails else 3
    expected, ends = np.zeros((rows, N_STATES)), np.zeros((N_STATES if returns.by_end else 0, N_STATES))
    for found, (states, _) in zip(visits_of(walks, returns, RESIDUALS.tail), episodes_of(walks), strict=True):
        y = {
            s: np.clip((value - GRID.middle - RESIDUALS.center * GRID.unit) / (RESIDUALS.reach * GRID.unit), -1.0, 1.0)
            for s, (value, _) in found.items()
        }
        scale = min(1.0, clip / math.sqrt(sum(1.0 + one**2 for one in y.values())))
        for s, (_, discount) in found.items():
            expected[:, s] += scale * np.array([1.0, y[s], y[s] ** 2 / 4.0, discount / 4.0])[:rows]
            if returns.by_end:
                ends[states[: returns.horizon][-1], s] += scale * discount / 4.0
    found = returns.state_sums(walks, RESIDUALS, clip).to_float64()
    assert found == pytest.approx(np.vstack([expected, ends]), abs=1e-7)


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_means_are_what_they_are_defined_as(kind, flags):
    returns = KINDS[kind]
    walks = walks_at_random(np.random.default_rng(2), flags=flags)
    half = returns.half_width
    visits = [list(found.values()) for found in visits_of(walks, returns, GRID.middle)]
    expected = [len(walks), sum(np.mean([(v - GRID.middle) / half for v, _ in one]) for one in visits)]
    if returns.has_tails:
        expected.append(sum(1.0 - np.mean([d for _, d in one]) for one in visits))
    if returns.has_tails and returns.horizon is not None:
        first, last = returns.late
        late = np.zeros(2)
        for i in range(len(walks)):
            one = walks[[i]]
            steps = Trajectories(np.arange(one.n_steps), one.rewards, one.offsets, 8, truncated=one.truncated)
            every = FilledReturns(GAMMA, HORIZON, 0, GRID, True, returns.by_end)
            (found,) = visits_of(steps, every, GRID.middle)
            own = [found[t] for t in range(first, last) if t in found]
            if own:
                late += np.mean([(v - GRID.middle) / half for v, _ in own]), 1.0 - np.mean([d for _, d in own])
        expected += late.tolist()
    assert returns.return_means(walks, with_count=True).to_float64() == pytest.approx(expected, abs=1e-6)
    assert len(returns.return_means(walks, with_count=False).to_float64()) == returns.n_means


@pytest.mark.parametrize("kind", KINDS)
def test_counts_put_each_person_in_one_bin(kind):
    returns = KINDS[kind]
    walks = walks_at_random(np.random.default_rng(3))
    sizes = [len(found) for found in visits_of(walks, returns, 0.0)]
    counts = returns.visit_counts(walks, np.array([1, 2, 4])).to_float64()[0]
    assert counts.tolist() == [
        sizes.count(1), sizes.count(2), len(sizes) - sizes.count(1) - sizes.count(2)
    ]  # fmt: skip
    farthest = [
        max(abs(value - GRID.middle) / GRID.unit for value, _ in found.values())
        for found in visits_of(walks, returns, 1.0)
    ]
    edges = np.quantile(farthest, [0.3, 0.6, 0.9]) + 0.5
    counts = returns.distance_counts(walks, 1.0, 0, edges).to_float64()[0]
    assert counts.tolist() == [9.0, 9.0, 12.0] + [0.0] * (len(BEYOND) + 1)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_people_beyond_the_range_are_counted_by_how_far_whatever_their_tails_are_worth(kind, sign):
    """Half of the range is 2.5 wide: one return each beyond an end, or one that only a tail takes there."""
    returns = KINDS[kind]
    end = GRID.high if sign > 0.0 else GRID.low
    far = [0.0, 0.1, 0.3, 1.5, 5.0, 1e12]
    rewards = [end + sign * 2.5 * one for one in far]
    walks = Trajectories(np.zeros(6, int), rewards, np.arange(7), N_STATES, truncated=np.zeros(6, bool))
    edges = np.array([1.0]) * GRID.largest
    tail = GRID.high if sign > 0.0 else GRID.low
    assert returns.distance_counts(walks, tail, 0, edges).to_float64()[0].tolist() == [1.0, 1.0, 1.0, 1.0, 2.0]
    if returns.has_tails:
        # They went on: the tail adds a discount of .8 times an end, and may be worth the other one; or is all there is.
        cut = Trajectories(np.zeros(6, int), rewards, np.arange(7), N_STATES, truncated=np.ones(6, bool))
        least = [sign * (reward + GAMMA * (GRID.low if sign > 0.0 else GRID.high) - end) / 2.5 for reward in rewards]
        beyond = np.bincount(np.searchsorted(BEYOND, [one for one in least if one > 0.0]), minlength=4)
        expected = [float(sum(one <= 0.0 for one in least)), *beyond.astype(float)]
        expected = [6.0, 0.0, 0.0, 0.0, 0.0] if returns.by_end else expected
        assert returns.distance_counts(cut, tail, 0, edges).to_float64()[0].tolist() == expected


def test_ranges_at_the_ends_of_floats_have_a_wider_grid_too():
    for limits in ((-1e100, 1e100), (9e99, 1e100), (0.0, 1e-100)):
        wide = FilledReturns(GAMMA, None, 0, ReturnGrid.for_range(*limits), False).wide().grid
        assert wide.low <= limits[0] < limits[1] <= wide.high


def one_walk(parameters, n_steps):
    """A trajectory of as many states as steps, in order, and any rewards."""
    truncated = [bool(parameters[-1] > 0.0)]
    return Trajectories(np.arange(n_steps), 3.0 * parameters[:n_steps], [0, n_steps], N_STATES, truncated=truncated)


@pytest.mark.parametrize("clip", [0.7, 10.0])
@pytest.mark.parametrize("kind", KINDS)
def test_no_person_adds_more_than_the_bound_and_no_two_point_apart(kind, clip):
    returns = KINDS[kind]
    most = N_STATES if returns.horizon is None else min(returns.horizon - returns.lag, N_STATES)
    bound = returns.state_sum_bound(clip, most)
    rng = np.random.default_rng(0)

    def part(parameters):
        return returns.state_sums(one_walk(parameters, N_STATES), RESIDUALS, clip).to_float64()

    def alone(parameters):
        return float(np.linalg.norm(part(parameters)))

    def replaced(parameters):
        return float(np.linalg.norm(part(parameters[:6]) - part(parameters[6:])))

    assert climb(alone, 6, rng, restarts=1, screened=20)[0] <= bound
    assert climb(replaced, 12, rng, restarts=1, screened=20)[0] <= math.sqrt(2.0) * bound
    for parameters in rng.normal(size=(60, 6)) * rng.choice([0.1, 1.0, 10.0], (60, 1)):
        counts, sums, *others = part(parameters)
        assert np.all(np.abs(sums) <= counts)
        assert all(np.all(one >= 0.0) for one in others)


def test_the_bound_of_sums_is_attained():
    """All returns are as far as they may be; or a trajectory of one step is cut, so that all its value is a tail."""
    returns = FilledReturns(1.0 - 1e-9, 1, 0, GRID, True)
    at_tail = Residuals(tail=GRID.middle, center=0, reach=float(GRID.largest))
    cut = Trajectories([0], [0.0], [0, 1], 1, truncated=[True])
    for each in (returns, replace(returns, by_end=True)):
        assert np.linalg.norm(each.state_sums(cut, at_tail, 0.5).to_float64()) == pytest.approx(
            each.state_sum_bound(0.5, 1), rel=1e-6
        )
    whole = KINDS["without tails"]
    far = Residuals(tail=0.0, center=0, reach=float(whole.half))
    ends = Trajectories([0], [GRID.high], [0, 1], 1)
    assert np.linalg.norm(whole.state_sums(ends, far, 0.5).to_float64()) == pytest.approx(
        whole.state_sum_bound(0.5, 1), rel=1e-6
    )


def test_rounding_never_makes_a_return_larger_than_its_visit():
    """Clips so small that a part is a few units, and returns at either end."""
    returns, far = KINDS["without tails"], Residuals(0.0, 0, KINDS["without tails"].half * 1.0)
    for clip in np.random.default_rng(0).uniform(0.5, 9.5, 60) * 2.0**-30:
        for value in (GRID.high, GRID.low, 3.999999):
            walks = Trajectories(np.zeros(1, int), [value], [0, 1], 1)
            counts, sums, squares = returns.state_sums(walks, far, float(clip)).to_float64()[:, 0]
            assert abs(sums) <= counts
            assert math.hypot(counts, sums, squares) <= returns.state_sum_bound(float(clip), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_means_of_a_person_are_within_one(kind):
    returns, rng = KINDS[kind], np.random.default_rng(0)
    ends = [np.full(9, 1e150), np.full(9, -1e150)]
    for values in [*ends, *(rng.normal(size=(60, 9)) * rng.choice([0.1, 3.0, 1e9], (60, 1)))]:
        n_steps = int(rng.integers(1, 9))
        walk = Trajectories(
            rng.integers(0, N_STATES, n_steps), values[:n_steps], [0, n_steps], N_STATES, truncated=[values[8] > 0]
        )
        found = returns.return_means(walk, with_count=True)
        assert found.integer(0) == 1 << 30
        for i in range(1, found.shape[0]):
            least = -(1 << 30) if i % 2 else 0
            assert least <= found.integer(i) <= 1 << 30


def every_sum(walks, returns):
    yield returns.return_means(walks, with_count=True)
    yield returns.visit_counts(walks, np.array([1, 2, 4]))
    yield returns.distance_counts(walks, 1.7, RESIDUALS.center, np.array([1e8, 1e9, 4e9]))
    yield returns.state_sums(walks, RESIDUALS, 1.3)


def integers(sums):
    return [[one.integer(index) for index in np.ndindex(one.shape)] for one in sums]


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_people_add_up_to_the_bit_for_any_split_and_order(kind, flags):
    returns, walks = KINDS[kind], walks_at_random(np.random.default_rng(4), flags=flags)
    whole = integers(every_sum(walks, returns))
    assert integers(every_sum([walks[20:], walks[:20]], returns)) == whole
    assert integers(every_sum(walks[np.arange(30)[::-1]], returns)) == whole
    alone = [integers(every_sum(walks[[i]], returns)) for i in range(30)]
    assert [[sum(column) for column in zip(*kinds, strict=True)] for kinds in zip(*alone, strict=True)] == whole


def test_longer_chunks_of_many_states_change_nothing():
    """As many states as let a chunk hold more steps than usual."""
    rng = np.random.default_rng(5)
    returns = KINDS["cut at the horizon"]
    walks = Trajectories(rng.integers(0, 90_000, 80_000), rng.random(80_000), np.arange(0, 80_001, 8), 90_000)
    whole = returns.state_sums(walks, RESIDUALS, 1.3)
    halves = returns.state_sums([walks[:5_000], walks[5_000:]], RESIDUALS, 1.3)
    assert np.array_equal(whole.low, halves.low)


def test_a_flag_says_who_goes_on():
    """Of one step of reward 1: cut it is worth 1 + gamma tail, ended 1."""
    returns = FilledReturns(0.5, 1, 0, GRID, True)
    flat = Residuals(tail=2.0, center=0, reach=float(returns.half))
    for truncated, value in ((None, 2.0), ([True], 2.0), ([False], 1.0)):
        walk = Trajectories([0], [1.0], [0, 1], 1, truncated=truncated)
        counts, sums, *_ = returns.state_sums(walk, flat, 9.0).to_float64()[:, 0]
        assert sums / counts * returns.half_width + GRID.middle == pytest.approx(value, abs=1e-8)
    # One that is longer than the horizon was cut there, whatever it did later.
    longer = Trajectories([0, 0], [1.0, 0.0], [0, 2], 1, truncated=[False])
    counts, sums, *_ = returns.state_sums(longer, flat, 9.0).to_float64()[:, 0]
    assert sums / counts * returns.half_width + GRID.middle == pytest.approx(2.0, abs=1e-8)


def test_blocks_must_agree():
    returns = KINDS["cut at the horizon"]
    rng = np.random.default_rng(6)
    with pytest.raises(ValueError, match="blocks must all say which trajectories were truncated, or none of them"):
        returns.visit_counts([walks_at_random(rng), walks_at_random(rng, flags=False)], np.array([9]))
    with pytest.raises(ValueError, match="blocks are over different numbers of states"):
        returns.visit_counts([Trajectories([0], [0.0], [0, 1], 1), Trajectories([0], [0.0], [0, 1], 2)], np.array([9]))
    with pytest.raises(ValueError, match="trajectories must hold at least one block"):
        returns.visit_counts([], np.array([9]))


def test_late_steps_are_the_third_quarter_of_the_horizon_and_never_none():
    late = [FilledReturns(GAMMA, horizon, 0, GRID, True).late for horizon in (1, 2, 3, 8, 100)]
    assert late == [(0, 1), (1, 2), (1, 2), (4, 6), (50, 75)]
