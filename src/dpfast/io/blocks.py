"""Tables as blocks of rows.

`blocks` alone knows which kinds of table there are. Each kind becomes a stream of NumPy blocks; two streams, of
features and of outcomes, are cut where either of them ends a block.

Rows are paired by their place. If pandas knows the record of each row, places must agree with it: otherwise rows paired
with other people's outcomes would be fitted in silence. Like different lengths, different indices make no table, for
any records; the message says only that they differ. A query has no places, so nothing goes with it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, combinations
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast._redacted import redact_errors
from dpfast.io import sources
from dpfast.io.arrow import ArrowStream, parquet_blocks, parquet_schema, stream_names
from dpfast.io.columns import EncodedTable
from dpfast.io.csv_files import csv_blocks, csv_names
from dpfast.io.frames import frame_as_array, frame_blocks
from dpfast.io.people import RowOwners
from dpfast.io.sources import as_matrix, is_arrow, is_frame, is_path
from dpfast.kernels.columns import CodedBlock, ColumnBlock, Rows, SparseBlock


def is_unordered(table: Any) -> bool:
    """Whether a table's rows, or those of one in a list, come in no order that holds from one reading to the next."""
    source = _source(table)
    if not isinstance(source, list | tuple):
        return sources.is_query(source)
    # Its type says whether an object is a query, and a list may hold a number a row.
    return any(map(sources.is_query, {type(one): one for one in source}.values()))


def check_aligned(**tables: Any) -> None:
    """Refuse tables, by the names of their arguments and None left out, that cannot be paired row by row."""
    if _PLACED.issuperset(map(type, tables.values())):
        return
    given = [(name, _source(table)) for name, table in tables.items() if table is not None]
    for name, table in given:
        sources.check_unmasked(table, name)
        if len(given) > 1 and is_unordered(table):
            raise TypeError(
                f"{name} is a query, whose rows come in no fixed order, so they cannot be matched with another "
                "table: collect it, or give one table of features and outcomes, "
                "dpfast.io.Columns(features, outcomes).encode(query)"
            )
    if len(given) < 2:
        return
    for (name, index), (other_name, other) in combinations([(name, _index_of(table)) for name, table in given], 2):
        if index is None or other is None or (index is _UNKNOWN and other is _UNKNOWN):
            continue
        if index is _UNKNOWN or other is _UNKNOWN or not _same_index(index, other):
            raise ValueError(
                f"{name} and {other_name} have different indices: align their rows first (or pass them as arrays, if "
                "rows at the same place belong together)"
            )


def _source(table: Any) -> Any:
    return table.source if isinstance(table, EncodedTable | RowOwners) else table


#: Of what comes with places and nothing else.
_PLACED = frozenset({np.ndarray, type(None)})

#: In the place of the index of an iterable's rows, which is not to be used up.
_UNKNOWN = object()


def _index_of(table: Any) -> Any:
    """Return the pandas index of a table's rows, those of listed tables joined; None where places are all there is."""
    if is_frame(table):
        return table.index
    if isinstance(table, list | tuple):
        first = (item[0] if isinstance(item, tuple) and item else item for item in table)
        # One look at each type: a list may hold a number a row.
        if not any(map(is_frame, {type(one): one for one in first}.values())):
            return None
        frames = [item[0] if isinstance(item, tuple) else item for item in table]
        return frames[0].index.append([one.index for one in frames[1:]]) if all(map(is_frame, frames)) else _UNKNOWN
    is_iterable = isinstance(table, Iterable) and not (
        hasattr(table, "shape") or isinstance(table, str | PathLike | dict | set | frozenset)
    )
    return _UNKNOWN if is_iterable and not (is_arrow(table) or hasattr(table, "__array__")) else None


def _same_index(index: Any, other: Any) -> bool:
    def compare() -> bool:
        return index is other or bool(index.equals(other))

    return redact_errors(compare, "indices of tables hold labels that cannot be compared")


