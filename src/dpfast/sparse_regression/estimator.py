"""Private sparse regression: choose a few features privately, then fit them privately.

Mechanism of pursuit: features one by one for the current residuals, all releases in one budget of mu. Or by Kifer,
Smith and Thakurta's two-stage algorithm: a support, by the exponential mechanism over all of them or by votes of random
blocks of rows, then least squares on it by objective perturbation over ``|theta_j| <= 1``. Its stages share the budget
by basic composition: objective perturbation is not Gaussian-differentially private, so there is no mu to split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import lsq_linear
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, check_X_y

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator.base import Expected, Fitted, Solved, Summed, explains_parameters
from dpfast.estimator.bounded import PRIVATE_BOX, BoundedEstimator, Measured, columns_of, open_with_outcome, outcomes_of
from dpfast.estimator.linear import OWN_NAMES, LinearEstimator, Names, explained_shares
from dpfast.estimator.plan import Plan
from dpfast.io.summaries import Estimates
from dpfast.privacy import Privacy, split_with_picks
from dpfast.releases.objective_bounds import ObjectiveBounds, loss_of_moments
from dpfast.releases.pursuit import Chosen, PursuedParts, PursuedRows
from dpfast.releases.selection import Progress, Scored, Voters, check_n_supports, most_votes
from dpfast.solvers.best_subset import SupportScores
from dpfast.solvers.losses import LeastSquares
from dpfast.sparse_regression.mechanism import (
    R2,
    SIGNAL,
    SPREAD,
    Choices,
    PursuitFit,
    SparseMechanism,
    SupportThenFit,
    bounds_on_support,
    planned,
    relative_error,
    top_entries,
    whole_row_bound,
)
from dpfast.statistics import Gram, LassoSelector, Selector, block_votes, check_selector, gram
from dpfast.statistics.rows import RowMap, check_box, limits_of, public_rows

if TYPE_CHECKING:
    from pandas import DataFrame

_UNDECLARED = (
    "entries of X are clipped to [-1, 1], as nothing declares their limits. Declare box_x, by name or as lows and "
    "highs (of Columns: columns.box), or find it by private_bounds(X, ..., box=True): entries are then scaled by "
    "it. box_x=(-1, 1) says that they are scaled already"
)
# The constant feature, as a share of the bound of an entry, or of a row. Of 442 people at epsilon 1 the lowest tenth of
# fits has an R^2 of .11 with a quarter, .05 with a half; with 2,000 both are alike.
_CONSTANT_SHARE = 0.25
# Of a made-up table, where the number of rows of a block is private.
_REHEARSAL_ROWS = 200


@explains_parameters
@dataclass(eq=False, repr=False)
class SparseRegression(RegressorMixin, BoundedEstimator, LinearEstimator):
    """Differentially private linear regression on a few features, chosen privately among many.

    Privacy: the choice of features and then their coefficients are released, together (epsilon, delta)-differentially
    private under `adjacency`; every attribute is a release or computed from releases.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    n_nonzero : int
        How many features to choose. Each has a share of the budget, so more features have more noise.
    bound_x : float or "private", optional
        L2 norm of a row of X, at most; longer rows are scaled onto it. Leave it out, the default: then entries are
        bounded, which needs less noise if there are many features. "pursuit" clips them to `box_x`; the other selectors
        clip the norm of a row's `n_nonzero` largest entries to ``sqrt(n_nonzero)``. "private" finds a norm for a tenth
        of the budget, from noisy counts of people by the size of their rows; about 1% of the rows are beyond it.
    box_x : mapping or tuple of (low, high), optional
        For "pursuit", in place of `bound_x`: declared limits of every feature, as for `MultiOutcomeRidge`. Entries are
        clipped to them, and measured from the middle of their limits in half-widths (without an intercept from 0, in
        units of the larger limit). Default: (-1, 1); `summary` says that nobody declared it.
    bound_y : float or "private", optional
        Size of an outcome, at most, in its own units (of several outcomes the L2 norm); larger ones are clipped. By
        default `n_nonzero` (times the root of the number of outcomes), the bound on ``|x'theta|`` for features within
        [-1, 1]. "private" finds it for a tenth of the budget.
    selector : {"auto", "pursuit", "sample_aggregate", "exponential"} or callable, default "auto"
        How features are chosen. "pursuit" repeatedly picks the feature most correlated with the current residuals and
        refits. It takes several outcomes, and picks features for all of them. It reads the table once or twice a
        feature, and holds outcomes and the picked features in memory; tables readable only once are held whole.
        "exponential" scores all supports, and so finds features that are informative only together. It needs at most
        one pass over any table. "sample_aggregate" lets random blocks of rows vote by a lasso, and holds the table in
        memory. "auto" is "pursuit", with calibration="paper" "sample_aggregate". A callable ``(X, y, size) -> indices``
        replaces the lasso: it is called from several threads, sees one block of rows as they are, and must not keep,
        print or log anything of them. If it fails, the block votes for the first features.
    n_blocks : int, optional
        Number of blocks of "sample_aggregate". With more of them the noise is smaller next to the votes, and a block
        has fewer rows. By default the root of the number of rows. Under add/remove that number is private, so
        `n_blocks` must be given.
    max_supports : int, default 100_000_000
        Most supports that "exponential" may score, a limit on its time: some 2 million a second and core for 5 features
        each.
    selection_share : float, default 0.5
        Share of the budget for the choice of features, in (0, 1); the rest fits them. For "pursuit" it is for the picks
        alone, not for the releases they are based on.
    fit_intercept : bool or "auto", default "auto"
        Whether to fit an intercept, which is not one of the `n_nonzero`. "auto" is True for "pursuit", and False for
        the other selectors, which have none. Its first estimate is one release more. On a table about 0 this costs next
        to nothing.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public (one row replaced) or private (one row more or less, of 2**30 at most).
    calibration : {"sound", "paper"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" takes the printed rate, noise and convexity, with a
        warning if they miss their claim.
    random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    support_ : ndarray of shape (n_nonzero,)
        Features chosen, increasing.
    coef_ : ndarray of shape (n_features,) or (n_outcomes, n_features)
        Coefficients, zero outside of the support, in the units of the features; within [-1, 1] except for "pursuit".
    intercept_ : float, or ndarray of shape (n_outcomes,)
        The intercept; 0 without one.
    bound_x_, bound_y_ : float
        The bounds found, if they are "private".
    caution_ : str
        With a bound of rows that is found: why columns need limits of their own, as `fit` warned, or empty.
    releases_ : tuple of Release
        All releases: counts of people by size, for a "private" bound; the choice (with the noisy votes, for
        "sample_aggregate"); then the coefficients. For "pursuit" the stages of every round, then those of the fit:
        their number depends on earlier releases.
    privacy_spent_, n_features_in_, feature_names_in_
        As for every estimator.

    References
    ----------
    Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
    regression. COLT. Algorithms 2 to 6.

    Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms. ICML.
    The bounded range by which picks of "pursuit" are composed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import SparseRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1.0, 1.0, size=(40_000, 20))
    >>> y = 0.8 * X[:, 3] - 0.6 * X[:, 11] + 0.1 * rng.normal(size=40_000)
    >>> model = SparseRegression(1.0, 1e-6, n_nonzero=2, box_x=(-1, 1), random_state=0).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([ 3, 11]), array([ 0.8, -0.6]))
    """

    _: KW_ONLY
    n_nonzero: int
    bound_x: float | Literal["private"] | None = None
    box_x: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | None = None
    bound_y: float | Literal["private"] | None = None
    selector: Literal["auto", "pursuit", "sample_aggregate", "exponential"] | Selector = "auto"
    n_blocks: int | None = None
    max_supports: int = 100_000_000
    selection_share: float = 0.5
    fit_intercept: bool | Literal["auto"] = "auto"

    support_: IntArray = field(init=False)
    intercept_: float | FloatArray = field(init=False)

    @suppress_float_warnings
    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: ArrayLike | None = None,
        max_rows: int | None = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Fit from rows.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row: arrays, data frames, Arrow tables, files, or iterables of blocks. Dask tables and
            `dpfast.io.Partitions`, with the outcomes in them, are accepted too, except by "sample_aggregate".
        y : table of shape (n_rows,), (n_rows, 1) or, for "pursuit", (n_rows, n_outcomes)
            Their outcomes, in the same order.
        groups : array of shape (n_rows,), optional
            The owner of each row, if people may own several: the person is then the unit of privacy. It needs
            "pursuit". A pick is by sums that a person is in with all their rows.
        max_rows : int, optional
            Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
        progress : callable, optional
            Called with the number of supports "exponential" has scored, and the number of all.

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

        return self._fit_people(X, y, progress, groups=groups, max_rows=max_rows, columns=columns)

    def _check_takes_people(self, privacy: Privacy) -> None:
        if math.isinf(privacy.epsilon) or self._way != "pursuit":
            raise ValueError(
                "groups need selector='pursuit' (what 'auto' is) and a finite epsilon: 'exponential' and votes of "
                "'sample_aggregate' are calibrated for a row"
            )

    def summary(self) -> DataFrame:
        """Tabulate the coefficients of the features that were chosen; all others are 0.

        Returns
        -------
        pandas.DataFrame
            A row a feature, below one for the intercept, if there is one, with a first index level ``outcome`` where
            there are several. Column ``estimate``. No errors are offered: those of the choice are not known.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return super().summary()

    def _estimates(self, names: Names = OWN_NAMES) -> Estimates:
        check_is_fitted(self)
        columns = {"estimate": self._coefficients(np.atleast_2d(self.coef_)[:, self.support_], self.intercept_)}
        are_clipped = self._way == "pursuit" and self.bound_x is None and not math.isinf(self.privacy_spent_.epsilon)
        note = _UNDECLARED if are_clipped and self.box_x is None else None
        header = self._header(r_squared=self._exact_r_squared(), note=note)
        return self._tabulated(columns, header, names, chosen=self.support_)

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.1,
        spread: float = SPREAD,
        signal: float = SIGNAL,
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
            Error wanted, as a fraction of the outcome's bound.
        spread : float, default 0.25
            Assumed mean squared norm of rows on any support as a fraction of its bound; features are assumed to be
            uncorrelated.
        signal : float, default 0.5
            Assumed smallest size of a nonzero coefficient, at most 1, to be distinguished from 0 by "exponential". For
            "sample_aggregate" every block is assumed to distinguish it.
        score : float, default 0.5
            Assumed R^2 without privacy, of coefficients of usual size.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, n_nonzero, ...

        Returns
        -------
        Plan
            Expected error (a missed feature contributes its share of an error of the whole bound), the number of people
            needed (None if no number is enough), and the expected R^2.

        Examples
        --------
        >>> from dpfast import SparseRegression
        >>> plan = SparseRegression.plan(40_000, 60, epsilon=2.0, delta=1e-6, n_nonzero=3)
        >>> plan.expected_error < 0.1
        True
        """
        sizes, positives = {"n": n, "n_features": n_features}, {"target": target, "spread": spread, "signal": signal}
        estimator, privacy = cls._planned_for(sizes, positives, parameters, max_rows)
        estimator._check_features(n_features)
        check.share("score", score, whole=True)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {}, score=score, expected_score=score)
        calibrated = partial(estimator._planned_stages, privacy, n_features, max_rows=max_rows)
        return planned(calibrated, n, n_features, target, spread, signal, score)

    @property
    def _drawn_features(self) -> Any:
        # All others are 0.
        return self.support_

    @property
    def _way(self) -> str | Selector:
        """The selector: "auto" is the one that has found most, by public parameters alone."""
        if not isinstance(self.selector, str) or self.selector != "auto":
            return self.selector
        return "sample_aggregate" if self.calibration == "paper" else "pursuit"

    @property
    def _has_intercept(self) -> bool:
        return self._way == "pursuit" if self.fit_intercept == "auto" else bool(self.fit_intercept)

    @property
    def _constant(self) -> float:
        """The constant feature of "pursuit"; 0 for none."""
        bound = 1.0 if self.bound_x is None else float(self.bound_x)
        return _CONSTANT_SHARE * bound if self._has_intercept else 0.0

    @property
    def _is_gaussian(self) -> bool:
        return self._way == "pursuit"

    def _mu(self, privacy: Privacy) -> float | None:
        if self._shares_mu or self._private_bounds or super()._mu(privacy) is None:
            return super()._mu(privacy)
        return split_with_picks(privacy, float(self.selection_share), self.n_nonzero).mu

    @property
    def _release_names(self) -> tuple[str, str]:
        name = type(self).__name__
        return f"{name}: support", f"{name}: coefficients on the support"

    def _check_parameters(self, privacy: Privacy) -> None:
        check.positive_integer("n_nonzero", self.n_nonzero)
        if isinstance(self.selector, str) or not callable(self.selector):
            names = "auto", "pursuit", "sample_aggregate", "exponential"
            check.choice("selector (if it is no callable)", self.selector, names)
        if self.box_x is not None:
            check_box(self.box_x)
            if self.bound_x is not None or self._way != "pursuit":
                raise ValueError(
                    "box_x, and low and high of a job's features, go with selector='pursuit' (what 'auto' is) and "
                    "without bound_x"
                )
        for name, given in (("bound_x", self.bound_x), ("bound_y", self.bound_y)):
            bound = check.optional(check.positive, name, given)
            # Beyond, a later release of a pursuit would be refused because of the values of an earlier one.
            if bound is not None and not 2.0**-100 <= bound <= 2.0**100:
                raise ValueError(f"{name} must lie between 2**-100 and 2**100, got {given!r}")
        has_blocks = self._way not in ("pursuit", "exponential")
        if check.optional(check.positive_integer, "n_blocks", self.n_blocks) is not None:
            if not has_blocks:
                raise ValueError(f"n_blocks must not be given with selector={self.selector!r}, which has no blocks")
        elif privacy.adjacency == "add_remove" and has_blocks:
            raise ValueError("n_blocks must be given under add_remove, as the number of rows is private")
        if not isinstance(self.fit_intercept, str) or self.fit_intercept != "auto":
            check.boolean("fit_intercept (if it is not 'auto')", self.fit_intercept)
            if self.fit_intercept and self._way != "pursuit":
                raise ValueError("fit_intercept goes with selector='pursuit' (what 'auto' is): subtract typical values")
        check.positive_integer("max_supports", self.max_supports)
        check.share("selection_share", self.selection_share)
        if self.calibration == "paper" and self._way == "pursuit":
            raise ValueError("calibration must be 'sound' with selector='pursuit', which no paper here prints")
        if self.calibration == "paper" and (self.bound_x, self.bound_y) != (None, None):
            raise ValueError("bound_x and bound_y must be left out with calibration='paper', which has its own")

    def _check_findable(self) -> None:
        super()._check_findable()
        if "box_x" in self._private_bounds:
            raise ValueError(PRIVATE_BOX)

    def _measured(
        self, X: Any, y: Any, progress: Progress | None, groups: Any = None, max_rows: int | None = None
    ) -> Measured:
        return Measured(X, y, groups=groups, max_rows=max_rows)

    def _check_features(self, n_features: int) -> None:
        if self.n_nonzero > n_features:
            raise ValueError(f"n_nonzero must be at most the number of features, {n_features}, got {self.n_nonzero}")
        if self._way == "exponential":
            check_n_supports(n_features, self.n_nonzero, self.max_supports)
        if self.box_x is not None:
            limits_of(self.box_x, n_features)

    def _row_map(self, n_features: int) -> RowMap:
        """Return the map of rows of "pursuit": their norm is at most `bound_x`, or the size of an entry at most 1."""
        if self.bound_x is not None:
            return RowMap(bound=float(self.bound_x))
        if self.box_x is None or all(np.array_equal(side, one) for side, one in zip(self.box_x, (-1, 1), strict=True)):
            return RowMap(np.full(1, -1.0), np.ones(1))
        # With an intercept entries are from the middle of their limits. Their unit is the largest size: an entry times
        # the rounded inverse of that is at most 1 in size, to the bit.
        low, high = limits_of(self.box_x, n_features)
        middle = low / 2.0 + high / 2.0 if self._has_intercept else np.zeros(n_features)
        sizes = np.maximum(np.abs(low - middle), np.abs(high - middle))
        center = middle if self._has_intercept else None
        return RowMap(low, high, center=center, scale=np.where(sizes >= 2.0**-1000, sizes, 1.0))

    @property
    def _bound_y(self) -> float:
        return float(self.n_nonzero if self.bound_y is None else self.bound_y)

    @property
    def _bound_on_support(self) -> float:
        """L2 norm of a row on the support."""
        return math.sqrt(self.n_nonzero) if self.bound_x is None else float(self.bound_x)

    def _bounds(self, n_features: int, n_rows: int) -> ObjectiveBounds:
        """Return the public bounds of records: of the whole rows summed for scores, or of rows on the support."""
        size, rows = self.n_nonzero, public_rows(n_rows, self.adjacency)
        if self._way != "exponential":
            return bounds_on_support(size, size, self._bound_on_support, self._bound_y, rows)
        bound_x = None if self.bound_x is None else float(self.bound_x)
        return bounds_on_support(size, n_features, bound_x, self._bound_y, rows)

    def _pursuit(
        self, privacy: Privacy, n_features: int, n_rows: int, n_outcomes: int = 1, max_rows: int | None = None
    ) -> PursuitFit:
        """Calibrate the pursuit: rows are clipped to a given norm, or their entries to [-1, 1]."""
        row_bound = math.inf if self.bound_x is None else float(self.bound_x)
        return PursuitFit(
            privacy,
            self.n_nonzero,
            (n_features, n_outcomes),
            1.0 if self.bound_x is None else row_bound,
            row_bound,
            self._bound_y * (math.sqrt(n_outcomes) if self.bound_y is None else 1.0),
            # Private where a replaced person may have more rows or fewer.
            None if max_rows is not None else public_rows(n_rows, privacy.adjacency),
            float(self.selection_share),
            # The counts used to find bounds have the rest; this part is no longer a separate budget.
            by_mu=self._shares_mu or privacy != Privacy(self.epsilon, self.delta, self.adjacency),
            max_rows=max_rows,
            constant=self._constant,
        )

    def _planned_stages(self, privacy: Privacy, n_features: int, n_rows: int, max_rows: int | None) -> SparseMechanism:
        if self._way == "pursuit":
            return self._pursuit(privacy, n_features, n_rows, max_rows=max_rows)
        return self._calibrated(privacy, n_features, n_rows)

    def _calibrated(self, privacy: Privacy, n_features: int, n_rows: int) -> SupportThenFit:
        bounds, share = self._bounds(n_features, n_rows), float(self.selection_share)
        voted = None if self._way == "exponential" else (n_features, self._block_count(n_rows))
        return SupportThenFit.calibrate(privacy, bounds, share, voted, self.calibration)

    def _block_count(self, n: int) -> int:
        n_blocks = max(1, round(math.sqrt(n))) if self.n_blocks is None else self.n_blocks
        if self.adjacency == "replace_one" and n // n_blocks < self.n_nonzero:
            raise ValueError(
                f"n_blocks={n_blocks} leaves {n // n_blocks} of {n} rows a block, fewer than "
                f"n_nonzero={self.n_nonzero}: use fewer blocks, or selector='exponential'"
            )
        return n_blocks

    def _tried_selector(self, n_rows: int, n_features: int) -> Selector:
        """Return the voting function, tried on made-up numbers: as many as in a block if that is public."""
        way = self._way
        selector = LassoSelector() if isinstance(way, str) else way
        block_rows = n_rows // self._block_count(n_rows) if self.adjacency == "replace_one" else _REHEARSAL_ROWS
        check_selector(selector, block_rows, n_features, self.n_nonzero)
        return selector

    def _sum(
        self,
        privacy: Privacy,
        source: noise.BitSource,
        X: Any,
        y: Any,
        progress: Progress | None,
        groups: Any = None,
        max_rows: int | None = None,
    ) -> Summed:
        if self._way == "pursuit":
            return self._pursued_rows(privacy, X, y, groups, max_rows)
        scored = self._way == "exponential"
        table = open_with_outcome(type(self).__name__, X, y, may_copy=not scored)
        self._check_features(table.n_features)
        return self._summed_rows(table, privacy, progress) if scored else self._voting_rows(table, privacy)

    def _pursued_rows(self, privacy: Privacy, X: Any, y: Any, groups: Any, max_rows: int | None) -> Summed:
        """Hold outcomes; rows are read again for every feature."""
        io.check_aligned(X=X, y=y, groups=groups)
        # Ids of a file are held too.
        groups = np.asarray(groups) if isinstance(groups, io.RowOwners) else groups
        table = open_with_outcome(type(self).__name__, X, y, or_more=True)
        self._check_features(table.n_features)
        if table.is_read_once or table.is_unordered:
            table = table.held()
        row_map, constant = self._row_map(table.n_features), self._constant
        outcome_map = RowMap(bound=self._pursuit(privacy, table.n_features, 1, table.n_outcomes).outcome_bound)
        read = partial(PursuedRows, row_map=row_map, outcome_map=outcome_map, max_rows=max_rows, constant=constant)
        rows: PursuedRows | PursuedParts
        if table.partitions is None:
            rows = read(table, n_threads=self.n_threads, groups=groups)
        else:
            rows = PursuedParts(table, partial(read, n_threads=self.n_threads or 1), groups)
        n = int(rows.sum(PursuedRows.count))
        pursuit = self._pursuit(privacy, table.n_features, n, table.n_outcomes, max_rows)
        if pursuit.n_rows == 0:
            raise ValueError("X has no rows: at least one is needed")
        return Summed(pursuit, rows, table.n_features, self._expected(pursuit, table.n_features))

    def _summed_rows(self, table: io.Table, privacy: Privacy, progress: Progress | None) -> Summed:
        """Sum whole rows once: supports are scored on the sums, and the one chosen is fitted on them."""
        p, own = table.n_features, self.bound_x is None
        exact = self._gram(
            table,
            bound_x=whole_row_bound(self.n_nonzero, p) if own else self._bound_on_support,
            map_x=top_entries(self.n_nonzero) if own else None,
        )
        mechanism = self._calibrated(privacy, p, exact.n_rows)
        assert exact.xy is not None
        scored = Scored(exact.xx, exact.xy[:, 0], self.n_threads, progress)
        loss_on = partial(loss_of_moments, exact, mechanism.regression.bounds.sizes)
        choices = Choices(scored, lambda support: loss_on(columns=support))
        return Summed(mechanism, choices, p, self._expected(mechanism, p))

    def _voting_rows(self, table: io.Table, privacy: Privacy) -> Summed:
        """Let blocks of rows as they are vote; the bounded rows of the support will be summed for its fit."""
        rows, outcomes = (np.asarray(array, np.float64) for array in table.whole())
        for name, values in (("X", rows), ("y", outcomes)):
            if not np.isfinite(values).all():
                raise check.not_finite(name)
        n, p = rows.shape
        mechanism = self._calibrated(privacy, p, n)
        voters = Voters(rows, outcomes[:, 0], self._tried_selector(n, p), self.n_threads)

        def loss_on(support: IntArray) -> LeastSquares:
            exact = self._gram(rows[:, support], outcomes, bound_x=self._bound_on_support)
            return loss_of_moments(exact, mechanism.regression.bounds.sizes)

        return Summed(mechanism, Choices(voters, loss_on), p, self._expected(mechanism, p))

    def _expected(self, mechanism: SparseMechanism, n_features: int) -> Expected | None:
        rows = mechanism.n_rows
        return None if rows is None else Expected(relative_error(mechanism, rows, n_features), rows)

    def _gram(self, *table: Any, **bounds: Any) -> Gram:
        return gram(*table, bound_y=self._bound_y, n_threads=self.n_threads, **bounds)

    def _solve(self, mechanism: SparseMechanism, found: Chosen, public: int) -> Fitted:
        features = np.array(found.features)
        intercept = np.zeros(found.theta.shape[1]) if found.intercept is None else found.intercept
        coef, intercept = self._row_map(public).of_entries(list(found.features)).undone(found.theta.T, intercept)
        return Fitted(_fitted(features, coef.T, public, intercept), found.error)

    def _fit_without_noise(self, X: Any, y: Any, progress: Progress | None) -> Solved:
        """Best subset, or plain votes; then exact least squares over the box. Or plain orthogonal matching pursuit."""
        if self._way == "pursuit":
            return self._pursued_without_noise(X, y)
        rows, outcomes = check_X_y(X, y, dtype=np.float64, y_numeric=True)
        n, p = rows.shape
        self._check_features(p)
        if self._way == "exponential":
            support = _best_subset(rows.T @ rows, rows.T @ outcomes, self.n_nonzero, self.n_threads)
        else:
            n_blocks, selector = self._block_count(n), self._tried_selector(n, p)
            blocks = noise.random_blocks(n, n_blocks, noise.resolve_source(self.random_state), equal=True)
            votes = block_votes(rows, outcomes, blocks, n_blocks, self.n_nonzero, selector, n_threads=self.n_threads)
            support = most_votes(votes, self.n_nonzero)
        found = lsq_linear(rows[:, support], outcomes, bounds=(-1.0, 1.0), method="bvls", tol=1e-14)
        first, second = self._release_names
        chosen = self._exact_release({"support": support}, first, states_delta=False)
        values = {"coef": np.clip(found.x, -1.0, 1.0)}
        fitted = rows[:, support] @ values["coef"]
        values["r_squared"] = explained_shares(outcomes, fitted, has_intercept=False)
        releases = chosen, self._exact_release(values, second)
        return Solved(releases, _fitted(support, releases[1].values["coef"][:, None], p))

    def _pursued_without_noise(self, X: Any, y: Any) -> Solved:
        given = np.asarray(y)
        is_matrix = given.ndim == 2 and given.shape[1] > 1
        rows, outcomes = check_X_y(X, given, dtype=np.float64, y_numeric=True, multi_output=is_matrix)
        outcomes = outcomes.reshape(len(rows), -1)
        self._check_features(rows.shape[1])
        scale = self._row_map(rows.shape[1]).scale
        units = np.ones(rows.shape[1]) if scale is None else scale
        rows = rows / units
        # An intercept takes out the means.
        mean, of_outcomes = (table.mean(axis=0) * self._has_intercept for table in (rows, outcomes))
        rows, outcomes = rows - mean, outcomes - of_outcomes
        picked: list[int] = []
        theta, left = np.zeros((0, outcomes.shape[1])), outcomes
        for _ in range(self.n_nonzero):
            scores = np.linalg.norm(rows.T @ left, axis=1)
            scores[picked] = -1.0
            picked.append(int(np.argmax(scores)))
            theta = np.linalg.lstsq(rows[:, picked], outcomes)[0]
            left = outcomes - rows[:, picked] @ theta
        values = {"support": np.array(picked), "coef": theta / units[picked, None]}
        # Both are centred already where there is an intercept.
        values["r_squared"] = explained_shares(outcomes, outcomes - left, has_intercept=False)
        intercept = None
        if self._has_intercept:
            intercept = values["intercept"] = of_outcomes - mean[picked] @ theta
        fitted = _fitted(values["support"], values["coef"], rows.shape[1], intercept)
        return Solved((self._exact_release(values),), fitted)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        outcomes = np.shape(self.coef_)[:-1] if np.ndim(self.coef_) == 2 else ()
        yield "coef_", (*outcomes, self.n_features_in_)

    def _check_fitted(self) -> None:
        support = self.support_
        if (
            not isinstance(support, np.ndarray)
            or support.dtype != np.int64
            or support.shape != (self.n_nonzero,)
            or not np.isin(support, range(self.n_features_in_)).all()
            or not np.isin(np.nonzero(self.coef_)[-1], support).all()
        ):
            raise ValueError(f"support_ must hold {self.n_nonzero} features, and coef_ be 0 outside of it")
        if np.shape(self.intercept_) != np.shape(self.coef_)[:-1] or not np.isfinite(self.intercept_).all():
            raise ValueError("intercept_ must hold a finite number for each outcome")


def _fitted(
    features: IntArray, theta: FloatArray, n_features: int, intercept: FloatArray | None = None
) -> dict[str, Any]:
    """Return attributes from features in any order and their coefficients (k, l), and from intercepts (l,)."""
    order = np.argsort(features)
    coef = np.zeros((theta.shape[1], n_features))
    coef[:, features] = theta.T
    return {
        "support_": np.array(features[order], np.int64),
        "coef_": coef[0] if len(coef) == 1 else coef,
        "intercept_": 0.0 if intercept is None else float(intercept[0]) if len(coef) == 1 else intercept,
        "n_features_in_": n_features,
    }


def _best_subset(xx: FloatArray, xy: FloatArray, size: int, n_threads: int | None) -> IntArray:
    """Find the support with the least score, to rounding."""
    magnitude = size * size * float(np.abs(xx).max()) + size * float(np.abs(xy).max())
    resolution = 2.0**-44 * magnitude if magnitude > 0.0 else 1.0
    scores = SupportScores((xx + xx.T) / 2.0, xy, size, ridge=resolution, tolerance=resolution)
    best, least, start = 0, math.inf, 0
    for block in scores.blocks(n_threads):
        place = int(np.argmin(block))
        if block[place] < least:
            best, least = start + place, float(block[place])
        start += len(block)
    return scores.support(best)
