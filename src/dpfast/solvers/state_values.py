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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import MomentNoise, automatic_diagonal_ridge

# Standard deviations within which the pooled return is not distinguished from an end of the range. Of {0, 1, 2, 3} the
# best on games where nearly all returns are there; elsewhere it hardly matters.
_APART = 3.0
# The fixed point is near enough after this many steps, or once t^2 moves by less than this part of itself.
_STEPS, _PRECISION = 40, 1e-6
# t^2 is at least this part of that of values spread evenly over the range: a state visited often keeps its own value.
_LEAST_SPREAD = 1e-9
# Counts are certain beyond this many standard deviations of their noise. What that choice adds to the standard error of
# t^2, over the cube of a count's relative variance, and what noise in counts takes from quotients, over that variance.
_CERTAIN, _CHOSEN, _DILUTED = 2.0, 32.0, 4.0
# Standard errors by which t^2, and the like of tails, is read up for deviations.
_UP, _FAR = 0.8, 1.0
# Least variance of returns within a state, over their mean square.
_LEAST_WITHIN = 0.05
# Own errors by which a state's value is drawn from its own mean at most: where values differ by more than t^2's
# standard error, and where they may all be alike.
_FARTHEST, _FARTHEST_ALIKE = 1.0, 2.0
# Of states whose counts are fewer standard deviations of their noise little is known by what others are, or by their
# own mean: among many that nobody visits, noise makes some counts certain.
_RARE, _TINY = 3.0, 1e-9
# Largest mean discount of truncated tails that is considered.
_MOST_CUT = 0.95
# Of a state with a larger discount hardly anything is seen: beyond the first, unless last states are told well.
_UNSEEN, _HARDLY_SEEN = 0.75, 0.89
# Noise in a state's tails by last state, over all of them, up to which it is known where people went on.
_SMALL_NOISE = 0.4
# Standard deviations of noise in a count up to which a value's limits are those of a quotient.
_QUOTIENT = 5.0
# Deviation of tails of which last states are not told, over that of values.
_ELSEWHERE = 0.55
# Quantiles of limits of 95%, on both sides and on one.
_TWO_SIDED, _ONE_SIDED = 1.96, 1.645


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
    #: Of discounts by last state, (n_states, n_states), or none.
    ends: FloatArray = np.zeros((0, 0))


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
    #: Returns beyond the reach, in all, and by how much more of them noise may hide.
    returns: float = 0.0
    hidden: float = 0.0
    #: People with returns beyond the declared range, and by how much at most: pairs; and whether they are no noise.
    people: tuple[tuple[float, float], ...] = ()
    is_sure: bool = True

    def bias(self, counts: FloatArray) -> FloatArray:
        """Return the largest bias of states by returns beyond the range, if all such people visit each of them."""
        shares = (np.minimum(people / counts, 1.0) * size for people, size in self.people)
        return sum(shares, np.zeros_like(counts))


