"""A ledger's entries in a file that any number of processes and threads share.

Reading takes a snapshot of the file, which is only ever replaced as a whole. A transaction holds an exclusive lock on a
lock file beside it (`locks`; on a network file system, one whose locks are shared between hosts), reads, changes its
draft, writes it to a temporary file in the same folder, flushes that to the disk, renames it into place and flushes the
folder. Killed at any point, a process leaves the old entries or the new ones, and its lock is gone with it.

Releases are recorded without their values: everything that says what was promised, and the shapes of the arrays.
Version 1 of the format is that of plain sums; version 2 holds limits, and what each entry takes of them.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, astuple
from io import FileIO
from typing import Any, TypeVar

from dpfast import _arguments as check
from dpfast._documents import read_document, write_document
from dpfast.kernels import transaction
from dpfast.ledger import locks
from dpfast.ledger.entries import Entries, Entry
from dpfast.ledger.process import Process
from dpfast.ledger.release import Release, unit_value
from dpfast.privacy.filters import Charge, Filter
from dpfast.privacy.guarantee import Privacy

_KIND = "dpfast ledger"
_PLAIN, _WITH_LIMITS = 1, 2

Opened = TypeVar("Opened")


class LedgerFile:
    """Entries in a file, made by `create` if it does not exist; of this budget, and this identity if one is given."""

    def __init__(self, path: str, budget: Privacy, identity: str | None = None) -> None:
        self.path = path
        self.budget = budget
        self.identity = identity
        self.turn = transaction.Turn()
        # Entries as they were last read, with their records: most are the same next time.
        self._known: dict[int, tuple[dict[str, Any], Entry]] = {}
        # Filled once it is open: limits are fixed when a ledger is made.
        self._limits: tuple[Filter, ...] = ()
        content = self._content()
        self.identity = content["identity"]
        with _well_formed(path):
            self._limits = (_limits(budget, content),)

    @classmethod
    def create(cls, path: str, limits: Filter) -> LedgerFile:
        """Open a ledger, first making an empty one with these limits if there is none."""
        if not os.path.exists(path):
            check_place(path)
            with _Lock[None](path):
                # Another process may have been first.
                if not os.path.exists(path):
                    holder = Process.here()
                    _write(path, limits, f"{holder.host}-{holder.pid}-{time.time_ns()}", 1, {})
        return cls(path, limits.budget)

    @staticmethod
    def budget_of(path: str) -> Privacy:
        """Return the budget of a ledger that exists."""
        content = read_document(path, _KIND, _PLAIN, _WITH_LIMITS)
        with _well_formed(path):
            return Privacy(**content["budget"])

    @property
    def limits(self) -> Filter:
        """The limits on what entries come to."""
        return self._limits[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process opens this ledger or fails; it never makes a new one.
        return type(self), (self.path, self.budget, self.identity)

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""
        content = self._content()
        with _well_formed(self.path):
            records = {int(number): record for number, record in content["entries"].items()}
            next_number = check.positive_integer("next_number", content["next_number"])
            if any(number >= next_number for number in records):
                raise ValueError("an entry is numbered beyond next_number")
            return Entries({number: self._entry(number, record) for number, record in records.items()}, next_number)

    def seed_mark(self, seed: int) -> str:
        """Return a hash of a seed: slow, and salted with this ledger's identity.

        Whoever reads the file can still try seeds out, and a small one is found. What that gives away was never
        protected: a release of a seed has no guarantee.
        """
        digits, salt = str(seed).encode(), str(self.identity).encode()
        return hashlib.scrypt(digits, salt=salt, n=1 << 14, r=8, p=1, dklen=16).hex()

    def transaction(self) -> AbstractContextManager[Entries]:
        """Enter with a draft that nobody else can change; it is written if the block raises nothing."""
        return _FileTransaction(self)

    def write(self, entries: Entries) -> None:
        """Replace the file; the caller holds its lock."""
        records = {str(number): self._record(number, entry) for number, entry in entries.items()}
        _write(self.path, self.limits, self.identity, entries.next_number, records)

    def _content(self) -> dict[str, Any]:
        try:
            _refuse_links(self.path)
            content = read_document(self.path, _KIND, _PLAIN, _WITH_LIMITS)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"the ledger file {self.path!r} is gone: restore it; a new one would forget what was spent"
            ) from None
        with _well_formed(self.path):
            stored = Privacy(**content["budget"])
            identity = check.text("identity", content["identity"])
        if stored != self.budget:
            raise ValueError(f"budget must be that of the ledger file {self.path!r}, {stored!r}; got {self.budget!r}")
        if any(content.get("limits") != limits.to_dict() for limits in self._limits):
            raise ValueError(f"{self.path!r} has other limits than when it was opened, which are fixed when it is made")
        if self.identity not in (None, identity):
            raise ValueError(f"{self.path!r} is another ledger than the one that was opened there before")
        return content

    def _entry(self, number: int, record: dict[str, Any]) -> Entry:
        known = self._known.get(number)
        if known is not None and known[0] == record:
            return known[1]
        releases = record["releases"]
        entry = Entry(
            Privacy(record["epsilon"], record["delta"], self.budget.adjacency),
            Process(**record["holder"]),
            check.text("since", record["since"]),
            None if releases is None else tuple(Release.from_dict(release) for release in releases),
            # Entries written before there were units and marks of seeds have no such keys.
            unit_value(record.get("unit", "row")),
            None if record.get("seed") is None else check.text("seed", record["seed"]),
            check.optional(check.positive, "mu", record.get("mu")),
            None if record.get("charge") is None else Charge(*record["charge"]),
        )
        self._known[number] = record, entry
        return entry

    def _record(self, number: int, entry: Entry) -> dict[str, Any]:
        known = self._known.get(number)
        if known is not None and known[1] is entry:
            return known[0]
        releases = entry.releases
        return {
            "epsilon": entry.privacy.epsilon,
            "delta": entry.privacy.delta,
            "unit": entry.unit,
            "seed": entry.seed,
            "mu": entry.mu,
            "charge": None if entry.charge is None else list(astuple(entry.charge)),
            "since": entry.since,
            "holder": asdict(entry.holder),
            "releases": None if releases is None else [release.to_dict(values=False) for release in releases],
        }


def check_place(path: str) -> None:
    """Refuse a folder that is not there or cannot be written; it is not made, as a new ledger has a new budget."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"the ledger file {path!r} cannot be made: there is no folder {folder!r}. Correct the path or, if these "
            "people have no ledger yet, make the folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"the ledger file {path!r} cannot be written: no permission to write in its folder, where its lock lies too"
        )


