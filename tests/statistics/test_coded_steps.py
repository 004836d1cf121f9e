"""Residual steps by pairs of levels: what one person moves, whatever lies beside them, and which steps are taken so."""

import math
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest
from neighbours import climb

from dpfast import io
from dpfast.kernels import residual_step
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock, FixedPoint
from dpfast.statistics import residuals
from dpfast.statistics.coded import PairTables
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.statistics.residuals import (
    ResidualStep,
    ThreadSums,
    clip_of,
    coded_tables,
    residual_bound,
    residual_sizes,
    residual_sums,
)
from dpfast.statistics.rows import RowMap, centred

LAYOUT = CodeLayout(12, places=(0, 4), firsts=(1, 5, 8), levels=(3, 3, 4))
OUTCOMES, CLIP = 2, 0.7
D = LAYOUT.n_columns + 1


def step_of(rng, bound=math.inf, n_outcomes=OUTCOMES, **options):
    low, high = -np.ones(D - 1), np.ones(D - 1)
    low[LAYOUT.indicators] = 0.0
    whitening = np.tril(rng.normal(size=(D, D)))
    whitening[-1] = np.eye(D)[-1]
    options = {"map_x": centred(low, high, bound)[0], "whitening": whitening} | options
    return ResidualStep(rng.normal(size=(D, n_outcomes)), map_y=RowMap(bound=3.0), constant=True, **options)


def block_of(rng, n_rows=300, n_outcomes=OUTCOMES):
    codes = [rng.integers(-1, most, n_rows) for most in LAYOUT.levels]
    numbers = ColumnBlock(list(2.0 * rng.normal(size=(2, n_rows))))
    return CodedBlock(numbers, codes, LAYOUT), 2.0 * rng.normal(size=(n_rows, n_outcomes))


def sums(step, *blocks, clip=CLIP, n_threads=1):
    return residual_sums(io.open_table(list(blocks)), step, clip, n_threads=n_threads)


def integers(products):
    return [products.integer(index) for index in np.ndindex(products.shape)]


def row(parameters):
    """Numbers, codes and outcomes from reals, which a climb changes a little at a time."""
    x, codes, y = np.split(parameters, [2, 5])
    chosen = (int(4.0 * abs(code)) % (most + 2) - 1 for code, most in zip(codes, LAYOUT.levels, strict=True))
    return CodedBlock(x[None], [np.array([code]) for code in chosen], LAYOUT), y[None]


ROW = 5 + OUTCOMES


@pytest.mark.parametrize("options", [{}, {"longest": 4.0}, {"bound": 1.4}], ids=["plain", "longest", "bound"])
@pytest.mark.parametrize("clip", [CLIP, 1e-5, 1e4])
def test_one_person_moves_the_total_by_its_bound_at_most_under_either_adjacency(options, clip):
    """Whoever else is in the table: differences of totals are exact, in integers."""
    rng = np.random.default_rng(1)
    step = step_of(rng, **options)
    bound, longest = residual_bound(clip, step), 0.0
    others = block_of(rng, 40)
    with_nobody = sums(step, others, clip=clip).products
    for _ in range(40):
        sizes = 10.0 ** rng.uniform(-2, 3, (2, ROW))
        moved = []
        for parameters in sizes * rng.normal(size=(2, ROW)):
            total = sums(step, others, row(parameters), clip=clip).products
            finest = min(total.exponent, with_nobody.exponent)
            pairs = zip(integers(total.in_units(finest)), integers(with_nobody.in_units(finest)), strict=True)
            moved.append([math.ldexp(one - other, finest) for one, other in pairs])
        alone = [math.hypot(*part) for part in moved]
        assert max(alone) <= bound * (1.0 + 1e-15)
        assert math.dist(*moved) <= 2.0 * bound * (1.0 + 1e-15)
        longest = max(longest, *alone)
    assert longest > 0.999 * clip or clip > 1.0


