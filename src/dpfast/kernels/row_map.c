/* Public maps of rows, row by row: what becomes of a row depends on nothing but the row.
 *
 * A norm or a product is a sum, and rounded sums depend on their order. So there is one order for each (rows.h; products
 * add up column after column), whatever the layout of the table, the rows beside, and the vector width. Entries that are
 * not adjacent are copied first, and everything after that works on one row.
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
 */
#include "row_map.h"

/* Of the square of a bound: what a row may exceed it by before it is scaled. */
#define TOLERATED (1.0 + 0x1p-30)

/* The smallest of the `count` largest magnitudes: a heap of them with the smallest on top. */
static double least_of_largest(const double *values, ptrdiff_t n, ptrdiff_t count, double *heap)
{
    ptrdiff_t held = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        double size = fabs(values[j]);
        ptrdiff_t place;
        if (held < count) {
            for (place = held++; place > 0 && heap[(place - 1) / 2] > size; place = (place - 1) / 2)
                heap[place] = heap[(place - 1) / 2];
        } else if (size > heap[0]) {
            place = 0;
            for (ptrdiff_t child = 1; child < count; child = 2 * place + 1) {
                if (child + 1 < count && heap[child + 1] < heap[child])
                    child++;
                if (heap[child] >= size)
                    break;
                heap[place] = heap[child];
                place = child;
            }
        } else {
            continue;
        }
        heap[place] = size;
    }
    return heap[0];
}

static double squared_norm_of_top(const double *values, ptrdiff_t n, ptrdiff_t top, double scale, double *heap)
{
    double least = least_of_largest(values, n, top, heap), partial[PARTIAL_SUMS] = {0.0};
    ptrdiff_t equal = top;
    for (ptrdiff_t j = 0; j < n; j++)
        if (fabs(values[j]) > least) {
            double entry = values[j] * scale;
            partial[j % PARTIAL_SUMS] += entry * entry;
            equal--;
        }
    return folded(partial) + (double)equal * (least * scale * (least * scale));
}

static DPFAST_INLINE double squared_norm_of_map(const dpfast_row_map *map, const double *values, double scale,
                                                double *heap)
{
    if (map->top < map->n_columns)
        return squared_norm_of_top(values, map->n_columns, map->top, scale, heap);
    return squared_norm_of((const char *)values, map->n_columns, 0, scale);
}

static DPFAST_INLINE void hold_to_bound(const dpfast_row_map *map, double scale, double limit, double *values,
                                        double *heap)
{
    double bound = map->bound * scale, back = 1.0 / scale;
    double squared = squared_norm_of((const char *)values, map->n_columns, 0, scale);
    if (squared <= limit)
        return;
    if (map->top < map->n_columns) {
        squared = squared_norm_of_top(values, map->n_columns, map->top, scale, heap);
        if (squared <= limit)
            return;
    }
    if (!isfinite(squared)) {
        scale = scale_to_unit((const char *)values, map->n_columns, 0);
        squared = squared_norm_of_map(map, values, scale, heap);
    }
    double factor = bound / sqrt(squared);
    for (ptrdiff_t j = 0; j < map->n_columns; j++)
        values[j] = values[j] * scale * factor * back;
}

/* Read a row; returns whether it is finite. */
static DPFAST_INLINE int load_row(const char *row, ptrdiff_t n, int is_float32, double *values)
{
    double probe[PARTIAL_SUMS] = {0.0};
    ptrdiff_t j = 0;
    for (; j + PARTIAL_SUMS <= n; j += PARTIAL_SUMS)
        for (int lane = 0; lane < PARTIAL_SUMS; lane++) {
            double entry = load_scalar(row, j + lane, is_float32);
            values[j + lane] = entry;
            probe[lane] += entry * 0.0;
        }
    for (; j < n; j++) {
        values[j] = load_scalar(row, j, is_float32);
        probe[0] += values[j] * 0.0;
    }
    return folded(probe) == 0.0;
}

static int holds_infinity(const double *values, ptrdiff_t n)
{
    for (ptrdiff_t j = 0; j < n; j++)
        if (isinf(values[j]))
            return 1;
    return 0;
}

