/* Rows of a borrowed table, and the norm of one of them: what kernels share that read people's rows.
 *
 * A reduction over a row is done here, in one order of operations whatever the table's layout, its length and the vector
 * width, so that what becomes of a person's row depends on that row alone.
 */
#ifndef DPFAST_ROWS_H
#define DPFAST_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu.h"

enum { PARTIAL_SUMS = 8, STAGED_COLUMNS = 8, ROWS_IN_LINE = 8 };

/* Borrowed rows of doubles or floats: any strides (in bytes), all rows or those an index names. */
typedef struct {
    const char *data;
    const char *const *columns; /* where each column begins, in place of `data` and `column_stride`; NULL if unused */
    ptrdiff_t row_stride;
    ptrdiff_t column_stride;
    const int64_t *rows; /* NULL for all */
    int is_float32;
    const char *end; /* of the memory from the first row to the last, if it may be read; NULL if it may not */
} dpfast_table;

static inline double load_scalar(const char *row, ptrdiff_t column, int is_float32)
{
    return is_float32 ? (double)((const float *)row)[column] : ((const double *)row)[column];
}

static inline int is_finite_row(const char *row, ptrdiff_t n_columns, int is_float32)
{
    for (ptrdiff_t j = 0; j < n_columns; j++)
        if (!isfinite(load_scalar(row, j, is_float32)))
            return 0;
    return 1;
}

/* A power of two, and a normal number, that brings a positive size into [2^-22, 2^24). */
static inline double unit_scale(double size)
{
    int exponent = -ilogb(size);
    return ldexp(1.0, exponent < -1000 ? -1000 : exponent > 1000 ? 1000 : exponent);
}

static DPFAST_INLINE double folded(const double partial[PARTIAL_SUMS])
{
    return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
           ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

/* The power of two that brings the largest entry of a row near 1, where another scale overflows. It is a normal number,
 * so that it scales in threads that flush others to zero too. */
static inline double scale_to_unit(const char *row, ptrdiff_t n_columns, int is_float32)
{
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < n_columns; j++)
        largest = fmax(largest, fabs(load_scalar(row, j, is_float32)));
    return unit_scale(largest);
}

/* Squared L2 norm of row * scale, of which eight partial sums are taken, entry j into that of j % 8, and folded in pairs:
 * this one order at every vector width, so that the bits depend on the row alone. It errs by at most gamma_k of itself,
 * k = n_columns/8 + 8, if nothing overflows. */
static DPFAST_INLINE double squared_norm_of(const char *row, ptrdiff_t n_columns, int is_float32, double scale)
{
    double partial[PARTIAL_SUMS] = {0.0};
    ptrdiff_t j = 0;
    for (; j + PARTIAL_SUMS <= n_columns; j += PARTIAL_SUMS)
        for (int lane = 0; lane < PARTIAL_SUMS; lane++) {
            double entry = load_scalar(row, j + lane, is_float32) * scale;
            partial[lane] += entry * entry;
        }
    for (int lane = 0; j + lane < n_columns; lane++) {
        double entry = load_scalar(row, j + lane, is_float32) * scale;
        partial[lane] += entry * entry;
    }
    return folded(partial);
}

static inline const char *row_address(const dpfast_table *table, ptrdiff_t r)
{
    return table->data + (table->rows ? (ptrdiff_t)table->rows[r] : r) * table->row_stride;
}

/* Pairs of doubles, which every processor here has: copies gain nothing from wider vectors. */
typedef double dpfast_pair __attribute__((vector_size(16), aligned(8), may_alias));
typedef int64_t dpfast_words __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define DPFAST_INTERLEAVED(one, other, i) __builtin_shufflevector(one, other, i, 2 + (i))
#else
#define DPFAST_INTERLEAVED(one, other, i) __builtin_shuffle(one, other, (dpfast_words){(i), 2 + (i)})
#endif

