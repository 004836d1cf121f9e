/* Rows times what coefficients leave of their outcomes, in one pass: mapped, clipped, rounded, summed.
 *
 * A block of rows is mapped (row_map.c) and turned, so that a column of the block lies in adjacent memory and vectors
 * hold one entry of two to eight rows (residual_step_level.h). Everything after that is done to each row on its own, in
 * one order of operations: products and squares are added column after column, from 0, never fused. So what becomes of
 * a row depends on nothing but the row, at every vector width. Columns beyond which a row of weights is 0 are left out:
 * adding 0 changes nothing.
 *
 * A row adds p r', p = W x or x, r = y - z or what the link makes of y and z, z = theta'x. Where p is longer than
 * `longest`, p is scaled onto it, and r by as much: the row and its outcomes count less, alike. Slopes of Huber's loss,
 * of quantiles and of counts are bounded, and stay. Where only what is beyond a length is summed, r is then multiplied
 * by 1 - beyond/(||p|| ||r||), or by 0. Exponentials and polynomials of links are of the processor's sums, products
 * and quotients alone, in one order, so that they have the same bits everywhere too. Scaling p by a power of two and r
 * by its inverse changes nothing: p is brought to a length of 1 to 2 first, exactly. r is then multiplied by the smaller of what that asks for and of what brings ||p|| ||r|| to the clip, and both are rounded
 * to integers. Their squared norms are exact in doubles, being below 2^53 (a sum that passes 2^53 stays above it,
 * because rounding is monotone); their product is compared with the bound in 128 bits, and r multiplied by less until
 * it holds: at the latest by 0, in step 50. No rounding error above matters to privacy therefore.
 *
 * Of rows with codes, W x and theta'x are sums of rows of public tables, one a number and a category: products of
 * doubles and sums in one order too, from the row alone, though not the order of its columns. Nothing after that knows.
 *
 * Where rows stay as they are, p and its norms do, from pass to pass: p in units, of 23 bits, is kept in single precision,
 * exactly. Another pass then reads rows for their residuals alone, and finds the same integers.
 *
 * Sums of products of integers are kept in eight lanes of doubles, and moved to 64-bit totals before one can pass 2^53:
 * exact in any order, with or without fused multiply-add.
 *
 * The summed block of a person with several rows is tested as integers too, and all r of theirs are multiplied by one
 * factor, a function of the exact norm, until it holds. Where the norms of rows add up to less than the bound no block
 * is formed. The norm of a person's block that is counted is that of a sum in doubles, row after row. */
#include <math.h>
#include <string.h>

#include "row_map.h"

enum { DPFAST_X_MAPPED_TO_NAN = 1, DPFAST_Y_MAPPED_TO_NAN = 2, DPFAST_GROUP = 8 };

/* What of outcomes y is left by z = theta'x: y - z; y_j sigmoid(-sign(y_j) z_j); y - (sum of y) softmax(z); minus the
 * slopes of Huber's loss, of a quantile's and of counts, smoothed (dpfast.solvers): these have bounds of their own. */
enum {
    DPFAST_IDENTITY = 0,
    DPFAST_LOGISTIC = 1,
    DPFAST_SOFTMAX = 2,
    DPFAST_HUBER = 3,
    DPFAST_QUANTILE = 4,
    DPFAST_POISSON = 5
};

