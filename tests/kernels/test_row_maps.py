"""Rows that pass through maps on their way into exact sums: as if they had been mapped first."""

import numpy as np
import pytest

from dpfast.kernels import gram, row_maps
from dpfast.kernels.columns import ColumnBlock
from dpfast.kernels.row_maps import RowMapKernel

LEVELS = [level for level in (0, 1, 2) if level <= gram.cpu_level()]
LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "apart": lambda table: ColumnBlock(table.T, table.dtype),
    "every second": lambda table: np.repeat(table, 2, axis=0)[::2],
}


def tables(d, m):
    return [(d, 2.0**20, 2.0**21, 2**43), (m, 2.0**20, 2.0**21, 2**43)]


def maps(d, m, level):
    of_x = {
        "low": np.full(d, -1.5),
        "high": np.linspace(0.5, 2.0, d),
        "bound": 1.8,
        "center": np.linspace(-0.2, 0.3, d),
        "scale": np.linspace(0.7, 1.9, d),
    }
    return RowMapKernel(d, level=level, **of_x), RowMapKernel(m, bound=1.0, level=level) if m else None


def summed(d, m, level, add, with_sums=True):
    """Return the totals of what `add` adds to sums."""
    options = {"block_rows": 64, "use_blas": False, "with_sums": with_sums, "level": level}
    sums, totals = gram.GramSums(*tables(d, m), **options), gram.GramTotals(d, m, 2**43)
    assert add(sums) == gram.PACKED
    totals.take([sums])
    return totals


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 0), (65, 3, 1), (203, 8, 2), (130, 21, 0), (71, 40, 3)])
def test_sums_are_those_of_mapped_rows_to_the_bit(n, d, m, dtype, layout, level):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(n, m)).astype(dtype)
    of_x, of_y = maps(d, m, level)
    start, chosen = n // 5, rng.integers(0, n, 2 * n)

    def mapped_first(rows):
        pair = []
        for kernel, table in ((of_x, x), (of_y, y)):
            out = np.empty((len(rows), table.shape[1]))
            if kernel is not None:
                assert kernel.map_rows(np.ascontiguousarray(table[rows]), out, 0, len(rows))
            pair.append(out if kernel is not None else None)
        return summed(d, m, level, lambda sums: sums.add(*pair, None, 0, len(rows)))

    table_x, table_y = LAYOUTS[layout](x), LAYOUTS[layout](y) if m else None
    for rows, first, last in ((None, start, n), (chosen, start, 2 * n)):
        one = summed(
            d, m, level, lambda s, a=(rows, first, last): row_maps.add_mapped(s, of_x, of_y, table_x, table_y, *a)
        )
        assert one.equals(mapped_first(np.arange(first, last) if rows is None else rows[first:last]))
        assert one.n_rows == last - first


@pytest.mark.parametrize("level", LEVELS)
def test_columns_of_another_basis_are_summed(level):
    x = np.random.default_rng(0).normal(size=(90, 5))
    kernel = RowMapKernel(5, basis=np.linspace(-1.0, 1.0, 15).reshape(5, 3), bound=1.0, level=level)
    out = np.empty((90, 3))
    kernel.map_rows(x, out, 0, 90)
    found = summed(3, 0, level, lambda sums: row_maps.add_mapped(sums, kernel, None, x, None, None, 0, 90))
    assert found.equals(summed(3, 0, level, lambda sums: sums.add(out, None, None, 0, 90)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_also_between_limits(bad):
    x, y = np.zeros((200, 3)), np.zeros((200, 2))
    of_x, of_y = maps(3, 2, -1)
    options = {"block_rows": 64, "use_blas": False, "with_sums": False}
    for table, status in ((x, gram.X_NOT_FINITE), (y, gram.Y_NOT_FINITE)):
        table[150, 1] = bad
        sums = gram.GramSums(*tables(3, 2), **options)
        assert row_maps.add_mapped(sums, of_x, of_y, x, y, None, 0, 150) == gram.PACKED
        assert row_maps.add_mapped(sums, of_x, of_y, x, y, None, 150, 200) == status
        table[150, 1] = 0.0


def test_missing_entries_become_the_centre_where_the_map_fills_them():
    x = np.array([[np.nan, 1.0], [0.25, np.nan]])
    center = np.array([0.5, 0.5])
    kernel = RowMapKernel(2, center=center, fills=True)
    found = summed(2, 0, -1, lambda sums: row_maps.add_mapped(sums, kernel, None, x, None, None, 0, 2))
    filled = np.array([[0.0, 0.5], [-0.25, 0.0]])
    assert found.equals(summed(2, 0, -1, lambda sums: sums.add(filled, None, None, 0, 2)))


def test_shapes_that_do_not_fit_are_refused():
    x, y = np.zeros((10, 3)), np.zeros((10, 2))
    of_x, of_y = maps(3, 2, -1)
    sums = gram.GramSums(*tables(3, 2), block_rows=8, use_blas=False, with_sums=False)
    for pair in ((x[:, :2], y), (x, y[:, :1])):
        with pytest.raises(ValueError, match="other columns"):
            row_maps.add_mapped(sums, of_x, of_y, *pair, None, 0, 10)
    for arguments in ((of_x, None, x, None), (of_x, of_y, x, None), (of_x, None, x, y)):
        with pytest.raises(ValueError, match="sums of outcomes"):
            row_maps.add_mapped(sums, *arguments, None, 0, 10)
    for rows, start, stop in ((None, -1, 3), (None, 0, 11), (np.arange(4), 0, 5)):
        with pytest.raises(IndexError, match="within the rows"):
            row_maps.add_mapped(sums, of_x, of_y, x, y, rows, start, stop)
    with pytest.raises(IndexError, match="within the rows"):
        row_maps.add_mapped(sums, of_x, of_y, x, y[:9], None, 0, 5)
    assert row_maps.add_mapped(sums, of_x, of_y, x, y, None, 4, 4) == gram.PACKED
    assert sums.rows_in_totals == 0


def test_full_totals_are_refused():
    sums = gram.GramSums((1, 1.0, 2.0**26, 2**52), (0, 1.0, 1.0, 1), block_rows=1, use_blas=False, with_sums=False)
    n = sums.capacity + 1
    with pytest.raises(OverflowError, match="take them first"):
        row_maps.add_mapped(sums, RowMapKernel(1), None, np.zeros((n, 1)), None, None, 0, n)
