"""Weights are taken where a bound is proved, and refused in one sentence elsewhere, however they come."""

import inspect

import numpy as np
import pytest
from catalogue import FITS, people
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import has_fit_parameter

from dpfast import MultiOutcomeRidge, PrivateStandardScaler, SparseRegression, registry

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")

TAKING = {"MultiOutcomeRidge", "ObjectivePerturbationClassifier", "ObjectivePerturbationRegressor"}
MESSAGE = r"sample_weight is not supported by {}: its sensitivity to weighted rows is not"


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_every_estimator_takes_weights_or_says_that_it_does_not(name):
    cls = registry.estimator(name)
    assert has_fit_parameter(cls, "sample_weight") == (name in TAKING)
    model = next(fit.estimator for fit in FITS.values() if type(fit.estimator) is cls)
    x, y = people(20)
    if name in TAKING:
        with pytest.raises(ValueError, match="sample_weight needs max_weight"):
            model.fit(x, y, sample_weight=np.ones(20))
        with pytest.raises(TypeError, match="fit takes no 'max_weight': it is a parameter of"):
            model.fit(x, y, sample_weight=np.ones(20), max_weight=1.0)
        return
    assert "sample_weight" not in inspect.signature(cls.fit).parameters
    with pytest.raises(TypeError, match=MESSAGE.format(name)):
        model.fit(x, y, sample_weight=np.ones(20))


def sparse_regression():
    return SparseRegression(1.0, 1e-6, n_nonzero=1, bound_x=2.0, bound_y=1.0)


def weighed_ridge():
    return MultiOutcomeRidge(1.0, 1e-6, bound_x=2.0, bound_y=1.0, max_weight=1.0, random_state=0, fit_intercept=False)


def test_weights_pass_through_pipelines():
    x, y = people(50)
    scaler = PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0), random_state=0)
    pipeline = make_pipeline(scaler, weighed_ridge()).fit(x, y, multioutcomeridge__sample_weight=np.full(50, 0.5))
    expected = weighed_ridge().fit(scaler.fit_transform(x), y, sample_weight=np.full(50, 0.5))
    np.testing.assert_array_equal(pipeline[-1].coef_, expected.coef_)
    with pytest.raises(TypeError, match=MESSAGE.format("SparseRegression")):
        make_pipeline(scaler, sparse_regression()).fit(x, y, sparseregression__sample_weight=np.ones(50))


def test_weights_pass_through_grid_searches():
    x, y = people(50)
    search = GridSearchCV(weighed_ridge(), {"ridge": [0.1, 1.0]}, error_score="raise", cv=2)
    assert search.fit(x, y, sample_weight=np.full(50, 0.5)).best_params_
    search = GridSearchCV(sparse_regression(), {"n_nonzero": [1]}, error_score="raise", cv=2)
    with pytest.raises(TypeError, match=MESSAGE.format("SparseRegression")):
        search.fit(x, y, sample_weight=np.ones(50))


def test_weights_are_routed_where_they_were_asked_for():
    x, y = people(50)
    weights = np.full(50, 0.5)
    with config_context(enable_metadata_routing=True):
        routed = weighed_ridge().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        assert len(cross_val_score(routed, x, y, cv=2, params={"sample_weight": weights})) == 2
        assert len(make_pipeline(routed).fit(x, y, sample_weight=weights)[0].coef_) == 1
        with pytest.raises(TypeError, match="sample_weight"):
            cross_val_score(
                sparse_regression().set_score_request(sample_weight=False),
                x,
                y,
                cv=2,
                params={"sample_weight": weights},
            )
        with pytest.raises(TypeError, match="sample_weight"):
            make_pipeline(sparse_regression()).fit(x, y, sample_weight=weights)
        with pytest.raises((TypeError, AttributeError), match=r"sample_weight|set_fit_request"):
            sparse_regression().set_fit_request(sample_weight=True)
