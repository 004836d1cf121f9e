"""Pictures of synthetic controls: what is drawn where, without pyplot."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dpfast.plotting import coefficients, synthetic_control_gaps, synthetic_control_paths

YEARS = np.arange(1980, 1990)
OBSERVED = np.linspace(100.0, 60.0, 10)


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_paths_show_target_control_band_and_intervention(tmp_path):
    figure = synthetic_control_paths(YEARS, 7, OBSERVED, OBSERVED + 1.0, OBSERVED[7:], OBSERVED[7:] + 2.0)
    drawn = lines(figure)
    np.testing.assert_array_equal(drawn["observed"].get_ydata(), OBSERVED)
    np.testing.assert_array_equal(drawn["synthetic control"].get_ydata(), OBSERVED + 1.0)
    assert 1986.5 in [line.get_xdata()[0] for line in figure.axes[0].lines]
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 0].min() == 1987
    assert corners[:, 1].max() == OBSERVED[7] + 2.0
    figure.savefig(tmp_path / "paths.png")


def test_a_control_known_after_the_intervention_only_is_drawn_there():
    figure = synthetic_control_paths(YEARS, 7, OBSERVED, OBSERVED[7:])
    fitted = lines(figure)["synthetic control"].get_ydata()
    assert np.isnan(fitted[:7]).all()
    np.testing.assert_array_equal(fitted[7:], OBSERVED[7:])


def test_gaps_are_about_a_line_at_zero():
    figure = synthetic_control_gaps(YEARS, 7, OBSERVED - 80.0, np.full(10, -30.0), np.full(10, 30.0))
    np.testing.assert_array_equal(lines(figure)["gap"].get_ydata(), OBSERVED - 80.0)
    assert [0.0, 0.0] in [list(line.get_ydata()) for line in figure.axes[0].lines]
    assert len(figure.axes[0].collections) == 1
    assert not synthetic_control_gaps(YEARS, 7, OBSERVED).axes[0].collections


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2020-01-31", periods=10, freq="ME"),
        pd.period_range("2020-01", periods=10, freq="M"),
        [f"week {week}" for week in range(10)],
        np.linspace(0.0, 1.0, 10),
    ],
)
def test_any_labels_of_periods(index, tmp_path):
    figure = synthetic_control_gaps(index, 4, OBSERVED)
    figure.savefig(tmp_path / "gaps.png")
    if isinstance(index, list):
        assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == index


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((YEARS, 0, OBSERVED), "n_pre must leave periods before and after the intervention, got 0 of 10"),
        ((YEARS, 10, OBSERVED), "n_pre must leave"),
        ((YEARS, 7, OBSERVED[:4]), r"gap must have one value a period \(10\) .* \(3\), got shape \(4,\)"),
        ((YEARS, 7, OBSERVED, OBSERVED), "low and high must be given together"),
        ((YEARS, 7, OBSERVED, OBSERVED, [1.0]), "high must have one value"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthetic_control_gaps(*arguments)


def test_pyplot_stays_out():
    code = (
        "import sys; from dpfast.plotting import synthetic_control_gaps; synthetic_control_gaps([1, 2], 1, [0, 1]); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_coefficients_are_drawn_with_their_limits_a_panel_an_outcome():
    values = np.array([[0.1, -0.5], [0.2, 0.0]])
    figure = coefficients(["age", "smoker"], ["days", "cost"], values, values - 0.1, values + 0.2, "95% limits")
    assert [panel.get_title() for panel in figure.axes] == ["days", "cost"]
    for panel, row in zip(figure.axes, values, strict=True):
        np.testing.assert_array_equal(panel.lines[1].get_xdata(), row)
        (limits,) = panel.collections
        np.testing.assert_allclose([bar[:, 0] for bar in limits.get_segments()], np.c_[row - 0.1, row + 0.2])
    # The first feature is on top.
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1]


def test_of_many_features_the_largest_coefficients_are_drawn_in_their_order():
    values = np.zeros((1, 200))
    values[0, 7::5] = 1.0 + np.arange(39)
    values[0, 3] = -100.0
    (panel,) = coefficients([f"f{j}" for j in range(200)], ["y"], values).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["f3", *(f"f{j}" for j in range(7, 200, 5))]
    assert panel.get_ylabel() == "the 40 largest of 200"


def test_coefficients_of_many_outcomes_are_a_map_about_zero():
    values = np.arange(10.0).reshape(5, 2) - 2.0
    panel, _ = coefficients(["a", "b"], list("vwxyz"), values).axes
    (image,) = panel.images
    np.testing.assert_array_equal(image.get_array(), values)
    assert image.get_clim() == (-7.0, 7.0)
    assert [label.get_text() for label in panel.get_yticklabels()] == list("vwxyz")
