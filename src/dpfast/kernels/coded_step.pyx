"""Residual steps of rows with codes, by look-ups of pairs of levels: arrays around coded_step.c, whose comment has the design.

A `CodedSums` belongs to one thread and sums integers by slot and by number; a `CodedSizes` counts. Both read rows in place,
without the GIL, and say which they leave out: those are for `residual_step`.

The caller has checked dtypes (native, aligned float64 or float32) and that the public tables are so bounded that nothing
overflows.
"""

import numpy as np

from dpfast.kernels.gram import aligned_zeros

from libc.stdint cimport int32_t, int64_t, uint64_t

from dpfast.kernels._c cimport dpfast_map_scratch, dpfast_row_map, find_codes

from dpfast.kernels.gram cimport describe_table, dpfast_table

from dpfast.kernels.row_maps cimport RowMapKernel

cdef extern from "cpu.h":
    int dpfast_resolve_level(int requested) nogil

cdef extern from "coded_step.c":
    enum:
        DPFAST_CODED_ROWS

    ctypedef struct dpfast_coded_step:
        const dpfast_row_map* map_y
        Py_ssize_t n_numbers
        Py_ssize_t n_categories
        Py_ssize_t n_outcomes
        const double* low
        const double* high
        const double* center
        const double* inverse_scale
        const double* units
        double squared_bound
        double squared_absent
        const double* slot_squares
        const Py_ssize_t* n_levels
        const Py_ssize_t* first_slots
        Py_ssize_t stride
        const double* of_slots
        const double* products
        const double* theta
        const double* pairs
        const Py_ssize_t* first_pairs
        double slack
        double squared_longest
        double unit_r
        double onto_clip
        double squared_limit
        double squared_clip
        Py_ssize_t first_bin
        Py_ssize_t n_bins

    ctypedef struct dpfast_coded_step_scratch:
        dpfast_map_scratch map_y
        double* y_rows
        double* y
        double* x
        double* r
        double* sums
        double* columns
        double* squared
        double* of_codes
        double* size
        double* multipliers
        int32_t* slots
        int64_t* kept

    int dpfast_coded_step_rows(
        int level, const dpfast_coded_step* step, const dpfast_table* numbers, const int32_t* const* codes,
        const dpfast_table* y, Py_ssize_t start, Py_ssize_t n_rows, const dpfast_coded_step_scratch* scratch) nogil
    Py_ssize_t dpfast_coded_step_add(
        int level, const dpfast_coded_step* step, Py_ssize_t n_rows, const dpfast_coded_step_scratch* scratch,
        double* by_slot, int64_t* high, uint64_t* low, unsigned char* left_out) nogil
    void dpfast_coded_step_count(
        const dpfast_coded_step* step, Py_ssize_t n_rows, const dpfast_coded_step_scratch* scratch, int64_t* counts,
        unsigned char* left_out) nogil
    void dpfast_coded_step_norms(
        Py_ssize_t n_rows, const dpfast_coded_step_scratch* scratch, double* norms, unsigned char* left_out) nogil

# Rows whose integers by slot are summed exactly in doubles.
_MOST_ROWS = 1 << 28


