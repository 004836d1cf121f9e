"""The costs of a ledger's entries, added up as its limits have it (privacy.filters).

By "basic" composition (epsilon, delta) add up, which holds for any mechanisms, chosen adaptively [1]_; by "gaussian"
composition a second set of limits is kept to, or else the plain one. Sums of epsilons and of deltas are of the decimal
numbers that floats print as, and may pass a limit by one part in 2^40, so that shares computed in floating point use it
up exactly. Calibrations aim that much below their target (`Privacy.target`), so what is promised is kept to the last
digit. Squares of mu add up exactly, and pass nothing.

*The first reservation.* As long as a ledger has no entry, nothing has been released, and its limits may still be
chosen: where neither set has room for a first cost that is within the budget, the ledger turns to plain sums of the
whole budget. Every entry then has no place in the Gaussian sums, which says so to whoever adds them up, until there is
no entry again.

References
----------
.. [1] Dwork, C., Roth, A. (2014). The Algorithmic Foundations of Differential Privacy, Theorem B.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from dpfast.ledger.entries import Entries, Entry, Totals
from dpfast.privacy import compose_mu
from dpfast.privacy.filters import Filter, Sums, plain_charge
from dpfast.privacy.guarantee import Privacy
from dpfast.privacy.mixtures import mixture_epsilon
from dpfast.privacy.rounding import down


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
