"""Tables of other libraries as Arrow's record batches: what offers the Arrow C stream, Datasets, Polars' lazy frames.

A table that is *held*, as Arrow's own and Polars' frames are, has an order of rows and can be read again. A *query*, a
relation of DuckDB or a lazy frame, is executed anew for each pass, and its rows may come in another order: sums over
them do not change, but nothing can go with them row by row. Of what else offers a stream nothing is known: it is read
once, and it is taken for a query.

What producers say of their errors quotes cells. It is never read, and replaced by a message that names the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dpfast._optional import optional
from dpfast._own_words import in_own_words
from dpfast.io.files import check_listed, check_named_once, is_path
from dpfast.io.frames import is_frame

_VALUES_PER_BATCH = 1 << 22
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17

_FAILED = (
    "{0} cannot be read to its end: a file of it is damaged, it holds other values than its schema says, or what it "
    "comes from failed or is in use. That message may quote rows: read it by itself to see"
)


@dataclass(frozen=True)
class ArrowStream:
    """A table, opened: its schema is known, its rows are not yet read."""

    schema: Any
    #: From the columns wanted, None for all, to record batches of them.
    read: Callable[[Sequence[str] | None], Iterator[Any]]


def is_arrow(table: object) -> bool:
    """Whether `table` is a table that is read as Arrow's record batches; one of pandas' is not."""
    if is_frame(table) or isinstance(table, type):
        return False
    if _is_lazy_frame(table) or _is_dataset(table):
        return True
    # A single column offers both a stream and itself as an array, and has no columns.
    is_table = hasattr(table, "columns") or not hasattr(table, "__array__")
    return hasattr(table, "__arrow_c_stream__") and is_table


def is_held(table: object) -> bool:
    """Whether the rows of a table of Arrow's or Polars' are in memory."""
    return _is_instance(table, "pyarrow", "Table", "RecordBatch") or _is_polars_frame(table)


def is_query(table: object) -> bool:
    """Whether the rows of what `is_arrow` come in no order that holds."""
    return is_arrow(table) and not (is_held(table) or _is_dataset(table) or _is_reader(table))


def tables_of(several: Iterable[Any], name: str) -> Iterator[Any]:
    """Iterate over tables that make up one; neither text, nor a file twice, nor a query that was not to be seen."""
    is_listed = isinstance(several, list | tuple)
    if is_listed:
        paths = [one for one in several if is_path(one)]
        for one in paths:
            check_listed(one, name)
        check_named_once(list(map(Path, paths)), name)
    for one in several:
        check_listed(one, name)
        if is_query(one) and not is_listed:
            # Whether anything goes with a table row by row is asked before it is read.
            raise TypeError(f"{name} yields a query, whose rows come in no fixed order: give queries in a list")
        yield one


def streams_once(table: object) -> bool:
    """Whether what `is_arrow` can be read a single time, or may be."""
    return is_arrow(table) and not (
        is_held(table) or _is_dataset(table) or _is_lazy_frame(table) or _is_relation(table)
    )


def open_stream(table: Any, name: str) -> ArrowStream:
    """Learn the schema of what `is_arrow`; no rows are read."""
    arrow_library(name)
    if streams_once(table) and not _is_reader(table):
        table = _imported(table, name)
    schema = in_own_words(partial(_schema, table), _FAILED.format(name))
    return ArrowStream(schema, partial(_batches, table, name))


def stream_names(table: Any) -> list[str] | None:
    """Return the names of the columns of what `is_arrow`, or None where looking would use it up."""
    return None if streams_once(table) and not _is_reader(table) else list(open_stream(table, "X").schema.names)


def batch_rows(n_columns: int) -> int:
    """Return how many rows of so many columns are read at a time."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _VALUES_PER_BATCH // max(1, n_columns)))


def arrow_library(what: str) -> Any:
    """Import pyarrow, with the modules that read files; ImportError that says what needs it."""
    for module in ("pyarrow.csv", "pyarrow.parquet"):
        optional(module, f"reading {what}")
    return optional("pyarrow", f"reading {what}")


def _batches(table: Any, name: str, names: Sequence[str] | None) -> Iterator[Any]:
    problem = _FAILED.format(name)
    batches = in_own_words(lambda: iter(_producer(table, names)), problem)
    while (batch := in_own_words(partial(next, batches, None), problem)) is not None:
        chosen = batch if names is None else batch.select(names)
        # A held table may be one batch: its columns are converted some rows at a time.
        step = batch_rows(chosen.num_columns)
        for start in range(0, max(1, chosen.num_rows), step):
            yield chosen.slice(start, step)


def _producer(table: Any, names: Sequence[str] | None) -> Any:
    """Return an iterable of record batches, with other columns than those wanted at most where that costs nothing."""
    if _is_reader(table):
        return table
    if _is_dataset(table):
        return _dataset_batches(table, list(table.schema.names if names is None else names))
    if _is_lazy_frame(table) or _is_polars_frame(table):
        return _polars_batches(table if names is None else table.select(names))
    if names is not None and _is_relation(table):
        # Not by their bare names, which would be read as SQL.
        table = table.select(*map(sys.modules["duckdb"].ColumnExpression, names))
    elif names is not None:
        table = table.select(names)
    return _stream_of(table)


def _dataset_batches(dataset: Any, names: list[str]) -> Any:
    # By default a hundred batches are read ahead.
    ahead = {"batch_readahead": 2, "fragment_readahead": 1}
    return dataset.to_batches(columns=names, batch_size=batch_rows(len(names)), **ahead)


def _polars_batches(frame: Any) -> Iterator[Any]:
    n_rows = batch_rows(len(frame.collect_schema()))
    # As a whole, a frame whose columns are cut differently would be copied.
    lazy = _is_lazy_frame(frame)
    parts = frame.collect_batches(chunk_size=n_rows, lazy=True) if lazy else frame.iter_slices(n_rows)
    for part in parts:
        yield from _stream_of(part)


def _schema(table: Any) -> Any:
    if _is_lazy_frame(table):
        table = sys.modules["polars"].DataFrame(schema=table.collect_schema())
    elif _is_relation(table):
        table = table.limit(0)
    elif _is_polars_frame(table):
        table = table.head(0)
    else:
        return table.schema
    return _stream_of(table).schema


def _imported(table: Any, name: str) -> Any:
    return in_own_words(partial(_stream_of, table), _FAILED.format(name))


def _stream_of(table: Any) -> Any:
    return sys.modules["pyarrow"].RecordBatchReader.from_stream(table)


def _is_reader(table: object) -> bool:
    return _is_instance(table, "pyarrow", "RecordBatchReader")


def _is_dataset(table: object) -> bool:
    return _is_instance(table, "pyarrow.dataset", "Dataset")


def _is_lazy_frame(table: object) -> bool:
    return _is_instance(table, "polars", "LazyFrame")


def _is_polars_frame(table: object) -> bool:
    return _is_instance(table, "polars", "DataFrame")


def _is_relation(table: object) -> bool:
    return _is_instance(table, "duckdb", "DuckDBPyRelation")


def _is_instance(table: object, library: str, *names: str) -> bool:
    """Whether an object is of a library's class, which is so only where somebody has imported it."""
    module = sys.modules.get(library)
    return module is not None and isinstance(table, tuple(getattr(module, name) for name in names))
