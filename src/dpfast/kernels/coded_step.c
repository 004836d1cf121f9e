/* Residual steps of rows with codes: numbers, and a level of each category.
 *
 * A row adds p r' to a step, p = V x, x its numbers and a 1 at its slot of each category, r = y - theta'x. Neither p nor its
 * products are formed. The sum of p r' over rows is V times that of x r': integers by number and by slot, to which V, of
 * integers too, is applied afterwards (dpfast.statistics.coded). The norm of p, on which the clip depends, is the
 * root of x'V'V x: a sum of entries of V'V, one a pair of slots, and of numbers times such entries.
 *
 * A block of rows is taken column by column, WIDTH rows at a time. Everything is done to each row on
 * its own, in one order of operations, never fused: what becomes of a row depends on nothing but the row, at every vector
 * width. That the squared norm is at most what is computed plus `slack` is proved in docs/proofs/moments.md; the test of
 * a row against its limit uses this sum. A row that does not pass, or whose integers would be too large, is left out
 * whole, and marked.
 *
 * Integers of numbers are at most 2^20 and those of residuals 2^25 in size, so that sums of products over a block are
 * below 2^53, exact in any order, and those of residuals by slot are for 2^28 rows. */
#ifndef LEVEL /* once, before the loops */

#include <string.h>

#include "row_map.h"

enum { DPFAST_CODED_ROWS = 256, DPFAST_CODES_ADDED = 0, DPFAST_NUMBERS_NOT_FINITE = 1, DPFAST_OUTCOMES_NOT_FINITE = 2 };

/* Public tables; numbers are in units of their grids. */
typedef struct {
    const dpfast_row_map *map_y;
    ptrdiff_t n_numbers, n_categories, n_outcomes;
    const double *low, *high;                        /* of numbers, both or neither */
    const double *center, *inverse_scale, *units;    /* units of the grid in 1: a power of two each */
    double squared_bound;                            /* of rows before they are centred; infinite for none */
    double squared_absent;                           /* squared norm of absent indicators, and what a level adds to it */
    const double *slot_squares;
    const ptrdiff_t *n_levels, *first_slots;         /* the last slot of a category is for none of its levels */
    ptrdiff_t stride;                                /* a multiple of eight */
    const double *of_slots;      /* a row a slot: twice its products with numbers, its theta an outcome, its own square */
    const double *products;      /* n_numbers by n_numbers, of which the lower part is read: twice those off the diagonal */
    const double *theta;         /* n_outcomes by n_numbers */
    const double *pairs;         /* twice the products of slots of two categories, */
    const ptrdiff_t *first_pairs; /* of the categories k < l from that of k n_categories + l on */
    double slack;                /* at least the error of a squared norm of p */
    double squared_longest;      /* rows beyond it are left out, */
    double unit_r, onto_clip;    /* units of the grid of r in 1, and the norm in them onto which p r' is scaled */
    double squared_limit;        /* on squared norms of p r', its r in units */
    double squared_clip;         /* beyond which people are counted */
    ptrdiff_t first_bin, n_bins; /* exponents of squared sizes that are counted */
} dpfast_coded_step;

/* Working space of one thread, for DPFAST_CODED_ROWS rows: columns of them, but where said otherwise. */
typedef struct {
    dpfast_map_scratch map_y;
    double *y_rows, *y;      /* rows, and columns, */
    double *x, *r;           /* of numbers and residuals, both in units in the end */
    double *sums, *columns;  /* rows of sums over slots, and columns */
    double *squared;         /* norms of p */
    double *of_codes, *size; /* what codes add to the squared norm before rows are centred; squared sizes */
    double *multipliers;
    int32_t *slots;          /* a column a category */
    int64_t *kept;           /* all bits, or none for rows that are left out */
} dpfast_coded_step_scratch;

