"""Pictures of budgets: the spending, and the error at a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._optional import optional
from dpfast.plotting.canvas import Canvas, numbers, short, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpfast.privacy import Privacy

_SIZE = 5.6, 3.6
# Points on a curve that have a marker each.
_MARKED = 40


class Spender(Protocol):
    """An object with a budget, and its spending, cost by cost."""

    @property
    def budget(self) -> Privacy:
        """All that may be spent."""

    @property
    def costs(self) -> tuple[Privacy, ...]:
        """The cost of each fit, or query."""

    @property
    def spending(self) -> tuple[Privacy, ...]:
        """The cost of all together, after each of them."""


def budget_spent(
    ledger: Spender,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw what a ledger has spent, fit after fit, against its budget.

    Parameters
    ----------
    ledger : Ledger
        Its `spending` is drawn, with the plain sum of epsilons beside it if the sum is more.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another ledger stands beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the ledger in the legend.
    unit : str, optional
        Name of the people, after the name of the axis of epsilon.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast import Ledger, Privacy
    >>> from dpfast.plotting import budget_spent
    >>> budget_spent(Ledger(Privacy(1.0, 1e-6))).get_ylabel()
    'epsilon spent'
    """
    canvas = Canvas((ax, title, label, unit), _SIZE)
    canvas.plain("x", "y")
    style, axes = canvas.next(), canvas.ax
    spent = np.array([0.0, *(cost.epsilon for cost in ledger.spending)])
    plain = np.cumsum([0.0, *(cost.epsilon for cost in ledger.costs)])
    count = np.arange(len(spent))
    if np.any(plain > spent):
        dotted = {"linestyle": ":", "linewidth": 1.4, "marker": "", "label": canvas.named("plain sum")}
        axes.step(count, plain, where="post", color=style["color"], **dotted)
    marker = style["marker"] if len(spent) <= _MARKED else ""
    solid = {"linestyle": "-", "linewidth": 1.8, "marker": marker, "markersize": 4.0}
    canvas.add(*axes.step(count, spent, where="post", color=style["color"], label=canvas.named("spent"), **solid))
    budget = ledger.budget
    if np.isfinite(budget.epsilon):
        dashed = {"linewidth": 1.2, "linestyle": "--", "label": canvas.named(f"budget, at delta {budget.delta:.3g}")}
        axes.axhline(budget.epsilon, color=style["color"] if label else canvas.ink, **dashed)
        top = 1.1 * max(budget.epsilon, spent[-1])
        canvas.limit("y", 0.0, max(top, axes.get_ylim()[1]) if len(canvas.drawn()) > 1 else top)
    canvas.whole("x")
    canvas.open_frame()
    canvas.legend()
    return canvas.finish("fits paid for", canvas.in_unit("epsilon spent"))


