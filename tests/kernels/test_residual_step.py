"""The kernel of residual steps: to the bit its plain twin at every vector width, and held by integers alone."""

import math

import numpy as np
import pytest
from reference.coded_steps import coded_rows
from reference.residuals import coded_part, exponential, person_part
from reference.rows import ARRAYS

from dpfast.io.people import people
from dpfast.kernels import residual_step
from dpfast.kernels.columns import CodeLayout, ColumnBlock, FixedPoint
from dpfast.kernels.row_maps import CodedMapKernel, RowMapKernel
from dpfast.statistics.residuals import MOST_ROWS_OF_ONE, ResidualStep, ThreadSizes, ThreadSums, clip_of, coded_tables
from dpfast.statistics.rows import RowMap, centred

LEVELS = [0, 1, 2]
FIRST, LAST = -6, 40


def step_of(rng, d, outcomes, *, whitened, constant, spread=1.0, **options):
    low, high = -rng.uniform(0.5, 3.0, d), rng.uniform(0.5, 3.0, d)
    columns = d + constant
    whitening = np.tril(rng.normal(size=(columns, columns))) * 10.0 ** rng.uniform(-spread, spread, (columns, 1))
    theta = rng.normal(size=(columns, outcomes)) * 10.0 ** rng.uniform(-spread, spread, (columns, 1))
    maps = centred(low, high, 1.5 * math.sqrt(d))[0], RowMap(bound=3.0)
    return ResidualStep(theta, *maps, whitening if whitened else None, constant, **options)


def rows_of(rng, n, d, outcomes):
    return (rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-3.0, 2.0, (n, 1)) for m in (d, outcomes))


def bin_of(exponent):
    return min(max(exponent - FIRST + 1, 0), LAST - FIRST + 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("d", "outcomes", "whitened", "constant"),
    [(1, 1, False, False), (3, 1, True, True), (8, 2, False, True), (13, 9, True, False), (20, 1, True, False)],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"link": "logistic"},
        {"link": "softmax"},
        {"longest": 2.5},
        {"beyond": 0.5},
        {"longest": 1.5, "beyond": 2.0, "link": "huber"},
        {"longest": 0.1, "link": "softmax"},
        {"link": "huber", "smoothing": (0.7, 0.3)},
        {"longest": 0.4, "link": "quantile", "smoothing": (0.9, 2.0)},
        {"longest": 0.4, "link": "poisson", "smoothing": (2.0, 0.5)},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "plain",
)
def test_the_kernel_is_its_plain_twin_at_every_vector_width(level, d, outcomes, whitened, constant, options):
    rng = np.random.default_rng(d)
    for spread in (1.0, 15.0):
        step = step_of(rng, d, outcomes, whitened=whitened, constant=constant, spread=spread, **options)
        x, y = rows_of(rng, 101, d, outcomes)
        x[3], y[4], x[5:7], y[5:7] = 0.0, 0.0, 1e-300, 1e-300
        y[8:30] = np.sign(y[8:30])
        held = clip_of(math.exp(rng.normal()), step.shape)
        sums, sizes = ThreadSums(step, held, 2.0, level), ThreadSizes(step, (FIRST, LAST), level)
        expected, squares = np.zeros(step.shape, dtype=object), np.zeros(outcomes, dtype=object)
        counts, n_beyond = np.zeros(LAST - FIRST + 2, np.int64), 0
        for one, other in zip(x, y, strict=True):
            part, of_squares, exponent, is_beyond = person_part(step, held, one[None], other[None], 2.0)
            expected, squares, n_beyond = expected + part, squares + of_squares, n_beyond + is_beyond
            counts[bin_of(exponent)] += 1
        for kernel in (sums.kernel, sizes.kernel):
            assert kernel.add(x, y, None, 0, 70) == kernel.add(x, y, None, 70, 101) == residual_step.ADDED
        *found, found_beyond = sums.kernel.take()
        for one, wanted in zip(found, (expected, squares), strict=True):
            np.testing.assert_array_equal(one, wanted.astype(np.int64))
        assert found_beyond == n_beyond
        assert sums.kernel.n_beyond == 0
        np.testing.assert_array_equal(sizes.kernel.take(), counts)


