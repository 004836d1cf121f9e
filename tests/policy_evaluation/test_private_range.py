"""A private range of returns: what one person moves, its bins, which range follows, one budget for both releases."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from walks import problem

from dpfast import Ledger, PolicyEvaluation, Privacy, UtilityWarning, noise
from dpfast.policy_evaluation.evaluation import Run, VisitSolver
from dpfast.policy_evaluation.mechanism import visit_moments
from dpfast.policy_evaluation.private_range import PrivateRange, bin_edges, narrowest
from dpfast.privacy import gaussian_mu, keeps_to, split_budget
from dpfast.statistics import ReturnGrid, Trajectories, sufficient_statistics
from dpfast.statistics.visits import extreme_counts

ADJACENCIES = ("replace_one", "add_remove")
EQUAL = np.full(4, 0.25)


def mechanism(adjacency="replace_one", delta=1e-5, limits=(-100.0, 50.0), epsilon=1.0):
    run = Run(problem(None, EQUAL, limits, 4), 0.9, "values")
    return PrivateRange.calibrate(Privacy(epsilon, delta, adjacency), run, VisitSolver(None, shrinkage=False))


def random_walks(seed, n=300, scale=1.0, n_states=4):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 7, n))])
    rewards = scale * rng.normal(size=offsets[-1])
    return Trajectories(rng.integers(0, n_states, offsets[-1]), rewards, offsets, n_states)


def counted(walks, one, horizon=4, lag=1):
    grid = one.problem.grid
    found = extreme_counts(walks, 0.8, grid, one.edges, horizon=horizon, lag=lag)
    return found, np.array([[found.integer((i, j)) for j in range(found.shape[1])] for i in range(2)])


def exact_extremes(walks, grid, horizon=4, lag=1):
    """The largest and the least unit of each trajectory, by definition."""
    from reference.trajectories import episodes_of, first_visits, to_unit

    for states, rewards in episodes_of(walks):
        units = [to_unit(value, grid) for value in first_visits(states, rewards, 0.8, horizon, lag).values()]
        yield max(units), min(units)


@pytest.mark.parametrize("scale", [0.01, 1.0, 60.0])
def test_every_person_counts_once_by_the_largest_and_once_by_the_least_of_their_returns(scale):
    one, walks = mechanism(), random_walks(0, scale=scale)
    _, counts = counted(walks, one)
    expected = np.zeros_like(counts)
    for pair in exact_extremes(walks, one.problem.grid):
        for row, unit in enumerate(pair):
            (inside,) = np.flatnonzero((one.edges[:-1] <= unit) & (unit < np.append(one.edges[1:-1], np.inf)))
            expected[row, inside] += 1
    np.testing.assert_array_equal(counts, expected)
    assert counts.sum(axis=1).tolist() == [300, 300]
    halves = [counted(part, one)[1] for part in (walks[:100], walks[100:])]
    np.testing.assert_array_equal(sum(halves), counts)
    np.testing.assert_array_equal(counted([walks[100:], walks[:100]], one)[1], counts)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_neighbour_moves_the_counts_further_than_the_noise_is_for_and_some_move_them_as_far(adjacency):
    one = mechanism(adjacency)
    mu, worst = gaussian_mu(*one.counts.privacy.target), 0.0
    for seed in range(40):
        walks = random_walks(seed, n=4, scale=30.0)
        pair = (walks[:3], walks[1:]) if adjacency == "replace_one" else (walks, walks[:3])
        moved = np.linalg.norm(np.subtract(*(counted(table, one)[1] for table in pair)))
        worst = max(worst, moved / one.counts.scale)
    assert mu * (1.0 - 1e-9) < worst <= mu


@pytest.mark.parametrize(
    "limits", [(-100.0, 50.0), (0.0, 1.0), (-1743.0, -1.0), (3.0, 5.0), (-1e-90, 1e90), (0.0, 1e-90)]
)
def test_bins_are_half_octaves_about_zero_that_fill_the_range(limits):
    grid = ReturnGrid.for_range(*limits)
    edges = bin_edges(grid)
    assert (edges[0], edges[-1]) == (0, grid.largest)
    assert np.all(np.diff(edges) > 0)
    assert 2 < len(edges) < 60
    ends = grid.low + np.ldexp(edges.astype(float), -grid.exponent)
    positive = ends[1:-1][ends[1:-1] > 1e-3 * limits[1]]
    if limits == (-100.0, 50.0):
        assert positive[1:] / positive[:-1] == pytest.approx(math.sqrt(2.0), rel=1e-3)
        assert np.any(np.abs(ends) < 1e-6)


def test_the_range_is_narrow_where_nobody_is_outside_and_wide_where_many_are():
    ends = np.array([-8.0, -4.0, -2.0, 0.0, 1.0, 2.0, 4.0, 8.0])
    inside = np.array([0.0, 0, 0, 1000, 0, 0, 0])
    options = {"ends": ends, "noise": 100.0, "visited": 0.5}
    assert narrowest(inside, inside, 0.0, **options) == (0.0, 1.0)
    above = inside + np.array([0.0, 0, 0, 0, 0, 0, 200])
    assert narrowest(above, inside, 0.0, **options) == (0.0, 8.0)
    below = inside + np.array([200.0, 0, 0, 0, 0, 0, 0])
    assert narrowest(inside, below, 0.0, **options) == (-8.0, 1.0)
    # A handful outside costs less than the noise of a range that has them in it.
    few = inside + np.array([0.0, 0, 0, 0, 0, 0, 5])
    assert narrowest(few, inside, 0.0, **options) == (0.0, 1.0)


def test_noise_in_the_counts_widens_the_range():
    """Tails are read a standard deviation up: the less is seen, the more may be there."""
    one = mechanism()
    ends = one.problem.grid.low + np.ldexp(one.edges.astype(float), -one.problem.grid.exponent)
    inside = np.zeros(len(ends) - 1)
    inside[np.searchsorted(ends, 0.5) - 1] = 1000.0
    widths = [np.ptp(narrowest(inside, inside, deviation, ends, 30.0, 0.5)) for deviation in (0.0, 1.0, 10.0, 1e4)]
    assert widths[0] < 1.0
    assert widths == sorted(widths)
    assert widths[-1] == pytest.approx(150.0)
    assert len(set(widths)) > 2


def test_a_tail_that_noise_hides_is_taken_to_be_there():
    """Counts that noise made negative are no reason for a narrower range than counts of 0."""
    ends = np.array([-1.0, 0.0, 1.0, 2.0])
    options = {"deviation": 5.0, "ends": ends, "noise": 30.0, "visited": 0.5}
    none = narrowest(np.zeros(3), np.zeros(3), **options)
    assert narrowest(np.full(3, -50.0), np.full(3, -50.0), **options) == none


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_both_releases_keep_to_one_budget(delta, adjacency):
    privacy = Privacy(1.0, delta, adjacency)
    ledger = Ledger(privacy)
    options = {"gamma": 0.8, "reward_range": (-40.0, 40.0), "horizon": 4, "return_range": "private", "ledger": ledger}
    model = PolicyEvaluation(1.0, delta, adjacency=adjacency, **options).fit(random_walks(0, n=30_000))
    counts, sums = model.releases_
    assert keeps_to([counts.privacy, sums.privacy], [counts.mu, sums.mu], privacy)
    first, rest = split_budget(privacy, [0.1, 0.9])
    assert (counts.privacy, sums.privacy) == (first, rest)
    assert ledger.spent.epsilon == pytest.approx(1.0)
    low, high = model.return_range_
    assert -120.0 <= low < -1.5 < 1.5 < high <= 120.0
    assert np.all((model.value_ >= low) & (model.value_ <= high))
    assert counts.name.endswith("range of returns")


def test_what_follows_is_computed_from_the_released_counts_alone():
    one = mechanism()
    exact, _ = counted(random_walks(1), one)
    release = one.counts.release(exact, noise.SeededSource(3), "test")
    narrow, moments = one.narrowed(release)
    again, same = mechanism().narrowed(release)
    assert (narrow.grid, moments) == (again.grid, same)
    assert moments == visit_moments(narrow, one.rest)
    assert moments.scales["xy"] < one.widest().scales["xy"]
    assert moments.scales["xx"] == pytest.approx(one.widest().scales["xx"], rel=1e-6)
    assert narrow.grid.low >= -100.0
    assert narrow.grid.high <= 50.0


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_the_noise_of_the_counts_has_its_law(delta):
    """Of 300 releases; each test rejects with probability 1e-6."""
    one = mechanism(delta=delta)
    exact, counts = counted(random_walks(2), one)
    drawn = [one.counts.release(exact, noise.SeededSource(seed), "test").values["sum"] - counts for seed in range(300)]
    assert stats.kstest(np.ravel(drawn) / one.counts.scale, "norm" if delta else "laplace").pvalue > 1e-6
    assert one.scales == {"sum": one.counts.deviation}
    # Two bins of each of two histograms move: by 2 in the Euclidean norm, by 4 in all.
    expected = 2.0 / gaussian_mu(*one.counts.privacy.target) if delta else 4.0 / one.counts.privacy.epsilon
    assert one.counts.scale == pytest.approx(expected, rel=1e-9)


def test_it_is_far_better_than_a_range_that_is_far_too_wide():
    """The more states a person may visit, the more there is to gain."""
    rng = np.random.default_rng(5)
    walks = Trajectories(rng.integers(0, 60, 120_000), rng.normal(size=120_000), np.arange(0, 120_001, 60), 60)
    options = {"gamma": 0.8, "reward_range": (-200.0, 200.0), "horizon": 60, "lag": 0}
    exact = PolicyEvaluation(math.inf, **options).fit(walks).value_
    errors = {}  # of five seeds: of others, one in some thousand sets has a ratio above that below
    for limits in (None, "private"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            models = [
                PolicyEvaluation(1.0, 1e-5, **options, return_range=limits, ridge=1e-6, random_state=seed).fit(walks)
                for seed in range(5)
            ]
        errors[limits] = np.mean([np.abs(model.value_ - exact).max() for model in models])
    assert errors["private"] < 0.5 * errors[None]


def test_returns_are_clipped_to_the_range_that_was_found():
    """Released sums are those of clipped returns: noise is 7 standard deviations with probability 1e-11."""
    rng = np.random.default_rng(6)
    steps = 40 * 3000
    rewards = np.where(rng.random(steps) < 0.01, 30.0, 0.1)
    walks = Trajectories(rng.integers(0, 40, steps), rewards, np.arange(0, steps + 1, 40), 40)
    options = {"gamma": 0.5, "reward_range": (0.0, 100.0), "horizon": 40, "lag": 0, "weights": np.ones(40)}
    # Noise decides how far the range lies from the widest one, and so what clipping changes: of this seed.
    model = PolicyEvaluation(1.0, 1e-5, return_range="private", random_state=0, **options).fit(walks)
    low, high = model.return_range_
    clipped, whole = (
        sufficient_statistics(walks, 0.5, return_range=limits, horizon=40, weights=np.ones(40), centered=True)
        for limits in ((low, high), (0.0, 200.0))
    )
    sums = model.releases_[1]
    assert np.max(np.abs(sums.values["xy"] - clipped.xy)) < 7.0 * sums.scales["xy"]
    assert np.max(np.abs(sums.values["xy"] - whole.xy)) > 20.0 * sums.scales["xy"]


def test_a_plan_is_for_the_whole_declared_range():
    """Nine tenths of the budget: at most sqrt(1/.9) times the error of a range that is declared, or a little more."""
    public = {"epsilon": 1.0, "delta": 1e-5, "gamma": 0.9, "horizon": 40}
    declared, found = (
        PolicyEvaluation.plan(20_000, 30, return_range=limits, **ridge, **public)
        for limits, ridge in ((None, {"ridge": 1.0}), ("private", {}))
    )
    assert found.expected_error == pytest.approx(declared.expected_error / math.sqrt(0.9), rel=1e-3)
    assert found.needed_n > declared.needed_n
    assert set(found.scales) == {"sum"}


def test_refused():
    walks = random_walks(0)
    options = {"gamma": 0.8, "horizon": 4, "return_range": "private"}
    ledger = Ledger(Privacy(1.0, 1e-5))
    with pytest.raises(TypeError, match="trajectories must be in a sequence with return_range='private'"):
        PolicyEvaluation(1.0, 1e-5, ledger=ledger, **options).fit(iter([walks]))
    with pytest.raises(ValueError, match="return_range='private' goes with method='sufficient_statistics'"):
        PolicyEvaluation(1.0, 1e-5, ledger=ledger, method="lsw", **options).fit(walks)
    with pytest.raises(ValueError, match="return_range must be 'private'"):
        PolicyEvaluation(1.0, 1e-5, ledger=ledger, **(options | {"return_range": "public"})).fit(walks)
    assert ledger.spent.epsilon == 0.0
