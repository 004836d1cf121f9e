"""Pictures of public numbers; matplotlib is needed only here.

Figures are made without pyplot, so no window or global state is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfast.ledger import Ledger

# Told apart by people who do not see red and green alike.
_OBSERVED, _SYNTHETIC = "black", "#0072b2"


def saved(figure: Figure, folder: Path, name: str) -> Path:
    """Write a picture into a folder, which is made if it is missing; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=120)
    return folder / name


def accuracy_curves(epsilons: Sequence[float], curves: Mapping[str, tuple[float, NDArray[np.float64]]]) -> Figure:
    """Draw accuracy against epsilon, a panel for each title: private ones, and the one without privacy as a line."""
    figure: Figure = optional("matplotlib.figure", "a picture").Figure(
        figsize=(5.0 * len(curves), 3.6), layout="constrained"
    )
    panels = np.atleast_1d(figure.subplots(1, len(curves), sharey=True))
    for panel, (title, (exact, private)) in zip(panels, curves.items(), strict=True):
        panel.axhline(exact, color="0.5", linestyle="--", label="no privacy")
        panel.plot(epsilons, private, marker="o", label="dpfast")
        panel.set_xscale("log", base=2)
        panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        panel.set_xlabel("epsilon (delta = 1e-6)")
        panel.set_title(title, fontsize=10)
    panels[0].set_ylabel("accuracy on held-out people")
    panels[0].set_ylim(0.0, 1.0)
    panels[-1].legend(loc="lower right")
    return figure


