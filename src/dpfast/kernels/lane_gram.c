/* Exact sums of products of narrow rows.
 *
 * What gram.c says of rounding, of rows beyond their bound and of exactness holds here, and the sums are the same. Where
 * numbers lie differs. There a vector holds columns of a row, and products take an entry that is broadcast. Here it holds
 * rows of a column: nothing is broadcast, no lane holds padding, the norms of eight rows add up side by side, and a table
 * that is kept by columns is read as it lies. Each lane has sums of its own, exact in doubles for as many rows as a block
 * of gram.c: they are moved to the totals when one of them has seen that many. That takes room for eight times the sums,
 * which is little where rows are narrow.
 *
 * Rows that follow are asked for while products are formed: the processor's own read-ahead goes idle then, and does not
 * follow many columns at once.
 *
 * levels.h includes this file again: its loops are compiled once per vector width.
 */
#ifndef LEVEL /* once, before the loops */

#include "gram.h"

#include <float.h>
#include <math.h>

enum { TILE = 4, CACHE_LINE = 64 };

/* Eight rows of a table whose columns are adjacent: `offset` bytes from where the columns begin. */
struct group {
    const char *const *columns; /* or NULL, for `data` and `column_stride` */
    const char *data;
    ptrdiff_t column_stride, offset;
};

static inline ptrdiff_t item_of(const dpfast_table *table)
{
    return table->is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double);
}

static inline const char *column_of(const dpfast_table *table, ptrdiff_t j)
{
    return table->columns ? table->columns[j] : table->data + j * table->column_stride;
}

/* Up to eight rows, wherever their entries are, and zeros behind them. */
static void gather_group(const dpfast_table *table, ptrdiff_t n_columns, ptrdiff_t first, ptrdiff_t n_rows,
                         double *group)
{
    ptrdiff_t offsets[ROWS_IN_LINE], n_read = n_rows < ROWS_IN_LINE ? n_rows : ROWS_IN_LINE;
    for (ptrdiff_t r = 0; r < n_read; r++)
        offsets[r] = (table->rows ? (ptrdiff_t)table->rows[first + r] : first + r) * table->row_stride;
    for (ptrdiff_t j = 0; j < n_columns; j++, group += ROWS_IN_LINE) {
        const char *column = column_of(table, j);
        for (ptrdiff_t r = 0; r < n_read; r++)
            group[r] = load_scalar(column + offsets[r], 0, table->is_float32);
        for (ptrdiff_t r = n_read; r < ROWS_IN_LINE; r++)
            group[r] = 0.0;
    }
}

static inline void ask_for_bytes(const char *from, ptrdiff_t n_bytes)
{
    for (ptrdiff_t b = 0; b < n_bytes; b += CACHE_LINE)
        __builtin_prefetch(from + b);
}

/* Ask for a part of some rows: the next `share` columns of them, or rows, from `*asked` on. */
static inline void ask_for(const dpfast_table *table, ptrdiff_t n_columns, ptrdiff_t next, ptrdiff_t n_next,
                           ptrdiff_t share, ptrdiff_t *asked)
{
    ptrdiff_t item = item_of(table), first = *asked;
    *asked += share;
    if (!table->rows && table->row_stride == item) {
        for (ptrdiff_t j = first; j < *asked && j < n_columns; j++)
            ask_for_bytes(column_of(table, j) + next * item, n_next * item);
    } else if (!table->columns) {
        for (ptrdiff_t r = first; r < *asked && r < n_next; r++)
            ask_for_bytes(row_address(table, next + r), n_columns * item);
    }
}

/* How many columns, or rows, to ask for at each of some tiles. */
static inline ptrdiff_t share_of(const dpfast_table *table, ptrdiff_t n_columns, ptrdiff_t n_next, ptrdiff_t n_tiles)
{
    ptrdiff_t n = !table->rows && table->row_stride == item_of(table) ? n_columns : n_next;
    return n_columns == 0 || n_next == 0 ? 0 : (n + n_tiles - 1) / n_tiles;
}

static inline ptrdiff_t tiles_of(ptrdiff_t n_features, ptrdiff_t n_columns)
{
    ptrdiff_t n_tiles = 0;
    for (ptrdiff_t i = 0; i < n_features; i += TILE)
        n_tiles += (n_columns - i + TILE - 1) / TILE;
    return n_tiles;
}

/* Which lanes are not within a bound, a bit each; square roots; a square turned. */
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));
static inline unsigned lanes_beyond_baseline(pair squares, double bound)
{
    return (unsigned)!(squares[0] <= bound) | (unsigned)!(squares[1] <= bound) << 1;
}

static inline pair square_roots_baseline(pair squares)
{
    return (pair){sqrt(squares[0]), sqrt(squares[1])};
}

static inline void transpose_baseline(pair *square)
{
    pair upper = square[0], lower = square[1];
    square[0] = DPFAST_INTERLEAVED(upper, lower, 0);
    square[1] = DPFAST_INTERLEAVED(upper, lower, 1);
}

#if DPFAST_HAVE_X86_LEVELS
#include <immintrin.h>
static inline DPFAST_TARGET_AVX2 unsigned lanes_beyond_avx2(__m256d squares, double bound)
{
    return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(squares, _mm256_set1_pd(bound), _CMP_NLE_UQ));
}

