"""Smooth strongly convex problems over balls and boxes, with a proved bound on the distance from the minimiser.

Minimise f(x) + v'x + penalty(x) over a set. Guesses come from Newton's method: f is replaced by its quadratic model,
the model minimised over the set (dpfast.solvers.quadratic_faces), and the step shortened until the objective falls.
They are refined and certified with gradients in twice the working precision, and if none is certified, the accelerated
method takes over (dpfast.solvers.certificates). A function that is known to the working precision only is served by the
same way, with the larger tolerance that its own error bound allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import generalised_linear, quadratic_step
from dpfast.kernels.threads import RowRanges, resolve_n_threads, run_in_threads, single_threaded_blas
from dpfast.solvers.certificates import Certificate, Minimiser
from dpfast.solvers.constraints import LARGEST, Constraint, L2Ball, checked_constraint, finite_array, in_range
from dpfast.solvers.losses import GeneralisedLinearLoss
from dpfast.solvers.penalties import ElasticNet, Proximable, penalty_weight
from dpfast.solvers.proximal_bounds import ROUND_UP, UNIT, ProximalBounds, conditioned, reduced_linear
from dpfast.solvers.quadratic_faces import (
    Face,
    QuadraticProblem,
    exact_product,
    guesses,
    in_two_rows,
    normalised,
    step_arguments,
)

LocalModel = tuple[float, FloatArray, FloatArray | None]

_LARGEST_ENTRY = 2.0**400
_NEWTON_STEPS = 60
_SHORTENINGS = 12
# Where Newton's steps are shorter than this part of the point, precise gradients take over.
_NEARLY_THERE = 1e-5
# Accelerated steps before each attempt at a certificate, for functions without a Hessian.
_BURSTS = (30, 100, 300, 1000, 3000)
# Sums over rows are taken over fixed parts of the table, whatever the threads, in order.
_PARTS = 16
_ROWS_PER_PART = 1024
_DOUBLES_PER_THREAD = 200_000


class SmoothConvexFunction(Protocol):
    """What `minimise_smooth` asks of f; vectors x of shape (2, n) are the sum of their rows.

    Attributes
    ----------
    n : int
        Dimension.
    strong_convexity, smoothness : float
        Bounds on the eigenvalues of the Hessian; strong_convexity may be 0.
    """

    @property
    def n(self) -> int:
        """Dimension."""

    @property
    def strong_convexity(self) -> float:
        """Lower bound on the eigenvalues of the Hessian."""

    @property
    def smoothness(self) -> float:
        """Upper bound on the eigenvalues of the Hessian."""

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient, of shape (2, n)."""

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of `gradient` where ||x|| <= norm."""

    def gradient_bound(self, norm: float) -> float:
        """Upper bound on the L2 norm of the gradient where ||x|| <= norm."""

    def local_model(self, x: FloatArray) -> LocalModel:
        """Value, gradient and Hessian (or None) at x of shape (n,), to working precision; nothing relies on them."""


@dataclass(frozen=True)
class SmoothFunction:
    """A smooth convex function given by Python callables in double precision.

    Parameters
    ----------
    value_and_gradient : callable
        From an array of shape (n,) to a float and an array of shape (n,).
    n : int
        Dimension.
    strong_convexity, smoothness : float
        Bounds on the eigenvalues of the Hessian, everywhere; strong_convexity may be 0.
    evaluation_error, gradient_bound : callable
        From a norm to upper bounds on the L2 error and the L2 norm of the gradient at points of at most that norm. The
        promise of `minimise_smooth` rests on them.
    hessian : callable, optional
        From an array of shape (n,) to one of shape (n, n).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import L2Ball, SmoothFunction, minimise_smooth
    >>> function = SmoothFunction(
    ...     lambda x: (float(np.sum(np.sqrt(1.0 + x**2) + x**2)), x / np.sqrt(1.0 + x**2) + 2.0 * x),
    ...     n=2,
    ...     strong_convexity=2.0,
    ...     smoothness=3.0,
    ...     evaluation_error=lambda norm: 1e-15 * (1.0 + norm),
    ...     gradient_bound=lambda norm: 2.0 + 2.0 * norm,
    ... )
    >>> minimise_smooth(function, linear=[-9.0, 0.0], constraint=L2Ball(1.0), tolerance=1e-9).x
    array([1., 0.])
    """

    value_and_gradient: Callable[[FloatArray], tuple[float, FloatArray]]
    n: int
    strong_convexity: float
    smoothness: float
    evaluation_error: Callable[[float], float]
    gradient_bound: Callable[[float], float]
    hessian: Callable[[FloatArray], FloatArray] | None = None

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient at the nearest array of doubles, of shape (2, n)."""
        return in_two_rows(np.asarray(self.value_and_gradient(x[0] + x[1])[1], dtype=np.float64))

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of `gradient`, rounding of the point included."""
        return (self.evaluation_error(norm) + self.smoothness * UNIT * norm) * ROUND_UP

    def local_model(self, x: FloatArray) -> LocalModel:
        """Value, gradient and Hessian."""
        value, gradient = self.value_and_gradient(x)
        return float(value), np.asarray(gradient), None if self.hessian is None else self.hessian(x)


class GeneralisedLinearBounds:
    """What is known of a sum of generalised linear losses without its rows: the constants of a `GeneralisedLinear`.

    Parameters
    ----------
    n_rows : int
        Number of rows, or an upper bound on it.
    n : int
        Number of features.
    loss, row_bound, outcome_bound
        As for `GeneralisedLinear`.
    """

    def __init__(
        self, n_rows: int, n: int, loss: GeneralisedLinearLoss, *, row_bound: float, outcome_bound: float = 1.0
    ) -> None:
        if not isinstance(loss, GeneralisedLinearLoss):
            raise TypeError(f"loss must be a GeneralisedLinearLoss, got {type(loss).__name__}")
        self._n_rows = check.positive_integer("n_rows", n_rows)
        self.n = check.positive_integer("n", n)
        self.loss = loss
        self.row_bound = in_range("row_bound", row_bound)
        self.outcome_bound = in_range("outcome_bound", outcome_bound)

    @property
    def strong_convexity(self) -> float:
        """0: rows may be anything."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """n_rows row_bound^2 times the loss's largest second derivative."""
        return float(self._n_rows) * self.row_bound**2 * self.loss.second_derivative_bound() * ROUND_UP

    def gradient_bound(self, norm: float) -> float:
        """n_rows row_bound times the loss's largest derivative."""
        slope = self.loss.derivative_bound(self.row_bound * norm, self.outcome_bound)
        return self._n_rows * self.row_bound * slope * ROUND_UP

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of `gradient` where ||x|| <= norm: of predictions, derivatives and sums."""
        reach = self.row_bound * norm
        slope = self.loss.derivative_bound(reach, self.outcome_bound)
        curvature = self.loss.second_derivative_bound()
        of_predictions = UNIT**2 * 1.1 * ((self.n / 8 + 4) ** 2 + 40) * reach
        scales = reach + self.outcome_bound + 1.0 + sum(self.loss.parameters().values())
        of_derivatives = curvature * (of_predictions + 2.0**-100 * scales) + 2.0**-85 * slope
        of_sums = UNIT**2 * (1.1 * 1026.0**2 + 3.1 * (self._n_rows / 1024 + 2 + _PARTS)) * slope
        return self._n_rows * self.row_bound * (of_derivatives + of_sums) * ROUND_UP


class GeneralisedLinear(GeneralisedLinearBounds):
    """Sum over rows of a generalised linear loss, sum_i l(x_i'theta, y_i).

    Parameters
    ----------
    rows : array_like of shape (n_rows, n_features)
        Float64, C-contiguous if it is not to be copied.
    outcomes : array_like of shape (n_rows,)
        -1 or 1 for classification.
    loss : GeneralisedLinearLoss
    row_bound : float
        Upper bound on the L2 norm of the rows. Not verified: what is proved holds if it does.
    outcome_bound : float, default 1.0
        Upper bound on the size of outcomes; likewise.
    n_threads : int, optional
        Results do not depend on it.

    Notes
    -----
    Gradients are summed in twice the working precision (kernels/generalised_linear.c). Value, gradient and Hessian to
    working precision take one pass over the rows.

    Examples
    --------
    >>> from dpfast.solvers import GeneralisedLinear, SquaredLoss
    >>> function = GeneralisedLinear([[0.6, 0.8]], [1.0], SquaredLoss(), row_bound=1.0)
    >>> function.gradient_bound(2.0) >= (2.0 + 1.0)
    True
    """

    def __init__(
        self,
        rows: ArrayLike,
        outcomes: ArrayLike,
        loss: GeneralisedLinearLoss,
        *,
        row_bound: float,
        outcome_bound: float = 1.0,
        n_threads: int | None = None,
    ) -> None:
        table, labels = finite_array("rows", rows, (2,)), finite_array("outcomes", outcomes, (1,))
        if len(table) != len(labels):
            raise ValueError("rows and outcomes must be equally many")
        super().__init__(table.shape[0], table.shape[1], loss, row_bound=row_bound, outcome_bound=outcome_bound)
        if loss.is_classification and not np.isin(labels, (-1.0, 1.0)).all():
            raise ValueError("outcomes must be -1 or 1 for a loss of classification")
        self._sums = generalised_linear.LossSums(
            table,
            labels,
            kind=loss.kind,
            width=loss.parameters().get("width", 1.0),
            threshold=loss.parameters().get("threshold", 1.0),
        )
        threads = resolve_n_threads(n_threads)
        self._n_threads = max(1, min(threads, table.size // _DOUBLES_PER_THREAD, _PARTS))
        n_parts = max(1, min(_PARTS, self._n_rows // _ROWS_PER_PART))
        self._parts = [self._n_rows * part // n_parts for part in range(n_parts + 1)]

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient in twice the working precision, of shape (2, n)."""
        parts = np.empty((len(self._parts) - 1, 2, self.n))

        def add(part: int, start: int, stop: int) -> None:
            self._sums.precise_gradient(x, start, stop, parts[part])

        self._over_parts(add)
        return reduce(_sum, parts)

    def local_model(self, x: FloatArray) -> LocalModel:
        """Value, gradient and Hessian in one pass, to working precision."""
        n_parts = len(self._parts) - 1
        values, gradients, hessians = (
            np.empty(n_parts),
            np.empty((n_parts, self.n)),
            np.empty((n_parts, self.n, self.n)),
        )

        def add(part: int, start: int, stop: int) -> None:
            values[part] = self._sums.model(x, start, stop, gradients[part], hessians[part])

        self._over_parts(add)
        upper = np.triu(hessians.sum(axis=0))
        return float(values.sum()), gradients.sum(axis=0), upper + np.triu(upper, 1).T

    def _over_parts(self, add: Callable[[int, int, int], None]) -> None:
        ranges = RowRanges(len(self._parts) - 1, 1)

        def work() -> None:
            for part, _ in ranges:
                add(part, self._parts[part], self._parts[part + 1])

        with single_threaded_blas():
            run_in_threads([work] * self._n_threads, ranges.stop)


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

    Parameters
    ----------
    function : GeneralisedLinear, SmoothFunction or another SmoothConvexFunction
    linear : array_like of shape (n,), optional
        Entries up to 2**400 in size.
    constraint : L2Ball, L1Ball or Box, optional
        None for all of space.
    penalty : ElasticNet, Lasso, Ridge or another Proximable, optional
        Ridge, alone or in an ElasticNet, counts as strong convexity. Another Proximable is taken without a constraint
        only: proximal maps of sums have no general form.
    ridge : float, default 0.0
        Adds (ridge/2) ||x||^2 to the objective, whatever the penalty.
    reach : float, optional
        Without a constraint, and only then: upper bound on the L2 norm of the minimiser. What is found is the minimiser
        over that ball; with another Proximable, which is not confined to it, the promise is for `linear` no larger than
        16 times the bound on the gradient.
    start : array_like of shape (n,), optional
        Where the search begins; 0 if omitted. What is promised does not depend on it.
    tolerance : float
        The largest distance from the minimiser, in the L2 norm. At least what `smallest_smooth_tolerance` returns.

    Returns
    -------
    Minimiser
        ``x`` and ``distance_bound``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the kind, shape or range described, if nothing makes the problem strongly convex, or
        if the tolerance is below what is attainable. Beyond the range of `linear` nothing depends on the data.

    Notes
    -----
    How long it takes depends on the problem; how close it comes does not, as long as the constants of the function are
    true. The method and its proof stand in dpfast.solvers.certificates.

    Examples
    --------
    >>> from dpfast.solvers import GeneralisedLinear, L2Ball, LogisticLoss, Ridge, minimise_smooth
    >>> loss = GeneralisedLinear([[1.0], [-1.0]], [1.0, -1.0], LogisticLoss(), row_bound=1.0)
    >>> found = minimise_smooth(loss, constraint=L2Ball(0.25), penalty=Ridge(0.1), tolerance=1e-12)
    >>> found.x
    array([0.25])
    """
    problem = _Problem.of(function, constraint, penalty, reach, ridge)
    vector = np.zeros(function.n) if linear is None else finite_array("linear", linear, (1,))
    if len(vector) != function.n:
        raise ValueError(f"linear must have as many entries as the function, {function.n}, got {len(vector)}")
    if np.abs(vector).max() > _LARGEST_ENTRY:
        raise ValueError("linear must have entries of at most 2**400 in size")
    tolerance = in_range("tolerance", tolerance)
    smallest = problem.bounds.smallest_tolerance()
    if tolerance < smallest:
        raise ValueError(
            f"tolerance must be at least {smallest:.3g} for these constants (smallest_smooth_tolerance), "
            f"got {tolerance!r}"
        )
    bounds, ridge, constraint = problem.bounds, problem.ridge, problem.constraint
    if constraint is not None:
        vector, multiplier, bounds = reduced_linear(bounds, constraint, vector)
        ridge += multiplier
    steps = _Steps(problem, bounds, ridge, vector)
    certificate = Certificate(steps, bounds, vector)
    origin = np.zeros(function.n)
    if start is not None:
        origin = finite_array("start", start, (1,))
        if len(origin) != function.n:
            raise ValueError(f"start must have as many entries as the function, {function.n}, got {len(origin)}")
    first = origin if constraint is None else constraint.project(origin)
    with single_threaded_blas():
        try:
            # Guesses may overflow; then they are not certified.
            with np.errstate(all="ignore"):
                for guess, face_at in steps.guesses(first):
                    found = certificate.refined(guess, face_at, tolerance)
                    if found is not None:
                        return found
        except linalg.LinAlgError:
            # A system is singular in double precision: the guaranteed way does without.
            pass
        return certificate.guaranteed(first, tolerance)


def smallest_smooth_tolerance(
    function: SmoothConvexFunction,
    *,
    constraint: Constraint | None = None,
    penalty: ElasticNet | Proximable | None = None,
    ridge: float = 0.0,
    reach: float | None = None,
) -> float:
    """Return the smallest tolerance that `minimise_smooth` promises to meet for every function of these constants.

    Parameters
    ----------
    function, constraint, penalty, ridge, reach
        As for `minimise_smooth`; of the function, its constants and error bounds count, not its data.

    Returns
    -------
    float
        About 1e-15 of the size of the set for a `GeneralisedLinear`, up to a ratio of smoothness and strong convexity
        of 1e8 or so.

    Examples
    --------
    >>> from dpfast.solvers import GeneralisedLinear, L2Ball, LogisticLoss, Ridge, smallest_smooth_tolerance
    >>> loss = GeneralisedLinear([[1.0], [-1.0]], [1.0, -1.0], LogisticLoss(), row_bound=1.0)
    >>> smallest_smooth_tolerance(loss, constraint=L2Ball(1.0), penalty=Ridge(0.1)) < 1e-15
    True
    """
    return _Problem.of(function, constraint, penalty, reach, ridge).bounds.smallest_tolerance()


@dataclass(frozen=True)
class _SmoothBounds(ProximalBounds):
    function: SmoothConvexFunction
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
    function: SmoothConvexFunction
    constraint: Constraint | None
    weight: float
    ridge: float
    penalty: Proximable | None
    bounds: _SmoothBounds

    @classmethod
    def of(
        cls,
        function: SmoothConvexFunction,
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
        return cls(
            function,
            constraint,
            weight,
            ridge,
            other,
            _SmoothBounds(n, low, high, norm, weight, image, function, other),
        )


class _Steps:
    """Steps of a smooth problem, each with one precise gradient; the last one is kept."""

    def __init__(self, problem: _Problem, bounds: _SmoothBounds, ridge: float, linear: FloatArray) -> None:
        self._problem = problem
        self._bounds = bounds
        self._ridge = ridge
        self._linear = linear
        self._proximal = quadratic_step.ProximalSteps(
            bounds.n, **step_arguments(problem.constraint, problem.weight, bounds)
        )
        self._last: tuple[FloatArray, FloatArray] | None = None

    def gradient(self, x: FloatArray, out: FloatArray) -> None:
        if self._last is None or not np.array_equal(self._last[0], x):
            product, rest = exact_product(self._ridge, x[0])
            of_ridge = normalised(product, rest + self._ridge * x[1])
            total = _sum(_sum(self._problem.function.gradient(x), of_ridge), in_two_rows(self._linear))
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
            quadratic_step.extrapolate(momentum, x, last, ahead)
            self.step(ahead, x)

    def guesses(self, start: FloatArray) -> Iterator[tuple[FloatArray, Callable[[FloatArray, bool], Face] | None]]:
        """Yield points, and how to find the face on which a step from near them ends, if there is a model."""
        value, gradient, hessian = self._model(start)
        if hessian is None or self._problem.penalty is not None:
            yield from ((guess, None) for guess in self._first_order_guesses(start))
            return
        x = start
        for _ in range(_NEWTON_STEPS):
            problem = self._quadratic(x, gradient, hessian)
            target = _minimiser_of_model(problem)
            length = float(linalg.norm(target - x))
            if length <= _NEARLY_THERE * float(linalg.norm(x)) or length == 0.0:
                yield target, partial(Face, problem)
            for shortening in range(_SHORTENINGS):
                candidate = x + 0.5**shortening * (target - x)
                next_value, next_gradient, next_hessian = self._model(candidate)
                if next_value <= value + 1e-13 * abs(value) and next_hessian is not None:
                    break
            else:
                break
            x, value, gradient, hessian = candidate, next_value, next_gradient, next_hessian
        yield x, partial(Face, problem)

    def _first_order_guesses(self, start: FloatArray) -> Iterator[FloatArray]:
        """Yield where accelerated steps lead that start anew when they turn back."""
        x, last, ahead = in_two_rows(start), in_two_rows(start), in_two_rows(start)
        count = 0
        for burst in _BURSTS:
            for _ in range(burst):
                quadratic_step.extrapolate(count / (count + 3.0), x, last, ahead)
                self.step(ahead, x)
                count = 0 if np.sum((ahead[0] - x[0]) * (x[0] - last[0])) > 0.0 else count + 1
            yield x[0] + x[1]

    def _model(self, x: FloatArray) -> LocalModel:
        value, gradient, hessian = self._problem.function.local_model(x)
        of_linear = float(self._linear @ x) + 0.5 * self._ridge * float(x @ x)
        of_penalty = self._problem.weight * float(np.abs(x).sum())
        return value + of_linear + of_penalty, gradient + self._linear + self._ridge * x, hessian

    def _quadratic(self, x: FloatArray, gradient: FloatArray, hessian: FloatArray) -> QuadraticProblem:
        """Return the quadratic model at x, the ridge on its diagonal."""
        problem = self._problem
        return QuadraticProblem(
            array=hessian,
            transposed=None,
            diagonal=self._ridge,
            diagonal_rest=0.0,
            linear=gradient - hessian @ x - self._ridge * x,
            weight=problem.weight,
            constraint=problem.constraint,
            bounds=self._bounds,
        )


def _minimiser_of_model(problem: QuadraticProblem) -> FloatArray:
    """Return the first guess that a step leaves where it is, else the best of a few."""
    best, least = problem.start(), math.inf
    step = problem.bounds.step
    for guess in islice(guesses(problem), 6):
        stepped = problem.proximal(guess, step)[1]
        value = problem.value(stepped)
        if value < least:
            best, least = stepped, value
        moved = float(linalg.norm(stepped - guess))
        if moved <= 1e-6 * problem.bounds.contraction_gap * float(linalg.norm(guess)):
            break
    return best


def _sum(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of two vectors that are sums of two rows each, as the kernels' pairs are added."""
    high, low = normalised(a[0], b[0]), normalised(a[1], b[1])
    first = normalised(high[0], high[1] + low[0])
    return normalised(first[0], low[1] + first[1])
