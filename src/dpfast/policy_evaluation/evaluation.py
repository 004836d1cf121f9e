"""Releases of a policy evaluation by any mechanism, the values computed from them, and their expected error.

The error due to privacy is computed from public numbers, as a share of the range of returns.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.policy_evaluation.mechanism import Problem, Statistic
from dpfast.releases.mechanism import Around, DataDependentGaussian, Mechanism, Query, SingleRelease, Stages, given
from dpfast.releases.moments import JointMoments
from dpfast.solvers.ridge import MomentNoise, NoisyMoments, automatic_diagonal_ridge, eigh, ridge_from_moments
from dpfast.solvers.state_values import ridge_values, shrunken_values

# Of values in the middle of the range, which noise of half of its width moves; of others more is beyond.
_BEYOND = 0.2


class Run(NamedTuple):
    """Public facts of a fit, and the name of its release in records."""

    problem: Problem
    gamma: float
    what: str


class Evaluated(NamedTuple):
    """Estimates from the releases of a fit."""

    coef: FloatArray
    #: Origin of the coefficients.
    offset: float
    #: The paper's lambda.
    ridge: float
    #: Share of the range that values are expected to be off by.
    error: float
    #: None where the noise has a private size.
    value_std: FloatArray | None = None
    #: The problem with the range that was found, if it was to be.
    narrow: Problem | None = None
    #: Why limits are wide or missing, if they are.
    caution: str = ""


class VisitSolver(NamedTuple):
    """How values follow from released sums over visits."""

    ridge: float | None
    shrinkage: bool

    def solve(self, released: Release, moments: JointMoments, problem: Problem) -> Evaluated:
        """Return the estimates from the sums; the default ridge is determined by the known noise."""
        coef, std, ridge, offset = self._estimates(released.values["xx"], released.values["xy"], moments.noise, problem)
        error = visit_error(moments, problem, released_information(released, moments))
        return Evaluated(coef, offset, 2.0 * ridge, error, std)

    def _estimates(
        self, xx: FloatArray, xy: FloatArray, noisy: MomentNoise, problem: Problem
    ) -> tuple[FloatArray, FloatArray, float, float]:
        """Return coefficients, deviations of values from the noise, what was added to the diagonal, and the origin."""
        penalty, grid = None if self.ridge is None else 0.5 * self.ridge, problem.grid
        if problem.centered:
            sums, limits = (xx, xy, noisy), (grid.low - grid.middle, grid.top - grid.middle)
            found = shrunken_values(*sums, limits) if self.shrinkage else ridge_values(*sums, limits, penalty)
            return found.above, found.deviation, found.ridge, grid.middle + found.pooled
        if problem.features is not None:
            fit = ridge_from_moments(NoisyMoments(xx, xy.reshape(-1, 1), noisy), penalty)
            std = _value_std(xx, fit.coef[0], problem.features, fit.ridge, noisy)
            return fit.coef[0], std, fit.ridge, grid.low
        penalty = automatic_diagonal_ridge(xx, xy, noisy) if penalty is None else penalty
        visits = np.maximum(xx, 0.0) + penalty
        coef, std = np.zeros_like(xy), np.zeros_like(xy)
        np.divide(xy, visits, out=coef, where=visits > 0.0)
        np.divide(np.hypot(noisy.cross, noisy.diagonal * coef), visits, out=std, where=visits > 0.0)
        return coef, std, penalty, grid.low


def _value_std(xx: FloatArray, coef: FloatArray, features: FloatArray, ridge: float, noisy: MomentNoise) -> FloatArray:
    """First-order standard deviation of Phi theta, theta = R b with R = (A + ridge I)^-1.

    The noise E of A moves b - A theta by E theta. Its covariance is ``o (||theta||**2 I + theta theta')`` plus ``(c - 2
    o) diag(theta**2)``, with o the variance off the diagonal and c the variance on it.
    """
    values, vectors = eigh(xx)
    rows = features @ (vectors / (np.maximum(values, 0.0) + ridge)) @ vectors.T
    on, off = noisy.diagonal**2, noisy.off_diagonal**2
    variance = np.sum(rows**2, axis=1) * (noisy.cross**2 + off * float(coef @ coef)) + off * (rows @ coef) ** 2
    variance += rows**2 @ coef**2 * (on - 2.0 * off)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


@dataclass(frozen=True, eq=False)
class PolicyMechanism(Mechanism[Evaluated]):
    """Common base of the mechanisms: seeded noise is bound to discount, features and weights."""

    run: Run

    @property
    def problem(self) -> Problem:
        """Public facts of the fit."""
        return self.run.problem

    def seeded_for(self, source: noise.BitSource) -> noise.BitSource:
        """Bind seeded noise to the public values."""
        return source.bound(float(self.run.gamma), self.problem.features, self.problem.weights)

    @abstractmethod
    def expected_error(self, m: int, visited: float | None) -> float:
        """Return the error to expect of m trajectories, as a share of the range."""


@dataclass(frozen=True, eq=False)
class SinglePolicy(PolicyMechanism, Around[Evaluated]):
    """Those of one release."""

    single: SingleRelease

    @property
    def inner(self) -> SingleRelease:
        """The release; it has no scales where the size of its noise is private."""
        return self.single

    def stages(self) -> Stages[Evaluated]:
        """Ask for the release."""
        released = yield Query(self.run.what, self.single, given)
        return lambda: self._solved(released)

    @abstractmethod
    def _solved(self, released: Release) -> Evaluated:
        """Return the estimates from the release."""


@dataclass(frozen=True, eq=False)
class Visits(SinglePolicy):
    """Sums over visits, with noise of public size."""

    single: JointMoments
    solver: VisitSolver

    def _solved(self, released: Release) -> Evaluated:
        """Solve from the sums."""
        return self.solver.solve(released, self.single, self.problem)

    def expected_error(self, m: int, visited: float | None) -> float:
        """Expect visits to be spread evenly."""
        return visit_error(self.single, self.problem, self.problem.information(m, visited))


@dataclass(frozen=True, eq=False)
class Returns(SinglePolicy):
    """A fit of mean returns, with noise of private size: DP-LSW or DP-LSL."""

    single: DataDependentGaussian[Statistic]

    def _solved(self, released: Release) -> Evaluated:
        """Estimate the error from released values beyond the range of returns.

        Standard deviations are not available here. If noise is half of the range's width, the root mean square of the
        excess is at least `_BEYOND` of that.
        """
        statistic, problem = self.single.statistic, self.problem
        coef = statistic.coefficients(released.values["coordinates"])
        values, grid = problem.values(coef) + statistic.offset, problem.grid
        beyond = np.abs(values - np.clip(values, grid.low, grid.high)) / grid.width
        weighted = math.sqrt(float(problem.weights @ beyond**2) / float(problem.weights.sum()))
        return Evaluated(coef, statistic.offset, statistic.ridge, 0.5 * weighted / _BEYOND)

    def expected_error(self, m: int, visited: float | None) -> float:
        """Root of the weighted mean square of noise and shrinkage over states that are visited equally often.

        The noise was calibrated for m.
        """
        single, statistic, problem = self.single, self.single.statistic, self.problem
        counts = problem.usual_counts(m, visited)
        noisy = single.scale(statistic.sensitivity_of_counts(counts, single.smoothness)) * statistic.spread
        noisy /= math.sqrt(float(problem.weights.sum())) * problem.grid.width
        # Of values in the middle of the range.
        shrunk = 0.5 * statistic.ridge / (statistic.ridge + 2.0 * problem.information(m, visited))
        return math.hypot(noisy, shrunk)


def visit_error(mechanism: JointMoments, problem: Problem, information: float) -> float:
    """Root mean square error of the values, each direction as well visited as others."""
    scales = mechanism.scales
    residual = math.hypot(scales["xy"], scales["xx"] * problem.usual_slope * math.sqrt(problem.entries_a_row))
    typical = math.sqrt(float(problem.weights @ problem.squared_features) / float(problem.weights.sum()))
    return residual * typical / information / problem.grid.width


def released_information(release: Release, mechanism: JointMoments) -> float:
    """Estimate what `Problem.information` guesses from released visits: at least the noise of the estimate."""
    xx, size = release.values["xx"], mechanism.shape[0]
    mean = float(np.mean(xx if mechanism.diagonal else np.diagonal(xx)))
    return max(mean, mechanism.scales["xx"] / math.sqrt(size))
