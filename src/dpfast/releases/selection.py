"""The release that chooses a support: by the exponential mechanism over all of them, or by votes of blocks of rows.

Kifer, Smith and Thakurta's Algorithms 4 and 5, with the noise that privacy.supports proves enough. Each class is one of
them, calibrated from public numbers; `release` is the only place where data turn into something public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.columns import Rows
from dpfast.ledger import Release
from dpfast.privacy import Calibration, Privacy, VoteNoise, loss_range, score_rate, vote_noise
from dpfast.releases.printed import printed
from dpfast.solvers.best_subset import SupportScores, score_error
from dpfast.statistics import Grid, Selector, block_votes, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap

Progress = Callable[[int, int], None]

#: Where the number of rows is private, tables have at most so many: only bounds on rounding errors count on it.
MOST_ROWS = 2**32
# Shares of a record's largest loss: the ridge that makes minimisers unique, and the gap that a score may have.
_RIDGE, _GAP = 2.0**-20, 2.0**-14


@dataclass(frozen=True)
class TopEntries:
    """Scale rows so that the L2 norm of their largest entries, some number of them, is within a bound.

    Algorithm 3, step 3. (Algorithm 6 divides by the norm of the whole row instead, which shortens rows more than their
    bound asks for.)

    Parameters
    ----------
    size : int
        How many entries.
    bound : float
        Their L2 norm, at most.
    """

    size: int
    bound: float

    def __call__(self, rows: Rows) -> FloatArray:
        """Map one block of rows, shape (n, p); rows with NaN or infinity become NaN, to be refused in their sum."""
        return RowMap(bound=self.bound, top=self.size)(rows)


@dataclass(frozen=True)
class RecordBounds:
    """What is public of a record (x, y), x restricted to any support of one size, once it is rounded to its grid.

    Parameters
    ----------
    size : int
        Features of a support.
    length : float
        Largest L2 norm of x.
    outcome : float
        Largest |y|.
    """

    size: int
    length: float
    outcome: float

    @classmethod
    def of_rows(cls, size: int, n_columns: int, bound_x: float, bound_y: float) -> Self:
        """Bound records whose whole rows, of `n_columns`, have an L2 norm within `bound_x`."""
        return cls(size, rounded_bound(bound_x, n_columns), rounded_bound(bound_y, 1))

    @classmethod
    def of_top_entries(cls, top: TopEntries, n_columns: int, bound_y: float) -> Self:
        """Bound records whose rows, of `n_columns`, were mapped by `top` and summed within `whole_row_bound`."""
        unit = 2.0 ** -Grid.for_bounds(whole_row_bound(top, n_columns)).exponent_x
        length = (top.bound * (1.0 + NORM_SLACK) + math.sqrt(top.size) * unit) * (1.0 + 2.0**-50)
        return cls(top.size, length, rounded_bound(bound_y, 1))

    @property
    def reach(self) -> float:
        """Largest |x'theta| over |theta_j| <= 1: the L1 norm of x."""
        return math.sqrt(self.size) * self.length * (1.0 + 2.0**-50)

    @property
    def gradient(self) -> float:
        """Largest norm of the gradient of (y - x'theta)^2/2 over |theta_j| <= 1."""
        return self.length * (self.outcome + self.reach) * (1.0 + 2.0**-50)

    @property
    def curvature(self) -> float:
        """Largest eigenvalue of its Hessian."""
        return self.length**2 * (1.0 + 2.0**-50)


def whole_row_bound(top: TopEntries, n_columns: int) -> float:
    """Largest L2 norm of a whole row whose top entries are within their bound: all entries are alike then."""
    return top.bound * math.sqrt(n_columns / top.size) * (1.0 + NORM_SLACK)


