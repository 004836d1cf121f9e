/* Sums of products of rows that are kept by their entries. The design is described in sparse_gram.pyx. */
#ifndef DPFAST_SPARSE_GRAM_H
#define DPFAST_SPARSE_GRAM_H

#include "gram.h"

/* A status beside those of gram.h: entries do not lie within their table. */
enum { DPFAST_OUTSIDE = 3 };

/* Borrowed entries, those of row r from row_starts[r] to row_starts[r + 1]: nothing of it is believed. */
typedef struct {
    const int64_t *row_starts;
    const char *columns; /* int32_t, or int64_t if wide */
    const char *values;  /* double, or float */
    ptrdiff_t n_stored;
    int is_wide;
    int is_float32;
} dpfast_sparse_table;

/* Rows that are packed: their entries, rounded, and what finding them needs. */
typedef struct {
    int64_t *units;
    int32_t *columns;
    ptrdiff_t n_entries; /* for which there is room: at least a row of the table */
    ptrdiff_t *ends;     /* of each row among the entries: room for as many as are added at a time */
    ptrdiff_t n_packed;
    double *written;  /* a row written out, of either type: zeros between calls */
    dpfast_pack pack; /* one such row, rounded */
    dpfast_pack_scratch scratch;
} dpfast_sparse_room;

/* Where sums are added to: products[i * stride + j] for i <= j, and columns unless it is NULL. */
typedef struct {
    int64_t *products;
    int64_t *columns;
    ptrdiff_t stride;
    int cross_only; /* whether products within the first table are left out */
} dpfast_sparse_totals;

/* Add the products of rows [start, start + n_rows) with themselves and with outcomes, integers of which row r has
 * n_outcomes from outcomes[r * outcome_stride] on; returns a status. */
int dpfast_add_sparse_rows(int level, const dpfast_sparse_table *table, const dpfast_row_grid *grid, ptrdiff_t start,
                           ptrdiff_t n_rows, const double *outcomes, ptrdiff_t n_outcomes, ptrdiff_t outcome_stride,
                           dpfast_sparse_room *room, const dpfast_sparse_totals *totals);

#endif
