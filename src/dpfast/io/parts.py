"""Any source of named columns as parts, each with a schema that is known before its rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dpfast.io.arrow import (
    arrow_batches,
    arrow_families,
    parquet_batches,
    parquet_schema,
)
from dpfast.io.csv_files import csv_batches, csv_names
from dpfast.io.files import file_format, is_path, table_files
from dpfast.io.frames import frame_batches, frame_families, is_frame
from dpfast.io.named import Batch, Family
from dpfast.io.partitions import check_no_dask
from dpfast.io.streams import is_arrow, open_stream, tables_of

ACCEPTED = (
    "a pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a "
    "Polars LazyFrame, a path to a .parquet or .csv file, a glob or a folder of them, or an iterable of these"
)


@dataclass(frozen=True)
class Part:
    """A frame, a stream of Arrow's or a file."""

    label: str  # for messages
    names: list[str]
    #: What columns hold; None for text files, which hold whatever is declared.
    families: Mapping[str, Family] | None
    #: From the columns wanted, and what is declared of them, to batches, each with the share that has been read.
    read: Callable[[Mapping[str, str]], Iterator[tuple[Batch, float]]]
    size: int = 0  # bytes, of a file


def table_parts(table: Any) -> Iterator[Part]:
    """Iterate over the parts of a table of named columns, reading schemas only."""
    if is_path(table):
        yield from map(_file_part, table_files(table, "the table"))
    elif is_frame(table) and table.ndim == 2:
        yield Part("the frame", list(table.columns), frame_families(table), partial(frame_batches, table))
    elif is_arrow(table):
        stream = open_stream(table, "the table")
        names, families = list(stream.schema.names), arrow_families(stream.schema)
        yield Part("the table", names, families, partial(arrow_batches, stream))
    elif isinstance(table, Iterable) and not (isinstance(table, str | bytes | dict | set) or hasattr(table, "shape")):
        for item in tables_of(table, "the table"):
            yield from table_parts(item)
    else:
        check_no_dask(table)
        kind = f"{type(table).__module__}.{type(table).__qualname__}"
        raise TypeError(f"the table is a {kind}, which has no named columns; accepted: {ACCEPTED}")


def _file_part(file: Path) -> Part:
    kind = file_format(file, "the table")
    if kind == "npy":
        raise TypeError(f"the table is {str(file)!r}, which has no named columns; accepted: {ACCEPTED}")
    size = file.stat().st_size
    if kind == "csv":
        return Part(repr(str(file)), csv_names(file), None, partial(csv_batches, file), size)
    schema = parquet_schema(file)
    return Part(repr(str(file)), schema.names, arrow_families(schema), partial(parquet_batches, file), size)
