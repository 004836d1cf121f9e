"""Keys of job files and the values that they accept: from one description, checks, a schema and a commented template.

Of keys that are arguments in Python, types and defaults are those of signatures, explanations those of docstrings.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal

import numpy as np

from dpfast._arguments import CLAUSE, explained, nearest, plain

Schema = dict[str, Any]
#: The place of a value in the file: names of tables, and its key.
Place = tuple[str, ...]

_WORDS = {str: "text", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "a table"}
_SAMPLES = {"string": '"..."', "boolean": "false", "integer": "10", "number": "1.0"}
_SCHEMAS = {str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True)
class Values:
    """Some values of TOML: how they are told, and what is made of them."""

    #: What they are, in messages: "must be ...".
    words: str
    #: Their JSON schema.
    schema: Schema
    #: Whether a value is meant to be one of these, as its type says.
    fits: Callable[[Any], bool]
    #: What is made of a value that fits, at a place; TypeError or ValueError, naming section and key.
    read: Callable[[Place, Any], Any] = lambda place, value: value
    #: Words, where they are some.
    accepted: Collection[str] = ()
    #: Keys of a table, its purpose, and of keys that are not known what is to be done instead.
    keys: tuple[Key, ...] = ()
    doc: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    #: Tables that may replace a value, by their key "kind".
    tables: Mapping[str, Values] = field(default_factory=dict)

    def taken(self, place: Place, value: object) -> Any:
        """Return the converted value; if it does not fit, TypeError, or ValueError for words."""
        if not self.fits(value):
            kind = ValueError if isinstance(value, str) else TypeError
            near = nearest(value, self.accepted)
            raise kind(f"{said(place)} must be {self.words}, got {_shown(value)}{near and f'; {near}'}")
        return self.read(place, value)


def _plain(*types: type) -> Values:
    """Return the values of a type, the last one, or of those that stand for it."""
    return Values(_WORDS[types[-1]], {"type": _SCHEMAS[types[-1]]}, lambda value: type(value) in types)


TEXT, BOOLEAN, INTEGER, NUMBER = _plain(str), _plain(bool), _plain(int), _plain(int, float)


def enum(accepted: Iterable[str]) -> Values:
    """Return some words; of a mapping, each stands for its value."""
    meant = accepted if isinstance(accepted, Mapping) else {word: word for word in accepted}
    listed = f"{'one of ' * (len(meant) > 1)}{', '.join(map(repr, meant))}"
    is_word = lambda value: isinstance(value, str) and value in meant  # noqa: E731
    return Values(listed, {"enum": list(meant)}, is_word, lambda _, word: meant[word], meant)


def lists(item: Values, length: int | None = None, made: Callable[[list[Any]], Any] = list) -> Values:
    """Return lists of other values, and what one of any length is made into; if a length is given, tuples of it."""
    items = f"{item.words.removeprefix('an ').removeprefix('a ')}s" if item.schema.get("type") in _SAMPLES else "items"
    called = f"a list of {items}" if length is None else f"a list of {length} {items}"
    sizes = {} if length is None else {"minItems": length, "maxItems": length}

    def read(place: Place, value: list[Any]) -> Any:
        if length not in (None, len(value)):
            raise ValueError(f"{said(place)} must be {called}, got {len(value)}")
        if odd := [one for one in value if not item.fits(one)]:
            raise TypeError(f"{said(place)} must hold {item.words}, got {_shown(odd[0])}")
        return (made if length is None else tuple)([item.read(place, one) for one in value])

    return Values(called, {"type": "array", "items": item.schema} | sizes, _is_list, read)


def _array(place: Place, value: list[Any]) -> Any:
    rows = value if value and all(map(_is_list, value)) else [value]
    if len({len(row) for row in rows}) > 1 or not all(NUMBER.fits(one) for row in rows for one in row):
        raise TypeError(f"{said(place)} must be {ARRAY.words}, all of one length")
    return np.array(value, np.float64)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


#: Numbers in a list, or in lists of equal length in a list.
_ROWS = {"anyOf": [NUMBER.schema, {"type": "array", "items": NUMBER.schema}]}
_ARRAYS = {"type": "array", "items": _ROWS, "examples": [[0.0, 1.0]]}
ARRAY = Values("a list of numbers, or of lists of them", _ARRAYS, _is_list, _array)


def either(*options: Values) -> Values:
    """Return values of several kinds, which their types tell apart."""
    words, schema = " or ".join(option.words for option in options), {"anyOf": [option.schema for option in options]}
    tables = {name: table for option in options for name, table in option.tables.items()}

    def read(place: Place, value: Any) -> Any:
        return next(option for option in options if option.fits(value)).read(place, value)

    return Values(words, schema, lambda value: any(option.fits(value) for option in options), read, tables=tables)


REQUIRED: Any = object()
#: Of a key that is not among what was read, if it is left out.
LEFT_OUT: Any = object()


@dataclass(frozen=True)
class Key:
    """A key of a table."""

    name: str
    values: Values
    #: What it is for, in the words of the template.
    doc: str
    default: Any = REQUIRED
    #: A value as it is written in templates, where others are comments; lines of a table by names.
    example: str | None = None
    #: What leaving it out means, as it is written.
    default_text: str | None = None

    @property
    def written(self) -> str:
        """A value for templates."""
        return self.example or self.default_text or sample(self.values.schema)

    @property
    def schema(self) -> Schema:
        """The schema for an editor."""
        default_text = {} if self.default_text is None else {"default": json.loads(self.default_text)}
        return self.values.schema | {"description": self.doc} | default_text


def table(
    keys: Iterable[Key],
    doc: str = "",
    made: Callable[[Place, dict[str, Any]], Any] = lambda place, found: found,
    elsewhere: Mapping[str, str] | None = None,
) -> Values:
    """Return a table of known keys, and what is made of its place and of what its keys make; the latter, else."""
    keys, elsewhere = tuple(keys), elsewhere or {}

    def read(place: Place, value: Any) -> Any:
        refuse_unknown(place, value, [key.name for key in keys], elsewhere)
        found = {}
        for key in keys:
            if key.name in value:
                found[key.name] = key.values.taken((*place, key.name), value[key.name])
            elif key.default is REQUIRED:
                meaning = CLAUSE.split(key.doc, maxsplit=1)[0]
                how = "; docs/concepts/bounds.md says how to choose it" * key.name.startswith("bo")
                raise ValueError(f"{section(place)} lacks the key {key.name!r} ({meaning}){how}")
            elif key.default is not LEFT_OUT:
                found[key.name] = key.default
        return made(place, found)

    schema = {
        "type": "object",
        "properties": {key.name: key.schema for key in keys},
        "required": [key.name for key in keys if key.default is REQUIRED],
        "additionalProperties": False,
    } | ({"description": doc} if doc else {})
    return Values("a table", schema, _is_table, read, keys=keys, doc=doc, elsewhere=elsewhere)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def by_name(item: Values, made: Callable[[Place, Any], Any] = lambda place, value: value) -> Values:
    """Return a table of values by names that are the caller's own; a place that something is made of ends with one."""

    def read(place: Place, value: Any) -> Any:
        return {name: made((*place, name), item.taken((*place, name), one)) for name, one in value.items()}

    schema = {"type": "object", "additionalProperties": item.schema}
    return Values("a table", schema, _is_table, read, tables=item.tables)


