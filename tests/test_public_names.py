"""The names that users and other programs rely on: parameters, attributes of modules, their types and places."""

import inspect
import os
import subprocess
import sys
import types
import typing
from pathlib import Path

import numpy as np
import pytest
from catalogue import FITS, people
from numpy.typing import NDArray

import dpfast
from dpfast import noise, privacy, solvers, statistics
from dpfast.estimator.base import PrivateEstimator

COMMON = "epsilon delta adjacency calibration random_state n_threads ledger"
ESTIMATORS = {
    "MultiOutcomeRidge": (
        "bound_x bound_y ridge mechanism n_subsample public_labels fit_intercept box_x nonnegative",
        "fit fit_gram predict plan save load",
    ),
    "SyntheticControl": (
        "bound ridge mechanism row_bound n_components nonnegative",
        "fit fit_long predict effect plot interval plan save load",
    ),
    "PolicyEvaluation": (
        "gamma features return_range reward_range horizon method weights ridge",
        "fit predict plot plan save load",
    ),
    "ObjectivePerturbationRegressor": ("bound_x bound_y loss constraint penalty ridge", "fit predict plan save load"),
    "ObjectivePerturbationClassifier": (
        "bound_x classes loss constraint penalty ridge",
        "fit predict predict_proba decision_function plan save load",
    ),
    "SparseRegression": ("n_nonzero bound_x bound_y selector n_blocks", "fit predict plan save load"),
}
FUNCTIONS = [
    (statistics.GramAccumulator, "n_features n_outcomes bound_x bound_y n_threads"),
    (statistics.gram, "X Y bound_x bound_y rows n_threads"),
    (statistics.first_visit_returns, "trajectories gamma return_range n_threads"),
    (statistics.smooth_sensitivity, "counts weights beta top"),
    (dpfast.Trajectories, "states rewards offsets n_states"),
    (solvers.quadratic_over_ball, "eigenvalues coefficients radius"),
    (solvers.quadratic_over_sphere, "eigenvalues coefficients radius"),
    (privacy.gaussian_scale, "epsilon delta sensitivity"),
    (privacy.gaussian_delta, "scale epsilon sensitivity"),
    (privacy.smooth_gaussian, "epsilon delta dim"),
    (noise.gaussian, "scale size source center grid"),
    (noise.l2_laplace, "scale dim source center grid"),
    (noise.discrete_gaussian, "scale size source"),
    (dpfast.Privacy, "epsilon delta adjacency"),
]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_take_and_offer_what_is_documented(name):
    estimator = getattr(dpfast, name)
    own, methods = ESTIMATORS[name]
    parameters = inspect.signature(estimator).parameters
    assert list(parameters)[:2] == ["epsilon", "delta"]
    assert {*COMMON.split(), *own.split()} <= set(parameters)
    positional = [key for key, one in parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == ["epsilon", "delta"]
    assert parameters["delta"].default == 0.0
    assert parameters["adjacency"].default == "replace_one"
    assert parameters["calibration"].default == "sound"
    assert all(callable(getattr(estimator, method)) for method in methods.split())


@pytest.mark.parametrize(("function", "names"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_functions_take_what_is_documented(function, names):
    parameters = list(inspect.signature(function).parameters)
    assert [key for key in parameters if key in names.split()] == names.split()


def test_sources_and_errors():
    assert not noise.SecureSource().reproducible
    assert issubclass(dpfast.BudgetExceeded, ValueError)
    assert issubclass(dpfast.UnsoundCalibrationWarning, UserWarning)
    assert issubclass(dpfast.UtilityWarning, UserWarning)
    assert issubclass(dpfast.LargeDeltaWarning, UserWarning)
    assert {"from_episodes", "from_frame", "from_gymnasium", "from_minari"} <= set(dir(dpfast.Trajectories))


USER = """
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from numpy.typing import NDArray

import dpfast
from dpfast import noise, privacy, statistics

Floats = NDArray[np.float64]
rows = np.zeros((10, 2))
ridge = dpfast.MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0).fit(rows, rows)
assert_type(ridge, dpfast.MultiOutcomeRidge)
assert_type(ridge.coef_, Floats)
assert_type(ridge.intercept_, Floats)
assert_type(ridge.coef_std_, Floats)
assert_type(ridge.residual_std_, Floats | None)
assert_type(ridge.bound_x_, float)
assert_type(ridge.releases_, tuple[dpfast.Release, ...])
assert_type(ridge.privacy_spent_, dpfast.Privacy)
assert_type(ridge.predict(rows), Floats)
assert_type(ridge.n_features_in_, int)
classifier = dpfast.ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=[0, 1]).fit(rows, rows[:, 0])
assert_type(classifier.coef_, Floats)
assert_type(classifier.intercept_, Floats)
assert_type(classifier.classes_, NDArray[Any])
assert_type(classifier.predict_proba(rows), Floats)
regressor = dpfast.ObjectivePerturbationRegressor(1.0, 1e-6, bound_x=1.0, bound_y=1.0).fit(rows, rows[:, 0])
assert_type(regressor.coef_, Floats)
assert_type(regressor.intercept_, float)
assert_type(regressor.predict(rows), Floats)
sparse = dpfast.SparseRegression(1.0, 1e-6, n_nonzero=1, bound_x=1.0, bound_y=1.0).fit(rows, rows[:, 0])
assert_type(sparse.support_, NDArray[np.int64])
assert_type(sparse.coef_, Floats)
walks = dpfast.Trajectories([0, 1], [0.0, 1.0], [0, 2], n_states=2)
policy = dpfast.PolicyEvaluation(1.0, 1e-6, gamma=0.9).fit(walks)
assert_type(policy.value_, Floats)
assert_type(policy.ridge_, float)
control = dpfast.SyntheticControl(1.0, 1e-6, bound=1.0).fit(rows, 1)
assert_type(control.coef_, Floats)
assert_type(control.weights_, Floats)
assert_type(control.n_components_, int | None)
scaler = dpfast.PrivateStandardScaler(1.0, 1e-6, box_x=([0, 0], [1, 1])).fit(rows)
assert_type(scaler.mean_, Floats)
assert_type(statistics.gram(rows, bound_x=1.0).xx, Floats)
assert_type(noise.gaussian(1.0, 3, noise.SecureSource()), Floats)
assert_type(privacy.gaussian_scale(1.0, 1e-6, sensitivity=1.0), float)
assert_type(dpfast.get_include(), str)
"""


@pytest.mark.slow
def test_a_users_type_checker_knows_what_fits_give(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    places = {"MYPYPATH": str(Path(dpfast.__file__).parents[1])} if "site-packages" not in dpfast.__file__ else {}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "user.py"]
    told = subprocess.run(command, cwd=tmp_path, env={**os.environ, **places}, capture_output=True, text=True).stdout
    assert [line for line in told.splitlines() if line.startswith("user.py")] == []
    # It would be as silent of what it cannot find.
    (tmp_path / "user.py").write_text(USER.replace("ridge.coef_, Floats", "ridge.coef_, float"))
    told = subprocess.run(command, cwd=tmp_path, env={**os.environ, **places}, capture_output=True, text=True).stdout
    assert len([line for line in told.splitlines() if line.startswith("user.py")]) == 1


def holds(value, hint):
    """Whether a value is of an annotated type, as far as those of fitted attributes go."""
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(holds(value, one) for one in arguments)
    if kind in (np.ndarray, NDArray):  # NumPy 2.5 keeps the name of NDArray, whose argument is the type of entries
        dtype = arguments[0] if kind is NDArray else typing.get_args(arguments[1])[0]
        return isinstance(value, np.ndarray) and dtype in (typing.Any, value.dtype.type)
    return type(value) is kind


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning", "ignore::dpfast.UnsoundCalibrationWarning")
@pytest.mark.parametrize("name", [*FITS][::6])
def test_fitted_attributes_are_of_the_types_they_are_declared_with(name):
    fitted = FITS[name](*people(300), epsilon=1.0)
    if not isinstance(fitted, PrivateEstimator):
        return
    hints = {
        key: eval(
            hint, vars(sys.modules[one.__module__])
        )  # only those: others may name what is imported for types alone
        for one in reversed(type(fitted).__mro__)
        for key, hint in vars(one).get("__annotations__", {}).items()
        if one.__module__.startswith("dpfast.") and key.endswith("_") and not key.startswith("_")
    }
    found = {key: value for key, value in vars(fitted).items() if key.endswith("_") and not key.startswith("_")}
    assert [key for key in found if key not in hints] == []
    assert [(key, hints[key], type(value)) for key, value in found.items() if not holds(value, hints[key])] == []
