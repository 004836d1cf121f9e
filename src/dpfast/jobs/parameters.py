"""Keys of job files and the values that they accept: from one description, checks, a schema and a commented template.

Of keys that are arguments in Python, types and defaults are those of signatures, explanations those of docstrings.
"""

from __future__ import annotations

import inspect
import json
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal

import numpy as np

from dpfast._arguments import CLAUSE, explained, nearest, plain

Schema = dict[str, Any]
#: Where a value stands in the file: names of tables, and its key.
Place = tuple[str, ...]

_WORDS = {str: "text", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "a table"}
_SAMPLES = {"string": '"..."', "boolean": "false", "integer": "10", "number": "1.0"}
_SCHEMAS = {str: "string", bool: "boolean", int: "integer", float: "number"}


class Values(ABC):
    """Some values of TOML, and their conversion."""

    #: What they are, in messages: "must be ...".
    words: str
    #: How Python has them.
    TYPE: ClassVar[type] = object

    def fits(self, value: object) -> bool:
        """Whether a value is meant to be one of these, as its type says."""
        return isinstance(value, self.TYPE)

    def read(self, place: Place, value: Any) -> Any:
        """Return the converted value if it fits; TypeError or ValueError, naming section and key."""
        return value

    @abstractmethod
    def schema(self) -> Schema:
        """Return their JSON schema."""

    def sample(self) -> str:
        """Return one as it is written."""
        return _sample(self.schema())

    def taken(self, place: Place, value: object) -> Any:
        """Return the converted value; if it does not fit, TypeError, or ValueError for words."""
        if not self.fits(value):
            kind = ValueError if isinstance(value, str) else TypeError
            near = nearest(value, getattr(self, "accepted", ()))
            raise kind(f"{said(place)} must be {self.words}, got {_shown(value)}{near and f'; {near}'}")
        return self.read(place, value)


@dataclass(frozen=True)
class Plain(Values):
    """Values of a type, the last one, or of those that stand for it."""

    types: tuple[type, ...]

    @property
    def words(self) -> str:  # type: ignore[override]
        """As in messages."""
        return _WORDS[self.types[-1]]

    def fits(self, value: object) -> bool:
        """As `Values` has it."""
        return type(value) in self.types

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {"type": _SCHEMAS[self.types[-1]]}


TEXT, BOOLEAN, INTEGER, NUMBER = Plain((str,)), Plain((bool,)), Plain((int,)), Plain((int, float))


@dataclass(frozen=True)
class Words(Values):
    """Some words, each of which may stand for something."""

    accepted: Mapping[str, Any]

    @classmethod
    def of(cls, *accepted: str) -> Words:
        """Return words that stand for themselves."""
        return cls({word: word for word in accepted})

    @property
    def words(self) -> str:  # type: ignore[override]
        """As in messages."""
        listed = ", ".join(map(repr, self.accepted))
        return f"one of {listed}" if len(self.accepted) > 1 else listed

    def fits(self, value: object) -> bool:
        """As `Values` has it."""
        return isinstance(value, str) and value in self.accepted

    def read(self, place: Place, value: Any) -> Any:
        """Return the value of the word."""
        return self.accepted[value]

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {"enum": list(self.accepted)}


@dataclass(frozen=True)
class Lists(Values):
    """Lists of other values, all of one length if that is given; a tuple is made of them then."""

    item: Values
    length: int | None = None
    #: What a list of any length is made into.
    made: Callable[[list[Any]], Any] = list
    TYPE = list

    @property
    def words(self) -> str:  # type: ignore[override]
        """As in messages."""
        items = (
            f"{self.item.words.removeprefix('an ').removeprefix('a ')}s" if isinstance(self.item, Plain) else "items"
        )
        return f"a list of {items}" if self.length is None else f"a list of {self.length} {items}"

    def read(self, place: Place, value: Any) -> Any:
        """Return the list, or the tuple, of its converted items."""
        if self.length not in (None, len(value)):
            raise ValueError(f"{said(place)} must be {self.words}, got {len(value)}")
        if not all(map(self.item.fits, value)):
            wrong = next(one for one in value if not self.item.fits(one))
            raise TypeError(f"{said(place)} must hold {self.item.words}, got {_shown(wrong)}")
        items = [self.item.read(place, one) for one in value]
        return self.made(items) if self.length is None else tuple(items)

    def schema(self) -> Schema:
        """As `Values` has it."""
        sizes = {} if self.length is None else {"minItems": self.length, "maxItems": self.length}
        return {"type": "array", "items": self.item.schema()} | sizes


