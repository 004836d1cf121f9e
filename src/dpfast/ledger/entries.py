"""What a ledger adds up: numbered entries, each held or spent; where they are kept, behind one transaction; their sums.

A storage, in memory or a file (ledger.file), gives snapshots, and drafts that are kept only if the transaction ends
without an error. The ledger's rules are written once against that (ledger.ledger). An entry says which process holds
it, and whether that is known to have ended.

The costs of entries are added up as the ledger's limits have it (privacy.filters). By "basic" composition (epsilon,
delta) add up, which holds for any mechanisms, chosen adaptively [1]_; by "gaussian" composition a second set of limits
is kept to, or else the plain one. Sums of epsilons and of deltas are of the decimal numbers that floats print as, and
may pass a limit by one part in 2^40, so that shares computed in floating point use it up exactly. Calibrations aim that
much below their target (`Privacy.target`), so what is promised is kept to the last digit. Squares of mu add up exactly,
and pass nothing.

*The first reservation.* As long as a ledger has no entry, nothing has been released, and its limits may still be
chosen: where neither set has room for a first cost that is within the budget, the ledger turns to plain sums of the
whole budget. Every entry then has no place in the Gaussian sums, which says so to whoever adds them up, until there is
no entry again.

References
----------
.. [1] Dwork, C., Roth, A. (2014). The Algorithmic Foundations of Differential Privacy, Theorem B.1.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast.ledger.release import Release, unit_value
from dpfast.privacy import compose_mu
from dpfast.privacy.filters import Charge, Filter, Sums, plain_charge
from dpfast.privacy.guarantee import Adjacency, Privacy
from dpfast.privacy.mixtures import mixture_epsilon
from dpfast.privacy.rounding import down

if TYPE_CHECKING:
    from dpfast.privacy import Unit


@dataclass(frozen=True)
class Process:
    """One process, told apart from every other that had or will have its number.

    Where the system has no /proc, a process is known by its number alone, and one whose number was given to another
    passes for running.
    """

    host: str  # name of the machine; machines that share a file must have different names
    namespace: int  # of process numbers, which differs between containers; 0 where there is none
    boot: str  # identifies the machine's uptime; empty where it is not known
    pid: int
    started: int  # in clock ticks of that uptime; 0 where it is not known

    @classmethod
    def here(cls) -> Process:
        """Return the process that asks."""
        return _process(os.getpid())

    def ended(self) -> bool:
        """Whether it is certain that the process is gone; of another machine or container that is never certain."""
        here = self.here()
        if (self.host, self.namespace) != (here.host, here.namespace):
            return False
        if self.boot != here.boot:
            return True
        if os.name != "posix":
            return False  # where signal 0 is no question
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        state, started = _state(self.pid)
        return state in ("Z", "X") or (bool(started) and started != self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@functools.cache
def _process(pid: int) -> Process:
    # A forked child has another number, so it does not find what its parent's cache holds.
    namespace, boot = 0, ""
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    return Process(platform.node(), namespace, boot, pid, _state(pid)[1])


def _state(pid: int) -> tuple[str, int]:
    """Return a process's state and start, fields 3 and 22 of /proc/PID/stat (proc(5)); empty where hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may itself hold blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "", 0
    return fields[0].decode(), int(fields[19])


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


class Taken(NamedTuple):
    """The limits in force, and what is taken of each."""

    limits: Filter
    plain: Sums
    gaussian: Sums | None

    @classmethod
    def of(cls, totals: Totals, limits: Filter) -> Taken:
        """Compare totals with the limits that are in force."""
        if limits.gaussian is None or totals.unplaced:
            return cls(limits.whole, totals.plain, None)
        return cls(limits, totals.plain, totals.gaussian)


