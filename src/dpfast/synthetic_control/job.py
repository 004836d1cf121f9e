"""Batch jobs of synthetic control, from wide panels and long ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast.jobs.inputs import PanelInput
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.synthetic_control.estimator import SyntheticControl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

LEVEL = 0.9
# Of how many targets pictures are drawn.
_MOST_DRAWN = 6


class Control(JobType):
    """Moments of donors, for public targets."""

    JOB_TYPE = "synthetic_control"
    ESTIMATOR = SyntheticControl
    INPUT_TYPE = PanelInput()
    OVERRIDES = Overrides(examples={"bound": "[0.0, 5.0]"}, left_out=("predictors",))
    NOTE = (
        f"low and high are {LEVEL:.0%} limits for the privacy noise, around what the same method gives without it. "
        "They do not cover chance in the outcomes, donors that do not follow the target, or the shrinkage of the "
        "ridge. The targets' own records are public and not protected. The placebo is the effect that would be found "
        "had the intervention come as many periods earlier as there are after it, or half-way before it: where there "
        "was none, it should be near 0."
    )

    def tables(self, model: SyntheticControl, targets: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
        """Return the report on the targets of the fit, if any, and the coefficients or weights."""
        written: dict[str, Mapping[str, Any]] = {}
        if model.target_ is not None:
            rows = np.atleast_2d(model.target_)
            if model._has_whole_target:
                effects = model.effect(rows, level=LEVEL if model._has_interval() else None)
                written["effects"] = _columns(effects, targets)
                written["effect_summary"] = _columns(model.effect_summary(rows, level=LEVEL), targets)
            written["paths"] = _paths(model, rows, targets)
            if (cut := _placebo_cut(model)) is not None:
                written["placebo"] = _columns(model.placebo(cut, rows), targets)
            if model.placebo_share is not None and model._has_whole_target:
                written["placebo_ranks"] = _columns(model.placebo_ranks(rows, level=LEVEL), targets)
        if hasattr(model, "weights_"):
            return written | {"weights": model._coefficient_table().written()}
        if model._predictors and model.target_ is not None:
            written["balance"] = _columns(model.balance(np.atleast_2d(model.target_)), targets)
        coefficients = model._coefficient_table().written()
        names = model._predictors.names
        periods = [*names, *model.periods_] if names else model.periods_
        return written | {"coefficients": coefficients, "center": {"period": periods, "center": model.center_}}

    def figures(self, model: SyntheticControl, targets: Sequence[Any]) -> dict[str, Axes]:
        """Draw the paths of the first targets and of their synthetic controls, and the gaps between them."""
        if model.target_ is None or not model._has_whole_target:
            return {}
        drawn: dict[str, Axes] = {}
        rows = np.atleast_2d(model.target_)
        for number, (name, row) in enumerate(zip(targets, rows[:_MOST_DRAWN], strict=False), start=1):
            suffix = "" if len(rows) == 1 else f"-{number}"
            for kind, plotted in (("path", model.plot), ("gap", model.plot_gap)):
                drawn[kind + suffix] = plotted(row, level=LEVEL, title=str(name))
        return drawn

    def facts(self, model: SyntheticControl) -> list[tuple[str, str]]:
        """Describe the choices made and the fit before the intervention."""
        periods = f"{model.n_pre_} before the intervention, {model.n_post_} after it"
        stated = [("periods", periods), ("penalty used", repr(float(model.ridge_)))]
        if model.target_ is None:
            return stated
        rows = np.atleast_2d(model.target_)
        fits = np.atleast_1d(model.pre_fit(rows))
        if np.all(np.isfinite(fits)):
            errors = ", ".join(f"{one:.4g}" for one in fits)
            stated.append(("root mean squared error before the intervention", errors))
        if model._has_interval():
            low, high = model.interval(rows[:, : model._n_before], LEVEL)
            reach = float(np.mean(high - low)) / 2.0
            stated.append(("error as released", f"limits reach {reach:.2g} on average, by the noise"))
        return stated


def _placebo_cut(model: SyntheticControl) -> int | None:
    """Return how many periods come before the placebo; None where there is none to be had."""
    if hasattr(model, "weights_") or model.basis is not None or model.n_pre_ < 2:
        return None
    earlier = model.n_pre_ - model.n_post_
    return earlier if earlier >= 1 else model.n_pre_ // 2


def _paths(model: SyntheticControl, rows: Any, targets: Sequence[Any]) -> dict[str, Any]:
    """Return observed and synthetic outcomes of all periods; nothing where they are not known."""
    periods, n_pre, n_predictors = model.periods_, model.n_pre_, model._n_before - model.n_pre_
    pre, series = rows[:, : model._n_before], rows[:, n_predictors:]
    observed = np.full((len(rows), len(periods)), None, object)
    observed[:, : series.shape[1]] = series
    synthetic = np.full(observed.shape, None, object)
    synthetic[:, n_pre:] = model.predict(pre if len(pre) > 1 else pre[0])
    if not np.isnan(before := model._earlier(pre)).all():
        synthetic[:, :n_pre] = before[:, n_predictors:]
    return {
        "target": [name for name in targets for _ in periods],
        "period": np.tile(periods, len(rows)),
        "observed": observed.ravel().tolist(),
        "estimate": synthetic.ravel().tolist(),
    }


def _columns(table: DataFrame, targets: Sequence[Any]) -> dict[str, Any]:
    """Return a table's index levels and columns, with the names of the targets."""
    table = table.reset_index()
    return {name: table[name].to_numpy() for name in table} | {"target": [targets[one] for one in table["target"]]}


JOB_TYPES = (Control(),)
