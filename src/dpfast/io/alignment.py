"""Tables that go together row by row: features, outcomes, whose each row is.

Rows are paired by their place. Where pandas knows which record a row is, places must agree with it: rows paired with
other people's outcomes are fitted in silence otherwise. Like different lengths, different indices make no table, for
any records; what is said of them is that they differ. A query has no places, so nothing goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from os import PathLike
from typing import Any

from dpfast._own_words import in_own_words
from dpfast.io.borrowed import check_unmasked
from dpfast.io.columns import EncodedTable
from dpfast.io.frames import is_frame
from dpfast.io.owners import RowOwners
from dpfast.io.streams import is_arrow, is_query


def is_unordered(table: Any) -> bool:
    """Whether a table's rows, or those of one in a list, come in no order that holds from one reading to the next."""
    source = _source(table)
    if not isinstance(source, list | tuple):
        return is_query(source)
    # Its type says whether an object is a query, and a list may hold a number a row.
    return any(map(is_query, {type(one): one for one in source}.values()))


def check_aligned(**tables: Any) -> None:
    """Refuse tables, by the names of their arguments and None left out, that cannot be paired row by row."""
    given = [(name, _source(table)) for name, table in tables.items() if table is not None]
    for name, table in given:
        check_unmasked(table, name)
        if len(given) > 1 and is_unordered(table):
            raise TypeError(
                f"{name} is a query, whose rows come in no fixed order, so that no other table can go with it row by "
                "row: collect it, or give one table of features and outcomes, "
                "dpfast.io.Columns(features, outcomes).encode(query)"
            )
    if len(given) < 2:
        return
    for (name, index), (other_name, other) in combinations([(name, _index_of(table)) for name, table in given], 2):
        if index is None or other is None or (index is _UNKNOWN and other is _UNKNOWN):
            continue
        if index is _UNKNOWN or other is _UNKNOWN or not _same_index(index, other):
            raise ValueError(
                f"{name} and {other_name} have different indices: align their rows first (or pass them as arrays, if "
                "rows at the same place belong together)"
            )


def _source(table: Any) -> Any:
    return table.source if isinstance(table, EncodedTable | RowOwners) else table


#: In the place of the index of an iterable's rows, which is not to be used up.
_UNKNOWN = object()


def _index_of(table: Any) -> Any:
    """Return the pandas index of a table's rows, those of listed tables joined; None where places are all there is."""
    if is_frame(table):
        return table.index
    if isinstance(table, list | tuple):
        first = (item[0] if isinstance(item, tuple) and item else item for item in table)
        # One look at each type: a list may hold a number a row.
        if not any(map(is_frame, {type(one): one for one in first}.values())):
            return None
        frames = [item[0] if isinstance(item, tuple) else item for item in table]
        return frames[0].index.append([one.index for one in frames[1:]]) if all(map(is_frame, frames)) else _UNKNOWN
    is_iterable = isinstance(table, Iterable) and not (hasattr(table, "shape") or isinstance(table, str | PathLike))
    return _UNKNOWN if is_iterable and not (is_arrow(table) or hasattr(table, "__array__")) else None


def _same_index(index: Any, other: Any) -> bool:
    def compare() -> bool:
        return index is other or bool(index.equals(other))

    return in_own_words(compare, "indices of tables hold labels that cannot be compared")
