"""Run a job: check, read, release, write.

Rows are read once; where people own several, the column of their ids is read before.

A job that stops before its release has spent nothing and is run again from the start. The exact sums it had so far are
not kept: they are private, and a file of them would be one more thing to protect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dpfast.jobs import outputs
from dpfast.jobs.specification import Job
from dpfast.ledger import BudgetExceeded
from dpfast.ledger.command import held_by_the_dead


def run(path: Path, *, force: bool = False, progress: bool = True) -> str:
    """Fit what a job file describes, and write its outputs.

    Parameters
    ----------
    path : Path
        The TOML file; paths in it are relative to its folder.
    force : bool, default False
        Replace outputs, and make a new release even if this very job has made one: it costs its budget again.
    progress : bool, default True
        Show the bytes read, where tqdm is installed and a terminal is watching; under add/remove only that something
        is read, and for how long.

    Returns
    -------
    str
        What was done, in a line.

    Raises
    ------
    TypeError, ValueError, OSError
        If the job or its input is unusable; nothing was spent, and nothing written.
    BudgetExceeded
        If the ledger has too little left; no row was read.
    """
    job = Job.read(Path(path))
    if outputs.is_done(job) and not force:
        return f"{str(job.folder)!r} holds the release of this job already; nothing was read or spent"
    outputs.check_writable(job, replace=job.overwrite or force)
    ledger = job.open_ledger()
    model = job.kind.ESTIMATOR(**job.parameters, ledger=ledger)
    try:
        with outputs.Outputs(job, model), _progress(job, progress) as advance:
            job.kind.fit(model, job, advance)
    except BudgetExceeded as error:
        if held := held_by_the_dead(ledger):
            raise BudgetExceeded(f"{error}; {held}") from None
        raise
    void = "" if model.random_state is None else f". {outputs.VOID}"
    held = held_by_the_dead(ledger)
    return f"spent {model.privacy_spent_}; wrote {str(job.folder)!r}{void}{held and f'. In the ledger {held}'}"


@contextmanager
def _progress(job: Job, wanted: bool) -> Iterator[Callable[[int], object] | None]:
    """Count bytes, of fixed numbers of rows at a time; where these are private, only show that they are read."""
    if not wanted or find_spec("tqdm") is None:
        yield None
        return
    from tqdm import tqdm

    if job.budget.adjacency == "add_remove":
        with tqdm(bar_format="{desc}: {elapsed}", desc="reading", disable=None, leave=False) as bar:
            yield lambda _: bar.update()
        return
    size = sum(file.stat().st_size for file in job.data.files)
    with tqdm(total=size, unit="B", unit_scale=True, desc="reading", disable=None, leave=False) as bar:
        yield bar.update
