"""Sums over people who own several rows: the exact twin, what must not change a bit, how far one person moves them."""

import itertools
import math
import pickle
from collections import deque
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import climb, row_in_ball
from reference.people import kept_rows, people_sums

from dpfast.io.people import people
from dpfast.kernels.columns import FixedPoint
from dpfast.privacy import MomentScales, block_moment_mu, person_moment_mu
from dpfast.statistics import PersonUnit, gram, person_block_bounds, rounded_bound
from dpfast.statistics.rows import Layout, block_limits

BOUNDS = {"bound_x": 2.0, "bound_y": 0.7}
TIGHT = {"bound_xx": 6.0, "bound_xy": 1.5}


@dataclass(frozen=True)
class Pair:
    one: object
    other: object


class Site(Enum):
    BERN = 1
    BASEL = 2


# What is not equal to itself, or to nothing else.
MISSING = [
    None,
    math.nan,
    np.float32("nan"),
    Decimal("nan"),
    pd.NaT,
    pd.NA,
    np.datetime64("NaT", "s"),
    complex(0, math.nan),
]
WITHOUT_EQUALITY = [object(), lambda: 1, Pair, iter(())]


def data(n_people=40, most=9, n_features=4, n_outcomes=2, seed=0, *, consecutive=False):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_people) * 7 - 30, rng.integers(1, most + 1, n_people))
    if not consecutive:
        rng.shuffle(groups)
    direction = rng.standard_normal((n_people, n_features))[(groups + 30) // 7]
    X = direction + 0.5 * rng.standard_normal((len(groups), n_features))
    return X, rng.standard_normal((len(groups), n_outcomes)), groups


def limits_of(d, m, *, bound_x, bound_y, max_rows, bound_xx=None, bound_xy=None):
    unit = PersonUnit(max_rows, bound_xx, bound_xy)
    return block_limits(unit, Layout(d, m, bound_x, bound_y)._tables())


def assert_is_twin(moments, X, Y, groups, **declared):
    limits = limits_of(X.shape[1], Y.shape[1], **declared)
    bounds = {name: declared[name] for name in ("max_rows", "bound_x", "bound_y")}
    xx, xy, blocks = people_sums(X, Y, groups, limits_xx=limits.xx, limits_xy=limits.xy, **bounds)
    k_x, k_y = moments.grid.exponent_x, moments.grid.exponent_y
    assert moments.exact_xx == FixedPoint.from_integers(xx, -2 * k_x)
    assert moments.exact_xy == FixedPoint.from_integers(xy, -(k_x + k_y))
    assert moments.n_people == len(blocks)
    assert moments.n_rows == sum(map(len, kept_rows(groups, declared["max_rows"])))
    return blocks


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("max_rows", [1, 4, 9, 50])
@pytest.mark.parametrize("tight", [{}, {"bound_xx": 6.0}, {"bound_xy": 1.5}, TIGHT, {"bound_xx": 1e-9}], ids=str)
def test_equals_the_twin(n_threads, consecutive, max_rows, tight):
    X, Y, groups = data(consecutive=consecutive)
    declared = BOUNDS | tight | {"max_rows": max_rows}
    assert_is_twin(gram(X, Y, groups=groups, n_threads=n_threads, **declared), X, Y, groups, **declared)


@pytest.mark.parametrize(("n_features", "n_outcomes"), [(1, 1), (3, 9), (9, 1), (33, 2)])
@pytest.mark.parametrize("most", [1, 70, 300])
def test_shapes_and_people_longer_than_a_pack_equal_the_twin(n_features, n_outcomes, most):
    X, Y, groups = data(3, most, n_features, n_outcomes, seed=most)
    declared = BOUNDS | {"max_rows": 280, "bound_xx": 20.0, "bound_xy": 4.0}
    assert_is_twin(gram(X, Y, groups=groups, **declared), X, Y, groups, **declared)


@pytest.mark.parametrize(("n_people", "n_rows"), [(2, 1400), (100, 30)])
def test_people_of_more_rows_than_doubles_sum_exactly_equal_the_twin(n_people, n_rows):
    """One person's, or those of people whose blocks are gathered."""
    groups = np.repeat(np.arange(n_people), n_rows)
    # Near the bound, 2: some 500 rows fill the integers that doubles hold.
    X = np.array([1.9, 0.1, 0.1]) + np.random.default_rng(0).uniform(0.0, 0.05, (len(groups), 3))
    for bound_xx in (3.9 * n_rows, 2.8 * n_rows):
        declared = BOUNDS | {"max_rows": n_rows, "bound_xx": bound_xx}
        assert_is_twin(gram(X, X[:, :2], groups=groups, **declared), X, X[:, :2], groups, **declared)


def test_people_without_outcomes():
    X, _, groups = data()
    zeros = np.zeros((len(X), 1))
    for tight in ({}, {"bound_xx": 6.0}):
        alone = gram(X, bound_x=2.0, groups=groups, max_rows=5, **tight)
        assert alone.exact_xx == gram(X, zeros, **BOUNDS, groups=groups, max_rows=5, **tight).exact_xx
        assert alone.xy is None
        assert alone.block_bounds.xy is None


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_threads=st.integers(1, 3),
    kind=st.sampled_from(["f8", "f4", "i8", "F", "strided", "U", "object", "mixed", "dates", "series", "arrow"]),
    tight=st.sampled_from([{}, TIGHT]),
)
def test_order_of_people_threads_layouts_and_kinds_of_ids_change_nothing(seed, n_threads, kind, tight):
    X, Y, groups = data(seed=seed)
    if kind == "f4":
        X = X.astype("f4").astype("f8")
    if kind == "i8":
        X = np.round(X)
    expected = gram(X, Y, **BOUNDS, **tight, groups=groups, max_rows=4, n_threads=1)
    rng = np.random.default_rng(seed)
    # People in another order, everybody's rows in theirs.
    order = np.argsort(rng.permutation(groups.max() + 31)[groups + 30], kind="stable")
    if seed % 2:
        X, Y, groups = X[order], Y[order], groups[order]
    ids = {
        "U": lambda: groups.astype("U"),
        "object": lambda: groups.astype(object),
        "mixed": lambda: np.array([str(g) if g % 2 else (int(g),) for g in groups] + [None], object)[:-1],
        "dates": lambda: groups.astype("M8[D]"),
        "series": lambda: pd.Series(groups.astype(str), dtype="category"),
        "arrow": lambda: pa.chunked_array([groups[:5], groups[5:]]),
        "f8": lambda: groups.astype(float).tolist(),
        "i8": lambda: groups.astype("i1") if groups.max() < 128 else groups,
    }.get(kind, lambda: groups)()
    layouts = {
        "f4": lambda a: a.astype("f4") if np.array_equal(a.astype("f4"), a) else a,
        "i8": lambda a: a.astype("i8") if np.array_equal(np.round(a), a) else a,
        "F": np.asfortranarray,
        "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    }
    change = layouts.get(kind, lambda a: a)
    assert gram(change(X), change(Y), **BOUNDS, **tight, groups=ids, max_rows=4, n_threads=n_threads) == expected


IDS = [
    *(1, 1.0, True, np.int64(1), np.float32(1.0), np.bool_(True), Fraction(1), Decimal(1)),
    *("1", np.str_("1"), "1.0", "True", b"1", np.bytes_(b"1"), "", " 1", "nan", "None"),
    *(0, -0.0, False, 2**53, 2**53 + 1, float(2**53), np.uint64(2**63), -(2**70), 0.5, math.inf, -1),
    *(
        (),
        (1,),
        (1.0,),
        ("1",),
        (1, "a"),
        frozenset([1]),
        frozenset([1.0]),
        Pair(1, "a"),
        Pair(1.0, "a"),
        Pair("1", "a"),
    ),
    *(Site.BERN, Site.BASEL, date(2020, 1, 1), datetime(2020, 1, 1), pd.Timestamp(2020, 1, 1), UUID(int=1)),
]


def partition(found):
    """Which rows are one person's, as sets."""
    order = np.arange(found.n_rows) if found.order is None else found.order
    return {frozenset(order[a:b].tolist()) for a, b in itertools.pairwise(found.offsets)}


@settings(max_examples=200, deadline=None)
@given(places=st.lists(st.integers(0, len(IDS) - 1), min_size=1, max_size=30), other=st.integers(0, len(IDS) - 1))
def test_ids_are_one_persons_if_they_are_equal_whoever_else_is_there(places, other):
    ids = [IDS[place] for place in places]
    # NumPy's numbers compare as arrays where the other one is a sequence: as Python's they compare as one value.
    plain = [one.item() if isinstance(one, np.generic) else one for one in ids]
    expected = {frozenset(row for row, two in enumerate(plain) if two == one) for one in plain}
    for kind in (list, tuple, deque, lambda all_of: np.array([*all_of, None], object)[:-1]):
        assert partition(people(kind(ids), 100)) == expected
        # Another person's row, of whatever kind its id is, leaves everybody else's as they were.
        more = partition(people(kind([*ids, IDS[other]]), 100))
        assert {rows - {len(ids)} for rows in more} - {frozenset()} == expected
    for own in ids:
        if isinstance(own, int) and abs(own) < 2**62:
            assert partition(people(np.array([own, own, own + 1]), 9)) == partition(people([own, own, own + 1], 9))


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_instruction_levels_agree(level, monkeypatch):
    X, Y, groups = data(n_features=25, n_outcomes=7)
    expected = gram(X, Y, **BOUNDS, **TIGHT, groups=groups, max_rows=6)
    monkeypatch.setenv("DPFAST_CPU", level)
    assert gram(X, Y, **BOUNDS, **TIGHT, groups=groups, max_rows=6, n_threads=2) == expected


def test_many_people_over_threads_and_more_rows_than_fit_64_bits():
    rng = np.random.default_rng(0)
    groups = np.sort(rng.integers(0, 60_000, 400_000))
    X, Y = np.full((400_000, 3), 1.0), rng.standard_normal((400_000, 1))
    shared = BOUNDS | {"groups": groups, "max_rows": 20}
    tight = gram(X, Y, **shared, bound_xx=30.0, n_threads=1)
    assert gram(X, Y, **shared, bound_xx=30.0, n_threads=3) == tight
    # Rows of norm sqrt(3): ten of them reach the bound, so everybody's xx is 3 min(rows, 10) in norm, rank one.
    counts = np.minimum(np.bincount(groups), 20)
    assert tight.xx[0, 0] == pytest.approx(np.minimum(counts, 10).sum(), rel=1e-5)


def test_without_block_bounds_it_is_the_plain_gram_of_the_rows_that_count(tmp_path):
    X, Y, groups = data()
    kept = np.sort(np.concatenate(kept_rows(groups, 3)))
    plain = gram(X[kept], Y[kept], **BOUNDS, sums=True)
    np.save(tmp_path / "x.npy", X)
    edges = [0, 10, 10, 90, len(X)]
    stream = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(edges)]
    shared = BOUNDS | {"groups": groups, "max_rows": 3, "sums": True}
    for found in (
        gram(X, Y, **shared),
        gram(iter(stream), **shared),
        gram(tmp_path / "x.npy", Y, **shared),
        gram(X, Y, **shared, map_x=lambda block: block * 1.0),
        # Bounds that the rows' bounds imply change nothing.
        gram(X, Y, **shared, bound_xx=3 * 2.0**2, bound_xy=5.0),
    ):
        assert found.exact_xx == plain.exact_xx
        assert found.exact_xy == plain.exact_xy
        assert found.exact_x_sum == plain.exact_x_sum
        assert found.n_rows == plain.n_rows
        assert found.unit == PersonUnit(3)


