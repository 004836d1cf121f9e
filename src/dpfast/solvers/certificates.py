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
replaced by a vector of bounded size with the same minimiser, exactly (`proximal_bounds.reduced_linear`). So rounding
errors are bounded by public numbers too.

References
----------
Schmidt, M., Le Roux, N., Bach, F. (2011). Convergence rates of inexact proximal-gradient methods for convex
optimization. NIPS 24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.arrays import ROUND_UP, UNIT, in_two_rows, normalised
from dpfast.solvers.proximal_bounds import ProximalBounds
from dpfast.solvers.quadratic_faces import Face

Guess = tuple[FloatArray, Callable[[FloatArray, bool], Face] | None]

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


class Certificate:
    """Proves how far points are from the minimiser, from steps, what the problem's constants say of them, and v."""

    def __init__(self, steps: Steps, bounds: ProximalBounds, linear: FloatArray) -> None:
        self._steps = steps
        self._bounds = bounds
        self._linear = float(linalg.norm(linear)) * ROUND_UP

    def minimiser(self, guesses: Iterable[Guess], start: FloatArray, tolerance: float) -> Minimiser:
        """Return the first guess certified after refinement, else the guaranteed point.

        A guess is a point and, optionally, a function that finds the face of the point where a step ends.
        """
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