cdef class CodedRows:
    """What both passes read.

    Parameters
    ----------
    tables : dpfast.statistics.coded.PairTables
        Public tables of the step.
    map_y : RowMapKernel or None
        Map of outcomes; None for none.
    level : int, default -1
        Vector instructions to use (cpu.h); -1 for the best there are.
    """

    cdef dpfast_coded_step step
    cdef dpfast_coded_step_scratch scratch
    cdef RowMapKernel map_y
    cdef readonly int level
    cdef const double[::1] low, high, center, inverse_scale, units, slot_squares, pairs
    cdef const double[:, ::1] of_slots, products, theta
    cdef Py_ssize_t[::1] n_levels, first_slots, first_pairs
    cdef int32_t[::1] slots
    cdef int64_t[::1] kept
    cdef object buffers

    def __init__(self, tables, RowMapKernel map_y, *, int level=-1):
        self.level, self.map_y = dpfast_resolve_level(level), map_y
        sizes = np.array(tables.levels, np.intp) + 1
        n_numbers, n_categories, n_outcomes = len(tables.units), len(sizes), 0 if map_y is None else map_y.map.n_columns
        pair_sizes = np.triu(np.outer(sizes, sizes), 1).ravel()
        stride = (n_numbers + n_outcomes + 8) // 8 * 8
        if (np.shape(tables.of_slots) != (sizes.sum(), stride) or len(tables.slot_squares) != sizes.sum()
                or np.shape(tables.products) != (n_numbers, n_numbers)
                or np.shape(tables.theta) != (n_outcomes, n_numbers) or len(tables.pairs) != pair_sizes.sum()
                or any(len(side) != n_numbers for side in (tables.center, tables.inverse_scale))
                or any(side is not None and len(side) != n_numbers for side in (tables.low, tables.high))):
            raise ValueError("tables have other shapes than their layout")
        self.step.n_numbers, self.step.n_categories, self.step.n_outcomes = n_numbers, n_categories, n_outcomes
        self.step.stride, self.step.squared_bound = stride, tables.squared_bound
        self.step.squared_absent, self.step.slack = tables.squared_absent, tables.slack
        self.step.squared_longest = tables.squared_longest
        self.n_levels, self.first_slots = np.array(tables.levels, np.intp), np.cumsum(sizes) - sizes
        self.first_pairs = (np.cumsum(pair_sizes) - pair_sizes).astype(np.intp)
        self.step.n_levels, self.step.first_slots = &self.n_levels[0], &self.first_slots[0]
        self.slot_squares, self.of_slots = tables.slot_squares, tables.of_slots
        self.step.slot_squares, self.step.of_slots = &self.slot_squares[0], &self.of_slots[0, 0]
        self.step.first_pairs = &self.first_pairs[0]
        if n_categories > 1:
            self.pairs = tables.pairs
            self.step.pairs = &self.pairs[0]
        if n_numbers > 0:
            self._take_numbers(tables)
        self._allocate()

    cdef _take_numbers(self, tables):
        self.center, self.inverse_scale, self.units = tables.center, tables.inverse_scale, tables.units
        self.step.center, self.step.inverse_scale = &self.center[0], &self.inverse_scale[0]
        self.products, self.theta = tables.products, tables.theta
        self.step.units, self.step.products = &self.units[0], &self.products[0, 0]
        if self.step.n_outcomes > 0:
            self.step.theta = &self.theta[0, 0]
        if tables.low is not None:
            self.low, self.high = tables.low, tables.high
            self.step.low, self.step.high = &self.low[0], &self.high[0]

    cdef double* _doubles(self, Py_ssize_t n):
        cdef double[::1] buffer = aligned_zeros(n)
        self.buffers.append(buffer)
        return &buffer[0]

    cdef _allocate(self):
        cdef Py_ssize_t rows = DPFAST_CODED_ROWS, outcomes = (self.step.n_outcomes + 7) // 8 * 8
        self.buffers = []
        if self.map_y is not None:
            self.step.map_y, self.scratch.map_y.block_rows = &self.map_y.map, rows
            self.scratch.map_y.staging = self._doubles(rows * self.map_y.map.n_columns)
            self.scratch.map_y.rows = self._doubles(self.map_y.map.n_together * self.map_y.map.n_columns)
            self.scratch.map_y.sizes = self._doubles(self.map_y.map.n_columns + 7)
        self.scratch.y_rows = self._doubles(rows * self.step.n_outcomes + 8)
        self.scratch.y, self.scratch.r = self._doubles(rows * outcomes), self._doubles(rows * outcomes)
        self.scratch.x = self._doubles(rows * max(1, self.step.n_numbers))
        self.scratch.sums, self.scratch.columns = self._doubles(rows * self.step.stride), self._doubles(rows * self.step.stride)
        self.scratch.squared, self.scratch.of_codes = self._doubles(rows), self._doubles(rows)
        self.scratch.size, self.scratch.multipliers = self._doubles(rows), self._doubles(rows)
        self.slots, self.kept = np.zeros(rows * self.step.n_categories, np.int32), np.zeros(rows, np.int64)
        self.scratch.slots, self.scratch.kept = &self.slots[0], &self.kept[0]

    def add(self, numbers, list codes, y, Py_ssize_t start, Py_ssize_t stop, unsigned char[::1] left_out):
        """Add rows start to stop of numbers, codes (an array of int32 a category) and y; returns a status.

        `left_out` has one entry for each of them, which is set: not 0 for rows that were not added. After a status other
        than that of `residual_step.ADDED` what has been added must be thrown away.
        """
        if len(codes) != self.step.n_categories or numbers.shape[1] != self.step.n_numbers:
            raise ValueError("rows are of another layout than their tables")
        if not 0 <= start <= stop <= len(numbers) or left_out.shape[0] != stop - start:
            raise IndexError("start and stop must lie within the rows, and left_out have an entry for each of them")
        if self.step.n_outcomes > 0 and len(y) != len(numbers):
            raise IndexError("y must have as many rows as numbers")
        if self.step.n_outcomes > 0 and y.shape[1] != self.step.n_outcomes:
            raise ValueError("y has another number of columns than the map")
        if stop - start > self._room():
            raise OverflowError("the sums by slot are full: take them first")
        if start == stop:
            return 0
        cdef size_t[::1] addresses = np.empty(len(codes), np.uintp)
        cdef Py_ssize_t first = start, n_rows
        find_codes(codes, len(numbers), addresses)
        cdef dpfast_table x_table, y_table
        if self.step.n_numbers > 0:
            x_table = describe_table(numbers, None)
        if self.step.n_outcomes > 0:
            y_table = describe_table(y, None)
        cdef int status = 0
        with nogil:
            while first < stop and status == 0:
                n_rows = min(<Py_ssize_t>DPFAST_CODED_ROWS, stop - first)
                status = dpfast_coded_step_rows(
                    self.level, &self.step, &x_table, <const int32_t* const*>&addresses[0], &y_table, first, n_rows,
                    &self.scratch)
                if status == 0:
                    self._add_rows(n_rows, &left_out[first - start])
                first += n_rows
        return status

    cdef object _room(self):
        return _MOST_ROWS

    cdef void _add_rows(self, Py_ssize_t n_rows, unsigned char* left_out) noexcept nogil:
        pass


