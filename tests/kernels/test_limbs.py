"""128-bit integers to doubles, and to cells of a grid and back, against Python's own integers and roundings."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpfast.kernels import limbs
from dpfast.kernels.columns import FixedPoint

wide = st.one_of(
    st.integers(-(2**127), 2**127 - 1),
    st.integers(-(2**65), 2**65),
    # Ties and their neighbours: 54 leading bits, then a run of zeros, then -1, 0 or 1.
    st.builds(
        lambda lead, shift, off: (lead << shift) + off,
        st.integers(2**53, 2**54),
        st.integers(1, 72),
        st.integers(-1, 1),
    ),
)


@given(values=st.lists(wide, min_size=1, max_size=6), exponent=st.integers(-200, 200))
@example(values=[2**63, -(2**63), -(2**63) - 1, 2**64 - 1, -1, 0], exponent=0)
def test_values_are_rounded_once(values, exponent):
    found = FixedPoint.from_integers(values, exponent).to_float64()
    np.testing.assert_array_equal(found, np.ldexp([float(v) for v in values], exponent))


def test_shape_and_strides_are_kept():
    grid = FixedPoint.from_integers(np.arange(12).reshape(3, 4), 1)
    np.testing.assert_array_equal(
        FixedPoint(grid.high.T, grid.low.T, 1).to_float64(), 2.0 * np.arange(12).reshape(3, 4).T
    )


def split(values, shift):
    exact = FixedPoint.from_integers(values, 0)
    cells, fractions = FixedPoint(np.empty_like(exact.high), np.empty_like(exact.low), shift), np.empty(len(values))
    limbs.split_cells(exact.high, exact.low, shift, cells.high, cells.low, fractions)
    return cells, fractions


@given(values=st.lists(st.integers(-(2**126), 2**126), min_size=1, max_size=6), shift=st.integers(1, 62))
@example(values=[-(2**127), 2**61, 2**61 - 1, -(2**61), -(2**61) - 1, 3 * 2**61], shift=62)
def test_a_cell_is_the_nearest_and_the_fraction_is_what_is_left(values, shift):
    cells, fractions = split(values, shift)
    nearest = [(value + (1 << shift - 1)) >> shift for value in values]
    assert [cells.integer(index) for index in range(len(values))] == nearest
    left = [(value - (cell << shift)) / (1 << shift) for value, cell in zip(values, nearest, strict=True)]
    assert fractions.tolist() == left


@given(
    values=st.lists(st.integers(-(2**126), 2**126), min_size=1, max_size=6),
    offset=st.integers(-(2**53), 2**53),
    exponent=st.integers(-200, 200),
)
def test_cells_and_offsets_are_added_and_then_rounded_once(values, offset, exponent):
    cells, released = FixedPoint.from_integers(values, exponent), np.empty(len(values))
    limbs.join_cells(cells.high, cells.low, np.full(len(values), float(offset)), exponent, released)
    assert released.tolist() == [float(np.ldexp(float(value + offset), exponent)) for value in values]


def test_cells_and_sums_beyond_128_bits_are_refused():
    most, one = FixedPoint.from_integers([2**127 - 1], 0), np.ones(1)
    with pytest.raises(OverflowError):
        split([2**127 - 1], 5)
    for sign in (1.0, -1.0):
        end = most if sign > 0.0 else FixedPoint.from_integers([-(2**127)], 0)
        with pytest.raises(OverflowError):
            limbs.join_cells(end.high, end.low, sign * one, 0, np.empty(1))
    with pytest.raises(IndexError):
        limbs.join_cells(most.high, most.low, np.ones(2), 0, np.empty(1))
    with pytest.raises(ValueError, match="shift"):
        split([1], 63)
