"""The exact Gram against its plain twin, and what must not change a bit of it."""

import copy
import itertools
import math
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.gram import exact_sums, grid_exponent

from dpfast.kernels.columns import FixedPoint
from dpfast.privacy.moment_scales import padded_squared_bound
from dpfast.statistics import GramAccumulator, Grid, gram
from dpfast.statistics import gram as gram_function

BOUNDS = {"bound_x": 2.0, "bound_y": 0.7}


def data(n_rows=200, n_features=6, n_outcomes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_rows, n_features)), rng.standard_normal((n_rows, n_outcomes))


def assert_is_twin(moments, X, bound_x, Y=None, bound_y=None):
    (xx, xy, x_sum, y_sum), (k_x, k_y) = exact_sums(X, bound_x, Y, bound_y)
    assert moments.grid == Grid(k_x, k_y)
    assert moments.n_rows == len(X)
    assert moments.exact_xx == FixedPoint.from_integers(xx, -2 * k_x)
    np.testing.assert_array_equal(moments.xx, [[float(v) * 4.0**-k_x for v in row] for row in xx])
    if Y is None:
        assert moments.xy is moments.exact_xy is moments.exact_y_sum is None
    else:
        assert moments.exact_xy == FixedPoint.from_integers(xy, -(k_x + k_y))
        np.testing.assert_array_equal(moments.xy, [[float(v) * 2.0 ** -(k_x + k_y) for v in row] for row in xy])
    if moments.exact_x_sum is not None:
        assert moments.exact_x_sum == FixedPoint.from_integers(x_sum, -k_x)
        assert Y is None or moments.exact_y_sum == FixedPoint.from_integers(y_sum, -k_y)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_outcomes"), [(300, 6, 3), (1, 4, 1), (70, 1, 1), (40, 33, 9), (0, 3, 2)]
)
def test_equals_the_twin(n_rows, n_features, n_outcomes, n_threads):
    X, Y = data(n_rows, n_features, n_outcomes)
    assert_is_twin(gram(X, Y, **BOUNDS, n_threads=n_threads, sums=True), X, 2.0, Y, 0.7)
    assert_is_twin(gram(X, bound_x=2.0, n_threads=n_threads), X, 2.0)


@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", ">f8", ">f4", "i1", "i4", "i8", "u2", "u8", "?", np.longdouble], ids=str
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_real_dtype_equals_its_values_in_float64(dtype, order):
    X, Y = data(150)
    X, Y = np.asarray(X * 3, dtype=dtype, order=order), np.asarray(Y * 2, dtype=dtype, order=order)
    found = gram(X, Y, **BOUNDS, sums=True)
    assert found == gram(X.astype(np.float64), Y.astype(np.float64), **BOUNDS, sums=True)
    rows = np.array([5, 3, 140, 3])
    assert gram(X, Y, rows=rows, **BOUNDS) == gram(X[rows].astype(np.float64), Y[rows].astype(np.float64), **BOUNDS)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_layout_changes_a_bit(dtype):
    X, Y = (table.astype(dtype) for table in data(500, 11, 2))
    expected = gram(X, Y, **BOUNDS, sums=True)
    wide, unaligned = np.zeros((1000, 33), dtype), np.zeros(500, [("pad", "i1"), ("x", dtype, (11,))])
    wide[::2, ::3] = X
    unaligned["x"] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (
        np.asfortranarray(X),
        wide[::2, ::3],
        X[::-1].copy()[::-1],
        X[:, ::-1].copy()[:, ::-1],
        frozen,
        unaligned["x"],
    ):
        np.testing.assert_array_equal(same, X)
        for y in (Y, np.asfortranarray(Y), np.broadcast_to(Y, (2, *Y.shape))[1]):
            assert gram(same, y, **BOUNDS, sums=True) == expected
    # A column broadcast over all others has a stride of zero.
    column = np.broadcast_to(X[:, :1], X.shape)
    assert gram(column, bound_x=1.0) == gram(column.copy(), bound_x=1.0)