def test_rows_beyond_the_first_do_not_count_and_need_not_be_finite():
    X, Y, groups = data(5, 8, seed=3)
    last = np.setdiff1d(np.arange(len(X)), np.concatenate(kept_rows(groups, 2)))
    spoiled = X.copy()
    spoiled[last] = np.nan
    for tight in ({}, {"bound_xx": 5.0}):
        shared = BOUNDS | tight | {"groups": groups, "max_rows": 2}
        assert gram(spoiled, Y, **shared) == gram(X, Y, **shared)
        with pytest.raises(ValueError, match=r"^X contains NaN or infinity: put a public number [^0-9]*$"):
            gram(spoiled, Y, **shared | {"max_rows": 8} | ({"bound_xx": 5.0} if tight else {}))


def test_maps_apply_before_the_bounds():
    X, Y, groups = data()
    half = lambda block: block / 2  # noqa: E731
    shared = BOUNDS | TIGHT | {"groups": groups, "max_rows": 6}
    assert gram(X, Y, **shared, map_x=half, map_y=half) == gram(X / 2, Y / 2, **shared)


def hill_climbed_people(unit, scales, bounds, rng, *, rows=2, shape=(4, 1), **effort):
    """Rows of the two people found by climbing: in doubles, since the grid has no gradient."""
    d, m = shape
    size = rows * (d + m)
    limits = [unit.get("bound_xx", math.inf), unit.get("bound_xy", math.inf)]

    def person(parameters):
        x, y = np.split(parameters.reshape(rows, d + m), [d], axis=1)
        x = np.array([row_in_ball(row, bounds["bound_x"]) for row in x])
        return x, np.array([row_in_ball(row, bounds["bound_y"]) for row in y])

    def block(x, y):
        a, b = x.T @ x, x.T @ y
        factor = min(1.0, limits[0] / max(np.linalg.norm(a), 1e-9), limits[1] / max(np.linalg.norm(b), 1e-9))
        return factor * a / scales.xx, factor * b / scales.xy

    def change(p):
        ours, theirs = block(*person(p[:size])), block(*person(p[size:]))
        return math.sqrt(sum(np.sum((one - other) ** 2) for one, other in zip(ours, theirs, strict=True)))

    _, worst = climb(change, 2 * size, rng, **effort)
    return person(worst[:size]), person(worst[size:])


