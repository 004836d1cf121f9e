"""A ledger in plain words, for readers who do not know what epsilon is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpfast.ledger.entries import Entries
from dpfast.ledger.sums import Taken, promised, remaining, spent
from dpfast.privacy import Unit
from dpfast.privacy.filters import Filter
from dpfast.privacy.guarantee import Privacy

_NEIGHBOURS = {
    "replace_one": "one person's record is replaced by any other; the number of people is public",
    "add_remove": "one person's record comes or goes; the number of people is private",
}
_SUBJECTS = {
    "replace_one": "what a person's record says",
    "add_remove": "whether a person's record is in the table, and what it says,",
}
_UNITS = {
    "row": "a row of the table that was fitted: of a panel a donor, of trajectories one of them",
    "person": "a person, with all of their rows",
}
_VOID = "no guarantee: what follows voids that of all releases together"


def report_lines(limits: Filter, unit: Unit | None, entries: Entries) -> Iterator[str]:
    """Say what a ledger has promised, spent and recorded."""
    releases, unit, budget = list(enumerate(entries.releases, start=1)), unit or entries.unit, limits.budget
    costs = spent(entries, limits)
    yield "Privacy report"
    yield f"  neighbours   {_NEIGHBOURS[budget.adjacency]}"
    if unit is not None:
        yield f"  unit         {_UNITS[unit]}"
    for name, sum_of in (("budget", budget), ("spent", costs), ("remaining", remaining(entries, limits))):
        yield f"  {name:12} epsilon {sum_of.epsilon:.6g}, delta {sum_of.delta:.6g}"
    yield from _sum_lines(Taken.of(entries.values(), limits))
    yield "  meaning      " + (plain_words(costs) if promised(entries, limits) == costs else _VOID)
    for number, release in releases:
        if not release.guaranteed:
            yield f"  but          release {number}: its printed calibration does not give what it claims"
        elif release.reproducible:
            yield f"  but          release {number}: its noise came from a seed: its guarantee is void, for anybody"
    for entry in entries.values():
        if entry.held:
            ended = ", which has ended: forfeit it or give it back" if entry.holder.ended() else ""
            yield f"  reserved     {entry.privacy}, at {entry.since} by {entry.holder}{ended}"
        elif not entry.releases:
            yield f"  forfeited    {entry.privacy}, reserved at {entry.since} by {entry.holder}"
    yield f"  releases     {len(releases)}"
    yield from (f"  [{number}] {release.summary()}" for number, release in releases)


def _sum_lines(taken: Taken) -> Iterator[str]:
    """Say what is taken of the limits, by what is spent and what is reserved."""
    own, plain, gaussian = taken
    if own.gaussian is None or gaussian is None:
        yield "  composition  basic: epsilons add up, and deltas"
        return
    yield "  composition  gaussian: all that is released keeps to one of these limits, fixed when the ledger was made"
    for name, sums, most in (("plain sums", plain, own.plain), ("Gaussian", gaussian, own.gaussian)):
        square = f"mu^2 {float(sums.square):.4g} of {most.mu**2:.4g}, " if most.mu else ""
        of_epsilon = f"epsilon {sums.epsilon_up:.6g} of {most.epsilon:.6g}"
        passed = "" if sums.within(most) else ": passed"
        yield f"    {name:11}  {square}{of_epsilon}, delta {float(sums.delta):.4g} of {most.delta:.4g}{passed}"


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
