"""Integers, exactly: the discrete Gaussian, the exponential mechanism's index, and samples and blocks of rows.

*The discrete Gaussian*, from a histogram of columns. The loop is kernels/draws.c; here are its table, bounded
rigorously in integers, and the exact decision of the draws that its table and double arithmetic leave open. Tables are
cached by scale (a public number).

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

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray, Words
from dpfast.kernels import draws as kernel
from dpfast.noise.exact import Interval, LazyUniform, digits_for, exponential_tail
from dpfast.noise.samplers import BLOCK_WORDS, BitSource, Stream, check_source

from .samplers import Size

#: Largest scale whose draws fit 64 bits, 8 standard deviations and far more.
MAX_SCALE = 2.0**57
#: A column is at most 1/32 of the scale wide: 97% of the proposals are accepted without an exponential.
_COLUMNS_PER_SCALE_EXPONENT = 5
_GUIDE_BITS = 12
_THRESHOLD_BITS = 63
_GUARD_BITS = 64
#: Bound on the error of the acceptance probability in double: 64 units in the last place, each rounding counted twice.
_ACCEPTANCE_ERROR = 2.0**-46
_MAX_CACHED_TABLES = 64


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns of 2**shift integers, as kernels/draws.c describes them."""

    shift: int
    thresholds: Words
    sure: Words
    guide: NDArray[np.uint16]


def discrete_gaussian(scale: float, size: Size, source: BitSource) -> IntArray:
    """Return integers of the discrete Gaussian law, P(k) proportional to exp(-k**2 / (2 scale**2)), exactly.

    Privacy: added to integers of L2 sensitivity Delta it is (Delta/scale)**2/2-zCDP, as the continuous Gaussian is; its
    (epsilon, delta) curve is close to the continuous one's, not the same. For real-valued statistics use `gaussian`.

    Parameters
    ----------
    scale : float
        The parameter of the law, about its standard deviation when above 1. Positive, at most 2**57. Public.
    size : int or tuple of int
        Shape of the result.
    source : BitSource
        Source of the random bits.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    C. Canonne, G. Kamath and T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Definition 1.

    Examples
    --------
    >>> from dpfast.noise import SeededSource, discrete_gaussian
    >>> discrete_gaussian(1000.0, 5, SeededSource(0)).dtype
    dtype('int64')
    """
    scale = check.positive("scale", scale)
    if scale > MAX_SCALE:
        raise ValueError(f"scale must be at most 2**57, for draws to fit 64 bits, not {scale!r}")
    draws = np.empty(check.shape("size", size), np.int64)
    flat = draws.reshape(-1)
    table = column_table(scale)
    stream = check_source(source).open()
    made = words_before = 0
    while made < flat.size:
        words = stream.words(_words_for(flat.size - made, table.shift))
        position = 0
        while True:
            n_new, position, undecided = kernel.discrete_gaussian(
                table.thresholds, table.sure, table.guide, _GUIDE_BITS, table.shift, scale, _ACCEPTANCE_ERROR, words,
                position, flat[made:],
            )  # fmt: skip
            made += n_new
            if not undecided:
                break
            value, position = _decide(scale, table, words, position, stream, words_before + position)
            if value is not None:
                flat[made] = value
                made += 1
        words_before += len(words)
    return draws


