#ifndef DPFAST_QUADRATIC_STEP_H
#define DPFAST_QUADRATIC_STEP_H

#include <stddef.h>

typedef enum { DPFAST_WHOLE_SPACE, DPFAST_BOX, DPFAST_L2_BALL, DPFAST_L1_BALL } dpfast_set;

/* x'Ax/2 + v'x + weight ||x||_1 over a set, A = matrix + diagonal I or, with a factor F, 2 F F' + diagonal I. */
typedef struct {
    ptrdiff_t n, n_columns;      /* of F; 0 for a matrix */
    const double *matrix;        /* n by n, symmetric; or F, n by n_columns; unused where gradients are given */
    const double *transposed;    /* F', n_columns by n; NULL for a matrix */
    double diagonal[2];          /* unevaluated sum */
    const double *linear;        /* v */
    double weight;
    dpfast_set set;
    double radius;               /* of a ball */
    const double *low, *high;    /* of a box */
    double step;
} dpfast_quadratic;

/* A vector in twice the working precision: the unevaluated sum of its parts, the second within rounding of the first. */
typedef struct {
    double *high, *low;
} dpfast_vector;

/* How many doubles of workspace a call needs. */
ptrdiff_t dpfast_step_workspace(const dpfast_quadratic *q);

/* gradient = Ax + v. */
void dpfast_quadratic_gradient(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, double *workspace,
                               int level);

/* next = the proximal gradient step from x; next may be x. Returns whether a ball was left on the way: next is on its
 * boundary. */
int dpfast_proximal_step(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace, int level);

/* The same along a gradient that is given. */
int dpfast_step_along(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, dpfast_vector next, int level);

/* ahead = x + momentum (x - last), then last = x. */
void dpfast_extrapolate(double momentum, ptrdiff_t n, dpfast_vector x, dpfast_vector last, dpfast_vector ahead);

/* So many accelerated steps: x and its predecessor `last`, both in and out. */
void dpfast_accelerate(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x, dpfast_vector last,
                       double *workspace, int level);

#endif
