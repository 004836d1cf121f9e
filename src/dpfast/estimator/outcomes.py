"""Tables with outcomes, as scikit-learn has them."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import DataConversionWarning

from dpfast import io
from dpfast.estimator.base import warn


def open_with_outcomes(caller: str, X: Any, Y: Any, *, may_copy: bool = False) -> io.Table:
    """Open a table whose outcomes are in `Y`, or of the pairs that X yields."""
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
