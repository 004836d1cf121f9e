"""Least squares in stages: each stage is calibrated for what one person moves it by, whatever was released before."""

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from stages import RESOLVED, Size, moved, part_of_person, queries, requested

from dpfast import MultiOutcomeRidge, Privacy, io, noise, statistics
from dpfast.privacy import UtilityWarning, compose_mu, gaussian_mu
from dpfast.releases.mechanism import release
from dpfast.releases.people import People
from dpfast.releases.staged_fit import Fit, clip_of_mean
from dpfast.releases.staged_regression import StagedRegression
from dpfast.solvers.inference import InferenceState
from dpfast.statistics.rows import RowMap

BOX = {"bound_x": None, "box_x": (-1.0, np.array([1.0, 3.0, 0.5]))}
PLAIN = {"fit_intercept": False}
OPTIONS = {
    "plain": {"bound_x": 2.0},
    "intercept": {"bound_x": 2.0, "fit_intercept": True},
    "box": BOX,
    "box and intercept": BOX | {"fit_intercept": True},
    "box within a bound, and intercept": BOX | {"bound_x": 1.5, "fit_intercept": True},
    "nonnegative": {"bound_x": 2.0, "nonnegative": True, "fit_intercept": True},
    "penalty": {"bound_x": 2.0, "ridge": 3.0},
    "people": {"bound_x": 2.0},
    "people, intercept": {"bound_x": 2.0, "fit_intercept": True},
    "people, clipped by person": {"bound_x": 2.0, "block_bounds": (2.0, 3.0)},
}
MAX_ROWS, BOUND_Y, OUTCOMES = 3, 3.0, 2


PATHS = {
    "X'X is resolved": RESOLVED,
    "X'X is not": Size(600, 60, "residuals, step 1"),
    "people are few": Size(240, 3, "mean length of rows"),
    "people are fewest": Size(40, 3, "mean of outcomes"),
}


def table(size=RESOLVED, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size.n_rows, size.features)) / math.sqrt(4.0 * size.features) + 0.1
    theta = rng.normal(size=(size.features, OUTCOMES))
    return x, x @ theta + 0.1 * rng.normal(size=(size.n_rows, OUTCOMES)) + 0.5


def owners(n):
    return np.arange(n) // 2


def staged(options, size=RESOLVED, *, adjacency="replace_one", delta=1e-5, steps=2, **changed):
    """What a fit has before its first release."""
    parameters = (
        {"bound_y": BOUND_Y, "adjacency": adjacency, "refine": steps, "fit_intercept": False}
        | OPTIONS[options]
        | changed
    )
    whose = (owners(size.n_rows), MAX_ROWS) if options.startswith("people") else (None, None)
    one = MultiOutcomeRidge(1.0, delta, **parameters)
    steps = None if steps == "auto" else steps
    return one._staged(Privacy(1.0, delta, adjacency), steps, People(io.open_table(*table(size)), *whose))


def part_of(query, x, y, several):
    """Return a person's part."""
    x, y = np.atleast_2d(x), np.atleast_2d(y)
    return part_of_person(query, People(io.open_table(x, y), *((np.zeros(len(x)), MAX_ROWS) if several else ())))


