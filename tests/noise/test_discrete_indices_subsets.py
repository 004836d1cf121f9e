import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import chi2

from dpfast.kernels import draws as kernel
from dpfast.noise import SecureSource, SeededSource, discrete, random_blocks, sample_without_replacement


@given(st.integers(0, 400), st.data(), st.integers(0, 2**32))
@settings(deadline=None)
def test_indices_are_distinct_in_order_and_in_range(n_total, data, seed):
    n_sampled = data.draw(st.integers(0, n_total))
    rows = sample_without_replacement(n_total, n_sampled, SeededSource(seed))
    assert rows.dtype == np.int64
    assert rows.shape == (n_sampled,)
    assert np.all(np.diff(rows) > 0)
    assert n_sampled == 0 or (rows[0] >= 0 and rows[-1] < n_total)


def chi_squared(draw, subsets, n_draws):
    """Pearson's statistic of the counts of all subsets against their being equally likely."""
    counts = dict.fromkeys(subsets, 0)
    for _ in range(n_draws):
        counts[tuple(draw().tolist())] += 1
    expected = n_draws / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts.values())


# 11 cases, each rejecting a right sampler with probability 1e-7 (and seeded: they pass or fail for good).
FALSE_REJECTS = 1e-7


@pytest.mark.parametrize(
    ("n_total", "n_sampled"), [(2, 1), (5, 1), (5, 2), (5, 4), (6, 3), (7, 2), (7, 5), (8, 4), (9, 1), (4, 3), (10, 2)]
)
@pytest.mark.parametrize("by_sorting", [False, True])
def test_every_subset_is_equally_likely(n_total, n_sampled, by_sorting, monkeypatch):
    if by_sorting:
        monkeypatch.setattr(discrete, "_BITS_PER_DRAW", 0)
    source = SeededSource(n_total * 100 + n_sampled)
    possible = list(itertools.combinations(range(n_total), n_sampled))
    n_draws = 40 * len(possible) if by_sorting else 60 * len(possible)
    found = chi_squared(lambda: sample_without_replacement(n_total, n_sampled, source), possible, n_draws)
    # The chi-squared approximation is good to a factor of a few in the tail at 40 expected a cell.
    assert found < chi2.isf(FALSE_REJECTS, len(possible) - 1)


def test_a_biased_copy_is_caught():
    """Sampling with replacement and topping up from the front, as a careless loop would."""
    rng = np.random.default_rng(0)

    def careless():
        found = sorted(set(rng.integers(0, 6, 3).tolist()))
        found += [i for i in range(6) if i not in found][: 3 - len(found)]
        return np.sort(found)

    subsets = list(itertools.combinations(range(6), 3))
    assert chi_squared(careless, subsets, 60 * len(subsets)) > chi2.isf(FALSE_REJECTS, len(subsets) - 1)


@pytest.mark.parametrize(
    ("n_total", "n_sampled"), [(1000, 400), (1000, 900), (64, 32), (65, 1), (5000, 5), (300_000, 99_000)]
)
def test_bitmap_and_sorting_find_the_same_set(n_total, n_sampled, monkeypatch):
    found = []
    for bits in (0, 10**9):
        monkeypatch.setattr(discrete, "_BITS_PER_DRAW", bits)
        found.append(sample_without_replacement(n_total, n_sampled, SeededSource(7)))
    np.testing.assert_array_equal(*found)


def test_words_beyond_the_last_whole_multiple_are_skipped():
    """No remainder is more likely than another: with n = 3 * 2**62, a quarter of the words must go."""
    n_total = 3 << 62
    words = np.array([n_total, n_total + 5, 2**64 - 1, n_total - 1, 9], np.uint64)
    assert discrete._largest_word(n_total) == n_total - 1
    assert discrete._largest_word(1 << 40) == 2**64 - 1
    bitmap = np.zeros(4, np.uint64)
    small = words.copy()
    small[3] = 100
    assert kernel.insert(small, 200, 150, bitmap, 5) == 2
    rows = np.empty(2, np.int64)
    kernel.selected(bitmap, 200, False, rows)
    assert rows.tolist() == [9, 100]


def test_no_more_than_missing_is_taken():
    bitmap = np.zeros(1, np.uint64)
    assert kernel.insert(np.arange(10, dtype=np.uint64), 64, 63, bitmap, 3) == 3
    assert bitmap[0] == 0b111


def test_large_samples_are_spread_evenly():
    # Counts in ten tenths are hypergeometric, of standard deviation below 300 here: 7 of them, 20 times, 1e-10.
    for n_sampled in (10**5, 9 * 10**5):
        rows = sample_without_replacement(10**6, n_sampled, SeededSource(1))
        counts = np.bincount(rows // 10**5, minlength=10)
        assert np.abs(counts - n_sampled / 10).max() < 7 * math.sqrt(n_sampled / 10)
    rows = sample_without_replacement(2**62, 1000, SeededSource(2))
    assert 0.4 < np.mean(rows) / 2**62 < 0.6  # 7 * 0.29 / sqrt(1000) = 0.064


def test_seeds_repeat_and_secure_sources_do_not():
    def draw(source):
        return sample_without_replacement(10**6, 100, source).tolist()

    assert draw(SeededSource(3)) == draw(SeededSource(3)) != draw(SeededSource(4))
    source = SeededSource(3)
    assert draw(source) != draw(source)
    assert draw(SecureSource()) != draw(SecureSource())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, 4), ValueError, "n_sampled must be at most n_total, 3, got 4"),
        ((3, -1), ValueError, "n_sampled must be at least 0"),
        ((-3, 0), ValueError, "n_total must be at least 0"),
        ((2**63, 1), ValueError, "n_total must be below"),
        ((3.0, 1), TypeError, "n_total must be an integer"),
        ((3, True), TypeError, "n_sampled must be an integer"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        sample_without_replacement(*arguments, SecureSource())
    with pytest.raises(TypeError, match="source must be"):
        sample_without_replacement(3, 1, np.random.default_rng(0))


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
def test_bad_input_of_blocks_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
