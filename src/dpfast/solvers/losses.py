"""Generalised linear losses l(x'theta, y), their sums over rows, and the bounds that privacy and solvers need.

All are convex and twice continuously differentiable in z = x'theta: squared, logistic, hinge, Huber and quantile losses
smoothed at their non-differentiable points, the logistic and Poisson losses smoothed to cap their slopes, and losses
given by functions.

*Sums* have constants that are known without the rows. Gradients are sums of two doubles, so the certified distance is
not limited by the number of rows:

- `GeneralisedLinear` sums in twice the working precision (kernels/generalised_linear.c).
- `CallableLossSum` evaluates slopes in double precision; their rounding error in a gradient is bounded from the
  declared error of a slope and the norm of the rows. The sum of slopes times rows is taken in twice the precision: it
  is the gradient at 0 of squared losses whose outcomes are minus the slopes.
- `LeastSquares` knows the moments of the rows, each as the sum of two doubles: rounding a moment to one double would be
  the largest error of the minimiser, in proportion to the number of rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors
from dpfast._threads import RowRanges, resolve_n_threads, run_in_threads, single_threaded_blas
from dpfast.kernels import descent
from dpfast.kernels.columns import in_c_order
from dpfast.solvers.constraints import (
    ROUND_UP,
    ROUND_UP_ONE,
    UNIT,
    QuadraticBounds,
    finite_array,
    in_range,
    normalised,
    sum_of_pairs,
)

LossFunction = Callable[[FloatArray, FloatArray], ArrayLike]

# Least width of the smoothing, as a part of the margin or of the threshold. A narrower one is indistinguishable from
# the non-smooth loss in practice, but Newton's steps miss it: the time of a fit would then reveal the rows.
_LEAST_WIDTH = 2.0**-7
# The smoothed part of a capped slope. Wider, it moves the fit; narrower, its curvature takes more of epsilon.
_SMOOTHED = 0.25
# Further right no row would have any curvature left.
_LARGEST_SHIFT = 64.0


class GeneralisedLinearLoss(ABC):
    """A loss l(z, y) of a prediction z and an outcome y, and its derivatives in z.

    Conventions of `value`, `derivative` and `second_derivative`: z and y are numbers or arrays of any layout, are
    converted to float64 and broadcast. The result is float64, of the shape they broadcast to, with an entry for each
    pair: nothing is summed or averaged. Sums over the rows of a table are those of solvers/losses.py.

    A formula is in kernels/generalised_linear.c alone, which evaluates it by `kind` and `parameters`.

    Attributes
    ----------
    kind : str
        Name by which the kernel knows it.
    is_classification : bool
        Outcomes are -1 and 1, or have a size below 1: this is a weight, and multiplies the loss of the row. The margin
        yz of a prediction uses the sign of y alone.
    is_of_counts : bool
        Outcomes are 0 or more, and predictions logarithms of their means.
    slope_sign : bool
        The derivative in the margin yz has the same sign at every z and y: it is at most 0. Privacy relies on it, and
        needs less noise.
    curvature_fades : bool
        If the slope is a part 1 - r of 1, its bound over all z, the second derivative is at most 4 r (1 - r) times its
        own bound. Privacy relies on it, and needs less convexity.
    """

    kind: ClassVar[str]
    is_classification: ClassVar[bool] = False
    is_of_counts: ClassVar[bool] = False
    slope_sign: ClassVar[bool] = False
    curvature_fades: ClassVar[bool] = False

    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Loss of each prediction."""
        return self._by_kernel(z, y, 0)

    def derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """First derivative in z."""
        return self._by_kernel(z, y, 1)

    def second_derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Second derivative in z."""
        return self._by_kernel(z, y, 2)

    def _by_kernel(self, z: ArrayLike, y: ArrayLike, order: int) -> FloatArray:
        """Return the derivative of that order, as the kernel's double pass computes it."""
        predictions, outcomes = np.broadcast_arrays(np.asarray(z, np.float64), np.asarray(y, np.float64))
        parts = np.empty((3, predictions.size))
        descent.local_losses(predictions.ravel(), outcomes.ravel(), parts, kind=self.kind, **self.parameters())
        return np.asarray(parts[order].reshape(predictions.shape))

    @abstractmethod
    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative where ``|z| <= reach`` and ``|y| <= outcome_bound``."""

    @abstractmethod
    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {}

    def scaled(self, unit: float) -> GeneralisedLinearLoss:
        """Return the loss of the same shape for outcomes that are `unit` times as large; itself if it has no size."""
        return self

    @property
    def largest_outcome_bound(self) -> float:
        """Largest bound on outcomes for which no smoothing is too narrow."""
        return math.inf

    def mean(self, z: ArrayLike) -> FloatArray:
        """Return the outcome that a prediction stands for."""
        return np.asarray(z, dtype=np.float64)

    def probability(self, margin: ArrayLike) -> FloatArray:
        """Return the probability of the outcome 1 for which this margin has the least expected loss.

        For classification alone. With a(u) the size of the slope at a margin u, p l(u) + (1 - p) l(-u) is stationary if
        p a(u) = (1 - p) a(-u). So p is a(-u)/(a(u) + a(-u)); it grows with u as a falls.
        """
        if not self.is_classification:
            raise TypeError(f"{type(self).__name__} is a loss of regression: it knows of no probability")
        right, wrong = (np.abs(self.derivative(u, 1.0)) for u in (margin, np.negative(margin)))
        return np.asarray(wrong / (right + wrong))


@dataclass(frozen=True)
class SquaredLoss(GeneralisedLinearLoss):
    """(z - y)^2/2.

    Examples
    --------
    >>> from dpfast.solvers import SquaredLoss
    >>> SquaredLoss().derivative([2.0, 0.0], 1.0)
    array([ 1., -1.])
    """

    kind: ClassVar[str] = "squared"

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return (reach + outcome_bound) * ROUND_UP_ONE

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return 1.0


@dataclass(frozen=True)
class LogisticLoss(GeneralisedLinearLoss):
    """log(1 + exp(shift - yz)), y in {-1, 1}.

    At slope a, the second derivative is a (1 - a): it fades as the slope nears its bound.

    Parameters
    ----------
    shift : float, default 0.0
        The margin with a slope of a half, from 0 to 64. With a shift, rows near the boundary have nearly the same slope
        as those on its wrong side. Relative to the noise for a slope of 1 their signal is then stronger.

    Examples
    --------
    >>> from dpfast.solvers import LogisticLoss
    >>> LogisticLoss().derivative(0.0, [1.0, -1.0])
    array([-0.5,  0.5])
    """

    shift: float = 0.0

    kind: ClassVar[str] = "logistic"
    is_classification: ClassVar[bool] = True
    slope_sign: ClassVar[bool] = True
    curvature_fades: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shift = check.nonnegative("shift", self.shift)
        if shift > _LARGEST_SHIFT:
            raise ValueError(f"shift must be at most {_LARGEST_SHIFT:g}, got {shift!r}")
        object.__setattr__(self, "shift", shift)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return min(1.0, ROUND_UP_ONE / (1.0 + math.exp(-min(reach + self.shift, 700.0))))

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return 0.25

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"shift": self.shift}


@dataclass(frozen=True)
class CappedLogisticLoss(GeneralisedLinearLoss):
    """The logistic loss, smoothly continued as a line at a capped slope: twice continuously differentiable.

    At the margin u = yz, the logistic loss has the slope -p(u), p(u) = 1/(1 + exp(u)), and the second derivative p
    (1 - p). The smoothing begins at the margin s with p(s) three quarters of the cap. Below s the second derivative
    falls linearly, from p(s) (1 - p(s)) to 0 at s - D. There the slope reaches the cap and stays at it. So
    D = 2 (cap - p(s))/(p(s) (1 - p(s))): two thirds, or more. The slope's size never grows with u, so the loss is
    convex. As p is at most p(s) from s on and p (1 - p) grows up to 1/2, the second derivative is at most p(s)
    (1 - p(s)) if p(s) <= 1/2, and 1/4 otherwise.

    A person far on the wrong side has no larger slope than one near the boundary. So less noise is needed, by about the
    factor of the cap. `probability` accounts for the cap, but the loss does not distinguish rows near the boundary:
    `probability` is 1/2 at margins with the capped slope for both labels. For a cap below 1/2 these are around 0.

    Parameters
    ----------
    cap : float, default 0.25
        Largest slope, at least 2**-20 and below 1, the largest slope of the logistic loss.

    Examples
    --------
    >>> from dpfast.solvers import CappedLogisticLoss
    >>> CappedLogisticLoss(0.25).derivative([-5.0, 0.0, 3.0], 1.0).round(4)
    array([-0.25  , -0.25  , -0.0474])
    """

    cap: float = 0.25

    kind: ClassVar[str] = "capped_logistic"
    is_classification: ClassVar[bool] = True
    slope_sign: ClassVar[bool] = True

    def __post_init__(self) -> None:
        cap = check.positive("cap", self.cap)
        if not 2.0**-20 <= cap < 1.0:
            raise ValueError(f"cap must be at least 2**-20 and below 1, the slope of LogisticLoss(), got {cap!r}")
        object.__setattr__(self, "cap", cap)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative: that at the margin -reach."""
        return min(self.cap, float(-self.derivative(-reach, 1.0)) * ROUND_UP_ONE)

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        odds = float(np.exp(-max(self._start, 0.0)))
        return 1.0 / (1.0 + odds) * (odds / (1.0 + odds)) * ROUND_UP_ONE

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"threshold": self.cap, "start": self._start}

    @property
    def _start(self) -> float:
        """Margin at which the smoothing begins, as a double: it defines the loss exactly."""
        slope = (1.0 - _SMOOTHED) * self.cap
        return math.log1p(-slope) - math.log(slope)


