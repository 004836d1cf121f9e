"""What pipelines, cross-validation and grid search cost, as the documentation counts it: every fit, no more."""

import pickle

import pytest
from catalogue import people
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from dpfast import Ledger, MultiOutcomeRidge, Privacy, PrivateStandardScaler

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")

X, Y = people(40)
TOTAL = Privacy(100.0, 1e-3)


def ridge(ledger, epsilon=1.0, **parameters):
    return MultiOutcomeRidge(epsilon, 1e-5, bound_x=2.0, bound_y=1.0, refine=0, ledger=ledger, **parameters)


def fits(ledger):
    return len(ledger.releases)


@pytest.mark.parametrize("composition", ["gaussian", "basic"])
def test_what_only_prepares_a_fit_costs_nothing(composition):
    ledger = Ledger(TOTAL, composition=composition)
    model = ridge(ledger)
    assert clone(model).ledger is ledger
    clone(model).set_params(ridge=2.0).get_params()
    search = GridSearchCV(make_pipeline(model), {"multioutcomeridge__ridge": [0.0, 1.0]})
    assert clone(search).estimator[0].ledger is ledger
    assert ledger.spent.epsilon == 0.0
    fitted = model.fit(X, Y)
    spent = ledger.spent
    fitted.predict(X)
    fitted.score(X, Y)
    clone(fitted)
    pickle.dumps(fitted.set_params(ledger=None))
    assert ledger.spent == spent
    assert fits(ledger) == 1


def test_every_step_of_a_pipeline_that_learns_pays():
    ledger = Ledger(TOTAL, composition="basic")
    scaler = PrivateStandardScaler(0.25, 1e-6, box_x=(-1.0, 1.0), ledger=ledger)
    make_pipeline(scaler, ridge(ledger, 0.5)).fit(X, Y)
    assert ledger.spent.epsilon == pytest.approx(0.75)
    assert ledger.spent.delta == pytest.approx(1.1e-5)


def test_cross_validation_pays_for_every_fold():
    ledger = Ledger(TOTAL, composition="basic")
    cross_val_score(ridge(ledger), X, Y, cv=5, error_score="raise")
    assert (fits(ledger), ledger.spent.epsilon) == (5, pytest.approx(5.0))
    gaussian = Ledger(Privacy(100.0, 1e-4))
    cross_val_score(ridge(gaussian), X, Y, cv=5, error_score="raise")
    assert gaussian.spent.epsilon == pytest.approx(2.1, abs=0.05)


@pytest.mark.parametrize("refit", [True, False])
def test_a_grid_search_pays_for_every_setting_by_fold_and_the_last_fit(refit):
    ledger = Ledger(TOTAL, composition="basic")
    search = GridSearchCV(ridge(ledger, 0.5), {"ridge": [0.0, 1.0]}, cv=3, refit=refit, error_score="raise")
    search.fit(X, Y)
    assert (fits(ledger), ledger.spent.epsilon) == (6 + refit, pytest.approx(0.5 * (6 + refit)))


def test_a_search_ends_where_the_budget_does():
    ledger = Ledger(Privacy(1.2, 1e-3), composition="basic")
    with pytest.raises(ValueError, match="nothing was spent"):
        GridSearchCV(ridge(ledger, 0.5), {"ridge": [0.0, 1.0]}, cv=3, error_score="raise").fit(X, Y)
    assert (fits(ledger), ledger.spent.epsilon) == (2, pytest.approx(1.0))


def test_a_ledger_in_memory_does_not_travel_and_nothing_is_spent():
    """scikit-learn's worker pool says that it cannot pickle the task; what is ours stands in its cause."""
    ledger = Ledger(TOTAL)
    with pytest.raises(TypeError, match=r"path"):
        pickle.dumps(ridge(ledger))
    assert ledger.spent.epsilon == 0.0
