"""Pure mechanisms, and the Gaussian mechanism with a guarantee no stronger than that of a choice of bounded range.

L2-Laplace [1]_ and Laplace [2]_ noise, and the exponential mechanism's coefficient [3]_.

*The Gaussian of a range.* Of two laws P and Q let log(P/Q) stay within an interval of length r. Examples are the
exponential mechanism, if one person moves its exponents by amounts in an interval of length r, and any epsilon-DP
mechanism, with r = 2 epsilon. Then P and Q are mu-Gaussian-differentially private [4]_ with ``mu = 2 Phi^-1(1/(1 +
exp(-r/2)))``, about .627 r for small r.

*Proof.* P/Q lies in some [a, b] with log(b/a) = r, and its mean under Q is 1. A convex function of it is at most its
chord's value there, so its mean under Q is at most the chord's at 1. The law on {a, b} attains this. Of all such pairs
it thus has the largest divergence for every threshold, and so the least trade-off function (so do Dong, Durfee and
Rogers [5]_). This function is the polygon from (0, 1) over (q, 1 - p) to (1, 0), with p and q the probabilities of b,
and ``logit(p) - logit(q) = log(b) - log(a) = r``. The trade-off function of mu-GDP is convex with the same ends. It is
below the polygon if it is below (q, 1 - p), that is, if Phi^-1(p) - Phi^-1(q) <= mu.

h(u) = Phi^-1(1/(1 + exp(-u))) is odd, and concave where u > 0 (below). So h' is even and falls in |u|, and over all
windows of length r its integral, Phi^-1(p) - Phi^-1(q), is largest over that about 0: 2 h(r/2) = mu.

h is concave where u > 0: with z = h(u), h' = Phi(z) Phi(-z)/phi(z), and its logarithm falls in z if
``D = phi (1 - 2 q) - z q (1 - q) >= 0`` for q = Phi(-z), phi = phi(z) and z > 0. D is 0 at 0 and at infinity, and
``D' = 2 phi^2 - q (1 - q)`` is 1/pi - 1/4 > 0 at 0. ``D'' = phi F`` with F = (1 - 2q) - 4 z phi, and
``F' = phi (4 z^2 - 2)``: F is 0 at 0, falls, then rises to 1. So D' falls, then rises to 0 at infinity: it is positive,
then negative; and D rises, then falls to 0.

References
----------
.. [1] Hardt, M., Talwar, K. (2010). On the geometry of differential privacy. STOC. Section 4, with the Euclidean ball
   for K.
.. [2] Dwork, C., McSherry, F., Nissim, K., Smith, A. (2006). Calibrating noise to sensitivity in private data analysis.
   TCC. Proposition 1.
.. [3] McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Theorem 6.
.. [4] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. Section 2.
.. [5] Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms.
   ICML. Lemma 3.1 and Section 4.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy import rounding
from dpfast.privacy.rounding import ROUND_DOWN, ROUND_UP, largest_within


def l2_laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Scale of L2-Laplace (K-norm) noise that gives epsilon-differential privacy: ``sensitivity/epsilon``, rounded up.

    The noise vector has density proportional to ``exp(-||v||_2/scale)``: a uniform direction and a radius of law
    Gamma(shape = dimension, scale). Adding it to a statistic is (epsilon, 0)-DP in any dimension, if one person can
    move the statistic by at most ``sensitivity`` in the L2 norm. It holds under the adjacency of the sensitivity. (A
    radius of any other law, such as a one-dimensional Laplace or exponential, is private for no epsilon in two
    dimensions or more.) 0 for an infinite epsilon.

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
    from scipy.special import gammaincinv  # takes longer to import than all of dpfast.privacy

    level = check.share("level", level)
    return check.nonnegative("scale", scale) * float(gammaincinv(check.positive_integer("dim", dim), level))


def l2_laplace_coordinate_quantile(scale: float, dim: int, level: float) -> float:
    """Return the absolute value that a coordinate of L2-Laplace noise stays below with probability ``level``.

    The same holds for any other direction of unit length. The coordinate is a Gaussian with random variance ``2 W
    scale**2``, W a Gamma((dim + 1)/2) variable. So the tail is the mean of ``erfc(t/(2 scale sqrt(W)))``: a smooth
    function of W's distribution function, integrated over [0, 1].

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
    from scipy.integrate import quad
    from scipy.special import gammaincinv  # both take longer to import than all of dpfast.privacy

    def tail(t: float) -> float:
        shape = 0.5 * (dim + 1)
        return float(quad(lambda p: math.erfc(0.5 * t / math.sqrt(gammaincinv(shape, p))), 0.0, 1.0, epsabs=1e-12)[0])

    return largest_within(lambda t: -tail(t), level - 1.0, 1.0, precision=1e-10)


def exponential_mechanism_coefficient(epsilon: float, score_sensitivity: float, *, monotone: bool = False) -> float:
    """Coefficient of the score in the weights ``exp(coefficient * score)`` of the exponential mechanism, rounded down.

    Sampling with these weights is (epsilon, 0)-DP. The coefficient is ``epsilon/(2 a)`` if one person can move any
    score **as computed** by at most a. It is ``epsilon/a`` if an added record can move all scores in one direction only
    (`monotone`, add/remove adjacency). It is inf, the best candidate without noise, for an infinite epsilon.

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


def range_mu(length: float) -> float:
    """Return the mu of log ratios in an interval of that length, rounded up.

    >>> from dpfast.privacy import range_mu
    >>> round(range_mu(1.0), 4)
    0.6239
    """
    from scipy.special import erfinv, ndtri_exp  # takes longer to import than all of dpfast.privacy

    half = check.positive("length", length) / 2.0
    if half < 1.0:
        # erf(mu/sqrt(8)) = 2 p - 1, without the cancellation of quantiles near one half.
        return float(math.sqrt(8.0) * erfinv(math.tanh(half / 2.0))) * ROUND_UP
    # log(1 - p), without the underflow of 1 - p.
    return float(-2.0 * ndtri_exp(-half - math.log1p(math.exp(-half)))) * ROUND_UP


def range_of_mu(mu: float) -> float:
    """Return a length with `range_mu` at most a mu, near the largest such length.

    >>> from dpfast.privacy import range_mu, range_of_mu
    >>> range_mu(range_of_mu(0.25)) <= 0.25
    True
    """
    from scipy.special import log_ndtr  # takes longer to import than all of dpfast.privacy

    half = check.positive("mu", mu) / 2.0
    length = 2.0 * float(log_ndtr(half) - log_ndtr(-half)) * ROUND_DOWN
    while range_mu(length) > mu:
        # The difference of logarithms cancels if mu is small.
        length *= 1.0 - 2.0**-20
    return length
