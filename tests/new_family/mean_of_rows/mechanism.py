"""What is released of a mean: the exact sum of bounded rows, with noise for one of them.

Rows are held to the bound and rounded to a grid, after which none is longer than the bound rounded up to it. One that
is replaced by another moves the sum by their difference, which is no longer than twice that: attained by a row and its
negative. The number of rows is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.noise import BitSource, default_grid
from dpfast.privacy import Privacy, gaussian_scale
from dpfast.privacy.laplace import l2_laplace_scale
from dpfast.privacy.law import Law, coordinate_deviation, law_for
from dpfast.releases.mechanism import draw
from dpfast.statistics import rounded_bound


@dataclass(frozen=True)
class NoisySum:
    """Noise for a sum of rows."""

    privacy: Privacy
    n_features: int
    law: Law
    scale: float
    guaranteed: bool = True

    @classmethod
    def calibrate(cls, privacy: Privacy, bound: float, n_features: int) -> Self:
        """Noise for one row that is replaced by another."""
        (epsilon, delta), law = privacy.finite_target, law_for(privacy)
        moved = 2.0 * rounded_bound(bound, n_features)
        scale = gaussian_scale(epsilon, delta, moved) if law == "Gaussian" else l2_laplace_scale(epsilon, moved)
        return cls(privacy, n_features, law, scale)

    @property
    def scales(self) -> dict[str, float]:
        """Standard deviation of the noise in an entry of the sum."""
        return {"sum": coordinate_deviation(self.law, self.scale, self.n_features)}

    def release(self, statistic: FixedPoint, source: BitSource, name: str) -> Release:
        """Add the noise to the exact sum."""
        source = source.bound(name, self.privacy, self.law, self.scale, statistic.shape)
        grid = default_grid(self.scale)
        values = {"sum": draw(self.law, self.scale, statistic, source, grid)}
        grids, reproducible = {"sum": grid}, source.reproducible
        return source.record(
            Release(name, self.law, self.privacy, values, self.scales, grid=grids, reproducible=reproducible)
        )
