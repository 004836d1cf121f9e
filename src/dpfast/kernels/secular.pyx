"""Quadratics over balls and spheres in their eigenbases, a row each: the arrays around secular.c, which has the method.

C-contiguous float64 arrays in, outputs allocated by the caller. An array of one row among the inputs belongs to every
problem. No GIL: threads may solve ranges of rows of the same arrays. Shapes, finiteness and signs are checked in
dpfast.solvers.projection.
"""

import numpy as np


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

    `evaluations` counts those of the secular function. `level` asks for a vector level of cpu.h; a negative one for the
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
