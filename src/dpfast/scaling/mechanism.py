"""The sums that means and standard deviations of bounded features follow from, in one release.

A feature within its limits is z in [-1, 1] in units of half their width about their middle, rounded on a grid that has
-1 and 1. A person adds z and 2 z^2 - 5/4 for every one of d features. Of these pairs
z^2 + (2 z^2 - 5/4)^2 = 4 t^2 - 4 t + 25/16 with t = z^2 in [0, 1], at most 25/16, at z = 0 and at z = -1 and 1: the
circle about (0, 0) that holds them all has a radius of 5/4, and none is smaller. (Of z and z^2 - 1/2 the second moment
would have 1.8 times this noise, the mean .9 times.) Where the number of people is private, each adds a public w as
well: ||person||^2 <= 25/16 d + w^2.

A person may have several rows. The first `max_rows` = k count, and the person adds the sum of their parts, at most k
times as much. How many rows count is private then, and is released as the number of people is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.privacy import Privacy, Unit
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.releases.mechanism import Around, NoisySum, Query, Stages
from dpfast.statistics.rows import RowMap, centred

# Bits of the grid that z is rounded to; its square has twice as many.
_BITS = 20
_ONE = 1 << 2 * _BITS


class Moments(NamedTuple):
    """Means and variances in units of half-widths, and standard deviations of their noise."""

    mean: FloatArray
    variance: FloatArray
    variance_noise: FloatArray
    mean_noise: FloatArray


@dataclass(frozen=True)
class PairSums(Around[FloatArray]):
    """The mechanism: noise for the sums of all features' pairs, and the number of rows where it is private."""

    n_features: int
    noise: NoisySum
    #: Whether the number of rows is released.
    counted: bool

    @classmethod
    def calibrate(cls, privacy: Privacy, n_features: int, max_rows: int | None = None) -> Self:
        """Noise for people with this many features, and with up to `max_rows` rows each if they have several."""
        counted = privacy.adjacency == "add_remove" or max_rows is not None
        squared = 25.0 / 16.0 * n_features + counted * _count_weight(n_features) ** 2
        bound = math.sqrt(squared) * (max_rows or 1) * ROUND_UP
        unit: Unit = "row" if max_rows is None else "person"
        return cls(n_features, NoisySum.calibrate(privacy, bound, (2 * n_features + counted,), unit=unit), counted)

    @staticmethod
    def people(statistic: FixedPoint, n_features: int) -> int:
        """Return how many rows were summed: the data owner's, unless it is public."""
        return statistic.integer(2 * n_features) // round(_count_weight(n_features) * _ONE)

    @property
    def inner(self) -> NoisySum:
        """The release."""
        return self.noise

    def stages(self) -> Stages[FloatArray]:
        """Ask for the sums."""
        released = yield Query("sums of features and of their squares", self.noise, self._counted)
        return lambda: released.values["sum"]

    def _counted(self, statistic: FixedPoint) -> FixedPoint:
        """Leave out the number of people where it is public."""
        return statistic if self.counted else statistic[:-1]

    def moments(self, sums: FloatArray, n_people: int | None) -> Moments:
        """Return means and variances from released sums; `n_people` if it is public."""
        d = self.n_features
        n = float(sums[-1]) / _count_weight(d) if n_people is None else float(n_people)
        n = max(n, 1.0)
        mean = np.clip(sums[:d] / n, -1.0, 1.0)
        square = (sums[d : 2 * d] / n + 1.25) / 2.0
        noise = self.noise.deviation / n * np.hypot(0.5, 2.0 * mean)
        # A count that is off by one moves a mean by its own size over the count: to first order.
        of_count = 0.0 if n_people is not None else mean / _count_weight(d)
        noise_of_mean = self.noise.deviation / n * np.hypot(1.0, of_count)
        return Moments(mean, np.minimum(square - mean**2, 1.0), np.minimum(noise, 1.0), np.minimum(noise_of_mean, 1.0))


def sum_pairs(
    table: io.Table, low: FloatArray, high: FloatArray, *, groups: Any = None, max_rows: int | None = None
) -> FixedPoint:
    """Sum the contributions of rows exactly; the last entry is their number, as private as the rest.

    Of each of the people that rows belong to, `groups`, the first `max_rows` count.
    """
    row_map = centred(low, high)[0]
    if table.partitions is not None:
        function = partial(_of_part, row_map=row_map, max_rows=max_rows)
        total: FixedPoint = table.reduce(function, operator.add, groups=groups)
        return total
    return _of_part(table, groups, row_map, max_rows)


def _of_part(table: io.Table, groups: Any, row_map: RowMap, max_rows: int | None) -> FixedPoint:
    if groups is None or max_rows is None:
        return _summed(table.n_features, (np.asarray(rows) for rows, _ in table.blocks(row_map)))
    counting = io.people(groups, max_rows, ordered=False).along(table.blocks(row_map), lambda block: len(block[0]))
    blocks = (np.asarray(x) if kept is None else np.asarray(x)[kept] for (x, _), kept in counting)
    return _summed(table.n_features, blocks)


def _summed(d: int, blocks: Iterable[FloatArray]) -> FixedPoint:
    sums, n_rows = np.zeros(2 * d, object), 0
    for block in blocks:
        if np.isnan(block).any():
            raise check.not_finite("X")
        z = np.clip(np.rint(np.ldexp(block, _BITS)), -(1 << _BITS), 1 << _BITS).astype(np.int64)
        # Blocks of mapped rows are short: neither sum leaves 63 bits.
        pairs = np.hstack([z << _BITS, 2 * z * z - 5 * _ONE // 4])
        sums += pairs.sum(axis=0).astype(object)
        n_rows += len(z)
    return FixedPoint.from_integers([*sums, n_rows * round(_count_weight(d) * _ONE)], -2 * _BITS)


def _count_weight(n_features: int) -> float:
    """Return a person's weight in the private count: about half the root of the number of features.

    It is a power of two. A relative error in the count is the same relative error in a mean, of size 1 at most.
    """
    return 2.0 ** round(math.log2(math.sqrt(n_features) / 2.0))