def people_at_random(rng, features, several, n=24):
    """People of all sizes, some beyond every bound, each with their mirror images."""
    for _ in range(n // 3):
        shape = int(rng.integers(1, MAX_ROWS + 3)) if several else 1
        x = rng.normal(size=(shape, features)) * 10.0 ** rng.uniform(-2.0, 3.0) / math.sqrt(features)
        y = rng.normal(size=(shape, OUTCOMES)) * 10.0 ** rng.uniform(-2.0, 3.0)
        if rng.random() < 0.3:
            x, y = np.tile(x[:1], (shape, 1)), np.tile(y[:1], (shape, 1))
        yield from ((x, y), (x, -y), (-x, -y))


def mirrored(query, rng):
    """Two people whose parts of a step are as long as its clip, and opposite: one just beyond it, one just within."""
    told = getattr(query.statistic, "keywords", {})
    if "step" not in told or "clip" not in told:
        return []
    step, clip = told["step"], told["clip"]
    for _ in range(200):
        x = 10.0 ** rng.uniform(-6.0, 0.0) * rng.normal(size=(1, 3)) + 0.3 * rng.random()
        row = np.append(step.map_x(x), 1.0)
        p, predicted = step.whitening @ row, step.theta.T @ row
        length = float(np.linalg.norm(p))
        away = rng.normal(size=OUTCOMES)
        away *= (step.beyond + clip) / length / np.linalg.norm(away)
        y = np.vstack([predicted + (1.0 + 1e-4) * away, predicted - (1.0 - 1e-4) * away])
        if length <= step.longest and np.allclose(step.map_y(y), y, rtol=1e-12):
            return [(x, y[:1]), (x, y[1:])]
    return []


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("options", OPTIONS)
def test_no_neighbour_moves_any_stage_beyond_its_part(options, delta, adjacency):
    several = options.startswith("people")
    fit = staged(options, adjacency=adjacency, delta=delta, steps=3)
    rng = np.random.default_rng(1)
    largest, attained = {}, set()
    for query in requested(fit, 0):
        pair = mirrored(query, rng)
        others = [*people_at_random(rng, 3, several), *pair]
        far = moved(query, [part_of(query, *one, several) for one in others])
        assert far <= 1.0 + 1e-9, query.name
        assert query.name not in largest
        largest[query.name] = far
        attained |= {query.name} if pair or "sizes" in query.name else set()
    # What is paid for is attained, in counts and by opposite people at a clip.
    assert len(attained) >= 4
    assert delta == 0.0 or options == "nonnegative" or "residuals, step 3" in attained
    assert all(largest[name] > 0.999 for name in attained), {name: largest[name] for name in attained}


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", ["plain", "intercept", "people", "people, intercept"])
def test_none_does_however_many_people_there_are_and_whatever_was_released(options, path, adjacency):
    several, size = options.startswith("people"), PATHS[path]
    fit = staged(options, size, adjacency=adjacency, steps=2)
    rng = np.random.default_rng(2)
    for seed, wild in ((0, 0.0), (1, 1.0), (2, 4.0)):
        for query in requested(fit, seed, wild):
            others = people_at_random(rng, size.features, several, 12)
            assert moved(query, [part_of(query, *one, several) for one in others]) <= 1.0 + 1e-9, query.name


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("options", ["intercept", "box within a bound, and intercept", "people, clipped by person"])
def test_no_climb_finds_a_neighbour_that_moves_a_stage_farther(options, adjacency):
    several = options.startswith("people")
    fit = staged(options, adjacency=adjacency, steps=2)
    rng = np.random.default_rng(3)
    rows = 2 if several else 1
    for query in requested(fit, 0):
        if "sizes" in query.name or "numbers" in query.name or query.name.endswith("step 1"):
            continue

        def farthest(parameters, query=query):
            pair = np.reshape(parameters, (2, rows, 3 + OUTCOMES))
            return moved(query, [part_of(query, one[:, :3], one[:, 3:], several) for one in pair])

        far, _ = climb(farthest, 2 * rows * (3 + OUTCOMES), rng, restarts=1, screened=40)
        assert far <= 1.0 + 1e-9, query.name
        assert far > 0.4, query.name


@pytest.mark.parametrize("steps", ["auto", 1, 2, 5])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", ["plain", "intercept", "people", "people, intercept"])
def test_all_stages_together_keep_to_the_budget(options, path, steps):
    fit = staged(options, PATHS[path], steps=steps)
    # Histograms before steps that are not taken have a share too.
    least = 1.0 - 1e-9 if steps in ("auto", 5) else 0.95
    whole = gaussian_mu(1.0, 1e-5)
    assert whole * least <= compose_mu([query.mechanism.mu for query in requested(fit, 0)]) <= whole
    if steps != "auto":
        pure = staged(options, PATHS[path], steps=steps, delta=0.0)
        costs = [query.mechanism.privacy for query in requested(pure, 0)]
        assert all(cost.delta == 0.0 for cost in costs)
        assert least <= math.fsum(cost.epsilon for cost in costs) <= 1.0


@pytest.mark.parametrize(("options", "is_whole"), [("plain", False), ("people", True)])
def test_of_people_with_several_rows_the_excess_is_that_of_the_whole_part(options, is_whole):
    """The sum of what exceeds the clip in each row would not be what exceeds it in the person's part."""
    (step,) = [q.statistic.keywords["step"] for q in requested(staged(options), 0) if q.name == "excess of residuals"]
    assert (step.beyond == 0.0) == is_whole


@pytest.mark.parametrize("options", [options for options in OPTIONS if options != "penalty"])
def test_linear_outcomes_are_found_exactly_with_hardly_any_noise(options):
    """Whatever rows are centred at, whitened by, and held to."""
    x = 0.3 * table()[0]
    x = np.abs(x) if options == "nonnegative" else x
    theta = np.array([[0.5, -1.0], [0.2, 0.3], [0.6, 0.1]]) if options != "nonnegative" else np.full((3, 2), 0.3)
    level = np.array([0.5, 0.7]) if OPTIONS[options].get("fit_intercept") else np.zeros(2)
    whose = (np.arange(len(x)), 1) if options.startswith("people") else ()
    one = MultiOutcomeRidge(1e6, 1e-5, bound_y=BOUND_Y, random_state=0, **PLAIN | OPTIONS[options])
    one.fit(x, x @ theta + level, *whose)
    np.testing.assert_allclose(one.coef_, theta.T, atol=1e-3)
    np.testing.assert_allclose(one.intercept_, level, atol=1e-3)


@pytest.mark.parametrize("path", PATHS)
def test_sizes_of_tables_lead_to_stages_of_their_own(path):
    fit = staged("intercept", PATHS[path])
    names = [query.name for query in requested(fit, 0)]
    assert len(set(names)) == len(names)  # so that seeded noise differs
    known = {size.known_by for size in PATHS.values()} & set(names)
    assert PATHS[path].known_by in known
    assert known <= {PATHS[path].known_by, "residuals, step 1", "mean of outcomes"}
    fitted = release(fit.mechanism, fit.statistic, noise.resolve_source(0), "fit")
    found = fit.mechanism.solve(fitted)
    assert found.n_steps == (0 if path == "people are fewest" else 2)
    if path == "people are fewest":
        np.testing.assert_array_equal(found.solution.coef, 0.0)
        assert np.all(np.isnan(found.solution.coef_std))
        assert np.all(np.abs(found.solution.intercept) <= BOUND_Y)


@pytest.mark.parametrize("options", ["intercept", "people"])
def test_what_is_released_is_all_that_is_told(options):
    fit = staged(options)
    releases = release(fit.mechanism, fit.statistic, noise.resolve_source(5), "fit")
    fitted = MultiOutcomeRidge(1.0, 1e-5, bound_y=BOUND_Y, refine=2, random_state=5, **PLAIN | OPTIONS[options])
    whose = (owners(RESOLVED.n_rows), MAX_ROWS) if options.startswith("people") else ()
    fitted.fit(*table(), *whose)
    assert fitted.n_steps_ == 2
    names = [[one.name.partition(": ")[2] for one in told] for told in (releases, fitted.releases_)]
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])
    # A mechanism that has seen no rows, or others, tells the same of them.
    other = staged(options).mechanism.solve(fitted.releases_).solution
    np.testing.assert_array_equal(fit.mechanism.solve(fitted.releases_).solution.coef, other.coef)
    np.testing.assert_array_equal(other.coef, fitted.coef_)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", ["plain", "people, intercept"])
