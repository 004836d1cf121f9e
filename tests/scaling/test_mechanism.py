"""Sums of features and squares: exact, moved no further than the bound, which is reached, and the moments they give."""

import math
from fractions import Fraction

import numpy as np
import pytest
from neighbours import climb, row_in_box
from reference.rows import TABLES

from dpfast import Privacy, io
from dpfast.noise import SeededSource
from dpfast.privacy import gaussian_delta
from dpfast.releases.mechanism import release
from dpfast.scaling.mechanism import PairSums, sum_pairs

D = 3
LOW, HIGH = np.array([-1.0, 10.0, 0.0]), np.array([1.0, 14.0, 1e-6])


def sums_of(table):
    return sum_pairs(io.open_table(table), LOW, HIGH)


def exact_of(table):
    """By fractions, of entries rounded to the grid."""
    z = np.rint(2.0**20 * (np.clip(table, LOW, HIGH) - (LOW + HIGH) / 2.0) / ((HIGH - LOW) / 2.0))
    rows = [[Fraction(int(entry), 2**20) for entry in row] for row in z]
    first = [sum(row[j] for row in rows) for j in range(D)]
    return [float(one) for one in first] + [
        float(sum(2 * row[j] ** 2 - Fraction(5, 4) for row in rows)) for j in range(D)
    ]


def table(n=50):
    return np.random.default_rng(0).uniform(LOW - 0.1 * (HIGH - LOW), HIGH, (n, D))


def test_sums_are_exact_in_any_table():
    x = table()
    expected = exact_of(x)
    for lay in TABLES.values():
        assert sums_of(lay(x)).to_float64()[:-1].tolist() == pytest.approx(expected, rel=1e-15)
    assert sums_of([x[:7], x[7:]]) == sums_of(x)
    assert PairSums.people(sums_of(x), D) == 50
    dask_array = pytest.importorskip("dask.array")
    assert sums_of(dask_array.from_array(x, chunks=(9, 2))) == sums_of(x)


def test_sums_of_everybody_are_those_of_each():
    x = table()
    alone = [sums_of(row[None]) for row in x]
    total = alone[0]
    for one in alone[1:]:
        total = total + one
    assert total == sums_of(np.asfortranarray(x))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_nobody_moves_the_sums_further_than_the_noise_is_calibrated_for(adjacency):
    mechanism = PairSums.calibrate(Privacy(1.0, 1e-6, adjacency), D)
    moved = mechanism.noise.scale * mechanism.noise.mu

    def change(parameters):
        one, other = (row_in_box(p, LOW, HIGH)[None] for p in np.split(parameters, 2))
        if adjacency == "add_remove":
            return float(np.linalg.norm(sums_of(one).to_float64()))
        return float(np.linalg.norm((sums_of(one).to_float64() - sums_of(other).to_float64())[:-1]))

    largest, _ = climb(change, 2 * D, np.random.default_rng(0), restarts=4, screened=40)
    corners = np.concatenate([np.full(D, 5.0), np.full(D, -5.0)])
    largest = max(largest, change(corners))
    assert largest <= moved * (1.0 + 1e-9)
    if adjacency == "add_remove":
        assert largest == pytest.approx(moved, rel=1e-9)
    assert 0.99e-6 < gaussian_delta(mechanism.noise.scale, 1.0, moved) <= 1e-6


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_moments_are_those_of_the_rows_within_what_is_said_of_the_noise(adjacency, delta):
    x = table(20_000)
    mechanism = PairSums.calibrate(Privacy(1.0, delta, adjacency), D)
    sums = mechanism.solve(release(mechanism, sums_of(x), SeededSource(0), "sums"))
    found = mechanism.moments(sums, None if adjacency == "add_remove" else len(x))
    z = (np.clip(x, LOW, HIGH) - (LOW + HIGH) / 2.0) / ((HIGH - LOW) / 2.0)
    deviation = mechanism.noise.deviation / len(x)
    assert np.all(np.abs(found.mean - z.mean(axis=0)) < 6.0 * deviation)
    assert np.all(np.abs(found.variance - z.var(axis=0)) < 6.0 * np.maximum(found.variance_noise, deviation))


def test_no_moments_are_out_of_range_whatever_is_released():
    mechanism = PairSums.calibrate(Privacy(1e-3, 1e-6, "add_remove"), D)
    for seed in range(20):
        sums = mechanism.solve(release(mechanism, sums_of(table(1)), SeededSource(seed), "sums"))
        found = mechanism.moments(sums, None)
        assert np.all(np.abs(found.mean) <= 1.0)
        assert np.all(found.variance <= 1.0)
        assert np.all((found.variance_noise > 0.0) & (found.variance_noise <= 1.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_are_refused(bad):
    x = table()
    x[-1, 0] = bad
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        sums_of(x)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_no_person_moves_the_sums_further_than_the_noise_is_calibrated_for(adjacency):
    """With up to five rows, of which three count, beside others with two each."""
    mechanism = PairSums.calibrate(Privacy(1.0, 1e-6, adjacency), D, 3)
    moved = mechanism.noise.scale * mechanism.noise.mu
    others, ids = table(20), np.arange(20) // 2 + 1

    def sums(rows):
        joined = io.open_table(np.concatenate([rows, others]))
        groups = np.concatenate([np.zeros(len(rows), int), ids])
        return sum_pairs(joined, LOW, HIGH, groups=groups, max_rows=3).to_float64()

    def change(parameters, numbers=(5, 5)):
        one, other = (
            np.array([row_in_box(p, LOW, HIGH) for p in np.split(half, 5)])[:number]
            for half, number in zip(np.split(parameters, 2), numbers, strict=True)
        )
        return float(np.linalg.norm(sums(one) - sums(other if adjacency == "replace_one" else other[:0])))

    rng = np.random.default_rng(0)
    corners = np.concatenate([np.full(5 * D, 5.0), np.full(5 * D, -5.0)])
    tried = [change(rng.normal(size=10 * D), tuple(rng.integers(1, 6, 2))) for _ in range(60)]
    largest = max(*tried, change(corners), climb(change, 10 * D, rng, restarts=1, screened=10)[0])
    assert largest <= moved * (1.0 + 1e-9)
    assert largest > (0.999 if adjacency == "add_remove" else 0.6) * moved
    assert mechanism.noise.unit == "person"
    with pytest.raises(ValueError, match="groups must have one id a row"):
        sum_pairs(io.open_table(others), LOW, HIGH, groups=ids[:-1], max_rows=3)
