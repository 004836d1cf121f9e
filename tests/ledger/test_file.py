"""The ledger in a file: shared without overspending, killed without forgetting, damaged without being believed."""

import copy
import hashlib
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import ledger_processes as processes
import numpy as np
import pytest
from ledger_processes import UNIT, release
from sklearn.base import clone

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy, Release
from dpfast.ledger import file
from dpfast.ledger.entries import Entry, Process

BUDGET = Privacy(1.0, 1e-6)
# Forked from a process that has one thread and the package loaded: as good as a new one, and twenty times as quick.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["dpfast.ledger", "dpfast.multi_outcome"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def in_other_processes(target, *arguments, context=FRESH, processes=1):
    """Run to the end; return what was put in the queue that `target` takes last."""
    queue = context.Queue()
    running = [context.Process(target=target, args=(*arguments, queue)) for _ in range(processes)]
    for process in running:
        process.start()
    results = [queue.get(timeout=300) for _ in running]
    for process in running:
        process.join()
        assert process.exitcode == 0
    for result in results:
        assert not isinstance(result, Exception), result
    return results


def raced(target, *arguments):
    return in_other_processes(target, *arguments, FRESH.Barrier(2), processes=2)


def killed_while_holding(path):
    child = FRESH.Process(target=processes.reserve_and_die, args=(path, BUDGET))
    child.start()
    child.join()
    assert child.exitcode == -9


def test_everything_is_there_for_the_next_process(path):
    first = Ledger(BUDGET, path)
    first.spend(release(mu=0.2, reproducible=True))
    held = first.reserve(UNIT)
    second = Ledger(BUDGET, path)
    assert (second.spent, second.remaining) == (Privacy(0.25, 1e-7), Privacy(0.5, 3e-7))
    (there,), (here,) = second.releases, first.releases
    assert (
        there.to_dict(values=False)
        == here.to_dict(values=False)
        == release().to_dict(values=False)
        | {
            "mu": 0.2,
            "reproducible": True,
            "epsilon": np.inf,
            "guarantee": here.guarantee,
            "time": here.time,
        }
    )
    assert (dict(there.values), there.shapes["sum"]) == ({}, (3,))
    assert second.report() == first.report()
    assert "sum (3,)" in repr(there)
    held.commit(*[release(Privacy(0.125, 5e-8))] * 2)
    assert len(second.releases) == 3
    with pytest.raises(ValueError, match="already"):
        held.commit(release())
    assert Path(second.path) == path
    assert Ledger(BUDGET).path is None


def test_the_rules_are_those_of_a_ledger_in_memory(path):
    ledger = Ledger(BUDGET, path)
    with pytest.raises(KeyboardInterrupt), ledger.reserve(UNIT):
        raise KeyboardInterrupt
    assert ledger.remaining == BUDGET
    for _ in range(4):
        ledger.spend(release())
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"has epsilon 0\.0"):
        ledger.reserve(Privacy(1e-9))
    with pytest.raises(ValueError, match="adjacency"):
        ledger.reserve(Privacy(0.1, adjacency="add_remove"))
    assert path.read_bytes() == before


def test_an_exact_release_is_recorded(path):
    everything = Privacy(np.inf, 0.5, "add_remove")
    Ledger(everything, path).spend(release(replace(everything, delta=0.0)))
    assert Ledger(everything, path).spent.epsilon == np.inf
    assert "none" in Ledger(everything, path).releases[0].guarantee
    with closing(sqlite3.connect(path)) as connection:
        for (content,) in connection.execute("SELECT content FROM ledger UNION ALL SELECT content FROM entry"):
            json.loads(content, parse_constant=pytest.fail)


@pytest.mark.parametrize("other", [Privacy(2.0, 1e-6), Privacy(1.0, 1e-7), Privacy(1.0, 1e-6, "add_remove")])
def test_another_budget_is_refused_with_both_named(path, other):
    Ledger(BUDGET, path)
    with pytest.raises(ValueError, match="budget must be") as caught:
        Ledger(other, path)
    assert repr(BUDGET) in str(caught.value)
    assert repr(other) in str(caught.value)


