"""Attacks on synthetic control: one donor becomes another, as unlike it as the declared bounds allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, View, claimed, claims, probe, shift_law, sum_attack, view_attack
from dpfast.estimator.bounded_attacks import Neighbours, Rows, Table, first_release, shifted_attack, stage_attack
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.moments import unpacked
from dpfast.synthetic_control.estimator import SyntheticControl
from dpfast.synthetic_control.steps import range_counts

# The noise that an output shows: of the fitted model, of its weights, of the sign of the donor's path.
Recovered = Callable[[SyntheticControl, FloatArray, float], FloatArray]

_N_PRE = 4
# Large enough for weights to stay within the L1 ball, whatever the noise in their objective.
_LARGE_RIDGE = 1e5


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack every mechanism of `SyntheticControl`; only "cross_section" has both relations."""
    # Norms of 1 leave a plane's rows room for every angle.
    short: dict[str, Any] = {"row_bound": (1.0, 1.0)}
    ways = [
        Rows("moments of donors", short),
        Rows("moments of donors about a path", short | {"center": 0.0}),
        Rows("moments of nonnegative donors", short | {"nonnegative": True}, cosines=np.zeros(1), signs=(1.0,)),
    ]
    for claim in claims(privacy):
        for way in ways:
            yield _moment_attack(way, claim)
        yield from _step_attacks(claim)
        if claim.adjacency == "replace_one":
            yield _repeated_attack(Rows("moments of donors, repeatedly", short), claim)
            yield _output_attack(claim)
            yield _objective_attack(claim)
    yield _output_attack(Privacy(privacy.epsilon), printed=True)


def _moment_attack(rows: Rows, privacy: Privacy) -> Attack:
    return shifted_attack(rows, privacy.adjacency, SyntheticControl(**claimed(privacy), **rows.options), _panel_of)


def _repeated_attack(rows: Rows, privacy: Privacy) -> Attack:
    """Attack one of repeated releases, which have the sums of a fit."""
    estimator = SyntheticControl(**claimed(privacy), **rows.options)
    tables, _ = rows.worst_tables(privacy.adjacency, first_release(estimator, _panel_of(rows.table)))
    fits = Neighbours(estimator, map(_panel_of, tables))
    query = next(fits.mechanism.stages())

    def view(neighbour: bool) -> View:
        release = estimator.fit_repeatedly(np.hstack(tables[neighbour]), 2, 1)[0].release
        first = {name: value[0] for name, value in unpacked(release.values).items()}
        return fits.view(query, replace(release, values=first), neighbour)

    return view_attack(rows.name, estimator, view)


def _panel_of(table: Table) -> tuple[Any, ...]:
    return _panel(np.hstack(table), 2)


def _panel(donors: FloatArray, n_pre: int) -> tuple[Any, ...]:
    """Return donors as a fit takes them."""
    return (lambda: (io.open_panel(donors, n_pre), None, []),)


def _step_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack the mean path with a donor at one end of the range, then at the other; counts by one long, then short."""
    others = np.full((1, _N_PRE + 1), 0.01)

    def panels(*values: float) -> list[FloatArray]:
        here, there = (np.vstack([others, np.full(_N_PRE + 1, value)]) for value in values)
        return [here, others if privacy.adjacency == "add_remove" else there]

    ends, sizes, claim = panels(1.0, -1.0), panels(1.0, 0.1), claimed(privacy)
    declared, found = SyntheticControl(**claim), SyntheticControl(bound="private", **claim)
    yield _step_attack("mean path of donors", SyntheticControl(row_bound=None, center="private", **claim), ends)
    yield _step_attack("lengths of donors", declared, sizes)
    exact = [range_counts(panel).to_float64().ravel() for panel in sizes]
    yield sum_attack("range of donors", found, lambda one: found.fit(sizes[one], _N_PRE).releases_[0], exact)
    if privacy.adjacency == "add_remove":
        yield _step_attack("number of donors", declared, sizes)


def _step_attack(name: str, estimator: SyntheticControl, panels: list[FloatArray]) -> Attack:
    """Attack the release of a step before the moments: one donor is replaced, or leaves."""
    return stage_attack(name, estimator, [_panel(donors, _N_PRE) for donors in panels], name)


def _output_attack(privacy: Privacy, *, printed: bool = False) -> Attack:
    """Attack output perturbation where it is tight: a donor with ||x||**2 = ridge/2 along the target is flipped."""
    ridge = float(_N_PRE)
    before = math.sqrt(0.5 * ridge / _N_PRE)
    weight = before * _N_PRE / (before**2 * _N_PRE + 0.5 * ridge)
    name = "donor weights, output perturbation" + (", as printed" if printed else "")
    options = {"mechanism": "output", "ridge": ridge, "calibration": "paper" if printed else "sound"}
    return _weight_attack(
        name, privacy, options, before, 2.0 * weight, "weights", lambda _, weights, sign: weights - sign * weight
    )


def _objective_attack(privacy: Privacy) -> Attack:
    """Attack objective perturbation with a donor that equals the target, and becomes its negative.

    The noise in the objective is recovered from the weight, as in `dpfast.convex_erm.attacks`.
    """

    def recovered(model: SyntheticControl, weights: FloatArray, sign: float) -> FloatArray:
        return np.asarray(sign * 2.0 * _N_PRE - (2.0 * _N_PRE + model.ridge_) * weights)

    options = {"mechanism": "objective", "ridge": _LARGE_RIDGE}
    name = "donor weights, objective perturbation"
    return _weight_attack(name, privacy, options, 1.0, 4.0 * _N_PRE, "objective", recovered)


def _weight_attack(
    name: str, privacy: Privacy, options: dict[str, Any], before: float, shift: float, hidden: str, recovered: Recovered
) -> Attack:
    """Attack weights and the prediction with them: a donor of one value before and 1 after becomes its negative.

    The prediction is released in units of the one weight; by that weight's sign, it is the donor's own outcome.
    """
    estimator = SyntheticControl(**claimed(privacy), **options)
    signs = 1.0, -1.0
    tables = [np.append(np.full(_N_PRE, sign * before), sign)[None, :] for sign in signs]

    def fit(neighbour: bool) -> Release:
        return estimator.fit(tables[neighbour], _N_PRE, np.ones(_N_PRE)).releases_[0]

    def seen(neighbour: bool) -> FloatArray:
        values, sign = fit(neighbour).values, signs[neighbour]
        after = values.get("donors", np.sign(values["weights"]) * values.get("projection", 0.0)).ravel()
        return np.concatenate([recovered(estimator, values["weights"], sign), after - sign])

    record = probe(lambda: fit(False))
    scales = record.scales[hidden], record.scales["donors" if "donors" in record.scales else "projection"]
    law = shift_law(record.mechanism, (np.array([shift]), np.array([2.0])), scales)
    return Attack.on(name, record, law, seen, estimator)
