"""Sums over visits in stages: each is calibrated for what one person moves it by, whatever was released before."""

import math
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from engines import Listed
from stages import queries

from dpfast import PolicyEvaluation, Privacy, UtilityWarning, noise
from dpfast.datasets.decision_processes import chain_trajectories, markov_trajectories
from dpfast.policy_evaluation.evaluation import Run
from dpfast.policy_evaluation.mechanism import Problem
from dpfast.policy_evaluation.staged import StagedVisits, _people_outside
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.releases.mechanism import release
from dpfast.statistics import ReturnGrid, Trajectories

ROOT = Path(__file__).parents[2]
PRIVACY = Privacy(1.0, 1e-5)
N_STATES = 6
KINDS = {
    "cut at the horizon": {"horizon": 5, "has_tails": True},
    "cut, but for a lag": {"horizon": 5, "lag": 2, "has_tails": True},
    "cut without a horizon": {"horizon": None, "has_tails": True},
    "not cut": {"horizon": None, "has_tails": False},
}
#: Of people, and of stages that so many lead to.
MANY, FEW = 20_000, 60
ALL = ["mean returns", "numbers of visits", "distances of returns", "sums"]


def staged(kind, *, adjacency="replace_one", m=MANY, epsilon=1.0):
    options = dict(KINDS[kind])
    has_tails = options.pop("has_tails")
    problem = Problem(None, np.full(N_STATES, 1 / N_STATES), ReturnGrid.for_range(-1.0, 3.0), **options)
    privacy = Privacy(epsilon, 1e-5, adjacency)
    return StagedVisits.calibrate(privacy, Run(problem, 0.7, "sums"), has_tails=has_tails, m=m)


def walks_at_random(rng, n, *, spread=1.0):
    lengths = rng.integers(1, 8, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rewards = rng.uniform(-0.3, 0.9, offsets[-1]) * spread
    states = rng.integers(0, N_STATES, offsets[-1])
    return Trajectories(states, rewards, offsets, N_STATES, truncated=rng.random(n) < 0.5)


def extremes(rng):
    """People who collect all or nothing, see one state or all, and are cut or not."""
    people = [walks_at_random(rng, 30, spread=size) for size in (0.1, 1.0, 1e9)]
    for size in (1e9, -1e9):
        for states in ([0], [1], np.arange(N_STATES), np.arange(N_STATES)[::-1]):
            rewards, offsets = np.full(len(states), size), [0, len(states)]
            people += [Trajectories(states, rewards, offsets, N_STATES, truncated=[flag]) for flag in (True, False)]
    return Trajectories.concatenate(people)


def requested(mechanism, walks, seed, wild=0.0):
    """Every query of a fit, as the noise of a seed leads to it, or releases that are off by so many powers of e."""
    source, rng = noise.resolve_source(seed), np.random.default_rng(seed)
    stages = mechanism.stages()
    query = next(stages)
    while True:
        yield query
        released = query.mechanism.release(query.statistic(walks), source, query.name)
        if wild:
            off = {name: value * np.exp(wild * rng.normal(size=value.shape)) for name, value in released.values.items()}
            released = replace(released, values=off)
        try:
            query = stages.send(released)
        except StopIteration:
            return


def farthest(query, people, adjacency):
    """How far any of these people moves what is summed, over the farthest that its noise is for."""
    parts = [query.statistic(people[[i]]).to_float64().ravel() for i in range(len(people))]
    moved = [one - other for one, other in combinations(parts, 2)] if adjacency == "replace_one" else parts
    return max(float(np.linalg.norm(one)) for one in moved) / (query.mechanism.scale * query.mechanism.mu)


@pytest.mark.parametrize("wild", [0.0, 1.0])
@pytest.mark.parametrize("m", [MANY, FEW])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbour_moves_any_stage_beyond_its_part(kind, adjacency, m, wild):
    rng = np.random.default_rng(1)
    walks, people = walks_at_random(rng, m), extremes(rng)
    people = people[rng.permutation(len(people))[:60]]
    mechanism = staged(kind, adjacency=adjacency, m=m)
    for query in requested(mechanism, walks, 0, wild):
        far = farthest(query, people, adjacency)
        assert far <= 1.0, query.name
        # Tight but for clips that few fill, and numbers that are rarely all at an end.
        assert far > 0.45, query.name
    if wild == 0.0:
        by_end = len(query.statistic(people).to_float64()) > 4
        assert by_end == (m == MANY and kind != "not cut")


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_means_are_moved_as_far_as_their_noise_is_for(adjacency):
    """By one who is never cut and collects all, in place of one who is cut at once and collects nothing."""
    mechanism = staged("cut at the horizon", adjacency=adjacency)
    query = next(mechanism.stages())
    best, worst = np.full(5, 1e9), np.full(5, -1e9)
    whole = Trajectories(np.zeros(4, int), best[:4], [0, 4], N_STATES, truncated=[False])
    cut = Trajectories(np.zeros(5, int), worst, [0, 5], N_STATES, truncated=[True])
    moved = query.statistic(whole).to_float64()
    if adjacency == "replace_one":
        moved = moved - query.statistic(cut).to_float64()
    # A discount is never all there is: gamma at the last step.
    assert 0.8 < np.linalg.norm(moved) / (query.mechanism.scale * query.mechanism.mu) <= 1.0


@pytest.mark.parametrize("m", [MANY, FEW])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_stages_together_keep_to_the_budget(kind, adjacency, m):
    walks = walks_at_random(np.random.default_rng(1), m)
    queries = list(requested(staged(kind, adjacency=adjacency, m=m), walks, 0))
    whole = gaussian_mu(*PRIVACY.target)
    assert whole * (1.0 - 1e-9) <= compose_mu([query.mechanism.mu for query in queries]) <= whole
    assert [query.name for query in queries] == ALL


@pytest.mark.parametrize("m", [MANY, FEW])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_what_is_asked_depends_on_releases_and_public_numbers_alone(adjacency, m):
    """The queries of one table's releases, and what they tell, are the same whichever table answers."""
    mechanism = staged("cut at the horizon", adjacency=adjacency, m=m)
    releases = release(mechanism, walks_at_random(np.random.default_rng(2), m), noise.resolve_source(3), "fit")

    own = staged("cut at the horizon", adjacency=adjacency, m=m if adjacency == "replace_one" else m + 77)
    assert list(queries(mechanism, releases)) == list(queries(own, releases))
    assert np.array_equal(mechanism.solve(releases).coef, own.solve(releases).coef)


CONTINUING = np.array([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]])
REWARDS = np.array([0.1, 0.5, 0.9])
VALUES = np.linalg.solve(np.eye(3) - 0.9 * CONTINUING, REWARDS)


