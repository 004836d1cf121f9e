"""Rows to a Gram: checked, cut into ranges for the threads, summed exactly, committed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast import io
from dpfast._arrays import IntArray
from dpfast._redacted import suppress_float_warnings
from dpfast._threads import RowRanges, run_in_threads, single_threaded_blas, threads_for
from dpfast.io.people import People, people
from dpfast.io.sources import dtype_name, unfit
from dpfast.kernels import coded_gram, columns, row_maps, sparse_gram
from dpfast.kernels import gram as kernel
from dpfast.kernels.columns import CodedBlock, ColumnBlock, FixedPoint, Rows, SparseBlock
from dpfast.kernels.people import PersonSums
from dpfast.kernels.row_maps import RowMapKernel
from dpfast.statistics import rows as bounded
from dpfast.statistics.coded import CodedMap
from dpfast.statistics.rows import Gram, Layout, PersonUnit, RowMap

_PRODUCTS_PER_RANGE = 200_000_000  # some 60 ms of one core: how long an interrupt waits
_PRODUCTS_PER_THREAD = 4_000_000  # below this, starting a thread costs more than it brings
_LONGEST_RANGE = 32_768
_MAPPED_ENTRIES = 1 << 15  # of rows that pass through maps at a time, and stay in the cache until they are summed
# Small packs: there are few totals to add X'Y alone to, unlike X'X, and the reading of rows goes on meanwhile.
_PACK_ENTRIES = 1280
Maps = tuple[io.BlockMap | None, io.BlockMap | None]
AddRange = Callable[[Any, int, int], int]  # adds rows start to stop to a thread's sums, and returns a status


class GramAccumulator(Layout):
    """Accumulates exact second moments of bounded rows, block by block. **Not private**: see `Gram`.

    A call that raises has added nothing. Several threads may call: each waits for its turn.

    Parameters
    ----------
    n_features : int
        Columns of X.
    n_outcomes : int, default 0
        Columns of Y; 0 if there are no outcomes.
    bound_x, bound_y : float
        L2 norms of a row and of its outcome row, in their units; longer ones are scaled onto them. From 1e-100 to
        1e100, never taken from the data; `bound_y` goes with outcomes.
    n_threads : int, optional
        Threads to use; default ``OMP_NUM_THREADS``, else the cores this process may use. The result does not depend on
        it.
    sums : bool, default False
        Whether to keep the sums of rows as well.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import GramAccumulator
    >>> X, Y = np.eye(3), np.ones(3)
    >>> accumulator = GramAccumulator(3, 1, bound_x=1.0, bound_y=1.0)
    >>> accumulator.update(X[:2], Y[:2]).update(X[2:], Y[2:])
    <GramAccumulator of 3 features, 1 outcomes, bound_x=1.0, bound_y=1.0: not private>
    >>> accumulator.gram().xy.ravel()
    array([1., 1., 1.])
    """

    def __init__(
        self,
        n_features: int,
        n_outcomes: int = 0,
        *,
        bound_x: float,
        bound_y: float | None = None,
        n_threads: int | None = None,
        sums: bool = False,
    ) -> None:
        super().__init__(n_features, n_outcomes, bound_x, bound_y, sums)
        self._names = "X", "Y"
        threads_for(0, n_threads)
        self.n_threads = n_threads
        self._maps: Maps = None, None
        self._totals = self._new_totals()
        self._additions = transaction.PendingAdditions()

    def mapped_by(self, map_x: io.BlockMap | None, map_y: io.BlockMap | None) -> Self:
        """Let blocks of rows pass through public maps from now on: see `gram`. Internal."""
        self._maps = map_x, map_y
        return self

    @property
    def n_updates(self) -> int:
        """Calls of `update` and `merge` that have been added.

        An interrupt after the rows were added is raised by the caller's own code, once the call has returned. A caller
        who catches it around the call sees here whether to repeat it.
        """
        return self._additions.n_made

    @transaction.atomic
    @suppress_float_warnings
    def update(self, X: object, Y: object = None, rows: ArrayLike | None = None) -> GramAccumulator:
        """Add rows.

        Parameters
        ----------
        X : array_like (n_rows, n_features), or any table that `dpfast.io.blocks` reads
            Real numbers of any dtype, order and strides; float32 and float64 are read in place.
        Y : array_like (n_rows,) or (n_rows, n_outcomes), or a table
            Outcomes, if there are any.
        rows : array_like of int (n_selected,) or of bool (n_rows,), optional
            Add these rows only, of arrays or frames; an index named twice counts twice.

        Returns
        -------
        GramAccumulator
            This accumulator. If this raises, an interrupt included, it is left as it was; see `n_updates`.

        Raises
        ------
        ValueError, TypeError
            If shapes or kinds do not fit, a value is NaN or infinite, or `rows` is out of range.
        RuntimeError
            If a signal handler, or the iterable of blocks itself, calls while this thread is in a call already.
        """
        self._add_blocks(self._checked_blocks(X, Y, rows))
        return self

    @transaction.atomic
    def add_table(self, table: io.Table, rows: ArrayLike | None = None) -> None:
        """Add the rows of a table, as `update` does, all blocks at once. Internal."""
        self._add_blocks(chain.from_iterable(self._checked_blocks(x, y, rows) for x, y in table.blocks()))

    def _add_blocks(self, blocks: Iterable[tuple[Any, Any, Any]]) -> None:
        spilled = self._new_totals()
        for x, y, selected in blocks:
            self._add_rows(x, y, selected, spilled)
        self._gathered(spilled)

    @transaction.atomic
    @suppress_float_warnings
    def merge(self, other: GramAccumulator) -> GramAccumulator:
        """Add what another accumulator of the same shape, bounds and sums has seen; return this one."""
        if not isinstance(other, GramAccumulator):
            raise TypeError(f"other must be a GramAccumulator, got {type(other).__qualname__}")
        self._check_same(other)
        self._additions.change = self._totals.add, other._totals
        return self

    def gram(self) -> Gram:
        """Return the exact moments of the rows seen so far."""
        return Gram(self._totals.copy(), self)

    def _checked_blocks(self, X: object, Y: object, rows: ArrayLike | None) -> Iterator[tuple[Any, Any, Any]]:
        if Y is not None and self.n_outcomes == 0:
            raise ValueError("Y was given to an accumulator with n_outcomes=0")
        io.check_aligned(X=X, Y=Y)
        x, y = _in_memory(X, Y, rows)
        if x is None or (Y is not None and y is None):
            if rows is not None:
                raise TypeError("rows selects from arrays, .npy files and frames only")
            for x_block, y_block in io.blocks(X, Y):
                self._check_unmapped(x_block, y_block)
                yield x_block, y_block, None
            return
        self._check_unmapped(x, y)
        yield x, y, None if rows is None else _checked_rows(rows, len(x))

    def _check_unmapped(self, x: Rows, y: Rows | None) -> None:
        if self._maps == (None, None):
            self._check_block(x, y)
        elif y is not None and len(y) != len(x):
            raise ValueError("X and Y have different numbers of rows")

    def _add_rows(self, x: Rows, y: Rows | None, rows: IntArray | None, spilled: kernel.GramTotals) -> None:
        """Sum rows in the threads' own parts, which overflow into `spilled` if there are very many."""

        def some(start: int, stop: int) -> tuple[Rows, Rows | None]:
            selected = slice(start, stop) if rows is None else rows[start:stop]
            return x[selected], None if y is None else y[selected]

        def add(part: kernel.GramSums, start: int, stop: int) -> int:
            return part.add(*columns.range_of(x, y, rows, start, stop))

        def add_mapped(maps: Maps, part: kernel.GramSums, start: int, stop: int) -> int:
            for first in range(start, stop, step := max(1, _MAPPED_ENTRIES // max(1, x.shape[1]))):
                status = self._add_mapped(part, maps, *some(first, min(first + step, stop)))
                if status != kernel.PACKED:
                    return status
            return kernel.PACKED

        def add_by_kernels(of_x: RowMapKernel, of_y: RowMapKernel | None, part: Any, start: int, stop: int) -> int:
            return row_maps.add_mapped(part, of_x, of_y, *columns.range_of(x, y, rows, start, stop))

        def add_coded(
            maps: Maps, coded: CodedMap, values: IntArray, part: coded_gram.CodedSums, start: int, stop: int
        ) -> int:
            assert isinstance(x, CodedBlock)
            if not part.begin(x.layout, values):
                return add_mapped(maps, part, start, stop)
            for first in range(start, stop, coded.rows_at_a_time):
                x_rows, y_rows = some(first, min(first + coded.rows_at_a_time, stop))
                assert isinstance(x_rows, CodedBlock)
                numbers, beyond = coded.numbers(x_rows)
                y_mapped = None if y_rows is None else columns.readable(io.map_block(y_rows, None, maps[1], None)[0])
                status = part.add_coded(numbers, x_rows.codes, y_mapped, 0, len(x_rows), beyond)
                if status == kernel.PACKED and beyond.any():
                    left = np.flatnonzero(beyond)
                    status = self._add_mapped(part, maps, x_rows[left], None if y_rows is None else y_rows[left])
                if status != kernel.PACKED:
                    return status
            return kernel.PACKED

        def add_sparse(map_y: io.BlockMap | None, part: kernel.GramSums, start: int, stop: int) -> int:
            x_rows, y_rows = io.map_block(*some(start, stop), None, map_y)
            assert isinstance(x_rows, SparseBlock)
            self._check_block(x_rows, y_rows)
            y_read = None if y_rows is None else columns.readable(y_rows)
            return sparse_gram.add_sparse(part, x_rows.readable(), y_read, 0, len(x_rows))

        def adder() -> AddRange:
            map_x, map_y = self._maps
            maps = io.reusing_room(map_x), io.reusing_room(map_y)
            if isinstance(x, CodedBlock) and (coded := CodedMap.of(x.layout, map_x)) is not None:
                return partial(add_coded, maps, coded, coded.values(self._tables()[0][1]))
            if isinstance(x, SparseBlock) and map_x is None:
                return partial(add_sparse, maps[1])
            if self._maps == (None, None):
                return add
            kernels = self._map_kernels(x, y)
            return partial(add_mapped, maps) if kernels is None else partial(add_by_kernels, *kernels)

        products = self._products_per_row()
        if isinstance(x, SparseBlock) and self._maps[0] is None:
            # Reading an entry counts as a few more.
            products = 8 + round((int(x.indptr[-1]) - int(x.indptr[0])) / max(1, len(x))) ** 2 // 2
        self._add_ranges(len(x) if rows is None else len(rows), spilled, adder, products=products)

    def _map_kernels(self, x: Rows, y: Rows | None) -> tuple[RowMapKernel, RowMapKernel | None] | None:
        """Return what maps rows in the kernel, None where that cannot: for other maps than `RowMap`, and other rows."""
        map_x, map_y = (RowMap() if one is None else one for one in self._maps)
        if not (isinstance(map_x, RowMap) and isinstance(map_y, RowMap)):
            return None
        if not (columns.is_dense(x) and (y is None or columns.is_dense(y))):
            return None
        of_x, of_y = map_x.kernel(x.shape[1]), None if y is None else map_y.kernel(y.shape[1])
        self._check_block(np.empty((0, of_x.n_features)), None if of_y is None else np.empty((0, of_y.n_features)))
        return of_x, of_y

    def _add_mapped(self, part: kernel.GramSums, maps: Maps, x: Rows, y: Rows | None) -> int:
        """Add rows that pass through maps first, all of their columns; returns a status."""
        x, y = io.map_block(x, y, *maps)
        self._check_block(x, y)
        return part.add(columns.readable(x), None if y is None else columns.readable(y), None, 0, len(x))

    def _add_ranges(
        self,
        n_rows: int,
        spilled: kernel.GramTotals,
        adder: Callable[[], AddRange],
        *,
        products: int,
        overhang: int = 0,
    ) -> None:
        """Call each thread's function on ranges of rows; it may add up to `overhang` rows beyond their end.

        Rows are of so many products each, about.
        """
        n_threads = threads_for(n_rows * products // _PRODUCTS_PER_THREAD, self.n_threads)
        parts = self._additions.parts
        while len(parts) < n_threads:
            parts.append(self._new_part())
        shortest = parts[0].block_rows
        longest = max(shortest, min(_LONGEST_RANGE, _PRODUCTS_PER_RANGE // products))
        # Several threads share what is left at the end.
        fair = longest if n_threads == 1 else n_rows // (8 * n_threads)
        ranges = RowRanges(n_rows, min(longest, max(shortest, fair)))

        def add_ranges(part: kernel.GramSums) -> int:
            add = adder()
            for start, stop in ranges:
                if part.capacity < stop - start + overhang:
                    spilled.take([part])
                status = add(part, start, stop)
                if status != kernel.PACKED:
                    ranges.stop()
                    return status
            return kernel.PACKED

        blas: AbstractContextManager[None] = single_threaded_blas() if use_blas() else nullcontext()
        with blas:
            statuses = run_in_threads([partial(add_ranges, part) for part in parts[:n_threads]], ranges.stop)
        if sparse_gram.OUTSIDE in statuses:
            raise unfit(self._names[0])
        for status, name in zip((kernel.X_NOT_FINITE, kernel.Y_NOT_FINITE), self._names, strict=True):
            if status in statuses:
                raise check.not_finite(name)

    def _gathered(self, spilled: kernel.GramTotals) -> None:
        """Say how to add what the threads' parts hold, and `spilled`, by one call."""
        additions = self._additions
        if spilled.n_rows == 0:
            additions.change = self._totals.take, additions.parts
        else:
            spilled.take(additions.parts)
            additions.change = self._totals.add, spilled

    def _products_per_row(self) -> int:
        return self.n_features * (self.n_features + 2 * self.n_outcomes) // 2 + 1

    def _new_totals(self) -> kernel.GramTotals:
        of_x, of_y = self._tables()
        return kernel.GramTotals(self.n_features, self.n_outcomes, max(of_x[-1], of_y[-1]))

    def _block_rows(self) -> int:
        # Packs of narrow rows stay in the first-level cache; those of wide rows amortise the totals they are added to.
        return 64 if self.n_features + self.n_outcomes <= 32 else 255

    def _new_part(self) -> kernel.GramSums:
        options: dict[str, Any] = {"use_blas": use_blas(), "with_sums": self.sums}
        return coded_gram.CodedSums(*self._tables(), block_rows=self._block_rows(), **options)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_additions": None, "_totals": self._totals.copy(), "_n_updates": self.n_updates}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._additions = transaction.PendingAdditions(self.__dict__.pop("_n_updates"))


@suppress_float_warnings
def gram(
    X: object,
    Y: object = None,
    *,
    bound_x: float,
    bound_y: float | None = None,
    rows: ArrayLike | None = None,
    groups: ArrayLike | io.PersonIds | None = None,
    max_rows: int | None = None,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
    n_threads: int | None = None,
    sums: bool = False,
    map_x: io.BlockMap | None = None,
    map_y: io.BlockMap | None = None,
) -> Gram:
    """Exact second moments of the rows of a table. **Not private**: see `Gram`.

    Parameters
    ----------
    X, Y : tables
        Anything `dpfast.io.blocks` reads, and Dask arrays, dataframes and series; Y is optional. X may also be a
        `dpfast.io.Table` or `dpfast.io.Partitions` that holds both.
    bound_x, bound_y, n_threads, sums
        As for `GramAccumulator`. A partition uses one thread unless `n_threads` says otherwise.
    rows
        As for `GramAccumulator.update`.
    groups : array_like (n_rows,), optional
        The person each row belongs to (integers, strings, dates or hashable objects, none missing): the person, with
        all their rows, is then the unit of privacy. One array for the whole table, also of a stream; of partitions,
        their own `groups`. Not with `rows`.
    max_rows : int, optional
        Goes with `groups`. Rows of a person beyond the first so many, in the order of the table, do not count. Public.
    bound_xx, bound_xy : float, optional
        With `groups`: Frobenius norms of one person's X'X and X'Y. A person beyond them has all their rows scaled by
        one factor that brings both within. Public. They are at most the rows' bounds, ``max_rows * bound_x**2`` and
        ``max_rows * bound_x * bound_y``; these are the defaults. They need whole arrays (of a frame, its array is
        made), and `sums` are not kept: for an intercept, add a constant column to X.
    map_x, map_y : callable, optional
        Public maps that blocks of X and of Y pass through before they are clipped to the bounds. The result for a row
        must depend on that row alone, to the bit, as with `dpfast.statistics.rows.RowMap`. A reduction of NumPy or a
        product of matrices over a block is not allowed: its order of additions depends on the other rows.

    Returns
    -------
    Gram
        The same to the bit for any split of the same rows; with `groups`, for any order of people. It knows `max_rows`
        and the bounds (`Gram.unit`, `Gram.block_bounds`), and its `n_rows`, the number of rows that count, is private.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import gram
    >>> X = np.linspace(-1, 1, 30).reshape(10, 3)
    >>> gram(X, bound_x=1.0) == gram(X[:4], bound_x=1.0) + gram(X[:3:-1].copy(), bound_x=1.0)
    True
    """
    threads_for(0, n_threads)
    checked_x, checked_y = bounded.checked_bounds(bound_x, bound_y, has_outcomes=bound_y is not None)
    unit = _checked_unit(groups, max_rows, bound_xx, bound_xy, checked_x, checked_y)
    if groups is not None and rows is not None:
        raise ValueError("rows and groups do not go together: select the rows, and their groups, first")
    io.check_aligned(X=X, Y=Y, groups=groups)
    needs_arrays = rows is not None or (unit is not None and unit.clips_blocks)
    table = X if isinstance(X, io.Table) else io.open_table(X, Y, may_copy=needs_arrays)
    if rows is not None and (table.arrays is None or map_x is not None or map_y is not None):
        raise TypeError("rows selects from arrays, .npy files and frames only, and without maps")
    shape: dict[str, Any] = {"bound_x": bound_x, "bound_y": bound_y, "sums": sums}
    if table.partitions is not None:
        options: dict[str, Any] = {"max_rows": max_rows, "bound_xx": bound_xx, "bound_xy": bound_xy}
        of_part = partial(gram, **shape, **options, n_threads=n_threads or 1, map_x=map_x, map_y=map_y)
        return table.reduce(of_part, bounded.sum_of_parts, groups=groups, may_copy=needs_arrays)
    if unit is not None:
        whose = people(groups, unit.max_rows, ordered=unit.clips_blocks)
        return _people_gram(table, whose, unit, (map_x, map_y), n_threads=n_threads, **shape)
    accumulator = GramAccumulator(table.n_features, table.n_outcomes, n_threads=n_threads, **shape)
    accumulator.mapped_by(map_x, map_y)
    accumulator.add_table(table, rows)
    return Gram(accumulator._totals, accumulator)


def _people_gram(table: io.Table, whose: People, unit: PersonUnit, maps: Maps, **options: Any) -> Gram:
    """Sum the rows of people who own several."""
    accumulator = GramAccumulator(table.n_features, table.n_outcomes, **options)
    if unit.clips_blocks:
        if accumulator.sums:
            raise ValueError("sums are not kept with bound_xx or bound_xy: add a constant column to X instead")
        if table.arrays is None:
            raise TypeError("bound_xx and bound_xy need whole arrays, .npy files or frames")
        x, y = io.map_block(*table.arrays, *maps)
        whose.check_length(len(x))
        accumulator = PersonAccumulator(table.n_features, table.n_outcomes, unit, **options)
        accumulator.add_people(x, y, whose)
    else:
        _add_counting(accumulator.mapped_by(*maps), table, whose)
    return Gram(accumulator._totals, accumulator, unit, whose.n_people)


def _add_counting(accumulator: GramAccumulator, table: io.Table, whose: People) -> None:
    """Add the rows that count as they come: without a bound on blocks, their owners need not be known."""
    if table.arrays is not None:
        whose.check_length(len(table.arrays[0]))
    for (x, y), kept in whose.along(table.blocks(), lambda block: len(block[0])):
        accumulator.update(x, y, kept)


class PersonAccumulator(GramAccumulator):
    """Sums people's rows, each person's block clipped to the bounds of `unit`."""

    def __init__(self, n_features: int, n_outcomes: int, unit: PersonUnit, **options: Any) -> None:
        super().__init__(n_features, n_outcomes, **options)
        self._max_rows = unit.max_rows
        self._limits = bounded.block_limits(unit, self._tables())

    @transaction.atomic
    def add_people(self, x: Rows, y: Rows | None, whose: People) -> None:
        """Add everybody's rows that count."""
        self._check_block(x, y)
        spilled = self._new_totals()

        def add(part: PersonSums, start: int, stop: int) -> int:
            """Add the people whose first row is one of start to stop."""
            return part.add_people(*bounded.people_within(x, y, whose, start, stop))

        options = {"products": self._products_per_row(), "overhang": self._max_rows}
        self._add_ranges(int(whose.offsets[-1]), spilled, lambda: add, **options)
        self._gathered(spilled)

    def _new_part(self) -> PersonSums:
        limits = self._limits
        return PersonSums(
            *self._tables(),
            bounds_xx=limits.xx,
            bounds_xy=limits.xy,
            safe_rows=limits.safe_rows,
            block_rows=self._block_rows(),
        )


def _checked_unit(
    groups: object, max_rows: object, bound_xx: object, bound_xy: object, bound_x: float, bound_y: float | None
) -> PersonUnit | None:
    if groups is None:
        for name, value in (("max_rows", max_rows), ("bound_xx", bound_xx), ("bound_xy", bound_xy)):
            if value is not None:
                raise ValueError(f"{name} was given, but no groups: which rows are whose is needed")
        return None
    if max_rows is None:
        raise ValueError("max_rows is needed with groups: the most rows of one person, a public number")
    return PersonUnit.checked(max_rows, bound_xx, bound_xy, bound_x, bound_y)


def _in_memory(X: object, Y: object, rows: ArrayLike | None) -> tuple[Rows | None, Rows | None]:
    """Both tables as the kernel reads them where they are; to select rows of a frame, its array is made."""
    may_copy = rows is not None
    x = X if isinstance(X, ColumnBlock | CodedBlock | SparseBlock) else io.in_memory(X, "X", may_copy=may_copy)
    if Y is None or isinstance(Y, ColumnBlock):
        return x, Y
    return x, io.in_memory(Y, "Y", is_outcome=True, may_copy=may_copy)


def use_blas() -> bool:
    """Without wide vectors the tiles of gram.c are slower than BLAS; with them they beat it at every width measured."""
    return kernel.cpu_level() == kernel.BASELINE


def _checked_rows(rows: ArrayLike, n_rows: int) -> IntArray:
    index = np.asarray(io.zero_copy_view(rows, "rows"))
    if index.ndim != 1:
        raise ValueError(f"rows must be 1-D, got {index.ndim} dimensions")
    if index.dtype == np.bool_:
        if len(index) != n_rows:
            raise ValueError("rows is a mask of another length than the table")
        return np.flatnonzero(index).astype(np.int64)
    if index.size == 0:
        return np.empty(0, np.int64)
    if index.dtype.kind not in "iu":
        raise TypeError(f"rows must hold integers or be a boolean mask, got dtype {dtype_name(index)}")
    if index.min() < 0 or index.max() >= n_rows:
        raise ValueError("rows must lie between 0 and one below the number of rows of the table")
    return columns.in_c_order(index, np.int64)


@dataclass(frozen=True, repr=False, eq=False)
class SampledGram:
    """Exact second moments, X'X over a sample of the rows (PRIMO's Algorithm 4). **Not private**, as `Gram`.

    X'Y costs n d l products where X'X costs n d (d + 1)/2, so a sample of s rows saves (1 - s/n)(d + 1)/(d + 1 + 2l)
    of the arithmetic. Every row is still read, and clipped to its bound, once.
    """

    exact_xx: FixedPoint  # sum of x x' over the sample, as it is
    exact_xy: FixedPoint  # sum of x y' over all rows
    n_sampled: int
    n_rows: int

    @property
    def sample(self) -> tuple[int, int]:
        """Rows in the sample, and in all."""
        return self.n_sampled, self.n_rows

    def __repr__(self) -> str:
        features, outcomes = self.exact_xy.shape
        return (
            f"<SampledGram of {features} features, {outcomes} outcomes, "
            f"{self.n_sampled} of {self.n_rows} rows in xx: not private>"
        )


@suppress_float_warnings
def sampled_gram(
    X: object, Y: object, rows: ArrayLike, *, bound_x: float, bound_y: float, n_threads: int | None = None
) -> SampledGram:
    """Sum x x' over some rows and x y' over all of them, exactly. **Not private**.

    Tables are arrays, .npy files or frames, or one `dpfast.io.Table`; `rows` is as for `GramAccumulator.update`. For a
    private release the sample must be secret (`dpfast.noise.sample_without_replacement`); it is not kept. All rows are
    read, and refused where they must be, before the sample is.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import sampled_gram
    >>> moments = sampled_gram(np.eye(3), np.ones(3), [0, 2], bound_x=1.0, bound_y=1.0)
    >>> moments.exact_xx.to_float64().diagonal(), moments.exact_xy.to_float64().ravel()
    (array([1., 0., 1.]), array([1., 1., 1.]))
    """
    table = X if isinstance(X, io.Table) else io.open_table(X, Y, may_copy=True)
    if table.arrays is None:
        raise TypeError("a sample is taken of arrays, .npy files and frames only")
    x = table.arrays[0]
    exact_xy = cross_moments(table, bound_x=bound_x, bound_y=bound_y, n_threads=n_threads)
    of_sample = gram(x, bound_x=bound_x, rows=rows, n_threads=n_threads)
    return SampledGram(of_sample.exact_xx, exact_xy, of_sample.n_rows, len(x))


def cross_moments(
    X: object, Y: object = None, *, bound_x: float, bound_y: float, n_threads: int | None = None
) -> FixedPoint:
    """Sum x y' over all rows of tables that `dpfast.io.blocks` reads, without X'X. **Not private**.

    Equal to the bit to `Gram.exact_xy` of the same rows.
    """
    table = X if isinstance(X, io.Table) else io.open_table(X, Y)
    if table.n_outcomes == 0:
        raise ValueError("Y is needed: the sum of x y' is one over features and outcomes")
    if table.partitions is not None:
        raise TypeError("X and Y must not be in parts, such as Dask collections: dpfast.statistics.gram sums those")
    layout = Layout(table.n_features, table.n_outcomes, bound_x, bound_y)
    # The tiles broadcast entries of the first table, the narrower one, and multiply vectors of the second.
    swapped = layout.n_outcomes < layout.n_features
    sizes = [("X", layout.n_features, bound_x), ("Y", layout.n_outcomes, bound_y)]
    (first, n_first, bound_first), (second, n_second, bound_second) = sizes[::-1] if swapped else sizes
    accumulator = _CrossAccumulator(n_first, n_second, bound_x=bound_first, bound_y=bound_second, n_threads=n_threads)
    accumulator._names = first, second
    for x, y in table.blocks():
        layout._check_block(x, y)
        accumulator.update(*((y, x) if swapped else (x, y)))
    high, low = accumulator._totals.cross()
    exponent = -(accumulator.grid.exponent_x + (accumulator.grid.exponent_y or 0))
    return FixedPoint(high.T, low.T, exponent) if swapped else FixedPoint(high, low, exponent)


class _CrossAccumulator(GramAccumulator):
    """Sums products between the tables only."""

    def _products_per_row(self) -> int:
        # Reading and rounding an entry counts as one more product.
        return max(self.n_features, self.n_outcomes) * (min(self.n_features, self.n_outcomes) + 1)

    def _block_rows(self) -> int:
        return max(12, min(255, _PACK_ENTRIES // (self.n_features + self.n_outcomes)))

    def _new_part(self) -> kernel.GramSums:
        return kernel.GramSums(
            *self._tables(), block_rows=self._block_rows(), use_blas=use_blas(), with_sums=False, cross_only=True
        )
