/* Bodies of the loops of gram.c for one vector width; see there. Included once per level. */

/* Round row * scale to integers; returns their sum of squares, which is exact if it is below 2^53. Writes up to the next
 * multiple of WIDTH entries, zeros beyond the row. A row that is `inside` its table may be read up to there too. */
static inline TARGET double LEVEL(round_row)(const char *row, ptrdiff_t n_columns, int is_float32, int inside,
                                             double scale, double *rounded)
{
    const VECTOR scales = SPLAT(scale), magic = SPLAT(ROUND_TO_INTEGER);
    VECTOR squares = SPLAT(0.0);
    ptrdiff_t j = 0;
    for (; j + WIDTH <= n_columns; j += WIDTH) {
        VECTOR entries = is_float32 ? LOAD_F32((const float *)row + j) : LOAD_F64((const double *)row + j);
        entries = (entries * scales + magic) - magic;
        squares = MULTIPLY_ADD(entries, entries, squares);
        STORE(rounded + j, entries);
    }
    if (j < n_columns) {
        ptrdiff_t left = n_columns - j;
        VECTOR entries;
        if (inside)
            entries = is_float32 ? LOAD_INSIDE_F32((const float *)row + j, left)
                                 : LOAD_INSIDE_F64((const double *)row + j, left);
        else
            entries = is_float32 ? LOAD_PART_F32((const float *)row + j, left)
                                 : LOAD_PART_F64((const double *)row + j, left);
        entries = (entries * scales + magic) - magic;
        squares = MULTIPLY_ADD(entries, entries, squares);
        STORE(rounded + j, entries);
    }
    return SUM_LANES(squares);
}

/* `squared_norm_of` of rows.h, the same partial sums in lanes. */
static inline TARGET double LEVEL(squared_norm)(const char *row, ptrdiff_t n_columns, int is_float32, double scale)
{
    const VECTOR scales = SPLAT(scale);
    VECTOR sums[PARTIAL_SUMS / WIDTH];
    double partial[PARTIAL_SUMS];
#pragma GCC unroll 4
    for (int part = 0; part < PARTIAL_SUMS / WIDTH; part++)
        sums[part] = SPLAT(0.0);
    for (ptrdiff_t j = 0; j < n_columns; j += PARTIAL_SUMS) {
#pragma GCC unroll 4
        for (int part = 0; part < PARTIAL_SUMS / WIDTH; part++) {
            ptrdiff_t first = j + part * WIDTH, left = n_columns - first;
            if (left <= 0)
                break;
            VECTOR entries;
            if (left >= WIDTH)
                entries = is_float32 ? LOAD_F32((const float *)row + first) : LOAD_F64((const double *)row + first);
            else
                entries = is_float32 ? LOAD_PART_F32((const float *)row + first, left)
                                     : LOAD_PART_F64((const double *)row + first, left);
            entries = entries * scales;
            sums[part] += entries * entries;
        }
    }
#pragma GCC unroll 4
    for (int part = 0; part < PARTIAL_SUMS / WIDTH; part++)
        STORE(partial + part * WIDTH, sums[part]);
    return folded(partial);
}

/* What to multiply a row beyond the bound by, in place of the grid's scale; negative if it is not finite. */
static inline TARGET double LEVEL(multiplier_onto_bound)(const char *row, int is_float32, const dpfast_row_grid *grid)
{
    double scale = grid->scale;
    double squared = LEVEL(squared_norm)(row, grid->n_columns, is_float32, scale);
    if (DPFAST_UNLIKELY(!isfinite(squared))) {
        if (!is_finite_row(row, grid->n_columns, is_float32))
            return -1.0;
        scale = scale_to_unit(row, grid->n_columns, is_float32);
        squared = LEVEL(squared_norm)(row, grid->n_columns, is_float32, scale);
    }
    return scale * (grid->bound / sqrt(squared));
}

