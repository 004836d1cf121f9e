"""R-squared of exact fits of least squares."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from dpfast import MultiOutcomeRidge, ObjectivePerturbationRegressor, SparseRegression

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-1.0, 1.0, (200, 3)), columns=["a", "b", "c"])
Y = (0.5 + X["a"] - 0.2 * X["b"] + RNG.normal(0.0, 0.3, 200)).rename("days")
WEIGHTS = RNG.exponential(1.0, 200)
BOX = {"a": (-1, 1), "b": (-1, 1), "c": (-1, 1)}


@pytest.mark.parametrize(
    "model",
    [
        ObjectivePerturbationRegressor(math.inf, box_x=BOX, bound_y=3.0),
        ObjectivePerturbationRegressor(math.inf, box_x=BOX, bound_y=3.0, inference=True),
        SparseRegression(math.inf, n_nonzero=2, box_x=BOX),
        MultiOutcomeRidge(math.inf, box_x=BOX, bound_y=3.0),
    ],
)
def test_an_exact_fit_of_least_squares_tells_it(model, tmp_path):
    table = model.fit(X, Y).summary()
    assert table.attrs["r_squared"] == pytest.approx({"days": r2_score(Y, model.predict(X))})
    model.save(tmp_path / "model.json")
    assert type(model).load(tmp_path / "model.json").summary().attrs["r_squared"] == table.attrs["r_squared"]


def test_of_weighted_rows_it_is_weighted():
    model = ObjectivePerturbationRegressor(math.inf, box_x=BOX, bound_y=3.0, max_weight=10.0)
    told = model.fit(X, Y, sample_weight=WEIGHTS).summary().attrs["r_squared"]
    assert told == pytest.approx({"days": r2_score(Y, model.predict(X), sample_weight=WEIGHTS)})


def test_without_an_intercept_it_is_about_zero_in_both_families():
    options = {"box_x": BOX, "bound_y": 3.0, "fit_intercept": False}
    one, other = (cls(math.inf, **options).fit(X, Y) for cls in (ObjectivePerturbationRegressor, MultiOutcomeRidge))
    assert one.summary().attrs["r_squared"] == pytest.approx(other.summary().attrs["r_squared"])


def test_other_losses_and_fits_with_noise_tell_none():
    huber = ObjectivePerturbationRegressor(math.inf, box_x=BOX, bound_y=3.0, loss="huber")
    noisy = SparseRegression(10.0, 1e-3, n_nonzero=1, box_x=BOX, bound_y=3.0)
    for model in (huber, noisy):
        assert "r_squared" not in model.fit(X, Y).summary().attrs


def test_without_noise_no_note_says_that_entries_are_clipped():
    assert "note" not in SparseRegression(math.inf, n_nonzero=1).fit(X, Y).summary().attrs
