"""Sums of losses over rows, and their constants known without the rows.

Gradients are sums of two doubles, so the certified distance is not limited by the number of rows:

- `GeneralisedLinear` sums in twice the working precision (kernels/generalised_linear.c).
- `CallableLossSum` evaluates slopes in double precision; their rounding error in a gradient is bounded from the
  declared error of a slope and the norm of the rows. The sum of slopes times rows is taken in twice the precision: it
  is the gradient at 0 of squared losses whose outcomes are minus the slopes.
- `LeastSquares` knows the moments of the rows, each as the sum of two doubles: rounding a moment to one double would be
  the largest error of the minimiser, in proportion to the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads, single_threaded_blas
from dpfast.kernels import generalised_linear, quadratic_step
from dpfast.kernels.columns import in_c_order
from dpfast.solvers.arrays import ROUND_UP, UNIT, finite_array, normalised, sum_of_pairs
from dpfast.solvers.certificates import QuadraticBounds
from dpfast.solvers.constraints import in_range
from dpfast.solvers.losses import CallableLoss, GeneralisedLinearLoss, SquaredLoss

Pair = tuple[FloatArray, FloatArray]

# Sums over rows are taken over fixed parts of the table, whatever the threads, in order.
_PARTS = 16
_ROWS_PER_PART = 1024
_DOUBLES_PER_THREAD = 200_000


@dataclass(eq=False)
class LossBounds:
    """Constants of a sum of losses, used without the sum.

    `n_rows` is the number of rows or an upper bound on it; `row_bound` and `outcome_bound` bound the L2 norm of rows
    and the size of outcomes, and are not verified. `by_moments`: a squared loss that is known by moments.
    """

    n_rows: int
    n: int
    loss: GeneralisedLinearLoss
    _: KW_ONLY
    row_bound: float
    outcome_bound: float = 1.0
    by_moments: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, GeneralisedLinearLoss):
            raise TypeError(f"loss must be a GeneralisedLinearLoss, got {type(self.loss).__name__}")
        self.n_rows, self.n = check.positive_integer("n_rows", self.n_rows), check.positive_integer("n", self.n)
        self.row_bound = in_range("row_bound", self.row_bound)
        self.outcome_bound = in_range("outcome_bound", self.outcome_bound)

    @property
    def strong_convexity(self) -> float:
        """0: rows may be anything."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """n_rows row_bound^2 times the loss's largest second derivative."""
        return float(self.n_rows) * self.row_bound**2 * self.loss.second_derivative_bound() * ROUND_UP

    def gradient_bound(self, norm: float) -> float:
        """n_rows row_bound times the loss's largest derivative where ||x|| <= norm."""
        slope = self.loss.derivative_bound(self.row_bound * norm, self.outcome_bound)
        return self.n_rows * self.row_bound * slope * ROUND_UP

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of a computed gradient where ||x|| <= norm."""
        if self.by_moments:
            return self._error_of_moments(norm)
        if isinstance(self.loss, CallableLoss):
            # Of an inner product of n doubles in any order, and of x, a sum of two, rounded to one.
            of_predictions = 1.1 * UNIT * (self.n + 2.0) * self.row_bound * norm
            of_slopes = self.loss.curvature_bound * of_predictions + self.loss.slope_error
            return (self.n_rows * self.row_bound * of_slopes + self._error_of_sums(0.0)) * ROUND_UP
        return self._error_of_sums(norm)

    def _error_of_sums(self, norm: float) -> float:
        """Of predictions, derivatives and sums in twice the precision."""
        reach = self.row_bound * norm
        slope = self.loss.derivative_bound(reach, self.outcome_bound)
        curvature = self.loss.second_derivative_bound()
        of_predictions = UNIT**2 * 1.1 * ((self.n / 8 + 4) ** 2 + 40) * reach
        scales = reach + self.outcome_bound + 1.0 + sum(map(abs, self.loss.parameters().values()))
        of_derivatives = curvature * (of_predictions + 2.0**-100 * scales) + 2.0**-85 * slope
        of_sums = UNIT**2 * (1.1 * 1026.0**2 + 3.1 * (self.n_rows / 1024 + 2 + _PARTS)) * slope
        return self.n_rows * self.row_bound * (of_derivatives + of_sums) * ROUND_UP

    def _error_of_moments(self, norm: float) -> float:
        """Error of the products with the rounded moments and with their rounding errors.

        The second product is in double (the L2 norm of the entries' magnitudes is at most their trace). Added are the
        errors of omitted terms and of two sums.
        """
        linear = self.n_rows * self.row_bound * self.outcome_bound * ROUND_UP
        image = self.smoothness * norm
        bounds = QuadraticBounds(self.n, 0.0, self.smoothness, norm, 0.0, image, n_columns=0)
        rest = UNIT**2 * ((self.n + 32.0) * image + 32.0 * linear)
        return (bounds.gradient_error(norm, linear) + rest) * ROUND_UP


class _RowLosses(LossBounds):
    """Rows and outcomes, checked."""

    def __init__(
        self,
        rows: ArrayLike,
        outcomes: ArrayLike,
        loss: GeneralisedLinearLoss,
        *,
        row_bound: float,
        outcome_bound: float = 1.0,
    ) -> None:
        self._rows, self._outcomes = finite_array("rows", rows, (2,)), finite_array("outcomes", outcomes, (1,))
        if len(self._rows) != len(self._outcomes):
            raise ValueError("rows and outcomes must be equally many")
        n_rows, n = self._rows.shape
        super().__init__(n_rows, n, loss, row_bound=row_bound, outcome_bound=outcome_bound)
        weights = np.abs(self._outcomes)
        if loss.is_classification and not (weights <= 1.0).all():
            raise ValueError("outcomes must be from -1 to 1 for a loss of classification")
        if loss.is_of_counts and (self._outcomes < 0.0).any():
            raise ValueError("outcomes must be 0 or more for a loss of counts")


class GeneralisedLinear(_RowLosses):
    """Sum over rows of a generalised linear loss, sum_i v_i l(x_i'theta, y_i); results do not depend on threads.

    The weights v_i, if any, are 0 or more, and at most 1 for `gradient_error` and the like.
    """

    def __init__(
        self,
        rows: ArrayLike,
        outcomes: ArrayLike,
        loss: GeneralisedLinearLoss,
        *,
        row_bound: float,
        outcome_bound: float = 1.0,
        n_threads: int | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        super().__init__(rows, outcomes, loss, row_bound=row_bound, outcome_bound=outcome_bound)
        parameters: dict[str, Any] = {**loss.parameters()}
        own = None if weights is None else finite_array("weights", weights, (1,))
        if own is not None and (own.shape != self._outcomes.shape or (own < 0.0).any()):
            raise ValueError("weights must be 0 or more, one for each row")
        self._sums = generalised_linear.LossSums(self._rows, self._outcomes, own, kind=loss.kind, **parameters)
        threads = resolve_n_threads(n_threads)
        self._n_threads = max(1, min(threads, self._rows.size // _DOUBLES_PER_THREAD, _PARTS))
        n_parts = max(1, min(_PARTS, self.n_rows // _ROWS_PER_PART))
        self._parts = [self.n_rows * part // n_parts for part in range(n_parts + 1)]

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient in twice the working precision, of shape (2, n)."""
        parts = np.empty((len(self._parts) - 1, 2, self.n))

        def add(part: int, start: int, stop: int) -> None:
            self._sums.precise_gradient(x, start, stop, parts[part])

        self._over_parts(add)
        return reduce(sum_of_pairs, parts)

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian in one pass, to working precision."""
        shape, n = (len(self._parts) - 1,), self.n
        values, gradients, hessians = np.empty(shape), np.empty((*shape, n)), np.empty((*shape, n, n))

        def add(part: int, start: int, stop: int) -> None:
            values[part] = self._sums.model(x, start, stop, gradients[part], hessians[part])

        self._over_parts(add)
        upper = np.triu(hessians.sum(axis=0))
        return float(values.sum()), gradients.sum(axis=0), upper + np.triu(upper, 1).T

    def _over_parts(self, add: Callable[[int, int, int], None]) -> None:
        ranges = RowRanges(len(self._parts) - 1, 1)

        def work() -> None:
            for part, _ in ranges:
                add(part, self._parts[part], self._parts[part + 1])

        with single_threaded_blas():
            run_in_threads([work] * self._n_threads, ranges.stop)


class CallableLossSum(_RowLosses):
    """Sum over rows of a loss given by functions."""

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient at the nearest array of doubles, of shape (2, n)."""
        slopes = self.loss.derivative(self._rows @ (x[0] + x[1]), self._outcomes)
        total = np.empty((2, self.n))
        sums = generalised_linear.LossSums(self._rows, -slopes, kind="squared")
        sums.precise_gradient(np.zeros((2, self.n)), 0, len(slopes), total)
        return total

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, to working precision."""
        at = self._rows @ x, self._outcomes
        weights, slopes = self.loss.second_derivative(*at), self.loss.derivative(*at)
        hessian = self._rows.T @ (weights[:, np.newaxis] * self._rows)
        return float(np.sum(self.loss.value(*at))), self._rows.T @ slopes, 0.5 * (hessian + hessian.T)


class LeastSquares(LossBounds):
    """Sum over rows of (y_i - x_i'theta)^2/2 up to a constant, by moments.

    `xx` is the sum of x x', symmetric, `xy` that of x y. Each is a sum of two arrays: first the nearest doubles, then
    the rounding error, itself rounded.
    """

    def __init__(self, xx: Pair, xy: Pair, *, n_rows: int, row_bound: float, outcome_bound: float) -> None:
        self._xx, self._xx_rest = (finite_array("xx", part, (2,)) for part in xx)
        self._xy, self._xy_rest = (finite_array("xy", part, (1,)) for part in xy)
        n = len(self._xy)
        if self._xx.shape != (n, n) or not np.array_equal(self._xx, self._xx.T):
            raise ValueError(f"xx must be symmetric, of shape ({n}, {n})")
        super().__init__(n_rows, n, SquaredLoss(), row_bound=row_bound, outcome_bound=outcome_bound, by_moments=True)
        self._product = quadratic_step.QuadraticSteps(
            self._xx, None, -self._xy, diagonal=(0.0, 0.0), weight=0.0, step=1.0, set_name="whole_space"
        )

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient in twice the working precision, of shape (2, n)."""
        product = np.empty_like(x)
        self._product.gradient(in_c_order(x), product)
        total = normalised(product[0], self._xx_rest @ x[0] - self._xy_rest)
        return normalised(total[0], total[1] + product[1])

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, to working precision."""
        image = self._xx @ x
        return float(x @ (0.5 * image - self._xy)), image - self._xy, self._xx
