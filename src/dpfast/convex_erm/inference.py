"""Standard errors of both estimators: their mechanism and its cost, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special
from sklearn.utils.validation import check_is_fitted

from dpfast._arrays import FloatArray
from dpfast.convex_erm.mechanism import Calibrated, of_fitted
from dpfast.estimator.linear import OWN_NAMES, LinearEstimator, Names
from dpfast.io.summaries import Estimates, normal_reach
from dpfast.privacy import Privacy, split_budget
from dpfast.releases.mechanism import Mechanism, Stages, within
from dpfast.releases.sandwich import Sandwich
from dpfast.solvers.inference import Errors
from dpfast.statistics.rows import RowMap

if TYPE_CHECKING:
    from pandas import DataFrame

#: Share of the budget that standard errors take.
SHARE = 0.4
#: The constant feature over the bound on rows, about: so rows are hardly longer, and nor is the noise.
CONSTANT = 0.25
#: The default.
LEVEL = 0.95
#: What tables say of coefficients without errors.
UNKNOWN = (
    "NaN: noise in the sum of curvatures hides the directions of these features, so their errors are not known "
    "(coef_ has coefficients without errors): more people or epsilon, or fewer features, show them"
)
#: What tables of counts add to it.
NOT_CLOSE = "; or counts are no more than noise, or steps still long at the last one, so nothing is known of them"

PENALISED = (
    "as the penalty, the bounds and the constraint leave them, without errors: inference=True undoes these, and "
    "releases errors, where every person has one row"
)

NO_MEAN = (
    "NaN: the mean of p (1 - p) is not known without intercept, with weights, or if the number of people is private"
)


def split(privacy: Privacy, *, is_gaussian: bool) -> tuple[Privacy, Privacy]:
    """Return the budget of standard errors, and the rest; `is_gaussian` is about the other releases."""
    part, rest = split_budget(privacy, [SHARE, 1.0 - SHARE], "mu" if is_gaussian else "basic")
    return part, rest


@dataclass(frozen=True)
class WithErrors(Mechanism[tuple[Any, Errors, float | None]]):
    """A fit, and then sums of curvatures and scores: what standard errors are computed from.

    *Privacy.* The sums are Gaussian, or pure where delta is 0, for any coefficients released before
    (releases/sandwich.py). So they compose adaptively with the fit. If the whole fit is Gaussian too, mu squared adds
    up. Otherwise the epsilons and the deltas add up, as for the counts of `Calibrated`.
    """

    privacy: Privacy
    fit: Any  # of Minimisers, Descent, Calibrated or ScoreDescent
    sandwich: Sandwich
    #: None where it is private.
    n_rows: int | None = None

    @property
    def method(self) -> str:
        """How the fit is found."""
        return str(self.fit.method)

    @property
    def guaranteed(self) -> bool:
        """Whether all of it is proved to keep to the budget."""
        return bool(self.fit.guaranteed)

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise: of the fit, and of last curvatures and scores at coefficients of 0."""
        return {**self.fit.scales, **self.sandwich.scales}

    def stages(self) -> Stages[tuple[Any, Errors, float | None]]:
        """Ask for the fit's releases, and for the sums."""
        found = (yield from within(self.fit.stages(), of_fitted))()
        (coef,), (intercept,) = self.fit.linear(found)
        constant = self.sandwich.table_loss.constant
        start = np.append(coef, intercept / constant) if constant > 0.0 else coef
        errors = yield from self.sandwich.stages(start)
        return lambda: (found, errors(), self._people(found))

    def _people(self, found: Any) -> float | None:
        """Return how many there are, as far as that is public or was released."""
        told = found[0] if isinstance(self.fit, Calibrated) else found
        return self.n_rows if self.n_rows is not None else getattr(told, "people", None)


def attributes_of(errors: Errors, constant: float, people: float | None, row_map: RowMap) -> dict[str, Any]:
    """Return attributes of a fit, of rows as they come: the intercept first, if any, and NaN where nothing is known.

    Errors are those of rows after their map, and of a constant.
    """
    theta, covariance, known = errors.theta, errors.covariance, errors.known
    found: dict[str, Any] = {}
    if constant > 0.0:
        theta, known = np.roll(theta, 1), np.roll(known, 1)
        covariance = np.roll(covariance, 1, axis=(0, 1))
        units = np.append(constant, np.ones(len(theta) - 1))
        theta, covariance = units * theta, units * covariance * units[:, None]
        if people is not None and known[0]:
            found["mean_curvature_"] = errors.curvature_of_last / (constant**2 * max(people, 1.0))
    # Every parameter of rows as they come is a linear function of these: it is known if all that it is made of is.
    size = len(theta)
    coef, intercept = row_map.undone(np.eye(size)[:, int(constant > 0.0) :], np.eye(size)[:, 0])
    undone = np.column_stack([intercept, coef]).T if constant > 0.0 else coef.T
    all_known = bool(np.all(known))
    known = ~np.any((undone != 0.0) & ~known, axis=1)
    if constant > 0.0:
        known[0] = all_known  # an intercept has what an unknown feature contributes on average
    theta, covariance = undone @ theta, undone @ covariance @ undone.T
    covariance = (covariance + covariance.T) / 2.0
    return found | {
        "estimate_": np.where(known, theta, np.nan),
        "covariance_": np.where(known & known[:, None], covariance, np.nan),
    }


