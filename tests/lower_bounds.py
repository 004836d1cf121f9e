"""Lower bounds on epsilon, and on mu, that assume nothing of the noise: from scores of outputs on two tables.

If the mechanism is (epsilon, delta)-DP then P(S > t) <= e^epsilon P'(S > t) + delta for every score S of its output and
threshold t. Frequencies with confidence limits reverse this: they bound epsilon from below (Jagielski, Ullman, Oprea
2020). The threshold is chosen on one half of the samples and judged on the other, so the choice costs no confidence. It
cannot see a delta of 1e-5 in fewer than millions of outputs.
"""

import math
from itertools import product

import numpy as np
from scipy import special

# Of scores, that are tried.
_THRESHOLDS = 400


def epsilon_lower_bound(first, second, delta, confidence=0.999):
    """Epsilon that the mechanism provably exceeds, from scores of its outputs on two neighbouring tables."""
    candidates = []
    for sign, (high, low) in product((1.0, -1.0), ((first, second), (second, first))):
        thresholds = _thresholds(high[::2], low[::2], sign)
        hits, false = _exceed(high[::2], thresholds, sign), _exceed(low[::2], thresholds, sign)
        bounds = _log_ratio(hits, len(high[::2]), false, len(low[::2]), delta, 1.0 - confidence)
        index = int(np.argmax(bounds))
        candidates.append((float(bounds[index]), sign, high, low, thresholds[index : index + 1]))
    _, sign, high, low, threshold = max(candidates, key=lambda candidate: candidate[0])
    hits, false = _exceed(high[1::2], threshold, sign), _exceed(low[1::2], threshold, sign)
    bound = _log_ratio(hits, len(high[1::2]), false, len(low[1::2]), delta, 1.0 - confidence)
    return max(float(bound[0]), 0.0)


def mu_lower_bound(first, second, confidence=0.999):
    """Gaussian-differential-privacy parameter that the mechanism provably exceeds; sharp for Gaussian noise.

    A mu-GDP mechanism allows no test of the two tables with Phi^-1(power) - Phi^-1(size) above mu.
    """
    threshold = np.array([(np.median(first[::2]) + np.median(second[::2])) / 2.0])
    power = _exceed(second[1::2], threshold, 1.0)
    size = _exceed(first[1::2], threshold, 1.0)
    tail = (1.0 - confidence) / 2.0
    least_power = _lower_limit(power, len(second[1::2]), tail)
    most_size = _upper_limit(size, len(first[1::2]), tail)
    return max(float(special.ndtri(least_power)[0] - special.ndtri(most_size)[0]), 0.0)


def _thresholds(high, low, sign):
    return np.asarray(np.quantile(np.concatenate([high, low]) * sign, np.linspace(0.0, 1.0, _THRESHOLDS + 2)[1:-1]))


def _exceed(scores, thresholds, sign):
    ordered = np.sort(scores * sign)
    return np.asarray(len(ordered) - np.searchsorted(ordered, thresholds, side="right"))


def _log_ratio(hits, n, false, m, delta, error):
    likely = _lower_limit(hits, n, error / 2.0) - delta
    bounds = np.full(likely.shape, -math.inf)
    np.log(likely / _upper_limit(false, m, error / 2.0), where=likely > 0.0, out=bounds)
    return bounds


def _lower_limit(hits, n, tail):
    """Clopper-Pearson lower confidence limit of a frequency."""
    return np.asarray(np.where(hits == 0, 0.0, special.betaincinv(np.maximum(hits, 1), n - hits + 1, tail)))


def _upper_limit(hits, n, tail):
    return np.asarray(np.where(hits == n, 1.0, special.betaincinv(hits + 1, np.maximum(n - hits, 1), 1.0 - tail)))
