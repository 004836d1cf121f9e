"""Joint calibration of the sum of xx' over a secret sample and the sum of xy' over all rows (PRIMO's Algorithm 4).

The sample is uniform, s of n rows without replacement, gamma = s/n; replace-one, so n is public. Both sums get their
own Gaussian noise. Two bounds hold on the delta of the pair at an epsilon; each noise may use the better of them.

*Amplified, then composed.* The release from the sample alone is (e1, gamma d1)-DP for e1 = log(1 + gamma (exp(e') - 1))
and d1 = delta of its Gaussian noise at e' (Balle, Barthe and Gaboardi 2018, Theorem 9). The other one is (e2, d2)-DP,
and its noise is independent of the sample and of the first one's noise, so basic composition applies at every split:
delta(e1 + e2) <= gamma d1(e') + d2(e2).

*Conditioned on the sample.* Given the sample, the pair is a Gaussian release of fixed sums: mu-GDP with the joint mu of
`moments` if the replaced row is in the sample, and with that of xy alone if not. Neighbours have the same law of
samples, so the pair's law is a mixture with the same weights on either side, and the hockey-stick divergence is jointly
convex: delta(epsilon) <= gamma delta_joint(epsilon) + (1 - gamma) delta_xy(epsilon).

The first gains from small gamma, the second pays nothing for composition. Neither is the exact profile of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from dpfast import _arguments as check
from dpfast.privacy import _rounding as rounding
from dpfast.privacy.gaussian import gaussian_delta, gaussian_mu, gaussian_scale
from dpfast.privacy.moment_scales import MomentScales, moment_mu, moment_scales
from dpfast.privacy.sensitivity import xx_sensitivity, xy_sensitivity
from dpfast.privacy.subsampling import inner_epsilon, sample_sizes

# More than the rounding errors of five operations on positive numbers.
_ROUND_UP = 1.0 + 2.0**-49
_SPLITS_TRIED = 33
_MAX_TRIES = 60
_SHRINKAGES = 26


def subsampled_moment_delta(
    scales: MomentScales,
    epsilon: float,
    n_sampled: int,
    n_total: int,
    bound_x: float,
    bound_y: float,
    *,
    n_features: int,
    n_outcomes: int | None = None,
    nonnegative: bool = False,
) -> float:
    """Return a delta for which noisy moments, xx from a secret sample and xy from all rows, are (epsilon, delta)-DP.

    Parameters
    ----------
    scales : MomentScales
        The noise on xx, the sum over the sample as it is, and on xy, the sum over all rows.
    epsilon : float
        At least 0.
    n_sampled, n_total : int
        Rows in the sample and in all, ``1 <= n_sampled <= n_total``. Replace-one: both are public.
    bound_x, bound_y, n_features, n_outcomes, nonnegative
        As for `moment_mu`.

    Returns
    -------
    float
        The better of two bounds, rounded up.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    References
    ----------
    Balle, Barthe and Gaboardi (2018), "Privacy amplification by subsampling: tight analyses via couplings and
    divergences", NeurIPS, Theorem 9; the composition is derived above this module's imports.

    Examples
    --------
    >>> from dpfast.privacy import MomentScales, subsampled_moment_delta
    >>> subsampled_moment_delta(MomentScales(xx=4.0, xy=20.0), 1.0, 1000, 10_000, 1.0, 1.0, n_features=5) < 1e-6
    True
    """
    pair = _pair(n_sampled, n_total, bound_x, bound_y, n_features, n_outcomes, nonnegative)
    return pair.delta(scales, check.epsilon_value(epsilon))


def subsampled_moment_scales(
    epsilon: float,
    delta: float,
    n_sampled: int,
    n_total: int,
    bound_x: float,
    bound_y: float,
    weights: Mapping[str, float] | None = None,
    *,
    n_features: int,
    n_outcomes: int | None = None,
    nonnegative: bool = False,
) -> MomentScales:
    """Noise on xx over a secret sample and on xy over all rows, for both to be (epsilon, delta)-DP under replace-one.

    Minimises ``weights["xx"] * (scales.xx * n_total/n_sampled)**2 + weights["xy"] * scales.xy**2``: the sum over the
    sample estimates that over all rows once it is multiplied by n_total/n_sampled, and so is its noise.

    Parameters
    ----------
    epsilon : float
        Target for the pair, positive; ``float("inf")`` means no noise.
    delta : float
        Target for the pair, in (0, 1).
    n_sampled, n_total : int
        Rows in the sample and in all, ``1 <= n_sampled <= n_total``.
    bound_x, bound_y, n_features, n_outcomes, nonnegative
        As for `moment_scales`.
    weights : mapping of str to float, optional
        Costs of the noise variances of both estimates, "xx" and "xy", positive; default 1 each.

    Returns
    -------
    MomentScales
        ``xx`` belongs to the sum over the sample as it is. `subsampled_moment_delta` of it is at most ``delta``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    References
    ----------
    Neel, "PRIMO: private regression in multiple outcomes", Algorithm 4, whose printed noise is too small by n/s.

    Examples
    --------
    The sample holds a tenth of the rows; its sum is then multiplied by ten:

    >>> from dpfast.privacy import subsampled_moment_delta, subsampled_moment_scales
    >>> scales = subsampled_moment_scales(1.0, 1e-6, 1000, 10_000, 1.0, 1.0, n_features=5)
    >>> 0.99e-6 < subsampled_moment_delta(scales, 1.0, 1000, 10_000, 1.0, 1.0, n_features=5) <= 1e-6
    True
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    pair = _pair(n_sampled, n_total, bound_x, bound_y, n_features, n_outcomes, nonnegative)
    costs = _costs(weights)
    if epsilon == math.inf:
        return MomentScales(xx=0.0, xy=0.0)
    delta = check.delta_value(delta)
    in_sample = {"xx": costs["xx"] * (n_total / n_sampled) ** 2, "xy": costs["xy"]}

    def cost(scales: MomentScales) -> float:
        return in_sample["xx"] * scales.xx**2 + in_sample["xy"] * scales.xy**2

    # With all rows in the sample the second bound is the joint Gaussian calibration itself.
    candidates = [_best_conditioned(pair, epsilon, delta, in_sample, cost)]
    if n_sampled < n_total:
        candidates.append(_best_amplified(pair, epsilon, delta, cost))
    best = min(candidates, key=cost)
    growth = 1.0
    for attempt in range(_MAX_TRIES):
        scales = MomentScales(xx=best.xx * growth, xy=best.xy * growth)
        if pair.delta(scales, epsilon) <= delta:
            return _tightened(pair, epsilon, delta, scales)
        growth = 1.0 + 2.0 ** (attempt - 50)
    raise ValueError("the arguments ask for noise beyond the range of floats")


