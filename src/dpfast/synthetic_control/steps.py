"""The releases of a fit in their order: donors' mean path, lengths of their rows, moments, and errors of prediction.

All but the moments are options. They share one joint calibration (`dpfast.privacy.parts_of`), and what a step does
depends on public numbers and on what the steps before it released, nothing else: so they compose, and anybody can
compute from the releases how each was made.

*The mean path.* A donor's mapped outcomes, less the middle c of the range, lie in [-h, h] and are rounded on a grid
whose unit divides h, so that they stay there: all T of them are a vector of length h sqrt(T) at most. Under add/remove
the donor itself is counted too, w times: sqrt(h^2 T + w^2). An error in the count moves the mean by so much of its own
length, at most h sqrt(T): w^2 = h^2 sqrt(T) is the best for the sum of both errors then. What is missing counts as c.

*Lengths.* A donor counts once by the length of its row before the intervention and once by that after it, whatever
either is: a replaced one leaves two bins and enters two. The bins are public once the centre is released.

*Errors.* How far each donor's own outcomes are from what the released moments predict of them, after the intervention
relative to before it: each counts once, by a ratio computed from its own outcomes and what was released (one order of
operations, as all products of rows have). A target's rank among them is an in-space placebo test (Abadie, Diamond and
Hainmueller 2010, "Synthetic control methods for comparative case studies", Journal of the American Statistical
Association 105, section 3.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.kernels.half_octaves import HalfOctaves
from dpfast.ledger import Release
from dpfast.privacy import Privacy, parts_of
from dpfast.privacy.rounding import ROUND_UP
from dpfast.releases.mechanism import Mechanism, Query, Stages
from dpfast.releases.noisy_sum import NoisySum
from dpfast.solvers.damped import components_beyond
from dpfast.statistics import Gram
from dpfast.statistics.rows import RowMap
from dpfast.statistics.sizes import Sizes, size_counts
from dpfast.synthetic_control.mechanism import CrossSection, DonorRows, lengths_of, sum_donors
from dpfast.synthetic_control.predictions import coefficients_of_moments

# Shares of mu squared, and where delta is 0 of epsilon. On simulated panels of 300 to 10,000 donors halves and doubles
# of these differ by less than what panels differ by.
_SHARES = {"path": (0.1, 0.2), "lengths": (0.05, 0.1)}
# Half-octaves below the longest that a row can be: one a millionth as long is in the last.
_HALF_OCTAVES = 40
# The mean path's entries are rounded to this power of two.
_PATH_EXPONENT = -30

#: Bins of squared ratios, and so quarters of octaves of ratios, from 1/16 to 1,024: many where little noise and a small
#: ridge leave little error before the intervention.
RATIOS = HalfOctaves(-16, 40)
_RATIO_ENDS = np.sqrt([RATIOS.size(code) for code in range(RATIOS.largest_code)])
_LARGEST_RATIO = 2.0**40

Bounds = tuple[float, float]


class Solution(NamedTuple):
    """What predicts, computed from what was released."""

    rows: DonorRows
    ridge: float
    floor: float
    n_components: int | None
    coef: FloatArray
    pre_coef: FloatArray

    def ratios(self, series: FloatArray) -> FloatArray:
        """Return root mean squared errors of series after the intervention over those before it, each from its own.

        Series are in input units; they count as clipped to the declared range.
        """
        rows, n_pre = self.rows, self.rows.n_pre
        residuals = np.eye(n_pre + rows.n_post)
        residuals[:n_pre] -= np.hstack([self.pre_coef.T, self.coef.T])
        limits = np.full(1, rows.least), np.ones(1)
        about = RowMap(*limits, center=rows.path, basis=residuals, offset=rows.offset, unit=rows.half_width, fills=True)
        errors = about(np.ascontiguousarray(series))
        before, after = lengths_of(errors[:, :n_pre]), lengths_of(errors[:, n_pre:])
        scaled = np.divide(after, before, out=np.full(len(errors), _LARGEST_RATIO), where=before > 0.0)
        scaled[(before == 0.0) & (after == 0.0)] = 1.0
        ratios: FloatArray = np.minimum(scaled * math.sqrt(n_pre / rows.n_post), _LARGEST_RATIO)
        return ratios


class Donors(NamedTuple):
    """The data owner's panel in input units, and the threads that go through it."""

    panel: FloatArray | io.Partitions
    n_threads: int | None = None

    @property
    def own_threads(self) -> int | None:
        """Threads of one part."""
        return (self.n_threads or 1) if isinstance(self.panel, io.Partitions) else self.n_threads


