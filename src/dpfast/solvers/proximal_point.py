"""Smooth convex problems that need not be strongly convex: the proximal point method.

From x the next point minimises the objective plus (m/2) ||. - x||^2, by `minimise_smooth`, with m small beside the
smoothness. Objectives fall, and converge to the least one (Rockafellar 1976). If the objective is strongly convex with
constant mu around its minimiser, the distance from it falls by m/(m + mu) each time. No distance is promised: privacy
must not depend on these minimisers.

References
----------
Rockafellar, R. T. (1976). Monotone operators and the proximal point algorithm. SIAM Journal on Control and
Optimization 14.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.solvers.constraints import Constraint, ElasticNet, L2Ball, Proximable
from dpfast.solvers.smooth_convex import SmoothConvexFunction, minimise_smooth, smallest_smooth_tolerance

# Strong convexity of the steps' problems, as a part of the smoothness: it falls by a factor a step from the first to
# the last, so that each starts near its minimiser.
_FIRST_CONVEXITY, _LAST_CONVEXITY, _FACTOR = 2.0**-6, 2.0**-26, 2.0**-2
_MOST_STEPS = 100
# Ends where the objective falls by no more than this part of itself.
_LEAST_FALL = 1e-14
_TOLERANCE, _LEAST_SIZE = 2.0**-48, 2.0**-100


def minimise_convex(
    function: SmoothConvexFunction,
    *,
    constraint: Constraint | None = None,
    penalty: ElasticNet | Proximable | None = None,
    ridge: float = 0.0,
) -> FloatArray:
    """Minimise function(x) + penalty(x) + (ridge/2) ||x||^2 over a convex set, strongly convex or not.

    The function's gradient is bounded over the set, or everywhere if there is none; the ridge is at least 0. If there
    is no minimiser, returns a point with an objective near the infimum; if there are many, one near 0.
    """
    n, confined = function.n, penalty is None or isinstance(penalty, ElasticNet)
    l1, l2 = (penalty.l1, penalty.l2) if isinstance(penalty, ElasticNet) else (0.0, 0.0)
    own, convexity = ridge + l2, max(ridge + l2, function.smoothness * _FIRST_CONVEXITY)

    def objective(x: FloatArray) -> float:
        of_penalty = 0.0 if penalty is None else penalty.value(x)
        return function.local_model(x)[0] + of_penalty + 0.5 * ridge * float(x @ x)

    x = np.zeros(n) if constraint is None else constraint.project(np.zeros(n))
    if not confined:
        assert penalty is not None
        x = penalty.prox(x, 1.0 / convexity)
    value = objective(x)
    last_convexity = max(own, function.smoothness * _LAST_CONVEXITY)
    # The size of a subgradient here, at most; a step's minimiser is within that over the convexity.
    slope = float(np.linalg.norm(function.local_model(x)[1])) + l1 * math.sqrt(n) + convexity * float(np.linalg.norm(x))
    for _ in range(_MOST_STEPS):
        added = convexity - own
        size = max(float(np.linalg.norm(x)) + 2.0 * slope / convexity, _LEAST_SIZE)
        problem: dict[str, Any] = {"penalty": penalty, "ridge": ridge + added}
        if constraint is not None:
            problem["constraint"], size = constraint, constraint.norm_bound(n)
        elif confined:
            problem["constraint"] = L2Ball(size)
        else:
            problem["reach"] = size
        tolerance = max(smallest_smooth_tolerance(function, **problem), _TOLERANCE * size)
        next_x = minimise_smooth(function, linear=-added * x, start=x, tolerance=tolerance, **problem).x
        slope, x = added * float(np.linalg.norm(next_x - x)), next_x
        last, value = value, objective(x)
        if slope == 0.0 or (convexity == last_convexity and value >= last - _LEAST_FALL * abs(last)):
            break
        convexity = max(last_convexity, convexity * _FACTOR)
    return x
