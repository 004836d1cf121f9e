"""The packing and summing kernel on its own: levels, blocks, BLAS or tiles, the bound on every row."""

import ctypes
import itertools
import math
import mmap
import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference.gram import grid_exponent, round_rows

from dpfast.kernels.columns import ColumnBlock
from dpfast.kernels.gram import PACKED, X_NOT_FINITE, Y_NOT_FINITE, GramSums, GramTotals
from dpfast.privacy.moment_scales import padded_squared_bound

LEVELS = (0, 1, 2)


def table(n_columns, bound):
    if n_columns == 0:
        return 0, 1.0, 1.0, 1
    k = grid_exponent(bound)
    return n_columns, math.ldexp(1.0, k), math.ldexp(bound, k), padded_squared_bound(bound, k, n_columns)


def sums(x, y=None, *, bound_x=1.0, bound_y=1.0, rows=None, pieces=1, **options):
    """Limbs of all sums (products' upper triangle, columns) of one GramSums."""
    n_y = 0 if y is None else y.shape[1]
    tables = table(x.shape[1], bound_x), table(n_y, bound_y)
    part = GramSums(*tables, **{"block_rows": 64, "use_blas": False, "with_sums": True, "level": 2} | options)
    n_rows = len(x) if rows is None else len(rows)
    edges = np.linspace(0, n_rows, pieces + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        assert part.add(x, y, rows, int(start), int(stop)) == PACKED
    totals = GramTotals(x.shape[1], n_y, max(t[3] for t in tables))
    totals.take([part])
    assert part.rows_in_totals == 0
    return tuple(limb for pair in (totals.symmetric(), totals.cross(), totals.columns()) for limb in pair)


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 23, 24, 25, 31, 32, 33, 40, 47, 100])
def test_levels_blas_and_blocks_agree_to_the_bit(n_features):
    rng = np.random.default_rng(n_features)
    x, y = rng.standard_normal((150, n_features)), rng.standard_normal((150, 1 + n_features % 11))
    bounds = {"bound_x": 0.9 * math.sqrt(n_features), "bound_y": 1.0}
    expected = sums(x, y, level=0, use_blas=True, block_rows=1000, **bounds)
    for level in LEVELS:
        for use_blas in (False, True):
            for block_rows in (1, 7, 64, 1000):
                found = sums(x, y, level=level, use_blas=use_blas, block_rows=block_rows, pieces=3, **bounds)
                assert_same(found, expected)


