"""The canvas of pictures: axes, the series already on them, names, legends and colours.

Figures are made without pyplot, so no window or global state is touched. Whatever settings are in force, what a picture
tells its series apart by is set here, for each of its artists: settings change its looks and not its meaning. Names are
shown as they are: no dollar sign begins a formula.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Blue, brown, teal and amber: told apart by people who do not see red, green or blue as others do, and by lightness
#: alone, in grey, from each other and from ink and paper. The first and the third to last are of Okabe and Ito (2008).
PALETTE = ("#0072b2", "#8c2d04", "#2aa198", "#e69f00")
#: Of what has many shades: lightness grows with the value, for everybody and in grey.
SHADES = "cividis"
#: Names below one another that are still read.
LABELS = 40
# Points that a letter of a label takes across.
_LETTER = 6.0
#: Columns that a name has, of which a wide character takes two.
_WIDTH = 32
# Of what is wider than its place.
_LINES = 3
_MARKERS = ("o", "s", "^", "D", "v", "P", "<", "X")
_STYLES: tuple[Any, ...] = ("--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))

# What was drawn here, so that more can be drawn beside it: as long as it is on its axes.
_DRAWN: WeakKeyDictionary[Artist, Hashable] = WeakKeyDictionary()
_SERIES = "series"

#: What every picture takes: axes, a title, the name of the series, and a unit.
Looks: TypeAlias = tuple[Any, str | None, str | None, str | None]


def series(number: int) -> dict[str, Any]:
    """Return how a series is drawn: a colour, a marker and a style of line that no other of the first ones has.

    Parameters
    ----------
    number : int
        0 for the first.

    Returns
    -------
    dict
        What matplotlib's ``plot`` takes.

    Examples
    --------
    >>> from dpfast.plotting import series
    >>> series(0)
    {'color': '#0072b2', 'marker': 'o', 'linestyle': '--'}
    """
    # Once colours come again, others of the markers and lines come with them.
    again = number + number // len(PALETTE)
    return {
        "color": PALETTE[number % len(PALETTE)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _STYLES[again % len(_STYLES)],
    }


def saved(axes: Axes, folder: Path, name: str) -> Path:
    """Write the figure of axes into a folder, which is made if it is missing; return its path.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpfast import Ledger, Privacy
    >>> from dpfast.plotting import saved
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved(Ledger(Privacy(1.0, 1e-6)).plot(), Path(folder), "ledger.png").name
    'ledger.png'
    """
    folder.mkdir(parents=True, exist_ok=True)
    # A figure within a figure is written with all of it.
    axes.figure.canvas.figure.savefig(folder / name, dpi=120)
    return folder / name


class Canvas:
    """Axes that something is drawn on: those given, or those of a figure of their own."""

    def __init__(self, looks: Looks, size: tuple[float, float]) -> None:
        ax, self.title, self.label, self._unit = looks
        # What is refused is refused before anything is drawn: the axes may be the caller's.
        for name, words in (("title", self.title), ("unit", self._unit)):
            check.optional(check.text, name, words)
        self._owned = ax is None
        if ax is None:
            figure = optional("matplotlib.figure", "a picture").Figure(figsize=size, layout="constrained")
            ax = figure.subplots()
        elif not isinstance(ax, optional("matplotlib.axes", "a picture").Axes):
            raise TypeError(f"ax must be matplotlib Axes, got {type(ax).__name__}")
        self.ax: Any = ax
        self._legend_height = 0.0
        self._is_laid_out = False

    @property
    def ink(self) -> Any:
        """The colour of text: dark on light paper and light on dark."""
        return self.ax.xaxis.label.get_color()

    def drawn(self, what: Hashable = _SERIES) -> list[Any]:
        """Return what is on the axes already."""
        return [artist for artist in self.ax.get_children() if _DRAWN.get(artist) == what]

    def add(self, artist: Any, what: Hashable = _SERIES) -> None:
        """Remember what was drawn."""
        _DRAWN[artist] = what

    def once(self, what: Hashable, make: Callable[[], Any]) -> None:
        """Draw what several series have in common, unless it is there already."""
        if not self.drawn(what):
            self.add(make(), what)

    def next(self) -> dict[str, Any]:
        """Return how the next series is drawn."""
        style = series(len(self.drawn()))
        if _lightness(self.ax.get_facecolor()) < 0.2:
            style["color"] = _lighter(style["color"])
        return style

    def called(self, otherwise: str = "_") -> str:
        """Return the name of the series, or what it is called without one."""
        return ("" if self.label is None else short(self.label)) or otherwise

    def named(self, what: str) -> str:
        """Return the entry of something that belongs to the series."""
        return what if self.label is None else f"{short(self.label)}: {what}"

    def in_unit(self, quantity: str) -> str:
        """Return what an axis is called."""
        return quantity if self._unit is None else f"{quantity} ({self._unit})"

    def of_people(self, people: str) -> str:
        """Return the unit of who is counted."""
        return people if self._unit is None else self._unit

    def entry(self, words: str) -> str:
        """Return an entry of the legend, or a hidden one if several series share it."""
        return "_" if words in self.ax.get_legend_handles_labels()[1] else words

    def plain(self, *sides: str) -> None:
        """Have axes of positions on a plain scale, whatever scale they had."""
        for side in sides:
            if getattr(self.ax, f"get_{side}scale")() != "linear":
                getattr(self.ax, f"set_{side}scale")("linear")

    def signed(self, side: str, *values: Any) -> None:
        """Have a scale that shows all values: a logarithm shows only positive ones."""
        if any(np.any(np.asarray(one) <= 0.0) for one in values):
            self.plain(side)

    def limit(self, side: str, low: float, high: float, *, holds: bool = True) -> None:
        """Set the limits of an axis, on a plain scale: those of another scale are its own.

        Those that do not hold are found anew once the axis has another scale: they might show nothing there.
        """
        if getattr(self.ax, f"get_{side}scale")() == "linear":
            getattr(self.ax, f"set_{side}lim")(low, high, auto=not holds)

    def names(self, side: str, places: ArrayLike, names: Iterable[object]) -> None:
        """Write names at places, upright where they would run into each other side by side."""
        axis, words = getattr(self.ax, f"{side}axis"), [short(name) for name in names]
        axis.set_ticks(np.asarray(places), words)
        upright = side == "x" and max(map(len, words), default=0) * len(words) * _LETTER > self.size[0]
        for text in axis.get_ticklabels():
            literal(text)
        axis.set_tick_params(labelrotation=90 if upright else 0)

    def whole(self, side: str) -> None:
        """Have ticks at whole numbers alone."""
        ticker = optional("matplotlib.ticker", "a picture")
        getattr(self.ax, f"{side}axis").set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))

    def image(self, values: FloatArray, low: float, high: float, quantity: str, aspect: Any) -> Any:
        """Draw a map of values, from low to high whatever they are, with the bar that tells them; not on one."""
        if self.drawn():
            raise ValueError("a map shows one fit: give another its own ax")
        self.plain("x", "y")
        options: dict[str, Any] = {"origin": "upper", "interpolation": "nearest", "aspect": aspect}
        image = self.ax.imshow(values, cmap=SHADES, vmin=low, vmax=high, **options)
        bar = self.ax.figure.colorbar(image, ax=self.ax)
        literal(bar.ax.yaxis.label)
        bar.set_label(_lines(bar.ax.yaxis.label, quantity, self.size[1]))
        self.ax.grid(False)
        self.add(image)
        return image

    def hatch(self, cells: NDArray[np.bool_], words: str) -> None:
        """Hatch some cells of a map, and say in the legend what they are."""
        patches = optional("matplotlib.patches", "a picture")
        for row, column in np.argwhere(cells):
            style = {"facecolor": "none", "edgecolor": "0.75", "hatch": "////", "linewidth": 0.0, "label": words}
            self.ax.add_patch(patches.Rectangle((column - 0.5, row - 0.5), 1.0, 1.0, **style))
            words = "_"

    def band(self, x: Any, low: FloatArray, high: FloatArray, color: str, entry: str) -> None:
        """Draw the band between limits, with an edge, so that a narrow band is seen, and in grey."""
        inside = (*optional("matplotlib.colors", "a picture").to_rgb(color), 0.3)
        self.ax.fill_between(x, low, high, facecolor=inside, edgecolor=color, linewidth=0.8, linestyle="-", label=entry)

    def legend(self, *, exactly: bool = False, **place: Any) -> float:
        """Write the legend; return its part of the axes' height, exactly for a figure of their own."""
        handles, labels = self.ax.get_legend_handles_labels()
        if not handles:
            return 0.0
        if exactly:
            self._lay_out()
        frame = {"frameon": True, "framealpha": 0.85, "edgecolor": "none", "fancybox": False, "shadow": False}
        legend = self.ax.legend(handles, labels, **({"fontsize": "small", "loc": "best"} | frame | place))
        width, height = self.size
        for text in legend.get_texts():
            literal(text)
            # Beside the signs, of which there are as many as columns.
            text.set_text(_lines(text, text.get_text(), width / place.get("ncols", 1) - 4.0 * text.get_fontsize()))
        self._legend_height = legend.get_window_extent().height * 72.0 / self.ax.figure.dpi
        # With what lies between it and the frame.
        return float(min((self._legend_height + text.get_fontsize()) / height, 0.6))

    def legend_on_top(self, *, foot: float = 0.0, floor: float = np.inf) -> None:
        """Write the legend above the data, where it hides nothing, on a plain scale with room for it.

        Below what is drawn, and a floor, is room for a part of its height.
        """
        share = self.legend(loc="upper left", exactly=True)
        low, high = min(float(self.ax.dataLim.ymin), floor), float(self.ax.dataLim.ymax)
        if not -np.inf < low <= high < np.inf:
            return
        slack = 0.04 * ((high - low) or abs(high) or 1.0)
        low, high = low - slack - foot * (high - low), high + slack
        self.limit("y", low, low + (high - low) / (1.0 - share), holds=False)

    def legend_beside(self) -> None:
        """Write the legend among the data if there is room, or else above."""
        self.legend(exactly=True)
        self.ax.autoscale_view()
        box = self.ax.get_legend().get_window_extent()
        upright = self.ax.get_xaxis_transform()  # of lines that are seen above and below any legend
        for drawn in (*self.ax.lines, *self.ax.collections):
            scale = drawn.get_transform()
            if scale != upright and any(scale.transform_path(one).intersects_bbox(box) for one in _paths(drawn)):
                self.legend_on_top()
                return

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the axes in points."""
        return tuple(72.0 / self.ax.figure.dpi * self.ax.bbox.size)

    def finish_map(self, x: str, y: str, **place: Any) -> Axes:
        """Write the rest, with the legend above the axes, where it hides nothing, and the title above the legend."""
        self.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), borderaxespad=0.1, **place)
        axes = self.finish(x, y, pad=6.0 + self._legend_height)
        self._lay_out()  # squares take their place in two steps, the second of which is that of the figure
        return axes

    def finish(self, x: str, y: str, *, pad: float | None = None) -> Axes:
        """Write what is left, and return the axes."""
        width, height = self.size
        for text, words, room in ((self.ax.xaxis.label, x, width), (self.ax.yaxis.label, y, height)):
            literal(text)
            text.set_text(_lines(text, words, room))
        if self.title is not None:
            if self._is_laid_out:
                self._lay_out()  # the labels have taken room since
                width, _ = self.size
            text = self.ax.set_title("", fontsize="medium", pad=pad)
            literal(text)
            text.set_text(_lines(text, self.title, width))
        axes: Axes = self.ax
        return axes

    def _lay_out(self) -> None:
        """Give the axes of a figure of their own the place that they will have, as far as is known."""
        if self._owned:
            self._is_laid_out = True
            self.ax.figure.draw_without_rendering()

    def open_frame(self) -> None:
        """Leave out the lines above and to the right."""
        self.ax.spines[["top", "right"]].set_visible(False)


def _paths(drawn: Any) -> Iterable[Any]:
    """Return the outlines of a line or of an area."""
    return [drawn.get_path()] if hasattr(drawn, "get_path") else drawn.get_paths()


def short(name: object, width: int = _WIDTH) -> str:
    """Return a name in one line, cut inside where it is long: the last letters may be all that tells it apart."""
    text = " ".join(str(name).split())
    # Legends leave out what begins with an underscore: with a space of no width before it, it does not.
    text = f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text
    wide = np.cumsum([1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text])
    if len(text) == 0 or wide[-1] <= width:
        return text
    last = int(np.searchsorted(wide, wide[-1] - width // 4))
    first = int(np.searchsorted(wide, width - 1 - (wide[-1] - wide[last]), side="right"))
    return f"{text[:first]}\N{HORIZONTAL ELLIPSIS}{text[last + 1 :]}"


def _lines(text: Any, words: str, room: float) -> str:
    """Return words in lines that fit into so many points, and in no more than three."""
    # Letters are as wide as six tenths of their height, or less.
    columns = max(int(room / (0.6 * text.get_fontsize())), 12)
    return textwrap.fill(" ".join(words.split()), columns, max_lines=_LINES, placeholder="\N{HORIZONTAL ELLIPSIS}")


def _lightness(color: Any) -> float:
    """Return about how light a colour is, from 0 to 1; none at all is taken for paper."""
    red, green, blue, opacity = optional("matplotlib.colors", "a picture").to_rgba(color)
    return float(opacity * (0.2126 * red + 0.7152 * green + 0.0722 * blue) + 1.0 - opacity)


def _lighter(color: str) -> str:
    """Return a colour that is seen on dark paper."""
    colors = optional("matplotlib.colors", "a picture")
    return str(colors.to_hex([0.55 * part + 0.45 for part in colors.to_rgb(color)]))


def literal(text: Any) -> None:
    """Have a text shown as it is: a dollar sign begins no formula."""
    text.set_parse_math(False)
    text.set_usetex(False)


def covering(level: float, what: str) -> str:
    """Return the entry of limits."""
    return f"{100.0 * level:g}% limits: {what}"


def visible(low: ArrayLike, high: ArrayLike) -> bool:
    """Whether there are limits to draw: not if they are unknown, or nothing is uncertain."""
    width = np.subtract(np.asarray(high, np.float64), np.asarray(low, np.float64))
    return bool(np.any(np.isfinite(width) & (width > 0.0)))


def numbers(name: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return values as numbers, of the shape that they must have."""
    array = check.array(name, values)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def both(name: str, limits: tuple[ArrayLike, ArrayLike] | None, shape: tuple[int, ...]) -> Any:
    """Return low and high limits, or None where there are none to draw."""
    if limits is None:
        return None
    low, high = (numbers(f"{name} limits", one, shape) for one in check.pair(name, limits))
    return (low, high) if visible(low, high) else None


def thinned(count: int, most: int) -> NDArray[np.int64]:
    """Return evenly spaced places, at most so many."""
    return np.arange(0, count, -(-count // most) if count else 1)
