"""Bounds known in advance of a problem: the errors from rounding and from a finite number of steps.

All of it follows from public constants; dpfast.solvers.certificates has the theory, kernels/pairs.h the errors of
single operations. A problem is f(x) + v'x + weight ||x||_1 over a set, f strongly convex and smooth.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpfast._arrays import FloatArray
from dpfast.solvers.arrays import ROUND_UP, UNIT, finite_array
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
