"""The outputs of a job: results, model and report, in one folder that is there whole or not at all.

It contains released values and public numbers only. Under add/remove it has no number of people. In no case has it the
size of a table, or the time taken to read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dpfast import _transaction as transaction
from dpfast._documents import replace_file, spelled_out
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator.plan import Plan
from dpfast.io.summaries import WRITERS
from dpfast.jobs.job_types import Job
from dpfast.jobs.report import Part, as_html, as_markdown, drawn, first_page
from dpfast.ledger.entries import guarantee_of
from dpfast.ledger.file import check_place
from dpfast.privacy.guarantee import plain_words

MODEL, RECORD = "model.json", "report.json"
# How folders end where jobs work, and what in them is locked, and says of which job they are.
_PARTIAL, _OWNER = ".partial", "owner"
# Bytes that the disk must have room for when a job begins.
_ROOM = 1 << 16
#: What completes a release that was paid for.
AGAIN = "Start the job again, which pays nothing"
#: The picture of what was spent.
LEDGER = "ledger"
#: What of a kind's facts tells how large the noise is beside what was expected.
AS_RELEASED = "error as released"

#: What a job says that sets a seed.
VOID = "The noise came from a seed, so that it protects nobody"

# What decides a digit of what is written, or how it is drawn.
_LIBRARIES = ("dpfast", "numpy", "scipy", "scikit-learn")
_DECLARED = "Bounds, levels and constants were declared in the job, not taken from the data."


class OutputError(RuntimeError):
    """A release was made and paid for, but could not be put in its place."""


def is_pending(job: Job, *, force: bool = False) -> bool:
    """Whether this very job has not written its release, or is forced to replace it; refuse what it must not write."""
    if not force and _written(job.folder).get("job_sha256") == job.digest:
        return False
    _check_writable(job, replace=job.output.overwrite or force)
    if job.ledger_path is not None:
        check_place(str(job.ledger_path))
    return True


def _written(folder: Path) -> dict[str, Any]:
    """Return the record of the job that wrote a folder; empty if it cannot be read."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _listed(folder: Path) -> list[Path]:
    """Return the files of a folder that its job's record lists, the record last: no others are ever removed."""
    files = _written(folder).get("files")
    own = [path for path in folder.iterdir() if isinstance(files, list) and path.name in files and not path.is_dir()]
    return sorted(own, key=lambda path: path.name == RECORD)


def _check_writable(job: Job, *, replace: bool) -> None:
    """Refuse, before anything is spent, a folder that could not be written, or must not be replaced."""
    folder = job.folder
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"[output] folder {str(folder)!r} is a file")
    if any(name.startswith(".") and name.endswith(_PARTIAL) for name in folder.parts):
        raise ValueError(f"[output] folder {str(folder)!r} is where another job would work: choose another")
    held = [("input", file) for file in job.data.files]
    if job.ledger_path is not None:
        journal = f"{os.path.realpath(job.ledger_path)}-journal"
        held = [("ledger", job.ledger_path), ("ledger's journal", Path(journal)), *held]
    for what, path in held:
        if any(_is_within(place, (folder, work_of(job))) for place in _places(path)):
            raise ValueError(f"[output] folder {str(folder)!r} holds the job's {what} {str(path)!r}: choose another")
    if folder.exists():
        if os.path.ismount(folder):
            raise _irreplaceable(folder, "it is a mount point")
        # What was paid for is put beside what others have put there since.
        if (foreign := _foreign(folder)) and not (replace and unfinished(job)):
            raise FileExistsError(f"[output] folder {str(folder)!r} holds other files, such as {foreign[0].name!r}")
        if any(folder.iterdir()) and not replace:
            raise FileExistsError(
                f"[output] folder {str(folder)!r} holds the outputs of another job; "
                "choose another, or set overwrite = true or --force"
            )
    nearest = next(place for place in folder.parents if place.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"[output] folder {str(folder)!r} cannot be made: no permission to write beside it")


def _irreplaceable(folder: Path, why: str | None) -> OSError:
    return OSError(f"[output] folder {str(folder)!r} cannot be replaced as a whole: {why}. Name a folder within it")


