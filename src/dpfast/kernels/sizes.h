/* Codes of the sizes of rows, and of their entries, by half-octaves. The design is in sizes.c. */
#ifndef DPFAST_SIZES_H
#define DPFAST_SIZES_H

#include "rows.h"

/* The half-octaves that are told apart, as statistics/sizes.py says. */
typedef struct {
    int first, last;
} dpfast_half_octaves;

/* Codes of the L2 norms of rows [start, stop), one each, or of their entries, row after row; `staging` has room for
 * `block_rows` rows. Return 1, or 0 if an entry was not finite. */
int dpfast_norm_codes(const dpfast_table *table, ptrdiff_t n_columns, dpfast_half_octaves bins, ptrdiff_t start,
                      ptrdiff_t stop, ptrdiff_t block_rows, double *staging, int16_t *codes);
int dpfast_entry_codes(const dpfast_table *table, ptrdiff_t n_columns, dpfast_half_octaves bins, ptrdiff_t start,
                       ptrdiff_t stop, ptrdiff_t block_rows, double *staging, int16_t *codes);

#endif
