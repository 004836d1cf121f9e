"""The stages of a fit of coefficients by least squares, of many people: `StagedRegression` lists them."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, split_budget
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.releases.mechanism import NoisySum, Query, Stages
from dpfast.releases.moments import DeclaredPeople, JointMoments
from dpfast.releases.people import (
    count_lengths,
    count_residuals,
    sum_outcomes,
    sum_residuals,
    sum_rows,
    sum_rows_and_outcomes,
    sum_squares,
)
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Iterate, Schedule, upper_quantile_bin
from dpfast.solvers.clipping_bias import Excess, RareBiases, corrected, corrected_about, hidden_share, tail
from dpfast.solvers.inference import InferenceState
from dpfast.solvers.ridge import RidgeSolution, eigh, held
from dpfast.statistics import rounded_bound
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms
from dpfast.statistics.residuals import ResidualStep, clip_of, residual_bound, squares_bound
from dpfast.statistics.rows import RowMap

if TYPE_CHECKING:
    from dpfast.releases.staged_regression import StagedRegression

#: Share of people with last residuals beyond their clip.
_FEW = 0.002
#: The clip over the largest possible part, if nothing is known.
_GUESSED = 2.0**-5
#: By how much the variance of a rare group's residuals may exceed that of all; and more so, the more these are skewed.
_EXTRA_VARIANCE, _EXTRA_VARIANCE_OF_SKEWED = 1.5, 5.0
#: Mean and deviation of how much the clip moves a rare group, over how much it would if all clipped were in the group.
_BIAS_OF_RARE = 0.6, 0.6
#: How rare a column is whose bias is no other's: fewer than 7% of the people have it.
_OWN = 0.75
#: How rare a column is from which its people's parts have a second clip of their own; this clip, in deviations of a
#: residual; and the noise in their coefficient up to which it pays, in these deviations.
_RARE, _FARTHEST, _PAYS = 0.9, 6.0, 0.25
#: Noise in squares of residuals, as a part of them, from which on counts tell more; and what it is taken to be then.
_DROWNED, _COARSE = 0.5, 0.7
#: Bins of counts beyond the last above the noise, and how far that is, in its deviations.
_BINS_BEYOND, _SEEN = 2, 4.0
#: Largest ratio of predictions to outcomes in the computation of residuals.
_REACH = 2.0**12
#: Half-octaves below the largest possible size in which sizes are counted.
_TOLD_APART = 40
#: Least norm of rows whose moments have a grid.
_SHORTEST_ROW = 2.0**-230
#: Least part of squares of rows that is about their mean.
_SMALL = 1e-9
#: Deviations by which a mean must differ from the level of clipped residuals to be no noise.
_SURELY = 1.75
#: By how many usual residuals an outcome usually differs along a column, at the end of the longest rows.
_USUAL = 8.0
#: Deviations of the noise of a count above which it tells a clip of people.
_COUNTED = 2.0
#: Range of clips with a grid for sums of residuals.
_SMALLEST_CLIP, _LARGEST_CLIP = 1e-90, 1e90


class Regression(NamedTuple):
    """The solution from the releases of a fit."""

    #: For rows in their original units.
    solution: RidgeSolution
    #: One for all outcomes, or one each; none if coefficients were not fitted, or X'X is not distinct from noise.
    inference_states: tuple[InferenceState, ...]
    #: Residual variance of outcomes about their linear function of the features; None if people have several rows.
    residual_variance: FloatArray | None = None
    n_steps: int = 0
    #: Part of squared predictions expected to be wrong, from the released moments of rows.
    expected_error: float | None = None

    @classmethod
    def of_level(cls, level: FloatArray, features: int) -> Self:
        """Return the constant, if people are too few for coefficients: these are 0, and not known."""
        unknown = np.full((len(level), features), np.nan)
        return cls(RidgeSolution(np.zeros_like(unknown), level, unknown, 0.0), (), expected_error=1.0)


class Level(NamedTuple):
    """The mean outcome at the center of rows, and the variance of its noise; in units."""

    mean: FloatArray
    #: None where it is not known.
    variance: float | FloatArray | None = None
    #: Covariance of coefficients and constant from what may be left of the bias of clipping, each outcome's.
    bias: FloatArray | None = None
    #: By how much the variance of residuals may be larger where a rare column is not 0, (d,).
    extra_variance: FloatArray | float = _EXTRA_VARIANCE


class ResidualCounts(NamedTuple):
    """Released counts of people by the size of their parts: the first of 0, the last of all beyond."""

    counts: FloatArray
    sizes: FloatArray
    #: Standard deviation of the noise in each.
    deviation: float


class ClipState(NamedTuple):
    """A clip of steps, and the last counts that it followed."""

    clip: float
    counted: ResidualCounts | None = None


class Residuals(NamedTuple):
    """The variance of outcomes about their linear function, and its standard error by noise as a part of it."""

    variance: FloatArray
    noise: FloatArray
    #: What counts of residuals by size show of the sum over outcomes.
    counted: float

    def reliable(self) -> Residuals:
        """Return what counts show, where squares are mostly noise: a clip far too large for them makes it so."""
        is_noise = (self.noise > _DROWNED) & (self.counted < self.variance)
        if not np.logical_or.reduce(is_noise):
            return self
        return self._replace(
            variance=np.where(is_noise, self.counted, self.variance), noise=np.where(is_noise, _COARSE, self.noise)
        )


@dataclass(frozen=True)
class Fit:
    """The stages of a fit of coefficients."""

    mechanism: StagedRegression
    privacy: Privacy
    shares: Schedule
    n_people: float
    rows: float
    #: How unlikely a size of coefficients may be to be taken for theirs in shrinkage.
    likelihood_drop: ClassVar[float] = descent.LIKELIHOOD_DROP
    #: How much longer outcomes are than rows beside them in means, in units: a power of two.
    outcomes_to_rows: ClassVar[float] = 1.0
    #: What shrinkage leaves of the squared noise in coefficients.
    shrunk_variance: ClassVar[float] = descent.SHRUNK_VARIANCE

    def stages(self) -> Stages[Regression]:
        """Yield one query after the other."""
        mechanism, parts = self.mechanism, self._parts(self.privacy)
        coordinates, lengths, outcome = yield from self._coordinates(parts)
        longest = math.hypot(lengths.longest, float(mechanism.fit_intercept))
        if parts.moments is None:
            longest = math.sqrt(len(coordinates.xx))
        share = descent.clipped_share(len(coordinates.xx) * mechanism.shape[1], self.n_people, mechanism.mu)
        of_unclipped = coordinates.of_unclipped(share, mechanism.shape[1])
        rule = descent.steps(of_unclipped, self.rows, most=mechanism.most, requested=mechanism.n_steps)
        theta = np.zeros((len(coordinates.xx), mechanism.shape[1]))
        if mechanism.fit_intercept:
            theta[-1] = outcome
        first, *later = parts.sizes
        step = self._step(theta, coordinates, longest)
        clip = yield from self._clip("sizes of residuals, step 1", first, step, share)
        descent_of = coordinates, step, rule, Iterate.start(theta), share
        iterate, clip = yield from self._descend(parts.steps, later, *descent_of, clip)
        found = descent.pooled_estimate(iterate, rule, of_unclipped)
        found = found._replace(
            theta=self._overflow_factor(coordinates.as_summed(found.theta, *mechanism.units)) * found.theta,
            usual=self._usual_square(clip.clip / math.sqrt(found.theta.size), coordinates),
        )
        level, residuals = yield from self._last(parts, found, coordinates)
        far = self._second_clip_of_rare(parts.excess, coordinates, residuals)
        excess = yield from self._excess(parts.excess, found, coordinates, step, clip, share, far)
        residuals = residuals and residuals.reliable()
        rare, extra_variance = self._prior_of_rare_biases(found, coordinates, excess, level, residuals)
        theta, found, level = self._corrected(found, coordinates, excess, level, rare)
        level = level._replace(extra_variance=extra_variance)
        solved = self._solved(found._replace(theta=theta), coordinates)

        def solve() -> Regression:
            return self._regression(solved, level, found, coordinates, residuals, rule.n_steps)

        return solve

    def _coordinates(self, parts: Parts) -> Generator[Query, Release, tuple[Coordinates, NormCounts, FloatArray]]:
        """Estimate coordinates of rows, the lengths of rows in them, and the mean outcome."""
        center, level = np.zeros(self.mechanism.shape[0]), np.zeros(self.mechanism.shape[1])
        if parts.means is not None:
            center, level = yield from self._means(parts.means)
        rows = yield from self._row_sizes(parts, center)
        if parts.moments is not None:
            return *(yield from self._whitened(parts, center, rows.longest)), level
        coordinates = Coordinates.plain(center, rows.longest, self.rows, constant=self.mechanism.fit_intercept)
        longest = math.sqrt(self.mechanism.shape[0])
        return coordinates, rows.times(longest / rows.longest)._replace(longest=longest), level

    def _means(self, part: Privacy) -> Generator[Query, Release, tuple[FloatArray, FloatArray]]:
        """Estimate the centers of rows and outcomes, in units."""
        mechanism, own, features = self.mechanism, self.mechanism.units, self.mechanism.shape[0]
        sums = self._sums_of_means(part)
        statistic = partial(sum_rows_and_outcomes, first=mechanism.sum_rows, stretch=self._stretch)
        released = yield Query("means of rows and outcomes", sums, statistic)
        mean = released.values["sum"] / (self.rows * own.rows)
        deviation = sums.deviation / (self.rows * own.rows)
        center, level = (descent.shrunk_mean(part, deviation) for part in (mean[:features], mean[features:]))
        level = level / self.outcomes_to_rows
        return held(center, mechanism.radii[0] / own.rows), held(level, mechanism.radii[1] / own.outcomes)

    def _sums_of_means(self, part: Privacy) -> NoisySum:
        """Return how the sums of rows and outcomes are released, outcomes in units like those of rows."""
        mechanism = self.mechanism
        bound = math.hypot(mechanism._longest(0), self._stretch * mechanism._longest(1)) * ROUND_UP
        return NoisySum.calibrate(part, bound, (sum(mechanism.shape),), unit=mechanism._unit)

    @property
    def _stretch(self) -> float:
        own = self.mechanism.units
        return self.outcomes_to_rows * own.rows / own.outcomes

    def _row_sizes(self, parts: Parts, center: FloatArray) -> Generator[Query, Release, NormCounts]:
        """Count rows by their length about the center, in units.

        Rows are clipped to the norm of the longest that are seen, or to a column's part of the longest that may be, if
        that is more. A rare level of an indicator is not seen; clipped to the norm of others, it would have no weight.
        """
        own = self.mechanism.units.rows
        longest = self.mechanism.radii[0] / own + float(np.linalg.norm(center))
        lengths, seen = yield from self._norm_counts("sizes of rows", parts.row_sizes, self._map(center), longest * own)
        shortest = max(_SHORTEST_ROW / own, longest / self.mechanism.shape[0])
        found = longest if seen is None else min(max(seen / own, shortest), longest)
        return lengths.times(1.0 / own)._replace(longest=found)

    def _norm_counts(
        self, name: str, part: Privacy, row_map: RowMap, longest: float
    ) -> Generator[Query, Release, tuple[NormCounts, float | None]]:
        """Release the norm histogram of rows, with the largest norm above the noise; None if no row is."""
        bins = _bins_below(longest)
        counts = NoisySum.of_counts(part, 1, bins.n_bins, unit=self.mechanism._unit)
        released = yield Query(
            name, counts, partial(count_lengths, sizes=NormHistograms(rows=True, bins=bins), row_map=row_map)
        )
        found = NormCounts(released.values["sum"][0, bins.largest_code :], counts.deviation, bins.sizes, longest)
        return found, descent.last_size(found.counts, counts.deviation, found.sizes, heavy=self._is_heavy)

    def _whitened(
        self, parts: Parts, center: FloatArray, radius: float
    ) -> Generator[Query, Release, tuple[Coordinates, NormCounts]]:
        """Estimate coordinates in which rows are about even, and the lengths of rows in them."""
        mechanism, own, constant = self.mechanism, self.mechanism.units.rows, self.mechanism.fit_intercept
        assert parts.moments is not None
        moments = self._moments(parts.moments, radius * own, {"xx": 1.0}, bound_xx=mechanism.bound_xx)
        released = yield self._moments_query("moments", moments, self._map(center), radius * own)
        xx, noise = released.values["xx"] / own**2, moments.off_diagonal / own**2
        found: list[tuple[float, Coordinates, NormCounts]] = []
        spectrum = eigh(xx)
        for power, part in zip(self.shares.powers, parts.whitened_sizes, strict=True):
            whitened = Coordinates.whitened(xx, spectrum, noise, power, center, self.rows, constant=constant)
            longest = float(np.linalg.svd(whitened.whitening, compute_uv=False)[0]) * radius
            name = f"sizes of rows whitened by power {power:g}"
            lengths, seen = yield from self._norm_counts(name, part, self._map(center, whitened.whitening), longest)
            length = min(max(seen or 0.0, whitened.typical_length()), longest)
            whitened = replace(whitened, radius=radius, clipped_to=length / longest)
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
        step: ResidualStep,
        rule: descent.Steps,
        iterate: Iterate,
        share: float,
        clipped: ClipState,
        *,
        most: float = _LARGEST_CLIP,
    ) -> Generator[Query, Release, tuple[Iterate, ClipState]]:
        """Take steps along sums of whitened rows times clipped residuals, in units; `sizes` is for later clips.

        Returns the mean clip of late steps too, weighted as these are. A later clip is `most` at most.
        """
        mechanism, own = self.mechanism, self.mechanism.units
        counted, (clip, sized) = dict(zip(rule.counted, sizes, strict=False)), clipped
        clips: list[float] = []
        part, entries, averaged = split_budget(budget, [1.0] * rule.n_steps)[0], iterate.theta.size, rule.first_averaged
        noise = NoisySum.calibrate(part, 1.0, (entries + 1,), unit=mechanism._unit)
        for number in range(rule.n_steps):
            summed = coordinates.as_summed(iterate.theta, *own)
            if (kept := self._overflow_factor(summed)) < 1.0:
                iterate = iterate._replace(theta=kept * iterate.theta)
                summed = coordinates.as_summed(iterate.theta, *own)
            step = step.at(summed)
            if number in counted:
                name = f"sizes of residuals, step {number + 1}"
                clip, sized = yield from self._clip(name, counted[number], step, share)
            clips.append(clip)
            bound = clip_of(clip, step.shape, mechanism.max_rows).norm
            # The largest power of two that is not above it.
            unit = math.ldexp(0.5, math.frexp(descent.COUNT_UNIT * 2.0 * clip)[1])
            sums = noise.with_count(bound, unit)
            released = yield Query(
                f"residuals, step {number + 1}", sums, partial(sum_residuals, step=step, clip=clip, unit=unit), clip
            )
            sum_of_all = released.values["sum"]
            measured = sum_of_all[:-1].reshape(iterate.theta.shape) / own.outcomes
            iterate = descent.next_iterate(
                iterate, rule, measured, sums.deviation / own.outcomes, averaged=number >= averaged
            )
            clip = descent.next_clip(clip, float(sum_of_all[-1]) / unit / self.n_people, share)
            clip = min(max(clip, _SMALLEST_CLIP), most)
        return iterate, ClipState(float(iterate.weights(rule) @ clips), sized)

    def _excess(
        self,
        part: Privacy | None,
        found: descent.DescentResult,
        coordinates: Coordinates,
        step: ResidualStep,
        clipped: ClipState,
        share: float,
        far: float,
    ) -> Generator[Query, Release, Excess]:
        """Release what exceeds the clip of steps in people's parts, up to a larger clip, in units, if there is a part.

        Of people with several rows the parts are released as they are: at the steps' end those within the clip cancel.
        """
        mechanism, own = self.mechanism, self.mechanism.units
        assert clipped.counted is not None
        counts, sizes, deviation = clipped.counted
        of_tail = tail(counts[1:], deviation, sizes[:-1], clipped.clip, share, self.n_people, far)
        clip, unit = of_tail.clip, own.outcomes
        if part is None:
            return Excess(np.zeros_like(found.theta), None, of_tail._replace(mean=of_tail.mean / unit))
        beyond = clipped.clip if mechanism.max_rows is None else 0.0
        step = step.at(coordinates.as_summed(found.theta, *own), beyond)
        clip -= beyond
        bound = residual_bound(clip, step, mechanism.max_rows)
        sums = NoisySum.calibrate(part, bound, found.theta.shape, unit=mechanism._unit)
        released = yield Query("excess of residuals", sums, partial(sum_residuals, step=step, clip=clip), clip)
        of_tail = of_tail._replace(mean=of_tail.mean / unit)
        return Excess(released.values["sum"] / unit, sums.deviation / unit, of_tail)

    def _second_clip_of_rare(
        self, part: Privacy | None, coordinates: Coordinates, residuals: Residuals | None
    ) -> float:
        """Return a clip beyond which parts of people with rare columns seldom are, if noise hides none then."""
        if part is None or residuals is None:
            return 0.0
        deviation = NoisySum.calibrate(part, 1.0, (1,), unit=self.mechanism._unit).deviation
        rare, rareness = self._rareness(coordinates)
        pays = (rareness > _RARE) & (_FARTHEST * deviation < _PAYS * self.rows * rare)
        return _FARTHEST * float(np.max(self._parts_of_rare(coordinates, residuals)[pays], initial=0.0))

    def _parts_of_rare(self, coordinates: Coordinates, residuals: Residuals) -> FloatArray:
        """Return the part of a step that a usual residual is in the mean row of people with a rare column."""
        products, squares, _, _ = self._about_means(coordinates)
        moved = np.linalg.norm(coordinates.whitening @ products, axis=0)
        lengths = np.maximum(moved, _SMALL) / np.sqrt(self.rows * squares * self._rareness(coordinates)[0])
        return np.asarray(math.sqrt(float(np.sum(residuals.variance))) * lengths)

    def _prior_of_rare_biases(
        self,
        found: descent.DescentResult,
        coordinates: Coordinates,
        excess: Excess,
        level: Level,
        residuals: Residuals | None,
    ) -> tuple[RareBiases, FloatArray]:
        """Return how clipping may bias coefficients of rare columns, the rarest first, and `Level.extra_variance`.

        If all that are clipped were among a column's people, it would be moved by 1/sqrt(share) of the constant; not by
        more than a deviation of residuals.
        """
        directions = np.zeros((self.mechanism.shape[0], len(coordinates.xx)))
        directions[:, : len(directions)] = coordinates.unwhitening
        moved = np.zeros((self.mechanism.shape[1], len(directions)))
        seen, (rare, rareness) = np.zeros(len(directions)), self._rareness(coordinates)
        extra_variance, (_, squares, means, weights) = (
            np.full(len(directions), _EXTRA_VARIANCE),
            self._about_means(coordinates),
        )
        off: FloatArray | None = None
        if self.mechanism.fit_intercept:
            assert isinstance(level.variance, float)
            off = level.mean - found.theta[-1]
            noise: FloatArray | float = level.variance + float(found.covariance[-1, -1])
        elif self.mechanism.has_constant:
            none = RareBiases(directions, moved, moved, seen, rareness > _OWN)
            last = coordinates.whitening[:, -1] * math.sqrt(weights / self.rows)
            _, center, bias = corrected_about(_of_constant(coordinates), found, coordinates, excess, none)
            off, noise = last @ (center - found.theta), bias @ last @ last
        if off is not None:
            moved = np.sqrt(off**2 + noise)[:, None] / np.sqrt(rare * np.maximum(rare, excess.tail.share))
            if residuals is not None:
                scales = np.sqrt(residuals.variance)[:, None] / self.mechanism.units.outcomes
                moved = np.minimum(moved, scales)
                extra_variance += _EXTRA_VARIANCE_OF_SKEWED * np.max(moved / scales, axis=0)
            # Of columns from -1 to 1, of variance 4 f (1 - f), in units.
            moved *= np.sqrt(rare * rareness * self.rows / squares) * np.outer(np.sign(off), -np.sign(means))
        if excess.deviation is not None and residuals is not None:
            seen = 1.0 - hidden_share(excess.tail.clip / self._parts_of_rare(coordinates, residuals))
        order = np.argsort(-rareness, kind="stable")
        moved = moved[:, order]
        sizes = _BIAS_OF_RARE[0] * moved, _BIAS_OF_RARE[1] * np.abs(moved)
        return RareBiases(directions[order], *sizes, 1.0 - seen[order], rareness[order] > _OWN), extra_variance

    def _corrected(
        self, found: descent.DescentResult, coordinates: Coordinates, excess: Excess, level: Level, rare: RareBiases
    ) -> tuple[FloatArray, descent.DescentResult, Level]:
        """Return coefficients, what they are expected to be, and constants without the bias of clipping."""
        assert isinstance(level.variance, float)
        if self.mechanism.has_constant:
            theta, center, bias = corrected_about(_of_constant(coordinates), found, coordinates, excess, rare)
        else:
            theta, center, bias = corrected(found, coordinates, excess, level.mean, level.variance, rare)
        if not self.mechanism.fit_intercept:
            return theta, found.at(center), level._replace(bias=bias)
        own = self.mechanism.units.outcomes
        moved = descent.surely_moved(center[-1], level.mean, level.variance, _SURELY)
        surely = np.any(moved != center[-1])
        mean = held(moved, 4.0 * self.mechanism.radii[1] / own)
        found = found.at(center)
        variance = bias[:, -1, -1] + found.covariance[-1, -1] + surely * level.variance
        return theta, found, Level(mean, variance, bias)

    def _clip(self, name: str, part: Privacy, step: ResidualStep, share: float) -> Generator[Query, Release, ClipState]:
        """Estimate the size exceeded by a share of the parts of people; a small one if no people are seen."""
        octaves = octaves_below(self._largest_part(step.longest))
        counted = yield from self._residual_sizes(name, part, step, octaves)
        counts, edges, deviation = counted
        found = descent.size_of_share(counts, deviation, edges, share, self.n_people)
        return ClipState(float(edges[-1]) * _GUESSED if found is None else found, counted)

    def _largest_part(self, longest: float) -> float:
        """Return the largest size of a person's part of a step, where residuals are at most twice the outcomes."""
        return 2.0 * longest * self.mechanism.radii[1] * (self.mechanism.max_rows or 1)

    def _residual_sizes(
        self, name: str, part: Privacy, step: ResidualStep, octaves: tuple[int, int], *, of_first_rows: bool = False
    ) -> Generator[Query, Release, ResidualCounts]:
        """Count people by the size of their part of a sum, or of their first row's."""
        mechanism = NoisySum.of_counts(part, 1, octaves[1] - octaves[0] + 2, unit=self.mechanism._unit)
        statistic = partial(count_residuals, step=step, octaves=octaves, of_first_rows=of_first_rows)
        released = yield Query(name, mechanism, statistic)
        edges = np.exp2(np.minimum(np.arange(octaves[0], octaves[1] + 2), octaves[1]) / 2.0)
        return ResidualCounts(released.values["sum"][0], edges, mechanism.deviation)

    def _last(
        self, parts: Parts, found: descent.DescentResult, coordinates: Coordinates
    ) -> Generator[Query, Release, tuple[Level, Residuals | None]]:
        """Estimate the mean of residuals, and of their squares; in units except for the squares."""
        mechanism, own = self.mechanism, self.mechanism.units
        outcomes = mechanism.shape[1]
        level = found.theta[-1] if mechanism.fit_intercept else np.zeros(outcomes)
        level_variance = 0.0
        step = self._step_of_level(level, self._solved(found, coordinates), coordinates)
        assert parts.last_sizes is not None
        octaves = octaves_below(4.0 * mechanism.radii[1] * (mechanism.max_rows or 1))
        counts, edges, deviation = yield from self._residual_sizes(
            "sizes of last residuals", parts.last_sizes, step, octaves
        )
        # Zero is not a size.
        longest = upper_quantile_bin(counts[1:], deviation, share=_FEW, people=self.n_people, heavy=self._is_heavy)
        limit = float(edges[1 + longest.place]) if longest.is_certain else mechanism.radii[1]
        limit = min(limit, 2.0 * mechanism.radii[1] * (mechanism.max_rows or 1))
        if parts.mean_residual is not None:
            unit = NoisySum.calibrate(parts.mean_residual, 1.0, (1, outcomes), unit=mechanism._unit).deviation
            clip = max(limit, clip_of_mean(counts[1:], deviation, edges[1:], unit))
            clip = min(clip, 2.0 * mechanism.radii[1] * (mechanism.max_rows or 1))
            summed, noise = yield from self._sum_of_residuals(parts.mean_residual, step, clip)
            scale = self.rows * own.outcomes
            level = held(level + summed / scale, 4.0 * mechanism.radii[1] / own.outcomes)
            level_variance = (noise / scale) ** 2
        residuals = None
        if parts.squares is not None:
            limit = min(max(limit, 1e-49), 1e49)  # so that its square has a grid
            sums = NoisySum.calibrate(parts.squares, squares_bound(limit**2, step), (outcomes,))
            released = yield Query("squares of residuals", sums, partial(sum_squares, step=step, limit=limit), limit)
            # Residuals below the noise may be as large as it.
            squares = np.maximum(released.values["sum"], sums.deviation)
            whole = descent.unclipped(squares, self.rows, limit)
            mean = squares / max(self.rows - len(found.theta), 1.0)
            (seen,) = (counts > _SEEN * deviation).nonzero()
            last = min(int(seen[-1]) + _BINS_BEYOND if len(seen) else len(counts), len(counts) - 1)
            # Bins' upper ends make up for the people beyond.
            counted = float(counts[1 : last + 1] @ edges[1 : last + 1] ** 2) / self.rows
            error = np.minimum(whole.error * sums.deviation / squares, 1.0)
            residuals = Residuals(whole.square * mean, error, counted if counted > 0.0 else math.inf)
        return Level(level, level_variance), residuals

    def mean_outcome(self, name: str, part: Privacy) -> Generator[Query, Release, tuple[FloatArray, float]]:
        """Release the sum of outcomes; return their mean, and the deviation of its noise."""
        mechanism = self.mechanism
        sums = NoisySum.calibrate(part, mechanism._longest(1), mechanism.shape[1:], unit=mechanism._unit)
        released = yield Query(name, sums, partial(sum_outcomes, first=mechanism.sum_rows))
        return released.values["sum"] / self.rows, sums.deviation / self.rows

    def _step_of_level(self, level: FloatArray, solved: descent.Shrunk, coordinates: Coordinates) -> ResidualStep:
        """Return the definition of a sum of residuals alone, for coefficients and a level in units."""
        own = self.mechanism.units
        level_at_zero = (level - coordinates.center @ solved.coef) * own.outcomes
        coef = np.vstack([solved.coef * (own.outcomes / own.rows), level_at_zero])
        return self._step_of_constant(self._overflow_factor(coef) * coef)

    def _step_of_constant(self, coef: FloatArray) -> ResidualStep:
        """Return the definition of a sum of residuals alone, at coefficients with the constant last."""
        constant = np.zeros((1, len(coef)))
        constant[0, -1] = 1.0
        return ResidualStep(coef, self.mechanism.row_map, self.mechanism.outcome_map, constant, constant=True)

    def _sum_of_residuals(
        self, part: Privacy, step: ResidualStep, clip: float
    ) -> Generator[Query, Release, tuple[FloatArray, float]]:
        """Release the sum of residuals, clipped; return it, and the deviation of its noise."""
        mechanism = self.mechanism
        bound = residual_bound(clip, step, mechanism.max_rows)
        sums = NoisySum.calibrate(part, bound, (1, mechanism.shape[1]), unit=mechanism._unit)
        released = yield Query("last residuals", sums, partial(sum_residuals, step=step, clip=clip), clip)
        return released.values["sum"][0], sums.deviation

    def _usual_square(self, residual: float, coordinates: Coordinates) -> float:
        """Return the usual mean square of coefficients in units, for residuals of about this size."""
        usual = max(_USUAL * residual / (self.mechanism.units.outcomes * coordinates.radius), _SMALLEST_CLIP)
        return self.mechanism.shape[0] * usual * usual

    def _solved(self, found: descent.DescentResult, coordinates: Coordinates) -> descent.Shrunk:
        """Return coefficients of rows in units, shrunk or penalised."""
        mechanism, features = self.mechanism, self.mechanism.shape[0]
        back = coordinates.whitening.T
        coef = back @ found.theta[:features]
        covariance = back @ found.covariance[:features, :features] @ back.T
        xx = coordinates.of_features
        if mechanism.penalty is None:
            return descent.shrunk(coef, covariance, xx, self.likelihood_drop, found.usual)
        own, scale = mechanism.penalty, mechanism.row_map.scale
        penalty = mechanism.units.penalty(own if scale is None else own / scale**2)
        return descent.penalised(coef, covariance, xx, penalty)

    def _regression(
        self,
        solved: descent.Shrunk,
        level: Level,
        found: descent.DescentResult,
        coordinates: Coordinates,
        residuals: Residuals | None,
        n_steps: int,
    ) -> Regression:
        """Return the solution from the releases, for rows in their original units."""
        mechanism, own, features = self.mechanism, self.mechanism.units, self.mechanism.shape[0]
        row_map = mechanism.row_map
        scale = np.ones(features) if row_map.scale is None else row_map.scale
        back = coordinates.whitening.T
        bias = np.zeros((mechanism.shape[1], features, features))
        if level.bias is not None:
            bias = back @ level.bias[:, :features, :features] @ back.T
        variances = np.maximum(np.diag(solved.covariance) + np.einsum("lii->li", bias), 0.0)
        std = np.broadcast_to(np.sqrt(variances), (mechanism.shape[1], features))
        center = coordinates.center
        if row_map.center is not None:
            center = center + row_map.center / scale / own.rows
        intercept = level.mean - center @ solved.coef if mechanism.fit_intercept else np.zeros(mechanism.shape[1])
        solution = own.solution(RidgeSolution(solved.coef.T, intercept, std, solved.ridge))
        ridge = solution.ridge if mechanism.penalty is None else float(np.max(mechanism.penalty))
        solution = replace(solution, coef=solution.coef / scale, coef_std=solution.coef_std / scale, ridge=ridge)
        xx = coordinates.of_features
        variance = None if residuals is None else residuals.variance
        # Against X'X as released: errors for another spectrum would count with it, too large, in wide tables. Bias that
        # may be unseen is less than limits allow for.
        released = back @ (found.covariance + found.covariance_of_xx)[:features, :features] @ back.T
        expected_error = found.expected_error
        if expected_error is None:
            expected_error = descent.expected_error(
                solved.coef, released + np.mean(bias, axis=0) / 2.0, xx, self.shrunk_variance
            )
        expected_error = expected_error if self.n_people * mechanism.mu >= descent.FEW else 1.0
        # The progress of descent is unknown without X'X; beside weights the bias of clipping is without its release.
        if not coordinates.is_above_noise or (mechanism.has_constant and self.shares.excess == 0.0):
            unknown = np.full_like(solution.coef_std, np.nan)
            return Regression(replace(solution, coef_std=unknown), (), variance, n_steps, expected_error)
        # Few people may have residuals of a variance of their own.
        extra_variance = np.sqrt(1.0 + level.extra_variance * self._rareness(coordinates)[1])
        states = InferenceState(
            np.eye(features),
            extra_variance[:, None] * descent.inverse(xx) * extra_variance,
            solved.coef,
            solved.covariance[None],
            history=found.history,
            bias=bias,
            least_signal=self.rows / float(np.trace(xx)),
            n_rows=self.rows,
            residual_noise=0.0 if residuals is None else residuals.noise,
            hidden=coordinates.hidden if row_map.scale is None else None,
            # Not with weights: it was not judged there.
            squares=None if mechanism.has_constant else np.diag(xx),
            **self._inference_of_intercept(level, center, solved, found, coordinates),
            **own.of_inference(row_map.scale, features),
        )
        return Regression(solution, (states,), variance, n_steps, expected_error)

    def _about_means(self, coordinates: Coordinates) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Return sums of rows times columns about their means, squares of these, the means, and the number of people.

        If the last feature is a constant, means are in units of it, and so is the sum of weights in place of a number.
        """
        xx = coordinates.of_features
        if not self.mechanism.has_constant:
            return xx, np.diag(xx), coordinates.center, self.rows
        weights = float(xx[-1, -1])
        means = np.append(xx[:-1, -1] / weights, 0.0)
        squares = np.maximum(np.diag(xx) - weights * means**2, _SMALL * np.diag(xx))
        return xx - np.outer(xx[:, -1], means), squares, means, weights

    def _rareness(self, coordinates: Coordinates) -> tuple[FloatArray, FloatArray]:
        """Return which share of the people columns may be of, and how much: 1 where the others are at an end of it."""
        row_map, own = self.mechanism.row_map, self.mechanism.units.rows
        _, squares, means, weights = self._about_means(coordinates)
        if row_map.low is None or row_map.scale is None:
            return np.ones(len(means)), np.zeros(len(means))
        unit = 1.0 if self.mechanism.has_constant else own
        at_means = np.minimum((unit * means) ** 2, 1.0)
        spread = np.maximum(1.0 - at_means, 1.0 / self.rows)
        at_ends = np.minimum(squares * unit**2 / (weights * spread), 1.0)
        # Of an indicator, -1 or 1, that a share f has: the variance is 4 f (1 - f).
        return spread / 4.0, at_means * at_ends**2

    def _inference_of_intercept(
        self,
        level: Level,
        center: FloatArray,
        solved: descent.Shrunk,
        found: descent.DescentResult,
        coordinates: Coordinates,
    ) -> dict[str, Any]:
        """Return what `InferenceState` has of the intercept: that of the released center and level.

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

    def _overflow_factor(self, coef: FloatArray) -> float:
        """Return the part of coefficients (D, l) to use in sums of residuals, to prevent overflow: often 1."""
        radius, largest = self.mechanism.radii
        sizes = [*map(abs, coef.ravel().tolist())]
        last = len(sizes) - coef.shape[1]
        predicted = radius * sum(sizes[:last]) + sum(sizes[last:])
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
            sum_rows,
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
        basis = None if whitening is None else whitening.T / own
        center = moved if row_map.center is None else row_map.center + moved
        return RowMap(**vars(row_map) | {"center": center, "basis": basis})

    @property
    def _is_heavy(self) -> bool:
        return self.privacy.delta == 0.0

    def _parts(self, privacy: Privacy) -> Parts:
        """Split a budget: `Parts` has a guarantee where `Schedule` has a share."""
        own, several = self.shares, {"whitened_sizes": len(self.shares.powers), "sizes": self.shares.n_sizes}
        shares = {name: share for name in Parts._fields if (share := getattr(own, name)) > 0.0}
        counts = {name: several.get(name, 1) for name in shares}
        each = iter(split_budget(privacy, [share for name, share in shares.items() for _ in range(counts[name])]))
        found = {name: tuple(islice(each, count)) for name, count in counts.items()}
        parts: dict[str, Any] = {name: some if name in several else some[0] for name, some in found.items()}
        return Parts(**parts)