def end_of_readable_memory(content):
    """A copy of a table behind which no byte may be read, and what holds the memory."""
    page = mmap.PAGESIZE
    pages = -(-content.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # Protection 0 is none.
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(first + pages * page), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(memory, content.dtype, content.size, pages * page - content.nbytes).reshape(content.shape)
    copy[:] = content
    return copy


@pytest.mark.skipif(os.name != "posix", reason="protects a page with mprotect")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_columns", [1, 3, 5, 7, 9, 20])
def test_nothing_behind_a_table_is_read_nor_counts(n_columns, dtype):
    rng = np.random.default_rng(n_columns)
    wide = rng.standard_normal((40, n_columns + 3)).astype(dtype)
    wide[:, n_columns:] = np.nan
    x = np.ascontiguousarray(wide[:, :n_columns])
    last = end_of_readable_memory(x)
    of_wide = end_of_readable_memory(wide)[:, :n_columns]
    index = rng.permutation(40)
    for level, bound in itertools.product(LEVELS, (1.0, 10.0 * n_columns)):
        options = {"bound_x": bound, "bound_y": bound, "level": level}
        expected = sums(x, x, **options)
        for table in (last, of_wide, last[::-1][::-1], end_of_readable_memory(x[::-1])[::-1]):
            assert_same(sums(table, table, **options), expected)
            assert_same(sums(table, table, rows=index, **options), expected)
            assert_same(sums(table[-1:], table[-1:], **options), sums(x[-1:], x[-1:], **options))
        assert_same(sums(np.broadcast_to(last[-1:], x.shape), **options), sums(np.tile(x[-1:], (40, 1)), **options))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_features", [1, 7, 8, 9, 20])
def test_columns_that_lie_apart_are_the_same_rows(dtype, n_features):
    rng = np.random.default_rng(n_features)
    x = rng.standard_normal((150, n_features)).astype(dtype)
    y = rng.standard_normal((150, 3))
    apart, y_apart = ColumnBlock([column.copy() for column in x.T], dtype), ColumnBlock(list(y.T))
    index = rng.integers(150, size=90)
    for rows in (None, index):
        for options in ({"level": 0, "use_blas": True}, {"level": 2}, {"pieces": 4, "block_rows": 17}):
            expected = sums(x, y, rows=rows, **options)
            assert_same(sums(apart, y_apart, rows=rows, **options), expected)
            assert_same(sums(apart[:], y, rows=rows, **options), expected)
    assert_same(sums(apart[20:70], y_apart[20:70]), sums(x[20:70], y[20:70]))
    spoilt = x.copy()
    spoilt[149, -1] = np.nan
    part = GramSums(table(n_features, 1.0), table(3, 1.0), block_rows=64, use_blas=False, with_sums=False)
    assert part.add(ColumnBlock(list(spoilt.T), dtype), y, None, 0, 150) == X_NOT_FINITE


LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "apart": lambda table: ColumnBlock(list(table.T), table.dtype),
    "backwards": lambda table: np.ascontiguousarray(table[::-1])[::-1],
    "every second": lambda table: np.repeat(table, 2, axis=0)[::2],
    "every second column": lambda table: np.repeat(table, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_features", "n_outcomes"), [(1, 0), (3, 2), (8, 1), (12, 9), (20, 0), (31, 1)])
def test_rows_side_by_side_are_what_each_is_alone(n_features, n_outcomes, dtype, layout):
    """Within the bound, a little beyond it, far beyond, zeros: next to each other, in groups of every length."""
    rng = np.random.default_rng(n_features)
    top = 30 if dtype == np.float32 else 300
    lengths = np.r_[10.0 ** rng.uniform(-3, 1, 70), 10.0 ** rng.uniform(-top, top, 30), np.zeros(10), np.ones(9)]
    x = (rng.standard_normal((len(lengths), n_features)) * rng.permutation(lengths)[:, None] / 10).astype(dtype)
    y = (rng.standard_normal((len(lengths), n_outcomes)) * rng.permutation(lengths)[:, None] / 10).astype(dtype)
    index = rng.integers(len(x), size=77)
    laid = LAYOUTS[layout](x), LAYOUTS[layout](y) if n_outcomes else None
    for rows in (None, index):
        expected = sums(x, y if n_outcomes else None, rows=rows, use_blas=True, level=0)
        for level, block_rows in itertools.product(LEVELS, (1, 20, 64)):
            assert_same(sums(*laid, rows=rows, level=level, block_rows=block_rows, pieces=2), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_value_that_is_not_finite_is_found_wherever_it_is(layout, level):
    for row, column in itertools.product((0, 1, 7, 8, 14, 18), (0, 4, 9)):
        x = np.ones((19, 10))
        x[row, column] = math.nan if column else math.inf
        part = GramSums(table(10, 1.0), table(10, 1.0), block_rows=64, use_blas=False, with_sums=False, level=level)
        bad, good = LAYOUTS[layout](x), LAYOUTS[layout](np.ones((19, 10)))
        assert part.add(bad, good, None, 0, 19) == X_NOT_FINITE
        assert part.add(good, bad, None, 0, 19) == Y_NOT_FINITE


@pytest.mark.parametrize("block_rows", [1, 8, 64])
@pytest.mark.parametrize("level", LEVELS)
def test_the_first_row_that_is_not_finite_says_which_table_is(level, block_rows):
    x, y = np.ones((19, 10)), np.ones((19, 2))
    options = {"use_blas": False, "with_sums": False, "level": level}
    part = GramSums(table(10, 1.0), table(2, 1.0), block_rows=block_rows, **options)
    y[3, 1] = x[5, 4] = math.nan
    assert part.add(x, y, None, 0, 19) == Y_NOT_FINITE
    x[3, 9] = math.inf
    assert part.add(x, y, None, 0, 19) == X_NOT_FINITE


def test_lanes_are_emptied_before_their_sums_are_not_exact():
    """Rows at the bound, of a grid so fine that few of them sum exactly in doubles."""
    limit, entry = 2**50, 2.0**25 - 1.0
    expected = 1000 * int(entry) ** 2
    for level in LEVELS:
        part = GramSums(
            (1, 1.0, entry, limit), (0, 1.0, 1.0, 1), block_rows=64, use_blas=False, with_sums=True, level=level
        )
        assert part.add(np.full((1000, 1), entry), None, None, 0, 1000) == PACKED
        totals = GramTotals(1, 0, limit)
        totals.take([part])
        high, low = totals.symmetric()
        assert int(high[0, 0]) * 2**64 + int(low[0, 0]) == expected
        assert int(totals.columns()[1][0]) == 1000 * int(entry)


@pytest.mark.parametrize("n_features", [1, 2, 3, 5, 8, 9, 16, 21, 40])
@pytest.mark.parametrize("n_outcomes", [1, 4, 7, 8, 30])
def test_products_between_the_tables_alone(n_features, n_outcomes):
    rng = np.random.default_rng(n_features)
    x, y = rng.standard_normal((150, n_features)), rng.standard_normal((150, n_outcomes))
    *_, high, low, column_high, column_low = sums(x, y)
    zeros = np.zeros((n_features, n_features), np.int64)
    for level, use_blas, block_rows in itertools.product(LEVELS, (False, True), (1, 64)):
        found = sums(x, y, level=level, use_blas=use_blas, block_rows=block_rows, pieces=3, cross_only=True)
        assert_same(found, (zeros, zeros, high, low, column_high, column_low))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("level", LEVELS)
def test_scaled_rows_agree_with_the_twin_at_every_level(level, dtype):
    rng = np.random.default_rng(3)
    for n_features in (1, 3, 8, 21):
        lengths = 10.0 ** rng.uniform(-3, 30 if dtype == np.float32 else 300, (80, 1))
        x = (rng.standard_normal((80, n_features)) * lengths / 10).astype(dtype)
        rows, _ = round_rows(x, 1.0)
        packed = one_by_one(x, 1.0, level)
        assert packed == rows


def one_by_one(x, bound, level):
    """Packed rows, read off the column sums of single rows: the same as narrow rows and as rows of any width."""
    packed = []
    for r in range(len(x)):
        narrow, wide = (sums(x[r : r + 1], bound_x=bound, level=level, use_blas=use_blas) for use_blas in (False, True))
        assert_same(narrow, wide)
        *_, high, low = narrow
        packed.append([int(v) for v in low.view(np.int64)])
        np.testing.assert_array_equal(high, low.view(np.int64) >> 63)
    return packed


entries = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-2.0, 2.0),
    st.integers(-(2**23), 2**23).map(lambda i: (i + 0.5) * 2.0**-22),
    st.sampled_from(
        [1.0, -1.0, math.nextafter(1.0, 2.0), 2.0**-23, 3 * 2.0**-23, 5e-324, 1e300, 1.7976931348623157e308]
    ),
)


@settings(max_examples=150, deadline=None)
@given(row=st.lists(entries, min_size=1, max_size=12), bound=st.sampled_from([1.0, 0.75, 3e-9, 1.9999999, 1e6]))
@example(row=[1.7976931348623157e308] * 12, bound=1.0)
@example(row=[(2**22 - 0.5) * 2.0**-22, 2.0**-12 * 1.4], bound=1.0)
@example(row=[5e-324], bound=1e6)
def test_no_packed_row_exceeds_the_padded_bound(row, bound):
    x = np.array([row])
    limit = padded_squared_bound(bound, grid_exponent(bound), len(row))
    expected, _ = round_rows(x, bound)
    for level in LEVELS:
        (packed,) = one_by_one(x, bound, level)
        assert sum(v * v for v in packed) <= limit
        assert packed == expected[0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_features=st.integers(1, 40))
def test_rows_a_hair_around_the_bound_stay_within_it(seed, n_features):
    """Directions whose every rounding is upwards are the worst there are: the pad must still hold."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, n_features))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = (np.floor(np.abs(x) * 2.0**22) + 0.5 + 1e-6) * 2.0**-22
    x *= 1.0 + rng.uniform(-1e-7, 1e-7, (4, 1))
    limit = padded_squared_bound(1.0, 22, n_features)
    for packed in one_by_one(x, 1.0, 2):
        assert sum(v * v for v in packed) <= limit


def test_rows_beyond_the_bound_come_out_at_its_length():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((50, 10)) * 10.0 ** rng.uniform(1, 150, (50, 1))
    for packed in one_by_one(x, 1.0, 2):
        length = math.sqrt(sum(v * v for v in packed))
        assert abs(length - 2**22) <= math.sqrt(10) / 2


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_rounds_beyond_the_bound_is_shrunk_a_hair_more(level):
    """Without the pad, about half of the scaled rows round to beyond the bound and need the second step."""
    rng = np.random.default_rng(11)
    limit = 2**44
    part = GramSums(
        (5, 2.0**22, 2.0**22, limit), table(0, 1.0), block_rows=1, use_blas=False, with_sums=True, level=level
    )
    for row in rng.standard_normal((200, 1, 5)) * 10:
        totals = GramTotals(5, 0, limit)
        assert part.add(row, None, None, 0, 1) == PACKED
        totals.take([part])
        squared = sum(int(v) ** 2 for v in totals.columns()[1].view(np.int64))
        assert (2**22 - 2) ** 2 < squared <= limit


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", [0, 4, 8])
def test_values_that_are_not_finite_are_reported(level, bad, column):
    for dtype in (np.float64, np.float32):
        x, y = np.zeros((10, 9), dtype), np.zeros((10, 9), dtype)
        part = GramSums(table(9, 1.0), table(9, 1.0), block_rows=4, use_blas=False, with_sums=False, level=level)
        x[7, column] = bad
        assert part.add(x, y, None, 0, 10) == X_NOT_FINITE
        assert part.add(y, x, None, 0, 10) == Y_NOT_FINITE
        assert part.add(x, y, np.array([0, 6, 8]), 0, 3) == PACKED


def test_capacity_is_that_of_exact_arithmetic():
    part = GramSums(table(2, 1.0), table(0, 1.0), block_rows=10**6, use_blas=False, with_sums=False)
    limit = padded_squared_bound(1.0, 22, 2)
    assert part.block_rows * limit < 2**53
    assert part.capacity * limit < 2**62
    x = np.ones((1000, 2))
    while part.capacity >= 1000:
        part.add(x, None, None, 0, 1000)
    with pytest.raises(OverflowError, match="full"):
        part.add(x, None, None, 0, 1000)


def test_totals_refuse_to_leave_128_bits():
    totals = GramTotals(1, 0, 2**45)
    part = GramSums((1, 1.0, 1.0, 2**45), (0, 1.0, 1.0, 1), block_rows=1, use_blas=False, with_sums=False)
    part.add(np.ones((1, 1)), None, None, 0, 1)
    totals.take([part])
    for _ in range(81):
        totals.add(totals.copy())
    before = totals.symmetric()
    with pytest.raises(OverflowError, match="128 bits"):
        totals.add(totals.copy())
    assert totals.n_rows == 2**81
    assert_same(totals.symmetric(), before)
    assert int(before[0][0, 0]) * 2**64 + int(before[1][0, 0]) == 2**81


def test_ranges_beyond_the_table_are_refused():
    grid = (2, 1.0, 100.0, 10_000)
    part = GramSums(grid, (0, 1.0, 1.0, 1), block_rows=8, use_blas=False, with_sums=False)
    x = np.ones((5, 2))
    for start, stop in ((0, 6), (-1, 3)):
        with pytest.raises(IndexError, match="start and stop"):
            part.add(x, None, None, start, stop)
    with pytest.raises(IndexError, match="start and stop"):
        part.add(x, None, np.zeros(2, np.int64), 0, 3)
