"""Private sparse regression (Kifer, Smith, Thakurta, COLT 2012): printed rates and votes, and error bounds.

The bounds are Theorems 6 to 9, 34, 35, 43 and 44, as printed and as their proofs give. The risk is the mean loss
(y - x'theta)^2/2 over n records, above that of the parameters compared with. Where a theorem is printed with O(.), its
expression stands here with the constant 1: it is a rate, and no bound.

- Theorems 6, 34 and 35 put p^s for the number of supports, and s log(1/gamma) for log(1/gamma) in passing; corrected
  is the exact number, C(p, s), once.
- Theorem 8's union bound is over p events of probability exp(-epsilon k/(4 s))/2 each: corrected has the half.
- Theorem 44 has Psi and Theorem 35 has n Psi, although their proofs share this step: if the mean loss is Psi-strongly
  convex, the sum is n Psi-strongly convex. Both are bounds; corrected has n Psi.

Arguments by their letters: `n` records, `n_features` p, `n_nonzero` s, `n_blocks` k; `epsilon` and `delta` of the
whole, or of the choice alone in Theorems 6, 8 and 34; `loss_bound` alpha and `gradient` zeta, the largest loss and
gradient of a record on the constraint set (at the paper's normalisation 2 s^2, for which it has 4 s^2, and 2 s^(3/2));
`strong_convexity` Psi, of the mean loss on any support; `regularisation` Delta, of Algorithm 1; `norm`, at most, of the
minimiser without noise on the support chosen; `gamma` in (0, 1), how often a bound may fail.
"""

from __future__ import annotations

import math

from dpfast import _arguments as check
from dpfast.papers import Bound
from dpfast.privacy import Privacy, VoteNoise, exponential_mechanism_coefficient, laplace_scale


def printed_score_rate(epsilon: float, n_nonzero: int) -> float:
    """Rate of Algorithm 4's exponential mechanism, epsilon/(2 alpha) with alpha = 4 s^2 (Appendix F.3)."""
    return exponential_mechanism_coefficient(epsilon, 4.0 * check.positive_integer("n_nonzero", n_nonzero) ** 2)


def printed_vote_noise(privacy: Privacy, size: int) -> VoteNoise:
    """Noise of Algorithm 5: Laplace, of scale 2 s/epsilon in votes, whatever delta would allow."""
    scale = laplace_scale(privacy.target[0], 2.0 * check.positive_integer("size", size))
    return VoteNoise(Privacy(privacy.epsilon, 0.0, privacy.adjacency), "Laplace", scale)


def selection_risk(*, n: int, n_features: int, n_nonzero: int, epsilon: float, loss_bound: float) -> Bound:
    """Theorem 6: rate, and bound on the mean, of the risk on the support that the exponential mechanism picks.

    Printed is the rate ``alpha s log(p)/(epsilon n)``; corrected the bound ``2 alpha (log C(p, s) + 1)/(epsilon n)``,
    the mean of Theorem 34's tail.
    """
    n, p, s = _sizes(n, n_features, n_nonzero)
    scale = check.positive("loss_bound", loss_bound) / (check.positive("epsilon", epsilon) * n)
    return Bound(scale * s * math.log(p), 2.0 * scale * (math.log(math.comb(p, s)) + 1.0))


def selection_risk_tail(
    *, n: int, n_features: int, n_nonzero: int, epsilon: float, loss_bound: float, gamma: float
) -> Bound:
    """Theorem 34: ``2 alpha s log(p/gamma)/(epsilon n)``, corrected ``2 alpha log(C(p, s)/gamma)/(epsilon n)``."""
    n, p, s = _sizes(n, n_features, n_nonzero)
    scale = 2.0 * check.positive("loss_bound", loss_bound) / (check.positive("epsilon", epsilon) * n)
    gamma = check.share("gamma", gamma)
    return Bound(scale * s * math.log(p / gamma), scale * (math.log(math.comb(p, s)) - math.log(gamma)))


