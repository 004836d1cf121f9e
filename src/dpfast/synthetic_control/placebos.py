"""Placebo tests in time and among donors, computed from released moments and counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, plotting
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.solvers.damped import damped_solve
from dpfast.solvers.fieller import NoisyRatio
from dpfast.synthetic_control.reports import TargetReports, effect_table
from dpfast.synthetic_control.steps import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Noise in a p-value that is shown, at most: in all, or as a part of it. With more, small ones would be chance.
_MOST_NOISE, _MOST_OF_VALUE = 0.025, 1.0 / 3.0


class Placebos(TargetReports):
    """Placebo tests of an estimator that releases donors' moments, and counts of their errors."""

    basis: int | ArrayLike | None
    placebo_share: float | None

    @property
    @abstractmethod
    def _is_for_one_target(self) -> bool:
        """Whether weights were released, and no moments."""

    @property
    @abstractmethod
    def _released(self) -> Solution:
        """Estimates from the releases of donors."""

    @abstractmethod
    def _predicted(self, pre: FloatArray, coef: FloatArray, periods: slice) -> FloatArray:
        """Predict some periods from the first ones of targets."""

    def placebo(self, n_pre: int, target: ArrayLike | None = None) -> DataFrame:
        """Tabulate the effect of a placebo: an earlier intervention that did not happen.

        The moments of the periods before the intervention include those of any shorter history, so this costs no
        further privacy. Effects far from 0 are evidence against the fit, or are due to noise. A donor in the target's
        place is not offered: its record is private.

        Parameters
        ----------
        n_pre : int
            Number of periods before the placebo, fewer than before the intervention.
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
        rows = self._target(target, {"n_pre": self.n_pre_, "all": self.n_pre_ + self.n_post_})[..., : self._n_before]
        cut = io.check_n_pre(n_pre, self.n_pre_, "the fit before the intervention")
        if math.isinf(self.privacy_spent_.epsilon):
            raise ValueError("placebo needs released moments; at epsilon=inf fit again with the earlier n_pre")
        xx, known = self._released.xx, cut + self._n_before - self.n_pre_
        keep = None if self.n_components_ is None else min(self.n_components_, known)
        coef = damped_solve(xx[:known, :known], xx[:known, known:], self.ridge_ / 2.0, self.noise_floor_, keep)
        predicted = self._predicted(rows[..., :known], coef.T, slice(known, self._n_before))
        return effect_table(rows[..., known:], predicted, index=self._index()[cut : self.n_pre_])

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
        ratios, n = released.errors_of_series.ratios(self._mapping(rows)), released.number
        beyond, deviation = released.errors.tail(ratios)
        least, most = np.full_like(beyond, 1.0 / (1.0 + n)), np.ones_like(beyond)
        share = NoisyRatio(
            1.0 + beyond,
            np.full_like(beyond, 1.0 + n),
            np.broadcast_to(deviation, beyond.shape) ** 2,
            np.full_like(beyond, released.number_deviation**2),
            np.zeros_like(beyond),
        )
        low, high = share.limits(float(ndtri(0.5 + level / 2.0)), least, most)
        values = np.clip((1.0 + beyond) / (1.0 + n), least, most)
        values[deviation / (1.0 + n) > np.maximum(_MOST_NOISE, _MOST_OF_VALUE * values)] = np.nan
        shares = {"p_value": values, "low": low, "high": high}
        names = target.index if isinstance(target, pd.DataFrame) else range(len(rows))
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
            raise ValueError(f"target must be one series to be drawn, got {len(table)}")
        ratio, *share = (float(value) for value in table.iloc[0])
        errors = self._released.errors
        assert errors is not None
        options: dict[str, Any] = {"level": level, "ax": ax, "title": title, "label": label, "unit": unit}
        return plotting.placebo_distribution(
            errors.ends, errors.counts, ratio, (share[0], share[1], share[2]), deviation=errors.deviation, **options
        )
