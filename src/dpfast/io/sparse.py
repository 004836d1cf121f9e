"""scipy's sparse matrices and arrays as dense blocks of rows.

What a cell holds is the sum of its entries in the order in which they are stored, as scipy's own ``toarray`` has it:
entries are neither sorted nor merged first, which scipy does to all rows or to none, so that one row's rounding would
depend on another's. Indices are checked before anything is written by them, as scipy believes a matrix.
scipy.sparse is not imported to read one: whoever has a matrix has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast._own_words import in_own_words
from dpfast.io.borrowed import check_unmasked

_Stored = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

_VALUES_PER_BLOCK = 1 << 20
_PROBLEM = "{} is a sparse matrix whose indices lie outside of it, or whose parts do not fit together"


def is_sparse(table: object) -> bool:
    """Whether `table` is a sparse matrix or array of scipy."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(table))


def sparse_blocks(table: Any, name: str, *, whole: bool = False) -> Iterator[NDArray[Any]]:
    """Iterate over blocks of dense rows, of the matrix's own dtype; all of them in one if it is wanted `whole`.

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
    csr_array = sys.modules["scipy.sparse"].csr_array
    step = n_rows if whole else _VALUES_PER_BLOCK // max(1, n_columns)
    for start in range(0, max(1, n_rows), max(1, step)):
        pointers = indptr[start : start + max(1, step) + 1]
        entries = slice(int(pointers[0]), int(pointers[-1]))
        parts = data[entries], indices[entries], pointers - pointers[0]
        yield in_own_words(
            lambda: csr_array(parts, shape=(len(pointers) - 1, n_columns)).toarray(),  # noqa: B023
            _PROBLEM.format(name),
        )


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
