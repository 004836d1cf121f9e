"""Moments of which X'X is summed over a sample of the rows and X'Y over all of them (PRIMO's Algorithm 4).

X'Y costs n d l products where X'X costs n d (d + 1)/2, so a sample of s rows saves (1 - s/n)(d + 1)/(d + 1 + 2l) of
the arithmetic. Every row is still read, and clipped to its bound, once.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from dpfast import io
from dpfast._redacted import quiet
from dpfast.kernels import gram as kernel
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.statistics.accumulator import GramAccumulator, gram, use_blas
from dpfast.statistics.gram import Layout

# Small packs: there are few totals to add them to, unlike those of X'X, and the reading of rows goes on meanwhile.
_PACK_ENTRIES = 1280


@dataclass(frozen=True, repr=False, eq=False)
class SampledGram:
    """Exact second moments, X'X over a sample of the rows. **Not private**: it belongs to the owner of the data."""

    exact_xx: FixedPoint  # sum of x x' over the sample, as it is
    exact_xy: FixedPoint  # sum of x y' over all rows
    n_sampled: int
    n_rows: int

    @property
    def sample(self) -> tuple[int, int]:
        """Rows in the sample, and in all."""
        return self.n_sampled, self.n_rows

    def __repr__(self) -> str:
        features, outcomes = self.exact_xy.shape
        return (
            f"<SampledGram of {features} features, {outcomes} outcomes, "
            f"{self.n_sampled} of {self.n_rows} rows in xx: not private>"
        )


@quiet
def sampled_gram(
    X: object, Y: object, rows: ArrayLike, *, bound_x: float, bound_y: float, n_threads: int | None = None
) -> SampledGram:
    """Sum x x' over some rows and x y' over all of them, exactly. **Not private**.

    Tables are arrays, .npy files or frames, or one `dpfast.io.Table`; `rows` is as for `GramAccumulator.update`. For a
    private release the sample must be secret (`dpfast.noise.sample_without_replacement`); it is not kept. All rows are
    read, and refused where they must be, before the sample is.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics import sampled_gram
    >>> moments = sampled_gram(np.eye(3), np.ones(3), [0, 2], bound_x=1.0, bound_y=1.0)
    >>> moments.exact_xx.to_float64().diagonal(), moments.exact_xy.to_float64().ravel()
    (array([1., 0., 1.]), array([1., 1., 1.]))
    """
    table = X if isinstance(X, io.Table) else io.open_table(X, Y, may_copy=True)
    if table.arrays is None:
        raise TypeError("a sample is taken of arrays, .npy files and frames only")
    x = table.arrays[0]
    exact_xy = cross_moments(table, bound_x=bound_x, bound_y=bound_y, n_threads=n_threads)
    of_sample = gram(x, bound_x=bound_x, rows=rows, n_threads=n_threads)
    return SampledGram(of_sample.exact_xx, exact_xy, of_sample.n_rows, len(x))


def cross_moments(
    X: object, Y: object = None, *, bound_x: float, bound_y: float, n_threads: int | None = None
) -> FixedPoint:
    """Sum x y' over all rows of tables that `dpfast.io.blocks` reads, without X'X. **Not private**.

    Equal to the bit to `Gram.exact_xy` of the same rows.
    """
    table = X if isinstance(X, io.Table) else io.open_table(X, Y)
    if table.n_outcomes == 0:
        raise ValueError("Y is needed: the sum of x y' is one over features and outcomes")
    if table.partitions is not None:
        raise TypeError("X and Y must not be in parts, such as Dask collections: dpfast.statistics.gram sums those")
    layout = Layout(table.n_features, table.n_outcomes, bound_x, bound_y)
    # The tiles broadcast entries of the first table, the narrower one, and multiply vectors of the second.
    swapped = layout.n_outcomes < layout.n_features
    sizes = [("X", layout.n_features, bound_x), ("Y", layout.n_outcomes, bound_y)]
    (first, n_first, bound_first), (second, n_second, bound_second) = sizes[::-1] if swapped else sizes
    accumulator = _CrossAccumulator(n_first, n_second, bound_x=bound_first, bound_y=bound_second, n_threads=n_threads)
    accumulator._names = first, second
    for x, y in table.blocks():
        layout._check_block(x, y)
        accumulator.update(*((y, x) if swapped else (x, y)))
    high, low = accumulator._totals.cross()
    exponent = -(accumulator.grid.exponent_x + (accumulator.grid.exponent_y or 0))
    return FixedPoint(high.T, low.T, exponent) if swapped else FixedPoint(high, low, exponent)


class _CrossAccumulator(GramAccumulator):
    """Sums products between the tables only."""

    def _products_per_row(self) -> int:
        # Reading and rounding an entry counts as one more product.
        return max(self.n_features, self.n_outcomes) * (min(self.n_features, self.n_outcomes) + 1)

    def _block_rows(self) -> int:
        return max(12, min(255, _PACK_ENTRIES // (self.n_features + self.n_outcomes)))

    def _new_part(self) -> kernel.GramSums:
        return kernel.GramSums(
            *self._tables(), block_rows=self._block_rows(), use_blas=use_blas(), with_sums=False, cross_only=True
        )