def plan_curves(
    x: Sequence[float],
    errors: Mapping[str, ArrayLike],
    *,
    against: Literal["people", "epsilon"] = "people",
    target: float | None = None,
    relative_to: str = "",
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw the error to expect of private fits against the number of people, or epsilon: public numbers alone.

    Parameters
    ----------
    x : sequence of float
        Numbers of people, or epsilons.
    errors : mapping of str to array of shape (n_x,)
        The expected error of a fit with each, for every curve; NaN where there is none.
    against : {"people", "epsilon"}, default "people"
        What `x` is.
    target : float, optional
        The error that is wanted, marked by a line.
    relative_to : str, optional
        The quantity that errors are fractions of.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, other plans stand beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the plan in the legend, before the names of the curves.
    unit : str, optional
        Name of the people, in the place of "people"; with epsilon after its name.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast.plotting import plan_curves
    >>> axes = plan_curves([1_000, 10_000, 100_000], {"epsilon 1": [0.8, 0.2, 0.02]}, target=0.1)
    >>> axes.get_xlabel(), axes.get_xscale()
    ('people', 'log')
    """
    check.choice("against", against, ("people", "epsilon"))
    places = check.array("x", x)
    canvas = Canvas((ax, title, label, unit), _SIZE)
    axes = canvas.ax
    curves = {name: numbers(name, given, places.shape) for name, given in errors.items()}
    axes.set_xscale("log")
    if any(np.any(curve > 0.0) for curve in curves.values()):
        axes.set_yscale("log")
    if target is not None:
        wanted = {"color": canvas.ink, "linewidth": 1.0, "linestyle": ":", "label": f"wanted: {target:g}"}
        canvas.once(("target", target), lambda: axes.axhline(target, **wanted))
    for name, curve in curves.items():
        style = canvas.next() | ({} if len(places) <= _MARKED else {"marker": ""})
        style["label"] = canvas.named(short(name))
        canvas.add(*axes.plot(places, curve, **style, linewidth=1.6, markersize=4.0))
    if against == "epsilon":
        _ticks(canvas, places)
    else:
        _readable(canvas, "x", "{x:,.0f}", (1.0,))
    if axes.get_yscale() == "log":
        _readable(canvas, "y", "{x:g}", (1.0, 2.0, 5.0))
    canvas.open_frame()
    share = f", of {relative_to}" if relative_to else ""
    what = (unit or "people") if against == "people" else canvas.in_unit("epsilon")
    canvas.legend()
    return canvas.finish(what, f"expected error{share}")


def score_curves(
    x: Sequence[float],
    scores: ArrayLike,
    *,
    exact: float | None = None,
    level: float = 0.9,
    quantity: str = "accuracy",
    xlabel: str = "epsilon",
    ax: Axes | None = None,
    title: str | None = None,
    label: str | None = None,
    unit: str | None = None,
) -> Axes:
    """Draw the results of repeated private fits against epsilon: their mean, and a band with most of them.

    Parameters
    ----------
    x : sequence of float
        Epsilons, or anything else that is positive.
    scores : array of shape (n_repeats, n_x)
        Scores of repeated fits, on public rows.
    exact : float, optional
        The score without privacy, drawn as a line.
    level : float, default 0.9
        Part of the repeats that the band holds.
    quantity, xlabel : str
        Names of the axes.
    ax : matplotlib Axes, optional
        Axes to draw on; by default a figure of its own. Drawn on again, another series stands beside the first.
    title : str, optional
        Above the axes.
    label : str, optional
        Name of the series in the legend, in the place of "dpfast".
    unit : str, optional
        Unit of the scores.

    Returns
    -------
    matplotlib Axes
        ``axes.figure.savefig(path)`` writes them to a file.

    Examples
    --------
    >>> from dpfast.plotting import score_curves
    >>> axes = score_curves([0.5, 1.0, 2.0], [[0.5, 0.6, 0.8], [0.6, 0.7, 0.8]], exact=0.9)
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['no privacy', '90% of 2 fits', 'dpfast (mean)']
    """
    places, repeats = check.array("x", x), np.atleast_2d(check.array("scores", scores))
    if repeats.ndim != 2 or places.ndim != 1 or repeats.shape[1] != len(places) or not repeats.size:
        raise ValueError(f"scores must have a column for each of the {places.size} of x, got shape {repeats.shape}")
    tail = (1.0 - check.share("level", level)) / 2.0
    canvas = Canvas((ax, title, label, unit), _SIZE)
    axes, style = canvas.ax, canvas.next()
    if exact is not None:
        line = {"color": canvas.ink, "linewidth": 1.2, "linestyle": "-", "label": "no privacy"}
        canvas.once(("exact", float(exact)), lambda: axes.axhline(exact, **line))
    canvas.signed("y", repeats)
    low, high = np.quantile(repeats, [tail, 1.0 - tail], axis=0)
    if visible(low, high):
        canvas.band(places, low, high, style["color"], canvas.named(f"{100.0 * level:g}% of {len(repeats)} fits"))
    style["label"] = canvas.called("dpfast") + (" (mean)" if len(repeats) > 1 else "")
    canvas.add(*axes.plot(places, repeats.mean(axis=0), **style, linewidth=1.6, markersize=5.0))
    axes.set_xscale("log", base=2)
    _ticks(canvas, places)
    canvas.open_frame()
    canvas.legend_beside()
    return canvas.finish(xlabel, canvas.in_unit(quantity))


def _readable(canvas: Canvas, side: str, form: str, steps: tuple[float, ...]) -> None:
    """Have plain numbers along an axis of powers of ten; steps between them where there is room."""
    ticker = optional("matplotlib.ticker", "a picture")
    low, high = getattr(canvas.ax, f"get_{side}lim")()
    axis = getattr(canvas.ax, f"{side}axis")
    axis.set_major_locator(ticker.LogLocator(subs=steps if high < 2e3 * low else (1.0,), numticks=9))
    axis.set_major_formatter(ticker.StrMethodFormatter(form))
    axis.set_minor_formatter(ticker.NullFormatter())


def _ticks(canvas: Canvas, places: Any) -> None:
    """Have ticks at the places that were tried, if they are few."""
    if len(places) <= 10:
        canvas.ax.set_xticks(places, [f"{place:g}" for place in places])
        canvas.ax.set_xticks([], minor=True)
