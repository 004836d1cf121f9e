"""DP-LSW and DP-LSL: fits of first-visit returns, released with Gaussian noise whose size depends on the data.

Write F_s for the mean first-visit return of the v_s trajectories, of m, that visit state s, in a public range of
`width`; Phi for the features, w and rho for public weights. One trajectory, replaced, moves the returns of the states
that it visited or now visits. What is released, and how far it moves (Balle, Gomrokchi, Precup 2016, ICML):

- `WeightedMeans` (DP-LSW): B G^(1/2) F with G = diag(w), which moves by at most ``||B|| width sqrt(phi)`` with
  phi = sum of w_s/max(v_s, 1)**2. The printed algorithm takes B = (G^(1/2) Phi)^+ and so releases the coefficients.
  Here B has orthonormal rows that span the columns of G^(1/2) Phi: then ||B|| = 1, no coordinate has more noise than
  its share of the weighted squared error asks for, and the coefficients follow by post-processing.
- `RidgeFit` (DP-LSL): theta, the minimiser of the sum over trajectories x and the states s in x of
  ``rho_s (F_{x,s} - phi_s'theta)**2`` plus ``lambda/2 ||theta||**2``. That is lambda-strongly convex, so theta moves by
  at most 1/lambda times the change of the gradient at theta: 2 Phi'u, where u_s is the change of rho_s F_{x,s} where
  both trajectories visit s, and rho_s (phi_s'theta - F_{x,s}) where one does. With ||theta|| at most
  ``width sqrt(sum of rho_s v_s)/sqrt(2 lambda)`` that is ``2 width ||Phi|| sqrt(phi)/lambda``, for every lambda > 0,
  phi as `dpfast.statistics.smooth_sensitivity_lsl` has it. The print divides by lambda - ||Phi||**2 max(rho) instead.

Both are computed in floating point, from exact sums; `tau` bounds the Euclidean distance to the exact statistic of
those sums, for any data, and enters the noise. u is 2**-53 and ``gamma_n = n u``, up to a factor that `_SLACK` covers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import linalg

from dpfast import noise
from dpfast._arrays import FloatArray, IntArray
from dpfast.ledger import Release
from dpfast.privacy import (
    Privacy,
    SmoothGaussian,
    best_beta,
    gaussian_scale,
    smooth_gaussian,
    smooth_gaussian_delta,
)
from dpfast.releases.printed import printed
from dpfast.statistics import FirstVisitReturns, ReturnGrid, smooth_sensitivity, smooth_sensitivity_lsl

Constants = Literal["sound", "paper", "icml"]

_UNIT_ROUNDOFF = 2.0**-53
# More than what bounds computed in a few roundings, or by sums of positive numbers, can lack.
_SLACK = 1.0 + 2.0**-20
# A few roundings of a smooth sensitivity, of which `SmoothGaussian.smoothness` allows for 2**-40.
_ROUND_UP = 1.0 + 2.0**-48
# Beyond this relative error a system counts as unsolvable in double precision.
_LARGEST_PERTURBATION = 2.0**-10


@dataclass(frozen=True, eq=False)
class Problem:
    """What is public of a policy evaluation.

    Parameters
    ----------
    features : ndarray of shape (n_states, n_features) or None
        Phi; None for one feature a state.
    weights : ndarray of shape (n_states,)
        w or rho, nonnegative.
    grid : ReturnGrid
        The range of returns.
    horizon : int or None
        Most states that a trajectory visits.
    """

    features: FloatArray | None
    weights: FloatArray
    grid: ReturnGrid
    horizon: int | None

    @property
    def n_states(self) -> int:
        """How many states there are."""
        return len(self.weights)

    @property
    def most_visited(self) -> int:
        """Most states that a trajectory visits."""
        return self.n_states if self.horizon is None else min(self.horizon, self.n_states)

    @property
    def n_features(self) -> int:
        """Number of coefficients."""
        return self.n_states if self.features is None else self.features.shape[1]

    @cached_property
    def feature_norm(self) -> float:
        """Spectral norm of the features, rounded up."""
        return 1.0 if self.features is None else norm_bound(self.features)

    @property
    def floor(self) -> float:
        """What the printed DP-LSL needs lambda to exceed, rounded up."""
        return self.feature_norm**2 * float(self.weights.max()) * _ROUND_UP

    @cached_property
    def squared_features(self) -> FloatArray:
        """``||phi_s||**2``, (n_states,)."""
        return np.ones(self.n_states) if self.features is None else np.asarray(np.sum(self.features**2, axis=1))

    @property
    def usual_slope(self) -> float:
        """Root mean square of the coefficients of returns spread evenly over their range."""
        if self.features is None:
            return self.grid.width / math.sqrt(3.0)
        return self.grid.width / math.sqrt(3.0 * float(np.mean(self.squared_features)) / self.n_features)

    def information(self, m: int, visited: float | None = None) -> float:
        """Guess the eigenvalues of Phi' G Phi, summed over m trajectories: their mean."""
        return float(self.weights * self.usual_counts(m, visited) @ self.squared_features) / self.n_features

    def values(self, coefficients: FloatArray) -> FloatArray:
        """Return the features times the coefficients."""
        return coefficients.copy() if self.features is None else self.features @ coefficients

    def usual_counts(self, m: int, visited: float | None = None) -> IntArray:
        """Guess how many of m trajectories visit each state; `visited` is their share, by default from the horizon."""
        share = 0.5 * self.most_visited / self.n_states if visited is None else visited
        return np.full(self.n_states, max(1, min(m, round(m * share))), np.int64)


