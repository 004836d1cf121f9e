"""Section [input] of every job: which files, and how their columns are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpfast._optional import optional
from dpfast.io import Boolean, Category, Columns, Number, RowOwners
from dpfast.io.columns import Column, DeclaredFiles, table_parts
from dpfast.io.frames import Batch
from dpfast.io.sources import check_named_once, check_on_disk, file_format, table_files
from dpfast.jobs.parameters import table_of


@dataclass(frozen=True, kw_only=True)
class Input:
    """Where the table is, columns by name. Paths are relative to this file's folder.

    Parameters
    ----------
    path : str or list of str
        A CSV or Parquet file, a pattern, a folder of them, or a list of these; from the folder of this file on.
    """

    path: str | list[str] | None = None

    def declared(self, here: Path) -> list[Path]:
        """Return the files as they were declared, from the job's folder on."""
        if self.path is None:
            raise ValueError("[input] lacks the key 'path'")
        paths = [self.path] if isinstance(self.path, str) else self.path
        if not paths:
            raise ValueError("[input] path must list at least one file")
        for path in paths:
            check_on_disk(path, "[input] path")
        return [here / path for path in paths]

    def found(self, here: Path) -> list[Path]:
        """Return the existing files, which are tables of named columns."""
        files = [file for path in self.declared(here) for file in table_files(path, "[input] path")]
        if "npy" in {file_format(file, "[input] path") for file in files}:
            raise ValueError("[input] path is a .npy file, which has no named columns; give a pair of them as x and y")
        for file in files:
            if not file.exists():
                raise FileNotFoundError(
                    f"[input] path: no such file or directory: {str(file)!r}; a path begins in the folder of the job"
                )
        check_named_once(files, "[input] path")
        optional("pyarrow", f"reading {str(files[0])!r}")  # of a CSV file the header is read without
        return files


INPUT = table_of(Input, path='"table.csv"')


# What texts there are is not declared: one level stands for all.
_COLUMNS: Mapping[str, Callable[[str], Column]] = {
    "text": partial(Category, levels=("text",)),
    "number": Number,
    "boolean": Boolean,
}


@dataclass(frozen=True)
class NamedColumns:
    """Columns that are read as they stand, by declaration: a file's own types decide nothing."""

    #: By name: "text", "number", "boolean", or "id", which may be text or numbers.
    kinds: Mapping[str, str]

    def check(self, files: list[Path]) -> None:
        """Refuse files that lack one, or hold another kind of values there; no rows are read."""
        Columns([_COLUMNS[kind](name) for name, kind in self.kinds.items() if kind != "id"]).check(files)
        for name in (name for name, kind in self.kinds.items() if kind == "id"):
            RowOwners(files, name).check()

    def batches(self, files: list[Path], progress: Callable[[int], object] | None) -> Iterator[Batch]:
        """Iterate over batches of rows."""
        table = self.of(files, progress)
        for part in table_parts(table):
            yield from part.read(table.kinds)

    def of(self, files: list[Path], progress: Callable[[int], object] | None) -> DeclaredFiles:
        """Return files as a table of these columns."""
        kinds = {name: "text" if kind == "id" else kind for name, kind in self.kinds.items()}
        return DeclaredFiles(files, kinds, progress)
