"""Rows before they are weighed: within the bounds of weighed ones, and linear functions of rows as they came."""

import math

import numpy as np
import pytest

from dpfast.multi_outcome.mechanism import Column, Unweighted
from dpfast.solvers.ridge import RidgeSolution

FAR = (np.array([50.0, -0.5, 3.0]), np.array([60.0, 0.5, 3.0]))
DECLARED = {
    "a bound": {"bound": 3.0, "box": None},
    "a far box": {"bound": None, "box": FAR},
    "a far box and a bound": {"bound": 20.0, "box": FAR},
}


@pytest.mark.parametrize("has_intercept", [False, True])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("declared", DECLARED)
def test_no_weighed_row_is_beyond_the_bounds_of_its_fit_and_some_reach_them(declared, nonnegative, has_intercept):
    rows = Unweighted(**DECLARED[declared], nonnegative=nonnegative, has_intercept=has_intercept)
    if rows.stay:
        assert rows.held is None
        return
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-3.0, 4.0, size=(4_000, 1))
    given = np.vstack([sizes * rng.normal(size=(4_000, 3)), FAR, [FAR[0]] * 2])
    roots = np.append(rng.random(len(given) - 4), [1.0, 1.0, 0.0, 0.5])[:, None]
    weighed, bounds = roots * rows.held(given), rows.parameters(3)
    assert weighed.shape[1] == 3 + has_intercept
    assert not bounds["fit_intercept"]
    if rows.box is None:
        lengths = np.linalg.norm(weighed, axis=1)
        assert np.max(lengths) <= bounds["bound_x"] * (1.0 + 2.0**-30)
        assert np.max(lengths) > 0.99 * bounds["bound_x"]
        return
    low, high = bounds["box_x"]
    assert bounds["bound_x"] is None
    slack = 2.0**-30 * np.maximum(np.abs(low), np.abs(high)) if rows.bound is not None else 0.0
    assert np.all((low - slack <= weighed) & (weighed <= high + slack))
    assert np.all(low <= 0.0)
    assert np.all(high >= 0.0)


@pytest.mark.parametrize("declared", DECLARED)
def test_a_linear_function_of_completed_rows_is_one_of_rows_as_they_came(declared):
    rows = Unweighted(**DECLARED[declared], nonnegative=False, has_intercept=True)
    inside = np.array([[51.0, 0.2, 3.0], [55.0, -0.1, 3.0]]) if rows.box is not None else 0.5 * np.eye(3)
    if rows.bound == 20.0:
        inside = inside * [0.0, 1.0, 1.0] + [[50.0, 0.0, 0.0]]
        rows = Unweighted(60.0, FAR, nonnegative=False, has_intercept=True)
    theta = np.array([[0.3, -2.0, 0.7, 1.5]])
    solution = RidgeSolution(theta, np.zeros(1), np.ones((1, 4)), 0.0)
    split = Column(*rows.parameters(3)["_column"]).split(solution)
    np.testing.assert_allclose(rows.held(inside) @ theta.T, inside @ split.coef.T + split.intercept, rtol=1e-12)
    assert split.coef_std.shape == (1, 3)
    np.testing.assert_array_equal(rows.as_they_are(inside)[:, -1], 1.0)


def test_the_constant_is_about_as_long_as_rows():
    for bound in (0.9, 1.0, 70.0):
        (_, constant), least = Unweighted(bound, None, False, True).parameters(2)["_column"], bound / math.sqrt(2.0)
        assert least <= constant <= 2.0 * least
        assert math.frexp(constant)[0] == 0.5
