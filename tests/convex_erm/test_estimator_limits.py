"""Classifiers and regressors of columns with declared limits: all that is told is in the units of the columns."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from dpfast import Ledger, ObjectivePerturbationClassifier, ObjectivePerturbationRegressor, Privacy
from dpfast.io import Columns, Number
from dpfast.solvers import L2Ball

LOW, HIGH = np.array([18.0, 0.0, -1.0]), np.array([90.0, 4096.0, 3.0])
BOX = {"dose": (0.0, 4096.0), "age": (18.0, 90.0), "score": (-1.0, 3.0)}
#: Of columns in units of half their widths, about the middle of their limits.
EFFECTS = np.array([0.8, -0.5, 0.4])
MODELS = {
    "two classes": (ObjectivePerturbationClassifier, {"classes": [0, 1], "method": "objective"}),
    "two classes by descent": (ObjectivePerturbationClassifier, {"classes": [0, 1], "method": "gradient"}),
    "three classes": (ObjectivePerturbationClassifier, {"classes": [0, 1, 2], "method": "gradient"}),
    "squares": (ObjectivePerturbationRegressor, {"bound_y": 4.0, "constraint": L2Ball(8.0)}),
    "Huber": (ObjectivePerturbationRegressor, {"bound_y": 4.0, "loss": "huber", "method": "objective"}),
    "Huber by descent": (ObjectivePerturbationRegressor, {"bound_y": 4.0, "loss": "huber"}),
    "a quantile by descent": (ObjectivePerturbationRegressor, {"bound_y": 4.0, "loss": "quantile"}),
    "counts by descent": (ObjectivePerturbationRegressor, {"bound_y": 16.0, "loss": "poisson"}),
}
#: Those with standard errors.
ONE_OUTCOME = [name for name in MODELS if name != "three classes"]


def table(name, n=3_000, seed=0):
    rng = np.random.default_rng(seed)
    scaled = rng.uniform(-1.0, 1.0, (n, 3))
    linear = 0.5 + scaled @ EFFECTS
    if name.startswith("two"):
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * linear))).astype(int)
    elif name == "three classes":
        y = np.digitize(linear, [0.0, 1.0])
    else:
        y = rng.poisson(np.exp(0.5 * linear)) if name.startswith("counts") else linear + 0.2 * rng.normal(size=n)
    rows = (HIGH + LOW) / 2.0 + scaled * (HIGH - LOW) / 2.0
    return pd.DataFrame(np.clip(rows, LOW, HIGH), columns=["age", "dose", "score"]), y


def model(name, epsilon=20.0, **parameters):
    estimator, own = MODELS[name]
    return estimator(epsilon, 1e-6, **{"box_x": BOX, "random_state": 0} | own | parameters)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_fit_does_not_depend_on_the_units_of_its_columns(name, fit_intercept):
    x, y = table(name)
    units = np.array([2.0**-10, 2.0**20, 8.0])
    other = {key: tuple(unit * one for one in BOX[key]) for key, unit in zip(x, units, strict=True)}
    one = model(name, fit_intercept=fit_intercept).fit(x, y)
    two = model(name, fit_intercept=fit_intercept, box_x=other).fit(x * units, y)
    for first, second in zip(one.releases_, two.releases_, strict=True):
        for key, value in first.values.items():
            np.testing.assert_array_equal(value, second.values[key])
    np.testing.assert_allclose(two.coef_ * units, one.coef_, rtol=1e-12)
    np.testing.assert_allclose(two.intercept_, one.intercept_, rtol=1e-12)
    np.testing.assert_allclose(two.predict(x * units), one.predict(x), rtol=1e-12)


@pytest.mark.parametrize("name", ONE_OUTCOME)
def test_with_little_noise_coefficients_are_those_without(name):
    x, y = table(name, 20_000)
    found, exact = model(name, 200.0, ridge="auto").fit(x, y), model(name, math.inf).fit(x, y)
    scale = np.atleast_2d(exact.coef_ * (HIGH - LOW) / 2.0)
    direction = np.atleast_2d(found.coef_ * (HIGH - LOW) / 2.0)
    for one, other in zip(direction, scale, strict=True):
        assert one @ other > 0.99 * np.linalg.norm(one) * np.linalg.norm(other)
    if isinstance(found, ObjectivePerturbationRegressor):
        np.testing.assert_allclose(direction, scale, atol=0.05 * np.abs(scale).max())
        middle = pd.DataFrame([(HIGH + LOW) / 2.0], columns=x.columns)
        np.testing.assert_allclose(found.predict(middle), exact.predict(middle), atol=0.1)


@pytest.mark.parametrize("name", ONE_OUTCOME)
def test_without_noise_estimates_and_errors_are_those_of_rows_as_they_come(name):
    x, y = table(name, 1_000)
    options = {"inference": True} | ({"constraint": L2Ball(1e4)} if name == "squares" else {})
    one = model(name, math.inf, **options).fit(x, y)
    plain = (x - (HIGH + LOW) / 2.0) / [40.0, 2_000.0, 2.0]
    two = model(name, math.inf, **options | {"box_x": None, "bound_x": 2.0}).fit(plain, y)
    units = np.array([40.0, 2_000.0, 2.0])
    np.testing.assert_allclose(one.estimate_[1:] * units, two.estimate_[1:], rtol=1e-5)
    errors = [np.sqrt(np.diag(each.covariance_)) for each in (one, two)]
    np.testing.assert_allclose(errors[0][1:] * units, errors[1][1:], rtol=1e-5)
    # The intercept is that of rows of zeros, which lie far from the middle.
    at = np.append(1.0, -(HIGH + LOW) / 2.0 / units)
    assert one.estimate_[0] == pytest.approx(at @ two.estimate_, rel=1e-5)
    assert errors[0][0] == pytest.approx(math.sqrt(at @ two.covariance_ @ at), rel=1e-5)
    table_of = one.summary()
    np.testing.assert_array_equal(table_of["estimate"], one.estimate_)


@pytest.mark.parametrize("name", ONE_OUTCOME)
def test_limits_with_noise_hold_what_they_name(name):
    """Six standard errors, which normal ones exceed in 2e-9 of cases: those of units that are off are far beyond."""
    x, y = table(name, 20_000)
    options = {"inference": True} | ({"constraint": L2Ball(1e3)} if name == "squares" else {})
    exact = model(name, math.inf, **options).fit(x, y).estimate_
    found = model(name, 20.0, **options).fit(x, y)
    errors = np.sqrt(np.diag(found.covariance_))
    assert np.isfinite(errors).all()
    assert np.all(np.abs(found.estimate_ - exact) < 6.0 * errors)
    assert np.all(errors[1:] * (HIGH - LOW) / 2.0 < 0.3)


@pytest.mark.parametrize("name", ["two classes", "two classes by descent", "three classes"])
def test_rows_are_clipped_to_their_limits_in_fits_and_in_predictions(name, tmp_path):
    x, y = table(name)
    far = x.copy()
    far.loc[x["age"] > 60.0, "age"] = 1e6
    held = far.clip(LOW, HIGH, axis=1)
    one, two = model(name).fit(far, y), model(name).fit(held, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.predict_proba(far), one.predict_proba(held))
    one.save(tmp_path / "model.json")
    loaded = type(one).load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict_proba(far), one.predict_proba(far))
    loaded._limits_ = loaded._limits_[:, :2]
    with pytest.raises(ValueError, match="_limits_ must be an array"):
        loaded._check_loaded()


def test_limits_by_name_are_those_in_order_and_of_declared_columns():
    x, y = table("Huber")
    columns = Columns([Number(name, low=low, high=high) for name, (low, high) in BOX.items()], [Number("y")])
    one = model("Huber").fit(x[list(BOX)], y)
    two = model("Huber", box_x=columns.box).fit(x[list(BOX)].to_numpy(), y)
    three = model("Huber", box_x=columns.box).fit(columns.encode(x.assign(y=y)))
    for other in (two, three):
        np.testing.assert_array_equal(other.coef_, one.coef_)
    both = model("Huber", bound_x=100.0).fit(x, y)
    assert both.coef_.shape == (3,)


@pytest.mark.parametrize("name", MODELS)
def test_plans_take_limits(name):
    estimator, own = MODELS[name]
    plans = [
        estimator.plan(5_000, 3, epsilon=1.0, delta=1e-6, **{"box_x": box} | own)
        for box in (BOX, {key: (8.0 * low, 8.0 * high) for key, (low, high) in BOX.items()}, (0.0, 1.0))
    ]
    assert plans[0].expected_error == plans[1].expected_error
    assert plans[2].expected_error == pytest.approx(plans[0].expected_error, rel=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"box_x": "private"}, "box_x must be limits, got 'private': private_bounds(X, ..., box=True)"),
        ({"bound_x": "private"}, "bound_x must be a number, or be left out, with box_x"),
        ({"box_x": {"age": (0.0, 1.0)}}, "box_x must have every column of X, once: it has 1, and X has 3"),
        ({"box_x": ([0.0, 1.0], [1.0, 2.0])}, "box_x is ambiguous"),
        ({"box_x": (np.zeros(2), np.ones(2))}, "box_x must have a low and a high for each of 3 features"),
        ({"box_x": (1.0, 0.0)}, "box_x's low must be at most its high"),
    ],
    ids=str,
)
def test_other_limits_are_refused_before_anything_is_spent(parameters, message):
    x, y = table("Huber")
    one = model("Huber", **parameters)
    with pytest.raises(ValueError, match=re.escape(message)):
        one.fit(x, y)
    assert not hasattr(one, "releases_")


@pytest.mark.parametrize("half_width", [5e-324, 1e40, 1e100])
@pytest.mark.parametrize("name", MODELS)
def test_limits_that_are_too_wide_or_too_narrow_for_a_bound_are_refused_before_anything_is_spent(name, half_width):
    x, y = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 3)) * half_width, np.arange(100) % 2
    ledger, box = Ledger(Privacy(20.0, 1e-6)), (np.full(3, -half_width), np.full(3, half_width))
    for inference in {False, name in ONE_OUTCOME}:
        one = model(name, box_x=box, bound_x=1.0, inference=inference, random_state=None, ledger=ledger)
        with pytest.raises(ValueError, match=r"^the length of rows within bound_x and box_x"):
            one.fit(x, y)
    assert ledger.spent.epsilon == 0.0


@pytest.mark.parametrize("column", ["age", "y"])
@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_what_is_no_number_is_refused_by_the_name_of_its_column(loss, column):
    x, y = table("Huber", 100)
    frame = x.assign(y=y)
    frame.loc[99, column] = np.nan
    rows = Columns(list(x), ["y"]).encode(frame)
    ledger = Ledger(Privacy(20.0, 1e-6))
    shared = {"bound_y": 4.0, "constraint": L2Ball(8.0), "max_weight": 1.0, "random_state": None, "ledger": ledger}
    for weights in (None, np.ones(100)):
        with pytest.raises(ValueError, match=f"^column '{column}' has missing entries"):
            model("squares", loss=loss, **shared).fit(rows, sample_weight=weights)
    assert ledger.spent.epsilon == 0.0
