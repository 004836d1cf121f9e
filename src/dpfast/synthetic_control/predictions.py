"""From released moments of donors to predictions of any target, and their limits: post-processing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._redacted import quiet
from dpfast._threads import single_threaded_blas
from dpfast.io import target_rows
from dpfast.ledger import Release
from dpfast.releases.moments import unpacked
from dpfast.solvers.inference import NoisyRatio
from dpfast.solvers.ridge import (
    DenoisedMoments,
    coefficients_of_moments,
    coefficients_of_solution,
    damped_solve,
    hidden_reach,
    noise_edge,
    ridge_from_rows,
)
from dpfast.synthetic_control.mechanism import CrossSection, DonorRows, PredictorMap

# Draws that an interval's quantiles are taken from: they are then off by 0.01 in coverage, up or down.
_SIMULATIONS = 500
# An eigenvalue beyond this many edges of the noise is the panel's: noise alone passes one edge in one panel of a
# hundred, but where panels' own eigenvalues are as large as the noise the largest is often twice what it was. Of 1.5,
# 2.5 and 4 the one with the narrowest intervals of those that cover, on panels of 100 to 10,000 donors.
_CERTAIN = 2.5
# Entries of X'X that are simulated at a time.
_BATCH_ENTRIES = 1 << 19


def predictions(
    xx: FloatArray, xy: FloatArray, targets: FloatArray, ridge: float, floor: float, n_components: int | None
) -> FloatArray:
    """Predict targets, features of shape (n_targets, d), from moments of shape (..., d, d) and (..., d, n_post)."""
    weights = damped_solve(xx, targets.T, ridge / 2.0, floor, n_components)
    return np.asarray(np.swapaxes(weights, -1, -2) @ xy)


def prediction_interval(
    section: CrossSection,
    values: Mapping[str, FloatArray],
    n_donors: int | None,
    targets: FloatArray,
    *,
    ridge: float,
    n_components: int | None,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Limits for the prediction without privacy noise at the same ridge, about the path, from released values.

    The prediction is not linear in the noise, so its errors are simulated. First, the released moments are denoised
    (`dpfast.solvers.DenoisedMoments`). Then fresh noise with the known law is added to them. The quantiles of the
    errors are subtracted from the prediction: the parametric bootstrap's basic interval (Davison and Hinkley 1997,
    "Bootstrap Methods and their Application", section 5.2).

    If the penalty is below the floor, directions hidden in the noise may contribute to the prediction without noise. If
    donors vary along one path, with a target t of direction u, the prediction is the ratio of t'X'X_post to
    u'X'X u + lambda/2. `dpfast.solvers.NoisyRatio` gives its limits, however noisy the denominator. Three cases:

    - The largest eigenvalue is beyond 2.5 edges of the noise. If the target visibly has a component in other
      directions, the ratio's limits for it are added, but no more than the largest contribution of hidden directions
      (`_hidden_reach`).
    - It exceeds the noise, but by less. This may well be chance, and the simulation, which assumes signal, would be far
      too narrow. The limits are the ratio's for the whole target plus the largest contribution of hidden directions.
    - No eigenvalue exceeds the noise: the ratio's limits for the whole target.
    """
    xx, xy = section.moments(values, n_donors)
    denoised = DenoisedMoments.of(xx, section.off_diagonal)
    source_xx, source_xy = denoised.xx, denoised.inside(xy)
    paths = denoised.turned_back(targets.T).T
    hidden = targets - (targets @ denoised.vectors) @ denoised.vectors.T
    # A stream of its own: with the fit's seed the noise simulated would be the noise that was added.
    digest = hashlib.sha256(values["xx"].tobytes() + values["xy"].tobytes()).digest()
    source = noise.SeededSource(int.from_bytes(digest, "little"))
    centre = predictions(source_xx, source_xy, paths, ridge, 0.0, n_components)
    batch = max(1, min(_SIMULATIONS, _BATCH_ENTRIES // xx.size))
    errors = np.empty((_SIMULATIONS, *centre.shape))
    whole, part = (_SimulatedRatio.of(one, xx, xy, ridge / 2.0) for one in (targets, hidden))
    # The matrices are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        for start in range(0, _SIMULATIONS, batch):
            stop = min(start + batch, _SIMULATIONS)
            noise_xx, noise_xy = section.noise_alone(stop - start, source)
            noisy = source_xx + noise_xx, source_xy + noise_xy
            errors[start:stop] = predictions(*noisy, paths, ridge, section.floor, n_components) - centre
            for ratio in (whole, part):
                ratio.add(noise_xx, noise_xy)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(errors, [tail, 1.0 - tail], axis=0)
    predicted = predictions(xx, xy, targets, ridge, section.floor, n_components)
    low, high = predicted - high, predicted - low
    reach = _hidden_reach(section, xx, denoised, targets, ridge, n_components)[:, None]
    if ridge / 2.0 >= section.floor or n_components is not None:
        return low - reach, high + reach
    quantile = float(ndtri(1.0 - tail))
    largest = float(np.linalg.eigvalsh(xx)[-1])
    if largest <= _CERTAIN * noise_edge(len(xx), section.off_diagonal):
        path = section.rows.path[section.rows.n_pre :]
        ends = np.broadcast_to(section.rows.least - path, low.shape), np.broadcast_to(1.0 - path, low.shape)
        low, high = whole.known.limits(quantile, *ends)
        return (low - reach, high + reach) if len(denoised.values) else (low, high)
    # In the prediction this part has been divided by the floor.
    counted = part.known.numerator / section.floor
    most = np.linalg.norm(hidden, axis=1)[:, None] * _reach_a_length(section, xx, denoised, ridge) + np.abs(counted)
    least_added, most_added = (one - counted for one in part.known.limits(quantile, -most, most))
    return low - np.clip(-least_added, 0.0, reach), high + np.clip(most_added, 0.0, reach)


@dataclass
class _SimulatedRatio:
    """Ratio of the targets' components of X'X_post to those of X'X in their directions, with simulated noise."""

    paths: FloatArray
    units: FloatArray
    numerator: FloatArray
    denominator: FloatArray
    draws: list[tuple[FloatArray, FloatArray]]

    @classmethod
    def of(cls, paths: FloatArray, xx: FloatArray, xy: FloatArray, penalty: float) -> Self:
        """Start from released moments."""
        lengths = np.linalg.norm(paths, axis=1, keepdims=True)
        units = np.divide(paths, lengths, out=np.zeros_like(paths), where=lengths > 0.0)
        squares = np.maximum(np.einsum("td,de,te->t", units, xx, units), 0.0)
        return cls(paths, units, paths @ xy, squares + penalty, [])

    def add(self, noise_xx: FloatArray, noise_xy: FloatArray) -> None:
        """Keep what draws of the noise do to both."""
        squares = np.sum((self.units @ noise_xx) * self.units, axis=-1)
        self.draws.append((self.paths @ noise_xy, squares))

    @property
    def known(self) -> NoisyRatio:
        """The ratio as it was found, and the variances of its noise."""
        above, below = (np.concatenate(one) for one in zip(*self.draws, strict=True))
        covariance = np.mean(above * below[..., None], axis=0)
        squares = np.mean(above**2, axis=0), np.mean(below**2, axis=0)[:, None]
        return NoisyRatio(self.numerator, self.denominator[:, None], *squares, covariance)


def _hidden_reach(
    section: CrossSection,
    xx: FloatArray,
    denoised: DenoisedMoments,
    targets: FloatArray,
    ridge: float,
    n_components: int | None,
) -> FloatArray:
    """Bound the contribution of directions hidden in the noise to the prediction of each target without noise."""
    if n_components is not None and n_components <= len(denoised.values):
        return np.zeros(len(targets))
    turning, rows = 1.0, section.rows
    if rows.restored:
        # Bringing moments back to the origin adds the noise of sums, times the centre's length, along the centre.
        assert rows.center is not None
        length = float(np.linalg.norm(rows.center[: rows.n_pre]))
        turning += (section.scales["x"] / rows.rate * length / section.off_diagonal) ** 2
    return denoised.hidden(targets.T, turning) * _reach_a_length(section, xx, denoised, ridge)


def _reach_a_length(section: CrossSection, xx: FloatArray, denoised: DenoisedMoments, ridge: float) -> float:
    """Bound the contribution of hidden directions to the prediction of a path of norm 1 in them.

    The hidden part is assumed to be no larger in a period after the intervention than in an average period before it.
    The latter is bounded by the 95% limit of the remaining trace of X'X.
    """
    features = len(xx)
    trace = max(float(np.trace(xx)) - float(np.sum(denoised.values)), 0.0)
    # The diagonal has twice the variance of the entries off it.
    trace += 1.645 * math.sqrt(2.0 * features) * section.off_diagonal
    return hidden_reach(trace / features, ridge / 2.0, section.floor)


@dataclass(frozen=True, repr=False)
class CrossSectionBatch:
    """Repeated releases of one panel's moments, from which predictions at any ridge are computed on request.

    Attributes
    ----------
    section : CrossSection
        The rows and the calibration of each release.
    release : Release
        All of them; see `dpfast.releases.moments`.
    n_donors : int or None
        Number of donors, None where it is private.
    ridge : float
        The paper's lambda, unless another is requested.
    mapping : PredictorMap
        The map of rows from the units of predictors to those of outcomes.
    """

    section: CrossSection
    release: Release
    n_donors: int | None
    ridge: float
    mapping: PredictorMap

    @quiet
    def predict(self, target_pre: ArrayLike, ridge: float | None = None) -> FloatArray:
        """Predict a target, or several, from every release.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors, after their predictors, if any.
        ridge : float, optional
            The paper's lambda; by default the estimator's. Another one costs no further privacy.

        Returns
        -------
        ndarray of shape (repeats, n_post) or (repeats, n_targets, n_post)
        """
        rows = self.section.rows
        penalty = self.ridge if ridge is None else check.nonnegative("ridge", ridge)
        names = self.mapping.predictors.names
        pre = target_rows(target_pre, {"n_pre": rows.n_pre - len(names)}, "target_pre", predictors=names)
        pre = self.mapping(pre)
        features = np.atleast_2d(rows.features(pre))
        xx, xy = self.section.moments(unpacked(self.release.values), self.n_donors)
        with single_threaded_blas():
            predicted = rows.predicted(predictions(xx, xy, features, penalty, self.section.floor, None))
        return predicted[:, 0] if pre.ndim == 1 else predicted

    def __repr__(self) -> str:
        repeats = self.release.values["xy"].shape[0]
        return f"<{repeats} releases of a panel's moments, together at {self.release.privacy}>"


def textbook(
    donors: FloatArray,
    about: float | FloatArray,
    n_pre: int,
    basis: FloatArray | None,
    ridge: float,
    keep: int | None,
    observation_rate: float | None,
) -> tuple[FloatArray, dict[str, Any]]:
    """Return the path that donors are summed about, and the coefficients without noise."""
    center = np.zeros(donors.shape[1]) + about
    pre, post = np.split(donors - center, [n_pre], axis=1)
    if not np.any(np.isnan(donors)):
        pre = pre if basis is None else pre @ basis
        theta = ridge_from_rows(pre, np.concatenate([post, pre], axis=1), ridge / 2.0, keep)
        return center, coefficients_of_solution(theta, basis, post.shape[1])
    rows = DonorRows(0.0, 1.0, n_pre, post.shape[1], observation_rate=observation_rate)
    pre, post = np.nan_to_num(pre, nan=0.0), np.nan_to_num(post, nan=0.0)
    xx, xy = rows.about_path({"xx": pre.T @ pre, "xy": pre.T @ post}, len(donors))
    # A floor just above zero: the rounding error of a zero eigenvalue has no meaningful inverse.
    floor = len(xx) * float(np.finfo(np.float64).eps) * float(np.trace(xx))
    return center, coefficients_of_moments(xx, xy, basis, ridge, floor, keep)
