"""Panels in every form they come in, and what is said of those that cannot be used."""

import numpy as np
import pandas as pd
import pytest

from dpfast.io import check_n_pre, intervention_at, open_long_panel, open_panel, period_labels, target_rows

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
def test_a_table_lies_as_the_caller_says_whatever_its_labels(periods, units):
    frame = wide(index=units, columns=periods)
    for given, orientation in ((frame, "units_by_periods"), (frame.T, "periods_by_units")):
        panel = open_panel(given, 2, orientation=orientation)
        assert np.array_equal(panel.values, VALUES)
        assert list(panel.periods) == list(periods)
        assert np.array_equal(open_panel(given.to_numpy(), 2, orientation=orientation).values, VALUES)
    assert np.array_equal(open_panel(frame.set_axis(periods[:3]), 2).values, VALUES)
    assert np.array_equal(open_panel(frame.set_axis([units[0]] * 3), 2).values, VALUES)


@pytest.mark.parametrize("given", [VALUES, VALUES.tolist(), np.asfortranarray(VALUES), VALUES.astype(np.float32)])
def test_arrays_have_no_labels(given):
    panel = open_panel(given, 2)
    assert np.array_equal(panel.values, VALUES)
    assert panel.periods is None


def test_a_long_frame_is_a_wide_one():
    frame = long()
    panel, target = open_long_panel(frame, "who", "year", "sales", "b", 2)
    first_rows = frame.drop_duplicates("who").who
    order = [{"a": 0, "c": 2}[who] for who in first_rows if who != "b"]
    assert np.array_equal(panel.values, VALUES[order])
    assert np.array_equal(target, VALUES[1])
    assert list(panel.periods) == YEARS


def test_several_treated_units_are_rows_of_the_target():
    panel, targets = open_long_panel(long(), "who", "year", "sales", ["c", "a"], 2)
    assert np.array_equal(targets, VALUES[[2, 0]])
    assert np.array_equal(panel.values, VALUES[[1]])
    assert list(panel.periods) == YEARS
    _, (alone,) = open_long_panel(long(), "who", "year", "sales", ["b"], 2)
    assert np.array_equal(alone, VALUES[1])


