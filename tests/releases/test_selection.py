"""Supports are released with the calibrated law, from rows within the bounds that it is calibrated for."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dpfast import Privacy
from dpfast.noise import SeededSource
from dpfast.privacy import loss_range
from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.releases.selection import Scored, ScoredSelection, VotedSelection, Voters, chance_of_noise, most_votes
from dpfast.solvers import Box, SquaredLoss
from dpfast.solvers.best_subset import SupportScores, score_error
from dpfast.statistics import MOST_ROWS_IF_PRIVATE


def small_table(n=60, p=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, p))
    return x, np.clip(x[:, 1] - 0.5 * x[:, 4] + 0.3 * rng.normal(size=n), -2.0, 2.0)


def scored(epsilon=4.0, adjacency="replace_one", size=2, outcome=2.0, n=60, **calibration):
    n_rows = n if adjacency == "replace_one" else None
    bounds = ObjectiveBounds(SquaredLoss(), size, math.sqrt(size), outcome, Box(1.0), None, n_rows)
    return ScoredSelection.calibrate(Privacy(epsilon, 0.0, adjacency), bounds, **calibration)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_support_is_picked_with_the_exponential_mechanisms_law(adjacency):
    x, y = small_table()
    selection = scored(4.0 if adjacency == "replace_one" else 2.0, adjacency)
    source = SeededSource(1)
    order = {tuple(one): i for i, one in enumerate(np.argwhere(np.triu(np.ones((5, 5)), 1)).tolist())}
    counts = np.zeros(10)
    n = 4000
    for _ in range(n):
        release = selection.release(Scored(x.T @ x, x.T @ y), source, "a support")
        counts[order[tuple(release.values["support"].tolist())]] += 1
    computed = SupportScores(x.T @ x, x.T @ y, 2, ridge=selection.ridge, tolerance=selection.tolerance)
    law = special.softmax(-selection.rate * np.concatenate(list(computed.blocks())))
    assert law.min() * n > 50
    assert stats.chisquare(counts, n * law).pvalue > 1e-6  # false-reject rate


def test_the_rate_costs_next_to_nothing_for_the_error_of_scores():
    """Epsilon over twice the range, 2 s^2 at the paper's bounds, less a tenth of a percent."""
    for adjacency, records in (("replace_one", 2), ("add_remove", 1)):
        rate = scored(1.0, adjacency, 3, 3.0, 10**6).rate
        assert 0.999 < rate * records * 18.0 < 1.0


def test_the_printed_rate_is_that_of_appendix_f():
    printed = scored(1.0, "replace_one", 3, 3.0, 10**6, calibration="paper")
    assert printed.rate == pytest.approx(1.0 / (2.0 * 36.0), rel=1e-9)
    assert printed.calibration == "paper"


@pytest.mark.parametrize(("privacy", "law"), [(Privacy(0.5), "laplace"), (Privacy(0.5, 1e-2), "norm")])
def test_votes_have_noise_of_the_calibrated_law(privacy, law):
    x, y = small_table(n=40, p=30)
    selection = VotedSelection.calibrate(privacy, 10, 30, 4)
    source, draws = SeededSource(2), []
    for _ in range(40):
        release = selection.release(Voters(x, y, lambda x, y, size: np.arange(3)), source, "votes")
        draws.append(release.values["votes"] - 4.0 * (np.arange(30) < 3))
        assert np.array_equal(release.values["support"], most_votes(release.values["votes"], 10))
    # Kolmogorov-Smirnov: false-reject rate 1e-6.
    assert stats.kstest(np.ravel(draws) / selection.scales["votes"], law).pvalue > 1e-6
    assert release.mechanism == {"laplace": "Laplace", "norm": "Gaussian"}[law]
    assert (release.mu is None) == (law == "laplace")


