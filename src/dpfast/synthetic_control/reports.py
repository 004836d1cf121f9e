"""Predictions of a target from what was released, and reports on it: effect tables, plots, text, placebo tests.

Arithmetic on public values: the target's outcomes, a released prediction, released moments and counts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, plotting
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.estimator.base import PrivateEstimator
from dpfast.io.summaries import Estimates, printed_whole
from dpfast.ledger import Release
from dpfast.ledger.entries import guarantee_of
from dpfast.privacy import Privacy
from dpfast.releases.size_counts import NoisySizes
from dpfast.solvers.inference import NoisyRatio
from dpfast.solvers.ridge import damped_solve
from dpfast.synthetic_control.donor_weights import output_half_width
from dpfast.synthetic_control.mechanism import PredictorMap, Predictors, prediction_interval
from dpfast.synthetic_control.steps import RANGE_SIZES, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Noise in a p-value that is shown, at most: in all, or as a part of it. With more, small ones would be chance.
_MOST_NOISE, _MOST_OF_VALUE = 0.025, 1.0 / 3.0
_COVERS = (
    "The limits cover the known privacy noise, around what the same method gives without it. They do not cover chance "
    "in the outcomes, donors that do not follow the target, or the shrinkage of the ridge."
)


def effect_table(
    observed: ArrayLike,
    counterfactual: ArrayLike,
    *,
    index: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> DataFrame:
    """Tabulate the effect of an intervention, a row a period after it.

    Parameters
    ----------
    observed : array of shape (n_post,) or (n_targets, n_post)
        Observed outcomes, in the units of the data. The row labels of a DataFrame name the targets.
    counterfactual : array of the same shape
        Predicted outcomes without the intervention.
    index : array of shape (n_post,)
        Labels of the periods.
    low, high : array of the same shape, optional
        Limits of the effect; both or neither. Limits [a, b] of a counterfactual are limits
        [observed - b, observed - a] of the effect.

    Returns
    -------
    pandas.DataFrame
        Columns ``observed``, ``counterfactual``, ``effect`` (their difference), ``cumulative`` (effects summed up to
        the period), ``percent`` (effect in percent of the counterfactual; NaN if the latter is 0). If limits are given,
        also ``low``, ``high`` and ``cumulative_low``, ``cumulative_high``: the limits summed up to the period, which
        are wide enough for the cumulative effect (see `effect_report`). Several targets make a first index level
        ``target``. Every row is a period; averages are in ``SyntheticControl.effect_summary``.

    Raises
    ------
    ValueError
        If shapes differ, there is no period, only one limit is given, or a low limit is above its high one.

    Examples
    --------
    >>> from dpfast.synthetic_control.reports import effect_table
    >>> effect_table([80.0, 60.0], [100.0, 80.0], index=[1989, 1990]).reset_index()
       period  observed  counterfactual  effect  cumulative  percent
    0    1989      80.0           100.0   -20.0       -20.0    -20.0
    1    1990      60.0            80.0   -20.0       -40.0    -25.0
    """
    pd = optional("pandas", "a table of effects")
    if (low is None) != (high is None):
        raise ValueError("low and high must be given together, or neither")
    rows = check.array("observed", observed)
    periods = pd.Index(index)
    # A table that is written to a file has the levels of its index that have names.
    periods = periods.rename("period") if periods.name is None else periods
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0 or rows.shape[-1] != len(periods):
        raise ValueError(
            "observed must have one value for each of the periods of index, of which there is at least one: "
            f"got shape {rows.shape} for {len(periods)} labels"
        )
    given = {"counterfactual": counterfactual, "low": low, "high": high}
    series = {name: check.array(name, values) for name, values in given.items() if values is not None}
    for name, array in series.items():
        if array.shape != rows.shape:
            raise ValueError(f"{name} must have the shape of observed, {rows.shape}, got {array.shape}")
    if low is not None and np.any(series["low"] > series["high"]):
        raise ValueError("low must not be above high")
    expected = series.pop("counterfactual")
    effect = rows - expected
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(expected == 0.0, np.nan, 100.0 * effect / expected)
    cumulative = np.cumsum(effect, axis=-1)
    columns = {"observed": rows, "counterfactual": expected, "effect": effect, "cumulative": cumulative}
    columns |= {"percent": percent} | series | {f"cumulative_{name}": np.cumsum(series[name], -1) for name in series}
    if rows.ndim == 2:
        targets = observed.index if isinstance(observed, pd.DataFrame) else range(len(rows))
        periods = pd.MultiIndex.from_product([targets, periods], names=["target", periods.name])
    return printed_whole(pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=periods))


def effect_report(table: DataFrame, level: float | None = None) -> str:
    """Describe in words the average and the total effect of a table, and the coverage of its limits.

    Parameters
    ----------
    table : pandas.DataFrame
        From `effect_table`.
    level : float, optional
        Coverage of the limits in the table, in (0, 1).

    Returns
    -------
    str
        A paragraph a target. The limits of the average are the averages of the limits. With Gaussian or elliptical
        noise they are wide enough at the same level, whatever the correlation of the noise between periods: the
        standard deviation of an average is at most the average of the standard deviations.

    Raises
    ------
    ValueError
        If the level is outside (0, 1), or given for a table without limits.

    Examples
    --------
    >>> from dpfast.synthetic_control.reports import effect_report, effect_table
    >>> print(effect_report(effect_table([80.0, 60.0], [100.0, 80.0], index=[1989, 1990])))
    From 1989 to 1990 (2 periods) the outcome was 70 on average, where 90 was to be expected without the intervention.
    Average effect -20 a period, cumulative effect -40, or -22.2% of the counterfactual.
    """
    level = check.optional(check.share, "level", level)
    if level is not None and "low" not in table:
        raise ValueError("level needs a table with limits: pass low and high to effect_table")
    if table.index.nlevels == 1:
        paragraphs = [_paragraph(table, level)]
    else:
        parts = table.groupby(level=0, sort=False)
        paragraphs = [f"Target {name}. {_paragraph(part.droplevel(0), level)}" for name, part in parts]
    return "\n\n".join([*paragraphs, _COVERS] if "low" in table else paragraphs)


def _paragraph(table: DataFrame, level: float | None) -> str:
    observed, expected, effect = (float(table[name].mean()) for name in ("observed", "counterfactual", "effect"))
    share = f", or {100.0 * effect / expected:.3g}% of the counterfactual" if expected != 0.0 else ""
    lines = [
        f"From {_label(table.index[0])} to {_label(table.index[-1])} ({len(table)} period{'s' * (len(table) > 1)}) "
        f"the outcome was {observed:.4g} on average, where {expected:.4g} was to be expected without the intervention.",
        f"Average effect {effect:.4g} a period, cumulative effect {effect * len(table):.4g}{share}.",
    ]
    if "low" in table:
        name = "Limits" if level is None else f"{100.0 * level:g}% limits"
        low, high = float(table["low"].mean()), float(table["high"].mean())
        lines.append(f"{name} of the average effect: {low:.4g} to {high:.4g}.")
    return "\n".join(lines)


def _label(period: Any) -> str:
    """Return a period's label as text; of a date without a time of day the date alone."""
    return str(period).removesuffix(" 00:00:00")


