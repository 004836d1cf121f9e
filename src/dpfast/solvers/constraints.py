"""Constrained convex problems: proved distances from the minimiser, and a method that reaches any of them.

*Sets and penalties.* Problems are solved over balls of the L1 and L2 norms, and boxes, with projections onto them.
Penalties added to a loss are L1, squared L2, both, or any with a proximal map. They are public: nothing in them may
come from data.

*Arithmetic.* Many small problems are solved at a time, in threads if there are enough. Bounds computed in double
arithmetic have margins for rounding. Vectors in need of more precision are sums of two rows: arithmetic in twice the
working precision, as in kernels/pairs.h.

*The problem.* Minimise f(x) + v'x + p(x), f with curvature between m and M, p convex with a proximal map: weight
||x||_1 over a set, or a penalty of the caller's.

*Certificate.* The proximal gradient step T with step h <= 1/M contracts by q = 1 - mh towards the minimiser x*, its
fixed point. If the computed step is within e of T(x), then with r the distance of x from it

    ||T(x) - x*|| <= (q r + e)/(1 - q),

so one step from a point proves how good it is. Steps are computed in twice the working precision
(dpfast.kernels.descent), so e is about 1e-30 and r dominates the bound. The exception is a caller's f known to
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
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.linalg.blas import dnrm2

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads
from dpfast.kernels import descent, projections
from dpfast.kernels.columns import in_c_order

UNIT = 2.0**-53
# More than the rounding errors of the few double operations on positive numbers that a bound takes.
ROUND_UP = 1.0 + 2.0**-40
# The same for one or two operations, if privacy is calibrated by their result.
ROUND_UP_ONE = 1.0 + 2.0**-48

_ENTRIES_PER_THREAD = 20_000  # some 0.1 ms of one core: below, starting a thread costs more than it brings
_ENTRIES_PER_RANGE = 4_000_000  # some 50 ms of one core: how long an interrupt waits


def finite_array(name: str, values: Any, dimensions: tuple[int, ...], *, empty: bool = False) -> FloatArray:
    """Return a contiguous float64 array of finite entries with one of the given numbers of dimensions."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in dimensions or (array.size == 0 and not empty):
        accepted = " or ".join(map(str, dimensions)) + " dimensions" + ("" if empty else " and at least one entry")
        raise ValueError(f"{name} must have {accepted}, got shape {array.shape}")
    array = in_c_order(array, np.float64)
    if not np.logical_and.reduce(np.isfinite(array), axis=None):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def in_ranges(n: int, size: int, n_threads: int | None, work: Callable[[int, int], None]) -> None:
    """Call work(start, stop) for ranges that cover n problems of `size` entries, in threads if there are enough."""
    threads = resolve_n_threads(n_threads) if n_threads is not None or n > 1 else 1
    threads = max(1, min(threads, n * size // _ENTRIES_PER_THREAD))
    ranges = RowRanges(n, max(1, min(_ENTRIES_PER_RANGE // size, -(-n // (4 * threads)))))

    def task() -> None:
        for start, stop in ranges:
            work(start, stop)

    run_in_threads([task] * threads, ranges.stop)


def in_two_rows(x: FloatArray) -> FloatArray:
    """Return x and zeros."""
    pair = np.zeros((2, *x.shape))
    pair[0] = x
    return pair


def normalised(high: FloatArray, low: FloatArray) -> FloatArray:
    """Return the same sum, its second row within rounding of the first (Knuth's exact sum)."""
    pair = np.empty((2, *high.shape))  # half of the time of np.stack
    pair[0] = total = high + low
    added = total - high
    pair[1] = (high - (total - added)) + (low - added)
    return pair


def sum_of_pairs(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of two vectors that are sums of two rows each."""
    total = np.empty(a.shape)
    descent.add(in_c_order(a, np.float64), in_c_order(b, np.float64), total)
    return total


def exact_product(a: FloatArray | float, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the product, and its rounding error (Dekker)."""
    a_high, b_high = (134217729.0 * x - (134217729.0 * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.asarray(product), np.asarray(rest)


# Squares of values in these limits, times or over any sensible constant, neither overflow nor underflow.
LARGEST = 2.0**200
SMALLEST = 2.0**-200


@dataclass(frozen=True)
class _Ball:
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", in_range("radius", self.radius))

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        return self.radius


class L2Ball(_Ball):
    """The points x with ||x||_2 <= radius.

    Parameters
    ----------
    radius : float
        Positive, from 2**-200 to 2**200.

    Examples
    --------
    >>> from dpfast.solvers import L2Ball
    >>> L2Ball(1.0).project([3.0, 4.0])
    array([0.6, 0.8])
    """

    def project(self, points: ArrayLike) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n)."""
        array = _vectors(points)
        if array.ndim == 1:  # the same in a quarter of the time
            size = float(np.maximum.reduce(np.abs(array), initial=self.radius))
            with np.errstate(under="ignore"):
                norm = size * math.sqrt(np.add.reduce(np.square(array / size)))
                return array.copy() if norm <= self.radius else array / max(norm, self.radius) * self.radius
        largest = np.maximum.reduce(np.abs(array), axis=-1, keepdims=True, initial=self.radius)
        with np.errstate(under="ignore"):
            norms = largest * np.sqrt(np.add.reduce(np.square(array / largest), axis=-1, keepdims=True))
            is_within = norms <= self.radius
            if np.logical_and.reduce(is_within, axis=None):
                return array.copy()
            return np.where(is_within, array, array / np.maximum(norms, self.radius) * self.radius)


class L1Ball(_Ball):
    """The points x with ||x||_1 <= radius.

    Parameters
    ----------
    radius : float
        Positive, from 2**-200 to 2**200.

    Examples
    --------
    >>> from dpfast.solvers import L1Ball
    >>> L1Ball(1.0).project([1.5, -1.0, 0.2])
    array([ 0.75, -0.25,  0.  ])
    """

    def project(self, points: ArrayLike, *, n_threads: int | None = None) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n), in linear time (Condat 2016)."""
        array = _vectors(points)
        rows = array.reshape(-1, array.shape[-1])
        projected = np.empty_like(rows)

        def project_range(start: int, stop: int) -> None:
            projections.project(rows, self.radius, start, stop, np.empty(rows.shape[1]), projected)

        in_ranges(*rows.shape, n_threads, project_range)
        return projected.reshape(array.shape)


@dataclass(frozen=True, eq=False)
class Box:
    """The points x with low <= x <= high in every coordinate.

    Parameters
    ----------
    radius : float, optional
        Positive, from 2**-200 to 2**200: low = -radius, high = radius.
    low, high : float or array_like of shape (n,), optional
        Both instead of a radius; at most 2**200 in size, low below high in every coordinate, by at least 2**-200.

    Examples
    --------
    >>> from dpfast.solvers import Box
    >>> Box(1.0).project([3.0, -0.5])
    array([ 1. , -0.5])
    >>> Box(low=0.0, high=[1.0, 2.0]).project([3.0, -0.5])
    array([1., 0.])
    """

    low: FloatArray
    high: FloatArray

    def __init__(
        self, radius: float | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> None:
        if (radius is None) == (low is None) or (low is None) != (high is None):
            raise TypeError("Box takes either radius, or low and high")
        if radius is not None:
            high = in_range("radius", radius)
            low = -high
        assert low is not None
        assert high is not None
        bounds = finite_array("low", low, (0, 1)), finite_array("high", high, (0, 1))
        try:
            lows, highs = (np.array(bound, order="C") for bound in np.broadcast_arrays(*bounds))
        except ValueError:
            raise ValueError(
                f"low and high must have equally many entries, got shapes {bounds[0].shape} and {bounds[1].shape}"
            ) from None
        if not (highs - lows >= SMALLEST).all() or max(np.abs(lows).max(), np.abs(highs).max()) > LARGEST:
            raise ValueError("low must be below high by at least 2**-200 everywhere, and both at most 2**200 in size")
        for name, bound in (("low", lows), ("high", highs)):
            bound.flags.writeable = False
            object.__setattr__(self, name, bound)

    def project(self, points: ArrayLike) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n)."""
        array = _vectors(points)
        self.bounds(array.shape[-1])
        return np.clip(array, self.low, self.high)

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        sizes = np.abs(self.bounds(n)).max(axis=0)
        return float(np.linalg.norm(sizes)) * (1.0 + (n + 8) * 2.0**-52)

    def bounds(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high, of shape (n,) each; ValueError if they are of another length."""
        if self.low.ndim == 1 and len(self.low) != n:
            raise ValueError(f"the box has {len(self.low)} coordinates, the problem {n}")
        return np.broadcast_to(self.low, n), np.broadcast_to(self.high, n)


Constraint: TypeAlias = L2Ball | L1Ball | Box


def in_range(name: str, value: object) -> float:
    """Return a float from 2**-200 to 2**200."""
    number = check.positive(name, value)
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{name} must lie between 2**-200 and 2**200, got {number!r}")
    return number


def checked_constraint(constraint: Constraint | None, n: int) -> Constraint | None:
    """Return a constraint, or None; TypeError or ValueError for anything else and for a box of other dimension."""
    if constraint is not None and not isinstance(constraint, L2Ball | L1Ball | Box):
        raise TypeError(f"constraint must be L2Ball, L1Ball, Box or None, got {type(constraint).__name__}")
    if isinstance(constraint, Box):
        constraint.bounds(n)
    return constraint


def _vectors(points: ArrayLike) -> FloatArray:
    array = np.asarray(points)
    return finite_array("points", array, (max(array.ndim, 1),))


@runtime_checkable
class Proximable(Protocol):
    """A closed convex function with a proximal map; may be infinite outside a convex set."""

    def value(self, x: FloatArray) -> float:
        """Value at x."""

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x)."""

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm."""


@dataclass(frozen=True)
class ElasticNet:
    """The penalty l1 ||x||_1 + l2 ||x||_2^2 / 2.

    Parameters
    ----------
    l1, l2 : float
        At least 0, at most 2**200.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import ElasticNet
    >>> ElasticNet(1.0, 1.0).prox(np.array([3.0, -0.5]), 1.0)
    array([ 1., -0.])
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            object.__setattr__(self, name, penalty_weight(name, getattr(self, name)))

    def value(self, x: FloatArray) -> float:
        """Value at x."""
        return float(self.l1 * np.abs(x).sum() + 0.5 * self.l2 * (x @ x))

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x): soft-thresholding, then scaling."""
        return np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0) / (1.0 + step * self.l2)

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm.

        Entries that are not zero exceed step l1, so rounding it counts no more than rounding v.
        """
        return 2.0**-50 * norm


class Lasso(ElasticNet):
    """The penalty weight ||x||_1, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(penalty_weight("weight", weight), 0.0)

    @property
    def weight(self) -> float:
        """Factor of the norm."""
        return self.l1

    def __repr__(self) -> str:
        return f"Lasso(weight={self.l1!r})"


class Ridge(ElasticNet):
    """The penalty weight ||x||_2^2 / 2, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(0.0, penalty_weight("weight", weight))

    @property
    def weight(self) -> float:
        """Factor of half the squared norm."""
        return self.l2

    def __repr__(self) -> str:
        return f"Ridge(weight={self.l2!r})"


def penalty_weight(name: str, value: object) -> float:
    """Return a float from 0 to 2**200."""
    number = check.nonnegative(name, value)
    if number > LARGEST:
        raise ValueError(f"{name} must be at most 2**200, got {number!r}")
    return number


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
        cls, n: int, n_columns: int, constraint: Constraint, weight: float, strong_convexity: float, smoothness: float
    ) -> QuadraticBounds:
        """Bounds of a problem of these constants; ValueError if they are too far apart."""
        low, high = conditioned(in_range("diagonal", strong_convexity), in_range("smoothness", smoothness), 0.0)
        norm = constraint.norm_bound(n)
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


def attainable(tolerance: float, bounds: ProximalBounds) -> float:
    """Return a tolerance that can be promised."""
    number, smallest = in_range("tolerance", tolerance), bounds.smallest_tolerance()
    if number < smallest:
        raise ValueError(f"tolerance must be at least {smallest:.3g} for these constants, got {number!r}")
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
        self._linear = float(dnrm2(linear)) * ROUND_UP

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
        norm, reached = float(dnrm2(x[0])), float(dnrm2(stepped[0]))
        residual = float(dnrm2((x[0] - stepped[0]) + (x[1] - stepped[1])))
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
