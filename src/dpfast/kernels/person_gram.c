/* One person's block of products against its bounds; see people.pyx for the design.
 *
 * Entries of a block are below 2^62 and so are its Frobenius norms (at most the product of those of its rows), so
 * squared norms are exact in 128 bits, and the comparison with a bound is one of integers. Sums in doubles come first
 * where products are in doubles: where they are clearly within the bounds the answer is the same, at a fraction of the
 * cost. No bits but those of this answer depend on them, so each level adds in an order of its own.
 *
 * levels.h includes this file again: its loops over blocks in doubles are compiled once per vector width. */
#ifndef LEVEL /* once, before the loops */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "gram.h"
#include "cpu.h"

/* Bounds on the Frobenius norms of the products within x (xx) and of those between x and y (xy), in grid units. */
typedef struct {
    double xx, xy; /* norms onto which a larger block is scaled; infinite for none: rows within theirs pass no limit */
    uint64_t xx_high, xx_low, xy_high, xy_low; /* largest squared norms after rounding: 128-bit integers */
} dpfast_block_bounds;

/* Where a person's products lie: n_features rows of `stride` words, a multiple of 8, as those of dpfast_add_products. */
typedef struct {
    ptrdiff_t n_features, n_outcomes, stride;
} dpfast_block_shape;

__extension__ typedef unsigned __int128 squared_norm;
__extension__ typedef __int128 wide_sum;

/* Sums in doubles are of at most 2^28 terms, each of which is below 2^107 and, conversions and weights included, within
 * 2^-50 of itself, in any order: they are within 2^-24 of the sum of the terms' sizes, and so is the bound of itself. */
#define CERTAINLY (1.0 + 0x1p-23)
enum { LANES = 8, ROW_LANES = 4, MOST_COLUMNS = 1 << 14 };

static inline squared_norm square_of(int64_t value)
{
    return (squared_norm)((wide_sum)value * value);
}

static inline squared_norm wide(uint64_t high, uint64_t low)
{
    return (squared_norm)high << 64 | low;
}

static inline int64_t entry_of(const void *products, ptrdiff_t place, int in_doubles)
{
    return in_doubles ? (int64_t)((const double *)products)[place] : ((const int64_t *)products)[place];
}

/* The factor for the block is that for its rows, squared. Its rounding errors are a few 2^-53: taking off 2^-45 keeps
 * the scaled block's exact norm within the bound. */
static double multiplier_onto(squared_norm xx, squared_norm xy, const dpfast_block_bounds *bounds)
{
    if (xx <= wide(bounds->xx_high, bounds->xx_low) && xy <= wide(bounds->xy_high, bounds->xy_low))
        return 1.0;
    double factor = fmin(bounds->xx / sqrt((double)xx), bounds->xy / sqrt((double)xy));
    return sqrt(fmin(factor, 1.0)) * (1.0 - 0x1p-45);
}

static DPFAST_INLINE double block_multiplier(const void *products, const dpfast_block_shape *shape,
                                             const dpfast_block_bounds *bounds, int in_doubles)
{
    squared_norm diagonal = 0, above = 0, beside = 0, cross = 0;
    ptrdiff_t n_columns = bounds->xy < HUGE_VAL ? shape->n_features + shape->n_outcomes : shape->n_features;
    for (ptrdiff_t i = 0; i < shape->n_features; i++) {
        ptrdiff_t row = i * shape->stride;
        diagonal += square_of(entry_of(products, row + i, in_doubles));
        /* Two sums: one alone would wait for its carries. */
        ptrdiff_t last = shape->n_features - 1, j = i + 1;
        for (; j < last; j += 2) {
            above += square_of(entry_of(products, row + j, in_doubles));
            beside += square_of(entry_of(products, row + j + 1, in_doubles));
        }
        if (j == last)
            above += square_of(entry_of(products, row + j, in_doubles));
        for (j = shape->n_features; j < n_columns; j++)
            cross += square_of(entry_of(products, row + j, in_doubles));
    }
    return multiplier_onto(diagonal + 2 * (above + beside), cross, bounds);
}

