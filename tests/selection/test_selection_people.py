"""Selection for people with several rows: a person is in one part, costs at most 1, and is the unit."""

import math

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from sklearn.pipeline import make_pipeline

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    select,
)
from dpfast.selection.mechanism import cost_of_labels, cost_of_outcomes

N, K = 600, 4
UNIT = 1 << 20
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")


def visits(n=N, k=K, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.5, 0.5, (n * k, 3))
    return x, x @ [1.0, 0.0, -0.5], rng.permutation(np.repeat(np.arange(n), k))


def ridge(penalty=1.0, **options):
    return MultiOutcomeRidge(1.0, 1e-6, **{"bound_x": 1.0, "bound_y": 1.0, "ridge": penalty, "refine": 0} | options)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_what_predicts_is_chosen_and_recorded_for_persons(adjacency):
    x, y, ids = visits()
    ledger = Ledger(Privacy(4.0, 1e-6, adjacency))
    huber = ObjectivePerturbationRegressor(1.0, 1e-6, bound_x=1.0, bound_y=1.0, loss="huber")
    options = {"bound_y": 1.0, "adjacency": adjacency, "groups": ids, "max_rows": K, "random_state": 0}
    chosen = select([ridge(1e7), ridge(1.0), huber], x, y, **BUDGET, **options, ledger=ledger)
    assert chosen.best_index_ > 0
    assert {release.unit for release in chosen.releases_} == {"person"}
    assert ledger.unit == "person"
    assert ledger.releases == chosen.releases_
    assert chosen.privacy_spent_ == Privacy(4.0, 1e-6, adjacency)


def test_classifiers_and_pipelines_take_them_in_every_step():
    x, y, ids = visits()
    frame = pd.DataFrame(10.0 * x, columns=["a", "b", "c"])
    scaler = PrivateStandardScaler(0.2, 1e-6, box_x=dict.fromkeys(frame, (-5.0, 5.0)))
    classifier = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=3.0, classes=[0, 1])
    several = {"groups": ids.astype(str).tolist(), "max_rows": K}
    chosen = select([make_pipeline(scaler, classifier)], frame, (y > 0.0).astype(int), **BUDGET, **several)
    assert {release.unit for release in chosen.releases_} == {"person"}
    assert chosen.score(frame, y > 0.0) > 0.7


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_all_rows_of_a_person_are_in_one_part_and_those_beyond_the_most_in_none(monkeypatch, adjacency):
    from dpfast.selection import selection

    x, y, ids = visits()
    x[:, 2] = np.arange(len(x)) / len(x) / 4.0
    learned, judged = [], []
    fit, cost = selection.candidate.fit, selection.cost_of_outcomes

    def rows_of(rows):
        return np.rint(4.0 * len(x) * rows[:, 2]).astype(int).tolist()

    def fitting(estimator, parts, seeds, rows, outcomes, whose, max_rows):
        assert max_rows == 3
        if rows.any():
            learned.append(rows_of(rows))
            # As told apart by the ids, whatever number stands for whom.
            assert len(set(whose.tolist())) == len(set(zip(whose.tolist(), ids[learned[-1]].tolist(), strict=True)))
        return fit(estimator, parts, seeds, rows, outcomes, whose, max_rows)

    def costing(model, outcomes, rows, bound_y, whose):
        judged.append(rows_of(rows))
        assert len(set(whose.tolist())) == len(set(ids[judged[-1]].tolist()))
        return cost(model, outcomes, rows, bound_y, whose)

    monkeypatch.setattr(selection.candidate, "fit", fitting)
    monkeypatch.setattr(selection, "cost_of_outcomes", costing)
    options = {"adjacency": adjacency, "groups": ids, "max_rows": 3, "bound_y": 1.0}
    select([ridge(1.0), ridge(2.0)], x, y, **BUDGET, **options)
    first = pd.Series(ids).groupby(ids).cumcount() < 3
    everybody = set(np.flatnonzero(first).tolist())
    assert set(learned[0]) == set(learned[1]) == everybody - set(judged[0])
    assert set(learned[2]) == everybody
    held_out = set(ids[judged[0]].tolist())
    assert held_out.isdisjoint(ids[learned[0]].tolist())
    if adjacency == "replace_one":
        assert len(held_out) == N // 4
    assert len(learned[0]) == len(set(learned[0]))


