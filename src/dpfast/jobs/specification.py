"""A job file, read and checked: everything that can be said of it from public facts, before any row is read."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast.io import Boolean, Category, Columns, Number, RowOwners
from dpfast.io.blocks import in_memory
from dpfast.io.columns import Column
from dpfast.io.files import FORMATS, file_format, table_files
from dpfast.io.parts import table_parts
from dpfast.jobs.kinds import Kind, kinds
from dpfast.jobs.sections import Section, one_of, read_toml
from dpfast.ledger import Ledger
from dpfast.privacy import Privacy

_SECTIONS = ("input", "people", "features", "outcomes", "estimator", "privacy", "output")
_COMMON = ("adjacency", "calibration", "random_state", "n_threads")
# Neither decides the release: the results do not depend on the threads, and a hashed seed is found again by trying.
_UNHASHED = ("random_state", "n_threads")
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
class Job:
    """A checked job."""

    #: Its file.
    path: Path
    #: Tables with named columns; or those of X and of Y, one after the other, for .npy.
    files: list[Path]
    #: What is declared of them; None for .npy.
    columns: Columns | None
    #: None where every row is a person of its own.
    people: OwnerColumn | None
    feature_names: tuple[str, ...]
    outcome_names: tuple[str, ...]
    kind: Kind
    #: The estimator's, without the ledger.
    parameters: dict[str, Any]
    #: All that the ledger may ever spend.
    budget: Privacy
    #: None for a ledger of this job alone.
    ledger_path: Path | None
    #: Where the outputs go, and whether they may replace another job's.
    folder: Path
    overwrite: bool
    #: Of everything that decides the release, but the seed.
    digest: str

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read and check a job file; of the tables only schemas are read.

        Raises
        ------
        TypeError, ValueError, OSError
            Naming the section and the key, or the file or the column.
        """
        content = read_toml(path)
        job = Section("job", content, _SECTIONS)
        here = path.parent
        output = Section("output", job.take("output", dict), ("folder", "overwrite"))
        estimator, kind = _estimator(job.take("estimator", dict))
        privacy = Section("privacy", job.take("privacy", dict), ("epsilon", "delta", "ledger"))
        adjacency = estimator.take("adjacency", str, default="replace_one")
        cost = privacy.privacy(adjacency)
        if math.isinf(cost.epsilon):
            raise ValueError("[privacy] epsilon must be finite: a job writes a private release")

        files, is_npy = _input_files(job, here)
        box = estimator.take("box", list, default=None)
        if is_npy:
            columns, (features, outcomes, n_rows) = None, _npy_layout(job, files)
        else:
            columns, limits = _columns(job, files)
            features, outcomes, n_rows = columns.feature_names, columns.outcome_names, None
            box = _box(box, limits, columns)
            columns.check(files)
        people = _people(job, files, columns)
        given = {key: estimator.content[key] for key in (*kind.PARAMETERS, *_COMMON) if key in estimator.content}
        paid = {"epsilon": cost.epsilon, "delta": cost.delta, "adjacency": cost.adjacency}
        parameters = kind.parameters(given, box, n_rows) | paid
        max_rows = None if people is None else people.max_rows
        kind.check(parameters, n_rows or 1, (len(features), len(outcomes)), max_rows)
        return cls(
            path,
            files,
            columns,
            people,
            features,
            outcomes,
            kind,
            parameters,
            *_budget(privacy, cost, here),
            (here / output.take("folder", str)).resolve(),
            output.take("overwrite", bool, default=False),
            _digest(content),
        )

    def open_ledger(self) -> Ledger:
        """Open the ledger that pays, or make it."""
        return Ledger(self.budget, self.ledger_path)


def _estimator(content: Mapping[str, Any]) -> tuple[Section, Kind]:
    """Return [estimator], checked for the keys of its kind, and the kind."""
    known = kinds()
    keys = [key for kind in known.values() for key in kind.PARAMETERS]
    name = Section("estimator", content, ("kind", "box", *keys, *_COMMON)).take("kind", str)
    one_of("[estimator] kind", name, known)
    return Section("estimator", content, ("kind", "box", *known[name].PARAMETERS, *_COMMON)), known[name]


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


def _box(box: list[Any] | None, limits: dict[str, tuple[float, float]], columns: Columns) -> list[Any] | None:
    """Return the limits of every encoded feature, where columns declare them."""
    if not limits:
        return box
    if box is not None:
        raise ValueError("[estimator] box and low, high in [features] say the same: leave one of them out")
    pairs: list[tuple[float, float]] = []
    for column in columns.features:
        if isinstance(column, Number) and column.name not in limits:
            raise ValueError(f"[features.{column.name}] lacks low and high, which other features have")
        pairs += [limits.get(column.name, (0.0, 1.0))] * len(column.encoded_names)
    return [np.array(side) for side in zip(*pairs, strict=True)]


def _budget(privacy: Section, cost: Privacy, here: Path) -> tuple[Privacy, Path | None]:
    """Return the ledger's budget and file."""
    if "ledger" not in privacy.content:
        return cost, None
    section = Section("privacy.ledger", privacy.content["ledger"], ("path", "epsilon", "delta"))
    return section.privacy(cost.adjacency), here / section.take("path", str)


def _digest(content: Mapping[str, Any]) -> str:
    """Hash what decides a release: the order of features and outcomes counts, that of other keys does not.

    The seed is left out: it would be found again by trying.
    """
    ordered = []
    for name in sorted(content.keys() - {"output"}):
        items = [(key, value) for key, value in content[name].items() if name != "estimator" or key not in _UNHASHED]
        ordered.append([name, items if name in ("features", "outcomes") else sorted(items)])
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()