/* What to multiply the rows of a block by, in place of 1, to bring it onto its bounds; 1 if it is within them. */
static double dpfast_block_multiplier(const int64_t *products, const dpfast_block_shape *shape,
                                      const dpfast_block_bounds *bounds)
{
    return block_multiplier(products, shape, bounds, 0);
}

/* The same of products in doubles. */
static double dpfast_block_multiplier_in_doubles(const double *products, const dpfast_block_shape *shape,
                                                 const dpfast_block_bounds *bounds)
{
    return block_multiplier(products, shape, bounds, 1);
}

/* Sum of the products of two symmetric matrices' entries: integers below 2^45, at most 2^16 of them. */
static squared_norm inner_product(const double *a, const double *b, ptrdiff_t n, ptrdiff_t stride)
{
    wide_sum diagonal = 0, above = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        diagonal += (wide_sum)(int64_t)a[i * stride + i] * (int64_t)b[i * stride + i];
        for (ptrdiff_t j = i + 1; j < n; j++)
            above += (wide_sum)(int64_t)a[i * stride + j] * (int64_t)b[i * stride + j];
    }
    return (squared_norm)(diagonal + 2 * above);
}

/* Weights of the columns from the diagonal on: none before it, half of theirs on it; and of columns beyond it. */
static const double from_diagonal[LANES + 1][LANES] = {
    {0.5, 1, 1, 1, 1, 1, 1, 1}, {0, 0.5, 1, 1, 1, 1, 1, 1}, {0, 0, 0.5, 1, 1, 1, 1, 1}, {0, 0, 0, 0.5, 1, 1, 1, 1},
    {0, 0, 0, 0, 0.5, 1, 1, 1}, {0, 0, 0, 0, 0, 0.5, 1, 1}, {0, 0, 0, 0, 0, 0, 0.5, 1}, {0, 0, 0, 0, 0, 0, 0, 0.5},
    {1, 1, 1, 1, 1, 1, 1, 1},
};

static DPFAST_INLINE double folded_lanes(const double *sums, int n)
{
    double total = 0.0;
    for (int lane = 0; lane < n; lane++)
        total += sums[lane];
    return total;
}

/* Of the entries above the diagonal and half of it, both times two: sums of products, and of the products' sizes. */
static DPFAST_INLINE double sum_of_products(const double *a, const double *b, ptrdiff_t n, ptrdiff_t stride,
                                            double *sizes)
{
    double sums[ROW_LANES] = {0.0}, of_sizes[ROW_LANES] = {0.0};
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *head = from_diagonal[i % ROW_LANES];
        for (ptrdiff_t j = i - i % ROW_LANES; j + ROW_LANES <= n; j += ROW_LANES, head = from_diagonal[LANES])
            for (int lane = 0; lane < ROW_LANES; lane++) {
                double product = a[i * stride + j + lane] * b[i * stride + j + lane] * head[lane];
                sums[lane] += product;
                of_sizes[lane] += fabs(product);
            }
        for (ptrdiff_t j = n - n % ROW_LANES > i ? n - n % ROW_LANES : i; j < n; j++) {
            double product = a[i * stride + j] * b[i * stride + j] * (j == i ? 0.5 : 1.0);
            sums[0] += product;
            of_sizes[0] += fabs(product);
        }
    }
    *sizes = 2.0 * folded_lanes(of_sizes, ROW_LANES);
    return 2.0 * folded_lanes(sums, ROW_LANES);
}

/* Products of rows of x and of y may differ in sign: what their sum errs by is in proportion to that of their sizes. */
static DPFAST_INLINE int rows_are_clearly_within(const double *of_x, const double *of_y, ptrdiff_t n, ptrdiff_t stride,
                                                 const dpfast_block_bounds *bounds)
{
    double sizes, xx = sum_of_products(of_x, of_x, n, stride, &sizes), xy = 0.0;
    if (of_y) {
        xy = sum_of_products(of_x, of_y, n, stride, &sizes);
        xy += (CERTAINLY - 1.0) * sizes;
    }
    return xx * CERTAINLY <= (double)wide(bounds->xx_high, bounds->xx_low) &&
           xy * CERTAINLY <= (double)wide(bounds->xy_high, bounds->xy_low);
}

