"""First-visit returns with truncated tails filled: people's parts in sums that are fitted to earlier releases.

A trajectory that was cut, by the horizon or by its end of observation, would have gone on. It lacks gamma**(steps left)
times the value of the next state. A public number replaces this value, the tail. So gamma times the tail is added to
its last reward that counts (`_filled`), and the kernel computes its returns from these rewards. With rewards of 0 and a
tail of 1 they are the discounts of what was cut. If discounts are summed by last state too (`by_end`), the value of
that state is cut, not of the next one: the tail replaces the last reward.

**What privacy rests on.** All results for a trajectory are a function of its rewards, states and end alone, elementwise
or in one order. They leave as integers in units of ``2**-30``, and sums of these are exact:

- *Means* (`return_means`): returns about the middle of their range, in half widths, and 1 less the discounts of
  truncated tails. A mean of integers within [-h, h] over h, rounded, is within [-1, 1]; the other in [0, 1].
- *Counts* by number of visited states (`visit_counts`) and by largest distance from a center, or how far beyond the
  declared range (`distance_counts`): one bin a person.
- *Sums over visits* (`state_sums`): a person adds to each state it visits the vector s (1, y, y**2/4, d/4), or its
  first three entries, with |y| at most 1, d in [0, 1] and one factor s at most 1 for all of them, for which the norm of
  all s (1, y) is at most the clip C. With t = y**2 the squares of the last two entries are (t**2 + d**2)/16, at most
  (t**2 + 1)/16 and so, on [0, 1], at most (1 + t)/16: in all at most ``C sqrt(17/16)``. Without d, t**2/16 is at most
  (1 + t)/32: ``C sqrt(33/32)``. With d/4 once more, in the entry of the person's last state, (t**2 + 2)/16 is at most
  (1 + t)/8: ``C sqrt(9/8)``. Rounding moves each entry by half a unit at most, which `state_sum_bound` adds. It
  keeps |part of y| at most part of 1, in every state, as multiplication and rounding to nearest are monotone; the other
  parts are not negative. So two people's parts have no negative product in any state, and who takes another's place
  moves the sums by ``sqrt(2)`` times the bound at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import suppress_float_warnings
from dpfast.io.partitions import Partitions
from dpfast.io.trajectories import Trajectories
from dpfast.kernels.columns import FixedPoint
from dpfast.privacy.guarantee import sqrt_ratio_up
from dpfast.statistics.returns import LARGEST_LIMIT, ReturnGrid, blocks_of, sum_of_trajectories
from dpfast.statistics.visits import check_capacity, chunks_of_visits

_LOG2_UNITS = 30
_UNITS = float(1 << _LOG2_UNITS)
# Sums of a chunk's integers are exact in floating point: 2**22 trajectories of 2**30 each.
_STEPS_PER_CHUNK, _MOST_STEPS_PER_CHUNK = 1 << 16, 1 << 22
# More than the rounding errors of a norm of 2**20 entries, scaled.
_ROUND_UP = 1.0 + 2.0**-30
#: What squares and discounts are multiplied by: a power of two.
SMALL_PART = 0.25
#: How far returns may be beyond the declared range, in half widths: bins, and one of all that are farther.
BEYOND = (0.25, 1.0, 4.0)
# Less is rounding; and how much wider the grid is on either side that returns beyond the range are counted on.
_EXCESS, _WIDER = 2.0**-16, 8.0


@dataclass(frozen=True)
class FilledReturns:
    """How returns are computed, which is public, and the sums of trajectories by it, which are not.

    Parameters
    ----------
    gamma, horizon, lag : float, int or None, int
        As for `first_visit_returns`.
    grid : ReturnGrid
        Returns are clipped to it, once they are filled.
    has_tails : bool
        Whether trajectories may have been cut; if not nothing is filled.
    by_end : bool, default False
        Whether discounts are summed by last state too.
    """

    gamma: float
    horizon: int | None
    lag: int
    grid: ReturnGrid
    has_tails: bool
    by_end: bool = False

    @property
    def half(self) -> int:
        """Units of the grid from its middle to the end that is farther."""
        return self.grid.largest - self.grid.middle_units

    @property
    def half_width(self) -> float:
        """The same in the units of rewards."""
        return math.ldexp(self.half, -self.grid.exponent)

    def wide(self) -> FilledReturns:
        """Return it with a grid that reaches beyond the range as far as is counted."""
        low, high = self.grid.low, self.grid.high
        beyond = min(0.5 * _WIDER * (high - low), LARGEST_LIMIT)
        limits = max(low - beyond, -LARGEST_LIMIT), min(high + beyond, LARGEST_LIMIT)
        return replace(self, grid=ReturnGrid.for_range(*limits))

    def n_sums(self, n_states: int) -> int:
        """Return how many numbers `state_sums` sums of a state."""
        return 3 + self.has_tails + (n_states if self.by_end else 0)

    @property
    def n_means(self) -> int:
        """How many numbers `return_means` sums of a person, besides 1."""
        return 4 if self._has_late else 2 if self.has_tails else 1

    @property
    def _has_late(self) -> bool:
        return self.has_tails and self.horizon is not None

    @property
    def late(self) -> tuple[int, int]:
        """Steps with a mean return that shows the loss at the horizon: the third quarter."""
        assert self.horizon is not None
        return self.horizon // 2, max(3 * self.horizon // 4, self.horizon // 2 + 1)

    def state_sum_bound(self, clip: float, most_visited: int) -> float:
        """Return the largest norm of what a person adds to `state_sums`, rounded up."""
        rows = self.n_sums(1)
        rounded = sqrt_ratio_up(rows * most_visited, 1) / 2.0 / _UNITS
        return (clip * _ROUND_UP * sqrt_ratio_up(32 + (1, 2, 4)[rows - 3], 32) + rounded) * _ROUND_UP

    @suppress_float_warnings
    def return_means(self, trajectories: Any, *, with_count: bool) -> FixedPoint:
        """Sum people's mean returns and mean parts of 1 that were not cut, over all steps and over late ones, and 1.

        **Not private**. In this order: with a count 1; the mean return of first visits that count, filled with the
        middle of the range, from the middle and in half widths; if trajectories may have been truncated, 1 less the
        mean discount of the tails; with a horizon both again of all its third quarter's steps, 0 for a trajectory
        without any.
        """

        def of_block(block: Trajectories) -> IntArray:
            found = [self._mean_parts(self._chunks(block, self.grid.middle))]
            if self.has_tails:
                found.append(self._mean_parts(self._chunks(block, None), discounts=True))
            if self._has_late:
                steps = _every_step(block)
                for tail in (self.grid.middle, None):
                    chunks = (self._late(chunk) for chunk in self._chunks(steps, tail, lag=0))
                    found.append(self._mean_parts(chunks, discounts=tail is None))
            sums = [len(block) << _LOG2_UNITS] if with_count else []
            return np.array(sums + [int(parts) for parts in found], np.int64)

        return _summed(trajectories, of_block, partial(self.return_means, with_count=with_count))

    @suppress_float_warnings
    def visit_counts(self, trajectories: Any, edges: IntArray) -> FixedPoint:
        """Count people by how many states they visit, at steps that count: a bin up to each edge. **Not private**."""

        def of_block(block: Trajectories) -> IntArray:
            counts = np.zeros((1, len(edges)), np.int64)
            for chunk in self._chunks(block, self.grid.middle):
                counts[0] += np.bincount(_bins_of(chunk.sizes, edges), minlength=len(edges))
            return counts

        return _summed(trajectories, of_block, partial(self.visit_counts, edges=edges), exponent=0)

    @suppress_float_warnings
    def distance_counts(self, trajectories: Any, tail: float, center: int, edges: FloatArray) -> FixedPoint:
        """Count people by how far a return of theirs is from a center, at most: a bin up to each edge. **Not private**.

        Those with a return beyond the declared range, whatever its truncated tail is worth within that range, are in
        none of these bins, but in one of `BEYOND` and a last one: by how far beyond it is, at most, in half widths.
        """
        wide, half = self.wide(), float(self.half)
        grid, unit = self.grid, math.ldexp(1.0, wide.grid.exponent - self.grid.exponent)
        shift = (wide.grid.low - grid.low) / grid.unit

        def of_block(block: Trajectories) -> IntArray:
            counts = np.zeros((1, len(edges) + len(BEYOND) + 1), np.int64)
            cut = self._chunks(block, None) if self.has_tails else None
            for chunk in wide._chunks(block, tail):
                units = chunk.units / unit + shift
                apart = np.abs(np.minimum(np.maximum(units, 0.0), float(grid.largest)) - (grid.middle_units + center))
                bins = _bins_of(np.maximum.reduceat(apart, chunk.starts), edges)
                discounts = 0.0 if cut is None else next(cut).units / _ONE.largest
                filled = (tail - grid.low) / grid.unit
                above = units - discounts * filled - grid.largest
                below = -units - discounts * (grid.largest - filled)
                excess = np.maximum.reduceat(np.maximum(above, below), chunk.starts) / half
                is_beyond = excess > _EXCESS
                bins[is_beyond] = len(edges) + np.searchsorted(BEYOND, excess[is_beyond])
                counts[0] += np.bincount(bins, minlength=counts.shape[1])
            return counts

        again = partial(self.distance_counts, tail=tail, center=center, edges=edges)
        return _summed(trajectories, of_block, again, exponent=0)

    @suppress_float_warnings
    def state_sums(self, trajectories: Any, residuals: Residuals, clip: float) -> FixedPoint:
        """Sum s, s y, s y**2/4 and, where trajectories may have been cut, s d/4 over people. **Not private**.

        y is the return from the center over the reach, at most 1 in size, d the discount of the truncated tail, s the
        factor that scales the person's s (1, y) onto the clip: (3 or 4, n_states). If asked, rows of s d/4 by last
        state follow.
        """

        def of_block(block: Trajectories) -> IntArray:
            n_states = block.n_states
            totals = np.zeros((self.n_sums(n_states), n_states), np.int64)
            ends, first = _last_states(block, self.horizon), 0
            steps = min(max(_STEPS_PER_CHUNK, n_states), _MOST_STEPS_PER_CHUNK)
            cut = self._chunks(block, None, steps=steps) if self.has_tails else None
            for chunk in self._chunks(block, residuals.tail, steps=steps):
                y = (chunk.units - (self.grid.middle_units + residuals.center)) / residuals.reach
                y = np.minimum(np.maximum(y, -1.0), 1.0)
                owners = np.repeat(np.arange(len(chunk.sizes)), chunk.sizes)
                norms = np.sqrt(np.bincount(owners, 1.0 + y * y))
                scaled = (np.minimum(1.0, clip / norms) * _UNITS)[owners]
                parts = [scaled, scaled * y, scaled * (y * y) * SMALL_PART]
                if cut is not None:
                    parts.append(scaled * (next(cut).units / _ONE.largest) * SMALL_PART)
                for total, part in zip(totals, parts, strict=False):
                    total += np.bincount(chunk.visited, np.rint(part), n_states).astype(np.int64)
                if self.by_end:
                    cells = ends[first + owners] * n_states + chunk.visited
                    found = np.bincount(cells, np.rint(parts[-1]), n_states**2).astype(np.int64)
                    totals[4:] += found.reshape(n_states, n_states)
                first += len(chunk.sizes)
            return totals

        return _summed(trajectories, of_block, partial(self.state_sums, residuals=residuals, clip=clip))

    def _chunks(
        self, block: Trajectories, tail: float | None, *, lag: int | None = None, steps: int | None = None
    ) -> Iterator[_Chunk]:
        """List first visits of filled trajectories or, with None for the tail, the discounts of what was cut."""
        filled, grid = self._filled(block, tail), _ONE if tail is None else self.grid
        counted = self.lag if lag is None else lag
        found = chunks_of_visits(filled, self.gamma, self.horizon, counted, grid, steps or _STEPS_PER_CHUNK)
        for visited, units, ends in found:
            sizes = ends.copy()
            sizes[1:] -= ends[:-1]
            yield _Chunk(visited, units, sizes)

    def _filled(self, block: Trajectories, tail: float | None) -> Trajectories:
        """Return trajectories with the tail in their last rewards; with None, with nothing but a tail of 1."""
        if not self.has_tails:
            return block
        rewards = np.zeros(block.n_steps) if tail is None else block.rewards.astype(np.float64)
        lengths, horizon = _lengths(block), self.horizon
        counted = lengths if horizon is None else np.minimum(lengths, horizon)
        last = (block.offsets[:-1] + counted - 1)[_is_cut(block, lengths, horizon)]
        worth = 1.0 if tail is None else tail
        rewards[last] = worth if self.by_end else rewards[last] + self.gamma * worth
        return block.with_rewards(rewards)

    def _late(self, chunk: _Chunk) -> _Chunk:
        """Keep late steps, of states that are the numbers of steps."""
        first, last = self.late
        is_late = (chunk.visited >= first) & (chunk.visited < last)
        owners = np.repeat(np.arange(len(chunk.sizes)), chunk.sizes)[is_late]
        return _Chunk(chunk.visited[is_late], chunk.units[is_late], np.bincount(owners, minlength=len(chunk.sizes)))

    def _mean_parts(self, chunks: Iterator[_Chunk], *, discounts: bool = False) -> int:
        """Sum people's means of returns from the middle, over half the width; of discounts what is left of 1."""
        origin, size = (_ONE.largest, -_ONE.largest) if discounts else (self.grid.middle_units, self.half)
        total = 0
        for chunk in chunks:
            owners = np.repeat(np.arange(len(chunk.sizes)), chunk.sizes)
            # Integers below 2**31, of at most 2**20 visits: exact.
            sums = np.bincount(owners, chunk.units - origin, len(chunk.sizes))
            means = np.rint(sums * (_UNITS / size) / np.maximum(chunk.sizes, 1))
            total += int(np.sum(np.minimum(np.maximum(means, -_UNITS), _UNITS).astype(np.int64)))
        return total


