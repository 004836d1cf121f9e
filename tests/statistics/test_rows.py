"""Public maps of rows: what comes out is inside the radius that calibrations use."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpfast.kernels.columns import ColumnBlock
from dpfast.statistics import gram
from dpfast.statistics.rows import RowMap, centred

SIDES = arrays(np.float64, 4, elements=st.floats(-50.0, 50.0))
ROWS = arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6))


@given(SIDES, SIDES, ROWS, st.one_of(st.just(math.inf), st.floats(0.1, 200.0)))
def test_mapped_rows_stay_within_the_radius(first, second, rows, bound):
    low, high = np.minimum(first, second), np.maximum(first, second)
    row_map, radius = centred(low, high, bound)
    norms = np.linalg.norm(row_map(rows), axis=1)
    # The rows of a box that the bound cuts may be scaled out of a box without the origin; the sum clips them again.
    if math.isinf(bound) or np.all((low <= 0.0) & (high >= 0.0)):
        assert np.all(norms <= radius * (1.0 + 1e-12) + 1e-300)


@given(SIDES, SIDES)
def test_the_radius_of_a_box_is_reached_at_its_corners(first, second):
    low, high = np.minimum(first, second), np.maximum(first, second)
    row_map, radius = centred(low, high)
    assert np.linalg.norm(row_map(low[None, :])) == pytest.approx(radius, abs=1e-12)


def test_rows_are_clipped_scaled_and_centred():
    row_map = RowMap(np.array([0.0, -1.0]), np.array([4.0, 1.0]), 2.0, np.array([1.0, 1.0]))
    mapped = row_map(np.array([[9.0, 0.0], [1.0, -5.0], [-3.0, 0.5]]))
    np.testing.assert_allclose(mapped, [[1.0, -1.0], [0.0, -2.0], [-1.0, -0.5]])


def test_a_row_inside_is_only_shifted_and_the_input_is_kept():
    rows = np.array([[0.25, 0.5]])
    rows.flags.writeable = False
    row_map, _ = centred(np.zeros(2), np.ones(2), 5.0)
    np.testing.assert_array_equal(row_map(rows), [[-0.25, 0.0]])


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
