"""Private synthetic control: the counterfactual path of a target, from donors with private records.

The default mechanism releases moments of donors as rows (mechanism.py, steps.py); predictions for any number of public
targets, effects, intervals and placebos are computed from them. The paper's own algorithms release the donors'
weights for one target (donor_weights.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast._threads import single_threaded_blas
from dpfast.estimator.base import Expected, Fitted, Prepared, Solved, Summed, explains_parameters, reserve, warn
from dpfast.estimator.persistence import Waiting
from dpfast.estimator.plan import Plan
from dpfast.ledger import Release
from dpfast.privacy import Privacy, UtilityWarning, compose_mu
from dpfast.releases.mechanism import Named
from dpfast.releases.moments import RepeatedMoments
from dpfast.synthetic_control.donor_weights import BoundedPanel, DonorMechanism, PanelBounds, algorithm, prediction
from dpfast.synthetic_control.mechanism import (
    CrossSection,
    CrossSectionBatch,
    DonorRows,
    orthonormal_basis,
    sum_donors,
    textbook,
)
from dpfast.synthetic_control.reports import TargetReports, labels_of
from dpfast.synthetic_control.steps import (
    DECAY,
    SIGNAL,
    SPREAD,
    VARIATION,
    Donors,
    DonorSteps,
    Solution,
    error_of_weights,
    planned_with_moments,
    planned_with_weights,
    range_counts,
    range_found,
    usual_error,
)

#: Least norm that the moments of rows have a grid for.
_LEAST_ROW_BOUND = 1e-70
_Read = Callable[[], tuple[io.Panel, ArrayLike | None, Any]]

_GUESS = (
    "the noisy counts that bound='private' paid for show no donors beyond noise: the range found is a guess. Give a "
    "range, or a larger epsilon."
)
_BEYOND = (
    "target is beyond bound in most periods before the intervention, and donors are clipped to it: predictions cannot "
    "follow. Declare the range of the outcomes."
)


class _Public(NamedTuple):
    """Public facts of a panel and its target, including the number of donors under replace-one."""

    #: Columns before the intervention: predictors and periods.
    n_pre: int
    periods: NDArray[Any]
    #: With its predictors first, in their units.
    target: FloatArray | None
    n_donors: int | None
    n_predictors: int = 0
    #: Of targets that have names.
    target_names: NDArray[Any] | None = None

    @property
    def n_columns(self) -> int:
        return self.n_predictors + len(self.periods)

    @property
    def n_post(self) -> int:
        return self.n_columns - self.n_pre

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of a fit."""
        n_pre = self.n_pre - self.n_predictors
        targets = {"target_": self.target, "target_names_": self.target_names}
        return {"n_pre_": n_pre, "n_post_": self.n_post, "periods_": self.periods} | targets


