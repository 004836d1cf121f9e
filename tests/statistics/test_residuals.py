"""Residual sums: exact, bounded for every person, and the same for any layout, block, order and thread."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from neighbours import climb, row_in_ball
from reference.rows import TABLES
from scipy import special

from dpfast import io
from dpfast.io.people import people
from dpfast.kernels.columns import CodedBlock, CodeLayout
from dpfast.solvers import PoissonLoss, SmoothedHuber, SmoothedQuantile
from dpfast.statistics.residuals import (
    ResidualStep,
    clip_of,
    coded_tables,
    residual_bound,
    residual_sizes,
    residual_sums,
    squares_bound,
)
from dpfast.statistics.rows import RowMap, centred

D, OUTCOMES, WIDE = 5, 2, 50
LOW, HIGH = -np.ones(D), np.arange(1.0, D + 1.0)


def step_of(rng, *, whitened=True, constant=True, scale=1.0, **options):
    columns = D + constant
    whitening = np.tril(rng.normal(size=(columns, columns))) if whitened else None
    theta = scale * rng.normal(size=(columns, OUTCOMES))
    return ResidualStep(theta, centred(LOW, HIGH, 6.0)[0], RowMap(bound=3.0), whitening, constant, **options)


def table_of(rng, n_rows=300):
    return 2.0 * rng.normal(size=(n_rows, D)), 2.0 * rng.normal(size=(n_rows, OUTCOMES))


def parts(step, x, y):
    """Each row's p r' in floating point, before any clip."""
    columns, outcomes = step.map_x(x), step.map_y(y)
    if step.constant:
        columns = np.hstack([columns, np.ones((len(x), 1))])
    p = columns if step.whitening is None else columns @ step.whitening.T
    weights = np.minimum(1.0, step.longest / np.linalg.norm(p, axis=1)) ** 2
    whole = (weights[:, None] * p)[:, :, None] * residuals(step, outcomes, columns @ step.theta)[:, None, :]
    return whole - clipped(whole, step.beyond) if step.beyond > 0.0 else whole


def residuals(step, outcomes, z):
    """What is left of each row's outcomes, by the functions of SciPy."""
    r = outcomes - z
    if step.link == "logistic":
        r = outcomes * special.expit(-np.sign(outcomes) * z)
    elif step.link == "softmax":
        r = outcomes - outcomes.sum(axis=1, keepdims=True) * special.softmax(z, axis=1)
    elif step.link == "huber":
        r = -SmoothedHuber(*step.smoothing).derivative(z, outcomes)
    elif step.link == "quantile":
        r = -SmoothedQuantile(*step.smoothing).derivative(z, outcomes)
    elif step.link == "poisson":
        r = -PoissonLoss(step.smoothing[0]).derivative(z, outcomes)
    return r


def outcomes_of(rng, link, n_rows):
    """Weights of classes as sizes, some of them 0, beside outcomes that are none."""
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=(n_rows, 1))
    if link == "softmax":
        return weights * np.eye(OUTCOMES)[rng.integers(0, OUTCOMES, n_rows)]
    return weights * rng.choice([-1.0, 1.0], size=(n_rows, OUTCOMES))


def clipped(blocks, clip):
    lengths = np.linalg.norm(blocks.reshape(len(blocks), -1), axis=1)
    return blocks * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None, None]


