"""A guarantee in plain words, for readers who do not know what epsilon is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpfast.privacy.guarantee import Privacy

NEIGHBOURS = {
    "replace_one": "one person's record is replaced by any other; the number of people is public",
    "add_remove": "one person's record comes or goes; the number of people is private",
}
_SUBJECTS = {
    "replace_one": "what a person's record says",
    "add_remove": "whether a person's record is in the table, and what it says,",
}
UNITS = {
    "row": "a row of the table that was fitted (in a panel a donor, among trajectories a trajectory)",
    "person": "a person, with all of their rows",
}


def plain_words(cost: Privacy) -> str:
    """Return a guarantee, or a sum of guarantees, as a sentence."""
    if math.isinf(cost.epsilon):
        return "no privacy protection: the results are exact"
    if cost.epsilon == cost.delta == 0.0:
        return "nothing has been released"
    # Rounded up: a promise must not sound better than it is.
    excess = math.expm1(cost.epsilon) if cost.epsilon < 700.0 else math.inf
    factor = f"e^{cost.epsilon:.6g}" if excess > 1e6 else f"{1.0 + _up_to_digits(excess, 3):.10g}"
    sentence = f"{_SUBJECTS[cost.adjacency]} changes the odds of any conclusion by a factor of at most {factor}"
    return sentence if cost.delta == 0.0 else f"{sentence}, except with probability about {cost.delta:.2g}"


def _up_to_digits(value: float, digits: int) -> float:
    """Round a number that is not negative up to some significant digits."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit) * unit
