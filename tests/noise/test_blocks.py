"""Rows are assigned to blocks evenly, or each on its own."""

import numpy as np
import pytest
from scipy import stats

from dpfast.noise import SecureSource, SeededSource, random_blocks


def test_equal_blocks_are_a_cut_permutation():
    for n, k in ((0, 3), (2, 5), (11, 4), (100, 10)):
        sizes = np.bincount(random_blocks(n, k, SecureSource(), equal=True), minlength=k)
        assert sizes.sum() == n
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("equal", [True, False])
def test_every_row_may_be_in_every_block(equal):
    source = SeededSource(0)
    blocks = np.array([random_blocks(5, 4, source, equal=equal) for _ in range(8000)])
    for row in range(5):
        # Of five rows in equal blocks the first block has two. False-reject rate 1e-6 for each of ten rows.
        expected = 8000 * np.array([0.4, 0.2, 0.2, 0.2] if equal else [0.25] * 4)
        assert stats.chisquare(np.bincount(blocks[:, row], minlength=4), expected).pvalue > 1e-6
    together = np.mean(blocks[:, 0] == blocks[:, 1])
    # Two of five rows share a block of (2, 1, 1, 1) with probability 1/10, independent ones with 1/4; five deviations.
    assert together == pytest.approx(0.1 if equal else 0.25, abs=5.0 * 0.5 / np.sqrt(8000))


def test_one_row_more_leaves_independent_assignments_alone():
    few, many = (random_blocks(n, 7, SeededSource(1), equal=False) for n in (50, 51))
    assert np.array_equal(few, many[:50])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: random_blocks(-1, 2, SeededSource(0), equal=True), ValueError, "n_rows"),
        (lambda: random_blocks(3, 0, SeededSource(0), equal=True), ValueError, "n_blocks"),
        (lambda: random_blocks(3, 2, None, equal=True), TypeError, "source"),
        (lambda: random_blocks(3, 2, SeededSource(0), equal=1), TypeError, "equal"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