def squared_norm(total):
    """Exactly, of a fixed-point matrix."""
    exact = sum(total.integer(index) ** 2 for index in np.ndindex(total.shape))
    return exact * Fraction(4) ** total.exponent


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("clip", [0.3, 7.0, 1e4])
@pytest.mark.parametrize("options", [{}, {"longest": 2.0}, {"beyond": 5.0}])
def test_the_sums_are_those_of_clipped_rows_times_residuals(whitened, constant, clip, options):
    rng = np.random.default_rng(0)
    step = step_of(rng, whitened=whitened, constant=constant, **options)
    x, y = table_of(rng)
    sums = residual_sums(io.open_table(x, y), step, clip, bound_squares=4.0)
    expected = clipped(parts(step, x, y), clip)
    assert sums.products.to_float64() == pytest.approx(expected.sum(axis=0), abs=len(x) * clip * 2e-6)
    assert sums.products.shape == step.shape
    sizes = np.linalg.norm(parts(step, x, y).reshape(len(x), -1), axis=1)
    assert sums.n_beyond == np.count_nonzero(sizes > clip)
    edges = [0.0, *(2.0 ** (j / 2.0) for j in range(-4, 10)), math.inf]
    counts = residual_sizes(io.open_table(x, y), step, (-4, 9))
    np.testing.assert_array_equal(counts, np.histogram(sizes, edges)[0])


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("max_rows", [None, 3])
def test_what_is_kept_sums_for_the_next_step_as_if_it_were_new(whitened, max_rows):
    rng, kept = np.random.default_rng(19), []
    step, (x, y) = step_of(rng, whitened=whitened), table_of(rng)
    whose = None if max_rows is None else io.people(rng.integers(0, 150, len(x)), max_rows)
    table, people = io.open_table(x, y), {"whose": whose, "max_rows": max_rows}
    seen = []
    for clip in (3.0, 0.2, 0.2, 50.0):
        step = step.at(rng.normal(size=step.theta.shape), 0.1 * clip)
        assert residual_sums(table, step, clip, kept=kept, **people) == residual_sums(table, step, clip, **people)
        seen.append(kept[0])
    assert seen[0] is seen[1] is seen[2]
    for rows in (x[:60], x):
        part = io.open_table(rows, y[: len(rows)])
        assert residual_sums(part, step, 2.0, kept=kept) == residual_sums(part, step, 2.0)
    owners = {"whose": io.people(np.zeros(len(x), int), 2), "max_rows": 2}
    assert residual_sums(part, step, 2.0, kept=kept, **owners) == residual_sums(part, step, 2.0, **owners)
    other = step_of(rng, whitened=not whitened)
    assert residual_sums(table, other, 1.0, kept=kept, **people) == residual_sums(table, other, 1.0, **people)
    assert kept[0] is not seen[0]


def wide_step(rng, link="identity", longest=math.inf, columns=WIDE):
    whitening = np.tril(rng.normal(size=(columns, columns)))
    smoothing = {"huber": (1.0, 0.5), "quantile": (0.3, 0.5), "poisson": (2.0, 0.1)}.get(link, (1.0, 1.0))
    row_map = centred(-np.ones(columns), np.ones(columns), 3.0)[0]
    theta = rng.normal(size=(columns, OUTCOMES)) / 4.0
    return ResidualStep(theta, row_map, RowMap(bound=3.0), whitening, link=link, longest=longest, smoothing=smoothing)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_products_that_are_kept_of_wide_rows_give_the_same_bits(n_threads, dtype):
    rng = np.random.default_rng(31)
    for link, longest, n_rows in (
        ("identity", math.inf, 3_001),
        ("identity", 6.0, 700),
        ("huber", 6.0, 65),
        ("logistic", 9.0, 64),
        ("softmax", 5.0, 63),
        ("quantile", math.inf, 1),
        ("poisson", 6.0, 2_000),
    ):
        first, kept = wide_step(rng, link, longest), []
        x = rng.normal(size=(n_rows, WIDE)).astype(dtype)
        x[::5] = 0.0
        table = io.open_table(
            x, np.abs(outcomes_of(rng, link, n_rows)) if link == "poisson" else outcomes_of(rng, link, n_rows)
        )
        for turn, clip in enumerate((2.0, 0.5, 30.0, 2.0)):
            step = first.at(first.theta * (1.0 + turn), 0.0 if turn < 3 else 0.25)
            found = residual_sums(table, step, clip, kept=kept, n_threads=n_threads)
            assert found == residual_sums(table, step, clip, n_threads=n_threads), (link, turn)
        (part,) = kept
        assert part._products.table is table
        assert part._products.n_rows.sum() == n_rows
        # Another table, and rows of several a person, know nothing of these.
        other = io.open_table(rng.normal(size=(n_rows, WIDE)), table.arrays[1])
        again = residual_sums(other, step, 1.0, kept=kept, n_threads=n_threads)
        assert again == residual_sums(other, step, 1.0, n_threads=n_threads)


@pytest.mark.parametrize("layout", ["strided", "big-endian", "blocks"])
def test_products_of_one_table_are_not_taken_for_those_of_another(layout):
    rng = np.random.default_rng(34)
    step, kept = wide_step(rng), []
    y = rng.normal(size=(1_000, OUTCOMES))
    for _ in range(3):
        residual_sums(io.open_table(rng.normal(size=(1_000, WIDE)), y), step, 1.0, kept=kept, n_threads=1)
    first = io.open_table(rng.normal(size=(1_000, WIDE)), y)
    for _ in range(3):
        residual_sums(first, step, 1.0, kept=kept, n_threads=1)
    x = rng.normal(size=(1_000, 2 * WIDE))[:, ::2]
    if layout == "big-endian":
        x = x.astype(">f8")
    other = io.open_table([(x, y)], None) if layout == "blocks" else io.open_table(x, y)
    for _ in range(2):
        assert residual_sums(other, step, 1.0, kept=kept) == residual_sums(other, step, 1.0)