def continuing(m, seed, horizon=15):
    start = np.full(3, 1 / 3)
    return Trajectories(*markov_trajectories(CONTINUING, m, start=start, horizon=horizon, rewards=REWARDS, seed=seed))


def evaluation(epsilon=1.0, delta=1e-6, **parameters):
    return PolicyEvaluation(epsilon, delta, **({"gamma": 0.9, "horizon": 15, "random_state": 0} | parameters))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_tails_that_the_horizon_cut_are_filled(adjacency):
    """Without them values would lack .9**15, a fifth; the mean of what was cut is right but for the state it is in."""
    model = evaluation(30.0, adjacency=adjacency).fit(continuing(20_000, 0))
    assert model.value_ == pytest.approx(VALUES, abs=0.08)
    at_once = evaluation(30.0, adjacency=adjacency, ridge=1e-3, lag=0).fit(continuing(20_000, 0))
    assert np.all(at_once.value_ < 0.87 * VALUES)


def test_last_states_are_summed_of_few_states_and_of_some_steps_where_noise_is_little():
    cut, lagged = (staged(kind)._summed(1e-3, 0.5) for kind in ("cut at the horizon", "cut, but for a lag"))
    assert (cut.by_end, cut.lag, lagged.lag) == (True, 1, 2)
    assert not staged("cut at the horizon")._summed(1.0, 0.5).by_end
    assert not staged("cut at the horizon")._summed(1e-3, 0.0).by_end
    assert not staged("not cut")._summed(1e-3, 0.5).by_end
    for states, horizon in ((65, 5), (6, 1)):
        problem = Problem(None, np.full(states, 1.0), ReturnGrid.for_range(-1.0, 3.0), horizon)
        found = StagedVisits.calibrate(PRIVACY, Run(problem, 0.7, "sums"), has_tails=True, m=MANY)
        assert not found._summed(1e-3, 0.5).by_end


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_two_classes_that_nobody_changes_between_are_told_apart_at_a_short_horizon(adjacency):
    """Half of all people collect 1 in each step, and the others nothing; one late mean of all would be half of that."""
    pays = np.arange(4_000) % 2
    states = np.stack([pays, pays + 2] * 4, axis=1)
    walks = Trajectories(states.ravel(), np.repeat(pays, 8), np.arange(0, 32_001, 8), 4)
    model = evaluation(3.0, adjacency=adjacency, horizon=8).fit(walks)
    assert model.value_ == pytest.approx([0.0, 10.0, 0.0, 10.0], abs=0.7)
    assert np.all(np.abs(model.value_ - [0.0, 10.0, 0.0, 10.0]) <= 1.96 * model.value_std_)


