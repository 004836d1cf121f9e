"""Bounds as a function: found, paid for, refused."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfast import BudgetExceeded, Ledger, Privacy, private_bounds


def table(n=2000):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 5)), rng.exponential(size=n)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_bounds_are_within_twice_the_quantile_at_a_tenth_of_epsilon_one(adjacency, delta):
    """2,000 people: in nine of ten."""
    x, y = table()
    # Of mu squared, a tenth is an epsilon of some .26 at this delta.
    epsilon = 0.26 if delta else 0.2
    right = []
    for seed in range(60):
        found = private_bounds(x, y, epsilon=epsilon, delta=delta, adjacency=adjacency, random_state=seed)
        ratios = found.bound_x / np.quantile(np.linalg.norm(x, axis=1), 0.99), found.bound_y / np.quantile(y, 0.99)
        right += [0.5 <= ratio <= 2.0 for ratio in ratios]
    assert np.mean(right) > 0.9


def test_the_release_is_in_the_ledger():
    x, y = table()
    ledger = Ledger(Privacy(1.0, 1e-6))
    found = private_bounds(x, y, epsilon=0.6, delta=1e-6, box=True, ledger=ledger)
    assert ledger.releases[0] is found.release
    assert ledger.spent == Privacy(0.6, 1e-6)
    assert found.box_x[0].shape == found.box_x[1].shape == (5,)
    assert found.are_certain
    with pytest.raises(BudgetExceeded):
        private_bounds(x, epsilon=0.6, ledger=ledger)


def test_people_of_several_rows_are_the_unit():
    x, _ = table()
    found = private_bounds(x, epsilon=1.0, delta=1e-6, groups=np.arange(2000) // 2, max_rows=2)
    assert (found.release.unit, found.bound_y, found.box_x) == ("person", None, None)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": math.inf}, "finite"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"norms": False}, "norms or box"),
        ({"norms": 1}, "norms"),
        ({"groups": [1, 2]}, "go together"),
        ({"max_rows": 2}, "go together"),
        ({"groups": [1, 2], "max_rows": 0}, "max_rows"),
    ],
)
def test_bad_arguments_are_refused(options, match):
    ledger = Ledger(Privacy(9.0, 1e-6))
    with pytest.raises((TypeError, ValueError), match=match):
        private_bounds(np.ones((2, 2)), **{"epsilon": 1.0, "ledger": ledger} | options)
    assert ledger.spent.epsilon == 0.0


def test_bounds_that_were_found_are_rows_by_name():
    frame = pd.DataFrame({"age": [30.0, 60.0] * 500, "smoker": [0.0, 1.0] * 500})
    table = private_bounds(frame, frame["age"], epsilon=10.0, delta=1e-6, box=True, random_state=0).summary()
    assert table.index.tolist() == [("bound_x", ""), ("bound_y", ""), ("box_x", "age"), ("box_x", "smoker")]
    assert (table["low"] <= [0.0, 0.0, 30.0, 0.0]).all()
    assert (table["high"] >= [60.0, 60.0, 60.0, 1.0]).all()
