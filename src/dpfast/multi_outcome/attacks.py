"""Attacks on multi-outcome regression: every way in which it releases moments, and the secret sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, SampledShift, claimed, claims, flattened, probe
from dpfast.estimator.bounded_attacks import Rows, Table, counts_attacks, deviations, shifted_attack, stages_attack
from dpfast.multi_outcome.estimator import MultiOutcomeRidge
from dpfast.privacy import Composition, Privacy
from dpfast.statistics.norm_histograms import NormHistograms

# Draws that count how often the sampler takes a given row.
_SAMPLES = 2000
# People who are alike, beside one who is not, and how large their rows and outcomes are.
_USUAL, _SMALL = 4_000, 0.01
# The first steps.
_STEPS = 6
# Rows in the sample, and in all.
_SAMPLED, _ALL = 8, 10


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack every way in which `MultiOutcomeRidge` releases moments."""
    ways = [
        Rows("moments of rows"),
        Rows("moments of rows and their sums", {"fit_intercept": True}),
        Rows("moments of nonnegative rows", {"nonnegative": True}, cosines=np.zeros(1), signs=(1.0,)),
        Rows(
            "moments of rows about the centre of a box",
            {"box_x": (0.0, 2.0), "bound_x": None},
            length=math.sqrt(2.0),
            center=1.0,
            cosines=np.array([-1.0, 1.0]),
        ),
        Rows("moments of rows, a bound for each outcome", {"bound_y": [1.0]}),
        Rows("moments of people's rows", copies=3),
        Rows(
            "moments of people's rows, clipped by person",
            {"block_bounds": (0.5, math.sqrt(2.0 * 0.5))},
            length=math.sqrt(0.25),
            copies=2,
        ),
    ]
    for claim in claims(privacy):
        for way in ways:
            yield _attack(way, claim)
    bounds: dict[str, Any] = {"bound_x": "private", "bound_y": "private", "refine": 0}
    sizes = NormHistograms(rows=True, outcomes=True)
    yield from counts_attacks("rows and outcomes", partial(MultiOutcomeRidge, **bounds), sizes, privacy)
    box: dict[str, Any] = {"bound_x": None, "bound_y": 1.0, "box_x": "private", "refine": 0}
    yield from counts_attacks("entries", partial(MultiOutcomeRidge, **box), NormHistograms(entries=True), privacy)
    projected = {"mechanism": "projection", "public_labels": True}
    for claim in claims(privacy, delta=False):
        yield _attack(Rows("moments of rows, steps left to choose", {"refine": "auto"}), claim)
    for claim in claims(privacy, delta=True):
        yield _refined_attack(claim)
        for composition in get_args(Composition):
            options = {"mechanism": "independent", "composition": composition}
            yield _attack(Rows(f"moments of each outcome, {composition}", options, n_outcomes=2), claim)
        yield _attack(Rows("moments of rows, as printed", {"calibration": "paper"}), claim)
        if claim.adjacency == "replace_one":
            yield _attack(Rows("moments of rows, projection", projected, signs=(1.0,)), claim)
            yield _sampled_attack(claim)


def _attack(rows: Rows, privacy: Privacy) -> Attack:
    options: dict[str, Any] = {
        "bound_x": 1.0,
        "bound_y": 1.0,
        "ridge": 1.0,
        "refine": 0,
        "fit_intercept": False,
        **claimed(privacy),
        **rows.options,
    }
    estimator = MultiOutcomeRidge(**options)

    def arguments(table: Table) -> tuple[Any, ...]:
        owners = np.repeat(np.arange(len(table[0]) // rows.copies), rows.copies)
        return (*table, owners, rows.copies) if rows.copies > 1 else table

    return shifted_attack(rows, privacy.adjacency, estimator, arguments)


def _refined_attack(privacy: Privacy) -> Attack:
    """Attack residual steps: one person's outcome is far from what all others have shown, and beyond every clip.

    An attacker who knows the table knows the sum of every step: it depends on earlier releases alone. In units of the
    clip, neighbours lie 2 apart, or 1 where somebody comes or goes, whatever the clip is. The first steps are attacked:
    their number depends on releases, though hardly where people are so many.
    """
    options: dict[str, Any] = {"bound_x": 1.0, "bound_y": 1.0, "ridge": 1.0, "fit_intercept": False, "n_threads": 1}
    estimator = MultiOutcomeRidge(**options, **claimed(privacy))
    usual = (
        _SMALL * np.tile(np.eye(2), (_USUAL // 2, 1)),
        _SMALL * np.tile([[1.0], [1.0], [-1.0], [-1.0]], (_USUAL // 4, 1)),
    )
    tables = [(np.vstack([usual[0][:1], usual[0]]), np.vstack([[[sign]], usual[1]])) for sign in (1.0, -1.0)]
    if privacy.adjacency == "add_remove":
        tables[1] = usual
    return stages_attack("residual steps", estimator, tables, of="residuals, step", last=_STEPS)


def _sampled_attack(privacy: Privacy) -> Attack:
    """Attack X'X of a secret sample and X'Y of all rows: one person differs from all others, who are alike."""
    rows = Rows("moments of a sample and of all rows")
    estimator = MultiOutcomeRidge(
        bound_x=1.0, bound_y=1.0, ridge=1.0, n_subsample=_SAMPLED, fit_intercept=False, **claimed(privacy)
    )

    def with_others(one: Table, other: Table) -> Table:
        x, y = (np.vstack([first, *[usual] * (_ALL - 1)]) for first, usual in zip(one, other, strict=True))
        return x, y

    alike = rows.tables(1.0, 1.0, "replace_one")[1]
    record = probe(lambda: estimator.fit(*with_others(alike, alike)).releases_[0])
    scales = deviations(record, ("xx", "xy"))
    (one, other), shift = rows.worst_tables("replace_one", record)
    tables = [with_others(other, other), with_others(one, other)]
    centres = [flattened(rows.blocks(other), (name,)) * n for name, n in (("xx", _SAMPLED), ("xy", _ALL))]
    size = len(centres[0])
    # What the one who differs adds to the sums.
    shifts, spreads = np.split(-shift, [size]), np.split(scales, [size])
    along = [moved / spread**2 for moved, spread in zip(shifts, spreads, strict=True)]
    units = [direction / np.linalg.norm(direction) for direction in along]

    def seen(neighbour: bool) -> FloatArray:
        values = estimator.fit(*tables[neighbour]).releases_[0].values
        first, second = (
            float((flattened(values, (name,)) - centre) @ unit)
            for name, centre, unit in zip(("xx", "xy"), centres, units, strict=True)
        )
        # Whether the one who differs was sampled is hidden, and with it the noise in X'X.
        return np.array([math.nan, second - units[1] @ shifts[1]] if neighbour else [first, second])

    (first, second), (scale, other_scale) = (
        [float(unit @ moved) for unit, moved in zip(units, shifts, strict=True)],
        [float(np.linalg.norm(unit * spread)) for unit, spread in zip(units, spreads, strict=True)],
    )
    source = noise.SecureSource()
    hits = sum(bool(np.any(noise.sample_without_replacement(_ALL, _SAMPLED, source) == 0)) for _ in range(_SAMPLES))
    law = SampledShift((first, second), (scale, other_scale), (hits, _SAMPLES))
    return Attack(f"{rows.name}, {privacy.adjacency}", record.privacy, law, seen, (estimator,))