def test_what_is_asked_hangs_on_releases_and_public_numbers_alone(options, path):
    fit = staged(options, PATHS[path], steps="auto")
    releases = release(fit.mechanism, fit.statistic, noise.resolve_source(6), "fit")

    x, y = table(PATHS[path], seed=7)
    whose = (fit.statistic.groups, fit.statistic.max_rows)
    one = MultiOutcomeRidge(1.0, 1e-5, bound_y=BOUND_Y, **PLAIN | OPTIONS[options])
    other = one._staged(Privacy(1.0, 1e-5), None, People(io.open_table(100.0 * x, -y), *whose))
    told = list(queries(fit.mechanism, releases))
    assert told == list(queries(other.mechanism, releases))
    assert [name for name, _, _ in told] == [one.name.partition(": ")[2] for one in releases]


def test_steps_that_are_asked_for_are_taken():
    for steps in (1, 3, 7):
        names = [query.name for query in requested(staged("plain", steps=steps), 0)]
        assert sum(name.startswith("residuals, step") for name in names) == steps


@pytest.mark.parametrize("options", ["intercept", "people, intercept"])
def test_a_fit_is_the_same_for_any_threads_layout_and_blocks(options):
    x, y = table()
    several = options.startswith("people")
    whose = (owners(len(x)), MAX_ROWS) if several else ()
    one = MultiOutcomeRidge(1.0, 1e-5, bound_y=BOUND_Y, refine=2, random_state=5, **PLAIN | OPTIONS[options])
    expected = one.fit(x, y, *whose).coef_.copy()
    order = np.random.default_rng(0).permutation(len(x))
    tables = [(np.asfortranarray(x), y), (x[::-1], y[::-1]), (x[order], y[order])]
    tables = tables if several else [*tables, ([(x[:700], y[:700]), (x[700:], y[700:])], None)]
    ids = [owners(len(x)), owners(len(x))[::-1], owners(len(x))[order], None]
    for (rows, outcomes), groups in zip(tables, ids, strict=False):
        again = one.fit(rows, outcomes, *((groups, MAX_ROWS) if several else ()))
        np.testing.assert_array_equal(again.coef_, expected)
    np.testing.assert_array_equal(one.set_params(n_threads=3).fit(x, y, *whose).coef_, expected)


