"""Rows of people, as jobs declare them: files of named columns, or a pair of arrays."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast.io import Boolean, Category, Columns, EncodedTable, Number, RowOwners
from dpfast.io.blocks import in_memory
from dpfast.io.columns import Column
from dpfast.io.files import FORMATS, file_format, table_files
from dpfast.io.parts import table_parts
from dpfast.jobs.sections import Section, one_of

_COLUMN_KEYS = {
    "number": ("kind", "missing", "low", "high"),
    "boolean": ("kind", "missing"),
    "category": ("kind", "levels", "drop_first", "missing", "undeclared"),
}


@dataclass(frozen=True)
class OwnerColumn:
    """Who owns the rows, where people own several: the column that says so, and most rows of a person that count."""

    id: str
    max_rows: int


@dataclass(frozen=True)
class Rows:
    """What a job says of its rows, a person each unless `people` says otherwise."""

    #: Tables with named columns; or those of X and of Y, one after the other, for .npy.
    files: list[Path]
    #: What is declared of them; None for .npy.
    columns: Columns | None
    #: None where every row is a person of its own.
    people: OwnerColumn | None
    feature_names: tuple[str, ...]
    outcome_names: tuple[str, ...]
    #: Limits of every encoded feature, where they are declared.
    box: list[Any] | None
    #: Of .npy files; None of a stream.
    n_rows: int | None

    @classmethod
    def read(cls, job: Section, here: Path) -> Rows:
        """Read and check the sections; of the tables only schemas are read."""
        files, is_npy = _input_files(job, here)
        if is_npy:
            features, outcomes, n_rows = _npy_layout(job, files)
            return cls(files, None, _people(job, files, None), features, outcomes, None, n_rows)
        columns, limits = _columns(job, files)
        columns.check(files)
        people = _people(job, files, columns)
        return cls(files, columns, people, columns.feature_names, columns.outcome_names, _box(limits, columns), None)

    @property
    def max_rows(self) -> int | None:
        """Most rows of a person that count."""
        return None if self.people is None else self.people.max_rows

    def encoded(self, progress: Callable[[int], object] | None) -> EncodedTable:
        """Return named columns as blocks of numbers."""
        assert self.columns is not None
        return self.columns.encode(self.files, progress)

    def owners(self) -> RowOwners | None:
        """Return whose each row is, where people own several."""
        return None if self.people is None else RowOwners(self.files, self.people.id)

    def facts(self) -> list[tuple[str, str]]:
        """Return what is public of them: names, and plain text."""
        people = self.people and [("a person", f"all rows of one {self.people.id!r}, {self.people.max_rows} at most")]
        return [
            *(people or []),
            (f"features ({len(self.feature_names)})", ", ".join(self.feature_names)),
            (f"outcomes ({len(self.outcome_names)})", ", ".join(self.outcome_names)),
        ]


def _input_files(job: Section, here: Path) -> tuple[list[Path], bool]:
    """Return the files and whether they are a pair of arrays."""
    section = Section("input", job.take("input", dict), ("path", "format", "x", "y"))
    if "x" in section.content or "y" in section.content:
        if "path" in section.content:
            raise ValueError("[input] has both path and x, y; x and y are a pair of .npy files")
        files = [here / section.take(key, str) for key in ("x", "y")]
        if any(file.suffix != ".npy" for file in files):
            raise ValueError("[input] x and y must be .npy files; tables with named columns are given by path")
        return files, True
    paths = section.take("path", str, list)
    if not isinstance(paths, str) and not (paths and all(isinstance(path, str) for path in paths)):
        raise TypeError("[input] path must be text or a list of texts")
    files = []
    for path in [paths] if isinstance(paths, str) else paths:
        files += table_files(here / path, "[input] path")
    formats = {file_format(file, "[input] path") for file in files}
    declared = section.take("format", str, default=None)
    if declared is not None:
        one_of("[input] format", declared, sorted(set(FORMATS.values()) - {"npy"}))
    if "npy" in formats:
        raise ValueError("[input] path is a .npy file, which has no named columns; give a pair of them as x and y")
    if declared is not None and formats != {declared}:
        raise ValueError(f"[input] format is {declared!r}, but the files are {', '.join(sorted(formats))}")
    return files, False


def _npy_layout(job: Section, files: list[Path]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return names for the columns of both arrays, and the number of rows."""
    for key in ("features", "outcomes"):
        if key in job.content:
            raise ValueError(f"[{key}] declares columns by name, which .npy files do not have; leave it out")
    names, n_rows = [], 0
    for key, file in zip(("x", "y"), files, strict=True):
        array = in_memory(file, key, is_outcome=key == "y")
        if array is None:
            raise FileNotFoundError(f"[input] {key}: no such file: {str(file)!r}")
        names.append(tuple(f"{key}{column}" for column in range(array.shape[1])))
        n_rows = len(array)
    return names[0], names[1], n_rows