class Residuals(NamedTuple):
    """Centers and reaches of returns, and the numbers that fill their tails: fitted to earlier releases."""

    #: In the units of rewards.
    tail: float
    #: In units of the grid, from its middle.
    center: int
    #: In units of the grid.
    reach: float


_ONE = ReturnGrid.for_range(0.0, 1.0)


class _Chunk(NamedTuple):
    """First visits of some trajectories: states, returns in units, and how many are each trajectory's."""

    visited: NDArray[np.int32]
    units: FloatArray
    sizes: IntArray

    @property
    def starts(self) -> IntArray:
        """The start of each trajectory's part; each has one."""
        return np.cumsum(self.sizes) - self.sizes


def _lengths(block: Trajectories) -> IntArray:
    """Return the steps of each trajectory: NumPy's difference takes five times as long for few."""
    return np.asarray(block.offsets[1:] - block.offsets[:-1])


def _last_states(block: Trajectories, horizon: int | None) -> IntArray:
    """Return the last state of each trajectory that counts."""
    lengths = _lengths(block)
    counted = lengths if horizon is None else np.minimum(lengths, horizon)
    return np.asarray(block.states[block.offsets[:-1] + counted - 1], np.int64)


def _is_cut(block: Trajectories, lengths: IntArray, horizon: int | None) -> NDArray[np.bool_]:
    """Return whether each trajectory went on: beyond the horizon, or as it says; without saying, at the horizon."""
    if block.truncated is None:
        return lengths >= (math.inf if horizon is None else horizon)
    return block.truncated if horizon is None else block.truncated | (lengths > horizon)


