"""Private convex empirical risk minimisation: regression and classification by noise in the objective.

The minimiser of a summed loss, over a public convex set and with a convex penalty, is released by objective
perturbation (releases/objective_bounds.py). Squared losses are minimised from exact moments of rows, others from the
rows. Objective perturbation of a table is a function too, with a loss of the caller's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils.validation import column_or_1d

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.convex_erm.inference import CONSTANT, SHARE, ErrorReports, WithErrors, attributes_of, split
from dpfast.convex_erm.mechanism import (
    Labelled,
    Linear,
    Minimisers,
    PlanRequest,
    names_of_minimisers,
    relative_error,
    released_signal,
)
from dpfast.estimator.base import Expected, Fitted, Solved, Summed, warn_of_printed
from dpfast.estimator.bounded import PRIVATE_BOX, BoundedEstimator, Measured, check_most, open_with_outcome
from dpfast.estimator.linear import explained_shares
from dpfast.estimator.persistence import Waiting
from dpfast.estimator.plan import Plan
from dpfast.estimator.representation import missing_bound
from dpfast.ledger import Ledger, Release, paying
from dpfast.noise.samplers import check_source
from dpfast.privacy import Calibration, Privacy
from dpfast.releases.objective_bounds import (
    DeclaredBounds,
    ObjectiveBounds,
    ObjectivePerturbation,
    Penalty,
    TableLoss,
    check_bound,
    check_problem,
    loss_of_moments,
    loss_of_rows,
)
from dpfast.releases.people import People
from dpfast.releases.sandwich import Sandwich, exact_errors
from dpfast.solvers import (
    Box,
    CallableLoss,
    CappedLogisticLoss,
    ElasticNet,
    GeneralisedLinearLoss,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    PoissonLoss,
    Ridge,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)
from dpfast.solvers.constraints import Constraint
from dpfast.solvers.inference import Errors
from dpfast.solvers.smooth_convex import SmoothConvexFunction, minimise_convex
from dpfast.statistics import Gram
from dpfast.statistics.rows import RowMap, bounded_rows, check_box, public_rows


@dataclass(eq=False, repr=False, kw_only=True)
class PerturbedObjective(BoundedEstimator, ErrorReports):
    """Common parts of both estimators: parameters, bounds, the steps of a fit, the textbook estimator."""

    bound_x: float | Literal["private"] | None = None
    loss: str | GeneralisedLinearLoss
    constraint: Constraint | None = None
    penalty: Penalty | None = None
    ridge: float | Literal["auto"] = "auto"
    fit_intercept: bool = True
    method: Literal["auto", "objective", "gradient"] = "auto"
    inference: bool = False
    box_x: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | None = None
    max_weight: float | None = None

    _PARAMETER_TYPES = (
        *(L2Ball, L1Ball, Box, ElasticNet, Lasso, Ridge),
        *(LogisticLoss, CappedLogisticLoss, SmoothedHinge, SmoothedHuber, SmoothedQuantile, PoissonLoss),
    )
    #: Those for outcomes within 1, by name.
    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]]
    #: Which losses descent takes, in an error's words.
    _DESCENT_TAKES: ClassVar[str]

    @property
    def _outcome_bound(self) -> float:
        """Largest size of an outcome."""
        return 1.0

    @property
    def _n_minimisers(self) -> int:
        """How many minimisers share the budget."""
        return 1

    @property
    def _resolved_loss(self) -> GeneralisedLinearLoss:
        if not isinstance(self.loss, GeneralisedLinearLoss):
            return self._LOSSES[check.choice("loss", self.loss, tuple(self._LOSSES))].scaled(self._outcome_bound)
        if self.loss.is_classification != next(iter(self._LOSSES.values())).is_classification:
            raise ValueError(
                f"loss must be one of {', '.join(map(repr, self._LOSSES))} or of their kind, got {self.loss!r}"
            )
        return self.loss

    def _bounded_rows(self, n_features: int) -> tuple[RowMap, float]:
        """Return the public map of rows, and the length of the longest after it."""
        bound = None if self.bound_x is None else float(self.bound_x)
        return bounded_rows(n_features, bound, self.box_x, about_center=self.fit_intercept)

    def _table_loss(self, n_features: int, *, for_errors: bool = False) -> TableLoss:
        """Return the loss of rows with a constant feature, where there is an intercept."""
        row_map, bound = self._bounded_rows(n_features)
        constant = 0.0
        if self.fit_intercept:
            constant = CONSTANT * 2.0 ** round(math.log2(bound)) if for_errors else self._constant(bound)
        return TableLoss(
            self._resolved_loss,
            bound,
            float(self._outcome_bound),
            constant,
            None if self.box_x is None else row_map,
            self._has_weights_apart,
        )

    @property
    def _has_weights_apart(self) -> bool:
        """Whether a last column of outcomes has the rows' weights."""
        return False

    def _constant(self, bound: float) -> float:
        """Return the constant feature of an intercept: a power of two, so moments are exact.

        A quarter of the rows' bound makes rows a thirty-second longer, and the noise: with 300 people and four times as
        much R^2 was .2 lower. In a constraint's set so much that its parameter reaches intercepts as large as outcomes.
        """
        least = 0.25
        if self.constraint is not None:
            box = self.constraint if isinstance(self.constraint, Box) else None
            reach = self.constraint.norm_bound(1) if box is None else float(np.max(np.abs([box.low, box.high])))
            least = min(max(least, float(self._outcome_bound) / (reach * bound)), 1.0)
        return 2.0 ** round(math.log2(least * bound))

    @property
    def _given_ridge(self) -> float:
        return 0.0 if isinstance(self.ridge, str) else float(self.ridge)

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: coefficients"

    def _check_parameters(self, privacy: Privacy) -> None:
        if self.bound_x is None and self.box_x is None:
            raise missing_bound(type(self), "box_x", "bound_x", epsilon=self.epsilon)
        check.boolean("fit_intercept", self.fit_intercept)
        check.optional(check_bound, "bound_x", self.bound_x)
        if self.box_x is not None:
            _, length = self._bounded_rows(max(side.size for side in check_box(self.box_x)))
            check_bound("the length of rows within bound_x and box_x, over half the widths of the limits,", length)
        check_bound("bound_y", self._outcome_bound)
        check.optional(check.positive, "max_weight", self.max_weight)
        check.nonnegative_or_auto("ridge", self.ridge)
        if not isinstance(self.ridge, str) and self.ridge > 2.0**100:
            raise ValueError(f"ridge must be at most 2**100, got {self.ridge!r}")
        if check.boolean("inference", self.inference):
            self._check_inference()
        check_problem(self._resolved_loss, self.constraint, self.penalty)
        if not math.isinf(privacy.epsilon):
            n_parameters = self.constraint.low.size if isinstance(self.constraint, Box) else 1
            n_features = max(n_parameters - self.fit_intercept, 1)
            if self.box_x is not None:
                n_features = max([n_features, *(side.size for side in check_box(self.box_x))])
            # Here and not where noise is calibrated: bounds that were found are in no message.
            self._table_loss(n_features).bounds(
                n_features + self.fit_intercept, self.constraint, self.penalty, public_rows(1, self.adjacency)
            ).check_functions()
        if check.choice("method", self.method, ("auto", "objective", "gradient")) == "gradient":
            self._check_descent(privacy)

    def _check_inference(self) -> None:
        if isinstance(self.loss, CallableLoss) or self.calibration != "sound":
            raise ValueError(
                "inference=True needs calibration='sound' and a loss of dpfast.solvers: with a loss given by "
                "functions, a row's part may depend on other rows"
            )

    def _check_descent(self, privacy: Privacy) -> None:
        if privacy.delta == 0.0 and not math.isinf(privacy.epsilon):
            raise ValueError("method='gradient' needs delta > 0: steps that share a pure epsilon are mostly noise")
        if not self._has_plain_loss or self.calibration != "sound":
            raise ValueError(
                f"method='gradient' goes with {self._DESCENT_TAKES}, ridge='auto' and calibration='sound', without a "
                "constraint or penalty"
            )

    @property
    @abstractmethod
    def _is_loss_of_descent(self) -> bool:
        """Whether the loss is one that descent takes."""

    @property
    def _may_descend(self) -> bool:
        """Whether descent can be chosen. Bounds that are to be found leave the kind of loss as it is."""
        is_plain = self._with_placeholders()._has_plain_loss and self.calibration == "sound" and self.delta > 0.0
        return self.method != "objective" and is_plain

    def _check_takes_people(self, privacy: Privacy) -> None:
        if math.isinf(privacy.epsilon) or not self._may_descend or self.inference:
            raise ValueError(
                f"groups need descent: a finite epsilon, delta > 0, {self._DESCENT_TAKES}, method 'auto' or "
                "'gradient', and no constraint, penalty, ridge or inference"
            )

    @property
    def _has_plain_loss(self) -> bool:
        """Whether the objective is one that descent takes."""
        is_free = self.constraint is None and self.penalty is None and isinstance(self.ridge, str)
        return is_free and self._is_loss_of_descent

    @classmethod
    def _planned(cls, requested: PlanRequest, parameters: Mapping[str, Any]) -> Plan:
        sizes, public = (
            {"n": requested.n, "n_features": requested.n_features},
            {"target": requested.target, "spread": requested.spread},
        )
        estimator, privacy = cls._planned_for(sizes, public, parameters, requested.max_rows)
        score = check.share("score", requested.score, whole=True)
        if math.isinf(privacy.epsilon):
            return Plan(requested.n, 0.0, requested.target, 1, {}, score=score, expected_score=score)
        part, rest = estimator._split(privacy)
        plan = estimator._plan(rest, requested)
        return plan if part is None else replace(plan, notes={**plan.notes, "budget share of standard errors": SHARE})

    def _plan(self, privacy: Privacy, requested: PlanRequest) -> Plan:
        """Plan for a finite epsilon."""
        calibrated, spread = partial(self._calibrated, privacy, requested.n_features), requested.spread
        mechanism = calibrated(requested.n)
        own, expected = mechanism.noise_scales, self._expected_score(mechanism, requested.n, requested.score, spread)
        notes = {"strong convexity": own.strong_convexity, "epsilon left for the noise": own.noise_epsilon}
        # Predictions are as large as the outcomes' bound: shrinkage counts against that.
        return requested.plan(lambda n: relative_error(calibrated(n), n, spread), mechanism.scales, expected, notes)

    @abstractmethod
    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        """Return the score to expect where `score` is reached without privacy."""

    @abstractmethod
    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        """Return the error to expect as a share of the signal, where nothing is known but public numbers."""

    @abstractmethod
    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float, curvature: float) -> float:
        """Return the same for predictions of a root mean square, at a share of the greatest curvature."""

    def _curvature(self, mechanism: ObjectivePerturbation) -> float:
        """Return the share of the greatest curvature to expect."""
        return 1.0

    def _calibrated(self, privacy: Privacy, n_features: int, n_rows: int) -> ObjectivePerturbation:
        """Calibrate for one of the minimisers, which have equal parts of the budget."""
        k = self._n_minimisers
        share = Privacy(privacy.epsilon / k, privacy.delta / k, privacy.adjacency)
        rows = public_rows(n_rows, self.adjacency)
        loss = self._table_loss(n_features)
        bounds = loss.bounds(n_features + self.fit_intercept, self.constraint, self.penalty, rows)
        return self._perturbation(share, bounds)

    def _perturbation(self, share: Privacy, bounds: ObjectiveBounds) -> ObjectivePerturbation:
        return ObjectivePerturbation.calibrate(share, bounds, self.ridge, calibration=self.calibration)

    def _measured(self, X: Any, y: Any, groups: Any = None, max_rows: int | None = None, *shares: Any) -> Measured:
        return Measured(X, y, groups=groups, max_rows=max_rows)

    def _check_findable(self) -> None:
        super()._check_findable()
        if "box_x" in self._private_bounds:
            raise ValueError(PRIVATE_BOX)
        if "bound_x" in self._private_bounds and self.box_x is not None:
            raise ValueError("bound_x must be a number, or be left out, with box_x, got 'private'")

    def _fit_weighted(
        self, X: Any, y: Any, sample_weight: Any, opened: Callable[..., tuple[Any, ...]] | None = None, **options: Any
    ) -> Self:
        """Fit rows that may have weights, which are as private as they are."""
        known = {"_weighted": sample_weight is not None}
        self.__dict__.update(known)
        named, options["columns"] = options["columns"], lambda: named() | known
        if sample_weight is None:
            return self._fit_people(X, y, opened=opened, **options)
        self._check_takes_weights()
        most, clips = check_most(self.max_weight), not math.isinf(check.epsilon_value(self.epsilon))

        def with_shares(X: Any, y: Any, groups: Any = None, max_rows: int | None = None) -> tuple[Any, ...]:
            weights = io.read_now(sample_weight)
            io.check_aligned(X=X, y=y, groups=groups, sample_weight=weights)
            shares = io.shares_of(X, y, weights, most, clips=clips)
            if opened is not None:
                X, y = opened(X, y)
            return X, y, groups, max_rows, shares

        return self._fit_people(X, y, opened=with_shares, **options)

    def _check_takes_weights(self) -> None:
        """Refuse weights without a bound, or where a row's part is not known to be in proportion to its weight."""
        check_most(self.max_weight)
        if isinstance(self.loss, CallableLoss):
            raise ValueError("sample_weight does not go with a loss given by functions: it goes with dpfast.solvers'")

    @property
    def _is_weighted(self) -> bool:
        """Whether the fit's rows have weights."""
        return bool(vars(self).get("_weighted"))

    @abstractmethod
    def _opened(self, X: Any, y: Any, shares: FloatArray | None = None) -> io.Table:
        """Open a table with outcomes as the losses take them: a column for each minimiser; rows may have weights."""

    def _split(self, privacy: Privacy) -> tuple[Privacy | None, Privacy]:
        """Return what standard errors have of a budget, and the fit."""
        return split(privacy, is_gaussian=self._is_gaussian) if self.inference else (None, privacy)

    def _sum(
        self,
        privacy: Privacy,
        source: noise.BitSource,
        X: Any,
        y: Any,
        groups: Any = None,
        max_rows: int | None = None,
        shares: FloatArray | None = None,
    ) -> Summed:
        if groups is not None:
            io.check_aligned(X=X, y=y, groups=groups)
            # Ids of a file are read once, as rows that are held in memory are.
            groups = np.asarray(groups) if isinstance(groups, io.RowOwners) else groups
            return self._descending(
                privacy, People(self._opened(X, y, shares).held(), groups, max_rows, self.n_threads)
            )
        table, (part, rest) = self._opened(X, y, shares), self._split(privacy)
        if part is None:
            return self._summed(rest, table)
        table = table.held()
        summed, n_rows = self._summed(rest, table), public_rows(table.count_rows(), self.adjacency)
        errors = self._table_loss(table.n_features, for_errors=True)
        sandwich = Sandwich(part, errors, table.n_features + self.fit_intercept)
        mechanism = WithErrors(privacy, summed.mechanism, sandwich, n_rows)
        return summed._replace(mechanism=mechanism, statistic=Labelled(summed.statistic, table, self.n_threads))

    def _known_rows(self, n_rows: int | None, max_rows: int | None) -> int | None:
        """Return the number of rows if it is public: not where a replaced person may have more or fewer."""
        return None if n_rows is None or max_rows is not None else public_rows(n_rows, self.adjacency)

    @abstractmethod
    def _descending(self, privacy: Privacy, people: People) -> Summed:
        """Return what descent releases."""

    def _summed(self, privacy: Privacy, table: io.Table) -> Summed:
        calibrated = cache(partial(self._calibrated, privacy, table.n_features))
        table_loss = self._table_loss(table.n_features)
        losses, n_rows = table_loss.of_table(table, self.n_threads, lambda n_rows: calibrated(n_rows).bounds.loss)
        mechanism = calibrated(n_rows)
        rows = mechanism.bounds.n_rows
        expected = None if rows is None else Expected(self._expected_error(mechanism, rows), rows)
        minimisers = Minimisers(privacy, mechanism, len(losses), table_loss.constant)
        return Summed(minimisers, losses, expected=expected)

    def _solve(self, mechanism: Any, found: Any, public: Any) -> Fitted:
        if not isinstance(mechanism, WithErrors):
            return self._solve_fit(mechanism, found)
        found, errors, people = found
        solved = self._solve_fit(mechanism.fit, found)
        own = self._errors(errors, mechanism.sandwich.table_loss.constant, people)
        return solved._replace(attributes=solved.attributes | own)

    def _errors(self, errors: Errors, constant: float, people: float | None) -> dict[str, Any]:
        """Return the attributes of standard errors; what weights add up to is not known."""
        row_map, _ = self._bounded_rows(len(errors.theta) - self.fit_intercept)
        return attributes_of(errors, constant, None if self._is_weighted else people, row_map)

    def _solve_fit(self, mechanism: Minimisers, found: FloatArray) -> Fitted:
        """Return what the fit alone says."""
        perturbation = mechanism.perturbation
        rows = perturbation.bounds.n_rows
        error = 0.0 if rows is None else float(np.mean([self._error_of(perturbation, rows, one) for one in found]))
        return Fitted(self._attributes(mechanism.linear(found), perturbation.ridge), error)

    def _error_of(self, mechanism: ObjectivePerturbation, n: int, coef: FloatArray) -> float:
        """Return the error that released parameters speak of."""
        share = self._curvature(mechanism)
        return self._error_of_signal(mechanism, n, released_signal(mechanism, n, coef, share), share)

    def _attributes(self, linear: Linear, ridge: float) -> dict[str, Any]:
        """Return the attributes that both kinds have, of rows as they come."""
        coef, intercept = self._bounded_rows(linear.coef.shape[1])[0].undone(*linear)
        return {"coef_": coef, "intercept_": intercept, "ridge_": ridge, "n_features_in_": coef.shape[1]}

    def _without_noise(
        self, rows: FloatArray, outcomes: Sequence[FloatArray], weights: FloatArray | None = None
    ) -> Solved:
        """Fit the textbook estimator: rows are not clipped, and there is no more convexity than requested."""
        constant = self._table_loss(rows.shape[1]).constant
        if self.box_x is not None:
            row_map, _ = self._bounded_rows(rows.shape[1])
            rows = replace(row_map, low=None, high=None, bound=math.inf)(rows)
        if constant > 0.0:
            rows = np.column_stack([rows, np.full(len(rows), constant)])
        coefs = np.array([self._minimiser(rows, column, weights) for column in outcomes])
        values = [{"coef": coef} for coef in coefs]
        if isinstance(self._resolved_loss, SquaredLoss):
            values[0]["r_squared"] = explained_shares(
                outcomes[0], rows @ coefs[0], has_intercept=self._has_intercept, weights=weights
            )
        releases = tuple(
            self._exact_release(one, f"{type(self).__name__}: {name}", states_delta=number == 0)
            for number, (name, one) in enumerate(zip(names_of_minimisers(len(coefs)), values, strict=True))
        )
        attributes = self._attributes(Linear.split(coefs, constant), self._given_ridge)
        if self.inference:
            errors = exact_errors(self._resolved_loss, coefs[0], rows, outcomes[0], weights)
            attributes |= self._errors(errors, constant, float(len(rows)))
        return Solved(releases, attributes)

    def _minimiser(self, rows: FloatArray, outcomes: FloatArray, weights: FloatArray | None) -> FloatArray:
        loss, ridge = self._resolved_loss, self._given_ridge
        smooth = self.penalty is None or (isinstance(self.penalty, ElasticNet) and self.penalty.l1 == 0.0)
        if isinstance(loss, SquaredLoss) and self.constraint is None and smooth:
            ridge += self.penalty.l2 if isinstance(self.penalty, ElasticNet) else 0.0
            if weights is not None:
                rows, outcomes = rows * np.sqrt(weights)[:, None], outcomes * np.sqrt(weights)
            if ridge == 0.0:
                return np.asarray(linalg.lstsq(rows, outcomes)[0])
            moments = rows.T @ rows + ridge * np.eye(rows.shape[1])
            return np.asarray(linalg.solve(moments, rows.T @ outcomes, assume_a="pos"))
        sizes = DeclaredBounds(
            # Weights beyond 1 are as longer rows.
            row_bound=max(float(np.linalg.norm(rows, axis=1).max()) * (1.0 + 2.0**-30), 2.0**-64)
            * max(1.0, 1.0 if weights is None else float(weights.max())),
            outcome_bound=max(float(np.abs(outcomes).max()), 2.0**-64),
        )
        function = loss_of_rows(np.ascontiguousarray(rows), outcomes, loss, sizes, self.n_threads, weights)
        return minimise_convex(function, constraint=self.constraint, penalty=self.penalty, ridge=ridge)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "coef_", (self.n_features_in_,)
        yield from self._shapes_of_errors()

    def _check_fitted(self) -> None:
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError("coef_ and intercept_ must hold finite numbers")
        check.nonnegative("ridge_", self.ridge_)
        if self.inference:
            self._check_errors()


