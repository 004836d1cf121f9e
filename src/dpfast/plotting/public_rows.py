"""Pictures of how classifiers do on public rows: nothing of them is protected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.io.summaries import normal_reach
from dpfast.plotting.canvas import Canvas, covering, named, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    true, predicted = _rows(outcomes, probabilities)
    if np.any((predicted < 0.0) | (predicted > 1.0)):
        raise ValueError("probabilities must lie between 0 and 1")
    n_bins = check.positive_integer("n_bins", n_bins)
    bins = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    held = counts > 0
    counts = counts[held]
    mean, share = (np.bincount(bins, one, n_bins)[held] / counts for one in (predicted, true))
    low, high = _wilson(share, counts, normal_reach(level))
    canvas = Canvas(ax, _SIZE)
    _diagonal(canvas, "as predicted")
    style = canvas.next()
    bars = {"linewidth": 1.6, "alpha": 0.6, "label": canvas.entry(covering(level, "chance in the rows"))}
    canvas.ax.vlines(mean, low, high, color=style["color"], **bars)
    style["label"] = "_" if label is None else short(label)
    canvas.add(*canvas.ax.plot(mean, share, **style, linewidth=1.4, markersize=5.0))
    of_whom = "share of public rows that came true" if unit is None else f"share of {unit} that came true"
    axes = canvas.finish(title, "predicted probability", of_whom)
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

    true, given = _rows(outcomes, scores)
    if not 0.0 < float(np.mean(true)) < 1.0:
        raise ValueError("outcomes must be of both kinds: with one alone there is nothing to tell apart")
    false_rate, true_rate, _ = roc_curve(true, given)
    canvas = Canvas(ax, _SIZE)
    _diagonal(canvas, "as good as chance")
    style = canvas.next() | {"marker": "", "label": named(label, f"area {auc(false_rate, true_rate):.3g}")}
    canvas.add(*canvas.ax.plot(false_rate, true_rate, **style, linewidth=1.8))
    whom = "" if unit is None else f", {unit}"
    canvas.legend(loc="lower right")
    return canvas.finish(title, f"false positive rate{whom}", f"true positive rate{whom}")


def draw_classes(
    picture: Callable[..., Axes],
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    positive: object,
    options: tuple[Any, str | None, str | None, str | None],
) -> Axes:
    """Draw classes against the rest, on public rows."""
    probabilities, labels, classes = (
        np.asarray(model.predict_proba(X)),
        np.asarray(y).reshape(-1),
        model.classes_.tolist(),
    )
    if len(labels) != len(probabilities):
        raise ValueError(f"y_public must have a label a row, {len(probabilities)}, got {len(labels)}")
    if not np.all(np.isin(labels, model.classes_)):
        raise ValueError("y_public must hold declared classes alone")
    if positive is not None and positive not in classes:
        raise ValueError(f"positive must be one of the classes {classes}, got {positive!r}")
    ax, title, label, unit = options
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


def _rows(outcomes: ArrayLike, predicted: ArrayLike) -> tuple[FloatArray, FloatArray]:
    true, given = np.asarray(outcomes, np.float64), np.asarray(predicted, np.float64)
    if true.ndim != 1 or true.shape != given.shape or not len(true):
        raise ValueError(f"outcomes and predictions must be a number a row, got shapes {true.shape} and {given.shape}")
    if not np.all((true == 0.0) | (true == 1.0)) or not np.all(np.isfinite(given)):
        raise ValueError("outcomes must be 0 or 1, and predictions finite")
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
