"""Least squares in stages, each release adapted to earlier ones: noise for the data, not for the declared bounds.

The releases of one fit share one joint budget (`dpfast.privacy.split_budget`; `solvers.averaged_descent.Schedule` has
the shares), in this order:

1. *Number* of people, and of rows, if it is private; once more if people are few. Then only means, the mean
   logarithms of rows' lengths and residuals' sizes, steps, and the mean of last residuals follow, in coordinates as
   declared; if fewer, the mean outcome, the mean logarithm of sizes about it, and the mean of these residuals.
2. *Means* of rows and outcomes, if there is an intercept: rows are centred there from now on.
3. *Norm histogram* of rows: it gives the radius to which they are clipped in
4. *moments*, X'X, if people are enough for it. Two histograms of rows whitened by its powers choose the coordinates,
   and the length above which a row and its outcomes have less weight; *moments of whitened rows* are X'X once more.
5. *Sizes of residuals*, and *residuals*: in every step whitened rows times the residuals of their outcomes under the
   coefficients so far, each person's part clipped. Beside them, in the same noise, is the number of people clipped.
6. *Last residuals*: their sizes; their mean, if there is an intercept; and their squares, if a row is a person, for
   the sampling error of coefficients.
7. *Excess of residuals*, where X'X was released and people show more than noise: whitened rows times what exceeds the
   clip of the steps, up to a larger clip, which follows from the squares if columns are rare. It gives the bias of
   clipping.

Every map, radius, clip and coefficient is a function of earlier releases and public numbers, fixed before the data are
read again, and every release is calibrated for its part as if it were alone. Whatever was released before, one person
changes one bin of each histogram, or two. One person moves sums of rows by their clip, X'X by the bound in
`JointMoments`, and a step's sum by the bound in `NoisySum.with_count` for `residual_bound`. So the releases compose
adaptively to the whole (Gaussian ones by mu squared, pure ones by epsilon: dpfast.ledger has the statement). The number
of releases depends on releases and public numbers alone.

The computation between releases is written once, as a generator of stages. A fit answers them with the data; the
solution is computed by answering them with the releases.

*Few people.* Rows are not whitened. Means are estimated from sums, and the lengths of rows and of people's parts of a
step from sums of logarithms. A person's logarithm, in half-octaves from the middle of a public range, is an integer of
at most half the range, m. So one person moves the sum by m, or replaced by 2m (`dpfast.releases.people.sum_octaves`,
`sum_length_octaves`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy import special

from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, split_budget
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.releases.mechanism import Mechanism, NoisySum, Query, Stages, within
from dpfast.releases.moments import check_radius
from dpfast.releases.people import (
    People,
    WeightedPeople,
    count_people,
    sum_length_octaves,
    sum_octaves,
    sum_rows,
    weighted,
)
from dpfast.releases.staged_fit import ClipState, Fit, Level, Regression, octaves_below
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Iterate
from dpfast.solvers.projection import LabelFactor
from dpfast.solvers.ridge import Units, held
from dpfast.statistics import Gram, rounded_bound
from dpfast.statistics.norm_histograms import LogarithmicBins
from dpfast.statistics.residuals import ResidualStep, check_most_rows
from dpfast.statistics.rows import RowMap

#: Share of the lengths of rows, of the sizes of their parts, and of last residuals; that of means, and how it falls
#: with people times mu.
_LENGTHS, _SIZES, _LAST, _MEANS, _MEANS_BY_PEOPLE, _LEAST_MEANS = 0.02, 0.06, 0.15, 0.45, 0.0025, 0.05
#: Of lengths of rows, and of sizes of parts: half-octaves told apart, an odd number; and by how many means are usually
#: off the middle one.
_OF_LENGTHS, _OF_SIZES = (7, 1.0), (17, 1.5)
#: Half-octaves by which the clip is below the mean size; the share to clip; and the length of rows, over the usual one,
#: from which they have less weight.
_BELOW, _CLIPPED, _LONG = 2.0, 0.5, 2.0
#: Deviations by which a mean must differ from the middle of outcomes to be no noise.
_SURELY = 2.0
#: Of last residuals: half-octaves by which the clip is above the mean size; and people times mu at which it is the
#: bound on outcomes at least.
_ABOVE, _WIDE = 2.5, 400.0
#: Of fewest people: shares of the mean outcome and of the mean size about it; and sizes told apart, and by how much
#: means are usually off the middle one.
_OF_LEVEL, _OF_LEVEL_SIZES = (0.4, 0.1), (11, 1.5)


class FewPeople(Fit):
    """Means, the mean length of rows, the mean size of residuals, and steps."""

    #: None: where there is no signal, all that is not shrunk away is worse than a constant.
    likelihood_drop = 0.0
    shrunk_variance = descent.SHRUNK_VARIANCE_OF_FEW
    outcomes_to_rows = 2.0

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, features = self.mechanism, self.mechanism.shape[0]
        resolution = self.n_people * mechanism.mu
        means = max(_MEANS - _MEANS_BY_PEOPLE * resolution, _LEAST_MEANS)
        shares = means, _LENGTHS, _SIZES, _LAST, 1.0 - means - _LENGTHS - _SIZES - _LAST
        of_means, of_lengths, of_sizes, of_last, of_steps = split_budget(self.privacy, shares)
        theta = np.zeros((features + 1, mechanism.shape[1]))
        center, theta[-1] = yield from self._means(of_means)
        usual = yield from self._mean_length(of_lengths, center)
        coordinates = Coordinates.plain(center, usual, self.rows, constant=True)
        longest = _LONG * math.sqrt(len(theta))
        shape, most = theta.shape, mechanism.most
        rule = descent.few_steps(shape, self.rows, resolution, most=most, requested=mechanism.n_steps)
        step = self._step(theta, coordinates, longest)
        clip = yield from self._mean_size(of_sizes, step, longest, _OF_SIZES, -_BELOW)
        descent_of = coordinates, step, rule, Iterate.start(theta), _CLIPPED
        iterate, clipped = yield from self._descend(of_steps, (), *descent_of, ClipState(clip), most=clip)
        reach = self._largest_part(math.sqrt(len(theta))) / (2.0 * clipped.clip)
        found = descent.pooled_estimate_of_few(iterate, rule, self.rows, reach)
        solved = self._solved(found, coordinates)
        largest, scale = mechanism.radii[1] * (mechanism.max_rows or 1), self.rows * mechanism.units.outcomes
        usual = clipped.clip / math.sqrt(len(theta)) * 2.0 ** ((_BELOW + _ABOVE) / 2.0)
        longest = min(max(usual, largest * min(resolution / _WIDE, 1.0)), 2.0 * largest)
        last = self._step_of_level(found.theta[-1], solved, coordinates)
        summed, noise = yield from self._sum_of_residuals(of_last, last, longest)
        middle = held(found.theta[-1] + summed / scale, 2.0 * mechanism.radii[1] / mechanism.units.outcomes)
        level = self._level(theta[-1], of_means, middle, (noise / scale) ** 2, solved)
        return partial(self._regression, solved, Level(level), found, coordinates, None, rule.n_steps)

    def _level(
        self, mean: FloatArray, part: Privacy, middle: FloatArray, variance: float, solved: descent.Shrunk
    ) -> FloatArray:
        """Return a level, the mean of clipped residuals, or about the mean outcome where this is surely another.

        The mean row, about which rows are, has noise like that of the mean outcome.
        """
        of_center = self._sums_of_means(part).deviation / (self.rows * self.mechanism.units.rows)
        squares = (of_center / self.outcomes_to_rows) ** 2
        squares += of_center**2 * float(np.sum(solved.coef**2)) / len(mean) + variance
        of_number = self.mechanism.relative_noise_of_number(self.n_people) * float(np.linalg.norm(mean))
        return descent.surely_moved(middle, mean, squares + of_number**2 / len(mean), _SURELY)

    def _mean_length(self, part: Privacy, center: FloatArray) -> Generator[Query, Release, float]:
        """Estimate the geometric mean length of rows about the center, within half-octaves around half the longest."""
        own, middle = self.mechanism.units.rows, _OF_LENGTHS[0] // 2
        first = max(-800, min(round(2.0 * math.log2(self.mechanism.radii[0] / 2.0)) - middle, 800 - 2 * middle))
        octaves = LogarithmicBins(first, first + 2 * middle)
        statistic = partial(sum_length_octaves, octaves=octaves, row_map=self._map(center))
        mean = yield from self._mean_octave("mean length of rows", part, _OF_LENGTHS, statistic)
        return float(np.exp2((first + middle + mean - 0.5) / 2.0)) / own

    def _mean_size(
        self, part: Privacy, step: ResidualStep, longest: float, told_apart: tuple[int, float], above: float
    ) -> Generator[Query, Release, float]:
        """Return a clip so many half-octaves above the geometric mean size of people's parts."""
        middle = told_apart[0] // 2
        # The last has all parts from a third of the largest on, as outcomes that are off by their bound have.
        last = octaves_below(self._largest_part(longest))[1] - 3
        octaves = last - told_apart[0] + 2, last
        statistic = partial(sum_octaves, step=step, octaves=octaves)
        mean = yield from self._mean_octave("mean size of residuals", part, told_apart, statistic)
        return float(np.exp2((octaves[0] + middle + mean - 0.5 + above) / 2.0))

    def _mean_octave(
        self, name: str, part: Privacy, told_apart: tuple[int, float], statistic: partial[FixedPoint]
    ) -> Generator[Query, Release, float]:
        """Estimate the mean half-octave of people, shrunk towards the middle one according to its noise."""
        middle, usual = told_apart[0] // 2, told_apart[1]
        sums = NoisySum.calibrate(part, float(middle), (1,), unit=self.mechanism._unit)
        released = yield Query(name, sums, statistic)
        mean = float(np.clip(released.values["sum"][0] / self.n_people, -middle, middle))
        return mean / (1.0 + (sums.deviation / (usual * self.n_people)) ** 2)


