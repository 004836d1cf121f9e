"""Whether all rows of a person are in one part, as was declared: answered by yes or no, without counting anybody.

Two sets that lie apart cannot be told to be disjoint without moving about as much as the smaller one holds, so
something for each person has to leave its part: here a word, the hash of the id under a secret key that whoever asks
draws for the question and forgets. Words of a share of all people move at a time, few enough to be held, in as many
passes as that takes. A yes is certain; a no may be of two ids that a key hashes alike, and is asked again under other
keys, which follow from the one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpfast.io.ids import numbered
from dpfast.io.owners import RowOwners
from dpfast.io.partitions import Partitions
from dpfast.io.people import comparable

Words = NDArray[np.uint64]
Answer = Words | Literal["met", "too many"]

# Words that are held at a time: 8 MB.
_MOST_WORDS = 1 << 20
_KEYS = 3


def is_partitioned_by_person(partitions: Partitions, key: bytes) -> bool:
    """Whether no person has rows in two parts of a table.

    What `partitioned_by` declares, and a fit takes as given: where it is wrong, a person counts once in each part. For
    the data owner: the answer is not private, nor is how long it takes. Hashes of ids under a secret key leave the
    parts, at most a million at a time, in about as many passes over the ids as there are millions of people, or more.

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
    if not isinstance(partitions, Partitions):
        raise TypeError(f"partitions must be a dpfast.io.Partitions, got {type(partitions).__qualname__}")
    if partitions.partitioned_by is None:
        raise ValueError("partitions must be declared to be partitioned by person, and hold ids")
    if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
        raise ValueError("key must be 16 to 64 secret bytes, such as secrets.token_bytes(32)")
    return any(not _meet(partitions, blake2b(bytes([number]), key=key).digest()) for number in range(_KEYS))


def _meet(partitions: Partitions, key: bytes) -> bool:
    """Whether a word is in two parts."""
    shares, share = 1, 0
    while share < shares:
        answer: Answer = partitions.reduce(_WordsOf(key, shares, share), _joined)
        if isinstance(answer, str) and answer == "met":
            return True
        if isinstance(answer, str):
            # Those of the shares so far that are done are so for their own shares of the smaller ones, too.
            shares, share = 8 * shares, 8 * share
        else:
            share += 1
    return False


@dataclass(frozen=True)
class _WordsOf:
    """The words of a part's people, of one of so many shares."""

    key: bytes
    shares: int
    share: int

    def __call__(self, x: Any, y: Any, ids: Any) -> Answer:
        if ids is None:
            raise ValueError("ids are needed in every part of a table that is partitioned by person")
        hashed = (blake2b(_told(one), digest_size=8, key=self.key).digest() for one in _distinct(ids))
        words = np.frombuffer(b"".join(hashed), np.uint64)
        # Of consecutive words: a share is made up of smaller ones.
        low, high = ((number << 64) // self.shares for number in (self.share, self.share + 1))
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
