"""Proved distances from the minimiser of a strongly convex problem, and a method that reaches any of them.

Minimise f(x) + v'x + p(x), f with curvature between m and M, p convex with a proximal map: weight ||x||_1 over a set,
or a penalty of the caller's.

*Certificate.* The proximal gradient step T with step h <= 1/M contracts by q = 1 - mh towards the minimiser x*, its
fixed point. If the computed step is within e of T(x), then with r the distance of x from it

    ||T(x) - x*|| <= (q r + e)/(1 - q),

so one step from a point proves how good it is. Steps are computed in twice the working precision
(dpfast.kernels.quadratic_step), so e is about 1e-30 and r dominates the bound. The exception is a caller's f known to
the working precision only.

Guesses are refined by Newton steps whose residuals are computed in twice the precision too, until they are certified.

*Guarantee.* If no guess is certified, accelerated steps in twice the precision are taken, as many as the proof of the
distance needs. With gradient errors of norm at most E, N steps after one plain step from within D of x* leave (Schmidt,
Le Roux and Bach 2011, proposition 4, with the sum of its geometric series), where rho = 1 - sqrt(m/M),

    ||x - x*|| <= sqrt(2 M/m) D rho^(N/2) + 4 sqrt(M/m) E/m.

(After the plain step the objective is within M D^2/2 of its minimum. The exact step is taken as the iterate, and the
computed one is within e of it. The extrapolated point then errs by at most 3 e and its rounding; this, times M, is the
gradient error.) N follows from m, M, the size of the set and the tolerance alone: whether the tolerance is met cannot
depend on f and v.

*Large vectors.* Entries of v beyond the bound on the gradient of f over the set determine the position of x*. Then v is
replaced by a vector of bounded size with the same minimiser, exactly (`reduced_linear`). So rounding
errors are bounded by public numbers too.

References
----------
Schmidt, M., Le Roux, N., Bach, F. (2011). Convergence rates of inexact proximal-gradient methods for convex
optimization. NIPS 24.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.arrays import ROUND_UP, UNIT, finite_array, in_two_rows, normalised
from dpfast.solvers.constraints import Box, Constraint, ElasticNet, L1Ball, checked_constraint, in_range

_LARGEST_CONDITION = 2.0**45
_LARGEST_ENTRY = 2.0**400


@dataclass(frozen=True)
class ProximalBounds(ABC):
    """The public constants of a problem, and bounds derived from them, rounded up."""

    n: int
    strong_convexity: float
    smoothness: float
    norm: float  # upper bound on ||x|| over the set
    weight: float
    image: float  # upper bound on the norm of f's gradient over the set, and on smoothness times norm

    @property
    def step(self) -> float:
        """Length of steps, at most 1/smoothness."""
        return 1.0 / (self.smoothness * ROUND_UP)

    @property
    def contraction_gap(self) -> float:
        """1 - q, rounded down."""
        return self.strong_convexity * self.step / ROUND_UP

    @property
    def momentum(self) -> float:
        """Rounded up: that of some smaller strong convexity."""
        root = math.sqrt(self.contraction_gap)
        return (1.0 - root) / (1.0 + root) + 2.0**-50

    def largest_linear(self) -> float:
        """Bound on the entries of a reduced vector (see `reduced_linear`)."""
        return 8.0 * (4.0 * self.image + self.weight) * ROUND_UP

    @abstractmethod
    def gradient_error(self, norm: float, linear: float) -> float:
        """Bound on the error of a computed gradient at a point of this norm, ||v|| <= linear."""

    def step_error(self, norm: float, linear: float) -> float:
        """Bound on the distance of a computed step from T of a point of this norm, ||v|| <= linear.

        It adds to the gradient's error those of the sums in a projection, and of the additions to every entry.
        """
        root = math.sqrt(self.n)
        moved = 2.0 * norm + self.norm + self.step * (self.image + linear)
        sums = 64.0 * (self.n + 16) * (root + 4.0) * self.norm
        entries = (32.0 + 8.0 * root) * (moved + self.step * root * self.weight)
        return (self.step * self.gradient_error(norm, linear) + UNIT**2 * (sums + entries)) * ROUND_UP

    def extrapolated_norm(self) -> float:
        """Bound on ||x + momentum (x - last)|| for x and last of the set."""
        return 3.0 * self.norm

    def guaranteed_error(self, linear: float = 0.0) -> float:
        """Bound on the distance that is left however many accelerated steps are taken.

        For any reduced vector, or a larger one of at most this norm.
        """
        linear = max(linear, math.sqrt(self.n) * self.largest_linear())
        step_error = self.step_error(self.extrapolated_norm(), linear)
        # 4 sqrt(M/m) E/m, where E/M is at most six errors of a step: its own, and its predecessors' extrapolated.
        floor = 24.0 * self.momentum_condition() * math.sqrt(self.momentum_condition()) * step_error
        return (floor + step_error + 1.01 * UNIT * self.norm) * ROUND_UP

    def smallest_tolerance(self) -> float:
        """Tolerance that can be promised: half of it is left for the number of steps."""
        return 2.01 * self.guaranteed_error()

    def n_guaranteed_steps(self, tolerance: float) -> int:
        """How many accelerated steps leave less than half of the tolerance, on top of `guaranteed_error`."""
        condition = self.momentum_condition()
        rate = 1.0 / math.sqrt(condition)
        start = 2.0 * math.sqrt(2.0 * condition) * 2.01 * self.norm
        return math.ceil(2.0 * math.log(max(start / tolerance, 2.0)) / rate * ROUND_UP) + 1

    def momentum_condition(self) -> float:
        """M/m for the strong convexity that the momentum assumes, rounded up."""
        momentum = self.momentum
        return ((1.0 + momentum) / (1.0 - momentum)) ** 2 * ROUND_UP


@dataclass(frozen=True)
class QuadraticBounds(ProximalBounds):
    """Of x'Ax/2; `n_columns` of the factor, 0 for a matrix."""

    n_columns: int

    @classmethod
    def of(
        cls,
        n: int,
        n_columns: int,
        constraint: Constraint | None,
        penalty: ElasticNet | None,
        strong_convexity: float,
        smoothness: float,
    ) -> QuadraticBounds:
        """Bounds of a problem of these constants, which are checked; in units of ||v||/m without a constraint."""
        if penalty is not None and not isinstance(penalty, ElasticNet):
            raise TypeError(
                f"penalty must be Lasso, ElasticNet, Ridge or None for a quadratic, got {type(penalty).__name__}: "
                "minimise_smooth takes any proximable penalty"
            )
        constraint = checked_constraint(constraint, n)
        low, high = conditioned(
            in_range("strong_convexity", strong_convexity),
            in_range("smoothness", smoothness),
            0.0 if penalty is None else penalty.l2,
        )
        norm = 1.0 if constraint is None else constraint.norm_bound(n)
        # In units of ||v||/m, a weight above m has the minimiser 0.
        weight = low if constraint is None else 0.0 if penalty is None else penalty.l1
        return cls(n, low, high, norm, weight, high * norm * ROUND_UP, n_columns)

    def gradient_error(self, norm: float, linear: float) -> float:
        """Bound on the error of a computed gradient at a point of this norm, ||v|| <= linear.

        The magnitudes that a product sums are at most |A||x|, of norm sqrt(n) M ||x||, or 2|F||F'||x|, of norm
        tr(2 F F') ||x|| <= min(n, k) M ||x||.
        """
        spread = float(min(self.n, self.n_columns)) if self.n_columns else math.sqrt(self.n)
        dots = sum(1.1 * ((length / 8 + 4) ** 2 + 40) for length in (self.n, self.n_columns))
        others = 32.0 * (2.0 * math.sqrt(self.n) * self.smoothness * norm + linear)
        return UNIT**2 * (2.0 * dots * spread * self.smoothness * norm + others) * ROUND_UP


