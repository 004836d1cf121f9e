"""What kernels read and write: rows of a table with separate columns, and arrays of exact 128-bit fixed-point numbers.

*Rows* with separate columns, as in Arrow, are a zero-copy view, so no row-major copy need be made.

*Sums* of grid-rounded rows are kept in fixed point. An element is the integer ``high * 2**64 + low`` (two's complement,
``high`` signed and ``low`` unsigned) times the public power of two ``2**exponent``. Sums over 1e9 rows on a grid of
2**-22 need 75 bits, so 64 do not suffice, and a floating-point total would depend on the order of the additions, which
would leave a gap in every sensitivity bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpfast.kernels import limbs


class _Block:
    """Rows that are kept otherwise than in one array."""

    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.shape[1]} columns: not private>"


class ColumnBlock(_Block):
    """Columns of equal length, and their addresses, for kernels that read them in place.

    Not private.

    At least one column, copied where they are not native, contiguous, aligned numbers of `dtype`, float64 or float32.
    They must not change.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.kernels.columns import ColumnBlock
    >>> block = ColumnBlock([np.zeros(3), np.arange(3)])
    >>> block.shape, np.asarray(block[1:]).tolist()
    ((3, 2), [[0.0, 1.0], [0.0, 2.0]])
    """

    def __init__(self, columns: Iterable[NDArray[Any]], dtype: DTypeLike = np.float64) -> None:
        self.dtype = np.dtype(dtype)
        self.columns = [in_c_order(column, self.dtype) for column in columns]
        if any(column.shape != self.columns[0].shape[:1] for column in self.columns):
            raise ValueError("columns must be 1-D and of one length")
        self.addresses = np.array([column.__array_interface__["data"][0] for column in self.columns], np.uintp)
        self.shape = len(self.columns[0]), len(self.columns)

    def __getitem__(self, rows: slice | NDArray[Any]) -> ColumnBlock:
        """Return some of the rows; of a slice of them, without a copy."""
        columns = [column[rows] for column in self.columns]
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return ColumnBlock(columns, self.dtype)
        # Many small pieces of a block are read: the columns need no second look.
        part = ColumnBlock.__new__(ColumnBlock)
        part.dtype = self.dtype
        start, _, _ = rows.indices(len(self))
        part.columns, part.addresses = columns, self.addresses + np.uintp(start * self.dtype.itemsize)
        part.shape = len(columns[0]), len(columns)
        return part

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Copy to a column-major array."""
        array = np.empty(self.shape, self.dtype if dtype is None else dtype, order="F")
        for column, values in zip(array.T, self.columns, strict=True):
            column[...] = values
        return array


@dataclass(frozen=True)
class CodeLayout:
    """Addresses of the columns of rows, with some columns as indicators of categories, one a level."""

    n_columns: int
    #: Of numbers, ascending.
    places: tuple[int, ...]
    #: Of each category's first indicator, ascending, and how many there are: they are adjacent.
    firsts: tuple[int, ...]
    levels: tuple[int, ...]

    @property
    def indicators(self) -> list[int]:
        """Columns of indicators."""
        return [first + i for first, n in zip(self.firsts, self.levels, strict=True) for i in range(n)]


def _codes_of(column: NDArray[Any]) -> NDArray[np.int32]:
    """Return places as they are read: those of no level stay so."""
    if column.dtype.itemsize > 4:
        column = np.where((column >= 0) & (column < 2**31), column, -1)
    return in_c_order(column, np.int32)


