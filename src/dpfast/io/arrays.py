"""Arrays of any library as NumPy's: lent ones where they lie, without a copy, and scipy's sparse ones by their rows.

Lent is what offers DLPack, or itself as an Arrow C array.

The value of a sparse matrix's cell is the sum of its entries in their stored order, as in scipy's own ``toarray``.
Entries are neither sorted nor merged first. Scipy does that to all rows or to none, so one row's rounding would depend
on another's. Indices are checked before anything is written by them, as scipy trusts a matrix. scipy.sparse is not
imported to read one: whoever has a matrix has done so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast._redacted import in_own_words
from dpfast.io.arrow import arrow_library, check_openable, is_number, numbers_of
from dpfast.io.sources import is_lent
from dpfast.kernels.columns import SparseBlock

Matrix = NDArray[Any]

# Devices whose memory the processor reads: its own, and that which CUDA or ROCm pin or manage for it.
_READ_BY_THE_PROCESSOR = frozenset({1, 3, 11, 13})


def check_unmasked(values: object, name: str) -> None:
    """Refuse masked arrays: NumPy reads the values under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; drop or fill its missing values first")


def borrowed(values: Any, name: str) -> Any:
    """Return what is lent as an array of the same memory, structs as a record batch, and anything else as it is.

    Arrow's lists of one length are rows. A copy is made if Arrow has missing entries, which become NaN, or bits for
    booleans. TypeError for what lies on a device of its own, and for masked arrays.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dpfast.io.arrays import borrowed
    >>> ages = pa.array([30.0, 40.0])
    >>> borrowed(ages, "ages").ctypes.data == ages.buffers()[1].address
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
    device = in_own_words(lambda: int(values.__dlpack_device__()[0]), problem, TypeError)
    if device not in _READ_BY_THE_PROCESSOR:
        raise TypeError(
            f"{name} lies in the memory of a GPU or another device: copy it to that of the processor first, as .get() "
            "of CuPy and .cpu() of PyTorch do"
        )
    return in_own_words(lambda: np.from_dlpack(values), problem, TypeError)


def _of_arrow(values: Any, name: str) -> Any:
    pyarrow = arrow_library(name)
    array = in_own_words(lambda: pyarrow.array(values), f"{name} is no array that pyarrow reads", TypeError)
    types = pyarrow.types
    if types.is_struct(array.type):
        return pyarrow.RecordBatch.from_struct_array(array)
    shape: tuple[int, ...] = (len(array),)
    if types.is_fixed_size_list(array.type) and array.null_count == 0:
        shape, array = (len(array), array.type.list_size), array.flatten()
    if not is_number(array.type):
        raise TypeError(f"{name} is no array of numbers")
    return numbers_of(array).reshape(shape)


def as_matrix(values: object, name: str, *, is_outcome: bool = False) -> Matrix:
    """Return `values` as a 2-D array of real numbers, without a copy; a 1-D array of outcomes becomes one column."""
    array: Matrix = in_own_words(
        partial(np.asarray, borrowed(values, name)), f"{name} has rows of different lengths, or is no array of numbers"
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
        raise ValueError(f"{name} must be {dimensions}, got an array of {array.ndim} dimension(s)")
    return array


def dtype_name(array: Matrix) -> str:
    """Name a dtype. For text, the length of the longest entry is left out: it is somebody's."""
    return {"U": "str", "S": "bytes", "V": "void"}.get(array.dtype.kind) or str(array.dtype)


def load_npy(file: Path) -> Matrix:
    """Return a .npy file as a memory map."""
    check_openable(file)
    # Not np.load, which opens archives and pickles too.
    load = partial(np.lib.format.open_memmap, file, mode="r")
    array: Matrix = in_own_words(load, f"{str(file)!r} is not a .npy file of numbers, or is damaged")
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
    indptr, indices, data = in_own_words(partial(_FORMATS[table.format], table), _PROBLEM.format(name))
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
