/* Public maps of rows, row by row: what becomes of a row depends on nothing but the row.
 *
 * A norm or a product is a sum, and rounded sums depend on their order. So there is one order for each (rows.h; products
 * add up column after column), whatever the layout of the table, the rows beside, and the vector width. Entries that are
 * not adjacent are copied first, and everything after that works on one row. Loops over vectors of a level's own width
 * are in row_map_level.h.
 *
 * How long a row may be. With u = 2^-53, gamma_k = k u/(1 - k u), rows of n <= 2^24 entries and k = n/8 + 9, so that
 * gamma_k < 2^-31.9, let S be the computed squared norm of row * s, s a power of two that brings the bound b to
 * [2^-22, 2^24). Products with s are exact but where they underflow, which moves the norm by less than 2^-1000 of the
 * bound. So S (1 +- gamma_k) is the squared norm in units of s.
 * - A row is left as it is if S <= (b s)^2 (1 + 2^-30), computed with two roundings. Its norm is then at most
 *   b sqrt((1 + 2^-30)(1 + u)^2/(1 - gamma_k)) < b (1 + 0.75 2^-30); and a row of norm b or less is always left alone.
 * - Another is multiplied by s, by b s/sqrt(S) and by 1/s, where nothing underflows before the last product. That is a
 *   root, a quotient and a product more: its norm is at most b (1 + u)^3/sqrt(1 - gamma_k) < b (1 + 0.25 2^-30), and
 *   b >= 2^-1022 keeps what underflows below 2^-40 of it.
 * - If S overflows, the row is multiplied by a power of two chosen by its largest entry first, and the same holds.
 * The top entries alone are summed in the same order, those equal to the least of them last; of two rows of entries equal
 * in size it makes no difference which counts.
 *
 * Rows with codes are mapped with a basis alone. What an indicator becomes, times its row of the basis, is known
 * beforehand: products are sums of rows of tables, in one order, the absent indicators first, then numbers, then those
 * present. A row beyond its bound has a factor, which numbers and indicators are multiplied by before they are centred.
 */
#include "row_map.h"

#include <float.h>
#include <string.h>

enum { READ_AHEAD_BYTES = 2048, MOST_VECTORS = 3, CHUNK = 16 };

/* Of the square of a bound: what a row may exceed it by before it is scaled. */
#define TOLERATED (1.0 + 0x1p-30)

/* Halfway from one double >= 0 to a larger one, in the order of their bits; above the first. */
static inline double between(double low, double high)
{
    uint64_t first, last;
    memcpy(&first, &low, sizeof first);
    memcpy(&last, &high, sizeof last);
    first += (last - first + 1) / 2;
    memcpy(&low, &first, sizeof low);
    return low;
}

/* The squared norm with the lengths of narrow rows known to the compiler. */
static DPFAST_INLINE double squared_norm_of_values(const double *values, ptrdiff_t n, double scale)
{
    const char *row = (const char *)values;
    switch (n) {
    case 1: return squared_norm_of(row, 1, 0, scale);
    case 2: return squared_norm_of(row, 2, 0, scale);
    case 3: return squared_norm_of(row, 3, 0, scale);
    case 4: return squared_norm_of(row, 4, 0, scale);
    case 5: return squared_norm_of(row, 5, 0, scale);
    case 6: return squared_norm_of(row, 6, 0, scale);
    case 7: return squared_norm_of(row, 7, 0, scale);
    default: return squared_norm_of(row, n, 0, scale);
    }
}

static int is_refused(const dpfast_row_map *map, const double *values)
{
    for (ptrdiff_t j = 0; j < map->n_columns; j++)
        if (map->fills ? isinf(values[j]) : !isfinite(values[j]))
            return 1;
    return 0;
}

/* Everything but the norm, entry by entry, of rows that lie one after the other, with the limits that belong to them. */
static DPFAST_INLINE void map_entries(const dpfast_row_map *map, ptrdiff_t n, double *values)
{
    if (map->offset != 0.0 || map->unit != 1.0)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] = (values[j] - map->offset) / map->unit;
    if (map->low)
        for (ptrdiff_t j = 0; j < n; j++) {
            double raised = values[j] < map->low[j] ? map->low[j] : values[j];
            values[j] = raised > map->high[j] ? map->high[j] : raised;
        }
}

