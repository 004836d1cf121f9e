"""Private convex empirical risk minimisation: regression and classification by noise in the objective.

The minimiser of a summed loss, over a public convex set and with a convex penalty, is released by objective
perturbation (releases/minimisers.py). Squared losses are minimised from exact moments of rows, others from the rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, column_or_1d

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.estimator.feature_names import columns_of, rows_to_predict
from dpfast.estimator.persistence import Persistent
from dpfast.estimator.plan import Plan
from dpfast.estimator.spending import reserve
from dpfast.kernels.threads import resolve_n_threads
from dpfast.ledger import Ledger, Release
from dpfast.privacy import Adjacency, Calibration, Privacy
from dpfast.releases.minimisers import (
    MOST_ROWS,
    Constraint,
    ObjectiveBounds,
    ObjectivePerturbation,
    Penalty,
    bounded_rows,
    check_problem,
    loss_of_moments,
    loss_of_rows,
    objective_perturbation,
    public_rows,
    row_bounds,
    with_constant,
)
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
from dpfast.solvers.proximal_point import minimise_convex
from dpfast.solvers.smooth_convex import SmoothConvexFunction
from dpfast.statistics import StateEncoder, gram, rounded_bound

__all__ = ["ObjectivePerturbationClassifier", "ObjectivePerturbationRegressor", "objective_perturbation"]


# Mean squared norm of rows as a fraction of their squared bound, where nothing is known.
_SPREAD = 0.25


class _PerturbedObjective(Persistent):
    """What both estimators share: parameters, bounds, the textbook estimator, plans."""

    _PARAMETER_TYPES = (L2Ball, L1Ball, Box, ElasticNet, Lasso, Ridge, LogisticLoss, SmoothedHinge, SmoothedHuber)
    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]]

    epsilon: float
    delta: float
    bound_x: float
    loss: str | GeneralisedLinearLoss
    constraint: Constraint | None
    penalty: Penalty | None
    ridge: float | Literal["auto"]
    fit_intercept: bool
    adjacency: Adjacency
    calibration: Calibration
    random_state: int | None
    n_threads: int | None
    ledger: Ledger | None

    @property
    def _outcome_bound(self) -> float:
        """Largest size of an outcome."""
        return 1.0

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
    def _constant(self) -> float:
        """Value of the constant feature, 0 for none: a power of two, with which moments are exact."""
        return 2.0 ** round(math.log2(self.bound_x)) if self.fit_intercept else 0.0

    @property
    def _given_ridge(self) -> float:
        return 0.0 if isinstance(self.ridge, str) else float(self.ridge)

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: coefficients"

    def _checked(self) -> Privacy:
        """Refuse bad parameters; the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        check.positive("bound_x", self.bound_x)
        check.positive("bound_y", self._outcome_bound)
        if not isinstance(self.ridge, str) or self.ridge != "auto":
            check.nonnegative("ridge", self.ridge)
        check.boolean("fit_intercept", self.fit_intercept)
        check.choice("calibration", self.calibration, get_args(Calibration))
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        noise.resolve_source(self.random_state)
        resolve_n_threads(self.n_threads)
        check_problem(self._resolved_loss, self.constraint, self.penalty)
        if not math.isinf(privacy.epsilon):
            n_features = self.constraint.low.size if isinstance(self.constraint, Box) else 1
            self._bounds(max(n_features - self.fit_intercept, 1), 1)
        return privacy

    def _bounds(self, n_features: int, n_rows: int) -> ObjectiveBounds:
        """Return what is public of a table, its number of rows where it is public."""
        constant, bound_x, bound_y = self._constant, float(self.bound_x), float(self._outcome_bound)
        if isinstance(self._resolved_loss, SquaredLoss):
            row_bound = with_constant(rounded_bound(bound_x, n_features), constant)
            sizes = {"row_bound": row_bound, "outcome_bound": rounded_bound(bound_y, 1)}
        else:
            sizes = row_bounds(bound_x, bound_y, constant)
        return ObjectiveBounds(
            self._resolved_loss,
            n_features + (constant > 0.0),
            constraint=self.constraint,
            penalty=self.penalty,
            n_rows=public_rows(n_rows, Privacy(1.0, 0.0, self.adjacency)),
            **sizes,
        )

    def _calibrated(self, privacy: Privacy, n_features: int, n_rows: int) -> ObjectivePerturbation:
        return ObjectivePerturbation.calibrate(
            privacy, self._bounds(n_features, n_rows), self.ridge, calibration=self.calibration
        )

    def _loss_of(self, rows: FloatArray, outcomes: FloatArray) -> SmoothConvexFunction:
        """Return the loss of rows that are bounded."""
        sizes = row_bounds(float(self.bound_x), float(self._outcome_bound), self._constant)
        return loss_of_rows(rows, outcomes, self._resolved_loss, **sizes, n_threads=self.n_threads)

    def _minimiser_without_noise(self, rows: FloatArray, outcomes: FloatArray) -> FloatArray:
        """Return the parameters of the textbook estimator: rows as they are, no more convexity than was asked for."""
        loss, ridge, constant = self._resolved_loss, self._given_ridge, self._constant
        if constant > 0.0:
            rows = np.column_stack([rows, np.full(len(rows), constant)])
        smooth = self.penalty is None or (isinstance(self.penalty, ElasticNet) and self.penalty.l1 == 0.0)
        if isinstance(loss, SquaredLoss) and self.constraint is None and smooth:
            ridge += self.penalty.l2 if isinstance(self.penalty, ElasticNet) else 0.0
            if ridge == 0.0:
                return np.asarray(linalg.lstsq(rows, outcomes)[0])
            moments = rows.T @ rows + ridge * np.eye(rows.shape[1])
            return np.asarray(linalg.solve(moments, rows.T @ outcomes, assume_a="pos"))
        function = loss_of_rows(
            np.ascontiguousarray(rows),
            outcomes,
            loss,
            row_bound=max(float(np.linalg.norm(rows, axis=1).max()) * (1.0 + 2.0**-30), 2.0**-100),
            outcome_bound=max(float(np.abs(outcomes).max()), 2.0**-100),
            n_threads=self.n_threads,
        )
        return minimise_convex(function, constraint=self.constraint, penalty=self.penalty, ridge=ridge)

    def _exact_release(self, coef: FloatArray) -> Release:
        return Release(self._release_name, "no", Privacy(math.inf, self.delta, self.adjacency), {"coef": coef}, {})

    def _fitted(self, releases: tuple[Release, ...], ridge: float) -> dict[str, Any]:
        """Return the attributes that both kinds have; coefficients as rows, one for each release."""
        parameters = np.array([release.values["coef"] for release in releases])
        constant = self._constant
        coef, intercept = parameters, np.zeros(len(parameters))
        if constant > 0.0:
            coef, intercept = parameters[:, :-1].copy(), constant * parameters[:, -1]
        privacy = releases[0].privacy
        if len(releases) > 1 and not math.isinf(privacy.epsilon):
            privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        return {
            "coef_": coef,
            "intercept_": intercept,
            "ridge_": ridge,
            "releases_": releases,
            "privacy_spent_": privacy,
        }

    def _keep(self, fitted: dict[str, Any], columns: dict[str, Any]) -> Self:
        """Set what was fitted, all at once; names of an earlier table's columns go."""
        return self._set_fitted(
            fitted | {"n_features_in_": fitted["coef_"].shape[-1]} | columns, ("feature_names_in_",)
        )

    def _check_loaded(self) -> None:
        self._checked()
        if not hasattr(self, "coef_"):
            return
        for name in ("coef_", "intercept_"):
            array = np.asarray(getattr(self, name))
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"{name} must hold finite numbers of float64")
        n_features = self.coef_.shape[-1]
        if (
            self.n_features_in_ != n_features
            or len(getattr(self, "feature_names_in_", range(n_features))) != n_features
        ):
            raise ValueError("n_features_in_ and feature_names_in_ must be those of coef_")
        check.nonnegative("ridge_", self.ridge_)
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")

    def _planned(self, privacy: Privacy, n: int, n_features: int, target: float, spread: float, unit: str) -> Plan:
        """Say what error privacy adds to a prediction, as a fraction of the outcomes' bound.

        The loss of n rows of mean squared norm spread bound_x^2, even over directions, has a curvature of H = n spread
        bound_x^2 l''/d. Noise b moves the prediction of such a row by sqrt(spread) bound_x |b_i|/(H + m); m shrinks
        one that is as large as the outcomes' bound by m/(H + m).
        """

        def error(people: int) -> float:
            chosen = self._calibrated(privacy, n_features, people)
            own, bounds = chosen.noise_scales, chosen.bounds
            curvature = people * spread * bounds.curvature / bounds.n_features
            size = bounds.row_bound / bounds.outcome_bound
            moved = math.sqrt(spread) * size * own.coordinate_scale(bounds.n_features)
            return math.hypot(moved, own.strong_convexity) / (curvature + own.strong_convexity)

        chosen = self._calibrated(privacy, n_features, n)
        own = chosen.noise_scales
        too_few = bisect_left(range(1, MOST_ROWS + 1), True, key=lambda people: error(people) <= target)
        needed = too_few + 1 if too_few < MOST_ROWS else None
        notes = {"strong convexity": own.strong_convexity, "epsilon left for the noise": own.noise_epsilon}
        return Plan(n, min(error(n), 1.0), target, needed, chosen.scales, relative_to=unit, notes=notes)


