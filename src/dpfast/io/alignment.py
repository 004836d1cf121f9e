"""Tables that go together row by row: features, outcomes, whose each row is.

Rows are paired by their place. Where pandas knows which record a row is, places must agree with it: rows paired with
other people's outcomes are fitted in silence otherwise. Like different lengths, different indices make no table, for
any records; what is said of them is that they differ. A query has no places, so nothing goes with it.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from dpfast.io.columns import EncodedTable
from dpfast.io.frames import is_frame
from dpfast.io.own_words import in_own_words
from dpfast.io.owners import RowOwners
from dpfast.io.streams import is_query


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
        if len(given) > 1 and is_unordered(table):
            raise TypeError(
                f"{name} is a query, whose rows come in no fixed order, so that no other table can go with it row by "
                "row: collect it, or give one table of features and outcomes, "
                "dpfast.io.Columns(features, outcomes).encode(query)"
            )
    for (name, table), (other_name, other) in combinations(given, 2):
        if is_frame(table) and is_frame(other) and not _same_index(table, other):
            raise ValueError(
                f"{name} and {other_name} have different indices: align their rows first (or pass them as arrays, if "
                "rows at the same place belong together)"
            )


def _source(table: Any) -> Any:
    return table.source if isinstance(table, EncodedTable | RowOwners) else table


def _same_index(table: Any, other: Any) -> bool:
    def compare() -> bool:
        return table.index is other.index or bool(table.index.equals(other.index))

    return in_own_words(compare, "indices of tables hold labels that cannot be compared")
