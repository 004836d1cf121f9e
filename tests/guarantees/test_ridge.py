"""A declared ridge means the same whatever the budget is; tests/synthetic_control has that of a panel."""

import math
import warnings

import numpy as np
import pytest

from dpfast import (
    L2Ball,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    UtilityWarning,
)
from dpfast.solvers import PoissonLoss, SmoothedHuber, SmoothedQuantile

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(18.0, 90.0, 3_000), RNG.random(3_000) < 0.4])
Y = 0.1 * X[:, 0] + X[:, 1] + RNG.normal(size=3_000)
WEIGHTS = RNG.uniform(0.0, 2.0, 3_000)
LIMITS = {"box_x": (np.array([18.0, 0.0]), np.array([90.0, 1.0]))}


def regression(**parameters):
    options = {"bound_y": 20.0, "method": "objective"} | LIMITS | parameters
    return ObjectivePerturbationRegressor(1.0, 1e-6, **options), (X, Y.clip(0.0))


def moments(**parameters):
    return MultiOutcomeRidge(1.0, 1e-6, **{"bound_y": 20.0} | parameters), (X, np.column_stack([Y, 10.0 - Y]))


def weighted(**parameters):
    model, data = moments(max_weight=2.0, **parameters)
    return model, (*data, None, None, WEIGHTS)


def classes(**parameters):
    options = {"classes": [False, True], "method": "objective"} | LIMITS | parameters
    return ObjectivePerturbationClassifier(1.0, 1e-6, **options), (X, Y > 6.0)


FITS = {
    "moments in limits": [moments(**LIMITS), moments(**LIMITS, fit_intercept=False), moments(**LIMITS, refine=0)],
    "moments in a norm": [moments(bound_x=91.0), moments(bound_x=91.0, fit_intercept=False)],
    "weighted moments": [
        weighted(**LIMITS),
        weighted(**LIMITS, refine=0),
        weighted(bound_x=91.0),
        weighted(**LIMITS, fit_intercept=False),
    ],
    "losses": [
        regression(loss=SmoothedHuber(2.0)),
        regression(loss=SmoothedQuantile(0.5, 1.0), fit_intercept=False),
        regression(loss=PoissonLoss(50.0)),
        regression(loss="squared", constraint=L2Ball(100.0)),
        classes(loss="logistic"),
        classes(loss="hinge", fit_intercept=False),
    ],
}


def coefficients(model, epsilon, ridge, *data):
    fitted = model.set_params(epsilon=epsilon, ridge=ridge, random_state=None if epsilon == math.inf else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        return fitted.fit(*data).coef_.copy()


@pytest.mark.parametrize("name", FITS)
def test_a_ridge_means_the_same_with_hardly_any_noise_as_without(name):
    for model, data in FITS[name]:
        for ridge in (1.0, 1_000.0):
            whole, noisy = (coefficients(model, epsilon, ridge, *data) for epsilon in (math.inf, 1e6))
            np.testing.assert_allclose(noisy, whole, rtol=0.0, atol=1e-3 * np.abs(whole).max(), err_msg=str(model))
