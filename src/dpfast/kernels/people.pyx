"""People's rows: groups, and exact sums of people's rows."""

import math

import numpy as np

from dpfast.kernels.gram import aligned_zeros

from libc.math cimport INFINITY, ldexp
from libc.stdint cimport int64_t, uint64_t

from dpfast.kernels._c cimport (
    dpfast_add_products,
    dpfast_add_products_in_doubles,
    dpfast_multiply_rows,
    dpfast_pack,
    dpfast_pack_rows,
    dpfast_table,
)

from dpfast.kernels.gram cimport GramSums, describe_table

# Groups: a number for each id, in the order of their first rows, and the rows of each number.
#
# Ids are 64-bit words, equal if the ids are, which are only told apart: a table of all words of a narrow range, or else a
# hash table with linear probing that is never more than half full, finds the number of a word seen before. Rows are then
# sorted by number in one more pass, stably. Neither depends on what the ids are but in its time.
#
# The caller has checked that there are no more rows than words, and gives offsets of the numbers' rows that add up.

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


# Exact sums of people's blocks of products, each clipped to bounds of its own.
#
# A person's rows lie one after the other in the table, or in the index that names them; `offsets` says where each
# person's begin. The exact squared norms of a person's block are compared with integer bounds. Rows of a block beyond them are
# multiplied by one common factor and rounded again: it stays the product of integer rows, X'X positive semidefinite and
# X'Y of the same X. There are three ways to the same bits:
#
# - People with so few rows that no block of them can pass the bounds stream through `GramSums` as if they were rows of
#   nobody, any number of people to a pack.
# - So do those with few rows beside the columns, after a test: their norms follow from the products of their rows with
#   each other (||X'X|| = ||XX'||), so no block is formed.
# - The others are summed one at a time into a block of doubles, or of 64-bit integers where rows are so many that doubles
#   are not exact, and again if it has to be scaled. Blocks in doubles are gathered in others while that is exact.
#
# The bounds of the test are padded (privacy.moment_scales.padded_squared_block_bounds) by what rounding can add, so rows
# scaled onto the bound pass it at once; it is tested all the same, and the factor lowered until it holds. What a person
# adds depends on their own rows alone, and is exact, so the totals are the same to the bit for any order of people,
# any threads and any vector width (scaling is elementwise, and the factor is a function of two integers).
#
# Tiles form the products: a 64-bit block of one person has no use for BLAS. The caller has checked what gram.pyx
# needs, that offsets are increasing, and that no person has more rows than the bounds were computed for.

cdef extern from "person_gram.c":
    ctypedef struct dpfast_block_bounds:
        double xx
        double xy
        uint64_t xx_high
        uint64_t xx_low
        uint64_t xy_high
        uint64_t xy_low

    ctypedef struct dpfast_block_shape:
        Py_ssize_t n_features
        Py_ssize_t n_outcomes
        Py_ssize_t stride

    double dpfast_block_multiplier(
        const int64_t* products, const dpfast_block_shape* shape, const dpfast_block_bounds* bounds) nogil
    double dpfast_block_multiplier_in_doubles(
        const double* products, const dpfast_block_shape* shape, const dpfast_block_bounds* bounds) nogil
    bint dpfast_add_if_clearly_within(
        int level, const double* products, const dpfast_block_shape* shape, const double* weights,
        const dpfast_block_bounds* bounds, double* totals, bint is_new) nogil
    void dpfast_weight_columns(const dpfast_block_shape* shape, double* weights) nogil
    double dpfast_rows_multiplier(
        int level, const double* of_x, const double* of_y, Py_ssize_t n_rows, Py_ssize_t stride,
        const dpfast_block_bounds* bounds) nogil
    void dpfast_scale_pack(int level, const dpfast_pack* pack, Py_ssize_t n_rows, double multiplier) nogil
    void dpfast_move_products(int64_t* products, const dpfast_block_shape* shape, int64_t* totals) nogil
    void dpfast_add_products_of_one(
        int level, const double* products, const dpfast_block_shape* shape, double* totals, bint is_new) nogil

_WORD = 1 << 64


