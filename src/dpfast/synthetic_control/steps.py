"""The releases of a fit in their order: range and lengths of donors, mean path, moments, and errors of prediction.

*The range* of outcomes, if it is to be found: noisy counts of donors by their largest and their least outcome, once in
each of the two histograms. Missing entries are skipped; a donor without any entry counts at 0. The result is used like
a declared range. About 1% of the donors are beyond it at either end.

All but the moments are options. A step depends only on public numbers and on the releases of earlier steps. Each takes
a part of the budget that remains (`dpfast.privacy.split_budget`): squares of mu never add up to more than the
whole's, nor epsilons if delta is 0. So the steps compose although shares are chosen along the way
(dpfast.privacy.composition has the proof). The releases determine how each step was made.

*Number.* If the number of donors is private, donors are counted first, and every rule uses the released count.

*Lengths.* A donor counts once, by the norm of its whole row. The estimate is the median norm. If the counts are too
noisy for it, the bound is the largest norm that the declared range allows. Rows about the mean path are counted in the
same way. Last, the rows to be summed are counted twice: by the norm of the part before the intervention, and of the
part after it. A replaced donor leaves a bin of each histogram and enters another. Bins are public once the centre is
released.

*The mean path.* A donor's mapped outcomes, a row of T entries, are clipped to the norm found: the sum moves by twice
that norm. If no norm was found, rows are summed about the middle c of the range. There entries lie in [-h, h], so norms
are at most h sqrt(T). Missing entries count as 0, or as c.

*Errors.* Each donor counts once, by the ratio of its prediction errors after the intervention to those before it.
Predictions use the released moments. The ratio is computed from the donor's outcomes and released values alone, in one
order of operations, as all products of rows are. A target's rank among them is an in-space placebo test (Abadie,
Diamond and Hainmueller 2010, "Synthetic control methods for comparative case studies", Journal of the American
Statistical Association 105, section 3.5).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import ndtri

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.estimator.plan import Plan, least
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.noise import BitSource, SeededSource
from dpfast.privacy import Privacy, split_budget
from dpfast.privacy.guarantee import remembered
from dpfast.releases.mechanism import Mechanism, NoisySum, Query, Stages, answered
from dpfast.releases.size_counts import NoisySizes
from dpfast.solvers.ridge import DenoisedMoments, coefficients_of_moments, components_beyond
from dpfast.statistics import gram, rounded_bound
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.synthetic_control.donor_weights import DonorMechanism
from dpfast.synthetic_control.mechanism import CrossSection, DonorRows, lengths_of, sum_donors

#: Number of donors, where it is private: its share of mu squared, and where delta is 0 of epsilon.
_COUNT = (0.01, 0.05)
# Half-octaves below the largest norm of a row: a norm a millionth as large is in the last.
_HALF_OCTAVES = 40
#: Norms this many half-octaves from their median are distinguished from it: a count of donors sums as many bins.
_BINS_SUMMED = 6.0
#: Half of the donors are this many standard deviations of such a count.
_CLEAR = 4.0
#: Half of the donors may be longer than norms up to so many donors per deviation of a count of them. Where there are
#: more, noise is less and fewer are clipped, as the root of that number grows, down to a twentieth.
_MANY, _LONGER, _FEWEST = 500.0, 0.5, 0.05
#: Least share of a step; the largest of the first counts of lengths; and of later ones, which are left out beyond it.
_LEAST, _MOST_COUNTS, _MOST_LATER = 0.01, 0.3, 0.1
#: Noise in the mean path that is aimed at, over the length of donors, the largest share for it, and the noise that is
#: too much: then there is no mean path.
_PATH_NOISE, _MOST_PATH, _TOO_NOISY = 0.05, 0.2, 0.35
#: Donors are summed about their mean path if the length about it is at most so much of that about the middle.
_SHORTER = 0.5
#: A part's length over the whole's, as far as that would be even, where parts were not counted.
_PART_PRE, _PART_POST = 1.1, 1.3

#: Bins of squared ratios, and so quarters of octaves of ratios, from 1/16 to 1,024: many where little noise and a small
#: ridge leave little error before the intervention.
RATIOS = LogarithmicBins(-16, 40)
_RATIO_ENDS = np.sqrt([RATIOS.size(code) for code in range(RATIOS.largest_code)])
_LARGEST_RATIO = 2.0**40

# Fits that are simulated for a plan, and the most of the outcomes' mean square that is taken to be noise.
_DRAWS, _MOST_NOISE = 12, 0.75
#: Squared error from which predictions are taken to be nothing but noise.
_NOTHING = 0.98
_MEAN_PATH = "mean path of donors"

Bounds = tuple[float, float]
Summed = TypeVar("Summed")


class ErrorCounts(NamedTuple):
    """Donors by their ratio of errors, as released: counts may be negative."""

    #: From the least ratios; the last bin has no end.
    counts: FloatArray
    #: Standard deviation of the noise in one.
    deviation: float

    @property
    def ends(self) -> FloatArray:
        """Upper ends of the bins but the last."""
        return _RATIO_ENDS

    def tail(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Count donors whose ratio is no less, bins as a whole; with the counts' standard deviation."""
        first = np.minimum(np.searchsorted(_RATIO_ENDS, ratios, side="left"), len(self.counts) - 1)
        beyond = np.cumsum(self.counts[::-1])[::-1][first]
        return beyond, self.deviation * np.sqrt(len(self.counts) - first)


