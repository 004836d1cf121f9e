import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    PolicyEvaluation,
    PrivateStandardScaler,
    SyntheticControl,
    Trajectories,
)
from dpfast._documents import read_document, write_document
from dpfast.estimator.bounded import outcomes_of
from dpfast.io import Columns, StateEncoder

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-0.5, 0.5, (60, 2)), columns=["age", "dose"], index=[f"p{k}" for k in range(60)])
Y = pd.DataFrame({"days": X["age"], "cost": -X["dose"]})
LABELS = np.where(X["age"] > 0, "home", "ward")


def ridge():
    return MultiOutcomeRidge(float("inf"), bound_x=1.0, bound_y=1.0, fit_intercept=False)


def classifier(classes=("home", "ward")):
    return ObjectivePerturbationClassifier(float("inf"), bound_x=1.0, classes=list(classes), fit_intercept=False)


def test_arrays_are_predicted_unless_frames_are_asked_for():
    model = ridge().fit(X, Y)
    exact = model.predict(X)
    assert type(exact) is np.ndarray
    assert model.set_output() is model
    assert type(model.predict(X)) is np.ndarray
    pd.testing.assert_frame_equal(
        model.set_output(predict="pandas").predict(X[::-1]),
        pd.DataFrame(exact[::-1], index=X.index[::-1], columns=["days", "cost"]),
    )
    assert clone(model).fit(X, Y).predict(X).index.equals(X.index)
    assert model.predict(pl.DataFrame(X.to_numpy(), schema=list(X))).index.equals(pd.RangeIndex(60))
    assert model.set_output(predict="polars").predict(X).equals(pl.DataFrame(exact, schema=["days", "cost"]))
    assert type(model.set_output(predict="default").predict(X)) is np.ndarray


def test_one_outcome_is_a_series_of_its_name():
    model = ridge().set_output(predict="pandas").fit(X, Y["days"])
    predicted = model.predict(X)
    assert (predicted.name, predicted.ndim) == ("days", 1)
    assert predicted.index.equals(X.index)
    assert ridge().set_output(predict="pandas").fit(X, Y["days"].to_numpy()).predict(X).name is None
    assert ridge().set_output(predict="pandas").fit(X, Y.to_numpy()).predict(X).columns.tolist() == [0, 1]
    assert model.set_output(predict="polars").predict(X).name == "days"
    assert model.score(X, Y["days"]) == pytest.approx(1.0)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_columns_without_names_are_numbered_in_every_container(container):
    model = ridge().set_output(predict=container)
    for outcomes, names in ((Y, ["days", "cost"]), (Y.to_numpy(), ["0", "1"]), (Y.to_numpy()[:, :1], ["0"])):
        predicted = model.fit(X, outcomes).predict(X)
        assert [str(name) for name in predicted.columns] == names
        np.testing.assert_array_equal(predicted.to_numpy(), clone(model).fit(X, outcomes).predict(X).to_numpy())


def test_probabilities_and_margins_are_named_by_classes():
    model = classifier().fit(X, LABELS)
    exact, labels = model.predict_proba(X), model.predict(X)
    model.set_output(predict="pandas")
    pd.testing.assert_frame_equal(model.predict_proba(X), pd.DataFrame(exact, X.index, ["home", "ward"]))
    pd.testing.assert_series_equal(model.predict(X), pd.Series(labels, X.index))
    assert model.decision_function(X).index.equals(X.index)
    three = classifier(["home", "ward", "dead"]).fit(X, LABELS).set_output(predict="pandas")
    assert three.decision_function(X).columns.tolist() == ["dead", "home", "ward"]


def test_states_and_periods_are_predicted_by_their_labels():
    walks = Trajectories([0, 1, 1], [0.0, 1.0, 1.0], [0, 2, 3], 2, encoder=StateEncoder(["a", "b"]))
    policy = PolicyEvaluation(float("inf"), gamma=0.9).fit(walks).set_output(predict="pandas")
    assert policy.predict(["b", "a"]).tolist() == [policy.value_[1], policy.value_[0]]
    donors = pd.DataFrame(RNG.uniform(-1, 1, (20, 4)), columns=pd.period_range("1988", periods=4, freq="Y"))
    control = SyntheticControl(float("inf")).fit(donors, 2).set_output(predict="pandas")
    target = pd.DataFrame([[0.1, 0.2], [0.3, 0.4]], index=["Basel", "Bern"], columns=donors.columns[:2])
    assert control.predict(target).index.tolist() == ["Basel", "Bern"]
    one = control.predict(target.loc["Bern"])
    assert (one.name, len(one)) == ("Bern", 2)
    assert one.index.equals(control.predict(target).columns)
    whole = donors.iloc[:2].set_axis(["Basel", "Bern"])
    assert control.effect(whole).index.get_level_values("target").unique().tolist() == ["Basel", "Bern"]
    assert control.summary(whole).loc["Bern", "effect"].notna().all()


