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
    assert ObjectivePerturbationClassifier.plan(10, D, score=0.2, **four).expected_score == 0.2
    exact = ObjectivePerturbationClassifier.plan(10, D, score=0.7, **(four | {"epsilon": np.inf}))
    assert (exact.expected_error, exact.expected_score) == (0.0, 0.7)


@pytest.mark.parametrize("score", [-0.1, 0.0, 1.5, np.nan])
def test_scores_out_of_range_are_refused(score):
    with pytest.raises(ValueError, match="score"):
        ObjectivePerturbationClassifier.plan(100, D, score=score, **(BUDGET | SHORT | {"classes": [0, 1]}))
