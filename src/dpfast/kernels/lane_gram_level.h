/* Bodies of the loops of lane_gram.c for one vector width; see there. Included once per level. */

/* A square of some rows, turned: a line of eight entries of `to` for each of WIDTH columns. */
static DPFAST_INLINE TARGET void LEVEL(turn_square)(const char *const *rows, ptrdiff_t column, int is_float32,
                                                    double *to)
{
    VECTOR square[WIDTH];
#pragma GCC unroll 8
    for (int r = 0; r < WIDTH; r++)
        square[r] = is_float32 ? __builtin_convertvector(*(const FLOATS *)((const float *)rows[r] + column), VECTOR)
                               : *(const VECTOR *)((const double *)rows[r] + column);
    LEVEL(transpose)(square);
#pragma GCC unroll 8
    for (int j = 0; j < WIDTH; j++)
        *(VECTOR *)(to + j * ROWS_IN_LINE) = square[j];
}

/* Eight rows whose entries are adjacent, and may be read up to whole vectors. */
static DPFAST_INLINE TARGET void LEVEL(turn_group)(const char *const *rows, ptrdiff_t n_columns, int is_float32,
                                                   double *group)
{
    for (ptrdiff_t j = 0; j < n_columns; j += WIDTH)
#pragma GCC unroll 4
        for (int r = 0; r < ROWS_IN_LINE; r += WIDTH)
            LEVEL(turn_square)(rows + r, j, is_float32, group + j * ROWS_IN_LINE + r);
}

/* Some of eight entries of a column. */
static DPFAST_INLINE TARGET VECTOR LEVEL(entries)(struct group group, ptrdiff_t j, int r, int is_float32)
{
    const char *line = group.columns ? group.columns[j] : group.data + j * group.column_stride;
    line += group.offset;
    return is_float32 ? __builtin_convertvector(*(const FLOATS *)((const float *)line + r), VECTOR)
                      : *(const VECTOR *)((const double *)line + r);
}

/* Round a group; returns which of its rows are beyond their bound, a bit each. The scale is a power of two: a product
 * with it is exact, and may be part of a fused operation. */
static DPFAST_INLINE TARGET unsigned LEVEL(round_group)(struct group group, const dpfast_row_grid *grid,
                                                        int is_float32, ptrdiff_t stride, double *to)
{
    const VECTOR scales = grid->scale - (VECTOR){0.0}, magic = ROUND_TO_INTEGER - (VECTOR){0.0};
    VECTOR squares[ROWS_IN_LINE / WIDTH] = {{0.0}};
    unsigned beyond = 0;
    for (ptrdiff_t j = 0; j < grid->n_columns; j++)
#pragma GCC unroll 4
        for (int v = 0; v < ROWS_IN_LINE / WIDTH; v++) {
            VECTOR rounded = MULTIPLY_ADD(LEVEL(entries)(group, j, v * WIDTH, is_float32), scales, magic) - magic;
            squares[v] = MULTIPLY_ADD(rounded, rounded, squares[v]);
            *(VECTOR *)(to + v * stride + j * WIDTH) = rounded;
        }
#pragma GCC unroll 4
    for (int v = 0; v < ROWS_IN_LINE / WIDTH; v++)
        beyond |= LEVEL(lanes_beyond)(squares[v], grid->squared_bound) << v * WIDTH;
    return beyond;
}

/* Scale rows of WIDTH that are beyond their bound onto it, by the operations of shrink_row (gram_level.h) in each lane, and
 * round them all: others as they were. Returns those that need another look. */
static TARGET unsigned LEVEL(shrink_lanes)(struct group group, int r, unsigned beyond,
                                           const dpfast_row_grid *grid, int is_float32, double *to)
{
    const VECTOR scales = grid->scale - (VECTOR){0.0}, magic = ROUND_TO_INTEGER - (VECTOR){0.0};
    VECTOR partial[PARTIAL_SUMS] = {{0.0}}, squares = {0.0};
    for (ptrdiff_t j = 0; j < grid->n_columns; j++) {
        VECTOR entry = LEVEL(entries)(group, j, r, is_float32) * scales;
        partial[j % PARTIAL_SUMS] += entry * entry;
    }
    VECTOR norms = ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
                   ((partial[4] + partial[5]) + (partial[6] + partial[7]));
    VECTOR multipliers = scales * (grid->bound / LEVEL(square_roots)(norms));
    for (int lane = 0; lane < WIDTH; lane++)
        multipliers[lane] = beyond >> lane & 1 ? multipliers[lane] : grid->scale;
    for (ptrdiff_t j = 0; j < grid->n_columns; j++) {
        VECTOR rounded = (LEVEL(entries)(group, j, r, is_float32) * multipliers + magic) - magic;
        squares = MULTIPLY_ADD(rounded, rounded, squares);
        *(VECTOR *)(to + j * WIDTH) = rounded;
    }
    /* All are looked at: entries were read anew. A norm that overflows says nothing. */
    return LEVEL(lanes_beyond)(squares, grid->squared_bound) | (LEVEL(lanes_beyond)(norms, DBL_MAX) & beyond);
}

