"""The strong convexity that regressors choose: what it costs few people, and that it is what is used."""

import warnings

import numpy as np
import pytest

import dpfast
from dpfast import ObjectivePerturbationRegressor, Privacy
from dpfast.convex_erm import regressor
from dpfast.releases.objective_bounds import ObjectivePerturbation, TableLoss
from dpfast.solvers import L2Ball, SmoothedHuber


def _model(n_rows, seed=0, **given):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n_rows, 6)).clip(-3.0, 3.0), rng.normal(1.0, 1.0, n_rows)
    model = ObjectivePerturbationRegressor(1.0, 0.0, box_x=(-3.0, 3.0), bound_y=5.0, random_state=seed, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpfast.UtilityWarning)
        return model.fit(X, y), X


def test_few_people_have_shorter_parameters_rather_than_more_noise():
    errors = []
    for seed in range(6):
        model, X = _model(300, seed, constraint=L2Ball(20.0))
        errors.append(np.mean((model.predict(X) - 1.0) ** 2))
    # 2.0; 25 with the convexity for parameters five times as long.
    assert np.mean(errors) < 6.0


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_convexity_is_chosen_for_shorter_parameters_where_the_number_of_people_is_public(adjacency):
    n_rows = 400
    model, _ = _model(n_rows, loss=SmoothedHuber(1.0), adjacency=adjacency)
    row_map, longest = model._bounded_rows(6)
    table_loss = TableLoss(SmoothedHuber(1.0), longest, 5.0, model._constant(longest), row_map)
    is_public = adjacency == "replace_one"
    bounds = table_loss.bounds(7, None, None, n_rows if is_public else None)
    cost = bounds.typical_excess(0.0, regressor._PREDICTION) if is_public else bounds.typical_excess(0.0)
    expected = ObjectivePerturbation.calibrate(Privacy(1.0, 0.0, adjacency), bounds, cost=cost)
    assert model.ridge_ == expected.ridge
    (release,) = model.releases_
    assert release.privacy == expected.privacy
    assert release.scales == expected.scales
    plan = ObjectivePerturbationRegressor.plan(
        n_rows, 6, epsilon=1.0, delta=0.0, box_x=(-3.0, 3.0), bound_y=5.0, loss=SmoothedHuber(1.0), adjacency=adjacency
    )
    assert plan.notes["strong convexity"] == expected.noise_scales.strong_convexity
