"""Keys of jobs that are arguments in Python: types and defaults are those of signatures, explanations of docstrings."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal

from dpfast.estimator.documentation import explained, plain
from dpfast.jobs.values import (
    BOOLEAN,
    INTEGER,
    LEFT_OUT,
    NUMBER,
    REQUIRED,
    TEXT,
    Array,
    Either,
    Key,
    Lists,
    Named,
    Place,
    Table,
    Values,
    Variants,
    Words,
    section,
)

_PLAIN: dict[Any, Values] = {float: NUMBER, int: INTEGER, bool: BOOLEAN, str: TEXT}
#: What TOML has in the place of None where leaving a key out means something else.
NONE = "none"


@dataclass(frozen=True)
class Changes:
    """Facts on keys that their signature lacks."""

    #: Values in the place of those of a type hint.
    values: Mapping[str, Values] = field(default_factory=dict)
    #: Those without a default in Python that have one in jobs.
    optional: Collection[str] = ()
    #: Values for templates.
    examples: Mapping[str, str] = field(default_factory=dict)
    #: Those that jobs do not have, or have elsewhere.
    left_out: Collection[str] = ()
    #: Those of which arguments may be instances.
    classes: Collection[type] = ()


def keys_of(
    function: Callable[..., Any], hints: Mapping[str, Any], docstring: str, changes: Changes | None = None
) -> Iterator[Key]:
    """Yield a key for each argument for which TOML has values."""
    changes = changes or Changes()
    for name, parameter in inspect.signature(function).parameters.items():
        if name in changes.left_out or parameter.kind is parameter.VAR_KEYWORD or name == "self":
            continue
        has_default = parameter.default is not parameter.empty
        stands_for_none = not has_default or parameter.default is None
        values = changes.values.get(name) or values_of(hints[name], changes.classes, says_none=not stands_for_none)
        if values is None:
            continue
        default = LEFT_OUT if has_default or name in changes.optional else REQUIRED
        usual = None if stands_for_none else json.dumps(parameter.default)
        yield Key(name, values, explained(name, docstring), default, changes.examples.get(name), usual)


class AnyArray:
    """Stands for NumPy's ArrayLike in hints, which is another union in every version of NumPy, or none."""


def hints_of(owner: Any) -> dict[str, Any]:
    """Return the type hints of a class or a function, with `AnyArray` for arrays."""
    return typing.get_type_hints(owner, localns={"ArrayLike": AnyArray})


def values_of(hint: Any, classes: Collection[type] = (), *, says_none: bool = False) -> Values | None:
    """Return the values of TOML for a type hint; None if there are none, as for functions."""
    options = tuple(_options(hint, classes, says_none))
    return options[0] if len(options) == 1 else Either(options) if options else None


def _options(hint: Any, classes: Collection[type], says_none: bool) -> Iterator[Values]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        yield _PLAIN[hint]
    elif hint is AnyArray:
        yield Array()
    elif origin is Literal:
        yield Words.of(*arguments)
    elif origin in (typing.Union, UnionType):
        yield from _options_of_union(arguments, classes, says_none)
    elif origin is tuple:
        item = values_of(arguments[0], says_none=True)
        if item is not None:
            yield Lists(Either((NUMBER, item)) if isinstance(item, Array) else item, len(arguments))
    elif isinstance(origin, type) and issubclass(origin, Mapping | list):
        item = values_of(arguments[-1])
        if item is not None:
            yield Lists(item) if origin is list else Named(item)
    elif isinstance(hint, type):
        offered = tuple(one for one in classes if hint in one.__mro__)
        if offered:
            yield objects_of(offered)


def _options_of_union(arguments: Collection[Any], classes: Collection[type], says_none: bool) -> Iterator[Values]:
    """Yield what there is in TOML for a union: numbers and tables, then arrays, words and objects."""
    words: dict[str, Any] = {}
    found: list[Values] = []
    offered: list[type] = []
    for one in arguments:
        if typing.get_origin(one) is Literal:
            words |= {word: word for word in typing.get_args(one)}
        elif one is NoneType:
            words |= {NONE: None} if says_none else {}
        elif isinstance(one, type) and one not in (*_PLAIN, AnyArray):
            offered += [cls for cls in classes if one in cls.__mro__ and cls not in offered]
        elif one is not AnyArray:
            found += _options(one, classes, says_none)
    yield from found
    if AnyArray in arguments:
        yield Array()
    if words:
        yield Words(words)
    if offered:
        yield objects_of(tuple(offered))


def objects_of(classes: tuple[type, ...]) -> Variants:
    """Return tables that stand for objects: the name of their class, and the arguments of its constructor."""
    tables = {cls.__name__: table_of(cls) for cls in classes}
    first = {cls.__name__: plain((inspect.getdoc(cls) or "").partition("\n\n")[0]) for cls in classes}
    return Variants({name: replace(table, says=first[name]) for name, table in tables.items()})


def table_of(cls: type, **examples: str) -> Table:
    """Return the table of a section, of which an object is made: a key for each argument, explained by docstrings."""
    said = [inspect.cleandoc(one.__doc__ or "") for one in reversed(cls.__mro__[:-1])]
    hints = hints_of(cls.__init__)  # type: ignore[misc]
    keys = keys_of(cls, hints, "\n\n".join(said), Changes(examples=examples))
    says = " ".join(said[-1].partition("\nParameters\n")[0].split())
    return Table(tuple(keys), says, partial(_object, cls))


def _object(cls: type, place: Place, arguments: dict[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{section(place)} {error}") from None
