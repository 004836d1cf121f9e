"""Sums of rows by their entries, against those of the same rows written out, to the bit; entries that lie."""

import math
from itertools import pairwise

import numpy as np
import pytest
from reference.gram import exact_sums, grid_exponent

from dpfast.kernels.columns import ColumnBlock, SparseBlock
from dpfast.kernels.gram import PACKED, X_NOT_FINITE, Y_NOT_FINITE, GramSums, GramTotals
from dpfast.kernels.sparse_gram import OUTSIDE, add_sparse
from dpfast.privacy.moment_scales import padded_squared_bound

LEVELS = (0, 1, 2)


def table(n_columns, bound):
    k = grid_exponent(bound)
    return n_columns, math.ldexp(1.0, k), math.ldexp(bound, k), padded_squared_bound(bound, k, n_columns)


def new_sums(d, n_outcomes=2, bound=3.0, **options):
    of_y = table(n_outcomes, 2.0) if n_outcomes else (0, 1.0, 1.0, 1)
    arguments = {"block_rows": 64, "use_blas": False, "with_sums": True, "level": 2} | options
    return GramSums(table(d, bound), of_y, **arguments)


def block(entries, d, dtype=np.float64, index=np.int32):
    """Rows from lists of (column, value), as they are."""
    indptr = np.cumsum([0, *map(len, entries)])
    pairs = [pair for row in entries for pair in row]
    columns, values = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    return SparseBlock(indptr.astype(index), columns.astype(index), values.astype(dtype), d)


def drawn(rng, n=300, d=37, *, dtype=np.float64, index=np.int32):
    """Rows of all kinds: empty and full ones, repeated, unsorted and zero entries, of sizes from nothing to huge."""
    entries = []
    for _ in range(n):
        k = int(rng.choice([0, 1, 3, 8, d]))
        columns = np.sort(rng.permutation(d)[:k])
        match rng.integers(8):
            case 0:
                columns = rng.permutation(columns)
            case 1:
                columns = rng.integers(0, d, k + 3)
        values = rng.normal(size=len(columns)) * rng.choice([1.0, 0.1, 1e-3, 10.0])
        values[rng.random(len(values)) < 0.1] = rng.choice([0.0, -0.0, 1e-310, 1e-40, 1e30, 2.0**-22])
        entries.append(list(zip(columns.tolist(), values.tolist(), strict=True)))
    return block(entries, d, dtype, index)


def written_out(rows):
    """Each cell the sum of its entries in the order of storage, in their type, in Python."""
    found = np.zeros(rows.shape, rows.dtype)
    with np.errstate(over="ignore"):
        for r in range(len(rows)):
            for k in range(rows.indptr[r], rows.indptr[r + 1]):
                found[r, rows.indices[k]] += rows.data[k]
    return found


def limbs(*parts, d=37, n_outcomes=2):
    totals = GramTotals(d, n_outcomes, 1 << 45)
    totals.take(list(parts))
    return [limb for pair in (totals.symmetric(), totals.cross(), totals.columns()) for limb in pair]


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("use_blas", [False, True])
def test_entries_give_the_sums_of_their_dense_rows_to_the_bit(dtype, index, level, use_blas):
    rng = np.random.default_rng(level)
    rows, y = drawn(rng, dtype=dtype, index=index), rng.normal(size=(300, 2)) * 1.5
    dense_rows = written_out(rows)
    np.testing.assert_array_equal(np.asarray(rows), dense_rows)
    for bound in (1e-3, 0.5, 3.0, 40.0, 1e5):
        options = {"bound": bound, "level": level, "use_blas": use_blas}
        dense = new_sums(37, **options)
        assert dense.add(dense_rows, y, None, 0, 300) == PACKED
        expected = limbs(dense)
        for block_rows, cuts in ((1, [0, 300]), (7, [0, 1, 100, 300]), (64, [0, 299, 300]), (255, [0, 300])):
            found = new_sums(37, block_rows=block_rows, **options)
            outcomes = y if block_rows != 7 else ColumnBlock(list(y.T))
            for start, stop in pairwise(cuts):
                assert add_sparse(found, rows, outcomes, start, stop) == PACKED
            assert found.rows_in_totals == 300
            assert_same(limbs(found), expected)


