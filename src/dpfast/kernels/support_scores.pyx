"""Scores of supports in lexicographic order: the arrays around support_scores.c, which has the method.

C-contiguous float64 arrays in, scores into an array of the caller. No GIL: threads score ranges of their own. Shapes,
symmetry and finiteness are checked in dpfast.solvers.best_subset.
"""

import numpy as np
from libc.stdint cimport int64_t


cdef extern from "support_scores.c" nogil:
    ctypedef struct dpfast_supports:
        ptrdiff_t n_features
        ptrdiff_t size
        const double *xx
        const double *xy
        double ridge
        double tolerance

    ptrdiff_t dpfast_supports_workspace(ptrdiff_t size)
    void dpfast_score_supports(const dpfast_supports *problem, int64_t *support, ptrdiff_t n_scores, double *scores,
                               double *workspace)


def score_supports(const double[:, ::1] xx, const double[::1] xy, double ridge, double tolerance,
                   const int64_t[::1] first, double[::1] scores):
    """Fill `scores` (out) with those of the supports from `first` on; NaN where none is certified to the tolerance."""
    cdef Py_ssize_t size = first.shape[0]
    cdef int64_t[::1] indices = np.empty(2 * size, np.int64)
    cdef double[::1] workspace = np.empty(dpfast_supports_workspace(size))
    cdef dpfast_supports problem
    if scores.shape[0] == 0:
        return
    indices[:size] = first
    problem.n_features, problem.size = xy.shape[0], size
    problem.xx, problem.xy = &xx[0, 0], &xy[0]
    problem.ridge, problem.tolerance = ridge, tolerance
    with nogil:
        dpfast_score_supports(&problem, &indices[0], scores.shape[0], &scores[0], &workspace[0])