Bounds = TypeVar("Bounds", bound=ProximalBounds)


def conditioned(strong_convexity: float, smoothness: float, ridge: float) -> tuple[float, float]:
    """Return both with the ridge added, rounded outwards; ValueError if they are too far apart."""
    if strong_convexity > smoothness:
        raise ValueError(f"strong_convexity must be at most smoothness, got {strong_convexity!r} > {smoothness!r}")
    low, high = (strong_convexity + ridge) / ROUND_UP, (smoothness + ridge) * ROUND_UP
    if high > _LARGEST_CONDITION * low:
        raise ValueError("smoothness must be at most 2**45 times strong_convexity, a ridge added to both")
    return low, high


def checked_linear(name: str, linear: ArrayLike) -> FloatArray:
    """Return v as an array of entries up to 2**400 in size."""
    vector = finite_array(name, linear, (1,))
    if np.abs(vector).max() > _LARGEST_ENTRY:
        raise ValueError(f"{name} must have entries of at most 2**400 in size")
    return vector


def attainable(function: str, tolerance: float, bounds: ProximalBounds) -> float:
    """Return a tolerance that can be promised; `function` determines its least value."""
    number, smallest = in_range("tolerance", tolerance), bounds.smallest_tolerance()
    if number < smallest:
        raise ValueError(f"tolerance must be at least {smallest:.3g} for these constants ({function}), got {number!r}")
    return number


