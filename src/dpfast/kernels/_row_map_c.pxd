"""The C functions of row_map.h, which are in no library: for the kernels that are compiled with row_map.c."""

from libc.stdint cimport int32_t

from dpfast.kernels._gram_c cimport dpfast_table

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
