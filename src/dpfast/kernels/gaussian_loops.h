#ifndef DPFAST_GAUSSIAN_LOOPS_H
#define DPFAST_GAUSSIAN_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* Offsets, in grid cells, of n Gaussian draws from their base cells. Design and contract: gaussian_loops.c. */
ptrdiff_t dpfast_gaussian_offsets(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                  double margin, double *offsets, ptrdiff_t *ambiguous, int level);

/* The table, for its certificate in the tests. */
const double *dpfast_gaussian_table(ptrdiff_t *n_rows, ptrdiff_t *n_coefficients);

/* The vector level that a request for `level` runs at. */
int dpfast_gaussian_level(int level);

#endif
