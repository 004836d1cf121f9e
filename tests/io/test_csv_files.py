import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpfast.io import Category, Columns, Number, RowOwners, blocks, csv_files
from dpfast.statistics import gram

COLUMNS = Columns(
    [Number("x", missing=-1.0), Category("site", ("a", "b"), missing="a", undeclared="zeros")],
    [Number("y", missing=-1.0)],
)
LINES = [
    f"0.{i}1,{'ab'[i % 2]},0.{i}2,{note}".encode() for i, note in enumerate(["", '"5 ft"', '"a,b"', '6" x', '"q""q"'])
]

# Whatever a person can put into a line: what a parser of CSV gives a meaning to, and any other bytes.
SPECIAL = [
    b'"',
    b",",
    b"\r",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\\",
    b"'",
    b";",
    b"\t",
    b" ",
    b"\x1a",
    b"\x0b",
    b"1",
    b"a",
]
LINE = st.one_of(
    st.lists(st.sampled_from(SPECIAL), max_size=12).map(b"".join),
    st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
    st.tuples(st.sampled_from(LINES), st.sampled_from(SPECIAL), st.integers(0, 20)).map(
        lambda one: one[0][: one[2]] + one[1] + one[0][one[2] :]
    ),
)


def write(path, lines, end=b"\n"):
    path.write_bytes(b"x,site,y,note" + end + b"".join(line + end for line in lines))
    return path


def encoded(path):
    """Return the rows; None if a cell of a declared column is refused."""
    try:
        return np.concatenate([np.hstack([x, y]) for x, y in COLUMNS.encode(path)])
    except ValueError as refused:
        if re.search("cells that are not|infinite numbers", str(refused)):
            return None
        raise


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "t.csv"


@given(
    LINE,
    st.integers(0, len(LINES)),
    st.booleans(),
    st.sampled_from([1, 7, 40, 1 << 22]),
    st.sampled_from([b"\n", b"\r\n"]),
)
@example(line=b'0.1,a,0.1,"open', place=0, replaces=True, block_bytes=1 << 22, end=b"\n")
@example(line=b"0.1,a,0.1,a\rb", place=2, replaces=False, block_bytes=1, end=b"\r\n")
@example(line=b"", place=1, replaces=True, block_bytes=7, end=b"\n")
@example(line=b"\xef\xbb\xbf0.1,a,0.1,", place=0, replaces=True, block_bytes=1, end=b"\n")
def test_a_line_decides_its_own_row_and_no_other(path, line, place, replaces, block_bytes, end):
    """Under both adjacencies: a line in another's place, or one more."""
    place = min(place, len(LINES) - 1) if replaces else place
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_BLOCK_BYTES", block_bytes)
        before = encoded(write(path, LINES, end))
        after = encoded(write(path, [*LINES[:place], line, *LINES[place + replaces :]], end))
    assert before is not None
    if after is None:
        return
    assert len(after) == len(LINES) + (not replaces)
    assert np.array_equal(after[:place], before[:place])
    assert np.array_equal(after[place + 1 :], before[place + replaces :])


@pytest.mark.parametrize(
    "line", [b"", b'0.1,a,0.1,"open', b"0.1,a,0.1", b"0.1,a,0.1,,", b"0.1,a,0.1,a\rb", b'"0.1,a,0.1,']
)
def test_a_line_that_does_not_parse_is_a_row_of_missing_cells(path, line):
    assert encoded(write(path, [LINES[0], line, LINES[1]]))[1].tolist() == [-1.0, 1.0, 0.0, -1.0]
    with pytest.raises(ValueError, match="column 'x' has missing entries"):
        list(Columns(["x"]).encode(path))
    with pytest.raises(ValueError, match="column 'note' has missing ids"):
        np.asarray(RowOwners(path, "note"))


def test_a_line_that_does_not_parse_is_refused_where_every_column_is_a_number(path):
    path.write_text('a,b\n0.1,0.2\n0.1,"0.2\n0.3,0.4\n')
    with pytest.raises(ValueError, match="X contains NaN"):
        gram(path, bound_x=1.0)


def test_a_quoted_line_break_is_two_rows(path):
    rows = encoded(write(path, [LINES[0], b'0.1,a,0.1,"one\ntwo"', LINES[1]]))
    assert rows[1:3].tolist() == [[-1.0, 1.0, 0.0, -1.0]] * 2


def test_quotes_that_are_closed_on_their_line_are_read_as_pandas_reads_them(path):
    notes = ["a,b", 'say ""hi""', "", "plain", '5" nail']
    path.write_text("x,note\n" + "".join(f'{i},"{one}"\n' if i < 4 else f"{i},{one}\n" for i, one in enumerate(notes)))
    batches = csv_files.csv_batches(path, {"note": "text"})
    read = [one for batch, _ in batches for one in batch.batch.column("note").to_pylist()]
    assert read == [None if one == "" else one for one in pd.read_csv(path, keep_default_na=False)["note"]]


@pytest.mark.parametrize("header", ['a,"b\n1,2\n', "a,b\rc,d\r"])
def test_a_first_line_that_does_not_end_is_refused(path, header):
    path.write_bytes(header.encode())
    with pytest.raises(ValueError, match="is not a CSV file in UTF-8, a line a row"):
        gram(path, bound_x=1.0)


def test_a_last_line_needs_no_end(path):
    path.write_text("a\n1\n2")
    assert np.concatenate([x for x, _ in blocks(path)]).tolist() == [[1.0], [2.0]]
