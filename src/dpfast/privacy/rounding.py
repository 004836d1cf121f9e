"""Rounding towards privacy, the searches that calibrations share, and how far one person can move a statistic.

Single operations are rounded exactly, and one margin covers the accumulated rounding of a formula. The results of
searches are verified, so no search needs to be exact.

*Sensitivities.* One documented bound each, rounded up, and the bounds of grid-rounded rows. Rows x are bounded by
``||x|| <= bound_x`` and outcome rows y by ``||y|| <= bound_y``, in the L2 norm. The joint sensitivity of several of
these statistics is less than the sum of their sensitivities: see `dpfast.privacy.moment_scales`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

from dpfast import _arguments as check

Found = TypeVar("Found")
Asked = ParamSpec("Asked")

#: Factors on a computed positive number. Each covers 500 relative roundings of 2^-53: a formula of a few dozen
#: operations with terms of one sign, and elementary functions, computed by libraries to a few units in the last place.
ROUND_UP, ROUND_DOWN = 1.0 + 2.0**-44, 1.0 - 2.0**-44

_TRIES = 48
_REMEMBERED = 256


def remembered(search: Callable[Asked, Found]) -> Callable[Asked, Found]:
    """Cache a search's latest answers: fits with the same public numbers search once.

    Its arguments are checked numbers and words. They alone decide the answer, and nobody can change it. No argument is
    private, so the order of earlier calls is not private either. No object of the caller is kept, as it could change.
    """
    return cast("Callable[Asked, Found]", lru_cache(maxsize=_REMEMBERED, typed=True)(search))


def first_that_holds(
    candidate: Callable[[float], Found],
    holds: Callable[[Found], bool],
    otherwise: str = "the arguments ask for noise beyond the range of floats",
) -> Found:
    """Return the first candidate that holds, each made with a little more to spare: (2^k - 1) 2^-52, k = 0, 1, ...

    Almost always the first one holds. More are needed if rounding an answer moves the checked value by more than a
    margin.
    """
    for attempt in range(_TRIES):
        found = candidate((2.0**attempt - 1.0) * 2.0**-52)
        if holds(found):
            return found
    raise ValueError(otherwise)


def largest_within(
    function: Callable[[float], float], target: float, guess: float, *, precision: float = 1e-12, slack: float = 0.0
) -> float:
    """Return nearly the largest positive number at which an increasing function is verified to be at most the target.

    To the (relative) precision, or within `slack` of the target. Secant steps in the logarithm of the number,
    bracketed, with Illinois's rule against a side that stays.
    """
    low = high = guess
    at_low = at_high = function(guess) - target
    factor = 1.5
    while at_low > 0.0:
        high, at_high = low, at_low
        low, factor = low / factor, min(factor * factor, 16.0)
        at_low = function(low) - target
    while at_high <= 0.0:
        low, at_low = high, at_high
        high, factor = high * factor, min(factor * factor, 16.0)
        at_high = function(high) - target
    weight_low, weight_high, last = at_low, at_high, 0.0
    while high - low > precision * low and at_low < -slack:
        share = weight_low / (weight_low - weight_high)
        middle = low * (high / low) ** min(max(share, 1e-3), 1.0 - 1e-3)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        at_middle = function(middle) - target
        # If one side stays while the other moves twice, plain secant steps would be slow.
        stays = 0.5 if at_middle * last > 0.0 else 1.0
        if at_middle <= 0.0:
            low, at_low, weight_low, weight_high = middle, at_middle, at_middle, stays * weight_high
        else:
            high, weight_high, weight_low = middle, at_middle, stays * weight_low
        last = at_middle
    return low


def bisected(holds: Callable[[float], bool], low: float, high: float, steps: int) -> tuple[float, float]:
    """Halve an interval with a condition that holds at its low end and fails at its high end."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def least_at(cost: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    """Return approximately the minimiser, within an interval, of a function with one minimum."""
    from scipy.optimize import minimize_scalar  # takes longer to import than all of dpfast.privacy

    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": tolerance}).x)


def up(exact: Fraction) -> float:
    """Return the smallest float that is at least a nonnegative rational; inf beyond the largest float."""
    return _ratio_up(exact.numerator, exact.denominator)


def _ratio_up(above: int, below: int) -> float:
    try:
        value = above / below  # of integers correctly rounded, however long they are
    except OverflowError:
        return math.inf
    numerator, denominator = value.as_integer_ratio()
    return value if numerator * below >= above * denominator else math.nextafter(value, math.inf)


def down(exact: Fraction) -> float:
    """Return the largest float that is at most a nonnegative rational."""
    value = up(exact)
    return value if math.isfinite(value) and Fraction(value) == exact else math.nextafter(value, 0.0)


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least a nonnegative rational."""
    return sqrt_ratio_up(exact.numerator, exact.denominator)