def test_memory_map_and_npy_path_equal_the_array(tmp_path):
    X, Y = data(3000, 7)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", np.asfortranarray(Y))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = gram(X, Y, **BOUNDS)
    assert gram(mapped, Y, **BOUNDS) == expected
    assert gram(tmp_path / "x.npy", str(tmp_path / "y.npy"), **BOUNDS) == expected


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    n_threads=st.integers(1, 3),
    permute=st.booleans(),
)
def test_order_splits_threads_and_merges_change_nothing(seed, cuts, n_threads, permute):
    X, Y = data(300, 5, 2, seed)
    expected = gram(X, Y, **BOUNDS, n_threads=1, sums=True)
    if permute:
        order = np.random.default_rng(seed).permutation(300)
        X, Y = X[order], Y[order]
    edges = [0, *sorted(cuts), 300]
    parts = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(edges)]
    streamed = GramAccumulator(5, 2, **BOUNDS, n_threads=n_threads, sums=True)
    merged = GramAccumulator(5, 2, **BOUNDS, sums=True)
    for x, y in parts:
        streamed.update(x, y)
        # The later on the left: merge commutes.
        merged = GramAccumulator(5, 2, **BOUNDS, sums=True).update(x, y).merge(merged)
    added = [gram(x, y, **BOUNDS, sums=True) for x, y in parts]
    left, right = added[0], added[-1]
    for one, other in zip(added[1:], added[-2::-1], strict=True):
        left, right = left + one, other + right
    assert streamed.gram() == merged.gram() == left == right == expected


def test_big_tables_over_several_threads_equal_one_thread():
    X, Y = data(150_000, 9, 2)
    expected = gram(X, Y, **BOUNDS, n_threads=1)
    assert gram(X, Y, **BOUNDS, n_threads=3) == expected
    assert gram(X.astype(np.float16), bound_x=2.0, n_threads=3) == gram(X.astype(np.float16), bound_x=2.0, n_threads=1)
    clipped = X * np.minimum(1, 2 / np.linalg.norm(X, axis=1))[:, None]
    # Rounding to the grid moves an entry of a row by 2^-22, a product by at most 2 * 2 * 2^-22.
    np.testing.assert_allclose(expected.xx, clipped.T @ clipped, rtol=0, atol=150_000 * 4 * 2.0**-22)


def test_more_rows_than_fit_64_bits_between_commits():
    # 2^18 rows at the bound fill the 64-bit totals of one thread: 2^20 rows must spill on the way.
    X = np.broadcast_to(np.array([[1.0, 0.0]]), (2**20, 2))
    moments = gram(X, bound_x=1.0, n_threads=1)
    assert moments.exact_xx.integer((0, 0)) == 2**20 * 4**22
    assert moments.xx[0, 0] == 2.0**20


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512", "unknown"])
def test_instruction_levels_agree(level, monkeypatch):
    X, Y = data(400, 25, 7)
    expected = gram(X, Y, **BOUNDS, sums=True)
    monkeypatch.setenv("DPFAST_CPU", level)
    assert gram(X, Y, **BOUNDS, sums=True, n_threads=2) == expected


def test_subset_equals_the_copied_rows():
    X, Y = data(1000)
    rng = np.random.default_rng(1)
    for rows in (
        rng.permutation(1000)[:100],
        np.array([999]),
        np.array([], int),
        rng.integers(0, 1000, 300).astype("u2"),
    ):
        assert gram(X, Y, rows=rows, **BOUNDS) == gram(X[rows], Y[rows], **BOUNDS)
        assert gram(np.asfortranarray(X), Y, rows=list(rows), **BOUNDS) == gram(X[rows], Y[rows], **BOUNDS)
    mask = rng.random(1000) < 0.3
    assert gram(X, Y, rows=mask, **BOUNDS) == gram(X[mask], Y[mask], **BOUNDS)
    bad = X.copy()
    bad[17] = np.nan
    assert gram(bad, rows=np.delete(np.arange(1000), 17), bound_x=2.0) == gram(np.delete(X, 17, 0), bound_x=2.0)


