"""What a table of features says of its columns without being read."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dpfast import io


def columns_of(X: Any) -> dict[str, Any]:
    """Return the fitted attributes that scikit-learn gives names and number of the features, where a table has them.

    Parameters
    ----------
    X : table
        Of any kind.

    Returns
    -------
    dict
        ``n_features_in_`` and, where all columns have names, ``feature_names_in_``; empty where the table has no shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.feature_names import columns_of
    >>> columns_of(np.ones((2, 3)))
    {'n_features_in_': 3}
    """
    if isinstance(X, io.EncodedTable):
        names = X.columns.feature_names
        return {"n_features_in_": len(names), "feature_names_in_": np.array(names, dtype=object)}
    if not hasattr(X, "shape"):
        return {}
    probe = BaseEstimator()
    validate_data(probe, X, skip_check_array=True)
    return dict(vars(probe))
