"""Private regression of many outcomes on the same features, from one release of their moments.

The covariance of the features is released once and shared by every outcome (PRIMO's ReuseCov), jointly calibrated with
X'Y. Everything after the release (penalty, coefficients, their errors) is post-processing. To save time, the
covariance may be that of a secret sample of the rows (PRIMO's SubSampReuseCov).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_X_y

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator import Plan
from dpfast.estimator.base import Fitted, Prepared, Solved, Summed, explains_parameters, warn
from dpfast.estimator.bounded import (
    BoundedEstimator,
    Measured,
    check_most,
    check_people,
    columns_of,
    dimensions_of,
    open_with_outcomes,
    outcomes_of,
)
from dpfast.estimator.linear import LinearEstimator
from dpfast.estimator.representation import missing_bound
from dpfast.io.blocks import is_read_once
from dpfast.multi_outcome.mechanism import (
    NONNEGATIVE,
    R2,
    SPREAD,
    Column,
    FeatureScaling,
    MomentMechanism,
    Moments,
    Options,
    OutcomeUnits,
    Unweighted,
    attributes_of,
    clip_to_box,
    expected_loss,
    feature_scalings,
    in_stages,
    least_squares,
    planned,
    planned_in_stages,
)
from dpfast.multi_outcome.reports import CoefficientReports
from dpfast.privacy import Composition, Privacy, Unit, UtilityWarning
from dpfast.releases.mechanism import Mechanism
from dpfast.releases.moments import check_radius, exact_moments
from dpfast.releases.people import People
from dpfast.releases.staged_fit import Regression
from dpfast.releases.staged_regression import Public, StagedRegression
from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.projection import LabelFactor
from dpfast.solvers.ridge import Units, ridge_from_moments
from dpfast.statistics import Gram, SampledGram, gram, sampled_gram
from dpfast.statistics.rows import check_box, clipped_to_norm, limits_of

#: More would leave too little to each.
_MOST_STEPS = 20
#: Least bound on rows beside limits that are found: 1e-70 in units of half the widest ones, 2^40.
_LEAST_BESIDE_FOUND = 1e-57


class _Given(NamedTuple):
    """The data owner's sums, whose bounds have been checked."""

    gram: Gram


