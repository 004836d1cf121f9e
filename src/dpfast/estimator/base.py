"""The base of all estimators: shared parameters and their checks, and the steps of a fit, in their one order.

A fit checks parameters and reserves its cost. It sums the data exactly and releases the sums with noise. It commits the
release to the ledger and solves from it (post-processing). It keeps the result, all at once. The family gives the
parts; it solves from released values and public numbers, never from the sums.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial, wraps
from inspect import signature
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, noise, plotting
from dpfast._threads import resolve_n_threads
from dpfast.estimator import persistence, representation
from dpfast.estimator.persistence import LEFT_OUT, Unsolved, parameter_names
from dpfast.ledger import Ledger, Release, Reservation, paying
from dpfast.ledger.entries import header_of
from dpfast.ledger.ledger import ledger_of_block
from dpfast.noise.samplers import check_random_state
from dpfast.privacy import Adjacency, Calibration, LargeDeltaWarning, Privacy, Unit, gaussian_mu
from dpfast.privacy.guarantee import ReleasedUtilityWarning, UnsoundCalibrationWarning, UtilityWarning
from dpfast.releases.mechanism import Mechanism, run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

#: Of ours, and of NumPy, whose decorators are around our functions.
_PACKAGES = tuple(os.path.dirname(file) + os.sep for file in (os.path.dirname(__file__), np.__file__))
# Beyond, noise is so much larger than sums, or sums than noise, that no solver tells both.
_EPSILONS = 2.0**-40, 2.0**40
# An expected error of this part of what is estimated means that the answer is mostly noise.
_MOSTLY_NOISE = 0.5
# Attributes of an estimator that waits for `complete`, and of the copy that a fit runs on.
_UNSOLVED = "_unsolved"
_ORIGINAL = "_original"
# Types of most parameters, which nobody can change in place.
_CONSTANT = frozenset({bool, float, int, str, type(None)})
# The methods that fit.
_FITS = ("fit", "fit_gram", "fit_long", "fit_repeatedly")


def _without_weights(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Give a `fit` without weights a signature without them: scikit-learn looks there."""

    @wraps(fit)
    def answering(self: Any, *args: Any, sample_weight: object = None, **kwargs: Any) -> Any:
        if sample_weight is not None:
            raise TypeError(
                f"sample_weight is not supported by {type(self).__name__}: its sensitivity to weighted rows is not "
                f"proved. {_ELSEWHERE['max_weight']}"
            )
        return fit(self, *args, **kwargs)

    return answering


