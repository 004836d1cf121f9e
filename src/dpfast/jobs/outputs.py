"""What a job leaves behind: coefficients, model and report, as one folder that is there whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dpfast._documents import spelled_out
from dpfast.jobs.specification import Job
from dpfast.kernels import transaction
from dpfast.ledger import Release

MODEL, RECORD = "model.json", "report.json"
FILES = ("coefficients.csv", MODEL, "report.md", RECORD)

#: What a job says that sets a seed.
VOID = "The noise came from a seed: its guarantee is void, for anybody"

_REPORT = """\
# Private fit

{}

`noise_std` in coefficients.csv is what the privacy noise alone does to a coefficient; it says nothing of
sampling error. Bounds, levels and constants were declared in the job, not taken from the data.

```
{}
```
"""


class OutputError(RuntimeError):
    """A release was made and paid for, but could not be put in its place."""


def is_done(job: Job) -> bool:
    """Whether this very job has made and written its release already."""
    try:
        record = json.loads((job.folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("job_sha256") == job.digest


def check_writable(job: Job, *, replace: bool) -> None:
    """Refuse, before anything is spent, a folder that could not be written, or must not be replaced."""
    folder = job.folder
    if folder.exists():
        if not folder.is_dir():
            raise FileExistsError(f"[output] folder {str(folder)!r} is a file")
        present = sorted(file.name for file in folder.iterdir())
        foreign = [name for name in present if name not in FILES]
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
            partial = self._job.folder.with_name(f".{self._job.folder.name}.{os.getpid()}-{time.time_ns()}.partial")
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
                _write(self._partial, self._job, self._model)
                place = f"in {str(self._partial)!r}"
            _put_in_place(self._partial, self._job.folder)
        except OSError as error:
            raise OutputError(f"the release was made and paid for, but its outputs are {place}: {error}") from error

    def _remove(self) -> None:
        for folder in (self._partial, *self._new_parents):
            if folder is not None:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _write(folder: Path, job: Job, model: Any) -> None:
    contents = {FILES[0]: _coefficients(job, model), "report.md": _report(job, model), RECORD: _record(job, model)}
    for name, text in contents.items():
        _write_through(folder / name, text)
    model.save(folder / MODEL)


def _write_through(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
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


def _coefficients(job: Job, model: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        job.kind.coefficients(model, job.data.feature_names, job.data.outcome_names)
    )
    return text.getvalue()


def _record(job: Job, model: Any) -> str:
    ledger = model.ledger
    content = {
        "job_sha256": job.digest,
        "feature_names": job.data.feature_names,
        "outcome_names": job.data.outcome_names,
        "this_job": [_without_values(release) for release in model.releases_],
        **{name: asdict(getattr(ledger, name)) for name in ("budget", "spent", "promised", "remaining")},
        "unit": ledger.unit,
    }
    return json.dumps(spelled_out(content), indent=1, allow_nan=False) + "\n"


def _report(job: Job, model: Any) -> str:
    """Return what the job did, as Markdown."""
    settings = {name: value for name, value in _parameters(job).items() if name not in ("epsilon", "delta")}
    facts = [
        f"- job: `{job.path.name}`, sha256 `{job.digest}`",
        f"- estimator: {job.kind.KIND}",
        *(f"- {name}: {value}" for name, value in settings.items()),
        *job.data.facts(),
        f"- penalty used: {model.ridge_!r}",
    ]
    return _REPORT.format("\n".join(facts), model.ledger.report())


def _parameters(job: Job) -> dict[str, Any]:
    """Return the parameters as text shows them; not the seed, with which anybody could take the noise off."""
    shown = {name: value for name, value in job.parameters.items() if name != "random_state"}
    if "box_x" in shown:
        shown["box_x"] = [np.asarray(side).tolist() for side in shown["box_x"]]
    return shown


def _without_values(release: Release) -> dict[str, Any]:
    return {name: value for name, value in release.to_dict().items() if name != "values"}