def test_they_are_those_of_integers_in_python():
    rng = np.random.default_rng(1)
    rows, y = drawn(rng, 60, 11), rng.normal(size=(60, 2))
    (xx, xy, x_sum, y_sum), _ = exact_sums(written_out(rows), 0.7, y, 2.0)
    sums = new_sums(11, bound=0.7)
    assert add_sparse(sums, rows, y, 0, 60) == PACKED
    found = limbs(sums, d=11)
    found = [h.astype(object) * 2**64 + low.astype(object) for h, low in zip(found[::2], found[1::2], strict=True)]
    assert_same(found, [xx, xy, np.concatenate([x_sum, y_sum])])


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_is_beyond_its_bound_where_its_dense_row_is(level):
    """Rows a unit of the grid within their bound, on it and beyond, in one entry and in several."""
    bound, d = 1.0, 8
    _, scale, _, limit = table(d, bound)
    most = math.isqrt(limit)
    entries = []
    for last in (most - 1, most, most + 1):
        entries += [
            [(3, last / scale)],
            [(3, -last / scale)],
            [(3, (last + 0.49) / scale)],
            [(3, (last + 0.5) / scale)],
        ]
        for second in range(0, 4000, 37):
            entries.append([(1, second / scale), (6, math.isqrt(max(0, last**2 - second**2)) / scale)])
    rows = block(entries, d)
    sums, dense = (new_sums(d, 0, bound, level=level) for _ in range(2))
    assert (
        add_sparse(sums, rows, None, 0, len(rows)) == dense.add(written_out(rows), None, None, 0, len(rows)) == PACKED
    )
    assert_same(limbs(sums, d=d, n_outcomes=0), limbs(dense, d=d, n_outcomes=0))
    for r in range(len(rows)):
        alone = new_sums(d, 0, bound, level=level)
        add_sparse(alone, rows, None, r, r + 1)
        assert sum(int(v) for v in limbs(alone, d=d, n_outcomes=0)[1].diagonal()) <= limit


