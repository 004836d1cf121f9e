/* Sizes of rows and of entries as codes of half-octaves, each row's by itself.
 *
 * The half-octave of a number is read off its bits: twice the exponent, and one more if the fraction is above 0, and one
 * more if it is above that of sqrt(2). The norm of a row is the root of its square, in the order of rows.h, and the
 * half-octave of a root is the octave of its square: no root is taken, and no logarithm.
 *
 * Bins end at sizes from 2^-400 to 2^400. So a square that overflows is above the last, and what is lost of one that
 * underflows is below the first.
 */
#include "sizes.h"

#include <string.h>

static const uint64_t FRACTION = ((uint64_t)1 << 52) - 1, ROOT_OF_TWO = 0x6A09E667F3BCD;

static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline int16_t code_of(int half_octave, dpfast_half_octaves bins)
{
    int within = half_octave < bins.first ? bins.first : half_octave > bins.last ? bins.last : half_octave;
    return (int16_t)(within - bins.first);
}

static inline int16_t code_of_root(double squared, dpfast_half_octaves bins)
{
    uint64_t bits = bits_of(squared);
    return code_of((int)(bits >> 52) - 1023 + ((bits & FRACTION) > 0), bins);
}

static inline int16_t code_of_entry(double entry, dpfast_half_octaves bins)
{
    uint64_t bits = bits_of(fabs(entry)), fraction = bits & FRACTION;
    int16_t code = code_of(2 * ((int)(bits >> 52) - 1023) + (fraction > 0) + (fraction > ROOT_OF_TWO), bins);
    return signbit(entry) ? (int16_t)-code : code;
}

int dpfast_norm_codes(const dpfast_table *table, ptrdiff_t n_columns, dpfast_half_octaves bins, ptrdiff_t start,
                      ptrdiff_t stop, ptrdiff_t block_rows, double *staging, int16_t *codes)
{
    for (ptrdiff_t first = start; first < stop; first += block_rows) {
        ptrdiff_t n_rows = stop - first < block_rows ? stop - first : block_rows;
        dpfast_table rows = staged_rows(table, n_columns, first, n_rows, staging);
        for (ptrdiff_t r = 0; r < n_rows; r++) {
            const char *row = row_address(&rows, r);
            double squared = squared_norm_of(row, n_columns, rows.is_float32, 1.0);
            if (DPFAST_UNLIKELY(!isfinite(squared)) && !is_finite_row(row, n_columns, rows.is_float32))
                return 0;
            *codes++ = code_of_root(squared, bins);
        }
    }
    return 1;
}

int dpfast_entry_codes(const dpfast_table *table, ptrdiff_t n_columns, dpfast_half_octaves bins, ptrdiff_t start,
                       ptrdiff_t stop, ptrdiff_t block_rows, double *staging, int16_t *codes)
{
    for (ptrdiff_t first = start; first < stop; first += block_rows) {
        ptrdiff_t n_rows = stop - first < block_rows ? stop - first : block_rows;
        dpfast_table rows = staged_rows(table, n_columns, first, n_rows, staging);
        for (ptrdiff_t r = 0; r < n_rows; r++) {
            const char *row = row_address(&rows, r);
            double probe = 0.0;
            for (ptrdiff_t j = 0; j < n_columns; j++) {
                double entry = load_scalar(row, j, rows.is_float32);
                probe += entry * 0.0;
                *codes++ = code_of_entry(entry, bins);
            }
            if (DPFAST_UNLIKELY(probe != 0.0))
                return 0;
        }
    }
    return 1;
}