def column_of(y: Any) -> NDArray[Any]:
    """Return outcomes as a 1-D array, as scikit-learn does, but without a message that says how many there are."""
    if not hasattr(y, "__array__"):  # labels may be text, which is not lent
        y = io.zero_copy_view(y, "y")
    problem = "y should be a 1d array, with an entry for each row"
    array = io.redact_errors(partial(np.asarray, y), problem)
    if np.iscomplexobj(array):
        raise ValueError("Complex data not supported: y must hold real numbers or labels")
    if array.ndim == 1 and array.dtype.kind in "biuf":  # told without scikit-learn's checks
        return np.ascontiguousarray(array)
    column: NDArray[Any] = io.redact_errors(partial(column_or_1d, array, warn=True), problem)
    return column


@suppress_float_warnings
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
    ledger: Ledger | None = None,
) -> Release:
    """Release the minimiser of a sum of generalised linear losses, by noise in the objective.

    Privacy: the release is (epsilon, delta)-differentially private under the adjacency of `privacy`; it is paid for
    from the ledger, where one is given.

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features), or Gram
        Rows; longer ones than `bound_x` are scaled onto it. For the squared loss the data owner's exact sums will do,
        with one outcome.
    y : array_like of shape (n_rows,)
        Outcomes, clipped to `bound_y`; -1 or 1 for classification, times a weight of at most 1.
    loss : GeneralisedLinearLoss
        ``SquaredLoss``, ``SmoothedHuber``, ``SmoothedQuantile``, ``PoissonLoss`` (counts, clipped at 0 as well),
        ``LogisticLoss``, ``CappedLogisticLoss`` or ``SmoothedHinge`` of dpfast.solvers, or a ``CallableLoss`` with
        bounds on its derivatives, under "replace_one".
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
        "paper" is the printed noise, with an UnsoundCalibrationWarning where it is too little.
    source : BitSource, optional
        The source of the bits; the operating system by default.
    n_threads : int, optional
        The result does not depend on it.
    name : str
        Name of the release in a ledger's report.
    ledger : Ledger, optional
        The budget to pay from. Without one whoever calls sees to it that the release is paid for.

    Returns
    -------
    Release
        With the value "coef", of shape (n_features,).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind; nothing is spent then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import Privacy
    >>> from dpfast.convex_erm import objective_perturbation
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
    if isinstance(X, Gram):
        if not isinstance(loss, SquaredLoss) or y is not None or bound_x is not None:
            raise ValueError("a Gram needs SquaredLoss(), and has its own outcomes and bounds")
        if X.unit is not None:
            raise ValueError("gram must be of rows: sums over people who own several change by more than a row")
    elif bound_x is None or y is None:
        raise ValueError("y and bound_x must be given with rows")
    bits = noise.SecureSource() if source is None else check_source(source)
    with paying(ledger, privacy).reserving(privacy, random_state=bits.seed) as reservation:
        losses: list[SmoothConvexFunction]
        if isinstance(X, Gram):
            summed = TableLoss(loss, X.bound_x, X.bound_y or bound_y)
            losses, n_rows = [loss_of_moments(X, summed.sizes(X.n_features))], X.n_rows
        else:
            summed = TableLoss(loss, check_bound("bound_x", bound_x), check_bound("bound_y", bound_y))
            table = open_with_outcome("objective_perturbation", X, y)
            if loss.is_classification:
                table = table.held()
                if not table.whole()[1].all():
                    raise ValueError("y must be from -1 to 1, and not 0, for a loss of classification")
            losses, n_rows = summed.of_table(table, n_threads)
        (statistic,) = losses
        rows = public_rows(n_rows, privacy.adjacency)
        bounds = summed.bounds(statistic.n, constraint, penalty, rows)
        bounds.check_functions()
        mechanism = ObjectivePerturbation.calibrate(privacy, bounds, ridge, calibration=calibration)
        warn_of_printed(mechanism)
        release = mechanism.release(statistic, bits.paid(reservation), name)
        waiting = Waiting([release], lambda: release)
        reservation.commit(release)
    return waiting.complete()
