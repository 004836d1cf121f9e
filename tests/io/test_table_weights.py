"""WeightedRows rows: a person's weight moves that person's rows alone, and no sum further than rows without weights."""

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from scipy import sparse

from dpfast.io import blocks, weighted
from dpfast.statistics import gram
from dpfast.statistics.rows import clipped_to_norm


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.exponential(2.0, n)


def read(X, Y):
    """WeightedRows rows beside their outcomes, from arrays and from blocks."""
    return np.concatenate([np.column_stack([np.asarray(x), np.asarray(y)]) for x, y in blocks(X, Y)])


def test_a_row_counts_with_its_share_of_the_largest_weight():
    x, y, w = table()
    found = read(*weighted(x, y, w, 3.0))
    share = np.minimum(w, 3.0) / 3.0
    np.testing.assert_allclose(found[:, :3].T @ found[:, :3], (x * share[:, None]).T @ x, rtol=1e-13)
    np.testing.assert_allclose(found[:, :3].T @ found[:, 3:], (x * share[:, None]).T @ y, rtol=1e-13)
    np.testing.assert_array_equal(read(*weighted(x, y, np.full(40, 3.0), 3.0)), np.column_stack([x, y]))
    np.testing.assert_array_equal(read(*weighted(x, y, np.full(40, 9.0), 3.0)), np.column_stack([x, y]))
    np.testing.assert_array_equal(read(*weighted(x, y, 4.0 * w, 12.0)), found)


@pytest.mark.parametrize("kind", ["arrays", "frames", "sparse", "lists of blocks", "an iterator"])
def test_all_tables_are_weighed_alike_to_the_bit(kind):
    x, y, w = table()
    expected = read(*weighted(x, y, w, 3.0))
    given = {
        "arrays": lambda: (x.copy("F"), y[:, ::-1][:, ::-1], list(w)),
        "frames": lambda: (pd.DataFrame(x).assign(**{"2": x[:, 2]}).drop(columns=2), pd.DataFrame(y), pd.Series(w)),
        "sparse": lambda: (sparse.csr_array(x), sparse.csc_array(y), w),
        "lists of blocks": lambda: ([x[:7], x[7:8], x[8:]], [y[:20], y[20:]], w),
        "an iterator": lambda: (iter([(x[:7], y[:7]), (x[7:], y[7:])]), None, w),
    }[kind]
    for may_copy in (False, True):
        X, Y, W = given()
        assert read(*weighted(X, Y, W, 3.0, may_copy=may_copy)).tobytes() == expected.tobytes()
    X, Y, W = given()
    several = weighted(X, Y, W, 3.0)
    read(*several)
    if kind != "an iterator":
        assert read(*several).tobytes() == expected.tobytes()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_persons_rows_do_not_depend_on_the_weights_of_others(streamed):
    x, y, w = table()
    lay = (lambda a: [a[:11], a[11:]]) if streamed else (lambda a: a)
    expected = read(*weighted(lay(x), lay(y), w, 3.0))
    for other in (0.0, 1e-300, 2.9, 3.1, 1e300):
        changed = w.copy()
        changed[5] = other
        found = np.delete(read(*weighted(lay(x), lay(y), changed, 3.0)), 5, axis=0)
        assert found.tobytes() == np.delete(expected, 5, axis=0).tobytes()
    one_less = weighted(lay(x[:-1]), lay(y[:-1]), w[:-1], 3.0)
    assert read(*one_less).tobytes() == expected[:-1].tobytes()


def moved(parameters, bounds, most):
    """How far one person who is replaced moves the sums of w x x' and w x y', in any rows, outcomes and weights."""
    records = []
    for part in np.split(parameters, 2):
        # Any weight: from 0 to far beyond the bound.
        x, y, w = part[None, :3], part[None, 3:4], [np.exp(part[4]) * most]
        x, y = weighted(x, y, w, most)
        records.append((clipped_to_norm(x, bounds[0]), clipped_to_norm(y, bounds[1])))
    (a, p), (b, q) = records
    return most * np.linalg.norm(a.T @ a - b.T @ b), most * np.linalg.norm(a.T @ p - b.T @ q)


def test_one_person_moves_the_weighed_sums_by_the_bounds_times_the_root_of_the_largest_weight():
    most, bounds = 2.5, (1.5, 0.5)
    limits = np.sqrt(2.0) * most * bounds[0] ** 2, 2.0 * most * bounds[0] * bounds[1]
    rng = np.random.default_rng(0)
    for which, limit in enumerate(limits):
        found, _ = climb(lambda p, which=which: moved(p, bounds, most)[which], 10, rng)
        assert limit * (1.0 - 1e-6) <= found <= limit * (1.0 + 1e-9)


def test_the_tight_neighbours_are_reached_by_the_exact_sums():
    most = 4.0
    sums = [
        gram(*weighted(np.array([row]), np.array([[outcome]]), [weight], most), bound_x=1.0, bound_y=1.0)
        for row, outcome, weight in (([1.0, 0.0], 1.0, 4.0), ([0.0, 1.0], 1.0, 7.0), ([1.0, 0.0], -1.0, 4.0))
    ]
    assert most * np.linalg.norm(sums[0].xx - sums[1].xx) == pytest.approx(np.sqrt(2.0) * most, rel=1e-5)
    assert most * np.linalg.norm(sums[0].xy - sums[2].xy) == pytest.approx(2.0 * most, rel=1e-5)


def test_no_weight_makes_a_row_longer_than_it_is():
    rng = np.random.default_rng(0)
    w = np.concatenate([rng.exponential(1.0, 500), np.nextafter(0.7, [0.0, 1.0]), [5e-324, 1.7e308]])
    x = rng.normal(size=(len(w), 3)) * 10.0 ** rng.integers(-300, 300, (len(w), 1))
    found, _ = weighted(x, None, w, 0.7)
    assert np.all(np.abs(found) <= np.abs(x))


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.full(40, -1e-9), ValueError, "sample_weight must hold finite numbers of at least 0"),
        (np.full(40, np.nan), ValueError, "finite numbers"),
        (np.full(40, np.inf), ValueError, "finite numbers"),
        (np.ones(39), ValueError, "X and sample_weight have different numbers of rows"),
        (np.ones(41), ValueError, "X and sample_weight have different numbers of rows"),
        (np.ones((40, 2)), ValueError, "sample_weight must be 1-D"),
        (np.ones((2, 2, 2)), ValueError, "sample_weight must be 1-D"),
        (1.0, ValueError, "sample_weight"),
        (["a"] * 40, TypeError, "sample_weight has dtype str"),
        (np.ones(40) * 1j, ValueError, "Complex data"),
    ],
    ids=str,
)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_are_no_weights_is_refused(weights, error, message, streamed):
    x, y, _ = table()
    with pytest.raises(error, match=message):
        read(*weighted([x[:11], x[11:]] if streamed else x, y, weights, 3.0))
