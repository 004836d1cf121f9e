"""Docstring entries that all estimators share, written once: subclasses leave them to the base class."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

from dpfast import registry

_ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : [^\n]*)?\n((?:    [^\n]*\n?)+)", re.MULTILINE)
_LEFT_OUT = re.compile(r"^(\w[\w, ]*)\n    As for every estimator\.$", re.MULTILINE)


def entries(docstring: str) -> dict[str, str]:
    """Return the entry of each name in a docstring, with the line of its type before it."""
    found = _ENTRY.finditer(inspect.cleandoc(docstring))
    return {name: entry.group(0).rstrip("\n") for entry in found for name in entry.group(1).split(", ")}


def spliced(docstring: str, shared: str) -> str:
    """Put the shared entries in the place of ``name, name`` / ``    As for every estimator.``."""
    said = entries(shared)

    def named(match: re.Match[str]) -> str:
        return "\n".join(dict.fromkeys(said[name] for name in match.group(1).split(", ")))

    return _LEFT_OUT.sub(named, inspect.cleandoc(docstring))


_ELSEWHERE = re.compile(r"As for `(\w+)(\.\w+)?`\.")
_MARKS = re.compile(r" ?\[\d\]_,?|`")
_CLAUSE = re.compile(r"[.;:](?: |$)")
_FOUND = ", or have them found within the budget, 'private'"


def explained(name: str, docstring: str) -> str:
    """Return a name's entry in a docstring, in one line; if it names an estimator, return that one's entry."""
    text = " ".join(entries(docstring).get(name, "").partition("\n")[2].split())
    elsewhere = _ELSEWHERE.fullmatch(text)
    if elsewhere and elsewhere[1] in registry.ESTIMATORS:
        other = registry.estimator(elsewhere[1])
        return explained(name, (getattr(other, elsewhere[2][1:]) if elsewhere[2] else other).__doc__ or "")
    return plain(text)


def plain(text: str) -> str:
    """Return text without marks of links, code and references."""
    return _MARKS.sub("", text)


def missing_bound(cls: type, *names: str) -> TypeError:
    """Return the error for an estimator without a bound, or any of several: its meaning, and how to choose it."""
    docstring = cls.__doc__ or ""
    asked = " or ".join(f"{name} ({_CLAUSE.split(explained(name, docstring), maxsplit=1)[0]})" for name in names)
    is_found = any('"private"' in entries(docstring).get(name, "").partition("\n")[0] for name in names)
    return TypeError(
        f"{cls.__name__} needs {asked}. Noise hides the most that one person can add, which public numbers bound: "
        "declare them from what is known without the table (what the thing can be, an instrument, a rule, published "
        f"figures), never from its rows{_FOUND * is_found}. docs/concepts/bounds.md says how to choose them"
    )


#: Of parameters that are no bounds: how to choose them, and the page.
_CHOICES = {
    "n_nonzero": (
        "Every further feature takes up a smaller effect, and a share of the budget. Choose it from what is known "
        "without the table, never from its rows; plan gives the error to expect of any number",
        "guides/sparse_regression.md",
    ),
    "classes": (
        "List what the form, the code book or the question allows, never from its rows: labels found in a table "
        "reveal the people who have them",
        "concepts/bounds.md",
    ),
    "gamma": (
        "A reward t steps ahead counts gamma^t times as much as one now, so that about 1/(1 - gamma) steps count: "
        "choose it by how far ahead a decision is judged",
        "guides/policy_evaluation.md",
    ),
}


def missing_parameter(cls: type, name: str) -> TypeError:
    """Return the error for an estimator without a parameter that has no default."""
    if name not in _CHOICES:
        return missing_bound(cls, name)
    meaning = explained(name, cls.__doc__ or "")
    how, page = _CHOICES[name]
    return TypeError(f"{cls.__name__} needs {name} ({_CLAUSE.split(meaning, maxsplit=1)[0]}). {how}. See docs/{page}")


def document(cls: type, shared: str) -> None:
    """Complete the docstrings of a class and of its methods."""
    documented = [cls, *(member for member in vars(cls).values() if isinstance(member, FunctionType))]
    for member in documented:
        if member.__doc__ is not None and "As for every estimator." in member.__doc__:
            member.__doc__ = spliced(member.__doc__, shared)