static DPFAST_INLINE void center_and_scale(const dpfast_row_map *map, ptrdiff_t n, double *values)
{
    if (map->center && map->inverse_scale)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] = (values[j] - map->center[j]) * map->inverse_scale[j];
    else if (map->center)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] -= map->center[j];
    else if (map->inverse_scale)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] *= map->inverse_scale[j];
}

static void fill_missing(const dpfast_row_map *map, ptrdiff_t n, double *values)
{
    for (ptrdiff_t j = 0; j < n; j++)
        if (isnan(values[j]))
            values[j] = map->center ? map->center[j] : 0.0;
}

/* Find what belongs to a row's codes, and hold its entries to their bound: numbers are centred and in units afterwards.
 * Returns the factor that brings it there. */
static double look_up(const dpfast_coded_map *map, const int32_t *const *codes, ptrdiff_t row, double *numbers,
                      const double **slots)
{
    double of_codes = map->squared_absent, squared = 0.0, factor = 1.0;
    for (ptrdiff_t k = 0; k < map->n_categories; k++) {
        uint32_t code = (uint32_t)codes[k][row], n_levels = (uint32_t)map->n_levels[k];
        ptrdiff_t slot = map->first_slots[k] + (code < n_levels ? code : n_levels);
        of_codes += map->slot_squares[slot];
        slots[k] = map->of_slots + slot * map->stride;
    }
    for (ptrdiff_t j = 0; j < map->n_numbers; j++)
        squared += numbers[j] * numbers[j];
    squared += of_codes;
    if (DPFAST_UNLIKELY(!(squared <= map->bound * map->bound * TOLERATED))) {
        double scale = 1.0;
        if (!isfinite(squared)) {
            scale = scale_to_unit((const char *)numbers, map->n_numbers, 0);
            squared = of_codes * scale * scale;
            for (ptrdiff_t j = 0; j < map->n_numbers; j++)
                squared += numbers[j] * scale * (numbers[j] * scale);
        }
        factor = map->bound * scale / sqrt(squared);
    }
    for (ptrdiff_t j = 0; j < map->n_numbers; j++)
        numbers[j] = (numbers[j] * factor - map->center[j]) * map->inverse_scale[j];
    return factor;
}

#define DPFAST_LOOPS "row_map_level.h"
#include "levels.h"

int dpfast_map_rows(int level, const dpfast_row_map *map, const dpfast_table *table, ptrdiff_t start, ptrdiff_t stop,
                    const dpfast_map_scratch *scratch, double *out, ptrdiff_t out_stride)
{
    int all_finite = 1;
    for (double *to = out; start < stop; start += scratch->block_rows, to += scratch->block_rows * out_stride) {
        ptrdiff_t n_rows = stop - start < scratch->block_rows ? stop - start : scratch->block_rows;
        dpfast_table rows = staged_rows(table, map->n_columns, start, n_rows, scratch->staging);
        all_finite &= CALL(map_block, level, map, &rows, n_rows, scratch, to, out_stride);
    }
    return all_finite;
}

int dpfast_map_coded_rows(int level, const dpfast_coded_map *map, const dpfast_table *numbers,
                          const int32_t *const *codes, ptrdiff_t start, ptrdiff_t n_rows,
                          const dpfast_coded_scratch *scratch, double *out)
{
    int all_finite = 1;
    if (map->n_numbers > 0)
        all_finite = dpfast_map_rows(level, map->map_numbers, numbers, start, start + n_rows, &scratch->numbers,
                                     scratch->rows, map->n_numbers);
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        double *row = scratch->rows + r * map->n_numbers, *to = out + r * map->stride;
        if (DPFAST_UNLIKELY(!all_finite && isnan(row[0]))) {
            for (ptrdiff_t i = 0; i < map->stride; i++)
                to[i] = NAN;
            continue;
        }
        double factor = look_up(map, codes, start + r, row, scratch->slots);
        CALL(add_looked_up, level, map, row, factor, scratch->slots, to);
    }
    return all_finite;
}
