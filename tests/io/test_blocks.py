"""Every kind of table gives the same Gram, to the bit, as its values in one NumPy array."""

import numpy as np
import pytest

from dpfast import io
from dpfast._redacted import redact_errors
from dpfast.io import blocks, in_memory
from dpfast.statistics import GramAccumulator, gram

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(7)
    return rng.standard_normal((5000, 4)), rng.standard_normal((5000, 2))


@pytest.fixture(scope="module")
def expected(arrays):
    return gram(*arrays, **BOUNDS, sums=True)


def frame_of(table, prefix="c"):
    return pd.DataFrame(table, columns=[f"{prefix}{j}" for j in range(table.shape[1])])


def grown_frame(table):
    """A frame whose last column was added later: pandas keeps it in a block of its own."""
    frame = frame_of(table[:, :-1])
    frame[f"c{table.shape[1] - 1}"] = table[:, -1]
    return frame


def arrow_of(table, dtype=None):
    columns = {f"c{j}": table[:, j] if dtype is None else table[:, j].astype(dtype) for j in range(table.shape[1])}
    return pa.table(columns)


def kinds(table, tmp_path):
    import pyarrow.dataset as dataset
    import pyarrow.parquet as parquet

    arrow = arrow_of(table)
    parquet.write_table(arrow, tmp_path / "table.parquet", row_group_size=700)
    np.save(tmp_path / "table.npy", table)
    yield table.tolist()
    yield frame_of(table)
    yield grown_frame(table)
    yield frame_of(table).astype({"c0": "Float64"})
    yield frame_of(table).set_index(pd.Index(range(10, 10 + len(table))))
    yield arrow
    yield pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=333))
    yield arrow.combine_chunks().to_batches()[0]
    yield dataset.dataset(tmp_path / "table.parquet")
    yield tmp_path / "table.parquet"
    yield str(tmp_path / "table.npy")
    yield [table[:77], table[77:]]
    yield (block for block in np.array_split(table, 6))
    yield [frame_of(table[:77]), arrow_of(table[77:])]


def test_every_kind_of_table_gives_the_same_bits(arrays, expected, tmp_path):
    X, Y = arrays
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    for x in kinds(X, tmp_path / "x"):
        assert gram(x, Y, **BOUNDS, sums=True) == expected
    for x, y in zip(kinds(X, tmp_path / "x"), kinds(Y, tmp_path / "y"), strict=True):
        assert GramAccumulator(4, 2, **BOUNDS, sums=True).update(x, y).gram() == expected


def test_streams_of_pairs_and_streams_cut_differently(arrays, expected):
    X, Y = arrays
    assert gram([(X[:1], Y[:1]), (X[1:], Y[1:])], **BOUNDS, sums=True) == expected
    assert gram(iter(np.array_split(X, 7)), iter(np.array_split(Y, 11)), **BOUNDS, sums=True) == expected
    assert gram(iter([X[:0], X, X[:0]]), [Y], **BOUNDS, sums=True) == expected
    for x, y in blocks(np.array_split(X, 7), np.array_split(Y, 11)):
        assert len(x) == len(y) > 0


def test_one_outcome_may_be_one_dimensional(arrays):
    X, Y = arrays
    expected = gram(X, Y[:, :1], **BOUNDS)
    for y in (Y[:, 0], pd.Series(Y[:, 0]), pd.Series(Y[:, 0], dtype="Float64"), Y[:, 0].tolist()):
        assert gram(X, y, **BOUNDS) == expected
    assert gram(iter([X]), iter([Y[:, 0]]), **BOUNDS) == expected


def test_small_dtypes_of_frames_and_arrow(arrays):
    X, _ = arrays
    small = (X * 3).astype(np.int8)
    expected = gram(small, bound_x=5.0)
    assert gram(frame_of(small), bound_x=5.0) == expected
    assert gram(frame_of(small).astype({"c1": "Int16"}), bound_x=5.0) == expected
    assert gram(arrow_of(small), bound_x=5.0) == expected
    assert gram(arrow_of(X, np.float32), bound_x=5.0) == gram(X.astype(np.float32), bound_x=5.0)
    assert gram(frame_of(X > 0), bound_x=5.0) == gram(X > 0, bound_x=5.0) == gram(arrow_of(X > 0), bound_x=5.0)


def test_rows_of_frames(arrays):
    X, Y = arrays
    rows = np.array([4999, 3, 17])
    by_columns = grown_frame(X)
    for frame in (frame_of(X), by_columns):
        assert gram(frame, frame_of(Y), rows=rows, **BOUNDS) == gram(X[rows], Y[rows], **BOUNDS)
    with pytest.raises(TypeError, match="rows selects from arrays"):
        gram(iter([X]), bound_x=1.0, rows=rows)
    with pytest.raises(TypeError, match="rows selects from arrays"):
        GramAccumulator(4, bound_x=1.0).update(arrow_of(X).to_reader(), rows=rows)


