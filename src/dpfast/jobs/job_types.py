"""Jobs and their kinds: each family declares kinds in its ``job.py`` as `JOB_TYPES`, one for each of its estimators.

The description that jobs are read by also gives jobs for people to fill in, and a JSON schema for their editors. A
`Job` is a file that is read and checked: everything that can be said of it from public facts, before any row is read.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import textwrap
import tomllib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from dpfast import registry
from dpfast._arguments import explained
from dpfast._optional import LIBRARIES, Library
from dpfast.estimator.plan import Plan
from dpfast.io.summaries import WRITERS
from dpfast.jobs import parameters as toml
from dpfast.jobs.parameters import LEFT_OUT, REQUIRED, Key, Overrides, Schema, Values
from dpfast.ledger import Ledger
from dpfast.privacy import Privacy, Unit, UtilityWarning

#: Told how many bytes have been read since it was last called.
Progress = Callable[[int], object]
#: What is public of the data, and what it is called, for a report.
Fact = tuple[str, str]


class InputType(Protocol):
    """The layout of people in tables: its sections in a job file, and its readers.

    `read` returns the declaration of a job's people, as kinds and reports use it: its ``files``; ``names`` of the
    results, which `tables` and `figures` of a kind take; ``parameters(given)``, the estimator's, with those that the
    declaration says; ``fit(model, progress)``, which reads the data; ``sizes()`` that plans take, as far as they are
    known; and the public ``facts()`` for a report.
    """

    @property
    def sections(self) -> tuple[Key, ...]:
        """The sections of a job."""

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Any:
        """Return it; unless they are not to be looked for, files must be there and fit. No rows are read."""


# Parameters that are given elsewhere.
_ELSEWHERE = dict.fromkeys(("epsilon", "delta", "ledger"), "it is a key of [privacy]")
_ELSEWHERE |= {"max_weight": "it is a key of [weights]"}
# Enough people for any algorithm, where a fit's parameters are checked without knowing how many there are.
_MANY = 1 << 20
# One that a single person is enough for, so that nobody is counted.
_ANY_ERROR = 1e100


class JobType(ABC):
    """The part of jobs that is particular to one estimator."""

    #: Its name in job files.
    JOB_TYPE: ClassVar[str]
    ESTIMATOR: ClassVar[type[Any]]
    INPUT_TYPE: ClassVar[InputType]
    #: What readers of its tables must know.
    NOTE: ClassVar[str]
    #: What keys of [estimator] have that signature and documentation do not tell.
    OVERRIDES: ClassVar[Overrides] = Overrides()
    #: The size that a plan calls the number of people.
    PEOPLE: ClassVar[str] = "n"

    def parameters(self, given: Mapping[str, Any], data: Any) -> dict[str, Any]:
        """Return the estimator's parameters, from the [estimator] section and the declarations of the data."""
        found: dict[str, Any] = data.parameters(given)
        return found

    @abstractmethod
    def tables(self, model: Any, *names: Any, **_: Any) -> dict[str, Mapping[str, Any]]:
        """Return the results of a fit: tables by name, each of columns by name."""

    def figures(self, model: Any, *names: Any, **_: Any) -> dict[str, Any]:
        """Draw the results: axes by name."""
        return {}

    def facts(self, model: Any) -> list[Fact]:
        """Return what else there is to say of a fit."""
        return []

    def check(self, parameters: Mapping[str, Any], data: Any) -> None:
        """Refuse parameters that a fit would refuse: a plan does so, and needs public sizes only."""
        estimator = self.ESTIMATOR(**parameters)
        placeholder = estimator._checked_with_placeholders()
        if getattr(data, "weights", None) is not None:
            estimator._check_takes_weights()
        sizes = data.sizes()
        if {*self._sizes_to_plan()} <= {self.PEOPLE, *sizes}:
            self._planned(placeholder, parameters, {self.PEOPLE: _MANY, "target": _ANY_ERROR} | sizes)

    def planned(self, parameters: Mapping[str, Any], data: Any, given: Mapping[str, Any]) -> Plan:
        """Return the error to expect, from declarations and other public sizes."""
        placeholder = self.ESTIMATOR(**parameters)._checked_with_placeholders()
        sizes = data.sizes() | dict(given)
        if lacking := [name for name in self._sizes_to_plan() if name not in sizes]:
            keys = " and ".join(repr("people" if name == self.PEOPLE else name) for name in lacking)
            means = [explained(name, self.ESTIMATOR.plan.__doc__ or "").removesuffix(".") for name in lacking]
            raise ValueError(
                f"[plan] lacks the key{'s' * (len(lacking) > 1)} {keys} ({'; '.join(dict.fromkeys(means))}), which "
                "nothing else in the job tells: a plan looks at no table"
            )
        return self._planned(placeholder, parameters, sizes)

    def _sizes_to_plan(self) -> list[str]:
        """Return the names of the sizes that a plan cannot do without."""
        requested = inspect.signature(self.ESTIMATOR.plan).parameters
        return [name for name, one in requested.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD]

    def _planned(self, placeholder: Any, parameters: Mapping[str, Any], sizes: Mapping[str, Any]) -> Plan:
        # Where bounds are to be found, a plan needs numbers in their place.
        numbers = {name: getattr(placeholder, name) for name in parameters}
        known = inspect.signature(self.ESTIMATOR.plan).parameters
        with warnings.catch_warnings():
            # A plan says itself what error it expects.
            warnings.simplefilter("ignore", UtilityWarning)
            planned: Plan = self.ESTIMATOR.plan(**{name: sizes[name] for name in known if name in sizes}, **numbers)
        return planned

    @cached_property
    def description(self) -> Values:
        """The content of a job file of this kind: the source of checks, schema and template."""
        sections = [*self.INPUT_TYPE.sections, *self._own_sections()]
        return toml.table(sections, f"A job for dpfast: {self.summary}")

    @property
    def summary(self) -> str:
        """The first sentence of its estimator's docstring."""
        return (self.ESTIMATOR.__doc__ or "").partition("\n")[0]

    def _own_sections(self) -> Iterator[Key]:
        kind = Key("kind", toml.enum([self.JOB_TYPE]), "What is fitted.", example=f'"{self.JOB_TYPE}"')
        yield Key("estimator", toml.table([kind, *self._parameters()], elsewhere=_ELSEWHERE), self.summary)
        yield Key("privacy", _PRIVACY, _PRIVACY.doc)
        yield Key("plan", toml.table(self._assumptions()), _PLAN, LEFT_OUT)
        yield Key("output", _OUTPUT, _OUTPUT.doc)

    def _parameters(self) -> Iterator[Key]:
        left_out = (*_ELSEWHERE, *self.OVERRIDES.left_out)
        every = replace(self.OVERRIDES, left_out=left_out, classes=getattr(self.ESTIMATOR, "_PARAMETER_TYPES", ()))
        keys = toml.keys_of(self.ESTIMATOR, every)
        # What all estimators have comes last.
        shared = ("adjacency", "calibration", "random_state", "n_threads")
        return iter(sorted(keys, key=lambda key: key.name in shared))

    def _assumptions(self) -> Iterator[Key]:
        known = Overrides(left_out=(self.PEOPLE, "max_rows", "panel"))
        yield Key("people", toml.INTEGER, "Number of people; by default as many as are needed.", LEFT_OUT)
        for key in toml.keys_of(self.ESTIMATOR.plan, known):
            yield replace(key, default=LEFT_OUT, example=None)


