"""Bounds read from noisy histograms of sizes: the smallest one with few people above it.

The people above a bound are counted by a sum of released bins, whose noise grows with the number of bins. So a
histogram is read by runs of few bins (`_RUNS`). Counts are nonnegative, so each run gives a lower limit of the people
above the bin before it. A bound is too small as long as some run above it shows more people than may be clipped. The
threshold is exceeded by noise alone in one histogram of a thousand. This rule would miss a tail too thin for any single
run. So from there the bound rises while the next bins hold more people than that by a standard deviation. Noise can
cause this too, and makes the bound a bin or two too large.

If nothing is above the noise, the bound is the end of the run with the largest count, and is marked as a guess.

Signed sizes have two ends. Runs above the noise show people on one side of 0. They do not exclude people on the other,
who may be half of all. So an end is nearer to 0 than the other one only if the released counts between say that few
people are there (`last_of_side`). Too wide an interval costs little, too narrow a one moves half of the people.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from dpfast._arrays import FloatArray

_RUNS = (1, 2, 4, 8)
#: Bins that are added up if nothing is above the noise.
_GUESSED = 4
#: Half-octaves of sizes that count beside the largest one; those below are about 0 to it.
_BESIDE = 8


class Caution(NamedTuple):
    """How sure it must be that there are people above a bound."""

    #: How often noise alone may raise it without limit.
    false_alarm: float = 1e-3
    #: Bins next above it that may raise it, and the standard deviations of noise that people in them exceed.
    next_bins: int = 4
    exceeded: float = 1.0


USUAL = Caution()


class LastBin(NamedTuple):
    """The smallest bin with all but few people in it or below it."""

    place: int
    #: Whether the histogram shows people there, beyond noise.
    is_certain: bool


def last_bin(
    counts: FloatArray,
    deviation: float,
    *,
    share: float,
    people: float | None = None,
    heavy: bool = False,
    caution: Caution = USUAL,
) -> LastBin:
    """Find the last bin that is needed if a share of the people may be clipped.

    Parameters
    ----------
    counts : ndarray
        Released.
    deviation : float
        Of the noise in a bin; 0 for none.
    share : float
        Of the people.
    people : float, optional
        Number of people; by default the sum of the noisy counts.
    heavy : bool
        Whether the noise is Laplace, and not Gaussian.
    caution : Caution
        How sure it must be that people are above the bound.
    """
    few = share * max(0.0, float(counts.sum()) if people is None else people)
    n_bins = len(counts)
    runs = [length for length in _RUNS if length <= n_bins]
    below = np.concatenate([[0.0], np.cumsum(counts)])
    last = -1
    for length in runs:
        limit = few + deviation * _beyond_noise(length, caution.false_alarm / (n_bins * len(runs)), heavy)
        (beyond,) = (below[length:] - below[:-length] > limit).nonzero()
        last = max(last, int(beyond[-1]) if len(beyond) else -1)
    is_certain = last >= 0
    if not is_certain:
        longest = min(_GUESSED, n_bins)
        last = int(np.argmax(below[longest:] - below[:-longest])) + longest - 1
    while last + 1 < n_bins:
        end = min(last + 1 + caution.next_bins, n_bins)
        if below[end] - below[last + 1] <= few + caution.exceeded * deviation * math.sqrt(end - last - 1):
            break
        last += 1
    return LastBin(last, is_certain)


def last_of_side(
    counts: FloatArray, place: int, zero: int, reach: int, deviation: float, *, share: float, people: float
) -> int:
    """Find the last bin on the upper side, if the last of both sides is `reach` bins from that of zeros.

    Parameters
    ----------
    counts : ndarray
        Released, from the least size to the largest.
    place : int
        The last bin seen above the noise.
    zero : int
        The bin of zeros; 0 if sizes have one sign.
    reach : int
        Bins from zero to the farther one of the two ends.
    deviation, share, people
        As for `last_bin`.

    Returns
    -------
    int
        The bin as far from zero as the other end, unless few people are beyond `place` there; then zero, unless few
        people are between it and `place`; then `place`.
    """
    end = min(zero + reach, len(counts) - 1)
    if place >= end:
        return place
    farther = max(zero - reach, 0)
    others = float(counts[farther : min(farther + _BESIDE, zero)].sum())

    def may_hold(first: int, stop: int) -> bool:
        if first >= stop:
            return False
        noise = deviation * math.sqrt(stop - first)
        # Where a quarter of the others would be seen, noise may be up to two standard deviations; else up to one.
        return float(counts[first:stop].sum()) > share * people + max(noise, min(2.0 * noise, others / 4.0))

    if may_hold(max(place, zero, end - _BESIDE) + 1, end + 1):
        return end
    if place < zero and may_hold(place + 1, min(place + 1 + _BESIDE, zero)):
        return zero
    return place


class WithoutZeros(NamedTuple):
    """A histogram without its bin of zeros."""

    counts: FloatArray
    #: The people few of whom may be clipped: all, or those with a nonzero size if most are zero.
    people: float
    #: Whether the count of zeros is above the noise.
    has_zeros: bool


def without_zeros(
    counts: FloatArray, zero: int, deviation: float, *, people: float | None = None, heavy: bool = False
) -> WithoutZeros:
    """Exclude the bin of zeros: the scale is that of nonzero sizes.

    1% of all people may be everyone with a nonzero size. So if most are zero, the rule is 1% of the others.
    """
    total = max(0.0, float(counts.sum()) if people is None else people)
    zeros = float(counts[zero])
    others = counts.copy()
    others[zero] = 0.0
    are_most = zeros - deviation > total / 2.0
    return WithoutZeros(
        others,
        max(total - zeros, 0.0) if are_most else total,
        zeros > deviation * _beyond_noise(1, USUAL.false_alarm, heavy),
    )


class QuantileBin(NamedTuple):
    """The first bin with a share of the people in it and below it, and the share that these are."""

    place: int
    share: float


def quantile_bin(counts: FloatArray, share: float, people: float | None = None) -> QuantileBin:
    """Find the first bin of a released histogram with this many people in it or below it.

    `people` is the number of people, by default the sum of the noisy counts. People below are counted from either end,
    and the mean of the two has half the variance.
    """
    total = max(float(counts.sum()) if people is None else people, 1.0)
    above = np.append(np.cumsum(counts[:0:-1])[::-1], 0.0)
    below = (np.cumsum(counts) + (total - above)) / (2.0 * total)
    reached = np.flatnonzero(below >= share)
    place = int(reached[0]) if len(reached) else len(counts) - 1
    return QuantileBin(place, min(max(float(below[place]), share), 1.0))


def _beyond_noise(length: int, probability: float, heavy: bool) -> float:
    """Return the level that noise in a run exceeds with a small probability, in standard deviations of one bin."""
    normal = -float(ndtri(probability))
    # The tail of a sum of Laplace noise is that of one of them, to which the others add as normal noise would.
    single = math.log(0.5 / probability) / math.sqrt(2.0) - normal if heavy else 0.0
    return normal * math.sqrt(length) + single
