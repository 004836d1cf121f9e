"""The pick by held-out costs: what one person moves, its law, who is held out."""

import math

import numpy as np
import pytest
from neighbours import climb
from scipy import stats

from dpfast import MultiOutcomeRidge, ObjectivePerturbationClassifier, Privacy
from dpfast.noise import SecureSource, SeededSource
from dpfast.privacy import range_mu
from dpfast.selection.mechanism import HeldOutPick, cost_of_labels, cost_of_outcomes, held_out

UNIT = 1 << 20


class Model:
    """Predicts by a fixed linear function, as fitted estimators do."""

    def __new__(cls, coef, classes=None):
        coef = np.atleast_2d(coef)
        n_features = coef.shape[1]
        if classes is None:
            model = MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, fit_intercept=False)
            return model._keep({"coef_": coef, "n_features_in_": n_features, "_single_outcome": len(coef) == 1})
        model = ObjectivePerturbationClassifier(1.0, bound_x=1.0, classes=classes, fit_intercept=False)
        return model._keep({"coef_": coef, "n_features_in_": n_features, "classes_": np.array(classes)})


def changed(costs, others):
    """How far apart one person moves what matters: the range of the changes of all models' costs."""
    moved = np.subtract(costs, others) / UNIT
    return moved.max() - moved.min()


def test_nobody_moves_costs_of_labels_farther_apart_than_is_calibrated_and_somebody_does_as_far():
    rng = np.random.default_rng(0)
    models = [Model(rng.normal(size=(1, 3)), ["no", "yes"]) for _ in range(6)]
    most = {"replace_one": 0.0, "add_remove": 0.0}
    for _ in range(100):
        rows, labels = rng.normal(size=(2, 3)), rng.choice(["no", "yes"], 2)
        costs = [[cost_of_labels(model, labels[i : i + 1], rows[i : i + 1]) for model in models] for i in range(2)]
        most["replace_one"] = max(most["replace_one"], changed(*costs))
        most["add_remove"] = max(most["add_remove"], changed(costs[0], [0] * len(models)))
    assert most == {"replace_one": 2.0, "add_remove": 1.0}


def test_nobody_moves_costs_of_outcomes_farther_apart_than_is_calibrated_and_somebody_does_as_far():
    bound = 0.5
    models = [Model(np.array([[1.0, 2.0], [0.5, -1.0]])), Model(np.array([[-3.0, 0.0], [1.0, 1.0]])), Model(np.eye(2))]

    def costs(row, outcomes):
        return [cost_of_outcomes(model, outcomes[None], row[None], bound) for model in models]

    def replaced(p):
        return changed(costs(p[:2], p[2:4]), costs(p[4:6], p[6:8]))

    def joined(p):
        return changed(costs(10.0 * p[:2], p[2:4]), [0, 0, 0])

    rng = np.random.default_rng(0)
    # An ascent needs slopes, which costs on a grid have over its steps only: far starts do.
    for change, most in ((replaced, 2.0), (joined, 1.0)):
        found, _ = climb(change, 8, rng, restarts=3, screened=400)
        assert 0.9 * most <= found <= most


def test_a_persons_cost_is_within_0_and_1_whatever_is_predicted():
    outcomes = np.array([[1e300], [-1e300], [0.0]])
    for coef in (1e308, -1e308, 0.0, 1.7e308):
        model = Model([[coef, coef]])
        rows = np.array([[1e308, -1e308], [1.0, 1.0], [1e-308, 0.0]])
        each = [cost_of_outcomes(model, outcomes[i : i + 1], rows[i : i + 1], 2.0) for i in range(3)]
        assert all(0 <= cost <= UNIT for cost in each)
        assert cost_of_outcomes(model, outcomes, rows, 2.0) == sum(each)


def test_costs_are_squared_errors_as_shares_of_the_squared_bound():
    model = Model([[1.0]])
    cost = cost_of_outcomes(model, np.array([0.5, -0.25, 5.0]), np.array([[0.25], [9.0], [9.0]]), 1.0)
    assert cost == round((0.0625 + 1.0 + 0.0) * UNIT)
    assert cost_of_labels(Model([[1.0]], ["a", "b"]), ["b", "a", "b", None, 3], np.ones((5, 1))) == 3 * UNIT
    assert cost_of_outcomes(model, np.empty(0), np.empty((0, 1)), 1.0) == 0


