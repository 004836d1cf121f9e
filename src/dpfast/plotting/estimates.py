"""Pictures of fits: coefficients with their limits, and how classifiers do on public rows, which are not protected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast.io.summaries import normal_reach
from dpfast.plotting.canvas import LABELS, Canvas, Looks, both, covering, numbers, short, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_Names: TypeAlias = Sequence[object]

# Outcomes beside one another that are still told apart.
_SERIES = 4
# How far outcomes are from each other within the row of a feature, by how many there are, and where further fits are
# beside the first, in those distances: however many come, none is on another.
_APART = (0.5, 0.3, 0.25, 0.2)
_BESIDE = (0.0, 0.5, -0.5, 0.25, -0.25, 0.75, -0.75)
# Cells of a map that are marked one by one.
_MARKED = 2000


def coefficients(
    features: Sequence[object],
    outcomes: Sequence[object],
    values: ArrayLike,
    *,
    noise: tuple[ArrayLike, ArrayLike] | None = None,
    total: tuple[ArrayLike, ArrayLike] | None = None,
    level: float = 0.95,
    reference: ArrayLike | None = None,
    quantity: str = "coefficient",
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw coefficients, a row a feature and a series an outcome; those of more than four outcomes as a map.

    Parameters
    ----------
    features, outcomes : sequence
        Their names. With many features the 40 largest coefficients are drawn.
    values : array of shape (n_outcomes, n_features)
        Coefficients, released or public.
    noise : tuple of two arrays of the same shape, optional
        Low and high limits for the privacy noise alone: a thick bar.
    total : tuple of two arrays of the same shape, optional
        Low and high limits for the privacy noise and sampling: a thin bar with ends. In a map, cells whose limits hold
        0 are crossed.
    level : float, default 0.95
        Coverage of the limits, which the legend says.
    reference : array of the same shape, optional
        Public values to compare with: declared public by being given.
    quantity : str, default "coefficient"
        What is drawn. For a coefficient 0 is marked.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another fit stands beside the first.
    title : str, optional
        Above the axes; by default the outcome, where there is one.
    label : str, optional
        Name of the series in the legend.
    unit : str, optional
        Unit of the values.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Raises
    ------
    ValueError
        If shapes differ, or a map is drawn on one.

    Examples
    --------
    >>> from dpfast.plotting import coefficients
    >>> axes = coefficients(["age", "smoker"], ["days"], [[0.1, 0.5]], noise=([[0.0, 0.3]], [[0.2, 0.7]]), unit="days")
    >>> [tick.get_text() for tick in axes.get_yticklabels()], axes.get_xlabel()
    (['age', 'smoker'], 'coefficient (days)')
    """
    drawn = check.array("values", values)
    if drawn.ndim != 2:
        raise ValueError(f"values must have a row an outcome and a column a feature, got shape {drawn.shape}")
    shape = drawn.shape
    check.names("outcomes", outcomes, shape[0])
    check.names("features", features, shape[1])
    limits = both("noise", noise, shape), both("total", total, shape)
    public = None if reference is None else numbers("reference", reference, shape)
    looks = ax, title, label, unit
    if len(outcomes) > _SERIES:
        return _map(features, outcomes, drawn, limits[1] or limits[0], level, quantity, looks)
    kept = _largest(drawn, *limits)
    rows = min(len(kept), LABELS)
    wide = 0.08 * max((len(short(features[int(j)])) for j in kept), default=0)
    entries = sum(one is not None for one in (*limits, public)) + (len(outcomes) if len(outcomes) > 1 else 0)
    canvas = Canvas(looks, (4.4 + wide, 1.5 + (0.26 + 0.1 * (len(outcomes) > 2)) * rows + 0.2 * entries))
    places = _places(canvas, [short(features[int(j)]) for j in kept])
    axes = canvas.ax
    if quantity.startswith("coefficient"):
        canvas.plain("x")
        canvas.once("zero", lambda: axes.axvline(0.0, color=canvas.ink, linewidth=0.8, linestyle="-", alpha=0.6))
    # The first outcome is on top.
    apart, fits = _APART[max(len(outcomes), 1) - 1], len(canvas.drawn()) // max(len(outcomes), 1)
    beside = _BESIDE[fits % len(_BESIDE)] - (len(outcomes) - 1) / 2.0
    offsets = apart * (np.arange(len(outcomes)) + beside)
    for k, outcome in enumerate(outcomes):
        own = [] if label is None else [label]
        names = [str(name) for name in ([*own, outcome] if len(outcomes) > 1 else own) if str(name).strip()]
        _one(canvas, drawn[k, kept], places + offsets[k], limits, (k, kept), level, ", ".join(names) or None)
    for row in places[np.isnan(drawn[:, kept]).all(axis=0)] if fits == 0 else ():
        inside = {"transform": axes.get_yaxis_transform(), "ha": "center", "va": "center"}
        axes.text(0.5, row, "hidden by noise", color=canvas.ink, alpha=0.6, fontsize="small", **inside)
    if public is not None:
        where = np.add.outer(offsets, places).ravel()
        style = {"color": canvas.ink, "fillstyle": "none", "markersize": 9.0, "linestyle": "none"}
        axes.plot(public[:, kept].ravel(), where, marker="D", label=canvas.entry("public value"), **style)
    canvas.open_frame()
    note = f"the {len(kept)} largest of {len(features)}" if len(kept) < len(features) else axes.get_ylabel()
    if title is None and len(outcomes) == 1 and str(outcomes[0]).strip():
        canvas.title = str(outcomes[0])
    drawn_on = canvas.finish(canvas.in_unit(quantity), note)
    count = len(axes.get_yticks())
    axes.set_ylim(count - 0.4, -0.6)
    # Framed: its signs would pass for values. Below the rows, so that it hides none of them.
    share = canvas.legend(loc="lower center", edgecolor="0.6", exactly=True)
    axes.set_ylim(count - 0.4 + (count + 0.2) * share / (1.0 - share), -0.6)
    return drawn_on


