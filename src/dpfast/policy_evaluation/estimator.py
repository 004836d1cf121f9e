"""Private evaluation of a policy: the value of every state, from people's trajectories."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.estimator.persistence import Persistent
from dpfast.estimator.plan import Plan
from dpfast.estimator.spending import reserve
from dpfast.kernels.threads import resolve_n_threads
from dpfast.ledger import Ledger, Release, Reservation
from dpfast.policy_evaluation import mechanism as smooth
from dpfast.policy_evaluation.mechanism import Problem, RidgeFit, Statistic, WeightedMeans
from dpfast.privacy import Adjacency, Privacy, SmoothGaussian, UtilityWarning
from dpfast.releases import visit_moments
from dpfast.statistics import (
    FirstVisitReturns,
    ReturnGrid,
    StateEncoder,
    Trajectories,
    first_visit_returns,
    return_range,
    sufficient_statistics,
)
from dpfast.statistics.returns import blocks_of, checked_discount

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SMALLEST, _LARGEST = 1e-50, 1e50
# The middle of the range, without any data, is as good as an error of this share of it.
_USELESS = 0.5
# Beyond, the supplement proves nothing.
_LARGEST_PRINTED_EPSILON = 5.0
# How closely `plan` looks for the number of trajectories needed, and where it gives up.
_CLOSE_ENOUGH = 1.05
_MOST_TRAJECTORIES = 1 << 50


class PolicyEvaluation(Persistent):
    """Differentially private value function of a policy, from trajectories that people followed under it.

    Privacy: one release is (epsilon, delta)-differentially private under `adjacency`, a person being a trajectory;
    every other attribute is computed from it. For "lsw" and "lsl" the size of the noise depends on the data, and is as
    private as they are.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the textbook estimator without noise, clipping or rounding.
    delta : float, default 0.0
        Positive for "lsw" and "lsl"; 0 for pure differential privacy with "sufficient_statistics".
    gamma : float
        Discount, in (0, 1]; 1 needs a horizon.
    features : array_like of shape (n_states, n_features) or callable, optional
        Phi, public; a callable gives the features of one state. Default: one for each state.
    return_range : tuple of float, optional
        Least and largest discounted return, public; returns beyond are clipped. Default: what `reward_range`, `gamma`
        and `horizon` allow.
    reward_range : tuple of float, default (0, 1)
        Least and largest reward, public.
    horizon : int, optional
        Most recorded states of a trajectory, a terminal one included; longer trajectories are cut. The fewer states one
        can visit, the less noise.
    method : {"lsw", "lsl", "sufficient_statistics"}, default "lsw"
        "lsw" fits mean first-visit returns, weighted by state; "lsl" is ridge regression over trajectories; both with
        noise of data-dependent size [1]_. "sufficient_statistics" releases the normal equations with noise of public
        size: better where epsilon is large or data many, and where states are visited unevenly.
    weights : array_like of shape (n_states,), optional
        w for "lsw" (what the error in each state counts), rho for the others; public, nonnegative. Default: equal,
        adding up to 1.
    ridge : float, optional
        The paper's lambda, positive: lambda/(2 m) is added to the m trajectories' mean Phi' G Phi. Default: for "lsl"
        one that grows like sqrt(m), for "sufficient_statistics" what the known noise asks for, and 0 where epsilon is
        ``inf``. "lsw" has none.
    block_bounds : tuple of float, optional
        For "sufficient_statistics": Frobenius norms (xx, xy) of one trajectory's part in the normal equations, public;
        larger ones are scaled. Default: what weights, features, range and horizon allow.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of trajectories is public, or private ("sufficient_statistics" only).
    calibration : {"sound", "paper", "icml"}, default "sound"
        "paper" and "icml" are the algorithms of "lsw" and "lsl" as printed, with the constants of the supplement and of
        the conference; they warn where the constants miss their claim.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee, for anybody. A ledger takes each seed once.
    n_threads : int, optional
        Threads that sum returns; the results do not depend on it.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies.

    Attributes
    ----------
    value_ : ndarray of shape (n_states,)
        Value of each state; not clipped to the range of returns, lest the noise shift it to one side.
    coef_ : ndarray of shape (n_features,)
        Coefficients: `value_` is `offset_` plus the features times them.
    offset_ : float
        The lower end of the range for "lsl" and "sufficient_statistics", which fit what is above it; else 0.
    value_std_ : ndarray of shape (n_states,)
        Standard deviation of `value_` from the privacy noise alone (first order), where its law is public: for
        "sufficient_statistics" only.
    ridge_ : float
        The lambda used; 0 for "lsw".
    releases_ : tuple of Release
        All that left the data.
    privacy_spent_ : Privacy
        What it cost.

    References
    ----------
    .. [1] Balle, B., Gomrokchi, M., Precup, D. (2016). Differentially private policy evaluation. ICML. Algorithms 1
       (DP-LSW) and 2 (DP-LSL).

    Examples
    --------
    >>> from dpfast import PolicyEvaluation
    >>> from dpfast.datasets.decision_processes import chain_trajectories, chain_values
    >>> from dpfast.statistics import Trajectories
    >>> walks = Trajectories(*chain_trajectories(5_000, n_states=10, seed=0))
    >>> model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0, 1), random_state=0).fit(walks)
    >>> bool(abs(model.value_ - chain_values(0.9, n_states=10)).max() < 0.02)
    True
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        gamma: float,
        features: ArrayLike | Callable[[Any], ArrayLike] | None = None,
        return_range: tuple[float, float] | None = None,
        reward_range: tuple[float, float] = (0, 1),
        horizon: int | None = None,
        method: Literal["lsw", "lsl", "sufficient_statistics"] = "lsw",
        weights: ArrayLike | None = None,
        ridge: float | None = None,
        block_bounds: tuple[float, float] | None = None,
        adjacency: Adjacency = "replace_one",
        calibration: Literal["sound", "paper", "icml"] = "sound",
        random_state: int | None = None,
        n_threads: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.gamma = gamma
        self.features = features
        self.return_range = return_range
        self.reward_range = reward_range
        self.horizon = horizon
        self.method = method
        self.weights = weights
        self.ridge = ridge
        self.block_bounds = block_bounds
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @quiet
    def fit(self, trajectories: Trajectories | Iterable[Trajectories], y: None = None) -> Self:
        """Fit from trajectories, one a person.

        Parameters
        ----------
        trajectories : Trajectories, or iterable of Trajectories
            Blocks, as of `Trajectories.iter_parquet`, are read one at a time.
        y : None
            Ignored; here for pipelines.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError
            If a parameter, or the trajectories, are not accepted. Nothing is spent then, and the estimator is left as
            it was.
        BudgetExceeded
            If the ledger has too little left; no data is read then.

        Warns
        -----
        UtilityWarning
            If the public number of trajectories says that the answer will be mostly noise, however often each state is
            visited.
        UnsoundCalibrationWarning
            If printed constants miss their claim.
        """
        privacy = self._checked()
        with reserve(self, privacy) as reservation:
            blocks = iter(blocks_of(trajectories))
            first = next(blocks, None)
            if first is None:
                raise ValueError("trajectories must hold at least one block, got none")
            problem = self._problem(first.n_states, first.encoder)
            data: Any = trajectories if isinstance(trajectories, Trajectories) else chain([first], blocks)
            if math.isinf(privacy.epsilon):
                fitted = self._fit_without_noise(data, problem, reservation)
            elif self.method == "sufficient_statistics":
                fitted = self._fit_moments(data, problem, reservation)
            else:
                fitted = self._fit_smooth(data, problem, reservation)
        states = None if first.encoder is None else first.encoder.states
        cost = {"privacy_spent_": fitted["releases_"][0].privacy}
        return self._set_fitted(fitted | cost | {"_states": states}, ("value_std_",))

    def predict(self, states: Any) -> FloatArray:
        """Return the value of states.

        Parameters
        ----------
        states : array_like of shape (n,)
            Numbers of states, or states as they were declared to an encoder.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        ValueError, TypeError
            If one is not a state.
        """
        check_is_fitted(self)
        if self._states is not None:
            numbers = StateEncoder(self._states).codes(states)
        else:
            numbers = np.asarray(states)
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
                raise TypeError("states must be a 1-D array of integers")
        if not np.all((numbers >= 0) & (numbers < len(self.value_))):
            raise ValueError(f"states must be among the {len(self.value_)} declared ones")
        return np.asarray(self.value_[numbers])

    def plot(self, shape: tuple[int, int] | None = None) -> Figure:
        """Draw the value function: public numbers only.

        Parameters
        ----------
        shape : tuple of int, optional
            Rows and columns of a grid world whose states are numbered row by row: a heat map. Default: a curve, with
            a band of two standard deviations of the noise where its law is public.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from dpfast.plotting import value_function

        check_is_fitted(self)
        return value_function(self.value_, getattr(self, "value_std_", None), shape)

    @classmethod
    def plan(
        cls, m: int, n_states: int, *, target: float = 0.1, visited: float | None = None, **parameters: Any
    ) -> Plan:
        """Say what error privacy will add, before any data is touched; nothing is spent.

        Parameters
        ----------
        m : int
            Number of trajectories.
        n_states : int
            Number of states.
        target : float, default 0.1
            Error wanted: root of the weighted mean square over states, as a fraction of the range of returns.
        visited : float, optional
            Assumed share of trajectories that visit a state, in (0, 1]; by default half of what the horizon allows.
        **parameters
            The estimator's own: epsilon, delta, gamma, ...

        Returns
        -------
        Plan
            Expected error, of noise and of the shrinkage against it, and the number of trajectories needed, to 5%.

        Warns
        -----
        UtilityWarning
            If the middle of the range would be as good.

        Examples
        --------
        >>> from dpfast import PolicyEvaluation
        >>> plan = PolicyEvaluation.plan(10_000, 40, epsilon=1.0, delta=1e-6, gamma=0.99, return_range=(0, 1))
        >>> plan.expected_error < 0.02, plan.needed_n < 2_000
        (True, True)
        """
        m, n_states = check.positive_integer("m", m), check.positive_integer("n_states", n_states)
        target = check.positive("target", target)
        if visited is not None and check.positive("visited", visited) > 1.0:
            raise ValueError(f"visited must lie in (0, 1], got {visited!r}")
        estimator = cls(**parameters)
        privacy = estimator._checked()
        if math.isinf(privacy.epsilon):
            return Plan(m, 0.0, target, 1, {})
        problem = estimator._problem(n_states, None)
        error = estimator._error(problem, privacy, m, visited)
        estimator._warn_of_noise(error.relative, m, privacy, stacklevel=3)

        def enough(count: int) -> bool:
            return estimator._error(problem, privacy, count, visited).relative <= target

        return Plan(m, min(error.relative, 1.0), target, _least(enough, m), error.scales)

    def _checked(self) -> Privacy:
        """Refuse bad parameters; the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        checked_discount(self.gamma, self.horizon)
        check.choice("method", self.method, ("lsw", "lsl", "sufficient_statistics"))
        check.choice("calibration", self.calibration, ("sound", "paper", "icml"))
        self._grid()
        if self.ridge is not None:
            self._check_ridge()
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        noise.resolve_source(self.random_state)
        resolve_n_threads(self.n_threads)
        if self.method == "sufficient_statistics":
            if self.calibration != "sound":
                raise ValueError(f"calibration must be 'sound' with method={self.method!r}, which no paper prints")
            if self.block_bounds is not None:
                _bounds(self.block_bounds)
            return privacy
        if self.block_bounds is not None:
            raise ValueError("block_bounds go with method='sufficient_statistics'")
        if math.isfinite(privacy.epsilon):
            if self.calibration == "paper" and privacy.epsilon > _LARGEST_PRINTED_EPSILON:
                raise ValueError(
                    f"epsilon must be at most {_LARGEST_PRINTED_EPSILON:g} with calibration='paper', whose proof needs "
                    f"that, got {privacy.epsilon!r}"
                )
            if privacy.delta == 0.0:
                raise ValueError(
                    f"delta must be above 0 with method={self.method!r}, whose noise is Gaussian; "
                    "'sufficient_statistics' takes 0"
                )
            if privacy.adjacency != "replace_one":
                raise ValueError(
                    f"adjacency must be 'replace_one' with method={self.method!r}, which needs a public number of "
                    "trajectories; 'sufficient_statistics' takes 'add_remove'"
                )
        return privacy

    def _check_ridge(self) -> None:
        ridge = check.positive("ridge", self.ridge)
        if not _SMALLEST <= ridge <= _LARGEST:
            raise ValueError(f"ridge must lie between {_SMALLEST} and {_LARGEST}, got {ridge!r}")
        if self.method == "lsw":
            raise ValueError("ridge must be None with method='lsw', which has none")

    def _check_loaded(self) -> None:
        self._checked()
        if not hasattr(self, "value_"):
            return
        for name in ("value_", "coef_", "value_std_"):
            array: Any = getattr(self, name, self.value_)
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != 1 or not len(array):
                raise ValueError(f"{name} must be a 1-D array of float64")
        if hasattr(self, "value_std_") and len(self.value_std_) != len(self.value_):
            raise ValueError("value_std_ must have one entry a state")
        if self._states is not None and len(StateEncoder(self._states)) != len(self.value_):
            raise ValueError("there must be as many states as values")
        check.real("offset_", self.offset_)
        check.nonnegative("ridge_", self.ridge_)
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")

    def _grid(self) -> ReturnGrid:
        limits = self.return_range
        if limits is None:
            limits = return_range(self.reward_range, self.gamma, self.horizon)
        return ReturnGrid.for_range(*check.limits("return_range", limits))

    def _problem(self, n_states: int, encoder: StateEncoder | None) -> Problem:
        """Put together what is public, once the states are known."""
        features = self.features
        if callable(features):
            states: Iterable[Hashable] = range(n_states) if encoder is None else encoder.states
            features = np.array([features(state) for state in states])
        table = None if features is None else _table("features", features, n_states, 2)
        if table is not None and not table.any():
            raise ValueError("features must not all be 0")
        if self.weights is None:
            weights = np.full(n_states, 1.0 / n_states)
        else:
            weights = _table("weights", self.weights, n_states, 1)
            if not (np.all(weights >= 0.0) and weights.any()):
                raise ValueError("weights must be at least 0 and not all 0")
        return Problem(table, weights, self._grid(), self.horizon)

    @property
    def _release_name(self) -> str:
        what = {"lsw": "DP-LSW", "lsl": "DP-LSL", "sufficient_statistics": "sums of visits and returns"}[self.method]
        constants = {"sound": "", "paper": ", supplement's constants", "icml": ", conference's constants"}
        return f"{type(self).__name__}: {what}{constants[self.calibration]}"

    def _statistic(self, problem: Problem, m: int, privacy: Privacy) -> tuple[Statistic, float]:
        """Return what "lsw" and "lsl" release, and lambda."""
        printed = self.calibration != "sound"
        if self.method == "lsw":
            return WeightedMeans(problem, printed), 0.0
        ridge = smooth.usual_ridge(problem, m, privacy, printed) if self.ridge is None else float(self.ridge)
        return RidgeFit(problem, m, ridge, printed), ridge

    def _fit_smooth(self, data: Any, problem: Problem, reservation: Reservation) -> dict[str, Any]:
        privacy = reservation.privacy
        grid = problem.grid
        # Refuse what is known to fail before the data is summed.
        self._statistic(problem, 1, privacy)
        returns = first_visit_returns(
            data, self.gamma, return_range=(grid.low, grid.high), horizon=self.horizon, n_threads=self.n_threads
        )
        m = returns.n_trajectories
        statistic, ridge = self._statistic(problem, m, privacy)
        calibration = smooth.calibrate(statistic, m, privacy, self.calibration)
        error = self._smooth_error(problem, statistic, calibration, m, 1.0, ridge)
        self._warn_of_noise(error, m, privacy)
        source = self._source(problem)
        release = smooth.draw(returns, statistic, calibration, privacy, source, self._release_name, self.calibration)
        reservation.commit(release)
        coef = statistic.coefficients(release.values["coordinates"])
        return self._attributes(problem, coef, 0.0 if self.method == "lsw" else grid.low, ridge, release)

    def _source(self, problem: Problem) -> noise.BitSource:
        return noise.resolve_source(self.random_state).bound(float(self.gamma), problem.features, problem.weights)

    def _fit_moments(self, data: Any, problem: Problem, reservation: Reservation) -> dict[str, Any]:
        sums = self._sums(data, problem)
        calibration = self._moment_noise(sums, problem, reservation.privacy)
        if self.adjacency == "replace_one":
            error = self._moment_error(problem, calibration, sums.n_trajectories, 1.0)
            self._warn_of_noise(error, sums.n_trajectories, reservation.privacy)
        release = visit_moments.draw(sums, calibration, self._source(problem), self._release_name)
        reservation.commit(release)
        penalty = None if self.ridge is None else 0.5 * self.ridge
        solution = visit_moments.solve(release, calibration, problem.features, penalty)
        fitted = self._attributes(problem, solution.coef, problem.grid.low, 2.0 * solution.ridge, release)
        return fitted | {"value_std_": solution.value_std}

    def _sums(self, data: Any, problem: Problem) -> Any:
        xx, xy = (None, None) if self.block_bounds is None else _bounds(self.block_bounds)
        return sufficient_statistics(
            data,
            self.gamma,
            return_range=(problem.grid.low, problem.grid.high),
            features=problem.features,
            weights=problem.weights,
            horizon=self.horizon,
            bound_xx=xx,
            bound_xy=xy,
            n_threads=self.n_threads,
        )

    def _moment_noise(self, sums: Any, problem: Problem, privacy: Privacy) -> visit_moments.VisitMomentNoise:
        return visit_moments.calibrate(
            privacy,
            sums.bounds,
            problem.n_features,
            diagonal=problem.features is None,
            nonnegative=sums.nonnegative,
            slope=problem.usual_slope,
        )

    def _fit_without_noise(self, data: Any, problem: Problem, reservation: Reservation) -> dict[str, Any]:
        """Fit the textbook estimator to returns as they are."""
        returns = first_visit_returns(data, self.gamma, horizon=self.horizon, n_threads=self.n_threads)
        ridge = 0.0 if self.ridge is None else float(self.ridge)
        coef = _least_squares(problem, returns, ridge, by_state=self.method == "lsw")
        release = Release(self._release_name, "no", reservation.privacy, {"coef": coef}, {})
        reservation.commit(release)
        return self._attributes(problem, coef, 0.0, ridge, release)

    def _attributes(
        self, problem: Problem, coef: FloatArray, offset: float, ridge: float, release: Release
    ) -> dict[str, Any]:
        return {
            "coef_": coef,
            "value_": problem.values(coef) + offset,
            "offset_": offset,
            "ridge_": ridge,
            "releases_": (release,),
        }

    def _error(self, problem: Problem, privacy: Privacy, m: int, visited: float | None) -> _Error:
        """Expect an error from public numbers."""
        if self.method == "sufficient_statistics":
            # Bounds are public: those of one trajectory's statistics are those of all.
            sums = self._sums(Trajectories([0], [0.0], [0, 1], problem.n_states), problem)
            moment_noise = self._moment_noise(sums, problem, privacy)
            scales = {"xx": moment_noise.scales.xx, "xy": moment_noise.scales.xy}
            return _Error(self._moment_error(problem, moment_noise, m, visited), scales)
        statistic, ridge = self._statistic(problem, m, privacy)
        calibration = smooth.calibrate(statistic, m, privacy, self.calibration)
        return _Error(self._smooth_error(problem, statistic, calibration, m, visited, ridge), {})

    def _smooth_error(
        self,
        problem: Problem,
        statistic: Statistic,
        calibration: SmoothGaussian,
        m: int,
        visited: float | None,
        ridge: float,
    ) -> float:
        """Root of the weighted mean square of noise and shrinkage over states, as a share of the range."""
        noisy = statistic.scale(calibration, problem.usual_counts(m, visited)) * statistic.spread
        noisy /= math.sqrt(float(problem.weights.sum())) * problem.grid.width
        # Of values in the middle of the range.
        shrunk = 0.5 * ridge / (ridge + 2.0 * problem.information(m, visited))
        return math.hypot(noisy, shrunk)

    def _moment_error(
        self, problem: Problem, calibration: visit_moments.VisitMomentNoise, m: int, visited: float | None
    ) -> float:
        """Root mean square error of the values, as a share of the range, each direction as well visited as others."""
        share = 1.0 if problem.features is None else 0.5 * (problem.n_features + 1)
        residual = math.hypot(calibration.scales.xy, calibration.scales.xx * problem.usual_slope * math.sqrt(share))
        typical = math.sqrt(float(problem.weights @ problem.squared_features) / float(problem.weights.sum()))
        return residual * typical / problem.information(m, visited) / problem.grid.width

    def _warn_of_noise(self, error: float, m: int, privacy: Privacy, stacklevel: int = 5) -> None:
        if error >= _USELESS:
            warnings.warn(
                f"with {m} trajectories at {privacy}, values are expected to be off by "
                f"{100.0 * min(error, 1.0):.0f}% of the range of returns: mostly noise. PolicyEvaluation.plan says how "
                "many are needed.",
                UtilityWarning,
                stacklevel=stacklevel,
            )


