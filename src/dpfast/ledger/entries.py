"""Entries of a ledger, each held or spent: the records of their releases, their storage, and their sums.

The record of a release is that of one joint calibration: the released arrays, their guarantee and their noise.

A storage, behind one transaction, is in memory or in a file (ledger.file). It gives snapshots, and drafts that are kept
only if the transaction ends without an error. The ledger's rules are written once, against this interface
(ledger.ledger). An entry names the process that holds it, so that one can ask whether this process has ended.

The ledger's limits decide how the costs of entries are added up (privacy.composition). By "basic" composition (epsilon,
delta) add up, which holds for any mechanisms, chosen adaptively [1]_. By "gaussian" composition releases are within a
second set of limits, or else within the plain one. Epsilons and deltas are summed as the decimal numbers that floats
print as. A sum may pass a limit by one part in 2^40, so that shares computed in floating point use up the limit
exactly. Calibrations aim below their target by as much (`Privacy.target`), so the promise is kept to the last digit.
Squares of mu are summed exactly and may pass nothing.

*The first reservation.* As long as a ledger has no entry, nothing has been released, and its limits may still be
chosen. If neither set has room for a first cost within the budget, the ledger turns to plain sums of the whole budget.
From then on no entry has a place in the Gaussian sums, until there is no entry again. The missing places tell every
later sum that only plain sums are kept.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self, get_args

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast._documents import abbreviated, array_from_lists, array_to_lists, card, caution, facts, grid, verbatim
from dpfast.privacy import compose_mu
from dpfast.privacy.composition import Charge, Filter, Sums, mixture_epsilon, plain_charge
from dpfast.privacy.guarantee import Adjacency, Calibration, Privacy, Unit, down
from dpfast.privacy.subsampling import sample_sizes

_UNITS, _CALIBRATIONS = get_args(Unit), get_args(Calibration)


def now() -> str:
    """Return the time as records state it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def unit_value(value: object) -> Unit:
    """Return "row" or "person"."""
    unit: Unit = check.choice("unit", value, _UNITS)  # type: ignore[assignment]
    return unit


#: What checks the fields of a release that are read from a record, beside privacy, values and their shapes: those that
#: every one has, of a type or among some words without a call, those that may be None, and the numbers of mappings.
_FIELDS: Mapping[str, tuple[type, Callable[[str, Any], Any]]] = {
    "name": (str, check.text),
    "mechanism": (str, check.text),
    "guaranteed": (bool, check.boolean),
    "reproducible": (bool, check.boolean),
    "time": (str, check.text),
}
_WORDS: Mapping[str, tuple[str, ...]] = {"calibration": _CALIBRATIONS, "unit": _UNITS}
_OPTIONAL: Mapping[str, Callable[[str, Any], Any]] = {
    "mu": check.positive,
    "sample": lambda _, value: sample_sizes(*value),
    "part": check.text,
    "log_range": check.positive,
}
_MAPPINGS: Mapping[str, Callable[[str, Any], Any]] = {"scales": check.nonnegative, "grid": check.positive}


def checked_fields(field: Callable[[str], Any]) -> dict[str, Any]:
    """Return the fields of a release, each checked; most are known without a call."""
    fields: dict[str, Any] = {}
    for name, (kind, accepted) in _FIELDS.items():
        value = field(name)
        fields[name] = value if type(value) is kind else accepted(name, value)
    for name, words in _WORDS.items():
        value = field(name)
        fields[name] = value if type(value) is str and value in words else check.choice(name, value, words)
    for name, accepted in _OPTIONAL.items():
        value = field(name)
        is_told = value is None or (type(value) is float and accepted is check.positive and 0.0 < value < math.inf)
        fields[name] = value if is_told else accepted(name, value)
    for name, accepted in _MAPPINGS.items():
        own = fields[name] = {}
        for key, value in field(name).items():
            own[key] = value if type(value) is float and 0.0 < value < math.inf else accepted(key, value)
    shapes = fields["shapes"] = {}
    for key, value in field("shapes").items():
        shapes[key] = tuple(value)
    return fields