@contextmanager
def naming_columns(*tables: Any) -> Iterator[None]:
    """Read declared tables again, if sums refuse what is in them, to name the column."""
    try:
        yield
    except check.NotFiniteError:
        for table in tables:
            if isinstance(table, EncodedTable) and not is_read_once(table):
                deque(table.columns.encode(table.source), maxlen=0)
        raise


Block = tuple[Rows, Rows | None]

ACCEPTED = (
    "a NumPy array, or one that offers DLPack or the Arrow C array, a pandas DataFrame or Series, a table that offers "
    "the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a Polars LazyFrame, a sparse matrix of scipy's "
    "(CSR, CSC, COO), a path to a .parquet, .csv or .npy file, a glob or a folder of them, or an iterable of arrays or "
    "of (X, Y) pairs"
)


def in_memory(table: object, name: str, *, is_outcome: bool = False, may_copy: bool = False) -> sources.Matrix | None:
    """Return a table that is one array already, or None.

    A memory map is one, and so is a frame of one dtype and one block; of another, of Arrow's and Polars' tables and of
    sparse matrices', a copy is made, if `may_copy`.
    """
    if type(table) is np.ndarray:
        return as_matrix(table, name, is_outcome=is_outcome)
    if is_path(table) and Path(table).suffix == ".npy" and Path(table).exists():
        table = sources.load_npy(Path(table))
    table = sources.zero_copy_view(table, name)
    if is_frame(table):
        table = frame_as_array(table, name, may_copy=may_copy)
    elif may_copy and sources.is_held(table):
        table = np.concatenate([np.asarray(block) for block in ArrowStream(table, name).blocks()])
    elif may_copy and sources.is_sparse(table):
        (table,) = map(np.asarray, sources.sparse_blocks(table, name, whole=True))
    is_nested = isinstance(table, (list, tuple)) and not _is_table_list(table)
    if isinstance(table, np.ndarray) or is_nested or _becomes_array(table):
        return as_matrix(table, name, is_outcome=is_outcome)
    return None


def blocks(X: object, Y: object = None) -> Iterator[Block]:
    """Iterate over a table, and the outcomes that go with it, as blocks of rows.

    An iterable may fill one buffer again and again. Estimators that read rows more than once refuse a table with other
    rows the next time. Data frames that go together are yielded as pairs; columns of several tables go by their places,
    and must have the same names in the same order.

    Parameters
    ----------
    X : table or iterable
        Features: a NumPy array or memory map, a pandas DataFrame, a table that offers the Arrow C stream (of Polars,
        DuckDB, pyarrow), an Arrow Dataset, a Polars LazyFrame, a sparse matrix of scipy's (CSR, CSC, COO), a path to a
        ``.parquet``, ``.csv`` or ``.npy`` file, a glob or a folder of them, an iterable of 2-D arrays, or (without `Y`)
        one of (X, Y) pairs. Columns of files are numbers; for others see `dpfast.io.Columns`.
    Y : table or iterable, optional
        Outcomes, of any of these kinds; 1-D arrays are one column. Rows are paired by their place: pandas indices must
        agree, and a query, of DuckDB or a LazyFrame, has nothing beside it, for its rows are in no order.

    Yields
    ------
    x : ndarray, ColumnBlock, CodedBlock or SparseBlock (n_rows, n_features)
        Any real dtype, any strides; Arrow's columns where they lie; declared categories as codes; sparse rows by their
        entries. ``numpy.asarray`` makes an array of any.
    y : ndarray, ColumnBlock or SparseBlock (n_rows, n_outcomes), or None
        The same rows' outcomes.

    Raises
    ------
    TypeError, ValueError
        If a table is of no known kind, is not numeric, or X and Y differ in their number of rows or cannot be paired.
    """
    check_aligned(X=X, Y=Y)
    if Y is not None:
        yield from _aligned(_stream(X, "X"), _stream(Y, "Y", is_outcome=True))
        return
    for block in _stream(X, "X", allow_pairs=True):
        yield block if isinstance(block, tuple) else (block, None)


