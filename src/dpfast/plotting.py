"""Pictures of public numbers; matplotlib is needed only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def accuracy_curves(epsilons: Sequence[float], curves: Mapping[str, tuple[float, NDArray[np.float64]]]) -> Figure:
    """Draw accuracy against epsilon, one panel a table, with the fit without privacy as a line.

    Parameters
    ----------
    epsilons : sequence of float
        Horizontal positions, on a log scale.
    curves : mapping of str to (float, ndarray of shape (n_epsilons,))
        For each title the accuracy without privacy and the private ones.

    Returns
    -------
    matplotlib.figure.Figure
        Made without pyplot, so no window or global state is touched.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * len(curves), 3.6), layout="constrained")
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

    Returns
    -------
    matplotlib.figure.Figure
        Made without pyplot, so no window or global state is touched.

    Raises
    ------
    ValueError
        If the shape is not that of so many states.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.plotting import value_function
    >>> value_function(np.array([0.1, 0.2, 0.4, 1.0]), shape=(2, 2)).axes[0].images[0].get_array().shape
    (2, 2)
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
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
