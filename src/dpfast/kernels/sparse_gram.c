/* Sums of products of rows that are kept by their entries; see sparse_gram.pyx. */
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

static DPFAST_INLINE int64_t column_of(const dpfast_sparse_table *table, ptrdiff_t k, int is_wide)
{
    return is_wide ? ((const int64_t *)table->columns)[k] : ((const int32_t *)table->columns)[k];
}

/* The integer below 2^51 that a sum with ROUND_TO_INTEGER has in its last bits; of other sums, any. */
static inline int64_t integer_in(double sum)
{
    double none = ROUND_TO_INTEGER;
    int64_t bits, offset;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&offset, &none, sizeof offset);
    return (int64_t)((uint64_t)bits - (uint64_t)offset);
}

/* Read a row whose columns ascend, and that is within the bound; returns 0 for any other, without a word of why. */
static DPFAST_INLINE int read_entries(const dpfast_sparse_table *table, const dpfast_row_grid *grid, ptrdiff_t begin,
                                      ptrdiff_t end, int64_t *units, int32_t *columns, int is_wide, int is_float32)
{
    ptrdiff_t n_entries = end - begin;
    int64_t previous = -1;
    int ascend = 1;
    double squared = 0.0;
    if (n_entries > grid->n_columns)
        return 0;
    for (ptrdiff_t k = 0; k < n_entries; k++) {
        int64_t column = column_of(table, begin + k, is_wide);
        double sum = load_scalar(table->values, begin + k, is_float32) * grid->scale + ROUND_TO_INTEGER;
        double rounded = sum - ROUND_TO_INTEGER;
        ascend &= column > previous;
        previous = column;
        squared += rounded * rounded;
        units[k] = integer_in(sum);
        columns[k] = (int32_t)column;
    }
    return ascend && previous < grid->n_columns && squared <= grid->squared_bound;
}

static DPFAST_INLINE int write_out(const dpfast_sparse_table *table, const dpfast_row_grid *grid, ptrdiff_t begin,
                                   ptrdiff_t end, double *written)
{
    for (ptrdiff_t k = begin; k < end; k++) {
        int64_t column = column_of(table, k, table->is_wide);
        if (column < 0 || column >= grid->n_columns)
            return DPFAST_OUTSIDE;
        if (table->is_float32)
            ((float *)written)[column] += ((const float *)table->values)[k];
        else
            written[column] += ((const double *)table->values)[k];
    }
    return DPFAST_PACKED;
}

/* Read any row as dense ones are. */
static int read_written_out(int level, const dpfast_sparse_table *table, const dpfast_row_grid *grid, ptrdiff_t begin,
                            ptrdiff_t end, const dpfast_sparse_room *room, int64_t *units, int32_t *columns,
                            ptrdiff_t *n_entries)
{
    dpfast_table row = {(const char *)room->written, NULL, 0, 0, NULL, table->is_float32, NULL}, none = row;
    dpfast_row_grid no_grid = {0, 1.0, 1.0, 1.0};
    row.column_stride = table->is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double);
    int status = write_out(table, grid, begin, end, room->written);
    if (status == DPFAST_PACKED)
        status = dpfast_pack_rows(level, &row, grid, &none, &no_grid, 0, 1, 1, NULL, &room->scratch, &room->pack);
    memset(room->written, 0, (size_t)grid->n_columns * sizeof *room->written);
    *n_entries = 0;
    for (ptrdiff_t j = 0; status == DPFAST_PACKED && j < grid->n_columns; j++)
        if (room->pack.data[j] != 0.0) {
            units[*n_entries] = (int64_t)room->pack.data[j];
            columns[(*n_entries)++] = (int32_t)j;
        }
    return status;
}