def reduced_linear(bounds: Bounds, constraint: Constraint, linear: FloatArray) -> tuple[FloatArray, float, Bounds]:
    """Return a vector of bounded size and a ridge to add that keep the minimiser, and bounds for them.

    Let B bound the gradient of f over the set, w be the weight.

    Over the L1 ball, let the largest |v_i| exceed c by a power of two of at least 4B + w. With every |v_i| lowered by
    c, but not below 0, the multiplier (of the ball, plus w) at the minimiser is at least 3B + w, so |v_i| - c >= 2B
    there where x_i is not 0, with the sign opposite to x_i. Then x and the multiplier plus c satisfy the conditions for
    v. Entries that matter have |v_i| within a factor 2 of the largest, so the differences from it are exact (Sterbenz).
    They are multiples of 2^-51 of the power of two and less than it, so subtracting them from it is exact too.

    Over a box, the sign of v_i alone determines x_i if |v_i| > B + w.

    Over the L2 ball, the multiplier nu of the constraint is at least (||v|| - B - w sqrt(n))/R. If that is positive,
    less than it may be added as a ridge: it is taken from nu.
    """
    if isinstance(constraint, L1Ball):
        kept = 2.0 ** math.frexp((4.0 * bounds.image + bounds.weight) * ROUND_UP)[1]
        sizes = np.abs(linear)
        largest = float(sizes.max())
        if largest <= 4.0 * kept:
            return linear, 0.0, bounds
        return np.copysign(np.maximum(kept - (largest - sizes), 0.0), linear), 0.0, bounds
    if isinstance(constraint, Box):
        kept = 2.0 * (bounds.image + bounds.weight) * ROUND_UP
        return np.clip(linear, -kept, kept), 0.0, bounds
    largest = float(np.linalg.norm(linear))
    if largest <= 4.0 * (bounds.image + bounds.weight * math.sqrt(len(linear))) * ROUND_UP:
        return linear, 0.0, bounds
    multiplier = largest / (2.0 * constraint.radius)
    with_ridge = replace(
        bounds,
        strong_convexity=(bounds.strong_convexity + multiplier) / ROUND_UP,
        smoothness=(bounds.smoothness + multiplier) * ROUND_UP,
        image=(bounds.image + multiplier * bounds.norm) * ROUND_UP,
    )
    return linear, multiplier, with_ridge


_REFINEMENTS = 12
# Accelerated steps between looks at the certificate.
_STEPS_PER_CERTIFICATE = 500


@dataclass(frozen=True)
class Minimiser:
    """A point near the minimiser of a problem, and a proved bound on its L2 distance from it.

    The bound is at most the requested tolerance. It depends on the problem's data: what is calibrated for privacy uses
    the tolerance.
    """

    x: FloatArray
    distance_bound: float


class Steps(Protocol):
    """Proximal gradient steps of length `ProximalBounds.step`; vectors are sums of two rows."""

    def step(self, x: FloatArray, out: FloatArray) -> bool:
        """Write the step from x; return whether it ends on the boundary of a ball."""

    def gradient(self, x: FloatArray, out: FloatArray) -> None:
        """Write the gradient of f + v'x."""

    def accelerate(self, momentum: float, n_steps: int, x: FloatArray, last: FloatArray) -> None:
        """Take this many accelerated steps from x and its predecessor, in place."""


