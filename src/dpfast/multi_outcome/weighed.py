"""Rows before they are weighted, for the needs of an intercept, or of limits of features.

Once rows are weighted, r x for the root r of a weight's share, a mean is no intercept, and limits far from 0 are none.
So rows are clipped to their bounds before, put about the centre of their limits, and get a constant as their last
column, which becomes r times as large as the others do. A regression of such rows without an intercept has it as the
last coefficient. All of that is a public map of each row alone, as io/table.py requires.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.inference import Evidence, Textbook
from dpfast.solvers.ridge import RidgeSolution
from dpfast.statistics.rows import RowMap, limits_of


class Column(NamedTuple):
    """The constant column, in place of an intercept, of weighted rows."""

    #: The point that they were about, (n_features,) or (1,), and their last column.
    center: FloatArray
    constant: float

    def split(self, solution: RidgeSolution) -> RidgeSolution:
        """Return the solution of rows as they came: the last coefficient is their intercept."""
        coef = solution.coef[:, :-1]
        intercept = self.constant * solution.coef[:, -1] - coef @ np.broadcast_to(self.center, coef.shape[1])
        return replace(solution, coef=coef, intercept=intercept, coef_std=solution.coef_std[:, :-1])

    def with_constant(self, evidence: Evidence) -> Evidence:
        """Return what is known of the intercept, too: a function of the coefficients."""
        assert evidence.units is not None
        weights = np.append(-np.broadcast_to(self.center, len(evidence.xx) - 1), self.constant)
        return replace(evidence, constant=weights / evidence.units)

    def rows_per_weight(self, evidence: tuple[Evidence, ...]) -> float:
        """Return how many rows there are for the sum of their weights, as squares of rows and of the constant tell.

        Residual variances of weighted rows are smaller by this factor, if the weights say nothing of them. Both squares
        are of rows clipped to a norm. This overestimates the number, by 2 if weights are exponential.
        """
        if not evidence:
            return 1.0
        told = evidence[0]
        assert told.units is not None
        squares = float(linalg.inv(told.inverse)[-1, -1])
        return max(told.n_rows / (squares * float(told.units[-1] / self.constant) ** 2), 1.0)


@dataclass(frozen=True)
class Unweighed:
    """Rows that are to be weighted, as they are declared."""

    bound: float | None
    box: object
    nonnegative: bool
    has_intercept: bool

    @property
    def stay(self) -> bool:
        """Whether they are weighted as they come."""
        return not self.has_intercept and self.box is None

    @property
    def held(self) -> Callable[[Any], FloatArray] | None:
        """The map that holds them to their bounds, and completes them."""
        return None if self.stay else lambda rows: self._completed(self._row_map(rows.shape[1])(rows), self._constant)

    @property
    def as_they_are(self) -> Callable[[Any], FloatArray] | None:
        """The map that completes them if nothing is clipped to a bound."""
        return None if not self.has_intercept else lambda rows: self._completed(np.asarray(rows, np.float64), 1.0)

    def parameters(self, features: int) -> dict[str, Any]:
        """Return the parameters for weighted rows, and their column in place of an intercept, if any."""
        center = self._center(features)
        found: dict[str, Any] = {"fit_intercept": False}
        if self.has_intercept:
            found["_column"] = center, self._constant
        if self.box is None:
            assert self.bound is not None
            return found | {"bound_x": math.hypot(self.bound, self._constant)}
        low, high = self._limits(features)
        if self.bound is not None:
            # Rows scaled onto their bound leave their limits towards the origin, by no more than the longest do.
            part = min(1.0, self.bound / float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high)))))
            low, high = np.minimum(low, part * low), np.maximum(high, part * high)
        low, high = low - center, high - center
        # Weights move rows towards the origin that they are about.
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        if self.has_intercept:
            low, high = np.append(low, 0.0 if self.nonnegative else -1.0), np.append(high, 1.0)
        return found | {"bound_x": None, "box_x": (low, high)}

    @property
    def _constant(self) -> float:
        """About as much as the bound on rows, a power of two, or as what limits are in units of half their widths."""
        return 1.0 if self.box is not None or self.bound is None else 2.0 ** round(math.log2(self.bound))

    def _completed(self, rows: FloatArray, constant: float) -> FloatArray:
        return np.column_stack([rows, np.full(len(rows), constant)]) if self.has_intercept else rows

    def _row_map(self, features: int) -> RowMap:
        bound = math.inf if self.bound is None else self.bound
        if self.box is None:
            return RowMap(bound=bound)
        return RowMap(*self._limits(features), bound, self._center(features))

    def _limits(self, features: int) -> tuple[FloatArray, FloatArray]:
        low, high = limits_of(self.box, features)
        return (np.maximum(low, 0.0), np.maximum(high, 0.0)) if self.nonnegative else (low, high)

    def _center(self, features: int) -> FloatArray:
        """Return the center of rows: the origin if no intercept makes up for another."""
        if self.box is None or self.nonnegative or not self.has_intercept:
            return np.zeros(features)
        low, high = self._limits(features)
        return low / 2.0 + high / 2.0


def least_squares(
    rows: FloatArray, outcomes: FloatArray, ridge: float, roots: FloatArray | None, *, robust: bool
) -> tuple[RidgeSolution, Textbook]:
    """Return the textbook estimator and its errors: rows as they are, no noise.

    `roots`, of shape (n,), holds what the constant of an intercept is in each row, the root of its weight.
    """
    mean_x, mean_y = np.zeros(rows.shape[1]), np.zeros(outcomes.shape[1])
    if roots is not None:
        mean_x, mean_y = (roots @ table / (roots @ roots) for table in (rows, outcomes))
        rows, outcomes = rows - np.outer(roots, mean_x), outcomes - np.outer(roots, mean_y)
    if roots is None:
        textbook = Textbook.of(rows, outcomes, robust=robust)
    else:
        # A constant as long as the rows are on average, so that neither is taken for rounding of the other.
        unit = float(np.linalg.norm(rows)) / math.sqrt(rows.shape[1] * float(roots @ roots)) or 1.0
        functions = np.eye(rows.shape[1] + 1)
        functions[-1] = np.append(-mean_x, unit)
        design, observed = np.column_stack([rows, unit * roots]), outcomes + np.outer(roots, mean_y)
        textbook = Textbook.of(design, observed, functions=functions, robust=robust)
    fitted = rows @ textbook.center[:, : rows.shape[1]].T
    total, rest = np.sum(outcomes**2, axis=0), np.sum((outcomes - fitted) ** 2, axis=0)
    textbook = textbook._replace(r_squared=(total - rest) / np.maximum(total, np.finfo(np.float64).tiny))
    if ridge > 0.0:
        theta = linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ outcomes, assume_a="pos")
    else:
        theta = linalg.lstsq(rows, outcomes)[0]
    return RidgeSolution(theta.T, mean_y - mean_x @ theta, np.zeros_like(theta.T), ridge), textbook
