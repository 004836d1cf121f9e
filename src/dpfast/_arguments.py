"""Checks of the public numbers for calibrations. Every message names the argument and the accepted values.

Most numbers are floats or integers already: those are told from others without a call.

Below are calls of public functions: a missing or an unknown argument is named, with its meaning from the docstring.
"""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from numbers import Integral, Real
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Checked = TypeVar("Checked")

ADJACENCIES = ("replace_one", "add_remove")

_SMALLEST_DELTA = sys.float_info.min
_LARGEST_INTEGER = 10**300


class NotFiniteError(ValueError):
    """A table has entries that are missing or infinite."""


def not_finite(name: str) -> NotFiniteError:
    """Return the error of a table with entries that are missing or infinite."""
    left_out = "; or leave rows without an outcome out, with adjacency='add_remove', which hides how many"
    return NotFiniteError(
        f"{name} contains NaN or infinity: put a public number in their place, or declare it by "
        f"dpfast.io.Number(name, missing=...){left_out * (name in ('y', 'Y'))}"
    )


def real(name: str, value: object) -> float:
    """Return a real number as a float; TypeError for anything else, booleans and arrays included.

    ValueError for a number that no float equals: rounding it to nearest could round against privacy.
    """
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    # NumPy rounds its integers before it compares them with a float; Python compares exactly.
    given = operator.index(value) if isinstance(value, Integral) else value
    try:
        with np.errstate(over="ignore"):
            number = float(given)
    except OverflowError:
        number = math.inf
    if number != given and not math.isnan(number):
        raise ValueError(
            f"{name} must be a number that a float holds exactly, got a {type(value).__name__} that none does: "
            "round it first, in the direction that needs more noise"
        )
    return number


def positive(name: str, value: object) -> float:
    """Return a positive finite float."""
    number = value if type(value) is float else real(name, value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {number!r}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Return a finite float of at least 0."""
    number = value if type(value) is float else real(name, value)
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} must be at least 0 and finite, got {number!r}")
    return number


def positive_or_inf(name: str, value: object) -> float:
    """Return a positive float; inf is accepted and means no noise."""
    number = value if type(value) is float else real(name, value)
    if not number > 0.0:
        raise ValueError(f"{name} must be positive (float('inf') for no noise), got {number!r}")
    return number


def optional(accepted: Callable[[str, object], Checked], name: str, value: object) -> Checked | None:
    """Return None, or the result of another check of this module."""
    return None if value is None else accepted(name, value)


def share(name: str, value: object, *, whole: bool = False) -> float:
    """Return a float in (0, 1), or in (0, 1] if it may be the whole."""
    number = value if type(value) is float else real(name, value)
    if not (0.0 < number < 1.0 or (whole and number == 1.0)):
        raise ValueError(f"{name} must lie in (0, 1{']' if whole else ')'}, got {number!r}")
    return number


def pair(name: str, value: object, entries: str = "(low, high)") -> tuple[Any, Any]:
    """Return the two entries of a tuple, list or array; `entries` names them."""
    # An array of no dimension has no length.
    if not isinstance(value, tuple | list | np.ndarray) or getattr(value, "ndim", 1) == 0 or len(value) != 2:
        raise TypeError(f"{name} must be a pair {entries}, got {type(value).__name__}")
    return value[0], value[1]


def limits(name: str, value: object) -> tuple[float, float]:
    """Return a range as two finite floats, the first not above the second."""
    low, high = (real(f"{name}[{place}]", entry) for place, entry in enumerate(pair(name, value)))
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"{name} must be finite and increasing, got ({low!r}, {high!r})")
    return low, high


def by_name(name: str, value: Mapping[str, Checked]) -> None:
    """Refuse an empty mapping, or one with keys that are no names."""
    # A frame, whose columns are named too, has a length, but is neither true nor false.
    if len(value) == 0 or not all(isinstance(key, str) and key for key in value):
        raise ValueError(f"{name} by name must be a mapping of names of columns, text, at least one")


def mistyped(name: str, accepted: str, value: object) -> TypeError:
    """Return the error of an argument of another type than is accepted."""
    return TypeError(f"{name} must be {accepted}, got {type(value).__name__}")


def instance(name: str, value: object, kind: type[Checked], called: str) -> Checked:
    """Return an object of a class; messages call the class `called`, with its article."""
    if not isinstance(value, kind):
        raise mistyped(name, called, value)
    return value


def epsilon_value(value: object) -> float:
    """Return epsilon in [0, inf]."""
    number = value if type(value) is float else real("epsilon", value)
    if not number >= 0.0:
        raise ValueError(f"epsilon must be at least 0 (float('inf') for no noise), got {number!r}")
    return number


def nonnegative_or_auto(name: str, value: object) -> None:
    """Refuse anything but "auto" and finite floats of at least 0."""
    if not isinstance(value, str) or value != "auto":
        nonnegative(f"{name} (if it is not 'auto')" if isinstance(value, str) else name, value)


def delta_value(value: object) -> float:
    """Return delta in (0, 1), as a Gaussian mechanism needs it."""
    number = value if type(value) is float else real("delta", value)
    if number == 0.0:
        raise ValueError(
            "delta = 0 is met by no Gaussian noise: pass a delta in (0, 1), or use the pure mechanism, "
            "dpfast.privacy.l2_laplace_scale"
        )
    if 0.0 < number < _SMALLEST_DELTA:
        raise ValueError(
            f"delta must be at least the smallest normal float, {_SMALLEST_DELTA:.3g}, for Gaussian noise, got "
            f"{number!r}: pass a larger delta, or delta = 0 for a pure mechanism"
        )
    if not _SMALLEST_DELTA <= number < 1.0:
        raise ValueError(f"delta must lie in [{_SMALLEST_DELTA:.3g}, 1), got {number!r}")
    return number


def positive_integer(name: str, value: object) -> int:
    """Return an integer of at least 1 that arrays can count to."""
    return integer_of_at_least(name, value, 1, sys.maxsize)


def integer_of_at_least(name: str, value: object, least: int, most: float = _LARGEST_INTEGER) -> int:
    """Return an integer that is neither below `least` nor above `most`."""
    number = value if type(value) is int else integer(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {integer(name, number)}")
    if number > most:
        raise ValueError(f"{name} must be an integer from {least} to {most:.3g}, got a larger one")
    return number


def integer(name: str, value: object) -> int:
    """Return an integer; TypeError for booleans, arrays and numbers with a fraction.

    ValueError for one of hundreds of digits: floats end there, and Python prints no longer ones.
    """
    if isinstance(value, bool | np.ndarray):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}") from None
    if abs(number) > _LARGEST_INTEGER:
        raise ValueError(f"{name} must be an integer of at most 300 digits, got one of more")
    return number


def shape(name: str, value: object) -> tuple[int, ...]:
    """Return a size, an integer or a tuple of them, as a shape."""
    sizes = value if isinstance(value, tuple) else (value,)
    for size in sizes:
        if type(size) is not int or size < 0:
            return tuple(map(partial(integer_of_at_least, name, least=0), sizes))
    return sizes


def adjacency_value(value: object) -> str:
    """Return one of the two neighbouring relations."""
    return choice("adjacency", value, ADJACENCIES)


def sequence(name: str, values: Sequence[Checked]) -> Sequence[Checked]:
    """Return a sequence; TypeError for one number, and for text."""
    if isinstance(values, str | bytes) or getattr(values, "ndim", 1) == 0 or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a sequence of numbers, got {type(values).__name__}")
    return values


def array(name: str, values: object) -> NDArray[np.float64]:
    """Return numbers as an array of floats; TypeError for what holds others, or rows of several lengths."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise mistyped(name, "numbers that floats hold, in rows of one length", values) from None


def names(name: str, values: Any, count: int) -> Sequence[object]:
    """Return so many names; TypeError for a word, and for what is no sequence."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise mistyped(name, f"a sequence of {count} names", values)
    if len(values) != count:
        raise ValueError(f"{name} must be {count} names, got {len(values)}")
    given: Sequence[object] = values
    return given


def positives(name: str, values: Sequence[float]) -> list[float]:
    """Return a non-empty list of positive finite floats."""
    numbers = [
        value if type(value) is float and 0.0 < value < math.inf else positive(f"{name}[{index}]", value)
        for index, value in enumerate(sequence(name, values))
    ]
    if not numbers:
        raise ValueError(f"{name} must hold at least one number, got none")
    return numbers


def boolean(name: str, value: object) -> bool:
    """Return True or False; TypeError for anything else, numbers included."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")
    return bool(value)


