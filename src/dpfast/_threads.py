"""How many threads, which of them run kernels, and BLAS limited to one thread meanwhile.

Kernels release the GIL, so plain Python threads run them in parallel: as fast as OpenMP here, without a second runtime
that hangs after a fork or competes with the threads of BLAS. A pool lives for one call, so there is nothing to reset in
a forked child but the BLAS limiter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from dpfast._transaction import Bracket, RowRanges, Turn

__all__ = ["RowRanges", "n_cores", "resolve_n_threads", "run_in_threads", "single_threaded_blas"]

Result = TypeVar("Result")


def resolve_n_threads(n_threads: int | None = None) -> int:
    """Return the threads to use: `n_threads`, else ``OMP_NUM_THREADS``, else the cores this process may use."""
    if n_threads is not None:
        if isinstance(n_threads, bool) or not hasattr(n_threads, "__index__"):
            raise TypeError(f"n_threads must be a positive integer or None, got {type(n_threads).__name__}")
        if int(n_threads) < 1:
            raise ValueError(f"n_threads must be a positive integer or None, got {n_threads}")
        return int(n_threads)
    # OMP_NUM_THREADS may list one number per nesting level; the first is the outermost.
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    return n_cores()


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
    try:
        with _Pool(len(tasks) - 1, stop) as pool:
            for task in tasks[1:]:
                pool.start(task)
            return [tasks[0]()] + [future.result() for future in pool.futures]
    except RuntimeError as error:
        # CPython's conditions release a lock that they do not hold when they are interrupted as they take it back.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


class _Pool(Bracket["_Pool"]):
    """Threads that have nothing left to do when their block is left."""

    def __init__(self, n_threads: int, stop: Callable[[], None]) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(n_threads)
        self._stop = stop
        self.futures: list[Future[Any]] = []

    def start(self, task: Callable[[], object]) -> None:
        # What NumPy is to do about overflows belongs to a context.
        self.futures.append(self._pool.submit(copy_context().run, task))

    def _open(self) -> _Pool:
        return self

    def _close(self) -> None:
        # Of no effect where all has been done. Tasks are waited for, not only threads: a thread whose join was
        # interrupted counts as ended in CPython 3.11, and a second join would not wait.
        self._stop()
        wait(self.futures)
        self._pool.shutdown()


class _BlasLimiter:
    """Knows who needs BLAS on one thread: the first in sets the limit, the last out lifts it.

    Limits are process-wide, so contexts that overlap without a count would restore each other's limit for good. The
    controller is cached because finding the libraries takes 200 times longer than setting the limit. Newer versions of
    threadpoolctl let only one living thread set the limit of a library and ignore all others; here the last out may be
    another thread than the first in, so that claim is given up around every change, under the lock.
    """

    def __init__(self) -> None:
        self._turn = Turn()
        self._users: set[object] = set()
        self._controller: Any = None
        self._limit: Any = None

    def acquire(self, user: object) -> None:
        with Bracket[None](self._turn):
            self._users.add(user)
            if self._limit is None:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                self._give_up_claims()
                self._limit = self._controller.limit(limits=1, user_api="blas")
                self._give_up_claims()

    def release(self, user: object) -> None:
        with Bracket[None](self._turn):
            self._users.discard(user)
            if not self._users:
                self._restore()

    def _restore(self) -> None:
        if self._limit is not None:
            self._give_up_claims()
            self._limit.restore_original_limits()
            self._give_up_claims()
            self._limit = None

    def _give_up_claims(self) -> None:
        for library in self._controller.lib_controllers:
            give_up = getattr(library, "clear_controlling_thread", None)
            if give_up is not None:
                give_up(force=True)

    def reset_after_fork(self) -> None:
        """Only the forking thread lives on in a child: whoever held the limit is gone."""
        self._turn = Turn()
        self._users.clear()
        self._restore()


_limiter = _BlasLimiter()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _limiter.reset_after_fork())


class single_threaded_blas(Bracket[None]):
    """Hold every BLAS library of this process to one thread; contexts may overlap and nest."""

    def _open(self) -> None:
        _limiter.acquire(self)

    def _close(self) -> None:
        _limiter.release(self)
