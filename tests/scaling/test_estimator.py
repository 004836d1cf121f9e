"""Standardising: near scikit-learn's own, in pipelines, saved and loaded, paid for."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy, PrivateStandardScaler
from dpfast.privacy import UtilityWarning

BOX = ([0.0, 0.0, -5.0], [120.0, 1.0, 5.0])


def table(n=20_000):
    rng = np.random.default_rng(0)
    return np.column_stack([rng.uniform(18.0, 100.0, n), rng.integers(0, 2, n), rng.normal(size=n)])


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("box", [BOX, "private"])
def test_it_is_near_the_exact_one(adjacency, box):
    x = table()
    found = PrivateStandardScaler(1.0, 1e-6, box_x=box, adjacency=adjacency, random_state=0).fit(x)
    exact = StandardScaler().fit(x)
    assert np.abs((found.mean_ - exact.mean_) / exact.scale_).max() < 0.03
    assert np.abs(found.scale_ / exact.scale_ - 1.0).max() < 0.05
    np.testing.assert_allclose(found.inverse_transform(found.transform(x)), x, atol=1e-12)


def test_without_noise_it_is_the_textbook_one():
    x = table(200)
    found, exact = PrivateStandardScaler(math.inf, box_x=BOX).fit(x), StandardScaler().fit(x)
    np.testing.assert_allclose(found.transform(x), exact.transform(x), atol=1e-12)
    constant = np.ones((5, 2))
    assert PrivateStandardScaler(math.inf, box_x=(0, 1)).fit(constant).scale_.tolist() == [1.0, 1.0]


def test_a_pipeline_pays_for_both_from_one_ledger():
    x = table()
    y = x @ [0.01, 1.0, 0.3]
    ledger = Ledger(Privacy(2.0, 1e-5))
    scaler = PrivateStandardScaler(0.5, 1e-6, box_x=BOX, ledger=ledger)
    ridge = MultiOutcomeRidge(1.0, 1e-6, bound_x=3.0, bound_y=4.0, fit_intercept=True, ledger=ledger)
    model = make_pipeline(scaler, ridge).fit(x, y)
    assert model.score(x, y) > 0.8
    assert {one.name.partition(":")[0] for one in ledger.releases} == {"PrivateStandardScaler", "MultiOutcomeRidge"}


def test_parts_can_be_left_out():
    x = table()
    options = {"box_x": BOX, "random_state": 0}
    both = PrivateStandardScaler(1.0, 1e-6, **options).fit(x)
    no_mean = PrivateStandardScaler(1.0, 1e-6, with_mean=False, **options).fit(x)
    no_std = PrivateStandardScaler(1.0, 1e-6, with_std=False, **options).fit(x)
    np.testing.assert_array_equal(no_mean.transform(x), x / both.scale_)
    np.testing.assert_array_equal(no_std.transform(x), x - both.mean_)


def test_a_feature_that_does_not_vary_is_divided_by_what_noise_may_hide():
    x = np.column_stack([np.full(10_000, 0.5), np.random.default_rng(0).uniform(size=10_000)])
    found = PrivateStandardScaler(1.0, 1e-6, box_x=(0.0, 1.0), random_state=1).fit(x)
    assert 0.0 < found.scale_[0] < 0.1


def test_names_of_columns_are_kept_and_models_are_saved(tmp_path):
    frame = pd.DataFrame(table(500), columns=["age", "smoker", "score"])
    model = PrivateStandardScaler(1.0, 1e-6, box_x=BOX).fit(frame)
    assert model.get_feature_names_out().tolist() == ["age", "smoker", "score"]
    model.save(tmp_path / "scaler.json")
    loaded = PrivateStandardScaler.load(tmp_path / "scaler.json")
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    vars(loaded)["scale_"] = np.zeros(3)
    with pytest.raises(ValueError, match="scale_"):
        loaded._check_loaded()


def test_bad_limits_are_refused_and_nothing_is_spent():
    ledger = Ledger(Privacy(1.0, 1e-6))
    for box, match in (((1.0, 0.0), "low"), (([0.0] * 4, 1.0), "3 features"), ("public", "box_x"), (None, "box_x")):
        with pytest.raises((TypeError, ValueError), match=match):
            PrivateStandardScaler(1.0, 1e-6, box_x=box, ledger=ledger).fit(table(50))
    with pytest.raises(ValueError, match="no rows"):
        PrivateStandardScaler(1.0, 1e-6, box_x=BOX, ledger=ledger).fit(np.empty((0, 3)))
    assert ledger.spent.epsilon == 0.0


def test_a_plan_is_what_the_noise_does_to_a_mean():
    plan = PrivateStandardScaler.plan(1000, 4, epsilon=1.0, delta=1e-6, box_x=(0.0, 1.0))
    x = np.random.default_rng(0).uniform(size=(1000, 4))
    means = [PrivateStandardScaler(1.0, 1e-6, box_x=(0.0, 1.0)).fit(x).mean_ for _ in range(200)]
    # A standard deviation of 800 numbers: 2.5% of its own, so that 15% are six of them.
    assert np.std(np.array(means) - x.mean(axis=0)) == pytest.approx(0.5 * plan.expected_error, rel=0.15)
    assert PrivateStandardScaler.plan(plan.needed_n, 4, epsilon=1.0, delta=1e-6, box_x=(0, 1)).expected_error <= 0.01


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_errors_of_means_are_those_of_the_noise(adjacency):
    """The spread over 200 seeds has a standard error of 5%, a quarter of what is allowed."""
    rows = np.random.default_rng(0).uniform(0.9, 1.0, (500, 2)) * [1.0, 20.0]
    options = {"box_x": ([0, 0], [1, 20]), "adjacency": adjacency}
    fits = [PrivateStandardScaler(2.0, 1e-6, random_state=seed, **options).fit(rows) for seed in range(200)]
    spread = np.std([fit.mean_ for fit in fits], axis=0)
    np.testing.assert_allclose(spread, np.mean([fit.mean_std_ for fit in fits], axis=0), rtol=0.2)
    table = fits[0].summary(level=0.99)
    np.testing.assert_allclose(table["high"] - table["low"], 2.0 * 2.5758 * table["std_privacy"], rtol=1e-4)


@pytest.mark.parametrize("spoilt", [0.0, -1.0])
def test_a_file_with_one_scale_that_is_not_positive_is_refused(spoilt):
    scaler = PrivateStandardScaler(1.0, 1e-6, box_x=BOX, random_state=0).fit(table(200))
    scaler.scale_[1] = spoilt
    with pytest.raises(ValueError, match="scale_ must be positive"):
        scaler._check_fitted()


def test_a_fit_without_noise_states_its_delta():
    (release,) = PrivateStandardScaler(math.inf, 1e-6, box_x=BOX).fit(table(20)).releases_
    assert release.privacy == Privacy(math.inf, 1e-6)


@pytest.mark.parametrize("y", [pd.Series(np.ones(3), index=[2, 1, 0]), np.ma.masked_array(np.ones(3), [True] * 3)])
def test_what_is_wrong_with_outcomes_is_said_once_the_cost_is_held(y):
    spent, ledger = Ledger(Privacy(1.0, 1e-6)), Ledger(Privacy(1.0, 1e-6))
    spent.reserve(Privacy(1.0, 1e-6))
    for books, error in ((spent, BudgetExceeded), (ledger, (TypeError, ValueError))):
        with pytest.raises(error) as told:
            PrivateStandardScaler(1.0, 1e-6, box_x=(0.0, 1.0), ledger=books).fit(pd.DataFrame(np.ones((3, 2))), y)
        assert isinstance(told.value, BudgetExceeded) == (books is spent)
    assert ledger.costs == ()


def test_amounts_beyond_the_largest_private_limit_are_scaled_within_declared_ones():
    x = 1e13 * np.random.default_rng(0).uniform(-1.0, 1.0, (5_000, 1))
    scaler = PrivateStandardScaler(1.0, 1e-6, box_x=(-1e13, 1e13), random_state=0).fit(x)
    np.testing.assert_allclose(scaler.scale_, x.std(axis=0), rtol=0.05)


@pytest.mark.parametrize("parts", [{}, {"with_mean": False}, {"with_std": False}])
@pytest.mark.parametrize("epsilon", [0.01, 4.0])
def test_nothing_is_left_of_features_whose_entries_cannot_be_told_from_noise(epsilon, parts):
    rng = np.random.default_rng(0)
    # Amounts of many sizes, by everybody or by few: there is nothing to see of 600 people.
    x = np.column_stack([np.exp(rng.uniform(-20.0, 20.0, 600)), rng.normal(size=600)])
    scaler = PrivateStandardScaler(epsilon, 1e-6, box_x="private", random_state=0, **parts)
    with pytest.warns(UtilityWarning, match="nobody beyond the noise"):
        scaler.fit(x)
    unseen = ~np.any(scaler.box_x_, axis=0)
    assert unseen.tolist() == [True, epsilon < 1.0]
    assert np.abs(scaler.transform(x)[:, unseen]).max() < 1e-3
    assert np.isnan(scaler.var_).tolist() == unseen.tolist()
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(x)), x, atol=1e-6)
    again = pickle.loads(pickle.dumps(scaler))
    np.testing.assert_array_equal(again.transform(x), scaler.transform(x))
