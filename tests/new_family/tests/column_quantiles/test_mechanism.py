"""The pick of quantiles: what one row moves, what is counted, and its law."""

import numpy as np
import pytest
from dpfast.column_quantiles.mechanism import QuantilePick, counts_below, scores_of
from scipy import stats

from dpfast import Privacy
from dpfast.io import ProcessPartitions
from dpfast.noise import SecureSource, SeededSource

GRID = [0.0, 1.0, 2.0]


def neighbours(rng, adjacency):
    """Two tables of up to 12 rows that lie between candidates; under add/remove either may be empty."""
    rows, other = rng.integers(0, 4, (2, rng.integers(1, 13), 2)) - 0.5
    return rows, np.vstack([rows[1:], other[:1]]) if adjacency == "replace_one" else rows[1:]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("percent", [25, 50, 75])
def test_one_row_moves_scores_as_far_apart_as_is_proved_and_no_farther(percent, adjacency):
    rng, farthest = np.random.default_rng(0), 0.0
    for _ in range(3000):
        here, there = (scores_of(counts_below(rows, GRID), percent) for rows in neighbours(rng, adjacency))
        farthest = max(farthest, np.ptp(here - there, axis=1).sum())
    assert farthest == 2 * (200 if adjacency == "replace_one" else 2 * max(percent, 100 - percent))
    rate = QuantilePick.calibrate(Privacy(1.0, 0.0, adjacency), GRID, percent, 2).rate
    assert 1.0 - 1e-9 < farthest * rate <= 1.0


@pytest.mark.parametrize("n", [0, 1, 40])
def test_counts_are_those_of_all_rows_at_or_below_however_they_come(n):
    rows = np.random.default_rng(n).integers(-1, 7, (n, 3)) / 2.0
    expected = [[*(int(np.sum(column <= one)) for one in GRID), n] for column in rows.T]
    assert counts_below(rows, GRID).tolist() == expected
    assert counts_below([rows[:7], rows[7:]], GRID).tolist() == expected


def test_rows_in_parts_are_counted_alike():
    rows = np.random.default_rng(0).uniform(-1.0, 3.0, (40, 3))
    with ProcessPartitions([rows[:7], rows[7:]], n_workers=1) as parts:
        assert np.array_equal(counts_below(parts, GRID), counts_below(rows, GRID))


def test_candidates_between_which_no_row_lies_score_alike():
    counts = counts_below(np.array([[-5.0], [5.0]]), GRID)
    assert scores_of(counts, 25).tolist() == [[50, 50, 50]]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match=r"^X contains NaN or infinity"):
        counts_below(np.array([[0.0], [value]]), GRID)


def test_a_pick_has_the_law_of_the_exponential_mechanism():
    # Fails for one seed in 10,000: it is fixed.
    pick = QuantilePick.calibrate(Privacy(1.0), GRID, 50, 1)
    counts = counts_below(np.array([[0.5], [0.5], [0.5], [1.5]]), GRID)
    weights = np.exp(-pick.rate * scores_of(counts, 50)[0])
    source, n = SeededSource(0), 3000
    picked = [float(pick.release(counts, source, "a pick").values["quantiles"][0]) for _ in range(n)]
    found = [picked.count(one) for one in GRID]
    assert stats.chisquare(found, n * weights / weights.sum()).pvalue > 1e-4


def test_an_empty_table_is_no_exception():
    pick = QuantilePick.calibrate(Privacy(1.0, 0.0, "add_remove"), GRID, 50, 2)
    release = pick.release(counts_below(np.empty((0, 2)), GRID), SecureSource(), "a pick")
    assert release.values["quantiles"].shape == (2,)


def test_a_pick_misses_by_no_more_rows_than_is_expected():
    pick = QuantilePick.calibrate(Privacy(1.0), GRID, 50, 1)
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = scores_of(counts_below(rng.uniform(-1.0, 3.0, (rng.integers(1, 30), 1)), GRID), 50)[0]
        weights = np.exp(-pick.rate * scores)
        assert 0.01 * (scores @ weights / weights.sum() - scores.min()) <= pick.missed()
