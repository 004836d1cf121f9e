"""Runs of a job: paid once whatever stops them, finished by the next start, and no files but a job's own removed."""

import contextlib
import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy
from dpfast._redacted import Terminated, redact_errors
from dpfast.cli import main
from dpfast.jobs import Job, OutputError, check, outputs, run
from dpfast.ledger import Reservation
from dpfast.ledger.entries import Process

pytest.importorskip("pyarrow")

JOB = """
[input]
path = "{table}"
[features]
a = "number"
b = "number"
[outcomes]
y = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_x = 1.0
bound_y = 1.0
[privacy]
epsilon = {epsilon}
delta = 1e-6
{ledger}
[output]
folder = "{folder}"
overwrite = true
formats = ["csv"]
plots = false
"""
LEDGER = '[privacy.ledger]\npath = "{}"\nepsilon = 100.0\ndelta = 0.1'
BUDGET = Privacy(100.0, 0.1)
OUTPUTS = {"coefficients.csv", "model.json", "report.html", "report.json", "report.md"}


def write(here, *, table="table.csv", epsilon=1.0, ledger="ledger", folder="fit"):
    if not (here / "table.csv").exists():
        rows = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 3)).round(6).tolist()
        (here / "table.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    text = JOB.format(table=table, epsilon=epsilon, folder=folder, ledger=ledger and LEDGER.format(ledger))
    (here / "job.toml").write_text(text)
    return here / "job.toml"


def fit(path, *, force=False):
    return run(path, force=force, progress=False)


def names(folder):
    return {path.name for path in folder.iterdir()}


def strays(here):
    """Return names beside those of a job that has ended; what a ledger's own writers leave is another matter."""
    return {name for name in names(here) if not name.startswith("ledger")} - {"table.csv", "job.toml", "fit"}


def paid(here):
    return len(Ledger(BUDGET, here / "ledger").costs)


def no_fit(*_, **__):
    pytest.fail("a fit was begun")


@pytest.mark.parametrize("where", ["fit", "no/../fit", ".fit.partial", "fit/deeper", "linked", "over"])
@pytest.mark.parametrize("what", ["ledger", "input"])
def test_a_folder_that_holds_the_ledger_or_the_input_of_its_job_is_refused(what, where, tmp_path, monkeypatch):
    """However it is spelled, and also where it is but a link that leads out of the folder."""
    for folder in ("no", "fit/deeper", ".fit.partial", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "fit")
    (tmp_path / "over").symlink_to(tmp_path / "elsewhere")
    write(tmp_path)
    name = f"{where}/own.csv"
    if where == "over":
        (tmp_path / "fit" / "own.csv").symlink_to(tmp_path / "elsewhere" / "own.csv")
        (tmp_path / "elsewhere" / "first.csv").symlink_to(tmp_path / "fit" / "own.csv")
        name = "over/first.csv"
    if what == "input":
        shutil.copy(tmp_path / "table.csv", (tmp_path / name).resolve())
    path = write(tmp_path, **({"ledger": name} if what == "ledger" else {"table": name}))
    monkeypatch.setattr(MultiOutcomeRidge, "fit", no_fit)
    for command in (check, fit):
        with pytest.raises(ValueError, match=rf"\[output\] folder .* holds the job's {what}"):
            command(path)
    assert not (tmp_path / "ledger").exists()
    # Beside it, it is no harm, though the way there leads through it.
    Job.read(write(tmp_path, ledger="fit/../ledger"))
    assert outputs._is_within(tmp_path / "fit" / "deeper", [tmp_path / "fit"])
    assert not outputs._is_within(tmp_path, [tmp_path / "fit"])


def test_a_file_that_was_put_among_the_results_stays(tmp_path, monkeypatch):
    path, fit_it = write(tmp_path), MultiOutcomeRidge.fit
    fit(path)
    # A record is believed of nothing but files in its folder.
    record = json.loads((tmp_path / "fit" / "report.json").read_text())
    record["files"] += ["../table.csv", str(tmp_path / "table.csv"), "folder", 3]
    (tmp_path / "fit" / "report.json").write_text(json.dumps(record))

    def fit_meanwhile(self, *arguments, **options):
        (tmp_path / "fit" / "notes.txt").write_text("hours of work")
        (tmp_path / "fit" / "folder").mkdir()
        return fit_it(self, *arguments, **options)

    monkeypatch.setattr(MultiOutcomeRidge, "fit", fit_meanwhile)
    fit(path, force=True)
    assert names(tmp_path / "fit") == OUTPUTS | {"notes.txt", "folder"}
    assert not strays(tmp_path)
    with pytest.raises(FileExistsError, match="holds other files, such as 'folder'"):
        fit(path, force=True)
    assert paid(tmp_path) == 2


def test_a_second_run_is_refused_while_a_first_one_lasts(tmp_path, monkeypatch):
    path, other = write(tmp_path), tmp_path / "other.toml"
    other.write_text(path.read_text().replace("epsilon = 1.0", "epsilon = 2.0"))
    fit_it, refused = MultiOutcomeRidge.fit, []

    def fit_and_start_others(self, *arguments, **options):
        for one in (path, other):
            with pytest.raises(BlockingIOError, match=r"another run is writing .*fit\.partial': wait until"):
                fit(one)
            refused.append(one)
        return fit_it(self, *arguments, **options)

    monkeypatch.setattr(MultiOutcomeRidge, "fit", fit_and_start_others)
    fit(path)
    assert len(refused) == 2
    assert paid(tmp_path) == 1
    # One that comes between the end of another and its own lock finds the release made.
    is_pending, calls = outputs.is_pending, []
    monkeypatch.setattr(
        outputs, "is_pending", lambda *job, **forced: not calls.append(0) and (len(calls) == 1 or is_pending(*job))
    )
    assert "holds the release of this job already" in fit(path)
    assert len(calls) == 2


def test_a_lock_is_that_of_the_file_that_has_its_name(tmp_path):
    """Whoever waits with a file that was removed meanwhile begins anew: two would have a lock each, else."""
    work, flock = outputs.Outputs(Job.read(write(tmp_path))), outputs.locked

    class Removed(outputs.FileIO):
        def __init__(self, path, mode):
            super().__init__(path, mode)
            if opened.append(self) is None and len(opened) == 1:
                os.unlink(path)

    opened = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpfast.jobs.outputs.FileIO", Removed)
        with work:
            assert len(opened) == 2
            with pytest.raises(BlockingIOError):
                flock(tmp_path / ".fit.partial" / "owner")
    assert names(tmp_path) == {"table.csv", "job.toml"}


def test_a_run_interrupted_once_it_has_the_lock_leaves_nothing(tmp_path, monkeypatch):
    path, lock, opened = write(tmp_path), outputs.locked, []

    def interrupted_once(path):
        opened.append(lock(path))
        if len(opened) == 1:
            opened[0].close()
            raise KeyboardInterrupt
        return opened[-1]

    monkeypatch.setattr(outputs, "locked", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        fit(path)
    assert not strays(tmp_path)


def test_a_folder_that_cannot_be_moved_is_found_before_anything_is_spent(tmp_path, monkeypatch):
    path = write(tmp_path)
    fit(path)
    rename = Path.rename

    def busy(one, target):
        if one.name == "fit":
            raise OSError(16, "Device or resource busy", str(one))
        return rename(one, target)

    monkeypatch.setattr(MultiOutcomeRidge, "fit", no_fit)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", busy)
        with pytest.raises(OSError, match=r"as a whole: Device or resource busy\. Name a folder within it"):
            fit(path, force=True)
    monkeypatch.setattr(os.path, "ismount", lambda folder: Path(folder).name == "fit")
    path = write(tmp_path, epsilon=2.0)
    with pytest.raises(OSError, match="it is a mount point"):
        check(path)
    assert names(tmp_path / "fit") == OUTPUTS
    assert not strays(tmp_path)
    assert paid(tmp_path) == 1


@pytest.mark.parametrize("within", [redact_errors, lambda read, _: read()])
@pytest.mark.parametrize(("how", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_after_the_draw_ends_the_command_with_its_own_code(how, status, within, tmp_path, monkeypatch):
    path, solve = write(tmp_path), MultiOutcomeRidge._solve

    def signalled(self, *arguments):
        return within(lambda: os.kill(os.getpid(), how) or solve(self, *arguments), "a table is refused")

    monkeypatch.setattr(MultiOutcomeRidge, "_solve", signalled)
    assert main(["fit", str(path)]) == status
    assert paid(tmp_path) == 1


@pytest.mark.parametrize("ledger", ["ledger", ""])
@pytest.mark.parametrize("how", [ValueError, KeyboardInterrupt, Terminated])
def test_a_release_that_was_not_solved_is_completed_by_the_next_start(how, ledger, tmp_path, monkeypatch):
    path, releases, solve = write(tmp_path, ledger=ledger), [], MultiOutcomeRidge._solve

    def stopped(self, mechanism, found, public):
        releases.append([one.to_dict() for one in self.releases_])
        raise how("secret")

    with monkeypatch.context() as patch:
        patch.setattr(MultiOutcomeRidge, "_solve", stopped)
        with pytest.raises(OutputError if how is ValueError else how) as error:
            fit(path)
    assert "secret" not in str(error.value)
    assert how is not ValueError or "Start the job again, which pays nothing" in str(error.value)
    assert "a fit completes it for nothing" in check(path)
    completed = []

    def solved(self, mechanism, found, public):
        completed.append([one.to_dict() for one in self.releases_])
        return solve(self, mechanism, found, public)

    monkeypatch.setattr(MultiOutcomeRidge, "_solve", solved)
    monkeypatch.setattr(MultiOutcomeRidge, "fit", no_fit)
    # The releases were made when they were, whenever they are completed.
    monkeypatch.setattr("dpfast.ledger.ledger.now", lambda: "2099-01-01T00:00:00+00:00")
    assert fit(path).startswith("completed what an earlier run had paid for; spent epsilon 1, ")
    assert completed == releases
    assert names(tmp_path / "fit") == OUTPUTS
    assert not strays(tmp_path)
    record = json.loads((tmp_path / "fit" / "report.json").read_text())
    assert len(record["this_job"]) == len(releases[0])
    assert paid(tmp_path) == 1 if ledger else record["spent"]["epsilon"] == 1.0


@pytest.mark.parametrize("change", ["table", "job"])
def test_what_another_job_has_released_is_completed_by_no_other(change, tmp_path, monkeypatch):
    path = write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "as_html", None)
        with pytest.raises(OutputError, match=r"incomplete, with the model in .*Start the job again"):
            fit(path)
    if change == "table":
        os.utime(tmp_path / "table.csv", ns=(0, 0))
    else:
        write(tmp_path, epsilon=2.0)
    for command in (check, fit):
        with pytest.raises(FileExistsError, match="holds a release that was paid for, of another"):
            command(path)
    assert MultiOutcomeRidge.load(tmp_path / ".fit.partial" / "model.json").releases_
    assert paid(tmp_path) == 1
    assert fit(path, force=True).startswith("spent")
    assert paid(tmp_path) == 2
    assert not strays(tmp_path)


def test_results_of_a_release_that_was_given_up_are_never_put_in_place(tmp_path, monkeypatch):
    """Half of them lie there: without the model, they would look complete."""
    path = write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "replace_file", None)
        with pytest.raises(OutputError, match="incomplete"):
            fit(path)
    results = tmp_path / ".fit.partial" / "results"
    assert names(results) == {"model.json"}
    save = MultiOutcomeRidge.save

    def killed(model, path):
        assert not results.exists()
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(MultiOutcomeRidge, "save", killed)
        with pytest.raises(OutputError, match="its outputs are lost"):
            fit(path, force=True)
    assert MultiOutcomeRidge.save is save
    assert not (tmp_path / "fit").exists()
    fit(path, force=True)
    assert names(tmp_path / "fit") == OUTPUTS
    assert not strays(tmp_path)


class Killed(BaseException):
    """Nothing is done after it."""


def killed_at(step, steps):
    """Return what stands for functions of the file system in a process that is killed before one of its calls."""

    def wrapped(function):
        def call(*arguments, **options):
            if len(steps) >= step:
                raise Killed
            steps.append(function.__name__)
            return function(*arguments, **options)

        return call

    return wrapped


@pytest.mark.parametrize("stride", [14, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_at_any_step_is_finished_by_the_next_one(stride, tmp_path, monkeypatch):
    """Over former results: those or the new ones are whole, nothing is paid twice, nothing lies about."""
    path, work, lock, opened = write(tmp_path), tmp_path / ".fit.partial", outputs.locked, []
    fit(path)
    monkeypatch.setattr(outputs, "locked", lambda path: opened.append(lock(path)) or opened[-1])
    found, n_lost = set(), 0
    for step in itertools.count(0, stride):
        before, steps = paid(tmp_path), []
        path = write(tmp_path, epsilon=1.0 + (step + 1) / 1024)
        with monkeypatch.context() as patch, contextlib.suppress(Killed, OutputError):
            for owner, names_of_calls in {
                Path: ("rename", "unlink", "mkdir", "rmdir", "iterdir"),
                os: ("unlink", "replace", "fsync"),
            }.items():
                for name in names_of_calls:
                    patch.setattr(owner, name, killed_at(step, steps)(getattr(owner, name)))
            fit(path)
        for file in opened:
            if not file.closed:
                # As the system does.
                outputs.unlock(file)
        is_kept = (work / "model.json").exists() or (work / "results").exists()
        is_paid, is_done = paid(tmp_path) > before, not outputs.is_pending(Job.read(path))
        # What is killed between its draw and the model's place on the disk is forfeited.
        n_lost += is_paid and not (is_kept or is_done)
        found.add((is_kept, is_paid, is_done))
        fit(path)
        assert paid(tmp_path) == before + is_paid + (not is_kept and not is_done), step
        assert names(tmp_path / "fit") == OUTPUTS
        assert not strays(tmp_path), step
        assert not outputs.is_pending(Job.read(path))
        if len(steps) < step:
            break
    assert n_lost <= 6
    # Before the release, with it, and with all but the last steps.
    assert found >= {(False, False, False), (True, True, False), (False, True, True)}


def test_names_of_columns_move_no_cursor(tmp_path, capsys):
    path = write(tmp_path, ledger="")
    (tmp_path / "table.csv").write_text((tmp_path / "table.csv").read_text().replace("a,b,y", "a\x1b]0;x\x07,b,y"))
    path.write_text(path.read_text().replace('a = "number"', '"a*" = "number"'))
    for command in ("check", "fit"):
        assert main([command, str(path)]) == 0
    path.write_text(path.read_text().replace('b = "number"', 'b = { kind = "number", "c\\u001b" = 1 }'))
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr()
    assert "features (2)" in said.out
    assert "unknown key" in said.err
    written = [one.read_text() for one in (tmp_path / "fit").iterdir() if one.suffix != ".json"]
    assert not any(sign in text for text in (said.out, said.err, *written) for sign in "\x1b\x07")


@pytest.mark.parametrize(
    ("folder", "own"),
    [("fit", "fit"), ("ledger-journal", "ledger"), (".fit.partial", ""), (".fit.partial/results", "")],
)
def test_a_folder_that_is_the_ledgers_or_another_jobs_is_refused_where_it_is_not_there_yet(folder, own, tmp_path):
    path = write(tmp_path, ledger=own, folder=folder)
    for command in (check, fit):
        with pytest.raises(ValueError, match=r"\[output\] folder .* (holds the job's ledger|is where another job)"):
            command(path)
    assert names(tmp_path) == {"table.csv", "job.toml"}


def test_a_folder_must_have_a_name(tmp_path):
    with pytest.raises(ValueError, match="must have a name"):
        check(write(tmp_path, folder="/"))


@pytest.mark.parametrize("step", range(12))
def test_what_others_put_among_the_outputs_stays_where_it_is_at_every_moment(step, tmp_path, monkeypatch):
    """A ledger, say, which would be made anew where it is not."""
    path, other, lock, opened = write(tmp_path), tmp_path / "fit" / "other", outputs.locked, []
    monkeypatch.setattr(outputs, "locked", lambda path: opened.append(lock(path)) or opened[-1])
    fit(path)
    path, fit_it, steps = write(tmp_path, epsilon=2.0), MultiOutcomeRidge.fit, []

    def watched(function):
        def call(*arguments, **options):
            assert other.read_text() == "a ledger"
            return function(*arguments, **options)

        call.__name__ = function.__name__
        return call

    with monkeypatch.context() as patch, contextlib.suppress(Killed):

        def fit_meanwhile(self, *arguments, **options):
            fitted = fit_it(self, *arguments, **options)
            other.write_text("a ledger")
            for name in ("rename", "replace", "unlink", "rmdir"):
                patch.setattr(Path, name, killed_at(step, steps)(watched(getattr(Path, name))))
            return fitted

        patch.setattr(MultiOutcomeRidge, "fit", fit_meanwhile)
        fit(path)
    for file in opened:
        if not file.closed:
            outputs.unlock(file)
    with contextlib.suppress(FileExistsError):
        fit(path)
    assert other.read_text() == "a ledger"
    assert names(tmp_path / "fit") == OUTPUTS | {"other"}
    assert not strays(tmp_path)
    assert json.loads((tmp_path / "fit" / "report.json").read_text())["parameters"]["epsilon"] == 2.0
    assert paid(tmp_path) == 2


def test_a_run_that_is_killed_before_its_commit_is_on_record_once_it_is_completed(tmp_path, monkeypatch):
    path, lock, opened = write(tmp_path), outputs.locked, []
    monkeypatch.setattr(outputs, "locked", lambda path: opened.append(lock(path)) or opened[-1])

    def killed(*given):
        for owner, name in ((outputs.Outputs, "_close"), (Reservation, "_close")):
            patch.setattr(owner, name, lambda self: None)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Reservation, "commit", killed)
        with pytest.raises(OutputError):
            fit(path)
    outputs.unlock(opened[0])
    ledger = Ledger(BUDGET, tmp_path / "ledger")
    assert [held.drawn for held in ledger.reservations] == [True]
    monkeypatch.setattr(Process, "ended", lambda process: True)
    assert "completed" in fit(path)
    assert (ledger.reservations, len(ledger.costs)) == ((), 1)
    assert len(ledger.releases) == len(json.loads((tmp_path / "fit" / "report.json").read_text())["this_job"])
    assert json.loads((tmp_path / "fit" / "report.json").read_text())["promised"]["epsilon"] == BUDGET.epsilon
