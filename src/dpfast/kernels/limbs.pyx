"""Two-limb 128-bit integers: their sums, to doubles, correctly rounded, and to cells of a coarser grid and back.

limbs.h has what is done to one number. `split_cells` and `join_cells` are the steps before and after a draw of noise,
as those of draws.pyx are for centres of doubles.
"""

from libc.math cimport ldexp
from libc.stdint cimport int64_t, uint64_t

cdef extern from "limbs.h" nogil:
    int dpfast_limbs_add(int64_t* high, uint64_t* low, int64_t more_high, uint64_t more_low)
    double dpfast_limbs_left_out(uint64_t low, double rounded)
    double dpfast_limbs_split(int64_t* high, uint64_t* low, int shift)


def to_float64(const int64_t[::1] high, const uint64_t[::1] low, double[::1] out):
    """out[:] = high * 2**64 + low, each rounded to the nearest double, ties to even."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(high.shape[0]):
            out[i] = limbs_to_double(high[i], low[i])


def to_float64_pair(const int64_t[::1] high, const uint64_t[::1] low, double[::1] out, double[::1] left_out):
    """As `to_float64`, with what rounding left out; numbers have fewer than 116 bits."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(high.shape[0]):
            out[i] = limbs_to_double(high[i], low[i])
            left_out[i] = dpfast_limbs_left_out(low[i], out[i])


cdef _checked(Py_ssize_t n, set others):
    if others != {n}:
        raise IndexError("all arrays must have one length")


cdef _refuse(bint overflows):
    if overflows:
        raise OverflowError("an exact sum has left the range of 128 bits")


def add(const int64_t[::1] high, const uint64_t[::1] low, const int64_t[::1] more_high, const uint64_t[::1] more_low,
        int64_t[::1] sum_high, uint64_t[::1] sum_low):
    """Fill the sums (out) of two arrays of integers; OverflowError if one leaves 128 bits."""
    cdef Py_ssize_t i, n = high.shape[0]
    cdef bint overflows = False
    _checked(n, {low.shape[0], more_high.shape[0], more_low.shape[0], sum_high.shape[0], sum_low.shape[0]})
    with nogil:
        for i in range(n):
            sum_high[i], sum_low[i] = high[i], low[i]
            overflows |= dpfast_limbs_add(&sum_high[i], &sum_low[i], more_high[i], more_low[i])
    _refuse(overflows)


def split_cells(const int64_t[::1] high, const uint64_t[::1] low, int shift, int64_t[::1] cells_high,
                uint64_t[::1] cells_low, double[::1] fractions):
    """Split integers into the nearest multiples of 2**shift (out, in that unit) and fractions of it in [-1/2, 1/2).

    OverflowError if half a unit more leaves 128 bits. `shift` is from 1 to 62.
    """
    cdef Py_ssize_t i, n = high.shape[0]
    cdef uint64_t half
    cdef bint overflows = False
    _checked(n, {low.shape[0], cells_high.shape[0], cells_low.shape[0], fractions.shape[0]})
    if not 1 <= shift <= 62:
        raise ValueError("shift must be from 1 to 62")
    half = (<uint64_t>1) << (shift - 1)
    with nogil:
        for i in range(n):
            cells_high[i], cells_low[i] = high[i], low[i]
            overflows |= dpfast_limbs_add(&cells_high[i], &cells_low[i], 0, half)
            fractions[i] = dpfast_limbs_split(&cells_high[i], &cells_low[i], shift)
    _refuse(overflows)


def join_cells(const int64_t[::1] high, const uint64_t[::1] low, const double[::1] offsets, int exponent,
               double[::1] released):
    """Fill `released` (out) with (cells + offsets) * 2**exponent, correctly rounded; offsets are integers below 2**62.

    OverflowError if a sum leaves 128 bits.
    """
    cdef Py_ssize_t i, n = high.shape[0]
    cdef bint overflows = False
    cdef int64_t above, whole
    cdef uint64_t below
    _checked(n, {low.shape[0], offsets.shape[0], released.shape[0]})
    with nogil:
        for i in range(n):
            above, below, whole = high[i], low[i], <int64_t>offsets[i]
            overflows |= dpfast_limbs_add(&above, &below, whole >> 63, <uint64_t>whole)
            released[i] = ldexp(limbs_to_double(above, below), exponent)
    _refuse(overflows)
