"""Small problems of policy evaluation, and trajectories with given first-visit returns."""

import numpy as np

from dpfast.policy_evaluation.mechanism import Problem, RidgeFit, WeightedMeans
from dpfast.statistics import ReturnGrid, Trajectories, first_visit_returns

FEATURES = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3])


def problem(features=None, weights=WEIGHTS, limits=(-0.5, 1.0), horizon=None, **options):
    return Problem(features, np.asarray(weights, np.float64), ReturnGrid.for_range(*limits), horizon, **options)


def walks(visited, values):
    """Trajectories, undiscounted, that visit states in order of number, with these returns at their first visits."""
    states, rewards, offsets = [], [], [0]
    for mask, row in zip(visited, values, strict=True):
        chosen = np.flatnonzero(mask)
        states += chosen.tolist()
        rewards += (row[chosen] - np.append(row[chosen[1:]], 0.0)).tolist()
        offsets.append(len(states))
    return Trajectories(states, rewards, offsets, visited.shape[1])


def summed(trajectories, public):
    limits = (public.grid.low, public.grid.high)
    horizon = public.n_states if public.horizon is None else public.horizon
    return first_visit_returns(trajectories, 1.0, return_range=limits, horizon=horizon)


def statistics_of(m):
    """Every kind of statistic that is released, of m trajectories."""
    for features in (None, FEATURES):
        public = problem(features)
        yield WeightedMeans(public, m)
        yield WeightedMeans(public, m, printed=True)
        for ridge in (0.05, 1.0, 1e6):
            yield RidgeFit(public, m, ridge)
        yield RidgeFit(public, m, 1.5 * public.floor, printed=True)
    yield WeightedMeans(problem(weights=[0.5, 0.0, 0.2, 0.3]), m)
    yield WeightedMeans(problem(horizon=1), m)
    yield WeightedMeans(problem(np.hstack([FEATURES, FEATURES[:, :1]])), m)
    yield RidgeFit(problem(FEATURES, horizon=1), m, 0.3)