def _places(path: Path) -> Iterator[Path]:
    """Yield the resolved place of a path, and the links on the way."""
    while True:
        here = Path(os.path.realpath(path.parent))
        place = here / path.name
        yield place
        if not place.is_symlink():
            return
        path = here / os.readlink(place)


def _is_within(place: Path, folders: Iterable[Path]) -> bool:
    """Whether a place is that of one of some folders, or within one, however these are spelled."""
    named = [Path(os.path.realpath(folder)) for folder in folders]
    there = [folder for folder in named if folder.exists()]
    return any(
        parent in named or (parent.exists() and any(map(parent.samefile, there))) for parent in (place, *place.parents)
    )


def work_of(job: Job) -> Path:
    """Return the hidden folder beside its results where a job works."""
    return job.folder.with_name(f".{job.folder.name}{_PARTIAL}")


def unfinished(job: Job) -> bool:
    """Whether this very job has released what it did not write; FileExistsError if another job has, of this folder.

    It is another one if a table has changed since, as the file system tells.
    """
    kept = work_of(job) / MODEL
    if not kept.exists():
        return False
    if (kept.parent / _OWNER).read_bytes() != _identity(job):
        raise FileExistsError(
            f"[output] {str(kept)!r} holds a release that was paid for, of another job or of tables that have "
            "changed since: load the model, complete it and move the file away, or discard it by --force"
        )
    return True