def test_no_more_is_kept_than_there_is_memory_for(monkeypatch):
    monkeypatch.setattr("dpfast.statistics.residuals._BYTES_KEPT", 100_000)
    rng = np.random.default_rng(32)
    step, kept, table = wide_step(rng), [], io.open_table(rng.normal(size=(1_000, WIDE)), rng.normal(size=(1_000, 2)))
    for _ in range(3):
        assert residual_sums(table, step, 1.0, kept=kept) == residual_sums(table, step, 1.0)
    of_table = kept[0]._products
    assert sum(array.nbytes for array in of_table[1:]) <= 100_100
    assert 0 < of_table.n_rows.sum() < 1_000
    narrow, kept = step_of(rng), []
    for _ in range(3):
        residual_sums(io.open_table(*table_of(rng)), narrow, 1.0, kept=kept)
    assert kept[0]._products is None


def test_a_row_that_changes_between_passes_stays_within_its_bound():
    rng = np.random.default_rng(33)
    for longest in (math.inf, 6.0):
        step, kept = wide_step(rng, longest=longest), []
        x, y = 1e-3 * rng.normal(size=(1, WIDE)), rng.normal(size=(1, 2))
        table = io.open_table(x, y)
        for _ in range(20):
            total = residual_sums(table, step, 0.7, kept=kept).products.to_float64()
            assert np.linalg.norm(total) <= residual_bound(0.7, step)
            x[:], y[:] = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-3.0, 3.0), 5.0 * rng.normal(size=y.shape)


def test_nothing_is_kept_of_a_sum_that_fails_or_that_has_squares():
    rng, kept = np.random.default_rng(20), []
    step, (x, y) = step_of(rng), table_of(rng)
    table = io.open_table(x, y)
    residual_sums(table, step, 1.0, kept=kept)
    residual_sums(table, step, 1.0, bound_squares=1.0, kept=kept)
    assert len(kept) == 1
    x[-1] = math.nan
    with pytest.raises(ValueError, match="X"):
        residual_sums(table, step, 1.0, kept=kept)
    assert kept == []


@pytest.mark.parametrize("link", ["logistic", "softmax", "huber", "quantile", "poisson"])
def test_links_leave_the_slopes_of_their_losses(link):
    rng = np.random.default_rng(14)
    step = step_of(rng, link=link, smoothing=(0.7, math.log(0.75 * 0.7) if link == "poisson" else 0.4))
    x, _ = table_of(rng)
    y = outcomes_of(rng, step.link, len(x))
    found = residual_sums(io.open_table(x, y), step, 100.0).products.to_float64()
    assert found == pytest.approx(parts(step, x, y).sum(axis=0), abs=len(x) * 2e-4)
    sizes = np.linalg.norm(parts(step, x, y).reshape(len(x), -1), axis=1)
    edges = [0.0, *(2.0 ** (j / 2.0) for j in range(-4, 10)), math.inf]
    counts = residual_sizes(io.open_table(x, y), step, (-4, 9))
    np.testing.assert_array_equal(counts, np.histogram(sizes, edges)[0])
    squares = residual_sums(io.open_table(x, y), step, 1.0, bound_squares=9.0).squares.to_float64()
    columns = np.hstack([step.map_x(x), np.ones((len(x), 1))])
    each = residuals(step, step.map_y(y), columns @ step.theta) ** 2
    held = each * np.minimum(1.0, 9.0 / np.maximum(np.linalg.norm(each, axis=1), 1e-9))[:, None]
    assert squares == pytest.approx(held.sum(axis=0), rel=1e-5)