def test_empty_tables(tmp_path):
    for empty in (
        np.ones((0, 4)),
        frame_of(np.ones((0, 4))),
        arrow_of(np.ones((0, 4))),
        [np.ones((0, 4))],
        frame_of(np.ones((0, 4))).astype({"c0": "Int8"}),
    ):
        moments = gram(empty, bound_x=1.0)
        assert moments.n_rows == 0
        assert not moments.xx.any()
    with pytest.raises(ValueError, match="no blocks"):
        gram(iter([]), bound_x=1.0)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (pd.DataFrame({"age": [1.0], "name": ["secret"]}), TypeError, r"X has columns that are not numbers: name"),
        (pd.Series(["secret"], name="name"), TypeError, "numbers: (str|object); leave them out, make floats"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), TypeError, "when"),
        (pd.DataFrame({"kind": pd.Categorical(["a"])}), TypeError, "kind"),
        (pd.DataFrame({"a": [1 + 2j]}), TypeError, "a "),
        (pa.table({"age": [1.0], "name": ["secret"]}), TypeError, r"name \(string\)"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), ValueError, "X contains NaN or infinity"),
        (pa.table({"a": [1.0, None]}), ValueError, "X contains NaN or infinity"),
        (pa.table({"a": [1, None]}), ValueError, "X contains NaN or infinity"),
        (iter([7]), TypeError, "builtins.int; accepted"),
        (iter([(np.ones((1, 1)),)]), TypeError, r"\(X, Y\) pairs"),
        ({1.0}, TypeError, "builtins.set; accepted"),
        (
            ["12.secret"],
            TypeError,
            "^X holds text; .*, or paths that end in .parquet, .pq, .csv, .npy$",
        ),
        (["secret*"], TypeError, "^X holds text"),
        (("secret" * 100,), TypeError, "^X holds text"),
        (["secret\0"], TypeError, "^X holds text"),
    ],
)
def test_unfit_tables_are_refused_without_their_values(table, error, message):
    with pytest.raises(error, match=message) as raised:
        gram(table, bound_x=1.0)
    assert "secret" not in str(raised.value)


def test_streams_of_unequal_length_are_refused():
    X, Y = np.ones((10, 2)), np.ones((10, 1))
    for x, y in (([X, X], [Y]), ([X], [Y, Y]), (iter([X]), iter([Y, Y[:1]]))):
        with pytest.raises(ValueError, match="different numbers of rows"):
            gram(x, y, **BOUNDS)
    with pytest.raises(TypeError, match="pairs are accepted only"):
        gram(iter([(X, Y)]), iter([Y]), **BOUNDS)


def test_a_frame_of_several_blocks_is_not_copied_as_a_whole(arrays):
    X, _ = arrays
    assert in_memory(frame_of(X), "X") is not None
    assert in_memory(grown_frame(X), "X") is None
    assert gram(grown_frame(X), bound_x=1.0) == gram(X, bound_x=1.0)


def test_an_error_of_another_library_is_replaced_whole():
    """What it says may quote a cell; so may whatever a traceback shows as its cause."""
    with pytest.raises(ValueError, match=r"^X holds text$") as caught:
        redact_errors(lambda: float("a cell"), "X holds text")
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_masked_entries_are_no_numbers():
    with pytest.raises(TypeError, match="X is a masked array"):
        list(blocks(np.ma.masked_array(np.ones((2, 2)), mask=[[True, False], [False, False]])))


def test_a_table_can_be_read_again_unless_it_is_an_iterator(tmp_path):
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": y})
    arrow = pa.Table.from_pandas(frame)
    np.save(tmp_path / "x.npy", x)
    frame.to_csv(tmp_path / "x.csv", index=False)
    encoded = io.Columns(["a", "b"], ["c"])
    blocks = [(x[:2], y[:2]), (x[2:], y[2:])]
    again = [(x, y), (frame, y), (arrow, y), (str(tmp_path / "x.npy"), y), (str(tmp_path / "x.csv"), None)]
    again += [([x[:2], x[2:]], y), (blocks, None), (encoded.encode(frame), None), (encoded.encode([frame]), None)]
    once = [(iter([x]), y), (x, iter([y])), (arrow.to_reader(), y), (iter(blocks), None), ([arrow.to_reader()], y)]
    once += [(encoded.encode(arrow.to_reader()), None), (encoded.encode([arrow.to_reader()]), None)]
    for tables, expected in ((again, False), (once, True)):
        for one in tables:
            table = io.open_table(*one)
            assert table.is_read_once == expected
            first = [np.asarray(block) for block, _ in table.blocks()]
            if expected:
                with pytest.raises(ValueError, match="only once"):
                    list(table.blocks())
            else:
                np.testing.assert_array_equal(np.vstack([block for block, _ in table.blocks()]), np.vstack(first))