def exact_distance(ours, theirs, scales):
    """The distance from exact integers, where doubles would lose what is asked."""
    squares = []
    for block in ("exact_xx", "exact_xy"):
        one, other = getattr(ours, block), getattr(theirs, block)
        units = [one.integer(i) - other.integer(i) for i in np.ndindex(one.shape)]
        squares.append(sum(u * u for u in units) * 4.0**one.exponent)
    return math.sqrt(squares[0] / scales.xx**2 + squares[1] / scales.xy**2)


@pytest.mark.parametrize(
    "tight", [{}, {"bound_xx": 2.2}, {"bound_xy": 1.1}, {"bound_xx": 2.2, "bound_xy": 1.1}], ids=str
)
def test_climbing_over_real_people_never_passes_the_bound(tight):
    bounds = {"bound_x": 1.2, "bound_y": 0.8}
    unit = {"max_rows": 2} | tight
    declared = person_block_bounds(n_features=4, n_outcomes=1, **bounds, **unit)
    for seed, scales in enumerate([MomentScales(xx=1.0, xy=1.0), MomentScales(xx=3.0, xy=0.5)]):
        mu = block_moment_mu(scales, declared, adjacency="replace_one")
        pair = hill_climbed_people(unit, scales, bounds, np.random.default_rng(seed), restarts=1, screened=30)
        ours, theirs = (gram(x, y, **bounds, **unit, groups=[0, 0]) for x, y in pair)
        ratio = exact_distance(ours, theirs, scales) / mu
        assert 0.9 < ratio <= 1.0, (ratio, tight, scales)