/* Put rows of a group that are beyond their bound onto it; returns whether all are finite. */
static TARGET int LEVEL(shrink_group)(int level, struct group group, unsigned beyond,
                                      const dpfast_row_grid *grid, int is_float32, const dpfast_lanes *lanes,
                                      double *to)
{
    for (int r = 0; r < ROWS_IN_LINE; r += WIDTH, to += lanes->n_columns * WIDTH) {
        unsigned some = beyond >> r & ((1u << WIDTH) - 1);
        if (some)
            some = LEVEL(shrink_lanes)(group, r, some, grid, is_float32, to);
        for (int lane = 0; some >> lane; lane++) {
            if (!(some >> lane & 1))
                continue;
            for (ptrdiff_t j = 0; j < grid->n_columns; j++)
                lanes->row[j] = LEVEL(entries)(group, j, r, is_float32)[lane];
            if (!dpfast_shrink_row(level, lanes->row, grid, lanes->rounded))
                return 0;
            for (ptrdiff_t j = 0; j < grid->n_columns; j++)
                to[j * WIDTH + lane] = lanes->rounded[j];
        }
    }
    return 1;
}

static DPFAST_INLINE TARGET int LEVEL(pack_group)(int level, struct group group, const dpfast_row_grid *grid,
                                                  int is_float32, const dpfast_lanes *lanes, double *to)
{
    unsigned beyond = LEVEL(round_group)(group, grid, is_float32, lanes->n_columns * WIDTH, to);
    return !DPFAST_UNLIKELY(beyond != 0) || LEVEL(shrink_group)(level, group, beyond, grid, is_float32, lanes, to);
}

/* Rows of one table to the columns from `column` on; returns whether all are finite. */
static TARGET int LEVEL(pack_table)(int level, const dpfast_table *table, const dpfast_row_grid *grid, ptrdiff_t start,
                                    ptrdiff_t n_rows, const dpfast_lanes *lanes, ptrdiff_t column)
{
    ptrdiff_t item = item_of(table), n = grid->n_columns;
    int by_columns = !table->rows && table->row_stride == item, by_rows = !table->columns && table->column_stride == item;
    const struct group turned = {NULL, (const char *)lanes->group, ROWS_IN_LINE * (ptrdiff_t)sizeof(double), 0};
    const char *last = table->end ? table->end - (n + WIDTH - 1) / WIDTH * WIDTH * item : NULL, *rows[ROWS_IN_LINE];
    double *to = lanes->rows + column * WIDTH;
    int all_finite = 1;
    for (ptrdiff_t first = 0; first < n_rows && all_finite; first += ROWS_IN_LINE, to += ROWS_IN_LINE * lanes->n_columns) {
        ptrdiff_t left = n_rows - first;
        if (by_columns && left >= ROWS_IN_LINE) {
            struct group here = {table->columns, table->data, table->column_stride, (start + first) * item};
            all_finite = table->is_float32 ? LEVEL(pack_group)(level, here, grid, 1, lanes, to)
                                           : LEVEL(pack_group)(level, here, grid, 0, lanes, to);
            continue;
        }
        int inside = by_rows && left >= ROWS_IN_LINE;
        for (ptrdiff_t r = 0; inside && r < ROWS_IN_LINE; r++) {
            rows[r] = row_address(table, start + first + r);
            inside = rows[r] <= last;
        }
        if (!inside)
            gather_group(table, n, start + first, left, lanes->group);
        else if (table->is_float32)
            LEVEL(turn_group)(rows, n, 1, lanes->group);
        else
            LEVEL(turn_group)(rows, n, 0, lanes->group);
        all_finite = LEVEL(pack_group)(level, turned, grid, 0, lanes, to);
    }
    return all_finite;
}

