/* Draws of noise from uniform words: the discrete Gaussian, and the Gaussian seen through a grid. */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu.h"
#include "gaussian_table.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* The discrete Gaussian, P(k) proportional to exp(-k^2 / (2 s^2)) on the integers, by a histogram of columns.
 *
 * Magnitudes fall into columns [j L, (j + 1) L) with L = 2^shift, s/L between 32 and 64 (L = 1 below s = 64). Column j is
 * proposed with probability proportional to L times the weight of its first integer, the tallest; an integer t into the
 * column is accepted with probability exp(-t (2 j L + t) / (2 s^2)). A negative zero is rejected, so both signs of every
 * other magnitude are equally likely. With L = 1 there is nothing to accept: the histogram is the law.
 *
 * First word: a sign and 63 bits u of the uniform that picks the column, compared with thresholds; u equal to a
 * threshold is undecided. Second word (L > 1): t, and 64 - shift bits h of the uniform that accepts. Most h are below
 * what the whole column accepts; otherwise a third word extends h and the exponential is evaluated in double, undecided
 * within `margin`. How many words a draw takes depends on tables and words, never on the processor's exponential.
 *
 * The loop stops at an undecided draw, its words unread, for the caller to decide exactly; or when fewer than three
 * words are left. The caller guarantees the tables (built and tested in noise/discrete.py); single thread, one pass.
 */

/* A discrete Gaussian as columns of 2^shift integers. */
struct dpfast_columns {
    const uint64_t *thresholds; /* floor(2^63 P(column <= j)); the last is 2^63 - 1 */
    const uint64_t *sure;       /* floor(2^(64 - shift) times the least acceptance in column j) */
    const uint16_t *guide;      /* for each value of the top bits, a column to start the search from */
    int guide_bits;
    int shift;
    double scale;
    double margin;
};

#define MAGNITUDE_BITS 0x7fffffffffffffffu

enum { WORDS_PER_DRAW = 3 };
enum verdict { REJECT, ACCEPT, UNDECIDED };

static inline enum verdict accept(const struct dpfast_columns *columns, uint64_t column, uint64_t t, uint64_t h,
                                  uint64_t more)
{
    double per_scale = 1.0 / columns->scale;
    double first = (double)(column << columns->shift);
    double exponent = 0.5 * ((double)t * per_scale) * ((2.0 * first + (double)t) * per_scale);
    double probability = exp(-exponent);
    double uniform = ldexp((double)h + (double)more * 0x1p-64, columns->shift - 64);
    if (fabs(uniform - probability) <= columns->margin)
        return UNDECIDED;
    return uniform < probability ? ACCEPT : REJECT;
}

static ptrdiff_t dpfast_discrete_gaussian(const struct dpfast_columns *columns, const uint64_t *words,
                                          ptrdiff_t n_words, ptrdiff_t *position, int64_t *draws, ptrdiff_t n_draws,
                                          int *undecided)
{
    const int shift = columns->shift;
    const uint64_t in_column = (UINT64_C(1) << shift) - 1;
    ptrdiff_t at = *position, made = 0;

    *undecided = 0;
    while (made < n_draws && at + WORDS_PER_DRAW <= n_words) {
        uint64_t u = words[at] & MAGNITUDE_BITS;
        uint64_t column = columns->guide[u >> (63 - columns->guide_bits)];
        while (u > columns->thresholds[column])
            column++;
        if (DPFAST_UNLIKELY(u == columns->thresholds[column] || columns->margin >= 1.0)) {
            *undecided = 1;
            break;
        }
        uint64_t magnitude = column;
        ptrdiff_t next = at + 1;
        if (shift) {
            uint64_t t = words[next] & in_column, h = words[next] >> shift;
            next++;
            if (DPFAST_UNLIKELY(h >= columns->sure[column])) {
                enum verdict verdict = accept(columns, column, t, h, words[next]);
                if (DPFAST_UNLIKELY(verdict == UNDECIDED)) {
                    *undecided = 1;
                    break;
                }
                next++;
                if (verdict == REJECT) {
                    at = next;
                    continue;
                }
            }
            magnitude = (column << shift) | t;
        }
        uint64_t negative = words[at] >> 63;
        at = next;
        if (DPFAST_UNLIKELY(shift && negative && magnitude == 0))
            continue;
        /* Negated without a branch, which no processor could predict. */
        draws[made++] = (int64_t)((magnitude ^ (0 - negative)) + negative);
    }
    *position = at;
    return made;
}

