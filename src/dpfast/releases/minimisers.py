"""The release that objective perturbation makes: the minimiser of a convex objective with noise in it.

    theta = argmin over F of  sum_i l(x_i'theta, y_i) + penalty(theta) + (m/2) ||theta||^2 + b'theta

for rows and outcomes within public bounds, a public convex set F, a convex penalty, and noise b
(dpfast.privacy.objective says how much). One record changes the gradient of the loss by l'(x'theta, y) x, along a line
whatever theta; a replaced one by the difference of two of these, in a plane. Its Hessian changes by l'' x x', or by a
difference of two of these. So L is zeta = max ||x|| |l'|, or 2 zeta, and c = max ||x||^2 l''.

*Where the bounds are needed.* On F alone: the squared loss has them on bounded sets only. The others have a bounded
slope everywhere. Without a constraint, F is a ball so large (`ObjectiveBounds.region`) that its end is met by
chance alone.

*Floating point.* What is minimised is exact: moments of rows on a grid as sums of two doubles, or rows of doubles, with
gradients in twice the precision. The minimiser comes with a tolerance that holds for every table and every b, and b is
rounded to a grid, which moves the minimiser by at most the rounding's length over m. The release adds noise that hides
both. Under add/remove the tolerance may not depend on the number of rows, and is that of the largest tables accepted.

References
----------
Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1 and Theorem 2.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.ledger import Release
from dpfast.privacy import (
    Calibration,
    ObjectiveNoise,
    Privacy,
    UnsoundCalibrationWarning,
    meets_its_claim,
    objective_noise,
)
from dpfast.releases.printed import printed
from dpfast.solvers import (
    Box,
    CallableLoss,
    ElasticNet,
    GeneralisedLinearLoss,
    L1Ball,
    L2Ball,
    Lasso,
    Proximable,
    SquaredLoss,
)
from dpfast.solvers.loss_sums import CallableLossSum, GeneralisedLinear, LeastSquares, LossBounds
from dpfast.solvers.smooth_convex import SmoothConvexFunction, minimise_smooth, smallest_smooth_tolerance
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap

Constraint = L2Ball | L1Ball | Box
Penalty = ElasticNet | Proximable

# Relative: more than the rounding of the few operations that it covers.
_ROUND_UP = 1.0 + 2.0**-45
# Most rows of a table whose number of rows is private.
MOST_ROWS = 2**30
# The curvature of all rows together is at most so many times the strong convexity: what the solver takes with ease.
_LARGEST_CONDITION = 2.0**34
# Without a constraint: predictions up to so many times 1 and the bound on outcomes.
_REACH_OF_PREDICTIONS = 2.0**20
# Parameters of usual size make predictions of this many times the bound on outcomes, and a loss has this share of the
# greatest curvature, evenly over directions. They only guide the split.
_USUAL_PREDICTION = 4.0
_USUAL_CURVATURE = 2.0**-3
# What shrinkage costs is weighed with longer parameters: an intercept, or a mean off the centre, suffers most from it.
_SHRUNK_PREDICTION = 10.0
# Where noise is large, strong convexity is wanted that asks for hardly any of epsilon.
_LEAST_CURVATURE_SHARE = 2.0**-16
# The solver is asked for no better than this part of the size of the set.
_LEAST_TOLERANCE = 2.0**-48


@dataclass(frozen=True)
class ObjectiveBounds:
    """What is public of a table and of what is minimised over it.

    Parameters
    ----------
    loss : GeneralisedLinearLoss
        l.
    n_features : int
        Number of parameters.
    row_bound, outcome_bound : float
        Largest L2 norm of a row and largest size of an outcome, as they enter the loss.
    constraint : L2Ball, L1Ball, Box or None
        F.
    penalty : ElasticNet, Lasso, Ridge, another Proximable or None
        Another Proximable goes with no constraint, and not with the squared loss.
    n_rows : int or None
        Number of rows; None where it is private.
    """

    loss: GeneralisedLinearLoss
    n_features: int
    row_bound: float
    outcome_bound: float
    constraint: Constraint | None = None
    penalty: Penalty | None = None
    n_rows: int | None = None

    def __post_init__(self) -> None:
        check_problem(self.loss, self.constraint, self.penalty)
        if self.n_rows is not None:
            check.positive_integer("n_rows", self.n_rows)
        if isinstance(self.constraint, Box):
            self.constraint.bounds(self.n_features)
        if isinstance(self.loss, CallableLoss) and self.n_rows is None:
            raise ValueError(
                "adjacency must be 'replace_one' with a loss given by functions: its rounding errors are bounded for a "
                "known number of rows only"
            )
        if not math.isfinite(self.gradient):
            raise ValueError(
                f"constraint must be given with {self.loss!r}: without one its gradient has no bound, so that no "
                "noise hides one person in it"
            )

    @property
    def confined(self) -> bool:
        """Whether the minimiser is sought in a set, and not wherever a penalty of the caller's lets it be."""
        return self.penalty is None or isinstance(self.penalty, ElasticNet)

    @property
    def gradient(self) -> float:
        """Zeta: most that a record adds to the gradient in the L2 norm; infinite if nothing bounds it."""
        reach = math.inf if self.constraint is None else self.row_bound * self.constraint.norm_bound(self.n_features)
        return self.row_bound * self.loss.derivative_bound(reach, self.outcome_bound) * _ROUND_UP

    @property
    def curvature(self) -> float:
        """Most that a record adds to an eigenvalue of the Hessian."""
        return self.row_bound**2 * self.loss.second_derivative_bound() * _ROUND_UP

    @property
    def penalty_ridge(self) -> float:
        """Strong convexity of the penalty."""
        return self.penalty.l2 if isinstance(self.penalty, ElasticNet) else 0.0

    @property
    def most_rows(self) -> int:
        """Number of rows that a table has at most."""
        return MOST_ROWS if self.n_rows is None else self.n_rows

    @property
    def least_convexity(self) -> float:
        """Least m that the solver is asked to work with."""
        return self.most_rows * self.curvature / _LARGEST_CONDITION

    @property
    def usual_radius(self) -> float:
        """Norm of parameters of usual size, for weighing noise against convexity."""
        return self._radius(_USUAL_PREDICTION)

    def _radius(self, prediction: float) -> float:
        """Norm of parameters that predict so much of the longest row, within the constraint."""
        radius = prediction * self.outcome_bound / self.row_bound
        return radius if self.constraint is None else min(radius, self.constraint.norm_bound(self.n_features))

    def expected_excess(self, deviation: float, added: float, convexity: float) -> float:
        """Bound the expected excess of the objective where parameters and curvature are usual.

        Over a summed loss and penalty of strong convexity eta, noise b and (m/2) ||theta||^2 cost at most
        (E||b||^2 + m^2 ||theta||^2)/(2 (2m + eta)): Kifer, Smith and Thakurta's Theorem 5, with the constants of
        dpfast.papers.convex_erm.

        Parameters
        ----------
        deviation : float
            Standard deviation of a coordinate of b.
        added : float
            m.
        convexity : float
            What eta is at least.

        Returns
        -------
        float
        """
        rows = 0 if self.n_rows is None else self.n_rows
        curved = convexity + _USUAL_CURVATURE * rows * self.curvature / self.n_features
        noise = self.n_features * deviation**2
        shrinkage = (added * self._radius(_SHRUNK_PREDICTION)) ** 2
        return (noise + shrinkage) / (2.0 * (2.0 * added + curved))

    def reach(self, convexity: float, deviation: float) -> float:
        """Bound the norm of the minimiser where there is no constraint, for all but absurdly long noise.

        The minimiser without the loss and the noise is that of the penalty; strong convexity bounds how far they move
        it.
        """
        moved = (self.most_rows * self.gradient + 64.0 * math.sqrt(self.n_features) * deviation) / convexity
        if self.confined:
            return min(moved, _REACH_OF_PREDICTIONS * (1.0 + self.outcome_bound) / self.row_bound)
        assert isinstance(self.penalty, Proximable)
        origin = np.zeros(self.n_features)
        start = self.penalty.prox(origin, 1.0 / convexity)
        return float(np.linalg.norm(start) + self.penalty.prox_error(0.0, 1.0 / convexity) + moved) * _ROUND_UP

    def constants(self) -> LossBounds:
        """Return bounds on the loss of the largest table, in the place of the loss itself."""
        return LossBounds(
            self.most_rows,
            self.n_features,
            self.loss,
            row_bound=self.row_bound,
            outcome_bound=self.outcome_bound,
            by_moments=isinstance(self.loss, SquaredLoss),
        )


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Objective perturbation, calibrated.

    Parameters
    ----------
    bounds : ObjectiveBounds
        What is public.
    noise_scales : ObjectiveNoise
        How much noise, and what it promises.
    tolerance : float
        The solver's, for every table and noise.
    calibration : {"sound", "paper"}
        Whether the noise is the proved one or the printed one.
    guaranteed : bool
        Whether it gives what is claimed.
    """

    bounds: ObjectiveBounds
    noise_scales: ObjectiveNoise
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
    ) -> Self:
        """Choose noise and strong convexity from public numbers.

        Parameters
        ----------
        privacy : Privacy
            The guarantee of the released minimiser, for a finite epsilon.
        bounds : ObjectiveBounds
            What is public; its number of rows must be known under "replace_one", and not under "add_remove".
        ridge : float or "auto", default "auto"
            Strong convexity wanted beyond the penalty's; what is used may be more, as privacy asks for some. "auto" is
            the one of which least is expected to be lost (`ObjectiveBounds.expected_excess`), or the penalty's.
        calibration : {"sound", "paper"}, default "sound"
            Exact, or as printed.

        Returns
        -------
        ObjectivePerturbation

        Raises
        ------
        ValueError, TypeError
            If an argument is out of its range.
        """
        if (privacy.adjacency == "replace_one") != (bounds.n_rows is not None):
            raise ValueError("n_rows must be given under adjacency='replace_one', and only there")
        asked = 0.0 if ridge == "auto" else check.nonnegative("ridge", ridge)
        # A penalty with strong convexity of its own is a choice too.
        chosen_freely = ridge == "auto" and bounds.penalty_ridge == 0.0
        least = max(asked + bounds.penalty_ridge, bounds.least_convexity)
        replaced = privacy.adjacency == "replace_one"
        gradient = bounds.gradient * (2.0 if replaced else 1.0)
        # In one dimension there is but one line.
        geometry: Literal["line", "plane"] = "plane" if replaced and bounds.n_features > 1 else "line"
        if calibration == "paper":
            scales = printed("convex_erm", "printed_objective_perturbation")(
                privacy, gradient=bounds.gradient, curvature=bounds.curvature, strong_convexity=least
            )
        else:
            free: dict[str, Any] = {
                "cost": lambda deviation, convexity: bounds.expected_excess(deviation, convexity, 0.0),
                "least_curvature_share": _LEAST_CURVATURE_SHARE,
            }
            scales = objective_noise(
                privacy,
                gradient=gradient,
                curvature=bounds.curvature,
                strong_convexity=least,
                geometry=geometry,
                dim=bounds.n_features,
                **(free if chosen_freely else {"radius": bounds.usual_radius}),
            )
        own = cls(bounds, scales, 0.0, calibration, meets_its_claim(scales, gradient=gradient, geometry=geometry))
        tolerance = max(smallest_smooth_tolerance(bounds.constants(), **own._problem()), _LEAST_TOLERANCE * own._size())
        return replace(own, tolerance=tolerance * _ROUND_UP)

    @property
    def privacy(self) -> Privacy:
        """What is promised."""
        return self.noise_scales.privacy

    @property
    def ridge(self) -> float:
        """Strong convexity used beyond the penalty's."""
        return self.noise_scales.strong_convexity - self.bounds.penalty_ridge

    @property
    def finishing_scale(self) -> float:
        """Scale of the L2-Laplace noise that the computed minimiser is released with."""
        rounded = 0.5 * math.sqrt(self.bounds.n_features) * noise.finest_grid(self.noise_scales.scale)
        moved = rounded / self.noise_scales.strong_convexity
        return self.noise_scales.finishing_scale((self.tolerance + moved) * _ROUND_UP)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {"objective": self.noise_scales.scale, "coef": self.finishing_scale}

    def minimise(self, loss: SmoothConvexFunction, perturbation: FloatArray) -> FloatArray:
        """Minimise the objective with noise b in it; the result is not public.

        Parameters
        ----------
        loss : SmoothConvexFunction
            Of a table within the bounds.
        perturbation : ndarray of shape (n_features,)
            b.

        Returns
        -------
        ndarray of shape (n_features,)
            Within the tolerance of the exact minimiser.
        """
        return minimise_smooth(loss, linear=perturbation, tolerance=self.tolerance, **self._problem()).x

    def release(self, loss: SmoothConvexFunction, source: noise.BitSource, name: str) -> Release:
        """Draw the noise: the only place where a table turns into something public.

        Parameters
        ----------
        loss : SmoothConvexFunction
            Of a table within the bounds: `loss_of_rows` or `loss_of_moments`.
        source : BitSource
            Where the bits come from.
        name : str
            What the release is called in a ledger's report.

        Returns
        -------
        Release
            Its value is "coef".
        """
        if not self.guaranteed:
            warnings.warn(
                f"the printed calibration does not give {self.privacy}: its noise is too small. "
                "Use calibration='sound' for anything but comparison.",
                UnsoundCalibrationWarning,
                stacklevel=2,
            )
        source = source.bound(name, self.privacy, self.noise_scales, self.bounds.n_features)
        own, n = self.noise_scales, self.bounds.n_features
        grid = noise.finest_grid(own.scale)
        if own.mechanism == "Gaussian":
            perturbation = noise.gaussian(own.scale, n, source, grid=grid)
        else:
            perturbation = noise.l2_laplace(own.scale, n, source, grid=grid)
        coef = noise.l2_laplace(self.finishing_scale, n, source, center=self.minimise(loss, perturbation))
        if self.bounds.constraint is not None:
            # Back into the set, which is public.
            coef = self.bounds.constraint.project(coef)
        costs = (
            f"epsilon {own.noise_epsilon:.3g} for noise, {own.curvature_epsilon:.3g} for curvature, "
            f"{own.finishing_epsilon:.3g} to hide a solver's error of {self.tolerance:.3g}"
        )
        return Release(
            f"{name} ({costs})",
            f"{own.mechanism} objective",
            self.privacy,
            {"coef": coef},
            self.scales,
            calibration=self.calibration,
            guaranteed=self.guaranteed,
            reproducible=source.reproducible,
        )

    def _problem(self) -> dict[str, Any]:
        """Return what the solver is told beyond loss and noise."""
        own, bounds = self.noise_scales, self.bounds
        if not bounds.confined:
            return {"penalty": bounds.penalty, "ridge": own.strong_convexity, "reach": self._size()}
        region = L2Ball(self._size()) if bounds.constraint is None else bounds.constraint
        weight = bounds.penalty.l1 if isinstance(bounds.penalty, ElasticNet) else 0.0
        # The strong convexity is all of it, the penalty's included.
        return {"constraint": region, "penalty": Lasso(weight), "ridge": own.strong_convexity}

    def _size(self) -> float:
        """Largest norm of the parameters."""
        own, n = self.noise_scales, self.bounds.n_features
        if self.bounds.constraint is not None:
            return self.bounds.constraint.norm_bound(n)
        return self.bounds.reach(own.strong_convexity, own.coordinate_scale(n))