@pytest.mark.parametrize("bad", [1, b"ledger.json", ["ledger.json"], True])
def test_a_path_is_a_path(bad):
    with pytest.raises(TypeError, match="path"):
        Ledger(BUDGET, bad)


def test_a_folder_is_no_ledger_and_a_missing_one_is_not_made(tmp_path):
    with pytest.raises(OSError, match=str(tmp_path)):
        Ledger(BUDGET, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ledger\.json' cannot be made: there is no folder .*make the folder"):
        Ledger(BUDGET, tmp_path / "missing" / "ledger.json")
    assert not (tmp_path / "missing").exists()


def outcome(path, pickled=None):
    """What opening a file, or unpickling its ledger, comes to: the ledger's report, or the error."""
    try:
        return (Ledger(BUDGET, path) if pickled is None else pickle.loads(pickled)).report()
    except (ValueError, OSError) as error:
        return type(error)


@pytest.mark.parametrize("step", [97, pytest.param(3, marks=pytest.mark.slow)])
def test_every_flipped_byte_and_every_truncation_is_refused_or_changes_nothing(path, step):
    """Of pages that hold nothing, a byte may be any."""
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    ledger.reserve(UNIT, random_state=3)
    intact, report = path.read_bytes(), ledger.report()
    changed = [
        intact[:position] + bytes([intact[position] ^ 0x20]) + intact[position + 1 :]
        for position in range(0, len(intact), step)
    ]
    n_flipped, n_refused = len(changed), 0
    changed += [intact[:length] for length in range(0, len(intact), 16 * step)] + [b"{}", b"null"]
    for number, data in enumerate(changed):
        path.write_bytes(data)
        found = outcome(path)
        assert found is ValueError or (number < n_flipped and found == report)
        n_refused += found is ValueError
        assert path.read_bytes() == data
    assert n_refused > 0.1 * n_flipped
    path.write_bytes(intact)
    assert outcome(path) == report


def test_a_file_of_another_kind_is_refused_and_left_alone(path):
    for statement in ("CREATE TABLE ledger (content, sha256)", "CREATE TABLE people (name)"):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        before = path.read_bytes()
        with pytest.raises(ValueError, match="dpfast ledger file"):
            Ledger(BUDGET, path)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry WHERE number = 1",
        "UPDATE entry SET number = 7 WHERE number = 1",
        "UPDATE entry SET content = (SELECT content FROM entry WHERE number = 2) WHERE number = 1",
        "UPDATE entry SET content = replace(content, 'a sum', 'a sun')",
        "UPDATE ledger SET content = replace(content, '\"next_number\": 3', '\"next_number\": 4')",
        "UPDATE entry SET held = 0 WHERE number = 2",
        "UPDATE entry SET seed = 'another' WHERE number = 2",
        "INSERT INTO ledger SELECT * FROM ledger",
        "DELETE FROM ledger",
        "DROP INDEX seed",
        "CREATE TRIGGER more AFTER INSERT ON entry BEGIN DELETE FROM entry; END",
        "PRAGMA user_version = 2",
    ],
)
def test_a_database_that_was_edited_is_refused(path, statement):
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    ledger.reserve(UNIT, random_state=3)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
    with pytest.raises(ValueError, match=r"not (a valid|an intact) dpfast ledger file"):
        Ledger(BUDGET, path)


def test_a_copy_from_before_any_change_is_refused(path):
    ledger, copies = Ledger(BUDGET, path), []
    for change in (lambda: ledger.spend(release()), lambda: ledger.reserve(UNIT).give_back()):
        copies.append(path.read_bytes())
        change()
    latest = path.read_bytes()
    assert len({*copies, latest}) == 3
    for older in copies:
        path.write_bytes(older)
        with pytest.raises(ValueError, match="is an older copy"):
            ledger.reserve(UNIT)
    path.write_bytes(latest)
    assert ledger.spent == UNIT


