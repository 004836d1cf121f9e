"""Codes of the norms of rows and sizes of entries, and counts of people by code: the arrays around sizes.c, which has the design.

float64 or float32 arrays of any strides, or ColumnBlocks, in; no GIL, so threads may take ranges of rows. The caller
has validated dtypes (native, aligned) and the half-octaves.
"""

import numpy as np

from libc.stdint cimport int16_t, int64_t

from dpfast.kernels.gram cimport describe_table, dpfast_table

cdef extern from "sizes.c":
    ctypedef struct dpfast_half_octaves:
        int first
        int last

    int dpfast_size_codes(
        const dpfast_table* table, Py_ssize_t n_columns, bint norms, dpfast_half_octaves bins, Py_ssize_t start,
        Py_ssize_t stop, Py_ssize_t block_rows, double* staging, int16_t* codes) nogil

# Doubles that are staged at a time, and at most so many rows: they stay in the cache.
_STAGED_DOUBLES, _STAGED_ROWS = 32768, 64


def codes_of(rows, bins, bint norms, int16_t[:, ::1] codes, Py_ssize_t start, Py_ssize_t stop):
    """Put codes of rows start to stop in `codes`: of the norm of each, or of its entries; whether all were finite."""
    cdef Py_ssize_t n_columns = rows.shape[1], width = 1 if norms else n_columns
    if not 0 <= start <= stop <= len(rows) or codes.shape[0] < stop - start or codes.shape[1] != width:
        raise IndexError("start and stop must lie within the rows, and there be room for a code of each size")
    if start == stop or n_columns == 0:
        return True
    cdef dpfast_table table = describe_table(rows, None)
    cdef dpfast_half_octaves octaves
    octaves.first, octaves.last = bins.first, bins.last
    cdef Py_ssize_t block_rows = max(1, min(_STAGED_ROWS, _STAGED_DOUBLES // n_columns))
    cdef double[::1] staging = np.empty(block_rows * n_columns)
    cdef bint all_finite
    with nogil:
        all_finite = dpfast_size_codes(
            &table, n_columns, norms, octaves, start, stop, block_rows, &staging[0], &codes[0, 0])
    return all_finite


def count(const int16_t[:, ::1] codes, Py_ssize_t n_rows, Py_ssize_t largest_code, int64_t[:, ::1] counts):
    """counts[j, largest_code + codes[:n_rows, j]] += 1; codes are at most the largest in size."""
    cdef Py_ssize_t i, j, n_histograms = codes.shape[1], n_bins = 2 * largest_code + 1
    if n_rows > codes.shape[0] or counts.shape[0] != n_histograms or counts.shape[1] != n_bins:
        raise ValueError("there must be so many rows, and a histogram of all codes for each column")
    cdef int code
    with nogil:
        for i in range(n_rows):
            for j in range(n_histograms):
                code = codes[i, j]
                if -largest_code <= code <= largest_code:
                    counts[j, largest_code + code] += 1


def keep_extremes(
        const int16_t[:, ::1] codes, const int64_t[::1] owners, Py_ssize_t start, Py_ssize_t stop,
        int16_t[:, ::1] largest, int16_t[:, ::1] least):
    """Raise `largest` of the owners of rows start to stop, from -1 on none, to the codes of these, and lower `least`."""
    cdef Py_ssize_t i, j, n_histograms = codes.shape[1]
    if not 0 <= start <= stop <= owners.shape[0] or codes.shape[0] < stop - start:
        raise IndexError("start and stop must lie within the owners, with codes for each")
    if largest.shape[1] != n_histograms or least.shape[0] != largest.shape[0] or least.shape[1] != n_histograms:
        raise ValueError("there must be a column for each size")
    cdef int64_t owner
    with nogil:
        for i in range(start, stop):
            owner = owners[i]
            if not 0 <= owner < largest.shape[0]:
                continue
            for j in range(n_histograms):
                largest[owner, j] = max(largest[owner, j], codes[i - start, j])
                least[owner, j] = min(least[owner, j], codes[i - start, j])