def is_read_once(table: object) -> bool:
    """Whether `blocks` can go through a table, or one of those in a list, a single time."""
    if isinstance(table, EncodedTable):
        return is_read_once(table.source)
    if sources.streams_once(table):
        return True
    if isinstance(table, (list, tuple)) and _is_table_list(table):
        return any(is_read_once(one) for item in table for one in (item if isinstance(item, tuple) else (item,)))
    return isinstance(table, Iterator)


def is_made_anew(table: object) -> bool:
    """Whether an iterable of the caller's makes the blocks of a table, or of one in a list, whenever it is read."""
    if isinstance(table, EncodedTable):
        return is_made_anew(table.source)
    if isinstance(table, (list, tuple)):
        return _is_table_list(table) and any(map(is_made_anew, table))
    return _is_plain_iterable(table) and not (is_arrow(table) or sources.is_lent(table) or _becomes_array(table))


def _stream(table: Any, name: str, *, is_outcome: bool = False, allow_pairs: bool = False) -> Iterator[Any]:
    if isinstance(table, ColumnBlock | CodedBlock | SparseBlock):
        return iter([table])
    table = sources.zero_copy_view(table, name)
    whole = in_memory(table, name, is_outcome=is_outcome)
    if whole is not None:
        return iter([whole])
    if is_frame(table):
        return (as_matrix(part, name, is_outcome=is_outcome) for part in frame_blocks(table, name))
    if sources.is_sparse(table):
        return sources.sparse_blocks(table, name)
    if is_arrow(table):
        return ArrowStream(table, name).blocks()
    if is_path(table):
        return _blocks_of_files(sources.table_files(table, name), name, is_outcome=is_outcome)
    if isinstance(table, EncodedTable):
        if not allow_pairs:
            raise TypeError(
                f"{name} is made by Columns.encode, and takes no outcomes beside it: declare them, Columns(..., "
                "outcomes=['days']), or give Columns.transform(frame)"
            )
        table = table.blocks()
    if _is_table_list(table) or isinstance(table, Iterator) or _is_plain_iterable(table):
        return _iterable_blocks(table, name, is_outcome=is_outcome, allow_pairs=allow_pairs)
    raise TypeError(f"{name} is a {type(table).__module__}.{type(table).__qualname__}; accepted: {ACCEPTED}")


def _iterable_blocks(table: Iterable[Any], name: str, *, is_outcome: bool, allow_pairs: bool) -> Iterator[Any]:
    columns = _SameColumns(name)
    # Lists have been compared with what goes with them.
    has_frames = allow_pairs or isinstance(table, list | tuple)
    for item in sources.tables_of(table, name):
        columns.check(item)
        if is_frame(item) and not has_frames:
            raise TypeError(f"{name} yields data frames, whose rows are paired by their indices: yield (X, Y) pairs")
        if isinstance(item, tuple):
            if not allow_pairs or len(item) != 2:
                raise TypeError(f"{name} yields tuples; (X, Y) pairs are accepted only if Y is not given, too")
            yield from blocks(*item)
        else:
            yield from _stream(item, name, is_outcome=is_outcome)


def _blocks_of_files(files: Sequence[Path], name: str, *, is_outcome: bool) -> Iterator[Rows]:
    columns = _SameColumns(name)
    for file in files:
        if len(files) > 1:
            columns.check(file)
        yield from _file_stream(file, name, is_outcome=is_outcome)


class _SameColumns:
    """Refuses tables, one after another, with columns other than the first's: here they go by their places."""

    def __init__(self, name: str) -> None:
        self._name, self._first = name, dict[int, list[Any]]()

    def check(self, item: Any) -> None:
        """Look at the names of a table, or at those of X and of Y."""
        for place, one in enumerate(item if isinstance(item, tuple) else (item,)):
            names = column_names(one, self._name)
            if names is not None and self._first.setdefault(place, names) != names:
                raise ValueError(
                    f"{self._name} holds tables whose columns have other names, or another order, than those of the "
                    "first: read them by name, dpfast.io.Columns(features, outcomes).encode(tables)"
                )


