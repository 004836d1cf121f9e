"""Kernels at their own entry points: sizes that their callers guarantee, values and layouts that nobody does.

Where it is cheap, results are compared: with those of other vector levels, to the bit, or with exact arithmetic.
"""

import math
import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpfast import _transaction as transaction
from dpfast.kernels import (
    coded_gram,
    draws,
    first_visits,
    gram,
    normal,
    people,
    projections,
    residual_step,
    row_maps,
    sizes,
    sparse_gram,
    support_scores,
)
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock, FixedPoint, SparseBlock, readable
from dpfast.kernels.descent import LossSums, ProximalSteps, QuadraticSteps, add, extrapolate, local_losses
from dpfast.noise.discrete import column_table
from dpfast.statistics.norm_histograms import LogarithmicBins
from dpfast.statistics.residuals import ResidualStep, ThreadSums, clip_of, coded_tables
from dpfast.statistics.rows import Layout, PersonUnit, RowMap, block_limits
from fuzz_targets import Draw, target

LEVELS = (-1, 0, 1, 2)


def same(first, second):
    return np.array_equal(np.asarray(first), np.asarray(second), equal_nan=True)


def rows_of(draw, n, n_columns, bound):
    values = draw.reals(n, n_columns, scale=bound * draw.positive(1e-4, 1e4), finite=False)
    if draw.flag(0.3):
        values = values.astype(np.float32)
    match draw.integer(0, 4):
        case 0:
            return np.asfortranarray(values)
        case 1:
            wide = np.zeros((2 * n, n_columns + 3), values.dtype)
            wide[::2, 1:-2] = values
            return wide[::2, 1:-2]
        case 2:
            return np.ascontiguousarray(values[::-1])[::-1]
        case 3:
            return ColumnBlock(values.T, values.dtype)
    values.flags.writeable = False
    return values


def tables_of(draw):
    d, m = draw.choice((1, 2, 3, 5, 7, 8, 9, 16, 17, 33)), draw.choice((0, 0, 1, 2, 8, 9))
    bound_x, bound_y = draw.positive(1e-60, 1e60), draw.positive(1e-60, 1e60) if m else None
    return d, m, bound_x, bound_y, Layout(d, m, bound_x, bound_y)._tables()


@target("kernels.gram", "kernels.blas", "kernels.columns", "_threads", accepts=(IndexError, OverflowError))
def gram_sums(draw: Draw) -> None:
    d, m, bound_x, bound_y, tables = tables_of(draw)
    n = draw.choice((1, 2, 3, 7, 8, 9, 40, 65, 130))
    x, y = rows_of(draw, n, d, bound_x), rows_of(draw, n, m, bound_y) if m else None
    rows = draw.rng.integers(0, n, draw.integer(1, 80)) if draw.flag(0.3) else None
    n_available = n if rows is None else len(rows)
    start, stop = sorted((draw.integer(0, n_available), draw.integer(0, n_available)))
    if draw.flag(0.2):
        start, stop = draw.choice(((-1, 1), (0, n_available + 1), (n_available, n_available + 2), (1, 0), (-2, -1)))
    options = {"with_sums": draw.flag(), "cross_only": m > 0 and draw.flag(0.2)}
    found = []
    for _ in range(2):
        sums = gram.GramSums(
            *tables,
            block_rows=draw.choice((1, 2, 8, 64, 255)),
            use_blas=draw.flag(),
            level=draw.choice(LEVELS),
            **options,
        )
        status = sums.add(x, y, rows, start, stop)
        assert stop <= start or 0 <= start < stop <= n_available
        if status != gram.PACKED:
            return
        totals = gram.GramTotals(d, m, max(table[3] for table in tables))
        totals.take([sums])
        found.append(totals)
    assert found[0].equals(found[1])
    assert pickle.loads(pickle.dumps(found[0])).equals(found[1])
    doubled = found[0].copy()
    doubled.add(found[1])
    high, low = doubled.symmetric()
    assert same(high, high.T)
    assert same(FixedPoint(high, low, 0).to_float64(), doubled.symmetric_as_float64(1.0))
    doubled.cross(), doubled.columns()