def _words_for(n_draws: int, shift: int) -> int:
    """Words that suffice for about as many draws; words left over are not used, whatever they are."""
    words_per_draw = 2 if shift else 1
    return min(BLOCK_WORDS, words_per_draw * n_draws + n_draws // 8 + 8)


def _decide(
    scale: float, table: _Table, words: Words, position: int, stream: Stream, index: int
) -> tuple[int | None, int]:
    """Decide one proposal exactly: (its value, or None if it is rejected; position of the next)."""
    first = int(words[position])
    negative, u = bool(first >> 63), first & ((1 << 63) - 1)
    column = _column(LazyUniform(u, 63, stream.branch(2 * index)), u, scale, table)
    position += 1
    magnitude = column
    if table.shift:
        second = int(words[position])
        position += 1
        t, h = second & ((1 << table.shift) - 1), second >> table.shift
        magnitude = (column << table.shift) + t
        # Columns beyond the table have no quick acceptance.
        if column >= len(table.sure) or h >= int(table.sure[column]):
            extended = h << 64 | int(words[position])
            position += 1
            uniform = LazyUniform(extended, 128 - table.shift, stream.branch(2 * index + 1))
            exponent = _exponent(magnitude, scale) - _exponent(column << table.shift, scale)
            if not uniform.below(lambda bits: exponential_tail(exponent, bits)):
                return None, position
        if negative and magnitude == 0:
            return None, position
    return (-magnitude if negative else magnitude), position


def _column(uniform: LazyUniform, u: int, scale: float, table: _Table) -> int:
    """Return the least j such that the uniform is below P(column <= j)."""
    column = int(np.searchsorted(table.thresholds, np.uint64(u)))
    while not uniform.below(functools.partial(_cumulative_bounds, scale, table.shift, column)):
        column += 1
    return column


def _exponent(k: int, scale: float) -> Fraction:
    return Fraction(k * k) / (2 * Fraction(scale) ** 2)


@functools.lru_cache(maxsize=_MAX_CACHED_TABLES)
def column_table(scale: float) -> _Table:
    """Build the columns of one scale."""
    shift = max(0, math.frexp(scale)[1] - 1 - _COLUMNS_PER_SCALE_EXPONENT)
    thresholds, ratios = _thresholds(scale, shift)
    starts = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(_THRESHOLD_BITS - _GUIDE_BITS)
    # The first column whose threshold is not below the start: equality must be met by the search, not skipped.
    guide = np.searchsorted(thresholds, starts, side="left").astype(np.uint16)
    sure = np.array([ratio >> (_GUARD_BITS + shift - 1) for ratio in ratios], np.uint64)
    return _Table(shift, thresholds, sure, guide)


def _thresholds(scale: float, shift: int) -> tuple[Words, list[int]]:
    """Return floor(2**63 P(column <= j)) up to the first 2**63 - 1, and lower bounds of weight ratios of neighbours."""
    bits = _THRESHOLD_BITS + _GUARD_BITS
    while True:
        bounds, ratios = _cumulative(scale, shift, bits)
        floors = [(low >> (bits - _THRESHOLD_BITS), high >> (bits - _THRESHOLD_BITS)) for low, high in bounds]
        last = next((j for j, (low, _) in enumerate(floors) if low == (1 << _THRESHOLD_BITS) - 1), None)
        if last is not None and all(low == high for low, high in floors[:last]):
            thresholds = np.array([low for low, _ in floors[: last + 1]], np.uint64)
            return thresholds, [ratio >> (bits - _THRESHOLD_BITS - _GUARD_BITS) for ratio in ratios[: last + 1]]
        bits += _GUARD_BITS


def _cumulative_bounds(scale: float, shift: int, column: int, bits: int) -> tuple[int, int]:
    """Bound 2**bits P(column <= j) by integers."""
    bounds, _ = _cumulative(scale, shift, bits)
    # The list ends when the rest is below the last bit.
    return bounds[column] if column < len(bounds) else ((1 << bits) - 1, 1 << bits)


@functools.lru_cache(maxsize=_MAX_CACHED_TABLES)
def _cumulative(scale: float, shift: int, bits: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Bound 2**bits P(column <= j) from both sides, and 2**bits weight[j + 1] / weight[j] from below.

    Column j has weight q^(j^2), q = exp(-L^2 / (2 scale^2)); the next one is q^(2j+1) times it, and that ratio falls by
    q^2. All are kept in fixed point, rounded down and up, until the rest of the sum (a geometric series bounds it) is
    below 2**-bits of the whole.
    """
    precision = bits + _GUARD_BITS
    one = 1 << precision
    ratio_low, ratio_high = exponential_tail(_exponent(1 << shift, scale), precision)
    fall_low, fall_high = ratio_low * ratio_low >> precision, _ceil_shift(ratio_high * ratio_high, precision)
    weight_low = weight_high = one
    sum_low = sum_high = 0
    sums: list[tuple[int, int]] = []
    ratios: list[int] = []
    while True:
        # With columns of one integer, magnitude zero is a single integer and every other magnitude two.
        copies = 2 if sums and not shift else 1
        sum_low, sum_high = sum_low + copies * weight_low, sum_high + copies * weight_high
        sums.append((sum_low, sum_high))
        ratios.append(max(ratio_low, 0) >> _GUARD_BITS)
        weight_low, weight_high = weight_low * ratio_low >> precision, _ceil_shift(weight_high * ratio_high, precision)
        ratio_low, ratio_high = ratio_low * fall_low >> precision, _ceil_shift(ratio_high * fall_high, precision)
        rest = 2 * (weight_high * one // (one - ratio_high) + 1)
        if rest < one >> (bits + 1):
            break
    bounds = [((low << bits) // (sum_high + rest), min(-((-high << bits) // sum_low), 1 << bits)) for low, high in sums]
    return bounds, ratios


def _ceil_shift(value: int, bits: int) -> int:
    return -((-value) >> bits)


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

    def __init__(self, rate: float, source: BitSource) -> None:
        self._rate = check.positive("rate", rate)
        self._exact_rate = Fraction(self._rate)
        self._stream = check_source(source).open()
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
            margins = _MARGIN + _RELATIVE_MARGIN * np.abs(shifts)
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
