"""What a job leaves behind: results, model and report, as one folder that is there whole or not at all.

Nothing is in it but what was released and what is public: under add/remove no number of people, and in no case the size
of a table that was read, or the time that reading took.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from dataclasses import asdict
from functools import cache
from glob import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpfast._documents import spelled_out
from dpfast._quiet import quiet
from dpfast.estimator.plan import Plan
from dpfast.io.writing import WRITERS
from dpfast.jobs import pictures
from dpfast.jobs.report import Part, as_html, as_markdown
from dpfast.jobs.specification import Job
from dpfast.kernels import transaction
from dpfast.ledger.release import guarantee_of
from dpfast.privacy.words import plain_words

MODEL, RECORD = "model.json", "report.json"
# How folders end whose outputs are not complete.
_PARTIAL = ".partial"
#: The picture of what was spent.
LEDGER = "ledger"
#: What of a kind's facts tells how large the noise is beside what was expected.
AS_RELEASED = "error as released"

#: What a job says that sets a seed.
VOID = "The noise came from a seed: its guarantee is void, for anybody"

# What decides a digit of what is written, or how it is drawn.
_LIBRARIES = ("dpfast", "numpy", "scipy", "scikit-learn")
_DECLARED = "Bounds, levels and constants were declared in the job, not taken from the data."


class OutputError(RuntimeError):
    """A release was made and paid for, but could not be put in its place."""


def is_done(job: Job) -> bool:
    """Whether this very job has made and written its release already."""
    return _written(job.folder).get("job_sha256") == job.digest


def _written(folder: Path) -> dict[str, Any]:
    """Return what a job has left in a folder, by its own account; nothing where that cannot be read."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def check_writable(job: Job, *, replace: bool) -> None:
    """Refuse, before anything is spent, a folder that could not be written, or must not be replaced."""
    folder = job.folder
    if folder.exists():
        if not folder.is_dir():
            raise FileExistsError(f"[output] folder {str(folder)!r} is a file")
        present = sorted(file.name for file in folder.iterdir())
        files = _written(folder).get("files")
        foreign = [name for name in present if not isinstance(files, list) or name not in files]
        if foreign:
            raise FileExistsError(f"[output] folder {str(folder)!r} holds other files, such as {foreign[0]!r}")
        if present and not replace:
            raise FileExistsError(
                f"[output] folder {str(folder)!r} holds the outputs of another job; "
                "choose another, or set overwrite = true or --force"
            )
    nearest = next(place for place in folder.parents if place.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"[output] folder {str(folder)!r} cannot be made: no permission to write beside it")


def refuse_unfinished(job: Job) -> None:
    """Refuse to make, and pay, again what a run released that was killed while it wrote its results."""
    for partial in sorted(job.folder.parent.glob(f".{escape(job.folder.name)}.*{_PARTIAL}")):
        if (partial / MODEL).exists():
            raise FileExistsError(
                f"[output] {str(partial / MODEL)!r} is the model of a release that was made and paid for, left by a "
                "run that did not finish, or written just now by one that still runs. If none does: "
                f"{job.kind.ESTIMATOR.__name__}.load reads it if it is this job's. Move it away, or say --force, which "
                "pays for another release"
            )


class Outputs(transaction.Bracket[None]):
    """Where a job's outputs are written: a folder made beside their place before anything is spent.

    It is put in its place on leaving `with`, if by then the model is fitted, whatever was raised after that: the fit is
    paid for. Otherwise nothing is left behind. No two jobs have the same folder, so what a killed one left is in
    nobody's way. Entering raises OSError if the folder cannot be made; leaving raises OutputError if writing fails,
    which says where the outputs are, if they are complete.
    """

    def __init__(self, job: Job, model: Any) -> None:
        super().__init__()
        self._job = job
        self._model = model
        self._new_parents = [folder for folder in job.folder.parents if not folder.exists()]
        self._partial: Path | None = None

    def _open(self) -> None:
        self._job.folder.parent.mkdir(parents=True, exist_ok=True)
        while self._partial is None:
            partial = self._job.folder.with_name(f".{self._job.folder.name}.{os.getpid()}-{time.time_ns()}{_PARTIAL}")
            if not partial.exists():
                # Known before it is made, so that an interrupt right after that leaves nothing.
                self._partial = partial
        self._partial.mkdir()

    def _close(self) -> None:
        if self._partial is None or not hasattr(self._model, "releases_"):
            self._remove()
            return
        place = "lost"
        try:
            if self._partial.exists():
                # First, as all else can be made again from it.
                self._model.save(self._partial / MODEL)
                place = f"incomplete, with the model in {str(self._partial / MODEL)!r}"
                for name, content in _files(self._job, self._model).items():
                    _write_through(self._partial / name, content)
                place = f"in {str(self._partial)!r}"
            _put_in_place(self._partial, self._job.folder)
        except Exception as error:
            # Whatever it is: what was paid for must not be lost without a word.
            said = error if isinstance(error, OSError) else f"unexpected {type(error).__name__}"
            raise OutputError(f"the release was made and paid for, but its outputs are {place}: {said}") from error

    def _remove(self) -> None:
        for folder in (self._partial, *self._new_parents):
            if folder is not None:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(partial: Path, folder: Path) -> None:
    """Rename a folder to what may be there already; after an interrupt, go on where it was."""
    old = partial.with_suffix(".old")
    if partial.exists():
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
    if old.exists():
        shutil.rmtree(old)


