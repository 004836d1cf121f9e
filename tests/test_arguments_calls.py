"""Arguments that a call of a public function lacks or invents are named, with what is accepted."""

import importlib
import inspect
import pickle
from types import FunctionType

import numpy as np
import pandas as pd
import pytest

import dpfast
from dpfast import registry

PACKAGES = ("dpfast", "dpfast.io", "dpfast.plotting", "dpfast.datasets")


def public_calls():
    """Return each public function and method with a section of parameters, by its name, and the arguments it has."""
    calls = {}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__ if hasattr(package, "__all__") else dir(package):
            found = getattr(package, name)
            if isinstance(found, FunctionType) and has_parameters(found.__doc__):
                calls[f"{package.__name__}.{name}"] = found, inspect.signature(found)
            if isinstance(found, type) and found.__module__.startswith("dpfast") and not issubclass(found, tuple):
                calls |= methods(found)
    return calls


class Anything:
    """What a method is bound to that is not to run."""


def has_parameters(docstring):
    return "\nParameters\n" in inspect.cleandoc(docstring or "")


def methods(cls):
    found = {}
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        function = getattr(member, "__func__", member)
        is_ours = isinstance(function, FunctionType) and function.__module__.startswith("dpfast")
        if not is_ours or name.startswith("_") or not has_parameters(function.__doc__):
            continue
        bound = getattr(cls, name) if member is not function else function.__get__(Anything())
        found[f"{cls.__name__}.{name}"] = bound, inspect.signature(bound)
    return found


CALLS = public_calls()


@pytest.mark.parametrize("called", CALLS)
def test_an_unknown_argument_is_named_with_those_that_there_are(called):
    function, known = CALLS[called]
    if any(one.kind is one.VAR_KEYWORD for one in known.parameters.values()):
        pytest.skip("takes parameters of an estimator, which say so themselves")
    with pytest.raises(TypeError, match=r"takes no 'xyzzy'; its arguments: \w+") as caught:
        function(xyzzy=1)
    for name, one in known.parameters.items():
        assert one.kind is one.VAR_POSITIONAL or name in str(caught.value)


@pytest.mark.parametrize("called", CALLS)
def test_a_missing_argument_is_named_with_what_it_is(called):
    function, known = CALLS[called]
    missing = [
        name
        for name, one in known.parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if not missing:
        pytest.skip("needs nothing")
    with pytest.raises(TypeError, match=rf"{called.rpartition('.')[2]} needs {missing[0]}") as caught:
        function()
    for name in missing:
        assert f"{name} (" in str(caught.value)


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_an_estimator_without_epsilon_says_what_it_is(name):
    cls = registry.estimator(name)
    needed = {"bound_y": 1.0, "classes": [0, 1], "n_nonzero": 1, "gamma": 0.9, "box_x": (0, 1)}
    accepted = inspect.signature(cls).parameters
    with pytest.raises(TypeError, match=rf"{name} needs epsilon \(float: Privacy of the whole fit"):
        cls(**{key: one for key, one in needed.items() if key in accepted})


def test_a_parameter_of_the_estimator_in_a_fit_is_told_where_it_belongs():
    model = dpfast.MultiOutcomeRidge(1.0, 1e-6, bound_y=1.0)
    with pytest.raises(TypeError, match="fit takes no 'bound_x': it is a parameter of MultiOutcomeRidge"):
        model.fit(np.ones((3, 1)), np.ones(3), bound_x=1.0)
    with pytest.raises(TypeError, match="fit takes no 'y'; did you mean 'Y'"):
        model.fit(np.ones((3, 1)), y=np.ones(3))


def test_columns_and_formulas_in_a_fit_are_told_what_to_fit():
    model = dpfast.MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0)
    for name, told in (("columns", r"Columns\(...\).encode"), ("formula", r"Columns.from_formula\(.*\).encode")):
        with pytest.raises(TypeError, match=rf"fit takes no '{name}'; fit what dpfast.io.{told}\(frame\) makes"):
            model.fit(np.ones((3, 1)), np.ones(3), **{name: "days ~ age"})