def fitted_values(
    sums: StateSums, limits: tuple[float, float], whole: tuple[float, float], earlier: Earlier, lost: Lost
) -> StateValues:
    """Shrink every value towards the pooled return according to noise, sampling and tails: empirical Bayes.

    Values are within `limits`; `whole` is the declared range. A truncated tail is worth the value of its last state: on
    average that of all last states. Earlier estimates of tails are at first all that is known of it. How far the tails
    of a state's visitors are from this average is a sum over last states; it is shrunk according to its noise, as
    values are. So values follow from values, repeatedly.

    A state's sum of returns less v times its count, v its value, has the variance of the noise in both, of sampling and
    of that sum. Values are normal about the pooled return. Their variance t^2 is estimated by moments over the
    certainly visited states, weighted by information. For shrinking values, t^2 is reduced according to its standard
    error; for their deviations, a part of one is added. It tells little of how far states are that are visited less
    than others: for their deviations it grows with the square of how many times less. Deviations include the shrinkage
    of a value and the bias of clipping. People who lose weight are taken to have returns a standard deviation apart;
    lost returns count as if they were any one state's.

    Of rarely visited states those seem certain to whose counts noise adds. Their quotients are too near 0, and seem
    apart from the pooled return. The mean of quotients, and t^2, are relied on that much less. Where returns are far
    from 0, the return of all visits counts more.

    Errors of last states are in the values that led to them (`_Tails.with_tails`). A count of a few standard deviations
    of its noise may be hardly any visits. Its state's limits are at least those of a quotient of two noisy numbers.

    Returns beyond the declared range, and tails of which nothing is known, bias values by an unknown part of a bound.
    These bounds are added to the limits, not to their squares: a deviation is such that 1.96 of it are the limits of
    [2]_ for a number that is known up to a bias.
    """
    counts, n_states, noise = np.maximum(sums.counts, 0.0), len(sums.counts), sums.deviation**2
    even = (limits[1] - limits[0]) ** 2 / 12.0
    total = max(float(counts.sum()), sums.deviation * math.sqrt(n_states))
    first = Estimate(float(np.clip(np.sum(sums.returns) / total, *limits)), 0.0)
    first = first._replace(variance=noise * n_states * (1.0 + first.value**2) / total**2)
    of_all = math.sqrt(n_states) * sums.small_deviation / total
    squares = _damped_means(sums.squares, counts, sums.small_deviation, float(sums.squares.sum()) / total + of_all)
    own = Estimate(float(sums.discounts.sum()) / total, of_all**2)
    discount = own.merged(earlier.discount).within((0.0, _MOST_CUT))
    usual = discount.value + math.sqrt(discount.variance)
    sure, safe = counts > _CERTAIN * sums.deviation, np.maximum(counts, sums.deviation)
    followed = counts > _RARE * sums.deviation
    rarer = np.maximum(float(counts @ counts) / total / safe, 1.0)
    # A state's mean discount is shrunk to that of all, and has an error: rarely visited states are reached later.
    differing = np.minimum(usual * rarer, 1.0)
    told = (counts * differing / sums.small_deviation) ** 2
    cut = np.clip(usual + told / (1.0 + told) * (sums.discounts / safe - usual), 0.0, 1.0)
    cut_error = differing / np.sqrt(1.0 + told)
    known = _Tails.of(sums, cut * counts, safe, sure)
    spread, found, error = even, even, math.inf
    values, pooled = np.full(n_states, first.value), first
    kept, variances, moved = np.zeros(n_states), np.ones(n_states), np.zeros(n_states)
    onward = known.onward(values, earlier.tail, even, even)
    any_sure, sure_counts, squared_counts = bool(sure.any()), counts[sure], counts**2
    means, least_within, squared_safe = sums.returns / safe, _LEAST_WITHIN * squares, safe**2
    for step in range(_STEPS):
        tail, fallback = _tail_and_pooled(first, discount, earlier, found, limits)
        if step > 0 and known.is_released:
            off = (tail.value - earlier.filled) * cut_error
            tail = known.mean(values, variances / squared_safe + off**2, cut).merged(tail).within(limits)
        onward = known.onward(values, tail, onward.spread, found)
        returns = sums.returns + (tail.value - earlier.filled) * cut * counts + onward.taken * onward.sums
        # About the mean of filled returns, which is not that of values.
        filled_mean = np.where(sure, means, values)
        within = np.maximum(squares - filled_mean**2, least_within)
        own_noise, sampling = noise * (1.0 + values**2), counts * within
        variances = own_noise + sampling + onward.taken * onward.noise
        last, previous, pooled, spread = spread, values, fallback, 0.0
        if any_sure:
            c, u = sure_counts, variances[sure]
            spread, error = _spread((returns - pooled.value * sums.counts)[sure], c, u, last, even)
            relative = noise / c**2
            error += _CHOSEN * pooled.value**2 * float(np.mean(relative**3))
            found = min(spread + _UP * error, even)
            if spread > 0.0:
                weights = c**2 / (u + c**2 * spread)
                weight = float(weights.sum())
                diluted = _DILUTED * fallback.value * float(weights @ relative) / weight
                mean = Estimate(float(weights @ (returns[sure] / c)) / weight, 1.0 / weight + diluted**2)
                pooled = mean.merged(Estimate(fallback.value, fallback.variance + spread)).within(limits)
        relied = _relied(spread, error)
        kept = counts * relied / (squared_counts * relied + variances)
        drawn = pooled.value + kept * (returns - pooled.value * sums.counts)
        # A state's own mean, and its deviation; of states that noise may have visited these are noise.
        own_error = np.sqrt(variances) / safe
        own_mean = np.where(followed, returns / safe, drawn)
        farthest_moved = (_FARTHEST if spread > error else _FARTHEST_ALIKE) * own_error
        moved = np.minimum(np.maximum(drawn - own_mean, -farthest_moved), farthest_moved)
        values = np.minimum(np.maximum(own_mean + moved, limits[0]), limits[1])
        settled = float(np.abs(values - previous).max()) <= _PRECISION * (limits[1] - limits[0])
        if settled and abs(spread - last) <= _PRECISION * last:
            break
    visited = 1.0 / (1.0 + (_RARE * sums.deviation / np.maximum(counts, _TINY * sums.deviation)) ** 4)
    spreads = np.minimum(visited * found * rarer**2 + (1.0 - visited) * even, even)
    # Beyond the farthest, a value is as far from its own mean, and has all of that one's error.
    kept = np.where(followed & (np.abs(moved) >= farthest_moved), 1.0 / safe, kept)
    share = kept * counts
    shrunk = np.maximum((1.0 - share) ** 2 * spreads, moved**2) + (1.0 - share) ** 2 * pooled.variance
    squared = (
        kept**2 * (own_noise + onward.taken**2 * onward.noise)
        + (share * cut_error * (tail.value - earlier.filled)) ** 2
    )
    squared += lost.weight**2 * squares + np.minimum(kept * lost.returns, 1.0) ** 2
    if known.is_released:
        # What is sampled of a tail is where it went on from.
        going = known.going(onward)
        sampling += counts * cut * np.maximum(going @ values**2 - (going @ values) ** 2, 0.0)
    errors = _Errors(squared, kept * np.sqrt(sampling), shrunk)
    farthest = max(whole[1] - tail.value, tail.value - whole[0])
    own_limits = np.abs(values - tail.value) + _TWO_SIDED * np.sqrt(squared + errors.sampled**2 + shrunk)
    reach = float(own_limits[sure].max(initial=0.0)) / (1.0 - min(float(cut[sure].max(initial=0.0)), _MOST_CUT))
    resolved, seems = np.zeros(n_states, np.bool_), values
    if known.is_released:
        means = np.where(sure, (sums.returns + (tail.value - earlier.filled) * cut * counts) / safe, values)
        resolved, seems = known.resolved(cut, cut_error), known.seems(means, tail.value, limits)

    def apart(part: FloatArray, others: FloatArray | float) -> FloatArray:
        staying = np.sqrt((values - tail.value) ** 2 + np.maximum(others, squared + shrunk))
        far = part * staying / (1.0 - np.minimum(part, _MOST_CUT))
        told = (1.0 - onward.taken) * np.minimum(far, np.maximum(seems, part * math.sqrt(onward.found)))
        return np.asarray(np.minimum(np.where(resolved, told, far), farthest))

    # What last states tell is an estimate, with a deviation. Else people are taken to go on to others than all do by a
    # part of the spread of values. That they stay is a bound, as estimated and at most.
    told = apart(np.hypot(cut, cut_error), np.minimum(cut, 1.0) * found)
    likely = np.where(resolved, told, np.minimum(_ELSEWHERE * cut * math.sqrt(found), farthest))
    staying, longest = apart(cut, 0.0), apart(cut + _ONE_SIDED * cut_error, 0.0)
    one_tail = tail.variance, likely, staying, longest
    distances = farthest, min(reach, farthest)
    of_tails = known.with_tails(onward, errors, (share, cut, cut_error), one_tail, distances)
    deviation, unknown = of_tails.deviation, of_tails.bias
    by_noise = np.hypot(of_tails.estimated, cut_error * farthest)
    unseen, near = (float(counts @ one) / total for one in (of_tails.unseen, by_noise))
    unseen = unseen if unseen > _ONE_SIDED * near else 0.0
    biases = unknown + lost.bias(safe)
    deviation = np.maximum(deviation, _with_bias(biases, of_tails.hidden, deviation))
    beyond = lost.returns + lost.hidden
    noisy = noise, sampling + onward.taken**2 * onward.noise, beyond
    possible = np.maximum(limits[0] - beyond / safe, whole[0]), np.minimum(limits[1] + beyond / safe, whole[1])
    quotient = _quotient_reach(values, sums.counts, returns, noisy, possible) / _TWO_SIDED
    deviation = np.where(counts > _QUOTIENT * sums.deviation, deviation, np.maximum(deviation, quotient))
    # No value is beyond the declared range, but for people who are.
    farthest_off = np.maximum(values - whole[0], whole[1] - values) * (1.0 + _PRECISION) + lost.bias(safe)
    deviation = np.minimum(deviation, farthest_off / _TWO_SIDED)
    return StateValues(pooled.value, values - pooled.value, deviation, 0.0, unseen)


