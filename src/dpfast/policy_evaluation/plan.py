"""What error privacy adds to the values of states, from public numbers: as a share of the range of returns."""

from __future__ import annotations

import math

import numpy as np

from dpfast.ledger import Release
from dpfast.policy_evaluation.mechanism import Problem, Statistic
from dpfast.releases.data_dependent import DataDependentGaussian
from dpfast.releases.moments import JointMoments


def smooth_error(mechanism: DataDependentGaussian[Statistic], visited: float | None) -> float:
    """Root of the weighted mean square of noise and shrinkage over states."""
    statistic, problem, m = mechanism.statistic, mechanism.statistic.problem, mechanism.statistic.m
    counts = problem.usual_counts(m, visited)
    noisy = mechanism.scale(statistic.sensitivity_of_counts(counts, mechanism.smoothness)) * statistic.spread
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
