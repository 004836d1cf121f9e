"""Sparse matrices are read as their dense rows, to the bit, whatever is in them."""

import re
import threading
import tracemalloc

import numpy as np
import pytest
from catalogue import FITS, SOME, people
from scipy import sparse

from dpfast import MultiOutcomeRidge, SyntheticControl
from dpfast.io import blocks, in_memory, open_table, sources
from dpfast.kernels import sparse_gram
from dpfast.kernels.columns import SparseBlock
from dpfast.kernels.gram import PACKED
from dpfast.statistics import GramAccumulator, gram
from dpfast.statistics.accumulator import cross_moments
from dpfast.statistics.rows import RowMap

FORMATS = ["csr", "csc", "coo"]


def stored(rows, columns, values, shape, kind="coo", index=np.int32):
    """A matrix of entries as they are: repeated, unsorted, zero."""
    entries = sparse.coo_array((values, (np.asarray(rows, index), np.asarray(columns, index))), shape=shape)
    if kind == "coo":
        return entries
    major, minor = (entries.row, entries.col) if kind == "csr" else (entries.col, entries.row)
    order = np.argsort(major, kind="stable")
    indptr = np.searchsorted(major[order], np.arange(shape[kind == "csc"] + 1)).astype(index)
    made = {"csr": sparse.csr_array, "csc": sparse.csc_array}[kind]
    return made((entries.data[order], minor[order].astype(index), indptr), shape=shape)


@np.errstate(over="ignore")
def dense(table):
    """Each cell as the sum of its entries in the order of storage, in Python."""
    found = np.zeros(table.shape, table.dtype)
    if table.format == "coo":
        places = zip(table.row, table.col, table.data, strict=True)
    else:
        major = np.repeat(np.arange(len(table.indptr) - 1), np.diff(table.indptr))
        rows, columns = (major, table.indices) if table.format == "csr" else (table.indices, major)
        places = zip(rows, columns, table.data, strict=False)
    for row, column, value in places:
        if not (0 <= row < table.shape[0] and 0 <= column < table.shape[1]):
            raise IndexError
        found[row, column] += value
    return found


def read(table, **options):
    whole = in_memory(table, "X", may_copy=True, **options)
    pieces = [np.asarray(x) for x, _ in blocks(table)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    return whole


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, bool])
def test_repeated_unsorted_and_zero_entries_are_read_as_scipy_has_them_dense(kind, index, dtype, monkeypatch):
    monkeypatch.setattr(sources, "_VALUES_PER_BLOCK", 50)
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 23, 400), rng.integers(0, 7, 400)
    values = (rng.normal(size=400) * 10.0 ** rng.integers(-9, 9, 400) * (rng.random(400) < 0.8)).astype(dtype)
    table = stored(rows, columns, values, (23, 7), kind, index)
    assert read(table).tobytes() == table.toarray().tobytes() == dense(table).tobytes()
    assert len(list(blocks(table))) == 4


