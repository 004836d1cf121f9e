"""Rows of people, as jobs declare them: files of named columns.

Features are columns as they are in the table, transformed, or multiplied with each other.
"""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.estimator.bounded import in_order_of
from dpfast.io import Boolean, Category, Columns, Interaction, Number, RowOwners
from dpfast.io.columns import Column, DeclaredFiles, Feature, Part, table_parts
from dpfast.io.transforms import Transform
from dpfast.jobs import parameters as toml
from dpfast.jobs.inputs import INPUT, check_kinds
from dpfast.jobs.parameters import INTEGER, LEFT_OUT, NUMBER, TEXT, Key, Overrides, Place, Values, said, section


@dataclass(frozen=True)
class Declared:
    """The declaration of columns, with names or a pattern: as they are, transformed, or multiplied with each other."""

    kind: type[Any]
    options: Mapping[str, Any]

    @property
    def is_product(self) -> bool:
        """Whether it is an interaction of other entries."""
        return self.kind is Interaction

    @property
    def is_limited(self) -> bool:
        """Whether limits are declared; what interactions are made of always has some."""
        return self.is_product or "low" in self.options

    def source(self, name: str) -> str:
        """Return the table's column, or the pattern of columns, of the entry of that name."""
        return str(self.options.get("column", name))

    def column(self, source: str) -> Feature:
        """Return it for a column of the table."""
        if not issubclass(self.kind, Transform):
            column: Column = self.kind(source, **self.options)
            return column
        of_number = {key: self.options[key] for key in ("low", "high", "missing") if key in self.options}
        own = {key: value for key, value in self.options.items() if key not in ("column", *of_number)}
        return self.kind(Number(source, **of_number), **own)

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
    """Return a declaration once it is checked, under its name; no table is looked at."""
    try:
        if not declared.is_product:
            declared.column(declared.source(place[-1]))
        elif len(declared.options["of"]) < 2:
            raise ValueError("of must hold at least two names of [features]")
    except (TypeError, ValueError) as error:
        raise type(error)(f"{section(place)} {error}") from None
    return declared


def _made(kind: type[Any], _: Place, found: dict[str, Any]) -> Declared:
    return Declared(kind, found)


_KINDS: dict[str, type[Number | Boolean | Category]] = {"number": Number, "boolean": Boolean, "category": Category}
_TRANSFORMS: dict[str, type[Transform]] = {"log": io.Log, "polynomial": io.Polynomial, "spline": io.Spline}
_LEVEL = toml.either(TEXT, INTEGER)
_LEVELS = {"levels": toml.lists(_LEVEL, made=tuple), "missing": _LEVEL}
_LEAST = "Least entry: smaller ones are clipped to it. Where every feature has limits, they are box_x."
_LIMITS = Key("low", NUMBER, _LEAST, LEFT_OUT), Key("high", NUMBER, "Largest entry, likewise.", LEFT_OUT)
_MISSING = Key("missing", NUMBER, "What stands for a missing entry; by default there must be none.", LEFT_OUT)
_SOURCE = Key("column", TEXT, "The table's column; by default the name of the entry.", LEFT_OUT)
_REQUIRED_LIMITS = (
    Key("low", NUMBER, "Least entry of the column: smaller ones are clipped to it first.", example="1.0"),
    Key("high", NUMBER, "Largest entry, likewise.", example="10.0"),
)
_OF = "Names of at least two other entries of [features]; numbers with low and high."
_PRODUCT = toml.table(
    [Key("of", toml.lists(TEXT, made=tuple), _OF, example='["age", "smoker"]')],
    'The products of other features, such as { of = ["age", "smoker"] }',
    partial(_made, Interaction),
)