/* Scale a row beyond the bound onto it. Rounding may leave it a hair beyond: then scale a little more, until the test
 * holds, which it does at the latest for a multiplier of zero (step 50). Returns 0 if the row is not finite. */
static TARGET int LEVEL(shrink_row)(const char *row, int is_float32, const dpfast_row_grid *grid, double *rounded)
{
    double multiplier = LEVEL(multiplier_onto_bound)(row, is_float32, grid);
    if (multiplier < 0.0)
        return 0;
    for (int step = 0;
         !(LEVEL(round_row)(row, grid->n_columns, is_float32, 0, multiplier, rounded) <= grid->squared_bound); step++)
        multiplier *= 1.0 - ldexp(1.0, step - 50);
    return 1;
}

/* One row within the bound, in `rounded`; returns 0 if it is not finite. */
static inline TARGET int LEVEL(bound_row)(const char *row, int is_float32, const char *last_inside,
                                          const dpfast_row_grid *grid, double *rounded)
{
    int inside = row <= last_inside;
    double squared = is_float32 ? LEVEL(round_row)(row, grid->n_columns, 1, inside, grid->scale, rounded)
                                : LEVEL(round_row)(row, grid->n_columns, 0, inside, grid->scale, rounded);
    if (DPFAST_UNLIKELY(!(squared <= grid->squared_bound)))
        return LEVEL(shrink_row)(row, is_float32, grid, rounded);
    return 1;
}

static inline TARGET void LEVEL(place_row)(const double *rounded, const dpfast_pack *pack, ptrdiff_t r)
{
    if (pack->panel_width != WIDTH) {
        memcpy(pack->data + r * pack->panel_width, rounded, (size_t)pack->panel_width * sizeof(double));
        return;
    }
    double *panel = pack->data + r * WIDTH;
    for (ptrdiff_t j = 0; j < pack->n_columns; j += WIDTH, panel += pack->panel_stride)
        STORE(panel, LOAD_F64(rounded + j));
}

/* Reading ahead reaches into the next pack: the processor's own read-ahead goes idle while products are formed. */
static TARGET int LEVEL(pack_rows)(const dpfast_table *x, const dpfast_row_grid *x_grid, const dpfast_table *y,
                                   const dpfast_row_grid *y_grid, ptrdiff_t n_rows, ptrdiff_t n_available,
                                   const dpfast_beside *beside, double *rounded, const dpfast_pack *pack)
{
    ptrdiff_t x_ahead = read_ahead(x, x_grid->n_columns), y_ahead = read_ahead(y, y_grid->n_columns);
    ptrdiff_t x_bytes = bytes_read(x, x_grid->n_columns, WIDTH), y_bytes = bytes_read(y, y_grid->n_columns, WIDTH);
    const char *x_inside = last_inside(x, x_bytes), *y_inside = last_inside(y, y_bytes);
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        if (r + x_ahead < n_available)
            prefetch_row(x, r + x_ahead, x_bytes);
        if (r + y_ahead < n_available)
            prefetch_row(y, r + y_ahead, y_bytes);
        if (beside) {
            const char *row = row_address(x, r);
            double squared = LEVEL(round_row)(row, x_grid->n_columns, x->is_float32, row <= x_inside, x_grid->scale,
                                              rounded);
            if (DPFAST_UNLIKELY(beside->beyond[r] || !(squared + beside->squares[r] <= x_grid->squared_bound))) {
                beside->beyond[r] = 1;
                memset(rounded, 0, (size_t)pack->n_columns * sizeof *rounded);
                LEVEL(place_row)(rounded, pack, r);
                continue;
            }
        } else if (!LEVEL(bound_row)(row_address(x, r), x->is_float32, x_inside, x_grid, rounded))
            return DPFAST_X_NOT_FINITE;
        if (y_grid->n_columns > 0 &&
            !LEVEL(bound_row)(row_address(y, r), y->is_float32, y_inside, y_grid, rounded + x_grid->n_columns))
            return DPFAST_Y_NOT_FINITE;
        LEVEL(place_row)(rounded, pack, r);
    }
    return DPFAST_PACKED;
}

