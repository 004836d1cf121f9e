"""Exact sums of products of bounded rows, by one thread: what `GramSums` and `GramTotals` of gram.pyx are to C.

`describe_table` says where the rows of an array lie; `add_rows` adds a range of them, without the GIL.
"""

from libc.stdint cimport int64_t, uint64_t

from dpfast.kernels._c cimport dpfast_lanes, dpfast_pack, dpfast_pack_scratch, dpfast_row_grid, dpfast_table
from dpfast.kernels.blas cimport blas_products


cdef dpfast_table describe_table(object array, const int64_t[::1] rows)


cdef class GramSums:
    cdef dpfast_row_grid x_grid, y_grid
    cdef dpfast_pack pack
    cdef dpfast_pack_scratch scratch
    cdef readonly Py_ssize_t block_rows
    cdef Py_ssize_t rows_in_block, rows_per_block, total_capacity, first_product
    cdef readonly int level
    cdef bint use_blas, with_sums
    cdef const blas_products* blas
    cdef dpfast_lanes lanes
    cdef bint has_lanes
    cdef Py_ssize_t rows_in_a_lane
    cdef double[::1] lane_rows, lane_group, lane_row, lane_products, lane_columns
    cdef double[::1] pack_buffer, row_buffer, x_staging, y_staging, block
    cdef int64_t[:, ::1] products
    cdef int64_t[::1] columns
    cdef readonly Py_ssize_t rows_in_totals

    cdef int add_rows(
        self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef int _add_to_lanes(
        self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void _flush_lanes(self) noexcept nogil
    cdef void _add_block(self, Py_ssize_t n_rows) noexcept nogil
    cdef void _add_block_by_blas(self, Py_ssize_t n_rows) noexcept nogil
    cdef void _flush_block(self) noexcept nogil
    cdef void _move_to(self, GramTotals totals) noexcept nogil
    cdef _allocate(self)
    cdef _allocate_lanes(self, Py_ssize_t n_columns)


cdef class GramTotals:
    cdef readonly object n_rows, squared_bound
    cdef Py_ssize_t n_x, n_y
    cdef int64_t[:, ::1] product_high
    cdef uint64_t[:, ::1] product_low
    cdef int64_t[::1] column_high
    cdef uint64_t[::1] column_low

    cdef _n_rows_with(self, n_more)
    cdef void _add(self, GramTotals other) noexcept
