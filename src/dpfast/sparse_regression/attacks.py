"""Attacks on sparse regression: on the choice of a support, by scores and by votes, on its coefficients and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, OddsShift, claimed, claims, probe, shift_law
from dpfast.estimator.bounded_attacks import Neighbours, counts_attacks, stage_attack
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.sparse_regression.estimator import SparseRegression
from dpfast.statistics.norm_histograms import NormHistograms

# Nearly all of the budget, for the stage that is attacked.
_MOST = 0.99
# Rows of other people, who hold coefficients where they are.
_OTHERS = 50
# Where coefficients are attacked: many others, who keep one this far from its ends.
_HELD, _HELD_AT = 5000, -0.8
# A choice reveals less than noise: this many more outputs, and choices from the sums of each fit.
_MORE = 12.0
_CHOICES = 20
# Largest outcome, where coefficients are attacked: their gradient then hardly depends on them.
_OUTCOME = 20.0


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack both stages of `SparseRegression`, both ways to choose, and the counts that bounds are found by."""
    for claim in claims(privacy):
        yield _coefficient_attack(claim)
        yield _vote_attack(claim, 20 if claim.delta > 0.0 else 1)
        yield _score_attack(claim)
        yield from (_pick_attack(claim, copies) for copies in (1, 2))
        yield _mean_attack(claim)
        if claim.delta == 0.0:
            yield _score_attack(claim, "paper")
            yield _size_attack(claim)
        else:
            yield _residual_attack(claim)
        if claim.adjacency == "add_remove":
            yield _coefficient_attack(claim, "paper")
    yield _vote_attack(Privacy(privacy.epsilon), 1, "paper")
    bounded: dict[str, Any] = {"n_nonzero": 1, "bound_x": "private", "bound_y": "private", "selector": "exponential"}
    sizes = NormHistograms(rows=True, outcomes=True)
    yield from counts_attacks("sparse regression", partial(SparseRegression, **bounded), sizes, privacy)


def _score_attack(privacy: Privacy, calibration: str = "sound") -> Attack:
    """Attack the exponential mechanism with two features, whose scores one record moves as far apart as can be.

    A choice says less than noise, so many are needed: each fit is followed by more choices from the same exact sums.
    """
    options: dict[str, Any] = {"n_nonzero": 1, "selector": "exponential", "selection_share": _MOST, "n_threads": 1}
    estimator = SparseRegression(calibration=calibration, **options, **claimed(privacy))  # type: ignore[arg-type]
    # One feature explains the person with a coefficient of 1, and makes the other's -1 worst: losses of 0 and of 2.
    others = np.tile([1.0, -1.0], (_OTHERS, 1)), np.ones(_OTHERS)
    tables = _neighbours(others, (np.ones(2), 1.0), (-np.ones(2), 1.0), privacy.adjacency)

    source = noise.resolve_source(None)
    summed = [estimator._sum(estimator._checked(), source, *table, None) for table in tables]

    def seen(neighbour: bool) -> FloatArray:
        chosen = [int(estimator.fit(*tables[neighbour]).support_[0])]
        for _ in range(_CHOICES - 1):
            stage = next(summed[neighbour].mechanism.stages())
            release = stage.mechanism.release(stage.statistic(summed[neighbour].statistic), source, stage.name)
            chosen.append(int(release.values["support"][0]))
        return np.array(chosen, np.float64)[:, None]

    record = probe(lambda: estimator.fit(*tables[0]).releases_[0])
    moved = 4.0 if privacy.adjacency == "replace_one" else 2.0
    law = OddsShift(moved / record.scales["support"])
    beside = " beside a delta" if privacy.delta > 0.0 else ""
    name = f"support by scores{beside}{_printed(calibration)}, {privacy.adjacency}"
    effort = (_MORE if calibration == "sound" else 1.0) / _CHOICES
    return Attack(name, record.privacy, law, seen, (estimator,), effort=effort)


