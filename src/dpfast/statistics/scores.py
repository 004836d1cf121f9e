"""Exact scores of features: sums over people of each entry of their row times what is unexplained of their outcomes.

Entries, at most `entry_bound` in size, are rounded to nearest on a grid of 2^-20 of that bound; residuals, clipped to
an L2 norm of `clip`, on one of 2^-20 of the clip. So every product is an integer below 2^41 in size, sums of 4096 of
them are exact in doubles in any order, fused or not, and blocks of as many rows are added in integers: the sums do not
depend on threads, nor on how the table is cut. Rounding lengthens an entry by half a unit at most, and a residual row
of l entries by sqrt(l)/2: `part_bound` allows for both, so that one person's part in the sums of a feature, a vector of
l numbers, is never longer.

The result for a row depends on that row alone, to the bit: entries and norms come from the kernel of RowMap, all else
goes entry by entry.

And votes of blocks of rows for features: each block, on its own, says which ones matter there. Whoever selects sees one
block at a time, and whatever it does there, errors included, moves one block's votes at most. The counts are **not
private**: they belong to the owner of the data until noise is added.
"""

from __future__ import annotations

import math
import operator
import warnings
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads, single_threaded_blas, threads_for
from dpfast.kernels.columns import FixedPoint, Rows, SparseBlock
from dpfast.statistics.rows import NORM_SLACK, RowMap, clipped_to_norm, grid_exponent

_LOG2_UNITS = 20  # of a bound, on its grid
_BLOCK_ROWS = 4096  # 2**12 products below 2**41 add up to less than 2**53
_BLOCKS = 512  # of less than 2**53 add up to less than 2**62
_ENTRIES_PER_THREAD = 1 << 19
_ROUND_UP = 1.0 + 2.0**-40


def part_bound(entry_bound: float, clip: float, n_outcomes: int) -> float:
    """Return the L2 norm that no person's part in the sums of a feature exceeds, to calibrate with."""
    entry = entry_bound * (1.0 + NORM_SLACK) + math.ldexp(0.5, -grid_exponent(entry_bound, _LOG2_UNITS))
    residual = clip * (1.0 + NORM_SLACK) + math.sqrt(n_outcomes) * math.ldexp(0.5, -grid_exponent(clip, _LOG2_UNITS))
    return entry * residual * _ROUND_UP


def score_error(n_rows: int, part: float, n_outcomes: int) -> float:
    """Bound how far a norm computed of rounded sums over so many rows is from that of the exact ones."""
    return n_rows * part * (n_outcomes + 8) * 2.0**-53


def residual_scores(
    table: io.Table,
    residuals: FloatArray,
    row_map: RowMap,
    entry_bound: float,
    clip: float,
    n_threads: int | None = None,
) -> FixedPoint:
    """Sum x_ij r_i over people i, for all features j: (n_features, n_outcomes). Not private.

    Entries of mapped rows must be within `entry_bound`; `residuals` has a row for each row of the table.
    """
    exponents = grid_exponent(entry_bound, _LOG2_UNITS), grid_exponent(clip, _LOG2_UNITS)
    rounded = np.rint(_in_units(clipped_to_norm(residuals, clip), exponents[1]))
    if not np.isfinite(rounded).all():
        raise check.not_finite("y")
    total, start = FixedPoint.zeros((table.n_features, residuals.shape[1]), -sum(exponents)), 0
    for x, _ in table.blocks():
        if start + len(x) > len(rounded):
            raise ValueError("X gave more rows than before: every pass must read the same table")
        total += _block_scores(x, rounded[start : start + len(x)], row_map, exponents, n_threads)
        start += len(x)
    if start != len(rounded):
        raise ValueError("X gave fewer rows than before: every pass must read the same table")
    return total


def _block_scores(
    x: Rows, rounded: FloatArray, row_map: RowMap, exponents: tuple[int, int], n_threads: int | None
) -> FixedPoint:
    n_rows, n_features = x.shape
    shape = n_features, rounded.shape[1]
    ranges = RowRanges(n_rows, _BLOCK_ROWS)
    n_workers = threads_for(n_rows * n_features // _ENTRIES_PER_THREAD, n_threads)

    def add_ranges() -> FixedPoint:
        mapped, sums = row_map.reusing_room(), np.zeros(shape, np.int64)
        exact = FixedPoint.zeros(shape, -sum(exponents))
        for number, (start, stop) in enumerate(ranges, 1):
            if isinstance(x, SparseBlock) and row_map.keeps_zeros:
                products = _sparse_products(row_map.of_sparse(x[start:stop]), rounded[start:stop], exponents[0])
            else:
                entries = mapped(x[start:stop])
                np.rint(_in_units(entries, exponents[0]), out=entries)
                products = entries.T @ rounded[start:stop]
            if not np.isfinite(products).all():
                raise check.not_finite("X")
            sums += products.astype(np.int64)
            if number % _BLOCKS == 0:
                exact, sums = exact + FixedPoint.from_integers(sums, exact.exponent), np.zeros(shape, np.int64)
        return exact + FixedPoint.from_integers(sums, exact.exponent)

    return reduce(operator.add, run_in_threads([add_ranges] * n_workers, ranges.stop))


def _sparse_products(entries: SparseBlock, rounded: FloatArray, exponent: int) -> FloatArray:
    """Return the products of mapped rows and residuals, which are sums of integers: exact in any order."""
    rows, units = entries.rows, np.rint(_in_units(entries.data, exponent))
    parts = [np.bincount(entries.indices, units * column[rows], entries.shape[1]) for column in rounded.T]
    return np.stack(parts, axis=1)


def _in_units(values: FloatArray, exponent: int) -> FloatArray:
    """Multiply by a power of two, in place; in two steps, none of which overflows."""
    for part in (exponent // 2, exponent - exponent // 2):
        values *= math.ldexp(1.0, part)
    return values


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


@suppress_float_warnings
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
                chosen = redact_errors(partial(_chosen, selector, X[rows], y[rows], size), "")
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