_PLAN = "What `dpfast plan` is told that nothing else here says. It decides nothing of a fit."
_LEDGER_SAYS = (
    "A file that adds up what all jobs on these people have spent, and refuses more than its budget. It is made if "
    "it is not there."
)
_LEDGER_KEYS = (
    Key("path", toml.TEXT, "The file.", example='"people.ledger"'),
    Key("epsilon", toml.NUMBER, "The budget: all that may ever be spent.", example="3.0"),
    Key("delta", toml.NUMBER, "The same of delta: ten times that of a job, or more.", 0.0, example="1e-5"),
    *toml.keys_of(Ledger, Overrides(left_out=("budget", "path", "unit")), hinted=Ledger.__init__),
)
_PRIVACY_KEYS = (
    Key("epsilon", toml.NUMBER, "Privacy of the whole job: the smaller, the more private.", example="1.0"),
    Key("delta", toml.NUMBER, "Probability that the guarantee fails; 0 needs more noise.", 0.0, example="1e-6"),
    Key("ledger", toml.table(_LEDGER_KEYS), _LEDGER_SAYS, LEFT_OUT),
)
_PRIVACY = toml.table(_PRIVACY_KEYS, "What may be spent.", elsewhere={"adjacency": "it is a key of [estimator]"})
_PICTURES = ("png", "svg")
# The module that writes a format, where that is no part of dpfast.
_WRITERS = {"parquet": "pyarrow.parquet"} | dict.fromkeys(_PICTURES, "matplotlib.figure")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the results go: tables, model, plots and report.

    Parameters
    ----------
    folder : str
        Made with all outputs in it, or not at all.
    overwrite : bool
        Whether the outputs of another job may be replaced.
    formats : list of str
        Of tables and plots; by default CSV and, where their libraries are installed, Parquet, PNG and SVG.
    plots : bool
        Whether to draw plots; by default where matplotlib is installed.
    """

    folder: str
    overwrite: bool = False
    formats: list[Literal["csv", "parquet", "json", "tex", "md", "png", "svg"]] | None = None
    plots: bool | None = None

    def __post_init__(self) -> None:
        if not self.tables:
            raise ValueError(f"formats must hold one of {', '.join(map(repr, WRITERS))}: results are tables")
        if self.plots is False and self.pictures:
            raise ValueError("formats holds a format of pictures, but plots = false")
        for one in [*self.tables, *self.pictures, *(["svg"] if self.is_drawn else [])]:
            if (missing := _missing(one)) is not None:
                said = f"formats holds {one!r}" if one in (self.formats or ()) else "plots = true"
                # Of this class, errors have no section put before them.
                raise ImportError(f"[output] {said}, which needs {missing.missing}")

    @property
    def tables(self) -> list[str]:
        """The formats of every table."""
        return [one for one in WRITERS if one in self._wanted]

    @property
    def pictures(self) -> list[str]:
        """The formats of every picture."""
        return [one for one in _PICTURES if one in self._wanted]

    @cached_property
    def is_drawn(self) -> bool:
        """Whether pictures are drawn: the report as HTML has them in any case then."""
        return _missing("svg") is None if self.plots is None else self.plots

    @cached_property
    def _wanted(self) -> Collection[str]:
        defaults = ("csv", "parquet", *(() if self.plots is False else _PICTURES))
        return [one for one in defaults if _missing(one) is None] if self.formats is None else self.formats


_OUTPUT = toml.table_of(Output, folder='"fit"')


def _missing(file_format: str) -> Library | None:
    """Return the missing library that writes a format, if it cannot be imported."""
    writer = _WRITERS.get(file_format, "dpfast")
    try:
        import_module(writer)
    except ImportError:
        return LIBRARIES[writer.partition(".")[0]]
    return None


def kinds() -> dict[str, JobType]:
    """Return the kinds of jobs, by name."""
    return {kind.JOB_TYPE: kind for module in registry.parts("job") for kind in module.JOB_TYPES}


_WIDTH = 110
_HEAD = """\
# {doc}
#
#   dpfast check JOB.toml   looks at all but the rows
#   dpfast plan JOB.toml    says what error to expect, how many people are needed, and what the ledger is charged
#   dpfast fit JOB.toml     fits, and writes the results
#
# Everything here is public: write what you know without looking at the rows. Keys after # are optional; what they
# have there is what leaving them out means, or an example. An editor that knows JSON schemas takes that of
# `dpfast new --schema`."""


