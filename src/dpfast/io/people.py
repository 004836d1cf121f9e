"""People who own several rows: the groups, and the rows that count.

Of each person's rows the first `max_rows` in the order of the table count. The choice depends on that person's rows
alone, so another person's rows never change somebody's part of a sum.

Two rows are one person's if their ids are equal, as Python compares them, and nothing else decides. So 1, 1.0 and True
are one person, and "1" is another, whoever else is in the table: ids are never converted to a common type, which would
be chosen by all of them together. An id must therefore be equal to itself, and equal to its copies.

Whether all rows of a person are in one part, as was declared, is answered without counting anybody. To find two distant
sets disjoint, about as much must move as the smaller one holds. So something for each person has to leave its part:
here a word, the hash of the id under a secret key. The caller draws the key for the question and forgets it. Words of a
share of all people move at a time, few enough to be held, in as many passes as that takes. A yes is certain. A no may
come from two ids with the same hash. It is asked again under other keys, derived from the one key.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast.io.columns import Part, check_named_once, table_parts
from dpfast.io.frames import MISSING, Batch
from dpfast.io.partitions import Partitions
from dpfast.io.sources import check_unmasked, dtype_name, zero_copy_view
from dpfast.kernels import people as kernel
from dpfast.kernels.columns import in_c_order

_PLAIN = frozenset({str, int, float, bytes, bool})


def numbered(ids: Iterable[Any], numbers: dict[Hashable, int], name: str) -> IntArray:
    """Return the number of each id, and add those not seen before to `numbers`.

    ValueError if an id is missing (None, NaN, NaT or NA, or a tuple or dataclass that holds one). TypeError if an id is
    not hashable, or is equal to no object but itself.
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
    """Return an id with Python's scalars for NumPy's: NumPy's compare entry by entry if another id is a sequence."""
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
            f"{name} holds an id that does not equal a copy of itself: ids are numbers, strings, bytes, dates, "
            "tuples of these, or objects with an equality of their own"
        )


def _equals_itself(one: object) -> bool:
    try:
        return bool(one == one)
    except TypeError:
        # pandas.NA compares as neither.
        return False


_Block = TypeVar("_Block")


