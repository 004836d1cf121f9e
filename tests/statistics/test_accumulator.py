"""Accumulators refuse rows that are not of their table, before any of them counts."""

import numpy as np
import pytest

from dpfast.io.people import People
from dpfast.statistics import GramAccumulator
from dpfast.statistics.accumulator import PersonAccumulator
from dpfast.statistics.rows import PersonUnit

OWNERS = People(4, None, np.arange(0, 5, 2))


def adders():
    bounds = {"bound_x": 1.0, "bound_y": 1.0, "n_threads": 1}
    rows, persons = GramAccumulator(5, 2, **bounds), PersonAccumulator(5, 2, PersonUnit(3, 1.0, 1.0), **bounds)
    return (rows, rows.update), (persons, lambda x, y: persons.add_people(x, y, OWNERS))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones((4, 4)), np.ones((4, 2)), "X has 4 columns, n_features is 5"),
        (np.ones((4, 5)), np.ones((4, 3)), "Y has 3 columns, n_outcomes is 2"),
        (np.ones((4, 5)), np.ones((3, 2)), "different numbers of rows"),
    ],
)
def test_rows_of_another_table_are_refused_and_change_nothing(x, y, message):
    for accumulator, add in adders():
        before = accumulator.gram()
        with pytest.raises(ValueError, match=message):
            add(x, y)
        assert accumulator.gram() == before
