"""Objective perturbation: the release of the minimiser of a convex objective with a noise term.

    theta = argmin over F of  sum_i l(x_i'theta, y_i) + penalty(theta) + (m/2) ||theta||^2 + b'theta

for rows and outcomes within public bounds, a public convex set F, a convex penalty, and noise b. The calibration of the
noise is in dpfast.privacy.objective.

A table's loss is of bounded rows, or of moments if these suffice. Rows are clipped to `bound_x`, with the slack of
their rounding: of rows on a grid, for moments, or of computed norms, for rows of doubles.

*Weights.* A person's weight w is as private as the row (x, y), and a part of it. Its share v = min(w, W)/W of the
declared bound W is a function of that row and of W. The row adds v l(x'theta, y) to the summed loss: v l' x to the
gradient and v l'' x x' to the Hessian. As 0 <= v <= 1, also in floating point, the gradient of a record is no longer
than that of some record without weights, on the same line and of the same sign, and its curvature no larger. So every
bound that objective perturbation is calibrated with holds, for whichever table: in the
units of the weights the bounds are W times the largest slope, and W times the largest curvature. A loss of squares,
v (y - x'theta)^2/2, is that of the row (r x, r y) with r the root of v, which is within the same bounds: its moments
are those of such rows (io/table.py), with the constant among their entries. The labels of classifiers are signs times
v: losses of margins take the size of an outcome for a weight, as descent does: there a row's slope times the row is v
times what it is without weights, before the person's part is clipped, so that the clip bounds it as any other.

*Floating point.* The objective minimised is exact: moments of rows on a grid as sums of two doubles, or rows of
doubles, with gradients in twice the precision. The minimiser comes with a tolerance for every table and every b. b is
rounded to a grid, and this moves the minimiser by at most the rounding's length over m. The release adds noise that
hides both. Under add/remove the tolerance may not depend on the number of rows, and is that of the largest tables
accepted.

Public numbers of a table and of the objective minimised over it bound one person's largest effect:

*Add/remove.* A record adds l'(x'theta, y) x to the gradient, along one line for every theta, and l'' x x' to the
Hessian: at most zeta = max ||x|| |l'| and c = max ||x||^2 l''. If the slope in the margin y x'theta has one sign, this
is a segment of the line, with one end at 0.

*Replace-one.* The gradient moves by a difference of two of these, along two lines or two segments, zeta on each at
most. The Hessian moves by a matrix with at most one negative eigenvalue, of size c at most.

*Replace-one, squared loss.* The gradient of a record (x, y) is x (x'theta - y). Replacing it by (z, w) moves it by M
theta + c, M = xx' - zz' and c = wz - yx. With parameters within rho of 0 the change is in the disk about c of radius
rho ||M||, in the plane of x and z. With R = B rho and |y|, |w| <= Y that radius is at most BR, and no point of the disk
is farther from 0 than

    K = max over 0 <= d <= pi/2 of  B (R sin 2d + 2 Y sin d),  where  cos d = 2R/(Y + sqrt(Y^2 + 8 R^2)).

Proof. M lies between -zz' and xx': ||M|| <= B^2. The sign of z does not matter to M, and ||c|| is convex in y and w:
let Q = ||x - z|| be at least P = ||x + z||, so that ||c|| <= YQ. M is (pq' + qp')/2 with p = x + z and q = x - z, and
||M|| = (t + PQ)/2 with t = |p'q|. As x and z, (p + q)/2 and (p - q)/2, are within B, P^2 + Q^2 + 2t <= 4 B^2. Fix Q. As
t grows, the largest P allowed falls at a rate of 1/P, and PQ at that of Q/P >= 1. So t = 0 is worst if P^2 = 4 B^2 -
Q^2 is at most Q^2; with Q = 2B sin d this is the formula. Otherwise Q^2 < 2 B^2, and ||c|| + rho ||M|| is less than
sqrt(2) BY + BR, the formula's at d = pi/4. Its derivative in d is 0 where 2R cos 2d + 2Y cos d is. K is reached, by x
and z of length B and theta along p: over an L1 ball and a box of equal sides too, at a corner.

*Domain of the bounds.* They are needed on the constraint set alone. The squared loss has them on bounded sets only; the
others have a bounded slope everywhere. Without a constraint, the set is a ball so large (`ObjectiveBounds.reach`) that
its end is met by chance alone.

References
----------
Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1 and Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray, IntArray
from dpfast.privacy import Calibration, ObjectiveNoise, Privacy, meets_its_claim, objective_noise
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.privacy.objective import Changes, SplitCost
from dpfast.releases import printed
from dpfast.releases.mechanism import Drawn, SingleRelease, draw
from dpfast.solvers import Box, CallableLoss, ElasticNet, GeneralisedLinearLoss, L2Ball, Lasso, Proximable, SquaredLoss
from dpfast.solvers.constraints import Constraint
from dpfast.solvers.losses import CallableLossSum, GeneralisedLinear, LeastSquares, LossBounds
from dpfast.solvers.smooth_convex import SmoothConvexFunction, minimise_smooth, smallest_smooth_tolerance
from dpfast.statistics import MOST_ROWS_IF_PRIVATE, Gram, gram, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap

Penalty = ElasticNet | Proximable

# Largest ratio of the curvature of all rows to the strong convexity: easy for the solver.
_LARGEST_CONDITION = 2.0**34
# Without a constraint: predictions up to this many times 1 and the bound on outcomes.
_REACH_OF_PREDICTIONS = 2.0**20
# Parameters of usual size make predictions of this many times the bound on outcomes, and a loss has this share of the
# greatest curvature, evenly over directions. They only guide the split.
_USUAL_PREDICTION = 4.0
_TYPICAL_CURVATURE = 2.0**-3
# Shrinkage is weighted with longer parameters: an intercept, or a mean off the centre, suffers most from it.
_SHRUNK_PREDICTION = 10.0
# Within these limits bounds, squared and times the largest number of rows, are acceptable to the solver.
_SMALLEST_BOUND, _LARGEST_BOUND = 2.0**-64, 2.0**64


class DeclaredBounds(TypedDict):
    """Largest L2 norm of a row and largest size of an outcome, as they enter the loss."""

    row_bound: float
    outcome_bound: float


@dataclass(frozen=True)
class ObjectiveBounds:
    """Public numbers of a table and of the objective over it."""

    loss: GeneralisedLinearLoss
    #: Number of parameters.
    n_features: int
    #: B and Y: largest L2 norm of a row and largest size of an outcome, as they enter the loss.
    row_bound: float
    outcome_bound: float
    constraint: Constraint | None = None
    #: A Proximable of the caller's excludes a constraint, and the squared loss.
    penalty: Penalty | None = None
    #: None if it is private, as under "add_remove".
    n_rows: int | None = None
    #: Value of an intercept's feature, whose coefficient is the last parameter; 0 without one. Only plans use it.
    constant: float = 0.0

    def __post_init__(self) -> None:
        check_problem(self.loss, self.constraint, self.penalty)
        if self.n_rows is not None:
            check.positive_integer("n_rows", self.n_rows)
        if isinstance(self.constraint, Box):
            self.constraint.bounds(self.n_features)
        if self.outcome_bound > self.loss.largest_outcome_bound:
            raise ValueError(
                f"{self.loss!r} must be smoother where outcomes may be as large as {self.outcome_bound!r}: it is wide "
                f"enough for {self.loss.largest_outcome_bound!r}"
            )
        if isinstance(self.loss, CallableLoss) and self.n_rows is None:
            raise ValueError(
                "adjacency must be 'replace_one' with a loss given by functions: its rounding errors are bounded for a "
                "known number of rows only"
            )
        if not math.isfinite(self.gradient):
            named = " (loss='squared')" if isinstance(self.loss, SquaredLoss) else ""
            raise ValueError(
                f"constraint must be given with {self.loss!r}{named}, such as dpfast.L2Ball(1.0): without one its "
                "gradient has no bound, so that no noise hides one person in it. A loss of bounded slope, as 'huber', "
                "needs none"
            )

    def check_functions(self) -> None:
        """Refuse functions that contradict their bounds; the message has numbers made up from these bounds."""
        if isinstance(self.loss, CallableLoss):
            self.loss.probe(self.outcome_bound, self.prediction)

    @property
    def sizes(self) -> DeclaredBounds:
        """The bounds on rows and outcomes."""
        return DeclaredBounds(row_bound=self.row_bound, outcome_bound=self.outcome_bound)

    @property
    def confined(self) -> bool:
        """Whether the minimiser is sought in a set, not only restrained by a penalty of the caller's."""
        return self.penalty is None or isinstance(self.penalty, ElasticNet)

    @property
    def prediction(self) -> float:
        """R: largest |x'theta|."""
        return math.inf if self.constraint is None else self.row_bound * self.constraint.norm_bound(self.n_features)

    @property
    def gradient(self) -> float:
        """Zeta: largest L2 norm of a record's contribution to the gradient; infinite if nothing bounds it."""
        return self.row_bound * self.loss.derivative_bound(self.prediction, self.outcome_bound) * ROUND_UP

    @property
    def gradient_change(self) -> float:
        """Largest L2 norm of one person's change of the gradient; this module's docstring has the proof."""
        if self.n_rows is None:
            return self.gradient
        if not isinstance(self.loss, SquaredLoss):
            return 2.0 * self.gradient
        reach, outcome = self.prediction, self.outcome_bound
        cosine = 2.0 * reach / (outcome + math.hypot(outcome, math.sqrt(8.0) * reach))
        return 2.0 * self.row_bound * math.sqrt(1.0 - cosine**2) * (reach * cosine + outcome) * ROUND_UP

    @property
    def gradient_changes(self) -> Changes:
        """Proved bounds on one person's change of the gradient; in one dimension there is only one line."""
        one_sign = self.loss.slope_sign
        if self.n_rows is None:
            return {"segment" if one_sign else "line": self.gradient}
        on_a_line: Changes = {"line": self.gradient_change} if self.n_features == 1 else {}
        if isinstance(self.loss, SquaredLoss):
            turning = self.row_bound * self.prediction * ROUND_UP
            return {"disk": (self.gradient_change, turning), **on_a_line}
        return {"two segments" if one_sign else "two lines": 2.0 * self.gradient, **on_a_line}

    @property
    def curvature(self) -> float:
        """c: largest contribution of a record to an eigenvalue of the Hessian."""
        return self.row_bound**2 * self.loss.second_derivative_bound() * ROUND_UP

    @property
    def curvature_fades(self) -> bool:
        """Whether a record's curvature is smaller the nearer its slope is to the bound in `gradient`."""
        return self.loss.curvature_fades and self.loss.derivative_bound(self.prediction, self.outcome_bound) >= 1.0

    def free_convexity(self, epsilon: float) -> float:
        """Return the least strong convexity at which fading curvature costs nothing beside noise at `epsilon`."""
        return 4.0 * self.curvature / (epsilon if self.n_rows is None else 0.5 * epsilon)

    @property
    def penalty_ridge(self) -> float:
        """Strong convexity of the penalty."""
        return self.penalty.l2 if isinstance(self.penalty, ElasticNet) else 0.0

    @property
    def most_rows(self) -> int:
        """Largest number of rows of a table."""
        return MOST_ROWS_IF_PRIVATE if self.n_rows is None else self.n_rows

    @property
    def least_convexity(self) -> float:
        """Least m given to the solver."""
        return self.most_rows * self.curvature / _LARGEST_CONDITION

    def radius(self, prediction: float) -> float:
        """Norm of parameters with this prediction for the longest row, within the constraint."""
        # Logarithms of rates are of the size of margins.
        unit = 1.0 if self.loss.is_of_counts else self.outcome_bound
        radius = prediction * unit / self.row_bound
        return radius if self.constraint is None else min(radius, self.constraint.norm_bound(self.n_features))

    def typical_excess(self, convexity: float, prediction: float = _SHRUNK_PREDICTION) -> TypicalExcess:
        """Bound the expected excess of the objective, by deviation and m, for usual parameters and curvature.

        Parameters predict at most `prediction`, in bounds on outcomes. Let the summed loss and the penalty have the
        strong convexity eta (at least `convexity`). Noise b with coordinates of a `deviation` and (m/2) ||theta||^2 (m
        is `added`) cost at most (E||b||^2 + m^2 ||theta||^2)/(2 (2m + eta)). This is Kifer, Smith and Thakurta's
        Theorem 5, with the constants of dpfast.papers.convex_erm.
        """
        rows = 0 if self.n_rows is None else self.n_rows
        eta = convexity + _TYPICAL_CURVATURE * rows * self.curvature / self.n_features
        return TypicalExcess(self.n_features, self.radius(prediction), eta)

    def reach(self, convexity: float, deviation: float) -> float:
        """Bound the norm of the minimiser without a constraint, for all but absurdly long noise.

        The minimiser without the loss and the noise is that of the penalty; strong convexity bounds how far they move
        it.
        """
        moved = (self.most_rows * self.gradient + 64.0 * math.sqrt(self.n_features) * deviation) / convexity
        if self.confined:
            return min(moved, _REACH_OF_PREDICTIONS * (1.0 + self.outcome_bound) / self.row_bound)
        assert isinstance(self.penalty, Proximable)
        start = self.penalty.prox(np.zeros(self.n_features), 1.0 / convexity)
        return float(np.linalg.norm(start) + self.penalty.prox_error(0.0, 1.0 / convexity) + moved) * ROUND_UP

    def constants(self) -> LossBounds:
        """Return bounds on the loss of the largest table, for use instead of the loss."""
        by_moments = isinstance(self.loss, SquaredLoss)
        return LossBounds(self.most_rows, self.n_features, self.loss, **self.sizes, by_moments=by_moments)