def test_trajectories_that_ended_by_themselves_are_not_filled():
    walks = continuing(20_000, 0)
    ended = Trajectories(walks.states, walks.rewards, walks.offsets, 3, truncated=np.zeros(len(walks), bool))
    model = evaluation(30.0).fit(ended)
    exact = evaluation(math.inf, lag=0).fit(ended)
    assert model.value_ == pytest.approx(exact.value_, abs=0.05)
    # Nor where there is no discount, by which all would count that was cut.
    undiscounted = evaluation(30.0, gamma=1.0).fit(walks)
    assert undiscounted.value_ == pytest.approx(evaluation(math.inf, gamma=1.0, lag=0).fit(walks).value_, abs=0.05)


def test_a_flag_fills_tails_without_a_horizon():
    walks = continuing(20_000, 0)
    flagged = Trajectories(walks.states, walks.rewards, walks.offsets, 3, truncated=np.ones(len(walks), bool))
    assert evaluation(30.0, horizon=None).fit(flagged).value_ == pytest.approx(VALUES, abs=0.08)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("m", "epsilon"), [(300, 0.3), (2_000, 1.0), (2_000, 10.0)])
def test_limits_hold(m, epsilon, adjacency):
    """Of 20 fits of three states, 95% limits: that 9 or fewer in ten of such that hold do has a chance below 2%."""
    held = []
    for seed in range(20):
        model = evaluation(epsilon, adjacency=adjacency, random_state=seed).fit(continuing(m, seed))
        held.append(np.abs(model.value_ - VALUES) <= 1.96 * model.value_std_)
    assert np.mean(held) >= 0.9


def ahead(n_states, stay, horizon, m, seed):
    """A chain with a reward in the last state, where it ends, and its values."""
    transitions = stay * np.eye(n_states) + (1.0 - stay) * np.eye(n_states, k=1)
    transitions[-1] = 0.0
    rewards = np.eye(n_states)[-1]
    flat = markov_trajectories(transitions, m, start=np.eye(n_states)[0], horizon=horizon, rewards=rewards, seed=seed)
    return Trajectories(*flat), np.linalg.solve(np.eye(n_states) - 0.9 * transitions, rewards)


def test_limits_hold_and_say_so_if_the_reward_lies_beyond_the_horizon():
    """Of 10 states 2 to 8 are reached; released returns are nearly 0, and values are not."""
    held = []
    for seed in range(8):
        walks, values = ahead(10, 0.4, 8, 5_000, seed)
        with pytest.warns(UtilityWarning, match="rewards after the horizon may change values by .*%"):
            model = evaluation(horizon=8, return_range=(0.0, 1.0), random_state=seed).fit(walks)
        held.append((np.abs(model.value_ - values) <= 1.96 * model.value_std_)[:7])
        assert model.caution_ in model.summary().attrs["note"]
    assert np.mean(held) >= 0.9


def chains(n_chains, n_states, stay, gamma, horizon, m, seed):
    """Chains as of `ahead` side by side, with rewards of 1, 1/2, ..., and their values."""
    one = stay * np.eye(n_states) + (1.0 - stay) * np.eye(n_states, k=1)
    one[-1] = 0.0
    transitions, n_all = np.kron(np.eye(n_chains), one), n_chains * n_states
    rewards, start = np.zeros(n_all), np.zeros(n_all)
    rewards[n_states - 1 :: n_states], start[::n_states] = 1.0 / np.arange(1, n_chains + 1), 1.0 / n_chains
    flat = markov_trajectories(transitions, m, start=start, horizon=horizon, rewards=rewards, seed=seed)
    return Trajectories(*flat), np.linalg.solve(np.eye(n_all) - gamma * transitions, rewards)