class SeriesErrors(NamedTuple):
    """Errors of the predictions of series by the coefficients."""

    rows: DonorRows
    coef: FloatArray
    pre_coef: FloatArray

    def ratios(self, series: FloatArray) -> FloatArray:
        """Return root mean squared errors of series after the intervention over those before it, each from its own.

        Series are in input units; they count as clipped to the declared range. Errors of predictors do not count.
        """
        rows, n_pre, n_predictors = self.rows, self.rows.n_pre, self.rows.n_predictors
        residuals = np.eye(n_pre + rows.n_post)
        residuals[:n_pre] -= np.hstack([self.pre_coef.T, self.coef.T])
        errors = rows.mapped(np.ascontiguousarray(series), rows.path, basis=residuals)
        before, after = lengths_of(errors[:, n_predictors:n_pre]), lengths_of(errors[:, n_pre:])
        scaled = np.divide(after, before, out=np.full(len(errors), _LARGEST_RATIO), where=before > 0.0)
        scaled[(before == 0.0) & (after == 0.0)] = 1.0
        return np.asarray(np.minimum(scaled * math.sqrt((n_pre - n_predictors) / rows.n_post), _LARGEST_RATIO))


class Solution(NamedTuple):
    """The coefficients of the prediction, computed from releases."""

    section: CrossSection
    #: As released.
    values: Mapping[str, FloatArray]
    #: X'X and X'X_post about the path that predictions shrink towards.
    xx: FloatArray
    xy: FloatArray
    #: Of donors, as it is public or was released; at least 1.
    number: float
    ridge: float
    n_components: int | None
    coef: FloatArray
    pre_coef: FloatArray
    errors: ErrorCounts | None = None
    #: Standard deviation of the noise in their number; 0 where it is public.
    number_deviation: float = 0.0

    @property
    def rows(self) -> DonorRows:
        """How donors were summed."""
        return self.section.rows

    @property
    def floor(self) -> float:
        """Least that an eigenvalue of X'X counts for."""
        return self.section.floor

    @property
    def error(self) -> float:
        """The root mean squared error that is to be expected of a prediction, relative to the signal, from releases.

        For a target like the donors: of X'X below the noise, by its trace, a part is missed.
        """
        seen = DenoisedMoments.of(self.xx, self.section.off_diagonal).values
        hidden = max(float(np.trace(self.xx)) - float(np.sum(seen)), 0.0)
        missed = self.section.expected_error(seen, self.ridge, hidden)
        path = self.rows.path[: self.rows.n_pre]
        differing = self.rows.bound_pre**2
        return missed * math.sqrt(differing / (differing + float(path @ path)))

    @property
    def errors_of_series(self) -> SeriesErrors:
        """Errors of the predictions of series."""
        return SeriesErrors(self.rows, self.coef, self.pre_coef)


class Donors(NamedTuple):
    """The data owner's panel in input units, and the threads that go through it."""

    panel: FloatArray | io.Partitions
    n_threads: int | None = None

    def summed(self, function: Callable[..., Summed], **options: Any) -> Summed:
        """Add up a function of donors over the parts of the panel, each with one thread."""
        n_threads = (self.n_threads or 1) if isinstance(self.panel, io.Partitions) else self.n_threads
        return io.sum_over(self.panel, partial(function, n_threads=n_threads, **options))


