"""Private regression of many outcomes on the same features, from one release of their moments.

The covariance of the features is released once and shared by every outcome (PRIMO's ReuseCov), jointly calibrated with
X'Y. Everything after the release (penalty, coefficients, their errors) is post-processing. To save time, the
covariance may be that of a secret sample of the rows (PRIMO's SubSampReuseCov).
"""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, check_X_y

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.estimator.feature_names import columns_of, rows_to_predict
from dpfast.estimator.persistence import Persistent
from dpfast.estimator.plan import Plan
from dpfast.estimator.spending import reserve
from dpfast.kernels.threads import resolve_n_threads
from dpfast.ledger import Ledger, Release, Reservation
from dpfast.multi_outcome.mechanism import (
    NONNEGATIVE,
    Route,
    cheapest_route,
    check_box,
    cost_of_sampling,
    independent_route,
    printed_route,
    row_frames,
    sampled_route,
)
from dpfast.privacy import Adjacency, Calibration, Composition, Privacy, UnsoundCalibrationWarning
from dpfast.releases.moments import (
    draw,
    draw_each_outcome,
    exact_moments,
    noisy_moments,
)
from dpfast.solvers import LabelFactor, RidgeSolution, ridge_from_moments, ridge_of_each_outcome
from dpfast.statistics import Gram, SampledGram, gram, rounded_bound, sampled_gram
from dpfast.statistics.rows import shortened


