"""Private linear classification, by noise in the objective or in the steps of a descent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y

from dpfast import _arguments as check
from dpfast import io, plotting
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.convex_erm.calibration import (
    N_POINTS,
    Classes,
    calibrated_log_odds,
    gaps,
    interpolated,
    limits,
    mixed_log_odds,
    placed,
    unit_of,
    weight_of_class,
    weight_of_link,
    zero_of,
)
from dpfast.convex_erm.estimator import PerturbedObjective, column_of
from dpfast.convex_erm.inference import LEVEL, NO_MEAN, UNKNOWN, marginal_effects
from dpfast.convex_erm.mechanism import (
    ACCURACY,
    SPREAD,
    Calibrated,
    Counts,
    Descended,
    Descent,
    FewCounts,
    Labelled,
    Link,
    Minimisers,
    NoisyDescent,
    PlanRequest,
    expected_accuracy,
    fitting,
    lost_accuracy,
    lost_of_released,
    lost_share,
    unit_of_margins,
)
from dpfast.estimator.base import Expected, Fitted, Solved, Summed, explains_parameters
from dpfast.estimator.bounded import columns_of, missing_outcomes
from dpfast.estimator.plan import Plan
from dpfast.io.states import StateEncoder
from dpfast.io.summaries import Estimates
from dpfast.plotting.estimates import draw_classes
from dpfast.privacy import Privacy, Unit
from dpfast.privacy.objective import FINISHING_SHARE, SplitCost
from dpfast.releases.mechanism import NoisySum
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.releases.people import People
from dpfast.releases.size_counts import SHARE
from dpfast.solvers import GeneralisedLinearLoss, LogisticLoss, SmoothedHinge
from dpfast.statistics.rows import RowMap, limits_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Two classes are told apart by descent where margins are expected to agree less than this with those sought. There a
# minimiser, which finds directions by how people differ from 0, is right on up to .09 less (breast cancer about the
# middle of its limits, epsilon 1), or on as much (about a quarter of them); above, on up to .01 more (digits).
_DESCENT_AGREES = 0.9

# Logarithms of odds by margins, where they are not calibrated: with least logarithmic loss on held-out rows of 17
# tables, factors of 0.4 to 6 over 1 + shift/2, mostly 0.7 to 2, and for a hinge 1.4 to 4.8.
_FLATTENED = 0.5
# On digits twice as much was right on .02 more, on rows of breast cancer far from their middle on .13 less (6 runs).
_CONVEXITY_WITH_INTERCEPT = 0.5
_HINGE_LOGIT = 2.0
_LEAST_WEIGHT = 2.0**-100
# With fewer rows over the deviation of a count, for two classes or for each of several, after minimisers or descent,
# people are few.
_ENOUGH_OF_TWO, _ENOUGH_OF_EACH = 9.0, (5.0, 8.0)
# Of more classes no bins are counted after minimisers where people are few. Of six the link alone has more loss.
_FEW_CLASSES = 6
_TWO_CLASSES = "inference=True goes with two classes: fit each against the rest by itself"


@dataclass(frozen=True)
class _DistanceTo(SplitCost):
    """How far strong convexity is from what is wanted, by its logarithm."""

    convexity: float

    def __call__(self, deviation: float, convexity: float) -> float:
        return abs(math.log(convexity / self.convexity)) if deviation < math.inf else math.inf


@explains_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class ObjectivePerturbationClassifier(ClassifierMixin, PerturbedObjective):
    """Differentially private linear classification by objective perturbation, or by noisy gradient descent.

    By objective perturbation, the released parameters minimise the summed loss plus penalty plus (ridge/2) ||theta||^2
    plus a random linear term, over a public convex set; more than two classes are told apart one against the rest.
    By descent, noisy sums of slopes times rows are released step after step, all classes in one.

    Privacy: the releases, one for two classes and one for each class, or one for each step, counts of margins, and sums
    for standard errors, are together (epsilon, delta)-differentially private under `adjacency`.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    classes : array_like of shape (n_classes,)
        The declared labels, at least two: labels found in the rows would reveal people. May be None where epsilon is
        ``inf``.
    loss : {"auto", "logistic", "hinge"} or GeneralisedLinearLoss, default "auto"
        "logistic" is log(1 + exp(-margin)); "hinge" is the hinge, smoothed to be twice continuously differentiable
        (``SmoothedHinge`` of dpfast.solvers has another width). "auto" is log(1 + exp(shift - margin)): with the shift
        rows near the boundary have their full slope. The shift is large where noise is large, and 0 where noise is
        small, by the budget and the table's size, which also choose the ridge if that is "auto". There is no shift by
        descent, with a constraint, with `inference` or with ``calibration="paper"``.
    method : {"auto", "objective", "gradient"}, default "auto"
        "objective" is objective perturbation, "gradient" noisy gradient descent on the logistic loss (cross-entropy for
        more than two classes). Descent needs delta above 0 and takes no constraint, penalty or ridge; its steps need no
        tuning. "auto" is descent, if possible, for more than two classes and with `inference`; for two classes only if
        the number of people is public, and small for the number of features. Where epsilon is ``inf`` both are the
        minimiser.
    class_weight : mapping, optional
        Positive public weights of declared classes; classes that it omits have weight 1, and by default all do. A row's
        loss is multiplied by the weight of its class over the largest weight, so nobody has more weight than without
        weights. "balanced", which counts labels, is refused: take frequencies of classes from elsewhere. Probabilities
        and the ridge are those of the weighted loss.
    constraint : L2Ball, L1Ball or Box, optional
        The public set that the coefficients are in; by default all.
    probabilities : {"calibrated", "link"}, default "calibrated"
        "calibrated" spends a seventh of the budget on noisy counts of the rows by margin and class, after the
        coefficients. `predict_proba` is fitted to these, and `predict` takes the most probable class. "link" leaves the
        whole budget to the coefficients: probabilities are then a fixed function of the margins, not calibrated. It is
        used in any case with ``calibration="paper"``, where epsilon is ``inf``, and for seven or more classes with few
        people by objective perturbation. By descent with few people two short releases replace the counts: rows by
        class, and a sum that is large if the margins make the rows' classes more probable than their rates do.
        Probabilities are then a mixture of rates and a function of the margins. These releases take 9% (three classes)
        to 1% of the budget, for two classes 15%, and of very few people up to two fifths. Rows are clipped to `bound_x`
        in predictions, too.
    bound_x, box_x, penalty, ridge, fit_intercept, calibration, inference, max_weight
        As for `ObjectivePerturbationRegressor`.
    adjacency, random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients: of the second class against the first, or of each class against the rest. Predictions use them.
        They are shrunk, and the loss may be shifted. With `inference`, `estimate_` is of the logistic loss.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts; zeros where none is fitted.
    classes_ : ndarray of shape (n_classes,)
        The declared labels, sorted.
    ridge_ : float
        The ridge used; 0 by descent.
    method_ : str
        "objective" or "gradient".
    shift_ : float
        Where loss is "auto", the method objective perturbation, and no set confines parameters: the shift used.
    log_odds_ : ndarray of shape (2, n_points) or (1 + n_classes, n_points)
        Log-odds, if probabilities are calibrated. For two classes: margins ``X @ coef_.T + intercept_``, and the
        logarithm of the odds of the second class at each of them, between and beyond which it is linear. For more
        classes: gaps from the largest other margin to the one of a class, and the log-odds of each class against all
        others.
    estimate_, covariance_ : ndarray
        With ``inference=True``, for two classes: as for `ObjectivePerturbationRegressor`.
    mean_curvature_ : ndarray of shape (2,)
        With ``inference=True``, an intercept, and a number of people that is public or released: the mean of p (1 - p)
        over people, and the deviation of the noise in it.
    bound_x_ : float
        The bound found, if it is "private".
    caution_ : str
        With a bound of rows that is found: why columns need limits of their own, as `fit` warned, or empty.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    .. [1] Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
       regression. COLT. Algorithm 1.
    .. [2] Chaudhuri, K., Monteleoni, C., Sarwate, A. (2011). Differentially private empirical risk minimization. JMLR
       12, Sections 3.3 and 4.
    .. [3] Bassily, R., Smith, A., Thakurta, A. (2014). Private empirical risk minimization: efficient algorithms and
       tight error bounds. FOCS. Algorithm 1; here with whole sums, momentum, and composed as Gaussian releases.

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
    loss: Literal["auto", "logistic", "hinge"] | GeneralisedLinearLoss = "auto"
    class_weight: Mapping[Any, float] | None = None
    probabilities: Literal["calibrated", "link"] = "calibrated"

    _SCALE: ClassVar[str] = (
        "scores, not log-odds (predict_proba has probabilities; inference=True releases log-odds of two classes, with "
        "odds ratios), "
    )
    _DESCENT_TAKES: ClassVar[str] = "loss='auto' or 'logistic'"
    # "auto" is this one until there are public numbers to fit it to.
    _LOSSES: ClassVar[dict[str, GeneralisedLinearLoss]] = {
        "auto": LogisticLoss(),
        "logistic": LogisticLoss(),
        "hinge": SmoothedHinge(),
    }

    intercept_: FloatArray = field(init=False)
    classes_: NDArray[Any] = field(init=False)
    ridge_: float = field(init=False)
    method_: str = field(init=False)
    shift_: float = field(init=False)
    log_odds_: FloatArray = field(init=False)

    @suppress_float_warnings
    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit from rows: arrays, data frames, Arrow tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row; held in memory. Of `dpfast.io.Partitions`, which descent takes, parts hold the labels too.
        y : array of shape (n_rows,)
            Their labels, in the same order; one outside `classes` is refused.
        groups, max_rows
            As for `ObjectivePerturbationRegressor.fit`. Probabilities are calibrated with the first row of each person.
        sample_weight : array of shape (n_rows,), optional
            Weight of each row's loss, as private as the row; goes with `max_weight`. Rows have weights in counts of
            margins too, so that probabilities are those of the weighted rows.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        people: dict[str, Any] = {"groups": groups, "max_rows": max_rows, "columns": lambda: columns_of(X)}
        return self._fit_weighted(X, y, sample_weight, **people)

    @suppress_float_warnings
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores of new rows: the class with the largest is predicted, or the second of two where it is positive.

        Margins, where probabilities are not calibrated. Calibrated, for two classes they are the margin less the one of
        equal probability. For more classes they are the log-odds of each class against all others.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            Clipped to `bound_x`, as in the fit; margins of private rows are private and not covered by the release.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_classes) for more than two classes
        """
        return self._in_output_type(self._scores(X), X, self.classes_.tolist())

    def _scores(self, X: ArrayLike) -> FloatArray:
        margins = self._margins(X)
        if not hasattr(self, "log_odds_"):
            return margins
        return margins - zero_of(self.log_odds_) if margins.ndim == 1 else self._log_odds(margins)

    def _margins(self, X: ArrayLike) -> FloatArray:
        margins = self._linear(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    @suppress_float_warnings
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the labels of new rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        scores = self._scores(X)
        chosen = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return self._in_output_type(self.classes_[chosen], X, None)

    @suppress_float_warnings
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of the classes.

        Calibrated by noisy counts, unless told otherwise: `log_odds_` says how. With ``probabilities="link"`` they are
        a fixed function of the margins. For the logistic loss it is the logistic function, of margins divided by 1 +
        shift/2 where the loss is shifted. For a hinge it is the logistic function of twice the margins. For other
        losses it is the probability at which the margin has least expected loss. Nothing is learned then of how
        probable margins are.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Of more than two classes each one's against the rest, scaled to add up to 1; by "link" of descent the
            softmax of the margins.
        """
        return self._in_output_type(self._probabilities(self._margins(X)), X, self.classes_.tolist())

    def _log_odds(self, margins: FloatArray) -> FloatArray:
        """Return calibrated log-odds: of the second class, or of each against all others."""
        at, curves = self.log_odds_[0], self.log_odds_[1:]
        each = gaps(margins[:, np.newaxis] if margins.ndim == 1 else margins).T
        odds = np.array([interpolated((at, curve), own) for curve, own in zip(curves, each, strict=True)])
        return odds[0] if margins.ndim == 1 else odds.T

    def _probabilities(self, margins: FloatArray) -> FloatArray:
        if hasattr(self, "log_odds_"):
            odds = self._log_odds(margins)
            if margins.ndim == 1:
                return np.column_stack([expit(-odds), expit(odds)])
            return np.asarray(softmax(log_expit(odds), axis=1))
        if margins.ndim == 1:
            return np.column_stack([self._probability(-margins), self._probability(margins)])
        if self.method_ == "gradient":
            return np.asarray(softmax(margins, axis=1))
        each = np.maximum(self._probability(margins), np.finfo(np.float64).tiny)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def plot_calibration(
        self,
        X_public: ArrayLike,
        y_public: ArrayLike,
        *,
        positive: object = None,
        n_bins: int = 10,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw how often a class came true of public rows that were given a probability of it.

        Privacy: the rows are drawn as they are, and are declared public by being given; of private ones the picture
        would be covered by no guarantee.

        Parameters
        ----------
        X_public : array or DataFrame of shape (n_rows, n_features)
            Public rows.
        y_public : array of shape (n_rows,)
            Their labels.
        positive : label, optional
            The class that is meant. By default the second of two, each of up to four, and of more all together: every
            row then counts for each class.
        n_bins, ax, title, label, unit
            As for `dpfast.plotting.calibration`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Raises
        ------
        ValueError
            If a label, or `positive`, is none of the classes.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
        >>> y = np.where(X @ [1.0, 0.0, -2.0] > 0.0, "yes", "no")
        >>> model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], random_state=0)
        >>> axes = model.fit(X[:19_000], y[:19_000]).plot_calibration(X[19_000:], y[19_000:], title="Held out")
        >>> axes.get_title()
        'Held out'
        """
        picture = partial(plotting.calibration, n_bins=n_bins)
        return draw_classes(picture, self, X_public, y_public, positive, (ax, title, label, unit))

    def plot_roc(
        self,
        X_public: ArrayLike,
        y_public: ArrayLike,
        *,
        positive: object = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw the receiver operating characteristic on public rows.

        Privacy: as for `plot_calibration`, the rows are declared public by being given.

        Parameters
        ----------
        X_public, y_public, positive
            As for `plot_calibration`.
        ax, title, label, unit
            As for `dpfast.plotting.roc`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Raises
        ------
        ValueError
            If a label, or `positive`, is none of the classes, or no row has one that is drawn, or all have.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
        >>> y = np.where(X @ [1.0, 0.0, -2.0] > 0.0, "yes", "no")
        >>> model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], random_state=0)
        >>> model.fit(X[:19_000], y[:19_000]).plot_roc(X[19_000:], y[19_000:]).get_xlabel()
        'false positive rate'
        """
        return draw_classes(plotting.roc, self, X_public, y_public, positive, (ax, title, label, unit))

    def marginal_effects(self, *, level: float = LEVEL) -> DataFrame:
        """Tabulate average marginal effects: what a unit of a feature does to the probability, mean over people.

        Privacy: computed from what was released; nothing further is spent.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits.

        Returns
        -------
        pandas.DataFrame
            A row a feature, with the columns ``estimate``, the mean of p (1 - p) times the coefficient, as statsmodels'
            ``get_margeff`` has it for features that are no indicators; ``std_error``, by the delta method; ``low``,
            ``high`` and ``p_value``. All are NaN where the coefficient is not known, and everywhere without an
            intercept or, under "add_remove", by objective perturbation: the sum of p (1 - p), or the number of people,
            is not released there. ``attrs["note"]`` says which.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1), or the estimator has ``inference=False``.
        """
        check_is_fitted(self)
        if not self.inference:
            raise ValueError("marginal_effects needs inference=True: what it is made of was not released")
        chosen = slice(int(self.fit_intercept), None)
        mean = getattr(self, "mean_curvature_", np.full(2, np.nan))
        columns = marginal_effects(self.estimate_[chosen], self.covariance_[chosen, chosen], mean, level)
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        is_hidden = np.isnan(self.estimate_[chosen])
        note = UNKNOWN if is_hidden.all() else NO_MEAN if np.isnan(mean).any() else UNKNOWN if is_hidden.any() else None
        header = self._header(level=level, target="population", note=note)
        return Estimates({"feature": names}, columns, header).frame()

    @property
    def _names_one_side(self) -> bool:
        return True

    def _sides(self) -> tuple[str, list[Any]]:
        classes: list[Any] = self.classes_.tolist()
        return "class", classes[1:] if len(classes) == 2 else classes

    def _drawn_sides(self) -> Sequence[object]:
        classes: list[object] = self.classes_.tolist()
        return [f"{classes[1]} against {classes[0]}"] if len(classes) == 2 else classes

    def _probability(self, margins: FloatArray) -> FloatArray:
        loss = self._resolved_loss
        if self.method_ == "gradient":
            logits = margins
        elif isinstance(loss, LogisticLoss):
            logits = margins / (1.0 + _FLATTENED * (self.shift_ if self._shifts else loss.shift))
        elif isinstance(loss, SmoothedHinge):
            logits = _HINGE_LOGIT * margins
        else:
            return loss.probability(margins)
        return np.asarray(expit(logits))

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.5,
        spread: float = SPREAD,
        score: float = ACCURACY,
        max_rows: int | None = None,
        **parameters: Any,
    ) -> Plan:
        """Say what error privacy will add to margins, before any data is touched; nothing is spent.

        Parameters
        ----------
        n, n_features, spread, max_rows
            As for `ObjectivePerturbationRegressor.plan`.
        target : float, default 0.5
            Error wanted, as a fraction of a margin of 1.
        score : float, default 0.8
            Assumed accuracy without privacy.
        **parameters
            The estimator's own: epsilon, delta, bound_x, classes, ...

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
        return cls._planned(PlanRequest(n, n_features, target, spread, score, "a margin of 1", max_rows), parameters)

    def _plan(self, privacy: Privacy, requested: PlanRequest) -> Plan:
        if requested.max_rows is None and self._chosen_descent(privacy, requested.n_features, requested.n) is None:
            return super()._plan(privacy, requested)
        calibrated = partial(self._descent, privacy, requested.n_features, max_rows=requested.max_rows)
        mechanism, n_classes, each = calibrated(requested.n)[0], len(self._declared_classes()), requested.max_rows or 1

        def lost(people: int) -> float:  # who own as many rows as count
            return lost_share(calibrated(people)[0].agreement(people * each), requested.score, n_classes)

        expected = requested.score - max(requested.score - 1.0 / n_classes, 0.0) * lost(requested.n)
        notes = {"steps": float(mechanism.schedule(requested.n * each).n_steps)}
        requested = requested._replace(relative_to="what classes differ by")
        return requested.plan(lost, mechanism.scales, expected, notes)

    def _calibrated(self, privacy: Privacy, n_features: int, n_rows: int) -> ObjectivePerturbation:
        _, rest = self._counts(privacy, n_features, n_rows, is_gaussian=False)
        return super()._calibrated(rest, n_features, n_rows)

    @property
    def _counts_margins(self) -> bool:
        """Whether a part of the budget is for counts of margins: the printed noise knows none."""
        is_sound = self.calibration == "sound" and not math.isinf(self.epsilon)
        return is_sound and self.probabilities == "calibrated"

    def _counts(
        self, privacy: Privacy, n_features: int, n_rows: int | None, *, is_gaussian: bool, unit: Unit = "row"
    ) -> tuple[Counts | FewCounts | None, Privacy]:
        """Return how rows are counted, and what is left of the budget: by public numbers."""
        if not self._counts_margins:
            return None, privacy
        further = weight_of_class(self._n_minimisers)
        # Coefficients pay for the histogram of classes: noise in the others is as without it.
        share = SHARE * (1.0 + (further**2 if is_gaussian else further) / self._n_minimisers)
        shape = (self._n_minimisers,)
        split = partial(NoisySum.counts_within, privacy, is_gaussian, share, *shape, further=further, unit=unit)
        about_intercept = self._n_minimisers == 1 and self.fit_intercept
        n_rows = self._known_rows(n_rows, None)
        edges = limits(n_rows, split(1)[0].deviation)
        ends = placed(edges, 1.0, 0.0 if about_intercept else None)
        noise, rest = split(2 * len(ends))
        descends = is_gaussian and privacy.delta > 0.0
        enough = _ENOUGH_OF_TWO if shape[0] == 1 else _ENOUGH_OF_EACH[descends] * shape[0]
        if n_rows is not None and n_rows < enough * noise.deviation:
            if descends:
                noises, rest = FewCounts.split(privacy, max(shape[0], 2), max(n_rows, 1))
                counted = None if self._is_counted_in_part else n_rows
                return FewCounts(noises, *self._bounded_rows(n_features), counted), rest
            if shape[0] > _FEW_CLASSES:
                return None, privacy
        return Counts(noise, *self._bounded_rows(n_features), edges, about_intercept), rest

    def _counted(
        self, summed: Summed, privacy: Privacy, counts: Counts | FewCounts | None, table: io.Table, groups: Any = None
    ) -> Summed:
        """Have margins counted after the fit."""
        if counts is None:
            return summed
        fit = summed.mechanism
        assert isinstance(fit, Minimisers | Descent)
        mechanism = Calibrated(privacy, fit, counts)
        labelled = Labelled(summed.statistic, table, self.n_threads, groups)
        return summed._replace(mechanism=mechanism, statistic=labelled)

    def _perturbation(self, share: Privacy, bounds: ObjectiveBounds) -> ObjectivePerturbation:
        if not self._shifts:
            return super()._perturbation(share, bounds)
        shift, convexity = fitting(share, bounds.n_features, bounds.n_rows)
        chosen = replace(bounds, loss=LogisticLoss(shift))
        if self.fit_intercept:
            # Rows that have a mean of their own pull that way first, and more convexity keeps them at that.
            convexity = min(convexity, _CONVEXITY_WITH_INTERCEPT)
        target = convexity * chosen.free_convexity(share.epsilon * (1.0 - FINISHING_SHARE))
        return ObjectivePerturbation.calibrate(share, chosen, self.ridge, cost=_DistanceTo(target))

    @property
    def _predicted_map(self) -> RowMap:
        if math.isinf(self.epsilon):
            return super()._predicted_map
        bound = getattr(self, "bound_x_", self.bound_x)
        low, high = vars(self).get("_limits_", (None, None))
        return RowMap(low, high, math.inf if bound is None else float(bound))

    @property
    def _shifts(self) -> bool:
        """Whether the loss is fitted to public numbers: only where no set bounds the slope, and for sound noise."""
        automatic = isinstance(self.loss, str) and self.loss == "auto"
        is_free = self.constraint is None and not self.inference
        return automatic and is_free and self.calibration == "sound" and not math.isinf(self.epsilon)

    def _expected_score(self, mechanism: ObjectivePerturbation, n: int, score: float, spread: float) -> float:
        return expected_accuracy(mechanism, n, score, len(self._declared_classes()), spread)

    def _expected_error(self, mechanism: ObjectivePerturbation, n: int) -> float:
        # Margins of two classes that are told apart as well as is assumed.
        return 1.0 - (expected_accuracy(mechanism, n, ACCURACY, 2) - 0.5) / (ACCURACY - 0.5)

    def _error_of(self, mechanism: ObjectivePerturbation, n: int, coef: FloatArray) -> float:
        if self._shifts:
            # Margins that are shifted are no logarithms of odds.
            return lost_of_released(mechanism, n, coef)
        return super()._error_of(mechanism, n, coef)

    def _error_of_signal(self, mechanism: ObjectivePerturbation, n: int, signal: float, curvature: float) -> float:
        return lost_accuracy(mechanism, n, signal)

    def _check_parameters(self, privacy: Privacy) -> None:
        super()._check_parameters(privacy)
        if self.classes is not None:
            self._weights(self._declared_classes())
        elif not math.isinf(privacy.epsilon):
            raise ValueError(
                "classes must be declared, such as classes=[0, 1]: labels read from a table reveal people in it"
            )
        check.choice("probabilities", self.probabilities, ("calibrated", "link"))

    @property
    def _is_loss_of_descent(self) -> bool:
        return isinstance(self.loss, str) and self.loss in ("auto", "logistic")

    @property
    def _is_gaussian(self) -> bool:
        return self.method == "gradient" or (self._may_descend and self._needs_descent)

    @property
    def _needs_descent(self) -> bool:
        """Whether descent is taken where it can be: standard errors share mu with it."""
        return self.inference or self._n_minimisers > 2

    def _chosen_descent(
        self, privacy: Privacy, n_features: int, n_rows: int
    ) -> tuple[NoisyDescent, Counts | FewCounts | None] | None:
        """Choose the method, from public numbers: None is for minimisers."""
        if self.method != "gradient" and not self._may_descend:
            return None
        chosen = self._descent(privacy, n_features, n_rows)
        if self.method == "gradient" or self._needs_descent:
            return chosen
        rows, are_few = chosen[0].n_rows, isinstance(chosen[1], FewCounts)
        return chosen if rows is not None and (are_few or chosen[0].agreement(rows) < _DESCENT_AGREES) else None

    def _descent(
        self, privacy: Privacy, n_features: int, n_rows: int | None, max_rows: int | None = None
    ) -> tuple[NoisyDescent, Counts | FewCounts | None]:
        """Return the descent, and how margins are counted after it."""
        sizes = n_features, self._n_minimisers
        rows = self._known_rows(n_rows, max_rows)
        unit: Unit = "row" if max_rows is None else "person"
        counts, rest = self._counts(privacy, n_features, rows, is_gaussian=True, unit=unit)
        row_map = self._row_map(n_features)
        return NoisyDescent(rest, self._link, row_map, sizes, self.fit_intercept, rows, max_rows), counts

    @property
    def _link(self) -> Link:
        return "logistic" if self._n_minimisers == 1 else "softmax"

    def _row_map(self, n_features: int) -> RowMap:
        """Return the map of rows to the units in which the constant is 1, and the longest row about 4.

        Rows a third longer would ask for as much more noise; a constant far shorter would learn the intercept slowly.
        """
        row_map, _ = self._bounded_rows(n_features)
        scale = np.ones(n_features) if row_map.scale is None else row_map.scale
        return replace(row_map, scale=self._unit(n_features) * scale)

    def _unit(self, n_features: int) -> float:
        """Return the unit of rows by descent."""
        return float(2.0 ** (round(math.log2(self._bounded_rows(n_features)[1])) - 2))

    @property
    def _n_minimisers(self) -> int:
        # What is no list of labels is refused with them.
        n_classes = len(self.classes) if isinstance(self.classes, list) else len(self._declared_classes())
        return 1 if n_classes == 2 else n_classes

    def _declared_classes(self) -> NDArray[Any]:
        """Return the declared labels, sorted."""
        unlike = "classes must be labels of one kind, numbers or strings, none of them missing"
        declared = io.redact_errors(partial(np.asarray, self.classes), unlike)
        if declared.ndim != 1:
            raise ValueError(f"classes must be a list of labels, got {type(self.classes).__name__}")
        if declared.dtype.kind == "f" and np.isnan(declared).any():
            raise ValueError(unlike)
        classes: NDArray[Any] = io.redact_errors(partial(np.unique, declared), unlike, TypeError)
        if len(classes) < 2 or len(classes) != len(declared):
            repeats = ", some of them alike" * (len(classes) != len(declared))
            raise ValueError(f"classes must be at least 2 different labels, got {len(declared)}{repeats}")
        return classes

    def _weights(self, classes: NDArray[Any]) -> FloatArray:
        """Return what rows of each class count for, next to the heaviest class."""
        weights = np.ones(len(classes))
        given: object = self.class_weight
        if given is None:
            return weights
        if isinstance(given, str):
            raise ValueError(
                f"class_weight must not be {given!r}: weights computed from how often labels occur reveal people in "
                "the table; declare public weights, as a mapping from classes to numbers"
            )
        if not isinstance(given, Mapping):
            raise TypeError(
                f"class_weight must be a mapping from classes to weights or None, got {type(given).__name__}"
            )
        encoder = StateEncoder(classes)
        for label, weight in given.items():
            place = encoder.codes([label])[0]
            if place < 0:
                raise ValueError(f"class_weight must have weights of declared classes alone, got one of {label!r}")
            weights[place] = check.positive(f"class_weight[{label!r}]", weight)
        weights /= weights.max()
        if weights.min() < _LEAST_WEIGHT:
            raise ValueError("class_weight must have no weight below 2**-100 times the largest")
        return weights

    def _outcomes(self, labels: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
        """Return rows of the second class against the first, or of each class against the rest: weighted signs."""
        return _signs(labels, classes, self._weights(classes)).T

    def _opened(self, X: Any, y: Any, shares: FloatArray | None = None) -> io.Table:
        if io.is_dask(X):
            X, y = io.DaskPartitions(X, y), None
        if isinstance(X, io.Partitions) and y is None:
            classes = self._declared_classes()
            signs = partial(_part_in_signs, classes=classes, weights=self._weights(classes))
            return io.open_table(X.mapped(signs, X.n_features, self._n_minimisers))
        if y is None:
            raise missing_outcomes(type(self).__name__)
        io.check_aligned(X=X, y=y)
        outcomes = self._outcomes(_column_of_labels(y), self._declared_classes()).T
        if shares is not None:
            io.check_shares(outcomes, shares)
            outcomes = outcomes * shares[:, np.newaxis]
        return io.open_table(X, outcomes)

    def _summed(self, privacy: Privacy, table: io.Table) -> Summed:
        table = table.held()
        n_rows = table.count_rows()
        if (descent := self._chosen_descent(privacy, table.n_features, n_rows)) is not None:
            return self._descending(privacy, People(table, n_threads=self.n_threads), descent)
        counts, _ = self._counts(privacy, table.n_features, n_rows, is_gaussian=False)
        return self._counted(super()._summed(privacy, table), privacy, counts, table)

    def _as_descended(self, table: io.Table) -> io.Table:
        """Return the table with outcomes as descent takes them: of several classes indicators, times weights."""
        if self._link == "logistic":
            return table
        if table.partitions is None:
            rows, outcomes = table.whole()
            return io.open_table(rows, np.maximum(outcomes, 0.0))
        return io.open_table(table.partitions.mapped(_indicators, table.n_features, table.n_outcomes))

    def _descending(
        self, privacy: Privacy, people: People, descent: tuple[NoisyDescent, Counts | FewCounts | None] | None = None
    ) -> Summed:
        table, expected = people.table, None
        mechanism, counts = descent or self._descent(privacy, table.n_features, None, people.max_rows)
        if mechanism.n_rows is not None:
            error = lost_share(mechanism.agreement(mechanism.n_rows), ACCURACY, 2)
            expected = Expected(error, mechanism.n_rows)
        people = replace(people, table=self._as_descended(table))
        summed = Summed(Descent(mechanism, self._unit(table.n_features)), people, expected=expected)
        return self._counted(summed, privacy, counts, people.table, people.groups)

    @property
    def _ratio(self) -> str | None:
        return "odds_ratio"

    def _check_inference(self) -> None:
        super()._check_inference()
        if self._resolved_loss != LogisticLoss():
            raise ValueError(f"inference=True goes with loss='auto' or 'logistic', got {self.loss!r}")
        if self.classes is not None and len(self._declared_classes()) > 2:
            raise ValueError(_TWO_CLASSES)

    def _solve_fit(self, mechanism: Any, found: Any) -> Fitted:
        counts = None
        if isinstance(mechanism, Calibrated):
            calibrated, (found, counts), mechanism = mechanism, found, mechanism.classifier
        solved = self._descended if mechanism.method == "gradient" else self._minimised
        attributes, error = solved(mechanism, found)
        attributes |= {"classes_": self._declared_classes(), "method_": mechanism.method}
        if self.box_x is not None:
            attributes["_limits_"] = np.array(limits_of(self.box_x, attributes["n_features_in_"]))
        if counts is not None:
            attributes["log_odds_"], error = self._calibration(calibrated, found, counts, error)
        return Fitted(attributes, error)

    def _calibration(self, mechanism: Calibrated, found: Any, counts: Any, error: float) -> tuple[FloatArray, float]:
        """Return log-odds from noisy counts, and an error: their prior from margins depends on that of coefficients.

        Of few people of several classes the link's weight tells noise from signal where slopes do not.
        """
        fit, way = mechanism.classifier, mechanism.counts
        if isinstance(way, FewCounts):
            assert isinstance(fit, Descent)
            link, of_class, score = counts
            people, several = way.classes(of_class).people, len(link.rates) > 2
            expected, shown = link.expected(way.bound), fit.steps.weight_in_steps(found, link)
            weight = weight_of_link(score, way.noises[1].deviation, people, expected, shown, several=several)
            unit = unit_of_margins(fit.linear(found), way.bound)
            error = 1.0 - weight if len(link.rates) > 2 else error
            return mixed_log_odds(link.rates, weight, link.slope, unit), error
        noise = way.noise
        unit, offset, ends = way.placed(fit.linear(found))
        sides = counts.reshape(len(counts), 2, len(ends))
        further = weight_of_class(len(counts))
        of_class = sides[0, :, -1] if len(counts) == 1 else sides[:, 1, -1]
        classes = Classes(of_class / further, noise.deviation / further, self._counted_rows(fit))
        if isinstance(fit, Descent):
            agreement = found.agreement
        elif fit.perturbation.bounds.n_rows is None:
            rows = max(round(classes.people), 1)
            agreement = 1.0 - float(np.mean([self._error_of(fit.perturbation, rows, one) for one in found]))
        else:
            agreement = 1.0 - error
        cells = sides[:, :, :-1]
        unit = unit_of(cells.sum(axis=0), ends, unit, offset)
        counted = cells, noise.deviation, ends / unit, classes, agreement
        return calibrated_log_odds(*counted, unit), error

    def _counted_rows(self, fit: Minimisers | Descent) -> int | None:
        """Return how many rows are counted, if that is public, and each counts in full."""
        if self._is_counted_in_part:
            return None
        return fit.steps.n_rows if isinstance(fit, Descent) else fit.perturbation.bounds.n_rows

    @property
    def _is_counted_in_part(self) -> bool:
        return self.class_weight is not None or self.max_weight is not None

    def _minimised(self, mechanism: Minimisers, found: FloatArray) -> Fitted:
        attributes, error = super()._solve_fit(mechanism, found)
        shift = {"shift_": mechanism.perturbation.bounds.loss.parameters()["shift"]} if self._shifts else {}
        return Fitted(attributes | shift, error)

    def _descended(self, mechanism: Descent, found: Descended) -> Fitted:
        fitted = self._attributes(mechanism.linear(found), 0.0)
        return Fitted(fitted, lost_share(found.likely_agreement, ACCURACY, 2))

    def _fit_without_noise(
        self, X: Any, y: Any, groups: None = None, max_rows: None = None, shares: FloatArray | None = None
    ) -> Solved:
        rows, labels = check_X_y(X, y, dtype=np.float64)
        check_classification_targets(labels)
        classes = np.unique(labels) if self.classes is None else self._declared_classes()
        if self.inference and len(classes) > 2:
            raise ValueError(_TWO_CLASSES)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; got {len(classes)} class")
        releases, attributes = self._without_noise(rows, list(self._outcomes(labels, classes)), shares)
        return Solved(releases, attributes | {"classes_": classes, "method_": "objective"})

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        n_minimisers = 1 if len(self.classes_) == 2 else len(self.classes_)
        yield from (("coef_", (n_minimisers, self.n_features_in_)), ("intercept_", (n_minimisers,)))
        yield from self._shapes_of_errors()
        if "_limits_" in vars(self):
            yield "_limits_", (2, self.n_features_in_)
        if hasattr(self, "log_odds_"):
            yield "log_odds_", (1 + n_minimisers, N_POINTS)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if check.choice("method_", self.method_, ("objective", "gradient")) == "objective" and self._shifts:
            check.nonnegative("shift_", self.shift_)
        if hasattr(self, "log_odds_") and not (
            np.isfinite(self.log_odds_).all() and np.all(np.diff(self.log_odds_) > 0.0)
        ):
            raise ValueError("log_odds_ must hold finite numbers that increase")


def _column_of_labels(y: Any) -> NDArray[Any]:
    # Entries of a list stay as they are: one among them must not make text, or doubles, of all.
    return column_of(np.asarray(y, object) if isinstance(y, list | tuple) else y)


def _signs(labels: NDArray[Any], classes: NDArray[Any], weights: FloatArray) -> FloatArray:
    """Return a column of the second class against the first, or one of each class against the rest: their signs.

    The sizes are the weights of the labels' classes, at most 1.
    """
    places = StateEncoder(classes).codes(labels)
    if np.any(places < 0):
        raise ValueError(
            "y holds labels outside the declared classes: declare in classes every label that may occur, from public "
            "knowledge; or leave rows of others out, with adjacency='add_remove', which hides how many"
        )
    positive = np.arange(len(classes))[1 if len(classes) == 2 else 0 :]
    return np.asarray(np.where(places[:, np.newaxis] == positive, 1.0, -1.0) * weights[places][:, np.newaxis])


def _part_in_signs(
    x: Any, y: Any, ids: Any, *, classes: NDArray[Any], weights: FloatArray
) -> tuple[Any, FloatArray, Any]:
    """Put signs in the place of a part's labels."""
    if y is None:
        x, outcomes = io.open_table(x).whole()
        y = outcomes[:, 0] if outcomes.shape[1] == 1 else outcomes
    return x, _signs(_column_of_labels(y), classes, weights), ids


def _indicators(x: Any, y: FloatArray, ids: Any) -> tuple[Any, FloatArray, Any]:
    return x, np.maximum(y, 0.0), ids
