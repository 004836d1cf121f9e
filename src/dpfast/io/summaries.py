"""Tables of results: one form for all objects with a `summary`, as pandas' frames and as files.

Of the files, CSV, Parquet, JSON, LaTeX and Markdown, the first three hold floats to the bit; the others, which are read
by people, hold five digits of them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast import _arguments as check
from dpfast._documents import inert, printed, replace_file, spelled_out
from dpfast._optional import optional
from dpfast.io.sources import is_frame

if TYPE_CHECKING:
    from pandas import DataFrame


#: Columns by name, of equal length.
Columns = Mapping[str, Any]


def tabulated(index: Columns, columns: Columns) -> DataFrame:
    """Return a frame, which prints every column, with the names of the tabulated items as its index."""
    pandas = optional("pandas", "summary")
    # A label may be a tuple, as a state is: it is one label all the same.
    levels = [pandas.Index(labels, name=name, tupleize_cols=False) for name, labels in index.items()]
    rows = levels[0] if len(levels) == 1 else pandas.MultiIndex.from_arrays(levels)
    return printed_whole(pandas.DataFrame(dict(columns), index=rows))


def write_table(table: DataFrame | Columns, path: str | os.PathLike[str]) -> None:
    """Write a table to a file of the format that its name ends with: .csv, .parquet, .json, .tex or .md.

    Parameters
    ----------
    table : pandas.DataFrame, or mapping of str to columns
        Such as `summary` returns. Levels of the index that have names become the first columns.
    path : path-like
        Replaced as a whole if it exists. JSON is a list of rows; ``pandas.read_json`` reads it, null where nothing is
        known. LaTeX is a ``tabular`` for the package booktabs, with numbers of five digits; everything is escaped, and
        so it is in Markdown, whose tables are GitHub's. In CSV
        an apostrophe stands before text that a spreadsheet would compute, such as ``=cmd``.

    Raises
    ------
    ValueError
        If the name ends otherwise, or two columns have one name.
    TypeError
        If the table is neither.
    ImportError
        If PyArrow, which writes Parquet, is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpfast.io import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table({"state": ["a", "b"], "value": [0.5, None]}, Path(folder) / "values.csv")
    ...     print((Path(folder) / "values.csv").read_text())
    state,value
    a,0.5
    b,
    <BLANKLINE>
    """
    target = os.path.realpath(os.fspath(path))
    suffix = os.path.splitext(target)[1].lower().removeprefix(".")
    if suffix not in WRITERS:
        accepted = ", ".join(f".{one}" for one in WRITERS)
        raise ValueError(f"path must end with one of {accepted}, got {os.path.basename(target)!r}")
    content = WRITERS[suffix](table_columns(table))
    replace_file(target, content, f"{target}.{os.getpid()}-{threading.get_ident()}.tmp")


def table_columns(table: Any) -> Columns:
    """Return a table as columns by name, those of an index that has names first."""
    if isinstance(table, Mapping):
        return table
    if not is_frame(table) or table.ndim != 2:
        raise TypeError(f"table must be a pandas DataFrame or columns by name, got a {type(table).__name__}")
    named = [level for level, name in enumerate(table.index.names) if name is not None]
    parts = [(table.index.names[level], table.index.get_level_values(level).to_series()) for level in named]
    parts += [(name, table.iloc[:, place]) for place, name in enumerate(table.columns)]
    names = [str(name) for name, _ in parts]
    if len(set(names)) < len(names):
        raise ValueError("table must have columns, and levels of its index, of different names")
    return {name: _series(series) for name, (_, series) in zip(names, parts, strict=True)}


def _series(series: Any) -> Any:
    """Return a column of pandas' as an array, or as a list with None where an entry is missing."""
    missing = series.isna()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufM" and not missing.any():
        return series.to_numpy()
    return [None if absent else entry for entry, absent in zip(series.tolist(), missing, strict=True)]


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


def shown_cell(entry: object) -> str:
    """Return an entry as people read it."""
    if isinstance(entry, float):
        return f"{entry:.5g}"
    return "" if entry is None else str(entry)


