"""The discrete Gaussian on the integers, exactly, from a histogram of columns.

The loop is kernels/draws.c; here are its table, bounded rigorously in integers, and the exact decision of the
draws that its table and double arithmetic leave open. Tables are cached by scale (a public number).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import IntArray, Words
from dpfast.kernels import draws as kernel
from dpfast.noise.exact import LazyUniform, exponential_tail
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
    return draw(scale, size, source)


def draw(scale: float, size: Size, source: BitSource, *, margin: float = _ACCEPTANCE_ERROR) -> IntArray:
    """Draw with a given margin; one of 1 sends every draw through the exact decision, and must change nothing."""
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
                table.thresholds, table.sure, table.guide, _GUIDE_BITS, table.shift, scale, margin, words, position,
                flat[made:],
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
