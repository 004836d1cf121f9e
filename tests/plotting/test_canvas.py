"""What all pictures have in common: where they are drawn, what they say, and who can read them."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from dpfast import Privacy, plotting

RNG = np.random.default_rng(0)
PERIODS = np.arange("2001-01", "2001-09", dtype="datetime64[M]")
OBSERVED = np.linspace(1.0, 2.0, 8)
COEFFICIENTS = RNG.normal(size=(2, 4))
TRUE = RNG.integers(0, 2, 300)
SCORES = np.clip(0.25 + 0.5 * TRUE + 0.2 * RNG.normal(size=300), 0.0, 1.0)
COUNTS = [3.0, 50.0, 80.0, 30.0, 4.0, -1.0]
WORLD = np.linspace(0.0, 1.0, 12)
CURVE = {"epsilon 1": [0.5, 0.1, 0.02], "epsilon 4": [0.2, 0.04, 0.01]}


#: What a ledger says of itself.
LEDGER = SimpleNamespace(
    budget=Privacy(1.0, 1e-6),
    costs=(Privacy(0.2, 1e-8),) * 4,
    spending=tuple(Privacy(epsilon, 1e-6) for epsilon in (0.15, 0.2, 0.24, 0.27)),
)
#: Every picture, by name.
PICTURES = {
    "coefficients": lambda **options: plotting.coefficients(
        ["age", "smoker", "income", "height"],
        ["days", "cost"],
        COEFFICIENTS,
        noise=(COEFFICIENTS - 0.2, COEFFICIENTS + 0.2),
        total=(COEFFICIENTS - 0.5, COEFFICIENTS + 0.5),
        reference=COEFFICIENTS + 0.1,
        **options,
    ),
    "map": lambda **options: plotting.coefficients(
        list("abcd"), list("vwxyz"), np.arange(20.0).reshape(5, 4) - 9.5, **options
    ),
    "path": lambda **options: plotting.synthetic_control_paths(
        PERIODS, 6, OBSERVED, OBSERVED + 0.05, OBSERVED[6:] - 0.1, OBSERVED[6:] + 0.2, **options
    ),
    "gap": lambda **options: plotting.synthetic_control_gaps(
        PERIODS, 6, OBSERVED - 1.5, np.full(2, -0.2), np.full(2, 0.7), **options
    ),
    "placebo": lambda **options: plotting.placebo_distribution(
        2.0 ** np.arange(-2.0, 3.0),
        COUNTS,
        6.0,
        (0.03, 0.01, 0.06),
        deviation=4.0,
        **options,
    ),
    "values": lambda **options: plotting.value_function(
        np.linspace(-1.0, 1.0, 8), np.full(8, 0.1), start=0, goal=7, holes=[2, 3], **options
    ),
    "grid": lambda **options: plotting.value_function(
        WORLD,
        np.full(12, 0.1),
        (3, 4),
        limits=(0.0, 1.0),
        start=0,
        goal=11,
        holes=[5, 6],
        **options,
    ),
    "calibration": lambda **options: plotting.calibration(TRUE, SCORES, **options),
    "roc": lambda **options: plotting.roc(TRUE, SCORES, **options),
    "plan": lambda **options: plotting.plan_curves([1e3, 1e4, 1e5], CURVE, target=0.1, **options),
    "scores": lambda **options: plotting.score_curves(
        [0.5, 1.0, 2.0], np.linspace(0.4, 0.9, 30).reshape(10, 3), exact=0.95, **options
    ),
    "ledger": lambda **options: plotting.budget_spent(LEDGER, **options),
}
#: Of one series, whatever is drawn on them.
MAPS = {"map", "grid"}


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
    words = [ax.get_xlabel(), ax.get_ylabel(), *entries(ax), *(one.get_ylabel() for one in figure.axes)]
    assert any("days" in one for one in words)
    assert name in MAPS or any("clinic" in one for one in words)
    with pytest.raises(TypeError, match="ax must be matplotlib Axes, got Figure"):
        PICTURES[name](ax=figure)


def test_without_axes_a_picture_has_a_figure_of_its_own(name):
    one, other = PICTURES[name](), PICTURES[name]()
    assert one.figure is not other.figure
    assert "matplotlib.pyplot" not in type(one.figure.canvas).__module__


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


def test_settings_stay_as_they_were(name):
    before = dict(matplotlib.rcParams)
    PICTURES[name]()
    assert dict(matplotlib.rcParams) == before
