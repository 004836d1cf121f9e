/* Bodies of row_map.c for one vector width; see there. Included once per level. */

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
