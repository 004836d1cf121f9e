"""Sums over visits in stages, each adapted to earlier releases: noise fits the data, and truncated tails are filled.

The releases of one fit share one joint budget (`dpfast.privacy.split_budget`), by shares of mu squared, in this order:

1. *Means* (`_MEANS`): four numbers a person, each in [-1, 1] by separate bounds. They are the mean return, and the mean
  of 1 less the discount of the truncated tail, each over all first visits and over all late steps. The first two locate
  the returns. The last two give the loss at the horizon, and so the value to fill tails with. Replaced, a person moves
  returns by 2 and the others by 1 each: sqrt(10) in all, and by 2 if they come or go. Where the number of people is
  private, 1 a person is released beside them: sqrt(5) in place of 2.
2. *Visits* (`_VISITS`): people by the number of states they visit. They determine the clip C of a person's visits, by
  the least sum of noise (proportional to C) and bias (the visits clipped). C is larger if the mean return is far from
  the middle of the reach (stage 3): people with returns near an end would else count less than others.
3. *Distances* (`_DISTANCES`): people by the largest distance of their returns from that location. They determine the
  reach of returns in the same way, unless people are too few to locate the returns. People with returns beyond the
  declared range are in bins of their own, by how far beyond: their values are clipped, and limits say so.
4. *Sums*: over people and the states they visit, of 1, of returns, of their squares and of discounts of truncated
  tails. Where noise is little, of up to 64 states (`_summed`), these discounts are also summed by the last state of
  the trajectory, which tells what the tails are worth. A person's part is scaled to keep visits and returns within C
  (`dpfast.statistics.filled_returns`). No two people's parts have a negative product in any state: one who takes
  another's place moves the sums by sqrt(2) times the bound.

A stage adapts only to earlier releases and public numbers, and is fixed before trajectories are read again. Each
release is calibrated for its part as if it were alone: whatever was released before, counts move by one bin or two,
means and sums by the bounds above. So they compose adaptively to the whole by mu squared.

What follows is post-processing (`dpfast.solvers.state_values.fitted_values`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from scipy import special

from dpfast._arrays import FloatArray, IntArray
from dpfast.ledger import Release
from dpfast.policy_evaluation.evaluation import Evaluated, PolicyMechanism, Run
from dpfast.privacy import Privacy, split_budget
from dpfast.privacy.guarantee import ROUND_UP, remembered
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.solvers.state_values import Earlier, Estimate, Lost, StateSums, fitted_values
from dpfast.statistics.filled_returns import BEYOND, SMALL_PART, FilledReturns, Residuals
from dpfast.statistics.visits import check_most_visited

# Shares of mu squared; the sums have the rest.
_MEANS, _VISITS, _DISTANCES = 0.06, 0.03, 0.03
# Half widths by which the pooled return may be off: beyond, nothing is fitted to it.
_TOLD = 0.15
# Most half-octaves for numbers of visits, and for distances.
_VISIT_BINS, _DISTANCE_BINS = 24, 12
# Most states of which the last ones of truncated trajectories are released; and most noise in values then, over
# the discount of tails.
_MOST_ENDS, _TOLD_ENDS = 64, 1.0
# How far the late return is from the pooled one, in half widths, as a guess.
_LATER = 0.1
# Squared norms that a visit may add, 1 for the visit and the rest for its return, less the square of the mean return;
# the usual one; and in how many levels that square is taken.
_VISIT_NORMS, _A_VISIT, _LEVELS = np.array([1.1, 1.3, 1.7]), 1.3, 16
# As planned: the noise of uneven visits; how far returns reach, over half the range, in standard deviations; the least
# share of their variance within states; the most of a tail's error that comes back; and of the pooled return's error.
_WORSE, _REACHED, _WITHIN, _MOST_AGAIN, _POOLED = 1.3, 40.0, 0.25, 0.95, 0.5
# Variance of a value anywhere in the range, in half widths.
_EVEN = 1.0 / 3.0
# The variance of a known value.
_EXACT = 1e-12
# Standard deviations of noise from which on people with returns beyond the range are distinguished from none: in one
# bin, and in all.
_ONE_BIN, _ALL_BINS = 3.2, 2.3
# Those from which on limits, without a warning, count them.
_PERHAPS_ONE, _PERHAPS_ALL = 2.0, 1.2
# Share of people who may be beyond the range, and hidden by noise, without a warning.
_MOST_HIDDEN = 0.2
# Error, over the range, from which on fits warn that all is noise.
_ALL_NOISE = 0.5
# Share of the range that truncated tails may bias a visit's value by without a warning.
_WARNED_BIAS = 0.15
# What people who are scaled bias values by, in parts of what they lose.
_BIAS_OF_VISITS, _BIAS_OF_RETURNS = 1.0, 2.0


class Guesses(NamedTuple):
    """What a plan assumes of trajectories, for every state: (n_states,) each."""

    #: Share of people who visit it.
    visited: FloatArray
    #: Distance of its value from the mean return, in parts of the range.
    distances: FloatArray
    #: Standard deviation of all returns, in the same.
    spread: float
    #: Share of people who are truncated at the horizon.
    truncated: float


class _Centered(NamedTuple):
    """Estimates from the means, in half widths from the middle of the range."""

    #: The number of people.
    n: float
    #: Value to shrink values towards.
    pooled: Estimate
    #: Value of tails.
    tail: Estimate
    #: Mean discount of truncated tails.
    discount: Estimate

    @property
    def is_told(self) -> bool:
        """Whether means are known well enough to fit anything to them."""
        return self.pooled.variance < _TOLD**2


class _Clip(NamedTuple):
    """Clip of a person's visits."""

    norm: float
    #: In values, over the reach.
    noise: float
    #: Mean part of people's weight that is lost.
    lost: float


