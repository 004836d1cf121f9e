"""Panels in every form they come in, and what is said of those that cannot be used."""

import numpy as np
import pandas as pd
import pytest

from dpfast.io import check_n_pre, open_long_panel, open_panel, target_rows

VALUES = np.arange(12.0).reshape(3, 4)
YEARS = [1990, 1991, 1992, 1993]


def wide(**labels):
    return pd.DataFrame(VALUES, **({"index": ["a", "b", "c"], "columns": YEARS} | labels))


def long():
    frame = wide().rename_axis("who").reset_index().melt(id_vars="who", var_name="year", value_name="sales")
    return frame.sample(frac=1.0, random_state=0)


@pytest.mark.parametrize(
    "periods",
    [
        YEARS,
        ["1990", "1991", "1992", "1993"],
        ["1990Q1", "1990Q2", "1990Q3", "1990Q4"],
        ["1990-01", "1990-02", "1990-03", "1990-04"],
        ["t1", "t2", "t3", "t4"],
        [1, 2, 3, 4],
        pd.date_range("1990-01-31", periods=4, freq="ME"),
        pd.period_range("1990", periods=4, freq="Y"),
    ],
    ids=lambda periods: f"{type(periods).__name__}-{periods[0]}",
)
@pytest.mark.parametrize("units", [["a", "b", "c"], [17, 3, 290], [0.5, 1.5, 9.0]], ids=str)
def test_a_frame_is_read_either_way_round(periods, units):
    frame = wide(index=units, columns=periods)
    for given in (frame, frame.T):
        panel = open_panel(given, 2)
        assert np.array_equal(panel.values, VALUES)
        assert panel.units == units
        assert list(panel.periods) == list(periods)


@pytest.mark.parametrize("given", [VALUES, VALUES.tolist(), np.asfortranarray(VALUES), VALUES.astype(np.float32)])
def test_arrays_have_no_labels(given):
    panel = open_panel(given, 2)
    assert np.array_equal(panel.values, VALUES)
    assert panel.units is panel.periods is None


def test_frames_without_labels_are_arrays():
    panel = open_panel(pd.DataFrame(VALUES), 2)
    assert panel.units is panel.periods is None
    assert open_panel(wide(columns=range(4)), 2).units == ["a", "b", "c"]
    assert list(open_panel(wide(index=range(3)), 2).periods) == YEARS


def test_a_long_frame_is_a_wide_one():
    panel, target = open_long_panel(long(), "who", "year", "sales", "b", 2)
    assert np.array_equal(panel.values, VALUES[[0, 2]])
    assert np.array_equal(target, VALUES[1])
    assert (panel.units, list(panel.periods)) == (["a", "c"], YEARS)


def test_missing_entries_where_they_are_allowed():
    values = VALUES.copy()
    values[0, 1] = np.nan
    assert np.isnan(open_panel(values, 2, may_miss=True).values[0, 1])
    frame = long()
    panel, _ = open_long_panel(frame[~((frame.who == "a") & (frame.year == 1991))], *LONG, 2, may_miss=True)
    assert np.isnan(panel.values[0, 1])


LONG = ("who", "year", "sales", "b")
NAN = np.where(VALUES == 5.0, np.nan, VALUES)

BAD_PANELS = {
    "ragged": ([[1.0, 2.0], [1.0]], 1, "donors must have one value for each unit and period: its rows have different"),
    "one dimension": (VALUES[0], 2, r"donors must be 2-D, got an array of shape \(4,\)"),
    "a constant": (3.0, 2, r"donors must be 2-D, got an array of shape \(\)"),
    "a series": (wide().loc["a"], 2, "donors must be two-dimensional, units by periods, got a Series"),
    "no unit": (VALUES[:0], 2, "donors must have at least one unit, got none"),
    "NaN": (NAN, 2, "donors contains NaN: fill it, or declare the observation_rate"),
    "infinity": (np.where(VALUES == 5.0, np.inf, VALUES), 2, "donors contains infinity"),
    "text": (wide().astype(str), 2, "donors has entries that are not numbers"),
    "unit twice": (wide(index=["a", "b", "a"]), 2, "donors must have each unit and each period once"),
    "period twice": (wide(columns=[1990, 1991, 1991, 1992]), 2, "donors must have each unit and each period once"),
    "periods out of order": (wide(columns=[1993, 1992, 1991, 1990]), 2, "donors must have its periods in order"),
    "a column of years": (
        wide().T.rename_axis("Year").reset_index(),
        2,
        "donors has labels of periods neither for its rows nor for its columns: pass units by periods, or label",
    ),
    "periods on both sides": (
        wide(index=[1990, 1991, 1992]),
        2,
        "donors has labels that may be periods both for its rows and for its columns: pass units by periods",
    ),
    "levels": (
        wide(index=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])),
        2,
        "donors must have labels of one level: use fit_long",
    ),
    "n_pre of 0": (VALUES, 0, "n_pre must leave a period before and after .* below the 4 periods of donors, got 0"),
    "n_pre of all": (VALUES, 4, "n_pre must leave a period before and after .* below the 4 periods of donors, got 4"),
    "n_pre of a fraction": (VALUES, 1.5, "n_pre must be an integer, got float"),
}