@dataclass(frozen=True)
class SmoothedHinge(GeneralisedLinearLoss):
    """The hinge max(0, 1 - yz), smoothed about its non-differentiable point: twice continuously differentiable.

    With u = yz and t = (u - 1 + width)/(2 width) the slope in u is -(1 - t)^2 (1 + 2t) for t in [0, 1], -1 left of it,
    0 right of it. Its derivative 3t(1 - t)/width is 0 at both ends, as it is beyond them. Away from the smoothing it is
    the hinge itself, for the slope integrates to -width over it, as the hinge's does.

    Parameters
    ----------
    width : float, default 0.5
        Half the width of the smoothing, from 2**-7 on: with a narrower one, the time of minimising would reveal rows.

    Examples
    --------
    >>> from dpfast.solvers import SmoothedHinge
    >>> SmoothedHinge(0.5).value([0.0, 1.0, 2.0], 1.0)
    array([1.     , 0.09375, 0.     ])
    """

    width: float = 0.5

    kind: ClassVar[str] = "smoothed_hinge"
    is_classification: ClassVar[bool] = True
    slope_sign: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", _parameter("width", self.width, _LEAST_WIDTH))

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return 1.0

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return 0.75 / self.width * ROUND_UP_ONE

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"width": self.width}


@dataclass(frozen=True)
class SmoothedHuber(GeneralisedLinearLoss):
    """Huber's loss, smoothed where its second derivative jumps: twice continuously differentiable.

    Of the residual r = z - y the second derivative is 1 up to threshold - width, 0 from threshold + width on, and
    linear between, so it is continuous. The slope beyond is the threshold, as Huber's is.

    Parameters
    ----------
    threshold : float, default 1.0
        Largest slope.
    width : float, default half the threshold
        Half the width of the smoothing, below the threshold, and 2**-7 of it or more: as for `SmoothedHinge`.

    Examples
    --------
    >>> from dpfast.solvers import SmoothedHuber
    >>> SmoothedHuber(1.0, 0.5).derivative([0.5, 1.0, 2.0], 0.0)
    array([0.5  , 0.875, 1.   ])
    """

    threshold: float = 1.0
    width: float = None  # type: ignore[assignment]  # half the threshold

    kind: ClassVar[str] = "smoothed_huber"

    def __post_init__(self) -> None:
        threshold = _parameter("threshold", self.threshold)
        width = _parameter("width", 0.5 * threshold if self.width is None else self.width)
        if width >= threshold:
            raise ValueError(f"width must be below threshold, got {width!r} >= {threshold!r}")
        if width < _LEAST_WIDTH * threshold:
            raise ValueError(f"width must be at least {_LEAST_WIDTH} of threshold, {threshold!r}, got {width!r}")
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "width", width)

    def scaled(self, unit: float) -> SmoothedHuber:
        """Return the loss of the same shape for outcomes that are `unit` times as large."""
        return SmoothedHuber(self.threshold * unit, self.width * unit)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return min(self.threshold, (reach + outcome_bound) * ROUND_UP_ONE)

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return 1.0

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"threshold": self.threshold, "width": self.width}