def check_problem(loss: object, constraint: object, penalty: object) -> None:
    """Refuse what is no loss, constraint or penalty, or does not go together.

    Parameters
    ----------
    loss, constraint, penalty
        As in `ObjectiveBounds`.
    """
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


def loss_of_moments(exact: Gram, constant: float = 0.0) -> LeastSquares:
    """Return the sum of squared losses of the rows behind exact sums; not public.

    Parameters
    ----------
    exact : Gram
        With one outcome, and with column sums where there is a constant.
    constant : float, default 0.0
        Value of a last feature, the same in every row; a power of two, or 0 for none.

    Returns
    -------
    LeastSquares
        Of the rows as they were clipped and rounded.
    """
    if exact.exact_xy is None or exact.n_outcomes != 1:
        raise ValueError(f"gram must have one outcome, got {exact.n_outcomes}")
    xx, xy = exact.exact_xx.to_float64_pair(), exact.exact_xy[:, 0].to_float64_pair()
    if constant > 0.0:
        assert exact.exact_x_sum is not None
        assert exact.exact_y_sum is not None
        x, y = exact.exact_x_sum.to_float64_pair(), exact.exact_y_sum.to_float64_pair()
        # Products with the constant are exact, and the number of rows is a double.
        corners = constant**2 * exact.n_rows, 0.0
        xx = _bordered(xx[0], constant * x[0], corners[0]), _bordered(xx[1], constant * x[1], corners[1])
        xy = np.append(xy[0], constant * y[0]), np.append(xy[1], constant * y[1])
    return LeastSquares(xx, xy, n_rows=max(exact.n_rows, 1), **moment_bounds(exact, constant))


