"""A map of rows: what `RowMapKernel` of row_maps.pyx is to C."""

from dpfast.kernels._c cimport dpfast_coded_map, dpfast_coded_scratch, dpfast_row_map, dpfast_table


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


cdef class CodedMapKernel:
    cdef dpfast_coded_map map
    cdef dpfast_coded_scratch scratch
    cdef readonly Py_ssize_t block_rows
    cdef int level
    cdef RowMapKernel map_numbers
    cdef const double[::1] slot_squares, center, inverse_scale, absent, constant
    cdef const double[:, ::1] of_numbers, of_slots
    cdef Py_ssize_t[::1] n_levels, first_slots
    cdef size_t[::1] slots
    cdef double[::1] workspace

    cdef size_t[::1] addresses(self, numbers, list codes)
