"""Points of L1 balls, Euclidean balls and spheres: the nearest, and those of least quadratics; secular.h has the fields."""

cdef extern from "secular.h":
    ctypedef struct dpfast_quadratics:
        ptrdiff_t n_terms
        const double *eigenvalues
        const double *coefficients
        const double *radii
        ptrdiff_t eigenvalue_stride, coefficient_stride, radius_stride
        int sphere
        double *solutions
        double *multipliers
        int *evaluations

# The Euclidean projection x of y, n numbers, onto the L1 ball of a radius; `kept` is room for n.
cdef void project_one(const double* y, Py_ssize_t n, double radius, double* kept, double* x) noexcept nogil

# Quadratics in their eigenbases, a row each: doubles to work in, and the rows [start, stop) solved; -1 is the best vector
# level there is.
cdef ptrdiff_t quadratics_workspace(ptrdiff_t n_terms) noexcept nogil
cdef void solve_range(
    const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace, int level) noexcept nogil