def exponential_risk_rate(
    *, n: int, n_features: int, n_nonzero: int, epsilon: float, delta: float, strong_convexity: float
) -> float:
    """Theorem 7: rate of the mean risk with the exponential mechanism, for the paper's bounds and Delta = s/epsilon.

    ``(s log(1/delta)/(n epsilon Psi) + s^3 log p)/(n epsilon)``.
    """
    n, p, s = _sizes(n, n_features, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    return (s * math.log(1.0 / delta) / (n * epsilon * psi) + s**3 * math.log(p)) / (n * epsilon)


def exponential_risk_tail(
    *,
    n: int,
    n_features: int,
    n_nonzero: int,
    epsilon: float,
    delta: float,
    strong_convexity: float,
    gradient: float,
    loss_bound: float,
    regularisation: float,
    norm: float,
    gamma: float,
) -> Bound:
    """Theorem 35: bound on the risk with the exponential mechanism; corrected has Theorem 34's correction in it."""
    n, p, s = _sizes(n, n_features, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    regularisation, gamma = check.positive("regularisation", regularisation), check.share("gamma", gamma)
    noise = 16.0 * s * check.positive("gradient", gradient) ** 2 * (8.0 * math.log(2.0 / delta) + 2.0 * epsilon)
    fit = noise * math.log(2.0 / gamma) / (n * epsilon**2 * (regularisation + n * psi))
    fit += 0.5 * regularisation / n * check.nonnegative("norm", norm) ** 2
    choice = selection_risk_tail(
        n=n, n_features=p, n_nonzero=s, epsilon=0.5 * epsilon, loss_bound=loss_bound, gamma=0.5 * gamma
    )
    return Bound(fit + choice.printed, fit + choice.corrected)


def recovery_failure(*, n_features: int, n_nonzero: int, epsilon: float, n_blocks: int) -> Bound:
    """Theorem 8: bound on the probability that Laplace noise on votes misses the support chosen by all blocks.

    ``p exp(-epsilon k/(4 s))`` as printed, half of it corrected; at most 1.
    """
    _, p, s = _sizes(1, n_features, n_nonzero)
    k, epsilon = check.positive_integer("n_blocks", n_blocks), check.positive("epsilon", epsilon)
    one = p * math.exp(-0.25 * epsilon * k / s)
    return Bound(min(1.0, one), min(1.0, 0.5 * one))


def recovery_probability(*, n_features: int, n_nonzero: int, epsilon: float, n_blocks: int) -> float:
    """Theorem 8 as printed: probability, at least, of the support that all blocks agree on.

    >>> from dpfast.papers.sparse_regression import recovery_probability
    >>> round(recovery_probability(n_features=60, n_nonzero=3, epsilon=1.0, n_blocks=100), 4)
    0.9856
    """
    failure = recovery_failure(n_features=n_features, n_nonzero=n_nonzero, epsilon=epsilon, n_blocks=n_blocks)
    return 1.0 - failure.printed


def rows_for_recovery(
    *, n_features: int, n_nonzero: int, noise_std: float, strong_convexity: float, smallest: float
) -> float:
    """Lemma 41, the condition of Theorems 9, 43 and 44: rows with which the lasso of every block finds the support.

    ``(16 sigma/(Psi Phi))^4 s^2 log(p)^2``. Sigma is that of the errors of outcomes, Psi the restricted strong
    convexity of the mean squared prediction in every block, Phi the `smallest` size of a nonzero coefficient.
    """
    _, p, s = _sizes(1, n_features, n_nonzero)
    ratio = 16.0 * check.positive("noise_std", noise_std)
    ratio /= check.positive("strong_convexity", strong_convexity) * check.positive("smallest", smallest)
    return ratio**4 * s**2 * math.log(p) ** 2


def voted_risk_rate(*, n: int, n_nonzero: int, epsilon: float, delta: float, strong_convexity: float) -> float:
    """Theorems 9 and 43: rate of the mean risk with sample and aggregate, on the support's recovery.

    ``s^2 (s^2 log(1/delta)/(n epsilon Psi) + 1)/(n epsilon)``: it does not depend on the number of features. The
    support is recovered with the probability of `recovery_probability` at epsilon/2 and sqrt(n) blocks, for n of at
    least `rows_for_recovery`.
    """
    n, _, s = _sizes(n, n_nonzero, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    return s**2 / (n * epsilon) * (s**2 * math.log(1.0 / delta) / (n * epsilon * psi) + 1.0)


def voted_risk_tail(
    *,
    n: int,
    n_nonzero: int,
    epsilon: float,
    delta: float,
    strong_convexity: float,
    regularisation: float,
    norm: float,
    gamma: float,
) -> Bound:
    """Theorem 44: bound on the risk with sample and aggregate, on recovery.

    ``64 s^4 (8 log(2/delta) + 2 epsilon) log(1/gamma)/(n epsilon^2 (Delta + Psi)) + Delta norm^2/(2 n)`` as printed;
    corrected has n Psi.
    """
    n, _, s = _sizes(n, n_nonzero, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    regularisation, gamma = check.positive("regularisation", regularisation), check.share("gamma", gamma)
    noise = 64.0 * s**4 * (8.0 * math.log(2.0 / delta) + 2.0 * epsilon) * math.log(1.0 / gamma) / (n * epsilon**2)
    pull = 0.5 * regularisation / n * check.nonnegative("norm", norm) ** 2
    return Bound(noise / (regularisation + psi) + pull, noise / (regularisation + n * psi) + pull)


def _sizes(n: object, n_features: object, n_nonzero: object) -> tuple[int, int, int]:
    n, p = check.positive_integer("n", n), check.positive_integer("n_features", n_features)
    s = check.positive_integer("n_nonzero", n_nonzero)
    if s > p:
        raise ValueError(f"n_nonzero must be at most n_features, {p}, got {s}")
    return n, p, s


def _budget(epsilon: float, delta: float, strong_convexity: float) -> tuple[float, float, float]:
    psi = check.positive("strong_convexity", strong_convexity)
    return check.positive("epsilon", epsilon), check.delta_value(delta), psi
