"""A table and the outcomes that go with it, opened: their widths are known, their rows not yet read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast.io.alignment import check_aligned, is_unordered
from dpfast.io.blocks import Block, blocks, in_memory, is_read_once
from dpfast.io.partitions import is_dask
from dpfast.kernels.columns import Rows

BlockMap = Callable[[Any], NDArray[Any]]

# Rows of an array that pass through a map at a time: enough to amortise the calls, little beside any table.
_MAPPED_ROWS = 8192


class Stream:
    """Blocks of rows, read anew each time they are iterated over, unless they can be read only once."""

    def __init__(self, X: Any, Y: Any) -> None:
        self._tables = X, Y
        self._begun: Iterator[Block] | None = blocks(X, Y)
        self.is_read_once = any(map(is_read_once, self._tables))
        self.is_unordered = any(map(is_unordered, self._tables))

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
        return blocks(*self._tables)


@dataclass(frozen=True)
class Table:
    """Features and outcomes: whole arrays, a stream of blocks, or Dask collections."""

    n_features: int
    n_outcomes: int
    arrays: tuple[NDArray[Any], NDArray[Any] | None] | None = None
    stream: Stream | None = None
    collections: tuple[Any, Any] | None = None

    @property
    def is_read_once(self) -> bool:
        """Whether rows can be read a single time: those of iterators, such as generators and Arrow's readers."""
        return self.stream is not None and self.stream.is_read_once

    @property
    def is_unordered(self) -> bool:
        """Whether rows may come in another order each time: nothing may be kept of them, row by row."""
        return self.stream is not None and self.stream.is_unordered

    def blocks(self, map_x: BlockMap | None = None, map_y: BlockMap | None = None) -> Iterator[Block]:
        """Iterate over blocks of rows, each passed through the given maps; not for Dask collections."""
        if map_x is None and map_y is None:
            yield from self._blocks()
            return
        for x_block, y_block in self._blocks():
            for start in range(0, max(len(x_block), 1), _MAPPED_ROWS):
                x = x_block[start : start + _MAPPED_ROWS]
                y = None if y_block is None else y_block[start : start + _MAPPED_ROWS]
                yield map_block(x, y, map_x, map_y)

    def whole(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features and outcomes as two arrays: those in memory as they are, a stream's blocks joined."""
        if self.collections is not None:
            raise TypeError("X and y must be held in memory: compute them first")
        pairs = [(np.asarray(x), np.asarray(y)) for x, y in self._blocks() if y is not None]
        return (
            pairs[0]
            if len(pairs) == 1
            else (np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs]))
        )

    def _blocks(self) -> Iterator[Block]:
        if self.arrays is not None:
            yield self.arrays
        elif self.stream is not None:
            yield from self.stream


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
    """Learn the widths of anything `blocks` reads, or of Dask collections; no more than a first block is read.

    A frame of several blocks or dtypes is made one array if it `may_copy`.
    """
    check_aligned(X=X, Y=Y)
    if is_dask(X) or is_dask(Y):
        return Table(_width(X, "X"), 0 if Y is None else _width(Y, "Y"), collections=(X, Y))
    x = in_memory(X, "X", may_copy=may_copy)
    y = None if Y is None else in_memory(Y, "Y", is_outcome=True, may_copy=may_copy)
    if x is not None and (Y is None or y is not None):
        if y is not None and len(y) != len(x):
            raise ValueError("X and Y have different numbers of rows")
        return Table(*_widths(x, y), arrays=(x, y))
    stream = Stream(X, Y)
    first = stream.first()
    if first is None:
        raise ValueError("X has no blocks, so its number of columns is unknown")
    return Table(*_widths(*first), stream=stream)


def _widths(x: Rows, y: Rows | None) -> tuple[int, int]:
    for name, block in (("X", x), ("Y", y)):
        if block is not None and block.shape[1] == 0:
            raise ValueError(
                # The words that scikit-learn's checks ask for, without the number of rows.
                f"{name} must have columns, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
            )
    return x.shape[1], 0 if y is None else y.shape[1]


def _width(collection: Any, name: str) -> int:
    if not is_dask(collection):
        raise TypeError(f"X and Y must both be Dask collections, or neither; {name} is {type(collection).__qualname__}")
    if not hasattr(collection, "ndim"):
        raise TypeError(f"{name} must be a Dask array, dataframe or series, got {type(collection).__qualname__}")
    return 1 if collection.ndim == 1 else int(collection.shape[1])