class CodedBlock(_Block):
    """Numbers, and categories as codes: places among the indicators of their levels, other integers for none of them.

    It represents columns of numbers and of indicators, and becomes them as an array. Code that supports categories
    reads the codes, everything else the array. Not private. It must not change.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.kernels.columns import CodeLayout, CodedBlock, ColumnBlock
    >>> layout = CodeLayout(3, places=(0,), firsts=(1,), levels=(2,))
    >>> block = CodedBlock(ColumnBlock([np.array([0.5, 1.5])]), [np.array([1, -1])], layout)
    >>> np.asarray(block).tolist()
    [[0.5, 0.0, 1.0], [1.5, 0.0, 0.0]]
    """

    def __init__(self, numbers: NDArray[Any] | ColumnBlock, codes: Sequence[NDArray[Any]], layout: CodeLayout) -> None:
        self.dtype = np.dtype(np.float64)
        self.numbers, self.layout = numbers, layout
        self.codes = [_codes_of(column) for column in codes]
        self.shape = len(self.codes[0]), layout.n_columns
        if numbers.shape != (len(self), len(layout.places)) or any(len(one) != len(self) for one in self.codes):
            raise ValueError("numbers and codes must have one length, and as many columns as their layout")

    @property
    def columns(self) -> list[NDArray[Any]]:
        """What is kept of the rows."""
        return [*(self.numbers.columns if isinstance(self.numbers, ColumnBlock) else self.numbers.T), *self.codes]

    def __getitem__(self, rows: slice | NDArray[Any]) -> CodedBlock:
        """Return some of the rows; of a slice of them, without a copy."""
        return CodedBlock(self.numbers[rows], [one[rows] for one in self.codes], self.layout)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Copy to a column-major array, with a column an indicator."""
        array = np.zeros(self.shape, self.dtype if dtype is None else dtype, order="F")
        array[:, list(self.layout.places)] = np.asarray(self.numbers)
        for first, n_levels, codes in zip(self.layout.firsts, self.layout.levels, self.codes, strict=True):
            (rows,) = np.nonzero((codes >= 0) & (codes < n_levels))
            array[rows, first + codes[rows]] = 1.0
        return array


def _is_narrow(indices: NDArray[Any]) -> bool:
    return indices.dtype == np.int32 and indices.flags.c_contiguous and indices.flags.aligned


class SparseBlock(_Block):
    """Rows by their entries, as scipy's CSR matrices hold them: where each row begins, its columns and its values.

    The value of a cell is the sum of its entries in the stored order. It represents rows, and becomes them as an array.
    Code that supports entries reads the entries, everything else the array. Arrays belong to the caller, who may change
    them, and are checked when they are read. Not private.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.kernels.columns import SparseBlock
    >>> block = SparseBlock(np.array([0, 1, 3]), np.array([2, 0, 1]), np.array([0.5, 1.5, 2.5]), 3)
    >>> np.asarray(block).tolist(), np.asarray(block[1:]).tolist()
    ([[0.0, 0.0, 0.5], [1.5, 2.5, 0.0]], [[1.5, 2.5, 0.0]])
    """

    def __init__(self, indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], n_columns: int) -> None:
        self.indptr = np.asarray(indptr, np.int64)
        self.indices = indices if _is_narrow(indices) else in_c_order(indices, np.int64)
        self.data = data
        self.dtype = data.dtype
        self.shape = len(self.indptr) - 1, n_columns

    @property
    def columns(self) -> list[NDArray[Any]]:
        """What is kept of the rows."""
        stored = slice(int(self.indptr[0]), int(self.indptr[-1]))
        return [np.diff(self.indptr), self.indices[stored], self.data[stored]]

    def __getitem__(self, rows: slice | NDArray[Any]) -> SparseBlock:
        """Return some of the rows; of a slice of them, without a copy of their entries."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            return SparseBlock(self.indptr[start : max(start, stop) + 1], self.indices, self.data, self.shape[1])
        starts, lengths = self.indptr[:-1][rows], np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
        return SparseBlock(indptr, self.indices[entries], self.data[entries], self.shape[1])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Copy to a row-major array; ValueError if an index lies outside of it."""
        # scipy believes a matrix.
        own = self._checked_copy()
        parts = own.data, own.indices, own.indptr
        array: NDArray[Any] = import_module("scipy.sparse").csr_array(parts, self.shape).toarray()
        return array if dtype is None else array.astype(dtype, copy=False)

    def _checked_copy(self) -> SparseBlock:
        """Return the rows, their columns checked, and nobody else's to change."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        own = SparseBlock(self.indptr - first, self.indices[first:last].copy(), self.data[first:last], self.shape[1])
        if not len(own.indices) == len(own.data) == last - first or np.any(own.indptr[1:] < own.indptr[:-1]):
            raise ValueError("parts of a sparse matrix do not fit together")
        if len(own.indices) > 0 and not 0 <= own.indices.min() <= own.indices.max() < self.shape[1]:
            raise ValueError("indices of a sparse matrix lie outside of it")
        return own

    def readable(self) -> SparseBlock:
        """Return the rows, their values as kernels read them: cells of other types are sums in these first."""
        if is_readable(self.data) and self.data.flags.c_contiguous:
            return self
        return self.distinct()

    def distinct(self) -> SparseBlock:
        """Return a copy with an entry a cell at most, doubles or floats; ValueError as for an array."""
        block = self._checked_copy()
        if block._repeats():
            dense = np.asarray(block)
            rows, columns = np.nonzero(dense)
            indptr = np.searchsorted(rows, np.arange(len(self) + 1))
            block = SparseBlock(indptr, columns, dense[rows, columns], self.shape[1])
        values: Any = readable(block.data)
        return SparseBlock(block.indptr, block.indices, in_c_order(values), self.shape[1])

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row of each entry, where `indptr` begins with 0."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def _repeats(self) -> bool:
        """Whether a cell may have several entries: if a column in a row is not above the one before it."""
        ascends = np.append(True, self.indices[1:] > self.indices[:-1])[: len(self.indices)]
        ascends[self.indptr[:-1][self.indptr[:-1] < len(ascends)]] = True
        return not ascends.all()


