"""Bounds that are found within the budget: what is spent, what the rest of a fit does with them, what is refused."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    SparseRegression,
    UtilityWarning,
    private_bounds,
)
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.releases.size_counts import NoisySizes
from dpfast.solvers import L2Ball
from dpfast.statistics import gram

PRIVATE = {"bound_x": "private", "bound_y": "private"}


def table(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(18.0, 100.0, n), rng.integers(0, 2, n), 1e-3 * rng.normal(size=n)])
    return x, 0.1 * x[:, 0] + 4.0 * x[:, 1] + rng.normal(size=n)


def unit_table(n=20_000):
    x = np.random.default_rng(0).normal(size=(n, 4))
    return x, x @ [0.5, 0.0, -0.8, 0.0]


def test_a_fit_in_a_box_that_is_found_explains_features_of_any_units():
    x, y = table()
    model = MultiOutcomeRidge(
        1.0, 1e-5, bound_x=None, bound_y="private", box_x="private", fit_intercept=True, random_state=0
    )
    model.fit(x, y)
    exact = MultiOutcomeRidge(math.inf, bound_x=1.0, bound_y=1.0, fit_intercept=True).fit(x, y)
    assert exact.score(x, y) - model.score(x, y) < 0.06
    assert model.box_x_[:, :2].tolist() == [[16.0, 0.0], [128.0, 1.0]]
    assert 0.5 < model.bound_y_ / np.quantile(abs(y), 0.99) < 2.0


def test_both_releases_keep_to_one_budget_in_one_ledger():
    x, y = unit_table()
    ledger = Ledger(Privacy(1.0, 1e-6))
    model = MultiOutcomeRidge(1.0, 1e-6, **PRIVATE, ledger=ledger).fit(x, y)
    assert compose_mu([one.mu for one in model.releases_]) <= gaussian_mu(1.0, 1e-6)
    assert model.privacy_spent_ == ledger.spent == Privacy(1.0, 1e-6)
    assert [one.name for one in ledger.releases] == [one.name for one in model.releases_]
    assert model.releases_[0].name == "MultiOutcomeRidge: counts of people by size"
    with pytest.raises(ValueError, match="left"):
        model.fit(x, y)


def test_before_releases_that_are_not_gaussian_epsilons_add():
    x, y = unit_table()
    models = [
        ObjectivePerturbationRegressor(1.0, 1e-6, **PRIVATE, constraint=L2Ball(2.0), random_state=0).fit(x, y),
        ObjectivePerturbationClassifier(
            1.0, 1e-6, bound_x="private", classes=[False, True], random_state=0, fit_intercept=False
        ).fit(x, y > 0),
        SparseRegression(1.0, 1e-6, **PRIVATE, n_nonzero=2, selector="exponential", random_state=0).fit(x, y),
    ]
    for model in models:
        costs = [one.privacy for one in model.releases_]
        assert 0.999 < math.fsum(cost.epsilon for cost in costs) <= 1.0
        assert math.fsum(cost.delta for cost in costs) <= 1e-6
        assert model.bound_x_ == 4.0
    assert [model.bound_y_ for model in models[::2]] == [pytest.approx(2.0 * math.sqrt(2.0))] * 2
    assert models[0].coef_ == pytest.approx([0.5, 0.0, -0.8, 0.0], abs=0.1)
    assert models[1].score(x, y > 0) > 0.97
    assert models[2].support_.tolist() == [0, 2]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_what_follows_is_the_fit_with_the_bounds_that_were_found(adjacency):
    x, y = unit_table(2000)
    options = {"adjacency": adjacency, "random_state": 3, "refine": 0}
    model = MultiOutcomeRidge(1.0, 1e-6, **PRIVATE, **options).fit(x, y)
    rest = model.releases_[1].privacy
    given = MultiOutcomeRidge(rest.epsilon, rest.delta, bound_x=model.bound_x_, bound_y=model.bound_y_, **options).fit(
        x, y
    )
    np.testing.assert_array_equal(model.coef_, given.coef_)


def test_streams_that_can_be_read_again_are_read_twice_and_others_are_refused():
    x, y = unit_table(2000)
    blocks = [(x[:700], y[:700]), (x[700:], y[700:])]
    options = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0, "refine": 0, **PRIVATE}
    expected = MultiOutcomeRidge(**options).fit(x, y).coef_
    np.testing.assert_array_equal(MultiOutcomeRidge(**options).fit(blocks, None).coef_, expected)
    np.testing.assert_array_equal(MultiOutcomeRidge(**options).fit(pd.DataFrame(x), y).coef_, expected)
    ledger = Ledger(Privacy(1.0, 1e-6))
    with pytest.raises(TypeError, match="read twice"):
        MultiOutcomeRidge(**options | {"random_state": None}, ledger=ledger).fit(iter(blocks), None)
    assert ledger.spent.epsilon == 0.0


def test_found_bounds_are_saved_and_loaded(tmp_path):
    x, y = table(2000)
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x="private", bound_y=20.0, box_x="private", fit_intercept=False).fit(
        x, y
    )
    model.save(tmp_path / "model.json")
    loaded = MultiOutcomeRidge.load(tmp_path / "model.json")
    assert loaded.bound_x_ == model.bound_x_
    np.testing.assert_array_equal(loaded.box_x_, model.box_x_)
    for name, wrong in (("bound_x_", -1.0), ("box_x_", loaded.box_x_[::-1])):
        spoiled = MultiOutcomeRidge.load(tmp_path / "model.json")
        vars(spoiled)[name] = wrong
        with pytest.raises(ValueError, match=name):
            spoiled._check_loaded()


def test_another_fit_with_bounds_that_are_given_leaves_none_that_were_found():
    x, y = unit_table(2000)
    model = MultiOutcomeRidge(1.0, 1e-6, **PRIVATE).fit(x, y)
    model.set_params(bound_x=4.0).fit(x, y)
    assert not hasattr(model, "bound_x_")
    assert hasattr(model, "bound_y_")


def test_without_noise_nothing_is_bounded():
    x, y = unit_table(200)
    model = MultiOutcomeRidge(math.inf, fit_intercept=False, **PRIVATE).fit(x, y)
    np.testing.assert_array_equal(
        model.coef_, MultiOutcomeRidge(math.inf, bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(x, y).coef_
    )
    regressor = ObjectivePerturbationRegressor(math.inf, **PRIVATE, fit_intercept=True).fit(x, y)
    assert regressor.coef_ == pytest.approx([0.5, 0.0, -0.8, 0.0])


def test_a_guess_is_said_to_be_one():
    x, y = unit_table(40)
    with pytest.warns(UtilityWarning, match="left out of the fit"):
        MultiOutcomeRidge(0.01, 1e-6, **PRIVATE).fit(x, y)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"calibration": "paper"}, "calibration"),
        ({"block_bounds": (1.0, 1.0)}, "block_bounds"),
        ({"n_subsample": 10}, "n_subsample"),
        ({"mechanism": "independent"}, "mechanism"),
        ({"bound_x": "secret"}, "bound_x"),
    ],
)
def test_what_hangs_on_bounds_is_refused_where_they_are_to_be_found(parameters, match):
    with pytest.raises((TypeError, ValueError), match=match):
        MultiOutcomeRidge(1.0, 1e-6, **PRIVATE | parameters).fit(*unit_table(50))


def test_a_plan_and_sums_need_numbers():
    with pytest.raises(ValueError, match="numbers"):
        MultiOutcomeRidge.plan(1000, 3, epsilon=1.0, delta=1e-6, **PRIVATE)
    x, y = unit_table(50)
    with pytest.raises(ValueError, match="bound_x='private' and bound_y='private' needs the rows"):
        MultiOutcomeRidge(1.0, 1e-6, **PRIVATE).fit_gram(gram(x, y, bound_x=1.0, bound_y=1.0))


@pytest.mark.parametrize("name", ["MultiOutcomeRidge", "ObjectivePerturbationRegressor", "SparseRegression"])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_no_table_raises_for_what_is_found_of_it(name, adjacency, delta):
    common = {"epsilon": 1.0, "delta": delta, "adjacency": adjacency, **PRIVATE}
    tables = np.zeros((9, 2)), np.full((9, 2), 1e300), np.full((9, 2), -1e-300), np.ones((1, 2)), 1e200 * np.eye(2)
    for rows in tables:
        for _ in range(3):
            if name == "MultiOutcomeRidge":
                model = MultiOutcomeRidge(**common, box_x="private", nonnegative=True, fit_intercept=True)
            elif name == "SparseRegression":
                model = SparseRegression(**common, n_nonzero=1, selector="exponential")
            else:
                model = ObjectivePerturbationRegressor(**common, constraint=L2Ball(1.0), fit_intercept=True)
            assert np.isfinite(model.fit(rows, rows[:, 0]).coef_).all()


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_number_of_people_is_used_where_it_is_public_only(adjacency, monkeypatch):
    told, found = [], NoisySizes.found

    def listening(mechanism, release, people, **options):
        told.append(people)
        return found(mechanism, release, people, **options)

    monkeypatch.setattr(NoisySizes, "found", listening)
    x, y = unit_table(2000)
    MultiOutcomeRidge(1.0, 1e-6, **PRIVATE, adjacency=adjacency).fit(x, y)
    MultiOutcomeRidge(1.0, 1e-6, **PRIVATE, adjacency=adjacency).fit(x, y, groups=np.arange(2000) // 2, max_rows=2)
    private_bounds(x, epsilon=1.0, adjacency=adjacency)
    assert told == ([2000, 1000, 2000] if adjacency == "replace_one" else [None] * 3)


@pytest.mark.parametrize("people", [{}, {"groups": np.arange(20_000) // 2, "max_rows": 2}])
@pytest.mark.parametrize("weights", [{}, {"sample_weight": np.ones(20_000)}])
def test_outcomes_of_unlike_units_have_bounds_of_their_own(people, weights, tmp_path):
    x, y = unit_table()
    both = np.column_stack([y + 0.1, 1e4 * x[:, 1]])
    more = {"max_weight": 1.0} if weights else {}
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=5.0, bound_y="private", random_state=0, **more)
    model.fit(x, both, **people, **weights)
    # Half an octave apart, and of the larger of a person's rows.
    ratios = model.bound_y_ / np.quantile(abs(both), 0.99, axis=0)
    assert ratios.shape == (2,)
    assert np.all((ratios > 0.7) & (ratios < 2.0))
    # As it would be in units of its own: the noise in one does not depend on the unit of another.
    assert abs(model.coef_[0] - [0.5, 0.0, -0.8, 0.0]).max() < 0.05
    assert model.coef_std_[1].max() / model.coef_std_[0].max() == pytest.approx(1e4, rel=0.7)
    assert abs(model.coef_[1] - [0.0, 1e4, 0.0, 0.0]).max() < 500.0
    model.save(tmp_path / "model.json")
    again = MultiOutcomeRidge.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.bound_y_, model.bound_y_)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    released = model.releases_[0]
    assert released.values["sum"].shape[0] == 2
    assert released.unit == ("person" if people else "row")


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_noise_of_bounds_is_for_as_many_histograms_as_a_person_is_in(adjacency):
    x, y = unit_table(4_000)
    both = np.column_stack([y, 1e3 * y, 1e-3 * y])
    noise = [
        MultiOutcomeRidge(1.0, 1e-6, bound_x=5.0, bound_y="private", adjacency=adjacency, random_state=0)
        .fit(x, outcomes)
        .releases_[0]
        .scales["sum"]
        for outcomes in (y, both)
    ]
    assert noise[1] / noise[0] == pytest.approx(math.sqrt(3.0), rel=1e-6)


def test_a_norm_of_columns_in_unlike_units_points_to_limits_of_each():
    x, y = table(4_000)
    for model in (
        MultiOutcomeRidge(1.0, 1e-5, bound_x="private", bound_y=20.0, random_state=0),
        ObjectivePerturbationRegressor(1.0, 1e-5, bound_x="private", bound_y=20.0, loss="huber", random_state=0),
    ):
        with pytest.warns(UtilityWarning, match="if columns have unlike units.*declare box_x"):
            model.fit(x, y)


def test_how_many_rows_there_are_is_said_without_noise_too():
    x, y = table(100)
    for adjacency, said in (("replace_one", 100), ("add_remove", None)):
        header = MultiOutcomeRidge(math.inf, bound_x=200.0, bound_y=20.0, adjacency=adjacency).fit(x, y).summary().attrs
        assert header.get("n") == said


def test_an_outcome_of_nothing_but_zeros_is_left_out():
    x, y = unit_table()
    with pytest.warns(UtilityWarning, match="show nobody beyond the noise in some histogram"):
        model = MultiOutcomeRidge(1.0, 1e-6, bound_x=5.0, bound_y="private", random_state=0).fit(
            x, np.column_stack([y, np.zeros(len(y))])
        )
    assert np.abs(model.coef_[1]).max() < 1e-9
    assert abs(model.coef_[0] - [0.5, 0.0, -0.8, 0.0]).max() < 0.05
