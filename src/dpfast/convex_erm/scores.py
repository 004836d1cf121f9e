"""Regression by descent: the staged mechanism as one of the family's, what it is expected to do, and its plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfast.convex_erm.mechanism import R2, SPREAD, Linear, StepsOf
from dpfast.privacy import Privacy
from dpfast.releases.score_regression import ScoreLoss, ScoreRegression
from dpfast.releases.staged_fit import Regression
from dpfast.releases.staged_regression import Public
from dpfast.solvers import PoissonLoss, SmoothedHuber
from dpfast.statistics.rows import RowMap

#: Points of an integral over normal residuals, up to so many standard deviations.
_POINTS, _FARTHEST = 1024, 12.0


@dataclass(frozen=True)
class ScoreDescent(StepsOf[Regression]):
    """Descent of one outcome's loss."""

    steps: ScoreRegression

    @classmethod
    def of(
        cls,
        privacy: Privacy,
        loss: ScoreLoss,
        rows: tuple[RowMap, float],
        bound_y: float,
        n_features: int,
        n_rows: int | None,
        *,
        fit_intercept: bool,
        max_rows: int | None = None,
        is_weighted: bool = False,
    ) -> ScoreDescent:
        """Return it for rows and outcomes within bounds, as many as is public; at most `max_rows` of a person."""
        (row_map, bound_x), outcome_map = rows, RowMap(bound=bound_y)
        if loss.is_of_counts:
            outcome_map = replace(outcome_map, low=np.zeros(1), high=np.full(1, bound_y))
        steps = ScoreRegression(
            privacy,
            (n_features, 1),
            (bound_x, bound_y),
            row_map,
            outcome_map,
            fit_intercept=fit_intercept,
            max_rows=max_rows,
            is_weighted=is_weighted,
            public=Public(n_rows),
            loss=loss,
        )
        return cls(steps)

    def linear(self, found: Regression) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        coef, intercept, row_map = found.solution.coef, found.solution.intercept, self.steps.row_map
        if row_map.center is not None:
            intercept = intercept + coef @ row_map.center
        return Linear(coef if row_map.scale is None else coef * row_map.scale, intercept)

    def relative_error(self, people: int, spread: float = SPREAD) -> float:
        """Return the error of predictions to expect over the outcomes' bound: that of 0 at most."""
        curvature = _usual_curvature(self.steps.loss, math.sqrt((1.0 - R2) * spread) * self.steps.radii[1])
        return min(self.steps.expected_noise(people, curvature) / self.steps.radii[1], 1.0)


def attributes_of(found: Regression) -> dict[str, Any]:
    """Return the attributes of a fit."""
    coef, intercept = found.solution.coef[0], found.solution.intercept[0]
    return {"coef_": coef, "intercept_": float(intercept), "ridge_": 0.0, "n_features_in_": len(coef)}


def error_of(found: Regression) -> float:
    """Return the error of predictions over what they are without privacy, as the releases show it."""
    return math.sqrt(1.0 if found.lost is None else found.lost)


def _usual_curvature(loss: ScoreLoss, deviation: float) -> float:
    """Return the mean second derivative, a share of the largest, where residuals are normal.

    That of counts is their mean, and their errors are those of its logarithm times it: it cancels.
    """
    if isinstance(loss, PoissonLoss):
        return 1.0 / loss.second_derivative_bound()
    reach = loss.width + (loss.threshold if isinstance(loss, SmoothedHuber) else 0.0)
    # Midpoints, of a function that is 0 beyond and a density that is: a Gauss rule would miss what is narrow.
    farthest = min(reach, _FARTHEST * deviation)
    residuals = farthest * (np.arange(_POINTS) + 0.5) / _POINTS
    slopes = loss.second_derivative(residuals, 0.0) / loss.second_derivative_bound()
    densities = np.exp(-0.5 * (residuals / deviation) ** 2) / (deviation * math.sqrt(2.0 * math.pi))
    return min(2.0 * farthest * float(np.mean(slopes * densities)), 1.0)
