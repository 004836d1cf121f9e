"""Private linear regression, by noise in the objective, within a public set, or in the steps of a descent.

`ScoreDescent` makes the staged mechanism of a descent one of the family's, with the error to expect of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_X_y

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.convex_erm.estimator import PerturbedObjective
from dpfast.convex_erm.mechanism import (
    R2,
    SPREAD,
    Linear,
    PlanRequest,
    StepsOf,
    expected_r2,
    relative_error,
    typical_curvature,
)
from dpfast.estimator.base import Expected, Fitted, Solved, Summed, explains_parameters
from dpfast.estimator.bounded import Measured, columns_of, open_with_outcome, outcomes_of
from dpfast.estimator.plan import Plan
from dpfast.io.blocks import is_read_once
from dpfast.privacy import Privacy, Unit
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.releases.people import People
from dpfast.releases.score_regression import ScoreLoss, ScoreRegression
from dpfast.releases.size_counts import FEW, OF_COUNTS, Lowered, NoisySizes
from dpfast.releases.staged_fit import Regression
from dpfast.releases.staged_regression import Public
from dpfast.solvers import (
    CallableLoss,
    GeneralisedLinearLoss,
    PoissonLoss,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)
from dpfast.statistics.rows import RowMap

# Predictions, in bounds on outcomes, that convexity is chosen for: few people's noise is worse than shorter parameters.
_PREDICTION = 2.0


@explains_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class ObjectivePerturbationRegressor(RegressorMixin, PerturbedObjective):
    """Differentially private linear regression by objective perturbation, or by noisy descent.

    By objective perturbation, the released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2
    plus a random linear term, over a public convex set. By descent, noisy sums of whitened rows times slopes of the
    loss are released step after step.

    Privacy: the one release of the parameters, or those of all steps, and sums for standard errors, are together
    (epsilon, delta)-differentially private under `adjacency`.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    bound_x : float or "private", optional
        L2 norm of a row of X, at most; longer rows are scaled onto it. Leave it out if `box_x` bounds the rows.
        "private" finds it for a tenth of the budget, from noisy counts of people by the size of their rows; about 1% of
        the rows are beyond it.
    box_x : mapping or tuple of (low, high), optional
        Declared limits of every feature, as for `MultiOutcomeRidge`. Rows are measured from the middle of their limits
        (without an intercept from 0) in units of half their widths, so the fit does not depend on the units of the
        features. Constraint, penalty and ridge are for coefficients in these units; attributes and tables are in those
        of X.
    bound_y : float or "private"
        Size of an outcome, at most, in its own units; larger ones are clipped to it, and counts below 0 to 0. For the
        losses "huber", "quantile" and "poisson", whose noise and smoothing are in proportion to it, the fit finds a
        smaller one within the budget. "private" finds it for a tenth of the budget. A loss of dpfast.solvers keeps the
        declared one.
    loss : {"squared", "huber", "quantile", "poisson"} or GeneralisedLinearLoss, default "squared"
        What is minimised. "squared": (y - x'theta)^2/2, for means. "huber": Huber's, for fits that outliers hardly
        move; its threshold is a quarter of `bound_y`. "quantile": absolute residuals, for medians, smoothed within an
        eighth of `bound_y`. "poisson": for counts from 0 to `bound_y`; `predict` returns their mean. The last three
        have a bounded slope, so they need no constraint, and mostly less noise. ``SmoothedHuber``, ``SmoothedQuantile``
        (any quantile) and ``PoissonLoss`` of dpfast.solvers take other thresholds, widths and limits, in units of y;
        ``CallableLoss`` takes any convex loss.
    constraint : L2Ball, L1Ball or Box, optional
        The public set that the coefficients are in; by default all. The squared loss needs one for a finite epsilon:
        without, its gradient has no bound.
    penalty : Lasso, ElasticNet, Ridge or another Proximable, optional
        Added to the summed loss (not divided by the number of rows); by default none. Another Proximable takes no
        constraint.
    ridge : float or "auto", default "auto"
        (ridge/2) ||theta||^2 is added to the summed loss (not divided by the number of rows), or more if that lowers
        the error through less noise. "auto" adds only as much as lowers the error.
    fit_intercept : bool, default True
        Whether to fit an intercept. By descent rows and outcomes are centred first, within the budget. Otherwise it is
        the coefficient of a constant feature, a quarter of `bound_x`, or with a constraint large enough for intercepts
        up to `bound_y`: it lengthens rows, and the constraint and the penalty include it.
    method : {"auto", "objective", "gradient"}, default "auto"
        How privacy is achieved: "objective" adds noise to the objective once (objective perturbation), "gradient" to
        each step of a descent. Descent needs `delta` above 0, a Huber or quantile loss or, with an intercept, one of
        counts, ``ridge="auto"`` and no constraint or penalty. It reads rows again in every step, and outlying rows have
        less weight. "auto" is descent wherever possible: its error was lower on tables of all kinds.
    inference : bool, default False
        Whether `summary` has standard errors, limits and p-values. They cost two fifths of the budget (of mu squared by
        descent, of epsilon and delta otherwise), for noisy sums of curvatures and scores. The rest pays for the
        coefficients that predict: their error grows by about a third by descent, by two thirds otherwise. Refused with
        a ``CallableLoss`` and with ``calibration="paper"``.
    max_weight : float, optional
        Goes with `sample_weight`: the largest weight, known without the data; larger ones are clipped to it. The
        effective weight of a row's loss is weight / max_weight, at most 1. `ridge` and `penalty` are added to the sum
        of weighted losses.
    calibration : {"sound", "paper"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" has the printed noise [1]_: valid under "add_remove",
        mostly too little under "replace_one", with a warning where it is.
    adjacency, random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept; 0 where none is fitted.
    ridge_ : float
        The ridge used; 0 by descent.
    method_ : str
        "objective" or "gradient": the method used.
    estimate_ : ndarray of shape (n_features,) or (1 + n_features,)
        With ``inference=True``: the figures of `summary`, the intercept first, if any. Coefficients that minimise the
        expected loss; ridge, penalty, constraint and shrinkage are undone by steps of Newton's. NaN where noise hides
        them.
    covariance_ : ndarray of shape (n, n), n the size of `estimate_`
        With ``inference=True``: of the estimates' errors, from sampling and noise.
    bound_x_, bound_y_ : float
        The bounds found, if they are "private", or smaller than declared. For counts without noise, the largest or the
        declared bound.
    caution_ : str
        With a bound of rows that is found: why columns need limits of their own, as `fit` warned, or empty.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    .. [1] Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
       regression. COLT. Algorithm 1.
    .. [2] Bassily, R., Smith, A., Thakurta, A. (2014). Private empirical risk minimization: efficient algorithms and
       tight error bounds. FOCS. Descent by noisy sums.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import ObjectivePerturbationRegressor
    >>> from dpfast.solvers import L2Ball
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 3))
    >>> y = X @ [0.5, 0.0, -1.0]
    >>> model = ObjectivePerturbationRegressor(
    ...     1.0, 1e-6, bound_x=1.0, bound_y=1.0, constraint=L2Ball(2.0), random_state=0
    ... ).fit(X, y)
    >>> model.coef_.round(1) + 0.0
    array([ 0.5,  0. , -1. ])
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    bound_y: float | Literal["private"]
    loss: Literal["squared", "huber", "quantile", "poisson"] | GeneralisedLinearLoss = "squared"

    intercept_: float = field(init=False)
    ridge_: float = field(init=False)
    method_: str = field(init=False)

    _DESCENT_TAKES: ClassVar[str] = "a loss of Huber's, of a quantile, or of counts with an intercept"
    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {
        "squared": SquaredLoss(),
        # Measured at epsilon .5 and 2, 1,000 and 10,000 rows, normal and heavy-tailed residuals: a quarter of the
        # outcomes' bound has the least error, or nearly, of thresholds from 1/16 to 1 of it.
        "huber": SmoothedHuber(0.25),
        "quantile": SmoothedQuantile(0.5, 0.125),
        "poisson": PoissonLoss(1.0),
    }

    @property
    def _outcome_bound(self) -> float:
        return cast("float", self.bound_y)

    @suppress_float_warnings
    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit from rows: arrays, data frames, Arrow or Dask tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row. Squared losses are summed in one pass, also over `dpfast.io.Partitions` with the outcomes
            in them. Descent reads partitions in every step. For other losses the rows are held in memory.
        y : table of shape (n_rows,) or (n_rows, 1)
            Their outcomes, in the same order.
        groups : array of shape (n_rows,), optional
            The owner of each row, if people may own several: the person is then the unit of privacy. It needs descent,
            and no `inference`. Each person's slopes are summed and clipped as one.
        max_rows : int, optional
            Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
        sample_weight : array of shape (n_rows,), optional
            Weight of each row's loss, as private as the row; goes with `max_weight`. Rows are then held in memory. By
            descent weights are rounded to thousandths of `max_weight`, the sum of the weights is released with noise,
            and rows take five to ten times the time and the memory. Not with a ``CallableLoss``.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """

        def columns() -> dict[str, Any]:
            return columns_of(X) | outcomes_of(X, y)

        reads_once = self._in_order()._may_be_lower is not None and (is_read_once(X) or is_read_once(y))
        people: dict[str, Any] = {"groups": groups, "max_rows": max_rows, "columns": columns}
        return self._fit_weighted(X, y, sample_weight, opened=self._held if reads_once else None, **people)

    @suppress_float_warnings
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows: ``X @ coef_ + intercept_``, or the mean count that has this logarithm.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by what was released.

        Returns
        -------
        ndarray of shape (n_rows,)
            With a loss of counts the exponential function of the linear one, flattened where `PoissonLoss` is: at most
            its largest rate.
        """
        linear = self._linear(X)
        mean = self._with({"bound_y": getattr(self, "bound_y_", self.bound_y)})._resolved_loss.mean(linear)
        return self._presented_outcomes(mean, X)

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.1,
        spread: float = SPREAD,
        score: float = R2,
        max_rows: int | None = None,
        **parameters: Any,
    ) -> Plan:
        """Say what error privacy will add, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        n_features : int
            Width of X.
        target : float, default 0.1
            Error wanted, as a fraction of `bound_y`.
        spread : float, default 0.25
            Assumed mean squared norm of the rows as a fraction of their squared bound, even over directions; that of
            outcomes too, for the score.
        score : float, default 0.5
            Assumed R^2 without privacy.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, bound_x, bound_y, ...

        Returns
        -------
        Plan
            Expected error of a prediction, from noise and from shrinkage, the number of people needed, and the R^2 to
            expect.

        Examples
        --------
        >>> from dpfast import ObjectivePerturbationRegressor
        >>> from dpfast.solvers import L2Ball
        >>> plan = ObjectivePerturbationRegressor.plan(
        ...     100_000, 10, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0, constraint=L2Ball(1.0)
        ... )
        >>> plan.expected_error < 0.1
        True
        """
        return cls._planned(
            PlanRequest(n, n_features, target, spread, score, "the outcomes' bound", max_rows), parameters
        )

    @property
    def _may_be_lower(self) -> Lowered | None:
        is_sound = check.choice("calibration", self.calibration, ("sound", "paper")) == "sound"
        is_named = isinstance(self.loss, str) and self.loss in ("huber", "quantile", "poisson")
        if not (is_sound and is_named) or self._private_bounds:
            return None
        bound = check.positive("bound_y", self.bound_y)
        if self.loss == "poisson":
            # Means of counts are moved by what is clipped, the minimisers of other losses hardly.
            return Lowered(bound, 0.0, least=1.0, caution=OF_COUNTS)
        # The less a quantile is smoothed, the fewer people show its curvature, which standard errors need.
        has_errors = check.boolean("inference", self.inference)
        return Lowered(bound, FEW, room=2.0 if self.loss == "quantile" and has_errors else 1.0)

    def _held(self, X: Any, y: Any, *owners: Any) -> tuple[Any, ...]:
        """Hold rows that can be read once, in which a bound is looked for first."""
        rows, outcomes = self._opened(X, y).whole()
        assert outcomes is not None
        return rows, outcomes[:, 0], *owners

    def _measured(self, X: Any, y: Any, groups: Any = None, max_rows: int | None = None, *shares: Any) -> Measured:
        measured = super()._measured(X, y, groups, max_rows)
        if not getattr(self.loss, "is_of_counts", self.loss == "poisson"):
            return measured
        return measured._replace(map_y=RowMap(np.zeros(1), np.full(1, np.inf)))

    def _plan(self, privacy: Privacy, requested: PlanRequest) -> Plan:
        if self._may_be_lower is not None:
            unit: Unit = "row" if requested.max_rows is None else "person"
            _, privacy = NoisySizes.within(privacy, self._is_gaussian, self._sizes(), requested.n_features, unit=unit)
        if not self._descends:
            return super()._plan(privacy, requested)
        calibrated = partial(self._descent, privacy, requested.n_features, max_rows=requested.max_rows)

        def error(people: int) -> float:
            return calibrated(people).relative_error(people, requested.spread)

        expected = requested.score - min(error(requested.n) ** 2 / requested.spread, requested.score)
        return requested.plan(error, calibrated(requested.n).scales, expected)

    @property
    def _is_loss_of_descent(self) -> bool:
        loss = self._resolved_loss
        return isinstance(loss, SmoothedHuber | SmoothedQuantile) or (loss.is_of_counts and self.fit_intercept)

    @property
    def _has_weights_apart(self) -> bool:
        return self._is_weighted

    @property
    def _descends(self) -> bool:
        """Choose the method, from what was declared."""
        return self.method == "gradient" or self._may_descend

    @property
    def _is_gaussian(self) -> bool:
        return self._descends

    def _descent(
        self, privacy: Privacy, n_features: int, n_rows: int | None, max_rows: int | None = None
    ) -> ScoreDescent:
        return ScoreDescent.of(
            privacy,
            cast("ScoreLoss", self._resolved_loss),
            self._bounded_rows(n_features),
            float(self.bound_y),
            n_features,
            None if self._is_weighted else self._known_rows(n_rows, max_rows),
            fit_intercept=self.fit_intercept,
            max_rows=max_rows,
            is_weighted=self._is_weighted,
        )

    def _summed(self, privacy: Privacy, table: io.Table) -> Summed:
        if not self._descends:
            return super()._summed(privacy, table)
        return self._descending(privacy, People(table.held(), n_threads=self.n_threads))

    def _descending(self, privacy: Privacy, people: People) -> Summed:
        table = people.table
        n_rows = table.count_rows() if people.max_rows is None else None
        mechanism = self._descent(privacy, table.n_features, n_rows, people.max_rows)
        rows = mechanism.steps.public.n_rows
        expected = None if rows is None else Expected(mechanism.relative_error(rows), rows)
        return Summed(mechanism, mechanism.steps.summed(people), expected=expected)

    @property
    def _ratio(self) -> str | None:
        return "rate_ratio" if self._with_placeholders()._resolved_loss.is_of_counts else None

    def _solve_fit(self, mechanism: Any, found: Any) -> Fitted:
        if mechanism.method == "gradient":
            return Fitted(attributes_of(found) | {"method_": "gradient"}, error_of(found))
        solved = super()._solve_fit(mechanism, found)
        return Fitted(solved.attributes | {"method_": "objective"}, solved.error)

    def _perturbation(self, share: Privacy, bounds: ObjectiveBounds) -> ObjectivePerturbation:
        # A private number of rows is taken for the fewest: longer parameters keep the convexity small beside many.
        cost = None if bounds.n_rows is None else bounds.typical_excess(0.0, _PREDICTION)
        return ObjectivePerturbation.calibrate(share, bounds, self.ridge, calibration=self.calibration, cost=cost)

    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        return expected_r2(mechanism, n, score, spread)

    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        return relative_error(mechanism, n)

    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float, curvature: float) -> float:
        return 1.0 if signal == 0.0 else mechanism.prediction_error(n, SPREAD, signal, curvature) / signal

    def _curvature(self, mechanism: ObjectivePerturbation) -> float:
        return typical_curvature(mechanism)

    def _check_findable(self) -> None:
        super()._check_findable()
        if isinstance(self.loss, CallableLoss):
            raise ValueError(
                f"loss must not be given by functions with {self._named}: its bounds are for declared ones"
            )
        if "bound_y" in self._private_bounds and isinstance(self.loss, SmoothedQuantile):
            raise ValueError(
                "loss must be 'quantile' or of another kind with bound_y='private': next to the bound found "
                f"{self.loss!r} may be too narrow"
            )

    def _opened(self, X: Any, y: Any, shares: FloatArray | None = None) -> io.Table:
        table = open_with_outcome(type(self).__name__, X, y)
        if shares is None:
            return table
        return io.with_shares(table, shares)

    def _attributes(self, linear: Linear, ridge: float) -> dict[str, Any]:
        both = super()._attributes(linear, ridge)
        return both | {"coef_": both["coef_"][0], "intercept_": float(both["intercept_"][0])}

    def _fit_without_noise(
        self, X: Any, y: Any, groups: None = None, max_rows: None = None, shares: FloatArray | None = None
    ) -> Solved:
        rows, outcomes = check_X_y(X, y, dtype=np.float64, y_numeric=True)
        if not self._resolved_loss.is_of_counts:
            releases, attributes = self._without_noise(rows, [outcomes], shares)
            return Solved(releases, attributes | {"method_": "objective"})
        # Nothing is clipped, so that the largest rate follows the largest count.
        bound = max(float(self.bound_y), float(np.abs(outcomes).max()))
        releases, attributes = self._with({"bound_y": bound})._without_noise(rows, [outcomes], shares)
        return Solved(releases, attributes | {"bound_y_": bound, "method_": "objective"})

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check.real("intercept_", self.intercept_)
        check.choice("method_", self.method_, ("objective", "gradient"))


