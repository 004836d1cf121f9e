"""Smooth strongly convex problems over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise f(x) + v'x + penalty(x) over a set. Guesses come from Newton's method: f is replaced by its quadratic model,
the model minimised over the set (dpfast.solvers.quadratic), and the step reduced until the objective falls. They
are refined and certified with gradients in twice the working precision, and if none is certified, the accelerated
method takes over (dpfast.solvers.constraints). Functions known to the working precision only are handled in the same
way, with the larger tolerance of their error bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import dnrm2

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.kernels import descent
from dpfast.solvers.constraints import (
    LARGEST,
    ROUND_UP,
    UNIT,
    Certificate,
    Constraint,
    ElasticNet,
    Guess,
    L2Ball,
    Minimiser,
    Proximable,
    ProximalBounds,
    attainable,
    checked_constraint,
    checked_linear,
    conditioned,
    exact_product,
    finite_array,
    in_range,
    in_two_rows,
    normalised,
    penalty_weight,
    reduced_linear,
    sum_of_pairs,
)
from dpfast.solvers.quadratic import Face, QuadraticProblem, guesses, step_arguments

LocalModel = tuple[float, FloatArray, FloatArray]

_NEWTON_STEPS = 60
# Of each by half: where a smoothing is narrow and the ridge small, a first step is thousands of times too long.
_SHORTENINGS = 40
# Where Newton's steps are shorter than this part of the point, precise gradients take over.
_NEARLY_THERE = 1e-5
# Accelerated steps before each attempt at a certificate, for penalties that the model cannot have.
_BURSTS = (30, 100, 300, 1000, 3000)


class SmoothConstants(Protocol):
    """Constants of f, a smooth convex function, known in advance."""

    @property
    def n(self) -> int:
        """Dimension."""

    @property
    def strong_convexity(self) -> float:
        """Lower bound on the eigenvalues of the Hessian; may be 0."""

    @property
    def smoothness(self) -> float:
        """Upper bound on the eigenvalues of the Hessian."""

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of a computed gradient where ||x|| <= norm."""

    def gradient_bound(self, norm: float) -> float:
        """Upper bound on the L2 norm of the gradient where ||x|| <= norm."""


