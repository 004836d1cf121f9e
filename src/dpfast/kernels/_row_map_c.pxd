"""The C functions of row_map.h, which are in no library: for the kernels that are compiled with row_map.c."""

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

    int dpfast_map_rows(
        int level, const dpfast_row_map* map, const dpfast_table* table, Py_ssize_t start, Py_ssize_t stop,
        const dpfast_map_scratch* scratch, double* out, Py_ssize_t out_stride) nogil
