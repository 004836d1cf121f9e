"""Two-limb 128-bit integers to doubles, correctly rounded: the conversion of `dpfast.kernels.fixed_point`.

limbs.h converts one number.
"""

from libc.stdint cimport int64_t, uint64_t


def to_float64(const int64_t[::1] high, const uint64_t[::1] low, double[::1] out):
    """out[:] = high * 2**64 + low, each rounded to the nearest double, ties to even."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(high.shape[0]):
            out[i] = limbs_to_double(high[i], low[i])