@pytest.mark.parametrize("options", ["intercept", "people", "penalty", "box and intercept"])
@pytest.mark.parametrize("sizes", [(1e-60, 1.0), (1.0, 1e-60), (1e60, 1e-60), (1e60, 1e60), (1e-60, 1e60)])
def test_extreme_bounds_are_solved_without_a_warning(options, sizes):
    x, y = table()
    whose = (owners(len(x)), MAX_ROWS) if options.startswith("people") else (None, None)
    changed = {"bound_y": BOUND_Y * sizes[1]}
    if "box_x" in OPTIONS[options]:
        changed["box_x"] = tuple(np.asarray(side) * sizes[0] for side in OPTIONS[options]["box_x"])
    else:
        changed["bound_x"] = 2.0 * sizes[0]
    for rows, outcomes in ((x * sizes[0], y * sizes[1]), (np.zeros_like(x), np.zeros_like(y)), (x * 1e-9, y * 1e9)):
        one = MultiOutcomeRidge(1.0, 1e-5, **PLAIN | OPTIONS[options] | changed)
        fit = one._staged(Privacy(1.0, 1e-5), 3, People(io.open_table(rows, outcomes), *whose))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            releases = release(fit.mechanism, fit.statistic, noise.resolve_source(0), "fit")
            found = fit.mechanism.solve(releases)
        for told in (found.solution.coef, found.solution.intercept):
            assert np.all(np.isfinite(told))
        assert np.all(
            np.isfinite(found.solution.coef_std) if found.inference_states else np.isnan(found.solution.coef_std)
        )


@pytest.mark.parametrize("path", ["X'X is resolved", "X'X is not"])
@pytest.mark.parametrize("options", ["plain", "intercept"])
def test_a_fit_ends_whatever_was_released_beside_the_largest_bounds(options, path):
    """Coefficients may be so large that what they predict would overflow: then less is taken of them."""
    for seed in range(6):
        names = [query.name for query in requested(staged(options, PATHS[path], steps=4, bound_y=9e69), seed, 8.0)]
        assert "residuals, step 4" in names


def test_a_lucky_count_of_few_people_does_not_shorten_their_rows_to_nothing():
    """Noise that follows Laplace's law is far out in one of forty bins as often as not."""
    fit, noises = staged("plain", Size(300, 3, ""), delta=0.0, steps=1), []
    for seed in range(60):
        noises += [query.mechanism.scales["xx"] for query in requested(fit, seed) if query.name == "moments"]
    assert len(noises) == 60
    assert min(noises) > 0.01 * max(noises)


def test_a_rare_level_has_weight_where_it_is_the_only_column():
    """One in fifty is not seen among lengths of rows; coefficients were off by 20 and more, often without a warning."""
    off = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = (rng.random((5_000, 1)) < 0.02).astype(float)
        model = MultiOutcomeRidge(1.0, 1e-6, box_x=(0.0, 1.0), bound_y=20.0, random_state=seed)
        off.append(model.fit(x, x[:, 0] + rng.normal(size=5_000)).coef_[0] - 1.0)
    assert max(map(abs, off)) < 2.5


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("size", [Size(40, 1, ""), Size(40, 2, "")])
def test_a_fit_ends_where_noise_hides_all_rows(size, delta):
    """Of one or two features, all that is released of X'X is negative as often as not."""
    x, y = table(size)
    for seed in range(12):
        one = MultiOutcomeRidge(
            1.0, delta, bound_x=2.0, bound_y=BOUND_Y, refine=2, random_state=seed, fit_intercept=False
        )
        fitted = one.fit(0.01 * x, y)
        assert np.all(np.isfinite(fitted.coef_))
        assert np.all(np.isfinite(fitted.coef_std_)) or np.all(np.isnan(fitted.coef_std_))


def test_nothing_is_said_of_coefficients_where_moments_are_not_told_from_their_noise():
    """How far descent came is not known then: no limits, no p-values, and no word of noise alone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 16)) * 0.6 + 0.8 * rng.normal(size=(700, 1))
    y = x @ np.array([0.4, -0.4, 0.2, *np.zeros(12), 0.1]) + rng.normal(size=700)
    unknown = 0
    for seed in range(12):
        one = MultiOutcomeRidge(1.0, 1e-6, bound_x=8.0, bound_y=4.0, fit_intercept=True, random_state=seed).fit(x, y)
        told = one.summary().drop(index="(intercept)")
        assert np.all(np.isfinite(one.coef_))
        if np.all(np.isnan(one.coef_std_)):
            assert told.isna().all(axis=None)
            unknown += 1
        else:
            # The noise is known then; where a coefficient is not, its law is unknown as a whole.
            law = told.drop(columns="std_privacy").isna()
            assert told["std_privacy"].notna().all()
            assert (law.any(axis=1) == law.all(axis=1)).all()
    assert 4 <= unknown <= 11
    many = MultiOutcomeRidge(30.0, 1e-6, bound_x=8.0, bound_y=4.0, fit_intercept=True, random_state=0).fit(x, y)
    assert np.all(np.isfinite(many.summary().loc[0:, "low":"p_value"].to_numpy(float)))


def test_noise_in_moments_counts_by_the_distance_from_where_steps_were_taken():
    """Steps were taken near the coefficients: errors do not follow from how large these are."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(20_000, 5))
    theta = np.array([1.0, -1.0, 0.5, 0.8, 0.0])
    one = MultiOutcomeRidge(1.0, 1e-6, bound_x=3.0, bound_y=5.0, fit_intercept=False, random_state=0)
    told = InferenceState(**one.fit(x, x @ theta + rng.normal(size=20_000))._inference_states[0]).with_steps()
    assert np.linalg.norm(told.start - told.xy) < 0.2 * np.linalg.norm(told.xy)
    laws = [
        each.posterior(one.residual_std_**2, 0.95, of_population=True) for each in (told, replace(told, start=None))
    ]
    assert np.all(laws[0].deviation < 0.9 * laws[1].deviation)