#define ROUND_TO_INTEGER 6755399441055744.0 /* 1.5 * 2^52: as in gram.c */
#define MOST_NUMBER 0x1p20
#define MOST_RESIDUAL 0x1p25
/* Squared sizes below this count as 0. */
#define SMALLEST_SQUARE 0x1p-960

enum { ROWS = DPFAST_CODED_ROWS, GROUP = 32, CACHE_LINE = 64 };

/* Rows of a block, rounded up to what is worked on together: those beyond the last add nothing. */
static inline ptrdiff_t padded(ptrdiff_t n)
{
    return (n + GROUP - 1) / GROUP * GROUP;
}

/* Ask for what follows a part of a column: the processor does not read ahead where it goes on to the next so soon. Inlined,
 * or GCC leaves the calls of a function without effects out. */
static DPFAST_INLINE void prefetch_after(const char *part, ptrdiff_t n_bytes)
{
    for (ptrdiff_t offset = 0; offset < n_bytes; offset += CACHE_LINE)
        __builtin_prefetch(part + n_bytes + offset);
}

static inline void load_column(const dpfast_table *table, ptrdiff_t column, ptrdiff_t start, ptrdiff_t n, double *to)
{
    const char *from = table->columns ? table->columns[column] : table->data + column * table->column_stride;
    from += start * table->row_stride;
    if (table->row_stride <= (ptrdiff_t)sizeof(double))
        prefetch_after(from, n * table->row_stride);
    if (table->is_float32)
        for (ptrdiff_t r = 0; r < n; r++)
            to[r] = (double)*(const float *)(from + r * table->row_stride);
    else if (table->row_stride == (ptrdiff_t)sizeof(double))
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (ptrdiff_t r = 0; r < n; r++)
            to[r] = *(const double *)(from + r * table->row_stride);
}

/* Turn codes to places among the slots of their category; returns nothing that depends on other rows. */
static void take_slots(const dpfast_coded_step *step, const int32_t *const *codes, ptrdiff_t start, ptrdiff_t n_rows,
                       const dpfast_coded_step_scratch *scratch)
{
    for (ptrdiff_t k = 0; k < step->n_categories; k++) {
        const int32_t *from = codes[k] + start;
        int32_t *slots = scratch->slots + k * ROWS;
        uint32_t n_levels = (uint32_t)step->n_levels[k];
        prefetch_after((const char *)from, n_rows * (ptrdiff_t)sizeof *from);
        for (ptrdiff_t r = 0; r < n_rows; r++)
            slots[r] = (int32_t)((uint32_t)from[r] < n_levels ? (uint32_t)from[r] : n_levels);
        for (ptrdiff_t r = n_rows; r < ROWS; r++)
            slots[r] = (int32_t)n_levels;
    }
}

static void square_codes(const dpfast_coded_step *step, const dpfast_coded_step_scratch *scratch)
{
    for (ptrdiff_t r = 0; r < ROWS; r++)
        scratch->of_codes[r] = step->squared_absent;
    for (ptrdiff_t k = 0; k < step->n_categories; k++) {
        const double *of_category = step->slot_squares + step->first_slots[k];
        for (ptrdiff_t r = 0; r < ROWS; r++)
            scratch->of_codes[r] += of_category[scratch->slots[k * ROWS + r]];
    }
}

/* Products of slots of two categories: one or two pairs of categories after the other, whose tables stay in the cache. */
static void add_pairs(const dpfast_coded_step *step, ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch)
{
    ptrdiff_t n = step->n_categories;
    double *restrict squared = scratch->squared;
    memset(squared, 0, ROWS * sizeof *squared);
    for (ptrdiff_t k = 0; k < n; k++)
        for (ptrdiff_t l = k + 1; l < n; l += 2) {
            const double *table = step->pairs + step->first_pairs[k * n + l], *next;
            const int32_t *one = scratch->slots + k * ROWS, *other = one + (l - k) * ROWS, *third;
            int32_t width = (int32_t)step->n_levels[l] + 1;
            if (l + 1 == n) {
                for (ptrdiff_t r = 0; r < n_rows; r++)
                    squared[r] += table[one[r] * width + other[r]];
                continue;
            }
            int32_t next_width = (int32_t)step->n_levels[l + 1] + 1;
            next = step->pairs + step->first_pairs[k * n + l + 1];
            third = other + ROWS;
            for (ptrdiff_t r = 0; r < n_rows; r++) {
                double sum = squared[r] + table[one[r] * width + other[r]];
                squared[r] = sum + next[one[r] * next_width + third[r]];
            }
        }
}

