"""Pictures of synthetic controls: paths and gaps over time, and where a target is among donors."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.io.summaries import normal_reach
from dpfast.plotting.canvas import Canvas, Looks, covering, numbers, short, thinned, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 6.4, 3.8
# Periods that have a marker each, and labels side by side.
_MARKED, _LABELLED = 40, 10
_ISO_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?")


def synthetic_control_paths(
    index: ArrayLike,
    n_pre: int,
    observed: ArrayLike,
    fitted: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    *,
    level: float = 0.9,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw the target and its synthetic control over time, with the intervention marked.

    Parameters
    ----------
    index : array of shape (n_periods,)
        Labels of the periods: numbers and dates are drawn to scale, other labels evenly spaced.
    n_pre : int
        Periods before the intervention.
    observed : array of shape (n_periods,)
        The target, which is public.
    fitted : array of shape (n_periods,) or (n_periods - n_pre,)
        The synthetic control; the shorter one belongs to the last periods. Where it has the first ones too, the legend
        tells its root mean squared error there.
    low, high : array of shape (n_periods,) or (n_periods - n_pre,), optional
        Limits of the synthetic control for the privacy noise, drawn as a band.
    level : float, default 0.9
        Coverage of the limits, which the legend says.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another fit stands beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the series in the legend.
    unit : str, optional
        Unit of the outcome.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Raises
    ------
    ValueError
        If `n_pre` leaves no period before or after, an array has another length, or only one limit is given.

    Examples
    --------
    >>> from dpfast.plotting import synthetic_control_paths
    >>> axes = synthetic_control_paths(
    ...     [1987, 1988, 1989], 2, [97.0, 90.0, 82.0], [97.0, 90.0, 87.0], [80.0], [94.0], unit="packs"
    ... )
    >>> axes.get_ylabel()
    'outcome (packs)'
    """
    canvas, times = _over_time(index, n_pre, (ax, title, label, unit))
    target = _padded("observed", observed, n_pre, times)
    looks = {"color": canvas.ink, "linewidth": 1.6, "linestyle": "-", "markersize": 3, "label": "observed"}
    looks["marker"] = "o" if len(times) <= _MARKED else ""
    canvas.once(("observed", target.tobytes()), lambda: canvas.ax.plot(times, target, **looks)[0])
    control = _padded("fitted", fitted, n_pre, times)
    before = float(np.sqrt(np.mean((target - control)[:n_pre] ** 2)))
    entry = canvas.called("synthetic control")
    entry += f" (error before: {before:.3g})" if np.isfinite(before) else ""
    _draw(canvas, times, control, _limits(low, high, n_pre, times), level, entry)
    return canvas.finish(canvas.ax.get_xlabel() or "period", canvas.in_unit("outcome"))


