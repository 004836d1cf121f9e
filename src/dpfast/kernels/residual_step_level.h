/* Bodies of the loops of residual_step.c over rows, WIDTH of them at a time; see there. Included once per level. */
#include "turn_level.h"

/* Products of a tile of rows of weights with some groups of rows of the block. */
static DPFAST_INLINE TARGET void LEVEL(weigh_tile)(const double *weights, ptrdiff_t n_columns, ptrdiff_t end,
                                                   const double *columns, ptrdiff_t block_rows, int height, int width,
                                                   double *out)
{
    VECTOR sums[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++)
            sums[i][g] = ALL(0.0);
    for (ptrdiff_t j = 0; j < end; j++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++) {
            VECTOR column = AT(columns + j * block_rows + g * WIDTH);
#pragma GCC unroll 4
            for (int i = 0; i < height; i++)
                sums[i][g] += weights[i * n_columns + j] * column;
        }
#pragma GCC unroll 4
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int g = 0; g < width; g++)
            AT(out + i * block_rows + g * WIDTH) = sums[i][g];
}

static DPFAST_INLINE TARGET void LEVEL(weigh)(const double *weights, const ptrdiff_t *ends, ptrdiff_t n,
                                              ptrdiff_t n_columns, const double *columns, ptrdiff_t block_rows,
                                              ptrdiff_t n_rows, double *out)
{
    for (ptrdiff_t i = 0; i < n; i += n - i >= 4 ? 4 : 1) {
        int height = n - i >= 4 ? 4 : 1;
        ptrdiff_t end = 0;
        for (int k = 0; k < height; k++)
            end = ends[i + k] > end ? ends[i + k] : end;
        for (ptrdiff_t r = 0; r < n_rows; r += n_rows - r > WIDTH ? 2 * WIDTH : WIDTH) {
            const double *row = weights + i * n_columns;
            double *to = out + i * block_rows + r;
            if (height == 4 && n_rows - r > WIDTH)
                LEVEL(weigh_tile)(row, n_columns, end, columns + r, block_rows, 4, 2, to);
            else if (height == 4)
                LEVEL(weigh_tile)(row, n_columns, end, columns + r, block_rows, 4, 1, to);
            else if (n_rows - r > WIDTH)
                LEVEL(weigh_tile)(row, n_columns, end, columns + r, block_rows, 1, 2, to);
            else
                LEVEL(weigh_tile)(row, n_columns, end, columns + r, block_rows, 1, 1, to);
        }
    }
}

static DPFAST_INLINE TARGET VECTOR LEVEL(squared_norms)(const double *columns, ptrdiff_t n, ptrdiff_t block_rows)
{
    VECTOR total = ALL(0.0);
    for (ptrdiff_t i = 0; i < n; i++) {
        VECTOR entries = AT(columns + i * block_rows);
        total += entries * entries;
    }
    return total;
}

static DPFAST_INLINE TARGET VECTOR LEVEL(either)(WORDS choice, VECTOR one, VECTOR other)
{
    return (VECTOR)((choice & (WORDS)one) | (~choice & (WORDS)other));
}

/* exp(a) for finite a <= 0, within 2 units in the last place above -708 and that of -708 below; 1 at 0, never above.
 *
 * a = n ln 2 + rest, n an integer: products of n, of 10 bits, with the upper part of ln 2, of 32, are exact. A Taylor
 * sum of |rest| <= 0.35 is left with an error of 2^-57, and n goes to the exponent. */
