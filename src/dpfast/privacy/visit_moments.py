"""Joint calibration of sums per state: the number of people who visit each, and their returns from there on.

There are S states, and a person visits at most K of them. To each visited state they add a, alike for all (xx), and a
return (xy). Returns are at most W apart and, about a point in the middle, at most R in size. With p = W**2/s_xy**2 and
q = a**2/s_xx**2 + R**2/s_xy**2:

- *Replace-one*: if both people visit a state, the counts cancel and the returns differ by at most W; this costs at
  most p. If one of them does, one visit and one return are left, and cost at most q. Elsewhere nothing moves. Let
  them visit j states both, and u states one of them. Each visits at most K, so 2 j + u <= 2 K; there are S, so
  j + u <= S. The largest of j p + u q under these two and j, u >= 0 is at a corner, as it is linear:
  (0, min(S, 2 K)), (K, 0) (as K <= S), and where K < S < 2 K the crossing (2 K - S, 2 (S - K)). So
  **mu**2 = max(min(S, 2 K) q, K p, and if K < S < 2 K also (2 K - S) p + 2 (S - K) q).**
  All corners are whole numbers, and people reach them. Both visit the first j states, with returns at either end. The
  first person visits half of the other u, the second the other half. (If u = S is odd, K >= (S + 1)/2 and one of them
  visits one more.)
- *Add/remove*: one person's visits come or go, **mu**2 = K q.**

Returns measured from the lower end of their range would have R = W in place of W/2. Without the count of states, 2 K
would stand for min(S, 2 K).

In terms of x = (a/s_xx)**2 / p, mu**2 = p f(x) with f the largest of lines c + d x. The weighted sum of variances at a
given mu is f(x) (w_xy W**2 + w_xx a**2/x) up to a factor. On a line with d > 0 it is least at x**2 = c w_xx a**2/(d
w_xy W**2), and on a flat line it falls. So the least is at such a point or where two lines cross.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from dpfast import _arguments as check
from dpfast.privacy.moment_scales import MomentScales, block_costs, joint_mu, raised


@dataclass(frozen=True)
class VisitLimits:
    """Public bounds on the contribution of one person to sums per state.

    Parameters
    ----------
    n_states, most_visited : int
        S, and K, the most of them that a person visits.
    visit : float
        a, the contribution of a visit.
    width : float
        W, the largest difference of two returns.
    reach : float
        R, the largest size of a return, at least W/2.
    """

    n_states: int
    most_visited: int
    visit: float
    width: float
    reach: float

    def __post_init__(self) -> None:
        most = check.positive_integer("most_visited", self.most_visited)
        if most > check.positive_integer("n_states", self.n_states):
            raise ValueError(f"most_visited must be at most n_states, {self.n_states}, got {most}")
        for name in ("visit", "width", "reach"):
            check.positive(name, getattr(self, name))
        if not 2.0 * self.reach >= self.width:
            raise ValueError(f"reach must be at least half of width, {self.width!r}, got {self.reach!r}")


def visit_moment_mu(scales: MomentScales, limits: VisitLimits, *, adjacency: str) -> float:
    """Return the mu of a joint Gaussian release of sums per state, rounded up; tight.

    >>> from dpfast.privacy.moment_scales import MomentScales
    >>> from dpfast.privacy.visit_moments import VisitLimits, visit_moment_mu
    >>> limits = VisitLimits(n_states=4, most_visited=4, visit=1.0, width=1.0, reach=0.5)
    >>> round(visit_moment_mu(MomentScales(xx=30.0, xy=20.0), limits, adjacency="replace_one"), 4)
    0.1
    """
    lines = _lines(limits, adjacency)

    def squared(x: float, p: float) -> float:
        return max(flat * p + slope * x for flat, slope in lines)

    if 0.0 in (scales.xx, scales.xy):
        return math.inf
    return joint_mu((limits.visit / scales.xx, limits.width / scales.xy), squared)


def visit_moment_scales(
    mu: float, limits: VisitLimits, weights: Mapping[str, float] | None = None, *, adjacency: str
) -> MomentScales:
    """Least noise on both sums, in a weighted sum of variances, for `visit_moment_mu` to be at most mu."""
    mu = check.positive_or_inf("mu", mu)
    lines = _lines(limits, adjacency)
    costs = block_costs(weights, True, ("xx", "xy"))
    if len(costs) < 2:
        raise ValueError(f"weights must name xx and xy, which are released together, got {sorted(costs)}")
    if mu == math.inf:
        return MomentScales(xx=0.0, xy=0.0)
    xx, xy = costs["xx"] * limits.visit * limits.visit, costs["xy"] * limits.width * limits.width
    if not (0.0 < xx < math.inf and 0.0 < xy < math.inf):
        raise ValueError("weights times squared limits leave the range of floats")
    candidates = [math.sqrt(flat / slope * (xx / xy)) for flat, slope in lines if slope > 0.0 and flat > 0.0]
    candidates += [
        (one[0] - other[0]) / (other[1] - one[1])
        for one, other in combinations(lines, 2)
        if (one[0] - other[0]) * (other[1] - one[1]) > 0.0
    ]

    def height(x: float) -> float:
        return max(flat + slope * x for flat, slope in lines)

    best = min((x for x in candidates if 0.0 < x < math.inf), key=lambda x: height(x) * (xy + xx / x))
    level = math.sqrt(height(best)) / mu
    least = MomentScales(xx=limits.visit * level / math.sqrt(best), xy=limits.width * level)
    return raised(least, mu, lambda scales: visit_moment_mu(scales, limits, adjacency=adjacency))


def _lines(limits: VisitLimits, adjacency: str) -> list[tuple[float, float]]:
    """Return mu**2/p as the largest of some lines: the value of each at x = 0, and its slope."""
    states, most, half = limits.n_states, limits.most_visited, (limits.reach / limits.width) ** 2
    if check.adjacency_value(adjacency) == "add_remove":
        return [(most * half, float(most))]
    apart = min(states, 2 * most)
    lines = [(apart * half, float(apart)), (float(most), 0.0)]
    if most < states < 2 * most:
        both, one = 2 * most - states, 2 * (states - most)
        lines.append((both + one * half, float(one)))
    return lines
