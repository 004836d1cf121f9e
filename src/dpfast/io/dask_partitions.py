"""Dask collections as parts of a table: arrays, dataframes, series and bags.

A task for each partition, and a tree of tasks that combine their results, so that the driver sees one. A partition that
is lost with its worker is computed again, by Dask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from dpfast._optional import optional
from dpfast.io.partitions import Combine, Function, PartitionedBy, Partitions, is_dask, reduced
from dpfast.io.widths import Widths, common_widths, names_of, outcome_names_of, widths_of_part

# Results that a task combines: enough that combining costs few tasks, few enough to be held at a time.
_FAN_IN = 16
# Chunks of arrays are joined up to this size where that moves nothing: a task costs as much as summing some 100 kB.
_SMALLEST_BYTES = 1 << 22


class DaskPartitions(Partitions):
    """Dask arrays, dataframes and series, or a bag of blocks of rows or of Trajectories.

    What estimators make of the collections that they are given, and what to give them where more than that is to be
    said: whose rows are whose.

    Parameters
    ----------
    X : dask collection
        Arrays are cut between rows, so that a chunk holds whole ones. A bag holds arrays, or pairs of them with their
        outcomes, or Trajectories.
    Y : dask collection, optional
        Outcomes: an array is cut like X; a dataframe or series has as many partitions as X, with the same rows in each.
        Their indices must agree, partition by partition; those that begin anew in each, as of files that were written
        without one, tell no order of partitions: take X and Y from one collection then.
    ids : dask collection, optional
        Of one column: whose each row is, with the same rows in each partition as X. Goes with `partitioned_by`.
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
                raise TypeError(
                    f"X and Y must both be Dask collections, or neither, and ids with them; {name} is "
                    f"{type(one).__qualname__}"
                )
        if (ids is None) != (partitioned_by is None):
            raise ValueError("ids and partitioned_by='person' go together: whose rows are whose, and where they lie")
        if getattr(ids, "ndim", 1) != 1:
            raise ValueError("ids must have one column")
        self._is_bag = not hasattr(X, "ndim")
        self._parts = list(zip(*_aligned(X, Y, ids), strict=True))
        if self._is_bag:
            # The first partition that has a block knows; where it is the first one, no other is computed.
            widths = self._widths(self._parts[:1]) or self._widths(self._parts)
            if widths is None:
                raise ValueError("X has no blocks, so its number of columns is unknown")
        else:
            widths = Widths(_width(X), 0 if Y is None else _width(Y), names_of(X), outcome_names_of(X, Y))
        super().__init__(**widths._asdict(), partitioned_by=partitioned_by)

    def run(self, function: Function, combine: Combine) -> Any:
        """Compute by whatever scheduler Dask is set to."""
        return self._run(self._parts, function, combine)

    def _run(self, parts: list[tuple[Any, ...]], function: Function, combine: Combine) -> Any:
        delayed = optional("dask.delayed", "a table of Dask's").delayed
        of_part, of_several = delayed(_OfPart(function, self._is_bag)), delayed(_OfSeveral(combine))
        level = [of_part(*fields) for fields in parts]
        while len(level) > 1:
            level = [of_several(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0].compute()

    def _widths(self, parts: list[tuple[Any, ...]]) -> Widths | None:
        widths: Widths | None = reduced(partial(self._run, parts), widths_of_part, common_widths)
        return widths


def reduce_partitions(X: Any, Y: Any, function: Callable[[Any, Any], Any], combine: Combine) -> Any:
    """Return ``function(x, y)`` of all partitions of Dask collections, combined: of two, as `Partitions.reduce`."""
    return DaskPartitions(X, Y).reduce(_OfTwo(function), combine)


@dataclass(frozen=True)
class _OfTwo:
    function: Callable[[Any, Any], Any]

    def __call__(self, x: Any, y: Any, ids: Any) -> Any:
        return self.function(x, y)


@dataclass(frozen=True)
class _OfPart:
    function: Callable[[Any], Any]
    is_bag: bool

    def __call__(self, x: Any, y: Any, ids: Any) -> Any:
        # Partitions of bags may be iterators.
        return self.function((list(x) if self.is_bag else x, y, ids))


@dataclass(frozen=True)
class _OfSeveral:
    combine: Callable[[Any, Any], Any]

    def __call__(self, results: list[Any]) -> Any:
        return reduce(self.combine, results)


def _aligned(X: Any, Y: Any, ids: Any) -> list[Sequence[Any]]:
    """Return the partitions of all three as delayed objects, those of one that is not there as None."""
    rows = _joined_rows(X) if hasattr(X, "chunks") else None
    xs = _row_partitions(X, rows)
    found: list[Sequence[Any]] = [xs]
    for name, one in (("Y", Y), ("ids", ids)):
        parts = [None] * len(xs) if one is None else _row_partitions(one, _like(X, one, rows))
        if len(parts) != len(xs):
            raise ValueError(f"X and {name} have different numbers of partitions; repartition one like the other")
        found.append(parts)
    return found


def _like(X: Any, one: Any, rows: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return where to cut an array that goes with X: where X is, if that is known, and as it is otherwise."""
    return rows if hasattr(X, "chunks") and hasattr(one, "chunks") and one.shape[0] == X.shape[0] else None


def _joined_rows(X: Any) -> tuple[int, ...]:
    """Return rows of chunks, small ones joined where that moves nothing: on the threads of one process."""
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
    return list(table.to_delayed())


def _width(collection: Any) -> int:
    return 1 if collection.ndim == 1 else int(collection.shape[1])
