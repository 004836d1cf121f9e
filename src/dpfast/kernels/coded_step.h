/* Residual steps of rows with codes, their products neither formed nor summed. The design is in coded_step.c. */
#ifndef DPFAST_CODED_STEP_H
#define DPFAST_CODED_STEP_H

#include "row_map.h"

enum { DPFAST_CODED_ROWS = 256, DPFAST_CODES_ADDED = 0, DPFAST_NUMBERS_NOT_FINITE = 1, DPFAST_OUTCOMES_NOT_FINITE = 2 };

/* Public tables; numbers are in units of their grids. */
typedef struct {
    const dpfast_row_map *map_y;
    ptrdiff_t n_numbers, n_categories, n_outcomes;
    const double *low, *high;                        /* of numbers, both or neither */
    const double *center, *inverse_scale, *units;    /* units of the grid in 1: a power of two each */
    double squared_bound;                            /* of rows before they are centred; infinite for none */
    double squared_absent;                           /* squared norm of absent indicators, and what a level adds to it */
    const double *slot_squares;
    const ptrdiff_t *n_levels, *first_slots;         /* the last slot of a category is for none of its levels */
    ptrdiff_t stride;                                /* a multiple of eight */
    const double *of_slots;      /* a row a slot: twice its products with numbers, its theta an outcome, its own square */
    const double *products;      /* n_numbers by n_numbers, of which the lower part is read: twice those off the diagonal */
    const double *theta;         /* n_outcomes by n_numbers */
    const double *pairs;         /* twice the products of slots of two categories, */
    const ptrdiff_t *first_pairs; /* of the categories k < l from that of k n_categories + l on */
    double slack;                /* at least the error of a squared norm of p */
    double squared_longest;      /* rows beyond it are left out, */
    double unit_r, onto_clip;    /* units of the grid of r in 1, and the norm in them onto which p r' is scaled */
    double squared_limit;        /* on squared norms of p r', its r in units */
    double squared_clip;         /* beyond which people are counted */
    ptrdiff_t first_bin, n_bins; /* exponents of squared sizes that are counted */
} dpfast_coded_step;

/* Working space of one thread, for DPFAST_CODED_ROWS rows: columns of them, but where said otherwise. */
typedef struct {
    dpfast_map_scratch map_y;
    double *y_rows, *y;      /* rows, and columns, */
    double *x, *r;           /* of numbers and residuals, both in units in the end */
    double *sums, *columns;  /* rows of sums over slots, and columns */
    double *squared;         /* norms of p */
    double *of_codes, *size; /* what codes add to the squared norm before rows are centred; squared sizes */
    double *multipliers;
    int32_t *slots;          /* a column a category */
    int64_t *kept;           /* all bits, or none for rows that are left out */
} dpfast_coded_step_scratch;

/* Read n_rows <= DPFAST_CODED_ROWS rows: their residuals and squared norms of p. Returns a status. */
int dpfast_coded_step_rows(int level, const dpfast_coded_step *step, const dpfast_table *numbers,
                           const int32_t *const *codes, const dpfast_table *y, ptrdiff_t start, ptrdiff_t n_rows,
                           const dpfast_coded_step_scratch *scratch);

/* Hold them to the clip, and add them to sums by slot and outcome, and to the two limbs of sums by number and outcome.
 * Returns how many were beyond the clip. Rows that are left out are marked. */
ptrdiff_t dpfast_coded_step_add(int level, const dpfast_coded_step *step, ptrdiff_t n_rows,
                                const dpfast_coded_step_scratch *scratch, double *by_slot, int64_t *high, uint64_t *low,
                                uint8_t *left_out);

/* Count them in the bins of their sizes. */
void dpfast_coded_step_count(const dpfast_coded_step *step, ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch,
                             int64_t *counts, uint8_t *left_out);

/* Put their norms of p in `norms`. */
void dpfast_coded_step_norms(ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch, double *norms,
                             uint8_t *left_out);

#endif