def admitted(totals: Totals, limits: Filter, entry: Entry) -> Entry | None:
    """Return an entry with its place in the Gaussian sums, if it has one; None if there is too little left for it."""
    cost = entry.privacy
    in_force, plain, gaussian = Taken.of(totals, limits)
    plain = plain.with_one(plain_charge(cost))
    if gaussian is not None:
        charge = in_force.place(cost, entry.mu, gaussian)
        if in_force.admits(plain, gaussian.with_one(charge)):
            return replace(entry, charge=charge)
    if (gaussian is None or not totals.count) and limits.whole.admits(plain, None):
        return replace(entry, charge=None)
    return None


def spent(entries: Entries, limits: Filter) -> Privacy:
    """Return what all committed costs come to, had they been decided on beforehand.

    The plain sum, or the epsilon at the budget's delta that an accountant finds (privacy.mixtures) where that
    is less, or the plain sum of deltas more than the budget's.
    """
    return _come_to(entries.spent, limits)


def spending(entries: Entries, limits: Filter) -> list[Privacy]:
    """Return what was spent after each of the committed costs, in the order in which they were reserved."""
    return [_come_to(entries.spent[:count], limits) for count in range(1, len(entries.spent) + 1)]


def _come_to(costs: list[Entry], limits: Filter) -> Privacy:
    budget, plain = limits.budget, Sums([plain_charge(entry.privacy) for entry in costs])
    sums = Privacy.of_sum(plain.epsilon_up, float(plain.delta), budget.adjacency)
    if limits.gaussian is None or plain.infinite:
        return sums
    others = [entry.privacy for entry in costs if entry.mu is None]
    left = Fraction(repr(budget.delta)) - Sums(list(map(plain_charge, others))).delta
    if left <= 0:
        return sums
    mu = compose_mu(entry.mu for entry in costs if entry.mu is not None)
    epsilon = mixture_epsilon(mu, (cost.epsilon for cost in others), down(left))
    # Of two that are about the same, the one with the numbers that were asked for, if its delta is within the budget's.
    asked_for = plain.delta <= Fraction(repr(budget.delta)) and sums.epsilon <= 1.001 * epsilon
    return sums if asked_for else Privacy.of_sum(epsilon, budget.delta, budget.adjacency)


def is_void(entries: Entries) -> bool:
    """Whether a release that was calibrated promises nothing, and with it all together."""
    return any(math.isinf(one.promised.epsilon) and not math.isinf(one.privacy.epsilon) for one in entries.spent)


def promised(entries: Entries, limits: Filter) -> Privacy:
    """Return what holds of all releases together, however their costs were chosen: what the limits in force promise.

    That is the budget, for any limits; nothing where nothing was drawn, and an infinite epsilon once a release is void.
    """
    budget = limits.budget
    if not any(entry.drawn or not entry.held for entry in entries.values()):
        return Privacy.of_sum(0.0, 0.0, budget.adjacency)
    return Privacy.of_sum(math.inf, budget.delta, budget.adjacency) if is_void(entries) else budget


def remaining(totals: Totals, limits: Filter) -> Privacy:
    """Return the most that one more release of any kind may cost; all of the budget where there is no entry."""
    in_force, plain, gaussian = Taken.of(totals, limits if totals.count else limits.whole)
    return in_force.left(plain, gaussian)


def affords(totals: Totals, limits: Filter, cost: Privacy, mu: float | None) -> int:
    """Return how many more releases of a cost would be admitted."""
    in_force, plain, gaussian = Taken.of(totals, limits)
    more = in_force.more(cost, mu, plain, gaussian)
    return more if more or totals.count else limits.whole.more(cost, mu, plain, None)


def fits_plainly(totals: Totals, limits: Filter, cost: Privacy) -> bool:
    """Whether a further cost would keep to plain sums of the whole budget."""
    return totals.plain.with_one(plain_charge(cost)).within(plain_charge(limits.budget))


def within(costs: Iterable[Privacy], budget: Privacy) -> bool:
    """Whether plain sums pass a budget by the slack that calibrations leave, at most."""
    return Sums(list(map(plain_charge, costs))).within(plain_charge(budget))
