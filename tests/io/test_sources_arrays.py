"""Arrays of other libraries, taken where they lie: DLPack and the Arrow C array, wherever arrays are taken."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

import dpfast
from dpfast import MultiOutcomeRidge, Trajectories, io, noise, statistics
from dpfast.io.sources import zero_copy_view

CPU, CUDA, CUDA_HOST = 1, 2, 3


class Tensor:
    """An array that offers DLPack and nothing else, as those of other libraries may."""

    def __init__(self, array, device=CPU):
        self.array, self.device = np.asarray(array), device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **how):
        if how.get("copy"):
            raise AssertionError("nobody needs a copy")
        return self.array.__dlpack__()


class ArrowArray:
    """What offers itself as an Arrow C array and nothing else."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


def lists(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def address(array):
    return array.__array_interface__["data"][0]


LENDERS = {
    "dlpack": Tensor,
    "arrow": lambda array: ArrowArray(lists(array) if array.ndim == 2 else pa.array(array)),
    "pyarrow": lambda array: lists(array) if array.ndim == 2 else pa.array(array),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64])
def test_the_memory_is_that_of_the_lender(dtype):
    rows = np.arange(12).reshape(4, 3).astype(dtype)
    assert address(zero_copy_view(Tensor(rows), "X")) == address(rows)
    assert address(zero_copy_view(Tensor(rows.T), "X")) == address(rows)
    column = pa.array(rows[:, 0].copy())
    assert address(zero_copy_view(ArrowArray(column), "X")) == column.buffers()[1].address
    nested = lists(rows)
    found = zero_copy_view(ArrowArray(nested), "X")
    assert (address(found), found.shape) == (nested.flatten().buffers()[1].address, (4, 3))
    assert np.array_equal(found, rows)
    # A slice begins elsewhere.
    assert np.array_equal(zero_copy_view(ArrowArray(nested[1:3]), "X"), rows[1:3])
    assert np.array_equal(zero_copy_view(ArrowArray(column[2:]), "X"), rows[2:, 0])


@pytest.mark.parametrize("lend", LENDERS.values(), ids=LENDERS)
def test_no_copy_is_made_on_the_way_to_the_sums(lend):
    lent = lend(np.random.default_rng(0).random((50, 3)))
    first, second = (io.in_memory(lent, "X") for _ in range(2))
    assert address(first) == address(second)
    ((x, _),) = io.blocks(lent)
    assert address(x) == address(first)


@pytest.mark.parametrize("lend", LENDERS.values(), ids=LENDERS)
def test_every_function_that_takes_arrays_takes_lent_ones(lend):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (200, 3)), rng.uniform(-0.5, 0.5, 200)
    bounds = {"bound_x": 1.0, "bound_y": 1.0}
    ours, theirs = statistics.gram(lend(X), lend(y), **bounds), statistics.gram(X, y, **bounds)
    assert np.array_equal(ours.xx, theirs.xx)
    assert np.array_equal(ours.xy, theirs.xy)
    rows = np.arange(0, 200, 7)
    assert np.array_equal(
        statistics.gram(lend(X), bound_x=1.0, rows=lend(rows)).xx, statistics.gram(X, bound_x=1.0, rows=rows).xx
    )
    blocks = [(lend(X[:50]), lend(y[:50])), (lend(X[50:]), lend(y[50:]))]
    assert np.array_equal(statistics.gram(blocks, **bounds).xx, theirs.xx)

    steps = rng.integers(0, 5, 40), rng.random(40), np.arange(0, 41, 10)
    walks = [Trajectories(*map(take, steps), n_states=5) for take in (lend, np.asarray)]
    sums = [statistics.first_visit_returns(walk, 0.9, return_range=(0.0, 10.0)) for walk in walks]
    assert np.array_equal(sums[0].counts, sums[1].counts)
    assert np.array_equal(sums[0].sums, sums[1].sums)

    counts, weights = rng.integers(1, 9, 5), rng.random(5)
    assert statistics.smooth_sensitivity(lend(counts), lend(weights), 0.1) == statistics.smooth_sensitivity(
        counts, weights, 0.1
    )
    drawn = [noise.gaussian(1.0, 200, noise.SeededSource(0), center=take(y)) for take in (lend, np.asarray)]
    assert np.array_equal(*drawn)

    model = MultiOutcomeRidge(1.0, 1e-6, **bounds, random_state=0)
    models = [clone(model).fit(take(X), take(y)) for take in (lend, np.asarray)]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert np.array_equal(models[0].predict(lend(X)), models[0].predict(X))
    labels, groups = np.sign(y), np.repeat(np.arange(100), 2)
    dpfast.ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=[-1.0, 1.0], fit_intercept=False).fit(
        lend(X), lend(labels)
    )
    dpfast.SyntheticControl(1.0, 1e-6, bound=1.0).fit(lend(X), 2, lend(X[0, :2]))
    clone(model).fit(lend(X), lend(y), groups=lend(groups), max_rows=2)


