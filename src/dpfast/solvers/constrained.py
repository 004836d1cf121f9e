"""Strongly convex quadratics over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise x'Ax/2 + v'x + weight ||x||_1 over a convex set, m I <= A <= M I: guesses of a Newton method on faces
(dpfast.solvers.quadratic_faces) are refined and certified in twice the working precision; if none is certified, the
accelerated method is run for as many steps as are enough for any problem (dpfast.solvers.certificates). In nearly all
cases the first guess will do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.kernels.threads import single_threaded_blas
from dpfast.solvers.certificates import Certificate, Minimiser
from dpfast.solvers.constraints import (
    LARGEST,
    Constraint,
    L1Ball,
    L2Ball,
    checked_constraint,
    finite_array,
    in_range,
)
from dpfast.solvers.penalties import ElasticNet
from dpfast.solvers.proximal_bounds import ROUND_UP, QuadraticBounds, reduced_linear
from dpfast.solvers.quadratic_faces import Face, QuadraticProblem, guesses

_LARGEST_ENTRY = 2.0**400


@dataclass(frozen=True, eq=False)
class FactorMatrix:
    """The matrix 2 F F' + diagonal I, never formed.

    Parameters
    ----------
    factor : array_like of shape (n, k)
        F.
    diagonal : float
        At least 0.

    Examples
    --------
    >>> from dpfast.solvers import FactorMatrix, minimise_quadratic
    >>> matrix = FactorMatrix([[1.0], [1.0]], 2.0)
    >>> minimise_quadratic(matrix, [-6.0, -6.0], strong_convexity=2.0, smoothness=6.0, tolerance=1e-12).x
    array([1., 1.])
    """

    factor: FloatArray
    diagonal: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", finite_array("factor", self.factor, (2,)))
        diagonal = float(finite_array("diagonal", self.diagonal, (0,)))
        if not 0.0 <= diagonal <= LARGEST:
            raise ValueError(f"diagonal must lie between 0 and 2**200, got {diagonal!r}")
        object.__setattr__(self, "diagonal", diagonal)


def quadratic_over_l1_ball(
    matrix: ArrayLike | FactorMatrix,
    vector: ArrayLike,
    radius: float,
    *,
    strong_convexity: float,
    smoothness: float,
    tolerance: float,
) -> Minimiser:
    """Minimise x'Ax/2 + v'x subject to ||x||_1 <= radius: `minimise_quadratic` over an `L1Ball`.

    Parameters
    ----------
    matrix, vector, strong_convexity, smoothness, tolerance
        As for `minimise_quadratic`.
    radius : float
        Positive.

    Returns
    -------
    Minimiser
        ``x`` and ``distance_bound``.

    Examples
    --------
    >>> from dpfast.solvers import quadratic_over_l1_ball
    >>> found = quadratic_over_l1_ball(
    ...     [[2.0, 0.0], [0.0, 2.0]], [-3.0, -2.0], 1.0, strong_convexity=2.0, smoothness=2.0, tolerance=1e-12
    ... )
    >>> found.x
    array([0.75, 0.25])
    """
    return minimise_quadratic(
        matrix,
        vector,
        constraint=L1Ball(radius),
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        tolerance=tolerance,
    )


def minimise_quadratic(
    matrix: ArrayLike | FactorMatrix,
    vector: ArrayLike,
    *,
    constraint: Constraint | None = None,
    penalty: ElasticNet | None = None,
    strong_convexity: float,
    smoothness: float,
    tolerance: float,
) -> Minimiser:
    """Minimise x'Ax/2 + v'x + penalty(x) over a convex set, to within a proved distance of the minimiser.

    Parameters
    ----------
    matrix : array_like of shape (n, n), or FactorMatrix
        A, symmetric.
    vector : array_like of shape (n,)
        v; entries up to 2**400 in size.
    constraint : L2Ball, L1Ball or Box, optional
        None for all of space.
    penalty : Lasso, ElasticNet or Ridge, optional
        With any of the constraints.
    strong_convexity, smoothness : float
        Bounds on the eigenvalues of A: strong_convexity I <= A <= smoothness I, from 2**-200 to 2**200. The promise
        holds only if they are true, for the matrix of floats that is passed; they are not verified. To be computed
        from public numbers where the tolerance is to be relied on for privacy.
    tolerance : float
        The largest distance from the minimiser, in the L2 norm. Without a constraint, where the minimiser may be of
        any size, as a fraction of ||v||/strong_convexity, the largest norm it can have. At least what
        `smallest_quadratic_tolerance` returns, some 1e-15 of the size of the set.

    Returns
    -------
    Minimiser
        ``x`` and ``distance_bound``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the kind, shape or range described, or the tolerance below what is attainable. Apart
        from finiteness, symmetry and the range of `vector` nothing depends on the entries of `matrix` and `vector`.

    Notes
    -----
    The method and its proof stand in dpfast.solvers.certificates. How long it takes depends on the problem; how close
    it comes does not.

    Examples
    --------
    >>> from dpfast.solvers import Box, minimise_quadratic
    >>> found = minimise_quadratic(
    ...     [[2.0, 1.0], [1.0, 2.0]],
    ...     [-3.0, 0.0],
    ...     constraint=Box(1.0),
    ...     strong_convexity=1.0,
    ...     smoothness=3.0,
    ...     tolerance=1e-12,
    ... )
    >>> found.x
    array([ 1. , -0.5])
    """
    linear = finite_array("vector", vector, (1,))
    if np.abs(linear).max() > _LARGEST_ENTRY:
        raise ValueError("vector must have entries of at most 2**400 in size")
    factored = matrix if isinstance(matrix, FactorMatrix) else None
    array = factored.factor if factored is not None else finite_array("matrix", matrix, (2,))
    n = len(linear)
    if array.shape[0] != n or (factored is None and array.shape[1] != n):
        raise ValueError(f"matrix and vector must have one size, got shapes {array.shape} and {linear.shape}")
    if factored is None and not np.array_equal(array, array.T):
        raise ValueError("matrix must be symmetric")
    l1, l2 = _weights(penalty)
    given = factored.diagonal if factored is not None else 0.0
    diagonal = given + l2
    problem = QuadraticProblem(
        array=array,
        transposed=np.ascontiguousarray(array.T) if factored is not None else None,
        diagonal=diagonal,
        diagonal_rest=_sum_rest(given, l2, diagonal),
        linear=linear,
        weight=l1,
        constraint=checked_constraint(constraint, n),
        bounds=QuadraticBounds.of(
            n,
            array.shape[1] if factored is not None else 0,
            constraint,
            l1,
            in_range("strong_convexity", strong_convexity),
            in_range("smoothness", smoothness),
            l2,
        ),
    )
    tolerance = in_range("tolerance", tolerance)
    if tolerance < problem.bounds.smallest_tolerance():
        raise ValueError(
            f"tolerance must be at least {problem.bounds.smallest_tolerance():.3g} for these constants "
            f"(smallest_quadratic_tolerance), got {tolerance!r}"
        )
    with single_threaded_blas():
        if constraint is None:
            return _minimise_in_whole_space(problem, tolerance)
        linear, ridge, bounds = reduced_linear(problem.bounds, constraint, linear)
        return _minimise(replace(problem, linear=linear, diagonal=problem.diagonal + ridge, bounds=bounds), tolerance)


def smallest_quadratic_tolerance(
    n: int,
    *,
    n_columns: int = 0,
    constraint: Constraint | None = None,
    penalty: ElasticNet | None = None,
    strong_convexity: float,
    smoothness: float,
) -> float:
    """Return the smallest tolerance that `minimise_quadratic` promises to meet for every problem of these constants.

    Parameters
    ----------
    n : int
        Dimension.
    n_columns : int, default 0
        Of the factor, for a `FactorMatrix`.
    constraint, penalty, strong_convexity, smoothness
        As for `minimise_quadratic`.

    Returns
    -------
    float
        Some 1e-15 of the largest norm of a point of the set, unless smoothness/strong_convexity is above 1e9 or so.

    Examples
    --------
    >>> from dpfast.solvers import L1Ball, smallest_quadratic_tolerance
    >>> constants = {"strong_convexity": 1.0, "smoothness": 1e4, "n_columns": 100}
    >>> smallest_quadratic_tolerance(1000, constraint=L1Ball(1.0), **constants) < 1e-13
    True
    """
    l1, l2 = _weights(penalty)
    constraint = checked_constraint(constraint, n)
    return QuadraticBounds.of(
        n,
        n_columns,
        constraint,
        l1,
        in_range("strong_convexity", strong_convexity),
        in_range("smoothness", smoothness),
        l2,
    ).smallest_tolerance()


def _minimise_in_whole_space(problem: QuadraticProblem, tolerance: float) -> Minimiser:
    """Minimise over the ball of radius ||v||/m, which holds the minimiser; in units of its radius, a power of two."""
    largest = float(np.abs(problem.linear).max())
    if largest <= problem.weight:
        return Minimiser(np.zeros_like(problem.linear), 0.0)
    exponent = math.frexp(largest / problem.bounds.strong_convexity)[1]
    linear, weight = np.ldexp(problem.linear, -exponent), math.ldexp(problem.weight, -exponent)
    radius = float(linalg.norm(linear)) / problem.bounds.strong_convexity * ROUND_UP
    image = problem.bounds.smoothness * radius * ROUND_UP
    bounds = replace(problem.bounds, norm=radius, weight=weight, image=image)
    scaled = replace(problem, linear=linear, weight=weight, bounds=bounds, constraint=L2Ball(radius))
    found = _minimise(scaled, tolerance * radius / ROUND_UP**2)
    return Minimiser(np.ldexp(found.x, exponent), math.ldexp(found.distance_bound, exponent))


def _minimise(problem: QuadraticProblem, tolerance: float) -> Minimiser:
    certificate = Certificate(problem.steps(), problem.bounds, problem.linear)
    try:
        # Guesses may overflow; then they are not certified.
        with np.errstate(all="ignore"):
            for guess in guesses(problem):
                found = certificate.refined(guess, partial(Face, problem), tolerance)
                if found is not None:
                    return found
    except linalg.LinAlgError:
        # A system is singular in double precision: the guaranteed way does without.
        pass
    return certificate.guaranteed(problem.start(), tolerance)


def _sum_rest(a: float, b: float, total: float) -> float:
    """Return what rounding took from a + b (Knuth)."""
    added = total - a
    return (a - (total - added)) + (b - added)


def _weights(penalty: ElasticNet | None) -> tuple[float, float]:
    if penalty is None:
        return 0.0, 0.0
    if not isinstance(penalty, ElasticNet):
        raise TypeError(
            f"penalty must be Lasso, ElasticNet, Ridge or None for a quadratic, got {type(penalty).__name__}: "
            "minimise_smooth takes any proximable penalty"
        )
    return penalty.l1, penalty.l2
