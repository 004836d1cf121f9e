"""Huber, quantile and Poisson regression in stages: staged least squares, with scores instead of residuals.

The score of a row is minus the slope of its loss at the coefficients so far (`SmoothedHuber`, `SmoothedQuantile`,
`PoissonLoss`). It is never longer than a public number: Huber's threshold, the larger of a quantile's level and one
less that, or of counts, which are 0 or more, the larger of their bound and the largest rate. So no
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

Of counts it is the mean rate, and with an intercept that is the mean outcome. So their *mean outcome* is released
first, with noise for its bound. It takes the place of the first level and of all histograms of residuals. If it is
small next to the noise it is released *once more*, with the rest of the budget, and nothing else is. Curvature grows
with effects, and steps are shorter for that. The last level solves for the constant at one sum of scores: rates add to
the outcomes less the scores.

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
from typing import TypeAlias, cast

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.privacy import Privacy, split_budget
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.releases.people import sum_residuals
from dpfast.releases.staged_fit import Fit, Level, NormCounts, Regression
from dpfast.releases.staged_regression import StagedRegression
from dpfast.solvers import PoissonLoss, SmoothedHuber, SmoothedQuantile
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Iterate
from dpfast.solvers.ridge import held
from dpfast.statistics.residuals import Link, ResidualStep, residual_bound

ScoreLoss: TypeAlias = SmoothedHuber | SmoothedQuantile | PoissonLoss

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
#: Of counts: people times mu, times the mean over the bound, below which they show no more than that mean; the part of
#: a step that is taken, as the curvature grows with effects; and how many times the steps that are then needed.
_FEW_COUNTS, _PART, _MORE_STEPS = 18.0, 0.5, 2
#: A size of residuals that few have, over the reach of scores.
_SELDOM = 4.0
#: The largest change of a logarithm of rates in a step; half of their largest variance; and the largest share of the
#: mean by which it is off at the end.
_FARTHEST, _MOST_SPREAD, _MOST_OFF = 1.0, 2.0, 0.75
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

    def _queries(self) -> Stages[Regression]:
        """Yield one query after the other."""
        left, people, rows = yield from self._counted()
        fit = _ScoreFit(self, left, self._shares(people), people, rows)
        if self.loss.is_of_counts:
            return (yield from self._of_counts(fit))
        if not self.is_few(people):
            return (yield from fit.stages())
        nothing = np.zeros((self.shape[0] + 1, 1))
        level = yield from fit.level("level", left, nothing, _FIRST_STEPS)
        return partial(Regression.of_level, level * self.units.outcomes, self.shape[0])

    def _of_counts(self, fit: _ScoreFit) -> Stages[Regression]:
        """Yield the queries for counts: their mean first, which says how much more they show."""
        part, rest = split_budget(fit.privacy, [_FIRST, 1.0 - _FIRST])
        (mean,), noise = yield from fit.mean_outcome("mean of outcomes", part)
        rate = min(max(mean, noise), self.radii[1])
        if fit.n_people * self.mu * rate >= _FEW_COUNTS * self.longest_score:
            return (yield from _CountFit(self, rest, fit.shares, fit.n_people, fit.rows, rate).stages())
        (again,), other = yield from fit.mean_outcome("mean of outcomes, once more", rest)
        mean = (mean * other**2 + again * noise**2) / (noise**2 + other**2)
        return partial(Regression.of_level, np.log([min(max(mean, 0.5 * other), self.radii[1])]), self.shape[0])

    @property
    def smoothing(self) -> tuple[float, float]:
        """Threshold or level, and width; of counts the largest rate, and where its smoothing begins."""
        own = self.loss.parameters()
        return own["threshold"], own["start" if self.loss.is_of_counts else "width"]

    @property
    def link(self) -> Link:
        """Name of the scores in the sums."""
        return cast("Link", self.loss.kind.removeprefix("smoothed_"))

    @property
    def longest_score(self) -> float:
        """Bound on the length of scores, up to rounding."""
        return self.loss.derivative_bound(math.inf, self.radii[1])

    @property
    def stretch(self) -> float:
        """Clip of a person's part of a step over that of a row."""
        return math.pow(self.max_rows or 1, _SEVERAL)

    @property
    def evenness(self) -> float:
        """The share of people on the rarer side of a quantile's level, over a half; else 1."""
        own = self.loss
        return 2.0 * min(own.level, 1.0 - own.level) if isinstance(own, SmoothedQuantile) else 1.0

    def _shares(self, people: float) -> descent.Schedule:
        shares = descent.schedule(people, self.mu, self.shape[0], constant=self.fit_intercept, squares=False)
        steps = shares.steps + shares.mean_residual + shares.excess
        shares = shares._replace(steps=steps, mean_residual=0.0, excess=0.0)
        if not self.loss.is_of_counts:
            return shares
        # Their mean is the mean second derivative too: no size of a residual is counted.
        steps += shares.n_sizes * shares.sizes + shares.last_sizes
        return shares._replace(steps=steps, n_sizes=0, last_sizes=0.0)