class _Error(NamedTuple):
    relative: float
    scales: dict[str, float]


def _least_squares(problem: Problem, returns: FirstVisitReturns, ridge: float, *, by_state: bool) -> FloatArray:
    """Minimise the weighted squares of mean returns (by state), or of all returns, plus ridge/2 ||theta||**2."""
    counts = returns.counts
    importance = problem.weights if by_state else problem.weights * counts
    means = returns.means()
    if problem.features is None:
        fitted = np.divide(importance, importance + 0.5 * ridge, out=np.zeros(len(means)), where=importance > 0.0)
        return np.asarray(fitted * means)
    root = np.sqrt(importance)
    rows, target = root[:, None] * problem.features, root * means
    if ridge > 0.0:
        penalty = math.sqrt(0.5 * ridge) * np.eye(problem.n_features)
        rows, target = np.vstack([rows, penalty]), np.concatenate([target, np.zeros(problem.n_features)])
    return np.asarray(linalg.lstsq(rows, target)[0])


def _least(enough: Callable[[int], bool], start: int) -> int:
    """Return the least number that is enough, at most 5% above it, by bisection of its logarithm."""
    if enough(1):
        return 1
    low, high = 1, max(2, start)
    while not enough(high):
        low, high = high, 4 * high
        if high > _MOST_TRAJECTORIES:
            return _MOST_TRAJECTORIES
    while high > max(low + 1, _CLOSE_ENOUGH * low):
        middle = max(low + 1, min(high - 1, math.isqrt(low * high)))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _bounds(pair: object) -> tuple[float, float]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"block_bounds must be a pair (xx, xy), got {type(pair).__name__}")
    return check.positive("block_bounds[0]", pair[0]), check.positive("block_bounds[1]", pair[1])


def _table(name: str, values: Any, n_states: int, ndim: int) -> FloatArray:
    """Return public numbers, a row a state, none so large or small that its square leaves the range of floats."""
    array = np.asarray(values)
    kind = "1-D array of real numbers" if ndim == 1 else "2-D array of real numbers"
    if array.ndim != ndim or len(array) != n_states or array.dtype.kind not in "fiub" or 0 in array.shape:
        raise ValueError(
            f"{name} must be a {kind} with one entry for each of {n_states} states, got {array.dtype} of shape "
            f"{array.shape}"
        )
    table = array.astype(np.float64)
    if not np.all((table == 0.0) | ((np.abs(table) >= _SMALLEST) & (np.abs(table) <= _LARGEST))):
        raise ValueError(f"{name} must be finite, and 0 or between {_SMALLEST} and {_LARGEST} in size")
    return table
