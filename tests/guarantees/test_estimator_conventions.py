"""scikit-learn's own checks of its estimator conventions."""

import math

from sklearn.utils.estimator_checks import parametrize_with_checks

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    SparseRegression,
)
from dpfast.solvers import L2Ball

EXACT = MultiOutcomeRidge(math.inf, bound_x=1.0, bound_y=1.0)
PRIVATE = MultiOutcomeRidge(1.0, 1e-6, bound_x=100.0, bound_y=100.0)
PERTURBED = [
    ObjectivePerturbationRegressor(math.inf, bound_x=1.0, bound_y=1.0),
    ObjectivePerturbationRegressor(1.0, 1e-6, bound_x=100.0, bound_y=100.0, constraint=L2Ball(100.0)),
    ObjectivePerturbationRegressor(1.0, bound_x=100.0, bound_y=100.0, loss="huber"),
    ObjectivePerturbationClassifier(math.inf, bound_x=1.0, classes=None),
]
SPARSE = SparseRegression(1.0, 1e-6, n_nonzero=1, bound_x=100.0, bound_y=100.0)
BEST_SUBSET = SparseRegression(math.inf, n_nonzero=1, selector="exponential")


def expected_to_fail(estimator):
    if math.isinf(estimator.epsilon):
        return {}
    return {
        "check_dtype_object": "arrays of Python objects are refused: what is in them is not known to be numbers",
        "check_regressors_train": "asks for accuracy on a few dozen rows, which epsilon = 1 cannot give",
    }


@parametrize_with_checks([EXACT, PRIVATE, *PERTURBED, SPARSE, BEST_SUBSET], expected_failed_checks=expected_to_fail)
def test_conventions(estimator, check):
    check(estimator)
