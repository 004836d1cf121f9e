"""Least squares in stages, each release adapted to earlier ones: noise for the data, not for the declared bounds.

The releases of one fit share one joint budget (`dpfast.privacy.parts_of`; `solvers.averaged_descent.Schedule` has the
shares), in this order:

1. *Number* of people, and of rows, if it is private. If people are few, only the mean outcome, the mean logarithm of
   residuals' sizes and a few steps follow, in coordinates as declared; if fewer, the mean outcome alone.
2. *Means* of rows and outcomes, if there is an intercept: rows are centred there from now on.
3. *Norm histogram* of rows: it gives the radius to which they are clipped in
4. *moments*, X'X, if people are enough for it. Two histograms of rows whitened by its powers choose the coordinates,
   and the length above which a row and its outcomes have less weight; *moments of whitened rows* are X'X once more.
5. *Sizes of residuals*, and *residuals*: in every step whitened rows times the residuals of their outcomes under the
   coefficients so far, each person's part clipped. Beside them, in the same noise, is the number of people clipped.
6. *Excess of residuals*, where X'X was released: whitened rows times what exceeds the clip of the steps, up to a
   larger clip. It gives the bias of clipping.
7. *Last residuals*: their sizes; their mean, if there is an intercept; and their squares, if a row is a person, for
   the sampling error of coefficients.

Every map, radius, clip and coefficient is a function of earlier releases and public numbers, fixed before the data are
read again, and every release is calibrated for its part as if it were alone. Whatever was released before, one person
changes one bin of each histogram, or two. One person moves sums of rows by their clip, X'X by the bound in
`JointMoments`, and a step's sum by the bound in `NoisySum.with_count` for `residual_bound`. So the releases compose
adaptively to the whole (Gaussian ones by mu squared, pure ones by epsilon: dpfast.ledger has the statement). The number
of releases depends on releases and public numbers alone.

The computation between releases is written once, as a generator of stages. A fit answers them with the data; the
solution is computed by answering them with the releases.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._threads import resolve_n_threads
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.kernels.half_octaves import HalfOctaves
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, parts_of
from dpfast.privacy.rounding import ROUND_UP
from dpfast.releases.mechanism import Mechanism, Query, Stages
from dpfast.releases.moments import DeclaredPeople, JointMoments
from dpfast.releases.noisy_sum import NoisySum
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Position, Schedule
from dpfast.solvers.bounds import last_bin
from dpfast.solvers.clipping_bias import Excess, corrected, tail
from dpfast.solvers.inference import Evidence
from dpfast.solvers.projection import LabelFactor
from dpfast.solvers.ridge import RidgeSolution, Units
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.residuals import (
    ResidualStep,
    check_most_rows,
    residual_bound,
    residual_sizes,
    residual_sums,
    squares_bound,
)
from dpfast.statistics.rows import RowMap
from dpfast.statistics.sizes import Sizes, size_counts

#: Share of mu^2 for the numbers of people and rows, if they are private.
_COUNT = 0.01
#: Planned values: the share of the steps' budget for late ones, the clip of the last residuals in standard deviations,
#: the ratio of errors to those of resolved normal rows if people are many, and people times mu where it is twice that.
_LATE, _LONGEST, _WORSE, _TWICE_WORSE = 0.75, 3.5, 1.36, 120.0
#: With an intercept: people times mu below which a table shows no more than the mean of its outcomes, and below which
#: whitening costs more than it gains; the shares then, of the mean outcome, the sizes of residuals, and the steps.
_FEWEST, _FEW_PEOPLE, _SHARES_OF_FEW = 50.0, 80.0, (0.2, 0.1, 0.7)
#: People times mu where few people lose half of the signal, on average over tables of all kinds.
_HALF_LOST = 80.0
#: The assumed length of rows of few people, over the longest, and the half-octaves in which their residuals are told
#: apart: an odd number; and the share of people to clip.
_USUAL_ROW, _FEW_TOLD_APART, _CLIPPED_OF_FEW = 0.5, 17, 0.5
#: Share of people with last residuals beyond their clip.
_FEW = 0.002
#: The clip over the largest possible part, if nothing is known.
_GUESSED = 2.0**-5
#: Largest ratio of predictions to outcomes in the computation of residuals.
_REACH = 2.0**12
#: Half-octaves below the largest possible size in which sizes are counted.
_TOLD_APART = 40


@dataclass(frozen=True)
class People:
    """The data owner's rows, their groups, and the sums read first: not private."""

    table: io.Table
    groups: ArrayLike | io.PersonIds | None = None
    max_rows: int | None = None
    n_threads: int | None = None
    #: Sums of rows and outcomes as declared.
    first: Gram | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of sums of rows."""
        return {"groups": self.groups, "max_rows": self.max_rows, "n_threads": self.n_threads}

    @cached_property
    def residual_options(self) -> dict[str, Any]:
        """Options of sums of residuals."""
        threads = {"n_threads": self.n_threads}
        if self.table.partitions is None:
            threads = {"n_threads": resolve_n_threads(self.n_threads)}
        if self.groups is None or self.max_rows is None:
            return threads
        is_known = isinstance(self.groups, io.PersonIds)
        whose = self.groups if is_known else io.people(self.groups, self.max_rows)
        return {"whose": whose, "max_rows": self.max_rows} | threads

    @cached_property
    def first_rows(self) -> People:
        """The same people, each with their first row alone."""
        return self if self.max_rows is None else replace(self, max_rows=1, first=None)

    def count_rows(self) -> int:
        """Count the rows that count."""
        if self.groups is None or self.max_rows is None:
            return self.table.count_rows()
        if self.table.partitions is not None:
            counted: int = self.table.reduce(partial(_count_of_people, max_rows=self.max_rows), add, groups=self.groups)
            return counted
        return int(self.residual_options["whose"].offsets[-1])


class Public(NamedTuple):
    """Public numbers besides the releases: the number of rows, if it is public, and labels declared public."""

    n_rows: int | None
    labels: LabelFactor | None = None


_NOTHING = Public(None)


class Regression(NamedTuple):
    """The solution from the releases of a fit."""

    #: For rows in their original units.
    solution: RidgeSolution
    #: One for all outcomes, or one each; none if coefficients were not fitted, or X'X is not distinct from noise.
    evidence: tuple[Evidence, ...]
    #: Residual variance of outcomes about their linear function of the features; None if people have several rows.
    residual_variance: FloatArray | None = None
    n_steps: int = 0
    #: Part of squared predictions expected to be wrong, from the released moments of rows.
    lost: float | None = None


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
    penalty : float, optional
        Added to the diagonal of X'X, for rows in their original units; None to choose the shrinkage.
    fit_intercept : bool
        Whether there is an intercept.
    max_rows : int, optional
        Most rows of a person, if people have several.
    bound_xx : float, optional
        Frobenius norm of a person's X'X, if one was declared.
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
    penalty: float | None = None
    fit_intercept: bool = False
    max_rows: int | None = None
    bound_xx: float | None = None
    public: Public = _NOTHING

    def __post_init__(self) -> None:
        check_most_rows(self.max_rows)

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
            worse = (_WORSE * (1.0 + _TWICE_WORSE / max(people * self.mu, _FEW_PEOPLE))) ** 2
        features, outcomes = self.shape
        if self._shows_level_alone(people):
            return math.inf
        least = 0.0
        if self._is_few(people):
            least = score * self._lost_by_few(people)
            people = _FEW_PEOPLE / self.mu
        shares = descent.schedule(people, self.mu, features, constant=self.fit_intercept, squares=self.max_rows is None)
        entries = features + self.fit_intercept
        clip = descent.usual_clip(entries * outcomes, outcomes, people, self.mu)
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
        return _sum_rows(people, row_map=self.row_map, outcome_map=self.outcome_map, radii=self.radii)

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        left, people, rows = yield from self._counted()
        if self._shows_level_alone(people):
            level = yield from self._mean_outcome(left, rows)
            return partial(self._level_alone, level)
        squares = self.max_rows is None
        shares = descent.schedule(people, self.mu, self.shape[0], constant=self.fit_intercept, squares=squares)
        fit = (_FewPeople if self._is_few(people) else Fit)(self, left, shares, people, rows)
        return (yield from fit.stages())

    def _shows_level_alone(self, people: float) -> bool:
        """Whether so few people show no more than the mean of their outcomes."""
        return self.fit_intercept and people * self.mu < _FEWEST

    def _is_few(self, people: float) -> bool:
        """Whether people are so few that whitening costs more than it gains."""
        return self.fit_intercept and people * self.mu < _FEW_PEOPLE

    def _lost_by_few(self, people: float) -> float:
        """Return the part of the signal that so few people are expected to lose: most by steps that end too early."""
        return _HALF_LOST / (_HALF_LOST + people * self.mu)

    def _mean_outcome(self, part: Privacy, rows: float) -> Generator[Query, Release, FloatArray]:
        """Release the sum of outcomes; return their mean, within its range."""
        sums = NoisySum.calibrate(part, self._longest(1), self.shape[1:], unit=self._unit)
        released = yield Query("mean of outcomes", sums, partial(_sum_outcomes, first=self.sum_rows))
        level: FloatArray = np.clip(released.values["sum"] / rows, -self.radii[1], self.radii[1])
        return level

    def _counted(self) -> Generator[Query, Release, tuple[Privacy, float, float]]:
        """Return the rest of the budget, and the numbers of people and of rows."""
        if self.public.n_rows is not None:
            return self.privacy, float(self.public.n_rows), float(self.public.n_rows)
        part, left = parts_of(self.privacy, [_COUNT, 1.0 - _COUNT])
        most, several = self.max_rows or 1, self.max_rows is not None
        bound, size = (math.hypot(most, most) * ROUND_UP, 2) if several else (1.0, 1)
        counts = NoisySum.calibrate(part, bound, (size,), unit=self._unit)
        released = yield Query("numbers of people and rows", counts, partial(_count, first=self.sum_rows, most=most))
        # A count below its noise may be of many people: steps as long as for few would diverge.
        numbers = np.maximum(released.values["sum"], max(most, counts.deviation))
        return left, float(numbers[0]) / most, float(numbers[-1])

    def _longest(self, which: int) -> float:
        """Return the largest norm of a person's sum of rows, or of outcomes."""
        return rounded_bound(self.radii[which], self.shape[which]) * (self.max_rows or 1) * ROUND_UP

    def _level_alone(self, level: FloatArray) -> Regression:
        """Return the constant, if people are too few for coefficients: these are 0, and not known."""
        unknown = np.full(self.shape[::-1], np.nan)
        return Regression(RidgeSolution(np.zeros_like(unknown), level, unknown, 0.0), (), lost=1.0)

    @cached_property
    def units(self) -> Units:
        """Units of the computation between releases; rows and outcomes are summed in their original units."""
        return Units.near(*self.radii)

    @cached_property
    def _unit(self) -> Unit:
        return "row" if self.max_rows is None else "person"


