"""What the tests of the ledger file run in other processes, which import it by name."""

import hashlib
import json
import os
import signal
import sqlite3
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy, Release

TRACED = ("dpfast/_documents.py", "ledger/file.py", "ledger/entries.py", "ledger/ledger.py")
WRITING = ("_make", "_set", "keep", "_keep")
UNIT = Privacy(0.25, 1e-7)


def release(privacy=UNIT, **more):
    return Release("a sum", "Laplace", privacy, {"sum": np.arange(3.0)}, {"sum": 2.5}, **more)


def rows(path):
    """Return what a ledger's file holds: its one row of totals, and its entries by number, each with its checksum."""
    with closing(sqlite3.connect(path)) as connection:
        (ledger,) = connection.execute("SELECT content FROM ledger").fetchone()
        entries = connection.execute("SELECT number, content FROM entry ORDER BY number").fetchall()
    return json.loads(ledger), {number: json.loads(content) for number, content in entries}


def rewrite(path, ledger=None, entries=None):
    """Write other rows, with checksums that are right: all that they say is wrong."""
    with closing(sqlite3.connect(path)) as connection, connection:
        if ledger is not None:
            content = json.dumps(ledger)
            digest = hashlib.sha256(content.encode()).hexdigest()
            connection.execute("UPDATE ledger SET content = ?, sha256 = ?", (content, digest))
        for number, entry in (entries or {}).items():
            content = json.dumps(entry)
            digest = hashlib.sha256(f"{number} {content}".encode()).hexdigest()
            connection.execute("UPDATE entry SET content = ?, sha256 = ? WHERE number = ?", (content, digest, number))


def race(path, budget, cost, rounds, barrier, queue):
    """Race for what a ledger has left."""
    ledger = Ledger(budget, path, composition="basic")
    _race(lambda number: ledger.spend(release(cost)), rounds, barrier, queue)


def race_for_files(folder, rounds, barrier, queue):
    """Race to make a ledger, and for the whole of its budget."""
    _race(lambda number: Ledger(UNIT, folder / f"{number}.json").spend(release()), rounds, barrier, queue)


def _race(act, rounds, barrier, queue):
    """Act in rounds that all racers start together; report in which of them it was accepted, or what went wrong."""
    accepted = []
    try:
        for number in range(rounds):
            barrier.wait(60)
            with suppress(BudgetExceeded):
                act(number)
                accepted.append(number)
    except Exception as error:
        barrier.abort()
        queue.put(error)
    else:
        queue.put(accepted)


def reserve_and_die(path, budget):
    Ledger(budget, path).reserve(UNIT)
    os.kill(os.getpid(), signal.SIGKILL)


def remaining(ledger, queue):
    queue.put(ledger.remaining.epsilon)


def spend(ledger):
    ledger.spend(release())


def kill_at_every_line(pristine, path, action, functions, queue):
    """Let forked children act on copies of a ledger, the k-th killed at the k-th line it executes; report each state.

    Lines count in the named functions, or in all of the ledger's. A line holds one system call at most, so this kills
    between any two of them. The last child is not killed.
    """
    budget, line, survived = Privacy(1.0, 1e-6), 0, False
    while not survived:
        line += 1
        Path(f"{path}-journal").unlink(missing_ok=True)
        Path(path).write_bytes(pristine)
        child = os.fork()
        if child == 0:
            _act_until(line, Path(path), action, functions, budget)
        _, status = os.waitpid(child, 0)
        survived = os.WIFEXITED(status)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
        ledger = Ledger(budget, path)
        after = (ledger.spent.epsilon, ledger.remaining.epsilon, len(ledger.releases), len(ledger.abandoned))
        # Neither a lock nor a half-written file is in the way of the next process.
        ledger.reserve(Privacy(0.125, 1e-8))
        queue.put((survived, *after, ledger.remaining.epsilon))
    queue.put(None)


def _act_until(line, path, action, functions, budget):
    ledger = Ledger(budget, path)
    held = ledger.reservations
    # Settle what the pristine ledger holds as if this process had reserved it.
    acts = {
        "reserve": lambda: ledger.reserve(UNIT),
        "commit": lambda: held[0].commit(release()),
        "give back": lambda: held[0].give_back(),
        "create": lambda: Ledger(budget, path),
    }
    if action == "create":
        path.unlink()
    left = [line]

    def trace(frame, event, argument):
        code = frame.f_code
        if not code.co_filename.endswith(TRACED) or (functions and code.co_name not in functions):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    acts[action]()
    sys.settrace(None)
    os._exit(0)


def act_without_permission(folder, queue):
    """Try to write in a folder that another user owns; tell the errors, and whether any data were read."""
    # Modules are loaded when they are first used, and from where another user may not read: use them once before.
    with tempfile.TemporaryDirectory() as own:
        used = Ledger(Privacy(1.0, 1e-6), Path(own) / "used.json")
        MultiOutcomeRidge(0.5, 1e-7, bound_x=1.0, bound_y=1.0, ledger=used, fit_intercept=False).fit(
            np.ones((2, 2)), np.ones((2, 1))
        )
    if os.geteuid() == 0:
        os.seteuid(65534)
    budget, touched = Privacy(1.0, 1e-6), []

    def blocks():
        touched.append(True)
        yield np.ones((2, 2)), np.ones((2, 1))

    ledger = Ledger(budget, folder / "there.json")
    model = MultiOutcomeRidge(0.5, 1e-7, bound_x=1.0, bound_y=1.0, ledger=ledger, fit_intercept=False)
    for act in (lambda: Ledger(budget, folder / "new.json"), lambda: model.fit(blocks(), None)):
        try:
            act()
            queue.put("nothing")
        except OSError as error:
            queue.put(type(error).__name__)
    queue.put((bool(touched), ledger.remaining.epsilon))