/* Gaussian noise seen through a grid: one 64-bit word a draw, a table, no branch that depends on the draw.
 *
 * A word is a sign bit and v, 63 bits. With t in [0, 1) the bits not yet revealed, p = (v + t) / 2^64 is uniform on
 * [0, 1/2), and z(p), the upper-tail quantile, is half-normal. The draw is y = +-steps z(p) + fraction, in grid cells
 * from the base cell, and its offset the integer nearest y. In double, v is a floating-point number whose exponent is
 * the octave of p and whose leading mantissa bits are the piece of it: together the row of gaussian_table, the other
 * bits the argument of the row's polynomial.
 *
 * What is computed differs from y by less than `margin` (proved by the tests of the table). Draws closer than that to
 * the boundary between two cells, and those of v < 2^43, whose rows are NaN, are reported in `ambiguous`; the caller
 * decides them exactly, and their offsets here mean nothing.
 *
 * Blocks of BLOCK draws pass through small arrays in the first-level cache: convert, evaluate, round. The same
 * operations in the same order run at every vector level, so the levels agree bit for bit. The caller guarantees
 * |fraction| <= 1/2, steps <= 2^44 and room for n indices; threading is the caller's.
 */

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "the bits of the noise are those of IEEE double arithmetic, without excess precision"
#endif

enum { BLOCK = 256 };

#define SIGN_BIT 0x8000000000000000u
#define MANTISSA 0x000fffffffffffffu
/* One octave below the table's last: the octave of rows that are NaN, the first of which all smaller words use. */
#define LOWEST_OCTAVE (63 - GAUSSIAN_TABLE_OCTAVES - 1)
/* Adding and taking away 1.5 * 2^52 rounds a double below 2^51 in magnitude to the nearest integer. */
#define ROUNDER 0x1.8p52

static DPFAST_INLINE double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static DPFAST_INLINE uint64_t to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* v rounded to the nearest double: two exact halves (their exponents written in) and one rounded sum. */
static DPFAST_INLINE double to_double(uint64_t v)
{
    double high = from_bits((v >> 32) | 0x4530000000000000u) - 0x1.00000001p84;
    double low = from_bits((v & 0xffffffffu) | 0x4330000000000000u);
    return high + low;
}

/* Sum of c[k] t^k, by Horner's rule: the operations, and their order, that every evaluator below repeats. */
static DPFAST_INLINE double polynomial(const double *c, double t)
{
    double sum = c[GAUSSIAN_TABLE_DEGREE];
    for (int power = GAUSSIAN_TABLE_DEGREE - 1; power >= 0; power--)
        sum = sum * t + c[power];
    return sum;
}

/* z[i] = polynomial(gaussian_table[row[i]], t[i]) for n <= BLOCK entries. */
typedef void evaluator(const int32_t *row, const double *t, ptrdiff_t n, double *z);

#if defined(__SSE2__)
/* Two draws at a time: 16-byte loads of both rows, interleaved into pairs of equal powers. */
static void evaluate_baseline(const int32_t *row, const double *t, ptrdiff_t n, double *z)
{
    ptrdiff_t i = 0;
    for (; i + 2 <= n; i += 2) {
        const double *a = gaussian_table[row[i]], *b = gaussian_table[row[i + 1]];
        __m128d x = _mm_loadu_pd(t + i), sum = _mm_setzero_pd();
        for (int power = GAUSSIAN_TABLE_DEGREE - 1; power >= 0; power -= 2) {
            __m128d first = _mm_load_pd(a + power), second = _mm_load_pd(b + power);
            sum = _mm_add_pd(_mm_mul_pd(sum, x), _mm_unpackhi_pd(first, second));
            sum = _mm_add_pd(_mm_mul_pd(sum, x), _mm_unpacklo_pd(first, second));
        }
        _mm_storeu_pd(z + i, sum);
    }
    for (; i < n; i++)
        z[i] = polynomial(gaussian_table[row[i]], t[i]);
}
#else
static void evaluate_baseline(const int32_t *row, const double *t, ptrdiff_t n, double *z)
{
    for (ptrdiff_t i = 0; i < n; i++)
        z[i] = polynomial(gaussian_table[row[i]], t[i]);
}
#endif