def test_fewest_people_get_a_mean_in_two_parts_with_all_that_there_is():
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, fit_intercept=True, random_state=0)
    few = one.fit(*table(PATHS["people are fewest"]))
    assert few.n_steps_ == 0
    names = ["mean of outcomes", "mean size of residuals", "last residuals"]
    assert [one.name.partition(": ")[2] for one in few.releases_] == names
    assert compose_mu([one.mu for one in few.releases_]) == pytest.approx(gaussian_mu(1.0, 1e-5))
    pure = MultiOutcomeRidge(1.0, 0.0, bound_x=2.0, bound_y=BOUND_Y, refine=2, random_state=0)
    names = [one.name.partition(": ")[2] for one in pure.fit(*table(Size(30, 3, ""))).releases_]
    assert names == ["mean of outcomes"]
    many = one.fit(*table())
    assert many.n_steps_ > 0


@pytest.mark.parametrize(("refine", "steps"), [("auto", 30), (4, 4)])
def test_a_few_more_get_steps_and_no_moments(refine, steps):
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, refine=refine, random_state=0)
    few = one.fit(*table(PATHS["people are few"]))
    assert few.n_steps_ == steps
    assert [one.name.partition(": ")[2] for one in few.releases_] == [
        "means of rows and outcomes",
        "mean length of rows",
        "mean size of residuals",
        *(f"residuals, step {1 + number}" for number in range(steps)),
        "last residuals",
    ]
    assert compose_mu([one.mu for one in few.releases_]) == pytest.approx(gaussian_mu(1.0, 1e-5))
    # What is known of the noise is not enough for limits.
    assert np.all(np.isnan(few.coef_std_))
    assert few.residual_std_ is None


def few(kind, rng, n=520):
    """Rows, outcomes and their bound: a rate of 30%, rare events of large sizes, or even errors."""
    x = rng.normal(size=(n, 4))
    signal = x @ [0.5, 0.0, -0.4, 0.3]
    if kind == "rate":
        return x, (rng.random(n) < 0.3 * np.exp(0.4 * signal)).astype(float), 1.0
    if kind == "claims":
        return x, (rng.random(n) < 0.3 * np.exp(0.4 * signal)) * np.exp(0.4 * signal + 1.2 * rng.normal(size=n)), 15.0
    errors = rng.normal(size=n) if kind == "normal" else rng.standard_t(3, size=n) / math.sqrt(3.0)
    return x, signal + 0.7 * errors, 2.5 if kind == "normal" else 5.0


def fits_of_few(kind, fits=15):
    """Return by how many deviations of outcomes mean predictions are off, and how many fits warned."""
    rng, off, warned = np.random.default_rng(2), [], 0
    for seed in range(fits):
        x, y, bound = few(kind, rng)
        one = MultiOutcomeRidge(1.0, 1e-6, box_x=(-4.0, 4.0), bound_y=bound, random_state=seed)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            one.fit(x, y)
        assert one.n_steps_ == 30
        warned += any(issubclass(one.category, UtilityWarning) for one in found)
        off.append((one.predict(x).mean() - y.mean()) / y.std())
    return np.array(off), warned


def test_few_people_get_a_rate_where_the_released_mean_tells_it_from_the_middle():
    """Steps lead to the middle of outcomes, which is 0 if most are."""
    off, _ = fits_of_few("rate")
    assert abs(off.mean()) < 0.35
    off, _ = fits_of_few("normal")
    assert math.sqrt(np.mean(off**2)) < 0.12


def test_few_people_are_warned_of_skewed_outcomes_and_not_of_even_ones():
    assert fits_of_few("claims")[1] >= 14
    assert fits_of_few("normal")[1] == fits_of_few("heavy")[1] == 0