@target("kernels.coded_gram")
def coded_sums(draw: Draw) -> None:
    sizes_of = [draw.integer(1, 9) for _ in range(draw.integer(1, 4))]
    p, m, n = draw.integer(0, 9), draw.choice((0, 0, 1, 8)), draw.choice((1, 2, 8, 65, 130))
    firsts = p + np.cumsum([0, *sizes_of])
    layout = CodeLayout(int(firsts[-1]), tuple(range(p)), tuple(firsts[:-1].tolist()), tuple(sizes_of))
    bound = draw.positive(1e-6, 1e6)
    x = rows_of(draw, n, p, bound) if p else np.empty((n, 0))
    codes = [draw.rng.choice(np.array([*range(-2, most + 3), -(2**31), 2**31 - 1]), n) for most in sizes_of]
    block = CodedBlock(x if isinstance(x, ColumnBlock) else np.asarray(x, np.float64), codes, layout)
    y = np.asarray(draw.reals(n, m, scale=1.0)) if m else None
    tables = Layout(layout.n_columns, m, bound, 1.0 if m else None)._tables()
    options = {"block_rows": draw.choice((1, 8, 64)), "use_blas": draw.flag(), "with_sums": draw.flag()}
    coded, dense = (coded_gram.CodedSums(*tables, **options, level=draw.choice(LEVELS)) for _ in range(2))
    values = np.zeros((2, sum(sizes_of)), np.int64)
    values[1] = min(tables[0][1], 2.0**40)
    beyond = np.zeros(n, np.uint8)
    if not coded.begin(layout, values):
        return
    with np.errstate(over="ignore"):
        status = coded.add_coded(block.numbers, block.codes, y, 0, n, beyond)
    within = np.flatnonzero(beyond == 0)
    rest = np.ascontiguousarray(np.asarray(block, np.float64)[within])
    expected = dense.add(rest, None if y is None else y[within], None, 0, len(within))
    assert status == expected
    if status == gram.PACKED:
        totals = [gram.GramTotals(layout.n_columns, m, max(one[3] for one in tables)) for _ in range(2)]
        for total, part in zip(totals, (coded, dense), strict=True):
            total.take([part])
        assert totals[0].equals(totals[1])


@target("kernels.sparse_gram")
def sparse_sums(draw: Draw) -> None:
    d, m, bound_x, _, tables = tables_of(draw)
    n, most = draw.choice((1, 2, 8, 65, 130)), draw.integer(0, 3 * d)
    lengths = draw.rng.integers(0, most + 1, n)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = draw.rng.integers(0, d, indptr[-1]).astype(draw.choice((np.int32, np.int64)))
    if draw.flag():
        for start, stop in pairwise(indptr.tolist()):
            columns[start:stop] = np.sort(columns[start:stop])
    values = np.asarray(draw.reals(len(columns), 1, scale=bound_x * draw.positive(1e-4, 1e4), finite=False))[:, 0]
    values = values.astype(draw.choice((np.float64, np.float32)))
    y = np.asarray(draw.reals(n, m, scale=1.0)) if m else None
    is_true = draw.flag(0.7)
    if not is_true:
        array = draw.choice((indptr, columns))
        if len(array) > 0:
            limits = np.iinfo(array.dtype)
            array[draw.rng.integers(len(array))] = draw.choice((-1, d, n, limits.min, limits.max))
    rows = SparseBlock(indptr, columns, values, d)
    options = {"with_sums": draw.flag(), "cross_only": m > 0 and draw.flag(0.2)}
    found, dense = (
        gram.GramSums(
            *tables, block_rows=draw.choice((1, 8, 64)), use_blas=draw.flag(), level=draw.choice(LEVELS), **options
        )
        for _ in range(2)
    )
    start, stop = sorted((draw.integer(0, n), draw.integer(0, n)))
    status = sparse_gram.add_sparse(found, rows, y, start, stop)
    if not is_true:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        written_out = np.asarray(rows)
    expected = dense.add(written_out, y, None, start, stop)
    assert (status == gram.PACKED) == (expected == gram.PACKED)
    if status == gram.PACKED:
        totals = [gram.GramTotals(d, m, max(one[3] for one in tables)) for _ in range(2)]
        for total, part in zip(totals, (found, dense), strict=True):
            total.take([part])
        if options["cross_only"]:
            assert all(map(same, totals[0].cross(), totals[1].cross()))
        else:
            assert totals[0].equals(totals[1])


@target("kernels.people", accepts=(OverflowError,))
def person_sums(draw: Draw) -> None:
    d, m, bound_x, bound_y, tables = tables_of(draw)
    lengths = [draw.choice((0, 1, 1, 2, 3, 5, 12, 70)) for _ in range(draw.integer(1, 8))]
    offsets = np.cumsum([0, *lengths])
    n = max(1, int(offsets[-1]))
    share = draw.positive(1e-9, 2.0)
    bound_xy = draw.positive(1e-9, 2.0) * bound_x * bound_y if m and draw.flag() else None
    unit = PersonUnit.checked(max(1, *lengths), share * bound_x**2, bound_xy, bound_x, bound_y)
    limits = block_limits(unit, tables)
    x, y = rows_of(draw, n, d, bound_x), rows_of(draw, n, m, bound_y) if m else None
    rows = draw.rng.permutation(n) if draw.flag(0.3) else None
    found = []
    for _ in range(2):
        sums = people.PersonSums(
            *tables,
            bounds_xx=limits.xx,
            bounds_xy=limits.xy,
            safe_rows=limits.safe_rows,
            block_rows=draw.choice((1, 8, 64, 255)),
            level=draw.choice(LEVELS),
        )
        first = draw.integer(0, len(lengths))
        if any(
            sums.add_people(x, y, rows, offsets, *part) != gram.PACKED for part in ((0, first), (first, len(lengths)))
        ):
            return
        totals = gram.GramTotals(d, m, max(table[3] for table in tables))
        totals.take([sums])
        found.append(totals)
    assert found[0].equals(found[1])


