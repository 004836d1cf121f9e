"""Public numbers of a table and of the objective minimised over it: bounds, and one person's largest effect.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from dpfast import _arguments as check
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.privacy.objective import Changes, SplitCost
from dpfast.solvers import Box, CallableLoss, ElasticNet, GeneralisedLinearLoss, Proximable, SquaredLoss
from dpfast.solvers.certificates import Constraint
from dpfast.solvers.losses import LossBounds
from dpfast.statistics import MOST_ROWS_IF_PRIVATE

Penalty = ElasticNet | Proximable

# Largest ratio of the curvature of all rows to the strong convexity: easy for the solver.
_LARGEST_CONDITION = 2.0**34
# Without a constraint: predictions up to this many times 1 and the bound on outcomes.
_REACH_OF_PREDICTIONS = 2.0**20
# Parameters of usual size make predictions of this many times the bound on outcomes, and a loss has this share of the
# greatest curvature, evenly over directions. They only guide the split.
_USUAL_PREDICTION = 4.0
_USUAL_CURVATURE = 2.0**-3
# Shrinkage is weighted with longer parameters: an intercept, or a mean off the centre, suffers most from it.
_SHRUNK_PREDICTION = 10.0
# Within these limits bounds, squared and times the largest number of rows, are acceptable to the solver.
_SMALLEST_BOUND, _LARGEST_BOUND = 2.0**-64, 2.0**64


class Sizes(TypedDict):
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
            raise ValueError(
                f"constraint must be given with {self.loss!r}, such as dpfast.L2Ball(1.0): without one its gradient "
                "has no bound, so that no noise hides one person in it. A loss of bounded slope, as 'huber', needs none"
            )

    def check_functions(self) -> None:
        """Refuse functions that contradict their bounds; the message has numbers made up from these bounds."""
        if isinstance(self.loss, CallableLoss):
            self.loss.probe(self.outcome_bound, self.prediction)

    @property
    def sizes(self) -> Sizes:
        """The bounds on rows and outcomes."""
        return Sizes(row_bound=self.row_bound, outcome_bound=self.outcome_bound)

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

    @property
    def usual_radius(self) -> float:
        """Norm of parameters of usual size, to balance noise against convexity."""
        return self._radius(_USUAL_PREDICTION)

    def _radius(self, prediction: float) -> float:
        """Norm of parameters with this prediction for the longest row, within the constraint."""
        # Logarithms of rates are of the size of margins.
        unit = 1.0 if self.loss.is_of_counts else self.outcome_bound
        radius = prediction * unit / self.row_bound
        return radius if self.constraint is None else min(radius, self.constraint.norm_bound(self.n_features))

    def expected_excess(self, deviation: float, added: float, convexity: float) -> float:
        """Bound the expected excess of the objective for usual parameters and curvature.

        Let the summed loss and the penalty have the strong convexity eta (at least `convexity`). Noise b with
        coordinates of a `deviation` and (m/2) ||theta||^2 (m is `added`) cost at most (E||b||^2 + m^2 ||theta||^2)/(2
        (2m + eta)). This is Kifer, Smith and Thakurta's Theorem 5, with the constants of dpfast.papers.convex_erm.
        """
        return self.usual_excess(convexity)(deviation, added)

    def usual_excess(self, convexity: float) -> UsualExcess:
        """Return this bound as a function of the first two."""
        rows = 0 if self.n_rows is None else self.n_rows
        curved = convexity + _USUAL_CURVATURE * rows * self.curvature / self.n_features
        return UsualExcess(self.n_features, self._radius(_SHRUNK_PREDICTION), curved)

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
class UsualExcess(SplitCost):
    """`ObjectiveBounds.expected_excess`: eta is `curved`, and `radius` the norm of usual parameters."""

    n_features: int
    radius: float
    curved: float

    def __call__(self, deviation: float, added: float) -> float:
        """Bound the expected excess."""
        noise = self.n_features * deviation**2
        shrinkage = (added * self.radius) ** 2
        return (noise + shrinkage) / (2.0 * (2.0 * added + self.curved))


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