def test_the_printed_votes_have_laplace_noise():
    printed = VotedSelection.calibrate(Privacy(1.0, 1e-2), 20, 60, 4, calibration="paper")
    assert printed.calibrated.mechanism == "Laplace"
    assert printed.scales["votes"] == pytest.approx(40.0)
    assert printed.privacy.delta == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_share_of_features_that_noise_puts_behind_is_the_one_expected(delta):
    """Features with all votes, and without: how many of the former, on average, noise puts behind."""
    selection = VotedSelection.calibrate(Privacy(1.0, delta), 2, 20, 15)
    source = SeededSource(3)
    missed = 0
    for _ in range(2000):
        release = selection.release(
            Voters(np.zeros((30, 20)), np.zeros(30), lambda x, y, size: [4, 9]), source, "votes"
        )
        missed += 2 - len(set(release.values["support"].tolist()) & {4, 9})
    # Noise of four standard deviations, and the two luckiest of the others taken as one.
    assert missed / 4000 == pytest.approx(selection.missed(0.0, 20), abs=0.06)
    assert 0.1 < selection.missed(0.0, 20) < 0.9
    assert VotedSelection.calibrate(Privacy(1.0, delta), 2, 2, 15).missed(0.0, 2) == 0.0


def test_the_share_of_a_support_that_scores_miss_is_the_one_expected():
    """Over all supports, with probability proportional to exp(-rate * what is missed * signal)."""
    selection, p = scored(), 9
    size = selection.bounds.n_features
    missing = np.array([size - len({*range(size)} & set(one)) for one in itertools.combinations(range(p), size)])
    for signal in (0.0, 1.0 / selection.rate, 20.0 / selection.rate):
        odds = np.exp(-selection.rate * signal * missing)
        assert selection.missed(signal, p) == pytest.approx(odds @ missing / odds.sum() / size)
    assert selection.missed(1e9 / selection.rate, p) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_votes_of_one_block_are_told_from_those_of_many(delta):
    """Noise lifts others as high as one vote; as high as hundreds, hardly ever."""
    chances = []
    for n_blocks in (1, 400):
        selection = VotedSelection.calibrate(Privacy(1.0, delta), 1, 20, n_blocks)
        table = np.zeros((n_blocks, 20)), np.zeros(n_blocks), lambda x, y, size: [4]
        chances.append(chance_of_noise(selection.release(Voters(*table), SeededSource(5), "votes")))
    assert chances[0] > 0.3
    assert chances[1] < 1e-6
    every = VotedSelection.calibrate(Privacy(1.0, delta), 1, 1, 2)
    assert (
        chance_of_noise(every.release(Voters(np.zeros((2, 1)), np.zeros(2), lambda *_: [0]), SeededSource(5), "all"))
        == 0.0
    )


def test_a_support_release_says_what_it_is():
    x, y = small_table()
    release = scored().release(Scored(x.T @ x, x.T @ y), SeededSource(0), "a support")
    assert release.privacy == Privacy(4.0)
    assert release.mechanism == "exponential mechanism"
    assert release.reproducible
    assert release.scales["support"] == pytest.approx(1.0 / scored().rate)
    assert replace(release, reproducible=False).guarantee == str(Privacy(4.0))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_rate_allows_for_the_error_of_scores(adjacency, size):
    """In exact arithmetic: epsilon pays for what records change, and for the error of both scores on both tables."""
    selection = scored(1.0, adjacency, size, float(size), 10**7)
    most = 10**7 if adjacency == "replace_one" else MOST_ROWS_IF_PRIVATE
    reach, outcome = selection.bounds.prediction, selection.bounds.outcome_bound
    curvature = most * reach**2 + size * selection.ridge
    error = score_error(size, curvature, most * outcome * reach, selection.tolerance)
    # A score is anywhere within its gap; up to a shift that all share, half of it to either side.
    assert error >= 0.5 * selection.tolerance > 0.0
    records = 2 if adjacency == "replace_one" else 1
    own = loss_range(outcome, reach)
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
        selection.release(Voters(x, y, selector, 1), SeededSource(seed), "votes")
    assert (set(sizes) == {6}) == alike
