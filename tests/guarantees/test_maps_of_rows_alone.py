"""What becomes of a row depends on that row alone, to the bit: every map, layout and split of a table."""

import importlib
import inspect
import itertools
import math
import pkgutil
import warnings
from fractions import Fraction
from functools import partial
from inspect import signature

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference.rows import ARRAYS, TABLES, map_row

import dpfast
from dpfast import io
from dpfast.kernels.row_maps import RowMapKernel
from dpfast.multi_outcome.mechanism import NONNEGATIVE
from dpfast.releases.objective_bounds import TableLoss
from dpfast.releases.pursuit import _SomeColumns
from dpfast.solvers import SmoothedHuber
from dpfast.sparse_regression.mechanism import top_entries, whole_row_bound
from dpfast.statistics import GramAccumulator, Grid, gram
from dpfast.statistics.rows import (
    MOST_COLUMNS,
    NORM_SLACK,
    SMALLEST_BOUND,
    MapIntoRoom,
    RowMap,
    centred,
    clipped_to_norm,
    scaled,
)
from dpfast.synthetic_control.donor_weights import BoundedPanel, PanelBounds
from dpfast.synthetic_control.mechanism import DonorRows, PredictorMap, Predictors

WIDTH = 27
_rng = np.random.default_rng(0)
LOW, HIGH = -_rng.uniform(0.5, 3.0, WIDTH), _rng.uniform(0.5, 3.0, WIDTH)
BASIS = np.linalg.qr(_rng.normal(size=(WIDTH, 5)))[0]
DONORS = DonorRows(0.3, 1.7, WIDTH - 4, 4, 2.0, 1.0, center=_rng.uniform(-0.4, 0.4, WIDTH), basis=BASIS[:-4])
PREDICTORS = Predictors.of({"one": (-2.0, 3.0), "another": (0.0, 1.0, 0.3)}).mapping(0.3, 1.7, -1.0)
PANEL = PanelBounds.of(9, WIDTH - 1, np.ones(1), (1.0, 2.0))


def _donor_rows(rows):
    parts = np.split(np.asarray(rows), [DONORS.n_pre], axis=1)
    return np.hstack([one(part) for one, part in zip(DONORS.maps, parts, strict=True)])


def _panel_rows(rows):
    donors = np.hstack([np.zeros((len(rows), 1)), rows])
    return BoundedPanel.of(donors, np.ones(1), PANEL, 0.3, 1.7).post


def _minimiser_rows(rows):
    return TableLoss(SmoothedHuber(), 2.0, 1.0, 0.5).bounded(np.asarray(rows), np.zeros((len(rows), 1)))[0]


#: Everything that private rows pass through before they are summed. A map that is not listed is not tested: the classes
#: of maps are compared with what the package has.
ROOM = scaled(LOW, HIGH, 2.0)[0].reusing_room()


def _rows_in_room(rows):
    """What a map whose results hold until the next call makes of rows."""
    return ROOM(rows).copy()


MAPS = {
    "clip": RowMap(LOW, HIGH),
    "nonnegative": NONNEGATIVE,
    "norm": RowMap(bound=2.0),
    "clip, norm and centre": centred(LOW, HIGH, 2.0)[0],
    "clip and centre": centred(LOW, HIGH)[0],
    "clip, norm and units": scaled(LOW, HIGH, 2.0)[0],
    "top entries": top_entries(12),
    "clipped_to_norm": partial(clipped_to_norm, bound=2.0),
    "basis": RowMap(bound=2.0, basis=BASIS),
    "in room used again": _rows_in_room,
    "some columns": _SomeColumns(RowMap(bound=2.0), RowMap(bound=2.0).reusing_room(), [3, 0]),
    "donors": _donor_rows,
    "predictors": PREDICTORS,
    "predictors of donors": lambda rows: PREDICTORS(np.asarray(rows), clips=True),
    "panel": _panel_rows,
    "rows of a minimiser": _minimiser_rows,
}


