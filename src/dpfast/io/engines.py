"""Engines that go through the parts of a table: Dask, processes of this machine, and Spark.

Dask's collections: a task for each partition, and a tree of tasks to combine their results, so the driver sees one. A
partition that is lost with its worker is computed again, by Dask.

Processes of this machine, without any other library: workers are started anew rather than forked, and so hold no lock
or thread of the process that starts them. A few parts are on their way at a time, and their sums are added as they come
in, so that the driver holds one sum whatever the number of parts. Workers live as long as the object, as a fit goes
through its rows several times. If one ends, perhaps killed for lack of memory, others compute its pending results
again. Results that were added are kept.

Spark's data frames: a partition is streamed through `DataFrame.mapInArrow` and leaves its sum, in one row; sums are
combined by workers too, so that the driver is given one, whatever the number of partitions. Spark repeats the tasks of
a worker that is lost, and takes one result a partition. The worker for a sum depends on the partition's number alone,
never on the order of arrival: a repeated task cannot leave one out or count it twice.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from threading import RLock
from typing import Any, NamedTuple, Self

import numpy as np

from dpfast import _arguments as check
from dpfast._optional import optional
from dpfast._threads import n_cores
from dpfast.io.blocks import blocks, names_of, outcome_names_of
from dpfast.io.columns import Columns
from dpfast.io.partitions import Combine, EngineError, Function, PartitionedBy, Partitions
from dpfast.io.people import RowOwners
from dpfast.io.sources import is_dask
from dpfast.io.trajectories import Trajectories


class Widths(NamedTuple):
    """Columns of features, or states of trajectories, and of outcomes; names of either, if all of them have one."""

    n_features: int
    n_outcomes: int
    feature_names: tuple[str, ...] | None = None
    outcome_names: tuple[str, ...] | None = None


def widths_of_part(x: Any, y: Any, ids: Any = None) -> Widths | None:
    """Return the widths of a part; None if it has no block."""
    first = x[0] if isinstance(x, Sequence) and len(x) > 0 else x
    if isinstance(first, Trajectories):
        return Widths(first.n_states, 0)
    if isinstance(x, Sequence) and len(x) == 0:
        return None
    # Labels of classes are no numbers, and have a shape.
    shape = getattr(y, "shape", None)
    block = next(blocks(x, y if shape is None else None), None)
    if block is None:
        return None
    shape = shape if block[1] is None else block[1].shape
    n_outcomes = 0 if shape is None else 1 if len(shape) == 1 else shape[1]
    return Widths(block[0].shape[1], n_outcomes, names_of(x), outcome_names_of(x, y))


def common_widths(one: Widths, other: Widths) -> Widths:
    """Return the widths of two parts, which must be the same."""
    if one != other:
        raise ValueError("parts of the table must have the same columns")
    return one


class _Listed(Partitions):
    """Parts in a list, one after another."""

    _parts: list[Any]

    def _hold(self, parts: list[Any]) -> Widths:
        """Keep parts; return the widths of the first with a block. No other is read if that is the first of all."""
        for tried in (parts[:1], parts):
            self._parts = tried
            widths: Widths | None = self.reduce(widths_of_part, common_widths)
            if widths is not None:
                self._parts = parts
                return widths
        raise ValueError("X has no blocks, so its number of columns is unknown")


def _check_ids(has_ids: bool, is_declared: bool) -> None:
    if has_ids != is_declared:
        raise ValueError("ids and partitioned_by='person' must be given together")


# Results that a task combines: enough that combining costs few tasks, few enough to be held at a time.
_FAN_IN = 16
# Chunks of arrays are joined up to this size where that moves nothing: a task costs as much as summing some 100 kB.
_SMALLEST_BYTES = 1 << 22


class DaskPartitions(_Listed):
    """Dask arrays, dataframes and series, or a bag of blocks of rows or of Trajectories.

    Estimators make one from the collections given to them. Give one yourself to declare the groups too.

    Parameters
    ----------
    X : dask collection
        Arrays are cut between rows, so that a chunk holds whole ones. A bag holds arrays, or pairs of them with their
        outcomes, or Trajectories.
    Y : dask collection, optional
        Outcomes: an array is cut like X; a dataframe or series has as many partitions as X, with the same rows in each.
        Their indices must agree, partition by partition. Indices that begin anew in each, as of files written without
        one, give no order of partitions: take X and Y from one collection then.
    ids : dask collection, optional
        Of one column: the owner of each row, with the same rows in each partition as X. Goes with `partitioned_by`.
    partitioned_by : {"person"}, optional
        As for `Partitions`.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> from dpfast.io import DaskPartitions
    >>> from dpfast.statistics import gram
    >>> X = np.eye(300)[:, :4]
    >>> gram(DaskPartitions(da.from_array(X, chunks=(70, 2))), bound_x=1.0) == gram(X, bound_x=1.0)
    True
    """

    def __init__(self, X: Any, Y: Any = None, ids: Any = None, *, partitioned_by: PartitionedBy | None = None) -> None:
        for name, one in (("X", X), ("Y", Y), ("ids", ids)):
            if one is not None and not is_dask(one):
                raise TypeError(f"X, Y and ids must all be Dask collections, or none: {name} is {type(one).__name__}")
        _check_ids(ids is not None, partitioned_by is not None)
        if getattr(ids, "ndim", 1) != 1:
            raise ValueError("ids must have one column")
        self._is_bag = not hasattr(X, "ndim")
        self._parts = list(zip(*_aligned(X, Y, ids), strict=True))
        if self._is_bag:
            widths = self._hold(self._parts)
        else:
            widths = Widths(_width(X), 0 if Y is None else _width(Y), names_of(X), outcome_names_of(X, Y))
        super().__init__(**widths._asdict(), partitioned_by=partitioned_by)

    def run(self, function: Function, combine: Combine) -> Any:
        """Compute by whatever scheduler Dask is set to."""
        delayed = optional("dask.delayed", "a table of Dask's").delayed
        of_part, of_several = delayed(partial(_of_part, function, self._is_bag)), delayed(partial(reduce, combine))
        level = [of_part(*fields) for fields in self._parts]
        while len(level) > 1:
            level = [of_several(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0].compute()


def _of_part(function: Function, is_bag: bool, x: Any, y: Any, ids: Any) -> Any:
    # Partitions of bags may be iterators.
    return function((list(x) if is_bag else x, y, ids))


def _aligned(X: Any, Y: Any, ids: Any) -> list[Sequence[Any]]:
    """Return the partitions of all three as delayed objects, those of one that is not there as None."""
    rows = _joined_rows(X) if hasattr(X, "chunks") else None
    xs = _row_partitions(X, rows)
    found: list[Sequence[Any]] = [xs]
    for name, one in (("Y", Y), ("ids", ids)):
        # An array is cut like X if its rows are known to be as many.
        is_alike = rows is not None and hasattr(one, "chunks") and one.shape[0] == X.shape[0]
        parts = [None] * len(xs) if one is None else _row_partitions(one, rows if is_alike else None)
        if len(parts) != len(xs):
            raise ValueError(f"X and {name} have different numbers of partitions; repartition one like the other")
        found.append(parts)
    return found


def _joined_rows(X: Any) -> tuple[int, ...]:
    """Return rows of chunks, with small ones joined if that moves nothing: on the threads of one process."""
    base, threaded = (optional(f"dask.{name}", "a table of Dask's") for name in ("base", "threaded"))
    rows: tuple[int, ...] = X.chunks[0]
    scheduler: Any = base.get_scheduler
    if scheduler(collections=[X]) is not threaded.get or any(n != n for n in rows):
        return rows
    least = _SMALLEST_BYTES // max(1, X.dtype.itemsize * math.prod(X.shape[1:]))
    joined = [0]
    for n in rows:
        if joined[-1] >= least:
            joined.append(0)
        joined[-1] += n
    return tuple(joined)


def _row_partitions(table: Any, rows: tuple[int, ...] | None) -> list[Any]:
    if hasattr(table, "chunks"):
        whole_rows = table.rechunk({0: rows or table.chunks[0], **dict.fromkeys(range(1, table.ndim), -1)})
        return list(whole_rows.to_delayed().ravel())
    if not hasattr(table, "to_delayed"):
        raise TypeError(f"a Dask array, dataframe, series or bag is needed, got {type(table).__qualname__}")
    # A frame's optimizer merges small files, those of one column more than those of several.
    is_frame = hasattr(table, "simplify")
    return list(table.simplify().to_delayed(optimize_graph=False) if is_frame else table.to_delayed())


def _width(collection: Any) -> int:
    return 1 if collection.ndim == 1 else int(collection.shape[1])


# So many tasks for each worker even out how long parts take; larger ones lose more with a worker.
_TASKS_PER_WORKER = 8
_MOST_PARTS = 64
# Tasks that are given out for each worker: one to do, and one to go on with.
_GIVEN_OUT = 2
_MOST_LOSSES = 3


class ProcessPartitions(_Listed):
    """A list of parts, and worker processes of this machine that go through them.

    Files are best: workers read them, and nothing but sums comes back. Arrays go to the workers each time that they are
    read. A script that uses this must do its work under ``if __name__ == "__main__":``, as whenever Python starts any.

    Parameters
    ----------
    X : sequence
        Parts: tables of any kind accepted by `blocks`, such as paths or results of `Columns.encode`; pairs of them with
        their outcomes, or triples with ids too; Trajectories; or functions without arguments that return one of these
        where needed.
    Y : sequence, optional
        Outcomes of each part, unless they are in X; or functions that return them.
    ids : sequence, optional
        Owners of the rows of each part: arrays, or `RowOwners` of files. Goes with `partitioned_by`.
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
        parts = _listed(X, Y, ids)
        if ids is not None:
            _check_ids(True, partitioned_by is not None)
        self._lock = RLock()
        self._pool: ProcessPoolExecutor | None = None
        self._process = os.getpid()
        widths = self._hold(parts)
        super().__init__(**widths._asdict(), partitioned_by=partitioned_by)

    def run(self, function: Function, combine: Combine) -> Any:
        """Give parts to the workers a few at a time, and combine their results as they come in."""
        parts = self._parts
        size = max(1, min(_MOST_PARTS, len(parts) // (_TASKS_PER_WORKER * self.n_workers)))
        task = partial(_of_parts, function, combine)
        with self._lock:
            try:
                return self._gathered(task, [parts[i : i + size] for i in range(0, len(parts), size)], combine)
            except BaseException:
                self._abandon()
                raise

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

    def _gathered(self, task: Function, batches: list[list[Any]], combine: Combine) -> Any:
        waiting, given = deque(batches), dict[Future[Any], list[Any]]()
        found: list[Any] = []
        losses = 0
        while waiting or given:
            pool = self._started()
            try:
                while waiting and len(given) < _GIVEN_OUT * self.n_workers:
                    future = pool.submit(task, waiting[0])
                    given[future] = waiting.popleft()
                for future in wait(given, return_when=FIRST_COMPLETED).done:
                    found = [reduce(combine, [*found, future.result()])]
                    del given[future]
            except BrokenProcessPool:
                # With one worker all end: what they were given waits again.
                waiting.extend(given.values())
                given.clear()
                self._abandon()
                losses += 1
                if losses > _MOST_LOSSES:
                    raise EngineError(
                        "worker processes ended again and again, killed perhaps for lack of memory (use fewer workers, "
                        "or smaller parts) or unable to load their tables and functions: see what they print"
                    ) from None
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
                    "'if __name__ == \"__main__\":', as workers import it; see what they print"
                ) from None
        return self._pool

    def _abandon(self) -> None:
        """End the workers without waiting for their tasks."""
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
    """Return the parts, each with its outcomes and ids."""
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
    """Leave keyboard interrupts to the driver, who ends workers: every process of a terminal gets them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# From so many columns on, at about a megabyte a sum, several workers combine before one of them combines the rest: a
# further stage costs as much as combining some hundreds of small ones.
_WIDE = 256
_COMBINING = 16
_SUMS = "place int, sums binary"


class SparkPartitions(Partitions):
    """The partitions of a Spark DataFrame, of Spark Connect or not.

    Spark's workers need dpfast and pyarrow. The frame must give the same rows each time it is computed, as Spark
    computes lost partitions anew: no random numbers without a seed, no LIMIT without an order.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A row for each row of the table.
    columns : Columns
        Which of its columns are features and outcomes.
    ids : str, optional
        The column with the owner of each row. Goes with `partitioned_by`; the rows of one partition are held in memory
        then, and otherwise no more than a batch of them.
    partitioned_by : {"person"}, optional
        As for `Partitions`; what ``frame.repartition(n, ids)`` gives is.

    Examples
    --------
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.io import Columns, SparkPartitions
    >>> columns = Columns(["age", "smoker"], ["days"])
    >>> visits = SparkPartitions(spark.read.parquet("visits"), columns)  # doctest: +SKIP
    >>> MultiOutcomeRidge(1.0, 1e-6, bound_x=100.0, bound_y=30.0).fit(visits)  # doctest: +SKIP
    """

    def __init__(
        self, frame: Any, columns: Columns, ids: str | None = None, *, partitioned_by: PartitionedBy | None = None
    ) -> None:
        if not hasattr(frame, "mapInArrow"):
            raise TypeError(f"frame must be a Spark DataFrame, got {type(frame).__qualname__}")
        check.instance("columns", columns, Columns, "dpfast.io.Columns")
        _check_ids(ids is not None, partitioned_by is not None)
        wanted = [*columns.names, *([] if ids is None else [ids])]
        for name in wanted:
            if name not in frame.columns:
                raise ValueError(f"frame has no column {name!r}")
        self._rows = _Rows(columns, ids, tuple(dict.fromkeys(wanted)))
        # By numbers, not names: Spark takes a dot in a name for the field of another, in mapInArrow even where quoted.
        quoted = ("`{}`".format(name.replace("`", "``")) for name in self._rows.names)
        self._frame = frame.select(*quoted).toDF(*map(str, range(len(self._rows.names))))
        features, outcomes = columns.feature_names, columns.outcome_names
        widths = Widths(len(features), len(outcomes), features, outcomes or None)
        super().__init__(**widths._asdict(), partitioned_by=partitioned_by)

    def run(self, function: Function, combine: Combine) -> Any:
        """Let Spark sum every partition, and combine the sums."""
        sums = self._frame.mapInArrow(_summing(function, self._rows), _SUMS)
        for n_combining in (_COMBINING, 1) if self.n_features + self.n_outcomes >= _WIDE else (1,):
            # Of a number of partitions that is given, Spark makes no other.
            placed = sums.selectExpr(f"place % {n_combining} AS place", "sums").repartition(n_combining, "place")
            sums = placed.mapInArrow(_combining(combine), _SUMS)
        found = [pickle.loads(row.sums) for row in sums.select("sums").collect()]
        # A frame may have no partitions.
        return reduce(combine, found) if found else function(self._rows.part(iter(())))


@dataclass(frozen=True)
class _Rows:
    """The columns of a partition's rows."""

    columns: Columns
    ids: str | None
    names: tuple[str, ...]

    def part(self, batches: Iterator[Any]) -> Any:
        """Return one partition as a part of the table."""
        pyarrow = optional("pyarrow", "a table of Spark's")
        named = (batch.rename_columns(list(self.names)) for batch in batches)
        first = next(named, None)
        if first is None:
            return [], None, None if self.ids is None else np.empty(0, np.int64)
        if self.ids is None:
            return self.columns.encode(pyarrow.RecordBatchReader.from_batches(first.schema, chain([first], named)))
        table = pyarrow.Table.from_batches([first, *named])
        return self.columns.encode(table), None, RowOwners(table, self.ids)


def _summing(function: Function, rows: _Rows) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        context = optional("pyspark", "a table of Spark's").TaskContext.get()
        yield _row(0 if context is None else context.partitionId(), function(rows.part(batches)))

    return task


def _combining(combine: Combine) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        rows = (row.as_py() for batch in batches for row in batch.column("sums"))
        first = next(rows, None)
        if first is not None:
            yield _row(0, reduce(lambda total, one: combine(total, pickle.loads(one)), rows, pickle.loads(first)))

    return task


def _row(place: int, result: Any) -> Any:
    pyarrow = optional("pyarrow", "a table of Spark's")
    arrays = [pyarrow.array([place], pyarrow.int32()), pyarrow.array([pickle.dumps(result)], pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(arrays, ["place", "sums"])