def test_exponentials_are_right_to_two_units_in_the_last_place():
    """Those of the twin, whose bits the kernel has."""
    assert exponential(0.0) == exponential(-0.0) == exponential(-5e-324) == 1.0
    assert exponential(-1e300) == exponential(-708.0)
    for a in (-np.random.default_rng(6).uniform(0.0, 1.0, 2000) * np.repeat([1e-8, 1.0, 40.0, 708.0], 500)).tolist():
        assert abs(exponential(a) - math.exp(a)) <= 2.0 * math.ulp(math.exp(a))
        assert exponential(a) <= 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cancels", ["residuals", "products"])
def test_what_cancels_is_added_in_one_order(level, cancels):
    """Residuals and products that are nothing but rounding errors, of a size to fill the grid: every bit counts."""
    rng = np.random.default_rng(5)
    direction, theta = rng.normal(size=13), rng.normal(size=(13, 2))
    weights = rng.normal(size=(2, 13))
    weights -= np.outer(weights @ direction, direction) / (direction @ direction)
    whitening = weights if cancels == "products" else None
    step = ResidualStep(theta, RowMap(bound=100.0), RowMap(bound=1000.0), whitening)
    x = rng.normal(size=(101, 1)) * direction if cancels == "products" else rng.normal(size=(101, 13))
    y = x @ theta + (cancels == "products")
    held = clip_of(1e-15, step.shape)
    kernel, sizes = ThreadSums(step, held, level=level).kernel, ThreadSizes(step, (-120, -80), level).kernel
    for start, stop in ((0, 1), (1, 10), (10, 101)):
        assert kernel.add(x, y, None, start, stop) == sizes.add(x, y, None, start, stop) == 0
    parts = [person_part(step, held, x[[i]], y[[i]]) for i in range(101)]
    np.testing.assert_array_equal(kernel.take()[0], sum(part for part, *_ in parts).astype(np.int64))
    counts = np.bincount([min(max(exponent, -121), -80) + 121 for _, _, exponent, _ in parts], minlength=42)
    np.testing.assert_array_equal(sizes.take(), counts)


@pytest.mark.parametrize("level", LEVELS)
def test_exponentials_are_taken_in_one_order(level):
    """Rows that leave nothing but rounding errors, alone (softmax) or with another of the same person (logistic)."""
    rng = np.random.default_rng(7)
    x, maps = rng.normal(size=(1200, 3)), (RowMap(bound=100.0), RowMap(bound=1e9))
    step = ResidualStep(rng.normal(size=(3, 4)), *maps, link="softmax")
    sizes = np.exp(x @ step.theta)
    y = 3.0 * sizes / sizes.sum(axis=1, keepdims=True)
    held = clip_of(1e-15, step.shape)
    kernel = ThreadSums(step, held, level=level).kernel
    assert kernel.add(x, y, None, 0, len(x)) == 0
    expected = sum(person_part(step, held, x[[i]], y[[i]])[0] for i in range(len(x)))
    np.testing.assert_array_equal(kernel.take()[0], expected.astype(np.int64))
    step = ResidualStep(rng.normal(size=(3, 1)), *maps, link="logistic")
    x, odds = np.repeat(x[:200], 2, axis=0), np.exp(x[:200] @ step.theta)
    y = np.stack([odds, -1.0 * np.ones_like(odds)], axis=1).reshape(-1, 1)
    kernel = ThreadSizes(step, (-130, -60), level).kernel
    assert kernel.add_people(x, y, None, np.arange(0, 401, 2), 0, 200) == 0
    held = clip_of(1.0, step.shape, 2)
    exponents = [person_part(step, held, x[i : i + 2], y[i : i + 2])[2] for i in range(0, 400, 2)]
    counts = np.bincount([int(max(exponent, -131)) + 131 for exponent in exponents], minlength=72)
    assert np.count_nonzero(counts[1:]) > 5
    np.testing.assert_array_equal(kernel.take(), counts)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("link", ["huber", "quantile"])