class _Budget:
    """The remaining budget as parts of it are taken; shares are of the whole and may depend on releases."""

    def __init__(self, privacy: Privacy) -> None:
        self.whole = self.left = privacy
        self._share = 1.0

    @property
    def is_pure(self) -> bool:
        """Whether shares are of epsilon, and not of mu squared."""
        return self.whole.delta == 0.0

    @property
    def unit(self) -> float:
        """Standard deviation of the noise in a sum of numbers up to 1 that had the whole."""
        return NoisySum.calibrate(self.whole, 1.0, (1,)).deviation

    def take(self, share: float) -> Privacy:
        """Take a share of the whole."""
        part, self.left = split_budget(self.left, [share, self._share - share])
        self._share -= share
        return part

    def needed(self, deviation: float, wanted: float) -> float:
        """Return the budget share for a wanted standard deviation, given the deviation at the whole budget."""
        ratio = deviation / wanted
        return ratio if self.is_pure else ratio * ratio

    def of_counts(self, n: float, histograms: int, clear: float) -> float:
        """Return the share at which half of n donors are this many deviations of the noise in a few bins."""
        noise = NoisySum.of_counts(self.whole, histograms, 2 * _HALF_OCTAVES + 1)
        return self.needed(noise.deviation, 0.5 * n / (clear * math.sqrt(_BINS_SUMMED)))