@dataclass(frozen=True)
class People:
    """The rows that count, person after person: those of person i are order[offsets[i] : offsets[i + 1]].

    In table order within a person. `order` is None for all rows in their order, or if `counting` gives the rows that
    count and their owners were not requested. `n_rows` is the table's number of rows.
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

    def along(
        self, blocks: Iterable[_Block], length: Callable[[_Block], int], name: str = "X"
    ) -> Iterator[tuple[_Block, NDArray[np.bool_] | None]]:
        """Iterate over blocks of all rows, each with which of its rows count, or None if all of the table do."""
        kept, start = self.kept(), 0
        for block in blocks:
            stop = start + length(block)
            self.check_length(max(stop, self.n_rows), name)
            yield block, None if kept is None else kept[start:stop]
            start = stop
        self.check_length(start, name)

    def check_length(self, n_rows: int, name: str = "X") -> None:
        """Refuse a table with another number of rows than there are ids."""
        if self.n_rows != n_rows:
            raise ValueError(f"groups must have one id a row: {name} has another number of rows")


def people(groups: object, max_rows: int, *, ordered: bool = True) -> People:
    """Find the groups; the first `max_rows` rows of each person count.

    `groups` are the people that rows belong to, compared as Python compares them: 1 and 1.0 are one person, "1" is
    another. An array's ids are of its dtype; those of a list or another sequence stay as they are, whatever they are
    side by side with. They are only told apart: people come in the order of their first rows. Rows that are not
    consecutive are sorted by person, in two passes and two integers of memory a row, unless not needed `ordered`.
    """
    words = _words(comparable(groups, {}))
    n_rows = len(words)
    if n_rows == 0:
        return People(0, None, np.zeros(1, np.int64))
    counts = kernel.counts_of_sorted(words)
    if counts is not None and counts.max() <= max_rows:
        return People(n_rows, None, np.concatenate([[0], np.cumsum(counts)]))
    low, high = int(words.min()), int(words.max())
    numbers = np.empty(n_rows, np.int64)
    counts, adjacent = kernel.number_of_each(words, low, span if (span := high - low + 1) < 2 * n_rows else 0, numbers)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, max_rows))])
    if offsets[-1] == n_rows and (adjacent or not ordered):
        return People(n_rows, None, offsets)
    if not ordered:
        counting = np.empty(n_rows, bool)
        kernel.first_of_each(numbers, len(counts), max_rows, counting.view(np.uint8))
        return People(n_rows, None, offsets, counting)
    order = np.empty(offsets[-1], np.int64)
    kernel.rows_of_each(numbers, offsets, order)
    return People(n_rows, order, offsets)


def comparable(groups: object, numbers: dict[Hashable, int]) -> NDArray[Any]:
    """Return the ids as an array that can be compared and sorted, or numbers in their place, of ids by `numbers`."""
    check_unmasked(groups, "groups")
    if not hasattr(groups, "__array__"):
        groups = zero_copy_view(groups, "groups")
    is_array = hasattr(groups, "__array__") or isinstance(groups, (array, memoryview))
    if isinstance(groups, (Mapping, Set)):
        raise ValueError(f"groups must be 1-D, with one id a row, got a {type(groups).__qualname__}")
    if isinstance(groups, (str, bytes)) or not (is_array or hasattr(groups, "__len__")):
        column = "; of a column of files, dpfast.io.RowOwners(files, column)" if isinstance(groups, str) else ""
        raise TypeError(f"groups must be a 1-D array of ids, got {type(groups).__qualname__}{column}")
    if not is_array:
        # As they are: NumPy would turn 1 into text where somebody else's id is text.
        return numbered(cast("Iterable[Any]", groups), numbers, "groups")
    try:
        ids = np.asarray(groups)
    except (IndexError, NotImplementedError):
        ids = None
    if ids is None:  # not within the block: the error would be quoted as context
        raise ValueError(
            "groups cannot be read as an array of ids: its Arrow type has no such array, or it holds codes outside "
            "of its dictionary"
        )
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


class RowOwners:
    """The owner of each row, as a number; read when an array is made of it. Not private.

    An id is compared as it stands: as text in a CSV file, with " 7" and "07" as two people, as a number or as text if
    the table has types. It takes an integer of memory for each row, and the distinct ids.

    Parameters
    ----------
    table : table
        As for `Columns.encode`, but for one that can be read once only.
    name : str
        The column of ids.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpfast.io import RowOwners
    >>> np.asarray(RowOwners(pd.DataFrame({"patient": ["b", "a", "b"]}), "patient"))
    array([0, 1, 0])
    """

    def __init__(self, table: Any, name: str) -> None:
        self.source = table
        self._name = check.text("name", name)

    def check(self) -> None:
        """Refuse a table with parts that lack the column, or hold ids of different kinds; no rows are read."""
        kinds = {kind for part in table_parts(self.source) if (kind := self._kind(part)) != "any"}
        if len(kinds) > 1:
            raise TypeError(f"column {self._name!r} holds text in some parts of the table and numbers in others")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read the column; ValueError if an id is missing, TypeError if one is not to be compared."""
        return self._read()[0].astype(dtype or np.int64, copy=False)

    def distinct(self) -> Iterable[Hashable]:
        """Return the ids that there are, each once, in the order of their first rows. Internal."""
        return self._read()[1]

    def _read(self) -> tuple[IntArray, dict[Hashable, int]]:
        self.check()
        numbers: dict[Hashable, int] = {}
        found = [np.empty(0, np.int64)]
        for part in table_parts(self.source):
            for batch in part.read({self._name: "text"}):
                found.append(numbered_column(batch, self._name, numbers))
        return np.concatenate(found), numbers

    def _kind(self, part: Part) -> str:
        check_named_once(self._name, part, [self._name])
        if part.families is None:
            return "text"
        family = part.families[self._name]
        if family.name == "other":
            raise TypeError(f"column {self._name!r} of {part.label} holds {family.dtype}; ids are numbers or text")
        return "text" if family.name == "object" else family.name

    def __repr__(self) -> str:
        return f"<RowOwners by {self._name!r}: not private>"


Words = NDArray[np.uint64]
Answer = Words | Literal["met", "too many"]

# Words that are held at a time: 8 MB.
_MOST_WORDS = 1 << 20
_KEYS = 3


