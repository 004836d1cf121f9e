"""Draws of indices: the exponential mechanism's, rows sampled secretly, and rows assigned to blocks.

*One index of many*, in one pass over their scores, with exactly the exponential mechanism's law. Each index i runs for
a time E_i exp(rate * score_i), with E_i standard exponential and independent. The first to arrive is index i with
probability proportional to exp(-rate * score_i). E = -log(1 - p) for a uniform p in [0, 1) with 64 bits revealed. So
small values of E are known to the most digits, and the winner has one of these. Logarithms of times are compared in
double if a proved margin decides. Otherwise further bits of both p are revealed, and rigorous bounds sharpened, until
they part. The given scores are taken as exact numbers, and for them no floating-point gap is left.

*Rows sampled secretly*, for privacy amplified by sampling, and rows assigned to blocks: neither looks at the rows. A
sample's indices are drawn uniformly and independently, and new ones are kept, until there are enough. Relabelling the
indices does not change the law of the draws, so every set of that size is equally likely. This is exact: words beyond
the last whole multiple of n are rejected, so reducing words modulo n gives no bias either. For more than half of all
rows, the excluded rows are drawn instead. The set is a bitmap if that is small beside the result, else it is sorted.
Both methods take the same words in the same order, so they find the same set.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray, Words
from dpfast.kernels import draws as kernel
from dpfast.noise.exact import Interval, LazyUniform, digits_for
from dpfast.noise.samplers import BLOCK_WORDS, BitSource, Stream, check_source

# Words outside these give log E in double too poorly, and are always decided exactly. Between them p >= 2^-30 and
# 1 - p >= 2^-20. log E has the derivative 1/((1 - p) E), at most 2/p for p <= 1/2 and 2^20/log 2 beyond, so the half
# unit of 2^-65 in p moves it by at most 2^-34; rounding p to 53 bits, by less than 2^-52 p, moves it by at most
# 2^-52/(1 - p) <= 2^-32, as E >= p.
_SMALLEST_WORD = 1 << 34
_LARGEST_WORD = (1 << 64) - (1 << 44)
# That, and two logarithms of at most 24 in size with errors of at most 4 units in the last place.
_MARGIN = 2.0**-30
# Roundings of the product of rate and score, of its sum with log E, and of the margin itself.
_RELATIVE_MARGIN = 2.0**-50

#: The most rows there can be: indices are int64.
MAX_ROWS = 2**63 - 1
# A bitmap of so many bits per index drawn takes twice the memory of the indices themselves.
_BITS_PER_DRAW = 128


@dataclass
class _Runner:
    """An index in the race: bounds on the logarithm of its time, and the numbers to decide it exactly."""

    index: int
    score: Fraction
    low: float
    high: float
    uniform: LazyUniform


class ExponentialPick:
    """Pick an index with probability proportional to ``exp(-rate * score)``, in one pass and constant memory.

    Privacy: with the rate of `dpfast.privacy.score_rate` the picked index is an epsilon-DP release, and so is every
    index picked with scores that one person moves by as little. The scores stay with the owner of the data.

    Parameters
    ----------
    rate : float
        In the inverse units of the scores; positive and finite. Public.
    source : BitSource
        Source of the random bits.
    widening : float, default 0.0
        Added to the margin within which double arithmetic is not trusted. ``inf`` sends every comparison through the
        exact decision; the picked index stays the same.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Section 3.

    Examples
    --------
    >>> from dpfast.noise import ExponentialPick, SeededSource
    >>> pick = ExponentialPick(1.0, SeededSource(0))
    >>> for block in ([30.0, 20.0], [0.0, 25.0, 40.0]):
    ...     pick.update(block)
    >>> pick.index
    2
    """

    def __init__(self, rate: float, source: BitSource, *, widening: float = 0.0) -> None:
        self._rate = check.positive("rate", rate)
        self._exact_rate = Fraction(self._rate)
        self._stream = check_source(source).open()
        self._widening = check.real("widening", widening)
        self._n_scores = 0
        self._first: _Runner | None = None

    def update(self, scores: ArrayLike) -> None:
        """Let the next scores run: finite, lower being better; the division into blocks does not matter."""
        block = np.asarray(scores, np.float64)
        if block.ndim != 1 or not np.isfinite(block).all():
            raise ValueError(f"scores must be a vector of finite numbers, got shape {block.shape} or NaN or infinity")
        for start in range(0, len(block), BLOCK_WORDS):
            self._run(block[start : start + BLOCK_WORDS])

    @property
    def index(self) -> int:
        """The index picked among all scores so far, counted from the first."""
        if self._first is None:
            raise ValueError("scores must come before an index is picked: call update first")
        return self._first.index

    def _run(self, scores: FloatArray) -> None:
        words = self._stream.words(len(scores))
        low, high = self._bounds(words, scores)
        earliest = min(float(high.min()), np.inf if self._first is None else self._first.high)
        for i in np.flatnonzero(low <= earliest):
            index = self._n_scores + int(i)
            uniform = LazyUniform(int(words[i]), 64, self._stream.branch(index))
            runner = _Runner(index, Fraction(float(scores[i])), float(low[i]), float(high[i]), uniform)
            if self._first is None or self._is_before(runner, self._first):
                self._first = runner
        self._n_scores += len(scores)

    def _bounds(self, words: Words, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bound the logarithms of the times, log E + rate * score."""
        p = (words.astype(np.float64) + 0.5) * 2.0**-64
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            shifts = self._rate * scores
            times = np.log(-np.log1p(-p)) + shifts
            margins = _MARGIN + _RELATIVE_MARGIN * np.abs(shifts) + self._widening
            low, high = times - margins, times + margins
        trusted = (words >= _SMALLEST_WORD) & (words < _LARGEST_WORD) & np.isfinite(low) & np.isfinite(high)
        return np.where(trusted, low, -np.inf), np.where(trusted, high, np.inf)

    def _is_before(self, one: _Runner, other: _Runner) -> bool:
        if one.high < other.low or other.high < one.low:
            return one.high < other.low
        # log E_one - log E_other < rate * (score_other - score_one)
        lead = self._exact_rate * (other.score - one.score)
        while True:
            digits = digits_for(2 * max(one.uniform.n_bits, other.uniform.n_bits)) + len(str(int(abs(lead))))
            times = [_exponential(runner.uniform, digits) for runner in (one, other)]
            if all(time.low > 0 for time in times):
                behind = times[0].ln() - times[1].ln() - Interval.of(lead, digits)
                if behind.high < 0 or behind.low > 0:
                    return behind.high < 0
            for runner in (one, other):
                runner.uniform.reveal()


