"""What every family's jobs say of a fit: the numbers of the estimator itself, by name."""

import math
import warnings

import numpy as np
import pytest
from scipy import special

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    SparseRegression,
    SyntheticControl,
    Trajectories,
    UtilityWarning,
)
from dpfast.convex_erm.job import Classifier, Regressor
from dpfast.datasets import chain_trajectories, synthetic_control_panel
from dpfast.multi_outcome.job import MultiOutcome
from dpfast.policy_evaluation.job import Evaluation
from dpfast.sparse_regression.job import Sparse
from dpfast.synthetic_control.job import LEVEL, Control

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(2_000, 3))
FEATURES = ["age", "smoker", "dose"]


def lengths(table):
    return {len(column) for column in table.values()}


def test_classes_and_the_side_that_coefficients_speak_for():
    y = np.where(X[:, 0] > 0, "yes", "no")
    two = ObjectivePerturbationClassifier(5.0, 1e-6, bound_x=1.0, classes=["no", "yes"], fit_intercept=True).fit(X, y)
    tables = Classifier().tables(two, FEATURES, ["y"])
    assert tables["classes"] == {"class": ["no", "yes"], "weight": [1.0, 1.0]}
    assert tables["coefficients"]["class"] == ["yes"] * 4
    assert tables["coefficients"]["feature"] == ["(intercept)", *FEATURES]
    assert tables["coefficients"]["estimate"] == [*two.intercept_, *two.coef_[0]]
    assert ("classes", "yes (where the score is positive) against no") in Classifier().facts(two)
    three = ObjectivePerturbationClassifier(
        5.0, 1e-6, bound_x=1.0, classes=[2, 0, 1], method="gradient", class_weight={0: 0.5}, fit_intercept=False
    ).fit(X, np.digitize(X[:, 0], [-0.2, 0.2]))
    tables = Classifier().tables(three, FEATURES, ["y"])
    assert tables["classes"] == {"class": [0, 1, 2], "weight": [0.5, 1.0, 1.0]}
    assert tables["coefficients"]["class"] == np.repeat([0, 1, 2], 3).tolist()
    assert tables["coefficients"]["estimate"] == three.coef_.ravel().tolist()
    axes = Classifier().figures(three, FEATURES, ["y"])["coefficients"]
    drawn = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert [drawn[label] for label in "012"] == three.coef_.tolist()


def test_coefficients_of_one_outcome():
    model = ObjectivePerturbationRegressor(5.0, 1e-6, bound_x=1.0, bound_y=1.0, loss="huber", fit_intercept=False).fit(
        X, X @ [0.5, 0.0, -0.3]
    )
    table = Regressor().tables(model, FEATURES, ["days"])["coefficients"]
    assert table == {"outcome": ["days"] * 3, "feature": FEATURES, "estimate": model.coef_.tolist()}
    assert Regressor().figures(model, FEATURES, ["days"])["coefficients"].get_title() == "days"


def test_standard_errors_that_were_paid_for():
    """As in summary(); empty where noise hides a feature, and for the intercept beside it."""
    x = np.column_stack([X, 1e-6 * X[:, 0]])
    y = np.where(X[:, 0] + RNG.logistic(size=len(X)) > 0, "yes", "no")
    model = ObjectivePerturbationClassifier(
        20.0, 1e-6, bound_x=1.0, classes=["no", "yes"], fit_intercept=True, inference=True
    ).fit(x, y)
    table = Classifier().tables(model, [*FEATURES, "tiny"], ["y"])["coefficients"]
    summary = model.summary()
    for name in ("estimate", "std_error", "low", "high", "p_value", "odds_ratio", "odds_ratio_low"):
        assert table[name] == [None if math.isnan(value) else value for value in summary[name]]
    assert [row for row, error in enumerate(table["std_error"]) if error is None] == [0, 4]
    assert lengths(table) == {5}
    assert ("standard errors", "of 3 of 5 coefficients, as noise hides others") in Classifier().facts(model)
    axes = Classifier().figures(model, [*FEATURES, "tiny"], ["y"])["coefficients"]
    assert "95% limits: noise and sampling" in [text.get_text() for text in axes.get_legend().get_texts()]
    model.estimate_ = np.ones(5)
    assert ("standard errors", "of 5 of 5 coefficients") in Classifier().facts(model)


