#ifndef DPFAST_DISCRETE_LOOPS_H
#define DPFAST_DISCRETE_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* A discrete Gaussian as columns of 2^shift integers; see discrete_loops.c. */
struct dpfast_columns {
    const uint64_t *thresholds; /* floor(2^63 P(column <= j)); the last is 2^63 - 1 */
    const uint64_t *sure;       /* floor(2^(64 - shift) times the least acceptance in column j) */
    const uint16_t *guide;      /* for each value of the top bits, a column to start the search from */
    int guide_bits;
    int shift;
    double scale;
    double margin;
};

ptrdiff_t dpfast_discrete_gaussian(const struct dpfast_columns *columns, const uint64_t *words, ptrdiff_t n_words,
                                   ptrdiff_t *position, int64_t *draws, ptrdiff_t n_draws, int *undecided);

#endif