@pytest.mark.parametrize("kind", FORMATS)
def test_a_persons_row_does_not_depend_on_how_others_are_stored(kind):
    """scipy sorts the entries of all rows, equal ones in any order, as soon as one row is not sorted."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=64) * 10.0 ** rng.integers(-12, 12, 64)
    mine = np.repeat([0, 1], 32)
    alone = dense(stored(np.zeros(64, int), mine, values, (2, 3), kind))[0]
    for others in ([0, 1, 2], [2, 1, 0], [1, 1, 1], []):
        k = len(others)
        for first in (True, False):
            rows = [1] * k * first + [0] * 64 + [1] * k * (not first)
            columns = [*(others * first), *mine, *(others * (not first))]
            entries = np.concatenate([np.ones(k * first), values, np.ones(k * (not first))])
            assert read(stored(rows, columns, entries, (2, 3), kind))[0].tobytes() == alone.tobytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_sums_are_those_of_dense_tables(kind, monkeypatch):
    monkeypatch.setattr(sources, "_VALUES_PER_BLOCK", 100)
    x = sparse.random_array((200, 5), density=0.4, random_state=np.random.default_rng(0), format=kind)
    y = sparse.random_array((200, 2), density=0.4, random_state=np.random.default_rng(1), format=kind)
    bounds = {"bound_x": 0.7, "bound_y": 0.5}
    exact = gram(x.toarray(), y.toarray(), **bounds)
    assert gram(x, y, **bounds) == gram(x, y.toarray(), **bounds) == gram(x.toarray(), y, **bounds) == exact
    assert gram([rows.asformat(kind) for rows in (x.tocsr()[:50], x.tocsr()[50:])], y, **bounds) == exact
    accumulator = GramAccumulator(5, 2, **bounds)
    accumulator.update(x, y)
    assert accumulator.gram() == exact
    groups = np.arange(200) // 3
    people = {"groups": groups, "max_rows": 2, **bounds}
    assert gram(x, y, **people) == gram(x.toarray(), y.toarray(), **people)


@pytest.fixture
def made_dense(monkeypatch):
    """Sizes of the blocks that are written out."""
    made, write_out = [], SparseBlock.__array__
    monkeypatch.setattr(
        SparseBlock, "__array__", lambda self, *a, **k: (made.append(len(self)), write_out(self, *a, **k))[1]
    )
    return made


@pytest.mark.parametrize("seed", range(6))
def test_sums_do_not_hang_on_splits_orders_threads_or_how_rows_are_stored(seed, monkeypatch, made_dense):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(sources, "_VALUES_PER_BLOCK", int(rng.choice([200, 5000, 1 << 22])))
    n, d, m = int(rng.integers(1, 900)), int(rng.integers(1, 60)), int(rng.integers(0, 4))
    nnz = int(n * d * rng.uniform(0, 0.2))
    dtype, index = rng.choice([np.float64, np.float32, np.int16]), rng.choice([np.int32, np.int64])
    values = (rng.normal(size=nnz) * 10.0 ** rng.integers(-3, 4, nnz)).astype(dtype)
    table = stored(rng.integers(0, n, nnz), rng.integers(0, d, nnz), values, (n, d), "csr", index)
    rows, y = table.toarray(), rng.normal(size=(n, m)) if m else None
    options = {"bound_x": float(rng.choice([1e-4, 1.0, 30.0, 1e6])), "bound_y": 1.5 if m else None, "sums": True}
    maps = {"map_y": RowMap(-np.ones(m), np.ones(m)) if m and seed % 2 else None}
    exact = gram(rows, y, **options, **maps, n_threads=1)
    del made_dense[:]
    for n_threads in (1, 2, 3):
        assert gram(table, y, **options, **maps, n_threads=n_threads) == exact
    tidy = table.copy()
    tidy.sum_duplicates()
    if tidy.toarray().tobytes() == rows.tobytes():
        assert gram(tidy, y, **options, **maps) == exact
    order = rng.permutation(n)
    cut = int(rng.integers(n + 1))
    parts = GramAccumulator(d, m, **options, n_threads=2).mapped_by(None, maps["map_y"])
    other = GramAccumulator(d, m, **options).mapped_by(None, maps["map_y"])
    shuffled, of_order = table[order], None if y is None else y[order]
    if shuffled.toarray().tobytes() == rows[order].tobytes():
        parts.update(shuffled[:cut], None if y is None else of_order[:cut])
        other.update(shuffled[cut:].tocsr(), None if y is None else of_order[cut:])
        assert parts.merge(other).gram() == exact
    if dtype != np.int16:
        assert not made_dense
    if m:
        assert cross_moments(table, y, bound_x=options["bound_x"], bound_y=1.5) == gram(rows, y, **options).exact_xy


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_moments_of_a_fit_are_summed_without_dense_rows(adjacency, fit_intercept, made_dense):
    x, y = people(400)
    x[np.abs(x) < 0.5] = 0.0
    options = {"adjacency": adjacency, "fit_intercept": fit_intercept, "random_state": 3}
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, **options)
    expected = {k: v.tobytes() for k, v in model.fit(x, y).releases_[0].values.items()}
    found = model.fit(sparse.csr_array(x), y).releases_[0].values
    assert {k: v.tobytes() for k, v in found.items()} == expected
    assert made_dense == []


@pytest.mark.parametrize("beside", [0, 1])
def test_one_persons_row_adds_its_own_part_whatever_lies_beside_it_and_however_it_is_stored(beside):
    """What both adjacencies are calibrated to: a row adds or replaces exactly its own products, within the bound."""
    rng = np.random.default_rng(beside)
    others = stored(rng.integers(0, 30, 90), rng.integers(0, 6, 90), rng.normal(size=90), (30, 6), "csr")
    alone = gram(others, bound_x=1.0)
    for columns in ([0, 3, 5], [5, 0, 3], [1, 1, 1, 4], [], [2]):
        for size in (1e-3, 0.5, 1.0 + 1e-9, 40.0, 1e200):
            mine = stored([0] * len(columns), columns, np.full(len(columns), size), (1, 6), "csr")
            own = gram(dense(mine), bound_x=1.0)
            both = sparse.csr_array(
                (
                    np.concatenate([others.data, mine.data]),
                    np.concatenate([others.indices, mine.indices]),
                    np.append(others.indptr, len(others.data) + len(columns)),
                ),
                shape=(31, 6),
            )
            assert gram(both, bound_x=1.0) == alone + own
            assert sum(own.exact_xx.integer((i, i)) for i in range(6)) <= own._tables()[0][-1]


def test_a_matrix_that_changes_while_it_is_read_is_not_read_beyond():
    rng = np.random.default_rng(0)
    n, d = 20_000, 50
    rows = SparseBlock(np.arange(0, 3 * n + 1, 3), rng.integers(0, d, 3 * n), np.ones(3 * n), d)
    lies, ended = [-1, d, 2**62, -(2**63)], threading.Event()

    def change():
        while not ended.is_set():
            place = rng.integers(3 * n)
            rows.indices[place] = lies[place % 4]
            rows.indices[place] = place % d

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(30):
            part = GramAccumulator(d, bound_x=2.0)._new_part()
            assert sparse_gram.add_sparse(part, rows, None, 0, n) in (PACKED, sparse_gram.OUTSIDE)
    finally:
        ended.set()
        changing.join()


def test_a_matrix_that_changed_since_it_was_checked_is_refused_unquoted(monkeypatch):
    table = stored([0, 1], [1, 2], np.array([12345.0, 1.0]), (3, 4), "csr")
    monkeypatch.setattr(sources, "_checked", lambda shape, *parts: parts)
    table.indices[1] = 4
    with pytest.raises(ValueError, match=r"^X is a sparse matrix whose indices lie outside of it, or whose"):
        gram(table, bound_x=1.0)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SOME else pytest.mark.slow)
        for name, fit in FITS.items()
        if fit.table is not None and fit.table != "panel"
    ],
)
def test_every_estimator_of_rows_takes_them(name):
    fit = FITS[name]
    x, y = people(60)
    x[np.abs(x) < 0.3] = 0.0
    kept = fit(x, y, random_state=0)
    for kind in FORMATS[: 1 + (name == next(iter(FITS)))]:
        found = fit(sparse.coo_array(x).asformat(kind), y, random_state=0)
        for one, other in zip(found.releases_, kept.releases_, strict=True):
            assert {k: v.tobytes() for k, v in one.values.items()} == {k: v.tobytes() for k, v in other.values.items()}
        for answer in [answer for answer in ("predict", "transform") if hasattr(kept, answer)]:
            expected = getattr(kept, answer)(x)
            for one in (sparse.csr_array(x), sparse.csr_matrix(x)):
                assert getattr(found, answer)(one).tobytes() == expected.tobytes()


def test_without_noise_and_as_panels_too():
    x, y = people(40)
    model = MultiOutcomeRidge(np.inf, bound_x=2.0, bound_y=1.0, fit_intercept=False)
    expected = model.fit(x, y).coef_.tobytes()
    assert model.fit(sparse.csc_array(x), y).coef_.tobytes() == expected
    control = SyntheticControl(np.inf)
    expected = control.fit(x, 2).predict([0.1, 0.2]).tobytes()
    assert control.fit(sparse.csr_array(x), 2).predict([0.1, 0.2]).tobytes() == expected


def test_memory_is_bounded_by_a_block():
    x = sparse.csr_array((200_000, 200))
    accumulator = GramAccumulator(200, bound_x=1.0, n_threads=1)
    accumulator.update(x[:10])
    tracemalloc.start()
    accumulator.update(x)
    for block, _ in open_table(x).blocks():
        assert np.asarray(block).nbytes <= 8 * sources._VALUES_PER_BLOCK
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * sources._VALUES_PER_BLOCK + 2 * x.indptr.nbytes


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_unquoted(value):
    x = stored([0, 1], [1, 2], np.array([12345.0, value]), (3, 4), "csr")
    with pytest.raises(ValueError, match=r"^X contains NaN|^X contains inf|finite") as refused:
        gram(x, bound_x=1.0)
    assert "12345" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (
            sparse.lil_array(np.eye(3)),
            TypeError,
            "X is a sparse matrix in the lil format: convert it by .tocsr() first",
        ),
        (sparse.dok_array(np.eye(3)), TypeError, "X is a sparse matrix in the dok format"),
        (sparse.bsr_array(np.eye(3)), TypeError, "X is a sparse matrix in the bsr format"),
        (sparse.csr_array(np.eye(3) * 1j), ValueError, "Complex data not supported"),
        (sparse.coo_array(np.ones(3)), ValueError, "X must be 2-D where it is sparse, got an array of 1 dimension(s)"),
        (sparse.csr_array((3, 0)), ValueError, "X must have columns"),
    ],
    ids=str,
)
def test_what_is_no_table_of_numbers_is_refused(table, error, message):
    with pytest.raises(error, match=re.escape(message)):
        open_table(table)


def test_no_rows_are_rows():
    assert gram(sparse.csr_array((0, 4)), bound_x=1.0).n_rows == 0
    assert read(sparse.coo_array((0, 4))).shape == (0, 4)


def corrupted(table, rng):
    """One of the arrays of a matrix, changed behind its back."""
    names = ["row", "col", "data"] if table.format == "coo" else ["indptr", "indices", "data"]
    name = names[rng.integers(3)]
    array = getattr(table, name).copy()
    match rng.integers(5):
        case 0:
            array = array[: rng.integers(len(array) + 1)]
        case 1:
            array = np.concatenate([array, array[: rng.integers(1, 4)]])
        case 2 if name != "data":
            array[rng.integers(len(array))] = rng.integers(-(2**31), 2**31)
        case 3 if name != "data":
            array[rng.integers(len(array))] += rng.choice([-1, 1, 5, -5])
        case 4:
            array = array.astype(rng.choice([object, float, np.uint8, "U5"]))
    if table.format == "coo" and name != "data":
        table.coords = tuple(array if one == name else getattr(table, one) for one in ("row", "col"))
    else:
        setattr(table, name, array)
    return table


@pytest.mark.parametrize("kind", FORMATS)
def test_a_matrix_that_lies_of_itself_is_read_as_it_is_or_refused(kind):
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        n = rng.integers(1, 30)
        table = stored(rng.integers(0, 6, n), rng.integers(0, 4, n), rng.normal(size=n) + 77, (6, 4), kind)
        table = corrupted(table, rng)
        try:
            found = read(table)
        except (ValueError, TypeError) as refusal:
            found, message = None, str(refusal)
        if found is None:
            assert re.match(r"X is a sparse matrix whose indices|X has dtype", message)
            refused += 1
        else:
            assert found.tobytes() == dense(table).astype(found.dtype).tobytes()
    assert 60 < refused < 290


def test_a_masked_array_within_is_refused():
    from scipy import sparse

    matrix = sparse.csr_matrix(np.eye(3))
    matrix.data = np.ma.masked_array(matrix.data, [False, True, False])
    with pytest.raises(TypeError, match="X is a masked array"):
        gram(matrix, bound_x=1.0)