def test_every_class_of_maps_is_tested():
    """Whatever is called with rows: a new one has to be listed in MAPS."""
    modules = [module.name for module in pkgutil.walk_packages(dpfast.__path__, "dpfast.")]
    members = [vars(importlib.import_module(name)).values() for name in modules if name != "dpfast.__main__"]
    classes = {one for one in itertools.chain(*members) if isinstance(one, type)}
    calls = {one: vars(one).get("__call__") for one in classes}
    found = {one for one, call in calls.items() if inspect.isfunction(call) and "rows" in signature(call).parameters}
    assert found - {MapIntoRoom} == {RowMap, _SomeColumns, PredictorMap} == {type(one) for one in MAPS.values()} & found
    assert type(ROOM) is MapIntoRoom


def assert_same_bits(found, expected):
    np.testing.assert_array_equal(np.asarray(found).view(np.int64), np.asarray(expected).view(np.int64))


def many_rows(n, rng):
    """Rows whose norms, summed in another order, would be other doubles; short ones and long ones."""
    return rng.normal(size=(n, WIDTH)) * 10.0 ** rng.uniform(-1.0, 1.5, size=(n, 1))


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mapped_row_does_not_depend_on_what_is_beside_it_nor_on_the_layout(name, dtype):
    row_map = MAPS[name]
    table = many_rows(150, np.random.default_rng(1)).astype(dtype)
    alone = np.concatenate([row_map(np.array(row[None])) for row in table])
    assert np.isfinite(alone).all()
    for layout, lay in ARRAYS.items():
        for size in (1, 2, 3, len(table)):
            if layout == "strided" and dtype == np.float32:
                continue
            for offset in (0, 1):
                starts = [0, offset, *range(offset + size, len(table), size), len(table)]
                blocks = [row_map(lay(table[a:b])) for a, b in itertools.pairwise(starts) if b > a]
                assert_same_bits(np.concatenate(blocks), alone)


LONGEST = 2.0 * math.sqrt(WIDTH)


def rows_at_ties(row_map, rows):
    """Pairs of rows, one entry a unit in the last place apart, of which the grid rounds one down and the other up.

    Their norm in another order is another double, which moves one of the two across the tie.
    """
    unit = 2.0 ** -Grid.for_bounds(LONGEST).exponent_x
    found = []
    for row in rows:

        def with_first(entry, row=row):
            return np.concatenate([[entry], row[1:]])

        def place(entry, with_first=with_first):
            return row_map(with_first(entry)[None])[0, 0] / unit

        low, high = sorted((row[0] * (1.0 - 2.0**-12), row[0] * (1.0 + 2.0**-12)))
        tie, rises = math.floor(place(row[0])) + 0.5, place(low) < place(high)
        while low < (middle := (low + high) / 2.0) < high:
            low, high = (middle, high) if (place(middle) < tie) == rises else (low, middle)
        found += [with_first(low), with_first(high)]
    return np.array(found)


@pytest.mark.parametrize("name", MAPS)
def test_one_person_more_moves_nobody_elses_integers(name):
    """The sum over a table, less that of the one person who came, is that of the others; and each one's own add up."""
    row_map = MAPS[name]
    table = rows_at_ties(row_map, many_rows(20, np.random.default_rng(2)))
    outcomes = np.linspace(-1.0, 1.0, len(table))[:, None]
    n_features = row_map(table[:1]).shape[1]
    bounds = {"bound_x": LONGEST, "bound_y": 1.0, "sums": True, "n_threads": 1}

    def sums(x, y):
        accumulator = GramAccumulator(n_features, 1, **bounds).mapped_by(row_map, None)
        for x_block, y_block in io.open_table(x, y).blocks():
            accumulator.update(x_block, y_block)
        return accumulator.gram()

    def in_blocks(lay, size):
        starts = range(0, len(table), size)
        return sums(((lay(table[a : a + size]), outcomes[a : a + size]) for a in starts), None)

    alone = [sums(np.array(row[None]), y[None]) for row, y in zip(table, outcomes, strict=True)]
    everybody = alone[0]
    for one in alone[1:]:
        everybody = everybody + one
    for lay in TABLES.values():
        x = lay(table)
        assert sums(x, outcomes) == everybody
        assert sums(lay(table[1:]), outcomes[1:]) + alone[0] == everybody
        assert sums(lay(table[:-1]), outcomes[:-1]) + alone[-1] == everybody
    for layout in ("C order", "Fortran order", "strided", "negative strides"):
        for size in (1, 2, 3):
            assert in_blocks(ARRAYS[layout], size) == everybody


