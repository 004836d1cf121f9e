"""Constraints and penalties: projections against sorting and exact arithmetic, properties, refused input."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference import projections as reference

from dpfast.solvers import Box, ElasticNet, L1Ball, L2Ball, Lasso, Proximable, Ridge

vectors = st.integers(1, 12).flatmap(lambda n: arrays(float, n, elements=st.floats(-1e3, 1e3)))
radii = st.floats(1e-3, 1e3)


def sets(radius):
    return L1Ball(radius), L2Ball(radius), Box(radius), Box(low=-0.5 * radius, high=2.0 * radius)


def most_of(constraint, direction):
    """Largest inner product of a point of the set with a vector."""
    if isinstance(constraint, Box):
        return np.maximum(direction * constraint.low, direction * constraint.high).sum()
    return constraint.radius * np.linalg.norm(direction, np.inf if isinstance(constraint, L1Ball) else 2)


def exact_error(projected, exact):
    return float(max(abs(Fraction(float(x)) - y) for x, y in zip(projected, exact, strict=True)))


@given(vectors, radii)
def test_l1_projection_is_exact_to_rounding(y, radius):
    projected = L1Ball(radius).project(y)
    np.testing.assert_allclose(projected, reference.onto_l1_ball(y, radius), atol=1e-9)
    assert exact_error(projected, reference.exactly_onto_l1_ball(y, radius)) <= 8 * 2.0**-53 * max(
        radius, np.abs(projected).max()
    )


@pytest.mark.parametrize(
    ("y", "radius"),
    [
        ([3.0], 1.0),
        ([-3.0], 1.0),
        ([0.5], 1.0),
        ([1.0, 1.0, 1.0, -1.0], 1.0),
        ([0.25, 0.25, 0.25, 0.25], 1.0),
        ([np.nextafter(0.25, 1), 0.25, 0.25, 0.25], 1.0),
        ([1e300, 1e300, -1e300, 1.0], 1.0),
        ([1e300, np.nextafter(1e300, 0.0), 1e-300], 1e-30),
        ([1e16, 1e16 - 2, 1e16 - 4], 3.0),
        ([1e-300, -1e-300, 0.0], 1e-30),
        ([1.7e308, 1.7e308, -1.7e308], 1e-3),
        ([0.0, 0.0, -0.0], 1.0),
        ([1.0, 1e-17, 1e-17, 1e-17], 1.0),
    ],
)
def test_hard_cases_of_the_l1_ball(y, radius):
    y = np.array(y)
    exact = reference.exactly_onto_l1_ball(y, radius)
    assert exact_error(L1Ball(radius).project(y), exact) <= 2 * 2.0**-53 * radius


def test_points_inside_are_left_alone():
    rng = np.random.default_rng(0)
    for constraint in sets(2.0):
        inside = 0.999 * constraint.project(rng.normal(size=(50, 4)))
        assert np.array_equal(constraint.project(inside), inside)


@given(vectors, radii)
def test_projection_satisfies_the_variational_inequality(y, radius):
    """(y - p)'(z - p) <= 0 for all z of the set: a linear function over it is largest at p."""
    for constraint in sets(radius):
        p = constraint.project(y)
        scale = 1.0 + np.abs(y).max() + radius
        assert most_of(constraint, y - p) - (y - p) @ p <= 1e-12 * scale**2
        np.testing.assert_allclose(constraint.project(p), p, atol=1e-14 * scale)


@given(vectors, radii, st.integers(0, 2**32))
def test_projection_does_not_expand_distances(y, radius, seed):
    z = y + np.random.default_rng(seed).normal(size=len(y))
    for constraint in sets(radius):
        moved = np.linalg.norm(constraint.project(y) - constraint.project(z))
        assert moved <= np.linalg.norm(y - z) * (1 + 1e-12) + 1e-12 * (1 + radius)


@given(vectors, radii)
def test_bounds_on_norms(y, radius):
    for constraint in sets(radius):
        assert np.linalg.norm(constraint.project(y)) <= constraint.norm_bound(len(y)) * (1 + 1e-14)
    assert Box(low=-1.0, high=3.0).norm_bound(4) == pytest.approx(6.0)


def test_batches_are_their_rows_whatever_the_threads():
    points = np.random.default_rng(1).normal(size=(700, 90)) * np.geomspace(0.01, 10, 700)[:, None]
    one = L1Ball(3.0).project(points, n_threads=1)
    assert np.array_equal(one, L1Ball(3.0).project(points, n_threads=3))
    assert np.array_equal(one, np.array([L1Ball(3.0).project(row) for row in points]))
    np.testing.assert_allclose(one, [reference.onto_l1_ball(row, 3.0) for row in points], atol=1e-14)
    assert np.array_equal(one, L1Ball(3.0).project(points.reshape(7, 100, 90)).reshape(700, 90))
    for constraint in sets(3.0):
        assert np.array_equal(constraint.project(points)[9], constraint.project(points[9]))


