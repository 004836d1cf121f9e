"""Pure mechanisms: L2-Laplace and Laplace noise, and the exponential mechanism's coefficient.

References
----------
Hardt and Talwar (2010), "On the geometry of differential privacy", STOC, Section 4 (with the Euclidean ball for K).
Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data analysis", TCC, Prop. 1.
McSherry and Talwar (2007), "Mechanism design via differential privacy", FOCS, Theorem 6.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy import rounding
from dpfast.privacy.rounding import largest_within


def l2_laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Scale of L2-Laplace (K-norm) noise that gives epsilon-differential privacy: ``sensitivity/epsilon``, rounded up.

    The noise vector has density proportional to ``exp(-||v||_2/scale)``: a uniform direction and a radius of law
    Gamma(shape = dimension, scale). Adding it to a statistic that one person can move by at most ``sensitivity`` in
    the L2 norm is (epsilon, 0)-DP, under the adjacency for which the sensitivity holds, in any dimension. (A radius
    of any other law, such as a one-dimensional Laplace or exponential, is private for no epsilon in two dimensions or
    more.) 0 for an infinite epsilon.

    Examples
    --------
    >>> from dpfast.privacy import l2_laplace_scale
    >>> l2_laplace_scale(epsilon=0.5, sensitivity=2.0)
    4.0
    """
    return rounding.quotient_up(sensitivity=sensitivity, epsilon=epsilon)


def laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Scale of independent Laplace noise that gives epsilon-differential privacy: ``sensitivity/epsilon``, rounded up.

    Every coordinate gets density proportional to ``exp(-|v|/scale)``; the sensitivity is the most that one person can
    move the statistic in the **L1** norm.

    Examples
    --------
    >>> from dpfast.privacy import laplace_scale
    >>> laplace_scale(epsilon=0.5, sensitivity=1.0)
    2.0
    """
    return rounding.quotient_up(sensitivity=sensitivity, epsilon=epsilon)


def l2_laplace_expected_norm(scale: float, dim: int) -> float:
    """Return the mean Euclidean norm of L2-Laplace noise in `dim` coordinates: ``dim * scale``, of its Gamma radius."""
    return check.nonnegative("scale", scale) * check.positive_integer("dim", dim)


def l2_laplace_norm_quantile(scale: float, dim: int, level: float) -> float:
    """Return the norm that L2-Laplace noise stays below with probability ``level``: a quantile of Gamma(dim, scale)."""
    level = check.share("level", level)
    # scipy.special takes longer to import than all of dpfast.privacy.
    from scipy.special import gammaincinv

    return check.nonnegative("scale", scale) * float(gammaincinv(check.positive_integer("dim", dim), level))


def l2_laplace_coordinate_quantile(scale: float, dim: int, level: float) -> float:
    """Return the absolute value that a coordinate of L2-Laplace noise stays below with probability ``level``.

    The same for any other direction of unit length. The law is a Gaussian's whose variance is ``2 W scale**2``, W a
    Gamma((dim + 1)/2) variable, so that the tail is the mean of ``erfc(t/(2 scale sqrt(W)))``: a smooth function of W's
    distribution function, integrated over [0, 1].

    Examples
    --------
    >>> from dpfast.privacy import l2_laplace_coordinate_quantile
    >>> round(l2_laplace_coordinate_quantile(1.0, dim=1, level=0.95), 4)
    2.9957
    """
    scale, dim = check.positive("scale", scale), check.positive_integer("dim", dim)
    return scale * _unit_coordinate_quantile(dim, check.share("level", level))


@functools.lru_cache(maxsize=64)
def _unit_coordinate_quantile(dim: int, level: float) -> float:
    from scipy.integrate import quad  # takes longer to import than all of dpfast.privacy
    from scipy.special import gammaincinv

    def tail(t: float) -> float:
        shape = 0.5 * (dim + 1)
        return float(quad(lambda p: math.erfc(0.5 * t / math.sqrt(gammaincinv(shape, p))), 0.0, 1.0, epsabs=1e-12)[0])

    return largest_within(lambda t: -tail(t), level - 1.0, 1.0, precision=1e-10)


def exponential_mechanism_coefficient(epsilon: float, score_sensitivity: float, *, monotone: bool = False) -> float:
    """Coefficient of the score in the weights ``exp(coefficient * score)`` of the exponential mechanism, rounded down.

    Sampling with these weights is (epsilon, 0)-DP. ``epsilon/(2 a)`` where one person can move any score **as
    computed** by at most a; ``epsilon/a`` where a record added can move all scores in one direction only (`monotone`,
    add/remove adjacency). inf, the best candidate without noise, for an infinite epsilon.

    Examples
    --------
    >>> from dpfast.privacy import exponential_mechanism_coefficient
    >>> exponential_mechanism_coefficient(epsilon=1.0, score_sensitivity=2.0)
    0.25
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    spread = Fraction(check.positive("score_sensitivity", score_sensitivity)) * (
        1 if check.boolean("monotone", monotone) else 2
    )
    return math.inf if epsilon == math.inf else rounding.down(Fraction(epsilon) / spread)