def worst_people(declared, bounds, scales, max_rows):
    """The people of privacy.block_moments who attain the bound: e + f, e - f against e' + f', e' - f'."""
    xx, xy, g = declared.xx, declared.xy, declared.outcomes
    xy = min(xy, g * math.sqrt(xx))
    kappa = (xy**2 / (g**2 * xx)) ** 2
    cosine = min(1.0, scales.xx**2 * g**2 / (2.0 * scales.xy**2) / (xy**2 / g**2))
    along, across = math.sqrt(kappa) * xx, math.sqrt(max(0.0, 1.0 - kappa)) * xx
    signs = np.resize([1.0, -1.0], max_rows)[:, None] / math.sqrt(max_rows)
    ones = np.full((max_rows, 1), 1.0 / math.sqrt(max_rows))
    e, e_other, f, f_other = np.eye(4)
    e_other = cosine * e + math.sqrt(1.0 - cosine**2) * e_other
    ours = ones * math.sqrt(along) * e + signs * math.sqrt(across) * f
    theirs = ones * math.sqrt(along) * e_other + signs * math.sqrt(across) * f_other
    assert np.linalg.norm(ours, axis=1).max() <= bounds["bound_x"] * (1 + 1e-6)
    return ours, theirs, np.full((max_rows, 1), bounds["bound_y"])


