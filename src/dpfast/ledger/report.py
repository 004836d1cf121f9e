"""A ledger for its readers: in plain words, and as events of Google's dp-accounting package.

The words are for readers who do not know epsilon. The numerical accountants of that package take the events; their
composition may be tighter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dpfast._optional import optional
from dpfast.ledger.entries import Entries, Release, Taken, is_void, promised, remaining, spent
from dpfast.privacy import Unit
from dpfast.privacy.composition import Filter
from dpfast.privacy.guarantee import NEIGHBOURS, UNITS, plain_words, range_mu

if TYPE_CHECKING:
    from dpfast.privacy.guarantee import Privacy

_TOGETHER = "; a fit makes several, which share its cost: their guarantees below do not add up to what was spent"
_STEP = re.compile(r"(.*, step) (\d+)(: .*)")
# Fewer of them are easier to read one by one.
_FEW = 3
#: Printed beside the sum spent.
IF_BEFOREHAND = "if every analysis was decided before the first result was seen"
_VOID = "no guarantee for all releases together, for this reason:"


def report_lines(limits: Filter, unit: Unit | None, entries: Entries) -> Iterator[str]:
    """Yield the lines of a report: what a ledger has promised, spent and recorded."""
    releases, unit = list(enumerate(entries.releases, start=1)), unit or entries.totals.unit
    yield "Privacy report"
    yield "  meaning      " + (_VOID if is_void(entries) else plain_words(promised(entries, limits)))
    for flaw, group in groupby(releases, key=lambda numbered: _flaw(numbered[1])):
        if flaw:
            numbers = [number for number, _ in group]
            yield f"  void         release{_span(numbers)}: {flaw}"
    yield f"  neighbours   {NEIGHBOURS[limits.budget.adjacency]}"
    if unit is not None:
        yield f"  unit         {UNITS[unit]}"
    for name, sum_of, more in (
        ("budget", limits.budget, ""),
        ("promised", promised(entries, limits), "; holds even where an analysis was chosen in view of earlier results"),
        ("spent", spent(entries, limits), f"; {IF_BEFOREHAND}"),
        ("remaining", remaining(entries.totals, limits), ""),
    ):
        yield f"  {name:12} epsilon {sum_of.epsilon:.6g}, delta {sum_of.delta:.6g}{more}"
    yield from _sum_lines(Taken.of(entries.totals, limits))
    for entry in entries.values():
        if entry.held:
            settled = "forfeit it" if entry.drawn else "forfeit it or give it back"
            ended = f", which has ended: {settled}" if entry.holder.ended() else ""
            ended += "; noise was drawn for it" if entry.drawn else ""
            yield f"  reserved     {entry.privacy}, at {entry.since} by {entry.holder}{ended}"
        elif not entry.releases:
            yield f"  forfeited    {entry.privacy}, reserved at {entry.since} by {entry.holder}"
    several = any(len(entry.releases or ()) > 1 for entry in entries.values())
    # Otherwise a reader adds up the lines below, and finds more than was spent.
    yield f"  releases     {len(releases)}{_TOGETHER if several else ''}"
    number = 0
    for entry in entries.values():
        lines = [release.summary() for release in entry.releases or ()]
        for _, alike in groupby(lines, key=lambda line: _STEP.sub(r"\1\3", line)):
            yield from _release_lines(number + 1, steps := list(alike))
            number += len(steps)


def _flaw(release: Release) -> str:
    """Say why a release has no guarantee; an empty text if it has one."""
    if not release.guaranteed:
        return "its printed calibration does not give what it claims"
    return "its noise came from a seed, so that it protects nobody" if release.reproducible else ""


def _span(numbers: Sequence[int]) -> str:
    """Name one release, or several consecutive ones."""
    return f" {numbers[0]}" if len(numbers) == 1 else f"s {numbers[0]} to {numbers[-1]}, each"


def _release_lines(first: int, steps: list[str]) -> Iterator[str]:
    """List releases from a number on, in one line if they differ only in their steps."""
    ends = _STEP.fullmatch(steps[0]), _STEP.fullmatch(steps[-1])
    if len(steps) >= _FEW and ends[0] and ends[1]:
        name, step, rest = ends[0].groups()
        yield f"  [{first}] to [{first + len(steps) - 1}] {name}s {step} to {ends[1][2]}, each{rest}"
    else:
        yield from (f"  [{number}] {line}" for number, line in enumerate(steps, start=first))


def _sum_lines(taken: Taken) -> Iterator[str]:
    """Yield lines on each limit: how much of it is spent and how much reserved."""
    own, plain, gaussian = taken
    if own.gaussian is None or gaussian is None:
        yield "  composition  basic: epsilons add up, and deltas"
        return
    yield "  composition  gaussian: all releases together stay within one of two limits, fixed when the ledger was made"
    for name, sums, most in (("plain sums", plain, own.plain), ("Gaussian", gaussian, own.gaussian)):
        square = f"mu^2 {float(sums.square):.4g} of {most.mu**2:.4g}, " if most.mu else ""
        of_epsilon = f"epsilon {sums.epsilon_up:.6g} of {most.epsilon:.6g}"
        beyond = "" if sums.within(most) else ": beyond it, so the other one holds"
        yield f"    {name:11}  {square}{of_epsilon}, delta {float(sums.delta):.4g} of {most.delta:.4g}{beyond}"


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
    """Return the event of a release: mu-GDP if mu is given, else of its (epsilon, delta)."""
    if math.isinf(cost.epsilon):
        return dp_accounting.NonPrivateDpEvent()
    if mu is None and cost.delta > 0.0:
        return dp_accounting.UnsupportedDpEvent()
    # The accountants agree on what a multiplier means only under their default relation: there it is 1/mu.
    multiplier = 1.0 / (range_mu(2.0 * cost.epsilon) if mu is None else mu)
    return dp_accounting.GaussianDpEvent(math.nextafter(multiplier, 0.0))
