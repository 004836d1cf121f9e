"""What a ledger adds up: numbered entries, each held or spent; and where they are kept, behind one transaction.

A storage, in memory or a file (ledger.file), gives snapshots, and drafts that are kept only if the transaction ends
without an error. The ledger's rules are written once against that (ledger.ledger).
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast.ledger.process import Process
from dpfast.ledger.release import Release, unit_value
from dpfast.privacy.filters import Charge, Filter, Sums, plain_charge
from dpfast.privacy.guarantee import Adjacency, Privacy

if TYPE_CHECKING:
    from dpfast.privacy import Unit


class DrawnError(ValueError):
    """What was to be given back had been marked as drawn."""


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
    drawn: bool = False  # whether noise may have been drawn under it
    charge: Charge | None = None  # its place in the Gaussian sums, never changed; None where only plain sums are kept

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text, without released values."""
        return {
            "epsilon": self.privacy.epsilon,
            "delta": self.privacy.delta,
            "unit": self.unit,
            "seed": self.seed,
            "mu": self.mu,
            "drawn": self.drawn,
            "charge": None if self.charge is None else list(astuple(self.charge)),
            "since": self.since,
            "holder": asdict(self.holder),
            "releases": None if self.releases is None else [one.to_dict(values=False) for one in self.releases],
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any], adjacency: Adjacency) -> Entry:
        """Return the entry that `to_dict` described."""
        releases = record["releases"]
        return cls(
            Privacy(record["epsilon"], record["delta"], adjacency),
            Process(**record["holder"]),
            check.text("since", record["since"]),
            None if releases is None else tuple(map(Release.from_dict, releases)),
            unit_value(record["unit"]),
            check.optional(check.text, "seed", record["seed"]),
            check.optional(check.positive, "mu", record["mu"]),
            check.boolean("drawn", record["drawn"]),
            None if record["charge"] is None else Charge(*record["charge"]),
        )


class Totals:
    """What entries together take of a ledger's limits: exact, and brought up to date with each that comes or goes."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        costs = list(entries)
        self.count = len(costs)
        self.unplaced = sum(entry.charge is None for entry in costs)  # those that only plain sums are kept of
        self.unit: Unit | None = costs[0].unit if costs else None  # whose data everything is for
        self.plain = Sums([plain_charge(entry.privacy) for entry in costs])
        self.gaussian = Sums([entry.charge for entry in costs if entry.charge is not None])

    def with_one(self, entry: Entry, times: int = 1) -> Totals:
        """Return them with an entry added, or by -1 taken out."""
        more = Totals()
        more.count = self.count + times
        more.unplaced = self.unplaced + times * (entry.charge is None)
        more.unit = entry.unit if more.count else None
        more.plain = self.plain.with_one(plain_charge(entry.privacy), times)
        more.gaussian = self.gaussian if entry.charge is None else self.gaussian.with_one(entry.charge, times)
        return more

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        sums = {"plain": self.plain.to_list(), "gaussian": self.gaussian.to_list()}
        return {"unit": self.unit, "count": self.count, "unplaced": self.unplaced, **sums}

    @classmethod
    def from_dict(cls, written: dict[str, Any]) -> Self:
        """Return the totals that `to_dict` described."""
        totals = cls()
        totals.count, totals.unplaced, totals.unit = (written[name] for name in ("count", "unplaced", "unit"))
        totals.plain, totals.gaussian = Sums.from_list(written["plain"]), Sums.from_list(written["gaussian"])
        return totals


class Draft(ABC):
    """Numbered entries that a transaction may change. Numbers are never used twice."""

    totals: Totals
    next_number: int

    @abstractmethod
    def find(self, number: int) -> Entry | None:
        """Return an entry, if it is there."""

    @abstractmethod
    def has_seed(self, mark: str) -> bool:
        """Whether an entry's noise comes from the seed of which that is remembered."""

    @abstractmethod
    def holders(self) -> list[Process]:
        """Return who holds what is held."""

    @abstractmethod
    def _set(self, number: int, entry: Entry | None) -> None:
        """Write an entry, or remove it."""

    def hold(self, entry: Entry) -> int:
        """Add an entry and return its number."""
        number = self.next_number
        self._set(number, entry)
        self.next_number, self.totals = number + 1, self.totals.with_one(entry)
        return number

    def held(self, number: int) -> Entry:
        """Return an entry that is held; refuse any other number."""
        entry = self.find(number)
        if entry is None or not entry.held:
            raise ValueError("this reservation has already been committed or given back")
        return entry

    def mark_drawn(self, number: int) -> None:
        """Have noise drawn under a held entry: it is not given back."""
        self._set(number, replace(self.held(number), drawn=True))

    def spend(self, number: int, releases: tuple[Release, ...]) -> None:
        """Turn a held entry into a spent one."""
        self._set(number, replace(self.held(number), releases=releases))

    def give_back(self, number: int) -> None:
        """Remove a held entry."""
        entry = self.held(number)
        if entry.drawn:
            raise DrawnError(
                "noise was drawn under this reservation, and may have been seen: it can be forfeited, and not given "
                "back"
            )
        self._set(number, None)
        self.totals = self.totals.with_one(entry, -1)


class Entries(Draft, dict[int, Entry]):
    """All entries by number, in the order in which they were reserved.

    Not in the order of commitment: of two fits at once, that tells which one had less to read.
    """

    def __init__(self, entries: Mapping[int, Entry], next_number: int, totals: Totals) -> None:
        super().__init__(entries)
        self.next_number, self.totals = next_number, totals

    def find(self, number: int) -> Entry | None:
        """Return an entry, if it is there."""
        return self.get(number)

    def has_seed(self, mark: str) -> bool:
        """Whether an entry's noise comes from that seed."""
        return any(entry.seed == mark for entry in self.values())

    def holders(self) -> list[Process]:
        """Return who holds what is held."""
        return [entry.holder for entry in self.values() if entry.held]

    def _set(self, number: int, entry: Entry | None) -> None:
        if entry is None:
            del self[number]
        else:
            self[number] = entry

    @property
    def spent(self) -> list[Entry]:
        """What is no longer only held."""
        return [entry for entry in self.values() if not entry.held]

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every recorded release, oldest first."""
        return tuple(release for entry in self.values() for release in entry.releases or ())


class MemoryStorage:
    """Entries of one process, for any number of its threads."""

    path = None

    def __init__(self, limits: Filter) -> None:
        self.limits = limits
        self.entries = Entries({}, 1, Totals())
        self.turn = transaction.Turn()
        self._process = os.getpid()

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""
        return self.entries

    def totals(self) -> Totals:
        """Return the totals of a snapshot."""
        return self.entries.totals

    def seed_mark(self, seed: int) -> str:
        """Return the seed itself, which never leaves the process that it was given to."""
        return str(seed)

    def transaction(self) -> AbstractContextManager[Draft]:
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
        before = self._storage.entries
        self._draft = Entries(before, before.next_number, before.totals)
        return self._draft

    def _keep(self) -> None:
        self._storage.entries = self._draft
