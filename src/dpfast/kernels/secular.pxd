"""Quadratics over balls and spheres in their eigenbases, a row each; secular.h says what the fields are."""

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

# Doubles to work in, and the rows [start, stop) solved; -1 is the best vector level there is.
cdef ptrdiff_t quadratics_workspace(ptrdiff_t n_terms) noexcept nogil
cdef void solve_range(
    const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace, int level) noexcept nogil