/* What rows are multiplied by and held to: public. */
typedef struct {
    const dpfast_row_map *map_x, *map_y;
    ptrdiff_t n_columns;         /* entries of a mapped row, and the 1 that follows it if `has_constant` */
    int has_constant;
    ptrdiff_t n_outcomes, n_products; /* entries of r and of p */
    const double *theta;         /* n_outcomes by n_columns */
    int link;
    double level, width;         /* Huber's threshold, or the quantile's level, and half the width of the bend; or the
                                    largest rate of counts, and the z at which its smoothing begins */
    const double *whitening;     /* n_products by n_columns, or NULL where p is the row */
    const ptrdiff_t *theta_ends; /* columns beyond are 0, for each outcome, */
    const ptrdiff_t *ends;       /* and for each product */
    double longest;              /* norm of p onto which longer rows are scaled, and r by as much unless it is a slope's
                                    that is bounded anyhow, from Huber's on; infinite for none */
    double beyond;               /* only what exceeds this length is left of p r' */
    double unit_p, unit_r;       /* units of the grids of p and r, in 1: powers of two */
    double row_length;           /* norm of r, in units, onto which that of a row with ||p|| = 1 is scaled */
    uint64_t row_bound_high, row_bound_low; /* on ||p||^2 ||r||^2 of a row, in units */
    double person_length;                   /* the same of the summed block of a person with several rows */
    uint64_t person_bound_high, person_bound_low;
    double unit_squares, squares_length, squares_bound; /* of squared residuals; unit_squares is 0 if they are not summed */
    ptrdiff_t first_bin, n_bins; /* exponents of squared sizes that are counted */
} dpfast_residual_step;

/* Working space of one thread: columns of `block_rows` rows, a multiple of eight. */
typedef struct {
    ptrdiff_t block_rows;
    dpfast_map_scratch map_x, map_y;
    double *x_rows, *y_rows;     /* block_rows by columns, and eight entries more */
    double *x, *p, *r, *rounded; /* columns: of mapped rows, of products (those of x without whitening), residuals, in units */
    double *squared_p, *squared_r, *multipliers, *squared_p_units; /* one a row */
    double *squares, *square_multipliers;
    double *outer;               /* n_products by n_outcomes: one person's sum in doubles */
    int64_t *person;             /* and in units */
    double *looked_up;           /* block_rows by the stride of rows with codes */
    double *lanes;               /* n_products by n_outcomes by eight: sums in units that wait for their totals */
    double *lightened;           /* by what a row was multiplied to be no longer than `longest`: one a row */
    float *kept;                 /* p in units, laid out as p, that passes of one whitening share; NULL if none do */
    double *kept_sizes;          /* and their squared_p, squared_p_units and lightened */
    int is_kept;                 /* whether an earlier pass has left them there */
} dpfast_residual_scratch;

#define ROUND_TO_INTEGER 6755399441055744.0 /* 1.5 * 2^52: as in gram.c */
/* Squared norms of p below this count as 0: they have lost bits. */
#define SMALLEST_SQUARE 0x1p-960
#define EXACT 0x1p53

enum { GROUP = DPFAST_GROUP };

__extension__ typedef unsigned __int128 wide;

/* 1/13! to 1/2!. */
static const double INVERSE_FACTORIALS[] = {0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26,
                                            0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
                                            0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7,
                                            0x1.5555555555555p-5,  0x1.5555555555555p-3,  0x1p-1};

static inline ptrdiff_t padded(ptrdiff_t n)
{
    return (n + GROUP - 1) / GROUP * GROUP;
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

#define DPFAST_LOOPS "residual_step_level.h"
#include "levels.h"

/* Let a row, and residuals that are as long as outcomes, count for less. */
static void lighten(const dpfast_residual_step *step, ptrdiff_t row, const dpfast_residual_scratch *scratch)
{
    double factor = scratch->lightened[row], squared_p = 0.0, squared_r = 0.0;
    if (!scratch->is_kept) {
        factor = scratch->lightened[row] = step->longest / sqrt(scratch->squared_p[row]);
        for (ptrdiff_t i = 0; i < step->n_products; i++) {
            double *entry = scratch->p + i * scratch->block_rows + row;
            *entry *= factor;
            squared_p += *entry * *entry;
        }
        scratch->squared_p[row] = squared_p;
    }
    if (step->link == DPFAST_HUBER || step->link == DPFAST_QUANTILE || step->link == DPFAST_POISSON)
        return;
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
        double *entry = scratch->r + m * scratch->block_rows + row;
        *entry *= factor;
        squared_r += *entry * *entry;
    }
    scratch->squared_r[row] = squared_r;
}