static void add_by_slot(const dpfast_coded_step *step, ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch,
                        double *by_slot)
{
    ptrdiff_t n = step->n_outcomes;
    for (ptrdiff_t k = 0; k < step->n_categories; k++) {
        double *of_category = by_slot + step->first_slots[k] * n;
        const int32_t *slots = scratch->slots + k * ROWS;
        for (ptrdiff_t m = 0; m < n; m++)
            for (ptrdiff_t r = 0; r < n_rows; r++)
                of_category[slots[r] * n + m] += scratch->r[m * ROWS + r];
    }
}

/* Outcomes that their map would leave alone, one a row, as they are; returns whether all are such. */
static int load_outcomes(const dpfast_row_map *map, const dpfast_table *y, ptrdiff_t start, ptrdiff_t n_rows, double *to)
{
    if (map->n_columns > 1 || map->offset != 0.0 || map->unit != 1.0 || map->low || map->fills || map->center ||
        map->inverse_scale || map->basis || !(map->bound < HUGE_VAL))
        return 0;
    int64_t is_beyond = 0;
    load_column(y, 0, start, n_rows, to);
    for (ptrdiff_t r = 0; r < n_rows; r++)
        is_beyond |= !(fabs(to[r]) <= map->bound);
    return !is_beyond;
}

#else /* once per level, as levels.h includes this file again */

/* Loops over WIDTH rows. */
#include "turn_level.h"

/* Vectors that are worked on together. */
#define TOGETHER 4
#define TOGETHER_DO(g) _Pragma("GCC unroll 4") for (int g = 0; g < TOGETHER; g++)
#define MASKED(entries, mask) ((VECTOR)((WORDS)(entries) & (mask)))
#define SIZE(entries) MASKED(entries, (WORDS){0} + INT64_MAX)
#define ROUNDED(entries) (((entries) + ALL(ROUND_TO_INTEGER)) - ALL(ROUND_TO_INTEGER))

/* Numbers in units of their grids, and which rows have short ones, in a block that fits; returns whether all are finite. */
static TARGET int LEVEL(take_numbers)(const dpfast_coded_step *step, const dpfast_table *numbers, ptrdiff_t start,
                                      ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch)
{
    VECTOR probes = ALL(0.0);
    double probe = 0.0;
    int is_bounded = step->squared_bound < HUGE_VAL;
    ptrdiff_t n_padded = padded(n_rows);
    for (ptrdiff_t r = 0; r < n_padded; r += WIDTH)
        for (int lane = 0; lane < WIDTH; lane++)
            scratch->kept[r + lane] = -(int64_t)(r + lane < n_rows);
    for (ptrdiff_t r = 0; r < n_padded; r++)
        scratch->size[r] = 0.0;
    for (ptrdiff_t j = 0; j < step->n_numbers; j++) {
        double *column = scratch->x + j * ROWS;
        load_column(numbers, j, start, n_rows, column);
        for (ptrdiff_t r = n_rows; r < n_padded; r++)
            column[r] = 0.0;
        VECTOR low = ALL(step->low ? step->low[j] : -HUGE_VAL), high = ALL(step->low ? step->high[j] : HUGE_VAL);
        VECTOR center = ALL(step->center[j]), inverse = ALL(step->inverse_scale[j]), units = ALL(step->units[j]);
        for (ptrdiff_t r = 0; r < n_padded; r += WIDTH) {
            VECTOR entry = AT(column + r);
            probes += entry * 0.0;
            WORDS is_low = entry < low;
            entry = MASKED(low, is_low) + MASKED(entry, ~is_low);
            WORDS is_high = entry > high;
            entry = MASKED(high, is_high) + MASKED(entry, ~is_high);
            if (is_bounded)
                AT(scratch->size + r) += entry * entry;
            entry = (entry - center) * inverse * units;
            WORDS is_small = SIZE(entry) <= ALL(MOST_NUMBER);
            *(WORDS *)(scratch->kept + r) &= is_small;
            AT(column + r) = ROUNDED(MASKED(entry, is_small));
        }
    }
    if (is_bounded)
        for (ptrdiff_t r = 0; r < n_padded; r += WIDTH)
            *(WORDS *)(scratch->kept + r) &= AT(scratch->size + r) + AT(scratch->of_codes + r) <= ALL(step->squared_bound);
#pragma GCC unroll 8
    for (int lane = 0; lane < WIDTH; lane++)
        probe += probes[lane];
    return probe == 0.0;
}

