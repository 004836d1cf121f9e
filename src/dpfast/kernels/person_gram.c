/* One person's block of products against its bounds; see person_gram.pyx for the design.
 *
 * Entries of a block are below 2^62 and so are its Frobenius norms (at most the product of those of its rows), so
 * squared norms are exact in 128 bits, and the comparison with a bound is one of integers. Sums in doubles come first:
 * where they are clearly within the bounds the answer is the same, and costs a third. */
#include "person_gram.h"

#include <math.h>

__extension__ typedef unsigned __int128 squared_norm;
__extension__ typedef __int128 wide_sum;

static inline squared_norm square_of(int64_t value)
{
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    return (squared_norm)magnitude * magnitude;
}

static squared_norm squared_xx(const int64_t *products, ptrdiff_t n_features, ptrdiff_t stride)
{
    squared_norm diagonal = 0, above = 0;
    for (ptrdiff_t i = 0; i < n_features; i++) {
        diagonal += square_of(products[i * stride + i]);
        for (ptrdiff_t j = i + 1; j < n_features; j++)
            above += square_of(products[i * stride + j]);
    }
    return diagonal + 2 * above;
}

static squared_norm squared_xy(const int64_t *products, ptrdiff_t n_features, ptrdiff_t n_outcomes, ptrdiff_t stride)
{
    squared_norm total = 0;
    for (ptrdiff_t i = 0; i < n_features; i++)
        for (ptrdiff_t j = n_features; j < n_features + n_outcomes; j++)
            total += square_of(products[i * stride + j]);
    return total;
}

static inline squared_norm wide(uint64_t high, uint64_t low)
{
    return (squared_norm)high << 64 | low;
}

/* Sum of the products of two symmetric matrices' entries: integers below 2^45, at most 2^16 of them. */
static squared_norm inner_product(const double *a, const double *b, ptrdiff_t n)
{
    wide_sum diagonal = 0, above = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        diagonal += (wide_sum)(int64_t)a[i * n + i] * (int64_t)b[i * n + i];
        for (ptrdiff_t j = i + 1; j < n; j++)
            above += (wide_sum)(int64_t)a[i * n + j] * (int64_t)b[i * n + j];
    }
    return (squared_norm)(diagonal + 2 * above);
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

/* Sum of squares in doubles, of a row of which every entry is below 2^62. */
static double squared_entries(const int64_t *row, ptrdiff_t first, ptrdiff_t end)
{
    double partial[4] = {0.0, 0.0, 0.0, 0.0};
    ptrdiff_t j = first;
    for (; j + 4 <= end; j += 4)
        for (int lane = 0; lane < 4; lane++)
            partial[lane] += (double)row[j + lane] * (double)row[j + lane];
    for (; j < end; j++)
        partial[0] += (double)row[j] * (double)row[j];
    return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

/* A sum of positive terms over rows of 2^16 at most, row by row, is within 2^-35 of itself in doubles, conversions
 * included; so is the bound. */
static int is_clearly_within(const int64_t *products, ptrdiff_t n_features, ptrdiff_t n_outcomes, ptrdiff_t stride,
                             const dpfast_block_bounds *bounds)
{
    double diagonal = 0.0, above = 0.0, cross = 0.0;
    if (n_features + n_outcomes > 1 << 16)
        return 0;
    for (ptrdiff_t i = 0; i < n_features; i++) {
        const int64_t *row = products + i * stride;
        diagonal += (double)row[i] * (double)row[i];
        above += squared_entries(row, i + 1, n_features);
        cross += squared_entries(row, n_features, n_features + n_outcomes);
    }
    return (diagonal + 2.0 * above) * (1.0 + 0x1p-32) <= (double)wide(bounds->xx_high, bounds->xx_low) &&
           cross * (1.0 + 0x1p-32) <= (double)wide(bounds->xy_high, bounds->xy_low);
}

double dpfast_block_multiplier(const int64_t *products, ptrdiff_t n_features, ptrdiff_t n_outcomes, ptrdiff_t stride,
                               const dpfast_block_bounds *bounds)
{
    if (is_clearly_within(products, n_features, n_outcomes, stride, bounds))
        return 1.0;
    return multiplier_onto(squared_xx(products, n_features, stride),
                           squared_xy(products, n_features, n_outcomes, stride), bounds);
}

double dpfast_rows_multiplier(const double *of_x, const double *of_y, ptrdiff_t n_rows,
                              const dpfast_block_bounds *bounds)
{
    return multiplier_onto(inner_product(of_x, of_x, n_rows), of_y ? inner_product(of_x, of_y, n_rows) : 0, bounds);
}

/* Entries are at most 2^24, where adding and subtracting 1.5 * 2^52 rounds half to even. */
void dpfast_scale_pack(const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier)
{
    const double magic = 0x1.8p52;
    for (ptrdiff_t first = 0; first < pack->n_columns; first += pack->panel_width) {
        double *panel = pack->data + first / pack->panel_width * pack->panel_stride;
        for (ptrdiff_t k = 0; k < n_rows * pack->panel_width; k++)
            panel[k] = (panel[k] * multiplier + magic) - magic;
    }
}

void dpfast_move_products(int64_t *products, ptrdiff_t n_features, ptrdiff_t stride, int64_t *totals)
{
    for (ptrdiff_t i = 0; i < n_features; i++) {
        int64_t *from = products + i * stride;
        if (totals) {
            int64_t *to = totals + i * stride;
            for (ptrdiff_t j = i; j < stride; j++)
                to[j] += from[j];
        }
        /* Tiles reach below the diagonal, where nothing is read. */
        for (ptrdiff_t j = i; j < stride; j++)
            from[j] = 0;
    }
}