def test_sums_of_many_rows_are_exact_in_128_bits():
    X, Y = data(50)
    X[0], Y[0] = -np.abs(X[0]), np.abs(Y[0])
    moments = gram(X, Y, **BOUNDS, sums=True)
    doubled = moments
    for _ in range(40):
        doubled = doubled + doubled
    assert doubled.n_rows == 50 * 2**40
    for index in ((0, 0), (0, 1), (5, 2)):
        assert doubled.exact_xx.integer(index) == moments.exact_xx.integer(index) * 2**40
    assert doubled.exact_xy.integer((1, 1)) == moments.exact_xy.integer((1, 1)) * 2**40
    assert doubled.exact_x_sum.integer(2) == moments.exact_x_sum.integer(2) * 2**40
    np.testing.assert_array_equal(doubled.xx, moments.xx * 2.0**40)
    np.testing.assert_array_equal(doubled.xy, moments.xy * 2.0**40)


@settings(max_examples=60, deadline=None)
@given(bound=st.floats(1e-100, 1e100), n_features=st.integers(1, 2000))
def test_grid_and_padded_bound_follow_from_the_bound(bound, n_features):
    k = Grid.for_bounds(bound).exponent_x
    assert k == grid_exponent(bound)
    assert 2.0**21 < math.ldexp(bound, k) <= 2.0**22
    squared = padded_squared_bound(bound, k, n_features)
    # M = floor((b + sqrt(d)/2)^2) + 1, as bounds on integers: b^2 is dyadic, so 60 digits settle it.
    import mpmath

    with mpmath.workdps(60):
        assert squared == int(mpmath.floor((mpmath.ldexp(bound, k) + mpmath.sqrt(n_features) / 2) ** 2)) + 1
    assert 256 * squared < 2**53
    moments = gram(np.zeros((1, n_features)), bound_x=bound)
    assert moments.squared_bound_x == squared * 4.0**-k >= bound * bound * (1 - 1e-15)


def test_a_row_on_the_bound_is_left_as_it_is():
    X = np.array([[0.6, 0.8], [-1.0, 0.0], [0.5, 0.25]])
    moments = gram(X, bound_x=1.0)
    np.testing.assert_allclose(moments.xx, X.T @ X, rtol=0, atol=1e-6)
    assert gram(X[1:], bound_x=1.0).xx.tolist() == (X[1:].T @ X[1:]).tolist()


def test_refused_values_change_nothing():
    X, Y = data(5000)
    for n_threads in (1, 3):
        accumulator = GramAccumulator(6, 3, **BOUNDS, n_threads=n_threads).update(X, Y)
        before = accumulator.gram()
        for bad in (np.nan, np.inf, -np.inf):
            for table, name in ((X, "X"), (Y, "Y")):
                spoiled = table.copy()
                spoiled[4321, 1] = bad
                pair = (spoiled, Y) if name == "X" else (X, spoiled)
                with pytest.raises(ValueError, match=f"^{name} contains NaN or infinity: put a public number [^0-9]*$"):
                    accumulator.update(*pair)
                with pytest.raises(ValueError, match=f"^{name} contains NaN or infinity: put a public number [^0-9]*$"):
                    accumulator.update(iter([(X, Y), pair]))
                assert accumulator.gram() == before
        accumulator.update(X, Y)
        assert accumulator.gram() == before + before


def test_an_error_within_a_stream_changes_nothing():
    X, Y = data(3000)

    def broken():
        yield X, Y
        raise OSError("the disk is gone")

    accumulator = GramAccumulator(6, 3, **BOUNDS).update(X, Y)
    with pytest.raises(OSError, match="disk"):
        accumulator.update(broken())
    with pytest.raises(ValueError, match="X has 5 columns"):
        accumulator.update([(X, Y), (X[:, 1:], Y)])
    assert accumulator.gram() == gram(X, Y, **BOUNDS)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupt_changes_nothing(n_threads):
    X = np.broadcast_to(np.ones((1, 40)), (20_000_000, 40))
    accumulator = GramAccumulator(40, bound_x=10.0, n_threads=n_threads).update(X[:10])
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        accumulator.update(X)
    timer.join()
    assert accumulator.gram() == gram(X[:10], bound_x=10.0)
    assert accumulator.update(X[:5]).gram() == gram(X[:15], bound_x=10.0)