/* Pack rows [start, start + n_rows) until there is no room for another; returns a status. */
static DPFAST_INLINE int pack_rows(int level, const dpfast_sparse_table *table, const dpfast_row_grid *grid,
                                   ptrdiff_t start, ptrdiff_t n_rows, dpfast_sparse_room *room, int is_wide,
                                   int is_float32)
{
    int64_t begin, end = table->row_starts[start];
    ptrdiff_t n_packed = 0, n_entries = 0;
    int status = DPFAST_PACKED;
    for (; n_packed < n_rows && room->n_entries - n_entries >= grid->n_columns; n_packed++) {
        begin = end;
        end = table->row_starts[start + n_packed + 1];
        if (DPFAST_UNLIKELY(begin < 0 || end < begin || end > table->n_stored))
            return DPFAST_OUTSIDE;
        int64_t *units = room->units + n_entries;
        int32_t *columns = room->columns + n_entries;
        ptrdiff_t n_read = end - begin;
        if (DPFAST_UNLIKELY(!read_entries(table, grid, begin, end, units, columns, is_wide, is_float32)))
            status = read_written_out(level, table, grid, begin, end, room, units, columns, &n_read);
        if (DPFAST_UNLIKELY(status != DPFAST_PACKED))
            return status;
        n_entries += n_read;
        room->ends[n_packed] = n_entries;
    }
    room->n_packed = n_packed;
    return DPFAST_PACKED;
}

static int pack_sparse_rows(int level, const dpfast_sparse_table *table, const dpfast_row_grid *grid, ptrdiff_t start,
                            ptrdiff_t n_rows, dpfast_sparse_room *room)
{
    switch (table->is_wide * 2 + table->is_float32) {
    case 0: return pack_rows(level, table, grid, start, n_rows, room, 0, 0);
    case 1: return pack_rows(level, table, grid, start, n_rows, room, 0, 1);
    case 2: return pack_rows(level, table, grid, start, n_rows, room, 1, 0);
    default: return pack_rows(level, table, grid, start, n_rows, room, 1, 1);
    }
}

static void add_packed(const dpfast_sparse_room *room, const double *outcomes, ptrdiff_t n_outcomes,
                       ptrdiff_t outcome_stride, ptrdiff_t d, const dpfast_sparse_totals *totals)
{
    int64_t *products = totals->products, *column_sums = totals->columns;
    ptrdiff_t stride = totals->stride, begin = 0, end = 0;
    for (ptrdiff_t r = 0; r < room->n_packed; r++, outcomes += outcome_stride) {
        begin = end;
        end = room->ends[r];
        for (ptrdiff_t i = begin; i < end; i++) {
            int64_t entry = room->units[i], *sums = products + room->columns[i] * stride;
            for (ptrdiff_t j = totals->cross_only ? end : i; j < end; j++)
                sums[room->columns[j]] += entry * room->units[j];
            for (ptrdiff_t j = 0; j < n_outcomes; j++)
                sums[d + j] += entry * (int64_t)outcomes[j];
        }
        for (ptrdiff_t i = begin; column_sums && i < end; i++)
            column_sums[room->columns[i]] += room->units[i];
        for (ptrdiff_t j = 0; column_sums && j < n_outcomes; j++)
            column_sums[d + j] += (int64_t)outcomes[j];
    }
}

/* Add the products of rows [start, start + n_rows) with themselves and with outcomes, integers of which row r has
 * n_outcomes from outcomes[r * outcome_stride] on; returns a status. */
static int dpfast_add_sparse_rows(int level, const dpfast_sparse_table *table, const dpfast_row_grid *grid,
                                  ptrdiff_t start, ptrdiff_t n_rows, const double *outcomes, ptrdiff_t n_outcomes,
                                  ptrdiff_t outcome_stride, dpfast_sparse_room *room,
                                  const dpfast_sparse_totals *totals)
{
    while (n_rows > 0) {
        int status = pack_sparse_rows(level, table, grid, start, n_rows, room);
        if (status != DPFAST_PACKED)
            return status;
        add_packed(room, outcomes, n_outcomes, outcome_stride, grid->n_columns, totals);
        start += room->n_packed;
        n_rows -= room->n_packed;
        outcomes += room->n_packed * outcome_stride;
    }
    return DPFAST_PACKED;
}
