"""A table and the outcomes that go with it, opened: their widths are known, their rows not yet read.

Every pass over one table must give the rows of the first, or fits would pair people with what others left.

All tables are checked against the number of their rows. An iterable of the caller's makes its blocks anew each time, so
of those the rows are compared too, by a checksum that does not depend on how they are cut into blocks.

*Rows that count with a weight*: each is multiplied by the root of its share of the largest weight. A person's weight w
is as private as the row (x, y) that it belongs to, and a part of it. With a declared bound W, the row enters as (r x, r
y) with r = sqrt(min(w, W)/W), so that its squares and products count with the share min(w, W)/W.

Proof that any release stays private. Let T be that map, and M any mechanism that is (epsilon, delta)-private for tables
of rows. T looks at one row and its weight at a time, and at W, which is public: nothing in it depends on another row,
on the sum of the weights or on the largest. So T of two neighbouring tables, in which one person's rows and weights are
replaced, come or go, is two neighbouring tables with the same rows for everybody else, to the bit, and M of them is
private at the same (epsilon, delta). No bound changes: rows are clipped to theirs once they are weighted. As r <= 1,
also in floating point, where roots, products and quotients are rounded monotonously, no weight makes a row longer.

In the units of the weights, the sums are W times larger: the sum of w x x' has the sensitivity sqrt(2) W Bx^2 under
replace-one, that of w x y' has 2 W Bx By. Both are attained, by rows at their bounds that have weight W and are
orthogonal, or opposite in their outcomes: the bounds of rows without weights, times sqrt(W).

How many rows there are stays what it was, public or not; the sum of the weights is private. A mean or an intercept
depends on it: for these a constant column is added to the rows before they are weighted, a public map of each row as
clipping to limits is. It then holds the roots of the weights, within the constant. The sum of their squares, if
released, is released like that of any other column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors
from dpfast.io.blocks import Block, blocks, check_aligned, in_memory, is_made_anew, is_read_once, is_unordered
from dpfast.io.engines import DaskPartitions
from dpfast.io.partitions import Combine, Partitions, PersonIds, Result
from dpfast.io.sources import as_matrix, is_dask
from dpfast.kernels.columns import Rows, kept, numbers_of


class Deferred(NamedTuple):
    """Replaces a table, or labels, in a fit: it defines their reading."""

    read: Callable[[], Any]


def read_now(table: Any) -> Any:
    """Return a table, or labels: read, if that was deferred."""
    return table.read() if isinstance(table, Deferred) else table


@contextmanager
def one_table() -> Iterator[None]:
    """Hold every reading of a table within to the first of them, however often it is opened."""
    token = _OPEN.set([])
    try:
        yield
    finally:
        _OPEN.reset(token)


def passes_over(X: Any, Y: Any) -> Passes:
    """Return the record of earlier passes over a table, and the outcomes that go with it."""
    several = _OPEN.get()
    for x, y, passes in several or []:
        if x is X and y is Y:
            return passes
    passes = Passes(compares_rows=is_made_anew(X) or is_made_anew(Y))
    if several is not None:
        several.append((X, Y, passes))
    return passes


class Passes:
    """Row count and checksums of a table at its first reading to the end: the data owner's."""

    def __init__(self, *, compares_rows: bool) -> None:
        self._compares_rows = compares_rows
        self._seen: tuple[int, list[int]] | None = None

    def watched(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Iterate over the blocks of one pass; ValueError at its end if it held other rows than the first."""
        n_rows, sums = 0, list[int]()
        for x, y in blocks:
            n_rows += len(x)
            if self._compares_rows:
                arrays = [*_arrays(x), *_arrays(y)]
                pairs = zip(arrays, sums or [0] * len(arrays), strict=True)
                sums = [crc32(np.ascontiguousarray(array).data, start) for array, start in pairs]
            yield x, y
        if self._seen is None:
            self._seen = n_rows, sums
        elif self._seen != (n_rows, sums):
            raise ValueError("X or Y gave other rows than before: every pass must read the same table")


def _arrays(block: Rows | None) -> list[NDArray[Any]]:
    """Return the numbers of a block in an order that goes on in the next."""
    if block is None:
        return []
    return [block] if isinstance(block, np.ndarray) else block.columns


_OPEN: ContextVar[list[tuple[Any, Any, Passes]] | None] = ContextVar("_OPEN", default=None)


BlockMap = Callable[[Any], NDArray[Any]]

# Rows of an array that pass through a map at a time: enough to amortise the calls, little beside any table.
_MAPPED_ROWS = 8192


class Stream:
    """Blocks of rows, read anew each time they are iterated over, unless they can be read only once."""

    def __init__(self, X: Any, Y: Any) -> None:
        self._tables = X, Y
        self.is_read_once = any(map(is_read_once, self._tables))
        self.is_unordered = any(map(is_unordered, self._tables))
        self._passes = passes_over(X, Y)
        self._begun: Iterator[Block] | None = self._passes.watched(blocks(X, Y))

    def first(self) -> Block | None:
        """Read the first block; to be called before anything else."""
        begun = iter(self)
        first = next(begun, None)
        self._begun = chain([] if first is None else [first], begun)
        return first

    def __iter__(self) -> Iterator[Block]:
        """Go on from the first block; the next time, begin again."""
        begun, self._begun = self._begun, None
        if begun is not None:
            return begun
        if self.is_read_once:
            raise ValueError("X or Y is an iterator, which can be read only once, and has been")
        return self._passes.watched(blocks(*self._tables))


@dataclass(frozen=True)
class Table:
    """Features and outcomes: whole arrays, a stream of blocks, or parts that an engine goes through."""

    n_features: int
    n_outcomes: int
    arrays: tuple[NDArray[Any], NDArray[Any] | None] | None = None
    stream: Stream | None = None
    partitions: Partitions | None = None
    #: Whether a pass costs no reading. The kind of table decides, not its layout: a frame's depends on its dtypes.
    is_at_hand: bool = True

    @property
    def is_read_once(self) -> bool:
        """Whether rows can be read a single time: those of iterators, such as generators and Arrow's readers."""
        return self.stream is not None and self.stream.is_read_once

    @property
    def is_unordered(self) -> bool:
        """Whether rows may come in another order each time: nothing may be kept of them, row by row."""
        return self.stream is not None and self.stream.is_unordered

    def blocks(self, map_x: BlockMap | None = None, map_y: BlockMap | None = None) -> Iterator[Block]:
        """Iterate over blocks of rows, each passed through the given maps; not for partitions."""
        if map_x is not None or map_y is not None:
            return self._mapped_blocks(map_x, map_y)
        if self.arrays is not None:
            return iter((self.arrays,))
        if self.stream is not None:
            return iter(self.stream)
        raise TypeError("X and Y must be held in memory here, and not be in parts that lie elsewhere")

    def _mapped_blocks(self, map_x: BlockMap | None, map_y: BlockMap | None) -> Iterator[Block]:
        for x_block, y_block in self.blocks():
            for start in range(0, max(len(x_block), 1), _MAPPED_ROWS):
                x = x_block[start : start + _MAPPED_ROWS]
                y = None if y_block is None else y_block[start : start + _MAPPED_ROWS]
                yield map_block(x, y, map_x, map_y)

    def check_finite(self) -> None:
        """Refuse NaN and infinity anywhere; not for partitions."""
        for x, y in self.blocks():
            for name, block in [("X", x)] if y is None else [("X", x), ("Y", y)]:
                for start in range(0, len(block), _MAPPED_ROWS):
                    numbers = numbers_of(block[start : start + _MAPPED_ROWS])
                    if not np.isfinite(numbers.astype(np.float64, copy=False)).all():
                        raise check.not_finite(name)

    def whole(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features and outcomes as two arrays: those in memory as they are, a stream's blocks joined."""
        x, y = self.arrays or _joined(self.blocks())
        if y is None:
            raise ValueError("Y is needed: outcomes, or labels, of every row")
        return x, y

    def held(self) -> Table:
        """Return a table that can be read again: parts where they are, other rows in memory."""
        return self if self.partitions is not None or self.arrays is not None else open_table(*self.whole())

    def count_rows(self) -> int:
        """Count the rows: the data owner's number, unless it is public."""
        if self.arrays is not None:
            return len(self.arrays[0])
        assert self.partitions is not None
        return int(self.reduce(_count_rows, operator.add))

    def reduce(
        self, function: Callable[..., Result], combine: Combine, *, groups: object = None, may_copy: bool = False
    ) -> Result:
        """Return ``function(table, groups=groups)`` of each partition, a table with the ids of its people, combined.

        `groups` are those of `Partitions.groups`, and None where every row is a person. Frames are made arrays if they
        `may_copy`, and streams are joined.
        """
        assert self.partitions is not None
        if groups is None and self.partitions.partitioned_by is not None:
            raise ValueError(
                "X is partitioned by person: give max_rows, the number of rows counted per person, if the estimator "
                "takes it; others take one row per person"
            )
        if groups is not None and not isinstance(groups, PersonIds):
            raise TypeError(
                "groups of a table in parts belong to the parts, with all rows of a person in one: give ids and "
                "partitioned_by='person' to DaskPartitions or another holder of parts, and only max_rows to fit"
            )
        of_part = partial(_of_part, function, (self.n_features, self.n_outcomes), groups is not None, may_copy)
        found: Result = self.partitions.reduce(of_part, combine)
        return found


def groups_of(table: object, groups: Any) -> Any:
    """Return `groups` as given, or the placeholder for groups that lie with the parts of a table."""
    return table.groups if groups is None and isinstance(table, Partitions) else groups


def map_block(x: Rows, y: Rows | None, map_x: BlockMap | None, map_y: BlockMap | None) -> Block:
    """Pass one block through the given maps."""
    return _mapped(x, map_x), None if y is None else _mapped(y, map_y)


def reusing_room(block_map: BlockMap | None) -> BlockMap | None:
    """Return the map for one thread that needs a result only until the next: RowMaps know a faster way then."""
    reused = getattr(block_map, "reusing_room", None)
    return block_map if reused is None else reused()


def _mapped(rows: Rows, block_map: BlockMap | None) -> Rows:
    if block_map is None:
        return rows
    # Maps that say so read Arrow's columns where they lie: a copy to rows costs several times the map.
    return block_map(rows if getattr(block_map, "reads_columns", False) else np.asarray(rows))


def open_table(X: Any, Y: Any = None, *, may_copy: bool = False) -> Table:
    """Read the widths of any table for `blocks`, or of one in parts; no more than a first block is read.

    A frame of several blocks or dtypes is made one array if it `may_copy`.
    """
    check_aligned(X=X, Y=Y)
    if is_dask(X) or is_dask(Y):
        X, Y = DaskPartitions(X, Y), None
    if isinstance(X, Partitions):
        if Y is not None:
            raise TypeError(f"Y must be among the parts of X, a {type(X).__qualname__}, and not be given separately")
        return Table(X.n_features, X.n_outcomes, partitions=X, is_at_hand=False)
    table = _opened(X, Y, may_copy)
    if table is None:
        raise ValueError("X has no blocks, so its number of columns is unknown")
    return table


def _opened(X: Any, Y: Any, may_copy: bool) -> Table | None:
    """Open a local table; None for a stream of no blocks, with unknown widths."""
    x = in_memory(X, "X", may_copy=may_copy)
    y = None if Y is None else in_memory(Y, "Y", is_outcome=True, may_copy=may_copy)
    if x is not None and (Y is None or y is not None):
        if y is not None and len(y) != len(x):
            raise ValueError("X and Y have different numbers of rows")
        return Table(*_widths(x, y), arrays=(x, y), is_at_hand=are_at_hand(X, Y))
    stream = Stream(X, Y)
    first = stream.first()
    return None if first is None else Table(*_widths(*first), stream=stream, is_at_hand=are_at_hand(X, Y))


# What frames and arrays have, and arrays of other libraries.
_OF_ARRAYS = "shape", "__array__", "__dlpack__", "__arrow_c_array__"


def are_at_hand(*tables: Any) -> bool:
    """Return whether all are arrays, frames or lists in memory, or files that arrays are mapped from."""
    return all(
        table is None
        or isinstance(table, list | tuple)
        or getattr(table, "is_at_hand", False)
        or (isinstance(table, str | PathLike) and Path(table).suffix == ".npy")
        # To ask a query for its shape would run it.
        or (not is_unordered(table) and any(hasattr(table, name) for name in _OF_ARRAYS))
        for table in tables
    )


def _widths(x: Rows, y: Rows | None) -> tuple[int, int]:
    for name, block in (("X", x), ("Y", y)):
        if block is not None and block.shape[1] == 0:
            raise ValueError(
                # The words that scikit-learn's checks ask for, without the number of rows.
                f"{name} must have columns, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
            )
    return x.shape[1], 0 if y is None else y.shape[1]


def _of_part(
    function: Callable[..., Any], widths: tuple[int, int], has_people: bool, may_copy: bool, x: Any, y: Any, ids: Any
) -> Any:
    """Open a part, and call a function of it."""
    check_aligned(X=x, Y=y, ids=ids)
    # A list is one of blocks, and may have none.
    is_empty = isinstance(x, list) and len(x) == 0
    table = (None if is_empty else _opened(x, y, may_copy)) or Table(*widths, arrays=_no_rows(*widths))
    if (table.n_features, table.n_outcomes) != widths:
        raise ValueError("parts of X and Y must all have the same columns")
    if has_people and ids is None:
        raise ValueError("ids are needed in every part of a table that is partitioned by person")
    if may_copy and table.arrays is None:
        table = Table(*widths, arrays=_joined(table.blocks()))
    return function(table, groups=ids if has_people else None)


def _count_rows(table: Table, groups: None) -> int:
    return sum(len(x) for x, _ in table.blocks())


def _no_rows(n_features: int, n_outcomes: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
    return np.empty((0, n_features)), np.empty((0, n_outcomes)) if n_outcomes else None


def _joined(blocks_of_rows: Iterator[Block]) -> tuple[NDArray[Any], NDArray[Any] | None]:
    xs, ys = zip(*((kept(x), None if y is None else kept(y)) for x, y in blocks_of_rows), strict=True)
    if len(xs) == 1:
        return xs[0], ys[0]
    return np.concatenate(xs), None if ys[0] is None else np.concatenate(ys)


def weighted(
    X: Any,
    Y: Any,
    weights: Any,
    most: float,
    *,
    clips: bool = True,
    may_copy: bool = False,
    row_map: BlockMap | None = None,
) -> tuple[Any, Any]:
    """Return a table with weighted rows and outcomes: arrays, or blocks that are weighted as they are read.

    `weights` has one for each row, aligned with it; those beyond `most`, the public bound, count as much as it does,
    unless it `clips` none. Rows pass through a public `row_map` first. ValueError if a weight is not finite or below 0,
    or there is another number of them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.io import weighted
    >>> weighted(np.ones((3, 1)), np.ones(3), [4.0, 1.0, 9.0], 4.0)[0].ravel()
    array([1. , 0.5, 1. ])
    """
    roots = np.sqrt(shares_of(X, Y, weights, most, clips=clips))
    x, y = in_memory(X, "X", may_copy=may_copy), None
    if Y is not None:
        y = in_memory(Y, "Y", is_outcome=True, may_copy=may_copy)
    if x is None or (y is None and Y is not None):
        several = _Weighted(X, Y, roots, row_map)
        return (iter(several) if is_read_once(X) or is_read_once(Y) else several), None
    check_shares(x, roots)
    return _times(_mapped(x, row_map), roots), None if y is None else _times(y, roots)


def shares_of(X: Any, Y: Any, weights: Any, most: float, *, clips: bool = True) -> FloatArray:
    """Return the share of each row's weight of the largest that counts; beyond 1 only where it does not clip."""
    if isinstance(X, Partitions) or is_dask(X) or is_dask(Y) or is_dask(weights):
        raise TypeError("sample_weight goes with tables that are read here, and not with a table in parts")
    column = in_memory(weights, "sample_weight", is_outcome=True, may_copy=True)
    if column is None:
        problem = "sample_weight must be an array with one weight a row"
        column = as_matrix(redact_errors(partial(np.asarray, weights), problem), "sample_weight", is_outcome=True)
    if column.shape[1] != 1:
        raise ValueError("sample_weight must be 1-D, with one weight a row")
    given = column[:, 0].astype(np.float64)
    if not np.all(np.isfinite(given) & (given >= 0.0)):
        raise ValueError("sample_weight must hold finite numbers of at least 0")
    if not clips and not np.any(given):
        # Only where nothing is private: with noise, this would reveal something of all people at no cost.
        raise ValueError("sample_weight must not be zero for all rows")
    return np.asarray((np.minimum(given, most) if clips else given) / most)


def check_shares(rows: Any, shares: FloatArray) -> None:
    """Refuse weights of another number of rows."""
    if len(rows) != len(shares):
        raise ValueError("X and sample_weight have different numbers of rows")


def with_shares(table: Table, shares: FloatArray) -> Table:
    """Return a table in memory, with the shares of its rows as last outcomes."""
    rows, outcomes = table.whole()
    check_shares(rows, shares)
    return open_table(rows, np.column_stack([outcomes, shares]))


class _Weighted:
    """Blocks of weighted rows and outcomes, read anew each time."""

    def __init__(self, X: Any, Y: Any, roots: FloatArray, row_map: BlockMap | None) -> None:
        self._tables, self._roots, self._row_map = (X, Y), roots, row_map
        self.is_at_hand = are_at_hand(X, Y)

    def __iter__(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        start = 0
        for x, y in blocks(*self._tables):
            if y is None:
                raise ValueError("Y is needed: outcomes, or labels, of every row")
            roots, start = self._roots[start : start + len(x)], start + len(x)
            check_shares(x, roots)
            yield _times(_mapped(x, self._row_map), roots), _times(y, roots)
        check_shares(range(start), self._roots)


def _times(rows: Any, roots: FloatArray) -> FloatArray:
    return np.asarray(np.asarray(rows, np.float64) * roots[:, np.newaxis])
