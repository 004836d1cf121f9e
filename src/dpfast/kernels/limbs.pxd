# 128-bit integers to doubles, inline; described in limbs.pyx.

from libc.stdint cimport int64_t, uint64_t

cdef extern from "limbs.h":
    double limbs_to_double "dpfast_limbs_to_double" (int64_t high, uint64_t low) noexcept nogil
