"""Worker processes give the same bits, also where one is killed; what goes wrong leaves no process behind."""

import os
import signal
import threading
import time
from functools import partial
from multiprocessing.connection import wait

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from engines import fail, kill, kill_once

from dpfast.io import EngineError, ProcessPartitions
from dpfast.io.engines import widths_of_part
from dpfast.statistics import gram

BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(7)
    return rng.standard_normal((300, 4)), rng.standard_normal((300, 2))


def test_a_worker_that_is_killed_changes_no_bit(arrays, tmp_path):
    X, Y = arrays
    np.save(tmp_path / "x.npy", X[:50].astype(np.float32))
    xs = [tmp_path / "x.npy", X[50:50], partial(kill_once, tmp_path / "killed", X[50:120]), X[120:]]
    ys = [Y[:50], Y[50:50], Y[50:120], Y[120:]]
    joined = np.vstack([X[:50].astype(np.float32), X[50:]])
    with ProcessPartitions(xs, ys, n_workers=1) as parts:
        assert (parts.n_features, parts.n_outcomes) == (4, 2)
        assert gram(parts, **BOUNDS) == gram(joined, Y, **BOUNDS)
        assert (tmp_path / "killed").exists()
        pool = parts._pool
        assert gram(parts, **BOUNDS) == gram(joined, Y, **BOUNDS)
        assert parts._pool is pool
        parts._parts[1] = (fail, Y[50:50])
        with pytest.raises(ValueError, match=r"^a part of the table could not be summed: RuntimeError$") as raised:
            gram(parts, **BOUNDS)
        assert raised.value.__context__ is None


def test_widths_are_those_of_features_and_outcomes_of_any_kind(arrays):
    X, Y = arrays
    assert widths_of_part(X, Y) == widths_of_part([(X, Y)], None) == (4, 2, None, None)
    assert widths_of_part(X, np.full(len(X), "yes")) == (4, 1, None, None)
    assert widths_of_part(X, None) == (4, 0, None, None)
    y = pd.DataFrame(Y, columns=["days", "cost"])
    for named in (y, pa.Table.from_pandas(y)):
        assert widths_of_part(X, named) == (4, 2, None, ("days", "cost"))
    assert widths_of_part(X, y["days"]) == (4, 1, None, ("days",))
    assert widths_of_part([], None) is None


def test_lists_of_parts_are_checked(arrays):
    X, Y = arrays
    with pytest.raises(TypeError, match="X must be a list of parts, got ndarray"):
        ProcessPartitions(X)
    with pytest.raises(TypeError, match="Y must be a list"):
        ProcessPartitions([X], "y.npy")
    with pytest.raises(ValueError, match="as many parts"):
        ProcessPartitions([X], [Y, Y])
    with pytest.raises(ValueError, match="at least one part"):
        ProcessPartitions([])
    with pytest.raises(ValueError, match="given together"):
        ProcessPartitions([X], [Y], [Y[:, 0]])


@pytest.mark.slow
def test_workers_that_are_always_killed_are_given_up(arrays):
    parts = ProcessPartitions([arrays[0], partial(kill, 1)], n_workers=1)
    with pytest.raises(EngineError, match="ended again and again"):
        gram(parts, bound_x=1.0)
    parts.close()


@pytest.mark.slow
def test_an_interrupt_ends_the_workers(arrays):
    with ProcessPartitions([arrays[0], partial(time.sleep, 60)], n_workers=1) as parts:
        workers = list(parts._started()._processes.values())
        threading.Timer(1.0, partial(os.kill, os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            gram(parts, bound_x=1.0)
        # Not `is_alive`: where the pool's own thread has waited for one, that asks in vain for a moment.
        assert len(wait([worker.sentinel for worker in workers], timeout=0)) == len(workers)
        assert parts._pool is None


def test_one_thread_at_a_time_gives_work_out_and_ends_it(arrays):
    with ProcessPartitions([arrays[0]], n_workers=1) as parts:
        held, seen, lock = [], [], parts._lock

        class Recording:
            def __enter__(self):
                lock.acquire()
                held.append(True)

            def __exit__(self, *error):
                held.pop()
                lock.release()

        class Pool:
            def shutdown(self):
                seen.append(list(held))

        gathered, parts._lock = parts._gathered, Recording()
        parts._gathered = lambda *given: (seen.append(list(held)), gathered(*given))[1]
        assert gram(parts, bound_x=1.5).n_rows == 300
        parts._pool.shutdown()
        parts._pool = Pool()
        parts.close()
        assert len(seen) > 1
        assert all(one == [True] for one in seen)
