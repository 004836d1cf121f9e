"""Moments of bounded rows: how far one person moves each, and the joint calibration of a release of up to five blocks.

The blocks are xx = sum zz', x = sum z, xy = sum zy', y = sum y and n = the number of rows, for rows ``||z|| <= R``
and outcome rows ``||y|| <= B``. Every block gets its own independent Gaussian noise, isotropic in the Frobenius norm.
Together they are mu-GDP with

    mu**2 = max over neighbours of ||change of xx||_F**2/s_xx**2 + ||change of x||**2/s_x**2 + ... .

*Replace-one* (n is public): a record (z, y) becomes (v, w); with c = z'v and e = y'w the change is

    (|z|**4 + |v|**4 - 2c**2)/s_xx**2 + (|z|**2 + |v|**2 - 2c)/s_x**2
        + (|z|**2 |y|**2 + |v|**2 |w|**2 - 2ce)/s_xy**2 + (|y|**2 + |w|**2 - 2e)/s_y**2.

At fixed (c, e) it grows in every norm, and longer rows only widen the range of c and e, so all norms are at their
bounds. It is linear in e, so e = B**2 or -B**2, and then concave and quadratic in c: two closed forms, each reached by
actual rows if there are at least two features. (For one outcome, relax to several: the maximum is at e = +-B**2, and
one outcome reaches it.) Every maximiser is therefore one of a few *worst changes*, written as loads: mu**2 = loads .
precisions, where a precision is a block's 1/s**2 times its squared bound (R**4, R**2, R**2 B**2, B**2, 1).

- *One feature*: c = zv is not free of the norms, but e = +-B**2, |y| = |w| = B holds at fixed (z, v). The change grows
  in |z + v| at fixed |z - v|, so raise |z + v| until max(|z|, |v|) = R: the worst case is z = R, v = RC. It is a
  quartic in C, of which `_single_feature` takes every local maximum.
- *Nonnegative* rows and outcomes have c, e >= 0, and both only reduce the change: c = e = 0, orthogonal rows. If there
  is one feature or one outcome, this is impossible. The change is then convex in the square of each remaining
  coordinate (since -sqrt(ab) is convex in a; it is not convex in the coordinate itself), so a vertex of [0, 1] is
  worst.
- *Add/remove*: one record's own contribution, largest when its norms are at their bounds, all at once.

The least noise for given weights is a convex problem in log precisions (a maximum of positive sums of exponentials),
so any local optimum is the optimum.

*Sensitivities of one block* are at the end: one documented bound each, rounded up, and the bounds of grid-rounded rows.
The joint sensitivity of several blocks is less than the sum of theirs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.privacy.guarantee import ROUND_UP, first_that_holds, remembered, sqrt_ratio_up, sqrt_up

BLOCKS = ("xx", "x", "xy", "y", "n")

_Loads = tuple[float, float, float, float, float]
_WorstChanges = Callable[[float, float, float], Sequence[_Loads]]


class RowKind(TypedDict):
    """What else is public about rows and outcome rows, beside their bounds.

    Several outcomes are assumed if their number is omitted; it matters for nonnegative rows only. Those are declared
    entrywise nonnegative, outcomes included. Under "replace_one" the number of rows is public.
    """

    adjacency: str
    n_features: int
    n_outcomes: NotRequired[int | None]
    nonnegative: NotRequired[bool]


@dataclass(frozen=True)
class MomentScales:
    """Standard deviations of the Gaussian noise on the blocks of a moment release; inf where a block is not released.

    Parameters
    ----------
    xx : float
        Noise on ``sum zz'``, isotropic in the Frobenius norm of symmetric matrices: ``xx`` on the diagonal,
        ``xx/sqrt(2)`` on each mirrored off-diagonal pair. In squared units of the rows.
    x : float
        Noise on every coordinate of ``sum z``.
    xy : float
        Noise on every entry of ``sum zy'``.
    y : float
        Noise on every coordinate of ``sum y``.
    n : float
        Noise on the number of rows.
    """

    xx: float = math.inf
    x: float = math.inf
    xy: float = math.inf
    y: float = math.inf
    n: float = math.inf

    def __post_init__(self) -> None:
        for block in BLOCKS:
            scale = getattr(self, block)
            scale = scale if type(scale) is float else check.real(f"scales.{block}", scale)
            if not scale >= 0.0:
                raise ValueError(f"scales.{block} must be at least 0, or inf if not released, got {scale!r}")

    @property
    def released(self) -> tuple[str, ...]:
        """Names of the blocks with finite noise."""
        return tuple([block for block in BLOCKS if getattr(self, block) < math.inf])

    def times(self, factor: float) -> MomentScales:
        """Return all of the noise multiplied by a factor."""
        return MomentScales(**{block: getattr(self, block) * factor for block in self.released})

    def cost(self, weights: Mapping[str, float]) -> float:
        """Return the weighted sum of variances."""
        return math.fsum(weight * getattr(self, block) ** 2 for block, weight in weights.items())


def moment_mu(scales: MomentScales, bound_x: float, bound_y: float | None = None, **kind: Unpack[RowKind]) -> float:
    """Return the mu of a joint Gaussian release of moments, rounded up.

    Parameters
    ----------
    scales : MomentScales
        The noise on each block; under replace-one, noise on the number of rows is ignored.
    bound_x : float
        L2 norm of a row, positive; for grid-rounded rows that of `padded_bound`.
    bound_y : float, optional
        L2 norm of an outcome row; needed if xy or y is released.
    adjacency : {"replace_one", "add_remove"}
        The neighbouring relation. Under replace-one the number of rows is public.
    n_features : int
        Length of a row.
    n_outcomes : int, optional
        Length of an outcome row; several are assumed if omitted. It matters for nonnegative rows only.
    nonnegative : bool, default False
        Whether rows and outcomes are declared entrywise nonnegative.

    Returns
    -------
    float
        Tight: some record moves the blocks jointly by as much. The release is mu-GDP, hence
        (epsilon, ``gaussian_delta(1, epsilon, mu)``)-DP. Infinite if a block has no noise.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    Dong, Roth and Su (2022), "Gaussian differential privacy", JRSS B 84(1), Theorem 1; the maximum over neighbours is
    derived above this module's imports.

    Examples
    --------
    >>> from dpfast.privacy import MomentScales, moment_mu
    >>> scales = MomentScales(xx=6.0, xy=6.0)
    >>> round(moment_mu(scales, 1.0, 1.0, adjacency="replace_one", n_features=5), 4)
    0.3536
    """
    worst_changes = _worst_changes(**kind)
    ignored = {"n"} if kind["adjacency"] == "replace_one" else set()
    released = tuple(block for block in scales.released if block not in ignored)
    return _mu_of(scales, _units(released, bound_x, bound_y), worst_changes)


def moment_scales(
    mu: float,
    bound_x: float,
    bound_y: float | None = None,
    weights: Mapping[str, float] | None = None,
    **kind: Unpack[RowKind],
) -> MomentScales:
    """Least noise, in a weighted sum of variances, for a joint mu-GDP release of moments.

    Minimises ``sum(weights[block] * scale[block]**2)`` over the released blocks.

    Parameters
    ----------
    mu : float
        The budget, positive; ``float("inf")`` means no noise.
    bound_x, bound_y, adjacency, n_features, n_outcomes, nonnegative
        As for `moment_mu`.
    weights : mapping of str to float
        The blocks to release, of "xx", "x", "xy", "y" and (under add/remove) "n", and the cost of each block's noise
        variance, positive. Default: xx alone, and xy if ``bound_y`` is given, equally.

    Returns
    -------
    MomentScales
        Rounded up: `moment_mu` of it is at most ``mu``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range, or the noise on a block leaves the range of floats.

    Examples
    --------
    At equal weights the pair costs 8.82/mu**2, where halves of the budget for each block alone cost 12/mu**2:

    >>> from dpfast.privacy import moment_scales
    >>> scales = moment_scales(1.0, 1.0, 1.0, {"xx": 1.0, "xy": 1.0}, adjacency="replace_one", n_features=5)
    >>> round(scales.xx**2 + scales.xy**2, 2)
    8.82
    """
    worst_changes = _worst_changes(**kind)
    mu = check.positive_or_inf("mu", mu)
    costs = block_costs(weights, bound_y is not None, BLOCKS)
    if "n" in costs and kind["adjacency"] == "replace_one":
        raise ValueError("weights must not name 'n' under replace_one: the number of rows is public there")
    released = tuple([block for block in BLOCKS if block in costs])
    units = _units(released, bound_x, bound_y)
    if mu == math.inf:
        return MomentScales(**dict.fromkeys(released, 0.0))
    return _least_scales(mu, tuple([(block, units[block], costs[block]) for block in released]), worst_changes)


@remembered
def _least_scales(
    mu: float, blocks: tuple[tuple[str, float, float], ...], worst_changes: _WorstChanges
) -> MomentScales:
    """Return the least noise for a finite mu; of each released block its name, unit and cost."""
    units = {block: unit for block, unit, _ in blocks}
    precisions = _best_precisions(_shares({block: cost for block, _, cost in blocks}, units), worst_changes)
    level = math.sqrt(_largest_dot(worst_changes, precisions)) * ROUND_UP

    def scales(extra: float) -> MomentScales:
        needed = level * (1.0 + extra)
        return _scales_in_range(
            {block: units[block] * needed / math.sqrt(precisions[BLOCKS.index(block)]) / mu for block in units}
        )

    short = f"mu must leave floats enough digits to calibrate with, got {mu!r}"
    return first_that_holds(scales, lambda found: _mu_of(found, units, worst_changes) <= mu, short)


def _mu_of(scales: MomentScales, units: Mapping[str, float], worst_changes: _WorstChanges) -> float:
    """Return the mu of noise on the blocks that have units, rounded up."""
    if any(getattr(scales, block) == 0.0 for block in units):
        return math.inf
    ratios = [_ratio_up(units[block], getattr(scales, block)) if block in units else 0.0 for block in BLOCKS]
    return joint_mu(ratios, lambda *precisions: _largest_dot(worst_changes, precisions))


def joint_mu(ratios: Sequence[float], squared_mu: Callable[..., float]) -> float:
    """Return mu, rounded up, if its square is homogeneous in the squares of the ratios of bounds to noise."""
    largest = max(ratios)
    if largest == 0.0 or math.isinf(largest):
        return largest
    squared = squared_mu(*[(ratio / largest) ** 2 for ratio in ratios])
    # The margin is applied to a normal number, so that the one rounding that may be subnormal is the last.
    return math.nextafter(largest * (math.sqrt(squared) * ROUND_UP), math.inf)


def raised(scales: MomentScales, mu: float, spent: Callable[[MomentScales], float]) -> MomentScales:
    """Scale the noise up until it meets the budget: by rounding errors alone, if it was made for it."""
    ratio = 1.0 if mu == math.inf else max(spent(scales) / mu, 1.0)
    return first_that_holds(lambda extra: scales.times(ratio * (1.0 + extra)), lambda found: spent(found) <= mu)


def block_costs(weights: Mapping[str, float] | None, outcomes: bool, blocks: tuple[str, ...]) -> dict[str, float]:
    """Return the cost of noise variance on each released block; by default 1 for xx, and for xy with outcomes."""
    if weights is None:
        return {"xx": 1.0, "xy": 1.0} if outcomes else {"xx": 1.0}
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights must map block names to positive numbers, got {type(weights).__name__}")
    if not weights or not set(weights) <= set(blocks):
        raise ValueError(f"weights must name at least one block, of {blocks}, got {sorted(map(str, weights))}")
    return {block: check.positive(f"weights[{block!r}]", weight) for block, weight in weights.items()}


def _shares(costs: Mapping[str, float], units: Mapping[str, float]) -> list[float]:
    """Return each block's share of the cost of noise as large as one record at its bounds."""
    weighted = [costs[block] * units[block] ** 2 if block in costs else 0.0 for block in BLOCKS]
    total = sum(weighted)
    shares = [cost / total if 0.0 < total < math.inf else 0.0 for cost in weighted]
    for block, share in zip(BLOCKS, shares, strict=True):
        if block in costs and share < sys.float_info.min:
            raise ValueError(
                f"weights times squared bounds are too far apart or leave the range of floats, at {block!r}: "
                f"weights[{block!r}] is {costs[block]!r}"
            )
    return shares


