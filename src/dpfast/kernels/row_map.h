/* Public maps of rows: clip, scale onto a norm, subtract a centre, change units, change the basis. The design is in row_map.c. */
#ifndef DPFAST_ROW_MAP_H
#define DPFAST_ROW_MAP_H

#include "rows.h"

enum { DPFAST_MOST_TOGETHER = 64 };

/* What is done to a row, in this order; pointers may be NULL for what is not done. */
typedef struct {
    ptrdiff_t n_columns;
    ptrdiff_t n_together;     /* rows that are mapped together, at most 64: what has an entry a column repeats so often */
    double offset, unit;      /* entries become (entry - offset)/unit, */
    const double *low, *high; /* are clipped, both or neither, */
    int fills;                /* and those missing (NaN) are put at the centre, or at 0 */
    double bound;             /* L2 norm of the `top` largest entries (n_columns for all): larger rows are scaled onto it */
    ptrdiff_t top;
    const double *center; /* subtracted */
    const double *inverse_scale; /* what is left is multiplied by it */
    const double *basis;  /* n_columns by n_features: the row becomes its products with the columns; */
    ptrdiff_t basis_stride; /* its rows are so far apart, n_features rounded up to eight, and 0 beyond */
    ptrdiff_t n_features;
} dpfast_row_map;

/* Working space: `block_rows` rows for tables whose entries are not adjacent, n_together rows, and one rounded up to eight
 * entries. */
typedef struct {
    ptrdiff_t block_rows;
    double *staging;
    double *rows;
    double *sizes;
} dpfast_map_scratch;

/* Map rows [start, stop) of a table to the first of `out`, `out_stride` doubles apart. Returns 1, or 0 if a row was not
 * finite: such rows become NaN throughout. */
int dpfast_map_rows(int level, const dpfast_row_map *map, const dpfast_table *table, ptrdiff_t start, ptrdiff_t stop,
                    const dpfast_map_scratch *scratch, double *out, ptrdiff_t out_stride);

#endif
