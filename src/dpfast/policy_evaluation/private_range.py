"""A range of returns within the budget: people are counted by their returns, then sums are taken over a narrower range.

Noise is proportional to the range of returns. The range possible by rewards, discount and horizon may be far wider than
the returns. So a part of the budget (`_SHARE`) is used to count every person twice: by the largest and by the least of
their first-visit returns that count. Bins are public: logarithmic about 0, two an octave, within the declared range. So
any scale of returns is met to within a factor of sqrt(2). A person is in one bin of each of two histograms. Replaced,
they leave two bins and enter two others: the counts move by 2 (by sqrt(2) if they come or go), and
`dpfast.releases.mechanism` is calibrated for this. The sums are then released with the rest of the budget, clipped to a
range computed from the released counts and public numbers (`narrowest`). Their noise is that of a declared range.

Clipping moves the sum of a state by no more than the people beyond the range, each by as much as they are beyond. The
number of these who visit the state is unknown. It is assumed to be the average number of visitors of a state, by the
same guess as in plans (half the number possible within the horizon). One standard deviation of noise is added to the
counts of tails. So a tail hidden in the noise is assumed to exist, and noise alone hardly ever makes the range too
narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.policy_evaluation.evaluation import Evaluated, PolicyMechanism, Run, VisitSolver, visit_error
from dpfast.policy_evaluation.mechanism import Problem, visit_moments
from dpfast.privacy import Privacy, split_budget
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.releases.moments import JointMoments
from dpfast.statistics import ReturnGrid, SufficientStatistics
from dpfast.statistics.norm_histograms import LogarithmicBins

# Of mu squared, or of epsilon where delta is 0.
_SHARE = 0.1
# Half-octaves below the declared range's larger end.
_HALF_OCTAVES = 24


@dataclass(frozen=True, eq=False)
class PrivateRange(PolicyMechanism):
    """The mechanism: noise for the counts of people, and then for the sums. Its problem has the declared range."""

    privacy: Privacy
    counts: NoisySum
    #: Of the sums.
    rest: Privacy
    #: Ends of the bins, in units of the declared range's grid.
    edges: NDArray[np.int64]
    solver: VisitSolver

    @classmethod
    def calibrate(cls, privacy: Privacy, run: Run, solver: VisitSolver) -> Self:
        """Split the budget between counts and sums."""
        first, rest = split_budget(privacy, [_SHARE, 1.0 - _SHARE])
        edges = bin_edges(run.problem.grid)
        return cls(run, privacy, NoisySum.of_counts(first, 2, len(edges) - 1), rest, edges, solver)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in a count."""
        return self.counts.scales

    def stages(self) -> Stages[Evaluated]:
        """Ask for counts of people by their largest and by their least return, then for the sums."""
        counted = yield Query(f"{self.run.what}: range of returns", self.counts, _counts)
        narrow, moments = self.narrowed(counted)
        released = yield Query(self.run.what, moments, partial(_sums, narrow=narrow))
        return lambda: self.solver.solve(released, moments, narrow)._replace(narrow=narrow)

    def widest(self) -> JointMoments:
        """Noise of the sums where all of the declared range is needed."""
        return visit_moments(self.problem, self.rest)

    def expected_error(self, m: int, visited: float | None) -> float:
        """Expect the error at the declared range."""
        return visit_error(self.widest(), self.problem, self.problem.information(m, visited))

    def narrowed(self, release: Release) -> tuple[Problem, JointMoments]:
        """Return the problem with the range that the released counts show, and the noise of its sums."""
        values = release.values["sum"]
        grid, problem = self.problem.grid, self.problem
        a_return = float(np.mean(problem.weights * np.sqrt(problem.squared_features)))
        noise = self.widest().scales["xy"] / a_return
        visited = 0.5 * problem.most_visited / problem.n_states
        ends = grid.low + np.ldexp(self.edges.astype(np.float64), -grid.exponent)
        low, high = narrowest(values[0], values[1], self.counts.deviation, ends, noise, visited)
        narrow = replace(problem, grid=ReturnGrid.for_range(low, min(high, grid.high)))
        return narrow, visit_moments(narrow, self.rest)


class CountedReturns(NamedTuple):
    """The data owner's sums over trajectories, and the function to sum over a narrower range."""

    counts: FixedPoint
    sums: Callable[[Problem], SufficientStatistics]


def _counts(returns: CountedReturns) -> FixedPoint:
    return returns.counts


def _sums(returns: CountedReturns, narrow: Problem) -> SufficientStatistics:
    return returns.sums(narrow)


def bin_edges(grid: ReturnGrid) -> NDArray[np.int64]:
    """Return the ends of the bins, from 0 to the largest unit: half-octaves about 0 as far as they are in the range."""
    last = math.ceil(2.0 * math.log2(max(abs(grid.low), abs(grid.high))))
    last = min(max(last, _HALF_OCTAVES - 800), 800)
    low, high = LogarithmicBins(last - _HALF_OCTAVES, last).limits()
    points = np.unique(np.concatenate([low, high]))
    inside = points[(points > grid.low) & (points < grid.top)]
    units = np.rint(np.ldexp(inside - grid.low, grid.exponent)).astype(np.int64)
    return np.unique(np.concatenate([[0], np.clip(units, 0, grid.largest), [grid.largest]]))


def narrowest(
    largest: FloatArray, least: FloatArray, deviation: float, ends: FloatArray, noise: float, visited: float
) -> tuple[float, float]:
    """Return the range, from one end of a bin to another, with the least error in the sum of a state.

    Parameters
    ----------
    largest, least : ndarray (n_bins,)
        Released counts of people by their largest and by their least return.
    deviation : float
        Of the noise in a count.
    ends : ndarray (n_bins + 1,)
        Of the bins.
    noise : float
        Standard deviation of the noise in the sum of a state, with the whole range.
    visited : float
        Share of people who visit a state.
    """
    middles, n_bins = 0.5 * (ends[1:] + ends[:-1]), len(largest)
    above = [_tail(largest[k:], middles[k:] - ends[k], deviation) for k in range(n_bins + 1)]
    below = [_tail(least[:k], ends[k] - middles[:k], deviation) for k in range(n_bins + 1)]
    bias = visited * np.hypot(np.array(below)[:, np.newaxis], np.array(above))
    widths = ends - ends[:, np.newaxis]
    error = np.where(widths > 0.0, np.hypot(noise * widths / (ends[-1] - ends[0]), bias), math.inf)
    low, high = np.unravel_index(int(np.argmin(error)), error.shape)
    return float(ends[low]), float(ends[high])


def _tail(counts: FloatArray, beyond: FloatArray, deviation: float) -> float:
    """Return by how much people are beyond an end in all, one standard deviation of the noise up."""
    return max(float(counts @ beyond), 0.0) + deviation * float(np.linalg.norm(beyond))
