"""Sparse matrices are read as their dense rows, to the bit, whatever is in them."""

import re
import tracemalloc

import numpy as np
import pytest
from catalogue import FITS, SOME, people
from scipy import sparse

from dpfast import MultiOutcomeRidge, SyntheticControl
from dpfast.io import arrays, blocks, in_memory, open_table
from dpfast.statistics import GramAccumulator, gram

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
    monkeypatch.setattr(arrays, "_VALUES_PER_BLOCK", 50)
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
    monkeypatch.setattr(arrays, "_VALUES_PER_BLOCK", 100)
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
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * arrays._VALUES_PER_BLOCK + 2 * x.indptr.nbytes


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
