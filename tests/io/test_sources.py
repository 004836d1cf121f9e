"""Files, globs and folders of them: the bits of the table in memory, or an error that quotes none of it."""

import _thread
import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from dpfast.io import arrow, blocks
from dpfast.io.arrow import one_ahead
from dpfast.io.csv_files import NULL_WORDS
from dpfast.io.sources import as_matrix
from dpfast.statistics import gram

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(3).standard_normal((3000, 3))


@pytest.fixture
def frame(table):
    return pd.DataFrame(table, columns=["a", "b", "c"])


def write(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".npy":
        np.save(path, frame.to_numpy())
    else:
        frame.to_parquet(path, row_group_size=700)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="no other system is asked")
def test_the_system_is_asked_once_for_every_byte_of_a_whole_file_and_not_all_at_once(tmp_path, monkeypatch):
    path, requested = tmp_path / "t.parquet", []
    pd.DataFrame(np.random.default_rng(0).normal(size=(9000, 3)), columns=list("abc")).to_parquet(path)
    monkeypatch.setattr(arrow, "_BYTES_AHEAD", 1 << 16)
    monkeypatch.setattr(arrow, "batch_rows", lambda n_columns: 1000)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, n, advice: requested.append((start, n)))
    for names in (None, ["c", "a", "b"]):
        requested.clear()
        batches = arrow.parquet_batches(path, names)
        _, share = next(batches)
        assert share == 1 / 9
        # One batch more may be decoded by now.
        assert 1 << 16 <= sum(n for _, n in requested) <= (1 << 16) + path.stat().st_size * 2 / 9
        assert len(list(batches)) == 8
        assert [start for start, _ in requested] == np.cumsum([0, *(n for _, n in requested[:-1])]).tolist()
        assert sum(n for _, n in requested) == path.stat().st_size
    requested.clear()
    assert len(list(arrow.parquet_batches(path, ["a", "c"]))) == 9
    assert requested == []


def test_files_are_read_where_the_system_takes_no_such_request(tmp_path, monkeypatch):
    path = write(pd.DataFrame({"a": np.arange(5.0)}), tmp_path / "t.parquet")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert [len(batch) for batch, _ in arrow.parquet_batches(path, None)] == [5]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq", ".npy"])
def test_one_file_many_files_globs_and_folders(suffix, table, frame, tmp_path):
    expected = gram(table, bound_x=2.0)
    whole = write(frame, tmp_path / f"whole{suffix}")
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = [write(frame[start : start + 1000], folder / f"part-{start:04}{suffix}") for start in (0, 1000, 2000)]
    (folder / "_SUCCESS").touch()
    (folder / f".hidden{suffix}").touch()
    for source in (whole, str(whole), parts, folder, str(folder / f"part-*{suffix}"), folder / f"part-?000{suffix}"):
        assert gram(source, bound_x=2.0) == expected


def test_features_and_outcomes_in_files_of_different_kinds(table, frame, tmp_path):
    x = write(frame[["a", "b"]], tmp_path / "x.csv")
    y = write(frame[["c"]], tmp_path / "y.parquet")
    bounds = {"bound_x": 2.0, "bound_y": 1.0}
    assert gram(x, y, **bounds) == gram(table[:, :2], table[:, 2], **bounds)


def test_a_csv_is_cut_into_blocks_and_its_types_are_not_inferred(tmp_path):
    # More than one block of the reader; integers at first, then fractions, then empty cells.
    rows = 400_000
    path = tmp_path / "long.csv"
    values = np.arange(rows) + np.where(np.arange(rows) > rows / 2, 0.5, 0.0)
    pd.DataFrame({"value": values, "square": values**2}).to_csv(path, index=False)
    parts = [x for x, _ in blocks(path)]
    assert len(parts) > 2
    assert np.array_equal(np.concatenate(parts), np.column_stack([values, values**2]))


def test_a_row_group_does_not_lie_in_memory(tmp_path):
    n_rows = 1 << 21
    path = tmp_path / "one-group.parquet"
    frame = pd.DataFrame({f"c{j}": np.random.default_rng(j).random(n_rows) for j in range(8)})
    frame.to_parquet(path, row_group_size=n_rows)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    peak = max(pool.bytes_allocated() - before for _ in blocks(path))
    assert peak < frame.memory_usage().sum() / 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "a,b\n1,secret\n", "in column number 2, cells that are not numbers"),
        ("t.csv", "a,secret,c\n1,2,3\n1,other,3\n", "in column number 2, cells that are not numbers"),
        ("t.csv", "a,b,c,d,e\n1,secret,1,secret,1\n", "in column number 2, cells that are not numbers"),
        ("t.csv", "a,b\n1,2\n1,secret,3\n", "X contains NaN"),
        ("t.csv", "secret,34\n0.5,0.1\n", "holds values in its first line"),
        ("t.csv", "secret,nan\n0.5,0.1\n", "holds values in its first line"),
        ("t.csv", "secret,\n0.5,0.1\n", "holds values in its first line"),
        ("t.csv", "secret,secret\n0.5,0.1\n", "has two columns of one name"),
        ("t.csv", "a,\xff\xfe\n1,2\n", "not a CSV file in UTF-8"),
        ("t.csv", "a,b\n" + "1,2\n" * 10_000 + "1,\xff\n", "cells that are not numbers"),
        ("t.csv", "", "is empty"),
        ("t.csv", "a,b\n1,\n", "X contains NaN"),
        ("t.parquet", "secret", "not a Parquet file"),
        ("t.npy", "secret", "not a .npy file"),
    ],
)
def test_unreadable_files_are_not_quoted(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as raised:
        gram(path, bound_x=1.0)
    assert "secret" not in str(raised.value)
    assert raised.value.__context__ is None


@pytest.mark.slow
@pytest.mark.parametrize("bad", [1, 300_000])
def test_one_cpu_or_many_a_bad_cell_is_told_alike_and_the_process_ends_well(bad, tmp_path):
    """The serial reader of pyarrow words its errors otherwise, and its threads outlive the reading of a long file."""
    lines = ["0.25,0.5"] * 400_000
    lines[bad] = "0.25,secret"
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "\n".join(lines))
    code = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