def test_scores_of_people_who_cancel_are_taken_in_one_order(link, level):
    """A score, and what is its opposite but for rounding: of the same person, so that every bit counts."""
    rng = np.random.default_rng(8)
    step = ResidualStep(np.zeros((1, 1)), RowMap(bound=100.0), RowMap(bound=10.0), link=link, smoothing=(0.5, 0.4))
    r = np.concatenate([rng.uniform(-1.0, 1.0, 200), rng.normal(size=50)])
    other = -np.nextafter(r, np.inf) * (1.0 + 2.0**-50 * rng.integers(-2, 3, 250))
    x, y = np.ones((500, 1)), np.stack([r, other], axis=1).reshape(-1, 1)
    kernel = ThreadSizes(step, (-130, -60), level).kernel
    assert kernel.add_people(x, y, None, np.arange(0, 501, 2), 0, 250) == 0
    held = clip_of(1.0, step.shape, 2)
    exponents = [person_part(step, held, x[i : i + 2], y[i : i + 2])[2] for i in range(0, 500, 2)]
    counts = np.bincount([int(min(max(exponent, -131), -60)) + 131 for exponent in exponents], minlength=72)
    assert np.count_nonzero(counts[1:]) > 3
    np.testing.assert_array_equal(kernel.take(), counts)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "options",
    [{}, {"link": "softmax"}, {"longest": 1.5}, {"beyond": 1.5}, {"link": "quantile", "smoothing": (0.2, 1.0)}],
    ids=["plain", "softmax", "held", "beyond", "quantile"],
)
def test_people_of_any_number_of_rows_are_those_of_the_twin(level, options):
    rng = np.random.default_rng(1)
    step = step_of(rng, 5, 2, whitened=True, constant=True, **options)
    groups = np.repeat(np.arange(9), [1, 3, 64, 65, 2, 130, 1, 20, 63])
    x, y = rows_of(rng, len(groups), 5, 2)
    # Rows that cancel: their sum is far shorter than they are.
    y[40:50] = -3.0 * y[40:50]
    shuffled = rng.permutation(len(groups))
    for clip in (0.5, 30.0, 1e4):
        for table in (np.arange(len(groups)), shuffled):
            whose = people(groups[table], 120)
            held = clip_of(clip, step.shape, 120)
            sums, sizes = ThreadSums(step, held, 4.0, level), ThreadSizes(step, (FIRST, LAST), level)
            for kernel in (sums.kernel, sizes.kernel):
                for first, last in ((0, 4), (4, 4), (4, 9)):
                    assert kernel.add_people(x[table], y[table], whose.order, whose.offsets, first, last) == 0
            expected, squares = np.zeros(step.shape, dtype=object), np.zeros(2, dtype=object)
            counts, n_beyond = np.zeros(LAST - FIRST + 2, np.int64), 0
            for one in range(9):
                rows = table[np.flatnonzero(groups[table] == one)[:120]]
                part, of_squares, exponent, is_beyond = person_part(step, held, x[rows], y[rows], 4.0)
                expected, squares, n_beyond = expected + part, squares + of_squares, n_beyond + is_beyond
                counts[bin_of(exponent)] += 1
            *found, found_beyond = sums.kernel.take()
            for one, wanted in zip(found, (expected, squares), strict=True):
                np.testing.assert_array_equal(one, wanted.astype(np.int64))
            assert found_beyond == n_beyond
            np.testing.assert_array_equal(sizes.kernel.take(), counts)


def kernel_of(step, **limits):
    usual = {"units": (2.0**21, 2.0**21), "row_limits": (2.0**43, 1 << 90), "person_limits": (2.0**47, 1 << 100)}
    return residual_step.ResidualSums(*step.kernel_arguments(), **usual | limits)


