"""What all pictures have in common: where they are drawn, what they say, and who can read them."""

import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from catalogue import RELATED, SOME, people
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from pictures import MAPS, PICTURES

from dpfast.plotting import (
    calibration,
    coefficients,
    placebo_distribution,
    plan_curves,
    score_curves,
    series,
    synthetic_control_gaps,
    synthetic_control_paths,
    value_function,
)
from dpfast.plotting.canvas import PALETTE, SHADES, short


@pytest.fixture(params=PICTURES)
def name(request):
    return request.param


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []


def test_every_picture_is_drawn_where_it_is_told_with_its_words(name):
    figure = Figure()
    ax = figure.subplots()
    assert PICTURES[name](ax=ax, title="A title", label="clinic", unit="days") is ax
    assert ax.get_title() == "A title"
    with pytest.raises(TypeError, match="title must be a string"):
        PICTURES[name](title=3)
    words = [ax.get_xlabel(), ax.get_ylabel(), *entries(ax), *(one.get_ylabel() for one in figure.axes)]
    assert any("days" in one for one in words)
    assert name in MAPS or any("clinic" in one for one in words)
    with pytest.raises(TypeError, match="ax must be matplotlib Axes, got Figure"):
        PICTURES[name](ax=figure)


def test_without_axes_a_picture_has_a_figure_of_its_own_and_leaves_settings_alone(name):
    before = dict(matplotlib.rcParams)
    one, other = PICTURES[name](), PICTURES[name]()
    assert one.figure is not other.figure
    assert dict(matplotlib.rcParams) == before


def test_a_second_series_stands_beside_the_first(name):
    if name in MAPS:
        axes = PICTURES[name]()
        with pytest.raises(ValueError, match="a map shows one fit"):
            PICTURES[name](ax=axes)
        return
    axes = PICTURES[name](label="one")
    before = len(axes.lines)
    PICTURES[name](label="other", ax=axes)
    assert len(axes.lines) > before
    said = entries(axes)
    assert len(said) == len(set(said))
    assert any(one.startswith("one") for one in said)
    assert any(one.startswith("other") for one in said)
    # What they have in common is drawn, and said, once.
    assert sum("limits" in one and "share" not in one for one in said) <= 2


