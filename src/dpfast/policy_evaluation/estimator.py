"""Private evaluation of a policy: the value of every state, from people's trajectories."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, noise, plotting
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast.estimator.base import (
    Expected,
    Fitted,
    PrivateEstimator,
    Solved,
    Summed,
    explains_parameters,
    warn,
    warn_of_printed,
)
from dpfast.estimator.plan import Plan, least
from dpfast.io.summaries import Estimates, normal_reach
from dpfast.policy_evaluation.evaluation import Evaluated, PolicyMechanism, Returns, Run, Visits, VisitSolver
from dpfast.policy_evaluation.mechanism import Problem, Statistic, statistic_of, usual_lag, visit_moments
from dpfast.policy_evaluation.private_range import CountedReturns, PrivateRange
from dpfast.policy_evaluation.staged import Guesses, StagedVisits
from dpfast.privacy import Privacy, UtilityWarning
from dpfast.releases.mechanism import Constants, DataDependentGaussian
from dpfast.solvers.ridge import ridge_from_rows
from dpfast.statistics import (
    FirstVisitReturns,
    ReturnGrid,
    StateEncoder,
    SufficientStatistics,
    Trajectories,
    first_visit_returns,
    return_range,
    sufficient_statistics,
)
from dpfast.statistics.returns import blocks_of, checked_discount, checked_lag
from dpfast.statistics.visits import checked_of_states, checked_weights, extreme_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Method = Literal["sufficient_statistics", "lsw", "lsl"]

# Limits of features, weights and ridge: their squares must not leave the range of floats.
_SIZES = 1e-50, 1e50
# Beyond, the supplement proves nothing.
_LARGEST_PRINTED_EPSILON = 5.0
_NO_LIMITS = "no limits: the size of the noise depends on private data, and is not released"
_ENDED = (
    "every trajectory is taken to have ended by itself, since neither horizon nor truncated is declared. If records "
    "were cut, values lack what came after, and their limits do not allow for it: declare truncated, a flag for each "
    "trajectory (or False for all, if none was cut)."
)
_NAMES = {"lsw": "DP-LSW", "lsl": "DP-LSL", "sufficient_statistics": "sums of visits and returns"}
_NAMES_OF_CONSTANTS = {"sound": "", "paper": ", supplement's constants", "icml": ", conference's constants"}


class _Public(NamedTuple):
    """Public facts besides the release: the problem, and the states as declared to an encoder."""

    problem: Problem
    states: tuple[Hashable, ...] | None
    #: Whether trajectories may have been truncated, if they are summed in stages; else None.
    has_tails: bool | None


@explains_parameters
@dataclass(eq=False, repr=False)
class PolicyEvaluation(PrivateEstimator):
    """Differentially private value function of a policy, from trajectories that people followed under it.

    Privacy: the release, at once or in stages that share the budget, is (epsilon, delta)-differentially private under
    `adjacency`. A person is a trajectory. Every other attribute is computed from the release. For "lsw" and "lsl" the
    size of the noise depends on the data, and is as private as they are.

    Parameters
    ----------
    epsilon
        As for every estimator.
    delta : float, default 0.0
        Probability that the guarantee fails, about; positive for "lsw" and "lsl". 0 for pure differential privacy with
        "sufficient_statistics", which needs more noise.
    gamma : float
        Discount, in (0, 1]; 1 needs a horizon. A reward t steps ahead has the weight ``gamma**t``.
    features : array_like of shape (n_states, n_features) or callable, optional
        Phi, public: values are linear in these features, which share information between states. A callable gives the
        features of one state. Default: one for each state, so that values are free.
    return_range : tuple of float or "private", optional
        Least and largest discounted return, public, in the unit of rewards; returns beyond are clipped. The noise is in
        proportion to its width. Default: the range possible by `reward_range` and `gamma`, and by `horizon` if tails
        are not filled, which is often far too wide. "private" finds a range within that one, for a tenth of the budget
        ("sufficient_statistics" only; trajectories are read twice). To be wide enough, it adds a standard deviation of
        the noise to the counts of people.
    reward_range : tuple of float, default (0, 1)
        Least and largest reward, public.
    horizon : int, optional
        Most recorded states of a trajectory that are used, a terminal one included; longer ones are truncated.
        Trajectories of exactly that length are taken to be truncated too, unless `Trajectories.truncated` says
        otherwise. By default all states are used. A short horizon has less noise, and leaves more to the estimate of
        later rewards.
    lag : int, optional
        Visits in this many last steps before the horizon are not used, but their rewards are. So truncation removes at
        most the share ``gamma**lag`` of a return. Whether a visit is used depends on earlier steps alone, so the
        selection does not bias returns. Default: for "sufficient_statistics" at once up to a quarter of the horizon,
        from `gamma` and `epsilon`; else, and where epsilon is ``inf``, 0.
    method : {"sufficient_statistics", "lsw", "lsl"}, default "sufficient_statistics"
        "sufficient_statistics" releases sums of visits and returns by state (with features, normal equations). The
        error of a state falls with the number of its own visits. Without features, for equal weights and delta above 0,
        the sums are released in stages: first summaries of returns, visits and distances, which fit the noise to the
        data. Rewards after the end of a truncated trajectory are filled with an estimate, the value of its last state,
        whose own reward is left out; for more than 64 states, the mean return of late steps. Values are shrunk towards
        each other by their precision. Stages read trajectories four times. With `ridge`, `shrinkage`, a "private" range
        or an iterator (which is read only once), sums are released at once, and nothing is filled. "lsw" fits mean
        first-visit returns, weighted by state, and "lsl" is ridge regression over trajectories, both with noise whose
        size depends on the data [1]_. "lsw" is better if every state with a weight is visited often, and useless if one
        is not.
    weights : array_like of shape (n_states,), optional
        Public nonnegative weights of states: for "lsw" of the squared error in each (the paper's w), else of their
        visits in the fit (rho). Default: equal, adding up to 1.
    ridge : float, optional
        The paper's lambda, positive: larger values shrink more, towards `offset_`. For m trajectories lambda/(2 m) is
        added to their mean Phi' G Phi. Default: for "lsl" proportional to sqrt(m); for "sufficient_statistics" at once
        determined by the known noise; 0 if epsilon is ``inf``. "lsw" has none.
    shrinkage : bool, default False
        Shrink every value towards the pooled return according to its own noise (empirical Bayes), instead of one ridge
        for all. It needs sums per state: "sufficient_statistics" without features and with equal weights. The error is
        less on average over states; it may be more in a state unlike the others.
    block_bounds : tuple of float, optional
        For "sufficient_statistics": largest Frobenius norms (xx, xy) of one trajectory's part in the normal equations,
        public, to which the noise is in proportion; larger parts are scaled onto them. Default: the largest norms
        possible with these weights, features, range and horizon.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of trajectories is public, or private ("sufficient_statistics" only).
    calibration : {"sound", "paper", "icml"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" and "icml" are the algorithms of "lsw" and "lsl" as
        printed, with the constants of the supplement and of the conference, and warn where these miss their claim.
    random_state, n_threads, ledger
        As for every estimator.

    Attributes
    ----------
    value_ : ndarray of shape (n_states,)
        Value of each state, clipped to the range of returns: a mean of returns lies there, so clipping only reduces the
        error. Near an end of the range it causes a bias inwards, about the size of the noise.
    coef_ : ndarray of shape (n_features,)
        Coefficients: `value_` is `offset_` plus the features times them, clipped.
    offset_ : float
        Origin of the fit. For sums per state: the pooled return of all visits, or an end of the range if the noise does
        not distinguish the two. For "lsl" and for normal equations: the lower end of the range. Else 0.
    value_std_ : ndarray of shape (n_states,)
        Error of `value_`, for "sufficient_statistics" only. In stages 1.96 times it are limits of 95% for all errors:
        noise, sampling, shrinkage, truncated tails and returns beyond the range. NaN if returns are too far beyond the
        range for a limit. At once the deviation by the privacy noise alone (first order).
    caution_ : str
        Why limits are wide, missing or unsure, as `fit` warned; empty if they are neither.
    return_range_ : tuple of float
        The range found, if `return_range` is "private".
    ridge_ : float
        The lambda used; 0 for "lsw", in stages and with shrinkage.
    releases_, privacy_spent_
        As for every estimator.

    References
    ----------
    .. [1] Balle, B., Gomrokchi, M., Precup, D. (2016). Differentially private policy evaluation. ICML. Algorithms 1
       (DP-LSW) and 2 (DP-LSL).

    Examples
    --------
    >>> from dpfast import PolicyEvaluation
    >>> from dpfast.datasets.decision_processes import chain_trajectories, chain_values
    >>> from dpfast.statistics import Trajectories
    >>> trajectories = Trajectories(*chain_trajectories(5_000, n_states=10, seed=0), truncated=False)
    >>> model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0, 1), random_state=0).fit(trajectories)
    >>> bool(abs(model.value_ - chain_values(0.9, n_states=10)).max() < 0.02)
    True
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    _: KW_ONLY
    gamma: float
    features: ArrayLike | Callable[[Any], ArrayLike] | None = None
    return_range: tuple[float, float] | Literal["private"] | None = None
    reward_range: tuple[float, float] = (0, 1)
    horizon: int | None = None
    lag: int | None = None
    method: Method = "sufficient_statistics"
    weights: ArrayLike | None = None
    ridge: float | None = None
    shrinkage: bool = False
    block_bounds: tuple[float, float] | None = None
    calibration: Constants = "sound"  # type: ignore[assignment]

    value_: FloatArray = field(init=False)
    coef_: FloatArray = field(init=False)
    offset_: float = field(init=False)
    value_std_: FloatArray = field(init=False)
    caution_: str = field(init=False)
    return_range_: tuple[float, float] = field(init=False)
    ridge_: float = field(init=False)

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = get_args(Constants)

    @suppress_float_warnings
    def fit(
        self,
        trajectories: Any,
        y: None = None,
        *,
        states: int | Iterable[Hashable] | None = None,
        truncated: bool | ArrayLike | None = None,
    ) -> Self:
        """Fit from trajectories, one a person.

        Parameters
        ----------
        trajectories : Trajectories, iterable of Trajectories, Partitions, or episodes
            Episodes are a MinariDataset, or, with `states`, lists of its episodes or of steps: see `Trajectories.of`.
            Blocks, as of `Trajectories.iter_sorted`, are read one at a time, in stages several times. An iterator is
            read only once, and is refused with a private range. Parts hold Trajectories, or lists of them: a Dask bag,
            files by functions.
        y : None
            Ignored; here for pipelines.
        states : int or iterable of hashable, optional
            Of episodes: all states, or how many there are (0, 1, ...). Public, and not read from the episodes.
        truncated : bool or array_like of bool, optional
            Of lists of steps: whether each episode went on after its last step, or one flag for all: see
            `Trajectories`.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.

        Warns
        -----
        UtilityWarning
            If neither a horizon nor `truncated` is declared for sums in stages: all trajectories are then taken to have
            ended by themselves. If the answer will be mostly noise however often each state is visited, by the public
            number of trajectories. Also if released values show this: too few visits, values far beyond the range of
            returns, people with returns beyond it, or truncated tails that could change values by much. Also if noise
            may hide that a fifth of the people or more have returns beyond the range: limits hold if hardly any have.
        UnsoundCalibrationWarning
            If printed constants miss their claim.
        """
        if states is not None or truncated is not None or hasattr(trajectories, "iterate_episodes"):
            trajectories = io.Deferred(partial(Trajectories.of, trajectories, states, truncated))
        return self._fit(self._checked(), trajectories)

    def predict(self, states: Any) -> FloatArray:
        """Return the value of states.

        Parameters
        ----------
        states : array_like of shape (n,)
            Numbers of states, or states as they were declared to an encoder.

        Returns
        -------
        ndarray of shape (n,)
            A frame's column if requested by `set_output`.

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
        return self._in_output_type(np.asarray(self.value_[numbers]), states, None, "value")

    def summary(self, *, level: float = 0.95) -> DataFrame:
        """Tabulate the values of states.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits.

        Returns
        -------
        pandas.DataFrame
            A row a state, by number or as it was declared. Columns: ``estimate``, as in `value_`; of sums in stages
            ``std_error``, `value_std_`, and ``low`` and ``high``, limits by it. Of sums at once these are
            ``std_privacy``, ``low_privacy`` and ``high_privacy``: limits for the noise alone, without sampling error,
            truncated tails, shrinkage, and clipping. `caution_` is the note above them. Of "lsw" and "lsl" there is the
            estimate alone, and the note says so.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1).
        ImportError
            If pandas is not installed.
        """
        return self._estimates(level=level).frame()

    def _estimates(self, states: Sequence[Any] | None = None, *, level: float = 0.95) -> Estimates:
        """Return the columns of `summary`, for files by names of their own."""
        check_is_fitted(self)
        if states is None:
            states = range(len(self.value_)) if self._states is None else self._states
        target = "population" if self._counts_all else "privacy noise alone"
        said: dict[str, Any] = {"level": level, "target": target} if hasattr(self, "value_std_") else {}
        said["note"] = getattr(self, "caution_", "") or None
        if "level" not in said and math.isfinite(self.privacy_spent_.epsilon):
            said["note"] = _NO_LIMITS
        return Estimates({"state": states}, self._tabled(level), self._header(**said))

    @property
    def _counts_all(self) -> bool:
        """Whether deviations include all errors: sums in stages have several releases."""
        return self._is_staged and len(self.releases_) > 1

    def _tabled(self, level: float) -> dict[str, FloatArray]:
        """Return the columns of `summary`."""
        reach = normal_reach(level)
        columns = {"estimate": self.value_}
        if hasattr(self, "value_std_"):
            half = reach * self.value_std_
            # Limits for the noise alone have names of their own, so that nobody takes them for those of values.
            deviation, of = ("std_error", "") if self._counts_all else ("std_privacy", "_privacy")
            columns |= {deviation: self.value_std_, f"low{of}": self.value_ - half, f"high{of}": self.value_ + half}
        return columns

    def plot(
        self,
        shape: tuple[int, int] | None = None,
        *,
        level: float = 0.95,
        state_names: Sequence[object] | None = None,
        start: Any = None,
        goal: Any = None,
        holes: Any = None,
        reference: ArrayLike | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw the value function.

        Privacy: drawn from released values.

        Parameters
        ----------
        shape : tuple of int, optional
            Rows and columns of a grid world with states numbered row by row: draws a map. Its colours span the range of
            returns, declared or found. By default states are points side by side.
        level : float, default 0.95
            Nominal coverage of limits, drawn where there is a `value_std_`.
        state_names : sequence, optional
            Written where they are at most 40; by default the states as they were declared to an encoder, or numbers.
        start, goal, holes : state or sequence of states, optional
            To mark: numbers of states, or states as they were declared to an encoder.
        reference : array of shape (n_states,), optional
            Public values to compare points with: declared public by being given.
        ax, title, label, unit
            As for `dpfast.plotting.value_function`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> from dpfast import PolicyEvaluation
        >>> from dpfast.datasets.decision_processes import chain_trajectories
        >>> from dpfast.statistics import Trajectories
        >>> trajectories = Trajectories(*chain_trajectories(5_000, n_states=10, seed=0), truncated=False)
        >>> model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0, 1), random_state=0).fit(trajectories)
        >>> model.plot(start=0, goal=9, unit="discounted reward").get_ylabel()
        'value (discounted reward)'
        """
        check_is_fitted(self)
        grid = self._grid(staged=self._is_staged)
        limits = getattr(self, "return_range_", (grid.low, grid.high))
        marks = {"start": self._numbered(start), "goal": self._numbered(goal), "holes": self._numbered(holes)}
        options: dict[str, Any] = {"limits": limits, "level": level, "reference": reference} | marks
        options |= {"ax": ax, "title": title, "label": label, "unit": unit}
        options["states"] = self._states if state_names is None else state_names
        options["covers"] = "noise, sampling, tails" if self._counts_all else "privacy noise"
        return plotting.value_function(self.value_, getattr(self, "value_std_", None), shape, **options)

    def _numbered(self, states: Any) -> Any:
        """Return the numbers of states, of which there may be one or none."""
        if states is None or self._states is None:
            return states
        encoder = StateEncoder(self._states)
        is_one = isinstance(states, Hashable) and states in self._states
        return encoder.codes([states] if is_one else states)

    @classmethod
    def plan(
        cls,
        m: int,
        n_states: int,
        *,
        target: float = 0.1,
        visited: float | ArrayLike | None = None,
        spread: float | None = None,
        value_spread: float | ArrayLike | None = None,
        truncated: float = 1.0,
        **parameters: Any,
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
        visited : float or array_like of shape (n_states,), optional
            Assumed share of trajectories that visit a state, in (0, 1], or of each; by default half the largest share
            possible within the horizon. Rarely visited states have most of the error.
        spread : float, optional
            Assumed standard deviation of all returns, as a fraction of their range, in (0, 1]; it counts in stages
            only. Default: that of returns spread evenly over the range, 0.29.
        value_spread : float or array_like of shape (n_states,), optional
            Assumed distance of a state's value from the mean return, as a fraction of the range, in (0, 1], or of each;
            it counts in stages only. The larger the share of the spread that it makes up, the longer trajectories are
            taken to stay near a state. Default: half of `spread`.
        truncated : float, default 1.0
            Assumed share of trajectories that go on beyond the horizon, in [0, 1]; it counts in stages only.
        **parameters
            The estimator's own: epsilon, delta, gamma, ...

        Returns
        -------
        Plan
            Expected error, of noise and of the shrinkage against it, and the number of trajectories needed. In stages
            `notes` have what is assumed of returns beyond the range (that there are none), and the error at most if
            truncated tails are unlike what is seen.

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
        estimator, privacy = cls._planned_for({"m": m, "n_states": n_states}, {"target": target}, parameters)
        shares = None if visited is None else _checked_shares(visited, n_states, "visited")
        deviation = 1.0 / math.sqrt(12.0) if spread is None else max(check.share("spread", spread, whole=True), 1e-12)
        distances = np.array(0.5 * deviation)
        if value_spread is not None:
            distances = _checked_shares(value_spread, n_states, "value_spread")
        cut = 0.0 if check.real("truncated", truncated) == 0.0 else check.share("truncated", truncated, whole=True)
        if math.isinf(privacy.epsilon):
            return Plan(m, 0.0, target, 1, {})
        staged = estimator._is_staged
        problem = estimator._problem(n_states, None, staged=staged)
        has_tails = estimator._staging(staged, False)
        of_all = estimator._mechanism(problem, privacy, m, has_tails)
        warn_of_printed(of_all)

        usual = 0.5 * problem.most_visited / n_states if shares is None else shares
        guesses = Guesses(np.full(n_states, usual), np.full(n_states, distances), deviation, cut)

        def error(count: int) -> float:
            # Noise of public size is the same for all counts.
            mechanism = of_all if of_all.scales else estimator._mechanism(problem, privacy, count, has_tails)
            if isinstance(mechanism, StagedVisits):
                return mechanism.planned_error(count, guesses)
            return mechanism.expected_error(count, typical)

        # Errors are in proportion to one over visits: the root mean square of these.
        typical = None if shares is None else float(np.mean(shares**-2.0)) ** -0.5
        expected = error(m)
        before = of_all.expected_error(m, typical) if isinstance(of_all, StagedVisits) else expected
        estimator._warn_of_noise(before, f"{m} trajectories", privacy)
        needed = least(lambda count: error(count) <= target)
        notes = of_all.planned_notes(expected, guesses) if isinstance(of_all, StagedVisits) else {}
        return Plan(m, min(expected, 1.0), target, needed, of_all.scales, "the range of returns", notes)

    @property
    def _is_gaussian(self) -> bool:
        return self.method == "sufficient_statistics"

    def _check_parameters(self, privacy: Privacy) -> None:
        checked_discount(self.gamma, self.horizon)
        check.optional(lambda name, lag: checked_lag(lag, self.horizon), "lag", self.lag)
        check.choice("method", self.method, get_args(Method))
        self._grid(staged=False)
        if self.ridge is not None:
            self._check_ridge()
        shrunk = check.boolean("shrinkage", self.shrinkage)
        if shrunk and (self.method != "sufficient_statistics" or self.features is not None or self.ridge is not None):
            raise ValueError("shrinkage goes with method='sufficient_statistics' without features and ridge")
        if shrunk and self.block_bounds is not None:
            raise ValueError("shrinkage and block_bounds exclude each other")
        if self._range_is_private and self.method != "sufficient_statistics":
            raise ValueError("return_range='private' goes with method='sufficient_statistics'")
        if self.method == "sufficient_statistics":
            if self.calibration != "sound":
                raise ValueError(f"calibration must be 'sound' with method={self.method!r}, which no paper prints")
            self._block_bounds()
            return
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

    def _check_ridge(self) -> None:
        ridge = check.positive("ridge", self.ridge)
        if not _SIZES[0] <= ridge <= _SIZES[1]:
            raise ValueError(f"ridge must lie between {_SIZES[0]} and {_SIZES[1]}, got {ridge!r}")
        if self.method == "lsw":
            raise ValueError("ridge must be None with method='lsw', which has none")

    def _block_bounds(self) -> tuple[float | None, float | None]:
        if self.block_bounds is None:
            return None, None
        xx, xy = check.positives("block_bounds", check.pair("block_bounds", self.block_bounds, "(xx, xy)"))
        return xx, xy

    def _lag(self, *, staged: bool) -> int:
        if self.lag is not None:
            return int(self.lag)
        # Tails that are filled need no lag.
        usual = self.method == "sufficient_statistics" and math.isfinite(self.epsilon) and not staged
        return usual_lag(self.gamma, self.horizon, self.epsilon) if usual else 0

    @property
    def _is_staged(self) -> bool:
        """Whether trajectories that can be read again are summed in stages, by the parameters."""
        is_plain = self.features is None and self.block_bounds is None and self.ridge is None and not self.shrinkage
        is_plain = is_plain and self.method == "sufficient_statistics" and not self._range_is_private
        return is_plain and self.delta > 0.0 and math.isfinite(self.epsilon) and self._has_equal_weights

    @property
    def _has_equal_weights(self) -> bool:
        given = self.weights
        weights = redact_errors(lambda: None if given is None else np.asarray(given), "weights must be a 1-D array")
        return weights is None or bool(np.all(weights == weights.flat[:1]))

    @property
    def _range_is_private(self) -> bool:
        given = self.return_range
        return isinstance(given, str) and bool(check.choice("return_range", given, ("private",)))

    def _grid(self, *, staged: bool) -> ReturnGrid:
        """Return the grid of the declared range, within which a private one lies."""
        limits = None if self._range_is_private else self.return_range
        if limits is None:
            # Returns that are filled have no horizon.
            horizon = None if staged and self.gamma < 1.0 else self.horizon
            limits = return_range(self.reward_range, self.gamma, horizon)
        return ReturnGrid.for_range(*check.limits("return_range", limits))

    def _problem(self, n_states: int, states: Sequence[Hashable] | None, *, staged: bool) -> Problem:
        """Collect the public facts, once the states are known."""
        features = self.features
        if callable(features):
            features = np.array([features(state) for state in (range(n_states) if states is None else states)])
        table = None if features is None else checked_of_states("features", features, n_states, 2, _SIZES)
        if table is not None and not table.any():
            raise ValueError("features must not all be 0")
        if self.weights is None:
            weights = np.full(n_states, 1.0 / n_states)
        else:
            weights = checked_weights(self.weights, n_states, _SIZES)
        lag, grid = self._lag(staged=staged), self._grid(staged=staged)
        problem = Problem(table, weights, grid, self.horizon, self._block_bounds(), lag)
        if self.shrinkage and not problem.centered:
            raise ValueError("shrinkage needs equal weights")
        return problem

    def _opened(self, trajectories: Any) -> tuple[_Public, Any]:
        """Look at the states of the first block, and put it back; of parts at the states of all."""
        staged = self._is_staged and not isinstance(trajectories, Iterator)
        data = trajectories
        if isinstance(trajectories, io.Partitions):
            declared = trajectories.reduce(_declared, _same_states)
        else:
            blocks = iter(blocks_of(trajectories))
            first = list(islice(blocks, 1))
            declared = _declared(first)
            data = trajectories if staged else chain(first, blocks)
        if declared is None:
            raise ValueError("trajectories must hold at least one block, got none")
        n_states, states, says_truncated = declared
        problem = self._problem(n_states, states, staged=staged)
        return _Public(problem, states, self._staging(staged, says_truncated)), data

    def _staging(self, staged: bool, says_truncated: bool) -> bool | None:
        """Return whether trajectories summed in stages have tails; None if they are summed at once."""
        return (self.gamma < 1.0 and (self.horizon is not None or says_truncated)) if staged else None

    @property
    def _what(self) -> str:
        """Name of the release in records, after the estimator's name."""
        return f"{_NAMES[self.method]}{_NAMES_OF_CONSTANTS[self.calibration]}"

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: {self._what}"

    def _mechanism(self, problem: Problem, privacy: Privacy, m: int, has_tails: bool | None = None) -> PolicyMechanism:
        """Calibrate for m trajectories; noise of public size is the same for all numbers of them."""
        if self._range_is_private:
            return self._private_range(problem, privacy)
        run, solver = self._run(problem)
        if has_tails is not None:
            return StagedVisits.calibrate(privacy, run, has_tails=has_tails, m=m)
        if self.method == "sufficient_statistics":
            return Visits(run, visit_moments(problem, privacy), solver)
        statistic = self._statistic(problem, privacy, m)
        return Returns(run, DataDependentGaussian.calibrate(privacy, statistic, self.calibration))

    def _private_range(self, problem: Problem, privacy: Privacy) -> PrivateRange:
        return PrivateRange.calibrate(privacy, *self._run(problem))

    def _run(self, problem: Problem) -> tuple[Run, VisitSolver]:
        """Return the public facts of a fit, and the solver of its sums."""
        return Run(problem, float(self.gamma), self._what), VisitSolver(self.ridge, self.shrinkage)

    def _statistic(self, problem: Problem, privacy: Privacy, m: int) -> Statistic:
        return statistic_of(self.method, problem, m, privacy, self.ridge, printed=self.calibration != "sound")

    def _sum(self, privacy: Privacy, source: noise.BitSource, trajectories: Any) -> Summed:
        public, data = self._opened(trajectories)
        problem, limits = public.problem, (public.problem.grid.low, public.problem.grid.high)
        if self._range_is_private:
            return self._counted(privacy, trajectories, public)
        if public.has_tails is not None:
            return self._staged(privacy, trajectories, public)
        sums: SufficientStatistics | FirstVisitReturns
        if self.method == "sufficient_statistics":
            mechanism = self._mechanism(problem, privacy, 1)
            sums = sufficient_statistics(data, self.gamma, **problem.visits(), n_threads=self.n_threads)
        else:
            # Refuse what is known to fail before the data is summed.
            self._statistic(problem, privacy, 1)
            options: dict[str, Any] = {"horizon": self.horizon, "lag": problem.lag, "n_threads": self.n_threads}
            sums = first_visit_returns(data, self.gamma, return_range=limits, **options)
            mechanism = self._mechanism(problem, privacy, sums.n_trajectories)
        expected = None
        if self.adjacency == "replace_one":
            error = mechanism.expected_error(sums.n_trajectories, 1.0)
            expected = Expected(error, sums.n_trajectories, "trajectories")
        return Summed(mechanism, sums, public, expected)

    def _staged(self, privacy: Privacy, trajectories: Any, public: _Public) -> Summed:
        """Leave trajectories to the mechanism, which sums them stage by stage."""
        of_parts, expected = isinstance(trajectories, io.Partitions), None
        m = trajectories.reduce(_number_of, operator.add) if of_parts else _number_of(trajectories)
        if m == 0 and self.adjacency == "replace_one":
            raise ValueError("trajectories must hold at least one, got none")
        if not of_parts and not isinstance(trajectories, Trajectories):
            trajectories = _SameAgain(trajectories, m)
        mechanism = self._mechanism(public.problem, privacy, m, public.has_tails)
        if not public.has_tails and self.horizon is None:
            warn(_ENDED, UtilityWarning)
        if self.adjacency == "replace_one":
            expected = Expected(mechanism.expected_error(m, 1.0), m, "trajectories")
        return Summed(mechanism, trajectories, public, expected)

    def _counted(self, privacy: Privacy, trajectories: Any, public: _Public) -> Summed:
        """Count people by their returns; their sums are taken once the range is released."""
        if isinstance(trajectories, Iterator):
            raise TypeError("trajectories must be in a sequence with return_range='private', which reads them twice")
        mechanism, problem = self._private_range(public.problem, privacy), public.problem
        # Refuse what is known to fail before anything is released.
        mechanism.widest()
        steps: dict[str, Any] = {"horizon": self.horizon, "lag": problem.lag}
        counts = extreme_counts(trajectories, self.gamma, problem.grid, mechanism.edges, **steps)
        m = int(counts.to_float64()[0].sum())

        def sums(narrow: Problem) -> SufficientStatistics:
            found = sufficient_statistics(trajectories, self.gamma, **narrow.visits(), n_threads=self.n_threads)
            if found.n_trajectories != m:
                raise ValueError("trajectories gave others than the time before: both passes must read the same")
            return found

        expected = Expected(0.0, m, "trajectories") if self.adjacency == "replace_one" else None
        return Summed(mechanism, CountedReturns(counts, sums), public, expected)

    def _solve(self, mechanism: PolicyMechanism, found: Evaluated, public: _Public) -> Fitted:
        extra: dict[str, Any] = {} if found.value_std is None else {"value_std_": found.value_std}
        if found.narrow is not None:
            public = public._replace(problem=found.narrow)
            extra["return_range_"] = found.narrow.grid.low, found.narrow.grid.high
        extra["caution_"] = found.caution
        return Fitted(_attributes(public, found.coef, found.offset, found.ridge) | extra, found.error)

    def _fit_without_noise(self, trajectories: Any) -> Solved:
        public, data = self._opened(trajectories)
        options: dict[str, Any] = {"horizon": self.horizon, "lag": public.problem.lag, "n_threads": self.n_threads}
        returns = first_visit_returns(data, self.gamma, **options)
        ridge = 0.0 if self.ridge is None else float(self.ridge)
        coef = _least_squares(public.problem, returns, ridge, by_state=self.method == "lsw")
        fitted = _attributes(public, coef, 0.0, ridge, clipped=False)
        return Solved((self._exact_release({"coef": coef}),), fitted)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        n_states = max(1, len(self.value_))
        yield from (("value_", (n_states,)), ("coef_", (max(1, len(self.coef_)),)))
        if hasattr(self, "value_std_"):
            yield "value_std_", (n_states,)

    def _check_fitted(self) -> None:
        if self._states is not None and len(StateEncoder(self._states)) != len(self.value_):
            raise ValueError("there must be as many states as values")
        check.real("offset_", self.offset_)
        check.nonnegative("ridge_", self.ridge_)
        if hasattr(self, "return_range_"):
            check.limits("return_range_", self.return_range_)


@dataclass(frozen=True)
class _SameAgain:
    """Blocks that are read several times, and must be of as many people every time."""

    blocks: Iterable[Trajectories]
    n_trajectories: int

    def __iter__(self) -> Iterator[Trajectories]:
        found = 0
        for block in blocks_of(self.blocks):
            found += len(block)
            yield block
        if found != self.n_trajectories:
            raise ValueError("trajectories gave others than the time before: all passes must read the same")


def _declared(trajectories: Any, *nothing: None) -> tuple[int, Any, bool] | None:
    """Return the number of states of a part, their list if it has one, and whether truncation is recorded.

    None if it has no trajectories.
    """
    first = next(iter(blocks_of(trajectories)), None)
    if first is None:
        return None
    return first.n_states, None if first.encoder is None else first.encoder.states, first.truncated is not None


def _same_states(one: tuple[int, Any, bool], other: tuple[int, Any, bool]) -> tuple[int, Any, bool]:
    if one[:2] != other[:2]:
        raise ValueError("trajectories must be over the same states in all parts")
    if one != other:
        raise ValueError("parts must all say which trajectories were truncated, or none of them")
    return one


def _checked_shares(guessed: Any, n_states: int, name: str) -> FloatArray:
    """Return the share of something in each state, or one for all."""
    if check.array(name, guessed).ndim == 0:
        return np.array(max(check.share(name, guessed, whole=True), 1e-12))  # errors are divided by it
    shares = checked_of_states(name, guessed, n_states, 1, (1e-12, 1.0))
    if not np.all(shares > 0.0):
        raise ValueError(f"{name} must lie in (0, 1] in all states")
    return shares


def _number_of(trajectories: Any, *nothing: None) -> int:
    return sum(len(block) for block in blocks_of(trajectories))


def _attributes(
    public: _Public, coef: FloatArray, offset: float, ridge: float, *, clipped: bool = True
) -> dict[str, Any]:
    values, grid = public.problem.values(coef) + offset, public.problem.grid
    if clipped:
        values = np.clip(values, grid.low, grid.high)
    return {"coef_": coef, "value_": values, "offset_": offset, "ridge_": ridge, "_states": public.states}


def _least_squares(problem: Problem, returns: FirstVisitReturns, ridge: float, *, by_state: bool) -> FloatArray:
    """Minimise the weighted squares of mean returns (by state), or of all returns, plus ridge/2 ||theta||**2."""
    counts = returns.counts
    importance = problem.weights if by_state else problem.weights * counts
    means = returns.means()
    if problem.features is None:
        fitted = np.divide(importance, importance + 0.5 * ridge, out=np.zeros(len(means)), where=importance > 0.0)
        return np.asarray(fitted * means)
    root = np.sqrt(importance)
    return ridge_from_rows(root[:, None] * problem.features, root * means, 0.5 * ridge)