@dataclass(frozen=True)
class _ScoreFit(Fit):
    """The stages of a fit of coefficients."""

    mechanism: ScoreRegression

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, left = self.mechanism, self.privacy
        first, left, last = self._of_levels(left)
        parts = self._parts(left)
        coordinates, lengths, level = yield from self._coordinates(parts)
        theta = np.zeros((len(coordinates.xx), 1))
        if first is not None:
            theta[-1] = level
            theta[-1] = yield from self.level("first level", first, self._as_summed(theta, coordinates), _FIRST_STEPS)
        length, kept = self._weighted(lengths, len(theta))
        longest, of_clipped_rows = math.hypot(length, float(mechanism.fit_intercept)), _times(coordinates, kept)
        clip = longest * mechanism.longest_score * mechanism.stretch
        # From scores over their largest slope to units of outcomes.
        unit = mechanism.units.outcomes * mechanism.loss.second_derivative_bound()
        scaled, curvature = of_clipped_rows, 0.0
        rule = self._steps(of_clipped_rows)
        later, iterate = rule.counted if len(parts.sizes) > 1 else (), Iterate.start(theta)
        each = split_budget(parts.steps, [1.0] * rule.n_steps)
        step = self._score_step(theta, coordinates, longest)
        loud = NoisySum.calibrate(each[0], longest * mechanism.stretch, (1,), unit=mechanism._unit)
        damping = self._damping(math.sqrt(len(theta)) * loud.deviation / (self.rows * kept))
        sizes = iter(parts.sizes)
        for number, part in enumerate(each):
            coef = self._as_summed(iterate.theta, coordinates)
            iterate = iterate._replace(theta=self._overflow_factor(coef) * iterate.theta)
            if number == 0 or number in later:
                # Divergent coefficients leave large residuals, and these must not make steps longer.
                seen = yield from self._curvature(f"sizes of residuals, step {number + 1}", next(sizes, None), coef)
                curvature = max(curvature, seen)
                scaled = _times(of_clipped_rows, curvature)
                rows = self.rows * kept * curvature
                rule = descent.steps(scaled, rows, requested=rule.n_steps, damping=damping)
            step = step.at(self._as_summed(iterate.theta, coordinates))
            summed, deviation = yield from self._summed(f"scores, step {number + 1}", part, step, clip)
            moved = descent.next_iterate(
                iterate, rule, summed / unit, deviation / unit, averaged=number >= rule.first_averaged
            )
            iterate = moved._replace(theta=self._held(moved.theta, iterate.theta, longest))
        coef = self._as_summed(iterate.theta, coordinates)
        seen = yield from self._curvature("sizes of last residuals", parts.last_sizes, coef)
        curvature = max(curvature, seen)
        scaled = _times(of_clipped_rows, curvature)
        found = descent.pooled_estimate(iterate, rule, scaled)
        found = found._replace(usual=self._usual_square(self._residual(curvature), scaled))
        solved = self._solved(found, scaled)
        level = held(found.theta[-1] if mechanism.fit_intercept else np.zeros(1), 4.0 * self._largest)
        if last is not None:
            # Shrinkage makes residuals larger, and moves their quantiles.
            level = yield from self._last_level(last, solved.coef, level, found, coordinates, curvature)

        def solve() -> Regression:
            return self._regression(solved, Level(level), found, scaled, None, rule.n_steps)

        return solve

    def _of_levels(self, privacy: Privacy) -> tuple[Privacy | None, Privacy, Privacy | None]:
        """Return the parts of a budget for the first level, for coefficients, and for the last level."""
        if not self.mechanism.fit_intercept:
            return None, privacy, None
        first, left, last = split_budget(privacy, [_FIRST, 1.0 - _FIRST - _LAST, _LAST])
        return first, left, last

    def _steps(self, coordinates: Coordinates) -> descent.Steps:
        """Return how to descend, before the curvature is known."""
        mechanism = self.mechanism
        return descent.steps(coordinates, self.rows, most=mechanism.most, requested=mechanism.n_steps)

    def _damping(self, loudness: float) -> float:
        """Return the part of a whole step that is taken, by the effect of noise for scores of up to 1."""
        return min(1.0, _CALM * self.mechanism.evenness / loudness)

    def _held(self, theta: FloatArray, before: FloatArray, longest: float) -> FloatArray:
        """Return coefficients after a step, for rows of a largest length."""
        return theta

    def _last_level(
        self,
        part: Privacy,
        coef: FloatArray,
        level: FloatArray,
        found: descent.DescentResult,
        coordinates: Coordinates,
        curvature: float,
    ) -> Generator[Query, Release, FloatArray]:
        """Estimate the level at the center of rows for coefficients after shrinkage; in units."""
        center = coordinates.center @ coef
        summed = self._with_constant(coef, level - center)
        return center + (yield from self.level("last level", part, summed, _LAST_STEPS, least=curvature))

    def _with_constant(self, coef: FloatArray, constant: FloatArray) -> FloatArray:
        """Return coefficients of original rows, and the constant after them."""
        own = self.mechanism.units
        return np.vstack([coef * (own.outcomes / own.rows), constant * own.outcomes])

    def _summed(
        self, name: str, part: Privacy, step: ResidualStep, clip: float
    ) -> Generator[Query, Release, tuple[FloatArray, float]]:
        """Release a sum of scores; return it with the deviation of its noise."""
        mechanism = self.mechanism
        bound = residual_bound(clip, step, mechanism.max_rows)
        sums = NoisySum.calibrate(part, bound, step.shape, unit=mechanism._unit)
        released = yield Query(name, sums, partial(sum_residuals, step=step, clip=clip), clip)
        return released.values["sum"], sums.deviation

    def level(
        self, name: str, part: Privacy, coef: FloatArray, n_steps: int, *, least: float = 0.0
    ) -> Generator[Query, Release, FloatArray]:
        """Descend in the constant alone, the last of the coefficients of original rows; returned in units."""
        mechanism, own = self.mechanism, self.mechanism.units.outcomes
        coef = self._overflow_factor(coef) * coef
        sizes, steps = split_budget(part, [_SIZES, 1.0 - _SIZES])
        curvature = max(least, (yield from self._curvature(f"{name}: sizes of residuals", sizes, coef)))
        clip, most = mechanism.longest_score * (mechanism.max_rows or 1), own * 2.0 * self._largest
        late, step, start = np.zeros(1), self._of_constant(coef, scores=True), coef[-1]
        for number, each in enumerate(split_budget(steps, [1.0] * n_steps)):
            step = step.at(coef)
            summed, deviation = yield from self._summed(f"{name}: scores, step {number + 1}", each, step, clip)
            longest = self.rows * mechanism.longest_score
            damping = min(1.0, _CALM * mechanism.evenness * longest / deviation)
            slope = curvature * mechanism.loss.second_derivative_bound() * self.rows
            moved = start + np.clip(coef[-1] - start + damping * summed[0] / slope, -most, most)
            coef = np.vstack([coef[:-1], moved])
            if number >= n_steps // 2:
                late += moved / (n_steps - n_steps // 2)
        return late / own

    def _weighted(self, lengths: NormCounts, entries: int) -> tuple[float, float]:
        """Return the clip of rows, and the part of X'X that it leaves.

        The noise is in proportion to the clip. The fewer people there are relative to the noise, the more of them are
        beyond the clip, as for parts in staged least squares.
        """
        share = descent.clipped_share(entries, self.n_people, self.mechanism.mu)
        found = descent.size_of_share(lengths.counts, lengths.deviation, lengths.sizes, share, self.n_people)
        length = lengths.longest if found is None else min(max(found, _SHORTEST * lengths.longest), lengths.longest)
        middles = np.minimum(lengths.sizes, lengths.longest) * 2.0**-0.25
        counts = np.where(lengths.sizes <= lengths.longest * _NEARLY, np.maximum(lengths.counts, 0.0), 0.0)
        whole = float(np.sum(counts * middles**2))
        left = float(np.sum(counts * middles * np.minimum(middles, length)))
        return length, max(left / whole, _LEAST) if whole > 0.0 else 1.0

    def _curvature(self, name: str, part: Privacy | None, coef: FloatArray) -> Generator[Query, Release, float]:
        """Estimate the mean second derivative, over the largest possible one, from the sizes of residuals."""
        loss = self.mechanism.loss
        assert part is not None
        top = math.ceil(2.0 * math.log2(2.0 * self._reach))
        step = self._of_constant(self._overflow_factor(coef) * coef, scores=False)
        octaves = top - _TOLD_APART, top
        counts, edges, deviation = yield from self._residual_sizes(name, part, step, octaves, of_first_rows=True)
        slopes = loss.second_derivative(edges * 2.0**-0.25, 0.0) / loss.second_derivative_bound()
        slopes[0], slopes[-1] = 1.0, 0.0
        # People are counted from either end: the mean has half the variance.
        mean = 0.5 + 0.5 * float(np.sum((2.0 * slopes - 1.0) * counts)) / self.n_people
        deviation *= 0.5 * math.sqrt(len(counts)) / self.n_people
        expected = _CURVATURE * self.mechanism.evenness * (2.0 - self.mechanism.evenness)
        found = (mean * _UNSURE**2 + expected * deviation**2) / (_UNSURE**2 + deviation**2)
        return min(max(found, _LEAST, deviation), 1.0)

    @property
    def _reach(self) -> float:
        """The size of residuals up to which scores grow."""
        loss = self.mechanism.loss
        assert not isinstance(loss, PoissonLoss)
        return loss.threshold if isinstance(loss, SmoothedHuber) else loss.width

    def _residual(self, curvature: float) -> float:
        """Return a size that few residuals have: the curvature is the share of those within reach."""
        return _SELDOM * self._reach / curvature

    @property
    def _largest(self) -> float:
        """Largest size of outcomes, in units."""
        return self.mechanism.radii[1] / self.mechanism.units.outcomes

    def _as_summed(self, theta: FloatArray, coordinates: Coordinates) -> FloatArray:
        return coordinates.as_summed(theta, *self.mechanism.units)

    def _of_constant(self, coef: FloatArray, *, scores: bool) -> ResidualStep:
        """Return the definition of sums of scores, or counts of residuals, for coefficients of original rows."""
        mechanism = self.mechanism
        constant = np.zeros((1, len(coef)))
        constant[0, -1] = 1.0
        link: Link = mechanism.link if scores else "identity"
        maps = mechanism.row_map, mechanism.outcome_map
        return ResidualStep(coef, *maps, constant, constant=True, link=link, smoothing=mechanism.smoothing)

    def _score_step(self, theta: FloatArray, coordinates: Coordinates, longest: float) -> ResidualStep:
        """Return the definition of a step's sum."""
        mechanism = self.mechanism
        return replace(
            self._of_constant(self._as_summed(theta, coordinates), scores=True),
            whitening=coordinates.of_rows(mechanism.units.rows),
            longest=longest,
        )


@dataclass(frozen=True)
class _CountFit(_ScoreFit):
    """The same of counts: their mean is known, and so are the first level and the mean second derivative."""

    #: The mean outcome.
    rate: float

    def _residual(self, curvature: float) -> float:
        return math.inf  # steps hold the change of their predictions

    def _of_levels(self, privacy: Privacy) -> tuple[Privacy | None, Privacy, Privacy | None]:
        left, last = split_budget(privacy, [1.0 - _LAST, _LAST])
        # The first level has been paid for: nothing is drawn for it here.
        return privacy, left, last

    def level(
        self, name: str, part: Privacy, coef: FloatArray, n_steps: int, *, least: float = 0.0
    ) -> Generator[Query, Release, FloatArray]:
        yield from ()
        return np.full(1, math.log(self.rate) / self.mechanism.units.outcomes)

    def _curvature(self, name: str, part: Privacy | None, coef: FloatArray) -> Generator[Query, Release, float]:
        yield from ()
        return min(self.rate / self.mechanism.loss.second_derivative_bound(), 1.0)

    def _steps(self, coordinates: Coordinates) -> descent.Steps:
        rule, requested = super()._steps(coordinates), self.mechanism.n_steps
        return rule._replace(
            n_steps=min(_MORE_STEPS * rule.n_steps, self.mechanism.most) if requested is None else requested
        )

    def _damping(self, loudness: float) -> float:
        return min(_PART, _CALM * self.rate / (self.mechanism.longest_score * loudness))

    def _held(self, theta: FloatArray, before: FloatArray, longest: float) -> FloatArray:
        """Hold the change to where rates are about linear: those that overshoot by far would not return."""
        return before + held(theta - before, _FARTHEST / (longest * self.mechanism.units.outcomes))

    def _last_level(
        self,
        part: Privacy,
        coef: FloatArray,
        level: FloatArray,
        found: descent.DescentResult,
        coordinates: Coordinates,
        curvature: float,
    ) -> Generator[Query, Release, FloatArray]:
        """Solve for the level at which scores add to 0: rates add to the outcomes less the scores.

        The mean of rates with normal logarithms grows by half of their variance, which shrinkage reduces. The result is
        pooled with the level of the steps.
        """
        mechanism, own = self.mechanism, self.mechanism.units.outcomes
        center, xx = coordinates.center @ coef, coordinates.of_features

        def half_variance(coef: FloatArray) -> float:
            return min(0.5 * own**2 * float(np.sum(coef * (xx @ coef))) / self.rows, _MOST_SPREAD)

        before = coordinates.whitening.T @ found.theta[: len(coef)]
        level = level + (half_variance(before) - half_variance(coef)) / own
        step = self._of_constant(self._with_constant(coef, level - center), scores=True)
        clip = mechanism.longest_score * (mechanism.max_rows or 1)
        summed, deviation = yield from self._summed("last level: scores, step 1", part, step, clip)
        scale = self.rows * self.rate
        of_steps, of_last = own**2 * float(found.covariance[-1, -1]), (deviation / scale) ** 2
        change = of_steps / (of_steps + of_last) * summed[0] / scale
        return np.asarray(level - np.log(1.0 - np.clip(change, -_MOST_OFF, _MOST_OFF)) / own)


#: Least clip of rows, as a part of the longest row; and a bound on the rounding of sizes.
_SHORTEST, _NEARLY = 2.0**-10, 1.0 + 2.0**-20


def _times(coordinates: Coordinates, share: float) -> Coordinates:
    """Return coordinates for X'X reduced to this share."""
    return replace(coordinates, xx=share * coordinates.xx, noise=share * coordinates.noise)
