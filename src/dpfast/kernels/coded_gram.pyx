"""Exact sums of products of rows of which a part are indicators of categories, kept as codes: no indicator is made.

A column of indicators has two rounded values, a where its level is absent and a + w where it is present: public
integers, for centring and units are. So with z the indicators, every sum of products follows from integers that take
one look at a code: how many rows have a level and a pair of levels, sums of numbers and of outcomes by level, and the
products of those, which `GramSums` forms as ever. For two columns of indicators that is

    sum (a + w z)(a' + w' z') = n a a' + a w' sum z' + w a' sum z + w w' sum z z'.

The squared length of a row is that of its numbers and an integer that its codes say: the comparison with the bound is
the one that all of its columns would give. Rows beyond the bound are left to the caller, who sums them column by column.

Sums are integers in 64 bits, taken modulo 2^64 on the way and below 2^62 at the end, as those of the same rows in
`GramSums` are. Sums by level are kept in doubles, below 2^53: at most 2^31 rows, of entries whose squares times the rows
stay below 2^62.

A code is read once. One that is no level, whatever it is, has no indicator: nothing is read or written by it.
"""

import numpy as np

from dpfast.kernels.gram import aligned_zeros

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from dpfast.kernels._c cimport (
    dpfast_add_by_slot,
    dpfast_add_products,
    dpfast_beside,
    dpfast_pack,
    dpfast_pack_rows,
    dpfast_pack_scratch,
    dpfast_panel_width,
    dpfast_row_grid,
    dpfast_table,
    find_codes,
)

from dpfast.kernels.gram cimport GramSums, GramTotals, describe_table

_MOST_ROWS = 1 << 31
_EXACT_RANGE = 1 << 53


cdef inline void _count(Py_ssize_t n_rows, const int32_t* slots, int64_t* counts) noexcept nogil:
    cdef Py_ssize_t r
    for r in range(n_rows):
        counts[slots[r]] += 1


cdef inline void _count_pairs(
        Py_ssize_t n_rows, const int32_t* one, const int32_t* other, Py_ssize_t width, uint32_t* counts) noexcept nogil:
    cdef Py_ssize_t r
    for r in range(n_rows):
        counts[one[r] * width + other[r]] += 1


