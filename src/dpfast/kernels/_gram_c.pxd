"""The C functions of gram.h, which are in no library: for the kernels that are compiled with gram.c."""

from libc.stdint cimport int32_t, int64_t

cdef extern from "gram.h":
    ctypedef struct dpfast_table:
        const char* data
        const char* const* columns
        Py_ssize_t row_stride
        Py_ssize_t column_stride
        const int64_t* rows
        int is_float32
        const char* end

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

    ctypedef struct dpfast_beside:
        const double* squares
        unsigned char* beyond

    Py_ssize_t dpfast_panel_width(int level) nogil
    int dpfast_pack_rows(
        int level, const dpfast_table* x, const dpfast_row_grid* x_grid, const dpfast_table* y,
        const dpfast_row_grid* y_grid, Py_ssize_t start, Py_ssize_t n_rows, Py_ssize_t n_available,
        const dpfast_beside* beside, const dpfast_pack_scratch* scratch, const dpfast_pack* pack) nogil
    void dpfast_add_products(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, Py_ssize_t n_features, Py_ssize_t first,
        int64_t* totals) nogil
    void dpfast_add_products_in_doubles(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, Py_ssize_t n_features, double* block,
        bint is_new) nogil
    void dpfast_multiply_rows(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, Py_ssize_t first, Py_ssize_t end, Py_ssize_t stride,
        double* out) nogil
    void dpfast_add_block(
        const double* block, Py_ssize_t n_features, Py_ssize_t first, Py_ssize_t n_columns, Py_ssize_t stride,
        int64_t* totals) nogil
    void dpfast_add_by_slot(
        int level, const dpfast_pack* pack, Py_ssize_t n_rows, const int32_t* slots, double* sums) nogil
    void dpfast_add_columns(const dpfast_pack* pack, Py_ssize_t n_rows, int64_t* totals) nogil

cdef extern from "lane_gram.h":
    ctypedef struct dpfast_lanes:
        Py_ssize_t n_columns
        double* rows
        double* group
        double* row
        double* rounded
        double* products
        double* columns

    Py_ssize_t dpfast_lane_products(Py_ssize_t n_features, Py_ssize_t n_columns) nogil
    int dpfast_pack_lanes(
        int level, const dpfast_table* x, const dpfast_row_grid* x_grid, const dpfast_table* y,
        const dpfast_row_grid* y_grid, Py_ssize_t start, Py_ssize_t n_rows, const dpfast_lanes* lanes) nogil
    void dpfast_add_lanes(
        int level, const dpfast_lanes* lanes, Py_ssize_t n_rows, Py_ssize_t n_features, Py_ssize_t first,
        const dpfast_table* x, const dpfast_table* y, Py_ssize_t next, Py_ssize_t n_next) nogil
    void dpfast_take_lanes(
        int level, const dpfast_lanes* lanes, Py_ssize_t n_features, Py_ssize_t first, Py_ssize_t stride,
        int64_t* totals, int64_t* columns) nogil
