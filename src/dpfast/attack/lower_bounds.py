"""Lower bounds on the privacy loss of a mechanism from samples of its output on two neighbouring tables.

If the mechanism is (epsilon, delta)-DP then P(S > t) <= e^epsilon P'(S > t) + delta for every score S and threshold t.
Frequencies with confidence limits reverse this: they bound epsilon from below, assuming nothing of the mechanism. The
threshold is chosen on one half of the samples and judged on the other, so the choice costs no confidence.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpfast._arrays import FloatArray

_THRESHOLDS = 400


def epsilon_lower_bound(first: FloatArray, second: FloatArray, delta: float, confidence: float = 0.999) -> float:
    """Epsilon that the mechanism provably exceeds, from scores of its outputs on two neighbouring tables.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Scores of independent outputs on either table.
    delta : float
        The delta of the claim.
    confidence : float, default 0.999
        The bound is above the true epsilon with probability at most one minus this.

    Returns
    -------
    float
        At least 0.

    References
    ----------
    Jagielski, M., Ullman, J., Oprea, A. (2020). Auditing differentially private machine learning. Section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.audit import epsilon_lower_bound
    >>> scores = np.linspace(0.0, 1.0, 2000)
    >>> epsilon_lower_bound(scores, scores, 0.0)
    0.0
    >>> epsilon_lower_bound(scores, scores + 0.5, 0.0) > 4.0
    True
    """
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


def mu_lower_bound(first: FloatArray, second: FloatArray, confidence: float = 0.999) -> float:
    """Gaussian-differential-privacy parameter that the mechanism provably exceeds; sharp for Gaussian noise.

    A mu-GDP mechanism allows no test of the two tables with Phi^-1(power) - Phi^-1(size) above mu.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Scores of independent outputs on either table, larger on the second.
    confidence : float, default 0.999
        The bound is above the true mu with probability at most one minus this.

    Returns
    -------
    float
        At least 0.

    References
    ----------
    Nasr, M. et al. (2023). Tight auditing of differentially private machine learning. Section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import ndtri
    >>> from dpfast.audit import mu_lower_bound
    >>> scores = ndtri(np.linspace(0.0, 1.0, 10_002)[1:-1])
    >>> 1.8 < mu_lower_bound(scores, scores + 2.0) < 2.0
    True
    """
    threshold = np.array([(np.median(first[::2]) + np.median(second[::2])) / 2.0])
    power = _exceed(second[1::2], threshold, 1.0)
    size = _exceed(first[1::2], threshold, 1.0)
    tail = (1.0 - confidence) / 2.0
    least_power = _lower_limit(power, len(second[1::2]), tail)
    most_size = _upper_limit(size, len(first[1::2]), tail)
    return max(float(special.ndtri(least_power)[0] - special.ndtri(most_size)[0]), 0.0)


def frequency_limits(hits: int, n: int, tail: float) -> tuple[float, float]:
    """Return Clopper and Pearson's limits of a frequency, each wrong with probability `tail` at most."""
    count = np.array([hits])
    return float(_lower_limit(count, n, tail)[0]), float(_upper_limit(count, n, tail)[0])


def _thresholds(high: FloatArray, low: FloatArray, sign: float) -> FloatArray:
    return np.asarray(np.quantile(np.concatenate([high, low]) * sign, np.linspace(0.0, 1.0, _THRESHOLDS + 2)[1:-1]))


def _exceed(scores: FloatArray, thresholds: FloatArray, sign: float) -> NDArray[np.int64]:
    ordered = np.sort(scores * sign)
    return np.asarray(len(ordered) - np.searchsorted(ordered, thresholds, side="right"))


def _lower_limit(hits: NDArray[np.int64], n: int, tail: float) -> FloatArray:
    """Clopper-Pearson lower confidence limit of a frequency."""
    return np.asarray(np.where(hits == 0, 0.0, special.betaincinv(np.maximum(hits, 1), n - hits + 1, tail)))


def _upper_limit(hits: NDArray[np.int64], n: int, tail: float) -> FloatArray:
    return np.asarray(np.where(hits == n, 1.0, special.betaincinv(hits + 1, np.maximum(n - hits, 1), 1.0 - tail)))


def _log_ratio(
    hits: NDArray[np.int64], n: int, false: NDArray[np.int64], m: int, delta: float, error: float
) -> FloatArray:
    likely = _lower_limit(hits, n, error / 2.0) - delta
    bounds = np.full(likely.shape, -math.inf)
    np.log(likely / _upper_limit(false, m, error / 2.0), where=likely > 0.0, out=bounds)
    return bounds