def _scales_in_range(found: dict[str, float]) -> MomentScales:
    """Return the scales; ValueError for one that would mean no noise (0), or a block not released (inf)."""
    for block, scale in found.items():
        if not sys.float_info.min <= scale < math.inf:
            raise ValueError(
                f"mu, bounds and weights ask for noise outside the range of floats on {block!r}: {scale!r}"
            )
    return MomentScales(**found)


def _units(released: Iterable[str], bound_x: float, bound_y: float | None) -> dict[str, float]:
    """Return the contribution of one record at its bounds to each released block."""
    bound_x = check.positive("bound_x", bound_x)
    if bound_y is not None:
        bound_y = check.positive("bound_y", bound_y)
    elif {"xy", "y"} & set(released):
        raise ValueError("bound_y is needed where xy or y is released, got None")
    bound_y = bound_y or 0.0
    every = {"xx": bound_x * bound_x, "x": bound_x, "xy": bound_x * bound_y, "y": bound_y, "n": 1.0}
    units = {block: every[block] for block in released}
    if units and not 1e-140 < min(units.values()) <= max(units.values()) < 1e140:
        raise ValueError("bound_x and bound_y must lie between 1e-70 and 1e70")
    return units


def _ratio_up(unit: float, scale: float) -> float:
    """Return unit/scale, with as good relative accuracy as floats have, or rounded up where it is subnormal."""
    ratio = unit / scale
    return ratio if ratio >= sys.float_info.min else math.nextafter(ratio, math.inf)