def columns_table(
    only: tuple[str, ...] = tuple(_KINDS), *, limits: str | None, transforms: bool = False, is_encoded: bool = True
) -> Values:
    """Return the declarable keys of a column (the arguments of its class), or the reason for a missing limit.

    Described columns are not encoded: they have no keys for the encoding.
    """
    tables = {}
    for name in only:
        kind = _KINDS[name]
        of_codes = () if is_encoded and len(only) == len(_KINDS) else ("drop_first", "undeclared")
        left_out = "name", "low", "high", *of_codes, *(() if is_encoded else ("missing",))
        keys = list(toml.keys_of(kind, Overrides(_LEVELS if kind is Category else {}, left_out=left_out)))
        keys = [replace(key, doc=_MISSING.doc, default_text=None) if key.name == "missing" else key for key in keys]
        if kind is Number and limits is None:
            keys += _LIMITS if is_encoded else _REQUIRED_LIMITS
        why = {} if limits is None else dict.fromkeys(("low", "high", "bound", "bound_y"), limits)
        tables[name] = toml.table(keys, _summary(kind), partial(_made, kind), why)
    if transforms:
        tables |= {name: _transform(kind) for name, kind in _TRANSFORMS.items()} | {"interaction": _PRODUCT}
    needs_more = {"category"} if is_encoded else {"category", "number"}
    alone = {name: Declared(_KINDS[name], {}) for name in only if name not in needs_more}
    default = "number" if "number" in only else "boolean"

    def kind_of(given: Mapping[str, Any]) -> str:
        return "category" if "levels" in given else "interaction" if transforms and "of" in given else default

    levels = toml.lists(_LEVEL, made=lambda levels: Declared(Category, {"levels": tuple(levels)}))

    def read_levels(place: Place, value: list[Any]) -> Any:
        if "number" in only and len(value) == 2 and all(map(NUMBER.fits, value)):
            low, high = value
            or_limits = f", {{ low = {low}, high = {high} }} for limits" if limits is None else f"; {limits}"
            two = f"{{ levels = [{low}, {high}] }} for two levels"
            raise ValueError(f"{said(place)} is ambiguous: write {two}{or_limits}")
        return levels.read(place, value)

    alone_or_levels = [toml.enum(alone), *([replace(levels, read=read_levels)] if "category" in only else ())]
    return toml.either(*alone_or_levels, toml.tagged_union(tables, kind_of))


def _transform(kind: type[Transform]) -> Values:
    changes = Overrides(values={"knots": toml.lists(NUMBER, made=tuple)}, left_out=("column",))
    own = toml.keys_of(kind, changes)
    return toml.table([_SOURCE, *_REQUIRED_LIMITS, *own, _MISSING], _summary(kind), partial(_made, kind))


def _summary(kind: type[Any]) -> str:
    return (kind.__doc__ or "").partition(".")[0].partition(";")[0].partition(", ")[0]


Outcomes = Literal["several", "one", "labels", "none"]


@dataclass(frozen=True)
class OwnerColumn:
    """If people have several rows: noise then hides a whole person. Without this table, every row is a person.

    Parameters
    ----------
    id : str
        The column of ids, which is no feature. It is read before the rest.
    max_rows : int
        How many rows of a person count, the first ones.
    """

    id: str
    max_rows: int

    def __post_init__(self) -> None:
        check.positive_integer("max_rows", self.max_rows)


@dataclass(frozen=True)
class RowWeights:
    """Where rows have weights, such as those of a survey, as private as the rows.

    The effective weight is weight / max_weight, at most 1.

    Parameters
    ----------
    weight : str
        The column of weights, at least 0. It is read before the rest.
    max_weight : float
        The largest weight, declared: larger ones are clipped to it.
    """

    weight: str
    max_weight: float

    def check(self, files: list[Path]) -> None:
        """Refuse files without the column, or with no numbers there; no rows are read."""
        check_kinds(files, {self.weight: "number"})

    def read(self, files: list[Path]) -> FloatArray:
        """Read the column."""
        batches = DeclaredFiles(files, {self.weight: "number"}).batches()
        weights = np.concatenate([np.empty(0), *(batch.numbers(self.weight) for batch in batches)])
        if not np.all(np.isfinite(weights) & (weights >= 0.0)):
            raise ValueError(f"column {self.weight!r} must hold finite weights of at least 0, none of them missing")
        return weights


