"""Exact sums of products of bounded, grid-rounded rows: the Cython side of gram.c, whose comment gives the design, and of
lane_gram.c, which sums narrow rows.

A `GramSums` belongs to one thread. `add` packs rows of zero-copy views block by block, releases the GIL, and adds the
block's integer products to 64-bit totals. `GramTotals.take` moves those into two-limb 128-bit ones. Two bounds make every step exact, and both are checked here: a block's partial sums stay below 2^53, the 64-bit
totals below 2^62.

Products are formed in a register tile, or by BLAS (dsyrk and dgemm, beta = 1, into a block of doubles); either is
exact, so the choice is one of speed and belongs to the caller. The caller has validated dtypes (native, aligned
float64 or float32), shapes and row indices, and must keep the arrays, or ColumnBlocks, alive and unchanged.
"""

import numpy as np

from dpfast.kernels.columns import ColumnBlock

cimport cython
from libc.stdint cimport int64_t, uint64_t

from dpfast.kernels._c cimport (
    dpfast_add_block,
    dpfast_add_columns,
    dpfast_add_lanes,
    dpfast_add_products,
    dpfast_lane_products,
    dpfast_pack_lanes,
    dpfast_pack_rows,
    dpfast_panel_width,
    dpfast_take_lanes,
)

from dpfast.kernels.blas cimport import_products
from dpfast.kernels.limbs cimport limbs_to_double

cdef extern from "cpu.h":
    int dpfast_resolve_level(int requested) nogil

BASELINE = 0  # the level of portable code: no wide vectors

# Statuses of GramSums.add.
PACKED = 0
X_NOT_FINITE = 1
Y_NOT_FINITE = 2

# Beyond so many columns sums by lane leave the first-level cache, and what gram.c does is faster.
_MOST_COLUMNS_IN_LANES = 32

# A row's squared norm times the rows summed in doubles, and times those in the 64-bit totals, stay below these.
_DOUBLE_RANGE = 1 << 53
_TOTAL_RANGE = 1 << 62


def cpu_level():
    """The vector instructions in use (cpu.h): 0 baseline, 1 AVX2, 2 AVX-512."""
    return dpfast_resolve_level(-1)


def aligned_zeros(n_words, dtype=np.float64):
    """Zeros of an 8-byte type that start on a cache line, as one of any eight consecutive words does."""
    words = np.zeros(n_words + 8, dtype)
    cdef const uint64_t[::1] addressed = words.view(np.uint64)  # a twentieth of the time of words.ctypes
    cdef size_t skipped = (64 - <size_t> &addressed[0] % 64) % 64 // 8
    return words[skipped : skipped + n_words]


cdef dpfast_table describe_table(object array, const int64_t[::1] rows):
    """Where the rows of a non-empty float64 or float32 array, or ColumnBlock, lie."""
    cdef const double[:, :] doubles
    cdef const float[:, :] floats
    cdef const size_t[::1] addresses
    cdef dpfast_table table
    table.is_float32 = array.dtype.itemsize == 4
    table.columns = NULL
    if isinstance(array, ColumnBlock):
        addresses = array.addresses
        table.columns = <const char* const*>&addresses[0]
        table.data = table.columns[0]
        table.row_stride, table.column_stride = array.dtype.itemsize, 0
    elif table.is_float32:
        floats = array
        table.data = <const char*>&floats[0, 0]
        table.row_stride, table.column_stride = floats.strides[0], floats.strides[1]
    else:
        doubles = array
        table.data = <const char*>&doubles[0, 0]
        table.row_stride, table.column_stride = doubles.strides[0], doubles.strides[1]
    cdef Py_ssize_t last_row = array.shape[0] - 1, last_column = array.shape[1] - 1, item = array.dtype.itemsize
    table.end = NULL
    if table.columns == NULL and table.column_stride >= 0:
        table.end = table.data + max(0, last_row * table.row_stride) + last_column * table.column_stride + item
    table.rows = NULL
    if rows is not None:
        table.rows = &rows[0]
    return table