def _every_step(block: Trajectories) -> Trajectories:
    """Return trajectories whose states are the numbers of their steps: every visit is a first one."""
    states = np.arange(block.n_steps) - np.repeat(block.offsets[:-1], _lengths(block))
    return block.with_states(states, block.longest)


def _bins_of(sizes: NDArray[Any], edges: NDArray[Any]) -> IntArray:
    """Return bins up to each edge; what is beyond all is in the last."""
    return np.minimum(np.searchsorted(edges, sizes), len(edges) - 1)


def _summed(
    trajectories: Any,
    of_block: Callable[[Trajectories], IntArray],
    again: Callable[[Any], FixedPoint],
    *,
    exponent: int = _LOG2_UNITS,
) -> FixedPoint:
    """Add up integers over blocks, or over parts."""
    if isinstance(trajectories, Partitions):
        return sum_of_trajectories(trajectories, again)
    total: Any = 0
    n_trajectories, first = 0, None
    for block in blocks_of(trajectories, some=True):
        first = block if first is None else first
        if (block.truncated is None) != (first.truncated is None):
            raise ValueError("blocks must all say which trajectories were truncated, or none of them")
        n_trajectories += len(block)
        check_capacity(n_trajectories)
        total = total + of_block(block)
    return FixedPoint.from_integers(total, -exponent)