class FewestPeople(FewPeople):
    """The mean outcome, the mean size of outcomes about it, and the mean of these, clipped: all predictions are it."""

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, (features, outcomes) = self.mechanism, self.mechanism.shape
        if self._is_heavy:
            # Parts of epsilon, not of its square, cost more than they gain.
            level, _ = yield from self.mean_outcome("mean of outcomes", self.privacy)
            return partial(Regression.of_level, held(level, mechanism.radii[1]), features)
        of_mean, of_size, of_residuals = split_budget(self.privacy, (*_OF_LEVEL, 1.0 - sum(_OF_LEVEL)))
        first, noise = yield from self.mean_outcome("mean of outcomes", of_mean)
        middle = descent.shrunk_mean(held(first, mechanism.radii[1]), noise)
        step = self._step_of_constant(np.vstack([np.zeros((features, outcomes)), middle]))
        clip = yield from self._mean_size(of_size, step, 1.0, _OF_LEVEL_SIZES, _ABOVE)
        longest = (mechanism.radii[1] + float(np.linalg.norm(middle))) * (mechanism.max_rows or 1)
        summed, other = yield from self._sum_of_residuals(of_residuals, step, min(clip, longest))
        other /= self.rows
        level = (first * other**2 + (middle + summed / self.rows) * noise**2) / (noise**2 + other**2)
        return partial(Regression.of_level, held(level, mechanism.radii[1]), features)