def template(kind: JobType) -> str:
    """Return a commented job, in which paths and columns are to be set."""
    lines = [_HEAD.format(doc=kind.description.doc)]
    for key in kind.description.keys:
        lines += ["", *_section((key.name,), key)]
    return "\n".join(lines) + "\n"


def schema(kinds: Iterable[JobType]) -> Schema:
    """Return the JSON schema (draft 7) of jobs of some kinds, for editors of TOML."""
    alternatives = [kind.description.schema | {"title": kind.JOB_TYPE} for kind in kinds]
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A job for dpfast"}
    return head | (alternatives[0] if len(alternatives) == 1 else {"oneOf": alternatives})


def _section(place: tuple[str, ...], key: Key) -> Iterator[str]:
    """Yield the lines of a table; as comments, where it may be left out and has nothing to show."""
    is_shown = key.default is REQUIRED or bool(key.example)
    mark = "" if is_shown else "# "
    yield from _comment(key.doc)
    inner = [one for one in key.values.keys if one.values.keys]
    if not key.values.keys:
        yield from _explained(key.values)
    yield f"{mark}[{'.'.join(place)}]"
    yield from (mark + line for line in (key.example or "").splitlines())
    for number, one in enumerate(one for one in key.values.keys if one not in inner):
        yield from [""] * (number > 0)
        yield from _key(one, is_comment=not is_shown)
    for one in inner:
        yield ""
        yield from _section((*place, one.name), one)