@dataclass(frozen=True)
class SmoothedQuantile(GeneralisedLinearLoss):
    """The quantile (pinball) loss, smoothed about its non-differentiable point: twice continuously differentiable.

    Of the residual r = y - z it is level r + H(r), where H(r) is max(0, -r) smoothed over ``|r| <= width`` as the hinge
    is: `SmoothedHinge` at the margin 1 + r. So its slope in z lies between -level and 1 - level, and its second
    derivative is at most 3/(4 width). The expected loss is least at the quantile of y + width e, not of y. Here e is
    independent of y with the density 3 (1 - e^2)/4 on [-1, 1]. The two quantiles are close if the density of y is even
    over the width.

    Parameters
    ----------
    level : float
        Share of outcomes below the quantile; 0.5 for the median.
    width : float
        Half the width of the smoothing, in units of the outcome. An eighth of the bound on outcomes is a good one; less
        than 2**-7 of it is refused where there is noise, as for `SmoothedHinge`.

    References
    ----------
    Fernandes, Guerre, Horta (2021), "Smoothing quantile regressions", Journal of Business and Economic Statistics.

    Examples
    --------
    >>> from dpfast.solvers import SmoothedQuantile
    >>> SmoothedQuantile(0.9, 0.1).derivative([-1.0, 0.0, 1.0], 0.0).round(3)
    array([-0.9, -0.4,  0.1])
    """

    level: float
    width: float

    kind: ClassVar[str] = "smoothed_quantile"

    def __post_init__(self) -> None:
        level = check.positive("level", self.level)
        if not 2.0**-20 <= level <= 1.0 - 2.0**-20:
            raise ValueError(f"level must lie between 0 and 1, 2**-20 or more from both, got {level!r}")
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "width", _parameter("width", self.width))

    def scaled(self, unit: float) -> SmoothedQuantile:
        """Return the loss of the same shape for outcomes that are `unit` times as large."""
        return SmoothedQuantile(self.level, self.width * unit)

    @property
    def largest_outcome_bound(self) -> float:
        """Largest bound on outcomes for which the smoothing is not too narrow."""
        return self.width / _LEAST_WIDTH

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative, which grows with z - y."""
        ends = self.derivative([-reach, reach], [outcome_bound, -outcome_bound])
        # Slopes are differences of numbers near 1, with as many rounding errors of these.
        return min(max(self.level, 1.0 - self.level), float(np.abs(ends).max()) + 2.0**-50) * ROUND_UP_ONE

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return 0.75 / self.width * ROUND_UP_ONE

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"width": self.width, "threshold": self.level}


@dataclass(frozen=True)
class PoissonLoss(GeneralisedLinearLoss):
    """exp(z) - yz for counts y, smoothly continued as a line near the largest rate exp(z): twice differentiable.

    The rate is exp(z) up to s, where it is three quarters of `largest`. From there on the second derivative falls
    linearly from that to 0 at s + 2/3. There the rate reaches `largest` and stays at it. So the rate m(z) never falls,
    the loss is convex, the slope m(z) - y lies between -y and `largest`, and the second derivative is at most three
    quarters of `largest`: bounds without any constraint. The estimate is the mean of y, m(x'theta). For rates up to
    three quarters of `largest` that is Poisson regression; beyond, it is a flatter function of x'theta.

    Parameters
    ----------
    largest : float
        Largest rate. The bound on the counts is a good one: the means of clipped counts are no larger, and the slope
        reaches it anyhow.

    Examples
    --------
    >>> from dpfast.solvers import PoissonLoss
    >>> PoissonLoss(20.0).mean([0.0, 1.0, 5.0]).round(4)
    array([ 1.    ,  2.7183, 20.    ])
    """

    largest: float

    kind: ClassVar[str] = "poisson"
    is_of_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", _parameter("largest", self.largest))

    def scaled(self, unit: float) -> PoissonLoss:
        """Return the loss whose largest rate is `unit` times as large."""
        return PoissonLoss(self.largest * unit)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative: the rate never falls, and counts are 0 or more."""
        least, most = self.mean([-reach, reach])
        return float(max(most, outcome_bound - least * (1.0 - 2.0**-48))) * ROUND_UP_ONE

    def second_derivative_bound(self, most: float = math.inf) -> float:
        """Upper bound on the second derivative, of predictions up to `most`: it grows up to the smoothing."""
        return float(np.exp(min(most, self._start))) * ROUND_UP_ONE

    def mean(self, z: ArrayLike) -> FloatArray:
        """Return the rate that a prediction stands for."""
        return self.derivative(z, 0.0)

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the kernel besides the kind."""
        return {"threshold": self.largest, "start": self._start}

    @property
    def _start(self) -> float:
        """Prediction at which the smoothing begins, as a double: it defines the loss exactly."""
        return math.log((1.0 - _SMOOTHED) * self.largest)


@dataclass(frozen=True, eq=False)
class CallableLoss(GeneralisedLinearLoss):
    """A loss l(z, y) given by functions of arrays of predictions and outcomes: for losses of the caller's.

    It must be convex and twice continuously differentiable in z, and within its bounds, for all possible predictions
    and outcomes. With a constraint, z reaches up to the norm of the longest row times that of the longest parameters;
    without one, every z is possible. Outcomes y are clipped to their bound. Privacy depends on this, and the caller
    must prove it. `probe` detects gross errors, and is called before noise is calibrated for such a loss.

    A proof takes a few lines. Take log cosh r, r = z - y, a smooth absolute value. Its first derivative in z is tanh r,
    with a size below 1 everywhere. The second is 1 - tanh(r)^2: above 0, so the loss is convex, and at most 1, with
    equality at r = 0. Both are continuous, and the bounds hold without a constraint. (Give a constraint nevertheless,
    an L2 ball a few times as large as the expected parameters. Noise also has to hide the errors of slopes from rounded
    predictions, and these are bounded over all allowed parameters.) Tukey's biweight would have bounded derivatives as
    well, but its second one is negative for large r: it is not convex, and is refused.

    Parameters
    ----------
    loss, slope, curvature : callable
        From arrays z and y of one shape to l, its derivative in z and its second derivative.
    slope_bound, curvature_bound : float
        Upper bounds on the size of the derivative and on the second derivative, positive. Noise is in proportion to the
        first; the second takes a part of epsilon, or strong convexity.
    slope_error : float, optional
        Upper bound on the error of computed slopes; 2**-48 times their bound if omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import CallableLoss
    >>> log_cosh = CallableLoss(
    ...     lambda z, y: np.logaddexp(z - y, y - z) - np.log(2.0),
    ...     lambda z, y: np.tanh(z - y),
    ...     lambda z, y: 1.0 - np.tanh(z - y) ** 2,
    ...     slope_bound=1.0,
    ...     curvature_bound=1.0,
    ... )
    >>> log_cosh.probe(outcome_bound=5.0)
    >>> from dpfast import L2Ball, ObjectivePerturbationRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 2))
    >>> model = ObjectivePerturbationRegressor(
    ...     1.0, 1e-6, bound_x=1.0, bound_y=5.0, loss=log_cosh, constraint=L2Ball(10.0), random_state=0
    ... )
    >>> model.fit(X, X @ [1.0, -2.0]).coef_.round(1)
    array([ 1., -2.])
    """

    loss: LossFunction
    slope: LossFunction
    curvature: LossFunction
    slope_bound: float
    curvature_bound: float
    slope_error: float = None  # type: ignore[assignment]  # a part of the bound

    kind: ClassVar[str] = "callable"

    def __post_init__(self) -> None:
        for name in ("loss", "slope", "curvature"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {type(getattr(self, name)).__name__}")
        for name in ("slope_bound", "curvature_bound"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))
        error = 2.0**-48 * self.slope_bound if self.slope_error is None else self.slope_error
        object.__setattr__(self, "slope_error", check.positive("slope_error", error))

    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Loss of each prediction."""
        return _evaluated("loss", self.loss, z, y)

    def derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """First derivative in z."""
        return _evaluated("slope", self.slope, z, y)

    def second_derivative(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Second derivative in z."""
        return _evaluated("curvature", self.curvature, z, y)

    def derivative_bound(self, reach: float, outcome_bound: float = 1.0) -> float:
        """Upper bound on the size of the first derivative."""
        return self.slope_bound

    def second_derivative_bound(self) -> float:
        """Upper bound on the second derivative."""
        return self.curvature_bound

    def probe(self, outcome_bound: float = 1.0, reach: float = math.inf) -> None:
        """Refuse functions that contradict each other or their bounds at made-up numbers.

        It proves nothing: it does not see the values between these numbers.

        Parameters
        ----------
        outcome_bound : float, default 1.0
            Size of an outcome, at most.
        reach : float, default inf
            Size of a prediction, at most; 2**20 times 1 and the bound on outcomes are enough.

        Raises
        ------
        ValueError
            If a value is not finite, a slope or a curvature beyond its bound, a slope not that of the loss, a
            curvature not that of the slope, or the loss not convex.
        """
        y = outcome_bound * np.linspace(-1.0, 1.0, 9)[:, np.newaxis]
        reach = min(reach, 2.0**20 * (1.0 + outcome_bound))
        sizes = np.geomspace(min(2.0**-12 * outcome_bound, 0.5 * reach), reach, 97)
        offsets = np.concatenate([-sizes, [0.0], sizes])
        z = np.sort(np.clip(np.hstack([offsets + 0.0 * y, offsets + y]), -reach, reach), axis=1)
        # Small next to smoothings, but not to the rounding of z and y.
        steps = np.maximum(2.0**-14 * min(outcome_bound, reach, 1.0), 2.0**-40 * (np.abs(z) + np.abs(y)))
        left, right = np.minimum(z, reach - steps), np.minimum(z, reach - steps) + steps

        def check_that(holds: ArrayLike, what: str) -> None:
            if not np.all(holds):
                row, column = np.argwhere(~np.asarray(holds))[0]
                raise ValueError(f"{what} at z = {z[row, column]:.6g} and y = {y[row, 0]:.6g}")

        def at(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            return self.value(points, y), self.derivative(points, y), self.second_derivative(points, y)

        with np.errstate(all="ignore"):
            (values, slopes, curvatures), (further, steeper, _) = at(left), at(right)
            check_that(np.isfinite(values) & np.isfinite(slopes) & np.isfinite(curvatures), "loss must be finite")
            slack = 1.0 + 2.0**-40
            check_that(np.abs(slopes) <= self.slope_bound * slack, "slope must keep to slope_bound: it is larger")
            check_that(
                curvatures <= self.curvature_bound * slack, "curvature must keep to curvature_bound: it is larger"
            )
            check_that(
                curvatures >= -(2.0**-40) * self.curvature_bound, "loss must be convex: its curvature is negative"
            )
            chord, growth = (further - values) / steps, (steeper - slopes) / steps
            # A convex function's chord lies between the slopes at its ends.
            rounding = 2.0**-8 * self.slope_bound + 2.0**-44 * (np.abs(values) + np.abs(further)) / steps
            check_that(
                (slopes - rounding <= chord) & (chord <= steeper + rounding), "slope must be the derivative of loss"
            )
            rounding = 2.0**-4 * self.curvature_bound + 4.0 * self.slope_error / steps
            check_that(
                np.abs(growth - self.second_derivative(0.5 * (left + right), y)) <= rounding,
                "curvature must be the derivative of slope",
            )
            # Between the points as well, since a slope is the integral of a bounded function.
            between, gaps = np.diff(slopes, axis=1), np.diff(left, axis=1)
            rounding = 2.0 * self.slope_error + 2.0**-48 * self.curvature_bound * (np.abs(left[:, 1:]) + np.abs(y))
            check_that(between >= -rounding, "loss must be convex: its slope falls")
            check_that(
                between <= self.curvature_bound * gaps * slack + rounding,
                "curvature must keep to curvature_bound: the slope grows faster",
            )


def _parameter(name: str, value: object, least: float = 2.0**-100) -> float:
    number = check.positive(name, value)
    if not least <= number <= 2.0**100:
        raise ValueError(f"{name} must lie between 2**{math.log2(least):.0f} and 2**100, got {number!r}")
    return number


def _evaluated(name: str, function: LossFunction, z: ArrayLike, y: ArrayLike) -> FloatArray:
    predictions, outcomes = (np.asarray(values, np.float64) for values in np.broadcast_arrays(z, y))
    problem = f"{name} must return numbers, and raise nothing, for any arrays of predictions and outcomes"
    values: FloatArray = redact_errors(lambda: np.asarray(function(predictions, outcomes), np.float64), problem)
    if values.shape != predictions.shape:
        raise ValueError(f"{name} must return an array of the shape that it was given")
    return values


Pair = tuple[FloatArray, FloatArray]

# Sums over rows are taken over fixed parts of the table, whatever the threads, in order.
_PARTS = 16
_ROWS_PER_PART = 1024
_DOUBLES_PER_THREAD = 200_000


@dataclass(eq=False)
class LossBounds:
    """Constants of a sum of losses, used without the sum.

    `n_rows` is the number of rows or an upper bound on it; `row_bound` and `outcome_bound` bound the L2 norm of rows
    and the size of outcomes, and are not verified. `by_moments`: a squared loss that is known by moments.
    """

    n_rows: int
    n: int
    loss: GeneralisedLinearLoss
    _: KW_ONLY
    row_bound: float
    outcome_bound: float = 1.0
    by_moments: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, GeneralisedLinearLoss):
            raise TypeError(f"loss must be a GeneralisedLinearLoss, got {type(self.loss).__name__}")
        self.n_rows, self.n = check.positive_integer("n_rows", self.n_rows), check.positive_integer("n", self.n)
        self.row_bound = in_range("row_bound", self.row_bound)
        self.outcome_bound = in_range("outcome_bound", self.outcome_bound)

    @property
    def strong_convexity(self) -> float:
        """0: rows may be anything."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """n_rows row_bound^2 times the loss's largest second derivative."""
        return float(self.n_rows) * self.row_bound**2 * self.loss.second_derivative_bound() * ROUND_UP

    def gradient_bound(self, norm: float) -> float:
        """n_rows row_bound times the loss's largest derivative where ||x|| <= norm."""
        slope = self.loss.derivative_bound(self.row_bound * norm, self.outcome_bound)
        return self.n_rows * self.row_bound * slope * ROUND_UP

    def gradient_error(self, norm: float) -> float:
        """Upper bound on the L2 error of a computed gradient where ||x|| <= norm."""
        if self.by_moments:
            return self._error_of_moments(norm)
        if isinstance(self.loss, CallableLoss):
            # Of an inner product of n doubles in any order, and of x, a sum of two, rounded to one.
            of_predictions = 1.1 * UNIT * (self.n + 2.0) * self.row_bound * norm
            of_slopes = self.loss.curvature_bound * of_predictions + self.loss.slope_error
            return (self.n_rows * self.row_bound * of_slopes + self._error_of_sums(0.0)) * ROUND_UP
        return self._error_of_sums(norm)

    def _error_of_sums(self, norm: float) -> float:
        """Of predictions, derivatives and sums in twice the precision."""
        reach = self.row_bound * norm
        slope = self.loss.derivative_bound(reach, self.outcome_bound)
        curvature = self.loss.second_derivative_bound()
        of_predictions = UNIT**2 * 1.1 * ((self.n / 8 + 4) ** 2 + 40) * reach
        scales = reach + self.outcome_bound + 1.0 + sum(map(abs, self.loss.parameters().values()))
        of_derivatives = curvature * (of_predictions + 2.0**-100 * scales) + 2.0**-85 * slope
        of_sums = UNIT**2 * (1.1 * 1026.0**2 + 3.1 * (self.n_rows / 1024 + 2 + _PARTS)) * slope
        return self.n_rows * self.row_bound * (of_derivatives + of_sums) * ROUND_UP

    def _error_of_moments(self, norm: float) -> float:
        """Error of the products with the rounded moments and with their rounding errors.

        The second product is in double (the L2 norm of the entries' magnitudes is at most their trace). Added are the
        errors of omitted terms and of two sums.
        """
        linear = self.n_rows * self.row_bound * self.outcome_bound * ROUND_UP
        image = self.smoothness * norm
        bounds = QuadraticBounds(self.n, 0.0, self.smoothness, norm, 0.0, image, n_columns=0)
        rest = UNIT**2 * ((self.n + 32.0) * image + 32.0 * linear)
        return (bounds.gradient_error(norm, linear) + rest) * ROUND_UP


class _RowLosses(LossBounds):
    """Rows and outcomes, checked."""

    def __init__(self, rows: ArrayLike, outcomes: ArrayLike, loss: GeneralisedLinearLoss, **bounds: Any) -> None:
        self._rows, self._outcomes = finite_array("rows", rows, (2,)), finite_array("outcomes", outcomes, (1,))
        if len(self._rows) != len(self._outcomes):
            raise ValueError("rows and outcomes must be equally many")
        n_rows, n = self._rows.shape
        super().__init__(n_rows, n, loss, **bounds)
        if loss.is_classification and not (np.abs(self._outcomes) <= 1.0).all():
            raise ValueError("outcomes must be from -1 to 1 for a loss of classification")
        if loss.is_of_counts and (self._outcomes < 0.0).any():
            raise ValueError("outcomes must be 0 or more for a loss of counts")


class GeneralisedLinear(_RowLosses):
    """Sum over rows of a generalised linear loss, sum_i v_i l(x_i'theta, y_i); results do not depend on threads.

    The weights v_i, if any, are 0 or more, and at most 1 for `gradient_error` and the like.
    """

    def __init__(
        self,
        rows: ArrayLike,
        outcomes: ArrayLike,
        loss: GeneralisedLinearLoss,
        *,
        n_threads: int | None = None,
        weights: ArrayLike | None = None,
        **bounds: Any,
    ) -> None:
        super().__init__(rows, outcomes, loss, **bounds)
        parameters: dict[str, Any] = {**loss.parameters()}
        own = None if weights is None else finite_array("weights", weights, (1,))
        if own is not None and (own.shape != self._outcomes.shape or (own < 0.0).any()):
            raise ValueError("weights must be 0 or more, one for each row")
        self._sums = descent.LossSums(self._rows, self._outcomes, own, kind=loss.kind, **parameters)
        threads = resolve_n_threads(n_threads)
        self._n_threads = max(1, min(threads, self._rows.size // _DOUBLES_PER_THREAD, _PARTS))
        n_parts = max(1, min(_PARTS, self.n_rows // _ROWS_PER_PART))
        self._parts = [self.n_rows * part // n_parts for part in range(n_parts + 1)]

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient in twice the working precision, of shape (2, n)."""
        parts = np.empty((len(self._parts) - 1, 2, self.n))

        def add(part: int, start: int, stop: int) -> None:
            self._sums.precise_gradient(x, start, stop, parts[part])

        self._over_parts(add)
        return reduce(sum_of_pairs, parts)

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian in one pass, to working precision."""
        shape, n = (len(self._parts) - 1,), self.n
        values, gradients, hessians = np.empty(shape), np.empty((*shape, n)), np.empty((*shape, n, n))

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


class CallableLossSum(_RowLosses):
    """Sum over rows of a loss given by functions."""

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient at the nearest array of doubles, of shape (2, n)."""
        slopes = self.loss.derivative(self._rows @ (x[0] + x[1]), self._outcomes)
        total = np.empty((2, self.n))
        sums = descent.LossSums(self._rows, -slopes, kind="squared")
        sums.precise_gradient(np.zeros((2, self.n)), 0, len(slopes), total)
        return total

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, to working precision."""
        at = self._rows @ x, self._outcomes
        weights, slopes = self.loss.second_derivative(*at), self.loss.derivative(*at)
        hessian = self._rows.T @ (weights[:, np.newaxis] * self._rows)
        return float(np.sum(self.loss.value(*at))), self._rows.T @ slopes, 0.5 * (hessian + hessian.T)


class LeastSquares(LossBounds):
    """Sum over rows of (y_i - x_i'theta)^2/2 up to a constant, by moments.

    `xx` is the sum of x x', symmetric, `xy` that of x y. Each is a sum of two arrays: first the nearest doubles, then
    the rounding error, itself rounded.
    """

    def __init__(self, xx: Pair, xy: Pair, *, n_rows: int, row_bound: float, outcome_bound: float) -> None:
        self._xx, self._xx_rest = (finite_array("xx", part, (2,)) for part in xx)
        self._xy, self._xy_rest = (finite_array("xy", part, (1,)) for part in xy)
        n = len(self._xy)
        if self._xx.shape != (n, n) or not np.array_equal(self._xx, self._xx.T):
            raise ValueError(f"xx must be symmetric, of shape ({n}, {n})")
        super().__init__(n_rows, n, SquaredLoss(), row_bound=row_bound, outcome_bound=outcome_bound, by_moments=True)
        self._product = descent.QuadraticSteps(
            self._xx, None, -self._xy, diagonal=(0.0, 0.0), weight=0.0, step=1.0, set_name="whole_space"
        )

    def gradient(self, x: FloatArray) -> FloatArray:
        """Gradient in twice the working precision, of shape (2, n)."""
        product = np.empty_like(x)
        self._product.gradient(in_c_order(x), product)
        total = normalised(product[0], self._xx_rest @ x[0] - self._xy_rest)
        return normalised(total[0], total[1] + product[1])

    def local_model(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, to working precision."""
        image = self._xx @ x
        return float(x @ (0.5 * image - self._xy)), image - self._xy, self._xx
