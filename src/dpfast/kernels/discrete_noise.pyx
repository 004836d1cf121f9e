"""Discrete Gaussian draws from a table of columns: the loop is discrete_loops.c, which explains the method.

One pass over a block of words on the calling thread, without the GIL. The caller builds the table, allocates the output
and decides the draws that the loop leaves undecided.
"""

from libc.stdint cimport int64_t, uint16_t, uint64_t


cdef extern from "discrete_loops.c" nogil:
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

    `thresholds`, `sure` and `guide` are the table of discrete_loops.c; a margin of 1 leaves every draw undecided.
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
