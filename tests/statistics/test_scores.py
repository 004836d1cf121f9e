"""Scores of features: exact, each person's part bounded and their own."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from scipy import sparse

from dpfast import io
from dpfast.releases.pursuit import PursuedRows
from dpfast.statistics.rows import RowMap
from dpfast.statistics.scores import part_bound, residual_scores, score_error

CLIPPED = RowMap(np.array([-1.0]), np.array([1.0]))


def scores(x, residuals, clip=1.0, row_map=CLIPPED, entry_bound=1.0, **options):
    table = io.open_table(x) if not isinstance(x, io.Table) else x
    return residual_scores(table, np.asarray(residuals, np.float64), row_map, entry_bound, clip, **options)


def integers(sums):
    return [[sums.integer((i, j)) for j in range(sums.shape[1])] for i in range(sums.shape[0])]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_scores_of_sparse_rows_are_those_of_dense_ones_to_the_bit(dtype, index):
    """Entries in order, repeated and out of order; maps that keep zeros, and others."""
    rng = np.random.default_rng(0)
    n, d, n_entries = 5000, 70, 9000
    values = (rng.normal(size=n_entries) * 3.0).astype(dtype)
    rows, columns = np.sort(rng.integers(0, n, n_entries)), rng.integers(0, d, n_entries)
    indptr = np.searchsorted(rows, np.arange(n + 1))
    mixed = sparse.csr_array((values, columns.astype(index), indptr.astype(index)), shape=(n, d))
    tidy = sparse.csr_array(mixed.toarray())
    residuals = rng.normal(size=(n, 2))
    maps = (CLIPPED, RowMap(), RowMap(np.zeros(1), np.ones(1)), RowMap(np.full(1, 0.5), np.ones(1)), RowMap(bound=2.0))
    assert [row_map.keeps_zeros for row_map in maps] == [True, True, True, False, False]
    for table in (mixed, tidy):
        dense = table.toarray()
        for row_map in maps:
            options = {"row_map": row_map, "entry_bound": 50.0, "clip": 1.5}
            expected = scores(dense, residuals, **options)
            assert scores(table, residuals, **options, n_threads=2) == expected
            (one,) = [np.asarray(x) for x, _ in io.open_table(dense).blocks()]
            pursued, whole = (
                PursuedRows(io.open_table(x, residuals), row_map, RowMap(bound=3.0), 1) for x in (table, one)
            )
            assert pursued.columns((5, 3, 69)).tobytes() == whole.columns((5, 3, 69)).tobytes()
            assert pursued.count() == whole.count()


@pytest.mark.parametrize("values", [[1.0, np.nan], [1e308, 1e308], [np.inf, 0.0]])
def test_sparse_rows_that_are_not_finite_are_refused(values):
    table = sparse.csr_array((np.array(values), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    with pytest.raises(ValueError, match="X"):
        scores(table, np.ones((1, 1)), entry_bound=1.0)
    with pytest.raises(ValueError, match="X"):
        io.open_table(table).check_finite()
    with pytest.raises(ValueError, match="X"):
        PursuedRows(io.open_table(table, np.ones(1)), CLIPPED, RowMap(bound=3.0), 1)


@pytest.mark.parametrize(("entry_bound", "clip"), [(1.0, 1.0), (3.0, 0.7), (1e-3, 2e5)])
def test_sums_are_those_of_rounded_entries_exactly(entry_bound, clip):
    rng = np.random.default_rng(0)
    x = entry_bound * rng.uniform(-1.2, 1.2, (300, 3))
    r = clip * rng.normal(size=(300, 1))
    found = scores(x, r, clip, RowMap(np.full(1, -entry_bound), np.full(1, entry_bound)), entry_bound)
    a, b = (math.floor(math.log2(2.0**20 / one)) for one in (entry_bound, clip))
    assert found.exponent == -(a + b)
    rounded = np.rint(np.clip(x, -entry_bound, entry_bound) * 2.0**a), np.rint(np.clip(r, -clip, clip) * 2.0**b)
    exact = [sum(int(u) * int(v) for u, v in zip(column, rounded[1][:, 0], strict=True)) for column in rounded[0].T]
    # What a clip puts at the bound may be off by its slack: a unit of the sum for each.
    assert np.abs(np.subtract(integers(found), np.array(exact, object)[:, None])).max() <= 300 * 2**20
    sums = np.clip(x, -entry_bound, entry_bound).T @ np.clip(r, -clip, clip)
    np.testing.assert_allclose(found.to_float64(), sums, atol=300 * entry_bound * clip * 2.0**-19)


def test_threads_blocks_and_dtypes_change_nothing_to_the_bit():
    rng = np.random.default_rng(1)
    x = rng.integers(-64, 65, (20_000, 60)) / 64.0
    r = rng.normal(size=(20_000, 2))
    wanted = integers(scores(x, r, n_threads=1))
    cut = [x[i : i + 777] for i in range(0, 20_000, 777)]
    for other in (np.asfortranarray(x), x.astype(np.float32), pd.DataFrame(x), cut, [x[:1], x[1:]]):
        assert integers(scores(other, r, n_threads=2)) == wanted


@pytest.mark.parametrize("row_map", [CLIPPED, RowMap(bound=1.0)])
def test_a_persons_part_is_theirs_alone(row_map):
    rng = np.random.default_rng(2)
    x, r = 2.0 * rng.normal(size=(5000, 7)), rng.normal(size=(5000, 3))
    whole = scores(x, r, row_map=row_map)
    without = scores(np.delete(x, 17, axis=0), np.delete(r, 17, axis=0), row_map=row_map)
    alone = scores(x[17:18], r[17:18], row_map=row_map)
    assert integers(without + alone) == integers(whole)


@pytest.mark.parametrize("outcomes", [1, 3])
@pytest.mark.parametrize(("entry_bound", "clip"), [(1.0, 1.0), (0.3, 7.0)])
def test_no_part_is_beyond_its_bound_which_is_reached(outcomes, entry_bound, clip):
    row_map = RowMap(np.full(1, -entry_bound), np.full(1, entry_bound))
    bound = part_bound(entry_bound, clip, outcomes)

    def length(parameters):
        sums = scores(entry_bound * parameters[:1, None], clip * parameters[None, 1:], clip, row_map, entry_bound)
        return float(np.linalg.norm(sums.to_float64()))

    rng = np.random.default_rng(3)
    farthest, _ = climb(length, 1 + outcomes, rng, restarts=4)
    rows = [
        *(rng.normal(size=1 + outcomes) * 10.0 ** rng.uniform(-1.0, 9.0) for _ in range(300)),
        np.ones(1 + outcomes),
    ]
    farthest = max(farthest, *map(length, rows))
    assert (1.0 - 1e-5) * bound < farthest <= bound
    # Half a unit more of an entry, and of each of a residual row's, fits.
    assert bound >= Fraction(entry_bound) * Fraction(clip)
    assert bound > entry_bound * clip * (1.0 + 2.0**-22)


def test_the_norm_of_rounded_sums_is_within_its_error():
    rng = np.random.default_rng(4)
    x, r = rng.uniform(-1.0, 1.0, (3000, 4)), rng.normal(size=(3000, 3))
    sums = scores(x, r)
    norms = np.sqrt(np.sum(np.square(sums.to_float64()), axis=1))
    for norm, row in zip(norms, integers(sums), strict=True):
        squared = sum(Fraction(one) ** 2 for one in row) * Fraction(2) ** (2 * sums.exponent)
        error = Fraction(score_error(3000, part_bound(1.0, 1.0, 3), 3))
        assert (Fraction(norm) - error) ** 2 <= squared <= (Fraction(norm) + error) ** 2


def test_the_error_of_a_norm_is_that_of_the_worst_table():
    """No table comes near it: there every rounding is upward by half a unit."""
    for n, part, outcomes in ((1, 0.3, 1), (3000, 1.7, 3), (10**6, 1e-5, 40)):
        exact = n * Fraction(part) * Fraction(outcomes + 8, 2**53)
        assert abs(Fraction(score_error(n, part, outcomes)) - exact) <= exact / 2**50


def test_what_is_not_finite_and_other_numbers_of_rows_are_refused():
    x, r = np.ones((4, 2)), np.ones((4, 1))
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="X contains NaN"):
            scores(np.where(np.eye(4, 2) > 0, bad, x), r)
        with pytest.raises(ValueError, match="y contains NaN"):
            scores(x, np.where(np.eye(4, 1) > 0, bad, r))
    for rows in (3, 5):
        with pytest.raises(ValueError, match="rows than before"):
            scores(np.ones((rows, 2)), r)