def _largest_dot(worst_changes: _WorstChanges, precisions: Sequence[float]) -> float:
    dots: list[float] = [sum(map(mul, loads, precisions)) for loads in worst_changes(*precisions[:3])]
    return max(dots)


def _worst_changes(
    adjacency: str, n_features: int, n_outcomes: int | None = None, nonnegative: bool = False
) -> _WorstChanges:
    """Return the map from the precisions of xx, x and xy to the loads of every change that may be the worst."""
    single_feature = check.positive_integer("n_features", n_features) == 1
    single_outcome = n_outcomes is not None and check.positive_integer("n_outcomes", n_outcomes) == 1
    nonnegative = check.boolean("nonnegative", nonnegative)
    if check.adjacency_value(adjacency) == "add_remove":
        return _fixed((1.0, 1.0, 1.0, 1.0, 1.0))
    if not nonnegative:
        return _single_feature if single_feature else _signed
    if single_feature and single_outcome:
        return _fixed((1.0, 1.0, 1.0, 1.0, 0.0))
    if single_feature:
        return _fixed((1.0, 1.0, 1.0, 2.0, 0.0), (0.0, 0.0, 2.0, 2.0, 0.0))
    if single_outcome:
        return _fixed((2.0, 2.0, 2.0, 0.0, 0.0), (2.0, 2.0, 1.0, 1.0, 0.0))
    return _fixed((2.0, 2.0, 2.0, 2.0, 0.0))