@pytest.mark.parametrize(
    ("outcome", "most"),
    [(lambda rng: rng.gamma(0.8, 1.0, (300, 1)), 1.3), (lambda rng: 8.0 + rng.normal(size=(300, 1)), 2.0)],
)
def test_a_bound_far_above_outcomes_or_outcomes_far_from_zero_leave_fewest_people_their_mean(outcome, most):
    """The noise of a mean of outcomes clipped to their bound alone is larger than they are."""
    rng = np.random.default_rng(0)
    errors = []
    for seed in range(6):
        y = outcome(rng)
        one = MultiOutcomeRidge(0.3, 1e-6, box_x=(-1.0, 1.0), bound_y=16.0, random_state=seed)
        with pytest.warns(UtilityWarning):
            one.fit(rng.uniform(-1.0, 1.0, (300, 4)), y)
        errors.append(1.0 + (one.intercept_[0] - y.mean()) ** 2 / y.var())
    assert np.mean(errors) < most


def test_few_people_with_skewed_outcomes_get_their_mean_and_not_their_middle():
    rng, off = np.random.default_rng(0), []
    for seed in range(4):
        y = np.where(rng.random(300) < 0.8, 0.0, rng.gamma(3.0, 1.0, 300))
        one = MultiOutcomeRidge(1.0, 1e-6, box_x=(-1.0, 1.0), bound_y=20.0, adjacency="add_remove", random_state=seed)
        with pytest.warns(UtilityWarning):
            one.fit(rng.uniform(-1.0, 1.0, (300, 4)), y)
        off.append(one.intercept_[0] - y.mean())
    assert abs(np.mean(off)) < 0.25


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", ["mean length of rows", "mean size of residuals"])
@pytest.mark.parametrize("options", ["intercept", "people, intercept"])
def test_a_mean_of_few_people_is_moved_by_half_its_range_and_no_further(options, name, adjacency):
    """By people with nothing, and by those with the longest rows and outcomes off by their bound."""
    several, rng = options.startswith("people"), np.random.default_rng(3)
    size = Size(130 if adjacency == "add_remove" else 240, 3, "")
    fit = staged(options, size._replace(n_rows=size.n_rows * (2 if several else 1)), adjacency=adjacency)
    rows = MAX_ROWS if several else 1
    far = np.tile(np.full((1, 3), 9.0), (rows, 1))
    largest = 0.0
    # A number of people that is released may be of many; and rows may seem long beside the longest.
    for query in (one for seed in range(20) for one in requested(fit, seed) if one.name == name):
        level = query.statistic.keywords["step"].theta[-1] if name.endswith("residuals") else np.zeros(OUTCOMES)
        none = np.zeros((rows, 3)), np.tile(level, (rows, 1))
        away = far, np.tile(-np.sign(level + (level == 0.0)) * 1e3, (rows, 1))
        parts = [part_of(query, *one, several) for one in (none, away, *people_at_random(rng, 3, several))]
        largest = max(largest, moved(query, parts))
    assert largest == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("options", ["intercept", "box within a bound, and intercept", "people, intercept"])
def test_no_neighbour_of_few_who_are_centered_moves_a_stage_beyond_its_part(options, adjacency):
    several, rng = options.startswith("people"), np.random.default_rng(4)
    size = Size((200 if adjacency == "add_remove" else 400) * (2 if several else 1), 3, "")
    fit = staged(options, size, adjacency=adjacency, steps=12)
    for seed, wild in ((0, 0.0), (1, 1.0)):
        names = []
        for query in requested(fit, seed, wild):
            names.append(query.name)
            pair = mirrored(query, rng)
            others = [*people_at_random(rng, 3, several, 6), *([] if several else pair)]
            assert moved(query, [part_of(query, *one, several) for one in others]) <= 1.0 + 1e-9, query.name
        assert wild or {"means of rows and outcomes", "mean length of rows", "residuals, step 12"} <= set(names)


def test_few_people_lose_what_is_planned_and_never_to_a_constant():
    """Of tables of their own kinds, with outcomes well within their bound and far off its middle."""
    rng, ratios = np.random.default_rng(5), []
    for d, scale, level in ((2, 0.3, 0.0), (6, 0.3, 0.4), (12, 0.1, -0.6)):
        x = rng.uniform(-1.0, 1.0, (300, d))
        signal = x @ rng.normal(size=d) / math.sqrt(d)
        y = scale * (signal + 0.3 * rng.normal(size=300)) + level
        off = []
        for seed in range(10):
            one = MultiOutcomeRidge(1.0, 1e-6, box_x=(-1.0, 1.0), bound_y=1.0, random_state=seed).fit(x, y)
            assert one.n_steps_ == 30
            off.append(np.mean((one.predict(x).ravel() - scale * signal - level) ** 2))
        ratios.append(np.mean(off) / (scale * signal).var())
    assert max(ratios) < 0.9
    planned = MultiOutcomeRidge.plan(300, 6, 1, epsilon=1.0, delta=1e-6, box_x=(-1.0, 1.0), bound_y=1.0)
    assert 0.5 < np.mean(ratios) / (planned.expected_error / 0.6) < 2.0


