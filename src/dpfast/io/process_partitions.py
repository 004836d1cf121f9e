"""Parts of a table that processes of this machine go through, without any other library.

Workers are started anew rather than forked, and so hold no lock or thread of the process that starts them. A few parts
are on their way at a time, and their sums are added as they come in, so that the driver holds one sum whatever the
number of parts. Workers live as long as the object, as a fit goes through its rows several times. If one ends, killed
perhaps for lack of memory, what it had not given back is computed again by others; what had been added is kept.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial, reduce
from threading import RLock
from typing import Any, Self

from dpfast import _arguments as check
from dpfast._threads import n_cores
from dpfast.io.partitions import Combine, EngineError, Function, PartitionedBy, Partitions, reduced
from dpfast.io.widths import Widths, common_widths, widths_of_part

# So many tasks for each worker even out how long parts take; larger ones lose more with a worker.
_TASKS_PER_WORKER = 8
_MOST_PARTS = 64
# Tasks that are given out for each worker: one to do, and one to go on with.
_GIVEN_OUT = 2
_MOST_LOSSES = 3


class ProcessPartitions(Partitions):
    """A list of parts, and worker processes of this machine that go through them.

    Files are best: workers read them, and nothing but sums comes back. Arrays go to the workers each time that they are
    read. A script that uses this must do its work under ``if __name__ == "__main__":``, as whenever Python starts any.

    Parameters
    ----------
    X : sequence
        Parts: tables of any kind that `blocks` reads, such as paths or what `Columns.encode` gives for them; pairs of
        them with their outcomes, or triples with ids too; Trajectories; or functions without arguments that return one
        of these where it is needed.
    Y : sequence, optional
        Outcomes of each part, unless they are in X; or functions that return them.
    ids : sequence, optional
        Whose the rows of each part are: arrays, or `RowOwners` of files. Goes with `partitioned_by`.
    partitioned_by : {"person"}, optional
        As for `Partitions`.
    n_workers : int, optional
        Processes; default the cores this process may use. Results do not depend on it.

    Examples
    --------
    Of two files, two workers fit what one process would, to the bit:

    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.io import ProcessPartitions
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0)
    >>> with ProcessPartitions(["x0.npy", "x1.npy"], ["y0.npy", "y1.npy"], n_workers=2) as parts:  # doctest: +SKIP
    ...     model.fit(parts)
    """

    def __init__(
        self,
        X: Sequence[Any],
        Y: Sequence[Any] | None = None,
        ids: Sequence[Any] | None = None,
        *,
        partitioned_by: PartitionedBy | None = None,
        n_workers: int | None = None,
    ) -> None:
        self.n_workers = check.optional(check.positive_integer, "n_workers", n_workers) or n_cores()
        self._parts = _listed(X, Y, ids)
        if ids is not None and partitioned_by is None:
            raise ValueError("ids and partitioned_by='person' go together: whose rows are whose, and where they lie")
        self._lock = RLock()
        self._pool: ProcessPoolExecutor | None = None
        self._process = os.getpid()
        # The first part that has a block knows; where it is the first one, no other is read.
        widths = self._widths(self._parts[:1]) or self._widths(self._parts)
        if widths is None:
            raise ValueError("X has no blocks, so its number of columns is unknown")
        super().__init__(**widths._asdict(), partitioned_by=partitioned_by)

    def run(self, function: Function, combine: Combine) -> Any:
        """Give parts to the workers a few at a time, and combine what they return as it comes in."""
        return self._run(self._parts, function, combine)

    def close(self) -> None:
        """End the workers; they are started again when they are needed."""
        with self._lock:
            pool, self._pool = self._pool, None
            if pool is not None and self._process == os.getpid():
                pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_pool": None, "_process": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_lock": RLock()})

    def _widths(self, parts: list[Any]) -> Widths | None:
        widths: Widths | None = reduced(partial(self._run, parts), widths_of_part, common_widths)
        return widths

    def _run(self, parts: list[Any], function: Function, combine: Combine) -> Any:
        size = max(1, min(_MOST_PARTS, len(parts) // (_TASKS_PER_WORKER * self.n_workers)))
        task = partial(_of_parts, function, combine)
        with self._lock:
            try:
                return self._gathered(task, [parts[i : i + size] for i in range(0, len(parts), size)], combine)
            except BaseException:
                self._abandon()
                raise

    def _gathered(self, task: Function, batches: list[list[Any]], combine: Combine) -> Any:
        waiting, given = deque(batches), dict[Future[Any], list[Any]]()
        found: list[Any] = []
        losses = 0

        def take(futures: Iterable[Future[Any]]) -> bool:
            """Add what is done; return whether a worker was lost, whose parts wait again then."""
            lost = False
            for future in futures:
                batch = given.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    waiting.append(batch)
                    lost = True
                else:
                    found[:] = [reduce(combine, [*found, future.result()])]
            return lost

        while waiting or given:
            pool, lost = self._started(), False
            try:
                while waiting and len(given) < _GIVEN_OUT * self.n_workers:
                    future = pool.submit(task, waiting[0])
                    given[future] = waiting.popleft()
            except BrokenProcessPool:
                lost = True
            if take(wait(given, return_when=FIRST_COMPLETED).done) or lost:
                # With one worker all that was given out ends, done or lost.
                take(wait(given).done)
                self._abandon()
                losses += 1
                if losses > _MOST_LOSSES:
                    raise EngineError(
                        "worker processes ended again and again, killed perhaps for lack of memory (use fewer workers, "
                        "or smaller parts) or unable to load what they are given: what they print says more"
                    )
        return found[0]

    def _started(self) -> ProcessPoolExecutor:
        """Return the workers, started if there are none, or only those of a process that this one was forked from."""
        if self._pool is None or self._process != os.getpid():
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.n_workers, mp_context=context, initializer=_leave_interrupts)
            self._process = os.getpid()
            try:
                self._pool.submit(os.getpid).result()
            except BrokenProcessPool:
                raise EngineError(
                    "worker processes could not be started: a script must do its work under "
                    "'if __name__ == \"__main__\":', as workers import it; what they print says more"
                ) from None
        return self._pool

    def _abandon(self) -> None:
        """End the workers without waiting for what they do."""
        pool, self._pool = self._pool, None
        if pool is None or self._process != os.getpid():
            return
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _listed(X: Any, Y: Any, ids: Any) -> list[Any]:
    """Return the parts, each with what goes with it."""
    columns = {"X": X, "Y": Y, "ids": ids}
    for name, one in columns.items():
        if one is not None and (isinstance(one, str | bytes) or not isinstance(one, Sequence)):
            raise TypeError(f"{name} must be a list of parts, got {type(one).__qualname__}")
        if one is not None and len(one) != len(X):
            raise ValueError(f"X and {name} must have as many parts as each other")
    if len(X) == 0:
        raise ValueError("X must have at least one part, got none")
    if Y is None and ids is None:
        return list(X)
    nothing = [None] * len(X)
    return list(zip(X, nothing if Y is None else Y, nothing if ids is None else ids, strict=True))


def _of_parts(function: Function, combine: Combine, parts: list[Any]) -> Any:
    return reduce(combine, map(function, parts))


def _leave_interrupts() -> None:
    """Leave an interrupt of the keyboard, which every process of a terminal gets, to the driver, who ends workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
