"""Gaussian noise: the analytic calibration, its inverses, composition and split by mu.

Results are rounded towards privacy: a scale up, a mu down, and a delta or an epsilon of given noise up. The kernel is
accurate to about 2e-15 relative. `_EVALUATION_MARGIN` allows ten times that, and every calibrated value is verified
before it is returned.

References
----------
Balle and Wang (2018), "Improving the Gaussian mechanism for differential privacy", ICML, Theorem 8.
Dong, Roth and Su (2022), "Gaussian differential privacy", JRSS B 84(1), Corollaries 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.kernels import normal
from dpfast.privacy import rounding
from dpfast.privacy.rounding import first_that_holds, remembered

_EVALUATION_MARGIN = 2e-14
_SOLVING_MARGIN = 1e-13
_INVERTING_MARGIN = 4e-14
_SMALLEST, _LARGEST = 1e-300, 1e300
# Epsilon is at least about mu**2/2, and nearly leaves the range of floats, from here on.
_MU_WITHOUT_EPSILON = 1e150


def gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Smallest Gaussian noise that gives (epsilon, delta)-differential privacy [1]_.

    Adding N(0, scale**2) to every coordinate of a statistic is (epsilon, delta)-DP if one person can move the statistic
    by at most ``sensitivity`` in the L2 norm. It holds under the adjacency of the sensitivity.

    Parameters
    ----------
    epsilon : float
        At least 0; ``float("inf")`` means no noise.
    delta : float
        In (0, 1), at least the smallest normal float (2.2e-308); 0 is accepted with an infinite epsilon.
    sensitivity : float
        L2 sensitivity, positive, in the units of the statistic.

    Returns
    -------
    float
        Standard deviation in the units of the statistic; 0 for ``epsilon=float("inf")``. Its exact delta is never above
        the target and less than 1e-12 (relative) below for epsilon up to 1e3 and delta down to 1e-30.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range; for delta = 0, which no Gaussian noise meets.

    References
    ----------
    .. [1] Balle, B., Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy. ICML. Theorem 8.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_scale
    >>> round(gaussian_scale(epsilon=1.0, delta=1e-6), 4)
    4.2247
    """
    epsilon = check.epsilon_value(epsilon)
    delta = delta_for(epsilon, delta)
    sensitivity = check.positive("sensitivity", sensitivity)
    return 0.0 if epsilon == math.inf else _scale(epsilon, delta, sensitivity)


@remembered
def _scale(epsilon: float, delta: float, sensitivity: float) -> float:
    def scale_at(log_delta: float, bump: float) -> float:
        return sensitivity / normal.solve_mu(epsilon, log_delta) * (1.0 + bump)

    return _verified(scale_at, lambda scale: _delta_up(scale, epsilon, sensitivity), delta)