@dataclass(frozen=True)
class TypicalExcess(SplitCost):
    """`ObjectiveBounds.typical_excess`: `eta` as there, and `radius` the norm of usual parameters."""

    n_features: int
    radius: float
    eta: float

    def __call__(self, deviation: float, added: float) -> float:
        """Bound the expected excess."""
        noise = self.n_features * deviation**2
        shrinkage = (added * self.radius) ** 2
        return (noise + shrinkage) / (2.0 * (2.0 * added + self.eta))


def check_problem(loss: object, constraint: object, penalty: object) -> None:
    """Refuse a wrong kind of loss, constraint or penalty, or a wrong combination."""
    if not isinstance(loss, GeneralisedLinearLoss):
        raise TypeError(f"loss must be a GeneralisedLinearLoss, got {type(loss).__name__}")
    if constraint is not None and not isinstance(constraint, Constraint):
        raise TypeError(f"constraint must be L2Ball, L1Ball, Box or None, got {type(constraint).__name__}")
    if penalty is not None and not isinstance(penalty, ElasticNet | Proximable):
        raise TypeError(
            f"penalty must be Lasso, ElasticNet, Ridge, another Proximable or None, got {type(penalty).__name__}"
        )
    if constraint is not None and penalty is not None and not isinstance(penalty, ElasticNet):
        raise ValueError(
            f"constraint must be None with a {type(penalty).__name__} as penalty: give a penalty that is infinite "
            "outside the set, or use Lasso, ElasticNet or Ridge"
        )