@remembered
def _fixed(*changes: _Loads) -> _WorstChanges:
    """Return the map to the same changes for all precisions."""
    return lambda *_: changes


def _signed(xx: float, x: float, xy: float) -> list[_Loads]:
    """Return the worst change for e = -B**2 and for e = B**2; C = c/R**2 solves a linear equation, or is clipped."""
    apart = _clipped_quotient(xy - x, 2.0 * xx)
    alike = _clipped_quotient(-xy - x, 2.0 * xx)
    return [
        (2.0 * (1.0 - apart) * (1.0 + apart), 2.0 * (1.0 - apart), 2.0 * (1.0 + apart), 4.0, 0.0),
        (2.0 * (1.0 - alike) * (1.0 + alike), 2.0 * (1.0 - alike), 2.0 * (1.0 - alike), 0.0, 0.0),
    ]


def _clipped_quotient(numerator: float, denominator: float) -> float:
    if abs(numerator) >= denominator:
        return math.copysign(1.0, numerator)
    return numerator / denominator


def _single_feature(xx: float, x: float, xy: float) -> list[_Loads]:
    """Return the local maxima over C in [-1, 1] of the two quartics.

    For e = B**2, ``xx (1 - C**2)**2 + (x + xy) (1 - C)**2``: C = -1, and the larger root of ``C**2 + C + (x + xy)/(2
    xx) = 0``. For e = -B**2, ``xx (1 - C**2)**2 + x (1 - C)**2 + xy (1 + C)**2 + 4 y``: C = -1, C = 1, and the middle
    root of the derivative's cubic ``C**3 + p C + q``, p = (x + xy)/(2 xx) - 1, q = (xy - x)/(2 xx), if it has three
    (Viete's trigonometric form). All real roots of the cubic lie in [-1, 1] because its value is >= 0 at 1 and <= 0 at
    -1, and it rises beyond (p >= -1).
    """
    alike = 0.5 * (math.sqrt(1.0 - 2.0 * (x + xy) / xx) - 1.0) if 2.0 * (x + xy) < xx else -0.5
    apart = 0.0
    if x + xy < 2.0 * xx:
        third = (1.0 - (x + xy) / (2.0 * xx)) / 3.0
        cosine = (x - xy) / (4.0 * xx * third * math.sqrt(third))
        if abs(cosine) < 1.0:
            apart = 2.0 * math.sqrt(third) * math.cos((math.acos(cosine) - 2.0 * math.pi) / 3.0)
    return [
        *(((1.0 - c * c) ** 2, (1.0 - c) ** 2, (1.0 - c) ** 2, 0.0, 0.0) for c in (-1.0, alike)),
        *(((1.0 - c * c) ** 2, (1.0 - c) ** 2, (1.0 + c) ** 2, 4.0, 0.0) for c in (-1.0, apart, 1.0)),
    ]


