"""Rows through public maps into exact sums: what row_maps.pyx and gram.pyx do, a pack at a time, so that mapped rows stay in
the cache and nobody takes the GIL between them.

The bits are those of the maps and of the sums, whatever lies in a pack: a row's image depends on that row alone, and sums
are exact. The caller has validated dtypes (native, aligned float64 or float32), shapes and row indices.
"""

import numpy as np

from libc.stdint cimport int64_t
from libc.string cimport memset

from dpfast.kernels._gram_c cimport dpfast_table

from dpfast.kernels.gram cimport GramSums, describe_table

from dpfast.kernels.row_maps cimport RowMapKernel


cdef class _Room:
    """Where mapped rows of one table lie, and what the map works in."""

    cdef RowMapKernel kernel
    cdef Py_ssize_t n_columns
    cdef double[::1] rows, workspace
    cdef dpfast_table source, mapped

    def __init__(self, RowMapKernel kernel not None, table, const int64_t[::1] rows, Py_ssize_t block_rows):
        self.kernel, self.n_columns = kernel, kernel.n_features
        self.rows, self.workspace = np.empty(block_rows * self.n_columns), np.empty(kernel.workspace())
        self.source = describe_table(table, rows)
        memset(&self.mapped, 0, sizeof(self.mapped))
        self.mapped.data = <const char*>&self.rows[0]
        self.mapped.end = self.mapped.data + self.rows.shape[0] * sizeof(double)
        self.mapped.row_stride, self.mapped.column_stride = self.n_columns * sizeof(double), sizeof(double)

    cdef void map_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Map rows to the first of the room; those that are not finite become NaN, which sums refuse."""
        self.kernel.map_table(&self.source, start, stop, &self.workspace[0], &self.rows[0], self.n_columns)


def add_mapped(
        GramSums sums not None, RowMapKernel map_x not None, RowMapKernel map_y, x, y, const int64_t[::1] rows,
        Py_ssize_t start, Py_ssize_t stop):
    """Add rows start to stop of x and y, or those named by rows[start:stop], mapped; returns a status.

    After a status other than PACKED the sums hold a part of the rows and must be thrown away.
    """
    if (map_y is None) != (y is None) or (map_y is None) != (sums.y_grid.n_columns == 0):
        raise ValueError("y and its map go with sums of outcomes")
    if (x.shape[1], map_x.n_features) != (map_x.map.n_columns, sums.x_grid.n_columns):
        raise ValueError("x has other columns than its map takes, or the map others than are summed")
    if y is not None and (y.shape[1], map_y.n_features) != (map_y.map.n_columns, sums.y_grid.n_columns):
        raise ValueError("y has other columns than its map takes, or the map others than are summed")
    if stop <= start:
        return 0
    if start < 0 or stop > (len(x) if rows is None else rows.shape[0]) or (y is not None and len(y) != len(x)):
        raise IndexError("start and stop must lie within the rows, of which x and y have as many")
    if sums.rows_in_totals + (stop - start) > sums.total_capacity:
        raise OverflowError("the 64-bit totals are full: take them first")
    cdef _Room x_room = _Room(map_x, x, rows, sums.block_rows), y_room = x_room
    cdef bint has_outcomes = y is not None
    if has_outcomes:
        y_room = _Room(map_y, y, rows, sums.block_rows)
    cdef Py_ssize_t n_rows
    cdef int status = 0
    with nogil:
        while start < stop and status == 0:
            n_rows = min(sums.block_rows, stop - start)
            x_room.map_rows(start, start + n_rows)
            if has_outcomes:
                y_room.map_rows(start, start + n_rows)
            status = sums.add_rows(&x_room.mapped, &y_room.mapped, 0, n_rows)
            start += n_rows
    return status
