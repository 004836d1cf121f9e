/* Rows times what coefficients leave of their outcomes, in one pass: mapped, clipped, rounded, summed.
 *
 * A block of rows is mapped (row_map.c) and turned, so that a column of the block lies in adjacent memory and vectors hold
 * one entry of eight rows. Everything after that is done to each row on its own, in one order of operations: products and
 * squares are added column after column, from 0, never fused. So what becomes of a row depends on nothing but the row, at
 * every vector width. Columns beyond which a row of weights is 0 are left out: adding 0 changes nothing.
 *
 * A row adds p r', p = W x or x, r = y - z or what the link makes of y and z, z = theta'x; r is scaled onto the clip of
 * slopes first where it is longer. The exponentials of links are of the processor's sums and products alone, in one
 * order, so that they have the same bits everywhere too. Scaling p by a power of two and r by its inverse changes nothing: p
 * is brought to a length of 1 to 2 first, exactly. r is then multiplied by the smaller of what that asks for and of what
 * brings ||p|| ||r|| to the clip, and both are rounded to integers. Their squared norms are exact in doubles, being below
 * 2^53 (a sum that passes 2^53 stays above it, because rounding is monotone); their product is compared with the bound in
 * 128 bits, and r multiplied by less until it holds: at the latest by 0, in step 50. No rounding error above matters to
 * privacy therefore.
 *
 * Sums of products of integers are kept in eight lanes of doubles, and moved to 64-bit totals before one can pass 2^53:
 * exact in any order, with or without fused multiply-add.
 *
 * The summed block of a person with several rows is tested as integers too, and all r of theirs are multiplied by one
 * factor, a function of the exact norm, until it holds. Where the norms of rows add up to less than the bound no block is
 * formed. The norm of a person's block that is counted is that of a sum in doubles, row after row. */
#include "residual_step.h"

#include <math.h>
#include <string.h>

#define ROUND_TO_INTEGER 6755399441055744.0 /* 1.5 * 2^52: as in gram.c */
/* Squared norms of p below this count as 0: they have lost bits. */
#define SMALLEST_SQUARE 0x1p-960
#define EXACT 0x1p53

enum { GROUP = DPFAST_GROUP };

__extension__ typedef unsigned __int128 wide;
typedef double vector __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t words __attribute__((vector_size(64), aligned(8), may_alias));

#define AT(place) (*(vector *)(place))
#define ALL(value) ((value) - (vector){0.0})

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(one, other, ...) __builtin_shufflevector(one, other, __VA_ARGS__)
#else
#define SHUFFLED(one, other, ...) __builtin_shuffle(one, other, (words){__VA_ARGS__})
#endif

/* Eight rows of eight entries to eight columns. */
static DPFAST_INLINE void turn_square(const double *rows, ptrdiff_t stride, double *columns, ptrdiff_t block_rows)
{
    vector a[GROUP], b[GROUP];
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++)
        a[i] = AT(rows + i * stride);
