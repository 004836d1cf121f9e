"""Supports are released with the calibrated law, from rows within the bounds that it is calibrated for."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dpfast import Privacy, statistics
from dpfast.noise import SeededSource
from dpfast.privacy import loss_range
from dpfast.releases.selection import (
    MOST_ROWS,
    RecordBounds,
    ScoredSelection,
    TopEntries,
    VotedSelection,
    most_votes,
    whole_row_bound,
)
from dpfast.solvers import SupportScores, score_error


def small_table(n=60, p=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, p))
    return x, np.clip(x[:, 1] - 0.5 * x[:, 4] + 0.3 * rng.normal(size=n), -2.0, 2.0)


def scored(epsilon=4.0, adjacency="replace_one", n=60):
    return ScoredSelection.calibrate(Privacy(epsilon, 0.0, adjacency), RecordBounds(2, math.sqrt(2.0), 2.0), n)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_support_is_picked_with_the_exponential_mechanisms_law(adjacency):
    x, y = small_table()
    epsilon, most_rows = (4.0, 60) if adjacency == "replace_one" else (2.0, MOST_ROWS)
    selection = scored(epsilon, adjacency, most_rows)
    source = SeededSource(1)
    order = {tuple(one): i for i, one in enumerate(np.argwhere(np.triu(np.ones((5, 5)), 1)).tolist())}
    counts = np.zeros(10)
    n = 4000
    for _ in range(n):
        release = selection.release(x.T @ x, x.T @ y, source, "a support")
        counts[order[tuple(release.values["support"].tolist())]] += 1
    computed = SupportScores(x.T @ x, x.T @ y, 2, ridge=selection.ridge, tolerance=selection.tolerance)
    law = special.softmax(-selection.rate * np.concatenate(list(computed.blocks())))
    assert law.min() * n > 50
    assert stats.chisquare(counts, n * law).pvalue > 1e-6  # false-reject rate


def test_the_rate_costs_next_to_nothing_for_the_error_of_scores():
    """Epsilon over twice the range, 2 s^2 at the paper's bounds, less a tenth of a percent."""
    bounds = RecordBounds(3, math.sqrt(3.0), 3.0)
    for adjacency, records, most in (("replace_one", 2, 10**6), ("add_remove", 1, MOST_ROWS)):
        rate = ScoredSelection.calibrate(Privacy(1.0, 0.0, adjacency), bounds, most).rate
        assert 0.999 < rate * records * 18.0 < 1.0


def test_the_printed_rate_is_that_of_appendix_f():
    bounds = RecordBounds(3, math.sqrt(3.0), 3.0)
    printed = ScoredSelection.printed(Privacy(1.0), bounds, 10**6)
    assert printed.rate == pytest.approx(1.0 / (2.0 * 36.0), rel=1e-9)
    assert printed.calibration == "paper"


@pytest.mark.parametrize(("privacy", "law"), [(Privacy(0.5), "laplace"), (Privacy(0.5, 1e-2), "norm")])
def test_votes_have_noise_of_the_calibrated_law(privacy, law):
    x, y = small_table(n=40, p=30)
    selection = VotedSelection.calibrate(privacy, 10, 30, 4)
    source, draws = SeededSource(2), []
    for _ in range(40):
        release = selection.release(x, y, lambda x, y, size: np.arange(3), source, "votes")
        draws.append(release.values["votes"] - 4.0 * (np.arange(30) < 3))
        assert np.array_equal(release.values["support"], most_votes(release.values["votes"], 10))
    # Kolmogorov-Smirnov: false-reject rate 1e-6.
    assert stats.kstest(np.ravel(draws) / selection.scales["votes"], law).pvalue > 1e-6
    assert release.mechanism == {"laplace": "Laplace", "norm": "Gaussian"}[law]
    assert (release.mu is None) == (law == "laplace")


def test_the_printed_votes_have_laplace_noise():
    printed = VotedSelection.printed(Privacy(1.0, 1e-2), 20, 60, 4)
    assert printed.calibrated.mechanism == "Laplace"
    assert printed.scales["votes"] == pytest.approx(40.0)
    assert printed.privacy.delta == 0.0


def test_failures_are_bounded():
    """Features with all votes, and without: how often noise alone puts one of the latter first."""
    selection = VotedSelection.calibrate(Privacy(1.0), 2, 20, 20)
    bound = selection.failure(20)
    source = SeededSource(3)
    wrong = 0
    for _ in range(2000):
        release = selection.release(np.zeros((40, 20)), np.zeros(40), lambda x, y, size: [4, 9], source, "votes")
        wrong += release.values["support"].tolist() != [4, 9]
    assert 0.0 < bound < 1.0
    # The bound is a union of 20 events; more than this many of 2,000 have a probability below 1e-6.
    assert wrong <= stats.binom.isf(1e-6, 2000, bound)
    assert wrong > 0


