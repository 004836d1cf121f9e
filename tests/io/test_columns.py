"""Columns encoded by declaration: the same numbers from every kind of table, and messages that name columns only."""

from threading import get_ident

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy
from dpfast.io import Boolean, Category, Columns, Number, arrow, csv_files, frames
from dpfast.io.blocks import is_read_once
from dpfast.io.frames import places_of_codes
from dpfast.kernels.columns import CodedBlock
from dpfast.statistics import gram

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SITES = ("Bern", "Basel", "Genf")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    n = 2000
    frame = pd.DataFrame(
        {
            "unused": ["secret"] * n,
            "site": rng.choice([*SITES, None, "Chur"], n),
            "ward": rng.choice([3.0, 1.0, 20.0, np.nan], n),
            "age": rng.uniform(0, 90, n),
            "smoker": rng.choice([True, False, None], n),
            "days": rng.standard_normal(n),
        }
    )
    frame.loc[::7, "age"] = np.nan
    return frame.astype({"smoker": "boolean"})


COLUMNS = Columns(
    [
        Number("age", missing=50.0),
        Boolean("smoker", missing=True),
        Category("site", SITES, missing="Genf", undeclared="zeros"),
        Category("ward", (3, 20, 1), drop_first=True, missing=20),
    ],
    ["days"],
)


def encoded(columns, table):
    parts = list(columns.encode(table))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


@pytest.fixture(scope="module")
def expected(frame):
    """The same, cell by cell."""
    rows = []
    for _, row in frame.iterrows():
        site = "Genf" if row.site is None or row.site is pd.NA or row.site != row.site else row.site
        ward = 20 if np.isnan(row.ward) else row.ward
        rows.append(
            [50.0 if np.isnan(row.age) else row.age, 1.0 if row.smoker is pd.NA else float(row.smoker)]
            + [float(site == level) for level in SITES]
            + [float(ward == level) for level in (20, 1)]
        )
    return np.array(rows), frame[["days"]].to_numpy()


def tables(frame, folder):
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", row_group_size=300)
    frame[:99].to_csv(folder / "part-1.csv", index=False)
    frame[99:].to_csv(folder / "part-2.csv", index=False)
    yield frame
    yield frame.set_index(frame.index + 5)
    yield frame.astype({"site": "category"})
    yield frame.astype({"site": "string", "ward": "Float64"})
    yield frame.assign(smoker=frame.smoker.astype("Float64"))
    yield arrow
    yield arrow.set_column(1, "site", arrow["site"].dictionary_encode())
    yield arrow.set_column(1, "site", arrow["site"].cast(pa.large_string()))
    yield arrow.set_column(2, "ward", arrow["ward"].cast(pa.int8()))
    yield pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=333))
    yield folder / "t.csv"
    yield str(folder / "t.parquet")
    yield folder / "part-*.csv"
    yield [frame[:700], arrow.slice(700)]
    yield (part for part in (frame[:0], frame))


def test_every_kind_of_table_is_encoded_alike(frame, expected, tmp_path):
    for table in tables(frame, tmp_path):
        x, y = encoded(COLUMNS, table)
        assert np.array_equal(x, expected[0])
        assert np.array_equal(y, expected[1])


def test_names_follow_the_declaration():
    assert COLUMNS.feature_names == ("age", "smoker", "site=Bern", "site=Basel", "site=Genf", "ward=20", "ward=1")
    assert COLUMNS.outcome_names == ("days",)


def test_every_kind_of_table_gives_the_bits_of_the_fit_in_memory(frame, expected, tmp_path):
    def model(refine):
        bounds = {"bound_x": 90.0, "bound_y": 3.0, "fit_intercept": True}
        return MultiOutcomeRidge(1.0, 1e-6, **bounds, refine=refine, random_state=4)

    coef = model(0).fit(*expected).coef_
    # Residual steps of rows with codes round otherwise than those of indicators.
    refined = model(2).fit(COLUMNS.encode(frame), None).coef_
    np.testing.assert_allclose(refined, model(2).fit(*expected).coef_, rtol=1e-4, atol=1e-6)
    n_refined = 0
    for table in tables(frame, tmp_path):
        rows = COLUMNS.encode(table)
        if is_read_once(rows):
            assert np.array_equal(model(0).fit(rows, None).coef_, coef)
        else:
            assert np.array_equal(model(2).fit(rows, None).coef_, refined)
            n_refined += 1
    assert n_refined == 13