@explains_parameters
@dataclass(eq=False, repr=False)
class SyntheticControl(TargetReports):
    """Differentially private synthetic control: what a target would have done without an intervention.

    Privacy: a person is a donor, with all its periods. These are released together at (epsilon, delta), under
    `adjacency`: noisy counts of donors by the norm of their rows; their mean path, if it pays; and their moments before
    the intervention and across it. Every prediction is computed from these releases. ("output" and "objective" release
    the donors' weights for the target of the fit, and the prediction made with them, under replace-one.) Targets are
    public: their own records are not protected.

    Parameters
    ----------
    epsilon, delta
        As for every estimator.
    bound : float, tuple of (low, high) or "private", default 1.0
        Declared range of the outcomes, in their units: [-bound, bound], or [low, high]. Entries are clipped to it and
        mapped to [-1, 1]. Predictions shrink towards its middle or a `center`, and are clipped to it. "private" finds a
        range for a tenth of the budget, from noisy counts of donors by their largest and their least outcome; about 1%
        of the donors are beyond it at either end.
    ridge : float or "auto", default "auto"
        The paper's lambda: lambda/2 is added to the diagonal of X'X, in mapped units; larger values shrink more. "auto"
        is the squared length of the longest row before the intervention: the number of periods, as in the paper [1]_,
        or less by `row_bound`. In either case eigenvalues of the released X'X plus the penalty are at least a floor set
        by the known noise (`noise_floor_`). At ``epsilon=inf`` a number has the same meaning, and "auto" is the number
        of periods in input units, which hardly shrinks outcomes far larger than 1. (No range is found for
        ``bound="private"`` there: it counts as 1.)
    mechanism : {"cross_section", "output", "objective"}, default "cross_section"
        "cross_section" releases moments, which serve any number of targets, and is far more accurate. The paper's two
        release weights of donors for the one target of the fit, then the prediction (Algorithms 2 and 3 [1]_, here with
        exact calibrations): "output" adds noise to the ridge weights, "objective" to their objective over the L1 ball.
    split : tuple of (epsilon_1, epsilon_2), optional
        For ``calibration="paper"``: the epsilons of the weights and of the donors' outcomes, which add up to at most
        `epsilon`; halves by default.
    row_bound : tuple of (pre, post), "private" or None, default "private"
        Largest L2 norms of a donor's mapped outcomes before and after the intervention (about `center`, if there is
        one), to which the noise is in proportion. A donor beyond either is scaled down in both parts by one factor, and
        so has less weight. "private" finds the median norm within the budget, from noisy counts of donors by norm: each
        of up to three such counts takes 1% of mu^2 (of epsilon if delta is 0), or more if donors are few. If these
        counts are too noisy, with None, and if weights are released, or moments repeatedly, norms are the largest that
        the range allows.
    n_components : int or "noise", optional
        Keep only the largest eigenvalues of X'X (robust synthetic control [2]_): this many, or with "noise" those above
        the noise. By default all.
    nonnegative : bool, default False
        Declares outcomes to be at least 0 (with a single `bound`). This lowers the noise; negative outcomes are
        clipped.
    center : float, array of shape (n_periods,), "auto", "target", "private" or None, default "auto"
        A path in input units. Donors are summed as differences from it, and predictions shrink towards it: the nearer
        donors are to it, the less noise is needed. A public path costs nothing, but must not use the target's outcomes
        after the intervention. "private" is the donors' mean path, released for up to a fifth of the budget. "auto"
        releases it too if `row_bound` is "private" and donors are many enough, and takes it if donors' norms about it
        are at most half of those about the middle of the range; else it is None, the middle. "target" sums donors about
        the target's own path, while predictions shrink towards the middle.
    basis : int or array of shape (n_pre, n_features), optional
        Outcomes before the intervention are projected onto the span of these public paths: orthonormal columns, or this
        many polynomials of lowest degree. Fewer paths have less noise and more bias. By default there is no projection.
    predictors : dict of str to (low, high) or (low, high, weight), optional
        Further columns of a donor to match, such as the share of smokers: public limits by name, to which they are
        clipped, and a weight of at most 1 (default), that of one outcome before the intervention. They are mapped to
        the range of the outcomes times the weight, and stand before the pre-period's outcomes in a donor's row.
        `row_bound` bounds both together, but each further column adds noise. Columns are taken from tables by name; in
        arrays they are the first ones. Targets have them too. In `fit_long` a unit's predictor is the mean of that
        column over its rows before the intervention.
    observation_rate : float, optional
        Declares that entries may be missing (NaN), completely at random, with this public probability of being
        observed: they are filled with the centre and moments are rescaled. By default missing entries are refused.
    placebo_share : float, optional
        Share of mu^2 (of epsilon if delta is 0), in (0, 1), for a last release: noisy counts of donors by the ratio of
        their prediction errors after and before the intervention. `placebo_ranks` needs it.
    adjacency, random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound", "paper"}, default "sound"
        "sound" has the noise that is proved to be enough. "paper" uses the printed algorithms and warns. For "output"
        that is Algorithm 2: private, but with 12 to 29 times the noise it needs at 10 to 100 donors. For "objective" it
        is Algorithm 3, which is **not private**.

    Attributes
    ----------
    coef_ : ndarray of shape (n_post, n_predictors + n_pre)
        Prediction of each later period from a target's predictors and earlier periods, all about `center_`. Predictors
        are in units of the outcomes here and in the next two.
    center_ : ndarray of shape (n_predictors + n_periods,)
        The path to shrink predictions towards, in input units: the middle of the range, or the path given by `center`.
    pre_coef_ : ndarray of shape (n_predictors + n_pre, n_predictors + n_pre)
        The same for predictors and earlier periods themselves.
    weights_ : ndarray of shape (n_donors,)
        Released weights of the donors, in the place of coefficients with "output" and "objective": in the order of the
        table, after `fit_long` in that of the donors' first rows.
    prediction_ : ndarray of shape (n_post,)
        With those: the prediction for the target of the fit.
    ridge_ : float
        The paper's lambda, as used, in mapped units.
    noise_floor_ : float
        Smallest eigenvalue that X'X plus its penalty may have; 0 without noise.
    n_components_ : int or None
        Number of eigenvalues kept; None for all.
    n_pre_, n_post_ : int
        Periods before and after the intervention.
    periods_ : ndarray of shape (n_periods,)
        Their labels; 0, 1, ... where there are none.
    target_ : ndarray of shape (n_periods,) or (n_pre,), or None
        The public target that was passed to the fit, predictors first.
    target_names_ : ndarray of shape (n_targets,) or None
        Their names, if they have any: `treated`, row labels of a frame, or the name of a series. Methods take a name
        in place of its target.
    bound_ : float or tuple of (low, high)
        The range found, if `bound` is "private".
    releases_, privacy_spent_
        As for every estimator.

    References
    ----------
    .. [1] Rho, S., Cummings, R., Misra, V. (2023). Differentially Private Synthetic Control. AISTATS. Section 4.2.
    .. [2] Amjad, M., Shah, D., Shen, D. (2018). Robust Synthetic Control. JMLR 19, Algorithm 1.
    .. [3] Fieller, E. C. (1954). Some problems in interval estimation. Journal of the Royal Statistical Society B 16.

    Examples
    --------
    >>> from dpfast import SyntheticControl
    >>> from dpfast.datasets import synthetic_control_panel
    >>> donors, target, signal = synthetic_control_panel(10_000, 10, seed=0)
    >>> model = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, n_pre=10)
    >>> bool(abs(model.predict(target[:10]) - signal[10:]).max() < 0.05)
    True
    >>> model.privacy_spent_
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    _: KW_ONLY
    bound: float | tuple[float, float] | Literal["private"] = 1.0
    ridge: float | Literal["auto"] = "auto"
    mechanism: Literal["cross_section", "output", "objective"] = "cross_section"
    split: tuple[float, float] | None = None
    row_bound: tuple[float, float] | Literal["private"] | None = "private"
    n_components: int | Literal["noise"] | None = None
    nonnegative: bool = False
    center: float | ArrayLike | Literal["auto", "target", "private"] | None = "auto"
    basis: int | ArrayLike | None = None
    predictors: Mapping[str, tuple[float, ...]] | None = None
    observation_rate: float | None = None
    placebo_share: float | None = None

    # A third of a path is more than most effects are.
    _WARNED_ERROR: ClassVar[float] = 0.35
    #: Whether `bound` was released in this fit rather than declared.
    _range_is_found: ClassVar[bool] = False

    @suppress_float_warnings
    def fit(
        self,
        donors: Any,
        n_pre: Any,
        target: ArrayLike | None = None,
        *,
        orientation: io.Orientation = "units_by_periods",
    ) -> Self:
        """Fit from a panel of donors.

        Parameters
        ----------
        donors : array or table of shape (n_donors, n_periods), or Partitions
            Outcomes: a row a donor, a column a period; a DataFrame, or an object with the Arrow C stream (of Polars,
            DuckDB, pyarrow). The columns of a table label the periods and are public: numbers, dates, months, text that
            differs in its numbers only, or an ordered category. Labels of rows are the donors' own and are not looked
            at. Of `dpfast.io.Partitions`, which "cross_section" takes, periods are numbered.
        n_pre : int or label
            Number of periods before the intervention. A whole number is read as this count if it leaves a period on
            either side. Anything else, such as a year or a date, is the label of the first period after it.
        target : array of shape (n_periods,) or (n_pre,), or several as rows; optional
            Public series, kept as the one that `effect`, `plot` and the like are about. Take it out of the donors: it
            is not looked for among them.
        orientation : {"units_by_periods", "periods_by_units"}, default "units_by_periods"
            Which axis of `donors` holds people. It is never inferred, for labels of people must not decide it: pass
            "periods_by_units" where rows are periods and columns donors.

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
            If the expected error of predictions is 35% of the signal or more. The warning comes before anything is
            spent if the number of donors is public and so small that this holds for donors around half the bound.
            Otherwise it depends on released values.
        """

        def read() -> tuple[io.Panel, ArrayLike | None, Any]:
            table = io.read_now(donors)
            self._check_order(table, "donors", orientation == "periods_by_units")
            panel = io.open_panel(table, n_pre, orientation=orientation, **self._panel_options)
            return panel, target, labels_of(target, 0)

        return self._fit(self._checked(), read)

    @suppress_float_warnings
    def fit_long(self, frame: Any, unit: str, time: str, value: str, treated: object, n_pre: Any) -> Self:
        """Fit from a panel with a row for each unit and period, the targets among the units.

        Parameters
        ----------
        frame : table
            A pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a
            Polars LazyFrame, or a path to Parquet files, read some rows at a time; rows in any order.
        unit, time, value : str
            The columns that hold the unit, the period and the outcome.
        treated : label, or list of labels
            The unit that is the target, or several, for one release. They are taken out of the donors: their records
            are public. Their periods are those of the panel, put in the order of their values (of their categories,
            where these are declared to be ordered); rows of donors in other periods are left out.
        n_pre : int or label
            Number of periods before the intervention, or the label of the first one after it: see `fit`.

        Returns
        -------
        self
            Fitted, with the treated units as `target_`.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for `fit`; also if a column is missing, a row has no unit, or a unit has a period of the target's twice
            or (unless `observation_rate` is declared) lacks one.
        """
        self._check_order(frame, "frame")
        if self._predictors and self.observation_rate is not None:
            raise ValueError(
                "observation_rate cannot go with predictors in fit_long: a mean of rows is missing less often than one"
            )

        def read() -> tuple[io.Panel, ArrayLike, Any]:
            options = self._panel_options
            panel, own = io.open_long_panel(io.read_now(frame), unit, time, value, treated, n_pre, **options)
            return panel, own, treated if own.ndim == 2 else [treated]

        return self._fit(self._checked(), read)

    @suppress_float_warnings
    def fit_repeatedly(
        self,
        donors: Any,
        n_pre: Any,
        repeats: int,
        *,
        epsilons: Sequence[float] | None = None,
        orientation: io.Orientation = "units_by_periods",
    ) -> tuple[CrossSectionBatch, ...]:
        """Release a panel's moments many times over, for experiments: it is summed once, and costs the noise to draw.

        Privacy: every repetition spends the whole epsilon and delta again, and all are on the ledger.

        Parameters
        ----------
        donors, n_pre, orientation
            As for `fit`.
        repeats : int
            Releases at each epsilon.
        epsilons : sequence of float, optional
            By default the estimator's own.

        Returns
        -------
        tuple of CrossSectionBatch
            One for each epsilon, with a ``predict`` of its own at any ridge. The estimator itself is not fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for every estimator.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> from dpfast.datasets import synthetic_control_panel
        >>> donors, target, signal = synthetic_control_panel(1_000, 10, seed=0)
        >>> model = SyntheticControl(1.0, 1e-6)
        >>> weak, strong = model.fit_repeatedly(donors, 10, repeats=50, epsilons=[1.0, 4.0])
        >>> weak.predict(target[:10]).shape
        (50, 3)
        >>> bool(weak.predict(target[:10]).std() > strong.predict(target[:10], ridge=20.0).std())
        True
        """
        privacy = self._checked()
        if self.mechanism != "cross_section":
            raise ValueError(
                f"mechanism must be 'cross_section' to release moments repeatedly, got {self.mechanism!r}: "
                "dpfast.synthetic_control.donor_weights repeats releases of weights"
            )
        if self._finds_range:
            raise ValueError("bound must be given by its values to release moments repeatedly, got 'private'")
        if isinstance(self.center, str) and not self._center_is("auto"):
            raise ValueError(f"center must be given by its values to release moments repeatedly, got {self.center!r}")
        if self.placebo_share is not None:
            raise ValueError("placebo_share must not be given to release moments repeatedly: donors are ranked once")
        repeats = check.positive_integer("repeats", repeats)
        each = [Privacy(one, self.delta, self.adjacency) for one in ([self.epsilon] if epsilons is None else epsilons)]
        if not each:
            raise ValueError("epsilons must hold at least one, got none")
        if any(math.isinf(one.epsilon) for one in each):
            raise ValueError("epsilons must be finite: without noise every repetition is the same")
        if repeats * len(each) * privacy.delta >= 1.0:
            raise ValueError("delta times the number of releases must be below 1")
        total = math.fsum(repeats * one.epsilon for one in each)
        mus = [self._mu(one) for one in each]
        mu = None if None in mus else compose_mu([one for one in mus if one is not None] * repeats)
        cost = Privacy(total, repeats * len(each) * privacy.delta, self.adjacency)
        with reserve(self, cost, mu=mu) as reservation:
            panel = io.open_panel(donors, n_pre, orientation=orientation, **self._panel_options)
            values, public = self._read(lambda: (panel, None, ()))
            every = [self._steps(one, public, repeatedly=True) for one in each]
            for steps in every:
                if expected := self._expected(steps, public):
                    self._warn_of_noise(expected.error, f"{expected.n} {expected.unit}", steps.privacy)
            rows = every[0].declared.rows
            sections = [CrossSection.calibrate(one, rows) for one in each]
            exact = Donors(values, self.n_threads).summed(sum_donors, rows=rows)
            source, name = noise.resolve_source(self.random_state, reservation), self._release_name
            n_donors, ridge, mapping = public.n_donors, rows.penalty(self.ridge), self._mapping
            batches: list[CrossSectionBatch] = []
            for one in sections:
                release = RepeatedMoments(one.joint, repeats).release(exact, one.bound_to_rows(source), name)
                batches.append(CrossSectionBatch(one, release, n_donors, ridge, mapping))
            releases = [batch.release for batch in batches]
            waiting = Waiting(releases, lambda: tuple(batches))
            reservation.commit(*releases)
        return waiting.complete()

    @classmethod
    def plan(
        cls,
        n: int,
        n_pre: int,
        n_periods: int,
        *,
        target: float = 0.1,
        panel: Any = None,
        spread: float = SPREAD,
        variation: float = VARIATION,
        decay: float = DECAY,
        **parameters: Any,
    ) -> Plan:
        """Say what error to expect, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of donors.
        n_pre, n_periods : int
            Periods before the intervention, and in all.
        target : float, default 0.1
            Error wanted, relative to the root mean square of the signal.
        panel : array or table of shape (n_units, n_periods), optional
            Public outcomes of the same kind: of another country, an earlier decade, a pilot. The plan is for donors
            like these: fits of them are simulated. Some times as many units as periods tell most. Without a panel it is
            for made-up donors, which the next three describe. Then it is a guess: on 20 kinds of panels 75% of errors
            were within 1.5 times the plan, and 92% between half of it and 2.2 times. With 300 other units 97% were
            within 1.5 times.
        spread : float, default 0.25
            Assumed mean square of the mapped outcomes (in [-1, 1]) about a public `center` or the middle of the range.
        variation : float, default 0.3
            Assumed size of donors' differences from their mean path, as a fraction of their size: the part of the
            outcomes that remains if the mean path is the centre.
        decay : float, default 4.0
            Assumed power by which the squares of these differences fall over directions, but for a twentieth that is
            noise: 2 as of random walks, 4 if few common paths make up most. inf if donors differ in size only, without
            noise.
        **parameters
            The estimator's own: epsilon, delta, bound, ...

        Returns
        -------
        Plan
            Expected error (from noise and from shrinkage) and the number of donors needed.

        Warns
        -----
        UtilityWarning
            If the expected error is 35% of the signal or more: a fit would warn of the same.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> SyntheticControl.plan(38, 19, 31, epsilon=1.0, delta=1e-6).expected_error > 0.7
        True
        >>> SyntheticControl.plan(10_000, 10, 13, epsilon=1.0, delta=1e-6).expected_error < 0.05
        True
        """
        n_pre = io.check_n_pre(n_pre, check.positive_integer("n_periods", n_periods), "the plan")
        n_post = n_periods - n_pre
        estimator, privacy = cls._planned_for(
            {"n": n}, {"target": target, "spread": spread, "variation": variation}, parameters
        )
        decay = check.positive_or_inf("decay", decay)
        public = _Public(len(estimator._predictors) + n_pre, np.arange(n_periods), None, n, len(estimator._predictors))
        alike = None if panel is None else estimator._alike(panel, n_pre, n_periods)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {}, SIGNAL)
        if estimator.mechanism == "cross_section":
            if estimator._center_is("target"):
                raise ValueError("center must be given by its values for a plan, got 'target'")
            is_public = privacy.adjacency == "replace_one"

            def steps(count: int) -> DonorSteps:
                return estimator._steps(privacy, public._replace(n_donors=count if is_public else None))

            with single_threaded_blas():
                alike = steps(n).guessed(spread, variation, decay) if alike is None else alike
                plan = planned_with_moments(steps, n, target, alike)
        else:
            if alike is not None:
                offset, half_width = estimator._range()
                spread = float(np.mean(np.clip((alike - offset) / half_width, -1.0, 1.0) ** 2))
                if spread == 0.0:
                    raise ValueError("panel must differ from the middle of the declared range")
            own = np.full(n_pre, math.sqrt(spread))
            plan = planned_with_weights(
                partial(estimator._algorithm, privacy, n_post=n_post, target=own), n, target, spread
            )
        estimator._warn_of_noise(plan.expected_error, f"{n} donors", privacy)
        return plan

    def _alike(self, panel: Any, n_pre: int, n_periods: int) -> FloatArray:
        """Read a public panel to plan with, in units of the outcomes."""
        values = io.open_panel(io.read_now(panel), n_pre, "panel", predictors=self._predictors.names).values
        if isinstance(values, io.Partitions):
            raise TypeError("panel must be an array or a table, not in parts: it is public")
        if values.shape[1] != len(self._predictors) + n_periods:
            raise ValueError(f"panel must have the plan's {n_periods} periods, and the predictors if there are any")
        return self._mapping(values, clips=True)

    @property
    def _is_gaussian(self) -> bool:
        # A range that is found before weights is paid for by a sum.
        return self.mechanism == "cross_section" or (self.mechanism == "output" and not self._finds_range)

    def _check_parameters(self, privacy: Privacy) -> None:
        self._range()
        check.nonnegative_or_auto("ridge", self.ridge)
        check.choice("mechanism", self.mechanism, ("cross_section", "output", "objective"))
        if self._predictors and self.basis is not None:
            raise ValueError("predictors cannot go with basis: its paths are of periods alone")
        check.boolean("nonnegative", self.nonnegative)
        if self.mechanism == "cross_section":
            if self.calibration == "paper":
                raise ValueError("calibration must be 'sound' with mechanism='cross_section': no paper prints another")
            self._check_absent("split")
        else:
            absent = "n_components", "basis", "predictors", "observation_rate", "placebo_share"
            self._check_absent(*absent, *(() if self._center_is("auto") else ("center",)))
            if self.nonnegative:
                raise ValueError(f"nonnegative must be False with mechanism={self.mechanism!r}: give bound=(0, high)")
            if privacy.adjacency != "replace_one":
                raise ValueError(f"adjacency must be 'replace_one' with mechanism={self.mechanism!r}: weights tell n")
            if self.ridge == 0.0 and (self.mechanism == "output" or self.calibration == "paper"):
                raise ValueError(f"ridge must be positive with mechanism={self.mechanism!r}, got {self.ridge!r}")
        if isinstance(self.row_bound, str):
            check.choice("row_bound", self.row_bound, ("private",))
        elif self.row_bound is not None:
            pair = check.positives("row_bound", check.pair("row_bound", self.row_bound, "(pre, post)"))
            if min(pair) < _LEAST_ROW_BOUND:
                raise ValueError(
                    f"row_bound must hold numbers of at least {_LEAST_ROW_BOUND:g}, got {self.row_bound!r}"
                )
        if isinstance(self.n_components, str):
            check.choice("n_components", self.n_components, ("noise",))
        else:
            check.optional(check.positive_integer, "n_components", self.n_components)
        check.optional(check.share, "placebo_share", self.placebo_share)
        if self.nonnegative and isinstance(self.bound, tuple | list):
            raise ValueError("nonnegative needs a single bound: a range (low, high) says itself that low is 0")
        if isinstance(self.center, str):
            check.choice("center", self.center, ("auto", "target", "private"))
        if self.observation_rate is not None:
            check.share("observation_rate", self.observation_rate, whole=True)
            if self.basis is not None:
                raise ValueError("observation_rate cannot go with basis: its coordinates mix periods, missing or not")

    def _with_placeholders(self) -> Self:
        return self._with({"bound": 1.0}) if self._finds_range else self

    def _checked(self) -> Privacy:
        if self._finds_range and not (isinstance(self.calibration, str) and self.calibration == "sound"):
            raise ValueError("calibration must be 'sound' with bound='private': the papers take the range as given")
        return super()._checked()

    def _prepared(self, privacy: Privacy, source: noise.BitSource, *data: Any) -> Prepared:
        if not self._finds_range:
            return super()._prepared(privacy, source, *data)
        donors, public = self._read(*data, is_mapped=False)
        # What the rest of the fit refuses must be refused before this is paid for.
        self._with_placeholders()._steps_or_none(privacy, public)
        mechanism, rest = self._range_noise(privacy)
        counts = Donors(donors).summed(range_counts, n_predictors=public.n_predictors)
        release = mechanism.noise.release(counts, source, self._named("counts of donors by size"))
        low, high, is_certain = range_found(mechanism, release, public.n_donors, nonnegative=self.nonnegative)
        found = self._with({"bound": high if self.nonnegative else (low, high), "_range_is_found": True})
        # Issued after payment: a user who turns warnings into errors would learn it at no cost otherwise.
        caution = found._beyond_range(public) if is_certain else _GUESS
        return Prepared(found, rest, (release,), {"bound_": found.bound}, caution)

    def _check_absent(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must not be given with mechanism={self.mechanism!r}, which has none")

    def _lambda(self, n_pre: int) -> float:
        return float(n_pre) if isinstance(self.ridge, str) else float(self.ridge)

    def _center_is(self, name: str) -> bool:
        """Whether the centre is requested by this name: arrays are compared with none."""
        return isinstance(self.center, str) and self.center == name

    def _public_center(self, public: _Public) -> FloatArray:
        """Return the public centre in units of the outcomes; of predictors the middle of their limits, if not given."""
        n_periods = len(public.periods)
        if isinstance(self.center, str):
            if public.target is None or public.target.shape != (public.n_columns,):
                raise ValueError("center='target' needs one target with all its periods")
            return self._mapping(public.target)
        path = redact_errors(lambda: np.asarray(self.center), "center must be a number or a path of numbers")
        if path.dtype.kind not in "iuf" or path.shape not in ((), (n_periods,)) or not np.all(np.isfinite(path)):
            raise ValueError(f"center must be a finite number or hold one for each of the {n_periods} periods")
        known = self._predictors
        middles = self._mapping(known.low / 2.0 + known.high / 2.0)
        return np.concatenate([middles, np.broadcast_to(path, n_periods).astype(np.float64)])

    def _steps_or_none(self, privacy: Privacy, public: _Public) -> DonorSteps | None:
        """Return what is released of donors, or None for weights; ValueError if the public numbers do not fit."""
        if self.mechanism == "cross_section":
            return self._steps(privacy, public)
        if public.target is None or public.target.ndim != 1:
            raise ValueError(
                f"target must be one series with mechanism={self.mechanism!r}: a second target's weights are a "
                "release of their own, with a budget of their own. mechanism='cross_section' serves any number"
            )
        return None

    def _steps(self, privacy: Privacy, public: _Public, *, repeatedly: bool = False) -> DonorSteps:
        """Calibrate all that is released of donors, from public numbers alone."""
        basis = orthonormal_basis(self.basis, public.n_pre)
        options: dict[str, Any] = {"nonnegative": self.nonnegative, "observation_rate": self.observation_rate}
        options |= {"basis": basis, "n_predictors": public.n_predictors}
        rows = DonorRows(*self._range(), public.n_pre, public.n_post, **options)
        bound = None if repeatedly and isinstance(self.row_bound, str) else self.row_bound
        center: FloatArray | Literal["private", "auto"] | None = None
        if isinstance(self.center, str) and not self._center_is("target"):
            center = "private" if self._center_is("private") else "auto" if isinstance(bound, str) else None
        elif self.center is not None:
            center = np.clip((self._public_center(public) - rows.offset) / rows.half_width, rows.least, 1.0)
        # Predictions must not shrink towards the target's later outcomes: its effect would shrink.
        restored = self._center_is("target")
        ridge = self.ridge if isinstance(self.ridge, str) else float(self.ridge)
        keep, share = self.n_components, self.placebo_share
        return DonorSteps(privacy, rows, center, bound, public.n_donors, restored, ridge, keep, share)

    def _algorithm(self, privacy: Privacy, n_donors: int, n_post: int, target: FloatArray) -> DonorMechanism:
        """Calibrate "output" or "objective" from public numbers; the target is in mapped units."""
        row_bound = self.row_bound if isinstance(self.row_bound, tuple | list) else (None, None)
        bounds, ridge = PanelBounds.of(n_donors, n_post, target, row_bound), self._lambda(len(target))
        chosen: Literal["output", "objective"] = "output" if self.mechanism == "output" else "objective"
        return algorithm(chosen, self.calibration, privacy, bounds, ridge, split=self.split)

    @property
    def _release_name(self) -> str:
        # Of weights a fit names its release itself.
        return self._named("moments of donors before and across the intervention")

    def _named(self, what: str) -> str:
        return f"{type(self).__name__}: {what}"

    @property
    def _panel_options(self) -> dict[str, Any]:
        """Names of predictors, and whether panels may lack entries, and donors."""
        public = self.adjacency == "replace_one" or math.isinf(self.epsilon)
        lacks = {"may_miss": self.observation_rate is not None, "may_be_empty": not public}
        return {"predictors": self._predictors.names} | lacks

    def _read(self, read: _Read, *, is_mapped: bool = True) -> tuple[Any, _Public]:
        """Read a panel: donors in input units, an array or partitions, and its public facts.

        Predictors are mapped to the units of the outcomes, once the range is known.
        """
        panel, target, targets = read()
        n_periods = panel.n_periods
        if isinstance(panel.values, io.Partitions) and (self.mechanism != "cross_section" or math.isinf(self.epsilon)):
            raise TypeError(
                "donors in parts need mechanism='cross_section' and a finite epsilon: moments are summed, all else "
                "needs donors in memory"
            )
        periods = np.arange(n_periods) if panel.periods is None else io.period_labels(panel.periods)
        lengths = {"n_pre": panel.n_pre, "all": n_periods}
        names = self._predictors.names
        series = None if target is None else io.target_rows(target, lengths, periods=periods, predictors=names)
        n_donors = io.sum_over(panel.values, len) if self.adjacency == "replace_one" else None
        if n_donors == 0:
            raise ValueError("donors must have at least one unit, got none")
        labels = io.period_labels(targets) if len(targets) else None
        public = _Public(len(names) + panel.n_pre, periods, series, n_donors, len(names), labels)
        if not names or not is_mapped:
            return panel.values, public
        mapping = self._mapping
        return (mapping if math.isinf(self.epsilon) else mapping.of_donors)(panel.values), public

    def _sum(self, privacy: Privacy, source: noise.BitSource, read: _Read) -> Summed:
        donors, public = self._read(read)
        if not self._range_is_found and (caution := self._beyond_range(public)):
            warn(caution, UtilityWarning)
        steps = self._steps_or_none(privacy, public)
        if steps is not None:
            return Summed(steps, Donors(donors, self.n_threads), public, self._expected(steps, public))
        assert public.target is not None
        offset, half_width = self._range()
        own = (public.target[: public.n_pre] - offset) / half_width
        chosen = self._algorithm(privacy, len(donors), public.n_post, own)
        panel = BoundedPanel.of(donors, own, chosen.bounds, offset, half_width)
        mechanism = Named("weights of donors and the prediction made with them", chosen)
        return Summed(mechanism, panel, public, Expected(error_of_weights(chosen), len(donors), "donors"))

    def _beyond_range(self, public: _Public) -> str:
        """Say that the target is beyond the range, if it is: whether donors keep to it is private."""
        if public.target is None:
            return ""
        offset, half_width = self._range()
        outcomes = public.target[..., public.n_predictors : public.n_pre]
        is_beyond = np.mean(np.abs(outcomes - offset) > half_width) > 0.5
        return _BEYOND if is_beyond else ""

    def _expected(self, steps: DonorSteps, public: _Public) -> Expected | None:
        """Return the error to expect: none where the number of donors is private."""
        if public.n_donors is None:
            return None
        return Expected(usual_error(steps), public.n_donors, "donors")

    def _solve(self, mechanism: Any, found: Any, public: _Public) -> Fitted:
        known = public.attributes | {"_n_donors": public.n_donors}
        if self.mechanism == "cross_section":
            return Fitted(known | self._predicting(found), found.error)
        return Fitted(known | self._weighing(found, mechanism.single.ridge))

    def _weighing(self, release: Release, ridge: float) -> dict[str, Any]:
        """Return the attributes of released weights."""
        offset, half_width = self._range()
        predicted, limits = offset + half_width * prediction(release), (offset - half_width, offset + half_width)
        found: dict[str, Any] = {"weights_": np.array(release.values["weights"]), "prediction_": predicted}
        return found | {"ridge_": ridge, "noise_floor_": 0.0, "n_components_": None, "_limits": limits}

    def _predicting(self, solution: Solution) -> dict[str, Any]:
        """Return the attributes of released moments."""
        offset, half_width = self._range()
        return {
            "coef_": solution.coef,
            "pre_coef_": solution.pre_coef,
            "ridge_": solution.ridge,
            "noise_floor_": solution.floor,
            "n_components_": solution.n_components,
            "center_": offset + half_width * solution.rows.path,
            "_limits": (offset + half_width * solution.rows.least, offset + half_width),
        }

    def _fit_without_noise(self, read: _Read) -> Solved:
        """Fit the textbook estimate of the raw data.

        A ridge is in mapped units, as with noise, and shrinks towards the same path. The one of "auto" is in input
        units, towards 0 without a centre, or the range's middle if entries are missing.
        """
        donors, public = self._read(read)
        basis, (offset, half_width) = orthonormal_basis(self.basis, public.n_pre), self._range()
        is_auto = isinstance(self.ridge, str)
        ridge = self._lambda(public.n_pre) * (1.0 if is_auto else half_width**2)
        keep = None if isinstance(self.n_components, str) else self.n_components
        about: float | FloatArray = 0.0 if is_auto and not np.any(np.isnan(donors)) else offset
        if self._center_is("private"):
            about = about + np.nanmean(donors - about, axis=0)
        elif self.center is not None and not isinstance(self.center, str):
            about = self._public_center(public)
        center, solution = textbook(donors, about, public.n_pre, basis, ridge, keep, self.observation_rate)
        facts = {"ridge_": ridge / half_width**2, "noise_floor_": 0.0, "n_components_": keep, "center_": center}
        release = self._exact_release({"coef": solution["coef_"], "center": center})
        return Solved((release,), public.attributes | facts | solution | {"_limits": None, "_n_donors": None})

    def _check_order(self, table: Any, name: str, periods_are_rows: bool = False) -> None:
        """Refuse a query if the order of its rows would influence the release."""
        if io.is_unordered(table) and (periods_are_rows or self.mechanism != "cross_section"):
            raise TypeError(
                f"{name} is a query, whose rows come in no fixed order: collect it, for "
                + ("they are periods" if periods_are_rows else f"mechanism={self.mechanism!r} gives weights in theirs")
            )

    @property
    def _released(self) -> Solution:
        """Estimates from the releases of donors."""
        public = _Public(self._n_before, self.periods_, self.target_, self._n_donors, len(self._predictors))
        return self._steps(self._privacy_within_range, public).solve(self._releases_within_range)

    def _fitted_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self._is_for_one_target:
            yield from (("prediction_", (self.n_post_,)), ("weights_", (self._n_donors,)))
        else:
            before = self._n_before
            yield from (("coef_", (self.n_post_, before)), ("pre_coef_", (before, before)))
            yield "center_", (before + self.n_post_,)

    def _check_fitted(self) -> None:
        if self.periods_.shape != (self.n_pre_ + self.n_post_,):
            raise ValueError("periods_ must have a label for each period")
        for name in ("ridge_", "noise_floor_"):
            check.nonnegative(name, getattr(self, name))
        if self._limits is not None:
            check.limits("_limits", self._limits)
        if self._finds_range and not math.isinf(self.privacy_spent_.epsilon):
            self._range()
