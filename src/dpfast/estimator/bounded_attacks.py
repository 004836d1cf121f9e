"""Attacks on counts of people by size and on stages, when the attacker knows everybody but one person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, GaussianShift, claimed, claims, probe, sum_attack
from dpfast.attack.laws import flattened
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.statistics import Gram
from dpfast.statistics.sizes import Sizes, size_counts

# Lengths are rounded to the grid of sums: what differs may be this share shorter. What is as short changes nothing.
_ROUNDED, _NOTHING = 1e-4, 1e-200


def counts_attacks(
    what: str, new: Callable[..., Any], sizes: Sizes, privacy: Privacy, *, outcomes: tuple[Any, Any] = (0.5, 3.0)
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


def stages_attack(
    name: str,
    estimator: Any,
    tables: Sequence[tuple[Any, ...]],
    privacy: Privacy,
    *,
    of: str = "",
    last: int | None = None,
) -> Attack:
    """Attack the releases of a fit whose names begin so, all or the first ones, on a table and its neighbour.

    An attacker who knows the table knows the sum behind every release: it depends on earlier releases alone. The view
    is the noise along what differs, in units of the recorded noise. A sum that the person does not change says nothing.
    """
    source = noise.SecureSource()
    summed = [estimator._sum(privacy, source, *table) for table in tables]

    def fit(neighbour: bool) -> tuple[Release, ...]:
        released: tuple[Release, ...] = estimator.fit(*tables[neighbour]).releases_
        return released

    def along(releases: tuple[Release, ...], at: int) -> tuple[FloatArray, FloatArray]:
        """Return the noise of every release in units of the difference, and the difference in recorded noise."""
        seen, apart, stages = [], [], summed[0].mechanism.stages()
        stage = next(stages)
        for release in releases:
            if stage.name.startswith(of):
                sums = [_in_noise(release, _blocks(stage.statistic(one.statistic))) for one in summed]
                moved = sums[1] - sums[0]
                length = float(np.linalg.norm(moved))
                off = _in_noise(release, release.values) - sums[at]
                seen.append(float(off @ moved) / max(length**2, _NOTHING))
                apart.append(length)
            if len(seen) == last or release is releases[-1]:
                break
            stage = stages.send(release)
        return np.array(seen), np.array(apart)

    releases = probe(lambda: fit(False))
    _, each = along(releases, 0)
    tells = np.flatnonzero(each)
    apart = each[tells]
    law = GaussianShift((1.0 - _ROUNDED) * apart, np.ones(len(apart)), tuple(np.eye(len(apart), dtype=bool)))

    def view(neighbour: bool) -> FloatArray:
        return np.asarray(apart * along(fit(neighbour), int(neighbour))[0][tells])

    record = replace(releases[-1], privacy=privacy)
    return replace(Attack.on(name, record, law, view, estimator), effort=0.25)


def _blocks(exact: Any) -> dict[str, FloatArray]:
    """Return sums by the blocks of their release."""
    if isinstance(exact, Gram):
        sums = exact.exact_x_sum
        return {"xx": exact.xx} | ({} if sums is None else {"x": sums.to_float64()})
    return {"sum": exact.to_float64()}


def _in_noise(release: Release, values: Mapping[str, FloatArray]) -> FloatArray:
    """Return what was summed, or released, in units of the noise in every entry."""
    scales = release.scales
    if "sum" in scales:
        return np.asarray(values["sum"]).ravel() / scales["sum"]
    side = len(values["xx"])
    above = np.full(side * (side - 1) // 2, scales["xx"] * np.sqrt(0.5))
    of_sums = [np.full(side, scales["x"])] if "x" in scales else []
    spread = np.concatenate([np.full(side, scales["xx"]), above, *of_sums])
    return np.asarray(flattened(values, tuple(scales)) / spread)
