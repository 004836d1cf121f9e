"""Files and tables with named columns: bytes changed, columns of every type there is."""

import datetime
import io
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpfast.io import Boolean, Category, Columns, Number, RowOwners, blocks, in_memory, open_panel, open_table
from dpfast.statistics import Trajectories, gram
from fuzz_targets import INTEGERS, Draw, target
from fuzz_targets.files import new_path

REFUSALS = (ValueError, TypeError, OSError)
COLUMNS = Columns(
    ["age", Boolean("smoker", missing=False), Category("site", ("Bern", "Basel"), missing="Bern", undeclared="zeros")],
    [Number("days", missing=0.0), Category("grade", (1, 2, -3), undeclared="zeros", drop_first=True)],
)
CSV = (
    "patient,age,smoker,site,days,grade\na,50.5,true,Bern,3,1\nb,1e300,0,Basel,NA,2\n"
    'a,-1,1,"Bern",nan,-3\n"c ""x""",7,False,Genf,4.0,9\n'
)
N = 4
FRAME = pd.DataFrame(
    {
        "patient": ["a", "b", "a", "c"],
        "age": [50.5, 1e300, -1.0, 7.0],
        "smoker": [True, False, True, False],
        "site": ["Bern", "Basel", None, "Genf"],
        "days": [3.0, math.nan, 1.0, 4.0],
        "grade": [1, 2, -3, 9],
    }
)


def read_everything(table, *, named=True):
    """Read a table in every way there is."""
    for read in (
        lambda: [np.asarray(x) for x, _ in COLUMNS.encode(table)],
        lambda: np.asarray(RowOwners(table, "patient")),
        lambda: gram(table, bound_x=1.0),
        lambda: [np.asarray(x) for x, _ in blocks(table)],
    )[0 if named else 2 :]:
        try:
            read()
        except REFUSALS:
            continue


@target("io.sources", "io.csv_files", "io.columns", "io.people", "io.frames")
def csv_files(draw: Draw) -> None:
    path = new_path(".csv")
    data = CSV.encode() if draw.flag() else b"a,b\n" + b"1,2.5\n" * draw.integer(0, 9)
    if draw.flag(0.2):
        data = data.replace(draw.choice((b",", b"\n", b"1")), draw.choice((b"\t", b"\r", b"\r\n", b'"', b"\xff", b"")))
    path.write_bytes(draw.mutated(data))
    read_everything(path)


def parquet_seeds():
    tables = [
        pa.Table.from_pandas(FRAME),
        pa.table({"a": [1.0, 2.0, 3.0], "b": pa.array([1, None, 3], pa.int32())}),
        pa.table({"patient": pa.array(["x", "y", "x"]).dictionary_encode(), "age": pa.array([1, 2, 3], pa.uint8())}),
    ]
    for table in tables:
        for options in (
            {"compression": "none"},
            {"compression": "snappy"},
            {"compression": "zstd", "row_group_size": 2},
        ):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, **options)
            yield buffer.getvalue()


PARQUET = list(parquet_seeds())


@target("io.sources", "io.arrow", "io.columns")
def parquet_files(draw: Draw) -> None:
    path = new_path(".parquet")
    path.write_bytes(draw.mutated(draw.choice(PARQUET)))
    read_everything(path)


def npy_seeds():
    arrays = [
        np.arange(12.0).reshape(4, 3),
        np.asfortranarray(np.ones((3, 2), np.float32)),
        np.zeros((0, 2)),
        np.arange(5),
    ]
    for array in (*arrays, np.array(["a"]), np.zeros(2, [("x", "f8")])):
        buffer = io.BytesIO()
        np.save(buffer, array)
        yield buffer.getvalue()


NPY = list(npy_seeds())


