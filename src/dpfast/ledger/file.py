"""A ledger's entries in a file that any number of processes and threads share: a database of SQLite.

A transaction takes the file's lock at its beginning, and its changes are on the disk before it ends. Pages to be
overwritten are first copied to a journal beside the file, from which a killed process's unfinished change is undone.
One row holds budget, limits and the exact totals of all entries, so a step reads two rows, however many there are. Each
row has a SHA-256. The totals are compared with the rows when a ledger is opened. This finds damage, not an editor who
changes both.

A connection is opened for each transaction. A fork waits until none is open, since a child would take its parent's
locks for its own. POSIX locks end when the process closes the file under any other handle, so nothing here opens it.

Releases are recorded without their values: the record has the guarantee and its parts, and the shapes of the arrays.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast._documents import flush_name, from_json, to_json
from dpfast.ledger.entries import Draft, Entries, Entry, Process, Totals
from dpfast.privacy.composition import Filter
from dpfast.privacy.guarantee import Adjacency, Privacy

_KIND = "dpfast ledger"
_APPLICATION, _VERSION = 0x64706C67, 1
_SCHEMA = {
    "ledger": "CREATE TABLE ledger (content TEXT NOT NULL, sha256 TEXT NOT NULL)",
    "entry": "CREATE TABLE entry (number INTEGER PRIMARY KEY, held INTEGER NOT NULL, seed TEXT, "
    "content TEXT NOT NULL, sha256 TEXT NOT NULL)",
    "held": "CREATE INDEX held ON entry (held) WHERE held",
    "seed": "CREATE INDEX seed ON entry (seed) WHERE seed IS NOT NULL",
}
# Flushed before and after each change. A journal that stays is flushed alone: making and removing one, with the folder,
# takes twenty times as long.
_DURABLE = "PRAGMA journal_mode = PERSIST", "PRAGMA synchronous = FULL"
_ROWS = "SELECT number, held, seed, content, sha256 FROM entry"
_NEW = ".new"  # suffix of the temporary file in which a new ledger is made
#: Seconds between attempts to get a lock, and seconds for all attempts.
_PAUSE, _PATIENCE = 0.001, 60.0

# One lock for all ledger files of this process. A fork must wait for it, since it would tear a transaction apart.
_lock = transaction.ForkSafeLock()
_fork = transaction.AtomicContext[None](_lock)


def _before_fork() -> None:
    # A fork from within a transaction, in a signal handler, does not wait for itself: see `_Transaction._close`.
    with suppress(RuntimeError):
        _fork.__enter__()


def _after_fork() -> None:
    _fork.__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class LedgerFile:
    """Entries in a file, made by `create` if it does not exist; of this budget, and this identity if one is given."""

    def __init__(self, path: str, budget: Privacy, identity: str | None = None) -> None:
        self.path = path
        self.budget = budget
        self.identity = identity
        # Filled once it is open: limits are fixed when a ledger is made.
        self._limits: tuple[Filter, ...] = ()
        self._n_changes = 0
        with self._reading() as rows:
            rows.check_whole()
        self.identity = rows.identity
        self._limits = (rows.limits,)

    @classmethod
    def create(cls, path: str, limits: Filter) -> LedgerFile:
        """Open a ledger, first making an empty one with these limits if there is none."""
        if not os.path.exists(path):
            check_place(path)
            _make(path, limits)
        return cls(path, limits.budget)

    @staticmethod
    def budget_of(path: str) -> Privacy:
        """Return the budget of an existing ledger."""
        with _Transaction(path, "BEGIN") as rows:
            return rows.limits.budget

    @property
    def limits(self) -> Filter:
        """The limits on the sums of entries."""
        return self._limits[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process opens this ledger or fails; it never makes a new one.
        return type(self), (self.path, self.budget, self.identity)

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""
        with self._reading() as rows:
            found = rows.all()
        return rows.entries(found)

    def totals(self) -> Totals:
        """Return the totals of a snapshot."""
        with self._reading() as rows:
            return rows.totals

    def seed_mark(self, seed: int) -> str:
        """Return a hash of a seed: slow, and salted with this ledger's identity.

        A reader of the file can still try seeds out, and will find a small one. No guarantee is lost by that: a release
        from a seed has none.
        """
        digits, salt = str(seed).encode(), str(self.identity).encode()
        return hashlib.scrypt(digits, salt=salt, n=1 << 14, r=8, p=1, dklen=16).hex()

    def transaction(self) -> AbstractContextManager[Draft]:
        """Enter with a draft that nobody else can change; it is written if the block raises nothing."""
        return _Transaction(self.path, "BEGIN IMMEDIATE", self)

    def _reading(self) -> _Transaction:
        return _Transaction(self.path, "BEGIN", self)

    def check(self, rows: _Rows) -> None:
        """Refuse a file other than the one that was opened."""
        stored = rows.limits.budget
        if stored != self.budget:
            raise ValueError(f"budget must be that of the ledger file {self.path!r}, {stored!r}; got {self.budget!r}")
        if self.identity not in (None, rows.identity):
            raise ValueError(f"{self.path!r} is another ledger than the one that was opened there before")
        if any(rows.limits != limits for limits in self._limits):
            raise ValueError(f"{self.path!r} has other limits than when it was opened, which are fixed when it is made")
        if rows.n_changes < self._n_changes:
            raise ValueError(f"{self.path!r} is an older copy of the ledger that was opened there: restore the latest")
        self._n_changes = rows.n_changes


class _Rows(Draft):
    """The rows of an open database, in a transaction."""

    def __init__(self, path: str, cursor: sqlite3.Cursor) -> None:
        self._path, self._cursor = path, cursor
        written = self._run("SELECT content, sha256 FROM ledger")
        ((last,),) = self._run("SELECT max(number) FROM entry")
        with _well_formed(path):
            ((content, sha256),) = written
            self._content = _intact(content, sha256)
            self.identity = check.text("identity", self._content["identity"])
            self.limits = _limits(Privacy(**self._content["budget"]), self._content["limits"])
            self.next_number = check.positive_integer("next_number", self._content["next_number"])
            self.n_changes = check.integer_of_at_least("n_changes", self._content["n_changes"], 0)
            self.totals = Totals.from_dict(self._content["totals"])
            self._digests = int(self._content["digests"], 16)
            if last is not None and last >= self.next_number:
                raise ValueError("an entry is numbered beyond next_number")
        self._is_changed = False

    def find(self, number: int) -> Entry | None:
        """Return an entry, if it is there."""
        return next(map(self._entry, self._run(f"{_ROWS} WHERE number = ?", number)), None)

    def has_seed(self, mark: str) -> bool:
        """Whether some entry's noise comes from the seed with this mark."""
        return bool(self._run("SELECT 1 FROM entry WHERE seed = ?", mark))

    def holders(self) -> list[Process]:
        """Return the processes that hold entries."""
        return [self._entry(row).holder for row in self._run(f"{_ROWS} WHERE held")]

    def _set(self, number: int, entry: Entry | None) -> None:
        for (sha256,) in self._run("SELECT sha256 FROM entry WHERE number = ?", number):
            self._digests -= int(sha256, 16)
        self._run("DELETE FROM entry WHERE number = ?", number)
        if entry is not None:
            content = to_json(entry.to_dict())
            sha256 = _sha256(f"{number} {content}")
            self._run("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", number, entry.held, entry.seed, content, sha256)
            self._digests += int(sha256, 16)
        self._is_changed = True

    def keep(self) -> None:
        """Write any changes."""
        if self._is_changed:
            self._content |= {"next_number": self.next_number, "n_changes": self.n_changes + 1}
            self._content |= {"totals": self.totals.to_dict(), "digests": f"{self._digests:x}"}
            content = to_json(self._content)
            self._run("UPDATE ledger SET content = ?, sha256 = ?", content, _sha256(content))
            self._run("COMMIT")

    def all(self) -> list[tuple[Any, ...]]:
        """Return every entry's row."""
        return self._run(f"{_ROWS} ORDER BY number")

    def entries(self, rows: list[tuple[Any, ...]]) -> Entries:
        """Return the entries that rows hold."""
        return Entries({row[0]: self._entry(row) for row in rows}, self.next_number, self.totals)

    def check_whole(self) -> None:
        """Refuse a damaged database, one that is no ledger, or totals other than the sums of its entries."""
        names = ("application_id", "user_version", "integrity_check")
        found = [self._run(f"PRAGMA {name}") for name in names]
        schema, rows = self._run("SELECT name, sql FROM sqlite_master"), self.all()
        with _well_formed(self._path):
            if found != [[(_APPLICATION,)], [(_VERSION,)], [("ok",)]] or dict(schema) != _SCHEMA:
                raise ValueError("it is damaged, or another database")
            is_same = Totals(self.entries(rows).values()).to_dict() == self.totals.to_dict()
            if not is_same or sum(int(row[4], 16) for row in rows) != self._digests:
                raise ValueError("its totals are not those of its entries")

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        number, held, seed, content, sha256 = row
        with _well_formed(self._path):
            entry = _entry(number, content, sha256, self.limits.budget.adjacency)
            if (entry.held, entry.seed) != (bool(held), seed):
                raise ValueError("a row is not that of its entry")
            return entry

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return _run(self._path, self._cursor, statement, *values)


