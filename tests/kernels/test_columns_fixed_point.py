"""128-bit fixed point against Python's integers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.kernels.columns import FixedPoint

INTEGERS = st.one_of(
    st.integers(-(2**126), 2**126 - 1),
    st.integers(-(2**64) - 2, 2**64 + 2),
    st.sampled_from([s * 2**k + o for k in (0, 52, 53, 62, 63, 64, 65, 125) for s in (1, -1) for o in (-1, 0, 1)]),
)


@given(st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1, max_size=8))
def test_sums_are_those_of_integers(pairs):
    first, second = (FixedPoint.from_integers(list(values), -44) for values in zip(*pairs, strict=True))
    total = first + second
    assert [total.integer(index) for index in range(len(pairs))] == [a + b for a, b in pairs]
    assert total == second + first


@given(st.lists(INTEGERS, min_size=1, max_size=8), st.integers(-200, 200))
def test_doubles_are_correctly_rounded(values, exponent):
    ours = FixedPoint.from_integers(values, exponent).to_float64()
    assert ours.tolist() == [float(np.ldexp(float(value), exponent)) for value in values]


def test_overflow_is_an_error_in_both_directions():
    for value in (2**127 - 1, -(2**127)):
        most = FixedPoint.from_integers([value], 0)
        with pytest.raises(OverflowError):
            most + most


def test_parts_and_scalars():
    values = FixedPoint.from_integers([[1, -2], [3, 2**70]], -3)
    assert values.shape == (2, 2)
    assert values[1].integer(1) == 2**70
    assert values[[0, 1], [1, 0]].to_float64().tolist() == [-0.25, 0.375]
    assert FixedPoint.from_integers(7, 0).to_float64().tolist() == 7.0
    assert FixedPoint.zeros((2,), 0) == FixedPoint.from_integers([0, 0], 0)


def test_different_grids_neither_add_nor_equal():
    one, other = FixedPoint.from_integers([1], 0), FixedPoint.from_integers([1], 1)
    assert one != other
    with pytest.raises(ValueError, match="exponents differ"):
        one + other
    assert one != "1"
    with pytest.raises(TypeError):
        hash(one)
    with pytest.raises(ValueError, match="shapes differ"):
        one + FixedPoint.from_integers([1, 2], 0)


def test_arrays_of_machine_integers_and_an_integer_after_others_are_exact():
    values = np.array([[-1, 2], [-(2**63), 2**63 - 1]])
    found = FixedPoint.from_integers(values.T, -3)
    assert found == FixedPoint.from_integers(values.T.tolist(), -3)
    assert found.followed_by(-(2**70)) == FixedPoint.from_integers([*values.T.ravel().tolist(), -(2**70)], -3)


def test_pairs_of_doubles_hold_twice_the_precision():
    rng = np.random.default_rng(0)
    integers = [0, 1, -1, 2**64, -(2**64), 2**64 - 1, 1 - 2**64, 2**53 + 1, -(2**53) - 1, 2**114 - 1, -(2**114) + 3]
    for bits in (10, 50, 60, 64, 70, 80, 114):
        draws = rng.integers(0, 2**57, (20, 2)).tolist()
        integers += [sign * ((a << 57 | b) >> (114 - bits)) for a, b in draws for sign in (1, -1)]
    exact = FixedPoint.from_integers(integers, -44)
    high, low = exact.to_float64_pair()
    assert np.array_equal(high, exact.to_float64())
    for value, pair in zip(integers, zip(high.tolist(), low.tolist(), strict=True), strict=True):
        total = sum(Fraction(part) for part in pair) * 2**44
        assert abs(total - value) <= abs(Fraction(value)) / 2**106


def test_values_stay_on_a_finer_grid_and_do_not_fit_a_coarser_one_or_128_bits():
    values = FixedPoint.from_integers([[-3, 2**90], [0, -(2**100)]], -7)
    finer = values.in_units(-20)
    assert [finer.integer(index) for index in np.ndindex(2, 2)] == [-3 << 13, 2**103, 0, -(2**113)]
    assert finer.exponent == -20
    assert values.in_units(-7) is values
    assert values.in_units(-34).integer((1, 1)) == -(2**127)
    with pytest.raises(OverflowError, match="128 bits"):
        values.in_units(-35)
    with pytest.raises(ValueError, match="coarser"):
        values.in_units(-6)