def _pursuit_between(
    privacy: Privacy,
    person: tuple[FloatArray, float],
    instead: tuple[FloatArray, float],
    copies: int = 1,
    **options: Any,
) -> tuple[SparseRegression, list[tuple[Any, ...]]]:
    """Return an estimator of two features, and tables with a person or with another, everybody in so many copies.

    The others hold both sums above 0; their outcomes are beyond all clips.
    """
    estimator = SparseRegression(**{"n_threads": 1, "fit_intercept": False} | options, **claimed(privacy))
    others = np.ones((_OTHERS, 2)), np.full(_OTHERS, _OUTCOME)
    tables: list[tuple[Any, ...]] = []
    for rows, outcomes in _neighbours(others, person, instead, privacy.adjacency):
        whose = (np.repeat(np.arange(len(rows)), copies), copies) if copies > 1 else ()
        tables.append((*(np.repeat(part, copies, axis=0) for part in (rows, outcomes)), None, *whose))
    return estimator, tables


def _pick_attack(privacy: Privacy, copies: int) -> Attack:
    """Attack a pick between two features, whose scores one person moves as far apart as can be, whatever the clip."""
    side = np.array([1.0, -1.0])
    options: dict[str, Any] = {"n_nonzero": 1, "selector": "pursuit", "selection_share": _MOST}
    estimator, tables = _pursuit_between(privacy, (side, _OUTCOME), (-side, _OUTCOME), copies, **options)
    fits, source = Neighbours(estimator, tables), noise.resolve_source(None)
    # The clip depends on counts released before, which are the same for both tables here.
    counted = probe(lambda: fits.releases(False)[0])
    stages = fits.mechanism.stages()
    next(stages)
    stage = stages.send(counted)
    scores = [stage.statistic(rows) for rows in fits.statistics]

    def pick(neighbour: bool) -> Release:
        return stage.mechanism.release(scores[neighbour], source, stage.name)

    def seen(neighbour: bool) -> FloatArray:
        return np.array(pick(neighbour).values["feature"], np.float64)

    record = probe(lambda: pick(False))
    # Of a bounded range, a pick is pure.
    claim, span = record.privacy, record.privacy.epsilon
    beside = " beside a delta" if privacy.delta > 0.0 else ""
    several = " of people's rows" if copies > 1 else ""
    name = f"feature by its score{several}{beside}, {privacy.adjacency}"
    # Closer probabilities need more outputs to distinguish.
    return Attack(name, claim, OddsShift(span), seen, (estimator,), effort=max(8.0, 8.0 / span**2))


def _residual_attack(privacy: Privacy) -> Attack:
    """Attack the moments of residuals between two picks: one outcome is far to the other side, beyond the clip."""
    both = np.ones(2)
    between = _pursuit_between(privacy, (both, _OUTCOME), (both, -_OUTCOME), n_nonzero=2)
    return stage_attack("residuals between picks", *between, "moments")


def _mean_attack(privacy: Privacy) -> Attack:
    """Attack the moments of outcomes and the constant, before the first pick: one outcome is far to the other side."""
    both = np.ones(2)
    between = _pursuit_between(privacy, (both, _OUTCOME), (both, -_OUTCOME), n_nonzero=1, fit_intercept=True)
    return stage_attack("outcomes' mean", *between, "moments")


def _size_attack(privacy: Privacy) -> Attack:
    """Attack the counts of people by the size of their residuals: one is small where all others are large."""
    between = _pursuit_between(privacy, (np.ones(2), 0.0), (np.ones(2), _OUTCOME), n_nonzero=1)
    return stage_attack("counts of residuals", *between, "sizes")


