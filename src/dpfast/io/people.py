"""People who own several rows: whose rows are whose, and which of them count.

Of each person's rows the first `max_rows` in the order of the table count. Which these are depends on that person's
rows alone, so another person's rows never change what somebody adds to a sum.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import IntArray
from dpfast.io.blocks import dtype_name
from dpfast.io.ids import numbered


@dataclass(frozen=True)
class People:
    """The rows that count, person after person: those of person i are order[offsets[i] : offsets[i + 1]].

    In table order within a person; `order` is None for all rows as they lie, `n_rows` is the table's number of rows.
    """

    n_rows: int
    order: IntArray | None
    offsets: IntArray

    @property
    def n_people(self) -> int:
        """Number of people."""
        return len(self.offsets) - 1

    def kept(self) -> NDArray[np.bool_] | None:
        """Return which rows count, as a mask of the table, or None if all do."""
        if self.offsets[-1] == self.n_rows:
            return None
        mask = np.zeros(self.n_rows, bool)
        mask[self.order] = True
        return mask


def people(groups: object, max_rows: int, *, ordered: bool = True) -> People:
    """Find whose rows are whose; of each person's, the first `max_rows` count.

    `groups` are the people that rows belong to, compared as Python compares them: 1 and 1.0 are one person, "1" is
    another. An array's ids are of its dtype; those of a list or another sequence stay as they are, whatever they are
    side by side with. They are only told apart: people come in the order of their first rows. Those whose rows are
    consecutive are found in one pass; otherwise rows are sorted by person, stably, which takes a few integers of memory
    a row, unless they are not needed `ordered` and all count: then `order` is None.
    """
    codes = _comparable(groups)
    n_rows = len(codes)
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[:n_rows]
    first, offsets = codes[starts], np.append(starts, n_rows).astype(np.int64)
    order: IntArray | None = None
    # Where no run of equal ids is that of a person seen before, rows are in order: at once if ids increase.
    if not np.all(first[1:] > first[:-1]) and np.any((runs := _numbered(first)) != np.arange(len(first))):
        numbers = np.repeat(runs, np.diff(offsets))
        counts = np.bincount(numbers)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if ordered or counts.max() > max_rows:
            order = _stable_order(numbers)
    return _capped(People(n_rows, order, offsets), max_rows)


def _capped(everyone: People, max_rows: int) -> People:
    """Drop the rows of each person beyond the first so many."""
    counts = np.diff(everyone.offsets)
    if len(counts) == 0 or counts.max() <= max_rows:
        return everyone
    rank = np.arange(everyone.n_rows) - np.repeat(everyone.offsets[:-1], counts)
    counting = rank < max_rows
    order = np.flatnonzero(counting) if everyone.order is None else everyone.order[counting]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, max_rows))])
    return People(everyone.n_rows, order.astype(np.int64, copy=False), offsets.astype(np.int64))


def _comparable(groups: object) -> NDArray[Any]:
    """Return the ids, or numbers in their place, as an array that can be compared and sorted."""
    if isinstance(groups, np.ma.MaskedArray):
        raise TypeError("groups is a masked array; every row needs a person")
    is_array = hasattr(groups, "__array__") or isinstance(groups, (array, memoryview))
    if isinstance(groups, (Mapping, Set)):
        raise ValueError(f"groups must be 1-D, with one id a row, got a {type(groups).__qualname__}")
    if isinstance(groups, (str, bytes)) or not (is_array or hasattr(groups, "__len__")):
        raise TypeError(f"groups must be a 1-D array of ids, got {type(groups).__qualname__}")
    if not is_array:
        # As they are: NumPy would turn 1 into text where somebody else's id is text.
        return numbered(cast("Iterable[Any]", groups), {}, "groups")
    ids = np.asarray(groups)
    if ids.ndim != 1:
        raise ValueError(f"groups must be 1-D, with one id a row, got {ids.ndim} dimensions")
    if ids.dtype.kind == "O":
        return numbered(ids, {}, "groups")
    if ids.dtype.kind not in "biufSUmM":
        raise TypeError(f"groups has dtype {dtype_name(ids)}; integers, floats, strings, dates or objects are needed")
    if (ids.dtype.kind == "f" and np.isnan(ids).any()) or (ids.dtype.kind in "mM" and np.isnat(ids).any()):
        raise ValueError("groups has missing ids: every row needs one")
    return ids


def _stable_order(numbers: IntArray) -> IntArray:
    """Return the stable sorting order of nonnegative numbers: by 16 bits at a time, which NumPy sorts by radix."""
    largest, shift = int(numbers.max()), 0
    order: IntArray = np.arange(len(numbers))
    while shift == 0 or largest >> shift > 0:
        digits = (numbers[order] >> shift).astype(np.uint16)
        order = order[np.argsort(digits, kind="stable")]
        shift += 16
    return order


def _numbered(codes: NDArray[Any]) -> IntArray:
    """Return a number from 0 for each id, in the order in which they come first: that of ids decides nothing."""
    numbers = _narrow(codes)
    if numbers is None:
        numbers = np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)
    rows = np.arange(len(numbers))
    first = np.empty(numbers.max() + 1, np.int64)
    first[numbers[::-1]] = rows[::-1]
    comes_first = first[numbers] == rows
    ranks: IntArray = (np.cumsum(comes_first) - 1)[first[numbers]]
    return ranks


def _narrow(codes: NDArray[Any]) -> IntArray | None:
    """Return integers of a narrow range, counted from 0, which saves sorting them; None for any other ids."""
    if codes.dtype.kind not in "iu":
        return None
    low, high = int(codes.min()), int(codes.max())
    if high - low >= 2 * len(codes):
        return None
    wide = codes.astype(np.int64) if codes.dtype.kind == "i" else codes
    return (wide - wide.dtype.type(low)).astype(np.int64)