#if DPFAST_HAVE_X86_LEVELS
/* Four draws at a time: half rows of four rows, transposed. */
DPFAST_TARGET_AVX2
static void evaluate_avx2(const int32_t *row, const double *t, ptrdiff_t n, double *z)
{
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4) {
        __m256d x = _mm256_loadu_pd(t + i), sum = _mm256_setzero_pd();
        for (int power = GAUSSIAN_TABLE_DEGREE - 3; power >= 0; power -= 4) {
            __m256d a = _mm256_load_pd(gaussian_table[row[i]] + power);
            __m256d b = _mm256_load_pd(gaussian_table[row[i + 1]] + power);
            __m256d c = _mm256_load_pd(gaussian_table[row[i + 2]] + power);
            __m256d d = _mm256_load_pd(gaussian_table[row[i + 3]] + power);
            __m256d ab_even = _mm256_unpacklo_pd(a, b), ab_odd = _mm256_unpackhi_pd(a, b);
            __m256d cd_even = _mm256_unpacklo_pd(c, d), cd_odd = _mm256_unpackhi_pd(c, d);
            sum = _mm256_add_pd(_mm256_mul_pd(sum, x), _mm256_permute2f128_pd(ab_odd, cd_odd, 0x31));
            sum = _mm256_add_pd(_mm256_mul_pd(sum, x), _mm256_permute2f128_pd(ab_even, cd_even, 0x31));
            sum = _mm256_add_pd(_mm256_mul_pd(sum, x), _mm256_permute2f128_pd(ab_odd, cd_odd, 0x20));
            sum = _mm256_add_pd(_mm256_mul_pd(sum, x), _mm256_permute2f128_pd(ab_even, cd_even, 0x20));
        }
        _mm256_storeu_pd(z + i, sum);
    }
    for (; i < n; i++)
        z[i] = polynomial(gaussian_table[row[i]], t[i]);
}
#endif

static DPFAST_INLINE void locate(const uint64_t *words, ptrdiff_t n, int32_t *row, double *t)
{
    const int32_t first_row = (1023 + LOWEST_OCTAVE) << 4;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t bits = to_bits(to_double(words[i] & ~SIGN_BIT));
        int32_t from_first = (int32_t)(bits >> 48) - first_row;
        row[i] = from_first < 0 ? 0 : from_first;
        t[i] = from_bits(((bits << 4) & MANTISSA) | 0x3ff0000000000000u) - 1.5;
    }
}

static DPFAST_INLINE ptrdiff_t offsets_body(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                            double margin, double *offsets, ptrdiff_t *ambiguous, evaluator *evaluate)
{
    static const double no_fractions[BLOCK];
    ptrdiff_t n_ambiguous = 0;
    double safe = 0.5 - margin;
    for (ptrdiff_t start = 0; start < n; start += BLOCK) {
        ptrdiff_t m = n - start < BLOCK ? n - start : BLOCK;
        const uint64_t *word = words + start;
        const double *fraction = fractions ? fractions + start : no_fractions;
        double *offset = offsets + start;
        int32_t row[BLOCK];
        double t[BLOCK], z[BLOCK], distance[BLOCK];
        uint64_t any_doubtful = 0;

        locate(word, m, row, t);
        evaluate(row, t, m, z);
        for (ptrdiff_t i = 0; i < m; i++) {
            double signed_z = from_bits(to_bits(z[i]) ^ (word[i] & SIGN_BIT));
            double y = steps * signed_z + fraction[i];
            double nearest = (y + ROUNDER) - ROUNDER;
            offset[i] = nearest;
            distance[i] = fabs(y - nearest);
            /* Kept among doubles, so that vectors without 64-bit integer comparisons can do it. */
            any_doubtful |= to_bits(distance[i] <= safe ? 0.0 : 1.0);
        }
        if (DPFAST_UNLIKELY(any_doubtful))
            for (ptrdiff_t i = 0; i < m; i++)
                if (!(distance[i] <= safe))
                    ambiguous[n_ambiguous++] = start + i;
    }
    return n_ambiguous;
}

static ptrdiff_t offsets_baseline(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                  double margin, double *offsets, ptrdiff_t *ambiguous)
{
    return offsets_body(words, fractions, n, steps, margin, offsets, ambiguous, evaluate_baseline);
}

#if DPFAST_HAVE_X86_LEVELS
DPFAST_TARGET_AVX2
static ptrdiff_t offsets_avx2(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps, double margin,
                              double *offsets, ptrdiff_t *ambiguous)
{
    return offsets_body(words, fractions, n, steps, margin, offsets, ambiguous, evaluate_avx2);
}

DPFAST_TARGET_AVX512
static ptrdiff_t offsets_avx512(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                double margin, double *offsets, ptrdiff_t *ambiguous)
{
    return offsets_body(words, fractions, n, steps, margin, offsets, ambiguous, evaluate_avx2);
}
#endif

/* Offsets, in grid cells, of n Gaussian draws from their base cells. */
static ptrdiff_t dpfast_gaussian_offsets(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                         double margin, double *offsets, ptrdiff_t *ambiguous, int level)
{
    return DPFAST_CALL(offsets, dpfast_resolve_level(level), words, fractions, n, steps, margin, offsets, ambiguous);
}