@dataclass(frozen=True)
class DonorSteps(Mechanism[Solution]):
    """The mechanism of a fit: all its releases, calibrated together."""

    privacy: Privacy
    #: As is public before anything is released: without a centre, without bounds.
    rows: DonorRows
    #: A public path in mapped units; the donors' mean; or the mean only if releases show that it pays.
    center: FloatArray | Literal["private", "auto"] | None
    #: Norms to clip rows to, before and after the intervention; None for the largest that the range allows.
    row_bound: Bounds | Literal["private"] | None
    #: Where it is public.
    n_donors: int | None
    #: Whether moments are brought back from the centre to the origin, where it must not be shrunk towards.
    restored: bool = False
    #: The paper's lambda, and the number of eigenvalues kept; donors' errors are computed with them, too.
    ridge: float | Literal["auto"] = "auto"
    n_components: int | Literal["noise"] | None = None
    #: Part of the budget that the errors of donors' predictions have.
    placebo_share: float | None = None

    @property
    def scales(self) -> Mapping[str, float]:
        """Of moments that had the whole budget."""
        return self.declared.scales

    @property
    def declared(self) -> CrossSection:
        """The moments' mechanism at the whole budget, of rows as declared: as long as the range allows, else."""
        bounds = None if isinstance(self.row_bound, str) else self.row_bound
        return CrossSection.calibrate(
            self.privacy, *self.rows.ways(self._public_center, bounds, restored=self.restored)
        )

    @property
    def _public_center(self) -> FloatArray | None:
        return None if isinstance(self.center, str) else self.center

    @property
    def _middle(self) -> FloatArray:
        """The public centre; without one the origin of mapped units."""
        return np.zeros(self.rows.n_pre + self.rows.n_post) if isinstance(self.center, str | None) else self.center

    @property
    def _parts(self) -> tuple[Privacy, Privacy | None]:
        """Budget of all releases but the last, and of the last."""
        if self.placebo_share is None:
            return self.privacy, None
        first, last = split_budget(self.privacy, [1.0 - self.placebo_share, self.placebo_share])
        return first, last

    def stages(self) -> Stages[Solution]:
        """Ask for one release after the other."""
        first, last = self._parts
        n, section = yield from self._learned(_Budget(first))
        moments = partial(Donors.summed, function=sum_donors, rows=section.rows)
        name = "moments of donors before and across the intervention"
        values = (yield Query(name, section, moments)).values
        if last is None:
            return partial(self._solution, section, values, n)
        errors_of_series = self._solution(section, values, n).errors_of_series
        counts = partial(Donors.summed, function=count_ratios, errors=errors_of_series)
        noise = NoisySum.of_counts(last, 1, RATIOS.n_bins)
        counted = yield Query("errors of donors' predictions", noise, counts)
        errors = ErrorCounts(counted.values["sum"][0, RATIOS.largest_code :], noise.deviation)
        return partial(self._solution, section, values, n, errors)

    def _learned(self, budget: _Budget) -> Generator[Query, Release, tuple[float, CrossSection]]:
        """Release the number of donors and their norms; choose the moments' mechanism."""
        n = yield from self._counted(budget)
        center, bounds = self._public_center, self.row_bound
        if isinstance(bounds, str):
            center, bounds = yield from self._lengths(budget, n, center)
        elif isinstance(self.center, str) and self.center == "private":
            center = yield from self._path(budget, n, None)
        ways = self.rows.ways(center, bounds, restored=self.restored)
        return n, CrossSection.calibrate(budget.left, *ways)

    def _noise_of_number(self, budget: _Budget) -> NoisySum:
        return NoisySum.calibrate(budget.take(_COUNT[budget.is_pure]), 1.0, (1,))

    def _counted(self, budget: _Budget) -> Generator[Query, Release, float]:
        """Return the number of donors; if it is private and needed, the released count."""
        if self.n_donors is not None:
            return max(float(self.n_donors), 1.0)
        if not (isinstance(self.row_bound, str) or isinstance(self.center, str) or self.placebo_share is not None):
            return 1.0
        noise = self._noise_of_number(budget)
        released = yield Query("number of donors", noise, partial(Donors.summed, function=count_donors))
        # Fewer than noise hides may be many.
        return max(float(released.values["sum"][0]), noise.deviation, 1.0)

    def _lengths(
        self, budget: _Budget, n: float, center: FloatArray | None
    ) -> Generator[Query, Release, tuple[FloatArray | None, Bounds | None]]:
        """Find the centre of rows and the norms to clip them to; None if too uncertain."""
        share = min(max(budget.of_counts(n, 1, _CLEAR), _LEAST), _MOST_COUNTS)
        length = yield from self._length(budget.take(share), n, center, "lengths of donors")
        if isinstance(self.center, str):
            path = yield from self._path(budget, n, length)
            if path is not None:
                center, length = yield from self._about(budget, n, path, length)
        if length is None:
            return center, None
        bounds = yield from self._part_lengths(budget, n, center)
        pre, post = self.rows.n_pre, self.rows.n_post
        even = math.sqrt(pre / (pre + post)), math.sqrt(post / (pre + post))
        return center, bounds or (min(1.0, _PART_PRE * even[0]) * length, min(1.0, _PART_POST * even[1]) * length)

    def _about(
        self, budget: _Budget, n: float, path: FloatArray, length: float | None
    ) -> Generator[Query, Release, tuple[FloatArray | None, float | None]]:
        """Decide by a release whether to sum donors about their mean path, if near enough; find their norm there."""
        share = budget.of_counts(n, 1, _CLEAR)
        about = None
        if share <= _MOST_LATER:
            part = budget.take(max(share, _LEAST))
            about = yield from self._length(part, n, path, "lengths of donors about their mean path")
        if self.center == "private":
            return path, about
        is_shorter = about is not None and length is not None and about <= _SHORTER * length
        return (path, about) if is_shorter else (None, length)

    def _length(
        self, part: Privacy, n: float, center: FloatArray | None, name: str
    ) -> Generator[Query, Release, float | None]:
        """Find the norm of rows about a centre, if the counts are certain."""
        bins = length_bins(self.rows.ways(center, None)[0])
        noise = NoisySum.of_counts(part, 1, bins.n_bins)
        counts = partial(Donors.summed, function=count_lengths, rows=self.rows, center=center, bins=bins)
        counted = yield Query(name, noise, counts)
        return typical_length(counted.values["sum"][0], bins, n, noise.deviation)

    def _part_lengths(
        self, budget: _Budget, n: float, center: FloatArray | None
    ) -> Generator[Query, Release, Bounds | None]:
        """Find the norms of the parts before and after the intervention, if this is cheap and certain."""
        share = budget.of_counts(n, 2, _CLEAR)
        if share > _MOST_LATER:
            return None
        rows = self.rows.ways(center, None)[0]
        bins = length_bins(rows)
        noise = NoisySum.of_counts(budget.take(max(share, _LEAST)), 2, bins.n_bins)
        counts = partial(Donors.summed, function=count_part_lengths, rows=rows, bins=bins)
        counted = yield Query("lengths of donors before and after the intervention", noise, counts)
        few = max(_LONGER * math.sqrt(min(1.0, _MANY * budget.unit / n)), _FEWEST)
        pre, post = (typical_length(one, bins, n, noise.deviation, few) for one in counted.values["sum"])
        return None if pre is None or post is None else (pre, post)

    def _path(self, budget: _Budget, n: float, length: float | None) -> Generator[Query, Release, FloatArray | None]:
        """Release the donors' mean path, if it is requested or, with a certain norm of donors, cheap."""
        periods = self.rows.n_pre + self.rows.n_post
        middle = (self.rows.least + 1.0) / 2.0
        farthest = (1.0 - middle) * math.sqrt(periods)
        # About the origin if donors' norms are known to be small; else about the middle, with the range's largest norm.
        origin = 0.0 if length is not None and length < farthest else middle
        bound = min(farthest, length or math.inf)
        each = NoisySum.calibrate(budget.whole, rounded_bound(bound, periods), (periods,)).deviation
        noisy = each * math.sqrt(periods) / (n * bound)
        share = min(max(budget.needed(noisy, _PATH_NOISE), _LEAST), _MOST_PATH)
        if self.center == "auto":
            # Whether it is used depends on a length about it.
            is_told = length is not None and budget.of_counts(n, 1, _CLEAR) <= _MOST_LATER
            if not is_told or budget.needed(noisy, _TOO_NOISY) > share:
                return None
        noise = NoisySum.calibrate(budget.take(share), rounded_bound(bound, periods), (periods,))
        paths = partial(Donors.summed, function=sum_paths, rows=self.rows, origin=origin, bound=bound)
        summed = yield Query(_MEAN_PATH, noise, paths)
        # Where nothing is observed an entry is the origin's.
        mean = summed.values["sum"] / (n * self.rows.rate)
        variance = (noise.deviation / (n * self.rows.rate)) ** 2
        # James and Stein's estimate, its positive part, about the origin: no worse than the mean itself, and the origin
        # where the mean is nothing but noise.
        squared = float(np.sum(mean**2))
        kept = max(0.0, 1.0 - (periods - 2) * variance / squared) if squared > 0.0 else 0.0
        return np.asarray(np.clip(origin + kept * mean, self.rows.least, 1.0))

    def _solution(
        self, section: CrossSection, values: Mapping[str, FloatArray], n: float, errors: ErrorCounts | None = None
    ) -> Solution:
        xx, xy = section.moments(values, self.n_donors)
        ridge, keep, coef = self._coefficients(section, xx, xy)
        noise = 0.0 if self.n_donors is not None else self._noise_of_number(_Budget(self._parts[0])).deviation
        return Solution(section, values, xx, xy, n, ridge, keep, coef["coef_"], coef["pre_coef_"], errors, noise)

    def _coefficients(
        self, section: CrossSection, xx: FloatArray, xy: FloatArray
    ) -> tuple[float, int | None, dict[str, Any]]:
        """Return the ridge, the number of eigenvalues kept, and the coefficients."""
        floor, ridge = section.floor, section.rows.penalty(self.ridge)
        keep = components_beyond(xx, floor) if isinstance(self.n_components, str) else self.n_components
        return ridge, keep, coefficients_of_moments(xx, xy, section.rows.basis, ridge, floor, keep)

    def planned(self, n: int, alike: FloatArray, draws: int = _DRAWS) -> tuple[CrossSection, float]:
        """Return the moments' mechanism, and the error of a prediction, for `n` donors like these public ones.

        The steps are answered for a panel of them some times, each with noise of its own, always the same. The error
        is what predictions for these series, not clipped, are off by, in squares more than the best linear ones are. Of
        several draws the worst does not count: rare counts that mislead would decide. The error is relative to the root
        of the series' mean square about the public centre, without what no other period tells. Without draws, as in a
        fit, which draws no noise but what it releases, answers have none, and that in moments counts by its cost.
        """
        rows, times = self.rows, n / len(alike)
        series = (alike - rows.offset) / rows.half_width
        features, outcomes = rows.coordinates(series[:, : rows.n_pre]), series[:, rows.n_pre :]
        about = features - features.mean(axis=0), outcomes - outcomes.mean(axis=0)
        solved, _, rank, _ = np.linalg.lstsq(*about, rcond=_COLLINEAR)
        left = float(np.sum((about[1] - about[0] @ solved) ** 2)) / outcomes.shape[1]
        best = left / max(len(alike) - 1 - int(rank), 1)
        squares = []
        for draw in range(max(draws, 1)):
            source = SeededSource(0).bound("plan", draw) if draws else None
            section = self._answered(alike, times, source)
            sums, rows = sum_donors(alike, section.rows, 1), section.rows
            blocks = {"xx": sums.xx, "xy": sums.xy}
            if sums.exact_x_sum is not None and sums.exact_y_sum is not None:
                blocks |= {"x": sums.exact_x_sum.to_float64(), "y": sums.exact_y_sum.to_float64()}
            xx, xy = (times * one for one in replace(rows, observation_rate=None).about_path(blocks, len(alike)))
            values, vectors = np.linalg.eigh(xx)
            values, path, ridge = np.maximum(values, 0.0), rows.path, rows.penalty(self.ridge)
            counted = np.maximum(values + ridge / 2.0, section.floor)
            before = series[:, : rows.n_pre] - path[: rows.n_pre]
            if source is None:
                along = rows.coordinates(before) @ vectors / counted
                predicted = along @ (vectors.T @ xy)
                cost = section.cost / (rows.n_pre * rows.rate**4) * float(np.mean(np.sum(along**2, axis=1)))
            else:
                (own_xx,), (own_xy,) = section.noise_alone(1, source)
                predicted = before @ self._coefficients(section, xx + own_xx, xy + own_xy)[2]["coef_"].T
                cost = 0.0
            missed = np.clip(predicted + path[rows.n_pre :], rows.least, 1.0) - outcomes
            # Fitted to few series, predictions seem better than they are, by the directions that they fit.
            fitted = values / counted
            without = best * (1.0 - float(np.sum(2.0 * fitted - fitted**2)) / len(alike))
            squares.append(float(np.mean(missed**2)) + cost - without)
        signal = float(np.mean((series - self._middle)[:, rows.n_pre :] ** 2))
        signal -= min(float(np.mean(unexplained_variance(series)[rows.n_pre :])), _MOST_NOISE * signal)
        usual = sorted(squares)[: max(draws - 1, 1)]
        squared = float(np.mean(usual)) / max(signal, sys.float_info.min)
        # A few draws do not tell errors near 1 apart.
        return section, 1.0 if squared > _NOTHING else math.sqrt(max(squared, 0.0))

    def _answered(self, alike: FloatArray, times: float, source: BitSource | None) -> CrossSection:
        """Return the moments' mechanism for so many times these public donors.

        Counts have simulated noise. Without a source answers have none, but the mean path has noise of its usual size.
        """

        def answer(query: Query) -> Release:
            exact, law = query.statistic(Donors(alike, 1)), query.mechanism
            found = times * exact.to_float64()
            if source is not None:
                found += law.release(FixedPoint.zeros(exact.shape, 0), source, query.name).values["sum"]
            elif query.name == _MEAN_PATH:
                found += law.scales["sum"] * (-1.0) ** np.arange(found.size)
            return Release(query.name, "no", law.privacy, {"sum": found}, law.scales)

        return answered(self._learned(_Budget(self._parts[0])), answer)[1]

    def guessed(self, spread: float, variation: float, decay: float) -> FloatArray:
        """Return made-up donors of the mean square `spread` about the public centre, for a plan.

        They differ from their mean path by a part `variation` of their size. Of its square a twentieth is noise, if the
        decay is finite. The rest is in the directions of cosines of longer to shorter periods, of squares that fall
        like 1/k^decay.
        """
        rows, periods, center = self.rows, self.rows.n_pre + self.rows.n_post, self._middle
        # On the side where there is room.
        middle = (rows.least + 1.0) / 2.0
        side = np.where((center <= middle) | (center == 0.0), 1.0, -1.0)
        order = np.arange(periods)
        cosines = np.cos(math.pi / periods * np.multiply.outer(order, order + 0.5))
        squares, noise = (order + 1.0) ** -decay, _NOISE if math.isfinite(decay) else 0.0
        squares = (1.0 - noise) * squares / np.sum(squares) + noise / periods
        cosines *= np.sqrt(np.where(order == 0, 1.0, 2.0) * squares)[:, None]
        scores = _few_scores(periods) if periods <= _FEW_PERIODS else _scores(periods)
        own = scores @ cosines
        own *= variation / math.sqrt(float(np.mean(own**2)))
        paths = math.sqrt(max(1.0 - variation**2, 0.0)) + own
        made = np.clip(center + math.sqrt(spread) * side * paths, rows.least, 1.0)
        return np.asarray(rows.offset + rows.half_width * made)