def csv_bytes(table: Columns) -> bytes:
    """Write CSV: floats as the shortest decimals that read back to the same bits, unknown values as nothing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(inert, map(str, table)))
    writer.writerows([inert(one) if isinstance(one, str) else one for one in row] for row in _rows(table))
    return text.getvalue().encode()


def parquet_bytes(table: Columns) -> bytes:
    """Write Parquet, with nothing in it but the table."""
    pa, parquet = (optional(name, "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    sink = io.BytesIO()
    parquet.write_table(pa.table({name: pa.array(cells(column)) for name, column in table.items()}), sink)
    return sink.getvalue()


def json_bytes(table: Columns) -> bytes:
    """Write JSON: a list of rows, null for unknown values, and other values without a JSON number as in documents."""
    rows = (
        {name: None if entry != entry else spelled_out(_plain(entry)) for name, entry in zip(table, row, strict=True)}
        for row in _rows(table)
    )
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    return f"[\n{lines}\n]\n".encode()


def latex_bytes(table: Columns) -> bytes:
    """Write a tabular of booktabs: text to the left, numbers to the right, of five digits."""
    rows = _rows(table)
    is_number = [all(_is_number(row[place]) for row in rows) for place in range(len(table))]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if numeric else 'l' for numeric in is_number)}}}",
        r"\toprule",
        _latex_row(map(_escaped, map(str, table))),
        r"\midrule",
        *(_latex_row(map(_latex_cell, row)) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, ""]).encode()


def markdown_bytes(table: Columns) -> bytes:
    """Write Markdown: a table of five digits, nothing where nothing is known."""
    return "\n".join([*markdown_lines(table), ""]).encode()


def markdown_lines(table: Columns) -> list[str]:
    """Return the lines of a table in Markdown."""
    rows = (["" if one != one else shown_cell(one) for one in row] for row in _rows(table))
    return markdown_table(list(map(str, table)), rows)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with entries of text, shown as they are."""
    lines = [f"| {' | '.join(map(plain_markdown, row))} |" for row in (header, *rows)]
    return [lines[0], f"| {' | '.join(['---'] * len(header))} |", *lines[1:]]


def plain_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _MARKDOWN_SIGNS.sub(r"\\\1", " ".join(printed(text).split()))


# What Markdown, or the HTML that it may hold, gives a meaning to.
_MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")

#: What writes each format, by how names of files end.
WRITERS: dict[str, Callable[[Columns], bytes]] = {
    "csv": csv_bytes,
    "parquet": parquet_bytes,
    "json": json_bytes,
    "tex": latex_bytes,
    "md": markdown_bytes,
}

# What TeX gives a meaning to.
_MEANT = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_SIGNS = re.compile("[" + re.escape("".join(_MEANT)) + "]")


def _rows(table: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*map(cells, table.values()), strict=True))


def _plain(entry: Any) -> Any:
    return entry if entry is None or isinstance(entry, bool | int | float | str) else str(entry)


def _is_number(entry: object) -> bool:
    return entry is None or (isinstance(entry, int | float) and not isinstance(entry, bool))


def _latex_cell(entry: Any) -> str:
    if entry is None or entry != entry:
        return ""
    if not _is_number(entry):
        return _escaped(shown_cell(entry))
    if isinstance(entry, float) and math.isinf(entry):
        return rf"${'-' if entry < 0.0 else ''}\infty$"
    digits, _, power = shown_cell(entry).partition("e")
    if power:
        return rf"${digits} \cdot 10^{{{int(power)}}}$"
    return f"${digits}$" if digits.startswith("-") else digits


def _escaped(text: str) -> str:
    return _SIGNS.sub(lambda sign: _MEANT[sign.group()], " ".join(printed(text).split()))


def _latex_row(entries: Sequence[str] | Any) -> str:
    # Brackets at the start of a row would be read as an argument of what ends the row before.
    row = " & ".join(entries)
    return ("{}" if row.startswith(("[", "*")) else "") + row + r" \\"


def normal_reach(level: float) -> float:
    """Return how many standard deviations normal limits of a level are from their middle."""
    from scipy.special import ndtri

    return float(ndtri((1.0 + check.share("level", level)) / 2.0))


@dataclass(frozen=True)
class Estimates:
    """Columns of estimates by the names of their items, and the header above them."""

    #: Levels of the index, and columns, by name; of equal length.
    index: Columns
    columns: Columns
    #: What readers must know of all rows: the frame's ``attrs``.
    header: Mapping[str, Any] = field(default_factory=dict)

    def frame(self) -> DataFrame:
        """Return them as a frame that prints its header and every column."""
        table = tabulated(self.index, self.columns)
        table.attrs.update({name: one for name, one in self.header.items() if one is not None})
        return table

    def written(self) -> dict[str, Any]:
        """Return them as files have them: index first, and None where nothing is known."""
        return {name: list(labels) for name, labels in self.index.items()} | {
            name: [_known(one) for one in np.asarray(column).tolist()] for name, column in self.columns.items()
        }


def printed_whole(table: DataFrame) -> DataFrame:
    """Return a frame that prints every column; once pandas is known to be there."""
    from dpfast.io.summary_frame import SummaryFrame

    return SummaryFrame(table)


def header_lines(attrs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a header, each with its label first."""
    if "estimator" in attrs:
        yield "estimator", str(attrs["estimator"])
    if "n" in attrs:
        yield "n", f"{attrs['n']:,} {attrs.get('unit', 'people')}"
    if "guarantee" in attrs:
        yield "guarantee", str(attrs["guarantee"])
    if "level" in attrs:
        yield "limits", f"{100.0 * attrs['level']:g}%" + (f", target: {attrs['target']}" if "target" in attrs else "")
    if "r_squared" in attrs:
        told = attrs["r_squared"]
        each = [f"{one:.3f}" if len(told) == 1 else f"{name} {one:.3f}" for name, one in told.items()]
        yield "R-squared", ", ".join(each)
    if "note" in attrs:
        yield "note", str(attrs["note"])


def _known(entry: Any) -> Any:
    return None if isinstance(entry, float) and entry != entry else entry