def moment_bounds(exact: Gram, constant: float = 0.0) -> dict[str, float]:
    """Return the bounds on rounded rows and outcomes behind exact sums, as `ObjectiveBounds` has them.

    Parameters
    ----------
    exact, constant
        As for `loss_of_moments`.

    Returns
    -------
    dict of str to float
        "row_bound" and "outcome_bound".
    """
    assert exact.bound_y is not None
    row_bound = rounded_bound(exact.bound_x, exact.n_features)
    return {
        "row_bound": with_constant(row_bound, constant),
        "outcome_bound": rounded_bound(exact.bound_y, exact.n_outcomes),
    }


def with_constant(row_bound: float, constant: float) -> float:
    """Return the bound on a row with a constant appended, rounded up; the row's own if the constant is 0."""
    return math.hypot(row_bound, constant) * (1.0 + 2.0**-50) if constant > 0.0 else row_bound


def loss_of_rows(
    rows: FloatArray,
    outcomes: FloatArray,
    loss: GeneralisedLinearLoss,
    *,
    row_bound: float,
    outcome_bound: float,
    n_threads: int | None = None,
) -> GeneralisedLinear | CallableLossSum:
    """Return the sum of losses of rows; not public.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Within `row_bound`: `bounded_rows` sees to it.
    outcomes : ndarray of shape (n_rows,)
        Within `outcome_bound`; -1 or 1 for classification.
    loss : GeneralisedLinearLoss
    row_bound, outcome_bound : float
        As in `ObjectiveBounds`.
    n_threads : int, optional
        Results do not depend on it.

    Returns
    -------
    GeneralisedLinear or CallableLossSum
    """
    if len(rows) == 0:
        # A row of zeros adds a constant.
        rows, outcomes = np.zeros((1, rows.shape[1])), np.ones(1)
    if isinstance(loss, CallableLoss):
        return CallableLossSum(rows, outcomes, loss, row_bound=row_bound, outcome_bound=outcome_bound)
    return GeneralisedLinear(
        rows, outcomes, loss, row_bound=row_bound, outcome_bound=outcome_bound, n_threads=n_threads
    )


