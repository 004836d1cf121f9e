"""Classification of people with several rows: the person is the unit, whoever else has how many rows."""

import math

import numpy as np
import pytest
from engines import Listed, cut
from refusals import assert_refused

from dpfast import Ledger, ObjectivePerturbationClassifier, Privacy
from dpfast.solvers import L2Ball

N, K = 400, 5
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")


def visits(n=N, k=K, seed=0, classes=2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1, 3)) + rng.normal(size=(n, k, 3))
    score = x @ np.random.default_rng(9).normal(size=(3, classes))
    return x.reshape(-1, 3), score.argmax(-1).ravel(), np.repeat(np.arange(n), k)


def model(epsilon=2.0, delta=1e-6, classes=2, **options):
    options = {"bound_x": 3.0, "classes": list(range(classes)), "random_state": 0} | options
    return ObjectivePerturbationClassifier(epsilon, delta, **options)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_it_learns_and_records_persons(adjacency, classes):
    x, y, ids = visits(2_000, classes=classes)
    ledger = Ledger(Privacy(5.0, 1e-5, adjacency))
    fitted = model(adjacency=adjacency, classes=classes, ledger=ledger).fit(x, y, ids, K)
    assert fitted.score(x, y) > 0.85
    assert fitted.method_ == "gradient"
    assert {release.unit for release in fitted.releases_} == {"person"}
    assert len(fitted.log_odds_) == (2 if classes == 2 else 4)
    with pytest.raises(ValueError, match="unit must be the ledger's"):
        model(adjacency=adjacency, classes=classes, ledger=ledger).fit(x, y)


@pytest.mark.parametrize("options", [{}, {"bound_x": "private"}, {"probabilities": "link"}, {"classes": 3}])
def test_rows_beyond_the_most_and_the_order_of_people_change_nothing(options):
    classes = options.get("classes", 2)
    x, y, ids = visits(classes=classes)
    expected = model(**options).fit(x, y, ids, 3)
    place = np.tile(np.arange(K), N)
    changed = np.where((place >= 3)[:, None], 1e3 * x[::-1], x)
    labels = np.where(place >= 3, (y + 1) % classes, y)
    order = np.lexsort((np.arange(N * K), np.random.default_rng(1).permutation(N)[ids]))
    scattered = np.argsort(place, kind="stable")
    names = np.array([f"p{one}" for one in ids], object)
    for rows, labels_of, whose in (
        (changed, labels, ids),
        (x[order], y[order], ids[order]),
        (x[scattered], y[scattered], names[scattered]),
    ):
        again = model(**options).fit(rows, labels_of, whose, 3)
        np.testing.assert_array_equal(again.coef_, expected.coef_)
        np.testing.assert_array_equal(again.predict_proba(x[:9]), expected.predict_proba(x[:9]))


@pytest.mark.parametrize("classes", [2, 3])
def test_parts_by_person_are_the_same(classes):
    x, y, ids = visits(classes=classes)
    expected = model(classes=classes).fit(x, y, ids, 3)
    parts = Listed(cut((x, y.astype(float), ids), [0, 35 * K, 200 * K, N * K]), 3, 1, partitioned_by="person")
    fitted = model(classes=classes).fit(parts, max_rows=3)
    np.testing.assert_array_equal(fitted.coef_, expected.coef_)
    np.testing.assert_array_equal(fitted.log_odds_, expected.log_odds_)


def test_it_costs_what_was_asked_and_is_saved(tmp_path):
    x, y, ids = visits()
    fitted = model().fit(x, y, ids, 3)
    assert fitted.privacy_spent_ == Privacy(2.0, 1e-6)
    fitted.save(tmp_path / "model")
    again = ObjectivePerturbationClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.coef_, fitted.coef_)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"delta": 0.0}, (3,), "groups need descent"),
        ({"epsilon": math.inf}, (3,), "groups need descent"),
        ({"inference": True}, (3,), "groups need descent"),
        ({"method": "objective"}, (3,), "groups need descent"),
        ({"constraint": L2Ball(1.0)}, (3,), "groups need descent"),
        ({"loss": "hinge"}, (3,), "groups need descent"),
        ({}, (None,), "groups \\(.*\\) and max_rows \\(.*\\) go together"),
        ({}, (0,), "max_rows"),
        ({}, (1 << 20,), "max_rows must be at most"),
    ],
)
def test_what_has_no_sum_over_people_is_refused(options, given, message):
    x, y, ids = visits(40)
    assert_refused(lambda ledger: model(ledger=ledger, **options).fit(x, y, ids, *given), message)


def test_other_numbers_of_ids_than_rows_are_refused():
    x, y, ids = visits(40)
    with pytest.raises(ValueError, match="groups"):
        model().fit(x, y, ids[:-1], 3)


def test_the_note_of_a_fit_by_people_does_not_send_them_to_what_is_refused():
    x, y, ids = visits()
    note = model().fit(x, y, ids, K).summary().attrs["note"]
    assert "inference=True" in note
    assert note.endswith("where every person has one row")