def tagged_union(
    tables: Mapping[str, Values], default_kind: Callable[[Mapping[str, Any]], str] | None = None
) -> Values:
    """Return tables of several kinds, told apart by their key "kind"; the usual kind, if any, need not have it."""

    def read(place: Place, value: Any) -> Any:
        kind = value.get("kind", default_kind(value) if default_kind else None)
        if kind is None:
            raise ValueError(f"{section(place)} lacks the key 'kind', one of {', '.join(map(repr, tables))}")
        own: Values = enum(tables).taken((*place, "kind"), kind)
        others = [] if "kind" in value else [key.name for one in tables.values() for key in one.keys]
        refuse_unknown(place, value, ["kind", *(key.name for key in own.keys)], own.elsewhere, others)
        return own.read(place, {key: one for key, one in value.items() if key != "kind"})

    def schema(name: str, own: Schema) -> Schema:
        required = [*([] if default_kind else ["kind"]), *own["required"]]
        return own | {"properties": {"kind": {"const": name}} | own["properties"], "required": required}

    alternatives = [schema(name, own.schema) for name, own in tables.items()]
    return Values("a table", {"anyOf": alternatives}, _is_table, read, tables=tables)


def refuse_unknown(
    place: Place,
    given: Iterable[str],
    accepted: Sequence[str],
    elsewhere: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
) -> None:
    """Refuse an unknown key, and name the nearest one that is accepted, or would be beside other keys."""
    for key in given:
        if key in accepted:
            continue
        near = nearest(key, [*accepted, *also])
        hint = (elsewhere or {}).get(key) or f"{near and near + ' '}accepted: {', '.join(accepted)}"
        raise ValueError(f"{section(place)} has an unknown key {key!r}; {hint}")


def section(place: Place) -> str:
    """Name a table as messages do."""
    return f"[{'.'.join(place) or 'job'}]"


def said(place: Place) -> str:
    """Name section and key as messages do."""
    return f"{section(place[:-1])} {place[-1]}"


def _shown(value: object) -> str:
    """Return text as it is, and of others the type."""
    return repr(value) if isinstance(value, str) else _WORDS.get(type(value), type(value).__name__)