@dataclass(frozen=True, eq=False)
class StagedVisits(PolicyMechanism):
    """The mechanism: a sequence of releases, calibrated for declared bounds and for earlier releases."""

    privacy: Privacy
    returns: FilledReturns
    #: The number of trajectories, where it is public.
    m: int | None

    @classmethod
    def calibrate(cls, privacy: Privacy, run: Run, *, has_tails: bool, m: int | None) -> Self:
        """Return the mechanism for a problem; `m` is the number of trajectories."""
        problem = run.problem
        check_most_visited(problem.most_visited)
        returns = FilledReturns(run.gamma, problem.horizon, problem.lag, problem.grid, has_tails)
        return cls(run, privacy, returns, None if privacy.adjacency == "add_remove" else m)

    @cached_property
    def _parts(self) -> tuple[Privacy, ...]:
        """Split the budget between the four stages."""
        shares = _MEANS, _VISITS, _DISTANCES
        return split_budget(self.privacy, [*shares, 1.0 - sum(shares)])

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in a sum of clip 1."""
        return {"sum": self._sums(self._parts[-1], 1.0, self.returns).deviation}

    def stages(self) -> Stages[Evaluated]:
        """Ask for one release after the other."""
        centered = yield from self._means()
        _, visits, distances, sums = self._parts
        unit = self._sums(sums, 1.0, self.returns).deviation
        clipped = yield from self._clip(visits, unit, centered.n)
        returns = self._summed(clipped(0.0).noise, min(max(centered.discount.value, 0.0), 1.0))
        # Where little is known, returns are taken from the middle of the range, and tails are shrunk to it.
        center = round(centered.pooled.value * self.returns.half) if centered.is_told else 0
        tail = centered.tail.value * (1.0 if centered.is_told else _EVEN / (_EVEN + centered.tail.variance))
        tail_value = self.returns.grid.middle + tail * self.returns.half_width
        # Without noise the farthest reach is best.
        noise = clipped(0.0).noise if centered.is_told else 0.0
        residuals, lost = yield from self._reach(distances, tail_value, center, noise, centered.n)
        # Returns that are mostly on one side of the middle add more to a visit's norm.
        side = (centered.pooled.value * self.returns.half - residuals.center) / residuals.reach
        clip, _, lost_weight = clipped(min(side**2, 1.0) if centered.is_told else 0.0)
        mechanism = self._sums(sums, clip, returns)
        statistic = partial(returns.state_sums, residuals=residuals, clip=clip)
        released = yield Query(self.run.what, mechanism, statistic, clip)
        told = returns, centered, residuals, lost._replace(weight=lost_weight)
        return partial(self._told, released.values["sum"], mechanism.deviation, *told)

    def _means(self) -> Generator[Query, Release, _Centered]:
        """Estimate the location of returns, and the loss of truncated ones."""
        is_private, noise = self.m is None, self._noise_of_means()
        statistic = partial(self.returns.return_means, with_count=is_private)
        released = yield Query("mean returns", noise, statistic)
        values, off = released.values["sum"], noise.deviation
        n = float(self.m or 0) if not is_private else max(float(values[0]), off)
        collected, *rest = values[is_private:].tolist()

        def mean(total: float, left: float) -> Estimate:
            left = max(left, 2.0 * off)
            value = float(np.clip(total / left, -1.0, 1.0))
            return Estimate(value, (off / left) ** 2 * (1.0 + value**2))

        tail = pooled = mean(collected, rest[0] if rest else n)
        if len(rest) == 3:
            tail = mean(rest[1], rest[2]).joined(Estimate(pooled.value, pooled.variance + _LATER**2))
        discount = Estimate(1.0 - rest[0] / n, (off / n) ** 2) if rest else Estimate(0.0, _EXACT)
        return _Centered(n, pooled, tail, discount)

    def _clip(self, part: Privacy, unit: float, n: float) -> Generator[Query, Release, Callable[[float], _Clip]]:
        """Learn how many states people visit; return their clip by the squared mean of returns over the reach."""
        most = self.problem.most_visited
        edges, middles = _visit_clips(most, 0)[:2]
        counts = NoisySum.of_counts(part, 1, len(edges))
        released = yield Query("numbers of visits", counts, partial(self.returns.visit_counts, edges=edges))
        histogram = released.values["sum"][0]
        seen = np.maximum(histogram, 0.0)
        mean = min(max(float(middles**2 @ seen) / max(float(np.sum(seen)), 5.0 * counts.deviation), 1.0), float(most))
        noise = unit * self.problem.n_states / (n * mean)

        def clipped(squared: float) -> _Clip:
            ends, lost = _visit_clips(most, round(_LEVELS * squared))[2:]
            at = _least_error(ends, lost, histogram, counts.deviation, noise, _BIAS_OF_VISITS / n)
            return _Clip(float(ends[at]), noise * float(ends[at]), min(max(float(lost[at] @ histogram), 0.0) / n, 1.0))

        return clipped

    def _reach(
        self, part: Privacy, tail: float, center: int, noise: float, n: float
    ) -> Generator[Query, Release, tuple[Residuals, Lost]]:
        """Learn how far returns are from the center, and what is lost beyond and by the range.

        The part of the range that is within reach has a center and a reach of its own, which is smaller where an end of
        the range is nearer.
        """
        farthest = float(self.returns.half + abs(center))
        edges = farthest * np.exp2(-0.5 * np.arange(_DISTANCE_BINS)[::-1])
        counts = _distance_noise(part)
        statistic = partial(self.returns.distance_counts, tail=tail, center=center, edges=edges)
        released = yield Query("distances of returns", counts, statistic)
        histogram, outside = np.split(released.values["sum"][0], [_DISTANCE_BINS])
        people, is_sure = _people_outside(outside, counts.deviation)
        # Their distances are not known: they are taken to be the farthest.
        histogram = np.append(histogram[:-1], histogram[-1] + is_sure * sum(number for number, _ in people))
        relative = edges / farthest
        middles = relative * 2.0**-0.25
        lost = [np.maximum(middles - edge, 0.0) for edge in relative]
        at = _least_error(relative, lost, histogram, counts.deviation, noise, _BIAS_OF_RETURNS / n)
        low = max(center - float(edges[at]), -float(self.returns.grid.middle_units))
        high = min(center + float(edges[at]), float(self.returns.half))
        middle = round(0.5 * (low + high))
        reach = max(high - middle, middle - low)
        # Returns may all be at the far end of their bin, where the most is lost: limits count that.
        excess = np.maximum(edges - edges[at], 0.0) / reach
        beyond, hidden = max(float(excess @ histogram), 0.0), counts.deviation * float(np.linalg.norm(excess))
        half = self.returns.half / reach
        scaled = tuple((number, size * half) for number, size in people)
        return Residuals(tail, middle, reach), Lost(0.0, beyond, hidden, scaled, is_sure)

    def _summed(self, noise: float, discount: float) -> FilledReturns:
        """Say how returns are summed: by last state, if noise in values and the discount of tails let this tell them.

        A visit at the horizon is then worth the value of its own state. It tells nothing, and does not count.
        """
        returns, n_states = self.returns, self.problem.n_states
        is_told = noise * math.sqrt(n_states) / SMALL_PART < _TOLD_ENDS * discount
        if not returns.has_tails or n_states > _MOST_ENDS or returns.horizon == 1 or not is_told:
            return returns
        return replace(returns, lag=returns.lag if returns.horizon is None else max(returns.lag, 1), by_end=True)

    def _sums(self, part: Privacy, clip: float, returns: FilledReturns) -> NoisySum:
        """Return the noise of the sums."""
        bound = returns.state_sum_bound(clip, self.problem.most_visited)
        shape = returns.n_sums(self.problem.n_states), self.problem.n_states
        return NoisySum.moved_by(part, math.sqrt(2.0) * bound * ROUND_UP, bound, shape)

    def _told(
        self,
        sums: FloatArray,
        deviation: float,
        returns: FilledReturns,
        centered: _Centered,
        residuals: Residuals,
        lost: Lost,
    ) -> Evaluated:
        """Return values, in the units of rewards."""
        grid = self.problem.grid
        reach, center = residuals.reach / returns.half, residuals.center / returns.half

        def about(estimate: Estimate) -> Estimate:
            return Estimate((estimate.value - center) / reach, estimate.variance / reach**2)

        discounts = sums[3] / SMALL_PART if returns.has_tails else np.zeros_like(sums[0])
        small = deviation / SMALL_PART
        total = max(float(np.sum(sums[0])), deviation * math.sqrt(len(sums[0])))
        discount = centered.discount
        if returns.has_tails and returns.horizon is not None:
            # Before any release: from none of the people who visit states this often are truncated, up to all.
            most = float(self._all_truncated(total / (centered.n * len(sums[0]))))
            discount = discount.merged(Estimate(0.5 * most, (0.5 * most) ** 2))
        filled = (residuals.tail - grid.middle) / returns.half_width
        whole = (-1.0 - center) / reach, (1.0 - center) / reach
        # Filled returns are within the reach, values that follow from last states may be beyond it.
        limits = whole if returns.by_end else (max(whole[0], -1.0), min(whole[1], 1.0))
        found = fitted_values(
            StateSums(sums[0], sums[1], sums[2] / SMALL_PART, discounts, deviation, small, sums[4:] / SMALL_PART),
            limits,
            whole,
            Earlier(about(centered.pooled), about(centered.tail), discount, (filled - center) / reach),
            lost,
        )
        unit = reach * returns.half_width
        offset = grid.middle + center * returns.half_width + unit * found.pooled
        error = 0.5 * reach * deviation / max(float(np.sum(sums[0])) / len(sums[0]), deviation)
        known = np.where(np.isfinite(found.deviation), unit * found.deviation, np.nan)
        # Limits count no people beyond the range that noise hides: many are said, unless all is said to be noise.
        hidden = _PERHAPS_ALL * math.sqrt(len(BEYOND) + 1) * _distance_noise(self._parts[2]).deviation / centered.n
        caution = _caution(lost, hidden if error < _ALL_NOISE else 0.0, 0.5 * reach * found.unseen)
        return Evaluated(unit * found.above, offset, 0.0, error, known, caution=caution)

    def expected_error(self, m: int, visited: float | None) -> float:
        """Expect the noise in the value of a state before shrinkage, with visits spread evenly."""
        share = 0.5 * self.problem.most_visited / self.problem.n_states if visited is None else visited
        return self._planned_noise(m, self.problem.n_states * share) / share

    def planned_error(self, m: int, guesses: Guesses) -> float:
        """Expect the error of shrunk values, in parts of the range, for guesses.

        Values are shrunk as if all were as far from the mean return as those of the usual visitor. The share of the
        variance of returns that these explain is taken for how much a trajectory's tail follows its state. That much of
        a tail is missed, unless little noise lets the sums tell last states; then its errors come back by further
        tails. The error of the pooled return is its noise in the sums and in the means.
        """
        visited, squared, n_states = guesses.visited, guesses.distances**2, self.problem.n_states
        total, discounts = float(np.sum(visited)), self._planned_discounts(guesses)
        between, cut = float(visited @ squared) / total, float(visited @ discounts) / total
        persistence = min(between / guesses.spread**2, 1.0)
        noise, of_means = self._planned_noise(m, total), 0.5 * self._noise_of_means().deviation / (m * (1.0 - cut))
        is_told = of_means < 0.5 * _TOLD
        worse = _WORSE * noise * (min(1.0, _REACHED * guesses.spread) if is_told else 1.0)
        within = guesses.spread**2 * max(1.0 - persistence, _WITHIN)
        own, lost = (worse / visited) ** 2 + within / (m * visited), discounts**2 * persistence * squared
        if self._summed(2.0 * noise * n_states / total, cut).by_end:
            # Values are in half widths, and all of them have this noise.
            of_ends = (2.0 * noise / (SMALL_PART * visited)) ** 2 * float(np.sum(squared))
            again = (1.0 - np.minimum(persistence * discounts, _MOST_AGAIN)) ** -2.0
            own, lost = own * again, lost * again * of_ends / (lost + of_ends)
        error = own + lost
        kept = between / (between + error)
        # Where little is known of returns, noise in discounts is as large as that in returns.
        of_sums = n_states * (worse / max(1.0, total)) ** 2 * (1.0 if is_told or cut == 0.0 else 4.0)
        tail = 1.0 / (of_means**-2 + 1.0 / (of_sums / (1.0 - cut) ** 2 + between))
        pooled = _POOLED / (1.0 / (of_sums + cut**2 * tail) + of_means**-2)
        return math.sqrt(float(np.mean(np.minimum(kept**2 * error + (1.0 - kept) ** 2 * squared, 1.0))) + pooled)

    def planned_notes(self, expected: float, guesses: Guesses) -> dict[str, float]:
        """Say what a plan assumes without being told: nobody beyond the range, and tails like what is seen.

        A tail is worth something within the range: that bounds the error if it is unlike everything seen.
        """
        notes = {"share of people assumed to have returns beyond the range": 0.0}
        if self.returns.has_tails and self.returns.horizon is not None:
            unseen = math.sqrt(float(np.mean(self._planned_discounts(guesses) ** 2)))
            notes["error if truncated tails are unlike what is seen, at most"] = min(expected + unseen, 1.0)
        return notes

    def _planned_noise(self, m: int, total: float) -> float:
        """Return the noise in a value, in parts of the range, times its share of visitors; `total` is a person's."""
        clip = math.sqrt(_A_VISIT * max(1.0, total))
        return 0.5 * self._sums(self._parts[-1], clip, self.returns).deviation / m

    def _planned_discounts(self, guesses: Guesses) -> FloatArray:
        """Return the mean discount of truncated tails by state: first visits come at a constant rate until the horizon.

        Of those who visit rare states more are truncated, as these are on the way for longer.
        """
        visited = guesses.visited
        if not self.returns.has_tails or self.returns.horizon is None:
            return np.zeros(len(visited))
        truncated = guesses.truncated ** (visited / np.max(visited))
        return np.asarray(np.minimum(truncated * self._all_truncated(visited), 1.0 - 2.0**-30))

    def _all_truncated(self, visited: FloatArray | float) -> FloatArray:
        """Return mean discounts of tails for shares of people who visit a state, if all are truncated."""
        rate = -np.log1p(-np.minimum(visited, 1.0 - _EXACT))
        decay = -math.log(self.returns.gamma) * (self.returns.horizon or 0)
        return np.asarray(special.exprel(rate - decay) / special.exprel(rate))

    def _noise_of_means(self) -> NoisySum:
        """Return the noise of the means, and of the number of people where it is private."""
        size = self.returns.n_means
        moved = math.sqrt({1: 4.0, 2: 5.0, 4: 10.0}[size]) * ROUND_UP
        size += self.m is None
        return NoisySum.moved_by(self._parts[0], moved, math.sqrt(size) * ROUND_UP, (size,))


