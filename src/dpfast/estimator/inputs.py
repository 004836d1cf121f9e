"""The inputs of a fit, as in scikit-learn: tables with outcomes, names of columns, rows to predict from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from dpfast import _arguments as check
from dpfast import io
from dpfast._redacted import in_own_words
from dpfast.estimator.base import warn
from dpfast.io.arrays import borrowed
from dpfast.io.blocks import column_names, outcome_names_of
from dpfast.io.sources import check_listed

Declared = TypeVar("Declared")

_NO_NUMBERS = (
    "X must hold numbers, none of them missing: of columns of text, booleans or missing values that were declared, "
    "dpfast.io.Columns.transform makes them"
)


def columns_of(X: Any) -> dict[str, Any]:
    """Return scikit-learn's fitted attributes with names and number of the features, if a table has them.

    Parameters
    ----------
    X : table
        Of any kind.

    Returns
    -------
    dict
        ``n_features_in_`` and, if all columns have names, ``feature_names_in_``; empty if the table has no shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.estimator.inputs import columns_of
    >>> columns_of(np.ones((2, 3)))
    {'n_features_in_': 3}
    """
    if isinstance(X, io.EncodedTable):
        return _named(X.columns.feature_names)
    if isinstance(X, io.Partitions):
        return {"n_features_in_": X.n_features} if X.feature_names is None else _named(X.feature_names)
    if io.is_arrow(X):
        found = io.stream_names(X)
        return {} if found is None else _named(found)
    if io.is_dask(X) and hasattr(X, "shape"):
        if not hasattr(X, "columns"):
            # The empty array that an array keeps of its own kind has no columns.
            return {"n_features_in_": X.shape[1]}
        # A frame has names, and scikit-learn finds them on the empty frame that it keeps.
        X = X._meta
    if type(X) is np.ndarray and X.ndim == 2:
        return {"n_features_in_": X.shape[1]}
    if not hasattr(X, "shape"):
        return {}
    probe = BaseEstimator()
    validate_data(probe, X, skip_check_array=True)
    return dict(vars(probe))


def _named(names: Sequence[str]) -> dict[str, Any]:
    return {"n_features_in_": len(names), "feature_names_in_": np.array(names, dtype=object)}


def rows_to_predict(estimator: BaseEstimator, X: Any) -> NDArray[np.float64]:
    """Return rows as a fitted estimator can use them, refused without a word of their entries.

    Parameters
    ----------
    estimator : BaseEstimator
        Fitted.
    X : array_like, sparse matrix or DataFrame of shape (n_rows, n_features)
        Finite numbers.

    Returns
    -------
    ndarray of shape (n_rows, n_features)

    Raises
    ------
    ValueError
        If X is not two-dimensional, holds anything but finite real numbers, or has other columns than the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.estimator.inputs import rows_to_predict
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0).fit(np.eye(3), np.ones(3))
    >>> rows_to_predict(model, [[1, 2, 3]])
    array([[1., 2., 3.]])
    """
    if isinstance(X, (str, PathLike, io.EncodedTable)):
        raise TypeError(f"X must be rows of numbers, got {type(X).__name__}: dpfast.io.Columns.transform makes them")
    X = io.in_memory(X, "X", may_copy=True) if io.is_sparse(X) else borrowed(X, "X")
    is_numeric = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim == 2
    if not is_numeric:
        array = in_own_words(lambda: np.asarray(X), "X must be a table of numbers, with rows of one length")
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: X.reshape(-1, 1) if it has a "
                "single feature, X.reshape(1, -1) if it is a single row"
            )
        if array.dtype.kind == "c":
            raise ValueError("Complex data not supported: X must hold real numbers")
        in_own_words(lambda: array.astype(np.float64), _NO_NUMBERS)
    # No rows are rows too: how many there are may be private.
    rows: NDArray[np.float64] = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_min_samples=0)
    return rows


def outcomes_of(X: Any, Y: Any) -> dict[str, Any]:
    """Return ``outcome_names_in_``, the names of the columns of outcomes, if all have one; empty otherwise.

    Parameters
    ----------
    X, Y : table
        Of any kind; outcomes that are declared with the features are in X.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast.estimator.inputs import outcomes_of
    >>> outcomes_of(None, pd.Series([1.0], name="days"))["outcome_names_in_"]
    array(['days'], dtype=object)
    """
    names = X.outcome_names if Y is None and isinstance(X, io.Partitions) else outcome_names_of(X, Y)
    return {} if names is None else {"outcome_names_in_": np.array(names, dtype=object)}


def limits_by_name(argument: str, given: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return limits (low, high) by the names of columns, once they have been checked."""
    check.by_name(argument, given)
    return {name: check.limits(f"{argument}[{name!r}]", pair) for name, pair in given.items()}


def in_order_of(
    argument: str, given: Mapping[str, Declared], what: str, table: Any, names: Sequence[str] | None
) -> dict[str, Declared]:
    """Return declarations by name in the order of a table's columns: all of them, and no other.

    No message has a name of the table's, which may be a person's: of a file without a line of names, say.
    """
    if names is None:
        # Of files and lists, whose columns estimators name by their places.
        is_listed = isinstance(table, list | tuple) and len(table) > 0
        first = table[0] if is_listed else table
        if is_listed:
            check_listed(first, what)
        names = column_names(first, what)
    if names is None:
        raise ValueError(
            f"{argument} is declared by name, and the columns of {what} have no names that are all text: pass a data "
            "frame or another table with names, or declare a sequence in the order of the columns"
        )
    lacking = [name for name in given if name not in names]
    if lacking:
        raise ValueError(
            f"{argument} has names that {what} lacks: {', '.join(map(repr, lacking))}. They must be those of its "
            "columns, letter by letter"
        )
    if len(given) < len(names):
        raise ValueError(
            f"{argument} must have every column of {what}, once: it has {len(given)}, and {what} has {len(names)}"
        )
    return {name: given[name] for name in names}


def open_with_outcomes(caller: str, X: Any, Y: Any, *, may_copy: bool = False) -> io.Table:
    """Open a table with its outcomes in `Y`, or with pairs from X."""
    table = io.open_table(X, Y, may_copy=may_copy)
    if table.n_outcomes == 0:
        raise ValueError(f"{caller} requires y to be passed, but the target y is None")
    return table


def open_with_outcome(caller: str, X: Any, y: Any, *, may_copy: bool = False, or_more: bool = False) -> io.Table:
    """Open a table whose outcomes are one column, `or_more`."""
    table = open_with_outcomes(caller, X, y, may_copy=may_copy)
    if table.n_outcomes > 1 and or_more:
        return table
    if table.n_outcomes > 1:
        raise ValueError(f"y must have one column, got {table.n_outcomes}")
    if getattr(y, "ndim", 1) == 2:
        warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning)
    return table


def check_people(groups: object, max_rows: object) -> bool:
    """Return whether people have several rows; refuse one of `groups` and `max_rows` without the other."""
    if groups is None and max_rows is None:
        return False
    if groups is None or max_rows is None:
        raise ValueError("groups and max_rows go together: whose each row is, and how many of a person's count")
    check.positive_integer("max_rows", max_rows)
    return True
