"""Dask collections give the same bits as NumPy, however they are cut."""

import os
import signal

import numpy as np
import pytest
from packaging.version import Version

from dpfast import MultiOutcomeRidge, SyntheticControl
from dpfast.io import DaskPartitions, engines
from dpfast.statistics import GramAccumulator, Trajectories, gram

dask = pytest.importorskip("dask")
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


@pytest.mark.skipif(Version(dask.__version__) < Version("2025.1"), reason="older ones merge files in any case")
def test_columns_of_small_files_are_cut_alike(tmp_path):
    """Dask merges files of which it reads few columns, and more of them where it reads fewer."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.random(400) for name in "abcdefghyz"})
    for k in range(8):
        frame.iloc[50 * k : 50 * k + 50].to_parquet(tmp_path / f"{k}.parquet")
    table = dd.read_parquet(tmp_path / "*.parquet")
    expected = gram(frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), **BOUNDS)
    assert gram(table[["a", "b"]], table["y"], **BOUNDS) == expected


def test_processes_give_the_same_bits(arrays):

    X, _ = arrays
    with dask.config.set(scheduler="processes", num_workers=2, **{"multiprocessing.context": "spawn"}):
        assert gram(da.from_array(X, chunks=(500, 4)), bound_x=1.0) == gram(X, bound_x=1.0)


def test_what_does_not_fit_is_refused(arrays):
    X, Y = arrays
    x = da.from_array(X, chunks=(500, 4))
    with pytest.raises(TypeError, match="must all be Dask collections"):
        gram(x, Y, **BOUNDS)
    with pytest.raises(TypeError, match="must all be Dask collections"):
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

    frame = dask.delayed(lambda cell: pd.DataFrame({"a": [float(cell)]}))
    parts = dd.from_delayed([frame("0.5"), frame("secret")], meta=pd.DataFrame({"a": [0.5]}), verify_meta=False)
    with pytest.raises(ValueError, match="the engine failed") as raised:
        gram(parts, bound_x=1.0)
    assert raised.value.__context__ is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("bad", range(5))
def test_a_refused_partition_refuses_the_table(arrays, bad):
    X = np.where(np.arange(len(arrays[0]))[:, None] == 400 * bad, np.nan, arrays[0])
    with pytest.raises(ValueError, match=r"^X contains NaN or infinity: put a public number [^0-9]*$") as raised:
        gram(da.from_array(X, chunks=(400, 4)), bound_x=1.0)
    assert raised.value.__context__ is None


def test_people_of_dataframes_are_those_of_the_declared_partitions(arrays):
    X, Y = arrays
    ids = np.sort(np.random.default_rng(1).integers(300, size=len(X)))
    frame = pd.DataFrame(np.hstack([X, Y]), columns=list("abcdyz"), index=ids).assign(who=ids)
    parts = dd.from_pandas(frame, npartitions=5)  # divisions of the index: nobody is in two
    declared = DaskPartitions(parts[list("abcd")], parts[["y", "z"]], parts["who"], partitioned_by="person")
    assert declared.n_features == 4
    expected = gram(X, Y, **BOUNDS, groups=ids, max_rows=3)
    assert gram(declared, **BOUNDS, groups=declared.groups, max_rows=3) == expected
    with pytest.raises(TypeError, match="belong to the parts"):
        gram(parts[list("abcd")], parts[["y", "z"]], **BOUNDS, groups=parts["who"], max_rows=3)
    with pytest.raises(ValueError, match="given together"):
        DaskPartitions(parts[list("abcd")], ids=parts["who"])


def test_functions_of_two_tables_are_combined(arrays):
    X, Y = arrays
    parts = DaskPartitions(da.from_array(X, chunks=(300, 4)), da.from_array(Y))
    assert parts.reduce(lambda x, y, ids: len(x) + len(y), int.__add__) == 2 * len(X)


def test_bags_of_blocks(arrays):
    db = pytest.importorskip("dask.bag")
    X, Y = arrays
    blocks = [(X[i : i + 90], Y[i : i + 90]) for i in range(0, len(X), 90)]
    assert gram(DaskPartitions(db.from_sequence(blocks, npartitions=4)), **BOUNDS) == gram(X, Y, **BOUNDS)
    filtered = db.from_sequence(blocks, npartitions=4).filter(lambda block: block[0][0, 0] == X[990, 0])
    assert gram(DaskPartitions(filtered), **BOUNDS) == gram(X[990:1080], Y[990:1080], **BOUNDS)
    with pytest.raises(ValueError, match="no blocks"):
        DaskPartitions(db.from_sequence([0]).filter(bool))


def test_partitions_whose_rows_are_in_another_order_are_refused(arrays):
    X, Y = arrays
    x, y = dd.from_pandas(pd.DataFrame(X), npartitions=2), dd.from_pandas(pd.DataFrame(Y), npartitions=2)
    turned = dd.concat([y.partitions[1], y.partitions[0]], interleave_partitions=False, ignore_unknown_divisions=True)
    assert turned.npartitions == x.npartitions
    with pytest.raises(ValueError, match="different indices"):
        gram(x, turned, **BOUNDS)


def test_many_partitions_are_all_summed(arrays):
    parts = dd.from_pandas(pd.DataFrame(arrays[0]), npartitions=33)
    assert gram(parts, bound_x=1.0) == gram(arrays[0], bound_x=1.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster: ports, a worker that ends
def test_a_worker_of_a_cluster_that_is_killed_changes_no_bit(arrays, tmp_path):
    distributed = pytest.importorskip("distributed")
    X, Y = arrays
    marker = str(tmp_path / "killed")

    def once_killed(x):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return x
        os.kill(os.getpid(), signal.SIGKILL)

    settings = {"distributed.worker.daemon": True, "distributed.scheduler.allowed-failures": 5}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster),
    ):
        x = da.from_array(X, chunks=(100, 4)).map_blocks(once_killed, dtype=X.dtype, meta=X[:0])
        assert gram(x, da.from_array(Y, chunks=(100, 2)), **BOUNDS) == gram(X, Y, **BOUNDS)
        assert os.path.exists(marker)
        model = MultiOutcomeRidge(2.0, 1e-6, **BOUNDS, refine=2, random_state=0)
        assert np.array_equal(model.fit(x, da.from_array(Y, chunks=(100, 2))).coef_, model.fit(X, Y).coef_)


def test_names_of_features_are_those_of_frames(arrays):
    frame = pd.DataFrame(arrays[0], columns=list("abcd"))
    assert DaskPartitions(dd.from_pandas(frame, npartitions=2)).feature_names == ("a", "b", "c", "d")
    assert DaskPartitions(da.from_array(arrays[0])).feature_names is None


def test_names_of_outcomes_are_those_of_frames_and_not_of_dask(arrays):
    X, Y = da.from_array(arrays[0]), da.from_array(arrays[1])
    y = dd.from_pandas(pd.DataFrame(arrays[1], columns=["days", "cost"]), npartitions=2)
    assert DaskPartitions(y, y).outcome_names == ("days", "cost")
    assert DaskPartitions(y, y["cost"]).outcome_names == ("cost",)
    assert DaskPartitions(X, Y).outcome_names is None
    model = MultiOutcomeRidge(1.0, 1e-6, fit_intercept=False, **BOUNDS)
    assert model.fit(X, Y).summary().index.tolist() == [(i, j) for i in range(2) for j in range(4)]
    assert model.predict(arrays[0]).shape == (len(arrays[0]), 2)


def test_tables_in_long_form_say_what_to_give_instead():
    long = dd.from_pandas(pd.DataFrame({"who": [1, 1, 2, 2], "when": [0, 1, 0, 1], "what": 0.5}), npartitions=2)
    with pytest.raises(TypeError, match="cannot be a Dask collection: compute it first"):
        SyntheticControl(1.0, 1e-6, bound=1.0).fit_long(long, "who", "when", "what", 1, 1)
    with pytest.raises(TypeError, match="cannot be a Dask collection: compute it first"):
        Trajectories.from_frame(long, 2, trajectory="who", state="when", reward="what")


def test_small_chunks_are_joined_up_to_a_size_and_no_further(monkeypatch):
    monkeypatch.setattr(engines, "_SMALLEST_BYTES", 250 * 4 * 8)
    x = da.from_array(np.ones((2000, 4)), chunks=(100, 4))
    assert len(DaskPartitions(x, None)._parts) == 7  # of 300 rows, and 200
