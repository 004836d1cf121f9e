"""A job file, read and checked: everything that can be said of it from public facts, before any row is read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfast.jobs.formats import Formats
from dpfast.jobs.kinds import Kind, kinds
from dpfast.jobs.sections import Section, one_of, read_toml
from dpfast.ledger import Ledger
from dpfast.privacy import Privacy

_SECTIONS = ("input", "people", "features", "outcomes", "estimator", "privacy", "output")
_COMMON = ("adjacency", "calibration", "random_state", "n_threads")
# Neither decides the release: the results do not depend on the threads, and a hashed seed is found again by trying.
_UNHASHED = ("random_state", "n_threads")


@dataclass(frozen=True)
class Job:
    """A checked job."""

    #: Its file.
    path: Path
    kind: Kind
    #: What is declared of its people: of the kind's `DATA`.
    data: Any
    #: The estimator's, without the ledger.
    parameters: dict[str, Any]
    #: All that the ledger may ever spend.
    budget: Privacy
    #: None for a ledger of this job alone.
    ledger_path: Path | None
    #: Where the outputs go, and whether they may replace another job's.
    folder: Path
    overwrite: bool
    formats: Formats
    #: Of everything that decides the release, but the seed.
    digest: str

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read and check a job file; of the tables only schemas are read.

        Raises
        ------
        TypeError, ValueError, OSError
            Naming the section and the key, or the file or the column.
        """
        content = read_toml(path)
        job = Section("job", content, _SECTIONS)
        here = path.parent
        output = Section("output", job.take("output", dict), ("folder", "overwrite", "formats", "plots"))
        estimator, kind = _estimator(job.take("estimator", dict))
        privacy = Section("privacy", job.take("privacy", dict), ("epsilon", "delta", "ledger"))
        adjacency = estimator.take("adjacency", str, default="replace_one")
        cost = privacy.privacy(adjacency)
        if math.isinf(cost.epsilon):
            raise ValueError("[privacy] epsilon must be finite: a job writes a private release")

        data = kind.DATA.read(job, here)
        given = {key: value for key, value in estimator.content.items() if key != "kind"}
        paid = {"epsilon": cost.epsilon, "delta": cost.delta, "adjacency": cost.adjacency}
        parameters = kind.parameters(given, data) | paid
        kind.check(parameters, data)
        return cls(
            path,
            kind,
            data,
            parameters,
            *_budget(privacy, cost, here),
            (here / output.take("folder", str)).resolve(),
            output.take("overwrite", bool, default=False),
            Formats.read(output),
            _digest(content),
        )

    def open_ledger(self) -> Ledger:
        """Open the ledger that pays, or make it."""
        return Ledger(self.budget, self.ledger_path)


def _estimator(content: Mapping[str, Any]) -> tuple[Section, Kind]:
    """Return [estimator], checked for the keys of its kind, and the kind."""
    known = kinds()
    keys = [key for kind in known.values() for key in kind.PARAMETERS]
    name = Section("estimator", content, ("kind", "box", *keys, *_COMMON)).take("kind", str)
    one_of("[estimator] kind", name, known)
    return Section("estimator", content, ("kind", "box", *known[name].PARAMETERS, *_COMMON)), known[name]


def _budget(privacy: Section, cost: Privacy, here: Path) -> tuple[Privacy, Path | None]:
    """Return the ledger's budget and file."""
    if "ledger" not in privacy.content:
        return cost, None
    section = Section("privacy.ledger", privacy.content["ledger"], ("path", "epsilon", "delta"))
    return section.privacy(cost.adjacency), here / section.take("path", str)


def _digest(content: Mapping[str, Any]) -> str:
    """Hash what decides a release: the order of features and outcomes counts, that of other keys does not.

    The seed is left out: it would be found again by trying.
    """
    ordered = []
    for name in sorted(content.keys() - {"output"}):
        items = [(key, value) for key, value in content[name].items() if name != "estimator" or key not in _UNHASHED]
        ordered.append([name, items if name in ("features", "outcomes") else sorted(items)])
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()