#pragma GCC unroll 4
    for (int i = 0; i < GROUP; i += 2) {
        b[i] = SHUFFLED(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = SHUFFLED(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < GROUP; i += 4)
#pragma GCC unroll 2
        for (int j = i; j < i + 2; j++) {
            a[j] = SHUFFLED(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[j + 2] = SHUFFLED(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        AT(columns + i * block_rows) = SHUFFLED(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        AT(columns + (i + 4) * block_rows) = SHUFFLED(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* Rows of n entries to columns, rounded up to eight: those beyond have what lies behind the rows. */
static DPFAST_INLINE void turn(const double *rows, ptrdiff_t n, ptrdiff_t n_rows, double *columns,
                               ptrdiff_t block_rows)
{
    if (n == 1)
        memcpy(columns, rows, (size_t)n_rows * sizeof *rows);
    else
        for (ptrdiff_t r = 0; r < n_rows; r += GROUP)
            for (ptrdiff_t j = 0; j < n; j += GROUP)
                turn_square(rows + r * n + j, n, columns + j * block_rows + r, block_rows);
}

/* Products of a tile of rows of weights with some groups of rows of the block. */
static DPFAST_INLINE void weigh_tile(const double *weights, ptrdiff_t n_columns, ptrdiff_t end, const double *columns,
                                     ptrdiff_t block_rows, int height, int width, double *out)
{
    vector sums[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++)
            sums[i][g] = ALL(0.0);
    for (ptrdiff_t j = 0; j < end; j++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++) {
            vector column = AT(columns + j * block_rows + g * GROUP);
#pragma GCC unroll 4
            for (int i = 0; i < height; i++)
                sums[i][g] += weights[i * n_columns + j] * column;
        }
#pragma GCC unroll 4
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++)
            AT(out + i * block_rows + g * GROUP) = sums[i][g];
}

static DPFAST_INLINE void weigh(const double *weights, const ptrdiff_t *ends, ptrdiff_t n, ptrdiff_t n_columns,
                                const double *columns, ptrdiff_t block_rows, ptrdiff_t n_rows, double *out)
{
    for (ptrdiff_t i = 0; i < n; i += n - i >= 4 ? 4 : 1) {
        int height = n - i >= 4 ? 4 : 1;
        ptrdiff_t end = 0;
        for (int k = 0; k < height; k++)
            end = ends[i + k] > end ? ends[i + k] : end;
        for (ptrdiff_t r = 0; r < n_rows; r += n_rows - r > GROUP ? 2 * GROUP : GROUP) {
            const double *row = weights + i * n_columns;
            double *to = out + i * block_rows + r;
            if (height == 4 && n_rows - r > GROUP)
                weigh_tile(row, n_columns, end, columns + r, block_rows, 4, 2, to);
            else if (height == 4)
                weigh_tile(row, n_columns, end, columns + r, block_rows, 4, 1, to);
            else if (n_rows - r > GROUP)
                weigh_tile(row, n_columns, end, columns + r, block_rows, 1, 2, to);
            else
                weigh_tile(row, n_columns, end, columns + r, block_rows, 1, 1, to);
        }
    }
}

static DPFAST_INLINE vector squared_norms(const double *columns, ptrdiff_t n, ptrdiff_t block_rows)
{
    vector total = ALL(0.0);
    for (ptrdiff_t i = 0; i < n; i++) {
        vector entries = AT(columns + i * block_rows);
        total += entries * entries;
    }
    return total;
}

/* 1/13! to 1/2!. */
static const double INVERSE_FACTORIALS[] = {0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26,
                                            0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
                                            0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7,
                                            0x1.5555555555555p-5,  0x1.5555555555555p-3,  0x1p-1};

static DPFAST_INLINE vector either(words choice, vector one, vector other)
{
    return (vector)((choice & (words)one) | (~choice & (words)other));
}

/* exp(a) for finite a <= 0, within 2 units in the last place above -708 and that of -708 below; 1 at 0, never above.
 *
 * a = n ln 2 + rest, n an integer: products of n, of 10 bits, with the upper part of ln 2, of 32, are exact. A Taylor sum
 * of |rest| <= 0.35 is left with an error of 2^-57, and n goes to the exponent. */
static DPFAST_INLINE vector exponential(vector a)
{
    a = either(a > ALL(-708.0), a, ALL(-708.0));
    vector shifted = a * 0x1.71547652b82fep+0 + ALL(ROUND_TO_INTEGER), n = shifted - ALL(ROUND_TO_INTEGER);
    vector rest = (a - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33, sum = ALL(INVERSE_FACTORIALS[0]);
#pragma GCC unroll 11
    for (int i = 1; i < 12; i++)
        sum = sum * rest + INVERSE_FACTORIALS[i];
    sum = 1.0 + (rest + rest * rest * sum);
    return sum * (vector)(((words)shifted + 1023) << 52);
}

/* r = y_j sigmoid(-u), u = sign(y_j) z_j: never longer than y. */
static DPFAST_INLINE vector logistic_residual(vector y, vector z)
{
    const words sign = (words){0} + INT64_MIN;
    vector u = (vector)((words)z ^ ((words)y & sign)), small = exponential((vector)((words)u | sign));
    return y * (either(u < ALL(0.0), ALL(1.0), small) / (1.0 + small));
}

/* r = y - (sum of y) softmax(z), z in the columns of r. The largest of exp(z_j - max z) is 1, and so their sum at least. */
static DPFAST_INLINE void softmax_residuals(const double *y, double *r, ptrdiff_t n, ptrdiff_t block_rows)
{
    vector largest = AT(r), weight = ALL(0.0), total = ALL(0.0);
    for (ptrdiff_t m = 0; m < n; m++) {
        vector z = AT(r + m * block_rows);
        largest = either(z > largest, z, largest);
        weight += AT(y + m * block_rows);
    }
    for (ptrdiff_t m = 0; m < n; m++) {
        vector size = exponential(AT(r + m * block_rows) - largest);
        AT(r + m * block_rows) = size;
        total += size;
    }
    vector share = weight / total;
    for (ptrdiff_t m = 0; m < n; m++)
        AT(r + m * block_rows) = AT(y + m * block_rows) - AT(r + m * block_rows) * share;
}

/* Turn z, in the columns of r, into residuals of the outcomes y. */
static DPFAST_INLINE void take_residuals(const dpfast_residual_step *step, const double *y, double *r,
                                         ptrdiff_t block_rows, ptrdiff_t n_padded)
{
    if (step->link == DPFAST_SOFTMAX) {
        for (ptrdiff_t row = 0; row < n_padded; row += GROUP)
            softmax_residuals(y + row, r + row, step->n_outcomes, block_rows);
        return;
    }
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        for (ptrdiff_t at = m * block_rows; at < m * block_rows + n_padded; at += GROUP)
            if (step->link == DPFAST_LOGISTIC)
                AT(r + at) = logistic_residual(AT(y + at), AT(r + at));
            else
                AT(r + at) = AT(y + at) - AT(r + at);
}

/* Scale residuals of a group of rows onto the clip of slopes where they are longer. The root of a square is exact: a
 * factor of 1 otherwise. */
static DPFAST_INLINE void clip_slopes(const dpfast_residual_step *step, double *r, ptrdiff_t block_rows)
{
    double clip = step->slope_clip, factors[GROUP];
    vector squared = squared_norms(r, step->n_outcomes, block_rows);
    AT(factors) = either(squared > ALL(clip * clip), squared, ALL(clip * clip));
    for (int lane = 0; lane < GROUP; lane++)
        factors[lane] = clip / sqrt(factors[lane]);
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        AT(r + m * block_rows) *= AT(factors);
}

static inline ptrdiff_t padded(ptrdiff_t n)
{
    return (n + GROUP - 1) / GROUP * GROUP;
}

static DPFAST_INLINE void take_products(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                        const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows, d = step->map_x->n_features, n_padded = padded(n_rows);
    turn(scratch->x_rows, d, n_padded, scratch->x, block_rows);
    /* Outcomes are turned where they are not needed yet; rows beyond the last are 0 throughout. */
    turn(scratch->y_rows, step->n_outcomes, n_padded, scratch->rounded, block_rows);
    if (step->has_constant)
        for (ptrdiff_t r = 0; r < n_padded; r++)
            scratch->x[d * block_rows + r] = r < n_rows;
    weigh(step->theta, step->theta_ends, step->n_outcomes, step->n_columns, scratch->x, block_rows, n_padded,
          scratch->r);
    take_residuals(step, scratch->rounded, scratch->r, block_rows, n_padded);
    if (step->slope_clip < HUGE_VAL)
        for (ptrdiff_t r = 0; r < n_padded; r += GROUP)
            clip_slopes(step, scratch->r + r, block_rows);
    if (step->whitening)
        weigh(step->whitening, step->ends, step->n_products, step->n_columns, scratch->x, block_rows, n_padded,
              scratch->p);
    for (ptrdiff_t r = 0; r < n_padded; r += GROUP) {
        AT(scratch->squared_p + r) = squared_norms(scratch->p + r, step->n_products, block_rows);
        AT(scratch->squared_r + r) = squared_norms(scratch->r + r, step->n_outcomes, block_rows);
    }
}

static DPFAST_INLINE vector to_units(vector entries, vector multipliers)
{
    return (entries * multipliers + ALL(ROUND_TO_INTEGER)) - ALL(ROUND_TO_INTEGER);
}

static inline int is_within(double squared_p, double squared_r, wide bound)
{
    return squared_r < EXACT && (wide)(uint64_t)squared_p * (uint64_t)squared_r <= bound;
}

static void round_residual(const dpfast_residual_step *step, ptrdiff_t row, double multiplier,
                           const dpfast_residual_scratch *scratch)
{
    double squared = 0.0;
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
        ptrdiff_t place = m * scratch->block_rows + row;
        double units = (scratch->r[place] * multiplier + ROUND_TO_INTEGER) - ROUND_TO_INTEGER;
        scratch->rounded[place] = units;
        squared += units * units;
    }
    scratch->squared_r[row] = squared;
}

/* Rounding has left a row a hair beyond. */
static void shorten(const dpfast_residual_step *step, ptrdiff_t row, const dpfast_residual_scratch *scratch)
{
    wide bound = (wide)step->row_bound_high << 64 | step->row_bound_low;
    for (int i = 0; !is_within(scratch->squared_p_units[row], scratch->squared_r[row], bound); i++) {
        scratch->multipliers[row] *= 1.0 - ldexp(1.0, i - 50);
        round_residual(step, row, scratch->multipliers[row], scratch);
    }
}

static DPFAST_INLINE void round_rows(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                     const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows;
    wide bound = (wide)step->row_bound_high << 64 | step->row_bound_low;
    for (ptrdiff_t r = 0; r < n_rows; r += GROUP) {
        vector squared_p = AT(scratch->squared_p + r);
        words counts = squared_p >= ALL(SMALLEST_SQUARE);
        /* Half the exponent: p times its inverse is 1 to 2 long. */
        words half = (((words)squared_p >> 52) - 1023) >> 1;
        vector shrinks = (vector)((1023 - half) << 52), grows = (vector)((1023 + half) << 52);
        vector scale = (vector)(counts & (words)(shrinks * step->unit_p));
        vector free = (vector)(counts & (words)(grows * step->unit_r));
        vector squared = squared_p * shrinks * shrinks * AT(scratch->squared_r + r);
        /* Most rows are clearly within the clip, where the quotient below is larger: they need no root. */
        words is_short = free * free * squared <= ALL(step->row_length * step->row_length * (1.0 - 0x1p-40));
        double *multipliers = scratch->multipliers + r;
        AT(multipliers) = free;
        for (int lane = 0; lane < GROUP; lane++)
            if (!is_short[lane]) {
                double onto_clip = step->row_length / sqrt(squared[lane]);
                multipliers[lane] = onto_clip < free[lane] ? onto_clip : free[lane];
            }
        vector squared_p_units = ALL(0.0), squared_r_units = ALL(0.0), multiplier = AT(multipliers);
        for (ptrdiff_t i = 0; i < step->n_products; i++) {
            vector units = to_units(AT(scratch->p + i * block_rows + r), scale);
            AT(scratch->p + i * block_rows + r) = units;
            squared_p_units += units * units;
        }
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            vector units = to_units(AT(scratch->r + m * block_rows + r), multiplier);
            AT(scratch->rounded + m * block_rows + r) = units;
            squared_r_units += units * units;
        }
        AT(scratch->squared_p_units + r) = squared_p_units;
        AT(scratch->squared_r + r) = squared_r_units;
        for (ptrdiff_t row = r; row < r + GROUP; row++)
            if (DPFAST_UNLIKELY(!is_within(scratch->squared_p_units[row], scratch->squared_r[row], bound)))
                shorten(step, row, scratch);
    }
}

/* Lanes of a tile of products += sums over the block. */
#define ADD_TILE(height, width, MULTIPLY_ADD)                                                                          \
    do {                                                                                                               \
        vector sums[height][width];                                                                                    \
        double *lanes = scratch->lanes + (i * step->n_outcomes + m) * GROUP;                                           \
        for (int a = 0; a < (height); a++)                                                                             \
            for (int b = 0; b < (width); b++)                                                                          \
                sums[a][b] = AT(lanes + (a * step->n_outcomes + b) * GROUP);                                           \
        for (ptrdiff_t r = 0; r < n_rows; r += GROUP)                                                                  \
            for (int b = 0; b < (width); b++) {                                                                        \
                vector residuals = AT(scratch->rounded + (m + b) * scratch->block_rows + r);                           \
                for (int a = 0; a < (height); a++)                                                                     \
                    sums[a][b] = MULTIPLY_ADD(AT(scratch->p + (i + a) * scratch->block_rows + r), residuals,           \
                                              sums[a][b]);                                                             \
            }                                                                                                          \
        for (int a = 0; a < (height); a++)                                                                             \
            for (int b = 0; b < (width); b++)                                                                          \
                AT(lanes + (a * step->n_outcomes + b) * GROUP) = sums[a][b];                                           \
    } while (0)

#define ADD_BODY(MULTIPLY_ADD)                                                                                         \
    for (ptrdiff_t i = 0; i < step->n_products; i += step->n_products - i >= 4 ? 4 : 1)                                \
        for (ptrdiff_t m = 0; m < step->n_outcomes; m += step->n_outcomes - m >= 2 ? 2 : 1) {                          \
            int is_high = step->n_products - i >= 4, is_wide = step->n_outcomes - m >= 2;                              \
            if (is_high && is_wide)                                                                                    \
                ADD_TILE(4, 2, MULTIPLY_ADD);                                                                          \
            else if (is_high)                                                                                          \
                ADD_TILE(4, 1, MULTIPLY_ADD);                                                                          \
            else if (is_wide)                                                                                          \
                ADD_TILE(1, 2, MULTIPLY_ADD);                                                                          \
            else                                                                                                       \
                ADD_TILE(1, 1, MULTIPLY_ADD);                                                                          \
        }

#define INSTANTIATE(level, target)                                                                                     \
    static target void take_products_##level(const dpfast_residual_step *step, ptrdiff_t n_rows,                       \
                                             const dpfast_residual_scratch *scratch)                                   \
    {                                                                                                                  \
        take_products(step, n_rows, scratch);                                                                          \
    }                                                                                                                  \
    static target void round_rows_##level(const dpfast_residual_step *step, ptrdiff_t n_rows,                          \
                                          const dpfast_residual_scratch *scratch)                                      \
    {                                                                                                                  \
        round_rows(step, n_rows, scratch);                                                                             \
    }                                                                                                                  \
    static target void add_##level(const dpfast_residual_step *step, ptrdiff_t n_rows,                                 \
                                   const dpfast_residual_scratch *scratch)                                             \
    {                                                                                                                  \
        ADD_BODY(MULTIPLY_ADD)                                                                                         \
    }

#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
INSTANTIATE(baseline, )
#if DPFAST_HAVE_X86_LEVELS
INSTANTIATE(avx2, DPFAST_TARGET_AVX2)
#include <immintrin.h>
#undef MULTIPLY_ADD
#define MULTIPLY_ADD(a, b, c) ((vector)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
INSTANTIATE(avx512, DPFAST_TARGET_AVX512)
#define CALL(name, level, ...)                                                                                         \
    ((level) == DPFAST_AVX512 ? name##_avx512(__VA_ARGS__)                                                             \
                              : (level) == DPFAST_AVX2 ? name##_avx2(__VA_ARGS__) : name##_baseline(__VA_ARGS__))
#else
#define CALL(name, level, ...) name##_baseline(__VA_ARGS__)
#endif

int dpfast_residual_rows(int level, const dpfast_residual_step *step, const dpfast_table *x, const dpfast_table *y,
                         ptrdiff_t start, ptrdiff_t n_rows, const dpfast_residual_scratch *scratch)
{
    ptrdiff_t width_x = step->map_x->n_features, width_y = step->n_outcomes, n_padded = padded(n_rows);
    if (!dpfast_map_rows(level, step->map_x, x, start, start + n_rows, &scratch->map_x,
                         scratch->x_rows, width_x))
        return DPFAST_X_MAPPED_TO_NAN;
    if (!dpfast_map_rows(level, step->map_y, y, start, start + n_rows, &scratch->map_y,
                         scratch->y_rows, width_y))
        return DPFAST_Y_MAPPED_TO_NAN;
    memset(scratch->x_rows + n_rows * width_x, 0, (size_t)((n_padded - n_rows) * width_x) * sizeof(double));
    memset(scratch->y_rows + n_rows * width_y, 0, (size_t)((n_padded - n_rows) * width_y) * sizeof(double));
    CALL(take_products, level, step, n_rows, scratch);
    return 0;
}

void dpfast_residual_round(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                           const dpfast_residual_scratch *scratch)
{
    CALL(round_rows, level, step, n_rows, scratch);
}

void dpfast_residual_add(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                         const dpfast_residual_scratch *scratch)
{
    CALL(add, level, step, n_rows, scratch);
}

void dpfast_residual_flush(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch, int64_t *totals)
{
    for (ptrdiff_t i = 0; i < step->n_products * step->n_outcomes; i++)
        for (int lane = 0; lane < GROUP; lane++) {
            totals[i] += (int64_t)scratch->lanes[i * GROUP + lane];
            scratch->lanes[i * GROUP + lane] = 0.0;
        }
}

double dpfast_residual_factor(const dpfast_residual_step *step, const int64_t *block)
{
    wide squared = 0, bound = (wide)step->person_bound_high << 64 | step->person_bound_low;
    for (ptrdiff_t i = 0; i < step->n_products * step->n_outcomes; i++) {
        uint64_t magnitude = block[i] < 0 ? -(uint64_t)block[i] : (uint64_t)block[i];
        squared += (wide)magnitude * magnitude;
    }
    if (squared <= bound)
        return 1.0;
    /* Below 1 whatever the length: the test of integers decides. */
    return fmin(step->person_length / sqrt((double)squared), 1.0 - 0x1p-53);
}

void dpfast_residual_round_again(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last, double factor,
                                 const dpfast_residual_scratch *scratch)
{
    for (ptrdiff_t row = first; row < last; row++)
        round_residual(step, row, scratch->multipliers[row] * factor, scratch);
}

static void sum_block(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                      const dpfast_residual_scratch *scratch)
{
    for (ptrdiff_t i = 0; i < step->n_products; i++)
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            int64_t total = 0;
            for (ptrdiff_t row = first; row < last; row++)
                total += (int64_t)scratch->p[i * scratch->block_rows + row] *
                         (int64_t)scratch->rounded[m * scratch->block_rows + row];
            scratch->person[i * step->n_outcomes + m] = total;
        }
}

/* Norms of rows that add up to less than the bound need no block: errors of their sum, of 64 at most, are below 2^-44. */
static int is_clearly_within(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                             const dpfast_residual_scratch *scratch)
{
    double length = 0.0, bound = (double)((wide)step->person_bound_high << 64 | step->person_bound_low);
    for (ptrdiff_t row = first; row < last; row++)
        length += sqrt(scratch->squared_p_units[row] * scratch->squared_r[row]);
    return length * length * (1.0 + 0x1p-38) <= bound;
}

void dpfast_residual_hold(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                          const dpfast_residual_scratch *scratch)
{
    if (is_clearly_within(step, first, last, scratch))
        return;
    sum_block(step, first, last, scratch);
    double factor = dpfast_residual_factor(step, scratch->person);
    for (int i = 0; factor < 1.0; i++) {
        dpfast_residual_round_again(step, first, last, factor, scratch);
        sum_block(step, first, last, scratch);
        if (dpfast_residual_factor(step, scratch->person) == 1.0)
            return;
        factor *= 1.0 - ldexp(1.0, i - 50);
    }
}

void dpfast_residual_squares(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                             const dpfast_residual_scratch *scratch)
{
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        for (ptrdiff_t row = first; row < last; row++) {
            double residual = scratch->r[m * scratch->block_rows + row];
            scratch->squares[m] += residual * residual;
        }
}

void dpfast_residual_hold_squares(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                  int64_t *totals)
{
    double squared = 0.0, in_units = 0.0, multiplier = step->unit_squares;
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        squared += scratch->squares[m] * scratch->squares[m];
    double onto_bound = step->squares_length / sqrt(squared);
    multiplier = onto_bound < multiplier ? onto_bound : multiplier;
    for (int i = 0;; i++) {
        in_units = 0.0;
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            double units = (scratch->squares[m] * multiplier + ROUND_TO_INTEGER) - ROUND_TO_INTEGER;
            in_units += units * units;
        }
        if (in_units <= step->squares_bound)
            break;
        multiplier *= 1.0 - ldexp(1.0, i - 50);
    }
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
        totals[m] += (int64_t)((scratch->squares[m] * multiplier + ROUND_TO_INTEGER) - ROUND_TO_INTEGER);
        scratch->squares[m] = 0.0;
    }
}