class Level(NamedTuple):
    """The mean outcome at the center of rows, and the variance of its noise; in units."""

    mean: FloatArray
    #: None where it is not known.
    variance: float | FloatArray | None = None
    #: Covariance of coefficients and constant from what may be left of the bias of clipping, each outcome's.
    bias: FloatArray | None = None


class Counted(NamedTuple):
    """Released counts of people by the size of their parts: the first of 0, the last of all beyond."""

    counts: FloatArray
    sizes: FloatArray
    #: Standard deviation of the noise in each.
    deviation: float


class Clipped(NamedTuple):
    """A clip of steps, and the last counts that it followed."""

    clip: float
    counted: Counted | None = None


class Residuals(NamedTuple):
    """The variance of outcomes about their linear function, and its standard error by noise as a part of it."""

    variance: FloatArray
    noise: FloatArray


@dataclass(frozen=True)
class Fit:
    """The stages of a fit of coefficients."""

    mechanism: StagedRegression
    privacy: Privacy
    shares: Schedule
    people: float
    rows: float

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, parts = self.mechanism, self._parts(self.privacy)
        coordinates, lengths, outcome = yield from self._coordinates(parts)
        longest = math.hypot(lengths.longest, float(mechanism.fit_intercept))
        if parts.moments is None:
            longest = math.sqrt(len(coordinates.xx))
        share = descent.clipped_share(len(coordinates.xx) * mechanism.shape[1], self.people, mechanism.mu)
        curved = coordinates.curved(share, mechanism.shape[1])
        how = descent.steps(curved, self.rows, most=mechanism.most, asked=mechanism.n_steps)
        theta = np.zeros((len(coordinates.xx), mechanism.shape[1]))
        if mechanism.fit_intercept:
            theta[-1] = outcome
        first, *later = parts.sizes
        step = self._step(theta, coordinates, longest)
        clip = yield from self._clip("sizes of residuals, step 1", first, step, longest, share)
        descent_of = coordinates, longest, how, Position.start(theta), share
        position, clip = yield from self._descend(parts.steps, later, *descent_of, clip)
        found = descent.found(position, how, curved)
        excess = None
        if parts.excess is not None:
            found, excess = yield from self._excess(parts.excess, found, coordinates, longest, clip, share)
        level, residuals = yield from self._last(parts, found, coordinates, pools=excess is None)
        found, level = self._corrected(found, coordinates, excess, level)
        solved = self._solved(found, coordinates)

        def told() -> Regression:
            return self._told(solved, level, found, coordinates, residuals, how.n_steps)

        return told

    def _coordinates(self, parts: Parts) -> Generator[Query, Release, tuple[Coordinates, Lengths, FloatArray]]:
        """Estimate coordinates of rows, the lengths of rows in them, and the mean outcome."""
        center, level = yield from self._means(parts)
        rows = yield from self._row_sizes(parts, center)
        if parts.moments is not None:
            return *(yield from self._whitened(parts, center, rows.longest)), level
        coordinates = Coordinates.plain(center, rows.longest, self.rows, constant=self.mechanism.fit_intercept)
        longest = math.sqrt(self.mechanism.shape[0])
        return coordinates, rows.times(longest / rows.longest)._replace(longest=longest), level

    def _means(self, parts: Parts) -> Generator[Query, Release, tuple[FloatArray, FloatArray]]:
        """Estimate the centers of rows and outcomes, in units: 0 without an intercept."""
        mechanism, own = self.mechanism, self.mechanism.units
        features, outcomes = mechanism.shape
        if parts.means is None:
            return np.zeros(features), np.zeros(outcomes)
        sums = self._sums_of_means(parts.means)
        statistic = partial(_sum_both, first=mechanism.sum_rows, stretch=own.rows / own.outcomes)
        released = yield Query("means of rows and outcomes", sums, statistic)
        mean = released.values["sum"] / (self.rows * own.rows)
        deviation = sums.deviation / (self.rows * own.rows)
        center, level = (descent.shrunk_mean(part, deviation) for part in (mean[:features], mean[features:]))
        return held(center, mechanism.radii[0] / own.rows), held(level, mechanism.radii[1] / own.outcomes)

    def _sums_of_means(self, part: Privacy) -> NoisySum:
        """Return how the sums of rows and outcomes are released, outcomes in units like those of rows."""
        mechanism, own = self.mechanism, self.mechanism.units
        bound = math.hypot(mechanism._longest(0), own.rows / own.outcomes * mechanism._longest(1)) * ROUND_UP
        return NoisySum.calibrate(part, bound, (sum(mechanism.shape),), unit=mechanism._unit)

    def _row_sizes(self, parts: Parts, center: FloatArray) -> Generator[Query, Release, Lengths]:
        """Count rows by their length about the center, in units."""
        own = self.mechanism.units.rows
        longest = self.mechanism.radii[0] / own + float(np.linalg.norm(center))
        lengths, seen = yield from self._lengths("sizes of rows", parts.row_sizes, self._map(center), longest * own)
        found = longest if seen is None else min(max(seen, _SHORTEST_ROW) / own, longest)
        return lengths.times(1.0 / own)._replace(longest=found)

    def _lengths(
        self, name: str, part: Privacy, row_map: RowMap, longest: float
    ) -> Generator[Query, Release, tuple[Lengths, float | None]]:
        """Release the norm histogram of rows, with the largest norm above the noise; None if no row is."""
        bins = _bins_below(longest)
        counts = NoisySum.of_counts(part, 1, bins.n_bins, unit=self.mechanism._unit)
        released = yield Query(name, counts, partial(_count_rows, sizes=Sizes(rows=True, bins=bins), row_map=row_map))
        found = Lengths(released.values["sum"][0, bins.largest_code :], counts.deviation, bins.sizes, longest)
        return found, descent.last_size(found.counts, counts.deviation, found.sizes, heavy=self._is_heavy)

    def _whitened(
        self, parts: Parts, center: FloatArray, radius: float
    ) -> Generator[Query, Release, tuple[Coordinates, Lengths]]:
        """Estimate coordinates in which rows are about even, and the lengths of rows in them."""
        mechanism, own, constant = self.mechanism, self.mechanism.units.rows, self.mechanism.fit_intercept
        assert parts.moments is not None
        moments = self._moments(parts.moments, radius * own, {"xx": 1.0}, bound_xx=mechanism.bound_xx)
        released = yield self._moments_query("moments", moments, self._map(center), radius * own)
        xx, noise = released.values["xx"] / own**2, moments.off_diagonal / own**2
        found: list[tuple[float, Coordinates, Lengths]] = []
        for power, part in zip(self.shares.powers, parts.whitened_sizes, strict=True):
            whitened = Coordinates.whitened(xx, noise, power, center, self.rows, constant=constant)
            longest = float(np.linalg.norm(whitened.whitening, 2)) * radius
            name = f"sizes of rows whitened by power {power:g}"
            lengths, seen = yield from self._lengths(name, part, self._map(center, whitened.whitening), longest)
            length = min(max(seen or 0.0, whitened.usual_length()), longest)
            found.append((whitened.cost * (length**2 + constant), whitened, lengths._replace(longest=length)))
        _, coordinates, lengths = min(found, key=lambda one: one[0])
        length = lengths.longest
        assert parts.whitened_moments is not None
        features = mechanism.shape[0]
        weights = {"xx": (features + 1) / 2.0} | ({"x": features * length**2} if constant else {})
        moments = self._moments(parts.whitened_moments, length, weights)
        row_map = self._map(center, coordinates.whitening)
        released = yield self._moments_query("moments of whitened rows", moments, row_map, length)
        values = released.values
        coordinates = coordinates.with_moments(values["xx"], moments.noise, values.get("x"), self.rows)
        return coordinates, lengths

    def _descend(
        self,
        budget: Privacy,
        sizes: Sequence[Privacy],
        coordinates: Coordinates,
        longest: float,
        how: descent.Steps,
        position: Position,
        share: float,
        clipped: Clipped,
    ) -> Generator[Query, Release, tuple[Position, Clipped]]:
        """Take steps along sums of whitened rows times clipped residuals, in units; `sizes` is for later clips.

        Returns the mean clip of late steps too, weighted as these are.
        """
        mechanism, own = self.mechanism, self.mechanism.units
        step = self._step(position.theta, coordinates, longest)
        counted = dict(zip(how.counted, sizes, strict=False))
        clips: list[float] = []
        for number, part in enumerate(parts_of(budget, [1.0] * how.n_steps)):
            summed = coordinates.as_summed(position.theta, *own)
            if (kept := self._kept(summed)) < 1.0:
                position = position._replace(theta=kept * position.theta)
                summed = coordinates.as_summed(position.theta, *own)
            step = step.at(summed)
            if number in counted:
                name = f"sizes of residuals, step {number + 1}"
                clipped = yield from self._clip(name, counted[number], step, longest, share)
            clip = clipped.clip
            clips.append(clip)
            bound = residual_bound(clip, step, mechanism.max_rows)
            unit = _power_below(descent.COUNT_UNIT * 2.0 * clip)
            entries = position.theta.size
            sums = NoisySum.with_count(part, bound, unit, (entries + 1,), mechanism._unit)
            released = yield Query(
                f"residuals, step {number + 1}", sums, partial(_sum_residuals, step=step, clip=clip, unit=unit), clip
            )
            sum_of_all = released.values["sum"]
            measured = sum_of_all[:-1].reshape(position.theta.shape) / own.outcomes
            position = descent.stepped(position, how, measured, sums.deviation / own.outcomes)
            clip = descent.next_clip(clip, float(sum_of_all[-1]) / unit / self.people, share)
            clipped = clipped._replace(clip=min(max(clip, _SMALLEST_CLIP), _LARGEST_CLIP))
        return position, clipped._replace(clip=float(position.weights(how) @ clips))

    def _excess(
        self,
        part: Privacy,
        found: descent.Found,
        coordinates: Coordinates,
        longest: float,
        clipped: Clipped,
        share: float,
    ) -> Generator[Query, Release, tuple[descent.Found, Excess]]:
        """Release what exceeds the clip of steps in people's parts, up to a larger clip, in units.

        Of people with several rows the parts are released as they are: at the steps' end those within the clip cancel.
        """
        mechanism, own = self.mechanism, self.mechanism.units
        found = found._replace(theta=self._kept(coordinates.as_summed(found.theta, *own)) * found.theta)
        assert clipped.counted is not None
        counts, sizes, deviation = clipped.counted
        clip, factor, mean = tail(counts[1:], deviation, sizes[:-1], clipped.clip, share, self.people)
        beyond = clipped.clip if mechanism.max_rows is None else 0.0
        step = replace(self._step(found.theta, coordinates, longest), beyond=beyond)
        clip -= beyond
        bound = residual_bound(clip, step, mechanism.max_rows)
        sums = NoisySum.calibrate(part, bound, found.theta.shape, unit=mechanism._unit)
        released = yield Query("excess of residuals", sums, partial(_sum_residuals, step=step, clip=clip), clip)
        unit = own.outcomes
        return found, Excess(released.values["sum"] / unit, sums.deviation / unit, factor, mean / unit)

    def _corrected(
        self, found: descent.Found, coordinates: Coordinates, excess: Excess | None, level: Level
    ) -> tuple[descent.Found, Level]:
        """Return coefficients and constant without the bias of clipping, as far as it is known."""
        if excess is None:
            return found, level
        assert isinstance(level.variance, float)
        theta, bias = corrected(found, coordinates, excess, level.mean, level.variance)
        found = found._replace(theta=theta)
        if not self.mechanism.fit_intercept:
            return found, level._replace(bias=bias)
        own = self.mechanism.units.outcomes
        mean = held(theta[-1], 4.0 * self.mechanism.radii[1] / own)
        return found, Level(mean, bias[:, -1, -1] + found.covariance[-1, -1], bias)

    def _clip(
        self, name: str, part: Privacy, step: ResidualStep, longest: float, share: float
    ) -> Generator[Query, Release, Clipped]:
        """Estimate the size exceeded by a share of the parts of people; a small one if no people are seen."""
        octaves = _octaves_below(self._largest_part(longest))
        counted = yield from self._residual_sizes(name, part, step, octaves)
        counts, edges, deviation = counted
        found = descent.size_of_share(counts, deviation, edges, share, self.people)
        return Clipped(float(edges[-1]) * _GUESSED if found is None else found, counted)

    def _largest_part(self, longest: float) -> float:
        """Return the largest size of a person's part of a step, where residuals are at most twice the outcomes."""
        return 2.0 * longest * self.mechanism.radii[1] * (self.mechanism.max_rows or 1)

    def _residual_sizes(
        self, name: str, part: Privacy, step: ResidualStep, octaves: tuple[int, int], *, of_first_rows: bool = False
    ) -> Generator[Query, Release, Counted]:
        """Count people by the size of their part of a sum, or of their first row's."""
        mechanism = NoisySum.of_counts(part, 1, octaves[1] - octaves[0] + 2, unit=self.mechanism._unit)
        statistic = partial(_count_residuals, step=step, octaves=octaves, of_first_rows=of_first_rows)
        released = yield Query(name, mechanism, statistic)
        edges = np.exp2(np.arange(octaves[0], octaves[1] + 1) / 2.0)
        return Counted(released.values["sum"][0], np.append(edges, edges[-1]), mechanism.deviation)

    def _last(
        self, parts: Parts, found: descent.Found, coordinates: Coordinates, *, pools: bool
    ) -> Generator[Query, Release, tuple[Level, Residuals | None]]:
        """Estimate the mean of residuals, and of their squares; in units except for the squares.

        The mean is alone, or pooled with that of the steps.
        """
        mechanism, own = self.mechanism, self.mechanism.units
        features, outcomes = mechanism.shape
        level = found.theta[-1] if mechanism.fit_intercept else np.zeros(outcomes)
        level_variance = float(found.covariance[-1, -1]) if mechanism.fit_intercept else 0.0
        solved = self._solved(found, coordinates)
        level_at_zero = (level - coordinates.center @ solved.coef) * own.outcomes
        coef = np.vstack([solved.coef * (own.outcomes / own.rows), level_at_zero])
        coef = self._kept(coef) * coef
        constant = np.zeros((1, features + 1))
        constant[0, -1] = 1.0
        step = ResidualStep(coef, mechanism.row_map, mechanism.outcome_map, constant, constant=True)
        assert parts.last_sizes is not None
        octaves = _octaves_below(4.0 * mechanism.radii[1] * (mechanism.max_rows or 1))
        counts, edges, deviation = yield from self._residual_sizes(
            "sizes of last residuals", parts.last_sizes, step, octaves
        )
        # Zero is not a size.
        longest = last_bin(counts[1:], deviation, share=_FEW, people=self.people, heavy=self._is_heavy)
        limit = float(edges[1 + longest.place]) if longest.is_certain else mechanism.radii[1]
        limit = min(limit, 2.0 * mechanism.radii[1] * (mechanism.max_rows or 1))
        if parts.mean_residual is not None:
            bound = residual_bound(limit, step, mechanism.max_rows)
            sums = NoisySum.calibrate(parts.mean_residual, bound, (1, outcomes), unit=mechanism._unit)
            released = yield Query("last residuals", sums, partial(_sum_residuals, step=step, clip=limit), limit)
            scale = self.rows * own.outcomes
            mean = level + released.values["sum"][0] / scale
            mean_variance = (sums.deviation / scale) ** 2
            level = descent.constant(level, level_variance, mean, mean_variance) if pools else mean
            level_variance = min(level_variance, mean_variance) if pools else mean_variance
            level = held(level, 4.0 * mechanism.radii[1] / own.outcomes)
        residuals = None
        if parts.squares is not None:
            limit = min(max(limit, 1e-49), 1e49)  # so that its square has a grid
            noise = NoisySum.calibrate(parts.squares, squares_bound(limit**2, step), (outcomes,))
            released = yield Query("squares of residuals", noise, partial(_sum_squares, step=step, limit=limit), limit)
            # Residuals below the noise may be as large as it.
            squares = np.maximum(released.values["sum"], noise.deviation)
            whole = descent.unclipped(squares, self.rows, limit)
            mean = squares / max(self.rows - len(found.theta), 1.0)
            residuals = Residuals(whole.square * mean, np.minimum(whole.error * noise.deviation / squares, 1.0))
        return Level(level, level_variance), residuals

    def _solved(self, found: descent.Found, coordinates: Coordinates) -> descent.Shrunk:
        """Return coefficients of rows in units, shrunk or penalised."""
        mechanism, features = self.mechanism, self.mechanism.shape[0]
        back = coordinates.whitening.T
        coef = back @ found.theta[:features]
        covariance = back @ found.covariance[:features, :features] @ back.T
        xx = self._xx(coordinates)
        if mechanism.penalty is None:
            return descent.shrunk(coef, covariance, xx)
        own, scale = mechanism.penalty, mechanism.row_map.scale
        penalty = mechanism.units.penalty(own if scale is None else own / scale**2)
        return descent.penalised(coef, covariance, xx, penalty)

    def _xx(self, coordinates: Coordinates) -> FloatArray:
        """Return X'X about the rows' mean, made feasible, for rows in units."""
        back = descent.inverse(coordinates.whitening)
        xx = descent.without_constant(coordinates.resolved(), has_constant=self.mechanism.fit_intercept)
        return back @ xx @ back.T

    def _told(
        self,
        solved: descent.Shrunk,
        level: Level,
        found: descent.Found,
        coordinates: Coordinates,
        residuals: Residuals | None,
        n_steps: int,
    ) -> Regression:
        """Return the solution from the releases, for rows in their original units."""
        mechanism, own, features = self.mechanism, self.mechanism.units, self.mechanism.shape[0]
        row_map = mechanism.row_map
        scale = np.ones(features) if row_map.scale is None else row_map.scale
        back = coordinates.whitening.T
        bias = np.zeros((1, features, features))
        if level.bias is not None:
            bias = back @ level.bias[:, :features, :features] @ back.T
        variances = np.maximum(np.diag(solved.covariance) + np.einsum("lii->li", bias), 0.0)
        std = np.broadcast_to(np.sqrt(variances), (mechanism.shape[1], features))
        center = coordinates.center
        if row_map.center is not None:
            center = center + row_map.center / scale / own.rows
        intercept = level.mean - center @ solved.coef if mechanism.fit_intercept else np.zeros(mechanism.shape[1])
        solution = own.solution(RidgeSolution(solved.coef.T, intercept, std, solved.ridge))
        given = solution.ridge if mechanism.penalty is None else mechanism.penalty
        solution = replace(solution, coef=solution.coef / scale, coef_std=solution.coef_std / scale, ridge=float(given))
        forth = descent.inverse(back)
        xx = self._xx(coordinates)
        noise = back @ (found.covariance + found.covariance_of_xx)[:features, :features] @ back.T
        covariance = noise + bias
        evidence = Evidence(
            back @ found.reached[:features, :features] @ forth,
            descent.inverse(xx),
            back @ found.theta[:features],
            covariance,
            least_signal=self.rows / float(np.trace(xx)),
            n_rows=self.rows,
            residual_noise=0.0 if residuals is None else residuals.noise,
            **self._told_of_constant(level, center, solved, found, coordinates),
            **own.of_evidence(row_map.scale, features),
        )
        variance = None if residuals is None else residuals.variance
        lost = 1.0
        if self.people * mechanism.mu >= descent.FEW:
            lost = descent.lost(evidence.xy, np.mean(covariance, axis=0), xx)
        if not coordinates.stands_out:
            # The progress of descent is unknown without X'X.
            unknown = np.full_like(solution.coef_std, np.nan)
            return Regression(replace(solution, coef_std=unknown), (), variance, n_steps, lost)
        return Regression(solution, (evidence,), variance, n_steps, lost)

    def _told_of_constant(
        self,
        level: Level,
        center: FloatArray,
        solved: descent.Shrunk,
        found: descent.Found,
        coordinates: Coordinates,
    ) -> dict[str, Any]:
        """Return what `Evidence` has of the intercept: that of the released center and level.

        The center is off the rows' mean by the noise in it, which errors of coefficients are multiplied by.
        """
        if not self.mechanism.fit_intercept or level.variance is None:
            return {}
        features = self.mechanism.shape[0]
        back = coordinates.whitening.T
        noise = back @ found.covariance[:features, :features] @ back.T
        shrunk = back @ found.theta[:features] - solved.coef
        errors = np.sqrt(np.sum(shrunk**2, axis=0) + np.trace(noise))
        means = self._parts(self.privacy).means
        assert means is not None
        of_center = self._sums_of_means(means).deviation / (self.rows * self.mechanism.units.rows)
        level_noise = np.hypot(np.sqrt(level.variance), of_center * errors)
        return {"constant": -center, "level": level.mean, "level_noise": level_noise}

    def _step(self, theta: FloatArray, coordinates: Coordinates, longest: float) -> ResidualStep:
        """Return the definition of a step's sum, for coefficients in these coordinates."""
        mechanism, own = self.mechanism, self.mechanism.units
        whitening = coordinates.of_rows(own.rows)
        return ResidualStep(
            coordinates.as_summed(theta, *own),
            mechanism.row_map,
            mechanism.outcome_map,
            whitening,
            constant=True,
            longest=longest,
        )

    def _kept(self, coef: FloatArray) -> float:
        """Return the part of coefficients (D, l) to use in sums of residuals, to prevent overflow: often 1."""
        radius, largest = self.mechanism.radii
        sizes = np.add.reduce(np.abs(coef), axis=1)
        predicted = radius * float(np.add.reduce(sizes[:-1])) + float(sizes[-1])
        return 1.0 / max(1.0, predicted / (_REACH * largest))

    def _moments(
        self, part: Privacy, length: float, weights: Mapping[str, float], *, bound_xx: float | None = None
    ) -> JointMoments:
        mechanism = self.mechanism
        radii = length, mechanism.radii[1]
        rounded = rounded_bound(radii[0], mechanism.shape[0]), rounded_bound(radii[1], mechanism.shape[1])
        people = None
        if mechanism.max_rows is not None:
            people = DeclaredPeople.of(mechanism.max_rows, (bound_xx, None), *radii, mechanism.shape)
        return JointMoments.calibrate(part, rounded, mechanism.shape, weights, people=people)

    def _moments_query(self, name: str, moments: JointMoments, row_map: RowMap, length: float) -> Query:
        unit = moments.people
        statistic = partial(
            _sum_rows,
            row_map=row_map,
            outcome_map=self.mechanism.outcome_map,
            radii=(length, self.mechanism.radii[1]),
            bound_xx=None if unit is None else unit.bound_xx,
            bound_xy=None if unit is None else unit.bound_xy,
            sums="x" in moments.scales,
        )
        return Query(name, moments, statistic)

    def _map(self, center: FloatArray, whitening: FloatArray | None = None) -> RowMap:
        """Return the map of original rows to rows about the center, whitened if requested."""
        own, row_map = self.mechanism.units.rows, self.mechanism.row_map
        moved = own * center
        if row_map.scale is not None:
            moved = moved * row_map.scale
        basis = None if whitening is None else np.ascontiguousarray(whitening.T) / own
        return replace(row_map, center=moved if row_map.center is None else row_map.center + moved, basis=basis)

    @property
    def _is_heavy(self) -> bool:
        return self.privacy.delta == 0.0

    def _parts(self, privacy: Privacy) -> Parts:
        """Split a budget."""
        own = self.shares
        powers = len(own.powers)
        shares = [own.means, own.row_sizes, own.moments, own.whitened_moments, own.steps]
        shares += [own.last_sizes, own.mean_residual, own.squares, own.excess]
        shares += [own.whitened_sizes] * powers + [own.sizes] * own.n_sizes
        each = iter(parts_of(privacy, [share for share in shares if share > 0.0]))
        found = [next(each) if share > 0.0 else None for share in shares]
        known = [part for part in found[9:] if part is not None]
        row_sizes, steps, last_sizes = found[1], found[4], found[5]
        assert row_sizes is not None
        assert steps is not None
        return Parts(
            found[0], row_sizes, found[2], tuple(known[:powers]), found[3], tuple(known[powers:]), steps, last_sizes,
            found[6], found[7], found[8],
        )  # fmt: skip