@target("io.sources", "io.blocks")
def npy_files(draw: Draw) -> None:
    path = new_path(".npy")
    data = draw.choice(NPY)
    match draw.integer(0, 3):
        case 0:
            data = draw.mutated(data)
        case 1:
            shape = draw.choice(
                (b"(1000000000000000000, 3)", b"(9223372036854775807,)", b"(-1, 3)", b"(0, 0)", b"((4, 3)", b"()",
                 b"(4, 3, 1, 1)", b"(True, 3)", b"(4.0, 3)", b"(99999999999999999999999, 0)", b"(None,)")
            )  # fmt: skip
            data = data.replace(b"(4, 3)", shape)
        case 2:
            kind = draw.choice(
                (b"'|O'", b"'<f16'", b"'<c8'", b"'<U99999999'", b"[('a', '<f8')]", b"'<M8[s]'", b"None", b"'f8,'",
                 b"{'a': 1}", b"'|V0'", b"'<f2'", b"'\\x00'", b"(((((((", b"'>f8'")
            )  # fmt: skip
            data = data.replace(b"'<f8'", kind)
        case _:
            data = draw.choice(
                (b"", b"PK\x03\x04" + data, b"\x93NUMPY", data[:9], data[: draw.integer(0, 130)], b"\x80\x04K\x01.")
            )
    path.write_bytes(data)
    for read in (in_memory, open_panel):
        try:
            read(path, *(("x",) if read is in_memory else (1,)))
        except REFUSALS:
            continue
    read_everything(path, named=False)


def arrow_column(draw):
    """A column of any type of Arrow's, with missing entries, cut out of a longer one."""
    dates = [datetime.datetime(2020, 1, day) for day in range(1, 7)]
    column = draw.choice(
        (
            lambda: pa.array(draw.reals(6, finite=False), mask=draw.rng.random(6) < 0.3),
            lambda: pa.array(draw.rng.integers(-(2**63), 2**63 - 1, 6), mask=draw.rng.random(6) < 0.3),
            lambda: pa.array(draw.rng.integers(0, 2**64, 6, dtype=np.uint64)),
            lambda: pa.array(np.arange(6, dtype=np.float16)),
            lambda: pa.array([True, False, None, True, False, True], pa.bool_()),
            lambda: pa.array(["Bern", None, "", "Basel", "\0", "ä"], draw.choice((pa.string(), pa.large_string()))),
            lambda: pa.array(["Bern", "x", None, "x", "Bern", "y"]).dictionary_encode(),
            lambda: pa.array([1.5, None, 1.5, 2, 3, 1]).dictionary_encode(),
            lambda: pa.array([[1.0], [], None, [2.0], [3.0], []]),
            lambda: pa.array([{"a": 1}, None, {"a": 2}, {}, {}, {}]),
            lambda: pa.array(dates, pa.timestamp("ns", tz=draw.choice((None, "UTC")))),
            lambda: pa.array([1, 2, 3, 4, None, 6], pa.decimal128(5, 2)),
            lambda: pa.array([b"a", b"\xff", None, b"", b"b", b"c"]),
            lambda: pa.nulls(6),
            lambda: pa.array([3, 1, 2, 2, 1, 3], draw.choice((pa.int8(), pa.uint32(), pa.date32(), pa.duration("s")))),
            lambda: pa.DictionaryArray.from_arrays(
                pa.array([0, 1, None, 0, 1, 0], pa.int8()), pa.array(["Bern", None])
            ),
        )
    )()
    return column.slice(1, draw.choice((0, 3, 4)))


@target("io.arrow", "io.columns", "io.people", "io.frames")
def arrow_tables(draw: Draw) -> None:
    names = [draw.choice(("patient", "age", "smoker", "site", "days", "grade", "grade", "", "a")) for _ in range(6)]
    names = ["patient", "age", "smoker", "site", "days", "grade"] if draw.flag(0.7) else names
    columns = [arrow_column(draw) for _ in names]
    length = min(map(len, columns))
    table = pa.table([column[:length] for column in columns], names=names)
    match draw.integer(0, 3):
        case 0:
            table = pa.concat_tables([table, table])
        case 1:
            table = table.combine_chunks().to_batches()
        case 2:
            table = [table, table]
    read_everything(table)


def objects(entries):
    """Entries as they are: of a list or an array, pandas 3.0 makes floats, and raises where one is too large."""
    return pd.Series(list(entries), dtype=object)


