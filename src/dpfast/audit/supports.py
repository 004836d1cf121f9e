"""Attacks on sparse regression: on the choice of a support, by scores and by votes, and on its coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast.audit.attacks import Attack
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.privacy import Privacy
from dpfast.releases.support_coefficients import SupportRegression
from dpfast.releases.supports import RecordBounds, ScoredSelection, VotedSelection

FloatArray = NDArray[np.float64]
Records = tuple[FloatArray, FloatArray]

# One feature to choose, |x| <= 1 on any, |y| <= 1.
_BOUNDS = RecordBounds(1, 1.0, 1.0)
# Size of the records that hold coefficients where they are, in units of those that are public at most.
_HELD = 1e3


def support_attacks(privacy: Privacy, weaken: float = 1.0) -> Iterator[Attack]:
    """Attack both ways to choose a support.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by votes with Gaussian noise alone.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    """
    yield score_attack(replace(privacy, delta=0.0), weaken)
    for delta in (privacy.delta, 0.0):
        yield vote_attack(replace(privacy, delta=delta), weaken)


def score_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack the exponential mechanism with two features whose scores one record moves as far apart as can be.

    Parameters
    ----------
    privacy : Privacy
        Claim, of delta 0.
    weaken : float, default 1.0
        Multiplies the rate.
    """
    held = _HELD * np.eye(2), np.array([_HELD, -_HELD])
    # A record at the bounds, which one feature explains and the other makes worse; and its opposite.
    after = _with(held, np.ones(2), 1.0)
    before = _with(held, -np.ones(2), 1.0) if privacy.adjacency == "replace_one" else held
    selection = ScoredSelection.calibrate(privacy, _BOUNDS, len(after[1]))
    broken = replace(selection, rate=weaken * selection.rate)
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        x, y = after if neighbour else before
        xx, xy = x.T @ x, x.T @ y
        return np.array([broken.release(xx, xy, source, "audit").values["support"][0] for _ in range(n)], np.float64)

    return Attack(f"support by scores, {privacy.adjacency}", privacy, scores, gaussian=False)


def vote_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack the votes of a single block, all of which one record turns.

    Parameters
    ----------
    privacy : Privacy
        Claim; of many votes, so that the noise is Gaussian, where its delta is above 0.
    weaken : float, default 1.0
        Divides the noise.
    """
    size = 20 if privacy.delta > 0.0 else 1
    selection = VotedSelection.calibrate(privacy, size, 2 * size, 1)
    weak = replace(selection.calibrated, scale=selection.calibrated.scale / weaken)
    broken, gaussian = replace(selection, calibrated=weak), weak.mechanism == "Gaussian"
    source = noise.SecureSource()

    def turned(x: FloatArray, y: FloatArray, size: int) -> NDArray[np.int64]:
        return np.arange(size) + (size if x[0, 0] < 0.0 else 0)

    def scores(neighbour: bool, n: int) -> FloatArray:
        x = np.full((1, 2 * size), -1.0 if neighbour else 1.0)
        draws = [broken.release(x, np.zeros(1), turned, source, "audit", 1).values["votes"] for _ in range(n)]
        counts = np.array(draws)
        # Log likelihood ratio of a vote and none, up to a factor.
        ratios = counts if gaussian else np.abs(counts) - np.abs(counts - 1.0)
        return np.asarray(ratios[:, size:].sum(axis=1) - ratios[:, :size].sum(axis=1))

    return Attack(f"support by votes, {weak.mechanism}, {privacy.adjacency}", privacy, scores, gaussian=gaussian)


def coefficient_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack the coefficient of one feature, which three records pull one way and one more the other way.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    weaken : float, default 1.0
        Divides the noise in the objective.
    """
    rest = np.ones((3, 1)), np.full(3, -1.0)
    after = _with(rest, np.ones(1), 1.0)
    before = _with(rest, np.ones(1), -1.0) if privacy.adjacency == "replace_one" else rest
    regression = SupportRegression.calibrate(privacy, _BOUNDS, len(after[1]))
    own = regression.calibrated
    broken = replace(regression, calibrated=replace(own, scale=own.scale / weaken))
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        x, y = after if neighbour else before
        xx, xy = x.T @ x, FixedPoint.from_integers([int(x[:, 0] @ y)], 0)
        return np.array([broken.release(xx, xy, source, "audit").values["coef"][0] for _ in range(n)])

    return Attack(f"coefficient, {own.mechanism}, {privacy.adjacency}", privacy, scores, gaussian=False)


def _with(records: Records, x: FloatArray, y: float) -> Records:
    return np.vstack([records[0], x]), np.append(records[1], y)
