"""What a newcomer passes by mistake is refused with what to pass instead, before anything is spent."""

import datetime

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
)
from dpfast.io import Category, Columns, Number

FRAME = pd.DataFrame(
    {
        "age": np.linspace(18.0, 90.0, 100),
        "site": ["Bern", "Basel"] * 50,
        "seen": pd.date_range("2024-01-01", periods=100),
        "days": np.linspace(0.0, 30.0, 100),
        "731.25": np.zeros(100),
    }
)
NUMBERS = FRAME[["age", "days", "731.25"]]
COLUMNS = Columns([Number("age", low=18, high=90), Category("site", ("Bern", "Basel"))], ["days"])


def refused(kind, message, fit):
    """Return the message of a fit that must be refused, at no cost and without a header that was not declared."""
    ledger = Ledger(Privacy(1.0, 1e-5))
    with pytest.raises(kind, match=message) as raised:
        fit(ledger)
    assert ledger.spent.epsilon == 0.0
    assert not ledger.reservations
    assert "731.25" not in str(raised.value)
    return str(raised.value)


def ridge(ledger, **options):
    return MultiOutcomeRidge(1.0, 1e-6, ledger=ledger, **{"bound_y": 30.0, **options})


def test_a_table_with_more_columns_than_limits_is_told_how_to_leave_the_others_out(tmp_path):
    NUMBERS.to_csv(tmp_path / "table.csv", index=False)
    limits = {"age": (18, 90)}
    for table in (NUMBERS, tmp_path / "table.csv"):
        message = refused(
            ValueError,
            r"it has 1, and X has 3. Leave the others out, such as frame\[\['age'\]\]; of files, .*dpfast.io.Columns",
            lambda ledger, table=table: ridge(ledger, box_x=limits).fit(table, FRAME["days"]),
        )
        assert "'days'" not in message
    with pytest.raises(ValueError, match=r"frame\[\['a', 'b', 'c', ...\]\]"):
        ridge(None, box_x=dict.fromkeys("abcd", (0, 1))).fit(pd.DataFrame(0.0, range(3), list("abcde")), np.zeros(3))


@pytest.mark.parametrize("day", [pd.Timestamp("2024-01-01"), datetime.date(2024, 1, 1), np.datetime64("2024-01-01")])
def test_limits_that_are_dates_are_told_to_be_days(day):
    message = "box_x must have two numbers for each column, got a date for 'seen': make days since a public date"
    refused(TypeError, message, lambda ledger: ridge(ledger, box_x={"seen": (day, day)}).fit(FRAME, FRAME["days"]))


def test_columns_that_are_no_numbers_are_told_what_to_fit():
    message = "make days of dates, or declare categories by dpfast.io.Columns and fit what its encode makes"
    refused(
        TypeError, message, lambda ledger: ridge(ledger, box_x=COLUMNS.box).fit(FRAME[["age", "site"]], FRAME["days"])
    )


def test_an_encoded_table_beside_other_outcomes_is_told_of_rows():
    message = r"X is made by Columns.encode, .* declare them, .* give Columns.transform\(frame\)"
    table, labels = COLUMNS.encode(FRAME), np.arange(100) % 2
    refused(TypeError, message, lambda ledger: ridge(ledger, box_x=COLUMNS.box).fit(table, FRAME["days"]))
    bare = Columns(COLUMNS.features).encode(FRAME)
    refused(TypeError, message, lambda ledger: ridge(ledger, box_x=COLUMNS.box).fit(bare, FRAME["days"]))
    options = {"box_x": COLUMNS.box, "classes": [0, 1]}
    make = ObjectivePerturbationClassifier
    refused(TypeError, message, lambda ledger: make(1.0, 1e-6, ledger=ledger, **options).fit(table, labels))
    refused(
        ValueError,
        r"declare them, dpfast.io.Columns\(..., outcomes=\['days'\]\)",
        lambda ledger: ridge(ledger, box_x=(18, 90)).fit(Columns(["age"]).encode(FRAME), None),
    )


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (ObjectivePerturbationRegressor, {"bound_y": 30.0, "loss": "huber"}),
        (ObjectivePerturbationClassifier, {"classes": [0, 1]}),
        (SparseRegression, {"bound_y": 30.0, "n_nonzero": 1}),
    ],
)
def test_private_limits_are_told_where_they_are_found(make, options):
    refused(
        ValueError,
        r"got 'private': private_bounds\(X, ..., box=True\) finds them",
        lambda ledger: make(1.0, 1e-6, ledger=ledger, box_x="private", **options).fit(NUMBERS, np.arange(100) % 2),
    )


def test_a_formula_in_the_place_of_a_table_is_told_what_makes_one():
    message = r"of a formula Columns.from_formula\(formula, limits\).encode\(frame\)"
    refused(TypeError, message, lambda ledger: ridge(ledger, bound_x=1.0).fit("days ~ age", NUMBERS))


@pytest.mark.parametrize("budget", [2.0, "people.ledger"])
def test_a_budget_that_is_none_is_told_both_ways(budget):
    with pytest.raises(TypeError, match=r"such as Privacy\(2.0, 1e-5\), got a .*; Ledger.open\(path\) opens"):
        Ledger(budget)


def test_a_declaration_of_columns_shows_them():
    assert repr(COLUMNS) == "<Columns days ~ age, site=Bern, site=Basel>"
    assert repr(Columns([f"x{k}" for k in range(20)])) == "<Columns x0, x1, x2, x3, x4, x5, x6, x7, ...>"


@pytest.mark.parametrize("bounds", [{"box_x": {"age": (18, 90)}}, {"bound_x": 90.0}], ids=str)
def test_what_is_no_table_is_said_to_be_none(bounds):
    """Also with limits by name: a single column has no names to compare with, and nor has a mapping of columns."""
    for X in (FRAME["age"], FRAME["age"].to_numpy()):
        refused(ValueError, "X must be 2-D", lambda to, X=X: ridge(to, **bounds).fit(X, FRAME.days))
    for X in (None, {"age": [18.0, 90.0]}, {18.0, 90.0}):
        refused(TypeError, "X is a .*; accepted: ", lambda to, X=X: ridge(to, **bounds).fit(X, FRAME.days))