class _FewPeople(Fit):
    """The stages where people are few: rows stay in coordinates as declared, and nothing follows the steps."""

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
        last = _octaves_below(self._largest_part(longest))[1] - 3
        octaves = last - _FEW_TOLD_APART + 2, last
        sums = NoisySum.calibrate(part, float(middle), (1,), unit=mechanism._unit)
        released = yield Query("mean size of residuals", sums, partial(_sum_octaves, step=step, octaves=octaves))
        mean = float(np.clip(released.values["sum"][0] / self.people, -middle, middle))
        # The lower edge: a smaller clip has less noise.
        return float(np.exp2((octaves[0] + middle + mean - 1.0) / 2.0))


class Lengths(NamedTuple):
    """Released counts of rows by length."""

    counts: FloatArray
    #: Standard deviation of the noise in each.
    deviation: float
    #: Upper ends of the bins.
    sizes: FloatArray
    #: Clip of rows.
    longest: float

    def times(self, unit: float) -> Lengths:
        """Return the counts for rows this many times as long."""
        return self._replace(sizes=unit * self.sizes, longest=unit * self.longest)


class Parts(NamedTuple):
    """The budget, by release."""

    means: Privacy | None
    row_sizes: Privacy
    moments: Privacy | None
    whitened_sizes: tuple[Privacy, ...]
    whitened_moments: Privacy | None
    sizes: tuple[Privacy, ...]
    steps: Privacy
    last_sizes: Privacy | None
    mean_residual: Privacy | None
    squares: Privacy | None
    excess: Privacy | None