def check_bound(name: str, bound: object) -> float:
    """Return a bound on rows or outcomes as a float; ValueError if an objective of its size cannot be computed."""
    number = check.positive(name, bound)
    if not _SMALLEST_BOUND <= number <= _LARGEST_BOUND:
        raise ValueError(f"{name} must lie between 2**-64 and 2**64, got {number!r}: measure in another unit")
    return number


# For large noise, use strong convexity that needs hardly any of epsilon.
_LEAST_CURVATURE_SHARE = 2.0**-16
# Accuracy requested of the solver: this part of the size of the set.
_LEAST_TOLERANCE = 2.0**-48


def draw_perturbation(own: ObjectiveNoise, dim: int, source: noise.BitSource) -> FloatArray:
    """Draw b, on the finest grid."""
    return draw(own.mechanism, own.scale, np.zeros(dim), source, noise.finest_grid(own.scale))


def perturbation_rounding(own: ObjectiveNoise, dim: int) -> float:
    """Bound the effect of rounding b to its grid on the minimiser."""
    return 0.5 * math.sqrt(dim) * noise.finest_grid(own.scale) / own.strong_convexity


@dataclass(frozen=True)
class ObjectivePerturbation(SingleRelease):
    """Objective perturbation, calibrated."""

    bounds: ObjectiveBounds
    noise_scales: ObjectiveNoise
    #: Tolerance of the solver, for every table and noise.
    tolerance: float
    calibration: Calibration = "sound"
    guaranteed: bool = True

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        bounds: ObjectiveBounds,
        ridge: float | Literal["auto"] = "auto",
        *,
        calibration: Calibration = "sound",
        cost: Callable[[float, float], float] | None = None,
    ) -> Self:
        """Choose noise and strong convexity from public numbers.

        `ridge` is strong convexity beyond the penalty's. The amount used may be larger, as privacy needs some. "auto"
        is the one of least `cost`, a function of the deviation of a coordinate of b and of m (by default
        `bounds.typical_excess`), or the penalty's.
        """
        if (privacy.adjacency == "replace_one") != (bounds.n_rows is not None):
            raise ValueError("n_rows must be given under adjacency='replace_one', and only there")
        requested = 0.0 if ridge == "auto" else check.nonnegative("ridge", ridge)
        # A penalty with strong convexity of its own is a choice too.
        chosen_freely = ridge == "auto" and bounds.penalty_ridge == 0.0
        least = max(requested + bounds.penalty_ridge, bounds.least_convexity)
        changes = bounds.gradient_changes
        if calibration == "paper":
            scales = printed("convex_erm", "printed_objective_perturbation")(
                privacy, gradient=bounds.gradient, curvature=bounds.curvature, strong_convexity=least
            )
        else:
            free: dict[str, Any] = {
                "cost": cost or bounds.typical_excess(0.0),
                "least_curvature_share": _LEAST_CURVATURE_SHARE,
            }
            scales = objective_noise(
                privacy,
                changes=changes,
                curvature=bounds.curvature,
                curvature_fades=bounds.curvature_fades,
                strong_convexity=least,
                dim=bounds.n_features,
                **(free if chosen_freely else {"radius": bounds.radius(_USUAL_PREDICTION)}),
            )
        own = cls(bounds, scales, 0.0, calibration, guaranteed=meets_its_claim(scales, changes))
        tolerance = max(smallest_smooth_tolerance(bounds.constants(), **own._problem()), _LEAST_TOLERANCE * own._size())
        return replace(own, tolerance=tolerance * ROUND_UP)

    @cached_property
    def privacy(self) -> Privacy:
        """The guarantee."""
        return self.noise_scales.privacy

    @property
    def ridge(self) -> float:
        """Strong convexity used beyond the penalty's."""
        return self.noise_scales.strong_convexity - self.bounds.penalty_ridge

    @cached_property
    def finishing_scale(self) -> float:
        """Scale of the L2-Laplace noise added to the computed minimiser."""
        moved = perturbation_rounding(self.noise_scales, self.bounds.n_features)
        return self.noise_scales.finishing_scale((self.tolerance + moved) * ROUND_UP)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by its place in the mechanism."""
        return {"objective": self.noise_scales.scale, "coef": self.finishing_scale}

    def prediction_noise(self, n: int, spread: float, curvature: float = 1.0) -> tuple[float, float]:
        """Return the root mean square of noise in predictions, and the part of the signal they keep, for n people.

        The loss of n rows of mean squared norm ``spread * B**2``, even over directions, has a curvature of
        ``H = n * spread * c/d``, or a share `curvature` of that. Noise b moves the parameters by b/(H + m), m shrinks
        predictions to H/(H + m); the finishing noise comes on top. No parameters leave the constraint, however large
        the noise. The constant of an intercept is as large in every row, in a direction of its own.
        """
        own, bounds = self.noise_scales, self.bounds
        m, d, constant = own.strong_convexity, bounds.n_features, bounds.constant
        row = math.sqrt(max(bounds.row_bound**2 - constant**2, 0.0))
        length, each = math.sqrt(spread) * row, max(d - (constant > 0.0), 1)
        # For a row of length 1.
        steepest = n * curvature * bounds.curvature / bounds.row_bound**2
        total = steepest * length**2 / each + m
        noise, finish = own.coordinate_scale(d), self.finishing_scale * math.sqrt(d + 1.0)
        moved = math.hypot(length * noise / total, constant * noise / (steepest * constant**2 + m))
        noisy = math.hypot(moved, math.hypot(length, constant) * finish)
        return min(noisy, math.sqrt(spread / d) * bounds.prediction), 1.0 - m / total

    def prediction_error(self, n: int, spread: float, signal: float, curvature: float = 1.0) -> float:
        """Root mean squared error from privacy, for predictions of root mean square `signal`."""
        noisy, kept = self.prediction_noise(n, spread, curvature)
        return math.hypot(noisy, (1.0 - kept) * signal)

    def minimise(self, loss: SmoothConvexFunction, perturbation: FloatArray) -> FloatArray:
        """Minimise the objective with noise b in it, within the tolerance; the result is not public."""
        return minimise_smooth(loss, linear=perturbation, tolerance=self.tolerance, **self._problem()).x

    def seeds(self, statistic: SmoothConvexFunction) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.privacy, self.noise_scales, self.bounds.n_features

    def draw(self, statistic: SmoothConvexFunction, source: noise.BitSource) -> Drawn:
        """Minimise with the noise; the statistic is the loss of a table within the bounds. The value is "coef"."""
        own, n = self.noise_scales, self.bounds.n_features
        computed = self.minimise(statistic, draw_perturbation(own, n, source))
        coef = draw("L2-Laplace", self.finishing_scale, computed, source)
        if self.bounds.constraint is not None:
            # Back into the set, which is public.
            coef = self.bounds.constraint.project(coef)
        costs = (
            f"epsilon {own.noise_epsilon:.3g} for noise, {own.curvature_epsilon:.3g} for curvature, "
            f"{own.finishing_epsilon:.3g} to hide a solver's error of {self.tolerance:.3g}"
        )
        return Drawn(f"{own.mechanism} objective", {"coef": coef}, remark=f" ({costs})")

    def _problem(self) -> dict[str, Any]:
        """Return the arguments of the solver beyond loss and noise."""
        own, bounds = self.noise_scales, self.bounds
        if not bounds.confined:
            return {"penalty": bounds.penalty, "ridge": own.strong_convexity, "reach": self._size()}
        region = L2Ball(self._size()) if bounds.constraint is None else bounds.constraint
        weight = bounds.penalty.l1 if isinstance(bounds.penalty, ElasticNet) else 0.0
        # The strong convexity is the whole of it, the penalty's included.
        return {"constraint": region, "penalty": Lasso(weight), "ridge": own.strong_convexity}

    def _size(self) -> float:
        """Largest norm of the parameters."""
        own, n = self.noise_scales, self.bounds.n_features
        if self.bounds.constraint is not None:
            return self.bounds.constraint.norm_bound(n)
        return self.bounds.reach(own.strong_convexity, own.coordinate_scale(n))


@dataclass(frozen=True)
class TableLoss:
    """The loss to sum, and the bounds on rows and outcomes."""

    loss: GeneralisedLinearLoss
    #: Bounds on the L2 norm of a row and on the size of an outcome: longer rows are scaled onto the bound, larger
    #: outcomes clipped, and counts below 0.
    bound_x: float
    bound_y: float = 1.0
    #: Value of a last feature, the same in every row; a power of two, or 0 for none.
    constant: float = 0.0
    #: The public map of rows, whose images are within `bound_x`; None for one that clips them to it.
    row_map: RowMap | None = None
    #: Whether a last column of outcomes has the rows' weights, at most 1.
    is_weighted: bool = False

    def __post_init__(self) -> None:
        check.positive("bound_x", self.bound_x)
        check.positive("bound_y", self.bound_y)

    @property
    def takes_moments(self) -> bool:
        """Whether sums over rows suffice in their place."""
        return isinstance(self.loss, SquaredLoss)

    def sizes(self, n_features: int) -> DeclaredBounds:
        """Bound rows with this many features, and outcomes, as they enter the loss."""
        if self.takes_moments:
            row_bound, outcome_bound = rounded_bound(self.bound_x, n_features), rounded_bound(self.bound_y, 1)
        elif self.row_map is None:
            row_bound, outcome_bound = self.bound_x * (1.0 + NORM_SLACK), self.bound_y
        else:
            row_bound, outcome_bound = self.row_map.largest_norm(n_features), self.bound_y
        if self.takes_moments and self.is_weighted:
            row_bound = rounded_bound(self._longest, n_features + (self.constant > 0.0))
        elif self.constant > 0.0:
            row_bound = math.hypot(row_bound, self.constant) * (1.0 + 2.0**-50)
        return DeclaredBounds(row_bound=row_bound, outcome_bound=outcome_bound)

    @property
    def _longest(self) -> float:
        """Length of the longest row, the constant included, up to rounding."""
        return math.hypot(self.bound_x, self.constant)

    def bounds(
        self, n_parameters: int, constraint: Constraint | None, penalty: Penalty | None, n_rows: int | None
    ) -> ObjectiveBounds:
        """Return the public bounds of an objective with this loss, the constant's parameter among the others."""
        sizes = self.sizes(n_parameters - (self.constant > 0.0))
        return ObjectiveBounds(
            self.loss,
            n_parameters,
            constraint=constraint,
            penalty=penalty,
            n_rows=n_rows,
            constant=self.constant,
            **sizes,
        )

    def of_table(
        self,
        table: io.Table,
        n_threads: int | None = None,
        chosen: Callable[[int], GeneralisedLinearLoss] | None = None,
    ) -> tuple[list[SmoothConvexFunction], int]:
        """Return the loss for every column of outcomes, and the number of rows.

        `chosen` gives the loss of rows for their number, if the number is not known before.
        """
        if self.takes_moments and not self.is_weighted:
            sums, map_x = self.constant > 0.0, self.row_map
            exact = gram(table, bound_x=self.bound_x, bound_y=self.bound_y, map_x=map_x, sums=sums, n_threads=n_threads)
            return [loss_of_moments(exact, self.sizes(exact.n_features), self.constant)], exact.n_rows
        if table.partitions is not None:
            raise TypeError(
                "a table in parts, as of Dask, is summed, which does for loss='squared' and for descent "
                "(method='gradient') alone: other losses are minimised over rows in memory"
            )
        rows, outcomes, weights = self.bounded(*table.whole(), n_threads)
        if self.takes_moments:
            assert weights is not None
            roots = np.sqrt(weights)[:, None]
            exact = gram(
                rows * roots, outcomes * roots, bound_x=self._longest, bound_y=self.bound_y, n_threads=n_threads
            )
            return [loss_of_moments(exact, self.sizes(table.n_features))], exact.n_rows
        own = self if chosen is None else replace(self, loss=chosen(len(rows)))
        sizes, n = own.sizes(table.n_features), len(rows)
        return [loss_of_rows(rows, column, own.loss, sizes, n_threads, weights) for column in outcomes.T], n

    def bounded(
        self, rows: NDArray[Any], outcomes: NDArray[Any], n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return a copy of rows (n, d), clipped and followed by the constant, of outcomes (n, k), and weights (n,)."""
        n_features, weights = rows.shape[1], None
        if self.is_weighted:
            outcomes, weights = outcomes[:, :-1], np.array(outcomes[:, -1], np.float64)
        bounded = np.empty((len(rows), n_features + (self.constant > 0.0)))
        bounded[:, n_features:] = self.constant
        limit, clipped = np.full(1, float(self.bound_y)), np.empty(outcomes.shape)
        least = 0.0 * limit if self.loss.is_of_counts else -limit
        for name, finite in (
            ("X", (self.row_map or RowMap(bound=float(self.bound_x))).into(rows, bounded[:, :n_features], n_threads)),
            ("y", RowMap(least, limit).into(outcomes, clipped, n_threads)),
        ):
            if not finite:
                raise check.not_finite(name)
        return bounded, clipped, weights


def loss_of_rows(
    rows: FloatArray,
    outcomes: FloatArray,
    loss: GeneralisedLinearLoss,
    sizes: DeclaredBounds,
    n_threads: int | None = None,
    weights: FloatArray | None = None,
) -> GeneralisedLinear | CallableLossSum:
    """Return the sum of losses of rows and outcomes within bounds, each times its weight."""
    if len(rows) == 0:
        # A row of zeros adds a constant.
        rows, outcomes, weights = np.zeros((1, rows.shape[1])), np.ones(1), None
    if isinstance(loss, CallableLoss):
        return CallableLossSum(rows, outcomes, loss, **sizes)
    return GeneralisedLinear(rows, outcomes, loss, **sizes, n_threads=n_threads, weights=weights)


def loss_of_moments(
    exact: Gram, sizes: DeclaredBounds, constant: float = 0.0, *, columns: IntArray | None = None
) -> LeastSquares:
    """Return the sum of squared losses of the rows behind exact sums with one outcome, as they were clipped, rounded.

    With a `constant` as last feature (a power of two) column sums are needed; of some `columns` alone.
    """
    if exact.exact_xy is None or exact.n_outcomes != 1:
        raise ValueError(f"gram must have one outcome, got {exact.n_outcomes}")
    chosen: Any = slice(None) if columns is None else columns
    of_rows = exact.exact_xx if columns is None else exact.exact_xx[np.ix_(columns, columns)]
    xx = of_rows.to_float64_pair()
    xy = exact.exact_xy[chosen, 0].to_float64_pair()
    if constant > 0.0:
        assert exact.exact_x_sum is not None
        assert exact.exact_y_sum is not None
        x, y = exact.exact_x_sum[chosen].to_float64_pair(), exact.exact_y_sum.to_float64_pair()
        # Products with the constant are exact, and the number of rows is a double.
        corners = constant**2 * exact.n_rows, 0.0
        xx = _bordered(xx[0], constant * x[0], corners[0]), _bordered(xx[1], constant * x[1], corners[1])
        xy = np.append(xy[0], constant * y[0]), np.append(xy[1], constant * y[1])
    return LeastSquares(xx, xy, n_rows=max(exact.n_rows, 1), **sizes)


def _bordered(matrix: FloatArray, border: FloatArray, corner: float) -> FloatArray:
    """Append a row and the same column to a symmetric matrix."""
    bordered = np.empty((len(border) + 1, len(border) + 1))  # a tenth of the time of np.block
    bordered[:-1, :-1], bordered[-1, :-1], bordered[:-1, -1], bordered[-1, -1] = matrix, border, border, corner
    return bordered
