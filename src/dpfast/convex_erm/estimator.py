"""Private convex empirical risk minimisation: regression and classification by noise in the objective.

The minimiser of a summed loss, over a public convex set and with a convex penalty, is released by objective
perturbation (releases/minimisers.py). Squared losses are minimised from exact moments of rows, others from the rows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y, column_or_1d

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.convex_erm.plan import (
    ACCURACY,
    R2,
    SPREAD,
    expected_accuracy,
    expected_r2,
    lost_accuracy,
    planned,
    relative_error,
    released_signal,
)
from dpfast.estimator.base import Expected, Solved, Summed
from dpfast.estimator.bounded import BoundedEstimator, Measured
from dpfast.estimator.feature_names import columns_of
from dpfast.estimator.linear import LinearEstimator
from dpfast.estimator.outcomes import open_with_outcome
from dpfast.estimator.plan import Plan
from dpfast.io.states import StateEncoder
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.minimisers import ObjectivePerturbation
from dpfast.releases.objective_bounds import Penalty, Sizes, check_problem, public_rows
from dpfast.releases.table_losses import TableLoss, loss_of_rows
from dpfast.solvers import (
    Box,
    ElasticNet,
    GeneralisedLinearLoss,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    Ridge,
    SmoothedHinge,
    SmoothedHuber,
    SquaredLoss,
)
from dpfast.solvers.constraints import Constraint
from dpfast.solvers.proximal_point import minimise_convex


@dataclass(eq=False, repr=False, kw_only=True)
class PerturbedObjective(BoundedEstimator, LinearEstimator):
    """What both estimators share: parameters, bounds, the steps of a fit, the textbook estimator."""

    bound_x: float | Literal["private"]
    loss: str | GeneralisedLinearLoss
    constraint: Constraint | None = None
    penalty: Penalty | None = None
    ridge: float | Literal["auto"] = "auto"
    fit_intercept: bool = False

    _PARAMETER_TYPES = (L2Ball, L1Ball, Box, ElasticNet, Lasso, Ridge, LogisticLoss, SmoothedHinge, SmoothedHuber)
    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]]

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
            return self._LOSSES[check.choice("loss", self.loss, tuple(self._LOSSES))]
        if self.loss.is_classification != next(iter(self._LOSSES.values())).is_classification:
            raise ValueError(
                f"loss must be one of {', '.join(map(repr, self._LOSSES))} or of their kind, got {self.loss!r}"
            )
        return self.loss

    @property
    def _table_loss(self) -> TableLoss:
        # The constant feature is a power of two, with which moments are exact.
        constant = 2.0 ** round(math.log2(float(self.bound_x))) if self.fit_intercept else 0.0
        return TableLoss(self._resolved_loss, float(self.bound_x), float(self._outcome_bound), constant)

    @property
    def _given_ridge(self) -> float:
        return 0.0 if isinstance(self.ridge, str) else float(self.ridge)

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: coefficients"

    def _check_parameters(self, privacy: Privacy) -> None:
        check.positive("bound_x", self.bound_x)
        check.positive("bound_y", self._outcome_bound)
        check.nonnegative_or_auto("ridge", self.ridge)
        check.boolean("fit_intercept", self.fit_intercept)
        check_problem(self._resolved_loss, self.constraint, self.penalty)
        if not math.isinf(privacy.epsilon):
            n_parameters = self.constraint.low.size if isinstance(self.constraint, Box) else 1
            self._table_loss.bounds(
                max(n_parameters, 1 + self.fit_intercept), self.constraint, self.penalty, public_rows(1, self.adjacency)
            )

    @classmethod
    def _planned(
        cls,
        n: int,
        n_features: int,
        target: float,
        spread: float,
        score: float,
        parameters: Mapping[str, Any],
        relative_to: str,
    ) -> Plan:
        sizes = {"n": n, "n_features": n_features}
        estimator, privacy = cls._planned_for(sizes, {"target": target, "spread": spread}, parameters)
        check.share("score", score, whole=True)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {}, score=score, expected_score=score)
        calibrated = partial(estimator._calibrated, privacy, n_features)
        scores = score, estimator._expected_score(calibrated(n), n, score, spread)
        return planned(calibrated, n, target, spread, relative_to, scores)

    @abstractmethod
    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        """Return the score to expect where `score` is reached without privacy."""

    @abstractmethod
    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        """Return the error to expect as a share of the signal, where nothing is known but public numbers."""

    @abstractmethod
    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float) -> float:
        """Return the same for predictions of a root mean square."""

    def _calibrated(self, privacy: Privacy, n_features: int, n_rows: int) -> ObjectivePerturbation:
        """Calibrate for one of the minimisers, which have equal parts of the budget."""
        k = self._n_minimisers
        share = Privacy(privacy.epsilon / k, privacy.delta / k, privacy.adjacency)
        rows = public_rows(n_rows, self.adjacency)
        bounds = self._table_loss.bounds(n_features + self.fit_intercept, self.constraint, self.penalty, rows)
        return ObjectivePerturbation.calibrate(share, bounds, self.ridge, calibration=self.calibration)

    def _measured(self, X: Any, y: Any) -> Measured:
        return Measured(X, y)

    @abstractmethod
    def _opened(self, X: Any, y: Any) -> io.Table:
        """Open a table whose outcomes are what the losses take: a column for each minimiser."""

    def _sum(self, privacy: Privacy, source: noise.BitSource, X: Any, y: Any) -> Summed:
        table = self._opened(X, y)
        losses, n_rows = self._table_loss.of_table(table, self.n_threads)
        mechanism = self._calibrated(privacy, table.n_features, n_rows)
        rows = mechanism.bounds.n_rows
        expected = None if rows is None else Expected(self._expected_error(mechanism, rows), f"{rows} people")
        return Summed(mechanism, losses, expected=expected)

    def _release(self, summed: Summed, source: noise.BitSource) -> tuple[Release, ...]:
        losses, name = summed.statistic, self._release_name
        names = [name] if len(losses) == 1 else [f"{name} of class {i}" for i in range(len(losses))]
        released = zip(losses, names, strict=True)
        return tuple(summed.mechanism.release(loss, source, name) for loss, name in released)

    def _solve(self, mechanism: ObjectivePerturbation, releases: tuple[Release, ...], public: Any) -> dict[str, Any]:
        return self._attributes(releases, mechanism.ridge)

    def _released_error(
        self, mechanism: ObjectivePerturbation, releases: tuple[Release, ...], attributes: Mapping[str, Any]
    ) -> float:
        rows = mechanism.bounds.n_rows
        if rows is None:
            return 0.0
        signals = (released_signal(mechanism, rows, release.values["coef"]) for release in releases)
        return float(np.mean([self._error_of_signal(mechanism, rows, signal) for signal in signals]))

    def _attributes(self, releases: tuple[Release, ...], ridge: float) -> dict[str, Any]:
        """Return the attributes that both kinds have; coefficients as rows, one for each release."""
        coef = np.array([release.values["coef"] for release in releases])
        intercept, constant = np.zeros(len(coef)), self._table_loss.constant
        if constant > 0.0:
            coef, intercept = coef[:, :-1].copy(), constant * coef[:, -1]
        return {"coef_": coef, "intercept_": intercept, "ridge_": ridge, "n_features_in_": coef.shape[1]}

    def _without_noise(self, rows: FloatArray, outcomes: Sequence[FloatArray]) -> Solved:
        """Fit the textbook estimator: rows as they are, no more convexity than was asked for."""
        constant = self._table_loss.constant
        if constant > 0.0:
            rows = np.column_stack([rows, np.full(len(rows), constant)])
        releases = tuple(self._exact_release({"coef": self._minimiser(rows, column)}) for column in outcomes)
        return Solved(releases, self._attributes(releases, self._given_ridge))

    def _minimiser(self, rows: FloatArray, outcomes: FloatArray) -> FloatArray:
        loss, ridge = self._resolved_loss, self._given_ridge
        smooth = self.penalty is None or (isinstance(self.penalty, ElasticNet) and self.penalty.l1 == 0.0)
        if isinstance(loss, SquaredLoss) and self.constraint is None and smooth:
            ridge += self.penalty.l2 if isinstance(self.penalty, ElasticNet) else 0.0
            if ridge == 0.0:
                return np.asarray(linalg.lstsq(rows, outcomes)[0])
            moments = rows.T @ rows + ridge * np.eye(rows.shape[1])
            return np.asarray(linalg.solve(moments, rows.T @ outcomes, assume_a="pos"))
        sizes = Sizes(
            row_bound=max(float(np.linalg.norm(rows, axis=1).max()) * (1.0 + 2.0**-30), 2.0**-100),
            outcome_bound=max(float(np.abs(outcomes).max()), 2.0**-100),
        )
        function = loss_of_rows(np.ascontiguousarray(rows), outcomes, loss, sizes, self.n_threads)
        return minimise_convex(function, constraint=self.constraint, penalty=self.penalty, ridge=ridge)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "coef_", (self.n_features_in_,)

    def _check_fitted(self) -> None:
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError("coef_ and intercept_ must hold finite numbers")
        check.nonnegative("ridge_", self.ridge_)


@dataclass(eq=False, repr=False, kw_only=True)
class ObjectivePerturbationRegressor(RegressorMixin, PerturbedObjective):
    """Differentially private linear regression by objective perturbation.

    The released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2 plus a random linear term,
    over a public convex set.

    Privacy: the one release of the parameters is (epsilon, delta)-differentially private under `adjacency`.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    bound_x : float or "private"
        L2 norm of a row of X, at most; longer rows are scaled onto it. "private" has it found within the budget, of
        which a tenth is spent on noisy counts of people by the size of their rows: it leaves out about one in a
        hundred.
    bound_y : float or "private"
        Size of an outcome, at most; larger ones are clipped.
    loss : {"squared", "huber"} or GeneralisedLinearLoss, default "squared"
        (y - x'theta)^2/2, or Huber's loss with threshold 1 made twice continuously differentiable; others are
        ``SmoothedHuber`` and ``CallableLoss`` of dpfast.solvers.
    constraint : L2Ball, L1Ball or Box, optional
        The public set that parameters are in. The squared loss needs one for a finite epsilon: without, its gradient
        has no bound.
    penalty : Lasso, ElasticNet, Ridge or another Proximable, optional
        Added to the summed loss, not divided by the number of rows. Another Proximable goes with no constraint.
    ridge : float or "auto", default "auto"
        (ridge/2) ||theta||^2 is added, or more where less noise is worth it. "auto" leaves it to that.
    fit_intercept : bool, default False
        Add a constant feature of about the size of `bound_x`, which lengthens rows. Its coefficient, the last one,
        belongs to the constraint and the penalty as any.
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed noise of [1]_: valid under "add_remove", mostly too little under "replace_one", with a
        warning where it is.
    adjacency, random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept; 0 without `fit_intercept`.
    ridge_ : float
        The ridge used.
    bound_x_, bound_y_ : float
        Where they are "private": what was found.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    .. [1] Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
       regression. COLT. Algorithm 1.

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
    loss: Literal["squared", "huber"] | GeneralisedLinearLoss = "squared"

    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {"squared": SquaredLoss(), "huber": SmoothedHuber()}

    @property
    def _outcome_bound(self) -> float:
        return cast("float", self.bound_y)

    @quiet
    def fit(self, X: Any, y: Any) -> Self:
        """Fit from rows: arrays, data frames, Arrow or Dask tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row. Squared losses are summed in one pass; for others the rows are held in memory.
        y : table of shape (n_rows,) or (n_rows, 1)
            Their outcomes, in the same order.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        return self._fit(self._checked(), X, y, columns=columns_of(X))

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.1,
        spread: float = SPREAD,
        score: float = R2,
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
        return cls._planned(n, n_features, target, spread, score, parameters, "the outcomes' bound")

    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        return expected_r2(mechanism, n, score, spread)

    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        return relative_error(mechanism, n)

    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float) -> float:
        return 1.0 if signal == 0.0 else mechanism.prediction_error(n, SPREAD, signal) / signal

    def _opened(self, X: Any, y: Any) -> io.Table:
        return open_with_outcome(type(self).__name__, X, y)

    def _attributes(self, releases: tuple[Release, ...], ridge: float) -> dict[str, Any]:
        both = super()._attributes(releases, ridge)
        return both | {"coef_": both["coef_"][0], "intercept_": float(both["intercept_"][0])}

    def _fit_without_noise(self, X: Any, y: Any) -> Solved:
        rows, outcomes = check_X_y(X, y, dtype=np.float64, y_numeric=True)
        return self._without_noise(rows, [outcomes])

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check.real("intercept_", self.intercept_)


def _has_probabilities(estimator: ObjectivePerturbationClassifier) -> bool:
    if not isinstance(estimator._resolved_loss, LogisticLoss):
        raise AttributeError("predict_proba needs loss='logistic': margins of other losses are no probabilities")
    return True


@dataclass(eq=False, repr=False, kw_only=True)
class ObjectivePerturbationClassifier(ClassifierMixin, PerturbedObjective):
    """Differentially private linear classification by objective perturbation.

    The released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2 plus a random linear term,
    over a public convex set. More than two classes are told apart one against the rest.

    Privacy: the releases, one for two classes and one for each class otherwise, are together (epsilon,
    delta)-differentially private under `adjacency`: each has its equal part.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    classes : array_like of shape (n_classes,)
        The declared labels, at least two; inferring them would tell of people. None where epsilon is ``inf``.
    loss : {"logistic", "hinge"} or GeneralisedLinearLoss, default "logistic"
        log(1 + exp(-margin)), or the hinge with its kink bent to be twice continuously differentiable
        (``SmoothedHinge`` of dpfast.solvers for another width).
    constraint : L2Ball, L1Ball or Box, optional
        The public set that parameters are in.
    bound_x, penalty, ridge, fit_intercept, calibration
        As for `ObjectivePerturbationRegressor`.
    adjacency, random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients: of the second class against the first, or of each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts; zeros without `fit_intercept`.
    classes_ : ndarray of shape (n_classes,)
        The declared labels, sorted.
    ridge_ : float
        The ridge used.
    bound_x_ : float
        Where it is "private": what was found.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    .. [1] Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
       regression. COLT. Algorithm 1.
    .. [2] Chaudhuri, K., Monteleoni, C., Sarwate, A. (2011). Differentially private empirical risk minimization. JMLR
       12, Sections 3.3 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import ObjectivePerturbationClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
    >>> y = np.where(X @ [1.0, 0.0, -2.0] > 0.0, "yes", "no")
    >>> model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.97
    True
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    classes: ArrayLike | None
    loss: Literal["logistic", "hinge"] | GeneralisedLinearLoss = "logistic"

    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {"logistic": LogisticLoss(), "hinge": SmoothedHinge()}

    @quiet
    def fit(self, X: Any, y: Any) -> Self:
        """Fit from rows: arrays, data frames, Arrow tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row; held in memory.
        y : array of shape (n_rows,)
            Their labels, in the same order; one outside `classes` is refused.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        return self._fit(self._checked(), X, y, columns=columns_of(X))

    @quiet
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Margins of new rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            Need not be bounded; margins of private rows are private and not covered by the release.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_classes) for more than two classes
        """
        margins = self._linear(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    @quiet
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the labels of new rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        margins = self.decision_function(X)
        chosen = (margins > 0.0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of the classes, by the logistic function of the margins; for loss="logistic".

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Of more than two classes each one's against the rest, scaled to add up to 1.
        """
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([expit(-margins), expit(margins)])
        each = np.maximum(expit(margins), np.finfo(np.float64).tiny)
        probabilities: FloatArray = each / each.sum(axis=1, keepdims=True)
        return probabilities

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.5,
        spread: float = SPREAD,
        score: float = ACCURACY,
        **parameters: Any,
    ) -> Plan:
        """Say what error privacy will add to margins, before any data is touched; nothing is spent.

        Parameters
        ----------
        n, n_features, spread, **parameters
            As for `ObjectivePerturbationRegressor.plan`.
        target : float, default 0.5
            Error wanted, as a fraction of a margin of 1.
        score : float, default 0.8
            Assumed accuracy without privacy.

        Returns
        -------
        Plan
            Expected error of a margin, from noise and from shrinkage, the number of people needed, and the accuracy to
            expect.

        Examples
        --------
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> plan = ObjectivePerturbationClassifier.plan(
        ...     100_000, 10, epsilon=1.0, delta=1e-6, bound_x=1.0, classes=[0, 1]
        ... )
        >>> plan.expected_error < 0.2
        True
        """
        return cls._planned(n, n_features, target, spread, score, parameters, "a margin of 1")

    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        return expected_accuracy(mechanism, n, score, len(self._declared_classes()), spread)

    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        # Margins of two classes that are told apart as well as is assumed.
        return 1.0 - (expected_accuracy(mechanism, n, ACCURACY, 2) - 0.5) / (ACCURACY - 0.5)

    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float) -> float:
        return lost_accuracy(mechanism, n, signal)

    def _check_parameters(self, privacy: Privacy) -> None:
        super()._check_parameters(privacy)
        if self.classes is not None:
            self._declared_classes()
        elif not math.isinf(privacy.epsilon):
            raise ValueError("classes must be declared: labels that are found in a table tell of the people in it")

    @property
    def _n_minimisers(self) -> int:
        n_classes = len(self._declared_classes())
        return 1 if n_classes == 2 else n_classes

    def _declared_classes(self) -> NDArray[Any]:
        """Return the declared labels, sorted."""
        declared = np.asarray(self.classes)
        if declared.ndim != 1:
            raise ValueError(f"classes must be a list of labels, got an array of shape {declared.shape}")
        classes: NDArray[Any] = np.unique(declared)
        if len(classes) < 2 or len(classes) != len(declared):
            raise ValueError(f"classes must be at least 2 different labels, got {len(declared)}")
        return classes

    def _opened(self, X: Any, y: Any) -> io.Table:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        # Entries of a list stay as they are: one among them must not make text, or doubles, of all.
        labels = _column(np.asarray(y, object) if isinstance(y, list | tuple) else y)
        return io.open_table(X, _signs(labels, self._declared_classes()).T)

    def _solve(self, mechanism: ObjectivePerturbation, releases: tuple[Release, ...], public: Any) -> dict[str, Any]:
        return super()._solve(mechanism, releases, public) | {"classes_": self._declared_classes()}

    def _fit_without_noise(self, X: Any, y: Any) -> Solved:
        rows, labels = check_X_y(X, y, dtype=np.float64)
        check_classification_targets(labels)
        classes = np.unique(labels) if self.classes is None else self._declared_classes()
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; got {len(classes)} class")
        releases, attributes = self._without_noise(rows, list(_signs(labels, classes)))
        return Solved(releases, attributes | {"classes_": classes})

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        n_minimisers = 1 if len(self.classes_) == 2 else len(self.classes_)
        yield from (("coef_", (n_minimisers, self.n_features_in_)), ("intercept_", (n_minimisers,)))


def _signs(labels: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
    """Return rows of -1 and 1: of the second class against the first, or of each class against the rest."""
    places = StateEncoder(classes).codes(labels)
    if np.any(places < 0):
        raise ValueError("y holds labels outside the declared classes")
    positive = np.arange(len(classes))[1 if len(classes) == 2 else 0 :]
    return np.where(places == positive[:, np.newaxis], 1.0, -1.0)


def _column(y: Any) -> NDArray[Any]:
    """Return outcomes as a 1-D array, as scikit-learn does, but without a message that says how many there are."""
    if np.iscomplexobj(y):
        raise ValueError("Complex data not supported: y must hold real numbers or labels")
    problem = "y should be a 1d array, with an entry for each row"
    column: NDArray[Any] = io.in_own_words(partial(column_or_1d, y, warn=True), problem)
    return column
