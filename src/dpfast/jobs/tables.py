"""Tables of a job's results, as its report shows them; dpfast.io writes their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfast._documents import inert
from dpfast.io.writing import cells, shown_cell

#: Columns by name, of equal length.
Table = Mapping[str, Any]


def shown(table: Table, most: int) -> tuple[list[str], list[list[str]], int]:
    """Return a table's names, its first rows as people read them, and how many rows there are."""
    columns = [cells(column) for column in table.values()]
    rows = zip(*(column[:most] for column in columns), strict=True)
    shown_rows = [[inert(one) if isinstance(one, str) else shown_cell(one) for one in row] for row in rows]
    return list(map(inert, table)), shown_rows, len(columns[0])