def _one(
    canvas: Canvas,
    values: FloatArray,
    rows: FloatArray,
    limits: tuple[Any, Any],
    which: tuple[int, IntArray],
    level: float,
    name: str | None,
) -> None:
    """Draw the coefficients of one outcome."""
    style, ax = canvas.next(), canvas.ax
    color = style["color"]
    noise, total = (None if one is None else [side[which] for side in one] for one in limits)
    if total is not None:
        ax.hlines(rows, *total, color=color, linewidth=1.1, label=canvas.entry(covering(level, "noise and sampling")))
        for side in total:
            ax.plot(side, rows, "|", color=color, markersize=6.0, markeredgewidth=1.1, linestyle="none")
    if noise is not None:
        bars = {"linewidth": 4.0, "alpha": 0.55, "capstyle": "butt"}
        ax.hlines(rows, *noise, color=color, label=canvas.entry(covering(level, "privacy noise")), **bars)
    style |= {"markersize": 6.0, "linestyle": "none", "label": "_" if name is None else short(name)}
    canvas.add(*ax.plot(values, rows, **style, markeredgecolor=ax.get_facecolor()))


def _largest(values: FloatArray, *limits: Any) -> IntArray:
    """Return the features that are drawn, in their order."""
    sides = [np.abs(side) for pair in limits if pair is not None for side in pair]
    size = np.nan_to_num(np.max(np.nan_to_num([np.abs(values), *sides]), axis=0).max(0, initial=0.0))
    if len(size) <= LABELS:
        return np.arange(len(size))
    return np.sort(np.argsort(-size, kind="stable")[:LABELS])


def _places(canvas: Canvas, names: list[str]) -> FloatArray:
    """Return the rows of features: those that are there already, and new ones below."""
    rows = [text.get_text() for text in canvas.ax.get_yticklabels()] if canvas.drawn() else []
    free: dict[str, list[int]] = {}
    for row, name in enumerate(rows):
        free.setdefault(name, []).append(row)
    places = []
    for name in names:
        if not free.get(name):
            # Of names that come twice, each has a row.
            free[name] = [len(rows)]
            rows.append(name)
        places.append(free[name].pop(0))
    canvas.plain("y")
    canvas.names("y", np.arange(len(rows)), rows)
    return np.array(places, np.float64)


