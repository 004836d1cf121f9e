"""Error bounds of private sparse regression: Theorems 6 to 9, 34, 35, 43 and 44, as printed and as their proofs give.

The risk is the mean loss (y - x'theta)^2/2 over n records, above that of the parameters compared with. Where a theorem
is printed with O(.), its expression stands here with the constant 1: it is a rate, and no bound.

- Theorems 6, 34 and 35 put p^s for the number of supports, and s log(1/gamma) for log(1/gamma) in passing; corrected
  is the exact number, C(p, s), once.
- Theorem 8's union bound is over p events of probability exp(-epsilon k/(4 s))/2 each: corrected has the half.
- Theorem 44 has Psi where Theorem 35, of whose proof it uses the same step, has n Psi: a mean loss that is Psi-strongly
  convex makes a sum that is n Psi-strongly convex. Both are bounds; corrected has n Psi.

References
----------
Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional regression.
COLT.
"""

from __future__ import annotations

import math

from dpfast import _arguments as check
from dpfast.papers.bound import Bound


def selection_risk(*, n: int, n_features: int, n_nonzero: int, epsilon: float, loss_bound: float) -> Bound:
    """Theorem 6: rate, and bound on the mean, of the risk on the support that the exponential mechanism picks.

    Parameters
    ----------
    n, n_features, n_nonzero : int
        Records, features and features of a support (n, p, s).
    epsilon : float
        Of the choice; its rate is epsilon/(2 loss_bound).
    loss_bound : float
        alpha: largest loss of a record on the constraint set.

    Returns
    -------
    Bound
        `printed` is the rate ``alpha s log(p)/(epsilon n)``; `corrected` the bound ``2 alpha (log C(p, s) + 1)/(epsilon
        n)``, the mean of Theorem 34's tail.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import selection_risk
    >>> bound = selection_risk(n=100_000, n_features=60, n_nonzero=3, epsilon=1.0, loss_bound=18.0)
    >>> round(bound.printed, 5), round(bound.corrected, 5)
    (0.00221, 0.00412)
    """
    n, p, s = _sizes(n, n_features, n_nonzero)
    scale = check.positive("loss_bound", loss_bound) / (check.positive("epsilon", epsilon) * n)
    return Bound(scale * s * math.log(p), 2.0 * scale * (math.log(math.comb(p, s)) + 1.0))


def selection_risk_tail(
    *, n: int, n_features: int, n_nonzero: int, epsilon: float, loss_bound: float, gamma: float
) -> Bound:
    """Theorem 34: bound on the same risk that holds with probability 1 - gamma.

    Parameters
    ----------
    n, n_features, n_nonzero, epsilon, loss_bound
        As for `selection_risk`.
    gamma : float
        In (0, 1).

    Returns
    -------
    Bound
        ``2 alpha s log(p/gamma)/(epsilon n)`` as printed, ``2 alpha log(C(p, s)/gamma)/(epsilon n)`` corrected.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import selection_risk_tail
    >>> bound = selection_risk_tail(
    ...     n=100_000, n_features=60, n_nonzero=3, epsilon=1.0, loss_bound=18.0, gamma=0.05
    ... )
    >>> round(bound.printed, 5), round(bound.corrected, 5)
    (0.00766, 0.00484)
    """
    n, p, s = _sizes(n, n_features, n_nonzero)
    scale = 2.0 * check.positive("loss_bound", loss_bound) / (check.positive("epsilon", epsilon) * n)
    gamma = _probability("gamma", gamma)
    return Bound(scale * s * math.log(p / gamma), scale * (math.log(math.comb(p, s)) - math.log(gamma)))


