"""The ledger in a file: shared without overspending, killed without forgetting, damaged without being believed."""

import copy
import itertools
import json
import multiprocessing
import os
import pickle
import stat
import threading
from dataclasses import replace
from pathlib import Path

import ledger_processes as processes
import numpy as np
import pytest
from ledger_processes import UNIT, release
from sklearn.base import clone

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy
from dpfast._documents import write_document
from dpfast.ledger import locks
from dpfast.ledger.process import Process
from dpfast.privacy import budget

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
    json.loads(path.read_text(), parse_constant=pytest.fail)


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


def test_every_flipped_byte_and_every_truncation_is_refused(path):
    Ledger(BUDGET, path).spend(release())
    intact = path.read_bytes()
    damaged = [
        intact[:position] + bytes([intact[position] ^ 0x20]) + intact[position + 1 :] for position in range(len(intact))
    ]
    damaged += [intact[:length] for length in range(len(intact))] + [intact + b"\n", b"{}", b"null"]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(ValueError, match="not an intact dpfast ledger file"):
            Ledger(BUDGET, path)
        assert path.read_bytes() == data
    path.write_bytes(intact)
    assert Ledger(BUDGET, path).spent == UNIT


def test_a_ledger_damaged_or_deleted_in_use_stops_there(path):
    ledger = Ledger(BUDGET, path)
    intact = path.read_bytes()
    path.write_bytes(intact[:-5])
    with pytest.raises(ValueError, match="checksum"):
        ledger.reserve(UNIT)
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
        {"entries": []},
        {"entries": {"one": {}}},
        {"entries": {"1": {}}},
        {"entries": {"1": {"epsilon": -1.0, "delta": 0.0, "since": "", "holder": {}, "releases": None}}},
    ],
)
def test_a_well_sealed_file_that_is_no_ledger_is_refused(path, change):
    from dpfast._documents import read_document, write_document

    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    content = read_document(str(path), "dpfast ledger", 2) | change
    write_document(str(path), "dpfast ledger", 2, content, temporary=f"{path}.tmp")
    with pytest.raises(ValueError, match="not a valid dpfast ledger file"):
        _ = ledger.spent


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
    assert len(states) > 20
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