@pytest.mark.parametrize("length", [1.0, 1e30, 1e70])
def test_rates_of_any_coefficients_are_from_0_to_the_largest(length):
    x, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([[0.0], [3.0], [3.0], [0.0], [3.0]])
    step = ResidualStep(
        np.array([[length]]),
        RowMap(bound=2.0),
        RowMap(bound=3.0),
        link="poisson",
        smoothing=(3.0, math.log(0.75 * 3.0)),
    )
    found = residual_sums(io.open_table(x, y), step, 50.0).products.to_float64().item()
    expected = float(np.sum(x * (y - PoissonLoss(3.0).mean(length * x))))
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("link", ["logistic", "softmax"])
@pytest.mark.parametrize("length", [1e-300, 1e30, 1e298])
def test_however_long_theta_is_slopes_are_those_of_its_limit(link, length):
    rng = np.random.default_rng(15)
    maps = RowMap(bound=10.0), RowMap(bound=3.0)
    theta, x = rng.normal(size=(D, OUTCOMES)), rng.normal(size=(40, D))
    y, z = outcomes_of(rng, link, 40), x @ theta
    if link == "softmax":
        share = np.full_like(z, 0.5) if length < 1.0 else np.eye(OUTCOMES)[np.argmax(z, axis=1)]
        r = y - y.sum(axis=1, keepdims=True) * share
    else:
        r = y * (0.5 if length < 1.0 else y * z < 0.0)
    found = residual_sums(io.open_table(x, y), ResidualStep(length * theta, *maps, link=link), 50.0).products
    assert found.to_float64() == pytest.approx(x.T @ r, abs=1e-3)


def test_squares_of_residuals_are_held_to_their_bound_and_summed():
    rng = np.random.default_rng(1)
    step = step_of(rng)
    x, y = table_of(rng)
    squares = residual_sums(io.open_table(x, y), step, 1.0, bound_squares=9.0).squares.to_float64()
    columns = np.hstack([step.map_x(x), np.ones((len(x), 1))])
    each = (step.map_y(y) - columns @ step.theta) ** 2
    held = each * np.minimum(1.0, 9.0 / np.linalg.norm(each, axis=1))[:, None]
    assert squares == pytest.approx(held.sum(axis=0), rel=1e-5)
    assert 9.0 < squares_bound(9.0, step) < 9.0 * (1.0 + 1e-6)
    assert residual_sums(io.open_table(x, y), step, 1.0).squares is None


@pytest.mark.parametrize("clip", [1e-3, 1.0, 2.0**20, 3e50])
def test_no_row_adds_more_than_the_bound_and_long_ones_that_much(clip):
    rng = np.random.default_rng(2)
    for scale in (1e-6, 1.0, 1e6, 1e60):
        step = step_of(rng, scale=scale)
        bound = Fraction(residual_bound(clip, step))
        assert clip < bound < clip * (1.0 + 5e-6)
        x, y = table_of(rng, 40)
        for one, other in zip(x, y, strict=True):
            part = residual_sums(io.open_table(one[None], other[None]), step, clip).products
            assert squared_norm(part) <= bound**2
            if np.linalg.norm(parts(step, one[None], other[None])) >= clip:
                assert squared_norm(part) >= Fraction(clip * (1.0 - 5e-6)) ** 2


@pytest.mark.parametrize(
    ("clip", "link"),
    [(2.0, "logistic"), (0.8, "softmax")],
)
def test_nobody_found_by_climbing_over_theta_too_passes_the_bound_of_a_link(clip, link):
    """Of rows up to 1 long, slopes as long as outcomes are tight; so is the clip of products."""
    rng = np.random.default_rng(17)
    maps = RowMap(bound=1.0), RowMap(bound=2.0)

    def length(parameters):
        x, y, theta = np.split(parameters, [2, 4])
        y = row_in_ball(y, 2.0, nonnegative=link == "softmax")
        step = ResidualStep(100.0 * theta.reshape(2, 2), *maps, link=link)
        table = io.open_table(row_in_ball(x, 1.0)[None], y[None])
        return math.sqrt(squared_norm(residual_sums(table, step, clip).products))

    longest, _ = climb(length, 8, rng, restarts=2, screened=20)
    bound = residual_bound(clip, ResidualStep(np.zeros((2, 2)), *maps, link=link))
    assert clip * (1.0 - 1e-3) < longest <= bound * (1.0 + 1e-15)
    assert bound < clip * (1.0 + 5e-6)


