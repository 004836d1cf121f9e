"""Huber and quantile regression in stages: the steps of staged least squares, with scores in the place of residuals.

The score of a row is minus the slope of its loss at the coefficients so far (`SmoothedHuber`, `SmoothedQuantile`): it is
never longer than a public number, Huber's threshold or the larger of a quantile's level and one less that. So nothing
is clipped by what residuals are, which would move a quantile. Rows come as in `StagedRegression`: centred, whitened and
counted by their length, whose counts say what whitened rows are held to. Longer ones count for less, by a factor that
their outcomes have no part in, and a step's sum, of rows times scores, is moved by that length times the longest score.

How far coefficients move scores is X'X times the mean second derivative of the loss, which a histogram of sizes of
residuals tells, before the first step and later ones. Each release is calibrated for its part of the budget whatever
was released before, and all compose as those of `StagedRegression` do.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.privacy import parts_of
from dpfast.releases.mechanism import Query, Stages
from dpfast.releases.noisy_sum import NoisySum
from dpfast.releases.staged_regression import (
    Lengths,
    People,
    Regression,
    StagedRegression,
    _Fit,
    _held,
    _Parts,
)
from dpfast.solvers import SmoothedHuber, SmoothedQuantile
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Position
from dpfast.statistics.residuals import Link, ResidualStep, residual_bound, residual_sums

ScoreLoss: TypeAlias = SmoothedHuber | SmoothedQuantile


@dataclass(frozen=True)
class ScoreRegression(StagedRegression):
    """The mechanism, for one outcome: `loss` in the place of squares, the rest as in `StagedRegression`."""

    loss: ScoreLoss = field(kw_only=True)

    def stages(self) -> Stages[Regression]:
        """Ask for one release after the other."""
        left, people, rows = yield from self._counted()
        shares = descent.schedule(people, self.mu, self.shape[0], constant=self.fit_intercept, squares=False)
        shares = shares._replace(steps=shares.steps + shares.last_sizes + shares.mean_residual, last_sizes=0.0)
        fit = _ScoreFit(self, left, shares._replace(mean_residual=0.0), people, rows)
        return (yield from fit.stages())

    @property
    def link(self) -> Link:
        """What scores are made of outcomes by."""
        return "huber" if isinstance(self.loss, SmoothedHuber) else "quantile"

    @property
    def bend(self) -> tuple[float, float]:
        """What is public of them."""
        own = self.loss
        return (own.threshold if isinstance(own, SmoothedHuber) else own.level), own.width

    @property
    def longest_score(self) -> float:
        """Length that no score exceeds, but for rounding, which the clip holds."""
        own = self.loss
        return own.threshold if isinstance(own, SmoothedHuber) else max(own.level, 1.0 - own.level)


@dataclass(frozen=True)
class _ScoreFit(_Fit):
    """The stages of a fit of coefficients."""

    mechanism: ScoreRegression

    def stages(self) -> Stages[Regression]:
        """Ask for one release after the other."""
        mechanism, parts = self.mechanism, self._parts()
        coordinates, lengths, level = yield from self._coordinates(parts)
        held, kept = self._weighed(lengths, len(coordinates.xx))
        longest = math.hypot(held, float(mechanism.fit_intercept))
        theta = np.zeros((len(coordinates.xx), 1))
        if mechanism.fit_intercept:
            theta[-1] = level
        weighed = _times(coordinates, kept)
        how = descent.steps(weighed, self.rows, most=mechanism.most, asked=mechanism.n_steps)
        n_steps = how.n_steps
        later = how.counted if len(parts.sizes) > 1 else ()
        position = Position.start(theta)
        bound = longest * mechanism.longest_score
        unit = mechanism.units.outcomes * mechanism.loss.second_derivative_bound()
        curved = weighed
        for number, part in enumerate(parts_of(parts.steps, [1.0] * n_steps)):
            whole = self._kept(coordinates.as_summed(position.theta, *mechanism.units))
            position = position._replace(theta=whole * position.theta)
            if number == 0 or number in later:
                sizes = parts.sizes[0 if number == 0 else 1 + later.index(number)]
                share = yield from self._curvature(f"sizes of residuals, step {number + 1}", sizes, position, coordinates)
                curved = _times(weighed, share)
                how = descent.steps(curved, self.rows * kept * share, asked=n_steps)
            step = self._score_step(position.theta, coordinates, longest)
            sums = NoisySum.calibrate(
                part, residual_bound(bound, step), position.theta.shape, unit=mechanism._unit
            )
            released = yield Query(
                f"scores, step {number + 1}", sums, partial(_sum_scores, step=step, clip=bound), bound
            )
            measured = released.values["sum"] / unit
            position = descent.stepped(position, how, measured, sums.deviation / unit)
        found = descent.found(position, how, curved)
        solved = self._solved(found, curved)
        level = found.theta[-1] if mechanism.fit_intercept else np.zeros(1)
        level = _held(level, 4.0 * mechanism.radii[1] / mechanism.units.outcomes)

        def told() -> Regression:
            return self._told(solved, level, found, curved, None, n_steps)

        return told

    def _weighed(self, lengths: Lengths, entries: int) -> tuple[float, float]:
        """Return what rows are held to, and the part of X'X that is left."""
        share = descent.clipped_share(entries, self.people, self.mechanism.mu)
        size = descent.size_of_share(lengths.counts, lengths.deviation, lengths.sizes, share, self.people)
        held = lengths.longest if size is None else min(max(size, 1e-3 * lengths.longest), lengths.longest)
        inside = lengths.sizes <= lengths.longest * 1.0001
        counts = np.where(inside, np.maximum(lengths.counts, 0.0), 0.0)
        middle = np.minimum(lengths.sizes, lengths.longest) * 2.0**-0.25
        whole = float(np.sum(counts * middle**2))
        kept = float(np.sum(counts * middle * np.minimum(middle, held))) / whole if whole > 0.0 else 1.0
        return held, max(kept, 0.05)

    def _curvature(
        self, name: str, part: Privacy, position: Position, coordinates: Coordinates
    ) -> Generator[Query, Release, float]:
        """Learn the mean second derivative, over the largest there can be."""
        mechanism, loss = self.mechanism, self.mechanism.loss
        steepest, reach = loss.second_derivative_bound(), mechanism.longest_score if isinstance(loss, SmoothedHuber) else loss.width
        constant = np.zeros((1, mechanism.shape[0] + 1))
        constant[0, -1] = 1.0
        coef = coordinates.as_summed(position.theta, *mechanism.units)
        step = ResidualStep(coef, mechanism.row_map, mechanism.outcome_map, constant, constant=True)
        top = math.ceil(2.0 * math.log2(2.0 * reach))
        counts, edges, deviation = yield from self._residual_sizes(name, part, step, (top - 7, top))
        slopes = loss.second_derivative(edges * 2.0**-0.25, 0.0) / steepest
        slopes[0] = 1.0
        slopes[-1] = 0.0
        # People are counted from either end: the mean has half the variance.
        inside = float(np.sum(slopes * counts))
        outside = float(np.sum((1.0 - slopes) * counts))
        mean = 0.5 * (inside + self.people - outside) / self.people
        own = (0.5 * deviation / self.people) ** 2 * len(counts)
        prior, variance = 0.6, 0.3**2
        share = (mean * variance + prior * own) / (variance + own)
        return float(min(max(share, 0.05, 1.0 * math.sqrt(own)), 1.0))

    def _score_step(self, theta: FloatArray, coordinates: Coordinates, longest: float) -> ResidualStep:
        """Return what a step sums."""
        mechanism, own = self.mechanism, self.mechanism.units
        return ResidualStep(
            coordinates.as_summed(theta, *own),
            mechanism.row_map,
            mechanism.outcome_map,
            coordinates.of_rows(own.rows),
            constant=True,
            link=mechanism.link,
            longest=longest,
            bend=mechanism.bend,
        )


def _times(coordinates: Coordinates, share: float) -> Coordinates:
    from dataclasses import replace

    return replace(coordinates, xx=share * coordinates.xx, noise=share * coordinates.noise)


def _sum_scores(people: People, step: ResidualStep, clip: float) -> FixedPoint:
    return residual_sums(people.table, step, clip, **people.residual_options).products
