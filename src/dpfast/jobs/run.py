"""Run a job: check, read, release, write.

Rows are read once for every sum that a fit needs. If people own several, the column of their ids is read before.

A job that stops before its noise is drawn has spent nothing and is run again from the start. The exact sums it had so
far are not kept: they are private, and a file of them would be one more thing to protect. A job keeps its
releases: started again, it completes them, and pays nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpfast._arguments import positive_integer
from dpfast._documents import printed
from dpfast._optional import optional
from dpfast._redacted import Terminated
from dpfast.estimator.persistence import kept_by
from dpfast.jobs import outputs
from dpfast.jobs.job_types import Job
from dpfast.ledger import BudgetExceeded, Ledger, PaidFailure
from dpfast.ledger.command import held_by_the_dead

_OF_CSV = (
    "every line of a CSV file is a row, of missing cells if it does not parse; use Parquet for cells with line breaks"
)


def run(path: Path, *, force: bool = False, progress: bool = True) -> str:
    """Fit what a job file describes, and write its outputs.

    Parameters
    ----------
    path : Path
        The TOML file; paths in it are relative to its folder.
    force : bool, default False
        Replace outputs, and make a new release even if this very job has made one: it costs its budget again.
    progress : bool, default True
        Show the bytes read in each pass, if tqdm is installed and the output is a terminal; under add/remove only the
        fact of reading and its duration.

    Returns
    -------
    str
        What was done, in a line.

    Raises
    ------
    TypeError, ValueError, OSError
        If the job or its input is unusable, or another run of the folder is under way; nothing was spent, and nothing
        written.
    BudgetExceeded
        If the ledger has too little left; no row was read.
    OutputError
        If the release was made and paid for, and could not be completed or written: it says where it is.
    """
    job = Job.read(Path(path))
    done = f"{str(job.folder)!r} holds the release of this job already; nothing was read or spent"
    # What an earlier run has left is put in order first.
    if not outputs.work_of(job).exists() and not outputs.is_pending(job, force=force):
        return done
    try:
        with terminable(), outputs.Outputs(job) as work:
            # Another run of it may have ended meanwhile.
            if not outputs.is_pending(job, force=force):
                return done
            if not force and outputs.unfinished(job):
                return _completed(job, work)
            ledger = job.open_ledger()
            model = job.kind.ESTIMATOR(**job.parameters, ledger=ledger)
            work.rehearse()
            work.model = model
            with kept_by(work.keep), _progress(job, progress) as advance:
                job.data.fit(model, advance)
    except BudgetExceeded as error:
        if held := held_by_the_dead(ledger):
            raise BudgetExceeded(f"{error}; {held}") from None
        raise
    except PaidFailure as error:
        raise outputs.OutputError(f"{error}. {outputs.AGAIN}" if outputs.unfinished(job) else str(error)) from None
    held = held_by_the_dead(ledger)
    return f"{_said(job, model)}{held and f'. In the ledger {held}'}"


def _completed(job: Job, work: outputs.Outputs) -> str:
    """Finish what an earlier run of the job has released and paid for."""
    model = work.kept()
    model.ledger = job.open_ledger()
    privacy, mu = model._cost()
    # Copies: the model's keep the time of the run that made them.
    releases = tuple(map(copy, model.releases_))
    if job.ledger_path is None:
        # That of a job alone went with its process.
        with model.ledger.reserving(privacy, unit=job.unit, mu=mu) as reservation:
            reservation.commit(*releases)
    for held in model.ledger.abandoned:
        # Of a run that was killed after it had kept the model, and before it had committed.
        if held.drawn and (held.privacy, held.since) == (privacy, releases[0].time):
            held.commit(*releases)
            break
    model.complete()
    work.model = model
    return f"completed what an earlier run had paid for; {_said(job, model)}"


def _said(job: Job, model: Any) -> str:
    void = "" if "random_state" not in job.parameters else f". {outputs.VOID}"
    return f"spent {model.privacy_spent_}; wrote {str(job.folder)!r}{void}"


def check(path: Path) -> str:
    """Check all of a job but the rows: keys, files, bounds, the folder of outputs, and the budget.

    Parameters
    ----------
    path : Path
        The TOML file.

    Returns
    -------
    str
        What it would do, in a line.

    Raises
    ------
    TypeError, ValueError, OSError, BudgetExceeded
        As for `run`.
    """
    job = Job.read(Path(path))
    made = ""
    if not outputs.is_pending(job):
        made = "its release has been made and written already; "
    elif outputs.unfinished(job):
        made = "its release has been made, and a fit completes it for nothing; "
    what = printed(", ".join(f"{name}: {text}" for name, text in job.data.facts()))
    lines = f"\n{_OF_CSV}" if any(file.suffix == ".csv" for file in job.data.files) else ""
    return f"{str(job.path)!r} is a job of {job.kind.JOB_TYPE}; {what}{lines}\n{made}{_charge(job)}; no row was read"


def plan(path: Path, people: int | None = None, target: float | None = None) -> str:
    """Report a job's expected error, the number of people it needs and the charge to its ledger.

    Parameters
    ----------
    path : Path
        The TOML file. Its tables are not looked at, and need not be there.
    people : int, optional
        How many there are; by default what [plan] says, or as many as are needed.
    target : float, optional
        The error to count people for; the default is the one in [plan], or that of the estimator's own plan.

    Returns
    -------
    str
        In a few lines.

    Raises
    ------
    TypeError, ValueError, OSError
        If the job is unusable, or does not tell what a plan needs.
    """
    job = Job.read(Path(path), look=False)
    if people is not None:
        positive_integer("--people", people)
    return f"{job.plan(people, target)}\n{_charge(job)}"


def _charge(job: Job) -> str:
    """Report the charge to the ledger and the number of times it fits; BudgetExceeded if it does not."""
    if job.ledger_path is None:
        return f"costs {job.cost}, of a ledger of its own"
    is_there = job.ledger_path.exists()
    # Neither is written to: one that is not there stays so.
    ledger = job.open_ledger() if is_there else Ledger(job.budget, **job.ledger_options)
    times = ledger.affords(job.kind.ESTIMATOR(**job.parameters))
    where, absent = f"the ledger {str(job.ledger_path)!r}", "" if is_there else ", which is not there yet"
    if times == 0:
        where += absent and f"{absent},"
        held = held_by_the_dead(ledger)
        raise BudgetExceeded(f"costs {job.cost}, but {where} has {ledger.remaining} left{held and f'; {held}'}")
    return f"costs {job.cost}, of {where}{absent}: it has room for {times:,} such"


@contextmanager
def terminable() -> Iterator[None]:
    """Make a request to end the process act as an interrupt: the cost of noise not drawn is given back.

    An existing other handler of that signal stays in force, and so it does if jobs run in other threads.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(*_: Any) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Passes:
    """Shows how far a pass over the tables is, of which a fit makes several."""

    def __init__(self, bar: Any, size: int) -> None:
        self._bar, self._size = bar, size
        self._number, self._read = 1, 0

    def __call__(self, n_bytes: int) -> None:
        if self._read + n_bytes > self._size and self._read:
            self._number, self._read = self._number + 1, 0
            self._bar.reset()
            self._bar.set_description(f"reading, pass {self._number}", refresh=False)
        self._read += n_bytes
        self._bar.update(n_bytes)


@contextmanager
def _progress(job: Job, wanted: bool) -> Iterator[Callable[[int], object] | None]:
    """Count bytes of each pass, a fixed number of rows at a time; if bytes are private, only mark progress."""
    if not wanted or find_spec("tqdm") is None:
        yield None
        return
    shown: dict[str, Any] = {"bar_format": "{desc}: {elapsed}"}
    if job.budget.adjacency == "replace_one":
        shown = {"total": sum(file.stat().st_size for file in job.data.files), "unit": "B", "unit_scale": True}
    with optional("tqdm", "a progress bar").tqdm(desc="reading", disable=None, leave=False, **shown) as bar:
        yield _Passes(bar, shown["total"]) if "total" in shown else lambda _: bar.update()