class Fixed:
    """Predicts by a fixed linear function."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, coef, labels=False):
        self.coef, self.labels = np.asarray(coef), labels

    def predict(self, rows):
        said = rows @ self.coef
        return self.classes_[(said > 0.0).astype(int)] if self.labels else said


def test_a_person_costs_at_most_1_however_many_rows_and_nobody_moves_costs_farther_apart():
    models, rng = [Fixed([1.0, 2.0]), Fixed([-3.0, 0.0]), Fixed([0.5, 0.5])], np.random.default_rng(0)

    def costs(person):
        rows = person.reshape(3, 3)
        return [cost_of_outcomes(one, 4.0 * rows[:, 2], 4.0 * rows[:, :2], 0.5, np.zeros(3, int)) for one in models]

    def changed(parameters):
        moved = np.subtract(costs(parameters[:9]), costs(parameters[9:])) / UNIT
        return moved.max() - moved.min()

    found, _ = climb(changed, 18, rng, restarts=2, screened=2_000)
    assert 1.3 < found <= 2.0
    # Everybody's cost beside those of others is what it is alone.
    whose, labels = np.array([4, 1, 4, 4, 9]), np.array(["yes", "no", "yes", "no", "yes"])
    rows, model = rng.normal(size=(5, 2)), Fixed([1.0, 2.0], labels=True)
    alone = [cost_of_labels(model, labels[whose == i], rows[whose == i], whose[whose == i]) for i in (1, 4, 9)]
    assert cost_of_labels(model, labels, rows, whose) == sum(alone)
    wrong = np.where(labels[:, None] == "yes", -1.0, 1.0) * [[1.0, 0.0]]
    assert cost_of_labels(Fixed([1.0, 0.0], labels=True), labels, wrong, whose) == 3 * UNIT


def test_a_person_of_the_other_class_moves_costs_of_opposite_models_as_far_apart_as_is_calibrated():
    models, rows, whose = [Fixed([sign], labels=True) for sign in (1.0, -1.0)], np.ones((3, 1)), np.zeros(3, int)
    costs = [[cost_of_labels(one, np.array([label] * 3), rows, whose) for one in models] for label in ("yes", "no")]
    moved = np.subtract(*costs) / UNIT
    assert moved.max() - moved.min() == 2.0


def test_a_mean_of_a_persons_rows_is_rounded_down():
    model, labels = Fixed([1.0], labels=True), np.array(["yes", "yes", "yes"])
    assert cost_of_labels(model, labels, np.array([[1.0], [1.0], [-1.0]]), np.zeros(3, int)) == UNIT // 3
    assert cost_of_labels(model, labels[:0], np.empty((0, 1)), np.zeros(0, int)) == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"max_rows": None}, ValueError, "groups \\(.*\\) and max_rows \\(.*\\) go together"),
        ({"groups": None}, ValueError, "groups \\(.*\\) and max_rows \\(.*\\) go together"),
        ({"max_rows": 0}, ValueError, "max_rows"),
        ({"groups": np.arange(5)}, ValueError, "groups must have one id a row"),
        ({"groups": np.zeros(N * K)}, ValueError, "at least 2 people"),
        ({"groups": [None] * N * K}, ValueError, "groups has missing ids"),
        ({"estimators": [ridge(), SparseRegression(1.0, n_nonzero=2, selector="exponential")]}, ValueError,
         r"estimators\[1\]: groups need selector='pursuit'"),
        ({"delta": 0.0, "estimators": [
            ObjectivePerturbationRegressor(1.0, bound_x=1.0, bound_y=1.0, loss="huber")
        ]}, ValueError, r"estimators\[0\]: groups need descent"),
    ],
)  # fmt: skip
def test_what_cannot_be_selected_for_persons_is_refused_and_costs_nothing(given, error, message):
    x, y, ids = visits()
    ledger = Ledger(Privacy(4.0, 1e-6))
    options = {"estimators": [ridge()], "bound_y": 1.0, "groups": ids, "max_rows": K, "ledger": ledger} | BUDGET | given
    with pytest.raises(error, match=message):
        select(X=x, y=y, **options)
    assert ledger.remaining.epsilon == 4.0
    assert not ledger.releases
    assert math.isclose(ledger.remaining.delta, 1e-6)
