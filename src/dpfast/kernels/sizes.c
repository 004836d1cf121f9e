/* Sizes of rows and of entries as codes of half-octaves, each row's by itself.
 *
 * The half-octave of a number is read off its bits: twice the exponent, and one more if the fraction is above 0, and one
 * more if it is above that of sqrt(2). The norm of a row is the root of its square, in the order of rows.h, and the
 * half-octave of a root is the octave of its square: no root is taken, and no logarithm.
 *
 * Bins end at sizes from 2^-400 to 2^400. So a square that overflows is above the last, and what is lost of one that
 * underflows is below the first.
 */
#include <string.h>

#include "rows.h"

/* The half-octaves that are told apart, as statistics/norm_histograms.py says. */
typedef struct {
    int first, last;
} dpfast_half_octaves;

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
    uint64_t bits = bits_of(entry), fraction = bits & FRACTION;
    int exponent = (int)(bits >> 52 & 0x7FF) - 1023, negative = (int)(bits >> 63);
    /* Without a branch: signs are as likely as not. (Of 0 less a positive number the top bit is 1.) */
    int above = (int)((0 - fraction) >> 63) + (int)((ROOT_OF_TWO - fraction) >> 63);
    int code = code_of(2 * exponent + above, bins);
    return (int16_t)((code ^ -negative) + negative);
}

/* Codes of adjacent entries; returns whether all are finite. */
static DPFAST_INLINE int codes_of_entries(const char *restrict row, ptrdiff_t n, int is_float32,
                                          dpfast_half_octaves bins, int16_t *restrict codes)
{
    double probe = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) {
        double entry = load_scalar(row, j, is_float32);
        probe += entry * 0.0;
        codes[j] = code_of_entry(entry, bins);
    }
    return probe == 0.0;
}

/* Codes of the L2 norms of rows [start, stop), one each, or of their entries, row after row; `staging` has room for
 * `block_rows` rows. Return 1, or 0 if an entry was not finite. */
static int dpfast_size_codes(const dpfast_table *table, ptrdiff_t n_columns, int norms, dpfast_half_octaves bins,
                             ptrdiff_t start, ptrdiff_t stop, ptrdiff_t block_rows, double *staging, int16_t *codes)
{
    for (ptrdiff_t first = start; first < stop; first += block_rows) {
        ptrdiff_t n_rows = stop - first < block_rows ? stop - first : block_rows;
        dpfast_table rows = staged_rows(table, n_columns, first, n_rows, staging);
        for (ptrdiff_t r = 0; r < n_rows; r++) {
            const char *row = row_address(&rows, r);
            if (norms) {
                double squared = squared_norm_of(row, n_columns, rows.is_float32, 1.0);
                if (DPFAST_UNLIKELY(!isfinite(squared)) && !is_finite_row(row, n_columns, rows.is_float32))
                    return 0;
                *codes++ = code_of_root(squared, bins);
                continue;
            }
            /* The type is known to the compiler in either, so that it takes several entries at once. */
            int all_finite = rows.is_float32 ? codes_of_entries(row, n_columns, 1, bins, codes)
                                             : codes_of_entries(row, n_columns, 0, bins, codes);
            if (DPFAST_UNLIKELY(!all_finite))
                return 0;
            codes += n_columns;
        }
    }
    return 1;
}
