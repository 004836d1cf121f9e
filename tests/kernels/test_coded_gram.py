"""Sums over codes, against the same rows with their indicators written out, to the bit; codes that are none."""

import math

import numpy as np
import pytest
from reference.coded import by_counting, written_out
from reference.gram import grid_exponent, round_rows

from dpfast.kernels.coded_gram import CodedSums
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock
from dpfast.kernels.gram import PACKED, Y_NOT_FINITE, GramTotals
from dpfast.privacy.moment_scales import padded_squared_bound

LEVELS = (0, 1, 2)
LAYOUT = CodeLayout(12, places=(0, 5, 6), firsts=(1, 7), levels=(4, 5))


def table(n_columns, bound):
    k = grid_exponent(bound)
    return n_columns, math.ldexp(1.0, k), math.ldexp(bound, k), padded_squared_bound(bound, k, n_columns)


def block(n=300, layout=LAYOUT, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1, 1, (n, len(layout.places)))
    codes = [rng.integers(-1, levels + 1, n).astype(np.int32) for levels in layout.levels]
    return CodedBlock(numbers, codes, layout)


def new_sums(layout=LAYOUT, bound=3.0, n_outcomes=2, **options):
    of_y = table(n_outcomes, 2.0) if n_outcomes else (0, 1.0, 1.0, 1)
    arguments = {"block_rows": 64, "use_blas": False, "with_sums": True, "level": 2} | options
    return CodedSums(table(layout.n_columns, bound), of_y, **arguments)


def indicators(bound=3.0, layout=LAYOUT):
    ends = np.zeros((2, sum(layout.levels)), np.int64)
    ends[1] = int(math.ldexp(1.0, grid_exponent(bound)))
    return ends


def limbs(*parts, layout=LAYOUT, n_outcomes=2):
    totals = GramTotals(layout.n_columns, n_outcomes, 1 << 45)
    totals.take(list(parts))
    return [limb for pair in (totals.symmetric(), totals.cross(), totals.columns()) for limb in pair]


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def outcomes(n=300):
    return np.random.default_rng(9).normal(size=(n, 2))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("use_blas", [False, True])
@pytest.mark.parametrize("block_rows", [1, 7, 64, 255])
def test_counts_give_the_sums_of_indicators_to_the_bit(level, use_blas, block_rows):
    rows, y = block(), outcomes()
    options = {"level": level, "use_blas": use_blas, "block_rows": block_rows}
    dense, coded, apart = (new_sums(**options) for _ in range(3))
    assert dense.add(written_out(rows), y, None, 0, 300) == PACKED
    beyond = np.zeros(300, np.uint8)
    assert coded.begin(LAYOUT, indicators())
    for start, stop in ((0, 100), (100, 101), (101, 300)):
        assert coded.add_coded(rows.numbers, rows.codes, y, start, stop, beyond[start:stop]) == PACKED
    assert not beyond.any()
    assert coded.rows_in_totals == 300
    apart.begin(LAYOUT, indicators())
    columns = ColumnBlock(list(rows.numbers.T))
    assert apart.add_coded(columns, rows.codes, ColumnBlock(list(y.T)), 0, 300, beyond) == PACKED
    expected = limbs(dense)
    assert_same(limbs(coded), expected)
    assert_same(limbs(apart), expected)


