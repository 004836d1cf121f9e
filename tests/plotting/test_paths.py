"""Pictures of synthetic controls: what is drawn where, without pyplot."""

import numpy as np
import pandas as pd
import pytest

from dpfast.plotting import placebo_distribution, synthetic_control_gaps, synthetic_control_paths

YEARS = np.arange(1980, 1990)
OBSERVED = np.linspace(100.0, 60.0, 10)


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_paths_show_target_control_band_and_intervention(tmp_path):
    axes = synthetic_control_paths(YEARS, 7, OBSERVED, OBSERVED + 1.0, OBSERVED[7:], OBSERVED[7:] + 2.0)
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["observed"].get_ydata(), OBSERVED)
    np.testing.assert_array_equal(drawn["synthetic control (error before: 1)"].get_ydata(), OBSERVED + 1.0)
    assert 1986.5 in [line.get_xdata()[0] for line in axes.lines]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 0].min() == 1987
    assert corners[:, 1].max() == OBSERVED[7] + 2.0
    axes.figure.savefig(tmp_path / "paths.png")


def test_a_control_known_after_the_intervention_only_is_drawn_there():
    axes = synthetic_control_paths(YEARS, 7, OBSERVED, OBSERVED[7:])
    fitted = lines(axes)["synthetic control"].get_ydata()
    assert np.isnan(fitted[:7]).all()
    np.testing.assert_array_equal(fitted[7:], OBSERVED[7:])


def test_gaps_are_about_a_line_at_zero():
    axes = synthetic_control_gaps(YEARS, 7, OBSERVED - 80.0, np.full(10, -30.0), np.full(10, 30.0))
    np.testing.assert_array_equal(axes.lines[-1].get_ydata(), OBSERVED - 80.0)
    assert [0.0, 0.0] in [list(line.get_ydata()) for line in axes.lines]
    assert len(axes.collections) == 1
    assert not synthetic_control_gaps(YEARS, 7, OBSERVED).collections


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
    axes = synthetic_control_gaps(index, 4, OBSERVED)
    axes.figure.savefig(tmp_path / "gaps.png")
    if isinstance(index, list):
        assert [label.get_text() for label in axes.get_xticklabels()] == index


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


def test_a_share_of_placebos_that_noise_hides_is_said_in_words():
    ends, counts = [0.5, 1.0, 2.0], [3.0, 40.0, 31.0, 2.0]
    axes = placebo_distribution(ends, counts, 2.6, (np.nan, 0.0, 0.05), label="Utah")
    (entry,) = [text.get_text() for text in axes.get_legend().get_texts() if "Utah" in text.get_text()]
    assert entry == "Utah: share as far out hidden by noise (90% limits 0 to 0.05)"


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_outer_bins_are_drawn_as_wide_as_the_others(scale):
    axes = placebo_distribution(scale * np.array([0.5, 1.0, 2.0]), [3.0, 40.0, 31.0, 2.0], 2.6 * scale)
    heights, edges, _ = next(one.get_data() for one in axes.patches if hasattr(one, "get_data"))
    np.testing.assert_allclose(edges, scale * 2.0 ** np.arange(-2, 3))
    assert heights.tolist() == [3.0, 40.0, 31.0, 2.0]
