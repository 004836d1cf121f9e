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
