"""Means and deviations of the rows of people with several: the person is the unit."""

import math

import numpy as np
import pytest
from engines import Listed, cut

from dpfast import Ledger, Privacy, PrivateStandardScaler

N, K = 2_000, 4
BOX = ([0.0, -1.0], [10.0, 1.0])


def visits():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(0.0, 10.0, N * K), rng.uniform(-1.0, 1.0, N * K)])
    return x, np.repeat(np.arange(N), K)


@pytest.mark.parametrize("box_x", [BOX, "private"])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_rows_beyond_the_most_and_the_order_of_people_change_nothing(adjacency, box_x):
    x, ids = visits()
    model = PrivateStandardScaler(2.0, 1e-6, box_x=box_x, adjacency=adjacency, random_state=0)
    fitted = model.fit(x, groups=ids, max_rows=2)
    place = np.tile(np.arange(K), N)
    mean = x[place < 2].mean(axis=0)
    assert np.all(np.abs(fitted.mean_ - mean) < 5.0 * fitted.mean_std_ + 0.1 * (box_x == "private"))
    assert {release.unit for release in fitted.releases_} == {"person"}
    expected = fitted.mean_.copy(), fitted.var_.copy()
    changed = np.where((place >= 2)[:, None], -1e3, x)
    order = np.argsort(np.random.default_rng(1).permutation(N)[ids], kind="stable")
    for rows, whose in ((changed, ids), (x[order], ids[order])):
        again = PrivateStandardScaler(2.0, 1e-6, box_x=box_x, adjacency=adjacency, random_state=0)
        again.fit(rows, groups=whose, max_rows=2)
        np.testing.assert_array_equal((again.mean_, again.var_), expected)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_how_many_rows_there_are_is_private_and_released(adjacency):
    x, ids = visits()
    fitted = PrivateStandardScaler(2.0, 1e-6, box_x=BOX, adjacency=adjacency).fit(x, groups=ids, max_rows=K)
    (release,) = fitted.releases_
    assert release.values["sum"].shape == (2 * x.shape[1] + 1,)


def test_parts_by_person_are_the_same():
    x, ids = visits()
    model = PrivateStandardScaler(2.0, 1e-6, box_x=BOX, random_state=0)
    expected = model.fit(x, groups=ids, max_rows=2).mean_.copy()
    pieces = [(rows, None, own) for rows, own in cut((x, ids), [35 * K])]
    parts = Listed(pieces, 2, 0, partitioned_by="person")
    np.testing.assert_array_equal(model.fit(parts, max_rows=2).mean_, expected)


def test_bad_groups_are_refused_before_anything_is_spent():
    x, ids = visits()
    ledger = Ledger(Privacy(3.0, 1e-5))
    for epsilon, given, message in (
        (1.0, (ids, None), "go together"),
        (1.0, (None, 2), "go together"),
        (1.0, (ids, 0), "max_rows"),
        (1.0, (ids[:-1], 2), "groups"),
        (math.inf, (ids, 2), "finite epsilon"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivateStandardScaler(epsilon, 1e-6, box_x=BOX, ledger=ledger).fit(x, None, *given)
    assert not ledger.releases


def test_a_plan_is_for_people_who_have_so_many_rows():
    options = {"epsilon": 1.0, "delta": 1e-6, "box_x": (0.0, 1.0), "adjacency": "add_remove"}
    of_rows, of_people = (PrivateStandardScaler.plan(1000, 3, max_rows=most, **options) for most in (None, 4))
    # Noise is for all rows of a person, and means are of as many.
    assert of_people.scales["sum"] == pytest.approx(4.0 * of_rows.scales["sum"], rel=1e-9)
    assert of_people.expected_error == pytest.approx(of_rows.expected_error, rel=1e-9)
    assert of_people.needed_n == pytest.approx(of_rows.needed_n, abs=1)
    with pytest.raises(ValueError, match="groups need a finite epsilon"):
        PrivateStandardScaler.plan(1000, 3, max_rows=4, epsilon=np.inf, box_x=(0.0, 1.0))