@pytest.mark.parametrize("max_rows", [2, 50])
@pytest.mark.parametrize(("share_xx", "share_xy"), [(1.0, 1.0), (0.5, 0.7), (0.3, 0.1), (0.6, 0.5)])
@pytest.mark.parametrize("noise", [(1.0, 1.0), (0.2, 3.0), (3.0, 0.2)])
def test_a_person_with_many_rows_attains_the_bound_and_never_passes_it(max_rows, share_xx, share_xy, noise):
    """Fifty rows protected as one: the worst people, built from real rows, move the sums by the bound."""
    bounds = {"bound_x": 1.2, "bound_y": 0.8}
    largest_xx, largest_xy = max_rows * 1.2**2, max_rows * 1.2 * 0.8
    unit = {"max_rows": max_rows, "bound_xx": share_xx * largest_xx, "bound_xy": share_xy * largest_xy}
    declared = person_block_bounds(n_features=4, n_outcomes=1, **bounds, **unit)
    scales = MomentScales(xx=noise[0] * largest_xx, xy=noise[1] * largest_xy)
    x, x_other, y = worst_people(declared, bounds, scales, max_rows)
    # A bystander, and further rows of the person, which do not count.
    rows, extra = [0] * max_rows, [1, 0, 0]

    def sums(x, y):
        bystander = np.vstack([x, np.full((3, 4), 0.1)]), np.vstack([y, np.zeros((3, 1))])
        return gram(*bystander, **bounds, **unit, groups=rows + extra)

    distance = exact_distance(sums(x, y), sums(x_other, -y), scales)
    mu = block_moment_mu(scales, declared, adjacency="replace_one")
    assert 1.0 - 1e-5 <= distance / mu <= 1.0
    nobody = gram(np.zeros((1, 4)), np.zeros((1, 1)), **bounds, **unit, groups=[0])
    alone = gram(x, y, **bounds, **unit, groups=rows)
    mu = block_moment_mu(scales, declared, adjacency="add_remove")
    assert 1.0 - 1e-5 <= exact_distance(alone, nobody, scales) / mu <= 1.0


def test_rows_far_beyond_every_bound_stay_within_the_exact_bounds():
    rng = np.random.default_rng(0)
    bounds = {"bound_x": 1.2, "bound_y": 0.8}
    for max_rows, xx, xy in ((50, 20.0, 9.0), (50, 1e-3, 30.0), (7, 1e-9, 1e-9), (300, 40.0, 40.0)):
        unit = {"max_rows": max_rows, "bound_xx": xx, "bound_xy": xy}
        limits = limits_of(6, 3, **bounds, **unit)
        for rank in (1, 2, 6):
            X = rng.standard_normal((max_rows, rank)) @ rng.standard_normal((rank, 6)) * 10.0 ** rng.uniform(-1, 3)
            Y = X[:, :3] * rng.standard_normal(3) * 10.0
            one = gram(X, Y, **bounds, **unit, groups=np.zeros(max_rows))
            xx_squared, xy_squared = (
                sum(exact.integer(i) ** 2 for i in np.ndindex(exact.shape)) for exact in (one.exact_xx, one.exact_xy)
            )
            assert xx_squared <= limits.xx[1]
            assert xy_squared <= limits.xy[1]
            # Scaled onto the bound, not far below it.
            assert max(xx_squared / limits.xx[1], xy_squared / limits.xy[1]) > (1 - 1e-4 if min(xx, xy) > 1e-3 else 0.1)


