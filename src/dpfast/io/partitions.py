"""Dask collections: a function of each partition, and its results combined pairwise.

Only the results move between workers. A partition that is lost is computed again, so results whose combination is exact
do not depend on what happened on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpfast.io.own_words import in_own_words

_FAILED = "a task of the Dask collections failed; what it said may quote them: compute them by themselves to see"


def is_dask(table: object) -> bool:
    """Whether `table` is a Dask array, dataframe, series or bag."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def reduce_partitions(X: Any, Y: Any, function: Callable[[Any, Any], Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Compute ``function(x, y)`` for every partition of rows and combine the results, in an associative way, in a tree.

    Arrays are rechunked so that a chunk holds whole rows, and Y, which may be None, follows X; dataframes must have the
    same number of partitions as their partner, with the same rows in each. Both functions must pickle where workers are
    processes. What `function` raises is raised, and a ValueError in the place of anything that the tasks themselves do.
    """
    from dask.delayed import delayed

    if Y is not None and not is_dask(Y):
        raise TypeError(f"X is a Dask collection, so Y must be one too; got {type(Y).__qualname__}")
    xs, ys = _row_partitions(X, None), _row_partitions(Y, X) if Y is not None else None
    if ys is not None and len(ys) != len(xs):
        raise ValueError("X and Y have different numbers of partitions; repartition one like the other")
    reduce_one, reduce_two = delayed(partial(_reduce, function)), delayed(partial(_combine, combine))
    level = [reduce_one(x, y) for x, y in zip(xs, ys or [None] * len(xs), strict=True)]
    while len(level) > 1:
        pairs = [reduce_two(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    result = in_own_words(level[0].compute, _FAILED)
    if isinstance(result, _Refusal):
        raise result.error
    return result


@dataclass(frozen=True)
class _Refusal:
    """An error of ours as a result: raised in a worker, it would be logged there with the partition that it is of."""

    error: Exception


def _reduce(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    try:
        return function(x, y)
    except (TypeError, ValueError) as error:
        return _Refusal(type(error)(str(error)))


def _combine(combine: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    refusals = [one for one in (first, second) if isinstance(one, _Refusal)]
    return refusals[0] if refusals else combine(first, second)


def _row_partitions(table: Any, like: Any) -> list[Any]:
    if not hasattr(table, "to_delayed"):
        raise TypeError(f"a Dask array, dataframe or series is needed, got {type(table).__qualname__}")
    if hasattr(table, "chunks"):
        rows = like.chunks[0] if hasattr(like, "chunks") and like.shape[0] == table.shape[0] else table.chunks[0]
        whole_rows = table.rechunk({0: rows, **dict.fromkeys(range(1, table.ndim), -1)})
        return list(whole_rows.to_delayed().ravel())
    return list(table.to_delayed())