class NormCounts(NamedTuple):
    """Released counts of rows by length."""

    counts: FloatArray
    #: Standard deviation of the noise in each.
    deviation: float
    #: Upper ends of the bins.
    sizes: FloatArray
    #: Clip of rows.
    longest: float

    def times(self, unit: float) -> NormCounts:
        """Return the counts for rows this many times as long."""
        return self._replace(sizes=unit * self.sizes, longest=unit * self.longest)


class Parts(NamedTuple):
    """The budget, by release."""

    row_sizes: Privacy
    steps: Privacy
    means: Privacy | None = None
    moments: Privacy | None = None
    whitened_sizes: tuple[Privacy, ...] = ()
    whitened_moments: Privacy | None = None
    sizes: tuple[Privacy, ...] = ()
    last_sizes: Privacy | None = None
    mean_residual: Privacy | None = None
    squares: Privacy | None = None
    excess: Privacy | None = None


def _of_constant(coordinates: Coordinates) -> FloatArray:
    """Return where the coefficient of the last feature, a constant, is."""
    return np.asarray(descent.inverse(coordinates.whitening.T)[:, -1])


def _bins_below(largest: float) -> LogarithmicBins:
    """Return half-octaves up to a largest size, from far below it."""
    top = max(-799, min(math.ceil(2.0 * math.log2(largest)), 800))
    return LogarithmicBins(max(top - _TOLD_APART, -800), top)


def clip_of_mean(counts: FloatArray, deviation: float, sizes: FloatArray, unit: float) -> float:
    """Return the clip of a mean whose noise, so many units of it, and bias are the least by counts of sizes.

    People may be in a bin as far as they exceed the deviation of its noise.
    """
    seen = np.maximum(counts - _COUNTED * deviation, 0.0)
    bias = seen @ np.maximum(sizes[:, None] - sizes, 0.0)
    return float(sizes[np.argmin((unit * sizes) ** 2 + bias**2)])


def octaves_below(largest: float) -> tuple[int, int]:
    """Return the first and the last of the half-octaves in which sizes are counted."""
    last = max(-500, min(math.ceil(2.0 * math.log2(largest)), 500))
    return last - _TOLD_APART, last


def number_of_rows(name: str, privacy: Privacy, share: float) -> Generator[Query, Release, tuple[float, Privacy]]:
    """Release the number of rows of sums for a share of a budget; return it, and the rest of the budget."""
    part, left = split_budget(privacy, [share, 1.0 - share])
    counts = NoisySum.calibrate(part, 1.0, ())
    released = yield Query(name, counts, lambda exact: FixedPoint.from_integers(exact.n_rows, 0))
    return max(float(released.values["sum"]), 1.0), left
