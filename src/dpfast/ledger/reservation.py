"""A reservation: the part of a ledger's budget that pays for one release or fit, from before it reads any data.

It is *drawn* from just before the first bit of noise is requested under it. Until then, leaving it gives its cost back.
From then on nothing does. Whether and how a fit fails after a draw depends on the noise, so a refund would let anybody
ask again without end. The releases made are then on record and the rest of the cost is forfeited. The error raised is
the same whatever went wrong. So the draw is charged, and everything seen of it is post-processing.

*The ledger of a block of code.* ``with ledger:`` pays for fits that are given no ledger. It holds for code in the
block's own context (contextvars): the thread that entered it, and the asyncio tasks made there. Fits in another thread
may be of other people. While some block is open, such a fit is refused, since a fit that no ledger counts would be
worse. A block must be left in the context that entered it. It cannot be entered in a generator: a generator suspended
in a block would leave its ledger to pay for its caller's fits. Estimators pickled unfitted in the block, as by joblib
for worker processes, take the ledger along, if it is a ledger file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType
from typing import TYPE_CHECKING

from dpfast import _transaction as transaction
from dpfast.ledger.entries import DrawnError

if TYPE_CHECKING:
    from dpfast.ledger.entries import Entry
    from dpfast.ledger.ledger import Ledger
    from dpfast.ledger.release import Release
    from dpfast.privacy import Privacy, Unit


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


class Reservation(transaction.Bracket["Reservation"]):
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
        if self._ledger._told is not None:
            self._ledger._told(release)

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


def enter_block(ledger: Ledger) -> None:
    """Let a ledger pay from here on."""
    _open[Block(ledger)] = None


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