def gaussian_delta(scale: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """Delta that given Gaussian noise provides at an epsilon; nothing is released, and no data is read.

    Parameters
    ----------
    scale : float
        Standard deviation of the noise, at least 0.
    epsilon : float
        At least 0.
    sensitivity : float
        L2 sensitivity, positive, in the units of the scale.

    Returns
    -------
    float
        The smallest delta, rounded up by less than 1e-12 relative; 1 for a scale of 0, 0 for an infinite epsilon.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_delta
    >>> f"{gaussian_delta(scale=4.2247, epsilon=1.0):.2e}"
    '1.00e-06'
    """
    scale = check.nonnegative("scale", scale)
    epsilon = check.epsilon_value(epsilon)
    sensitivity = check.positive("sensitivity", sensitivity)
    if epsilon == math.inf:
        return 0.0
    return _delta_up(scale, epsilon, sensitivity) if scale > 0.0 else 1.0


def gaussian_epsilon(scale: float, delta: float, sensitivity: float = 1.0) -> float:
    """Epsilon that given Gaussian noise provides at a delta, rounded up.

    The rounding is loose near delta = 1 (about 1e-6 relative at 1 - 1e-8, more beyond). Infinite for a scale of 0, and
    where sensitivity/scale is 1e150 or more.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_epsilon
    >>> round(gaussian_epsilon(scale=4.2247, delta=1e-6), 4)
    1.0
    """
    scale = check.nonnegative("scale", scale)
    delta = check.delta_value(delta)
    sensitivity = check.positive("sensitivity", sensitivity)
    if scale == 0.0 or sensitivity / scale >= _MU_WITHOUT_EPSILON:
        return math.inf
    return _epsilon(scale, delta, sensitivity)


@remembered
def _epsilon(scale: float, delta: float, sensitivity: float) -> float:
    if _delta_up(scale, 0.0, sensitivity) <= delta:
        return 0.0

    def epsilon_at(log_delta: float, bump: float) -> float:
        return normal.solve_epsilon(scale, sensitivity, log_delta) * (1.0 + bump)

    # Less margin than gaussian_scale takes, so that its inverse gives epsilon back, to the last digits.
    return _verified(epsilon_at, lambda epsilon: _delta_up(scale, epsilon, sensitivity), delta, _INVERTING_MARGIN)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-Gaussian-DP implies (epsilon, delta)-DP, rounded down; inf for an infinite epsilon.

    Releases calibrated together share this budget: releases of mu_1, mu_2, ... (also adaptively chosen) are together
    sqrt(mu_1**2 + mu_2**2 + ...)-GDP, and a Gaussian release is (sensitivity/scale)-GDP.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_mu
    >>> round(gaussian_mu(epsilon=1.0, delta=1e-6), 4)
    0.2367
    """
    epsilon = check.epsilon_value(epsilon)
    delta = delta_for(epsilon, delta)
    return math.inf if epsilon == math.inf else _mu(epsilon, delta)


@remembered
def _mu(epsilon: float, delta: float) -> float:
    def mu_at(log_delta: float, bump: float) -> float:
        return normal.solve_mu(epsilon, log_delta) * (1.0 - bump)

    return _verified(mu_at, lambda mu: _delta_up(1.0, epsilon, mu), delta)


def scale_for_mu(mu: float, sensitivity: float = 1.0) -> float:
    """Gaussian noise that makes a release mu-GDP: ``sensitivity/mu``, rounded up; 0 for an infinite mu.

    >>> from dpfast.privacy import scale_for_mu
    >>> scale_for_mu(0.25, sensitivity=2.0)
    8.0
    """
    return rounding.quotient_up(sensitivity=sensitivity, mu=mu)


def compose_mu(mus: Iterable[float]) -> float:
    """Return the mu of several mu-GDP releases together, adaptively chosen or not: ``sqrt(sum(mu**2))``, rounded up.

    >>> from dpfast.privacy import compose_mu
    >>> compose_mu([3, 4])
    5.0
    """
    checked = tuple(mus)
    if set(map(type, checked)) != {float}:
        checked = tuple(check.real(f"mus[{index}]", mu) for index, mu in enumerate(checked))
    for index, value in enumerate(checked):
        if not value >= 0.0:
            raise ValueError(f"mus[{index}] must be at least 0, got {value!r}")
    return _compose_mu(checked)


@remembered
def _compose_mu(mus: tuple[float, ...]) -> float:
    if math.inf in mus:
        return math.inf
    return rounding.sqrt_up(sum((Fraction(mu) ** 2 for mu in mus), Fraction(0)))


def split_mu(mu: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Split a budget over releases, shares of mu**2 in proportion to the weights; `compose_mu` of them is at most mu.

    >>> from dpfast.privacy import split_mu
    >>> split_mu(5, [9, 16])
    (3.0, 4.0)
    """
    mu = check.positive_or_inf("mu", mu)
    shares = check.positives("weights", weights)
    if mu == math.inf:
        return (math.inf,) * len(shares)
    # Each square is rounded down, so the shares add up to at most mu**2, whatever their number.
    square = Fraction(mu) ** 2
    total = sum(map(Fraction, shares))
    return tuple(rounding.sqrt_down(square * Fraction(share) / total) for share in shares)


def least_noise_split(
    mu: float, sensitivities: Sequence[float], weights: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Split a budget over independent releases so that the weighted sum of their noise variances is least.

    Minimises ``sum(weight * scale**2)`` with ``scale = sensitivity/mu_i``; weights are all 1 if omitted. At the optimum
    ``mu_i**2`` is proportional to ``sqrt(weight) * sensitivity``. (The moments of the same rows cannot all be worst at
    once: `moment_scales` does better.)

    Examples
    --------
    >>> from dpfast.privacy import least_noise_split
    >>> least_noise_split(5, sensitivities=[9, 16])
    (3.0, 4.0)
    """
    movable = check.positives("sensitivities", sensitivities)
    costs = [1.0] * len(movable) if weights is None else check.positives("weights", weights)
    if len(costs) != len(movable):
        raise ValueError(f"weights must have the length of sensitivities, {len(movable)}, got {len(costs)}")
    shares = [math.sqrt(cost) * moved for cost, moved in zip(costs, movable, strict=True)]
    for index, share in enumerate(shares):
        if not 0.0 < share < math.inf:
            raise ValueError(f"sqrt(weights[{index}]) * sensitivities[{index}] leaves the range of floats: {share!r}")
    return split_mu(mu, shares)


def classic_gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the textbook scale ``sqrt(2 ln(1.25/delta)) sensitivity/epsilon``, for reproducing printed algorithms.

    Its proof (Dwork and Roth 2014, Theorem A.1) needs epsilon below 1. Above 1, the formula goes on falling like
    1/epsilon, while the noise needed falls like 1/sqrt(2 epsilon). So the guarantee fails at large epsilon (at delta =
    1e-6, from about 9). Below 1 the formula gives 1.2 to 1.5 times the scale of `gaussian_scale` at usual deltas.

    >>> from dpfast.privacy import classic_gaussian_scale
    >>> round(classic_gaussian_scale(epsilon=1.0, delta=1e-6), 4)
    5.2988
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    delta = check.delta_value(delta)
    return math.sqrt(2.0 * math.log(1.25 / delta)) * check.positive("sensitivity", sensitivity) / epsilon


def delta_for(epsilon: float, delta: object) -> float:
    """Return a delta in (0, 1); 0 is accepted if epsilon is infinite and no noise is needed."""
    if epsilon == math.inf and check.real("delta", delta) == 0.0:
        return 0.0
    return check.delta_value(delta)


def _delta_up(scale: float, epsilon: float, sensitivity: float) -> float:
    delta = normal.gaussian_delta(scale, epsilon, sensitivity) * (1.0 + _EVALUATION_MARGIN)
    # Below the range of floats the kernel returns 0, and no exact delta is 0.
    return min(1.0, math.nextafter(delta, 1.0))


def _verified(
    solve: Callable[[float, float], float],
    delta_at: Callable[[float], float],
    delta: float,
    margin: float = _SOLVING_MARGIN,
) -> float:
    """Solve for a log delta a little below the target, until the verified delta of the solution is at most the target.

    The first try almost always holds. If one unit in the last place of the answer moves delta by more than the margin
    (t v > 100 in the kernel's notation), a few more tries each aim a little lower.
    """
    log_delta, outside = math.log(delta), f"the arguments ask for a number outside [{_SMALLEST}, {_LARGEST}]"

    def holds(value: float) -> bool:
        if not _SMALLEST <= value <= _LARGEST and value != 0.0:
            raise ValueError(outside)
        return delta_at(value) <= delta

    return first_that_holds(lambda extra: solve(log_delta - margin * (1.0 + extra * 2.0**52), extra), holds, outside)