def test_text_is_in_the_order_of_its_letters_unless_categories_are_declared_to_be_ordered():
    phases = ["run-in", "dose", "washout", "late"]
    frame = pd.DataFrame({"who": ["a"] * 4 + ["b"] * 4, "phase": 2 * phases, "sales": np.arange(8.0)})
    panel, target = open_long_panel(frame, "who", "phase", "sales", "b", 2)
    assert list(panel.periods) == sorted(phases)
    assert target.tolist() == [4.0 + phases.index(phase) for phase in sorted(phases)]
    declared = frame.assign(phase=pd.Categorical(frame.phase, categories=phases, ordered=True))
    panel, target = open_long_panel(declared, "who", "phase", "sales", "b", 2)
    assert list(panel.periods) == phases
    assert target.tolist() == [4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(
    "times",
    [
        ["May", "June", "July", "August"],
        ["Nov.", "Dec.", "Jan.", "Feb."],
        ["Dec 2023", "Jan 2024", "Feb 2024", "Mar 2024"],
        ["31.12.2023", "31.01.2024", "29.02.2024", "31.03.2024"],
        ["8", "9", "10", "11"],
        ["week 8", "week 9", "week 10", "week 11"],
    ],
)
def test_text_that_says_dates_or_numbers_is_refused_where_letters_would_put_it_in_another_order(times):
    frame = pd.DataFrame({"who": ["a"] * 4 + ["b"] * 4, "month": 2 * times, "sales": np.arange(8.0)})
    with pytest.raises(ValueError, match=r"times in column 'month' are text.*convert it to dates"):
        open_long_panel(frame, "who", "month", "sales", "b", 2)
    donors = frame.pivot(index="who", columns="month", values="sales")
    polars = pytest.importorskip("polars")
    for panel, orientation in (
        (donors, "units_by_periods"),
        (donors.T, "periods_by_units"),
        (polars.from_pandas(donors), "units_by_periods"),
    ):
        with pytest.raises(ValueError, match="donors must have its periods in order: sort its"):
            open_panel(panel, 2, orientation=orientation)
    assert list(open_panel(donors[times], 2).periods) == times
    in_order = frame.assign(month=pd.Categorical(frame.month, categories=times, ordered=True))
    assert list(open_long_panel(in_order, "who", "month", "sales", "b", 2)[0].periods) == times


@pytest.mark.parametrize(
    "times",
    [
        ["Q3 2023", "Q4 2023", "Q1 2024"],
        ["Nov", "Dec", "Jan"],
        ["2023.9", "2023.10", "2023.11"],
        ["01/12/2023", "15/01/2024", "31/01/2024"],
        ["t-2", "t-1", "t0"],
        ["y-3", "y-2", "y-1"],
        ["1.5", "1.75", "2.0"],
    ],
)
def test_columns_of_text_that_are_in_order_are_taken_whatever_their_letters_are(times):
    assert list(open_panel(pd.DataFrame(np.ones((4, 3)), columns=times), 2).periods) == times


UNDECLARED = {
    "numbers, and a name": [*range(2001, 2006), "age"],
    "years, and a name": [*map(str, range(2001, 2006)), "Muster"],
    "a name first": ["Muster", *map(str, range(2001, 2006))],
    "names": ["Anna", "Berta", "Carla"],
    "two series": ["sales 1", "sales 2", "price 1", "price 2"],
}


@pytest.mark.parametrize("case", UNDECLARED)
def test_a_column_that_is_no_period_is_refused_without_its_name(case):
    frame = pd.DataFrame(np.ones((4, len(UNDECLARED[case]))), columns=UNDECLARED[case])
    for panel, orientation in ((frame, "units_by_periods"), (frame.T, "periods_by_units")):
        with pytest.raises(ValueError, match="of periods alone") as raised:
            open_panel(panel, 2, orientation=orientation)
        assert not any(name in str(raised.value) for name in ("age", "Muster", "Anna", "sales", "2001"))


def test_any_text_is_a_period_in_a_category_declared_to_be_ordered():
    times = ["washout", "dose", "late"]
    frame = pd.DataFrame(np.ones((4, 3)), columns=pd.CategoricalIndex(times, categories=times, ordered=True))
    assert list(open_panel(frame, "late").periods) == times
    with pytest.raises(ValueError, match="in order"):
        open_panel(frame[["late", "dose", "washout"]], 2)


@pytest.mark.parametrize("times", [["2023-11", "2023-12", "2024-01"], ["08", "09", "10"], ["1.25", "1.5", "2.0"]])
def test_text_whose_letters_are_in_the_order_of_its_dates_or_numbers_is_taken(times):
    frame = pd.DataFrame({"who": ["a"] * 3 + ["b"] * 3, "month": 2 * times, "sales": np.arange(6.0)})
    assert list(open_long_panel(frame, "who", "month", "sales", "b", 2)[0].periods) == times


def test_periods_are_those_of_the_treated_unit():
    strange = pd.DataFrame({"who": "a", "year": [1989, 1994, 1995, 1995], "sales": [np.inf, 1.0, 2.0, 3.0]})
    panel, target = open_long_panel(pd.concat([strange, long()]), *LONG, 2)
    assert list(panel.periods) == YEARS
    assert np.array_equal(panel.values, VALUES[[0, 2]])
    assert np.array_equal(target, VALUES[1])
    nowhere = pd.concat([long(), strange.iloc[:1].assign(who="d")])
    with pytest.raises(ValueError, match="a pair of them is missing"):
        open_long_panel(nowhere, *LONG, 2)
    panel, _ = open_long_panel(nowhere, *LONG, 2, may_miss=True)
    assert len(panel.values) == 3
    assert np.isnan(panel.values[-1]).all()


@pytest.mark.parametrize(
    "times",
    [
        YEARS,
        [1990.25, 1990.5, 1990.75, 1991.0],
        ["t1", "t2", "t3", "t4"],
        list(pd.date_range("1990-01-31", periods=4, freq="D").as_unit("s")),
        list(pd.period_range("1990", periods=4, freq="Y")),
    ],
    ids=lambda times: f"{type(times[0]).__name__}-{times[0]}",
)
@pytest.mark.parametrize(
    "odd", [None, 2.5, "soon", True, pd.Timestamp("1990-01-31 00:00:00.000000001"), ("a", 1)], ids=repr
)
def test_a_time_of_one_donor_decides_nothing_of_the_others(times, odd):
    frame = (
        wide(columns=times).rename_axis("who").reset_index().melt(id_vars="who", var_name="time", value_name="sales")
    )
    frame["time"] = frame["time"].infer_objects()
    own = pd.DataFrame({"who": ["a"], "time": pd.Series([odd], dtype=object), "sales": [1.0]})
    other = pd.concat([own, frame.astype({"time": object})], ignore_index=True)
    inferred = other.assign(time=other["time"].infer_objects())
    expected, target = open_long_panel(frame, "who", "time", "sales", "b", 2)
    assert np.array_equal(expected.values, VALUES[[0, 2]])
    for given in (other, inferred):
        panel, same_target = open_long_panel(given, "who", "time", "sales", "b", 2)
        assert np.array_equal(panel.values, expected.values)
        assert np.array_equal(same_target, target)
        assert panel.periods.equals(expected.periods)
        assert panel.periods.dtype == expected.periods.dtype


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
    "one dimension": (VALUES[0], 2, r"donors must be 2-D, got an array of 1 dimension"),
    "a constant": (3.0, 2, r"donors must be 2-D, got an array of 0 dimension"),
    "a series": (wide().loc["a"], 2, "donors must be two-dimensional, units by periods, got a Series"),
    "no unit": (VALUES[:0], 2, "donors must have at least one unit, got none"),
    "NaN": (NAN, 2, "donors contains NaN: fill it, or declare the observation_rate"),
    "infinity": (np.where(VALUES == 5.0, np.inf, VALUES), 2, "donors contains infinity"),
    "text": (wide().astype(str), 2, "donors has entries that are not numbers"),
    "period twice": (wide(columns=[1990, 1991, 1991, 1992]), 2, "donors must have each period once: .* columns occurs"),
    "periods out of order": (wide(columns=[1993, 1992, 1991, 1990]), 2, "donors must have its periods in order"),
    "levels": (
        wide(columns=pd.MultiIndex.from_product([["a", "b"], [1, 2]])),
        2,
        "donors must have periods labelled on one level: use fit_long",
    ),
    "n_pre of 0": (VALUES, 0, "n_pre must leave a period before and after .* below the 4 periods of donors, got 0"),
    "n_pre of all": (VALUES, 4, "n_pre must leave a period before and after .* below the 4 periods of donors, got 4"),
    "one period": (pd.DataFrame({2001: [1.0, 2.0]}), 2001, "n_pre must leave a period before and after"),
    "no periods": (pd.DataFrame(index=["a", "b"]), 2001, "n_pre must leave a period before and after"),
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
    "a set of treated": (long(), ("who", "year", "sales", {"a"}), "treated must be the label of a unit, or a list"),
    "one of two treated": (
        long(),
        ("who", "year", "sales", ["b", "z"]),
        "treated must be one of the units .*, got 'z'",
    ),
    "treated in a list twice": (long(), ("who", "year", "sales", ["b", "b"]), "at least one unit, and each once"),
    "none treated": (long(), ("who", "year", "sales", []), "at least one unit, and each once"),
    "no such column": (long(), ("name", "year", "sales", "b"), "unit must be a column of frame, got 'name'"),
    "one column for two": (long(), ("who", "who", "sales", "b"), "unit, time and value must be three columns"),
    "no unit": (long().replace({"who": {"a": None}}), LONG, "column 'who' has missing ids: every row needs one$"),
    "no time": (long().replace({"year": {1991: None}}), LONG, "the treated unit has a row without a time"),
    "times of two kinds": (long().replace({"year": {1991: "then"}}), LONG, "the treated unit has times .* in order"),
    "treated twice": (
        pd.concat([long(), long().query("who == 'b'").iloc[:1]]),
        LONG,
        "a pair of them occurs more than once",
    ),
    "a list for a unit": (long().assign(who=[["a"]] * 12), LONG, "column 'who' holds an id that is not hashable"),
    "text": (long().astype({"sales": str}), LONG, "column 'sales' has entries that are not numbers"),
    "NaN": (long().replace({"sales": {0.0: np.nan}}), LONG, "column 'sales' contains NaN"),
    "treated NaN": (long().replace({"sales": {5.0: np.nan}}), LONG, "the treated unit in column 'sales' contains NaN"),
    "an array": (VALUES, LONG, "the table is a numpy.ndarray, which has no named columns"),
}


