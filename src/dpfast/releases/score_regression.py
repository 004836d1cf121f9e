"""Huber and quantile regression in stages: the steps of staged least squares, with scores instead of residuals.

The score of a row is minus the slope of its loss at the coefficients so far (`SmoothedHuber`, `SmoothedQuantile`). It
is never longer than a public number: Huber's threshold, or the larger of a quantile's level and one less that. So no
person's part is clipped by the size of its residual; such a clip would move a quantile. The releases are, in order:

1. The first releases of `StagedRegression`, about rows: their number, if it is private; means; norm histogram; and
   coordinates in which they are about even.
2. *First level*, if there is an intercept: sums of scores alone, starting at the mean outcome. If people are few,
   nothing else follows the number of people.
3. *Scores*: in every step whitened rows times scores. A share of the people have rows beyond some length. These rows
   have less weight, by a factor independent of their outcomes. So a sum is moved by that length times the longest
   score.
4. *Last level*: the intercept once more, for the coefficients after shrinkage.

The effect of coefficients on scores is X'X times the mean second derivative of the loss. Histograms of the *sizes of
residuals* give this mean, before the first step and later ones.

Maps, lengths and coefficients are functions of earlier releases and public numbers, fixed before the data are read
again, and every release is calibrated for its part as if it were alone. Whatever was released before, one person
changes one bin of each histogram, or two, and moves a sum of scores by `residual_bound` of its clip, or twice that. So
the releases compose adaptively to the whole as those of `StagedRegression` do.

A person may have several rows, of which the first `max_rows` count. The person's part of a sum is that of their rows'
parts, clipped as a whole: the same proof, with the person for the row. In steps the clip is the root of `max_rows`
times that of a row. In levels it is `max_rows` times that of a row, so that it never binds and moves no quantile. In a
histogram of the sizes of residuals the person's first row counts, and this person alone decides which that is.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, parts_of
from dpfast.releases.mechanism import Query, Stages
from dpfast.releases.noisy_sum import NoisySum
from dpfast.releases.staged_regression import Fit, Lengths, Level, People, Regression, StagedRegression, held
from dpfast.solvers import SmoothedHuber, SmoothedQuantile
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Position
from dpfast.statistics.residuals import Link, ResidualStep, residual_bound, residual_sums

ScoreLoss: TypeAlias = SmoothedHuber | SmoothedQuantile

#: Shares of the budget for the first level and the last, their numbers of steps, and the part for counts of residuals.
_FIRST, _LAST, _FIRST_STEPS, _LAST_STEPS, _SIZES = 0.08, 0.12, 8, 5, 0.1
#: Largest effect of noise on predictions in a step, relative to the size of residuals.
_CALM = 0.5
#: Share of the largest second derivative: expected if half the people are on either side, its deviation, and the least.
_CURVATURE, _UNSURE, _LEAST = 0.6, 0.3, 0.05
#: The clip of a person with several rows grows as this power of the most rows of one, as in the descent of classes.
_SEVERAL = 0.5
#: Half-octaves of the sizes of residuals that are counted, up to twice the size at which scores reach their bound.
_TOLD_APART = 7
#: Expected values: the share of the steps' budget for late ones, and the ratio of errors to those with normal rows.
_LATE, _WORSE = 0.75, 2.0


@dataclass(frozen=True)
class ScoreRegression(StagedRegression):
    """The mechanism, for one outcome: `loss` instead of squares."""

    loss: ScoreLoss = field(kw_only=True)

    def expected_noise(self, people: float, curvature: float) -> float:
        """Return the expected error of predictions from noise: infinite if no coefficients are fitted.

        In whitened coordinates a part is as long as a row, of the mean square k, times the longest score. The error of
        predictions is that of k coefficients: the noise divided by the mean second derivative, `curvature`. People with
        several rows are taken to have `max_rows` each.
        """
        if self.is_few(people):
            return math.inf
        entries = self.shape[0] + self.fit_intercept
        steepest = curvature * self.loss.second_derivative_bound()
        share = _LATE * self._shares(people).steps * (1.0 - (_FIRST + _LAST) * self.fit_intercept)
        rows = people * (self.max_rows or 1)
        noise = self.longest_score * self.stretch * self.unit_deviation / (rows * steepest * math.sqrt(share))
        return _WORSE * entries * noise

    def is_few(self, people: float) -> bool:
        """Whether so few people show no more than a level; people on the rarer side decide."""
        return self.fit_intercept and people * self.mu * self.evenness < descent.FEW

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        left, people, rows = yield from self._counted()
        fit = _ScoreFit(self, left, self._shares(people), people, rows)
        if not self.is_few(people):
            return (yield from fit.stages())
        nothing = np.zeros((self.shape[0] + 1, 1))
        level = yield from fit.level("level", left, nothing, _FIRST_STEPS)
        return partial(self._level_alone, level * self.units.outcomes)

    @property
    def bend(self) -> tuple[float, float]:
        """Threshold or level, and width."""
        own = self.loss
        return (own.threshold if isinstance(own, SmoothedHuber) else own.level), own.width

    @property
    def link(self) -> Link:
        """Name of the scores in the sums."""
        return "huber" if isinstance(self.loss, SmoothedHuber) else "quantile"

    @property
    def longest_score(self) -> float:
        """Bound on the length of scores, up to rounding."""
        own = self.loss
        return own.threshold if isinstance(own, SmoothedHuber) else max(own.level, 1.0 - own.level)

    @property
    def stretch(self) -> float:
        """Clip of a person's part of a step over that of a row."""
        return math.pow(self.max_rows or 1, _SEVERAL)

    @property
    def evenness(self) -> float:
        """The share of people on the rarer side of the level, over a half."""
        own = self.loss
        return 1.0 if isinstance(own, SmoothedHuber) else 2.0 * min(own.level, 1.0 - own.level)

    def _shares(self, people: float) -> descent.Schedule:
        shares = descent.schedule(people, self.mu, self.shape[0], constant=self.fit_intercept, squares=False)
        steps = shares.steps + shares.mean_residual + shares.excess
        return shares._replace(steps=steps, mean_residual=0.0, excess=0.0)