from dpfast.statistics import gram
try:
    gram(sys.argv[1], bound_x=1.0)
except ValueError as error:
    print(error, error.__context__)
"""
    done = [
        subprocess.run([sys.executable, "-c", code, path, str(cpus)], capture_output=True, text=True, timeout=120)
        for cpus in (1, 1, 2)
    ]
    assert {(one.returncode, one.stderr) for one in done} == {(0, "")}
    message = f"{str(path)!r} holds, in column number 2, cells that are not numbers; missing are empty cells, "
    message += f"{', '.join(NULL_WORDS[1:])}; a number is written 1200.5, without currency signs, units or separators "
    message += "of thousands None\n"
    assert {one.stdout for one in done} == {message}


def test_a_dataset_is_not_quoted(tmp_path):
    import pyarrow.dataset as dataset

    (tmp_path / "t.csv").write_text("a,b\n0.1,0.2\n0.3,secret\n")
    schema = pa.schema([("a", pa.float64()), ("b", pa.float64())])
    with pytest.raises(ValueError, match="X cannot be read to its end") as raised:
        gram(dataset.dataset(tmp_path / "t.csv", format="csv", schema=schema), bound_x=1.0)
    assert raised.value.__context__ is None


def test_a_damaged_page_is_not_quoted(frame, tmp_path):
    path = write(frame, tmp_path / "t.parquet")
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        gram(path, bound_x=1.0)


def test_text_columns_of_parquet_are_refused(frame, tmp_path):
    path = write(frame.assign(name="secret"), tmp_path / "t.parquet")
    with pytest.raises(TypeError, match="not numbers: name"):
        gram(path, bound_x=1.0)


def test_paths_that_name_no_table(frame, tmp_path):
    for path in ("none.csv", "none.parquet", "none.npy"):
        with pytest.raises(FileNotFoundError, match=path):
            gram(tmp_path / path, bound_x=1.0)
    with pytest.raises(ValueError, match="which holds no"):
        gram(tmp_path, bound_x=1.0)
    with pytest.raises(ValueError, match="which no file matches"):
        gram(tmp_path / "*.csv", bound_x=1.0)
    with pytest.raises(TypeError, match=r"the suffix '.xlsx'"):
        gram(tmp_path / "t.xlsx", bound_x=1.0)
    write(frame, tmp_path / "t.csv")
    write(frame, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="several formats: csv, parquet"):
        gram(tmp_path, bound_x=1.0)


def test_without_pyarrow_the_extra_is_named(frame, tmp_path, monkeypatch):
    path = write(frame, tmp_path / "t.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"dpfast\[arrow\]"):
        gram(path, bound_x=1.0)


def test_files_without_rows(frame, tmp_path):
    for name in ("t.csv", "t.parquet"):
        assert gram(write(frame[:0], tmp_path / name), bound_x=1.0).n_rows == 0
        assert gram([tmp_path / name, frame[:5]], bound_x=1.0).n_rows == 5


def test_the_reading_thread_ends_with_the_iteration(frame, tmp_path):
    path, others = write(frame, tmp_path / "t.parquet"), _thread._count()
    stream = blocks(path)
    for _ in range(2):
        next(stream)
    stream.close()
    for _ in range(1_000):  # a thread that has nothing left to do counts for some microseconds
        if _thread._count() == others:
            break
        time.sleep(1e-3)
    assert _thread._count() == others


def test_nothing_is_being_made_ahead_when_the_iteration_ends():
    threads, n_begun, n_made = set(), 0, 0

    def items():
        nonlocal n_begun, n_made
        for i in range(10):
            threads.add(_thread.get_ident())
            n_begun += 1
            time.sleep(0.01)
            n_made += 1
            yield i

    ahead = one_ahead(items())
    assert [next(ahead), next(ahead)] == [0, 1]
    while n_begun < 3:
        time.sleep(1e-4)
    ahead.close()
    assert n_begun == n_made == 3
    assert _thread.get_ident() not in threads
    assert list(one_ahead(items())) == list(range(10))


@pytest.mark.parametrize("start", [b"", b"PK\x03\x04", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00\x09\x00{'descr':"])
def test_an_array_file_that_is_none_is_refused_and_closed(tmp_path, start):
    (tmp_path / "t.npy").write_bytes(start)
    with pytest.raises(ValueError, match=r"not a \.npy file"):
        gram(tmp_path / "t.npy", bound_x=1.0)


def test_an_address_is_no_file():
    with pytest.raises(ValueError, match=r"X is the address 's3://bucket/x\.csv'"):
        gram("s3://bucket/x.csv", bound_x=1.0)


@pytest.mark.parametrize(
    "read", [lambda name: gram([[1.0]], name, bound_x=1.0, bound_y=1.0), partial(as_matrix, name="X")]
)
def test_the_name_of_a_column_is_no_column(read):
    with pytest.raises(TypeError, match=r"is text.* give the column itself, such as frame\['name'\]"):
        read("days")