@pytest.mark.parametrize("steps", [2, 30])
def test_a_given_number_of_steps_is_planned_as_one_that_is_the_most(steps):
    """The same people are few for both, and are expected to lose the same."""
    fit = staged("intercept", steps=None).mechanism
    given, most = replace(fit, n_steps=steps), replace(fit, most_steps=steps)
    for resolution in (50.0, 79.0, 81.0, 149.0, 151.0, 400.0):
        people = resolution / fit.mu
        assert given.expected_loss(people, 0.5) == most.expected_loss(people, 0.5)
        first, other = (next(one._fitted(one.privacy, people, people)).name for one in (given, most))
        assert first == other


@pytest.mark.parametrize("options", ["plain", "intercept"])
def test_the_more_outcomes_follow_features_the_less_is_lost(options):
    """Noise is in proportion to residuals: without any, nothing is lost of many people."""
    fit = staged(options).mechanism
    lost = [fit.expected_loss(4_000, score) for score in (0.0, 0.5, 0.9, 0.99, 1.0)]
    assert lost[-1] == 0.0 or options == "intercept"
    assert lost == sorted(lost, reverse=True)
    assert lost[3] < 0.05 * lost[0]


@pytest.mark.parametrize("options", ["plain", "intercept"])
def test_what_a_hidden_bias_moves_predictions_by_is_half_lost(options, monkeypatch):
    """Its expected square along any direction of each outcome, over the squared predictions about their mean."""
    rng, shares, told = np.random.default_rng(0), [], Fit._regression

    def beside_a_bias(fit, solved, level, found, coordinates, *others):
        moved = 0.02 * rng.normal(size=(OUTCOMES, len(solved.coef)))
        biases = None, moved[:, :, None] * moved[:, None, :]
        none, some = (told(fit, solved, level._replace(bias=one), found, coordinates, *others) for one in biases)
        coef = np.hstack([coordinates.whitening.T @ moved.T, solved.coef])
        squares = np.sum(coef * (coordinates.of_features @ coef), axis=0)
        shares.append(
            (
                some.expected_error - none.expected_error,
                0.5 * fit.shrunk_variance * squares[:OUTCOMES].sum() / squares[OUTCOMES:].sum(),
            )
        )
        return none

    monkeypatch.setattr(Fit, "_regression", beside_a_bias)
    parameters = {"bound_y": BOUND_Y, "refine": 2} | PLAIN | OPTIONS[options]
    MultiOutcomeRidge(30.0, 1e-5, random_state=0, **parameters).fit(*table())
    ((found, expected),) = shares
    assert 1e-4 < expected < 0.5
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_table_that_can_be_read_only_once_gets_no_steps():
    x, y = table()
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, random_state=0, fit_intercept=False)
    assert one.fit(x, y).n_steps_ > 0
    assert one.fit(iter([x]), iter([y])).n_steps_ == 0
    blocks = [(x[:10], y[:10]), (x[10:], y[10:])]
    assert 0 < one.fit(blocks, None).n_steps_ <= one.fit(x, y).n_steps_
    with pytest.raises(ValueError, match="read only once"):
        MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, refine=1, fit_intercept=False).fit(
            iter([x]), iter([y])
        )


def test_people_with_several_rows_get_the_same_steps_from_any_kind_of_table(tmp_path):
    x, y = table()
    ids = owners(len(x))
    frame = pd.DataFrame(np.column_stack([x, y]), columns=["a", "b", "c", "d", "e", "f"][: x.shape[1] + y.shape[1]])
    names = list(frame.columns)
    frame.assign(id=ids).to_csv(tmp_path / "table.csv", index=False)
    columns = io.Columns(names[: x.shape[1]], names[x.shape[1] :])
    one = MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, random_state=0)
    known = one.fit(x, y, ids, 3)
    assert known.n_steps_ > 0
    coef = known.coef_
    tables = [
        (columns.encode(frame), None),
        (columns.encode(tmp_path / "table.csv"), None),
        ([(x[:10], y[:10]), (x[10:], y[10:])], None),
        (iter([x]), iter([y])),
    ]
    for given in tables:
        np.testing.assert_array_equal(one.fit(*given, ids, 3).coef_, coef)
    of_file = one.fit(*tables[1], io.RowOwners(tmp_path / "table.csv", "id"), 3)
    np.testing.assert_array_equal(of_file.coef_, coef)


