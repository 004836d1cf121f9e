"""Weighted sums: exact multiples of people's parts, so that no weight moves one beyond what noise is for."""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from neighbours import climb
from stages import moved, part_of_person, requested

from dpfast import Privacy, io
from dpfast.releases.mechanism import NoisySum, Query
from dpfast.releases.people import BITS, People, sum_residuals, weighted
from dpfast.releases.score_regression import ScoreRegression
from dpfast.releases.staged_regression import StagedRegression
from dpfast.solvers import PoissonLoss, SmoothedHuber, SmoothedQuantile
from dpfast.statistics.residuals import ResidualStep, residual_bound
from dpfast.statistics.rows import RowMap

BOUND_X, BOUND_Y, MAX_ROWS, MOST = 2.0, 3.0, 3, 2**BITS - 1
LOSSES = {
    "squares": None,
    "huber": SmoothedHuber(0.5),
    "quantile": SmoothedQuantile(0.9, 0.3),
    "counts": PoissonLoss(BOUND_Y),
}


class Staged(NamedTuple):
    """What a fit has before its first release."""

    mechanism: StagedRegression
    statistic: object


def staged(loss="huber", n=4_000, adjacency="replace_one", *, several=False, shares=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)) / math.sqrt(12.0) + 0.1
    y = x @ [-1.0, 0.0, 1.0] + 0.1 * rng.normal(size=n) + 0.5
    outcome_map = RowMap(bound=BOUND_Y)
    if loss == "counts":
        outcome_map = replace(outcome_map, low=np.zeros(1), high=np.full(1, BOUND_Y))
    options = {"n_steps": 3, "fit_intercept": True, "max_rows": MAX_ROWS if several else None, "is_weighted": True}
    given = Privacy(1.0, 1e-5, adjacency), (3, 1), (BOUND_X, BOUND_Y), RowMap(bound=BOUND_X), outcome_map
    chosen = (StagedRegression, {}) if loss == "squares" else (ScoreRegression, {"loss": LOSSES[loss]})
    mechanism = chosen[0](*given, **options | chosen[1])
    shares = rng.random(n) ** 2 if shares is None else shares
    return Staged(mechanism, mechanism.summed(people(x, y, shares, np.arange(n) // 2 if several else None)))


def people(x, y, shares, groups=None):
    x, outcomes = np.atleast_2d(x), np.column_stack(np.broadcast_arrays(np.ravel(y), np.ravel(shares)))
    return People(io.open_table(x, outcomes), groups, None if groups is None else MAX_ROWS)


def several_rows(rng, x, y, share):
    """A person's rows: some alike, with weights of their own, and more of them than count."""
    return np.repeat(x, 4, axis=0), np.repeat(y, 4), share * rng.random(4) ** rng.choice([0.0, 3.0]), np.zeros(4)


def at_random(rng):
    """People of all sizes and weights."""
    for _ in range(5):
        x = rng.normal(size=(1, 3)) * 10.0 ** rng.uniform(-2.0, 3.0)
        y = rng.normal(size=1) * 10.0 ** rng.uniform(-2.0, 3.0)
        share = rng.choice([1.0, 10.0 ** rng.uniform(-4.0, 0.0)])
        yield from ((x, y, share), (x, -y, share), (-x, -y, 1.0))
    for row in BOUND_X * np.vstack([np.eye(3), -np.eye(3)]):
        yield from ((row[None], np.full(1, sign * BOUND_Y), 1.0) for sign in (-1.0, 1.0))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbour_and_no_weight_moves_any_stage_beyond_its_part(loss, adjacency, several):
    fit, rng, farthest = staged(loss, adjacency=adjacency, several=several), np.random.default_rng(1), {}
    others = [several_rows(rng, *one) if several else one for one in at_random(rng)]
    others = [fit.mechanism.summed(people(*one)) for one in others]
    for query in requested(fit, 0):
        farthest[query.name] = moved(query, [part_of_person(query, one) for one in others])
        assert farthest[query.name] <= 1.0 + 1e-9, query.name
    # What is paid for is attained by the largest weights: but for the one step of 2^BITS that no weight has.
    sizes = [far for name, far in farthest.items() if "sizes of" in name]
    assert max(sizes) > (0.5 if several else 0.999 * MOST / 2**BITS)
    if not several and loss == "huber":
        assert min(far for name, far in farthest.items() if "level: scores" in name) > 0.99 * MOST / 2**BITS


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weighted_sum_is_to_the_bit_that_of_each_row_as_often_as_its_weight_says(loss):
    fit, rng = staged(loss), np.random.default_rng(3)
    x, y, multiples = rng.normal(size=(20, 3)), rng.normal(size=20), rng.integers(0, 4, 20)

    def summed(query, shares, rows):
        found = query.statistic(fit.mechanism.summed(people(x[rows], y[rows], shares)))
        return found if hasattr(found, "to_float64") else found.exact_xx

    for query in requested(fit, 0):
        copies = np.repeat(np.arange(20), multiples)
        of_weights = summed(query, multiples / MOST, np.arange(20))
        assert of_weights == summed(query, np.full(len(copies), 1.0 / MOST), copies), query.name
    counts = next(requested(fit, 0))
    assert summed(counts, multiples / MOST, np.arange(20)).to_float64()[0] == multiples.sum() / 2**BITS


def test_uphill_two_people_of_several_weighted_rows_are_as_far_apart_as_a_step_is_calibrated_for_and_no_farther():
    step = ResidualStep(np.array([[0.4], [-0.2], [0.1]]), RowMap(bound=2.0), RowMap(bound=BOUND_Y), constant=True)
    clip, fit = 0.7, staged(several=True, n=40)
    bound = residual_bound(clip, step, MAX_ROWS)
    noise = NoisySum.calibrate(Privacy(1.0, 1e-6), bound, (3, 1), unit="person")
    query = weighted(Query("a step", noise, partial(sum_residuals, step=step, clip=clip)))
    first = replace(fit.mechanism, shape=(2, 1))

    def part(p):
        rows = 4.0 * p.reshape(MAX_ROWS, 4)
        person = people(rows[:, :2], rows[:, 2], np.minimum(np.abs(rows[:, 3]), 1.0), np.zeros(MAX_ROWS))
        return query.statistic(first.summed(person)).to_float64()

    def apart(p):
        one, other = np.split(p, 2)
        return float(np.linalg.norm(part(one) - part(other)))

    worst, _ = climb(apart, 8 * MAX_ROWS, np.random.default_rng(0), restarts=3)
    assert 1.9 * bound < worst <= 2.0 * bound


def test_rows_beyond_the_most_of_a_person_count_with_no_weight():
    fit, x, shares = staged(several=True), np.random.default_rng(0).normal(size=(6, 3)), np.array([0, 0.5, 1, 1, 1, 1])
    beyond = np.where(np.arange(6)[:, None] < MAX_ROWS, x, 9.0 * x)
    parts = [fit.mechanism.summed(people(rows, np.ones(6), shares, np.zeros(6))) for rows in (x, beyond)]
    for one, other in zip(parts[0].by_bit, parts[1].by_bit, strict=True):
        np.testing.assert_array_equal(one.table.whole()[0], other.table.whole()[0])
