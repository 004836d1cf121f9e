"""Privacy amplified by a secret random sample: of any mechanism, and of PRIMO's xx' summed over it with xy' over all.

The sums are calibrated jointly (Algorithm 4). The sample is uniform, s of n rows without replacement, gamma = s/n;
replace-one, so n is public. Both sums get their own Gaussian noise. Two bounds hold on the delta of the pair at an
epsilon; each noise may use the better of them.

*Amplified, then composed.* The release from the sample alone is (e1, gamma d1)-DP for e1 = log(1 + gamma (exp(e') - 1))
and d1 = delta of its Gaussian noise at e' (Balle, Barthe and Gaboardi 2018, Theorem 9). The other one is (e2, d2)-DP,
and its noise is independent of the sample and of the first one's noise, so basic composition applies at every split:
delta(e1 + e2) <= gamma d1(e') + d2(e2).

*Conditioned on the sample.* Given the sample, the pair is a Gaussian release of fixed sums: mu-GDP with the joint mu of
`moments` if the replaced row is in the sample, and with that of xy alone if not. Neighbours have the same law of
samples, so the pair's law is a mixture with the same weights on either side. The hockey-stick divergence is jointly
convex, hence delta(epsilon) <= gamma delta_joint(epsilon) + (1 - gamma) delta_xy(epsilon).

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
from dpfast.privacy import guarantee
from dpfast.privacy.guarantee import ROUND_DOWN, ROUND_UP, bisected, down, first_that_holds, least_at, remembered, up
from dpfast.privacy.moment_scales import (
    MomentScales,
    block_costs,
    moment_mu,
    moment_scales,
    xx_sensitivity,
    xy_sensitivity,
)

_SPLITS_TRIED = 33
_SHRINKAGES = 26
# Tolerance on a share, or on the logarithm of a ratio: an error in it costs only its square.
_TOLERANCE = 1e-3


def subsampled_budget(epsilon: float, delta: float, n_sampled: int, n_total: int) -> tuple[float, float]:
    """Return the budget that a mechanism may spend on a random sample for the whole to be (epsilon, delta)-DP.

    With gamma = n_sampled/n_total, an (epsilon', delta')-DP mechanism on a uniform sample without replacement is
    (log(1 + gamma (exp(epsilon') - 1)), gamma delta')-DP under replace-one; this is the exact inverse. The sample
    must be secret: drawn from a secure source and never released. The whole is no Gaussian-DP release even if the
    mechanism is: it takes no part in a split of mu**2.

    Parameters
    ----------
    epsilon, delta : float
        Target for the whole: positive, inf stays infinite; at least 0 and below gamma.
    n_sampled, n_total : int
        Records in the sample and in all, ``1 <= n_sampled <= n_total``.

    Returns
    -------
    tuple of float
        epsilon' and delta', rounded down.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    Balle, Barthe and Gaboardi (2018), "Privacy amplification by subsampling: tight analyses via couplings and
    divergences", NeurIPS, Theorem 9.

    Examples
    --------
    >>> from dpfast.privacy import subsampled_budget
    >>> epsilon, delta = subsampled_budget(1.0, 1e-6, n_sampled=100, n_total=1000)
    >>> round(epsilon, 4), round(delta, 8)
    (2.9005, 1e-05)
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    delta = check.nonnegative("delta", delta)
    sampled, total = sample_sizes(n_sampled, n_total)
    fraction = Fraction(sampled, total)
    if not Fraction(delta) < fraction:
        raise ValueError(f"delta must be below n_sampled/n_total = {float(fraction):.3g}, got {delta!r}")
    if sampled == total or epsilon == math.inf:
        return epsilon, down(Fraction(delta) / fraction)
    return inner_epsilon(epsilon, up(fraction)), down(Fraction(delta) / fraction)


def inner_epsilon(epsilon: float, gamma: float) -> float:
    """Return the finite epsilon that may be spent on a sample for `epsilon` on the whole, rounded down.

    log(1 + (exp(epsilon) - 1)/gamma); `gamma` is the fraction sampled, below 1 and not rounded down.
    """
    if epsilon < 1.0:
        return math.log1p(math.expm1(epsilon) / gamma) * ROUND_DOWN
    # Taking exp(epsilon)/gamma out of the logarithm avoids overflow.
    return (epsilon - math.log(gamma) + math.log1p(-(1.0 - gamma) * math.exp(-epsilon))) * ROUND_DOWN


def sample_sizes(n_sampled: object, n_total: object) -> tuple[int, int]:
    """Return the sizes of a sample and of the whole, or raise if there can be no such sample."""
    sampled = check.positive_integer("n_sampled", n_sampled)
    total = check.positive_integer("n_total", n_total)
    if sampled > total:
        raise ValueError(f"n_sampled must be at most n_total, {total}, got {sampled}")
    return sampled, total


def subsampled_moment_delta(
    scales: MomentScales, epsilon: float, n_sampled: int, n_total: int, bound_x: float, bound_y: float, **kind: Any
) -> float:
    """Return a delta for which noisy moments, xx from a secret sample and xy from all rows, are (epsilon, delta)-DP.

    The noise is on xx, the unscaled sum over the sample, and on xy, the sum over all rows; `n_features`, `n_outcomes`
    and `nonnegative` are as for `moment_mu`. The better of two bounds, rounded up.

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
    pair = _pair(n_sampled, n_total, bound_x, bound_y, **kind)
    return pair.delta(scales, check.epsilon_value(epsilon))


def subsampled_moment_scales(
    epsilon: float,
    delta: float,
    n_sampled: int,
    n_total: int,
    bound_x: float,
    bound_y: float,
    weights: Mapping[str, float] | None = None,
    **kind: Any,
) -> MomentScales:
    """Noise on xx over a secret sample and on xy over all rows, for both to be (epsilon, delta)-DP under replace-one.

    Minimises ``weights["xx"] * (scales.xx * n_total/n_sampled)**2 + weights["xy"] * scales.xy**2``, by default with
    equal weights. ``scales.xx`` belongs to the unscaled sum over the sample. Multiplied by n_total/n_sampled, this sum
    estimates the sum over all rows, and its noise grows by the same factor. Keywords as for `subsampled_moment_delta`,
    which is at most ``delta`` for the result.

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
    _pair(n_sampled, n_total, bound_x, bound_y, **kind)
    costs = block_costs(weights, True, ("xx", "xy"))
    if len(costs) < 2:
        raise ValueError(f"weights must name 'xx' and 'xy', got {sorted(costs)}")
    if epsilon == math.inf:
        return MomentScales(xx=0.0, xy=0.0)
    sizes = n_sampled, n_total, bound_x, bound_y
    return _subsampled_scales(epsilon, check.delta_value(delta), tuple(costs.items()), *sizes, **kind)


@remembered
def _subsampled_scales(
    epsilon: float, delta: float, weights: tuple[tuple[str, float], ...], *sizes: Any, **kind: Any
) -> MomentScales:
    pair, costs = _pair(*sizes, **kind), dict(weights)
    in_sample = {"xx": costs["xx"] * (pair.n_total / pair.n_sampled) ** 2, "xy": costs["xy"]}

    def cost(scales: MomentScales) -> float:
        return scales.cost(in_sample)

    # With all rows in the sample the second bound is the joint Gaussian calibration itself.
    candidates = [_best_conditioned(pair, epsilon, delta, in_sample, cost)]
    if pair.n_sampled < pair.n_total:
        candidates.append(_best_amplified(pair, epsilon, delta, cost))
    best = min(candidates, key=cost)
    found = first_that_holds(lambda extra: best.times(1.0 + extra), lambda scales: pair.delta(scales, epsilon) <= delta)
    return _tightened(pair, epsilon, delta, found)


@dataclass(frozen=True)
class _Pair:
    """The two releases, described by public numbers."""

    n_sampled: int
    n_total: int
    xx_sensitivity: float
    xy_sensitivity: float
    joint_mu: Callable[[MomentScales], float]
    joint_scales: Callable[[float, Mapping[str, float]], MomentScales]

    @cached_property
    def gamma(self) -> float:
        """The fraction sampled, rounded up."""
        return up(Fraction(self.n_sampled, self.n_total))

    def delta(self, scales: MomentScales, epsilon: float) -> float:
        if min(scales.xx, scales.xy) == 0.0 and epsilon < math.inf:
            return 1.0
        return min(1.0, self.conditioned(scales, epsilon), self.amplified(scales, epsilon))

    def conditioned(self, scales: MomentScales, epsilon: float) -> float:
        return self.mixed(epsilon, self.joint_mu(scales), scales.xy)

    def mixed(self, epsilon: float, joint_mu: float, scale_xy: float) -> float:
        in_sample = guarantee.gaussian_delta(1.0, epsilon, joint_mu)
        if self.n_sampled == self.n_total:
            return in_sample
        outside = guarantee.gaussian_delta(scale_xy, epsilon, self.xy_sensitivity)
        # The pair moves at least as far as either release alone, so this grows with gamma.
        return (self.gamma * in_sample + (1.0 - self.gamma) * outside) * ROUND_UP

    def amplified(self, scales: MomentScales, epsilon: float) -> float:
        """Return the least delta over splits of epsilon; the delta of every split is valid."""
        if self.n_sampled == self.n_total or epsilon in (0.0, math.inf):
            return 1.0
        shares = [index / (_SPLITS_TRIED + 1) for index in range(1, _SPLITS_TRIED + 1)]
        deltas = [self.split_delta(scales, epsilon, share) for share in shares]
        index = deltas.index(min(deltas))
        width = 1.0 / (_SPLITS_TRIED + 1)
        around = shares[index] - width, shares[index] + width
        share = least_at(lambda share: self.split_delta(scales, epsilon, share), *around, _TOLERANCE * width)
        return min(deltas[index], self.split_delta(scales, epsilon, share))

    def split_delta(self, scales: MomentScales, epsilon: float, share: float) -> float:
        of_sample, of_all = _split(epsilon, share)
        first = guarantee.gaussian_delta(scales.xx, inner_epsilon(of_sample, self.gamma), self.xx_sensitivity)
        second = guarantee.gaussian_delta(scales.xy, of_all, self.xy_sensitivity)
        return (self.gamma * first + second) * ROUND_UP


def _pair(n_sampled: int, n_total: int, bound_x: float, bound_y: float, **kind: Any) -> _Pair:
    sizes, kind = sample_sizes(n_sampled, n_total), {"adjacency": "replace_one"} | kind
    features = {name: value for name, value in kind.items() if name in ("adjacency", "n_features")}
    return _Pair(
        *sizes,
        xx_sensitivity(bound_x, **features),
        xy_sensitivity(bound_x, bound_y, **kind),
        lambda scales: moment_mu(scales, bound_x, bound_y, **kind),
        lambda mu, weights: moment_scales(mu, bound_x, bound_y, weights, **kind),
    )


def _split(total: float, share: float) -> tuple[float, float]:
    """Return two positive numbers that add up to at most the total."""
    first = total * share
    return first, math.nextafter(total - first, 0.0)


def _best_conditioned(
    pair: _Pair, epsilon: float, delta: float, weights: Mapping[str, float], cost: Callable[[MomentScales], float]
) -> MomentScales:
    """Search over the ratio of the two noises; at each, the least multiple that meets the second bound."""
    mu = guarantee.gaussian_mu(epsilon, delta)

    def at_tilt(tilt: float) -> MomentScales:
        shape = pair.joint_scales(mu, {"xx": weights["xx"], "xy": weights["xy"] * math.exp(tilt)})
        whole = pair.joint_mu(shape)
        # The shape meets the budget without sampling. Sampling reduces the noise, at most to that of xy alone; mu is
        # inverse to it.
        _, high = bisected(lambda times: pair.mixed(epsilon, whole / times, shape.xy * times) > delta, 0.0, 1.0, 32)
        return shape.times(high)

    if pair.n_sampled == pair.n_total:
        return pair.joint_scales(mu, weights)
    return at_tilt(least_at(lambda tilt: cost(at_tilt(tilt)), -6.0, 6.0, _TOLERANCE))


def _best_amplified(pair: _Pair, epsilon: float, delta: float, cost: Callable[[MomentScales], float]) -> MomentScales:
    """Search over the shares of epsilon and of delta for the release from the sample."""

    def at(epsilon_share: float, delta_share: float) -> MomentScales:
        of_sample, of_all = _split(epsilon, epsilon_share)
        first, second = _split(delta, delta_share)
        inner_delta = min(math.nextafter(first / pair.gamma, 0.0), 1.0 - 2.0**-53)
        return MomentScales(
            xx=guarantee.gaussian_scale(inner_epsilon(of_sample, pair.gamma), inner_delta, pair.xx_sensitivity),
            xy=guarantee.gaussian_scale(of_all, second, pair.xy_sensitivity),
        )

    def least(epsilon_share: float) -> MomentScales:
        return at(epsilon_share, least_at(lambda share: cost(at(epsilon_share, share)), 1e-3, 1.0 - 1e-3, _TOLERANCE))

    return least(least_at(lambda share: cost(least(share)), 1e-3, 1.0 - 1e-3, _TOLERANCE))


def _tightened(pair: _Pair, epsilon: float, delta: float, scales: MomentScales) -> MomentScales:
    """Shrink both noises by one factor as far as the target allows.

    They were found for one bound and one split, by searches that end early; the other bound or a better split may leave
    some of delta unused.
    """

    def too_small(factor: float) -> bool:
        return pair.delta(scales.times(factor), epsilon) > delta

    # All of the noise is enough, and the search ends only at factors that are enough.
    return scales.times(bisected(too_small, 0.5, 1.0, _SHRINKAGES)[1])
