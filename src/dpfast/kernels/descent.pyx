"""Steps of descents, and the losses that they descend on, summed in twice the working precision (pairs.h)."""

import numpy as np

from dpfast.kernels.blas cimport blas_products, import_products

# Proximal gradient steps on a quadratic in twice the working precision: the arrays around quadratic_step.c.
#
# Vectors are C-contiguous float64 arrays of shape (2, n), unevaluated sums of their rows. No GIL: other threads go on.
# Shapes, finiteness, symmetry and ranges are checked in dpfast.solvers.constraints.

cdef extern from "quadratic_step.c" nogil:
    ctypedef enum dpfast_set:
        DPFAST_WHOLE_SPACE
        DPFAST_BOX
        DPFAST_L2_BALL
        DPFAST_L1_BALL

    ctypedef struct dpfast_quadratic:
        ptrdiff_t n, n_columns
        const double *matrix
        const double *transposed
        double diagonal[2]
        const double *linear
        double weight
        dpfast_set set
        double radius
        const double *low
        const double *high
        double step

    ctypedef struct dpfast_vector:
        double *high
        double *low

    ptrdiff_t dpfast_step_workspace(const dpfast_quadratic *q)
    void dpfast_quadratic_gradient(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, double *workspace,
                                   int level)
    int dpfast_proximal_step(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace,
                             int level)
    int dpfast_step_along(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, dpfast_vector next,
                          int level)
    void dpfast_extrapolate(double momentum, ptrdiff_t n, dpfast_vector x, dpfast_vector last, dpfast_vector ahead)
    void dpfast_add_vectors(ptrdiff_t n, dpfast_vector a, dpfast_vector b, dpfast_vector total)
    void dpfast_accelerate(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x,
                           dpfast_vector last, double *workspace, int level)


cdef dpfast_vector vector(const double[:, ::1] x) noexcept:
    cdef dpfast_vector parts
    parts.high, parts.low = <double*> &x[0, 0], <double*> &x[1, 0]
    return parts


cdef class ProximalSteps:
    """Steps for a smooth function + weight ||x||_1 over a set, along gradients that are given.

    Parameters
    ----------
    n : int
        Dimension.
    weight, step : float
    set_name : {"whole_space", "box", "l2_ball", "l1_ball"}
    radius : float
        Of a ball.
    bounds : tuple of two ndarrays of shape (n,), or None
        Of a box.
    level : int, default -1
        A vector level of cpu.h; a negative one for the best available.
    """

    cdef dpfast_quadratic q
    cdef const double[::1] low, high
    cdef int level

    def __init__(self, Py_ssize_t n, *, weight, step, set_name, radius=0.0, bounds=None, level=-1):
        self.level = level
        self.q.n, self.q.n_columns, self.q.matrix, self.q.transposed, self.q.linear = n, 0, NULL, NULL, NULL
        self.q.weight, self.q.step, self.q.radius = weight, step, radius
        self.q.set = {"whole_space": DPFAST_WHOLE_SPACE, "box": DPFAST_BOX, "l2_ball": DPFAST_L2_BALL,
                      "l1_ball": DPFAST_L1_BALL}[set_name]
        if bounds is not None:
            self.low, self.high = bounds
            self.q.low, self.q.high = &self.low[0], &self.high[0]

    def step_along(self, double[:, ::1] x, double[:, ::1] gradient, double[:, ::1] out):
        """Write the proximal step from x along the gradient to `out`; returns whether it ends on a ball's boundary."""
        cdef dpfast_vector x_parts = vector(x), gradient_parts = vector(gradient), out_parts = vector(out)
        cdef bint on_boundary
        with nogil:
            on_boundary = dpfast_step_along(&self.q, x_parts, gradient_parts, out_parts, self.level)
        return on_boundary


def extrapolate(double momentum, double[:, ::1] x, double[:, ::1] last, double[:, ::1] ahead):
    """Write x + momentum (x - last) to `ahead` and x to `last`."""
    dpfast_extrapolate(momentum, x.shape[1], vector(x), vector(last), vector(ahead))


def add(const double[:, ::1] a, const double[:, ::1] b, double[:, ::1] total):
    """Write a + b to `total`."""
    if not a.shape[1] == b.shape[1] == total.shape[1]:
        raise IndexError("all vectors must have one length")
    dpfast_add_vectors(a.shape[1], vector(a), vector(b), vector(total))


cdef class QuadraticSteps(ProximalSteps):
    """Steps for x'Ax/2 + linear'x + weight ||x||_1 over a set, A = matrix + diagonal I or 2 F F' + diagonal I.

    Parameters
    ----------
    matrix : ndarray of shape (n, n) or (n, k)
        Symmetric; or F, if `transposed` is given.
    transposed : ndarray of shape (k, n) or None
        F', contiguous too.
    linear : ndarray of shape (n,)
    diagonal : tuple of two floats
        An unevaluated sum.
    weight, step, set_name, radius, bounds, level
        As for `ProximalSteps`.
    """

    cdef const double[:, ::1] matrix, transposed
    cdef const double[::1] linear
    cdef double[::1] workspace

    def __init__(self, const double[:, ::1] matrix, const double[:, ::1] transposed, const double[::1] linear, *,
                 diagonal, **set_and_step):
        super().__init__(linear.shape[0], **set_and_step)
        self.matrix, self.transposed, self.linear = matrix, transposed, linear
        self.q.matrix, self.q.linear = &matrix[0, 0], &linear[0]
        if transposed is not None:
            self.q.n_columns, self.q.transposed = matrix.shape[1], &transposed[0, 0]
        self.q.diagonal[0], self.q.diagonal[1] = diagonal
        self.workspace = np.empty(dpfast_step_workspace(&self.q))

    def gradient(self, double[:, ::1] x, double[:, ::1] out):
        """Write Ax + linear to `out`."""
        cdef dpfast_vector x_parts = vector(x), out_parts = vector(out)
        with nogil:
            dpfast_quadratic_gradient(&self.q, x_parts, out_parts, &self.workspace[0], self.level)

    def step(self, double[:, ::1] x, double[:, ::1] out):
        """Write the proximal gradient step from x to `out`; returns whether it ends on the boundary of a ball."""
        cdef dpfast_vector x_parts = vector(x), out_parts = vector(out)
        cdef bint on_boundary
        with nogil:
            on_boundary = dpfast_proximal_step(&self.q, x_parts, out_parts, &self.workspace[0], self.level)
        return on_boundary

    def accelerate(self, double momentum, Py_ssize_t n_steps, double[:, ::1] x, double[:, ::1] last):
        """Take so many accelerated steps from x and its predecessor `last`, in place."""
        cdef dpfast_vector x_parts = vector(x), last_parts = vector(last)
        with nogil:
            dpfast_accelerate(&self.q, momentum, n_steps, x_parts, last_parts, &self.workspace[0], self.level)


# Generalised linear losses, and their sums over ranges of rows: the arrays around generalised_linear.c, the Hessian.
#
# The Hessian is the product of rows scaled by the roots of their weights with themselves, blocks of rows that stay in the
# cache given to BLAS. C-contiguous float64 arrays in, outputs allocated by the caller; no GIL, so threads take ranges of
# rows. The caller holds BLAS to one thread; shapes, finiteness and labels are checked in dpfast.solvers.smooth_convex.

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
