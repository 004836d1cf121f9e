"""Guarantees added up.

Releases compose by addition of their (epsilon, delta), which holds for any mechanisms, chosen adaptively [1]_.
Sums are of the decimal numbers that floats print as, and may pass the budget by one part in 2^40, so that shares
computed in floating point use a budget up exactly. Calibrations aim that much below their target (`Privacy.target`), so
what is promised is kept to the last digit.

References
----------
.. [1] Dwork, C., Roth, A. (2014). The Algorithmic Foundations of Differential Privacy, Theorem B.1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from dpfast.ledger.entries import Entries
from dpfast.privacy.guarantee import SLACK, Privacy


def within(costs: Iterable[Privacy], budget: Privacy) -> bool:
    """Whether costs together pass a budget by the slack that calibrations leave, at most."""
    epsilon, delta = _sums(costs)
    return epsilon.within(budget.epsilon) and delta.within(budget.delta)


def spent(entries: Entries, budget: Privacy) -> Privacy:
    """Return the sum of all committed costs."""
    epsilon, delta = _sums(entry.privacy for entry in entries.spent)
    return Privacy.of_sum(float(epsilon), float(delta), budget.adjacency)


def promised(entries: Entries, budget: Privacy) -> Privacy:
    """Return what holds of all releases together: what is spent, or an infinite epsilon once one of them is void."""
    costs = spent(entries, budget)
    if any(math.isinf(entry.promised.epsilon) for entry in entries.spent):
        return Privacy.of_sum(math.inf, costs.delta, costs.adjacency)
    return costs


def remaining(entries: Entries, budget: Privacy) -> Privacy:
    """Return the budget less what is spent and what is reserved."""
    epsilon, delta = _sums(entries.costs)
    return Privacy.of_sum(epsilon.left_of(budget.epsilon), delta.left_of(budget.delta), budget.adjacency)


def _sums(costs: Iterable[Privacy]) -> tuple[_Sum, _Sum]:
    terms = list(costs)
    return _Sum(cost.epsilon for cost in terms), _Sum(cost.delta for cost in terms)


class _Sum:
    """An exact sum of the decimal numbers that floats print as; infinite once an infinite term has been added."""

    def __init__(self, values: Iterable[float]) -> None:
        # Equal terms are added at once: a ledger has many.
        terms = Counter(values)
        self.infinite = terms.pop(math.inf, 0) > 0
        self.exact = sum((Fraction(repr(value)) * count for value, count in terms.items()), Fraction(0))

    def within(self, budget: float) -> bool:
        """Whether the sum passes a budget by the slack that calibrations leave, at most."""
        return budget == math.inf or (
            not self.infinite and self.exact <= Fraction(repr(budget)) * Fraction(1.0 + SLACK)
        )

    def left_of(self, budget: float) -> float:
        """Return what remains of a budget, at least 0."""
        if budget == math.inf:
            return math.inf
        return 0.0 if self.infinite else float(max(Fraction(repr(budget)) - self.exact, Fraction(0)))

    def __float__(self) -> float:
        return math.inf if self.infinite else float(self.exact)