/* Sums of what belongs to the slots of each row; the number of categories is known to the compiler if it is small. */
static DPFAST_INLINE TARGET void LEVEL(sum_slots)(const dpfast_coded_step *step, ptrdiff_t n_categories,
                                                  ptrdiff_t stride, ptrdiff_t n_padded,
                                                  const dpfast_coded_step_scratch *scratch)
{
    for (ptrdiff_t r = 0; r < n_padded; r++)
        for (ptrdiff_t i = 0; i < stride; i += 8) {
            VECTOR sums[8 / WIDTH];
#pragma GCC unroll 4
            for (int v = 0; v < 8 / WIDTH; v++)
                sums[v] = ALL(0.0);
#pragma GCC unroll 4
            for (ptrdiff_t k = 0; k < n_categories; k++) {
                ptrdiff_t slot = step->first_slots[k] + scratch->slots[k * ROWS + r];
#pragma GCC unroll 4
                for (int v = 0; v < 8 / WIDTH; v++)
                    sums[v] += AT(step->of_slots + slot * stride + i + v * WIDTH);
            }
#pragma GCC unroll 4
            for (int v = 0; v < 8 / WIDTH; v++)
                AT(scratch->sums + r * stride + i + v * WIDTH) = sums[v];
        }
}

/* Squared norms of p, residuals, and their product, where pairs have been added: what numbers and single slots add. */
static TARGET void LEVEL(take_sizes)(const dpfast_coded_step *step, ptrdiff_t n_rows,
                                     const dpfast_coded_step_scratch *scratch)
{
    ptrdiff_t stride = step->stride, n_numbers = step->n_numbers, n_outcomes = step->n_outcomes;
    ptrdiff_t n_padded = padded(n_rows);
    if (step->n_categories == 4 && stride == 8)
        LEVEL(sum_slots)(step, 4, 8, n_padded, scratch);
    else if (step->n_categories == 2 && stride == 8)
        LEVEL(sum_slots)(step, 2, 8, n_padded, scratch);
    else
        LEVEL(sum_slots)(step, step->n_categories, stride, n_padded, scratch);
    LEVEL(turn)(scratch->sums, stride, n_padded, scratch->columns, ROWS);
    LEVEL(turn)(scratch->y_rows, n_outcomes, n_padded, scratch->y, ROWS);
    for (ptrdiff_t r = 0; r < n_padded; r += TOGETHER * WIDTH) {
        const double *columns = scratch->columns + r, *x = scratch->x + r;
        VECTOR squared[TOGETHER], of_r[TOGETHER], sums[TOGETHER];
        TOGETHER_DO(g) {
            const double *own = columns + (n_numbers + n_outcomes) * ROWS + g * WIDTH;
            squared[g] = AT(scratch->squared + r + g * WIDTH) + AT(own);
            of_r[g] = ALL(0.0);
        }
        for (ptrdiff_t j = 0; j < n_numbers; j++) {
            TOGETHER_DO(g) sums[g] = AT(columns + j * ROWS + g * WIDTH);
            for (ptrdiff_t i = 0; i <= j; i++)
                TOGETHER_DO(g) sums[g] += step->products[j * n_numbers + i] * AT(x + i * ROWS + g * WIDTH);
            TOGETHER_DO(g) squared[g] += AT(x + j * ROWS + g * WIDTH) * sums[g];
        }
        for (ptrdiff_t m = 0; m < n_outcomes; m++) {
            TOGETHER_DO(g) sums[g] = AT(columns + (n_numbers + m) * ROWS + g * WIDTH);
            for (ptrdiff_t j = 0; j < n_numbers; j++)
                TOGETHER_DO(g) sums[g] += step->theta[m * n_numbers + j] * AT(x + j * ROWS + g * WIDTH);
            TOGETHER_DO(g) {
                VECTOR residual = AT(scratch->y + m * ROWS + r + g * WIDTH) - sums[g];
                AT(scratch->r + m * ROWS + r + g * WIDTH) = residual;
                of_r[g] += residual * residual;
            }
        }
        TOGETHER_DO(g) {
            ptrdiff_t at = r + g * WIDTH;
            *(WORDS *)(scratch->kept + at) &= squared[g] <= ALL(step->squared_longest);
            AT(scratch->squared + at) = squared[g] + ALL(step->slack);
            AT(scratch->size + at) = AT(scratch->squared + at) * of_r[g];
        }
    }
}

