"""Tables of a job's results, as CSV and Parquet: both hold floats to the bit."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfast._optional import optional

#: Columns by name, of equal length.
Table = Mapping[str, Any]


def cells(column: Any) -> list[Any]:
    """Return entries as Python has them: dates as text, and text alone where kinds of labels are mixed."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "M":
            return list(map(str, np.datetime_as_string(column, unit="auto")))
        return list(column.tolist())
    kinds = {type(entry) for entry in column if entry is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return list(column)
    return [entry if entry is None else str(entry) for entry in column]


def csv_bytes(table: Table) -> bytes:
    """Write CSV: floats as the shortest decimals that read back to the same bits, nothing where nothing is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*map(cells, table.values()), strict=True))
    return text.getvalue().encode()


def parquet_bytes(table: Table) -> bytes:
    """Write Parquet, with nothing in it but the table."""
    pa, parquet = (optional(name, "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    sink = io.BytesIO()
    parquet.write_table(pa.table({name: pa.array(cells(column)) for name, column in table.items()}), sink)
    return sink.getvalue()


def shown(table: Table, most: int) -> tuple[list[str], list[list[str]], int]:
    """Return a table's names, its first rows as people read them, and how many rows there are."""
    columns = [cells(column) for column in table.values()]
    rows = zip(*(column[:most] for column in columns), strict=True)
    return list(table), [list(map(_text, row)) for row in rows], len(columns[0])


def concatenated(tables: Sequence[Table]) -> Table:
    """Return tables of the same columns below one another."""
    return {name: [entry for table in tables for entry in cells(table[name])] for name in tables[0]}


def _text(entry: object) -> str:
    if isinstance(entry, float):
        return f"{entry:.5g}"
    return "" if entry is None else str(entry)