def _vote_attack(privacy: Privacy, size: int, calibration: str = "sound") -> Attack:
    """Attack the votes of a single block, all of which one record turns.

    With many of them Gaussian noise is the lesser, where delta allows it.
    """

    def rotated(x: FloatArray, y: FloatArray, size: int) -> NDArray[np.int64]:
        return np.arange(size) + (size if x[:, 0].min() < -0.5 else 0)

    # The lasso's own vote goes to the first feature, but for a person who has a large outcome and the second.
    selector: Any = rotated if size > 1 else "sample_aggregate"
    options: dict[str, Any] = {"n_nonzero": size, "selector": selector, "n_blocks": 1, "selection_share": _MOST}
    estimator = SparseRegression(calibration=calibration, **options, **claimed(privacy))  # type: ignore[arg-type]
    width = 2 * size
    if size > 1:
        others = np.full((size + 1, width), 0.5), np.zeros(size + 1)
        person, instead = (np.full(width, -1.0), 0.0), (np.full(width, 0.5), 0.0)
    else:
        weak = np.tile([[0.2, 0.0], [-0.2, 0.0]], (5, 1))
        # Half as steep as the person's: rounding would decide between equal coefficients.
        others = weak, 0.5 * weak[:, 0]
        person, instead = (np.eye(width)[1], 1.0), (np.eye(width)[0], 1.0)
    tables = _neighbours(others, person, instead, privacy.adjacency)
    votes = [np.repeat([0.0, 1.0], size), np.repeat([1.0, 0.0], size)]

    def seen(neighbour: bool) -> FloatArray:
        return np.asarray(estimator.fit(*tables[neighbour]).releases_[0].values["votes"] - votes[neighbour])

    record = probe(lambda: estimator.fit(*tables[0]).releases_[0])
    law = shift_law(record.mechanism, (votes[1] - votes[0],), (record.scales["votes"],))
    return Attack.on(f"support by votes{_printed(calibration)}", record, law, seen, estimator)


def _coefficient_attack(privacy: Privacy, calibration: str = "sound") -> Attack:
    """Attack the coefficient of one feature: the noise in its objective, as in `dpfast.convex_erm.attacks`."""
    options: dict[str, Any] = {"n_nonzero": 1, "selector": "exponential", "selection_share": 1.0 - _MOST}
    outcome = 1.0
    if calibration == "sound":
        options, outcome = options | {"bound_x": 1.0, "bound_y": _OUTCOME}, _OUTCOME
    estimator = SparseRegression(calibration=calibration, **options, **claimed(privacy))  # type: ignore[arg-type]
    n = _HELD
    others = np.ones((n, 1)), np.full(n, _HELD_AT)
    one = np.ones(1)
    tables = _neighbours(others, (one, outcome), (one, -outcome), privacy.adjacency)
    record = probe(lambda: estimator.fit(*tables[0]).releases_[1])
    regression = estimator._calibrated(estimator._checked(), 1, n + 1).regression
    convexity = regression.noise_scales.strong_convexity
    curvature = [float(np.sum(x**2)) + convexity for x, _ in tables]
    linear = [float(x[:, 0] @ y) for x, y in tables]

    def seen(neighbour: bool) -> FloatArray:
        theta = estimator.fit(*tables[neighbour]).releases_[1].values["coef"]
        return np.asarray(linear[neighbour] - curvature[neighbour] * theta)

    # The person's contribution to the slope; under add/remove less where the coefficient is nearer to the person's
    # outcome.
    scale = record.scales["objective"]
    shift = np.array([2.0 * outcome])
    if privacy.adjacency == "add_remove":
        shift = np.array([outcome - linear[1] / curvature[1] - 10.0 * scale / n])
    law = shift_law(record.mechanism, (shift,), (scale,))
    return Attack.on(f"coefficient{_printed(calibration)}", record, law, seen, estimator)


def _neighbours(
    others: tuple[FloatArray, FloatArray],
    person: tuple[FloatArray, float],
    instead: tuple[FloatArray, float],
    adjacency: Adjacency,
) -> list[tuple[FloatArray, FloatArray]]:
    """Return the others with a person, and with another in that place, or with nobody."""

    def joined(one: tuple[FloatArray, float]) -> tuple[FloatArray, FloatArray]:
        return np.vstack([others[0], one[0]]), np.append(others[1], one[1])

    return [joined(person), joined(instead) if adjacency == "replace_one" else others]


def _printed(calibration: str) -> str:
    return "" if calibration == "sound" else ", as printed"
