"""Generalised linear losses given by Python functions, and sums of them over rows.

Losses and slopes are evaluated in double precision; what rounding there may add to a gradient is bounded from the
declared error of a slope and the length of the rows. The sum of slopes times rows is taken in twice the precision: it
is the gradient at 0 of squared losses whose outcomes are minus the slopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import generalised_linear
from dpfast.solvers.constraints import finite_array
from dpfast.solvers.losses import GeneralisedLinearLoss
from dpfast.solvers.proximal_bounds import ROUND_UP, UNIT
from dpfast.solvers.smooth_convex import GeneralisedLinearBounds

LossFunction = Callable[[FloatArray, FloatArray], ArrayLike]


@dataclass(frozen=True, eq=False)
class CallableLoss(GeneralisedLinearLoss):
    """A loss l(z, y) given by functions of arrays of predictions and outcomes.

    It must be convex and twice continuously differentiable in z, and keep to its bounds, wherever predictions and
    outcomes may be: privacy rests on that. Nothing of it is verified.

    Parameters
    ----------
    loss, slope, curvature : callable
        From arrays z and y of one shape to l, its derivative in z and its second derivative.
    slope_bound, curvature_bound : float
        Upper bounds on the size of the derivative and on the second derivative, positive.
    slope_error : float, optional
        Upper bound on the error of computed slopes; 2**-48 times their bound if omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import CallableLoss
    >>> loss = CallableLoss(
    ...     lambda z, y: np.sqrt(1.0 + (z - y) ** 2),
    ...     lambda z, y: (z - y) / np.sqrt(1.0 + (z - y) ** 2),
    ...     lambda z, y: (1.0 + (z - y) ** 2) ** -1.5,
    ...     slope_bound=1.0,
    ...     curvature_bound=1.0,
    ... )
    >>> loss.derivative([1.0, -1.0], [1.0, -1.0])
    array([0., 0.])
    """

    loss: LossFunction
    slope: LossFunction
    curvature: LossFunction
    slope_bound: float
    curvature_bound: float
    slope_error: float | None = None

    kind: ClassVar[str] = "callable"
    is_classification: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("loss", "slope", "curvature"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {type(getattr(self, name)).__name__}")
        for name in ("slope_bound", "curvature_bound"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))
        error = 2.0**-48 * self.slope_bound if self.slope_error is None else self.slope_error
        object.__setattr__(self, "slope_error", check.positive("slope_error", error))

    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Loss of each prediction."""
        return _evaluated("loss", self.loss, z, y)

    def derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """First derivative in z."""
        return _evaluated("slope", self.slope, z, y)

    def second_derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Second derivative in z."""
        return _evaluated("curvature", self.curvature, z, y)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return self.slope_bound

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return self.curvature_bound


class CallableLossBounds(GeneralisedLinearBounds):
    """What is known of a sum of losses given by functions without its rows.

    Parameters
    ----------
    n_rows, n, row_bound, outcome_bound
        As for `GeneralisedLinearBounds`.
    loss : CallableLoss
    """

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of `gradient` where ||x|| <= norm: of predictions, slopes and their sum."""
        assert isinstance(self.loss, CallableLoss)
        assert self.loss.slope_error is not None
        # Of an inner product of n doubles in any order, and of x, a sum of two, rounded to one.
        of_predictions = 1.1 * UNIT * (self.n + 2.0) * self.row_bound * norm
        of_slopes = self.loss.curvature_bound * of_predictions + self.loss.slope_error
        return (self._n_rows * self.row_bound * of_slopes + super().gradient_error(0.0)) * ROUND_UP


class CallableLossSum(CallableLossBounds):
    """Sum over rows of a loss given by functions.

    Parameters
    ----------
    rows : array_like of shape (n_rows, n_features)
    outcomes : array_like of shape (n_rows,)
    loss : CallableLoss
    row_bound, outcome_bound
        As for `GeneralisedLinear`.
    """

    def __init__(
        self, rows: ArrayLike, outcomes: ArrayLike, loss: CallableLoss, *, row_bound: float, outcome_bound: float = 1.0
    ) -> None:
        self._rows, self._outcomes = finite_array("rows", rows, (2,)), finite_array("outcomes", outcomes, (1,))
        if len(self._rows) != len(self._outcomes):
            raise ValueError("rows and outcomes must be equally many")
        super().__init__(
            self._rows.shape[0], self._rows.shape[1], loss, row_bound=row_bound, outcome_bound=outcome_bound
        )

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient at the nearest array of doubles, of shape (2, n)."""
        slopes = self.loss.derivative(self._rows @ (x[0] + x[1]), self._outcomes)
        total = np.empty((2, self.n))
        generalised_linear.LossSums(self._rows, -slopes, kind="squared").precise_gradient(
            np.zeros((2, self.n)), 0, len(slopes), total
        )
        return total

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, to working precision."""
        predictions = self._rows @ x
        weights = self.loss.second_derivative(predictions, self._outcomes)
        slopes = self.loss.derivative(predictions, self._outcomes)
        value = float(np.sum(self.loss.value(predictions, self._outcomes)))
        hessian = self._rows.T @ (weights[:, np.newaxis] * self._rows)
        return value, self._rows.T @ slopes, 0.5 * (hessian + hessian.T)


def _evaluated(name: str, function: LossFunction, z: ArrayLike, y: ArrayLike) -> FloatArray:
    predictions, outcomes = (np.asarray(values, np.float64) for values in np.broadcast_arrays(z, y))
    values = np.asarray(function(predictions, outcomes), np.float64)
    if values.shape != predictions.shape:
        raise ValueError(f"{name} must return an array of the shape it was given, {predictions.shape}")
    return values