class MultiOutcomeRidge(MultiOutputMixin, RegressorMixin, Persistent):
    """Differentially private ridge regression of many outcomes on shared features.

    Privacy: one joint release of X'X and X'Y (with the column sums, where an intercept or a box asks for them) is
    (epsilon, delta)-differentially private under `adjacency`; every other attribute is computed from it.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the textbook estimator without noise, clipping or rounding.
    delta : float, default 0.0
        0 for pure differential privacy, which asks for much more noise.
    bound_x : float or None
        L2 norm of a row of X, at most; longer rows are scaled onto it. None if `box_x` alone bounds the rows.
    bound_y : float
        L2 norm of a row of outcomes, at most; longer ones are scaled onto it.
    ridge : float or "auto", default "auto"
        Added to the diagonal of X'X (not divided by the number of rows). "auto" weighs the known noise against the
        released moments, and is 0 where epsilon is ``inf``.
    mechanism : {"gaussian", "projection", "independent"}, default "gaussian"
        "gaussian" releases X'X once for all outcomes. "projection" further moves the noisy X'Y to the nearest matrix
        that rows within `bound_x` can give with the public labels Y, which lowers the error where outcomes are many.
        "independent" is the naive baseline: one release an outcome, the budget composed over them.
    n_subsample : int, optional
        Release X'X of so many rows s, a secret uniform sample of all n, and X'Y of all rows (Algorithm 4 of [1]_): X'X
        is then estimated by n/s times the sum over the sample. It buys time where features are many, at most the
        fraction (1 - s/n)(d + 1)/(d + 1 + 2l) of the arithmetic for d features and l outcomes, and costs noise and
        sampling error: `plan` says how much. Rows must be an array, a .npy file or a frame; only for
        mechanism "gaussian" with delta above 0, under "replace_one", without groups, `fit_intercept`, `box_x` and
        `nonnegative`. Not used where epsilon is ``inf``.
    public_labels : bool, default False
        Declares that the outcomes are public: only X is protected. "projection" needs it.
    composition : {"mu", "basic", "advanced"}, default "mu"
        How "independent" shares the budget among outcomes.
    fit_intercept : bool, default False
        Release the column sums too, and fit an unpenalised intercept.
    box_x : tuple of (low, high), optional
        Declared limits of every feature, each a number or an array of shape (n_features,). Entries are clipped to
        them; rows are summed about the centre of the box where that lowers the noise.
    nonnegative : bool, default False
        Declares that all features and outcomes are at least 0, which lowers the noise; negative entries are clipped.
    block_bounds : tuple of (bound_xx, bound_xy), optional
        With `groups`: Frobenius norms of one person's X'X and X'Y, either of them None for no more than the rows' own
        bounds give, ``max_rows * bound_x**2`` and ``max_rows * bound_x * bound_y``. A person beyond them has all their
        rows scaled by one factor. The noise is in proportion to what one person may add, so it helps where people own
        many rows that point in different directions or stay within their bound: rows of mean squared norm
        ``s * bound_x**2``, spread evenly over d features, add up to ``max_rows * s * bound_x**2 / sqrt(d)`` only. The
        column sums have no such bound: for an intercept, add a constant column to X.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public (one row replaced) or private (one row more or less).
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed Algorithm 1 [1]_, or 4 with `n_subsample`, with a warning where it misses its own claim.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee, for anybody: from two releases of one seed the noise can
        be subtracted without knowing it. A ledger takes each seed once. By default noise comes from the operating
        system's cryptographic source.
    n_threads : int, optional
        Threads that sum rows; the results do not depend on it.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outcomes, n_features)
        Coefficients.
    intercept_ : ndarray of shape (n_outcomes,)
        Intercepts; zeros without `fit_intercept`.
    coef_std_ : ndarray of shape (n_outcomes, n_features)
        Standard deviation of `coef_` from the privacy noise alone (first order; what `ridge` and "projection" shrink
        them by is taken as fixed); it says nothing of sampling error, that of `n_subsample` included.
    ridge_ : float
        The penalty used (the largest over outcomes, for "independent").
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

    _MECHANISMS: ClassVar[tuple[str, ...]] = ("gaussian", "projection", "independent")

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        bound_x: float | None,
        bound_y: float,
        ridge: float | Literal["auto"] = "auto",
        mechanism: Literal["gaussian", "projection", "independent"] = "gaussian",
        n_subsample: int | None = None,
        public_labels: bool = False,
        composition: Composition = "mu",
        fit_intercept: bool = False,
        box_x: tuple[ArrayLike, ArrayLike] | None = None,
        nonnegative: bool = False,
        block_bounds: tuple[float | None, float | None] | None = None,
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
        self.ridge = ridge
        self.mechanism = mechanism
        self.n_subsample = n_subsample
        self.public_labels = public_labels
        self.composition = composition
        self.fit_intercept = fit_intercept
        self.box_x = box_x
        self.nonnegative = nonnegative
        self.block_bounds = block_bounds
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @quiet
    def fit(self, X: Any, Y: Any, groups: ArrayLike | None = None, max_rows: int | None = None) -> Self:
        """Fit from rows: arrays, data frames, Arrow or Dask tables, files, or iterables of blocks.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row.
        Y : table of shape (n_rows, n_outcomes) or (n_rows,)
            Their outcomes, in the same order.
        groups : array of shape (n_rows,), optional
            Who owns each row, where people may own several: the person is then the unit of privacy. For a file,
            `dpfast.io.RowOwners` reads its column of ids.
        max_rows : int, optional
            Goes with `groups`: most rows of a person that count, a public number; further ones are left out.

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
        self._check_people(groups, max_rows, privacy)
        columns = columns_of(X)
        with reserve(self, privacy, "row" if groups is None else "person") as reservation:
            if math.isinf(privacy.epsilon):
                fitted = self._fit_without_noise(X, Y)
                reservation.commit(*fitted["releases_"])
            elif self.n_subsample is not None:
                source = noise.resolve_source(self.random_state)
                route, sampled = self._sampled(self._opened(X, Y), privacy, source)
                fitted = self._fit_released(sampled, route, reservation, source)
            else:
                table = self._opened(X, Y)
                route, exact = self._summed(table, privacy, groups, max_rows)
                labels = self._public_labels(table) if self.mechanism == "projection" else None
                fitted = self._fit_released(exact, route, reservation, noise.resolve_source(self.random_state), labels)
        return self._keep(fitted, columns, single_outcome=_dimensions(Y) == 1)

    @quiet
    def fit_gram(self, gram: Gram) -> Self:
        """Fit from the data owner's exact sums, however they were accumulated.

        Parameters
        ----------
        gram : Gram
            Of rows clipped to `bound_x` and outcomes clipped to `bound_y`, with column sums (``sums=True``) where
            `fit_intercept` is set.

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
        if self.mechanism == "projection":
            raise ValueError("mechanism='projection' needs the labels themselves: use fit")
        if self.box_x is not None or self.nonnegative:
            raise ValueError("box_x and nonnegative need the rows: sums cannot show that they keep to them; use fit")
        if self.n_subsample is not None:
            raise ValueError("n_subsample needs the rows: a sample cannot be drawn of their sums; use fit")
        exact = math.isinf(privacy.epsilon)
        max_rows = None if gram.unit is None else gram.unit.max_rows
        self._check_people(None if gram.unit is None else (), max_rows, privacy)
        route = None if exact else self._route(gram.xx.shape[0], gram.xy.shape[1], privacy, max_rows)
        _check_sums(gram, self.bound_x, self.bound_y, self.fit_intercept)
        if route is not None and gram.unit != route.calibration.unit:
            raise ValueError("gram must have the bounds on a person's block that the estimator has as block_bounds")
        with reserve(self, privacy, "row" if gram.unit is None else "person") as reservation:
            if route is None:
                fitted = self._fit_exact_sums(gram)
                reservation.commit(*fitted["releases_"])
            else:
                fitted = self._fit_released(gram, route, reservation, noise.resolve_source(self.random_state))
        return self._keep(fitted, {}, single_outcome=False)

    @quiet
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by the release.

        Returns
        -------
        ndarray of shape (n_rows, n_outcomes), or (n_rows,) if Y had one dimension
        """
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        predicted: FloatArray = rows @ self.coef_.T + self.intercept_
        return predicted[:, 0] if self._single_outcome else predicted

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        n_outcomes: int = 1,
        *,
        target: float = 0.1,
        spread: float = 0.25,
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
        spread : float, default 0.25
            Assumed mean squared norm of the rows (about the centre of their box, if any) as a fraction of their
            squared bound; it is taken to be even over directions, and the outcomes to be explained by the features.
        max_rows : int, optional
            Rows of a person, where people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, bound_x, bound_y, ...

        Returns
        -------
        Plan
            Expected error and the number of people needed. With `n_subsample` the error of sampling is part of it, the
            number is for the same fraction of rows sampled, and `notes` compares with a fit of all rows.

        Examples
        --------
        >>> from dpfast import MultiOutcomeRidge
        >>> plan = MultiOutcomeRidge.plan(100_000, 10, 3, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0)
        >>> plan.expected_error < 0.1
        True
        """
        sizes = {"n": n, "n_features": n_features, "n_outcomes": n_outcomes}
        for name, value in (sizes | ({} if max_rows is None else {"max_rows": max_rows})).items():
            check.positive_integer(name, value)
        check.positive("target", target)
        check.positive("spread", spread)
        estimator = cls(**parameters)
        privacy = estimator._checked()
        if math.isinf(privacy.epsilon):
            return Plan.from_error(n, 0.0, target, {})
        if max_rows is not None or estimator.block_bounds is not None:
            estimator._check_people(() if max_rows is not None else None, max_rows, privacy)
        route = estimator._route(n_features, n_outcomes, privacy, max_rows, n)
        rows = n * estimator._counting_rows(n_features, spread, route)
        # E r'(X'X)^-1 r / n with X'X = (n spread radius^2 / d) I, r the noise in X'Y - X'X theta; see _costs.
        squared_error = n_features * route.cost / (spread * route.frame.radius * rows * estimator.bound_y) ** 2
        scales = {name: float(getattr(route.calibration.scales, name)) for name in route.calibration.blocks}
        error, sample = math.sqrt(squared_error), route.calibration.sample
        if sample is None:
            return Plan.from_error(n, error, target, scales)
        # The error of (n/s) X_s'X_s theta is a sum over the sample of rows times predictions. Its mean square in the
        # norm of (X'X)^-1 is (1 - s/n)(d/s) bound_y^2 a person, for rows whose d directions are equally long.
        sampling_error = math.sqrt(route.calibration.noise.sampling * n_features)
        of_all = estimator._route(n_features, n_outcomes, privacy)
        notes = {"error of the noise": error, "error of sampling": sampling_error}
        notes |= cost_of_sampling(route, of_all, (n_features, n_outcomes))
        return Plan.from_error(n, error, target, scales, sampling_error=sampling_error, notes=notes)

    def _counting_rows(self, features: int, spread: float, route: Route) -> float:
        """Rows of a person, as planned, less what the bounds on their block scale them down by."""
        unit = route.calibration.unit
        if unit is None:
            return 1.0
        # Rows even over as many directions as they can be; outcomes at their bound, explained by rows at theirs.
        norm = unit.max_rows * spread * route.frame.radius / math.sqrt(min(unit.max_rows, features))
        limits = ((unit.bound_xx, route.frame.radius), (unit.bound_xy, float(self.bound_y)))
        factors = [bound / (norm * length) for bound, length in limits if bound is not None]
        return unit.max_rows * min([1.0, *factors])

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: moments of features and outcomes"

    def _checked(self) -> Privacy:
        """Refuse bad parameters; the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        if self.bound_x is not None or self.box_x is None:
            check.positive("bound_x", self.bound_x)
        check.positive("bound_y", self.bound_y)
        if not isinstance(self.ridge, str) or self.ridge != "auto":
            check.nonnegative("ridge", self.ridge)
        check.choice("mechanism", self.mechanism, self._MECHANISMS)
        check.choice("composition", self.composition, get_args(Composition))
        check.choice("calibration", self.calibration, get_args(Calibration))
        check.boolean("public_labels", self.public_labels)
        if self.mechanism == "projection" and not self.public_labels:
            raise ValueError("mechanism='projection' uses the outcomes as they are: it needs public_labels=True")
        if self.mechanism == "projection" and self.adjacency != "replace_one":
            raise ValueError("adjacency must be 'replace_one' with mechanism='projection': labels tell how many rows")
        check.boolean("fit_intercept", self.fit_intercept)
        check.boolean("nonnegative", self.nonnegative)
        if self.block_bounds is not None:
            self._check_block_bounds(self.block_bounds)
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        noise.resolve_source(self.random_state)
        resolve_n_threads(self.n_threads)
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
        return privacy

    def _check_block_bounds(self, bounds: object) -> None:
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise TypeError(f"block_bounds must be a pair (bound_xx, bound_xy), got {type(bounds).__name__}")
        for name, bound in zip(("bound_xx", "bound_xy"), bounds, strict=True):
            if bound is not None:
                check.positive(f"block_bounds' {name}", bound)
        if self.fit_intercept:
            raise ValueError("block_bounds have none for the sums that fit_intercept needs: add a constant column to X")

    def _check_loaded(self) -> None:
        self._checked()
        if not hasattr(self, "coef_"):
            return
        outcomes, features = self.coef_.shape
        shapes = {"coef_": (outcomes, features), "intercept_": (outcomes,), "coef_std_": (outcomes, features)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
                raise ValueError(f"{name} must be an array of float64 of shape {shape}")
        if self.n_features_in_ != features or len(getattr(self, "feature_names_in_", self.coef_.T)) != features:
            raise ValueError("n_features_in_ and feature_names_in_ must be those of coef_")
        check.nonnegative("ridge_", self.ridge_)
        check.boolean("_single_outcome", self._single_outcome)
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")

    def _check_bare(self, setting: str, privacy: Privacy) -> None:
        """Refuse what the papers' own algorithms do not have."""
        beyond = [name for name in ("fit_intercept", "nonnegative") if getattr(self, name)]
        beyond += ["box_x"] if self.box_x is not None else []
        if beyond:
            raise ValueError(f"{setting} has no {' or '.join(beyond)}: the paper's algorithm has none")
        if privacy.delta == 0.0:
            raise ValueError(f"delta must be above 0 with {setting}: the paper's algorithm is Gaussian")

    def _keep(self, fitted: dict[str, Any], columns: dict[str, Any], *, single_outcome: bool) -> Self:
        """Set what was fitted, all at once; names of an earlier table's columns go."""
        table = {"n_features_in_": fitted["coef_"].shape[1]} | columns
        return self._set_fitted(fitted | table | {"_single_outcome": single_outcome}, ("feature_names_in_",))

    def _check_people(self, groups: ArrayLike | None, max_rows: int | None, privacy: Privacy) -> None:
        if groups is None and max_rows is None:
            if self.block_bounds is not None:
                raise ValueError("block_bounds go with groups and max_rows: they bound what a person's rows add up to")
            return
        if groups is None or max_rows is None:
            raise ValueError("groups and max_rows go together: whose each row is, and how many of a person's count")
        check.positive_integer("max_rows", max_rows)
        if self.mechanism != "gaussian" or self.calibration != "sound" or math.isinf(privacy.epsilon):
            raise ValueError("groups need mechanism='gaussian', calibration='sound' and a finite epsilon")
        if self.n_subsample is not None:
            raise ValueError("groups do not go with n_subsample: rows are sampled, and a person may own several")

    def _route(
        self, features: int, outcomes: int, privacy: Privacy, max_rows: int | None = None, n_rows: int | None = None
    ) -> Route:
        """Choose how to sum the rows, from public numbers alone, so that the noise costs least.

        Their number is needed where a sample is taken of them, and public there.
        """
        frames = row_frames(
            features,
            None if self.bound_x is None else float(self.bound_x),
            box=self.box_x,
            nonnegative=self.nonnegative,
            sums=self.fit_intercept,
        )
        bound_y, shape = float(self.bound_y), (features, outcomes)
        sample = None if self.n_subsample is None or n_rows is None else (int(self.n_subsample), n_rows)
        if sample is not None and sample[0] > sample[1]:
            raise ValueError(f"n_subsample must be at most the number of rows, {sample[1]}, got {sample[0]}")
        if self.calibration == "paper":
            return printed_route(frames[0], privacy, rounded_bound(bound_y, outcomes), shape, sample)
        if sample is not None:
            return sampled_route(frames[0], privacy, rounded_bound(bound_y, outcomes), shape, sample)
        if self.mechanism == "independent":
            return independent_route(frames[0], privacy, rounded_bound(bound_y, outcomes), shape, self.composition)
        if self.block_bounds is None:
            return cheapest_route(frames, privacy, bound_y, shape, max_rows)
        without_sums = [frame for frame in frames if not frame.sums]
        bound_xx, bound_xy = self.block_bounds
        return cheapest_route(without_sums, privacy, bound_y, shape, max_rows, (bound_xx, bound_xy))

    def _opened(self, X: Any, Y: Any) -> io.Table:
        needs_arrays = (self.n_subsample, self.block_bounds) != (None, None) or self.mechanism == "projection"
        table = io.open_table(X, Y, may_copy=needs_arrays)
        if table.n_outcomes == 0:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return table

    def _public_labels(self, table: io.Table) -> LabelFactor:
        """Decompose the labels as they were summed: rows beyond the bound scaled onto it."""
        if table.arrays is None or table.arrays[1] is None:
            raise TypeError("Y must be an array or a data frame with mechanism='projection': it is used as a whole")
        return LabelFactor.from_labels(shortened(table.arrays[1], float(self.bound_y)))

    def _summed(
        self, table: io.Table, privacy: Privacy, groups: ArrayLike | None = None, max_rows: int | None = None
    ) -> tuple[Route, Gram]:
        """Sum the rows exactly, by a route that their width decides."""
        route = self._route(table.n_features, table.n_outcomes, privacy, max_rows)
        exact = gram(
            table,
            bound_x=route.frame.radius,
            bound_y=float(self.bound_y),
            sums=route.frame.sums,
            n_threads=self.n_threads,
            map_x=route.frame.row_map,
            map_y=NONNEGATIVE if route.frame.nonnegative else None,
            groups=groups,
            max_rows=max_rows,
            **_block_bounds(route),
        )
        # Where the number of rows is private, a table without any is as good as another.
        if exact.n_rows == 0 and privacy.adjacency == "replace_one" and groups is None:
            raise ValueError("X has no rows: at least one is needed")
        return route, exact

    def _sampled(self, table: io.Table, privacy: Privacy, source: noise.BitSource) -> tuple[Route, SampledGram]:
        """Sum a secret sample, of which nothing but its noisy sum is kept, and x y' over all rows."""
        if table.arrays is None:
            raise TypeError("X and Y must be arrays, .npy files or frames with n_subsample")
        if len(table.arrays[0]) == 0:
            raise ValueError("X has no rows: at least one is needed")
        route = self._route(table.n_features, table.n_outcomes, privacy, n_rows=len(table.arrays[0]))
        assert route.calibration.sample is not None
        n_sampled, n_rows = route.calibration.sample
        sampling = source.bound(f"{self._release_name}: sample", route.calibration)
        rows = noise.sample_without_replacement(n_rows, n_sampled, sampling)
        bounds = {"bound_x": route.frame.radius, "bound_y": float(self.bound_y)}
        return route, sampled_gram(table, None, rows, **bounds, n_threads=self.n_threads)

    def _fit_released(
        self,
        exact: Gram | SampledGram,
        route: Route,
        reservation: Reservation,
        source: noise.BitSource,
        labels: LabelFactor | None = None,
    ) -> dict[str, Any]:
        """Draw the noise, which is paid for there and then, and solve: from here on everything is public."""
        calibration = route.calibration
        if not calibration.guaranteed:
            warnings.warn(
                f"the printed calibration does not give {calibration.privacy}: its noise is too small. "
                "Use calibration='sound' for anything but comparison.",
                UnsoundCalibrationWarning,
                stacklevel=3,
            )
        if self.mechanism == "independent" and isinstance(exact, Gram):
            release = draw_each_outcome(exact, calibration, source, self._release_name)
        else:
            release = draw(exact, calibration, source, self._release_name)
        reservation.commit(release)
        moments = noisy_moments(release, calibration, exact)
        if self.mechanism == "independent":
            return _attributes(ridge_of_each_outcome(moments, self._penalty()), release)
        if labels is not None:
            moments = labels.project_moments(moments, route.frame.radius)
        solution = ridge_from_moments(moments, self._penalty(), center=route.center, fit_intercept=self.fit_intercept)
        return _attributes(solution, release)

    def _fit_exact_sums(self, exact: Gram) -> dict[str, Any]:
        """Fit sums without noise: the textbook estimator of the rows as clipped and rounded."""
        solution = ridge_from_moments(exact_moments(exact), self._penalty() or 0.0, fit_intercept=self.fit_intercept)
        return _attributes(solution, self._exact_release(solution))

    def _exact_release(self, solution: RidgeSolution) -> Release:
        values = {"coef": solution.coef, "intercept": solution.intercept}
        return Release(self._release_name, "no", Privacy(math.inf, self.delta, self.adjacency), values, {})

    def _penalty(self) -> float | None:
        """Return the ridge that was asked for, None if it is to be chosen."""
        return None if isinstance(self.ridge, str) else float(self.ridge)

    def _fit_without_noise(self, X: Any, Y: Any) -> dict[str, Any]:
        """Fit the textbook estimator; a least-squares solver where there is no penalty, for its accuracy."""
        rows, outcomes = check_X_y(X, Y, dtype=np.float64, multi_output=True, y_numeric=True)
        outcomes = outcomes.reshape(len(outcomes), -1)
        ridge = self._penalty() or 0.0
        mean_x, mean_y = np.zeros(rows.shape[1]), np.zeros(outcomes.shape[1])
        if self.fit_intercept:
            mean_x, mean_y = rows.mean(axis=0), outcomes.mean(axis=0)
        rows, outcomes = rows - mean_x, outcomes - mean_y
        if ridge > 0.0:
            theta = linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ outcomes, assume_a="pos")
        else:
            theta = linalg.lstsq(rows, outcomes)[0]
        solution = RidgeSolution(theta.T, mean_y - mean_x @ theta, np.zeros_like(theta.T), ridge)
        return _attributes(solution, self._exact_release(solution))


