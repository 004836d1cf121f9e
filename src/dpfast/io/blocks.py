"""Tables as blocks of rows.

`blocks` is the one place that knows which kinds of table there are. Each kind becomes a stream of NumPy blocks; two
streams, of features and of outcomes, are cut where either of them ends a block.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast._own_words import in_own_words
from dpfast.io.alignment import check_aligned
from dpfast.io.arrow import arrow_blocks, parquet_blocks, parquet_schema
from dpfast.io.borrowed import borrowed, is_lent
from dpfast.io.columns import EncodedTable
from dpfast.io.csv_files import csv_blocks, csv_names
from dpfast.io.files import file_format, is_path, table_files
from dpfast.io.frames import frame_as_array, frame_blocks, is_frame
from dpfast.io.partitions import is_dask
from dpfast.io.sparse import is_sparse, sparse_blocks
from dpfast.io.streams import is_arrow, is_held, stream_names, streams_once, tables_of
from dpfast.kernels.columns import ColumnBlock, Rows

Matrix = NDArray[Any]
Block = tuple[Rows, Rows | None]

ACCEPTED = (
    "a NumPy array, or one that offers DLPack or the Arrow C array, a pandas DataFrame or Series, a table that offers "
    "the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a Polars LazyFrame, a sparse matrix of scipy's "
    "(CSR, CSC, COO), a path to a .parquet, .csv or .npy file, a glob or a folder of them, or an iterable of arrays or "
    "of (X, Y) pairs"
)


def as_matrix(values: object, name: str, *, is_outcome: bool = False) -> Matrix:
    """Return `values` as a 2-D array of real numbers, without a copy; a 1-D array of outcomes becomes one column."""
    array: Matrix = in_own_words(
        partial(np.asarray, borrowed(values, name)), f"{name} has rows of different lengths, or is no array of numbers"
    )
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {dtype_name(array)}; real numbers are needed (float, integer or bool)")
    if is_outcome and array.ndim == 1:
        return array[:, np.newaxis]
    if array.ndim != 2:
        # How long it is may be private.
        dimensions = "1-D or 2-D" if is_outcome else "2-D"
        raise ValueError(f"{name} must be {dimensions}, got an array of {array.ndim} dimension(s)")
    return array


def dtype_name(array: Matrix) -> str:
    """Name a dtype; that of text without the length of the longest, which is somebody's."""
    return {"U": "str", "S": "bytes", "V": "void"}.get(array.dtype.kind) or str(array.dtype)


def in_memory(table: object, name: str, *, is_outcome: bool = False, may_copy: bool = False) -> Matrix | None:
    """Return a table that is one array already, or None.

    A memory map is one, and so is a frame of one dtype and one block; of another, of Arrow's and Polars' tables and of
    sparse matrices', a copy is made, if `may_copy`.
    """
    if is_path(table) and Path(table).suffix == ".npy" and Path(table).exists():
        table = _load_npy(Path(table))
    table = borrowed(table, name)
    if is_frame(table):
        table = frame_as_array(table, name, may_copy=may_copy)
    elif may_copy and is_held(table):
        table = np.concatenate([np.asarray(block) for block in arrow_blocks(table, name)])
    elif may_copy and is_sparse(table):
        (table,) = sparse_blocks(table, name, whole=True)
    if isinstance(table, np.ndarray) or _is_nested_numbers(table) or _becomes_array(table):
        return as_matrix(table, name, is_outcome=is_outcome)
    return None


