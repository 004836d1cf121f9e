"""What is known of a quadratic problem in advance: distances that rounding and a number of steps leave.

All of it follows from public constants; dpfast.solvers.constrained has the theory, dpfast.kernels.quadratic_step the
errors of single operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfast.solvers.constraints import Constraint

# More than the rounding errors of the few double operations on positive numbers that a bound takes.
ROUND_UP = 1.0 + 2.0**-40
UNIT = 2.0**-53

_LARGEST_CONDITION = 2.0**45


@dataclass(frozen=True)
class QuadraticBounds:
    """The public constants of a problem, and what follows from them, rounded up.

    Parameters
    ----------
    n, n_columns : int
        Dimension, and columns of the factor (0 for a matrix).
    strong_convexity, smoothness : float
        Penalty included.
    norm : float
        Upper bound on ||x|| over the set.
    weight : float
        Of ||x||_1.
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
    ) -> QuadraticBounds:
        """Bounds of a problem of these constants, in units of ||v||/m if there is no constraint."""
        if strong_convexity > smoothness:
            raise ValueError(f"strong_convexity must be at most smoothness, got {strong_convexity!r} > {smoothness!r}")
        low, high = (strong_convexity + ridge) / ROUND_UP, (smoothness + ridge) * ROUND_UP
        if high > _LARGEST_CONDITION * low:
            raise ValueError("smoothness must be at most 2**45 times strong_convexity")
        norm = 1.0 if constraint is None else constraint.norm_bound(n)
        # Without a constraint, in units of ||v||/m: a weight above ||v|| has the minimiser 0.
        return cls(n, n_columns, low, high, norm, low if constraint is None else weight)

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
        """Bound on the entries of a reduced vector (see `_reduced`)."""
        return 4.0 * (4.0 * self.smoothness * self.norm + self.weight) * ROUND_UP

    def gradient_error(self, norm: float, linear: float) -> float:
        """Bound on the error of a gradient at a point of this norm, ||v|| <= linear; see quadratic_step.c.

        The magnitudes that a product sums are at most |A||x|, of norm sqrt(n) M ||x||, or 2|F||F'||x|, of norm
        tr(2 F F') ||x|| <= min(n, k) M ||x||.
        """
        spread = float(min(self.n, self.n_columns)) if self.n_columns else math.sqrt(self.n)
        dots = sum(1.1 * ((length / 8 + 4) ** 2 + 40) for length in (self.n, self.n_columns))
        others = 32.0 * (2.0 * math.sqrt(self.n) * self.smoothness * norm + linear)
        return UNIT**2 * (2.0 * dots * spread * self.smoothness * norm + others) * ROUND_UP

    def step_error(self, norm: float, linear: float) -> float:
        """Bound on the distance of a computed step from T of a point of this norm, ||v|| <= linear.

        Besides that of the gradient: of the sums that a projection takes, and of what is added to every entry.
        """
        root = math.sqrt(self.n)
        moved = 2.0 * norm + self.step * linear
        # Of the projection: of its sums, then of what it subtracts from every entry.
        own = 64.0 * (self.n + 16) * (root + 4.0) * self.norm + (32.0 + 8.0 * root) * (
            moved + self.step * root * self.weight
        )
        return (self.step * self.gradient_error(norm, linear) + UNIT**2 * own) * ROUND_UP

    def guaranteed_error(self) -> float:
        """Bound on the distance that is left however many accelerated steps are taken."""
        linear = math.sqrt(self.n) * self.largest_linear()
        step_error = self.step_error(3.0 * self.norm, linear)
        # 4 sqrt(M/m) E/m, where E/M is at most six errors of a step: its own, and its predecessors' extrapolated.
        floor = 24.0 * self._momentum_condition() * math.sqrt(self._momentum_condition()) * step_error
        return (floor + step_error + 1.01 * UNIT * self.norm) * ROUND_UP

    def smallest_tolerance(self) -> float:
        """Tolerance that can be promised: half of it is left for the number of steps."""
        return 2.01 * self.guaranteed_error()

    def n_guaranteed_steps(self, tolerance: float) -> int:
        """How many accelerated steps leave less than half of the tolerance, on top of `guaranteed_error`."""
        condition = self._momentum_condition()
        rate = 1.0 / math.sqrt(condition)
        start = 2.0 * math.sqrt(2.0 * condition) * 2.01 * self.norm
        return math.ceil(2.0 * math.log(max(start / tolerance, 2.0)) / rate * ROUND_UP) + 1

    def _momentum_condition(self) -> float:
        """M/m for the strong convexity that the momentum is that of, rounded up."""
        momentum = self.momentum
        return ((1.0 + momentum) / (1.0 - momentum)) ** 2 * ROUND_UP