def test_sums_have_no_steps():
    x, y = table()
    sums = statistics.gram(x, y, bound_x=2.0, bound_y=BOUND_Y)
    assert MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, fit_intercept=False).fit_gram(sums).n_steps_ == 0
    with pytest.raises(ValueError, match="refine needs the rows"):
        MultiOutcomeRidge(1.0, 1e-5, bound_x=2.0, bound_y=BOUND_Y, refine=1, fit_intercept=False).fit_gram(sums)


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


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_parts_are_clipped_to_the_size_that_as_many_people_exceed_as_asked(share):
    edges = 2.0 ** np.arange(0.0, 8.0, 0.5)
    beyond = np.linspace(1.0, 0.0, len(edges))
    counts = np.append(0.0, 10**6 * (beyond[:-1] - beyond[1:]))

    def sizes(*_):
        yield
        return counts, edges, 1.0

    fit = SimpleNamespace(_largest_part=lambda longest: longest, _residual_sizes=sizes, n_people=10**6)
    asking = Fit._clip(fit, "sizes", None, SimpleNamespace(longest=1.0), share)
    next(asking)
    with pytest.raises(StopIteration) as told:
        next(asking)
    found = told.value.value
    assert found.counted[0] is counts
    place = np.interp(1.0 - share, 1.0 - beyond, np.arange(len(edges)))
    assert abs(2.0 * math.log2(found.clip) - place) <= 1.01


@pytest.mark.parametrize("has_constant", [True, False])
def test_moments_about_means_are_those_of_centred_columns(has_constant):
    """Weighted by the square of the last column if it is a constant; else rows are centred already."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(50, 3)) + 2.0, rng.uniform(0.5, 2.0, 50)
    mechanism = SimpleNamespace(has_constant=has_constant)
    if not has_constant:
        given = SimpleNamespace(of_features=x.T @ x, center=np.ones(3))
        products, squares, means, number = Fit._about_means(SimpleNamespace(mechanism=mechanism, rows=50.0), given)
        assert (means is given.center, number) == (True, 50.0)
        np.testing.assert_allclose(products, x.T @ x)
        np.testing.assert_allclose(squares, np.sum(x**2, axis=0))
        return
    rows = np.column_stack([x, np.ones(50)])
    given = SimpleNamespace(of_features=rows.T @ (weights[:, None] * rows))
    products, squares, means, number = Fit._about_means(SimpleNamespace(mechanism=mechanism), given)
    about = rows - np.append(np.average(x, axis=0, weights=weights), 0.0)
    np.testing.assert_allclose(means, (rows - about)[0])
    np.testing.assert_allclose(products, rows.T @ (weights[:, None] * about), atol=1e-12)
    np.testing.assert_allclose(squares, weights @ about**2)
    assert number == pytest.approx(weights.sum())


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("limit", "beyond"), [(1e-70, 0.0), (1e70, math.inf)])
def test_radii_up_to_either_limit_are_taken_and_no_others(limit, beyond, place):
    def mechanism(length):
        radii = (length, 1.0) if place == 0 else (1.0, length)
        maps = (RowMap(bound=radius) for radius in radii)
        return StagedRegression(Privacy(1.0, 1e-5), (3, 2), radii, *maps)

    mechanism(limit)
    with pytest.raises(ValueError, match="must lie between 1e-70 and 1e70"):
        mechanism(math.nextafter(limit, beyond))


def test_a_clip_of_a_mean_is_wide_where_counts_show_people_there_and_else_short():
    sizes = np.exp2(np.arange(-8, 1) / 2.0)
    counts = np.array([200.0, 30.0, 20.0, 0.0, -5.0, 5.0, 3.0, -8.0, 10.0])
    assert clip_of_mean(counts, 10.0, sizes, 20.0) < 0.2
    # As many as zeros and ones have at their end.
    counts[-1] = 100.0
    assert clip_of_mean(counts, 10.0, sizes, 20.0) == 1.0
    # Not if the noise in that mean is more than the bias.
    assert clip_of_mean(counts, 10.0, sizes, 2000.0) < 0.2


def test_a_lone_rare_level_has_no_coefficient_that_only_noise_has_made():
    """Coefficients were up to 91, for a level that changes outcomes by 1, and half of the fits did not warn."""
    found, n_warned = [], 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        x = (rng.random((3000, 1)) < 0.005).astype(float)
        y = x[:, 0] + rng.normal(size=3000)
        model = MultiOutcomeRidge(1.0, 1e-6, box_x=(0.0, 1.0), bound_y=20.0, random_state=seed)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found.append(model.fit(x, y).coef_.item())
        n_warned += any(issubclass(one.category, UtilityWarning) for one in said)
    assert np.abs(found).max() < 12.0
    assert np.sqrt(np.mean(np.square(found))) < 4.0
    assert n_warned >= 14
