"""Whose rows are whose: a number for each id, in the order of their first rows, and the rows of each number.

Ids are 64-bit words, equal if the ids are, which are only told apart: a table of all words of a narrow range, or else a
hash table with linear probing that is never more than half full, finds the number of a word seen before. Rows are then
sorted by number in one more pass, stably. Neither depends on what the ids are but in its time.

The caller has checked that there are no more rows than words, and gives offsets of the numbers' rows that add up.
"""

import numpy as np

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #define DPFAST_PREFETCH_FOR_WRITE(p) __builtin_prefetch((p), 1)
    """
    void DPFAST_PREFETCH_FOR_WRITE(const int64_t* p) nogil

cdef enum:
    FIRST_SLOTS = 1024
    AHEAD = 24


def number_of_each(const int64_t[::1] words, int64_t low, Py_ssize_t n_values, int64_t[::1] numbers):
    """Write the number of each word to `numbers`; returns how many rows each has, and whether all of them are adjacent.

    Words are from `low` on and span n_values of them, or any if that is 0.
    """
    cdef int64_t[::1] counts, seen
    cdef Py_ssize_t n_seen = 0, i = 0, n_rows = words.shape[0]
    cdef bint adjacent = True
    counts = np.empty(min(n_values if n_values > 0 else FIRST_SLOTS // 2, n_rows), np.int64)
    if n_values > 0:
        seen = np.full(n_values, -1, np.int64)
        with nogil:
            _by_value(words, low, seen, numbers, counts, &n_seen, &adjacent)
        return np.asarray(counts)[:n_seen], adjacent
    cdef uint64_t n_slots = FIRST_SLOTS
    cdef int64_t[::1] keys = np.empty(n_slots, np.int64)
    seen = np.full(n_slots, -1, np.int64)
    while True:
        with nogil:
            i = _by_hash(words, i, keys, seen, numbers, counts, &n_seen, &adjacent)
        if i == n_rows:
            return np.asarray(counts)[:n_seen], adjacent
        # Half full: those seen so far find a place among twice as many.
        old_keys, old_seen = keys, seen
        n_slots *= 4
        keys, seen = np.empty(n_slots, np.int64), np.full(n_slots, -1, np.int64)
        _rehash(old_keys, old_seen, keys, seen)
        more = np.empty(min(<Py_ssize_t>(n_slots // 2), n_rows), np.int64)
        more[:n_seen] = np.asarray(counts)[:n_seen]
        counts = more


def counts_of_sorted(const int64_t[::1] words):
    """Return how many rows each word has, in turn, or None where a word is below the one before."""
    cdef Py_ssize_t i = 1, n_rows = words.shape[0], start = 0, run = 0
    # Written as far as there are runs: memory that is not touched is none.
    counts = np.empty(n_rows, np.int64)
    cdef int64_t[::1] written = counts
    with nogil:
        for i in range(1, n_rows):
            if words[i] != words[i - 1]:
                if words[i] < words[i - 1]:
                    break
                written[run] = i - start
                start = i
                run += 1
        else:
            i = n_rows
    if i < n_rows:
        return None
    written[run] = n_rows - start
    return counts[:run + 1].copy()


cdef inline int64_t _count(
        int64_t number, Py_ssize_t i, int64_t[::1] numbers, int64_t[::1] counts, Py_ssize_t* n_seen, bint* adjacent,
        int64_t* found) noexcept nogil:
    """Count row i, whose number has been found, or is to be the next one."""
    if number < 0:
        number = found[0] = n_seen[0]
        counts[number] = 0
        n_seen[0] += 1
    elif number != numbers[i - 1]:
        adjacent[0] = False
    counts[number] += 1
    numbers[i] = number
    return number


cdef void _by_value(
        const int64_t[::1] words, int64_t low, int64_t[::1] seen, int64_t[::1] numbers, int64_t[::1] counts,
        Py_ssize_t* n_seen, bint* adjacent) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t* found
    for i in range(words.shape[0]):
        found = &seen[<int64_t>(<uint64_t>words[i] - <uint64_t>low)]
        _count(found[0], i, numbers, counts, n_seen, adjacent, found)


cdef inline uint64_t _mixed(uint64_t word) noexcept nogil:
    """The finalizer of SplitMix64: every bit of the word moves every bit of it."""
    word = (word ^ (word >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * <uint64_t>0x94D049BB133111EB
    return word ^ (word >> 31)


cdef inline uint64_t _slot(int64_t word, const int64_t[::1] keys, const int64_t[::1] seen) noexcept nogil:
    """Where a word is, or where there is room for it."""
    cdef uint64_t last = <uint64_t>keys.shape[0] - 1, slot = _mixed(<uint64_t>word) & last
    while seen[slot] >= 0 and keys[slot] != word:
        slot = (slot + 1) & last
    return slot


cdef Py_ssize_t _by_hash(
        const int64_t[::1] words, Py_ssize_t start, int64_t[::1] keys, int64_t[::1] seen, int64_t[::1] numbers,
        int64_t[::1] counts, Py_ssize_t* n_seen, bint* adjacent) noexcept nogil:
    """Number words from `start` on, until the table is half full; returns where to go on."""
    cdef Py_ssize_t i, most = keys.shape[0] // 2
    cdef uint64_t slot
    for i in range(start, words.shape[0]):
        slot = _slot(words[i], keys, seen)
        if seen[slot] < 0:
            if n_seen[0] == most:
                return i
            keys[slot] = words[i]
        _count(seen[slot], i, numbers, counts, n_seen, adjacent, &seen[slot])
    return words.shape[0]


cdef void _rehash(
        const int64_t[::1] old_keys, const int64_t[::1] old_seen, int64_t[::1] keys, int64_t[::1] seen) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint64_t slot
    for i in range(old_keys.shape[0]):
        if old_seen[i] >= 0:
            slot = _slot(old_keys[i], keys, seen)
            keys[slot], seen[slot] = old_keys[i], old_seen[i]


def rows_of_each(const int64_t[::1] numbers, const int64_t[::1] offsets, int64_t[::1] order):
    """Write the rows of number i to order[offsets[i] : offsets[i + 1]], the first so many of them, as they come."""
    cdef Py_ssize_t row, number, place
    cdef int64_t[::1] places = np.array(offsets)
    with nogil:
        for row in range(numbers.shape[0]):
            if row + AHEAD < numbers.shape[0]:
                # Rows of others come between those of one person: the place to come is not in the cache.
                DPFAST_PREFETCH_FOR_WRITE(&order[0] + places[numbers[row + AHEAD]])
            number = numbers[row]
            place = places[number]
            if place < offsets[number + 1]:
                order[place] = row
                places[number] = place + 1


def first_of_each(const int64_t[::1] numbers, Py_ssize_t n_numbers, Py_ssize_t most, unsigned char[::1] chosen):
    """Mark the first so many rows of each number."""
    cdef Py_ssize_t row
    cdef int64_t[::1] counts = np.zeros(n_numbers, np.int64)
    with nogil:
        for row in range(numbers.shape[0]):
            chosen[row] = counts[numbers[row]] < most
            counts[numbers[row]] += 1
