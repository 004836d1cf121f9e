"""Strongly convex quadratics over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise x'Ax/2 + v'x + weight ||x||_1 over a convex set, m I <= A <= M I. Guesses in double precision, of a semismooth
Newton method on faces, are refined and certified in twice the working precision. If none is certified, the accelerated
method is run for as many steps as any problem needs (dpfast.solvers.constraints). In nearly all cases the first guess
will do.

A face is a set of points with the same free entries, of one sign each, the same entries at zero or at a bound, and all
or none on the sphere of a ball. The minimiser over a face solves a linear system; over the L2 sphere, a secular
equation. A proximal gradient step from x ends on a face; its minimiser is the next x. The method ends when the step
from the minimiser over a face stays on that face. No guess is relied on: the certificate proves the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.linalg.blas import dnrm2

from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.kernels import descent as kernel
from dpfast.solvers.constraints import (
    Box,
    Certificate,
    Constraint,
    L1Ball,
    L2Ball,
    Minimiser,
    ProximalBounds,
    QuadraticBounds,
    attainable,
    checked_linear,
    exact_product,
    finite_array,
    in_two_rows,
    normalised,
    reduced_linear,
)
from dpfast.solvers.projection import ball_multiplier


def minimise_factored(
    factor: ArrayLike,
    diagonal: float,
    vector: ArrayLike,
    *,
    constraint: Constraint,
    smoothness: float,
    tolerance: float,
) -> Minimiser:
    """Minimise x'Ax/2 + v'x over a convex set, to within a proved distance of the minimiser; A is 2 F F' + diagonal I.

    A is never formed; F is of shape (n, k). The diagonal, and `smoothness`, lie between 2**-200 and 2**200, and A <=
    smoothness I for the floats passed. This is not verified, and the promise holds only if it is true. If privacy
    relies on the tolerance, compute both from public numbers. Entries of v go up to 2**400 in size.

    The tolerance is the largest distance from the minimiser, in the L2 norm: at least some 1e-15 of the largest norm of
    a point of the set, unless smoothness/diagonal is above 1e9 or so. How long it takes depends on the problem; how
    close it comes does not. Apart from finiteness and the range of v no error depends on the entries of F and v.

    Examples
    --------
    >>> from dpfast.solvers import Box, minimise_factored
    >>> constants = {"constraint": Box(1.0), "smoothness": 5.0, "tolerance": 1e-12}
    >>> minimise_factored([[1.0], [1.0]], 1.0, [-5.0, 0.0], **constants).x.round(12)
    array([ 1.        , -0.66666667])
    """
    array, linear = finite_array("factor", factor, (2,)), checked_linear("vector", vector)
    if len(array) != len(linear):
        raise ValueError(f"factor and vector must have one length, got shapes {array.shape} and {linear.shape}")
    bounds = QuadraticBounds.of(len(array), array.shape[1], constraint, 0.0, diagonal, smoothness)
    problem = QuadraticProblem(array, np.ascontiguousarray(array.T), diagonal, linear, 0.0, constraint, bounds)
    tolerance = attainable(tolerance, bounds)
    with single_threaded_blas():
        return problem.minimiser(tolerance)


# Between attempts of the Newton method: lengths of bursts of accelerated steps.
_BURSTS = (0, 20, 60, 200, 600, 2000)
_NEWTON_STEPS = 30


@dataclass(frozen=True, eq=False)
class QuadraticProblem:
    """A problem of checked arrays; its methods but `steps` work in double precision and promise nothing."""

    array: FloatArray
    transposed: FloatArray | None
    diagonal: float
    linear: FloatArray
    weight: float
    constraint: Constraint
    bounds: ProximalBounds
    _last_system: dict[bytes, _System] = field(default_factory=dict, init=False)
    _last_step: list[Any] = field(default_factory=list, init=False)

    def minimiser(self, tolerance: float) -> Minimiser:
        """Return the minimiser of a problem that is not only a model, to within a tolerance that can be promised."""
        linear, ridge, bounds = reduced_linear(self.bounds, self.constraint, self.linear)
        problem = replace(self, linear=linear, diagonal=self.diagonal + ridge, bounds=bounds)
        certificate, face_at = Certificate(problem.steps(), bounds, linear), partial(Face, problem)
        return certificate.minimiser(((guess, face_at) for guess in guesses(problem)), problem.start(), tolerance)

    def steps(self) -> kernel.QuadraticSteps:
        """Return steps of the declared length in twice the precision."""
        return kernel.QuadraticSteps(
            self.array,
            self.transposed,
            self.linear,
            diagonal=(self.diagonal, 0.0),
            **step_arguments(self.constraint, self.weight, self.bounds),
        )

    def start(self) -> FloatArray:
        """Point of the set."""
        return self.constraint.project(np.zeros(len(self.linear)))

    def product(self, x: FloatArray) -> FloatArray:
        """Ax."""
        if self.transposed is not None:
            return 2.0 * (self.array @ (self.transposed @ x)) + self.diagonal * x
        return self.array @ x + self.diagonal * x

    def value(self, x: FloatArray) -> float:
        """Value of the objective, infinite or not a number where it overflows."""
        return float(x @ (0.5 * self.product(x) + self.linear) + self.weight * np.abs(x).sum())

    def system(self, free: NDArray[np.intp]) -> _System:
        """Return the matrix restricted to free entries; the last one is kept, as neighbouring faces often share it."""
        key = free.tobytes()
        if key not in self._last_system:
            self._last_system.clear()
            self._last_system[key] = _System.of(self, free)
        return self._last_system[key]

    def take_system(self, other: QuadraticProblem) -> None:
        """Take over the matrix kept by a problem of the same array and diagonal."""
        self._last_system.update(other._last_system)

    def proximal(self, x: FloatArray, step: float) -> tuple[FloatArray, FloatArray]:
        """Return the point that a step from x projects, and its projection; the last are kept."""
        if self._last_step and self._last_step[0] is x and self._last_step[1] == step:
            moved, projected = self._last_step[2:]
            return moved, projected
        moved = x - step * (self.product(x) + self.linear)
        if self.weight > 0.0:
            moved = np.sign(moved) * np.maximum(np.abs(moved) - step * self.weight, 0.0)
        if not np.isfinite(moved).all():
            raise linalg.LinAlgError("a system was solved by numbers beyond the range of floats")
        projected = self.constraint.project(moved)
        self._last_step[:] = x, step, moved, projected
        return moved, projected


def step_arguments(constraint: Constraint | None, weight: float, bounds: ProximalBounds) -> dict[str, Any]:
    """Return the arguments of ProximalSteps for a set, a weight and bounds."""
    names = {type(None): "whole_space", Box: "box", L2Ball: "l2_ball", L1Ball: "l1_ball"}
    box = constraint.bounds(bounds.n) if isinstance(constraint, Box) else None
    return {
        "weight": weight,
        "step": bounds.step,
        "set_name": names[type(constraint)],
        "radius": constraint.radius if isinstance(constraint, L2Ball | L1Ball) else 0.0,
        "bounds": None if box is None else (np.ascontiguousarray(box[0]), np.ascontiguousarray(box[1])),
    }


def guesses(problem: QuadraticProblem) -> Iterator[FloatArray]:
    """Yield points at which the Newton method, from ever better starts, ends or is given up."""
    if problem.weight == 0.0 and isinstance(problem.constraint, L2Ball):
        # There are two faces, and any step tells them apart.
        yield _newton(problem, problem.start(), problem.bounds.step)
    step = 1.0 / _estimated_smoothness(problem)
    x = problem.proximal(np.zeros(len(problem.linear)), step)[1]
    for length in _BURSTS:
        x = _accelerated(problem, x, step, length)
        yield _newton(problem, x, step)


def _newton(problem: QuadraticProblem, x: FloatArray, step: float) -> FloatArray:
    """Return the end of the semismooth Newton method; it may cycle, and then ends anywhere."""
    tried: set[tuple[bytes, bytes, bytes, bool]] = set()
    face = Face.after_step(problem, x, step)
    while face.key not in tried and len(tried) < _NEWTON_STEPS:
        tried.add(face.key)
        x = face.minimiser()
        face = Face.after_step(problem, x, step)
    return x


def _estimated_smoothness(problem: QuadraticProblem) -> float:
    """Largest eigenvalue as the power method finds it, somewhat more: the declared bound may be far above."""
    x = np.cos(np.arange(len(problem.linear), dtype=np.float64) ** 2)
    estimate = float(dnrm2(x))
    for _ in range(12):
        x = problem.product(x / estimate)
        estimate = float(dnrm2(x))
        if estimate == 0.0:
            break
    return min(max(1.2 * estimate, problem.bounds.strong_convexity), problem.bounds.smoothness)


def _accelerated(problem: QuadraticProblem, x: FloatArray, step: float, n_steps: int) -> FloatArray:
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


class Face:
    """Points of which some entries are free, of one sign each, and others fixed; on the sphere of a ball, or not."""

    def __init__(self, problem: QuadraticProblem, point: FloatArray, on_boundary: bool) -> None:
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
        self.key = free.tobytes(), self._signs.tobytes(), self._fixed.tobytes(), on_boundary

    @classmethod
    def after_step(cls, problem: QuadraticProblem, x: FloatArray, step: float) -> Face:
        """Return the face on which a step from x ends."""
        moved, projected = problem.proximal(x, step)
        on_boundary = isinstance(problem.constraint, L1Ball | L2Ball) and not np.array_equal(moved, projected)
        return cls(problem, projected, on_boundary)

    def moved_onto(self, x: FloatArray) -> FloatArray:
        """Return x, a sum of two rows, with the fixed entries at their values."""
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
            x += self.correction(in_two_rows(x), in_two_rows(gradient))
        if not np.isfinite(x).all():
            raise linalg.LinAlgError("a system was solved by numbers beyond the range of floats")
        return x

    def correction(self, x: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the Newton step from x to the minimiser; x and the gradient are sums of two rows.

        At the minimiser gradient and multipliers cancel, so what is left of them is found without rounding them.
        """
        added = np.zeros(x.shape[1])
        if len(self._free) == 0:
            return added
        constraint, weight = self._problem.constraint, self._problem.weight
        x, gradient = x[:, self._free], gradient[:, self._free]
        if self._tight and isinstance(constraint, L2Ball):
            gradient = normalised(gradient[0] + weight * self._signs, gradient[1])
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

    def _solver(self) -> _System:
        return self._problem.system(self._free)


