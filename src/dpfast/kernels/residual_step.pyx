"""Residuals of people's rows, times the rows: the arrays and people around residual_step.c, whose comment has the design.

A `ResidualSums` belongs to one thread and adds integers to 64-bit totals; a `ResidualSizes` counts. Both read zero-copy
rows block by block without the GIL. People with several rows come one after the other in the table, or in the index
that names rows; where a person's do not fit one block, they are read again whenever their sum has to be scaled.

The caller has checked dtypes (native, aligned float64 or float32), that offsets increase, that the public numbers cannot
overflow and that norms of a person's rows, as they are held, add up to less than 2**62 units.
"""

import math

import numpy as np

from libc.math cimport ldexp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from dpfast.kernels._c cimport dpfast_coded_map, dpfast_coded_scratch, dpfast_map_scratch, dpfast_row_map

from dpfast.kernels.gram cimport describe_table, dpfast_table

from dpfast.kernels.row_maps cimport CodedMapKernel, RowMapKernel

cdef extern from "cpu.h":
    int dpfast_resolve_level(int requested) nogil

cdef extern from "residual_step.c":
    enum:
        DPFAST_IDENTITY
        DPFAST_LOGISTIC
        DPFAST_SOFTMAX
        DPFAST_HUBER
        DPFAST_QUANTILE
        DPFAST_POISSON

    ctypedef struct dpfast_residual_step:
        const dpfast_row_map* map_x
        const dpfast_row_map* map_y
        Py_ssize_t n_columns
        int has_constant
        Py_ssize_t n_outcomes
        Py_ssize_t n_products
        const double* theta
        int link
        double level
        double width
        const double* whitening
        const Py_ssize_t* theta_ends
        const Py_ssize_t* ends
        double longest
        double beyond
        double unit_p
        double unit_r
        double row_length
        uint64_t row_bound_high
        uint64_t row_bound_low
        double person_length
        uint64_t person_bound_high
        uint64_t person_bound_low
        double unit_squares
        double squares_length
        double squares_bound
        Py_ssize_t first_bin
        Py_ssize_t n_bins

    ctypedef struct dpfast_residual_scratch:
        Py_ssize_t block_rows
        dpfast_map_scratch map_x
        dpfast_map_scratch map_y
        double* x_rows
        double* y_rows
        double* x
        double* p
        double* r
        double* rounded
        double* squared_p
        double* squared_r
        double* multipliers
        double* squared_p_units
        double* squares
        double* outer
        int64_t* person
        double* looked_up
        double* lanes
        double* lightened
        float* kept
        double* kept_sizes
        int is_kept

    int dpfast_residual_rows(
        int level, const dpfast_residual_step* step, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start,
        Py_ssize_t n_rows, const dpfast_residual_scratch* scratch) nogil
    int dpfast_residual_coded_rows(
        int level, const dpfast_residual_step* step, const dpfast_coded_map* map, const dpfast_coded_scratch* coded,
        const dpfast_table* numbers, const int32_t* const* codes, const dpfast_table* y, Py_ssize_t start,
        Py_ssize_t n_rows, const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_round(
        int level, const dpfast_residual_step* step, Py_ssize_t n_rows, const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_keep(const dpfast_residual_step* step, const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_add(
        int level, const dpfast_residual_step* step, Py_ssize_t n_rows, const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_flush(
        const dpfast_residual_step* step, const dpfast_residual_scratch* scratch, int64_t* totals) nogil
    double dpfast_residual_factor(const dpfast_residual_step* step, const int64_t* block) nogil
    void dpfast_residual_round_again(
        const dpfast_residual_step* step, Py_ssize_t first, Py_ssize_t last, double factor,
        const dpfast_residual_scratch* scratch) nogil
    int dpfast_residual_hold(
        const dpfast_residual_step* step, Py_ssize_t first, Py_ssize_t last,
        const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_squares(
        const dpfast_residual_step* step, Py_ssize_t first, Py_ssize_t last,
        const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_hold_squares(
        const dpfast_residual_step* step, const dpfast_residual_scratch* scratch, int64_t* totals) nogil
    void dpfast_residual_outer(
        const dpfast_residual_step* step, Py_ssize_t first, Py_ssize_t last,
        const dpfast_residual_scratch* scratch) nogil
    void dpfast_residual_count_rows(
        const dpfast_residual_step* step, Py_ssize_t n_rows, const dpfast_residual_scratch* scratch,
        int64_t* counts) nogil
    void dpfast_residual_count_outer(
        const dpfast_residual_step* step, const dpfast_residual_scratch* scratch, int64_t* counts) nogil

# Statuses.
ADDED = 0
X_NOT_FINITE = 1
Y_NOT_FINITE = 2

LINKS = {
    "identity": DPFAST_IDENTITY, "logistic": DPFAST_LOGISTIC, "softmax": DPFAST_SOFTMAX, "huber": DPFAST_HUBER,
    "quantile": DPFAST_QUANTILE, "poisson": DPFAST_POISSON,
}

# Columns of a block stay in the second-level cache.
_DOUBLES_A_BLOCK, _MOST_ROWS_A_BLOCK = 16384, 64
# Of narrow tables all buffers are one: their number is most of a small sum's time.
_DOUBLES_AT_A_TIME = 8192
_TOTAL_RANGE = 1 << 62
_EXACT_RANGE = 1 << 53
_WORD = 1 << 64


cdef class ResidualRows:
    """What both passes read: mapped rows, their products and residuals.

    Parameters
    ----------
    map_x, map_y : RowMapKernel
        Maps of rows and of their outcomes, as many as `theta` has rows.
    theta : ndarray (n_outcomes, n_columns)
        Coefficients.
    whitening : ndarray (n_products, n_columns) or None
        What rows are multiplied by.
    has_constant : bool
        Whether mapped rows are followed by a 1.
    link : {"identity", "logistic", "softmax", "huber", "quantile", "poisson"}
        What residuals are; see `dpfast.statistics.residuals.ResidualStep`.
    longest : float
        Norm of products onto which those of longer rows are scaled.
    smoothing : tuple of float
        Of "huber" its threshold, of "quantile" its level, and half the width of the smoothing; of "poisson" the largest rate,
        and the z at which its smoothing begins.
    beyond : float
        Length that parts must exceed; the rest of them is summed.
    level : int, default -1
        Vector instructions to use (cpu.h); -1 for the best there are.
    """

    cdef dpfast_residual_step step
    cdef dpfast_residual_scratch scratch
    cdef RowMapKernel map_x, map_y
    cdef readonly int level
    cdef readonly Py_ssize_t block_rows
    cdef double[:, ::1] theta
    cdef const double[:, ::1] whitening
    cdef Py_ssize_t[::1] theta_ends, ends
    cdef list buffers
    cdef double* free
    cdef Py_ssize_t n_free
    cdef CodedMapKernel coded
    cdef object kept_products
    cdef float* kept
    cdef double* kept_sizes
    cdef uint8_t* kept_rows
    cdef Py_ssize_t n_kept, kept_block

    def __init__(self, RowMapKernel map_x not None, RowMapKernel map_y not None, theta, whitening, bint has_constant,
                 link="identity", longest=math.inf, smoothing=(1.0, 1.0), beyond=0.0, *, int level=-1):
        self.map_x, self.map_y, self.theta = map_x, map_y, np.array(theta, np.float64, order="C")
        self.level = dpfast_resolve_level(level)
        self.step.map_x, self.step.map_y = &self.map_x.map, &self.map_y.map
        self.step.n_columns, self.step.has_constant = self.theta.shape[1], has_constant
        self.step.n_outcomes, self.step.n_products = self.theta.shape[0], self.theta.shape[1]
        if (map_x.n_features + has_constant, map_y.n_features) != (self.step.n_columns, self.step.n_outcomes):
            raise ValueError("theta must have as many rows and columns as the maps have columns")
        self.step.whitening = NULL
        self.step.link, self.step.longest = LINKS[link], longest
        self.step.level, self.step.width = smoothing
        self.step.theta, self.theta_ends = &self.theta[0, 0], np.empty(self.step.n_outcomes, np.intp)
        self.step.theta_ends = &self.theta_ends[0]
        self._take_theta(beyond)
        if whitening is not None:
            self.whitening = np.ascontiguousarray(whitening)
            if self.whitening.shape[1] != self.step.n_columns or self.whitening.shape[0] < 1:
                raise ValueError("whitening must have as many columns as theta")
            self.ends = np.empty(self.whitening.shape[0], np.intp)
            _fill_ends(self.whitening, self.ends)
            self.step.n_products, self.step.whitening = self.whitening.shape[0], &self.whitening[0, 0]
            self.step.ends = &self.ends[0]
        self._allocate()

    cdef _take_theta(self, double beyond):
        self.step.beyond = beyond
        _fill_ends(self.theta, self.theta_ends)

    cdef double* _doubles(self, Py_ssize_t n):
        """Zeros that start on a cache line, in memory kept as long as this."""
        cdef double[::1] words
        cdef double* found
        n = (n + 7) // 8 * 8
        if n > self.n_free:
            self.n_free = max(n, _DOUBLES_AT_A_TIME)
            words = memory = np.zeros(self.n_free + 8)
            self.buffers.append(memory)
            self.free = <double*>((<size_t>&words[0] + 63) // 64 * 64)
        found = self.free
        self.free += n
        self.n_free -= n
        return found

    cdef _allocate(self):
        cdef Py_ssize_t columns = (self.step.n_columns + 7) // 8 * 8, outcomes = (self.step.n_outcomes + 7) // 8 * 8
        cdef Py_ssize_t products = (self.step.n_products + 7) // 8 * 8, rows
        self.buffers = []
        rows = min(_MOST_ROWS_A_BLOCK, max(8, _DOUBLES_A_BLOCK // (columns + outcomes) // 8 * 8))
        self.block_rows = self.scratch.block_rows = rows
        self._allocate_map(&self.scratch.map_x, self.map_x)
        self._allocate_map(&self.scratch.map_y, self.map_y)
        self.scratch.x_rows = self._doubles(rows * self.step.n_columns + 8)
        self.scratch.y_rows = self._doubles(rows * self.step.n_outcomes + 8)
        self.scratch.x = self._doubles(rows * columns)
        self.scratch.p = self.scratch.x if self.step.whitening == NULL else self._doubles(rows * products)
        self.scratch.r, self.scratch.rounded = self._doubles(rows * outcomes), self._doubles(rows * outcomes)
        self.scratch.squared_p, self.scratch.squared_r = self._doubles(rows), self._doubles(rows)
        self.scratch.multipliers, self.scratch.squared_p_units = self._doubles(rows), self._doubles(rows)
        self.scratch.lightened = self._doubles(rows)

    cdef _allocate_map(self, dpfast_map_scratch* scratch, RowMapKernel row_map):
        scratch.block_rows = self.block_rows
        scratch.staging = self._doubles(self.block_rows * row_map.map.n_columns)
        scratch.rows = self._doubles(row_map.map.n_together * row_map.map.n_columns)
        scratch.sizes = self._doubles(row_map.map.n_columns + 7)

    @property
    def shape(self):
        """Products and outcomes."""
        return self.step.n_products, self.step.n_outcomes

    def add(self, x, y, const int64_t[::1] rows, Py_ssize_t start, Py_ssize_t stop):
        """Add rows start to stop of x and y, each a person, or those named by rows[start:stop]; returns a status.

        After a status other than ADDED what has been added must be thrown away.
        """
        self._check(x, y, rows, start, stop)
        if stop == start:
            return ADDED
        cdef dpfast_table x_table = describe_table(x, rows), y_table = describe_table(y, rows)
        cdef int status = 0
        cdef Py_ssize_t n_rows
        with nogil:
            while start < stop and status == 0:
                n_rows = min(self.block_rows, stop - start)
                self._begin_block(start, n_rows, rows is None)
                status = dpfast_residual_rows(
                    self.level, &self.step, &x_table, &y_table, start, n_rows, &self.scratch)
                if status == 0:
                    self._add_rows(n_rows)
                start += n_rows
            self._begin_block(0, 0, False)
            self._finish()
        return status

    cdef void _begin_block(self, Py_ssize_t start, Py_ssize_t n_rows, bint is_in_order) noexcept nogil:
        """Find what is kept of so many rows, which are a whole block or the last, or the place to keep it."""
        cdef Py_ssize_t block = start // self.block_rows
        self.scratch.kept, self.scratch.is_kept = NULL, False
        if is_in_order and block < self.n_kept and start == block * self.block_rows:
            self.kept_block = block
            self.scratch.kept = self.kept + block * self.step.n_products * self.block_rows
            self.scratch.kept_sizes = self.kept_sizes + block * 3 * self.block_rows
            self.scratch.is_kept = self.kept_rows[block] == n_rows

    def begin_coded(self, CodedMapKernel coded not None):
        """Take rows with codes too, whose map has the basis theta, rounded up to eight columns, and the whitening."""
        wanted = (self.step.n_outcomes + 7) // 8 * 8 + (self.step.n_products + 7) // 8 * 8
        if coded.block_rows != self.block_rows or coded.map.stride != (wanted + 15) // 16 * 16:
            raise ValueError("tables have other shapes than their step")
        self.scratch.looked_up = self._doubles(self.block_rows * coded.map.stride)
        self.coded = coded

    def add_coded(self, numbers, list codes, y, Py_ssize_t start, Py_ssize_t stop):
        """Add rows start to stop of numbers, codes (an array of int32 a category) and y; returns a status, as `add`."""
        if self.coded is None:
            raise ValueError("rows with codes have not been begun")
        cdef size_t[::1] addresses = self.coded.addresses(numbers, codes)
        if not 0 <= start <= stop <= len(numbers) or len(y) != len(numbers):
            raise IndexError("start and stop must lie within the rows, of which numbers and y have as many")
        if y.shape[1] != self.step.n_outcomes:
            raise ValueError("y has another number of columns than the map")
        if stop - start > self._room():
            raise OverflowError("the 64-bit totals are full: take them first")
        if stop == start:
            return ADDED
        cdef dpfast_table y_table = describe_table(y, None)
        cdef dpfast_table x_table = describe_table(numbers, None) if numbers.shape[1] > 0 else y_table
        cdef int status = 0
        cdef Py_ssize_t n_rows
        with nogil:
            while start < stop and status == 0:
                n_rows = min(self.block_rows, stop - start)
                status = dpfast_residual_coded_rows(
                    self.level, &self.step, &self.coded.map, &self.coded.scratch, &x_table,
                    <const int32_t* const*>&addresses[0], &y_table, start, n_rows, &self.scratch)
                if status == 0:
                    self._add_rows(n_rows)
                start += n_rows
            self._finish()
        return status

    def add_people(self, x, y, const int64_t[::1] rows, const int64_t[::1] offsets, Py_ssize_t first, Py_ssize_t last):
        """Add people first to last, whose rows are offsets[p] to offsets[p + 1], or those of `rows`; returns a status."""
        if not 0 <= first <= last < offsets.shape[0]:
            raise IndexError("first and last must lie within the people")
        self._check(x, y, rows, offsets[first], offsets[last])
        if offsets[last] == offsets[first]:
            return ADDED
        cdef dpfast_table x_table = describe_table(x, rows), y_table = describe_table(y, rows)
        cdef int status = 0
        cdef Py_ssize_t end, person
        with nogil:
            while first < last and status == 0:
                end = first
                while end < last and offsets[end + 1] - offsets[first] <= self.block_rows:
                    end += 1
                if end == first:
                    status = self._add_long_person(&x_table, &y_table, offsets[first], offsets[first + 1])
                    first += 1
                    continue
                status = dpfast_residual_rows(
                    self.level, &self.step, &x_table, &y_table, offsets[first], offsets[end] - offsets[first],
                    &self.scratch)
                if status == 0:
                    self._add_packed(&offsets[first], end - first)
                first = end
            self._finish()
        return status

    cdef _check(self, x, y, const int64_t[::1] rows, Py_ssize_t start, Py_ssize_t stop):
        n_available = len(x) if rows is None else rows.shape[0]
        if not 0 <= start <= stop <= n_available or len(y) != len(x):
            raise IndexError("start and stop must lie within the rows, of which x and y have as many")
        if x.shape[1] != self.map_x.map.n_columns or y.shape[1] != self.map_y.map.n_columns:
            raise ValueError("x or y has another number of columns than the maps")
        if stop - start > self._room():
            raise OverflowError("the 64-bit totals are full: take them first")

    cdef object _room(self):
        return math.inf

    @property
    def room(self):
        """Rows that may still be added before the totals must be taken."""
        return self._room()

    cdef void _add_rows(self, Py_ssize_t n_rows) noexcept nogil:
        pass

    cdef void _add_packed(self, const int64_t* offsets, Py_ssize_t n_people) noexcept nogil:
        pass

    cdef int _add_long_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        return 0

    cdef void _finish(self) noexcept nogil:
        pass


cdef void _fill_ends(const double[:, ::1] weights, Py_ssize_t[::1] ends) noexcept nogil:
    """ends[:] = the number of columns, for each row of weights, up to its last that is not 0."""
    cdef Py_ssize_t row, column
    for row in range(weights.shape[0]):
        ends[row] = 0
        for column in range(weights.shape[1]):
            if weights[row, column] != 0.0:
                ends[row] = column + 1


cdef class ResidualSums(ResidualRows):
    """Integer sums over the people one thread has seen.

    Parameters
    ----------
    units : tuple of (float, float)
        Units of the grids of p and of r in 1: powers of two.
    row_limits, person_limits : tuple of (float, int)
        Norm onto which a larger part is scaled, and the bound on its squared norm once it is rounded, both in units: of
        a row, and of the sum of a person's rows where people may have several.
    squares_limits : tuple of (float, float, int), optional
        Unit of the grid of squared residuals, norm and squared bound in units, where they are to be summed.
    """

    cdef object sums, sums_of_squares
    cdef int64_t[:, ::1] totals
    cdef int64_t[::1] squares
    cdef int64_t* long_person
    cdef Py_ssize_t size
    cdef bint sums_squares
    cdef object capacity
    cdef tuple limits
    cdef Py_ssize_t rows_in_lanes, most_in_lanes
    cdef double squared_clip
    cdef readonly Py_ssize_t rows_in_totals, n_beyond

    def __init__(self, map_x, map_y, theta, whitening, has_constant, link="identity", longest=math.inf,
                 smoothing=(1.0, 1.0), beyond=0.0, *, units, row_limits, person_limits, squares_limits=None, int level=-1):
        super().__init__(map_x, map_y, theta, whitening, has_constant, link, longest, smoothing, beyond, level=level)
        self.sums_squares = squares_limits is not None
        longest = 1
        if self.sums_squares:
            self.step.unit_squares, self.step.squares_length, self.step.squares_bound = squares_limits
            if not self.step.squares_bound < _EXACT_RANGE:
                raise OverflowError("the squared bound of squared residuals must stay below 2**53 units")
            longest = math.isqrt(squares_limits[2]) + 1
        self._take_limits(units, row_limits, person_limits, longest)
        self.size = self.step.n_products * self.step.n_outcomes
        self.totals = self.sums = np.zeros(self.shape, np.int64)
        if self.sums_squares:
            self.squares = self.sums_of_squares = np.zeros(self.step.n_outcomes, np.int64)
        self.scratch.person = <int64_t*>self._doubles(self.size)
        self.long_person = <int64_t*>self._doubles(self.size)
        self.scratch.lanes = self._doubles(8 * self.size)
        self.scratch.squares = self._doubles(self.step.n_outcomes)

    def again(self, const double[:, :] theta, double beyond, units, row_limits, person_limits):
        """Sum products once more with other coefficients of the shape of those before, and other limits."""
        self._begin_again(theta, beyond, units, row_limits, person_limits)

    cdef _begin_again(self, const double[:, :] theta, double beyond, units, row_limits, person_limits):
        if self.rows_in_totals or self.sums_squares:
            raise ValueError("totals must have been taken, and be of products alone")
        if theta.shape[0] != self.theta.shape[0] or theta.shape[1] != self.theta.shape[1]:
            raise ValueError("theta must have as many rows and columns as before")
        self.theta[:, :] = theta
        self._take_theta(beyond)
        self._take_limits(units, row_limits, person_limits, 1)

    def sum_again(self, x, y, const double[:, :] theta, double beyond, units, row_limits, person_limits, shift):
        """Do what `again`, `add` of all rows, each a person, and `take` do: returns a status, limbs and people beyond.

        The upper and the lower limbs of totals have their shape. With a shift (or None) they are in one row, and the number
        of people beyond, times 2**shift, is their last entry.
        """
        cdef Py_ssize_t i, size = self.size, n_beyond
        cdef int64_t[::1] upper
        cdef uint64_t[::1] lower
        cdef int64_t* totals = &self.totals[0, 0]
        self._begin_again(theta, beyond, units, row_limits, person_limits)
        status = self.add(x, y, None, 0, len(x))
        if status != ADDED:
            return status, None, None, 0
        n_beyond = self.n_beyond
        shape = self.shape if shift is None else size + 1
        high, low = np.empty(shape, np.int64), np.empty(shape, np.uint64)
        upper, lower = high.reshape(-1), low.reshape(-1)
        if shift is not None:
            high[size], low[size] = divmod(<object>n_beyond << shift, _WORD)
        for i in range(size):
            upper[i], lower[i] = totals[i] >> 63, <uint64_t>totals[i]
            totals[i] = 0
        self.rows_in_totals = self.n_beyond = 0
        return ADDED, high, low, n_beyond

    def keep(self, float[:, ::1] products, double[:, ::1] sizes, uint8_t[::1] n_rows):
        """Share products of blocks of a table's rows with other passes, and threads, of the same maps and whitening.

        Parameters
        ----------
        products : ndarray (n_blocks, n_products * block_rows)
            Room for those of the first blocks.
        sizes : ndarray (n_blocks, 3 * block_rows)
            Room for norms.
        n_rows : ndarray (n_blocks,)
            How many rows of a block are there: 0 before the first pass.
        """
        if self.step.whitening == NULL:
            raise ValueError("rows without whitening are their own products")
        shapes = (products.shape[1], sizes.shape[0], sizes.shape[1], n_rows.shape[0])
        n_blocks = products.shape[0]
        if n_blocks < 1 or shapes != (
                self.step.n_products * self.block_rows, n_blocks, 3 * self.block_rows, n_blocks):
            raise ValueError("products, sizes and n_rows must be of blocks of the shape of these")
        self.kept_products = products, sizes, n_rows
        self.kept, self.kept_sizes, self.kept_rows = &products[0, 0], &sizes[0, 0], &n_rows[0]
        self.n_kept = n_blocks

    cdef _take_limits(self, units, row_limits, person_limits, longest):
        limits = units, row_limits, person_limits, longest
        if limits == self.limits:  # as of most sums, of the sum before
            return
        self.limits = None
        self.step.unit_p, self.step.unit_r = units
        self.squared_clip = (row_limits[0] / units[1]) ** 2
        self.step.row_length, self.step.person_length = row_limits[0], person_limits[0]
        self.step.row_bound_high, self.step.row_bound_low = divmod(row_limits[1], _WORD)
        self.step.person_bound_high, self.step.person_bound_low = divmod(person_limits[1], _WORD)
        longest = max(longest, math.isqrt(row_limits[1]) + 1)
        self.capacity = (_TOTAL_RANGE - 1) // longest
        # Rows in a lane are one in eight; a block more is added before the next look.
        self.most_in_lanes = (_EXACT_RANGE - 1) // longest * 8 - self.block_rows
        if self.most_in_lanes < 0 or person_limits[1] >= 1 << 126:
            raise OverflowError("the bounds of rows and people are too large to sum their parts exactly")
        self.limits = limits

    cdef object _room(self):
        return self.capacity - self.rows_in_totals

    def take(self):
        """Return the totals of products, of squared residuals (or None) and of people beyond, and begin anew."""
        taken = self.sums.copy(), self.sums_of_squares, self.n_beyond
        self.totals[:] = 0
        if self.sums_squares:
            self.squares = self.sums_of_squares = np.zeros(self.step.n_outcomes, np.int64)
        self.rows_in_totals = self.n_beyond = 0
        return taken

    cdef void _finish(self) noexcept nogil:
        dpfast_residual_flush(&self.step, &self.scratch, &self.totals[0, 0])
        self.rows_in_lanes = 0

    cdef void _add_rounded(self, Py_ssize_t n_rows) noexcept nogil:
        if self.rows_in_lanes > self.most_in_lanes:
            self._finish()
        dpfast_residual_add(self.level, &self.step, n_rows, &self.scratch)
        self.rows_in_lanes += self.block_rows
        self.rows_in_totals += n_rows

    cdef void _add_rows(self, Py_ssize_t n_rows) noexcept nogil:
        cdef Py_ssize_t row
        for row in range(n_rows):
            self.n_beyond += self.scratch.squared_p[row] * self.scratch.squared_r[row] > self.squared_clip
        if self.sums_squares:
            for row in range(n_rows):
                dpfast_residual_squares(&self.step, row, row + 1, &self.scratch)
                dpfast_residual_hold_squares(&self.step, &self.scratch, &self.squares[0])
        dpfast_residual_round(self.level, &self.step, n_rows, &self.scratch)
        if self.scratch.kept != NULL and not self.scratch.is_kept:
            dpfast_residual_keep(&self.step, &self.scratch)
            self.kept_rows[self.kept_block] = n_rows
        self._add_rounded(n_rows)

    cdef void _add_packed(self, const int64_t* offsets, Py_ssize_t n_people) noexcept nogil:
        cdef Py_ssize_t i
        dpfast_residual_round(self.level, &self.step, offsets[n_people] - offsets[0], &self.scratch)
        for i in range(n_people):
            self.n_beyond += dpfast_residual_hold(
                &self.step, offsets[i] - offsets[0], offsets[i + 1] - offsets[0], &self.scratch)
            if self.sums_squares:
                dpfast_residual_squares(
                    &self.step, offsets[i] - offsets[0], offsets[i + 1] - offsets[0], &self.scratch)
                dpfast_residual_hold_squares(&self.step, &self.scratch, &self.squares[0])
        self._add_rounded(offsets[n_people] - offsets[0])

    cdef int _add_long_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        self._finish()
        cdef int status = self._sum_person(x, y, start, stop, 1.0, self.sums_squares), i = 0
        cdef double factor = dpfast_residual_factor(&self.step, self.long_person)
        cdef Py_ssize_t j
        self.n_beyond += factor < 1.0
        while factor < 1.0 and status == 0:
            status = self._sum_person(x, y, start, stop, factor, False)
            if dpfast_residual_factor(&self.step, self.long_person) == 1.0:
                break
            factor *= 1.0 - ldexp(1.0, i - 50)
            i += 1
        if self.sums_squares:
            dpfast_residual_hold_squares(&self.step, &self.scratch, &self.squares[0])
        for j in range(self.size):
            (&self.totals[0, 0])[j] += self.long_person[j]
        self.rows_in_totals += stop - start
        return status

    cdef int _sum_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop, double factor,
            bint with_squares) noexcept nogil:
        """long_person = the sum over the rows start to stop, their r multiplied by the factor; lanes are empty."""
        cdef int status
        cdef Py_ssize_t n_rows, j
        for j in range(self.size):
            self.long_person[j] = 0
        while start < stop:
            n_rows = min(self.block_rows, stop - start)
            status = dpfast_residual_rows(self.level, &self.step, x, y, start, n_rows, &self.scratch)
            if status != 0:
                return status
            dpfast_residual_round(self.level, &self.step, n_rows, &self.scratch)
            if with_squares:
                dpfast_residual_squares(&self.step, 0, n_rows, &self.scratch)
            if factor < 1.0:
                dpfast_residual_round_again(&self.step, 0, n_rows, factor, &self.scratch)
            dpfast_residual_add(self.level, &self.step, n_rows, &self.scratch)
            dpfast_residual_flush(&self.step, &self.scratch, self.long_person)
            start += n_rows
        return 0


cdef class ResidualSizes(ResidualRows):
    """Counts of people by the exponent of the squared norm of their part.

    Parameters
    ----------
    first, last : int
        The bins: squared norms below 2**first; [2**j, 2**(j + 1)) for j from first to last - 1; from 2**last on.
    """

    cdef int64_t[::1] counts

    def __init__(self, map_x, map_y, theta, whitening, has_constant, link="identity", longest=math.inf,
                 smoothing=(1.0, 1.0), beyond=0.0, *, Py_ssize_t first, Py_ssize_t last, int level=-1):
        super().__init__(map_x, map_y, theta, whitening, has_constant, link, longest, smoothing, beyond, level=level)
        self.step.first_bin, self.step.n_bins = first, last - first + 2
        self.counts = np.zeros(self.step.n_bins, np.int64)
        self.scratch.outer = self._doubles(self.step.n_products * self.step.n_outcomes)

    def take(self):
        """Return the counts, and begin anew."""
        taken = np.array(self.counts)
        self.counts[:] = 0
        return taken

    cdef void _add_rows(self, Py_ssize_t n_rows) noexcept nogil:
        dpfast_residual_count_rows(&self.step, n_rows, &self.scratch, &self.counts[0])

    cdef void _add_packed(self, const int64_t* offsets, Py_ssize_t n_people) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n_people):
            # People without rows do not count, wherever they come.
            if offsets[i + 1] > offsets[i]:
                dpfast_residual_outer(&self.step, offsets[i] - offsets[0], offsets[i + 1] - offsets[0], &self.scratch)
                dpfast_residual_count_outer(&self.step, &self.scratch, &self.counts[0])

    cdef int _add_long_person(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        cdef int status
        cdef Py_ssize_t n_rows
        while start < stop:
            n_rows = min(self.block_rows, stop - start)
            status = dpfast_residual_rows(self.level, &self.step, x, y, start, n_rows, &self.scratch)
            if status != 0:
                return status
            dpfast_residual_outer(&self.step, 0, n_rows, &self.scratch)
            start += n_rows
        dpfast_residual_count_outer(&self.step, &self.scratch, &self.counts[0])
        return 0