def test_integers_are_held_to_their_bounds_whatever_floating_point_says():
    """Bounds far below the lengths that parts are scaled onto: the tests of integers alone can hold them."""
    rng = np.random.default_rng(2)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    x, y = rows_of(rng, 40, 5, 2)
    for i in range(0, 39, 3):
        kernel = kernel_of(step, row_limits=(2.0**43, 1 << 80), squares_limits=(2.0**22, 2.0**22, 1 << 40))
        assert kernel.add(x, y, None, i, i + 1) == 0
        products, squares = (sum(int(entry) ** 2 for entry in total.flat) for total in kernel.take()[:2])
        assert products <= 1 << 80
        assert squares <= 1 << 40
        for n_rows in (1, 3, 70):
            person = kernel_of(step, person_limits=(2.0**43, 1 << 80))
            rows = np.resize(np.arange(i, i + 3), n_rows)
            assert person.add_people(x, y, rows, np.array([0, n_rows]), 0, 1) == 0
            assert sum(int(entry) ** 2 for entry in person.take()[0].flat) <= 1 << 80


def room_of(kernel, n_blocks=1):
    rows = kernel.block_rows
    shapes = (n_blocks, kernel.shape[0] * rows), (n_blocks, 3 * rows)
    return np.empty(shapes[0], np.float32), np.empty(shapes[1]), np.zeros(n_blocks, np.uint8)


def test_integers_of_products_that_are_kept_are_held_to_their_bound_whatever_floating_point_says():
    rng = np.random.default_rng(2)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    x, y = rows_of(rng, 40, 5, 2)
    for i in range(0, 40, 3):
        kernel = kernel_of(step, row_limits=(2.0**43, 1 << 80))
        products, sizes, n_rows = room_of(kernel)
        kernel.keep(products, sizes, n_rows)
        for _ in range(3):
            assert kernel.add(x[i : i + 1], y[i : i + 1], None, 0, 1) == 0
            assert n_rows == [1]
            assert sum(int(entry) ** 2 for entry in kernel.take()[0].flat) <= 1 << 80
        # Half of a block more is read anew, and so is what does not begin with a block.
        assert kernel.add(x[i:], y[i:], None, 0, len(x) - i) == 0
        assert n_rows == [len(x) - i]
        again = kernel.take()[0]
        fresh = kernel_of(step, row_limits=(2.0**43, 1 << 80))
        assert fresh.add(x[i:], y[i:], None, 0, len(x) - i) == 0
        np.testing.assert_array_equal(again, fresh.take()[0])


def test_room_for_products_is_that_of_the_blocks_or_is_refused():
    rng = np.random.default_rng(3)
    kernel = kernel_of(step_of(rng, 5, 2, whitened=True, constant=False))
    products, sizes, n_rows = room_of(kernel, 2)
    for wrong in (
        (products[:1], sizes, n_rows),
        (products, sizes[:, 1:].copy(), n_rows),
        (products, sizes, n_rows[:1]),
        (products[:0], sizes[:0], n_rows[:0]),
        (products[:, 1:].copy(), sizes, n_rows),
    ):
        with pytest.raises(ValueError, match="shape of these"):
            kernel.keep(*wrong)
    plain = kernel_of(step_of(rng, 5, 2, whitened=False, constant=False))
    with pytest.raises(ValueError, match="their own products"):
        plain.keep(*room_of(plain))


def test_what_is_taken_is_of_the_rows_since_the_last_time():
    rng = np.random.default_rng(4)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    x, y = rows_of(rng, 80, 5, 2)
    kernel, found = kernel_of(step, squares_limits=(2.0**22, 2.0**22, 1 << 40)), []
    for rows in (slice(0, 40), slice(40, 80), slice(0, 40)):
        assert kernel.add(x[rows], y[rows], None, 0, 40) == 0
        found.append(kernel.take())
    for first, last in zip(found[0], found[2], strict=True):
        np.testing.assert_array_equal(first, last)
    assert np.all(found[0][1] != found[1][1])


