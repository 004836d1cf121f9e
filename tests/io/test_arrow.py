"""Whatever offers the Arrow C stream gives the same sums, to the bit, and tells nothing of its rows."""

import numpy as np
import pytest

from dpfast import MultiOutcomeRidge, SparseRegression
from dpfast.io import Category, Columns, RowOwners
from dpfast.io.arrow import ArrowStream
from dpfast.io.blocks import is_read_once
from dpfast.statistics import gram

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}
DECLARED = Columns(["a", Category("site", ("Bern", "Genf"), missing="Bern"), "n"], ["y"])


class Producer:
    """A library of which nothing is known."""

    def __init__(self, table, error=None):
        self.table, self.error = table, error

    def __arrow_c_stream__(self, requested_schema=None):
        if self.error is not None:
            raise self.error
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(3)
    site = rng.choice(np.array(["Bern", "Genf", None], object), 4000)
    numbers = rng.standard_normal((4000, 2))
    return pd.DataFrame(
        {"a": numbers[:, 0], "site": site, "n": np.arange(4000) % 5, "y": numbers[:, 1], "unused": site}
    )


def kinds(frame):
    """Yield tables of every library, and whether each can be read twice."""
    held = pl.from_pandas(frame)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    yield held, True
    yield held.lazy(), True
    yield held.with_columns(pl.col("site").cast(pl.Categorical)), True
    yield held.with_columns(pl.col("site").cast(pl.Enum(["Genf", "Bern"])), n=pl.col("n").cast(pl.Decimal(9, 2))), True
    yield arrow, True
    yield arrow.to_batches()[0], True
    yield duckdb.connect().from_arrow(arrow), True
    yield [held[:7], held[7:].lazy(), frame[:0]], True
    yield arrow.to_reader(max_chunksize=700), False
    yield Producer(held), False


def test_every_library_gives_the_same_bits(frame):
    expected = gram(DECLARED.encode(frame), **BOUNDS)
    for table, can_be_read_again in kinds(frame):
        encoded = DECLARED.encode(table)
        assert is_read_once(encoded) != can_be_read_again
        for _ in range(1 + can_be_read_again):
            assert gram(encoded, **BOUNDS) == expected


def test_numbers_alone_need_no_declaration(frame):
    numbers = frame[["a", "n", "y"]]
    expected = gram(numbers.to_numpy(), **BOUNDS | {"bound_y": None})
    for table, _ in kinds(numbers.assign(site="Bern")):
        if not isinstance(table, list):
            table = DECLARED.__class__(["a", "n", "y"]).encode(table)
        else:
            table = [
                part[["a", "n", "y"]] if isinstance(part, pd.DataFrame) else part.select("a", "n", "y")
                for part in table
            ]
        assert gram(table, bound_x=1.5) == expected
    polars = pl.from_pandas(numbers)
    for x, y in (("a", "n"), "y"), (("a", "n"), ("y",)):
        y = polars[y] if isinstance(y, str) else polars.select(y)
        assert gram(polars.select(x), y, **BOUNDS) == gram(frame[["a", "n"]], frame["y"], **BOUNDS)


def test_columns_give_features_their_names(frame):
    numbers = frame[["a", "n"]]
    held = pl.from_pandas(numbers)
    for table in (held, held.to_arrow(), held.to_arrow().to_reader()):
        model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(
            table, frame["y"].to_numpy()
        )
        assert model.feature_names_in_.tolist() == ["a", "n"]


def test_held_tables_become_arrays_where_rows_are_chosen(frame):
    held = pl.from_pandas(frame[["a", "n"]])
    rows = np.array([3999, 3, 17])
    for table in (held, held.to_arrow()):
        assert gram(table, bound_x=1.0, rows=rows) == gram(frame[["a", "n"]], bound_x=1.0, rows=rows)


@pytest.mark.parametrize("which", ["relation", "lazy frame", "list", "encoded", "unknown"])
def test_nothing_goes_with_a_query_row_by_row(frame, which):
    held = pl.from_pandas(frame[["a", "n", "y"]])
    query = {
        "relation": lambda: duckdb.connect().from_arrow(held.to_arrow()),
        "lazy frame": held.lazy,
        "list": lambda: [held.lazy()],
        "encoded": lambda: Columns(["a"]).encode(held.lazy()),
        "unknown": lambda: Producer(held),
    }[which]()
    other = frame["y"].to_numpy()
    for x, y in ((query, other), (other[:, None], query), (query, query)):
        with pytest.raises(TypeError, match="is a query, whose rows come in no fixed order"):
            gram(x, y, **BOUNDS)
    with pytest.raises(TypeError, match="X is a query"):
        gram(query, bound_x=1.0, groups=other, max_rows=1)
    with pytest.raises(TypeError, match="groups is a query"):
        gram(other[:, None], bound_x=1.0, groups=RowOwners(held.lazy(), "n"), max_rows=1)


def test_a_pursuit_keeps_rows_of_a_query_that_comes_in_another_order_each_time(frame):
    """What is left of an outcome belongs to its row: a second reading may not move it to another's."""
    rows = pa.Table.from_pandas(frame[["a", "n", "y"]], preserve_index=False)
    shuffled = duckdb.connect().from_arrow(rows).order("random()")
    columns, fits = Columns(["a", "n"], ["y"]), []
    for table in (frame, shuffled):
        model = SparseRegression(50.0, 1e-6, n_nonzero=1, bound_y=1.0, selector="pursuit", random_state=0)
        fits.append(model.fit(columns.encode(table), None).coef_)
    assert np.array_equal(*fits)


@pytest.mark.parametrize("error", [RuntimeError("Anna is 7"), ValueError("Anna is 7")])
def test_what_producers_say_is_not_quoted(error):
    secret = pl.DataFrame({"a": ["Anna is 7"], "y": [1.0]})
    connection = duckdb.connect()
    cast = connection.from_arrow(secret.to_arrow()).select(duckdb.SQLExpression("a::int a"))
    for table in (Producer(secret, error), secret.lazy().select(pl.col("a").cast(pl.Int64)), cast):
        for read in (
            lambda table=table: gram(table, bound_x=1.0),
            lambda table=table: list(Columns(["a"]).encode(table)),
        ):
            with pytest.raises(ValueError, match="cannot be read to its end") as raised:
                read()
            assert "Anna" not in str(raised.value)
            assert raised.value.__context__ is None


def test_columns_of_text_are_named_and_nothing_else_is_said():
    for table in (pl.DataFrame({"a": ["Anna"]}), pl.LazyFrame({"a": ["Anna"]})):
        with pytest.raises(
            TypeError,
            match=r"X has columns that are not numbers: a \(string_view\); leave them out, .*Columns and fit",
        ):
            gram(table, bound_x=1.0)


def test_a_batch_of_all_rows_is_converted_some_at_a_time():
    whole = pa.RecordBatch.from_pydict({"a": np.arange(300_000) % 7})
    for table in (whole, pl.DataFrame(whole), pl.LazyFrame(whole)):
        assert max(len(x) for x, _ in Columns(["a"]).encode(table)) < 150_000


def test_an_empty_batch_stays_a_batch():
    """Its columns are known by it."""
    batch = pa.record_batch([pa.array([], pa.float64())] * 2, names=["age", "dose"])
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    ((only, _),) = ArrowStream(reader, "X").batches(["age", "dose"])
    assert (len(only), only.batch.num_columns) == (0, 2)
