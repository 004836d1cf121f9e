"""Pictures of coefficients: what is drawn where."""

import numpy as np
import pytest

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    SparseRegression,
)
from dpfast.plotting import coefficients


def bars(axes):
    """Ends of the horizontal bars, a list for each kind and series."""
    return [np.array([bar[:, 0] for bar in one.get_segments()]) for one in axes.collections]


def test_coefficients_are_drawn_with_both_kinds_of_limits_a_series_an_outcome():
    values = np.array([[0.1, -0.5], [0.2, 0.0]])
    noise, total = (values - 0.1, values + 0.2), (values - 0.3, values + 0.4)
    axes = coefficients(["age", "smoker"], ["days", "cost"], values, noise=noise, total=total)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "95% limits: noise and sampling",
        "95% limits: privacy noise",
        "days",
        "cost",
    ]
    points = {line.get_label(): line for line in axes.lines}
    for k, outcome in enumerate(("days", "cost")):
        np.testing.assert_array_equal(points[outcome].get_xdata(), values[k])
        np.testing.assert_allclose(bars(axes)[2 * k], np.c_[total[0][k], total[1][k]])
        np.testing.assert_allclose(bars(axes)[2 * k + 1], np.c_[noise[0][k], noise[1][k]])
    # The first feature is on top, and no series is on another.
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert not set(points["days"].get_ydata()) & set(points["cost"].get_ydata())


def test_of_many_features_the_largest_coefficients_are_drawn_in_their_order():
    values = np.zeros((1, 200))
    values[0, 7::5] = 1.0 + np.arange(39)
    values[0, 3] = -100.0
    axes = coefficients([f"f{j}" for j in range(200)], ["y"], values)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["f3", *(f"f{j}" for j in range(7, 200, 5))]
    assert axes.get_ylabel() == "the 40 largest of 200"


def test_coefficients_of_many_outcomes_are_a_map_about_zero():
    values = np.arange(10.0).reshape(5, 2) - 2.0
    axes = coefficients(["a", "b"], list("vwxyz"), values, total=(values - 2.5, values + 2.5))
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), values)
    assert image.get_clim() == (-7.0, 7.0)
    assert [label.get_text() for label in axes.get_yticklabels()] == list("vwxyz")
    (crossed,) = axes.lines
    assert list(zip(crossed.get_xdata(), crossed.get_ydata(), strict=True)) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]
    with pytest.raises(ValueError, match="a map shows one fit"):
        coefficients(["a", "b"], list("vwxyz"), values, ax=axes)


def test_a_second_fit_finds_the_rows_of_the_first():
    axes = coefficients(["a", "b"], [""], [[1.0, 2.0]], label="one")
    coefficients(["c", "b"], [""], [[3.0, 4.0]], label="two", ax=axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    one, two = (next(line for line in axes.lines if line.get_label() == name) for name in ("one", "two"))
    assert np.round(one.get_ydata()).tolist() == [0.0, 1.0]
    assert np.round(two.get_ydata()).tolist() == [2.0, 1.0]
    assert one.get_color() != two.get_color()
    assert one.get_marker() != two.get_marker()


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(4000, 3))
    return X, X @ [0.5, -0.3, 0.0] + 0.1 * rng.normal(size=4000)


def test_a_regression_shows_limits_for_noise_and_where_it_is_known_for_sampling(table):
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, random_state=0, fit_intercept=False).fit(
        *table
    )
    limits = model.summary(target="least_squares", level=0.8)
    axes = model.plot(level=0.8, feature_names=["a", "b", "c"], reference=[[0.5, -0.3, 0.0]], unit="days")
    np.testing.assert_allclose(bars(axes)[0], limits[["low", "high"]].to_numpy())
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["80% limits: privacy noise", "public value"]
    both = bars(model.plot(level=0.8, residual_std=0.1))
    limits = model.summary(target="population", level=0.8, residual_std=0.1)
    np.testing.assert_allclose(both[0], limits[["low", "high"]].to_numpy())
    assert len(both) == 2
    # Without noise, sampling is what is left.
    exact = MultiOutcomeRidge(float("inf"), bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(*table).plot()
    assert [text.get_text() for text in exact.get_legend().get_texts()] == ["95% limits: noise and sampling"]
    with pytest.raises(ValueError, match="feature_names must be 3 names, got 2"):
        model.plot(feature_names=["a", "b"])


def test_other_coefficients_are_drawn_as_they_were_released(table):
    X, y = table
    sparse = SparseRegression(1.0, 1e-6, n_nonzero=2, random_state=0).fit(X, y)
    axes = sparse.plot(feature_names=["a", "b", "c"])
    assert [label.get_text() for label in axes.get_yticklabels()] == np.array(["a", "b", "c"])[sparse.support_].tolist()
    classes = {"classes": ["no", "yes"], "bound_x": 1.0, "random_state": 0}
    model = ObjectivePerturbationClassifier(1.0, 1e-6, **classes).fit(X, np.where(y > 0, "yes", "no"))
    axes = model.plot()
    assert axes.get_title() == "yes against no"
    np.testing.assert_array_equal(axes.lines[-1].get_xdata(), model.coef_[0])


@pytest.mark.parametrize(
    ("family", "declared"),
    [
        (ObjectivePerturbationClassifier, {"classes": [0, 1], "inference": True}),
        (ObjectivePerturbationRegressor, {"bound_y": 1.0, "loss": "huber", "inference": True}),
        (SparseRegression, {"bound_y": 1.0, "n_nonzero": 2}),
    ],
)
def test_a_feature_in_a_small_unit_flattens_no_other_of_any_estimator(family, declared):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(18, 90, 5_000), rng.integers(0, 2, 5_000)])
    y = (x[:, 0] + rng.normal(0.0, 30.0, 5_000) > 54.0).astype(float)
    model = family(3.0, 1e-6, box_x=([18, 0], [90, 1]), random_state=0, **declared).fit(x, y)
    axes = model.plot(reference=[0.0, 0.25])
    assert axes.get_xlabel().startswith("coefficient for the whole range")
    estimate = model.summary()["estimate"].to_numpy()[-2:]
    drawn = np.concatenate([np.ravel(line.get_xdata()) for line in axes.lines])
    for value in (*estimate * [72.0, 1.0], 0.25):
        assert np.min(np.abs(drawn - value)) < 1e-9


def test_a_feature_of_which_nothing_is_known_is_said_to_be_hidden():
    values = np.array([[0.1, np.nan, np.nan], [0.2, 0.3, np.nan]])
    axes = coefficients(["age", "smoker", "dose"], ["days", "cost"], values)
    (said,) = [text for text in axes.texts if text.get_text() == "hidden by noise"]
    assert said.get_position()[1] == 2.0
    many = np.full((5, 2), np.nan)
    many[0] = 0.5
    cells = coefficients(["age", "smoker"], [f"outcome {k}" for k in range(5)], many).patches
    assert len([one for one in cells if one.get_hatch()]) == 8
    assert cells[0].get_label() == "hidden by noise"
