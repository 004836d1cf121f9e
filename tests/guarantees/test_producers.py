"""What makes blocks may fill one buffer again and again, and may give other rows the next time: no fit is misled."""

import os
from functools import partial

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people, releases_of

from dpfast import Ledger, PaidFailure, PolicyEvaluation, Privacy, Trajectories, io
from dpfast.io import Columns
from dpfast.statistics import first_visit_returns, gram

N_ROWS, BLOCK = 60, 6
READ_HERE = {name: fit for name, fit in FITS.items() if fit.table in ("blocks", "rows")}


def table_of(fit):
    """Features, and outcomes as numbers in columns."""
    x, y = people(N_ROWS)
    outcomes = np.asarray(fit.outcomes(y))
    if outcomes.dtype.kind not in "biuf":
        pytest.skip("labels of text go with arrays")
    return x, outcomes.reshape(N_ROWS, -1).astype(np.float64)


def reusing(x, y):
    """Blocks in one buffer."""
    room = np.empty((BLOCK, x.shape[1])), np.empty((BLOCK, y.shape[1]))
    for start in range(0, len(x), BLOCK):
        room[0][:], room[1][:] = x[start : start + BLOCK], y[start : start + BLOCK]
        yield room
    for buffer in room:
        buffer[:] = 0.5


def reads_twice(estimator):
    """Whether generators are refused."""
    parameters = estimator.get_params()
    return "private" in parameters.values() or parameters.get("refine", 0) not in (0, "auto")


class Again:
    """An iterable that gives, the k-th time it is read, what `passes` has for k, or else the first."""

    def __init__(self, *passes):
        self.passes, self.read = passes, 0

    def __iter__(self):
        self.read += 1
        return self.passes[min(self.read, len(self.passes)) - 1]()


def fitted(fit, table):
    return [
        np.concatenate([np.ravel(values) for values in release.values.values()])
        for release in releases_of(fit.new(random_state=3, n_threads=1).fit(table, None))
    ]


def held(fit, x, y):
    """What is released of blocks that stay as they are; skips a fit that takes no blocks."""
    try:
        return fitted(fit, [(x, y)])
    except (TypeError, ValueError) as refused:
        pytest.skip(f"takes no blocks: {refused}")


@pytest.mark.parametrize("name", READ_HERE)
def test_blocks_in_one_buffer_are_read_as_they_were(name):
    fit = READ_HERE[name]
    x, y = table_of(fit)
    expected = held(fit, x, y)
    for table in (reusing(x, y), Again(lambda: reusing(x, y))):
        if not isinstance(table, Again) and reads_twice(fit.estimator):
            continue
        found = fitted(fit, table)
        assert len(found) == len(expected)
        assert all(map(np.array_equal, found, expected))


def changed(x, y, how):
    x, y = x.copy(), y.copy()
    if how == "a row":
        x[-1] = -x[-1]
    elif how == "an order":
        x[[0, -1]] = x[[-1, 0]]
    elif how == "an outcome":
        y[0] = 0.0 if y[0, 0] else 1.0
    else:
        x, y = x[: how - 1], y[: how - 1]
    return lambda: iter([(x, y)])


@pytest.mark.parametrize("name", READ_HERE)
def test_other_rows_than_the_time_before_are_an_error(name):
    fit = READ_HERE[name]
    x, y = table_of(fit)
    held(fit, x, y)
    passes = Again(lambda: iter([(x, y)]))
    fitted(fit, passes)
    for how, nth in zip(["a row", 1, "an order", "an outcome", N_ROWS], range(2, passes.read + 1), strict=False):
        table = Again(*[lambda: iter([(x, y)])] * (nth - 1), changed(x, y, how))
        with pytest.raises((ValueError, PaidFailure)) as raised:
            fitted(fit, table)
        assert "gave other rows" in str(raised.value) or isinstance(raised.value, PaidFailure)


def walk(*states):
    return Trajectories(states, np.ones(len(states)), [0, len(states)], 3)


def test_trajectories_are_as_they_were_checked_whatever_becomes_of_the_arrays():
    for dtypes in ((np.int32, np.float32, np.int64), (np.int64, np.float64, np.int64)):
        given = ([0, 1, 2, 1], [0, 1, 2, 3], [0, 2, 4])
        arrays = [np.array(one, dtype) for one, dtype in zip(given, dtypes, strict=True)]
        walks = Trajectories(*arrays, 3)
        expected = first_visit_returns(walks, 0.5)
        for array in arrays:
            array[:-1] = array[:-1][::-1].copy()
        assert [part.dtype for part in (walks.states, walks.rewards, walks.offsets)] == list(dtypes)
        again = first_visit_returns(walks, 0.5)
        assert np.array_equal(again.sums, expected.sums)


