"""How much each donor moves a synthetic control: every leave-one-out fit at once, in closed form.

Write mu = lambda/2, K = X'X + mu I and factor [X; sqrt(mu) I] = [W; B] R with orthonormal columns, by Householder QR:
K would square the condition number. Then X K^-1 X' = W W', the weights are f = W R^-T y, the leverage of donor i is
h_i = ||w_i||^2, and leaving out row i (a downdate of K by rank one) turns f_j into f_j + w_j'w_i f_i/(1 - h_i). Hence
one triangular solve over X gives all n fits: O(n T0^2) instead of O(n^2 T0^2).

1 - h_i and the like cancel where a donor dominates. Since the leverages add up to less than T0, fewer than 2 T0 donors
have one above 1/2, and for those the sums over the other donors can be written out within the same cost:
1 - h_i = (sum_{j != i} (w_j'w_i)^2 + ||B w_i||^2)/h_i, which adds only nonnegative numbers.

With fewer donors than periods every leverage may come close to 1. There A = XX' + mu I is the smaller matrix, and
I - X K^-1 X' = mu A^-1 takes the place of the differences: f_j becomes f_j - (A^-1)_ji f_i/(A^-1)_ii.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas


@dataclass(frozen=True, repr=False)
class Influence:
    """The effect of each donor on a synthetic control.

    The data owner's: not private.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Of all donors together.
    prediction : ndarray of shape (n_post,)
        Of all donors together.
    leverage : ndarray of shape (n,)
        x_i'(X'X + lambda/2 I)^-1 x_i, in [0, 1); they add up to the effective degrees of freedom.
    weights_change : ndarray of shape (n,)
        L2 norm by which the vector of weights changes when donor i leaves, its own weight becoming 0.
    prediction_change : ndarray of shape (n, n_post)
        Prediction without donor i minus prediction with all.
    """

    weights: FloatArray
    prediction: FloatArray
    leverage: FloatArray
    weights_change: FloatArray
    prediction_change: FloatArray
    _rows: FloatArray = field(compare=False)
    _pull: FloatArray = field(compare=False)

    def weights_without(self, donor: int) -> FloatArray:
        """Return the weights refitted without one donor, given by its position; its own entry is 0."""
        donor = check.integer("donor", donor)
        if not 0 <= donor < len(self.weights):
            raise ValueError(f"donor must lie in [0, {len(self.weights)}), got {donor}")
        refitted: FloatArray = self.weights + self._pull[donor] * (self._rows @ self._rows[donor])
        refitted[donor] = 0.0
        return refitted

    def __repr__(self) -> str:
        donors, periods = self.prediction_change.shape
        return f"<Influence of {donors} donors on {periods} predicted periods: not private>"


def influence(donors: Any, n_pre: int, target_pre: ArrayLike, *, ridge: float | None = None) -> Influence:
    """Change in weights and prediction when each donor leaves, for ridge synthetic control without privacy.

    Privacy: none. The result depends on every donor. It is for the data owner alone, and shows whom a release will have
    to hide.

    Parameters
    ----------
    donors : array or DataFrame of shape (n, n_periods)
        Donors' outcomes, a row each; used as they are, neither clipped nor scaled.
    n_pre : int
        Periods before the intervention.
    target_pre : array of shape (n_pre,)
        The target's outcomes before the intervention.
    ridge : float, optional
        The paper's lambda, positive: lambda/2 is added to the diagonal of X'X. By default `n_pre`, the paper's
        guidance.

    Returns
    -------
    Influence
        Equal to n refits. Where donors are collinear before the intervention, rounding errors are multiplied by up to
        ||X||/sqrt(lambda/2), since nothing but the ridge then settles the weights.

    Raises
    ------
    ValueError, TypeError
        If the donors are no table of finite numbers, periods do not fit, or an argument is out of its range.

    References
    ----------
    Cook, R. D., Weisberg, S. (1982). Residuals and Influence in Regression. Section 2.2 (leave-one-out formula).
    Rho, S., Cummings, R., Misra, V. (2023). Differentially Private Synthetic Control. AISTATS. Equation (4) (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import influence
    >>> donors = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    >>> moved = influence(donors, 2, [1.0, 2.0], ridge=0.1)
    >>> moved
    <Influence of 3 donors on 1 predicted periods: not private>
    >>> moved.weights_change.round(1)
    array([1.1, 0.5, 0.5])
    """
    pre, post = _split(donors, check.positive_integer("n_pre", n_pre))
    target = np.asarray(io.zero_copy_view(target_pre, "target_pre"), np.float64)
    if target.shape != (pre.shape[1],) or not np.all(np.isfinite(target)):
        raise ValueError(f"target_pre must be {pre.shape[1]} finite numbers, one a period before the intervention")
    mu = check.positive("ridge", float(n_pre) if ridge is None else ridge) / 2.0
    with single_threaded_blas():
        return (_more_donors if pre.shape[0] > pre.shape[1] else _more_periods)(pre, post, target, mu)


def _split(donors: Any, n_pre: int) -> tuple[FloatArray, FloatArray]:
    table = np.asarray(io.zero_copy_view(donors, "donors"), np.float64)
    if table.ndim != 2 or len(table) == 0 or not np.all(np.isfinite(table)):
        raise ValueError("donors must be a table of finite numbers, a row a donor, with at least one row")
    if n_pre >= table.shape[1]:
        raise ValueError(f"n_pre must leave a period after the intervention: got {n_pre} of {table.shape[1]} periods")
    return table[:, :n_pre], table[:, n_pre:]


def _more_donors(pre: FloatArray, post: FloatArray, target: FloatArray, mu: float) -> Influence:
    from scipy import linalg

    triangle, rows, rest = _orthonormal(pre, mu)
    half = linalg.solve_triangular(triangle, target, trans="T", check_finite=False)
    cross = rows.T @ post
    weights = rows @ half
    leverage = _squared_norms(rows)
    others = np.einsum("ij,ij->i", rows @ (rows.T @ rows), rows) - leverage**2
    remainder = 1.0 - leverage
    residual = post - rows @ cross

    high = np.flatnonzero(leverage > 0.5)
    products = rows[high] @ rows.T
    products[np.arange(high.size), high] = 0.0
    others[high] = _squared_norms(products)
    remainder[high] = (others[high] + _squared_norms(rows[high] @ rest.T)) / leverage[high]
    residual[high] = remainder[high, None] * post[high] - products @ post

    pull = weights / remainder
    return Influence(
        weights=weights,
        prediction=cross.T @ half,
        leverage=leverage,
        weights_change=np.sqrt(weights**2 + pull**2 * np.maximum(others, 0.0)),
        prediction_change=-pull[:, None] * residual,
        _rows=rows,
        _pull=pull,
    )


def _more_periods(pre: FloatArray, post: FloatArray, target: FloatArray, mu: float) -> Influence:
    from scipy import linalg

    triangle, columns, rest = _orthonormal(pre.T, mu)
    weights = linalg.solve_triangular(triangle, columns.T @ target, check_finite=False)
    # The inverse of the triangle, so that (XX' + mu I)^-1 = rows rows'.
    rows = rest / np.sqrt(mu)
    inverse = rows @ rows.T
    pull = -weights / np.diagonal(inverse)
    return Influence(
        weights=weights,
        prediction=post.T @ weights,
        leverage=1.0 - _squared_norms(rest),
        weights_change=np.abs(pull) * np.sqrt(_squared_norms(inverse)),
        prediction_change=pull[:, None] * (inverse @ post),
        _rows=rows,
        _pull=pull,
    )


def _orthonormal(matrix: FloatArray, mu: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return R, M R^-1 and sqrt(mu) R^-1 for a matrix M, where R'R = M'M + mu I."""
    from scipy import linalg

    stacked = np.concatenate([matrix, np.sqrt(mu) * np.eye(matrix.shape[1])])
    triangle: FloatArray = linalg.qr(stacked, mode="r", check_finite=False)[0][: matrix.shape[1]]
    columns: FloatArray = linalg.solve_triangular(triangle, stacked.T, trans="T", check_finite=False).T
    return triangle, columns[: len(matrix)], columns[len(matrix) :]


def _squared_norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
