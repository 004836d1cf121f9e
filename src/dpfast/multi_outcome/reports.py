"""Reports of fitted coefficients: a table of errors, limits and p-values.

Arithmetic on released and public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, special
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.estimator.linear import OWN_NAMES, UNLIKE, LinearEstimator, Names, Per
from dpfast.io.summaries import Estimates
from dpfast.solvers.inference import InferenceState, Posterior, Textbook

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Target = Literal["population", "least_squares", "ridge"]
LEVEL = 0.95
#: Standard error that R-squared has at most, where it is shown.
R_SQUARED = 0.03
UNKNOWN = "NaN: noise hides X'X, or with weights the bias of clipping; more people or a larger epsilon may tell"
_HIDDEN = "NaN: noise hides these features; limits of each in box_x would tell in which unit it is"
_GUESSED = "NaN: noise hides these features' effects; narrower box_x, fewer features or a larger epsilon may tell"
_SAMPLING = "p_value is NaN, as errors and limits leave sampling out: "
_CLUSTERED = "rows of one person depend on each other, and there are no clustered standard errors"
_OTHER = "target='population' has it, by a residual variance that was released, or by residual_std, a public number"


class CoefficientReports(LinearEstimator):
    """Tables of the coefficients of an estimator of several outcomes."""

    intercept_: FloatArray
    coef_std_: FloatArray
    residual_std_: FloatArray | None
    ridge_: float
    n_steps_: int
    #: What released numbers say of the coefficients, by outcome or for all; none where there was no noise.
    _inference_states: tuple[dict[str, Any], ...]
    _expected_error: float
    #: Least squares, where there was none.
    _textbook: tuple[FloatArray, FloatArray, float] | None
    _single_outcome: bool
    #: Whether it was fitted from sums that no intercept follows from.
    _lacks_sums: bool
    _plot_coefficients: Callable[..., Any]

    def summary(
        self, *, level: float = 0.95, target: Target | None = None, residual_std: ArrayLike | None = None
    ) -> DataFrame:
        """Tabulate coefficients with their errors, limits and p-values.

        Privacy: computed from what was released; nothing further is spent.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits.
        target : {"population", "least_squares", "ridge"}, optional
            The target of the limits. For "population" it is the coefficients of the law of the rows, with sampling as
            part of the error. For "least_squares" it is least squares on the table itself, clipped as it was. For
            "ridge" it is the fit with the same `ridge_` on the table without noise, so shrinkage by the ridge is no
            error. By default "population" where the residual variance is known, else "least_squares"; "ridge" for a fit
            of sums without noise.
        residual_std : float or array of shape (n_outcomes,), optional
            Standard deviation of the outcomes about their linear function of the features, a public number; by default
            `residual_std_`, which fits with residual steps release.

        Returns
        -------
        pandas.DataFrame
            A row a feature, of several outcomes with a first index level ``outcome``, and one for the intercept before
            them. Columns: ``estimate``, the coefficients of the target, shrinkage undone as far as is known
            (predictions use `coef_` and `intercept_`); ``std_error``, its standard error in all; ``low`` and ``high``;
            ``p_value``, two-sided, for a coefficient of zero in the population: NaN for other targets, without
            sampling; ``std_privacy``, the standard deviation of `coef_` from the privacy noise alone, about the target
            "ridge", NaN of the intercept. For a feature hidden by noise all but the last are NaN. For an intercept with
            unknown error the estimate is `intercept_`. The ``attrs`` hold the lines printed above: estimator, n if it
            is public, privacy, level and target of the limits, and ``r_squared`` by outcome, if it is known to a
            standard error of 0.03.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1), the target is none of these, or is "population" where the residual
            standard deviation is not known.

        Notes
        -----
        Limits for "population" and "least_squares" are quantiles of the posterior law of the coefficients given the
        releases, under a prior [1]_ [2]_. The prior spreads them evenly over the features (in units of half the widths
        of `box_x`, if given) with an unknown variance of its own for every outcome. If the noise is small they are the
        limits of unpenalised least squares. In a direction of the features hidden by noise they are as wide as the
        coefficients seem large. They cover on average over the coefficients of a fit [3]_, and not each over many fits.
        A coefficient far larger than the others, in a hidden direction, is covered less often, and coefficients of zero
        more often. The p-values are twice the posterior probability of the other sign, and conservative if coefficients
        are shrunk. Limits, errors and p-values allow for the noise in a released residual variance, as Student's law
        does. Those for "ridge" are normal, and first order in the noise. After residual steps 95% limits for
        "population" covered 90 to 100% on average over the coefficients, measured on eleven kinds of tables
        (correlated, rare, skewed, heavy-tailed; three outcomes) with 1,500 to 10,000 people at epsilon 1 and 3, 60
        fits each. The lowest coefficient, of skewed outcomes, had 80%. The error that limits are made of is 1.0 to 5.5
        times the actual one. A coefficient is NaN if shrinkage may take away more than half of it, as noise hides which
        of the features an effect is of: most are in tables of 30 correlated columns with 3,000 people at epsilon 3, and
        up to 40% in tables of five to seven with 1,500 at epsilon 1. It more often is if its feature varies far less
        than the others in units of `box_x`, an interaction with a rare level for instance. A feature without limits in
        `box_x`, which noise hides beside larger ones, has NaN, and so has the intercept: nothing tells its unit. All
        errors are NaN if people are too few to distinguish X'X from its noise, or, with weights, the bias of clipping.

        All take outcomes to have one variance about their linear function, whatever the features, and rows to be
        independent: with `groups`, "population" is not offered. Rows and outcomes that reach beyond their bounds are
        clipped, and the coefficients are those of the clipped ones. Without noise (`epsilon` inf) the table is the
        textbook's, with Student's law.

        References
        ----------
        .. [1] Morris, C. (1983). Parametric empirical Bayes inference: theory and applications. JASA 78.
        .. [2] Carroll, R., Ruppert, D., Stefanski, L., Crainiceanu, C. (2006). Measurement error in nonlinear models,
           chapter 4, for the noise in X'X.
        .. [3] Nychka, D. (1988). Bayesian confidence intervals for smoothing splines. JASA 83.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import MultiOutcomeRidge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 2))
        >>> y = X @ [0.5, 0.0] + rng.normal(scale=0.1, size=50_000)
        >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, random_state=0).fit(X, y)
        >>> table = model.summary(residual_std=0.1)
        >>> bool(table.loc[0, "low"] < 0.5 < table.loc[0, "high"] and table.loc[0, "p_value"] < 0.001)
        True
        """
        return self._estimates(level=level, target=target, residual_std=residual_std).frame()

    def _estimates(
        self,
        names: Names = OWN_NAMES,
        *,
        level: float = LEVEL,
        target: Target | None = None,
        residual_std: ArrayLike | None = None,
    ) -> Estimates:
        check_is_fitted(self)
        level = check.share("level", level)
        scale = self._residual_scale(residual_std)
        if target is None:
            target = self._usual_target(scale)
        check.choice("target", target, ("population", "least_squares", "ridge"))
        law = self._law(target, scale, level, is_released=residual_std is None)
        columns = {
            "estimate": law.center,
            "std_error": law.deviation,
            "low": law.low,
            "high": law.high,
            "p_value": p_values(law, target),
        }
        if self._has_intercept:
            columns = {name: np.roll(one, 1, axis=1) for name, one in columns.items()}
            unknown = np.isnan(columns["estimate"][:, 0])
            columns["estimate"][unknown, 0] = self.intercept_[unknown]
        columns["std_privacy"] = self._coefficients(self.coef_std_, np.nan)
        hidden = np.isnan(law.center[:, : self.coef_.shape[1]])
        units = any(state["hidden"] is not None and np.any(state["hidden"]) for state in self._inference_states)
        guessed = any(state["least_signal"] > 0.0 for state in self._inference_states)
        note = (_HIDDEN if units else _GUESSED if guessed else UNKNOWN) if hidden.any() else None
        if note is None and target != "population":
            note = _SAMPLING + (_CLUSTERED if self._has_people else _OTHER)
        r_squared = self._r_squared(scale, law, is_released=residual_std is None)
        header = self._header(level=level, target=target, r_squared=r_squared, note=note)
        return self._tabulated(columns, header, names)

    def _r_squared(self, scale: FloatArray | None, law: Posterior, *, is_released: bool) -> dict[Any, float] | None:
        """Return the explained part of outcomes' variance, by name; None if any has a larger error than `R_SQUARED`.

        Without noise it is that of least squares. The error is that of the residual variance, if it was released, and
        of the variance that is explained: errors of coefficients may all move it one way.
        """
        if self._textbook is not None and (shares := Textbook(*self._textbook).r_squared) is not None:
            return dict(zip(self._sides()[1], shares.tolist(), strict=True))
        if scale is None or len(self._inference_states) != 1:
            return None
        state = InferenceState(**self._inference_states[0])
        features = self.coef_.shape[1]
        # For weighted rows a constant is among the features of X'X.
        if not math.isfinite(state.n_rows) or len(state.xx) > features or np.isnan(law.center[:, :features]).any():
            return None
        units = np.ones(features) if state.units is None else state.units
        theta, deviation = (one[:, :features] * units for one in (law.center, law.deviation))
        xx = linalg.inv(state.inverse) / state.n_rows
        explained = np.sum(theta @ xx * theta, axis=1)
        off = 2.0 * np.sum(np.abs(theta @ xx) * deviation, axis=1) + deviation**2 @ np.diag(xx)
        total = np.maximum(explained + scale**2, np.finfo(np.float64).tiny)
        shares = explained / total
        residual_noise = scale**2 * state.residual_noise if is_released else np.zeros(len(total))
        errors = np.hypot((1.0 - shares) * off, shares * residual_noise) / total
        return dict(zip(self._sides()[1], shares.tolist(), strict=True)) if np.all(errors <= R_SQUARED) else None

    @property
    def _names_one_side(self) -> bool:
        return not self._single_outcome

    def plot(
        self,
        *,
        level: float = 0.95,
        residual_std: ArrayLike | None = None,
        feature_names: Sequence[object] | None = None,
        outcome_names: Sequence[object] | None = None,
        reference: ArrayLike | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
        per: Per | None = None,
    ) -> Axes:
        """Draw the coefficients' estimates, with limits for the privacy noise alone, and for sampling too.

        Privacy: drawn from what was released; nothing further is spent.

        Parameters
        ----------
        level : float, default 0.95
            Nominal coverage of the limits. Those for the privacy noise are of the target "least_squares" of `summary`,
            the table itself; those for noise and sampling are of the target "population", and are drawn where the
            residual variance is known.
        residual_std : float or array of shape (n_outcomes,), optional
            As for `summary`.
        feature_names, outcome_names : sequence, optional
            By default those of the fit, or numbers.
        reference : array of shape (n_outcomes, n_features), optional
            Public values to compare with: declared public by being given.
        ax, title, label, unit
            As for `dpfast.plotting.coefficients`.
        per : {"unit", "range"}, optional
            The change that a coefficient is drawn for: a unit of its feature, or the whole range between the limits of
            `box_x`. By default the range if the widths of ranges differ more than tenfold, and in shares of each
            outcome's bound if these differ so: nothing in a small unit flattens the others.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import MultiOutcomeRidge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(50_000, 2))
        >>> y = X @ [0.5, 0.0] + rng.normal(scale=0.1, size=50_000)
        >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, random_state=0).fit(X, y)
        >>> axes = model.plot(feature_names=["age", "smoker"], residual_std=0.1, unit="days")
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['95% limits: noise and sampling', '95% limits: privacy noise']
        """
        check_is_fitted(self)
        level = check.share("level", level)
        features = self.coef_.shape[1]
        values, limits = self._drawn_estimates(residual_std, level)
        values = values[:, :features]
        limits = {name: tuple(side[:, :features] for side in sides) for name, sides in limits.items()}
        options = {"ax": ax, "title": title, "label": label, "unit": unit, "level": level}
        names = feature_names, outcome_names
        axes: Axes = self._plot_coefficients(values, *names, reference, limits | options, per=per)
        return axes

    def _drawn_bounds(self, per: Per | None) -> FloatArray | None:
        """Return the outcomes' bounds that pictures are in shares of; None where they are alike."""
        given = getattr(self, "bound_y_", self.bound_y)
        given = self._as_fitted(given, "outcome_names_in_") if hasattr(given, "keys") else given
        bounds = np.ravel(np.asarray(1.0 if given is None or isinstance(given, str) else given, np.float64))
        return bounds if per is None and np.max(bounds) > UNLIKE * np.min(bounds) else None

    def _drawn_estimates(self, residual_std: ArrayLike | None, level: float) -> tuple[FloatArray, dict[str, Any]]:
        """Return the best released estimates, with limits of either kind where they are known."""
        scale = self._residual_scale(residual_std)
        if not self._inference_states and self._textbook is None:
            law = self._law("ridge", None, level)
            return law.center, {"noise": (law.low, law.high)}
        law = self._law("least_squares", scale, level)
        limits = {"noise": (law.low, law.high)}
        if scale is not None or self._textbook is not None:
            law = self._law("population", scale, level, is_released=residual_std is None)
            limits["total"] = law.low, law.high
        return law.center, limits

    def _usual_target(self, scale: FloatArray | None) -> Target:
        if not self._inference_states and self._textbook is None:
            return "ridge"
        return "least_squares" if scale is None and self._textbook is None else "population"

    @property
    def _has_people(self) -> bool:
        """Whether people have several rows."""
        return any(one.unit == "person" for one in self.releases_)

    def _residual_scale(self, residual_std: ArrayLike | None) -> FloatArray | None:
        if residual_std is None:
            return self.residual_std_
        if self._has_people:
            raise ValueError(
                "residual_std must not be given for people with several rows: their rows are not independent, and "
                "there are no clustered standard errors"
            )
        given = np.full(1, np.nan)
        with suppress(TypeError, ValueError, OverflowError):
            given = np.asarray(residual_std, np.float64)
        outcomes = len(self.coef_)
        if given.shape not in ((), (outcomes,)) or not np.all(np.isfinite(given)) or np.any(given < 0.0):
            raise ValueError(f"residual_std must be a nonnegative number, or one for each of {outcomes} outcomes")
        return np.broadcast_to(given, (outcomes,))

    def _law(self, target: Target, scale: FloatArray | None, level: float, *, is_released: bool = False) -> Posterior:
        """Return the places of coefficients: unknown, for features of which nothing was seen.

        `is_released` says that `scale` has noise in it.
        """
        law = self._law_of_all(target, scale, level, is_released=is_released)
        unseen = np.isnan(self.coef_std_)
        if self._has_intercept:
            unseen = np.column_stack([unseen, unseen.all(axis=1)])
        return Posterior(*(np.where(unseen, np.nan, part) for part in law)) if unseen.any() else law

    def _law_of_all(self, target: Target, scale: FloatArray | None, level: float, *, is_released: bool) -> Posterior:
        if target == "ridge":
            return _normal(self._with_intercept(self.coef_), self._with_intercept(self.coef_std_), level)
        if self._textbook is not None:
            textbook = Textbook(*self._textbook)
            if target == "population":
                return textbook.posterior(level)
            return _normal(textbook.center, np.zeros_like(textbook.center), level)
        if not self._inference_states:
            raise ValueError(f"target={target!r} needs a fit from rows, or noise: use target='ridge'")
        if scale is None:
            if target == "population":
                raise ValueError(
                    "target='population' needs the residual variance, which was not released: fit one row a person, "
                    "and take residual steps or pass residual_std"
                )
            scale = np.zeros(len(self.coef_))
        parts = np.split(scale**2, len(self._inference_states))
        laws = []
        with single_threaded_blas():
            for fields, variance in zip(self._inference_states, parts, strict=True):
                state = InferenceState(**fields)
                allowed = state.widened(variance) if is_released else variance
                laws.append(state.posterior(allowed, level, of_population=target == "population"))
        # For weighted rows a constant is the last column, before the intercept that it represents.
        features = self.coef_.shape[1]
        kept = [*range(features), *([-1] if self._has_intercept else [])]
        return Posterior(*(np.concatenate(part)[:, kept] for part in zip(*laws, strict=True)))

    def _with_intercept(self, values: FloatArray) -> FloatArray:
        """Return numbers of features with an unknown one of the intercept after them, where there is one."""
        if not self._has_intercept:
            return values
        return np.column_stack([values, np.full(len(values), np.nan)])


def p_values(law: Posterior, target: Target) -> FloatArray:
    """Return two-sided p-values: NaN for targets without sampling, as a zero of the law is no zero for them."""
    return 2.0 * law.opposite if target == "population" else np.full(law.center.shape, np.nan)


def _normal(center: FloatArray, deviation: FloatArray, level: float) -> Posterior:
    reach = float(special.ndtri((1.0 + level) / 2.0)) * deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        standard = np.where(center == 0.0, 0.0, -np.abs(center) / deviation)
    return Posterior(center, deviation, center - reach, center + reach, special.ndtr(standard))
