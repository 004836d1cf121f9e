/* Exact sums of products of bounded rows.
 *
 * A row is multiplied by a power of two, rounded to integers (half to even) and its integer squared norm compared with
 * an integer bound M. Integers are summed in doubles: while every partial sum stays below 2^53 each addition is exact,
 * in any order and with or without fused multiply-add, and a sum that passes 2^53 stays above it, because rounding is
 * monotone. So the comparison with M < 2^53 is that of exact arithmetic, and with n_rows * M < 2^53 so are the sums of
 * products. The bits therefore depend on nothing but the rows: not on vector width, blocks or threads.
 *
 * Rows above M are first scaled onto the bound. That is ordinary floating-point arithmetic, so it keeps to one order of
 * operations (rows.h) at every vector width, and its result is tested against M again.
 *
 * Packed rows lie in panels as wide as a vector, so that the products of two panels stream through contiguous memory,
 * held in a tile of registers. The tile's sums, integers below 2^53, are added straight into 64-bit totals.
 *
 * This file includes itself: its loops are compiled once per vector width.
 */
#ifndef LEVEL /* once, before the loops */

#include "gram.h"

#include <math.h>
#include <string.h>

#include "cpu.h"

#if DPFAST_HAVE_X86_LEVELS
#include <immintrin.h>
#endif

enum { CACHE_LINE = 64, READ_AHEAD_BYTES = 16384, MOST_AHEAD = 64, MOST_TOGETHER = 8 };

static inline ptrdiff_t row_bytes(const dpfast_table *table, ptrdiff_t n_columns)
{
    return n_columns * (table->is_float32 ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)sizeof(double));
}

/* Bytes from the first entry of a row to the last that is read with it, in whole vectors. */
static inline ptrdiff_t bytes_read(const dpfast_table *table, ptrdiff_t n_columns, ptrdiff_t width)
{
    return row_bytes(table, (n_columns + width - 1) / width * width);
}

/* The last address at which a row may begin so that what is read of it in whole vectors, zeroed behind its end, is within
 * the table. Loads that skip those entries instead do not overlap when they miss the cache on some processors (Zen 5: a
 * table of 7 columns takes four times as long). */
static inline const char *last_inside(const dpfast_table *table, ptrdiff_t n_bytes)
{
    return table->end ? table->end - n_bytes : NULL;
}

/* How many rows ahead to ask for memory, unless that would crowd the cache; none of an absent table. The same for every
 * pack of a table, however few rows it has: each row is asked for once. */
static ptrdiff_t read_ahead(const dpfast_table *table, ptrdiff_t n_columns)
{
    if (n_columns == 0)
        return PTRDIFF_MAX / 2;
    ptrdiff_t ahead = READ_AHEAD_BYTES / row_bytes(table, n_columns) + 1;
    return ahead < MOST_AHEAD ? ahead : MOST_AHEAD;
}

/* Inlined, or GCC takes it for a function without effects and leaves its calls out. A row that others of the table do not
 * follow may end in a line of its own. */
static DPFAST_INLINE void prefetch_row(const dpfast_table *table, ptrdiff_t r, ptrdiff_t n_bytes)
{
    const char *row = row_address(table, r);
    for (ptrdiff_t offset = 0; offset < n_bytes; offset += CACHE_LINE)
        __builtin_prefetch(row + offset);
    if (table->rows)
        __builtin_prefetch(row + n_bytes - 1);
}

#else /* once per level, as this file includes itself below */

/* Loops over vectors of WIDTH doubles. */

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

#endif

#ifndef LEVEL /* once, after them */

/* Baseline: pairs of doubles, SSE2 on x86-64 and NEON on AArch64. */
#define LEVEL(name) name##_baseline
#define TARGET
#define WIDTH 2
#define HEIGHT 4
typedef double vector2 __attribute__((vector_size(16), aligned(8), may_alias));
#define VECTOR vector2
#define LOAD_F64(p) (*(const VECTOR *)(p))
#define LOAD_F32(p) ((VECTOR){(double)(p)[0], (double)(p)[1]})
#define LOAD_PART_F64(p, n) ((VECTOR){(p)[0], 0.0})
#define LOAD_PART_F32(p, n) ((VECTOR){(double)(p)[0], 0.0})
#define LOAD_INSIDE_F64 LOAD_PART_F64
#define LOAD_INSIDE_F32 LOAD_PART_F32
#define STORE(p, v) (*(VECTOR *)(p) = (v))
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define SPLAT(a) ((VECTOR){(a), (a)})
#define SUM_LANES(v) ((v)[0] + (v)[1])
#define TILE_ROWS 2
#define STORE_SUMS_OF_LANES(p, a, b, c, d) \
    ((p)[0] = SUM_LANES(a), (p)[1] = SUM_LANES(b), (p)[2] = SUM_LANES(c), (p)[3] = SUM_LANES(d))
