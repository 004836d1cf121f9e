"""Sources of tables: which kind one is, the files of a path, and arrays of any library as NumPy's.

A library is asked about its tables only where somebody has imported it. A table of Arrow's that is *held*, as Arrow's
own and Polars' frames are, has an order of rows and can be read again. A *query*, a relation of DuckDB or a lazy frame,
is executed anew for each pass, and its rows may come in another order: sums over them do not change, but nothing can go
with them row by row. Of what else offers a stream nothing is known: it is read once, and it is taken for a query.

*Arrays* that are lent are read where they lie, without a copy, and scipy's sparse ones by their rows. Lent is what
offers DLPack, or itself as an Arrow C array.

The value of a sparse matrix's cell is the sum of its entries in their stored order, as in scipy's own ``toarray``.
Entries are neither sorted nor merged first. Scipy does that to all rows or to none, so one row's rounding would depend
on another's. Indices are checked before anything is written by them, as scipy trusts a matrix. scipy.sparse is not
imported to read one: whoever has a matrix has done so.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dpfast._optional import optional
from dpfast._redacted import redact_errors
from dpfast.kernels.columns import SparseBlock

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npy": "npy"}


def is_path(table: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether `table` names files."""
    return isinstance(table, (str, os.PathLike))


def is_frame(table: object) -> bool:
    """Whether `table` is a pandas DataFrame or Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, (pandas.DataFrame, pandas.Series))


def is_arrow(table: object) -> bool:
    """Whether `table` is a table that is read as Arrow's record batches; one of pandas' is not."""
    if isinstance(table, np.ndarray | type) or is_frame(table):
        return False
    if is_lazy_frame(table) or is_dataset(table):
        return True
    # A single column offers both a stream and itself as an array, and has no columns.
    is_table = hasattr(table, "columns") or not hasattr(table, "__array__")
    return hasattr(table, "__arrow_c_stream__") and is_table


def is_held(table: object) -> bool:
    """Whether the rows of a table of Arrow's or Polars' are in memory."""
    return _is_instance("pyarrow", ("Table", "RecordBatch"), table) or is_polars_frame(table)


def is_query(table: object) -> bool:
    """Whether the rows of a table accepted by `is_arrow` come in no fixed order."""
    return is_arrow(table) and not (is_held(table) or is_dataset(table) or is_reader(table))


def streams_once(table: object) -> bool:
    """Whether a table accepted by `is_arrow` can be read only once, or perhaps so."""
    return is_arrow(table) and not (is_held(table) or is_dataset(table) or is_lazy_frame(table) or is_relation(table))


def tables_of(several: Iterable[Any], name: str) -> Iterator[Any]:
    """Iterate over tables that make up one; refuse text, a file given twice, and a query from an iterator."""
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


def is_sparse(table: object) -> bool:
    """Whether `table` is a sparse matrix or array of scipy."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(table))


def is_lent(values: object) -> bool:
    """Whether an object that is neither NumPy's nor a table of columns offers its memory."""
    if isinstance(values, np.ndarray | type) or hasattr(values, "__arrow_c_stream__"):
        return False
    return hasattr(values, "__dlpack__") or hasattr(values, "__arrow_c_array__")


def is_dask(table: object) -> bool:
    """Whether `table` is a Dask array, dataframe, series or bag."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def check_no_dask(table: object) -> None:
    """Refuse a Dask collection for rows to be put in order: they may lie in several of its partitions."""
    if is_dask(table):
        raise TypeError(
            "a table in long form must be sorted, so it cannot be a Dask collection: compute it first, or give "
            "dpfast.io.DaskPartitions of wide donors, or of a bag of Trajectories"
        )


def check_listed(item: object, name: str) -> None:
    """Refuse an item of a list that is text and no path: it may be somebody's, and a path's error would quote it."""
    if not isinstance(item, str) or Path(item).suffix in FORMATS:
        return
    problem = f"{name} holds text; real numbers are needed, or paths that end in {', '.join(FORMATS)}"
    if not redact_errors(lambda: os.path.isdir(item) or glob.glob(item, recursive=True), problem, TypeError):
        raise TypeError(problem)


def check_on_disk(path: str | os.PathLike[str], name: str) -> None:
    """Refuse an address."""
    if "://" in str(path):
        raise ValueError(f"{name} is the address {str(path)!r}: files are read from a disk, copy them first")


def table_files(path: str | os.PathLike[str], name: str) -> list[Path]:
    """Return the files, of one format, that a path stands for, in the order of their names; at least one.

    It is a file, which may not exist, a pattern, or a folder: the tables directly in it.
    """
    check_on_disk(path, name)
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in FORMATS and not file.name.startswith("."))
        if not files:
            raise ValueError(f"{name} is the folder {str(place)!r}, which holds no {', '.join(FORMATS)} file")
    elif glob.has_magic(str(place)) and not place.exists():
        files = sorted(map(Path, glob.glob(str(place), recursive=True)))
        if not files:
            raise ValueError(f"{name} is the pattern {str(place)!r}, which no file matches")
    else:
        files = [place]
    formats = {file_format(file, name) for file in files}
    if len(formats) > 1:
        raise ValueError(f"{name} is {str(place)!r}, with files of several formats: {', '.join(sorted(formats))}")
    check_named_once(files, name)
    return files


def check_named_once(files: Sequence[Path], name: str) -> None:
    """Refuse files of which one has two names, be it by a link: its rows would count twice."""
    places = [(found.st_dev, found.st_ino) for found in (file.stat() for file in files if file.exists())]
    if len(set(places)) < len(places):
        raise ValueError(f"{name} names a file twice, whose rows would count twice")


def file_format(file: Path, name: str) -> str:
    """Return "parquet", "csv" or "npy"."""
    if not file.suffix:
        raise TypeError(
            f"{name} is text, which is read as a path to files of {', '.join(FORMATS)}; of a column of a table give "
            "the column itself, such as frame['name'], of a formula Columns.from_formula(formula, limits).encode(frame)"
        )
    if file.suffix not in FORMATS:
        raise TypeError(f"{name} is a path with the suffix {file.suffix!r}; accepted: {', '.join(FORMATS)}")
    return FORMATS[file.suffix]


def _is_instance(library: str, names: Sequence[str], table: object) -> bool:
    """Whether an object is of a library's class; true only if the library has been imported."""
    module = sys.modules.get(library)
    return module is not None and isinstance(table, tuple(getattr(module, name) for name in names))


