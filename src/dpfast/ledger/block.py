"""The ledger of a block of code: ``with ledger:`` pays for what is given none.

It holds for what runs in the block's own context (contextvars): the thread that entered it, and the asyncio tasks that
are made there. Another thread does not say whose people it fits; where some block is open it is refused, as a fit that
no ledger counts would be worse. Estimators that are pickled unfitted in the block, as by joblib for worker processes,
take the ledger along, which a ledger file bears.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpfast.ledger.ledger import Ledger


class Block:
    """A block of code that has been entered."""

    def __init__(self, ledger: Ledger | None) -> None:
        self.ledger = ledger
        self.process = os.getpid()


_own: ContextVar[tuple[Block, ...]] = ContextVar("blocks", default=())
# Those of all threads. Additions and removals of a dict's keys are atomic.
_open: dict[Block, None] = {}


def enter(ledger: Ledger | None) -> None:
    """Have a ledger pay from here on; None: none does, whatever is around."""
    block = Block(ledger)
    _open[block] = None
    _own.set((*_own.get(), block))


def leave(ledger: Ledger | None) -> None:
    """Leave the innermost block of a ledger."""
    own = _own.get()
    for index in range(len(own) - 1, -1, -1):
        if own[index].ledger is ledger:
            _open.pop(own[index], None)
            _own.set(own[:index] + own[index + 1 :])
            return


@contextmanager
def apart() -> Iterator[None]:
    """Have no block pay: for fits that are paid for together."""
    enter(None)
    try:
        yield
    finally:
        leave(None)


def ledger_of_block() -> Ledger | None:
    """Return the ledger of the innermost block; None outside of any."""
    own = _own.get()
    if own:
        return own[-1].ledger
    # A list is made by one call of C; a forked child has none of its parent's other threads.
    if any(block.ledger is not None and block.process == os.getpid() for block in list(_open)):
        raise RuntimeError(
            "a ledger pays for a block of code in another thread, and none for this one: give estimators ledger=..., a "
            "ledger file, Ledger(budget, path), where worker processes fit; enter `with ledger:` in this thread, "
            "or run what it does by contextvars.copy_context().run"
        )
    return None