@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e90])
def test_a_sum_in_one_go_is_that_of_its_parts(clip):
    rng = np.random.default_rng(5)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    kernel, twin, limits = kernel_of(step), kernel_of(step), clip_of(clip, step.shape).limits
    for n_rows, theta, beyond in ((40, step.theta, 0.0), (1, -step.theta, 0.25), (100, 0.0 * step.theta, 0.0)):
        x, y = rows_of(rng, n_rows, 5, 2)
        twin.again(theta.T, beyond, *limits)
        assert twin.add(x, y, None, 0, n_rows) == residual_step.ADDED
        products, _, n_beyond = twin.take()
        exact = FixedPoint.from_integers(products, 0)
        for shift in (None, 0, 3, 63, 64, 120):
            status, high, low, found = kernel.sum_again(x, y, theta.T, beyond, *limits, shift)
            assert (status, found) == (residual_step.ADDED, n_beyond)
            assert FixedPoint(high, low, 0) == (exact if shift is None else exact.followed_by(n_beyond << shift))
    assert (products < 0).any() or clip == 1e90
    assert (products > 0).any() or clip == 1e90
    assert (n_beyond == n_rows) == (clip == 1e-6)


def test_a_kernel_begins_anew_only_once_its_totals_are_taken():
    rng = np.random.default_rng(3)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    x, y = rows_of(rng, 40, 5, 2)
    kernel, limits = kernel_of(step), clip_of(1.0, step.shape).limits
    assert kernel.add(x, y, None, 0, 40) == 0
    with pytest.raises(ValueError, match="taken"):
        kernel.again(step.theta.T, 0.0, *limits)
    kernel.take()
    with pytest.raises(ValueError, match="as before"):
        kernel.again(step.theta, 0.0, *limits)
    with pytest.raises(ValueError, match="taken"):
        kernel_of(step, squares_limits=(2.0**22, 2.0**22, 1 << 40)).again(step.theta.T, 0.0, *limits)


def test_a_sum_in_one_go_refuses_what_its_parts_refuse_and_gives_nothing_of_rows_that_are_not_finite():
    rng = np.random.default_rng(6)
    step = step_of(rng, 5, 2, whitened=True, constant=False)
    (x, y), limits = rows_of(rng, 70, 5, 2), clip_of(1.0, step.shape).limits
    for place, name in enumerate((residual_step.X_NOT_FINITE, residual_step.Y_NOT_FINITE)):
        for wrong in (np.nan, np.inf, -np.inf):
            rows = x.copy(), y.copy()
            rows[place][69, 1] = wrong
            kernel = kernel_of(step)
            assert kernel.sum_again(*rows, step.theta.T, 0.0, *limits, 3) == (name, None, None, 0)
            with pytest.raises(ValueError, match="taken"):
                kernel.sum_again(x, y, step.theta.T, 0.0, *limits, 3)
    for theta, table in ((step.theta, (x, y)), (step.theta.T, (x[:, 1:], y)), (step.theta.T, (x, y[:, 1:]))):
        with pytest.raises(ValueError, match=r"as before|columns"):
            kernel_of(step).sum_again(*table, theta, 0.0, *limits, None)
    with pytest.raises(IndexError, match="as many"):
        kernel_of(step).sum_again(x, y[1:], step.theta.T, 0.0, *limits, None)
    with pytest.raises(ValueError, match="shift"):
        kernel_of(step).sum_again(x, y, step.theta.T, 0.0, *limits, -1)


