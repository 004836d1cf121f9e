"""Exact sums of products of rows that are kept by their entries, as scipy's CSR matrices are: no dense row is made.

An entry is rounded as those of dense rows are, and zeros add nothing to a product nor to a squared length, so that sums
of integers over the entries alone are those of the dense rows. A row whose columns ascend, and that is within its
bound, is added entry by entry to the 64-bit totals of `GramSums`, with the capacity that these have. Any other row, one
whose columns repeat or are out of order, that is beyond its bound, or not finite, is written out first, each cell the
sum of its entries in the order of storage, and passes through what dense rows do (gram.c); what is not zero then is added. So
how a row is stored decides on the time it takes, and on no bit.

Every place, and every column, is read once and checked before anything is read or written by it, as they may be
another thread's to change. One thread calls, with sums of its own. Not for other code: it reads Python objects.
"""

import numpy as np

from dpfast.kernels.gram import aligned_zeros

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from dpfast.kernels._gram_c cimport dpfast_pack, dpfast_pack_rows, dpfast_pack_scratch, dpfast_row_grid, dpfast_table

from dpfast.kernels.gram cimport GramSums, describe_table

cdef enum:
    OUTSIDE_ITS_TABLE = 3

OUTSIDE = OUTSIDE_ITS_TABLE  # a status beside those of GramSums.add: entries do not lie within their table

ctypedef fused index_t:
    int32_t
    int64_t

ctypedef fused value_t:
    float
    double

# A double plus this constant has no fraction bits left: that of gram.c.
cdef double _ROUND_TO_INTEGER = 6755399441055744.0

cdef struct Room:
    # The entries of a row within its bound, and how many there are.
    int64_t* units
    Py_ssize_t* columns
    Py_ssize_t n_entries
    # A row written out, zeros between rows, and rounded.
    char* written
    dpfast_pack packed
    dpfast_pack_scratch scratch


cdef class Outcomes:
    """Rows of outcomes, rounded a block at a time, row after row."""

    cdef dpfast_table table, no_table
    cdef dpfast_row_grid grid, no_grid
    cdef dpfast_pack pack
    cdef dpfast_pack_scratch scratch
    cdef double[::1] rows, row, staging

    def __init__(self, GramSums sums not None, y):
        cdef Py_ssize_t n_columns = sums.y_grid.n_columns, padded = (n_columns + 7) // 8 * 8
        memset(&self.no_table, 0, sizeof(self.no_table))
        self.table, self.grid, self.no_grid = self.no_table, sums.y_grid, sums.x_grid
        if n_columns > 0:
            self.table = describe_table(y, None)
        self.no_grid.n_columns = 0
        self.rows = aligned_zeros(sums.block_rows * padded + 1)
        self.row, self.staging = aligned_zeros(padded + 8), np.empty(sums.block_rows * n_columns + 1)
        self.pack.data, self.pack.panel_width, self.pack.n_columns = &self.rows[0], padded, padded
        self.pack.panel_stride = 0
        self.scratch.row, self.scratch.y_staging = &self.row[0], &self.staging[0]
        self.scratch.x_staging = NULL

    cdef int read(self, int level, Py_ssize_t start, Py_ssize_t n_rows, Py_ssize_t n_available) noexcept nogil:
        if self.grid.n_columns == 0:
            return 0
        return dpfast_pack_rows(
            level, &self.no_table, &self.no_grid, &self.table, &self.grid, start, n_rows, n_available, NULL,
            &self.scratch, &self.pack)


cdef int _read_row(
        const index_t* indices, const value_t* data, Py_ssize_t first, Py_ssize_t last, const dpfast_row_grid* grid,
        int level, Room* room) noexcept nogil:
    """Read the rounded entries of a row; returns a status."""
    cdef Py_ssize_t k, column, previous = -1, n_entries = 0
    cdef double unit, squared = 0.0
    for k in range(first, last):
        column = <Py_ssize_t>indices[k]
        if column <= previous or column >= grid.n_columns:
            break
        unit = (<double>data[k] * grid.scale + _ROUND_TO_INTEGER) - _ROUND_TO_INTEGER
        squared += unit * unit
        # What is beyond the bound is no integer of 64 bits, perhaps, and not used.
        if not squared <= grid.squared_bound:
            break
        room.units[n_entries], room.columns[n_entries] = <int64_t>unit, column
        n_entries += 1
        previous = column
    else:
        room.n_entries = n_entries
        return 0
    return _write_row(indices, data, first, last, grid, level, room)


cdef int _write_row(
        const index_t* indices, const value_t* data, Py_ssize_t first, Py_ssize_t last, const dpfast_row_grid* grid,
        int level, Room* room) noexcept nogil:
    """Read the rounded entries of a row that is written out first; returns a status."""
    cdef value_t* written = <value_t*>room.written
    cdef Py_ssize_t k, column, n_entries = 0
    cdef int status = 0
    cdef dpfast_table table, no_table
    cdef dpfast_row_grid no_grid = grid[0]
    memset(&no_table, 0, sizeof(no_table))
    table = no_table
    table.data, table.is_float32 = room.written, sizeof(value_t) == sizeof(float)
    table.column_stride, table.row_stride = sizeof(value_t), sizeof(value_t) * grid.n_columns
    no_grid.n_columns = 0
    for k in range(first, last):
        column = <Py_ssize_t>indices[k]
        if column < 0 or column >= grid.n_columns:
            status = OUTSIDE_ITS_TABLE
            break
        written[column] += data[k]
    if status == 0:
        status = dpfast_pack_rows(
            level, &table, grid, &no_table, &no_grid, 0, 1, 1, NULL, &room.scratch, &room.packed)
    memset(written, 0, sizeof(value_t) * grid.n_columns)
    for column in range(grid.n_columns if status == 0 else 0):
        if room.packed.data[column] != 0.0:
            room.units[n_entries], room.columns[n_entries] = <int64_t>room.packed.data[column], column
            n_entries += 1
    room.n_entries = n_entries
    return status