#: Least norm of rows whose moments have a grid.
_SHORTEST_ROW = 2.0**-230
#: Range of clips with a grid for sums of residuals.
_SMALLEST_CLIP, _LARGEST_CLIP = 1e-90, 1e90


def _bins_below(largest: float) -> HalfOctaves:
    """Return half-octaves up to a largest size, from far below it."""
    top = max(-799, min(math.ceil(2.0 * math.log2(largest)), 800))
    return HalfOctaves(max(top - _TOLD_APART, -800), top)


def _octaves_below(largest: float) -> tuple[int, int]:
    last = max(-500, min(math.ceil(2.0 * math.log2(largest)), 500))
    return last - _TOLD_APART, last


def _power_below(size: float) -> float:
    """Return the largest power of two that is not above a size."""
    return math.ldexp(0.5, math.frexp(size)[1])


def held(vector: FloatArray, length: float) -> FloatArray:
    """Scale a vector onto a length, if it is longer."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= length else vector * (length / norm)


def _sum_rows(
    people: People,
    row_map: RowMap,
    outcome_map: RowMap,
    radii: tuple[float, float],
    *,
    sums: bool = True,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
) -> Gram:
    return gram(
        people.table,
        bound_x=radii[0],
        bound_y=radii[1],
        bound_xx=bound_xx,
        bound_xy=bound_xy,
        map_x=_unless_bare(row_map),
        map_y=_unless_bare(outcome_map),
        sums=sums,
        **people.options,
    )


def _unless_bare(row_map: RowMap) -> RowMap | None:
    """Leave out a map that only clips rows: the sums and counts clip them too."""
    is_bare = row_map.low is row_map.center is row_map.scale is row_map.basis is None
    return None if is_bare else row_map


def _first(people: People, first: Any) -> Gram:
    exact: Gram = first(people) if people.first is None else people.first
    return exact


def _count_of_people(table: io.Table, groups: Any, max_rows: int) -> int:
    return int(io.people(groups, max_rows).offsets[-1])


def _count(people: People, first: Any, most: int) -> FixedPoint:
    exact = _first(people, first)
    return FixedPoint.from_integers(
        [exact.n_rows] if exact.n_people is None else [exact.n_people * most, exact.n_rows], 0
    )


def _sum_outcomes(people: People, first: Any) -> FixedPoint:
    exact = _first(people, first).exact_y_sum
    assert exact is not None
    return exact


def _sum_both(people: People, first: Any, stretch: float) -> FixedPoint:
    """Return sums of rows and, times a power of two, of outcomes, on the finer grid of both."""
    exact = _first(people, first)
    x, y = exact.exact_x_sum, exact.exact_y_sum
    assert x is not None
    assert y is not None
    exponent = math.frexp(stretch)[1] - 1 + y.exponent
    finest = min(x.exponent, exponent)
    integers = [x.integer(i) << (x.exponent - finest) for i in range(x.shape[0])]
    integers += [y.integer(i) << (exponent - finest) for i in range(y.shape[0])]
    return FixedPoint.from_integers(integers, finest)


def _count_rows(people: People, sizes: Sizes, row_map: RowMap) -> FixedPoint:
    return size_counts(people.table, sizes, map_x=row_map, **people.options)


def _count_residuals(
    people: People, step: ResidualStep, octaves: tuple[int, int], *, of_first_rows: bool
) -> FixedPoint:
    people = people.first_rows if of_first_rows else people
    counts = residual_sizes(people.table, step, octaves, **people.residual_options)
    return FixedPoint.from_integers(counts[None, :], 0)


def _sum_octaves(people: People, step: ResidualStep, octaves: tuple[int, int]) -> FixedPoint:
    """Return the sum of people's half-octaves, counted from the middle one."""
    counts = residual_sizes(people.table, step, octaves, **people.residual_options)
    places = np.arange(len(counts)) - len(counts) // 2
    return FixedPoint.from_integers([int(counts @ places)], 0)


def _sum_residuals(people: People, step: ResidualStep, clip: float, unit: float | None = None) -> FixedPoint:
    """Return the exact sum of parts and, as a last entry if requested, the number clipped, in a unit."""
    summed = residual_sums(people.table, step, clip, **people.residual_options)
    products = summed.products
    if unit is None:
        return products
    shift = math.frexp(unit)[1] - 1 - products.exponent
    return products.followed_by(summed.n_beyond << shift)


def _sum_squares(people: People, step: ResidualStep, limit: float) -> FixedPoint:
    squares = residual_sums(people.table, step, limit, bound_squares=limit**2, **people.residual_options).squares
    assert squares is not None
    return squares