def sample(schema: Schema) -> str:
    """Return a value that keeps to a schema; of numbers in a list each is more than the one before, as limits are."""
    if "examples" in schema:
        return json.dumps(schema["examples"][0])
    if "anyOf" in schema:
        return sample(schema["anyOf"][0])
    if "type" not in schema:
        return json.dumps(schema["const"] if "const" in schema else schema["enum"][0])
    if schema["type"] == "array":
        one = sample(schema["items"])
        return f"[{', '.join(one.replace('1.0', f'{k}.0') for k in range(1, 1 + schema.get('minItems', 1)))}]"
    if schema["type"] == "object":
        properties = schema.get("properties") or {"name": schema["additionalProperties"]}
        needed = schema.get("required", list(properties))
        entries = (f"{name} = {sample(properties[name])}" for name in needed)
        return f"{{ {', '.join(entries)} }}"
    return _SAMPLES[schema["type"]]


_OF_TYPES: dict[Any, Values] = {float: NUMBER, int: INTEGER, bool: BOOLEAN, str: TEXT}
#: What TOML has in the place of None where leaving a key out means something else.
NONE = "none"


@dataclass(frozen=True)
class Overrides:
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
    function: Callable[..., Any], changes: Overrides, docstring: str | None = None, hinted: Any = None
) -> Iterator[Key]:
    """Yield a key for each argument for which TOML has values; hints and docstring are the function's, by default."""
    hints, docstring = hints_of(hinted or function), docstring or function.__doc__ or ""
    for name, parameter in inspect.signature(function).parameters.items():
        if name in changes.left_out or parameter.kind is parameter.VAR_KEYWORD or name == "self":
            continue
        has_default = parameter.default is not parameter.empty
        stands_for_none = not has_default or parameter.default is None
        values = changes.values.get(name) or values_of(hints[name], changes.classes, says_none=not stands_for_none)
        if values is None:
            continue
        default = LEFT_OUT if has_default or name in changes.optional else REQUIRED
        default_text = None if stands_for_none else json.dumps(parameter.default)
        yield Key(name, values, explained(name, docstring), default, changes.examples.get(name), default_text)


class AnyArray:
    """Stands for NumPy's ArrayLike in hints, which is another union in every version of NumPy, or none."""


def hints_of(owner: Any) -> dict[str, Any]:
    """Return the type hints of a class or a function, with `AnyArray` for arrays."""
    return typing.get_type_hints(owner, localns={"ArrayLike": AnyArray})


def values_of(hint: Any, classes: Collection[type] = (), *, says_none: bool = False) -> Values | None:
    """Return the values of TOML for a type hint; None if there are none, as for functions."""
    options = tuple(_options(hint, classes, says_none))
    return options[0] if len(options) == 1 else either(*options) if options else None


def _options(hint: Any, classes: Collection[type], says_none: bool) -> Iterator[Values]:
    """Yield what there is in TOML for each type of a union: numbers and tables, then arrays, words and objects."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    meant: dict[str, Any] = {}
    offered: list[type] = []
    for kind in kinds:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind in _OF_TYPES:
            yield _OF_TYPES[kind]
        elif origin is Literal:
            meant |= {word: word for word in arguments}
        elif kind is NoneType:
            meant |= {NONE: None} if says_none else {}
        elif origin is tuple:
            item = values_of(arguments[0], says_none=True)
            if item is not None:
                yield lists(either(NUMBER, item) if item is ARRAY else item, len(arguments))
        elif isinstance(origin, type) and issubclass(origin, Mapping | list):
            item = values_of(arguments[-1])
            if item is not None:
                yield lists(item) if origin is list else by_name(item)
        elif isinstance(kind, type) and kind is not AnyArray:
            offered += [cls for cls in classes if kind in cls.__mro__ and cls not in offered]
    if AnyArray in kinds:
        yield ARRAY
    if meant:
        yield enum(meant)
    if offered:
        yield objects_of(tuple(offered))


def objects_of(classes: tuple[type, ...]) -> Values:
    """Return tables that stand for objects: the name of their class, and the arguments of its constructor."""
    first = {cls: plain((inspect.getdoc(cls) or "").partition("\n\n")[0]) for cls in classes}
    return tagged_union({cls.__name__: table_of(cls, doc) for cls, doc in first.items()})


def table_of(cls: type, doc: str | None = None, **examples: str) -> Values:
    """Return the table of a section, of which an object is made: a key for each argument, explained by docstrings."""
    said = [inspect.cleandoc(one.__doc__ or "") for one in reversed(cls.__mro__[:-1])]
    keys = keys_of(cls, Overrides(examples=examples), "\n\n".join(said), cls.__init__)  # type: ignore[misc]
    own = " ".join(said[-1].partition("\nParameters\n")[0].split())
    return table(keys, own if doc is None else doc, partial(_object, cls))


def _object(cls: type, place: Place, arguments: dict[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{section(place)} {error}") from None