/* Entries are at most 2^24, where adding and subtracting 1.5 * 2^52 rounds half to even. */
static DPFAST_INLINE void scale_pack(const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier)
{
    const double magic = 0x1.8p52;
    for (ptrdiff_t first = 0; first < pack->n_columns; first += pack->panel_width) {
        double *panel = pack->data + first / pack->panel_width * pack->panel_stride;
        for (ptrdiff_t k = 0; k < n_rows * pack->panel_width; k++)
            panel[k] = (panel[k] * multiplier + magic) - magic;
    }
}

DPFAST_AT_LEVELS(int, rows_are_clearly_within,
                 (const double *of_x, const double *of_y, ptrdiff_t n, ptrdiff_t stride,
                  const dpfast_block_bounds *bounds),
                 { return rows_are_clearly_within(of_x, of_y, n, stride, bounds); })

DPFAST_AT_LEVELS(void, scale_pack, (const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier),
                 { scale_pack(pack, n_rows, multiplier); })

#else /* once per level, as levels.h includes this file again */

/* Loops over vectors of WIDTH doubles. */

/* Entries of a block join the totals; returns their squares. */
static DPFAST_INLINE TARGET VECTOR LEVEL(add_entries)(const double *products, double *totals, int is_new)
{
    VECTOR sums = *(const VECTOR *)products, squares = sums * sums;
    if (!is_new)
        sums += *(const VECTOR *)totals;
    *(VECTOR *)totals = sums;
    return squares;
}

/* Add a block to totals, which hold nothing yet if they are new; returns whether it is clearly within its bounds. Two
 * chains for each row's sum: one alone would wait for its additions. */
static DPFAST_INLINE TARGET int LEVEL(add_and_test)(const double *products, const dpfast_block_shape *shape,
                                                    const double *weights, const dpfast_block_bounds *bounds,
                                                    double *totals, int is_new, int has_cross)
{
    VECTOR inside = {0.0}, beside = {0.0}, edge = {0.0}, cross = {0.0};
    ptrdiff_t n = shape->n_features, end = n - n % WIDTH;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *from = products + i * shape->stride, *head = from_diagonal[i % WIDTH];
        double *to = totals + i * shape->stride;
        ptrdiff_t j = i - i % WIDTH;
        if (j < end) {
            inside = MULTIPLY_ADD(LEVEL(add_entries)(from + j, to + j, is_new), *(const VECTOR *)head, inside);
            head = from_diagonal[LANES];
            j += WIDTH;
        }
        for (; j + WIDTH < end; j += 2 * WIDTH) {
            inside += LEVEL(add_entries)(from + j, to + j, is_new);
            beside += LEVEL(add_entries)(from + j + WIDTH, to + j + WIDTH, is_new);
        }
        if (j < end) {
            beside += LEVEL(add_entries)(from + j, to + j, is_new);
            j += WIDTH;
        }
        for (; j < shape->stride; j += WIDTH, head = from_diagonal[LANES]) {
            VECTOR squares = LEVEL(add_entries)(from + j, to + j, is_new);
            edge = MULTIPLY_ADD(squares, *(const VECTOR *)(weights + j) * *(const VECTOR *)head, edge);
            if (has_cross)
                cross = MULTIPLY_ADD(squares, *(const VECTOR *)(weights + shape->stride + j), cross);
        }
    }
    edge += 2.0 * (inside + beside);
    return folded_lanes((const double *)&edge, WIDTH) * CERTAINLY <= (double)wide(bounds->xx_high, bounds->xx_low) &&
           folded_lanes((const double *)&cross, WIDTH) * CERTAINLY <= (double)wide(bounds->xy_high, bounds->xy_low);
}

static TARGET int LEVEL(add_if_clearly_within)(const double *products, const dpfast_block_shape *shape,
                                               const double *weights, const dpfast_block_bounds *bounds, double *totals,
                                               int is_new)
{
    return bounds->xy < HUGE_VAL ? LEVEL(add_and_test)(products, shape, weights, bounds, totals, is_new, 1)
                                 : LEVEL(add_and_test)(products, shape, weights, bounds, totals, is_new, 0);
}

