"""Sufficient statistics: the twin, the sum over people it stands for, and how far one trajectory moves it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from neighbours import climb
from reference.trajectories import diagonal_moments, episodes_of, first_visits, to_unit

from dpfast.privacy import MomentScales, block_moment_mu
from dpfast.privacy.block_moments import VisitLimits, visit_moment_mu
from dpfast.statistics import ReturnGrid, Trajectories, first_visit_returns, gram, sufficient_statistics
from dpfast.statistics.visits import check_most_visited

RANGE = (-1.0, 2.5)
HORIZON, N_STATES = 6, 5
WEIGHTS = np.array([0.2, 0.05, 1.0, 0.3, 0.7])
OPTIONS = {"return_range": RANGE, "horizon": HORIZON, "weights": WEIGHTS}
TIGHT = {"bound_xx": 0.8, "bound_xy": 1.1}
BOUNDS = [{}, {"bound_xx": 0.8}, {"bound_xy": 1.1}, TIGHT, {"bound_xx": 1e-3}]


def random_trajectories(seed, n=40, most=9):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, n))])
    return Trajectories(rng.integers(0, N_STATES, offsets[-1]), 2 * rng.normal(size=offsets[-1]), offsets, N_STATES)


def features_of(kind):
    rng = np.random.default_rng(9)
    return {
        None: None,
        "signed": rng.normal(size=(N_STATES, 3)),
        "nonnegative": rng.random((N_STATES, 3)),
        "states": np.eye(N_STATES),
    }[kind]


def exact(fixed):
    unit = Fraction(2) ** fixed.exponent
    return [fixed.integer(index) * unit for index in np.ndindex(fixed.shape)]


def squared_norm(fixed):
    return sum(x * x for x in exact(fixed))


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_diagonal_sums_equal_the_twin(bounds):
    trajectories = random_trajectories(0)
    found = sufficient_statistics(trajectories, 0.9, **OPTIONS, **bounds)
    grid = ReturnGrid.for_range(*RANGE)
    blocks = diagonal_moments(trajectories, 0.9, grid, WEIGHTS, HORIZON, bounds.get("bound_xx"), bounds.get("bound_xy"))
    n, largest = len(trajectories), float(WEIGHTS.max())
    for sums, place, unit in ((found.xx, 0, 2.0**-30), (found.xy, 1, 2.0**-30 * 3.5)):
        expected = np.sum([block[place] for block in blocks], axis=0)
        np.testing.assert_allclose(sums, expected, atol=n * unit * largest, rtol=1e-9)
    assert found.n_trajectories == n
    assert found.origin == -1.0


def test_unclipped_diagonals_are_the_counts_times_the_weights():
    trajectories = random_trajectories(1)
    found = sufficient_statistics(trajectories, 0.9, **OPTIONS)
    returns = first_visit_returns(trajectories, 0.9, return_range=RANGE, horizon=HORIZON)
    grid = Fraction(2) ** found.exact_xx.exponent
    units = [round(Fraction(float(w)) / grid) * grid for w in WEIGHTS]
    assert exact(found.exact_xx) == [int(c) * u for c, u in zip(returns.counts, units, strict=True)]
    np.testing.assert_allclose(found.xy, WEIGHTS * (returns.sums + returns.counts), atol=1e-6)


@pytest.mark.parametrize("kind", ["signed", "states"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_featured_sums_are_those_of_people_with_a_row_a_visit(kind, bounds):
    trajectories, phi = random_trajectories(2), features_of(kind)
    found = sufficient_statistics(trajectories, 0.9, features=phi, **OPTIONS, **bounds)
    grid = ReturnGrid.for_range(*RANGE)
    rows, outcomes, groups = [], [], []
    for j, (states, rewards) in enumerate(episodes_of(trajectories)):
        for state, value in first_visits(states, rewards, 0.9, HORIZON).items():
            root = np.sqrt(WEIGHTS[state])
            rows.append(root * phi[state])
            outcomes.append(root * grid.unit * to_unit(value, grid))
            groups.append(j)
    bound_x = np.sqrt(np.max(WEIGHTS * np.sum(phi**2, axis=1))) * (1 + 2.0**-30)
    bound_y = np.sqrt(WEIGHTS.max()) * grid.width * (1 + 2.0**-30)
    people = gram(
        np.array(rows), np.array(outcomes), bound_x=bound_x, bound_y=bound_y, groups=groups, max_rows=N_STATES, **bounds
    )
    np.testing.assert_allclose(found.xx, people.xx, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.xy, people.xy[:, 0], rtol=1e-6, atol=1e-6)
    if len(bounds) == 2:
        assert found.exact_xx == people.exact_xx


@pytest.mark.parametrize("bounds", [{}, TIGHT], ids=str)
def test_one_feature_a_state_agrees_with_the_diagonal(bounds):
    trajectories = random_trajectories(3)
    diagonal = sufficient_statistics(trajectories, 0.9, **OPTIONS, **bounds)
    full = sufficient_statistics(trajectories, 0.9, features=np.eye(N_STATES), **OPTIONS, **bounds)
    np.testing.assert_allclose(np.diag(full.xx), diagonal.xx, rtol=1e-5)
    np.testing.assert_array_equal(full.xx - np.diag(np.diag(full.xx)), 0.0)
    np.testing.assert_allclose(full.xy, diagonal.xy, rtol=1e-5)
    assert diagonal.bounds.xx <= full.bounds.xx


@pytest.mark.parametrize("kind", [None, "signed"])
@pytest.mark.parametrize("bounds", [{}, TIGHT], ids=str)
def test_threads_order_and_blocks_change_no_bit(kind, bounds):
    trajectories, phi = random_trajectories(4, n=300), features_of(kind)
    options = OPTIONS | bounds | {"features": phi}
    expected = sufficient_statistics(trajectories, 0.9, **options, n_threads=1)
    shuffled = trajectories[np.random.default_rng(0).permutation(300)]
    for other, n_threads in ((shuffled, 2), ([shuffled[:1], shuffled[1:200], shuffled[200:]], 1)):
        found = sufficient_statistics(other, 0.9, **options, n_threads=n_threads)
        assert found.exact_xx == expected.exact_xx
        assert found.exact_xy == expected.exact_xy
        assert (found.n_trajectories, found.bounds) == (300, expected.bounds)


@pytest.mark.parametrize("least", [0.0, -0.0, -1e-3])
def test_features_are_nonnegative_if_none_is_below_zero(least):
    phi = np.array([[least, 0.5], *np.eye(2), *np.eye(2)])
    found = sufficient_statistics(random_trajectories(0), 0.9, features=phi, **OPTIONS)
    assert found.public.nonnegative == (least == 0.0)


@pytest.mark.parametrize("kind", [None, "signed", "nonnegative"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_every_trajectory_is_within_its_bounds(kind, bounds):
    trajectories, phi = random_trajectories(5), features_of(kind)
    worst = 0.0
    for j in range(len(trajectories)):
        one = sufficient_statistics(trajectories[j : j + 1], 0.9, features=phi, **OPTIONS, **bounds)
        assert squared_norm(one.exact_xx) <= Fraction(one.bounds.xx) ** 2
        assert squared_norm(one.exact_xy) <= Fraction(one.bounds.xy) ** 2
        assert one.public.nonnegative == (kind != "signed")
        worst = max(
            worst,
            math.sqrt(squared_norm(one.exact_xx)) / one.bounds.xx,
            math.sqrt(squared_norm(one.exact_xy)) / one.bounds.xy,
        )
    if bounds:
        assert worst > 0.99
    for name, declared in bounds.items():
        assert getattr(one.bounds, name[6:]) <= declared * (1 + 2e-4)


def test_most_visits_bound_what_is_not_declared():
    """Two states at most: the two heaviest, not all."""
    short = sufficient_statistics(random_trajectories(6), 0.9, **OPTIONS | {"horizon": 2})
    assert short.bounds.xx == pytest.approx(math.hypot(1.0, 0.7), rel=1e-8)
    assert short.bounds.xy == pytest.approx(3.5 * math.hypot(1.0, 0.7), rel=1e-8)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize(("horizon", "lag"), [(4, 1), (4, 2), (9, 4), (5, 4)])
def test_no_more_states_count_than_there_are_steps_before_the_lag(centered, horizon, lag):
    """One who sees another state at every step, and so as many as can be."""
    walk = Trajectories(np.arange(N_STATES), np.full(N_STATES, 9.0), [0, N_STATES], N_STATES)
    options = CENTERED | {"horizon": horizon, "lag": lag, "centered": centered}
    found = sufficient_statistics(walk, 1.0, **options)
    visited = np.count_nonzero(found.xx)
    assert visited == min(N_STATES, horizon - lag)
    if centered:
        assert found.bounds.most_visited == visited
    else:
        assert math.sqrt(squared_norm(found.exact_xx)) == pytest.approx(found.bounds.xx, rel=1e-9)


@pytest.mark.parametrize("kind", [None, "signed", "nonnegative"])
@pytest.mark.parametrize("seed", range(3))
def test_no_neighbour_is_beyond_the_joint_bound(kind, seed):
    phi, length = features_of(kind), 3
    scales = MomentScales(xx=1.0, xy=2.0)
    options = OPTIONS | TIGHT | {"features": phi, "horizon": length}

    def one(parameters):
        states = np.clip(np.abs(parameters[:length]) * 2.0, 0, N_STATES - 1).astype(int)
        return sufficient_statistics(
            Trajectories(states, 4.0 * parameters[length:], [0, length], N_STATES), 0.8, **options
        )

    def change(parameters):
        first, second = one(parameters[: 2 * length]), one(parameters[2 * length :])
        moved_xx, moved_xy = first.xx - second.xx, first.xy - second.xy
        return math.sqrt(np.sum(moved_xx**2) / scales.xx**2 + np.sum(moved_xy**2) / scales.xy**2)

    worst, parameters = climb(change, 4 * length, np.random.default_rng(seed), restarts=2, screened=150)
    some = one(parameters[: 2 * length])
    mu = block_moment_mu(scales, some.bounds, adjacency="replace_one", nonnegative=some.public.nonnegative)
    assert 0.5 * mu <= worst <= mu


CENTERED = {"return_range": RANGE, "horizon": HORIZON, "weights": np.full(N_STATES, 0.3), "centered": True}


def test_centered_sums_are_those_about_the_middle_of_the_range():
    trajectories = random_trajectories(7)
    found = sufficient_statistics(trajectories, 0.9, **CENTERED)
    returns = first_visit_returns(trajectories, 0.9, return_range=RANGE, horizon=HORIZON)
    assert found.origin == pytest.approx(0.75, abs=1e-8)
    np.testing.assert_allclose(found.xx, 0.3 * returns.counts, rtol=1e-8)
    np.testing.assert_allclose(found.xy, 0.3 * (returns.sums - found.origin * returns.counts), atol=1e-7)
    assert not found.public.nonnegative


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.0 / 7.0, 1e-5])
@pytest.mark.parametrize("limits", [RANGE, (0.0, 1.0), (-1.0 / 3.0, 0.1), (-200.0, 0.0)])
def test_no_entry_of_a_centered_trajectory_is_beyond_its_limits_and_the_ends_reach_them(weight, limits):
    options = {"return_range": limits, "weights": np.full(2, weight), "horizon": 1, "centered": True}
    low, high = limits
    returns = np.concatenate([[low - 9.0, high + 9.0], np.random.default_rng(0).uniform(low, high, 50)])
    entries = []
    for value in returns:
        one = sufficient_statistics(Trajectories([0], [value], [0, 1], 2), 0.5, **options)
        assert exact(one.exact_xx) == [Fraction(one.public.block.visit), 0]
        entries.append(exact(one.exact_xy)[0])
    block = one.public.block
    assert (min(entries), max(entries)) == (entries[0], entries[1])
    assert float(entries[1] - entries[0]) == block.width >= entries[1] - entries[0]
    assert float(max(entries[1], -entries[0])) == block.reach


@pytest.mark.parametrize("horizon", [1, 3, 5])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_no_neighbour_is_beyond_the_centered_bound_which_is_attained(horizon, adjacency):
    """Random pairs never are; of those with returns at an end some are at it, whichever corner is the worst."""
    rng = np.random.default_rng(horizon)
    options = CENTERED | {"horizon": horizon}
    pairs = []
    for _ in range(400):
        states = [rng.permutation(N_STATES)[: rng.integers(1, horizon + 1)] for _ in range(2)]
        # A reward for which the returns, undiscounted, are as given.
        ends = rng.choice([-1.0, 2.5], 2) if rng.random() < 0.7 else rng.uniform(-3, 3, 2)
        pair = []
        for visited, end in zip(states, ends, strict=True):
            rewards = np.zeros(len(visited))
            rewards[-1] = end
            pair.append(
                sufficient_statistics(Trajectories(visited, rewards, [0, len(visited)], N_STATES), 1.0, **options)
            )
        pairs.append(pair)
    limits = pairs[0][0].bounds
    assert isinstance(limits, VisitLimits)
    for xx in (0.05, 0.3, 5.0):
        scales = MomentScales(xx=xx, xy=1.0)
        mu = visit_moment_mu(scales, limits, adjacency=adjacency)
        worst = 0.0
        for one, other in pairs:
            away = (0.0, 0.0) if adjacency == "add_remove" else (other.xx, other.xy)
            moved = math.hypot(np.linalg.norm(one.xx - away[0]) / xx, np.linalg.norm(one.xy - away[1]))
            worst = max(worst, moved)
        assert mu * (1.0 - 1e-9) < worst * (1.0 + 1e-6)
        assert worst <= mu


def test_the_joint_bound_is_attained():
    """Trajectories of disjoint states with the largest returns: both sums are orthogonal."""
    pair = [Trajectories([s], [9.0], [0, 1], 2) for s in (0, 1)]
    first, second = (sufficient_statistics(t, 0.5, return_range=RANGE, horizon=1) for t in pair)
    scales = MomentScales(xx=1.0, xy=2.0)
    moved = math.sqrt(np.sum((first.xx - second.xx) ** 2) + np.sum((first.xy - second.xy) ** 2) / 4.0)
    mu = block_moment_mu(scales, first.bounds, adjacency="replace_one", nonnegative=True)
    assert moved == pytest.approx(mu, rel=1e-9)


def test_the_joint_bound_of_signed_features_is_attained():
    """Trajectories of one state with the largest return, features at the angle at which both sums move most."""
    phi, width = [[1.0, 0.0], [-0.5, math.sqrt(0.75)]], RANGE[1] - RANGE[0]
    options = {"return_range": RANGE, "horizon": 1, "features": phi}
    first, second = (sufficient_statistics(Trajectories([s], [9.0], [0, 1], 2), 0.5, **options) for s in (0, 1))
    moved = math.hypot(np.linalg.norm(first.xx - second.xx), np.linalg.norm(first.xy - second.xy) / width)
    assert moved == pytest.approx(math.sqrt(4.5), rel=1e-5)
    scales = MomentScales(xx=1.0, xy=width)
    mu = block_moment_mu(scales, first.bounds, adjacency="replace_one", nonnegative=first.public.nonnegative)
    assert moved <= mu < moved * (1.0 + 1e-5)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"gamma": 1.0}, ValueError, "gamma = 1 needs a horizon"),
        ({"return_range": (1.0, 0.0)}, ValueError, "return_range"),
        ({"weights": [1.0, 2.0]}, ValueError, "weights must be a 1-D array of real numbers"),
        ({"weights": [-1.0, 1, 1, 1, 1]}, ValueError, "weights must be at least 0"),
        ({"weights": [0.0] * 5}, ValueError, "not all 0"),
        ({"weights": [math.nan, 1, 1, 1, 1]}, ValueError, "weights must be finite"),
        ({"features": np.ones((4, 2))}, ValueError, "features must be a 2-D array"),
        ({"features": np.ones(5)}, ValueError, "features must be a 2-D array"),
        ({"features": np.full((5, 2), math.inf)}, ValueError, "features must be finite"),
        ({"features": np.zeros((5, 2))}, ValueError, "features must not all be 0"),
        ({"bound_xx": 0.0}, ValueError, "bound_xx must be positive"),
        ({"bound_xy": math.inf}, ValueError, "bound_xy must be positive"),
        ({"centered": True, "features": np.eye(5)}, ValueError, "centered sums have no features"),
        ({"centered": True, "bound_xx": 1.0}, ValueError, "centered sums have no features and no bounds"),
        ({"centered": True, "weights": [1.0, 2, 1, 1, 1]}, ValueError, "centered sums need equal weights"),
        ({"centered": 1}, TypeError, "centered must be"),
        ({"trajectories": []}, ValueError, "at least one block"),
        ({"trajectories": 3}, TypeError, "Trajectories"),
        (
            {"trajectories": [random_trajectories(0), Trajectories([0], [0.0], [0, 1], 2)]},
            ValueError,
            "different numbers of states: 5 and 2",
        ),
        ({"trajectories": Trajectories([0], [0.0], [0, 1], 1 << 21)}, ValueError, "horizon must be given"),
        ({"n_threads": -1}, ValueError, "n_threads"),
    ],
)
def test_refused(changes, kind, message):
    arguments = {"trajectories": random_trajectories(0), "gamma": 0.9, "return_range": RANGE} | changes
    with pytest.raises(kind, match=message):
        sufficient_statistics(**arguments)


def test_the_repr_tells_only_what_is_public():
    found = sufficient_statistics(random_trajectories(0), 0.9, features=features_of("signed"), **OPTIONS)
    assert repr(found) == "<SufficientStatistics, of 3 features: not private>"


def test_returns_that_rounding_lengthens_stay_within_their_bound():
    """One trajectory through all states with the largest return: its rounded outcomes follow from its exact moments."""
    rng, beyond = np.random.default_rng(0), 0
    walk = Trajectories(np.arange(N_STATES), np.full(N_STATES, 100.0), [0, N_STATES], N_STATES)
    for _ in range(40):
        weights = rng.uniform(0.1, 1.0, N_STATES)
        found = sufficient_statistics(
            walk, 1.0, return_range=RANGE, horizon=N_STATES, weights=weights, features=np.eye(N_STATES)
        )
        xx, xy = exact(found.exact_xx)[:: N_STATES + 1], exact(found.exact_xy)
        squared = sum(product**2 / square for square, product in zip(xx, xy, strict=True))
        assert squared <= Fraction(found.bounds.outcomes) ** 2
        beyond += squared > sum(map(Fraction, weights)) * Fraction(RANGE[1] - RANGE[0]) ** 2
    assert beyond > 5


@pytest.mark.parametrize("kind", [None, "signed"])
def test_sums_of_parts_add_up_to_those_of_all_and_only_if_alike(kind):
    trajectories, options = random_trajectories(4), {"features": features_of(kind), **OPTIONS, **TIGHT}
    whole = sufficient_statistics(trajectories, 0.9, **options)
    first, last = (sufficient_statistics(trajectories[part], 0.9, **options) for part in (slice(0, 13), slice(13, 40)))
    both = first + last
    assert (both.exact_xx, both.exact_xy) == (whole.exact_xx, whole.exact_xy)
    assert (both.n_trajectories, both.origin) == (40, whole.origin)
    with pytest.raises(TypeError):
        first + 1
    with pytest.raises(ValueError, match="differ in what was declared"):
        first + sufficient_statistics(trajectories[13:], 0.9, **options | {"bound_xx": 0.7})


def test_as_many_visits_of_one_are_accepted_as_norms_are_rounded_up_for():
    check_most_visited(2**20)
    with pytest.raises(ValueError, match="horizon must be given, and be at most 1048576"):
        check_most_visited(2**20 + 1)
