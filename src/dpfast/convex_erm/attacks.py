"""Attacks on minimisers of perturbed objectives: the noise in the objective is recovered from the minimiser.

Take one dimension, or a loss with the slope of a line. The minimiser theta of ``loss + (m/2) theta^2 + b theta`` within
its constraint then determines b exactly: b = -(slope of the loss + m theta). On the neighbouring table the same theta
takes another b, by the difference of the slopes. So outputs show b about centres at least that far apart; the finishing
noise is many orders smaller. Strong convexity is large here, so that theta stays within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claimed, claims, probe, shift_law
from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.mechanism import fitting
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor
from dpfast.estimator.bounded_attacks import counts_attacks, stage_attack, stages_attack
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.solvers import (
    CallableLoss,
    CappedLogisticLoss,
    L2Ball,
    LogisticLoss,
    PoissonLoss,
    SmoothedHuber,
    SmoothedQuantile,
)
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms

_RIDGE = 1e5
#: People beside the one who differs, where descent is attacked, and columns: far from where a noisy number of people
#: would change how many steps are taken.
_OTHERS, _COLUMNS = 200, 64
#: Of classifiers whose counts of margins are attacked.
_CLASSES = (-1, 1), (-1, 0, 1, 2)


@dataclass(frozen=True)
class Minimised:
    """A loss, and where its slope is as steep as it gets."""

    #: Of the mechanism.
    name: str
    estimator: type[ObjectivePerturbationClassifier] | type[ObjectivePerturbationRegressor]
    #: Derivative of the loss in the prediction, of prediction and outcome.
    slope: Callable[[float, float], float]
    #: Parameters of the estimator.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Of the person; replaced by its negative.
    outcome: float = 1.0
    #: The person's row is the first unit vector.
    n_features: int = 1
    #: Of every row, if they have weights.
    weight: float | None = None


def _squared(z: float, y: float) -> float:
    return z - y


def _logistic(z: float, y: float) -> float:
    return float(-y / (1.0 + np.exp(y * z)))


def _flat(z: float, y: float) -> float:
    """Slope of losses that are linear this far from their non-differentiable point."""
    return -1.0 if y > 0.0 else 1.0


def _capped(z: float, y: float) -> float:
    """Slope of a capped loss, which is flat around the boundary."""
    return 0.25 * _flat(z, y)


def _quantile(z: float, y: float) -> float:
    """Slope of the loss of the median this far from its non-differentiable point."""
    return 0.5 * _flat(z, y)


def _rate(z: float, y: float) -> float:
    """Slope of the loss of counts that are clipped at 0, far below the largest rate."""
    return float(np.exp(z)) - max(y, 0.0)


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


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack objective perturbation with every loss."""
    regressor, classifier = ObjectivePerturbationRegressor, ObjectivePerturbationClassifier
    # A small constraint keeps slopes near the bound on them.
    near = {"constraint": L2Ball(0.05)}
    squared = Minimised("squared loss", regressor, _squared, {"loss": "squared", "bound_y": 1.0} | near)
    huber = Minimised("Huber loss", regressor, _flat, {"loss": SmoothedHuber(1.0), "bound_y": 5.0}, outcome=5.0)
    hinge = Minimised("hinge", classifier, _flat, {"loss": "hinge"})
    losses = [
        squared,
        huber,
        Minimised(
            "quantile",
            regressor,
            _quantile,
            {"loss": SmoothedQuantile(0.5, 0.625), "bound_y": 5.0, "method": "objective"},
            outcome=5.0,
        ),
        Minimised("Poisson loss", regressor, _rate, {"loss": PoissonLoss(5.0), "bound_y": 5.0} | near, outcome=5.0),
        Minimised("logistic loss", classifier, _logistic, {"loss": "logistic"} | near),
        Minimised("capped logistic loss", classifier, _capped, {"loss": CappedLogisticLoss(0.25)} | near),
        hinge,
        replace(hinge, name="hinge in the plane", n_features=2),
        *(_with(one, "with an intercept", fit_intercept=True) for one in (squared, hinge)),
        _with(hinge, "with weights", class_weight={-1: 3.0, 1: 3.0}),
        # Weights are clipped to 3, and entries of 1 to limits that they are half a width beyond.
        *(replace(_with(one, "with weights of rows", max_weight=3.0), weight=9.0) for one in (squared, huber, hinge)),
        *(_with(one, "in a box", bound_x=None, box_x=(-0.5, 0.5)) for one in (squared, huber, hinge)),
    ]
    given = Minimised("loss by functions", regressor, _callable_slope, {"bound_y": 20.0}, outcome=20.0)
    labelled: dict[str, Any] = {"bound_x": "private", "loss": "hinge", "classes": [-1, 1]}
    yield from counts_attacks(
        "classification", partial(classifier, **labelled), NormHistograms(rows=True), privacy, outcomes=(1, -1)
    )
    bounded: dict[str, Any] = {"bound_x": "private", "bound_y": "private", "loss": "huber"}
    sizes = NormHistograms(rows=True, outcomes=True)
    yield from counts_attacks("regression", partial(regressor, **bounded), sizes, privacy)
    for loss, least in (("quantile", -31), ("poisson", -1)):
        large: dict[str, Any] = {"bound_x": 1.0, "bound_y": 20.0, "loss": loss}
        sizes = NormHistograms(outcomes=True, bins=LogarithmicBins(least, 9))
        yield from counts_attacks(loss, partial(regressor, **large), sizes, privacy, outcomes=(1.0, 12.0))
    for claim in claims(privacy, delta=True):
        yield from (_classes_descent_attack(claim, copies) for copies in (1, 2))
        yield from (_scores_descent_attack(claim, inference=paid) for paid in (False, True))
        yield _scores_descent_attack(claim, inference=False, copies=3)
        yield _mean_count_attack(claim)
        yield from (_margins_attack(claim, "gradient", classes) for classes in _CLASSES)
    for claim in claims(privacy):
        yield from (_margins_attack(claim, "objective", classes) for classes in _CLASSES)
        known: dict[str, Any] = {"ridge": 1e7, "inference": True, "fit_intercept": False, "n_threads": 1}
        known |= {"bound_x": 1.0, "method": "objective"} | claimed(claim)
        near_0: dict[str, Any] = {"bound_y": 1.0, "constraint": L2Ball(1.0)}
        yield _curvatures_attack("curvatures of squares", regressor(**near_0, **known), claim)
        of_classes = classifier(classes=[-1, 1], probabilities="link", loss="logistic", **known)
        yield _curvatures_attack("curvatures of classes", of_classes, claim)
        for one in (*losses, _fitted(claim)):
            yield _attack(one, claim)
        if claim.adjacency == "replace_one":
            yield _attack(replace(given, options={"loss": _callable_loss(), **given.options}), claim)
        else:
            for one in (huber, hinge):
                yield _attack(_with(one, "as printed", ", ", calibration="paper"), claim)


