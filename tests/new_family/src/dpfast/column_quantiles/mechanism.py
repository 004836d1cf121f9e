"""What is released of quantiles: for every column one of some public candidates, by the exponential mechanism.

The score of a candidate is ``|100 * below - percent * n|``, with the number of rows at or below it: an exact integer, 0
at the quantile. Nothing is divided by n, which may be 0, and candidates between which no row lies score alike.

*One row replaced by another.* n stays. At each candidate `below` changes by at most 1, so every score by at most 100 up
or down: all changes lie in an interval of length 200.

*One row more or less.* ``100 * below - percent * n`` moves by ``100 - percent`` at candidates at or above the row, and
by ``-percent`` at the others, or by the negatives of these: scores change by at most ``max(percent, 100 - percent)`` up
or down, in an interval of twice that.

Three candidates attain both. The columns are picked together, by the sum of their scores, whose changes lie in an
interval as many times as long as there are columns. Picks that are independent, at one rate, have exactly that law. The
rate epsilon over that length is epsilon-DP, without delta (privacy.support_noise).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray, IntArray
from dpfast.privacy import Privacy, score_rate
from dpfast.releases.mechanism import Drawn, SingleRelease


def counts_below(X: Any, candidates: Sequence[float]) -> IntArray:
    """Count the rows at or below each candidate, for every column of a table; in the last place all rows."""
    table = io.open_table(X)
    count = partial(_counts_of, candidates=np.asarray(candidates, np.float64))
    counts: IntArray = count(table) if table.partitions is None else table.reduce(count, operator.add)
    return counts


def _counts_of(table: io.Table, groups: None = None, *, candidates: FloatArray) -> IntArray:
    n_candidates = len(candidates)
    counts = np.zeros((table.n_features, n_candidates + 1), np.int64)
    for block, _ in table.blocks(partial(np.asarray, dtype=np.float64)):
        if not np.isfinite(block).all():
            raise check.not_finite("X")
        for total, column in zip(counts, np.asarray(block).T, strict=True):
            # The first candidate that an entry is not above; of those above all of them, the last place.
            first = np.searchsorted(candidates, column, side="left")
            total += np.cumsum(np.bincount(first, minlength=n_candidates + 1))
    return counts


def scores_of(counts: IntArray, percent: int) -> IntArray:
    """Score every candidate for every column, by the counts of `counts_below`: 0 is best."""
    scores: IntArray = np.abs(100 * counts[:, :-1] - percent * counts[:, -1:])
    return scores


@dataclass(frozen=True)
class QuantilePick(SingleRelease):
    """Picks candidates with probability proportional to exp(-rate * sum of their scores)."""

    #: What is promised, with delta 0.
    privacy: Privacy
    candidates: tuple[float, ...]
    percent: int
    #: Of the exponential mechanism, in hundredths of a row.
    rate: float

    @classmethod
    def calibrate(cls, privacy: Privacy, candidates: Sequence[float], percent: int, n_features: int) -> Self:
        """Calibrate from public numbers."""
        epsilon, _ = privacy.finite_target
        # `score_rate` doubles it where a row is replaced.
        length = 100 if privacy.adjacency == "replace_one" else 2 * max(percent, 100 - percent)
        rate = score_rate(epsilon, float(n_features * length), adjacency=privacy.adjacency)
        pure = Privacy(privacy.epsilon, 0.0, privacy.adjacency)
        return cls(pure, tuple(candidates), percent, rate)

    @property
    def scales(self) -> dict[str, float]:
        """Difference of scores, in hundredths of a row, that multiplies odds by e."""
        return {"quantiles": 1.0 / self.rate}

    def missed(self) -> float:
        """Return by how many rows a pick is expected to miss beyond the best candidate, at most.

        The expected score is at most the least one plus log(number of candidates)/rate (selection.mechanism).
        """
        return 0.01 * math.log(len(self.candidates)) / self.rate

    def seeds(self, statistic: IntArray) -> tuple[object, ...]:
        """Return what a seeded pick is bound to."""
        return self, len(statistic)

    def draw(self, statistic: IntArray, source: noise.BitSource) -> Drawn:
        """Pick a candidate for every column, by exact scores: below 2^53 for fewer than 2^46 rows."""
        picked = []
        for scores in scores_of(statistic, self.percent):
            pick = noise.ExponentialPick(self.rate, source)
            pick.update(scores)
            picked.append(self.candidates[pick.index])
        return Drawn("exponential mechanism", {"quantiles": np.array(picked)})