def usual_error(steps: DonorSteps) -> float:
    """Return the error to expect for usual donors, of whom the number is public: once for the same numbers."""
    given = *vars(steps).values(), steps.rows.basis
    return (_usual_error if any(isinstance(one, list | np.ndarray) for one in given) else _known_error)(steps)


def _usual_error(steps: DonorSteps) -> float:
    assert steps.n_donors is not None
    with single_threaded_blas():
        return steps.planned(steps.n_donors, steps.guessed(SPREAD, VARIATION, DECAY), draws=0)[1]


_known_error = remembered(_usual_error)


def _scores(periods: int) -> FloatArray:
    """Return uncorrelated numbers, orthonormal columns, one for each period."""
    # Normal, as multiples of such powers of two are even over the unit cube.
    multiples = np.arange(max(_MADE_UP, 4 * periods)) + 0.5
    normal = ndtri(np.multiply.outer(multiples, 2.0 ** (np.arange(1.0, periods + 1.0) / (periods + 1.0))) % 1.0)
    scores = np.linalg.qr(normal - normal.mean(axis=0))[0]
    scores.setflags(write=False)
    return scores


_few_scores = lru_cache(maxsize=8)(_scores)


def unexplained_variance(series: FloatArray) -> FloatArray:
    """Return the variance in each period of what no other period tells: 0 where periods are collinear."""
    degrees = len(series) - series.shape[1]
    _, sizes, paths = np.linalg.svd(series - series.mean(axis=0), full_matrices=False)
    if degrees < 1 or sizes[-1] <= _COLLINEAR * sizes[0]:
        return np.zeros(series.shape[1])
    return np.asarray(1.0 / np.sum((paths / sizes[:, None]) ** 2, axis=0) / degrees)