def _best_precisions(weights: list[float], worst_changes: _WorstChanges) -> Sequence[float]:
    """Minimise ``sum(weight/precision)`` at a fixed largest ``loads . precisions``; any multiple will do."""
    if weights[1] == weights[3] == 0.0 < weights[0] * weights[2] and worst_changes is _signed:
        return _best_pair(weights[0], weights[2])
    changes = worst_changes(1.0, 1.0, 1.0)
    # At orthogonal rows every block counts: exact if there is one worst change, near the optimum otherwise.
    loads = changes[0] if len(changes) == 1 else (1.0, 1.0, 1.0, 1.0, 0.0)
    start = [math.sqrt(weight / load) if weight > 0.0 else 0.0 for weight, load in zip(weights, loads, strict=True)]
    if len(changes) == 1 or sum(weight > 0.0 for weight in weights) == 1:
        return start
    return _minimise(tuple(weights), tuple(start), worst_changes)


def _best_pair(xx: float, xy: float) -> list[float]:
    """Return the optimum for xx and xy alone.

    With A = 2 (precision of xx), B = 2 (precision of xy) and r = B/A <= 2, mu**2 = A (1 + r/2)**2, so
    (xx + xy/r)(1 + r/2)**2 is to be least: xx r**2 + xy r/2 - xy = 0, whose positive root is below 2. (Beyond r = 2,
    mu**2 = 2B does not depend on A, and less noise on xx costs nothing.)
    """
    ratio = 2.0 * xy / (0.5 * xy + math.sqrt(0.25 * xy * xy + 4.0 * xx * xy))
    return [1.0, 0.0, ratio, 0.0, 0.0]


# Exponents whose exponentials, and products of two of them with weights, are floats.
_FARTHEST = 300.0


