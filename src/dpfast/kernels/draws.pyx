"""Draws from uniform words: whole numbers, offsets from grid cells, and indices without replacement.

One pass over arrays on the calling thread, without the GIL. The caller draws the words, allocates the outputs and decides
the draws that a loop leaves undecided.
"""

from libc.math cimport copysign, fabs, ldexp
from libc.stdint cimport int64_t, uint16_t, uint64_t

import numpy as np

# Discrete Gaussian draws from a table of columns, which the caller builds: the method is in draws.c.

cdef extern from "draws.c" nogil:
    struct dpfast_columns:
        const uint64_t *thresholds
        const uint64_t *sure
        const uint16_t *guide
        int guide_bits
        int shift
        double scale
        double margin

    ptrdiff_t dpfast_discrete_gaussian(const dpfast_columns *columns, const uint64_t *words, ptrdiff_t n_words,
                                       ptrdiff_t *position, int64_t *draws, ptrdiff_t n_draws, int *undecided)


def discrete_gaussian(const uint64_t[::1] thresholds, const uint64_t[::1] sure, const uint16_t[::1] guide,
                      int guide_bits, int shift, double scale, double margin, const uint64_t[::1] words,
                      ptrdiff_t position, int64_t[::1] draws):
    """Fill `draws` (out) from `words[position:]` as far as it goes: (draws made, new position, stopped undecided).

    `thresholds`, `sure` and `guide` are the table of draws.c; a margin of 1 leaves every draw undecided.
    """
    cdef dpfast_columns columns
    cdef ptrdiff_t made
    cdef int undecided
    if draws.shape[0] == 0 or words.shape[0] == 0:
        return 0, position, False
    if not 0 <= position <= words.shape[0] or sure.shape[0] != thresholds.shape[0] or guide.shape[0] < 1 << guide_bits:
        raise IndexError("position must lie within words, and the table's arrays belong together")
    columns.thresholds, columns.sure, columns.guide = &thresholds[0], &sure[0], &guide[0]
    columns.guide_bits, columns.shift, columns.scale, columns.margin = guide_bits, shift, scale, margin
    with nogil:
        made = dpfast_discrete_gaussian(&columns, &words[0], words.shape[0], &position, &draws[0], draws.shape[0],
                                        &undecided)
    return made, position, undecided != 0


# Gaussian draws as offsets from grid cells, and the way of arrays to cells and back.
#
# `gaussian_offsets` hands a block to draws.c, which has the method. `split_cells` and `join_cells` are the
# steps before and after it: an array of doubles into its nearest grid points and what is left over, and grid points plus
# offsets into doubles. All three take C-contiguous arrays of one length, in the order of the arrays; the caller checks
# shapes and decides what `ambiguous` reports. `draw_about` takes all three steps about 128-bit integers.

cdef extern from "draws.c" nogil:
    ptrdiff_t dpfast_gaussian_offsets(const uint64_t *words, const double *fractions, ptrdiff_t n, double steps,
                                      double margin, double *offsets, ptrdiff_t *ambiguous, int level)
    const double gaussian_table[337][8]

cdef extern from "cpu.h":
    int dpfast_resolve_level(int requested) nogil

cdef extern from "limbs.h" nogil:
    int dpfast_limbs_add(int64_t* high, uint64_t* low, int64_t more_high, uint64_t more_low)
    double dpfast_limbs_split(int64_t* high, uint64_t* low, int shift)
    int dpfast_limbs_shift(int64_t* high, uint64_t* low, int shift)
    double dpfast_limbs_to_double(int64_t high, uint64_t low)

cdef enum:
    _DRAWS = 256


def quantile_table():
    """Return a copy of the table of quantile polynomials, one row a piece, lowest power first, for its certificate."""
    return np.array(<double[:337, :8]><double*>&gaussian_table[0][0])


def vector_level(int level=-1):
    """Return the vector level of cpu.h that a request for `level` runs at on this processor."""
    return dpfast_resolve_level(level)


def gaussian_offsets(const uint64_t[::1] words, const double[::1] fractions, double steps, double margin,
                     double[::1] offsets, ptrdiff_t[::1] ambiguous, int level=-1):
    """Fill `offsets` (out) with draws of N(0, steps^2) plus `fractions` (None for zeros), rounded to integers.

    Returns how many leading entries of `ambiguous` (out, as long as `words`) were filled: the draws that `words` and
    double arithmetic do not decide. `level` selects a vector level of cpu.h; a negative one for the best available.
    """
    cdef ptrdiff_t n = words.shape[0], n_ambiguous
    cdef const double *first_fraction = NULL
    if n == 0:
        return 0
    if offsets.shape[0] < n or ambiguous.shape[0] < n or (fractions is not None and fractions.shape[0] < n):
        raise IndexError("offsets, ambiguous and fractions must be as long as words")
    if fractions is not None:
        first_fraction = &fractions[0]
    with nogil:
        n_ambiguous = dpfast_gaussian_offsets(&words[0], first_fraction, n, steps, margin, &offsets[0], &ambiguous[0],
                                              level)
    return n_ambiguous


cdef inline double nearest_integer(double x) noexcept nogil:
    # From 2^52 every double is an integer; below, adding 2^52 leaves no bits for a fraction (ties to even).
    cdef double magnitude = fabs(x)
    cdef double rounded = (magnitude + 4503599627370496.0) - 4503599627370496.0
    return copysign(rounded if magnitude < 4503599627370496.0 else magnitude, x)