def is_partitioned_by_person(partitions: Partitions, key: bytes) -> bool:
    """Whether no person has rows in two parts of a table.

    It checks the declaration `partitioned_by`, which a fit takes as given: if it is wrong, a person counts once in each
    part. For the data owner: the answer is not private, nor is how long it takes. Hashes of ids under a secret key
    leave the parts, at most a million at a time, in about as many passes over the ids as there are millions of people,
    or more.

    Parameters
    ----------
    partitions : Partitions
        Declared to be partitioned by person, with ids of numbers, text, bytes, dates or tuples of them.
    key : bytes
        From 16 to 64, secret and for this question alone: what else hashes leave could be tried out on lists of people.

    Returns
    -------
    bool

    Raises
    ------
    ValueError, TypeError
        If parts have no ids, or one is missing or of another kind; no message tells an id.

    Examples
    --------
    >>> from secrets import token_bytes
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> from dpfast.io import DaskPartitions, is_partitioned_by_person
    >>> def parts(*ids):
    ...     rows = dd.from_pandas(pd.DataFrame({"x": 1.0, "id": ids}), npartitions=2)
    ...     return DaskPartitions(rows[["x"]], ids=rows["id"], partitioned_by="person")
    >>> is_partitioned_by_person(parts("b", "b", "a", "a"), token_bytes(32))
    True
    >>> is_partitioned_by_person(parts("b", "a", "b", "a"), token_bytes(32))
    False
    """
    check.instance("partitions", partitions, Partitions, "a dpfast.io.Partitions")  # type: ignore[type-abstract]
    if partitions.partitioned_by is None:
        raise ValueError("partitions must be declared to be partitioned by person, and hold ids")
    if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
        raise ValueError("key must be 16 to 64 secret bytes, such as secrets.token_bytes(32)")
    return any(not _meet(partitions, blake2b(bytes([number]), key=key).digest()) for number in range(_KEYS))


def _meet(partitions: Partitions, key: bytes) -> bool:
    """Whether a word is in two parts."""
    shares, share = 1, 0
    while share < shares:
        answer: Answer = partitions.reduce(partial(_words_of, key, shares, share), _joined)
        if isinstance(answer, str) and answer == "met":
            return True
        if isinstance(answer, str):
            # Those of the shares so far that are done are so for their own shares of the smaller ones, too.
            shares, share = 8 * shares, 8 * share
        else:
            share += 1
    return False


def _words_of(key: bytes, shares: int, share: int, x: Any, y: Any, ids: Any) -> Answer:
    """Return the words of a part's people, of one of so many shares."""
    if ids is None:
        raise ValueError("ids are needed in every part of a table that is partitioned by person")
    hashed = (blake2b(_told(one), digest_size=8, key=key).digest() for one in _distinct(ids))
    words = np.frombuffer(b"".join(hashed), np.uint64)
    # Of consecutive words: a share is made up of smaller ones.
    low, high = ((number << 64) // shares for number in (share, share + 1))
    return _held(np.unique(words[(words >= np.uint64(low)) & (words <= np.uint64(high - 1))]))


def _joined(one: Answer, other: Answer) -> Answer:
    if isinstance(one, str) or isinstance(other, str):
        return "met" if "met" in (str(one), str(other)) else "too many"
    both = np.sort(np.concatenate([one, other]))
    return "met" if np.any(both[1:] == both[:-1]) else _held(both)


def _held(words: Words) -> Answer:
    return words if len(words) <= _MOST_WORDS else "too many"


def _distinct(ids: Any) -> Iterable[Hashable]:
    """Return a part's ids, each once."""
    if isinstance(ids, RowOwners):
        return ids.distinct()
    numbers: dict[Hashable, int] = {}
    found = comparable(ids, numbers)
    if not numbers:
        numbered(np.unique(found), numbers, "groups")
    return numbers


def _told(one: Any) -> bytes:
    """Return bytes that are the same for equal ids, and for no others."""
    if isinstance(one, tuple):
        return b"(" + b"".join(len(part).to_bytes(8) + part for part in map(_told, one))
    if isinstance(one, str):
        return b"s" + one.encode("utf-8", "surrogatepass")
    if isinstance(one, bytes):
        return b"b" + one
    if isinstance(one, int | float) and one == one // 1:
        return b"i" + str(int(one)).encode()
    if isinstance(one, float):
        return b"f" + one.hex().encode()
    if isinstance(one, datetime | date | timedelta):
        return b"d" + str(one).encode()
    raise TypeError("ids must be numbers, text, bytes, dates or tuples of these to be checked where they lie")