@target("kernels.first_visits")
def visits(draw: Draw) -> None:
    n_states = draw.choice((1, 2, 3, 10, 1000))
    lengths = [draw.choice((1, 1, 2, 3, 9, 30, 9000)) if draw.flag(0.02) else draw.integer(1, 12) for _ in range(12)]
    offsets = np.cumsum([0, *lengths[: draw.integer(1, 12)]])
    n = int(offsets[-1])
    states = draw.rng.integers(0, n_states, n).astype(draw.choice((np.int32, np.int64)))
    rewards = np.clip(draw.reals(n), -1e200, 1e200).astype(draw.choice((np.float64, np.float32)))
    if not np.isfinite(rewards).all():
        rewards = np.zeros_like(rewards)
    horizon = draw.choice((1, 2, 5, 100, 10_000, 2**62))
    longest = int(min(horizon, np.diff(offsets).max()))
    gamma = draw.choice((1.0, 0.5, 0.99, 1e-300))
    grid = {"low": -1.0, "scale": draw.positive(1e-3, 1e6), "largest": float(draw.integer(1, 2**32 - 1))}
    grid["counted"] = draw.integer(1, min(horizon, 200))
    assert first_visits.first_bad_step(states, rewards, n_states, 1e308) == -1
    sums = [first_visits.FirstVisits(n_states, gamma, horizon, longest, **grid) for _ in range(2)]
    if draw.flag(0.2):
        sums[1].use_stamps_up_to(2**31 - draw.integer(2, 20))
    sums[0].add(states, rewards, offsets, 0, len(offsets) - 1)
    cut = draw.integer(0, len(offsets) - 1)
    sums[1].add(states, rewards, offsets, cut, len(offsets) - 1)
    sums[1].add(states, rewards, offsets, 0, cut)
    found = np.zeros((2, 2, n_states), np.int64)
    for kernel, (units, counts) in zip(sums, found, strict=True):
        kernel.add_to(units, counts)
    assert same(*found)
    visited, units, ends = np.empty(n, np.int32), np.empty(n), np.empty(len(offsets) - 1, np.int64)
    lists = visited, units, ends
    sums[0].list_units(states, rewards, offsets, 0, len(offsets) - 1, *lists, draw.flag())
    n_listed = sums[0].list_units(states, rewards, offsets, 0, len(offsets) - 1, *lists)
    assert n_listed == ends[-1] == found[0, 1].sum()
    totals = np.zeros((n_states, 2), np.int64)
    weights = draw.rng.integers(0, 2**16, n_states).astype(np.float64)
    bounds = [draw.choice((math.inf, draw.positive(1e-3, 1e6))) for _ in range(2)]
    first_visits.add_diagonal(visited[:n_listed], units[:n_listed], ends, len(ends), weights, 2.0**-20, *bounds, totals)


@target("kernels.first_visits")
def bad_steps(draw: Draw) -> None:
    n, n_states = draw.integer(0, 40), draw.choice((1, 5, 2**31 - 1))
    states = draw.rng.integers(0, min(n_states, 100), n)
    rewards = draw.reals(n, finite=False)
    if n and draw.flag():
        states[draw.integer(0, n - 1)] = draw.choice((-1, n_states, 2**31, 2**62, -(2**63), 2**63 - 1))
    expected = [i for i in range(n) if not (0 <= states[i] < n_states and abs(rewards[i]) <= 1e200)]
    assert first_visits.first_bad_step(states, rewards, n_states, 1e200) == (expected or [-1])[0]


@target("kernels.projections")
def quadratics(draw: Draw) -> None:
    n, p = draw.integer(1, 6), draw.choice((1, 2, 3, 8, 33))
    shapes = [(draw.choice((1, n)), p) for _ in range(2)]
    eigenvalues, coefficients = (np.clip(draw.reals(*shape), -1e100, 1e100) for shape in shapes)
    if draw.flag(0.3):
        coefficients[:, draw.integer(0, p - 1)] = 0.0
    radii = np.array([draw.positive(1e-100, 1e100) for _ in range(draw.choice((1, n)))])
    start, stop = sorted((draw.integer(0, n), draw.integer(0, n)))
    evaluations = np.zeros(n, np.intc) if draw.flag() else None
    projections.solve_quadratics(
        eigenvalues, coefficients, radii, draw.flag(), start, stop, np.zeros((n, p)), np.zeros(n), evaluations,
        draw.choice(LEVELS),
    )  # fmt: skip