@dataclass(frozen=True)
class DonorSteps(Mechanism[Solution]):
    """The mechanism of a fit: all its releases, calibrated together."""

    privacy: Privacy
    #: As is public before anything is released: without a centre, without bounds.
    rows: DonorRows
    #: A public path in mapped units, or the donors' mean.
    center: FloatArray | Literal["private"] | None
    #: Norms that rows are held to before and after the intervention; None as long as the range allows.
    row_bound: Bounds | Literal["private"] | None
    #: Where it is public.
    n_donors: int | None
    #: Whether moments are brought back from the centre to the origin, where it must not be shrunk towards.
    restored: bool = False
    #: The paper's lambda, and how many eigenvalues are kept: what donors' own errors are computed with, too.
    ridge: float | Literal["auto"] = "auto"
    n_components: int | Literal["noise"] | None = None
    #: Part of the budget that the errors of donors' predictions have.
    placebo_share: float | None = None

    @cached_property
    def parts(self) -> dict[str, Privacy]:
        """What each release costs."""
        optional = {"path": self.center, "lengths": self.row_bound}
        shares = {
            name: _SHARES[name][self.privacy.delta == 0.0]
            for name, option in optional.items()
            if isinstance(option, str)
        }
        after = {} if self.placebo_share is None else {"errors": self.placebo_share}
        if not shares and not after:
            return {"moments": self.privacy}
        shares = {name: share * (1.0 - math.fsum(after.values())) for name, share in shares.items()}
        shares["moments"] = 1.0 - math.fsum([*shares.values(), *after.values()])
        shares |= after
        return dict(zip(shares, parts_of(self.privacy, list(shares.values())), strict=True))

    @property
    def _middle(self) -> float:
        """Of the mapped range, for the mean path."""
        return (self.rows.least + 1.0) / 2.0

    @property
    def _count_weight(self) -> float:
        """What a donor counts for beside its path where the number of donors is private: a power of two."""
        length = (1.0 - self._middle) * (self.rows.n_pre + self.rows.n_post) ** 0.25
        return math.ldexp(1.0, round(math.log2(length)))

    @cached_property
    def path_noise(self) -> NoisySum:
        """The mechanism of the mean path."""
        counted = self.privacy.adjacency == "add_remove"
        periods = self.rows.n_pre + self.rows.n_post
        weight = self._count_weight if counted else 0.0
        bound = math.sqrt((1.0 - self._middle) ** 2 * periods + weight**2) * ROUND_UP
        return NoisySum.calibrate(self.parts["path"], bound, (periods + counted,))

    @cached_property
    def length_noise(self) -> NoisySum:
        """The mechanism of the lengths."""
        return NoisySum.of_counts(self.parts["lengths"], 2, HalfOctaves(0, _HALF_OCTAVES).n_bins)

    @property
    def scales(self) -> Mapping[str, float]:
        """Of the moments, for rows as long as the range allows."""
        return CrossSection.calibrate(self.parts["moments"], *self._ways(self._center({}), None)).scales

    def stages(self) -> Stages[Solution]:
        """Ask for one release after the other."""
        released: dict[str, Release] = {}
        if "path" in self.parts:
            released["path"] = yield Query("mean path of donors", self.path_noise, self._sum_paths)
        if "lengths" in self.parts:
            counts = partial(_count, counted=count_lengths, rows=self._unbounded(released))
            released["lengths"] = yield Query("lengths of donors' rows", self.length_noise, counts)
        section = self._section(released)
        moments = partial(_sum_moments, rows=section.rows)
        released["moments"] = yield Query("moments of donors before and across the intervention", section, moments)
        if "errors" in self.parts:
            counts = partial(_count, counted=count_ratios, solution=self._solution(released))
            released["errors"] = yield Query("errors of donors' predictions", self.error_noise, counts)
        return partial(self._solution, released)

    @cached_property
    def error_noise(self) -> NoisySum:
        """The mechanism of the errors."""
        return NoisySum.of_counts(self.parts["errors"], 1, RATIOS.n_bins)

    def released(self, releases: tuple[Release, ...]) -> dict[str, Release]:
        """Name the releases of a fit."""
        return dict(zip(self.parts, releases, strict=False))

    def section(self, releases: tuple[Release, ...] = ()) -> CrossSection:
        """Return the mechanism of the moments: how rows were summed follows from what was released before."""
        return self._section(self.released(releases))

    def moments(self, releases: tuple[Release, ...]) -> tuple[FloatArray, FloatArray]:
        """Return X'X and X'X_post about the path that predictions shrink towards."""
        values = self.released(releases)["moments"].values
        return self.section(releases).moments(values, self.n_donors)

    def tail(self, releases: tuple[Release, ...], ratios: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Count donors whose ratio is no less, bins as a whole; with the counts' standard deviation, and their total.

        As released: counts may be negative. The total is the public number, if it is.
        """
        ends, counts, noise = self.ratio_counts(releases)
        first = np.minimum(np.searchsorted(ends, ratios, side="left"), len(counts) - 1)
        beyond = np.cumsum(counts[::-1])[::-1][first]
        deviation = noise * np.sqrt(len(counts) - first)
        return beyond, deviation, self._number(self.released(releases))

    def ratio_counts(self, releases: tuple[Release, ...]) -> tuple[FloatArray, FloatArray, float]:
        """Return upper ends of the bins of ratios but the last, released counts, and their standard deviation."""
        counts = self.released(releases)["errors"].values["sum"][0, RATIOS.largest_code :]
        return _RATIO_ENDS, counts, self.error_noise.deviation

    def expected(self, spread: float) -> CrossSection:
        """Return the moments' mechanism where rows are as long as their mean square, about a centre, says."""
        rows = self._unbounded({})
        if self.row_bound != "private":
            return self._section({})
        # The edge above the bin of such a length.
        size = math.sqrt(2.0 * min(spread, 1.0))
        bounds = size * rows.bound_pre, size * rows.bound_post
        return CrossSection.calibrate(self.parts["moments"], *self._ways(rows.center, bounds))

    def path_error(self, n: int) -> float:
        """Return the standard deviation of an entry of the released mean path of `n` donors."""
        return self.path_noise.deviation / n if "path" in self.parts else 0.0

    def _solution(self, released: Mapping[str, Release]) -> Solution:
        section = self._section(released)
        xx, xy = section.moments(released["moments"].values, self.n_donors)
        floor, ridge = section.floor, section.rows.penalty(self.ridge)
        keep = components_beyond(xx, floor) if isinstance(self.n_components, str) else self.n_components
        coef = coefficients_of_moments(xx, xy, section.rows.basis, ridge, floor, keep)
        return Solution(section.rows, ridge, floor, keep, coef["coef_"], coef["pre_coef_"])

    def _section(self, released: Mapping[str, Release]) -> CrossSection:
        center, bounds = self._center(released), self.row_bound
        if isinstance(bounds, str):
            rows = self._unbounded(released)
            n, (pre, post) = self._number(released), released["lengths"].values["sum"]
            bins = length_bins(rows)
            bounds = typical_length(pre, bins, rows.bound_pre, n), typical_length(post, bins, rows.bound_post, n)
        return CrossSection.calibrate(self.parts["moments"], *self._ways(center, bounds))

    def _unbounded(self, released: Mapping[str, Release]) -> DonorRows:
        """Return the rows whose lengths are counted, with the most that these can be."""
        return self._ways(self._center(released), None)[0]

    def _ways(self, center: FloatArray | None, bounds: Bounds | None) -> list[DonorRows]:
        return self.rows.ways(center, bounds, restored=self.restored)

    def _center(self, released: Mapping[str, Release]) -> FloatArray | None:
        if not isinstance(self.center, str):
            return self.center
        periods = self.rows.n_pre + self.rows.n_post
        if "path" not in released:
            # Not yet: as for a plan.
            return np.full(periods, self._middle)
        n = self._number(released)
        # Where nothing is observed an entry is the middle's.
        mean = released["path"].values["sum"][:periods] / (n * self.rows.rate)
        variance = (self.path_noise.deviation / (n * self.rows.rate)) ** 2
        # James and Stein's estimate, its positive part, about the middle of the range: no worse than the mean itself,
        # and the middle where the mean is nothing but noise.
        length = float(np.sum(mean**2))
        kept = max(0.0, 1.0 - (periods - 2) * variance / length) if length > 0.0 else 0.0
        center: FloatArray = np.clip(self._middle + kept * mean, self.rows.least, 1.0)
        return center

    def _number(self, released: Mapping[str, Release]) -> float:
        """Return the number of donors, as it is public or was released; at least one."""
        if self.n_donors is not None:
            number = float(self.n_donors)
        elif "path" in released:
            number = float(released["path"].values["sum"][-1]) / self._count_weight
        else:
            # Of whichever histograms there are.
            counts = next(released[name].values["sum"] for name in ("lengths", "errors") if name in released)
            # Codes below 0 are those of negative numbers, which no length is.
            number = float(np.sum(counts[:, counts.shape[1] // 2 :])) / len(counts)
        return max(number, 1.0)

    def _sum_paths(self, donors: Donors) -> FixedPoint:
        paths: FixedPoint = io.sum_over(donors.panel, self.sum_paths)
        return paths

    def sum_paths(self, donors: FloatArray) -> FixedPoint:
        """Sum donors' mapped paths about the middle, and count them where that is private: the data owner's."""
        rows, limits = self.rows, (np.full(1, self.rows.least), np.ones(1))
        center = np.full(donors.shape[1], self._middle)
        mapped = RowMap(*limits, center=center, offset=rows.offset, unit=rows.half_width, fills=True)(donors)
        units = np.rint(np.ldexp(mapped, -_PATH_EXPONENT)).astype(np.int64)
        # Below 2^62: rows are at most 2^30 units long and many.
        totals = units.sum(axis=0).tolist()
        if self.privacy.adjacency == "add_remove":
            totals.append(len(donors) * int(math.ldexp(self._count_weight, -_PATH_EXPONENT)))
        return FixedPoint.from_integers(totals, _PATH_EXPONENT)


def _count(donors: Donors, counted: Callable[..., FixedPoint], **options: Any) -> FixedPoint:
    counts: FixedPoint = io.sum_over(donors.panel, partial(counted, n_threads=donors.own_threads, **options))
    return counts


def _sum_moments(donors: Donors, rows: DonorRows) -> Gram:
    return sum_donors(donors.panel, rows, donors.own_threads)


def count_ratios(donors: FloatArray, solution: Solution, n_threads: int | None) -> FixedPoint:
    """Count donors by `Solution.ratios`: the data owner's."""
    ratios = np.square(solution.ratios(donors))[:, None]
    return size_counts(io.open_table(ratios, None), Sizes(rows=True, bins=RATIOS), n_threads=n_threads)


def length_bins(rows: DonorRows) -> HalfOctaves:
    """Return the bins in which lengths of rows are counted, from the longest that there may be down."""
    last = math.ceil(2.0 * math.log2(max(rows.bound_pre, rows.bound_post)))
    return HalfOctaves(last - _HALF_OCTAVES, last)


def count_lengths(donors: FloatArray, rows: DonorRows, n_threads: int | None) -> FixedPoint:
    """Count donors by the lengths of their rows before and after the intervention: the data owner's."""
    lengths = Sizes(rows=True, outcomes=True, bins=length_bins(rows))
    return size_counts(io.open_table(*rows.parts_of(donors)), lengths, n_threads=n_threads)


def typical_length(counts: FloatArray, bins: HalfOctaves, longest: float, n: float) -> float:
    """Return the size that less than half of `n` rows are longer than, and in whose bin that half is reached.

    Rows beyond it are scaled onto it, before and after the intervention alike, which leaves what they say of the
    prediction and lowers the noise. Of the sizes that 1, 10, 25, 50 and 70% of rows pass the nearest to the best in
    hindsight, over panels of 300 to 10,000 donors, of one size and of lognormal sizes, of one and of three factors.
    """
    longer = np.cumsum(counts[: bins.largest_code - 1 : -1])
    # The first size that more pass: later ones are read through the noise of more bins.
    passed = np.flatnonzero(longer > 0.5 * n)
    code = bins.largest_code - int(passed[0]) if len(passed) else 0
    return min(bins.size(code), longest)