cdef class PersonSums(GramSums):
    """Integer sums over the people one thread has seen; see the module's comment.

    Parameters
    ----------
    grid_x, grid_y, block_rows, level
        As for `GramSums`.
    bounds_xx, bounds_xy : tuple of (norm, squared_bound)
        In grid units: the Frobenius norm onto which a larger block is scaled (inf for none), and the integer bound on
        its square after rounding, below 2**128.
    safe_rows : int
        So many rows never pass the bounds.
    """

    cdef dpfast_block_bounds bounds
    cdef dpfast_block_shape shape
    cdef Py_ssize_t safe_rows
    cdef Py_ssize_t n_packed, packable_rows
    cdef bint in_doubles
    cdef double[::1] products_of_x, products_of_y, column_weights
    cdef double[:, ::1] person
    cdef int64_t[:, ::1] long_person

    def __init__(self, grid_x, grid_y, *, bounds_xx, bounds_xy, safe_rows, block_rows, level=-1):
        super().__init__(grid_x, grid_y, block_rows=block_rows, use_blas=False, with_sums=False, level=level)
        self.bounds.xx, self.bounds.xy = bounds_xx[0], bounds_xy[0]
        self.bounds.xx_high, self.bounds.xx_low = divmod(bounds_xx[1], _WORD)
        self.bounds.xy_high, self.bounds.xy_low = divmod(bounds_xy[1], _WORD)
        self.shape.n_features, self.shape.n_outcomes = self.x_grid.n_columns, self.y_grid.n_columns
        self.shape.stride = self.pack.n_columns
        self.safe_rows = safe_rows
        self.column_weights = np.empty(2 * self.shape.stride)
        dpfast_weight_columns(&self.shape, &self.column_weights[0])
        shape = np.shape(self.products)
        self.person = aligned_zeros(math.prod(shape)).reshape(shape)
        self.long_person = aligned_zeros(math.prod(shape), np.int64).reshape(shape)
        self.block = aligned_zeros(self.shape.n_features * self.shape.stride)
        # Beyond this, products of rows with each other cost more than a block: measured.
        self.packable_rows = min(self.block_rows, math.isqrt(8 * grid_x[0]))
        self.products_of_x = np.empty(_padded(self.packable_rows)**2)
        self.products_of_y = np.empty(_padded(self.packable_rows)**2)

    def add_people(
            self, x, y, const int64_t[::1] rows, const int64_t[::1] offsets, Py_ssize_t first, Py_ssize_t last):
        """Add people first to last, whose rows are offsets[p] to offsets[p + 1], or those of `rows`; returns a status.

        After a status other than PACKED the sums hold a part of the rows and must be thrown away.
        """
        if last <= first or offsets[last] == offsets[first]:
            return 0
        if offsets[last] - offsets[first] > self.capacity:
            raise OverflowError("the 64-bit totals are full: take them first")
        cdef dpfast_table x_table = describe_table(x, rows), y_table = x_table
        if self.y_grid.n_columns > 0:
            y_table = describe_table(y, rows)
        cdef int status = 0
        cdef Py_ssize_t stop, n_rows
        self.n_packed = 0
        with nogil:
            while first < last and status == 0:
                stop = first
                while stop < last and offsets[stop + 1] - offsets[stop] <= self.safe_rows:
                    stop += 1
                if offsets[stop] - offsets[first] >= self.block_rows:
                    self._flush_pack()
                    status = self.add_rows(&x_table, &y_table, offsets[first], offsets[stop])
                    first = stop
                    continue
                n_rows = offsets[first + 1] - offsets[first]
                if n_rows <= self.safe_rows or n_rows <= self.packable_rows:
                    status = self._pack_person(
                        &x_table, &y_table, offsets[first], offsets[first + 1], offsets[last])
                else:
                    self._flush_pack()
                    status = self._add_person(
                        &x_table, &y_table, offsets[first], offsets[first + 1], offsets[last])
                first += 1
            if status == 0:
                self._flush_pack()
        return status

    cdef void _flush_pack(self) noexcept nogil:
        if self.n_packed > 0:
            self._add_block(self.n_packed)
        self.n_packed = 0

    cdef int _pack_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop,
            Py_ssize_t end) noexcept nogil:
        """Append the rows start to stop to the pack, scaled if their block has to be."""
        cdef Py_ssize_t n_rows = stop - start
        cdef int step = 0, status
        if self.n_packed + n_rows > self.block_rows:
            self._flush_pack()
        cdef dpfast_pack pack = self.pack
        pack.data += self.n_packed * pack.panel_width
        status = dpfast_pack_rows(
            self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, end - start, NULL,
            &self.scratch, &pack)
        cdef double multiplier = 1.0
        if n_rows > self.safe_rows and status == 0:
            multiplier = self._packed_multiplier(&pack, n_rows)
        while multiplier < 1.0:
            dpfast_scale_pack(self.level, &pack, n_rows, multiplier)
            if self._packed_multiplier(&pack, n_rows) == 1.0:
                break
            dpfast_pack_rows(
                self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, end - start, NULL,
                &self.scratch, &pack)
            multiplier *= 1.0 - ldexp(1.0, step - 50)
            step += 1
        self.n_packed += n_rows
        return status

    cdef double _packed_multiplier(self, const dpfast_pack* pack, Py_ssize_t n_rows) noexcept nogil:
        cdef Py_ssize_t d = self.shape.n_features, stride = _padded(n_rows)
        cdef double* of_y = NULL
        dpfast_multiply_rows(self.level, pack, n_rows, 0, d, stride, &self.products_of_x[0])
        if self.bounds.xy < INFINITY and self.shape.n_outcomes > 0:
            of_y = &self.products_of_y[0]
            dpfast_multiply_rows(self.level, pack, n_rows, d, d + self.shape.n_outcomes, stride, of_y)
        return dpfast_rows_multiplier(self.level, &self.products_of_x[0], of_y, n_rows, stride, &self.bounds)

    cdef int _add_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop,
            Py_ssize_t end) noexcept nogil:
        self.in_doubles = stop - start <= self.rows_per_block
        cdef int status = self._sum_person(x, y, start, stop, end, 1.0), step = 0
        cdef double multiplier = 1.0
        if status != 0 or self._keep_if_clearly_within(stop - start):
            return status
        multiplier = self._multiplier()
        while status == 0 and multiplier < 1.0:
            if not self.in_doubles:
                dpfast_move_products(&self.long_person[0, 0], &self.shape, NULL)
            if step == 0 and stop - start <= self.block_rows:
                # The pack still holds all of them, as they were rounded.
                self._add_scaled_pack(stop - start, multiplier, True)
            else:
                status = self._sum_person(x, y, start, stop, end, multiplier)
            if self._multiplier() == 1.0:
                break
            multiplier *= 1.0 - ldexp(1.0, step - 50)
            step += 1
        self._keep_person(stop - start)
        return status

    cdef double _multiplier(self) noexcept nogil:
        if self.in_doubles:
            return dpfast_block_multiplier_in_doubles(&self.person[0, 0], &self.shape, &self.bounds)
        return dpfast_block_multiplier(&self.long_person[0, 0], &self.shape, &self.bounds)

    cdef bint _keep_if_clearly_within(self, Py_ssize_t n_rows) noexcept nogil:
        """Add the person's products if they are within their bounds without a doubt; returns whether they were added."""
        if not self.in_doubles:
            return False
        self._make_room(n_rows)
        if not dpfast_add_if_clearly_within(
                self.level, &self.person[0, 0], &self.shape, &self.column_weights[0], &self.bounds, &self.block[0],
                self.rows_in_block == 0):
            return False
        self.rows_in_block += n_rows
        self.rows_in_totals += n_rows
        return True

    cdef void _make_room(self, Py_ssize_t n_rows) noexcept nogil:
        """Sums of blocks in doubles stay exact with so many rows more."""
        if self.rows_in_block + n_rows > self.rows_per_block:
            self._flush_block()

    cdef void _keep_person(self, Py_ssize_t n_rows) noexcept nogil:
        if self.in_doubles:
            self._make_room(n_rows)
            dpfast_add_products_of_one(
                self.level, &self.person[0, 0], &self.shape, &self.block[0], self.rows_in_block == 0)
            self.rows_in_block += n_rows
        else:
            dpfast_move_products(&self.long_person[0, 0], &self.shape, &self.products[0, 0])
        self.rows_in_totals += n_rows

    cdef int _sum_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t end,
            double multiplier) noexcept nogil:
        """The person's products are those of the rows start to stop times the multiplier; reads ahead up to `end`."""
        cdef int status = 0
        cdef Py_ssize_t n_rows, first = start
        while start < stop and status == 0:
            n_rows = min(self.block_rows, stop - start)
            status = dpfast_pack_rows(
                self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, end - start, NULL, &self.scratch,
                &self.pack)
            if status == 0:
                self._add_scaled_pack(n_rows, multiplier, start == first)
            start += n_rows
        return status

    cdef void _add_scaled_pack(self, Py_ssize_t n_rows, double multiplier, bint is_new) noexcept nogil:
        if multiplier < 1.0:
            dpfast_scale_pack(self.level, &self.pack, n_rows, multiplier)
        if self.in_doubles:
            dpfast_add_products_in_doubles(
                self.level, &self.pack, n_rows, self.shape.n_features, &self.person[0, 0], is_new)
        else:
            dpfast_add_products(
                self.level, &self.pack, n_rows, self.shape.n_features, 0, &self.long_person[0, 0])


cdef inline Py_ssize_t _padded(Py_ssize_t n_rows) noexcept nogil:
    """Rows of products of rows with each other, with room for whole tiles."""
    return (n_rows + 3) // 4 * 4
