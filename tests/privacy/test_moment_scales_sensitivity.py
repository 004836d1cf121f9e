import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neighbours import climb, row_in_ball

from dpfast.privacy import (
    MomentScales,
    moment_mu,
    padded_bound,
    padded_squared_block_bounds,
    padded_squared_bound,
    sum_sensitivity,
    xx_sensitivity,
    xy_sensitivity,
)

SHAPES = [(1, 1), (1, 3), (3, 1), (3, 2)]


def sensitivities(shape, adjacency, nonnegative):
    d, k = shape
    return {
        "x": sum_sensitivity(1.5, adjacency=adjacency, n_coordinates=d, nonnegative=nonnegative),
        "xx": xx_sensitivity(1.5, adjacency=adjacency, n_features=d),
        "xy": xy_sensitivity(1.5, 0.7, adjacency=adjacency, n_features=d, n_outcomes=k, nonnegative=nonnegative),
    }


STATISTICS = {
    "x": lambda z, y: z,
    "xx": lambda z, y: np.outer(z, z),
    "xy": np.outer,
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_sensitivity_is_reached_and_never_passed(name, shape, adjacency, nonnegative):
    d, k = shape
    statistic = STATISTICS[name]

    def change(p):
        z, y, v, w = (
            row_in_ball(q, bound, nonnegative=nonnegative)
            for q, bound in zip(np.split(p, np.cumsum([d, k, d])), (1.5, 0.7, 1.5, 0.7), strict=True)
        )
        theirs = statistic(v, w) if adjacency == "replace_one" else 0.0
        return float(np.linalg.norm(statistic(z, y) - theirs))

    found, _ = climb(change, 2 * (d + k), np.random.default_rng(5))
    ratio = found / sensitivities(shape, adjacency, nonnegative)[name]
    assert 1.0 - 1e-6 <= ratio <= 1.0 + 4e-16


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_one_block_alone_has_its_own_sensitivity(shape, adjacency, nonnegative):
    for name, sensitivity in sensitivities(shape, adjacency, nonnegative).items():
        mu = moment_mu(
            MomentScales(**{name: 1.0}),
            1.5,
            0.7,
            adjacency=adjacency,
            n_features=shape[0],
            n_outcomes=shape[1],
            nonnegative=nonnegative,
        )
        assert sensitivity <= mu <= sensitivity * (1 + 1e-13)


@given(st.floats(1e-60, 1e60))
def test_sensitivities_are_rounded_up(bound):
    with mp.workdps(80):
        exact = mp.sqrt(2) * mp.mpf(bound) ** 2
        assert exact <= xx_sensitivity(bound, adjacency="replace_one", n_features=2) <= exact * (1 + mp.mpf(2) ** -52)
    assert sum_sensitivity(bound, adjacency="replace_one", n_coordinates=2) == 2 * bound


@given(st.floats(1e-3, 1e3), st.integers(0, 30), st.integers(1, 10_000))
def test_padded_bound_is_exact(bound, grid_exponent, n_features):
    squared = padded_squared_bound(bound, grid_exponent, n_features)
    with mp.workdps(80):
        exact = (mp.mpf(bound) * 2**grid_exponent + mp.sqrt(n_features) / 2) ** 2
        assert squared == int(mp.floor(exact)) + 1
    rounded = padded_bound(squared, grid_exponent)
    exact_square = Fraction(squared, 4**grid_exponent)
    assert Fraction(rounded) ** 2 >= exact_square > Fraction(math.nextafter(rounded, 0.0)) ** 2


@given(st.integers(1, 6), st.integers(0, 8), st.integers(0, 2**32))
def test_no_rounded_row_passes_its_padded_bound(n_features, grid_exponent, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(50, n_features))
    rows *= 0.8 / np.linalg.norm(rows, axis=1, keepdims=True)
    in_units = np.rint(rows * 2.0**grid_exponent)
    # The rows may pass 0.8 by their own rounding errors, far less than the pad's last unit.
    assert (in_units**2).sum(axis=1).max() <= padded_squared_bound(0.8, grid_exponent, n_features)


def test_perfect_squares_stay_exact():
    # (4 + 1)**2 is an integer: the floor must not fall below it.
    assert padded_squared_bound(1.0, 2, 4) == 26
    assert padded_bound(26, 2) ** 2 >= 26 / 16
    assert padded_bound(4**30, 30) == 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: xx_sensitivity(0.0, adjacency="replace_one", n_features=1), ValueError, "bound_x"),
        (lambda: xx_sensitivity(1.0, adjacency="replace_one", n_features=0), ValueError, "n_features"),
        (lambda: xx_sensitivity(1.0, adjacency="swap", n_features=1), ValueError, "adjacency"),
        (lambda: xy_sensitivity(1.0, math.nan, adjacency="replace_one", n_features=1), ValueError, "bound_y"),
        (lambda: sum_sensitivity(1.0, adjacency="replace_one", n_coordinates=1.0), TypeError, "n_coordinates"),
        (lambda: padded_squared_bound(-1.0, 20, 3), ValueError, "bound"),
        (lambda: padded_squared_bound(1.0, 20.5, 3), TypeError, "grid_exponent"),
        (lambda: padded_squared_bound(1.0, 20, 0), ValueError, "n_features"),
        (lambda: padded_squared_bound("1", 20, 3), TypeError, "bound"),
        (lambda: padded_bound(0, 20), ValueError, "squared_bound"),
        (lambda: padded_squared_bound(1.0, 10**7, 2), ValueError, "grid_exponent must lie within 2000"),
        (lambda: padded_squared_bound(1.0, -2001, 2), ValueError, "grid_exponent must lie within 2000"),
        (lambda: padded_bound(1, 10**7), ValueError, "grid_exponent must lie within 2000"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("flag", ["False", [False], 0, None, np.zeros(2)])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_flag_that_lowers_the_sensitivity_is_a_boolean(adjacency, flag):
    with pytest.raises(TypeError, match="nonnegative must be True or False"):
        sum_sensitivity(1.0, adjacency=adjacency, n_coordinates=2, nonnegative=flag)
    with pytest.raises(TypeError, match="nonnegative must be True or False"):
        xy_sensitivity(1.0, 1.0, adjacency=adjacency, n_features=2, nonnegative=flag)


@given(
    k=st.integers(1, 40),
    d=st.integers(1, 9),
    outcomes=st.integers(1, 5),
    block=st.fractions(min_value=1, max_value=10**9, max_denominator=100),
)
def test_bounds_of_a_rounded_block_hold_in_exact_arithmetic(k, d, outcomes, block):
    """The largest integer that a squared norm can be: what is declared, and rounding at its worst."""
    m_x, m_y = 10**9, 10**8
    xx, xy = padded_squared_block_bounds(k, m_x, m_y, n_features=d, n_outcomes=outcomes, block_xx=block, block_xy=block)
    with mp.workdps(60):
        a, half = mp.mpf(block.numerator) / block.denominator, mp.mpf(1) / 2
        x = a + mp.mpf(k * d) / 4 + mp.sqrt(a * k * d)
        y = (
            a
            + half * (mp.sqrt(mp.mpf(k * d) * k * m_y) + mp.sqrt(a * k * outcomes))
            + mp.mpf(k) / 4 * mp.sqrt(mp.mpf(d * outcomes))
        )
        assert xx >= min(mp.floor(x**2), (k * m_x) ** 2)
        assert xy >= min(mp.floor(y**2), k * k * m_x * m_y)
        # And hardly more.
        assert xx <= (x + 2) ** 2
        assert xy <= (y + 2 + y * mp.mpf(2) ** -40) ** 2