@dataclass(frozen=True)
class _ScoreFit(Fit):
    """The stages of a fit of coefficients."""

    mechanism: ScoreRegression

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, left = self.mechanism, self.privacy
        first = last = None
        if mechanism.fit_intercept:
            first, left, last = parts_of(left, [_FIRST, 1.0 - _FIRST - _LAST, _LAST])
        parts = self._parts(left)
        coordinates, lengths, level = yield from self._coordinates(parts)
        theta = np.zeros((len(coordinates.xx), 1))
        if first is not None:
            theta[-1] = level
            theta[-1] = yield from self.level("first level", first, self._as_summed(theta, coordinates), _FIRST_STEPS)
        length, kept = self._weighed(lengths, len(theta))
        longest, weighed = math.hypot(length, float(mechanism.fit_intercept)), _times(coordinates, kept)
        clip, unit = longest * mechanism.longest_score * mechanism.stretch, self._unit_of_scores
        curved, curvature = weighed, 0.0
        how = descent.steps(weighed, self.rows, most=mechanism.most, asked=mechanism.n_steps)
        later, position = how.counted if len(parts.sizes) > 1 else (), Position.start(theta)
        each = parts_of(parts.steps, [1.0] * how.n_steps)
        step = self._score_step(theta, coordinates, longest)
        loud = NoisySum.calibrate(each[0], longest * mechanism.stretch, (1,), unit=mechanism._unit)
        loudness = math.sqrt(len(theta)) * loud.deviation / (self.rows * kept)
        for number, part in enumerate(each):
            coef = self._as_summed(position.theta, coordinates)
            position = position._replace(theta=self._kept(coef) * position.theta)
            if number == 0 or number in later:
                sizes = parts.sizes[0 if number == 0 else 1 + later.index(number)]
                # Divergent coefficients leave large residuals, and these must not make steps longer.
                seen = yield from self._curvature(f"sizes of residuals, step {number + 1}", sizes, coef)
                curvature = max(curvature, seen)
                curved = _times(weighed, curvature)
                damping = min(1.0, _CALM * mechanism.evenness / loudness)
                rows = self.rows * kept * curvature
                how = descent.steps(curved, rows, asked=how.n_steps, damping=damping)
            step = step.at(self._as_summed(position.theta, coordinates))
            bound = residual_bound(clip, step, mechanism.max_rows)
            sums = NoisySum.calibrate(part, bound, theta.shape, unit=mechanism._unit)
            released = yield Query(f"scores, step {number + 1}", sums, partial(_sum_scores, step=step, clip=clip), clip)
            position = descent.stepped(position, how, released.values["sum"] / unit, sums.deviation / unit)
        assert parts.last_sizes is not None
        coef = self._as_summed(position.theta, coordinates)
        seen = yield from self._curvature("sizes of last residuals", parts.last_sizes, coef)
        curved = _times(weighed, max(curvature, seen))
        found = descent.found(position, how, curved)
        solved = self._solved(found, curved)
        level = held(found.theta[-1] if mechanism.fit_intercept else np.zeros(1), 4.0 * self._largest)
        if last is not None:
            center = coordinates.center @ solved.coef
            own = mechanism.units
            coef = np.vstack([solved.coef * (own.outcomes / own.rows), (level - center) * own.outcomes])
            # Shrinkage makes residuals larger, and moves their quantiles.
            level = center + (yield from self.level("last level", last, coef, _LAST_STEPS, least=max(curvature, seen)))

        def told() -> Regression:
            return self._told(solved, Level(level), found, curved, None, how.n_steps)

        return told

    def level(
        self, name: str, part: Privacy, coef: FloatArray, n_steps: int, *, least: float = 0.0
    ) -> Generator[Query, Release, FloatArray]:
        """Descend in the constant alone, the last of the coefficients of original rows; returned in units."""
        mechanism, own = self.mechanism, self.mechanism.units.outcomes
        coef = self._kept(coef) * coef
        sizes, steps = parts_of(part, [_SIZES, 1.0 - _SIZES])
        curvature = max(least, (yield from self._curvature(f"{name}: sizes of residuals", sizes, coef)))
        clip, most = mechanism.longest_score * (mechanism.max_rows or 1), own * 2.0 * self._largest
        late, step = np.zeros(1), self._of_constant(coef, scores=True)
        for number, each in enumerate(parts_of(steps, [1.0] * n_steps)):
            step = step.at(coef)
            bound = residual_bound(clip, step, mechanism.max_rows)
            sums = NoisySum.calibrate(each, bound, (1, 1), unit=mechanism._unit)
            released = yield Query(
                f"{name}: scores, step {number + 1}", sums, partial(_sum_scores, step=step, clip=clip), clip
            )
            longest = self.rows * mechanism.longest_score
            damping = min(1.0, _CALM * mechanism.evenness * longest / sums.deviation)
            slope = curvature * mechanism.loss.second_derivative_bound() * self.rows
            moved = np.clip(coef[-1] + damping * released.values["sum"][0] / slope, -most, most)
            coef = np.vstack([coef[:-1], moved])
            if number >= n_steps // 2:
                late += moved / (n_steps - n_steps // 2)
        return late / own

    def _weighed(self, lengths: Lengths, entries: int) -> tuple[float, float]:
        """Return the clip of rows, and the part of X'X that it leaves.

        The noise is in proportion to the clip. The fewer people there are relative to the noise, the more of them are
        beyond the clip, as for parts in staged least squares.
        """
        share = descent.clipped_share(entries, self.people, self.mechanism.mu)
        found = descent.size_of_share(lengths.counts, lengths.deviation, lengths.sizes, share, self.people)
        length = lengths.longest if found is None else min(max(found, _SHORTEST * lengths.longest), lengths.longest)
        middles = np.minimum(lengths.sizes, lengths.longest) * 2.0**-0.25
        counts = np.where(lengths.sizes <= lengths.longest * _NEARLY, np.maximum(lengths.counts, 0.0), 0.0)
        whole = float(np.sum(counts * middles**2))
        left = float(np.sum(counts * middles * np.minimum(middles, length)))
        return length, max(left / whole, _LEAST) if whole > 0.0 else 1.0

    def _curvature(self, name: str, part: Privacy, coef: FloatArray) -> Generator[Query, Release, float]:
        """Estimate the mean second derivative, over the largest possible one, from the sizes of residuals."""
        loss = self.mechanism.loss
        reach = loss.threshold if isinstance(loss, SmoothedHuber) else loss.width
        top = math.ceil(2.0 * math.log2(2.0 * reach))
        step = self._of_constant(self._kept(coef) * coef, scores=False)
        octaves = top - _TOLD_APART, top
        counts, edges, deviation = yield from self._residual_sizes(name, part, step, octaves, of_first_rows=True)
        slopes = loss.second_derivative(edges * 2.0**-0.25, 0.0) / loss.second_derivative_bound()
        slopes[0], slopes[-1] = 1.0, 0.0
        # People are counted from either end: the mean has half the variance.
        mean = 0.5 + 0.5 * float(np.sum((2.0 * slopes - 1.0) * counts)) / self.people
        deviation *= 0.5 * math.sqrt(len(counts)) / self.people
        expected = _CURVATURE * self.mechanism.evenness * (2.0 - self.mechanism.evenness)
        found = (mean * _UNSURE**2 + expected * deviation**2) / (_UNSURE**2 + deviation**2)
        return min(max(found, _LEAST, deviation), 1.0)

    @property
    def _largest(self) -> float:
        """Largest size of outcomes, in units."""
        return self.mechanism.radii[1] / self.mechanism.units.outcomes

    @property
    def _unit_of_scores(self) -> float:
        """Factor from scores over their largest slope to units of outcomes."""
        return self.mechanism.units.outcomes * self.mechanism.loss.second_derivative_bound()

    def _as_summed(self, theta: FloatArray, coordinates: Coordinates) -> FloatArray:
        return coordinates.as_summed(theta, *self.mechanism.units)

    def _of_constant(self, coef: FloatArray, *, scores: bool) -> ResidualStep:
        """Return the definition of sums of scores, or counts of residuals, for coefficients of original rows."""
        mechanism = self.mechanism
        constant = np.zeros((1, len(coef)))
        constant[0, -1] = 1.0
        link: Link = mechanism.link if scores else "identity"
        maps = mechanism.row_map, mechanism.outcome_map
        return ResidualStep(coef, *maps, constant, constant=True, link=link, bend=mechanism.bend)

    def _score_step(self, theta: FloatArray, coordinates: Coordinates, longest: float) -> ResidualStep:
        """Return the definition of a step's sum."""
        mechanism = self.mechanism
        return replace(
            self._of_constant(self._as_summed(theta, coordinates), scores=True),
            whitening=coordinates.of_rows(mechanism.units.rows),
            longest=longest,
        )


#: Least clip of rows, as a part of the longest row; and a bound on the rounding of sizes.
_SHORTEST, _NEARLY = 2.0**-10, 1.0 + 2.0**-20


def _times(coordinates: Coordinates, share: float) -> Coordinates:
    """Return coordinates for X'X reduced to this share."""
    return replace(coordinates, xx=share * coordinates.xx, noise=share * coordinates.noise)


def _sum_scores(people: People, step: ResidualStep, clip: float) -> FixedPoint:
    return residual_sums(people.table, step, clip, **people.residual_options).products