#: Points of an integral over normal residuals, up to so many standard deviations.
_POINTS, _FARTHEST = 1024, 12.0


@dataclass(frozen=True)
class ScoreDescent(StepsOf[Regression]):
    """Descent of one outcome's loss."""

    steps: ScoreRegression

    @classmethod
    def of(
        cls,
        privacy: Privacy,
        loss: ScoreLoss,
        rows: tuple[RowMap, float],
        bound_y: float,
        n_features: int,
        n_rows: int | None,
        *,
        fit_intercept: bool,
        max_rows: int | None = None,
        is_weighted: bool = False,
    ) -> ScoreDescent:
        """Return it for rows and outcomes within bounds, as many as is public; at most `max_rows` of a person."""
        (row_map, bound_x), outcome_map = rows, RowMap(bound=bound_y)
        if loss.is_of_counts:
            outcome_map = replace(outcome_map, low=np.zeros(1), high=np.full(1, bound_y))
        steps = ScoreRegression(
            privacy,
            (n_features, 1),
            (bound_x, bound_y),
            row_map,
            outcome_map,
            fit_intercept=fit_intercept,
            max_rows=max_rows,
            is_weighted=is_weighted,
            public=Public(n_rows),
            loss=loss,
        )
        return cls(steps)

    def linear(self, found: Regression) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        coef, intercept, row_map = found.solution.coef, found.solution.intercept, self.steps.row_map
        if row_map.center is not None:
            intercept = intercept + coef @ row_map.center
        return Linear(coef if row_map.scale is None else coef * row_map.scale, intercept)

    def relative_error(self, people: int, spread: float = SPREAD) -> float:
        """Return the error of predictions to expect over the outcomes' bound: that of 0 at most."""
        curvature = _typical_curvature(self.steps.loss, math.sqrt((1.0 - R2) * spread) * self.steps.radii[1])
        return min(self.steps.expected_noise(people, curvature) / self.steps.radii[1], 1.0)


