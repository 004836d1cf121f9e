"""X'Y without X'X, and X'X of a sample: equal to the bit to what the full sums give."""

import math

import numpy as np
import pandas as pd
import pytest
from reference.gram import exact_sums

from dpfast.kernels.columns import FixedPoint
from dpfast.statistics import cross_moments, gram, sampled_gram

BOUNDS = {"bound_x": 2.0, "bound_y": 0.7}


def data(n_rows=200, n_features=6, n_outcomes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_rows, n_features)), rng.standard_normal((n_rows, n_outcomes))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_outcomes"),
    [(300, 6, 3), (300, 3, 6), (1, 4, 1), (1, 1, 4), (70, 1, 1), (40, 33, 9), (40, 9, 33), (0, 3, 2)],
)
def test_equals_the_twin_and_the_full_sums(n_rows, n_features, n_outcomes, n_threads):
    X, Y = data(n_rows, n_features, n_outcomes)
    (_, xy, *_), (k_x, k_y) = exact_sums(X, 2.0, Y, 0.7)
    found = cross_moments(X, Y, **BOUNDS, n_threads=n_threads)
    assert found == FixedPoint.from_integers(xy, -(k_x + k_y))
    assert found == gram(X, Y, **BOUNDS).exact_xy


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f8", "i4", "u8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("widths", [(6, 3), (2, 5)])
def test_every_real_dtype_equals_its_values_in_float64(dtype, order, widths):
    X, Y = (np.asarray(table * 3, dtype=dtype, order=order) for table in data(150, *widths))
    expected = gram(X.astype(np.float64), Y.astype(np.float64), **BOUNDS).exact_xy
    assert cross_moments(X, Y, **BOUNDS) == expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_layout_changes_a_bit(dtype):
    X, Y = (table.astype(dtype) for table in data(500, 11, 2))
    expected = gram(X, Y, **BOUNDS).exact_xy
    wide = np.zeros((1000, 33), dtype)
    wide[::2, ::3] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (np.asfortranarray(X), wide[::2, ::3], X[::-1].copy()[::-1], X[:, ::-1].copy()[:, ::-1], frozen):
        for y in (Y, np.asfortranarray(Y), np.broadcast_to(Y, (2, *Y.shape))[1]):
            assert cross_moments(same, y, **BOUNDS) == expected


def test_big_tables_streams_and_files_equal_the_array(tmp_path):
    X, Y = data(150_000, 9, 2)
    expected = gram(X, Y, **BOUNDS).exact_xy
    np.save(tmp_path / "x.npy", X)
    assert cross_moments(tmp_path / "x.npy", Y, **BOUNDS, n_threads=3) == expected
    blocks = (iter(np.array_split(table, 7)) for table in (X, Y))
    assert cross_moments(*blocks, **BOUNDS) == expected


def test_more_rows_than_fit_64_bits_between_commits():
    X, Y = np.broadcast_to(np.array([[1.0, 0.0]]), (2**20, 2)), np.broadcast_to(-np.ones((1, 1)), (2**20, 1))
    found = cross_moments(X, Y, bound_x=1.0, bound_y=1.0, n_threads=1)
    assert found.to_float64().ravel().tolist() == [-(2.0**20), 0.0]


@pytest.mark.parametrize(
    ("rows", "n_sampled"), [([5, 3, 140, 199], 4), (np.arange(200) % 3 == 0, 67), ([], 0), (np.arange(200), 200)]
)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_sample_is_summed_in_xx_alone(rows, n_sampled, n_threads):
    X, Y = data()
    found = sampled_gram(X, Y, rows, **BOUNDS, n_threads=n_threads)
    assert found.exact_xx == gram(X, bound_x=2.0, rows=rows).exact_xx
    assert found.exact_xy == gram(X, Y, **BOUNDS).exact_xy
    assert found.sample == (n_sampled, 200)


def test_frames_of_one_dtype_are_arrays():
    X, Y = data()
    frame = pd.concat([pd.DataFrame(X[:, :2]), pd.DataFrame(X[:, 2:])], axis=1)  # two blocks
    found = sampled_gram(frame, pd.DataFrame(Y), [1, 2], **BOUNDS)
    assert found.exact_xx == gram(X[1:3], bound_x=2.0).exact_xx


def test_its_repr_says_that_it_is_private_and_tells_no_rows():
    X, Y = data()
    shown = repr(sampled_gram(X, Y, [7, 31], **BOUNDS))
    assert shown == "<SampledGram of 6 features, 3 outcomes, 2 of 200 rows in xx: not private>"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["X", "Y"])
@pytest.mark.parametrize("widths", [(6, 3), (2, 5)])
def test_values_that_are_not_finite_are_refused_in_and_out_of_the_sample(bad, place, widths):
    X, Y = data(200, *widths)
    (X if place == "X" else Y)[31, 1] = bad
    messages = set()
    for rows in ([31], [5]):
        with pytest.raises(ValueError, match=f"^{place} contains NaN or infinity") as caught:
            sampled_gram(X, Y, rows, **BOUNDS)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_the_dtypes_of_a_frame_decide_nothing():
    X, Y = data()
    mixed = pd.DataFrame(X).astype({0: "float32"})
    one, other = (sampled_gram(x, Y, [1, 7], **BOUNDS) for x in (mixed, mixed.to_numpy(float)))
    np.testing.assert_array_equal(one.exact_xx.to_float64(), other.exact_xx.to_float64())
    np.testing.assert_array_equal(one.exact_xy.to_float64(), other.exact_xy.to_float64())


def test_what_cannot_be_sampled_is_refused():
    X, Y = data()
    with pytest.raises(TypeError, match="arrays"):
        sampled_gram(iter([X]), iter([Y]), [1], **BOUNDS)
    with pytest.raises(ValueError, match="Y is needed"):
        cross_moments(X, **BOUNDS)
    with pytest.raises(ValueError, match="rows must lie"):
        sampled_gram(X, Y, [200], **BOUNDS)
    with pytest.raises(ValueError, match="different numbers of rows"):
        sampled_gram(X, Y[:5], [1], **BOUNDS)
    with pytest.raises(ValueError, match="bound_y"):
        sampled_gram(X, Y, [1], bound_x=1.0, bound_y=-1.0)


def test_dask_collections_are_refused():
    array = pytest.importorskip("dask.array")
    X, Y = (array.from_array(table, chunks=(50, -1)) for table in data())
    with pytest.raises(TypeError, match="Dask"):
        cross_moments(X, Y, **BOUNDS)
    with pytest.raises(TypeError, match="arrays"):
        sampled_gram(X, Y, [1], **BOUNDS)