def guarantee_of(releases: Sequence[Release], privacy: Privacy) -> str:
    """Return the guarantee of releases with this joint cost: no more than that of the weakest of them."""
    spoilt = [one for one in releases if one.reproducible or not one.guaranteed]
    return replace([*spoilt, *releases][0], privacy=privacy).guarantee


def header_of(releases: Sequence[Release], privacy: Privacy, **said: Any) -> dict[str, Any]:
    """Return the header of tables made from releases, with further facts."""
    costs = {"epsilon": privacy.epsilon, "delta": privacy.delta, "adjacency": privacy.adjacency}
    return costs | {"guarantee": guarantee_of(releases, privacy)} | said


def guarantee_html(releases: Sequence[Release], privacy: Privacy) -> str:
    """Return the same guarantee as HTML, with emphasis if there is none."""
    said = guarantee_of(releases, privacy)
    return facts([("guarantee", said)]) if said == str(privacy) else caution(f"Guarantee: {said}")


def _costs(release: Release) -> tuple[str, str, str]:
    mark = "" if release.promised == release.privacy else "void" if release.guaranteed else "claim not reached"
    return f"{release.privacy.epsilon:.6g}", f"{release.privacy.delta:.3g}", mark


def releases_html(releases: Sequence[Release], most: int = 12) -> str:
    """Tabulate releases, the last of many."""
    first = max(0, len(releases) - most)
    rows = [
        (number, abbreviated(one.name), one.mechanism, one._noise_scales or "none of public size", *_costs(one))
        for number, one in enumerate(releases[first:], start=first + 1)
    ]
    left_out = facts([("", f"and {first} before these")]) if first else ""
    return left_out + grid(("", "release", "noise", "scale", "epsilon", "delta", ""), rows)