@target("kernels.draws", accepts=(IndexError,))
def gaussian_cells(draw: Draw) -> None:
    n = draw.choice((0, 1, 2, 7, 8, 9, 15, 64, 300))
    words = draw.rng.integers(0, 2**64, n, dtype=np.uint64, endpoint=False)
    if draw.flag(0.3):
        words[draw.rng.random(n) < 0.5] = draw.choice((0, 1, 2**63, 2**63 - 1, 2**64 - 1, 2**53))
    fractions = draw.rng.uniform(-0.5, 0.5, n) if draw.flag() else None
    steps, margin = draw.positive(1e-3, 2.0**40), draw.choice((0.0, 2.0**-20, 0.4, 1.0))
    found = []
    for level in (0, draw.choice(LEVELS)):
        offsets, ambiguous = (
            np.zeros(max(0, n + draw.choice((-1, 0, 0, 0, 3))), kind) for kind in (np.float64, np.intp)
        )
        count = draws.gaussian_offsets(words, fractions, steps, margin, offsets, ambiguous, level)
        assert n <= min(len(offsets), len(ambiguous))
        assert 0 <= count <= n
        found.append((offsets, ambiguous[:count]))
    assert same(found[0][0][:n], found[1][0][:n])
    assert same(found[0][1], found[1][1])
    values, grid = draw.reals(n, finite=False), math.ldexp(1.0, draw.integer(-1022, 1000))
    nearest, rest = np.empty(n), np.empty(n)
    draws.split_cells(values, grid, nearest, rest)
    draws.join_cells(draw.choice((None, nearest)), rest, grid, np.empty(n))
    limbs = draw.rng.integers(0, 2**64, (2, n), dtype=np.uint64, endpoint=False)
    how = draw.integer(-70, 70), steps, margin, draw.integer(-900, 900)
    released = [np.empty(n), np.empty(n)]
    done = [
        draws.draw_about(limbs[0].view(np.int64), limbs[1], words, *how, each, level)
        for each, level in zip(released, (0, draw.choice(LEVELS)), strict=True)
    ]
    assert done[0] == done[1]
    assert not done[0] or same(*released)


@target("kernels.draws", accepts=(IndexError,))
def discrete_draws(draw: Draw) -> None:
    scale = draw.choice((1.0, 0.01, 63.9, 64.0, 1e6, 2.0**57, draw.positive(1e-3, 2.0**57)))
    table = column_table(scale)
    n = draw.choice((0, 1, 2, 3, 4, 50))
    words = draw.rng.integers(0, 2**64, n, dtype=np.uint64, endpoint=False)
    if draw.flag(0.3):
        words[draw.rng.random(n) < 0.5] = draw.choice((0, 2**63, 2**63 - 1, 2**64 - 1, int(table.thresholds[0])))
    out = np.zeros(draw.choice((0, 1, 5, 60)), np.int64)
    begin = draw.integer(-1, n + 1)
    made, _, _ = draws.discrete_gaussian(
        table.thresholds, table.sure, table.guide, 12, table.shift, scale, draw.choice((2.0**-46, 1e-3, 1.0)), words,
        begin, out,
    )  # fmt: skip
    assert 0 <= made <= len(out)
    assert made == 0 or 0 <= begin <= n


@target("kernels.normal")
def normal_curves(draw: Draw) -> None:
    scale, sensitivity = (draw.positive(1e-300, 1e300) for _ in range(2))
    if draw.flag(0.7):
        sensitivity = scale * draw.positive(1e-6, 1e3)
    epsilon = draw.choice((0.0, draw.positive(1e-300, 1e300), draw.positive(1e-3, 1e3)))
    target_log = -draw.choice((draw.positive(1e-17, 745.0), draw.positive(1e-3, 700.0)))
    delta = normal.gaussian_delta(scale, epsilon, sensitivity)
    assert 0.0 <= delta <= 1.0
    assert normal.solve_mu(epsilon, target_log) >= 0.0
    assert normal.solve_epsilon(scale, sensitivity, target_log) >= 0.0


@target("kernels.descent")
def proximal_steps(draw: Draw) -> None:
    n, k = draw.choice((1, 2, 3, 7, 8, 9, 33)), draw.choice((0, 0, 1, 5, 9))
    name = draw.choice(("whole_space", "box", "l2_ball", "l1_ball"))
    arguments = {
        "weight": draw.choice((0.0, draw.positive(1e-9, 1e9))),
        "step": draw.positive(1e-12, 1e6),
        "set_name": name,
        "radius": draw.positive(1e-100, 1e100),
        "bounds": (np.full(n, -0.3), np.full(n, 0.4)) if name == "box" else None,
    }
    matrix = np.clip(draw.reals(n, k or n), -1e90, 1e90)
    matrix = matrix if k else (matrix + matrix.T) / 2
    transposed = np.ascontiguousarray(matrix.T) if k else None
    linear, diagonal = np.clip(draw.reals(n), -1e90, 1e90), (draw.positive(1e-9, 1e9), 0.0)
    point, gradient = np.clip(draw.reals(2, n), -1e90, 1e90), draw.reals(2, n)
    found = []
    for level in (0, draw.choice(LEVELS)):
        out, ahead, x = np.zeros((2, n)), np.zeros((2, n)), point.copy()
        ProximalSteps(n, level=level, **arguments).step_along(x, gradient, out)
        steps = QuadraticSteps(matrix, transposed, linear, diagonal=diagonal, level=level, **arguments)
        steps.gradient(x, out)
        steps.step(x, out)
        extrapolate(0.5, x, out.copy(), ahead)
        add(point, gradient, np.empty((2, n)))
        steps.accelerate(0.5, draw.integer(0, 3) if level else 2, x, ahead)
        found.append(out)
    assert same(*found)