/* Round residuals to units, so that no part is beyond its limit: rows that would be are left out. */
static TARGET void LEVEL(hold)(const dpfast_coded_step *step, ptrdiff_t n_rows,
                               const dpfast_coded_step_scratch *scratch)
{
    ptrdiff_t n_padded = padded(n_rows);
    VECTOR free_square = ALL(step->onto_clip / step->unit_r * (step->onto_clip / step->unit_r));
    for (ptrdiff_t r = 0; r < n_padded; r += WIDTH) {
        VECTOR size = AT(scratch->size + r), of_r = ALL(0.0);
        WORDS is_kept = *(WORDS *)(scratch->kept + r), is_short = size <= free_square;
        double *multipliers = scratch->multipliers + r;
        AT(multipliers) = ALL(step->unit_r);
        for (int lane = 0; lane < WIDTH; lane++)
            if (!is_short[lane])
                multipliers[lane] = step->onto_clip / sqrt(size[lane]);
        VECTOR multiplier = AT(multipliers);
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            VECTOR units = AT(scratch->r + m * ROWS + r) * multiplier;
            is_kept &= SIZE(units) <= ALL(MOST_RESIDUAL);
            units = ROUNDED(units);
            AT(scratch->r + m * ROWS + r) = units;
            of_r += units * units;
        }
        is_kept &= AT(scratch->squared + r) * of_r <= ALL(step->squared_limit);
        *(WORDS *)(scratch->kept + r) = is_kept;
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++)
            AT(scratch->r + m * ROWS + r) = MASKED(AT(scratch->r + m * ROWS + r), is_kept);
    }
}

/* Sums over the block are exact, and so are those of their lanes. */
static TARGET void LEVEL(add_by_number)(const dpfast_coded_step *step, ptrdiff_t n_rows,
                                        const dpfast_coded_step_scratch *scratch, int64_t *high, uint64_t *low)
{
    for (ptrdiff_t j = 0; j < step->n_numbers; j++)
        for (ptrdiff_t m = 0; m < step->n_outcomes; m++) {
            VECTOR lanes = ALL(0.0);
            double total = 0.0;
            for (ptrdiff_t r = 0; r < n_rows; r += WIDTH)
                lanes += AT(scratch->x + j * ROWS + r) * AT(scratch->r + m * ROWS + r);
#pragma GCC unroll 8
            for (int lane = 0; lane < WIDTH; lane++)
                total += lanes[lane];
            ptrdiff_t place = j * step->n_outcomes + m;
            uint64_t added = (uint64_t)(int64_t)total;
            low[place] += added;
            high[place] += (total < 0.0 ? -1 : 0) + (low[place] < added);
        }
}

