"""Gaussian noise with data-dependent scale, from a smooth bound on the statistic's local sensitivity.

The release is N(f(X), s(X)**2), s = alpha (S(X) + 2 tau), with S a bound on the local sensitivity of f whose square is
beta-smooth. `dpfast.privacy.smooth_gaussian` proves the guarantee for alpha and beta. f is computed in floating point,
to within tau for any data. The noise's scale is private: nothing in a release depends on it but the values themselves.
The grid comes from the least and the greatest scale that any data could have, and no scale is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.privacy import (
    Calibration,
    Privacy,
    SmoothGaussian,
    smooth_gaussian,
    smooth_gaussian_delta,
)
from dpfast.releases import printed
from dpfast.releases.mechanism import Drawn, SingleRelease, draw

Constants = Literal["sound", "paper", "icml"]

# Margin for rounding errors of bounds computed in a few operations, or by sums of positive numbers.
SLACK = 1.0 + 2.0**-20


class SmoothStatistic(Protocol):
    """A statistic, and bounds on its sensitivity."""

    #: Number of coordinates that get noise.
    dim: int
    #: Bound, for any data, on the Euclidean norm of the error of `center`.
    tau: float

    def center(self, sums: Any) -> FloatArray:
        """Return the statistic of the data owner's sums, (dim,). **Not private**."""

    def smooth_sensitivity(self, sums: Any, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up. **Not private**."""

    def extreme_sensitivities(self, beta: float) -> tuple[float, float]:
        """Return the least and the greatest such bound over all possible data: public."""

    def beta(self, privacy: Privacy) -> float:
        """Choose the smoothness, from public numbers."""


AnyStatistic = TypeVar("AnyStatistic", bound=SmoothStatistic)


@dataclass(frozen=True)
class DataDependentGaussian(SingleRelease, Generic[AnyStatistic]):
    """The mechanism: a statistic, and noise per unit of its sensitivity, from public numbers alone."""

    privacy: Privacy
    statistic: AnyStatistic
    smooth: SmoothGaussian
    constants: Constants = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, statistic: AnyStatistic, constants: Constants = "sound") -> Self:
        """Calibrate with the exact constants, or with the printed ones; these may miss the delta printed for them."""
        if constants == "sound":
            smooth = smooth_gaussian(*privacy.target, statistic.dim, statistic.beta(privacy))
        else:
            constants_of = printed("policy_evaluation", "printed_constants")
            smooth = constants_of(privacy.epsilon, privacy.delta, statistic.dim, constants)
        return cls(privacy, statistic, smooth, constants)

    @cached_property
    def guaranteed(self) -> bool:
        """Whether the noise gives the claimed delta."""
        delta = smooth_gaussian_delta(self.smooth.alpha, self.smooth.beta, self.privacy.epsilon, self.statistic.dim)
        return delta <= self.privacy.delta

    @property
    def scales(self) -> dict[str, float]:
        """Empty: no scale is public."""
        return {}

    @property
    def smoothness(self) -> float:
        """The beta required of bounds on the sensitivity, already reduced by the effect of rounding."""
        return self.smooth.smoothness()

    @cached_property
    def extreme_scales(self) -> tuple[float, float]:
        """The least and the greatest scale of the noise over all possible data: public."""
        least, greatest = map(self.scale, self.statistic.extreme_sensitivities(self.smoothness))
        return least, greatest * SLACK

    def scale(self, smooth_sensitivity: float) -> float:
        """Return the scale of the noise for data with this bound on the sensitivity; as private as the bound."""
        return self.smooth.scale(smooth_sensitivity, self.statistic.tau)

    @cached_property
    def calibration(self) -> Calibration:
        """Whether the constants are exact, or a paper's."""
        return "sound" if self.constants == "sound" else "paper"

    def seeds(self, statistic: Any) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.smooth, self.privacy, self.constants, self.extreme_scales, self.statistic.dim

    def draw(self, statistic: Any, source: noise.BitSource) -> Drawn:
        """Add the noise to the statistic of the data owner's sums; the values are "coordinates"."""
        grid = noise.grid_for_scales(*self.extreme_scales)
        scale = self.scale(self.statistic.smooth_sensitivity(statistic, self.smoothness))
        released = draw("Gaussian", scale, self.statistic.center(statistic), source, grid)
        return Drawn("data-dependent Gaussian", {"coordinates": released}, {"coordinates": grid})