class Face(Protocol):
    """The points among which a step ends, over whose affine hull the minimiser is found."""

    @property
    def key(self) -> tuple[bytes, bytes, bytes, bool]:
        """What tells faces apart."""

    def moved_onto(self, x: FloatArray) -> FloatArray:
        """Return x with its fixed entries at their values."""

    def correction(self, x: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the Newton step from x to the minimiser."""


#: A point and, optionally, a function that finds the face of the point where a step ends.
Guess = tuple[FloatArray, Callable[[FloatArray, bool], Face] | None]


class Certificate:
    """Proves how far points are from the minimiser, from steps, what the problem's constants say of them, and v."""

    def __init__(self, steps: Steps, bounds: ProximalBounds, linear: FloatArray) -> None:
        self._steps = steps
        self._bounds = bounds
        self._linear = float(linalg.norm(linear)) * ROUND_UP

    def minimiser(self, guesses: Iterable[Guess], start: FloatArray, tolerance: float) -> Minimiser:
        """Return the first guess certified after refinement, else the guaranteed point."""
        try:
            # Guesses may overflow; then they are not certified.
            with np.errstate(all="ignore"):
                for guess, face_at in guesses:
                    found = self.refined(guess, face_at, tolerance)
                    if found is not None:
                        return found
        except linalg.LinAlgError:
            # A system is singular in double precision: the guaranteed way does without.
            pass
        return self.guaranteed(start, tolerance)

    def certified(self, x: FloatArray) -> tuple[Minimiser, bool]:
        """Return the step from x, a sum of two rows, with its distance from the minimiser at most.

        And whether the step ends on the boundary of a ball.
        """
        bounds = self._bounds
        stepped = np.empty_like(x)
        on_boundary = self._steps.step(x, stepped)
        norm, reached = float(linalg.norm(x[0])), float(linalg.norm(stepped[0]))
        residual = float(linalg.norm((x[0] - stepped[0]) + (x[1] - stepped[1])))
        # The parts' differences are rounded, and squares below the range of floats are lost.
        residual = (residual + 8.0 * UNIT**2 * (norm + reached)) * ROUND_UP + 2.0**-500
        gap = bounds.contraction_gap
        error = bounds.step_error(norm * ROUND_UP, self._linear)
        distance = ((1.0 - gap) * residual + error) / gap + 1.01 * UNIT * reached
        return Minimiser(stepped[0], distance * ROUND_UP), on_boundary

    def refined(
        self, guess: FloatArray, face_at: Callable[[FloatArray, bool], Face] | None, tolerance: float
    ) -> Minimiser | None:
        """Return a certified point: Newton steps with gradients and faces in twice the precision, while they gain.

        `face_at` gives the face of the point where a step ends; without it there are no Newton steps.
        """
        x, nearest = in_two_rows(guess), math.inf
        face: Face | None = None
        tried: set[tuple[bytes, bytes, bytes, bool]] = set()
        for _ in range(_REFINEMENTS):
            found, on_boundary = self.certified(x)
            if found.distance_bound <= tolerance:
                return found
            if face_at is None:
                return None
            following = face_at(found.x, on_boundary)
            if following.key in tried and found.distance_bound > 0.5 * nearest:
                return None
            nearest = min(nearest, found.distance_bound)
            face = face if face is not None and following.key == face.key else following
            tried.add(face.key)
            x = face.moved_onto(x)
            gradient = np.empty_like(x)
            self._steps.gradient(x, gradient)
            x = normalised(x[0], x[1] + face.correction(x, gradient))
        return None

    def guaranteed(self, start: FloatArray, tolerance: float) -> Minimiser:
        """Take as many accelerated steps, from a point of the set, as are enough for any problem of these bounds."""
        last = in_two_rows(start)
        x = np.empty_like(last)
        self._steps.step(last, x)
        last[:] = x
        remaining = self._bounds.n_guaranteed_steps(tolerance)
        while remaining > 0:
            n_steps = min(remaining, _STEPS_PER_CERTIFICATE)
            self._steps.accelerate(self._bounds.momentum, n_steps, x, last)
            remaining -= n_steps
            found, _ = self.certified(x)
            if found.distance_bound <= tolerance:
                return found
        return Minimiser(x[0].copy(), 0.5 * tolerance + self._bounds.guaranteed_error(self._linear))