@dataclass(frozen=True)
class _Pair:
    """The two releases, by their public numbers."""

    n_sampled: int
    n_total: int
    xx_sensitivity: float
    xy_sensitivity: float
    joint_mu: Callable[[MomentScales], float]
    joint_scales: Callable[[float, Mapping[str, float]], MomentScales]

    @cached_property
    def gamma(self) -> float:
        """The fraction sampled, rounded up."""
        return rounding.up(Fraction(self.n_sampled, self.n_total))

    def delta(self, scales: MomentScales, epsilon: float) -> float:
        if min(scales.xx, scales.xy) == 0.0 and epsilon < math.inf:
            return 1.0
        return min(1.0, self.conditioned(scales, epsilon), self.amplified(scales, epsilon))

    def conditioned(self, scales: MomentScales, epsilon: float) -> float:
        return self.mixed(epsilon, self.joint_mu(scales), scales.xy)

    def mixed(self, epsilon: float, joint_mu: float, scale_xy: float) -> float:
        in_sample = gaussian_delta(1.0, epsilon, joint_mu)
        if self.n_sampled == self.n_total:
            return in_sample
        outside = gaussian_delta(scale_xy, epsilon, self.xy_sensitivity)
        # The pair moves at least as far as one of it alone, so this grows with gamma.
        return (self.gamma * in_sample + (1.0 - self.gamma) * outside) * _ROUND_UP

    def amplified(self, scales: MomentScales, epsilon: float) -> float:
        """Return the least delta over splits of epsilon; whichever split is best, its delta is one that holds."""
        if self.n_sampled == self.n_total or epsilon in (0.0, math.inf):
            return 1.0
        shares = [index / (_SPLITS_TRIED + 1) for index in range(1, _SPLITS_TRIED + 1)]
        deltas = [self.split_delta(scales, epsilon, share) for share in shares]
        index = deltas.index(min(deltas))
        width = 1.0 / (_SPLITS_TRIED + 1)
        share = _golden(
            lambda share: self.split_delta(scales, epsilon, share), shares[index] - width, shares[index] + width
        )
        return min(deltas[index], self.split_delta(scales, epsilon, share))

    def split_delta(self, scales: MomentScales, epsilon: float, share: float) -> float:
        of_sample, of_all = _split(epsilon, share)
        first = gaussian_delta(scales.xx, inner_epsilon(of_sample, self.gamma), self.xx_sensitivity)
        second = gaussian_delta(scales.xy, of_all, self.xy_sensitivity)
        return (self.gamma * first + second) * _ROUND_UP


