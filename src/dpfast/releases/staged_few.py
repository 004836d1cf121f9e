"""The stages of a fit of few people: rows are not whitened, and nothing follows the steps.

Means are estimated from sums, and the lengths of rows and of people's parts of a step from sums of logarithms.
A person's logarithm, in half-octaves from the middle of a public range, is an integer of at most half the range, m. So
one person moves the sum by m, or replaced by 2m (`dpfast.releases.people.sum_octaves` and `sum_length_octaves`).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, parts_of
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.releases.people import sum_length_octaves, sum_octaves
from dpfast.releases.staged_fit import Clipped, Fit, Level, Regression, octaves_below
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Position
from dpfast.statistics.residuals import ResidualStep
from dpfast.statistics.sizes import HalfOctaves

#: Share of the lengths of rows, and of the sizes of their parts; that of means, and how it falls with people times mu.
_LENGTHS, _SIZES, _MEANS, _MEANS_BY_PEOPLE, _LEAST_MEANS = 0.02, 0.06, 0.4, 0.002, 0.05
#: People times mu from which rows are centered at a released mean.
_CENTERED = 80.0
#: Of lengths of rows, and of sizes of parts: half-octaves told apart, an odd number; and by how many means are usually
#: off the middle one.
_OF_LENGTHS, _OF_SIZES = (7, 1.0), (17, 1.5)
#: Half-octaves by which the clip is below the mean size; the share to clip; and the length of rows, over the usual one,
#: from which they have less weight.
_BELOW, _CLIPPED, _LONGEST = 2.0, 0.5, 2.0


class FewPeople(Fit):
    """Means, the mean length of rows, the mean size of residuals, and steps."""

    #: None: where there is no signal, all that is not shrunk away is worse than a constant.
    unlikely = 0.0

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, own, features = self.mechanism, self.mechanism.units, self.mechanism.shape[0]
        resolution = self.people * mechanism.mu
        means = max(_MEANS - _MEANS_BY_PEOPLE * resolution, _LEAST_MEANS)
        shares = means, _LENGTHS, _SIZES, 1.0 - means - _LENGTHS - _SIZES
        of_means, of_lengths, of_sizes, of_steps = parts_of(self.privacy, shares)
        theta = np.zeros((features + 1, mechanism.shape[1]))
        center = np.zeros(features)
        if resolution >= _CENTERED:
            center, theta[-1] = yield from self._means(of_means)
        else:
            theta[-1] = (yield from mechanism._mean_outcome(of_means, self.rows)) / own.outcomes
        usual = yield from self._mean_length(of_lengths, center)
        coordinates = Coordinates.plain(center, usual, self.rows, constant=True)
        longest = _LONGEST * math.sqrt(len(theta))
        shape, most = theta.shape, mechanism.most
        how = descent.few_steps(shape, self.rows, resolution, most=most, asked=mechanism.n_steps)
        step = self._step(theta, coordinates, longest)
        clip = yield from self._mean_size(of_sizes, step, longest)
        descent_of = coordinates, step, how, Position.start(theta), _CLIPPED
        position, _ = yield from self._descend(of_steps, (), *descent_of, Clipped(clip), most=clip)
        found = descent.found_of_few(position, how, self.rows)
        solved = self._solved(found, coordinates)

        def told() -> Regression:
            regression = self._told(solved, Level(found.theta[-1]), found, coordinates, None, how.n_steps)
            return regression._replace(lost=mechanism._lost_by_few(self.people))

        return told

    def _mean_length(self, part: Privacy, center: FloatArray) -> Generator[Query, Release, float]:
        """Estimate the geometric mean length of rows about the center, within half-octaves around half the longest."""
        own, middle = self.mechanism.units.rows, _OF_LENGTHS[0] // 2
        first = max(-800, min(round(2.0 * math.log2(self.mechanism.radii[0] / 2.0)) - middle, 800 - 2 * middle))
        octaves = HalfOctaves(first, first + 2 * middle)
        statistic = partial(sum_length_octaves, octaves=octaves, row_map=self._map(center))
        mean = yield from self._mean_octave("mean length of rows", part, _OF_LENGTHS, statistic)
        return float(np.exp2((first + middle + mean - 0.5) / 2.0)) / own

    def _mean_size(self, part: Privacy, step: ResidualStep, longest: float) -> Generator[Query, Release, float]:
        """Return a clip below the geometric mean size of people's parts: a smaller one has less noise."""
        middle = _OF_SIZES[0] // 2
        # The last has all parts from a third of the largest on, as outcomes that are off by their bound have.
        last = octaves_below(self._largest_part(longest))[1] - 3
        octaves = last - _OF_SIZES[0] + 2, last
        statistic = partial(sum_octaves, step=step, octaves=octaves)
        mean = yield from self._mean_octave("mean size of residuals", part, _OF_SIZES, statistic)
        return float(np.exp2((octaves[0] + middle + mean - 0.5 - _BELOW) / 2.0))

    def _mean_octave(
        self, name: str, part: Privacy, told_apart: tuple[int, float], statistic: partial[FixedPoint]
    ) -> Generator[Query, Release, float]:
        """Estimate the mean half-octave of people, shrunk towards the middle one according to its noise."""
        middle, usual = told_apart[0] // 2, told_apart[1]
        sums = NoisySum.calibrate(part, float(middle), (1,), unit=self.mechanism._unit)
        released = yield Query(name, sums, statistic)
        mean = float(np.clip(released.values["sum"][0] / self.people, -middle, middle))
        return mean / (1.0 + (sums.deviation / (usual * self.people)) ** 2)
