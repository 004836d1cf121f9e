"""Paths of tables: one file, a glob or a folder of them, by suffix."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from dpfast._own_words import in_own_words

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npy": "npy"}


def is_path(table: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether `table` names files."""
    return isinstance(table, (str, os.PathLike))


def check_listed(item: object, name: str) -> None:
    """Refuse an item of a list that is text and no path: it may be somebody's, whom the error of a path would quote."""
    if not isinstance(item, str) or Path(item).suffix in FORMATS:
        return
    problem = f"{name} holds text; real numbers are needed, or paths that end in {', '.join(FORMATS)}"
    if not in_own_words(lambda: os.path.isdir(item) or glob.glob(item, recursive=True), problem, TypeError):
        raise TypeError(problem)


def check_on_disk(path: str | os.PathLike[str], name: str) -> None:
    """Refuse an address."""
    if "://" in str(path):
        raise ValueError(f"{name} is the address {str(path)!r}: files are read from a disk, copy them first")


def table_files(path: str | os.PathLike[str], name: str) -> list[Path]:
    """Return the files, of one format, that a path stands for, in the order of their names; at least one.

    It is a file, which may not exist, a pattern, or a folder: the tables directly in it.
    """
    check_on_disk(path, name)
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in FORMATS and not file.name.startswith("."))
        if not files:
            raise ValueError(f"{name} is the folder {str(place)!r}, which holds no {', '.join(FORMATS)} file")
    elif glob.has_magic(str(place)) and not place.exists():
        files = sorted(map(Path, glob.glob(str(place), recursive=True)))
        if not files:
            raise ValueError(f"{name} is the pattern {str(place)!r}, which no file matches")
    else:
        files = [place]
    formats = {file_format(file, name) for file in files}
    if len(formats) > 1:
        raise ValueError(
            f"{name} is {str(place)!r}, which holds files of several formats: {', '.join(sorted(formats))}"
        )
    check_named_once(files, name)
    return files


def check_named_once(files: Sequence[Path], name: str) -> None:
    """Refuse files of which one has two names, be it by a link: its rows would count twice."""
    places = [(found.st_dev, found.st_ino) for found in (file.stat() for file in files if file.exists())]
    if len(set(places)) < len(places):
        raise ValueError(f"{name} names a file twice, whose rows would count twice")


def file_format(file: Path, name: str) -> str:
    """Return "parquet", "csv" or "npy"."""
    if file.suffix not in FORMATS:
        raise TypeError(f"{name} is a path with the suffix {file.suffix!r}; accepted: {', '.join(FORMATS)}")
    return FORMATS[file.suffix]