def column_names(table: Any, name: str) -> list[Any] | None:
    """Return the names of a table's columns, or None where it has none, or looking would use it up."""
    if is_path(table):
        file = sources.table_files(table, name)[0]
        kind = sources.file_format(file, name)
        return None if kind == "npy" else csv_names(file) if kind == "csv" else list(parquet_schema(file).names)
    if is_frame(table):
        return list(table.columns) if table.ndim == 2 else None
    return stream_names(table) if is_arrow(table) else None


def _aligned(xs: Iterator[Rows], ys: Iterator[Rows]) -> Iterator[Block]:
    """Cut two streams at the ends of either's blocks."""
    x, y = next(xs, None), next(ys, None)
    while x is not None and y is not None:
        n_rows = min(len(x), len(y))
        if n_rows > 0 or len(x) == len(y):
            yield x[:n_rows], y[:n_rows]
        x = x[n_rows:] if len(x) > n_rows else next(xs, None)
        y = y[n_rows:] if len(y) > n_rows else next(ys, None)
    if any(len(rest) > 0 for rest in chain([] if x is None else [x], xs, [] if y is None else [y], ys)):
        raise ValueError("X and Y have different numbers of rows")


def _file_stream(file: Path, name: str, *, is_outcome: bool) -> Iterable[Rows]:
    kind = sources.file_format(file, name)
    if kind == "npy":
        return [as_matrix(sources.load_npy(file), name, is_outcome=is_outcome)]
    return csv_blocks(file, name) if kind == "csv" else parquet_blocks(file, name)


def _is_table_list(table: object) -> bool:
    """Whether a list or tuple holds blocks, and not numbers or rows of numbers."""
    if not isinstance(table, (list, tuple)) or len(table) == 0:
        return False
    first = table[0]
    if isinstance(first, tuple) and len(first) > 0 and all(isinstance(entry, Real | np.bool_) for entry in first):
        return False
    if isinstance(first, (tuple, str, os.PathLike)) or is_frame(first) or is_arrow(first):
        return True
    return sources.is_lent(first) or np.ndim(first) == 2


def _becomes_array(table: object) -> bool:
    """Whether an object that is no table of another kind offers itself to NumPy as an array."""
    return hasattr(table, "__array__") and not (is_frame(table) or is_arrow(table) or sources.is_dask(table))


def _is_plain_iterable(table: object) -> bool:
    """Tell an iterable of blocks from text, mappings, sets and other libraries' arrays."""
    if isinstance(table, (str, bytes, dict, set, frozenset)) or hasattr(table, "shape"):
        return False
    return isinstance(table, Iterable) and not sources.is_dask(table)


def names_of(x: Any) -> tuple[str, ...] | None:
    """Return the names of features that a frame, of pandas or Dask, or encoded table has, if all are text."""
    names = x.columns.feature_names if isinstance(x, EncodedTable) else getattr(x, "columns", ())
    return tuple(names) if len(names) > 0 and all(isinstance(name, str) for name in names) else None


def outcome_names_of(x: Any, y: Any) -> tuple[str, ...] | None:
    """Return the names of outcomes, which may be declared with the features, if all have one and it is text."""
    if isinstance(y, np.ndarray):
        return None
    names: Sequence[Any]
    if y is None:
        names = x.columns.outcome_names if isinstance(x, EncodedTable) else ()
    elif is_arrow(y):
        names = stream_names(y) or ()
    elif hasattr(y, "columns"):
        names = y.columns
    else:
        # Of a column, which can be a frame: what else has a name, as paths and Dask's arrays, is not named for one.
        names = [y.name] if hasattr(y, "to_frame") else ()
    return tuple(names) if len(names) > 0 and all(isinstance(name, str) and name for name in names) else None
