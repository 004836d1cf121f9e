"""Arrow's record batches: of tables of other libraries, and of Parquet files. pyarrow is imported when one is opened.

What pyarrow and producers say of their errors quotes cells and counts rows. It is never read. A message in its place
names the table or file and, if declared, the column.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast._redacted import redact_errors
from dpfast._threads import Task
from dpfast._transaction import AtomicContext
from dpfast.io import frames, sources
from dpfast.io.frames import Codes, Family, LevelCodes
from dpfast.kernels.columns import ColumnBlock, Rows

_VALUES_PER_BATCH = 1 << 22
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17

_FAILED = (
    "{0} cannot be read to its end: a file of it is damaged, it holds other values than its schema says, or what it "
    "comes from failed or is in use. That message may quote rows: read it by itself to see"
)


class ArrowStream:
    """A table accepted by `is_arrow`, opened: its schema is known, its rows are not yet read."""

    def __init__(self, table: Any, name: str) -> None:
        sources.arrow_library(name)
        self._name, self._problem = name, _FAILED.format(name)
        self._table = redact_errors(partial(_stream_of, table), self._problem) if _is_used_up(table) else table
        self.schema = redact_errors(partial(_schema, self._table), self._problem)

    def blocks(self) -> Iterator[Rows]:
        """Iterate over the record batches, every column a number."""
        return rows_of(self._read(None), self.schema, self._name)

    def batches(self, names: Iterable[str]) -> Batches:
        """Iterate over some columns; how many bytes there are is not known."""
        return ((ArrowBatch(batch), 0.0) for batch in self._read(list(names)))

    def _read(self, names: Sequence[str] | None) -> Iterator[Any]:
        batches = redact_errors(lambda: iter(_producer(self._table, names)), self._problem)
        while (batch := redact_errors(partial(next, batches, None), self._problem)) is not None:
            chosen = batch if names is None else batch.select(names)
            # A held table may be one batch: its columns are converted some rows at a time.
            step = batch_rows(chosen.num_columns)
            for start in range(0, max(1, chosen.num_rows), step):
                yield chosen.slice(start, step)


def _is_used_up(table: Any) -> bool:
    """Whether a table is used up by looking at its schema."""
    return sources.streams_once(table) and not sources.is_reader(table)


def stream_names(table: Any) -> list[str] | None:
    """Return the names of the columns of a table accepted by `is_arrow`, or None if looking would use it up."""
    return None if _is_used_up(table) else list(ArrowStream(table, "X").schema.names)


def batch_rows(n_columns: int) -> int:
    """Return how many rows of so many columns are read at a time."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _VALUES_PER_BATCH // max(1, n_columns)))


def _producer(table: Any, names: Sequence[str] | None) -> Any:
    """Return an iterable of record batches. It has columns besides the wanted ones only if they cost nothing."""
    if sources.is_reader(table):
        return table
    if sources.is_dataset(table):
        wanted = list(table.schema.names if names is None else names)
        # By default a hundred batches are read ahead.
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        return table.to_batches(columns=wanted, batch_size=batch_rows(len(wanted)), **ahead)
    if sources.is_lazy_frame(table) or sources.is_polars_frame(table):
        return _polars_batches(table if names is None else table.select(names))
    if names is not None and sources.is_relation(table):
        # Not by their bare names, which would be read as SQL.
        table = table.select(*map(sys.modules["duckdb"].ColumnExpression, names))
    elif names is not None:
        table = table.select(names)
    return _stream_of(table)


def _polars_batches(frame: Any) -> Iterator[Any]:
    n_rows = batch_rows(len(frame.collect_schema()))
    # As a whole, a frame whose columns are cut differently would be copied.
    lazy = sources.is_lazy_frame(frame)
    parts = frame.collect_batches(chunk_size=n_rows, lazy=True) if lazy else frame.iter_slices(n_rows)
    for part in parts:
        yield from _stream_of(part)


def _schema(table: Any) -> Any:
    if sources.is_lazy_frame(table):
        table = sys.modules["polars"].DataFrame(schema=table.collect_schema())
    elif sources.is_relation(table):
        table = table.limit(0)
    elif sources.is_polars_frame(table):
        table = table.head(0)
    else:
        return table.schema
    return _stream_of(table).schema


def _stream_of(table: Any) -> Any:
    return sys.modules["pyarrow"].RecordBatchReader.from_stream(table)


