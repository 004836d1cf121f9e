"""Rows with codes through maps and bounds: the sums of all columns, to the bit, however they are cut."""

from dataclasses import replace

import numpy as np
import pytest

from dpfast.kernels import row_maps
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock
from dpfast.statistics import GramAccumulator
from dpfast.statistics.coded import CodedMap
from dpfast.statistics.rows import CodedTables, RowMap, centred, scaled


def drawn(rng):
    """A block of a layout that is drawn too, with entries of all sizes and codes of no level."""
    places, firsts, levels, at = [], [], [], 0
    for is_category in rng.permutation([False] * rng.integers(0, 8) + [True] * rng.integers(1, 5)):
        if is_category:
            firsts.append(at)
            levels.append(int(rng.integers(1, 40)))
            at += levels[-1]
        else:
            places.append(at)
            at += 1
    n = int(rng.integers(1, 2000))
    x = rng.normal(size=(n, len(places))) * 10.0 ** rng.integers(-3, 4)
    if places:
        x[rng.integers(n)] = rng.choice([1e300, 1e-310, 0.0])
    codes = [rng.integers(-1, most + 1, n).astype(np.int32) for most in levels]
    numbers = ColumnBlock(list(x.T)) if places and rng.random() < 0.5 else x
    return CodedBlock(numbers, codes, CodeLayout(at, tuple(places), tuple(firsts), tuple(levels)))