is_reader = partial(_is_instance, "pyarrow", ("RecordBatchReader",))
is_dataset = partial(_is_instance, "pyarrow.dataset", ("Dataset",))
is_lazy_frame = partial(_is_instance, "polars", ("LazyFrame",))
is_polars_frame = partial(_is_instance, "polars", ("DataFrame",))
is_relation = partial(_is_instance, "duckdb", ("DuckDBPyRelation",))


Matrix = NDArray[Any]

# Devices whose memory the processor reads: its own, and that which CUDA or ROCm pin or manage for it.
_READ_BY_THE_PROCESSOR = frozenset({1, 3, 11, 13})


def check_unmasked(values: object, name: str) -> None:
    """Refuse masked arrays: NumPy reads the values under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; drop or fill its missing values first")


def zero_copy_view(values: Any, name: str) -> Any:
    """Return what is lent as an array of the same memory, structs as a record batch, and anything else as it is.

    Arrow's lists of one length are rows. A copy is made if Arrow has missing entries, which become NaN, or bits for
    booleans. TypeError for what lies on a device of its own, and for masked arrays.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dpfast.io.sources import zero_copy_view
    >>> ages = pa.array([30.0, 40.0])
    >>> zero_copy_view(ages, "ages").ctypes.data == ages.buffers()[1].address
    True
    """
    if type(values) is np.ndarray:
        return values
    check_unmasked(values, name)
    if not is_lent(values):
        return values
    if hasattr(values, "__arrow_c_array__"):
        return _of_arrow(values, name)
    problem = f"{name} does not lend its memory: its numbers may be of a type that NumPy lacks, or need .detach()"
    device = redact_errors(lambda: int(values.__dlpack_device__()[0]), problem, TypeError)
    if device not in _READ_BY_THE_PROCESSOR:
        raise TypeError(
            f"{name} is in the memory of a GPU or another device: copy it to the CPU first, by .get() of CuPy or "
            ".cpu() of PyTorch"
        )
    return redact_errors(lambda: np.from_dlpack(values), problem, TypeError)


def _of_arrow(values: Any, name: str) -> Any:
    pyarrow = arrow_library(name)
    array = redact_errors(lambda: pyarrow.array(values), f"{name} is no array that pyarrow reads", TypeError)
    types = pyarrow.types
    if types.is_struct(array.type):
        return pyarrow.RecordBatch.from_struct_array(array)
    shape: tuple[int, ...] = (len(array),)
    if types.is_fixed_size_list(array.type) and array.null_count == 0:
        shape, array = (len(array), array.type.list_size), array.flatten()
    if not is_number(array.type):
        raise TypeError(f"{name} is no array of numbers")
    return numbers_of(array).reshape(shape)


def arrow_library(what: str) -> Any:
    """Import pyarrow, with the modules that read files; ImportError names the use that needs it."""
    for module in ("pyarrow.csv", "pyarrow.parquet"):
        optional(module, f"reading {what}")
    return optional("pyarrow", f"reading {what}")


def is_number(kind: Any) -> bool:
    """Whether a type of Arrow's is one of real numbers, booleans among them."""
    types = sys.modules["pyarrow"].types
    is_whole = types.is_integer(kind) or types.is_boolean(kind)
    return bool(is_whole or types.is_floating(kind) or types.is_decimal(kind))