class _Errors(NamedTuple):
    """Of states' own parts in their values: variances, and of sampling the deviation."""

    noise: FloatArray
    sampled: FloatArray
    shrunk: FloatArray


class _TailErrors(NamedTuple):
    """Errors of values by what tails are worth."""

    deviation: FloatArray
    #: Without what people who stay may be off by, which is a bound.
    estimated: FloatArray
    #: Bound of a bias besides, and by how much noise in discounts may hide that it is larger.
    bias: FloatArray
    hidden: FloatArray
    #: How far tails may move values, at most: by states that are not seen, and those that are, or if people stay.
    unseen: FloatArray


class _Onward(NamedTuple):
    """How far tails are from their mean, as sums over the visitors of each state."""

    sums: FloatArray
    #: Variance of the noise in each.
    noise: float
    #: The part of each that is relied on.
    taken: FloatArray
    #: Variance of such means over states, an upper limit of it, and that of values.
    spread: float
    found: float
    most: float


@dataclass(frozen=True)
class _Tails:
    """What is known of where truncated trajectories went on from: by last state, or of all last states together."""

    #: Discounts by state and last state, (n_states, n_states), or none; the noise in one.
    ends: FloatArray
    deviation: float
    #: The sum of each state's.
    weights: FloatArray
    #: Visits, at least their noise, the noise in one, and whether they are more than that.
    counts: FloatArray
    noise: float
    sure: NDArray[np.bool_]

    @classmethod
    def of(cls, sums: StateSums, weights: FloatArray, counts: FloatArray, sure: NDArray[np.bool_]) -> _Tails:
        """Return what sums tell."""
        return cls(sums.ends.T, sums.small_deviation, weights, counts, sums.deviation, sure)

    @cached_property
    def is_released(self) -> bool:
        """Whether last states were released."""
        return bool(self.ends.any())

    @cached_property
    def shares(self) -> FloatArray:
        """Share of all tails that went on from each, drawn to shares of visits according to noise."""
        alike = self.counts / np.sum(self.counts) * self.deviation * math.sqrt(len(self.counts))
        ends: FloatArray = np.maximum(np.sum(self.ends, axis=0), 0.0) + alike
        return ends / np.sum(ends)

    def mean(self, values: FloatArray, variances: FloatArray, cut: FloatArray) -> Estimate:
        """Return the mean value of all tails; its error is in values too, and so grows."""
        value = float(self.shares @ values)
        total = max(float(self.weights.sum()), self.deviation * math.sqrt(len(values)))
        variance = float(self.shares**2 @ variances)
        variance += float(((values - value) ** 2).sum()) * (self.deviation / total) ** 2
        part = min(float(self.shares @ cut), _MOST_CUT)
        return Estimate(value, variance / (1.0 - part) ** 2)

    def onward(self, values: FloatArray, tail: Estimate, last: float, most: float) -> _Onward:
        """Return how far the tails of each state's visitors are from the mean of all, and how much to rely on it."""
        apart = values - tail.value
        noise, used = self.deviation**2 * float(apart @ apart), self.sure & (self.weights > 0.0)
        if not self.is_released or noise == 0.0 or not used.any():
            return _Onward(np.zeros(len(values)), noise, np.zeros(len(values)), most, most, most)
        sums = self.ends @ apart
        sizes = self.weights[used]
        spread, error = _spread(sums[used], sizes, np.full(len(sizes), noise), last, most)
        squared = self.weights**2 * _relied(spread, error)
        return _Onward(sums, noise, squared / (squared + noise), spread, min(spread + _FAR * error, most), most)

    def seems(self, means: FloatArray, tail: float, limits: tuple[float, float]) -> FloatArray:
        """Return how far each state's tails are from the mean of all, by means that are not shrunk."""
        parts = np.where(self.sure[:, None], self.ends / self.counts[:, None], 0.0)
        own = np.linalg.lstsq(np.eye(len(means)) - parts, means - tail, rcond=None)[0]
        return np.asarray(np.abs(parts @ np.clip(own, limits[0] - tail, limits[1] - tail)))

    def resolved(self, discounts: FloatArray, errors: FloatArray) -> NDArray[np.bool_]:
        """Return whether last states are told well enough: noise in all of a state's does not make discounts 1.

        Where it is a small part of them, where people went on is told, and only the discounts' own errors count.
        """
        noise = _ONE_SIDED * self.deviation * math.sqrt(len(discounts)) / self.counts
        noise = np.where(noise < _SMALL_NOISE * discounts, np.minimum(_ONE_SIDED * errors, noise), noise)
        return np.asarray(self.is_released & (discounts + noise < _MOST_CUT))

    def going(self, onward: _Onward) -> FloatArray:
        """Return shares of last states by state, (n_states, n_states), as they are relied on."""
        rows = np.maximum(self.ends, 0.0)
        rows /= np.maximum(np.sum(rows, axis=1, keepdims=True), sys.float_info.min)
        taken = onward.taken[:, None]
        return np.asarray(taken * rows + (1.0 - taken) * self.shares)

    def led(self, discounts: FloatArray, onward: _Onward) -> Callable[..., FloatArray]:
        """Return a map from states' own errors to those of values, by any number of tails; `power` is of its entries.

        If last states are not told it is the identity. States may then be many, and no matrix of them is formed.
        """
        if not self.is_released:
            return lambda errors, power=1: errors
        led = _led(discounts, self.going(onward))
        return lambda errors, power=1: led**power @ errors

    def with_tails(
        self,
        onward: _Onward,
        own: _Errors,
        cut: tuple[FloatArray, FloatArray, FloatArray],
        one_tail: tuple[float, FloatArray, FloatArray, FloatArray],
        farthest: tuple[float, float],
    ) -> _TailErrors:
        """Return deviations of values with the errors of what tails are worth, and bounds of a bias.

        The value of state s is k_s (returns + d_s times its tail) and 1 - k_s of the pooled one, d_s the discount
        (`cut` has k, d and the error of d). If last states are told, the tail is the mean of values by shares p_sj of
        last states. So errors e of values solve e = u + w + A e, with A_sj = k_s d_s p_sj, u those of a state's own
        part and w those of p. Hence e = G (u + w), G = (I - A)^-1: an error that comes back by any number of tails is
        in G, once. Noise is independent between states: its variances are taken with the squares of G's entries. The
        others may be alike. People visit many states, and states that follow each other are on one side of the pooled
        value. For any correlation the deviation of G w is at most G times the deviations.

        If last states are not told, one estimate T is the tail of all states, and A = 0. Its error is d_s times that of
        T, whose variance is known (`one_tail`). Besides, people of state s went on to others than all do on average.
        Say that they stay among states of their own value v. Then returns filled with T are v - d (v - T) in the mean.
        The value is taken to be that. Its distance from T is (1 - d)(v - T), and its error d (v - T): that distance
        times d/(1 - d). The error of v counts as well, and of the spread of values the part that was cut. This bounds a
        bias. Noise may hide a part of d, and a state whose d seems 0 would be sure of its value. What the upper end of
        d's limits adds to the bound is an error like the others, and independent of them. So it is where last states
        are told, but with more noise than tells them (`resolved`). Where they are told well, what was shrunk of tails
        (`seems`) is an estimate: it has a deviation besides (`one_tail` has the variance of T, deviations, bounds, and
        bounds for the upper end).

        From a state that is hardly visited people went on to anything in the range. That bounds a bias, by the
        discounts of people who went there, at most. From others they went on to states that are seen, whose values
        bound a bias too (`farthest` has both distances): this counts where limits are narrower by it. Of both, noise
        in discounts may hide a part (`hidden`), up to the upper end of their limits.
        """
        share, mean = np.clip(cut[0], 0.0, 1.0), np.minimum(cut[1], _MOST_CUT)
        larger = np.minimum(cut[1] + _ONE_SIDED * cut[2], 1.0)
        is_seen = mean <= np.where(self.resolved(mean, cut[2]), _HARDLY_SEEN, _UNSEEN)
        led, unseen = self.led(share * mean, onward), ~is_seen | ~self.sure
        part = self._unknown(unseen, self.weights)
        noise = led(own.noise, power=2) + led(own.sampled) ** 2
        noise += (0.0 if self.is_released else share * mean) ** 2 * one_tail[0]
        # Of states that are not certain the bound counts.
        shrunk = np.sqrt(own.shrunk)
        drawn = led(np.where(self.sure, shrunk, 0.0)) + np.where(self.sure, 0.0, shrunk)
        apart, staying, longest = (led(share * one * (1.0 - part)) for one in one_tail[1:])
        through = self.led(mean * (1.0 - part), onward)
        # No more people went there if discounts are larger: these are a larger sum of tails, of which they are less.
        less = np.minimum(part, self._unknown(unseen, larger * self.counts))
        most = larger * farthest[0]
        bias = np.minimum(through(mean * farthest[0] * part), mean * farthest[0])
        hidden = np.maximum(np.minimum(through(most * less), most) - bias, 0.0)
        near = mean * farthest[1] * (1.0 - part)
        also = larger * farthest[1] * (1.0 - less) - near
        least, near_own = np.hypot(np.sqrt(noise), drawn), np.sqrt(noise + (drawn + np.minimum(apart, most)) ** 2)
        longest = np.minimum(longest, most)
        staying = np.minimum(staying, longest)
        whole = np.maximum(near_own, _with_bias(staying, longest - staying, least))
        limits = np.maximum(whole, _with_bias(bias, hidden, whole))
        is_near = _with_bias(bias + near, hidden + also, least) < limits
        deviation, estimated = (np.where(is_near, least, one) for one in (whole, near_own))
        # What is said of tails is for a discount that is one deviation larger, which is less often noise alone.
        unseen = bias + hidden / _ONE_SIDED + np.minimum(near + also / _ONE_SIDED, longest)
        return _TailErrors(deviation, estimated, bias + is_near * near, hidden + is_near * also, unseen)

    def _unknown(self, states: NDArray[np.bool_], tails: FloatArray) -> FloatArray:
        """Return the part of each state's tails that may have gone on from some states, at most; of these all."""
        if not np.any(states):
            return np.zeros(len(states))
        noise = math.sqrt(float(np.sum(states)))
        there = np.full(len(states), float(np.sum(self.counts[states])) + self.noise * noise)
        if self.is_released:
            there = np.minimum(there, np.sum(self.ends[:, states], axis=1) + self.deviation * noise)
        most = np.maximum(tails, sys.float_info.min)
        return np.where(states, 1.0, np.clip(there, 0.0, most) / most)