#: A sign of patterns that stands for itself.
_ESCAPED = re.compile(r"\[([*?[])\]")
_PEOPLE = toml.table_of(OwnerColumn, id='"patient"', max_rows="20")
_WEIGHTS = toml.table_of(RowWeights, weight='"weight"', max_weight="10.0")


@dataclass(frozen=True)
class Rows:
    """The declaration of a job's rows, a person each unless `people` is declared."""

    #: Tables with named columns.
    files: list[Path]
    #: What is declared of them; None where patterns stand for some, and no table was looked at.
    columns: Columns | None
    #: None where every row is a person of its own.
    people: OwnerColumn | None
    #: None where it takes a look at the table to know them.
    feature_names: tuple[str, ...] | None
    outcome_names: tuple[str, ...] | None
    #: Limits of every encoded feature, where they are declared.
    box: tuple[FloatArray, FloatArray] | None
    #: The labels that are declared, where outcomes are those.
    classes: tuple[Any, ...] | None = None
    #: None where rows count alike.
    weights: RowWeights | None = None
    #: Parameters one of which must bound rows.
    bounds: tuple[str, ...] = ()

    @property
    def max_rows(self) -> int | None:
        """Most rows of a person that count."""
        return None if self.people is None else self.people.max_rows

    def encoded(self, progress: Callable[[int], object] | None) -> io.EncodedTable:
        """Return named columns as blocks of numbers."""
        assert self.columns is not None
        return self.columns.encode(self.files, progress)

    @property
    def names(self) -> tuple[Sequence[str], ...]:
        """Names of features and of outcomes."""
        return self.feature_names or (), self.outcome_names or ()

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters with what is declared of rows: limits of features as box_x, and the largest weight."""
        found = dict(given) if self.weights is None else {**given, "max_weight": self.weights.max_weight}
        if self.box is not None:
            if "box_x" in given:
                raise ValueError("[estimator] box_x and low, high in [features] say the same: leave one of them out")
            found["box_x"] = self.box
        if isinstance(given.get("bound_y"), Mapping) and self.outcome_names is not None:
            in_order_of("bound_y", given["bound_y"], "[outcomes]", None, self.outcome_names)
        if self.bounds and found.keys().isdisjoint(self.bounds):
            columns = self.columns
            if columns is not None and "box_x" in self.bounds and len(columns.limits) == len(columns.feature_names):
                # Categories and booleans, which have limits of their own.
                return found | {"box_x": columns.box}
            raise ValueError(
                "nothing bounds the rows: declare low and high of every number in [features], or "
                f"{self.bounds[0]} in [estimator]"
            )
        return found

    def fit(self, model: Any, progress: Callable[[int], object] | None) -> None:
        """Fit: from a stream of named columns, or from rows and labels in memory."""
        if self.classes is not None:
            read = cache(partial(self.labelled, progress))
            data: tuple[Any, ...] = io.Deferred(lambda: read()[0]), io.Deferred(lambda: read()[1])
        else:
            data = (self.encoded(progress),)
        options: dict[str, Any] = {}
        if self.weights is not None:
            options["sample_weight"] = io.Deferred(partial(self.weights.read, self.files))
        if self.people is not None:
            options |= {"groups": RowOwners(self.files, self.people.id), "max_rows": self.people.max_rows}
        model.fit(*data, **options)

    def labelled(self, progress: Callable[[int], object] | None) -> tuple[Any, NDArray[Any]]:
        """Return all rows, in memory, and their labels."""
        assert self.columns is not None
        # A column of booleans holds the label's place, one of categories an indicator of each label.
        is_boolean = isinstance(self.columns.outcomes[0], Boolean)
        features, places = [], []
        for block, outcome in self.encoded(progress):
            assert outcome is not None
            features.append(block)
            places.append(outcome[:, 0] if is_boolean else outcome.argmax(axis=1))
        return np.concatenate(features), np.array(self.classes)[np.concatenate(places).astype(np.intp)]

    def sizes(self) -> dict[str, int]:
        """Return the sizes that plans take, as far as they are known."""
        known = {"n_features": self.feature_names, "n_outcomes": self.outcome_names}
        widths = {name: len(names) for name, names in known.items() if names is not None}
        return widths if self.people is None else widths | {"max_rows": self.people.max_rows}

    def facts(self) -> list[tuple[str, str]]:
        """Return the public facts on them, for a report."""
        known = []
        if self.people is not None:
            known.append(("a person", f"all rows of one {self.people.id!r}, {self.people.max_rows} at most"))
        if self.weights is not None:
            known.append(("weights", f"column {self.weights.weight!r}, over {self.weights.max_weight} and at most 1"))
        named = (("features", self.feature_names), ("outcomes", self.outcome_names))
        names = [(f"{what} ({len(those)})", ", ".join(those)) for what, those in named if those]
        classes = [] if self.classes is None else [("classes", ", ".join(map(str, self.classes)))]
        return [*known, *names, *classes]


class RowsInput:
    """The sections of a job on rows, as its estimator's `fit` takes them, and how they are read."""

    def __init__(
        self,
        estimator: type[Any],
        outcomes: Outcomes = "several",
        *,
        is_encoded: bool = True,
        needs_bounds: bool = True,
        example: tuple[str, str],
    ) -> None:
        self._outcomes, self._is_encoded = outcomes, is_encoded
        taken, parameters = (inspect.signature(one).parameters for one in (estimator.fit, estimator))
        self._bounds = tuple(name for name in ("bound_x", "box_x") if needs_bounds and name in parameters)
        features, those = (line.strip("\n") for line in example)
        column = columns_table(limits=None, transforms=is_encoded, is_encoded=is_encoded)
        what = "rows are described by, in the order of the coefficients" if is_encoded else "is described"
        doc = (
            f"What {what}: columns, by name or pattern. A kind alone, such as "
            f'"{"number" if is_encoded else "boolean"}", is short for a table of nothing else, '
            "and so is a list of levels."
        )
        sections = [
            Key("input", INPUT, INPUT.doc),
            *([Key("people", _PEOPLE, _PEOPLE.doc, LEFT_OUT)] if "groups" in taken else []),
            *([Key("weights", _WEIGHTS, _WEIGHTS.doc, LEFT_OUT)] if "sample_weight" in taken else []),
            Key("features", toml.by_name(column, named), doc, LEFT_OUT, features),
        ]
        if outcomes != "none":
            what = {
                "several": "What is predicted from them.",
                "one": "What is predicted from them: one column.",
                "labels": "The labels that are predicted: one column, with all its levels (or boolean, for 0 and 1).",
            }[outcomes]
            only = ("boolean", "category") if outcomes == "labels" else ("number", "boolean", "category")
            bounded = "only features have limits, outcomes are bounded by bound_y in [estimator], { days = 30.0 }"
            declared = toml.by_name(columns_table(only, limits=bounded), named)
            sections.append(Key("outcomes", declared, what, LEFT_OUT, those))
        self.sections = tuple(sections)

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Rows:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        people, weights = sections.get("people"), sections.get("weights")
        for key in [one.name for one in self.sections if one.name in ("features", "outcomes")]:
            if key not in sections:
                raise ValueError(f"[job] lacks the key {key!r}")
        files = sections["input"].found(here) if look else []
        declared = {key: sections.get(key, {}) for key in ("features", "outcomes")}
        apart = {one for one in (people and people.id, weights and weights.weight) if one}
        if not declared["outcomes"] and self._outcomes != "none":
            raise ValueError("[outcomes] must declare at least one column")
        classes = None
        if self._outcomes == "labels":
            classes = tuple(next(iter(declared["outcomes"].values())).options.get("levels", (0, 1)))
        columns = _resolved(declared, files, apart)
        if columns is None:
            if any(one.is_limited for one in declared["features"].values()):
                raise ValueError(
                    "[features] has limits and a pattern, and a plan reads no table to find its columns: name them "
                    "in full, in the job or in a copy for the plan (put a *, ? or [ of a name in brackets: 'smoker[?]')"
                )
            return Rows(files, None, people, None, None, None, classes, weights, self._bounds)
        if self._outcomes in ("one", "labels") and len(columns.outcomes) > 1:
            raise ValueError(f"[outcomes] must declare one column, got {len(columns.outcomes)}")
        if self._outcomes == "one" and len(columns.outcome_names) > 1:
            raise ValueError("[outcomes] must declare one column of numbers or booleans, got one of categories")
        if people is not None and people.id in columns.names:
            raise ValueError(f"[people] id {people.id!r} is declared as a feature or an outcome, and would be released")
        if look:
            columns.check(files)
            if people is not None:
                RowOwners(files, people.id).check()
            if weights is not None:
                weights.check(files)
        box = _box(columns, declared["features"])
        names = columns.feature_names if self._is_encoded else columns.names
        outcomes = columns.outcome_names if classes is None else (columns.outcomes[0].name,)
        return Rows(files, columns, people, names, outcomes, box, classes, weights, self._bounds)


