"""What is said of a target once its counterfactual can be predicted: tables, pictures, words. Public arithmetic."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpfast import io, plotting
from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.synthetic_control.effects import effect_table
from dpfast.synthetic_control.effects import summary as effect_summary
from dpfast.synthetic_control.parameters import DeclaredParameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class TargetReports(DeclaredParameters):
    """Effect tables, plots and summaries of an estimator that predicts targets from their earlier periods."""

    n_pre_: int
    n_post_: int
    periods_: NDArray[Any]
    target_: FloatArray | None
    ridge_: float
    releases_: tuple[Release, ...]

    @abstractmethod
    def predict(self, target_pre: ArrayLike) -> FloatArray:
        """Predict later periods from earlier ones."""

    @abstractmethod
    def interval(self, target_pre: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Limits for the prediction."""

    @abstractmethod
    def _has_interval(self) -> bool:
        """Whether `interval` is offered."""

    @abstractmethod
    def _earlier(self, pre: FloatArray) -> FloatArray:
        """Return what the synthetic control is in the earlier periods, NaN where that was not released."""

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
            See `dpfast.synthetic_control.effects.effect_table`.
        """
        rows = self._whole(target)
        pre, observed = rows[..., : self.n_pre_], rows[..., self.n_pre_ :]
        limits = {}
        if level is not None:
            low, high = self.interval(pre, level)
            limits = {"low": observed - high, "high": observed - low}
        frame: Any = target
        named = frame.iloc[:, self.n_pre_ :] if observed.ndim == 2 and hasattr(frame, "iloc") else observed
        return effect_table(named, self.predict(pre), index=self._index()[self.n_pre_ :], **limits)

    def plot(self, target: ArrayLike | None = None, *, level: float = 0.9) -> Figure:
        """Draw a target and its synthetic control, with the limits of `interval` as a band.

        Parameters
        ----------
        target : array of shape (n_periods,), optional
            By default the target of the fit.
        level : float, default 0.9
            Nominal coverage of the band, which is about privacy noise alone.

        Returns
        -------
        matplotlib.figure.Figure
        """
        observed, fitted, low, high = self._path(target, level)
        return plotting.synthetic_control_paths(self._index(), self.n_pre_, observed, fitted, low, high)

    def plot_gap(self, target: ArrayLike | None = None, *, level: float = 0.9) -> Figure:
        """Draw a target less its synthetic control, with the limits of `interval` as a band.

        Parameters
        ----------
        target, level
            As for `plot`.

        Returns
        -------
        matplotlib.figure.Figure
        """
        observed, fitted, low, high = self._path(target, level)
        post = observed[self.n_pre_ :]
        gap = observed - fitted
        band = (None, None) if low is None or high is None else (post - high, post - low)
        return plotting.synthetic_control_gaps(self._index(), self.n_pre_, gap, *band)

    def summary(self, target: ArrayLike | None = None, *, level: float = 0.9) -> str:
        """Say in words what was estimated, at what privacy, and what the limits do not cover.

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
        facts = [
            f"Synthetic control by {self.mechanism!r}: {self.n_pre_} periods before the intervention, {self.n_post_} "
            f"after it; ridge lambda = {self.ridge_:.4g}.",
            f"Guarantee for every donor: {self.releases_[0].guarantee}. The target's own record is not protected.",
        ]
        return "\n".join([*facts, effect_summary(table, offered)])

    def _target(self, target: ArrayLike | None, lengths: dict[str, int]) -> FloatArray:
        check_is_fitted(self)
        series = self.target_ if target is None else target
        if series is None:
            raise ValueError("target must be given: none was passed to the fit")
        return io.target_rows(series, lengths)

    def _whole(self, target: ArrayLike | None) -> FloatArray:
        check_is_fitted(self)
        return self._target(target, {"all": self.n_pre_ + self.n_post_})

    def _path(
        self, target: ArrayLike | None, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None]:
        """Return a target, its synthetic control, and the limits of the later periods where they are offered.

        Earlier periods of it are there where moments were released; their place is NaN otherwise.
        """
        observed = self._whole(target)
        if observed.ndim != 1:
            raise ValueError(f"target must be one series to be drawn, got shape {observed.shape}")
        pre = observed[: self.n_pre_]
        fitted = np.concatenate([self._earlier(pre), self.predict(pre)])
        return observed, fitted, *(self.interval(pre, level) if self._has_interval() else (None, None))

    def _index(self) -> Any:
        import pandas as pd

        return pd.Index(self.periods_)
