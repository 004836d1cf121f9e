/* Sums of products of grid-rounded rows, exact in 64-bit integers. The design is described in gram.c. */
#ifndef DPFAST_GRAM_H
#define DPFAST_GRAM_H

#include "rows.h"

/* A double plus this constant has no fraction bits left: adding and subtracting it rounds half to even below 2^51.
 * Larger values stay larger than any bound. */
#define ROUND_TO_INTEGER 6755399441055744.0 /* 1.5 * 2^52 */

/* The public grid of one table's rows; lengths are in grid units. */
typedef struct {
    ptrdiff_t n_columns;
    double scale;         /* grid units per unit of the table: a power of two */
    double bound;         /* length onto which longer rows are scaled */
    double squared_bound; /* largest squared length of a packed row: an integer below 2^53 */
} dpfast_row_grid;

enum dpfast_pack_status { DPFAST_PACKED = 0, DPFAST_X_NOT_FINITE = 1, DPFAST_Y_NOT_FINITE = 2 };

/* Where packed rows lie. Panels of `panel_width` columns, each `panel_stride` doubles after the one before; within a
 * panel, row after row. A row-major matrix is one panel as wide as a row. */
typedef struct {
    double *data;
    ptrdiff_t panel_width;
    ptrdiff_t panel_stride;
    ptrdiff_t n_columns; /* of both tables, rounded up to whole panels */
} dpfast_pack;

/* Columns in a panel, which is what dpfast_add_products wants, at a level. */
ptrdiff_t dpfast_panel_width(int level);

/* What packing needs besides its output, for packs of n_rows rows at most. */
typedef struct {
    double *row;       /* one row of both tables, and 8 doubles more; zero at first */
    double *x_staging; /* n_rows rows of x, for tables whose entries are not adjacent */
    double *y_staging;
} dpfast_pack_scratch;

/* What lies beside the rows of x that are packed, as categories do that are kept as codes; one entry a row of the pack. */
typedef struct {
    const double *squares; /* what it adds to the squared length, in grid units: integers whose sums are exact, or stay above 2^53 */
    unsigned char *beyond; /* nonzero for rows that are not packed, zeros in their place; set for those beyond the bound */
} dpfast_beside;

/* Bound, round and pack the rows [start, start + n_rows) of both tables, whose n_available rows from `start` on may be
 * read ahead of need; returns a dpfast_pack_status. With something beside x no row of it is scaled, nor found to be not
 * finite: such rows are `beyond`. */
int dpfast_pack_rows(int level, const dpfast_table *x, const dpfast_row_grid *x_grid, const dpfast_table *y,
                     const dpfast_row_grid *y_grid, ptrdiff_t start, ptrdiff_t n_rows,
                     ptrdiff_t n_available, const dpfast_beside *beside, const dpfast_pack_scratch *scratch,
                     const dpfast_pack *pack);

/* Scale a row beyond the bound onto it and round it, as it is packed; `rounded` has room for whole vectors. Returns 0 if it
 * is not finite. */
int dpfast_shrink_row(int level, const double *row, const dpfast_row_grid *grid, double *rounded);

/* totals[i, j] += sum over rows of pack[r, i] pack[r, j], i < n_features, max(i, first) <= j < n_columns: an array of
 * n_features (rounded up to 8) by pack->n_columns (a multiple of 8). Its other entries are scratch. With `first` at
 * n_features the products within the first table are left out. */
void dpfast_add_products(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                         int64_t *totals);

/* The same without `first`, of a block of doubles: exact while they stay below 2^53. What a new one holds does not count. */
void dpfast_add_products_in_doubles(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features,
                                    double *block, int is_new);

/* The same from sums that are already in `block`: doubles, n_columns of them used in every row of `stride`. */
void dpfast_add_block(const double *block, ptrdiff_t n_features, ptrdiff_t first, ptrdiff_t n_columns, ptrdiff_t stride,
                      int64_t *totals);

/* out[i, j] = sum over the columns [first, end), of which there is one at least, of pack[i, column] pack[j, column], for
 * i <= j < n_rows: exact, in doubles. `out` has rows of `stride`, n_rows rounded up to 4, and as many of them; its other
 * entries are scratch. */
void dpfast_multiply_rows(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t first, ptrdiff_t end,
                          ptrdiff_t stride, double *out);

/* sums[slots[r], j] += pack[r, j] for every row: exact while they stay below 2^53. */
void dpfast_add_by_slot(int level, const dpfast_pack *pack, ptrdiff_t n_rows, const int32_t *slots, double *sums);

/* totals[j] += sum over rows of pack[r, j]. */
void dpfast_add_columns(const dpfast_pack *pack, ptrdiff_t n_rows, int64_t *totals);

/* The same of narrow rows, which lie side by side in the lanes of vectors. The design is described in lane_gram.c. */

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