def count_donors(donors: FloatArray, n_threads: int | None = None) -> FixedPoint:
    """Count donors: the data owner's."""
    return FixedPoint.from_integers([len(donors)], 0)


def sum_paths(donors: FloatArray, rows: DonorRows, origin: float, bound: float, n_threads: int | None) -> FixedPoint:
    """Sum donors' mapped outcomes about an origin, clipped to a norm: the data owner's."""
    mapped = rows.mapped(donors, np.full(donors.shape[1], origin))
    total = gram(mapped, bound_x=bound, sums=True, n_threads=n_threads).exact_x_sum
    assert total is not None
    return total


def count_ratios(donors: FloatArray, errors: SeriesErrors, n_threads: int | None) -> FixedPoint:
    """Count donors by their ratio of errors: the data owner's."""
    ratios = np.square(errors.ratios(donors))[:, None]
    return size_counts(io.open_table(ratios, None), NormHistograms(rows=True, bins=RATIOS), n_threads=n_threads)


def length_bins(rows: DonorRows) -> LogarithmicBins:
    """Return the bins for norms of rows, from the largest possible norm down."""
    last = math.ceil(2.0 * math.log2(math.hypot(rows.bound_pre, rows.bound_post)))
    return LogarithmicBins(last - _HALF_OCTAVES, last)