def blocks(X: object, Y: object = None) -> Iterator[Block]:
    """Iterate over a table, and the outcomes that go with it, as blocks of rows.

    An iterable may fill one buffer again and again. Estimators that read rows more than once refuse one that gives
    other rows the next time. Data frames that go together are yielded as pairs; columns of several tables go by their
    places, and must have the same names in the same order.

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
    x : ndarray or ColumnBlock (n_rows, n_features)
        Any real dtype, any strides; Arrow's columns where they lie.
    y : ndarray or ColumnBlock (n_rows, n_outcomes), or None
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
    if streams_once(table):
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
    return _is_plain_iterable(table) and not (is_arrow(table) or is_lent(table) or _becomes_array(table))


def _stream(table: Any, name: str, *, is_outcome: bool = False, allow_pairs: bool = False) -> Iterator[Any]:
    if isinstance(table, ColumnBlock):
        return iter([table])
    table = borrowed(table, name)
    whole = in_memory(table, name, is_outcome=is_outcome)
    if whole is not None:
        return iter([whole])
    if is_frame(table):
        return (as_matrix(part, name, is_outcome=is_outcome) for part in frame_blocks(table, name))
    if is_sparse(table):
        return (as_matrix(part, name, is_outcome=is_outcome) for part in sparse_blocks(table, name))
    if is_arrow(table):
        return arrow_blocks(table, name)
    if is_path(table):
        return _blocks_of_files(table_files(table, name), name, is_outcome=is_outcome)
    if isinstance(table, EncodedTable):
        table = table.blocks()
    if _is_table_list(table) or isinstance(table, Iterator) or _is_plain_iterable(table):
        return _iterable_blocks(table, name, is_outcome=is_outcome, allow_pairs=allow_pairs)
    raise TypeError(f"{name} is a {type(table).__module__}.{type(table).__qualname__}; accepted: {ACCEPTED}")


def _iterable_blocks(table: Iterable[Any], name: str, *, is_outcome: bool, allow_pairs: bool) -> Iterator[Any]:
    columns = _SameColumns(name)
    # Lists have been compared with what goes with them.
    has_frames = allow_pairs or isinstance(table, list | tuple)
    for item in tables_of(table, name):
        columns.check(item)
        if is_frame(item) and not has_frames:
            raise TypeError(
                f"{name} yields data frames, whose rows must be paired by their indices: yield (X, Y) pairs"
            )
        if isinstance(item, tuple):
            if not allow_pairs or len(item) != 2:
                raise TypeError(f"{name} yields tuples; (X, Y) pairs are accepted only where Y is not given as well")
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
    """Refuses tables, one after another, whose columns are not those of the first: here they go by their places."""

    def __init__(self, name: str) -> None:
        self._name, self._first = name, dict[int, list[Any]]()

    def check(self, item: Any) -> None:
        """Look at the names of a table, or at those of X and of Y."""
        for place, one in enumerate(item if isinstance(item, tuple) else (item,)):
            names = _column_names(one, self._name)
            if names is not None and self._first.setdefault(place, names) != names:
                raise ValueError(
                    f"{self._name} holds tables whose columns have other names, or another order, than those of the "
                    "first: read them by name, dpfast.io.Columns(features, outcomes).encode(tables)"
                )


def _column_names(table: Any, name: str) -> list[Any] | None:
    """Return the names of a table's columns, or None where it has none, or looking would use it up."""
    if is_path(table):
        file = table_files(table, name)[0]
        kind = file_format(file, name)
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
    kind = file_format(file, name)
    if kind == "npy":
        return [as_matrix(_load_npy(file), name, is_outcome=is_outcome)]
    return csv_blocks(file, name) if kind == "csv" else parquet_blocks(file, name)


def _load_npy(file: Path) -> Matrix:
    with file.open("rb"):  # the plain error of a file that is missing or forbidden
        pass
    # Not np.load, which opens archives and pickles too.
    load = partial(np.lib.format.open_memmap, file, mode="r")
    array: Matrix = in_own_words(load, f"{str(file)!r} is not a .npy file of numbers, or is damaged")
    return array


def _is_table_list(table: object) -> bool:
    """Whether a list or tuple holds blocks, and not numbers or rows of numbers."""
    if not isinstance(table, (list, tuple)) or len(table) == 0:
        return False
    first = table[0]
    if isinstance(first, tuple) and len(first) > 0 and all(isinstance(entry, Real | np.bool_) for entry in first):
        return False
    if isinstance(first, (tuple, str, os.PathLike)) or is_frame(first) or is_arrow(first):
        return True
    return is_lent(first) or np.ndim(first) == 2


def _is_nested_numbers(table: object) -> bool:
    return isinstance(table, (list, tuple)) and not _is_table_list(table)


def _becomes_array(table: object) -> bool:
    """Whether an object that is no table of another kind offers itself to NumPy as an array."""
    return hasattr(table, "__array__") and not (is_frame(table) or is_arrow(table) or is_dask(table))


def _is_plain_iterable(table: object) -> bool:
    """Tell an iterable of blocks from text, mappings, sets and other libraries' arrays."""
    if isinstance(table, (str, bytes, dict, set, frozenset)) or hasattr(table, "shape"):
        return False
    return isinstance(table, Iterable) and not is_dask(table)