def _block_bounds(route: Route) -> dict[str, float | None]:
    unit = route.calibration.unit
    return {} if unit is None else {"bound_xx": unit.bound_xx, "bound_xy": unit.bound_xy}


def _check_sums(exact: Gram, bound_x: float | None, bound_y: float, fit_intercept: bool) -> None:
    """Refuse sums of rows that were clipped otherwise than the estimator's calibration assumes."""
    for name, declared, used in (("bound_x", bound_x, exact.bound_x), ("bound_y", bound_y, exact.bound_y)):
        if declared is None or float(declared) != used:
            raise ValueError(f"gram was accumulated with {name}={used!r}, the estimator has {name}={declared!r}")
    if fit_intercept and exact.exact_x_sum is None:
        raise ValueError("gram must hold column sums for an intercept: accumulate it with sums=True")


def _attributes(solution: RidgeSolution, release: Release) -> dict[str, Any]:
    return {
        "coef_": solution.coef,
        "intercept_": solution.intercept,
        "coef_std_": solution.coef_std,
        "ridge_": solution.ridge,
        "releases_": (release,),
        "privacy_spent_": release.privacy,
    }


def _dimensions(table: Any) -> int:
    """Return the number of dimensions of outcomes, without reading them where they tell."""
    if hasattr(table, "ndim"):
        return int(table.ndim)
    return np.ndim(np.asarray(table)) if isinstance(table, list) or hasattr(table, "__array__") else 2
