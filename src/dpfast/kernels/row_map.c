/* Public maps of rows, row by row: what becomes of a row depends on nothing but the row.
 *
 * A norm or a product is a sum, and rounded sums depend on their order. So there is one order for each (rows.h; products
 * add up column after column), whatever the layout of the table, the rows beside, and the vector width. Entries that are
 * not adjacent are copied first, and everything after that works on one row. Loops over vectors of a level's own width
 * are compiled once per level.
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
#ifndef LEVEL /* once, before the loops */

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

#else /* once per level, as levels.h includes this file again */

/* Loops over vectors of a level's own width, WIDTH doubles. */
#define SELECTED(mask, one, other) ((VECTOR)(((mask) & (WORDS)(one)) | (~(mask) & (WORDS)(other))))

/* The smallest of the `count` largest of n sizes, n a multiple of eight. The range that it may lie in is halved, and
 * drawn in to entries, at most 64 times: as many as a double has bits. */
static DPFAST_INLINE TARGET double LEVEL(least_of_largest)(const double *sizes, ptrdiff_t n, ptrdiff_t count)
{
    double low = 0.0, high = DBL_MAX;
    while (low < high) {
        double middle = between(low, high), above_all = HUGE_VAL, below_all = 0.0;
        VECTOR middles = middle - (VECTOR){0.0}, infinite = HUGE_VAL - (VECTOR){0.0};
        VECTOR least = infinite, largest = {0.0};
        WORDS reached = {0};
        int64_t n_reached = 0;
        for (ptrdiff_t j = 0; j < n; j += WIDTH) {
            VECTOR size = *(const VECTOR *)(sizes + j);
            WORDS reaches = size >= middles;
            VECTOR above = SELECTED(reaches, size, infinite);
            VECTOR below = (VECTOR)(~reaches & (WORDS)size);
            reached -= reaches;
            least = SELECTED(above < least, above, least);
            largest = SELECTED(below > largest, below, largest);
        }
#pragma GCC unroll 8
        for (int lane = 0; lane < WIDTH; lane++) {
            n_reached += reached[lane];
            above_all = least[lane] < above_all ? least[lane] : above_all;
            below_all = largest[lane] > below_all ? largest[lane] : below_all;
        }
        if (n_reached == count)
            return above_all;
        if (n_reached == count - 1)
            return below_all;
        if (n_reached > count)
            low = above_all;
        else
            high = below_all;
    }
    return low;
}

/* Entries above the least of the top ones, then as many times that one as are left; `sizes` has room for a row, rounded
 * up to eight entries. */
static DPFAST_INLINE TARGET double LEVEL(squared_norm_of_top)(const double *values, ptrdiff_t n, ptrdiff_t top,
                                                              double scale, double *sizes)
{
    ptrdiff_t padded = (n + PARTIAL_SUMS - 1) / PARTIAL_SUMS * PARTIAL_SUMS;
    for (ptrdiff_t j = 0; j < n; j++)
        sizes[j] = fabs(values[j]);
    for (ptrdiff_t j = n; j < padded; j++)
        sizes[j] = 0.0;
    double least = LEVEL(least_of_largest)(sizes, padded, top), partial[PARTIAL_SUMS];
    VECTOR leasts = least - (VECTOR){0.0}, sums[PARTIAL_SUMS / WIDTH] = {{0.0}};
    WORDS above = {0};
    ptrdiff_t equal = top;
    for (ptrdiff_t j = 0; j < padded; j += PARTIAL_SUMS)
#pragma GCC unroll 4
        for (int part = 0; part < PARTIAL_SUMS / WIDTH; part++) {
            VECTOR size = *(const VECTOR *)(sizes + j + part * WIDTH);
            WORDS is_above = size > leasts;
            VECTOR entry = (VECTOR)(is_above & (WORDS)size) * scale;
            sums[part] += entry * entry;
            above -= is_above;
        }
#pragma GCC unroll 8
    for (int lane = 0; lane < PARTIAL_SUMS; lane++)
        partial[lane] = sums[lane / WIDTH][lane % WIDTH];
#pragma GCC unroll 8
    for (int lane = 0; lane < WIDTH; lane++)
        equal -= (ptrdiff_t)above[lane];
    return folded(partial) + (double)equal * (least * scale * (least * scale));
}

static DPFAST_INLINE TARGET double LEVEL(squared_norm_of_map)(const dpfast_row_map *map, const double *values,
                                                              double scale, double *sizes)
{
    if (map->top < map->n_columns)
        return LEVEL(squared_norm_of_top)(values, map->n_columns, map->top, scale, sizes);
    return squared_norm_of_values(values, map->n_columns, scale);
}