@quiet
def _files(job: Job, model: Any) -> dict[str, bytes]:
    """Return all files but the model, by name."""
    kind, formats = job.kind, job.formats
    results = kind.tables(model, job)
    images = pictures.drawn(lambda: _figures(job, model), {*formats.pictures, "svg"}) if formats.plots else {}
    files = {f"{name}.{one}": WRITERS[one](table) for name, table in results.items() for one in formats.tables}
    files |= {f"{name}.{one}": made[one] for name, made in images.items() for one in formats.pictures}
    said = _Said.of(job, model)
    title, parts = f"Private fit: {kind.KIND}", _parts(job, model, said, results, images)
    files["report.md"] = as_markdown(title, parts, formats.pictures).encode()
    files["report.html"] = as_html(title, parts).encode()
    columns = {name: list(table) for name, table in results.items()}
    record = _record(job, model, said) | {"tables": columns, "files": sorted([*files, MODEL, RECORD])}
    files[RECORD] = (json.dumps(spelled_out(record), indent=1, allow_nan=False) + "\n").encode()
    return files


def _figures(job: Job, model: Any) -> dict[str, Any]:
    """Draw the results and, where a ledger is shared with other jobs, what it has spent."""
    figures: dict[str, Any] = dict(job.kind.figures(model, job))
    if job.ledger_path is not None:
        figures[LEDGER] = model.ledger.plot()
    return figures


class _Said(NamedTuple):
    """What is written of a fit besides its tables and pictures."""

    facts: list[tuple[str, str]]
    #: Why not, where public numbers alone do not tell.
    expected: Plan | str

    @classmethod
    def of(cls, job: Job, model: Any) -> _Said:
        """Return it; expected with the people there are, where that is public, or with enough of them."""
        try:
            expected: Plan | str = job.plan()
        except ValueError as error:
            expected = f"nothing: {error}"
        return cls(job.kind.facts(model, job), expected)


def _parts(
    job: Job, model: Any, said: _Said, results: dict[str, Any], images: dict[str, dict[str, bytes]]
) -> list[Part]:
    """Return what the job did, for people to read."""
    made = [("file", job.path.name), ("sha256", job.digest), ("estimator", type(model).__name__)]
    settings = [(name, str(value)) for name, value in _parameters(job).items() if name not in ("epsilon", "delta")]
    ledger = model.ledger
    told = [(name, text) for name, text in said.facts if name == AS_RELEASED]
    facts = [
        ("this job", guarantee_of(model.releases_, model.privacy_spent_)),
        ("all releases of the ledger", str(ledger.promised)),
    ]
    if ledger.promised == ledger.spent:
        facts.append(("in words", plain_words(ledger.spent)))
    more = f"{ledger.affords(model):,}"
    # Else the number would be taken for that of the table.
    assumed = "" if job.people or job.known_people else ", if there are just enough people"
    spent = {LEDGER: images[LEDGER]} if LEDGER in images else {}
    images = {name: made for name, made in images.items() if name != LEDGER}
    return [
        Part("Guarantee", facts=facts),
        Part("Job", facts=[*made, *settings, *job.data.facts()], text=_DECLARED),
        Part("Results", said.facts, job.kind.NOTE, images, results),
        Part(
            "Expected, and as released",
            [(f"expected from public numbers{assumed}", "; ".join(str(said.expected).splitlines())), *told],
        ),
        Part(
            "Ledger", [("further fits like this that it has room for", more)], pictures=spent, verbatim=ledger.report()
        ),
        Part("Versions", facts=list(_versions().items())),
    ]


def _record(job: Job, model: Any, said: _Said) -> dict[str, Any]:
    """Return what the job did, for programs to read."""
    ledger = model.ledger
    names = ("feature_names", "outcome_names", "states", "targets")
    return {
        "job": job.path.name,
        "job_sha256": job.digest,
        "kind": job.kind.KIND,
        "estimator": type(model).__name__,
        "parameters": _parameters(job),
        **{name: _shown(list(getattr(job.data, name))) for name in names if hasattr(job.data, name)},
        "guarantee": guarantee_of(model.releases_, model.privacy_spent_),
        "expected": _shown(asdict(said.expected)) if isinstance(said.expected, Plan) else said.expected,
        "results": dict(said.facts),
        "this_job": [release.to_dict(values=False) for release in model.releases_],
        **{name: asdict(getattr(ledger, name)) for name in ("budget", "spent", "promised", "remaining")},
        "affords": ledger.affords(model),
        "unit": ledger.unit,
        "versions": _versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def _parameters(job: Job) -> dict[str, Any]:
    """Return the parameters as plain numbers and text; not the seed, with which anybody could take the noise off."""
    return {name: _shown(value) for name, value in job.parameters.items() if name != "random_state"}


def _shown(value: Any) -> Any:
    """Return what JSON has a way to write: arrays as lists, and constraints and losses as Python shows them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _shown(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(member) for member in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