class SmoothConvexFunction(SmoothConstants, Protocol):
    """Interface of f for `minimise_smooth`; vectors x of shape (2, n) are the sum of their rows."""

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient, of shape (2, n)."""

    def local_model(self, x: FloatArray) -> LocalModel:
        """Value, gradient and Hessian at x of shape (n,), to working precision; nothing relies on them."""


def minimise_smooth(
    function: SmoothConvexFunction,
    *,
    linear: ArrayLike | None = None,
    constraint: Constraint | None = None,
    penalty: ElasticNet | Proximable | None = None,
    ridge: float = 0.0,
    reach: float | None = None,
    start: ArrayLike | None = None,
    tolerance: float,
) -> Minimiser:
    """Minimise function(x) + linear'x + penalty(x) over a convex set, to within a proved distance of the minimiser.

    Ridge, alone, in an ElasticNet or as `ridge` (whatever the penalty: it adds (ridge/2) ||x||^2), counts as strong
    convexity, and there must be some. A Proximable that is no ElasticNet is taken without a constraint only: proximal
    maps of sums have no general form. Entries of `linear` go up to 2**400 in size.

    Without a constraint, and only then, `reach` bounds the L2 norm of the minimiser. The result is the minimiser over
    that ball. Another Proximable is not confined to it; then the promise is for `linear` no larger than 16 times the
    bound on the gradient.

    The tolerance is the largest distance from the minimiser, in the L2 norm: at least `smallest_smooth_tolerance`. How
    long it takes depends on the problem and on `start`; how close it comes does not, as long as the constants of the
    function are true. Beyond the range of `linear` no error depends on the data.

    Examples
    --------
    >>> from dpfast.solvers import GeneralisedLinear, L2Ball, LogisticLoss, Ridge, minimise_smooth
    >>> loss = GeneralisedLinear([[1.0], [-1.0]], [1.0, -1.0], LogisticLoss(), row_bound=1.0)
    >>> minimise_smooth(loss, constraint=L2Ball(0.25), penalty=Ridge(0.1), tolerance=1e-12).x
    array([0.25])
    """
    problem = _Problem.of(function, constraint, penalty, reach, ridge)
    origin = np.zeros(function.n)
    vector = _of_length("linear", function.n, checked_linear("linear", origin if linear is None else linear))
    tolerance = attainable(tolerance, problem.bounds)
    bounds, ridge, constraint = problem.bounds, problem.ridge, problem.constraint
    if constraint is not None:
        vector, multiplier, bounds = reduced_linear(bounds, constraint, vector)
        ridge += multiplier
    steps = _Steps(function, problem, bounds, ridge, vector)
    if start is not None:
        origin = _of_length("start", function.n, finite_array("start", start, (1,)))
    first = origin if constraint is None else constraint.project(origin)
    with single_threaded_blas():
        return Certificate(steps, bounds, vector).minimiser(steps.guesses(first), first, tolerance)


def _of_length(name: str, n: int, vector: FloatArray) -> FloatArray:
    if len(vector) != n:
        raise ValueError(f"{name} must have as many entries as the function, {n}, got {len(vector)}")
    return vector


def smallest_smooth_tolerance(
    function: SmoothConstants,
    *,
    constraint: Constraint | None = None,
    penalty: ElasticNet | Proximable | None = None,
    ridge: float = 0.0,
    reach: float | None = None,
) -> float:
    """Return the smallest tolerance that `minimise_smooth` promises to meet for every function of these constants.

    About 1e-15 of the size of the set for a `GeneralisedLinear`, up to a ratio of smoothness and strong convexity of
    1e8 or so. Of the function, its constants and error bounds count, not its data.
    """
    return _Problem.of(function, constraint, penalty, reach, ridge).bounds.smallest_tolerance()


@dataclass(frozen=True)
class _SmoothBounds(ProximalBounds):
    function: SmoothConstants
    penalty: Proximable | None

    def gradient_error(self, norm: float, linear: float) -> float:
        # Of the ridge's product and two sums.
        own = 32.0 * UNIT**2 * (self.image + self.smoothness * norm + linear)
        return (self.function.gradient_error(norm) + own) * ROUND_UP

    def extrapolated_norm(self) -> float:
        if self.penalty is None:
            return super().extrapolated_norm()
        # No set holds the steps; their objective does, within sqrt(2 M/m) times the distance at the start.
        return 9.0 * (1.0 + math.sqrt(self.momentum_condition())) * self.norm

    def step_error(self, norm: float, linear: float) -> float:
        error = super().step_error(norm, linear)
        if self.penalty is None:
            return error
        moved = (2.0 * norm + self.norm + self.step * (self.image + linear)) * ROUND_UP
        return (error + self.penalty.prox_error(moved, self.step) + 2.0 * UNIT * moved) * ROUND_UP


@dataclass(frozen=True, eq=False)
class _Problem:
    constraint: Constraint | None
    weight: float
    ridge: float
    penalty: Proximable | None
    bounds: _SmoothBounds

    @classmethod
    def of(
        cls,
        function: SmoothConstants,
        constraint: Constraint | None,
        penalty: ElasticNet | Proximable | None,
        reach: float | None,
        ridge: float = 0.0,
    ) -> _Problem:
        n = check.positive_integer("function.n", function.n)
        constraint = checked_constraint(constraint, n)
        if (constraint is None) != (reach is not None):
            raise TypeError("reach must be given without a constraint, and only then")
        weight, ridge, other = 0.0, penalty_weight("ridge", ridge), None
        if isinstance(penalty, ElasticNet):
            weight, ridge = penalty.l1, ridge + penalty.l2
        elif penalty is not None:
            if not isinstance(penalty, Proximable):
                raise TypeError(
                    "penalty must be ElasticNet, Lasso, Ridge, another Proximable or None, "
                    f"got {type(penalty).__name__}"
                )
            if constraint is not None:
                raise TypeError(
                    f"a {type(penalty).__name__} as penalty is supported without a constraint only: give a Proximable "
                    "that is infinite outside the set, or use Lasso, ElasticNet or Ridge"
                )
            other = penalty
        if reach is not None and other is None:
            constraint = L2Ball(in_range("reach", reach))
        lowest = check.nonnegative("function.strong_convexity", function.strong_convexity)
        if lowest + ridge <= 0.0:
            raise ValueError("the problem must be strongly convex: the function, or a Ridge or ElasticNet penalty")
        highest = in_range("function.smoothness", function.smoothness)
        low, high = conditioned(lowest, highest, ridge)
        in_range("strong convexity", low)
        norm = in_range("reach", reach) if constraint is None else constraint.norm_bound(n)
        image = max(function.gradient_bound(norm) + ridge * norm, high * norm) * ROUND_UP
        if not 0.0 < image <= LARGEST**2:
            raise ValueError("function.gradient_bound must return finite numbers of at most 2**400")
        bounds = _SmoothBounds(n, low, high, norm, weight, image, function, other)
        return cls(constraint, weight, ridge, other, bounds)


class _Steps:
    """Steps of a smooth problem, each with one precise gradient; the last one is kept."""

    def __init__(
        self, function: SmoothConvexFunction, problem: _Problem, bounds: _SmoothBounds, ridge: float, linear: FloatArray
    ) -> None:
        self._function = function
        self._problem = problem
        self._bounds = bounds
        self._ridge = ridge
        self._linear = linear
        self._proximal = descent.ProximalSteps(bounds.n, **step_arguments(problem.constraint, problem.weight, bounds))
        self._last: tuple[FloatArray, FloatArray] | None = None

    def gradient(self, x: FloatArray, out: FloatArray) -> None:
        if self._last is None or not np.array_equal(self._last[0], x):
            product, rest = exact_product(self._ridge, x[0])
            of_ridge = normalised(product, rest + self._ridge * x[1])
            total = sum_of_pairs(sum_of_pairs(self._function.gradient(x), of_ridge), in_two_rows(self._linear))
            self._last = x.copy(), total
        out[:] = self._last[1]

    def step(self, x: FloatArray, out: FloatArray) -> bool:
        gradient = np.empty_like(x)
        self.gradient(x, gradient)
        if self._problem.penalty is None:
            return self._proximal.step_along(x, gradient, out)
        step = self._bounds.step
        self._proximal.step_along(x, gradient, out)
        out[0], out[1] = self._problem.penalty.prox(out[0] + out[1], step), 0.0
        return False

    def accelerate(self, momentum: float, n_steps: int, x: FloatArray, last: FloatArray) -> None:
        ahead = np.empty_like(x)
        for _ in range(n_steps):
            descent.extrapolate(momentum, x, last, ahead)
            self.step(ahead, x)

    def guesses(self, start: FloatArray) -> Iterator[Guess]:
        """Yield points, and how to find the face on which a step from near them ends, if the penalty has faces."""
        if self._problem.penalty is not None:
            yield from ((guess, None) for guess in self._first_order_guesses(start))
            return
        value, gradient, hessian = self._model(start)
        x, before = start, None
        for _ in range(_NEWTON_STEPS):
            problem = before = self._quadratic(x, gradient, hessian, before)
            target = _minimiser_of_model(problem)
            length = float(dnrm2(target - x))
            if length <= _NEARLY_THERE * float(dnrm2(x)) or length == 0.0:
                yield target, partial(Face, problem)
            for shortening in range(_SHORTENINGS):
                candidate = x + 0.5**shortening * (target - x)
                next_value, next_gradient, next_hessian = self._model(candidate)
                if next_value <= value + 1e-13 * abs(value):
                    break
            else:
                break
            if next_hessian is hessian:  # the same everywhere: the model was the function
                yield candidate, partial(Face, problem)
            x, value, gradient, hessian = candidate, next_value, next_gradient, next_hessian
        yield x, partial(Face, problem)

    def _first_order_guesses(self, start: FloatArray) -> Iterator[FloatArray]:
        """Yield the iterates of accelerated steps, restarted when they turn back."""
        x, last, ahead = in_two_rows(start), in_two_rows(start), in_two_rows(start)
        count = 0
        for burst in _BURSTS:
            for _ in range(burst):
                descent.extrapolate(count / (count + 3.0), x, last, ahead)
                self.step(ahead, x)
                count = 0 if np.sum((ahead[0] - x[0]) * (x[0] - last[0])) > 0.0 else count + 1
            yield x[0] + x[1]

    def _model(self, x: FloatArray) -> LocalModel:
        value, gradient, hessian = self._function.local_model(x)
        of_linear = float(self._linear @ x) + 0.5 * self._ridge * float(x @ x)
        of_penalty = self._problem.weight * float(np.abs(x).sum())
        return value + of_linear + of_penalty, gradient + self._linear + self._ridge * x, hessian

    def _quadratic(
        self, x: FloatArray, gradient: FloatArray, hessian: FloatArray, before: QuadraticProblem | None
    ) -> QuadraticProblem:
        """Return the quadratic model at x, the ridge on its diagonal; of one matrix it is factored once."""
        weight, constraint, ridge = self._problem.weight, self._problem.constraint, self._ridge
        assert constraint is not None
        linear = gradient - hessian @ x - ridge * x
        model = QuadraticProblem(hessian, None, ridge, linear, weight, constraint, self._bounds)
        if before is not None and np.array_equal(before.array, hessian):
            model.take_system(before)
        return model


def _minimiser_of_model(problem: QuadraticProblem) -> FloatArray:
    """Return the first guess unchanged by a step, else the best of a few."""
    best, least = None, math.inf
    step = problem.bounds.step
    for guess in islice(guesses(problem), 6):
        stepped = problem.proximal(guess, step)[1]
        value = problem.value(stepped)
        if value < least:
            best, least = stepped, value
        moved = float(dnrm2(stepped - guess))
        if moved <= 1e-6 * problem.bounds.contraction_gap * float(dnrm2(guess)):
            break
    return problem.start() if best is None else best


# Strong convexity of the steps' problems, as a part of the smoothness: it falls by a factor a step from the first to
# the last, so that each starts near its minimiser.
_FIRST_CONVEXITY, _LAST_CONVEXITY, _FACTOR = 2.0**-6, 2.0**-26, 2.0**-2
_MOST_STEPS = 100
# Ends where the objective falls by no more than this part of itself.
_LEAST_FALL = 1e-14
_TOLERANCE, _LEAST_SIZE = 2.0**-48, 2.0**-100


def minimise_convex(
    function: SmoothConvexFunction,
    *,
    constraint: Constraint | None = None,
    penalty: ElasticNet | Proximable | None = None,
    ridge: float = 0.0,
) -> FloatArray:
    """Minimise function(x) + penalty(x) + (ridge/2) ||x||^2 over a convex set, strongly convex or not.

    The function's gradient is bounded over the set, or everywhere if there is none; the ridge is at least 0. If there
    is no minimiser, returns a point with an objective near the infimum; if there are many, one near 0.

    This is the proximal point method. From x the next point minimises the objective plus (m/2) ||. - x||^2, by
    `minimise_smooth`, with m small beside the smoothness. Objectives fall, and converge to the least one (Rockafellar
    1976). If the objective is strongly convex with constant mu around its minimiser, the distance from it falls by
    m/(m + mu) each time. No distance is promised: privacy must not depend on these minimisers.

    References
    ----------
    Rockafellar, R. T. (1976). Monotone operators and the proximal point algorithm. SIAM Journal on Control and
    Optimization 14.
    """
    n, confined = function.n, penalty is None or isinstance(penalty, ElasticNet)
    l1, l2 = (penalty.l1, penalty.l2) if isinstance(penalty, ElasticNet) else (0.0, 0.0)
    own, convexity = ridge + l2, max(ridge + l2, function.smoothness * _FIRST_CONVEXITY)

    def objective(x: FloatArray) -> float:
        of_penalty = 0.0 if penalty is None else penalty.value(x)
        return function.local_model(x)[0] + of_penalty + 0.5 * ridge * float(x @ x)

    x = np.zeros(n) if constraint is None else constraint.project(np.zeros(n))
    if not confined:
        assert penalty is not None
        x = penalty.prox(x, 1.0 / convexity)
    value = objective(x)
    last_convexity = max(own, function.smoothness * _LAST_CONVEXITY)
    # The size of a subgradient here, at most; a step's minimiser is within that over the convexity.
    slope = float(np.linalg.norm(function.local_model(x)[1])) + l1 * math.sqrt(n) + convexity * float(np.linalg.norm(x))
    for _ in range(_MOST_STEPS):
        added = convexity - own
        size = max(float(np.linalg.norm(x)) + 2.0 * slope / convexity, _LEAST_SIZE)
        problem: dict[str, Any] = {"penalty": penalty, "ridge": ridge + added}
        if constraint is not None:
            problem["constraint"], size = constraint, constraint.norm_bound(n)
        elif confined:
            problem["constraint"] = L2Ball(size)
        else:
            problem["reach"] = size
        tolerance = max(smallest_smooth_tolerance(function, **problem), _TOLERANCE * size)
        next_x = minimise_smooth(function, linear=-added * x, start=x, tolerance=tolerance, **problem).x
        slope, x = added * float(np.linalg.norm(next_x - x)), next_x
        last, value = value, objective(x)
        if slope == 0.0 or (convexity == last_convexity and value >= last - _LEAST_FALL * abs(last)):
            break
        convexity = max(last_convexity, convexity * _FACTOR)
    return x
