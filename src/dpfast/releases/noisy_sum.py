"""A sum of bounded contributions of people: histograms, means, residuals times rows.

One person moves the sum by a vector of bounded length, and the noise is in proportion to it. The caller decides the
contributions of people, and sums them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from dpfast.kernels.fixed_point import FixedPoint
from dpfast.noise import BitSource, default_grid
from dpfast.privacy import (
    Adjacency,
    Privacy,
    Unit,
    gaussian_mu,
    l2_laplace_scale,
    laplace_scale,
    parts_of,
    scale_for_mu,
)
from dpfast.privacy.guarantee import Law, coordinate_deviation
from dpfast.privacy.rounding import ROUND_UP, remembered
from dpfast.releases.mechanism import Drawn, SingleRelease, draw


@dataclass(frozen=True)
class NoisySum(SingleRelease):
    """The mechanism: noise for a sum that one person moves by a bounded amount."""

    privacy: Privacy
    law: Law | Literal["Laplace"]
    scale: float
    #: Standard deviation of an entry.
    deviation: float
    shape: tuple[int, ...]
    #: Mu of the release, if the noise is Gaussian.
    mu: float | None = None
    unit: Unit = "row"

    @classmethod
    def calibrate(cls, privacy: Privacy, bound: float, shape: tuple[int, ...], *, unit: Unit = "row") -> Self:
        """Noise for a sum of vectors of length `bound` at most, one a person: replaced, one moves it twice as far."""
        moved = (2.0 if privacy.adjacency == "replace_one" else 1.0) * bound
        return cls._of(privacy, moved, None, shape, unit)

    @classmethod
    def moved_by(
        cls,
        privacy: Privacy,
        replaced: float,
        alone: float,
        shape: tuple[int, ...],
        *,
        in_l1: tuple[float, float] | None = None,
        unit: Unit = "row",
    ) -> Self:
        """Noise for a sum, given the most that a person moves it when replaced, and when they come or go.

        `in_l1` has both in the L1 norm, for independent noise if delta is 0.
        """
        place = 0 if privacy.adjacency == "replace_one" else 1
        return cls._of(privacy, (replaced, alone)[place], None if in_l1 is None else in_l1[place], shape, unit)

    @classmethod
    def with_count(
        cls, privacy: Privacy, bound: float, unit_of_count: float, shape: tuple[int, ...], unit: Unit
    ) -> Self:
        """Noise for such a sum and, as its last entry, a count of people in units of a given size.

        A person adds a vector of length `bound` at most, and one unit or none: replaced, one moves the count by a unit
        at most while the sum moves by twice the bound.
        """
        moved = (2.0 if privacy.adjacency == "replace_one" else 1.0) * bound
        return cls._of(privacy, math.hypot(moved, unit_of_count) * ROUND_UP, None, shape, unit)

    @classmethod
    def of_counts(cls, privacy: Privacy, n_histograms: int, n_bins: int, *, unit: Unit = "row") -> Self:
        """Noise for histograms (n_histograms, n_bins); a person counts once in each, in one bin.

        Replaced, a person leaves one bin of each and enters another.
        """
        bins = n_histograms * _bins_moved(privacy.adjacency)
        return cls._of(privacy, math.sqrt(bins) * ROUND_UP, float(bins), (n_histograms, n_bins), unit)

    @classmethod
    def counts_within(
        cls,
        privacy: Privacy,
        is_gaussian: bool,
        share: float,
        n_histograms: int,
        n_bins: int,
        *,
        unit: Unit = "row",
    ) -> tuple[Self, Privacy]:
        """Return noise `of_counts` for a share of a budget, and the rest of the budget for other releases.

        `is_gaussian` says whether all of these will be Gaussian, if delta is above 0. Gaussian releases, or pure ones,
        share the budget by `parts_of`. Any others compose by the sums of epsilons and deltas, and then the counts are
        Gaussian, or pure, whichever has less noise.
        """
        shares = share, 1.0 - share
        splits = [parts_of(privacy, shares)]
        if privacy.delta > 0.0 and not is_gaussian:
            pure, rest = parts_of(Privacy(privacy.epsilon, 0.0, privacy.adjacency), shares)
            splits = [parts_of(privacy, shares, "basic"), (pure, Privacy(rest.epsilon, privacy.delta, rest.adjacency))]
        ways = [(cls.of_counts(part, n_histograms, n_bins, unit=unit), rest) for part, rest in splits]
        return min(ways, key=lambda way: way[0].deviation)

    @classmethod
    @remembered
    def _of(cls, privacy: Privacy, moved: float, moved_l1: float | None, shape: tuple[int, ...], unit: Unit) -> Self:
        """Calibrate for the most that one person moves, in the Euclidean norm and, if known, in the L1 norm.

        If delta is 0, entries that are moved one or two at a time get independent noise.
        """
        if privacy.delta > 0.0:
            mu = _mu_of(privacy)
            scale = scale_for_mu(mu, moved)
            return cls(privacy, "Gaussian", scale, scale, shape, mu, unit)
        epsilon, _ = privacy.finite_target
        if moved_l1 is not None:
            scale = laplace_scale(epsilon, moved_l1)
            return cls(privacy, "Laplace", scale, math.sqrt(2.0) * scale, shape, None, unit)
        scale = l2_laplace_scale(epsilon, moved)
        deviation = coordinate_deviation("L2-Laplace", scale, math.prod(shape))
        return cls(privacy, "L2-Laplace", scale, deviation, shape, None, unit)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry."""
        return {"sum": self.deviation}

    def seeds(self, statistic: FixedPoint) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.privacy, self.law, self.scale, self.shape

    def draw(self, statistic: FixedPoint, source: BitSource) -> Drawn:
        """Add the noise to the exact sum."""
        if statistic.high.shape != self.shape:
            raise ValueError(f"the sum has the shape {statistic.shape}, the noise was calibrated for {self.shape}")
        grid = default_grid(self.scale)
        exact = statistic.in_a_row() if self.law == "L2-Laplace" else statistic
        drawn = draw(self.law, self.scale, exact, source, grid)
        return Drawn(self.law, {"sum": drawn.reshape(self.shape)}, {"sum": grid}, self.mu, self.unit)


@remembered
def _mu_of(privacy: Privacy) -> float:
    """Return the mu of a budget: of the steps of a fit, which share one, it is found once."""
    return gaussian_mu(*privacy.finite_target)


def _bins_moved(adjacency: Adjacency) -> int:
    return 2 if adjacency == "replace_one" else 1