def test_a_ledger_damaged_exchanged_or_deleted_in_use_stops_there(path):
    ledger = Ledger(BUDGET, path)
    older = path.read_bytes()
    ledger.spend(release())
    intact = path.read_bytes()
    path.write_bytes(intact[: len(intact) // 2])
    with pytest.raises(ValueError, match="not an intact dpfast ledger file"):
        ledger.reserve(UNIT)
    path.write_bytes(older)
    with pytest.raises(ValueError, match="is an older copy"):
        ledger.reserve(UNIT)
    path.write_bytes(intact)
    assert ledger.spent == UNIT
    path.unlink()
    with pytest.raises(FileNotFoundError, match="restore it"):
        ledger.reserve(UNIT)
    assert not path.exists()
    Ledger(BUDGET, path)
    with pytest.raises(ValueError, match="another ledger"):
        ledger.reserve(UNIT)


@pytest.mark.parametrize(
    "change",
    [
        {"budget": None},
        {"budget": {"epsilon": "1", "delta": 1e-6, "adjacency": "replace_one"}},
        {"identity": None},
        {"next_number": 0},
        {"next_number": "2"},
        {"next_number": 1},
        {"n_changes": -1},
        {"digests": "0"},
        {"totals": {}},
        {"limits": {"plain": [1.0, 0.0, 1e-4], "gaussian": None}},
    ],
)
def test_well_sealed_totals_that_are_no_ledgers_are_refused(path, change):
    Ledger(BUDGET, path).spend(release())
    processes.rewrite(path, processes.rows(path)[0] | change)
    with pytest.raises(ValueError, match="not a valid dpfast ledger file"):
        Ledger(BUDGET, path)


@pytest.mark.parametrize(
    "change", [{"epsilon": -1.0}, {"epsilon": 0.5}, {"unit": "person"}, {"holder": {}}, {"releases": None}, {"mu": "1"}]
)
def test_well_sealed_entries_that_are_no_ledgers_are_refused(path, change):
    Ledger(BUDGET, path).spend(release())
    entries = processes.rows(path)[1]
    processes.rewrite(path, None, {1: entries[1] | change})
    with pytest.raises(ValueError, match="not a valid dpfast ledger file"):
        Ledger(BUDGET, path)


# As JSON has infinities, and as our documents do.
UNUSUAL = [{"float": one} for one in ("inf", "-inf", "nan")]
ODD = (
    *UNUSUAL,
    None,
    True,
    -1,
    10**400,
    np.inf,
    -np.inf,
    np.nan,
    0.1,
    "",
    "1/0",
    "inf",
    "1e999999",
    "\x00",
    [],
    {},
    [[1]],
)


def with_one_other(content):
    """Yield what was written with any one of its values exchanged."""
    match content:
        case dict() | list():
            for key, one in list(content.items() if isinstance(content, dict) else enumerate(content)):
                for other in (*with_one_other(one), *ODD):
                    changed = content.copy()
                    changed[key] = other
                    yield changed


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_whatever_is_written_in_a_well_sealed_file_opens_it_or_is_refused_in_words(path, step):
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    held = ledger.reserve(UNIT)
    totals, entries = processes.rows(path)
    tried = [(one, {}) for one in with_one_other(totals)]
    tried += [(totals, {number: one}) for number in entries for one in with_one_other(entries[number])]
    tried, refused = tried[::step], 0
    for one, changed in tried:
        processes.rewrite(path, one, entries | changed)
        told = "not a valid dpfast ledger file"
        try:
            Ledger(BUDGET, path).report()
        except ValueError as error:
            told, refused = str(error), refused + 1
        assert "not a valid dpfast ledger file" in told or "budget must be that" in told
    assert 0.8 * len(tried) < refused < len(tried)
    processes.rewrite(path, totals, entries)
    held.give_back()


def test_what_a_killed_process_held_stays_counted_until_it_is_settled(path):
    ledger = Ledger(BUDGET, path)
    mine = ledger.reserve(UNIT)
    killed_while_holding(path)
    killed_while_holding(path)
    assert ledger.remaining.epsilon == 0.25
    assert len(ledger.reservations) == 3
    first, second = ledger.abandoned
    assert not mine.abandoned
    assert first.privacy == UNIT
    assert "has ended" in repr(first)
    assert ledger.report().count("forfeit it or give it back") == 2
    first.forfeit()
    assert (ledger.spent, ledger.remaining.epsilon, ledger.releases) == (UNIT, 0.25, ())
    assert "forfeited" in ledger.report()
    second.give_back()
    assert ledger.remaining.epsilon == 0.5
    assert ledger.abandoned == ()
    mine.commit(release())
    assert ledger.spent.epsilon == 0.5


def test_a_process_is_ended_only_if_that_is_certain():
    here = Process.here()
    assert not here.ended()
    assert replace(here, started=here.started + 1).ended()
    assert replace(here, boot="an earlier one").ended()
    assert not replace(here, host="elsewhere", pid=2**22 + 1).ended()
    assert not replace(here, namespace=1, boot="another").ended()
    child = os.fork() if threading.active_count() == 1 else None
    if child == 0:
        os._exit(0)
    if child is not None:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert replace(here, pid=child).ended()  # a zombie
        os.waitpid(child, 0)
        assert replace(here, pid=child).ended()


@pytest.mark.parametrize(
    ("action", "functions"),
    [(action, processes.WRITING) for action in ("create", "reserve", "commit", "give back")]
    + [pytest.param(action, None, marks=pytest.mark.slow) for action in ("reserve", "commit", "give back")],
)
def test_killed_between_any_two_steps_nothing_is_lost(path, action, functions):
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    if action in ("commit", "give back"):
        killed_while_holding(path)
    queue = FRESH.Queue()
    child = FRESH.Process(target=processes.kill_at_every_line, args=(path.read_bytes(), path, action, functions, queue))
    child.start()
    states = list(iter(lambda: queue.get(timeout=60), None))
    child.join()
    spent = {state[1] for state in states}
    assert len(states) > 10
    assert [state[0] for state in states] == [False] * (len(states) - 1) + [True]
    for _, epsilon, left, releases, abandoned, later in states:
        assert epsilon + left + 0.25 * abandoned == 1.0
        assert later == left - 0.125
        assert epsilon == 0.25 * releases
    counted = [1.0 - state[2] for state in states]
    if action == "create":
        assert spent == {0.0}
    elif action == "commit":
        # Counted at every moment, as held and then as spent.
        assert set(counted) == {0.5}
        assert spent == {0.25, 0.5}
    else:
        assert set(counted) == {0.25, 0.5}
    if action == "give back":
        assert counted == sorted(counted, reverse=True)
    else:
        assert counted == sorted(counted)
    # What a step returned from is on record.
    assert counted[-1] == {"create": 0.0, "give back": 0.25}.get(action, 0.5)


def test_a_change_is_flushed_before_it_is_told(path, monkeypatch):
    """By the settings of the connection that writes: what SQLite makes of them is its own."""
    with Ledger(BUDGET, path)._storage.transaction() as draft:
        assert draft._run("PRAGMA synchronous") == [(2,)]
        assert draft._run("PRAGMA journal_mode") == [("persist",)]
    flushed = []
    monkeypatch.setattr("dpfast.ledger.file.flush_name", flushed.append)
    other = path.with_name("other.json")
    Ledger(BUDGET, other)
    assert flushed == [str(other)]


def test_a_full_disk_leaves_the_accounts_as_they_were(path):
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    before = ledger.report()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    arrays = {f"{number}": np.zeros(2) for number in range(3000)}  # more than a page, on record by its shapes alone
    long = Release("many", "Laplace", UNIT, arrays, {})
    with ledger.reserve(UNIT) as held:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, most))
        try:
            with pytest.raises(OSError, match=str(path)):
                held.commit(long)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert (ledger.spent, len(ledger.reservations)) == (UNIT, 1)
    assert Ledger(BUDGET, path).report() == before
    ledger.reserve(UNIT)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("action", ["reserve", "commit", "create"])