def test_rows_to_predict_need_no_outcomes_and_keep_their_index(frame, expected, tmp_path):
    assert all(y is None for _, y in Columns(["days"]).encode(frame))
    for table in tables(frame.drop(columns="days"), tmp_path):
        rows = COLUMNS.transform(table)
        assert list(rows.columns) == list(COLUMNS.feature_names)
        assert np.array_equal(rows, expected[0])
    moved = COLUMNS.transform(frame.set_index(frame.index + 5))
    assert list(moved.index) == list(frame.index + 5)
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=90.0, bound_y=3.0, fit_intercept=False).fit(
        COLUMNS.encode(frame), None
    )
    np.testing.assert_allclose(model.predict(moved), expected[0] @ model.coef_.T + model.intercept_)
    assert COLUMNS.transform(frame[:0]).shape == (0, 7)
    with pytest.raises(TypeError, match="table"):
        COLUMNS.transform(frame["age"])


def test_an_encoded_table_can_be_read_again_and_counts_bytes(frame, tmp_path):
    for name in ("t.csv", "t.parquet"):
        path = tmp_path / name
        frame.to_csv(path, index=False) if name == "t.csv" else frame.to_parquet(path, row_group_size=100)
        counts = []
        other = tmp_path / f"other{path.suffix}"
        other.write_bytes(path.read_bytes())
        table = COLUMNS.encode([path, other], counts.append)
        assert [len(list(table)) for _ in range(2)] == [len(counts) / 2 + 1] * 2
        assert sum(counts) == 4 * path.stat().st_size


def table_of(**columns):
    return pd.DataFrame(columns)


# Text of pandas before 3 is a column of objects.
OBJECTS = "column 'a' holds entries that are not numbers"


@pytest.mark.parametrize(
    ("column", "table", "error", "message"),
    [
        (Number("a"), table_of(a=[1.0, np.nan]), ValueError, "column 'a' has missing entries"),
        (Number("a", missing=0.0), table_of(a=[77.0, np.inf]), ValueError, "column 'a' holds infinite"),
        (Number("a"), table_of(a=[np.inf, -np.inf]), ValueError, "column 'a' holds infinite"),
        (Number("a"), table_of(a=["77"]), TypeError, "of the frame holds .*; declared as Number|" + OBJECTS),
        (Number("a"), table_of(a=[1 + 2j]), TypeError, "column 'a' of the frame holds complex128"),
        (Boolean("a"), table_of(a=[77.0, 1.0]), ValueError, "column 'a' is declared boolean, but"),
        (Boolean("a"), table_of(a=pd.array([True, None], "boolean")), ValueError, "column 'a' has missing"),
        (Boolean("a"), table_of(a=["77"]), TypeError, "must hold booleans, or zeros and ones|" + OBJECTS),
        (Category("a", ("x",)), table_of(a=["x", "77"]), ValueError, "column 'a' holds a level that is not declared"),
        (Category("a", ("x",)), table_of(a=["x", None]), ValueError, "column 'a' has missing"),
        (Category("a", ("x",)), table_of(a=[77]), TypeError, "declared as Category, it must hold text"),
        (Category("a", (1,)), table_of(a=["77"]), TypeError, "Category, it must hold numbers|" + OBJECTS),
        (Category("a", (76, 78)), table_of(a=[76, 77]), ValueError, "column 'a' holds a level that is not declared"),
        (Category("a", (76, 78)), table_of(a=[76, 77.5]), ValueError, "column 'a' holds a level that is not declared"),
        (Number("a"), pd.DataFrame([[1.0, 77.0]], columns=["a", "a"]), ValueError, "more than one column 'a'"),
        (Number("age"), pd.DataFrame({"ages 77": [1.0], "b": [1]}), ValueError, r"no column 'age'$"),
        (Number("age"), table_of(Age=[77.0]), ValueError, r"no column 'age': one there has other capitals or spaces$"),
    ],
)
def test_unfit_columns_are_named_without_their_values(column, table, error, message):
    kinds = [table]
    if table.columns.is_unique and table.dtypes.iloc[0].kind != "c":
        kinds.append(pa.Table.from_pandas(table, preserve_index=False))
    for kind in kinds:
        with pytest.raises(error, match=message.replace("the frame", "the (frame|table)")) as raised:
            list(Columns([column]).encode(kind))
        assert "77" not in str(raised.value)


