#ifndef DPFAST_SECULAR_H
#define DPFAST_SECULAR_H

#include <stddef.h>

/* Quadratics in their eigenbases, one a row. A row stride of 0 gives every row the same eigenvalues, coefficients or
 * radius. Results are at the index of their row; multipliers and evaluations may be NULL. */
typedef struct {
    ptrdiff_t n_terms;
    const double *eigenvalues, *coefficients, *radii;
    ptrdiff_t eigenvalue_stride, coefficient_stride, radius_stride;
    int sphere; /* the constraint is met with equality */
    double *solutions, *multipliers;
    int *evaluations; /* of the secular function */
} dpfast_quadratics;

/* How many doubles of workspace a problem of n_terms needs. */
ptrdiff_t dpfast_secular_workspace(ptrdiff_t n_terms);

/* Solve rows [start, stop). Design and contract: secular.c. */
void dpfast_solve_quadratics(const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace,
                             int level);

#endif