cdef inline void _add_row(GramSums sums, const Room* room, const double* outcomes) noexcept nogil:
    cdef Py_ssize_t i, j, n = room.n_entries, d = sums.x_grid.n_columns, n_outcomes = sums.y_grid.n_columns
    cdef const int64_t* units = room.units
    cdef const Py_ssize_t* columns = room.columns
    cdef int64_t unit
    cdef int64_t* totals
    for i in range(n):
        unit, totals = units[i], &sums.products[columns[i], 0]
        for j in range(i if sums.first_product == 0 else n, n):
            totals[columns[j]] += unit * units[j]
        for j in range(n_outcomes):
            totals[d + j] += unit * <int64_t>outcomes[j]
    if sums.with_sums:
        for i in range(n):
            sums.columns[columns[i]] += units[i]
        for j in range(n_outcomes):
            sums.columns[d + j] += <int64_t>outcomes[j]


cdef int _add_rows(
        GramSums sums, const int64_t[::1] indptr, const index_t[::1] indices, const value_t[::1] data,
        Outcomes outcomes, Py_ssize_t start, Py_ssize_t stop, Room* room) noexcept nogil:
    cdef Py_ssize_t r, n_rows, begin, end = indptr[start]
    cdef Py_ssize_t n_stored = min(indices.shape[0], data.shape[0])
    cdef int status
    while start < stop:
        n_rows = min(sums.block_rows, stop - start)
        status = outcomes.read(sums.level, start, n_rows, stop - start)
        for r in range(n_rows if status == 0 else 0):
            begin, end = end, indptr[start + r + 1]
            if not 0 <= begin <= end <= n_stored:
                return OUTSIDE_ITS_TABLE
            room.n_entries = 0
            if end > begin:
                status = _read_row(&indices[0], &data[0], begin, end, &sums.x_grid, sums.level, room)
            if status != 0:
                return status
            _add_row(sums, room, outcomes.pack.data + r * outcomes.pack.n_columns)
        if status != 0:
            return status
        sums.rows_in_totals += n_rows
        start += n_rows
    return 0


cdef int _add_range(
        GramSums sums, const int64_t[::1] indptr, const index_t[::1] indices, const value_t[::1] data,
        Outcomes outcomes, Py_ssize_t start, Py_ssize_t stop, Room* room):
    cdef int status
    with nogil:
        status = _add_rows(sums, indptr, indices, data, outcomes, start, stop, room)
    return status


def add_sparse(GramSums sums not None, x, y, Py_ssize_t start, Py_ssize_t stop):
    """Add rows start to stop of a SparseBlock of doubles or floats and of y, an array or ColumnBlock; returns a status.

    After a status other than PACKED the sums hold a part of the rows and must be thrown away.
    """
    cdef Py_ssize_t d = sums.x_grid.n_columns, padded = (d + 7) // 8 * 8
    if x.shape[1] != d or (0 if y is None else y.shape[1]) != sums.y_grid.n_columns:
        raise ValueError("x and y must have the columns that are summed")
    if stop <= start:
        return 0
    if start < 0 or stop > len(x) or (y is not None and len(y) != len(x)):
        raise IndexError("start and stop must lie within the rows, of which x and y have as many")
    if sums.rows_in_totals + (stop - start) > sums.total_capacity:
        raise OverflowError("the 64-bit totals are full: take them first")
    cdef int64_t[::1] units = np.empty(d, np.int64)
    cdef Py_ssize_t[::1] columns = np.empty(d, np.intp)
    cdef double[::1] written = np.zeros(d), packed = np.empty(padded), row = aligned_zeros(padded + 8)
    cdef double[::1] staging = np.empty(d)
    cdef Room room
    memset(&room, 0, sizeof(room))
    room.units, room.columns, room.written = &units[0], &columns[0], <char*>&written[0]
    room.packed.data, room.packed.panel_width, room.packed.n_columns = &packed[0], padded, padded
    room.scratch.row, room.scratch.x_staging = &row[0], &staging[0]
    outcomes = Outcomes(sums, y)
    cdef bint is_narrow = x.indices.dtype.itemsize == 4, is_float32 = x.data.dtype.itemsize == 4
    if is_narrow and is_float32:
        return _add_range[int32_t, float](sums, x.indptr, x.indices, x.data, outcomes, start, stop, &room)
    if is_narrow:
        return _add_range[int32_t, double](sums, x.indptr, x.indices, x.data, outcomes, start, stop, &room)
    if is_float32:
        return _add_range[int64_t, float](sums, x.indptr, x.indices, x.data, outcomes, start, stop, &room)
    return _add_range[int64_t, double](sums, x.indptr, x.indices, x.data, outcomes, start, stop, &room)