def _refuse_links(path: str) -> None:
    """Refuse a file of several names: a transaction replaces one of them, the others would keep the old entries."""
    found = os.stat(path)
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise ValueError(
            f"path must be the ledger file's only name, but {path!r} is hard-linked: each of its names would spend the "
            "whole budget. Remove the others, after seeing that they hold the same entries; a symbolic link is no harm"
        )


@contextmanager
def _well_formed(path: str) -> Iterator[None]:
    """Say which file it was that did not hold what it should."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path!r} is not a valid {_KIND} file, nothing in it was used: {error}") from error


def _limits(budget: Privacy, content: dict[str, Any]) -> Filter:
    return Filter.from_dict(budget, content["limits"]) if "limits" in content else Filter.basic(budget)


def _write(path: str, limits: Filter, identity: str | None, next_number: int, records: dict[str, Any]) -> None:
    content = {"identity": identity, "budget": asdict(limits.budget), "next_number": next_number, "entries": records}
    version, described = _PLAIN, limits.to_dict()
    if described is not None:
        content["limits"], version = described, _WITH_LIMITS
    # One name will do: only the holder of the lock writes, and it removes what a killed one left.
    write_document(path, _KIND, version, content, temporary=f"{path}.tmp")


class _Lock(transaction.Bracket[Opened]):
    """Holds the lock of a ledger file; released by the system if the process dies."""

    def __init__(self, path: str, turn: transaction.Turn | None = None) -> None:
        super().__init__(turn)
        self._name = f"{path}.lock"
        self._file: FileIO | None = None

    def _open(self) -> Opened:
        while True:
            # Opened anew each time: locks belong to the opening, so threads exclude each other as processes do.
            self._file = FileIO(self._name, "a")
            locks.lock(self._file)
            if _is(self._file.fileno(), self._name):
                return self._locked()
            self._file.close()

    def _locked(self) -> Opened:
        """Return what the block gets."""
        return None  # type: ignore[return-value]

    def _close(self) -> None:
        if self._file is not None and not self._file.closed:
            try:
                locks.unlock(self._file)
            finally:
                self._file.close()


class _FileTransaction(_Lock[Entries]):
    def __init__(self, ledger: LedgerFile) -> None:
        super().__init__(ledger.path, ledger.turn)
        self._ledger = ledger

    def _locked(self) -> Entries:
        self._draft = self._ledger.read()
        return self._draft

    def _keep(self) -> None:
        self._ledger.write(self._draft)


def _is(descriptor: int, name: str) -> bool:
    """Whether the file that was locked still has its name: others lock whichever has it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False
