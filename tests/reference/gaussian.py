"""The delta and the epsilon of Gaussian noise in 60 digits, from the definition alone."""

import mpmath as mp

DIGITS = 60


def exact_delta(scale, epsilon, sensitivity=1.0):
    """Balle and Wang (2018), Theorem 8; digits lost to cancellation are carried on top of the 60."""
    with mp.workdps(DIGITS + 60):
        scale, epsilon, sensitivity = mp.mpf(scale), mp.mpf(epsilon), mp.mpf(sensitivity)
        mu = sensitivity / scale
        if epsilon == 0:
            return mp.erf(mu / (2 * mp.sqrt(2)))
        left = upper_tail(epsilon / mu - mu / 2)
        delta = left - mp.exp(epsilon) * upper_tail(epsilon / mu + mu / 2)
        assert delta > left * mp.mpf(10) ** -60, "the reference itself has lost its digits"
        return +delta


def upper_tail(x):
    """1 - Phi(x)."""
    return mp.erfc(x / mp.sqrt(2)) / 2
