"""The pick has exactly the exponential mechanism's law, whatever double arithmetic makes of its race."""

import itertools
import math
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
from margins import decided_exactly
from scipy import stats

from dpfast.noise import ExponentialPick, SeededSource
from dpfast.noise.discrete import _exponential
from dpfast.noise.exact import LazyUniform

SCORES = np.array([0.0, 0.5, 0.5, 1.25, 3.0, 2.0])


def picked(scores, source, rate=1.5):
    pick = ExponentialPick(rate, source)
    pick.update(scores)
    return pick.index


@pytest.mark.slow
@pytest.mark.parametrize(("n", "decided"), [(8_000, nullcontext), (1000, decided_exactly)])
def test_the_law_is_the_exponential_mechanisms(n, decided):
    source = SeededSource(3)
    with decided():
        counts = np.bincount([picked(SCORES, source) for _ in range(n)], minlength=len(SCORES))
    weights = np.exp(-1.5 * SCORES)
    # The rarest index is expected 40 times in 8,000 and 5 in 1,000; false-reject rate 1e-6 each.
    assert stats.chisquare(counts, n * weights / weights.sum()).pvalue > 1e-6


def test_the_exact_decision_picks_the_same():
    rng = np.random.default_rng(0)
    for seed in range(30):
        scores = 3.0 * rng.normal(size=12)
        quickly = picked(scores, SeededSource(seed))
        with decided_exactly():
            assert picked(scores, SeededSource(seed)) == quickly


@pytest.mark.parametrize("cuts", [[1], [5000, 5001], [8192], [3, 20_000]])
def test_blocks_do_not_matter(cuts):
    scores = np.random.default_rng(1).exponential(size=30_000)
    pick = ExponentialPick(1.0, SeededSource(5))
    for block in np.split(scores, cuts):
        pick.update(block)
    assert pick.index == picked(scores, SeededSource(5), rate=1.0)


def test_only_differences_of_scores_matter():
    """A common shift, exact in binary, changes no pick: the law knows differences alone."""
    for seed in range(50):
        assert picked(SCORES + 2.0**30, SeededSource(seed)) == picked(SCORES, SeededSource(seed))


def test_scores_beyond_the_range_of_their_exponentials():
    assert picked([1e300, -1e300, 0.0], SeededSource(0), rate=1e200) == 1


class _Words:
    """A source whose stream gives the words it is told, and whose branches give others."""

    def __init__(self, words, further):
        self._words, self._further = words, further

    def words(self, n):
        return np.array(self._words[:n], np.uint64)

    def branch(self, index):
        return itertools.chain(self._further[index], itertools.repeat(1)).__next__


@pytest.mark.parametrize(
    ("words", "further", "first"),
    [
        # Equal words: what is revealed next decides.
        ([1 << 40, 1 << 40], [[7], [6]], 1),
        ([1 << 40, 1 << 40], [[6], [7]], 0),
        # p within 2^-64 of 0: further digits say how close.
        ([0, 0], [[0, 5], [0, 4]], 1),
        # p within 2^-64 of 1, where the time has no upper bound yet.
        ([(1 << 64) - 1, (1 << 64) - 1], [[(1 << 64) - 9], [(1 << 64) - 2]], 0),
    ],
)
def test_ties_of_the_first_bits_are_decided_by_the_next(words, further, first):
    pick = ExponentialPick(1.0, SeededSource(0))
    pick._stream = _Words(words, further)
    pick.update([2.5, 2.5])
    assert pick.index == first


def test_the_time_is_enclosed():
    for word in (1, 12345, 1 << 33, 1 << 59, 1 << 63):
        time = _exponential(LazyUniform(word, 64, int), 60)
        low, high = (-math.log1p(-float(Fraction(word + i, 1 << 64))) for i in (0, 1))
        assert float(time.low) == pytest.approx(low, rel=1e-14)
        assert float(time.high) == pytest.approx(high, rel=1e-14)
        assert time.low < time.high


def test_margins_hold_against_many_digits():
    """Bounds in double enclose log E + rate * score, computed exactly, for words of every size."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(2)
    small = np.concatenate([rng.integers(2 ** (e - 1), 2**e, 20, dtype=np.uint64) for e in range(33, 65)])
    words = np.concatenate([small, np.uint64(2**64 - 1) - small])
    scores = rng.normal(size=len(words)) * 100.0
    low, high = ExponentialPick(0.7, SeededSource(0))._bounds(words, scores)
    trusted = np.isfinite(low)
    assert 900 < trusted.sum() < len(words)
    with mpmath.workdps(60):
        for i in np.flatnonzero(trusted):
            for end in (0, 1):
                p = mpmath.mpf(int(words[i]) + end) / 2**64
                exact = mpmath.log(-mpmath.log(1 - p)) + mpmath.mpf(0.7) * mpmath.mpf(scores[i])
                assert low[i] <= exact <= high[i]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ExponentialPick(0.0, SeededSource(0)), ValueError, "rate"),
        (lambda: ExponentialPick(math.inf, SeededSource(0)), ValueError, "rate"),
        (lambda: ExponentialPick("1", SeededSource(0)), TypeError, "rate"),
        (lambda: ExponentialPick(1.0, np.random.default_rng(0)), TypeError, "source"),
        (lambda: picked([1.0, math.nan], SeededSource(0)), ValueError, "scores"),
        (lambda: picked([[1.0]], SeededSource(0)), ValueError, "scores"),
        (lambda: ExponentialPick(1.0, SeededSource(0)).index, ValueError, "update"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