def _distance_noise(part: Privacy) -> NoisySum:
    """Return the noise of counts of people by distance, and by how far beyond the range."""
    return NoisySum.of_counts(part, 1, _DISTANCE_BINS + len(BEYOND) + 1)


def _people_outside(counts: FloatArray, deviation: float) -> tuple[list[tuple[float, float]], bool]:
    """Return people with returns beyond the range, by how many half widths at most, and whether they are no noise.

    Those who may be noise are none, unless they are more than it usually is: limits then count them as released.
    """
    beyond, all_bins = counts > _ONE_BIN * deviation, deviation * math.sqrt(len(counts))
    if not np.any(beyond) and float(np.sum(counts)) <= _ALL_BINS * all_bins:
        many = bool(np.any(counts > _PERHAPS_ONE * deviation)) or float(np.sum(counts)) > _PERHAPS_ALL * all_bins
        sizes = (*BEYOND, BEYOND[-1])
        return [(max(float(one), 0.0), size) for one, size in zip(counts, sizes, strict=True)] if many else [], False
    # Of the last bin nothing is known but that it is farther: of few people, perhaps noise, as far as the one before.
    sizes = (*BEYOND, math.inf if beyond[-1] else BEYOND[-1])
    return [(max(float(count), 0.0) + deviation, size) for count, size in zip(counts, sizes, strict=True)], True