def _key(key: Key, *, is_comment: bool) -> Iterator[str]:
    """Yield the purpose of a key, and the key with a value."""
    yield from _comment(key.doc)
    yield from _explained(key.values)
    is_set = key.example is not None or key.default is REQUIRED
    yield f"{'# ' if is_comment or not is_set else ''}{key.name} = {key.written}"


def _explained(values: Values) -> Iterator[str]:
    """Yield the contents of tables that may replace a value."""
    for name, table in values.tables.items():
        yield from _comment(f'{{ kind = "{name}" }}: {table.doc}', "#   ")
        for key in table.keys:
            optional = "" if key.default is REQUIRED else " (optional)"
            yield from _comment(f"{key.name}{optional}: {key.doc or key.values.words}", "#     ")


def _comment(text: str, mark: str = "# ") -> list[str]:
    further = mark if mark == "# " else f"{mark}  "
    return textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=further, break_long_words=False)


# Neither decides the release: the results do not depend on the threads, and a hashed seed is found again by trying.
_UNHASHED = ("random_state", "n_threads")
_UNHASHED_SECTIONS = {"output", "plan"}
# Where a plan begins to look for the number of people that are needed.
_SOME_PEOPLE = 10_000


@dataclass(frozen=True)
class Job:
    """A checked job."""

    #: Its file.
    path: Path
    kind: JobType
    #: What is declared of its people.
    data: Any
    #: The estimator's, without the ledger.
    parameters: dict[str, Any]
    #: What it costs, and all that the ledger may ever spend.
    cost: Privacy
    budget: Privacy
    #: None for a ledger of this job alone.
    ledger_path: Path | None
    #: Of the ledger, besides.
    ledger_options: dict[str, Any]
    #: Where the outputs go.
    folder: Path
    output: Output
    #: What plans are told, the number of people apart.
    people: int | None
    assumed: dict[str, Any] = field(repr=False)
    #: Of everything that decides the release, but the seed.
    digest: str

    @classmethod
    def read(cls, path: Path, *, look: bool = True) -> Job:
        """Read and check a job file; of the tables only schemas are read, and not even these unless it is to `look`.

        Raises
        ------
        TypeError, ValueError, OSError
            Naming the section and the key, or the file or the column.
        """
        content = read_toml(path)
        here, kind = path.parent, _kind(content)
        sections = kind.description.read((), content)
        privacy, given = sections["privacy"], sections["estimator"]
        adjacency = given.get("adjacency", "replace_one")
        cost = Privacy(privacy["epsilon"], privacy["delta"], adjacency)
        if math.isinf(cost.epsilon):
            raise ValueError("[privacy] epsilon must be finite: a job writes a private release")
        data = kind.INPUT_TYPE.read(sections, here, look=look)
        paid = {"epsilon": cost.epsilon, "delta": cost.delta, "adjacency": cost.adjacency}
        parameters = kind.parameters({name: one for name, one in given.items() if name != "kind"}, data) | paid
        kind.check(parameters, data)
        output, ledger = sections["output"], dict(privacy.get("ledger", {}))
        budget = Privacy(ledger.pop("epsilon"), ledger.pop("delta"), adjacency) if ledger else cost
        ledger_path = here / ledger.pop("path") if ledger else None
        assumed = dict(sections.get("plan", {}))
        people, digest = assumed.pop("people", None), _digest(content)
        folder = (here / output.folder).resolve()
        if not folder.name:
            raise ValueError(f"[output] folder must have a name, got {output.folder!r}")
        return cls(
            path, kind, data, parameters, cost, budget, ledger_path, ledger, folder, output, people, assumed, digest
        )

    def open_ledger(self) -> Ledger:
        """Open the ledger that pays, or make it; ValueError if it adds up guarantees for another unit."""
        return Ledger(self.budget, self.ledger_path, unit=self.unit, **self.ledger_options)

    @property
    def unit(self) -> Unit:
        """The unit that the job's guarantee protects."""
        return "row" if getattr(self.data, "max_rows", None) is None else "person"

    def plan(self, n: int | None = None, target: float | None = None) -> Plan:
        """Return the error to expect with `n` people; by default with those declared, or as many as are needed."""
        assumed = self.assumed | ({} if target is None else {"target": target})
        people = n or self.people
        given = {self.kind.PEOPLE: people or _SOME_PEOPLE} | assumed
        plan = self.kind.planned(self.parameters, self.data, given)
        if people is not None or plan.needed_n is None:
            return plan
        # How many are needed takes as many plans as a search does: it is known.
        of_needed = self.kind.planned(
            self.parameters, self.data, given | {self.kind.PEOPLE: plan.needed_n, "target": _ANY_ERROR}
        )
        return replace(of_needed, target=plan.target, needed_n=plan.needed_n)


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a file; ValueError if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{str(path)!r} nests arrays or tables too deeply") from None


def _kind(content: Mapping[str, Any]) -> JobType:
    """Return the kind of a job, which decides its other sections."""
    known = kinds()
    sections = [section.name for kind in known.values() for section in kind.description.keys]
    toml.refuse_unknown((), content, list(dict.fromkeys(sections)))
    if "estimator" not in content:
        raise ValueError("[job] lacks the key 'estimator'")
    estimator = content["estimator"]
    if not isinstance(estimator, Mapping):
        raise TypeError("[estimator] must be a table")
    if "kind" not in estimator:
        raise ValueError("[estimator] lacks the key 'kind'")
    kind: JobType = toml.enum(known).taken(("estimator", "kind"), estimator["kind"])
    return kind


def _digest(content: Mapping[str, Any]) -> str:
    """Hash the inputs of a release: the order of features and outcomes counts, the order of other keys does not.

    The seed is left out: it would be found again by trying.
    """
    ordered = []
    for name in sorted(content.keys() - _UNHASHED_SECTIONS):
        items = [(key, value) for key, value in content[name].items() if name != "estimator" or key not in _UNHASHED]
        ordered.append([name, items if name in ("features", "outcomes", "targets") else sorted(items)])
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()
