"""The thread policy and the one limiter of BLAS."""

import _thread
import gc
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from dpfast._threads import RowRanges, Task, resolve_n_threads, run_in_threads, single_threaded_blas
from dpfast.statistics import gram


def blas_threads():
    importlib.import_module("dpfast.kernels.blas")  # with the library of SciPy, which is limited too
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_argument_comes_before_the_environment_before_the_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert resolve_n_threads(5) == 5
    assert resolve_n_threads(np.int64(5)) == 5
    assert resolve_n_threads() == 3
    for unusable in ("0", "many", ""):
        monkeypatch.setenv("OMP_NUM_THREADS", unusable)
        assert resolve_n_threads() == len(os.sched_getaffinity(0))
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert resolve_n_threads() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_other_numbers_of_threads_are_refused(value, error):
    with pytest.raises(error, match="n_threads must be a positive integer"):
        resolve_n_threads(value)


def test_ranges_cover_every_row_once_between_threads():
    ranges = RowRanges(10_007, 13)
    seen = run_in_threads([lambda: list(ranges)] * 4, ranges.stop)
    covered = np.concatenate([np.arange(a, b) for part in seen for a, b in part])
    np.testing.assert_array_equal(np.sort(covered), np.arange(10_007))


def test_a_failing_task_stops_the_others_and_raises():
    ranges = RowRanges(10**9, 1)

    def endless():
        return sum(1 for _ in ranges)

    def failing():
        raise KeyboardInterrupt

    for tasks in ([failing, endless], [endless, failing]):
        ranges = RowRanges(10**5, 1)
        with pytest.raises(KeyboardInterrupt):
            run_in_threads(tasks, ranges.stop)
    assert list(RowRanges(0, 5)) == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are not chosen here")
def test_threads_run_on_the_cores_of_their_caller_and_none_is_left():
    cores, others = os.sched_getaffinity(0), _thread._count()
    run_in_threads([int] * 3, int)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert run_in_threads([lambda: os.sched_getaffinity(0)] * 3, int) == [{min(cores)}] * 3
    finally:
        os.sched_setaffinity(0, cores)
    for _ in range(1_000):  # a thread that has nothing left to do counts for some microseconds
        if _thread._count() <= others:
            break
        time.sleep(1e-3)
    assert _thread._count() <= others


class InterruptedAt:
    """Raises before the k-th bytecode of Python that this thread runs, of whichever module."""

    def __init__(self, place):
        self.place, self.n_seen, self.files = place, 0, set()

    def __call__(self, frame, event, argument):
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self.files.add(frame.f_code.co_filename)
        elif event == "opcode":
            self.n_seen += 1
            if self.n_seen == self.place:
                raise KeyboardInterrupt
        return self


def test_no_interrupt_of_the_caller_leaves_a_thread_at_work_or_a_lock_taken():
    begun, ended, before = [], [], sys.gettrace()

    def other():
        begun.append(None)
        time.sleep(1e-4)
        ended.append(None)

    def act(place):
        tracer = InterruptedAt(place)
        gc.disable()  # hypothesis has a function of its own called by a collection, wherever that comes
        sys.settrace(tracer)
        try:
            run_in_threads([int, other, other], int)
        finally:
            sys.settrace(before)
            gc.enable()
        return tracer

    files = act(None).files
    # Conditions of `threading` are left locked by an interrupt at the wrong place.
    assert {Path(file).name for file in files} == {"_threads.py"}
    n_finished = 0
    for place in range(1, 2_000):
        with suppress(KeyboardInterrupt):
            n_finished += act(place).n_seen < place
        assert len(begun) == len(ended)
        if n_finished == 20:
            break
    assert n_finished == 20


def test_a_task_is_over_before_its_end_is_told():
    """Whoever waits looks at the one after the other."""
    task = Task(int)
    told = []

    class End:
        def release(self):
            told.append(task._is_over)

    task._end = End()
    task._run()
    assert told == [True]


def test_overlapping_contexts_restore_blas():
    before = blas_threads()
    barrier = threading.Barrier(8)

    def enter_often():
        barrier.wait()
        for _ in range(200):
            with single_threaded_blas(), single_threaded_blas():
                pass

    threads = [threading.Thread(target=enter_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas_threads() == before
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_the_library_that_scipy_brings_is_held_too_though_it_is_loaded_late():
    code = """
from dpfast._threads import single_threaded_blas
with single_threaded_blas():
    import scipy.linalg
    from threadpoolctl import threadpool_info
    print([one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(run.stdout)) == {1}


def test_the_last_out_restores_blas_whoever_came_first():
    before = blas_threads()
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    stay = threading.Event()

    def first_in():
        with single_threaded_blas():
            entered.set()
            leave.wait()
        left.set()
        stay.wait()  # alive, so that a claim of this thread would still count

    first = threading.Thread(target=first_in)
    first.start()
    try:
        entered.wait()
        with single_threaded_blas():
            leave.set()
            left.wait()
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
    finally:
        leave.set()
        stay.set()
        first.join()


def _sum_in_child(queue):
    X = np.ones((50_000, 20))
    queue.put(gram(X, bound_x=5.0, n_threads=2).xx[0, 0])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_sums_after_its_parent_did():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    _sum_in_child(queue)
    with single_threaded_blas():
        child = context.Process(target=_sum_in_child, args=(queue,))
        child.start()
    child.join(timeout=30)
    assert child.exitcode == 0
    assert queue.get(timeout=5) == queue.get(timeout=5) == 50_000.0
