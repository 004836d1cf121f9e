"""What other kernels build on: the C functions of gram.h, and the sums of one thread."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "gram.h":
    ctypedef struct dpfast_table:
        const char* data
        const char* const* columns
        Py_ssize_t row_stride
        Py_ssize_t column_stride
        const int64_t* rows
        int is_float32

    ctypedef struct dpfast_row_grid:
        Py_ssize_t n_columns
        double scale
        double bound
        double squared_bound

    ctypedef struct dpfast_pack:
        double* data
        Py_ssize_t panel_width
        Py_ssize_t panel_stride
        Py_ssize_t n_columns

    ctypedef struct dpfast_pack_scratch:
        double* row
        double* x_staging
        double* y_staging

    Py_ssize_t dpfast_panel_width(int level) nogil
    int dpfast_pack_rows(
        int level, const dpfast_table* x, const dpfast_row_grid* x_grid, const dpfast_table* y,
        const dpfast_row_grid* y_grid, Py_ssize_t start, Py_ssize_t n_rows, Py_ssize_t n_available,
        const dpfast_pack_scratch* scratch, const dpfast_pack* pack) nogil
    void dpfast_add_products(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, Py_ssize_t n_features, Py_ssize_t first,
        int64_t* totals) nogil
    void dpfast_multiply_rows(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, Py_ssize_t first, Py_ssize_t end, double* out) nogil
    void dpfast_add_block(
        const double* block, Py_ssize_t n_features, Py_ssize_t first, Py_ssize_t n_columns, Py_ssize_t stride,
        int64_t* totals) nogil
    void dpfast_add_columns(const dpfast_pack* pack, Py_ssize_t n_rows, int64_t* totals) nogil


cdef dpfast_table describe_table(object array, const int64_t[::1] rows)


cdef class GramSums:
    cdef dpfast_row_grid x_grid, y_grid
    cdef dpfast_pack pack
    cdef dpfast_pack_scratch scratch
    cdef readonly Py_ssize_t block_rows
    cdef Py_ssize_t rows_in_block, rows_per_block, total_capacity, first_product
    cdef readonly int level
    cdef bint use_blas, with_sums
    cdef double[::1] pack_buffer, row_buffer, x_staging, y_staging, block
    cdef int64_t[:, ::1] products
    cdef int64_t[::1] columns
    cdef readonly Py_ssize_t rows_in_totals

    cdef int add_rows(
        self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void _add_block(self, Py_ssize_t n_rows) noexcept nogil
    cdef void _add_block_by_blas(self, Py_ssize_t n_rows) noexcept nogil
    cdef void _flush_block(self) noexcept nogil
    cdef void _move_to(self, GramTotals totals) noexcept nogil
    cdef _allocate(self)


cdef class GramTotals:
    cdef readonly object n_rows, squared_bound
    cdef Py_ssize_t n_x, n_y
    cdef int64_t[:, ::1] product_high
    cdef uint64_t[:, ::1] product_low
    cdef int64_t[::1] column_high
    cdef uint64_t[::1] column_low

    cdef _n_rows_with(self, n_more)
    cdef void _add(self, GramTotals other) noexcept