@remembered
def _minimise(weights: tuple[float, ...], start: tuple[float, ...], worst_changes: _WorstChanges) -> tuple[float, ...]:
    """Minimise log sum(w e**-z) over z = log(precision) subject to loads . e**z <= 1: sequential quadratic programs."""
    from scipy.optimize import minimize  # takes longer to import than all of dpfast.privacy

    used = np.asarray(weights) > 0.0
    cost = np.asarray(weights)[used]

    def exp(z: FloatArray) -> FloatArray:
        # Clipped, since a step of the search may end far off before it is taken back.
        return np.exp(np.clip(z, -_FARTHEST, _FARTHEST))

    def expanded(z: FloatArray) -> FloatArray:
        precisions = np.zeros(len(BLOCKS))
        precisions[used] = exp(z)
        return precisions

    def loads_at(z: FloatArray) -> FloatArray:
        return np.asarray(worst_changes(*expanded(z)[:3].tolist()))[:, used]

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        terms = cost * exp(-z)
        return math.log(terms.sum()), -terms / terms.sum()

    origin = np.log(np.asarray(start)[used] / _largest_dot(worst_changes, start))
    # By the envelope theorem the loads at the maximiser are the gradient of the maximum.
    constraint = {"type": "ineq", "fun": lambda z: 1.0 - loads_at(z) @ exp(z), "jac": lambda z: -loads_at(z) * exp(z)}
    found = minimize(objective, origin, jac=True, method="SLSQP", constraints=[constraint], options={"ftol": 1e-13})
    return tuple(expanded(found.x).tolist())


# Limit on exponents: beyond those of floats on either side, and small enough for quick integer arithmetic.
_LARGEST_GRID_EXPONENT = 2000


def sum_sensitivity(bound: float, *, adjacency: str, n_coordinates: int, nonnegative: bool = False) -> float:
    """L2 sensitivity of a sum of bounded rows of `n_coordinates`, rounded up; tight.

    Replace-one: ``||x - v|| <= 2 bound``, reached by opposite rows. Entrywise nonnegative rows have x'v >= 0, so
    ``||x - v||**2 <= 2 bound**2`` (``bound**2`` for one coordinate). Add/remove: ``bound``.

    Examples
    --------
    >>> from dpfast.privacy import sum_sensitivity
    >>> sum_sensitivity(1.5, adjacency="replace_one", n_coordinates=3)
    3.0
    """
    square = Fraction(check.positive("bound", bound)) ** 2
    single = check.positive_integer("n_coordinates", n_coordinates) == 1
    return _largest_change(square, adjacency, single, nonnegative)


def xx_sensitivity(bound_x: float, *, adjacency: str, n_features: int) -> float:
    """Sensitivity of ``sum x x'`` in the Frobenius norm, rounded up; tight.

    Replace-one: ``||xx' - vv'||_F**2 = |x|**4 + |v|**4 - 2 (x'v)**2 <= 2 bound_x**4``, reached by orthogonal rows;
    with one feature ``|x**2 - v**2| <= bound_x**2``. Add/remove: ``bound_x**2``. Nonnegative rows can be orthogonal,
    so the same holds for them.

    Examples
    --------
    >>> from dpfast.privacy import xx_sensitivity
    >>> round(xx_sensitivity(2.0, adjacency="replace_one", n_features=3), 4)
    5.6569
    """
    fourth = Fraction(check.positive("bound_x", bound_x)) ** 4
    single = check.positive_integer("n_features", n_features) == 1
    replaced = check.adjacency_value(adjacency) == "replace_one"
    return sqrt_up(2 * fourth if replaced and not single else fourth)


def xy_sensitivity(
    bound_x: float,
    bound_y: float,
    *,
    adjacency: str,
    n_features: int,
    n_outcomes: int | None = None,
    nonnegative: bool = False,
) -> float:
    """Sensitivity of ``sum x y'`` in the Frobenius norm, rounded up; tight. Several outcomes are assumed if omitted.

    Replace-one: ``||xy' - vw'||_F**2 = |x|**2 |y|**2 + |v|**2 |w|**2 - 2 (x'v)(y'w) <= 4 bound_x**2 bound_y**2``,
    reached by x = v, y = -w. Nonnegative rows and outcomes have (x'v)(y'w) >= 0: ``2 bound_x**2 bound_y**2``, and
    ``bound_x**2 bound_y**2`` for one feature and one outcome. Add/remove: ``bound_x bound_y``.

    Examples
    --------
    >>> from dpfast.privacy import xy_sensitivity
    >>> xy_sensitivity(1.0, 0.5, adjacency="replace_one", n_features=3)
    1.0
    """
    square = Fraction(check.positive("bound_x", bound_x)) ** 2 * Fraction(check.positive("bound_y", bound_y)) ** 2
    single_feature = check.positive_integer("n_features", n_features) == 1
    single_outcome = n_outcomes is not None and check.positive_integer("n_outcomes", n_outcomes) == 1
    return _largest_change(square, adjacency, single_feature and single_outcome, nonnegative)