def _pair(
    n_sampled: int,
    n_total: int,
    bound_x: float,
    bound_y: float,
    n_features: int,
    n_outcomes: int | None,
    nonnegative: bool,
) -> _Pair:
    sampled, total = sample_sizes(n_sampled, n_total)
    shape: dict[str, Any] = {"adjacency": "replace_one", "n_features": n_features}
    outcomes: dict[str, Any] = {"n_outcomes": n_outcomes, "nonnegative": nonnegative}
    return _Pair(
        sampled,
        total,
        xx_sensitivity(bound_x, **shape),
        xy_sensitivity(bound_x, bound_y, **shape, **outcomes),
        lambda scales: moment_mu(scales, bound_x, bound_y, **shape, **outcomes),
        lambda mu, weights: moment_scales(mu, bound_x, bound_y, weights, **shape, **outcomes),
    )


def _costs(weights: Mapping[str, float] | None) -> dict[str, float]:
    if weights is None:
        return {"xx": 1.0, "xy": 1.0}
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights must map block names to positive numbers, got {type(weights).__name__}")
    if set(weights) != {"xx", "xy"}:
        raise ValueError(f"weights must name 'xx' and 'xy', got {sorted(map(str, weights))}")
    return {block: check.positive(f"weights[{block!r}]", weight) for block, weight in weights.items()}


def _split(total: float, share: float) -> tuple[float, float]:
    """Return two positive numbers that add up to at most the total."""
    first = total * share
    return first, math.nextafter(total - first, 0.0)


def _best_conditioned(
    pair: _Pair,
    epsilon: float,
    delta: float,
    weights: Mapping[str, float],
    cost: Callable[[MomentScales], float],
) -> MomentScales:
    """Search over the ratio of the two noises; at each, the least multiple that meets the second bound."""
    mu = gaussian_mu(epsilon, delta)

    def at_tilt(tilt: float) -> MomentScales:
        shape = pair.joint_scales(mu, {"xx": weights["xx"], "xy": weights["xy"] * math.exp(tilt)})
        whole = pair.joint_mu(shape)
        # The shape meets the budget unsampled; noise shrinks by what sampling gives, at most to what xy alone needs.
        low, high = 0.0, 1.0
        for _ in range(32):
            middle = 0.5 * (low + high)
            # mu is inverse to the noise.
            claimed = pair.mixed(epsilon, whole / middle, shape.xy * middle)
            low, high = (low, middle) if claimed <= delta else (middle, high)
        return MomentScales(xx=shape.xx * high, xy=shape.xy * high)

    if pair.n_sampled == pair.n_total:
        return pair.joint_scales(mu, weights)
    return at_tilt(_golden(lambda tilt: cost(at_tilt(tilt)), -6.0, 6.0))


def _best_amplified(pair: _Pair, epsilon: float, delta: float, cost: Callable[[MomentScales], float]) -> MomentScales:
    """Search over the shares of epsilon and of delta that the release from the sample gets."""

    def at(epsilon_share: float, delta_share: float) -> MomentScales:
        of_sample, of_all = _split(epsilon, epsilon_share)
        first, second = _split(delta, delta_share)
        inner_delta = min(math.nextafter(first / pair.gamma, 0.0), 1.0 - 2.0**-53)
        return MomentScales(
            xx=gaussian_scale(inner_epsilon(of_sample, pair.gamma), inner_delta, pair.xx_sensitivity),
            xy=gaussian_scale(of_all, second, pair.xy_sensitivity),
        )

    def least(epsilon_share: float) -> MomentScales:
        return at(epsilon_share, _golden(lambda share: cost(at(epsilon_share, share)), 1e-3, 1.0 - 1e-3))

    return least(_golden(lambda share: cost(least(share)), 1e-3, 1.0 - 1e-3))


def _tightened(pair: _Pair, epsilon: float, delta: float, scales: MomentScales) -> MomentScales:
    """Shrink both noises by one factor as far as the target allows.

    They were found for one bound and one split, by searches that end early; the other bound or a better split may leave
    some of delta unused.
    """
    low, high, tightest = 0.5, 1.0, scales
    for _ in range(_SHRINKAGES):
        middle = 0.5 * (low + high)
        shrunk = MomentScales(xx=scales.xx * middle, xy=scales.xy * middle)
        if pair.delta(shrunk, epsilon) <= delta:
            high, tightest = middle, shrunk
        else:
            low = middle
    return tightest


def _golden(function: Callable[[float], float], low: float, high: float, steps: int = 18) -> float:
    """Return where a function with one minimum is least, to 2e-4 of the interval (golden-section search)."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