def test_killed_at_any_system_call_nothing_is_lost(path, action):
    """What was on record is, and the rest is as before or as after; a step that returned is as after."""
    code = {
        "reserve": "ledger.reserve(Privacy(0.25, 1e-7))",
        "commit": "ledger.reservations[0].commit()",
        "create": "Ledger(Privacy(1.0, 1e-6), sys.argv[1] + '.made')",
    }[action]
    program = (
        f"import sys\nfrom dpfast import Ledger, Privacy\nledger = Ledger.open(sys.argv[1])\n{code}\nprint('done')"
    )
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    ledger.reserve(UNIT)
    pristine, made = path.read_bytes(), Path(f"{path}.made")
    for call in ("pwrite64", "fdatasync", "fsync", "fcntl", "unlink", "ftruncate", "link", "close", "openat"):
        # What changes no file leaves what its neighbours do: every third of those calls.
        step = 3 if call in ("fcntl", "close") else 1
        number, done = 1 - step, False
        while not done:
            number += step
            Path(f"{path}-journal").unlink(missing_ok=True)
            made.unlink(missing_ok=True)
            path.write_bytes(pristine)
            # Only calls that name the ledger's files, or their descriptors.
            files = [f"--trace-path={path}", f"--trace-path={path}-journal"]
            inject = f"--inject={call}:signal=SIGKILL:when={number}"
            command = ["strace", "-f", "-o", "/dev/null", *files, "-e", f"trace={call}", inject]
            run = subprocess.run([*command, sys.executable, "-c", program, str(path)], capture_output=True, text=True)
            done = run.returncode == 0
            again = Ledger(BUDGET, path)
            counted = 1.0 - again.remaining.epsilon
            assert len(again.releases) == 1
            assert counted in ((0.5, 0.75) if action == "reserve" else (0.5,))
            assert "done" not in run.stdout or counted == (0.75 if action == "reserve" else 0.5)
            assert Ledger(BUDGET, made).remaining == BUDGET
            assert done or number < 60


