"""Private synthetic control: what would have happened to a target, from donors whose records stay private.

The default mechanism releases moments of donors as rows (synthetic_control/moments.py); predictions for any number of
public targets, effects, intervals and placebos are computed from that one release. The paper's own algorithms release
the donors' weights for one target (synthetic_control/weights.py).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.estimator.persistence import Persistent
from dpfast.estimator.plan import Plan
from dpfast.estimator.spending import reserve
from dpfast.ledger import Ledger, Release
from dpfast.privacy import Adjacency, Calibration, Privacy, UtilityWarning
from dpfast.solvers.damped import damped_solve
from dpfast.synthetic_control.effects import effect_table
from dpfast.synthetic_control.mechanism import (
    CrossSection,
    CrossSectionBatch,
    prediction_interval,
)
from dpfast.synthetic_control.moment_fits import MomentFits
from dpfast.synthetic_control.parameters import RELATIVE_TO
from dpfast.synthetic_control.reports import TargetReports
from dpfast.synthetic_control.weight_fits import WeightFits

if TYPE_CHECKING:
    from pandas import DataFrame


# Mean square of mapped outcomes that is assumed where nothing is known: as of outcomes around half their bound.
_SPREAD = 0.25
# A relative error from which an answer is mostly noise.
_USELESS = 0.5


class SyntheticControl(MomentFits, WeightFits, TargetReports, Persistent):
    """Differentially private synthetic control.

    Privacy: a person is a donor, with all its periods. One joint release of the donors' moments before the
    intervention and across it is (epsilon, delta)-differentially private under `adjacency`; every prediction is
    computed from it. ("output" and "objective" release the donors' weights for the target of the fit, and the
    prediction made with them, under replace-one.) Targets are public: their own records are not protected.

    Parameters
    ----------
    epsilon : float
        Privacy of the whole fit; ``inf`` for the textbook estimate from raw data, without noise, clipping or mapping.
    delta : float, default 0.0
        0 for pure differential privacy, which asks for much more noise.
    bound : float or tuple of (low, high), default 1.0
        Declared range of the outcomes: [-bound, bound], or [low, high]. Entries are clipped to it and mapped to
        [-1, 1]; predictions shrink towards its middle.
    ridge : float or "auto", default "auto"
        The paper's lambda: lambda/2 is added to X'X, in mapped units. "auto" is its number of periods before the
        intervention [1]_. In either case no eigenvalue of the released X'X counts for less than the floor that the
        known noise sets (`noise_floor_`).
    mechanism : {"cross_section", "output", "objective"}, default "cross_section"
        "cross_section" releases moments, which serve any number of targets, and is far more accurate. "output" adds
        noise to the ridge weights of one target, "objective" to their objective over the L1 ball ([1]_, Algorithms 2
        and 3, here with exact calibrations); both then release the prediction.
    split : tuple of (epsilon_1, epsilon_2), optional
        For ``calibration="paper"``: the shares of weights and donors; halves by default.
    curvature, gradient : float, optional
        For "objective": public constants c (the printed algorithm's too) and L that every panel that could have been
        keeps to, where they are below the exact worst cases for the declared range. Taken on trust.
    row_bound : tuple of (pre, post), optional
        L2 norms of a donor's mapped outcomes before and after the intervention (about `center`, if there is one);
        longer ones are scaled onto them. By default as long as the range allows: sqrt(n_pre), sqrt(n_post).
    n_components : int or "noise", optional
        Keep only the largest eigenvalues of X'X (robust synthetic control [2]_): so many, or those beyond the noise.
    nonnegative : bool, default False
        Declares that outcomes are at least 0 (with a single `bound`), which lowers the noise; others are clipped.
    center : float, array of shape (n_periods,) or "target", optional
        A public path in input units about which donors are summed, where that lowers the noise: the nearer they are
        declared to be to it (by `row_bound`), the less is needed. The estimate stays that about the middle of the
        range.
    basis : int or array of shape (n_pre, n_features), optional
        Public paths, in whose span the outcomes before the intervention are looked at: orthonormal columns, or so many
        polynomials of lowest degree. Fewer features bring less noise.
    observation_rate : float, optional
        Declares that entries may be missing (NaN), completely at random, with this public probability of being
        observed: they are filled with the centre and moments are rescaled. By default missing entries are refused.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of donors is public (one donor replaced) or private (one donor more or less).
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed Algorithm 2 for "output", which is private but has 12 to 29 times the noise it takes at
        10 to 100 donors, and the printed Algorithm 3 for "objective", which is **not private**; there is a warning.
    random_state : int, optional
        Seed for a reproducible run, which voids the guarantee, for anybody. A ledger takes each seed once.
    n_threads : int, optional
        Threads that sum rows; the results do not depend on it.
    ledger : Ledger, optional
        The budget to pay from; shared by clones and copies.

    Attributes
    ----------
    coef_ : ndarray of shape (n_post, n_pre)
        Prediction of each later period from a target's earlier ones, in mapped units.
    pre_coef_ : ndarray of shape (n_pre, n_pre)
        The same for the earlier periods themselves.
    weights_ : ndarray of shape (n_donors,)
        Released weights of the donors, in the place of coefficients with "output" and "objective": in the order of the
        table, after `fit_long` in that of the donors' first rows.
    prediction_ : ndarray of shape (n_post,)
        With those: the prediction for the target of the fit.
    ridge_ : float
        The paper's lambda, as used.
    noise_floor_ : float
        Least that an eigenvalue of X'X with its penalty counts for; 0 without noise.
    n_components_ : int or None
        Number of eigenvalues kept; None for all.
    n_pre_, n_post_ : int
        Periods before and after the intervention.
    periods_ : ndarray of shape (n_periods,)
        Their labels; 0, 1, ... where there are none.
    target_ : ndarray of shape (n_periods,) or (n_pre,), or None
        The public target that was passed to the fit.
    releases_ : tuple of Release
        All that left the data.
    privacy_spent_ : Privacy
        What it cost.

    References
    ----------
    .. [1] Rho, S., Cummings, R., Misra, V. (2023). Differentially Private Synthetic Control. AISTATS. Section 4.2.
    .. [2] Amjad, M., Shah, D., Shen, D. (2018). Robust Synthetic Control. JMLR 19, Algorithm 1.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        bound: float | tuple[float, float] = 1.0,
        ridge: float | Literal["auto"] = "auto",
        mechanism: Literal["cross_section", "output", "objective"] = "cross_section",
        split: tuple[float, float] | None = None,
        curvature: float | None = None,
        gradient: float | None = None,
        row_bound: tuple[float, float] | None = None,
        n_components: int | Literal["noise"] | None = None,
        nonnegative: bool = False,
        center: float | ArrayLike | Literal["target"] | None = None,
        basis: int | ArrayLike | None = None,
        observation_rate: float | None = None,
        adjacency: Adjacency = "replace_one",
        calibration: Calibration = "sound",
        random_state: int | None = None,
        n_threads: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bound = bound
        self.ridge = ridge
        self.mechanism = mechanism
        self.split = split
        self.curvature = curvature
        self.gradient = gradient
        self.row_bound = row_bound
        self.n_components = n_components
        self.nonnegative = nonnegative
        self.center = center
        self.basis = basis
        self.observation_rate = observation_rate
        self.adjacency = adjacency
        self.calibration = calibration
        self.random_state = random_state
        self.n_threads = n_threads
        self.ledger = ledger

    @quiet
    def fit(
        self,
        donors: Any,
        n_pre: int,
        target: ArrayLike | None = None,
        *,
        orientation: io.Orientation = "units_by_periods",
    ) -> Self:
        """Fit from a panel of donors.

        Parameters
        ----------
        donors : array or DataFrame of shape (n_donors, n_periods)
            Outcomes: a row a donor, a column a period. The columns of a frame label the periods and are public; its
            rows' labels are the donors' own and are not looked at.
        n_pre : int
            Number of periods before the intervention.
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
        ValueError, TypeError
            If a parameter, a label of a period, a shape or an entry is not accepted. Nothing is spent then, and the
            estimator is left as it was.
        BudgetExceeded
            If the ledger has too little left.

        Warns
        -----
        UtilityWarning
            Where the number of donors is public and says that the answer will be mostly noise; before anything is
            spent.
        """
        self._checked()
        panel = io.open_panel(donors, n_pre, orientation=orientation, **self._may_lack)
        return self._fit_panel(panel, n_pre, target)

    @quiet
    def fit_long(self, frame: Any, unit: str, time: str, value: str, treated: object, n_pre: int) -> Self:
        """Fit from a panel with a row for each unit and period, the target among the units.

        Parameters
        ----------
        frame : DataFrame
            In any order of rows.
        unit, time, value : str
            The columns that hold the unit, the period and the outcome.
        treated : label
            The unit that is the target. It is taken out of the donors: its own record is public. Its periods are
            those of the panel, put in the order of their values (of their categories, where these are declared to be
            ordered); rows of donors in other periods are left out.
        n_pre : int
            Number of periods before the intervention.

        Returns
        -------
        self
            Fitted, with the treated unit as `target_`.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for `fit`; also if a column is missing, a row has no unit, or a unit has a period of the target's twice
            or (unless `observation_rate` is declared) lacks one.
        """
        self._checked()
        panel, target = io.open_long_panel(frame, unit, time, value, treated, n_pre, **self._may_lack)
        return self._fit_panel(panel, n_pre, target)

    @quiet
    def fit_repeatedly(
        self,
        donors: Any,
        n_pre: int,
        repeats: int,
        *,
        epsilons: Sequence[float] | None = None,
        orientation: io.Orientation = "units_by_periods",
    ) -> tuple[CrossSectionBatch, ...]:
        """Release a panel's moments many times over, for experiments: it is summed once, and costs the noise to draw.

        Privacy: every repetition spends the whole epsilon and delta again, and all are on the ledger.

        Parameters
        ----------
        donors, n_pre
            As for `fit`.
        repeats : int
            Releases at each epsilon.
        epsilons : sequence of float, optional
            By default the estimator's own.
        orientation
            As for `fit`.

        Returns
        -------
        tuple of CrossSectionBatch
            One for each epsilon, with a ``predict`` of its own at any ridge. The estimator itself is not fitted.

        Raises
        ------
        ValueError, TypeError, BudgetExceeded
            As for `fit`.

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
        repeats = check.positive_integer("repeats", repeats)
        targets = [
            Privacy(one, self.delta, self.adjacency) for one in ([self.epsilon] if epsilons is None else epsilons)
        ]
        if not targets:
            raise ValueError("epsilons must hold at least one, got none")
        if any(math.isinf(one.epsilon) for one in targets):
            raise ValueError("epsilons must be finite: without noise every repetition is the same")
        if repeats * len(targets) * privacy.delta >= 1.0:
            raise ValueError("delta times the number of releases must be below 1")
        panel = io.open_panel(donors, n_pre, orientation=orientation, **self._may_lack)
        n_periods = panel.values.shape[1]
        center = self._center_path(n_periods, None)
        first = self._section(n_pre, n_periods - n_pre, targets[0], center)
        sections = [first, *(CrossSection.of(first.rows, one) for one in targets[1:])]
        for section, one in zip(sections, targets, strict=True):
            error = section.expected_error(len(panel.values), self._lambda(n_pre), _SPREAD)
            self._warn_of_noise(error, len(panel.values), one)
        total = math.fsum(repeats * one.epsilon for one in targets)
        cost = Privacy(total, repeats * len(targets) * privacy.delta, self.adjacency)
        with reserve(self, cost) as held:
            exact = first.rows.sums(panel.values, self.n_threads)
            source = self._source(first.rows)
            releases = [
                section.calibration.release_repeatedly(exact, source, self._release_name, repeats)
                for section in sections
            ]
            held.commit(*releases)
        n_donors = exact.n_rows if self._count_is_public(first) else None
        return tuple(
            CrossSectionBatch(section, release, n_donors, self._lambda(n_pre))
            for section, release in zip(sections, releases, strict=True)
        )

    def predict(self, target_pre: ArrayLike) -> FloatArray:
        """Predict what targets would have done without the intervention.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors.

        Returns
        -------
        ndarray of shape (n_post,) or (n_targets, n_post)
            In the same units. It costs no further privacy, for however many targets; with "output" and "objective"
            there is one for the target of the fit alone.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import SyntheticControl
        >>> model = SyntheticControl(float("inf"), ridge=0.0).fit([[1.0, 2.0, 3.0], [2.0, 2.0, 4.0]], n_pre=2)
        >>> model.predict([1.5, 2.0]).round(6)
        array([3.5])
        """
        check_is_fitted(self)
        pre = io.target_rows(target_pre, {"n_pre": self.n_pre_}, "target_pre")
        if hasattr(self, "prediction_"):
            return self._released_prediction(pre)
        return self._unscaled(self._scaled(pre) @ self.coef_.T)

    def interval(self, target_pre: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Limits for the prediction that the same ridge gives without privacy noise.

        They account for the known privacy noise alone. Not covered: chance in the outcomes, donors that do not follow
        the target, the shrinkage of the ridge.

        Where lambda/2 is below `noise_floor_`, the prediction without noise may rest on directions of the panel that
        are hidden in the noise. A target that visibly has a part there (more than chance, and 2% of its length, which
        may be noise of its own) gets wider limits, by the most that this part may add if what hides is no larger
        after the intervention than before. A weaker part is not seen, and not covered; at a ridge of twice that floor
        or more nothing hides.

        With "output" they cover at least `level`: how far the noise in the weights reaches depends on the donors'
        later outcomes, which are private and taken to be at the ends of the range. They are not offered for
        "objective", whose minimiser does not lie symmetrically about the one without noise.

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
        level = _level(level)
        pre = io.target_rows(target_pre, {"n_pre": self.n_pre_}, "target_pre")
        if math.isinf(self.privacy_spent_.epsilon):
            predicted = self.predict(pre)
            return predicted, predicted.copy()
        if hasattr(self, "prediction_"):
            return self._released_interval(pre, level)
        section = self._section(self.n_pre_, self.n_post_, self.privacy_spent_, self._center)
        low, high = prediction_interval(
            section,
            self.releases_[0].values,
            self._n_donors,
            np.atleast_2d(section.rows.features(self._scaled(pre))),
            ridge=self.ridge_,
            n_components=self.n_components_,
            level=level,
        )
        shape = (*pre.shape[:-1], self.n_post_)
        return self._unscaled(low.reshape(shape)), self._unscaled(high.reshape(shape))

    def placebo(self, n_pre: int, target: ArrayLike | None = None) -> DataFrame:
        """Tabulate the effect that would be found had the intervention come earlier, where there was none.

        The moments of the periods before the intervention hold those of any shorter history, so that this costs no
        further privacy. Effects far from 0 speak against the fit, or are the noise's. A donor in the target's place is
        not offered: its record is private.

        Parameters
        ----------
        n_pre : int
            Number of periods before the placebo, fewer than before the intervention.
        target : array of shape (n_periods,) or (n_pre_,), or several as rows; optional
            Public outcomes; by default the target of the fit.

        Returns
        -------
        pandas.DataFrame
            As from `effect`, for the periods from the placebo to the intervention.
        """
        check_is_fitted(self)
        if hasattr(self, "prediction_"):
            raise ValueError(f"placebo needs moments, which mechanism={self.mechanism!r} does not release")
        if self.basis is not None:
            raise ValueError("placebo needs the moments of single periods, which a basis has not: fit without one")
        rows = self._target(target, {"n_pre": self.n_pre_, "all": self.n_pre_ + self.n_post_})[..., : self.n_pre_]
        cut = io.check_n_pre(n_pre, self.n_pre_, "the fit before the intervention")
        xx = self._moments()[0]
        keep = None if self.n_components_ is None else min(self.n_components_, cut)
        coef = damped_solve(xx[:cut, :cut], xx[:cut, cut:], self.ridge_ / 2.0, self.noise_floor_, keep)
        predicted = self._unscaled(self._scaled(rows[..., :cut]) @ coef)
        return effect_table(rows[..., cut:], predicted, index=self._index()[cut : self.n_pre_])

    @classmethod
    def plan(
        cls, n: int, n_pre: int, n_periods: int, *, target: float = 0.1, spread: float = _SPREAD, **parameters: Any
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
        spread : float, default 0.25
            Assumed mean square of the mapped outcomes, which lie in [-1, 1]. Donors are taken to vary along one path,
            which the target shares; where they vary along more, more of them are needed.
        **parameters
            The estimator's own: epsilon, delta, bound, ...

        Returns
        -------
        Plan
            Expected error (from noise and from shrinking towards the middle of the range) and the number of donors
            needed.

        Examples
        --------
        >>> from dpfast import SyntheticControl
        >>> SyntheticControl.plan(38, 19, 31, epsilon=1.0, delta=1e-6).expected_error > 0.7
        True
        >>> SyntheticControl.plan(10_000, 10, 13, epsilon=1.0, delta=1e-6).expected_error < 0.05
        True
        """
        n = check.positive_integer("n", n)
        n_periods = check.positive_integer("n_periods", n_periods)
        n_pre = io.check_n_pre(n_pre, n_periods, "the plan")
        target, spread = check.positive("target", target), check.positive("spread", spread)
        estimator = cls(**parameters)
        privacy = estimator._checked()
        if math.isinf(privacy.epsilon):
            return replace(Plan.from_error(n, 0.0, target, {}), relative_to=RELATIVE_TO)
        if estimator.mechanism != "cross_section":
            return estimator._plan_weights(n, n_pre, n_periods - n_pre, target, spread, privacy)
        return estimator._plan_moments(n, n_pre, n_periods - n_pre, target, spread, privacy)

    def _fit_panel(self, panel: io.Panel, n_pre: int, target: ArrayLike | None) -> Self:
        privacy = self._checked()
        n_pre, n_periods = int(n_pre), panel.values.shape[1]
        series = None if target is None else io.target_rows(target, {"n_pre": n_pre, "all": n_periods})
        if math.isinf(privacy.epsilon):
            with reserve(self, privacy) as held:
                fitted = self._fit_without_noise(panel.values, n_pre, privacy)
                held.commit(*fitted["releases_"])
        elif self.mechanism != "cross_section":
            chosen, rows = self._bounded(panel.values, n_pre, series, privacy)
            self._warn_of_noise(chosen.expected_error / math.sqrt(_SPREAD), len(panel.values), privacy)
            with reserve(self, privacy) as held:
                fitted = self._fit_weights(rows, chosen, held)
        else:
            center = self._center_path(n_periods, series)
            section = self._section(n_pre, n_periods - n_pre, privacy, center)
            error = section.expected_error(len(panel.values), self._lambda(n_pre), _SPREAD)
            self._warn_of_noise(error, len(panel.values), privacy)
            with reserve(self, privacy) as held:
                fitted = self._fit_cross_section(panel.values, section, held)
        periods = np.arange(n_periods) if panel.periods is None else io.period_labels(panel.periods)
        shape = {"n_pre_": n_pre, "n_post_": n_periods - n_pre, "periods_": periods, "target_": series}
        return self._set_fitted(fitted | shape, ("coef_", "pre_coef_", "weights_", "prediction_"))

    def _has_interval(self) -> bool:
        check_is_fitted(self)
        return not hasattr(self, "prediction_") or self.mechanism == "output"

    def _check_loaded(self) -> None:
        self._checked()
        if not hasattr(self, "coef_") and not hasattr(self, "prediction_"):
            return
        shapes: dict[str, tuple[int | None, ...]]
        if hasattr(self, "prediction_"):
            shapes = {"prediction_": (self.n_post_,), "weights_": (self._n_donors,)}
        else:
            shapes = {"coef_": (self.n_post_, self.n_pre_), "pre_coef_": (self.n_pre_, self.n_pre_)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
                raise ValueError(f"{name} must be an array of float64 of shape {shape}")
        if self.periods_.shape != (self.n_pre_ + self.n_post_,):
            raise ValueError("periods_ must have a label for each period")
        for name in ("ridge_", "noise_floor_"):
            check.nonnegative(name, getattr(self, name))
        check.real("_offset", self._offset)
        check.positive("_half_width", self._half_width)
        if not isinstance(self.privacy_spent_, Privacy):
            raise ValueError("privacy_spent_ must be a guarantee")
        if not isinstance(self.releases_, tuple) or not all(isinstance(one, Release) for one in self.releases_):
            raise ValueError("releases_ must be a tuple of releases")

    @property
    def _may_lack(self) -> dict[str, Any]:
        """Say whether panels may lack entries, and donors."""
        public = self.adjacency == "replace_one" or math.isinf(self.epsilon)
        return {"may_miss": self.observation_rate is not None, "may_be_empty": not public}

    def _warn_of_noise(self, error: float, n_donors: int, privacy: Privacy) -> None:
        """Warn where public sizes say that noise will drown the answer; a private number of donors is not looked at."""
        if privacy.adjacency != "replace_one" or error < _USELESS:
            return
        share = 100.0 * min(error, 1.0)
        warnings.warn(
            f"with {n_donors} donors at {privacy}, the prediction is expected to be off by {share:.0f}% of the signal: "
            "mostly noise, and shrinkage against it. SyntheticControl.plan says how many donors are needed.",
            UtilityWarning,
            stacklevel=5,
        )

    def _earlier(self, pre: FloatArray) -> FloatArray:
        """Return the synthetic control of the earlier periods, which weights alone do not give."""
        if hasattr(self, "prediction_"):
            return np.full(self.n_pre_, np.nan)
        return self._unscaled(self.pre_coef_ @ self._scaled(pre))


def _level(level: object) -> float:
    number = check.real("level", level)
    if not 0.0 < number < 1.0:
        raise ValueError(f"level must lie in (0, 1), got {number!r}")
    return number