class _Transaction(transaction.AtomicContext[_Rows]):
    """A connection to a ledger's file, for one transaction."""

    def __init__(self, path: str, begin: str, ledger: LedgerFile | None = None) -> None:
        super().__init__(_lock)
        self._path, self._begin, self._ledger = path, begin, ledger
        # No other connection is open: a statement stopped by an interrupt would hold the lock as long as another's
        # traceback.
        self._cursor: sqlite3.Cursor | None = None

    def _open(self) -> _Rows:
        self._process, found = os.getpid(), _only_name(self._path)
        with _said(self._path):
            address = f"{Path(self._path).as_uri()}?mode=rw"
            self._cursor = sqlite3.connect(address, timeout=0.0, isolation_level=None, uri=True).cursor()
        for statement in (*_DURABLE, self._begin):
            _run(self._path, self._cursor, statement)
        self._rows = _Rows(self._path, self._cursor)
        if not os.path.samestat(found, os.stat(self._path)):
            raise ValueError(f"{self._path!r} was replaced while it was opened")
        if self._ledger is not None:
            self._ledger.check(self._rows)
        return self._rows

    def _keep(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("this process was forked in the midst of a ledger's transaction, which is its parent's")
        self._rows.keep()

    def _close(self) -> None:
        if self._cursor is not None:
            if os.getpid() == self._process:
                with suppress(sqlite3.ProgrammingError):  # closed, and interrupted before that was known
                    self._cursor.close()
                self._cursor.connection.close()
            else:  # closed here, it would take back what its parent writes
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._cursor))
            self._cursor = None


