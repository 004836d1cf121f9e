"""Pictures of value functions: of states side by side, or of those of a grid world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast.io.summaries import normal_reach
from dpfast.plotting.canvas import LABELS, Canvas, Looks, covering, numbers, thinned, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# States that are drawn one by one; of more, every so many.
_DRAWN = 1000
# States that have a bar with ends each.
_BARS = 200
# Points that the words of a cell take across.
_WORD = 30.0
#: Numbers of states to mark, by what they are.
_Marks: TypeAlias = dict[str, IntArray]
_MARKS = (("start", ">"), ("goal", "*"), ("hole", "X"))


def value_function(
    values: ArrayLike,
    std: ArrayLike | None = None,
    shape: tuple[int, int] | None = None,
    *,
    states: Sequence[object] | None = None,
    limits: tuple[float, float] | None = None,
    level: float = 0.95,
    covers: str = "privacy noise",
    start: int | Sequence[int] | None = None,
    goal: int | Sequence[int] | None = None,
    holes: int | Sequence[int] | None = None,
    reference: ArrayLike | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw the value of every state: as points over their numbers, or as a map of a grid world.

    Parameters
    ----------
    values : array of shape (n_states,)
        Value of each state.
    std : array of shape (n_states,), optional
        Standard deviations of values, by default from the privacy noise. Points have a bar each. In a map limits are
        written below the values if cells are large. Values with limits wider than half of the colours' range are
        hatched, as hardly known, and have no colour.
    shape : tuple of int, optional
        Rows and columns of a grid world whose states are numbered row by row.
    states : sequence, optional
        Names of the states, written where they are at most 40.
    limits : tuple of float, optional
        The declared range of values, which the colours of a map span: equal colours are then equal values in any two
        of them. By default they span the values.
    level : float, default 0.95
        Coverage of the limits, which the legend says.
    covers : str, default "privacy noise"
        Their target; the picture names it too.
    start, goal, holes : int or sequence of int, optional
        Numbers of states to mark.
    reference : array of shape (n_states,), optional
        Public values to compare points with: declared public by being given.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, points of another fit stand beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the series in the legend.
    unit : str, optional
        Unit of the values.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file. If there are more than a thousand states every so many is
        drawn, as the axis says, besides the marked ones.

    Raises
    ------
    ValueError
        If lengths differ, `shape` has another number of states, a state to be marked is not a state, or a map is drawn
        on one.

    Examples
    --------
    >>> from dpfast.plotting import value_function
    >>> axes = value_function([0.1, 0.2, 0.4, 1.0], shape=(2, 2), limits=(0.0, 1.0), goal=3)
    >>> axes.images[0].get_array().shape, axes.images[0].get_clim()
    ((2, 2), (0.0, 1.0))
    """
    found = check.array("values", values)
    if found.ndim != 1 or len(found) == 0:
        raise ValueError(f"values must be one for each state, of which there is at least one, got shape {found.shape}")
    given = {"start": start, "goal": goal, "hole": holes}
    marks = {name: np.atleast_1d(np.asarray([] if one is None else one, np.int64)) for name, one in given.items()}
    for name, numbered in marks.items():
        if np.any((numbered < 0) | (numbered >= len(found))):
            raise ValueError(f"{name} must be among the {len(found)} states, got {numbered.tolist()}")
    looks, half = (ax, title, label, unit), None
    if std is not None:
        half = normal_reach(level) * numbers("std", std, found.shape)
        half = half if visible(-half, half) else None
    covered = covering(level, covers)
    if shape is not None:
        if len(shape) != 2 or shape[0] * shape[1] != len(found):
            raise ValueError(f"shape must be two numbers whose product is that of the states, {len(found)}")
        reach = np.full(found.shape, np.nan) if half is None else half
        return _grid(found.reshape(shape), reach.reshape(shape), limits, covered, marks, looks)
    public = None if reference is None else numbers("reference", reference, found.shape)
    canvas = Canvas(looks, (6.4, 3.8))
    _points(canvas, found, half, public, covered, marks)
    step = -(-len(found) // _DRAWN)
    if states is not None and len(found) <= LABELS:
        canvas.names("x", np.arange(len(found)), states)
    else:
        canvas.whole("x")
    canvas.open_frame()
    axes = canvas.finish("state" if step == 1 else f"state, one in {step}", canvas.in_unit("value"))
    has_marks = {name for name, _ in _MARKS} & set(canvas.ax.get_legend_handles_labels()[1])
    canvas.legend_on_top(foot=0.12 if has_marks else 0.0)
    return axes


def _points(
    canvas: Canvas, values: FloatArray, half: FloatArray | None, public: FloatArray | None, covered: str, marks: _Marks
) -> None:
    """Draw states as points: nothing lies between one and the next."""
    canvas.plain("x")
    ax, style, number = canvas.ax, canvas.next(), len(canvas.drawn())
    canvas.signed("y", values, *([] if half is None else [values - half]))
    kept = thinned(len(values), _DRAWN)
    kept = np.union1d(kept, np.concatenate(list(marks.values())))
    few = len(values) <= _BARS
    # Later fits are a little to the right.
    places = kept + 0.15 * number if few else kept
    if half is not None:
        known = np.isfinite(half[kept])
        sides = (values + sign * half for sign in (-1.0, 1.0))
        looks = {"linewidth": 2.0 if few else 0.8, "alpha": 0.5, "label": canvas.entry(covered)}
        ax.vlines(places[known], *(side[kept][known] for side in sides), color=style["color"], **looks)
    size = 5.0 if few else 2.5
    style |= {"markersize": size, "linestyle": "none", "label": canvas.called()}
    canvas.add(*ax.plot(places, values[kept], **style))
    if public is not None:
        hollow = {"fillstyle": "none", "markersize": size + 3.0, "linestyle": "none", "label": "public value"}
        once = "public", public.tobytes()
        canvas.once(once, lambda: ax.plot(kept, public[kept], "D", color=canvas.ink, **hollow)[0])
    for name, marker in _MARKS:
        if len(where := marks[name]):
            # At the foot, where they hide no value.
            _mark(canvas, name, marker, where, np.full(len(where), 0.04), transform=ax.get_xaxis_transform())
    canvas.limit("x", -0.5 - 0.01 * len(values), (len(values) - 1) * 1.01 + 0.5)


def _mark(canvas: Canvas, name: str, marker: str, x: Any, y: Any, **options: Any) -> None:
    """Mark states; their kind is in the legend once."""
    style = {"color": canvas.ink, "markeredgecolor": canvas.ax.get_facecolor(), "markersize": 10.0, "clip_on": False}
    style |= {"linestyle": "none", "label": canvas.entry(name), "zorder": 3.5} | options
    canvas.once((name, tuple(x)), lambda: canvas.ax.plot(x, y, marker, **style)[0])


def _grid(
    values: FloatArray, half: FloatArray, limits: tuple[float, float] | None, covered: str, marks: _Marks, looks: Looks
) -> Axes:
    """Draw the map of a grid world."""
    rows, columns = values.shape
    width = min(max(0.5 * columns, 3.4), 7.0)
    canvas = Canvas(looks, (width + 1.4, min(max(width * rows / columns, 1.2), 7.0) + 1.2))
    finite = values[np.isfinite(values)]
    if limits is None:
        limits = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    low, high = limits
    is_long = max(rows, columns) > 8 * min(rows, columns)
    # A value that nothing is known of has no colour, which would be taken for one.
    unsure = 2.0 * half > 0.5 * (high - low)
    known = np.where(unsure, np.nan, values)
    image = canvas.image(known, low, high, canvas.in_unit("value"), aspect="auto" if is_long else "equal")
    for side in ("x", "y"):
        canvas.whole(side)
    wide, tall = canvas.size
    is_written = wide / columns >= _WORD and tall / rows >= _WORD / 2.0
    if is_written:
        _write(canvas, image, values, half, unsure)
    note = f" ({covered} below values)" if is_written and np.isfinite(half).any() else ""
    canvas.hatch(unsure, "hardly known")
    # In a corner, where there are words: small enough to hide none.
    cell = min(wide / columns, tall / rows)
    size = min(max(0.17 * cell, 5.5), 10.0)
    shift = 0.5 - 0.65 * size / cell if is_written else 0.0
    for name, marker in _MARKS:
        if len(where := marks[name]):
            x, y = where % columns - shift, where // columns - shift
            _mark(canvas, name, marker, x, y, markersize=size, markeredgewidth=0.1 * size)
    return canvas.finish_map(f"column{note}", "row", ncols=3 if is_written else 2, markerscale=8.0 / size)


def _write(canvas: Canvas, image: Any, values: FloatArray, half: FloatArray, unsure: NDArray[np.bool_]) -> None:
    """Write values into their cells, in dark or light as the cell is light or dark."""
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        reach = half[row, column]
        words = f"{value:.3g}" + (f"\n\N{PLUS-MINUS SIGN}{reach:.2g}" if np.isfinite(reach) else "")
        red, green, blue, _ = image.cmap(image.norm(value))
        color = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
        color = canvas.ink if unsure[row, column] else color
        canvas.ax.text(column, row, words, ha="center", va="center", fontsize=7.0, color=color)
