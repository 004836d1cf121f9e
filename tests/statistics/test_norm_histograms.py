"""Counts of people by size: any table, rows that stand alone, people of several rows, and how far one moves them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neighbours import climb
from reference.rows import ARRAYS, TABLES
from reference.sizes import codes_of

from dpfast import io
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.statistics.rows import RowMap, centred

BINS = LogarithmicBins(-8, 8)
ALL = NormHistograms(rows=True, outcomes=True, entries=True, bins=BINS)
D = 9


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) * 10.0 ** rng.uniform(-1.5, 1.5, (n, 1)), rng.normal(size=(n, 2)) * 0.3


def counts_of(X, Y=None, sizes=ALL, **options):
    return size_counts(io.open_table(X, Y), sizes, **options).to_float64()


def histograms(columns):
    return np.array([np.bincount(codes + BINS.largest_code, minlength=BINS.n_bins) for codes in np.vstack(columns)])


def expected_of(x, y):
    return histograms([codes_of(x, BINS, True).T, codes_of(y, BINS, True).T, codes_of(x, BINS, False).T])


def test_any_table_has_the_counts_of_its_rows():
    x, y = table()
    expected = expected_of(x, y)
    for lay in TABLES.values():
        np.testing.assert_array_equal(counts_of(lay(x), y), expected)
    np.testing.assert_array_equal(counts_of([(x[:100], y[:100]), (x[100:], y[100:])]), expected)
    np.testing.assert_array_equal(counts_of(pd.DataFrame(x), pd.DataFrame(y)), expected)
    np.testing.assert_array_equal(counts_of(x.astype(np.float32), y), expected_of(x.astype(np.float32), y))
    integers = np.arange(-8, 10).reshape(-1, D)
    np.testing.assert_array_equal(counts_of(integers, y[:2]), expected_of(integers.astype(float), y[:2]))


def test_threads_do_not_change_the_counts():
    x = np.random.default_rng(1).normal(size=(40_000, D))
    sizes = NormHistograms(rows=True, entries=True)
    np.testing.assert_array_equal(counts_of(x, sizes=sizes, n_threads=1), counts_of(x, sizes=sizes, n_threads=3))


def test_dask_partitions_add_up():
    dask_array = pytest.importorskip("dask.array")
    x, y = table()
    found = counts_of(dask_array.from_array(x, chunks=(70, 4)), dask_array.from_array(y, chunks=(70, 2)))
    np.testing.assert_array_equal(found, expected_of(x, y))


def test_rows_are_counted_as_they_come_out_of_their_maps():
    x, y = table()
    map_x, _ = centred(np.full(D, -1.0), np.full(D, 3.0), 4.0)
    map_y = RowMap(np.zeros(1), np.ones(1))
    found = counts_of(x, y, map_x=map_x, map_y=map_y)
    np.testing.assert_array_equal(found, expected_of(map_x(x), map_y(y)))


def test_a_row_counts_alike_whatever_is_beside_it():
    """Rows at an edge to the last bit: another order of the sum would put some of them in another bin."""
    x = np.random.default_rng(2).normal(size=(400, 23))
    x /= np.sqrt((x * x).sum(axis=1, keepdims=True))
    sizes = NormHistograms(rows=True)
    alone = sum(counts_of(row[None], sizes=sizes) for row in x)
    assert np.count_nonzero(alone) == 2
    for lay in ARRAYS.values():
        for length in (1, 2, 3, len(x)):
            blocks = (lay(x[start : start + length]) for start in range(0, len(x), length))
            np.testing.assert_array_equal(counts_of(blocks, sizes=sizes), alone)


def test_a_person_of_several_rows_counts_once_with_their_largest_and_least():
    x, y = table(60)
    groups = np.random.default_rng(3).integers(0, 12, 60)
    kept = [np.flatnonzero(groups == person)[:3] for person in np.unique(groups)]
    columns = [np.array([codes[rows].max(axis=0) for rows in kept]) for codes in (codes_of(x, BINS, True),)]
    columns += [np.array([codes_of(y, BINS, True)[rows].max(axis=0) for rows in kept])]
    entries = codes_of(x, BINS, False)
    columns += [np.array([extreme(entries[rows], axis=0) for rows in kept]) for extreme in (np.max, np.min)]
    expected = histograms([column.T for column in columns])
    assert len(expected) == ALL.n_histograms(D, several_rows=True)
    np.testing.assert_array_equal(counts_of(x, y, groups=groups, max_rows=3), expected)
    stream = [(x[:7], y[:7]), (x[7:], y[7:])]
    np.testing.assert_array_equal(counts_of(stream, groups=groups, max_rows=3), expected)


@given(data=st.data())
def test_one_person_changes_one_bin_of_every_histogram_by_one(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n_people, max_rows = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4))
    groups = rng.integers(0, n_people, 25)
    x, y = table(25, seed=rng)
    x *= 10.0 ** rng.uniform(-4.0, 4.0, x.shape)
    left = groups != groups[0]
    of_all = counts_of(x, y, groups=groups, max_rows=max_rows)
    of_others = counts_of(x[left], y[left], groups=groups[left], max_rows=max_rows) if left.any() else 0.0 * of_all
    change = of_all - of_others
    np.testing.assert_array_equal(change.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.abs(change).sum(axis=1), 1.0)


def test_a_person_replaced_moves_two_bins_of_each_histogram_and_no_pair_found_moves_more():
    x, y = table(20)

    def change(parameters):
        one, other = parameters[: D + 2], parameters[D + 2 :]
        sums = [counts_of(np.vstack([x, [p[:D]]]), np.vstack([y, [p[D:]]])) for p in (one, other)]
        return float(np.linalg.norm(sums[0] - sums[1]))

    largest, _ = climb(change, 2 * (D + 2), np.random.default_rng(4), restarts=2, screened=40)
    assert largest == np.sqrt(2.0 * ALL.n_histograms(D))


@pytest.mark.parametrize("groups", [None, np.arange(300) // 2])
@pytest.mark.parametrize("name", ["X", "Y"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused(bad, name, groups):
    x, y = table()
    (x if name == "X" else y)[-1, 1] = bad
    with pytest.raises(ValueError, match=f"{name} contains NaN or infinity"):
        counts_of(x, y, groups=groups, max_rows=None if groups is None else 2)


def test_groups_go_with_every_row_and_with_their_most_rows():
    x, y = table()
    for n in (299, 301):
        with pytest.raises(ValueError, match="groups must have one id a row"):
            counts_of(x, y, groups=np.arange(n), max_rows=1)
    with pytest.raises(ValueError, match="max_rows is needed"):
        counts_of(x, y, groups=np.arange(300))
    with pytest.raises(ValueError, match="Y is needed"):
        counts_of(x)
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="Dask"):
        counts_of(dask_array.from_array(x), sizes=NormHistograms(rows=True), groups=np.arange(300), max_rows=1)


def test_each_of_several_outcomes_is_counted_by_itself():
    x, y = table()
    sizes = NormHistograms(rows=True, outcomes=True, bins=BINS, each=2)
    expected = histograms([codes_of(x, BINS, True).T, *(codes_of(column[:, None], BINS, True).T for column in y.T)])
    assert sizes.n_histograms(D) == len(expected) == 3
    for lay in TABLES.values():
        np.testing.assert_array_equal(counts_of(x, lay(y), sizes=sizes), expected)
    # A person with several rows is in one bin of each, that of the largest.
    ids = np.arange(len(x)) // 3
    largest = np.abs(y).reshape(-1, 3, 2).max(axis=1)
    found = counts_of(x, y, sizes=sizes, groups=ids, max_rows=3)[1:]
    np.testing.assert_array_equal(found, histograms([codes_of(one[:, None], BINS, True).T for one in largest.T]))


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=6))
def test_nobody_moves_more_than_two_bins_of_each_outcome(entries):
    one, other = np.array(entries).reshape(2, 3)
    sizes = NormHistograms(outcomes=True, bins=BINS, each=3)
    counts = [counts_of(np.ones((1, 1)), y[None], sizes=sizes) for y in (one, other)]
    assert np.abs(counts[0]).sum(axis=1).tolist() == [1.0, 1.0, 1.0]
    assert np.abs(counts[0] - counts[1]).sum() <= 6.0