@pytest.mark.parametrize("size", [1, 3, 12])
def test_top_entries_are_within_their_bound(size):
    rng = np.random.default_rng(4)
    top = TopEntries(size, math.sqrt(size))
    rows = rng.normal(size=(200, 12)) * 10.0 ** rng.uniform(-3, 150, size=(200, 1))
    rows[:20] = 1.0
    mapped = top(rows)
    norms = np.linalg.norm(np.sort(np.abs(mapped), axis=1)[:, -size:], axis=1)
    assert norms.max() <= math.sqrt(size) * (1.0 + 1e-13)
    assert np.linalg.norm(mapped, axis=1).max() <= whole_row_bound(top, 12)
    within = np.linalg.norm(np.sort(np.abs(rows), axis=1)[:, -size:], axis=1) <= math.sqrt(size)
    assert np.array_equal(mapped[within], rows[within])
    assert within[:20].all()
    np.testing.assert_allclose(norms[~within], math.sqrt(size), rtol=1e-13)


def test_rows_that_are_not_finite_stay_refused():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="X"):
            statistics.gram(
                np.array([[1.0, value, 0.0]]), np.ones(1), bound_x=2.0, bound_y=1.0, map_x=TopEntries(2, math.sqrt(2.0))
            )


@pytest.mark.parametrize("size", [1, 3, 40])
def test_record_bounds_hold_for_rows_as_they_are_summed(size):
    """One row's exact moments give back the row, on its grid: any support of it is within the declared length."""
    rng = np.random.default_rng(5)
    p = 40
    top = TopEntries(size, math.sqrt(size))
    whole = whole_row_bound(top, p)
    mapped_bounds, ball_bounds = RecordBounds.of_top_entries(top, p, 2.0), RecordBounds.of_rows(size, p, 1.5, 2.0)
    rows = np.concatenate(
        [np.ones((1, p)), rng.choice([-1.0, 1.0], size=(20, p)) * (1 - 1e-9), rng.normal(size=(20, p))]
    )
    for row in rows:
        for bounds, options in ((mapped_bounds, {"bound_x": whole, "map_x": top}), (ball_bounds, {"bound_x": 1.5})):
            one = statistics.gram(row[None], np.array([9.0]), bound_y=2.0, **options)
            squares = np.sort(np.diagonal(one.xx))[-size:]
            assert math.fsum(squares) <= bounds.length**2
            assert math.fsum(np.sqrt(squares)) <= bounds.reach
            assert abs(one.xy[:, 0]).max() <= bounds.outcome * math.sqrt(squares.max()) * (1 + 1e-15)
    assert mapped_bounds.length < math.sqrt(size) * 1.00001


def test_a_support_release_says_what_it_is():
    x, y = small_table()
    release = scored().release(x.T @ x, x.T @ y, SeededSource(0), "a support")
    assert release.privacy == Privacy(4.0)
    assert release.mechanism == "exponential mechanism"
    assert release.reproducible
    assert release.scales["support"] == pytest.approx(1.0 / scored().rate)
    assert replace(release, reproducible=False).guarantee == str(Privacy(4.0))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_rate_allows_for_the_error_of_scores(adjacency, size):
    """In exact arithmetic: epsilon pays for what records change, and for the error of both scores on both tables."""
    bounds, most = RecordBounds(size, math.sqrt(size), float(size)), 10**7
    selection = ScoredSelection.calibrate(Privacy(1.0, 0.0, adjacency), bounds, most)
    curvature = most * bounds.reach**2 + size * selection.ridge
    error = score_error(size, curvature, most * bounds.outcome * bounds.reach, selection.tolerance)
    # A score is anywhere within its gap; up to a shift that all share, half of it to either side.
    assert error >= 0.5 * selection.tolerance > 0.0
    records = 2 if adjacency == "replace_one" else 1
    own = loss_range(bounds.outcome, bounds.reach)
    assert Fraction(selection.rate) * (records * Fraction(own) + 4 * Fraction(error)) <= 1


@pytest.mark.parametrize(("adjacency", "alike"), [("replace_one", True), ("add_remove", False)])
def test_blocks_are_of_one_size_only_where_the_number_of_rows_is_public(adjacency, alike):
    """Under add/remove each row picks its block: blocks of one size would tell their number, and tie rows together."""
    x, y = small_table(n=24)
    selection = VotedSelection.calibrate(Privacy(1.0, 0.0, adjacency), 1, 5, 4)
    sizes = []

    def selector(rows, outcomes, size):
        sizes.append(len(rows))
        return [0]

    for seed in range(5):
        selection.release(x, y, selector, SeededSource(seed), "votes", n_threads=1)
    assert (set(sizes) == {6}) == alike