@dataclass(frozen=True, eq=False)
class _System:
    """The matrix A restricted to the free entries, factored as far as it has been needed."""

    #: Of shape (n, k), for n above k; None for a matrix that is `dense`.
    factor: FloatArray | None
    diagonal: float
    dense: FloatArray | None

    @classmethod
    def of(cls, problem: QuadraticProblem, free: NDArray[np.intp]) -> _System:
        if problem.transposed is None:
            dense = problem.array.copy() if len(free) == len(problem.array) else problem.array[np.ix_(free, free)]
        else:
            factor = problem.array[free]
            if len(free) > factor.shape[1]:
                return cls(factor, problem.diagonal, None)
            dense = 2.0 * factor @ factor.T
        dense.flat[:: len(dense) + 1] += problem.diagonal
        return cls(None, problem.diagonal, dense)

    @cached_property
    def cholesky(self) -> FloatArray:
        """Of the matrix; with a factor of d/2 I + F'F."""
        core = self.dense
        if self.factor is not None:
            core = self.factor.T @ self.factor
            core.flat[:: len(core) + 1] += 0.5 * self.diagonal
        return np.asarray(linalg.cholesky(core, lower=True, check_finite=False))

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors; with a factor only those in its span."""
        if self.factor is None:
            values, vectors = linalg.eigh(self.dense, driver="evd", check_finite=False)
            return values, vectors
        vectors, singular, _ = linalg.svd(self.factor, full_matrices=False, check_finite=False)
        return 2.0 * singular**2 + self.diagonal, vectors

    def solve(self, b: FloatArray) -> FloatArray:
        """A^-1 b; with a factor by (2FF' + d I)^-1 = (I - F (d/2 I + F'F)^-1 F')/d."""
        if self.factor is None:
            return np.asarray(linalg.lapack.dpotrs(self.cholesky, b, lower=1)[0])
        inner, _ = linalg.lapack.dpotrs(self.cholesky, self.factor.T @ b, lower=1)
        return np.asarray((b - self.factor @ inner) / self.diagonal)

    def on_sphere(self, b: FloatArray, radius: float) -> FloatArray:
        """Solution of (A + nu) x = b with ||x|| = radius, nu >= 0."""
        values, vectors = self.spectrum
        coefficients = vectors.T @ b
        rest = b - vectors @ coefficients
        terms = np.append(values, self.diagonal), np.append(coefficients, dnrm2(rest))
        return self._solve_shifted(b, ball_multiplier(*terms, radius))

    def along_sphere(self, gradient: FloatArray, x: FloatArray, radius: float) -> FloatArray:
        """Newton step for gradient + nu x = 0, x'x = radius^2; gradient and x are sums of two rows."""
        squares, of_radius = np.concatenate(exact_product(x[0], x[0])), exact_product(radius, np.array([radius]))
        slack = 0.5 * math.fsum([*np.concatenate(of_radius), *-squares, *(-2.0 * x[0] * x[1])])
        multiplier = max(-float(x[0] @ gradient[0]) / radius**2, 0.0)
        product, rest = exact_product(multiplier, x[0])
        residual = (gradient[0] + product) + (gradient[1] + (rest + multiplier * x[1]))
        solved, normal = self._solve_shifted(-residual, multiplier), self._solve_shifted(x[0], multiplier)
        return np.asarray(solved - (x[0] @ solved - slack) / (x[0] @ normal) * normal)

    def _solve_shifted(self, b: FloatArray, shift: float) -> FloatArray:
        values, vectors = self.spectrum
        coefficients = vectors.T @ b
        inside = vectors @ (coefficients / (values + shift))
        if self.factor is None:
            return np.asarray(inside)
        return np.asarray(inside + (b - vectors @ coefficients) / (self.diagonal + shift))