def test_scaling_onto_the_bound_needs_no_second_attempt():
    """What padded_squared_block_bounds proves: the twin's first multiplier is within the padded bound."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        rows, scale = int(rng.integers(1, 40)), 10.0 ** rng.uniform(-8, 0)
        bounds = {"bound_x": 1.0, "bound_y": 1.0}
        unit = {"max_rows": rows, "bound_xx": rows * scale, "bound_xy": rows * 10.0 ** rng.uniform(-8, 0)}
        limits = limits_of(3, 2, **bounds, **unit)
        x = np.rint(rng.standard_normal((rows, 3)) * 2.0**20)
        y = np.rint(rng.standard_normal((rows, 2)) * 2.0**20)
        factor = min(limits.xx[0] / np.linalg.norm(x.T @ x), limits.xy[0] / np.linalg.norm(x.T @ y), 1.0)
        u, v = (np.rint(table * (math.sqrt(factor) * (1 - 2.0**-45))) for table in (x, y))
        assert np.sum((u.T @ u) ** 2) <= limits.xx[1]
        assert np.sum((u.T @ v) ** 2) <= limits.xy[1]


@settings(max_examples=60, deadline=None)
@given(
    max_rows=st.integers(1, 200),
    d=st.integers(1, 40),
    m=st.integers(1, 20),
    log_share=st.tuples(st.floats(-6, 0.1), st.floats(-6, 0.1)),
)
def test_padded_bounds_are_a_hair_above_the_declared_ones(max_rows, d, m, log_share):
    bounds = {"bound_x": 3.0, "bound_y": 0.3}
    xx, xy = max_rows * 9.0 * 10 ** log_share[0], max_rows * 0.9 * 10 ** log_share[1]
    found = person_block_bounds(max_rows, d, m, **bounds, bound_xx=xx, bound_xy=xy)
    rounded_x, rounded_y = rounded_bound(3.0, d), rounded_bound(0.3, m)
    most_xx, most_xy = max_rows * rounded_x**2, max_rows * rounded_x * rounded_y
    assert min(xx, max_rows * 9.0) * (1 - 1e-15) <= found.xx <= most_xx * (1 + 1e-15)
    assert min(xy, max_rows * 0.9) * (1 - 1e-15) <= found.xy <= most_xy * (1 + 1e-15)
    assert found.xx <= min(xx, most_xx) * (1 + 1e-2)
    assert found.outcomes == pytest.approx(math.sqrt(max_rows) * rounded_y, rel=1e-15)


def test_default_bounds_calibrate_as_rows_do():
    declared = person_block_bounds(50, 4, 1, **BOUNDS)
    scales = MomentScales(xx=70.0, xy=90.0)
    rounded = rounded_bound(2.0, 4), rounded_bound(0.7, 1)
    for adjacency in ("replace_one", "add_remove"):
        of_rows = person_moment_mu(scales, 50, *rounded, adjacency=adjacency, n_features=4)
        assert block_moment_mu(scales, declared, adjacency=adjacency) == pytest.approx(of_rows, rel=1e-12)


@pytest.mark.parametrize("broken", ["clip", "first rows", "pad", "rescale"])
def test_broken_copies_are_caught(broken):
    """Each property above fails for a twin with the one thing missing that it is there for."""
    X, Y, groups = data()
    declared = BOUNDS | TIGHT | {"max_rows": 4}
    limits = limits_of(4, 2, **declared)
    bounds = {name: declared[name] for name in ("bound_x", "bound_y")}
    options = {"limits_xx": limits.xx, "limits_xy": limits.xy, "max_rows": 4}
    options |= {
        "clip": {"limits_xx": (math.inf, 2**200), "limits_xy": (math.inf, 2**200)},
        "first rows": {"max_rows": 5},
        "pad": {"limits_xx": (limits.xx[0], int(limits.xx[0] ** 2 / 2))},
        "rescale": {"limits_xx": (limits.xx[0] * (1 + 1e-6), limits.xx[1])},
    }[broken]
    xx, _, _ = people_sums(X, Y, groups, **bounds, **options)
    found = gram(X, Y, groups=groups, **declared)
    assert found.exact_xx != FixedPoint.from_integers(xx, -2 * found.grid.exponent_x)


def test_order_within_a_person_matters_only_where_rows_are_dropped():
    X, Y, groups = data()
    back = np.arange(len(X))[::-1]
    for max_rows, same in ((9, True), (2, False)):
        shared = BOUNDS | TIGHT | {"max_rows": max_rows}
        found = gram(X[back].copy(), Y[back].copy(), groups=groups[back], **shared)
        assert (found == gram(X, Y, groups=groups, **shared)) is same


def test_sums_over_people_do_not_add():
    X, Y, groups = data()
    moments = gram(X, Y, groups=groups, max_rows=4, **BOUNDS)
    for other in (moments, gram(X, Y, **BOUNDS)):
        with pytest.raises(ValueError, match="somebody may be in both"):
            moments + other
        with pytest.raises(ValueError, match="somebody may be in both"):
            other + moments
    assert moments != gram(X, Y, groups=groups, max_rows=9, **BOUNDS)
    assert gram(X, Y, **BOUNDS) != gram(X, Y, groups=np.arange(len(X)), max_rows=1, **BOUNDS)
    twin = pickle.loads(pickle.dumps(moments))
    assert twin == moments
    assert (twin.unit, twin.n_people) == (PersonUnit(4), 40)
    assert gram(X, Y, **BOUNDS).block_bounds is None


def test_representations_hold_no_number_of_rows():
    X, Y, groups = data()
    assert str(len(X)) not in repr(gram(X, Y, groups=groups, max_rows=4, **BOUNDS))


@given(
    st.lists(st.integers(-5, 5), max_size=40), st.integers(1, 5), st.sampled_from(["i1", "i8", "u8", "f4", "U", "O"])
)
@settings(deadline=None)
def test_people_are_found(ids, max_rows, dtype):
    groups = np.array([abs(i) if dtype == "u8" else i for i in ids]).astype(dtype)
    found = people(groups, max_rows)
    order = np.arange(len(ids)) if found.order is None else found.order
    mine = {tuple(order[a:b].tolist()) for a, b in itertools.pairwise(found.offsets)}
    assert mine == {tuple(rows) for rows in kept_rows(groups.tolist(), max_rows)}
    kept = found.kept()
    assert sorted(order) == list(range(len(ids)) if kept is None else np.flatnonzero(kept))


def test_people_are_found_where_their_numbers_are_wide():
    rng = np.random.default_rng(0)
    for most in (1 << 15, 1 << 18, 1 << 45):
        groups = rng.integers(0, most, 200_000)
        groups[::3] = groups[0]
        found = people(groups, 200_000)
        _, first, place, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
        np.testing.assert_array_equal(found.order, np.argsort(first[place], kind="stable"))
        np.testing.assert_array_equal(np.diff(found.offsets), counts[np.argsort(first)])
        unordered = people(groups, 200_000, ordered=False)
        assert unordered.order is unordered.kept() is None
        assert unordered.n_people == found.n_people


@pytest.mark.parametrize("change", [
    lambda ids: ids.astype(">i8"),
    lambda ids: np.repeat(ids, 2)[::2],
    lambda ids: ids.astype("u8") + np.uint64(2**63),
    lambda ids: (ids * 2.0**-3).astype("f2"),
    lambda ids: ids.astype("g"),
    lambda ids: np.where(ids == 0, np.resize([0.0, -0.0], len(ids)), ids),
    lambda ids: ids.astype("M8[D]").astype(">M8[us]"),
    lambda ids: ids * (2**57 + 1) - 2**62,
    lambda ids: np.frombuffer(b"." + ids.tobytes(), np.uint8)[1:].view(np.int64),
])  # fmt: skip
@pytest.mark.parametrize("ordered", [True, False])
def test_people_are_told_apart_however_their_ids_are_kept(change, ordered):
    ids = np.random.default_rng(0).integers(0, 50, 700)
    expected, found = (people(kind, 9, ordered=ordered) for kind in (ids, change(ids)))
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_array_equal(found.kept(), np.isin(np.arange(700), np.concatenate(kept_rows(ids, 9))))
    assert ordered is (found.order is not None)
    if ordered:
        np.testing.assert_array_equal(found.order, expected.order)


def test_no_people_at_all():
    for tight in ({}, TIGHT):
        moments = gram(np.zeros((0, 4)), np.zeros((0, 2)), **BOUNDS, **tight, groups=[], max_rows=3)
        assert (moments.n_people, moments.n_rows) == (0, 0)
        assert not moments.xx.any()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"groups": None}, ValueError, "max_rows was given, but no groups"),
        ({"groups": None, "max_rows": None, "bound_xx": 1.0}, ValueError, "bound_xx was given, but no groups"),
        ({"groups": None, "max_rows": None, "bound_xy": 1.0}, ValueError, "bound_xy was given, but no groups"),
        ({"max_rows": None}, ValueError, "max_rows is needed"),
        ({"max_rows": 0}, ValueError, "max_rows must be at least 1"),
        ({"max_rows": 2.0}, TypeError, "max_rows must be an integer"),
        ({"max_rows": 1 << 18, "bound_xx": 5.0}, ValueError, "max_rows must be at most"),
        ({"bound_xx": 0.0}, ValueError, "bound_xx must be positive"),
        ({"bound_xy": -1.0}, ValueError, "bound_xy must be positive"),
        ({"bound_xx": "2"}, TypeError, "bound_xx must be a real"),
        ({"bound_xx": 5.0, "sums": True}, ValueError, "add a constant column"),
        ({"rows": np.arange(3)}, ValueError, "rows and groups do not go together"),
        ({"groups": np.zeros((200, 1))}, ValueError, "groups must be 1-D"),
        ({"groups": np.zeros(3)}, ValueError, "groups must have one id a row"),
        ({"groups": "abc"}, TypeError, r"1-D array of ids, got str; .* dpfast.io.RowOwners\(files, column\)"),
        ({"groups": 7}, TypeError, "groups must be a 1-D array of ids, got int"),
        ({"groups": np.zeros(200, complex)}, TypeError, "groups has dtype complex128"),
        ({"groups": np.ma.zeros(200)}, TypeError, "masked"),
        ({"groups": [[1], [2]]}, TypeError, "not hashable"),
        ({"groups": {1, 2}}, ValueError, "groups must be 1-D"),
        ({"groups": [{}] * 200}, TypeError, "not hashable"),
        ({"groups": [None] * 200}, ValueError, "missing ids"),
        ({"groups": pd.array([1, None] * 100)}, ValueError, "missing ids"),
        ({"groups": np.full(200, np.nan)}, ValueError, "missing ids"),
        ({"groups": [math.nan, "a"] * 100 + [()]}, ValueError, "missing ids"),
        ({"groups": np.full(200, "NaT", "M8[s]")}, ValueError, "missing ids"),
        ({"groups": {}}, ValueError, "groups must be 1-D"),
        *(({"groups": [("a", one)] * 200}, ValueError, "missing ids") for one in MISSING),
        *(({"groups": [Pair(1, ("a", one))] * 200}, ValueError, "missing ids") for one in MISSING),
        ({"groups": [frozenset([math.nan])] * 200}, ValueError, "missing ids"),
        *(({"groups": [one] * 200}, TypeError, "not equal a copy of itself") for one in WITHOUT_EQUALITY),
        *(({"groups": [(1, one)] * 200}, TypeError, "not equal a copy of itself") for one in WITHOUT_EQUALITY),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    X, Y, groups = data()
    arguments = dict(X=X, Y=Y, **BOUNDS, groups=groups, max_rows=3) | change
    with pytest.raises(error, match=message):
        gram(arguments.pop("X"), arguments.pop("Y"), **arguments)


def test_streams_that_do_not_fit_are_refused():
    X, Y, groups = data()
    for ids in (groups[:-1], np.append(groups, 1)):
        with pytest.raises(ValueError, match="groups"):
            gram(iter([(X[:50], Y[:50]), (X[50:], Y[50:])]), **BOUNDS, groups=ids, max_rows=3)
    with pytest.raises(TypeError, match="need whole arrays"):
        gram(iter([(X, Y)]), **BOUNDS, **TIGHT, groups=groups, max_rows=3)
    with pytest.raises(ValueError, match="no outcomes"):
        gram(X, bound_x=1.0, groups=groups, max_rows=3, bound_xy=1.0)


@pytest.mark.parametrize("beyond", [2.0**-7, 2.0**-12, 2.0**-18])
@pytest.mark.parametrize("n_rows", [3, 40, 300, 3000])
def test_a_block_a_little_beyond_its_bound_is_scaled_onto_it(n_rows, beyond):
    """Wherever it is tested: packed, or row by row for a person of many rows; each bound alone."""
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(0.1, 0.4, (n_rows, 3)), rng.uniform(0.1, 0.4, (n_rows, 2))
    declared = {"bound_x": 1.0, "bound_y": 1.0, "groups": np.zeros(n_rows, np.int64), "max_rows": n_rows}
    for name, free in (("bound_xx", np.linalg.norm(X.T @ X)), ("bound_xy", np.linalg.norm(X.T @ Y))):
        moments = gram(X, Y, **declared, **{name: free / (1.0 + beyond)})
        total = moments.exact_xx if name == "bound_xx" else moments.exact_xy
        limit = moments.block_bounds.xx if name == "bound_xx" else moments.block_bounds.xy
        squared = sum(total.integer(index) ** 2 for index in np.ndindex(total.shape)) * Fraction(4) ** total.exponent
        assert squared <= Fraction(limit) ** 2
        assert squared > Fraction(limit) ** 2 * (1 - Fraction(1, 1000))


def test_blocks_are_clipped_for_people_of_up_to_the_most_rows():
    most = 1 << 17
    assert PersonUnit.checked(most, 1.0, None, 1.0, None).clips_blocks
    assert not PersonUnit.checked(most + 1, None, None, 1.0, None).clips_blocks
    for bounds in ((1.0, None), (None, 1.0)):
        with pytest.raises(ValueError, match=f"max_rows must be at most {most}"):
            PersonUnit.checked(most + 1, *bounds, 1.0, 1.0)


@pytest.mark.parametrize("consecutive", [True, False])
def test_rows_that_are_copied_a_range_at_a_time_are_the_same_peoples(consecutive):
    """Of another byte order: a range is copied, with offsets of its own."""
    rng = np.random.default_rng(8)
    x, y, groups = rng.normal(size=(40_000, 3)), rng.normal(size=(40_000, 1)), np.arange(40_000) // 3
    groups = groups if consecutive else rng.permutation(groups)
    native = gram(x, y, **BOUNDS, **TIGHT, groups=groups, max_rows=3)
    for n_threads in (1, 3):
        other = gram(
            x.astype(">f8"), y.astype(">f8"), **BOUNDS, **TIGHT, groups=groups, max_rows=3, n_threads=n_threads
        )
        assert other.exact_xx == native.exact_xx
        assert other.exact_xy == native.exact_xy
