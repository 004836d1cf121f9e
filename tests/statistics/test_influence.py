"""Influence of donors equals refits, also where one donor dominates or the ridge all but vanishes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.influence import leave_each_out

from dpfast.datasets import synthetic_control_panel
from dpfast.statistics import influence


def panel(rng, n, n_pre, kind):
    donors = rng.uniform(-1.0, 1.0, (n, n_pre + 2))
    if kind == "dominant":
        donors[:, 0] = 0.0
        donors[0, :n_pre] = 0.0
        donors[0, 0] = 1.0
    elif kind == "twins":
        donors[-1] = donors[0]
    elif kind == "zero":
        donors[0] = 0.0
    return donors, rng.uniform(-1.0, 1.0, n_pre)


def assert_equals_refits(donors, target_pre, ridge, tolerance):
    n_pre = len(target_pre)
    found = influence(donors, n_pre, target_pre, ridge=ridge)
    weights, prediction, without, norms, changes = leave_each_out(donors, n_pre, target_pre, ridge)
    unit = max(np.abs(without).max(), np.abs(weights).max())
    np.testing.assert_allclose(found.weights, weights, rtol=0, atol=tolerance * unit)
    np.testing.assert_allclose(found.prediction, prediction, rtol=0, atol=tolerance * unit)
    np.testing.assert_allclose(found.weights_change, norms, rtol=0, atol=tolerance * unit)
    np.testing.assert_allclose(found.prediction_change, changes, rtol=0, atol=tolerance * unit)
    for donor in range(len(donors)):
        np.testing.assert_allclose(found.weights_without(donor), without[donor], rtol=0, atol=tolerance * unit)


@settings(max_examples=30)
@given(
    st.integers(1, 9), st.integers(1, 6), st.sampled_from(["plain", "dominant", "twins", "zero"]), st.integers(0, 999)
)
def test_equals_refits(n, n_pre, kind, seed):
    assert_equals_refits(*panel(np.random.default_rng(seed), n, n_pre, kind), float(n_pre), 1e-13)


@pytest.mark.parametrize("ridge", [1e-4, 1e-8, 1e-14, 1e-20])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
@pytest.mark.parametrize("kind", ["plain", "dominant"])
def test_a_ridge_that_all_but_vanishes(kind, shape, ridge):
    # The pre-periods have full rank here, so that the answer has a limit as the ridge goes to 0.
    assert_equals_refits(*panel(np.random.default_rng(7), *shape, kind), ridge, 1e-12)


@pytest.mark.parametrize("ridge", [1e-2, 1e-4])
def test_twins_and_directions_without_variation(ridge):
    rng = np.random.default_rng(8)
    donors, target_pre = panel(rng, 8, 5, "twins")
    donors[:, 1:5] = np.outer(donors[:, 0], [2.0, -1.0, 0.5, 3.0])
    assert_equals_refits(donors, target_pre, ridge, 1e-10)


def test_leverage_all_but_one():
    donors, target_pre = panel(np.random.default_rng(9), 50, 4, "dominant")
    found = influence(donors, 4, target_pre, ridge=2e-13)
    # Only this donor varies in the first period: h = 1/(1 + lambda/2), and its weight is y_1/(1 + lambda/2).
    assert found.leverage[0] == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(found.prediction_change[0], -target_pre[0] * donors[0, 4:] / (1.0 + 1e-13), rtol=1e-13)


def test_the_panel_of_the_paper():
    donors, target, _ = synthetic_control_panel(30, 10, seed=1)
    assert_equals_refits(donors, target[:10], 10.0, 1e-12)
    found = influence(donors, 10, target[:10])
    pre = donors[:, :10]
    kernel = pre.T @ pre + 5.0 * np.eye(10)
    np.testing.assert_allclose(found.weights, pre @ np.linalg.solve(kernel, target[:10]), rtol=1e-12)
    np.testing.assert_allclose(np.sum(found.leverage), np.trace(np.linalg.solve(kernel, pre.T @ pre)), rtol=1e-12)


def test_frames_strided_and_read_only_tables_agree():
    donors, target, _ = synthetic_control_panel(20, 5, seed=2)
    expected = influence(donors, 5, target[:5]).prediction_change
    donors.flags.writeable = False
    for table in (donors, np.asfortranarray(donors), pd.DataFrame(donors)):
        np.testing.assert_array_equal(influence(table, 5, target[:5]).prediction_change, expected)


def test_the_result_says_that_it_is_not_private():
    donors, target, _ = synthetic_control_panel(20, 5, seed=3)
    words = repr(influence(donors, 5, target[:5]))
    assert words == "<Influence of 20 donors on 3 predicted periods: not private>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"donors": np.ones(4)}, "donors must be a table"),
        ({"donors": np.ones((0, 4))}, "donors must be a table"),
        ({"donors": np.full((2, 4), np.nan)}, "donors must be a table of finite numbers"),
        ({"n_pre": 0}, "n_pre must be at least 1, got 0"),
        ({"n_pre": 4}, "n_pre must leave a period after the intervention: got 4 of 4"),
        ({"target_pre": np.ones(4)}, "target_pre must be 3 finite numbers"),
        ({"target_pre": [1.0, np.inf, 1.0]}, "target_pre must be 3 finite numbers"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"ridge": -1.0}, "ridge must be positive"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        influence(**({"donors": np.ones((2, 4)), "n_pre": 3, "target_pre": np.ones(3)} | arguments))


@pytest.mark.parametrize("donor", [-1, 2])
def test_a_donor_that_is_not_there(donor):
    with pytest.raises(ValueError, match=r"donor must lie in \[0, 2\)"):
        influence(np.ones((2, 4)), 3, np.ones(3)).weights_without(donor)