def is_ledger(path: str) -> bool:
    """Whether there is a file that holds a ledger, intact or not."""
    # Closing it in the midst of a transaction would end the transaction's lock.
    with transaction.AtomicContext[None](_lock):
        try:
            # A pipe, once opened, waits for somebody to write.
            if not stat.S_ISREG(os.stat(path).st_mode):
                return False
            with open(path, "rb") as file:
                header = file.read(72)
        except OSError:
            return False
    # Header field of SQLite that identifies the application.
    return header.startswith(b"SQLite format 3\0") and header[68:] == _APPLICATION.to_bytes(4, "big")


def check_place(path: str) -> None:
    """Refuse a folder that is not there or cannot be written; it is not made, as a new ledger has a new budget."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"the ledger file {path!r} cannot be made: there is no folder {folder!r}. Correct the path or, if these "
            "people have no ledger yet, make the folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the ledger file {path!r} cannot be written: no permission to write in its folder")


def _make(path: str, limits: Filter) -> None:
    """Make an empty ledger, all of it or nothing, unless somebody else is first."""
    own = f"{os.getpid()}-{time.time_ns()}"
    content = {
        "identity": f"{Process.here().host}-{own}",
        "budget": asdict(limits.budget),
        "limits": limits.to_dict(),
        "next_number": 1,
        "n_changes": 0,
        "totals": Totals().to_dict(),
        "digests": "0",
    }
    written = to_json(content)
    new = f"{path}.{own}{_NEW}"
    try:
        # Made here for its permissions, which SQLite would set by its own mind.
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with _said(path), closing(sqlite3.connect(new, isolation_level=None)) as connection:
            for statement in (*_DURABLE, "BEGIN IMMEDIATE", *_SCHEMA.values()):
                connection.execute(statement)
            connection.execute("INSERT INTO ledger VALUES (?, ?)", (written, _sha256(written)))
            for name, value in (("application_id", _APPLICATION), ("user_version", _VERSION)):
                connection.execute(f"PRAGMA {name} = {value}")
            connection.execute("COMMIT")
        # Unlike renaming, this fails if a file has the name.
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        for name in (f"{new}-journal", new):
            with suppress(FileNotFoundError):
                os.unlink(name)
    flush_name(path)


def _only_name(path: str) -> os.stat_result:
    """Return the status of a file; refuse one with several names, since each name may have its own journal."""
    try:
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            # Whoever made it has not yet removed its first name, or was killed before.
            for name in glob.glob(f"{glob.escape(path)}.*{_NEW}"):
                with suppress(FileNotFoundError):
                    if os.path.samestat(found, os.stat(name)):
                        os.unlink(name)
            found = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no ledger file {path!r}. If it is gone, restore it; a new one would forget what was spent"
        ) from None
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise ValueError(
            f"path must be the ledger file's only name, but {path!r} is hard-linked: a crash under one name leaves a "
            "journal that the other does not find. Remove the others; a symbolic link is no harm"
        )
    return found


def _run(path: str, cursor: sqlite3.Cursor, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Execute a statement, waiting while another process has the lock that it needs."""
    ends = time.monotonic() + _PATIENCE
    while True:
        with _said(path):
            try:
                return cursor.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                    raise
        time.sleep(_PAUSE)


