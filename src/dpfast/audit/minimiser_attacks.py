"""Attacks on minimisers of perturbed objectives: the noise in the objective is recovered from the minimiser.

In one dimension, or where the slope is that of a line, the minimiser theta of ``loss + (m/2) theta^2 + b theta`` within
its constraint says exactly which b made it: b = -(slope of the loss + m theta). On the neighbouring table the same
theta takes another b, by the difference of the slopes. So outputs show b about centres that lie that far apart, or
farther; the finishing noise is many orders smaller. Strong convexity is large here, so that theta stays within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.audit.attacks import Attack, claimed, probe
from dpfast.audit.laws import GaussianShift, Law, NormShift
from dpfast.convex_erm import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.solvers import CallableLoss, L2Ball

Slope = Callable[[float, float], float]

_RIDGE = 1e5


@dataclass(frozen=True)
class Minimised:
    """A loss, and where its slope is as steep as it gets.

    Parameters
    ----------
    name : str
        Of the mechanism.
    estimator : type
        `ObjectivePerturbationRegressor` or `ObjectivePerturbationClassifier`.
    slope : callable
        Derivative of the loss in the prediction, of prediction and outcome.
    options : mapping
        Parameters of the estimator.
    outcome : float
        Of the person; replaced by its negative.
    n_features : int
        The person's row is the first unit vector.
    """

    name: str
    estimator: type[ObjectivePerturbationClassifier] | type[ObjectivePerturbationRegressor]
    slope: Slope
    options: Mapping[str, Any] = field(default_factory=dict)
    outcome: float = 1.0
    n_features: int = 1


def _squared(z: float, y: float) -> float:
    return z - y


def _logistic(z: float, y: float) -> float:
    return float(-y / (1.0 + np.exp(y * z)))


def _flat(z: float, y: float) -> float:
    """Slope of losses that are linear this far from their kink."""
    return -1.0 if y > 0.0 else 1.0


def _callable_loss() -> CallableLoss:
    return CallableLoss(
        lambda z, y: np.sqrt(1.0 + (z - y) ** 2),
        lambda z, y: (z - y) / np.sqrt(1.0 + (z - y) ** 2),
        lambda z, y: (1.0 + (z - y) ** 2) ** -1.5,
        slope_bound=1.0,
        curvature_bound=1.0,
    )


def _callable_slope(z: float, y: float) -> float:
    return float((z - y) / np.sqrt(1.0 + (z - y) ** 2))


def minimiser_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack objective perturbation with every loss.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by Gaussian noise alone, and its adjacency by neither.
    """
    regressor, classifier = ObjectivePerturbationRegressor, ObjectivePerturbationClassifier
    # A small constraint keeps slopes near the bound on them.
    near = {"constraint": L2Ball(0.05)}
    losses = [
        Minimised("squared loss", regressor, _squared, {"loss": "squared", "bound_y": 1.0} | near),
        Minimised("Huber loss", regressor, _flat, {"loss": "huber", "bound_y": 5.0}, outcome=5.0),
        Minimised("logistic loss", classifier, _logistic, {"loss": "logistic"} | near),
        Minimised("hinge", classifier, _flat, {"loss": "hinge"}),
        Minimised("hinge in the plane", classifier, _flat, {"loss": "hinge"}, n_features=2),
    ]
    for index in (0, 3):
        own = dict(losses[index].options) | {"fit_intercept": True}
        losses.append(replace(losses[index], name=f"{losses[index].name} with an intercept", options=own))
    given = Minimised("loss by functions", regressor, _callable_slope, {"bound_y": 20.0}, outcome=20.0)
    printed = [
        Minimised("Huber loss, as printed", regressor, _flat, dict(losses[1].options) | {"calibration": "paper"}, 5.0),
        Minimised("hinge, as printed", classifier, _flat, {"loss": "hinge", "calibration": "paper"}),
    ]
    for delta in (privacy.delta, 0.0):
        for adjacency in get_args(Adjacency):
            for one in losses:
                yield _attack(one, Privacy(privacy.epsilon, delta, adjacency))
        loss: dict[str, Any] = {"loss": _callable_loss()}
        yield _attack(replace(given, options=dict(given.options) | loss), Privacy(privacy.epsilon, delta))
        for one in printed:
            yield _attack(one, Privacy(privacy.epsilon, delta, "add_remove"))


def _attack(one: Minimised, privacy: Privacy) -> Attack:
    options: dict[str, Any] = {"bound_x": 1.0, "ridge": _RIDGE} | claimed(privacy) | dict(one.options)
    if one.estimator is ObjectivePerturbationClassifier:
        options["classes"] = [-1, 1]
    estimator = one.estimator(**options)
    unit = np.eye(one.n_features)[0]
    person, other = (unit, one.outcome), (unit, -one.outcome)
    # Somebody who adds nothing, as there must be rows.
    nobody = (np.zeros(one.n_features), one.outcome)
    alone = [[person], [other]] if privacy.adjacency == "replace_one" else [[nobody, person], [nobody]]
    tables = [(np.array([x for x, _ in rows]), np.array([y for _, y in rows])) for rows in alone]

    def fit(neighbour: bool) -> tuple[Release, float]:
        model = estimator.fit(*tables[neighbour])
        return model.releases_[0], model.ridge_

    def slope(theta: FloatArray, neighbour: bool) -> FloatArray:
        rows, outcomes = tables[neighbour]
        if options.get("fit_intercept"):
            # A last feature of the size of the bound.
            rows = np.column_stack([rows, np.ones(len(rows))])
        slopes = [one.slope(float(x @ theta), float(y)) * x for x, y in zip(rows, outcomes, strict=True)]
        return np.asarray(np.sum(slopes, axis=0))

    def seen(neighbour: bool) -> FloatArray:
        release, ridge = fit(neighbour)
        theta = release.values["coef"]
        return np.asarray(-(slope(theta, neighbour) + ridge * theta))

    record = probe(lambda: fit(False)[0])
    scale = record.scales["objective"]
    # The slopes differ by this much at least: they do so by it at 0, and the minimiser keeps very near.
    size = one.n_features + bool(options.get("fit_intercept"))
    reached = 8.0 * scale * np.sqrt(size + 1.0) / _RIDGE * np.ones(size)
    ends = [slope(sign * reached, False) - slope(sign * reached, True) for sign in (-1.0, 0.0, 1.0)]
    shift = min(ends, key=lambda end: float(np.linalg.norm(end)))
    law: Law
    if record.mechanism.startswith("Gaussian"):
        law = GaussianShift(shift, np.full(size, scale))
    else:
        law = NormShift((shift,), (scale,))
    name = f"minimiser, {one.name}, {record.mechanism}, {privacy.adjacency}"
    return Attack(name, record.privacy, law, seen, (estimator,))
