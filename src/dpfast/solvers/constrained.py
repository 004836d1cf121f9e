"""Strongly convex quadratics over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise x'Ax/2 + v'x + weight ||x||_1 over a convex set, m I <= A <= M I.

*Certificate.* The proximal gradient step T with step h <= 1/M contracts by q = 1 - mh towards the minimiser x*, its
fixed point. If what is computed is within e of T(x), then with r the distance of x from it

    ||T(x) - x*|| <= (q r + e)/(1 - q),

so one step from a point proves how good it is. Steps are computed in twice the working precision
(dpfast.kernels.quadratic_step), so e is some 1e-32 and the bound is decided by r.

*Fast way.* Where no entry of x changes between zero, free and at a bound, the problem is a linear system. A few
accelerated steps guess which entries are which, a semismooth Newton method (each time solving the system of the guess
and taking what one step makes of its solution for the next) ends at the minimiser in nearly all cases, and the same
system with the residual in twice the precision refines it. All this is plain double precision; nothing of it is relied on.

*Guaranteed way.* If no guess is certified, accelerated steps in twice the precision are taken, so many that theory
proves the distance. With gradient errors of norm at most E, N steps after one plain step from within D of x* leave (Schmidt,
Le Roux and Bach 2011, proposition 4, of which rho = 1 - sqrt(m/M) and the geometric sum are written out here)

    ||x - x*|| <= sqrt(2 M/m) (D + 2 E/M) rho^(N/2) + 4 sqrt(M/m) E/m.

(A computed step is an exact one from a point that moved by its rounding error, so rounding counts as gradient error.
After a plain step the objective is within M D^2/2 + 2 D E of its minimum.) N follows from m, M, the size of the set and
the tolerance alone: whether the tolerance is met cannot depend on the matrix and the vector.

*Large vectors.* Entries of v beyond what the set lets Ax reach decide where x* lies, and v is replaced by a vector of
bounded size with the same minimiser, exactly (`_Reduced`). So rounding errors are bounded by public numbers too.

References
----------
Schmidt, M., Le Roux, N., Bach, F. (2011). Convergence rates of inexact proximal-gradient methods for convex
optimization. NIPS 24.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dpfast.kernels.quadratic_step import QuadraticSteps
from dpfast.kernels.threads import single_threaded_blas
from dpfast.solvers.constraints import LARGEST, Box, Constraint, L1Ball, L2Ball, finite_array, in_range
from dpfast.solvers.penalties import ElasticNet
from dpfast.solvers.sphere import ball_multiplier

FloatArray = NDArray[np.float64]

_LARGEST_ENTRY = 2.0**400
_LARGEST_CONDITION = 2.0**45
# More than the rounding errors of the few double operations on positive numbers that a bound takes.
_ROUND_UP = 1.0 + 2.0**-40
_UNIT = 2.0**-53
# Between attempts of the Newton method: lengths of bursts of accelerated steps, in double precision.
_BURSTS = (0, 20, 60, 200, 600, 2000)
_NEWTON_STEPS = 30
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
        If an argument is not of the kind, shape or range described, or the tolerance below what is attainable. Apart from
        finiteness, symmetry and the range of `vector` nothing depends on the entries of `matrix` and `vector`.

    Notes
    -----
    The method and its proof stand at the top of this module. How long it takes depends on the problem; how close it
    comes does not.

    Examples
    --------
    >>> from dpfast.solvers import Box, minimise_quadratic
    >>> found = minimise_quadratic(
    ...     [[2.0, 1.0], [1.0, 2.0]], [-3.0, 0.0], constraint=Box(1.0), strong_convexity=1.0, smoothness=3.0, tolerance=1e-12
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
    problem = _Problem(
        array=array,
        transposed=np.ascontiguousarray(array.T) if factored is not None else None,
        diagonal=diagonal,
        diagonal_rest=_sum_rest(given, l2, diagonal),
        linear=linear,
        weight=l1,
        constraint=_checked(constraint, n),
        bounds=_Bounds.of(
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
    return _Bounds.of(
        n,
        n_columns,
        constraint,
        l1,
        in_range("strong_convexity", strong_convexity),
        in_range("smoothness", smoothness),
        l2,
    ).smallest_tolerance()


@dataclass(frozen=True)
class _Bounds:
    """What is known in advance: the public constants of a problem, and what rounding can do to it.

    Everything is rounded up by `_ROUND_UP` at the end; `norm` bounds ||x|| over the set.
    """

    n: int
    n_columns: int
    strong_convexity: float
    smoothness: float
    norm: float
    weight: float

    @classmethod
    def of(
        cls,
        n: int,
        n_columns: int,
        constraint: Constraint | None,
        weight: float,
        strong_convexity: float,
        smoothness: float,
        ridge: float,
    ) -> _Bounds:
        if strong_convexity > smoothness:
            raise ValueError(f"strong_convexity must be at most smoothness, got {strong_convexity!r} > {smoothness!r}")
        low, high = (strong_convexity + ridge) / _ROUND_UP, (smoothness + ridge) * _ROUND_UP
        if high > _LARGEST_CONDITION * low:
            raise ValueError("smoothness must be at most 2**45 times strong_convexity")
        norm = 1.0 if constraint is None else constraint.norm_bound(n)
        # Without a constraint, in units of ||v||/m: a weight above ||v|| has the minimiser 0.
        return cls(n, n_columns, low, high, norm, low if constraint is None else weight)

    @property
    def step(self) -> float:
        return 1.0 / (self.smoothness * _ROUND_UP)

    @property
    def contraction_gap(self) -> float:
        """1 - q, rounded down."""
        return self.strong_convexity * self.step / _ROUND_UP

    @property
    def momentum(self) -> float:
        """Rounded up: that of some smaller strong convexity."""
        root = math.sqrt(self.contraction_gap)
        return (1.0 - root) / (1.0 + root) + 2.0**-50

    def largest_linear(self) -> float:
        """Bound on the entries of a reduced vector (see `_reduced`)."""
        return 4.0 * (4.0 * self.smoothness * self.norm + self.weight) * _ROUND_UP

    def gradient_error(self, norm: float, linear: float) -> float:
        """Bound on the error of a gradient at a point of this norm, ||v|| <= linear; see quadratic_step.c.

        The magnitudes that a product sums are at most |A||x|, of norm sqrt(n) M ||x||, or 2|F||F'||x|, of norm
        tr(2 F F') ||x|| <= min(n, k) M ||x||.
        """
        spread = float(min(self.n, self.n_columns)) if self.n_columns else math.sqrt(self.n)
        dots = sum(1.1 * ((length / 8 + 4) ** 2 + 40) for length in (self.n, self.n_columns))
        others = 32.0 * (2.0 * math.sqrt(self.n) * self.smoothness * norm + linear)
        return _UNIT**2 * (2.0 * dots * spread * self.smoothness * norm + others) * _ROUND_UP

    def step_error(self, norm: float, linear: float) -> float:
        """Bound on the distance of a computed step from T of a point of this norm, ||v|| <= linear."""
        root = math.sqrt(self.n)
        moved = 2.0 * norm + self.step * linear
        # Of the projection: of its sums, then of what it subtracts from every entry.
        own = 64.0 * (self.n + 16) ** 1.5 * self.norm + (32.0 + 8.0 * root) * (moved + self.step * root * self.weight)
        return (self.step * self.gradient_error(norm, linear) + _UNIT**2 * own) * _ROUND_UP

    def guaranteed_error(self) -> float:
        """What the guaranteed way leaves however many steps it takes."""
        linear = math.sqrt(self.n) * self.largest_linear()
        step_error = self.step_error(3.0 * self.norm, linear)
        # 4 sqrt(M/m) E/m, where E/M is at most six errors of a step: its own, and its predecessors' extrapolated.
        floor = 24.0 * self._momentum_condition() ** 1.5 * step_error
        return (floor + step_error + 1.01 * _UNIT * self.norm) * _ROUND_UP

    def smallest_tolerance(self) -> float:
        return 2.01 * self.guaranteed_error()

    def n_guaranteed_steps(self, tolerance: float) -> int:
        """How many accelerated steps leave less than half of the tolerance, on top of `guaranteed_error`."""
        condition = self._momentum_condition()
        rate = 1.0 / math.sqrt(condition)
        start = 2.0 * math.sqrt(2.0 * condition) * 2.01 * self.norm
        return math.ceil(2.0 * math.log(max(start / tolerance, 2.0)) / rate * _ROUND_UP) + 1

    def _momentum_condition(self) -> float:
        """M/m for the strong convexity that the momentum is that of, rounded up."""
        momentum = self.momentum
        return float(((1.0 + momentum) / (1.0 - momentum)) ** 2) * _ROUND_UP


@dataclass(frozen=True, eq=False)
class _Problem:
    """A problem of checked arrays; its methods but `steps` work in double precision and promise nothing."""

    array: FloatArray
    transposed: FloatArray | None
    diagonal: float
    diagonal_rest: float
    linear: FloatArray
    weight: float
    constraint: Constraint | None
    bounds: _Bounds

    def steps(self) -> QuadraticSteps:
        n, constraint = len(self.linear), self.constraint
        names = {type(None): "whole_space", Box: "box", L2Ball: "l2_ball", L1Ball: "l1_ball"}
        box = constraint.bounds(n) if isinstance(constraint, Box) else None
        return QuadraticSteps(
            self.array,
            self.transposed,
            self.linear,
            diagonal=(self.diagonal, self.diagonal_rest),
            weight=self.weight,
            step=self.bounds.step,
            set_name=names[type(constraint)],
            radius=constraint.radius if isinstance(constraint, L2Ball | L1Ball) else 0.0,
            bounds=None if box is None else (np.ascontiguousarray(box[0]), np.ascontiguousarray(box[1])),
        )

    def product(self, x: FloatArray) -> FloatArray:
        if self.transposed is not None:
            return 2.0 * (self.array @ (self.transposed @ x)) + self.diagonal * x
        return self.array @ x + self.diagonal * x

    def value(self, x: FloatArray) -> float:
        return float(x @ (0.5 * self.product(x) + self.linear) + self.weight * np.abs(x).sum())

    def proximal(self, x: FloatArray, step: float) -> tuple[FloatArray, FloatArray]:
        """Return the point that a step from x projects, and its projection."""
        moved = x - step * (self.product(x) + self.linear)
        if self.weight > 0.0:
            moved = np.sign(moved) * np.maximum(np.abs(moved) - step * self.weight, 0.0)
        return moved, moved if self.constraint is None else self.constraint.project(moved)


def _reduced(problem: _Problem) -> _Problem:
    """Return a problem with the same minimiser and a vector of bounded size.

    Let B = M max||x|| bound |Ax| over the set, w be the weight.

    Over the L1 ball, let c be such that the largest |v_i| - c is at least 4B + w. With every |v_i| lowered by c, but not below
    0, the multiplier (of the ball, plus w) at the minimiser is at least 3B + w, so |v_i| - c >= 2B there where x_i is
    not 0, with the sign opposite to x_i. Then x and the multiplier plus c satisfy the conditions for v. Where they count,
    the |v_i| lie within a factor 2 of c, so that the differences are exact (Sterbenz).

    Over a box, the sign of v_i alone decides where x_i lies if |v_i| > B + w.

    Over the L2 ball, the multiplier nu of the constraint is at least (||v|| - B - w sqrt(n))/R. If that is positive,
    less than it may be added to the diagonal: it is taken from nu.
    """
    bounds, linear, constraint = problem.bounds, problem.linear, problem.constraint
    image = bounds.smoothness * bounds.norm * _ROUND_UP
    if isinstance(constraint, L1Ball):
        kept, largest = 4.0 * image + problem.weight * _ROUND_UP, float(np.abs(linear).max())
        if largest <= 4.0 * kept:
            return problem
        lowered = np.abs(linear) - math.nextafter(largest - kept, 0.0)
        return replace(problem, linear=np.copysign(np.maximum(lowered, 0.0), linear))
    if isinstance(constraint, Box):
        kept = 2.0 * (image + problem.weight) * _ROUND_UP
        return replace(problem, linear=np.clip(linear, -kept, kept))
    assert constraint is not None
    largest = float(linalg.norm(linear))
    if largest <= 4.0 * (image + problem.weight * math.sqrt(len(linear)) * _ROUND_UP):
        return problem
    multiplier = largest / (2.0 * constraint.radius)
    return replace(
        problem,
        diagonal=problem.diagonal + multiplier,
        bounds=replace(
            bounds,
            strong_convexity=(bounds.strong_convexity + multiplier) / _ROUND_UP,
            smoothness=(bounds.smoothness + multiplier) * _ROUND_UP,
        ),
    )


def _minimise_in_whole_space(problem: _Problem, tolerance: float) -> Minimiser:
    """In units of ||v||/m, up to powers of two."""
    largest = float(np.abs(problem.linear).max())
    if largest <= problem.weight:
        return Minimiser(np.zeros_like(problem.linear), 0.0)
    exponent = math.frexp(largest)[1]
    linear = np.ldexp(problem.linear, -exponent)
    size = float(linalg.norm(linear)) / problem.bounds.strong_convexity
    weight = math.ldexp(problem.weight, -exponent)
    scaled = replace(
        problem, linear=linear, weight=weight, bounds=replace(problem.bounds, norm=size * _ROUND_UP, weight=weight)
    )
    found = _minimise(scaled, tolerance * size)
    return Minimiser(np.ldexp(found.x, exponent), math.ldexp(found.distance_bound, exponent))


def _minimise(problem: _Problem, tolerance: float) -> Minimiser:
    certificate = _Certificate(problem)
    for guess in _guesses(problem):
        found = _refined(certificate, guess, tolerance)
        if found is not None:
            return found
    return _guaranteed(certificate, tolerance)


class _Certificate:
    """Proves how far a point is from the minimiser."""

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        self.steps = problem.steps()
        self._linear = float(linalg.norm(problem.linear)) * _ROUND_UP

    def certified(self, x: FloatArray) -> tuple[Minimiser, _Face]:
        """Return the step from x, a sum of two rows, with its distance from the minimiser at most, and its face."""
        bounds = self.problem.bounds
        stepped = np.empty_like(x)
        on_boundary = self.steps.step(x, stepped)
        norm, reached = float(linalg.norm(x[0])), float(linalg.norm(stepped[0]))
        residual = float(linalg.norm((x[0] - stepped[0]) + (x[1] - stepped[1])))
        # The parts' differences are rounded, and squares below the range of floats are lost.
        residual = (residual + 8.0 * _UNIT**2 * (norm + reached)) * _ROUND_UP + 2.0**-500
        gap = bounds.contraction_gap
        error = bounds.step_error(norm * _ROUND_UP, self._linear)
        distance = ((1.0 - gap) * residual + error) / gap + 1.01 * _UNIT * reached
        return Minimiser(stepped[0], distance * _ROUND_UP), _Face(self.problem, stepped[0], on_boundary)

    def gradient(self, x: FloatArray) -> FloatArray:
        """Ax + v, a sum of two rows, where x is one."""
        gradient = np.empty_like(x)
        self.steps.gradient(x, gradient)
        return gradient


def _refined(certificate: _Certificate, guess: FloatArray, tolerance: float) -> Minimiser | None:
    """Return a certified point: the Newton method with gradients and faces in twice the precision, while it gains."""
    x, nearest = _in_two_rows(guess), math.inf
    face: _Face | None = None
    tried = set()
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
        x = _normalised(x[0], x[1] + face.correction(x, certificate.gradient(x)))
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


def _guesses(problem: _Problem) -> Iterator[FloatArray]:
    """Yield points at which the Newton method, from ever better starts, ends or is given up."""
    step = 1.0 / _estimated_smoothness(problem)
    x = problem.proximal(np.zeros(len(problem.linear)), step)[1]
    try:
        for length in _BURSTS:
            x = _accelerated(problem, x, step, length)
            yield _undamped(problem, x, step)
            x = _damped(problem, x, step)
            yield x
    except linalg.LinAlgError:
        # A system is singular in double precision: the guaranteed way does without.
        return


def _undamped(problem: _Problem, x: FloatArray, step: float) -> FloatArray:
    """The semismooth Newton method: ends soon, or runs in circles."""
    tried, face = set(), _Face.after_step(problem, x, step)
    while face.key not in tried and len(tried) < _NEWTON_STEPS:
        tried.add(face.key)
        x = face.minimiser()
        face = _Face.after_step(problem, x, step)
    return x


def _damped(problem: _Problem, x: FloatArray, step: float) -> FloatArray:
    """The same, going only as far as the objective falls."""
    for _ in range(_NEWTON_STEPS):
        x = problem.proximal(x, step)[1]
        face = _Face.after_step(problem, x, step)
        end, value = face.minimiser(), problem.value(x)
        candidates = (face.shortened(x, end, 0.25**halvings) for halvings in range(8))
        better = next((candidate for candidate in candidates if problem.value(candidate) < value), None)
        if better is None:
            break
        x = better
    return x


def _estimated_smoothness(problem: _Problem) -> float:
    """Largest eigenvalue as the power method finds it, somewhat more: the declared bound may be far above."""
    x = np.cos(np.arange(len(problem.linear), dtype=np.float64) ** 2)
    estimate = 0.0
    for _ in range(12):
        x /= linalg.norm(x)
        image = problem.product(x)
        estimate, x = float(linalg.norm(image)), image
        if estimate == 0.0:
            break
    return min(max(1.2 * estimate, problem.bounds.strong_convexity), problem.bounds.smoothness)


def _accelerated(problem: _Problem, x: FloatArray, step: float, n_steps: int) -> FloatArray:
    """Accelerated steps, starting anew when they turn back (O'Donoghue and Candes 2015)."""
    ahead, weight = x, 1.0
    for _ in range(n_steps):
        following = problem.proximal(ahead, step)[1]
        if (ahead - following) @ (following - x) > 0.0:
            weight = 1.0
        next_weight = (1.0 + math.sqrt(1.0 + 4.0 * weight * weight)) / 2.0
        ahead = following + (weight - 1.0) / next_weight * (following - x)
        x, weight = following, next_weight
    return x


class _Face:
    """Points of which some entries are free, of one sign each, and others fixed; on the sphere of a ball, or not."""

    def __init__(self, problem: _Problem, point: FloatArray, on_boundary: bool) -> None:
        constraint = problem.constraint
        free = np.ones(len(point), dtype=bool)
        if isinstance(constraint, Box):
            low, high = constraint.bounds(len(point))
            free = (low < point) & (point < high)
        if isinstance(constraint, L1Ball) or problem.weight > 0.0:
            free &= point != 0.0
        self._problem = problem
        self._free = np.flatnonzero(free)
        self._fixed = np.where(free, 0.0, point)
        self._signs = np.sign(point[self._free])
        self._tight = on_boundary
        self._system: _System | None = None
        self.key = free.tobytes(), self._signs.tobytes(), self._fixed.tobytes(), on_boundary

    @classmethod
    def after_step(cls, problem: _Problem, x: FloatArray, step: float) -> _Face:
        moved, projected = problem.proximal(x, step)
        on_boundary = isinstance(problem.constraint, L1Ball | L2Ball) and not np.array_equal(moved, projected)
        return cls(problem, projected, on_boundary)

    def moved_onto(self, x: FloatArray) -> FloatArray:
        """Return x, a sum of two rows, with the entries that are fixed where they are."""
        moved = np.stack([self._fixed, np.zeros_like(self._fixed)])
        moved[:, self._free] = x[:, self._free]
        return moved

    def minimiser(self) -> FloatArray:
        """Minimiser over the face's affine hull, or over the sphere in it."""
        problem, x = self._problem, self._fixed.copy()
        gradient = problem.linear + (problem.product(x) if x.any() else 0.0)
        if self._tight and isinstance(problem.constraint, L2Ball):
            descent = -gradient[self._free] - problem.weight * self._signs
            x[self._free] = self._solver().on_sphere(descent, problem.constraint.radius)
        else:
            x += self.correction(_in_two_rows(x), _in_two_rows(gradient))
        return x

    def correction(self, x: FloatArray, gradient: FloatArray) -> FloatArray:
        """What to add to x to reach the minimiser: one Newton step. x and the gradient are sums of two rows.

        At the minimiser gradient and multipliers cancel, so what is left of them is found without rounding them.
        """
        added = np.zeros(x.shape[1])
        if len(self._free) == 0:
            return added
        constraint, weight = self._problem.constraint, self._problem.weight
        x, gradient = x[:, self._free], gradient[:, self._free]
        if self._tight and isinstance(constraint, L2Ball):
            gradient = _normalised(gradient[0] + weight * self._signs, gradient[1])
            added[self._free] = self._solver().along_sphere(gradient, x, constraint.radius)
        elif self._tight and isinstance(constraint, L1Ball):
            multiplier = -float(np.mean(self._signs * gradient[0]))
            slack = math.fsum([constraint.radius, *(-self._signs * x).ravel()])
            solved = self._solver().solve(-(gradient[0] + multiplier * self._signs) - gradient[1])
            normal = self._solver().solve(self._signs)
            added[self._free] = solved - (self._signs @ solved - slack) / (self._signs @ normal) * normal
        else:
            added[self._free] = self._solver().solve(-(gradient[0] + weight * self._signs) - gradient[1])
        return added

    def shortened(self, start: FloatArray, end: FloatArray, part: float) -> FloatArray:
        """The point a part of the way, entries that would change their sign on a kink left there."""
        x = start + part * (end - start)
        if isinstance(self._problem.constraint, L1Ball) or self._problem.weight > 0.0:
            x[start * x < 0.0] = 0.0
        return x if self._problem.constraint is None else self._problem.constraint.project(x)

    def _solver(self) -> _System:
        if self._system is None:
            self._system = _System.of(self._problem, self._free)
        return self._system


class _System:
    """The matrix A restricted to the free entries, factored as far as it has been needed."""

    def __init__(self, factor: FloatArray | None, diagonal: float, dense: FloatArray | None) -> None:
        self._factor = factor
        self._diagonal = diagonal
        self._dense = dense
        self._cholesky: FloatArray | None = None
        self._spectrum: tuple[FloatArray, FloatArray] | None = None

    @classmethod
    def of(cls, problem: _Problem, free: NDArray[np.intp]) -> _System:
        if problem.transposed is None:
            dense = problem.array[np.ix_(free, free)]
            dense[np.diag_indices_from(dense)] += problem.diagonal
            return cls(None, problem.diagonal, dense)
        factor = problem.array[free]
        if len(free) > factor.shape[1]:
            return cls(factor, problem.diagonal, None)
        dense = 2.0 * factor @ factor.T
        dense[np.diag_indices_from(dense)] += problem.diagonal
        return cls(None, problem.diagonal, dense)

    def solve(self, b: FloatArray) -> FloatArray:
        """A^-1 b; with a factor by (2FF' + d I)^-1 = (I - F (d/2 I + F'F)^-1 F')/d."""
        if self._cholesky is None:
            if self._factor is None:
                core = self._dense
            else:
                core = self._factor.T @ self._factor
                core[np.diag_indices_from(core)] += 0.5 * self._diagonal
            self._cholesky = linalg.cholesky(core, lower=True, check_finite=False)
        if self._factor is None:
            return np.asarray(linalg.cho_solve((self._cholesky, True), b, check_finite=False))
        inner = linalg.cho_solve((self._cholesky, True), self._factor.T @ b, check_finite=False)
        return np.asarray((b - self._factor @ inner) / self._diagonal)

    def on_sphere(self, b: FloatArray, radius: float) -> FloatArray:
        """Solution of (A + nu) x = b with ||x|| = radius, nu >= 0."""
        values, vectors = self._eigenpairs()
        coefficients = vectors.T @ b
        rest = b - vectors @ coefficients
        terms = np.append(values, self._diagonal), np.append(coefficients, linalg.norm(rest))
        return self._solve_shifted(b, ball_multiplier(*terms, radius))

    def along_sphere(self, gradient: FloatArray, x: FloatArray, radius: float) -> FloatArray:
        """Newton step for gradient + nu x = 0, x'x = radius^2; gradient and x are sums of two rows."""
        slack = 0.5 * math.fsum([*_exact_squares(np.array([radius])), *-_exact_squares(x[0]), *(-2.0 * x[0] * x[1])])
        multiplier = max(-float(x[0] @ gradient[0]) / radius**2, 0.0)
        product, rest = _exact_product(multiplier, x[0])
        residual = (gradient[0] + product) + (gradient[1] + (rest + multiplier * x[1]))
        solved, normal = self._solve_shifted(-residual, multiplier), self._solve_shifted(x[0], multiplier)
        return np.asarray(solved - (x[0] @ solved - slack) / (x[0] @ normal) * normal)

    def _solve_shifted(self, b: FloatArray, shift: float) -> FloatArray:
        values, vectors = self._eigenpairs()
        coefficients = vectors.T @ b
        inside = vectors @ (coefficients / (values + shift))
        if self._factor is None:
            return np.asarray(inside)
        return np.asarray(inside + (b - vectors @ coefficients) / (self._diagonal + shift))

    def _eigenpairs(self) -> tuple[FloatArray, FloatArray]:
        if self._spectrum is None:
            if self._factor is None:
                self._spectrum = linalg.eigh(self._dense, driver="evd", check_finite=False)
            else:
                vectors, singular, _ = linalg.svd(self._factor, full_matrices=False, check_finite=False)
                self._spectrum = 2.0 * singular**2 + self._diagonal, vectors
        return self._spectrum


def _normalised(high: FloatArray, low: FloatArray) -> FloatArray:
    """The same sum with the second part within rounding of the first (Knuth's exact sum)."""
    total = high + low
    added = total - high
    return np.stack([total, (high - (total - added)) + (low - added)])


def _exact_squares(x: FloatArray) -> FloatArray:
    """Numbers whose exact sum is that of the squares of x."""
    return np.concatenate(_exact_product(x, x))


def _exact_product(a: FloatArray | float, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The product, and what rounding took from it (Dekker)."""
    a_high, b_high = (134217729.0 * x - (134217729.0 * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.asarray(product), np.asarray(rest)


def _in_two_rows(x: FloatArray) -> FloatArray:
    return np.stack([x, np.zeros_like(x)])


def _sum_rest(a: float, b: float, total: float) -> float:
    """What rounding took from a + b (Knuth)."""
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