static DPFAST_INLINE int map_row(const dpfast_row_map *map, double scale, double limit, const char *row,
                                 int is_float32, double *heap, double *values)
{
    ptrdiff_t n = map->n_columns;
    int is_finite = load_row(row, n, is_float32, values);
    if (DPFAST_UNLIKELY(!is_finite) && (!map->fills || holds_infinity(values, n)))
        return 0;
    if (map->offset != 0.0 || map->unit != 1.0)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] = (values[j] - map->offset) / map->unit;
    if (map->low)
        for (ptrdiff_t j = 0; j < n; j++) {
            double raised = values[j] < map->low[j] ? map->low[j] : values[j];
            values[j] = raised > map->high[j] ? map->high[j] : raised;
        }
    if (DPFAST_UNLIKELY(!is_finite))
        for (ptrdiff_t j = 0; j < n; j++)
            if (isnan(values[j]))
                values[j] = map->center ? map->center[j] : 0.0;
    if (limit < HUGE_VAL)
        hold_to_bound(map, scale, limit, values, heap);
    if (map->center)
        for (ptrdiff_t j = 0; j < n; j++)
            values[j] -= map->center[j];
    return 1;
}

static DPFAST_INLINE void multiply_by_basis(const dpfast_row_map *map, const double *values, double *out)
{
    for (ptrdiff_t k = 0; k < map->n_features; k++)
        out[k] = 0.0;
    for (ptrdiff_t j = 0; j < map->n_columns; j++)
        for (ptrdiff_t k = 0; k < map->n_features; k++)
            out[k] += values[j] * map->basis[j * map->n_features + k];
}

/* Map rows whose entries are adjacent. */
static DPFAST_INLINE int map_block(const dpfast_row_map *map, const dpfast_table *rows, int is_float32,
                                   ptrdiff_t n_rows, const dpfast_map_scratch *scratch, double *out,
                                   ptrdiff_t out_stride)
{
    int all_finite = 1, is_bounded = map->bound < HUGE_VAL;
    double scale = is_bounded ? unit_scale(map->bound) : 1.0, bound = map->bound * scale;
    double limit = bound * bound * TOLERATED;
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        double *to = out + r * out_stride, *values = map->basis ? scratch->row : to;
        if (!map_row(map, scale, limit, row_address(rows, r), is_float32, scratch->largest, values)) {
            for (ptrdiff_t j = 0; j < map->n_features; j++)
                to[j] = NAN;
            all_finite = 0;
        } else if (map->basis) {
            multiply_by_basis(map, values, to);
        }
    }
    return all_finite;
}

#define INSTANTIATE(level, target)                                                                                     \
    static target int map_block_##level(const dpfast_row_map *map, const dpfast_table *rows, ptrdiff_t n_rows,         \
                                        const dpfast_map_scratch *scratch, double *out, ptrdiff_t out_stride)          \
    {                                                                                                                  \
        return rows->is_float32 ? map_block(map, rows, 1, n_rows, scratch, out, out_stride)                            \
                                : map_block(map, rows, 0, n_rows, scratch, out, out_stride);                           \
    }

INSTANTIATE(baseline, )
#if DPFAST_HAVE_X86_LEVELS
INSTANTIATE(avx2, DPFAST_TARGET_AVX2)
INSTANTIATE(avx512, DPFAST_TARGET_AVX512)
#endif

int dpfast_map_rows(int level, const dpfast_row_map *map, const dpfast_table *table, ptrdiff_t start, ptrdiff_t stop,
                    const dpfast_map_scratch *scratch, double *out, ptrdiff_t out_stride)
{
    int all_finite = 1;
    for (; start < stop; start += scratch->block_rows) {
        ptrdiff_t n_rows = stop - start < scratch->block_rows ? stop - start : scratch->block_rows;
        dpfast_table rows = staged_rows(table, map->n_columns, start, n_rows, scratch->staging);
        double *to = out + start * out_stride;
#if DPFAST_HAVE_X86_LEVELS
        if (level == DPFAST_AVX512) {
            all_finite &= map_block_avx512(map, &rows, n_rows, scratch, to, out_stride);
            continue;
        }
        if (level == DPFAST_AVX2) {
            all_finite &= map_block_avx2(map, &rows, n_rows, scratch, to, out_stride);
            continue;
        }
#endif
        all_finite &= map_block_baseline(map, &rows, n_rows, scratch, to, out_stride);
    }
    return all_finite;
}