static TARGET void LEVEL(add_multiple)(const double *products, const dpfast_block_shape *shape, double factor,
                                       double *totals, int is_new)
{
    for (ptrdiff_t i = 0; i < shape->n_features; i++)
        for (ptrdiff_t j = i - i % WIDTH; j < shape->stride; j += WIDTH) {
            VECTOR sums = *(const VECTOR *)(products + i * shape->stride + j) * factor;
            if (!is_new)
                sums += *(const VECTOR *)(totals + i * shape->stride + j);
            *(VECTOR *)(totals + i * shape->stride + j) = sums;
        }
}

#endif

#ifndef LEVEL /* once, after them */

#define DPFAST_LOOPS "person_gram.c"
#include "levels.h"

/* totals += a person's products in doubles, if these are clearly within their bounds: a pass reads them once, and one
 * more takes them off again, exactly, if they are not. The columns' weights are those of dpfast_weight_columns. What new
 * totals hold does not count. Returns whether they were added. */
static int dpfast_add_if_clearly_within(int level, const double *products, const dpfast_block_shape *shape,
                                        const double *weights, const dpfast_block_bounds *bounds, double *totals,
                                        int is_new)
{
    if (shape->stride > MOST_COLUMNS)
        return 0;
    if (CALL(add_if_clearly_within, level, products, shape, weights, bounds, totals, is_new))
        return 1;
    if (!is_new)
        CALL(add_multiple, level, products, shape, -1.0, totals, 0);
    return 0;
}

/* totals += products in doubles. */
static void dpfast_add_products_of_one(int level, const double *products, const dpfast_block_shape *shape,
                                       double *totals, int is_new)
{
    CALL(add_multiple, level, products, shape, 1.0, totals, is_new);
}

/* How often squares of a row count that stand above the diagonal: `stride` weights within x, as many between x and y. */
static void dpfast_weight_columns(const dpfast_block_shape *shape, double *weights)
{
    for (ptrdiff_t j = 0; j < shape->stride; j++) {
        weights[j] = j < shape->n_features ? 2.0 : 0.0;
        weights[shape->stride + j] = j >= shape->n_features && j < shape->n_features + shape->n_outcomes ? 1.0 : 0.0;
    }
}

/* The same from the products of the block's rows with each other, as dpfast_multiply_rows gives them: ||X'X|| = ||XX'||,
 * and ||X'Y||^2 is the inner product of XX' and YY'. `of_y` is NULL without a bound on xy. */
static double dpfast_rows_multiplier(int level, const double *of_x, const double *of_y, ptrdiff_t n_rows,
                                     ptrdiff_t stride, const dpfast_block_bounds *bounds)
{
    squared_norm xy = 0;
    if (DPFAST_CALL(rows_are_clearly_within, level, of_x, of_y, n_rows, stride, bounds))
        return 1.0;
    if (of_y)
        xy = inner_product(of_x, of_y, n_rows, stride);
    return multiplier_onto(inner_product(of_x, of_x, n_rows, stride), xy, bounds);
}

/* Multiply packed rows, and round half to even again. */
static void dpfast_scale_pack(int level, const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier)
{
    DPFAST_CALL(scale_pack, level, pack, n_rows, multiplier);
}

/* totals += products (unless totals is NULL), products = 0; as far as they are used. */
static void dpfast_move_products(int64_t *products, const dpfast_block_shape *shape, int64_t *totals)
{
    for (ptrdiff_t i = 0; i < shape->n_features; i++) {
        int64_t *from = products + i * shape->stride;
        if (totals) {
            int64_t *to = totals + i * shape->stride;
            for (ptrdiff_t j = i; j < shape->stride; j++)
                to[j] += from[j];
        }
        /* Tiles reach below the diagonal, where nothing is read. */
        for (ptrdiff_t j = i; j < shape->stride; j++)
            from[j] = 0;
    }
}

#endif
