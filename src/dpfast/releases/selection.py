"""The release of a support: chosen by the exponential mechanism over all supports, or by votes of blocks of rows.

Kifer, Smith and Thakurta's Algorithms 4 and 5, with the noise proved sufficient in privacy.support_noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import laplace, norm

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray, IntArray
from dpfast.ledger import Release
from dpfast.privacy import Calibration, Privacy, VoteNoise, loss_range, score_rate, vote_noise
from dpfast.releases import printed
from dpfast.releases.mechanism import Drawn, SingleRelease, draw
from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.solvers.best_subset import SupportScores, score_error
from dpfast.statistics import Selector, block_votes

Progress = Callable[[int, int], None]

# The middles of equal parts of (0, 1).
_MIDDLES = (np.arange(256) + 0.5) / 256

# Shares of a record's largest loss: for the ridge that makes minimisers unique, and for the gap of a score.
_RIDGE, _GAP = 2.0**-20, 2.0**-14


class Scored(NamedTuple):
    """Exact moments X'X and X'y, rounded to double, for scoring supports; and the way of scoring."""

    xx: FloatArray
    xy: FloatArray
    n_threads: int | None = None
    progress: Progress | None = None


class Voters(NamedTuple):
    """Rows and outcomes whose blocks vote, and the selector of the features of a vote."""

    X: FloatArray
    y: FloatArray
    selector: Selector
    n_threads: int | None = None


@dataclass(frozen=True)
class ScoredSelection(SingleRelease):
    """Algorithm 4: a support with probability proportional to exp(-rate * least sum of squared losses on it)."""

    #: The guarantee, with delta 0.
    privacy: Privacy
    #: Public bounds on rows restricted to any support, and on the box of its coefficients.
    bounds: ObjectiveBounds
    #: Rate of the exponential mechanism.
    rate: float
    #: As for `SupportScores`.
    ridge: float
    tolerance: float
    calibration: Calibration = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: ObjectiveBounds, *, calibration: Calibration = "sound") -> Self:
        """Calibrate from public numbers.

        The printed rate is epsilon/(2 alpha), with the paper's alpha = 4 s^2 (Appendix F.3): never too large.
        """
        size, reach, outcome, most = bounds.n_features, bounds.prediction, bounds.outcome_bound, bounds.most_rows
        own = loss_range(outcome, reach)
        ridge, tolerance = _RIDGE * bounds.curvature, _GAP * own
        error = score_error(size, most * reach**2 + size * ridge, most * outcome * reach, tolerance)
        rate = score_rate(privacy.target[0], own, error, adjacency=privacy.adjacency)
        if calibration == "paper":
            rate = min(rate, printed("sparse_regression", "printed_score_rate")(privacy.target[0], size))
        pure = Privacy(privacy.epsilon, 0.0, privacy.adjacency)
        return cls(pure, bounds, rate, ridge, tolerance, calibration)

    @property
    def scales(self) -> dict[str, float]:
        """Difference of scores, in squared units of the outcome, that multiplies odds by e."""
        return {"support": 1.0 / self.rate}

    def missed(self, signal: float, n_features: int) -> float:
        """Return the expected share of a support not chosen, if each feature missed costs `signal` of score.

        Supports that miss k features are C(s, k) C(p - s, k), with odds of exp(-rate * k * signal) each.
        """
        size, others = self.bounds.n_features, n_features - self.bounds.n_features
        missing = range(min(size, others) + 1)
        logs = np.array([math.log(math.comb(size, k) * math.comb(others, k)) - self.rate * signal * k for k in missing])
        odds = np.exp(logs - logs.max())
        return float(odds @ missing / odds.sum()) / size

    def seeds(self, statistic: Scored) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self, len(statistic.xx)

    def draw(self, statistic: Scored, source: noise.BitSource) -> Drawn:
        """Score all supports, and pick one."""
        size, options = self.bounds.n_features, {"ridge": self.ridge, "tolerance": self.tolerance}
        scores = SupportScores(statistic.xx, statistic.xy, size, **options)
        pick = noise.ExponentialPick(self.rate, source)
        for block in scores.blocks(statistic.n_threads, statistic.progress):
            pick.update(block)
        return Drawn("exponential mechanism", {"support": scores.support(pick.index)})


@dataclass(frozen=True)
class VotedSelection(SingleRelease):
    """Algorithm 5: the features with the most votes of blocks of rows, counted with noise."""

    calibrated: VoteNoise
    #: Features of a support, and most votes of a block.
    size: int
    n_blocks: int
    calibration: Calibration = "sound"

    @classmethod
    def calibrate(
        cls, privacy: Privacy, size: int, n_features: int, n_blocks: int, *, calibration: Calibration = "sound"
    ) -> Self:
        """Calibrate from public numbers.

        The printed noise is Laplace, of scale 2 s/epsilon in votes, for every delta.
        """
        if calibration == "paper":
            return cls(printed("sparse_regression", "printed_vote_noise")(privacy, size), size, n_blocks, calibration)
        return cls(vote_noise(privacy, size, n_features), size, n_blocks)

    @cached_property
    def privacy(self) -> Privacy:
        """The guarantee: without delta, if the noise does not use it."""
        return self.calibrated.privacy

    @property
    def scales(self) -> dict[str, float]:
        """Scale of the noise in a count, in votes."""
        return {"votes": self.calibrated.scale}

    def missed(self, signal: float, n_features: int) -> float:
        """Return the expected share of features with all votes that get fewer than the luckiest of those with none.

        All blocks are assumed to vote for the support, whatever the signal.
        """
        others = n_features - self.size
        if others == 0:
            return 0.0
        law = laplace if self.calibrated.mechanism == "Laplace" else norm
        # The luckiest at the midpoints of equally likely parts of its law.
        luckiest = law.isf(-np.expm1(np.log(_MIDDLES) / others))
        return float(np.mean(law.cdf(luckiest - self.n_blocks / self.calibrated.scale)))

    def seeds(self, statistic: Voters) -> tuple[object, ...]:
        """Return the context that seeded noise, and the blocks, are bound to."""
        return self, statistic.X.shape[1]

    def draw(self, statistic: Voters, source: noise.BitSource) -> Drawn:
        """Let blocks of rows vote, and release the counts."""
        X, y, selector, n_threads = statistic
        public_count = self.privacy.adjacency == "replace_one"
        blocks = noise.random_blocks(len(y), self.n_blocks, source, equal=public_count)
        votes = block_votes(X, y, blocks, self.n_blocks, self.size, selector, n_threads=n_threads)
        law, scale = self.calibrated.mechanism, self.calibrated.scale
        counts = draw(law, scale, votes.astype(np.float64), source)
        values = {"votes": counts, "support": most_votes(counts, self.size)}
        return Drawn(law, values, {"votes": noise.default_grid(scale)}, self.calibrated.mu)


def chance_of_noise(release: Release) -> float:
    """Return the probability that noise alone lifts another feature to the least votes of a chosen one."""
    counts, chosen = release.values["votes"], release.values["support"]
    others = np.delete(counts, chosen)
    if len(others) == 0:
        return 0.0
    margin = float(counts[chosen].min() - np.median(others)) / release.scales["votes"]
    law = laplace if release.mechanism == "Laplace" else norm
    return float(-np.expm1(len(others) * law.logcdf(margin)))


def most_votes(counts: NDArray[np.generic], size: int) -> IntArray:
    """Return the features with the largest counts, increasing; among equal ones the first."""
    return np.sort(np.argsort(-np.asarray(counts), kind="stable")[:size])


def check_n_supports(n_features: int, size: int, most: int) -> None:
    """Refuse more supports than can be scored."""
    n_supports = math.comb(n_features, check.positive_integer("n_nonzero", size))
    if n_supports > most:
        raise ValueError(
            f"n_nonzero={size} of {n_features} features makes {n_supports:,} supports, max_supports is {most:,}: raise "
            "it if the time is there, or use selector='sample_aggregate'"
        )