def numbers_of(column: Any) -> NDArray[Any]:
    """Return a column of numbers or booleans as an array, where it lies if it can; missing entries are NaN."""
    pyarrow = sys.modules["pyarrow"]
    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def as_matrix(values: object, name: str, *, is_outcome: bool = False) -> Matrix:
    """Return `values` as a 2-D array of real numbers, without a copy; a 1-D array of outcomes becomes one column."""
    array: Matrix = redact_errors(
        partial(np.asarray, zero_copy_view(values, name)),
        f"{name} has rows of different lengths, or is no array of numbers",
    )
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}")
    if array.dtype.kind == "U" and array.ndim == 0:
        raise TypeError(f"{name} is text; of a column of a table give the column itself, such as frame['name']")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {dtype_name(array)}; real numbers are needed (float, integer or bool)")
    if is_outcome and array.ndim == 1:
        return array[:, np.newaxis]
    if array.ndim != 2:
        # How long it is may be private.
        dimensions = "1-D or 2-D" if is_outcome else "2-D"
        raise ValueError(
            f"{name} must be {dimensions}, got an array of {array.ndim} dimension(s); "
            "one column of a table is frame[['name']]"
        )
    return array


def dtype_name(array: Matrix) -> str:
    """Name a dtype. For text, the length of the longest entry is left out: it is somebody's."""
    return {"U": "str", "S": "bytes", "V": "void"}.get(array.dtype.kind) or str(array.dtype)


def check_openable(path: Path) -> None:
    """Raise the plain error of a file that is missing or forbidden."""
    with path.open("rb"):
        pass


def load_npy(file: Path) -> Matrix:
    """Return a .npy file as a memory map."""
    check_openable(file)
    # Not np.load, which opens archives and pickles too.
    load = partial(np.lib.format.open_memmap, file, mode="r")
    array: Matrix = redact_errors(load, f"{str(file)!r} is not a .npy file of numbers, or is damaged")
    return array


_Stored = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

#: As dense rows, which some of those who read a block make of it: 32 MB.
_VALUES_PER_BLOCK = 1 << 22
_PROBLEM = "{} is a sparse matrix whose indices lie outside of it, or whose parts do not fit together"


def unfit(name: str) -> ValueError:
    """Return the error for a sparse matrix with invalid indices or parts."""
    return ValueError(_PROBLEM.format(name))


def sparse_blocks(table: Any, name: str, *, whole: bool = False) -> Iterator[SparseBlock]:
    """Iterate over blocks of rows, of the matrix's own dtype; all of them in one if it is wanted `whole`.

    TypeError for a format that is not stored by rows, by columns or by entries; ValueError if an index lies outside of
    the matrix, or its parts do not fit together.
    """
    if table.ndim != 2:
        raise ValueError(f"{name} must be 2-D where it is sparse, got an array of {table.ndim} dimension(s)")
    if table.format not in _FORMATS:
        raise TypeError(f"{name} is a sparse matrix in the {table.format} format: convert it by .tocsr() first")
    n_rows, n_columns = table.shape
    check_unmasked(getattr(table, "data", None), name)
    indptr, indices, data = redact_errors(partial(_FORMATS[table.format], table), _PROBLEM.format(name))
    as_matrix(data, name, is_outcome=True)  # refuses what are no real numbers
    step = max(1, n_rows if whole else _VALUES_PER_BLOCK // max(1, n_columns))
    for start in range(0, max(1, n_rows), step):
        pointers = indptr[start : start + step + 1]
        first, last = int(pointers[0]), int(pointers[-1])
        yield SparseBlock(pointers - first, indices[first:last], data[first:last], n_columns)


def _of_rows(table: Any) -> _Stored:
    return _checked(table.shape, table.indptr, table.indices, table.data)


def _of_columns(table: Any) -> _Stored:
    _checked(table.shape[::-1], table.indptr, table.indices, table.data)
    rows = table.tocsr()
    return rows.indptr, rows.indices, rows.data


def _of_entries(table: Any) -> _Stored:
    rows, columns, data = map(np.asarray, (table.row, table.col, table.data))
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    if rows.dtype.kind not in "iu" or not len(rows) == len(columns) == len(data):
        raise ValueError
    if len(rows) > 0 and not 0 <= rows[0] <= rows[-1] < table.shape[0]:
        raise ValueError
    indptr = np.searchsorted(rows, np.arange(table.shape[0] + 1))
    return _checked(table.shape, indptr, columns[order], data[order])


#: How a matrix of each format is read: where each row begins, and its columns and values in the order of storage.
_FORMATS: Mapping[str, Callable[[Any], _Stored]] = {"csr": _of_rows, "csc": _of_columns, "coo": _of_entries}


def _checked(shape: tuple[int, int], *stored: Any) -> _Stored:
    """Return the arrays of a matrix by its first axis, if all entries lie inside."""
    indptr, indices, data = map(np.asarray, stored)
    if {indptr.ndim, indices.ndim, data.ndim} != {1} or {indptr.dtype.kind, indices.dtype.kind} - {"i", "u"}:
        raise TypeError
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or not np.all(indptr[1:] >= indptr[:-1]):
        raise ValueError
    used = indices[: int(indptr[-1])]
    if not len(used) == indptr[-1] <= len(data) or (len(used) > 0 and not 0 <= used.min() <= used.max() < shape[1]):
        raise ValueError
    return indptr, indices, data