@target("kernels.descent", "kernels.blas")
def loss_sums(draw: Draw) -> None:
    n, p = draw.choice((1, 2, 9, 70)), draw.choice((1, 2, 7, 8, 9, 40))
    rows, outcomes = draw.reals(n, p), draw.rng.choice([-1.0, 1.0], n)
    kind = draw.choice(
        ("squared", "logistic", "capped_logistic", "smoothed_hinge", "smoothed_huber", "smoothed_quantile", "poisson")
    )
    widths = {
        "width": draw.positive(1e-9, 1e9),
        "threshold": draw.positive(1e-9, 1e9),
        "start": float(draw.reals(1)[0]),
    }
    theta = draw.reals(2, p)
    local_losses(draw.reals(n), outcomes, np.empty((3, n)), kind=kind, **widths)
    start, stop = sorted((draw.integer(0, n), draw.integer(0, n)))
    for level in (0, draw.choice(LEVELS)):
        sums = LossSums(rows, outcomes, kind=kind, level=level, **widths)
        sums.model(theta[0], start, stop, np.empty(p), np.empty((p, p)))
        sums.precise_gradient(theta, start, stop, np.empty((2, p)))


@target("kernels.support_scores")
def scores_of_supports(draw: Draw) -> None:
    p = draw.integer(1, 8)
    size = draw.integer(1, p)
    half = draw.reals(p, p)
    xx = half @ half.T if draw.flag() else half + half.T
    first = np.sort(draw.rng.permutation(p)[:size])
    support_scores.score_supports(
        np.nan_to_num(np.ascontiguousarray(xx)), draw.reals(p), draw.positive(1e-12, 1e6), draw.positive(1e-12, 1e6),
        first, np.empty(draw.choice((0, 1, 5, 90))),
    )  # fmt: skip


@target("kernels.people")
def owners_of_rows(draw: Draw) -> None:
    n, most = draw.integer(1, 3000), draw.integer(1, 9)
    words = draw.rng.integers(0, draw.choice((1, 7, 1000, 1 << 62)), n) - draw.choice((0, 5, 1 << 61))
    low, numbers = int(words.min()), np.empty(n, np.int64)
    span = int(words.max()) - low + 1
    counts, adjacent = people.number_of_each(words, low, span if span < 2 * n else 0, numbers)
    _, first, place = np.unique(words, return_index=True, return_inverse=True)
    ranks = np.argsort(np.argsort(first))[place]
    assert same(numbers, ranks)
    assert same(counts, np.bincount(ranks))
    assert adjacent == bool((np.diff(ranks) >= 0).all())
    in_turn = people.counts_of_sorted(words)
    assert (in_turn is None) == bool((np.diff(words) < 0).any())
    assert in_turn is None or same(in_turn, counts)
    assert same(people.counts_of_sorted(np.sort(words)), counts[np.argsort(words[np.sort(first)])])
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, most))])
    order, chosen = np.empty(offsets[-1], np.int64), np.empty(n, np.uint8)
    people.rows_of_each(numbers, offsets, order)
    people.first_of_each(numbers, len(counts), most, chosen)
    one_by_one = np.argsort(ranks, kind="stable")
    assert same(order, one_by_one[chosen[one_by_one] == 1])


