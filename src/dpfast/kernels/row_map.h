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

/* A map with a basis, of rows of which a part are indicators of categories, kept as codes. Products with the basis are sums
 * of rows of tables, which have a row for each number and for each level: `stride` entries, a multiple of sixteen, 0 beyond
 * the columns of the basis. */
typedef struct {
    const dpfast_row_map *map_numbers; /* what is done to numbers before the norm is taken */
    ptrdiff_t n_numbers, n_categories;
    double bound;                         /* norm of all entries onto which longer rows are scaled; infinite for none */
    double squared_absent;                /* squared norm of the indicators where no level is present, */
    const double *slot_squares;           /* and what a level adds to it */
    const double *center, *inverse_scale; /* of numbers */
    const ptrdiff_t *n_levels, *first_slots; /* of a category; its last slot, after those of its levels, is for none */
    ptrdiff_t stride;
    const double *of_numbers, *of_slots; /* a row a number; and a slot, what its presence adds */
    const double *absent;                /* the sum over indicators where no level is present: times the row's factor; */
    const double *constant;              /* and what is added to every row */
} dpfast_coded_map;

/* Working space: `block_rows` rows of numbers, and a pointer a category. */
typedef struct {
    dpfast_map_scratch numbers;
    double *rows;
    const double **slots;
} dpfast_coded_scratch;

/* Map n_rows <= block_rows rows of numbers and codes, an array a category, from `start` on, to rows of `stride`; a code
 * that is no level is none. Returns 1, or 0 if a row was not finite: such rows become NaN throughout. */
int dpfast_map_coded_rows(int level, const dpfast_coded_map *map, const dpfast_table *numbers,
                          const int32_t *const *codes, ptrdiff_t start, ptrdiff_t n_rows,
                          const dpfast_coded_scratch *scratch, double *out);

#endif