@pytest.mark.parametrize("max_rows", [None, 3])
def test_nobody_found_by_climbing_adds_more_than_the_bound_and_some_add_nearly_as_much(max_rows):
    rng = np.random.default_rng(8)
    whitening, rows = np.array([[3.0, 0.0], [-1.0, 0.01]]), max_rows or 1
    step = ResidualStep(rng.normal(size=(2, 2)), RowMap(bound=1.0), RowMap(bound=2.0), whitening)
    whose = None if max_rows is None else people(np.zeros(rows, int), rows)
    bound = residual_bound(0.7, step, max_rows)

    def length(parameters):
        x, y = np.split(parameters, [2 * rows])
        x = np.array([row_in_ball(row, 1.0) for row in x.reshape(rows, 2)])
        table = io.open_table(x, y.reshape(rows, 2))
        return math.sqrt(squared_norm(residual_sums(table, step, 0.7, whose=whose, max_rows=max_rows).products))

    longest, _ = climb(length, 4 * rows, rng, restarts=4, screened=20)
    assert 0.7 * (1.0 - 1e-7) < longest <= bound * (1.0 + 1e-15)
    assert bound < 0.7 * (1.0 + 5e-6)


def test_rounding_takes_parts_beyond_the_clip_so_that_the_bound_must_be_larger():
    rng = np.random.default_rng(9)
    step = step_of(rng)
    x, y = table_of(rng, 100)
    sums = [residual_sums(io.open_table(x[[i]], y[[i]]), step, 0.01).products for i in range(100)]
    assert max(map(squared_norm, sums)) > Fraction(0.01) ** 2 * (1 + Fraction(1, 10**8))


@pytest.mark.parametrize("link", ["identity", "logistic", "softmax"])
def test_the_sum_is_that_of_its_rows_alone_for_any_layout_and_block(link):
    rng = np.random.default_rng(3)
    step = step_of(rng, link=link)
    x, y = table_of(rng, 61)

    def sums(one, other):
        return residual_sums(io.open_table(one, other), step, 5.0, bound_squares=4.0)

    total = sums(x[:1], y[:1])
    for i in range(1, len(x)):
        row = sums(x[[i]], y[[i]])
        total = type(total)(*(a + b for a, b in zip(total, row, strict=True)))
    for lay in TABLES.values():
        assert sums(lay(x), lay(y)) == total
    for size in (1, 2, 3):
        blocks = [(np.asfortranarray(x[i : i + size]), y[i : i + size]) for i in range(0, len(x), size)]
        assert sums(iter(blocks), None) == total


def test_people_with_several_rows_are_held_to_the_clip_as_a_whole():
    rng = np.random.default_rng(4)
    step = step_of(rng, scale=0.3)
    x, y = table_of(rng, 60)
    groups = rng.integers(0, 15, 60)
    whose = people(groups, 3)
    kept = [np.flatnonzero(groups == one)[:3] for one in dict.fromkeys(groups.tolist())]
    table = io.open_table(x, y)
    for clip in (0.5, 20.0, 1e3):
        sums = residual_sums(table, step, clip, whose=whose, max_rows=3).products
        blocks = np.array([parts(step, x[rows], y[rows]).sum(axis=0) for rows in kept])
        lengths = np.linalg.norm(blocks.reshape(len(blocks), -1), axis=1)
        assert residual_sums(table, step, clip, whose=whose, max_rows=3).n_beyond == np.count_nonzero(lengths > clip)
        if clip > 1.0:
            assert sums.to_float64() == pytest.approx(clipped(blocks, clip).sum(axis=0), abs=len(x) * clip * 1e-5)
        bound = Fraction(residual_bound(clip, step, 3))
        assert bound < clip * (1.0 + 1e-5)
        for rows in kept:
            one = people(np.zeros(len(rows), int), 3)
            part = residual_sums(io.open_table(x[rows], y[rows]), step, clip, whose=one, max_rows=3).products
            assert squared_norm(part) <= bound**2
    counts = residual_sizes(table, step, (0, 12), whose=whose, max_rows=3)
    edges = [0.0, *(2.0 ** (j / 2.0) for j in range(13)), math.inf]
    np.testing.assert_array_equal(counts, np.histogram(lengths, edges)[0])


@pytest.mark.parametrize("whitened", [False, True])
def test_a_step_at_other_coefficients_is_that_made_of_them(whitened):
    rng = np.random.default_rng(0)
    first, table = step_of(rng, whitened=whitened, link="softmax"), io.open_table(*table_of(rng, 700))
    again = rng.normal(size=first.theta.shape)
    made = replace(first, theta=again)
    for moved in (first.at(again), pickle.loads(pickle.dumps(first)).at(again), pickle.loads(pickle.dumps(made))):
        assert residual_sums(table, moved, 2.0).products == residual_sums(table, made, 2.0).products
    assert residual_sums(table, first, 2.0).products != residual_sums(table, made, 2.0).products
    for theta in (np.full_like(again, np.nan), again[:1], 1e300 * again):
        with pytest.raises(ValueError, match="theta"):
            step_of(rng, whitened=whitened).at(theta)


