"""Treatment effects from an observed series and its counterfactual: tables and their summary in words.

Everything here is arithmetic on what the analyst already has: the target's own outcomes and a released prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame


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
        What happened, in the units of the data. The row labels of a DataFrame name the targets.
    counterfactual : array of the same shape
        What would have happened, as predicted.
    index : array of shape (n_post,)
        Labels of the periods.
    low, high : array of the same shape, optional
        Limits of the effect; both or neither. Limits [a, b] of a counterfactual are limits
        [observed - b, observed - a] of the effect.

    Returns
    -------
    pandas.DataFrame
        Columns ``observed``, ``counterfactual``, ``effect`` (their difference), ``cumulative`` (effects summed up to
        the period), ``percent`` (effect in percent of the counterfactual; NaN where that is 0), and ``low``, ``high``
        where they are given. Several targets make a first index level ``target``. Averages over periods are left to
        `summary`, so that every row is a period.

    Raises
    ------
    ValueError
        If shapes differ, there is no period, only one limit is given, or a low limit is above its high one.

    Examples
    --------
    >>> from dpfast.synthetic_control.effects import effect_table
    >>> effect_table([80.0, 60.0], [100.0, 80.0], index=[1989, 1990])
          observed  counterfactual  effect  cumulative  percent
    1989      80.0           100.0   -20.0       -20.0    -20.0
    1990      60.0            80.0   -20.0       -40.0    -25.0
    """
    import pandas as pd

    if (low is None) != (high is None):
        raise ValueError("low and high must be given together, or neither")
    rows = np.asarray(observed, np.float64)
    periods = pd.Index(index)
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0 or rows.shape[-1] != len(periods):
        raise ValueError(
            "observed must have one value for each of the periods of index, of which there is at least one: "
            f"got shape {rows.shape} for {len(periods)} labels"
        )
    given = {"counterfactual": counterfactual, "low": low, "high": high}
    series = {name: _shaped(name, values, rows) for name, values in given.items() if values is not None}
    if low is not None and np.any(series["low"] > series["high"]):
        raise ValueError("low must not be above high")
    effect = rows - series["counterfactual"]
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(series["counterfactual"] == 0.0, np.nan, 100.0 * effect / series["counterfactual"])
    columns = {
        "observed": rows,
        "counterfactual": series.pop("counterfactual"),
        "effect": effect,
        "cumulative": np.cumsum(effect, axis=-1),
        "percent": percent,
        **series,
    }
    if rows.ndim == 2:
        targets = observed.index if isinstance(observed, pd.DataFrame) else range(len(rows))
        periods = pd.MultiIndex.from_product([targets, periods], names=["target", periods.name])
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=periods)


def summary(table: DataFrame, level: float | None = None) -> str:
    """Say in words what an effect table shows on average and in total, and what its limits cover.

    Parameters
    ----------
    table : pandas.DataFrame
        From `effect_table`.
    level : float, optional
        Coverage of the limits in the table, in (0, 1).

    Returns
    -------
    str
        A paragraph a target. The limits of the average are the averages of the limits: wide enough at the same level
        whatever the correlation of the noise between periods, where the noise is Gaussian or elliptical, since the
        standard deviation of an average is at most the average of the standard deviations.

    Raises
    ------
    ValueError
        If the level is outside (0, 1), or given for a table without limits.

    Examples
    --------
    >>> from dpfast.synthetic_control.effects import effect_table, summary
    >>> print(summary(effect_table([80.0, 60.0], [100.0, 80.0], index=[1989, 1990])))
    From 1989 to 1990 (2 periods) the outcome was 70 on average, where 90 was to be expected without the intervention.
    Average effect -20 a period, cumulative effect -40, or -22.2% of the counterfactual.
    """
    if level is not None:
        level = check.real("level", level)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        if "low" not in table:
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
        f"From {table.index[0]} to {table.index[-1]} ({len(table)} period{'s' * (len(table) > 1)}) the outcome was "
        f"{observed:.4g} on average, where {expected:.4g} was to be expected without the intervention.",
        f"Average effect {effect:.4g} a period, cumulative effect {effect * len(table):.4g}{share}.",
    ]
    if "low" in table:
        name = "Limits" if level is None else f"{100.0 * level:g}% limits"
        low, high = float(table["low"].mean()), float(table["high"].mean())
        lines.append(f"{name} of the average effect: {low:.4g} to {high:.4g}.")
    return "\n".join(lines)


def _shaped(name: str, values: Any, like: FloatArray) -> FloatArray:
    array = np.asarray(values, np.float64)
    if array.shape != like.shape:
        raise ValueError(f"{name} must have the shape of observed, {like.shape}, got {array.shape}")
    return array