@target("kernels.draws")
def bitmaps(draw: Draw) -> None:
    n_total = draw.choice((1, 2, 63, 64, 65, 127, 128, 1000))
    bitmap = np.zeros(-(-n_total // 64), np.uint64)
    largest, n_wanted, n_set = (1 << 64) // n_total * n_total - 1, draw.integer(0, n_total), 0
    for _ in range(3):
        words = draw.rng.integers(0, 2**64, draw.choice((0, 1, 23, 24, 25, 80)), dtype=np.uint64, endpoint=False)
        if len(words) and draw.flag(0.3):
            words[draw.integer(0, len(words) - 1)] = draw.choice((0, 2**64 - 1))
        n_set += draws.insert(words, n_total, largest, bitmap, n_wanted - n_set)
    indices = np.empty(n_set, np.int64)
    draws.selected(bitmap, n_total, False, indices)
    others = np.empty(n_total - n_set, np.int64)
    draws.selected(bitmap, n_total, True, others)
    assert same(np.sort(np.concatenate([indices, others])), np.arange(n_total))


@target("kernels.projections")
def projected_rows(draw: Draw) -> None:
    n, p = draw.integer(1, 4), draw.choice((1, 2, 3, 17, 200))
    points, radius = np.clip(draw.reals(n, p), -1e300, 1e300), draw.positive(1e-300, 1e300)
    start, stop = sorted((draw.integer(0, n), draw.integer(0, n)))
    out = np.zeros((n, p))
    projections.project(points, radius, start, stop, np.empty(p), out)
    assert np.all(np.abs(out) <= radius * (1.0 + 1e-12))


@target("kernels.row_maps")
def mapped_rows(draw: Draw) -> None:
    n, d = draw.choice((1, 2, 9, 63, 65, 130)), draw.choice((1, 2, 3, 7, 8, 9, 16, 17, 40, 600))
    bound = draw.choice((math.inf, draw.positive(1e-300, 1e300), 2.0**-1022))
    table = rows_of(draw, n, d, min(bound, 1e300))
    options = {"bound": bound, "top": draw.choice((None, draw.integer(1, d))), "fills": draw.flag()}
    if draw.flag():
        low, high = np.sort(draw.reals(2, d), axis=0)
        options |= {
            "low": low if draw.flag() else low[:1],
            "high": np.maximum(high, low[0]),
            "offset": float(draw.reals(1)[0]),
            "unit": draw.positive(),
        }
    if draw.flag(0.3):
        options["center"] = draw.reals(d)
    if draw.flag(0.3):
        options["basis"] = draw.reals(d, draw.choice((1, 3, 9)))
    start, stop = sorted((draw.integer(0, n), draw.integer(0, n)))
    kernel = row_maps.RowMapKernel(d, level=draw.choice(LEVELS), **options)
    wide = np.zeros((n, kernel.n_features + 5))
    out = wide[:, 2 : 2 + kernel.n_features]
    kernel.map_rows(table, out, start, stop)
    alone, reference = np.zeros((1, kernel.n_features)), row_maps.RowMapKernel(d, level=0, **options)
    for i in range(start, stop):
        reference.map_rows(np.asarray(table)[i : i + 1].copy(), alone, 0, 1)
        assert same(out[i], alone[0])
    assert not wide[:, :2].any()
    assert not wide[:, 2 + kernel.n_features :].any()
    if bound < math.inf and not {"center", "basis"} & options.keys():
        largest = -np.sort(-np.abs(np.nan_to_num(out[start:stop])), axis=1)[:, : options["top"]]
        assert all(math.hypot(*row) <= bound * (1.0 + 2.0**-29) for row in largest.tolist())


@target("kernels.row_maps")
def mapped_sums(draw: Draw) -> None:
    d, m, bound_x, bound_y, tables = tables_of(draw)
    n, level = draw.choice((1, 2, 9, 65, 130)), draw.choice(LEVELS)
    pairs = [(rows_of(draw, n, d, bound_x), d, bound_x)]
    if m:
        assert bound_y is not None
        pairs.append((rows_of(draw, n, m, bound_y), m, bound_y))
    maps = [
        row_maps.RowMapKernel(
            width,
            level=level,
            bound=draw.choice((math.inf, bound * draw.positive(1e-3, 1e3))),
            fills=draw.flag(),
            center=draw.choice((None, bound * draw.reals(width, scale=1.0))),
        )
        for _, width, bound in pairs
    ]
    rows = draw.rng.integers(0, n, draw.integer(1, 80)) if draw.flag(0.3) else None
    start, stop = sorted(draw.integer(0, n if rows is None else len(rows)) for _ in range(2))
    options = {"with_sums": draw.flag(), "use_blas": draw.flag(), "level": level}
    found, expected = (gram.GramSums(*tables, block_rows=draw.choice((1, 8, 64)), **options) for _ in range(2))
    (x, y), (of_x, of_y) = ([*one, None][:2] for one in ([table for table, *_ in pairs], maps))
    status = row_maps.add_mapped(found, of_x, of_y, x, y, rows, start, stop)
    images = []
    for (table, _, _), kernel in zip(pairs, maps, strict=True):
        chosen = np.asarray(table)[start:stop] if rows is None else np.asarray(table)[rows[start:stop]]
        image = np.empty((stop - start, kernel.n_features))
        kernel.map_rows(readable(chosen.copy()), image, 0, stop - start)
        images.append(image)
    assert status == expected.add(images[0], images[1] if m else None, None, 0, stop - start)
    if status == gram.PACKED:
        totals = [gram.GramTotals(d, m, max(one[3] for one in tables)) for _ in range(2)]
        for total, part in zip(totals, (found, expected), strict=True):
            total.take([part])
        assert totals[0].equals(totals[1])


@target("kernels.residual_step", "kernels.coded_step", "statistics.residuals")
def residuals_of_codes(draw: Draw) -> None:
    sizes_of = [draw.integer(1, 9) for _ in range(draw.integer(1, 4))]
    p, m, n, k = draw.integer(0, 9), draw.choice((1, 1, 3, 9)), draw.choice((1, 2, 8, 65, 130)), draw.integer(1, 20)
    firsts = p + np.cumsum([0, *sizes_of])
    layout = CodeLayout(int(firsts[-1]), tuple(range(p)), tuple(firsts[:-1].tolist()), tuple(sizes_of))
    d = layout.n_columns
    theta, whitening = draw.rng.normal(size=(d, m)), draw.rng.normal(size=(k, d))
    step = ResidualStep(theta, RowMap(bound=draw.positive(1e-20, 1e20)), RowMap(bound=2.0), whitening)
    x, y = np.asarray(draw.reals(n, p)), np.asarray(draw.reals(n, m))
    codes = [draw.rng.choice(np.array([*range(-2, most + 3), -(2**31), 2**31 - 1]), n) for most in sizes_of]
    block = CodedBlock(x, codes, layout)
    held, found = clip_of(draw.positive(1e-3, 1e3), step.shape), []
    for _ in range(2):
        thread = ThreadSums(step, held, level=draw.choice(LEVELS))
        thread.begin_coded(coded_tables(step, layout))
        cut = draw.integer(0, n)
        for start, stop in ((0, cut), (cut, n)):
            left_out = np.ones(stop - start, np.uint8)
            if thread.coded is not None:
                status = thread.coded.add(block.numbers, block.codes, y, start, stop, left_out)
                assert status == residual_step.ADDED
            rows = block[start + np.flatnonzero(left_out)]
            of_rows = rows.numbers, rows.codes, y[start + np.flatnonzero(left_out)]
            assert thread.kernel.add_coded(*of_rows, 0, len(rows)) == residual_step.ADDED
        found.append(thread.taken())
    assert found[0] == found[1]


@target("kernels.residual_step", accepts=(OverflowError, IndexError))
def residuals_of_people(draw: Draw) -> None:
    d, m, constant = draw.choice((1, 2, 3, 8, 9, 17, 90)), draw.choice((1, 1, 2, 3, 8, 9)), draw.flag()
    lengths = [draw.choice((0, 1, 1, 2, 3, 9, 64, 65, 150)) for _ in range(draw.integer(1, 6))]
    offsets = np.cumsum([0, *lengths])
    n = max(1, int(offsets[-1]))
    bounds = [draw.positive(1e-60, 1e60) for _ in range(2)]
    x, y = rows_of(draw, n, d, bounds[0]), rows_of(draw, n, m, bounds[1])
    rows = draw.rng.permutation(n) if draw.flag(0.3) else None
    link, held_to = draw.choice(sorted(residual_step.LINKS)), draw.choice((math.inf, draw.positive(1e-60, 1e60)))
    # Slopes are as long as outcomes whatever theta is.
    longest = draw.choice((1e10, 1e200)) if link in ("logistic", "softmax") else 1e10
    smoothing = draw.positive(1e-60, 1e60), draw.positive(1e-60, 1e60)
    theta = np.clip(draw.reals(m, d + constant), -longest, longest)
    whitening = np.clip(draw.reals(draw.choice((1, 4, 5, d)), d + constant), -1e10, 1e10) if draw.flag() else None
    whitening = np.tril(whitening) if whitening is not None and draw.flag() else whitening
    limits = {
        "units": (2.0**21, draw.choice((2.0**21, 2.0**-40, 2.0**60))),
        "row_limits": (2.0 ** draw.integer(10, 48), 1 << draw.integer(20, 96)),
        "person_limits": (2.0 ** draw.integer(10, 48), 1 << draw.integer(20, 96)),
        "squares_limits": (draw.positive(1e-9, 1e9), 2.0**22, 1 << 45) if draw.flag() else None,
    }
    found = []
    for _ in range(2):
        level, cut = draw.choice(LEVELS), draw.integer(0, len(lengths))
        maps = (row_maps.RowMapKernel(k, bound=b, level=level) for k, b in zip((d, m), bounds, strict=True))
        arguments = (*maps, theta, whitening, constant, link, held_to, smoothing)
        kernels = (
            residual_step.ResidualSums(*arguments, **limits, level=level),
            residual_step.ResidualSizes(*arguments, first=-20, last=30, level=level),
        )
        for kernel in kernels:
            for first, last in ((0, cut), (cut, len(lengths))):
                if kernel.add_people(x, y, rows, offsets, first, last) != residual_step.ADDED:
                    return
        if kernels[1].add(x, y, rows, 0, n) != residual_step.ADDED:
            return
        products, squares, n_beyond = kernels[0].take()
        found.append((products, np.zeros(0) if squares is None else squares, kernels[1].take(), np.array(n_beyond)))
        if len(lengths) == 1:
            assert sum(int(entry) ** 2 for entry in products.flat) <= limits["person_limits"][1]
    assert all(map(same, *found))
    assert found[0][2].sum() == n + np.count_nonzero(lengths)


@target("kernels.sizes", accepts=(IndexError,))
def codes_of_sizes(draw: Draw) -> None:
    n, d = draw.choice((1, 2, 9, 63, 65, 130)), draw.choice((1, 2, 3, 8, 9, 17, 600))
    table, norms = rows_of(draw, n, d, draw.positive(1e-300, 1e300)), draw.flag()
    first = draw.integer(-800, 799)
    bins = LogarithmicBins(first, draw.integer(first + 1, 800))
    start, stop = sorted((draw.integer(-1, n), draw.integer(0, n + 1)))
    codes = np.full((n + 2, 1 if norms else d), -7, np.int16)
    finite = sizes.codes_of(table, bins, norms, codes[1 : 1 + stop - start], start, stop)
    assert same(codes[0], np.full(codes.shape[1], -7))
    assert same(codes[1 + stop - start :], np.full((n + 1 - stop + start, codes.shape[1]), -7))
    assert finite == np.isfinite(np.asarray(table)[start:stop]).all()
    if not finite:
        return
    alone = codes[:1].copy()
    for i in range(start, stop):
        sizes.codes_of(np.asarray(table)[i : i + 1].copy(), bins, norms, alone, 0, 1)
        assert same(codes[1 + i - start], alone[0])
    counts = np.zeros((codes.shape[1], bins.n_bins), np.int64)
    sizes.count(codes[1:], stop - start, bins.largest_code, counts)
    assert same(counts.sum(axis=1), np.full(len(counts), stop - start))
    owners = draw.rng.integers(-1, 3, n)
    extremes = np.zeros((2, codes.shape[1]), np.int16), np.zeros((2, codes.shape[1]), np.int16)
    sizes.keep_extremes(codes[1:], owners, start, stop, *extremes)
    assert (extremes[0] >= extremes[1]).all()


@target("kernels.first_visits")
def squares_of_counts(draw: Draw) -> None:
    n = draw.choice((0, 1, 7, 8, 9, 511, 512, 513, 1030))
    weights = np.where(draw.rng.random(n) < 0.5, draw.positive(1e-100, 1e100), 0.0)
    counts = draw.rng.integers(0, draw.choice((2, 100, 2**53)), n).astype(np.float64)
    k = float(draw.choice((0, 1, 50, 2**52)))
    found = first_visits.sum_inverse_squares(weights, counts, k)
    with np.errstate(under="ignore"):
        assert math.isclose(found, np.sum(weights / np.maximum(counts - k, 1.0) ** 2), rel_tol=1e-12)


@target("kernels.limbs", accepts=(OverflowError,))
def limbs_to_doubles(draw: Draw) -> None:
    values = [
        draw.choice((-1, 1)) * ((draw.integer(0, 2**62) << draw.integer(0, 64)) + draw.integer(-2, 2)) for _ in range(5)
    ]
    values += [draw.choice((0, -(1 << 127), (1 << 127) - 1, 1 << 64, (1 << 53) + 1, -(1 << 64) + 1))]
    exponent = draw.integer(-200, 200)
    fixed = FixedPoint.from_integers(values, exponent)
    assert [fixed.integer(i) for i in range(6)] == values
    unit = Fraction(2) ** exponent
    assert fixed.to_float64().tolist() == [float(value * unit) for value in values]
    total = fixed + FixedPoint.from_integers(values[::-1], exponent)
    assert [total.integer(i) for i in range(6)] == [a + b for a, b in zip(values, values[::-1], strict=True)]


class Account:
    """Adds up numbers, each a transaction; calls itself now and then, and fails."""

    def __init__(self):
        self._additions = transaction.PendingAdditions()
        self.total = 0

    @transaction.atomic
    def add(self, draw, amount, depth=0):
        self._additions.parts = [amount]
        if draw.flag(0.3):
            raise draw.choice((ValueError, KeyboardInterrupt))
        if draw.flag(0.3):
            self.add(draw, amount, depth + 1)
        self._additions.change = self._change, amount

    def _change(self, amount):
        self.total += amount


@target("_transaction", "_threads")
def transactions(draw: Draw) -> None:
    account, added = Account(), 0
    for amount in range(1, 6):
        try:
            account.add(draw, amount)
            added += amount
        except (ValueError, KeyboardInterrupt, RuntimeError):
            assert account._additions.parts == []
        assert account.total == added
    turn, failing = transaction.ForkSafeLock(), draw.integer(0, 4)

    class Steps(transaction.AtomicContext):
        def _open(self):
            assert failing != 1

        def _keep(self):
            assert failing != 2

        def _close(self):
            assert failing != 3

    for _ in range(2):
        try:
            with Steps(draw.choice((None, turn))):
                assert failing != 4
        except AssertionError:
            continue
    with transaction.AtomicContext(turn):
        pass
    n_rows, step = draw.integer(-3, 2**40), draw.integer(2**38, 2**62)
    ranges = transaction.RowRanges(n_rows, step)
    found = [next(ranges)] if n_rows > 0 and draw.flag() else []
    if draw.flag(0.2):
        ranges.stop()
    else:
        found += ranges
        assert sum(stop - start for start, stop in found) == max(0, n_rows)
    assert next(ranges, None) is None


@target("kernels.columns", accepts=(ValueError,))
def column_blocks(draw: Draw) -> None:
    n = draw.integer(0, 9)
    columns = [draw.laid_out(draw.reals(n)) for _ in range(draw.integer(1, 5))]
    if draw.flag(0.1):
        columns[0] = draw.choice((np.zeros(n + 1), np.zeros((n, 2)), np.zeros(0)))
    block = ColumnBlock(columns, draw.choice((np.float64, np.float32)))
    part = block[draw.integer(-3, 12) : draw.integer(-3, 12)]
    assert np.asarray(part).shape == part.shape
