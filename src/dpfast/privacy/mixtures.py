"""Composition of Gaussian and other releases whose costs were decided beforehand.

An (epsilon, delta)-DP release is a post-processing of a simpler one (privacy.composition). With probability delta this
one reveals everything, and otherwise it is randomised response at epsilon. The log likelihood ratio of n_k randomised
responses at e_k is ``(2 j - n_k) e_k``, with j binomial of n_k and 1/(1 + exp(-e_k)); independent ones add. Beside
Gaussian releases, of one mu together, this gives for every real epsilon, and both orders of the tables,

    delta(epsilon) <= sum of deltas + E delta_G(mu; epsilon - ratio),

with the mean over the sum of those ratios. delta_G falls in epsilon, so ratios may be rounded up, to a grid if they are
many, and an epsilon may be rounded up to another. An accountant of privacy-loss distributions computes the same. It is
not a limit for releases that are chosen along the way.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.privacy.gaussian import gaussian_epsilon
from dpfast.privacy.rounding import bisected

# Numbers of distinct ratios, and of distinct epsilons.
_POINTS, _KINDS = 4096, 64
# Margins for the rounding of weights, and for underflow.
_MARGIN, _LOST = 1e-9, 1e-290
_STEPS = 50


def mixture_epsilon(mu: float, epsilons: Iterable[float], delta: float) -> float:
    """Return an epsilon at a delta of a Gaussian of mu (0 for none) and of randomised responses; rounded up.

    >>> from dpfast.privacy.mixtures import mixture_epsilon
    >>> round(mixture_epsilon(0.1, [0.1, 0.1], 1e-6), 3), mixture_epsilon(0.0, [0.5], 0.0)
    (0.566, 0.5)
    """
    kinds = _of_few_kinds(Counter(epsilons))
    pure = math.fsum(kinds.elements())
    if mu == 0.0 and (not kinds or delta <= _LOST or math.isinf(pure)):
        return pure
    if delta < max(sys.float_info.min, _LOST if kinds else 0.0):
        return math.inf
    gaussian = gaussian_epsilon(1.0, delta, mu) if mu > 0.0 else 0.0
    highest = math.nextafter(pure + gaussian, math.inf) if kinds else gaussian
    if not kinds or math.isinf(highest):
        return highest
    ratios, weights = _ratios(kinds)

    def holds(epsilon: float) -> bool:
        total = float(weights @ _profile(mu, epsilon - ratios))
        return total * (1.0 + _MARGIN) + _LOST <= delta

    return 0.0 if holds(0.0) else bisected(lambda epsilon: not holds(epsilon), 0.0, highest, _STEPS)[1]


def _of_few_kinds(counts: Counter[float]) -> Counter[float]:
    """Round epsilons up to a few distinct ones."""
    counts = Counter({epsilon: count for epsilon, count in counts.items() if count})
    if len(counts) <= _KINDS or math.isinf(max(counts)):
        return counts
    # The groups go from the largest downwards, each within a constant factor.
    largest = max(counts)
    step = math.log(largest / min(counts)) / (_KINDS - 1)
    few: Counter[float] = Counter()
    for epsilon, count in counts.items():
        down = math.floor(math.log(largest / epsilon) / step)
        few[max(epsilon, largest * math.exp(-step * down))] += count
    return few


def _ratios(kinds: Counter[float]) -> tuple[FloatArray, FloatArray]:
    """Return the values of the sum of all ratios, rounded up if they are many, and their probabilities."""
    from scipy.special import gammaln  # takes longer to import than all of dpfast.privacy

    ratios, weights = np.zeros(1), np.ones(1)
    for epsilon, count in sorted(kinds.items()):
        heads = np.arange(count + 1.0)
        log_odds = -np.log1p(np.exp(-epsilon))
        chances = gammaln(count + 1.0) - gammaln(heads + 1.0) - gammaln(count - heads + 1.0)
        chances = np.exp(chances + heads * log_odds + (count - heads) * (log_odds - epsilon))
        ratios = np.add.outer(ratios, (2.0 * heads - count) * epsilon).ravel()
        weights = np.multiply.outer(weights, chances).ravel()
        if len(ratios) > _POINTS:
            least = ratios.min()
            step = (ratios.max() - least) / (_POINTS - 2)
            places = np.ceil((ratios - least) / step).astype(np.int64)
            weights = np.bincount(places, weights, _POINTS).astype(np.float64)
            ratios = least + step * np.arange(1.0 * _POINTS)
    # Margin for the rounding of sums and products.
    return ratios + 1e-14 * np.abs(ratios).max(), weights


def _profile(mu: float, epsilon: FloatArray) -> FloatArray:
    """Return delta_G(mu; epsilon), rounded up."""
    if mu == 0.0:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))
    from scipy.special import log_ndtr  # takes longer to import than all of dpfast.privacy

    own, other = log_ndtr(mu / 2.0 - epsilon / mu), log_ndtr(-mu / 2.0 - epsilon / mu)
    room = 1e-15 * (np.abs(epsilon) + np.abs(own) + np.abs(other))
    return np.asarray(-np.exp(own) * np.expm1(np.minimum(epsilon + other - own - room, 0.0)))
