"""Strongly convex quadratics over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise x'Ax/2 + v'x + weight ||x||_1 over a convex set, m I <= A <= M I. Guesses of a Newton method on faces
(dpfast.solvers.quadratic_faces) are refined and certified in twice the working precision. If none is certified, the
accelerated method is run for as many steps as any problem needs (dpfast.solvers.certificates). In nearly all cases the
first guess will do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.solvers.arrays import ROUND_UP, exact_sum, finite_array
from dpfast.solvers.certificates import Certificate, Minimiser
from dpfast.solvers.constraints import LARGEST, Constraint, ElasticNet, L1Ball, L2Ball
from dpfast.solvers.proximal_bounds import QuadraticBounds, attainable, checked_linear, reduced_linear
from dpfast.solvers.quadratic_faces import Face, QuadraticProblem, guesses


@dataclass(frozen=True, eq=False)
class FactorMatrix:
    """The matrix 2 F F' + diagonal I, never formed; F of shape (n, k), diagonal at least 0."""

    factor: FloatArray
    diagonal: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", finite_array("factor", self.factor, (2,)))
        diagonal = float(finite_array("diagonal", self.diagonal, (0,)))
        if not 0.0 <= diagonal <= LARGEST:
            raise ValueError(f"diagonal must lie between 0 and 2**200, got {diagonal!r}")
        object.__setattr__(self, "diagonal", diagonal)


def quadratic_over_l1_ball(
    matrix: ArrayLike | FactorMatrix, vector: ArrayLike, radius: float, **promises: Any
) -> Minimiser:
    """Minimise x'Ax/2 + v'x over an L1 ball: `minimise_quadratic`, with its other arguments."""
    return minimise_quadratic(matrix, vector, constraint=L1Ball(radius), **promises)


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

    A is symmetric, with strong_convexity I <= A <= smoothness I for the matrix of floats passed, both from 2**-200 to
    2**200. This is not verified, and the promise holds only if it is true. If privacy relies on the tolerance, compute
    both constants from public numbers. Entries of v go up to 2**400 in size.

    The tolerance is the largest distance from the minimiser, in the L2 norm, at least `smallest_quadratic_tolerance`.
    Without a constraint the minimiser may be of any size, and the tolerance is a fraction of ||v||/strong_convexity,
    the largest possible norm. How long it takes depends on the problem; how close it comes does not. Apart from
    finiteness, symmetry and the range of v no error depends on the entries of A and v.

    Examples
    --------
    >>> from dpfast.solvers import Box, minimise_quadratic
    >>> constants = {"strong_convexity": 1.0, "smoothness": 3.0, "tolerance": 1e-12}
    >>> minimise_quadratic([[2.0, 1.0], [1.0, 2.0]], [-3.0, 0.0], constraint=Box(1.0), **constants).x
    array([ 1. , -0.5])
    """
    linear = checked_linear("vector", vector)
    factored = matrix if isinstance(matrix, FactorMatrix) else None
    array = factored.factor if factored is not None else finite_array("matrix", matrix, (2,))
    n = len(linear)
    if array.shape[0] != n or (factored is None and array.shape[1] != n):
        raise ValueError(f"matrix and vector must have one size, got shapes {array.shape} and {linear.shape}")
    if factored is None and not np.array_equal(array, array.T):
        raise ValueError("matrix must be symmetric")
    transposed, n_columns = (None, 0) if factored is None else (np.ascontiguousarray(array.T), array.shape[1])
    bounds = QuadraticBounds.of(n, n_columns, constraint, penalty, strong_convexity, smoothness)
    l1, l2 = (0.0, 0.0) if penalty is None else (penalty.l1, penalty.l2)
    diagonal, rest = exact_sum(0.0 if factored is None else factored.diagonal, l2)
    problem = QuadraticProblem(
        array=array,
        transposed=transposed,
        diagonal=diagonal,
        diagonal_rest=rest,
        linear=linear,
        weight=l1,
        constraint=constraint,
        bounds=bounds,
    )
    tolerance = attainable("smallest_quadratic_tolerance", tolerance, bounds)
    with single_threaded_blas():
        if constraint is None:
            return _minimise_in_whole_space(problem, tolerance)
        linear, ridge, bounds = reduced_linear(bounds, constraint, linear)
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

    Some 1e-15 of the largest norm of a point of the set, unless smoothness/strong_convexity is above 1e9 or so;
    `n_columns` are those of the factor of a `FactorMatrix`.
    """
    bounds = QuadraticBounds.of(n, n_columns, constraint, penalty, strong_convexity, smoothness)
    return bounds.smallest_tolerance()


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
    face_at = partial(Face, problem)
    return certificate.minimiser(((guess, face_at) for guess in guesses(problem)), problem.start(), tolerance)