T = TypeVar("T")

# Column chunks of Parquet are read through buffers, none in advance: a row group need not fit in memory.
_BUFFER_BYTES_OF_COLUMN, _BUFFER_BYTES = 1 << 15, 1 << 26
_BYTES_AHEAD = 1 << 26  # in the system's cache, no memory of this process

_DAMAGED_PARQUET = "{0!r} is not a Parquet file, is damaged, or uses a feature not supported"


def parquet_blocks(path: Path, name: str) -> Iterator[Rows]:
    """Iterate over a Parquet file, every column a number; two batches in memory at a time."""
    schema = parquet_schema(path)
    yield from rows_of((batch.batch for batch, _ in one_ahead(parquet_batches(path, None))), schema, name)


@dataclass(frozen=True)
class ArrowBatch:
    """Some rows of named columns."""

    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        """Return a column, of which a dictionary is verified to have the codes.

        Arrow does not ask when it reads a file, and a code of -1 would be the last entry: another person's id.
        """
        column = self.batch.column(name)
        if sys.modules["pyarrow"].types.is_dictionary(column.type):
            redact_errors(partial(column.validate, full=True), frames.CODES_BEYOND.format(name))
        return _without_views(column)

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers or booleans; missing entries are NaN."""
        return np.asarray(sources.numbers_of(self.column(name)), np.float64)

    def codes(self, name: str, levels: Sequence[str]) -> LevelCodes:
        """Return a column of text as places in `levels`, or `MISSING` or `UNDECLARED`."""
        optional("pyarrow.compute", "reading text")
        column = _without_views(self.batch.column(name))
        if not sys.modules["pyarrow"].types.is_dictionary(column.type):
            return frames.arrow_places(column, levels)
        codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        places = frames.arrow_places(column.dictionary, levels)
        if len(places) == 0 and column.indices.null_count == len(codes):
            return np.full(len(codes), frames.MISSING, np.int32)
        found = frames.places_of_codes(codes, places, name, least=0)
        if column.indices.null_count:
            found[frames.arrow_nulls(column.indices)] = frames.MISSING
        return found

    def distinct(self, name: str) -> tuple[Codes, list[Hashable]]:
        """Return a column as places in the list of its distinct values; missing entries are `MISSING`."""
        column = self.column(name)
        pyarrow = sys.modules["pyarrow"]
        encoded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
        # Indices may be of a type that has no negative numbers.
        codes: Codes = encoded.indices.cast(pyarrow.int64()).fill_null(frames.MISSING).to_numpy(zero_copy_only=False)
        return codes, encoded.dictionary.to_pylist()

    def plain(self, name: str, *, may_miss: bool = False) -> NDArray[Any]:
        """Return a column in its own dtype; missing entries are refused, or NaN in a column of numbers."""
        column = self.column(name)
        if column.null_count > 0 and not may_miss:
            raise ValueError(f"column {name!r} has missing entries")
        is_coded = sys.modules["pyarrow"].types.is_dictionary(column.type)
        return sources.numbers_of(column.dictionary_decode() if is_coded else column)

    def series(self, name: str, rows: NDArray[np.bool_]) -> Any:
        """Return some entries of a column as a pandas Series."""
        column = self.column(name)
        optional("pandas", "a panel with labels")
        return column.filter(sys.modules["pyarrow"].array(rows)).to_pandas()


#: Each with the share of its file that has been read.
Batches: TypeAlias = Generator[tuple[ArrowBatch, float], None, None]


def arrow_families(schema: Any) -> dict[str, Family]:
    """Return the family of each column, from the schema alone."""
    types = sys.modules["pyarrow"].types

    def family(kind: Any) -> Literal["number", "text", "any", "other"]:
        if types.is_null(kind):
            return "any"
        if sources.is_number(kind):
            return "number"
        values = kind.value_type if types.is_dictionary(kind) else kind
        is_text = types.is_string(values) or types.is_large_string(values) or types.is_string_view(values)
        return "text" if is_text else "other"

    return {field.name: Family(family(field.type), str(field.type)) for field in schema}


def parquet_schema(path: Path) -> Any:
    """Read a Parquet file's schema from its footer."""
    parquet = sources.arrow_library(repr(str(path))).parquet
    sources.check_openable(path)
    return redact_errors(partial(parquet.read_schema, path), _DAMAGED_PARQUET.format(str(path)))