static DPFAST_INLINE TARGET VECTOR LEVEL(exponential)(VECTOR a)
{
    a = LEVEL(either)(a > ALL(-708.0), a, ALL(-708.0));
    VECTOR shifted = a * 0x1.71547652b82fep+0 + ALL(ROUND_TO_INTEGER), n = shifted - ALL(ROUND_TO_INTEGER);
    VECTOR rest = (a - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33, sum = ALL(INVERSE_FACTORIALS[0]);
#pragma GCC unroll 11
    for (int i = 1; i < 12; i++)
        sum = sum * rest + INVERSE_FACTORIALS[i];
    sum = 1.0 + (rest + rest * rest * sum);
    return sum * (VECTOR)(((WORDS)shifted + 1023) << 52);
}

/* r = y_j sigmoid(-u), u = sign(y_j) z_j: never longer than y. */
static DPFAST_INLINE TARGET VECTOR LEVEL(logistic_residual)(VECTOR y, VECTOR z)
{
    const WORDS sign = (WORDS){0} + INT64_MIN;
    VECTOR u = (VECTOR)((WORDS)z ^ ((WORDS)y & sign)), small = LEVEL(exponential)((VECTOR)((WORDS)u | sign));
    return y * (LEVEL(either)(u < ALL(0.0), ALL(1.0), small) / (1.0 + small));
}

/* r = y - (sum of y) softmax(z), z in the columns of r: the largest exp(z_j - max z) is 1, their sum at least. */
static DPFAST_INLINE TARGET void LEVEL(softmax_residuals)(const double *y, double *r, ptrdiff_t n, ptrdiff_t block_rows)
{
    VECTOR largest = AT(r), weight = ALL(0.0), total = ALL(0.0);
    for (ptrdiff_t m = 0; m < n; m++) {
        VECTOR z = AT(r + m * block_rows);
        largest = LEVEL(either)(z > largest, z, largest);
        weight += AT(y + m * block_rows);
    }
    for (ptrdiff_t m = 0; m < n; m++) {
        VECTOR size = LEVEL(exponential)(AT(r + m * block_rows) - largest);
        AT(r + m * block_rows) = size;
        total += size;
    }
    VECTOR share = weight / total;
    for (ptrdiff_t m = 0; m < n; m++)
        AT(r + m * block_rows) = AT(y + m * block_rows) - AT(r + m * block_rows) * share;
}

/* Up to `threshold` - width the residual, from `threshold` + width on `threshold`, and a parabola between. */
static DPFAST_INLINE TARGET VECTOR LEVEL(huber_residual)(VECTOR residual, double threshold, double width)
{
    const WORDS sign = (WORDS){0} + INT64_MIN;
    VECTOR end = ALL(threshold + width), size = (VECTOR)((WORDS)residual & ~sign);
    size = LEVEL(either)(size < end, size, end);
    VECTOR bent = size - ALL(threshold - width);
    bent = LEVEL(either)(bent > ALL(0.0), bent, ALL(0.0));
    size -= bent * bent * (0.25 / width);
    return (VECTOR)((WORDS)size | ((WORDS)residual & sign));
}

/* From level - 1 to level, by a cubic over residuals up to width. */
static DPFAST_INLINE TARGET VECTOR LEVEL(quantile_residual)(VECTOR residual, double level, double width)
{
    VECTOR u = residual / width;
    u = LEVEL(either)(u < ALL(1.0), u, ALL(1.0));
    u = LEVEL(either)(u > ALL(-1.0), u, ALL(-1.0));
    return (level - 0.5) + u * (0.75 - 0.25 * u * u);
}

/* y less the rate: exp(z) up to three quarters of the largest, where the smoothing begins, then a parabola of z over two
 * thirds. z is capped before its exponential is taken, so that no rate is above the largest. */
static DPFAST_INLINE TARGET VECTOR LEVEL(poisson_residual)(VECTOR y, VECTOR z, double largest, double start)
{
    VECTOR beyond = z - start, below = LEVEL(either)(beyond < ALL(0.0), beyond, ALL(0.0));
    VECTOR rest = 1.0 - 1.5 * beyond, within = (0.75 * largest) * LEVEL(exponential)(below);
    rest = LEVEL(either)(rest > ALL(0.0), rest, ALL(0.0));
    return y - LEVEL(either)(beyond > ALL(0.0), largest - (0.25 * largest) * (rest * rest), within);
}

/* Turn z, in the columns of r, into residuals of the outcomes y. */
static DPFAST_INLINE TARGET void LEVEL(take_residuals)(const dpfast_residual_step *step, const double *y, double *r,
                                                       ptrdiff_t block_rows, ptrdiff_t n_padded)
{
    if (step->link == DPFAST_SOFTMAX) {
        for (ptrdiff_t row = 0; row < n_padded; row += WIDTH)
            LEVEL(softmax_residuals)(y + row, r + row, step->n_outcomes, block_rows);
        return;
    }
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        for (ptrdiff_t at = m * block_rows; at < m * block_rows + n_padded; at += WIDTH)
            if (step->link == DPFAST_LOGISTIC)
                AT(r + at) = LEVEL(logistic_residual)(AT(y + at), AT(r + at));
            else if (step->link == DPFAST_HUBER)
                AT(r + at) = LEVEL(huber_residual)(AT(y + at) - AT(r + at), step->level, step->width);
            else if (step->link == DPFAST_QUANTILE)
                AT(r + at) = LEVEL(quantile_residual)(AT(y + at) - AT(r + at), step->level, step->width);
            else if (step->link == DPFAST_POISSON)
                AT(r + at) = LEVEL(poisson_residual)(AT(y + at), AT(r + at), step->level, step->width);
            else
                AT(r + at) = AT(y + at) - AT(r + at);
}

/* Residuals of outcomes, and norms, where products are there, and theta'x in the place of residuals. */
static DPFAST_INLINE TARGET void LEVEL(complete_rows)(const dpfast_residual_step *step, ptrdiff_t n_padded,
                                                      const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows;
    /* Outcomes are turned where they are not needed yet; rows beyond the last are 0 throughout. */
    LEVEL(turn)(scratch->y_rows, step->n_outcomes, n_padded, scratch->rounded, block_rows);
    LEVEL(take_residuals)(step, scratch->rounded, scratch->r, block_rows, n_padded);
    for (ptrdiff_t r = 0; r < n_padded; r += WIDTH) {
        if (!scratch->is_kept)
            AT(scratch->squared_p + r) = LEVEL(squared_norms)(scratch->p + r, step->n_products, block_rows);
        AT(scratch->squared_r + r) = LEVEL(squared_norms)(scratch->r + r, step->n_outcomes, block_rows);
    }
}

/* Take the products, in units, and norms of an earlier pass. */
static DPFAST_INLINE TARGET void LEVEL(take_kept)(const dpfast_residual_step *step,
                                                  const dpfast_residual_scratch *scratch)
{
    size_t rows = (size_t)scratch->block_rows;
    for (size_t i = 0; i < (size_t)step->n_products * rows; i++)
        scratch->p[i] = (double)scratch->kept[i];
    memcpy(scratch->squared_p, scratch->kept_sizes, rows * sizeof(double));
    memcpy(scratch->squared_p_units, scratch->kept_sizes + rows, rows * sizeof(double));
    memcpy(scratch->lightened, scratch->kept_sizes + 2 * rows, rows * sizeof(double));
}

static TARGET void LEVEL(take_products)(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                        const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows, d = step->map_x->n_features, n_padded = padded(n_rows);
    LEVEL(turn)(scratch->x_rows, d, n_padded, scratch->x, block_rows);
    if (step->has_constant)
        for (ptrdiff_t r = 0; r < n_padded; r++)
            scratch->x[d * block_rows + r] = r < n_rows;
    LEVEL(weigh)(step->theta, step->theta_ends, step->n_outcomes, step->n_columns, scratch->x, block_rows, n_padded,
                 scratch->r);
    if (scratch->is_kept)
        LEVEL(take_kept)(step, scratch);
    else if (step->whitening)
        LEVEL(weigh)(step->whitening, step->ends, step->n_products, step->n_columns, scratch->x, block_rows, n_padded,
                     scratch->p);
    LEVEL(complete_rows)(step, n_padded, scratch);
}

/* The same of products that were looked up, of outcomes and then of the whitening, row by row. */
static TARGET void LEVEL(take_looked_up)(const dpfast_residual_step *step, ptrdiff_t stride, ptrdiff_t n_rows,
                                         const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows, n_padded = padded(n_rows);
    for (ptrdiff_t r = 0; r < n_padded; r += WIDTH) {
        const double *of_outcomes = scratch->looked_up + r * stride, *products = of_outcomes + padded(step->n_outcomes);
        for (ptrdiff_t m = 0; m < step->n_outcomes; m += WIDTH)
            LEVEL(turn_square)(of_outcomes + m, stride, scratch->r + m * block_rows + r, block_rows);
        for (ptrdiff_t i = 0; i < step->n_products; i += WIDTH)
            LEVEL(turn_square)(products + i, stride, scratch->p + i * block_rows + r, block_rows);
    }
    LEVEL(complete_rows)(step, n_padded, scratch);
}

static DPFAST_INLINE TARGET VECTOR LEVEL(to_units)(VECTOR entries, VECTOR multipliers)
{
    return (entries * multipliers + ALL(ROUND_TO_INTEGER)) - ALL(ROUND_TO_INTEGER);
}

static TARGET void LEVEL(round_rows)(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                     const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows;
    wide bound = (wide)step->row_bound_high << 64 | step->row_bound_low;
    for (ptrdiff_t r = 0; r < padded(n_rows); r += WIDTH) {
        VECTOR squared_p = AT(scratch->squared_p + r);
        WORDS counts = squared_p >= ALL(SMALLEST_SQUARE);
        /* Half the exponent: p times its inverse is 1 to 2 long. */
        WORDS half = (((WORDS)squared_p >> 52) - 1023) >> 1;
        VECTOR shrinks = (VECTOR)((1023 - half) << 52), grows = (VECTOR)((1023 + half) << 52);
        VECTOR scale = (VECTOR)(counts & (WORDS)(shrinks * step->unit_p));
        VECTOR free = (VECTOR)(counts & (WORDS)(grows * step->unit_r));
        VECTOR squared = squared_p * shrinks * shrinks * AT(scratch->squared_r + r);
        /* Most rows are clearly within the clip, where the quotient below is larger: they need no root. */
        WORDS is_short = free * free * squared <= ALL(step->row_length * step->row_length * (1.0 - 0x1p-40));
        double *multipliers = scratch->multipliers + r;
        AT(multipliers) = free;
        for (int lane = 0; lane < WIDTH; lane++)
            if (!is_short[lane]) {
                double onto_clip = step->row_length / sqrt(squared[lane]);
                multipliers[lane] = onto_clip < free[lane] ? onto_clip : free[lane];
            }
        VECTOR squared_p_units = ALL(0.0), squared_r_units = ALL(0.0), multiplier = AT(multipliers);
        for (ptrdiff_t i = 0; i < (scratch->is_kept ? 0 : step->n_products); i++) {
            VECTOR units = LEVEL(to_units)(AT(scratch->p + i * block_rows + r), scale);
            AT(scratch->p + i * block_rows + r) = units;
            squared_p_units += units * units;
        }
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            VECTOR units = LEVEL(to_units)(AT(scratch->r + m * block_rows + r), multiplier);
            AT(scratch->rounded + m * block_rows + r) = units;
            squared_r_units += units * units;
        }
        if (!scratch->is_kept)
            AT(scratch->squared_p_units + r) = squared_p_units;
        AT(scratch->squared_r + r) = squared_r_units;
        for (ptrdiff_t row = r; row < r + WIDTH; row++)
            if (DPFAST_UNLIKELY(!is_within(scratch->squared_p_units[row], scratch->squared_r[row], bound)))
                shorten(step, row, scratch);
    }
}