def test_a_csv_without_names_is_not_quoted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("secret,34\nother,35\n")
    with pytest.raises(
        ValueError, match=r"none of the declared columns in its first line, .* commas between"
    ) as raised:
        Columns(["secrets", "age"]).check(path)
    assert "34" not in str(raised.value).replace(str(path), "")
    path.write_text("age,wieght\n34,3\n")
    with pytest.raises(ValueError, match=r"no column 'weight' in its first line$") as raised:
        Columns(["age", "weight"]).check(path)
    path.write_text("age,age\n34,3\n")
    with pytest.raises(ValueError, match="two columns of one name"):
        Columns(["age"]).check(path)


def test_checking_reads_no_rows(frame):
    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.string())]), iter([]))
    with pytest.raises(TypeError, match="declared as Number"):
        Columns(["a"]).check(reader)
    with pytest.raises(ValueError, match="no column 'b'"):
        Columns(["b"]).check([frame])
    with pytest.raises(TypeError, match="no named columns"):
        Columns(["b"]).check(np.ones((2, 2)))
    with pytest.raises(TypeError, match="no named columns"):
        Columns(["b"]).check("t.npy")


def test_csv_cells_that_do_not_parse_are_not_quoted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b,a,c\n1,secret,maybe\n")
    for column, message in (
        (Number("a"), "'a', cells that are not numbers; missing are empty cells, NA, N/A"),
        (Boolean("c"), "'c', .* not true, false"),
    ):
        with pytest.raises(ValueError, match=message) as raised:
            list(Columns([column]).encode(path))
        assert "secret" not in str(raised.value)
    with pytest.raises(ValueError, match="level 'NA' of column 'a' is what"):
        Columns([Category("a", ("NA", "x"))]).check(path)


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda: Columns([]), ValueError, "features must name"),
        (lambda: Columns("age"), TypeError, "features must be a sequence"),
        (lambda: Columns([3]), TypeError, "features must hold str, Number"),
        (lambda: Columns(["a"], ["a"]), ValueError, "column 'a' is declared twice"),
        (lambda: Columns(["a=x", Category("a", ("x", "y"))]), ValueError, "encoded column 'a=x' is declared twice"),
        (lambda: Number(""), TypeError, "name of a column"),
        (lambda: Boolean(3), TypeError, "name of a column"),
        (lambda: Category("", ("x",)), TypeError, "name of a column"),
        (lambda: Number("a", missing="mean"), TypeError, "missing of column 'a' must be a real number"),
        (lambda: Number("a", missing=float("nan")), ValueError, "'refuse' or a finite number"),
        (lambda: Boolean("a", missing=1), TypeError, "missing of column 'a' must be True or False"),
        (lambda: Category("a", "xyz"), TypeError, "levels of column 'a' must be a non-empty sequence"),
        (lambda: Category("a", ()), TypeError, "levels of column 'a' must be a non-empty sequence"),
        (lambda: Category("a", (1, "x")), TypeError, "all text or all integers"),
        (lambda: Category("a", (1, True)), TypeError, "all text or all integers"),
        (lambda: Category("a", (1, 2**53)), ValueError, "below 2\\*\\*53"),
        (lambda: Category("a", ("x", "x")), ValueError, "must differ"),
        (lambda: Category("a", ("x",), drop_first=True), ValueError, "one level, which drop_first"),
        (lambda: Category("a", ("x",), missing="y"), ValueError, "or a declared level: 'x'"),
        (lambda: Category("a", ("x",), undeclared="drop"), ValueError, "undeclared of column 'a' must be"),
        (lambda: Category("a", ("refuse",)), ValueError, "level 'refuse'"),
    ],
)
def test_bad_declarations(declare, error, message):
    with pytest.raises(error, match=message):
        declare()


