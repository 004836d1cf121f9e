"""Checks of arguments that estimators and functions share."""

import math
import re

import numpy as np
import pytest

from dpfast import _arguments as check


def test_what_may_be_left_out_is_checked_where_it_is_given() -> None:
    assert check.optional(check.positive, "bound", None) is None
    assert check.optional(check.positive, "bound", 2) == 2.0
    with pytest.raises(ValueError, match=r"^bound must be positive and finite"):
        check.optional(check.positive, "bound", -1.0)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5, math.nan])
@pytest.mark.parametrize("whole", [True, False])
def test_a_share_lies_between_nothing_and_the_whole(value: float, whole: bool) -> None:
    with pytest.raises(ValueError, match=r"^rate must lie in"):
        check.share("rate", value, whole=whole)


def test_a_share_may_be_the_whole_where_that_is_said() -> None:
    assert check.share("rate", 0.25) == 0.25
    assert check.share("rate", 1, whole=True) == 1.0
    with pytest.raises(ValueError, match=re.escape("rate must lie in (0, 1), got 1.0")):
        check.share("rate", 1.0)


@pytest.mark.parametrize("value", [3.0, "ab", {1, 2}, (1.0,), (1.0, 2.0, 3.0), np.zeros(3), None])
def test_a_pair_has_two_entries(value: object) -> None:
    with pytest.raises(TypeError, match=re.escape("bound must be a pair (pre, post)")):
        check.pair("bound", value, "(pre, post)")


@pytest.mark.parametrize("value", [(0.0, 1.0), [0.0, 1.0], np.array([0.0, 1.0])])
def test_limits_are_floats_in_order(value: object) -> None:
    assert check.limits("range", value) == (0.0, 1.0)


@pytest.mark.parametrize("value", [(1.0, 0.0), (-math.inf, 0.0), (0.0, math.inf), (math.nan, 0.0)])
def test_limits_out_of_order_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^range must be finite and increasing"):
        check.limits("range", value)


def test_the_entry_of_limits_that_is_no_number_is_named() -> None:
    with pytest.raises(TypeError, match=re.escape("range[1] must be a real number, got str")):
        check.limits("range", (0.0, "1"))


def test_an_object_of_another_class_is_refused() -> None:
    assert check.instance("gram", 3, int, "a number") == 3
    with pytest.raises(TypeError, match=re.escape("gram must be a number, got str")):
        check.instance("gram", "3", int, "a number")