def labels_of(targets: Any, number: int) -> list[Any]:
    """Return the row labels of a frame of targets, or the name of a series, else their numbers."""
    if not hasattr(targets, "iloc") or (targets.ndim == 1 and targets.name is None):
        return list(range(number))
    return list(targets.index) if targets.ndim == 2 else [targets.name]


def _is_label(target: object) -> bool:
    """Whether this names a target, and is no series."""
    return isinstance(target, str) or (target is not None and not hasattr(target, "__len__"))


class TargetReports(PrivateEstimator):
    """Predictions of targets, with limits, and effect tables, plots, summaries and placebo tests."""

    mechanism: str
    bound: Any
    nonnegative: bool
    predictors: object
    basis: int | ArrayLike | None
    placebo_share: float | None
    coef_: FloatArray
    pre_coef_: FloatArray
    center_: FloatArray
    weights_: FloatArray
    prediction_: FloatArray
    noise_floor_: float
    n_components_: int | None
    bound_: float | tuple[float, float]
    n_pre_: int
    n_post_: int
    periods_: NDArray[Any]
    target_: FloatArray | None
    target_names_: NDArray[Any] | None
    ridge_: float
    _n_donors: Any
    _limits: tuple[float, float] | None
    _algorithm: Any

    @property
    def _predictors(self) -> Predictors:
        """The predictors as declared; ValueError or TypeError if they are not."""
        return Predictors.of(self.predictors)

    @property
    def _mapping(self) -> PredictorMap:
        """The map of rows from the units of predictors to those of outcomes."""
        known = self._predictors
        # Without noise no range is found, and without predictors none is needed.
        holder = self._with({"bound": 1.0}) if self._finds_range and math.isinf(self.epsilon) else self
        middle, half_width = holder._range() if known else (0.0, 1.0)
        return known.mapping(middle, half_width, 0.0 if self.nonnegative else -1.0)

    @property
    def _n_before(self) -> int:
        """Number of predictors and of periods before the intervention."""
        return len(self._predictors) + self.n_pre_

    @property
    def _finds_range(self) -> bool:
        """Whether the range of outcomes is found within the budget."""
        return isinstance(self.bound, str) and self.bound == "private"

    def _range(self) -> tuple[float, float]:
        """Return the middle and the half-width of the range, as declared or found."""
        bound = self.bound_ if self._finds_range else self.bound
        if not isinstance(bound, tuple | list):
            return 0.0, check.positive("bound", bound)
        low, high = check.limits("bound", bound)
        if low == high:
            raise ValueError(f"bound must have its low below its high, got ({low!r}, {high!r})")
        return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0

    def _range_noise(self, privacy: Privacy) -> tuple[NoisySizes, Privacy]:
        """Calibrate the search for the range; return it with the remaining budget."""
        return NoisySizes.within(privacy, self.mechanism == "cross_section", RANGE_SIZES, 2)

    @property
    @abstractmethod
    def _released(self) -> Solution:
        """Estimates from the releases of donors."""

    def predict(self, target_pre: ArrayLike) -> FloatArray:
        """Predict what targets would have done without the intervention.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors.

        Returns
        -------
        ndarray of shape (n_post,) or (n_targets, n_post)
            In the same units; a frame if requested by `set_output`. It costs no further privacy, for however many
            targets; with "output" and "objective" there is one for the target of the fit alone.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import SyntheticControl
        >>> model = SyntheticControl(float("inf"), ridge=0.0).fit([[1.0, 2.0, 3.0], [2.0, 2.0, 4.0]], n_pre=2)
        >>> model.predict([1.5, 2.0]).round(6)
        array([3.5])
        """
        check_is_fitted(self)
        pre = self._pre_rows(target_pre)
        periods, name = self.periods_[self.n_pre_ :], getattr(target_pre, "name", None)
        rows = periods if pre.ndim == 1 else None
        return self._in_output_type(self._later(pre), target_pre, list(periods), name, rows)

    def _later(self, pre: FloatArray) -> FloatArray:
        if self._is_for_one_target:
            return self._released_prediction(pre)
        return self._predicted(pre, self.coef_, slice(self._n_before, None))

    def _pre_rows(self, target_pre: ArrayLike) -> FloatArray:
        return io.target_rows(target_pre, {"n_pre": self.n_pre_}, "target_pre", self.periods_, self._predictors.names)

    def interval(self, target_pre: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Limits for the prediction that the same ridge gives without privacy noise.

        The limits account for the known privacy noise alone: they are for the prediction from the same rows, clipped to
        `row_bound`. They do not cover sampling error of the outcomes, donors unlike the target, the shrinkage of the
        ridge, or the effect of clipping donors to `row_bound`. With "private", the longer rows are clipped: fewer of
        them, the less noise there is. If clipped donors behave unlike the others, limits are too narrow for the
        prediction from unclipped rows. Of 38 kinds of panels that were measured, one with a centre far from most donors
        had 90% limits that covered 62%.

        If lambda/2 is below `noise_floor_`, the prediction without noise may depend on directions of the panel hidden
        in the noise. If no direction clearly exceeds the noise, the limits are those of a ratio with a noisy
        denominator (Fieller 1954, in the references of the class). A target may visibly have a component in hidden
        directions: more than expected by chance, and more than 2% of its norm. Then its limits are wider. They include
        the ratio's limits for this component, and its largest contribution if hidden directions are no larger after the
        intervention than before. A smaller component is neither detected nor covered. At a ridge of at least twice that
        floor no direction is hidden.

        With "output" they cover at least `level`. The effect of noise in the weights depends on the donors' later
        outcomes. These are private, and assumed to be at the ends of the range. (With one or two donors and Gaussian
        noise, coverage may be 1 to 2 percentage points lower: the noise in the prediction is proportional to weights
        that are themselves noisy.) Limits are not offered for "objective": its minimiser is not distributed
        symmetrically about the one without noise.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            As for `predict`.
        level : float, default 0.9
            Nominal coverage in each period.

        Returns
        -------
        low, high : ndarray of shape (n_post,) or (n_targets, n_post)
            Equal to the prediction where there is no noise. The same release gives the same limits.
        """
        check_is_fitted(self)
        level = check.share("level", level)
        pre = self._pre_rows(target_pre)
        if math.isinf(self.privacy_spent_.epsilon):
            predicted = self._later(pre)
            return predicted, predicted.copy()
        if self._is_for_one_target:
            return self._released_interval(pre, level)
        released, rows = self._released, self._released.rows
        limits = prediction_interval(released, np.atleast_2d(rows.features(self._mapping(pre))), level)
        low, high = (rows.predicted(one).reshape(*pre.shape[:-1], self.n_post_) for one in limits)
        return low, high

    def _own_target(self) -> FloatArray:
        """Target of the released weights."""
        assert self.target_ is not None
        return self.target_[: self.n_pre_]

    def _released_prediction(self, pre: FloatArray) -> FloatArray:
        """Return the released prediction, if the target is the one of the release."""
        rows = np.atleast_2d(pre)
        if len(rows) != 1 or not np.array_equal(rows[0], self._own_target()):
            raise ValueError(
                f"target_pre must be that of the fit with mechanism={self.mechanism!r}: its weights were released for "
                "that target, and another one's are another release. mechanism='cross_section' serves any number"
            )
        return self._clipped(np.broadcast_to(self.prediction_, (*pre.shape[:-1], self.n_post_)))

    def _released_interval(self, pre: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        if self.mechanism != "output":
            raise ValueError("interval is not offered with mechanism='objective': its error is not symmetric noise")
        self._released_prediction(pre)
        offset, half_width = self._range()
        own = (self._own_target() - offset) / half_width
        chosen = self._algorithm(self._privacy_within_range, len(self.weights_), self.n_post_, own)
        half = half_width * output_half_width(chosen, self._releases_within_range[0], level)
        sides, shape = (self.prediction_ - half, self.prediction_ + half), (*pre.shape[:-1], self.n_post_)
        low, high = (self._clipped(np.broadcast_to(side, shape)) for side in sides)
        return low, high

    def _has_interval(self) -> bool:
        check_is_fitted(self)
        return not self._is_for_one_target or self.mechanism == "output"

    @property
    def _is_for_one_target(self) -> bool:
        """Whether weights were released."""
        return hasattr(self, "prediction_")

    def _earlier(self, pre: FloatArray) -> FloatArray:
        """Return the synthetic control of the earlier periods, which weights alone do not give."""
        if self._is_for_one_target:
            return np.full(self.n_pre_, np.nan)
        return self._mapping.back(self._predicted(pre, self.pre_coef_, slice(0, self._n_before)))

    def _predicted(self, pre: FloatArray, coef: FloatArray, periods: slice) -> FloatArray:
        """Predict some columns, in units of the outcomes, from the first ones of targets about the centre."""
        about = (self._mapping(pre) - self.center_[: pre.shape[-1]]) @ coef.T
        return self._clipped(self.center_[periods] + about)

    def _clipped(self, predicted: FloatArray) -> FloatArray:
        """Return predictions clipped to the declared range, since outcomes cannot leave it."""
        return predicted.copy() if self._limits is None else np.clip(predicted, *self._limits)

    @property
    def _privacy_within_range(self) -> Privacy:
        """Privacy spent, after the search for the range if there is one."""
        return self._range_noise(self.privacy_spent_)[1] if self._finds_range else self.privacy_spent_

    @property
    def _releases_within_range(self) -> tuple[Release, ...]:
        """Releases after that."""
        return self.releases_[1:] if self._finds_range else self.releases_

    def effect(self, target: ArrayLike | None = None, *, level: float | None = None) -> DataFrame:
        """Tabulate the effect of the intervention on targets.

        Parameters
        ----------
        target : array, Series or DataFrame of shape (n_periods,) or (n_targets, n_periods), optional
            Public outcomes of all periods; by default the target of the fit.
        level : float, optional
            Add limits of the effect, see `interval`.

        Returns
        -------
        pandas.DataFrame
            See `dpfast.synthetic_control.reports.effect_table`.
        """
        rows = self._whole(target)
        pre, observed = rows[..., : self._n_before], rows[..., self._n_before :]
        limits = {}
        if level is not None:
            low, high = self.interval(pre, level)
            limits = {"low": observed - high, "high": observed - low}
        index = self._index()[self.n_pre_ :]
        return effect_table(self._named_rows(observed, target), self._later(pre), index=index, **limits)

    def effect_summary(self, target: ArrayLike | None = None, *, level: float = 0.9) -> DataFrame:
        """Tabulate the average and the cumulative effect on targets, and how well they were fitted, a row a target.

        Privacy: computed from released values and from the public records of the targets.

        Parameters
        ----------
        target : array, Series or DataFrame of shape (n_periods,) or (n_targets, n_periods), optional
            Public outcomes of all periods; by default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the limits, which are about privacy noise alone.

        Returns
        -------
        pandas.DataFrame
            Columns ``average`` (effect a period) and ``cumulative``, each with ``_low`` and ``_high`` if `interval` is
            offered: the averages and sums of its limits, which are wide enough at the same level (see
            `dpfast.synthetic_control.reports.effect_report`); ``percent``, the effect in percent of the counterfactual;
            ``pre_rmspe`` and ``post_rmspe``, root mean squared differences of the target from its synthetic control
            before and after the intervention, NaN before it if weights alone were released; and ``ratio``, the latter
            over the former. A ratio near 1 is no evidence of an effect. `placebo_ranks` says how many donors have as
            large a ratio.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1), or a target has another length.
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> target[10:] += 0.2
        >>> model = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, target)
        >>> table = model.effect_summary()
        >>> bool(abs(table["average"][0] - 0.2) < 0.05 and table["ratio"][0] > 2.0)
        True
        """
        pd = optional("pandas", "a table of effects")
        level = check.share("level", level)
        effects = self.effect(target, level=level if self._has_interval() else None)
        whole = np.atleast_2d(self._whole(target))
        of_periods = {name: effects[name].to_numpy().reshape(len(whole), -1) for name in effects}
        limits = [name for name in ("low", "high") if name in of_periods]
        columns = {"average": of_periods["effect"].mean(axis=-1)}
        columns |= {f"average_{name}": of_periods[name].mean(axis=-1) for name in limits}
        columns |= {name: of_periods[name][:, -1] for name in of_periods if name.startswith("cumulative")}
        expected = of_periods["counterfactual"].mean(axis=-1)
        before = self.pre_fit(whole)
        after = np.sqrt(np.mean(of_periods["effect"] ** 2, axis=-1))
        with np.errstate(divide="ignore", invalid="ignore"):
            columns["percent"] = np.where(expected == 0.0, np.nan, 100.0 * columns["average"] / expected)
            columns |= {"pre_rmspe": before, "post_rmspe": after, "ratio": after / before}
        return printed_whole(pd.DataFrame(columns, index=pd.Index(self._names_of(target, len(whole)), name="target")))

    def pre_fit(self, target: ArrayLike | None = None) -> FloatArray:
        """Return how far targets are from their synthetic control before the intervention: root mean squared errors.

        Computed from released values. If the fit is bad there, it is uninformative about later periods.

        Parameters
        ----------
        target : array of shape (n_periods,) or (n_pre,), or several as rows; optional
            By default the target of the fit.

        Returns
        -------
        ndarray of shape () or (n_targets,)
            In input units; NaN where weights alone were released.
        """
        check_is_fitted(self)
        pre = self._earlier_rows(target)
        residuals = (pre - self._earlier(pre))[..., len(self._predictors) :]
        return np.asarray(np.sqrt(np.mean(residuals**2, axis=-1)))

    def balance(self, target: ArrayLike | None = None) -> DataFrame:
        """Tabulate the predictors of targets beside those of their synthetic controls.

        Privacy: computed from released values and from the public records of the targets.

        Parameters
        ----------
        target : array, Series or DataFrame, as for `pre_fit`; optional
            By default the target of the fit.

        Returns
        -------
        pandas.DataFrame
            A row a predictor, of several targets with a first index level ``target``: ``observed`` and ``estimate``, in
            the units of the predictor, and ``difference``, the former minus the latter in percent of the declared
            limits' distance.

        Raises
        ------
        ValueError
            If the fit had no `predictors`.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> age = 40.0 + 20.0 * donors[:, :1]
        >>> model = SyntheticControl(1.0, 1e-6, predictors={"age": (20, 80)}, random_state=0)
        >>> model = model.fit(np.hstack([age, donors]), 10, np.r_[40.0 + 20.0 * target[0], target])
        >>> bool(abs(model.balance()["difference"]["age"]) < 10.0)
        True
        """
        pd = optional("pandas", "a table of predictors")
        check_is_fitted(self)
        known = self._predictors
        if not known:
            raise ValueError("predictors must have been given to the fit for a table of their balance")
        pre = self._earlier_rows(target)
        observed, estimate = pre[..., : len(known)], self._earlier(pre)[..., : len(known)]
        difference = 100.0 * (observed - estimate) / (known.high - known.low)
        columns = {"observed": observed, "estimate": estimate, "difference": difference}
        index = pd.Index(known.names, name="predictor")
        if pre.ndim == 2:
            targets = pd.Index(self._names_of(target, len(pre)), name="target")
            index = pd.MultiIndex.from_product([targets, index])
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=index)

    def plot(
        self,
        target: ArrayLike | None = None,
        *,
        level: float = 0.9,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw a target and its synthetic control, with the limits of `interval` as a band.

        Privacy: drawn from released values and from the public record of the target.

        Parameters
        ----------
        target : array of shape (n_periods,), optional
            By default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the band, which is about privacy noise alone.
        ax, title, label, unit
            As for `dpfast.plotting.synthetic_control_paths`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> model = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, target)
        >>> model.plot(unit="visits").get_ylabel()
        'outcome (visits)'
        """
        observed, fitted, low, high = self._path(target, level)
        options: dict[str, Any] = {"level": level, "ax": ax, "title": title, "label": label, "unit": unit}
        return plotting.synthetic_control_paths(self._index(), self.n_pre_, observed, fitted, low, high, **options)

    def plot_gap(
        self,
        target: ArrayLike | None = None,
        *,
        level: float = 0.9,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw a target less its synthetic control, with the limits of `interval` as a band.

        Privacy: as for `plot`.

        Parameters
        ----------
        target, level, ax, title, label, unit
            As for `plot`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> model = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, target)
        >>> model.plot_gap(title="No effect").get_title()
        'No effect'
        """
        observed, fitted, low, high = self._path(target, level)
        post = observed[self.n_pre_ :]
        band = (None, None) if low is None or high is None else (post - high, post - low)
        options: dict[str, Any] = {"level": level, "ax": ax, "title": title, "label": label, "unit": unit}
        return plotting.synthetic_control_gaps(self._index(), self.n_pre_, observed - fitted, *band, **options)

    def summary(self, target: ArrayLike | None = None, *, level: float = 0.9) -> DataFrame:
        """Tabulate targets and their synthetic controls, period by period.

        Parameters
        ----------
        target : array, Series or DataFrame of shape (n_periods,) or (n_targets, n_periods), optional
            Public outcomes of all periods; by default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the limits.

        Returns
        -------
        pandas.DataFrame
            A row a period, of several targets with a first index level ``target``. Columns: ``observed``; ``estimate``,
            the synthetic control, NaN before the intervention if it was not released there; ``effect``, the former
            minus the latter. If `interval` is offered, ``low`` and ``high`` are its limits of the estimate after the
            intervention. Without a target of all periods: the released values, a row a coefficient (period, earlier
            period), or a weight (donor), with column ``estimate``.

        Raises
        ------
        ValueError
            If the level is not inside (0, 1), or a target has another length.
        ImportError
            If pandas is not installed.
        """
        return self._estimates(target, level=level).frame()

    def _estimates(self, target: ArrayLike | None = None, *, level: float = 0.9) -> Estimates:
        """Return the columns of `summary`."""
        check_is_fitted(self)
        level = check.share("level", level)
        if target is None and not self._has_whole_target:
            return self._coefficient_table()
        rows, n_predictors = self._whole(target), len(self._predictors)
        pre, observed = rows[..., : self._n_before], rows[..., n_predictors:]
        estimate = np.concatenate([self._earlier(pre)[..., n_predictors:], self._later(pre)], axis=-1)
        columns = {"observed": observed, "estimate": estimate, "effect": observed - estimate}
        if self._has_interval():
            unknown = np.full((*pre.shape[:-1], self.n_pre_), np.nan)
            for name, limit in zip(("low", "high"), self.interval(pre, level), strict=True):
                columns[name] = np.concatenate([unknown, limit], axis=-1)
        index = {"period": self._index()}
        if observed.ndim == 2:
            targets, periods = self._names_of(target, len(observed)), list(self._index())
            index = {"target": [name for name in targets for _ in periods], "period": periods * len(observed)}
        said = {"level": level, "target": "prediction without noise"} if self._has_interval() else {}
        return Estimates(index, {name: np.ravel(values) for name, values in columns.items()}, self._header(**said))

    def _coefficient_table(self) -> Estimates:
        """Tabulate the coefficients of the prediction, or the donors' weights."""
        if hasattr(self, "weights_"):
            return Estimates({"donor": range(len(self.weights_))}, {"estimate": self.weights_}, self._header())
        periods = list(self._index())
        earlier, later = [*self._predictors.names, *periods[: self.n_pre_]], periods[self.n_pre_ :]
        index = {"period": [one for one in later for _ in earlier], "earlier_period": earlier * len(later)}
        return Estimates(index, {"estimate": self.coef_.ravel()}, self._header())

    def report(self, target: ArrayLike | None = None, *, level: float = 0.9) -> str:
        """Describe in words the estimate, its privacy, and the errors its limits do not cover.

        Parameters
        ----------
        target : array of shape (n_periods,) or (n_targets, n_periods), optional
            By default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the limits.

        Returns
        -------
        str
        """
        offered = level if self._has_interval() else None
        table = self.effect(target, level=offered)
        promised, names = guarantee_of(self.releases_, self.privacy_spent_), self._predictors.names
        also = f", and predictors {', '.join(names)}" if names else ""
        facts = [
            f"Synthetic control by {self.mechanism!r}: {self.n_pre_} periods before the intervention, {self.n_post_} "
            f"after it{also}; ridge lambda = {self.ridge_:.4g}.",
            f"Guarantee for every donor: {promised}. The target's own record is not protected.",
        ]
        fits = np.atleast_1d(self.pre_fit(target))
        if np.all(np.isfinite(fits)):
            errors = ", ".join(f"{error:.4g}" for error in fits)
            facts.append(f"Root mean squared error before the intervention: {errors}.")
        return "\n".join([*facts, effect_report(table, offered)])

    def _target(self, target: Any, lengths: dict[str, int]) -> FloatArray:
        series = self.target_ if target is None else target
        if self.target_ is not None and self.target_names_ is not None and _is_label(target):
            known = list(self.target_names_)
            if target not in known:
                raise ValueError(
                    "target must be a series of numbers, or the name of a target of the fit "
                    f"({', '.join(map(str, known[:5]))}): a donor's record is private and cannot be a target"
                )
            series = np.atleast_2d(self.target_)[known.index(target)]
        if series is None:
            raise ValueError("target must be given: none was passed to the fit")
        return io.target_rows(series, lengths, periods=self.periods_, predictors=self._predictors.names)

    def _earlier_rows(self, target: ArrayLike | None) -> FloatArray:
        """Return targets before the intervention, of all periods or of these."""
        lengths = {"all": self.n_pre_ + self.n_post_, "n_pre": self.n_pre_}
        return self._target(target, lengths)[..., : self._n_before]

    def _names_of(self, target: Any, number: int) -> list[Any]:
        """Return the labels of targets, or of those of the fit, else their numbers."""
        if _is_label(target):
            return [target]
        own = self.target_names_ if target is None else None
        return labels_of(target, number) if own is None else own.tolist()

    def _named_rows(self, rows: FloatArray, target: Any) -> Any:
        """Return the rows of several targets under their names."""
        if rows.ndim == 1:
            return rows
        return optional("pandas", "a table of effects").DataFrame(rows, index=self._names_of(target, len(rows)))

    @property
    def _has_whole_target(self) -> bool:
        """Whether the fit had a target with all its periods."""
        return self.target_ is not None and self.target_.shape[-1] == self._n_before + self.n_post_

    def _whole(self, target: ArrayLike | None) -> FloatArray:
        check_is_fitted(self)
        return self._target(target, {"all": self.n_pre_ + self.n_post_})

    def _path(
        self, target: ArrayLike | None, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None]:
        """Return a target, its synthetic control, and the limits of the later periods where they are offered.

        Earlier periods of it are there where moments were released; their place is NaN otherwise.
        """
        row, n_predictors = self._whole(target), len(self._predictors)
        if row.ndim != 1:
            raise self._several(len(row))
        pre = row[: self._n_before]
        fitted = np.concatenate([self._earlier(pre)[n_predictors:], self._later(pre)])
        return row[n_predictors:], fitted, *(self.interval(pre, level) if self._has_interval() else (None, None))

    def _several(self, number: int) -> ValueError:
        one = "target_[0]" if self.target_names_ is None else f"target={str(self.target_names_[0])!r}"
        return ValueError(f"target must be one series to be drawn, such as {one}, got {number}")

    def _index(self) -> Any:
        return optional("pandas", "a table of effects").Index(self.periods_)

    def placebo(self, n_pre: Any, target: ArrayLike | None = None) -> DataFrame:
        """Tabulate the effect of a placebo: an earlier intervention that did not happen.

        The moments of the periods before the intervention include those of any shorter history, so this costs no
        further privacy. Effects far from 0 are evidence against the fit, or are due to noise. A donor in the target's
        place is not offered: its record is private.

        Parameters
        ----------
        n_pre : int or label
            Number of periods before the placebo, fewer than before the intervention, or the label of the first period
            after it.
        target : array of shape (n_periods,) or ``(n_pre_,)``, or several as rows; optional
            Public outcomes; by default the target of the fit.

        Returns
        -------
        pandas.DataFrame
            As from `effect`, for the periods from the placebo to the intervention.
        """
        check_is_fitted(self)
        if self._is_for_one_target:
            raise ValueError(f"placebo needs moments, which mechanism={self.mechanism!r} does not release")
        if self.basis is not None:
            raise ValueError("placebo needs the moments of single periods, which a basis has not: fit without one")
        rows = self._earlier_rows(target)
        before = self._index()[: self.n_pre_]
        cut = io.intervention_at(n_pre, before, self.n_pre_, "the fit before the intervention")
        if math.isinf(self.privacy_spent_.epsilon):
            raise ValueError("placebo needs released moments; at epsilon=inf fit again with the earlier n_pre")
        xx, known = self._released.xx, cut + self._n_before - self.n_pre_
        keep = None if self.n_components_ is None else min(self.n_components_, known)
        coef = damped_solve(xx[:known, :known], xx[:known, known:], self.ridge_ / 2.0, self.noise_floor_, keep)
        predicted = self._predicted(rows[..., :known], coef.T, slice(known, self._n_before))
        later = self._named_rows(rows[..., known:], target)
        return effect_table(later, predicted, index=self._index()[cut : self.n_pre_])

    def placebo_ranks(self, target: ArrayLike | None = None, *, level: float = 0.9) -> DataFrame:
        """Rank targets among donors by how much worse they are predicted after the intervention than before it.

        The ratio of root mean squared errors, after the intervention over before it, is computed for every donor with
        the released coefficients. Donors are counted with noise in bins of a quarter of an octave. This is the in-space
        placebo test of [4]_. If the intervention changed nothing, every rank is equally likely for a target like the
        donors.

        Parameters
        ----------
        target : array of shape (n_periods,) or (n_targets, n_periods), optional
            Public outcomes of all periods; by default the target of the fit. They cost no further privacy.
        level : float, default 0.9
            Nominal coverage of the limits, which are about privacy noise alone.

        Returns
        -------
        pandas.DataFrame
            A row a target: ``ratio``; ``p_value``, the share of ratios in the target's bin or beyond, the target
            included; ``low`` and ``high``, limits of the p-value without noise. The p-value is NaN if the
            noise in it has a standard deviation of more than 0.025 and of more than a third of it: small ones would be
            chance. Use `high` if it must not be too small.

        Raises
        ------
        ValueError
            If the fit had no `placebo_share`, or no noise.

        References
        ----------
        .. [4] Abadie, A., Diamond, A., Hainmueller, J. (2010). Synthetic Control Methods for Comparative Case Studies.
           Journal of the American Statistical Association 105, Section 3.5.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> target[10:] += 0.2
        >>> model = SyntheticControl(1.0, 1e-6, placebo_share=0.1, random_state=0).fit(donors, 10, target)
        >>> bool(model.placebo_ranks()["high"].max() < 0.1)
        True
        """
        pd = optional("pandas", "placebo_ranks")

        check_is_fitted(self)
        level = check.share("level", level)
        if self._is_for_one_target or self.placebo_share is None or math.isinf(self.privacy_spent_.epsilon):
            raise ValueError("placebo_ranks needs noisy counts of donors' errors: fit with a placebo_share")
        released, rows = self._released, np.atleast_2d(self._whole(target))
        assert released.errors is not None
        ratios, n = released.errors_of_series.ratios(self._mapping(rows)), 1.0 + released.number
        beyond, deviation = released.errors.tail(ratios)
        least, most = np.full_like(beyond, 1.0 / n), np.ones_like(beyond)
        variances = deviation**2, np.full_like(beyond, released.number_deviation**2)
        share = NoisyRatio(1.0 + beyond, np.full_like(beyond, n), *variances, np.zeros_like(beyond))
        low, high = share.limits(float(ndtri(0.5 + level / 2.0)), least, most)
        values = np.clip((1.0 + beyond) / n, least, most)
        values[deviation / n > np.maximum(_MOST_NOISE, _MOST_OF_VALUE * values)] = np.nan
        shares = {"p_value": values, "low": low, "high": high}
        names = self._names_of(target, len(rows))
        return pd.DataFrame({"ratio": ratios} | shares, index=pd.Index(names, name="target"))

    def plot_placebo(
        self,
        target: ArrayLike | None = None,
        *,
        level: float = 0.9,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw how much worse donors are predicted after the intervention, and the target among them.

        Privacy: drawn from released noisy counts and from the public record of the target.

        Parameters
        ----------
        target : array of shape (n_periods,), optional
            By default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the limits, which are about privacy noise alone.
        ax, title, label, unit
            As for `dpfast.plotting.placebo_distribution`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Raises
        ------
        ValueError
            If the fit had no `placebo_share`, or no noise, or the target is several.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
        >>> target[10:] += 0.2
        >>> model = SyntheticControl(1.0, 1e-6, placebo_share=0.1, random_state=0).fit(donors, 10, target)
        >>> model.plot_placebo(label="treated").get_ylabel()
        'donors, as released'
        """
        table = self.placebo_ranks(target, level=level)
        if len(table) != 1:
            raise self._several(len(table))
        ratio, *share = (float(value) for value in table.iloc[0])
        errors = self._released.errors
        assert errors is not None
        options: dict[str, Any] = {"level": level, "ax": ax, "title": title, "label": label, "unit": unit}
        return plotting.placebo_distribution(
            errors.ends, errors.counts, ratio, (share[0], share[1], share[2]), deviation=errors.deviation, **options
        )
