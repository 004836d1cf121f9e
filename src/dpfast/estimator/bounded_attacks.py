"""Attacks on counts of people by size and on stages, when the attacker knows everybody but one person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claimed, claims, sum_attack
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.mechanism import Mechanism
from dpfast.statistics.sizes import Sizes, size_counts


def counts_attacks(
    what: str,
    new: Callable[..., Any],
    sizes: Sizes,
    privacy: Privacy,
    *,
    outcomes: tuple[Any, Any] = (0.5, 3.0),
) -> Iterator[Attack]:
    """Attack the counts that an estimator finds bounds by, under every claim.

    ``new(**claim)`` returns it; the person has the first outcome, or the second in their place.
    """
    for claim in claims(privacy):
        people = [(np.full(2, size), outcome) for size, outcome in zip((0.5, 3.0), outcomes, strict=True)]
        chosen = [people[:1], people[1:]] if claim.adjacency == "replace_one" else [people, people[:1]]
        tables = [(np.array([x for x, _ in rows]), np.array([y for _, y in rows])) for rows in chosen]
        yield _attack(what, new(**claimed(claim)), sizes, tables)


def _attack(what: str, estimator: Any, sizes: Sizes, tables: list[tuple[Any, Any]]) -> Attack:
    exact = [
        size_counts(io.open_table(x, y if sizes.outcomes else None), sizes).to_float64().ravel() for x, y in tables
    ]
    return sum_attack(f"counts by size, {what}", estimator, lambda one: estimator.fit(*tables[one]).releases_[0], exact)


def summed_stages(
    mechanism: Mechanism[Any], data: Sequence[Any], releases: tuple[Release, ...], chosen: Callable[[str], bool]
) -> Iterator[tuple[Release, list[FloatArray]]]:
    """Yield the release of every chosen stage, and its sums on either table.

    An attacker knows that, as it depends on earlier releases alone.
    """
    stages = mechanism.stages()
    stage = next(stages)
    for release in releases:
        if chosen(stage.name):
            yield release, [stage.statistic(one).to_float64() for one in data]
        if release is not releases[-1]:
            stage = stages.send(release)


def along_stages(stages: Iterator[tuple[Release, list[FloatArray]]], at: int) -> tuple[FloatArray, FloatArray]:
    """Return the noise of stages in units of what differs, and how much differs in units of recorded noise.

    Where nothing differs, noise tells nothing: 0.
    """
    seen, apart = [], []
    for release, sums in stages:
        moved = sums[1] - sums[0]
        length = float(np.linalg.norm(moved))
        seen.append(float(np.sum((release.values["sum"] - sums[at]) * moved)) / length**2 if length > 0.0 else 0.0)
        apart.append(length / release.scales["sum"])
    return np.array(seen), np.array(apart)
