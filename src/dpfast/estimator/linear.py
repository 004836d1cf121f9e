"""Estimators that predict by a linear function of the features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.estimator.base import PrivateEstimator
from dpfast.estimator.feature_names import rows_to_predict
from dpfast.statistics.rows import RowMap


class LinearEstimator(PrivateEstimator):
    """An estimator with `coef_` and, if it fits one, `intercept_`."""

    coef_: FloatArray
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @quiet
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by what was released.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_outcomes) where there are several
        """
        return self._linear(X)

    def _linear(self, X: ArrayLike) -> FloatArray:
        """Return the linear function of rows, for each row of coefficients: of each on its own, to the bit.

        A score of held-out people counts on that (dpfast.selection): beside other rows none is predicted otherwise.
        """
        check_is_fitted(self)
        row_map = RowMap(basis=np.ascontiguousarray(np.atleast_2d(self.coef_).T))
        blocks = (block for block, _ in io.blocks(X)) if io.is_sparse(X) else [X]
        products = np.concatenate([row_map(rows_to_predict(self, block)) for block in blocks])
        return (products if self.coef_.ndim == 2 else products[:, 0]) + getattr(self, "intercept_", 0.0)