def parquet_batches(path: Path, names: Mapping[str, str] | Iterable[str] | None) -> Batches:
    """Iterate over batches and the share of the file that has been read.

    Columns that a mapping declares as "levels" are text of few values: they stay codes of a dictionary, as most files
    keep them.
    """
    wanted = None if names is None else list(names)
    coded = [name for name, holds in names.items() if holds == "levels"] if isinstance(names, Mapping) else []
    batches = _parquet_batches(path, wanted, coded)
    is_whole = wanted is None or set(wanted) >= set(parquet_schema(path).names)
    return _reading_ahead(path, batches) if is_whole else batches


def _parquet_batches(path: Path, names: list[str] | None, coded: list[str]) -> Batches:
    parquet = sources.arrow_library(repr(str(path))).parquet
    n_columns = len(parquet_schema(path) if names is None else names)
    buffer_size = max(1, min(_BUFFER_BYTES_OF_COLUMN, _BUFFER_BYTES // max(1, n_columns)))
    damaged = _DAMAGED_PARQUET.format(str(path))
    options = {"pre_buffer": False, "buffer_size": buffer_size, "read_dictionary": coded}
    file = redact_errors(partial(parquet.ParquetFile, path, **options), damaged)
    with file:
        batches = file.iter_batches(batch_size=batch_rows(n_columns), columns=names)
        n_read, n_rows = 0, max(1, file.metadata.num_rows)
        while (batch := redact_errors(partial(next, batches, None), damaged)) is not None:
            n_read += batch.num_rows
            yield ArrowBatch(batch), n_read / n_rows


def _reading_ahead(path: Path, batches: Batches) -> Batches:
    """Ask the system to have what follows of a file in its cache, about as far in the file as batches are.

    Columns lie apart, and each is read a buffer at a time. So the disk does not see a file read from end to end.
    """
    with closing(batches), path.open("rb") as file:
        requested, size = 0, os.fstat(file.fileno()).st_size

        def ask(share: float) -> None:
            nonlocal requested
            stop = min(int(share * size) + _BYTES_AHEAD, size)
            if stop > requested and sys.platform == "linux":
                os.posix_fadvise(file.fileno(), requested, stop - requested, os.POSIX_FADV_WILLNEED)
                requested = stop

        ask(0.0)
        for batch, share in batches:
            ask(share)
            yield batch, share


def rows_of(batches: Iterable[Any], schema: Any, name: str) -> Iterator[Rows]:
    """Columns as they are, float32 where every column is, else float64; nulls become NaN. The first has no rows."""
    types = sys.modules["pyarrow"].types
    frames.check_numeric(name, ((field.name, field.type, sources.is_number(field.type)) for field in schema))
    dtype = np.float32 if len(schema) and all(types.is_float32(field.type) for field in schema) else np.float64
    yield np.empty((0, len(schema)), dtype)
    for batch in batches:
        yield ColumnBlock(map(sources.numbers_of, batch.columns), dtype)


def one_ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """Iterate while a thread makes the next item: decoding and summing take turns otherwise."""
    with closing(items), _Ahead(items) as ahead:
        while (item := ahead.take()) is not None:
            yield item


class _Ahead(AtomicContext["_Ahead"]):
    """The next item, that a thread makes; none is being made when the block is left."""

    def __init__(self, items: Generator[Any, None, None]) -> None:
        super().__init__()
        self._items = items
        self._following: Task[Any] = Task(partial(next, items, None))

    def take(self) -> Any:
        """Return the next item, None after the last, and have the one after it made."""
        item = self._following.result()
        self._following = Task(partial(next, self._items, None))
        self._following.start()
        return item

    def _open(self) -> _Ahead:
        self._following.start()
        return self

    def _close(self) -> None:
        self._following.give_up()


def _without_views(column: Any) -> Any:
    """Return a column of text as Arrow's functions take it: few of them know views, in which Polars keeps it."""
    pyarrow = sys.modules["pyarrow"]
    types, text = pyarrow.types, pyarrow.large_string()
    if types.is_dictionary(column.type) and types.is_string_view(column.type.value_type):
        # Whoever asks verifies the codes.
        return pyarrow.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(text), safe=False)
    return column.cast(text) if types.is_string_view(column.type) else column
