"""What all estimators say alike, written once: entries of docstrings that subclasses leave to the base class."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

_ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : [^\n]*)?\n((?:    [^\n]*\n?)+)", re.MULTILINE)
_LEFT_OUT = re.compile(r"^(\w[\w, ]*)\n    As for every estimator\.$", re.MULTILINE)


def entries(docstring: str) -> dict[str, str]:
    """Return what a docstring says of each name, the line with its type before it."""
    found = _ENTRY.finditer(inspect.cleandoc(docstring))
    return {name: entry.group(0).rstrip("\n") for entry in found for name in entry.group(1).split(", ")}


def spliced(docstring: str, shared: str) -> str:
    """Put the shared entries in the place of ``name, name`` / ``    As for every estimator.``."""
    said = entries(shared)

    def named(match: re.Match[str]) -> str:
        return "\n".join(dict.fromkeys(said[name] for name in match.group(1).split(", ")))

    return _LEFT_OUT.sub(named, inspect.cleandoc(docstring))


def document(cls: type, shared: str) -> None:
    """Complete the docstrings of a class and of its methods."""
    documented = [cls, *(member for member in vars(cls).values() if isinstance(member, FunctionType))]
    for member in documented:
        if member.__doc__ is not None and "As for every estimator." in member.__doc__:
            member.__doc__ = spliced(member.__doc__, shared)