static inline DPFAST_TARGET_AVX2 __m256d square_roots_avx2(__m256d squares)
{
    return _mm256_sqrt_pd(squares);
}

typedef double four __attribute__((vector_size(32), aligned(8), may_alias));
static DPFAST_INLINE DPFAST_TARGET_AVX2 void transpose_avx2(four *square)
{
    __m256d a = _mm256_unpacklo_pd(square[0], square[1]), b = _mm256_unpackhi_pd(square[0], square[1]);
    __m256d c = _mm256_unpacklo_pd(square[2], square[3]), d = _mm256_unpackhi_pd(square[2], square[3]);
    square[0] = _mm256_permute2f128_pd(a, c, 0x20);
    square[1] = _mm256_permute2f128_pd(b, d, 0x20);
    square[2] = _mm256_permute2f128_pd(a, c, 0x31);
    square[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

static inline DPFAST_TARGET_AVX512 unsigned lanes_beyond_avx512(__m512d squares, double bound)
{
    return _mm512_cmp_pd_mask(squares, _mm512_set1_pd(bound), _CMP_NLE_UQ);
}

static inline DPFAST_TARGET_AVX512 __m512d square_roots_avx512(__m512d squares)
{
    return _mm512_sqrt_pd(squares);
}

typedef double eight __attribute__((vector_size(64), aligned(8), may_alias));
static DPFAST_INLINE DPFAST_TARGET_AVX512 void transpose_avx512(eight *square)
{
    __m512d pairs[8];
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        pairs[r / 2] = _mm512_unpacklo_pd(square[r], square[r + 1]);
        pairs[4 + r / 2] = _mm512_unpackhi_pd(square[r], square[r + 1]);
    }
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++) {
        const __m512d *of = pairs + 4 * odd;
        __m512d a = _mm512_shuffle_f64x2(of[0], of[1], 0x88), b = _mm512_shuffle_f64x2(of[2], of[3], 0x88);
        __m512d c = _mm512_shuffle_f64x2(of[0], of[1], 0xdd), d = _mm512_shuffle_f64x2(of[2], of[3], 0xdd);
        square[odd] = _mm512_shuffle_f64x2(a, b, 0x88);
        square[4 + odd] = _mm512_shuffle_f64x2(a, b, 0xdd);
        square[2 + odd] = _mm512_shuffle_f64x2(c, d, 0x88);
        square[6 + odd] = _mm512_shuffle_f64x2(c, d, 0xdd);
    }
}
#endif

#else /* once per level, as levels.h includes this file again */

/* Loops over vectors of WIDTH doubles. */

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

/* Scale rows of WIDTH that are beyond their bound onto it, by the operations of shrink_row (gram.c) in each lane, and
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

#endif

#ifndef LEVEL /* once, after them */

#define DPFAST_LOOPS "lane_gram.c"
#include "levels.h"

ptrdiff_t dpfast_lane_products(ptrdiff_t n_features, ptrdiff_t n_columns)
{
    return tiles_of(n_features, n_columns) * TILE * TILE * ROWS_IN_LINE;
}

int dpfast_pack_lanes(int level, const dpfast_table *x, const dpfast_row_grid *x_grid, const dpfast_table *y,
                      const dpfast_row_grid *y_grid, ptrdiff_t start, ptrdiff_t n_rows, const dpfast_lanes *lanes)
{
    if (!CALL(pack_table, level, level, x, x_grid, start, n_rows, lanes, 0))
        return DPFAST_X_NOT_FINITE;
    if (y_grid->n_columns > 0 && !CALL(pack_table, level, level, y, y_grid, start, n_rows, lanes, x_grid->n_columns))
        return DPFAST_Y_NOT_FINITE;
    return DPFAST_PACKED;
}

void dpfast_add_lanes(int level, const dpfast_lanes *lanes, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                      const dpfast_table *x, const dpfast_table *y, ptrdiff_t next, ptrdiff_t n_next)
{
    CALL(add_lanes, level, lanes, n_rows, n_features, first, x, y, next, n_next);
}

static int64_t taken_from(double *lanes, ptrdiff_t width)
{
    int64_t sum = 0;
    for (ptrdiff_t lane = 0; lane < width; lane++) {
        sum += (int64_t)lanes[lane];
        lanes[lane] = 0.0;
    }
    return sum;
}

void dpfast_take_lanes(int level, const dpfast_lanes *lanes, ptrdiff_t n_features, ptrdiff_t first, ptrdiff_t stride,
                       int64_t *totals, int64_t *columns)
{
    ptrdiff_t width = dpfast_panel_width(level), n = lanes->n_columns;
    double *sums = lanes->products;
    for (ptrdiff_t i = 0; i < n_features; i += TILE)
        for (ptrdiff_t j = i; j < n; j += TILE)
            for (ptrdiff_t h = 0; h < TILE; h++)
                for (ptrdiff_t v = 0; v < TILE; v++, sums += width) {
                    int64_t sum = taken_from(sums, width);
                    if (i + h < n_features && j + v < n && j + v >= i + h && j + v >= first)
                        totals[(i + h) * stride + j + v] += sum;
                }
    for (ptrdiff_t j = 0; lanes->columns && j < n; j++)
        columns[j] += taken_from(lanes->columns + j * width, width);
}

#endif