def test_the_rows_found_to_move_others_no_longer_do():
    """A stream of blocks of one row and of two: 200 equal entries, whose norm differs by the order of its sum."""
    d, entry = 200, float.fromhex("0x1.fffff6b448565p+1")
    row_map, radius = centred(2 * np.ones(d), 4 * np.ones(d), float.fromhex("0x1.c48c51dd8daacp+5"))
    row, centre = np.full(d, entry), np.full(d, 3.0)
    rows = [row if i % 3 == 0 else centre for i in range(60)]

    def stream(table):
        place = 0
        for size in itertools.cycle((1, 2)):
            if place >= len(table):
                return
            yield np.asfortranarray(np.array(table[place : place + size]))
            place += size

    def moments(table):
        return gram(stream(table), bound_x=radius, map_x=row_map, n_threads=1)

    assert moments([row, *rows]) == moments([row]) + moments(rows)


def test_top_entries_found_to_move_others_no_longer_do():
    """A search for a row that a block of three rounds elsewhere than a block of its own."""
    rng = np.random.default_rng(0)
    top = top_entries(10)
    rows = rng.normal(size=(2000, 40)) * np.where(np.arange(40) < 10, 50.0, 1.0)
    for row in rows:
        assert_same_bits(top(np.asfortranarray(np.vstack([row] * 3)))[:1], top(row[None]))


ENTRIES = st.one_of(
    st.floats(-10.0, 10.0),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, -1e308, 1e308, 2.0**-538, 2.0**511, 2.0**512, 1.0]),
)
OPTIONS = [
    {"bound": 2.0},
    {"bound": 2.0, "top": 1},
    {"bound": 2.0, "top": 5},
    {"bound": SMALLEST_BOUND, "top": 11},
    {"bound": 1.7e308},
    {"bound": 1e-200, "low": LOW[:11], "high": HIGH[:11]},
    {"low": LOW[:11], "high": HIGH[:11], "center": BASIS[:11, 0], "offset": 0.25, "unit": 3.0},
    {"bound": 3.0, "center": BASIS[:11, 0], "basis": BASIS[:11]},
]


@given(arrays(np.float64, (3, 11), elements=ENTRIES), st.sampled_from(OPTIONS), st.sampled_from([0, 1, 2]))
def test_the_kernel_is_its_plain_twin_at_every_vector_width(rows, options, level):
    kernel = RowMapKernel(11, **options, level=level)
    out = np.empty((3, kernel.n_features))
    assert kernel.map_rows(rows, out, 0, 3)
    assert_same_bits(out + 0.0, np.array([map_row(row, **options) for row in rows]) + 0.0)


EXTREMES = (1e308, -1.7e308, 5e-324, -(2.0**-1022), 2.0**-540, 2.0**-511, 1e-160, 1e160, 1.0, 0.0)


def extreme_rows(width):
    """Rows of one extreme entry, of all alike, of any two mixed, of all of them in turn, and of zeros."""
    rows = [np.zeros(width)]
    for one, other in itertools.product(EXTREMES, repeat=2):
        rows += [np.full(width, one), np.where(np.arange(width) % 2, one, other), np.eye(width)[3] * one]
    return np.array([*rows, np.resize(EXTREMES, width)])