def _map(
    features: _Names, outcomes: _Names, values: FloatArray, limits: Any, level: float, quantity: str, looks: Looks
) -> Axes:
    canvas = Canvas(looks, (7.0, 4.6))
    finite = np.abs(values[np.isfinite(values)])
    reach = float(finite.max(initial=0.0)) or 1.0
    canvas.image(values, -reach, reach, canvas.in_unit(quantity), aspect="auto")
    canvas.hatch(np.isnan(values) & (values.size <= _MARKED), "hidden by noise")
    if limits is not None and values.size <= _MARKED:
        rows, columns = np.nonzero((limits[0] <= 0.0) & (limits[1] >= 0.0))
        if len(rows):
            style = {"color": "white", "markeredgecolor": "black", "markersize": 4.0, "linestyle": "none"}
            canvas.ax.plot(columns, rows, "X", label=covering(level, "0 is inside"), **style)
    for side, names in (("x", features), ("y", outcomes)):
        kept = thinned(len(names), LABELS)
        canvas.names(side, kept, [names[int(place)] for place in kept])
    return canvas.finish_map("feature", "outcome", ncols=1)


_SIZE = 4.6, 4.8
# Classes whose curves are told apart in one picture.
_DRAWN = 4


def calibration(
    outcomes: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 10,
    level: float = 0.95,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw how often what was given a probability came true, on public rows.

    Parameters
    ----------
    outcomes : array of shape (n_rows,)
        Whether it came true: booleans, or 0 and 1. Public.
    probabilities : array of shape (n_rows,)
        Predictions of the same rows.
    n_bins : int, default 10
        Bins of probabilities, of equal width. Empty ones are not drawn.
    level : float, default 0.95
        Coverage of the limits of a share, which are Wilson's: they tell chance in the public rows.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another fit stands beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the series in the legend.
    unit : str, optional
        Name of the people, after the name of the axis of shares.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Raises
    ------
    ValueError
        If lengths differ, there is no row, or one is neither 0 nor 1, or no probability.

    Examples
    --------
    >>> from dpfast.plotting import calibration
    >>> axes = calibration([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], n_bins=2)
    >>> axes.get_ylabel()
    'share of public rows that came true'
    """
    true, predicted = _rows(outcomes, "probabilities", probabilities)
    if np.any((predicted < 0.0) | (predicted > 1.0)):
        raise ValueError("probabilities must lie between 0 and 1")
    n_bins = check.positive_integer("n_bins", n_bins)
    bins = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    held = counts > 0
    counts = counts[held]
    mean, share = (np.bincount(bins, one, n_bins)[held] / counts for one in (predicted, true))
    low, high = _wilson(share, counts, normal_reach(level))
    canvas = Canvas((ax, title, label, unit), _SIZE)
    _diagonal(canvas, "as predicted")
    style = canvas.next()
    bars = {"linewidth": 1.6, "alpha": 0.6, "label": canvas.entry(covering(level, "chance in the rows"))}
    canvas.ax.vlines(mean, low, high, color=style["color"], **bars)
    style["label"] = canvas.called()
    canvas.add(*canvas.ax.plot(mean, share, **style, linewidth=1.4, markersize=5.0))
    axes = canvas.finish("predicted probability", f"share of {canvas.of_people('public rows')} that came true")
    canvas.legend_on_top()
    return axes


def roc(
    outcomes: ArrayLike,
    scores: ArrayLike,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw the receiver operating characteristic of scores, on public rows.

    Parameters
    ----------
    outcomes : array of shape (n_rows,)
        Whether it came true: booleans, or 0 and 1, some of either. Public.
    scores : array of shape (n_rows,)
        Predictions of the same rows: the larger, the more likely.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another fit stands beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the series in the legend, with the area below it.
    unit : str, optional
        Name of the people, after the names of the axes.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Raises
    ------
    ValueError
        If lengths differ, or outcomes are not 0 and 1, with some of either.

    Examples
    --------
    >>> from dpfast.plotting import roc
    >>> roc([0, 0, 1, 1], [0.1, 0.7, 0.6, 0.9], label="private").get_legend().get_texts()[1].get_text()
    'private: area 0.75'
    """
    from sklearn.metrics import auc, roc_curve

    true, given = _rows(outcomes, "scores", scores)
    if not 0.0 < float(np.mean(true)) < 1.0:
        raise ValueError("outcomes must be of both kinds: with one alone there is nothing to tell apart")
    false_rate, true_rate, _ = roc_curve(true, given)
    canvas = Canvas((ax, title, label, unit), _SIZE)
    _diagonal(canvas, "as good as chance")
    style = canvas.next() | {"marker": "", "label": canvas.named(f"area {auc(false_rate, true_rate):.3g}")}
    canvas.add(*canvas.ax.plot(false_rate, true_rate, **style, linewidth=1.8))
    whom = "" if unit is None else f", {unit}"
    canvas.legend(loc="lower right")
    return canvas.finish(f"false positive rate{whom}", f"true positive rate{whom}")


def draw_classes(
    picture: Callable[..., Axes], model: Any, X: ArrayLike, y: ArrayLike, positive: object, looks: Looks
) -> Axes:
    """Draw classes against the rest, on public rows."""
    probabilities, labels = np.asarray(model.predict_proba(X)), np.asarray(y).reshape(-1)
    classes = model.classes_.tolist()
    if len(labels) != len(probabilities):
        raise ValueError(f"y_public must have a label a row, {len(probabilities)}, got {len(labels)}")
    if not np.all(np.isin(labels, model.classes_)):
        raise ValueError("y_public must hold declared classes alone")
    if check.optional(check.label, "positive", positive) is not None and positive not in classes:
        raise ValueError(f"positive must be one of the classes {classes}, got {positive!r}")
    ax, title, label, unit = looks
    if positive is None and len(classes) > _DRAWN:
        true = labels[:, None] == model.classes_
        return picture(true.ravel(), probabilities.ravel(), ax=ax, title=title, label=label, unit=unit)
    shown = [positive] if positive is not None else classes[1:] if len(classes) == 2 else classes
    for one in shown:
        names = [str(name) for name in (label, one if len(shown) > 1 else None) if name is not None]
        mine = probabilities[:, classes.index(one)]
        ax = picture(labels == one, mine, ax=ax, title=title, label=", ".join(names) or None, unit=unit)
    axes: Axes = ax
    return axes


def _rows(outcomes: ArrayLike, name: str, predicted: ArrayLike) -> tuple[FloatArray, FloatArray]:
    true, given = check.array("outcomes", outcomes), check.array(name, predicted)
    if true.ndim != 1 or true.shape != given.shape or not len(true):
        raise ValueError(f"outcomes and {name} must be a number a row, got shapes {true.shape} and {given.shape}")
    if not np.all((true == 0.0) | (true == 1.0)) or not np.all(np.isfinite(given)):
        raise ValueError(f"outcomes must be 0 or 1, and {name} finite")
    return true, given


def _wilson(share: FloatArray, counts: Any, reach: float) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's limits of shares of so many rows."""
    square = reach**2 / counts
    middle = (share + square / 2.0) / (1.0 + square)
    half = reach / (1.0 + square) * np.sqrt((share * (1.0 - share) + square / 4.0) / counts)
    return middle - half, middle + half


def _diagonal(canvas: Canvas, entry: str) -> None:
    """Draw the expected curve of no skill, or of a perfect one, on axes that are a square of shares."""
    style = {"color": canvas.ink, "alpha": 0.6, "linewidth": 1.0, "linestyle": ":", "marker": "", "label": entry}
    canvas.once("diagonal", lambda: canvas.ax.plot([0.0, 1.0], [0.0, 1.0], **style)[0])
    canvas.plain("x", "y")
    for side in ("x", "y"):
        canvas.limit(side, -0.02, 1.02)
        getattr(canvas.ax, f"set_{side}ticks")([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    canvas.open_frame()
