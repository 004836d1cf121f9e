"""What all estimators say alike stands in the docstrings of each."""

import inspect

import pytest

from dpfast import registry


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_what_is_left_to_the_base_is_said_in_full(name):
    cls = registry.estimator(name)
    members = [cls, *(method for _, method in inspect.getmembers(cls, inspect.isfunction))]
    said = [f"{one.__qualname__}: {one.__doc__}" for one in members if "As for every estimator" in (one.__doc__ or "")]
    assert said == []
    assert "operating" in cls.__doc__  # what the base says of seeds