def _identity(job: Job) -> bytes:
    """Return a hash of a job's content and of its tables' times of change; it reveals nothing of either."""
    tables = [(str(file), file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in job.data.files]
    return hashlib.sha256(json.dumps([job.digest, tables]).encode()).hexdigest().encode()


class Outputs(transaction.AtomicContext["Outputs"]):
    """A job's working folder: hidden, beside that of its results, locked, made before anything is spent.

    It holds the model from when all is drawn, before the ledger has committed: whoever is killed from then on leaves it
    for the next start, which completes it. On leaving `with`, a fitted model's results are written and put in their
    place, whatever was raised after the fit. A model that is not solved stays for the next start. Otherwise nothing is
    left behind. Entering raises OSError if the folder cannot be made, or another run has it. Leaving raises OutputError
    if writing fails; the error gives the place of the outputs.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        #: Whose results they are, once a fit of it may begin.
        self.model: Any = None
        self._job = job
        self._work = work_of(job)
        self._results, self._former = self._work / "results", self._work / "former"
        self._new_parents = [folder for folder in job.folder.parents if not folder.exists()]
        self._owner: FileIO | None = None
        self._is_kept = False

    def _open(self) -> Outputs:
        self._work.parent.mkdir(parents=True, exist_ok=True)
        self._owner = locked(self._work / _OWNER)
        self._place()
        return self

    def rehearse(self) -> None:
        """Do once what could fail when all is paid: take room on the disk, and put the former results away and back."""
        assert self._owner is not None
        if not (self._work / MODEL).exists():
            # No zeros: some disks give them no room.
            self._owner.write(hashlib.shake_256(MODEL.encode()).digest(_ROOM))
            os.fsync(self._owner.fileno())
        folder = self._job.folder
        if folder.exists():
            try:
                folder.rename(self._former)
                self._former.rename(folder)
            except OSError as error:
                raise _irreplaceable(folder, error.strerror) from None

    def keep(self, model: Any) -> None:
        """Keep a model that has all its releases: called before the ledger commits, so it raises nothing."""
        if model is self.model:
            # What fails is tried again, once it is solved.
            with contextlib.suppress(Exception):
                self._save()

    def _save(self) -> None:
        assert self._owner is not None
        # Those of an earlier release: without its model they would be taken for complete.
        if self._results.exists():
            shutil.rmtree(self._results)
        (self._work / MODEL).unlink(missing_ok=True)
        self._owner.truncate(0)
        self._owner.write(_identity(self._job))
        os.fsync(self._owner.fileno())
        self.model.save(self._work / MODEL)
        self._is_kept = True

    def kept(self) -> Any:
        """Return the model that an earlier run of this job has paid for."""
        self._is_kept = True
        return self._job.kind.ESTIMATOR.load(self._work / MODEL)

    def _close(self) -> None:
        if self._owner is None:
            # It may have been locked, and interrupted before that was known.
            with contextlib.suppress(OSError):
                self._owner = locked(self._work / _OWNER)
        if self._owner is not None and not self._owner.closed:
            try:
                if hasattr(self.model, "releases_"):
                    self._write()
            except Exception:
                self._leave(self._owner)
                raise
            self._leave(self._owner)
        for folder in (self._work, *self._new_parents):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _leave(self, owner: FileIO) -> None:
        """Unlock the folder; without a release that is still to be written there is nothing to own."""
        paths = [] if (self._work / MODEL).exists() or self._results.exists() else [self._work / _OWNER]
        # While it is locked; Windows removes no open file, and whoever opens it keeps it there.
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
        unlock(owner)
        for path in paths if sys.platform == "win32" else ():
            with contextlib.suppress(OSError):
                path.unlink()

    def _write(self) -> None:
        """Write the results, and put them in place; after an interrupt, go on."""
        job, kept, place = self._job, self._work / MODEL, "lost"
        try:
            if not self._is_kept:
                self.model.complete()
                self._save()
            place = f"incomplete, with the model in {str(kept)!r}"
            if kept.exists():
                check_is_fitted(self.model)
                shutil.rmtree(self._results, ignore_errors=True)
                self._results.mkdir()
                self.model.save(self._results / MODEL)
                for name, content in _files(job, self.model).items():
                    replace_file(str(self._results / name), content, str(self._results / f"{name}.tmp"))
                kept.unlink()
            place = f"in {str(self._results)!r}"
            self._place()
        except NotFittedError:
            return  # the next start solves it
        except Exception as error:
            # Whatever it is: what was paid for must not be lost without a word.
            said = error if isinstance(error, OSError) else f"unexpected {type(error).__name__}"
            said = f"{said}. {AGAIN}" if self._is_kept else said
            if not self._is_kept:
                with contextlib.suppress(Exception):
                    elsewhere = Path(tempfile.mkdtemp(prefix="dpfast-"), MODEL)
                    self.model.save(elsewhere)
                    place = f"incomplete, with the model in {str(elsewhere)!r}"
            raise OutputError(f"the release was made and paid for, but its outputs are {place}: {said}") from error

    def _place(self) -> None:
        """Put results that are complete in their place, and former ones away; whatever was stopped, go on with it."""
        folder, former = self._job.folder, self._former
        if former.exists() and not folder.exists():
            former.rename(folder)
        if self._results.exists() and not (self._work / MODEL).exists():
            # What others put there while the job ran stays where it is, at every moment: it may be a ledger.
            if folder.exists() and _foreign(folder):
                _move_files(self._results, folder)
                return
            if folder.exists():
                folder.rename(former)
            self._results.rename(folder)
        if former.exists():
            for path in _listed(former):
                path.unlink()
            for path in former.iterdir():
                if not (folder / path.name).exists():
                    path.rename(folder / path.name)
            former.rmdir()


# The system takes a lock on an open file back when the process dies.
def locked(path: Path) -> FileIO:
    """Open a file, made with its folder if there is none, and lock it; BlockingIOError if somebody else has it."""
    while True:
        path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            file = opened.enter_context(FileIO(path, "a+"))
            try:
                _lock(file)
            except (BlockingIOError, PermissionError):
                raise BlockingIOError(
                    f"another run is writing {str(path.parent)!r}: wait until it has ended, then start this one again"
                ) from None
            # Whoever had it may have removed it: others would lock one that is made anew.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                opened.pop_all()
                return file


def _lock(file: FileIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(file: FileIO) -> None:
    """Let others have the lock: not by closing alone, as a child forked meanwhile has the descriptor too."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def _foreign(folder: Path) -> list[Path]:
    """Return the files in a folder of outputs that its job did not write."""
    own = _listed(folder)
    return [path for path in sorted(folder.iterdir()) if path not in own]


def _move_files(results: Path, folder: Path) -> None:
    """Replace a folder's outputs one by one, the record last; whatever was stopped, go on with it."""
    foreign = {path.name for path in _foreign(folder)}
    for path in results.iterdir():
        if path.name in foreign:
            raise FileExistsError(f"[output] folder {str(folder)!r} holds another file {path.name!r}")
    if (results / RECORD).exists():
        new = _written(results).get("files", [])
        for path in _listed(folder):
            if path.name not in new:
                path.unlink()
    for path in sorted(results.iterdir(), key=lambda path: path.name == RECORD):
        path.replace(folder / path.name)
    results.rmdir()


@suppress_float_warnings
def _files(job: Job, model: Any) -> dict[str, bytes]:
    """Return all files but the model, by name."""
    kind, output = job.kind, job.output
    results = kind.tables(model, *job.data.names)
    images = drawn(lambda: _figures(job, model), {*output.pictures, "svg"}) if output.is_drawn else {}
    files = {f"{name}.{one}": WRITERS[one](table) for name, table in results.items() for one in output.tables}
    files |= {f"{name}.{one}": made[one] for name, made in images.items() for one in output.pictures}
    said = _Said.of(job, model)
    title, parts = f"Private fit: {kind.JOB_TYPE}", _parts(job, model, said, results, images)
    files["report.md"] = as_markdown(title, parts, output.pictures).encode()
    files["report.html"] = as_html(title, parts).encode()
    columns = {name: list(table) for name, table in results.items()}
    record = _record(job, model, said) | {"tables": columns, "files": sorted([*files, MODEL, RECORD])}
    files[RECORD] = (json.dumps(spelled_out(record), indent=1, allow_nan=False) + "\n").encode()
    return files


def _figures(job: Job, model: Any) -> dict[str, Any]:
    """Draw the results and, if a ledger is shared with other jobs, its spending."""
    figures = job.kind.figures(model, *job.data.names)
    if job.ledger_path is not None:
        figures[LEDGER] = model.ledger.plot()
    return figures


class _Said(NamedTuple):
    """The outputs of a fit besides its tables and pictures."""

    facts: list[tuple[str, str]]
    #: Why not, where public numbers alone do not tell.
    expected: Plan | str

    @classmethod
    def of(cls, job: Job, model: Any) -> _Said:
        """Return it; the expectation is for the number of people, if it is public, or for enough of them."""
        try:
            expected: Plan | str = job.plan()
        except ValueError as error:
            expected = f"nothing: {error}"
        facts = job.kind.facts(model)
        note = model._estimates().header.get("note") if hasattr(model, "_estimates") else None
        return cls([*facts, *([("note", note)] if note and note not in dict(facts).values() else [])], expected)


def _parts(
    job: Job, model: Any, said: _Said, results: dict[str, Any], images: dict[str, dict[str, bytes]]
) -> list[Part]:
    """Return the job's report, for people to read."""
    made = [("file", job.path.name), ("sha256", job.digest), ("estimator", type(model).__name__)]
    settings = [(name, str(value)) for name, value in _parameters(job).items() if name not in ("epsilon", "delta")]
    ledger = model.ledger
    told = [(name, text) for name, text in said.facts if name == AS_RELEASED]
    own = guarantee_of(model.releases_, model.privacy_spent_)
    facts = [("this job", own), ("all releases of the ledger", str(ledger.promised))]
    if not math.isinf(ledger.promised.epsilon):
        facts.append(("in words", plain_words(ledger.promised)))
    room = [("further fits like this that it has room for", f"{ledger.affords(model):,}")]
    # Else the number would be taken for that of the table.
    assumed = "" if job.people else ", if there are just enough people"
    expected = f"expected from public numbers{assumed}", "; ".join(str(said.expected).splitlines())
    spent = {LEDGER: images[LEDGER]} if LEDGER in images else {}
    images = {name: made for name, made in images.items() if name != LEDGER}
    return [
        *first_page(job, model),
        Part("For engineers"),
        Part("Guarantee", facts=facts),
        Part("Job", facts=[*made, *settings, *job.data.facts()], text=_DECLARED),
        Part("Results", said.facts, job.kind.NOTE, images, results),
        Part("Expected, and as released", [expected, *told]),
        Part("Ledger", room, pictures=spent, verbatim=ledger.report()),
        Part("Versions", facts=list(_versions().items())),
    ]


def _record(job: Job, model: Any, said: _Said) -> dict[str, Any]:
    """Return the job's record, for programs to read."""
    ledger = model.ledger
    names = ("feature_names", "outcome_names", "states", "targets")
    return {
        "job": job.path.name,
        "job_sha256": job.digest,
        "kind": job.kind.JOB_TYPE,
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
    """Return values that JSON can write: arrays as lists, and constraints and losses as Python shows them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _shown(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(member) for member in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