def crashed(path, cost):
    """Make a ledger; return its report, and the bytes of file and journal as a crash amid a change leaves them."""
    ledger = Ledger(BUDGET, path)
    with ledger._storage.transaction() as draft:
        for _ in range(30):
            draft.hold(Entry(cost, Process.here(), "2026", releases=()))
    report = ledger.report()
    with suppress(InterruptedError), ledger._storage.transaction() as draft:
        # As many pages as fit in no cache: some are written before the end.
        draft._run("PRAGMA cache_size = 1")
        for number in range(1, 31):
            entry = draft.find(number)
            draft._set(number, replace(entry, since=entry.since + " " * 5000, releases=None))
        halves = path.read_bytes(), Path(f"{path}-journal").read_bytes()
        raise InterruptedError
    assert ledger.report() == report
    assert halves[0] != Path(path).read_bytes()
    return report, *halves


def test_half_a_change_is_taken_back_and_without_its_own_journal_refused(path):
    report, half, journal = crashed(path, Privacy(0.02))
    _, _, other = crashed(path.with_name("other.json"), Privacy(0.01))
    pickled = pickle.dumps(Ledger(BUDGET, path))
    for beside, found in ((journal, report), (None, ValueError), (other, ValueError), (b"", ValueError)):
        path.write_bytes(half)
        Path(f"{path}-journal").unlink(missing_ok=True)
        if beside is not None:
            Path(f"{path}-journal").write_bytes(beside)
        assert outcome(path, pickled) == found


def test_without_permission_it_fails_before_anything_is_read():
    # Not in tmp_path, which other users cannot enter; the child gives up root's rights if it has them.
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Ledger(BUDGET, folder / "there.json")
        os.chmod(folder, 0o555)
        queue = FRESH.Queue()
        child = FRESH.Process(target=processes.act_without_permission, args=(folder, queue))
        child.start()
        assert [queue.get(timeout=60) for _ in range(2)] == ["PermissionError"] * 2
        assert queue.get(timeout=60) == (False, 1.0)
        child.join()
        os.chmod(folder, 0o755)