def text(name: str, value: object) -> str:
    """Return a string; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    return value


def real_path(name: str, value: object) -> str:
    """Return a path, a str or a path-like of one, with its links resolved."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a path, got a {type(value).__name__}")
    return os.path.realpath(value)


def choice(name: str, value: object, accepted: Sequence[str]) -> str:
    """Return one of the accepted words."""
    if not isinstance(value, str) or value not in accepted:
        near = nearest(value, accepted)
        given = type(value).__name__ if isinstance(value, int) else repr(value)  # which may have too many digits
        raise ValueError(f"{name} must be {' or '.join(map(repr, accepted))}, got {given}{near and f'; {near}'}")
    return value


def nearest(given: object, accepted: Iterable[str]) -> str:
    """Ask whether the accepted word that is nearest to a given one is meant; an empty text if none is near."""
    if not isinstance(given, str):
        return ""
    folded = {one.casefold(): one for one in accepted}
    near = difflib.get_close_matches(given.casefold(), folded, 1)
    return f"did you mean {folded[near[0]]!r}?" if near else ""


def label(name: str, value: Any) -> Any:
    """Return a label, of a column or of what a table tells apart: hashable, and equal to itself."""
    try:
        hash(value)
        is_missing = value is None or not bool(value == value)
    except (TypeError, ValueError):
        raise mistyped(name, "one label: a string, a number, a date or a tuple of these", value) from None
    if is_missing:
        raise ValueError(f"{name} must be one label, got a missing one")
    return value


_ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : [^\n]*)?\n((?:    [^\n]*\n?)+)", re.MULTILINE)
_ELSEWHERE = re.compile(r"As for `(\w+)(\.\w+)?`\.")
_AS_FOR = re.compile(r"As for `(\w+)`\.?")
_MARKS = re.compile(r" ?\[\d\]_,?|`")
#: What ends a first clause.
CLAUSE = re.compile(r"[.;:](?: |$)")
_EXPLAINS = "_explains_calls"
#: What is done in place of arguments that other libraries have.
_INSTEAD = {
    "columns": "fit what dpfast.io.Columns(...).encode(frame) makes",
    "formula": "fit what dpfast.io.Columns.from_formula(formula, limits).encode(frame) makes",
}


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
            # Python's own message for arguments that do not fit; the function itself says all else.
            if not str(error).startswith(f"{function.__qualname__}() "):
                raise
            message = _problem_of_call(function, args, kwargs, of_class)
        raise TypeError(message)

    setattr(called, _EXPLAINS, True)
    return called


def _problem_of_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], of_class: bool
) -> str:
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
            near = _INSTEAD.get(name) or nearest(name, named) or f"its arguments: {', '.join(named) or 'none'}"
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