def frame_column(draw, n):
    return draw.choice(
        (
            lambda: draw.reals(n, finite=False),
            lambda: pd.array(draw.rng.integers(0, 3, n), "Int64"),
            lambda: pd.array([True, None, False, True][:n], "boolean"),
            lambda: pd.Categorical(["Bern", "Basel", None, "Bern"][:n]),
            lambda: pd.Categorical([1, 2, None, 1][:n]),
            lambda: objects(
                draw.choice((1, "Bern", None, 1.5, [], {}, pd.NA, pd.NaT, b"x", 10**400, (1, math.nan)))
                for _ in range(n)
            ),
            lambda: pd.array(["Bern", None, "x", ""][:n], "string"),
            lambda: pd.date_range("2020-01-01", periods=n),
            lambda: pd.period_range("2020-01", periods=n, freq="M"),
            lambda: pd.arrays.SparseArray(np.arange(n, dtype=float)),
            lambda: np.arange(n) * 1j,
            lambda: pd.interval_range(0, n),
            lambda: pd.array(np.arange(n), pd.ArrowDtype(pa.int64())),
            lambda: pd.array([1.0, None, 2.0, 3.0][:n], pd.ArrowDtype(pa.float64())),
            lambda: np.array(draw.rng.integers(0, 9, n), draw.choice(("f2", "u8", ">f8", "i1", "m8[s]"))),
        )
    )()


@target("io.frames", "io.columns", "io.people", "io.panel")
def frames(draw: Draw) -> None:
    n = draw.choice((0, 1, 4, 4))
    frame = FRAME.iloc[:n].copy()
    for name in draw.rng.permutation(list(frame.columns))[: draw.integer(0, 4)]:
        frame[name] = frame_column(draw, n)
    match draw.integer(0, 6):
        case 0:
            frame.columns = draw.choice(([1, 2, 3, 4, 5, 6], ["age"] * 6, ["age", None, 1.5, "site", "days", "grade"]))
        case 1:
            frame.index = pd.MultiIndex.from_product([[1], frame.index])
        case 2:
            frame = frame.iloc[::-1]
    read_everything(frame)
    for read in (
        lambda: open_table(frame, frame.iloc[:, 0]),
        lambda: open_panel(frame.iloc[:, 1:], 2, orientation=draw.choice(("units_by_periods", "periods_by_units"))),
    ):
        try:
            read()
        except REFUSALS:
            continue


@target("io.trajectory_sources", "io.states", "io.frames", "io.arrow", accepts=REFUSALS)
def long_tables(draw: Draw) -> None:
    n = draw.choice((0, 1, 4, 4))
    frame = pd.DataFrame(
        {"id": [0, 0, 1, 2][:n], "s": [0, 1, 2, 0][:n], "r": [0.5, 1.0, 2.0, 0.0][:n], "t": [0, 1, 0, 0][:n]}
    )
    for name in draw.rng.permutation(list(frame.columns))[: draw.integer(0, 2)]:
        frame[name] = frame_column(draw, n)
    if draw.flag(0.3) and n:
        name = draw.choice(("s", "t"))
        frame[name] = pd.Series([draw.choice(INTEGERS) for _ in range(n)], dtype=object).astype(
            draw.choice((object, "int64"))
        )
    states = {"n_states": draw.choice((3, 3, 2**31 - 1))} if draw.flag() else {"states": [0, 1, 2, "Bern", None]}
    options = {"trajectory": "id", "state": "s", "reward": "r", "step": draw.choice((None, "t"))} | states
    if draw.flag():
        Trajectories.from_frame(frame, **options)
        return
    path = new_path(".parquet")
    try:
        frame.to_parquet(path)
    except Exception:  # pyarrow has no type for every column
        return
    if draw.flag(0.3):
        path.write_bytes(draw.mutated(path.read_bytes()))
    for _ in Trajectories.iter_sorted(path, block_steps=draw.choice((1, 2, 100)), **options):
        pass
