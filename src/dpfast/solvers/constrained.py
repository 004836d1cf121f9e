"""Strongly convex quadratics over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise x'Ax/2 + v'x + weight ||x||_1 over a convex set, m I <= A <= M I.

*Certificate.* The proximal gradient step T with step h <= 1/M contracts by q = 1 - mh towards the minimiser x*, its
fixed point. If what is computed is within e of T(x), then with r the distance of x from it

    ||T(x) - x*|| <= (q r + e)/(1 - q),

so one step from a point proves how good it is. Steps are computed in twice the working precision
(dpfast.kernels.quadratic_step), so e is some 1e-32 and the bound is decided by r.

*Fast way.* Guesses at the minimiser (dpfast.solvers.quadratic_faces) are refined by Newton steps whose residuals are
computed in twice the precision, until they are certified. In nearly all cases the first one is.

*Guaranteed way.* If none is, accelerated steps in twice the precision are taken, so many that theory proves the
distance. With gradient errors of norm at most E, N steps after one plain step from within D of x* leave (Schmidt, Le
Roux and Bach 2011, proposition 4, with the sum of its geometric series), where rho = 1 - sqrt(m/M),

    ||x - x*|| <= sqrt(2 M/m) D rho^(N/2) + 4 sqrt(M/m) E/m.

(After the plain step the objective is within M D^2/2 of its minimum. A computed step is within e of the exact one,
which is taken as the iterate; what is extrapolated then errs by at most 3 e and its own rounding, and that, times M, is
the gradient error.) N follows from m, M, the size of the set and the tolerance alone: whether the tolerance is met
cannot depend on the matrix and the vector.

*Large vectors.* Entries of v beyond what the set lets Ax reach decide where x* lies, and v is replaced by a vector of
bounded size with the same minimiser, exactly (`_Reduced`). So rounding errors are bounded by public numbers too.

References
----------
Schmidt, M., Le Roux, N., Bach, F. (2011). Convergence rates of inexact proximal-gradient methods for convex
optimization. NIPS 24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dpfast.kernels.threads import single_threaded_blas
from dpfast.solvers.constraints import LARGEST, Box, Constraint, L1Ball, L2Ball, finite_array, in_range
from dpfast.solvers.penalties import ElasticNet
from dpfast.solvers.quadratic_bounds import ROUND_UP, UNIT, QuadraticBounds
from dpfast.solvers.quadratic_faces import Face, QuadraticProblem, guesses, in_two_rows, normalised

FloatArray = NDArray[np.float64]

_LARGEST_ENTRY = 2.0**400
_REFINEMENTS = 12
# Accelerated steps of the guaranteed way between looks at the certificate.
_STEPS_PER_CERTIFICATE = 500


@dataclass(frozen=True)
class Minimiser:
    """A point near the minimiser of a problem.

    Parameters
    ----------
    x : ndarray of shape (n,)
        The point.
    distance_bound : float
        Proved upper bound on its L2 distance from the exact minimiser, at most the tolerance asked for. It depends on
        the problem's data: what is calibrated for privacy uses the tolerance.
    """

    x: FloatArray
    distance_bound: float


@dataclass(frozen=True, eq=False)
class FactorMatrix:
    """The matrix 2 F F' + diagonal I, never formed.

    Parameters
    ----------
    factor : array_like of shape (n, k)
        F.
    diagonal : float
        At least 0.
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
    The method and its proof stand at the top of this module. How long it takes depends on the problem; how close it
    comes does not.

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
        constraint=_checked(constraint, n),
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
        return _minimise(_reduced(problem), tolerance)


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
    """
    l1, l2 = _weights(penalty)
    constraint = _checked(constraint, n)
    return QuadraticBounds.of(
        n,
        n_columns,
        constraint,
        l1,
        in_range("strong_convexity", strong_convexity),
        in_range("smoothness", smoothness),
        l2,
    ).smallest_tolerance()


def _reduced(problem: QuadraticProblem) -> QuadraticProblem:
    """Return a problem with the same minimiser and a vector of bounded size.

    Let B = M max||x|| bound |Ax| over the set, w be the weight.

    Over the L1 ball, let c be such that the largest |v_i| - c is at least 4B + w. With every |v_i| lowered by c, but
    not below 0, the multiplier (of the ball, plus w) at the minimiser is at least 3B + w, so |v_i| - c >= 2B there
    where x_i is not 0, with the sign opposite to x_i. Then x and the multiplier plus c satisfy the conditions for v.
    Where they count, the |v_i| lie within a factor 2 of c, so that the differences are exact (Sterbenz).

    Over a box, the sign of v_i alone decides where x_i lies if |v_i| > B + w.

    Over the L2 ball, the multiplier nu of the constraint is at least (||v|| - B - w sqrt(n))/R. If that is positive,
    less than it may be added to the diagonal: it is taken from nu.
    """
    bounds, linear, constraint = problem.bounds, problem.linear, problem.constraint
    image = bounds.smoothness * bounds.norm * ROUND_UP
    if isinstance(constraint, L1Ball):
        kept, largest = 4.0 * image + problem.weight * ROUND_UP, float(np.abs(linear).max())
        if largest <= 4.0 * kept:
            return problem
        lowered = np.abs(linear) - math.nextafter(largest - kept, 0.0)
        return replace(problem, linear=np.copysign(np.maximum(lowered, 0.0), linear))
    if isinstance(constraint, Box):
        kept = 2.0 * (image + problem.weight) * ROUND_UP
        return replace(problem, linear=np.clip(linear, -kept, kept))
    assert constraint is not None
    largest = float(linalg.norm(linear))
    if largest <= 4.0 * (image + problem.weight * math.sqrt(len(linear)) * ROUND_UP):
        return problem
    multiplier = largest / (2.0 * constraint.radius)
    return replace(
        problem,
        diagonal=problem.diagonal + multiplier,
        bounds=replace(
            bounds,
            strong_convexity=(bounds.strong_convexity + multiplier) / ROUND_UP,
            smoothness=(bounds.smoothness + multiplier) * ROUND_UP,
        ),
    )


def _minimise_in_whole_space(problem: QuadraticProblem, tolerance: float) -> Minimiser:
    """In units of ||v||/m, up to powers of two."""
    largest = float(np.abs(problem.linear).max())
    if largest <= problem.weight:
        return Minimiser(np.zeros_like(problem.linear), 0.0)
    exponent = math.frexp(largest)[1]
    linear = np.ldexp(problem.linear, -exponent)
    size = float(linalg.norm(linear)) / problem.bounds.strong_convexity
    weight = math.ldexp(problem.weight, -exponent)
    scaled = replace(
        problem, linear=linear, weight=weight, bounds=replace(problem.bounds, norm=size * ROUND_UP, weight=weight)
    )
    found = _minimise(scaled, tolerance * size)
    return Minimiser(np.ldexp(found.x, exponent), math.ldexp(found.distance_bound, exponent))


def _minimise(problem: QuadraticProblem, tolerance: float) -> Minimiser:
    certificate = _Certificate(problem)
    try:
        # Guesses may overflow; then they are not certified.
        with np.errstate(all="ignore"):
            for guess in guesses(problem):
                found = _refined(certificate, guess, tolerance)
                if found is not None:
                    return found
    except linalg.LinAlgError:
        # A system is singular in double precision: the guaranteed way does without.
        pass
    return _guaranteed(certificate, tolerance)


class _Certificate:
    """Proves how far a point is from the minimiser."""

    def __init__(self, problem: QuadraticProblem) -> None:
        self.problem = problem
        self.steps = problem.steps()
        self._linear = float(linalg.norm(problem.linear)) * ROUND_UP

    def certified(self, x: FloatArray) -> tuple[Minimiser, Face]:
        """Return the step from x, a sum of two rows, with its distance from the minimiser at most, and its face."""
        bounds = self.problem.bounds
        stepped = np.empty_like(x)
        on_boundary = self.steps.step(x, stepped)
        norm, reached = float(linalg.norm(x[0])), float(linalg.norm(stepped[0]))
        residual = float(linalg.norm((x[0] - stepped[0]) + (x[1] - stepped[1])))
        # The parts' differences are rounded, and squares below the range of floats are lost.
        residual = (residual + 8.0 * UNIT**2 * (norm + reached)) * ROUND_UP + 2.0**-500
        gap = bounds.contraction_gap
        error = bounds.step_error(norm * ROUND_UP, self._linear)
        distance = ((1.0 - gap) * residual + error) / gap + 1.01 * UNIT * reached
        return Minimiser(stepped[0], distance * ROUND_UP), Face(self.problem, stepped[0], on_boundary)

    def gradient(self, x: FloatArray) -> FloatArray:
        """Ax + v, a sum of two rows, where x is one."""
        gradient = np.empty_like(x)
        self.steps.gradient(x, gradient)
        return gradient


def _refined(certificate: _Certificate, guess: FloatArray, tolerance: float) -> Minimiser | None:
    """Return a certified point: the Newton method with gradients and faces in twice the precision, while it gains."""
    x, nearest = in_two_rows(guess), math.inf
    face: Face | None = None
    tried: set[tuple[bytes, bytes, bytes, bool]] = set()
    for _ in range(_REFINEMENTS):
        found, following = certificate.certified(x)
        if found.distance_bound <= tolerance:
            return found
        if following.key in tried and found.distance_bound > 0.5 * nearest:
            return None
        nearest = min(nearest, found.distance_bound)
        face = face if face is not None and following.key == face.key else following
        tried.add(face.key)
        x = face.moved_onto(x)
        x = normalised(x[0], x[1] + face.correction(x, certificate.gradient(x)))
    return None


def _guaranteed(certificate: _Certificate, tolerance: float) -> Minimiser:
    """Take the number of accelerated steps that is enough for any problem of these bounds."""
    problem, steps = certificate.problem, certificate.steps
    start = np.zeros(len(problem.linear))
    last = np.zeros((2, len(start)))
    last[0] = start if problem.constraint is None else problem.constraint.project(start)
    x = np.empty_like(last)
    steps.step(last, x)
    last[:] = x
    remaining = problem.bounds.n_guaranteed_steps(tolerance)
    while remaining > 0:
        n_steps = min(remaining, _STEPS_PER_CERTIFICATE)
        steps.accelerate(problem.bounds.momentum, n_steps, x, last)
        remaining -= n_steps
        found, _ = certificate.certified(x)
        if found.distance_bound <= tolerance:
            return found
    return Minimiser(x[0].copy(), 0.5 * tolerance + problem.bounds.guaranteed_error())


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


def _checked(constraint: Constraint | None, n: int) -> Constraint | None:
    if constraint is not None and not isinstance(constraint, L2Ball | L1Ball | Box):
        raise TypeError(f"constraint must be L2Ball, L1Ball, Box or None, got {type(constraint).__name__}")
    if isinstance(constraint, Box):
        constraint.bounds(n)
    return constraint