def test_sums_of_the_largest_parts_are_exact_until_totals_are_full():
    step = ResidualStep(np.zeros((1, 1)), RowMap(bound=1.0), RowMap(bound=1.0))
    for max_rows in (None, 1):
        held = clip_of(1.0, (1, 1), max_rows)
        x, y = np.full((40_000, 1), 1.0 - 2.0**-53), np.ones((40_000, 1))
        part, *_ = person_part(step, held, x[:1], y[:1])
        sums = ThreadSums(step, held)
        # Rows of people are allowed for as if they were 16 times as long; a range and a person's rows must fit.
        assert sums.kernel.room >= 8192 + MOST_ROWS_OF_ONE if max_rows else sums.kernel.room > 1 << 18
        for start in range(0, 40_000, 20_000):
            sums.make_room(20_000)
            if max_rows is None:
                sums.kernel.add(x, y, None, start, start + 20_000)
            else:
                sums.kernel.add_people(x, y, None, np.arange(40_001), start, start + 20_000)
        assert sums.taken().products.integer((0, 0)) == 40_000 * int(part[0, 0])
    with pytest.raises(OverflowError, match="full"):
        sums.kernel.add_people(x, y, None, np.arange(40_001), 0, 40_000)
    long = ResidualStep(np.zeros((1, 1)), RowMap(bound=1.0), RowMap(bound=1.0))
    for limits in ({"row_limits": (2.0**53, 1 << 106)}, {"person_limits": (2.0**70, 1 << 127)}):
        with pytest.raises(OverflowError, match="too large"):
            kernel_of(long, **limits)
    with pytest.raises(OverflowError, match="squared residuals"):
        kernel_of(long, squares_limits=(2.0**27, 2.0**27, 1 << 54))


