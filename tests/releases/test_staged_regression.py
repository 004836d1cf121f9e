"""Least squares in stages: each stage is calibrated for what one person moves it by, whatever was released before."""

import math

import numpy as np
import pytest

from dpfast import MultiOutcomeRidge, Privacy, io, noise, statistics
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.releases.mechanism import release
from dpfast.releases.refined_moments import People
from dpfast.solvers import refining

N = 400
OPTIONS = {
    "plain": {"bound_x": 2.0},
    "intercept": {"bound_x": 2.0, "fit_intercept": True},
    "box": {"bound_x": None, "box_x": (-1.0, np.array([1.0, 3.0, 0.5]))},
    "box and intercept": {"bound_x": None, "box_x": (-1.0, np.array([1.0, 3.0, 0.5])), "fit_intercept": True},
    "nonnegative": {"bound_x": 2.0, "nonnegative": True},
    "people": {"bound_x": 2.0},
    "people, clipped by person": {"bound_x": 2.0, "block_bounds": (2.0, 3.0)},
}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.normal(size=(n, 3))
    return x, x @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(n, 2))


def mechanism_of(options, adjacency="replace_one", delta=1e-5, steps=2, several=False):
    one = MultiOutcomeRidge(1.0, delta, bound_y=3.0, adjacency=adjacency, refine=steps, **OPTIONS[options])
    privacy = Privacy(1.0, delta, adjacency)
    staged = one._staged(
        privacy, steps, People(io.open_table(*table()), *((owners(N), 3) if several else (None, None)))
    )
    return staged.mechanism


def owners(n):
    return np.arange(n) // 2


def counted(mechanism, x, y, groups=None):
    people = People(io.open_table(x, y), groups, None if groups is None else 3)
    return People(people.table, people.groups, people.max_rows, sizes=mechanism.count_sizes(people))


def moved(stage, one, other):
    """How far two tables lie apart in what is summed for a stage, in units of its noise."""
    if hasattr(stage.mechanism, "scale"):
        sums = [stage.statistic(people).to_float64() for people in (one, other)]
        return float(np.linalg.norm(sums[0] - sums[1])) / stage.mechanism.scale
    first, second = (stage.statistic(people) for people in (one, other))
    scales = stage.mechanism.scales
    blocks = {"xx": "xx", "xy": "xy", "x": "exact_x_sum", "y": "exact_y_sum", "n": "n_rows"}
    total = 0.0
    for name, scale in scales.items():
        pair = [getattr(sums, blocks[name]) for sums in (first, second)]
        pair = [one.to_float64() if hasattr(one, "to_float64") else np.asarray(one, float) for one in pair]
        total += float(np.sum((pair[0] - pair[1]) ** 2)) / scale**2
    return math.sqrt(total)


def asked(mechanism, people, seed):
    """Every stage of a fit, as the noise of a seed leads to it."""
    source = noise.resolve_source(seed)
    stages = mechanism.stages()
    stage = next(stages)
    while True:
        yield stage
        try:
            stage = stages.send(stage.mechanism.release(stage.statistic(people), source, stage.name))
        except StopIteration:
            return


ROWS = [
    ([1.0, 0.0, 0.0], [1.0, 0.0]),
    ([0.3, -0.2, 0.4], [-5.0, 5.0]),
    ([1e3, -1e3, 1e3], [1e3, 1e3]),
    ([-1e-3, 0.0, 0.0], [50.0, 0.0]),
    ([0.0, 0.0, 0.0], [0.0, 0.0]),
]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("options", OPTIONS)
def test_no_neighbour_moves_any_stage_beyond_its_part(options, adjacency):
    several = options.startswith("people")
    mechanism = mechanism_of(options, adjacency, several=several, steps=3)
    x, y = table()
    rng = np.random.default_rng(1)
    largest = {}
    for seed in range(1):
        groups = owners(N) if several else None
        people = counted(mechanism, x, y, groups)
        neighbours = []
        for row, outcomes in [*ROWS, *zip(4.0 * rng.normal(size=(4, 3)), 4.0 * rng.normal(size=(4, 2)), strict=True)]:
            if adjacency == "add_remove":
                more = (3 if several else 1, 1)
                rows, ids = np.vstack([x, np.tile(row, more)]), np.append(owners(N), [N] * more[0])
                neighbours.append((rows, np.vstack([y, np.tile(outcomes, more)]), ids if several else None))
                continue
            rows, changed = x.copy(), y.copy()
            rows[: 1 + several], changed[: 1 + several] = row, outcomes
            neighbours.append((rows, changed, groups))
        others = [counted(mechanism, *one) for one in neighbours]
        for stage in asked(mechanism, people, seed):
            far = max(moved(stage, people, other) for other in others)
            assert far <= stage.mechanism.mu * (1.0 + 1e-12), stage.name
            largest[stage.name] = max(largest.get(stage.name, 0.0), far / stage.mechanism.mu)
    # Squares of residuals are for rows that are one person each.
    assert len(largest) == 10 - several
    # Far rows come near what is paid for, in counts and at clips.
    tight = ["residuals, step 1", "residuals, step 2", "residuals, step 3"]
    assert all(largest[name] > (0.3 if adjacency == "replace_one" else 0.9) for name in tight), largest


@pytest.mark.parametrize("options", OPTIONS)
def test_all_stages_together_keep_to_the_budget(options):
    several = options.startswith("people")
    mechanism = mechanism_of(options, several=several)
    people = counted(mechanism, *table(), owners(N) if several else None)
    mus = [stage.mechanism.mu for stage in asked(mechanism, people, 0)]
    whole = gaussian_mu(1.0, 1e-5)
    assert whole * (1.0 - 1e-9) <= compose_mu(mus) <= whole