def squared_top(row, top):
    return sum(sorted((Fraction(float(value)) ** 2 for value in row), reverse=True)[:top])


@pytest.mark.parametrize("bound", [SMALLEST_BOUND, 3e-308, 1e-200, 1e-30, 1.0, 2.0, 3.7e5, 1e200, 1.5e308])
@pytest.mark.parametrize("top", [1, 7, WIDTH])
def test_extreme_rows_are_held_to_any_bound_without_a_warning(bound, top):
    rows = extreme_rows(WIDTH)
    lengths = [squared_top(row, top) for row in rows]
    for table in (rows, np.asfortranarray(rows)):
        with np.errstate(all="raise"), warnings.catch_warnings():
            warnings.simplefilter("error")
            mapped = RowMap(bound=bound, top=top)(table)
        assert np.isfinite(mapped).all()
        limit = (Fraction(bound) * (1 + Fraction(3, 4) * Fraction(NORM_SLACK))) ** 2
        shortest = (Fraction(bound) * (1 - Fraction(NORM_SLACK))) ** 2
        for before, before_length, after in zip(rows, lengths, mapped, strict=True):
            length = squared_top(after, top)
            assert length <= limit
            if before_length <= Fraction(bound) ** 2:
                np.testing.assert_array_equal(before, after)
            else:
                assert length >= shortest


@pytest.mark.parametrize("name", MAPS)
def test_no_map_warns_of_extreme_entries(name):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for lay in ARRAYS.values():
            assert np.isfinite(MAPS[name](lay(extreme_rows(WIDTH)))).all()


@given(arrays(np.float64, (4, WIDTH), elements=st.floats(-3.0, 3.0)), st.sampled_from([1, 7, WIDTH]))
def test_rows_near_their_bound_stay_within_the_slack(rows, top):
    """Bounds a few units in the last place from a row's own norm, where rounding decides."""
    for row in rows:
        norm = math.sqrt(float(squared_top(row, top)))
        for bound in (norm * (1.0 + k * 2.0**-52) for k in (-3, 0, 3, 2**20, -(2**20), -(2**21), -(2**22))):
            if bound >= SMALLEST_BOUND:
                mapped = RowMap(bound=bound, top=top)(row[None])[0]
                limit = (Fraction(bound) * (1 + Fraction(3, 4) * Fraction(NORM_SLACK))) ** 2
                assert squared_top(mapped, top) <= limit
                assert squared_top(row, top) > Fraction(bound) ** 2 or np.array_equal(mapped, row)


def test_the_slack_covers_every_rounding_of_the_longest_rows():
    """The inequalities of row_map.c, in exact arithmetic."""
    u, k = Fraction(1, 2**53), MOST_COLUMNS // 8 + 9
    gamma, slack, under = k * u / (1 - k * u), Fraction(NORM_SLACK), Fraction(1, 2**40)
    most = (1 + Fraction(3, 4) * slack) ** 2
    # Left as it is: the computed square of the norm was within that of the bound, with its slack.
    assert (1 + slack) * (1 + u) ** 2 / (1 - gamma) + under < most
    # And it is, where the norm is within the bound.
    assert (1 + gamma) + under < (1 + slack) * (1 - u) ** 2
    # Scaled: a root, a quotient and a product more, and what underflows.
    assert (1 + u) ** 6 / (1 - gamma) * (1 + under) ** 2 < most
    # What calibrations round off is less than the rest of the slack.
    assert (1 + Fraction(3, 4) * slack) * (1 + 4 * u) < 1 + slack


