"""Calls of public functions: a missing or an unknown argument is named, with what is accepted.

Messages take the meaning of an argument from the docstring.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from dpfast import _arguments as check

_ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : [^\n]*)?\n((?:    [^\n]*\n?)+)", re.MULTILINE)
_ELSEWHERE = re.compile(r"As for `(\w+)(\.\w+)?`\.")
_AS_FOR = re.compile(r"As for `(\w+)`\.?")
_MARKS = re.compile(r" ?\[\d\]_,?|`")
#: What ends a first clause.
CLAUSE = re.compile(r"[.;:](?: |$)")
_EXPLAINS = "_explains_calls"


def entries(docstring: str) -> dict[str, str]:
    """Return the entry of each name in a docstring, with the line of its type before it."""
    said: dict[str, str] = {}
    for entry in _ENTRY.finditer(inspect.cleandoc(docstring)):
        for name in entry.group(1).split(", "):
            said.setdefault(name, entry.group(0).rstrip("\n"))
    return said


def explained(name: str, docstring: str) -> str:
    """Return a name's entry in a docstring, in one line; if it names an estimator, return that one's entry."""
    from dpfast import registry

    text = " ".join(entries(docstring).get(name, "").partition("\n")[2].split())
    elsewhere = _ELSEWHERE.fullmatch(text)
    if elsewhere and elsewhere[1] in registry.ESTIMATORS:
        other = registry.estimator(elsewhere[1])
        return explained(name, (getattr(other, elsewhere[2][1:]) if elsewhere[2] else other).__doc__ or "")
    return plain(text)


def plain(text: str) -> str:
    """Return text without marks of links, code and references."""
    return _MARKS.sub("", text)


def explaining(found: Any) -> Any:
    """Have a documented function, or a class and its methods, explain the arguments that a call lacks or invents."""
    if isinstance(found, type):
        for cls in found.__mro__:
            if cls.__module__.partition(".")[0] == "dpfast":
                _explain_methods(cls)
        return found
    is_documented = isinstance(found, FunctionType) and "\nParameters\n" in inspect.cleandoc(found.__doc__ or "")
    if not is_documented or hasattr(found, _EXPLAINS):
        return found
    function = _explaining(found)
    # Pickles look a function up where it was defined.
    setattr(sys.modules[found.__module__], found.__name__, function)
    return function


def _explain_methods(cls: type) -> None:
    for name, member in vars(cls).copy().items():
        function = getattr(member, "__func__", member)
        if not isinstance(function, FunctionType) or hasattr(function, _EXPLAINS):
            continue
        if name == "__init__" or name[0] != "_":
            method = _explaining(function, of_class=not isinstance(member, staticmethod))
            setattr(cls, name, method if function is member else type(member)(method))


def _explaining(function: Callable[..., Any], *, of_class: bool = False) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # Python's own words for arguments that do not fit; all else is said by the function itself.
            if not str(error).startswith(f"{function.__qualname__}() "):
                raise
            message = _misfit(function, args, kwargs, of_class)
        raise TypeError(message)

    setattr(called, _EXPLAINS, True)
    return called


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], of_class: bool) -> str:
    """Return the message for arguments that do not fit a function's signature."""
    known = dict(inspect.signature(function).parameters)
    called, docstring, owner = function.__name__, function.__doc__ or "", None
    if of_class:
        owner = args[0] if isinstance(args[0], type) else type(args[0])
        is_made = called == "__init__"
        called = owner.__name__ if is_made else f"{owner.__name__}.{called}"
        docstring = (owner.__doc__ or "") if is_made else docstring
        del known[next(iter(known))]
        args = args[1:]
    by_place = [name for name, one in known.items() if one.kind <= one.POSITIONAL_OR_KEYWORD]
    named = [name for name, one in known.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    for name in kwargs:
        if name not in named and len(named) == len(known):
            if owner is not None and name in inspect.signature(owner).parameters:
                return f"{called} takes no {name!r}: it is a parameter of {owner.__name__}"
            near = check.nearest(name, named) or f"its arguments: {', '.join(named) or 'none'}"
            return f"{called} takes no {name!r}; {near}"
    given = {*by_place[: len(args)], *kwargs}
    missing = [name for name in named if known[name].default is inspect.Parameter.empty and name not in given]
    if missing:
        return f"{called} needs {' and '.join(_asked(name, docstring, owner) for name in missing)}"
    if len(args) > len(by_place):
        shown = ", ".join(by_place) or "nothing"
        others = ", ".join(name for name in named if name not in by_place)
        return f"{called} takes {shown} by position, got {len(args)} values" + (
            f": give the others by name ({others})" if others else ""
        )
    twice = ", ".join(name for name in by_place[: len(args)] if name in kwargs)
    return f"{called} got {twice} twice: by position and by name"


def _asked(name: str, docstring: str, owner: type | None) -> str:
    """Return an argument's name with its type and the first clause of its meaning."""
    elsewhere = _AS_FOR.fullmatch(entries(docstring).get(name, "").partition("\n")[2].strip())
    if elsewhere and hasattr(owner, elsewhere[1]):
        return _asked(name, getattr(owner, elsewhere[1]).__doc__ or "", owner)
    form = entries(docstring).get(name, "").partition("\n")[0].partition(" : ")[2]
    meaning = CLAUSE.split(explained(name, docstring), maxsplit=1)[0]
    said = ": ".join(plain(one) for one in (form, meaning) if one)
    return f"{name} ({said})" if said else name