def split_cells(const double[::1] values, double grid, double[::1] nearest, double[::1] fractions):
    """Split `values` into `nearest` (out), multiples of `grid`, and `fractions` (out) of a cell in [-1/2, 1/2].

    values = nearest + grid * fractions exactly, save that a fraction below 2^-1022 may be rounded.
    """
    cdef ptrdiff_t i
    cdef double cells, whole, per_grid = 1.0 / grid
    cdef bint fits
    with nogil:
        for i in range(values.shape[0]):
            cells = values[i] * per_grid
            whole = nearest_integer(cells)
            fits = fabs(cells) < 4503599627370496.0
            # Where cells overflows, or is an integer anyway, the value is its own nearest grid point.
            nearest[i] = whole * grid if fits else values[i]
            fractions[i] = cells - whole if fits else 0.0


def join_cells(const double[::1] nearest, const double[::1] offsets, double grid, double[::1] released):
    """Fill `released` (out) with nearest + grid * offsets, correctly rounded; `nearest` may be None for zeros."""
    cdef ptrdiff_t i
    with nogil:
        if nearest is None:
            for i in range(offsets.shape[0]):
                released[i] = grid * offsets[i]
        else:
            for i in range(offsets.shape[0]):
                released[i] = nearest[i] + grid * offsets[i]


def draw_about(const int64_t[::1] high, const uint64_t[::1] low, const uint64_t[::1] words, int shift, double steps,
               double margin, int exponent, double[::1] released, int level=-1):
    """Fill `released` (out) with integers in units of 2**(exponent - shift) plus draws, as multiples of 2**exponent.

    Does what `limbs.split_cells`, `gaussian_offsets` and `limbs.join_cells` do, for a shift within 62 of 0. Returns
    whether it could: not if a draw is undecided or a number leaves 128 bits; what it has filled then means nothing.
    """
    cdef ptrdiff_t start = 0, n = words.shape[0], i, m
    cdef int64_t above[_DRAWS]
    cdef uint64_t below[_DRAWS]
    cdef double fractions[_DRAWS]
    cdef double offsets[_DRAWS]
    cdef ptrdiff_t ambiguous[_DRAWS]
    cdef uint64_t half = (<uint64_t>1) << (shift - 1) if 1 <= shift <= 62 else 0
    cdef int64_t whole
    cdef bint fails = False
    if not high.shape[0] == low.shape[0] == released.shape[0] == n:
        raise IndexError("all arrays must have one length")
    if not -62 <= shift <= 62:
        return False
    with nogil:
        while start < n and not fails:
            m = min(n - start, _DRAWS)
            for i in range(m):
                above[i], below[i], fractions[i] = high[start + i], low[start + i], 0.0
                if shift > 0:
                    fails |= dpfast_limbs_add(&above[i], &below[i], 0, half)
                    fractions[i] = dpfast_limbs_split(&above[i], &below[i], shift)
                else:
                    fails |= dpfast_limbs_shift(&above[i], &below[i], -shift)
            fails |= dpfast_gaussian_offsets(
                &words[start], fractions, m, steps, margin, offsets, ambiguous, level) > 0
            if not fails:
                for i in range(m):
                    whole = <int64_t>offsets[i]
                    fails |= dpfast_limbs_add(&above[i], &below[i], whole >> 63, <uint64_t>whole)
                    released[start + i] = ldexp(dpfast_limbs_to_double(above[i], below[i]), exponent)
            start += m
    return not fails


# Loops of sampling without replacement: a set of indices as a bitmap, which takes uniform words in their order.
#
# `insert` reduces words to indices below n (those beyond the last whole multiple of n are skipped, so that the remainder
# is exactly uniform) and sets their bits until enough new ones have been set. A bitmap is visited at random, so the word
# to come is prefetched. `selected` lists the indices whose bit is set, or is not, in increasing order.
#
# The caller has checked the sizes: a bitmap holds (n + 63) // 64 words.

cdef extern from *:
    """
    #define DPFAST_PREFETCH_FOR_WRITE(p) __builtin_prefetch((p), 1)
    #define DPFAST_LOWEST_BIT(word) __builtin_ctzll(word)
    """
    void DPFAST_PREFETCH_FOR_WRITE(const uint64_t* p) nogil
    int DPFAST_LOWEST_BIT(uint64_t word) nogil

cdef enum:
    AHEAD = 24


def insert(uint64_t[::1] words, uint64_t n_total, uint64_t largest, uint64_t[::1] bitmap, Py_ssize_t n_missing):
    """Set the bits of words[i] % n_total, for words up to `largest`, until n_missing were new; returns how many were.

    The words are scratch afterwards.
    """
    cdef Py_ssize_t i, n_new = 0, n_indices = 0
    cdef uint64_t index, bit
    with nogil:
        for i in range(words.shape[0]):
            if words[i] <= largest:
                words[n_indices] = words[i] % n_total
                n_indices += 1
        for i in range(n_indices):
            if n_new == n_missing:
                break
            if i + AHEAD < n_indices:
                DPFAST_PREFETCH_FOR_WRITE(&bitmap[words[i + AHEAD] >> 6])
            index = words[i]
            bit = <uint64_t>1 << (index & 63)
            n_new += (bitmap[index >> 6] & bit) == 0
            bitmap[index >> 6] |= bit
    return n_new


def selected(const uint64_t[::1] bitmap, uint64_t n_total, bint complement, int64_t[::1] out):
    """Write the indices below n_total whose bit is set (or is not, for the complement) to `out`, which they fill."""
    cdef Py_ssize_t i, n_out = 0
    cdef uint64_t word, flipped = ~<uint64_t>0 if complement else 0
    with nogil:
        for i in range(bitmap.shape[0]):
            word = bitmap[i] ^ flipped
            if i == bitmap.shape[0] - 1 and n_total & 63:
                word &= (<uint64_t>1 << (n_total & 63)) - 1
            while word:
                out[n_out] = 64 * i + DPFAST_LOWEST_BIT(word)
                n_out += 1
                word &= word - 1
