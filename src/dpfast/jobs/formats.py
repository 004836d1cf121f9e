"""In which formats a job's results are written: decided, and the libraries imported, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dpfast._optional import LIBRARIES, Library
from dpfast.io import writing

#: Formats of tables and of pictures, the module that writes each.
_TABLES = dict.fromkeys(writing.WRITERS) | {"parquet": "pyarrow.parquet"}
_PICTURES = dict.fromkeys(("png", "svg"), "matplotlib.figure")
_WRITERS = _TABLES | _PICTURES
# Those of a job that names none, where their libraries are installed.
_USUAL = ("csv", "parquet", "png", "svg")

#: Those there are.
FORMATS = tuple(_WRITERS)


@dataclass(frozen=True)
class Formats:
    """The file formats of every table and of every picture."""

    tables: tuple[str, ...]
    pictures: tuple[str, ...]
    #: Whether pictures are drawn: the report as HTML has them in any case then.
    plots: bool

    @classmethod
    def read(cls, output: Mapping[str, Any]) -> Formats:
        """Read ``formats`` and ``plots`` if they are given; the default is the usual ones that can be written.

        Raises
        ------
        ImportError
            If no installed library writes a requested one.
        """
        plots, named = output.get("plots"), output.get("formats")
        if named is None:
            wanted = [one for one in _USUAL if _missing(one) is None and not (plots is False and one in _PICTURES)]
        else:
            wanted = named
            if not _TABLES.keys() & set(wanted):
                listed = ", ".join(map(repr, _TABLES))
                raise ValueError(f"[output] formats must hold one of {listed}: results are tables")
            if plots is False and _PICTURES.keys() & set(wanted):
                raise ValueError("[output] formats holds a format of pictures, but plots = false")
        if plots is None:
            plots = _missing("svg") is None
        for one in [*wanted, *(["svg"] if plots else [])]:
            if (missing := _missing(one)) is not None:
                said = "plots = true" if one in _PICTURES and one not in wanted else f"formats holds {one!r}"
                raise ImportError(f"[output] {said}, which needs {missing.missing}")
        tables, pictures = (tuple(one for one in kinds if one in wanted) for kinds in (_TABLES, _PICTURES))
        return cls(tables, pictures, plots)


def _missing(file_format: str) -> Library | None:
    """Return the missing library that writes a format, if it cannot be imported."""
    writer = _WRITERS[file_format]
    if writer is None:
        return None
    try:
        import_module(writer)
    except ImportError:
        return LIBRARIES[writer.partition(".")[0]]
    return None
