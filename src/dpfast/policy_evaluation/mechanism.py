"""Releases of policy evaluation: fits of first-visit returns with noise of data-dependent size, or sums over visits.

Write F_s for the mean first-visit return of the v_s trajectories, of m, that visit state s, in a public range of
`width`; Phi for the features, w and rho for public weights. Replacing one trajectory moves the returns of the states
that it visited or now visits. The releases and their sensitivities (Balle, Gomrokchi, Precup 2016, ICML):

- `WeightedMeans` (DP-LSW): B G^(1/2) F with G = diag(w), which moves by at most ``||B|| width sqrt(phi)`` with
  phi = sum of w_s/max(v_s, 1)**2. The printed algorithm takes B = (G^(1/2) Phi)^+ and so releases the coefficients.
  Here B has orthonormal rows that span the columns of G^(1/2) Phi: then ||B|| = 1, no coordinate has more noise than
  its share of the weighted squared error needs, and the coefficients follow by post-processing.
- `RidgeFit` (DP-LSL): theta, the minimiser of the sum over trajectories x and the states s in x of ``rho_s
  (F_{x,s} - phi_s'theta)**2`` plus ``lambda/2 ||theta||**2``. That is lambda-strongly convex, so theta moves by at most
  1/lambda times the change of the gradient at theta, 2 Phi'u. Here u_s is the change of rho_s F_{x,s} if both
  trajectories visit s, and rho_s (phi_s'theta - F_{x,s}) if one does. With ||theta|| at most
  ``width sqrt(sum of rho_s v_s)/sqrt(2 lambda)`` that is ``2 width ||Phi|| sqrt(phi)/lambda``, for every lambda > 0,
  phi as `dpfast.statistics.smooth_sensitivity_lsl` has it. The print divides by lambda - ||Phi||**2 max(rho) instead.
- A = sum of rho_s phi_s phi_s' and b = sum of rho_s phi_s F_s over trajectories and the states each visits
  (`dpfast.statistics.sufficient_statistics`), as moments of people who own a row for each state they visit
  (`dpfast.releases.moments`), with noise of public size (`visit_moments`). If every state has a feature and all weights
  are equal, returns are relative to the middle of their range. The noise is then calibrated by
  `dpfast.privacy.block_moments`, with its proof for two people who visit K of S states each.

The first two are computed in floating point, from exact sums; `tau` bounds the Euclidean distance to the exact
statistic of those sums, for any data, and enters the noise. u is 2**-53 and ``gamma_n = n u``, up to a factor that
`SLACK` covers. A smooth sensitivity errs by `SMOOTH_SENSITIVITY_ERROR`/2 and `ROUND_UP`, less than 2**-42 of itself;
`SmoothGaussian.smoothness` allows for 2**-40.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray, IntArray
from dpfast.privacy import Privacy, best_beta, gaussian_scale, smooth_gaussian
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.privacy.smooth_gaussian import UsualVariance
from dpfast.releases.mechanism import SLACK
from dpfast.releases.moments import DeclaredPeople, JointMoments
from dpfast.statistics import FirstVisitReturns, ReturnGrid, smooth_sensitivity, smooth_sensitivity_lsl
from dpfast.statistics.visits import visit_bounds

_UNIT_ROUNDOFF = 2.0**-53
# Beyond this relative error a system counts as unsolvable in double precision.
_LARGEST_PERTURBATION = 2.0**-10
# Less, or the inverse of more, is as good as none or all.
_SMALLEST_GROWTH = 1e-50


@dataclass(frozen=True, eq=False)
class Problem:
    """Public facts of a policy evaluation."""

    #: Phi, (n_states, n_features); None for one feature a state.
    features: FloatArray | None
    #: w or rho, (n_states,), nonnegative.
    weights: FloatArray
    #: The range of returns.
    grid: ReturnGrid
    #: Most steps of a trajectory that count.
    horizon: int | None
    #: Norms that one trajectory's part in the sums is scaled onto, of A and of b.
    block_bounds: tuple[float | None, float | None] = (None, None)
    #: Steps before the horizon at which visits do not count.
    lag: int = 0

    @property
    def centered(self) -> bool:
        """Whether returns are summed about the middle of their range: equal states, each with a feature."""
        alike = self.features is None and self.block_bounds == (None, None)
        return alike and bool(np.all(self.weights == self.weights[0]))

    @property
    def n_states(self) -> int:
        """How many states there are."""
        return len(self.weights)

    @property
    def most_visited(self) -> int:
        """Most states that a trajectory visits."""
        return self.n_states if self.horizon is None else min(self.horizon - self.lag, self.n_states)

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
        """Lower limit of lambda in the printed DP-LSL, rounded up."""
        return self.feature_norm**2 * float(self.weights.max()) * ROUND_UP

    @cached_property
    def squared_features(self) -> FloatArray:
        """``||phi_s||**2``, (n_states,)."""
        return np.ones(self.n_states) if self.features is None else np.asarray(np.sum(self.features**2, axis=1))

    @property
    def usual_slope(self) -> float:
        """Root mean square of the coefficients of returns spread evenly over their range."""
        if self.centered:
            return self.grid.width / math.sqrt(12.0)
        if self.features is None:
            return self.grid.width / math.sqrt(3.0)
        return self.grid.width / math.sqrt(3.0 * float(np.mean(self.squared_features)) / self.n_features)

    @property
    def entries_a_row(self) -> float:
        """Variance of an entry of A theta in units of that of A's diagonal, for coefficients of mean square 1."""
        # With features (theta_i**2 + ||theta||**2)/2, without them theta_i**2.
        return 1.0 if self.features is None else 0.5 * (self.n_features + 1)

    def information(self, m: int, visited: float | None = None) -> float:
        """Guess the eigenvalues of Phi' G Phi, summed over m trajectories: their mean."""
        return float(self.weights * self.usual_counts(m, visited) @ self.squared_features) / self.n_features

    def visits(self) -> dict[str, Any]:
        """Return what `sufficient_statistics` needs to sum trajectories."""
        xx, xy = self.block_bounds
        limits = self.grid.low, self.grid.high
        public = {"features": self.features, "weights": self.weights, "horizon": self.horizon, "lag": self.lag}
        return public | {"return_range": limits, "bound_xx": xx, "bound_xy": xy, "centered": self.centered}

    def values(self, coefficients: FloatArray) -> FloatArray:
        """Return the features times the coefficients."""
        return coefficients.copy() if self.features is None else self.features @ coefficients

    def usual_counts(self, m: int, visited: float | None = None) -> IntArray:
        """Guess how many of m trajectories visit each state; `visited` is their share, by default from the horizon."""
        return np.full(self.n_states, self.usual_count(m, visited), np.int64)

    def usual_count(self, m: int, visited: float | None = None) -> int:
        """Guess one of them: they are alike."""
        share = 0.5 * self.most_visited / self.n_states if visited is None else visited
        return max(1, min(m, round(m * share)))


