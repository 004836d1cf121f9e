"""Exact sums of products of rows that are kept by their entries, as scipy's CSR matrices are: no dense table is made.

An entry is rounded as those of dense rows are, and zeros add nothing to a product nor to a squared length, so that sums
of integers over the entries alone are those of the dense rows, to the bit. A row whose columns ascend, and that is within
its bound, is added entry by entry to the 64-bit totals of `GramSums`, within the capacity that these have. Any other
row, one whose columns repeat or are out of order, that is beyond its bound or not finite, is written out first, each cell
the sum of its entries in the order of storage and in their type, and passes through what dense rows do (gram.c); what is
not zero then is added. So how a row is stored decides on the time it takes, and on no bit.

Where a row begins, and every column, is checked before anything is read or written by it, and read no second time by
then, as it may be another thread's to change. One thread calls, with sums of its own. Not for loops of other code: it
takes Python objects.
"""

import numpy as np

from dpfast.kernels.gram import aligned_zeros

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from dpfast.kernels._c cimport dpfast_pack, dpfast_pack_rows, dpfast_pack_scratch, dpfast_row_grid, dpfast_table

from dpfast.kernels.gram cimport GramSums, describe_table

cdef extern from "sparse_gram.c":
    int DPFAST_OUTSIDE

    ctypedef struct dpfast_sparse_table:
        const int64_t* row_starts
        const char* columns
        const char* values
        Py_ssize_t n_stored
        int is_wide
        int is_float32

    ctypedef struct dpfast_sparse_room:
        int64_t* units
        int32_t* columns
        Py_ssize_t n_entries
        Py_ssize_t* ends
        double* written
        dpfast_pack pack
        dpfast_pack_scratch scratch

    ctypedef struct dpfast_sparse_totals:
        int64_t* products
        int64_t* columns
        Py_ssize_t stride
        int cross_only

    int dpfast_add_sparse_rows(
        int level, const dpfast_sparse_table* table, const dpfast_row_grid* grid, Py_ssize_t start, Py_ssize_t n_rows,
        const double* outcomes, Py_ssize_t n_outcomes, Py_ssize_t outcome_stride, dpfast_sparse_room* room,
        const dpfast_sparse_totals* totals) nogil

# Packed rows stay in the first-level cache.
cdef enum:
    _ENTRIES_AT_A_TIME = 1024

OUTSIDE = DPFAST_OUTSIDE  # a status beside those of GramSums.add: entries do not lie within their table


cdef class _Room:
    """What reading rows of x and of y needs, row after row."""

    cdef dpfast_sparse_room of_x
    cdef dpfast_pack pack
    cdef dpfast_pack_scratch scratch
    cdef int64_t[::1] units
    cdef int32_t[::1] columns
    cdef Py_ssize_t[::1] ends
    cdef double[::1] written, packed_x, packed_y, row, staging

    def __init__(self, Py_ssize_t n_x, Py_ssize_t n_y, Py_ssize_t block_rows):
        cdef Py_ssize_t padded_x = (n_x + 7) // 8 * 8, padded_y = (n_y + 7) // 8 * 8
        cdef Py_ssize_t n_entries = max(_ENTRIES_AT_A_TIME, n_x)
        self.units, self.columns = np.empty(n_entries, np.int64), np.empty(n_entries, np.int32)
        self.ends, self.written = np.empty(block_rows, np.intp), np.zeros(n_x)
        self.packed_x, self.packed_y = np.empty(padded_x), np.empty(block_rows * padded_y + 1)
        self.row, self.staging = aligned_zeros(max(padded_x, padded_y) + 8), np.empty(block_rows * n_y + 1)
        memset(&self.scratch, 0, sizeof(self.scratch))
        self.scratch.row, self.scratch.y_staging = &self.row[0], &self.staging[0]
        self.pack.data, self.pack.panel_width, self.pack.n_columns = &self.packed_y[0], padded_y, padded_y
        self.pack.panel_stride = 0
        memset(&self.of_x, 0, sizeof(self.of_x))
        self.of_x.units, self.of_x.columns, self.of_x.n_entries = &self.units[0], &self.columns[0], n_entries
        self.of_x.ends, self.of_x.written = &self.ends[0], &self.written[0]
        self.of_x.pack, self.of_x.scratch = self.pack, self.scratch
        self.of_x.pack.data = &self.packed_x[0]
        self.of_x.pack.panel_width = self.of_x.pack.n_columns = padded_x


cdef dpfast_sparse_table _describe(x):
    """Where the entries of a SparseBlock of doubles or floats lie."""
    cdef dpfast_sparse_table table
    cdef const int64_t[::1] row_starts = x.indptr
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef const float[::1] floats
    cdef const double[::1] doubles
    memset(&table, 0, sizeof(table))
    table.row_starts = &row_starts[0]
    table.n_stored = min(len(x.indices), len(x.data))
    table.is_wide, table.is_float32 = x.indices.dtype.itemsize == 8, x.data.dtype.itemsize == 4
    if table.n_stored == 0:
        return table
    if table.is_wide:
        wide = x.indices
        table.columns = <const char*>&wide[0]
    else:
        narrow = x.indices
        table.columns = <const char*>&narrow[0]
    if table.is_float32:
        floats = x.data
        table.values = <const char*>&floats[0]
    else:
        doubles = x.data
        table.values = <const char*>&doubles[0]
    return table


def add_sparse(GramSums sums not None, x, y, Py_ssize_t start, Py_ssize_t stop):
    """Add rows start to stop of a SparseBlock of doubles or floats and of y, an array or ColumnBlock; returns a status.

    After a status other than PACKED the sums hold a part of the rows and must be thrown away.
    """
    cdef Py_ssize_t n_outcomes = sums.y_grid.n_columns, n_rows
    if x.shape[1] != sums.x_grid.n_columns or (0 if y is None else y.shape[1]) != n_outcomes:
        raise ValueError("x and y must have the columns that are summed")
    if stop <= start:
        return 0
    if start < 0 or stop > len(x) or (y is not None and len(y) != len(x)):
        raise IndexError("start and stop must lie within the rows, of which x and y have as many")
    if sums.rows_in_totals + (stop - start) > sums.total_capacity:
        raise OverflowError("the 64-bit totals are full: take them first")
    cdef dpfast_sparse_table table = _describe(x)
    cdef dpfast_table y_table, no_table
    memset(&no_table, 0, sizeof(no_table))
    y_table = no_table
    if n_outcomes > 0:
        y_table = describe_table(y, None)
    cdef _Room room = _Room(sums.x_grid.n_columns, n_outcomes, sums.block_rows)
    cdef dpfast_row_grid no_grid = sums.x_grid
    no_grid.n_columns = 0
    cdef dpfast_sparse_totals totals
    totals.products, totals.stride = &sums.products[0, 0], sums.pack.n_columns
    totals.columns = &sums.columns[0] if sums.with_sums else NULL
    totals.cross_only = sums.first_product > 0
    cdef int status = 0
    with nogil:
        while start < stop and status == 0:
            n_rows = min(sums.block_rows, stop - start)
            if n_outcomes > 0:
                status = dpfast_pack_rows(
                    sums.level, &no_table, &no_grid, &y_table, &sums.y_grid, start, n_rows, stop - start, NULL,
                    &room.scratch, &room.pack)
            if status == 0:
                status = dpfast_add_sparse_rows(
                    sums.level, &table, &sums.x_grid, start, n_rows, room.pack.data, n_outcomes, room.pack.n_columns,
                    &room.of_x, &totals)
            if status == 0:
                sums.rows_in_totals += n_rows
            start += n_rows
    return status
