"""The ledger of a block of code: ``with ledger:`` pays for what is given none.

It holds for what runs in the block's own context (contextvars): the thread that entered it, and the asyncio tasks that
are made there. Another thread does not say whose people it fits; where some block is open it is refused, as a fit that
no ledger counts would be worse. A block is left in the context that entered it, and is not entered in a generator: one
that is suspended in it would leave its ledger to pay for whatever its caller fits. Estimators that are pickled unfitted
in the block, as by joblib for worker processes, take the ledger along, which a ledger file bears.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpfast.ledger.ledger import Ledger


class Block:
    """A block of code that has been entered: who pays for its fits."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.process = os.getpid()
        self.token = _own.set((*_own.get(), self))


_own: ContextVar[tuple[Block, ...]] = ContextVar("blocks", default=())
# Those of users, in all threads. Additions and removals of a dict's keys are atomic.
_open: dict[Block, None] = {}


def enter(ledger: Ledger) -> None:
    """Have a ledger pay from here on."""
    _open[Block(ledger)] = None


def leave(ledger: Ledger) -> None:
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
    """Have a ledger pay for code that is part of a call: no other thread is to say who pays for its fits meanwhile."""
    Block(ledger)
    try:
        yield
    finally:
        leave(ledger)


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