def _caution(lost: Lost, hidden: float, bias: float) -> str:
    """Say why limits are wide, or missing, and of what they are unsure."""
    said = []
    if hidden > _MOST_HIDDEN and not (lost.people and lost.is_sure):
        said.append(
            f"noise may hide that {100.0 * min(hidden, 1.0):.0f}% of people have returns beyond the range of returns. "
            "The 95% limits hold if hardly any have; with more people or a larger epsilon noise hides fewer"
        )
    if lost.people and lost.is_sure:
        what = "cannot be" if any(math.isinf(size) for _, size in lost.people) else "are"
        said.append(
            "as released, people have returns beyond the declared range, and those were clipped. The 95% limits "
            f"{what} widened accordingly; declare a wider return_range (or reward_range)"
        )
    if bias > _WARNED_BIAS:
        said.append(
            f"as released, rewards after the horizon may change values by {100.0 * min(bias, 1.0):.0f}% of the range "
            "of returns. The limits include this; a larger horizon or a smaller gamma narrows them"
        )
    return "; ".join(said)


@remembered
def _visit_clips(most: int, level: int) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Return bins of numbers of visits, up to the most: their ends and middles; clips, and what each loses of a bin."""
    edges = np.unique(np.floor(most * np.exp2(-0.5 * np.arange(_VISIT_BINS)))).astype(np.int64)
    edges = edges[edges >= 1]
    middles = np.sqrt(0.5 * (np.append(0, edges[:-1]) + 1.0 + edges))
    squared = np.minimum(_VISIT_NORMS + level / _LEVELS, 2.0)
    ends, norms = np.unique(np.sqrt(np.outer(squared, edges))), np.sqrt(np.outer(squared, middles**2))
    lost = np.array([np.mean(np.maximum(1.0 - end / norms, 0.0), axis=0) for end in ends])
    for one in (edges, middles, ends, lost):
        one.flags.writeable = False
    return edges, middles, ends, lost


def _least_error(
    ends: FloatArray,
    lost: Sequence[FloatArray] | FloatArray,
    counts: FloatArray,
    deviation: float,
    noise: float,
    bias: float,
) -> int:
    """Return the bin edge with the least error: noise proportional to it, and bias from clipping the counted people.

    One standard deviation of its noise is added to the bias.
    """
    losses = np.array([max(float(one @ counts), 0.0) + deviation * math.sqrt(one @ one) for one in lost])
    return int(np.argmin(np.hypot(noise * ends, bias * losses)))
