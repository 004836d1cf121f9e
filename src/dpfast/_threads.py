"""How many threads, which of them run kernels, and BLAS limited to one thread meanwhile.

Kernels release the GIL, so plain Python threads run them in parallel: as fast as OpenMP here, without a second runtime
that hangs after a fork or competes with the threads of BLAS. A thread lives for one call, so there is nothing to reset
in a forked child but the BLAS limiter. Threads kept for the next call would save some 40 us of each, measured: 7% of
the smallest call that uses two, 1 to 2% of a fit. But Python would warn at every fork while they wait, and they would
stay on the cores that they were started on when the process is moved to others.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from dpfast import _arguments as check
from dpfast._transaction import AtomicContext, ForkSafeLock, RowRanges

__all__ = ["RowRanges", "Task", "n_cores", "resolve_n_threads", "run_in_threads", "single_threaded_blas", "threads_for"]

Result = TypeVar("Result")


def resolve_n_threads(n_threads: int | None = None) -> int:
    """Return the threads to use: `n_threads`, else ``OMP_NUM_THREADS``, else the cores this process may use."""
    if n_threads is not None:
        return check.positive_integer("n_threads must be a positive integer or None: it", n_threads)
    # OMP_NUM_THREADS may list one number per nesting level; the first is the outermost.
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    return n_cores()


def threads_for(most: int, n_threads: int | None) -> int:
    """Return the threads to use for work that is worth so many, at least 1; refuse a bad number in any case."""
    if most <= 1 and (n_threads is None or (type(n_threads) is int and n_threads > 0)):
        return 1
    return max(1, min(most, resolve_n_threads(n_threads)))


def n_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_threads(tasks: Sequence[Callable[[], Result]], stop: Callable[[], None]) -> list[Result]:
    """Run the first task here and each other one in a thread of its own; return their results in order.

    If one raises, or this thread is interrupted, `stop` is called so that the others finish early; they are always
    waited for.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with _Tasks(tasks[1:], stop) as others:
        return [tasks[0]()] + [other.result() for other in others]


class Task(Generic[Result]):
    """A call in a thread of its own, for a caller that may be interrupted at any bytecode, and then waits again.

    Futures, events and `Thread.start` have conditions: an interrupt within `Condition.__enter__` leaves its lock taken,
    and their thread waits for it for ever. A lock of C and a list that only grows have no state in between.
    """

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._context = copy_context()  # what NumPy is to do about overflows belongs to it
        self._found: list[Result] = []
        self._error: BaseException | None = None
        self._claims: list[bool] = []  # the first says whether the call is made
        self._is_over = False
        self._end = allocate_lock()
        self._end.acquire()

    def start(self) -> None:
        """Begin the thread."""
        start_new_thread(self._run, ())

    def _run(self) -> None:
        self._claims.append(True)
        if self._claims[0]:
            try:
                self._found.append(self._context.run(self._call))
            except BaseException as error:
                self._error = error
            self._is_over = True
            self._end.release()

    def give_up(self) -> None:
        """Wait for the call, or see to it that it is never made."""
        self._claims.append(False)
        if self._claims[0]:
            self._wait()

    def result(self) -> Result:
        """Wait for the call, and return or raise what it did."""
        self._wait()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _wait(self) -> None:
        while not self._is_over:
            self._end.acquire()


class _Tasks(AtomicContext["list[Task[Any]]"]):
    """Tasks that have nothing left to do when their block is left."""

    def __init__(self, calls: Sequence[Callable[[], object]], stop: Callable[[], None]) -> None:
        super().__init__()
        self._tasks = [Task(call) for call in calls]
        self._stop = stop

    def _open(self) -> list[Task[Any]]:
        for task in self._tasks:
            task.start()
        return self._tasks

    def _close(self) -> None:
        self._stop()  # of no effect where all has been done
        for task in self._tasks:
            task.give_up()


class _BlasLimiter:
    """Knows who needs BLAS on one thread: the first in sets the limit, the last out lifts it.

    Limits are process-wide, so contexts that overlap without a count would restore each other's limit for good. The
    controllers are kept because finding the libraries takes 200 times longer than setting the limit. Newer versions of
    threadpoolctl let only one living thread set the limit of a library and ignore all others; here the last out may be
    another thread than the first in, so that claim is given up around every change, under the lock.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._users: set[object] = set()
        self._libraries: list[Any] | None = None
        #: Libraries that had more threads than one, and how many.
        self._limit: list[tuple[Any, int]] | None = None

    def acquire(self, user: object) -> None:
        with AtomicContext[None](self._lock):
            self._users.add(user)
            if self._limit is None:
                if self._libraries is None:
                    self._libraries = _find_blas()
                self._limit = [(library, n) for library in self._libraries if (n := library.num_threads) != 1]
                self._set([(library, 1) for library, _ in self._limit])

    def release(self, user: object) -> None:
        with AtomicContext[None](self._lock):
            self._users.discard(user)
            if not self._users:
                self._restore()

    def _restore(self) -> None:
        if self._limit is not None:
            self._set(self._limit)
            self._limit = None

    def _set(self, limits: list[tuple[Any, int]]) -> None:
        for library, n_threads in limits:
            give_up = getattr(library, "clear_controlling_thread", lambda force: None)
            give_up(force=True)
            library.set_num_threads(n_threads)
            give_up(force=True)

    def reset_after_fork(self) -> None:
        """Only the forking thread lives on in a child: whoever held the limit is gone."""
        self._lock = ForkSafeLock()
        self._users.clear()
        self._restore()


def _find_blas() -> list[Any]:
    """Return controllers of the libraries; that of SciPy must be loaded for it to be among them."""
    from threadpoolctl import ThreadpoolController

    import dpfast.kernels.blas  # noqa: F401

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


_limiter = _BlasLimiter()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _limiter.reset_after_fork())


class single_threaded_blas(AtomicContext[None]):
    """Hold every BLAS library of this process to one thread; contexts may overlap and nest."""

    def _open(self) -> None:
        _limiter.acquire(self)

    def _close(self) -> None:
        _limiter.release(self)