class ObjectivePerturbationRegressor(RegressorMixin, _PerturbedObjective):
    """Differentially private linear regression by objective perturbation.

    The released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2 plus a random linear term,
    over a public convex set.

    Privacy: the one release of the parameters is (epsilon, delta)-differentially private under `adjacency`.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the textbook estimator without noise or clipping.
    delta : float, default 0.0
        0 for pure differential privacy, by L2-Laplace noise; Gaussian noise otherwise.
    bound_x : float
        L2 norm of a row of X, at most; longer rows are scaled onto it.
    bound_y : float
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
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public (one row replaced) or private (one row more or less).
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed noise of [1]_: valid under "add_remove", too little under "replace_one", with a warning.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee, for anybody. A ledger takes each seed once.
    n_threads : int, optional
        Threads that go through the rows; the results do not depend on it.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept; 0 without `fit_intercept`.
    ridge_ : float
        The ridge used.
    releases_ : tuple of Release
        All that left the data.
    privacy_spent_ : Privacy
        What it cost.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, where X has any.

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

    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {"squared": SquaredLoss(), "huber": SmoothedHuber()}

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        bound_x: float,
        bound_y: float,
        loss: Literal["squared", "huber"] | GeneralisedLinearLoss = "squared",
        constraint: Constraint | None = None,
        penalty: Penalty | None = None,
        ridge: float | Literal["auto"] = "auto",
        fit_intercept: bool = False,
        adjacency: Adjacency = "replace_one",
        calibration: Calibration = "sound",
        random_state: int | None = None,
        n_threads: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bound_x = bound_x
        self.bound_y = bound_y
        self.loss = loss
        self.constraint = constraint
        self.penalty = penalty
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @property
    def _outcome_bound(self) -> float:
        return self.bound_y

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
        ValueError, TypeError
            If a parameter, a shape or an entry (NaN, inf) is not accepted. Nothing is spent then, and the estimator
            is left as it was.
        BudgetExceeded
            If the ledger has too little left; no data is read then.
        """
        privacy = self._checked()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        columns = columns_of(X)
        with reserve(self, privacy) as reservation:
            if math.isinf(privacy.epsilon):
                rows, outcomes = check_X_y(X, y, dtype=np.float64, y_numeric=True)
                ridge = self._given_ridge
                release = self._exact_release(self._minimiser_without_noise(rows, outcomes))
            else:
                table = io.open_table(X, _column(y) if isinstance(y, np.ndarray) else y)
                if table.n_outcomes != 1:
                    raise ValueError(f"y must have one column, got {table.n_outcomes}")
                function, n_rows = self._loss_of_table(table)
                chosen = self._calibrated(privacy, table.n_features, n_rows)
                ridge = chosen.ridge
                release = chosen.release(function, noise.resolve_source(self.random_state), self._release_name)
            reservation.commit(release)
        fitted = self._fitted((release,), ridge)
        fitted |= {"coef_": fitted["coef_"][0], "intercept_": float(fitted["intercept_"][0])}
        return self._keep(fitted, columns)

    @quiet
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by the release.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        predicted: FloatArray = rows @ self.coef_ + self.intercept_
        return predicted

    @classmethod
    def plan(cls, n: int, n_features: int, *, target: float = 0.1, spread: float = _SPREAD, **parameters: Any) -> Plan:
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
            Assumed mean squared norm of the rows as a fraction of their squared bound, even over directions.
        **parameters
            The estimator's own: epsilon, delta, bound_x, bound_y, ...

        Returns
        -------
        Plan
            Expected error of a prediction, from noise and from shrinkage, and the number of people needed.

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
        check.positive_integer("n", n)
        check.positive_integer("n_features", n_features)
        check.positive("target", target)
        check.positive("spread", spread)
        estimator = cls(**parameters)
        privacy = estimator._checked()
        if math.isinf(privacy.epsilon):
            return Plan.from_error(n, 0.0, target, {})
        return estimator._planned(privacy, n, n_features, target, spread, "the outcomes' bound")

    def _loss_of_table(self, table: io.Table) -> tuple[SmoothConvexFunction, int]:
        """Return the loss of a table's bounded rows, from moments where they will do, and the number of rows."""
        bound_x, bound_y = float(self.bound_x), float(self.bound_y)
        if isinstance(self._resolved_loss, SquaredLoss):
            exact = gram(table, bound_x=bound_x, bound_y=bound_y, sums=self.fit_intercept, n_threads=self.n_threads)
            return loss_of_moments(exact, self._constant), exact.n_rows
        if table.collections is not None:
            raise TypeError("X and y must be held in memory for a loss that is not squared: compute them first")
        rows, outcomes = bounded_rows(*_gathered(table), bound_x, bound_y, self._constant, self.n_threads)
        return self._loss_of(rows, outcomes), len(rows)