def test_two_people_at_the_clip_attain_the_bound_of_replaced_ones():
    """Opposite residuals of one row: each is added in the new way, on its own grid."""
    rng = np.random.default_rng(2)
    step = step_of(rng)
    moved = []
    for sign in (-1.0, 1.0):
        part = sums(step, row(np.array([0.3, -0.2, 0.0, 0.5, 0.25, 100.0 * sign, 40.0 * sign]))).products
        # Finer than the grid of look-ups: so the pairs were used.
        assert part.exponent < clip_of(CLIP, step.shape).exponent
        moved.append([math.ldexp(one, part.exponent) for one in integers(part)])
    bound = residual_bound(CLIP, step)
    # The outcomes' residuals are not quite opposite, as theta'x is not 0.
    assert 2.0 * CLIP * 0.9 < math.dist(*moved) <= 2.0 * bound
    one, other = step, step_of(np.random.default_rng(2), map_x=RowMap(bound=5.0))
    for each in (one, other):
        flat = ResidualStep(0.0 * each.theta, each.map_x, each.map_y, each.whitening, constant=True)
        ends = [sums(flat, row(np.array([0.3, -0.2, 0.0, 0.5, 0.25, sign, sign]))).products for sign in (-1.0, 1.0)]
        apart = [math.ldexp(a - b, ends[0].exponent) for a, b in zip(*map(integers, ends), strict=True)]
        assert 2.0 * CLIP * (1.0 - 1e-5) < math.hypot(*apart) <= 2.0 * residual_bound(CLIP, flat)


def test_nobody_found_by_climbing_moves_the_total_farther():
    rng = np.random.default_rng(3)
    step = step_of(rng, longest=6.0)
    bound = residual_bound(CLIP, step)

    def moved(parameters):
        ends = [sums(step, row(20.0 ** (np.arange(ROW) >= 5) * one)).products for one in np.split(parameters, 2)]
        finest = min(end.exponent for end in ends)
        apart = zip(*(integers(end.in_units(finest)) for end in ends), strict=True)
        return math.hypot(*(math.ldexp(one - other, finest) for one, other in apart))

    farthest, _ = climb(moved, 2 * ROW, rng, restarts=2, screened=60)
    assert 1.6 * CLIP < farthest <= 2.0 * bound * (1.0 + 1e-15)


@pytest.mark.parametrize("options", [{}, {"longest": 4.0}, {"bound": 1.4}], ids=["plain", "longest", "bound"])
def test_sums_and_sizes_are_those_of_each_row_alone_for_any_split_order_and_number_of_threads(options, monkeypatch):
    rng = np.random.default_rng(4)
    step, (block, y) = step_of(rng, **options), block_of(rng, 150)
    whole, counts = sums(step, (block, y)), residual_sizes(io.open_table([(block, y)]), step, (-8, 8))
    one_by_one = [sums(step, (block[[i]], y[[i]])) for i in range(150)]
    assert reduce(residuals._add_sums, one_by_one) == whole
    order = rng.permutation(150)
    monkeypatch.setattr(residuals, "_PRODUCTS_PER_THREAD", 1)
    monkeypatch.setattr(residuals, "_LONGEST_CODED_RANGE", 64)
    for n_threads in (1, 2, 3):
        split = [(block[part], y[part]) for part in np.split(order, [1, 70])]
        assert sums(step, *split, n_threads=n_threads) == whole
        found = residual_sizes(io.open_table(split), step, (-8, 8), n_threads=n_threads)
        np.testing.assert_array_equal(found, counts)


def test_tables_of_other_layouts_add_to_the_same_sums():
    """A block of indicators, and one whose categories are declared in other places."""
    rng = np.random.default_rng(5)
    step, (block, y) = step_of(rng), block_of(rng, 60)
    swapped = CodeLayout(12, places=(0, 4), firsts=(1, 5), levels=(3, 7))
    codes = [block.codes[0], np.where(block.codes[1] >= 0, block.codes[1], block.codes[2] + 3)]
    blocks = [(block, y), (np.asarray(block), y), (CodedBlock(block.numbers, codes, swapped), y), (block, y)]
    expected = reduce(residuals._add_sums, (sums(step, one) for one in blocks))
    assert sums(step, *blocks) == expected
    sizes = [residual_sizes(io.open_table([one]), step, (-8, 8)) for one in blocks]
    np.testing.assert_array_equal(residual_sizes(io.open_table(blocks), step, (-8, 8)), sum(sizes))