def table_of(
    center: FloatArray, deviation: FloatArray, level: float, ratio: str | None = None
) -> dict[str, FloatArray]:
    """Return columns of estimates, errors, normal limits and p-values, and of what their exponentials are called."""
    reach = normal_reach(level) * deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        standard = np.where(center == 0.0, 0.0, -np.abs(center) / deviation)
    columns = {"std_error": deviation, "low": center - reach, "high": center + reach}
    table = {"estimate": center, **columns, "p_value": 2.0 * special.ndtr(standard)}
    if ratio is not None:
        with np.errstate(over="ignore"):
            table |= {ratio: np.exp(center)}
            table |= {f"{ratio}_{name}": np.exp(columns[name]) for name in ("low", "high")}
    return table


class ErrorReports(LinearEstimator):
    """Tables and pictures of coefficients with their errors, where these were paid for."""

    #: What coefficients are, where they are not in units of the outcome.
    _SCALE: ClassVar[str] = ""

    inference: bool
    fit_intercept: bool
    #: Estimates, their covariance, and the mean of p (1 - p) and its error.
    estimate_: FloatArray
    covariance_: FloatArray
    mean_curvature_: FloatArray

    @property
    def _ratio(self) -> str | None:
        """The name of exponentials of coefficients, if any."""
        return None

    def summary(self, *, level: float = LEVEL) -> DataFrame:
        """Tabulate the coefficients, with errors, limits and p-values where ``inference=True`` has paid for them.

        Privacy: computed from what was released; nothing further is spent.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits.

        Returns
        -------
        pandas.DataFrame
            A row a feature, below one for the intercept, if there is one. Column ``estimate``: without `inference` the
            released coefficients. With it `estimate_`, in which ridge, penalty, constraint and shrinkage are undone;
            ``std_error``, from sampling and from noise; ``low`` and ``high``; ``p_value``, two-sided, for a coefficient
            of 0. Of a logistic loss ``odds_ratio``, of counts ``rate_ratio``, the exponential function of the estimate,
            with limits of its own in ``_low`` and ``_high``. All of them are NaN where noise hides the feature or,
            of counts, steps towards the minimum did not converge: ``attrs["note"]`` says so.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1).
        ImportError
            If pandas is not installed.

        Notes
        -----
        Limits are normal. They are for the coefficients that minimise the expected loss of rows and outcomes as they
        are clipped, whether the model is true or not: errors are those of the sandwich H^-1 J H^-1, as statsmodels'
        HC0, and of noise. Rows are taken to be independent.
        """
        return self._estimates(level=level).frame()

    def _estimates(self, names: Names = OWN_NAMES, *, level: float = LEVEL) -> Estimates:
        check_is_fitted(self)
        if not self.inference:
            return super()._estimates(names)
        table = self._errors_table(level)
        unknown = UNKNOWN + (NOT_CLOSE if self._ratio == "rate_ratio" else "")
        note = unknown if np.isnan(self.estimate_).any() else None
        header = self._header(level=level, target="population", r_squared=self._exact_r_squared(), note=note)
        return self._tabulated({name: column[None] for name, column in table.items()}, header, names)

    @property
    def _note(self) -> str | None:
        return f"{self._SCALE}{PENALISED}"

    def _errors_table(self, level: float) -> dict[str, FloatArray]:
        """Return the columns of `summary` that `inference` pays for."""
        if not self.inference:
            return {}
        deviation = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        return table_of(self.estimate_, deviation, level, self._ratio)

    def _plot_coefficients(self, values: FloatArray, *names: Any, **per: Any) -> Any:
        """Draw estimates with their limits; those that are not known as they were released, without."""
        if self.inference:
            *others, options = names
            table = {name: column[None, self.fit_intercept :] for name, column in self._errors_table(LEVEL).items()}
            values = np.where(np.isnan(table["estimate"]), values, table["estimate"])
            names = (*others, options | {"total": (table["low"], table["high"]), "level": LEVEL})
        return super()._plot_coefficients(values, *names, **per)

    def _shapes_of_errors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield names and shapes of the attributes that errors are kept in."""
        size = self.n_features_in_ + self.fit_intercept
        if self.inference:
            yield from (("estimate_", (size,)), ("covariance_", (size, size)))
        if hasattr(self, "mean_curvature_"):
            yield "mean_curvature_", (2,)

    def _check_errors(self) -> None:
        """Refuse a file whose errors are none."""
        spread = np.diag(self.covariance_)
        if not np.array_equal(np.isnan(self.estimate_), np.isnan(spread)) or np.any(spread < 0.0):
            raise ValueError("covariance_ must hold variances of what estimate_ holds")
        if np.isinf(self.estimate_).any() or not np.array_equal(self.covariance_, self.covariance_.T, equal_nan=True):
            raise ValueError("estimate_ must hold no infinity, and covariance_ must be symmetric")


def marginal_effects(estimate: FloatArray, covariance: FloatArray, curvature: FloatArray, level: float) -> Any:
    """Return columns of average marginal effects: mean of p (1 - p) times coefficients, by the delta method."""
    mean, deviation = curvature
    spread = np.sqrt(mean**2 * np.diag(covariance) + (deviation * estimate) ** 2)
    return table_of(mean * estimate, spread, level)