@dataclass(frozen=True, eq=False)
class Release:
    """One joint calibration of noise and the arrays released under it; immutable.

    Everything in it is public: the arrays have their noise, the rest are functions of public numbers.

    Parameters
    ----------
    name, mechanism : str
        What was released, in words, and the law of the noise.
    privacy : Privacy
        Guarantee that the noise of all the arrays together was calibrated for, and its cost to a ledger. `promised`
        says whether the guarantee holds.
    values : mapping of str to ndarray
        The released arrays; copied (unless they are read-only and own their memory) and made read-only.
    scales : mapping of str to float
        Noise scale of each array (a standard deviation for Gaussian noise), in the array's units.
    mu : float, optional
        Gaussian-differential-privacy parameter of the release, where its noise is Gaussian or of a bounded range.
    grid : mapping of str to float, optional
        The public power of two that each array was rounded to.
    calibration : {"sound", "paper"}
        Whether the scale is the proved one or the printed one.
    guaranteed : bool
        False if the printed calibration does not meet its claim: `privacy` is then the unmet claim.
    reproducible : bool
        True if the noise came from a seed, which voids the guarantee, for anybody: from two releases of one seed the
        noise can be subtracted without knowing it.
    time : str
        When the budget for it was reserved (ISO 8601, UTC), set by the ledger; until then, when it was made. The
        difference is the time that reading the data took, and depends on the data.
    shapes : mapping of str to tuple of int, optional
        Shape of each array; to be given only if the values are not kept, as in a ledger's file.
    sample : tuple of int, optional
        Number of rows in the secret sample that the array "xx" was summed over, and of all rows; None without a sample.
    unit : {"row", "person"}, default "row"
        Whose data `privacy` protects. A "row" is a row of the fitted table (a donor of a panel, one trajectory of
        trajectories). A "person" is all rows of one person, as given by `groups`.
    part : str, optional
        Which of the disjoint parts of the rows it was made from, if the split did not look at the rows
        (`dpfast.select`). Among the releases of one reservation, those of different parts are of different people.
    log_range : float, optional
        Length of an interval that contains all log likelihood ratios between neighbouring tables, for picks composed by
        this length (`dpfast.privacy.picks_delta`).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import Privacy, Release
    >>> release = Release("a mean", "Gaussian", Privacy(1.0, 1e-6), {"mean": np.array([0.5])}, {"mean": 0.1})
    >>> release.values["mean"].flags.writeable
    False
    """

    name: str
    mechanism: str
    privacy: Privacy
    values: Mapping[str, NDArray[Any]]
    scales: Mapping[str, float]
    mu: float | None = None
    grid: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration = "sound"
    guaranteed: bool = True
    reproducible: bool = False
    time: str = field(default_factory=now)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sample: tuple[int, int] | None = None
    unit: Unit = "row"
    part: str | None = None
    log_range: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, Privacy):
            raise TypeError(f"privacy must be a dpfast.Privacy, got a {type(self.privacy).__name__}")
        values: dict[str, NDArray[Any]] = {}
        shapes = {} if self.values else dict(self.shapes)
        for key, value in self.values.items():
            # A read-only array that owns its memory was handed over: a large one need not be held twice.
            kept = isinstance(value, np.ndarray) and (flags := value.flags).owndata and not flags.writeable
            values[key] = held = value if kept else np.array(value)
            held.setflags(write=False)
            shapes[key] = held.shape
        own, view = vars(self), MappingProxyType
        own["values"], own["shapes"] = view(values), view(shapes)
        own["scales"], own["grid"] = view(dict(self.scales)), view(dict(self.grid))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle; the constructor rebuilds it, and with it the read-only arrays.
        fields = (getattr(self, name) for name in self.__dataclass_fields__)
        return type(self), tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in fields)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return f"Release({self.name!r}: {shapes}; {self.privacy})"

    def _repr_html_(self) -> str:
        said = guarantee_html([self], self.privacy)
        return card(f"Release: {self.name}", said, verbatim(f"{self!r}\n{self.summary()}"))

    @property
    def _noise_scales(self) -> str:
        return ", ".join(f"{name} {scale:.4g}" for name, scale in self.scales.items())

    @property
    def promised(self) -> Privacy:
        """The guarantee as a number: `privacy`, or an infinite epsilon if it is void or was not reached."""
        if self.guaranteed and not self.reproducible:
            return self.privacy
        return Privacy.of_sum(math.inf, self.privacy.delta, self.privacy.adjacency)

    @property
    def guarantee(self) -> str:
        """The guarantee of this release, in one line."""
        if math.isinf(self.privacy.epsilon):
            return "none: exact, no noise"
        if not self.guaranteed:
            return f"none: the printed calibration does not reach its claim of {self.privacy}"
        if self.reproducible:
            return f"void: the noise came from a seed; it was calibrated for {self.privacy}"
        return str(self.privacy)

    def summary(self) -> str:
        """Return a line for a report."""
        noise = f"{self.mechanism} noise{f', scale {self._noise_scales}' if self.scales else ''}"
        if self.sample is not None:
            noise += "; xx of a secret sample of {:,} of {:,} rows".format(*self.sample)
        if self.unit == "person":
            noise += "; for a person's rows together"
        if self.part is not None:
            noise += f"; of the {self.part} part of the rows"
        return f"{self.time}  {self.name}: {noise}; calibration {self.calibration}; guarantee: {self.guarantee}"

    def to_dict(self, *, values: bool = True) -> dict[str, Any]:
        """Return plain Python numbers and lists, ready for JSON, with or without the released arrays.

        "epsilon" is the one of `promised`, so infinite if a seed or a printed calibration voids the guarantee.
        "calibrated_epsilon" is that of `privacy`.
        """
        plain = ("name", "mechanism", "unit", "guarantee", "guaranteed", "calibration", "reproducible", "mu", "time")
        record = {
            **{name: getattr(self, name) for name in plain},
            "epsilon": self.promised.epsilon,
            "delta": self.privacy.delta,
            "adjacency": self.privacy.adjacency,
            "calibrated_epsilon": self.privacy.epsilon,
            "scales": dict(self.scales),
            "grid": dict(self.grid),
            "sample": None if self.sample is None else list(self.sample),
            "part": self.part,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }
        if self.log_range is not None:
            record["log_range"] = self.log_range
        if values:
            record["dtypes"] = {name: array.dtype.str for name, array in self.values.items()}
            record["values"] = {name: array_to_lists(array) for name, array in self.values.items()}
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Release:
        """Return the release that `to_dict` described, to the bit; without values if it was described without them."""
        try:
            given = {"log_range": None} | dict(record)  # which is left out where there is none
            fields = checked_fields(given.__getitem__)
            release = cls(
                privacy=Privacy(record["calibrated_epsilon"], record["delta"], record["adjacency"]),
                values={
                    name: array_from_lists(name, lists, record["dtypes"][name], fields["shapes"][name])
                    for name, lists in record.get("values", {}).items()
                },
                **fields,
            )
            stated = Privacy(record["epsilon"], record["delta"], record["adjacency"])
        except (KeyError, AttributeError) as error:
            raise ValueError("this is not the record of a release: a part is missing or not a mapping") from error
        if stated != release.promised:
            raise ValueError("this is not the record of a release: it states an epsilon that is not its own")
        return release