@pytest.mark.parametrize("link", ["identity", "huber"])
def test_what_is_kept_of_rows_with_codes_sums_for_the_next_step_as_if_it_were_new(link):
    rng, kept = np.random.default_rng(11), []
    step, (block, y) = step_of(rng, link=link), block_of(rng, 60)
    codes, columns = (block, y), (np.asarray(block), y)
    for clip, blocks in ((3.0, [codes]), (0.2, [codes, columns]), (7.0, [columns]), (0.1, [columns, codes])):
        step, table = step.at(rng.normal(size=step.theta.shape)), io.open_table(blocks)
        assert residual_sums(table, step, clip, kept=kept) == residual_sums(table, step, clip)


def pairs_of(step, layout=LAYOUT):
    tables = coded_tables(step, layout)
    return None if tables is None else tables.pairs


def test_which_steps_are_taken_by_pairs_is_settled_by_settings_and_declarations():
    rng = np.random.default_rng(6)
    step = step_of(rng)
    assert isinstance(pairs_of(step), PairTables)
    wide = CodeLayout(2000, places=(), firsts=(0, 1000), levels=(1000, 1000))
    square = np.eye(2001)[:3]
    many = ResidualStep(np.zeros((2001, 1)), RowMap(bound=2.0), RowMap(bound=1.0), square, constant=True)
    assert pairs_of(many, wide) is None
    for options in ({"link": "huber"}, {"whitening": None}, {"longest": 1e-90}):
        assert pairs_of(step_of(rng, **options)) is None
    shifted = RowMap(np.full(1, -1.0), np.full(1, 1.0), offset=0.5, unit=2.0)
    assert pairs_of(step_of(rng, map_x=shifted)) is None
    assert pairs_of(step_of(rng, whitening=np.full((1, D), 1e-99))) is None
    tables = pairs_of(step)
    assert tables.clip(CLIP, 1, 0) is not None
    # Totals of such columns might not fit.
    assert tables._replace(exponents=tables.exponents + 60).clip(CLIP, 1, 0) is None
    held = clip_of(CLIP, step.shape)
    for bound_squares, is_taken in ((None, True), (1.0, False)):
        thread = ThreadSums(step, held, bound_squares)
        thread.begin_coded(coded_tables(step, LAYOUT))
        assert (thread.coded is not None) == is_taken


def test_sums_are_taken_before_they_are_full():
    step = step_of(np.random.default_rng(10))
    thread = ThreadSums(step, clip_of(CLIP, step.shape))
    tables, taken = coded_tables(step, LAYOUT), []

    def take():
        taken.append(True)
        return np.ones((len(tables.pairs.of_slots), 2)), np.zeros((2, 2), np.int64), np.zeros((2, 2), np.uint64), 0

    thread.begin_coded(tables)
    thread.coded = SimpleNamespace(room=50, take=take, add=lambda *rows: rows[-1].fill(0) or residual_step.ADDED)
    (block, y), add = block_of(np.random.default_rng(10), 51), residuals._add_rows
    assert add(block, y, tables, thread, 0, 50) == residual_step.ADDED
    assert not taken
    assert add(block, y, tables, thread, 0, 51) == residual_step.ADDED
    assert taken
    requested, kernel = [], SimpleNamespace(room=50, add=lambda *_: residual_step.ADDED)
    part = SimpleNamespace(kernel=kernel, coded=None, make_room=requested.append)
    for stop in (50, 51):
        assert add(np.asarray(block), y, None, part, 0, stop) == residual_step.ADDED
    assert requested == [51]