def test_an_orientation_is_one_of_two():
    with pytest.raises(ValueError, match="orientation must be 'units_by_periods' or 'periods_by_units', got 'wide'"):
        open_panel(VALUES, 2, orientation="wide")
    with pytest.raises(ValueError, match="in order: sort its rows first"):
        open_panel(wide().T[::-1], 2, orientation="periods_by_units")


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


# The intervention, by how many periods come before it or by the label of the first that comes after.

CALENDAR = pd.Index(range(1970, 2001))
MONTHS = pd.date_range("1992-01", periods=30, freq="MS")


@pytest.mark.parametrize(
    ("given", "periods", "number"),
    [
        (19, CALENDAR, 19),
        (1989, CALENDAR, 19),
        (np.int64(1989), CALENDAR, 19),
        (1971, CALENDAR, 1),
        (2000, CALENDAR, 30),
        ("1993", MONTHS, 12),
        ("1992-03-01", MONTHS, 2),
        (pd.Timestamp("1994-01-01"), MONTHS, 24),
        (np.datetime64("1994-01-01"), MONTHS, 24),
        ("c", pd.Index(list("abcd")), 2),
        (1990, pd.Index(["1988", "1989", "1990", "1991"]), 2),
        # A number of periods, though it is a label too: of the fourth.
        (3, pd.Index([0, 1, 2, 3, 4]), 3),
        (30, pd.Index([10, 20, 30]), 2),
        (2, None, 2),
    ],
)
def test_an_intervention_is_a_number_of_periods_or_a_label(given, periods, number):
    n_periods = 4 if periods is None else len(periods)
    assert intervention_at(given, periods, n_periods) == number