def test_limits_count_that_noise_may_hide_how_many_are_truncated():
    """Of the seventh state of nine nearly all are, and what comes next is hardly seen."""
    held = []
    for seed in range(40):
        walks, values = chains(3, 9, 0.4, 0.93, 9, 5_000, seed)
        options = {"gamma": 0.93, "horizon": 9, "return_range": (0.0, 1.0), "random_state": seed}
        with pytest.warns(UtilityWarning, match="rewards after the horizon"):
            model = PolicyEvaluation(0.3, 1e-6, **options).fit(walks)
        held.append((np.abs(model.value_ - values) <= 1.96 * model.value_std_)[6])
    assert np.mean(held) >= 0.9


def test_nothing_is_said_where_horizon_and_range_are_wide_enough():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            walks, values = ahead(5, 0.4, 40, 3_000, seed)
            model = evaluation(horizon=40, return_range=(0.0, 1.0), random_state=seed).fit(walks)
            assert model.caution_ == ""
            assert "note" not in model.summary().attrs
            assert np.all(1.96 * model.value_std_ < 0.1)
            assert np.all(np.abs(model.value_ - values) <= 3.0 * model.value_std_)


@pytest.mark.parametrize("m", [600, 5_000])
def test_limits_hold_and_say_so_if_returns_are_beyond_the_range(m):
    """From 600 people no returns can be located: all are at the end that they were clipped to."""
    for seed in range(5):
        walks = continuing(m, seed, horizon=40)
        with pytest.warns(UtilityWarning, match="returns beyond the declared range.*are widened"):
            model = evaluation(horizon=40, return_range=(0.0, 4.5), random_state=seed).fit(walks)
        assert np.all(model.value_ <= 4.5)
        assert np.all(np.abs(model.value_ - VALUES) <= 1.96 * model.value_std_)


def test_there_are_no_limits_if_returns_are_far_beyond_the_range(tmp_path):
    with pytest.warns(UtilityWarning, match="cannot be widened accordingly; declare a wider return_range"):
        model = evaluation(horizon=40, return_range=(0.0, 0.3)).fit(continuing(5_000, 0, horizon=40))
    assert np.all(np.isnan(model.value_std_))
    assert model.summary()[["low", "high"]].isna().all(axis=None)
    assert np.all(np.isfinite(model.summary()["estimate"]))
    model.plot()
    model.plot(shape=(1, 3))
    model.save(tmp_path / "model.json")
    again = PolicyEvaluation.load(tmp_path / "model.json")
    assert again.caution_ == model.caution_
    assert again.summary().equals(model.summary())


def test_few_counts_beyond_the_range_are_taken_for_noise():
    assert _people_outside(np.array([-30.0, 10.0, 10.0, 15.0]), 10.0) == ([], False)
    found = _people_outside(np.array([40.0, 0.0, -20.0, 25.0]), 10.0)
    assert found == ([(50.0, 0.25), (10.0, 1.0), (10.0, 4.0), (35.0, 4.0)], True)
    # Many little ones are none.
    assert _people_outside(np.full(4, 15.0), 10.0)[1]
    assert _people_outside(np.array([0.0, 0.0, 0.0, 40.0]), 10.0)[0][-1] == (50.0, math.inf)


def test_counts_beyond_the_range_that_may_be_noise_are_in_limits():
    as_counted = [(0.0, 0.25), (25.0, 1.0), (0.0, 4.0), (0.0, 4.0)]
    assert _people_outside(np.array([-30.0, 25.0, 0.0, 0.0]), 10.0) == (as_counted, False)
    assert _people_outside(np.full(4, 7.0), 10.0) == ([(7.0, 0.25), (7.0, 1.0), (7.0, 4.0), (7.0, 4.0)], False)