def test_pickles_and_copies_are_equal_and_independent():
    X, Y = data()
    accumulator = GramAccumulator(6, 3, **BOUNDS, sums=True).update(X, Y)
    moments = accumulator.gram()
    for twin in (pickle.loads(pickle.dumps(moments)), copy.deepcopy(moments)):
        assert twin == moments
        np.testing.assert_array_equal(twin.xx, moments.xx)
    for twin in (pickle.loads(pickle.dumps(accumulator)), copy.deepcopy(accumulator), copy.copy(accumulator)):
        assert twin.gram() == moments
    for copied in (copy.deepcopy(accumulator), copy.copy(accumulator)):
        copied.update(X, Y)
        assert accumulator.gram() == moments != copied.gram()
    accumulator.update(X, Y)
    assert moments == gram(X, Y, **BOUNDS, sums=True)


def test_grams_that_differ_in_kind_do_not_merge_or_compare_equal():
    X, Y = data()
    moments = gram(X, Y, **BOUNDS)
    for other in (gram(X, Y, bound_x=2.0, bound_y=0.8), gram(X, bound_x=2.0), gram(X, Y, **BOUNDS, sums=True)):
        assert moments != other
        with pytest.raises(ValueError, match="differ"):
            moments + other
    assert moments != gram(X[:-1], Y[:-1], **BOUNDS)
    assert moments != "moments"
    with pytest.raises(TypeError):
        moments + 1
    with pytest.raises(ValueError, match="differ"):
        GramAccumulator(6, 3, **BOUNDS).merge(GramAccumulator(6, 3, bound_x=1.0, bound_y=0.7))
    with pytest.raises(TypeError, match="GramAccumulator"):
        GramAccumulator(6, 3, **BOUNDS).merge(moments)


def test_merging_with_itself_doubles():
    X, Y = data()
    accumulator = GramAccumulator(6, 3, **BOUNDS).update(X, Y)
    assert accumulator.merge(accumulator).gram() == gram(np.vstack([X, X]), np.vstack([Y, Y]), **BOUNDS)


