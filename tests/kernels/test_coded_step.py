"""The kernel of residual steps by pairs of levels: its plain twin to the bit, and within its limit exactly."""

import math
from fractions import Fraction

import numpy as np
import pytest
from reference import coded_steps as twin
from reference.coded_steps import coded_rows

from dpfast.kernels import coded_step, residual_step
from dpfast.kernels.columns import CodeLayout, ColumnBlock
from dpfast.statistics.residuals import ResidualStep, clip_of, coded_tables
from dpfast.statistics.rows import RowMap, centred

LEVELS = [0, 1, 2]
MIXED = CodeLayout(13, places=(0, 5, 12), firsts=(1, 6), levels=(4, 6))
CODES_ALONE = CodeLayout(9, places=(), firsts=(0, 4), levels=(4, 5))
ONE_CATEGORY = CodeLayout(12, places=tuple(range(9)), firsts=(9,), levels=(3,))
FOUR = CodeLayout(14, places=(0, 1), firsts=(2, 5, 8, 11), levels=(3, 3, 3, 3))
LAYOUTS = {"mixed": MIXED, "codes alone": CODES_ALONE, "one category": ONE_CATEGORY, "four": FOUR}
FIRST, LAST = -6, 40


def maps_of(rng, layout):
    d = layout.n_columns
    low, high = -rng.uniform(0.5, 3.0, d), rng.uniform(0.5, 3.0, d)
    low[layout.indicators], high[layout.indicators] = 0.0, 1.0
    return [centred(low, high)[0], centred(low, high, 1.9)[0], RowMap(bound=4.0, center=rng.normal(size=d))]


def step_of(rng, layout, row_map, constant=1, n_outcomes=1, k=None, **options):
    d = layout.n_columns + constant
    whitening = np.tril(rng.normal(size=(d if k is None else k, d))) * 10.0 ** rng.uniform(-2.0, 2.0, (1, d))
    theta = rng.normal(size=(d, n_outcomes))
    return ResidualStep(theta, row_map, RowMap(bound=3.0), whitening, bool(constant), **options)


def sums_of(step, held, tables, level=-1):
    map_y = step.map_y.kernel(step.theta.shape[1])
    return coded_step.CodedSums(tables, map_y, limits_of(held, tables), level=level)


def limits_of(held, tables):
    return tables.clip(held.bound, held.squared_bound, held.exponent)


