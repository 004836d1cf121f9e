"""Sums over trajectories of weights, and of weights times returns, at the states each visits, held to two norms.

A trajectory adds a_s = t W_s and b_s = t W_s u_s scale to the states it visits first (W_s integer weights, u_s its
returns in grid units), each rounded to the nearest integer; t is 1 if the norms of both vectors are within their bounds,
else the one factor that brings them there. Norms and t are computed in floating point, to within 2^-31 of themselves for
up to 2^20 states; entries are below 2^31, so they err by less than 2^-20 before they are rounded. Hence
||a|| <= bound_a (1 + 2^-30) + sqrt(n) (1/2 + 2^-20) with n states visited, and b likewise.

The caller has checked this, and that there are so few trajectories that sums stay below 2^63.
"""

from libc.math cimport INFINITY, rint, sqrt
from libc.stdint cimport int32_t, int64_t


def add_diagonal(
        const int32_t[::1] visited, const double[::1] units, const int64_t[::1] ends, Py_ssize_t n,
        const double[::1] weights, double scale, double bound_a, double bound_b, int64_t[:, ::1] totals):
    """totals[:, 0], totals[:, 1] += a, b of n trajectories, the first visits of which end at `ends`."""
    cdef Py_ssize_t i, j, start = 0
    cdef double squared_a, squared_b, a, b, factor
    cdef bint bounded = bound_a < INFINITY or bound_b < INFINITY
    with nogil:
        for j in range(n):
            factor = 1.0
            if bounded:
                squared_a = squared_b = 0.0
                for i in range(start, ends[j]):
                    a = weights[visited[i]]
                    b = a * units[i] * scale
                    squared_a += a * a
                    squared_b += b * b
                if squared_a > bound_a * bound_a:
                    factor = bound_a / sqrt(squared_a)
                if squared_b > bound_b * bound_b:
                    factor = min(factor, bound_b / sqrt(squared_b))
            for i in range(start, ends[j]):
                a = factor * weights[visited[i]]
                totals[visited[i], 0] += <int64_t>rint(a)
                totals[visited[i], 1] += <int64_t>rint(a * units[i] * scale)
            start = ends[j]