def test_the_disk_is_flushed_before_and_after_the_renaming(path, monkeypatch):
    ledger = Ledger(BUDGET, path)
    calls = []
    fsync, rename = os.fsync, os.replace

    def noted_fsync(descriptor):
        status = os.fstat(descriptor)
        calls.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        fsync(descriptor)

    def noted_rename(source, target):
        calls.append((Path(source).parent, Path(target), Path(source).stat().st_size))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_rename)
    ledger.reserve(UNIT)
    size = path.stat().st_size
    assert calls == [size, (path.parent, path, size), "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_accounts_as_they_were(path, monkeypatch, step):
    ledger = Ledger(BUDGET, path)
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space"):
            ledger.reserve(UNIT)
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["ledger.json", "ledger.json.lock"]
    ledger.reserve(UNIT)


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
    model = MultiOutcomeRidge(0.25, 1e-7, bound_x=1.0, bound_y=1.0, ledger=ledger)
    for other in (clone(model), copy.copy(model), copy.deepcopy(model)):
        assert other.ledger is ledger
    link = path.with_name("link.json")
    link.symlink_to(path)
    Ledger(BUDGET, link).spend(release())
    assert link.is_symlink()
    assert ledger.spent == UNIT


def test_an_estimator_pays_from_it_and_travels_with_it(path):
    model = MultiOutcomeRidge(0.25, 1e-7, bound_x=1.0, bound_y=1.0, ledger=Ledger(BUDGET, path))
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


def test_a_lock_that_was_deleted_is_not_held_by_two(path, monkeypatch):
    ledger = Ledger(BUDGET, path)
    lock, deleted = locks.lock, itertools.count()

    def lock_of_a_deleted_file(file):
        if next(deleted) == 0:
            os.unlink(f"{path}.lock")
        lock(file)

    monkeypatch.setattr(locks, "lock", lock_of_a_deleted_file)
    ledger.reserve(UNIT)
    assert os.path.exists(f"{path}.lock")


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


def test_a_hard_linked_lock_only_excludes_more(path):
    ledger = Ledger(BUDGET, path)
    ledger.spend(release())
    os.link(f"{path}.lock", path.with_name("lock"))
    ledger.spend(release())
    assert Ledger(BUDGET, path).spent == Privacy(0.5, 2e-7)


def test_nothing_on_record_tells_when_a_fit_had_read_its_data(path, monkeypatch):
    """Two fits, one of which reads for hours: but for their numbers the records are the same."""
    clock = iter(f"2026-01-01T{hour:02}:00:00+00:00" for hour in range(24))
    monkeypatch.setattr(budget, "now", lambda: next(clock))
    ledger = Ledger(BUDGET, path)
    quick, slow = ledger.reserve(UNIT), ledger.reserve(UNIT)
    held = [reservation.since for reservation in (quick, slow)]
    late = [release(time="2026-01-01T20:00:00+00:00"), release(time="2026-01-01T21:00:00+00:00")]
    # The second to be reserved is the first to be done.
    slow.commit(late[1])
    quick.commit(late[0])
    assert [one.time for one in late] == held
    records = json.loads(path.read_text())["entries"]
    assert list(records) == ["1", "2"]
    for number, since in zip("12", held, strict=True):
        (recorded,) = records[number]["releases"]
        assert records[number]["since"] == recorded["time"] == since
    assert "T20" not in path.read_text()
    assert "T21" not in ledger.report()


def test_a_file_keeps_no_seed_but_knows_it_again(path):
    ledger = Ledger(BUDGET, path)
    seed = 123456789123456789
    ledger.reserve(UNIT, random_state=seed)
    assert str(seed) not in path.read_text()
    with pytest.raises(ValueError, match="random_state"):
        Ledger(BUDGET, path).reserve(UNIT, random_state=seed)
    elsewhere = Ledger(BUDGET, path.with_name("elsewhere.json"))
    elsewhere.reserve(UNIT, random_state=seed)
    marks = [json.loads(Path(one.path).read_text())["entries"]["1"]["seed"] for one in (ledger, elsewhere)]
    assert marks[0] != marks[1]


def test_a_file_from_before_units_is_of_rows(path):
    Ledger(BUDGET, path, composition="basic").spend(release())
    content = json.loads(path.read_text())
    (entry,) = content["entries"].values()
    for name in ("unit", "seed", "mu", "charge"):
        del entry[name]
    for record in entry["releases"]:
        del record["unit"], record["calibrated_epsilon"]
    kept = {name: content[name] for name in content if name not in ("sha256", "kind", "version")}
    write_document(str(path), content["kind"], content["version"], kept, temporary=f"{path}.old")
    ledger = Ledger(BUDGET, path)
    assert (ledger.unit, ledger.spent, ledger.releases[0].privacy) == ("row", UNIT, UNIT)
    # It promised plain sums, and goes on to keep them.
    assert (content["version"], ledger.composition) == (1, "basic")
    assert ledger.remaining == Privacy(0.75, 9e-7)
    with pytest.raises(ValueError, match="unit must be the ledger's, 'row'"):
        ledger.reserve(UNIT, unit="person")


def test_a_spent_entry_is_not_given_back(path):
    """By a reservation that was looked up before, and committed elsewhere meanwhile."""
    for ledger in (Ledger(BUDGET), Ledger(BUDGET, path)):
        mine = ledger.reserve(UNIT)
        (found,) = ledger.reservations
        mine.commit(release())
        found.give_back()
        assert ledger.spent == UNIT
        assert len(ledger.releases) == 1