def _box(columns: Columns, declared: Mapping[str, Declared]) -> tuple[FloatArray, FloatArray] | None:
    """Return the limits of features: of all, where those of a number are declared; transforms always have some."""
    is_complete = len(columns.limits) == len(columns.feature_names)
    is_requested = any(one.is_limited and one.kind is Number for one in declared.values())
    return columns.box if is_requested or (is_complete and any(one.is_limited for one in declared.values())) else None


def _resolved(
    declared: Mapping[str, Mapping[str, Declared]], files: list[Path], apart: Collection[str]
) -> Columns | None:
    """Return the declared columns; None if patterns stand for some, unseen. Columns `apart` match no pattern."""
    first = next(table_parts(files), None)
    every = [(name, one) for those in declared.values() for name, one in those.items()]
    explicit = {_unescaped(one.source(name)) for name, one in every if not one.is_product}.union(apart)
    columns: dict[str, list[Feature]] = {"features": [], "outcomes": []}
    for key, those in declared.items():
        entries: dict[str, list[Feature]] = {}
        for name, one in those.items():
            if one.is_product:
                continue
            matches = _matches(key, one.source(name), explicit, first)
            if matches is None:
                return None
            entries[name] = [one.column(match) for match in matches]
        for name, one in those.items():
            columns[key] += [one.made_of(name, entries)] if one.is_product else entries[name]
    return Columns(columns["features"], columns["outcomes"])


def _unescaped(name: str) -> str:
    """Return the column whose name has a sign of patterns, if all such signs are in brackets; else what is given."""
    rest = _ESCAPED.sub("", name)
    return name if any(sign in rest for sign in "*?[") else _ESCAPED.sub(r"\1", name)


def _matches(key: str, name: str, explicit: set[str], first: Part | None) -> list[str] | None:
    """Return the columns of a name or a pattern; None for a pattern if there is no table to look at."""
    single = _unescaped(name)
    is_pattern = single == name and any(sign in name for sign in "*?[")
    if first is None:
        return None if is_pattern else [single]
    if not is_pattern or name in first.names:
        return [name if name in first.names else single]
    if first.families is None and explicit.isdisjoint(first.names):
        # What a pattern matches is released, and the first line of a text file may be a person's.
        raise ValueError(f"[{key}] {name!r} is a pattern: name one column of {first.label} at least in full")
    matches = fnmatch.filter([other for other in first.names if other not in explicit], name)
    if not matches:
        raise ValueError(f"[{key}] {name!r} matches no column of the table, beside those declared by name")
    return matches