static int map_outcomes(int level, const dpfast_residual_step *step, const dpfast_table *y, ptrdiff_t start,
                        ptrdiff_t n_rows, const dpfast_residual_scratch *scratch)
{
    ptrdiff_t width = step->n_outcomes;
    if (!dpfast_map_rows(level, step->map_y, y, start, start + n_rows, &scratch->map_y, scratch->y_rows, width))
        return DPFAST_Y_MAPPED_TO_NAN;
    memset(scratch->y_rows + n_rows * width, 0, (size_t)((padded(n_rows) - n_rows) * width) * sizeof(double));
    return 0;
}

/* Leave the part of p r' that is beyond a length. */
static void leave_excess(const dpfast_residual_step *step, ptrdiff_t row, const dpfast_residual_scratch *scratch)
{
    double size = sqrt(scratch->squared_p[row] * scratch->squared_r[row]), squared_r = 0.0;
    double factor = size > step->beyond ? 1.0 - step->beyond / size : 0.0;
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
        double *entry = scratch->r + m * scratch->block_rows + row;
        *entry *= factor;
        squared_r += *entry * *entry;
    }
    scratch->squared_r[row] = squared_r;
}

static void lighten_rows(const dpfast_residual_step *step, ptrdiff_t n_rows, const dpfast_residual_scratch *scratch)
{
    double squared_longest = step->longest * step->longest;
    for (ptrdiff_t row = 0; row < n_rows; row++) {
        if (!scratch->is_kept)
            scratch->lightened[row] = 1.0;
        if (DPFAST_UNLIKELY(scratch->is_kept ? scratch->lightened[row] != 1.0 : scratch->squared_p[row] > squared_longest))
            lighten(step, row, scratch);
        if (step->beyond > 0.0)
            leave_excess(step, row, scratch);
    }
}

/* Read `n_rows` <= block_rows rows from `start` on: their p, r and squared norms. Returns 0, or which table has NaN. */
static int dpfast_residual_rows(int level, const dpfast_residual_step *step, const dpfast_table *x,
                                const dpfast_table *y, ptrdiff_t start, ptrdiff_t n_rows,
                                const dpfast_residual_scratch *scratch)
{
    ptrdiff_t width = step->map_x->n_features;
    if (!dpfast_map_rows(level, step->map_x, x, start, start + n_rows, &scratch->map_x, scratch->x_rows, width))
        return DPFAST_X_MAPPED_TO_NAN;
    if (map_outcomes(level, step, y, start, n_rows, scratch))
        return DPFAST_Y_MAPPED_TO_NAN;
    memset(scratch->x_rows + n_rows * width, 0, (size_t)((padded(n_rows) - n_rows) * width) * sizeof(double));
    CALL(take_products, level, step, n_rows, scratch);
    lighten_rows(step, n_rows, scratch);
    return 0;
}

/* The same of rows of numbers and codes, an array a category. The basis of their map, without a centre of its own, is
 * theta, rounded up to eight columns, and then the whitening. */
static int dpfast_residual_coded_rows(int level, const dpfast_residual_step *step, const dpfast_coded_map *map,
                                      const dpfast_coded_scratch *coded, const dpfast_table *numbers,
                                      const int32_t *const *codes, const dpfast_table *y, ptrdiff_t start,
                                      ptrdiff_t n_rows, const dpfast_residual_scratch *scratch)
{
    if (!dpfast_map_coded_rows(level, map, numbers, codes, start, n_rows, coded, scratch->looked_up))
        return DPFAST_X_MAPPED_TO_NAN;
    if (map_outcomes(level, step, y, start, n_rows, scratch))
        return DPFAST_Y_MAPPED_TO_NAN;
    memset(scratch->looked_up + n_rows * map->stride, 0,
           (size_t)((padded(n_rows) - n_rows) * map->stride) * sizeof(double));
    CALL(take_looked_up, level, step, map->stride, n_rows, scratch);
    lighten_rows(step, n_rows, scratch);
    return 0;
}

/* Round them to units, each held to the bound of a row. */
static void dpfast_residual_round(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                                  const dpfast_residual_scratch *scratch)
{
    CALL(round_rows, level, step, n_rows, scratch);
}