cdef class CodedSums(GramSums):
    """`GramSums` of all columns that takes rows with codes too, once `begin` has said what these stand for."""

    cdef object layout, values
    cdef dpfast_row_grid number_grid
    cdef dpfast_pack number_pack
    cdef dpfast_pack_scratch number_scratch
    cdef Py_ssize_t n_categories, n_coded
    # Of a category: its first column, its levels, and where its slots begin, one a level and a last one for none of them.
    cdef Py_ssize_t[::1] places, firsts, levels, first_slots, first_pairs
    # Of a slot: its column's value where the level is absent, what is added where it is present, and what that adds to
    # the squared length.
    cdef int64_t[::1] absent, steps, counts
    cdef double[::1] slot_squares, squares, row, by_slot
    cdef double squared_absent
    cdef uint32_t[::1] pairs
    cdef int32_t[:, ::1] slots
    cdef int64_t[:, ::1] number_products
    cdef int64_t[::1] number_columns

    def __init__(self, grid_x, grid_y, *, block_rows, use_blas, with_sums, level=-1):
        super().__init__(
            grid_x, grid_y, block_rows=block_rows, use_blas=use_blas, with_sums=with_sums, level=level)
        self.total_capacity = min(self.total_capacity, _MOST_ROWS)

    def begin(self, layout, const int64_t[:, ::1] values):
        """Take rows of a layout from now on, whose indicators have the values of the first row, and of the second.

        Returns False if integers of that size do not add up exactly in doubles: then every row is beyond.
        """
        if layout == self.layout and np.array_equal(values, self.values):
            return True
        n_levels = sum(layout.levels)
        if layout.n_columns != self.x_grid.n_columns or np.shape(values) != (2, n_levels):
            raise ValueError("the layout has another number of columns")
        if sum(max(int(values[0, i]) ** 2, int(values[1, i]) ** 2) for i in range(n_levels)) >= _EXACT_RANGE:
            return False
        self._expand()
        self.layout, self.values = layout, np.array(values)
        ends = np.cumsum(layout.levels)
        self._allocate_slots(layout, np.split(self.values, ends[: len(ends) - 1], axis=1))
        return True

    cdef _allocate_slots(self, layout, list values):
        """Set up empty tables; `values` has an array a category."""
        cdef Py_ssize_t n_numbers = len(layout.places), n_categories = len(layout.levels)
        cdef Py_ssize_t stride = max(8, (n_numbers + self.y_grid.n_columns + 7) // 8 * 8)
        padded = [np.hstack([one, np.zeros((2, 1), np.int64)]) for one in values]
        absent, present = np.hstack(padded)
        self.n_categories = n_categories
        self.places = np.array(layout.places, np.intp)
        self.firsts, self.levels = np.array(layout.firsts, np.intp), np.array(layout.levels, np.intp)
        sizes = np.array(layout.levels, np.intp) + 1
        self.first_slots = np.cumsum(sizes) - sizes
        pair_sizes = np.triu(np.outer(sizes, sizes), 1).ravel()
        self.first_pairs = (np.cumsum(pair_sizes) - pair_sizes).astype(np.intp)
        self.absent, self.steps = absent, present - absent
        self.slot_squares = (present**2 - absent**2).astype(np.float64)
        self.squared_absent = float(np.sum(absent**2))
        self.counts = np.zeros(len(absent), np.int64)
        self.pairs = np.zeros(max(1, int(pair_sizes.sum())), np.uint32)
        self.slots = np.zeros((n_categories, self.block_rows), np.int32)
        self.squares = np.zeros(self.block_rows)
        self.row = aligned_zeros(stride + 8)
        self.by_slot = aligned_zeros(len(absent) * stride)
        self.number_products = aligned_zeros(max(8, (n_numbers + 7) // 8 * 8) * stride, np.int64).reshape(-1, stride)
        self.number_columns = np.zeros(stride, np.int64)
        self.number_grid = self.x_grid
        self.number_grid.n_columns = n_numbers
        self.number_scratch = self.scratch
        self.number_scratch.row = &self.row[0]
        self.number_pack.data = self.pack.data
        self.number_pack.panel_width = dpfast_panel_width(self.level)
        self.number_pack.panel_stride = (self.block_rows | 1) * self.number_pack.panel_width
        self.number_pack.n_columns = stride

    def add_coded(self, numbers, list codes, y, Py_ssize_t start, Py_ssize_t stop, unsigned char[::1] beyond):
        """Add rows start to stop of numbers, codes (an array of int32 a category) and y; returns a status.

        `beyond` has one entry for each of them: those that are not zero are left out, as are those that are beyond their
        bound, or not finite, whose entries are set. After a status other than PACKED the sums must be thrown away.
        """
        if stop <= start:
            return 0
        if len(codes) != self.n_categories or numbers.shape[1] != self.number_grid.n_columns:
            raise ValueError("rows are of another layout than the one that was begun")
        if start < 0 or stop > len(numbers) or (y is not None and len(y) != len(numbers)):
            raise IndexError("start and stop must lie within the rows, of which numbers and y have as many")
        if beyond.shape[0] != stop - start:
            raise ValueError("beyond must have one entry a row")
        if self.rows_in_totals + (stop - start) > self.total_capacity:
            raise OverflowError("the 64-bit totals are full: take them first")
        cdef dpfast_table x_table, y_table
        memset(&x_table, 0, sizeof(x_table))
        memset(&y_table, 0, sizeof(y_table))
        if self.number_grid.n_columns > 0:
            x_table = describe_table(numbers, None)
        if self.y_grid.n_columns > 0:
            y_table = describe_table(y, None)
        cdef Py_ssize_t n_rows
        cdef size_t[::1] addresses = np.empty(self.n_categories, np.uintp)
        find_codes(codes, len(numbers), addresses)
        cdef dpfast_beside beside
        cdef Py_ssize_t first = start
        cdef int status = 0
        beside.squares = &self.squares[0]
        with nogil:
            while first < stop and status == 0:
                n_rows = min(self.block_rows, stop - first)
                self._read_codes(&addresses[0], first, n_rows)
                beside.beyond = &beyond[first - start]
                status = dpfast_pack_rows(
                    self.level, &x_table, &self.number_grid, &y_table, &self.y_grid, first, n_rows, stop - first,
                    &beside, &self.number_scratch, &self.number_pack)
                if status == 0:
                    self._add_coded_block(n_rows, beside.beyond)
                first += n_rows
        return status

    cdef void _read_codes(self, const size_t* addresses, Py_ssize_t first, Py_ssize_t n_rows) noexcept nogil:
        """Turn the codes of some rows to slots, and say what they add to squared lengths."""
        cdef Py_ssize_t k, r
        cdef uint32_t code, n_levels
        cdef const int32_t* codes
        cdef int32_t* slots
        cdef const double* of_slots
        cdef double* squares = &self.squares[0]
        for r in range(n_rows):
            squares[r] = self.squared_absent
        for k in range(self.n_categories):
            codes = (<const int32_t*>addresses[k]) + first
            slots, of_slots = &self.slots[k, 0], &self.slot_squares[self.first_slots[k]]
            n_levels = <uint32_t>self.levels[k]
            for r in range(n_rows):
                code = <uint32_t>codes[r]
                code = code if code < n_levels else n_levels
                slots[r] = <int32_t>code
                squares[r] += of_slots[code]

    cdef void _add_coded_block(self, Py_ssize_t n_rows, const unsigned char* beyond) noexcept nogil:
        cdef Py_ssize_t k, l, r, stride = self.number_pack.n_columns, n_packed = n_rows
        cdef const int32_t* slots
        for r in range(n_rows):
            if beyond[r] != 0:
                n_packed -= 1
                for k in range(self.n_categories):
                    self.slots[k, r] = <int32_t>self.levels[k]
        if n_packed == 0:
            return
        if self.number_grid.n_columns > 0:
            dpfast_add_products(
                self.level, &self.number_pack, n_rows, self.number_grid.n_columns, 0, &self.number_products[0, 0])
        for k in range(self.n_categories):
            slots = &self.slots[k, 0]
            dpfast_add_by_slot(self.level, &self.number_pack, n_rows, slots, &self.by_slot[self.first_slots[k] * stride])
            _count(n_rows, slots, &self.counts[self.first_slots[k]])
            for l in range(k + 1, self.n_categories):
                _count_pairs(
                    n_rows, slots, &self.slots[l, 0], self.levels[l] + 1,
                    &self.pairs[self.first_pairs[k * self.n_categories + l]])
        self.n_coded += n_packed
        self.rows_in_totals += n_packed

    cdef void _move_to(self, GramTotals totals) noexcept nogil:
        self._expand()
        GramSums._move_to(self, totals)

    cdef void _expand(self) noexcept nogil:
        """Add what the tables say to the totals of all columns, and begin anew."""
        if self.n_coded == 0:
            return
        cdef Py_ssize_t i, j, k, n_numbers = self.number_grid.n_columns, n_outcomes = self.y_grid.n_columns
        cdef Py_ssize_t all_columns = self.x_grid.n_columns, stride = self.number_pack.n_columns
        # Every row has one slot of the first category.
        for k in range(self.levels[0] + 1):
            for i in range(stride):
                self.number_columns[i] += <int64_t>self.by_slot[k * stride + i]
        for i in range(n_numbers):
            for j in range(i, n_numbers):
                self._add(self.places[i], self.places[j], self.number_products[i, j])
            for j in range(n_outcomes):
                self._add(self.places[i], all_columns + j, self.number_products[i, n_numbers + j])
        for k in range(self.n_categories):
            self._expand_category(k)
        if self.with_sums:
            for i in range(n_numbers + n_outcomes):
                j = self.places[i] if i < n_numbers else all_columns + i - n_numbers
                self.columns[j] += self.number_columns[i]
        self.number_products[:] = 0
        self.number_columns[:] = 0
        self.counts[:] = 0
        self.by_slot[:] = 0.0
        self.pairs[:] = 0
        self.n_coded = 0

    cdef void _expand_category(self, Py_ssize_t k) noexcept nogil:
        """Add the products of a category's columns with numbers, outcomes, themselves and categories that follow."""
        cdef Py_ssize_t slot, column, level, l, i, other, other_column, other_level, at
        cdef Py_ssize_t n_numbers = self.number_grid.n_columns, n_narrow = n_numbers + self.y_grid.n_columns
        cdef uint64_t absent, step, count, both
        for level in range(self.levels[k]):
            slot, column = self.first_slots[k] + level, self.firsts[k] + level
            absent, step = <uint64_t>self.absent[slot], <uint64_t>self.steps[slot]
            count = <uint64_t>self.counts[slot]
            for i in range(n_narrow):
                at = self.places[i] if i < n_numbers else self.x_grid.n_columns + i - n_numbers
                both = <uint64_t><int64_t>self.by_slot[slot * self.number_pack.n_columns + i]
                self._add(
                    min(column, at), max(column, at), absent * <uint64_t>self.number_columns[i] + step * both)
            for l in range(k, self.n_categories):
                for other_level in range(level if l == k else 0, self.levels[l]):
                    other, other_column = self.first_slots[l] + other_level, self.firsts[l] + other_level
                    if l > k:
                        at = self.first_pairs[k * self.n_categories + l]
                        both = self.pairs[at + level * (self.levels[l] + 1) + other_level]
                    else:
                        both = count if other == slot else 0
                    self._add(
                        column, other_column,
                        absent * (<uint64_t>self.n_coded * <uint64_t>self.absent[other]
                                  + <uint64_t>self.steps[other] * <uint64_t>self.counts[other])
                        + step * (<uint64_t>self.absent[other] * count + <uint64_t>self.steps[other] * both))
            if self.with_sums:
                self.columns[column] += <int64_t>(<uint64_t>self.n_coded * absent + step * count)

    cdef inline void _add(self, Py_ssize_t i, Py_ssize_t j, uint64_t value) noexcept nogil:
        self.products[i, j] = <int64_t>(<uint64_t>self.products[i, j] + value)