static TARGET void LEVEL(add_by_slot)(const dpfast_pack *pack, ptrdiff_t n_rows, const int32_t *slots, double *sums)
{
    /* Two panels at a time: eight columns, what most tables have, are one or two. */
    ptrdiff_t stride = pack->n_columns, j = 0;
    const double *panel = pack->data, *next = panel + pack->panel_stride;
    for (; j + 2 * WIDTH <= stride; j += 2 * WIDTH, panel = next + pack->panel_stride, next = panel + pack->panel_stride)
        for (ptrdiff_t r = 0; r < n_rows; r++) {
            double *to = sums + slots[r] * stride + j;
            STORE(to, LOAD_F64(to) + LOAD_F64(panel + r * WIDTH));
            STORE(to + WIDTH, LOAD_F64(to + WIDTH) + LOAD_F64(next + r * WIDTH));
        }
    for (ptrdiff_t r = 0; j < stride && r < n_rows; r++) {
        double *to = sums + slots[r] * stride + j;
        STORE(to, LOAD_F64(to) + LOAD_F64(panel + r * WIDTH));
    }
}

/* totals[i : i + height, j : j + vectors * WIDTH] += products of those columns, held in registers over all rows; where there
 * are no totals, the same of `block`, in doubles, which hold nothing yet if it is new. */
static inline __attribute__((always_inline)) TARGET void
LEVEL(add_tile)(const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t i, ptrdiff_t j, int height, int vectors,
                int64_t *totals, double *block, int is_new)
{
    const double *left = pack->data + i / WIDTH * pack->panel_stride;
    const double *right = pack->data + j / WIDTH * pack->panel_stride;
    VECTOR sums[HEIGHT][3];
#pragma GCC unroll 8
    for (int h = 0; h < height; h++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            ptrdiff_t first = (i + h) * pack->n_columns + j + v * WIDTH;
            __builtin_prefetch(totals ? (const void *)(totals + first) : (const void *)(block + first), 1);
            sums[h][v] = SPLAT(0.0);
        }
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        VECTOR columns[3];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            columns[v] = LOAD_F64(right + v * pack->panel_stride + r * WIDTH);
#pragma GCC unroll 8
        for (int h = 0; h < height; h++) {
            VECTOR entry = SPLAT(left[h / WIDTH * pack->panel_stride + r * WIDTH + h % WIDTH]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sums[h][v] = MULTIPLY_ADD(entry, columns[v], sums[h][v]);
        }
    }
    if (totals) {
#pragma GCC unroll 8
        for (int h = 0; h < height; h++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                ADD_TO_TOTALS(totals + (i + h) * pack->n_columns + j + v * WIDTH, sums[h][v]);
        return;
    }
    if (!is_new) {
#pragma GCC unroll 8
        for (int h = 0; h < height; h++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sums[h][v] += LOAD_F64(block + (i + h) * pack->n_columns + j + v * WIDTH);
    }
#pragma GCC unroll 8
    for (int h = 0; h < height; h++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            STORE(block + (i + h) * pack->n_columns + j + v * WIDTH, sums[h][v]);
}

static TARGET void LEVEL(add_products)(const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features,
                                       ptrdiff_t first_column, int64_t *totals, double *block, int is_new)
{
    for (ptrdiff_t j = first_column - first_column % WIDTH; j < pack->n_columns;) {
        /* Three panels to a column of tiles; the last four as two and two. */
        ptrdiff_t panels_left = (pack->n_columns - j) / WIDTH;
        ptrdiff_t end = j + (panels_left == 4 ? 2 : panels_left < 3 ? panels_left : 3) * WIDTH;
        for (ptrdiff_t i = 0; i < n_features && i < end; i += HEIGHT) {
            ptrdiff_t first = i > j ? i - i % WIDTH : j;
            int is_half = n_features - i <= HEIGHT / 2;
            switch ((end - first) / WIDTH * 2 + is_half) {
            case 2: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT, 1, totals, block, is_new); break;
            case 3: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT / 2, 1, totals, block, is_new); break;
            case 4: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT, 2, totals, block, is_new); break;
            case 5: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT / 2, 2, totals, block, is_new); break;
            case 6: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT, 3, totals, block, is_new); break;
            default: LEVEL(add_tile)(pack, n_rows, i, first, HEIGHT / 2, 3, totals, block, is_new); break;
            }
        }
        j = end;
    }
}

