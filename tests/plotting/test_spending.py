"""Pictures of budgets and plans: what is drawn where."""

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy, SparseRegression, SyntheticControl
from dpfast.plotting import plan_curves, score_curves


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_two_ledgers_stand_beside_one_another():
    one, other = Ledger(Privacy(1.0, 1e-6)), Ledger(Privacy(4.0, 1e-6))
    axes = one.plot(label="clinic")
    assert other.plot(ax=axes, label="registry") is axes
    assert entries(axes)[2:] == ["registry: spent", "registry: budget, at delta 1e-06"]
    assert axes.get_ylim() == (0.0, pytest.approx(4.4))


def test_plans_are_drawn_against_people_with_a_curve_an_epsilon():
    declared = {"delta": 1e-6, "bound_x": 1.0, "bound_y": 1.0}
    axes = MultiOutcomeRidge.plot_plan([1_000, 10_000], 5, 2, epsilon=[0.5, 2.0], target=0.1, **declared)
    wanted, *curves = axes.lines
    assert wanted.get_ydata() == [0.1, 0.1]
    for epsilon, curve in zip((0.5, 2.0), curves, strict=True):
        expected = [MultiOutcomeRidge.plan(n, 5, 2, epsilon=epsilon, **declared).expected_error for n in (1000, 10000)]
        assert curve.get_ydata().tolist() == expected
    assert axes.get_ylabel() == "expected error, of the outcomes'\nbound"


def test_plans_of_one_number_of_people_are_drawn_against_epsilon():
    axes = SyntheticControl.plot_plan(1_000, 10, 13, epsilon=[0.5, 1.0, 2.0], delta=1e-6)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.5", "1", "2"]
    assert entries(axes) == ["1,000 people"]


def test_where_there_are_too_few_people_a_curve_has_no_points():
    axes = SparseRegression.plot_plan(
        [2, 40_000], 60, epsilon=2.0, delta=1e-6, n_nonzero=3, selector="sample_aggregate", n_blocks=100
    )
    assert np.isnan(axes.lines[0].get_ydata()).tolist() == [True, False]
    with pytest.raises(ValueError, match="n must be"):
        SparseRegression.plot_plan([-1, 0], 60, epsilon=2.0, n_nonzero=3)


def test_repeats_are_drawn_as_their_mean_and_a_band():
    scores = np.linspace(0.0, 1.0, 22).reshape(11, 2)
    axes = score_curves([1.0, 2.0], scores, exact=0.9, level=0.8)
    np.testing.assert_allclose(axes.lines[1].get_ydata(), scores.mean(0))
    corners = axes.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([corners[:, 1].min(), corners[:, 1].max()], [scores[1, 0], scores[9, 1]])
    assert entries(axes) == ["no privacy", "80% of 11 fits", "dpfast (mean)"]
    assert entries(score_curves([1.0, 2.0], [[0.1, 0.2]])) == ["dpfast"]
    with pytest.raises(ValueError, match="scores must have a column for each of the 3 of x"):
        score_curves([1.0, 2.0, 3.0], scores)


def test_curves_are_against_people_or_epsilon():
    with pytest.raises(ValueError, match="against must be"):
        plan_curves([1.0], {"a": [1.0]}, against="n")