def test_calibrations_allow_for_the_slack():
    bounds = PanelBounds.of(9, WIDTH - 1, np.ones(1), (0.9, 2.0))
    donors = np.hstack([np.full((9, 1), 1e5), many_rows(9, np.random.default_rng(3))])
    mapped = BoundedPanel.of(donors, np.ones(1), bounds)
    for rows, most in ((mapped.pre, bounds.row_pre), (mapped.post, bounds.row_post)):
        assert max(squared_top(row, WIDTH) for row in rows) <= Fraction(most) ** 2
    alike = Fraction(top_entries(7).bound) * (1 + Fraction(3, 4) * Fraction(NORM_SLACK))
    assert Fraction(whole_row_bound(7, WIDTH)) ** 2 >= alike**2 * Fraction(WIDTH, 7)


def test_missing_entries_are_at_the_centre_and_infinite_ones_refused():
    centre = np.array([0.5, -0.25])
    row_map = RowMap(-np.ones(2), np.ones(2), center=centre, offset=1.0, unit=2.0, fills=True)
    mapped = row_map(np.array([[np.nan, 2.0], [np.nan, np.nan], [np.inf, 0.0], [1e308, -1e308]]))
    np.testing.assert_array_equal(mapped, [[0.0, 0.75], [0.0, 0.0], [np.nan, np.nan], [0.5, -0.75]])
    np.testing.assert_array_equal(RowMap(fills=True)(np.array([[np.nan, 2.0]])), [[0.0, 2.0]])
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        gram(np.array([[np.inf, 0.0]]), bound_x=2.0, map_x=row_map)


def test_numbers_beyond_double_are_refused_without_a_warning():
    wide = np.array([[1.0, np.longdouble("1e4000")]], np.longdouble)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(RowMap(bound=1.0)(wide)).all()
        for options in ({}, {"map_x": RowMap(bound=1.0)}):
            with pytest.raises(ValueError, match="X contains NaN or infinity"):
                gram(wide, bound_x=1.0, **options)
        with pytest.raises(ValueError, match="X contains NaN or infinity"):
            TableLoss(SmoothedHuber(), 1.0).bounded(wide, np.ones((1, 1)))


def test_threads_map_the_same_rows_and_all_of_them():
    rows = many_rows(60_000, np.random.default_rng(4))
    one, two = np.empty(rows.shape), np.empty((len(rows), WIDTH + 1))[:, :WIDTH]
    row_map = RowMap(LOW, HIGH, 2.0)
    assert row_map.into(rows, one, 1)
    assert row_map.into(np.asfortranarray(rows), two, 3)
    assert_same_bits(np.ascontiguousarray(two), one)
    rows[-1, 3] = np.nan
    assert not row_map.into(rows, one, 3)


def test_a_map_refuses_what_it_cannot_hold():
    for bound in (0.0, -1.0, math.nan, 5e-324):
        with pytest.raises(ValueError, match="bound must be at least"):
            RowMap(bound=bound)
    with pytest.raises(ValueError, match="at most 16,777,216 entries"):
        RowMap(bound=1.0)(np.lib.stride_tricks.as_strided(np.zeros(1), (1, MOST_COLUMNS + 1), (0, 0)))
    kernel = RowMapKernel(2)
    for rows, out, stop in (((2, 2), (1, 2), 2), ((1, 2), (1, 2), 2)):
        with pytest.raises(IndexError):
            kernel.map_rows(np.zeros(rows), np.zeros(out), 0, stop)
    for rows, out in (((1, 3), (1, 2)), ((1, 2), (1, 3))):
        with pytest.raises(ValueError, match="other numbers of columns"):
            kernel.map_rows(np.zeros(rows), np.zeros(out), 0, 1)
    with pytest.raises(ValueError, match="adjacent"):
        kernel.map_rows(np.zeros((1, 2)), np.zeros((1, 4))[:, ::2], 0, 1)
    with pytest.raises(ValueError, match="top"):
        RowMapKernel(2, top=3)
    with pytest.raises(ValueError, match="basis"):
        RowMapKernel(2, basis=np.ones((3, 1)))
