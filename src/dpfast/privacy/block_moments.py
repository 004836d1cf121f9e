"""Joint calibration of second moments where one person owns several rows.

A person's rows x_1..x_m and outcome rows y_1..y_m are stacked as X (m, d) and Y (m, l). The person contributes A = X'X
and b = X'Y and, if they are released, the sums of rows and of outcomes and the number m. The number of people is public
under replace-one; the number of rows is not, under either relation.

**Rows bounded, blocks not** (`person_moment_mu`): at most k rows, each clipped to the bounds of `moments`. Rows of
zeros are within them, so two people own k rows each, some of them zero. Going from one to the other replaces one row at
a time: k changes of at most the mu of one row, hence k mu by the triangle inequality. k copies of the worst pair of
rows attain it. The number of rows, if it is released, moves only with rows that come or go. The larger of the two
relations' mu for one row then takes the place of mu.

**Blocks bounded** (`block_moment_mu`): ||A||_F <= a, ||b||_F <= c and ||Y||_F <= G after clipping, with u = a/s_xx and
v = c/s_xy. Let (A', b') be another such person's, and write <., .> for the Frobenius inner product.

- Any clipping that leaves A positive semidefinite has <A, A'> >= 0, so ||A - A'||**2 <= 2 a**2, and
  ||b - b'|| <= 2 c: **mu**2 <= 2 u**2 + 4 v**2.** Nothing better holds if A and b are clipped *separately*: with long
  rows most of A may be orthogonal to A' while b = -b'.
- Clipped by one *common* factor t, the block is that of the rows scaled by sqrt(t), so b is still X'Y for the X in A.
  Hence <b, b'> = tr(Y'X X''Y') = <X X'', Y Y''> >= -||X X''|| ||Y Y''|| >= -h G**2, with h**2 = ||X X''||**2 =
  <A, A'>. (X'' is the transpose of X' here.) So the squared distance is at most, maximised over h,
  2 u**2 - 2 h**2/s_xx**2 + 2 v**2 + 2 min(h G**2, c**2)/s_xy**2, which with kappa = c**4/(G**4 a**2) gives
  **mu**2 = 2 u**2 + 2 v**2 + v**4/(2 kappa u**2) if v**2 <= 2 kappa u**2, else 2 u**2 (1 - kappa) + 4 v**2.**
  No block has ||X'Y|| > G sqrt(a), because ||X||_2**2 <= ||A||; lowering c to that makes kappa <= 1. For one row,
  kappa = 1 and this is the formula of `moments`. The bound is attained. For kappa < 1 two rows in four features attain
  it if the rows' own bounds allow it (sqrt(kappa) + sqrt(1 - kappa) <= k bound_x**2/a and G**2 = k bound_y**2, k
  even). Their outcomes are in one direction, the rows are e + f and e - f against e' + f' and e' - f', the angle
  between e and e' is the best one, and all else is orthogonal.
- Nonnegative rows and outcomes have <A, A'>, <b, b'> >= 0: mu**2 = 2 u**2 + 2 v**2.
- Add/remove: one person's block comes or goes, mu**2 = u**2 + v**2.

In terms of p = 2 u**2 and r = v**2/u**2, mu**2 = p f(r) with f convex, so the least weighted noise is the root of one
increasing function.

**Sums per state** (`visit_moment_mu`): the number of people who visit each, and their returns from there on. There are
S states, and a person visits at most K of them. To each visited state they add a, alike for all (xx), and a
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
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NotRequired, TypedDict, Unpack

from dpfast import _arguments as check
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.privacy.moment_scales import MomentScales, RowKind, block_costs, joint_mu, moment_mu, moment_scales, raised

CLIPPINGS = ("common", "separate")

_SMALLEST, _LARGEST = 1e-140, 1e140


class BlockKind(TypedDict):
    """What else is public about people's blocks, beside their bounds.

    Either one person, with all their rows, is replaced (the number of people is public, the number of rows is not), or
    one comes or goes. ``X'X`` and ``X'Y`` of a person are scaled by one factor ("common", the default), or each by its
    own ("separate"). Rows and outcomes may be declared entrywise nonnegative.
    """

    adjacency: str
    clipping: NotRequired[str]
    nonnegative: NotRequired[bool]


@dataclass(frozen=True)
class BlockBounds:
    """Public bounds on what one person adds to second moments, after clipping.

    Parameters
    ----------
    xx : float
        Frobenius norm of the person's ``X'X``, in squared units of the rows.
    xy : float, optional
        Frobenius norm of the person's ``X'Y``, in units of rows times outcomes.
    outcomes : float, optional
        Frobenius norm of the person's ``Y``: the root of the sum of squares of all their outcomes.
    """

    xx: float
    xy: float | None = None
    outcomes: float | None = None

    def __post_init__(self) -> None:
        for name in ("xx", "xy", "outcomes"):
            bound = getattr(self, name)
            if bound is None and name != "xx":
                continue
            if not _SMALLEST <= check.positive(f"bounds.{name}", bound) <= _LARGEST:
                raise ValueError(f"bounds.{name} must lie between {_SMALLEST} and {_LARGEST}, got {bound!r}")
        if (self.xy is None) != (self.outcomes is None):
            raise ValueError("bounds.xy and bounds.outcomes go together")


def block_moment_mu(scales: MomentScales, bounds: BlockBounds, **kind: Unpack[BlockKind]) -> float:
    """Return the mu of a joint Gaussian release of sums of people's clipped blocks, of xx and xy, rounded up.

    Tight in the cases named in this module's docstring. For example, ten rows per person, clipped to a third of the
    most that ten rows can reach:

    >>> from dpfast.privacy import BlockBounds, MomentScales, block_moment_mu
    >>> bounds = BlockBounds(xx=10.0 / 3.0, xy=10.0 / 3.0, outcomes=10.0**0.5)
    >>> round(block_moment_mu(MomentScales(xx=60.0, xy=60.0), bounds, adjacency="replace_one"), 4)
    0.1335
    """
    shape = _shape(bounds, **kind)
    released = _released(scales, bounds)
    if any(getattr(scales, block) == 0.0 for block in released):
        return math.inf
    return joint_mu((bounds.xx / scales.xx, shape.xy / scales.xy), shape.squared_mu)


def block_moment_scales(
    mu: float, bounds: BlockBounds, weights: Mapping[str, float] | None = None, **kind: Unpack[BlockKind]
) -> MomentScales:
    """Least noise, in a weighted sum of variances, for `block_moment_mu` to be at most mu.

    Weights name the blocks to release, of "xx" and "xy"; by default those that have bounds, equally.
    """
    mu = check.positive_or_inf("mu", mu)
    shape = _shape(bounds, **kind)
    costs = block_costs(weights, bounds.xy is not None, ("xx", "xy"))
    if "xy" in costs:
        _check_xy(bounds)
    if mu == math.inf:
        return MomentScales(**dict.fromkeys(costs, 0.0))
    sizes = {"xx": bounds.xx, "xy": shape.xy}
    weighted = {block: cost * sizes[block] ** 2 for block, cost in costs.items()}
    if not all(0.0 < cost < math.inf for cost in weighted.values()):
        raise ValueError("weights times squared bounds leave the range of floats")
    precisions = {"xx": 1.0, "xy": 1.0}
    if len(costs) == 2:
        precisions["xy"] = shape.best_ratio(weighted["xx"], weighted["xy"])
    squared = shape.squared_mu(*(precisions[block] if block in costs else 0.0 for block in ("xx", "xy")))
    level = math.sqrt(squared) / mu * ROUND_UP
    least = MomentScales(**{block: sizes[block] * level / math.sqrt(precisions[block]) for block in costs})
    return raised(least, mu, lambda scales: block_moment_mu(scales, bounds, **kind))


def person_moment_mu(
    scales: MomentScales, max_rows: int, bound_x: float, bound_y: float | None = None, **kind: Unpack[RowKind]
) -> float:
    """Return the mu of a joint Gaussian release of moments if a person owns up to `max_rows` bounded rows.

    The number of rows is private under both relations. Neighbouring tables differ in one person, with all their rows.
    Tight: some person with identical rows moves the blocks by as much.
    """
    rows = check.positive_integer("max_rows", max_rows)
    of_one_row = moment_mu(scales, bound_x, bound_y, **kind)
    if scales.n < math.inf:
        # A row against none moves the count, which replacing a row by another does not.
        of_one_row = max(of_one_row, moment_mu(scales, bound_x, bound_y, **_come_or_go(kind)))
    return math.nextafter(of_one_row * rows, math.inf)


def person_moment_scales(
    mu: float,
    max_rows: int,
    bound_x: float,
    bound_y: float | None = None,
    weights: Mapping[str, float] | None = None,
    **kind: Unpack[RowKind],
) -> MomentScales:
    """Noise for `person_moment_mu` to be at most mu; "n" is accepted under both relations.

    The least in the weighted sum of variances, unless "n" is released under replace-one. In that case it is the better
    of two candidates; in one of them n gets only the budget that the other blocks leave over.
    """
    mu = check.positive_or_inf("mu", mu)
    rows = check.positive_integer("max_rows", max_rows)
    budget = mu if mu == math.inf else math.nextafter(mu / rows, 0.0)

    def grown(scales: MomentScales) -> MomentScales:
        return raised(scales, mu, lambda found: person_moment_mu(found, rows, bound_x, bound_y, **kind))

    if weights is None or "n" not in weights or check.adjacency_value(kind["adjacency"]) == "add_remove":
        return grown(moment_scales(budget, bound_x, bound_y, weights, **kind))
    candidates = [moment_scales(budget, bound_x, bound_y, weights, **_come_or_go(kind))]
    others = {block: weight for block, weight in weights.items() if block != "n"}
    if others and mu < math.inf:
        scales = moment_scales(budget, bound_x, bound_y, others, **kind)
        left = budget**2 - moment_mu(scales, bound_x, bound_y, **_come_or_go(kind)) ** 2
        if left > 0.0:
            candidates.append(replace(scales, n=1.0 / math.sqrt(left)))
    return min(map(grown, candidates), key=lambda scales: scales.cost(weights))


def _come_or_go(kind: RowKind) -> RowKind:
    return {**kind, "adjacency": "add_remove"}


@dataclass(frozen=True)
class _Shape:
    """mu**2 as a function of the squared ratios of bound to noise.

    mu**2 = alone * u**2 + together * v**2 up to a knee in v**2/u**2, beyond which other people are worst; kappa is None
    if there is no knee.
    """

    xy: float
    alone: float
    together: float
    kappa: float | None = None

    def squared_mu(self, u2: float, v2: float) -> float:
        if self.kappa is None:
            return self.alone * u2 + self.together * v2
        if v2 <= 2.0 * self.kappa * u2:
            return 2.0 * u2 + 2.0 * v2 + (v2 / u2 * v2 / (2.0 * self.kappa) if v2 > 0.0 else 0.0)
        return 2.0 * u2 * (1.0 - self.kappa) + 4.0 * v2

    def best_ratio(self, xx: float, xy: float) -> float:
        """Return the r = v**2/u**2 that minimises ``(xx + xy/r) mu**2(1, r)``: the cost at a given mu.

        Below the knee, r <= 2 kappa, the derivative has the sign of xx r**3/(2 kappa) + (xx + xy/(4 kappa)) r**2 - xy.
        This polynomial increases and is convex, so Newton's method comes down to its root from above.
        """
        if self.kappa is None:
            return math.sqrt(self.alone * xy / (self.together * xx))
        knee = 2.0 * self.kappa
        cubic, square = xx / knee, xx + xy / (2.0 * knee)

        def slope(r: float) -> float:
            return (cubic * r + square) * r * r - xy

        if slope(knee) <= 0.0:
            return max(knee, math.sqrt(xy * (1.0 - self.kappa) / (2.0 * xx)))
        r = knee
        while True:
            lower = r - slope(r) / ((3.0 * cubic * r + 2.0 * square) * r)
            if not lower < r * (1.0 - 2.0**-50):
                return r
            r = lower


def _shape(bounds: BlockBounds, adjacency: str, clipping: str = "common", nonnegative: bool = False) -> _Shape:
    check.instance("bounds", bounds, BlockBounds, "a BlockBounds")
    common = check.choice("clipping", clipping, CLIPPINGS) == "common"
    xy, kappa = 0.0, 0.0
    if bounds.xy is not None and bounds.outcomes is not None:
        xy = bounds.xy
        if common:
            # ||X'Y|| <= ||X||_2 ||Y|| for any block.
            xy = min(xy, bounds.outcomes * math.sqrt(bounds.xx) * ROUND_UP)
            kappa = min(1.0, ((xy / bounds.outcomes) ** 2 / bounds.xx) ** 2)
    if check.adjacency_value(adjacency) == "add_remove":
        return _Shape(xy, 1.0, 1.0)
    if check.boolean("nonnegative", nonnegative):
        return _Shape(xy, 2.0, 2.0)
    return _Shape(xy, 2.0, 4.0, kappa if common and kappa > 0.0 else None)


def _released(scales: MomentScales, bounds: BlockBounds) -> tuple[str, ...]:
    for block in scales.released:
        if block not in ("xx", "xy"):
            raise ValueError(f"scales.{block} must be inf: clipped blocks are of xx and xy alone")
    if "xy" in scales.released:
        _check_xy(bounds)
    return scales.released


def _check_xy(bounds: BlockBounds) -> None:
    if bounds.xy is None:
        raise ValueError("bounds.xy is needed where xy is released, got None")


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
    >>> from dpfast.privacy.block_moments import VisitLimits, visit_moment_mu
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
