"""Ridge and principal-component coefficients from rows as they are, for data that no noise is added to."""

from __future__ import annotations

import numpy as np

from dpfast._arrays import FloatArray


def ridge_from_rows(
    rows: FloatArray, outcomes: FloatArray, penalty: float, n_components: int | None = None
) -> FloatArray:
    """Solve (X'X + penalty I) theta = X'Y by the singular values of X, which keeps the accuracy that X'X loses.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        X.
    outcomes : ndarray of shape (n, l)
        Y.
    penalty : float
        At 0 the minimum-norm solution is taken.
    n_components : int, optional
        Keep the largest so many singular values of X: hard singular value thresholding [1]_.

    Returns
    -------
    ndarray of shape (d, l)
        theta.

    References
    ----------
    .. [1] Amjad, M., Shah, D., Shen, D. (2018). Robust Synthetic Control. JMLR 19, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import ridge_from_rows
    >>> ridge_from_rows(np.diag([2.0, 1.0]), np.eye(2), 0.0, n_components=1).round(6).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    # What rounding can leave of a zero: the cut-off of the usual pseudo-inverses.
    kept = singular > max(rows.shape) * np.finfo(np.float64).eps * singular[0]
    if n_components is not None:
        kept[n_components:] = False
    gain = np.divide(singular, singular**2 + penalty, out=np.zeros_like(singular), where=kept)
    theta: FloatArray = (right.T * gain) @ (left.T @ outcomes)
    return theta