def test_pyplot_stays_out():
    code = (
        "import sys; from dpfast.plotting import synthetic_control_gaps; synthetic_control_gaps([1, 2], 1, [0, 1]); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


#: Too long for any place, not Latin, and with what begins formulas.
LONG = "Среднее $число дней$ в больнице_{на человека} в год, Ελλάδα"


def texts(axes, renderer):
    """Return where what is written stands, of ticks those that are in view."""
    found = {}
    for each in axes.figure.axes:
        for axis in (each.xaxis, each.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-9 * (high - low)
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            shown = [tick.label1 for tick in ticks if low - slack <= tick.get_loc() <= high + slack]
            for text in [*shown, axis.label]:
                if text.get_visible() and text.get_text():
                    found[f"{axis.axis_name}: {text.get_text()}"] = text.get_window_extent(renderer)
        if each.get_title():
            found["title"] = each.title.get_window_extent(renderer)
        if each.get_legend():
            found["legend"] = each.get_legend().get_window_extent(renderer)
        found |= {f"text {number}": text.get_window_extent(renderer) for number, text in enumerate(each.texts)}
    return found


def assert_all_is_seen(axes):
    figure = axes.figure
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    box, size = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(box.min) > -0.03
    assert np.all(box.max < size + 0.03)
    boxes = texts(axes, renderer)
    for (one, first), (other, second) in itertools.combinations(boxes.items(), 2):
        inside = np.minimum(first.max, second.max) - np.maximum(first.min, second.min)
        # More than rounding to whole pixels.
        assert inside.min() < 1.5, (one, other)


@pytest.mark.slow
@pytest.mark.parametrize("words", [{}, {"title": 3 * LONG, "label": LONG, "unit": LONG}], ids=["usual", "long"])
def test_nothing_is_cut_and_no_words_are_on_others(name, words):
    axes = PICTURES[name](**words)
    assert_all_is_seen(axes)
    if words:
        assert "$" in axes.get_title()


@pytest.mark.slow
@pytest.mark.parametrize("sheet", ["dark_background", "ggplot", "classic"])
def test_whatever_style_is_in_force_the_same_is_drawn_and_seen(name, sheet):
    usual = PICTURES[name](label="one")
    with style.context(sheet):
        axes = PICTURES[name](title="A title", label="one")
        if sheet != "classic":
            assert_all_is_seen(axes)
    assert entries(axes) == entries(usual)
    for line, other in zip(axes.lines, usual.lines, strict=True):
        assert (line.get_marker(), line.get_linestyle()) == (other.get_marker(), other.get_linestyle())
    for one, other in zip(axes.images, usual.images, strict=True):
        assert (one.origin, one.get_cmap().name, one.get_clim()) == (
            other.origin,
            other.get_cmap().name,
            other.get_clim(),
        )


def test_series_are_seen_on_dark_paper():
    with style.context("dark_background"):
        axes = PICTURES["plan"]()
    for line in axes.lines:
        assert lightness(matplotlib.colors.to_rgb(line.get_color())) > 40.0


@pytest.mark.slow
@pytest.mark.parametrize("scales", [("log", "log"), ("linear", "symlog")])
def test_axes_of_any_scale_are_drawn_on(name, scales):
    axes = Figure(layout="constrained").subplots()
    axes.set_xscale(scales[0])
    axes.set_yscale(scales[1])
    PICTURES[name](ax=axes)
    # Warnings are errors: values that a logarithm cannot show are on a plain scale.
    FigureCanvasAgg(axes.figure).draw()


@pytest.mark.slow
def test_axes_within_figures_within_figures_are_drawn_on(name):
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subfigures(1, 2)[0].subplots(2, 1)
    PICTURES[name](ax=axes[0], title="A title", label="one")
    FigureCanvasAgg(figure).draw()


NAN = float("nan")
TWO = [2000, 2001]
#: What may come of small tables, of fits without noise, of large ones and of names.
HOSTILE = {
    "two periods": lambda: synthetic_control_paths(TWO, 1, [1.0, 2.0], [1.5], [1.2], [1.8]),
    "nothing known": lambda: synthetic_control_paths(
        range(5), 3, np.full(5, NAN), np.full(5, NAN), [NAN] * 2, [NAN] * 2
    ),
    "long periods": lambda: synthetic_control_gaps([f"квартал номер {y}" for y in range(30)], 6, np.arange(30.0)),
    "a thousand periods": lambda: synthetic_control_gaps(range(1000), 6, np.arange(1000.0)),
    "one state": lambda: value_function([1.0], [0.1], start=0),
    "a map of one state": lambda: value_function([1.0], [0.1], (1, 1), start=0),
    "unknown values": lambda: value_function([NAN, NAN, 1.0], [NAN, 0.1, NAN]),
    "a map of unknown values": lambda: value_function([NAN] * 4, [NAN] * 4, (2, 2)),
    "a map of the same values": lambda: value_function([-2.0] * 4, None, (2, 2), limits=(0.0, 0.0)),
    "a map of a column": lambda: value_function(np.arange(200.0), np.ones(200), (200, 1)),
    "negative values": lambda: value_function(-np.arange(10.0), np.ones(10), (2, 5), limits=(-200.0, -1.0)),
    "many states": lambda: value_function(np.arange(1e5), np.ones(100_000)),
    "a map of many states": lambda: value_function(np.arange(1e5), np.ones(100_000), (250, 400)),
    "named states": lambda: value_function(np.arange(30.0), states=[f"состояние {i} длинное имя" for i in range(30)]),
    "no features": lambda: coefficients([], ["days"], np.zeros((1, 0))),
    "unknown coefficients": lambda: coefficients(
        ["a", "b"], ["days"], [[NAN, 1.0]], noise=([[NAN, 0.0]], [[np.inf, 2.0]])
    ),
    "many features": lambda: coefficients([f"признак {i}: длинное имя" for i in range(200)], [""], np.ones((1, 200))),
    "a large map": lambda: coefficients(range(3000), range(50), np.ones((50, 3000)), noise=(np.ones((50, 3000)),) * 2),
    "odd names": lambda: coefficients(
        ["_a\nb", "$"], ["\n", "_y"], [[1.0, 2.0]] * 2, label="_l", title="a\n", unit="$^"
    ),
    "no error": lambda: plan_curves([100, 1000], {"epsilon inf": [0.0, 0.0]}),
    "one plan": lambda: plan_curves([100], {"epsilon 1": [0.5]}),
    "one fit": lambda: score_curves([1.0], [[0.5]]),
    "counts of noise": lambda: placebo_distribution([0.5, 1.0, 2.0], [-1, -2, -3, -1], 1e12, deviation=3.0),
    "one row": lambda: calibration([1], [1.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_whatever_is_drawn_is_drawn(case):
    axes = HOSTILE[case]()
    FigureCanvasAgg(axes.figure).draw()
    assert len(axes.get_xticks()) <= 50
    assert len(axes.get_yticks()) <= 50
    if "state" in axes.get_xlabel() or "column" in axes.get_xlabel():
        assert all(float(tick) == int(tick) for tick in axes.get_xticks())


TURNS = np.where(np.arange(40) % 2, 1.0, 0.0)
#: Pictures whose curves leave no corner free.
CROWDED = {
    "path": lambda: synthetic_control_paths(range(40), 30, TURNS, 1.0 - TURNS, np.full(10, -0.1), np.full(10, 1.1)),
    "gap": lambda: synthetic_control_gaps(range(40), 30, TURNS),
    "scores": lambda: score_curves([0.5, 1.0, 2.0], [[0.4, 0.4, 0.5], [0.9, 0.9, 0.9]], exact=0.95),
}


@pytest.mark.parametrize("crowded", CROWDED)
def test_a_legend_stands_above_what_leaves_no_room_for_it(crowded):
    axes = CROWDED[crowded]()
    FigureCanvasAgg(axes.figure).draw()
    # With a margin that is seen.
    foot = axes.get_legend().get_window_extent().y0 - 0.02 * axes.get_window_extent().height
    for line in axes.lines:
        if line.get_transform() != axes.get_xaxis_transform():
            assert line.get_window_extent().y1 < foot
    for area in axes.collections:
        assert area.get_window_extent().y1 < foot


def test_names_that_begin_with_an_underscore_are_in_the_legend():
    assert len(entries(HOSTILE["odd names"]())) == 2


#: What people see who lack one kind of cones: Machado, Oliveira, Fernandes (2009), on linear red, green and blue.
SIGHT = {
    "usual": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(rgb, sight="usual"):
    """CIE L*a*b* of a colour as somebody sees it."""
    rgb = np.asarray(rgb)[:3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(np.asarray(SIGHT[sight]) @ linear, 0.0, 1.0) / [0.95047, 1.0, 1.08883]
    x, y, z = (np.cbrt(one) if one > 0.008856 else 7.787 * one + 16.0 / 116.0 for one in (x, y, z))
    return np.array([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)])


def lightness(rgb):
    return lab(rgb)[0]


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart_whoever_looks(sight):
    """Differences of 2.3 are just seen side by side; 15 is the distance of colours with different names."""
    colours = [matplotlib.colors.to_rgb(one) for one in (*PALETTE, "black", "white")]
    for one, other in itertools.combinations(colours, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) > 15.0


def test_colours_are_told_apart_in_grey():
    greys = sorted(lightness(matplotlib.colors.to_rgb(one)) for one in (*PALETTE, "black", "white"))
    assert min(np.diff(greys)) > 10.0
    shades = [lightness(one) for one in matplotlib.colormaps[SHADES](np.linspace(0.0, 1.0, 32))]
    assert min(np.diff(shades)) > 0.5


def test_series_are_told_apart_without_colours():
    styles = [tuple(map(str, (one["marker"], one["linestyle"]))) for one in map(series, range(16))]
    assert len(set(styles)) == 16


#: One of each family, where the number of people is public and where it is not, of those that offer either.
DRAWN = [name for one in SOME for name in (one, f"{one}, add_remove") if name in RELATED]


def words_and_numbers(axes):
    """All that a picture says: its words, and where its lines and bars are."""
    said = [text.get_text() for text in axes.figure.findobj(Text)]
    return said, [np.asarray(line.get_xydata()).tolist() for line in axes.lines]


@pytest.mark.slow
@pytest.mark.parametrize("fit", [name for name in DRAWN if hasattr(type(RELATED[name].estimator), "plot")])
def test_a_model_draws_what_was_released_and_not_how_many_people_there_are(fit, tmp_path):
    n = 1237
    model = RELATED[fit](*people(n), random_state=0)
    target = {"target": np.linspace(-0.5, 0.5, len(model.periods_))} if hasattr(model, "periods_") else {}
    drawn = model.plot(**target)
    model.save(tmp_path / "model.json")
    # All that is in the file was released, or is public.
    again = type(model).load(tmp_path / "model.json").plot(**target)
    assert str(words_and_numbers(again)) == str(words_and_numbers(drawn))
    FigureCanvasAgg(drawn.figure).draw()
    assert not any(str(n) in words.replace(",", "") for words in words_and_numbers(drawn)[0])


def test_long_names_that_differ_at_their_end_are_told_apart():
    names = [f"a rather long name of a laboratory value, number {number}" for number in range(3)]
    shown = [text.get_text() for text in coefficients(names, ["days"], np.ones((1, 3))).get_yticklabels()]
    assert len(set(shown)) == 3
    assert all(len(one) <= 32 for one in shown)
    wide = "\N{CJK UNIFIED IDEOGRAPH-75C5}"
    for name, width in (("", 0), (wide * 16, 16), (wide * 40, 16), ("x" * 33, 32), ("x" * 32, 32)):
        assert len(short(name)) <= width
    assert short("x" * 32) == "x" * 32
