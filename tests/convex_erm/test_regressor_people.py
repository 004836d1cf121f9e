"""Regression of people with several rows, by descent: the person is the unit, whoever else has how many rows."""

import math

import numpy as np
import pytest
from engines import Listed, cut
from refusals import assert_refused

from dpfast import Ledger, ObjectivePerturbationRegressor, Privacy
from dpfast.solvers import L2Ball, SmoothedQuantile

N, K = 400, 5
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")


def visits(n=N, k=K, seed=0, together=1.0):
    rng = np.random.default_rng(seed)
    x = (together * rng.normal(size=(n, 1, 3)) + rng.normal(size=(n, k, 3))) / math.hypot(together, 1.0)
    of_people = 0.5 * np.exp(rng.normal(size=(n, 1)) * together)
    y = x @ [0.5, 0.0, -1.0] + 0.3 + of_people + 0.1 * rng.normal(size=(n, k))
    return x.reshape(-1, 3), y.ravel(), np.repeat(np.arange(n), k)


def model(epsilon=2.0, delta=1e-6, **options):
    options = {"bound_x": 4.0, "bound_y": 6.0, "loss": "huber", "random_state": 0} | options
    return ObjectivePerturbationRegressor(epsilon, delta, **options)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_it_learns_and_records_persons(adjacency, loss):
    x, y, ids = visits(2_000)
    ledger = Ledger(Privacy(5.0, 1e-5, adjacency))
    fitted = model(adjacency=adjacency, loss=loss, ledger=ledger).fit(x, y, ids, K)
    np.testing.assert_allclose(fitted.coef_, [0.5, 0.0, -1.0], atol=0.15)
    assert fitted.method_ == "gradient"
    assert fitted.privacy_spent_ == Privacy(2.0, 1e-6, adjacency)
    assert {release.unit for release in fitted.releases_} == {"person"}
    # Under either relation, as a replaced person may have more rows or fewer.
    assert "numbers of people and rows" in fitted.releases_[1].name
    with pytest.raises(ValueError, match="unit must be the ledger's"):
        model(adjacency=adjacency, loss=loss, ledger=ledger).fit(x, y)


def test_a_quantile_of_people_whose_rows_are_alike_is_where_it_is_of_all_rows():
    """A person's many rows on one side of it are not clipped: those on the other, less far off, would win."""
    x, y, ids = visits(4_000, 8, together=2.0)
    y = np.clip(y, -10.0, 10.0)
    fitted = model(200.0, loss=SmoothedQuantile(0.8, 0.1), bound_y=10.0).fit(x, y, ids, 8)
    assert np.mean(y <= fitted.predict(x)) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"bound_x": "private", "bound_y": "private"}, {"loss": "quantile"}])
def test_rows_beyond_the_most_and_the_order_of_people_change_nothing(options):
    x, y, ids = visits()
    expected = model(**options).fit(x, y, ids, 3)
    place = np.tile(np.arange(K), N)
    changed = np.where((place >= 3)[:, None], 1e3 * x[::-1], x)
    outcomes = np.where(place >= 3, -1e3 * y, y)
    order = np.lexsort((np.arange(N * K), np.random.default_rng(1).permutation(N)[ids]))
    scattered = np.argsort(place, kind="stable")
    names = np.array([f"p{one}" for one in ids], object)
    for rows, outcomes_of, whose in (
        (changed, outcomes, ids),
        (x[order], y[order], ids[order]),
        (x[scattered], y[scattered], names[scattered]),
    ):
        again = model(**options).fit(rows, outcomes_of, whose, 3)
        np.testing.assert_array_equal(again.coef_, expected.coef_)
        assert again.intercept_ == expected.intercept_


def test_parts_by_person_are_the_same():
    x, y, ids = visits()
    expected = model().fit(x, y, ids, 3)
    parts = Listed(cut((x, y, ids), [0, 35 * K, 200 * K, N * K]), 3, 1, partitioned_by="person")
    np.testing.assert_array_equal(model().fit(parts, max_rows=3).coef_, expected.coef_)


def test_one_row_a_person_is_clipped_as_rows_are():
    x, y, _ = visits(2_000, 1)
    of_rows, of_people = model(50.0).fit(x, y), model(50.0).fit(x, y, np.arange(len(x)), 1)
    np.testing.assert_allclose(of_people.coef_, of_rows.coef_, atol=0.02)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"delta": 0.0}, (3,), "groups need descent"),
        ({"epsilon": math.inf}, (3,), "groups need descent"),
        ({"inference": True}, (3,), "groups need descent"),
        ({"method": "objective"}, (3,), "groups need descent"),
        ({"constraint": L2Ball(1.0)}, (3,), "groups need descent"),
        ({"loss": "squared", "constraint": L2Ball(1.0)}, (3,), "groups need descent"),
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
    ledger = Ledger(Privacy(5.0, 1e-5))
    with pytest.raises(ValueError, match="groups"):
        model(ledger=ledger).fit(x, y, ids[:-1], 3)
    assert ledger.remaining.epsilon == 5.0
