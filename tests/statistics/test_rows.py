"""Public maps of rows: what comes out is inside the radius that calibrations use."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpfast.kernels.columns import ColumnBlock
from dpfast.statistics import gram
from dpfast.statistics.rows import RowMap, centred, half_widths, scaled

SIDES = arrays(np.float64, 4, elements=st.integers(-50_000, 50_000).map(lambda one: one / 1000.0))
WHOLE_SIDES = arrays(np.float64, 4, elements=st.integers(-50, 50).map(float))
ROWS = arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6))


@given(SIDES, SIDES, ROWS, st.one_of(st.just(math.inf), st.floats(0.1, 200.0)))
def test_mapped_rows_stay_within_the_radius(first, second, rows, bound):
    low, high = np.minimum(first, second), np.maximum(first, second)
    row_map, radius = centred(low, high, bound)
    norms = np.linalg.norm(row_map(rows), axis=1)
    # The rows of a box that the bound cuts may be scaled out of a box without the origin; the sum clips them again.
    if math.isinf(bound) or np.all((low <= 0.0) & (high >= 0.0)):
        assert np.all(norms <= radius * (1.0 + 2.0**-31))


@given(SIDES, SIDES)
def test_the_radius_of_a_box_is_reached_at_its_corners(first, second):
    low, high = np.minimum(first, second), np.maximum(first, second)
    for in_box in (scaled, centred):
        row_map, radius = in_box(low, high)
        farthest = np.where(np.abs(low) > np.abs(high), low, high)
        # The radius has 32 bits.
        assert np.linalg.norm(row_map(farthest[None, :])) == pytest.approx(radius, rel=2.0**-31)


@given(WHOLE_SIDES, WHOLE_SIDES, st.floats(0.1, 200.0))
def test_the_radius_of_a_box_that_a_bound_cuts_is_reached(first, second, bound):
    low, high = np.minimum(first, second), np.maximum(first, second)
    _, radius = scaled(low, high, bound)
    farthest = np.where(np.abs(low) > np.abs(high), low, high)
    # The bound is spent on the columns of the smallest units first.
    row, left = np.zeros(4), bound**2
    for j in np.argsort(half_widths(low, high)):
        row[j] = math.copysign(min(abs(farthest[j]), math.sqrt(left)), farthest[j])
        left = max(left - row[j] ** 2, 0.0)
    assert np.linalg.norm(row / half_widths(low, high)) == pytest.approx(radius, rel=1e-6)


@given(SIDES, SIDES, st.floats(0.001, 1000.0))
def test_units_change_neither_the_radius_nor_the_rows(first, second, factor):
    low, high = np.minimum(first, second), np.maximum(first, second)
    rows = np.random.default_rng(0).uniform(low - 1.0, high + 1.0, size=(5, 4))
    for in_box in (scaled, centred):
        row_map, radius = in_box(low, high)
        turned, same = in_box(factor * low, factor * high)
        assert same == radius
        np.testing.assert_allclose(turned(factor * rows), row_map(rows), rtol=1e-9, atol=1e-12 * radius)


def test_a_column_between_equal_limits_has_its_own_size_as_unit():
    low, high = np.array([3.0, 0.0, -2.0, 1.0]), np.array([3.0, 0.0, -2.0, 2.0])
    np.testing.assert_array_equal(half_widths(low, high), [3.0, 1.0, 2.0, 0.5])
    row_map, radius = centred(low, high)
    np.testing.assert_array_equal(row_map(np.array([[9.0, 9.0, 9.0, 1.25]])), [[0.0, 0.0, 0.0, -0.5]])
    assert radius == 1.0


def test_rows_are_clipped_scaled_and_centred():
    row_map = RowMap(np.array([0.0, -1.0]), np.array([4.0, 1.0]), 2.0, np.array([1.0, 1.0]))
    mapped = row_map(np.array([[9.0, 0.0], [1.0, -5.0], [-3.0, 0.5]]))
    np.testing.assert_allclose(mapped, [[1.0, -1.0], [0.0, -2.0], [-1.0, -0.5]])


def test_a_row_inside_is_only_shifted_and_the_input_is_kept():
    rows = np.array([[0.25, 0.5]])
    rows.flags.writeable = False
    row_map, _ = centred(np.zeros(2), np.full(2, 2.0), 5.0)
    np.testing.assert_array_equal(row_map(rows), [[-0.75, -0.5]])


def test_missing_values_stay_missing():
    assert np.isnan(RowMap(np.zeros(2), np.ones(2), 1.0)(np.array([[np.nan, 0.5]]))).any()


def test_columns_that_lie_apart_are_mapped_where_they_lie(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    row_map, radius = centred(-np.ones(3), np.ones(3), 1.5)
    expected = gram(rows, bound_x=radius, map_x=row_map)

    def copied(block, *_, **__):
        raise AssertionError("a block of columns was copied")

    block = ColumnBlock(list(rows.T))
    monkeypatch.setattr(ColumnBlock, "__array__", copied)
    assert gram(iter([block]), bound_x=radius, map_x=row_map) == expected
    with pytest.raises(AssertionError):
        gram(iter([block]), bound_x=radius, map_x=lambda x: x)


@pytest.mark.parametrize("bound", [0.8, 3.0, math.inf])
@pytest.mark.parametrize("make", [centred, scaled])
def test_no_mapped_row_is_longer_than_the_largest_norm(make, bound):
    rng = np.random.default_rng(6)
    low, high = -rng.uniform(0.5, 3.0, 4), rng.uniform(0.5, 3.0, 4)
    row_map = make(low, high, bound)[0]
    corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
    largest = np.linalg.norm(row_map(np.vstack([corners, 10.0 * rng.normal(size=(200, 4))])), axis=1).max()
    assert largest <= row_map.largest_norm(4)
    assert largest > 0.9 * row_map.largest_norm(4) or bound < 3.5
    assert RowMap(bound=2.0).largest_norm(3) == pytest.approx(2.0)
    assert math.isinf(RowMap(bound=2.0, top=2).largest_norm(3))
