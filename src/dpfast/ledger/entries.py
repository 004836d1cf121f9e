"""What a ledger adds up: numbered entries, each held or spent; and where they are kept, behind one transaction.

A `Storage` gives snapshots, and drafts that are kept only if the transaction ends without an error. The ledger's rules
are written once against that (privacy.budget), for the memory of one process as for a file that processes share.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, Protocol

from dpfast.kernels import transaction
from dpfast.ledger.process import Holder

if TYPE_CHECKING:
    from dpfast.ledger.release import Release
    from dpfast.privacy import Unit
    from dpfast.privacy.guarantee import Privacy


@dataclass(frozen=True)
class Entry:
    """One cost.

    Parameters
    ----------
    privacy : Privacy
        The cost.
    holder : Holder
        The process that reserved it.
    since : str
        When it did (ISO 8601, UTC).
    releases : tuple of Release or None
        What it paid for; None while it is only held, empty if it was forfeited.
    unit : {"row", "person"}
        Whose data the cost is for.
    seed : str or None
        What is remembered of the seed that its noise comes from, if it comes from one.
    """

    privacy: Privacy
    holder: Holder
    since: str
    releases: tuple[Release, ...] | None = None
    unit: Unit = "row"
    seed: str | None = None

    @property
    def promised(self) -> Privacy:
        """What is promised of it: its cost, or an infinite epsilon where any of its noise came from a seed or so."""
        promises = [release.promised for release in self.releases or ()]
        if self.seed is None and not any(math.isinf(one.epsilon) for one in promises):
            return self.privacy
        return replace(self.privacy, epsilon=math.inf)

    @property
    def held(self) -> bool:
        """Whether it is reserved and not yet spent."""
        return self.releases is None


@dataclass
class Accounts:
    """All entries, in the order in which they were reserved. Numbers are never used twice.

    Not in the order of commitment: of two fits at once, that tells which one had less to read.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    next_number: int = 1

    def hold(self, entry: Entry) -> int:
        """Add an entry and return its number."""
        number = self.next_number
        self.entries[number] = entry
        self.next_number += 1
        return number

    def holds(self, number: int) -> bool:
        """Whether an entry is there and held."""
        return number in self.entries and self.entries[number].held

    def spend(self, number: int, releases: tuple[Release, ...]) -> None:
        """Turn a held entry into a spent one."""
        self.entries[number] = replace(self.entries[number], releases=releases)

    @property
    def unit(self) -> Unit | None:
        """Whose data everything here is for; None as long as there is nothing."""
        return next((entry.unit for entry in self.entries.values()), None)

    def draft(self) -> Accounts:
        """Return a copy to change."""
        return Accounts(dict(self.entries), self.next_number)


class Storage(Protocol):
    """Where accounts are kept."""

    @property
    def path(self) -> str | None:
        """The file, if it is one."""

    def read(self) -> Accounts:
        """Return a snapshot, not to be changed."""

    def seed_mark(self, seed: int) -> str:
        """Return what is remembered of a seed: the same for the same seed, and for no other."""

    def transaction(self) -> AbstractContextManager[Accounts]:
        """Enter with a draft that nobody else can change; it is kept if the block raises nothing."""


class MemoryStorage:
    """Accounts of one process, for any number of its threads."""

    path = None

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.turn = transaction.Turn()
        self._process = os.getpid()

    def read(self) -> Accounts:
        """Return a snapshot, not to be changed."""
        return self.accounts

    def seed_mark(self, seed: int) -> str:
        """Return the seed itself, which never leaves the process that it was given to."""
        return str(seed)

    def transaction(self) -> AbstractContextManager[Accounts]:
        """Enter with a draft that nobody else can change; it is kept if the block raises nothing."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this ledger was made in another process, whose budget a copy would spend again; fit in that process, "
                "or share a ledger file: Ledger(budget, path)"
            )
        return _MemoryTransaction(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an in-memory ledger cannot be pickled: every copy could spend the whole budget; fit in one process, or "
            "share a ledger file: Ledger(budget, path)"
        )


class _MemoryTransaction(transaction.Bracket[Accounts]):
    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage.turn)
        self._storage = storage

    def _open(self) -> Accounts:
        self._draft = self._storage.accounts.draft()
        return self._draft

    def _keep(self) -> None:
        self._storage.accounts = self._draft
