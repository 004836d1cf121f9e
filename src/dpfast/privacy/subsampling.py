"""Privacy amplified by a secret random sample."""

from __future__ import annotations

import math
from fractions import Fraction

from dpfast import _arguments as check
from dpfast.privacy import rounding


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
        return epsilon, rounding.down(Fraction(delta) / fraction)
    return inner_epsilon(epsilon, rounding.up(fraction)), rounding.down(Fraction(delta) / fraction)


def inner_epsilon(epsilon: float, gamma: float) -> float:
    """Return the finite epsilon that may be spent on a sample for `epsilon` on the whole, rounded down.

    log(1 + (exp(epsilon) - 1)/gamma); `gamma` is the fraction sampled, below 1 and not rounded down.
    """
    if epsilon < 1.0:
        return math.log1p(math.expm1(epsilon) / gamma) * rounding.ROUND_DOWN
    # Taking exp(epsilon)/gamma out of the logarithm avoids overflow.
    return (epsilon - math.log(gamma) + math.log1p(-(1.0 - gamma) * math.exp(-epsilon))) * rounding.ROUND_DOWN


def sample_sizes(n_sampled: object, n_total: object) -> tuple[int, int]:
    """Return the sizes of a sample and of the whole, or raise if there can be no such sample."""
    sampled = check.positive_integer("n_sampled", n_sampled)
    total = check.positive_integer("n_total", n_total)
    if sampled > total:
        raise ValueError(f"n_sampled must be at most n_total, {total}, got {sampled}")
    return sampled, total