@dataclass(frozen=True)
class Process:
    """One process, distinguished from every other that had or will have its number.

    On systems without /proc a process is identified by its number alone. An ended process then appears to be running if
    its number was reused.
    """

    host: str  # name of the machine; machines that share a file must have different names
    namespace: int  # of process numbers, which differs between containers; 0 where there is none
    boot: str  # identifies the machine's uptime; empty where it is not known
    pid: int
    started: int  # in clock ticks of that uptime; 0 where it is not known

    @classmethod
    def here(cls) -> Process:
        """Return the calling process."""
        return _process(os.getpid())

    def ended(self) -> bool:
        """Whether the process has certainly ended; of another machine or container that is never certain."""
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
    # A forked child has another number, so it does not find its parent's cached value.
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
    """An entry that was to be given back had been marked as drawn."""


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
        """Its guarantee: its cost, or an infinite epsilon if a release of it is void (noise from a seed, say)."""
        promises = [release.promised for release in self.releases or ()]
        if self.seed is None and not any(math.isinf(one.epsilon) for one in promises):
            return self.privacy
        return replace(self.privacy, epsilon=math.inf)

    def changed(self, **fields: Any) -> Entry:
        """Return it with other fields, in a fifth of the time of dataclasses.replace."""
        other = object.__new__(Entry)
        vars(other).update(vars(self), **fields)
        return other

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
    """Exact sums of what entries take of a ledger's limits, updated with each entry added or removed."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        costs = list(entries)
        self.count = len(costs)
        self.unplaced = sum(entry.charge is None for entry in costs)  # those that only plain sums are kept of
        self.unit: Unit | None = costs[0].unit if costs else None  # whose data everything is for
        self.plain = Sums([plain_charge(entry.privacy) for entry in costs])
        self.gaussian = Sums([entry.charge for entry in costs if entry.charge is not None])

    def with_one(self, entry: Entry, times: int = 1) -> Totals:
        """Return the totals with an entry added, or removed for ``times=-1``."""
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
        """Whether some entry's noise comes from the seed with this mark."""

    @abstractmethod
    def holders(self) -> list[Process]:
        """Return the processes that hold entries."""

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
        self._set(number, self.held(number).changed(drawn=True))

    def spend(self, number: int, releases: tuple[Release, ...]) -> None:
        """Turn a held entry into a spent one."""
        self._set(number, self.held(number).changed(releases=releases))

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

    The order of commitment is not kept: of two concurrent fits it would reveal which one had less to read.
    """

    def __init__(self, entries: Mapping[int, Entry], next_number: int, totals: Totals) -> None:
        super().__init__(entries)
        self.next_number, self.totals = next_number, totals

    def find(self, number: int) -> Entry | None:
        """Return an entry, if it is there."""
        return self.get(number)

    def has_seed(self, mark: str) -> bool:
        """Whether some entry's noise comes from the seed with this mark."""
        return any(entry.seed == mark for entry in self.values())

    def holders(self) -> list[Process]:
        """Return the processes that hold entries."""
        return [entry.holder for entry in self.values() if entry.held]

    def _set(self, number: int, entry: Entry | None) -> None:
        if entry is None:
            del self[number]
        else:
            self[number] = entry

    @property
    def spent(self) -> list[Entry]:
        """Entries that are spent, not only held."""
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
        self.lock = transaction.ForkSafeLock()
        self._process = os.getpid()

    def read(self) -> Entries:
        """Return a snapshot, not to be changed."""
        return self.entries

    def totals(self) -> Totals:
        """Return the totals of a snapshot."""
        return self.entries.totals

    def seed_mark(self, seed: int) -> str:
        """Return the seed itself: it never leaves the process."""
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