def count_lengths(
    donors: FloatArray, rows: DonorRows, center: FloatArray | None, bins: LogarithmicBins, n_threads: int | None
) -> FixedPoint:
    """Count donors by the lengths of their rows of all periods: the data owner's."""
    table = io.open_table(rows.mapped(donors, center), None)
    return size_counts(table, NormHistograms(rows=True, bins=bins), n_threads=n_threads)


def count_part_lengths(donors: FloatArray, rows: DonorRows, bins: LogarithmicBins, n_threads: int | None) -> FixedPoint:
    """Count donors by the lengths of their rows before and after the intervention: the data owner's."""
    lengths = NormHistograms(rows=True, outcomes=True, bins=bins)
    return size_counts(io.open_table(*rows.pre_and_post(donors)), lengths, n_threads=n_threads)


def typical_length(
    counts: FloatArray, bins: LogarithmicBins, n: float, deviation: float, few: float = 0.5
) -> float | None:
    """Return the smallest upper edge of a bin that at most a share `few` of `n` rows exceed.

    None if noisy counts leave it uncertain: if rows of norms near it, three half-octaves either way, are not more than
    two standard deviations of their count, and a sixth more for every bin above these; or if rows are in the smallest
    bin, which has no scale. Where nearly that many rows are longer and the others are zero, noise in the empty bins
    between makes up the difference at any norm.

    Rows beyond it are clipped to it, by one factor before and after the intervention. This keeps the relation of the
    two parts and lowers the noise. Norms exceeded by 1, 10, 25, 50 and 70% of rows were compared on panels of 300 to
    10,000 donors, with equal and with lognormal sizes, and one or three factors. That of 50% was nearest to the best in
    hindsight; a smaller share is better if noise is so small that the bias of clipping is larger.
    """
    longer = np.cumsum(counts[: bins.largest_code - 1 : -1])
    # The first size that more pass: later ones are read through the noise of more bins.
    passed = np.flatnonzero(longer > few * n)
    if not len(passed) or passed[0] == bins.largest_code:
        return None
    lower, upper = min(int(passed[0]) + 2, bins.largest_code - 1), max(int(passed[0]) - 4, -1)
    near = longer[lower] - (longer[upper] if upper >= 0 else 0.0)
    is_certain = near > (2.0 + (upper + 1.0) / 6.0) * deviation * math.sqrt(lower - upper)
    return bins.size(bins.largest_code - int(passed[0])) if is_certain else None


