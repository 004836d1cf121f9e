"""A column of ids as numbers: alike for every kind of table, refused where it cannot say whose a row is."""

from enum import Enum

import numpy as np
import pytest

from dpfast.io import Category, Columns, RowOwners, Trajectories
from dpfast.io.panel import open_long_panel
from dpfast.io.people import people

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

IDS = ["b", "a", "b", "c", "a", "b"]
NUMBERS = [0, 1, 0, 2, 1, 0]


def owners(table):
    return np.asarray(RowOwners(table, "id")).tolist()


@pytest.mark.parametrize("ids", [IDS, [7, 2**60 + 1, 7, 2**60, 2**60 + 1, 7], [0.5, 1.5, 0.5, -1.0, 1.5, 0.5]])
def test_every_kind_of_table(ids, tmp_path):
    frame = pd.DataFrame({"x": np.arange(6.0), "id": ids})
    frame.to_csv(tmp_path / "t.csv", index=False)
    parquet.write_table(pa.table(frame), tmp_path / "t.parquet", row_group_size=2)
    for table in (
        frame,
        frame.astype({"id": str}).astype({"id": "category"}),
        pa.table(frame),
        pa.table({"id": pa.array(map(str, ids)).dictionary_encode()}),
        [frame[:2], frame[2:2], frame[2:]],
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
    ):
        assert owners(table) == NUMBERS
    assert owners(frame[:0]) == []


def test_ids_of_a_text_file_are_text(tmp_path):
    (tmp_path / "t.csv").write_text("id\n7\n07\n7.0\n7\n")
    assert owners(tmp_path / "t.csv") == [0, 1, 2, 0]


@pytest.mark.parametrize("ids", [["a", None], [1.0, np.nan]])
def test_missing_ids_are_refused(ids, tmp_path):
    frame = pd.DataFrame({"id": ids})
    frame.to_csv(tmp_path / "t.csv", index=False)
    kinds = [frame, pa.table(frame), pa.table({"id": pa.array(["a", None]).dictionary_encode()}), tmp_path / "t.csv"]
    kinds += [pa.table({"id": np.array([1.0, np.nan])}), pa.table({"id": pa.nulls(2)})]
    kinds += [pa.table({"id": pa.DictionaryArray.from_arrays([0, 1], pa.array(["a", None]))})]
    for table in kinds:
        with pytest.raises(ValueError, match="column 'id' has missing ids"):
            owners(table)


def test_ids_of_a_dictionary_that_no_row_has_are_nobodys():
    values = pa.array(["d", "b", "a", None, "c"])
    table = pa.table({"id": pa.DictionaryArray.from_arrays(pa.array([2, 1, 2], pa.uint8()), values)})
    whose = RowOwners(table, "id")
    assert np.asarray(whose).tolist() == [0, 1, 0]
    assert list(whose.distinct()) == ["a", "b"]


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()])
def test_codes_that_a_dictionary_does_not_have_are_nobodys(text):
    """Nor a place's, a time's or a state's: Arrow reads them from a damaged file without a word."""
    for code in (-2, -1, 2, 127):
        codes, count = pa.array([0, code], pa.int8()), pa.array([1, 2])
        lie = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"], text), safe=False)
        table = pa.table({"id": lie, "t": count, "y": pa.array([0.5, 1.0])})
        readers = [
            owners,
            lambda table: [np.asarray(x) for x, _ in Columns([Category("id", ["a", "b"])]).encode(table)],
            lambda table: open_long_panel(table, "id", "t", "y", "a", 1),
            lambda table: open_long_panel(table, "t", "id", "y", 1, "b"),
            lambda table: Trajectories.from_frame(table, trajectory="id", state="t", reward="y", n_states=3),
            lambda table: Trajectories.from_frame(table, trajectory="t", state="id", reward="y", states=["a", "b"]),
            lambda table: Trajectories.from_frame(table, trajectory="t", state="t", reward="y", n_states=3, step="id"),
        ]
        for read in readers:
            with pytest.raises(ValueError, match="column 'id' holds codes that its dictionary does not have"):
                read(table)
        with pytest.raises(ValueError, match="groups cannot be read as an array of ids"):
            people(lie, 1)


def test_ids_of_two_kinds_and_no_ids_are_refused():
    text, numbers = pd.DataFrame({"id": ["1"]}), pd.DataFrame({"id": [1]})
    with pytest.raises(TypeError, match="text in some parts of the table and numbers in others"):
        owners([text, numbers])
    with pytest.raises(TypeError, match=r"column 'id' of the frame holds datetime.*; ids are numbers or text"):
        owners(pd.DataFrame({"id": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(ValueError, match="has no column 'id'"):
        owners(pd.DataFrame({"x": [1]}))
    assert repr(RowOwners(text, "id")) == "<RowOwners by 'id': not private>"


@pytest.mark.parametrize("missing", [np.nan, None, pd.NaT])
def test_ids_that_equal_no_copy_of_themselves_are_refused(missing):
    frame = pd.DataFrame({"id": [("a", missing), ("a", 1)]})
    with pytest.raises(ValueError, match="column 'id' has missing ids"):
        owners(frame)
    with pytest.raises(TypeError, match="column 'id' holds an id that does not equal a copy of itself"):
        owners(pd.DataFrame({"id": [object(), 1]}))


def test_numbers_and_text_are_two_people_whatever_else_is_in_the_column():
    ids = [1, "1", 1.0, True, "a", ("1",), (1,)]
    assert owners(pd.DataFrame({"id": pd.Series(ids, dtype=object)})) == [0, 1, 0, 0, 2, 3, 4]


def test_members_of_an_enumeration_are_people_and_plain_objects_are_not():
    site = Enum("site", ["BERN", "BASEL"])
    whose = people([site.BERN, site.BASEL, site.BERN], 3)
    assert whose.n_people == 2
    with pytest.raises(TypeError, match="does not equal a copy of itself"):
        people([object(), object()], 3)


@pytest.mark.parametrize(
    "dtype", ["U1", "U2", "U9", "S1", "S8", "S9", "f2", "f4", "f8", "g", "i1", "u8", ">i8", "M8[s]", "m8[D]"]
)
def test_ids_of_every_dtype_are_told_apart(dtype):
    """Rows of one person are consecutive or not; the order of ids is of no concern."""
    for numbers in (np.array(NUMBERS), np.arange(30) % 7):
        ids = np.array(list("abcdefg"))[numbers] if dtype[0] in "US" else numbers
        ids = (ids / 4 if dtype[0] in "fg" else ids).astype(dtype)
        whose = people(ids, 100)
        counts = np.unique(numbers, return_counts=True)[1]
        assert np.diff(whose.offsets).tolist() == counts.tolist()