def test_a_row_does_not_depend_on_those_beside_it():
    """A room that is left dirty by a row that was written out would show in the next."""
    rng = np.random.default_rng(2)
    rows = drawn(rng, 40, 37, dtype=np.float32)
    for r in range(40):
        alone, dense = (new_sums(37, 0) for _ in range(2))
        both = rows[np.array([rng.integers(40), r])]
        assert add_sparse(alone, both, None, 0, 2) == dense.add(written_out(both), None, None, 0, 2) == PACKED
        assert_same(limbs(alone, n_outcomes=0), limbs(dense, n_outcomes=0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_that_are_not_finite_are_refused(value, dtype):
    rows = block([[(0, 1.0)], [(1, 2.0), (4, value)]], 5, dtype)
    assert add_sparse(new_sums(5, 0), rows, None, 0, 2) == X_NOT_FINITE
    assert add_sparse(new_sums(5, 1), block([[], []], 5), np.array([[0.0], [value]]), 0, 2) == Y_NOT_FINITE
    repeated = block([[(2, 1e300), (2, -1e300), (2, 1.0)], [(1, 1e308), (1, 1e308)]], 5)
    assert add_sparse(new_sums(5, 0), repeated, None, 0, 1) == PACKED
    assert add_sparse(new_sums(5, 0), repeated, None, 1, 2) == X_NOT_FINITE


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("lie", [-1, 5, 6, 2**31 - 1, -(2**31), 2**32, 2**62, -(2**63)])
@pytest.mark.parametrize("place", range(4))
def test_columns_outside_of_the_table_are_refused_where_they_are_read(index, lie, place):
    if np.iinfo(index).min <= lie <= np.iinfo(index).max:
        rows = block([[(0, 1.0)], [(1, 2.0), (3, 1.0), (4, 1.0)]], 5, index=index)
        rows.indices[place] = lie
        assert add_sparse(new_sums(5, 0), rows, None, 0, 2) == OUTSIDE
        with pytest.raises(ValueError, match="indices of a sparse matrix"):
            np.asarray(rows)


@pytest.mark.parametrize("indptr", [[0, 3, 2], [0, 1, 5], [-1, 1, 4], [0, -1, 4], [5, 6, 7], [2**62, 2**62, 2**62 + 1]])
def test_rows_that_begin_elsewhere_are_refused(indptr):
    rows = SparseBlock(np.array(indptr), np.arange(4), np.ones(4), 5)
    assert add_sparse(new_sums(5, 0), rows, None, 0, 2) == OUTSIDE
    with pytest.raises(ValueError, match="parts of a sparse matrix"):
        np.asarray(rows)


def test_as_many_entries_as_there_are_of_the_shorter_array_are_read():
    for short in ("indices", "data"):
        rows = SparseBlock(np.array([0, 4, 8]), np.tile(np.arange(4), 2), np.ones(8), 4)
        setattr(rows, short, getattr(rows, short)[:7].copy())
        assert add_sparse(new_sums(4, 0), rows, None, 0, 1) == PACKED
        assert add_sparse(new_sums(4, 0), rows, None, 0, 2) == OUTSIDE


def test_rows_longer_than_the_table_is_wide_are_read():
    rows = block([[(j % 3, 0.125) for j in range(5000)], [(2, 1.0)]], 3)
    sums, dense = new_sums(3, 0, 1e4), new_sums(3, 0, 1e4)
    assert add_sparse(sums, rows, None, 0, 2) == dense.add(written_out(rows), None, None, 0, 2) == PACKED
    assert_same(limbs(sums, d=3, n_outcomes=0), limbs(dense, d=3, n_outcomes=0))


def test_products_between_the_tables_alone():
    rng = np.random.default_rng(5)
    rows, y = drawn(rng), rng.normal(size=(300, 2))
    sums, dense = (new_sums(37, cross_only=True, with_sums=False) for _ in range(2))
    assert add_sparse(sums, rows, y, 0, 300) == dense.add(written_out(rows), y, None, 0, 300) == PACKED
    assert_same(limbs(sums)[2:4], limbs(dense)[2:4])
    assert not limbs(sums)[1].any()


def test_what_does_not_fit_is_refused():
    rows, y = block([[(0, 1.0)]] * 3, 5), np.zeros((3, 2))
    sums = new_sums(5)
    for x, outcomes in ((rows, None), (rows, y[:, :1]), (block([[]] * 3, 4), y)):
        with pytest.raises(ValueError, match="columns that are summed"):
            add_sparse(sums, x, outcomes, 0, 3)
    for start, stop in ((-1, 2), (0, 4)):
        with pytest.raises(IndexError):
            add_sparse(sums, rows, y, start, stop)
    with pytest.raises(IndexError):
        add_sparse(sums, rows, np.zeros((2, 2)), 0, 2)
    assert add_sparse(sums, rows, y, 2, 2) == PACKED
    many = sums.capacity + 1
    with pytest.raises(OverflowError, match="full"):
        add_sparse(sums, block([[]] * many, 5), np.zeros((many, 2)), 0, many)


def test_some_of_the_rows():
    rng = np.random.default_rng(6)
    rows = drawn(rng, 50)
    dense = written_out(rows)
    for chosen in (slice(3, 20), slice(20, 3), slice(None), slice(0, 50, 7), np.array([4, 4, 49, 0]), dense[:, 0] > 0):
        np.testing.assert_array_equal(np.asarray(rows[chosen]), dense[chosen])
        np.testing.assert_array_equal(np.asarray(rows[5:40][:30]), dense[5:35])
    assert np.shares_memory(rows[3:20].data, rows.data)
    assert repr(rows) == "<SparseBlock of 37 columns: not private>"


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, bool, np.longdouble, ">f8", "<f4"])
def test_values_of_other_types_are_read_as_their_dense_rows_are(dtype):
    rng = np.random.default_rng(7)
    for rows in (
        block([[(0, 100), (2, 100)], [], [(1, 1)]], 3),
        block([[(0, 100), (0, 100)], [], [(1, 1), (0, 3)]], 3),
    ):
        rows = SparseBlock(rows.indptr, rows.indices, rows.data.astype(dtype), 3)
        expected = np.asarray(rows).astype(np.float64)
        for chosen in (rows, rows[1:], rows[:0]):
            read = chosen.readable()
            assert read.dtype in (np.float64, np.float32)
            assert read.dtype.isnative
            np.testing.assert_array_equal(
                np.asarray(read, np.float64), expected[len(rows) - len(chosen) :][: len(chosen)]
            )
    strided = SparseBlock(np.array([0, 2]), np.arange(4)[::2], rng.normal(size=4)[::2], 4)
    assert add_sparse(new_sums(4, 0), strided.readable(), None, 0, 1) == PACKED
