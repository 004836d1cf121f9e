"""Plans of objective perturbation say what score to expect."""

import numpy as np
import pytest

from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.solvers import L2Ball

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
D = 5
SHORT = {"bound_x": 1.3 * np.sqrt(D)}


def rows(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, D))
    x *= np.minimum(1.0, SHORT["bound_x"] / np.linalg.norm(x, axis=1))[:, None]
    return rng, x, x @ np.full(D, D**-0.5)


@pytest.mark.parametrize("loss", ["squared", "huber", "quantile"])
@pytest.mark.parametrize("n", [300, 1000, 5000])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_planned_r2_is_the_one_that_comes(adjacency, n, loss):
    rng, x, signal = rows(n)
    score = 0.6
    y = signal + np.sqrt(np.var(signal) * (1.0 / score - 1.0)) * rng.normal(size=n)
    options = BUDGET | SHORT | {"bound_y": 2.0 * np.std(y), "constraint": L2Ball(2.0), "loss": loss}
    options |= {"adjacency": adjacency}
    plan = ObjectivePerturbationRegressor.plan(n, D, score=score, **options)
    found = [ObjectivePerturbationRegressor(random_state=seed, **options).fit(x, y).score(x, y) for seed in range(12)]
    assert np.mean(found) == pytest.approx(plan.expected_score, abs=0.21)
    assert plan.score == score
    assert f"a score of 0.6 without privacy becomes {plan.expected_score:.2g}" in str(plan)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("n", [300, 1000, 5000])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_planned_accuracy_is_the_one_that_comes(adjacency, n, loss):
    rng, x, signal = rows(n)
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * signal))
    score = float(np.mean(y == (signal > 0.0)))
    options = BUDGET | SHORT | {"classes": [False, True], "loss": loss, "adjacency": adjacency}
    plan = ObjectivePerturbationClassifier.plan(n, D, score=score, **options)
    found = [ObjectivePerturbationClassifier(random_state=seed, **options).fit(x, y).score(x, y) for seed in range(12)]
    assert np.mean(found) == pytest.approx(plan.expected_score, abs=0.06)


def test_a_plan_with_standard_errors_is_of_what_they_leave():
    """The fit has what remains of the budget: so many more people are needed."""
    options = BUDGET | SHORT | {"bound_y": 2.0, "loss": "huber"}
    alone, beside = (ObjectivePerturbationRegressor.plan(1000, D, inference=paid, **options) for paid in (False, True))
    assert beside.expected_error > 1.1 * alone.expected_error
    assert beside.needed_n > 1.1 * alone.needed_n
    assert "budget share of standard errors: 0.4" in str(beside)
    assert "budget share" not in str(alone)


@pytest.mark.parametrize("n", [1000, 5000])
def test_the_planned_r2_of_counts_is_the_one_that_comes(n):
    rng, x, signal = rows(n)
    rate = np.exp(1.0 + 0.6 * signal)
    y = rng.poisson(rate)
    score = float(np.var(rate) / np.var(y))
    options = BUDGET | SHORT | {"bound_y": 2.0 * np.sqrt(np.mean(y**2.0)), "loss": "poisson", "fit_intercept": True}
    plan = ObjectivePerturbationRegressor.plan(n, D, score=score, **options)
    found = [ObjectivePerturbationRegressor(random_state=seed, **options).fit(x, y).score(x, y) for seed in range(12)]
    assert np.mean(found) == pytest.approx(plan.expected_score, abs=0.21)


def test_a_plan_near_guessing_expects_a_guess():
    """Margins are then within the straight part of a loss, which tells nothing of them."""
    options = BUDGET | SHORT | {"classes": [0, 1], "loss": "hinge"}
    assert ObjectivePerturbationClassifier.plan(1000, D, score=0.502, **options).expected_score == 0.5


