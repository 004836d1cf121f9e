"""Spark DataFrames as parts of a table: each partition is summed where it lies, as Arrow batches.

A partition is streamed through `DataFrame.mapInArrow` and leaves its sum, in one row; sums are combined by workers too,
so that the driver is given one, whatever the number of partitions. Spark repeats the tasks of a
worker that is lost, and takes one result a partition. Which sum goes to which worker hangs on the number of its
partition alone, never on the order in which they came: a repeated task cannot leave one out or count it twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np

from dpfast._optional import optional
from dpfast.io.columns import Columns
from dpfast.io.owners import RowOwners
from dpfast.io.partitions import Combine, Function, PartitionedBy, Partitions

# From so many columns on, at about a megabyte a sum, several workers combine before one of them combines the rest: a
# further stage costs as much as combining some hundreds of small ones.
_WIDE = 256
_COMBINING = 16
_SUMS = "place int, sums binary"


class SparkPartitions(Partitions):
    """The partitions of a Spark DataFrame, of Spark Connect or not.

    Spark's workers need dpfast and pyarrow. What the frame computes must give the same rows each time that it is
    computed, as Spark computes lost partitions anew: no random numbers without a seed, no LIMIT without an order.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A row for each row of the table.
    columns : Columns
        Which of its columns are features and outcomes.
    ids : str, optional
        The column that says whose each row is. Goes with `partitioned_by`; the rows of one partition are held in memory
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
        if not isinstance(columns, Columns):
            raise TypeError(f"columns must be dpfast.io.Columns, got {type(columns).__qualname__}")
        if (ids is None) != (partitioned_by is None):
            raise ValueError("ids and partitioned_by='person' go together: whose rows are whose, and where they lie")
        wanted = [*columns.names, *([] if ids is None else [ids])]
        for name in wanted:
            if name not in frame.columns:
                raise ValueError(f"frame has no column {name!r}")
        self._rows = _Rows(columns, ids, tuple(dict.fromkeys(wanted)))
        # By numbers, not names: Spark takes a dot in a name for the field of another, in mapInArrow even where quoted.
        quoted = ("`{}`".format(name.replace("`", "``")) for name in self._rows.names)
        self._frame = frame.select(*quoted).toDF(*map(str, range(len(self._rows.names))))
        super().__init__(
            len(columns.feature_names),
            len(columns.outcome_names),
            feature_names=columns.feature_names,
            outcome_names=columns.outcome_names or None,
            partitioned_by=partitioned_by,
        )

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
    """What rows of a partition are."""

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