def synthetic_control_paths(
    index: ArrayLike,
    n_pre: int,
    observed: ArrayLike,
    fitted: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Figure:
    """Draw the target and its synthetic control over time, with the intervention marked.

    Parameters
    ----------
    index : array of shape (n_periods,)
        Labels of the periods: numbers and dates are drawn to scale, other labels evenly spaced.
    n_pre : int
        Periods before the intervention.
    observed : array of shape (n_periods,)
        The target.
    fitted : array of shape (n_periods,) or (n_periods - n_pre,)
        The synthetic control; the shorter one belongs to the last periods.
    low, high : array of shape (n_periods,) or (n_periods - n_pre,), optional
        Limits of the synthetic control, drawn as a band.

    Raises
    ------
    ValueError
        If `n_pre` leaves no period before or after, an array has another length, or only one limit is given.

    Examples
    --------
    >>> from dpfast.plotting import synthetic_control_paths
    >>> figure = synthetic_control_paths([1987, 1988, 1989], 2, [97.0, 90.0, 82.0], [97.0, 90.0, 87.0], [80.0], [94.0])
    >>> figure.axes[0].get_ylabel()
    'outcome'
    """
    figure, panel, times = _time_panel(index, n_pre)
    panel.plot(times, _padded("observed", observed, n_pre, times), color=_OBSERVED, linewidth=1.6, label="observed")
    synthetic = _padded("fitted", fitted, n_pre, times)
    panel.plot(times, synthetic, color=_SYNTHETIC, linewidth=1.6, linestyle="--", label="synthetic control")
    _add_band(panel, times, n_pre, low, high)
    panel.set_ylabel("outcome")
    panel.legend(frameon=False)
    return figure


def synthetic_control_gaps(
    index: ArrayLike,
    n_pre: int,
    gap: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Figure:
    """Draw observed minus synthetic over time, intervention marked; arguments as in `synthetic_control_paths`."""
    figure, panel, times = _time_panel(index, n_pre)
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    panel.plot(times, _padded("gap", gap, n_pre, times), color=_SYNTHETIC, linewidth=1.6, label="gap")
    _add_band(panel, times, n_pre, low, high)
    panel.set_ylabel("observed - synthetic control")
    if low is not None:
        panel.legend(frameon=False)
    return figure


def value_function(
    values: NDArray[np.float64], std: NDArray[np.float64] | None = None, shape: tuple[int, int] | None = None
) -> Figure:
    """Draw the value of every state: as a curve over their numbers, or as a map of a grid world.

    Parameters
    ----------
    values : ndarray of shape (n_states,)
        Value of each state.
    std : ndarray of shape (n_states,), optional
        Standard deviations from the privacy noise: the curve gets a band of two on either side.
    shape : tuple of int, optional
        Rows and columns of a grid world whose states are numbered row by row.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.plotting import value_function
    >>> value_function(np.array([0.1, 0.2, 0.4, 1.0]), shape=(2, 2)).axes[0].images[0].get_array().shape
    (2, 2)
    """
    figure: Figure = optional("matplotlib.figure", "a picture").Figure(figsize=(5.6, 3.6), layout="constrained")
    panel = figure.subplots()
    if shape is not None:
        if len(shape) != 2 or shape[0] * shape[1] != len(values):
            raise ValueError(f"shape must be two numbers whose product is that of the states, {len(values)}")
        figure.colorbar(panel.imshow(values.reshape(shape), cmap="viridis"), ax=panel, label="value")
        panel.set_xlabel("column")
        panel.set_ylabel("row")
        return figure
    states = np.arange(len(values))
    panel.plot(states, values, marker="o" if len(values) <= 50 else None, markersize=3.0)
    if std is not None:
        panel.fill_between(
            states, values - 2.0 * std, values + 2.0 * std, alpha=0.2, linewidth=0.0, label="2 sd of privacy noise"
        )
        panel.legend(frameon=False)
    panel.set_xlabel("state")
    panel.set_ylabel("value")
    return figure


# Panels side by side, and labels below one another, that are still read.
_PANELS, LABELS = 4, 40


def coefficients(
    features: Sequence[str],
    outcomes: Sequence[str],
    values: NDArray[np.float64],
    low: NDArray[np.float64] | None = None,
    high: NDArray[np.float64] | None = None,
    label: str = "",
    quantity: str = "coefficient",
) -> Figure:
    """Draw coefficients, a panel an outcome, with their limits as bars; those of many outcomes as a map.

    Parameters
    ----------
    features, outcomes : sequence of str
        Their names. Of many features the largest coefficients are drawn.
    values : ndarray of shape (n_outcomes, n_features)
        Coefficients.
    low, high : ndarray of the same shape, optional
        Limits of each.
    label : str
        What the limits are.
    quantity : str, default "coefficient"
        What else is drawn, of which 0 is nothing special.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.plotting import coefficients
    >>> figure = coefficients(["age", "smoker"], ["days"], np.array([[0.1, 0.5]]))
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['age', 'smoker']
    """
    if len(outcomes) > _PANELS:
        return _coefficient_map(features, outcomes, values)
    size = np.abs(values if low is None or high is None else np.maximum(np.abs(low), np.abs(high))).max(0, initial=0.0)
    kept = np.arange(len(features))
    if len(features) > LABELS:
        kept = np.sort(np.argsort(-size, kind="stable")[:LABELS])
    names = [_short(features[int(j)]) for j in kept]
    width = 0.09 * max(map(len, names), default=0) + 3.0 * len(outcomes)
    figure: Figure = optional("matplotlib.figure", "a picture").Figure(
        figsize=(width, 1.4 + 0.24 * len(kept)), layout="constrained"
    )
    places = np.arange(len(kept))
    panels = np.atleast_1d(figure.subplots(1, len(outcomes), sharey=True))
    for k, (panel, outcome) in enumerate(zip(panels, outcomes, strict=True)):
        if quantity == "coefficient":
            panel.axvline(0.0, color="0.5", linewidth=0.8)
        if low is not None and high is not None:
            panel.hlines(places, low[k, kept], high[k, kept], color=_SYNTHETIC, linewidth=1.6, label=label)
        panel.plot(values[k, kept], places, "o", color=_SYNTHETIC, markersize=4.0)
        panel.set_title(_short(outcome), fontsize=10)
        panel.set_xlabel(quantity if low is None else f"{quantity}, {label}")
        panel.margins(y=0.5 / max(len(kept), 1))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(places, names)
    panels[0].invert_yaxis()
    if len(kept) < len(features):
        panels[0].set_ylabel(f"the {len(kept)} largest of {len(features)}")
    return figure


def _coefficient_map(features: Sequence[str], outcomes: Sequence[str], values: NDArray[np.float64]) -> Figure:
    figure: Figure = optional("matplotlib.figure", "a picture").Figure(figsize=(7.0, 4.6), layout="constrained")
    panel = figure.subplots()
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
    options: dict[str, Any] = {"aspect": "auto", "cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    figure.colorbar(panel.imshow(values, interpolation="nearest", **options), ax=panel, label="coefficient")
    for axis, names in ((panel.xaxis, features), (panel.yaxis, outcomes)):
        if len(names) <= LABELS:
            axis.set_ticks(range(len(names)), [_short(name) for name in names])
    panel.tick_params(axis="x", labelrotation=90)
    panel.set_xlabel("feature")
    panel.set_ylabel("outcome")
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"{name[:31]}\N{HORIZONTAL ELLIPSIS}"


def budget_spent(ledger: Ledger, ax: Axes | None = None) -> Axes:
    """Draw what a ledger has spent, release after release, against its budget.

    Parameters
    ----------
    ledger : Ledger
        Whose `spending` is drawn, and the plain sum of epsilons beside it where that is more.
    ax : matplotlib Axes, optional
        Where to draw; a figure of its own if omitted.

    Returns
    -------
    matplotlib Axes
        The axes that were drawn on; ``ax.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast import Ledger, Privacy
    >>> from dpfast.plotting import budget_spent
    >>> budget_spent(Ledger(Privacy(1.0, 1e-6))).get_ylabel()
    'epsilon spent'
    """
    MaxNLocator = optional("matplotlib.ticker", "a picture").MaxNLocator

    panel = (
        optional("matplotlib.figure", "a picture").Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
        if ax is None
        else ax
    )
    spent = [0.0, *(cost.epsilon for cost in ledger.spending)]
    plain = np.cumsum([0.0, *(cost.epsilon for cost in ledger.costs)])
    count = np.arange(len(spent))
    if np.any(plain > spent):
        panel.step(count, plain, where="post", color="0.6", linestyle=":", label="plain sum")
    panel.step(count, spent, where="post", color=_SYNTHETIC, linewidth=1.6, label="spent")
    budget = ledger.budget
    if np.isfinite(budget.epsilon):
        panel.axhline(budget.epsilon, color=_OBSERVED, linewidth=0.8, label=f"budget, at delta {budget.delta:.3g}")
        panel.set_ylim(0.0, 1.1 * max(budget.epsilon, spent[-1]))
    panel.set_xlabel("releases paid for")
    panel.set_ylabel("epsilon spent")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(frameon=False)
    return panel


def _time_panel(index: ArrayLike, n_pre: int) -> tuple[Figure, Any, NDArray[Any]]:
    """Return a figure, its axes with the intervention marked between two periods, and the periods' positions."""
    dates = optional("matplotlib.dates", "a picture")
    AutoDateLocator, ConciseDateFormatter = dates.AutoDateLocator, dates.ConciseDateFormatter
    MaxNLocator = optional("matplotlib.ticker", "a picture").MaxNLocator

    labels = np.asarray(index.to_timestamp() if hasattr(index, "to_timestamp") else index)
    n_pre = check.integer("n_pre", n_pre)
    if labels.ndim != 1 or not 0 < n_pre < len(labels):
        raise ValueError(f"n_pre must leave periods before and after the intervention, got {n_pre} of {labels.size}")
    figure: Figure = optional("matplotlib.figure", "a picture").Figure(figsize=(6.4, 3.8), layout="constrained")
    panel = figure.subplots()
    times = labels if labels.dtype.kind in "iufM" else np.arange(len(labels))
    if times.dtype.kind == "M":
        locator = AutoDateLocator()
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    elif times is not labels:
        step = -(-len(labels) // 10)
        panel.set_xticks(times[::step], [str(label) for label in labels[::step]])
    elif times.dtype.kind in "iu":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    margin = (times[-1] - times[0]) / 40
    panel.set_xlim(times[0] - margin, times[-1] + margin)
    between = times[n_pre - 1] + (times[n_pre] - times[n_pre - 1]) / 2
    panel.axvline(between, color="0.4", linewidth=1.0, linestyle=":")
    mark: dict[str, Any] = {"textcoords": "offset points", "va": "top", "fontsize": 8, "color": "0.4"}
    panel.annotate("intervention", (between, 1.0), xytext=(3, -3), xycoords=("data", "axes fraction"), **mark)
    panel.spines[["top", "right"]].set_visible(False)
    return figure, panel, times


def _add_band(panel: Any, times: NDArray[Any], n_pre: int, low: ArrayLike | None, high: ArrayLike | None) -> None:
    if (low is None) != (high is None):
        raise ValueError("low and high must be given together, or neither")
    if low is not None and high is not None:
        limits = (_padded(name, values, n_pre, times) for name, values in (("low", low), ("high", high)))
        panel.fill_between(times, *limits, color=_SYNTHETIC, alpha=0.2, linewidth=0.0, label="privacy noise")


def _padded(name: str, values: ArrayLike, n_pre: int, times: NDArray[Any]) -> NDArray[np.float64]:
    """Return a value a period: NaN, which is not drawn, where only the last periods are given."""
    array = np.asarray(values, np.float64)
    if array.shape == (len(times) - n_pre,):
        return np.concatenate([np.full(n_pre, np.nan), array])
    if array.shape != times.shape:
        raise ValueError(
            f"{name} must have one value a period ({len(times)}) or one a period after the intervention "
            f"({len(times) - n_pre}), got shape {array.shape}"
        )
    return array
