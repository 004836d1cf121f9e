"""Pictures as they were looked at, pixel by pixel, without words and legends: how those are drawn hangs on fonts.

``DPFAST_DRAW=1 pytest tests/plotting/test_canvas_images.py`` draws them anew; look at each before it is committed.
"""

import os
from pathlib import Path

import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text
from pictures import MAPS, PICTURES

IMAGES = Path(__file__).parent / "images"
SETTINGS = {"font.family": "DejaVu Sans", "path.simplify": False}
#: In root mean squared shades of 255: matplotlib 3.8 and 3.11 differ by less, and by whole lines of pixels in maps.
TOLERANCE = dict.fromkeys(PICTURES, 3.0) | dict.fromkeys(MAPS, 10.0)
#: What else hangs on fonts: room for a legend.
LIMITS = {
    "coefficients": (4.0, -0.6),
    "path": (0.8, 2.6),
    "gap": (-0.6, 0.8),
    "scores": (0.4, 1.1),
    "placebo": (-20.0, 100.0),
    "values": (-1.5, 2.0),
    "calibration": (-0.1, 1.5),
}


def drawn(name, path):
    """Draw a picture on axes whose place no words change."""
    with style.context(["default", SETTINGS]):
        axes = Figure(figsize=(4.0, 3.0), dpi=50).subplots()
        PICTURES[name](ax=axes)
        if axes.get_legend():
            axes.get_legend().remove()
        axes.set_ylim(*LIMITS.get(name, axes.get_ylim()))
        for text in axes.figure.findobj(Text):
            text.set_visible(False)
        FigureCanvasAgg(axes.figure).print_png(path, metadata={"Software": None})


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_those_that_were_looked_at(name, tmp_path):
    if os.environ.get("DPFAST_DRAW"):
        drawn(name, IMAGES / f"{name}.png")
    drawn(name, tmp_path / f"{name}.png")
    assert compare_images(IMAGES / f"{name}.png", tmp_path / f"{name}.png", TOLERANCE[name]) is None
