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
 * lane_gram_level.h holds the bodies, compiled once per vector width.
 */
#include "lane_gram.h"

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

#define DPFAST_LOOPS "lane_gram_level.h"
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
