"""Residual sums: exact, bounded for every person, and the same for any layout, block, order and thread."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from reference.rows import TABLES

from dpfast import io
from dpfast.io.people import people
from dpfast.statistics.residuals import (
    Clip,
    ResidualStep,
    residual_bound,
    residual_sizes,
    residual_sums,
    squares_bound,
)
from dpfast.statistics.rows import RowMap, centred

D, OUTCOMES = 5, 2
LOW, HIGH = -np.ones(D), np.arange(1.0, D + 1.0)


def step_of(rng, *, whitened=True, constant=True, scale=1.0):
    columns = D + constant
    whitening = np.tril(rng.normal(size=(columns, columns))) if whitened else None
    theta = scale * rng.normal(size=(columns, OUTCOMES))
    return ResidualStep(theta, centred(LOW, HIGH, 6.0)[0], RowMap(bound=3.0), whitening, constant)


def table_of(rng, n_rows=300):
    return 2.0 * rng.normal(size=(n_rows, D)), 2.0 * rng.normal(size=(n_rows, OUTCOMES))


def parts(step, x, y):
    """Each row's p r' in floating point, before any clip."""
    columns, outcomes = step.map_x(x), step.map_y(y)
    if step.constant:
        columns = np.hstack([columns, np.ones((len(x), 1))])
    p = columns if step.whitening is None else columns @ step.whitening.T
    return p[:, :, None] * (outcomes - columns @ step.theta)[:, None, :]


def clipped(blocks, clip):
    lengths = np.linalg.norm(blocks.reshape(len(blocks), -1), axis=1)
    return blocks * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None, None]


def squared_norm(total):
    """Exactly, of a fixed-point matrix."""
    exact = sum(total.integer(index) ** 2 for index in np.ndindex(total.shape))
    return exact * Fraction(4) ** total.exponent


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("clip", [0.3, 7.0, 1e4])
def test_the_sums_are_those_of_clipped_rows_times_residuals(whitened, constant, clip):
    rng = np.random.default_rng(0)
    step = step_of(rng, whitened=whitened, constant=constant)
    x, y = table_of(rng)
    sums = residual_sums(io.open_table(x, y), step, clip, bound_squares=4.0)
    expected = clipped(parts(step, x, y), clip)
    assert sums.products.to_float64() == pytest.approx(expected.sum(axis=0), abs=len(x) * clip * 2e-6)
    assert sums.products.shape == step.shape
    sizes = np.linalg.norm(parts(step, x, y).reshape(len(x), -1), axis=1)
    edges = [0.0, *(2.0 ** (j / 2.0) for j in range(-4, 10)), math.inf]
    counts = residual_sizes(io.open_table(x, y), step, (-4, 9))
    np.testing.assert_array_equal(counts, np.histogram(sizes, edges)[0])


def test_squares_of_residuals_are_held_to_their_bound_and_summed():
    rng = np.random.default_rng(1)
    step = step_of(rng)
    x, y = table_of(rng)
    squares = residual_sums(io.open_table(x, y), step, 1.0, bound_squares=9.0).squares.to_float64()
    columns = np.hstack([step.map_x(x), np.ones((len(x), 1))])
    each = (step.map_y(y) - columns @ step.theta) ** 2
    held = each * np.minimum(1.0, 9.0 / np.linalg.norm(each, axis=1))[:, None]
    assert squares == pytest.approx(held.sum(axis=0), rel=1e-5)
    assert 9.0 < squares_bound(9.0, step) < 9.0 * (1.0 + 1e-6)
    assert residual_sums(io.open_table(x, y), step, 1.0).squares is None


@pytest.mark.parametrize("clip", [1e-3, 1.0, 2.0**20, 3e50])
def test_no_row_adds_more_than_the_bound_and_long_ones_that_much(clip):
    rng = np.random.default_rng(2)
    for scale in (1e-6, 1.0, 1e6, 1e60):
        step = step_of(rng, scale=scale)
        bound = Fraction(residual_bound(clip, step))
        assert clip < bound < clip * (1.0 + 5e-6)
        x, y = table_of(rng, 40)
        for one, other in zip(x, y, strict=True):
            part = residual_sums(io.open_table(one[None], other[None]), step, clip).products
            assert squared_norm(part) <= bound**2
            if np.linalg.norm(parts(step, one[None], other[None])) >= clip:
                assert squared_norm(part) >= Fraction(clip * (1.0 - 5e-6)) ** 2


def test_the_sum_is_that_of_its_rows_alone_for_any_layout_and_block():
    rng = np.random.default_rng(3)
    step = step_of(rng)
    x, y = table_of(rng, 61)

    def sums(one, other):
        return residual_sums(io.open_table(one, other), step, 5.0, bound_squares=4.0)

    total = sums(x[:1], y[:1])
    for i in range(1, len(x)):
        row = sums(x[[i]], y[[i]])
        total = type(total)(*(a + b for a, b in zip(total, row, strict=True)))
    for lay in TABLES.values():
        assert sums(lay(x), lay(y)) == total
    for size in (1, 2, 3):
        blocks = [(np.asfortranarray(x[i : i + size]), y[i : i + size]) for i in range(0, len(x), size)]
        assert sums(iter(blocks), None) == total


def test_people_with_several_rows_are_held_to_the_clip_as_a_whole():
    rng = np.random.default_rng(4)
    step = step_of(rng, scale=0.3)
    x, y = table_of(rng, 60)
    groups = rng.integers(0, 15, 60)
    whose = people(groups, 3)
    kept = [np.flatnonzero(groups == one)[:3] for one in dict.fromkeys(groups.tolist())]
    table = io.open_table(x, y)
    for clip in (0.5, 20.0, 1e3):
        sums = residual_sums(table, step, clip, whose=whose, max_rows=3).products
        blocks = np.array([parts(step, x[rows], y[rows]).sum(axis=0) for rows in kept])
        if clip > 1.0:
            assert sums.to_float64() == pytest.approx(clipped(blocks, clip).sum(axis=0), abs=len(x) * clip * 1e-5)
        bound = Fraction(residual_bound(clip, step, 3))
        assert bound < clip * (1.0 + 1e-5)
        for rows in kept:
            one = people(np.zeros(len(rows), int), 3)
            part = residual_sums(io.open_table(x[rows], y[rows]), step, clip, whose=one, max_rows=3).products
            assert squared_norm(part) <= bound**2
    lengths = np.linalg.norm(blocks.reshape(len(blocks), -1), axis=1)
    counts = residual_sizes(table, step, (0, 12), whose=whose, max_rows=3)
    edges = [0.0, *(2.0 ** (j / 2.0) for j in range(13)), math.inf]
    np.testing.assert_array_equal(counts, np.histogram(lengths, edges)[0])


def test_what_would_overflow_is_refused_before_rows_are_read():
    step = step_of(np.random.default_rng(5))
    good = {"theta": step.theta, "map_x": step.map_x, "map_y": step.map_y, "constant": True}
    for change, message in (
        ({"theta": step.theta * 1e200}, "cannot overflow"),
        ({"theta": step.theta * math.nan}, "finite"),
        ({"map_x": RowMap()}, "cannot overflow"),
        ({"map_y": RowMap(bound=1e200)}, "cannot overflow"),
        ({"whitening": np.full((2, D + 1), 1e200)}, "1e-100 to 1e100"),
        ({"whitening": np.ones((2, D))}, "columns"),
    ):
        with pytest.raises(ValueError, match=message):
            ResidualStep(**good | change)
    with pytest.raises(ValueError, match="clip"):
        Clip(0.0, (2, 2))
    with pytest.raises(ValueError, match="max_rows"):
        Clip(1.0, (2, 2), 1 << 20)


def test_tables_say_whether_they_can_be_read_again_and_are():
    x, y = table_of(np.random.default_rng(6), 10)
    step = step_of(np.random.default_rng(7))
    frame = pd.DataFrame({f"c{i}": column for i, column in enumerate(x.T)})
    for tables in ((x, y), (frame, y), ([x[:5], x[5:]], y), ([(x[:5], y[:5]), (x[5:], y[5:])], None)):
        table = io.open_table(*tables)
        assert not table.is_read_once
        first, second = (residual_sums(table, step, 1.0) for _ in range(2))
        assert first == second
    once = io.open_table(iter([x]), y)
    assert once.is_read_once
    residual_sums(once, step, 1.0)
    with pytest.raises(ValueError, match="only once"):
        residual_sums(once, step, 1.0)
