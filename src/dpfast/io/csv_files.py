"""CSV files as blocks of rows: a line is a row, whatever it holds. pyarrow is imported when a file is opened.

A parser of CSV lets a quote run on over the ends of lines, so that one person's cell may swallow other people's rows.
Here a row ends with its line. Some lines are rows with all cells missing: a line with another number of cells than the
first, an empty line, and one with an unclosed quote or a carriage return in it. The declaration for missing entries
decides their treatment. A quoted line break is therefore two such rows.

Lines are cut and mended here, and pyarrow reads whole lines only. Its messages quote cells and count rows. So its
errors are replaced by one that names the file and, if declared, the column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpfast._redacted import redact_errors
from dpfast.io.arrow import ArrowBatch, Batches, one_ahead, rows_of
from dpfast.io.sources import arrow_library, check_openable
from dpfast.kernels.columns import Rows

# What an empty cell may hold.
NULL_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")

_BLOCK_BYTES = 1 << 22
_HOLDS = {
    "number": "numbers{0}; a number is written 1200.5, without currency signs, units or separators of thousands",
    "boolean": "true, false, 1 or 0{0}",
    "text": "text in UTF-8",
    "levels": "text in UTF-8",
}
# A quote opens a cell at its begin only, is closed on its line, and two within it are one.
_CELL = rb'(?:"(?:[^"\r\n]|"")*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'


def csv_blocks(path: Path, name: str) -> Iterator[Rows]:
    """Iterate over a CSV file, every column a number; two blocks in memory at a time."""
    names = csv_names(path)
    if any(one in NULL_WORDS or _reads_as_number(one) for one in names):
        # It is somebody's row, and its words are not the caller's.
        raise ValueError(f"{str(path)!r} holds values in its first line: that of a CSV file must name its columns")
    pyarrow = arrow_library(repr(str(path)))
    schema = pyarrow.schema([(column, pyarrow.float64()) for column in names])
    batches = csv_batches(path, dict.fromkeys(names, "number"), declared=False)
    yield from rows_of((batch.batch for batch, _ in one_ahead(batches)), schema, name)


def csv_names(path: Path) -> list[str]:
    """Read the first line of a CSV file: the names of its columns, unless it has none and that is somebody's row.

    No message quotes it.
    """
    check_openable(path)
    names = redact_errors(partial(_first_line, path), f"{str(path)!r} is not a CSV file in UTF-8, a line a row")
    if not names:
        raise ValueError(f"{str(path)!r} is empty: the first line of a CSV file must name its columns")
    if len(set(names)) < len(names):
        raise ValueError(f"{str(path)!r} has two columns of one name in its first line")
    return names


def csv_batches(path: Path, families: Mapping[str, str], *, declared: bool = True) -> Batches:
    """Iterate over batches of some columns of a CSV file, and the share of the file that has been read.

    `families` maps the columns wanted to "number", "boolean", "text" or "levels": types are declared, never inferred
    from rows. Where names are not `declared` by the caller, messages say a column's place instead.
    """
    try:
        yield from _batches(path, families)
        return
    except _UnreadableError:
        pass
    raise ValueError(f"{str(path)!r} {_problem(path, families, declared)}")


class _UnreadableError(Exception):
    """Stands for an error of pyarrow's until it is known which column is to blame."""


def _batches(path: Path, families: Mapping[str, str]) -> Batches:
    pyarrow = arrow_library(repr(str(path)))
    names = csv_names(path)
    kinds = {"number": "float64", "boolean": "bool_", "text": "string", "levels": "string"}
    convert = pyarrow.csv.ConvertOptions(
        column_types={name: getattr(pyarrow, kinds[family])() for name, family in families.items()},
        include_columns=list(families),
        null_values=list(NULL_WORDS),
        true_values=["true", "True", "TRUE", "1", "1.0"],
        false_values=["false", "False", "FALSE", "0", "0.0"],
        strings_can_be_null=True,
    )
    parse = pyarrow.csv.ParseOptions(ignore_empty_lines=False)

    def read(lines: bytes) -> Any:
        # An empty line of ours comes first: a mark of the order of bytes at the start of a block is part of its line.
        options = pyarrow.csv.ReadOptions(column_names=names, skip_rows=1, block_size=len(lines) + 1, use_threads=False)
        table = partial(pyarrow.csv.read_csv, pyarrow.BufferReader(b"\n" + lines), options, parse, convert)
        return redact_errors(table, "", _UnreadableError)

    size = max(1, path.stat().st_size)
    with closing(_line_blocks(path)) as blocks:
        for n_read, block in blocks:
            for batch in _read_lines(block, len(names), read).to_batches():
                yield ArrowBatch(batch), n_read / size


def _read_lines(block: bytes, n_cells: int, read: Callable[[bytes], Any]) -> Any:
    """Read lines of so many cells; without quotes and carriage returns, pyarrow refuses all that need mending."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    if b'"' not in block and b"\r" not in block:
        with suppress(_UnreadableError):
            return read(block)
    return read(_mended(block, n_cells))


def _line_blocks(path: Path) -> Generator[tuple[int, bytes], None, None]:
    """Iterate over whole lines but the first, about a block at a time, each block with where it ends in the file."""
    with path.open("rb") as file:
        file.readline()
        while block := file.read(_BLOCK_BYTES):
            block += file.readline()
            yield file.tell(), block


def _mended(block: bytes, n_cells: int) -> bytes:
    """Return lines with that many cells each. A parser reads them alike, whatever lies before them."""
    line = re.compile(_CELL + rb"(?:,%b){%d}" % (_CELL, n_cells - 1))
    empty = b"," * (n_cells - 1)
    lines = block.removesuffix(b"\n").split(b"\n")
    return b"".join((one if line.fullmatch(one) else empty) + b"\n" for one in lines)


def _problem(path: Path, families: Mapping[str, str], declared: bool) -> str:
    """Find the column to blame by reading the file again, half of the columns at a time."""

    def is_readable(chosen: Mapping[str, str]) -> bool:
        try:
            for _ in _batches(path, chosen):
                pass
        except _UnreadableError:
            return False
        return True

    suspects = list(families)
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = half if not is_readable({name: families[name] for name in half}) else suspects[len(half) :]
    (name,) = suspects
    place = repr(name) if declared else f"number {1 + list(families).index(name)}"
    family = families[name]
    missing = f"; missing are empty cells, {', '.join(filter(None, NULL_WORDS))}"
    return f"holds, in column {place}, cells that are not {_HOLDS[family].format(missing)}"


def _first_line(path: Path) -> list[str]:
    with path.open("rb") as file:
        line = file.readline().decode("utf-8-sig")
    return next(csv.reader([line.rstrip("\r\n")], strict=True), [])


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
