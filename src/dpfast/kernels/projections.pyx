"""Points of L1 balls, Euclidean balls and spheres: the nearest, and those of least quadratics.

C-contiguous float64 arrays in, outputs and workspace allocated by the caller. No GIL: threads may solve ranges of rows of
the same arrays. Shapes, finiteness, signs and radii are checked in dpfast.solvers.projection and dpfast.solvers.constraints.
"""

from libc.math cimport fabs

import numpy as np

# Euclidean projection onto L1 balls, a vector each, in expected linear time.
#
# Inside the ball the projection of y is y itself. Else it is max(|y_i| - t, 0) with the signs of y, where t is the root of
# sum max(|y_i| - t, 0) = R: that of |y| onto a simplex. Shifting |y| by its largest entry shifts
# t by the same: then t lies in [-R, 0), only entries above -R count, and their differences from the largest, which rounding
# leaves alone up to R 2^-53, are all there is to know about |y|. So the result is as good for entries of 1e300 as for 1.
#
# The entries above t are found as in Condat (2016, figure 2): one pass keeps candidates above a lower bound of t that grows
# as it goes, then Michelot's passes drop what lies below the mean of the candidates that would remain, until nothing does.
# The sums that decide carry their rounding errors along: over n entries t is good to some R 2^-53.
#
# Condat, L. (2016). Fast projection onto the simplex and the l1 ball. Mathematical Programming 158, 575-585.

cdef inline void add_exactly(double* total, double* rest, double x) noexcept nogil:
    """Error-free sum (Knuth): total + rest gains x."""
    cdef double before = total[0], after = before + x, added = after - before
    total[0] = after
    rest[0] += (before - (after - added)) + (x - added)


cdef double threshold(const double* y, Py_ssize_t n, double top, double radius, double* kept) noexcept nogil:
    """t of the shifted problem: sum max(|y_i| - top - t, 0) = radius."""
    cdef double z, bound = -radius, total, rest
    cdef Py_ssize_t i, first = 0, end = 0, before
    for i in range(n):
        z = fabs(y[i]) - top
        if z > bound and z > -radius:
            kept[end] = z
            end += 1
            bound += (z - bound) / (end - first)
            if end == 1 or bound <= z - radius:
                # Those before may all be below t: they wait in front, to be tried again.
                first = end - 1
                bound = z - radius
    for i in range(first - 1, -1, -1):
        if kept[i] > bound:
            first -= 1
            kept[first], kept[i] = kept[i], kept[first]
            bound += (kept[first] - bound) / (end - first)
    while True:
        total, rest = -radius, 0.0
        for i in range(first, end):
            add_exactly(&total, &rest, kept[i])
        bound = (total + rest) / (end - first)
        before = end
        end = first
        for i in range(first, before):
            if kept[i] > bound:
                kept[end] = kept[i]
                end += 1
        if end == before:
            return bound


cdef void project_one(const double* y, Py_ssize_t n, double radius, double* kept, double* x) noexcept nogil:
    cdef double total = 0.0, rest = 0.0, top = fabs(y[0]), t, z
    cdef Py_ssize_t i
    for i in range(n):
        z = fabs(y[i])
        top = max(top, z)
        add_exactly(&total, &rest, z)
    if total + rest <= radius:
        for i in range(n):
            x[i] = y[i]
        return
    t = threshold(y, n, top, radius, kept)
    for i in range(n):
        z = max((fabs(y[i]) - top) - t, 0.0)
        x[i] = -z if y[i] < 0.0 else z


def project(const double[:, ::1] points, double radius, Py_ssize_t start, Py_ssize_t stop, double[::1] workspace,
            double[:, ::1] out):
    """Fill rows [start, stop) of `out`; the workspace has as many entries as a row."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(start, stop):
            project_one(&points[i, 0], points.shape[1], radius, &workspace[0], &out[i, 0])


# Quadratics over balls and spheres in their eigenbases, a row each: the arrays around secular.c, which has the method.
# An array of one row among the inputs belongs to every problem.

cdef extern from "secular.h" nogil:
    ptrdiff_t dpfast_secular_workspace(ptrdiff_t n_terms)
    void dpfast_solve_quadratics(const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace,
                                 int level)


cdef ptrdiff_t quadratics_workspace(ptrdiff_t n_terms) noexcept nogil:
    return dpfast_secular_workspace(n_terms)


cdef void solve_range(const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace,
                      int level) noexcept nogil:
    dpfast_solve_quadratics(problems, start, stop, workspace, level)


def solve_quadratics(const double[:, ::1] eigenvalues, const double[:, ::1] coefficients, const double[::1] radii,
                     bint sphere, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] solutions, double[::1] multipliers,
                     int[::1] evaluations=None, int level=-1):
    """Fill rows [start, stop) of `solutions` and `multipliers` (out), and of `evaluations` (out) if it is given.

    `evaluations` counts those of the secular function. `level` selects a vector level of cpu.h; a negative one for the
    best available.
    """
    cdef Py_ssize_t n_terms = solutions.shape[1]
    cdef double[::1] workspace
    cdef dpfast_quadratics problems
    if start >= stop:
        return
    workspace = np.empty(quadratics_workspace(n_terms))
    problems.n_terms = n_terms
    problems.eigenvalues = &eigenvalues[0, 0]
    problems.coefficients = &coefficients[0, 0]
    problems.radii = &radii[0]
    problems.eigenvalue_stride = n_terms if eigenvalues.shape[0] > 1 else 0
    problems.coefficient_stride = n_terms if coefficients.shape[0] > 1 else 0
    problems.radius_stride = 1 if radii.shape[0] > 1 else 0
    problems.sphere = sphere
    problems.solutions = &solutions[0, 0]
    problems.multipliers = &multipliers[0]
    problems.evaluations = NULL if evaluations is None else &evaluations[0]
    with nogil:
        solve_range(&problems, start, stop, &workspace[0], level)