def _has_probabilities(estimator: ObjectivePerturbationClassifier) -> bool:
    if not isinstance(estimator._resolved_loss, LogisticLoss):
        raise AttributeError("predict_proba needs loss='logistic': margins of other losses are no probabilities")
    return True


class ObjectivePerturbationClassifier(ClassifierMixin, _PerturbedObjective):
    """Differentially private linear classification by objective perturbation.

    The released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2 plus a random linear term,
    over a public convex set. More than two classes are told apart one against the rest.

    Privacy: the releases, one for two classes and one for each class otherwise, are together (epsilon,
    delta)-differentially private under `adjacency`: each has its equal part.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the textbook estimator without noise or clipping.
    delta : float, default 0.0
        0 for pure differential privacy, by L2-Laplace noise; Gaussian noise otherwise.
    bound_x : float
        L2 norm of a row of X, at most; longer rows are scaled onto it.
    classes : array_like of shape (n_classes,)
        The declared labels, at least two; inferring them would tell of people. None where epsilon is ``inf``.
    loss : {"logistic", "hinge"} or GeneralisedLinearLoss, default "logistic"
        log(1 + exp(-margin)), or the hinge with its kink bent to be twice continuously differentiable
        (``SmoothedHinge`` of dpfast.solvers for another width).
    constraint : L2Ball, L1Ball or Box, optional
        The public set that parameters are in.
    penalty : Lasso, ElasticNet, Ridge or another Proximable, optional
        Added to the summed loss, not divided by the number of rows. Another Proximable goes with no constraint.
    ridge : float or "auto", default "auto"
        (ridge/2) ||theta||^2 is added, or more where less noise is worth it. "auto" leaves it to that.
    fit_intercept : bool, default False
        Add a constant feature of about the size of `bound_x`, which lengthens rows. Its coefficient, the last one,
        belongs to the constraint and the penalty as any.
    adjacency, calibration, random_state, n_threads, ledger
        As for `ObjectivePerturbationRegressor`.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients: of the second class against the first, or of each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts; zeros without `fit_intercept`.
    classes_ : ndarray of shape (n_classes,)
        The declared labels, sorted.
    ridge_, releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for `ObjectivePerturbationRegressor`.

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

    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {"logistic": LogisticLoss(), "hinge": SmoothedHinge()}

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        bound_x: float,
        classes: ArrayLike | None,
        loss: Literal["logistic", "hinge"] | GeneralisedLinearLoss = "logistic",
        constraint: Constraint | None = None,
        penalty: Penalty | None = None,
        ridge: float | Literal["auto"] = "auto",
        fit_intercept: bool = False,
        adjacency: Adjacency = "replace_one",
        calibration: Calibration = "sound",
        random_state: int | None = None,
        n_threads: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bound_x = bound_x
        self.classes = classes
        self.loss = loss
        self.constraint = constraint
        self.penalty = penalty
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @quiet
    def fit(self, X: Any, y: Any) -> Self:
        """Fit from rows: arrays, data frames, Arrow tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row; held in memory.
        y : array of shape (n_rows,)
            Their labels, in the same order.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError
            If a parameter, a shape, an entry (NaN, inf) or a label is not accepted. Nothing is spent then, and the
            estimator is left as it was.
        BudgetExceeded
            If the ledger has too little left; no data is read then.
        """
        privacy = self._checked()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        columns = columns_of(X)
        with reserve(self, privacy) as reservation:
            if math.isinf(privacy.epsilon):
                rows, labels = check_X_y(X, y, dtype=np.float64)
                check_classification_targets(labels)
                classes = self._declared_classes(labels)
                ridge = self._given_ridge
                releases = tuple(
                    self._exact_release(self._minimiser_without_noise(rows, signs)) for signs in _signs(labels, classes)
                )
            else:
                classes = self._declared_classes(None)
                # Entries of a list stay as they are: one among them must not make text, or doubles, of all.
                labels = _column(np.asarray(y, object) if isinstance(y, list | tuple) else y)
                signs = _signs(labels, classes)
                rows, _ = bounded_rows(
                    _in_memory(X), signs[0], float(self.bound_x), 1.0, self._constant, self.n_threads
                )
                k = len(signs)
                share = Privacy(privacy.epsilon / k, privacy.delta / k, privacy.adjacency)
                chosen = self._calibrated(share, rows.shape[1] - self.fit_intercept, len(rows))
                ridge, source = chosen.ridge, noise.resolve_source(self.random_state)
                names = [self._release_name] if k == 1 else [f"{self._release_name} of class {i}" for i in range(k)]
                releases = tuple(
                    chosen.release(self._loss_of(rows, own), source, name)
                    for own, name in zip(signs, names, strict=True)
                )
            reservation.commit(*releases)
        return self._keep(self._fitted(releases, ridge) | {"classes_": classes}, columns)

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
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        margins: FloatArray = rows @ self.coef_.T + self.intercept_
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
    def plan(cls, n: int, n_features: int, *, target: float = 0.5, spread: float = _SPREAD, **parameters: Any) -> Plan:
        """Say what error privacy will add to margins, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        n_features : int
            Width of X.
        target : float, default 0.5
            Error wanted, as a fraction of a margin of 1.
        spread : float, default 0.25
            Assumed mean squared norm of the rows as a fraction of their squared bound, even over directions.
        **parameters
            The estimator's own: epsilon, delta, bound_x, classes, ...

        Returns
        -------
        Plan
            Expected error of a margin, from noise and from shrinkage, and the number of people needed.

        Examples
        --------
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> plan = ObjectivePerturbationClassifier.plan(
        ...     100_000, 10, epsilon=1.0, delta=1e-6, bound_x=1.0, classes=[0, 1]
        ... )
        >>> plan.expected_error < 0.2
        True
        """
        check.positive_integer("n", n)
        check.positive_integer("n_features", n_features)
        check.positive("target", target)
        check.positive("spread", spread)
        estimator = cls(**parameters)
        privacy = estimator._checked()
        if math.isinf(privacy.epsilon):
            return Plan.from_error(n, 0.0, target, {})
        n_classes = len(estimator._declared_classes(None))
        k = 1 if n_classes == 2 else n_classes
        share = Privacy(privacy.epsilon / k, privacy.delta / k, privacy.adjacency)
        return estimator._planned(share, n, n_features, target, spread, "a margin of 1")

    def _checked(self) -> Privacy:
        privacy = super()._checked()
        if self.classes is not None:
            self._declared_classes(None)
        elif not math.isinf(privacy.epsilon):
            raise ValueError("classes must be declared: labels that are found in a table tell of the people in it")
        return privacy

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if hasattr(self, "coef_") and (
            self.coef_.shape != (1 if len(self.classes_) == 2 else len(self.classes_), self.n_features_in_)
            or self.intercept_.shape != self.coef_.shape[:1]
        ):
            raise ValueError("coef_ and intercept_ must have a row for each class, or one for two")

    def _declared_classes(self, labels: NDArray[Any] | None) -> NDArray[Any]:
        """Return the declared labels, sorted; those found where none are declared, for epsilon = inf."""
        if self.classes is None:
            found: NDArray[Any] = np.unique(labels if labels is not None else [])
            if len(found) < 2:
                raise ValueError(f"y must have at least 2 classes; got {len(found)} class")
            return found
        declared = np.asarray(self.classes)
        if declared.ndim != 1:
            raise ValueError(f"classes must be a list of labels, got an array of shape {declared.shape}")
        classes: NDArray[Any] = np.unique(declared)
        if len(classes) < 2 or len(classes) != len(declared):
            raise ValueError(f"classes must be at least 2 different labels, got {len(declared)}")
        return classes


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


def _in_memory(X: Any) -> NDArray[Any]:
    """Return a table without outcomes as one array."""
    table = io.open_table(X)
    if table.collections is not None:
        raise TypeError("X must be held in memory for classification: compute it first")
    blocks = [np.asarray(block) for block, _ in table.blocks()]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _gathered(table: io.Table) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and the one outcome of a table as arrays."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in table.blocks() if y is not None]
    if len(pairs) == 1:
        return pairs[0][0], pairs[0][1][:, 0]
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y[:, 0] for _, y in pairs])
