"""From a table to the loss minimised over it: of bounded rows, from moments if these suffice.

The losses belong to the owner of the data; the bounds on their inputs are public. Rows are clipped to `bound_x`, with
the slack of their rounding: of rows on a grid, for moments, or of computed norms, for rows of doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast.releases.objective_bounds import ObjectiveBounds, Penalty, Sizes
from dpfast.solvers import CallableLoss, GeneralisedLinearLoss, SquaredLoss
from dpfast.solvers.constraints import Constraint
from dpfast.solvers.loss_sums import CallableLossSum, GeneralisedLinear, LeastSquares
from dpfast.solvers.smooth_convex import SmoothConvexFunction
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap


@dataclass(frozen=True)
class TableLoss:
    """The loss to sum, and the bounds on rows and outcomes."""

    loss: GeneralisedLinearLoss
    #: Bounds on the L2 norm of a row and on the size of an outcome: longer rows are scaled onto the bound, larger
    #: outcomes clipped, and counts below 0.
    bound_x: float
    bound_y: float = 1.0
    #: Value of a last feature, the same in every row; a power of two, or 0 for none.
    constant: float = 0.0

    def __post_init__(self) -> None:
        check.positive("bound_x", self.bound_x)
        check.positive("bound_y", self.bound_y)

    @property
    def takes_moments(self) -> bool:
        """Whether sums over rows suffice in their place."""
        return isinstance(self.loss, SquaredLoss)

    def sizes(self, n_features: int) -> Sizes:
        """Bound rows with this many features, and outcomes, as they enter the loss."""
        if self.takes_moments:
            row_bound, outcome_bound = rounded_bound(self.bound_x, n_features), rounded_bound(self.bound_y, 1)
        else:
            row_bound, outcome_bound = self.bound_x * (1.0 + NORM_SLACK), self.bound_y
        if self.constant > 0.0:
            row_bound = math.hypot(row_bound, self.constant) * (1.0 + 2.0**-50)
        return Sizes(row_bound=row_bound, outcome_bound=outcome_bound)

    def bounds(
        self, n_parameters: int, constraint: Constraint | None, penalty: Penalty | None, n_rows: int | None
    ) -> ObjectiveBounds:
        """Return the public bounds of an objective with this loss, the constant's parameter among the others."""
        sizes = self.sizes(n_parameters - (self.constant > 0.0))
        return ObjectiveBounds(
            self.loss,
            n_parameters,
            constraint=constraint,
            penalty=penalty,
            n_rows=n_rows,
            constant=self.constant,
            **sizes,
        )

    def of_table(
        self,
        table: io.Table,
        n_threads: int | None = None,
        chosen: Callable[[int], GeneralisedLinearLoss] | None = None,
    ) -> tuple[list[SmoothConvexFunction], int]:
        """Return the loss for every column of outcomes, and the number of rows.

        `chosen` gives the loss of rows for their number, if the number is not known before.
        """
        if self.takes_moments:
            sums = self.constant > 0.0
            exact = gram(table, bound_x=self.bound_x, bound_y=self.bound_y, sums=sums, n_threads=n_threads)
            return [loss_of_moments(exact, self.sizes(exact.n_features), self.constant)], exact.n_rows
        if table.partitions is not None:
            raise TypeError(
                "a table in parts, as of Dask, is summed, which does for loss='squared' and for descent "
                "(method='gradient') alone: other losses are minimised over rows in memory"
            )
        rows, outcomes = self.bounded(*table.whole(), n_threads)
        own = self if chosen is None else replace(self, loss=chosen(len(rows)))
        return [own.of_rows(rows, column, n_threads) for column in outcomes.T], len(rows)

    def bounded(
        self, rows: NDArray[Any], outcomes: NDArray[Any], n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a copy of rows (n, d), clipped and followed by the constant, and of outcomes (n, k)."""
        n_features = rows.shape[1]
        bounded = np.empty((len(rows), n_features + (self.constant > 0.0)))
        bounded[:, n_features:] = self.constant
        limit, clipped = np.full(1, float(self.bound_y)), np.empty(outcomes.shape)
        least = 0.0 * limit if self.loss.is_of_counts else -limit
        for name, finite in (
            ("X", RowMap(bound=float(self.bound_x)).into(rows, bounded[:, :n_features], n_threads)),
            ("y", RowMap(least, limit).into(outcomes, clipped, n_threads)),
        ):
            if not finite:
                raise ValueError(f"{name} must be finite: it holds NaN or infinity")
        return bounded, clipped

    def of_rows(
        self, rows: FloatArray, outcomes: FloatArray, n_threads: int | None = None
    ) -> GeneralisedLinear | CallableLossSum:
        """Return the loss of rows and outcomes that are `bounded`."""
        sizes = self.sizes(rows.shape[1] - (self.constant > 0.0))
        return loss_of_rows(rows, outcomes, self.loss, sizes, n_threads)


def loss_of_rows(
    rows: FloatArray,
    outcomes: FloatArray,
    loss: GeneralisedLinearLoss,
    sizes: Sizes,
    n_threads: int | None = None,
) -> GeneralisedLinear | CallableLossSum:
    """Return the sum of losses of rows and outcomes within bounds."""
    if len(rows) == 0:
        # A row of zeros adds a constant.
        rows, outcomes = np.zeros((1, rows.shape[1])), np.ones(1)
    if isinstance(loss, CallableLoss):
        return CallableLossSum(rows, outcomes, loss, **sizes)
    return GeneralisedLinear(rows, outcomes, loss, **sizes, n_threads=n_threads)


def loss_of_moments(
    exact: Gram, sizes: Sizes, constant: float = 0.0, *, columns: IntArray | None = None
) -> LeastSquares:
    """Return the sum of squared losses of the rows behind exact sums with one outcome, as they were clipped, rounded.

    With a `constant` as last feature (a power of two) column sums are needed; of some `columns` alone.
    """
    if exact.exact_xy is None or exact.n_outcomes != 1:
        raise ValueError(f"gram must have one outcome, got {exact.n_outcomes}")
    chosen = np.arange(exact.n_features) if columns is None else columns
    xx = exact.exact_xx[np.ix_(chosen, chosen)].to_float64_pair()
    xy = exact.exact_xy[chosen, 0].to_float64_pair()
    if constant > 0.0:
        assert exact.exact_x_sum is not None
        assert exact.exact_y_sum is not None
        x, y = exact.exact_x_sum[chosen].to_float64_pair(), exact.exact_y_sum.to_float64_pair()
        # Products with the constant are exact, and the number of rows is a double.
        corners = constant**2 * exact.n_rows, 0.0
        xx = _bordered(xx[0], constant * x[0], corners[0]), _bordered(xx[1], constant * x[1], corners[1])
        xy = np.append(xy[0], constant * y[0]), np.append(xy[1], constant * y[1])
    return LeastSquares(xx, xy, n_rows=max(exact.n_rows, 1), **sizes)


def _bordered(matrix: FloatArray, border: FloatArray, corner: float) -> FloatArray:
    """Append a row and the same column to a symmetric matrix."""
    return np.block([[matrix, border[:, np.newaxis]], [border[np.newaxis, :], np.full((1, 1), corner)]])
