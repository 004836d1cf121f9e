"""Tables that are read once the fit that they are for has reserved its cost.

Read before, an exhausted ledger would not keep anybody from being told what is wrong with a table, and the time of the
reservation, which is on record, would tell how long reading took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Deferred(NamedTuple):
    """What is given to a fit in the place of a table, or of labels: how they are read."""

    read: Callable[[], Any]


def read_now(table: Any) -> Any:
    """Return a table, or labels: read, if that was deferred."""
    return table.read() if isinstance(table, Deferred) else table