@explains_parameters
@dataclass(eq=False, repr=False)
class MultiOutcomeRidge(CoefficientReports, MultiOutputMixin, RegressorMixin, BoundedEstimator, LinearEstimator):
    """Differentially private ridge regression of many outcomes on shared features.

    Privacy: one joint release of X'X and X'Y (with the column sums, if an intercept or a box needs them), or one
    sequence of releases that share its budget (`refine`), is (epsilon, delta)-differentially private under `adjacency`;
    every other attribute is computed from it.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    bound_x : float or "private", optional
        L2 norm of a row of X, at most, in the units of X; longer rows are scaled onto it. Leave it out if `box_x`
        bounds the rows, as is best for columns in different units. "private" finds it for a tenth of the budget, from
        noisy counts of people by the size of their rows; about 1% of the rows are beyond it.
    bound_y : float, array of shape (n_outcomes,), mapping or "private"
        L2 norm of a row of outcomes, at most; longer ones are scaled onto it. Or the size of each outcome, at most, in
        their order or by the names of Y's columns, ``{"days": 30.0, "cost": 10_000.0}``: larger ones are clipped to it,
        and the noise in an outcome does not depend on the unit of another. Sizes of each need mechanism "gaussian"
        without `n_subsample`; there "private" finds them, for a tenth of the budget together with a "private" bound on
        rows.
    ridge : float or "auto", default "auto"
        Penalty on the squared coefficients: added to the diagonal of X'X, a sum over rows (not divided by their
        number), but not for the intercept. A number is for features in their own units. "auto" follows from the known
        noise and the released moments, is for features in units of half the width of their limits if there is a
        `box_x`, and is 0 if epsilon is ``inf``.
    refine : int or "auto", default "auto"
        Number of residual steps, at most 20, or "auto". Without steps (0) the noise is in proportion to the declared
        bounds. With steps it is in proportion to the residuals, so bounds may be far too large. A step releases the
        rows times their residuals, each person's part clipped, and reads the table again. Before the steps the fit
        releases the number of people, if it is private; means, for an intercept; norms of rows; and X'X twice, if
        people are enough. After them it releases what exceeds the clip, to correct its bias. All releases share the
        budget. "auto" takes as many steps as the releases show to be needed: at most 40, and at most 3 where a table is
        read from files, by a query, by an engine or through `dpfast.io.Columns`. It takes none if `delta` is 0 or the
        table is an iterator, which cannot be read again, nor for "projection", "independent", `n_subsample`, "paper"
        and `fit_gram`, which have no steps. With an intercept, few people get 30 steps and no X'X, so that limits are
        NaN; fewer get the mean outcome alone, with coefficients 0, also without steps where `delta` is 0. Rows of
        people who own several are held in memory for the steps, also those of files and `Columns`. Of arrays with 48
        columns or more, steps keep up to 256 MB.
    mechanism : {"gaussian", "projection", "independent"}, default "gaussian"
        "gaussian" releases X'X once for all outcomes. "projection" then moves the noisy X'Y to the nearest matrix that
        rows within `bound_x` and the public labels Y can have, which lowers the error if outcomes are many.
        "independent" is a baseline for comparison: one release an outcome, the budget composed over them.
    n_subsample : int, optional
        Release X'X of a secret uniform sample of this many rows, and X'Y of all rows (Algorithm 4 [1]_). By default X'X
        is of all rows. A sample adds noise and sampling error: `plan` says how much. It saves time only if features are
        many and the sample is small: with 20 features, a sample of a tenth of a million rows takes as long as all rows.
        Rows must be an array, a .npy file or a frame; only for mechanism "gaussian" with delta above 0, under
        "replace_one", without groups, `box_x` and `nonnegative`, and without an intercept. Not used where epsilon is
        ``inf``.
    public_labels : bool, default False
        Declares that the outcomes are public: only X is protected. "projection" needs it.
    composition : {"mu", "basic", "advanced"}, default "mu"
        How "independent" shares the budget among its releases, one an outcome: "mu" is exact for Gaussian noise, and
        has the least; "basic" adds up epsilons and deltas; "advanced" is the theorem of that name.
    fit_intercept : bool, default True
        Whether to fit an unpenalised intercept, from the column sums, which are released too. The papers' own
        algorithms have none: "projection", "independent", `n_subsample` and "paper" fit coefficients alone, and warn if
        it is not False.
    box_x : mapping, tuple of (low, high) or "private", optional
        Declared limits of every feature: by name, ``{"age": (18, 90), "smoker": (0, 1)}``, for tables whose columns
        have those names, in any order; or lows and highs, each a number or an array of shape (n_features,). Entries are
        clipped to them (and rows then to `bound_x`, if there is one). Rows are summed in units of half the widths of
        the limits, so the noise does not depend on the units of the features. "private" finds limits for a tenth of the
        budget. A feature whose entries it cannot tell from noise is left out, with a coefficient of 0 and a warning.
    nonnegative : bool, default False
        Declares all features and outcomes to be at least 0, which lowers the noise; negative entries are clipped to 0.
    block_bounds : tuple of (bound_xx, bound_xy), optional
        With `groups`: largest Frobenius norms of one person's X'X and X'Y, to which the noise is in proportion. A
        person beyond them has all their rows scaled by one factor. By default, and for None in place of either, they
        are what the bounds on rows imply: ``max_rows * bound_x**2`` and ``max_rows * bound_x * bound_y``. Smaller ones
        help if a person's many rows point in different directions or are shorter than their bound: rows of mean squared
        norm ``s * bound_x**2``, spread evenly over d features, add up to only ``max_rows * s * bound_x**2 / sqrt(d)``.
        The column sums have no such bound: for an intercept, add a constant column to X. With `box_x` rows are in units
        of half the width of their limits, and with a bound for each outcome these are in units of theirs.
    max_weight : float, optional
        Goes with `sample_weight`: the largest weight, known without the data; larger ones are clipped to it. A row's
        effective weight is weight / max_weight, at most 1, and `ridge` is added to the X'X of rows weighted so. Limits
        of `summary` take weights for inverse variances; with an intercept they also allow for weights unrelated to the
        variances.
    adjacency, random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound", "paper"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" is the printed Algorithm 1 [1]_, or 4 with
        `n_subsample`, and warns where its noise is too little for the printed claim.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outcomes, n_features)
        Coefficients.
    intercept_ : ndarray of shape (n_outcomes,)
        Intercepts; zeros where none is fitted.
    coef_std_ : ndarray of shape (n_outcomes, n_features)
        Standard deviation of `coef_` from the privacy noise alone (first order; shrinkage by `ridge` and "projection"
        is taken as fixed). It leaves out sampling error, also of `n_subsample`.
    residual_std_ : ndarray of shape (n_outcomes,) or None
        Standard deviation of the outcomes about their linear function of the features. It is known if a fit with
        residual steps released it, for rows of one person each; None otherwise, also of few people. Where long
        residuals are clipped, it is that of a normal law with these clipped residuals. For weighted rows it is no less
        than their weighted one, where there is an intercept.
    ridge_ : float
        The penalty used (the largest over outcomes, for "independent"); in what units, `ridge` says.
    n_steps_ : int
        Residual steps that were made.
    bound_x_, bound_y_, box_x_ : float, float or ndarray of shape (n_outcomes,), and ndarray of shape (2, n_features)
        The bounds found, if they are "private"; of several outcomes one each, as `bound_y` says.
    caution_ : str
        With a bound of rows that is found: why columns need limits of their own, as `fit` warned, or empty.
    outcome_names_in_ : ndarray of str
        Names of the outcomes, where Y has any.
    releases_, privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    .. [1] Neel, S. PRIMO: Private Regression in Multiple Outcomes. Algorithm 1 (ReuseCov), Theorem 4.1 and Algorithm 4
       (SubSampReuseCov); its noise is here that of `dpfast.privacy.subsampled_moment_scales`.
    .. [2] Vu, D., Slavkovic, A. (2009). Differential privacy for clinical trial data: preliminary evaluations.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 4))
    >>> Y = X @ np.array([[0.5, 0.0], [0.0, 0.5], [0.5, 0.5], [-0.5, 0.0]])
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, random_state=0).fit(X, Y)
    >>> np.round(model.coef_, 1) + 0.0
    array([[ 0.5,  0. ,  0.5, -0.5],
           [ 0. ,  0.5,  0.5,  0. ]])
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    _: KW_ONLY
    bound_x: float | Literal["private"] | None = None
    bound_y: float | ArrayLike | Mapping[str, float] | Literal["private"]
    ridge: float | Literal["auto"] = "auto"
    refine: int | Literal["auto"] = "auto"
    mechanism: Literal["gaussian", "projection", "independent"] = "gaussian"
    n_subsample: int | None = None
    public_labels: bool = False
    composition: Composition = "mu"
    fit_intercept: bool = True
    box_x: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | Literal["private"] | None = None
    nonnegative: bool = False
    block_bounds: tuple[float | None, float | None] | None = None
    max_weight: float | None = None

    @suppress_float_warnings
    def fit(
        self,
        X: Any,
        Y: Any = None,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit from rows: arrays, data frames, Arrow or Dask tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features), or `dpfast.io.Partitions`
            One person a row.
        Y : table of shape (n_rows, n_outcomes) or (n_rows,)
            Their outcomes, in the same order; those of `dpfast.io.Partitions` are in X.
        groups : array of shape (n_rows,), optional
            The owner of each row, if people may own several: the person is then the unit of privacy. For a file,
            `dpfast.io.RowOwners` reads its column of ids; partitions by person hold theirs.
        max_rows : int, optional
            Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
        sample_weight : array of shape (n_rows,), optional
            Weight of each row, as private as the row; goes with `max_weight`. Rows and outcomes are clipped to their
            bounds once they are weighted. For an intercept they get a constant column before. Not with mechanism
            "projection", nor with an intercept or `box_x` where these bounds are "private". With `groups` a row of
            weight 0 is one of a person's `max_rows` too.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.
        """
        privacy = self._checked()
        groups = io.groups_of(X, groups)
        self._check_people(groups, max_rows, privacy)
        if sample_weight is not None:
            self._check_takes_weights()
        known = self._knowing(lacks_sums=False, is_weighted=sample_weight is not None)
        columns = columns_of(X) | outcomes_of(X, Y) | {"_single_outcome": dimensions_of(Y) == 1} | known
        ordered = self._in_order(columns, X, Y)
        opened = None if sample_weight is None else partial(ordered._weighted, privacy, sample_weight)
        unit: Unit = "row" if groups is None else "person"
        return self._fit(privacy, X, Y, groups, max_rows, unit=unit, columns=columns, opened=opened)

    @suppress_float_warnings
    def fit_gram(self, gram: Gram) -> Self:
        """Fit from the data owner's exact sums, however they were accumulated.

        Parameters
        ----------
        gram : Gram
            Of rows clipped to `bound_x` and outcomes clipped to `bound_y`, with column sums (``sums=True``) for an
            intercept: without them none is fitted, with a warning if `fit_intercept` is not False.

        Returns
        -------
        self
            Fitted, exactly as `fit` would have on the same rows.

        Raises
        ------
        ValueError
            If the bounds are not the estimator's, sums are missing, or the estimator declares a box or nonnegativity,
            which sums cannot show.
        TypeError
            If it is not a Gram.
        BudgetExceeded
            If the ledger has too little left.
        """
        privacy = self._checked()
        if not isinstance(gram, Gram):
            raise TypeError(f"gram must be a dpfast.statistics.Gram, got {type(gram).__name__}")
        if gram.xy is None:
            raise ValueError("gram must hold X'Y: accumulate the outcomes too")
        if self._has_bounds_each or isinstance(self.bound_y, Mapping):
            raise ValueError("bound_y must be one number with fit_gram: its sums are of outcomes clipped to one norm")
        if self.mechanism == "projection":
            raise ValueError("mechanism='projection' needs the labels themselves: use fit")
        if self._private_bounds:
            raise ValueError(f"{self._named} needs the rows: bounds are found before they are summed; use fit")
        if self.box_x is not None or self.nonnegative:
            raise ValueError("box_x and nonnegative need the rows: sums cannot show that they keep to them; use fit")
        if self.n_subsample is not None:
            raise ValueError("n_subsample needs the rows: a sample cannot be drawn of their sums; use fit")
        if self.refine not in ("auto", 0):
            raise ValueError("refine needs the rows: sums have no residuals; use fit, or refine=0")
        groups, max_rows = (None, None) if gram.unit is None else ((), gram.unit.max_rows)
        self._check_people(groups, max_rows, privacy)
        _check_bounds(gram, self.bound_x, self._outcomes(gram.n_outcomes).bound)
        known = self._knowing(lacks_sums=gram.exact_x_sum is None, is_weighted=False)
        known["_single_outcome"] = False
        return self._fit(privacy, _Given(gram), unit="row" if gram.unit is None else "person", columns=known)

    @suppress_float_warnings
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            As for other estimators: predictions of private rows are private.

        Returns
        -------
        ndarray of shape (n_rows, n_outcomes), or (n_rows,) if Y had one dimension
        """
        predicted = self._linear(X)
        return self._presented_outcomes(predicted[:, 0] if self._single_outcome else predicted, X)

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        n_outcomes: int = 1,
        *,
        target: float = 0.1,
        spread: float | tuple[float, float] = SPREAD,
        score: float = R2,
        max_rows: int | None = None,
        **parameters: Any,
    ) -> Plan:
        """Say what error privacy will add, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        n_features, n_outcomes : int
            Widths of X and Y.
        target : float, default 0.1
            Error wanted, as a fraction of `bound_y`.
        spread : float or pair, default 0.25
            Assumed mean squared norm of rows (about the centre of their box, if any) and of outcomes about their mean,
            as fractions of their squared bounds: a number for both, or one for each.
        score : float, default 0.5
            Assumed R^2 without privacy.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, bound_x, bound_y, ...

        Returns
        -------
        Plan
            Expected error, the number of people needed, and the R^2 to expect, of a table that can be read again for
            residual steps. With `n_subsample` the error of sampling is part of it, the number is for the same fraction
            of rows sampled, and `notes` compares with a fit of all rows.

        Examples
        --------
        >>> from dpfast import MultiOutcomeRidge
        >>> plan = MultiOutcomeRidge.plan(100_000, 10, 3, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0)
        >>> plan.expected_error < 0.1
        True
        """
        sizes = {"n": n, "n_features": n_features, "n_outcomes": n_outcomes}
        check.share("score", score, whole=True)
        spreads = (
            (spread, spread) if isinstance(spread, int | float) else check.pair("spread", spread, "(rows, outcomes)")
        )
        public = {"target": target, "spread": spreads[0], "spread of outcomes": spreads[1]}
        estimator, privacy = cls._planned_for(sizes, public, parameters, max_rows)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {}, score=score, expected_score=score)
        estimator._check_people(None if max_rows is None else (), max_rows, privacy)
        chosen = estimator._chosen_mechanism(n_features, n_outcomes, privacy, max_rows, n)
        of_all = (
            chosen if estimator.n_subsample is None else estimator._chosen_mechanism(n_features, n_outcomes, privacy)
        )
        shape, bound_y = (n_features, n_outcomes), estimator._outcomes(n_outcomes).bound
        if (steps := estimator._steps(privacy)) != 0:
            mechanism = estimator._in_stages(shape, privacy, steps, max_rows, descent.MOST_STEPS)
            return planned_in_stages(mechanism, n, target, spreads[1], score)
        return planned(chosen, of_all, n, shape, bound_y, target, spreads, score)

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: moments of features and outcomes"

    def _check_parameters(self, privacy: Privacy) -> None:
        if self.bound_x is not None:
            check_radius("bound_x", self.bound_x)
        elif self.box_x is None:
            raise missing_bound(type(self), "box_x", "bound_x", epsilon=self.epsilon)
        if self._has_bounds_each:
            for number, bound in enumerate(check.positives("bound_y", cast("Sequence[float]", self.bound_y))):
                check_radius(f"bound_y[{number}]", bound)
        else:
            check_radius("bound_y", self.bound_y)
        check.nonnegative_or_auto("ridge", self.ridge)
        if not isinstance(self.refine, str) or self.refine != "auto":
            self._check_steps(check.integer_of_at_least("refine", self.refine, 0))
        check.choice("mechanism", self.mechanism, ("gaussian", "projection", "independent"))
        check.choice("composition", self.composition, get_args(Composition))
        for name in ("public_labels", "fit_intercept", "nonnegative"):
            check.boolean(name, getattr(self, name))
        if self.mechanism == "projection" and not self.public_labels:
            raise ValueError("mechanism='projection' uses the outcomes as they are: it needs public_labels=True")
        if self.mechanism == "projection" and self.adjacency != "replace_one":
            raise ValueError("adjacency must be 'replace_one' with mechanism='projection': labels tell how many rows")
        if self.block_bounds is not None:
            self._check_block_bounds(self.block_bounds)
        check.optional(check.positive, "max_weight", self.max_weight)
        if self.box_x is not None:
            check_box(self.box_x)
        if self.calibration == "paper":
            self._check_bare("calibration='paper'", privacy)
            check.choice("mechanism", self.mechanism, ("gaussian",))
        if self.mechanism != "gaussian":
            self._check_bare(f"mechanism={self.mechanism!r}", privacy)
        if self.n_subsample is not None:
            check.positive_integer("n_subsample", self.n_subsample)
            self._check_bare("n_subsample", privacy)
            for name, accepted in (("mechanism", "gaussian"), ("adjacency", "replace_one")):
                if getattr(self, name) != accepted:
                    raise ValueError(f"{name} must be {accepted!r} with n_subsample, got {getattr(self, name)!r}")

    def _check_findable(self) -> None:
        super()._check_findable()
        for name in ("n_subsample", "block_bounds"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must not be given with {self._named}: it depends on the bounds")
        if self.mechanism != "gaussian":
            raise ValueError(f"mechanism must be 'gaussian' with {self._named}, got {self.mechanism!r}")
        bound = math.inf if self.bound_x is None or "bound_x" in self._private_bounds else float(self.bound_x)
        if "box_x" in self._private_bounds and bound < _LEAST_BESIDE_FOUND:
            # In units of the widest limits that may be found, rows must still have a norm that floats can hold.
            raise ValueError(
                f"bound_x must be at least {_LEAST_BESIDE_FOUND} with box_x='private', got {bound!r}: measure in "
                "another unit"
            )

    @property
    def _is_gaussian(self) -> bool:
        return self.n_subsample is None and (self.mechanism != "independent" or self.composition == "mu")

    def _measured(
        self, X: Any, Y: Any = None, groups: ArrayLike | None = None, max_rows: int | None = None
    ) -> Measured:
        clip = NONNEGATIVE if self.nonnegative else None
        is_declared = self.box_x is not None and "box_x" not in self._private_bounds
        clip_x = clip_to_box(self.box_x, nonnegative=self.nonnegative) if is_declared else clip
        return Measured(X, Y, clip_x, clip, groups, max_rows, self.nonnegative)

    def _check_steps(self, steps: int) -> None:
        """Refuse a number of residual steps for which no budget, or no algorithm, is there."""
        if steps > _MOST_STEPS:
            raise ValueError(f"refine must be at most {_MOST_STEPS}, got {steps}")
        if steps > 0 and self._is_of_paper:
            raise ValueError(
                "refine must be 0 or 'auto' with other mechanisms than 'gaussian', n_subsample and calibration='paper'"
            )

    def _check_block_bounds(self, bounds: object) -> None:
        pair = check.pair("block_bounds", bounds, "(bound_xx, bound_xy)")
        for name, bound in zip(("bound_xx", "bound_xy"), pair, strict=True):
            check.optional(check.positive, f"block_bounds' {name}", bound)
        if self.fit_intercept:
            raise ValueError(
                "block_bounds have none for the sums that an intercept needs: pass fit_intercept=False, and add a "
                "constant column to X for an intercept"
            )

    def _check_bare(self, setting: str, privacy: Privacy) -> None:
        """Refuse options that the paper's algorithm does not have."""
        beyond = ["nonnegative"] if self.nonnegative else []
        beyond += ["box_x"] if self.box_x is not None else []
        beyond += ["bound_y for each outcome"] if self._has_bounds_each else []
        if beyond:
            raise ValueError(f"{setting} has no {' or '.join(beyond)}: the paper's algorithm has none")
        if privacy.delta == 0.0:
            raise ValueError(f"delta must be above 0 with {setting}: the paper's algorithm is Gaussian")

    def _check_takes_weights(self) -> None:
        """Refuse weights without a bound, and where something else than weighted rows is summed."""
        check_most(self.max_weight)
        if self._private_bounds & {"bound_x", "box_x"} and (self._has_intercept or self.box_x is not None):
            raise ValueError(
                f"{self._named} does not go with sample_weight, unless bound_x alone is found and fit_intercept=False: "
                "rows get a constant column, and are put into units of their limits, before they are weighted"
            )
        if self.block_bounds is not None and self.box_x is not None:
            raise ValueError("block_bounds do not go with sample_weight and box_x: bound rows by bound_x")
        if self.mechanism == "projection":
            raise ValueError(
                "sample_weight does not go with mechanism='projection': weights are private, labels public"
            )

    def _weighted(
        self, privacy: Privacy, sample_weight: ArrayLike, X: Any, Y: Any, groups: Any, max_rows: int | None
    ) -> tuple[Any, ...]:
        """Return the data of a fit, weighted."""
        clips, sample_weight = not math.isinf(privacy.epsilon), io.read_now(sample_weight)
        io.check_aligned(X=X, Y=Y, groups=groups, sample_weight=sample_weight)
        may_copy = not clips or groups is not None
        rows, most = self._unweighted, check_most(self.max_weight)
        row_map = rows.held if clips else rows.as_they_are
        table = io.weighted(X, Y, sample_weight, most, clips=clips, may_copy=may_copy, row_map=row_map)
        return *table, groups, max_rows

    @property
    def _unweighted(self) -> Unweighted:
        """Rows before they are weighted, as they are declared."""
        bound = None if self.bound_x is None or "bound_x" in self._private_bounds else float(self.bound_x)
        return Unweighted(bound, self.box_x, self.nonnegative, self._has_intercept)

    def _prepared(self, privacy: Privacy, source: noise.BitSource, *data: Any) -> Prepared:
        if not vars(self).get("_is_weighted") or self._unweighted.stay:
            return super()._prepared(privacy, source, *data)
        features = 1 if self.box_x is None else max(np.size(side) for side in check_box(self.box_x))
        if features == 1 and self.box_x is not None:
            if is_read_once(data[0]):
                raise TypeError("box_x must have limits for each feature with sample_weight and an iterator")
            features = io.open_table(data[0]).n_features - self._has_intercept
        own = self._with({"_is_weighted": False} | self._unweighted.parameters(features))
        return own._prepared(privacy, source, *data)

    def _check_people(self, groups: object, max_rows: int | None, privacy: Privacy) -> None:
        """Refuse people with several rows where these are not supported."""
        if not check_people(groups, max_rows):
            if self.block_bounds is not None:
                raise ValueError("block_bounds go with groups and max_rows: they bound what a person's rows add up to")
            return
        if self.mechanism != "gaussian" or self.calibration != "sound" or math.isinf(privacy.epsilon):
            raise ValueError("groups need mechanism='gaussian', calibration='sound' and a finite epsilon")
        if self.n_subsample is not None:
            raise ValueError("groups do not go with n_subsample: rows are sampled, and a person may own several")

    def _chosen_mechanism(
        self, features: int, outcomes: int, privacy: Privacy, max_rows: int | None = None, n_rows: int | None = None
    ) -> MomentMechanism:
        """Choose how rows are summed, and calibrate, from public numbers alone."""
        scalings, sample = self._feature_scalings(features), None
        if self.n_subsample is not None and n_rows is not None:
            sample = int(self.n_subsample), n_rows
            if sample[0] > sample[1]:
                raise ValueError(f"n_subsample must be at most the number of rows, {sample[1]}, got {sample[0]}")
        if self.block_bounds is not None:
            scalings = [scaling for scaling in scalings if not scaling.sums]
        options = self._options(max_rows, sample)
        return MomentMechanism.cheapest(
            scalings, privacy, self._outcomes(outcomes).bound, (features, outcomes), options
        )

    @property
    def _has_bounds_each(self) -> bool:
        """Whether every outcome has a bound of its own."""
        bound: Any = self.bound_y
        return hasattr(bound, "__len__") and not isinstance(bound, str | set) and getattr(bound, "ndim", 1) > 0

    @property
    def _bounds_each_outcome(self) -> bool:
        return not self._is_of_paper

    def _outcomes(self, n_outcomes: int) -> OutcomeUnits:
        """Return how outcomes are bounded, and in what units they are summed."""
        bound: Any = self.bound_y
        if isinstance(bound, float) or not self._has_bounds_each:
            return OutcomeUnits(float(bound))
        return OutcomeUnits.of_each(np.asarray(bound, np.float64), n_outcomes)

    def _feature_scalings(self, features: int) -> list[FeatureScaling]:
        """List the ways to sum rows."""
        bound = None if self.bound_x is None else float(self.bound_x)
        return feature_scalings(features, bound, box=self.box_x, nonnegative=self.nonnegative, sums=self._has_intercept)

    def _options(self, max_rows: int | None, sample: tuple[int, int] | None) -> Options:
        return Options(
            max_rows=max_rows,
            block_bounds=self.block_bounds or (None, None),
            sample=sample,
            composition=self.composition if self.mechanism == "independent" else None,
            printed=self.calibration == "paper",
        )

    def _moments(self, chosen: MomentMechanism, bound: float, statistic: Any, public: Public) -> Summed:
        """Return what is released at once."""
        penalty = self._penalty(chosen.calibration.shape[0])
        mechanism = Moments(chosen, bound, public, penalty, self._has_intercept)
        return Summed(mechanism, statistic, public, expected_loss(chosen, None, public.n_rows, bound))

    def _sum(
        self,
        privacy: Privacy,
        source: noise.BitSource,
        X: Any,
        Y: Any = None,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
    ) -> Summed:
        if isinstance(X, _Given):
            return self._given(privacy, X.gram)
        io.check_aligned(X=X, Y=Y, groups=groups)
        needs_arrays = (self.n_subsample, self.block_bounds) != (None, None) or self.mechanism == "projection"
        steps = self._steps(privacy)
        holds = groups is not None and (steps != 0 or self.block_bounds is not None)
        table = open_with_outcomes(type(self).__name__, X, Y, may_copy=needs_arrays or holds)
        if self.n_subsample is not None:
            return self._sampled(privacy, table)
        if holds:
            table = table.held()
        if table.is_read_once and steps != 0:
            if steps is not None:
                raise ValueError("refine must be 0 or 'auto' where X or Y can be read only once: every step reads them")
            steps = 0
        if steps != 0:
            return self._staged(privacy, steps, People(table, groups, max_rows, self.n_threads))
        chosen = self._chosen_mechanism(table.n_features, table.n_outcomes, privacy, max_rows)
        unit, outcomes = chosen.calibration.people, self._outcomes(table.n_outcomes)
        exact = gram(
            table,
            bound_x=chosen.scaling.radius,
            bound_y=outcomes.bound,
            sums=chosen.scaling.sums,
            n_threads=self.n_threads,
            map_x=chosen.scaling.row_map,
            map_y=outcomes.row_map(chosen.scaling.nonnegative),
            groups=groups,
            max_rows=max_rows,
            **({} if unit is None else {"bound_xx": unit.bound_xx, "bound_xy": unit.bound_xy}),
        )
        return self._moments(chosen, outcomes.bound, exact, self._public(table, self._public_rows(exact)))

    def _public(self, table: io.Table, n_rows: int | None) -> Public:
        """Gather the public facts besides the releases, with the number of rows if it is public."""
        if n_rows == 0:
            raise ValueError("X has no rows: at least one is needed")
        return Public(n_rows, self._public_labels(table) if self.mechanism == "projection" else None)

    def _steps(self, privacy: Privacy) -> int | None:
        """Return how many residual steps are requested, 0 where none can be, and None for as many as are best."""
        if self.refine != "auto":
            return self.refine
        return 0 if self._is_of_paper or privacy.delta == 0.0 else None

    @property
    def _has_intercept(self) -> bool:
        return self.fit_intercept and not self._is_of_paper and not vars(self).get("_lacks_sums")

    def _knowing(self, **known: bool) -> dict[str, Any]:
        """Keep the fit's knowledge of its intercept; warn if none is fitted though one is requested."""
        self.__dict__.update(told := {f"_{name}": value for name, value in known.items()})
        if self.fit_intercept and not self._has_intercept:
            why = "the gram has no column sums" if self._lacks_sums else "the paper's algorithm has none"
            warn(
                f"no intercept is fitted: {why}, and coefficients alone fit outcomes and features of mean 0. "
                "fit_intercept=False says that this is meant",
                UtilityWarning,
            )
        return told

    @property
    def _is_of_paper(self) -> bool:
        """Whether it is one of the papers' own algorithms, which have neither residual steps nor an intercept."""
        is_usual = isinstance(self.mechanism, str) and self.mechanism == "gaussian"
        return not is_usual or self.calibration == "paper" or self.n_subsample is not None

    def _in_stages(
        self, shape: tuple[int, int], privacy: Privacy, steps: int | None, max_rows: int | None, most: int
    ) -> StagedRegression:
        """Return the mechanism that fits in stages."""
        return in_stages(
            self._feature_scalings(shape[0]),
            privacy,
            self._outcomes(shape[1]),
            shape,
            self._options(max_rows, None),
            n_steps=steps,
            most_steps=most,
            penalty=self._penalty(shape[0]),
            fit_intercept=self._has_intercept,
            has_constant="_column" in vars(self) and not self.nonnegative,
        )

    def _staged(self, privacy: Privacy, steps: int | None, people: People) -> Summed:
        """Read the rows once, as the next sums depend on their number, and check that all is finite."""
        table = people.table
        most = descent.MOST_STEPS if table.is_at_hand else descent.MOST_STEPS_OF_FILES
        mechanism = self._in_stages((table.n_features, table.n_outcomes), privacy, steps, people.max_rows, most)
        first = mechanism.sum_rows(people)
        public = self._public(table, self._public_rows(first))
        expected = expected_loss(None, mechanism, public.n_rows)
        return Summed(replace(mechanism, public=public), replace(people, first=first), public, expected)

    def _given(self, privacy: Privacy, exact: Gram) -> Summed:
        """Take the data owner's sums."""
        max_rows = None if exact.unit is None else exact.unit.max_rows
        chosen = self._chosen_mechanism(exact.xx.shape[0], exact.n_outcomes, privacy, max_rows)
        if exact.unit != chosen.calibration.people:
            raise ValueError("gram must have the bounds on a person's block that the estimator has as block_bounds")
        return self._moments(chosen, self._outcomes(exact.n_outcomes).bound, exact, Public(self._public_rows(exact)))

    def _sampled(self, privacy: Privacy, table: io.Table) -> Summed:
        """Prepare to sum X'X over a secret sample; its members must not decide whether data are refused."""
        if table.arrays is None:
            raise TypeError("X and Y must be arrays, .npy files or frames with n_subsample")
        n_rows = len(table.arrays[0])
        public = self._public(table, n_rows)
        chosen = self._chosen_mechanism(table.n_features, table.n_outcomes, privacy, n_rows=n_rows)
        assert chosen.calibration.sample is not None
        size = chosen.calibration.sample[0]
        bounds = {"bound_x": chosen.scaling.radius, "bound_y": self._outcomes(table.n_outcomes).bound}
        table.check_finite()

        def exact(bits: noise.BitSource) -> SampledGram:
            rows = noise.sample_without_replacement(n_rows, size, bits)
            return sampled_gram(table, None, rows, **bounds, n_threads=self.n_threads)

        return self._moments(chosen, bounds["bound_y"], exact, public)

    def _public_rows(self, exact: Gram) -> int | None:
        return exact.n_rows if self.adjacency == "replace_one" and exact.unit is None else None

    def _public_labels(self, table: io.Table) -> LabelFactor:
        """Factor the labels, declared public, as they are summed, in the units of the solved sums."""
        if table.arrays is None or table.arrays[1] is None:
            raise TypeError("Y must be an array or a data frame with mechanism='projection': it is used as a whole")
        bound = self._outcomes(table.n_outcomes).bound
        return LabelFactor.from_labels(clipped_to_norm(table.arrays[1], bound) / Units.near(1.0, bound).outcomes)

    def _solve(self, mechanism: Mechanism[Regression], found: Regression, public: Public) -> Fitted:
        solution = found.solution
        if self.box_x is not None:
            # Nothing is learned from entries that are all clipped to 0: noise is no coefficient.
            low, high = limits_of(self.box_x, solution.coef.shape[1])
            unseen = (low == 0.0) & (high == 0.0)
            solution = replace(
                solution,
                coef=np.where(unseen, 0.0, solution.coef),
                coef_std=np.where(unseen, np.nan, solution.coef_std),
            )
        states, variance = found.inference_states, found.residual_variance
        column = vars(self).get("_column")
        if column is not None:
            states = tuple(Column(*column).with_constant(one) for one in states)
            solution = Column(*column).split(solution)
            variance = None if variance is None else variance * Column(*column).rows_per_weight(states)
        units = self._outcomes(len(solution.coef)).units
        if units is not None:
            solution = solution.times(units)
            states = tuple(replace(one, outcome_unit=one.outcome_unit * units) for one in states)
            variance = None if variance is None else variance * units**2
        error = found.expected_error
        if error is None:
            # What the best shrinkage loses of a signal that noise was added to.
            error = 1.0 / max(float(np.mean([one.signal_to_noise for one in found.inference_states])), 1.0)
        return Fitted(attributes_of(solution, states, found.n_steps, residual_variance=variance, lost=error), error)

    def _penalty(self, features: int) -> float | FloatArray | None:
        """Return the ridge that was requested, of each column if one stands for an intercept; None to choose."""
        if isinstance(self.ridge, str):
            return None
        return float(self.ridge) if "_column" not in vars(self) else np.append(np.full(features - 1, self.ridge), 0.0)

    def _fit_without_noise(self, X: Any, Y: Any = None, *people: None) -> Solved:
        ridge = 0.0 if isinstance(self.ridge, str) else float(self.ridge)
        if isinstance(X, _Given):
            solution = ridge_from_moments(exact_moments(X.gram), ridge, fit_intercept=self._has_intercept)
            textbook = None
        else:
            rows, outcomes = check_X_y(X, Y, dtype=np.float64, multi_output=True, y_numeric=True)
            roots = np.ones(len(rows)) if self._has_intercept else None
            is_weighted = bool(vars(self).get("_is_weighted"))
            if is_weighted and self._has_intercept:
                rows, roots = rows[:, :-1], rows[:, -1]
            outcomes = outcomes.reshape(len(outcomes), -1)
            solution, textbook = least_squares(rows, outcomes, ridge, roots, robust=is_weighted)
        release = self._exact_release({"coef": solution.coef, "intercept": solution.intercept})
        return Solved((release,), attributes_of(solution, (), textbook=textbook))

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        outcomes, features = self.coef_.shape
        yield from (("coef_", (outcomes, features)), ("intercept_", (outcomes,)), ("coef_std_", (outcomes, features)))

    def _check_fitted(self) -> None:
        if self.n_features_in_ != self.coef_.shape[1]:
            raise ValueError("n_features_in_ must be that of coef_")
        check.nonnegative("ridge_", self.ridge_)
        check.integer_of_at_least("n_steps_", self.n_steps_, 0)
        for name in ("_single_outcome", "_lacks_sums"):
            check.boolean(name, getattr(self, name))


def _check_bounds(exact: Gram, bound_x: float | str | None, bound_y: float) -> None:
    """Refuse sums of rows that were clipped to other bounds."""
    for name, declared, used in (("bound_x", bound_x, exact.bound_x), ("bound_y", bound_y, exact.bound_y)):
        if declared is None or float(declared) != used:
            raise ValueError(f"gram was accumulated with {name}={used!r}, the estimator has {name}={declared!r}")