def test_arrow_numbers_are_read_where_they_lie():
    batch = pa.record_batch({"a": np.arange(5.0), "b": np.arange(5), "c": np.ones(5)})
    (block, _), *rest = [pair for pair in Columns(["a", "c", "b"]).encode(batch).blocks() if len(pair[0])]
    assert not rest
    for column, address in zip(("a", "c"), block.addresses, strict=False):
        assert address == batch.column(column).to_numpy(zero_copy_only=True).ctypes.data
    assert np.asarray(block).tolist() == [[float(i), 1.0, float(i)] for i in range(5)]


def test_arrow_columns_have_the_bits_of_arrays():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(3000, 4)), rng.normal(size=(3000, 2)).astype(np.float32)
    batches = pa.Table.from_pandas(pd.DataFrame(x).rename(columns=str)).to_reader(max_chunksize=700)
    outcomes = pa.Table.from_pandas(pd.DataFrame(y).rename(columns=str)).to_reader(max_chunksize=900)
    bounds = {"bound_x": 1.5, "bound_y": 1.0, "sums": True}
    assert gram(batches, outcomes, **bounds) == gram(x, y, **bounds)


@pytest.mark.parametrize(
    ("column", "entries", "expected"),
    [
        (Boolean("a", missing=True), [True, None, False, 0], [1.0, 1.0, 0.0, 0.0]),
        (Number("a", missing=7.0), [1, None, 2.5, True], [1.0, 7.0, 2.5, 1.0]),
    ],
)
def test_what_is_declared_for_a_missing_entry_holds_where_that_entry_makes_objects_of_a_column(
    column, entries, expected
):
    frame = pd.DataFrame({"a": pd.Series(entries, dtype=object)})
    (x,) = (x for x, _ in Columns([column]).encode(frame) if len(x))
    assert x.ravel().tolist() == expected
    for odd, error, words in (
        ("77", TypeError, "entries that are not numbers: use .astype.float.$"),
        (10**400, ValueError, "infinite"),
    ):
        with pytest.raises(error, match=f"column 'a' holds {words}"):
            list(Columns([column]).encode(pd.concat([frame, pd.DataFrame({"a": [odd]}, dtype=object)])))


def category(entries, levels=("a", "b", "c"), **options):
    """What becomes of entries, in each of the ways that a table may hold them: as places among indicators."""
    declared = Columns([Category("c", levels, **options)])
    (_, first, *rest) = (block for block, _ in declared.encode(entries).blocks())
    assert all(isinstance(block, CodedBlock) for block in (first, *rest))
    return np.concatenate([block.codes[0] for block in (first, *rest)]).tolist()


