"""Sparse regression of people with several rows, by pursuit: the person is the unit."""

import math

import numpy as np
import pytest
from engines import Listed, cut
from refusals import assert_refused

from dpfast import Ledger, Privacy, SparseRegression

N, K, P = 500, 4, 12
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")


def visits(n=N, k=K, p=P, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(0.4 * rng.normal(size=(n, 1, p)) + 0.4 * rng.normal(size=(n, k, p)), -1.0, 1.0).reshape(-1, p)
    return x, 0.8 * x[:, 3] - 0.6 * x[:, 7] + 0.1 * rng.normal(size=n * k), np.repeat(np.arange(n), k)


def model(epsilon=4.0, delta=1e-6, **options):
    return SparseRegression(epsilon, delta, **{"n_nonzero": 2, "random_state": 0} | options)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_it_finds_features_and_records_persons(adjacency, delta):
    x, y, ids = visits(2_000)
    ledger = Ledger(Privacy(5.0, 1e-5, adjacency))
    fitted = model(delta=delta, adjacency=adjacency, ledger=ledger).fit(x, y, ids, K)
    assert fitted.support_.tolist() == [3, 7]
    assert {release.unit for release in fitted.releases_} == {"person"}
    assert fitted.privacy_spent_ == Privacy(4.0, delta, adjacency)
    # Under either relation, as a replaced person may have more rows or fewer.
    assert any("numbers of people and rows" in release.name for release in fitted.releases_)
    if delta:
        np.testing.assert_allclose(fitted.coef_[[3, 7]], [0.8, -0.6], atol=0.05)


@pytest.mark.parametrize("options", [{}, {"bound_x": "private", "bound_y": "private"}, {"delta": 0.0}])
def test_rows_beyond_the_most_and_the_order_of_people_change_nothing(options):
    x, y, ids = visits()
    expected = model(**options).fit(x, y, ids, 3)
    place = np.tile(np.arange(K), N)
    changed = np.where((place >= 3)[:, None], 1e3 * x[::-1], x), np.where(place >= 3, -1e3 * y, y)
    scattered = np.argsort(place, kind="stable")
    names = np.array([f"p{one}" for one in ids], object)
    for rows, outcomes, whose in ((*changed, ids), (x[scattered], y[scattered], names[scattered])):
        again = model(**options).fit(rows, outcomes, whose, 3)
        np.testing.assert_array_equal(again.coef_, expected.coef_)


def test_parts_by_person_and_several_outcomes_are_the_same():
    x, y, ids = visits()
    both = np.column_stack([y, -y])
    expected = model(bound_y=2.0).fit(x, both, ids, 3)
    parts = Listed(cut((x, both, ids), [0, 35 * K, 200 * K, N * K]), P, 2, partitioned_by="person")
    np.testing.assert_array_equal(model(bound_y=2.0).fit(parts, max_rows=3).coef_, expected.coef_)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"selector": "exponential"}, (3,), "groups need selector='pursuit'"),
        ({"selector": "sample_aggregate"}, (3,), "groups need selector='pursuit'"),
        ({"epsilon": math.inf}, (3,), "groups need selector='pursuit'"),
        ({}, (None,), "groups \\(.*\\) and max_rows \\(.*\\) go together"),
        ({}, (0,), "max_rows"),
        ({}, (1 << 20,), "max_rows must be at most"),
    ],
)
def test_what_has_no_sum_over_people_is_refused(options, given, message):
    x, y, ids = visits(40)
    assert_refused(lambda ledger: model(ledger=ledger, **options).fit(x, y, ids, *given), message)


def test_ids_of_other_rows_are_refused():
    x, y, ids = visits(40)
    with pytest.raises(ValueError, match="groups must have one id a row"):
        model().fit(x, y, ids[:-1], 3)


def test_a_plan_is_for_people_who_have_so_many_rows():
    options = {"epsilon": 0.2, "delta": 1e-6, "n_nonzero": 2}
    of_rows, of_people = (SparseRegression.plan(300, 40, max_rows=most, **options) for most in (None, 4))
    # Noise is for four rows, and there are four times as many.
    assert of_people.scales["feature"] == pytest.approx(4.0 * of_rows.scales["feature"], rel=1e-6)
    assert of_people.expected_error == pytest.approx(of_rows.expected_error, rel=0.1)