def test_forms_of_points():
    points = np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32)
    expected = L1Ball(1.0).project(points.astype(float))
    points.flags.writeable = False
    assert np.array_equal(L1Ball(1.0).project(points), expected)
    assert np.array_equal(L1Ball(1.0).project(np.asfortranarray(points)), expected)
    assert np.array_equal(L1Ball(1.0).project(np.repeat(points, 2, axis=0)[::2]), expected)
    assert np.array_equal(L1Ball(1.0).project([3, -1]), [1.0, 0.0])


def test_large_l2_norms_do_not_overflow():
    np.testing.assert_allclose(L2Ball(1.0).project([3e200, 4e200]), [0.6, 0.8], rtol=1e-15)


@pytest.mark.parametrize("constraint", [L1Ball(0.7), L2Ball(0.7), Box(low=-0.5, high=0.7)])
def test_each_vector_of_an_array_is_projected_by_itself(constraint):
    """Short ones and long ones, in any dimensions of the array."""
    sizes = 10.0 ** np.arange(-3.0, 3.0).reshape(2, 3, 1)
    points = sizes * np.random.default_rng(0).normal(size=(2, 3, 4))
    projected = constraint.project(points)
    alone = [[constraint.project(row) for row in rows] for rows in points]
    np.testing.assert_allclose(projected, alone, rtol=1e-14)


@pytest.mark.parametrize("constraint", [L2Ball, L1Ball, Box])
def test_projections_are_the_same_however_numpy_treats_floating_point(constraint):
    points = np.array([[3e200, 4e-200, 0.0], [1e-300, -1e-300, 1e-300], [0.5, 2.0, -7.0]])
    with np.errstate(all="raise"):
        raised = constraint(1.0).project(points)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(raised, constraint(1.0).project(points))


@pytest.mark.parametrize("constraint", [L2Ball, L1Ball, Box])
@pytest.mark.parametrize(
    ("radius", "error", "message"),
    [
        (0.0, ValueError, "radius must be positive"),
        (-1.0, ValueError, "radius must be positive"),
        (np.inf, ValueError, "radius must be positive"),
        (np.nan, ValueError, "radius must be positive"),
        (1e70, ValueError, "radius must lie between"),
        (1e-70, ValueError, "radius must lie between"),
        ("1", TypeError, "radius must be a real number"),
        (True, TypeError, "radius must be a real number"),
    ],
)
def test_bad_radii_are_named(constraint, radius, error, message):
    with pytest.raises(error, match=message):
        constraint(radius)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "either radius, or low and high"),
        ({"radius": 1.0, "low": 0.0, "high": 1.0}, TypeError, "either radius, or low and high"),
        ({"low": 0.0}, TypeError, "either radius, or low and high"),
        ({"low": 1.0, "high": 1.0}, ValueError, "low must be below high"),
        ({"low": [0.0, 2.0], "high": 1.0}, ValueError, "low must be below high"),
        ({"low": 0.0, "high": np.inf}, ValueError, "high must be finite"),
        ({"low": 0.0, "high": 1e70}, ValueError, "at most 2\\*\\*200"),
        ({"low": [0.0, 0.0], "high": [1.0, 1.0, 1.0]}, ValueError, "equally many entries"),
        ({"low": [], "high": []}, ValueError, "low must have 0 or 1 dimensions"),
    ],
)
def test_bad_boxes_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Box(**arguments)


def test_bad_points_are_named():
    for constraint in sets(1.0):
        with pytest.raises(ValueError, match="points must be finite"):
            constraint.project([1.0, np.nan])
        with pytest.raises(TypeError, match="points must hold real numbers"):
            constraint.project(["a"])
    with pytest.raises(ValueError, match="the box has 2 coordinates, the problem 3"):
        Box(low=[0.0, 0.0], high=1.0).project(np.ones(3))


def test_a_box_does_not_change_with_the_arrays_it_was_made_of():
    low = np.zeros(2)
    box = Box(low=low, high=1.0)
    low[:] = 0.5
    assert box.low.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = 1.0


@given(vectors, st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(1e-3, 10.0))
def test_prox_is_the_minimiser(v, l1, l2, step):
    penalty = ElasticNet(l1, l2)
    x = penalty.prox(v, step)
    gradient = (x - v) + step * l2 * x
    tolerance = 1e-12 * (1 + np.abs(v).max() + step * l1)
    assert (np.abs(gradient[x == 0.0]) <= step * l1 + tolerance).all()
    assert (np.abs(gradient + step * l1 * np.sign(x))[x != 0.0] <= tolerance).all()


def test_penalties():
    assert Lasso(2.0).value(np.array([1.0, -3.0])) == 8.0
    assert Ridge(2.0).value(np.array([1.0, -3.0])) == 10.0
    assert ElasticNet(1.0, 2.0).value(np.array([1.0, -3.0])) == 14.0
    assert (repr(Lasso(2.0)), repr(Ridge(3.0))) == ("Lasso(weight=2.0)", "Ridge(weight=3.0)")
    assert all(isinstance(penalty, Proximable) for penalty in (Lasso(1.0), Ridge(1.0), ElasticNet(1.0, 1.0)))
    with pytest.raises(ValueError, match="weight must be at least 0"):
        Lasso(-1.0)
    with pytest.raises(ValueError, match="l2 must be at most"):
        ElasticNet(1.0, 1e99)
