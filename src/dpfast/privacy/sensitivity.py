"""How far one person can move a statistic: one documented bound each, rounded up, and the bounds of grid-rounded rows.

Rows x are bounded by ``||x|| <= bound_x`` and outcome rows y by ``||y|| <= bound_y``, in the L2 norm. The joint
sensitivity of several of these statistics is less than the sum of their sensitivities: see
`dpfast.privacy.moment_scales`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy import rounding
from dpfast.privacy.rounding import remembered

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
    return rounding.sqrt_up(2 * fourth if replaced and not single else fourth)


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
        return rounding.sqrt_up(square)
    return rounding.sqrt_up(2 * square if nonnegative else 4 * square)


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
    return rounding.sqrt_ratio_up(squared << max(-2 * exponent, 0), 1 << max(2 * exponent, 0))


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

    >>> from dpfast.privacy.sensitivity import padded_squared_product_bound
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
    halves = [rounding.sqrt_up(Fraction(size, 4)) for size in (size_p, size_r, n_rows)]
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
    return Fraction(rounding.sqrt_up(exact))