#define ADD_TO_TOTALS(p, v) ((p)[0] += (int64_t)(v)[0], (p)[1] += (int64_t)(v)[1])
#include "gram.c"

#if DPFAST_HAVE_X86_LEVELS

/* From place 8 - n on: n entries to keep, then zeros. */
static const int64_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
static const int32_t avx2_masks_f32[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

static inline DPFAST_TARGET_AVX2 void store_sums_of_lanes_avx2(double *sums, __m256d a, __m256d b, __m256d c,
                                                               __m256d d)
{
    __m256d ab = _mm256_hadd_pd(a, b), cd = _mm256_hadd_pd(c, d);
    _mm256_storeu_pd(sums, _mm256_add_pd(_mm256_permute2f128_pd(ab, cd, 0x20), _mm256_permute2f128_pd(ab, cd, 0x31)));
}

static inline DPFAST_TARGET_AVX512 void store_sums_of_lanes_avx512(double *sums, __m512d a, __m512d b, __m512d c,
                                                                   __m512d d)
{
    __m512d ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    __m512d cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
    __m512d halves = _mm512_add_pd(_mm512_shuffle_f64x2(ab, cd, 0x88), _mm512_shuffle_f64x2(ab, cd, 0xdd));
    __m256d of_ab = _mm512_castpd512_pd256(halves), of_cd = _mm512_extractf64x4_pd(halves, 1);
    _mm256_storeu_pd(
        sums, _mm256_add_pd(_mm256_permute2f128_pd(of_ab, of_cd, 0x20), _mm256_permute2f128_pd(of_ab, of_cd, 0x31)));
}

#define LEVEL(name) name##_avx2
#define TARGET DPFAST_TARGET_AVX2
#define WIDTH 4
#define HEIGHT 4
#define VECTOR __m256d
#define LOAD_F64(p) _mm256_loadu_pd(p)
#define LOAD_F32(p) _mm256_cvtps_pd(_mm_loadu_ps(p))
#define LOAD_PART_F64(p, n) _mm256_maskload_pd((p), _mm256_loadu_si256((const __m256i *)(masks + 8 - (n))))
#define LOAD_PART_F32(p, n) \
    _mm256_cvtps_pd(_mm_maskload_ps((p), _mm_loadu_si128((const __m128i *)(avx2_masks_f32 + 4 - (n)))))
#define KEPT(v, n) _mm256_and_pd((v), _mm256_loadu_pd((const double *)(masks + 8 - (n))))
#define LOAD_INSIDE_F64(p, n) KEPT(LOAD_F64(p), n)
#define LOAD_INSIDE_F32(p, n) KEPT(LOAD_F32(p), n)
#define STORE(p, v) _mm256_storeu_pd((p), (v))
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_pd((a), (b), (c))
#define SPLAT(a) _mm256_set1_pd(a)
#define SUM_LANES(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
#define TILE_ROWS 2
#define STORE_SUMS_OF_LANES(p, a, b, c, d) store_sums_of_lanes_avx2((p), (a), (b), (c), (d))
#define ADD_TO_TOTALS(p, v) \
    ((p)[0] += (int64_t)(v)[0], (p)[1] += (int64_t)(v)[1], (p)[2] += (int64_t)(v)[2], (p)[3] += (int64_t)(v)[3])
#include "gram.c"

#define LEVEL(name) name##_avx512
#define TARGET DPFAST_TARGET_AVX512
#define WIDTH 8
#define HEIGHT 8
#define VECTOR __m512d
#define LOAD_F64(p) _mm512_loadu_pd(p)
#define LOAD_F32(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define LOAD_PART_F64(p, n) _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1u), (p))
#define LOAD_PART_F32(p, n) _mm512_cvtps_pd(_mm256_maskz_loadu_ps((__mmask8)((1u << (n)) - 1u), (p)))
#define KEPT(v, n) _mm512_and_pd((v), _mm512_loadu_pd(masks + 8 - (n)))
#define LOAD_INSIDE_F64(p, n) KEPT(LOAD_F64(p), n)
#define LOAD_INSIDE_F32(p, n) KEPT(LOAD_F32(p), n)
#define STORE(p, v) _mm512_storeu_pd((p), (v))
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_pd((a), (b), (c))
#define SPLAT(a) _mm512_set1_pd(a)
#define SUM_LANES(v) _mm512_reduce_add_pd(v)
#define TILE_ROWS 4
#define STORE_SUMS_OF_LANES(p, a, b, c, d) store_sums_of_lanes_avx512((p), (a), (b), (c), (d))
#define ADD_TO_TOTALS(p, v) \
    _mm512_storeu_si512((p), _mm512_add_epi64(_mm512_loadu_si512(p), _mm512_cvttpd_epi64(v)))
#include "gram.c"

#endif

ptrdiff_t dpfast_panel_width(int level)
{
    return level == DPFAST_AVX512 ? 8 : level == DPFAST_AVX2 ? 4 : 2;
}

int dpfast_pack_rows(int level, const dpfast_table *x, const dpfast_row_grid *x_grid, const dpfast_table *y,
                     const dpfast_row_grid *y_grid, ptrdiff_t start, ptrdiff_t n_rows,
                     ptrdiff_t n_available, const dpfast_beside *beside, const dpfast_pack_scratch *scratch,
                     const dpfast_pack *pack)
{
    dpfast_table x_rows = staged_rows(x, x_grid->n_columns, start, n_rows, scratch->x_staging);
    dpfast_table y_rows = *y;
    if (y_grid->n_columns > 0)
        y_rows = staged_rows(y, y_grid->n_columns, start, n_rows, scratch->y_staging);
    return DPFAST_CALL(pack_rows, level, &x_rows, x_grid, &y_rows, y_grid, n_rows, n_available, beside, scratch->row,
                       pack);
}

int dpfast_shrink_row(int level, const double *row, const dpfast_row_grid *grid, double *rounded)
{
    return DPFAST_CALL(shrink_row, level, (const char *)row, 0, grid, rounded);
}

static void add_products(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                         int64_t *totals, double *block, int is_new)
{
    DPFAST_CALL(add_products, level, pack, n_rows, n_features, first, totals, block, is_new);
}

void dpfast_add_products(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features, ptrdiff_t first,
                         int64_t *totals)
{
    add_products(level, pack, n_rows, n_features, first, totals, NULL, 0);
}

void dpfast_add_products_in_doubles(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t n_features,
                                    double *block, int is_new)
{
    add_products(level, pack, n_rows, n_features, 0, NULL, block, is_new);
}

void dpfast_add_by_slot(int level, const dpfast_pack *pack, ptrdiff_t n_rows, const int32_t *slots, double *sums)
{
    DPFAST_CALL(add_by_slot, level, pack, n_rows, slots, sums);
}

void dpfast_multiply_rows(int level, const dpfast_pack *pack, ptrdiff_t n_rows, ptrdiff_t first, ptrdiff_t end,
                          ptrdiff_t stride, double *out)
{
    DPFAST_CALL(multiply_rows, level, pack, n_rows, first, end, stride, out);
}

/* A few columns of a panel: rows of a pack sum exactly in doubles, which take less time to add than to convert. */
static DPFAST_INLINE void add_some_columns(const double *panel, ptrdiff_t width, ptrdiff_t n_rows, int n, int64_t *totals)
{
    double sums[MOST_TOGETHER] = {0.0};
    for (ptrdiff_t r = 0; r < n_rows; r++)
        for (int j = 0; j < n; j++)
            sums[j] += panel[r * width + j];
    for (int j = 0; j < n; j++)
        totals[j] += (int64_t)sums[j];
}

void dpfast_add_columns(const dpfast_pack *pack, ptrdiff_t n_rows, int64_t *totals)
{
    ptrdiff_t width = pack->panel_width;
    for (ptrdiff_t j = 0; j < pack->n_columns; j += width < MOST_TOGETHER ? width : MOST_TOGETHER) {
        const double *panel = pack->data + j / width * pack->panel_stride + j % width;
        if (width == 2)
            add_some_columns(panel, width, n_rows, 2, totals + j);
        else if (width == 4)
            add_some_columns(panel, width, n_rows, 4, totals + j);
        else
            add_some_columns(panel, width, n_rows, MOST_TOGETHER, totals + j);
    }
}

void dpfast_add_block(const double *block, ptrdiff_t n_features, ptrdiff_t first, ptrdiff_t n_columns, ptrdiff_t stride,
                      int64_t *totals)
{
    for (ptrdiff_t i = 0; i < n_features; i++)
        for (ptrdiff_t j = i > first ? i : first; j < n_columns; j++)
            totals[i * stride + j] += (int64_t)block[i * stride + j];
}

#else /* the next level has its own */

#undef LEVEL
#undef TARGET
#undef WIDTH
#undef HEIGHT
#undef VECTOR
#undef LOAD_F64
#undef LOAD_F32
#undef LOAD_PART_F64
#undef LOAD_PART_F32
#undef LOAD_INSIDE_F64
#undef LOAD_INSIDE_F32
#undef KEPT
#undef STORE
#undef MULTIPLY_ADD
#undef SPLAT
#undef SUM_LANES
#undef TILE_ROWS
#undef STORE_SUMS_OF_LANES
#undef ADD_TO_TOTALS

#endif
