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
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu.h"

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