@pytest.mark.parametrize(
    ("given", "periods"),
    [
        (1970, CALENDAR),
        (2001, CALENDAR),
        (0, CALENDAR),
        (-1, CALENDAR),
        (1989.5, CALENDAR),
        ("1989", CALENDAR),
        (None, CALENDAR),
        ([1989], CALENDAR),
        ("1991", MONTHS),
        ("soon", MONTHS),
        ("1992-01", MONTHS),
    ],
)
def test_what_is_no_number_and_no_label_is_refused(given, periods):
    words = (
        r"n_pre must be a number of periods, at least 1 and below the \d+ of donors, or the label of the first period.*"
        r"got .*; donors are rows, or columns with orientation='periods_by_units'"
    )
    with pytest.raises(ValueError, match=words):
        intervention_at(given, periods, len(periods))


def libraries(frame):
    """Yield the same rows as tables of other libraries."""
    pa, pl, duckdb = map(pytest.importorskip, ("pyarrow", "polars", "duckdb"))
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    held = pl.from_arrow(arrow)
    yield from (arrow, arrow.to_reader(max_chunksize=5), held, held.lazy(), duckdb.connect().from_arrow(arrow))


@pytest.mark.parametrize("time", ["year", "day", "month"])
def test_long_panels_of_every_library_are_one(time, tmp_path):
    frame = long()
    years = frame["year"].astype(int)
    frame["day"] = pd.to_datetime(years.astype(str))
    frame["month"] = pd.Categorical(years.map("m{}".format), ["m1993", "m1992", "m1991", "m1990"], ordered=True)
    expected, target = open_long_panel(frame, "who", time, "sales", "b", 2)
    frame.to_parquet(tmp_path / "long.parquet", row_group_size=5)
    tables = [tmp_path / "long.parquet", *libraries(frame)]
    # Polars keeps no order of categories, and DuckDB another.
    for table in tables[: 3 if time == "month" else None]:
        panel, same_target = open_long_panel(table, "who", time, "sales", "b", 2)
        assert np.array_equal(panel.values, expected.values)
        assert np.array_equal(same_target, target)
        assert panel.periods.tolist() == expected.periods.tolist()
    if time == "day":
        assert open_long_panel(table, "who", time, "sales", "b", "1992")[0].n_pre == 2


def test_wide_panels_of_every_library_are_one():
    for table in libraries(wide()):
        panel = open_panel(table, "1992")
        assert np.array_equal(panel.values, VALUES)
        assert panel.periods.tolist() == ["1990", "1991", "1992", "1993"]
    for table in libraries(wide().T.set_axis(list("abc"), axis=1)):
        assert np.array_equal(open_panel(table, 2, orientation="periods_by_units").values, VALUES)


def test_a_text_file_does_not_say_what_times_are(tmp_path):
    long().to_csv(tmp_path / "long.csv")
    with pytest.raises(TypeError, match="does not say which columns hold numbers or dates"):
        open_long_panel(tmp_path / "long.csv", *LONG, 2)


def test_tables_without_a_column_or_numbers_are_refused_by_name():
    for table in libraries(long().assign(text="Anna")):
        with pytest.raises(ValueError, match="value must be a column of frame, got 'value'"):
            open_long_panel(table, "who", "year", "value", "b", 2)
    for table in libraries(long().assign(text="Anna")):
        with pytest.raises(TypeError, match=r"^column 'text' has entries that are not numbers: use \.astype\(float\)$"):
            open_long_panel(table, "who", "year", "text", "b", 2)


@pytest.mark.parametrize(
    "periods",
    [
        YEARS,
        ["t1", "t2", "t3", "t4"],
        pd.date_range("1990-01-31", periods=4, freq="ME"),
        pd.period_range("1990", periods=4, freq="Y"),
    ],
    ids=lambda periods: str(periods[0]),
)
def test_labels_of_a_target_are_those_of_the_periods(periods):
    labels = period_labels(pd.Index(periods))
    series = pd.Series([1.0, 2.0, 3.0, 4.0], periods)
    lengths = {"n_pre": 2, "all": 4}
    for target in (series, series[:2], series.to_numpy(), pd.DataFrame([series, series])):
        np.testing.assert_array_equal(target_rows(target, lengths, periods=labels), np.asarray(target))
    for target in (series[::-1], series[2:], series.reset_index(drop=True), pd.DataFrame([series])[periods[::-1]]):
        with pytest.raises(ValueError, match=r"target must have the donors' periods as its (index|columns)"):
            target_rows(target, lengths, periods=labels)
    # Places are labels of nothing.
    assert target_rows(series, lengths, periods=np.arange(4)).tolist() == series.tolist()