@pytest.mark.parametrize("width", [1, 7, 64])
def test_a_cost_of_people_is_the_sum_of_what_each_costs_alone(width):
    rng = np.random.default_rng(width)
    rows, coef = rng.normal(size=(301, width)), rng.normal(size=(3, width))
    outcomes = rng.normal(size=(301, 3))
    model = Model(coef)
    whole = model.predict(rows)
    for layout in (rows, np.asfortranarray(rows), rows[::-1].copy()[::-1]):
        assert np.array_equal(model.predict(layout), whole)
    alone = np.vstack([model.predict(rows[i : i + 1]) for i in range(301)])
    assert np.array_equal(alone, whole)
    assert np.array_equal(model.predict(rows[100:]), whole[100:])
    each = [cost_of_outcomes(model, outcomes[i : i + 1], rows[i : i + 1], 1.0) for i in range(301)]
    assert cost_of_outcomes(model, outcomes, rows, 1.0) == sum(each)


@pytest.mark.parametrize(("adjacency", "people"), [("replace_one", 2), ("add_remove", 1)])
def test_odds_change_by_the_calibrated_factor_and_no_more(adjacency, people):
    pick = HeldOutPick.calibrate(Privacy(0.7, 1e-6, adjacency))
    assert pick.privacy == Privacy(0.7, 0.0, adjacency)
    assert 0.7 * (1.0 - 1e-9) < people * pick.rate <= 0.7
    assert pick.scales["index"] == 1.0 / pick.rate


def test_the_pick_has_the_law_of_the_exponential_mechanism():
    # Fails for one seed in 10,000: it is fixed.
    pick = HeldOutPick.calibrate(Privacy(1.0))
    costs = np.array([0.0, 1.0, 3.5, 2.25])
    weights = np.exp(-pick.rate * costs)
    source, n = SeededSource(0), 3000
    chosen = [
        int(pick.release((costs * UNIT).astype(int).tolist(), source, "a pick").values["index"]) for _ in range(n)
    ]
    counts = np.bincount(chosen, minlength=4)
    assert stats.chisquare(counts, n * weights / weights.sum()).pvalue > 1e-4


def test_a_pick_is_recorded_as_of_the_part_held_out():
    release = HeldOutPick.calibrate(Privacy(0.5)).release([0, UNIT], SeededSource(3), "a pick")
    assert (release.part, release.mu, release.reproducible) == ("held-out", range_mu(0.5), True)
    assert (release.mechanism, release.name) == ("exponential mechanism", "a pick")


def test_what_a_pick_may_lose_is_never_passed():
    rng = np.random.default_rng(0)
    for n_models in (2, 5, 40):
        pick = HeldOutPick.calibrate(Privacy(rng.uniform(0.1, 4.0)))
        for spread in (0.1, 1.0, 10.0):
            costs = rng.exponential(spread, n_models)
            weights = np.exp(-pick.rate * costs)
            assert weights @ costs / weights.sum() - costs.min() <= 10 * pick.lost(n_models, 10)


def test_as_many_are_held_out_as_said_where_their_number_is_public():
    source = SeededSource(0)
    drawn = [held_out(40, 0.25, source, public_count=True) for _ in range(600)]
    assert {len(rows) for rows in drawn} == {10}
    # Every row as often as any other: fails for one seed in 10,000, and this is fixed.
    counts = np.bincount(np.concatenate(drawn), minlength=40)
    assert stats.chi2.sf(((counts - 150.0) ** 2 / (150.0 * 0.75)).sum() * 39 / 40, 39) > 1e-4
    for n, share, size in ((2, 0.01, 1), (2, 0.99, 1), (5, 0.99, 4), (9, 0.01, 1)):
        assert len(held_out(n, share, SecureSource(), public_count=True)) == size


def test_coins_hold_out_each_row_on_its_own_where_their_number_is_private():
    n, share = 20_000, 0.25
    rows = held_out(n, share, SeededSource(0), public_count=False)
    # Fails for one seed in 10,000: it is fixed.
    assert abs(len(rows) - n * share) < 3.9 * math.sqrt(n * share * (1.0 - share))
    # Of one seed: a row more at the end changes nobody else's coin.
    few, more = (set(held_out(n, share, SeededSource(1), public_count=False).tolist()) for n in (1000, 1001))
    assert few == more - {1000}
    assert len(held_out(0, share, SecureSource(), public_count=False)) == 0
