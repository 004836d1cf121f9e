/* Bodies of the loops of coded_step.c over rows, WIDTH of them at a time; see there. Included once per level. */
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