def test_they_are_those_of_counting_with_two_values_an_indicator():
    rows = block()
    rng = np.random.default_rng(3)
    ends = rng.integers(-(2**20), 2**20, (2, 9))
    coded = new_sums(bound=1e4, n_outcomes=0)
    scale = table(12, 1e4)[1]
    assert coded.begin(LAYOUT, ends // 2**8)
    assert coded.add_coded(rows.numbers, rows.codes, None, 0, 300, np.zeros(300, np.uint8)) == PACKED
    high, low = limbs(coded, n_outcomes=0)[:2]
    integers = np.rint(rows.numbers * scale).astype(np.int64)
    expected = by_counting(integers, rows, *(ends // 2**8))
    np.testing.assert_array_equal(high.astype(object) * 2**64 + low.astype(object), expected)


def test_rows_beyond_the_bound_or_not_finite_are_left_out_and_named():
    rows, y, beyond = block(), outcomes(), np.zeros(300, np.uint8)
    rows.numbers[7, 1], rows.numbers[70, 0], rows.numbers[200, 2] = 50.0, np.nan, -np.inf
    beyond[11] = 1
    coded, dense = new_sums(), new_sums()
    coded.begin(LAYOUT, indicators())
    assert coded.add_coded(rows.numbers, rows.codes, y, 0, 300, beyond) == PACKED
    assert np.flatnonzero(beyond).tolist() == [7, 11, 70, 200]
    within = np.flatnonzero(beyond == 0)
    assert dense.add(written_out(rows)[within], y[within], None, 0, 296) == PACKED
    assert_same(limbs(coded), limbs(dense))


@pytest.mark.parametrize("bound", [0.5, 1.0, math.sqrt(2.0), 1.5])
def test_a_row_is_beyond_its_bound_where_all_of_its_columns_are(bound):
    rows = block(seed=1)
    beyond = np.zeros(300, np.uint8)
    coded = new_sums(bound=bound, n_outcomes=0)
    coded.begin(LAYOUT, indicators(bound))
    coded.add_coded(rows.numbers, rows.codes, None, 0, 300, beyond)
    limit, unscaled = table(12, bound)[3], math.ldexp(1.0, grid_exponent(bound))
    squared = [sum(int(v) ** 2 for v in np.rint(row * unscaled)) for row in written_out(rows)]
    np.testing.assert_array_equal(beyond != 0, np.array(squared) > limit)
    rounded, _ = round_rows(written_out(rows)[beyond == 0], bound)
    assert all(sum(v * v for v in row) <= limit for row in rounded)


@pytest.mark.parametrize("lie", [4, 5, 6, 255, 2**31 - 1, -1, -2, -(2**31)])
def test_codes_that_are_no_level_are_none(lie):
    rows, y = block(), outcomes()
    rows.codes[0][::3] = lie
    coded, dense = new_sums(), new_sums()
    coded.begin(LAYOUT, indicators())
    assert coded.add_coded(rows.numbers, rows.codes, y, 0, 300, np.zeros(300, np.uint8)) == PACKED
    dense.add(written_out(rows), y, None, 0, 300)
    assert_same(limbs(coded), limbs(dense))


def test_dense_rows_and_other_layouts_add_to_the_same_sums():
    other = CodeLayout(12, places=(), firsts=(0, 2), levels=(2, 10))
    first, second, y = block(), block(layout=other), outcomes()
    mixed, dense = new_sums(), new_sums()
    for rows, layout in ((first, LAYOUT), (second, other), (first, LAYOUT)):
        assert mixed.begin(layout, indicators(layout=layout))
        assert mixed.add_coded(rows.numbers, rows.codes, y, 0, 300, np.zeros(300, np.uint8)) == PACKED
        mixed.add(written_out(rows), y, None, 0, 50)
        dense.add(written_out(rows), y, None, 0, 300)
        dense.add(written_out(rows), y, None, 0, 50)
    assert_same(limbs(mixed), limbs(dense))


def test_what_does_not_fit_is_refused():
    rows, beyond = block(), np.zeros(300, np.uint8)
    coded = new_sums(n_outcomes=0)
    huge = indicators()
    huge[1, 0] = 2**27
    assert not coded.begin(LAYOUT, huge)
    with pytest.raises(ValueError, match="another layout"):
        coded.add_coded(rows.numbers, rows.codes, None, 0, 300, beyond)
    coded.begin(LAYOUT, indicators())
    with pytest.raises(ValueError, match="columns"):
        coded.begin(CodeLayout(13, (0,), (1,), (12,)), np.zeros((2, 12), np.int64))
    with pytest.raises(IndexError):
        coded.add_coded(rows.numbers, rows.codes, None, 0, 301, np.zeros(301, np.uint8))
    with pytest.raises(IndexError):
        coded.add_coded(rows.numbers, [rows.codes[0][:10], rows.codes[1]], None, 0, 300, beyond)
    with pytest.raises(ValueError, match="one entry a row"):
        coded.add_coded(rows.numbers, rows.codes, None, 0, 300, beyond[:10])
    many = coded.capacity + 1
    numbers, codes = np.broadcast_to(np.zeros((1, 3)), (many, 3)), [np.zeros(many, np.int32)] * 2
    beyond = np.zeros(many, np.uint8)
    with pytest.raises(OverflowError):
        coded.add_coded(numbers, codes, None, 0, many, beyond)


def test_outcomes_that_are_not_finite_are_refused():
    rows, y = block(), outcomes()
    y[5, 1] = np.nan
    coded = new_sums()
    coded.begin(LAYOUT, indicators())
    assert coded.add_coded(rows.numbers, rows.codes, y, 0, 300, np.zeros(300, np.uint8)) == Y_NOT_FINITE


def test_codes_of_64_bits_are_of_no_level_beyond_those_of_32():
    layout = CodeLayout(2, places=(), firsts=(0,), levels=(2,))
    block = CodedBlock(np.empty((4, 0)), [np.array([2**32, 1, -(2**40), 0])], layout)
    np.testing.assert_array_equal(np.asarray(block), [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
