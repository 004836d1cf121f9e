"""Loops of sampling without replacement: a set of indices as a bitmap, which takes uniform words in their order.

`insert` reduces words to indices below n (those beyond the last whole multiple of n are skipped, so that the remainder
is exactly uniform) and sets their bits until enough new ones have been set. A bitmap is visited at random, so the word
to come is asked for ahead of need. `selected` lists the indices whose bit is set, or is not, in increasing order.

The caller has checked the sizes: a bitmap holds (n + 63) // 64 words.
"""

from libc.stdint cimport int64_t, uint64_t

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
