"""Generalised linear losses, and their sums over ranges of rows: the arrays around generalised_linear.c, the Hessian.

The Hessian is the product of rows scaled by the roots of their weights with themselves, blocks of rows that stay in the
cache given to BLAS. C-contiguous float64 arrays in, outputs allocated by the caller; no GIL, so threads take ranges of
rows. The caller holds BLAS to one thread; shapes, finiteness and labels are checked in dpfast.solvers.smooth_convex.
"""

import numpy as np

from dpfast.kernels.blas cimport blas_products, import_products

cdef extern from "generalised_linear.c" nogil:
    ctypedef enum dpfast_loss_kind:
        DPFAST_SQUARED
        DPFAST_LOGISTIC
        DPFAST_CAPPED_LOGISTIC
        DPFAST_SMOOTHED_HINGE
        DPFAST_SMOOTHED_HUBER
        DPFAST_SMOOTHED_QUANTILE
        DPFAST_POISSON

    ctypedef struct dpfast_loss:
        dpfast_loss_kind kind
        double width
        double threshold
        double start
        double shift

    ctypedef struct dpfast_observations:
        const double *rows
        const double *outcomes
        const double *weights
        ptrdiff_t n_features

    void dpfast_local_losses(const dpfast_loss *loss, const double *z, const double *y, ptrdiff_t n, double *values,
                             double *slopes, double *curvatures)
    void dpfast_add_model(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                          ptrdiff_t start, ptrdiff_t stop, double *value, double *gradient, double *scaled, int level)
    void dpfast_precise_gradient(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                                 ptrdiff_t start, ptrdiff_t stop, double *gradient, double *workspace, int level)

_KINDS = {
    "squared": DPFAST_SQUARED,
    "logistic": DPFAST_LOGISTIC,
    "capped_logistic": DPFAST_CAPPED_LOGISTIC,
    "smoothed_hinge": DPFAST_SMOOTHED_HINGE,
    "smoothed_huber": DPFAST_SMOOTHED_HUBER,
    "smoothed_quantile": DPFAST_SMOOTHED_QUANTILE,
    "poisson": DPFAST_POISSON,
}

cdef enum:
    BLOCK_DOUBLES = 32768


def local_losses(const double[::1] z, const double[::1] y, double[:, ::1] out, *, kind, width=1.0, threshold=1.0,
                 start=0.0, shift=0.0):
    """Write losses of predictions z and outcomes y, and their first and second derivatives in z, to the rows of `out`.

    `kind` and parameters are as for LossSums.
    """
    cdef dpfast_loss loss = dpfast_loss(_KINDS[kind], width, threshold, start, shift)
    if z.shape[0]:
        with nogil:
            dpfast_local_losses(&loss, &z[0], &y[0], z.shape[0], &out[0, 0], &out[1, 0], &out[2, 0])


cdef class LossSums:
    """Sums over rows of a table, C-contiguous, and their outcomes.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    outcomes : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,), optional
        Of 0 or more, of the rows' losses; None for 1.
    kind : str
        That of a loss of solvers/losses.py.
    width, threshold, start, shift : float
        Parameters of the loss; ignored by those that have none.
    level : int, default -1
        A vector level of cpu.h; a negative one for the best available.
    """

    cdef dpfast_observations observations
    cdef dpfast_loss loss
    cdef const double[:, ::1] rows
    cdef const double[::1] outcomes
    cdef const double[::1] weights
    cdef const blas_products* blas
    cdef int level

    def __init__(self, const double[:, ::1] rows, const double[::1] outcomes, const double[::1] weights=None, *, kind,
                 width=1.0, threshold=1.0, start=0.0, shift=0.0, level=-1):
        self.rows, self.outcomes, self.weights, self.level = rows, outcomes, weights, level
        self.blas = import_products()
        self.observations.rows, self.observations.outcomes = &rows[0, 0], &outcomes[0]
        if weights is not None:
            self.observations.weights = &weights[0]
        self.observations.n_features = rows.shape[1]
        self.loss = dpfast_loss(_KINDS[kind], width, threshold, start, shift)

    def model(self, const double[::1] theta, Py_ssize_t start, Py_ssize_t stop, double[::1] gradient,
              double[:, ::1] hessian):
        """Return the value over rows [start, stop); write gradient and Hessian, its upper triangle alone."""
        cdef Py_ssize_t n = theta.shape[0], first, last, block = max(1, BLOCK_DOUBLES // n)
        cdef double[::1] scaled = np.empty(block * n)
        cdef double value = 0.0
        gradient[:] = 0.0
        hessian[:] = 0.0
        with nogil:
            first = start
            while first < stop:
                last = min(first + block, stop)
                dpfast_add_model(&self.observations, &self.loss, &theta[0], first, last, &value, &gradient[0],
                                 &scaled[0], self.level)
                # hessian = np.triu(scaled.T @ scaled + hessian)
                self.blas.add_syrk_upper(&scaled[0], last - first, n, n, 1.0, &hessian[0, 0], n)
                first = last
        return value

    def precise_gradient(self, const double[:, ::1] theta, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] gradient):
        """Write the gradient over rows [start, stop); vectors are sums of two rows."""
        cdef double[::1] workspace = np.empty(2 * theta.shape[1])
        with nogil:
            dpfast_precise_gradient(&self.observations, &self.loss, &theta[0, 0], start, stop, &gradient[0, 0],
                                    &workspace[0], self.level)