def test_the_largest_lanes_are_moved_in_time():
    """Odd parts of nearly 2^47 units, which lanes would round from the 64th on."""
    step = ResidualStep(np.zeros((1, 1)), RowMap(bound=1.0), RowMap(bound=16.0))
    held = clip_of(1.0, (1, 1), 1)
    units = 2.0**21 - 1.0, (2.0**26 - 1.0) / 16.0
    kernel = kernel_of(step, units=units, row_limits=(2.0**30, held.limits[1][1]))
    kernel.add(np.ones((6000, 1)), np.full((6000, 1), 16.0), None, 0, 6000)
    assert kernel.take()[0].item() == 6000 * (2**21 - 1) * (2**26 - 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("link", ["identity", "logistic", "softmax", "huber", "quantile", "poisson"])
def test_rows_may_lie_anyhow_in_memory(dtype, link):
    rng = np.random.default_rng(3)
    step = step_of(rng, 9, 3, whitened=True, constant=True, link=link)
    x, y = (rows.astype(dtype) for rows in rows_of(rng, 75, 9, 3))
    held, rows = clip_of(2.0, step.shape), rng.integers(0, 75, 200)
    found = []
    for layout, lay in ARRAYS.items():
        if layout == "byte-swapped" or (layout == "strided" and dtype == np.float32):
            continue
        kernel = ThreadSums(step, held).kernel
        kernel.add(lay(x), lay(y), None, 5, 75)
        kernel.add(lay(x), lay(y), rows, 3, 200)
        found.append(kernel.take()[0])
    wide = ThreadSums(step, held).kernel
    wide.add(x.astype(np.float64), y.astype(np.float64), None, 5, 75)
    wide.add(x.astype(np.float64), y.astype(np.float64), rows, 3, 200)
    expected = wide.take()[0]
    assert len(found) >= 5
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_what_does_not_fit_is_refused():
    step = step_of(np.random.default_rng(4), 3, 2, whitened=True, constant=False)
    maps, x, y = step.kernel_arguments()[:2], np.ones((4, 3)), np.ones((4, 2))
    for theta, whitening in ((np.ones((2, 4)), None), (np.ones((1, 3)), None), (np.ones((2, 3)), np.ones((2, 4)))):
        with pytest.raises(ValueError, match="must have as many"):
            residual_step.ResidualSizes(*maps, theta, whitening, False, first=0, last=1)
    sizes = ThreadSizes(step, (0, 3)).kernel
    assert (sizes.shape, sizes.block_rows) == ((3, 2), 64)
    for start, stop in ((-1, 2), (0, 5), (3, 2)):
        with pytest.raises(IndexError):
            sizes.add(x, y, None, start, stop)
    for one, other in ((x[:3], y), (x, y[:3])):
        with pytest.raises(IndexError):
            sizes.add(one, other, None, 0, 3)
    for one, other in ((x[:, :2], y), (x, y[:, :1])):
        with pytest.raises(ValueError, match="columns"):
            sizes.add(one, other, None, 0, 3)
    for first, last in ((-1, 1), (0, 3), (1, 0)):
        with pytest.raises(IndexError):
            sizes.add_people(x, y, None, np.array([0, 2, 4]), first, last)
    assert sizes.add(x, y, None, 2, 2) == sizes.add_people(x, y, None, np.array([0, 0]), 0, 1) == 0
    x[1, 0] = np.inf
    assert sizes.add(x, y, None, 0, 4) == residual_step.X_NOT_FINITE
    y[0, 1] = np.nan
    long = np.resize([2, 0], 100)
    assert sizes.add_people(x, y, long, np.array([0, 100]), 0, 1) == residual_step.Y_NOT_FINITE
    sums = ThreadSums(step, clip_of(1.0, step.shape, 100)).kernel
    assert sums.add_people(x, y, long, np.array([0, 100]), 0, 1) == residual_step.Y_NOT_FINITE
    assert isinstance(maps[0], RowMapKernel)


MIXED = CodeLayout(13, places=(0, 5, 12), firsts=(1, 6), levels=(4, 6))
CODES_ALONE = CodeLayout(9, places=(), firsts=(0, 4), levels=(4, 5))


def products_of(step, layout):
    """Tables of look-ups, which rows are read by that are not read by pairs of levels."""
    return coded_tables(step, layout).products


def begin_coded(thread, tables):
    options = {"block_rows": thread.kernel.block_rows, "level": thread.kernel.level}
    thread.kernel.begin_coded(CodedMapKernel(*tables, **options))


def maps_of(rng, layout):
    """Boxes that leave indicators alone or clip them, with and without a norm and a centre."""
    d = layout.n_columns
    low, high = -rng.uniform(0.5, 3.0, d), rng.uniform(0.5, 3.0, d)
    low[layout.indicators], high[layout.indicators] = 0.0, 1.0
    inner = RowMap(low + 0.1 * (high - low), high - 0.2 * (high - low), 2.0)
    return [centred(low, high)[0], centred(low, high, 1.5)[0], RowMap(bound=2.0, center=rng.normal(size=d)), inner]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", [MIXED, CODES_ALONE], ids=["mixed", "codes alone"])
@pytest.mark.parametrize(
    "options", [{}, {"longest": 1.5}, {"beyond": 0.3}, {"link": "softmax", "longest": 0.7}, {"link": "huber"}]
)
def test_rows_with_codes_are_those_of_their_plain_twin_at_every_vector_width(level, layout, options):
    rng = np.random.default_rng(11)
    block, d = coded_rows(rng, layout, 2.0), layout.n_columns
    shapes = (0, 1, 14), (1, 2, 3), (1, 9, 1), (0, 1, 40)
    for (constant, outcomes, k), row_map in zip(shapes, maps_of(rng, layout), strict=True):
        theta, whitening = rng.normal(size=(d + constant, outcomes)), rng.normal(size=(k, d + constant))
        step = ResidualStep(theta, row_map, RowMap(bound=3.0), whitening, bool(constant), **options)
        y = np.sign(rng.normal(size=(101, outcomes))) if options.get("link") else rng.normal(size=(101, outcomes))
        held, tables = clip_of(0.8, step.shape), products_of(step, layout)
        rows = [(block.numbers[i].tolist(), [int(codes[i]) for codes in block.codes], y[i]) for i in range(101)]
        parts = [coded_part(step, held, tables, layout.places, *row, 2.0) for row in rows]
        sums, sizes = ThreadSums(step, held, 2.0, level), ThreadSizes(step, (FIRST, LAST), level)
        numbers = ColumnBlock(list(block.numbers.T)) if layout.places else block.numbers
        for thread in (sums, sizes):
            begin_coded(thread, tables)
            for start, stop in ((0, 1), (1, 70), (70, 101)):
                assert thread.kernel.add_coded(numbers, block.codes, y, start, stop) == residual_step.ADDED
        products, squares, n_beyond = sums.kernel.take()
        np.testing.assert_array_equal(products, sum(part for part, *_ in parts).astype(np.int64))
        np.testing.assert_array_equal(squares, sum(one for _, one, *_ in parts).astype(np.int64))
        assert n_beyond == sum(beyond for *_, beyond in parts)
        bins = [bin_of(exponent) for _, _, exponent, _ in parts]
        np.testing.assert_array_equal(sizes.kernel.take(), np.bincount(bins, minlength=LAST - FIRST + 2))


def test_integers_of_rows_with_codes_are_held_to_their_bound_whatever_the_tables_say():
    """Tables that have nothing to do with the rows: no error of theirs lets a part pass."""
    rng = np.random.default_rng(12)
    step = ResidualStep(rng.normal(size=(13, 2)), maps_of(rng, MIXED)[1], RowMap(bound=3.0), rng.normal(size=(13, 13)))
    held, y = clip_of(0.8, step.shape), 100.0 * rng.normal(size=(101, 2))
    block, tables = coded_rows(rng, MIXED, 2.0), products_of(step, MIXED)
    for _ in range(3):
        wild = {name: 10.0 ** rng.uniform(0, 9) * rng.normal(size=np.shape(getattr(tables, name))) for name in WEIGHTS}
        kernel = ThreadSums(step, held).kernel
        kernel.begin_coded(CodedMapKernel(*tables._replace(**wild), block_rows=kernel.block_rows))
        squares = []
        for row in range(101):
            assert kernel.add_coded(block.numbers, block.codes, y, row, row + 1) == residual_step.ADDED
            squares.append(sum(int(entry) ** 2 for entry in kernel.take()[0].flat))
        assert 0.99 * held.squared_bound < max(squares) <= held.squared_bound


WEIGHTS = ("of_numbers", "of_slots", "absent", "constant")


def test_rows_with_codes_that_do_not_fit_are_refused():
    rng = np.random.default_rng(13)
    step = ResidualStep(rng.normal(size=(13, 1)), RowMap(bound=2.0), RowMap(bound=3.0), rng.normal(size=(2, 13)))
    block, y, thread = (
        coded_rows(rng, MIXED, 2.0),
        rng.normal(size=(101, 1)),
        ThreadSums(step, clip_of(0.8, step.shape)),
    )
    begin_coded(thread, products_of(step, MIXED))
    kernel = thread.kernel
    with pytest.raises(IndexError):
        kernel.add_coded(block.numbers, block.codes, y, 0, 102)
    with pytest.raises(IndexError):
        kernel.add_coded(block.numbers, [codes[:5] for codes in block.codes], y, 0, 10)
    with pytest.raises(ValueError, match="another layout"):
        kernel.add_coded(block.numbers[:, :1], block.codes, y, 0, 10)
    with pytest.raises(ValueError, match="another number of columns"):
        kernel.add_coded(block.numbers, block.codes, np.hstack([y, y]), 0, 10)
    with pytest.raises(ValueError, match="other shapes"):
        CodedMapKernel(*products_of(step, MIXED)._replace(absent=np.zeros(3)))
    with pytest.raises(ValueError, match="other shapes"):
        kernel.begin_coded(CodedMapKernel(*products_of(step, MIXED), block_rows=3))
    with pytest.raises(ValueError, match="not been begun"):
        ThreadSums(step, clip_of(0.8, step.shape)).kernel.add_coded(block.numbers, block.codes, y, 0, 10)
    for value, table in ((np.nan, block.numbers), (np.inf, y)):
        table[7] = value
        expected = residual_step.X_NOT_FINITE if table is block.numbers else residual_step.Y_NOT_FINITE
        assert kernel.add_coded(block.numbers, block.codes, y, 0, 101) == expected
        table[7] = 0.0
