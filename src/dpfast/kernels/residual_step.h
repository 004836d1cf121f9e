/* Rows times what coefficients leave of their outcomes: clipped, rounded, summed. The design is in residual_step.c. */
#ifndef DPFAST_RESIDUAL_STEP_H
#define DPFAST_RESIDUAL_STEP_H

#include "row_map.h"

enum { DPFAST_X_MAPPED_TO_NAN = 1, DPFAST_Y_MAPPED_TO_NAN = 2, DPFAST_GROUP = 8 };

/* What of outcomes y is left by z = theta'x: y - z; y_j sigmoid(-sign(y_j) z_j); y - (sum of y) softmax(z); minus the
 * slopes of Huber's loss, of a quantile's and of counts, smoothed (dpfast.solvers): these have bounds of their own. */
enum {
    DPFAST_IDENTITY = 0,
    DPFAST_LOGISTIC = 1,
    DPFAST_SOFTMAX = 2,
    DPFAST_HUBER = 3,
    DPFAST_QUANTILE = 4,
    DPFAST_POISSON = 5
};

/* What rows are multiplied by and held to: public. */
typedef struct {
    const dpfast_row_map *map_x, *map_y;
    ptrdiff_t n_columns;         /* entries of a mapped row, and the 1 that follows it if `has_constant` */
    int has_constant;
    ptrdiff_t n_outcomes, n_products; /* entries of r and of p */
    const double *theta;         /* n_outcomes by n_columns */
    int link;
    double level, width;         /* Huber's threshold, or the quantile's level, and half the width of the bend; or the
                                    largest rate of counts, and the z at which its smoothing begins */
    const double *whitening;     /* n_products by n_columns, or NULL where p is the row */
    const ptrdiff_t *theta_ends; /* columns beyond are 0, for each outcome, */
    const ptrdiff_t *ends;       /* and for each product */
    double longest;              /* norm of p onto which longer rows are scaled, and r by as much unless it is a slope's
                                    that is bounded anyhow, from Huber's on; infinite for none */
    double beyond;               /* only what exceeds this length is left of p r' */
    double unit_p, unit_r;       /* units of the grids of p and r, in 1: powers of two */
    double row_length;           /* norm of r, in units, onto which that of a row with ||p|| = 1 is scaled */
    uint64_t row_bound_high, row_bound_low; /* on ||p||^2 ||r||^2 of a row, in units */
    double person_length;                   /* the same of the summed block of a person with several rows */
    uint64_t person_bound_high, person_bound_low;
    double unit_squares, squares_length, squares_bound; /* of squared residuals; unit_squares is 0 if they are not summed */
    ptrdiff_t first_bin, n_bins; /* exponents of squared sizes that are counted */
} dpfast_residual_step;

/* Working space of one thread: columns of `block_rows` rows, a multiple of eight. */
typedef struct {
    ptrdiff_t block_rows;
    dpfast_map_scratch map_x, map_y;
    double *x_rows, *y_rows;     /* block_rows by columns, and eight entries more */
    double *x, *p, *r, *rounded; /* columns: of mapped rows, of products (those of x without whitening), residuals, in units */
    double *squared_p, *squared_r, *multipliers, *squared_p_units; /* one a row */
    double *squares, *square_multipliers;
    double *outer;               /* n_products by n_outcomes: one person's sum in doubles */
    int64_t *person;             /* and in units */
    double *looked_up;           /* block_rows by the stride of rows with codes */
    double *lanes;               /* n_products by n_outcomes by eight: sums in units that wait for their totals */
} dpfast_residual_scratch;

/* Read `n_rows` <= block_rows rows from `start` on: their p, r and squared norms. Returns 0, or which table has NaN. */
int dpfast_residual_rows(int level, const dpfast_residual_step *step, const dpfast_table *x, const dpfast_table *y,
                         ptrdiff_t start, ptrdiff_t n_rows, const dpfast_residual_scratch *scratch);

/* The same of rows of numbers and codes, an array a category. The basis of their map, without a centre of its own, is
 * theta, rounded up to eight columns, and then the whitening. */
int dpfast_residual_coded_rows(int level, const dpfast_residual_step *step, const dpfast_coded_map *map,
                               const dpfast_coded_scratch *coded, const dpfast_table *numbers,
                               const int32_t *const *codes, const dpfast_table *y, ptrdiff_t start, ptrdiff_t n_rows,
                               const dpfast_residual_scratch *scratch);

/* Round them to units, each held to the bound of a row. */
void dpfast_residual_round(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                           const dpfast_residual_scratch *scratch);

/* Add products of rounded rows to `lanes`; sums of lanes stay exact while fewer than 2^53 over the norm of a product. */
void dpfast_residual_add(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                         const dpfast_residual_scratch *scratch);

/* Move the sums of lanes to totals. */
void dpfast_residual_flush(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch, int64_t *totals);

/* Hold the summed block of the rows first to last, one person's, to their bound; returns whether it was beyond. */
int dpfast_residual_hold(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                          const dpfast_residual_scratch *scratch);

/* What to multiply the r of a person by, whose block of units is given; 1 where it is within the bound. */
double dpfast_residual_factor(const dpfast_residual_step *step, const int64_t *block);

/* Multiply r by one factor more and round again. */
void dpfast_residual_round_again(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last, double factor,
                                 const dpfast_residual_scratch *scratch);

/* Add squared residuals of rows first to last to those of one person, */
void dpfast_residual_squares(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                             const dpfast_residual_scratch *scratch);

/* and, held to their bound, to totals. */
void dpfast_residual_hold_squares(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                  int64_t *totals);

/* Count rows, each a person, in the bins of their norms. */
void dpfast_residual_count_rows(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                const dpfast_residual_scratch *scratch, int64_t *counts);

/* Add p r' of rows first to last to one person's sum in doubles, */
void dpfast_residual_outer(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                           const dpfast_residual_scratch *scratch);

/* and count them in the bin of its norm. */
void dpfast_residual_count_outer(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                 int64_t *counts);

#endif
