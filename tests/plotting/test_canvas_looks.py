"""Whether all that is drawn can be seen."""

import numpy as np
import pytest
from looks import MOST, legend_shares, series_that_are_not_seen
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pictures import PICTURES

from dpfast.plotting import score_curves, value_function


@pytest.mark.parametrize("name", PICTURES)
def test_every_series_is_within_its_axes_and_no_legend_takes_the_page(name):
    figure = PICTURES[name]().figure
    assert not series_that_are_not_seen(figure)
    assert all(share <= MOST for share in legend_shares(figure))


@pytest.mark.parametrize("dpi", [80, 100, 120, 200])
def test_no_title_of_a_map_leaves_the_page(dpi):
    """Its first layout once left a pixel of it outside."""
    std = np.where(np.arange(64) % 2, 1.0, 0.1)
    axes = value_function(np.arange(64) / 64.0, std, (8, 8), holes=[3], start=0, goal=63, title="Value of every state")
    axes.figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    assert axes.title.get_window_extent(canvas.get_renderer()).y1 < axes.figure.bbox.height


def test_an_axis_that_turns_logarithmic_shows_what_was_drawn():
    """It once kept the limits of its plain scale, and showed nothing."""
    figure = Figure(figsize=(8.0, 4.0))
    for ax in figure.subplots(1, 2, sharey=True):
        for scale, name in ((1.0, "one"), (1e-4, "other")):
            score_curves([1, 10, 100], [[scale, 1e-2 * scale, 1e-4 * scale]] * 3, ax=ax, label=name)
        ax.set_yscale("log")
    assert not series_that_are_not_seen(figure)


def test_what_is_outside_is_noticed():
    axes = Figure().subplots()
    axes.plot([0.0, 1.0], [2.0, 3.0])
    axes.set_ylim(0.0, 1.0)
    assert len(series_that_are_not_seen(axes.figure)) == 1
    for number in range(12):
        axes.plot([0.0, 1.0], [0.5, 0.5], label=f"{'w' * 40}{number}")
    axes.legend(fontsize="x-large")
    assert legend_shares(axes.figure)[0] > MOST