def usual_lag(gamma: float, horizon: int | None, epsilon: float) -> int:
    """Choose how many steps before the horizon visits stop to count, from public numbers.

    A return there lacks up to gamma**lag of the rewards after the horizon. A lag of 1/(1 - gamma) steps makes this e
    times smaller. At epsilon = 1 the lag is one such length, and longer if there is less noise to hide a bias. It is at
    most a quarter of the horizon, since any step may be the only one at which some state is visited.
    """
    if horizon is None or gamma == 1.0:
        return 0
    return min(horizon // 4, round((1.0 + max(0.0, math.log(epsilon))) / (1.0 - gamma)))


def norm_bound(matrix: FloatArray) -> float:
    """Return the spectral norm, above the computed one by more than the error of the decomposition."""
    # Singular values err by p(n, d) u ||A||; LAPACK's manual has p "modestly growing": 16 n d is beyond any known case.
    computed = float(np.linalg.norm(matrix, 2))
    return computed * (1.0 + 16.0 * matrix.size * _UNIT_ROUNDOFF) * ROUND_UP


class Statistic(ABC):
    """A fit of m trajectories, and how far one of them moves it: a `SmoothStatistic`."""

    #: Number of coordinates that get noise.
    dim: int
    #: Euclidean norm of the error of `center`, at most, for any data.
    tau: float
    #: Root of the weighted sum of the variances of the values, for noise of scale 1.
    spread: float
    #: lambda.
    ridge: float = 0.0
    #: Origin of the fitted values.
    offset: float = 0.0
    #: Counts, equal for all states, with the least and the greatest sensitivity.
    extreme_counts: tuple[int, int]

    def __init__(self, problem: Problem, m: int) -> None:
        self.problem, self.m = problem, m

    @abstractmethod
    def center(self, sums: FirstVisitReturns) -> FloatArray:
        """Return the statistic, (dim,). **Not private**."""

    @abstractmethod
    def sensitivity_of_counts(self, counts: IntArray, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up: as private as the counts."""

    @abstractmethod
    def coefficients(self, released: FloatArray) -> FloatArray:
        """Return the coefficients of the features, (n_features,): post-processing."""

    def smooth_sensitivity(self, sums: FirstVisitReturns, beta: float) -> float:
        """Return the bound for the data owner's sums. **Not private**."""
        return self.sensitivity_of_counts(sums.counts, beta)

    def extreme_sensitivities(self, beta: float) -> tuple[float, float]:
        """Return the least and the greatest bound over all data of m trajectories: public."""
        least, greatest = (
            self.sensitivity_of_counts(np.full(self.problem.n_states, count), beta) for count in self.extreme_counts
        )
        return least, greatest

    def beta(self, privacy: Privacy) -> float:
        """Choose the smoothness that is best for states visited as often as may be expected, from public numbers."""
        return best_beta(*privacy.target, self.dim, self.usual_variance(self.problem.usual_count(self.m)))

    @abstractmethod
    def usual_variance(self, count: int) -> UsualVariance:
        """Return the square of the sensitivity, in any unit, where all states are visited alike."""


@dataclass(frozen=True)
class _VarianceOfMeans(UsualVariance):
    """Of the mean at one state."""

    count: int

    def __call__(self, beta: float) -> float:
        return smooth_sensitivity([self.count], [1.0], beta)


@dataclass(frozen=True)
class _VarianceOfRidge(UsualVariance):
    """Of a ridge regression on one state, where ``phi_k = (growth * sqrt(min(count + k, m)) + 1)**2``."""

    count: int
    m: int
    growth: float

    def __call__(self, beta: float) -> float:
        growth = min(max(self.growth, _SMALLEST_GROWTH), 1.0 / _SMALLEST_GROWTH)
        return smooth_sensitivity_lsl([self.count], [1.0], beta, n_trajectories=self.m, feature_norm=growth, ridge=0.5)


class WeightedMeans(Statistic):
    """DP-LSW: mean returns in coordinates of the weighted features.

    The printed one releases the coefficients themselves, and sums the sensitivity over all states.
    """

    def __init__(self, problem: Problem, m: int, printed: bool = False) -> None:
        super().__init__(problem, m)
        self.extreme_counts = m, 0
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
        self._norm = (1.0 / float(root.min()) if printed else 1.0) * ROUND_UP
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
        # In one order: a model that was saved has it in this one, and solves to the same bit.
        self._solve = np.eye(self.dim) if printed else np.ascontiguousarray(solve)
        self.spread = float(np.linalg.norm(singular)) if printed else math.sqrt(self.dim)
        self._norm = norm_bound(orthonormal) * ROUND_UP
        self.tau = self._error(np.abs(self._rows).sum(axis=1), self.problem.n_states)

    def _error(self, row_sums: FloatArray, n_terms: int) -> float:
        """Bound the error of rows times means: of each mean, and gamma_n of sums of n terms, in any order."""
        grid = self.problem.grid
        relative = (n_terms + 2) * _UNIT_ROUNDOFF
        reach = max(abs(grid.low), abs(grid.high))
        return (relative * reach + grid.mean_error) * float(np.linalg.norm(row_sums)) * SLACK

    def center(self, sums: FirstVisitReturns) -> FloatArray:
        """Return the means in these coordinates. **Not private**."""
        means = sums.means(self.default)
        return self._rows * means[self._used] if self.problem.features is None else self._rows @ means

    def sensitivity_of_counts(self, counts: IntArray, beta: float) -> float:
        """Return ``||B|| width`` times the smooth bound on sqrt(phi)."""
        psi = smooth_sensitivity(counts, self.problem.weights, beta, top=self._top)
        return self._norm * self.problem.grid.width * math.sqrt(psi) * ROUND_UP

    def usual_variance(self, count: int) -> UsualVariance:
        """Return the squared sensitivity at one state: with equal counts the weights are a factor."""
        return _VarianceOfMeans(count)

    def coefficients(self, released: FloatArray) -> FloatArray:
        """Solve for them from the coordinates; the shortest where features depend on each other."""
        if self.problem.features is not None:
            return self._solve @ released
        coefficients = np.zeros(self.problem.n_states)
        coefficients[self._used] = self._solve * released
        return coefficients

    def beta(self, privacy: Privacy) -> float:
        """Choose the smoothness: at least the usual one, lest rarely visited states drown the others."""
        return max(smooth_gaussian(*privacy.target, self.dim).beta, super().beta(privacy))


class RidgeFit(Statistic):
    """DP-LSL: ridge regression of returns on features, less the lower end of the range.

    The sensitivity as printed needs a ridge above `Problem.floor`; any needs one that double precision can solve with.
    """

    def __init__(self, problem: Problem, m: int, ridge: float, printed: bool = False) -> None:
        super().__init__(problem, m)
        if printed and not ridge > problem.floor:
            raise ValueError(
                "ridge must be above ||Phi||^2 max(weights) for the printed sensitivity, here "
                f"{problem.floor:.6g}, got {ridge!r}; calibration='sound' takes any"
            )
        self.dim = problem.n_features
        self.spread = math.sqrt(float(problem.weights @ problem.squared_features))
        self.ridge, self.offset = ridge, problem.grid.low
        self.extreme_counts = 0, m
        self._top = None if printed else 2 * problem.most_visited
        convexity = (ridge - problem.floor) / ROUND_UP if printed else ridge
        self._factor = 2.0 * problem.grid.width * problem.feature_norm / convexity
        self.tau = self._error()

    def _error(self) -> float:
        """Bound the error of the solution, for all counts and returns there can be.

        The computed one solves (K + E) x = b + e with K at least lambda/2: its error is at most
        (||e|| + ||E|| ||theta||)/(lambda/2 - ||E||). Products err by gamma_(n + 4) of those of absolute values, and
        Cholesky with its two triangular solves by d gamma_(3d + 1) ||K|| (Higham 2002, Theorem 10.4 and the bound after
        it); 4 times this is used.
        """
        problem, half, rho = self.problem, 0.5 * self.ridge, self.problem.weights
        visits = self.m * float(np.sum(np.sort(rho)[::-1][: problem.most_visited]))
        longest = problem.grid.width * math.sqrt(visits / (2.0 * self.ridge)) * SLACK
        if problem.features is None:
            return 8.0 * _UNIT_ROUNDOFF * longest
        d = problem.n_features
        products = (problem.n_states + 4) * _UNIT_ROUNDOFF
        trace = self.m * float(rho @ problem.squared_features)
        largest = min(trace, self.m * problem.floor) + half
        right = products * self.m * problem.grid.width * float(np.linalg.norm(np.abs(problem.features).T @ rho))
        perturbation = (products * trace + 4.0 * d * (3 * d + 1) * _UNIT_ROUNDOFF * largest) * SLACK / half
        if not perturbation <= _LARGEST_PERTURBATION:
            raise ValueError(
                f"ridge is too small for {self.m} trajectories to be solved for in double precision, got {self.ridge!r}"
            )
        return (right * SLACK / half + perturbation * longest) / (1.0 - perturbation) * SLACK

    def center(self, sums: FirstVisitReturns) -> FloatArray:
        """Return theta. **Not private**."""
        problem, half = self.problem, 0.5 * self.ridge
        totals = problem.weights * np.ldexp(sums.units.astype(np.float64), -problem.grid.exponent)
        visits = problem.weights * sums.counts
        if problem.features is None:
            return np.asarray(totals / (visits + half))
        system = (problem.features.T * visits) @ problem.features + half * np.eye(self.dim)
        return np.asarray(linalg.cho_solve(linalg.cho_factor(system), problem.features.T @ totals))

    def sensitivity_of_counts(self, counts: IntArray, beta: float) -> float:
        """Return ``2 width ||Phi||/lambda`` times the smooth bound on sqrt(phi)."""
        problem = self.problem
        psi = smooth_sensitivity_lsl(
            counts,
            problem.weights,
            beta,
            n_trajectories=self.m,
            feature_norm=problem.feature_norm,
            ridge=self.ridge,
            top=self._top,
        )
        return self._factor * math.sqrt(psi) * ROUND_UP

    def usual_variance(self, count: int) -> UsualVariance:
        """Return the squared sensitivity at one state with the same effect on the minimiser as all together."""
        rho = np.sort(self.problem.weights)[::-1]
        visits = self.problem.feature_norm * float(rho[0]) * math.sqrt(float(rho.sum()) / (2.0 * self.ridge))
        return _VarianceOfRidge(count, self.m, visits / float(np.linalg.norm(rho[: self._top])))

    def coefficients(self, released: FloatArray) -> FloatArray:
        """Return the released values: they are theta."""
        return released.copy()


def usual_ridge(problem: Problem, m: int, privacy: Privacy, printed: bool = False) -> float:
    """Return a lambda that grows like sqrt(m), from public numbers.

    ``||Phi||**2 sqrt(32 a max(rho) ||rho|| m)``, a the noise per unit of sensitivity: noise of a value, about ``2 a
    width ||Phi||**2 ||rho||/lambda`` and more, and shrinkage, about ``width lambda/(4 m max(rho) ||Phi||**2)``, then
    are of one size. The printed algorithm adds this to its lower limit.
    """
    alpha = gaussian_scale(*privacy.target)
    spread = float(problem.weights.max()) * float(np.linalg.norm(problem.weights))
    ridge = problem.feature_norm**2 * math.sqrt(32.0 * alpha * spread * m)
    return ridge + problem.floor * SLACK if printed else ridge


def statistic_of(
    method: str, problem: Problem, m: int, privacy: Privacy, ridge: float | None, *, printed: bool
) -> Statistic:
    """Return the fit of mean returns, "lsw" or "lsl", by default with its usual ridge."""
    if method == "lsw":
        return WeightedMeans(problem, m, printed)
    return RidgeFit(problem, m, usual_ridge(problem, m, privacy, printed) if ridge is None else float(ridge), printed)


def visit_moments(problem: Problem, privacy: Privacy) -> JointMoments:
    """Return the least noise for A and b, weighted by its effect on the residual b - A theta, by public numbers."""
    public = visit_bounds(problem.n_states, **problem.visits())
    return JointMoments.calibrate(
        privacy,
        public.radii,
        (problem.n_features, 1),
        {"xx": problem.usual_slope**2 * problem.entries_a_row, "xy": 1.0},
        nonnegative=public.nonnegative,
        people=DeclaredPeople(public.unit, public.block, counted_as="row"),
        diagonal=public.diagonal,
    )
