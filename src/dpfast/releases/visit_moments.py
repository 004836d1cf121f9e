"""Policy evaluation from sufficient statistics: one release of A and b, everything else computed from it.

A is the sum of rho_s phi_s phi_s' over trajectories and the states each visits, b that of rho_s phi_s F_s
(`dpfast.statistics.sufficient_statistics`). Noise of public size, calibrated jointly by
`dpfast.privacy.block_moment_mu`; without features only the diagonal of A is released, as the rest is known to be 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import (
    BlockBounds,
    MomentScales,
    Privacy,
    block_moment_mu,
    block_moment_scales,
    gaussian_mu,
    l2_laplace_scale,
)
from dpfast.solvers.ridge import MomentNoise, NoisyMoments, automatic_diagonal_ridge, ridge_from_moments
from dpfast.statistics import SufficientStatistics

# Exact sums of up to 2^75 units still fit 128 bits when they are shifted by this much.
_LARGEST_SPREAD_EXPONENT = 32


@dataclass(frozen=True)
class VisitMomentNoise:
    """Noise of one release of A and b, from public numbers alone.

    Parameters
    ----------
    privacy : Privacy
        What is promised.
    scales : MomentScales
        Standard deviations of entries of A (on its diagonal) and of b.
    mu : float or None
        Gaussian-differential-privacy parameter; None for L2-Laplace noise.
    joint_scale : float
        Scale of one L2-Laplace vector for both, b stretched by 2**`stretch` first.
    stretch : int
        Goes with `joint_scale`.
    """

    privacy: Privacy
    scales: MomentScales
    mu: float | None = None
    joint_scale: float = 0.0
    stretch: int = 0

    @property
    def off_diagonal(self) -> float:
        """Standard deviation of the entries of A off its diagonal, which stand twice."""
        # Gaussian noise is isotropic in the Frobenius norm; L2-Laplace noise in that of the upper triangle.
        return self.scales.xx if self.mu is None else math.nextafter(self.scales.xx * math.sqrt(0.5), math.inf)


@dataclass(frozen=True, eq=False)
class Solution:
    """What is computed from a release.

    Parameters
    ----------
    coef : ndarray of shape (n_features,)
        Coefficients, of returns less the lower end of their range.
    value_std : ndarray of shape (n_states,)
        First-order standard deviation of the values from the noise alone.
    ridge : float
        What was added to the diagonal of A.
    """

    coef: FloatArray
    value_std: FloatArray
    ridge: float


def calibrate(
    privacy: Privacy, bounds: BlockBounds, n_features: int, *, diagonal: bool, nonnegative: bool, slope: float
) -> VisitMomentNoise:
    """Return the least noise for A and b, weighted by what it does to the residual b - A theta.

    Parameters
    ----------
    privacy : Privacy
        Target; Gaussian noise, or L2-Laplace noise where delta is 0.
    bounds : BlockBounds
        Norms of what one trajectory adds: `SufficientStatistics.bounds`.
    n_features : int
        Size of b.
    diagonal : bool
        Whether A is its diagonal.
    nonnegative : bool
        `SufficientStatistics.nonnegative`.
    slope : float
        Root mean square of the coefficients to be expected, from public numbers.

    Returns
    -------
    VisitMomentNoise
    """
    # An entry of the residual has variance xy**2 + xx**2 (theta_i**2 + ||theta||**2)/2, or without the rest of A
    # xy**2 + xx**2 theta_i**2.
    costs = {"xx": slope**2 * (1.0 if diagonal else 0.5 * (n_features + 1)), "xy": 1.0}

    def least_noise(mu: float) -> MomentScales:
        return block_moment_scales(mu, bounds, costs, adjacency=privacy.adjacency, nonnegative=nonnegative)

    if privacy.delta > 0.0:
        mu = gaussian_mu(*privacy.target)
        return VisitMomentNoise(privacy, least_noise(mu), mu)
    # One spherical draw for both; a stretch by a power of two keeps the exact sums exact.
    best = least_noise(1.0)
    stretch = round(math.log2(best.xx) - math.log2(best.xy))
    unit = MomentScales(xx=1.0, xy=math.ldexp(1.0, -stretch))
    sensitivity = block_moment_mu(unit, bounds, adjacency=privacy.adjacency, nonnegative=nonnegative)
    scale = l2_laplace_scale(privacy.target[0], sensitivity)
    entries = n_features + (n_features if diagonal else n_features * (n_features + 1) // 2)
    # A coordinate of the draw has variance scale**2 (dim + 1).
    deviation = scale * math.sqrt(entries + 1.0)
    scales = MomentScales(xx=deviation, xy=math.ldexp(deviation, -stretch))
    return VisitMomentNoise(privacy, scales, None, scale, stretch)


def draw(sums: SufficientStatistics, calibration: VisitMomentNoise, source: noise.BitSource, name: str) -> Release:
    """Add the noise to exact sums; the only place where they turn into something public.

    Parameters
    ----------
    sums : SufficientStatistics
        The data owner's.
    calibration : VisitMomentNoise
        The noise, calibrated for the bounds of `sums`.
    source : BitSource
        Where bits come from.
    name : str
        What the release is called in the ledger's report.

    Returns
    -------
    Release
        Its values are "xx", (n_features, n_features) or (n_states,) where only the diagonal is released, and "xy".
    """
    d, diagonal = sums.exact_xy.shape[0], len(sums.exact_xx.shape) == 1
    rows, columns = (np.arange(d), np.arange(d)) if diagonal else np.triu_indices(d)
    entries = sums.exact_xx if diagonal else sums.exact_xx[rows, columns]
    source = source.bound(name, calibration, diagonal, d)
    drawn = _gaussian if calibration.mu is not None else _l2_laplace
    (upper, xy), grid = drawn(entries, sums.exact_xy, rows == columns, calibration, source)
    xx = upper
    if not diagonal:
        xx = np.empty((d, d))
        xx[rows, columns] = xx[columns, rows] = upper
    return Release(
        name,
        "Gaussian" if calibration.mu is not None else "L2-Laplace",
        calibration.privacy,
        {"xx": xx, "xy": xy},
        {"xx": calibration.scales.xx, "xy": calibration.scales.xy},
        mu=calibration.mu,
        grid=grid,
        reproducible=source.reproducible,
    )


def _gaussian(
    xx: FixedPoint,
    xy: FixedPoint,
    on_diagonal: NDArray[np.bool_],
    calibration: VisitMomentNoise,
    source: noise.BitSource,
) -> tuple[tuple[FloatArray, FloatArray], dict[str, float]]:
    scales = calibration.scales
    grid = {"xx": noise.default_grid(scales.xx), "xy": noise.default_grid(scales.xy)}
    upper = np.empty(xx.shape)
    for chosen, scale in ((on_diagonal, scales.xx), (~on_diagonal, calibration.off_diagonal)):
        part = xx[chosen]
        upper[chosen] = noise.gaussian(scale, part.shape, source, center=part, grid=grid["xx"])
    return (upper, noise.gaussian(scales.xy, xy.shape, source, center=xy, grid=grid["xy"])), grid


def _l2_laplace(
    xx: FixedPoint,
    xy: FixedPoint,
    on_diagonal: NDArray[np.bool_],
    calibration: VisitMomentNoise,
    source: noise.BitSource,
) -> tuple[tuple[FloatArray, FloatArray], dict[str, float]]:
    """Draw one vector for both; the upper triangle is no longer than the symmetric matrix, so its noise suffices."""
    stretch = calibration.stretch
    if abs(xx.exponent - xy.exponent - stretch) > _LARGEST_SPREAD_EXPONENT:
        raise ValueError("bounds and slope ask for noise too unlike in xx and xy for one joint draw")
    unit = min(xx.exponent, xy.exponent + stretch)
    integers = [xx.integer(i) << (xx.exponent - unit) for i in range(xx.shape[0])]
    integers += [xy.integer(i) << (xy.exponent + stretch - unit) for i in range(xy.shape[0])]
    grid = noise.default_grid(calibration.joint_scale)
    center = FixedPoint.from_integers(integers, unit)
    joint = noise.l2_laplace(calibration.joint_scale, len(integers), source, center=center, grid=grid)
    parts = joint[: xx.shape[0]], np.ldexp(joint[xx.shape[0] :], -stretch)
    return parts, {"xx": grid, "xy": math.ldexp(grid, -stretch)}


def solve(
    release: Release, calibration: VisitMomentNoise, features: FloatArray | None, ridge: float | None
) -> Solution:
    """Solve for the coefficients: post-processing.

    Parameters
    ----------
    release : Release
        Of `draw`.
    calibration : VisitMomentNoise
        Its noise.
    features : ndarray of shape (n_states, n_features) or None
        Phi; None where only the diagonal was released.
    ridge : float or None
        Added to the diagonal of A; by default what the known noise asks for (`dpfast.solvers.automatic_ridge`).

    Returns
    -------
    Solution
    """
    xx, xy = release.values["xx"], release.values["xy"]
    scales = calibration.scales
    if features is None:
        # No noise off the diagonal, where entries are known.
        noisy = MomentNoise(scales.xx, 0.0, scales.xy)
        penalty = automatic_diagonal_ridge(xx, xy, noisy) if ridge is None else ridge
        visits = np.maximum(xx, 0.0) + penalty
        coef = np.divide(xy, visits, out=np.zeros_like(xy), where=visits > 0.0)
        spread = np.hypot(scales.xy, scales.xx * coef)
        return Solution(coef, np.divide(spread, visits, out=np.zeros_like(xy), where=visits > 0.0), penalty)
    noisy = MomentNoise(scales.xx, calibration.off_diagonal, scales.xy)
    fit = ridge_from_moments(NoisyMoments(xx, xy[:, None], noisy), ridge)
    return Solution(fit.coef[0], _value_std(xx, fit.coef[0], features, fit.ridge, noisy), fit.ridge)


def _value_std(xx: FloatArray, coef: FloatArray, features: FloatArray, ridge: float, noisy: MomentNoise) -> FloatArray:
    """First-order standard deviation of Phi theta, theta = R b with R = (A + ridge I)^-1.

    The noise E of A moves b - A theta by E theta, whose covariance is ``o (||theta||**2 I + theta theta')`` with o the
    variance off the diagonal, and a further ``(c - 2 o) diag(theta**2)`` with c that on it.
    """
    values, vectors = linalg.eigh(xx)
    rows = features @ (vectors / (np.maximum(values, 0.0) + ridge)) @ vectors.T
    on, off = noisy.diagonal**2, noisy.off_diagonal**2
    variance = np.sum(rows**2, axis=1) * (noisy.cross**2 + off * float(coef @ coef)) + off * (rows @ coef) ** 2
    variance += rows**2 @ coef**2 * (on - 2.0 * off)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))
