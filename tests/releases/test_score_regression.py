"""Regression with scores in stages: each is calibrated for what one person moves it by, whatever came before."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from neighbours import climb
from scipy import stats
from stages import RESOLVED, Size, moved, part_of_person, requested

from dpfast import ObjectivePerturbationRegressor, Privacy, io, noise
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.releases.mechanism import answered, release
from dpfast.releases.people import People
from dpfast.releases.score_regression import ScoreRegression
from dpfast.releases.staged_regression import Public
from dpfast.solvers import PoissonLoss, SmoothedHuber, SmoothedQuantile
from dpfast.statistics.residuals import residual_bound
from dpfast.statistics.rows import RowMap

BOUND_X, BOUND_Y = 2.0, 3.0
LOSSES = {
    "huber": SmoothedHuber(0.5),
    "median": SmoothedQuantile(0.5, 0.3),
    "quantile": SmoothedQuantile(0.9, 0.3),
    "counts": PoissonLoss(BOUND_Y),
}
MAX_ROWS = 3


PATHS = {
    "X'X is resolved": RESOLVED,
    "X'X is not": Size(1_200, 60, "scores, step 1"),
    "people are few": Size(40, 3, "level: scores, step 1"),
}


class Staged(NamedTuple):
    """What a fit has before its first release."""

    mechanism: ScoreRegression
    statistic: People


def table(size=RESOLVED, seed=0, noise_of_outcomes=0.1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size.n_rows, size.features)) / math.sqrt(4.0 * size.features) + 0.1
    theta = np.linspace(-1.0, 1.0, size.features)[:, None]
    return x, x @ theta + noise_of_outcomes * rng.normal(size=(size.n_rows, 1)) + 0.5


def staged(
    loss="huber",
    size=RESOLVED,
    *,
    adjacency="replace_one",
    epsilon=1.0,
    intercept=True,
    steps=None,
    rows=None,
    several=False,
):
    x, y = table(size) if rows is None else rows
    is_public = adjacency == "replace_one" and not several
    outcome_map = RowMap(bound=BOUND_Y)
    if LOSSES[loss].is_of_counts:
        outcome_map = replace(outcome_map, low=np.zeros(1), high=np.full(1, BOUND_Y))
    mechanism = ScoreRegression(
        Privacy(epsilon, 1e-5, adjacency),
        (x.shape[1], 1),
        (BOUND_X, BOUND_Y),
        RowMap(bound=BOUND_X),
        outcome_map,
        n_steps=steps,
        fit_intercept=intercept,
        max_rows=MAX_ROWS if several else None,
        public=Public(len(x) if is_public else None),
        loss=LOSSES[loss],
    )
    people = People(io.open_table(x, y), *((np.arange(len(x)) // 2, MAX_ROWS) if several else ()))
    return Staged(mechanism, replace(people, first=mechanism.sum_rows(people)))


def part_of(query, x, y, several=False):
    x, y = np.atleast_2d(x), np.atleast_2d(y)
    return part_of_person(query, People(io.open_table(x, y), *((np.zeros(len(x)), MAX_ROWS) if several else ())))


def people_at_random(rng, features, n=3):
    """People of all sizes, some beyond every bound, each with their mirror images."""
    for _ in range(n):
        x = rng.normal(size=(1, features)) * 10.0 ** rng.uniform(-2.0, 3.0) / math.sqrt(features)
        y = rng.normal(size=(1, 1)) * 10.0 ** rng.uniform(-2.0, 3.0)
        yield from ((x, y), (x, -y), (-x, -y))


def farthest_people(query):
    """People whose rows are as long as they can be, and scores as long, on either side."""
    told = query.statistic.keywords if hasattr(query.statistic, "keywords") else {}
    if "clip" not in told:
        return []
    step = told["step"]
    for x in np.linspace(0.0, BOUND_X, 41)[:, None, None] * np.eye(step.n_features):
        lengths = np.linalg.norm(np.hstack([x, np.ones((len(x), 1))]) @ step.whitening.T, axis=1)
        if np.any(lengths >= min(step.longest, np.linalg.norm(step.whitening))):
            longest = x[[np.argmax(lengths)]]
            break
    return [(longest, [[BOUND_Y]]), (longest, [[-BOUND_Y]])]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(
    ("loss", "intercept"),
    [(loss, intercept) for loss in LOSSES for intercept in (False, True) if intercept or loss != "counts"],
)
def test_no_neighbour_moves_any_stage_beyond_its_part(loss, intercept, adjacency):
    fit = staged(loss, adjacency=adjacency, intercept=intercept, steps=3)
    rng = np.random.default_rng(1)
    largest = {}
    for query in requested(fit, 0):
        others = [*people_at_random(rng, 3, 8), *farthest_people(query)]
        far = moved(query, [part_of(query, *one) for one in others])
        assert far <= 1.0 + 1e-9, query.name
        assert query.name not in largest
        largest[query.name] = far
    # What is paid for is attained: in counts, and by scores that are as long as they get on either side.
    even = 1.0 if loss != "quantile" or adjacency == "add_remove" else 0.5 / 0.9
    attained = {name: far for name, far in largest.items() if "scores" in name or "sizes" in name}
    assert len(attained) >= (6 if loss == "counts" or not intercept else 20)
    for name, far in attained.items():
        # Scores of counts are as long as they get only where rates are as low, or as high.
        least = 0.4 if loss == "counts" else 0.999 * even
        assert far > (least if "scores" in name else 0.999), name


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("path", PATHS)
def test_none_does_however_many_people_there_are_and_whatever_was_released(path, adjacency):
    size, rng = PATHS[path], np.random.default_rng(2)
    for seed, (loss, wild) in enumerate({"huber": 1.0, "quantile": 4.0, "counts": 4.0}.items()):
        fit = staged(loss, size, adjacency=adjacency, steps=2)
        for query in requested(fit, seed, wild):
            others = [*people_at_random(rng, size.features, 2), *farthest_people(query)]
            assert moved(query, [part_of(query, *one) for one in others]) <= 1.0 + 1e-9, query.name


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("loss", ["huber", "quantile", "counts"])
def test_no_climb_finds_a_neighbour_that_moves_a_sum_of_scores_farther(loss, adjacency):
    fit, rng = staged(loss, adjacency=adjacency, steps=2), np.random.default_rng(3)
    for query in requested(fit, 0):
        if "scores, step 2" not in query.name:
            continue

        def farthest(parameters, query=query):
            pair = np.reshape(parameters, (2, 4))
            return moved(query, [part_of(query, one[:3], one[3:]) for one in pair])

        far, _ = climb(farthest, 8, rng, restarts=1, screened=40)
        assert (0.3 if loss == "counts" else 0.4) < far <= 1.0 + 1e-9, query.name


def persons_at_random(rng, features, n):
    """People of one row to some that do not count: of unlike rows, of copies, and of rows that cancel."""
    for _ in range(n):
        k = int(rng.integers(1, MAX_ROWS + 3))
        sizes = 10.0 ** rng.uniform(-2.0, 3.0, (2, k, 1))
        x, y = sizes[0] * rng.normal(size=(k, features)), sizes[1] * rng.normal(size=(k, 1))
        yield from ((x, y), (np.tile(x[:1], (k, 1)), np.tile(y[:1], (k, 1))), (np.tile(x[:1], (k, 1)), y), (x, -y))


def farthest_persons(query):
    """Copies of the rows that move a sum farthest: as many as count, and more."""
    return [(np.tile(x, (k, 1)), np.tile(y, (k, 1))) for k in (3, 5) for x, y in farthest_people(query)]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(
    ("loss", "intercept"), [("huber", True), ("median", False), ("quantile", True), ("counts", True)]
)
def test_no_person_moves_any_stage_beyond_its_part(loss, intercept, adjacency):
    """With all their rows, of which three count."""
    fit = staged(loss, Size(600, 3, ""), adjacency=adjacency, intercept=intercept, steps=2, epsilon=8.0, several=True)
    rng, largest = np.random.default_rng(4), {}
    for query in requested(fit, 0):
        others = [*persons_at_random(rng, 3, 6), *farthest_persons(query), (np.zeros((1, 3)), [[0.6]])]
        far = moved(query, [part_of(query, *one, several=True) for one in others])
        assert far <= 1.0 + 1e-9, query.name
        assert getattr(query.mechanism, "unit", "person") == "person"
        largest[query.name] = far
    # Three slopes as long as they get are beyond the clip of a step, but on the rarer side of a quantile.
    is_uneven = loss == "quantile" and adjacency == "replace_one"
    for name, far in largest.items():
        shorter = (math.sqrt(MAX_ROWS) if name.startswith("scores") else 1.0) / 9.0 if is_uneven else 1.0
        if "sizes" in name:
            assert far > 0.999, name
        elif "scores" in name:
            assert far > (0.4 if loss == "counts" else 0.999 * (0.5 + 0.5 * shorter)), name
    assert sum("scores" in name for name in largest) >= 2


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_no_climb_finds_a_person_who_moves_a_sum_of_scores_farther(adjacency):
    fit = staged("quantile", Size(600, 3, ""), adjacency=adjacency, steps=1, epsilon=8.0, several=True)
    rng = np.random.default_rng(5)
    for query in requested(fit, 0):
        if query.name not in ("scores, step 1", "last level: scores, step 1"):
            continue

        def farthest(parameters, query=query):
            pair = np.reshape(parameters, (2, 2, 4))
            return moved(query, [part_of(query, one[:, :3], one[:, 3:], several=True) for one in pair])

        far, _ = climb(farthest, 16, rng, restarts=1, screened=40)
        assert 0.35 < far <= 1.0 + 1e-9, query.name


def test_noise_is_for_the_rounding_of_all_of_a_persons_rows_and_levels_are_not_clipped():
    fit = staged("quantile", Size(600, 3, ""), several=True, steps=1, epsilon=8.0)
    told = {query.name: query for query in requested(fit, 0) if "scores" in query.name}
    for query in told.values():
        clip, step = query.clip, query.statistic.keywords["step"]
        bound = residual_bound(clip, step, MAX_ROWS)
        assert query.mechanism.scale * query.mechanism.mu == pytest.approx(2.0 * bound, rel=1e-12)
    assert told["first level: scores, step 1"].clip == MAX_ROWS * fit.mechanism.longest_score
    length = told["scores, step 1"].statistic.keywords["step"].longest
    assert told["scores, step 1"].clip == length * fit.mechanism.longest_score * math.sqrt(MAX_ROWS)


def test_a_persons_first_row_alone_is_in_a_count_of_residuals():
    fit = staged("huber", Size(600, 3, ""), several=True, steps=1, epsilon=8.0)
    query = next(one for one in requested(fit, 0) if one.name.startswith("sizes of residuals"))
    rows = [[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]
    one, two = (part_of(query, rows[:k], [[0.0], [3.0]][:k], several=True).vector for k in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.count_nonzero(one) == 1


@pytest.mark.parametrize("loss", ["median", "counts"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("path", [*PATHS, "people have several rows"])
def test_all_stages_together_keep_to_the_budget_and_use_it_up(path, intercept, loss):
    several, size = path not in PATHS, PATHS.get(path, RESOLVED)
    adjacency = "add_remove" if intercept else "replace_one"
    fit = staged(loss, size, adjacency=adjacency, intercept=intercept or loss == "counts", several=several)
    whole = gaussian_mu(1.0, 1e-5)
    assert whole * (1.0 - 1e-9) <= compose_mu([query.mechanism.mu for query in requested(fit, 0)]) <= whole


@pytest.mark.parametrize("loss", ["median", "counts"])
@pytest.mark.parametrize("path", PATHS)
def test_sizes_of_tables_lead_to_stages_of_their_own(path, loss):
    fit = staged(loss, PATHS[path])
    names = [query.name for query in requested(fit, 0)]
    assert len(set(names)) == len(names)  # so that seeded noise differs
    of_few = loss == "counts" and path == "people are few"
    assert ("mean of outcomes, once more" if of_few else PATHS[path].known_by) in names
    found = fit.mechanism.solve(release(fit.mechanism, fit.statistic, noise.resolve_source(0), "fit"))
    assert (found.n_steps > 0) == ("scores, step 1" in names)
    if path == "people are few":
        np.testing.assert_array_equal(found.solution.coef, 0.0)
        assert abs(found.solution.intercept.item()) <= 2.0 * BOUND_Y


def test_what_is_asked_hangs_on_releases_and_public_numbers_alone():
    fit = staged("quantile")
    releases = release(fit.mechanism, fit.statistic, noise.resolve_source(6), "fit")
    x, y = table(seed=7)
    other = staged("quantile", rows=(100.0 * x, -y))
    for one in (fit, other):
        stages, is_enough = one.mechanism.stages(), []
        query = next(stages)
        for released in releases:
            is_enough.append((query.name, query.mechanism, query.clip))
            try:
                query = stages.send(released)
            except StopIteration as last:
                coef = last.value().solution.coef
        if one is fit:
            expected, found = is_enough, coef
    assert is_enough == expected
    np.testing.assert_array_equal(coef, found)


@pytest.mark.parametrize(
    ("loss", "skewed"), [("huber", True), ("median", True), ("quantile", True), ("quantile", False)]
)
def test_with_hardly_any_noise_the_minimiser_of_the_loss_is_found(loss, skewed):
    """The loss itself, of outcomes that are skewed, with rows far out that count for less."""
    rng = np.random.default_rng(8)
    x, _ = table(Size(20_000, 3, ""))
    e = rng.exponential(size=len(x)) if skewed else stats.t(3).rvs(len(x), random_state=rng)
    theta = np.array([0.8, -0.5, 0.3])
    y = np.clip(x @ theta + 0.3 * e, -BOUND_Y, BOUND_Y)
    fit = staged(loss, epsilon=500.0, rows=(x, y[:, None]))
    found = fit.mechanism.solve(release(fit.mechanism, fit.statistic, noise.resolve_source(1), "fit")).solution
    slopes = LOSSES[loss].derivative(x @ found.coef[0] + found.intercept[0], y)
    own = x @ theta
    # Where the slopes have no part along rows, or the constant, the loss is least; of the law, so far as rows tell.
    assert np.abs(np.mean(slopes)) < 3e-3
    assert np.max(np.abs(x.T @ slopes)) / len(x) < 3e-3
    assert np.std(x @ found.coef[0] - own) < 0.03


@pytest.mark.parametrize("is_true", [True, False])
def test_with_hardly_any_noise_rates_are_those_of_the_loss(is_true):
    """Of counts of the law itself, and of counts that no rates of this form are means of; a column is rare."""
    rng = np.random.default_rng(9)
    x, _ = table(Size(20_000, 3, ""))
    x[:, 2] = rng.random(len(x)) < 0.02
    z = x @ [1.5, -1.0, 1.0] - 0.9
    y = rng.poisson(np.exp(z) * (1.0 if is_true else rng.gamma(1.0, size=len(z)) * (1.0 + x[:, 0] ** 2)))
    fit = staged("counts", epsilon=500.0, rows=(x, y[:, None].astype(float)))
    found = fit.mechanism.solve(release(fit.mechanism, fit.statistic, noise.resolve_source(1), "fit")).solution
    slopes = LOSSES["counts"].derivative(x @ found.coef[0] + found.intercept[0], np.clip(y, 0.0, BOUND_Y))
    assert np.abs(np.mean(slopes)) < 3e-3
    assert np.max(np.abs(x.T @ slopes)) / len(x) < 3e-3


def test_coefficients_of_counts_stay_finite_whatever_noise_there_was():
    for seed in range(20):
        fit = staged("counts", Size(300, 3, ""), epsilon=3.0)
        found = fit.mechanism.solve(release(fit.mechanism, fit.statistic, noise.resolve_source(seed), "fit")).solution
        assert np.all(np.abs([*found.coef[0], found.intercept.item()]) < 50.0)


@pytest.mark.parametrize("path", list(PATHS))
def test_outcomes_in_other_units_have_coefficients_in_them(path):
    """Outcomes, their bound and the width of the loss are four times as large, and so is the fit: sums are exact."""
    for loss, wider in {"huber": SmoothedHuber(2.0), "median": SmoothedQuantile(0.5, 1.2)}.items():
        x, y = table(PATHS[path])
        fit, outcomes = staged(loss, rows=(x, y)), RowMap(bound=4.0 * BOUND_Y)
        scaled = replace(fit.mechanism, radii=(BOUND_X, 4.0 * BOUND_Y), outcome_map=outcomes, loss=wider)
        found = []
        for mechanism, rows in ((fit.mechanism, y), (scaled, 4.0 * y)):
            people = People(io.open_table(x, rows))
            people = replace(people, first=mechanism.sum_rows(people))

            def exact(query, people=people):
                summed = query.statistic(people)
                released = query.mechanism.release(summed, noise.resolve_source(0), query.name)
                return (
                    released if "sum" not in released.values else replace(released, values={"sum": summed.to_float64()})
                )

            found.append(answered(mechanism.stages(), exact)().solution)
        np.testing.assert_allclose(found[1].coef, 4.0 * found[0].coef, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found[1].intercept, 4.0 * found[0].intercept, rtol=1e-6)


def test_noise_of_a_step_has_the_calibrated_law():
    fit = staged("quantile")
    stage = next(query for query in requested(fit, 0) if query.name == "scores, step 1")
    exact, scale = stage.statistic(fit.statistic), stage.mechanism.scale
    source = noise.SeededSource(0)
    draws = np.ravel([stage.mechanism.release(exact, source, "step").values["sum"] for _ in range(500)])
    noises = (draws.reshape(500, -1) - exact.to_float64().ravel()) / scale
    # Fails for one seed in 10,000: it is fixed.
    assert stats.kstest(noises.ravel(), "norm").pvalue > 1e-4


def test_a_fit_is_the_same_for_any_threads_and_layout():
    x, y = table()
    order = np.random.default_rng(0).permutation(len(x))
    found = []
    for rows, threads in (((x, y), 1), ((np.asfortranarray(x), y), 2), ((x[order], y[order]), 3)):
        fit = staged("huber", rows=rows)
        people = replace(fit.statistic, n_threads=threads)
        found.append(fit.mechanism.solve(release(fit.mechanism, people, noise.resolve_source(2), "fit")).solution)
    for one in found[1:]:
        np.testing.assert_array_equal(one.coef, found[0].coef)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
@pytest.mark.parametrize(("n", "share", "most"), [(3000, 0.005, 25.0), (1000, 0.02, 60.0)])
def test_a_lone_rare_level_has_no_coefficient_that_only_noise_has_made(loss, n, share, most):
    """Coefficients were up to 470, for a level that changes outcomes by 1, and intercepts up to 230."""
    found = []
    for seed in range(11):
        rng = np.random.default_rng(seed)
        x = (rng.random((n, 1)) < share).astype(float)
        y = x[:, 0] + rng.normal(size=n)
        model = ObjectivePerturbationRegressor(1.0, 1e-6, box_x=(0.0, 1.0), bound_y=10.0, loss=loss, random_state=seed)
        model.fit(x, y)
        found.append([model.coef_.item(), float(model.intercept_)])
    coef, intercept = np.abs(found).max(axis=0)
    assert coef < most
    # However far off a coefficient is: the level has its own steps, about where the coefficient puts it.
    assert intercept < 1.0
