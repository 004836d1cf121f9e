"""Warnings that an answer is mostly noise: from public numbers before anything is spent, or from what was released."""

import warnings

import numpy as np
import pytest

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    SparseRegression,
    UtilityWarning,
)
from dpfast.solvers import L2Ball

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
#: Estimators, and how many people are enough for them.
FAMILIES = {
    "ridge": (MultiOutcomeRidge, {"bound_x": 2.0, "bound_y": 2.0, "fit_intercept": False}, 20_000),
    "ridge of moments": (MultiOutcomeRidge, {"bound_x": 2.0, "bound_y": 2.0, "refine": 0}, 20_000),
    "regressor": (ObjectivePerturbationRegressor, {"bound_x": 2.0, "bound_y": 2.0, "constraint": L2Ball(2.0)}, 20_000),
    "classifier": (ObjectivePerturbationClassifier, {"bound_x": 2.0, "classes": [-1.0, 1.0]}, 20_000),
    "three classes": (ObjectivePerturbationClassifier, {"bound_x": 2.0, "classes": [-1.0, 0.0, 1.0]}, 40_000),
    "scored support": (SparseRegression, {"n_nonzero": 1, "selector": "exponential"}, 40_000),
    "voted support": (SparseRegression, {"n_nonzero": 1, "selector": "sample_aggregate", "n_blocks": 100}, 40_000),
    "pursued support": (SparseRegression, {"n_nonzero": 1}, 40_000),
}


def table(n, name, signal=1.0):
    rng = np.random.default_rng(n)
    x = rng.uniform(-1.0, 1.0, size=(n, 3))
    y = signal * x[:, 1] + 0.1 * rng.normal(size=n)
    if FAMILIES[name][0] is ObjectivePerturbationClassifier:
        y = np.digitize(y, [-0.3, 0.3]) - 1.0 if name == "three classes" else np.where(y > 0.0, 1.0, -1.0)
    return x, y


def model(name, **parameters):
    kind, own, _ = FAMILIES[name]
    return kind(**(BUDGET | own | {"random_state": 0} | parameters))


def few(name, **parameters):
    """Return an estimator for a table of 20."""
    return model(name, **({"n_blocks": 4} if name == "voted support" else {}), **parameters)


def told(estimator, x, y):
    """Return what a fit warns of, at the line that called it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    assert {one.filename for one in found} <= {__file__}
    return [str(one.message) for one in found]


@pytest.mark.parametrize("name", FAMILIES)
def test_few_people_are_warned_of_before_anything_is_spent(name):
    ledger = Ledger(Privacy(2.0, 1e-5))
    estimator = few(name, ledger=ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning, match=r"with 20 people at epsilon 1, delta 1e-06.*mostly noise.*plan"):
            estimator.fit(*table(20, name))
    assert ledger.spent.epsilon == 0.0
    assert not hasattr(estimator, "coef_")


@pytest.mark.parametrize("name", FAMILIES)
def test_few_people_are_warned_of_once(name):
    (message,) = told(few(name), *table(20, name))
    assert "with 20 people" in message


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", FAMILIES)
def test_enough_people_are_not_warned_of(name, adjacency):
    assert told(model(name, adjacency=adjacency), *table(FAMILIES[name][2], name)) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_no_warning_tells_how_many_people_there_are_where_that_is_private(name):
    """Before the release there is none, and what is said after it does not depend on them but through noisy values."""
    fits = [told(few(name, adjacency="add_remove", random_state=seed), *table(20, name)) for seed in range(4)]
    assert all("as released" in message for found in fits for message in found)
    # Minimisers under objective perturbation do not show their noise, and a scored support does not.
    assert max(len(found) for found in fits) == (
        name in ("ridge", "ridge of moments", "three classes", "voted support")
    )


@pytest.mark.parametrize("name", ["ridge", "ridge of moments", "regressor", "classifier", "three classes"])
def test_a_release_without_signal_is_warned_of(name):
    """What is left of the released predictions without the size of their noise."""
    # Of more people what sampling does to coefficients is above the noise of steps.
    x, y = table(100 if name in ("classifier", "ridge") else FAMILIES[name][2] // 10, name)
    y = np.random.default_rng(7).permutation(y)
    fits = [told(model(name, random_state=seed), x, y) for seed in range(4)]
    assert all(
        "as released at epsilon 1" in message and "hardly a signal to find" in message
        for found in fits
        for message in found
    )
    assert sum(map(len, fits)) >= 2


def test_a_release_that_is_warned_of_is_kept_by_those_who_make_errors_of_warnings():
    ledger = Ledger(Privacy(2.0, 1e-5))
    estimator = model("regressor", ledger=ledger)
    x, y = table(FAMILIES["regressor"][2] // 10, "regressor")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning, match="as released"):
            estimator.fit(x, 0.0 * y)
    assert ledger.spent.epsilon == 1.0
    assert estimator.coef_.shape == (3,)
    assert len(estimator.releases_) == 1


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_nothing_is_told_of_bounds_that_were_found_before_they_are_paid_for(epsilon):
    """An error in the place of a warning would tell of noisy counts at no cost; whether they show anybody, too."""
    ledger = Ledger(Privacy(2.0, 1e-5))
    estimator = model("regressor", epsilon=epsilon, bound_x="private", bound_y="private", ledger=ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning, match="as released" if epsilon == 1.0 else "left out of the fit"):
            estimator.fit(*table(3000, "regressor", signal=0.0))
    assert [cost.epsilon for cost in ledger.costs] == [epsilon]
    assert len(estimator.releases_) == 2
