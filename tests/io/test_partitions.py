"""Dask collections give the same bits as NumPy, however they are cut."""

import numpy as np
import pytest

from dpfast.statistics import GramAccumulator, gram

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(7)
    return rng.standard_normal((2000, 4)), rng.standard_normal((2000, 2))


@pytest.mark.parametrize("chunks", [(2000, 4), (301, 4), (64, 3), (500, 1)])
def test_arrays_of_any_chunks(arrays, chunks):
    X, Y = arrays
    expected = gram(X, Y, **BOUNDS, sums=True)
    x = da.from_array(X, chunks=chunks)
    assert gram(x, da.from_array(Y, chunks=(170, 2)), **BOUNDS, sums=True) == expected
    assert gram(x, da.from_array(Y[:, 0], chunks=170), **BOUNDS) == gram(X, Y[:, 0], **BOUNDS)
    assert gram(x, bound_x=1.5) == gram(X, bound_x=1.5)


def test_dataframes_and_series(arrays):
    X, Y = arrays
    frame = pd.DataFrame(X, columns=list("abcd"))
    parts = dd.from_pandas(frame, npartitions=7)
    outcomes = dd.from_pandas(pd.DataFrame(Y), npartitions=7)
    assert gram(parts, outcomes, **BOUNDS) == gram(X, Y, **BOUNDS)
    assert gram(parts, outcomes[0], **BOUNDS) == gram(X, Y[:, 0], **BOUNDS)
    assert gram(parts[["a", "b"]], bound_x=1.0) == gram(X[:, :2], bound_x=1.0)
    unknown = parts.to_dask_array()
    assert gram(unknown, outcomes, **BOUNDS) == gram(X, Y, **BOUNDS)


def test_processes_give_the_same_bits(arrays):
    import dask

    X, _ = arrays
    with dask.config.set(scheduler="processes", num_workers=2, **{"multiprocessing.context": "spawn"}):
        assert gram(da.from_array(X, chunks=(500, 4)), bound_x=1.0) == gram(X, bound_x=1.0)


def test_what_does_not_fit_is_refused(arrays):
    X, Y = arrays
    x = da.from_array(X, chunks=(500, 4))
    with pytest.raises(TypeError, match="both be Dask collections"):
        gram(x, Y, **BOUNDS)
    with pytest.raises(TypeError, match="both be Dask collections"):
        gram(X, da.from_array(Y), **BOUNDS)
    with pytest.raises(TypeError, match="rows selects from arrays"):
        gram(x, bound_x=1.0, rows=[1])
    with pytest.raises(ValueError, match="bound_x must be"):
        gram(x, bound_x=-1.0)
    with pytest.raises(ValueError, match=r"^X contains NaN or infinity"):
        gram(da.where(x > 2, np.nan, x), bound_x=1.0)
    with pytest.raises(ValueError, match="different numbers of partitions"):
        gram(x, dd.from_pandas(pd.DataFrame(Y), npartitions=3), **BOUNDS)
    with pytest.raises(TypeError, match="accepted"):
        GramAccumulator(4, bound_x=1.0).update(x)


def test_what_tasks_of_dask_say_is_not_quoted(capfd):
    import dask

    frame = dask.delayed(lambda cell: pd.DataFrame({"a": [float(cell)]}))
    parts = dd.from_delayed([frame("0.5"), frame("secret")], meta=pd.DataFrame({"a": [0.5]}), verify_meta=False)
    with pytest.raises(ValueError, match="a task of the Dask collections failed") as raised:
        gram(parts, bound_x=1.0)
    assert raised.value.__context__ is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("bad", range(5))
def test_a_refused_partition_refuses_the_table(arrays, bad):
    X = np.where(np.arange(len(arrays[0]))[:, None] == 400 * bad, np.nan, arrays[0])
    with pytest.raises(ValueError, match=r"^X contains NaN or infinity$") as raised:
        gram(da.from_array(X, chunks=(400, 4)), bound_x=1.0)
    assert raised.value.__context__ is None
