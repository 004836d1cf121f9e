"""People who own several rows: whose rows are whose, and which of them count.

Of each person's rows the first `max_rows` in the order of the table count. Which these are depends on that person's
rows alone, so another person's rows never change what somebody adds to a sum.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import IntArray
from dpfast.io.blocks import dtype_name
from dpfast.io.borrowed import borrowed, check_unmasked
from dpfast.io.ids import numbered
from dpfast.kernels import owners
from dpfast.kernels.columns import in_c_order


@dataclass(frozen=True)
class People:
    """The rows that count, person after person: those of person i are order[offsets[i] : offsets[i + 1]].

    In table order within a person; `order` is None for all rows as they lie, or where `counting` says which rows count
    and nobody asked whose they are; `n_rows` is the table's number of rows.
    """

    n_rows: int
    order: IntArray | None
    offsets: IntArray
    counting: NDArray[np.bool_] | None = None

    @property
    def n_people(self) -> int:
        """Number of people."""
        return len(self.offsets) - 1

    def kept(self) -> NDArray[np.bool_] | None:
        """Return which rows count, as a mask of the table, or None if all do."""
        if self.offsets[-1] == self.n_rows:
            return None
        if self.counting is not None:
            return self.counting
        mask = np.zeros(self.n_rows, bool)
        mask[self.order] = True
        return mask


def people(groups: object, max_rows: int, *, ordered: bool = True) -> People:
    """Find whose rows are whose; of each person's, the first `max_rows` count.

    `groups` are the people that rows belong to, compared as Python compares them: 1 and 1.0 are one person, "1" is
    another. An array's ids are of its dtype; those of a list or another sequence stay as they are, whatever they are
    side by side with. They are only told apart: people come in the order of their first rows. Rows that are not
    consecutive are sorted by person, in two passes and two integers of memory a row, unless not needed `ordered`.
    """
    words = _words(comparable(groups, {}))
    n_rows = len(words)
    if n_rows == 0:
        return People(0, None, np.zeros(1, np.int64))
    counts = owners.counts_of_sorted(words)
    if counts is not None and counts.max() <= max_rows:
        return People(n_rows, None, np.concatenate([[0], np.cumsum(counts)]))
    low, high = int(words.min()), int(words.max())
    numbers = np.empty(n_rows, np.int64)
    counts, adjacent = owners.number_of_each(words, low, span if (span := high - low + 1) < 2 * n_rows else 0, numbers)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, max_rows))])
    if offsets[-1] == n_rows and (adjacent or not ordered):
        return People(n_rows, None, offsets)
    if not ordered:
        counting = np.empty(n_rows, bool)
        owners.first_of_each(numbers, len(counts), max_rows, counting.view(np.uint8))
        return People(n_rows, None, offsets, counting)
    order = np.empty(offsets[-1], np.int64)
    owners.rows_of_each(numbers, offsets, order)
    return People(n_rows, order, offsets)


def comparable(groups: object, numbers: dict[Hashable, int]) -> NDArray[Any]:
    """Return the ids as an array that can be compared and sorted, or numbers in their place, of ids by `numbers`."""
    check_unmasked(groups, "groups")
    if not hasattr(groups, "__array__"):
        groups = borrowed(groups, "groups")
    is_array = hasattr(groups, "__array__") or isinstance(groups, (array, memoryview))
    if isinstance(groups, (Mapping, Set)):
        raise ValueError(f"groups must be 1-D, with one id a row, got a {type(groups).__qualname__}")
    if isinstance(groups, (str, bytes)) or not (is_array or hasattr(groups, "__len__")):
        column = "; of a column of files, dpfast.io.RowOwners(files, column)" if isinstance(groups, str) else ""
        raise TypeError(f"groups must be a 1-D array of ids, got {type(groups).__qualname__}{column}")
    if not is_array:
        # As they are: NumPy would turn 1 into text where somebody else's id is text.
        return numbered(cast("Iterable[Any]", groups), numbers, "groups")
    ids = np.asarray(groups)
    if ids.ndim != 1:
        raise ValueError(f"groups must be 1-D, with one id a row, got {ids.ndim} dimensions")
    if ids.dtype.kind == "O":
        return numbered(ids, numbers, "groups")
    if ids.dtype.kind not in "biufSUmM":
        raise TypeError(f"groups has dtype {dtype_name(ids)}; integers, floats, strings, dates or objects are needed")
    if (ids.dtype.kind == "f" and np.isnan(ids).any()) or (ids.dtype.kind in "mM" and np.isnat(ids).any()):
        raise ValueError("groups has missing ids: every row needs one")
    return ids


def _words(ids: NDArray[Any]) -> IntArray:
    """Return a word for each id, equal where the ids are."""
    kind, size = ids.dtype.kind, ids.dtype.itemsize
    if kind == "f" and size <= 8:
        # Zero and minus zero are one id.
        ids = (ids.astype(np.float64) + 0.0).view(np.int64)
    elif kind not in "biumM":
        ids = np.unique(ids, return_inverse=True)[1]
    elif size == 8:
        ids = ids.astype(ids.dtype.newbyteorder("="), copy=False).view(np.int64)
    return in_c_order(ids, np.int64)