@dataclass(frozen=True)
class ScoredSelection:
    """Algorithm 4: a support with probability proportional to exp(-rate * least sum of losses on it).

    Parameters
    ----------
    privacy : Privacy
        What is promised, with delta 0.
    bounds : RecordBounds
        What is public of a record.
    rate : float
        Of the exponential mechanism.
    ridge, tolerance : float
        As for `SupportScores`.
    calibration : {"sound", "paper"}, default "sound"
        Whether the rate is the proved or the printed one.
    """

    privacy: Privacy
    bounds: RecordBounds
    rate: float
    ridge: float
    tolerance: float
    calibration: Calibration = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: RecordBounds, most_rows: int) -> Self:
        """Calibrate from public numbers, for tables of at most so many rows."""
        own = loss_range(bounds.outcome, bounds.reach)
        ridge, tolerance = _RIDGE * bounds.curvature, _GAP * own
        curvature = most_rows * bounds.reach**2 + bounds.size * ridge
        error = score_error(bounds.size, curvature, most_rows * bounds.outcome * bounds.reach, tolerance)
        rate = score_rate(privacy.target[0], own, error, adjacency=privacy.adjacency)
        return cls(Privacy(privacy.epsilon, 0.0, privacy.adjacency), bounds, rate, ridge, tolerance)

    @classmethod
    def printed(cls, privacy: Privacy, bounds: RecordBounds, most_rows: int) -> Self:
        """Take the printed rate, epsilon/(2 alpha), with the paper's alpha = 4 s^2 (Appendix F.3): never too large."""
        sound = cls.calibrate(privacy, bounds, most_rows)
        rate = min(sound.rate, printed("sparse_regression", "printed_score_rate")(privacy.target[0], bounds.size))
        return replace(sound, rate=rate, calibration="paper")

    @property
    def scales(self) -> dict[str, float]:
        """Difference of scores, in squared units of the outcome, that multiplies odds by e."""
        return {"support": 1.0 / self.rate}

    def failure(self, signal: float, n_features: int) -> float:
        """Bound the probability of any other support, where the scores of others are higher by `signal` at least."""
        return min(1.0, math.exp(min(0.0, math.log(math.comb(n_features, self.bounds.size)) - self.rate * signal)))

    def release(
        self,
        xx: FloatArray,
        xy: FloatArray,
        source: noise.BitSource,
        name: str,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Score all supports on exact moments, rounded to double, and pick one."""
        scores = SupportScores(xx, xy, self.bounds.size, ridge=self.ridge, tolerance=self.tolerance)
        pick = noise.ExponentialPick(self.rate, source.bound(name, self, len(xx)))
        for block in scores.blocks(n_threads, progress):
            pick.update(block)
        return Release(
            name,
            "exponential mechanism",
            self.privacy,
            {"support": scores.support(pick.index)},
            self.scales,
            calibration=self.calibration,
            reproducible=source.reproducible,
        )


@dataclass(frozen=True)
class VotedSelection:
    """Algorithm 5: the features with the most votes of blocks of rows, counted with noise.

    Parameters
    ----------
    calibrated : VoteNoise
        The noise of each count.
    size : int
        Features of a support, and most votes of a block.
    n_blocks : int
        How many blocks.
    calibration : {"sound", "paper"}, default "sound"
        Whether the noise is the least or the printed one.
    """

    calibrated: VoteNoise
    size: int
    n_blocks: int
    calibration: Calibration = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, size: int, n_features: int, n_blocks: int) -> Self:
        """Calibrate from public numbers."""
        return cls(vote_noise(privacy, size, n_features), size, n_blocks)

    @classmethod
    def printed(cls, privacy: Privacy, size: int, n_features: int, n_blocks: int) -> Self:
        """Take the printed noise: Laplace, of scale 2 s/epsilon in votes, whatever delta would allow."""
        return cls(printed("sparse_regression", "printed_vote_noise")(privacy, size), size, n_blocks, "paper")

    @property
    def privacy(self) -> Privacy:
        """What is promised: without delta, if the noise does without."""
        return self.calibrated.privacy

    @property
    def scales(self) -> dict[str, float]:
        """Scale of the noise in a count, in votes."""
        return {"votes": self.calibrated.scale}

    def failure(self, n_features: int) -> float:
        """Bound the probability that a feature with all votes falls behind one with none."""
        margin = 0.5 * self.n_blocks / self.calibrated.scale
        one = 0.5 * math.exp(-margin) if self.calibrated.mechanism == "Laplace" else float(ndtr(-margin))
        return min(1.0, n_features * one)

    def release(
        self,
        X: FloatArray,
        y: FloatArray,
        selector: Selector,
        source: noise.BitSource,
        name: str,
        n_threads: int | None = None,
    ) -> Release:
        """Let the blocks vote, and release the counts."""
        source = source.bound(name, self, X.shape[1])
        public_count = self.privacy.adjacency == "replace_one"
        blocks = noise.random_blocks(len(y), self.n_blocks, source, equal=public_count)
        votes = block_votes(X, y, blocks, self.n_blocks, self.size, selector, n_threads=n_threads)
        draw = noise.laplace if self.calibrated.mechanism == "Laplace" else noise.gaussian
        counts = draw(self.calibrated.scale, votes.shape, source, center=votes.astype(np.float64))
        return Release(
            name,
            self.calibrated.mechanism,
            self.privacy,
            {"votes": counts, "support": most_votes(counts, self.size)},
            self.scales,
            mu=self.calibrated.mu,
            grid={"votes": noise.default_grid(self.calibrated.scale)},
            calibration=self.calibration,
            reproducible=source.reproducible,
        )


def most_votes(counts: NDArray[np.generic], size: int) -> NDArray[np.int64]:
    """Return the features with the largest counts, increasing; of equal ones the first."""
    return np.sort(np.argsort(-np.asarray(counts), kind="stable")[:size])


def check_n_supports(n_features: int, size: int, most: int) -> None:
    """Refuse more supports than are to be scored."""
    n_supports = math.comb(n_features, check.positive_integer("n_nonzero", size))
    if n_supports > most:
        raise ValueError(
            f"n_nonzero={size} of {n_features} features makes {n_supports:,} supports, max_supports is {most:,}: raise "
            "it if the time is there, or use selector='sample_aggregate'"
        )