#: Share for the numbers of people and rows, if they are private; and of the rest where they show that people are few,
#: and fewest, whose mean outcome is divided by it.
_COUNT, _COUNT_OF_FEW, _COUNT_OF_FEWEST = 0.01, 0.1, 0.2
#: Planned values: the share of the steps' budget for late ones, the clip of the last residuals in standard deviations,
#: the ratio of errors to those of resolved normal rows if people are many, and people times mu where it is twice that.
_LATE, _LONGEST, _WORSE, _TWICE_WORSE = 0.75, 3.5, 1.36, 120.0
#: With an intercept: people times mu below which a table shows no more than the mean of its outcomes, and below which
#: whitening costs more than it gains, where steps are many and where they are not.
_FEWEST, _FEW_PEOPLE, _FEW_PEOPLE_BY_FILES, _MANY_STEPS = 40.0, 150.0, 80.0, 12
#: People times mu where few people lose half of the signal, on average over tables of all kinds: by many steps, or not.
_HALF_LOST, _HALF_LOST_BY_FILES = 62.0, 75.0


class Public(NamedTuple):
    """Public numbers besides the releases: the number of rows, if it is public, and labels declared public."""

    n_rows: int | None
    labels: LabelFactor | None = None


_NOTHING = Public(None)


@dataclass(frozen=True)
class StagedRegression(Mechanism[Regression]):
    """The mechanism: a sequence of releases, calibrated for declared bounds and for earlier releases.

    Parameters
    ----------
    privacy : Privacy
        Guarantee of all releases together.
    shape : tuple of int
        Features and outcomes.
    radii : tuple of float
        Largest norms of rows, after mapping, and of outcomes.
    row_map, outcome_map : RowMap
        Public maps with bounded results.
    n_steps : int, optional
        Residual steps; None for the number that the releases suggest.
    most_steps : int
        Largest number of steps in that case.
    penalty : float or array of shape (n_features,), optional
        Added to the diagonal of X'X, for rows in their original units; None to choose the shrinkage.
    fit_intercept : bool
        Whether there is an intercept.
    max_rows : int, optional
        Most rows of a person, if people have several.
    bound_xx : float, optional
        Frobenius norm of a person's X'X, if one was declared.
    is_weighted : bool
        Whether people's last outcomes are the weights of their rows.
    has_constant : bool
        Whether the last feature is a constant, times the root of each row's weight.
    public : Public
        Public numbers besides the releases.
    """

    privacy: Privacy
    shape: tuple[int, int]
    radii: tuple[float, float]
    row_map: RowMap
    outcome_map: RowMap
    n_steps: int | None = None
    most_steps: int = descent.MOST_STEPS
    penalty: float | FloatArray | None = None
    fit_intercept: bool = False
    max_rows: int | None = None
    bound_xx: float | None = None
    is_weighted: bool = False
    has_constant: bool = False
    public: Public = _NOTHING

    def __post_init__(self) -> None:
        check_most_rows(self.max_rows)
        # Of a bound in units of limits: with neither out of range by itself, their ratio may be.
        for name, radius in zip(("the norm of rows", "the norm of outcomes"), self.radii, strict=True):
            check_radius(name, radius)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of a sum of parts of length 1 with the whole budget."""
        return {"sum": self.unit_deviation}

    @cached_property
    def unit_deviation(self) -> float:
        """Standard deviation of the noise in a sum of numbers up to 1 with the whole budget."""
        return NoisySum.calibrate(self.privacy, 1.0, (1,)).deviation

    @property
    def mu(self) -> float:
        """Parameter of the schedule: 2 over that deviation; equal to mu under replace-one."""
        return 2.0 / self.unit_deviation

    @property
    def most(self) -> int:
        """Largest number of steps: few if steps share epsilon instead of its square."""
        return min(self.most_steps, descent.MOST_STEPS_OF_FILES) if self.privacy.delta == 0.0 else self.most_steps

    def expected_loss(self, people: float, score: float, *, worse: float | None = None) -> float:
        """Return the R^2 lost to noise at an R^2 of `score`, without shrinkage; infinite if no coefficients are fitted.

        In whitened coordinates a part is as long as a row, of the mean square k, times its residuals. The error of
        predictions is that of coefficients: noise in k l entries, in proportion to the clip. The factor `worse` of its
        square covers noise in X'X, rows that are not normal and an uneven spectrum; by default it is about the value
        observed on tables of all kinds.
        """
        if worse is None:
            worse = (_WORSE * (1.0 + _TWICE_WORSE / max(people * self.mu, _FEW_PEOPLE_BY_FILES))) ** 2
        features, outcomes = self.shape
        if self._shows_level_alone(people):
            return math.inf
        least = 0.0
        if self._is_few(people):
            half = _HALF_LOST if self._takes_many_steps else _HALF_LOST_BY_FILES
            least = score * (half / (people * self.mu)) ** 2
            people = self._few_people / self.mu
        shares = descent.schedule(people, self.mu, features, constant=self.fit_intercept, squares=self.max_rows is None)
        entries = features + self.fit_intercept
        # Over the root mean square of clipped residuals, if those of so many outcomes were normal.
        clipped = descent.clipped_share(entries * outcomes, people, self.mu)
        clip = math.sqrt(float(special.chdtri(outcomes, clipped)) / outcomes)
        noise = clip * self.unit_deviation / (people * math.sqrt(_LATE * shares.steps))
        # Of the constant, the mean residual tells more.
        per_residual = worse * features * entries * noise**2 * outcomes
        if self.fit_intercept:
            # The mean residual; few are longer than this many standard deviations.
            per_residual += (_LONGEST * self.unit_deviation / people) ** 2 * outcomes / shares.mean_residual
        # The part of R^2 not yet found is residual too.
        loss = per_residual * (1.0 - score)
        return max(least, per_residual * (1.0 - score + score * loss / (score + loss)) if loss > 0.0 else 0.0)

    def sum_rows(self, people: People) -> Gram:
        """Sum rows and outcomes as declared: the first reading of a table."""
        return sum_rows(people, row_map=self.row_map, outcome_map=self.outcome_map, radii=self.radii)

    def summed(self, people: People) -> People | WeightedPeople:
        """Return the people to ask, with their first sums."""
        first = self.sum_rows
        return WeightedPeople.of(people, first) if self.is_weighted else replace(people, first=first(people))

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        return within(self._queries(), weighted) if self.is_weighted else self._queries()

    def _queries(self) -> Stages[Regression]:
        """Return them, of people without weights."""
        n_rows = self.public.n_rows
        return self._number_first() if n_rows is None else self._fitted(self.privacy, float(n_rows), float(n_rows))

    def _number_first(self) -> Stages[Regression]:
        """Yield the query of the private numbers of people and rows, then the others."""
        left, people, rows = yield from self._counted()
        if self._is_few(people):
            share = _COUNT_OF_FEWEST if self._shows_level_alone(people) else _COUNT_OF_FEW
            left, *again = yield from self._numbers("numbers of people and rows, once more", left, share)
            # By precision, about.
            people, rows = (np.array([people, rows]) * _COUNT + np.array(again) * share) / (_COUNT + share)
        return (yield from self._fitted(left, float(people), float(rows)))

    def _fitted(self, left: Privacy, people: float, rows: float) -> Stages[Regression]:
        """Return the queries of a fit of so many people and rows."""
        squares = self.max_rows is None
        shares = descent.schedule(people, self.mu, self.shape[0], constant=self.fit_intercept, squares=squares)
        of_few = FewestPeople if self._shows_level_alone(people) else FewPeople
        return (of_few if self._is_few(people) else Fit)(self, left, shares, people, rows).stages()

    def _shows_level_alone(self, people: float) -> bool:
        """Whether so few people show no more than the mean of their outcomes."""
        return self.fit_intercept and people * self.mu < _FEWEST

    def _is_few(self, people: float) -> bool:
        """Whether people are so few that whitening costs more than it gains."""
        return self.fit_intercept and people * self.mu < self._few_people

    @property
    def _few_people(self) -> float:
        """People times mu below which people are few."""
        return _FEW_PEOPLE if self._takes_many_steps else _FEW_PEOPLE_BY_FILES

    @property
    def _takes_many_steps(self) -> bool:
        return (self.most if self.n_steps is None else self.n_steps) >= _MANY_STEPS

    def _counted(self) -> Generator[Query, Release, tuple[Privacy, float, float]]:
        """Return the rest of the budget, and the numbers of people and of rows."""
        if self.public.n_rows is not None:
            return self.privacy, float(self.public.n_rows), float(self.public.n_rows)
        return (yield from self._numbers("numbers of people and rows", self.privacy, _COUNT))

    def _numbers(
        self, name: str, privacy: Privacy, share: float
    ) -> Generator[Query, Release, tuple[Privacy, float, float]]:
        """Return the rest of a budget, and the numbers for a share of it."""
        part, left = split_budget(privacy, [share, 1.0 - share])
        most, several = self.max_rows or 1, self.max_rows is not None
        bound, size = (math.hypot(most, most) * ROUND_UP, 2) if several else (1.0, 1)
        counts = NoisySum.calibrate(part, bound, (size,), unit=self._unit)
        released = yield Query(name, counts, partial(count_people, first=self.sum_rows, most=most))
        # A count below its noise may be of many people: steps as long as for few would diverge.
        numbers = np.maximum(released.values["sum"], max(most, counts.deviation))
        return left, float(numbers[0]) / most, float(numbers[-1])

    def relative_noise_of_number(self, people: float) -> float:
        """Return the noise in the number of few people, as a part of it."""
        share = _COUNT + _COUNT_OF_FEW
        return 0.0 if self.public.n_rows is not None else self.unit_deviation / (people * math.sqrt(share))

    def _longest(self, which: int) -> float:
        """Return the largest norm of a person's sum of rows, or of outcomes."""
        return rounded_bound(self.radii[which], self.shape[which]) * (self.max_rows or 1) * ROUND_UP

    @cached_property
    def units(self) -> Units:
        """Units of the computation between releases; rows and outcomes are summed in their original units."""
        return Units.near(*self.radii)

    @cached_property
    def _unit(self) -> Unit:
        return "row" if self.max_rows is None else "person"