def maps(rng, layout):
    """Public maps that leave indicators as they are, centre them, clip them, or hold rows to a norm first."""
    d = layout.n_columns
    low = rng.normal(size=d) * 3 - 5
    high = low + rng.uniform(0.1, 7, d)
    low[layout.indicators], high[layout.indicators] = 0.0, 1.0
    bound = float(rng.choice([np.inf, 2.0, 5.0, 20.0]))
    inner = low + (high - low) * rng.uniform(0.1, 0.4, d), low + (high - low) * rng.uniform(0.5, 0.9, d)
    return [
        (None, float(rng.choice([0.3, 1.0, 2.0, 3.7, 10.0, 1e4, 1e-3, 3e6]))),
        scaled(low, high, bound),
        centred(low, high, bound),
        (RowMap(low, high, bound, center=rng.normal(size=d), scale=rng.uniform(0.1, 3, d)), 7.0),
        (RowMap(bound=3.0, center=rng.normal(size=d) * 0.1), 4.0),
        (RowMap(*inner, bound, center=low, offset=0.1, unit=2.0, fills=True), 5.0),
        (RowMap(bound=2.0, top=1), 3.0),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_codes_and_indicators_have_the_same_sums_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    block = drawn(rng)
    n, m = len(block), int(rng.integers(0, 4))
    y, dense = rng.normal(size=(n, m)) if m else None, np.asarray(block)
    for row_map, bound in maps(rng, block.layout):
        options = {"bound_x": bound, "bound_y": 2.0 if m else None, "sums": bool(rng.integers(2))}
        whole = (
            GramAccumulator(block.layout.n_columns, m, n_threads=1, **options).mapped_by(row_map, None).update(dense, y)
        )
        parts = GramAccumulator(block.layout.n_columns, m, n_threads=2, **options).mapped_by(row_map, None)
        cut = int(rng.integers(n + 1))
        rest = rng.permutation(np.arange(cut, n))
        parts.update(block[:cut], None if y is None else y[:cut]).update(block, y, rows=rest)
        assert parts.gram() == whole.gram()


def test_most_rows_never_become_indicators(monkeypatch):
    rng = np.random.default_rng(5)
    block = CodedBlock(rng.uniform(-1, 1, (5000, 3)), [rng.integers(0, 9, 5000)], CodeLayout(12, (0, 1, 2), (3,), (9,)))
    written = []
    monkeypatch.setattr(CodedBlock, "__array__", lambda self, *_, **__: written.append(len(self)))
    low, high = np.append(-np.ones(3), np.zeros(9)), np.ones(12)
    for row_map, bound in ((None, 2.0), scaled(low, high), scaled(low, high, 3.0), centred(low, high)):
        GramAccumulator(12, bound_x=bound).mapped_by(row_map, None).update(block)
    assert written == []


def test_entries_that_are_not_finite_are_refused():
    for value in (np.nan, np.inf):
        block = CodedBlock(np.array([[0.0], [value]]), [np.zeros(2, np.int32)], CodeLayout(3, (0,), (1,), (2,)))
        for row_map in (None, RowMap(bound=2.0)):
            with pytest.raises(ValueError, match="X"):
                GramAccumulator(3, bound_x=2.0).mapped_by(row_map, None).update(block)


def test_maps_that_look_at_whole_rows_have_no_shorter_way():
    layout = CodeLayout(3, (0,), (1,), (2,))
    assert CodedMap.of(layout, None) is not None
    for row_map in (RowMap(basis=np.eye(3)), RowMap(bound=1e-200), RowMap(bound=1.0, fills=True), lambda rows: rows):
        assert CodedMap.of(layout, row_map) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_basis_is_looked_up_from_the_row_alone_and_close_to_products(seed):
    rng = np.random.default_rng(seed)
    block = drawn(rng)
    d, n = block.layout.n_columns, len(block)
    low, high = -rng.uniform(0.5, 1, d), rng.uniform(0.5, 1, d)
    for row_map in (RowMap(bound=2.0), centred(low, high)[0], scaled(low, high, 1.5)[0]):
        whole_map = replace(row_map, basis=rng.normal(size=(d, int(rng.integers(1, 40)))))
        whole, reused = whole_map(block), whole_map.reusing_room()
        np.testing.assert_allclose(whole, whole_map(np.asarray(block)), rtol=0, atol=1e-9)
        for i in rng.integers(0, n, 20):
            np.testing.assert_array_equal(whole_map(block[i : i + 1])[0], whole[i])
            np.testing.assert_array_equal(reused(block[[i, 0]]), whole[[i, 0]])
        out = np.empty_like(whole)
        assert whole_map.into(block, out)
        np.testing.assert_array_equal(out, whole)
        tables = CodedTables.of(whole_map, block.layout)
        for level in (0, 1, 2):
            room = np.empty((n, len(tables.absent)))
            numbers = np.asarray(block.numbers, np.float64)
            assert row_maps.CodedMapKernel(*tables, level=level, block_rows=5).map_rows(numbers, block.codes, room)
            np.testing.assert_array_equal(room[:, : whole.shape[1]], whole)


def test_rows_that_are_not_finite_have_no_products():
    layout = CodeLayout(4, (0, 1), (2,), (2,))
    block = CodedBlock(np.array([[0.0, 1.0], [np.nan, 0.0], [1.0, -np.inf], [2.0, 2.0]]), [np.arange(4)], layout)
    row_map = RowMap(bound=2.0, basis=np.ones((4, 2)))
    assert np.isnan(row_map(block)).all(axis=1).tolist() == [False, True, True, False]
    assert not row_map.into(block, np.empty((4, 2)))
    with pytest.raises(ValueError, match="X"):
        GramAccumulator(2, bound_x=9.0).mapped_by(row_map, None).update(block)


def test_maps_with_a_basis_that_need_all_columns_read_indicators():
    layout = CodeLayout(4, (0, 1), (2,), (2,))
    block = CodedBlock(np.ones((3, 2)), [np.arange(3)], layout)
    for row_map in (RowMap(bound=2.0, top=1), RowMap(bound=2.0, fills=True), RowMap(bound=1e-100)):
        whole_map = replace(row_map, basis=np.eye(4))
        assert CodedTables.of(whole_map, layout) is None
        np.testing.assert_array_equal(whole_map(block), whole_map(np.asarray(block)))
    with pytest.raises(ValueError, match="other shapes"):
        row_maps.CodedMapKernel(*CodedTables.of(RowMap(basis=np.eye(4)), layout)._replace(center=np.zeros(7)))