static DPFAST_INLINE TARGET void LEVEL(hold_to_bound)(const dpfast_row_map *map, double scale, double limit,
                                                      double *values, double *sizes)
{
    double bound = map->bound * scale, back = 1.0 / scale;
    double squared = squared_norm_of_values(values, map->n_columns, scale);
    if (squared <= limit)
        return;
    if (map->top < map->n_columns) {
        squared = LEVEL(squared_norm_of_top)(values, map->n_columns, map->top, scale, sizes);
        if (squared <= limit)
            return;
    }
    if (!isfinite(squared)) {
        scale = scale_to_unit((const char *)values, map->n_columns, 0);
        squared = LEVEL(squared_norm_of_map)(map, values, scale, sizes);
    }
    double factor = bound / sqrt(squared);
    for (ptrdiff_t j = 0; j < map->n_columns; j++)
        values[j] = values[j] * scale * factor * back;
}

/* Read adjacent entries; returns whether all are finite. Memory is asked for ahead: the processor's own read-ahead goes
 * idle while rows are worked on. */
static DPFAST_INLINE TARGET int LEVEL(load)(const char *row, ptrdiff_t n, int is_float32, double *values)
{
    VECTOR probes = {0.0};
    double probe = 0.0;
    ptrdiff_t j = 0, item = is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double);
    for (; j + WIDTH <= n; j += WIDTH) {
        const char *entries = row + j * item;
        __builtin_prefetch(entries + READ_AHEAD_BYTES);
        VECTOR loaded = is_float32 ? __builtin_convertvector(*(const FLOATS *)entries, VECTOR)
                                   : *(const VECTOR *)entries;
        *(VECTOR *)(values + j) = loaded;
        probes += loaded * 0.0;
    }
#pragma GCC unroll 8
    for (int lane = 0; lane < WIDTH; lane++)
        probe += probes[lane];
    for (; j < n; j++) {
        values[j] = load_scalar(row, j, is_float32);
        probe += values[j] * 0.0;
    }
    return probe == 0.0;
}

/* Rows from `first` on of a table whose entries are adjacent; returns whether all are finite. */
static DPFAST_INLINE TARGET int LEVEL(load_rows)(const dpfast_table *rows, ptrdiff_t first, ptrdiff_t n_rows,
                                                 ptrdiff_t n_columns, int is_float32, double *values)
{
    ptrdiff_t item = is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double);
    if (!rows->rows && rows->row_stride == n_columns * item)
        return LEVEL(load)(row_address(rows, first), n_rows * n_columns, is_float32, values);
    int all_finite = 1;
    for (ptrdiff_t r = 0; r < n_rows; r++)
        all_finite &= LEVEL(load)(row_address(rows, first + r), n_columns, is_float32, values + r * n_columns);
    return all_finite;
}

/* Products of a row, or of two, with some columns of the basis, held in registers: rows share what is read of it. */
static DPFAST_INLINE TARGET void LEVEL(multiply_by_columns)(const dpfast_row_map *map, const double *values, int n_rows,
                                                            const double *columns, int n_vectors, ptrdiff_t n_wanted,
                                                            double *out, ptrdiff_t out_stride)
{
    VECTOR sums[2][MOST_VECTORS];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < n_vectors; v++)
            sums[r][v] = (VECTOR){0.0};
    for (ptrdiff_t j = 0; j < map->n_columns; j++, columns += map->basis_stride)
#pragma GCC unroll 3
        for (int v = 0; v < n_vectors; v++) {
            VECTOR column = *(const VECTOR *)(columns + v * WIDTH);
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++)
                sums[r][v] += values[r * map->n_columns + j] * column;
        }
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++) {
        double *to = out + r * out_stride;
        /* From registers: a copy of stored vectors, whose length is not known, waits for them. */
#pragma GCC unroll 3
        for (int v = 0; v < n_vectors - 1; v++)
            *(VECTOR *)(to + v * WIDTH) = sums[r][v];
        ptrdiff_t done = (n_vectors - 1) * WIDTH;
        if (n_wanted == done + WIDTH)
            *(VECTOR *)(to + done) = sums[r][n_vectors - 1];
        else
#pragma GCC unroll 8
            for (int lane = 0; lane < WIDTH; lane++)
                if (done + lane < n_wanted)
                    to[done + lane] = sums[r][n_vectors - 1][lane];
    }
}

static DPFAST_INLINE TARGET void LEVEL(multiply_by_basis)(const dpfast_row_map *map, const double *values, int n_rows,
                                                          double *out, ptrdiff_t out_stride)
{
    for (ptrdiff_t k = 0; k < map->n_features; k += MOST_VECTORS * WIDTH) {
        ptrdiff_t left = map->n_features - k, most = MOST_VECTORS * WIDTH;
        const double *columns = map->basis + k;
        if (left > 2 * WIDTH)
            LEVEL(multiply_by_columns)(map, values, n_rows, columns, 3, left < most ? left : most, out + k, out_stride);
        else if (left > WIDTH)
            LEVEL(multiply_by_columns)(map, values, n_rows, columns, 2, left, out + k, out_stride);
        else
            LEVEL(multiply_by_columns)(map, values, n_rows, columns, 1, left, out + k, out_stride);
    }
}