@quiet
def objective_perturbation(
    X: Gram | ArrayLike,
    y: ArrayLike | None = None,
    *,
    loss: GeneralisedLinearLoss,
    privacy: Privacy,
    bound_x: float | None = None,
    bound_y: float = 1.0,
    constraint: Constraint | None = None,
    penalty: Penalty | None = None,
    ridge: float | Literal["auto"] = "auto",
    calibration: Calibration = "sound",
    source: noise.BitSource | None = None,
    n_threads: int | None = None,
    name: str = "objective perturbation",
) -> Release:
    """Release the minimiser of a sum of generalised linear losses, by noise in the objective.

    Privacy: the release is (epsilon, delta)-differentially private under the adjacency of `privacy`; whoever calls it
    sees to it that it is paid for (`Ledger.reserve`).

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features), or Gram
        Rows; longer ones than `bound_x` are scaled onto it. For the squared loss the data owner's exact sums will do,
        with one outcome.
    y : array_like of shape (n_rows,)
        Outcomes, clipped to `bound_y`; -1 or 1 for classification.
    loss : GeneralisedLinearLoss
        ``SquaredLoss``, ``SmoothedHuber``, ``LogisticLoss`` or ``SmoothedHinge`` of dpfast.solvers, or a
        ``CallableLoss`` with bounds on its derivatives, under "replace_one".
    privacy : Privacy
        Finite epsilon. Gaussian noise where its delta is above 0, else L2-Laplace noise.
    bound_x, bound_y : float
        L2 norm of a row and size of an outcome, at most. A Gram has its own.
    constraint : L2Ball, L1Ball or Box, optional
        The set of parameters allowed. The squared loss needs one: without, its gradient has no bound.
    penalty : Lasso, ElasticNet, Ridge or another Proximable, optional
        Added to the summed loss.
    ridge : float or "auto", default "auto"
        (ridge/2) ||theta||^2 is added too, or more where less noise is worth it.
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed noise, which is too little under "replace_one".
    source : BitSource, optional
        Where the bits come from; the operating system by default.
    n_threads : int, optional
        The result does not depend on it.
    name : str
        What the release is called in a ledger's report.

    Returns
    -------
    Release
        With the value "coef", of shape (n_features,).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind; nothing has been drawn then.

    Warns
    -----
    UnsoundCalibrationWarning
        Where the printed noise misses its claim.

    References
    ----------
    Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import Privacy
    >>> from dpfast.releases.minimisers import objective_perturbation
    >>> from dpfast.noise import SeededSource
    >>> from dpfast.solvers import Box, SquaredLoss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(100_000, 2))
    >>> release = objective_perturbation(
    ...     X,
    ...     X @ [0.5, -1.5],
    ...     loss=SquaredLoss(),
    ...     privacy=Privacy(1.0, 1e-6),
    ...     bound_x=1.0,
    ...     constraint=Box(1.0),
    ...     source=SeededSource(0),
    ... )
    >>> release.values["coef"].round(1)
    array([ 0.5, -1. ])
    """
    check_problem(loss, constraint, penalty)
    exact = X if isinstance(X, Gram) else None
    if exact is not None and (not isinstance(loss, SquaredLoss) or y is not None or bound_x is not None):
        raise ValueError("a Gram goes with SquaredLoss(), and has outcomes and bounds of its own")
    if exact is None and (bound_x is None or y is None):
        raise ValueError("y and bound_x must be given with rows")
    if exact is None and isinstance(loss, SquaredLoss):
        assert bound_x is not None
        exact = gram(np.asarray(X), np.asarray(y), bound_x=bound_x, bound_y=bound_y, n_threads=n_threads)
    function: LeastSquares | GeneralisedLinear | CallableLossSum
    if exact is not None:
        n_rows, n_features, sizes = exact.n_rows, exact.n_features, moment_bounds(exact)
        function = loss_of_moments(exact)
    else:
        assert bound_x is not None
        rows, outcomes = bounded_rows(np.asarray(X), np.asarray(y), bound_x, bound_y, n_threads=n_threads)
        (n_rows, n_features), sizes = rows.shape, row_bounds(bound_x, bound_y)
        function = loss_of_rows(rows, outcomes, loss, **sizes, n_threads=n_threads)
    bounds = ObjectiveBounds(
        loss, n_features, constraint=constraint, penalty=penalty, n_rows=public_rows(n_rows, privacy), **sizes
    )
    chosen = ObjectivePerturbation.calibrate(privacy, bounds, ridge, calibration=calibration)
    return chosen.release(function, noise.SecureSource() if source is None else source, name)