@contextmanager
def _said(path: str) -> Iterator[None]:
    """Name the file and the kind of error when SQLite raises one."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise TimeoutError(
                f"the ledger file {path!r} stayed locked: by another process, which has stopped in the midst of a "
                "step, or since its file system has no locks"
            ) from error
        if code not in _SYSTEM:
            raise ValueError(
                f"{path!r} is not an intact {_KIND} file. It may be another file, truncated, damaged or edited; "
                f"restore the latest copy, nothing in it was used: {error}"
            ) from error
        number = errno.EISDIR if os.path.isdir(path) else _SYSTEM[code]
        raise OSError(number, f"{os.strerror(number)} (SQLite: {error})", path) from error


#: What the system has refused, by SQLite's codes; a journal that cannot be made is one that cannot be opened.
_SYSTEM = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_PROTOCOL: errno.EIO,
    sqlite3.SQLITE_NOLFS: errno.EFBIG,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}


def _code(error: sqlite3.Error) -> int:
    """Return an error's primary code; 0 where it is none of SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def _well_formed(path: str) -> Iterator[None]:
    """Name the file when its content is not well-formed."""
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path!r} is not a valid {_KIND} file, nothing in it was used: {error}") from error


def _limits(budget: Privacy, described: dict[str, Any] | None) -> Filter:
    return Filter.basic(budget) if described is None else Filter.from_dict(budget, described)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _intact(content: str, sha256: str, number: str = "") -> Any:
    """Return a row's content, after checking that it is unchanged since it was written."""
    if not isinstance(content, str) or _sha256(number + content) != sha256:
        raise ValueError("a checksum does not match its row")
    return from_json(content)


@lru_cache(1 << 14)  # reading all of a ledger again finds most entries as they were
def _entry(number: int, content: str, sha256: str, adjacency: Adjacency) -> Entry:
    return Entry.from_dict(_intact(content, sha256, f"{number} "), adjacency)