def synthetic_control_gaps(
    index: ArrayLike,
    n_pre: int,
    gap: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    *,
    level: float = 0.9,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw observed minus synthetic over time, with the intervention marked.

    Parameters
    ----------
    index, n_pre, low, high, level, ax, title, label, unit
        As for `synthetic_control_paths`; the limits are those of the gap.
    gap : array of shape (n_periods,) or (n_periods - n_pre,)
        Observed outcomes less those of the synthetic control.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast.plotting import synthetic_control_gaps
    >>> synthetic_control_gaps([1987, 1988, 1989], 2, [0.0, 1.0, -5.0], [-8.0], [-2.0]).get_ylabel()
    'observed - synthetic control'
    """
    canvas, times = _over_time(index, n_pre, (ax, title, label, unit))
    canvas.plain("y")
    canvas.once("zero", lambda: canvas.ax.axhline(0.0, color=canvas.ink, linewidth=0.8, linestyle="-", alpha=0.6))
    values = _padded("gap", gap, n_pre, times)
    before = float(np.sqrt(np.mean(values[:n_pre] ** 2)))
    entry = f"{canvas.called('gap')} (error before: {before:.3g})" if np.isfinite(before) else canvas.called()
    _draw(canvas, times, values, _limits(low, high, n_pre, times), level, entry)
    return canvas.finish(canvas.ax.get_xlabel() or "period", canvas.in_unit("observed - synthetic control"))


def placebo_distribution(
    ends: ArrayLike,
    counts: ArrayLike,
    ratio: float,
    share: tuple[float, float, float] | None = None,
    *,
    deviation: float = 0.0,
    level: float = 0.9,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw how much worse donors are predicted after the intervention than before, and where the target is among them.

    Parameters
    ----------
    ends : array of shape (n_bins - 1,)
        Upper ends of the bins of the ratio but the last one, which has none; positive, increasing.
    counts : array of shape (n_bins,)
        Donors in each, as released: with noise.
    ratio : float
        The target's: root mean squared error after the intervention over that before it.
    share : tuple of float, optional
        Share of donors in the target's bin or beyond, NaN if noise hides it, and its low and high limits.
    deviation : float, default 0.0
        Standard deviation of the noise in a count.
    level : float, default 0.9
        Coverage of the limits, which the legend says.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another target is marked among the same donors.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the target in the legend.
    unit : str, optional
        Name of the donors, in the place of "donors".

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast.plotting import placebo_distribution
    >>> axes = placebo_distribution([0.5, 1.0, 2.0], [3.0, 40.0, 31.0, 2.0], 2.6, (0.04, 0.02, 0.06), label="Utah")
    >>> axes.get_legend().get_texts()[0].get_text()
    'Utah: share as far out 0.04 (90% limits 0.02 to 0.06)'
    """
    upper = check.array("ends", ends)
    heights = numbers("counts", counts, (len(upper) + 1,))
    if len(upper) < 2 or np.any(np.diff(np.log(np.maximum(upper, 1e-300))) <= 0.0) or upper[0] <= 0.0:
        raise ValueError("ends must be positive and increasing, at least two")
    ratio = check.positive("ratio", ratio)
    canvas = Canvas((ax, title, label, unit), _SIZE)
    # The outer bins have no end of their own: they are drawn as wide as their neighbours.
    edges = np.concatenate([[upper[0] ** 2 / upper[1]], upper, [upper[-1] ** 2 / upper[-2]]])
    reach = normal_reach(level) * deviation
    own = int(np.searchsorted(upper, ratio, side="left"))
    if not canvas.drawn("donors"):
        # From the first bin that is above the noise to the last one.
        shown = np.flatnonzero(heights > max(2.0 * reach, 0.0))
        first, last = (min(shown[0], own), max(shown[-1], own)) if len(shown) else (max(own - 1, 0), own)
        first, last = max(first - 1, 0), min(last + 1, len(heights) - 1)
        part = slice(first, last + 1)
        bars = canvas.ax.stairs(heights[part], edges[first : last + 2], fill=True, color=canvas.ink, alpha=0.25)
        canvas.add(bars, "donors")
        if reach > 0.0:
            middle = np.sqrt(edges[part] * edges[first + 1 : last + 2])
            looks = {"linewidth": 1.0, "linestyle": "-", "label": covering(level, "privacy noise")}
            canvas.ax.vlines(middle, heights[part] - reach, heights[part] + reach, color=canvas.ink, **looks)
        canvas.plain("y")
        canvas.ax.set_xscale("log", base=2)
        canvas.ax.xaxis.set_major_formatter(optional("matplotlib.ticker", "a picture").StrMethodFormatter("{x:g}"))
        canvas.once("zero", lambda: canvas.ax.axhline(0.0, color=canvas.ink, linewidth=0.8, linestyle="-", alpha=0.6))
    style = canvas.next()
    entry = canvas.called("target")
    if share is not None:
        is_known = not np.isnan(share[0])
        entry += f": share as far out {share[0]:.2g}" if is_known else ": share as far out hidden by noise"
        if share[1] < share[2]:
            entry += f" ({100.0 * level:g}% limits {share[1]:.2g} to {share[2]:.2g})"
    place = min(max(ratio, edges[0]), edges[-1])
    looks = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 2.0, "label": entry}
    canvas.add(canvas.ax.axvline(place, **looks))
    canvas.open_frame()
    counted = f"{canvas.of_people('donors')}, as released"
    axes = canvas.finish("error after the intervention over error before it", counted)
    canvas.legend_on_top(floor=0.0)
    return axes


