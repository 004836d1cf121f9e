"""The C functions of gram.h and row_map.h, which are in no library: for the kernels that are compiled with their C files."""

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

cdef extern from "row_map.h":
    ctypedef struct dpfast_row_map:
        Py_ssize_t n_columns
        Py_ssize_t n_together
        double offset
        double unit
        const double* low
        const double* high
        int fills
        double bound
        Py_ssize_t top
        const double* center
        const double* inverse_scale
        const double* basis
        Py_ssize_t basis_stride
        Py_ssize_t n_features

    ctypedef struct dpfast_map_scratch:
        Py_ssize_t block_rows
        double* staging
        double* rows
        double* sizes

    ctypedef struct dpfast_coded_map:
        const dpfast_row_map* map_numbers
        Py_ssize_t n_numbers
        Py_ssize_t n_categories
        double bound
        double squared_absent
        const double* slot_squares
        const double* center
        const double* inverse_scale
        const Py_ssize_t* n_levels
        const Py_ssize_t* first_slots
        Py_ssize_t stride
        const double* of_numbers
        const double* of_slots
        const double* absent
        const double* constant

    ctypedef struct dpfast_coded_scratch:
        dpfast_map_scratch numbers
        double* rows
        const double** slots

    int dpfast_map_coded_rows(
        int level, const dpfast_coded_map* map, const dpfast_table* numbers, const int32_t* const* codes,
        Py_ssize_t start, Py_ssize_t n_rows, const dpfast_coded_scratch* scratch, double* out) nogil
    int dpfast_map_rows(
        int level, const dpfast_row_map* map, const dpfast_table* table, Py_ssize_t start, Py_ssize_t stop,
        const dpfast_map_scratch* scratch, double* out, Py_ssize_t out_stride) nogil


cdef inline int find_codes(list codes, Py_ssize_t n_rows, size_t[::1] addresses) except -1:
    """Write where each category's codes begin, of which there must be one a row; returns 0."""
    cdef const int32_t[::1] of_category
    cdef Py_ssize_t k
    for k in range(len(codes)):
        of_category = codes[k]
        if of_category.shape[0] != n_rows:
            raise IndexError("codes must be as many as the rows")
        addresses[k] = <size_t>&of_category[0] if n_rows > 0 else 0
    return 0
