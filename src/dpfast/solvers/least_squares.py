"""Sums of squared losses, known by the moments of their rows: sum_i (y_i - x_i'theta)^2/2 but for a constant.

Moments are sums of two doubles, and so are gradients: the rounding of a moment to one double would move the minimiser
by more than what else is lost, in proportion to the number of rows.
"""

from __future__ import annotations

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import quadratic_step
from dpfast.kernels.columns import in_c_order
from dpfast.solvers.constraints import finite_array, in_range
from dpfast.solvers.proximal_bounds import ROUND_UP, UNIT, QuadraticBounds
from dpfast.solvers.quadratic_faces import normalised

Pair = tuple[FloatArray, FloatArray]


class LeastSquaresBounds:
    """What is known of a sum of squared losses without its moments: the constants of a `LeastSquares`.

    Parameters
    ----------
    n_rows : int
        Number of rows, or an upper bound on it.
    n : int
        Number of features.
    row_bound, outcome_bound : float
        Upper bounds on the L2 norm of the rows and on the size of outcomes. Not verified.
    """

    def __init__(self, n_rows: int, n: int, *, row_bound: float, outcome_bound: float) -> None:
        self._n_rows = check.positive_integer("n_rows", n_rows)
        self.n = check.positive_integer("n", n)
        self.row_bound = in_range("row_bound", row_bound)
        self.outcome_bound = in_range("outcome_bound", outcome_bound)

    @property
    def strong_convexity(self) -> float:
        """0: rows may be anything."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """n_rows row_bound^2."""
        return self._n_rows * self.row_bound**2 * ROUND_UP

    def gradient_bound(self, norm: float) -> float:
        """n_rows row_bound (row_bound norm + outcome_bound)."""
        return self._n_rows * self.row_bound * (self.row_bound * norm + self.outcome_bound) * ROUND_UP

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of `gradient` where ||x|| <= norm.

        Besides that of the product with the rounded moments: of the product with what rounding took from them, in
        double (the L2 norm of the entries' magnitudes is at most their trace), of what is left out and of two sums.
        """
        linear = self._n_rows * self.row_bound * self.outcome_bound * ROUND_UP
        image = self.smoothness * norm
        product = QuadraticBounds(
            n=self.n,
            strong_convexity=0.0,
            smoothness=self.smoothness,
            norm=norm,
            weight=0.0,
            image=image,
            n_columns=0,
        ).gradient_error(norm, linear)
        return (product + UNIT**2 * ((self.n + 32.0) * image + 32.0 * linear)) * ROUND_UP


class LeastSquares(LeastSquaresBounds):
    """Sum over rows of (y_i - x_i'theta)^2/2, up to a constant.

    Parameters
    ----------
    xx : tuple of two ndarrays of shape (n, n)
        Sum of x x', symmetric, as the sum of both: the nearest doubles first, then what rounding took, to its nearest.
    xy : tuple of two ndarrays of shape (n,)
        Sum of x y, likewise.
    n_rows, row_bound, outcome_bound
        As for `LeastSquaresBounds`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import Box, LeastSquares, minimise_smooth
    >>> zeros = np.zeros((2, 2)), np.zeros(2)
    >>> moments = (np.diag([1.0, 4.0]), zeros[0]), (np.array([3.0, 2.0]), zeros[1])
    >>> loss = LeastSquares(*moments, n_rows=5, row_bound=1.0, outcome_bound=1.0)
    >>> minimise_smooth(loss, constraint=Box(1.0), ridge=1.0, tolerance=1e-12).x
    array([1. , 0.4])
    """

    def __init__(self, xx: Pair, xy: Pair, *, n_rows: int, row_bound: float, outcome_bound: float) -> None:
        self._xx, self._xx_rest = (finite_array("xx", part, (2,)) for part in xx)
        self._xy, self._xy_rest = (finite_array("xy", part, (1,)) for part in xy)
        n = len(self._xy)
        if self._xx.shape != (n, n) or not np.array_equal(self._xx, self._xx.T):
            raise ValueError(f"xx must be symmetric, of shape ({n}, {n})")
        super().__init__(n_rows, n, row_bound=row_bound, outcome_bound=outcome_bound)
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
