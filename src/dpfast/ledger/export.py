"""Ledgers as events of Google's dp-accounting package, whose numerical accountants may compose them more tightly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpfast._optional import optional
from dpfast.ledger.entries import Entries
from dpfast.privacy.pure import range_mu

if TYPE_CHECKING:
    from dpfast.privacy.guarantee import Privacy


def composed_event(entries: Entries) -> Any:
    """Return a ledger's entries as one ``ComposedDpEvent``; see `Ledger.to_dp_accounting`."""
    dp_accounting = optional("dp_accounting", "to_dp_accounting")
    events = []
    for entry in entries.values():
        if entry.releases:
            events += [_cost_event(dp_accounting, release.promised, release.mu) for release in entry.releases]
        else:
            events.append(_cost_event(dp_accounting, entry.promised))
    return dp_accounting.ComposedDpEvent(events)


def _cost_event(dp_accounting: Any, cost: Privacy, mu: float | None = None) -> Any:
    """Return the event of a release that is mu-GDP, or of which only its (epsilon, delta) is known."""
    if math.isinf(cost.epsilon):
        return dp_accounting.NonPrivateDpEvent()
    if mu is None and cost.delta > 0.0:
        return dp_accounting.UnsupportedDpEvent()
    # The accountants agree on what a multiplier means only under their default relation: there it is 1/mu.
    multiplier = 1.0 / (range_mu(2.0 * cost.epsilon) if mu is None else mu)
    return dp_accounting.GaussianDpEvent(math.nextafter(multiplier, 0.0))
