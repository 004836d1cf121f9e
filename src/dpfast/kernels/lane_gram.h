/* Sums of products of narrow rows, exact in 64-bit integers, rows side by side in the lanes of vectors. The design is
 * described in lane_gram.c. */
#ifndef DPFAST_LANE_GRAM_H
#define DPFAST_LANE_GRAM_H

#include "gram.h"

/* Rounded rows, room to read them, and sums, which are zeros at first. Widths are n_columns rounded up to eight. */
typedef struct {
    ptrdiff_t n_columns; /* of both tables */
    double *rows;        /* n_columns by as many rows as are packed at a time, rounded up to eight */
    double *group;       /* eight rows of one table, by columns: 8 by a width */
    double *row, *rounded; /* a row of one table: a width each */
    double *products;    /* dpfast_lane_products doubles */
    double *columns;     /* 8 by n_columns, or NULL if rows are not summed */
} dpfast_lanes;

/* How many doubles products take. */
ptrdiff_t dpfast_lane_products(ptrdiff_t n_features, ptrdiff_t n_columns);

/* What `dpfast_pack_rows` does with nothing beside x, to the rows of `lanes`. */
int dpfast_pack_lanes(int level, const dpfast_table *x, const dpfast_row_grid *x_grid, const dpfast_table *y,
                      const dpfast_row_grid *y_grid, ptrdiff_t start, ptrdiff_t n_rows, const dpfast_lanes *lanes);

/* Add products of n_rows packed rows, and the rows, to the sums by lane; and ask for memory of the tables' rows that
 * follow, [next, next + n_next). A lane takes a row of dpfast_panel_width. */
void dpfast_add_lanes(int level, const dpfast_lanes *lanes, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                      const dpfast_table *x, const dpfast_table *y, ptrdiff_t next, ptrdiff_t n_next);

/* Move the sums by lane to the totals of `dpfast_add_products` and `dpfast_add_columns`. */
void dpfast_take_lanes(int level, const dpfast_lanes *lanes, ptrdiff_t n_features, ptrdiff_t first, ptrdiff_t stride,
                       int64_t *totals, int64_t *columns);

#endif