/* Leave products of rounded rows for later passes. */
static void dpfast_residual_keep(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch)
{
    size_t rows = (size_t)scratch->block_rows;
    for (size_t i = 0; i < (size_t)step->n_products * rows; i++)
        scratch->kept[i] = (float)scratch->p[i];
    memcpy(scratch->kept_sizes, scratch->squared_p, rows * sizeof(double));
    memcpy(scratch->kept_sizes + rows, scratch->squared_p_units, rows * sizeof(double));
    memcpy(scratch->kept_sizes + 2 * rows, scratch->lightened, rows * sizeof(double));
}

/* Add products of rounded rows to `lanes`; sums of lanes stay exact while fewer than 2^53 over the norm of a product. */
static void dpfast_residual_add(int level, const dpfast_residual_step *step, ptrdiff_t n_rows,
                                const dpfast_residual_scratch *scratch)
{
    CALL(add, level, step, n_rows, scratch);
}

/* Move the sums of lanes to totals. */
static void dpfast_residual_flush(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                  int64_t *totals)
{
    for (ptrdiff_t i = 0; i < step->n_products * step->n_outcomes; i++)
        for (int lane = 0; lane < GROUP; lane++) {
            totals[i] += (int64_t)scratch->lanes[i * GROUP + lane];
            scratch->lanes[i * GROUP + lane] = 0.0;
        }
}

/* What to multiply the r of a person by, whose block of units is given; 1 where it is within the bound. */
static double dpfast_residual_factor(const dpfast_residual_step *step, const int64_t *block)
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

/* Multiply r by one factor more and round again. */
static void dpfast_residual_round_again(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                                        double factor, const dpfast_residual_scratch *scratch)
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

/* Hold the summed block of the rows first to last, one person's, to their bound; returns whether it was beyond. */
static int dpfast_residual_hold(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                                const dpfast_residual_scratch *scratch)
{
    if (is_clearly_within(step, first, last, scratch))
        return 0;
    sum_block(step, first, last, scratch);
    double factor = dpfast_residual_factor(step, scratch->person);
    int is_beyond = factor < 1.0;
    for (int i = 0; factor < 1.0; i++) {
        dpfast_residual_round_again(step, first, last, factor, scratch);
        sum_block(step, first, last, scratch);
        if (dpfast_residual_factor(step, scratch->person) == 1.0)
            break;
        factor *= 1.0 - ldexp(1.0, i - 50);
    }
    return is_beyond;
}

/* Add squared residuals of rows first to last to those of one person, */
static void dpfast_residual_squares(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
                                    const dpfast_residual_scratch *scratch)
{
    for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
        for (ptrdiff_t row = first; row < last; row++) {
            double residual = scratch->r[m * scratch->block_rows + row];
            scratch->squares[m] += residual * residual;
        }
}

/* and, held to their bound, to totals. */
static void dpfast_residual_hold_squares(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
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

/* Add p r' of rows first to last to one person's sum in doubles, */
static void dpfast_residual_outer(const dpfast_residual_step *step, ptrdiff_t first, ptrdiff_t last,
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

/* Count rows, each a person, in the bins of their norms. */
static void dpfast_residual_count_rows(const dpfast_residual_step *step, ptrdiff_t n_rows,
                                       const dpfast_residual_scratch *scratch, int64_t *counts)
{
    for (ptrdiff_t row = 0; row < n_rows; row++)
        count(step, scratch->squared_p[row] * scratch->squared_r[row], counts);
}

/* and count them in the bin of its norm. */
static void dpfast_residual_count_outer(const dpfast_residual_step *step, const dpfast_residual_scratch *scratch,
                                        int64_t *counts)
{
    double squared = 0.0;
    for (ptrdiff_t i = 0; i < step->n_products * step->n_outcomes; i++) {
        squared += scratch->outer[i] * scratch->outer[i];
        scratch->outer[i] = 0.0;
    }
    count(step, squared, counts);
}
