"""Fitted models as JSON: equal to the bit, and nothing but a model is taken for one."""

import math
import os
from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpfast import Ledger, MultiOutcomeRidge, Privacy
from dpfast._documents import read_document, write_document
from dpfast.ledger.file import is_ledger

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 0.5, size=(500, 3))
Y = X @ RNG.uniform(0.0, 0.5, size=(3, 2))
BOUNDS = {"bound_x": 1.0, "bound_y": 1.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


def same(one, other):
    if isinstance(one, np.ndarray):
        # As texts: errors that are not known are NaN.
        return (one.dtype, one.shape) == (other.dtype, other.shape) and repr(one.tolist()) == repr(other.tolist())
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if hasattr(one, "to_dict"):
        return one.to_dict() == other.to_dict() and all(same(one.values[key], other.values[key]) for key in one.values)
    if is_dataclass(one):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    "model",
    [
        MultiOutcomeRidge(1.0, 1e-6, **BOUNDS),
        MultiOutcomeRidge(1.0, **BOUNDS, ridge=0.1, adjacency="add_remove"),
        MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, fit_intercept=True, nonnegative=True, n_threads=2),
        MultiOutcomeRidge(
            1.0, 1e-6, bound_x=None, bound_y=1.0, box_x=(0.0, np.full(3, 0.5)), random_state=3, fit_intercept=False
        ),
        MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, mechanism="independent"),
        MultiOutcomeRidge(math.inf, **BOUNDS, ridge=0),
    ],
)
@pytest.mark.parametrize("table", [np.asarray, lambda rows: pd.DataFrame(rows).add_prefix("x")])
@pytest.mark.parametrize("outcomes", [Y, Y[:, 0]])
def test_a_model_comes_back_to_the_bit(model, table, outcomes, path):
    model = clone(model).set_params(ledger=Ledger(Privacy(math.inf, 0.1, model.adjacency)))
    model.fit(table(X), outcomes).save(path)
    again = MultiOutcomeRidge.load(path)
    left_out = {"ledger", "random_state"}
    assert vars(again).keys() == vars(model).keys()
    for name, value in vars(model).items():
        assert getattr(again, name) is None if name in left_out else same(value, getattr(again, name)), name
    assert np.array_equal(again.predict(table(X)), model.predict(table(X)))
    first = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == first


def test_an_unfitted_model_comes_back_unfitted(path):
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).save(path)
    with pytest.raises(NotFittedError):
        MultiOutcomeRidge.load(path).predict(X)


def test_parameters_may_have_changed_since_the_fit(path):
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).fit(X, Y).set_params(epsilon=2.0)
    model.save(path)
    again = MultiOutcomeRidge.load(path)
    assert (again.epsilon, again.privacy_spent_.epsilon) == (2.0, 1.0)


def test_neither_seed_nor_ledger_is_written(path):
    ledger = Ledger(Privacy(123456.0, 1e-3))
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, random_state=987654321, ledger=ledger).fit(X, Y).save(path)
    text = path.read_text()
    assert "987654321" not in text
    assert "123456" not in text
    assert MultiOutcomeRidge.load(path).releases_[0].reproducible


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_byte_is_refused(path, step):
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).fit(X, Y).save(path)
    intact = path.read_bytes()
    for position in range(0, len(intact), step):
        path.write_bytes(intact[:position] + bytes([intact[position] ^ 1]) + intact[position + 1 :])
        with pytest.raises(ValueError, match="not an intact dpfast model file"):
            MultiOutcomeRidge.load(path)


def changed(part, **members):
    return lambda content: content[part].update(members)


def without(part, name):
    return lambda content: content[part].pop(name)