def row_bounds(bound_x: float, bound_y: float, constant: float = 0.0) -> dict[str, float]:
    """Return the bounds that `bounded_rows` holds rows and outcomes to, as `ObjectiveBounds` has them.

    Parameters
    ----------
    bound_x, bound_y, constant : float
        As for `bounded_rows`.

    Returns
    -------
    dict of str to float
        "row_bound" and "outcome_bound".
    """
    row_bound = check.positive("bound_x", bound_x) * (1.0 + NORM_SLACK)
    return {"row_bound": with_constant(row_bound, constant), "outcome_bound": check.positive("bound_y", bound_y)}


def bounded_rows(
    rows: NDArray[Any],
    outcomes: NDArray[Any],
    bound_x: float,
    bound_y: float,
    constant: float = 0.0,
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return rows scaled onto their bound where they are longer, and outcomes clipped to theirs.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    outcomes : ndarray of shape (n_rows,)
    bound_x, bound_y : float
        L2 norm of a row and size of an outcome, at most.
    constant : float, default 0.0
        Value of a last feature that is appended; 0 for none.
    n_threads : int, optional
        The result does not depend on it.

    Returns
    -------
    rows : ndarray of shape (n_rows, n_features), one more with a constant
    outcomes : ndarray of shape (n_rows,)

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, or an entry is not a finite number.
    """
    if rows.ndim != 2 or outcomes.shape != rows.shape[:1] or rows.shape[1] == 0:
        raise ValueError("X must have rows and columns, and y an entry for each row")
    if rows.dtype.kind not in "biuf" or outcomes.dtype.kind not in "biuf":
        raise TypeError(f"X and y must hold real numbers, got dtypes {rows.dtype} and {outcomes.dtype}")
    bound_x, n_features = check.positive("bound_x", bound_x), rows.shape[1]
    bounded = np.empty((len(rows), n_features + (constant > 0.0)))
    bounded[:, n_features:] = constant
    if not RowMap(bound=bound_x).into(rows, bounded[:, :n_features], n_threads):
        raise ValueError("X must be finite: it holds NaN or infinity")
    limit, clipped = np.full(1, bound_y), np.empty((len(outcomes), 1))
    if not RowMap(-limit, limit).into(outcomes[:, np.newaxis], clipped, n_threads):
        raise ValueError("y must be finite: it holds NaN or infinity")
    return bounded, clipped[:, 0]


def public_rows(n_rows: int, privacy: Privacy) -> int | None:
    """Return the number of rows where it is public; None where it is private, for any table that is small enough.

    Parameters
    ----------
    n_rows : int
        Of the table.
    privacy : Privacy
        Whose adjacency decides.

    Returns
    -------
    int or None
    """
    if n_rows > MOST_ROWS:
        raise ValueError(f"X must have at most {MOST_ROWS:,} rows for objective perturbation")
    if privacy.adjacency != "replace_one":
        return None
    if n_rows == 0:
        raise ValueError("X has no rows: at least one is needed")
    return n_rows


def _bordered(matrix: FloatArray, border: FloatArray, corner: float) -> FloatArray:
    """Append a row and the same column to a symmetric matrix."""
    return np.block([[matrix, border[:, np.newaxis]], [border[np.newaxis, :], np.full((1, 1), corner)]])