def test_what_would_overflow_is_refused_before_rows_are_read():
    step = step_of(np.random.default_rng(5))
    good = {"theta": step.theta, "map_x": step.map_x, "map_y": step.map_y, "constant": True}
    for change, message in (
        ({"theta": step.theta * 1e200}, "cannot overflow"),
        ({"theta": step.theta * math.nan}, "finite"),
        ({"longest": 0.0}, "longest"),
        ({"beyond": -1.0}, "beyond"),
        ({"beyond": math.nan}, "beyond"),
        ({"longest": math.nan}, "longest"),
        ({"map_x": RowMap()}, "cannot overflow"),
        ({"map_y": RowMap(bound=1e200)}, "cannot overflow"),
        ({"whitening": np.full((2, D + 1), 1e200)}, "1e-100 to 1e100"),
        ({"whitening": np.ones((2, D))}, "columns"),
        ({"whitening": np.full((2, D + 1), 1e73)}, "cannot overflow"),
        ({"map_x": RowMap(bound=1.0, basis=np.eye(D))}, "basis"),
        ({"theta": np.ones((1, 2))}, "a row for each column"),
        ({"link": "probit"}, "link must be"),
        *(
            ({"link": link} | change, "cannot overflow")
            for link in ("logistic", "softmax")
            for change in ({"theta": step.theta * 1e300}, {"map_x": RowMap()}, {"map_y": RowMap(bound=1e74)})
        ),
    ):
        with pytest.raises(ValueError, match=message):
            ResidualStep(**good | change)
    # Slopes are no longer than outcomes, however long theta is.
    assert ResidualStep(**good | {"theta": step.theta * 1e200, "link": "softmax"}).link == "softmax"
    with pytest.raises(ValueError, match="clip"):
        clip_of(0.0, (2, 2))
    with pytest.raises(ValueError, match="max_rows"):
        clip_of(1.0, (2, 2), 1 << 20)


def test_tables_say_whether_they_can_be_read_again_and_are():
    x, y = table_of(np.random.default_rng(6), 10)
    step = step_of(np.random.default_rng(7))
    frame = pd.DataFrame({f"c{i}": column for i, column in enumerate(x.T)})
    for tables in ((x, y), (frame, y), ([x[:5], x[5:]], y), ([(x[:5], y[:5]), (x[5:], y[5:])], None)):
        table = io.open_table(*tables)
        assert not table.is_read_once
        first, second = (residual_sums(table, step, 1.0) for _ in range(2))
        assert first == second
    once = io.open_table(iter([x]), y)
    assert once.is_read_once
    residual_sums(once, step, 1.0)
    with pytest.raises(ValueError, match="only once"):
        residual_sums(once, step, 1.0)


def test_any_kind_of_table_has_the_same_sums():
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(10)
    x, y = (np.round(rows, 2).astype(np.float32) for rows in table_of(rng, 90))
    step = step_of(rng)

    def both(one, other, **options):
        table = io.open_table(one, other)
        sums = residual_sums(table, step, 5.0, bound_squares=4.0, **options)
        return sums, residual_sizes(io.open_table(one, other), step, (-5, 9), **options).tolist()

    expected = both(x.astype(np.float64), y.astype(np.float64))
    assert sum(expected[1]) == 90
    chunks = dask.from_array(x.astype(np.float64), (31, 2)), dask.from_array(y.astype(np.float64), (31, 2))
    tables = [(x, y), (x.astype(np.longdouble), y), (pd.DataFrame(x).add_prefix("c"), y), chunks]
    tables += [([x[:40], x[40:]], [y[:7], y[7:]])]
    for one, other in tables:
        assert both(one, other) == expected
    integers = (100.0 * x).astype(np.int64)
    assert both(integers, y) == both(integers.astype(np.float64), y)
    for n_threads in (2, 3):
        wide, tall = np.tile(x, (700, 1)), np.tile(y, (700, 1))
        assert both(wide, tall, n_threads=n_threads) == both(wide, tall, n_threads=1)