class _MemoryTransaction(transaction.AtomicContext[Entries]):
    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage.lock)
        self._storage = storage

    def _open(self) -> Entries:
        before = self._storage.entries
        self._draft = Entries(before, before.next_number, before.totals)
        return self._draft

    def _keep(self) -> None:
        self._storage.entries = self._draft


class Taken(NamedTuple):
    """The limits in force, and the amount taken of each."""

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
    """Return an entry with its place in the Gaussian sums, if it has one; None if too little is left for it."""
    cost = entry.privacy
    in_force, plain, gaussian = Taken.of(totals, limits)
    plain = plain.with_one(plain_charge(cost))
    if gaussian is not None:
        charge = in_force.place(cost, entry.mu, gaussian)
        if in_force.admits(plain, gaussian.with_one(charge)):
            return entry.changed(charge=charge)
    if (gaussian is None or not totals.count) and limits.whole.admits(plain, None):
        return entry.changed(charge=None)
    return None


def spent(entries: Entries, limits: Filter) -> Privacy:
    """Return the sum of all committed costs, as if they had been decided beforehand.

    This is the plain sum. It is an accountant's epsilon at the budget's delta (privacy.composition) if that is smaller,
    or if the plain sum of deltas exceeds the budget's.
    """
    return _come_to(entries.spent, limits)


def spending(entries: Entries, limits: Filter) -> list[Privacy]:
    """Return the sum spent after each committed cost, in the order of reservation."""
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
    # If the two are about equal, take the requested numbers, provided that their delta is within the budget's.
    is_enough = plain.delta <= Fraction(repr(budget.delta)) and sums.epsilon <= 1.001 * epsilon
    return sums if is_enough else Privacy.of_sum(epsilon, budget.delta, budget.adjacency)


def is_void(entries: Entries) -> bool:
    """Whether some calibrated release has no guarantee, and so all together have none."""
    return any(math.isinf(one.promised.epsilon) and not math.isinf(one.privacy.epsilon) for one in entries.spent)


def promised(entries: Entries, limits: Filter) -> Privacy:
    """Return the guarantee of all releases together, however their costs were chosen: that of the limits in force.

    For any limits this is the budget. It is zero if nothing was drawn; its epsilon is infinite once a release is void.
    """
    budget = limits.budget
    if not any(entry.drawn or not entry.held for entry in entries.values()):
        return Privacy.of_sum(0.0, 0.0, budget.adjacency)
    return Privacy.of_sum(math.inf, budget.delta, budget.adjacency) if is_void(entries) else budget


def remaining(totals: Totals, limits: Filter) -> Privacy:
    """Return the most that one more release of any kind may cost; the whole budget if there is no entry."""
    in_force, plain, gaussian = Taken.of(totals, limits if totals.count else limits.whole)
    return in_force.left(plain, gaussian)


def affords(totals: Totals, limits: Filter, cost: Privacy, mu: float | None) -> int:
    """Return how many more releases of a cost would be admitted."""
    in_force, plain, gaussian = Taken.of(totals, limits)
    more = in_force.more(cost, mu, plain, gaussian)
    return more if more or totals.count else limits.whole.more(cost, mu, plain, None)


def fits_plainly(totals: Totals, limits: Filter, cost: Privacy) -> bool:
    """Whether plain sums of the whole budget admit a further cost."""
    return totals.plain.with_one(plain_charge(cost)).within(plain_charge(limits.budget))


def within(costs: Iterable[Privacy], budget: Privacy) -> bool:
    """Whether plain sums exceed a budget by at most the slack of calibrations."""
    return Sums(list(map(plain_charge, costs))).within(plain_charge(budget))