/* Lanes of a tile of products += sums over the block. Lanes are those of GROUP rows, WIDTH of them at a time. */
static DPFAST_INLINE TARGET void LEVEL(add_tile)(const double *p, const double *r, ptrdiff_t block_rows,
                                                 ptrdiff_t n_rows, ptrdiff_t n_outcomes, int height, int width,
                                                 double *lanes)
{
    VECTOR sums[4][2];
    for (int part = 0; part < GROUP; part += WIDTH) {
#pragma GCC unroll 4
        for (int a = 0; a < height; a++)
#pragma GCC unroll 2
            for (int b = 0; b < width; b++)
                sums[a][b] = AT(lanes + (a * n_outcomes + b) * GROUP + part);
        for (ptrdiff_t row = part; row < n_rows; row += GROUP)
#pragma GCC unroll 2
            for (int b = 0; b < width; b++) {
                VECTOR residuals = AT(r + b * block_rows + row);
#pragma GCC unroll 4
                for (int a = 0; a < height; a++)
                    sums[a][b] = MULTIPLY_ADD(AT(p + a * block_rows + row), residuals, sums[a][b]);
            }
#pragma GCC unroll 4
        for (int a = 0; a < height; a++)
#pragma GCC unroll 2
            for (int b = 0; b < width; b++)
                AT(lanes + (a * n_outcomes + b) * GROUP + part) = sums[a][b];
    }
}

