"""The stages of a fit of few people: rows stay in coordinates as declared, and nothing follows the steps."""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial

import numpy as np

from dpfast.ledger import Release
from dpfast.privacy import Privacy, parts_of
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.releases.people import sum_octaves
from dpfast.releases.staged_fit import Clipped, Fit, Level, Regression, octaves_below
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Position
from dpfast.statistics.residuals import ResidualStep

#: Of few people: shares of the mean outcome, of the sizes of residuals, and of the steps; the assumed length of rows,
#: over the longest; the half-octaves in which their residuals are told apart, an odd number; and the share to clip.
_SHARES_OF_FEW, _USUAL_ROW, _FEW_TOLD_APART, _CLIPPED_OF_FEW = (0.2, 0.1, 0.7), 0.5, 17, 0.5


class FewPeople(Fit):
    """The mean outcome, the mean size of residuals, and steps."""

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, own, features = self.mechanism, self.mechanism.units, self.mechanism.shape[0]
        of_level, of_size, of_steps = parts_of(self.privacy, _SHARES_OF_FEW)
        theta = np.zeros((features + 1, mechanism.shape[1]))
        theta[-1] = (yield from mechanism._mean_outcome(of_level, self.rows)) / own.outcomes
        usual = _USUAL_ROW * mechanism.radii[0] / own.rows
        coordinates = Coordinates.plain(np.zeros(features), usual, self.rows, constant=True)
        longest = math.hypot(math.sqrt(features) / _USUAL_ROW, 1.0)
        how = descent.few_steps(len(theta), self.rows, most=mechanism.most, asked=mechanism.n_steps)
        clip = yield from self._mean_size(of_size, self._step(theta, coordinates, longest), longest)
        descent_of = coordinates, longest, how, Position.start(theta), _CLIPPED_OF_FEW
        position, _ = yield from self._descend(of_steps, (), *descent_of, Clipped(clip))
        found = descent.last_of(position, how)
        solved = self._solved(found, coordinates)

        def told() -> Regression:
            regression = self._told(solved, Level(found.theta[-1]), found, coordinates, None, how.n_steps)
            return regression._replace(lost=mechanism._lost_by_few(self.people))

        return told

    def _mean_size(self, part: Privacy, step: ResidualStep, longest: float) -> Generator[Query, Release, float]:
        """Estimate the geometric mean size of people's parts, each within a range of half-octaves.

        A person's half-octave, counted from the middle one, is at most half of the range: few people show its mean
        better than the places of the largest counts.
        """
        mechanism, middle = self.mechanism, _FEW_TOLD_APART // 2
        # The last has all parts from a third of the largest on, as outcomes that are off by their bound have.
        last = octaves_below(self._largest_part(longest))[1] - 3
        octaves = last - _FEW_TOLD_APART + 2, last
        sums = NoisySum.calibrate(part, float(middle), (1,), unit=mechanism._unit)
        released = yield Query("mean size of residuals", sums, partial(sum_octaves, step=step, octaves=octaves))
        mean = float(np.clip(released.values["sum"][0] / self.people, -middle, middle))
        # The lower edge: a smaller clip has less noise.
        return float(np.exp2((octaves[0] + middle + mean - 1.0) / 2.0))