@pytest.mark.parametrize("link", ["identity", "softmax"])
def test_people_have_the_same_sums_in_any_dtype_and_order_and_with_any_threads(link):
    rng = np.random.default_rng(11)
    x, y = table_of(rng, 20_000)
    groups, step = rng.integers(0, 9_000, 20_000), step_of(rng, link=link)

    def both(x, y, groups, n_threads=1):
        people_and_threads = {"whose": people(groups, 4), "max_rows": 4, "n_threads": n_threads}
        sums = residual_sums(io.open_table(x, y), step, 5.0, bound_squares=4.0, **people_and_threads)
        return sums, residual_sizes(io.open_table(x, y), step, (-5, 9), **people_and_threads).tolist()

    expected = both(x, y, groups)
    assert sum(expected[1]) == len(np.unique(groups))
    order = np.argsort(groups, kind="stable")
    assert both(x[order], y[order], groups[order]) == both(x, y, groups, 3) == expected
    assert both(x.astype(">f8"), np.asfortranarray(y), groups) == expected


def test_rows_that_cannot_be_summed_are_refused_without_a_word_on_them():
    step = step_of(np.random.default_rng(12))
    x, y = table_of(np.random.default_rng(12), 10)
    whose = people(np.arange(10) // 3, 3)
    for name, rows in (("X", x), ("Y", y)):
        kept, rows[7, 1] = rows[7, 1], math.inf
        for options in ({}, {"whose": whose, "max_rows": 3}):
            for act in (partial(residual_sums, clip=1.0), partial(residual_sizes, half_octaves=(0, 3))):
                with pytest.raises(ValueError, match=f"^{name} contains NaN or infinity: put a public number [^0-9]*$"):
                    act(io.open_table(x, y), step, **options)
        rows[7, 1] = kept
    table = io.open_table(x, y)
    with pytest.raises(ValueError, match="max_rows needs groups"):
        residual_sums(table, step, 1.0, whose=whose)
    with pytest.raises(TypeError, match="whole arrays"):
        residual_sums(io.open_table([x], [y]), step, 1.0, whose=whose, max_rows=3)
    with pytest.raises(ValueError, match="one id a row"):
        residual_sums(io.open_table(x[:9], y[:9]), step, 1.0, whose=whose, max_rows=3)
    with pytest.raises(ValueError, match="the table has others"):
        residual_sizes(io.open_table(x[:, 1:], y), step, (0, 3))
    with pytest.raises(ValueError, match="as the first"):
        residual_sizes(io.open_table([x, x[:, :2]], [y, y]), step, (0, 3))
    with pytest.raises(ValueError, match="half_octaves"):
        residual_sizes(table, step, (3, 0))
    with pytest.raises(ValueError, match="bound_squares"):
        residual_sums(table, step, 1.0, bound_squares=1e200)


def test_what_may_overflow_is_bounded_by_sizes_and_not_by_sums():
    step = step_of(np.random.default_rng(5))
    cancelling = np.zeros_like(step.theta)
    cancelling[0], cancelling[1] = 1e200, -1e200
    with pytest.raises(ValueError, match="cannot overflow"):
        ResidualStep(theta=cancelling, map_x=step.map_x, map_y=step.map_y, constant=True)


@pytest.mark.parametrize("rows", [1e-60, 1e60])
def test_a_constant_may_be_far_from_the_units_of_rows(rows):
    """What a constant predicts does not grow with rows, nor what rows predict with the 1 after them."""
    theta = np.vstack([np.full((D, OUTCOMES), 1e60 / rows), np.full((1, OUTCOMES), 1e60)])
    whitening = np.diag([1.0 / rows] * D + [1.0])
    step = ResidualStep(theta, RowMap(bound=rows), RowMap(bound=1e60), whitening, constant=True)
    x = np.full((1, D), rows / D)
    np.testing.assert_allclose(
        residual_sums(io.open_table(x, np.zeros((1, OUTCOMES))), step, 1e61).products.to_float64(),
        np.outer(np.append(np.full(D, 1.0 / D), 1.0), [-2e60, -2e60]),
        rtol=1e-5,
    )
    theta[:-1] = 0.0
    with pytest.raises(ValueError, match="cannot overflow"):
        ResidualStep(theta * 1e20, RowMap(bound=rows), RowMap(bound=1e60), whitening, constant=True)


@pytest.mark.parametrize("clip", [1e-3, 1.0, 2.0, 3.0, 1e9])
def test_residuals_are_rounded_to_a_grid_of_2_to_the_21st_of_the_clip_at_least(clip):
    of_products, of_residuals = clip_of(clip, (3, 2)).exponents
    assert of_products == 21
    assert 2.0**21 < math.ldexp(clip, of_residuals) <= 2.0**22


LAYOUT = CodeLayout(9, places=(0, 4), firsts=(1, 5), levels=(3, 4))


def coded_step(rng, constant=True, bound=1.5, **options):
    low, high = -np.ones(9), np.ones(9)
    low[LAYOUT.indicators] = 0.0
    whitening = rng.normal(size=(9 + constant, 9 + constant))
    theta = rng.normal(size=(9 + constant, OUTCOMES))
    options = {"map_x": centred(low, high, bound)[0], "whitening": whitening} | options
    return ResidualStep(theta, map_y=RowMap(bound=3.0), constant=constant, **options)


def coded_block(rng, n_rows=300):
    codes = [rng.integers(-1, most, n_rows) for most in LAYOUT.levels]
    return CodedBlock(2.0 * rng.normal(size=(n_rows, 2)), codes, LAYOUT), 2.0 * rng.normal(size=(n_rows, OUTCOMES))


@pytest.mark.parametrize("options", [{}, {"longest": 2.0}, {"beyond": 0.5}, {"link": "logistic"}, {"bound": math.inf}])
def test_codes_and_indicators_have_the_same_residual_sums_up_to_rounding(options):
    rng = np.random.default_rng(21)
    step, (block, y) = coded_step(rng, **options), coded_block(rng)
    codes, dense = (residual_sums(io.open_table([(x, y)]), step, 2.0) for x in (block, np.asarray(block)))
    # Each row may be rounded to the next of 2^21 units.
    np.testing.assert_allclose(codes.products.to_float64(), dense.products.to_float64(), atol=300 * 2.0**-20)
    assert abs(codes.n_beyond - dense.n_beyond) <= 1
    found, expected = (residual_sizes(io.open_table([(x, y)]), step, (-8, 8)) for x in (block, np.asarray(block)))
    assert found.sum() == expected.sum() == 300
    assert np.abs(found - expected).sum() <= 2


def test_the_sum_of_rows_with_codes_is_that_of_each_alone_whatever_lies_beside_it():
    rng = np.random.default_rng(22)
    step, (block, y) = coded_step(rng), coded_block(rng, 67)

    def sums(*blocks):
        return residual_sums(io.open_table(list(blocks)), step, 0.7, bound_squares=4.0, n_threads=2)

    whole = sums((block, y))
    one_by_one = [sums((block[[i]], y[[i]])) for i in range(67)]
    total = one_by_one[0]
    for part in one_by_one[1:]:
        total = type(total)(*(a + b for a, b in zip(total, part, strict=True)))
    assert total == whole
    order = rng.permutation(67)
    assert sums((block[order[:20]], y[order[:20]]), (block[order[20:]], y[order[20:]])) == whole


def test_nobody_found_by_climbing_over_codes_adds_more_than_the_bound_and_some_add_nearly_as_much():
    rng = np.random.default_rng(23)
    step = coded_step(rng)
    bound = residual_bound(0.7, step)

    def length(parameters):
        x, codes, y = np.split(parameters, [2, 4])
        chosen = (int(4.0 * abs(code)) % (most + 2) - 1 for code, most in zip(codes, LAYOUT.levels, strict=True))
        places = [np.array([code]) for code in chosen]
        block = CodedBlock(x[None], places, LAYOUT)
        return math.sqrt(squared_norm(residual_sums(io.open_table([(block, y[None])]), step, 0.7).products))

    longest, _ = climb(length, 4 + OUTCOMES, rng, restarts=3, screened=20)
    assert 0.7 * (1.0 - 1e-6) < longest <= bound * (1.0 + 1e-15)


def test_steps_that_need_all_columns_read_rows_with_codes_as_indicators():
    rng = np.random.default_rng(24)
    block, y = coded_block(rng, 50)
    small = RowMap(bound=1e-150)
    options = [{"whitening": None}, *({"map_x": one} for one in (RowMap(bound=2.0, fills=True), small))]
    for option in options:
        step = coded_step(rng, **option)
        assert coded_tables(step, LAYOUT) is None
        if option.get("map_x") is not small:
            one, other = (residual_sums(io.open_table([(x, y)]), step, 2.0) for x in (block, np.asarray(block)))
            assert one == other
