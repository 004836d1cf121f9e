"""Arguments that a call of a public function lacks or invents are named, with what is accepted."""

import importlib
import inspect
import pickle
from types import FunctionType

import numpy as np
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


def test_values_too_many_or_twice_are_told():
    model = dpfast.SyntheticControl(1.0, 1e-6)
    with pytest.raises(TypeError, match=r"fit takes donors, n_pre, target by position, got 4 values: give the others by name"):
        model.fit(np.ones((3, 2)), 1, None, "units_by_periods")
    with pytest.raises(TypeError, match="fit got donors twice"):
        model.fit(np.ones((3, 2)), donors=np.ones((3, 2)), n_pre=1)


def test_errors_inside_a_call_stay_as_they_are():
    with pytest.raises(TypeError, match="epsilon must be a real number, got str"):
        dpfast.Privacy("1")


def test_public_functions_can_be_pickled():
    assert pickle.loads(pickle.dumps(dpfast.describe)) is dpfast.describe
