"""Values of states from noisy sums over visits: counts, and returns about a public point in the middle of their range.

A state with count n + e and returns n v + f, e and f noise of known size, is worth v. A quotient alone would be noise
wherever n is small, so values are drawn towards the pooled return c, that of all visits together:

- `ridge_values`: c + (returns - c count)/(count + penalty), one penalty for all states, `automatic_diagonal_ridge`'s.
  An end of the range that c cannot be told from takes its place: where hardly anybody collects anything, c is noise;
- `shrunken_values`: empirical Bayes [1]_ with v normal about c, variance t^2. About c a quotient has the variance
  u = (f's + c^2 e's)/n^2, so v is drawn to c by u/(u + t^2): states that are visited often hardly, others all the way.
  c and t^2 are the fixed point of their moment estimates, each state weighed by 1/(u + t^2) and its square.

References
----------
.. [1] Morris, C. N. (1983). Parametric empirical Bayes inference: theory and applications. JASA 78, 47-55.
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import MomentNoise, automatic_diagonal_ridge

# Standard deviations within which the pooled return cannot be told from an end of the range. Of {0, 1, 2, 3} the best
# on games where nearly all returns are there; elsewhere it hardly matters.
_APART = 3.0
# The fixed point is near enough after so many steps, or once t^2 moves by less than this part of itself.
_STEPS, _PRECISION = 40, 1e-6
# t^2 is at least this part of that of values spread evenly over the range: a state visited often keeps its own value.
_LEAST_SPREAD = 1e-9


class StateValues(NamedTuple):
    """Values of states, about the point that returns were counted from."""

    #: c.
    pooled: float
    #: What values are above c, (n_states,).
    above: FloatArray
    #: Their standard deviation from the noise alone, to first order.
    deviation: FloatArray
    #: The penalty, of all states.
    ridge: float


def ridge_values(
    visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float], ridge: float | None
) -> StateValues:
    """Draw values towards the pooled return by one penalty, by default what the noise asks for."""
    pooled = _pooled(visits, returns, noise, limits)
    one = math.hypot(noise.cross, pooled * noise.diagonal)
    deviation_of_pooled = one * math.sqrt(len(visits)) / _total(visits, noise)
    nearest = min(limits, key=lambda end: abs(pooled - end))
    is_end = abs(pooled - nearest) < _APART * deviation_of_pooled
    pooled = nearest if is_end else pooled
    left = returns - pooled * visits
    cross = math.hypot(noise.cross, pooled * noise.diagonal)
    penalty = (
        automatic_diagonal_ridge(visits, left, MomentNoise(noise.diagonal, 0.0, cross)) if ridge is None else ridge
    )
    damped = np.maximum(visits, 0.0) + penalty
    above, own, drawn = np.zeros_like(left), np.zeros_like(left), np.zeros_like(left)
    np.divide(left, damped, out=above, where=damped > 0.0)
    np.divide(1.0, damped, out=own, where=damped > 0.0)
    if not is_end:
        # How much of c, and of its noise, is in a value: the noise of all states' sums, the value's own among them.
        drawn = penalty * own / _total(visits, noise)
    values, n_states = pooled + above, len(visits)
    by_returns = own**2 + 2.0 * own * drawn + n_states * drawn**2
    by_visits = (own * values) ** 2 + 2.0 * own * values * drawn * pooled + n_states * (drawn * pooled) ** 2
    deviation = np.sqrt(noise.cross**2 * by_returns + noise.diagonal**2 * np.maximum(by_visits, 0.0))
    return StateValues(pooled, above, deviation, penalty)


def shrunken_values(
    visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float]
) -> StateValues:
    """Draw every value towards the pooled return by as much as its own noise asks for: empirical Bayes."""
    counts = np.maximum(visits, noise.diagonal)
    quotients = returns / counts
    pooled = _pooled(visits, returns, noise, limits)
    even = (limits[1] - limits[0]) ** 2 / 12.0
    spread, variances = even, np.zeros_like(counts)
    for _ in range(_STEPS):
        variances = (noise.cross**2 + (pooled * noise.diagonal) ** 2) / counts**2
        votes = (spread + variances) ** -2.0
        found = float(votes @ ((quotients - pooled) ** 2 - variances)) / float(np.sum(votes))
        last, spread = spread, max(found, _LEAST_SPREAD * even)
        votes = 1.0 / (spread + variances)
        pooled = float(np.clip(votes @ quotients / np.sum(votes), *limits))
        if abs(spread - last) <= _PRECISION * last:
            break
    kept = spread / (spread + variances)
    # The noise of c, which is a mean of all quotients, is in every value that is drawn to it.
    part = 1.0 / (spread + variances)
    part /= np.sum(part)
    squared = kept**2 * variances + 2.0 * kept * (1.0 - kept) * part * variances
    squared += (1.0 - kept) ** 2 * float(part**2 @ variances)
    return StateValues(pooled, kept * (quotients - pooled), np.sqrt(squared), 0.0)


def _pooled(visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float]) -> float:
    """Return the returns of all visits over their number."""
    return float(np.clip(float(np.sum(returns)) / _total(visits, noise), *limits))


def _total(visits: FloatArray, noise: MomentNoise) -> float:
    """Return the number of visits, taken to be no less than its noise, and than 0."""
    return max(float(np.sum(visits)), noise.diagonal * math.sqrt(len(visits)), sys.float_info.min)