void dpfast_residual_outer(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                           const dpfast_residual_scratch *scratch)
{
    for (ptrdiff_t row = first; row < last; row++)
        for (ptrdiff_t i = 0; i < step->n_products; i++)
            for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
                scratch->outer[i * step->n_outcomes + m] +=
                    scratch->p[i * scratch->block_rows + row] * scratch->r[m * scratch->block_rows + row];
}

static void count(const dpfast_residual_step *step, double squared_size, int64_t *counts)
{
    /* A half octave of the norm is an octave of its square: the exponent says which, exactly. */
    ptrdiff_t bin = squared_size < SMALLEST_SQUARE ? 0 : (ptrdiff_t)ilogb(squared_size) - step->first_bin + 1;
    counts[bin < 0 ? 0 : bin < step->n_bins ? bin : step->n_bins - 1]++;
}

void dpfast_residual_count_rows(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                const dpfast_residual_scratch *scratch, int64_t *counts)
{
    for (ptrdiff_t row = 0; row < n_rows; row++)
        count(step, scratch->squared_p[row] * scratch->squared_r[row], counts);
}

void dpfast_residual_count_outer(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                 int64_t *counts)
{
    double squared = 0.0;
    for (ptrdiff_t i = 0; i < step->n_products * step->n_outcomes; i++) {
        squared += scratch->outer[i] * scratch->outer[i];
        scratch->outer[i] = 0.0;
    }
    count(step, squared, counts);
}