@dataclass(frozen=True)
class Array(Values):
    """Numbers in a list, or in lists of equal length in a list."""

    words: str = "a list of numbers, or of lists of them"
    TYPE = list

    def read(self, place: Place, value: Any) -> Any:
        """Return an array."""
        rows = value if value and all(isinstance(row, list) for row in value) else [value]
        if len({len(row) for row in rows}) > 1 or not all(NUMBER.fits(one) for row in rows for one in row):
            raise TypeError(f"{said(place)} must be {self.words}, all of one length")
        return np.array(value, np.float64)

    def schema(self) -> Schema:
        """As `Values` has it."""
        number = NUMBER.schema()
        return {"type": "array", "items": {"anyOf": [number, {"type": "array", "items": number}]}}

    def sample(self) -> str:
        """As `Values` has it; with more than one number."""
        return "[0.0, 1.0]"


@dataclass(frozen=True)
class Either(Values):
    """Values of several kinds, which their types tell apart."""

    options: tuple[Values, ...]

    @property
    def words(self) -> str:  # type: ignore[override]
        """As in messages."""
        return " or ".join(option.words for option in self.options)

    def fits(self, value: object) -> bool:
        """As `Values` has it."""
        return any(option.fits(value) for option in self.options)

    def read(self, place: Place, value: Any) -> Any:
        """Return the value as its kind converts it."""
        return next(option for option in self.options if option.fits(value)).read(place, value)

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {"anyOf": [option.schema() for option in self.options]}


REQUIRED: Any = object()
#: Of a key that is not among what was read, if it is left out.
LEFT_OUT: Any = object()


@dataclass(frozen=True)
class Key:
    """A key of a table."""

    name: str
    values: Values
    #: What it is for, in the words of the template.
    says: str
    default: Any = REQUIRED
    #: A value as it is written in templates; there, others are comments.
    example: str | None = None
    #: What leaving it out means, as it is written.
    usual: str | None = None

    @property
    def schema(self) -> Schema:
        """The schema for an editor."""
        usual = {} if self.usual is None else {"default": json.loads(self.usual)}
        return self.values.schema() | {"description": self.says} | usual


@dataclass(frozen=True)
class Table(Values):
    """A table of known keys."""

    keys: tuple[Key, ...]
    says: str = ""
    #: What is made of its place and of what its keys make; the latter, else.
    made: Callable[[Place, dict[str, Any]], Any] = field(default=lambda place, found: found)
    #: Of keys that are not known: what is to be done instead.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    words: str = "a table"
    TYPE = Mapping

    def read(self, place: Place, value: Any) -> Any:
        """Return the converted value of each key; refuse an unknown key, or a missing one."""
        refuse_unknown(place, value, [key.name for key in self.keys], self.elsewhere)
        found = {}
        for key in self.keys:
            if key.name in value:
                found[key.name] = key.values.taken((*place, key.name), value[key.name])
            elif key.default is REQUIRED:
                meaning = CLAUSE.split(key.says, maxsplit=1)[0]
                how = "; docs/concepts/bounds.md says how to choose it" * key.name.startswith("bo")
                raise ValueError(f"{section(place)} lacks the key {key.name!r} ({meaning}){how}")
            elif key.default is not LEFT_OUT:
                found[key.name] = key.default
        return self.made(place, found)

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {
            "type": "object",
            "properties": {key.name: key.schema for key in self.keys},
            "required": [key.name for key in self.keys if key.default is REQUIRED],
            "additionalProperties": False,
        } | ({"description": self.says} if self.says else {})


