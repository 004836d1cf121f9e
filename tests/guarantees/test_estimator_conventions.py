"""scikit-learn's own checks of its estimator conventions, on what families say are such estimators."""

import math

from catalogue import FAMILIES
from sklearn.utils.estimator_checks import parametrize_with_checks

ESTIMATORS = [estimator for module in FAMILIES.values() for estimator in module.CONVENTIONS]


def expected_to_fail(estimator):
    if math.isinf(estimator.epsilon):
        return {}
    return {
        "check_dtype_object": "arrays of Python objects are refused: what is in them is not known to be numbers",
        "check_regressors_train": "asks for accuracy on a few dozen rows, which epsilon = 1 cannot give",
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_to_fail)
def test_conventions(estimator, check):
    check(estimator)
