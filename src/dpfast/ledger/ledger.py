"""The Ledger: a budget, the costs spent of it, the reservations that pay for fits, and the sum of all guarantees.

What is kept, and how costs are added up, is in dpfast.ledger.entries.

*A reservation* is the part of the budget that pays for one release or fit, from before it reads any data. It is *drawn*
from just before the first bit of noise is requested under it. Until then, leaving it gives its cost back. From then on
nothing does. Whether and how a fit fails after a draw depends on the noise, so a refund would let anybody ask again
without end. The releases made are then on record and the rest of the cost is forfeited. The error raised is the same
whatever went wrong. So the draw is charged, and everything seen of it is post-processing.

*The ledger of a block of code.* ``with ledger:`` pays for fits that are given no ledger. It holds for code in the
block's own context (contextvars): the thread that entered it, and the asyncio tasks made there. Fits in another thread
may be of other people. While some block is open, such a fit is refused, since a fit that no ledger counts would be
worse. A block must be left in the context that entered it. It cannot be entered in a generator: a generator suspended
in a block would leave its ledger to pay for its caller's fits. Estimators pickled unfitted in the block, as by joblib
for worker processes, take the ledger along, if it is a ledger file.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from dpfast import _arguments as check
from dpfast import _transaction as transaction
from dpfast._documents import card, printed, verbatim
from dpfast.ledger import entries as sums
from dpfast.ledger.entries import Draft, DrawnError, Entry, MemoryStorage, Process, Release, Totals, now, unit_value
from dpfast.ledger.report import IF_BEFOREHAND, composed_event, report_lines
from dpfast.plotting import budget_spent
from dpfast.privacy import Unit, compose_mu, keeps_to, range_mu
from dpfast.privacy.composition import Filter, Split
from dpfast.privacy.guarantee import Privacy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from dpfast.ledger.file import LedgerFile


#: How a ledger adds guarantees up.
Accounting = Literal["gaussian", "basic"]


class Costed(Protocol):
    """An estimator, as far as a ledger needs to know: the cost of a fit."""

    def _cost(self) -> tuple[Privacy, float | None]: ...


class BudgetExceeded(ValueError):
    """A release would cost more than the ledger has left; nothing was spent.

    In searches and cross-validations scikit-learn turns any error in a fit into a score of NaN, with a warning
    (`sklearn.exceptions.FitFailedWarning`). Give them ``error_score="raise"``.
    """


class Ledger:
    """The budget of one table of people: everything released about them is recorded and added up here.

    A release is paid for in two steps. Its cost is reserved before any data is read, and committed when its noise has
    been drawn. A fit that fails in between gives its reservation back. Clones and copies of an estimator share its
    ledger, in any number of threads. An in-memory ledger does not travel to other processes, where copies could each
    spend the whole budget.

    A ledger with a `path` is a file, shared by every process that opens it. It pickles, and works in forked and spawned
    processes. Each step is one transaction: locked, checksummed, and on disk before it returns, so a crash loses
    nothing of the sum spent. Releases read from the file come without their values. A reservation stays counted if its
    process dies, since its noise may have been seen, until somebody who knows settles it (see `abandoned`).

    By "gaussian" composition a ledger admits many more fits than plain sums of epsilons and deltas do: ten at (0.1,
    1e-7) cost 0.204 at a delta of 1e-4. It keeps the sum of squares of mu of Gaussian releases, and beside it sums for
    the others (`split`). All releases together are within those limits, or within plain sums. The budget holds however
    costs are chosen, also in view of earlier releases [1]_.

    ``with ledger:`` makes it pay for all fits in the block that have no ledger of their own; of nested blocks the
    innermost one pays. Threads started in the block do not inherit it, and are refused fits without a ledger. A block
    must be left where it was entered, and cannot be entered in a generator.

    Parameters
    ----------
    budget : Privacy
        All that may ever be spent.
    path : path-like, optional
        The ledger's file, a database of SQLite. It is made if it does not exist; if it does, its budget must be
        `budget`. While a step is written, and after a crash until the next step, ``path-journal`` lies beside it: the
        two belong together. The file is the only memory of what was spent: do not restore an older copy of it, and
        give it no second name: symbolic links are followed, a hard-linked file is refused.
    composition : {"gaussian", "basic"}, optional
        How guarantees add up: by default "gaussian", or as it was for a file that exists. By "basic" composition the
        budget is the plain sum of epsilons, and of deltas.
    split : Split, optional
        The limits of "gaussian" composition, as shares of the budget, fixed when the ledger is made. By default plain
        sums have half of delta; non-Gaussian releases, beside the Gaussian ones, have a tenth of epsilon and of
        delta. If a first reservation is within the budget but not within these limits, the ledger turns to plain sums.
    unit : {"row", "person"}, optional
        Whose data all guarantees are for, by default the unit of the first reservation. Guarantees for rows do not add
        up with those for persons with several rows. A "row" is a row of the fitted tables (a donor of a panel, one
        trajectory of trajectories). A "person" is a group of rows, as given by `groups`. One ledger is for one table of
        people, each of them one row or one group. Its owner has to know which rows belong to the same person.

    Raises
    ------
    ValueError, TypeError, OSError
        If an argument is not of its kind. If the file is damaged, is no ledger, is hard-linked, has another budget,
        composition, split or unit, or cannot be read or made; it is then left as it is.

    References
    ----------
    .. [1] Smith, A., Thakurta, A. (2022). Fully adaptive composition for Gaussian differential privacy. The proof, with
       what is not Gaussian, is in `dpfast.privacy.composition`.

    Examples
    --------
    >>> from dpfast import Ledger, Privacy
    >>> ledger = Ledger(Privacy(1.0, 1e-6))
    >>> with ledger.reserve(Privacy(0.25)) as reservation:
    ...     ledger.remaining.epsilon
    0.75
    >>> ledger.remaining.epsilon
    1.0
    """

    def __init__(
        self,
        budget: Privacy,
        path: str | os.PathLike[str] | None = None,
        *,
        composition: Accounting | None = None,
        split: Split | None = None,
        unit: Unit | None = None,
    ) -> None:
        if not isinstance(budget, Privacy):
            raise TypeError(
                f"budget must be a dpfast.Privacy, such as Privacy(2.0, 1e-5), got a {type(budget).__name__}; "
                "Ledger.open(path) opens a ledger that exists"
            )
        limits = _limits(budget, composition, split)
        self._budget = budget
        # Callback that learns of each release as soon as it is made: that of the payer, if this ledger is of a single
        # fit.
        self._on_release: Callable[[Release], None] | None = None
        self._unit = None if unit is None else unit_value(unit)
        self._storage: MemoryStorage | LedgerFile = MemoryStorage(limits) if path is None else _file(path, limits)
        self._check_limits(limits, is_asked=composition is not None or split is not None)
        if unit is not None:
            self._check_unit(self._storage.totals(), unit)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing ledger file, whatever its budget is; none is made.

        Raises
        ------
        ValueError, TypeError, OSError
            As for `Ledger`, and if there is no such file.
        """
        from dpfast.ledger.file import LedgerFile

        return cls(LedgerFile.budget_of(check.real_path("path", path)), path)

    @property
    def budget(self) -> Privacy:
        """All that may ever be spent."""
        return self._budget

    @property
    def path(self) -> str | None:
        """The ledger's file; None for a ledger in memory."""
        return self._storage.path

    @property
    def composition(self) -> Accounting:
        """How guarantees add up: "gaussian", or "basic" where only their plain sums do."""
        return "gaussian" if self._limits.gaussian is not None else "basic"

    @property
    def spent(self) -> Privacy:
        """Sum of all committed costs, as if they had been decided beforehand: a measure of use, not a guarantee.

        This is their plain sum. By "gaussian" composition it is the epsilon at the budget's delta, if smaller. If a
        cost was chosen in view of earlier results, the true cost may exceed this sum; `promised` holds in any case.
        """
        return sums.spent(self._storage.read(), self._limits)

    @property
    def costs(self) -> tuple[Privacy, ...]:
        """The committed costs, one by one, in the order of reservation."""
        return tuple(entry.privacy for entry in self._storage.read().spent)

    @property
    def spending(self) -> tuple[Privacy, ...]:
        """`spent` as it was after each of the committed costs, in the order of reservation."""
        return tuple(sums.spending(self._storage.read(), self._limits))

    @property
    def promised(self) -> Privacy:
        """Guarantee of all releases together, however their costs were chosen.

        It is the guarantee of the limits in force: the budget, as soon as something is drawn. Its epsilon is infinite
        once a seed, or a printed calibration, has voided a release.
        """
        return sums.promised(self._storage.read(), self._limits)

    def plot(
        self, *, ax: Axes | None = None, title: str | None = None, label: str | None = None, unit: str | None = None
    ) -> Axes:
        """Plot the spending, fit after fit, against the budget.

        Parameters
        ----------
        ax, title, label, unit
            As for `dpfast.plotting.budget_spent`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> from dpfast import Ledger, Privacy
        >>> Ledger(Privacy(1.0, 1e-6)).plot(title="Budget of 2026").get_title()
        'Budget of 2026'
        """
        return budget_spent(self, ax, title=title, label=label, unit=unit)

    @property
    def unit(self) -> Unit | None:
        """Whose data all guarantees are for; None until a reservation or the caller has set it."""
        return self._unit or self._storage.totals().unit

    @property
    def remaining(self) -> Privacy:
        """The most that one more release of any kind may cost.

        By "basic" composition this is the budget minus the costs spent and reserved. By "gaussian" composition more is
        left for Gaussian releases; `affords` counts them.
        """
        return sums.remaining(self._storage.totals(), self._limits)

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every recorded release, oldest first; those of a ledger file have shapes in place of their values."""
        return self._storage.read().releases

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations held at the moment, by any thread or process, oldest first."""
        entries = self._storage.read().items()
        return tuple(Reservation(self, entry, number) for number, entry in entries if entry.held)

    @property
    def abandoned(self) -> tuple[Reservation, ...]:
        """Reservations whose process has ended: it was killed, or the machine restarted.

        They stay counted until they are settled by `Reservation.forfeit`. If nothing drawn under one has left the dead
        process, `Reservation.give_back` may settle it instead. A process of another machine or container never counts
        as ended; its reservations are among `reservations`.
        """
        return tuple(reservation for reservation in self.reservations if reservation.abandoned)

    @transaction.entered
    def reserve(
        self, privacy: Privacy, *, unit: Unit = "row", random_state: int | None = None, mu: float | None = None
    ) -> Reservation:
        """Hold a cost before data is read.

        An interrupt just after this call, before its value is used, leaves the cost reserved and among `reservations`.
        `reserving` has no such moment.

        Parameters
        ----------
        privacy : Privacy
            The whole cost of the release to come, under the ledger's adjacency.
        unit : {"row", "person"}, default "row"
            Whose data it is for: the ledger's unit.
        random_state : int, optional
            The seed that the noise will come from, if it comes from one. It buys no guarantee, and a second release of
            the same seed would let anybody subtract the noise: a ledger takes each seed once.
        mu : float, optional
            Gaussian-differential-privacy parameter of all releases to come, if it is known beforehand. By "gaussian"
            composition the reservation then costs no delta. `commit` checks releases against it.

        Returns
        -------
        Reservation
            To be committed with the releases it pays for, or given back; leaving it as a context manager gives it back.

        Raises
        ------
        BudgetExceeded
            If less than that is left.
        ValueError, TypeError, OSError
            If the adjacency or the unit is not the ledger's, the seed has been used, or the file is damaged or cannot
            be written.
        """
        return self.reserving(privacy, unit=unit, random_state=random_state, mu=mu)

    def reserving(
        self, privacy: Privacy, *, unit: Unit = "row", random_state: int | None = None, mu: float | None = None
    ) -> Reservation:
        """Prepare a reservation: ``with`` makes it, and gives it back if it is not committed, whatever interrupts it.

        The errors that `reserve` raises for a ledger's state are raised by ``with``.
        """
        if not isinstance(privacy, Privacy):
            raise TypeError(f"privacy must be a dpfast.Privacy, got a {type(privacy).__name__}")
        if privacy.adjacency != self.budget.adjacency:
            raise ValueError(
                f"adjacency must be the ledger's, {self.budget.adjacency!r}, got {privacy.adjacency!r}: "
                "guarantees under different adjacencies do not add up. Fit everything with the ledger's, or keep "
                f"a ledger of Privacy(epsilon, delta, {privacy.adjacency!r})"
            )
        mark = None
        if random_state is not None:
            mark = self._storage.seed_mark(check.integer_of_at_least("random_state", random_state, 0))
        mu = check.optional(check.positive, "mu", mu)
        return Reservation(self, Entry(privacy, Process.here(), now(), unit=unit_value(unit), seed=mark, mu=mu))

    def affords(self, cost: Privacy | Costed, *, mu: float | None = None) -> int:
        """Count how many more releases of one cost could be reserved now, one after the other.

        Parameters
        ----------
        cost : Privacy or estimator
            Cost of each of them; an estimator stands for the cost of a fit.
        mu : float, optional
            As for `reserve`; an estimator knows its own.

        Returns
        -------
        int
            Their number; ``sys.maxsize`` if the budget has no end.

        Examples
        --------
        >>> from dpfast import Ledger, MultiOutcomeRidge, Privacy
        >>> model = MultiOutcomeRidge(0.1, 1e-7, bound_x=1.0, bound_y=1.0)
        >>> [Ledger(Privacy(1.0, 1e-4), composition=name).affords(model) for name in ("gaussian", "basic")]
        [121, 10]
        """
        if not isinstance(cost, Privacy):
            if mu is not None or not hasattr(cost, "_cost"):
                raise TypeError(f"cost must be a dpfast.Privacy or an estimator, got a {type(cost).__name__}")
            cost, mu = cost._cost()
        entry = self.reserving(cost, mu=mu)._entry
        return sums.affords(self._storage.totals(), self._limits, entry.privacy, entry.mu)

    def _hold(self, reservation: Reservation) -> None:
        privacy, mark = reservation.privacy, reservation._entry.seed
        with self._storage.transaction() as draft:
            self._check_unit(draft.totals, reservation._entry.unit)
            entry = sums.admitted(draft.totals, self._limits, reservation._entry)
            if entry is None:
                left = sums.remaining(draft.totals, self._limits)
                ended = any(holder.ended() for holder in draft.holders())
                raise BudgetExceeded(
                    f"a release at epsilon {privacy.epsilon!r}, delta {privacy.delta!r} was requested, but the ledger "
                    f"has epsilon {left.epsilon!r}, delta {left.delta!r} left; nothing was spent"
                    + (_ASK_FOR_BASIC if sums.fits_plainly(draft.totals, self._limits, privacy) else "")
                    + ("; a process that has ended still holds budget: see ledger.abandoned" if ended else "")
                )
            if mark is not None and draft.has_seed(mark):
                raise ValueError(
                    "random_state must be a seed that this ledger has not seen: noise of one seed cancels between two "
                    "releases. Leave it None, as for any release that is to be private; clones that are meant to be "
                    "alike need a ledger each"
                )
            number = draft.hold(entry)
            # Set before the entry is written: after an interrupt right then, it must be known which entry to give back.
            reservation._entry = _claims[self._claim(number)] = entry
            reservation._number = number

    def spend(self, release: Release) -> None:
        """Reserve and commit a release's own cost, its ``privacy`` and ``mu``, for mechanisms made elsewhere.

        Raises BudgetExceeded if less than that is left; the release is then not recorded.
        """
        check.instance("release", release, Release, "a dpfast.Release")
        # A printed calibration that misses its claim is counted at its claim.
        mu = release.mu if release.guaranteed else None
        with self.reserving(release.privacy, unit=release.unit, mu=mu) as reservation:
            reservation.commit(release)

    def to_dp_accounting(self) -> Any:
        """Export the ledger as a ``ComposedDpEvent`` of the dp-accounting package; its sums may be tighter.

        There is one event for each release:

        - Gaussian, if the release is Gaussian-differentially private;
        - Gaussian, with a guarantee no stronger than the release's, if it is purely private;
        - non-private, if it has no guarantee;
        - unsupported, so that accountants refuse it, if it is approximately private and none of the above.

        A reserved or forfeited cost is exported as such. Releases of disjoint parts of the rows are exported as if they
        were of the same people, so accountants find more than was spent. An event's noise multiplier is relative to the
        most that one person can move under the ledger's own adjacency: use accountants with their default neighbouring
        relation.
        """
        return composed_event(self._storage.read())

    def summary(self) -> DataFrame:
        """Tabulate the releases; `report` describes their joint guarantee in words.

        Returns
        -------
        pandas.DataFrame
            One row per release, in the order of payment. Columns ``name``; ``mechanism``; ``epsilon`` and ``delta`` of
            the calibration; ``guarantee``, in words (void if the noise came from a seed); ``unit``; ``time``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        from dpfast.io.summaries import tabulated

        releases = self.releases
        columns = {name: [getattr(one, name) for one in releases] for name in ("name", "mechanism")}
        columns |= {name: [getattr(one.privacy, name) for one in releases] for name in ("epsilon", "delta")}
        columns |= {name: [getattr(one, name) for one in releases] for name in ("guarantee", "unit", "time")}
        return tabulated({"release": range(1, len(releases) + 1)}, columns)

    def report(self) -> str:
        """Describe the guarantee, the sum spent and the releases in plain words: lines of public numbers only."""
        # A release's name comes from its maker, and must not read like a line of the ledger.
        return "\n".join(map(printed, report_lines(self._limits, self._unit, self._storage.read())))

    def __enter__(self) -> Self:
        refuse_generator(sys._getframe(1))
        _open[Block(self)] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self)

    @property
    def _limits(self) -> Filter:
        return self._storage.limits

    def _check_limits(self, requested: Filter, *, is_asked: bool) -> None:
        """Refuse limits that differ from those of the file."""
        if is_asked and requested != self._limits:
            raise ValueError(
                f"composition and split must be those of the ledger file {self.path!r}, {self.composition!r} and fixed "
                "when it was made: leave both out"
            )

    def _check_unit(self, totals: Totals, unit: Unit) -> None:
        """Refuse to add up guarantees for rows with those for persons."""
        for own in (self._unit, totals.unit):
            if own not in (None, unit):
                raise ValueError(
                    f"unit must be the ledger's, {own!r}, got {unit!r}: guarantees for single rows and for persons who "
                    "own several rows do not add up. Fit everything with groups and max_rows, [people] in a job "
                    "(max_rows=1 where each person has one row), or everything without; or keep one ledger for rows "
                    "and one for persons"
                )

    def _mark_drawn(self, number: int) -> None:
        with self._storage.transaction() as draft:
            draft.mark_drawn(number)

    def _commit(self, number: int, releases: tuple[Release, ...]) -> None:
        with self._storage.transaction() as draft:
            _check_paid(releases, draft.held(number))
            _spend(draft, number, releases)
        _claims.pop(self._claim(number), None)

    def _forfeit_rest(self, number: int, releases: tuple[Release, ...]) -> None:
        """Commit the releases made before a failure, or nothing if they were not reserved; once."""
        with self._storage.transaction() as draft:
            entry = draft.find(number)
            if entry is None or not entry.held:
                return
            try:
                _check_paid(releases, entry)
            except (TypeError, ValueError):
                releases = ()
            _spend(draft, number, releases)
        _claims.pop(self._claim(number), None)

    def _give_back(self, number: int, reservation: Reservation) -> None:
        with self._storage.transaction() as draft:
            entry = draft.find(number)
            is_its = not reservation._is_own or _claims.get(self._claim(number)) is reservation._entry
            if is_its and entry is not None and entry.held:
                draft.give_back(number)
        if is_its:
            _claims.pop(self._claim(number), None)

    def _claim(self, number: int) -> tuple[object, int]:
        return self.path or id(self._storage), number

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def _repr_html_(self) -> str:
        """Show the report."""
        title, _, lines = self.report().partition("\n")
        return card(title, verbatim(lines))

    def __repr__(self) -> str:
        entries = self._storage.read()
        spent = sums.spent(entries, self._limits)
        return (
            f"Ledger(spent epsilon {spent.epsilon:.6g} of {self.budget.epsilon:.6g}, delta {spent.delta:.6g} of "
            f"{self.budget.delta:.6g}, {IF_BEFOREHAND}; {len(entries.releases)} releases)"
        )


_ASK_FOR_BASIC = (
    "; epsilons and deltas add up to no more than the budget: a ledger that is made with composition='basic' has all "
    "of it for plain sums"
)

# What this process reserved last under a number of a ledger, until it is settled. A reservation that was interrupted
# before it was written leaves its number to the next, and must not give that one back.
_claims: dict[tuple[object, int], Entry] = {}


def paying(ledger: Ledger | None, privacy: Privacy) -> Ledger:
    """Return the ledger that pays: the given one, the one of the block of code, or a new one for this fit alone."""
    own = ledger_of_block() if ledger is None else ledger
    return Ledger(privacy, composition="basic") if own is None else own


def _limits(budget: Privacy, composition: Accounting | None, split: Split | None) -> Filter:
    if composition is not None:
        check.choice("composition", composition, get_args(Accounting))
    if split is not None:
        check.instance("split", split, Split, "a dpfast.ledger.Split")
    if composition == "basic":
        if split is not None:
            raise ValueError('split goes with composition="gaussian": plain sums have all of the budget')
        return Filter.basic(budget)
    return Filter.split(budget, Split() if split is None else split)


def _file(path: object, limits: Filter) -> LedgerFile:
    # Imported when it is used: most ledgers are in memory.
    from dpfast.ledger.file import LedgerFile

    # By its resolved path: a link, if replaced, would no longer lead to this file.
    return LedgerFile.create(check.real_path("path", path), limits)


def _spend(draft: Draft, number: int, releases: tuple[Release, ...]) -> None:
    """Record the releases that a reservation paid for, with the time of the reservation."""
    since = draft.held(number).since
    for release in releases:
        object.__setattr__(release, "time", since)
    draft.spend(number, releases)


def _check_paid(releases: tuple[Release, ...], entry: Entry) -> None:
    """Refuse releases with a cost, adjacency or unit other than the reserved one."""
    cost = entry.privacy
    for release in releases:
        if not isinstance(release, Release):
            raise TypeError(f"releases must be of type dpfast.Release, got {type(release).__name__}")
        if release.privacy.adjacency != cost.adjacency:
            raise ValueError(f"a release under {release.privacy.adjacency!r} was reserved under {cost.adjacency!r}")
        if release.unit != entry.unit:
            raise ValueError(f"a release for a {release.unit} was reserved for a {entry.unit}")
        # No ledger could open a file with a record that cannot be read again.
        paid = release.privacy
        if not (paid.epsilon > 0.0 and 0.0 <= paid.delta < 1.0):  # a sum of guarantees
            Privacy(paid.epsilon, paid.delta, paid.adjacency)
        sums.checked_fields(vars(release).__getitem__)
    for part in {release.part for release in releases} or {None}:
        own = [release for release in releases if release.part in (None, part)]
        _check_kept(own, cost)
        if entry.mu is not None and compose_mu([_mu_of(one) if one.mu is None else one.mu for one in own]) > entry.mu:
            raise ValueError(f"the releases cost more than the reserved mu of {entry.mu!r}")


def _check_kept(releases: list[Release], cost: Privacy) -> None:
    """Refuse releases above the reserved cost, counting together those that may all have seen the same person.

    Parts of the rows that were split without looking at them are of different people. Given the split, one person is in
    one part. The releases of the other parts are the same with and without that person's record. So this person's
    guarantee is the one of the releases of that part and of all rows together. The law of the split is the same for
    neighbouring tables, and a mixture over splits of pairs that are (epsilon, delta)-indistinguishable is so too. The
    reservation therefore need cover only the most that any part costs, not the sum over parts.
    """
    if len(releases) == 1 and releases[0].privacy == cost:
        return
    # Of many the sum is told to be more without exact fractions.
    is_more = math.fsum([release.privacy.epsilon for release in releases]) > 2.0 * cost.epsilon
    if not is_more and sums.within([release.privacy for release in releases], cost):
        return
    # Gaussian releases of one joint calibration cost less together than their sum; the other costs are added to them.
    if not (_compose(releases, cost) or _compose(releases, cost, with_pure=False)):
        raise ValueError(f"the releases cost more than the reserved {cost}")


def _compose(releases: list[Release], cost: Privacy, *, with_pure: bool = True) -> bool:
    """Whether releases are within a cost: some by their mus, the others by the sums of their epsilons and deltas.

    Those by their mus are all that have one, or of these the Gaussian ones.

    The order of the releases does not matter: trade-off functions compose by a product that commutes, adaptively too
    (Dong, Roth, Su 2022, Theorem 3.2). So those with a mu are one Gaussian release beside the others. Picks of a range,
    beside Gaussian releases, compose by `dpfast.privacy.picks_delta`, which also holds for every order.
    """
    chosen: list[Release] = []
    others: list[Release] = []
    for release in releases:
        is_joint = release.mu is not None and (with_pure or release.privacy.delta > 0.0)
        (chosen if is_joint else others).append(release)
    epsilon = cost.epsilon - math.fsum([one.privacy.epsilon for one in others])
    delta = cost.delta - math.fsum([one.privacy.delta for one in others])
    if not (epsilon > 0.0 and delta > 0.0):
        return False
    rest = Privacy(epsilon, delta, cost.adjacency)
    ranges = [None if release.log_range is None else _range_of(release) for release in chosen]
    return keeps_to([release.privacy for release in chosen], [release.mu for release in chosen], rest, ranges)


def _range_of(release: Release) -> float | None:
    """Return the range of a pick; None if the release is not a pick by its other costs."""
    length, mu = release.log_range, release.mu
    if length is None or mu is None or release.privacy.delta > 0.0:
        return None
    return length if release.privacy.epsilon <= length and mu <= range_mu(length) else None


def _mu_of(release: Release) -> float:
    """Return the mu of a release without one: that of its range if it is pure, else infinite."""
    is_pure = release.privacy.delta == 0.0 and math.isfinite(release.privacy.epsilon)
    return range_mu(2.0 * release.privacy.epsilon) if is_pure else math.inf


class PaidFailure(RuntimeError):
    """A fit or release failed after noise had been drawn for it: its cost is spent, and its releases are on record.

    The error is the same for every reason, and none is chained: how a fit fails after a draw depends on the noise
    drawn. If a model has all its releases, its `complete` finishes it and spends nothing.
    """


_SENTENCE = (
    "this failed after noise had been drawn: its cost is spent, and what was released is among the ledger's releases "
    "(or all of it stays held, if the ledger cannot be written); what failed is not said, as it depends on what was "
    "drawn"
)
_paid_failure = partial(PaidFailure, _SENTENCE)


class Reservation(transaction.AtomicContext["Reservation"]):
    """Part of a ledger's budget, held while a release is made: committed once, or given back.

    As a context manager it gives back an uncommitted cost, whatever was raised, as long as nothing was drawn under it.
    After a draw it commits the releases made, forfeits the rest, and raises `PaidFailure` in place of any error;
    interrupts are raised anew. In a forked copy of the process that holds it, it can be neither drawn under nor
    committed, and is not given back.
    """

    def __init__(self, ledger: Ledger, entry: Entry, number: int | None = None) -> None:
        super().__init__()
        self._ledger = ledger
        self._entry = entry
        self._number = number
        self._is_own = number is None
        self._process = os.getpid()
        self._added: tuple[Release, ...] = ()
        self._settled = False

    @property
    def privacy(self) -> Privacy:
        """The cost held."""
        return self._entry.privacy

    @property
    def since(self) -> str:
        """When it was made (ISO 8601, UTC): the recorded time of all releases that it pays for."""
        return self._entry.since

    @property
    def number(self) -> int | None:
        """Its number in the ledger, never used for another; None before it is made."""
        return self._number

    @property
    def holder(self) -> str:
        """Description of the process that made it."""
        return str(self._entry.holder)

    @property
    def unit(self) -> Unit:
        """Whose data it is held for."""
        return self._entry.unit

    @property
    def abandoned(self) -> bool:
        """Whether the process that made the reservation has certainly ended."""
        return self._entry.holder.ended()

    @property
    def drawn(self) -> bool:
        """Whether noise may have been drawn under it; it can then not be given back."""
        return self._entry.drawn or self.sealed is not None

    def draw(self) -> None:
        """Mark it as drawn, durably: to be called before the first bit of noise is requested under it.

        `noise.SecureSource` calls this if it is given the reservation. Further calls have no effect.

        Raises
        ------
        ValueError
            If the reservation is no longer open.
        RuntimeError
            In a forked copy of the process.
        OSError
            If the mark cannot be written; nothing may be drawn then.
        """
        if self.sealed is None or self._settled or os.getpid() != self._process:
            self._ledger._mark_drawn(self._number_here())
            self.sealed = _paid_failure

    def add(self, release: Release) -> None:
        """Put a release on record, whatever happens next; if this fails later, it is committed as it is now."""
        object.__setattr__(release, "time", self._entry.since)
        self._added = (*self._added, release)
        if self._ledger._on_release is not None:
            self._ledger._on_release(release)

    def commit(self, *releases: Release) -> None:
        """Turn the reservation into spent budget, recorded by its releases: by default those added.

        Together they cost no more than the cost held, under its adjacency and for its unit. The releases counted
        together are those of all rows with those of any one part (`Release.part`). Their time is set to that of the
        reservation: the time of the commitment would reveal how long the data took to read.

        Raises
        ------
        ValueError, TypeError
            If the reservation is no longer open, or an argument is not a release.
        RuntimeError
            In a forked copy of the process.
        """
        self._ledger._commit(self._number_here(), releases or self._added)
        self._settled = True

    def forfeit(self) -> None:
        """Count the reservation as spent for good, though nothing records its releases.

        For a reservation whose process ended before it committed: its noise may have been drawn, and seen.
        """
        self.commit()

    def give_back(self) -> None:
        """Return the budget to the ledger; no effect once committed.

        Raises
        ------
        ValueError
            If noise was drawn under it, in this process or the one that made it.
        """
        if os.getpid() == self._process and self._number is not None and not self._settled:
            self._ledger._give_back(self._number, self)
            self._settled = True

    def _open(self) -> Reservation:
        if self._number is None:
            self._ledger._hold(self)
        return self

    def _close(self) -> None:
        if self.sealed is None:
            try:
                self.give_back()
            except DrawnError:
                # The mark was written, and an interrupt came before this object knew.
                self.sealed = _paid_failure
        if self.sealed is not None and not self._settled and os.getpid() == self._process:
            self._ledger._forfeit_rest(self._number_here(), self._added)
            self._settled = True

    def _number_here(self) -> int:
        """Return its number; refuse any process but the one that may use it."""
        if os.getpid() != self._process:
            raise RuntimeError("this reservation was made in another process: use it there")
        if self._number is None:
            raise ValueError("this reservation is not made before `with` has entered it")
        return self._number

    def __repr__(self) -> str:
        entry = self._entry
        ended = ", which has ended" if self.abandoned else ""
        return f"Reservation({entry.privacy}; by {entry.holder}{ended}, {entry.since})"


class Block:
    """A block of code that has been entered, with the ledger for its fits."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.process = os.getpid()
        self.token = _own.set((*_own.get(), self))