@dataclass(frozen=True)
class Named(Values):
    """A table of values by names that are the caller's own."""

    item: Values
    #: What is made of a place, which ends with the name, and of what the value makes.
    made: Callable[[Place, Any], Any] = field(default=lambda place, value: value)
    #: Lines of a template.
    example: str = ""
    words: str = "a table"
    TYPE = Mapping

    def read(self, place: Place, value: Any) -> Any:
        """Return each value converted."""
        return {name: self.made((*place, name), self.item.taken((*place, name), one)) for name, one in value.items()}

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {"type": "object", "additionalProperties": self.item.schema()}


@dataclass(frozen=True)
class Variants(Values):
    """Tables of several kinds, told apart by their key "kind"."""

    tables: Mapping[str, Table]
    #: The kind of a table that does not say it; None where it must.
    usual: Callable[[Mapping[str, Any]], str] | None = None
    words: str = "a table"
    TYPE = Mapping

    def read(self, place: Place, value: Any) -> Any:
        """Return the value as the table of its kind converts it."""
        kind = value.get("kind", self.usual(value) if self.usual else None)
        if kind is None:
            raise ValueError(f"{section(place)} lacks the key 'kind', one of {', '.join(map(repr, self.tables))}")
        Words.of(*self.tables).taken((*place, "kind"), kind)
        table = self.tables[kind]
        refuse_unknown(place, value, ["kind", *(key.name for key in table.keys)], table.elsewhere)
        return table.read(place, {key: one for key, one in value.items() if key != "kind"})

    def schema(self) -> Schema:
        """As `Values` has it."""
        return {"anyOf": [self._schema(name, table) for name, table in self.tables.items()]}

    def _schema(self, name: str, table: Table) -> Schema:
        schema = table.schema()
        properties = {"kind": {"const": name}} | schema["properties"]
        return schema | {"properties": properties, "required": [*([] if self.usual else ["kind"]), *schema["required"]]}


def refuse_unknown(
    place: Place, given: Iterable[str], accepted: Sequence[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse an unknown key, and name the nearest known one."""
    for key in given:
        if key in accepted:
            continue
        hint = (elsewhere or {}).get(key) or nearest(key, accepted) or f"accepted: {', '.join(accepted)}"
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


def _sample(schema: Schema) -> str:
    """Return a value that keeps to a schema; of numbers in a list each is more than the one before, as limits are."""
    if "anyOf" in schema:
        return _sample(schema["anyOf"][0])
    if "type" not in schema:
        return json.dumps(schema["const"] if "const" in schema else schema["enum"][0])
    if schema["type"] == "array":
        one = _sample(schema["items"])
        return f"[{', '.join(one.replace('1.0', f'{k}.0') for k in range(1, 1 + schema.get('minItems', 1)))}]"
    if schema["type"] == "object":
        properties = schema.get("properties") or {"name": schema["additionalProperties"]}
        needed = schema.get("required", list(properties))
        entries = (f"{name} = {_sample(properties[name])}" for name in needed)
        return f"{{ {', '.join(entries)} }}"
    return _SAMPLES[schema["type"]]


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
    """Yield what there is in TOML for each type of a union: numbers and tables, then arrays, words and objects."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    words: dict[str, Any] = {}
    offered: list[type] = []
    for kind in kinds:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind in _PLAIN:
            yield _PLAIN[kind]
        elif origin is Literal:
            words |= {word: word for word in arguments}
        elif kind is NoneType:
            words |= {NONE: None} if says_none else {}
        elif origin is tuple:
            item = values_of(arguments[0], says_none=True)
            if item is not None:
                yield Lists(Either((NUMBER, item)) if isinstance(item, Array) else item, len(arguments))
        elif isinstance(origin, type) and issubclass(origin, Mapping | list):
            item = values_of(arguments[-1])
            if item is not None:
                yield Lists(item) if origin is list else Named(item)
        elif isinstance(kind, type) and kind is not AnyArray:
            offered += [cls for cls in classes if kind in cls.__mro__ and cls not in offered]
    if AnyArray in kinds:
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
