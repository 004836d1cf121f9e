"""A map of rows: what `RowMapKernel` of row_maps.pyx is to C."""

from dpfast.kernels._gram_c cimport dpfast_table
from dpfast.kernels._row_map_c cimport dpfast_row_map


cdef class RowMapKernel:
    cdef dpfast_row_map map
    cdef const double[::1] low, high, center, inverse_scale
    cdef const double[:, ::1] basis
    cdef int level

    cdef Py_ssize_t workspace(self) noexcept nogil
    cdef bint map_table(
        self, const dpfast_table* table, Py_ssize_t start, Py_ssize_t stop, double* workspace, double* out,
        Py_ssize_t out_stride) noexcept nogil
    cdef Py_ssize_t _staged_rows(self) noexcept nogil