/* sums += products of `height` columns and of others, [first, end); on the diagonal, of those that are not before them. */
static DPFAST_INLINE TARGET void LEVEL(add_part_of_tile)(const double *left, const double *right, ptrdiff_t n_vectors,
                                                         ptrdiff_t stride, int height, int first, int end,
                                                         int is_diagonal, double *sums)
{
    VECTOR tile[TILE][TILE];
#pragma GCC unroll 4
    for (int h = 0; h < height; h++)
#pragma GCC unroll 4
        for (int v = is_diagonal && h > first ? h : first; v < end; v++)
            tile[h][v] = *(const VECTOR *)(sums + (h * TILE + v) * WIDTH);
    for (ptrdiff_t r = 0; r < n_vectors; r++, left += stride, right += stride) {
        VECTOR others[TILE];
#pragma GCC unroll 4
        for (int v = first; v < end; v++)
            others[v] = *(const VECTOR *)(right + v * WIDTH);
#pragma GCC unroll 4
        for (int h = 0; h < height; h++) {
            VECTOR one = *(const VECTOR *)(left + h * WIDTH);
#pragma GCC unroll 4
            for (int v = is_diagonal && h > first ? h : first; v < end; v++)
                tile[h][v] = MULTIPLY_ADD(one, others[v], tile[h][v]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < height; h++)
#pragma GCC unroll 4
        for (int v = is_diagonal && h > first ? h : first; v < end; v++)
            *(VECTOR *)(sums + (h * TILE + v) * WIDTH) = tile[h][v];
}

/* A tile of some width; where registers are few, two of its columns at a time. */
static DPFAST_INLINE TARGET void LEVEL(add_lane_tile)(const double *left, const double *right, ptrdiff_t n_vectors,
                                                      ptrdiff_t stride, int width, int is_diagonal, double *sums)
{
    const int most = WIDTH == 8 ? TILE : 2;
#pragma GCC unroll 2
    for (int first = 0; first < width; first += most) {
        int end = first + most < width ? first + most : width;
        LEVEL(add_part_of_tile)(left, right, n_vectors, stride, is_diagonal ? end : TILE, first, end, is_diagonal, sums);
    }
}

static TARGET void LEVEL(add_lanes)(const dpfast_lanes *lanes, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                                    const dpfast_table *x, const dpfast_table *y, ptrdiff_t next, ptrdiff_t n_next)
{
    ptrdiff_t n_vectors = (n_rows + WIDTH - 1) / WIDTH, n = lanes->n_columns, stride = n * WIDTH;
    ptrdiff_t n_tiles = tiles_of(n_features, n), x_asked = 0, y_asked = 0;
    ptrdiff_t x_share = share_of(x, n_features, n_next, n_tiles), y_share = share_of(y, n - n_features, n_next, n_tiles);
    double *sums = lanes->products;
    for (ptrdiff_t i = 0; i < n_features; i += TILE)
        for (ptrdiff_t j = i; j < n; j += TILE, sums += TILE * TILE * WIDTH) {
            const double *left = lanes->rows + i * WIDTH, *right = lanes->rows + j * WIDTH;
            ask_for(x, n_features, next, n_next, x_share, &x_asked);
            ask_for(y, n - n_features, next, n_next, y_share, &y_asked);
            if (j + TILE <= first)
                continue;
            switch ((n - j < TILE ? (int)(n - j) : TILE) * 2 + (i == j)) {
            case 2: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 1, 0, sums); break;
            case 3: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 1, 1, sums); break;
            case 4: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 2, 0, sums); break;
            case 5: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 2, 1, sums); break;
            case 6: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 3, 0, sums); break;
            case 7: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 3, 1, sums); break;
            case 8: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 4, 0, sums); break;
            default: LEVEL(add_lane_tile)(left, right, n_vectors, stride, 4, 1, sums); break;
            }
        }
    for (ptrdiff_t j = 0; lanes->columns && j < n; j++) {
        VECTOR sum = *(const VECTOR *)(lanes->columns + j * WIDTH);
        for (ptrdiff_t r = 0; r < n_vectors; r++)
            sum += *(const VECTOR *)(lanes->rows + r * stride + j * WIDTH);
        *(VECTOR *)(lanes->columns + j * WIDTH) = sum;
    }
}
