"""Votes of blocks of rows for features: each block, on its own, says which ones matter there.

Whoever selects sees one block at a time, and whatever it does there, errors included, moves one block's votes at most.
The counts are **not private**: they belong to the owner of the data until noise is added.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import in_own_words, quiet
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads, single_threaded_blas


class Selector(Protocol):
    """A selector of features: any callable with this signature."""

    def __call__(self, X: FloatArray, y: FloatArray, size: int, /) -> Any:
        """Return the indices of at most `size` features, from rows X (n, p) and outcomes y (n,) of one block.

        It is called from several threads at a time, and must not keep, print or log what it sees.
        """


@dataclass(frozen=True)
class LassoSelector:
    """Select the features with the largest coefficients of a lasso: minimise ||y - X theta||^2/2 + penalty ||theta||_1.

    Parameters
    ----------
    penalty : float, optional
        The paper's Lambda, for which it proposes ``4 sigma sqrt(m log p)`` on m rows with errors of standard deviation
        sigma [1]_. By default the path of all penalties is followed until twice as many features as requested have
        entered. That needs no knowledge of sigma; a block may look at its own rows for it.

    References
    ----------
    .. [1] Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization. COLT. Algorithm 6 and
       Lemma 42.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import LassoSelector
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> sorted(LassoSelector()(X, X[:, 4] - X[:, 7], 2).tolist())
    [4, 7]
    """

    penalty: float | None = None

    def __post_init__(self) -> None:
        if self.penalty is not None:
            check.positive("penalty", self.penalty)

    def __call__(self, X: FloatArray, y: FloatArray, size: int, /) -> IntArray:
        """Return the indices of at most `size` features with coefficients other than 0."""
        from sklearn.linear_model import Lasso, lars_path  # takes longer to import than all of dpfast.statistics

        if self.penalty is None:
            coefficients = lars_path(X, y, method="lasso", max_iter=min(2 * size, X.shape[1]))[2][:, -1]
        else:
            coefficients = Lasso(alpha=self.penalty / len(X), fit_intercept=False).fit(X, y).coef_
        largest = np.argsort(-np.abs(coefficients), kind="stable")[:size]
        return np.asarray(largest[coefficients[largest] != 0.0], np.int64)


@quiet
def block_votes(
    X: FloatArray,
    y: FloatArray,
    blocks: IntArray,
    n_blocks: int,
    size: int,
    selector: Selector,
    *,
    n_threads: int | None = None,
) -> IntArray:
    """Count, for every feature, the blocks that selected at most `size` features of theirs. **Not private**.

    A block whose selector raises, or returns anything but at most `size` distinct indices of features, votes for the
    first `size` features; warnings raised meanwhile are not shown. So nothing of a block is seen but its votes. One row
    moves the counts by at most ``2 size`` in the L1 norm and ``sqrt(2 size)`` in the L2 norm; they do not depend on the
    number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import block_votes
    >>> X, blocks = np.eye(4), np.array([0, 0, 1, 1])
    >>> block_votes(X, np.ones(4), blocks, 2, 1, lambda X, y, size: [int(np.argmax(X.sum(axis=0)))])
    array([1, 0, 1, 0])
    """
    n_features = X.shape[1]
    order = np.argsort(blocks, kind="stable")
    ends = np.cumsum(np.bincount(blocks, minlength=n_blocks))
    votes = np.zeros((n_blocks, n_features), bool)
    ranges = RowRanges(n_blocks, 1)

    def vote() -> None:
        for block, _ in ranges:
            rows = order[ends[block - 1] if block else 0 : ends[block]]
            try:
                # What it raises, interrupts too, has seen rows.
                chosen = in_own_words(partial(_chosen, selector, X[rows], y[rows], size), "")
            except (ValueError, MemoryError):
                chosen = np.arange(size)
            votes[block, chosen] = True

    with warnings.catch_warnings(), single_threaded_blas():
        # Set once, around all threads: the filters belong to the process.
        warnings.simplefilter("ignore")
        run_in_threads([vote] * max(1, min(resolve_n_threads(n_threads), n_blocks)), ranges.stop)
    return np.asarray(votes.sum(axis=0, dtype=np.int64))


def check_selector(selector: Selector, n_rows: int, n_features: int, size: int) -> None:
    """Try a selector on a made-up table of the size of a block: its errors may be seen there, but not in a block."""
    if not callable(selector):
        raise TypeError(f"selector must be a callable (X, y, size) -> indices, got {type(selector).__name__}")
    X = np.cos(np.arange(n_rows * n_features, dtype=np.float64) ** 2).reshape(n_rows, n_features)
    y = X[:, :size].sum(axis=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _chosen(selector, X, y, size)
    except Exception as error:
        raise ValueError(
            f"selector must select features of any table: on {n_rows} rows of made-up numbers with {n_features} "
            f"columns, for size={size}, it failed: {error}"
        ) from error


def _chosen(selector: Selector, X: FloatArray, y: FloatArray, size: int) -> IntArray:
    """Return the selected indices, or say what is wrong with them."""
    indices, n_features = np.asarray(selector(X, y, size)), X.shape[1]
    if indices.size == 0:
        return np.empty(0, np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise TypeError(f"a vector of integers was expected, got dtype {indices.dtype} and shape {indices.shape}")
    if len(indices) > size or len(np.unique(indices)) < len(indices):
        raise ValueError(f"at most {size} distinct indices were expected, got {len(indices)}")
    if indices.min() < 0 or indices.max() >= n_features:
        raise ValueError(f"indices from 0 to {n_features - 1} were expected")
    return indices.astype(np.int64)