#: What a range is found by.
RANGE_SIZES = NormHistograms(entries=True)


def range_counts(donors: FloatArray, n_predictors: int = 0, n_threads: int | None = None) -> FixedPoint:
    """Count donors by their largest outcome, and by their least, after predictors: the data owner's."""
    outcomes = donors[:, n_predictors:]
    extremes = np.column_stack([np.fmax.reduce(outcomes, axis=1), np.fmin.reduce(outcomes, axis=1)])
    return size_counts(io.open_table(np.nan_to_num(extremes, nan=0.0)), RANGE_SIZES, n_threads=n_threads)


def range_found(
    mechanism: NoisySizes, release: Release, n_donors: int | None, *, nonnegative: bool
) -> tuple[float, float, bool]:
    """Return the ends of the range, and whether both are certain; the number of donors where it is public."""
    found = mechanism.found(release, n_donors, nonnegative=nonnegative)
    box = found.usable_box
    assert box is not None
    lows, highs = box
    if not found.are_certain:
        return float(lows.min()), float(highs.max()), False
    # Noise may have the largest outcomes below the least ones.
    low, high = min(lows[1], highs[0]), max(lows[1], highs[0])
    return float(low), float(max(high, low + highs[1] - lows[1])), True


#: Reference of the relative errors of a plan.
SIGNAL = "the signal's root mean square"
#: Mean square of mapped outcomes that is assumed where nothing is known: as of outcomes around half their bound.
SPREAD = 0.25
#: Assumed size of donors' differences from their mean path, as a fraction of their size.
VARIATION = 0.3
#: Assumed power by which the squares of these fall over directions, but for the part of them that is noise: of powers
#: of 2, 3 and 4 and parts of 0, 2, 5 and 10% those that came nearest to measured errors on five kinds of panels.
DECAY, _NOISE = 4.0, 0.05
# Donors that are made up at least, and the part of the largest singular value at which paths are taken to be collinear.
_MADE_UP, _COLLINEAR = 240, 1e-4
# Of so many periods numbers for made-up donors are kept: 128 KiB.
_FEW_PERIODS = 64


def error_of_weights(mechanism: DonorMechanism, spread: float = SPREAD) -> float:
    """Return the same for released weights; their noise does not fall with more donors."""
    return mechanism.noise_scales.expected_error / math.sqrt(spread)


def planned_with_moments(calibrated: Callable[[int], DonorSteps], n: int, target: float, alike: FloatArray) -> Plan:
    """Plan for noise in moments, of donors like public ones: its effect falls with more donors."""
    section, error = calibrated(n).planned(n, alike)
    needed = least(lambda count: calibrated(count).planned(count, alike)[1] <= target)
    return Plan(n, min(error, 1.0), target, needed, section.scales, SIGNAL)


def planned_with_weights(calibrated: Callable[[int], DonorMechanism], n: int, target: float, spread: float) -> Plan:
    """Plan for noise on weights. More donors mean more weights, so the error does not fall with them."""
    mechanism = calibrated(n)
    needed = 1 if error_of_weights(calibrated(1), spread) <= target else None
    return Plan(n, min(error_of_weights(mechanism, spread), 1.0), target, needed, mechanism.scales, SIGNAL)