def low(m, seed):
    """Six states of values about a tenth of the range, from which people go anywhere; the horizon is long."""
    transitions = np.random.default_rng(4).dirichlet(np.full(6, 0.3), 6)
    rewards = np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.0])
    flat = markov_trajectories(transitions, m, start=np.full(6, 1 / 6), horizon=30, rewards=rewards, seed=seed)
    return Trajectories(*flat), np.linalg.solve(np.eye(6) - 0.9 * transitions, rewards)


@pytest.mark.parametrize("epsilon", [0.3, 0.6])
def test_where_little_is_known_values_are_hardly_farther_than_a_constant(epsilon):
    """One that has the whole budget is the mean return, from 0 to 10, with noise."""
    squares = []
    for seed in range(20):
        walks, values = low(500, seed)
        squares.append(np.mean((evaluation(epsilon, horizon=30, random_state=seed).fit(walks).value_ - values) ** 2))
    constant = math.hypot(np.std(values), 10.0 / (500 * gaussian_mu(epsilon, 1e-6)))
    assert math.sqrt(np.mean(squares)) < 1.75 * constant


def test_limits_hold_if_noise_may_hide_that_returns_are_beyond_the_range():
    """Of 300 people at epsilon .5 half of the fits warn: every value is above the range."""
    held, warned = [], []
    for seed in range(20):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = evaluation(0.5, horizon=40, return_range=(0.0, 3.5), random_state=seed).fit(
                continuing(300, seed, horizon=40)
            )
        warned.append(any("declared range" in str(one.message) for one in said))
        held.append(np.abs(model.value_ - VALUES) <= 1.96 * model.value_std_)
    assert np.mean(warned) < 0.6
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_it_is_said_if_noise_may_hide_many_people_with_returns_beyond_the_range(adjacency):
    """A quarter of 500 people at epsilon .3 is no more than noise: limits miss their values, and do not keep silent."""
    held = []
    for seed in range(10):
        walks, values = chains(4, 4, 0.5, 0.95, 40, 500, seed)
        options = {"gamma": 0.95, "horizon": 40, "return_range": (0.0, 0.7), "random_state": seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PolicyEvaluation(0.3, 1e-6, adjacency=adjacency, **options).fit(walks)
        held.append((np.abs(model.value_ - values) <= 1.96 * model.value_std_)[:4])
        assert "beyond" in model.caution_
        assert model.caution_ in model.summary().attrs["note"]
    assert np.mean(held) < 0.9


@pytest.mark.parametrize(("noise", "bins"), [(0.1, 8), (0.0, 0)])
def test_limits_count_returns_that_noise_may_hide_beyond_the_reach(noise, bins):
    """All are in the fourth of twelve bins as released: eight beyond it may have people, a half-octave farther each."""
    mechanism = staged("not cut")
    steps = mechanism._reach(mechanism._parts[2], 0.0, 0, noise, MANY)
    query = next(steps)
    counts = np.zeros(query.statistic(walks_at_random(np.random.default_rng(0), 3)).shape)
    counts[0, 3] = MANY
    with pytest.raises(StopIteration) as last:
        steps.send(SimpleNamespace(values={"sum": counts}))
    residuals, lost = last.value.value
    assert residuals.reach == pytest.approx(mechanism.returns.half * 2.0 ** (-0.5 * bins))
    beyond = 2.0 ** (0.5 * np.arange(1, bins + 1)) - 1.0
    assert lost.hidden == pytest.approx(query.mechanism.deviation * np.linalg.norm(beyond))
    assert lost.returns == 0.0


@pytest.mark.parametrize("at", [0, 3, 7, 11])
@pytest.mark.parametrize("part", [-0.9, -0.4, 0.0, 0.6])
def test_reach_covers_what_is_near_the_center_and_nothing_beyond_the_range(part, at):
    """Of returns up to 1.4 half widths from a center at .4, none is farther than one half width from the middle."""
    mechanism = staged("not cut")
    returns = mechanism.returns
    center = round(part * returns.half)
    steps = mechanism._reach(mechanism._parts[2], 0.0, center, 1e-9, MANY)
    counts = np.zeros(next(steps).mechanism.shape)
    counts[0, at] = MANY
    with pytest.raises(StopIteration) as last:
        steps.send(SimpleNamespace(values={"sum": counts}))
    residuals, _ = last.value.value
    bin_end = (returns.half + abs(center)) * 2.0 ** (-0.5 * (11 - at))
    low, high = max(center - bin_end, -returns.grid.middle_units), min(center + bin_end, returns.half)
    reached = residuals.center - residuals.reach, residuals.center + residuals.reach
    assert -returns.grid.middle_units - 1.0 <= reached[0] <= low
    assert high <= reached[1] <= returns.half + 1.0


@pytest.mark.slow
def test_limits_of_many_chains_hold(monkeypatch):
    """Of 20 fits a cell: in 93% or more of the states. Hardly any fit warns without a reason, and most with one do."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.policy_limits import ALSO_TUNED, cell

    warned = {True: [], False: []}
    for name, world in ALSO_TUNED.items():
        found = cell(world, 5_000, 1.0, "replace_one", 20)
        assert found["mean"] >= 0.93, name
        assert found["least"] >= 0.8, name
        warned[world.is_good].append(found["warned"])
    assert np.mean(warned[True]) <= 0.05
    assert np.mean(warned[False]) >= 0.7


def test_a_fit_that_knows_nothing_is_in_the_middle_and_says_so():
    """Of three people at epsilon = .01: no value is near an end of the range by its noise."""
    with pytest.warns(UserWarning, match="mostly noise"):
        model = evaluation(0.01).fit(continuing(3, 0))
    assert np.all(np.abs(model.value_ - 5.0) < 5.0)
    assert np.all(1.96 * model.value_std_ > 4.0)


def test_the_error_is_that_of_the_data_and_not_of_the_range():
    """Of a range ten times as wide sums at once have ten times the noise."""

    def error(**parameters):
        options = {"reward_range": (-5.0, 5.0), "lag": 0} | parameters
        models = [evaluation(random_state=seed, **options).fit(continuing(3_000, seed)) for seed in range(6)]
        return math.sqrt(np.mean([np.square(model.value_ - VALUES) for model in models]))

    assert error() < 0.3 * error(ridge=1e-3)


def test_no_visit_is_lost_where_noise_is_little():
    """People who visit many states are not clipped then: at epsilon 1,000 values are those without noise."""
    walks = Trajectories(*chain_trajectories(5_000, n_states=8, seed=0))
    options = {"horizon": None, "return_range": (0.0, 1.0)}
    exact = evaluation(math.inf, **options).fit(walks)
    assert evaluation(1_000.0, 0.01, **options).fit(walks).value_ == pytest.approx(exact.value_, abs=0.003)


def test_people_with_returns_near_an_end_of_the_range_lose_no_weight():
    """Three in four collect nothing on the same way: with less weight than others, they moved values by .0076."""
    n, steps = 20_000, 5
    rewards = np.zeros((n, steps))
    rewards[::4, -1] = 0.5
    walks = Trajectories(np.tile(np.arange(steps), n), rewards.ravel(), np.arange(n + 1) * steps, steps)
    options = {"horizon": 10, "return_range": (0.0, 1.0), "gamma": 0.99}
    models = [evaluation(3.0, random_state=seed, **options).fit(walks) for seed in range(8)]
    assert abs(np.mean([model.value_ for model in models]) - 0.125 * np.mean(0.99 ** np.arange(steps))) < 0.003


def test_parts_and_blocks_give_the_same_fit():
    walks = continuing(900, 0)
    fits = [
        evaluation().fit(data) for data in (walks, [walks[500:], walks[:500]], Listed([walks[:300], walks[300:]], 3))
    ]
    assert all(np.array_equal(fits[0].value_, one.value_) for one in fits[1:])
    assert [one.name for one in fits[0].releases_] == [one.name for one in fits[2].releases_]


def test_trajectories_that_can_be_read_only_once_are_summed_at_once():
    model = evaluation().fit(iter([continuing(900, 0)]))
    assert len(model.releases_) == 1


def test_what_is_declared_of_parts_must_agree():
    walks = continuing(10, 0)
    flagged = Trajectories(walks.states, walks.rewards, walks.offsets, 3, truncated=np.ones(10, bool))
    with pytest.raises(ValueError, match="must all say which trajectories were truncated, or none of them"):
        evaluation().fit(Listed([walks, flagged], 3))
    with pytest.raises(ValueError, match="must all say which trajectories were truncated, or none of them"):
        evaluation().fit([walks, flagged])


@pytest.mark.parametrize(("m", "epsilon"), [(300, 0.3), (2_000, 1.0)])
def test_a_plan_expects_the_error(m, epsilon):
    """To within 1.7 times, for what is so of visits, .95 of three states, and of returns, .04 of the range."""
    fits = [evaluation(epsilon, random_state=seed).fit(continuing(m, seed)) for seed in range(25)]
    found = math.sqrt(np.mean([np.square(model.value_ - VALUES) for model in fits])) / 10.0
    options = {"gamma": 0.9, "horizon": 15, "epsilon": epsilon, "delta": 1e-6}
    plan = PolicyEvaluation.plan(m, 3, visited=[0.95, 0.95, 0.95], spread=0.04, **options)
    assert plan.expected_error / 1.7 < found < 1.7 * plan.expected_error


def birth_and_death(m, seed, horizon=40):
    """Six states, of which hardly anybody who is there leaves the last soon; the first is the end. And their values."""
    transitions = 0.89 * np.eye(6) + 0.05 * np.eye(6, k=1) + 0.06 * np.eye(6, k=-1)
    transitions[5, 5], transitions[0] = 0.94, 0.0
    rewards = np.linspace(0.0, 1.0, 6) ** 2
    flat = markov_trajectories(transitions, m, start=np.eye(6)[2], horizon=horizon, rewards=rewards, seed=seed)
    return Trajectories(*flat), np.linalg.solve(np.eye(6) - 0.9 * transitions, rewards)


def sparse(m, seed, horizon=40):
    """Fifteen states with two successors each, most of them rarely visited."""
    rng, transitions = np.random.default_rng(71), np.zeros((15, 15))
    for row in transitions:
        row[rng.choice(15, 2, replace=False)] = rng.dirichlet(np.ones(2))
    rewards = rng.beta(0.5, 0.5, 15)
    flat = markov_trajectories(transitions, m, start=np.eye(15)[0], horizon=horizon, rewards=rewards, seed=seed)
    return Trajectories(*flat), np.linalg.solve(np.eye(15) - 0.9 * transitions, rewards)


@pytest.mark.parametrize(
    ("draw", "m", "epsilon"), [(sparse, 5_000, 1.0), (sparse, 500, 3.0), (birth_and_death, 500, 1.0)]
)
def test_a_plan_expects_the_error_where_states_are_rare_or_people_stay(draw, m, epsilon):
    """To within 1.5 times, for true guesses: rare states may be worth the same as others, or not."""
    squares, visits = [], 0.0
    for seed in range(8):
        walks, values = draw(m, seed)
        model = evaluation(epsilon, horizon=40, random_state=seed).fit(walks)
        squares.append((model.value_ - values) ** 2)
        people = np.repeat(np.arange(m), np.diff(walks.offsets))
        seen = np.unique(np.stack([people, walks.states]), axis=1)[1]
        visits = visits + np.bincount(seen, minlength=len(values)) / (8 * m)
    mean = visits @ values / visits.sum()
    # In each state returns vary by half as much as values do by state, or as much.
    guesses = {"visited": np.clip(visits, 1e-4, 1.0), "value_spread": np.abs(values - mean) / 10.0}
    guesses |= {"spread": 1.3 * math.sqrt(visits @ (values - mean) ** 2 / visits.sum()) / 10.0}
    guesses |= {"truncated": np.mean(np.diff(walks.offsets) == 40)}
    options = {"gamma": 0.9, "horizon": 40, "epsilon": epsilon, "delta": 1e-6}
    found = math.sqrt(np.mean(squares)) / 10.0
    plan = PolicyEvaluation.plan(m, len(values), **guesses, **options)
    assert plan.expected_error / 1.5 < found < 1.5 * plan.expected_error


@pytest.mark.parametrize("m", [60, 600, 60_000])
def test_a_plan_of_harder_chains_expects_no_less_error(m):
    options = {"epsilon": 1.0, "delta": 1e-6, "gamma": 0.9, "horizon": 20}

    def planned(**guesses):
        return PolicyEvaluation.plan(m, 5, **{"visited": 0.4, "spread": 0.3} | guesses, **options).expected_error

    for name, harder in (("value_spread", [0.01, 0.03, 0.1, 0.2]), ("truncated", [0.0, 0.2, 0.7, 1.0])):
        errors = [planned(**{name: value}) for value in harder]
        assert errors == sorted(errors), name
    assert planned() == planned(value_spread=0.15, truncated=1.0)
    # A state that nobody visits is worth the mean return, and off by its distance.
    missed = planned(visited=[0.5] * 4 + [1e-9], value_spread=[0.1] * 4 + [0.8])
    assert missed >= 0.99 * 0.8 / math.sqrt(5.0)


def test_bad_plans():
    options = {"gamma": 0.9, "epsilon": 1.0, "delta": 1e-6}
    bad = [(name, value) for name in ("visited", "value_spread") for value in ([0.5, 0.0], [0.5], 0.0)]
    for name, value in [*bad, ("spread", 0.0), ("spread", 1.5), ("truncated", 1.5), ("truncated", -0.1)]:
        with pytest.raises(ValueError, match=name):
            PolicyEvaluation.plan(10, 2, **options, **{name: value})


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_blocks_that_are_others_the_next_time_are_refused(adjacency):
    class Fewer:
        def __init__(self):
            self.left = 40

        def __iter__(self):
            self.left -= 1
            return iter([continuing(self.left, 0)])

    with pytest.raises(ValueError, match="trajectories gave others than the time before"):
        evaluation(adjacency=adjacency).fit(Fewer())


def test_a_summary_says_of_which_errors_its_limits_are():
    walks = continuing(900, 0)
    of_noise = ["std_privacy", "low_privacy", "high_privacy"]
    for data, parameters, columns in (
        (walks, {}, ["std_error", "low", "high"]),
        (iter([walks]), {}, of_noise),
        (walks, {"ridge": 1.0}, of_noise),
        (walks, {"delta": 0.0}, of_noise),
    ):
        table = evaluation(**parameters).fit(data).summary()
        assert table.columns.tolist() == ["estimate", *columns]
        assert table.attrs["target"] == ("population" if "low" in columns else "privacy noise alone")


def test_a_model_comes_back_from_its_file_with_all_releases(tmp_path):
    model = evaluation().fit(continuing(900, 0))
    model.save(tmp_path / "model.json")
    again = PolicyEvaluation.load(tmp_path / "model.json")
    assert np.array_equal(again.value_std_, model.value_std_)
    assert [one.to_dict() for one in again.releases_] == [one.to_dict() for one in model.releases_]
    assert again.summary().equals(model.summary())


def test_more_visits_than_norms_are_computed_for_are_refused():
    walks = Trajectories([0], [0.5], [0, 1], (1 << 20) + 1)
    with pytest.raises(ValueError, match="horizon must be given"):
        evaluation(horizon=None).fit(walks)


def test_no_trajectories_are_refused_where_their_number_is_public():
    nobody = Trajectories([], [], [0], 3)
    with pytest.raises(ValueError, match="trajectories must hold at least one, got none"):
        PolicyEvaluation(1.0, 1e-6, gamma=0.9).fit(nobody)
    with pytest.raises(ValueError, match="weights"):
        PolicyEvaluation(1.0, 1e-6, gamma=0.9, weights=[]).fit(Trajectories([0], [1.0], [0, 1], 3))
    values = PolicyEvaluation(1.0, 1e-6, gamma=1.0 - 2.0**-53, horizon=1, random_state=0)
    assert np.all(np.isfinite(values.fit(Trajectories([0, 1], [0.0, 1.0], [0, 1, 2], 3)).value_))


def test_a_mean_of_returns_has_the_noise_of_both_that_it_is_a_quotient_of():
    """At an end of the range the number of those not cut is as uncertain as their returns: twice the variance."""
    for total, errors in ((0.0, 1.0), (500.0, 2.0), (-500.0, 2.0)):
        stages = staged("cut at the horizon")._means()
        query = next(stages)
        off = query.mechanism.deviation
        released = SimpleNamespace(values={"sum": np.array([total, 500.0, total, 500.0])})
        with pytest.raises(StopIteration) as told:
            stages.send(released)
        pooled = told.value.value.pooled
        assert pooled.value == total / 500.0
        assert pooled.variance == pytest.approx(errors * (off / 500.0) ** 2)
