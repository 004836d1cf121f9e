"""Values of states from noisy sums over visits: counts, and returns about a public point in the middle of their range.

A state with count n + e and returns n v + f, e and f noise of known size, is worth v. A quotient alone would be noise
wherever n is small, so values are shrunk towards the pooled return c, that of all visits together:

- `ridge_values`: c + (returns - c count)/(count + penalty), one penalty for all states, `automatic_diagonal_ridge`'s.
  If c does not differ from an end of the range by more than the noise, that end replaces it: with hardly any rewards, c
  is noise;
- `shrunken_values`: empirical Bayes [1]_ with v normal about c, variance t^2. About c a quotient has the variance
  u = (f's + c^2 e's)/n^2, so v is shrunk to c by u/(u + t^2): hardly in frequently visited states, completely in
  others. c and t^2 are the fixed point of their moment estimates, with states weighted by 1/(u + t^2) and its square.

References
----------
.. [1] Morris, C. N. (1983). Parametric empirical Bayes inference: theory and applications. JASA 78, 47-55.
.. [2] Imbens, G. W., Manski, C. F. (2004). Confidence intervals for partially identified parameters. Econometrica 72,
   1845-1857.
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import MomentNoise, automatic_diagonal_ridge

# Standard deviations within which the pooled return is not distinguished from an end of the range. Of {0, 1, 2, 3} the
# best on games where nearly all returns are there; elsewhere it hardly matters.
_APART = 3.0
# The fixed point is near enough after this many steps, or once t^2 moves by less than this part of itself.
_STEPS, _PRECISION = 40, 1e-6
# t^2 is at least this part of that of values spread evenly over the range: a state visited often keeps its own value.
_LEAST_SPREAD = 1e-9
# Counts are certain beyond this many standard deviations of their noise.
_CERTAIN = 2.0
# Standard errors by which t^2 is read up for deviations.
_UP = 1.5
# Least variance of returns within a state, over their mean square.
_LEAST_WITHIN = 0.05
# Own errors by which a state's value is drawn from its own mean at most.
_FARTHEST = 1.25
# Of states whose counts are fewer standard deviations of their noise little is known by what others are.
_RARE, _TINY = 3.0, 1e-9
# Largest mean discount of truncated tails that is considered.
_MOST_CUT = 0.95
# Of a state with a larger discount too little is seen to bound the tails of others by: the whole range bounds its own.
_UNSEEN = 0.75
# Repetitions of the bound of tails; quantiles of limits of 95%, on both sides and on one.
_BOUNDS, _TWO_SIDED, _ONE_SIDED = 20, 1.96, 1.645


class StateValues(NamedTuple):
    """Values of states, about the point that returns were counted from."""

    #: c.
    pooled: float
    #: Values less c, (n_states,).
    above: FloatArray
    #: Their standard deviation from the noise alone, to first order.
    deviation: FloatArray
    #: The penalty, of all states.
    ridge: float
    #: By how much truncated tails may bias a visit's value at most, in the mean; 0 if other errors are larger.
    unseen: float = 0.0


def ridge_values(
    visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float], ridge: float | None
) -> StateValues:
    """Shrink values towards the pooled return by one penalty, by default determined by the noise."""
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
    """Shrink every value towards the pooled return according to its noise: empirical Bayes."""
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


class StateSums(NamedTuple):
    """Noisy sums over visits, (n_states,) each, of returns about a point, over their reach."""

    counts: FloatArray
    returns: FloatArray
    squares: FloatArray
    #: Of discounts of truncated tails.
    discounts: FloatArray
    #: Standard deviation of the noise in counts and returns, and in the others.
    deviation: float
    small_deviation: float


class Estimate(NamedTuple):
    """A number that is known to some variance."""

    value: float
    variance: float

    def merged(self, other: Estimate) -> Estimate:
        """Return the mean of both, weighted by the inverse of their variances."""
        total = self.variance + other.variance
        value = (self.value * other.variance + other.value * self.variance) / total
        return Estimate(value, self.variance * other.variance / total)

    def joined(self, other: Estimate) -> Estimate:
        """Return the same mean of two that share noise: its error is as if both went together."""
        value = self.merged(other).value
        total = self.variance + other.variance
        deviation = (other.variance * math.sqrt(self.variance) + self.variance * math.sqrt(other.variance)) / total
        return Estimate(value, deviation**2)

    def within(self, limits: tuple[float, float]) -> Estimate:
        """Return it with the value clipped."""
        return Estimate(min(max(self.value, limits[0]), limits[1]), self.variance)


class Earlier(NamedTuple):
    """Estimates from earlier releases about the same point, over the same reach."""

    #: The pooled return, the value of tails, and the mean discount of truncated tails.
    pooled: Estimate
    tail: Estimate
    discount: Estimate
    #: Value used to fill the tails in the sums.
    filled: float


class Lost(NamedTuple):
    """What clipping takes from values."""

    #: Mean share of people's weight, which those lose who visit many states.
    weight: float = 0.0
    #: Returns beyond the reach, in all.
    returns: float = 0.0
    #: People with returns beyond the declared range, and by how much at most: pairs.
    people: tuple[tuple[float, float], ...] = ()

    def bias(self, counts: FloatArray) -> FloatArray:
        """Return the largest bias of states by returns beyond the range, if all such people visit each of them."""
        shares = (np.minimum(people / counts, 1.0) * size for people, size in self.people)
        return sum(shares, np.zeros_like(counts))


def fitted_values(
    sums: StateSums, limits: tuple[float, float], whole: tuple[float, float], earlier: Earlier, lost: Lost
) -> StateValues:
    """Shrink every value towards the pooled return according to noise, sampling and tails: empirical Bayes.

    Values are within `limits`; `whole` is the declared range. The value of tails is estimated once more, from the
    pooled return c of all sums. If tails had this value too, it would solve c = p + d (c - f), with p the pooled
    return, d the mean discount of truncated tails, f the value used to fill them. Its distance from the earlier
    estimate of tails is assumed to be the spread of values. The two are combined by their variances.

    A state's sum of returns less v times its count, v its value, has the variance of the noise in both and of sampling.
    Values are normal about the pooled return. Their variance t^2 is estimated by moments over the certainly visited
    states, weighted by information. For shrinking values, t^2 is reduced according to its standard error; for their
    deviations, one and a half standard errors are added. Deviations include the shrinkage of a value and the bias of
    clipping. People who lose weight are taken to have returns a standard deviation apart; lost returns count as if they
    were any one state's.

    What truncated tails are worth is not observed, so they bias values by an unknown part of a bound (`_unseen_tails`).
    Returns beyond the declared range do, too. Both bounds are added to the limits, not to their squares: a deviation
    is such that 1.96 of it are the limits of [2]_ for a number that is known up to a bias.
    """
    counts, n_states, noise = np.maximum(sums.counts, 0.0), len(sums.counts), sums.deviation**2
    even = (limits[1] - limits[0]) ** 2 / 12.0
    total = max(float(np.sum(counts)), sums.deviation * math.sqrt(n_states))
    first = float(np.clip(np.sum(sums.returns) / total, *limits))
    of_first = noise * n_states * (1.0 + first**2) / total**2
    squares = _damped_means(sums.squares, counts, sums.small_deviation, total)
    cut = _damped_means(sums.discounts, counts, sums.small_deviation, total)
    own = Estimate(float(np.sum(sums.discounts)) / total, n_states * (sums.small_deviation / total) ** 2)
    discount = own.merged(earlier.discount).within((0.0, _MOST_CUT))
    sure = counts > _CERTAIN * sums.deviation
    spread, found, error = even, even, math.inf
    values, pooled = np.full(n_states, first), Estimate(first, of_first)
    kept, variances, moved = np.zeros(n_states), np.ones(n_states), np.zeros(n_states)
    for _ in range(_STEPS):
        tail, fallback = _tail_and_pooled(Estimate(first, of_first), discount, earlier, found, limits)
        returns = sums.returns + (tail.value - earlier.filled) * cut * counts
        within = np.maximum(squares - values**2, _LEAST_WITHIN * squares)
        variances = noise * (1.0 + values**2) + counts * within
        last, pooled = spread, fallback
        if np.any(sure):
            c, u = counts[sure], variances[sure]
            left = (returns - pooled.value * sums.counts)[sure]
            votes = c**2 / (u + c**2 * spread) ** 2
            spread = min(max(float(votes @ (left**2 - u)) / float(votes @ c**2), 0.0), even)
            error = math.sqrt(2.0 / float(np.sum((c**2 / (u + c**2 * spread)) ** 2)))
            found = min(spread + _UP * error, even)
            if spread > 0.0:
                weights = c**2 / (u + c**2 * spread)
                mean = Estimate(float(weights @ (returns[sure] / c) / np.sum(weights)), 1.0 / float(np.sum(weights)))
                pooled = mean.merged(Estimate(fallback.value, fallback.variance + spread)).within(limits)
        else:
            spread = 0.0
        relied = spread**3 / (spread**2 + error**2) if spread > 0.0 else 0.0
        kept = counts * relied / (counts**2 * relied + variances)
        drawn = pooled.value + kept * (returns - pooled.value * sums.counts)
        # A state's own mean, and its deviation; for rarely visited states these are uninformative.
        own_error = np.sqrt(variances) / np.maximum(counts, sums.deviation)
        own_mean = np.where(sure, returns / np.maximum(counts, sums.deviation), drawn)
        moved = np.clip(drawn - own_mean, -_FARTHEST * own_error, _FARTHEST * own_error)
        values = np.clip(own_mean + moved, *limits)
        if abs(spread - last) <= _PRECISION * last:
            break
    visited = 1.0 / (1.0 + (_RARE * sums.deviation / np.maximum(counts, _TINY * sums.deviation)) ** 4)
    spreads = visited * found + (1.0 - visited) * even
    squared = kept**2 * variances + (1.0 - kept * counts) ** 2 * (spreads + pooled.variance) + moved**2
    squared += lost.weight**2 * squares + np.minimum(kept * lost.returns, 1.0) ** 2
    # The error of a state's mean discount, which was shrunk to that of all.
    usual = discount.value + math.sqrt(discount.variance)
    cut_error = usual / np.sqrt(1.0 + (counts * usual / sums.small_deviation) ** 2)
    reach = np.where(sure, np.sqrt(squared), math.inf)
    apart = _unseen_tails((values - reach, values + reach), counts, (cut, cut_error), tail.value, whole)
    deviation = np.sqrt(squared + (cut_error * apart) ** 2)
    biases = cut * apart + lost.bias(np.maximum(counts, sums.deviation))
    unseen, noisy = (float(counts @ one) / total for one in (cut * apart, deviation))
    unseen = unseen if unseen > _ONE_SIDED * noisy else 0.0
    deviation = np.maximum(deviation, (biases + _ONE_SIDED * deviation) / _TWO_SIDED)
    return StateValues(pooled.value, values - pooled.value, deviation, 0.0, unseen)


def _unseen_tails(
    own: tuple[FloatArray, FloatArray],
    counts: FloatArray,
    cut: tuple[FloatArray, FloatArray],
    tail: float,
    whole: tuple[float, float],
) -> FloatArray:
    """Return how far from `tail` the mean value may be that people went on to, after each state: at most.

    A tail is worth the value of the state that a person came to when truncated. A state is worth its own estimate with
    such tails (`own`: its limits, infinite if unknown), plus its discount times their distance from `tail`. So bounds
    of tails, at first the whole range, bound values, and these bound tails in turn: of the discounts of a state's
    visitors, no other state can have more than its own visitors. The mean value of tails is at most that of the best
    states with so many visitors in all, and at least that of the worst. A state whose visits are hardly followed keeps
    the whole range: what lies beyond it was not seen.
    """
    (low, high), (mean, error) = whole, cut
    larger, demand = np.minimum(mean + error, 1.0), mean * counts
    is_seen = larger <= _UNSEEN
    lowest, highest = np.full(len(counts), low), np.full(len(counts), high)
    for _ in range(_BOUNDS):
        worst = own[0] - larger * (tail - np.where(is_seen, lowest, low))
        best = own[1] + larger * (np.where(is_seen, highest, high) - tail)
        last = highest - lowest
        lowest = -_best_mean(-np.maximum(worst, low), counts, demand)
        highest = _best_mean(np.minimum(best, high), counts, demand)
        if np.all(last - (highest - lowest) <= _PRECISION * (high - low)):
            break
    farthest: FloatArray = np.maximum(np.maximum(highest - tail, tail - lowest), 0.0)
    return farthest


def _best_mean(values: FloatArray, weights: FloatArray, demand: FloatArray) -> FloatArray:
    """Return the largest mean of values that have so much weight in all, for each demand; the largest if it is 0."""
    order = np.argsort(-values, kind="stable")
    ends = np.append(0.0, np.cumsum(weights[order]))
    totals = np.append(0.0, np.cumsum((weights * values)[order]))
    wanted = np.minimum(demand, ends[-1])
    means = np.full(len(values), float(np.max(values)))
    np.divide(np.interp(wanted, ends, totals), wanted, out=means, where=wanted > _TINY * ends[-1])
    return means


def _tail_and_pooled(
    first: Estimate, discount: Estimate, earlier: Earlier, spread: float, limits: tuple[float, float]
) -> tuple[Estimate, Estimate]:
    """Return the value of tails, and the pooled return with such tails; the spread is that of values."""
    share, filled = discount.value, earlier.filled
    fixed = (first.value - share * filled) / (1.0 - share)
    variance = (first.variance + (fixed - filled) ** 2 * discount.variance) / (1.0 - share) ** 2
    # From here on combined estimates share noise: the earlier means are in all of them.
    everywhere = Estimate(fixed, variance).joined(earlier.pooled).within(limits)
    tail = earlier.tail.joined(Estimate(everywhere.value, everywhere.variance + spread)).within(limits)
    moved = tail.value - filled
    parts = first.variance, share**2 * tail.variance, moved**2 * discount.variance
    pooled = Estimate(first.value + share * moved, sum(math.sqrt(part) for part in parts) ** 2)
    return tail, pooled.joined(Estimate(everywhere.value, everywhere.variance + spread)).within(limits)


def _damped_means(sums: FloatArray, counts: FloatArray, deviation: float, total: float) -> FloatArray:
    """Return means of numbers in [0, 1], shrunk according to noise to the mean of all plus one deviation."""
    mean = min(max((float(np.sum(sums)) + deviation * math.sqrt(len(sums))) / total, 1e-9), 1.0)
    kept = counts * mean**2 / ((counts * mean) ** 2 + deviation**2)
    return np.clip(mean + kept * (sums - mean * counts), 0.0, 1.0)


def _pooled(visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float]) -> float:
    """Return the returns of all visits over their number."""
    return float(np.clip(float(np.sum(returns)) / _total(visits, noise), *limits))


def _total(visits: FloatArray, noise: MomentNoise) -> float:
    """Return the number of visits, taken to be no less than its noise, and than 0."""
    return max(float(np.sum(visits)), noise.diagonal * math.sqrt(len(visits)), sys.float_info.min)
