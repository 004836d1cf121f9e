"""What a ledger adds up: numbered entries, each held or spent; and where they are kept, behind one transaction.

A `Storage` gives snapshots, and drafts that are kept only if the transaction ends without an error. The ledger's rules
are written once against that (ledger.ledger), for the memory of one process as for a file that processes share.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, Protocol

from dpfast.kernels import transaction
from dpfast.ledger.process import Process

if TYPE_CHECKING:
    from dpfast.ledger.release import Release
    from dpfast.privacy import Unit
    from dpfast.privacy.filters import Charge, Filter
    from dpfast.privacy.guarantee import Privacy


@dataclass(frozen=True)
class Entry:
    """One cost."""

    privacy: Privacy
    holder: Process  # which reserved it
    since: str  # when it did (ISO 8601, UTC)
    releases: tuple[Release, ...] | None = None  # what it paid for; None while only held, empty if forfeited
    unit: Unit = "row"  # whose data it is for
    seed: str | None = None  # what is remembered of the seed that its noise comes from, if it comes from one
    mu: float | None = None  # of what is reserved, if it is Gaussian-differentially private
    charge: Charge | None = None  # its place in the Gaussian sums, never changed; None where only plain sums are kept

    @property
    def promised(self) -> Privacy:
        """What is promised of it: its cost, or an infinite epsilon where any of its noise came from a seed or so."""
        promises = [release.promised for release in self.releases or ()]
        if self.seed is None and not any(math.isinf(one.epsilon) for one in promises):
            return self.privacy
        return replace(self.privacy, epsilon=math.inf)

    def at(self, charge: Charge | None) -> Entry:
        """Return it with its place in the Gaussian sums."""
        return replace(self, charge=charge)

    @property
    def held(self) -> bool:
        """Whether it is reserved and not yet spent."""
        return self.releases is None


class Entries(dict[int, Entry]):
    """All entries by number, in the order in which they were reserved. Numbers are never used twice.

    Not in the order of commitment: of two fits at once, that tells which one had less to read.
    """

    def __init__(self, entries: Mapping[int, Entry] | None = None, next_number: int = 1) -> None:
        super().__init__(entries or {})
        self.next_number = next_number

    def hold(self, entry: Entry) -> int:
        """Add an entry and return its number."""
        number = self.next_number
        self[number] = entry
        self.next_number += 1
        return number

    def holds(self, number: int) -> bool:
        """Whether an entry is there and held."""
        return number in self and self[number].held

    def spend(self, number: int, releases: tuple[Release, ...]) -> None:
        """Turn a held entry into a spent one."""
        self[number] = replace(self[number], releases=releases)

    @property
    def spent(self) -> list[Entry]:
        """What is no longer only held."""
        return [entry for entry in self.values() if not entry.held]

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every recorded release, oldest first."""
        return tuple(release for entry in self.values() for release in entry.releases or ())

    @property
    def unit(self) -> Unit | None:
        """Whose data everything here is for; None as long as there is nothing."""
        return next((entry.unit for entry in self.values()), None)

    def draft(self) -> Entries:
        """Return a copy to change."""
        return Entries(self, self.next_number)


class Storage(Protocol):
    """Where entries are kept."""

    @property
    def path(self) -> str | None:
        """The file, if it is one."""

    @property
    def limits(self) -> Filter:
        """The limits on what entries come to, fixed when the ledger was made."""

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""

    def seed_mark(self, seed: int) -> str:
        """Return what is remembered of a seed: the same for the same seed, and for no other."""

    def transaction(self) -> AbstractContextManager[Entries]:
        """Enter with a draft that nobody else can change; it is kept if the block raises nothing."""


class MemoryStorage:
    """Entries of one process, for any number of its threads."""

    path = None

    def __init__(self, limits: Filter) -> None:
        self.limits = limits
        self.entries = Entries()
        self.turn = transaction.Turn()
        self._process = os.getpid()

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""
        return self.entries

    def seed_mark(self, seed: int) -> str:
        """Return the seed itself, which never leaves the process that it was given to."""
        return str(seed)

    def transaction(self) -> AbstractContextManager[Entries]:
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


class _MemoryTransaction(transaction.Bracket[Entries]):
    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage.turn)
        self._storage = storage

    def _open(self) -> Entries:
        self._draft = self._storage.entries.draft()
        return self._draft

    def _keep(self) -> None:
        self._storage.entries = self._draft