@pytest.mark.parametrize("rounds", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_two_processes_racing_never_overspend_and_never_lose(path, rounds):
    budget = Privacy(1.0, 1e-6)
    cost = Privacy(1.0 / rounds, 1e-6 / rounds)
    results = raced(processes.race, path, budget, cost, rounds)
    ledger = Ledger(budget, path)
    accepted = sum(map(len, results))
    assert accepted == len(ledger.releases) == rounds
    assert ledger.spent.epsilon == pytest.approx(1.0, abs=1e-12)
    assert (ledger.remaining.epsilon, ledger.reservations) == (pytest.approx(0.0, abs=1e-12), ())


@pytest.mark.parametrize("rounds", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_two_processes_making_a_ledger_one_gets_its_budget(tmp_path, rounds):
    first, second = raced(processes.race_for_files, tmp_path, rounds)
    assert sorted(first + second) == list(range(rounds))
    for number in range(rounds):
        assert Ledger(UNIT, tmp_path / f"{number}.json").remaining.epsilon == 0.0


def test_threads_share_it(path):
    results = []

    def spend():
        ledger = Ledger(BUDGET, path)
        for _ in range(8):
            try:
                ledger.spend(release(Privacy(0.05)))
                results.append(True)
            except BudgetExceeded:
                results.append(False)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == 20
    assert Ledger(BUDGET, path).remaining.epsilon == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_works_in_children(path, method):
    ledger = Ledger(BUDGET, path)
    context = multiprocessing.get_context(method)
    child = context.Process(target=processes.spend, args=(ledger,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert ledger.spent == UNIT
    assert in_other_processes(processes.remaining, ledger, context=context) == [0.75]


def test_children_forked_amid_other_threads_steps_have_a_ledger(path):
    """A child has none of the locks that its parent's threads hold, and none of their connections."""
    ledger, stop, context = Ledger(Privacy(1e6, 1e-2), path), threading.Event(), multiprocessing.get_context("fork")

    def reserve_on():
        while not stop.is_set():
            ledger.reserve(Privacy(0.5)).give_back()

    threads = [threading.Thread(target=reserve_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            child = context.Process(target=processes.spend, args=(ledger,))
            child.start()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(Ledger.open(path).releases) == 6


def test_a_child_forked_within_a_step_leaves_it_to_its_parent(path):
    """As in a signal handler: the child neither writes what its parent is about to, nor takes that back."""
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    child = 0
    try:
        with ledger._storage.transaction() as draft:
            draft.hold(draft.find(1))
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                assert Path(f"{path}-journal").stat().st_size > 0
    except RuntimeError as error:
        os._exit(0 if "forked in the midst" in str(error) else 1)
    finally:
        if not child:
            os._exit(2)
    assert Ledger.open(path).costs == (UNIT, UNIT)


def test_the_unit_is_that_of_each_entry(path):
    Ledger(BUDGET, path).reserve(UNIT, unit="person").forfeit()
    again = Ledger(BUDGET, path)
    assert again.unit == processes.rows(path)[1][1]["unit"] == "person"
    with pytest.raises(ValueError, match="unit must be the ledger's"):
        again.reserve(UNIT)


def test_a_file_that_is_exchanged_while_it_is_opened_is_refused(path, monkeypatch):
    ledger, other = Ledger(BUDGET, path), path.with_name("other.json")
    shutil.copy(path, other)
    connect = sqlite3.connect

    def exchanged(*arguments, **options):
        connection = connect(*arguments, **options)
        os.replace(other, path)
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", exchanged)
        with pytest.raises(ValueError, match="was replaced while it was opened"):
            ledger.reserve(UNIT)
    assert ledger.remaining == BUDGET


def test_a_ledger_that_stays_locked_says_so(path, monkeypatch):
    ledger = Ledger(BUDGET, path)
    monkeypatch.setattr("dpfast.ledger.file._PATIENCE", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for act in (lambda: ledger.reserve(UNIT), lambda: ledger.remaining, lambda: Ledger(BUDGET, path)):
            with pytest.raises(TimeoutError, match="stayed locked"):
                act()
    assert ledger.remaining == BUDGET


def test_a_step_waits_for_a_lock_that_is_given_back(path):
    ledger = Ledger(BUDGET, path)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        given_back = threading.Timer(0.05, other.execute, ["ROLLBACK"])
        given_back.start()
        ledger.reserve(UNIT).forfeit()
        given_back.join()
    assert ledger.spent == UNIT


def test_what_a_killed_maker_left_is_cleared_away(path):
    Ledger(BUDGET, path)
    os.link(path, f"{path}.1-2.new")
    assert Ledger(BUDGET, path).remaining == BUDGET
    assert sorted(os.listdir(path.parent)) == ["ledger.json"]


def test_a_step_reads_as_much_of_ten_entries_as_of_a_thousand(path):
    """Steps of SQLite's machine for a reservation, its mark and its commitment."""
    counts = {}
    for number in (10, 1000):
        ledger = Ledger(Privacy(1e6), path.with_name(f"{number}.json"))
        with ledger._storage.transaction() as draft:
            entry = Entry(Privacy(0.5), Process.here(), "2026", releases=())
            for _ in range(number):
                draft.hold(entry)
        counts[number] = steps = []
        with pytest.MonkeyPatch.context() as patched:
            run = file._run

            def counted(path, cursor, statement, *values, run=run, steps=steps):
                cursor.connection.set_progress_handler(lambda: steps.append(statement), 1)
                return run(path, cursor, statement, *values)

            patched.setattr(file, "_run", counted)
            with ledger.reserving(Privacy(0.5)) as held:
                held.draw()
                held.commit()
            assert ledger.remaining.epsilon < 1e6
    assert len(counts[1000]) == len(counts[10]) > 100


def test_a_reservation_is_settled_where_it_was_made(path, monkeypatch):
    ledger = Ledger(BUDGET, path)
    held = ledger.reserve(UNIT)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: held._process + 1)
        with pytest.raises(RuntimeError, match="another process"):
            held.commit(release())
        held.give_back()
    assert ledger.remaining.epsilon == 0.75
    held.commit(release())


def test_a_pickle_opens_the_same_ledger_or_none(path):
    ledger = Ledger(BUDGET, path)
    pickled = pickle.dumps(ledger)
    pickle.loads(pickled).spend(release())
    assert ledger.spent == UNIT
    path.unlink()
    with pytest.raises(FileNotFoundError, match="restore it"):
        pickle.loads(pickled)
    assert not path.exists()
    Ledger(BUDGET, path)
    with pytest.raises(ValueError, match="another ledger"):
        pickle.loads(pickled)


def test_copies_are_the_same_ledger_and_a_link_leads_to_it(path):
    ledger = Ledger(BUDGET, path)
    model = MultiOutcomeRidge(0.25, 1e-7, bound_x=1.0, bound_y=1.0, ledger=ledger, fit_intercept=False)
    for other in (clone(model), copy.copy(model), copy.deepcopy(model)):
        assert other.ledger is ledger
    link = path.with_name("link.json")
    link.symlink_to(path)
    Ledger(BUDGET, link).spend(release())
    assert link.is_symlink()
    assert ledger.spent == UNIT


def test_an_estimator_pays_from_it_and_travels_with_it(path):
    model = MultiOutcomeRidge(0.25, 1e-7, bound_x=1.0, bound_y=1.0, ledger=Ledger(BUDGET, path), fit_intercept=False)
    rows = np.full((50, 2), 0.5)
    pickle.loads(pickle.dumps(model)).fit(rows, rows)
    assert model.ledger.costs == (UNIT,)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((50, 2), np.nan), rows)
    assert model.ledger.remaining.epsilon == 0.75


def test_permissions_are_kept(path):
    ledger = Ledger(BUDGET, path)
    path.chmod(0o660)
    ledger.reserve(UNIT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_ledger_of_two_names_is_refused(path):
    ledger = Ledger(BUDGET, path)
    other = path.with_name("other.json")
    pickled = pickle.dumps(ledger)
    with ledger.reserve(UNIT) as held:
        os.link(path, other)
        # Whoever opens it, under either name, and whoever has it open.
        for act in (
            lambda: Ledger(BUDGET, path),
            lambda: Ledger(BUDGET, other),
            lambda: pickle.loads(pickled),
            lambda: ledger.reserve(UNIT),
            lambda: ledger.spend(release()),
            lambda: held.commit(release()),
            lambda: ledger.spent,
        ):
            with pytest.raises(ValueError, match="path must be the ledger file's only name"):
                act()
        other.unlink()
        held.commit(release())
    assert Ledger(BUDGET, path).spent == UNIT


def test_nothing_on_record_tells_when_a_fit_had_read_its_data(path, monkeypatch):
    """Two fits, one of which reads for hours: but for their numbers the records are the same."""
    clock = iter(f"2026-01-01T{hour:02}:00:00+00:00" for hour in range(24))
    monkeypatch.setattr("dpfast.ledger.ledger.now", lambda: next(clock))
    ledger = Ledger(BUDGET, path)
    quick, slow = ledger.reserve(UNIT), ledger.reserve(UNIT)
    held = [reservation.since for reservation in (quick, slow)]
    late = [release(time="2026-01-01T20:00:00+00:00"), release(time="2026-01-01T21:00:00+00:00")]
    # The second to be reserved is the first to be done.
    slow.commit(late[1])
    quick.commit(late[0])
    assert [one.time for one in late] == held
    ledger_row, records = processes.rows(path)
    assert list(records) == [1, 2]
    for number, since in zip((1, 2), held, strict=True):
        (recorded,) = records[number]["releases"]
        assert records[number]["since"] == recorded["time"] == since
    assert not any("T20" in json.dumps(row) or "T21" in json.dumps(row) for row in (ledger_row, records))
    assert "T21" not in ledger.report()


def test_a_file_keeps_no_seed_but_knows_it_again(path):
    ledger = Ledger(BUDGET, path)
    seed = 123456789123456789
    ledger.reserve(UNIT, random_state=seed)
    assert str(seed).encode() not in path.read_bytes()
    with pytest.raises(ValueError, match="random_state"):
        Ledger(BUDGET, path).reserve(UNIT, random_state=seed)
    elsewhere = Ledger(BUDGET, path.with_name("elsewhere.json"))
    elsewhere.reserve(UNIT, random_state=seed)
    marks = [processes.rows(one.path)[1][1]["seed"] for one in (ledger, elsewhere)]
    assert marks[0] != marks[1]
    # As strong as it was, and the same for ever: another hash would not know the seeds on record again.
    salt = ledger._storage.identity.encode()
    assert marks[0] == hashlib.scrypt(str(seed).encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=16).hex()


def test_a_spent_entry_is_not_given_back(path):
    """By a reservation that was looked up before, and committed elsewhere meanwhile."""
    for ledger in (Ledger(BUDGET), Ledger(BUDGET, path)):
        mine = ledger.reserve(UNIT)
        (found,) = ledger.reservations
        mine.commit(release())
        found.give_back()
        assert ledger.spent == UNIT
        assert len(ledger.releases) == 1


@pytest.mark.parametrize("random_state", [None, 7])
def test_a_reservation_is_admitted_in_the_transaction_that_writes_it(path, monkeypatch, random_state):
    """What another process reserves just before the lock is had counts, and so does its seed."""
    cost = Privacy(1.0, 1e-6) if random_state is None else Privacy(0.1, 1e-7)
    one, other = (Ledger(Privacy(1.0, 1e-6), path) for _ in range(2))
    begin = one._storage.transaction

    def late():
        other.reserve(cost, random_state=random_state)
        return begin()

    monkeypatch.setattr(one._storage, "transaction", late)
    with pytest.raises(ValueError, match=r"was requested|has not seen"):
        one.reserve(cost, random_state=random_state)