def test_other_trajectories_than_the_time_before_are_an_error():
    estimator = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range="private", reward_range=(0.0, 1.0), horizon=3)
    ledger = Ledger(Privacy(9.0, 1e-3))

    def several():
        return iter([walk(0, 1, 2)] * 9)

    with pytest.raises(PaidFailure):
        estimator.set_params(ledger=ledger).fit(Again(*[several] * 2, lambda: iter([walk(1)])))
    assert ledger.costs


def test_columns_of_an_iterable_are_held_to_the_rows_of_the_first_pass():
    frame = pd.DataFrame(np.linspace(-0.5, 0.5, 60).reshape(20, 3), columns=["a", "b", "y"])
    columns = Columns(["a", "b"], ["y"])
    table = io.open_table(
        columns.encode(Again(*(partial(iter, one) for one in ([frame], [frame[:9], frame[9:]], [-frame]))))
    )
    for _ in range(2):
        assert sum(len(x) for x, _ in table.blocks()) == 20
    with pytest.raises(ValueError, match="gave other rows"):
        list(table.blocks())


def test_every_table_is_held_to_its_number_of_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    table = io.open_table(path)
    assert sum(len(x) for x, _ in table.blocks()) == 2
    path.write_text("a\n1\n")
    with pytest.raises(ValueError, match="gave other rows"):
        list(table.blocks())


def write(folder, **frames):
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False) if "csv" in name else frame.to_parquet(
            folder / f"{name}.parquet"
        )
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_in_another_order_are_not_taken_by_their_places(kind, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 1.0], "b": [0.0, 0.0]})
    write(tmp_path, **{f"{kind}1": frame, f"{kind}2": frame[["b", "a"]]})
    files = sorted(tmp_path.iterdir())
    for table in (str(tmp_path), list(files), [frame, frame[["b", "a"]]], [(frame, frame), (frame, frame[["b", "a"]])]):
        with pytest.raises(ValueError, match="other names, or another order"):
            gram(table, bound_x=2.0, bound_y=2.0 if isinstance(table[0], tuple) else None)
    assert sum(x.sum() for x, _ in Columns(["a"]).encode(tmp_path)) == 4.0


def test_a_file_of_two_names_is_refused(tmp_path):
    write(tmp_path, csv1=pd.DataFrame({"a": [1.0]}))
    file = tmp_path / "csv1.csv"
    for table in ([file, file], [str(file), file]):
        with pytest.raises(ValueError, match="names a file twice"):
            gram(table, bound_x=2.0)
    (tmp_path / "other.csv").symlink_to(file)
    os.link(file, tmp_path / "third.csv")
    for table in (tmp_path, tmp_path / "*.csv", [file, tmp_path / "third.csv"]):
        with pytest.raises(ValueError, match="names a file twice"):
            gram(table, bound_x=2.0)
        with pytest.raises(ValueError, match="names a file twice"):
            list(Columns(["a"]).encode(table))


def test_a_query_that_an_iterable_yields_is_refused():
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [0.1, 0.2], "b": [0.1, 0.2]})
    for table, y in (((one for one in [lazy]), np.ones(2)), (Again(lambda: iter([lazy])), None)):
        with pytest.raises(TypeError, match="yields a query"):
            gram(table, y, bound_x=1.0, bound_y=None if y is None else 1.0)
        with pytest.raises(TypeError, match="yields a query"):
            list(Columns(["a"]).encode(Again(lambda: iter([lazy]))))
    assert gram([lazy, lazy], bound_x=1.0) is not None


@pytest.mark.parametrize("place", [1])
def test_rows_are_compared_where_one_table_of_a_list_is_made_anew(place):
    rows = np.linspace(-0.5, 0.5, 12).reshape(6, 2)
    tables = [rows[:3]]
    tables.insert(place, Again(lambda: iter([rows[3:]]), lambda: iter([-rows[3:]])))
    table = io.open_table(tables)
    assert sum(len(x) for x, _ in table.blocks()) == 6
    with pytest.raises(ValueError, match="gave other rows"):
        list(table.blocks())
