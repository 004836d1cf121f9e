"""What is public of records on a support of few features, with coefficients ``|theta_j| <= 1``.

The support is chosen (releases/selection.py), then the coefficients on it are those of objective perturbation over that
box (releases/minimisers.py), from exact moments. Both see the same bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfast.privacy.objective import SplitCost
from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.solvers import Box, SquaredLoss
from dpfast.statistics import Grid, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap

#: Root mean square of a coefficient that convexity is chosen for.
USUAL_COEFFICIENT = 0.5


def top_entries(size: int) -> RowMap:
    """Scale rows so that the L2 norm of their `size` largest entries is within its root: Algorithm 3, step 3.

    (Algorithm 6 divides by the norm of the whole row instead, which shortens rows more than their bound asks for.)
    """
    return RowMap(bound=math.sqrt(size), top=size)


def whole_row_bound(size: int, n_columns: int) -> float:
    """Largest L2 norm of a whole row whose `top_entries` are within their bound: all entries are alike then."""
    return math.sqrt(size) * math.sqrt(n_columns / size) * (1.0 + NORM_SLACK)


def bounds_on_support(
    size: int, n_columns: int, bound_x: float | None, bound_y: float, n_rows: int | None
) -> ObjectiveBounds:
    """Bound records restricted to any support, once rows of `n_columns` are rounded to their grid.

    The rows have an L2 norm within `bound_x`; without one they were mapped by `top_entries` and summed within
    `whole_row_bound`.
    """
    if bound_x is not None:
        length = rounded_bound(bound_x, n_columns)
    else:
        unit = 2.0 ** -Grid.for_bounds(whole_row_bound(size, n_columns)).exponent_x
        length = math.sqrt(size) * (1.0 + NORM_SLACK + unit) * (1.0 + 2.0**-50)
    return ObjectiveBounds(SquaredLoss(), size, length, rounded_bound(bound_y, 1), Box(1.0), None, n_rows)


def error_of_coefficients(bounds: ObjectiveBounds) -> SplitCost | None:
    """Return what convexity costs where the number of people is private; None where it is not.

    `ObjectiveBounds.expected_excess` then knows no curvature, and weighs for the fewest people. The coefficients that
    are of use have many: their error is in proportion to that of the noise and the pull towards 0 together.
    """
    if bounds.n_rows is not None:
        return None
    return _ErrorOfCoefficients()


@dataclass(frozen=True)
class _ErrorOfCoefficients(SplitCost):
    """Noise, and the pull of convexity towards 0."""

    def __call__(self, deviation: float, convexity: float) -> float:
        return math.hypot(deviation, USUAL_COEFFICIENT * convexity)