def _over_time(index: ArrayLike, n_pre: int, looks: Looks) -> tuple[Canvas, NDArray[Any]]:
    """Return axes with the intervention marked between two periods, and the periods' positions."""
    labels = _labels(index)
    n_pre = check.integer("n_pre", n_pre)
    if labels.ndim != 1 or not 0 < n_pre < len(labels):
        raise ValueError(f"n_pre must leave periods before and after the intervention, got {n_pre} of {labels.size}")
    canvas = Canvas(looks, _SIZE)
    axis = canvas.ax.xaxis
    times = labels if labels.dtype.kind in "iufM" else np.arange(len(labels))
    if times is labels and times.dtype.kind == "M":
        canvas.plain("x")
        dates = optional("matplotlib.dates", "a picture")
        locator = dates.AutoDateLocator()
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))
        times = dates.date2num(times)
    elif times is not labels:
        canvas.plain("x")
        kept = thinned(len(labels), _LABELLED)
        canvas.names("x", kept, [short(labels[int(place)], 20) for place in kept])
    elif times.dtype.kind in "iu" and canvas.ax.get_xscale() == "linear":
        canvas.whole("x")
    margin = (times[-1] - times[0]) / 40
    ends = (times[0] - margin, times[-1] + margin)
    if canvas.drawn():
        ends = min(ends[0], canvas.ax.get_xlim()[0]), max(ends[1], canvas.ax.get_xlim()[1])
    canvas.limit("x", *ends)
    between = times[n_pre - 1] + (times[n_pre] - times[n_pre - 1]) / 2
    style = {"color": canvas.ink, "alpha": 0.7, "linewidth": 1.2, "linestyle": ":", "label": "intervention"}
    canvas.once(("intervention", float(between)), lambda: canvas.ax.axvline(between, **style))
    canvas.open_frame()
    return canvas, times


def _labels(index: Any) -> NDArray[Any]:
    """Return labels of periods: numbers and dates as such, whatever they came as."""
    if hasattr(index, "to_timestamp"):
        index = index.to_timestamp()
    if getattr(index, "tz", None) is not None:
        index = index.tz_localize(None)
    labels = np.asarray(index)
    if labels.dtype.kind not in "OUT" or labels.ndim != 1 or not len(labels):
        return labels
    words = labels.tolist()
    if all(hasattr(word, "to_timestamp") for word in words):
        words = [word.to_timestamp() for word in words]
    if all(isinstance(word, datetime.date) for word in words):
        naive = (word.replace(tzinfo=None) if hasattr(word, "tzinfo") else word for word in words)
        return np.array([*map(np.datetime64, naive)])
    if all(isinstance(word, str) and _ISO_DATE.fullmatch(word) for word in words):
        kind = "datetime64[D]"
    elif all(isinstance(word, int) or (isinstance(word, str) and word.isdecimal()) for word in words):
        kind = "int64"
    else:
        return labels
    try:
        return np.array(words).astype(kind)
    except (ValueError, OverflowError):
        return labels


def _draw(canvas: Canvas, times: Any, values: FloatArray, limits: Any, level: float, entry: str) -> None:
    """Draw a series with its band, and the legend; of a single period the band is a bar."""
    style, covered = canvas.next(), covering(level, "privacy noise")
    canvas.signed("y", values, *([] if limits is None else limits))
    if limits is not None and visible(*limits):
        color = style["color"]
        shown = np.flatnonzero(np.isfinite(limits[0]) & np.isfinite(limits[1]))
        if len(shown) == 1:
            looks = {"linewidth": 8.0, "alpha": 0.4, "capstyle": "butt", "label": canvas.entry(covered)}
            canvas.ax.vlines(times[shown], *(side[shown] for side in limits), color=color, **looks)
        else:
            canvas.band(times, limits[0], limits[1], color, canvas.entry(covered))
    marker = style["marker"] if len(times) <= _MARKED else ""
    style |= {"marker": marker, "linewidth": 1.6, "markersize": 4.0, "label": entry}
    canvas.add(*canvas.ax.plot(times, values, **style))
    canvas.legend_beside()


def _limits(low: ArrayLike | None, high: ArrayLike | None, n_pre: int, times: NDArray[Any]) -> Any:
    if (low is None) != (high is None):
        raise ValueError("low and high must be given together, or neither")
    if low is None or high is None:
        return None
    return tuple(_padded(name, values, n_pre, times) for name, values in (("low", low), ("high", high)))


def _padded(name: str, values: ArrayLike, n_pre: int, times: NDArray[Any]) -> FloatArray:
    """Return a value a period. If only the last periods are given, the others are NaN, and not drawn."""
    array = check.array(name, values)
    if array.shape == (len(times) - n_pre,):
        return np.concatenate([np.full(n_pre, np.nan), array])
    if array.shape != times.shape:
        raise ValueError(
            f"{name} must have one value a period ({len(times)}) or one a period after the intervention "
            f"({len(times) - n_pre}), got shape {array.shape}"
        )
    return array