static TARGET void LEVEL(add)(const dpfast_residual_step *step, ptrdiff_t n_rows,
                              const dpfast_residual_scratch *scratch)
{
    ptrdiff_t block_rows = scratch->block_rows, n_outcomes = step->n_outcomes, n_padded = padded(n_rows);
    for (ptrdiff_t i = 0; i < step->n_products; i += step->n_products - i >= 4 ? 4 : 1)
        for (ptrdiff_t m = 0; m < n_outcomes; m += n_outcomes - m >= 2 ? 2 : 1) {
            int is_high = step->n_products - i >= 4, is_wide = n_outcomes - m >= 2;
            const double *p = scratch->p + i * block_rows, *r = scratch->rounded + m * block_rows;
            double *lanes = scratch->lanes + (i * n_outcomes + m) * GROUP;
            if (is_high && is_wide)
                LEVEL(add_tile)(p, r, block_rows, n_padded, n_outcomes, 4, 2, lanes);
            else if (is_high)
                LEVEL(add_tile)(p, r, block_rows, n_padded, n_outcomes, 4, 1, lanes);
            else if (is_wide)
                LEVEL(add_tile)(p, r, block_rows, n_padded, n_outcomes, 1, 2, lanes);
            else
                LEVEL(add_tile)(p, r, block_rows, n_padded, n_outcomes, 1, 1, lanes);
        }
}