def _columns(job: Section, files: list[Path]) -> tuple[Columns, dict[str, tuple[float, float]]]:
    """Return the declared columns, and the limits of those that have any."""
    declared = {key: job.take(key, dict) for key in ("features", "outcomes")}
    explicit = {name for section in declared.values() for name in section}
    first = next(table_parts(files))
    present = first.names
    names = [name for name in present if name not in explicit]
    limits: dict[str, tuple[float, float]] = {}
    columns: dict[str, list[Column]] = {"features": [], "outcomes": []}
    for key, section in declared.items():
        for name, value in section.items():
            is_pattern = any(sign in name for sign in "*?[") and name not in present
            if is_pattern and first.families is None and explicit.isdisjoint(present):
                # What a pattern matches is released, and the first line of a text file may be a person's.
                raise ValueError(f"[{key}] {name!r} is a pattern: name one column of {first.label} at least in full")
            matches = fnmatch.filter(names, name) if is_pattern else [name]
            if not matches:
                raise ValueError(f"[{key}] {name!r} matches no column of the table that is not declared by name")
            for match in matches:
                column, limit = _column(key, match, value)
                columns[key].append(column)
                if limit is not None:
                    limits[match] = limit
    if not columns["outcomes"]:
        raise ValueError("[outcomes] must declare at least one column")
    return Columns(columns["features"], columns["outcomes"]), limits


def _people(job: Section, files: list[Path], columns: Columns | None) -> OwnerColumn | None:
    if "people" not in job.content:
        return None
    section = Section("people", job.take("people", dict), ("id", "max_rows"))
    people = OwnerColumn(section.take("id", str), section.take("max_rows", int))
    if columns is None:
        raise ValueError("[people] id names a column, which .npy files do not have")
    check.positive_integer("[people] max_rows", people.max_rows)
    if people.id in columns.names:
        raise ValueError(f"[people] id {people.id!r} is declared as a feature or an outcome, and would be released")
    RowOwners(files, people.id).check()
    return people


def _column(key: str, name: str, value: object) -> tuple[Column, tuple[float, float] | None]:
    """Return one column, and its limits if it has any."""
    where = f"{key}.{name}"
    content: Mapping[str, Any] = {"kind": value} if isinstance(value, str) else value  # type: ignore[assignment]
    if not isinstance(content, Mapping):
        raise TypeError(f"[{where}] must be a kind of column or a table, got {type(value).__name__}")
    kind = content.get("kind", "category" if "levels" in content else "number")
    one_of(f"[{where}] kind", kind, _COLUMN_KEYS)
    section = Section(where, content, _COLUMN_KEYS[kind])
    options = {name: option for name, option in content.items() if name not in ("kind", "levels", "low", "high")}
    if kind == "boolean":
        return Boolean(name, **options), None
    if kind == "category":
        return Category(name, section.take("levels", list), **options), None
    if "low" not in content and "high" not in content:
        return Number(name, **options), None
    if key == "outcomes":
        raise ValueError(f"[{where}] has low or high, which only features have; outcomes are bounded by bound_y")
    low, high = (float(section.take(side, int, float)) for side in ("low", "high"))
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"[{where}] low must be below high, and both finite")
    return Number(name, **options), (low, high)


def _box(limits: dict[str, tuple[float, float]], columns: Columns) -> list[Any] | None:
    """Return the limits of every encoded feature, where columns declare them."""
    if not limits:
        return None
    pairs: list[tuple[float, float]] = []
    for column in columns.features:
        if isinstance(column, Number) and column.name not in limits:
            raise ValueError(f"[features.{column.name}] lacks low and high, which other features have")
        pairs += [limits.get(column.name, (0.0, 1.0))] * len(column.encoded_names)
    return [np.array(side) for side in zip(*pairs, strict=True)]