Rows: TypeAlias = NDArray[Any] | ColumnBlock | CodedBlock | SparseBlock


def numbers_of(rows: Rows) -> NDArray[Any]:
    """Return the numbers that rows hold, except for zeros of sparse ones."""
    return rows.distinct().data if isinstance(rows, SparseBlock) else np.asarray(rows)


def kept(block: Rows) -> NDArray[Any]:
    """Copy a block that is kept while others are read: their source may fill the same memory again and again."""
    return np.array(block)


def in_c_order(array: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Return an array as kernels of contiguous ones read it, a copy only where it is not: C order, and aligned.

    np.ascontiguousarray leaves contiguous data in place, even between two addresses of its type.
    """
    if type(array) is np.ndarray and (dtype is None or array.dtype == dtype):
        flags = array.flags
        if flags.c_contiguous and flags.aligned:
            return array  # np.require takes ten times as long to find it so
    return np.require(array, dtype, ("C", "A"))


def is_dense(table: Rows) -> bool:
    """Whether every entry of a table is kept, in an array or in columns."""
    return isinstance(table, np.ndarray | ColumnBlock)


_READ_IN_PLACE = (np.dtype(np.float64), np.dtype(np.float32))


def is_readable(*tables: Rows | None) -> bool:
    """Whether kernels read tables, or None, where they are: native, aligned float64 or float32."""
    for table in tables:
        if isinstance(table, np.ndarray):
            if not (table.dtype in _READ_IN_PLACE and table.dtype.isnative and table.flags.aligned):
                return False
        elif not (table is None or isinstance(table, ColumnBlock)):
            return False
    return True


def readable(table: Rows) -> Rows:
    """Return a table that kernels read in place, or a copy for them."""
    if is_readable(table):
        return table
    dtype = table.dtype.newbyteorder("=")
    # A number that does not fit becomes infinity, to be refused; a warning would reveal a value.
    with np.errstate(all="ignore"):
        return in_c_order(np.asarray(table), dtype if dtype in _READ_IN_PLACE else np.float64)


def range_of(x: Rows, y: Rows | None, rows: NDArray[np.int64] | None, start: int, stop: int) -> tuple[Any, ...]:
    """Return some of the selected rows as kernels take them: tables, the selection, and where to start and stop.

    Only these rows are converted, where kernels do not read a dtype in place.
    """
    if is_readable(x, y):
        return x, y, rows, start, stop
    selected = slice(start, stop) if rows is None else rows[start:stop]
    return readable(x[selected]), None if y is None else readable(y[selected]), None, 0, stop - start


_WORD = 1 << 64


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Exact values ``(high * 2**64 + low) * 2**exponent``; both limbs, the upper one signed, have one shape."""

    high: NDArray[np.int64]
    low: NDArray[np.uint64]
    exponent: int

    @classmethod
    def zeros(cls, shape: tuple[int, ...], exponent: int) -> FixedPoint:
        """Exact zeros."""
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.uint64), exponent)

    @classmethod
    def from_integers(cls, values: object, exponent: int) -> FixedPoint:
        """From anything NumPy reads as an array of (Python or int64) integers."""
        if isinstance(values, np.ndarray) and values.dtype == np.int64:
            return cls(values >> 63, values.astype(np.uint64), exponent)
        exact = np.asarray(values, dtype=object)
        high = np.empty(exact.shape, np.int64)
        low = np.empty(exact.shape, np.uint64)
        for index, value in np.ndenumerate(exact):
            high[index], low[index] = divmod(int(value), _WORD)
        return cls(high, low, exponent)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of either limb."""
        return self.high.shape

    def integer(self, index: int | tuple[int, ...]) -> int:
        """Return one element as a Python integer, in units of ``2**exponent``."""
        return int(self.high[index]) * _WORD + int(self.low[index])

    def __getitem__(self, index: Any) -> FixedPoint:
        """Return the elements that NumPy indexing picks."""
        high, low = np.asarray(self.high[index]), np.asarray(self.low[index])
        return FixedPoint(high, low, self.exponent)

    def in_a_row(self) -> FixedPoint:
        """Return all elements in one row, as kernels read them."""
        return FixedPoint(in_c_order(self.high).ravel(), in_c_order(self.low).ravel(), self.exponent)

    def followed_by(self, integer: int) -> FixedPoint:
        """Return all elements in one row, and after them an integer in the same units."""
        size = self.high.size
        high, low = np.empty(size + 1, np.int64), np.empty(size + 1, np.uint64)
        high[:size], low[:size] = self.high.ravel(), self.low.ravel()
        high[size], low[size] = divmod(integer, _WORD)
        return FixedPoint(high, low, self.exponent)

    def in_units(self, exponent: int) -> FixedPoint:
        """Return the same values on a finer grid; OverflowError if one leaves 128 bits."""
        if exponent == self.exponent:
            return self
        shift, largest = self.exponent - exponent, 1 << 127
        if shift < 0:
            raise ValueError(f"a grid of exponent {exponent} is coarser than one of {self.exponent}")
        integers = [self.integer(index) << shift for index in np.ndindex(self.shape)]
        if any(not -largest <= integer < largest for integer in integers):
            raise OverflowError("an exact sum has left the range of 128 bits")
        flat = np.empty(len(integers), object)
        flat[:] = integers
        return FixedPoint.from_integers(flat.reshape(self.shape), exponent)

    def __add__(self, other: FixedPoint) -> FixedPoint:
        """Exact sum of two arrays on the same grid; OverflowError if it leaves 128 bits."""
        if not isinstance(other, FixedPoint):
            return NotImplemented
        if other.exponent != self.exponent:
            raise ValueError(f"exponents differ: {self.exponent} and {other.exponent}")
        shape = self.high.shape
        if other.high.shape != shape:
            raise ValueError(f"shapes differ: {shape} and {other.shape}")
        high, low = np.empty(shape, np.int64), np.empty(shape, np.uint64)
        parts = (self.high, self.low, other.high, other.low, high, low)
        limbs.add(*[in_c_order(part).reshape(-1) for part in parts])
        return FixedPoint(high, low, self.exponent)

    def __eq__(self, other: object) -> bool:
        """Whether every element, and the unit, is the same."""
        if not isinstance(other, FixedPoint):
            return NotImplemented
        return (
            self.exponent == other.exponent
            and np.array_equal(self.high, other.high)
            and np.array_equal(self.low, other.low)
        )

    __hash__ = None  # type: ignore[assignment]

    def to_float64(self) -> NDArray[np.float64]:
        """Return the values rounded to nearest double (ties to even)."""
        values = np.empty(self.high.size)
        limbs.to_float64(in_c_order(self.high).ravel(), in_c_order(self.low).ravel(), values)
        return np.asarray(np.ldexp(values, self.exponent).reshape(self.shape))

    def to_float64_pair(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return doubles whose exact sum is within 2**-106 of each value, relative: rounded values, and remainders.

        For values of fewer than 116 bits.
        """
        pair = np.empty((2, self.high.size))
        limbs.to_float64_pair(in_c_order(self.high).ravel(), in_c_order(self.low).ravel(), *pair)
        rounded, left_out = np.ldexp(pair, self.exponent).reshape(2, *self.shape)
        return rounded, left_out
