"""Codes of sizes against the plain twin: types, layouts, edges, and numbers at the ends of doubles."""

import math

import numpy as np
import pytest
from reference.rows import ARRAYS
from reference.sizes import codes_of

from dpfast.kernels import sizes
from dpfast.kernels.columns import readable
from dpfast.statistics.norm_histograms import LogarithmicBins

BINS = [LogarithmicBins(), LogarithmicBins(-3, 2), LogarithmicBins(-800, 800), LogarithmicBins(5, 6)]


def found_codes(rows, bins, norms, start=0, stop=None):
    stop = len(rows) if stop is None else stop
    codes = np.full((stop - start, 1 if norms else rows.shape[1]), -7, np.int16)
    assert sizes.codes_of(readable(rows), bins, norms, codes, start, stop)
    return codes


def some_rows(n, d, dtype=np.float64):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3.0, 3.0, (n, 1))
    rows[0], rows[1, 0] = 0.0, -0.0
    return rows.astype(dtype)


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("bins", BINS)
@pytest.mark.parametrize("d", [1, 3, 8, 21])
def test_codes_are_those_of_the_plain_twin(d, bins, norms):
    for dtype in (np.float64, np.float32):
        rows = some_rows(70, d, dtype)
        expected = codes_of(rows, bins, norms)
        for lay in ARRAYS.values():
            np.testing.assert_array_equal(found_codes(lay(rows), bins, norms), expected)
        np.testing.assert_array_equal(found_codes(rows, bins, norms, 1, 69), expected[1:69])
        assert found_codes(rows[:0], bins, norms).shape == (0, expected.shape[1])


def test_an_edge_belongs_to_the_bin_below_it():
    bins = LogarithmicBins(-800, 800)
    edges = np.array([bins.size(code) for code in range(bins.largest_code)])
    at, above = (found_codes(one[:, None], bins, False)[:, 0] for one in (edges, np.nextafter(edges, math.inf)))
    assert at.tolist() == list(range(bins.largest_code))
    assert above.tolist() == list(range(1, bins.largest_code + 1))
    assert found_codes(-edges[:, None], bins, False)[:, 0].tolist() == (-at).tolist()


def test_sizes_beyond_the_last_edge_and_below_the_first_are_in_the_end_bins():
    bins = LogarithmicBins(-800, 800)
    rows = np.array([[1e308, 1e308], [5e-324, 0.0], [1e-310, -1e-310], [-1e300, 1e-300]])
    assert found_codes(rows, bins, True)[:, 0].tolist() == [1600, 0, 0, 1600]
    assert found_codes(rows, bins, False).tolist() == [[1600, 1600], [0, 0], [0, 0], [-1600, 0]]


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_told(bad, norms):
    for place in ((0, 0), (69, 8), (30, 4)):
        rows = some_rows(70, 9)
        rows[place] = bad
        assert not sizes.codes_of(rows, LogarithmicBins(), norms, np.empty((70, 1 if norms else 9), np.int16), 0, 70)


def test_arrays_of_other_sizes_are_refused():
    rows, bins = some_rows(5, 2), LogarithmicBins()
    for codes, start, stop in (((4, 2), 0, 5), ((5, 1), 0, 5), ((5, 2), -1, 4), ((5, 2), 2, 6), ((5, 2), 4, 3)):
        with pytest.raises(IndexError, match="room"):
            sizes.codes_of(rows, bins, False, np.empty(codes, np.int16), start, stop)
    codes, counts = np.zeros((5, 2), np.int16), np.zeros((2, bins.n_bins), np.int64)
    for arguments in ((codes, 6, 160, counts), (codes, 5, 3, counts), (codes[:, :1].copy(), 5, 160, counts)):
        with pytest.raises(ValueError, match="histogram"):
            sizes.count(*arguments)
    owners, extremes = np.zeros(5, np.int64), np.zeros((1, 2), np.int16)
    with pytest.raises(IndexError, match="owners"):
        sizes.keep_extremes(codes, owners, 0, 6, extremes, extremes.copy())
    with pytest.raises(ValueError, match="column"):
        sizes.keep_extremes(codes, owners, 0, 5, extremes, np.zeros((2, 2), np.int16))


def test_codes_out_of_range_and_rows_of_nobody_are_not_counted():
    counts = np.zeros((1, 5), np.int64)
    sizes.count(np.array([[-3], [-2], [0], [2], [3], [2]], np.int16), 6, 2, counts)
    assert counts.tolist() == [[1, 0, 1, 0, 2]]
    largest, least = np.full((2, 1), -100, np.int16), np.full((2, 1), 100, np.int16)
    codes, owners = np.array([[5], [-4], [9], [1]], np.int16), np.array([0, 0, -1, 2])
    sizes.keep_extremes(codes, owners, 0, 4, largest, least)
    assert (largest[:, 0].tolist(), least[:, 0].tolist()) == ([5, -100], [-4, 100])
