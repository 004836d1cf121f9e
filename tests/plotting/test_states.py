"""Pictures of value functions: what is drawn where."""

import numpy as np
import pytest
from scipy import special

from dpfast import PolicyEvaluation, Trajectories
from dpfast.datasets.decision_processes import chain_trajectories
from dpfast.plotting import value_function

VALUES = np.array([0.1, 0.2, 0.4, 0.8, 0.3, 0.6])


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_states_are_points_with_their_limits_over_whole_numbers():
    axes = value_function(VALUES, np.full(6, 0.1), level=0.9, start=0, goal=[3, 5], holes=2, reference=VALUES + 0.01)
    (bars,) = axes.collections
    reach = special.ndtri(0.95) * 0.1
    np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], VALUES[:, None] + [-reach, reach])
    assert entries(axes) == ["90% limits: privacy noise", "public value", "start", "goal", "hole"]
    lines = {line.get_label(): line for line in axes.lines}
    assert {line.get_linestyle() for line in axes.lines} == {"None"}
    assert [lines[name].get_xdata().tolist() for name in ("start", "goal", "hole")] == [[0], [3, 5], [2]]
    axes.figure.draw_without_rendering()
    assert all(float(tick) == int(tick) for tick in axes.get_xticks())


def test_what_is_not_drawn_is_in_no_legend():
    assert value_function(VALUES).get_legend() is None
    assert value_function(VALUES, np.zeros(6)).get_legend() is None
    assert value_function(VALUES, np.full(6, np.nan)).get_legend() is None


def test_colours_of_a_map_span_the_declared_range():
    axes = value_function(VALUES, shape=(2, 3), limits=(-1.0, 3.0), start=0, goal=5)
    (image,) = axes.images
    assert image.get_clim() == (-1.0, 3.0)
    np.testing.assert_array_equal(image.get_array(), VALUES.reshape(2, 3))
    goal = next(line for line in axes.lines if line.get_label() == "goal")
    assert np.round(np.ravel([goal.get_xdata(), goal.get_ydata()])).tolist() == [2.0, 1.0]


def test_cells_tell_their_limits_or_that_they_are_wide():
    words = [text.get_text() for text in value_function(VALUES, np.full(6, 0.1), (2, 3)).texts]
    assert words[0] == "0.1\n±0.2"
    std = np.where(np.arange(900) == 31, 1.0, 0.01)
    axes = value_function(np.linspace(0.0, 1.0, 900), std, (30, 30), limits=(0.0, 1.0))
    (wide,) = axes.patches
    assert wide.get_xy() == (0.5, 0.5)
    # No colour, which would be taken for a value.
    assert np.argwhere(axes.images[0].get_array().mask).tolist() == [[1, 1]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["hardly known"]


def test_of_a_hundred_thousand_states_every_hundredth_is_drawn_and_those_that_are_marked():
    axes = value_function(np.linspace(-1.0, 1.0, 100_000), np.ones(100_000), start=[7, 99_999])
    assert len(axes.lines[0].get_xdata()) == 1002
    assert {7, 99_999} <= set(axes.lines[0].get_xdata())
    assert axes.get_xlabel() == "state, one in 100"
    assert len(axes.get_xticks()) < 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "values must be one for each state"),
        ((VALUES, None, (2, 2)), "shape must be two numbers whose product is that of the states, 6"),
        ((VALUES, [0.1]), r"std must have shape \(6,\), got \(1,\)"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        value_function(*arguments)


def test_marks_must_be_states():
    with pytest.raises(ValueError, match=r"hole must be among the 6 states, got \[6\]"):
        value_function(VALUES, holes=6)


def test_states_of_an_encoder_are_marked_by_their_names():
    walks = Trajectories(*chain_trajectories(500, n_states=6, seed=0))
    model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0, 1), random_state=0).fit(walks)
    model._states = tuple("abcdef")
    axes = model.plot(start="a", goal=["e", "f"])
    marks = {line.get_label(): line.get_xdata().tolist() for line in axes.lines}
    assert (marks["start"], marks["goal"]) == ([0], [4, 5])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list("abcdef")
    assert model.plot((2, 3)).images[0].get_clim() == (0.0, 1.0)


def test_a_second_fit_leaves_room_for_the_marks_of_the_first():
    axes = value_function(VALUES, start=0)
    value_function(VALUES, ax=axes, label="other")
    # Marks are at 0.04 of the height, and points above them.
    assert axes.transLimits.transform((0.0, VALUES.min()))[1] > 0.08


def test_names_that_would_run_into_each_other_stand_upright():
    def rotation(names, **options):
        axes = value_function(VALUES[: len(names)], states=names, **options)
        return axes.get_xticklabels()[0].get_rotation()

    treatments = ["metformin", "sulfonylurea", "insulin", "diet", "surgery", "none"]
    assert rotation(treatments) == 90.0
    assert rotation(list("abcdef")) == 0.0
    # What fits depends on the axes.
    figure = pytest.importorskip("matplotlib.figure").Figure((12.0, 3.0))
    assert rotation(treatments, ax=figure.subplots()) == 0.0