def test_representations_and_results_hold_no_data():
    X, Y = data(123)
    accumulator = GramAccumulator(6, 3, **BOUNDS).update(X, Y)
    for text in (repr(accumulator), repr(accumulator.gram()), str(accumulator.gram())):
        assert "not private" in text
        assert "123" not in text
        assert "6 features" in text
    with pytest.raises(ValueError, match="read-only"):
        accumulator.gram().xx[0, 0] = 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": np.ones(6)}, ValueError, "X must be 2-D"),
        ({"X": np.ones((2, 3, 4))}, ValueError, "X must be 2-D"),
        ({"X": np.ones((200, 6), complex)}, ValueError, "X has dtype complex128"),
        ({"X": np.full((200, 6), "a")}, TypeError, "X has dtype str;"),
        ({"X": np.ones((200, 6), object)}, TypeError, "X has dtype object"),
        ({"X": np.ones((200, 6), "M8[s]")}, TypeError, "X has dtype datetime64"),
        ({"X": np.ma.ones((200, 6))}, TypeError, "masked"),
        ({"X": 7}, TypeError, "builtins.int; accepted"),
        ({"X": [[1.0, 2.0], [3.0]]}, ValueError, "X has rows of different lengths"),
        ({"X": {"a": [1]}}, TypeError, "builtins.dict; accepted"),
        ({"X": "table.xlsx"}, TypeError, "suffix '.xlsx'"),
        ({"Y": np.ones((200, 3, 1))}, ValueError, "Y must be 1-D or 2-D"),
        ({"Y": np.ones((199, 3))}, ValueError, "different numbers of rows$"),
        ({"Y": np.ones((200, 0))}, ValueError, "Y must have columns"),
        ({"Y": None}, ValueError, "bound_y was given"),
        ({"bound_y": None}, ValueError, "bound_y is needed"),
        ({"bound_x": 0.0}, ValueError, "bound_x must be a positive"),
        ({"bound_x": -1.0}, ValueError, "bound_x must be a positive"),
        ({"bound_x": math.nan}, ValueError, "bound_x must be a positive"),
        ({"bound_y": math.inf}, ValueError, "bound_y must be a positive"),
        ({"bound_x": "1"}, TypeError, "bound_x must be a real number, got str"),
        ({"bound_x": True}, TypeError, "bound_x"),
        ({"n_threads": 0}, ValueError, "n_threads"),
        ({"n_threads": 2.0}, TypeError, "n_threads"),
        ({"rows": np.array([0, 200])}, ValueError, "rows must lie between 0 and one below"),
        ({"rows": np.array([-1])}, ValueError, "rows must lie between"),
        ({"rows": np.array([[0]])}, ValueError, "rows must be 1-D"),
        ({"rows": np.array([0.0])}, TypeError, "rows must hold integers"),
        ({"rows": np.zeros(199, bool)}, ValueError, "mask of another length"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    X, Y = data()
    arguments = dict(X=X, Y=Y, **BOUNDS) | change
    with pytest.raises(error, match=message):
        gram_function(arguments.pop("X"), arguments.pop("Y"), **arguments)


def test_accumulator_checks_its_shape():
    X, Y = data()
    for arguments, error, message in (
        ({"n_features": 0, "bound_x": 1.0}, ValueError, "n_features"),
        ({"n_features": 2.5, "bound_x": 1.0}, TypeError, "n_features"),
        ({"n_features": True, "bound_x": 1.0}, TypeError, "n_features"),
        ({"n_features": 2, "n_outcomes": -1, "bound_x": 1.0}, ValueError, "n_outcomes"),
        ({"n_features": 2, "n_outcomes": 1, "bound_x": 1.0}, ValueError, "bound_y is needed"),
        ({"n_features": 2, "bound_x": 1.0, "bound_y": 1.0}, ValueError, "bound_y was given"),
    ):
        with pytest.raises(error, match=message):
            GramAccumulator(**arguments)
    with pytest.raises(ValueError, match="n_features is 5"):
        GramAccumulator(5, 3, **BOUNDS).update(X, Y)
    with pytest.raises(ValueError, match="n_outcomes is 2"):
        GramAccumulator(6, 2, **BOUNDS).update(X, Y)
    with pytest.raises(ValueError, match="Y is needed"):
        GramAccumulator(6, 3, **BOUNDS).update(X)
    with pytest.raises(ValueError, match="n_outcomes=0"):
        GramAccumulator(6, bound_x=1.0).update(X, Y)


PEAK = """
import resource, sys
import numpy as np
from dpfast.statistics import gram
X = np.broadcast_to(np.ones((1, 20), {dtype!r}), ({n_rows}, 20))
gram(X[:1000], bound_x=1.0, n_threads=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
gram(X, bound_x=1.0, n_threads=2{rows})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize(("dtype", "rows"), [("f8", ""), ("f4", ""), ("i4", ""), ("f8", ", rows=np.arange(200_000)")])
def test_extra_memory_does_not_grow_with_the_rows(dtype, rows):
    script = PEAK.format(dtype=dtype, rows=rows, n_rows=2_000_000 if dtype != "i4" else 500_000)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    # The array would be 320 MB; the pack and totals are under 1 MB, blocks of other dtypes 5 MB, an index 3 MB.
    assert int(result.stdout) < 16 * 1024


def test_moments_of_no_rows_are_moments():
    empty = gram(np.empty((0, 2)), bound_x=1.0)
    assert empty.n_rows == 0
    assert not empty.xx.any()
