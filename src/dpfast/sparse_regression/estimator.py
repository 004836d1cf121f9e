"""Private sparse regression: choose a few features privately, then fit them privately.

Kifer, Smith and Thakurta's two-stage algorithm: a support, by the exponential mechanism over all of them or by votes of
random blocks of rows, then least squares on it by objective perturbation over ``|theta_j| <= 1``. The stages share the
budget by basic composition: objective perturbation is not Gaussian-differentially private, so there is no mu to split.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import lsq_linear
from sklearn.base import RegressorMixin
from sklearn.exceptions import DataConversionWarning
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
from dpfast.ledger import Ledger, Release
from dpfast.privacy import Adjacency, Calibration, Privacy, UnsoundCalibrationWarning
from dpfast.releases.selection import (
    MOST_ROWS,
    Progress,
    RecordBounds,
    ScoredSelection,
    TopEntries,
    VotedSelection,
    check_n_supports,
    most_votes,
    whole_row_bound,
)
from dpfast.solvers.best_subset import SupportScores
from dpfast.sparse_regression.mechanism import SupportRegression
from dpfast.statistics import Gram, LassoSelector, Selector, block_votes, check_selector, gram

Drawn = tuple[int, Release, Release]  # number of features, the support and the coefficients on it

# Of a made-up table, where the number of rows of a block is private.
_REHEARSAL_ROWS = 200
_MOST_PEOPLE = 2**62


class SparseRegression(RegressorMixin, Persistent):
    """Differentially private linear regression on a few features, chosen privately among many.

    Privacy: the choice of features and then their coefficients are released, together (epsilon, delta)-differentially
    private under `adjacency`; every attribute is one of them or computed from them.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the best subset without noise, clipping or rounding.
    delta : float, default 0.0
        0 for pure differential privacy.
    n_nonzero : int
        How many features to choose.
    bound_x : float, optional
        L2 norm of a row of X, at most; longer rows are scaled onto it. By default the norm of a row's `n_nonzero`
        largest entries is at most ``sqrt(n_nonzero)``, as it is where entries are within [-1, 1].
    bound_y : float, optional
        Largest size of an outcome; larger ones are clipped. By default `n_nonzero`, which ``|x'theta|`` keeps to.
    selector : {"sample_aggregate", "exponential"} or callable, default "sample_aggregate"
        "exponential" scores all supports, and needs no more than a pass over any table. "sample_aggregate" lets random
        blocks of rows vote by a lasso; it needs the table in memory. A callable ``(X, y, size) -> indices`` votes in
        the lasso's place: it is called from several threads, sees one block of rows as they are, and must not keep,
        print or log anything of them; where it fails, the block votes for the first features.
    n_blocks : int, optional
        Blocks of "sample_aggregate"; by default the root of the number of rows, which add/remove keeps private: there
        it must be given.
    max_supports : int, default 100_000_000
        Most supports that "exponential" scores: some 2 million a second and core for 5 features each.
    selection_share : float, default 0.5
        Share of the budget for the choice of features, in (0, 1).
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public (one row replaced) or private (one row more or less, of 2**32 at most).
    calibration : {"sound", "paper"}, default "sound"
        "paper" takes the printed rate, noise and convexity, with a warning where they miss their own claim.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee, for anybody: from two releases of one seed the noise can
        be subtracted without knowing it. A ledger takes each seed once. By default noise comes from the operating
        system's cryptographic source.
    n_threads : int, optional
        Threads that score, select and sum; the results do not depend on it.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies.

    Attributes
    ----------
    support_ : ndarray of shape (n_nonzero,)
        Features chosen, increasing.
    coef_ : ndarray of shape (n_features,)
        Coefficients, within [-1, 1]; zero outside of the support.
    releases_ : tuple of Release
        All that left the data: the choice (with the noisy votes, for "sample_aggregate"), then the coefficients.
    privacy_spent_ : Privacy
        What it cost.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, where X has any.

    References
    ----------
    Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
    regression. COLT. Algorithms 2 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import SparseRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1.0, 1.0, size=(40_000, 20))
    >>> y = 0.8 * X[:, 3] - 0.6 * X[:, 11] + 0.1 * rng.normal(size=40_000)
    >>> model = SparseRegression(1.0, 1e-6, n_nonzero=2, selector="exponential", random_state=0).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([ 3, 11]), array([ 0.8, -0.6]))
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        n_nonzero: int,
        bound_x: float | None = None,
        bound_y: float | None = None,
        selector: Literal["sample_aggregate", "exponential"] | Selector = "sample_aggregate",
        n_blocks: int | None = None,
        max_supports: int = 100_000_000,
        selection_share: float = 0.5,
        adjacency: Adjacency = "replace_one",
        calibration: Calibration = "sound",
        random_state: int | None = None,
        n_threads: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.bound_x = bound_x
        self.bound_y = bound_y
        self.selector = selector
        self.n_blocks = n_blocks
        self.max_supports = max_supports
        self.selection_share = selection_share
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @quiet
    def fit(self, X: Any, y: Any, *, progress: Progress | None = None) -> Self:
        """Fit from rows.

        Parameters
        ----------
        X : table of shape (n_rows, n_features)
            One person a row: an array or a data frame; for "exponential" also Arrow or Dask tables, files, or iterables
            of blocks.
        y : table of shape (n_rows,) or (n_rows, 1)
            Their outcomes, in the same order.
        progress : callable, optional
            Told how many supports "exponential" has scored, and how many there are.

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
        columns = columns_of(X)
        with reserve(self, privacy) as reservation:
            if math.isinf(privacy.epsilon):
                releases = self._fit_without_noise(X, y)
            elif self.selector == "exponential":
                releases = self._fit_scored(X, y, privacy, progress)
            else:
                releases = self._fit_voted(X, y, privacy)
            reservation.commit(*releases[1:])
        fitted = _attributes(*releases, privacy)
        return self._set_fitted(fitted | {"n_features_in_": len(fitted["coef_"])} | columns, ("feature_names_in_",))

    @quiet
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by the releases.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        return np.asarray(rows @ self.coef_)

    @classmethod
    def plan(
        cls,
        n: int,
        n_features: int,
        *,
        target: float = 0.1,
        spread: float = 0.25,
        signal: float = 0.5,
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
            Assumed mean squared norm of rows on any support as a fraction of its bound; features are taken to be
            uncorrelated.
        signal : float, default 0.5
            Assumed smallest size of a coefficient that is not 0, at most 1, which "exponential" is to tell from 0; that
            every block tells it is assumed of "sample_aggregate".
        **parameters
            The estimator's own: epsilon, delta, n_nonzero, ...

        Returns
        -------
        Plan
            Expected error, a wrong choice of features counted as an error of the whole bound, and the number of people
            needed (None if no number is enough).

        Examples
        --------
        >>> from dpfast import SparseRegression
        >>> plan = SparseRegression.plan(40_000, 60, epsilon=2.0, delta=1e-6, n_nonzero=3)
        >>> plan.expected_error < 0.1
        True
        """
        n, n_features = check.positive_integer("n", n), check.positive_integer("n_features", n_features)
        target, spread, signal = (
            check.positive(name, value) for name, value in (("target", target), ("spread", spread), ("signal", signal))
        )
        estimator = cls(**parameters)
        privacy = estimator._checked()
        estimator._check_features(n_features)
        if math.isinf(privacy.epsilon):
            return Plan.from_error(n, 0.0, target, {})

        def error(people: int) -> tuple[float, dict[str, float]]:
            return estimator._expected_error(people, n_features, privacy, spread, signal)

        needed = _least(lambda people: error(people)[0] <= target)
        return Plan(n, min(error(n)[0], 1.0), target, needed, error(n)[1])

    def _expected_error(
        self, n: int, n_features: int, privacy: Privacy, spread: float, signal: float
    ) -> tuple[float, dict[str, float]]:
        """Error relative to the outcome's bound, and the scales of the noise."""
        most_rows = n if privacy.adjacency == "replace_one" else MOST_ROWS
        share = self._selection_budget(privacy)
        selection: ScoredSelection | VotedSelection
        if self.selector == "exponential":
            bounds = self._summed_bounds(n_features)
            selection = self._by_scores(share, bounds, most_rows)
            # Without one feature of the support, its part of the sum of squares is left.
            wrong = selection.failure(0.5 * n * spread * bounds.curvature / bounds.size * signal**2, n_features)
        else:
            bounds = self._restricted_bounds()
            selection = self._by_votes(share, self.n_nonzero, n_features, self._block_count(n, privacy))
            wrong = selection.failure(n_features)
        regression = self._regression(_rest(privacy, selection.privacy), bounds, most_rows)
        error = math.sqrt(regression.error(n, spread) ** 2 / bounds.outcome**2 + wrong)
        return error, selection.scales | regression.scales

    def _checked(self) -> Privacy:
        """Refuse bad parameters; the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        check.positive_integer("n_nonzero", self.n_nonzero)
        for name in ("bound_x", "bound_y"):
            if getattr(self, name) is not None:
                check.positive(name, getattr(self, name))
        if isinstance(self.selector, str) or not callable(self.selector):
            check.choice("selector (if it is no callable)", self.selector, ("sample_aggregate", "exponential"))
        if self.n_blocks is not None:
            check.positive_integer("n_blocks", self.n_blocks)
            if self.selector == "exponential":
                raise ValueError("n_blocks must not be given with selector='exponential', which has no blocks")
        elif privacy.adjacency == "add_remove" and self.selector != "exponential":
            raise ValueError("n_blocks must be given under add_remove, as the number of rows is private")
        check.positive_integer("max_supports", self.max_supports)
        if not 0.0 < check.real("selection_share", self.selection_share) < 1.0:
            raise ValueError(f"selection_share must lie in (0, 1), got {self.selection_share!r}")
        check.choice("calibration", self.calibration, get_args(Calibration))
        if self.calibration == "paper" and (self.bound_x, self.bound_y) != (None, None):
            raise ValueError("bound_x and bound_y must be left out with calibration='paper', which has its own")
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        noise.resolve_source(self.random_state)
        resolve_n_threads(self.n_threads)
        return privacy

    def _check_loaded(self) -> None:
        self._checked()
        if not hasattr(self, "coef_"):
            return
        p = check.positive_integer("n_features_in_", self.n_features_in_)
        shapes: dict[str, tuple[tuple[int, ...], Any]]
        shapes = {"coef_": ((p,), np.float64), "support_": ((self.n_nonzero,), np.int64)}
        for name, (shape, dtype) in shapes.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} must be an array of {np.dtype(dtype)} of shape {shape}")
        if (
            np.setdiff1d(self.support_, np.arange(p)).size
            or np.setdiff1d(np.flatnonzero(self.coef_), self.support_).size
        ):
            raise ValueError("support_ must hold features, and coef_ be 0 outside of it")
        if len(vars(self).get("feature_names_in_", self.coef_)) != p:
            raise ValueError("feature_names_in_ must be as many as coef_")
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")

    def _check_features(self, n_features: int) -> None:
        if self.n_nonzero > n_features:
            raise ValueError(f"n_nonzero must be at most the number of features, {n_features}, got {self.n_nonzero}")
        if self.selector == "exponential":
            check_n_supports(n_features, self.n_nonzero, self.max_supports)

    def _selection_budget(self, privacy: Privacy) -> Privacy:
        share = float(self.selection_share)
        # The exponential mechanism is pure.
        delta = 0.0 if self.selector == "exponential" else share * privacy.delta
        return Privacy(share * privacy.epsilon, delta, privacy.adjacency)

    @property
    def _by_scores(self) -> Callable[[Privacy, RecordBounds, int], ScoredSelection]:
        return ScoredSelection.calibrate if self.calibration == "sound" else ScoredSelection.printed

    @property
    def _by_votes(self) -> Callable[[Privacy, int, int, int], VotedSelection]:
        return VotedSelection.calibrate if self.calibration == "sound" else VotedSelection.printed

    @property
    def _regression(self) -> Callable[[Privacy, RecordBounds, int], SupportRegression]:
        return SupportRegression.calibrate if self.calibration == "sound" else SupportRegression.printed

    @property
    def _outcome_bound(self) -> float:
        return float(self.n_nonzero if self.bound_y is None else self.bound_y)

    @property
    def _restricted_bound(self) -> float:
        """L2 norm of a row on the support."""
        return math.sqrt(self.n_nonzero) if self.bound_x is None else float(self.bound_x)

    def _restricted_bounds(self) -> RecordBounds:
        """Bounds of records summed on the support alone."""
        return RecordBounds.of_rows(self.n_nonzero, self.n_nonzero, self._restricted_bound, self._outcome_bound)

    def _top(self) -> TopEntries | None:
        return None if self.bound_x is not None else TopEntries(self.n_nonzero, self._restricted_bound)

    def _summed_bounds(self, n_features: int) -> RecordBounds:
        """Bounds of records on any support, where whole rows are summed."""
        top = self._top()
        if top is None:
            return RecordBounds.of_rows(self.n_nonzero, n_features, self._restricted_bound, self._outcome_bound)
        return RecordBounds.of_top_entries(top, n_features, self._outcome_bound)

    def _block_count(self, n: int, privacy: Privacy) -> int:
        n_blocks = max(1, round(math.sqrt(n))) if self.n_blocks is None else self.n_blocks
        if privacy.adjacency == "replace_one" and n // n_blocks < self.n_nonzero:
            raise ValueError(
                f"n_blocks={n_blocks} leaves {n // n_blocks} of {n} rows a block, fewer than "
                f"n_nonzero={self.n_nonzero}: use fewer blocks, or selector='exponential'"
            )
        return n_blocks

    def _most_rows(self, n_rows: int, privacy: Privacy) -> int:
        """Return the number of rows where it is public, else what it is at most."""
        if privacy.adjacency == "replace_one":
            if n_rows == 0:
                raise ValueError("X has no rows: at least one is needed")
            return n_rows
        # Where the number of rows is private, a table without any is as good as another.
        if n_rows > MOST_ROWS:
            raise ValueError("X must have at most 2**32 rows under add_remove")
        return MOST_ROWS

    def _opened(self, X: Any, y: Any) -> io.Table:
        table = io.open_table(X, y, may_copy=self.selector == "sample_aggregate")
        if table.n_outcomes == 0:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if table.n_outcomes > 1:
            raise ValueError(f"y must have one outcome a row, got {table.n_outcomes} columns")
        if getattr(y, "ndim", 1) == 2:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=5
            )
        self._check_features(table.n_features)
        return table

    def _fit_scored(self, X: Any, y: Any, privacy: Privacy, progress: Progress | None) -> Drawn:
        """Sum whole rows once; choose by the scores of all supports; fit the same sums on the one chosen."""
        table = self._opened(X, y)
        top, p = self._top(), table.n_features
        exact = gram(
            table,
            bound_x=self._restricted_bound if top is None else whole_row_bound(top, p),
            bound_y=self._outcome_bound,
            n_threads=self.n_threads,
            map_x=top,
        )
        bounds, most_rows = self._summed_bounds(p), self._most_rows(exact.n_rows, privacy)
        selection = self._by_scores(self._selection_budget(privacy), bounds, most_rows)
        regression = self._regression(_rest(privacy, selection.privacy), bounds, most_rows)
        source = noise.resolve_source(self.random_state)
        assert exact.xy is not None
        chosen = selection.release(exact.xx, exact.xy[:, 0], source, self._release_names[0], self.n_threads, progress)
        support = chosen.values["support"]
        return p, chosen, _released_coefficients(regression, exact, support, source, self._release_names[1])

    def _fit_voted(self, X: Any, y: Any, privacy: Privacy) -> Drawn:
        """Let blocks of rows as they are vote; then sum the bounded rows of the support."""
        table = self._opened(X, y)
        rows, outcomes = _in_memory(table)
        p, most_rows = table.n_features, self._most_rows(len(rows), privacy)
        n_blocks = self._block_count(len(rows), privacy)
        selection = self._by_votes(self._selection_budget(privacy), self.n_nonzero, p, n_blocks)
        bounds = self._restricted_bounds()
        regression = self._regression(_rest(privacy, selection.privacy), bounds, most_rows)
        selector = self._selector(len(rows) // n_blocks if privacy.adjacency == "replace_one" else None, p)
        source = noise.resolve_source(self.random_state)
        chosen = selection.release(rows, outcomes, selector, source, self._release_names[0], self.n_threads)
        support = chosen.values["support"]
        exact = gram(
            rows[:, support],
            outcomes,
            bound_x=self._restricted_bound,
            bound_y=self._outcome_bound,
            n_threads=self.n_threads,
        )
        everything = np.arange(self.n_nonzero)
        return p, chosen, _released_coefficients(regression, exact, everything, source, self._release_names[1])

    def _selector(self, block_rows: int | None, n_features: int) -> Selector:
        """Return what votes, tried out on made-up numbers."""
        selector = LassoSelector() if isinstance(self.selector, str) else self.selector
        check_selector(selector, block_rows or _REHEARSAL_ROWS, n_features, self.n_nonzero)
        return selector

    def _fit_without_noise(self, X: Any, y: Any) -> Drawn:
        """Best subset, or plain votes; then exact least squares over the box."""
        rows, outcomes = check_X_y(X, y, dtype=np.float64, y_numeric=True)
        n, p = rows.shape
        self._check_features(p)
        privacy = Privacy(math.inf, self.delta, self.adjacency)
        if self.selector == "exponential":
            support = _best_subset(rows.T @ rows, rows.T @ outcomes, self.n_nonzero, self.n_threads)
        else:
            n_blocks = self._block_count(n, privacy)
            selector = self._selector(n // n_blocks, p)
            blocks = noise.random_blocks(n, n_blocks, noise.resolve_source(self.random_state), equal=True)
            votes = block_votes(rows, outcomes, blocks, n_blocks, self.n_nonzero, selector, n_threads=self.n_threads)
            support = most_votes(votes, self.n_nonzero)
        found = lsq_linear(rows[:, support], outcomes, bounds=(-1.0, 1.0), method="bvls", tol=1e-14)
        first, second = self._release_names
        chosen = Release(first, "no", Privacy(math.inf, 0.0, self.adjacency), {"support": support}, {})
        return p, chosen, Release(second, "no", privacy, {"coef": np.clip(found.x, -1.0, 1.0)}, {})

    @property
    def _release_names(self) -> tuple[str, str]:
        name = type(self).__name__
        return f"{name}: support", f"{name}: coefficients on the support"


def _rest(whole: Privacy, part: Privacy) -> Privacy:
    """Return what basic composition leaves for the second stage."""
    return Privacy(whole.epsilon - part.epsilon, whole.delta - part.delta, whole.adjacency)


def _released_coefficients(
    regression: SupportRegression, exact: Gram, columns: NDArray[np.int64], source: noise.BitSource, name: str
) -> Release:
    """Release the coefficients of some columns of exact sums."""
    if not regression.guaranteed:
        warnings.warn(
            f"the printed calibration is not known to give {regression.privacy}: it is for one record more or less. "
            "Use calibration='sound' for anything but comparison.",
            UnsoundCalibrationWarning,
            stacklevel=5,
        )
    assert exact.exact_xy is not None
    return regression.release(exact.xx[np.ix_(columns, columns)], exact.exact_xy[columns, 0], source, name)


def _attributes(n_features: int, chosen: Release, coefficients: Release, privacy: Privacy) -> dict[str, Any]:
    support = np.array(chosen.values["support"])
    coef = np.zeros(n_features)
    coef[support] = coefficients.values["coef"]
    return {"support_": support, "coef_": coef, "releases_": (chosen, coefficients), "privacy_spent_": privacy}


def _best_subset(xx: FloatArray, xy: FloatArray, size: int, n_threads: int | None) -> NDArray[np.int64]:
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


def _in_memory(table: io.Table) -> tuple[FloatArray, FloatArray]:
    """Return the whole table as it is, all of it finite."""
    if table.arrays is None or table.arrays[1] is None:
        raise TypeError(
            "X and y must be arrays or data frames in memory to be cut into blocks; or selector='exponential'"
        )
    rows, outcomes = (np.asarray(array, np.float64) for array in table.arrays)
    for name, values in (("X", rows), ("y", outcomes)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must not contain NaN or infinity")
    return rows, outcomes[:, 0]


def _least(enough: Callable[[int], bool]) -> int | None:
    """Return the least number of people that is enough, by doubling and bisection; None if none is."""

    def tried(people: int) -> bool:
        try:
            return enough(people)
        except ValueError:
            # Fewer rows a block than features to choose.
            return False

    high = 1
    while not tried(high):
        if high > _MOST_PEOPLE:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tried(middle) else (middle, high)
    return high