@pytest.mark.parametrize("case", BAD_PANELS)
def test_bad_panels(case):
    table, n_pre, message = BAD_PANELS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        open_panel(table, n_pre)


BAD_LONG = {
    "pair twice": (pd.concat([long(), long().iloc[:1]]), LONG, "a pair of them occurs more than once"),
    "pair missing": (long().iloc[1:], LONG, "a pair of them is missing"),
    "no such treated": (long(), ("who", "year", "sales", "z"), "treated must be one of the units .*, got 'z'"),
    "several treated": (
        long(),
        ("who", "year", "sales", ["a", "b"]),
        "treated must be the label of one unit",
    ),
    "no such column": (long(), ("name", "year", "sales", "b"), "unit must be a column of frame, got 'name'"),
    "one column for two": (long(), ("who", "who", "sales", "b"), "unit, time and value must be three columns"),
    "no unit": (long().replace({"who": {"a": None}}), LONG, "frame has rows without a unit or a time"),
    "text": (long().astype({"sales": str}), LONG, "column 'sales' has entries that are not numbers"),
    "NaN": (long().replace({"sales": {0.0: np.nan}}), LONG, "column 'sales' contains NaN"),
    "treated NaN": (long().replace({"sales": {5.0: np.nan}}), LONG, "the treated unit in column 'sales' contains NaN"),
    "an array": (VALUES, LONG, "frame must be a pandas DataFrame, got ndarray"),
}


@pytest.mark.parametrize("case", BAD_LONG)
def test_bad_long_panels(case):
    frame, columns, message = BAD_LONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        open_long_panel(frame, *columns, 2)


def test_no_message_depends_on_values_or_names_a_donor():
    messages = set()
    for unit, value in (("someone", 271.8), ("another", 314.1)):
        frame = wide(index=[unit, "b", "c"]).astype(float)
        frame.iloc[0, 0], frame.iloc[0, 1] = value, np.nan
        doubled = pd.concat([long().replace({"who": {"a": unit}})] * 2)
        for attempt in (
            lambda frame=frame: open_panel(frame, 2),
            lambda doubled=doubled: open_long_panel(doubled, *LONG, 2),
        ):
            with pytest.raises(ValueError, match=r"must have|contains") as raised:
                attempt()
            messages.add(str(raised.value))
    assert len(messages) == 2
    assert not any("someone" in message or "another" in message for message in messages)


def test_targets():
    lengths = {"n_pre": 2, "all": 4}
    assert target_rows([1, 2], lengths).tolist() == [1.0, 2.0]
    assert target_rows(wide(), lengths).shape == (3, 4)
    for target, message in {
        "a": "target must be a series of numbers, got a label: a donor's record is private",
        (1.0, 2.0, 3.0): r"target must have as many periods as the donors, 2 \(n_pre\) or 4 \(all\), got shape \(3,\)",
        (1.0, float("nan")): "target contains NaN",
        ("x", "y"): "target must be of real numbers",
        ((1.0, 2.0), (1.0,)): "target has series of different lengths",
    }.items():
        with pytest.raises((ValueError, TypeError), match=message):
            target_rows(target, lengths)


def test_n_pre():
    assert check_n_pre(np.int64(3), 4) == 3
    with pytest.raises(TypeError, match="n_pre must be an integer, got bool"):
        check_n_pre(True, 4)