def test_dictionaries_are_read_by_their_codes_whatever_their_order_and_however_they_differ():
    import polars as pl

    entries = ["c", "a", "z", None, "b", "a"]
    options = {"missing": "b", "undeclared": "zeros"}
    expected = [2, 0, -1, 1, 1, 0]
    chunks = [pa.array(part, pa.string()).dictionary_encode() for part in (entries[:3], entries[3:])]
    of_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, 1], pa.uint8()), pa.array(["c", "a", "z", None, "b"])
    )
    for table in (
        pd.DataFrame({"c": entries}),
        pd.DataFrame({"c": pd.Categorical(entries, categories=["z", "unused", "b", "a", "c"])}),
        pa.table({"c": pa.chunked_array(chunks)}),
        pa.table({"c": of_null}),
        pl.DataFrame({"c": pl.Series(entries, dtype=pl.Categorical)}),
        pl.DataFrame({"c": pl.Series(entries, dtype=pl.Enum(["b", "z", "a", "c"]))}),
    ):
        assert category(table, **options) == expected
        with pytest.raises(ValueError, match="missing entries"):
            category(table, undeclared="zeros")
        with pytest.raises(ValueError, match="not declared"):
            category(table, missing="b")


@pytest.mark.parametrize("n_rows", [0, 3000])
def test_text_of_pandas_has_the_codes_of_its_cells_however_it_is_stored(n_rows, monkeypatch):
    monkeypatch.setattr(frames, "_VALUES_PER_BLOCK", 700)
    rng = np.random.default_rng(3)
    cells = rng.choice(np.array([*SITES, "Chur", None], object), n_rows)
    place = {"Basel": 0, "Genf": 1, None: 1}  # Bern is left out
    expected = [[float(place.get(cell) == level) for level in (0, 1)] for cell in cells]
    columns = Columns([Category("site", SITES, drop_first=True, missing="Genf", undeclared="zeros")])
    for dtype in (object, "string[python]", "string[pyarrow]", pd.ArrowDtype(pa.string()), "category"):
        parts = np.array_split(cells, 3)
        stored = pd.concat([pd.DataFrame({"site": pd.Series(part, dtype=dtype)}) for part in parts], ignore_index=True)
        found = np.concatenate([x for x, _ in columns.encode(stored)])
        np.testing.assert_array_equal(found, np.reshape(expected, (-1, 2)))
        reversed_levels = Columns([Category("site", SITES[::-1], missing="Genf", undeclared="zeros")])
        again = np.concatenate([x for x, _ in reversed_levels.encode(stored)])
        np.testing.assert_array_equal(again[:, [1, 0]], found)


def test_categories_of_a_frame_are_looked_up_once(monkeypatch):
    monkeypatch.setattr(frames, "_VALUES_PER_BLOCK", 10)
    looked_up = []
    places = frames._places
    monkeypatch.setattr(frames, "_places", lambda *arguments: looked_up.append(1) or places(*arguments))
    table = pd.DataFrame({"site": pd.Categorical(["Bern", "Genf"] * 50, categories=SITES)})
    assert sum(len(x) for x, _ in Columns([Category("site", SITES)]).encode(table)) == 100
    assert len(looked_up) == 1


def test_more_levels_than_a_byte_holds_and_the_first_left_out():
    levels = tuple(map(str, range(700)))
    entries = np.random.default_rng(0).integers(0, 700, 2000)
    frame = pd.DataFrame({"c": pd.Categorical.from_codes(entries, list(levels))})
    assert category(frame, levels, drop_first=True) == (entries - 1).tolist()


@pytest.mark.parametrize("lie", [3, 100, -7])
def test_codes_that_their_dictionary_does_not_have_are_refused(lie):
    codes, levels = np.array([0, 1, 2, lie], np.int8), np.arange(3, dtype=np.int32)
    with pytest.raises(ValueError, match="dictionary"):
        places_of_codes(codes, levels, "c")
    indices = pa.Array.from_buffers(pa.int8(), 4, [None, pa.py_buffer(codes.tobytes())])
    lying = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b", "c"]), safe=False)
    with pytest.raises(ValueError, match="dictionary"):
        category(pa.table({"c": lying}))


def test_the_first_pass_and_the_next_agree_on_codes():
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", "a"]), "y": [1.0, 2.0, 3.0]})
    rows = Columns([Category("c", ("a", "b"))], ["y"]).encode([frame, frame])
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=3.0, refine=1, random_state=0)
    assert model.fit(rows, None).coef_.shape == (1, 2)