ARRAY = {"array": {"dtype": "<f8", "shape": [2, 2], "values": [[1.0, 2.0], [3.0, 4.0]]}}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("fitted"),
        lambda content: content.pop("parameters"),
        lambda content: content.update(estimator="SyntheticControl"),
        lambda content: content.update(parameters=[]),
        lambda content: content.update(fitted=None),
        changed("parameters", unknown=1),
        changed("parameters", ledger=None),
        changed("parameters", epsilon=-1.0),
        changed("parameters", epsilon="1"),
        changed("parameters", mechanism="exact"),
        without("parameters", "bound_y"),
        changed("fitted", predict="something else"),
        changed("fitted", epsilon=0.1),
        changed("fitted", __class__="int"),
        changed("fitted", __dict__={"dict": {}}),
        changed("fitted", coef_=ARRAY),
        changed("fitted", coef_=1.0),
        changed("fitted", coef_={"array": {}}),
        changed("fitted", coef_={"array": ARRAY["array"] | {"dtype": "|O"}}),
        changed("fitted", intercept_={"object": "os.system"}),
        changed("fitted", intercept_={}),
        changed("fitted", ridge_=-1.0),
        changed("fitted", n_features_in_=7),
        changed("fitted", n_features_in_=10**30),
        changed("fitted", privacy_spent_=1.0),
        changed("fitted", privacy_spent_={"privacy": [1.0]}),
        changed("fitted", releases_={"tuple": [1]}),
        changed("fitted", releases_={"tuple": [{"release": {}}]}),
        without("fitted", "coef_std_"),
        without("fitted", "_single_outcome"),
        without("fitted", "releases_"),
    ],
)
def test_a_well_sealed_file_that_is_no_model_is_refused(path, change):
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).fit(X, Y).save(path)
    content = read_document(str(path), "dpfast model", 1)
    change(content)
    write_document(str(path), "dpfast model", 1, content, temporary=f"{path}.tmp")
    with pytest.raises(ValueError, match="valid MultiOutcomeRidge"):
        MultiOutcomeRidge.load(path)


@pytest.mark.parametrize(
    ("fit", "name", "bad"),
    [("squared loss", "coef_", math.nan), ("two classes", "log_odds_", math.nan), ("scaler", "scale_", 0.0)],
)
def test_one_number_that_no_fit_has_is_refused_among_others(path, fit, name, bad):
    model = FITS[fit].new(random_state=0)
    FITS[fit].run(model, *people(60)).save(path)
    content = read_document(str(path), "dpfast model", 1)
    values = content["fitted"][name]["array"]["values"]
    while isinstance(values[-1], list):
        values = values[-1]
    values[-1] = bad
    write_document(str(path), "dpfast model", 1, content, temporary=f"{path}.tmp")
    with pytest.raises(ValueError, match=f"valid {type(model).__name__}: .*{name}"):
        type(model).load(path)


@pytest.mark.parametrize(
    "field", ["name", "epsilon", "mu", "scales", "values", "dtypes", "shapes", "calibration", "time"]
)
@pytest.mark.parametrize("bad", ["", -1.0, {"xx": "bad"}, []])
def test_a_damaged_release_is_refused(path, field, bad):
    from dpfast import Release

    record = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).fit(X, Y).releases_[0].to_dict() | {field: bad}
    if (field, bad) in [("name", ""), ("time", "")]:
        assert Release.from_dict(record).to_dict() == record
        return
    with pytest.raises((ValueError, TypeError)):
        Release.from_dict(record)


def test_a_ledger_is_no_model_and_a_model_no_ledger(path):
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).save(path)
    with pytest.raises(ValueError, match="not an intact dpfast ledger file"):
        Ledger(Privacy(1.0), path)
    ledger = path.with_name("ledger.json")
    Ledger(Privacy(1.0), ledger)
    with pytest.raises(ValueError, match="not an intact dpfast model file"):
        MultiOutcomeRidge.load(ledger)


def test_what_cannot_be_saved_is_named_and_nothing_is_written(path):
    with pytest.raises(TypeError, match="bound_x cannot be saved"):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=object(), bound_y=1.0, fit_intercept=False).save(path)
    with pytest.raises(TypeError, match="path"):
        MultiOutcomeRidge(1.0, 1e-6, **BOUNDS).save(3)
    with pytest.raises(TypeError, match="path"):
        MultiOutcomeRidge.load(None)
    with pytest.raises(FileNotFoundError):
        MultiOutcomeRidge.load(path)
    assert not os.listdir(path.parent)


@pytest.mark.parametrize("how", ["own", "linked", "gone", "another's", "hard-linked"])
def test_a_model_replaces_no_ledger(how, tmp_path):
    model, path = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS), tmp_path / "people"
    ledger = Ledger(Privacy(1.0, 1e-6), path)
    if how in ("own", "linked", "gone"):
        model.ledger = ledger
    if how == "gone":
        path.unlink()
    target = path
    if how in ("linked", "hard-linked"):
        target = tmp_path / "link"
        target.symlink_to(path) if how == "linked" else os.link(path, target)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="path must not be that of a ledger"):
        model.save(target)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
    model.save(tmp_path / "model.json")
    model.save(tmp_path / "model.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_no_ledger_to_wait_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not is_ledger(str(tmp_path / "pipe"))