def of_rows_alone(tables, n_numbers, n_outcomes):
    """Tables without theta."""
    slots = np.zeros((len(tables.of_slots), (n_numbers + 8) // 8 * 8))
    slots[:, :n_numbers] = tables.of_slots[:, :n_numbers]
    slots[:, n_numbers] = tables.of_slots[:, n_numbers + n_outcomes]
    return {"of_slots": slots, "theta": tables.theta[:0]}


def twins(tables, block, y):
    return [
        twin.row(tables, block.numbers[i].tolist(), [codes[i] for codes in block.codes], y[i].tolist())
        for i in range(len(block))
    ]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("clip", [0.05, 40.0])
def test_sums_and_sizes_are_those_of_the_plain_twin_at_every_vector_width(level, layout, clip):
    rng = np.random.default_rng(1)
    block = coded_rows(rng, layout, 0.5)
    shapes, n_kept = ((0, 1, 14, math.inf, 1.0), (1, 2, 3, 30.0, 8.0), (1, 9, 1, math.inf, 1.0)), 0
    for (constant, n_outcomes, k, longest, finer), row_map in zip(shapes, maps_of(rng, layout), strict=True):
        step = step_of(rng, layout, row_map, constant, n_outcomes, k, longest=longest)
        held, y = (
            clip_of(clip, step.shape),
            10.0 ** rng.uniform(-1.0, 1.0, (101, 1)) * rng.normal(size=(101, n_outcomes)),
        )
        y[30:70] = np.clip(y[30:70], -1.0, 1.0)
        tables = coded_tables(step, layout).pairs
        # Numbers that are larger than they should be are left out, without a box too.
        tables = tables._replace(units=finer * tables.units)
        limits = limits_of(held, tables)
        found = twins(tables, block, step.map_y(y))
        n_slots, n_numbers = len(tables.of_slots), len(layout.places)
        by_slot, by_number = np.zeros((n_slots, n_outcomes)), np.zeros((n_numbers, n_outcomes), dtype=object)
        counts, left_out, n_beyond = np.zeros(LAST - FIRST + 2, np.int64), np.ones(101, bool), 0
        for i, one in enumerate(found):
            units = None if one is None else twin.held(tables, limits, one)
            if one is not None:
                counts[min(max(twin.exponent(one[4]) - FIRST + 1, 0), LAST - FIRST + 1)] += 1
            if units is not None:
                left_out[i] = False
                by_slot[one[1]] += units
                by_number += np.outer(np.array(one[0], int).astype(object), np.array(units, int).astype(object))
                n_beyond += one[4] > clip**2
        numbers = ColumnBlock(list(block.numbers.T)) if n_numbers else block.numbers
        sums = sums_of(step, held, tables, level)
        sizes = coded_step.CodedSizes(tables, step.map_y.kernel(n_outcomes), first=FIRST, last=LAST, level=level)
        for start, stop in ((0, 1), (1, 30), (30, 70), (70, 101)):
            out = np.empty(stop - start, np.uint8)
            assert sums.add(numbers, block.codes, y, start, stop, out) == residual_step.ADDED
            np.testing.assert_array_equal(out != 0, left_out[start:stop])
            assert sizes.add(numbers, block.codes, y, start, stop, out) == residual_step.ADDED
            np.testing.assert_array_equal(out != 0, [one is None for one in found[start:stop]])
        norms, out = np.empty(101), np.empty(101, np.uint8)
        alone = tables._replace(**of_rows_alone(tables, n_numbers, n_outcomes))
        assert coded_step.CodedNorms(alone, level=level).of(numbers, block.codes, norms, out) == residual_step.ADDED
        assert norms.tolist() == [0.0 if one is None else math.sqrt(one[3]) for one in found]
        slots, high, low, beyond = sums.take()
        np.testing.assert_array_equal(slots, by_slot)
        np.testing.assert_array_equal(high.astype(object) * 2**64 + low.astype(object), by_number)
        assert beyond == n_beyond
        n_kept += np.count_nonzero(~left_out)
        np.testing.assert_array_equal(sizes.take(), counts)
        assert not sums.take()[0].any()
        assert not sizes.take().any()
    assert n_kept > 50


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("cancels", [False, True], ids=["plain", "cancels"])
def test_no_part_is_beyond_its_limit_in_exact_arithmetic(layout, cancels):
    """Nor is a squared norm of p above what it is taken for, where nearly all of its terms cancel too."""
    rng = np.random.default_rng(2)
    block = coded_rows(rng, layout, 0.5, 60)
    for row_map in maps_of(rng, layout)[::2]:
        step = step_of(rng, layout, row_map, n_outcomes=2)
        if cancels:
            # A row of W is as good as 0 but for one direction in which every row has a 1.
            step.whitening[:] = 1e-9 * step.whitening
            step.whitening[:, layout.indicators] += np.ones(len(layout.indicators))
            step.whitening[:, -1] = -float(len(layout.levels)) + 1e-9
        held, y = clip_of(0.3, step.shape), rng.uniform(-2.0, 2.0, (60, 2))
        tables = coded_tables(step, layout).pairs
        limits, closest = limits_of(held, tables), 0
        for one in twins(tables, block, y):
            if one is None:
                continue
            squared = sum(entry**2 for entry in twin.exact_product(tables, *one[:2]))
            assert abs(Fraction(one[3]) - Fraction(tables.slack) - squared) <= Fraction(tables.slack)
            units = twin.held(tables, limits, one)
            if units is not None:
                part = squared * sum(int(unit) ** 2 for unit in units) * Fraction(4) ** -tables.unit_exponent(0.3)
                bound = Fraction(held.squared_bound) * Fraction(4) ** held.exponent
                assert part <= bound
                closest = max(closest, part / bound)
        assert cancels or closest > 1.0 - 1e-5


def test_rows_beyond_the_limit_are_left_out_whatever_they_are_scaled_onto():
    """Where floating point would scale rows onto twice the clip, none of those passes: the limit has the last word."""
    rng = np.random.default_rng(6)
    step = step_of(rng, MIXED, maps_of(rng, MIXED)[0])
    held, tables = clip_of(0.3, step.shape), coded_tables(step, MIXED).pairs
    unit, onto_clip, limit, clip = limits_of(held, tables)
    block, y, out = coded_rows(rng, MIXED, 0.5, 200), rng.uniform(-3.0, 3.0, (200, 1)), np.empty(200, np.uint8)
    found = twins(tables, block, y)
    # With a slack as large as the norms, rows count as so much longer.
    for wrong, wider in ((2.0, tables), (1.0, tables._replace(slack=1e3))):
        clipped = unit, wrong * onto_clip, limit, clip
        sums = coded_step.CodedSums(wider, step.map_y.kernel(1), clipped)
        assert sums.add(block.numbers, block.codes, y, 0, 200, out) == residual_step.ADDED
        for one, is_left_out in zip(found, out, strict=True):
            if one is not None:
                one = (*one[:3], one[3] - tables.slack + wider.slack, 0.0)
                of_r = sum(residual * residual for residual in one[2])
                expected = twin.held(wider, clipped, (*one[:4], one[3] * of_r))
                assert (expected is None) == bool(is_left_out)
                assert wrong == 1.0 or is_left_out or one[3] * of_r < 1.1 * 0.3**2
    # Short rows whose residuals, free of the clip, are beyond a limit that allows for the slack.
    step.whitening[:] *= 1e-4
    tables = coded_tables(step, MIXED).pairs
    found = twins(tables, block, y)
    unit = limits_of(held, tables)[0]
    free = unit / 1024.0, math.inf, 1e3 * (unit / 1024.0) ** 2, clip
    sums = coded_step.CodedSums(tables._replace(slack=1e3), step.map_y.kernel(1), free)
    assert sums.add(block.numbers, block.codes, y, 0, 200, out) == residual_step.ADDED
    assert all(is_out or abs(one[2][0]) <= 1.0 for one, is_out in zip(found, out, strict=True) if one is not None)
    assert not out.all()


def test_sums_by_slot_are_exact_until_they_are_full_and_then_refuse_rows():
    rng = np.random.default_rng(3)
    step = step_of(rng, CODES_ALONE, RowMap(bound=4.0))
    tables = coded_tables(step, CODES_ALONE).pairs
    sums = sums_of(step, clip_of(0.5, step.shape), tables)
    assert sums.room == 2**28
    block, y, out = coded_rows(rng, CODES_ALONE, 0.5, 300), rng.normal(size=(300, 1)), np.empty(300, np.uint8)
    assert sums.add(block.numbers, block.codes, y, 0, 300, out) == residual_step.ADDED
    assert sums.room == 2**28 - 300
    sums.take()
    assert sums.room == 2**28


def test_sums_of_numbers_pass_64_bits():
    """The largest integers of either kind, of either sign, in every lane of a block."""
    layout = CodeLayout(3, places=(0,), firsts=(1,), levels=(2,))
    step = ResidualStep(np.zeros((3, 1)), RowMap(np.full(3, -1.0), np.full(3, 1.0)), RowMap(bound=1e9), np.eye(3) / 8)
    tables = coded_tables(step, layout).pairs
    sums = coded_step.CodedSums(tables, step.map_y.kernel(1), (1.0, math.inf, math.inf, math.inf))
    n, out = 256 * 1200, np.empty(256 * 1200, np.uint8)
    for sign in (-1.0, 1.0):
        largest = ColumnBlock([np.full(n, 1.0)]), [np.zeros(n, np.int32)], np.full((n, 1), sign * 2.0**25)
        for _ in range(2):
            assert sums.add(*largest, 0, n, out) == residual_step.ADDED
        assert not out.any()
        by_slot, high, low, _ = sums.take()
        unit = int(tables.units[0])
        assert int(high[0, 0]) * 2**64 + int(low[0, 0]) == 2 * n * unit * int(sign) * 2**25
        assert by_slot[:, 0].tolist() == [sign * 2.0**26 * n, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_may_lie_anyhow_in_memory(dtype):
    rng = np.random.default_rng(4)
    step = step_of(rng, MIXED, maps_of(rng, MIXED)[0], n_outcomes=2)
    tables = coded_tables(step, MIXED).pairs
    block, y = coded_rows(rng, MIXED, 0.5, 300), rng.normal(size=(300, 2)).astype(dtype)
    numbers = np.clip(block.numbers, -9.0, 9.0).astype(dtype)
    wide = np.zeros((600, 7), dtype)
    wide[::2, ::2][:, :3] = numbers
    found = []
    for one in (numbers, np.asfortranarray(numbers), wide[::2, ::2][:, :3], ColumnBlock(list(numbers.T), dtype)):
        sums, out = sums_of(step, clip_of(0.5, step.shape), tables), np.empty(300, np.uint8)
        assert sums.add(one, block.codes, np.asfortranarray(y), 0, 300, out) == residual_step.ADDED
        found.append([part.tolist() for part in sums.take()[:3]])
    assert all(one == found[0] for one in found)


def test_rows_that_do_not_fit_or_are_not_finite_are_refused():
    rng = np.random.default_rng(5)
    step = step_of(rng, MIXED, maps_of(rng, MIXED)[0])
    tables = coded_tables(step, MIXED).pairs
    sums, block, y = (
        sums_of(step, clip_of(0.5, step.shape), tables),
        coded_rows(rng, MIXED, 0.5),
        rng.normal(size=(101, 1)),
    )
    out = np.empty(10, np.uint8)
    with pytest.raises(IndexError):
        sums.add(block.numbers, block.codes, y, 95, 105, out)
    with pytest.raises(IndexError):
        sums.add(block.numbers, block.codes, y, 0, 9, out)
    with pytest.raises(IndexError):
        sums.add(block.numbers, [codes[:50] for codes in block.codes], y, 0, 10, out)
    with pytest.raises(ValueError, match="another layout"):
        sums.add(block.numbers[:, :1], block.codes, y, 0, 10, out)
    with pytest.raises(ValueError, match="another number of columns"):
        sums.add(block.numbers, block.codes, np.hstack([y, y]), 0, 10, out)
    with pytest.raises(IndexError):
        sums.add(block.numbers, block.codes, y[:50], 0, 10, out)
    norms = coded_step.CodedNorms(tables._replace(**of_rows_alone(tables, 3, 1)))
    with pytest.raises(IndexError):
        norms.of(block.numbers, block.codes, np.empty(100), np.empty(101, np.uint8))
    for wrong in ({"pairs": np.zeros(3)}, {"theta": np.zeros((2, 3))}, {"low": np.zeros(2)}, {"levels": (4, 5)}):
        with pytest.raises(ValueError, match="other shapes"):
            sums_of(step, clip_of(0.5, step.shape), tables._replace(**wrong))
    for table, status in ((block.numbers, residual_step.X_NOT_FINITE), (y, residual_step.Y_NOT_FINITE)):
        for bad in (np.nan, np.inf, -np.inf):
            before = table[7, 0]
            table[7, 0] = bad
            assert sums.add(block.numbers, block.codes, y, 0, 10, out) == status
            table[7, 0] = before