def test_planned_scores_fall_from_the_assumed_one_to_guessing():
    four = BUDGET | SHORT | {"classes": list("abcd"), "method": "objective"}
    scores = [ObjectivePerturbationClassifier.plan(n, D, score=0.9, **four).expected_score for n in (10, 10**3, 10**7)]
    assert 0.25 < scores[0] < 0.3
    assert 0.3 < scores[1] < 0.88
    assert scores[2] == pytest.approx(0.9, abs=1e-3)
    for method in ("objective", "gradient"):
        worse = ObjectivePerturbationClassifier.plan(10, D, score=0.2, **(four | {"method": method}))
        assert worse.expected_score == 0.2
    exact = ObjectivePerturbationClassifier.plan(10, D, score=0.7, **(four | {"epsilon": np.inf}))
    assert (exact.expected_error, exact.expected_score) == (0.0, 0.7)


@pytest.mark.parametrize("score", [-0.1, 0.0, 1.5, np.nan])
def test_scores_out_of_range_are_refused(score):
    with pytest.raises(ValueError, match="score"):
        ObjectivePerturbationClassifier.plan(100, D, score=score, **(BUDGET | SHORT | {"classes": [0, 1]}))


@pytest.mark.parametrize("loss", ["huber", "quantile", "logistic"])
def test_a_score_planned_for_people_with_several_rows_is_the_one_that_comes(loss):
    n, k = 400, 5
    rng, x, signal = rows(n * k)
    estimator = ObjectivePerturbationClassifier if loss == "logistic" else ObjectivePerturbationRegressor
    if loss == "logistic":
        y = rng.random(n * k) < 1.0 / (1.0 + np.exp(-3.0 * signal))
        score, own = float(np.mean(y == (signal > 0.0))), {"classes": [False, True]}
    else:
        y = signal + np.sqrt(np.var(signal) * (1.0 / 0.6 - 1.0)) * rng.normal(size=n * k)
        score, own = 0.6, {"bound_y": 2.0 * np.std(y)}
    options = BUDGET | SHORT | own | {"loss": loss, "method": "gradient"}
    plan = estimator.plan(n, D, score=score, max_rows=k, **options)
    whose = np.repeat(np.arange(n), k), k
    found = [estimator(random_state=seed, **options).fit(x, y, *whose).score(x, y) for seed in range(4)]
    assert np.mean(found) == pytest.approx(plan.expected_score, abs=0.06 if loss == "logistic" else 0.21)
    # Whose clip is the root of as many rows: less noise than of a row each, and more than of all as rows of their own.
    few, many = (estimator.plan(people, D, score=score, **options) for people in (n, n * k))
    assert many.expected_error < plan.expected_error < few.expected_error


def test_a_plan_is_of_the_releases_that_a_fit_makes():
    """Few people and many features get steps, many people a minimiser: the plan chooses as the fit does."""
    for n, d, k in ((200, 2, None), (200, 30, None), (3_000, 60, None), (200, 2, 2)):
        x = np.full((n * (k or 1), d), d**-0.5)
        y = np.arange(len(x)) % 2
        options = BUDGET | {"bound_x": 1.0, "classes": [0, 1], "probabilities": "link"}
        plan = ObjectivePerturbationClassifier.plan(n, d, max_rows=k, **options)
        people = {} if k is None else {"groups": np.repeat(np.arange(n), k), "max_rows": k}
        releases = ObjectivePerturbationClassifier(random_state=0, **options).fit(x, y, **people).releases_
        steps = sum(", step " in one.name for one in releases)
        assert plan.notes.get("steps", 0) == steps
        assert steps or dict(plan.scales) == dict(releases[0].scales)


def test_a_plan_refuses_people_where_a_fit_does():
    options = BUDGET | SHORT
    with pytest.raises(ValueError, match="groups need descent"):
        ObjectivePerturbationRegressor.plan(400, D, max_rows=5, bound_y=1.0, constraint=L2Ball(2.0), **options)
    with pytest.raises(ValueError, match="groups need descent"):
        ObjectivePerturbationClassifier.plan(400, D, max_rows=5, classes=[0, 1], loss="hinge", **options)
    with pytest.raises(ValueError, match="max_rows must be at most"):
        ObjectivePerturbationClassifier.plan(400, D, max_rows=1 << 20, classes=[0, 1], **options)
    with pytest.raises(ValueError, match="max_rows must be at least 1"):
        ObjectivePerturbationClassifier.plan(400, D, max_rows=0, classes=[0, 1], **options)