_own: ContextVar[tuple[Block, ...]] = ContextVar("blocks", default=())
# Those of users, in all threads. Additions and removals of a dict's keys are atomic.
_open: dict[Block, None] = {}


def leave_block(ledger: Ledger) -> None:
    """Leave the innermost block, which must be of this ledger and have been entered in this context."""
    own = _own.get()
    try:
        if not own or own[-1].ledger is not ledger:
            raise ValueError("it is not the innermost block")
        _own.reset(own[-1].token)
    except ValueError as error:
        raise RuntimeError(
            "a block `with ledger:` must be left in the thread and task that entered it, after all blocks within it: "
            "it stays open, and its ledger pays for what is fitted where it was entered"
        ) from error
    _open.pop(own[-1], None)


def refuse_generator(frame: FrameType | None) -> None:
    """Refuse a frame that can be suspended while its caller goes on."""
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    if frame is not None and frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
        raise RuntimeError(
            "`with ledger:` cannot be entered in a generator: while that is suspended, the ledger would pay for what "
            "its caller fits. Enter it around the loop that runs the generator, or give estimators ledger=..."
        )


@contextmanager
def apart(ledger: Ledger) -> Iterator[None]:
    """Let a ledger pay for code within a call, without making other threads name a ledger meanwhile."""
    Block(ledger)
    try:
        yield
    finally:
        leave_block(ledger)


def ledger_of_block() -> Ledger | None:
    """Return the ledger of the innermost block; None outside of any."""
    own = _own.get()
    if own:
        return own[-1].ledger
    # A list is made by one call of C; a forked child has none of its parent's other threads.
    if any(block.process == os.getpid() for block in list(_open)):
        raise RuntimeError(
            "a ledger pays for a block of code in another thread, and none for this one: give estimators ledger=..., a "
            "ledger file, Ledger(budget, path), where worker processes fit; enter `with ledger:` in this thread, "
            "or run what it does by contextvars.copy_context().run"
        )
    return None
