"""The samplers of `dpfast.noise` to be cimported: a pointer becomes an array without a copy, and Python's function draws.

There is no other way to a draw, so that laws, grids and reservations are the same from wherever it is drawn.
"""

from libc.stdint cimport int64_t

import numpy as np

from dpfast.noise import discrete, samplers


cdef int add_gaussian(double scale, object source, double* values, Py_ssize_t n) except -1:
    return _add(samplers.gaussian, scale, source, values, n)


cdef int add_laplace(double scale, object source, double* values, Py_ssize_t n) except -1:
    return _add(samplers.laplace, scale, source, values, n)


cdef int _add(object sampler, double scale, object source, double* values, Py_ssize_t n) except -1:
    # A view of no entries cannot be made.
    if n > 0:
        center = np.asarray(<double[:n]> values)
        center[:] = sampler(scale, n, source, center=center)
    return 0


cdef int add_discrete_gaussian(double scale, object source, int64_t* values, Py_ssize_t n) except -1:
    # Beyond 64 bits a sum is what is left of it modulo 2^64: a function of the released sum, and of no other number.
    if n > 0:
        center = np.asarray(<int64_t[:n]> values)
        center += discrete.discrete_gaussian(scale, n, source)
    return 0