def test_what_to_do_with_a_table_of_dask_is_said():
    dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    columns = Columns(["a"])
    parts = dd.from_pandas(frame, npartitions=2)
    for table, n_rows in ((parts, 3), ([parts, parts], 6), ((one for one in [parts, frame]), 6)):
        columns.check(parts)
        assert sum(len(x) for x, _ in columns.encode(table)) == n_rows
    with pytest.raises(TypeError, match=r"the table is a Delayed.* of Dask's: give a Dask frame, or compute it first"):
        list(columns.encode(dask.delayed(frame)))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 64}])
def test_a_file_may_keep_text_as_it_likes(kind, options, tmp_path):
    rng, columns = np.random.default_rng(0), Columns([Category("site", SITES, missing="Genf", undeclared="zeros")])
    sites = rng.choice(np.array([*SITES, None, "Chur", *(f"other {i}" for i in range(50))], object), 3000)
    table = pa.table({"site": pa.array(sites.tolist(), pa.string()).cast(kind), "empty": pa.nulls(3000)})
    parquet.write_table(table, tmp_path / "table.parquet", row_group_size=700, **options)
    codes = [SITES.index(site or "Genf") if site in (*SITES, None) else -1 for site in sites]
    found = np.concatenate([x for x, _ in columns.encode(tmp_path / "table.parquet")])
    assert np.array_equal(found, np.arange(3) == np.array(codes)[:, None])
    nulls = Columns([Category("empty", SITES, missing="Basel")]).encode(tmp_path / "table.parquet")
    assert np.concatenate([x for x, _ in nulls]).sum(axis=0).tolist() == [0.0, 3000.0, 0.0]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_is_encoded_while_blocks_before_are_used_and_refused_as_ever(suffix, tmp_path, monkeypatch):
    """The thread of whoever reads hears of progress, and gets the error of a block once it comes to it."""
    monkeypatch.setattr(arrow, "batch_rows", lambda n_columns: 100)
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 800)
    frame, path = pd.DataFrame({"a": np.arange(1000.0)}), tmp_path / f"table{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    threads, encoding = set(), set()
    numbers = arrow.ArrowBatch.numbers
    monkeypatch.setattr(
        arrow.ArrowBatch, "numbers", lambda self, name: encoding.add(get_ident()) or numbers(self, name)
    )
    table = Columns(["a"]).encode(path, lambda n_bytes: threads.add(get_ident()))
    assert np.array_equal(np.concatenate([x for x, _ in table])[:, 0], frame["a"])
    assert threads == {get_ident()}
    assert get_ident() not in encoding
    frame.loc[999, "a"] = np.nan
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    seen = list[int]()
    with pytest.raises(ValueError, match="column 'a' has missing entries"):
        seen.extend(len(x) for x, _ in table)
    assert 0 < sum(seen) < 1000


@pytest.mark.parametrize(
    ("name", "table_name", "entry", "said"), [("a", "X", np.nan, "missing entries"), ("y", "Y", np.inf, "infinite")]
)
def test_sums_refuse_what_is_no_number_and_a_fit_names_its_column(name, table_name, entry, said, tmp_path):
    frame, path = pd.DataFrame({"a": np.arange(1000.0), "y": 1.0}), tmp_path / "table.parquet"
    frame.loc[999, name] = entry
    frame.to_parquet(path)
    columns, ledger = Columns(["a"], ["y"]), Ledger(Privacy(2.0, 1e-5))
    for table in (frame, path):
        with pytest.raises(ValueError, match=f"^{table_name} contains NaN or infinity"):
            gram(columns.encode(table), bound_x=1.0, bound_y=1.0)
        model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger)
        with pytest.raises(ValueError, match=f"column '{name}' .*{said}"):
            model.fit(columns.encode(table), None)
        with pytest.raises(ValueError, match=f"^{table_name} contains NaN"):
            model.fit(columns.encode(iter([table])), None)
    assert ledger.releases == ()
