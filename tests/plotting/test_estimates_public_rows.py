"""Pictures of classifiers on public rows: what is drawn where."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from dpfast import ObjectivePerturbationClassifier
from dpfast.plotting import calibration, roc

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(1000, 3))


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_calibration_shows_shares_by_probability_with_limits_for_chance():
    true = np.repeat([0, 1, 0, 1], [30, 10, 2, 18])
    axes = calibration(true, np.repeat([0.2, 0.9], [40, 20]), n_bins=4)
    line = axes.lines[-1]
    np.testing.assert_allclose([line.get_xdata(), line.get_ydata()], [[0.2, 0.9], [0.25, 0.9]])
    limits = [binomtest(k, n).proportion_ci(0.95, "wilson") for k, n in ((10, 40), (18, 20))]
    (bars,) = axes.collections
    np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], [[one.low, one.high] for one in limits])


def test_an_area_is_that_below_the_curve():
    true, scores = RNG.integers(0, 2, 200), RNG.normal(size=200)
    assert entries(roc(true, scores, label="one"))[1] == f"one: area {roc_auc_score(true, scores):.3g}"


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_a_classifier_draws_each_of_a_few_classes_and_many_together(n_classes):
    y = np.digitize(X[:, 0], np.linspace(-0.5, 0.5, n_classes + 1)[1:-1])
    model = ObjectivePerturbationClassifier(
        4.0, 1e-6, bound_x=1.0, classes=range(n_classes), random_state=0, fit_intercept=False
    ).fit(X, y)
    curves = 1 if n_classes != 3 else 3
    for axes in (model.plot_roc(X, y), model.plot_calibration(X, y, n_bins=5)):
        assert len(axes.lines) == 1 + curves
    one = model.plot_roc(X, y, positive=1, label="private")
    area = roc_auc_score(y == 1, model.predict_proba(X)[:, 1])
    assert entries(one) == ["as good as chance", f"private: area {area:.3g}"]
    with pytest.raises(ValueError, match="positive must be one of the classes"):
        model.plot_roc(X, y, positive="no")
    with pytest.raises(ValueError, match="y_public must hold declared classes alone"):
        model.plot_roc(X, y + 1)
    with pytest.raises(ValueError, match="y_public must have a label a row, 1000, got 2"):
        model.plot_calibration(X, y[:2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0.5]), "outcomes and scores must be a number a row"),
        (([0, 2], [0.5, 0.5]), "outcomes must be 0 or 1"),
        (([0, 1], [0.5, np.nan]), "scores finite"),
        (([1, 1], [0.5, 0.4]), "outcomes must be of both kinds"),
    ],
)
def test_bad_rows_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        roc(*arguments)


def test_probabilities_must_be_such():
    with pytest.raises(ValueError, match="probabilities must lie between 0 and 1"):
        calibration([0, 1], [0.5, 1.5])
