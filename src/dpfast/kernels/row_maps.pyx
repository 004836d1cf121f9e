"""Public maps of rows, and exact sums of rows that are mapped."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from dpfast.kernels._c cimport dpfast_map_coded_rows, dpfast_map_rows, dpfast_map_scratch, dpfast_table, find_codes

from dpfast.kernels.gram cimport GramSums, describe_table

# Public maps of rows: the arrays around row_map.c, whose comment gives the design.
#
# float64 or float32 arrays of any strides, or ColumnBlocks, in; no GIL, so threads may map ranges of rows. The caller has
# validated dtypes (native, aligned), finite public numbers, and a bound of 2**-1022 at least.

cdef extern from "cpu.h":
    int dpfast_resolve_level(int requested) nogil

cdef extern from "row_map.h":
    enum:
        DPFAST_MOST_TOGETHER

cdef enum:
    # Doubles that are staged at a time, and at most so many rows: they stay in the cache.
    STAGED_DOUBLES = 32768
    STAGED_ROWS = 64

# Rows are mapped together up to so many entries: beyond, a row alone keeps vectors busy.
_ENTRIES_TOGETHER = 256


cdef class RowMapKernel:
    """What is done to rows of so many columns; see `dpfast.statistics.rows.RowMap` for the parameters."""

    def __init__(self, Py_ssize_t n_columns, *, low=None, high=None, double bound=np.inf, top=None, center=None,
                 scale=None, basis=None, double offset=0.0, double unit=1.0, bint fills=False, int level=-1):
        if n_columns < 1 or (top is not None and not 1 <= top <= n_columns):
            raise ValueError("there must be columns, and top must be one of their numbers")
        self.map.n_columns = self.map.n_features = n_columns
        self.map.n_together = max(1, min(DPFAST_MOST_TOGETHER, _ENTRIES_TOGETHER // n_columns))
        self.map.top = n_columns if top is None else top
        self.map.bound, self.map.offset, self.map.unit, self.map.fills = bound, offset, unit, fills
        self.map.low = self.map.high = self.map.center = self.map.inverse_scale = self.map.basis = NULL
        if low is not None:
            self.low, self.high = self._repeated(low), self._repeated(high)
            self.map.low, self.map.high = &self.low[0], &self.high[0]
        if center is not None:
            self.center = self._repeated(center)
            self.map.center = &self.center[0]
        if scale is not None:
            self.inverse_scale = self._repeated(1.0 / scale)
            self.map.inverse_scale = &self.inverse_scale[0]
        if basis is not None:
            if basis.ndim != 2 or basis.shape[0] != n_columns or basis.shape[1] < 1:
                raise ValueError("a basis must have one row for each column")
            self.map.n_features = basis.shape[1]
            self.map.basis_stride = (basis.shape[1] + 7) // 8 * 8
            padded = np.zeros((n_columns, self.map.basis_stride))
            padded[:, :basis.shape[1]] = basis
            self.basis = padded
            self.map.basis = &self.basis[0, 0]
        self.level = dpfast_resolve_level(level)

    def _repeated(self, values):
        """A row's worth of numbers for each of the rows that are mapped together."""
        whole = np.empty((self.map.n_together, self.map.n_columns))
        whole[:] = values
        return whole.ravel()

    @property
    def n_features(self):
        """Columns of what comes out."""
        return self.map.n_features

    def map_rows(self, rows, double[:, :] out, Py_ssize_t start, Py_ssize_t stop):
        """Map rows start to stop into those of `out`; returns whether all were finite, else they become NaN."""
        if not 0 <= start <= stop <= min(len(rows), out.shape[0]):
            raise IndexError("start and stop must lie within the rows, and as many be there to take them")
        if rows.shape[1] != self.map.n_columns or out.shape[1] != self.map.n_features:
            raise ValueError("rows have other numbers of columns than the map")
        if out.shape[1] > 1 and out.strides[1] != sizeof(double):
            raise ValueError("entries of a row of `out` must be adjacent")
        if start == stop:
            return True
        cdef dpfast_table table = describe_table(rows, None)
        cdef double[::1] workspace = np.empty(self.workspace())
        cdef bint all_finite
        with nogil:
            all_finite = self.map_table(
                &table, start, stop, &workspace[0], &out[start, 0], out.strides[0] // <Py_ssize_t>sizeof(double))
        return all_finite

    cdef Py_ssize_t workspace(self) noexcept nogil:
        """Return how many doubles `map_table` needs to work in."""
        return (self._staged_rows() + self.map.n_together + 1) * self.map.n_columns + 7

    cdef bint map_table(
            self, const dpfast_table* table, Py_ssize_t start, Py_ssize_t stop, double* workspace, double* out,
            Py_ssize_t out_stride) noexcept nogil:
        """Map rows start to stop, at least one, to rows of `out` so many doubles apart; returns whether all were finite."""
        cdef dpfast_map_scratch scratch
        scratch.block_rows = self._staged_rows()
        scratch.staging = workspace
        scratch.rows = scratch.staging + scratch.block_rows * self.map.n_columns
        scratch.sizes = scratch.rows + self.map.n_together * self.map.n_columns
        return dpfast_map_rows(self.level, &self.map, table, start, stop, &scratch, out, out_stride)

    cdef Py_ssize_t _staged_rows(self) noexcept nogil:
        return max(1, min(STAGED_ROWS, STAGED_DOUBLES // self.map.n_columns))


cdef class CodedMapKernel:
    """A map with a basis, of rows with codes: `dpfast.statistics.rows.CodedTables` has the parameters. Of one thread."""

    def __init__(self, RowMapKernel map_numbers, levels, double bound, double squared_absent, slot_squares, center,
                 inverse_scale, of_numbers, of_slots, absent, constant, *, Py_ssize_t block_rows=STAGED_ROWS, int level=-1):
        sizes = np.array(levels, np.intp) + 1
        stride = len(absent)
        if (stride % 16 != 0 or np.shape(of_slots) != (sizes.sum(), stride) or len(slot_squares) != sizes.sum()
                or len(constant) != stride or np.shape(of_numbers) != (len(center), stride)
                or len(center) != len(inverse_scale) or (map_numbers is None) != (len(center) == 0)
                or (map_numbers is not None and map_numbers.n_features != len(center))):
            raise ValueError("tables have other shapes than their layout")
        self.level, self.block_rows, self.map_numbers = dpfast_resolve_level(level), block_rows, map_numbers
        self.n_levels, self.first_slots = np.array(levels, np.intp), np.cumsum(sizes) - sizes
        self.slot_squares, self.absent, self.constant = slot_squares, absent, constant
        self.center, self.inverse_scale = center, inverse_scale
        self.of_numbers, self.of_slots, self.slots = of_numbers, of_slots, np.zeros(len(sizes), np.uintp)
        self.map.n_numbers, self.map.n_categories = len(center), len(sizes)
        self.map.bound, self.map.squared_absent, self.map.stride = bound, squared_absent, stride
        self.map.slot_squares, self.map.absent = &self.slot_squares[0], &self.absent[0]
        self.map.constant, self.map.of_slots = &self.constant[0], &self.of_slots[0, 0]
        self.map.n_levels, self.map.first_slots = &self.n_levels[0], &self.first_slots[0]
        self.scratch.slots = <const double**>&self.slots[0]
        cdef Py_ssize_t n_numbers = self.map.n_numbers
        if map_numbers is None:
            return
        self.map.map_numbers, self.map.of_numbers = &map_numbers.map, &self.of_numbers[0, 0]
        self.map.center, self.map.inverse_scale = &self.center[0], &self.inverse_scale[0]
        self.workspace = np.empty((2 * block_rows + map_numbers.map.n_together + 1) * n_numbers + 7)
        self.scratch.numbers.block_rows, self.scratch.rows = block_rows, &self.workspace[0]
        self.scratch.numbers.staging = self.scratch.rows + block_rows * n_numbers
        self.scratch.numbers.rows = self.scratch.numbers.staging + block_rows * n_numbers
        self.scratch.numbers.sizes = self.scratch.numbers.rows + map_numbers.map.n_together * n_numbers

    cdef size_t[::1] addresses(self, numbers, list codes):
        """Where each category's codes begin, of which there must be one a row."""
        if len(codes) != self.map.n_categories or numbers.shape[1] != self.map.n_numbers:
            raise ValueError("rows are of another layout than their tables")
        cdef size_t[::1] found = np.empty(self.map.n_categories, np.uintp)
        find_codes(codes, len(numbers), found)
        return found

    def map_rows(self, numbers, list codes, double[:, ::1] out):
        """Map all rows to the first of `out`; returns whether all were finite, else they become NaN."""
        cdef size_t[::1] addresses = self.addresses(numbers, codes)
        cdef Py_ssize_t start = 0, stop = len(numbers), n_rows
        if out.shape[1] != self.map.stride or out.shape[0] < stop:
            raise ValueError("out has no room for the rows, or another number of columns than their tables")
        if stop == 0:
            return True
        cdef dpfast_table table
        if self.map.n_numbers > 0:
            table = describe_table(numbers, None)
        cdef bint all_finite = True
        with nogil:
            while start < stop:
                n_rows = min(self.block_rows, stop - start)
                all_finite &= dpfast_map_coded_rows(
                    self.level, &self.map, &table, <const int32_t* const*>&addresses[0], start, n_rows, &self.scratch,
                    &out[start, 0])
                start += n_rows
        return all_finite


# Rows through public maps into exact sums: what row_maps.pyx and gram.pyx do, a pack at a time, so that mapped rows stay in
# the cache and nobody takes the GIL between them.
#
# The bits are those of the maps and of the sums, whatever lies in a pack: a row's image depends on that row alone, and sums
# are exact. The caller has validated dtypes (native, aligned float64 or float32), shapes and row indices.

cdef class _Room:
    """Where mapped rows of one table lie, and what the map works in."""

    cdef RowMapKernel kernel
    cdef Py_ssize_t n_columns
    cdef double[::1] rows, workspace
    cdef dpfast_table source, mapped

    def __init__(self, RowMapKernel kernel not None, table, const int64_t[::1] rows, Py_ssize_t block_rows):
        self.kernel, self.n_columns = kernel, kernel.n_features
        self.rows, self.workspace = np.empty(block_rows * self.n_columns), np.empty(kernel.workspace())
        self.source = describe_table(table, rows)
        memset(&self.mapped, 0, sizeof(self.mapped))
        self.mapped.data = <const char*>&self.rows[0]
        self.mapped.end = self.mapped.data + self.rows.shape[0] * sizeof(double)
        self.mapped.row_stride, self.mapped.column_stride = self.n_columns * sizeof(double), sizeof(double)

    cdef void map_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Map rows to the first of the room; those that are not finite become NaN, which sums refuse."""
        self.kernel.map_table(&self.source, start, stop, &self.workspace[0], &self.rows[0], self.n_columns)


def add_mapped(
        GramSums sums not None, RowMapKernel map_x not None, RowMapKernel map_y, x, y, const int64_t[::1] rows,
        Py_ssize_t start, Py_ssize_t stop):
    """Add rows start to stop of x and y, or those named by rows[start:stop], mapped; returns a status.

    After a status other than PACKED the sums hold a part of the rows and must be thrown away.
    """
    if (map_y is None) != (y is None) or (map_y is None) != (sums.y_grid.n_columns == 0):
        raise ValueError("y and its map go with sums of outcomes")
    if (x.shape[1], map_x.n_features) != (map_x.map.n_columns, sums.x_grid.n_columns):
        raise ValueError("x has other columns than its map takes, or the map others than are summed")
    if y is not None and (y.shape[1], map_y.n_features) != (map_y.map.n_columns, sums.y_grid.n_columns):
        raise ValueError("y has other columns than its map takes, or the map others than are summed")
    if stop <= start:
        return 0
    if start < 0 or stop > (len(x) if rows is None else rows.shape[0]) or (y is not None and len(y) != len(x)):
        raise IndexError("start and stop must lie within the rows, of which x and y have as many")
    if sums.rows_in_totals + (stop - start) > sums.total_capacity:
        raise OverflowError("the 64-bit totals are full: take them first")
    cdef _Room x_room = _Room(map_x, x, rows, sums.block_rows), y_room = x_room
    cdef bint has_outcomes = y is not None
    if has_outcomes:
        y_room = _Room(map_y, y, rows, sums.block_rows)
    cdef Py_ssize_t n_rows
    cdef int status = 0
    with nogil:
        while start < stop and status == 0:
            n_rows = min(sums.block_rows, stop - start)
            x_room.map_rows(start, start + n_rows)
            if has_outcomes:
                y_room.map_rows(start, start + n_rows)
            status = sums.add_rows(&x_room.mapped, &y_room.mapped, 0, n_rows)
            start += n_rows
    return status