def _exponential(uniform: LazyUniform, digits: int) -> Interval:
    """Enclose E = -log(1 - p)."""
    low, high = uniform.bounds()
    at_low, at_high = (-(Interval.of(1 - p, digits).ln()) if p < 1 else None for p in (low, high))
    assert at_low is not None
    return Interval(at_low.low, Decimal("Infinity") if at_high is None else at_high.high, digits)


def sample_without_replacement(n_total: int, n_sampled: int, source: BitSource) -> IntArray:
    """Return a uniformly random set of `n_sampled` row indices below `n_total`, in increasing order.

    Privacy: `dpfast.privacy.subsampled_budget` and `subsampled_moment_scales` count on this sample staying secret. It
    must never be released, stored or shown, nor a release be repeated on it.

    Examples
    --------
    >>> from dpfast.noise import SeededSource, sample_without_replacement
    >>> rows = sample_without_replacement(1000, 3, SeededSource(0))
    >>> len(set(rows.tolist())), bool((rows[:-1] < rows[1:]).all())
    (3, True)
    """
    total = check.integer_of_at_least("n_total", n_total, 0)
    if total > MAX_ROWS:
        raise ValueError(f"n_total must be below 2**63, got {total}")
    sampled = check.integer_of_at_least("n_sampled", n_sampled, 0)
    if sampled > total:
        raise ValueError(f"n_sampled must be at most n_total, {total}, got {sampled}")
    stream = check_source(source).open()
    n_drawn = min(sampled, total - sampled)
    if total <= _BITS_PER_DRAW * n_drawn:
        return _by_bitmap(total, sampled, stream)
    drawn = _by_sorting(total, n_drawn, stream)
    return drawn if n_drawn == sampled else np.delete(np.arange(total), drawn)


def _by_bitmap(n_total: int, n_sampled: int, stream: Stream) -> IntArray:
    bitmap = np.zeros(-(-n_total // 64), np.uint64)
    missing = min(n_sampled, n_total - n_sampled)
    complement = missing < n_sampled
    while missing > 0:
        missing -= kernel.insert(stream.words(BLOCK_WORDS), n_total, _largest_word(n_total), bitmap, missing)
    rows = np.empty(n_sampled, np.int64)
    kernel.selected(bitmap, n_total, complement, rows)
    return rows


def _by_sorting(n_total: int, n_wanted: int, stream: Stream) -> IntArray:
    """Draw as many as are missing and drop repeats: no more than is missing, so no set is ever truncated."""
    found = np.empty(0, np.int64)
    while len(found) < n_wanted:
        found = np.union1d(found, _uniform(n_wanted - len(found), n_total, stream))
    return found


def _uniform(n: int, n_total: int, stream: Stream) -> IntArray:
    """Return `n` independent uniform integers below `n_total`."""
    out = np.empty(n, np.int64)
    made = 0
    while made < n:
        words = stream.words(min(BLOCK_WORDS, n - made))
        words = words[words <= np.uint64(_largest_word(n_total))]
        out[made : made + len(words)] = words % np.uint64(n_total)
        made += len(words)
    return out


def _largest_word(n_total: int) -> int:
    """Return the last word before the incomplete multiple of `n_total` at the end of the range."""
    return (1 << 64) // n_total * n_total - 1


def random_blocks(n_rows: int, n_blocks: int, source: BitSource, *, equal: bool) -> IntArray:
    """Return the block that each row is assigned to.

    Either the sizes of blocks differ by at most 1 (`equal`: a random permutation, split into pieces), or each row is
    assigned independently of all others.

    Privacy: the assignment depends on nobody's values and may be public. If the number of rows is private, blocks must
    not be made equal: one more row would then move others to other blocks. With independent assignment it does not.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.noise import SeededSource, random_blocks
    >>> np.bincount(random_blocks(11, 4, SeededSource(0), equal=True))
    array([3, 3, 3, 2])
    """
    n_rows = check.integer_of_at_least("n_rows", n_rows, 0)
    n_blocks = check.positive_integer("n_blocks", n_blocks)
    words = check_source(source).words(n_rows)
    if not check.boolean("equal", equal):
        return (words % np.uint64(n_blocks)).astype(np.int64)
    blocks = np.empty(n_rows, np.int64)
    blocks[np.argsort(words, kind="stable")] = np.arange(n_rows) % n_blocks
    return blocks