def test_totals_are_the_products_with_v_in_integers():
    rng = np.random.default_rng(7)
    tables = pairs_of(step_of(rng))
    n_slots = len(tables.of_slots)
    by_slot = np.rint(rng.normal(size=(n_slots, 2)) * 2.0 ** rng.integers(0, 50, (n_slots, 2)))
    high, low = rng.integers(-(2**9), 2**9, (2, 2)), rng.integers(0, 2**64, (2, 2), np.uint64)
    numbers = high.astype(object) * 2**64 + low.astype(object)
    sums_of_all = np.concatenate([numbers, by_slot.astype(np.int64).astype(object)])
    shifts = int(tables.exponents.max()) - tables.exponents.astype(object)
    columns = tables.integers.astype(np.int64).astype(object) * 2 ** shifts[:, None]
    assert tables.total(by_slot, high, low, CLIP) == FixedPoint.from_integers(
        columns.T @ sums_of_all, tables.exponent(CLIP)
    )


def test_the_largest_totals_fit_128_bits():
    """2**28 rows at the clip, of columns with grids as far apart as may be."""
    rng = np.random.default_rng(8)
    step = step_of(rng)
    step.whitening[:] *= 10.0 ** rng.uniform(-9.0, 9.0, D)
    tables = pairs_of(step)
    assert tables.clip(CLIP, 1, 0) is not None
    assert int(tables.exponents[2:].max() - tables.exponents[2:].min()) <= 16
    largest = math.frexp(CLIP)[1] - tables.exponent(CLIP) + 28
    assert largest < 127
    assert float(np.abs(tables.integers).max()) ** 2 * D <= 2.0**53
    products = tables.integers @ tables.integers.T
    exact = tables.integers.astype(np.int64).astype(object)
    assert products.astype(np.int64).tolist() == (exact @ exact.T).tolist()


def test_steps_go_where_those_of_indicators_go():
    rng = np.random.default_rng(9)
    for options in ({}, {"longest": 4.0}, {"bound": 1.4}):
        step, (block, y) = step_of(rng, **options), block_of(rng, 2000)
        codes, dense = (sums(step, (x, y)) for x in (block, np.asarray(block)))
        np.testing.assert_allclose(
            codes.products.to_float64(), dense.products.to_float64(), atol=2000 * CLIP * 2.0**-19
        )
        assert abs(codes.n_beyond - dense.n_beyond) <= 1
        assert codes.n_beyond > 100


@pytest.mark.parametrize("bound", [math.inf, 1.4])
def test_norms_of_rows_in_coordinates_are_counted_as_those_of_indicators_are(bound):
    rng = np.random.default_rng(12)
    low, high = -np.ones(D - 1), np.ones(D - 1)
    low[LAYOUT.indicators] = 0.0
    row_map = replace(centred(low, high, bound)[0], basis=rng.normal(size=(D - 1, 7)))
    block, _ = block_of(rng, 2000)
    bins = NormHistograms(rows=True, bins=LogarithmicBins(-20, 20))
    counts = [size_counts(io.open_table(x), bins, map_x=row_map) for x in ([block], np.asarray(block))]
    found, expected = (one.low.astype(np.int64) for one in counts)
    assert found.sum() == expected.sum() == 2000
    assert np.abs(found - expected).sum() <= 2
    order = rng.permutation(2000)
    for n_threads in (1, 3):
        split = [block[part] for part in np.split(order, [1, 700])]
        assert size_counts(io.open_table(split), bins, map_x=row_map, n_threads=n_threads) == counts[0]
    few = [size_counts(io.open_table([block[[i]]]), bins, map_x=row_map) for i in range(50)]
    assert reduce(FixedPoint.__add__, few) == size_counts(io.open_table([block[:50]]), bins, map_x=row_map)


def test_rows_with_codes_that_are_not_finite_are_not_counted():
    block, _ = block_of(np.random.default_rng(13), 20)
    block.numbers.columns[0][7] = np.nan
    row_map = RowMap(bound=2.0, basis=np.eye(D - 1))
    with pytest.raises(ValueError, match="X") as caught:
        size_counts(io.open_table([block]), NormHistograms(rows=True), map_x=row_map)
    assert "7" not in str(caught.value)