def _with_bias(bound: FloatArray, more: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return deviations for limits of numbers with a bias up to a bound, itself known to one-sided limits."""
    return np.asarray((bound + np.hypot(more, _ONE_SIDED * deviation)) / _TWO_SIDED)


def _spread(sums: FloatArray, sizes: FloatArray, noise: FloatArray, last: float, most: float) -> tuple[float, float]:
    """Estimate the variance of means from sums of so many each, by moments weighted by the last estimate; its error."""
    votes = sizes**2 / (noise + sizes**2 * last) ** 2
    spread = min(max(float(votes @ (sums**2 - noise)) / float(votes @ sizes**2), 0.0), most)
    return spread, math.sqrt(2.0 / float(((sizes**2 / (noise + sizes**2 * spread)) ** 2).sum()))


def _led(discounts: FloatArray, going: FloatArray) -> FloatArray:
    """Return how much of each state's error is in each value, by any number of tails."""
    return np.asarray(linalg.inv(np.eye(len(discounts)) - discounts[:, None] * going))


def _quotient_reach(
    values: FloatArray,
    counts: FloatArray,
    returns: FloatArray,
    noisy: tuple[float, FloatArray, float],
    limits: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return how far the limits of quotients are from values: Fieller's, which hold however few visits there are.

    Values v within `limits` are not excluded if ``|returns - v count|`` is at most 1.96 of its standard deviation, more
    by what was lost. `noisy` has the variance of the noise in both, of the rest, and the loss. All are possible where
    the count may be 0.
    """
    noise, rest, lost = noisy
    certain = np.square(counts) - _TWO_SIDED**2 * noise
    told = (certain > 0.0) & (counts > 0.0)
    certain, farthest = np.where(told, certain, 1.0), np.zeros_like(values)
    for side, end in zip((-1.0, 1.0), limits, strict=True):
        moved = returns + side * lost
        root = np.square(counts * moved) - certain * (moved**2 - _TWO_SIDED**2 * (noise + rest))
        last = np.where(told, (counts * moved + side * np.sqrt(np.maximum(root, 0.0))) / certain, end)
        farthest = np.maximum(farthest, side * (np.clip(last, *limits) - values))
    # An end of the range is not beyond it by rounding.
    return farthest * (1.0 + _PRECISION)


def _relied(spread: float, error: float) -> float:
    """Return a variance that is reduced according to its standard error."""
    return spread**3 / (spread**2 + error**2) if spread > 0.0 else 0.0


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
    pooled = Estimate(first.value + share * moved, sum(parts))
    return tail, pooled.joined(Estimate(everywhere.value, everywhere.variance + spread)).within(limits)


def _damped_means(sums: FloatArray, counts: FloatArray, deviation: float, usual: float) -> FloatArray:
    """Return means of numbers in [0, 1], shrunk according to noise to a usual one, which is no less than noise."""
    mean = min(max(usual, 1e-9), 1.0)
    kept = counts * mean**2 / ((counts * mean) ** 2 + deviation**2)
    return np.clip(mean + kept * (sums - mean * counts), 0.0, 1.0)


def _pooled(visits: FloatArray, returns: FloatArray, noise: MomentNoise, limits: tuple[float, float]) -> float:
    """Return the returns of all visits over their number."""
    return float(np.clip(float(np.sum(returns)) / _total(visits, noise), *limits))


def _total(visits: FloatArray, noise: MomentNoise) -> float:
    """Return the number of visits, taken to be no less than its noise, and than 0."""
    return max(float(np.sum(visits)), noise.diagonal * math.sqrt(len(visits)), sys.float_info.min)
