"""Ledgers as events of Google's dp-accounting package, whose numerical accountants may compose them more tightly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpfast import _arguments as check
from dpfast.ledger.entries import Entries
from dpfast.privacy.rounding import ROUND_UP

if TYPE_CHECKING:
    from dpfast.privacy.guarantee import Privacy


def pure_mu(epsilon: float) -> float:
    """Return the mu for which every epsilon-differentially private mechanism is mu-Gaussian-differentially private.

    With c = 1/(1 + exp(epsilon)), the trade-off function of an epsilon-DP mechanism is at least the polygon from
    (0, 1) over (c, c) to (1, 0) [1]_. That of mu-GDP is convex, has the same ends and passes through
    (Phi(-mu/2), Phi(-mu/2)); so it lies below the polygon if Phi(-mu/2) = c.

    Rounded up; about 1.2533 epsilon where that is small.

    .. [1] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. Section 2.
    """
    from scipy.special import erfinv, ndtri_exp

    epsilon = check.positive("epsilon", epsilon)
    if epsilon < 1.0:
        # erf(mu/sqrt(8)) = 1 - 2c, without the cancellation of quantiles near one half.
        return float(math.sqrt(8.0) * erfinv(math.tanh(epsilon / 2.0))) * ROUND_UP
    # log(c), without the underflow of c.
    return float(-2.0 * ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * ROUND_UP


def composed_event(entries: Entries) -> Any:
    """Return a ledger's entries as one ``ComposedDpEvent``; see `Ledger.to_dp_accounting`."""
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError("dp-accounting is not installed: pip install 'dpfast[accounting]'") from error
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
    multiplier = 1.0 / (pure_mu(cost.epsilon) if mu is None else mu)
    return dp_accounting.GaussianDpEvent(math.nextafter(multiplier, 0.0))