/* Map rows whose entries are adjacent, as many at a time as there are limits for: entrywise work does not notice where
 * one row ends and the next begins. */
static DPFAST_INLINE TARGET int LEVEL(map_adjacent)(const dpfast_row_map *map, const dpfast_table *rows, int is_float32,
                                                    ptrdiff_t n_rows, const dpfast_map_scratch *scratch, double *out,
                                                    ptrdiff_t out_stride)
{
    ptrdiff_t n = map->n_columns;
    int all_finite = 1, is_bounded = map->bound < HUGE_VAL, in_place = !map->basis && out_stride == n;
    double scale = is_bounded ? unit_scale(map->bound) : 1.0, bound = map->bound * scale;
    double limit = bound * bound * TOLERATED;
    for (ptrdiff_t first = 0; first < n_rows; first += map->n_together) {
        ptrdiff_t together = n_rows - first < map->n_together ? n_rows - first : map->n_together;
        double *values = in_place ? out + first * n : scratch->rows;
        unsigned char refused[DPFAST_MOST_TOGETHER] = {0};
        if (DPFAST_UNLIKELY(!LEVEL(load_rows)(rows, first, together, n, is_float32, values)))
            for (ptrdiff_t r = 0; r < together; r++) {
                refused[r] = (unsigned char)is_refused(map, values + r * n);
                all_finite &= !refused[r];
            }
        map_entries(map, together * n, values);
        if (map->fills)
            fill_missing(map, together * n, values);
        if (is_bounded)
            for (ptrdiff_t r = 0; r < together; r++)
                if (!refused[r])
                    LEVEL(hold_to_bound)(map, scale, limit, values + r * n, scratch->sizes);
        center_and_scale(map, together * n, values);
        ptrdiff_t paired = map->basis ? together / 2 * 2 : 0;
        for (ptrdiff_t r = 0; r < paired; r += 2)
            LEVEL(multiply_by_basis)(map, values + r * n, 2, out + (first + r) * out_stride, out_stride);
        for (ptrdiff_t r = 0; r < together; r++) {
            double *to = out + (first + r) * out_stride;
            if (map->basis && r >= paired)
                LEVEL(multiply_by_basis)(map, values + r * n, 1, to, out_stride);
            else if (!map->basis && !in_place)
                memcpy(to, values + r * n, (size_t)n * sizeof *to);
            for (ptrdiff_t j = 0; refused[r] && j < map->n_features; j++)
                to[j] = NAN;
        }
    }
    return all_finite;
}

static TARGET int LEVEL(map_block)(const dpfast_row_map *map, const dpfast_table *rows, ptrdiff_t n_rows,
                                   const dpfast_map_scratch *scratch, double *out, ptrdiff_t out_stride)
{
    return rows->is_float32 ? LEVEL(map_adjacent)(map, rows, 1, n_rows, scratch, out, out_stride)
                            : LEVEL(map_adjacent)(map, rows, 0, n_rows, scratch, out, out_stride);
}

/* The sum of what is looked up for a row, from mapped numbers. */
static TARGET void LEVEL(add_looked_up)(const dpfast_coded_map *map, const double *numbers, double factor,
                                        const double *const *slots, double *out)
{
    ptrdiff_t stride = map->stride, n_numbers = map->n_numbers, n_categories = map->n_categories;
    const double *absent = map->absent, *constant = map->constant, *of_numbers = map->of_numbers;
    for (ptrdiff_t i = 0; i < stride; i += CHUNK) {
        VECTOR sums[CHUNK / WIDTH];
#pragma GCC unroll 8
        for (int v = 0; v < CHUNK / WIDTH; v++)
            sums[v] = factor * *(const VECTOR *)(absent + i + v * WIDTH) + *(const VECTOR *)(constant + i + v * WIDTH);
        for (ptrdiff_t j = 0; j < n_numbers; j++)
#pragma GCC unroll 8
            for (int v = 0; v < CHUNK / WIDTH; v++)
                sums[v] += numbers[j] * *(const VECTOR *)(of_numbers + j * stride + i + v * WIDTH);
        for (ptrdiff_t k = 0; k < n_categories; k++)
#pragma GCC unroll 8
            for (int v = 0; v < CHUNK / WIDTH; v++)
                sums[v] += factor * *(const VECTOR *)(slots[k] + i + v * WIDTH);
#pragma GCC unroll 8
        for (int v = 0; v < CHUNK / WIDTH; v++)
            *(VECTOR *)(out + i + v * WIDTH) = sums[v];
    }
}

#undef SELECTED

#endif

#ifndef LEVEL /* once, after them */

#define DPFAST_LOOPS "row_map.c"
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

#endif