/* out[i, j] = product of the rows i <= j of a pack over the columns [first, end); `out` has rows of `stride`, a multiple
 * of 4. A tile of products shares what it loads; rows asked for beyond the last are the last again. */
static TARGET void LEVEL(multiply_rows)(const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t first, ptrdiff_t end,
                                        ptrdiff_t stride, double *out)
{
    ptrdiff_t first_panel = first / WIDTH, last_panel = (end - 1) / WIDTH;
    double inner[WIDTH], left_edge[WIDTH], right_edge[WIDTH];
    for (ptrdiff_t lane = 0; lane < WIDTH; lane++) {
        inner[lane] = 1.0;
        left_edge[lane] = first_panel * WIDTH + lane >= first;
        right_edge[lane] = last_panel * WIDTH + lane < end;
    }
    for (ptrdiff_t i = 0; i < n_rows; i += TILE_ROWS)
        for (ptrdiff_t j = i - i % 4; j < n_rows; j += 4) {
            VECTOR sums[TILE_ROWS][4];
            ptrdiff_t above[TILE_ROWS], beside[4];
            for (ptrdiff_t h = 0; h < TILE_ROWS; h++)
                above[h] = (i + h < n_rows ? i + h : n_rows - 1) * WIDTH;
            for (ptrdiff_t v = 0; v < 4; v++)
                beside[v] = (j + v < n_rows ? j + v : n_rows - 1) * WIDTH;
#pragma GCC unroll 4
            for (int h = 0; h < TILE_ROWS; h++)
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++)
                    sums[h][v] = SPLAT(0.0);
            const double *panel = pack->data + first_panel * pack->panel_stride;
            for (ptrdiff_t p = first_panel; p <= last_panel; p++, panel += pack->panel_stride) {
                VECTOR right[4];
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++)
                    right[v] = LOAD_F64(panel + beside[v]);
                /* Products with 0 and 1 are exact: lanes of the other table drop out. */
                if (p == first_panel || p == last_panel)
                    for (int v = 0; v < 4; v++) {
                        right[v] = right[v] * LOAD_F64(p == first_panel ? left_edge : inner);
                        right[v] = right[v] * LOAD_F64(p == last_panel ? right_edge : inner);
                    }
#pragma GCC unroll 4
                for (int h = 0; h < TILE_ROWS; h++) {
                    VECTOR left = LOAD_F64(panel + above[h]);
#pragma GCC unroll 4
                    for (int v = 0; v < 4; v++)
                        sums[h][v] = MULTIPLY_ADD(left, right[v], sums[h][v]);
                }
            }
#pragma GCC unroll 4
            for (int h = 0; h < TILE_ROWS; h++)
                STORE_SUMS_OF_LANES(out + (i + h) * stride + j, sums[h][0], sums[h][1], sums[h][2], sums[h][3]);
        }
}

#undef LEVEL
#undef TARGET
#undef WIDTH
#undef HEIGHT
#undef VECTOR
#undef LOAD_F64
#undef LOAD_F32
#undef LOAD_PART_F64
#undef LOAD_PART_F32
#undef STORE
#undef MULTIPLY_ADD
#undef SPLAT
#undef SUM_LANES
#undef TILE_ROWS
#undef STORE_SUMS_OF_LANES
#undef ADD_TO_TOTALS