def attributes_of(found: Regression) -> dict[str, Any]:
    """Return the attributes of a fit."""
    coef, intercept = found.solution.coef[0], found.solution.intercept[0]
    return {"coef_": coef, "intercept_": float(intercept), "ridge_": 0.0, "n_features_in_": len(coef)}


def error_of(found: Regression) -> float:
    """Return the error of predictions over what they are without privacy, as the releases show it."""
    return math.sqrt(1.0 if found.expected_error is None else found.expected_error)


def _typical_curvature(loss: ScoreLoss, deviation: float) -> float:
    """Return the mean second derivative, a share of the largest, where residuals are normal.

    That of counts is their mean, and their errors are those of its logarithm times it: it cancels.
    """
    if isinstance(loss, PoissonLoss):
        return 1.0 / loss.second_derivative_bound()
    reach = loss.width + (loss.threshold if isinstance(loss, SmoothedHuber) else 0.0)
    # Midpoints, of a function that is 0 beyond and a density that is: a Gauss rule would miss what is narrow.
    farthest = min(reach, _FARTHEST * deviation)
    residuals = farthest * (np.arange(_POINTS) + 0.5) / _POINTS
    slopes = loss.second_derivative(residuals, 0.0) / loss.second_derivative_bound()
    densities = np.exp(-0.5 * (residuals / deviation) ** 2) / (deviation * math.sqrt(2.0 * math.pi))
    return min(2.0 * farthest * float(np.mean(slopes * densities)), 1.0)