def sqrt_ratio_up(above: int, below: int) -> float:
    """Return the smallest float whose square is at least a nonnegative quotient of integers."""
    if above == 0:
        return 0.0
    # Scaled so that the integer root keeps more than 53 bits and no intermediate leaves the range of floats.
    shift = 2 * ((128 - above.bit_length() + below.bit_length()) // 2)
    root = math.isqrt(-(-(above << max(shift, 0)) // (below << max(-shift, 0))) - 1) + 1
    value = _ratio_up(root << max(-shift // 2, 0), 1 << max(shift // 2, 0))
    lower = math.nextafter(value, 0.0)
    numerator, denominator = lower.as_integer_ratio()
    return lower if numerator**2 * below >= above * denominator**2 else value


def sqrt_down(exact: Fraction) -> float:
    """Return the largest float whose square is at most a nonnegative rational."""
    root = sqrt_up(exact)
    return root if Fraction(root) ** 2 == exact else math.nextafter(root, 0.0)


@remembered
def _quotient_up(size: float, bound: float) -> float:
    (above, unit), (below, unit_below) = size.as_integer_ratio(), bound.as_integer_ratio()
    return _ratio_up(above * unit_below, unit * below)


def quotient_up(**numbers: float) -> float:
    """Return the first number over the second (possibly infinite), rounded up; the names are for error messages."""
    (above, sensitivity), (below, budget) = numbers.items()
    bound = check.positive_or_inf(below, budget)
    size = check.positive(above, sensitivity)
    if bound == math.inf:
        return 0.0
    quotient = _quotient_up(size, bound)
    if quotient == math.inf:
        raise ValueError(f"{above}/{below} is beyond the largest float")
    return quotient


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


@remembered
def padded_bound(squared_bound: int, grid_exponent: int) -> float:
    """Return the norm bound of grid-rounded rows as a float: ``sqrt(squared_bound) / 2**grid_exponent``, rounded up."""
    squared, exponent = check.positive_integer("squared_bound", squared_bound), _checked_exponent(grid_exponent)
    return sqrt_ratio_up(squared << max(-2 * exponent, 0), 1 << max(2 * exponent, 0))


def _checked_exponent(value: object) -> int:
    exponent = value if type(value) is int else check.integer("grid_exponent", value)
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
    m_x = check.positive_integer("squared_bound_x", squared_bound_x)
    m_y = check.positive_integer("squared_bound_y", squared_bound_y)
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


@remembered
def padded_squared_product_bound(
    bound: float, exponents: tuple[int, int], sizes: tuple[int, int], n_rows: int = 1
) -> int:
    """Squared norm, in grid units, to which a person's products p r' within `bound` are clipped after rounding.

    p, of length from 1 to 2 and `sizes[0]` entries, is rounded to nearest multiples of ``2**-exponents[0]``, r to
    those of ``2**-exponents[1]``: by at most ``sqrt(entries)/2`` units each. So in units ``||p r'||`` grows by at most
    ``|p| e_r + |r| e_p + e_p e_r``. At a given length of the product this is convex in the length of p, so it is
    largest at an end. The errors of a sum of `n_rows` products are as often up as down, and the root of their number
    is allowed for. A person beyond that is clipped a little further.

    >>> from dpfast.privacy.rounding import padded_squared_product_bound
    >>> padded_squared_product_bound(1.0, (2, 2), (4, 4))
    730
    """
    (p, r), bound = map(_checked_exponent, exponents), check.positive("bound", bound)
    error_p, error_r, root, least_places = _rounding_errors(*sizes, n_rows)
    # All are multiples of 2**-places, and so is half of a length: exact in integers.
    places = max(least_places, _places(bound) - min(r, 0), -p) + 1
    of_p, length, finer = 1 << places + p, _units(bound, places + r), places - least_places
    error_p, error_r, root = error_p << finer, error_r << finer, root << finer
    shortest, longest = of_p * error_r + length * error_p, 2 * of_p * error_r + length // 2 * error_p
    added = max(shortest, longest) + error_p * error_r
    return ((length * of_p << places) + root * added) ** 2 // (1 << 6 * places) + 1


@remembered
def _rounding_errors(size_p: int, size_r: int, n_rows: int) -> tuple[int, int, int, int]:
    """Return ``sqrt(size)/2`` of both sizes and ``sqrt(n_rows)``, rounded up, in units of 2**-k, and k."""
    n_rows = check.positive_integer("n_rows", n_rows)
    halves = [sqrt_up(Fraction(size, 4)) for size in (size_p, size_r, n_rows)]
    places = max(map(_places, halves))
    error_p, error_r, half_root = (_units(half, places) for half in halves)
    return error_p, error_r, 2 * half_root, places


def _places(number: float) -> int:
    """Return the k for which a float is a multiple of 2**-k."""
    return number.as_integer_ratio()[1].bit_length() - 1


def _units(number: float, places: int) -> int:
    """Return a float, a multiple of 2**-places, in units of 2**-places."""
    above, below = number.as_integer_ratio()
    return (above << places) // below if places >= 0 else above // (below << -places)


def _root_up(exact: Fraction) -> Fraction:
    return Fraction(sqrt_up(exact))