def test_scikit_learn_goes_on_with_frames():
    pipeline = make_pipeline(PrivateStandardScaler(float("inf"), box_x=(-1, 1)), ridge().set_output(predict="pandas"))
    assert pipeline.set_output(transform="pandas").fit(X, Y).predict(X).index.equals(X.index)
    assert pipeline[0].transform(X).columns.tolist() == ["age", "dose"]
    assert pipeline[0].transform(X).index.equals(X.index)
    assert isinstance(pipeline.set_output(transform="polars")[0].transform(X), pl.DataFrame)
    assert cross_val_predict(ridge().set_output(predict="pandas"), X, Y).shape == (60, 2)
    search = GridSearchCV(ridge().set_output(predict="pandas"), {"ridge": [0.0, 1.0]}, error_score="raise").fit(X, Y)
    assert search.predict(X).index.equals(X.index)


def test_a_saved_model_keeps_names_and_what_it_returns(tmp_path):
    ridge().set_output(predict="pandas").fit(X, Y).save(tmp_path / "model.json")
    loaded = MultiOutcomeRidge.load(tmp_path / "model.json")
    assert loaded.predict(X).columns.tolist() == ["days", "cost"]
    assert loaded.predict(X).index.equals(X.index)


def test_a_file_cannot_name_what_is_imported(tmp_path):
    path = tmp_path / "model.json"
    ridge().set_output(predict="pandas").fit(X, Y).save(path)
    content = read_document(str(path), "dpfast model", 1)
    content["fitted"]["_sklearn_output_config"] = {"dict": {"predict": "antigravity"}}
    write_document(str(path), "dpfast model", 1, content, temporary=f"{path}.tmp")
    with pytest.raises(ValueError, match="predict must be 'default' or 'pandas' or 'polars'"):
        MultiOutcomeRidge.load(path)
    content["fitted"]["_sklearn_output_config"] = {"dict": {"fit": "pandas"}}
    write_document(str(path), "dpfast model", 1, content, temporary=f"{path}.tmp")
    with pytest.raises(ValueError, match="must say what predictions"):
        MultiOutcomeRidge.load(path)
    assert "antigravity" not in sys.modules


def test_what_is_no_container_and_what_is_not_installed_is_said(monkeypatch):
    with pytest.raises(ValueError, match="predict must be 'default' or 'pandas' or 'polars', got 'arrow'"):
        ridge().set_output(predict="arrow")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"pip install 'dpfast\[polars\]'"):
        ridge().set_output(predict="polars")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (Y, ["days", "cost"]),
        (pl.DataFrame(Y.to_numpy(), schema=["days", "cost"]), ["days", "cost"]),
        (pl.Series("days", [1.0]), ["days"]),
        (Y.rename(columns={"cost": 1}), None),
        (Y.to_numpy(), None),
        ([1.0, 2.0], None),
        (Path("y.npy"), None),
    ],
)
def test_outcomes_have_names_where_all_have_one(given, names):
    found = outcomes_of(X, given)
    assert (found["outcome_names_in_"].tolist() if found else None) == names


def test_outcomes_that_are_declared_with_the_features_have_names_too():
    table = Columns(features=["age"], outcomes=["dose"]).encode(X)
    assert outcomes_of(table, None)["outcome_names_in_"].tolist() == ["dose"]
    assert outcomes_of(X, None) == {}


def test_tables_that_are_no_numbers_yet_are_told_what_makes_them():
    columns, model = Columns(features=["age", "dose"]), ridge().fit(X, Y)
    for rows in ("x.csv", Path("x.csv"), columns.encode(X)):
        with pytest.raises(TypeError, match=r"rows of numbers, got .*Columns\.transform makes them"):
            model.predict(rows)
    with pytest.raises(ValueError, match=r"none of them missing: .*Columns\.transform makes them"):
        model.predict(X.astype(str) + " years")
