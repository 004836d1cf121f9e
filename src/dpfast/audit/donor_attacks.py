"""Attacks on synthetic control: one donor becomes another, as unlike it as the declared bounds allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.audit.attacks import Attack, claimed, probe
from dpfast.audit.laws import GaussianShift, Law, NormShift
from dpfast.audit.moment_attacks import Rows, Table, shifted_attack
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.releases.moments import unpacked
from dpfast.synthetic_control import SyntheticControl

Recovered = Callable[[SyntheticControl, Release, bool], FloatArray]

_N_PRE = 4
# Large enough for weights to stay within the L1 ball, whatever the noise in their objective.
_LARGE_RIDGE = 1e5


def donor_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack every mechanism of `SyntheticControl`.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by Gaussian noise alone, and its adjacency by "cross_section" alone, which has both.
    """
    # Norms of 1 leave a plane's rows room for every angle.
    short: dict[str, Any] = {"row_bound": (1.0, 1.0)}
    ways = [
        Rows("moments of donors", short),
        Rows("moments of donors about a path", short | {"center": 0.0}),
        Rows("moments of nonnegative donors", short | {"nonnegative": True}, cosines=np.zeros(1), signs=(1.0,)),
    ]
    for delta in (privacy.delta, 0.0):
        for adjacency in get_args(Adjacency):
            for way in ways:
                yield _moment_attack(way, Privacy(privacy.epsilon, delta, adjacency))
        one = Privacy(privacy.epsilon, delta)
        yield _moment_attack(Rows("moments of donors, repeatedly", short), one, repeatedly=True)
        yield output_attack(one)
        yield objective_attack(one)
    yield output_attack(Privacy(privacy.epsilon), printed=True)


def _moment_attack(rows: Rows, privacy: Privacy, *, repeatedly: bool = False) -> Attack:
    estimator = SyntheticControl(**claimed(privacy), **rows.options)

    def fit(table: Table) -> Release:
        donors = np.hstack(table)
        if not repeatedly:
            return estimator.fit(donors, 2).releases_[0]
        release = estimator.fit_repeatedly(donors, 2, 1)[0].release
        return replace(release, values={name: value[0] for name, value in unpacked(release.values).items()})

    return shifted_attack(rows, privacy.adjacency, fit, estimator)


def output_attack(privacy: Privacy, *, printed: bool = False) -> Attack:
    """Attack output perturbation where it is tight: a donor with ||x||**2 = ridge/2 along the target is flipped.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    printed : bool
        Whether the printed algorithm is attacked.
    """
    ridge = float(_N_PRE)
    before = math.sqrt(0.5 * ridge / _N_PRE)
    weight = before * _N_PRE / (before**2 * _N_PRE + 0.5 * ridge)

    def recovered(model: SyntheticControl, release: Release, neighbour: bool) -> FloatArray:
        own = -weight if neighbour else weight
        return release.values["weights"] - own

    name = "donor weights, output perturbation" + (", as printed" if printed else "")
    options = {"mechanism": "output", "ridge": ridge, "calibration": "paper" if printed else "sound"}
    return _weight_attack(name, privacy, options, before, 2.0 * weight, "weights", recovered)


def objective_attack(privacy: Privacy) -> Attack:
    """Attack objective perturbation with a donor that equals the target, and becomes its negative.

    The noise in the objective is recovered from the weight: see `dpfast.audit.minimiser_attacks`.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    """

    def recovered(model: SyntheticControl, release: Release, neighbour: bool) -> FloatArray:
        along = -2.0 * _N_PRE if neighbour else 2.0 * _N_PRE
        return np.asarray(along - (2.0 * _N_PRE + model.ridge_) * release.values["weights"])

    options = {"mechanism": "objective", "ridge": _LARGE_RIDGE}
    name = "donor weights, objective perturbation"
    return _weight_attack(name, privacy, options, 1.0, 4.0 * _N_PRE, "objective", recovered)


def _weight_attack(
    name: str,
    privacy: Privacy,
    options: dict[str, Any],
    before: float,
    shift: float,
    hidden: str,
    recovered: Recovered,
) -> Attack:
    """Attack weights and what is predicted with them: a donor of one value before and 1 after becomes its negative.

    The prediction is released in units of the one weight; by that weight's sign, it is the donor's own outcome.
    """
    estimator = SyntheticControl(**claimed(privacy), **options)
    target = np.ones(_N_PRE)
    tables = [np.append(np.full(_N_PRE, sign * before), sign)[None, :] for sign in (1.0, -1.0)]

    def fit(neighbour: bool) -> Release:
        return estimator.fit(tables[neighbour], _N_PRE, target).releases_[0]

    def seen(neighbour: bool) -> FloatArray:
        release = fit(neighbour)
        after = -1.0 if neighbour else 1.0
        if "donors" in release.values:
            second = release.values["donors"].ravel() - after
        else:
            second = np.sign(release.values["weights"]) * release.values["projection"] - after
        return np.concatenate([recovered(estimator, release, neighbour), second])

    record = probe(lambda: fit(False))
    scales = record.scales[hidden], record.scales["donors" if "donors" in record.scales else "projection"]
    law: Law
    if record.mechanism.startswith("Gaussian"):
        either = (np.array([True, False]), np.array([False, True]))
        law = GaussianShift(np.array([shift, 2.0]), np.array(scales), either)
    else:
        law = NormShift((np.array([shift]), np.array([2.0])), scales)
    return Attack(f"{name}, {record.mechanism}, {privacy.adjacency}", record.privacy, law, seen, (estimator,))
