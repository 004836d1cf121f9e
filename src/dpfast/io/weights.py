"""Rows that count with a weight: each times the root of its share of the largest weight.

A person's weight w is as private as the row (x, y) that it belongs to, and a part of it. With a declared bound W, the
row enters as (r x, r y) with r = sqrt(min(w, W)/W), so that its squares and products count with the share min(w, W)/W.

Proof that any release stays private. Let T be that map, and M any mechanism that is (epsilon, delta)-private for tables
of rows. T looks at one row and its weight at a time, and at W, which is public: nothing in it depends on another row,
on the sum of the weights or on the largest. So T of two neighbouring tables, in which one person's rows and weights are
replaced, come or go, is two neighbouring tables with the same rows for everybody else, to the bit, and M of them is
private at the same (epsilon, delta). No bound changes: rows are clipped to theirs once they are weighted. As r <= 1,
also in floating point, where roots, products and quotients are rounded monotonously, no weight makes a row longer.

In the units of the weights, the sums are W times larger: the sum of w x x' has the sensitivity sqrt(2) W Bx^2 under
replace-one, that of w x y' has 2 W Bx By. Both are attained, by rows at their bounds that have weight W and are
orthogonal, or opposite in their outcomes: the bounds of rows without weights, times sqrt(W).

How many rows there are stays what it was, public or not; the sum of the weights is private. A mean or an intercept
depends on it: for these a constant column is added to the rows before they are weighted, a public map of each row as
clipping to limits is. It then holds the roots of the weights, within the constant. The sum of their squares, if
released, is released like that of any other column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast._redacted import in_own_words
from dpfast.io.arrays import as_matrix
from dpfast.io.blocks import blocks, in_memory, is_read_once
from dpfast.io.partitions import Partitions
from dpfast.io.sources import is_dask
from dpfast.io.table import Table, are_at_hand, open_table

RowMap = Callable[[Any], FloatArray]


def weighed(
    X: Any,
    Y: Any,
    weights: Any,
    most: float,
    *,
    clips: bool = True,
    may_copy: bool = False,
    row_map: RowMap | None = None,
) -> tuple[Any, Any]:
    """Return a table with weighted rows and outcomes: arrays, or blocks that are weighted as they are read.

    `weights` has one for each row, aligned with it; those beyond `most`, the public bound, count as much as it does,
    unless it `clips` none. Rows pass through a public `row_map` first. ValueError if a weight is not finite or below 0,
    or there is another number of them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.io import weighed
    >>> weighed(np.ones((3, 1)), np.ones(3), [4.0, 1.0, 9.0], 4.0)[0].ravel()
    array([1. , 0.5, 1. ])
    """
    roots = np.sqrt(shares_of(X, Y, weights, most, clips=clips))
    x, y = in_memory(X, "X", may_copy=may_copy), None
    if Y is not None:
        y = in_memory(Y, "Y", is_outcome=True, may_copy=may_copy)
    if x is None or (y is None and Y is not None):
        several = _Weighed(X, Y, roots, row_map)
        return (iter(several) if is_read_once(X) or is_read_once(Y) else several), None
    check_shares(x, roots)
    return _times(_mapped(x, row_map), roots), None if y is None else _times(y, roots)


def shares_of(X: Any, Y: Any, weights: Any, most: float, *, clips: bool = True) -> FloatArray:
    """Return the share of each row's weight of the largest that counts; beyond 1 only where it does not clip."""
    if isinstance(X, Partitions) or is_dask(X) or is_dask(Y) or is_dask(weights):
        raise TypeError("sample_weight goes with tables that are read here, and not with a table in parts")
    column = in_memory(weights, "sample_weight", is_outcome=True, may_copy=True)
    if column is None:
        problem = "sample_weight must be an array with one weight a row"
        column = as_matrix(in_own_words(partial(np.asarray, weights), problem), "sample_weight", is_outcome=True)
    if column.shape[1] != 1:
        raise ValueError("sample_weight must be 1-D, with one weight a row")
    given = column[:, 0].astype(np.float64)
    if not np.all(np.isfinite(given) & (given >= 0.0)):
        raise ValueError("sample_weight must hold finite numbers of at least 0")
    if not clips and not np.any(given):
        # Only where nothing is private: with noise, this would reveal something of all people at no cost.
        raise ValueError("sample_weight must not be zero for all rows")
    return np.asarray((np.minimum(given, most) if clips else given) / most)


def check_shares(rows: Any, shares: FloatArray) -> None:
    """Refuse weights of another number of rows."""
    if len(rows) != len(shares):
        raise ValueError("X and sample_weight have different numbers of rows")


def with_shares(table: Table, shares: FloatArray) -> Table:
    """Return a table in memory, with the shares of its rows as last outcomes."""
    rows, outcomes = table.whole()
    check_shares(rows, shares)
    return open_table(rows, np.column_stack([outcomes, shares]))


class _Weighed:
    """Blocks of weighted rows and outcomes, read anew each time."""

    def __init__(self, X: Any, Y: Any, roots: FloatArray, row_map: RowMap | None) -> None:
        self._tables, self._roots, self._row_map = (X, Y), roots, row_map
        self.is_at_hand = are_at_hand(X, Y)

    def __iter__(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        start = 0
        for x, y in blocks(*self._tables):
            if y is None:
                raise ValueError("Y is needed: outcomes, or labels, of every row")
            roots = self._roots[start : start + len(x)]
            if len(roots) < len(x):
                break
            start += len(x)
            yield _times(_mapped(x, self._row_map), roots), _times(y, roots)
        else:
            if start == len(self._roots):
                return
        raise ValueError("X and sample_weight have different numbers of rows")


def _mapped(rows: Any, row_map: RowMap | None) -> Any:
    return rows if row_map is None else row_map(rows)


def _times(rows: Any, roots: FloatArray) -> FloatArray:
    return np.asarray(np.asarray(rows, np.float64) * roots[:, np.newaxis])
