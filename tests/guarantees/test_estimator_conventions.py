"""scikit-learn's own checks of its estimator conventions, on what families say are such estimators.

Which of them fail, and why, is listed in the documentation, and read from there: a check that is listed has to fail,
and all others have to pass.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from catalogue import FAMILIES
from packaging.version import Version
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    registry,
)

ESTIMATORS = [estimator for module in FAMILIES.values() for estimator in module.CONVENTIONS]
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "scikit_learn.md"
#: Checks that older versions lack, or that ask for less there; tried with 1.6.0 and 1.9.1.
_LATER = {
    "check_all_zero_sample_weights_error": {*registry.ESTIMATORS},
    "check_sample_weight_equivalence_on_sparse_data": {"MultiOutcomeRidge"},
}
_IS_OLDER = Version(sklearn.__version__) < Version("1.9")
_ROW = re.compile(r"^\| `(check_\w+)` \| (.+?) \| (any|finite) \| (.+) \|$", re.MULTILINE)


def listed():
    """Checks that fail: for which estimators, whether without noise too, and why."""
    everybody = {type(estimator).__name__ for estimator in ESTIMATORS}
    for check, names, epsilon, reason in _ROW.findall(PAGE.read_text()):
        found = everybody if names == "all" else set(re.findall(r"`(\w+)`", names))
        if found := found - (_LATER.get(check, set()) if _IS_OLDER else set()):
            yield check, found, epsilon, reason


def expected_to_fail(estimator):
    is_exact = math.isinf(estimator.epsilon)
    name = type(estimator).__name__
    return {
        check: why for check, names, epsilon, why in listed() if name in names and (epsilon == "any" or not is_exact)
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_to_fail)
def test_conventions(estimator, check):
    if _IS_OLDER and check.func.__name__ == "check_classifiers_one_label" and not math.isinf(estimator.epsilon):
        pytest.skip("noise decides it there")
    if check.func.__name__ == "check_classifiers_one_label":
        estimator.set_params(random_state=0)  # ten people's predictions may all be right by chance
    check(estimator)


def test_what_is_listed_are_checks_of_estimators_that_are_checked():
    named = {(check, name) for check, names, _, _ in listed() for name in names}
    run = {
        (getattr(check, "func", check).__name__, type(estimator).__name__)
        for estimator in ESTIMATORS
        for _, check in estimator_checks_generator(estimator, mark=None)
    }
    assert named <= run
    assert {check for check, *_ in listed()} >= {"check_dtype_object", "check_regressors_train"}
    # Those that do not take a table of features and an outcome a row.
    assert set(registry.ESTIMATORS) - {name for _, name in run} == {"SyntheticControl", "PolicyEvaluation"}


class Untouched:
    """A table that must not be looked at."""

    def __getattribute__(self, name):
        raise AssertionError(f"looked at {name}")


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": True}, {"bound_x": "private"}], ids=str)
@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (ObjectivePerturbationClassifier, {"classes": None}, r"classes must be declared, such as classes=\[0, 1\]"),
        (
            ObjectivePerturbationRegressor,
            {"bound_y": 1.0, "constraint": None},
            r"constraint must be given with SquaredLoss\(\) \(loss='squared'\), such as dpfast.L2Ball\(1.0\)",
        ),
    ],
)
def test_what_has_to_be_declared_is_asked_for_before_data_are_looked_at(cls, given, message, options, adjacency):
    ledger = Ledger(Privacy(5.0, 1e-3, adjacency))
    model = cls(1.0, 1e-6, **{"bound_x": 1.0} | given | options, adjacency=adjacency, ledger=ledger)
    with pytest.raises(ValueError, match=message):
        model.fit(Untouched(), Untouched())
    with pytest.raises(ValueError, match=message):
        cls.plan(1000, 3, epsilon=1.0, delta=1e-6, **{"bound_x": 1.0} | given | options)
    assert ledger.spent.epsilon == 0.0


@pytest.mark.parametrize(
    ("estimator", "most"),
    [
        (MultiOutcomeRidge(10.0, 1e-6, bound_x=1.0, bound_y=5.0, random_state=0), 0.1),
        (ObjectivePerturbationRegressor(10.0, 1e-6, bound_x=1.0, bound_y=5.0, loss="huber", random_state=0), 0.3),
        (ObjectivePerturbationClassifier(10.0, 1e-6, bound_x=1.0, classes=[0, 1], random_state=0), 0.1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_intercept_is_fitted_unless_told_otherwise(estimator, most):
    """Outcomes that hang on nothing are met by their mean, or their rates; without an intercept they are not."""
    rng = np.random.default_rng(0)
    X, level = rng.uniform(-0.5, 0.5, size=(4_000, 3)), 0.8
    classes = hasattr(estimator, "classes")
    y = (rng.random(4_000) < level).astype(float) if classes else 3.0 + 0.1 * rng.normal(size=4_000)
    found = []
    for fit_intercept in (estimator.fit_intercept, False):
        model = sklearn.clone(estimator).set_params(fit_intercept=fit_intercept).fit(X, y)
        found.append(float(np.ravel(model._linear(np.zeros((1, 3))))[0]))
    assert found[0] > 1.0 if classes else abs(found[0] - 3.0) < most
    assert found[1] == 0.0
