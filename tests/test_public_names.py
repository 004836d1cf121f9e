"""The names that users and other programs rely on: parameters, attributes of modules, and where they are found."""

import inspect

import pytest

import dpfast
from dpfast import noise, privacy, solvers, statistics

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
    assert {"from_episodes", "from_frame", "from_gymnasium", "from_minari"} <= set(dir(dpfast.Trajectories))