def _on_a_copy(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Have a fit run with the parameters as they are when it begins: those of its noise are those of its sums."""

    @wraps(fit)
    def answering(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _ORIGINAL in vars(self):  # the fit of a subclass, which has its copy, calls that of its parent
            return fit(self, *args, **kwargs)
        frozen = object.__new__(type(self))
        own = vars(self).copy().items()
        # A last underscore marks what was fitted, by scikit-learn's convention.
        given = {
            name: one if name[0] == "_" or name[-1] == "_" or type(one) in _CONSTANT else _owned(one)
            for name, one in own
        }
        given[_ORIGINAL] = self
        frozen.__dict__ = given.copy()
        result = fit(frozen, *args, **kwargs)
        # What a subclass has set beside what was fitted.
        self.__dict__ |= {name: one for name, one in vars(frozen).items() if given.get(name, frozen) is not one}
        return self if result is frozen else result

    return answering


def _owned(value: Any) -> Any:
    """Return a copy of a parameter that its owner could change in place, as deep as it holds such."""
    match value:
        case np.ndarray():
            return value.copy()
        case list():
            return [_owned(one) for one in value]
        case dict():
            return {key: _owned(one) for key, one in value.items()}
        case tuple() if type(value) is tuple:
            return tuple(_owned(one) for one in value)
    return value.copy() if hasattr(value, "iloc") else value


Class = TypeVar("Class", bound=type)

# What other estimators take, and this one may not.
_ELSEWHERE = {"max_weight": "MultiOutcomeRidge, the classifier, the regressor and describe take weights"}


def explains_parameters(cls: Class) -> Class:
    """Make the error for a missing parameter explain it, and that for an unknown parameter name the nearest."""
    init: Any = cls.__init__  # type: ignore[misc]
    known = signature(init).parameters
    needed = [name for name, one in known.items() if one.kind is one.KEYWORD_ONLY and one.default is one.empty]

    @wraps(init)
    def explaining(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                near = _ELSEWHERE.get(name) or check.nearest(name, known)
                others = f"its parameters: {', '.join(list(known)[1:])}"
                raise TypeError(f"{cls.__name__} has no parameter {name!r}; {near or others}")
        for name in needed:
            if name not in kwargs:
                raise representation.missing_parameter(cls, name, args[0] if args else kwargs.get("epsilon"))
        init(self, *args, **kwargs)

    cls.__init__ = explaining  # type: ignore[misc]
    return cls


def reserve(model: PrivateEstimator, privacy: Privacy, unit: Unit = "row", mu: float | None = None) -> Reservation:
    """Hold the cost of a fit, from ``with`` on, in the ledger that pays for the estimator."""
    # A fit without noise draws nothing from its seed.
    seed = None if math.isinf(privacy.epsilon) else model.random_state
    return paying(model.ledger, privacy).reserving(privacy, unit=unit, random_state=seed, mu=mu)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_of_printed(mechanism: Mechanism[Any]) -> None:
    """Warn where a printed calibration misses its own claim."""
    if not mechanism.guaranteed:
        warn(
            f"the printed calibration does not give {mechanism.privacy}: docs/defects.md says why. "
            "Use calibration='sound' for anything but comparison.",
            UnsoundCalibrationWarning,
        )


def warn_of_delta(privacy: Privacy, n: int) -> None:
    """Warn if a public number of people is so small that delta hides none of them."""
    if privacy.delta * n >= 1.0 and not math.isinf(privacy.epsilon):
        warn(
            f"delta {privacy.delta:.6g} is at least 1 over the number of people, {n}: publishing the record of a "
            "random person would have this guarantee. Use a delta far below that, such as "
            f"{0.01 / n:.0e}.",
            LargeDeltaWarning,
        )


class Expected(NamedTuple):
    """Expected error of a fit by public numbers: root mean squared, as a share of the signal; number of people."""

    error: float
    n: int
    unit: str = "people"


class Summed(NamedTuple):
    """Data, read and summed, and the mechanism that is calibrated for them."""

    mechanism: Mechanism[Any]
    #: The data owner's: only the mechanism sees it.
    statistic: Any
    #: What is public besides and needed to solve: sizes, labels declared public.
    public: Any = None
    #: None where the number of people is private: no warning may tell it.
    expected: Expected | None = None


class Prepared(NamedTuple):
    """A fit after a first part of the budget was spent: the releases so far, and the estimator for the rest."""

    estimator: Any
    privacy: Privacy
    releases: tuple[Release, ...] = ()
    attributes: Mapping[str, Any] = {}
    #: What is to be said of that part once all is paid for: before, it would reveal something of the people at no cost.
    caution: str = ""


class Fitted(NamedTuple):
    """The result of a solution: fitted attributes, and the error according to the releases, as in `Expected`."""

    attributes: dict[str, Any]
    #: 0 where they say nothing.
    error: float = 0.0


class Solved(NamedTuple):
    """An estimator without privacy: fitted attributes, and their releases for the ledger."""

    releases: tuple[Release, ...]
    attributes: dict[str, Any]


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator, ABC):
    """Parameters, attributes and errors of every estimator.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit: the smaller, the more private, and the more noise; about 1 is usual. From 2**-40 to
        2**40; ``inf`` for the textbook estimator without noise, clipping or rounding.
    delta : float, default 0.0
        Probability that the guarantee fails, about: far below one over the number of people, such as 1e-6. 0 for pure
        differential privacy, which needs more noise.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public (one row replaced) or private (one row more or less).
    calibration : {"sound", "paper"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" has the printed noise, and warns where it is too
        little for the printed claim.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee: anybody can subtract known noise, and that of two
        releases of one seed even without knowing it. A ledger takes each seed once. By default noise comes from the
        operating system's cryptographic source.
    n_threads : int, optional
        Threads that go through the data; the results do not depend on it. By default ``OMP_NUM_THREADS``, else the
        cores this process may use.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies. By default nothing adds up the costs of several fits.
        Cross-validation pays for every fit, but its exact scores are in no budget: give it ``error_score="raise"``, or
        choose by `dpfast.select`. In a pipeline use `PrivateStandardScaler`: a scaler of scikit-learn leaks the means
        of the rows.

    Attributes
    ----------
    releases_ : tuple of Release
        All that left the data.
    privacy_spent_ : Privacy
        What it cost.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, where X has any.

    Raises
    ------
    ValueError, TypeError
        If a parameter, a shape or an entry (NaN, inf) is not accepted. Nothing is spent then, and the estimator is left
        as it was.
    PaidFailure
        If a fit fails after it has drawn noise, whatever the reason: its cost is spent. Where all was released,
        `complete` finishes it.
    BudgetExceeded
        If the ledger has too little left; no data is read then.
    """

    epsilon: float
    delta: float = 0.0
    _: KW_ONLY
    adjacency: Adjacency = "replace_one"
    calibration: Calibration = "sound"
    random_state: int | None = None
    n_threads: int | None = None
    ledger: Ledger | None = None

    releases_: tuple[Release, ...] = field(init=False)
    privacy_spent_: Privacy = field(init=False)

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = get_args(Calibration)
    #: Expected errors from here on are warned of.
    _WARNED_ERROR: ClassVar[float] = _MOSTLY_NOISE
    #: Classes of parameters, beside numbers and the like, that keep what they were made with by their arguments' names.
    _PARAMETER_TYPES: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in vars(cls).copy().items():
            if name in _FITS:
                takes_weights = name != "fit" or "sample_weight" in signature(method).parameters
                setattr(cls, name, _on_a_copy(method if takes_weights else _without_weights(method)))
        representation.document(cls, PrivateEstimator.__doc__ or "")

    def _checked(self) -> Privacy:
        """Refuse bad parameters; return the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        if not (_EPSILONS[0] <= privacy.epsilon <= _EPSILONS[1] or math.isinf(privacy.epsilon)):
            raise ValueError(f"epsilon must lie between 2**-40 and 2**40, or be inf for no noise, got {self.epsilon!r}")
        if privacy.delta > 0.0:
            check.delta_value(privacy.delta)
        check.choice("calibration", self.calibration, self._CALIBRATIONS)
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        check_random_state(self.random_state)
        resolve_n_threads(self.n_threads)
        self._with_placeholders()._check_parameters(privacy)
        return privacy

    @property
    def _is_gaussian(self) -> bool:
        """Whether all releases except bounds are Gaussian if delta is above 0: the fit then composes by mu."""
        return False

    #: Whether the budget is a part of one that is shared by mu: all that is released must compose by its mu then.
    _shares_mu = False

    def _mu(self, privacy: Privacy) -> float | None:
        """Return the mu of a whole fit, if parameters alone give one: a joint calibration costs that."""
        if not self._is_gaussian or self.calibration != "sound" or privacy.delta == 0.0 or math.isinf(privacy.epsilon):
            return None
        return gaussian_mu(privacy.epsilon, privacy.delta)

    def _cost(self) -> tuple[Privacy, float | None]:
        """Return the cost of a fit for a ledger."""
        privacy = self._checked()
        return privacy, self._mu(privacy)

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state. A worker process has no block that pays, so the ledger goes along."""
        state: dict[str, Any] = super().__getstate__()
        if self.ledger is None and not any(name[-1] == "_" for name in vars(self)):
            state = {**state, "ledger": ledger_of_block()}
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _with(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with some other attributes, which shares the ledger."""
        other = object.__new__(type(self))
        other.__dict__ = vars(self) | values
        return other

    def _with_placeholders(self) -> Self:
        """Return the estimator with numbers in the place of values that a fit is to find."""
        return self

    def _in_order(self) -> Self:
        """Return the estimator with declarations by name in their given order."""
        return self

    def _checked_with_placeholders(self) -> Self:
        """Return the estimator with numbers in the place of values that a fit is to find, all of it checked."""
        self._checked()
        return self._with_placeholders()

    @abstractmethod
    def _check_parameters(self, privacy: Privacy) -> None:
        """Refuse bad parameters of the family."""

    def _fit(
        self,
        privacy: Privacy,
        *data: Any,
        unit: Unit = "row",
        columns: Mapping[str, Any] | None = None,
        opened: Callable[..., tuple[Any, ...]] | None = None,
    ) -> Self:
        """Reserve, sum, release, commit, solve, keep; parameters have been checked.

        Some data has to be read before the family can sum it. It is `opened` once the cost of the fit is held. Before,
        the recorded time of the reservation would tell how long reading took, and errors would tell what is in the
        data.
        """
        if math.isinf(privacy.epsilon) and any(isinstance(one, io.Partitions) for one in data):
            raise TypeError("epsilon must be finite for a table in parts: without noise rows are fitted in memory")
        common = {"privacy_spent_": privacy, "_n_public": None} | dict(columns or {})
        with reserve(self, privacy, unit, self._mu(privacy)) as reservation, io.one_table(), io.naming_columns(*data):
            data = tuple(io.read_now(one) for one in data)
            if opened is not None:
                data = opened(*data)
            if math.isinf(privacy.epsilon):
                dense = (io.in_memory(one, "X", may_copy=True) if io.is_sparse(one) else one for one in data)
                releases, attributes = self._with_placeholders()._fit_without_noise(*dense)
                reservation.commit(*releases)
                shape: Any = getattr(data[0], "shape", ())
                if self.adjacency == "replace_one" and len(shape) == 2:
                    common["_n_public"] = int(shape[0]), "people"
                self._keep({"releases_": releases} | common | attributes)
                return self
            source = noise.resolve_source(self.random_state, reservation)
            model, rest, before, found, caution = self._prepared(privacy, source, *data)
            summed = model._sum(rest, source, *data)
            warn_of_printed(summed.mechanism)
            expected = summed.expected
            if expected is not None:
                warn_of_delta(privacy, expected.n)
            error, people = (0.0, "") if expected is None else (expected.error, f"{expected.n} {expected.unit}")
            common["_n_public"] = None if expected is None else expected[1:]
            # Bounds that were released made what is expected a released value, too.
            warned = not before and self._warn_of_noise(error, people, privacy)
            own, tell = model._release(summed, source)
            releases = (*before, *own)
            given = self._given_to(model)
            unsolved = Unsolved(given, summed.mechanism, summed.public, found, len(before), None if warned else error)
            # Kept before the ledger has committed: once something was drawn, all of it is paid for, whatever follows.
            persistence.keep(self._keep({"releases_": releases, _UNSOLVED: unsolved} | common))
            reservation.commit(*releases)
            noisy = self._solve_released(tell)
        # What was paid for is kept, also by those who make errors of warnings.
        if caution:
            warn(caution, ReleasedUtilityWarning)
        else:
            self._warn_of_noise(noisy, None, privacy)
        self._warn_of_releases()
        return self

    def complete(self) -> Self:
        """Solve again from the releases if solving was interrupted or failed; a fitted model stays as it is.

        Privacy: post-processing of `releases_`; nothing is spent.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        NotFittedError
            If nothing was released.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> model = SyntheticControl(float("inf"), ridge=0.0).fit([[1.0, 2.0, 3.0], [2.0, 2.0, 4.0]], n_pre=2)
        >>> model.complete() is model
        True
        """
        if not self._is_solved:
            self._warn_of_noise(self._solve_released(), None, self.privacy_spent_)
            self._warn_of_releases()
        check_is_fitted(self)
        return self

    @property
    def _is_solved(self) -> bool:
        """Whether it does not wait for `complete`."""
        return _UNSOLVED not in vars(self)

    def _given_to(self, model: Self) -> dict[str, Any]:
        """Return the parameters of the estimator with the found values, except those of the ledger."""
        own, parameters = vars(self), parameter_names(type(self))
        return {
            name: value
            for name, value in vars(model).items()
            if name in parameters or own.get(name, own) is not value
            if name not in LEFT_OUT
        }

    def _solve_released(self, tell: Callable[[], Any] | None = None) -> float:
        """Solve from the releases, and keep the result; return the expected error to warn of, 0 for none.

        `tell` computes the values of the releases, if the fit that made them is at hand.
        """
        unsolved: Unsolved = vars(self)[_UNSOLVED]
        model = self._with(unsolved.given)
        if tell is None:
            tell = partial(unsolved.mechanism.solve, self.releases_[unsolved.n_before :])
        attributes, error = model._solve(unsolved.mechanism, tell(), unsolved.public)
        noisy = 0.0 if unsolved.error is None else max(unsolved.error, error)
        if vars(self).get(_UNSOLVED) is not unsolved:
            raise RuntimeError(f"this {type(self).__name__} was completed or fitted again meanwhile, in another thread")
        kept = {name: value for name, value in vars(self).items() if name[-1] == "_" and name[0] != "_"}
        persistence.forget(self._keep(kept | attributes | dict(unsolved.found)))
        return noisy

    def __sklearn_is_fitted__(self) -> bool:
        if not self._is_solved:
            raise NotFittedError(
                f"this {type(self).__name__} has its releases, but no result yet: call complete(), which spends nothing"
            )
        return any(name[-1] == "_" and name[0] != "_" for name in vars(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file: its parameters and, if it is fitted, all that was released.

        Neither the ledger nor `random_state` is written. All of the file is public, as the releases are.

        Parameters
        ----------
        path : path-like
            Replaced as a whole if it exists.

        Raises
        ------
        TypeError
            If the path is no path, or a parameter is no number, string, array or collection of them.
        ValueError
            If the path is that of a ledger: its spending would be forgotten.
        OSError
            If the file cannot be written; what was there before is then untouched.
        """
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        estimator
            With the saved parameters and fitted attributes, equal to the bit; without a ledger and a seed.

        Raises
        ------
        ValueError
            If the file is damaged, of another estimator or layout, or holds what no fit can have produced.
        TypeError
            If the path is no path.
        OSError
            If the file cannot be read.
        """
        return persistence.load(cls, path)

    def set_output(self, *, predict: representation.Container | None = None) -> Self:
        """Choose the container of predictions: by `predict`, `predict_proba` and `decision_function`.

        Parameters
        ----------
        predict : {"default", "pandas", "polars"}, optional
            "default" is a NumPy array. "pandas" is a Series, or a DataFrame for several columns. Both have the index
            of the DataFrame that is predicted from, and names of outcomes or classes; "polars" has no index. None
            leaves it as it is. Clones keep it; scikit-learn's stacking, calibration and scorers of probabilities want
            arrays.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If it is none of these.
        ImportError
            If the library is not installed.
        """
        if predict is not None:
            self._sklearn_output_config = representation.with_output(self._output_config, predict)
        return self

    @property
    def _output_config(self) -> dict[str, str]:
        """Scikit-learn's storage of the setting of `set_output`; `clone` copies it."""
        config: dict[str, str] = getattr(self, "_sklearn_output_config", {})
        return config

    def _in_output_type(
        self, values: Any, given: Any, names: Sequence[Any] | None, name: Any = None, rows: Any = None
    ) -> NDArray[Any]:
        """Return predictions as requested: as an array, or what else `set_output` names."""
        shown: NDArray[Any] = representation.presented(self._output_config, values, given, names, name, rows)
        return shown

    def _repr_html_inner(self) -> str:
        """Return the notebook view: parameters, and the cost of a fit, or its spending and releases."""
        return representation.html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return the views for notebooks to choose from, as scikit-learn's configuration requests."""
        shown = {"text/plain": repr(self)}
        return shown | ({"text/html": self._repr_html_inner()} if get_config()["display"] == "diagram" else {})

    @abstractmethod
    def summary(self) -> DataFrame:
        """Tabulate the estimates, each with its name."""

    def _header(self, **said: Any) -> dict[str, Any]:
        """Return the header of the tables of estimates: public numbers, and the guarantee."""
        n, unit = vars(self).get("_n_public") or (None, None)
        return {"estimator": type(self).__name__, "n": n, "unit": unit} | header_of(
            self.releases_, self.privacy_spent_, **said
        )

    @abstractmethod
    def _fit_without_noise(self, *data: Any) -> Solved:
        """Fit the textbook estimator."""

    def _prepared(self, privacy: Privacy, source: noise.BitSource, *data: Any) -> Prepared:
        """Release first the values that the sums depend on, if there are any, for a part of the budget."""
        return Prepared(self, privacy)

    @abstractmethod
    def _sum(self, privacy: Privacy, source: noise.BitSource, *data: Any) -> Summed:
        """Read the data, calibrate for their public sizes, and sum them exactly."""

    def _release(self, summed: Summed, source: noise.BitSource) -> tuple[tuple[Release, ...], Callable[[], Any]]:
        """Draw the noise; return the releases, and a function that computes their values."""
        return run(summed.mechanism, summed.statistic, source, type(self).__name__)

    @abstractmethod
    def _solve(self, mechanism: Any, found: Any, public: Any) -> Fitted:
        """Return the fitted attributes: post-processing of the mechanism's releases."""

    @property
    def _release_name(self) -> str:
        """The name of a release in records."""
        return type(self).__name__

    def _exact_release(
        self, values: Mapping[str, Any], name: str | None = None, *, states_delta: bool = True
    ) -> Release:
        """Return the record of a fit without noise; of several one states the whole delta, as they add up."""
        privacy = Privacy(math.inf, self.delta if states_delta else 0.0, self.adjacency)
        return Release(self._release_name if name is None else name, "no", privacy, values, {})

    def _keep(self, fitted: Mapping[str, Any]) -> Self:
        """Set the fitted attributes, and drop those of an earlier fit, in one step that no interrupt splits.

        A fit runs on a copy: the estimator that it is a copy of is set first, and returned.
        """
        original: Self = vars(self).get(_ORIGINAL, self)
        for model in (original, self):
            kept = {name: one for name, one in vars(model).items() if name[-1] != "_" and name != _UNSOLVED}
            model.__dict__ = kept | dict(fitted)
        return original

    def _warn_of_noise(self, error: float, people: str | None, privacy: Privacy) -> bool:
        """Warn if the answer is mostly noise, judged by public numbers for so many people, or by releases."""
        if error < self._WARNED_ERROR:
            return False
        much = "mostly noise" if error >= _MOSTLY_NOISE else "much of it noise"
        warn(
            f"{'as released' if people is None else f'with {people}'} at {privacy}, the prediction is expected to be "
            f"off by {100.0 * min(error, 1.0):.0f}% of the signal: {much}, and shrinkage against it. "
            f"{type(self).__name__}.plan says how many are needed"
            f"{'; where there are as many, there is hardly a signal to find' if people is None else ''}.",
            ReleasedUtilityWarning if people is None else UtilityWarning,
        )
        return True

    def _warn_of_releases(self) -> None:
        """Warn of what else the releases show."""
        if caution := vars(self).get("caution_"):
            warn(f"{type(self).__name__}: {caution}.", ReleasedUtilityWarning)

    @classmethod
    def plot_plan(
        cls,
        n: int | Sequence[int],
        *sizes: int,
        epsilon: float | Sequence[float],
        target: float | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
        **parameters: Any,
    ) -> Axes:
        """Draw the error to expect, before any data is touched: against the number of people, or against epsilon.

        Privacy: drawn from public numbers alone; nothing is spent.

        Parameters
        ----------
        n : int or sequence of int
            Numbers of people. Of several, errors are drawn against them, a curve for each epsilon; of one against
            epsilon.
        *sizes : int
            The other sizes that `plan` takes, in its order.
        epsilon : float or sequence of float
            Budgets to compare.
        target : float, optional
            Error wanted, as for `plan`, marked by a line.
        ax, title, label, unit
            As for `dpfast.plotting.plan_curves`.
        **parameters
            The estimator's own and the plan's, as for `plan`: delta, bound_x, ...

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file. Where there are too few people for the algorithm, a
            curve has no points.

        Raises
        ------
        ValueError, TypeError
            As for `plan`, if there is nothing to draw.

        Examples
        --------
        >>> from dpfast import MultiOutcomeRidge
        >>> axes = MultiOutcomeRidge.plot_plan(
        ...     [1_000, 10_000, 100_000], 10, epsilon=[0.5, 2.0], delta=1e-6, bound_x=1.0, bound_y=1.0, target=0.1
        ... )
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['wanted: 0.1', 'epsilon 0.5', 'epsilon 2']
        """
        check.array("n", n)
        people, budgets = np.ravel(np.asarray(n)).tolist(), np.ravel(check.array("epsilon", epsilon)).tolist()
        wanted = {} if target is None else {"target": target}
        found, refused = {}, None
        for count, budget in product(people, budgets):
            try:
                with warnings.catch_warnings():
                    # The picture shows it.
                    warnings.simplefilter("ignore", UtilityWarning)
                    found[count, budget] = cls.plan(count, *sizes, epsilon=budget, **wanted, **parameters)
            except ValueError as error:
                refused = error
        if not found:
            raise refused or ValueError("n and epsilon must hold numbers")

        def errors(pairs: Iterable[tuple[Any, Any]]) -> list[float]:
            return [found[pair].expected_error if pair in found else math.nan for pair in pairs]

        options: dict[str, Any] = {"target": target, "ax": ax, "title": title, "label": label, "unit": unit}
        options["relative_to"] = next(iter(found.values())).relative_to
        if len(people) == 1:
            curve = {f"{people[0]:,} people": errors((people[0], one) for one in budgets)}
            return plotting.plan_curves(budgets, curve, against="epsilon", **options)
        curves = {f"epsilon {one:g}": errors((count, one) for count in people) for one in budgets}
        return plotting.plan_curves(people, curves, **options)

    @classmethod
    def _planned_for(
        cls,
        sizes: Mapping[str, object],
        positives: Mapping[str, object],
        parameters: Mapping[str, Any],
        max_rows: int | None = None,
    ) -> tuple[Self, Privacy]:
        """Check the request for a plan, and return the estimator to plan with, and its cost."""
        for name, size in sizes.items():
            check.positive_integer(name, size)
        for name, value in positives.items():
            if not 1e-100 <= check.positive(name, value) <= 1e100:
                raise ValueError(f"{name} must lie between 1e-100 and 1e100, got {value!r}")
        estimator = cls(**parameters)._in_order()
        privacy = estimator._checked()
        if estimator._with_placeholders() is not estimator:
            raise ValueError("plan reads no data: give the numbers that you expect in place of 'private'")
        if check.optional(check.positive_integer, "max_rows", max_rows) is not None:
            estimator._check_takes_people(privacy)
        return estimator, privacy

    def _check_takes_people(self, privacy: Privacy) -> None:
        """Refuse people with several rows, where these are not supported."""

    def _check_loaded(self) -> None:
        self._checked()
        representation.check_output(self._output_config)
        if not any(name[-1] == "_" for name in vars(self)):
            return
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")
        if not self._is_solved:
            unsolved = vars(self)[_UNSOLVED]
            if not isinstance(unsolved, Unsolved) or unsolved.n_before not in range(len(self.releases_)):
                raise ValueError("a model that waits for complete() must hold releases to solve from")
            return
        if hasattr(self, "n_features_in_"):
            n_features = check.positive_integer("n_features_in_", self.n_features_in_)
            if hasattr(self, "feature_names_in_") and len(self.feature_names_in_) != n_features:
                raise ValueError("feature_names_in_ must name n_features_in_ features")
        for name, shape in self._fitted_shapes():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
                raise ValueError(f"{name} must be an array of float64 of shape {shape}")
        self._check_fitted()

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield fitted arrays of floats and the shapes that they must have."""
        yield from ()

    def _check_fitted(self) -> None:
        """Raise ValueError for other attributes that no fit can have produced."""