@pytest.mark.parametrize(
    "take",
    [
        lambda lent: statistics.gram(lent, bound_x=1.0),
        lambda lent: noise.gaussian(1.0, (2, 2), noise.SecureSource(), center=lent),
        lambda lent: MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(lent, np.ones(2)),
        lambda lent: Trajectories(lent, [0.0, 0.0], [0, 2], n_states=5),
    ],
    ids=["gram", "noise", "fit", "trajectories"],
)
def test_what_lies_on_another_device_is_refused(take):
    with pytest.raises(TypeError, match=r"memory of a GPU or another device: copy it .* \.get\(\) of CuPy"):
        take(Tensor(np.ones((2, 2)), CUDA))


def test_memory_that_a_gpu_shares_is_taken():
    rows = np.ones((2, 2))
    assert address(zero_copy_view(Tensor(rows, CUDA_HOST), "X")) == address(rows)


def test_structs_are_tables():
    batch = pa.record_batch({"a": [1.0, 2.0], "b": [3.0, None]})
    (_, (x, _)) = io.blocks(ArrowArray(batch))
    assert np.array_equal(np.asarray(x), [[1.0, 3.0], [2.0, np.nan]], equal_nan=True)
    assert x.addresses[0] == batch.column(0).buffers()[1].address


def test_missing_entries_are_nan_and_what_is_no_number_is_refused_without_a_word_of_it():
    assert np.array_equal(zero_copy_view(pa.array([1, None]), "y"), [1.0, np.nan], equal_nan=True)
    for text in (pa.array(["somebody"]), pa.array([["somebody"]], pa.list_(pa.string(), 1))):
        with pytest.raises(TypeError, match="no array of numbers") as refused:
            zero_copy_view(text, "y")
        assert "somebody" not in str(refused.value)

    # A row that is missing as a whole must not be left out: others would take its place.
    rows = pa.array([[1.0, 2.0], None, [5.0, None]], pa.list_(pa.float64(), 2))
    with pytest.raises(TypeError, match="no array of numbers"):
        zero_copy_view(rows, "X")
    assert np.array_equal(zero_copy_view(rows[2:], "X"), [[5.0, np.nan]], equal_nan=True)

    class Failing(Tensor):
        def __dlpack__(self, **how):
            raise BufferError("the entry 7.0 of somebody needs gradients")

    with pytest.raises(TypeError, match="does not lend its memory") as refused:
        statistics.gram(Failing(np.ones((2, 2))), bound_x=1.0)
    assert "7.0" not in str(refused.value)
    assert refused.value.__context__ is None


def test_what_is_not_lent_is_left_as_it_is():
    for values in ([1.0], np.ones(2), 3.0, None, pa.table({"a": [1.0]}), dpfast):
        assert zero_copy_view(values, "X") is values
