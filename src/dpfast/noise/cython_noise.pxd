"""Noise for loops in Cython: numbers in place, drawn by `dpfast.noise` as it draws for Python.

`values` are `n` exact numbers, replaced by what may be released: each plus a draw of its own. `source` is a
`dpfast.noise.BitSource`. It marks the reservation that pays for its noise before the first bit, so the interpreter's
lock is held. On an error, ValueError or TypeError as in Python, `values` are left as they were: not private.
"""

from libc.stdint cimport int64_t


cdef int add_gaussian(double scale, object source, double* values, Py_ssize_t n) except -1
cdef int add_laplace(double scale, object source, double* values, Py_ssize_t n) except -1
cdef int add_discrete_gaussian(double scale, object source, int64_t* values, Py_ssize_t n) except -1