cdef class GramSums:
    """Integer sums over the rows one thread has seen; see the module's comment.

    Parameters
    ----------
    grid_x, grid_y : tuple of (n_columns, scale, bound, squared_bound)
        Columns of a table; grid units per unit of the table (a power of two); the length, in grid units, onto which
        longer rows are scaled; the integer bound on a packed row's squared length. ``n_columns`` of Y may be 0.
    block_rows : int
        Rows packed at a time; fewer if exactness needs it.
    use_blas : bool
        Whether BLAS forms the products.
    with_sums : bool
        Whether columns are summed too.
    cross_only : bool, default False
        Whether products within X are left out: the totals then lack them.
    level : int, default -1
        Vector instructions to use (cpu.h); -1 for the best there are.
    """

    def __init__(self, grid_x, grid_y, *, block_rows, use_blas, with_sums, cross_only=False, level=-1):
        self.x_grid.n_columns, self.x_grid.scale, self.x_grid.bound, self.x_grid.squared_bound = grid_x
        self.y_grid.n_columns, self.y_grid.scale, self.y_grid.bound, self.y_grid.squared_bound = grid_y
        squared_bound = max(int(grid_x[3]), int(grid_y[3]), 1)
        self.rows_per_block = (_DOUBLE_RANGE - 1) // squared_bound
        self.total_capacity = (_TOTAL_RANGE - 1) // squared_bound
        if self.rows_per_block < 1:
            raise OverflowError("the squared bound of a row must stay below 2**53 grid units")
        self.block_rows = min(block_rows, self.rows_per_block)
        self.level = dpfast_resolve_level(level)
        self.use_blas = use_blas
        if use_blas:
            self.blas = import_products()
        self.with_sums = with_sums
        self.first_product = self.x_grid.n_columns if cross_only else 0
        self._allocate()

    cdef _allocate(self):
        cdef Py_ssize_t n_columns = self.x_grid.n_columns + self.y_grid.n_columns
        cdef Py_ssize_t padded = (n_columns + 7) // 8 * 8
        # A row is written to every panel: an odd number of cache lines apart, or they would compete for one cache set.
        cdef Py_ssize_t panel_rows = self.block_rows | 1
        self.pack_buffer = aligned_zeros(panel_rows * padded)
        self.row_buffer = aligned_zeros(padded + 8)
        self.x_staging = np.empty(self.block_rows * self.x_grid.n_columns)
        self.y_staging = np.empty(self.block_rows * self.y_grid.n_columns + 1)
        self.block = np.empty(self.x_grid.n_columns * padded if self.use_blas else 1)
        padded_features = (self.x_grid.n_columns + 7) // 8 * 8
        self.products = aligned_zeros(padded_features * padded, np.int64).reshape(padded_features, padded)
        self.columns = np.zeros(padded, np.int64)
        self.pack.data = &self.pack_buffer[0]
        self.pack.panel_width = padded if self.use_blas else dpfast_panel_width(self.level)
        self.pack.panel_stride = panel_rows * self.pack.panel_width
        self.pack.n_columns = padded
        self.scratch.row = &self.row_buffer[0]
        self.scratch.x_staging = &self.x_staging[0]
        self.scratch.y_staging = &self.y_staging[0]
        self.has_lanes = not self.use_blas and n_columns <= _MOST_COLUMNS_IN_LANES
        if self.has_lanes:
            self._allocate_lanes(n_columns)

    cdef _allocate_lanes(self, Py_ssize_t n_columns):
        cdef Py_ssize_t padded = (n_columns + 7) // 8 * 8
        self.lane_rows = aligned_zeros((self.block_rows + 7) // 8 * 8 * n_columns)
        self.lane_group, self.lane_row = aligned_zeros(8 * padded), aligned_zeros(2 * padded)
        self.lane_products = aligned_zeros(dpfast_lane_products(self.x_grid.n_columns, n_columns))
        self.lane_columns = aligned_zeros(8 * n_columns)
        self.lanes.n_columns = n_columns
        self.lanes.rows, self.lanes.group = &self.lane_rows[0], &self.lane_group[0]
        self.lanes.row, self.lanes.rounded = &self.lane_row[0], &self.lane_row[padded]
        self.lanes.products = &self.lane_products[0]
        self.lanes.columns = &self.lane_columns[0] if self.with_sums else NULL

    def add(self, x, y, const int64_t[::1] rows, Py_ssize_t start, Py_ssize_t stop):
        """Add rows start to stop of x and y, or those named by rows[start:stop]; returns a status.

        After a status other than PACKED the sums hold a part of the rows and must be thrown away.
        """
        if stop <= start:
            return PACKED
        n_available = len(x) if rows is None else rows.shape[0]
        if start < 0 or stop > n_available or (y is not None and len(y) != len(x)):
            raise IndexError("start and stop must lie within the rows, of which x and y have as many")
        if self.rows_in_totals + (stop - start) > self.total_capacity:
            raise OverflowError("the 64-bit totals are full: take them first")
        cdef dpfast_table x_table = describe_table(x, rows), y_table = x_table
        if self.y_grid.n_columns > 0:
            y_table = describe_table(y, rows)
        cdef int status
        with nogil:
            status = self.add_rows(&x_table, &y_table, start, stop)
        return status

    cdef int add_rows(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        cdef int status = 0
        cdef Py_ssize_t n_rows
        if self.has_lanes:
            return self._add_to_lanes(x, y, start, stop)
        while start < stop and status == 0:
            n_rows = min(self.block_rows, stop - start)
            status = dpfast_pack_rows(
                self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, stop - start, NULL, &self.scratch,
                &self.pack)
            if status == 0:
                self._add_block(n_rows)
            start += n_rows
        return status

    cdef int _add_to_lanes(
            self, const dpfast_table* x, const dpfast_table* y, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        cdef int status = 0, refused
        cdef Py_ssize_t n_rows, rows_a_lane, width = dpfast_panel_width(self.level)
        while start < stop and status == 0:
            n_rows = min(self.block_rows, stop - start)
            rows_a_lane = (n_rows + width - 1) // width
            if self.rows_in_a_lane + rows_a_lane > self.rows_per_block:
                self._flush_lanes()
            status = dpfast_pack_lanes(self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, &self.lanes)
            if status != 0:
                # The first row that is not finite says which table is named, whatever the size of blocks.
                refused = dpfast_pack_rows(
                    self.level, x, &self.x_grid, y, &self.y_grid, start, n_rows, n_rows, NULL, &self.scratch,
                    &self.pack)
                status = refused if refused != 0 else status
            start += n_rows
            if status == 0:
                dpfast_add_lanes(
                    self.level, &self.lanes, n_rows, self.x_grid.n_columns, self.first_product, x, y, start,
                    min(self.block_rows, stop - start))
                self.rows_in_a_lane += rows_a_lane
                self.rows_in_totals += n_rows
        return status

    cdef void _flush_lanes(self) noexcept nogil:
        """Move the sums by lane to the 64-bit totals."""
        if self.rows_in_a_lane > 0:
            dpfast_take_lanes(
                self.level, &self.lanes, self.x_grid.n_columns, self.first_product, self.pack.n_columns,
                &self.products[0, 0], &self.columns[0])
        self.rows_in_a_lane = 0

    cdef void _add_block(self, Py_ssize_t n_rows) noexcept nogil:
        if self.with_sums:
            dpfast_add_columns(&self.pack, n_rows, &self.columns[0])
        if self.use_blas:
            self._add_block_by_blas(n_rows)
        else:
            dpfast_add_products(
                self.level, &self.pack, n_rows, self.x_grid.n_columns, self.first_product, &self.products[0, 0])
        self.rows_in_totals += n_rows

    cdef void _add_block_by_blas(self, Py_ssize_t n_rows) noexcept nogil:
        cdef Py_ssize_t d = self.x_grid.n_columns, stride = self.pack.n_columns
        if self.rows_in_block + n_rows > self.rows_per_block:
            self._flush_block()
        cdef double beta = 1.0 if self.rows_in_block > 0 else 0.0
        if self.first_product == 0:
            self.blas.add_syrk_upper(self.pack.data, n_rows, d, stride, beta, &self.block[0], stride)
        if self.y_grid.n_columns > 0:
            self.blas.add_gemm_transposed(
                self.pack.data, n_rows, d, stride, self.pack.data + d, self.y_grid.n_columns, stride,
                beta, &self.block[d], stride)
        self.rows_in_block += n_rows

    cdef void _flush_block(self) noexcept nogil:
        if self.rows_in_block > 0:
            dpfast_add_block(
                &self.block[0], self.x_grid.n_columns, self.first_product,
                self.x_grid.n_columns + self.y_grid.n_columns, self.pack.n_columns, &self.products[0, 0])
        self.rows_in_block = 0

    @property
    def capacity(self):
        """Rows that may still be added before the totals must be taken."""
        return self.total_capacity - self.rows_in_totals

    cdef void _move_to(self, GramTotals totals) noexcept nogil:
        cdef Py_ssize_t i, j, n = self.x_grid.n_columns + self.y_grid.n_columns
        self._flush_block()
        self._flush_lanes()
        for i in range(self.x_grid.n_columns):
            for j in range(max(i, self.first_product), n):
                _add_wide(self.products[i, j], &totals.product_high[i, j], &totals.product_low[i, j])
                self.products[i, j] = 0
        for j in range(n):
            _add_wide(self.columns[j], &totals.column_high[j], &totals.column_low[j])
            self.columns[j] = 0
        self.rows_in_totals = 0


cdef inline void _add_wide(int64_t value, int64_t* high, uint64_t* low) noexcept nogil:
    """Add a word to a two-limb number: sign-extend, add, carry."""
    low[0] += <uint64_t>value
    high[0] += (-1 if value < 0 else 0) + (1 if low[0] < <uint64_t>value else 0)


cdef inline void _add_limbs(int64_t other_high, uint64_t other_low, int64_t* high, uint64_t* low) noexcept nogil:
    low[0] += other_low
    high[0] += other_high + (1 if low[0] < other_low else 0)


cdef class GramTotals:
    """Two-limb 128-bit totals: products (n_x, n_x + n_y), of which only j >= i are used, and columns (n_x + n_y,).

    `take` and `add` are single calls, which hold the GIL or else the object's own lock: an interrupt, and another thread
    that reads, come before or after them, never halfway. They fail before they change anything, or not at all.

    Parameters
    ----------
    n_x, n_y : int
        Columns of the two tables.
    squared_bound : int
        Largest squared length of a row, in grid units: 128 bits hold 2**127 / squared_bound rows.
    """

    def __init__(self, Py_ssize_t n_x, Py_ssize_t n_y, squared_bound):
        self.n_x, self.n_y = n_x, n_y
        self.squared_bound = squared_bound
        self.n_rows = 0
        self.product_high = np.zeros((n_x, n_x + n_y), np.int64)
        self.product_low = np.zeros((n_x, n_x + n_y), np.uint64)
        self.column_high = np.zeros(n_x + n_y, np.int64)
        self.column_low = np.zeros(n_x + n_y, np.uint64)

    cdef _n_rows_with(self, n_more):
        n_rows = self.n_rows + n_more
        if n_rows * self.squared_bound >= 1 << 127:
            raise OverflowError("the sums of so many rows do not fit 128 bits")
        return n_rows

    @cython.critical_section
    def take(self, list parts not None):
        """Move what the threads' GramSums hold here."""
        cdef GramSums part
        n_rows = self._n_rows_with(sum([(<GramSums?>part).rows_in_totals for part in parts]))
        for part in parts:
            part._move_to(self)
        self.n_rows = n_rows

    def add(self, GramTotals other not None):
        """Add the totals of other rows, of the same shape."""
        if (other.n_x, other.n_y) != (self.n_x, self.n_y):
            raise ValueError("totals of different shapes")
        with cython.critical_section(self, other):
            n_rows = self._n_rows_with(other.n_rows)
            self._add(other)
            self.n_rows = n_rows

    cdef void _add(self, GramTotals other) noexcept:
        cdef Py_ssize_t i, j
        for i in range(self.n_x):
            for j in range(i, self.n_x + self.n_y):
                _add_limbs(
                    other.product_high[i, j], other.product_low[i, j], &self.product_high[i, j],
                    &self.product_low[i, j])
        for j in range(self.n_x + self.n_y):
            _add_limbs(other.column_high[j], other.column_low[j], &self.column_high[j], &self.column_low[j])

    def copy(self):
        """Independent totals of the same rows."""
        result = GramTotals(self.n_x, self.n_y, self.squared_bound)
        result.add(self)
        return result

    def symmetric(self):
        """Both limbs of the products within the first table, (n_x, n_x), the lower triangle filled in."""
        high, low = np.empty((self.n_x, self.n_x), np.int64), np.empty((self.n_x, self.n_x), np.uint64)
        cdef int64_t[:, ::1] full_high = high
        cdef uint64_t[:, ::1] full_low = low
        cdef Py_ssize_t i, j
        for i in range(self.n_x):
            for j in range(i, self.n_x):
                full_high[i, j] = full_high[j, i] = self.product_high[i, j]
                full_low[i, j] = full_low[j, i] = self.product_low[i, j]
        return high, low

    def symmetric_as_float64(self, double unit):
        """The products within the first table in units of 1/`unit`, a power of two, each rounded once."""
        values = np.empty((self.n_x, self.n_x))
        cdef double[:, ::1] out = values
        cdef Py_ssize_t i, j, i_start, j_start
        with nogil:
            # Square tiles, so that the writes below the diagonal stay within a few cache lines.
            for i_start in range(0, self.n_x, 16):
                for j_start in range(i_start, self.n_x, 16):
                    for i in range(i_start, min(i_start + 16, self.n_x)):
                        for j in range(max(i, j_start), min(j_start + 16, self.n_x)):
                            out[i, j] = out[j, i] = unit * limbs_to_double(
                                self.product_high[i, j], self.product_low[i, j])
        return values

    def equals(self, GramTotals other not None):
        """Whether both hold the same totals of the same number of rows."""
        if (self.n_x, self.n_y, self.n_rows) != (other.n_x, other.n_y, other.n_rows):
            return False
        cdef Py_ssize_t i, j
        for i in range(self.n_x):
            for j in range(i, self.n_x + self.n_y):
                if (self.product_high[i, j] != other.product_high[i, j]
                        or self.product_low[i, j] != other.product_low[i, j]):
                    return False
        return (
            np.array_equal(self.column_high, other.column_high) and np.array_equal(self.column_low, other.column_low))

    def cross(self):
        """Both limbs of the products between the tables, (n_x, n_y)."""
        return np.array(self.product_high[:, self.n_x :]), np.array(self.product_low[:, self.n_x :])

    def columns(self):
        """Both limbs of the column sums, (n_x + n_y,)."""
        return np.array(self.column_high), np.array(self.column_low)

    def __reduce__(self):
        return restore_totals, (
            self.n_x, self.n_y, self.squared_bound, self.n_rows, np.asarray(self.product_high),
            np.asarray(self.product_low), np.asarray(self.column_high), np.asarray(self.column_low))


def restore_totals(n_x, n_y, squared_bound, n_rows, product_high, product_low, column_high, column_low):
    """GramTotals that hold these limbs, not copied."""
    cdef GramTotals totals = GramTotals.__new__(GramTotals)
    totals.n_x, totals.n_y = n_x, n_y
    totals.squared_bound, totals.n_rows = squared_bound, n_rows
    totals.product_high, totals.product_low = product_high, product_low
    totals.column_high, totals.column_low = column_high, column_low
    return totals