def test_values_too_many_or_twice_are_told():
    model = dpfast.SyntheticControl(1.0, 1e-6)
    with pytest.raises(TypeError, match="fit takes donors, n_pre, target by position, got 4 values: give the"):
        model.fit(np.ones((3, 2)), 1, None, "units_by_periods")
    with pytest.raises(TypeError, match="fit got donors twice"):
        model.fit(np.ones((3, 2)), donors=np.ones((3, 2)), n_pre=1)


def test_errors_inside_a_call_stay_as_they_are():
    with pytest.raises(TypeError, match="epsilon must be a real number, got str"):
        dpfast.Privacy("1")


def test_public_functions_can_be_pickled():
    assert pickle.loads(pickle.dumps(dpfast.describe)) is dpfast.describe


def test_bounds_are_wanted_without_noise_as_units():
    for call in (
        lambda: dpfast.MultiOutcomeRidge(float("inf")),
        lambda: dpfast.MultiOutcomeRidge(float("inf"), bound_y=1.0).fit([[1.0], [2.0]], [1.0, 2.0]),
        lambda: dpfast.PrivateStandardScaler(epsilon=float("inf")),
    ):
        with pytest.raises(TypeError, match="At epsilon = inf they clip nothing, and are the units of losses"):
            call()
    with pytest.raises(TypeError, match=r"says how to choose them$"):
        dpfast.MultiOutcomeRidge(1.0)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([{"observations": [0, 1], "rewards": [0.0, 1.0]}], "dicts and pairs of lists have none; make steps"),
        ([[{"state": 0, "reward": 0.0}]], "dicts and pairs of lists have none; make steps"),
        ([([0, 1, 2], [0.0, 0.0, 1.0])], "dicts and pairs of lists have none; make steps"),
        (pd.DataFrame({"state": [0], "reward": [1.0]}), "a table is no list of episodes: Trajectories.from_frame"),
    ],
)
def test_episodes_of_another_form_are_told_what_is_read(episodes, message):
    model = dpfast.PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0.0, 1.0))
    with pytest.raises(TypeError, match=message):
        model.fit(episodes, states=3)
    with pytest.raises(TypeError, match=message):
        dpfast.Trajectories.from_episodes(episodes, 3)


def test_tables_that_do_not_fit_are_told_what_does():
    frame = pd.DataFrame({"age": [20.0, 30.0], "seen": pd.to_datetime(["2024-01-01", "2024-02-01"])})
    model = dpfast.MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0)
    with pytest.raises(ValueError, match=r"X must be 2-D.*one column of a table is frame\[\['name'\]\]"):
        model.fit(frame["age"], frame["age"])
    with pytest.raises(ValueError, match=r"the target y is None: give outcomes, one for each row of X, second"):
        model.fit(frame[["age"]])
    with pytest.raises(ValueError, match=r"^Y contains NaN.*; or leave rows without an outcome out, with adjacency"):
        model.fit(frame[["age"]], [1.0, np.nan])
    with pytest.raises(TypeError, match="make days since a public date of dates"):
        dpfast.describe(frame, {"seen": ("2024-01-01", "2024-12-31")}, 1.0, 1e-6)
    with pytest.raises(TypeError, match="a number of them is n_states"):
        dpfast.io.Trajectories.from_episodes([[(0, 1.0)]], states=3)


def test_limits_of_a_number_by_position_are_told_by_name():
    for given in ((18, 90), ((18, 90),)):
        with pytest.raises((TypeError, ValueError), match="low=18, high=90"):
            dpfast.io.Number("age", *given)


def test_a_panel_the_other_way_round_is_told_its_orientation():
    donors, target = np.full((5, 12), 0.5), np.full(12, 0.5)
    with pytest.raises(ValueError, match="donors are rows, or columns with orientation='periods_by_units'"):
        dpfast.SyntheticControl(1.0, 1e-6).fit(donors.T, 3, target=target)