def _fitted(privacy: Privacy) -> Minimised:
    """Return the loss for the budget of so few people: its slope is nearly 1 where coefficients are 0."""
    loss = LogisticLoss(fitting(privacy, 1, 1 if privacy.adjacency == "replace_one" else None).shift)

    def slope(z: float, y: float) -> float:
        return float(loss.derivative(z, y))

    options = {"loss": "auto", "method": "objective"}
    return Minimised("logistic loss that fits the budget", ObjectivePerturbationClassifier, slope, options)


def _classes_descent_attack(privacy: Privacy, copies: int) -> Attack:
    """Attack every step of descent: one person's slope is at its clip all along, whatever their class.

    Each has so many copies of a row.
    """
    estimator = ObjectivePerturbationClassifier(
        bound_x=1.0,
        classes=[-1, 1],
        method="gradient",
        probabilities="link",
        n_threads=1,
        fit_intercept=False,
        **claimed(privacy),
    )
    others = _OTHERS // copies  # noise in the number of people is as many times larger
    rows = np.zeros((1 + others, _COLUMNS))
    rows[:, 0] = np.append(1.0, np.full(others, 0.5))
    labels = np.tile([1, -1], others // 2 + 1)[: 1 + others]
    name = "steps of descent" + (" of people's rows" if copies > 1 else "")
    return _descent_attack(name, estimator, rows, labels, privacy, copies)


def _scores_descent_attack(privacy: Privacy, *, inference: bool, copies: int = 1) -> Attack:
    """Attack every step of a descent of scores, or all sums that errors are made of too: one outcome is far out.

    Each person has so many copies of a row.
    """
    estimator = ObjectivePerturbationRegressor(
        bound_x=1.0,
        bound_y=1000.0,
        loss=SmoothedHuber(1.0),
        method="gradient",
        n_threads=1,
        fit_intercept=False,
        inference=inference,
        **claimed(privacy),
    )
    others = _OTHERS // copies
    rows = np.zeros((1 + others, _COLUMNS))
    rows[:, 0] = np.append(1.0, np.full(others, 0.5))
    outcomes = np.append(1000.0, np.zeros(others))
    name = "sums of curvatures and scores" if inference else "steps of descent of scores"
    name += " of people's rows" if copies > 1 else ""
    return _descent_attack(name, estimator, rows, outcomes, privacy, copies)


def _mean_count_attack(privacy: Privacy) -> Attack:
    """Attack the mean of counts, which goes before the steps of their descent: one is as large as it may be, or 0."""
    estimator = ObjectivePerturbationRegressor(
        bound_x=1.0,
        bound_y=1000.0,
        loss=PoissonLoss(1000.0),
        method="gradient",
        n_threads=1,
        **claimed(privacy),
    )
    outcomes = np.append(1000.0, np.zeros(_OTHERS))
    rows = np.zeros((1 + _OTHERS, 1))
    return _descent_attack(
        "mean of counts", estimator, rows, outcomes, privacy, last=1 + (privacy.adjacency != "replace_one")
    )


def _curvatures_attack(name: str, estimator: Any, privacy: Privacy) -> Attack:
    """Attack the sum of curvatures after a minimiser: with coefficients of about 0 a row adds what is known."""
    rows, outcomes = np.array([[1.0], [0.5], [-0.5]]), np.array([1, -1, 1])
    is_other = privacy.adjacency == "replace_one"
    other = (rows * [[0.0], [1.0], [1.0]], outcomes) if is_other else (rows[1:], outcomes[1:])
    beside = " beside a delta" if privacy.delta > 0.0 else ""
    attack = stage_attack(f"{name}{beside}", estimator, [(rows, outcomes), other], "curvatures")
    return replace(attack, effort=0.25)


def _descent_attack(
    name: str,
    estimator: ObjectivePerturbationClassifier | ObjectivePerturbationRegressor,
    rows: FloatArray,
    outcomes: NDArray[Any],
    privacy: Privacy,
    copies: int = 1,
    last: int | None = None,
) -> Attack:
    """Attack every release of a descent, or those up to the last: the first person's outcome, or they, are another.

    Others, half as long, keep coefficients near 0; columns of zeros keep steps small.
    """
    other = np.append(-outcomes[0], outcomes[1:])
    is_other = privacy.adjacency == "replace_one"
    people = [(rows, outcomes), (rows, other) if is_other else (rows[1:], outcomes[1:])]
    owners = [(np.repeat(np.arange(len(own[0])), copies), copies) if copies > 1 else () for own in people]
    tables: list[tuple[Any, ...]] = [
        (*(np.repeat(part, copies, axis=0) for part in one), *own) for one, own in zip(people, owners, strict=True)
    ]
    return stages_attack(name, estimator, tables, last=last)


def _margins_attack(privacy: Privacy, method: Literal["objective", "gradient"], classes: Sequence[int]) -> Attack:
    """Attack counts of margins: an attacker with everybody else and the coefficients knows the cells of one person."""
    estimator = ObjectivePerturbationClassifier(
        bound_x=1.0, classes=classes, method=method, n_threads=1, fit_intercept=False, **claimed(privacy)
    )
    people = [(np.array([[0.5], [-0.5], [1.0]]), np.array([1, -1, label])) for label in (1, -1)]
    tables = people if privacy.adjacency == "replace_one" else [people[0], (people[0][0][:2], people[0][1][:2])]
    several = " of several classes" if len(classes) > 2 else ""
    return replace(
        stage_attack(f"counts of margins{several}, after {method}", estimator, tables, "counts"), effort=0.25
    )


def _with(one: Minimised, what: str, separator: str = " ", **options: Any) -> Minimised:
    return replace(one, name=f"{one.name}{separator}{what}", options={**one.options, **options})


def _attack(one: Minimised, privacy: Privacy) -> Attack:
    options: dict[str, Any] = (
        {"bound_x": 1.0, "ridge": _RIDGE, "fit_intercept": False} | claimed(privacy) | dict(one.options)
    )
    if one.estimator is ObjectivePerturbationClassifier:
        options |= {"classes": [-1, 1], "probabilities": "link"}
    estimator = one.estimator(**options)
    unit = np.eye(one.n_features)[0]
    person, other = (unit, one.outcome), (unit, -one.outcome)
    # Somebody who adds nothing, as there must be rows.
    nobody = (np.zeros(one.n_features), one.outcome)
    alone = [[person], [other]] if privacy.adjacency == "replace_one" else [[nobody, person], [nobody]]
    tables = [(np.array([x for x, _ in rows]), np.array([y for _, y in rows])) for rows in alone]

    def fit(neighbour: bool) -> tuple[Release, float]:
        rows, outcomes = tables[neighbour]
        weights = None if one.weight is None else np.full(len(rows), one.weight)
        model = estimator.fit(rows, outcomes, sample_weight=weights)
        return model.releases_[0], model.ridge_

    def slope(theta: FloatArray, neighbour: bool) -> FloatArray:
        rows, outcomes = tables[neighbour]
        if options.get("fit_intercept"):
            rows = np.column_stack([rows, np.full(len(rows), estimator._table_loss(rows.shape[1]).constant)])
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
    law = shift_law(record.mechanism, (shift,), (scale,))
    return Attack.on(f"minimiser, {one.name}", record, law, seen, estimator)
