#ifndef DPFAST_GENERALISED_LINEAR_H
#define DPFAST_GENERALISED_LINEAR_H

#include <stddef.h>

typedef enum {
    DPFAST_SQUARED,
    DPFAST_LOGISTIC,
    DPFAST_CAPPED_LOGISTIC,
    DPFAST_SMOOTHED_HINGE,
    DPFAST_SMOOTHED_HUBER,
    DPFAST_SMOOTHED_QUANTILE,
    DPFAST_POISSON
} dpfast_loss_kind;

/* Parameters: half-widths of the hinge's, Huber's and the quantile's bends; the largest slope of Huber and the capped
 * logistic loss, the quantile's level, the largest Poisson rate; where a bend of the capped losses begins; what the logistic
 * loss takes from margins. Formulas: generalised_linear.c. */
typedef struct {
    dpfast_loss_kind kind;
    double width, threshold, start, shift;
} dpfast_loss;

/* Rows of a C-contiguous table, their outcomes and their weights, of 0 or more; NULL for weights of 1. */
typedef struct {
    const double *rows, *outcomes, *weights;
    ptrdiff_t n_features;
} dpfast_observations;

/* Write the n losses of predictions z and outcomes y, and their first and second derivatives in z. */
void dpfast_local_losses(const dpfast_loss *loss, const double *z, const double *y, ptrdiff_t n, double *values,
                         double *slopes, double *curvatures);

/* Add rows [start, stop): losses to *value, their gradients to gradient[n_features]; write each row times the square root
 * of its second derivative to `scaled`. In double precision. */
void dpfast_add_model(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                      ptrdiff_t start, ptrdiff_t stop, double *value, double *gradient, double *scaled, int level);

/* gradient = sum over rows [start, stop), in twice the precision; vectors are high parts, then low parts. */
void dpfast_precise_gradient(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                             ptrdiff_t start, ptrdiff_t stop, double *gradient, double *workspace, int level);

#endif
