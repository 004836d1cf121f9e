"""A job file, read and checked: everything that can be said of it from public facts, before any row is read."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpfast.estimator.plan import Plan
from dpfast.jobs.kinds import Kind, Output, kinds, public_size
from dpfast.jobs.parameters import Words, refuse_unknown
from dpfast.ledger import Ledger
from dpfast.privacy import Privacy, Unit

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
    kind: Kind
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
        data = kind.FORM.read(sections, here, look=look)
        paid = {"epsilon": cost.epsilon, "delta": cost.delta, "adjacency": cost.adjacency}
        parameters = kind.parameters({name: one for name, one in given.items() if name != "kind"}, data) | paid
        kind.check(parameters, data)
        output, ledger = sections["output"], dict(privacy.get("ledger", {}))
        budget = Privacy(ledger.pop("epsilon"), ledger.pop("delta"), adjacency) if ledger else cost
        ledger_path = here / ledger.pop("path") if ledger else None
        assumed = dict(sections.get("plan", {}))
        folder = (here / output.folder).resolve()
        if not folder.name:
            raise ValueError(f"[output] folder must have a name, got {output.folder!r}")
        return cls(
            path,
            kind,
            data,
            parameters,
            cost,
            budget,
            ledger_path,
            ledger,
            folder,
            output,
            assumed.pop("people", None),
            assumed,
            _digest(content),
        )

    def open_ledger(self) -> Ledger:
        """Open the ledger that pays, or make it; ValueError if it adds up guarantees for another unit."""
        return Ledger(self.budget, self.ledger_path, unit=self.unit, **self.ledger_options)

    @property
    def unit(self) -> Unit:
        """The unit that the job's guarantee protects."""
        return "row" if getattr(self.data, "max_rows", None) is None else "person"

    @property
    def known_people(self) -> int | None:
        """The number of people, if it is public and files give it before they are read."""
        return public_size(self.parameters, self.data)

    def plan(self, n: int | None = None, target: float | None = None) -> Plan:
        """Return the error to expect with `n` people; by default with those declared, or as many as are needed."""
        assumed = self.assumed | ({} if target is None else {"target": target})
        n = n or self.people or self.known_people
        if n is not None:
            return self.kind.planned(self.parameters, self.data, {self.kind.PEOPLE: n} | assumed)
        first = self.kind.planned(self.parameters, self.data, {self.kind.PEOPLE: _SOME_PEOPLE} | assumed)
        if first.needed_n is None:
            return first
        return self.kind.planned(self.parameters, self.data, {self.kind.PEOPLE: first.needed_n} | assumed)


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a file; ValueError if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{str(path)!r} nests arrays or tables too deeply") from None


def _kind(content: Mapping[str, Any]) -> Kind:
    """Return the kind of a job, which decides its other sections."""
    known = kinds()
    sections = [section.name for kind in known.values() for section in kind.description.keys]
    refuse_unknown((), content, list(dict.fromkeys(sections)))
    if "estimator" not in content:
        raise ValueError("[job] lacks the key 'estimator'")
    estimator = content["estimator"]
    if not isinstance(estimator, Mapping):
        raise TypeError("[estimator] must be a table")
    if "kind" not in estimator:
        raise ValueError("[estimator] lacks the key 'kind'")
    return known[Words.of(*known).taken(("estimator", "kind"), estimator["kind"])]


def _digest(content: Mapping[str, Any]) -> str:
    """Hash the inputs of a release: the order of features and outcomes counts, the order of other keys does not.

    The seed is left out: it would be found again by trying.
    """
    ordered = []
    for name in sorted(content.keys() - _UNHASHED_SECTIONS):
        items = [(key, value) for key, value in content[name].items() if name != "estimator" or key not in _UNHASHED]
        ordered.append([name, items if name in ("features", "outcomes", "targets") else sorted(items)])
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()