def test_the_error_of_a_regression_is_said_to_be_no_smaller_than_it_is():
    """Also where noise hides most directions of correlated features: there less than a third of it was said."""
    said, made = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = math.sqrt(0.4) * rng.normal(size=(3_000, 16)) + math.sqrt(0.6) * rng.normal(size=(3_000, 1))
        theta = 0.05 * rng.normal(size=16)
        model = MultiOutcomeRidge(1.0, 1e-6, bound_x=12.0, bound_y=4.0, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            model.fit(x, x @ theta + rng.normal(size=3_000))
        xx = 0.4 * np.eye(16) + 0.6
        off = model.coef_[0] - theta
        said.append(float(dict(MultiOutcome().facts(model))["error as released"].split()[1]))
        made.append(off @ xx @ off / (theta @ xx @ theta))
    assert np.median(said) > 0.7 * np.median(made)
    assert np.median(said) < 1.0


def test_a_support_and_its_coefficients():
    model = SparseRegression(20.0, 1e-6, n_nonzero=2, bound_x=1.0, bound_y=1.0).fit(X, X @ [0.9, 0.0, -0.9])
    tables = Sparse().tables(model, FEATURES, ["days"])
    chosen = [FEATURES[j] for j in model.support_]
    assert tables["support"] == {"number": model.support_.tolist(), "feature": chosen}
    table = tables["coefficients"]
    estimates = [model.intercept_, *model.coef_[model.support_].tolist()]
    assert table == {"outcome": ["days"] * 3, "feature": ["(intercept)", *chosen], "estimate": estimates}
    assert Sparse().facts(model) == [("features chosen", "2 of 3")]
    axes = Sparse().figures(model, FEATURES, ["days"])["coefficients"]
    assert [label.get_text() for label in axes.get_yticklabels()] == chosen


def test_values_of_states_and_their_noise():
    walks = Trajectories(*chain_trajectories(2_000, n_states=10, seed=0))
    model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, horizon=20).fit(walks)
    states = [f"s{k}" for k in range(len(model.value_))]
    tables = Evaluation().tables(model, states)
    assert tables["values"]["state"] == states
    np.testing.assert_array_equal(tables["values"]["std_error"], model.value_std_)
    axes = Evaluation().figures(model, states)["values"]
    assert [label.get_text() for label in axes.get_xticklabels()] == states
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), model.value_)
    (limits,) = axes.collections
    reach = special.ndtri(0.975) * model.value_std_
    np.testing.assert_allclose([bar[1, 1] for bar in limits.get_segments()], model.value_ + reach)
    assert "error as released" in dict(Evaluation().facts(model))
    features = np.c_[np.ones(len(states)), np.arange(len(states))]
    weighed = PolicyEvaluation(1.0, 1e-6, gamma=0.9, horizon=20, method="lsw", features=features).fit(walks)
    assert not Evaluation().figures(weighed, states)["values"].collections
    assert "std_privacy" not in Evaluation().tables(weighed, states)["values"]
    assert Evaluation().tables(weighed, states)["coefficients"]["estimate"] is weighed.coef_


@pytest.fixture(scope="module")
def panel():
    donors, target, _ = synthetic_control_panel(2_000, 10, seed=0)
    return donors, target


def test_effects_paths_and_placebos_of_targets(panel):
    donors, target = panel
    both = np.vstack([target, target - 0.1])
    model = SyntheticControl(1.0, 1e-6, placebo_share=0.1).fit(donors, 10, both)
    names = ["Bern", "Basel"]
    tables = Control().tables(model, names)
    assert set(tables) == {"effects", "effect_summary", "paths", "placebo", "placebo_ranks", "coefficients", "center"}
    assert all(len(lengths(table)) == 1 for table in tables.values())
    effects = model.effect(both, level=LEVEL)
    n_post = model.n_post_
    assert list(tables["effects"]["target"]) == ["Bern"] * n_post + ["Basel"] * n_post
    for name in ("observed", "counterfactual", "effect", "cumulative", "percent", "low", "high"):
        np.testing.assert_array_equal(tables["effects"][name], effects[name])
    earlier = max(10 - n_post, 1) if n_post < 10 else 5
    np.testing.assert_array_equal(tables["placebo"]["effect"], model.placebo(earlier, both)["effect"])
    np.testing.assert_array_equal(tables["placebo_ranks"]["p_value"], model.placebo_ranks(both)["p_value"])
    assert tables["paths"]["observed"] == both.ravel().tolist()
    after = [k for k in range(2 * both.shape[1]) if k % both.shape[1] >= 10]
    assert [tables["paths"]["estimate"][k] for k in after] == model.predict(both[:, :10]).ravel().tolist()
    figures = Control().figures(model, names)
    assert list(figures) == ["path-1", "gap-1", "path-2", "gap-2"]
    assert figures["gap-2"].get_title() == "Basel"
    assert "root mean squared error before the intervention" in dict(Control().facts(model))


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_weights_for_one_target(mechanism, panel):
    donors, target = panel
    model = SyntheticControl(20.0, 1e-6, mechanism=mechanism).fit(donors[:50], 10, target)
    tables = Control().tables(model, ["Bern"])
    assert set(tables) == {"effects", "effect_summary", "paths", "weights"}
    np.testing.assert_array_equal(tables["weights"]["estimate"], model.weights_)
    assert ("low" in tables["effects"]) == (mechanism == "output")
    assert tables["paths"]["estimate"][:10] == [None] * 10
    assert list(Control().figures(model, ["Bern"])) == ["path", "gap"]


def test_without_targets_or_their_later_periods(panel):
    donors, target = panel
    model = SyntheticControl(1.0, 1e-6).fit(donors, 10)
    assert set(Control().tables(model, [])) == {"coefficients", "center"}
    assert Control().figures(model, []) == {}
    early = SyntheticControl(1.0, 1e-6).fit(donors, 10, target[:10])
    tables = Control().tables(early, ["Bern"])
    assert set(tables) == {"paths", "placebo", "coefficients", "center"}
    assert tables["paths"]["observed"][10:] == [None] * early.n_post_
    assert None not in tables["paths"]["estimate"]
    assert Control().figures(early, ["Bern"]) == {}
