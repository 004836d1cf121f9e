"""Columns as jobs declare them: as they are in the table, transformed, or multiplied with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpfast.io import Boolean, Category, Interaction, Log, Number, Polynomial, Spline
from dpfast.io.columns import Column, Feature
from dpfast.io.transforms import Transform
from dpfast.jobs.parameters import (
    INTEGER,
    LEFT_OUT,
    NUMBER,
    TEXT,
    Changes,
    Either,
    Key,
    Lists,
    Place,
    Table,
    Variants,
    Words,
    hints_of,
    keys_of,
    section,
)


@dataclass(frozen=True)
class Declared:
    """The declaration of columns, with names or a pattern."""

    kind: type[Any]
    options: Mapping[str, Any]

    @property
    def is_limited(self) -> bool:
        """Whether limits are declared."""
        return "low" in self.options

    def source(self, name: str) -> str:
        """Return the table's column, or the pattern of columns, of the entry of that name."""
        return name

    def column(self, source: str) -> Feature:
        """Return it for a column of the table."""
        column: Column = self.kind(source, **self.options)
        return column

    def check(self, name: str) -> None:
        """Refuse a bad declaration; no table is looked at."""
        self.column(self.source(name))


@dataclass(frozen=True)
class Transformed(Declared):
    """The declaration of a transform of a column of numbers."""

    def source(self, name: str) -> str:
        """As for `Declared`."""
        return str(self.options.get("column", name))

    def column(self, source: str) -> Feature:
        """As for `Declared`."""
        of_number = {key: self.options[key] for key in ("low", "high", "missing") if key in self.options}
        own = {key: value for key, value in self.options.items() if key not in ("column", *of_number)}
        transform: Transform = self.kind(Number(source, **of_number), **own)
        return transform


@dataclass(frozen=True)
class Product(Declared):
    """The declaration of an interaction of other entries."""

    @property
    def is_limited(self) -> bool:
        """As for `Declared`: those that it is made of are."""
        return True

    def check(self, name: str) -> None:
        """As for `Declared`."""
        if len(self.options["of"]) < 2:
            raise ValueError("of must hold at least two names of [features]")

    def made_of(self, name: str, entries: Mapping[str, list[Feature]]) -> Feature:
        """Return the interaction of those entries."""
        place = section(("features", name))
        parts: list[Any] = []
        for one in self.options["of"]:
            if one not in entries:
                raise ValueError(f"{place} of must hold names of [features] that are no interactions, got {one!r}")
            if len(entries[one]) != 1:
                raise ValueError(f"{place} of must hold names of single columns, and {one!r} is a pattern of several")
            parts += entries[one]
        try:
            return Interaction(*parts)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{place} {error}") from None


def named(place: Place, declared: Declared) -> Declared:
    """Return a declaration once it is checked, under its name."""
    try:
        declared.check(place[-1])
    except (TypeError, ValueError) as error:
        raise type(error)(f"{section(place)} {error}") from None
    return declared


_KINDS: dict[str, type[Number | Boolean | Category]] = {"number": Number, "boolean": Boolean, "category": Category}
_TRANSFORMS: dict[str, type[Transform]] = {"log": Log, "polynomial": Polynomial, "spline": Spline}
_LEVEL = Either((TEXT, INTEGER))
_LEVELS = {"levels": Lists(_LEVEL, made=tuple), "missing": _LEVEL}
_LIMITS = (
    Key(
        "low",
        NUMBER,
        "Least entry: smaller ones are clipped to it. Where every feature has limits, they are box_x.",
        LEFT_OUT,
    ),
    Key("high", NUMBER, "Largest entry, likewise.", LEFT_OUT),
)
_MISSING = Key("missing", NUMBER, "What stands for a missing entry; by default there must be none.", LEFT_OUT)
_SOURCE = Key("column", TEXT, "The table's column; by default the name of the entry.", LEFT_OUT)
_REQUIRED_LIMITS = (
    Key("low", NUMBER, "Least entry of the column: smaller ones are clipped to it first.", example="1.0"),
    Key("high", NUMBER, "Largest entry, likewise.", example="10.0"),
)
_PRODUCT = Table(
    (
        Key(
            "of",
            Lists(TEXT, made=tuple),
            "Names of at least two other entries of [features]; numbers with low and high.",
            example='["age", "smoker"]',
        ),
    ),
    'The products of other features, such as { of = ["age", "smoker"] }',
    lambda place, found: Product(Interaction, found),
)


def columns_table(
    only: tuple[str, ...] = tuple(_KINDS), *, limits: str | None, transforms: bool = False, is_encoded: bool = True
) -> Either:
    """Return the declarable keys of a column (the arguments of its class), or the reason for a missing limit.

    Described columns are not encoded: they have no keys for the encoding.
    """
    tables = {}
    for name in only:
        kind = _KINDS[name]
        changes = Changes(
            values=_LEVELS if kind is Category else {},
            left_out=(
                *("name", "low", "high"),
                *(() if is_encoded and len(only) == len(_KINDS) else ("drop_first", "undeclared")),
                *(() if is_encoded else ("missing",)),
            ),
        )
        keys = [
            *keys_of(kind, hints_of(kind), kind.__doc__ or "", changes),
            *((_LIMITS if is_encoded else _REQUIRED_LIMITS) if kind is Number and limits is None else ()),
        ]
        keys = [Key(key.name, key.values, _MISSING.says, key.default) if key.name == "missing" else key for key in keys]
        why = {} if limits is None else {"low": limits, "high": limits}
        tables[name] = Table(tuple(keys), _summary(kind), _made(Declared, kind), why)
    if transforms:
        tables |= {name: _transform(kind) for name, kind in _TRANSFORMS.items()} | {"interaction": _PRODUCT}
    needs_more = {"category"} if is_encoded else {"category", "number"}
    alone = {name: Declared(_KINDS[name], {}) for name in only if name not in needs_more}
    usual = "number" if "number" in only else "boolean"

    def kind_of(given: Mapping[str, Any]) -> str:
        return "category" if "levels" in given else "interaction" if transforms and "of" in given else usual

    levels = Lists(_LEVEL, made=lambda levels: Declared(Category, {"levels": tuple(levels)}))
    return Either((Words(alone), *([levels] if "category" in only else ()), Variants(tables, kind_of)))


def _transform(kind: type[Transform]) -> Table:
    changes = Changes(values={"knots": Lists(NUMBER, made=tuple)}, left_out=("column",))
    own = keys_of(kind, hints_of(kind), kind.__doc__ or "", changes)
    return Table((_SOURCE, *_REQUIRED_LIMITS, *own, _MISSING), _summary(kind), _made(Transformed, kind))


def _summary(kind: type[Any]) -> str:
    return (kind.__doc__ or "").partition(".")[0].partition(";")[0].partition(", ")[0]


def _made(declares: type[Declared], kind: type[Any]) -> Callable[[Place, dict[str, Any]], Declared]:
    return lambda place, found: declares(kind, found)
