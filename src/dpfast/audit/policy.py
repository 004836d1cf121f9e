"""Attack on DP-LSW: a neighbour that moves both the means and the size of the noise as far as the bound allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast.audit.attacks import Attack
from dpfast.privacy import Privacy, SmoothGaussian
from dpfast.releases.smooth import Problem, WeightedMeans, calibrate, draw
from dpfast.statistics import FirstVisitReturns, ReturnGrid, Trajectories, first_visit_returns

FloatArray = NDArray[np.float64]


def policy_evaluation_attack(
    privacy: Privacy,
    weaken: float = 1.0,
    n_states: int = 4,
    n_visitors: int = 2000,
    *,
    weakened: Callable[[SmoothGaussian], SmoothGaussian] | None = None,
) -> Attack:
    """Attack noise of data-dependent size on mean first-visit returns.

    All visitors see every state and collect nothing but one, who collects the most there is; on the neighbour that one
    stays in a state that has no weight. The means and the number of visitors then move together.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is positive.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    n_states : int
        Coordinates that get noise.
    n_visitors : int
        At least 2: the fewer, the more the local sensitivity of neighbours differs.
    weakened : callable, optional
        From the calibration to that of a broken copy, in place of `weaken`.
    """
    public = Problem(None, np.append(np.full(n_states, 1.0 / n_states), 0.0), ReturnGrid.for_range(0.0, 1.0), None)
    statistic = WeightedMeans(public)
    calibration = calibrate(statistic, n_visitors, privacy, "sound")
    used = replace(calibration, alpha=calibration.alpha / weaken) if weakened is None else weakened(calibration)
    tables = tuple(_returns(n_states, n_visitors, public.grid, elsewhere) for elsewhere in (False, True))
    centers = [statistic.center(table) for table in tables]
    scales = [statistic.scale(used, table.counts) for table in tables]
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        table = tables[neighbour]
        releases = (draw(table, statistic, used, privacy, source, "audit", "sound") for _ in range(n))
        outputs = np.array([release.values["coordinates"] for release in releases])
        here, there = (
            -0.5 * np.sum(((outputs - center) / scale) ** 2, axis=1) - n_states * math.log(scale)
            for center, scale in zip(centers, scales, strict=True)
        )
        return np.asarray(there - here)

    return Attack(f"DP-LSW on {n_states} states", privacy, scores, gaussian=False)


def _returns(n_states: int, n_visitors: int, grid: ReturnGrid, elsewhere: bool) -> FirstVisitReturns:
    """Sum the returns of visitors of all states, the last of whom has a return of 1 in each, or is elsewhere."""
    walk = list(range(n_states))
    last = [n_states] if elsewhere else walk
    states = walk * (n_visitors - 1) + last
    rewards = np.zeros(len(states))
    rewards[-1] = 1.0
    lengths = [n_states] * (n_visitors - 1) + [len(last)]
    walks = Trajectories(states, rewards, np.concatenate([[0], np.cumsum(lengths)]), n_states + 1)
    return first_visit_returns(walks, 1.0, return_range=(grid.low, grid.high), horizon=n_states)
