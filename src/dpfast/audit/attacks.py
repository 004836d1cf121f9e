"""Attacks on the mechanisms themselves, each on the pair of neighbouring tables that its bound says is worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast.audit.lower_bounds import epsilon_lower_bound, mu_lower_bound
from dpfast.privacy import Adjacency, Privacy, Release
from dpfast.privacy.gaussian import gaussian_epsilon, gaussian_scale
from dpfast.privacy.laplace import l2_laplace_scale, laplace_scale
from dpfast.privacy.smooth import smooth_gaussian
from dpfast.releases.moments import MomentCalibration, calibrate, calibrate_sampled, draw
from dpfast.statistics import Gram, gram, rounded_bound, sampled_gram

FloatArray = NDArray[np.float64]
Scores = Callable[[bool, int], FloatArray]


@dataclass(frozen=True)
class Attack:
    """A mechanism, its claim, and scores that tell two neighbouring tables apart as well as can be.

    Parameters
    ----------
    name : str
        What is attacked.
    privacy : Privacy
        What it claims.
    scores : callable
        ``scores(neighbour, n)``: scores of n independent outputs on the table or on its neighbour.
    gaussian : bool
        Whether the noise is Gaussian, so that the sharper bound by mu applies.
    """

    name: str
    privacy: Privacy
    scores: Scores
    gaussian: bool

    def lower_bound(self, n: int, confidence: float = 0.999) -> float:
        """Epsilon that the mechanism provably exceeds at the claimed delta, from n outputs on either table."""
        here, there = self.scores(False, n), self.scores(True, n)
        bound = epsilon_lower_bound(here, there, self.privacy.delta, confidence)
        if not self.gaussian:
            return bound
        mu = mu_lower_bound(here, there, confidence)
        return max(bound, gaussian_epsilon(1.0 / mu, self.privacy.delta)) if mu > 0.0 else bound


def primitive_attacks(privacy: Privacy, weaken: float = 1.0) -> Iterator[Attack]:
    """Attack every law of noise on a statistic of sensitivity 1.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by the Gaussian laws alone.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken, and an audit that is any good says so.
    """
    source = noise.SecureSource()
    pure = Privacy(privacy.epsilon, 0.0, privacy.adjacency)
    sigma = gaussian_scale(privacy.epsilon, privacy.delta) / weaken
    scale = laplace_scale(privacy.epsilon, 1.0) / weaken
    radius_scale = l2_laplace_scale(privacy.epsilon, 1.0) / weaken

    def gaussian(neighbour: bool, n: int) -> FloatArray:
        return noise.gaussian(sigma, n, source, center=float(neighbour))

    def laplace(neighbour: bool, n: int) -> FloatArray:
        return noise.laplace(scale, n, source, center=float(neighbour))

    def l2_laplace(neighbour: bool, n: int) -> FloatArray:
        centre = np.array([float(neighbour), 0.0, 0.0])
        draws = np.array([noise.l2_laplace(radius_scale, 3, source, center=centre) for _ in range(n)])
        distances: FloatArray = np.linalg.norm(draws, axis=1) - np.linalg.norm(draws - np.eye(3)[0], axis=1)
        return distances

    yield Attack("Gaussian", privacy, gaussian, gaussian=True)
    yield Attack("Laplace", pure, laplace, gaussian=False)
    yield Attack("L2-Laplace in 3 dimensions", pure, l2_laplace, gaussian=False)


def smooth_gaussian_attack(privacy: Privacy, weaken: float = 1.0, dim: int = 2) -> Attack:
    """Attack Gaussian noise with a smooth variance, on neighbours a local sensitivity apart with unlike variances.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is positive.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    dim : int
        Number of coordinates.
    """
    calibration = smooth_gaussian(privacy.epsilon, privacy.delta, dim)
    narrow, wide = (calibration.scale(bound) / weaken for bound in (1.0, math.exp(0.5 * calibration.beta)))
    grid = noise.grid_for_scales(narrow, wide)
    centre = np.eye(dim)[0]
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        scale, mean = (narrow, centre) if neighbour else (wide, np.zeros(dim))
        draws = noise.gaussian(scale, (n, dim), source, center=np.tile(mean, (n, 1)), grid=grid)
        squares = np.sum((draws / wide) ** 2, axis=1) - np.sum(((draws - centre) / narrow) ** 2, axis=1)
        # The log likelihood ratio of the narrow law to the wide one, up to a constant.
        return np.asarray(0.5 * squares)

    return Attack(f"Gaussian of smooth variance in {dim} dimensions", privacy, scores, gaussian=False)


def moment_attack(privacy: Privacy, weaken: float = 1.0, n_features: int = 2, n_outcomes: int = 1) -> Attack:
    """Attack the joint release of X'X and X'Y with the neighbours that move both together as far as can be.

    Under replace-one a row x with outcome y becomes x' at the worst angle to x, with outcome -y; under add/remove a row
    at the bounds goes.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    n_features, n_outcomes : int
        Widths of the table.
    """
    shape = (n_features, n_outcomes)
    bounds = rounded_bound(1.0, n_features), rounded_bound(1.0, n_outcomes)
    calibration = calibrate(privacy, *bounds, shape, {"xx": 1.0, "xy": 1.0})
    first, second = (
        gram(x, y, bound_x=1.0, bound_y=1.0) for x, y in _worst_rows(privacy.adjacency, calibration, shape)
    )
    broken = _weakened(calibration, weaken)
    score = _score(first, second, calibration)
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        exact = second if neighbour else first
        return np.array([score(draw(exact, broken, source, "audit")) for _ in range(n)])

    name = f"moments of rows, {calibration.mechanism}, {privacy.adjacency}"
    return Attack(name, privacy, scores, gaussian=calibration.mechanism == "Gaussian")


def sampled_moment_attack(privacy: Privacy, weaken: float = 1.0, n_sampled: int = 8, n_rows: int = 10) -> Attack:
    """Attack the release of X'X of a secret sample and X'Y of all rows, two features and one outcome.

    One person differs from all others, who are alike, or does not: where they are sampled, X'X tells it.

    Parameters
    ----------
    privacy : Privacy
        Claim, under replace-one with a delta above 0.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    n_sampled, n_rows : int
        Rows in the sample, and in all.
    """
    bounds = rounded_bound(1.0, 2), rounded_bound(1.0, 1)
    calibration = calibrate_sampled(privacy, *bounds, (2, 1), {"xx": 1.0, "xy": 1.0}, (n_sampled, n_rows))
    (x, y), (usual_x, usual_y) = _worst_rows("replace_one", calibration, (2, 1))
    alike = np.repeat(usual_x, n_rows, axis=0), np.repeat(usual_y, n_rows, axis=0)
    one_differs = np.vstack([x, alike[0][1:]]), np.vstack([y, alike[1][1:]])
    broken = _weakened(calibration, weaken)
    source = noise.SecureSource()

    usual_xx, usual_xy = n_sampled * usual_x.T @ usual_x, alike[0].T @ alike[1]
    towards_xx, towards_xy = x.T @ x - usual_x.T @ usual_x, x.T @ y - usual_x.T @ usual_y
    scale_xx, scale_xy = broken.scales.xx, broken.scales.xy

    def score(release: Release) -> float:
        """Log likelihood ratio of everybody alike against one who differs."""
        moved = np.sum((release.values["xx"] - usual_xx - towards_xx / 2.0) * towards_xx) / scale_xx**2
        of_all = np.sum((release.values["xy"] - usual_xy - towards_xy / 2.0) * towards_xy) / scale_xy**2
        seen = np.logaddexp(math.log1p(-n_sampled / n_rows), math.log(n_sampled / n_rows) + moved)
        return -float(of_all + seen)

    def scores(neighbour: bool, n: int) -> FloatArray:
        # All rows but the first are alike: the sums depend on whether that one is sampled, and on nothing else.
        table_x, table_y = alike if neighbour else one_differs
        without, seen = (
            sampled_gram(table_x, table_y, np.arange(n_sampled) + start, bound_x=1.0, bound_y=1.0) for start in (1, 0)
        )
        found = np.empty(n)
        for index in range(n):
            rows = noise.sample_without_replacement(n_rows, n_sampled, source)
            found[index] = score(draw(seen if rows[0] == 0 else without, broken, source, "audit"))
        return found

    return Attack(f"moments of a sample and of all rows, {privacy.adjacency}", privacy, scores, gaussian=False)


def _worst_rows(
    adjacency: Adjacency, calibration: MomentCalibration, shape: tuple[int, int]
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    features, outcomes = shape
    x, other = np.eye(features)[:2]
    y = np.eye(outcomes)[0]
    if adjacency == "add_remove":
        return (np.array([other, x]), np.array([y, y])), (other[None, :], y[None, :])
    # The cosine that maximises A (1 - t^2) + B (1 + t), A and B the squared moves of X'X and X'Y in units of noise.
    cosine = min(1.0, (calibration.scales.xx / calibration.scales.xy) ** 2 / 2.0)
    turned = cosine * x + math.sqrt(1.0 - cosine**2) * other
    return (x[None, :], y[None, :]), (turned[None, :], -y[None, :])


def _weakened(calibration: MomentCalibration, weaken: float) -> MomentCalibration:
    released = {name: getattr(calibration.scales, name) / weaken for name in calibration.blocks}
    return replace(
        calibration,
        scales=replace(calibration.scales, **released),
        off_diagonal=calibration.off_diagonal / weaken,
        joint_scale=calibration.joint_scale / weaken,
    )


def _score(first: Gram, second: Gram, calibration: MomentCalibration) -> Callable[[Release], float]:
    """Log likelihood ratio of a release, up to constants: what the best attacker would look at."""
    scale_xx, scale_xy = calibration.scales.xx, calibration.scales.xy
    (first_xx, first_xy), (second_xx, second_xy) = (_moments(exact) for exact in (first, second))
    if calibration.mechanism == "Gaussian":
        # Over all entries of the symmetric matrix: those off the diagonal have half the variance and stand twice.
        towards_xx, towards_xy = (second_xx - first_xx) / scale_xx**2, (second_xy - first_xy) / scale_xy**2
        return lambda release: float(
            np.sum(towards_xx * release.values["xx"]) + np.sum(towards_xy * release.values["xy"])
        )
    upper = np.triu_indices(len(first_xx))
    stretch = 2.0 ** round(math.log2(scale_xx / scale_xy))

    def distance(release: Release, xx: FloatArray, xy: FloatArray) -> float:
        moved = (release.values["xx"] - xx)[upper], stretch * (release.values["xy"] - xy).ravel()
        return float(np.linalg.norm(np.concatenate(moved)))

    return lambda release: distance(release, first_xx, first_xy) - distance(release, second_xx, second_xy)


def _moments(exact: Gram) -> tuple[FloatArray, FloatArray]:
    assert exact.xy is not None
    return exact.xx, exact.xy
