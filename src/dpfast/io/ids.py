"""Ids of people: two rows are one person's if their ids are equal, as Python compares them, and nothing else decides.

So 1, 1.0 and True are one person, and "1" is another, whoever else is in the table: ids are never converted to a common
type, which would be chosen by all of them together. An id must therefore be equal to itself, and equal to its copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from dpfast._arrays import IntArray
from dpfast.io.named import MISSING, Batch

_PLAIN = frozenset({str, int, float, bytes, bool})


def numbered(ids: Iterable[Any], numbers: dict[Hashable, int], name: str) -> IntArray:
    """Return the number of each id, and add those not seen before to `numbers`.

    ValueError if an id is missing (None, NaN, NaT or NA, or a tuple or dataclass that holds one), TypeError if one is
    not hashable, or is equal to nothing but the very object that it is.
    """
    known = len(numbers)
    try:
        keys = (one if type(one) in _PLAIN else _key(one) for one in ids)
        codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    except TypeError:
        raise TypeError(f"{name} holds an id that is not hashable") from None
    for one in list(numbers)[known:]:
        _check(one, name)
    return codes


def numbered_column(batch: Batch, name: str, numbers: dict[Hashable, int]) -> IntArray:
    """Return the number of each row's id, which a column of a table holds."""
    places, ids = batch.distinct(name)
    if np.any(places == MISSING):
        raise ValueError(f"column {name!r} has missing ids: every row needs one")
    # A dictionary may hold ids that no row has.
    used, rows, among = np.unique(places, return_index=True, return_inverse=True)
    order = np.argsort(rows)
    codes = np.empty(len(used), np.int64)
    codes[order] = numbered([ids[place] for place in used[order].tolist()], numbers, f"column {name!r}")
    return codes[among]


def _key(one: Any) -> Any:
    """Return an id with Python's scalars for NumPy's, which compare entry by entry where another id is a sequence."""
    if isinstance(one, tuple):
        return tuple(map(_key, one))
    if not isinstance(one, np.generic):
        return one
    key = one.item()
    # Times of a resolution that Python has no type for come as integers, and times that are missing as None.
    return (one.dtype.str, key) if one.dtype.kind in "mM" and isinstance(key, int) else key


def _check(one: object, name: str) -> None:
    if isinstance(one, tuple | frozenset):
        for part in one:
            _check(part, name)
    elif is_dataclass(one) and type(one).__eq__ is not object.__eq__:
        for field in fields(one):
            _check(getattr(one, field.name), name)
    elif one is None or not _equals_itself(one):
        raise ValueError(f"{name} has missing ids: every row needs one")
    elif type(one).__eq__ is object.__eq__ and not isinstance(one, Enum):
        raise TypeError(
            f"{name} holds an id that equals no copy of itself: ids are numbers, strings, bytes, dates, tuples of "
            "these, or objects with an equality of their own"
        )


def _equals_itself(one: object) -> bool:
    try:
        return bool(one == one)
    except TypeError:
        # pandas.NA compares as neither.
        return False