def _largest_change(square: Fraction, adjacency: str, single: bool, nonnegative: bool) -> float:
    """Return the root of a sum's largest squared change, `square` that of one addend, `single` if it is one number."""
    nonnegative = check.boolean("nonnegative", nonnegative)
    if check.adjacency_value(adjacency) == "add_remove" or (nonnegative and single):
        return sqrt_up(square)
    return sqrt_up(2 * square if nonnegative else 4 * square)


@remembered
def padded_squared_bound(bound: float, grid_exponent: int, n_features: int) -> int:
    """Squared norm, in grid units, that no row within the bound exceeds after rounding to the multiples of 2**-k.

    Rounding to nearest moves each entry by at most half a unit, a row by at most ``sqrt(n_features)/2`` units. The
    value is M = ``floor((bound 2**k + sqrt(n_features)/2)**2) + 1``, computed in integers: the exact squared bound to
    calibrate with is ``M / 4**k`` (see `padded_bound`).

    >>> from dpfast.privacy import padded_squared_bound
    >>> padded_squared_bound(1.0, grid_exponent=2, n_features=4)
    26
    """
    exponent, length = _checked_exponent(grid_exponent), check.positive_integer("n_features", n_features)
    above, below = check.positive("bound", bound).as_integer_ratio()
    above, below = above << max(exponent, 0), below << max(-exponent, 0)
    # (b + sqrt(d)/2)**2 = b**2 + d/4 + sqrt(b**2 d), b = above/below: over a common denominator, integers and a root.
    squared, unit = above**2, below**2
    return (4 * squared + length * unit + math.isqrt(16 * squared * unit * length)) // (4 * unit) + 1


def padded_bound(squared_bound: int, grid_exponent: int) -> float:
    """Return the norm bound of grid-rounded rows as a float: ``sqrt(squared_bound) / 2**grid_exponent``, rounded up."""
    exponent = grid_exponent
    if type(exponent) is not int or abs(exponent) > _LARGEST_GRID_EXPONENT:  # most are known without a call
        exponent = _checked_exponent(grid_exponent)
    if type(squared_bound) is not int or squared_bound < 1:
        squared_bound = check.integer_of_at_least("squared_bound", squared_bound, 1, math.inf)
    return sqrt_ratio_up(squared_bound << max(-2 * exponent, 0), 1 << max(2 * exponent, 0))


def _checked_exponent(value: object) -> int:
    exponent = check.integer("grid_exponent", value)
    if abs(exponent) > _LARGEST_GRID_EXPONENT:
        raise ValueError(f"grid_exponent must lie within {_LARGEST_GRID_EXPONENT} of 0, got {exponent}")
    return exponent