#undef TOGETHER
#undef TOGETHER_DO
#undef MASKED
#undef SIZE
#undef ROUNDED

#endif

#ifndef LEVEL /* once, after them */

#define DPFAST_LOOPS "coded_step.c"
#include "levels.h"

/* Read n_rows <= DPFAST_CODED_ROWS rows: their residuals and squared norms of p. Returns a status. */
static int dpfast_coded_step_rows(int level, const dpfast_coded_step *step, const dpfast_table *numbers,
                                  const int32_t *const *codes, const dpfast_table *y, ptrdiff_t start,
                                  ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch)
{
    ptrdiff_t n_outcomes = step->n_outcomes;
    take_slots(step, codes, start, n_rows, scratch);
    if (step->squared_bound < HUGE_VAL)
        square_codes(step, scratch);
    if (!CALL(take_numbers, level, step, numbers, start, n_rows, scratch))
        return DPFAST_NUMBERS_NOT_FINITE;
    if (n_outcomes > 0 && !load_outcomes(step->map_y, y, start, n_rows, scratch->y_rows) &&
        !dpfast_map_rows(level, step->map_y, y, start, start + n_rows, &scratch->map_y, scratch->y_rows, n_outcomes))
        return DPFAST_OUTCOMES_NOT_FINITE;
    memset(scratch->y_rows + n_rows * n_outcomes, 0, (size_t)((ROWS - n_rows) * n_outcomes) * sizeof(double));
    add_pairs(step, n_rows, scratch);
    CALL(take_sizes, level, step, n_rows, scratch);
    return DPFAST_CODES_ADDED;
}

/* Hold them to the clip, and add them to sums by slot and outcome, and to the two limbs of sums by number and outcome.
 * Returns how many were beyond the clip. Rows that are left out are marked. */
static ptrdiff_t dpfast_coded_step_add(int level, const dpfast_coded_step *step, ptrdiff_t n_rows,
                                       const dpfast_coded_step_scratch *scratch, double *by_slot, int64_t *high,
                                       uint64_t *low, uint8_t *left_out)
{
    ptrdiff_t n_beyond = 0;
    CALL(hold, level, step, n_rows, scratch);
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        left_out[r] = scratch->kept[r] == 0;
        n_beyond += scratch->kept[r] != 0 && scratch->size[r] > step->squared_clip;
    }
    add_by_slot(step, n_rows, scratch, by_slot);
    CALL(add_by_number, level, step, n_rows, scratch, high, low);
    return n_beyond;
}

/* Count them in the bins of their sizes. */
static void dpfast_coded_step_count(const dpfast_coded_step *step, ptrdiff_t n_rows,
                                    const dpfast_coded_step_scratch *scratch, int64_t *counts, uint8_t *left_out)
{
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        double size = scratch->size[r];
        left_out[r] = scratch->kept[r] == 0;
        if (left_out[r])
            continue;
        ptrdiff_t bin = size < SMALLEST_SQUARE ? 0 : (ptrdiff_t)ilogb(size) - step->first_bin + 1;
        counts[bin < 0 ? 0 : bin < step->n_bins ? bin : step->n_bins - 1]++;
    }
}

/* Put their norms of p in `norms`. */
static void dpfast_coded_step_norms(ptrdiff_t n_rows, const dpfast_coded_step_scratch *scratch, double *norms,
                                    uint8_t *left_out)
{
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        left_out[r] = scratch->kept[r] == 0;
        norms[r] = left_out[r] ? 0.0 : sqrt(scratch->squared[r]);
    }
}

#endif