def norm_bound(matrix: FloatArray) -> float:
    """Return the spectral norm, above the computed one by more than the error of the decomposition.

    Singular values err by p(n, d) u ||A||; LAPACK's manual has p "modestly growing", and 16 n d is beyond what is known
    of it.
    """
    computed = float(np.linalg.norm(matrix, 2))
    return computed * (1.0 + 16.0 * matrix.size * _UNIT_ROUNDOFF) * _ROUND_UP


class Statistic(ABC):
    """What is released but for its noise, and how far one trajectory moves it.

    Parameters
    ----------
    problem : Problem
        What is public.
    """

    #: Number of coordinates that get noise.
    dim: int
    #: Euclidean norm of the error of `center`, at most, for any data.
    tau: float
    #: Root of the weighted sum of the variances of the values, for noise of scale 1.
    spread: float

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def center(self, returns: FirstVisitReturns) -> FloatArray:
        """Return the statistic, (dim,). **Not private**."""

    @abstractmethod
    def smooth_sensitivity(self, counts: IntArray, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up. **Not private**."""

    @abstractmethod
    def extreme_counts(self, m: int) -> tuple[int, int]:
        """Return the counts, alike for all states, of which the sensitivity is least and greatest."""

    @abstractmethod
    def coefficients(self, released: FloatArray) -> FloatArray:
        """Return the coefficients of the features, (n_features,): post-processing."""

    @abstractmethod
    def beta(self, privacy: Privacy, m: int) -> float:
        """Choose the smoothness from public numbers."""

    def _best_beta(self, privacy: Privacy, m: int) -> float:
        counts = self.problem.usual_counts(m)
        return best_beta(*privacy.target, self.dim, lambda beta: self.smooth_sensitivity(counts, beta) ** 2)

    def scales(self, calibration: SmoothGaussian, m: int) -> tuple[float, float]:
        """Return the least and the greatest scale of the noise over all data of m trajectories: public."""
        beta = calibration.smoothness()
        least, greatest = (
            calibration.scale(self.smooth_sensitivity(np.full(self.problem.n_states, count), beta), self.tau)
            for count in self.extreme_counts(m)
        )
        return least, greatest * _SLACK

    def scale(self, calibration: SmoothGaussian, counts: IntArray) -> float:
        """Return the scale of the noise for data with these counts. **Not private**."""
        return calibration.scale(self.smooth_sensitivity(counts, calibration.smoothness()), self.tau)


class WeightedMeans(Statistic):
    """DP-LSW: mean returns in coordinates of the weighted features.

    Parameters
    ----------
    problem : Problem
        With w for weights, not 0 for all states that features tell apart.
    printed : bool
        Release the coefficients themselves, and sum the sensitivity over all states, as the paper does.
    """

    def __init__(self, problem: Problem, printed: bool = False) -> None:
        super().__init__(problem)
        self._top = None if printed else 2 * problem.most_visited
        #: Of states that nobody visits: 0, or the end of the rounded range that is nearest to it.
        self.default = min(max(0.0, problem.grid.low), problem.grid.top)
        self._root = np.sqrt(problem.weights)
        self._used = problem.weights > 0.0
        if problem.features is None:
            self._tabular(printed)
        else:
            self._featured(problem.features, printed)

    def _tabular(self, printed: bool) -> None:
        root = self._root[self._used]
        self.dim = len(root)
        if printed and self.dim < self.problem.n_states:
            raise ValueError("weights must be positive for the printed algorithm, which has no other")
        self._rows = np.ones_like(root) if printed else root
        self._solve = np.ones_like(root) if printed else 1.0 / root
        self.spread = float(np.linalg.norm(root)) if printed else math.sqrt(self.dim)
        # ||B|| is that of the ratio of the rows to the roots of the weights.
        self._norm = (1.0 / float(root.min()) if printed else 1.0) * _ROUND_UP
        self.tau = self._error(self._rows, 1)

    def _featured(self, features: FloatArray, printed: bool) -> None:
        left, singular, right = linalg.svd(self._root[:, None] * features, full_matrices=False)
        # The usual cut-off of numerical rank.
        rank = int(np.sum(singular > max(features.shape) * np.finfo(np.float64).eps * singular[0]))
        if rank == 0:
            raise ValueError("features must not be 0 in all states that have a weight")
        if printed and rank < features.shape[1]:
            raise ValueError("features must have full column rank, weighted, for the printed algorithm")
        left, solve = left[:, :rank], right[:rank].T / singular[:rank]
        orthonormal = (solve @ left.T) if printed else left.T
        self.dim = len(orthonormal)
        self._rows = orthonormal * self._root
        self._solve = np.eye(self.dim) if printed else solve
        self.spread = float(np.linalg.norm(singular)) if printed else math.sqrt(self.dim)
        self._norm = norm_bound(orthonormal) * _ROUND_UP
        self.tau = self._error(np.abs(self._rows).sum(axis=1), self.problem.n_states)

    def _error(self, row_sums: FloatArray, n_terms: int) -> float:
        """Bound the error of rows times means: of each mean, and gamma_n of sums of so many terms, in any order."""
        grid = self.problem.grid
        relative = (n_terms + 2) * _UNIT_ROUNDOFF
        reach = max(abs(grid.low), abs(grid.high))
        return (relative * reach + grid.mean_error) * float(np.linalg.norm(row_sums)) * _SLACK

    def center(self, returns: FirstVisitReturns) -> FloatArray:
        """Return the statistic, (dim,). **Not private**."""
        means = returns.means(self.default)
        return self._rows * means[self._used] if self.problem.features is None else self._rows @ means

    def smooth_sensitivity(self, counts: IntArray, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up. **Not private**."""
        psi = smooth_sensitivity(counts, self.problem.weights, beta, top=self._top)
        return self._norm * self.problem.grid.width * math.sqrt(psi) * _ROUND_UP

    def extreme_counts(self, m: int) -> tuple[int, int]:
        """Return the counts, alike for all states, of which the sensitivity is least and greatest."""
        return m, 0

    def coefficients(self, released: FloatArray) -> FloatArray:
        """Return the coefficients of the features, (n_features,): post-processing."""
        if self.problem.features is not None:
            return self._solve @ released
        coefficients = np.zeros(self.problem.n_states)
        coefficients[self._used] = self._solve * released
        return coefficients

    def beta(self, privacy: Privacy, m: int) -> float:
        """Choose the smoothness: at least the usual one, lest rarely visited states drown the others."""
        usual = smooth_gaussian(*privacy.target, self.dim).beta
        return max(usual, self._best_beta(privacy, m))


class RidgeFit(Statistic):
    """DP-LSL: ridge regression of returns on features, less the lower end of the range.

    Parameters
    ----------
    problem : Problem
        With rho for weights.
    m : int
        Number of trajectories, public.
    ridge : float
        lambda, positive.
    printed : bool
        Take the sensitivity as printed, which needs a ridge above `Problem.floor`.

    Raises
    ------
    ValueError
        If the ridge is too small for the printed sensitivity, or for double precision.
    """

    def __init__(self, problem: Problem, m: int, ridge: float, printed: bool = False) -> None:
        super().__init__(problem)
        if printed and not ridge > problem.floor:
            raise ValueError(
                "ridge must be above ||Phi||^2 max(weights) for the printed sensitivity, here "
                f"{problem.floor:.6g}, got {ridge!r}; calibration='sound' takes any"
            )
        self.dim = problem.n_features
        self.spread = math.sqrt(float(problem.weights @ problem.squared_features))
        self._m, self._ridge = m, ridge
        self._top = None if printed else 2 * problem.most_visited
        convexity = (ridge - problem.floor) / _ROUND_UP if printed else ridge
        self._factor = 2.0 * problem.grid.width * problem.feature_norm / convexity
        self.tau = self._error()

    def _error(self) -> float:
        """Bound the error of the solution, for all counts and returns there can be.

        The computed one solves (K + E) x = b + e with K at least lambda/2: its error is at most
        (||e|| + ||E|| ||theta||)/(lambda/2 - ||E||). Products err by gamma_(n + 4) of those of absolute values, and
        Cholesky with its two triangular solves by d gamma_(3d + 1) ||K|| (Higham 2002, Theorem 10.4 and the bound
        after it), of which 4 times is taken.
        """
        problem, half, rho = self.problem, 0.5 * self._ridge, self.problem.weights
        visits = self._m * float(np.sum(np.sort(rho)[::-1][: problem.most_visited]))
        longest = problem.grid.width * math.sqrt(visits / (2.0 * self._ridge)) * _SLACK
        if problem.features is None:
            return 8.0 * _UNIT_ROUNDOFF * longest
        d = problem.n_features
        products = (problem.n_states + 4) * _UNIT_ROUNDOFF
        trace = self._m * float(rho @ problem.squared_features)
        largest = min(trace, self._m * problem.floor) + half
        right = products * self._m * problem.grid.width * float(np.linalg.norm(np.abs(problem.features).T @ rho))
        perturbation = (products * trace + 4.0 * d * (3 * d + 1) * _UNIT_ROUNDOFF * largest) * _SLACK / half
        if not perturbation <= _LARGEST_PERTURBATION:
            raise ValueError(
                f"ridge is too small for {self._m} trajectories to be solved for in double precision, got "
                f"{self._ridge!r}"
            )
        return (right * _SLACK / half + perturbation * longest) / (1.0 - perturbation) * _SLACK

    def center(self, returns: FirstVisitReturns) -> FloatArray:
        """Return the statistic, (dim,). **Not private**."""
        problem, half = self.problem, 0.5 * self._ridge
        sums = problem.weights * np.ldexp(returns.units.astype(np.float64), -problem.grid.exponent)
        visits = problem.weights * returns.counts
        if problem.features is None:
            return np.asarray(sums / (visits + half))
        system = (problem.features.T * visits) @ problem.features + half * np.eye(self.dim)
        return np.asarray(linalg.cho_solve(linalg.cho_factor(system), problem.features.T @ sums))

    def smooth_sensitivity(self, counts: IntArray, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up. **Not private**."""
        problem = self.problem
        psi = smooth_sensitivity_lsl(
            counts,
            problem.weights,
            beta,
            n_trajectories=self._m,
            feature_norm=problem.feature_norm,
            ridge=self._ridge,
            top=self._top,
        )
        return self._factor * math.sqrt(psi) * _ROUND_UP

    def extreme_counts(self, m: int) -> tuple[int, int]:
        """Return the counts, alike for all states, of which the sensitivity is least and greatest."""
        return 0, m

    def coefficients(self, released: FloatArray) -> FloatArray:
        """Return the coefficients of the features, (n_features,): they are what was released."""
        return released.copy()

    def beta(self, privacy: Privacy, m: int) -> float:
        """Choose the smoothness that is best for states visited as often as may be expected."""
        return self._best_beta(privacy, m)


def usual_ridge(problem: Problem, m: int, privacy: Privacy, printed: bool = False) -> float:
    """Return a lambda that grows like sqrt(m), from public numbers.

    ``||Phi||**2 sqrt(32 a max(rho) ||rho|| m)``, a the noise per unit of sensitivity: noise of a value, about
    ``2 a width ||Phi||**2 ||rho||/lambda`` and more, and shrinkage, about ``width lambda/(4 m max(rho) ||Phi||**2)``,
    then are of one size. The printed algorithm has that above what it cannot go below.
    """
    alpha = gaussian_scale(*privacy.target)
    spread = float(problem.weights.max()) * float(np.linalg.norm(problem.weights))
    ridge = problem.feature_norm**2 * math.sqrt(32.0 * alpha * spread * m)
    return ridge + problem.floor * _SLACK if printed else ridge


def calibrate(statistic: Statistic, m: int, privacy: Privacy, constants: Constants) -> SmoothGaussian:
    """Return the noise per unit of sensitivity, and the smoothness, from public numbers.

    Parameters
    ----------
    statistic : Statistic
        What is released.
    m : int
        Number of trajectories.
    privacy : Privacy
        Target; its delta is positive.
    constants : {"sound", "paper", "icml"}
        The exact ones, or those printed in the supplement or in the conference's algorithms.

    Returns
    -------
    SmoothGaussian

    Warns
    -----
    UnsoundCalibrationWarning
        If printed constants miss the delta they are printed for.
    """
    if constants == "sound":
        return smooth_gaussian(*privacy.target, statistic.dim, statistic.beta(privacy, m))
    calibrated: SmoothGaussian = printed("policy_evaluation", "printed_smooth_gaussian")(
        privacy.epsilon, privacy.delta, statistic.dim, constants
    )
    return calibrated


def draw(
    returns: FirstVisitReturns,
    statistic: Statistic,
    calibration: SmoothGaussian,
    privacy: Privacy,
    source: noise.BitSource,
    name: str,
    constants: Constants,
) -> Release:
    """Add the noise: the only place where the statistic turns into something public.

    The noise's scale is private. Nothing in the release depends on it but the values themselves: the grid comes from
    the least and the greatest scale that any data could have, and no scale is recorded.

    Parameters
    ----------
    returns : FirstVisitReturns
        The data owner's exact sums.
    statistic : Statistic
        What is released.
    calibration : SmoothGaussian
        The noise per unit of sensitivity.
    privacy : Privacy
        The guarantee, or the claim of printed constants.
    source : BitSource
        Where bits come from.
    name : str
        What the release is called in the ledger's report.
    constants : {"sound", "paper", "icml"}
        Whose `calibration` it is.

    Returns
    -------
    Release
        Its values are "coordinates".
    """
    least_and_most = statistic.scales(calibration, returns.n_trajectories)
    source = source.bound(name, calibration, privacy, constants, least_and_most, statistic.dim)
    grid = noise.grid_for_scales(*least_and_most)
    released = noise.gaussian(
        statistic.scale(calibration, returns.counts),
        statistic.dim,
        source,
        center=statistic.center(returns),
        grid=grid,
    )
    provided = smooth_gaussian_delta(calibration.alpha, calibration.beta, privacy.epsilon, statistic.dim)
    return Release(
        name,
        "data-dependent Gaussian",
        privacy,
        {"coordinates": released},
        {},
        grid={"coordinates": grid},
        calibration="sound" if constants == "sound" else "paper",
        guaranteed=provided <= privacy.delta,
        reproducible=source.reproducible,
    )