def padded_squared_block_bounds(
    max_rows: int,
    squared_bound_x: int,
    squared_bound_y: int,
    *,
    n_features: int,
    n_outcomes: int,
    block_xx: Fraction | None = None,
    block_xy: Fraction | None = None,
) -> tuple[int, int]:
    """Squared norms, in grid units, that no person's X'X and X'Y within their bounds exceed after rounding the rows.

    A person's rows are stacked as X (k, d) and Y (k, l), k = `max_rows`; rounding them to nearest adds E and F with
    ``||E|| <= sqrt(k d)/2`` and ``||F|| <= sqrt(k l)/2`` in the Frobenius norm. ``||X'X||`` is the squared Schatten
    4-norm of X, so with ``||X'X|| <= a`` that of X + E is at most ``(sqrt(a) + sqrt(k d)/2)**2``. And ``||(X + E)'(Y +
    F)|| <= ||X'Y|| + ||E|| ||Y|| + ||X||_2 ||F|| + ||E|| ||F||``, with ``||X||_2 <= sqrt(a)`` and ``||Y||**2`` at most
    k times the squared bound of a row. No block exceeds what its rows' bounds allow. All bounds are in grid units,
    those of rows as `padded_squared_bound` gives them, those of blocks before rounding, if there are any.

    >>> from fractions import Fraction
    >>> from dpfast.privacy import padded_squared_block_bounds
    >>> padded_squared_block_bounds(2, 100, 100, n_features=2, n_outcomes=1, block_xx=Fraction(64))
    (6724, 40000)
    """
    k = check.positive_integer("max_rows", max_rows)
    m_x = check.integer_of_at_least("squared_bound_x", squared_bound_x, 1, math.inf)
    m_y = check.integer_of_at_least("squared_bound_y", squared_bound_y, 1, math.inf)
    d = check.positive_integer("n_features", n_features)
    outcomes = check.integer_of_at_least("n_outcomes", n_outcomes, 0)
    a = Fraction(k * m_x)
    squared_xx, squared_xy = (k * m_x) ** 2, k * k * m_x * m_y
    if block_xx is not None:
        a = min(a, block_xx)
        largest = block_xx + Fraction(k * d, 4) + _root_up(block_xx * k * d)
        squared_xx = min(squared_xx, (int(largest) + 1) ** 2)
    if block_xy is not None:
        moved = _root_up(Fraction(k * d * k * m_y)) + _root_up(a * k * outcomes)
        largest = block_xy + moved / 2 + Fraction(k, 4) * _root_up(Fraction(d * outcomes))
        squared_xy = min(squared_xy, (int(largest) + 1) ** 2)
    return squared_xx, squared_xy


def padded_squared_product_bound(
    bound: float, exponents: tuple[int, int], sizes: tuple[int, int], n_rows: int = 1
) -> int:
    """Squared norm, in grid units, to which a person's products p r' within `bound` are clipped after rounding.

    p, of length from 1 to 2 and `sizes[0]` entries, is rounded to nearest multiples of ``2**-exponents[0]``, r to
    those of ``2**-exponents[1]``: by at most ``sqrt(entries)/2`` units each. So in units ``||p r'||`` grows by at most
    ``|p| e_r + |r| e_p + e_p e_r``. At a given length of the product this is convex in the length of p, so it is
    largest at an end. The errors of a sum of `n_rows` products are as often up as down, and the root of their number
    is allowed for. A person beyond that is clipped a little further.

    >>> from dpfast.privacy.moment_scales import padded_squared_product_bound
    >>> padded_squared_product_bound(1.0, (2, 2), (4, 4))
    730
    """
    p, r = exponents
    above, below = bound.as_integer_ratio()
    error_p, error_r, root, least_places = _rounding_errors(*sizes, n_rows)
    # All are multiples of 2**-places, and so is half of a length: exact in integers.
    places = max(least_places, below.bit_length() - 1 - min(r, 0), -p) + 1
    of_p, length, finer = 1 << places + p, (above << places + r) // below, places - least_places
    error_p, error_r, root = error_p << finer, error_r << finer, root << finer
    shortest, longest = of_p * error_r + length * error_p, 2 * of_p * error_r + length // 2 * error_p
    added = max(shortest, longest) + error_p * error_r
    return (((length * of_p << places) + root * added) ** 2 >> 6 * places) + 1


@remembered
def _rounding_errors(size_p: int, size_r: int, n_rows: int) -> tuple[int, int, int, int]:
    """Return ``sqrt(size)/2`` of both sizes and ``sqrt(n_rows)``, rounded up, in units of 2**-k, and k."""
    n_rows = check.positive_integer("n_rows", n_rows)
    halves = [sqrt_up(Fraction(size, 4)) for size in (size_p, size_r, n_rows)]
    places = max(map(_places, halves))
    error_p, error_r, half_root = (_in_units(half, places) for half in halves)
    return error_p, error_r, 2 * half_root, places


def _places(number: float) -> int:
    """Return the k for which a float is a multiple of 2**-k."""
    return number.as_integer_ratio()[1].bit_length() - 1


def _in_units(number: float, places: int) -> int:
    """Return a float, a multiple of 2**-places, in units of 2**-places."""
    above, below = number.as_integer_ratio()
    return (above << places) // below if places >= 0 else above // (below << -places)


def _root_up(exact: Fraction) -> Fraction:
    return Fraction(sqrt_up(exact))