def test_pure_parts_share_epsilon():
    mechanism = mechanism_of("plain", delta=0.0)
    costs = [stage.mechanism.privacy for stage in asked(mechanism, counted(mechanism, *table()), 0)]
    assert all(cost.delta == 0.0 for cost in costs)
    assert 1.0 - 1e-9 <= math.fsum(cost.epsilon for cost in costs) <= 1.0


def test_names_of_stages_differ_so_that_seeded_noise_does():
    mechanism = mechanism_of("plain", steps=3)
    names = [stage.name for stage in asked(mechanism, counted(mechanism, *table()), 0)]
    assert len(set(names)) == len(names) == 5 + 2 + 3


def test_what_is_released_is_all_that_is_told():
    mechanism = mechanism_of("intercept")
    people = counted(mechanism, *table())
    releases = release(mechanism, people, noise.resolve_source(5), "fit")
    one, other = (mechanism.solve(releases).solution for _ in range(2))
    fitted = MultiOutcomeRidge(1.0, 1e-5, bound_y=3.0, refine=2, random_state=5, **OPTIONS["intercept"]).fit(*table())
    np.testing.assert_array_equal(one.coef, other.coef)
    assert fitted.n_steps_ == 2
    assert [one.name.partition(": ")[2] for one in releases] == [
        one.name.partition(": ")[2] for one in fitted.releases_
    ]
    assert len({one.name for one in fitted.releases_}) == len(fitted.releases_)
    assert mechanism.solve(fitted.releases_).solution.coef == pytest.approx(fitted.coef_, abs=0.0)


def test_few_people_get_moments_alone_with_all_that_is_left():
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, adjacency="add_remove", random_state=0)
    few = one.fit(*table(100))
    assert few.n_steps_ == 0
    names = [release.name.partition(": ")[2] for release in few.releases_]
    assert names == ["sizes of rows and outcomes", "moments", "squares of residuals"]
    assert compose_mu([release.mu for release in few.releases_]) == pytest.approx(gaussian_mu(1.0, 1e-5))
    assert one.fit(*table(20_000)).n_steps_ == refining.schedule().steps


def test_a_public_number_of_few_people_needs_no_counts():
    few = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, random_state=0).fit(*table(100))
    moments = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, random_state=0, refine=0).fit(*table(100))
    assert few.n_steps_ == 0
    np.testing.assert_array_equal(few.coef_, moments.coef_)


def test_public_labels_are_held_to_what_was_declared():
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, mechanism="projection", public_labels=True, refine=1)
    x, y = table()
    staged = one._staged(Privacy(1.0, 1e-5), 1, People(io.open_table(x, 1e-3 * y)))
    assert staged.mechanism.public is staged.public
    stages = staged.mechanism.stages()
    stage = next(stages)
    source = noise.resolve_source(0)
    moments = stages.send(stage.mechanism.release(stage.statistic(staged.statistic), source, stage.name))
    assert moments.statistic(staged.statistic).bound_y == 3.0


def test_a_table_that_can_be_read_only_once_gets_no_steps():
    x, y = table(5_000)
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, random_state=0)
    assert one.fit(x, y).n_steps_ > 0
    assert one.fit(iter([x]), iter([y])).n_steps_ == 0
    blocks = [(x[:10], y[:10]), (x[10:], y[10:])]
    assert one.fit(blocks, None).n_steps_ > 0
    with pytest.raises(ValueError, match="read only once"):
        MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, refine=1).fit(iter([x]), iter([y]))
    with pytest.raises(TypeError, match="groups"):
        MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, refine=1).fit(blocks, None, owners(5_000), 3)


def test_sums_have_no_steps():
    x, y = table()
    sums = statistics.gram(x, y, bound_x=2.0, bound_y=3.0)
    assert MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0).fit_gram(sums).n_steps_ == 0
    with pytest.raises(ValueError, match="refine needs the rows"):
        MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=3.0, refine=1).fit_gram(sums)


@pytest.mark.parametrize("loose", [1.0, 10.0])
@pytest.mark.parametrize("options", ["plain", "intercept", "box and intercept", "nonnegative"])
def test_the_error_is_that_of_the_data_and_not_of_the_bounds(options, loose):
    rng = np.random.default_rng(3)
    x = np.abs(0.3 * rng.normal(size=(20_000, 3))) if options == "nonnegative" else 0.3 * rng.normal(size=(20_000, 3))
    y = x @ [[0.5], [0.2], [0.6]] + 0.05 * rng.normal(size=(20_000, 1)) + 0.3
    y = np.maximum(y, 0.0) if options == "nonnegative" else y
    parameters = dict(OPTIONS[options], bound_y=2.0 * loose)
    if parameters["bound_x"] is not None:
        parameters["bound_x"] *= loose
    else:
        parameters["box_x"] = (-2.0 * loose, 2.0 * loose)
    exact = MultiOutcomeRidge(math.inf, **parameters).fit(x, y).predict(x)

    def error(refine):
        fits = (MultiOutcomeRidge(1.0, 1e-5, refine=refine, random_state=s, **parameters).fit(x, y) for s in range(4))
        return np.mean([np.mean((one.predict(x) - exact) ** 2) for one in fits]) / np.var(y)

    # Ten times less than moments alone, and far below what bounds ten times as large did to these.
    assert error("auto") < min(0.1 * error(0), 2e-3)
