"""The Gaussian that promises no more than a choice whose odds one person moves within a range.

Of two laws P and Q let log(P/Q) stay within an interval of length r: the exponential mechanism's, whose exponents one
person moves by amounts in an interval of length r; and those of any epsilon-DP mechanism, with r = 2 epsilon. Then they
are mu-Gaussian-differentially private [1]_ with ``mu = 2 Phi^-1(1/(1 + exp(-r/2)))``, about .627 r where that is small.

*Proof.* P/Q lies in some [a, b] with log(b/a) = r, and its mean under Q is 1. A convex function of it is at most its
chord's value there, so its mean under Q is at most the chord's at 1, which the law on {a, b} alone attains: it has
the largest divergence for every threshold, and so the least trade-off function, of all such pairs (so do Dong, Durfee
and Rogers [2]_). That is the polygon from (0, 1) over (q, 1 - p) to (1, 0), with p and q the probabilities of b, and
``logit(p) - logit(q) = log(b) - log(a) = r``. The trade-off function of mu-GDP is convex with the same ends: it is
below the polygon if it is below (q, 1 - p), which says Phi^-1(p) - Phi^-1(q) <= mu.

h(u) = Phi^-1(1/(1 + exp(-u))) is odd, and concave where u > 0 (below). So h' is even and falls in |u|, and over all
windows of length r its integral, Phi^-1(p) - Phi^-1(q), is largest over that about 0: 2 h(r/2) = mu.

h is concave where u > 0: with z = h(u), h' = Phi(z) Phi(-z)/phi(z), and its logarithm falls in z if
``D = phi (1 - 2 q) - z q (1 - q) >= 0`` for q = Phi(-z), phi = phi(z) and z > 0. D is 0 at 0 and at infinity, and
``D' = 2 phi^2 - q (1 - q)`` is 1/pi - 1/4 > 0 at 0. ``D'' = phi F`` with F = (1 - 2q) - 4 z phi, and
``F' = phi (4 z^2 - 2)``: F is 0 at 0, falls, then rises to 1. So D' falls, then rises to 0 at infinity: it is positive,
then negative; and D rises, then falls to 0.

References
----------
.. [1] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. Section 2.
.. [2] Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms.
   ICML. Lemma 3.1 and Section 4.
"""

from __future__ import annotations

import math

from scipy.special import erfinv, log_ndtr, ndtri_exp

from dpfast import _arguments as check
from dpfast.privacy.rounding import ROUND_DOWN, ROUND_UP


def range_mu(length: float) -> float:
    """Return the mu of log ratios in an interval of that length, rounded up.

    >>> from dpfast.privacy import range_mu
    >>> round(range_mu(1.0), 4)
    0.6239
    """
    half = check.positive("length", length) / 2.0
    if half < 1.0:
        # erf(mu/sqrt(8)) = 2 p - 1, without the cancellation of quantiles near one half.
        return float(math.sqrt(8.0) * erfinv(math.tanh(half / 2.0))) * ROUND_UP
    # log(1 - p), without the underflow of 1 - p.
    return float(-2.0 * ndtri_exp(-half - math.log1p(math.exp(-half)))) * ROUND_UP


def range_of_mu(mu: float) -> float:
    """Return a length that `range_mu` finds within a mu, near the largest.

    >>> from dpfast.privacy import range_mu, range_of_mu
    >>> range_mu(range_of_mu(0.25)) <= 0.25
    True
    """
    half = check.positive("mu", mu) / 2.0
    length = 2.0 * float(log_ndtr(half) - log_ndtr(-half)) * ROUND_DOWN
    while range_mu(length) > mu:
        # The difference of logarithms cancels where mu is small.
        length *= 1.0 - 2.0**-20
    return length