/* Rows of an even number of columns whose entries are adjacent, to rows of `stride`, by squares of two. A line of a column
 * is used up at once: columns often lie so that their lines compete for one cache set. What follows of it is asked for
 * meanwhile: the processor does not read ahead where it goes from one column to the next so soon. */
static DPFAST_INLINE void turn_columns(const char *const *tops, ptrdiff_t n_columns, ptrdiff_t n_rows, ptrdiff_t stride,
                                       double *rows)
{
    for (ptrdiff_t first = 0; first < n_rows; first += ROWS_IN_LINE)
        for (ptrdiff_t j = 0; j < n_columns; j += 2) {
            const double *one = (const double *)tops[j] + first, *other = (const double *)tops[j + 1] + first;
            double *to = rows + first * stride + j;
            __builtin_prefetch(one + n_rows);
            __builtin_prefetch(other + n_rows);
            ptrdiff_t left = n_rows - first < ROWS_IN_LINE ? n_rows - first : ROWS_IN_LINE;
            if (left == ROWS_IN_LINE) {
#pragma GCC unroll 4
                for (int r = 0; r < ROWS_IN_LINE; r += 2) {
                    dpfast_pair upper = *(const dpfast_pair *)(one + r), lower = *(const dpfast_pair *)(other + r);
                    *(dpfast_pair *)(to + r * stride) = DPFAST_INTERLEAVED(upper, lower, 0);
                    *(dpfast_pair *)(to + (r + 1) * stride) = DPFAST_INTERLEAVED(upper, lower, 1);
                }
                continue;
            }
            for (ptrdiff_t r = 0; r < left; r++) {
                to[r * stride] = one[r];
                to[r * stride + 1] = other[r];
            }
        }
}

static inline void stage_columns(const dpfast_table *table, const char *const *tops, ptrdiff_t n_columns,
                                 ptrdiff_t n_rows, ptrdiff_t stride, char *staging)
{
    ptrdiff_t turned = 0;
    if (!table->rows && !table->is_float32 && table->row_stride == (ptrdiff_t)sizeof(double)) {
        turned = n_columns / 2 * 2;
        turn_columns(tops, turned, n_rows, stride, (double *)staging);
    }
    for (ptrdiff_t r = 0; turned < n_columns && r < n_rows; r++) {
        ptrdiff_t offset = (table->rows ? (ptrdiff_t)table->rows[r] : r) * table->row_stride;
        for (ptrdiff_t j = turned; j < n_columns; j++)
            if (table->is_float32)
                ((float *)staging)[r * stride + j] = *(const float *)(tops[j] + offset);
            else
                ((double *)staging)[r * stride + j] = *(const double *)(tops[j] + offset);
    }
}

/* The rows from `start` on of a table, copied to `staging` if their entries are not adjacent: a few columns at a time,
 * so that both sides stay in cache. */
static inline dpfast_table staged_rows(const dpfast_table *table, ptrdiff_t n_columns, ptrdiff_t start, ptrdiff_t n_rows,
                                double *staging)
{
    dpfast_table from = *table;
    if (from.rows)
        from.rows += start;
    else
        from.data += start * from.row_stride;
    ptrdiff_t item = from.is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double);
    if (!from.columns && (from.column_stride == item || n_columns <= 1))
        return from;
    for (ptrdiff_t first = 0; first < n_columns; first += STAGED_COLUMNS) {
        ptrdiff_t n_staged = n_columns - first < STAGED_COLUMNS ? n_columns - first : STAGED_COLUMNS;
        const char *tops[STAGED_COLUMNS];
        for (ptrdiff_t j = 0; j < n_staged; j++)
            tops[j] = from.columns ? from.columns[first + j] + (from.data - table->data)
                                   : from.data + (first + j) * from.column_stride;
        stage_columns(&from, tops, n_staged, n_rows, n_columns, (char *)staging + first * item);
    }
    const char *end = (const char *)staging + n_rows * n_columns * item;
    return (dpfast_table){(const char *)staging, NULL, n_columns * item, item, NULL, from.is_float32, end};
}

#endif