cdef class CodedSums(CodedRows):
    """Integer sums of numbers and slots times residuals.

    Parameters
    ----------
    clip : tuple of float
        Units of residuals in 1, the norm in them onto which larger parts are scaled, the bound on their squared norm, and
        the squared norm beyond which people are counted.
    """

    cdef double[:, ::1] by_slot
    cdef int64_t[:, ::1] high
    cdef uint64_t[:, ::1] low
    cdef readonly Py_ssize_t n_rows, n_beyond

    def __init__(self, tables, map_y, clip, *, int level=-1):
        super().__init__(tables, map_y, level=level)
        self.step.unit_r, self.step.onto_clip, self.step.squared_limit, self.step.squared_clip = clip
        self.by_slot = np.zeros((len(tables.of_slots), self.step.n_outcomes))
        shape = max(1, self.step.n_numbers), self.step.n_outcomes
        self.high, self.low = np.zeros(shape, np.int64), np.zeros(shape, np.uint64)

    @property
    def room(self):
        """Rows that may still be added before the sums must be taken."""
        return self._room()

    def take(self):
        """Return the sums by slot, the limbs of those by number, and the people beyond the clip, and begin anew."""
        n_numbers = self.step.n_numbers
        taken = np.array(self.by_slot), np.array(self.high)[:n_numbers], np.array(self.low)[:n_numbers], self.n_beyond
        self.by_slot[:] = 0.0
        self.high[:] = 0
        self.low[:] = 0
        self.n_rows = self.n_beyond = 0
        return taken

    cdef object _room(self):
        return _MOST_ROWS - self.n_rows

    cdef void _add_rows(self, Py_ssize_t n_rows, unsigned char* left_out) noexcept nogil:
        self.n_beyond += dpfast_coded_step_add(
            self.level, &self.step, n_rows, &self.scratch, &self.by_slot[0, 0], &self.high[0, 0], &self.low[0, 0],
            left_out)
        self.n_rows += n_rows


cdef class CodedSizes(CodedRows):
    """Counts of people by the exponent of the squared norm of their part, as `residual_step.ResidualSizes` has them."""

    cdef int64_t[::1] counts

    def __init__(self, tables, map_y, *, Py_ssize_t first, Py_ssize_t last, int level=-1):
        super().__init__(tables, map_y, level=level)
        self.step.first_bin, self.step.n_bins = first, last - first + 2
        self.counts = np.zeros(self.step.n_bins, np.int64)

    def take(self):
        """Return the counts, and begin anew."""
        taken = np.array(self.counts)
        self.counts[:] = 0
        return taken

    cdef void _add_rows(self, Py_ssize_t n_rows, unsigned char* left_out) noexcept nogil:
        dpfast_coded_step_count(&self.step, n_rows, &self.scratch, &self.counts[0], left_out)


cdef class CodedNorms(CodedRows):
    """Norms of p, one a row."""

    cdef double[::1] norms
    cdef Py_ssize_t n_read

    def __init__(self, tables, *, int level=-1):
        super().__init__(tables, None, level=level)

    def of(self, numbers, list codes, double[::1] norms, unsigned char[::1] left_out):
        """Put the norm of every row in `norms`, 0 for those left out; returns a status, as `add`."""
        if norms.shape[0] != len(numbers):
            raise IndexError("norms must have an entry for each row")
        self.norms, self.n_read = norms, 0
        return self.add(numbers, codes, None, 0, len(numbers), left_out)

    cdef void _add_rows(self, Py_ssize_t n_rows, unsigned char* left_out) noexcept nogil:
        dpfast_coded_step_norms(n_rows, &self.scratch, &self.norms[self.n_read], left_out)
        self.n_read += n_rows