def exponential_risk_rate(
    *, n: int, n_features: int, n_nonzero: int, epsilon: float, delta: float, strong_convexity: float
) -> float:
    """Theorem 7: rate of the mean risk with the exponential mechanism, for the paper's bounds and Delta = s/epsilon.

    Parameters
    ----------
    n, n_features, n_nonzero : int
        n, p, s.
    epsilon, delta : float
        Of the whole.
    strong_convexity : float
        Psi: that of the mean loss on any support.

    Returns
    -------
    float
        ``(s log(1/delta)/(n epsilon Psi) + s^3 log p)/(n epsilon)``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import exponential_risk_rate
    >>> rate = exponential_risk_rate(
    ...     n=10_000, n_features=60, n_nonzero=3, epsilon=1.0, delta=1e-6, strong_convexity=0.1
    ... )
    >>> round(rate, 4)
    0.0111
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
    """Theorem 35: bound on the risk with the exponential mechanism that holds with probability 1 - gamma.

    Parameters
    ----------
    n, n_features, n_nonzero, epsilon, delta, strong_convexity
        As for `exponential_risk_rate`.
    gradient, loss_bound : float
        zeta and alpha: largest gradient's L2 norm and loss of a record on the constraint set; 2 s^(3/2) and 2 s^2 at
        the paper's normalisation, which has 4 s^2 for the latter.
    regularisation : float
        Delta, of Algorithm 1.
    norm : float
        L2 norm of the minimiser without noise on the support chosen, at most.
    gamma : float
        In (0, 1).

    Returns
    -------
    Bound
        As printed; corrected has Theorem 34's correction in it.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import exponential_risk_tail
    >>> bound = exponential_risk_tail(
    ...     n=100_000, n_features=60, n_nonzero=3, epsilon=1.0, delta=1e-6, strong_convexity=0.1, gradient=10.4,
    ...     loss_bound=18.0, regularisation=6.0, norm=1.0, gamma=0.1,
    ... )
    >>> round(bound.printed, 4), round(bound.corrected, 4)
    (0.0172, 0.0115)
    """
    n, p, s = _sizes(n, n_features, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    regularisation, gamma = check.positive("regularisation", regularisation), _probability("gamma", gamma)
    noise = 16.0 * s * check.positive("gradient", gradient) ** 2 * (8.0 * math.log(2.0 / delta) + 2.0 * epsilon)
    fit = noise * math.log(2.0 / gamma) / (n * epsilon**2 * (regularisation + n * psi))
    fit += 0.5 * regularisation / n * check.nonnegative("norm", norm) ** 2
    choice = selection_risk_tail(
        n=n, n_features=p, n_nonzero=s, epsilon=0.5 * epsilon, loss_bound=loss_bound, gamma=0.5 * gamma
    )
    return Bound(fit + choice.printed, fit + choice.corrected)


def recovery_failure(*, n_features: int, n_nonzero: int, epsilon: float, n_blocks: int) -> Bound:
    """Theorem 8: bound on the probability that Laplace noise on votes misses the support that all blocks agree on.

    Parameters
    ----------
    n_features, n_nonzero : int
        p, s.
    epsilon : float
        Of the choice.
    n_blocks : int
        k.

    Returns
    -------
    Bound
        ``p exp(-epsilon k/(4 s))`` as printed, half of it corrected; 1 where that is more.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import recovery_failure
    >>> bound = recovery_failure(n_features=60, n_nonzero=3, epsilon=1.0, n_blocks=100)
    >>> round(bound.printed, 4), round(bound.corrected, 4)
    (0.0144, 0.0072)
    """
    _, p, s = _sizes(1, n_features, n_nonzero)
    k, epsilon = check.positive_integer("n_blocks", n_blocks), check.positive("epsilon", epsilon)
    one = p * math.exp(-0.25 * epsilon * k / s)
    return Bound(min(1.0, one), min(1.0, 0.5 * one))


def recovery_probability(*, n_features: int, n_nonzero: int, epsilon: float, n_blocks: int) -> float:
    """Theorem 8: probability, at least, that votes with Laplace noise give the support that all blocks agree on.

    Parameters
    ----------
    n_features, n_nonzero, epsilon, n_blocks
        As for `recovery_failure`.

    Returns
    -------
    float
        ``1 - p exp(-epsilon k/(4 s))``, as printed, or 0.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import recovery_probability
    >>> round(recovery_probability(n_features=60, n_nonzero=3, epsilon=1.0, n_blocks=100), 4)
    0.9856
    """
    return (
        1.0 - recovery_failure(n_features=n_features, n_nonzero=n_nonzero, epsilon=epsilon, n_blocks=n_blocks).printed
    )


def rows_for_recovery(
    *, n_features: int, n_nonzero: int, noise_std: float, strong_convexity: float, smallest: float
) -> float:
    """Lemma 41, the condition of Theorems 9, 43 and 44: rows with which the lasso of every block finds the support.

    Parameters
    ----------
    n_features, n_nonzero : int
        p, s.
    noise_std : float
        sigma, of the errors of outcomes.
    strong_convexity : float
        Psi, restricted, of the mean squared prediction in every block.
    smallest : float
        Phi: smallest size of a coefficient that is not 0.

    Returns
    -------
    float
        ``(16 sigma/(Psi Phi))^4 s^2 log(p)^2``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import rows_for_recovery
    >>> round(rows_for_recovery(n_features=60, n_nonzero=3, noise_std=0.1, strong_convexity=0.5, smallest=0.5))
    253123
    """
    _, p, s = _sizes(1, n_features, n_nonzero)
    ratio = 16.0 * check.positive("noise_std", noise_std)
    ratio /= check.positive("strong_convexity", strong_convexity) * check.positive("smallest", smallest)
    return ratio**4 * s**2 * math.log(p) ** 2


def voted_risk_rate(*, n: int, n_nonzero: int, epsilon: float, delta: float, strong_convexity: float) -> float:
    """Theorems 9 and 43: rate of the mean risk with sample and aggregate, on the support's recovery.

    Parameters
    ----------
    n, n_nonzero : int
        n, s.
    epsilon, delta : float
        Of the whole.
    strong_convexity : float
        Psi.

    Returns
    -------
    float
        ``s^2 (s^2 log(1/delta)/(n epsilon Psi) + 1)/(n epsilon)``: it does not depend on the number of features. The
        support is recovered with the probability of `recovery_probability` at epsilon/2 and sqrt(n) blocks, for n of at
        least `rows_for_recovery`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import voted_risk_rate
    >>> round(voted_risk_rate(n=10_000, n_nonzero=3, epsilon=1.0, delta=1e-6, strong_convexity=0.1), 5)
    0.00101
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
    """Theorem 44: bound on the risk with sample and aggregate that holds with probability 1 - gamma, on recovery.

    Parameters
    ----------
    n, n_nonzero, epsilon, delta, strong_convexity
        As for `voted_risk_rate`.
    regularisation, norm, gamma : float
        As for `exponential_risk_tail`.

    Returns
    -------
    Bound
        ``64 s^4 (8 log(2/delta) + 2 epsilon) log(1/gamma)/(n epsilon^2 (Delta + Psi)) + Delta norm^2/(2 n)`` as
        printed; corrected has n Psi.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.sparse_regression import voted_risk_tail
    >>> bound = voted_risk_tail(
    ...     n=100_000, n_nonzero=3, epsilon=1.0, delta=1e-6, strong_convexity=0.1, regularisation=6.0, norm=1.0,
    ...     gamma=0.1,
    ... )
    >>> round(bound.printed, 2), round(bound.corrected, 5)
    (2.31, 0.00144)
    """
    n, _, s = _sizes(n, n_nonzero, n_nonzero)
    epsilon, delta, psi = _budget(epsilon, delta, strong_convexity)
    regularisation, gamma = check.positive("regularisation", regularisation), _probability("gamma", gamma)
    noise = 64.0 * s**4 * (8.0 * math.log(2.0 / delta) + 2.0 * epsilon) * math.log(1.0 / gamma) / (n * epsilon**2)
    pull = 0.5 * regularisation / n * check.nonnegative("norm", norm) ** 2
    return Bound(noise / (regularisation + psi) + pull, noise / (regularisation + n * psi) + pull)


def _sizes(n: object, n_features: object, n_nonzero: object) -> tuple[int, int, int]:
    n, p, s = (
        check.positive_integer(name, value)
        for name, value in (("n", n), ("n_features", n_features), ("n_nonzero", n_nonzero))
    )
    if s > p:
        raise ValueError(f"n_nonzero must be at most n_features, {p}, got {s}")
    return n, p, s


def _budget(epsilon: float, delta: float, strong_convexity: float) -> tuple[float, float, float]:
    return (
        check.positive("epsilon", epsilon),
        check.delta_value(delta),
        check.positive("strong_convexity", strong_convexity),
    )


def _probability(name: str, value: float) -> float:
    number = check.real(name, value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} must lie in (0, 1), got {number!r}")
    return number
