"""Error bounds of private synthetic control, as printed and corrected.

The bounds are on RMSE = E||y_hat - m_post||/sqrt(n_post) of the printed Algorithms 2 and 3, for donors X = M + Z and a
target y = M'f + z with entries in [-1, 1], ||f||_1 <= 1, and independent noise Z, z of variance sigma^2. What the
printed ones are off by, and the corrected ones put right:

- The vector v of density exp(-||v||/a) in n dimensions has E||v|| = n a, not a (equation (10)); for W in
  n (T - T0) dimensions, E||W||_F = n (T - T0) b. Then E||W||_F/sqrt(T - T0) = 2 n (T - T0)/epsilon_2, where even with b
  for the norm it would have been 2/epsilon_2, not sqrt(2)/epsilon_2.
- For Gaussian b in the objective, E||b|| is about beta sqrt(n), not the root of n beta.
- The minimiser of the objective has (XX' + lambda/2 I)^-1, not lambda/(2 T0).
- Lemma C.7 bounds the inverse on all of R^n where X has rank k < n. What it proves holds on the span E of the columns
  of X, and no prediction depends on weights outside E: f stands for its projection on E.

References
----------
Rho, S., Cummings, R., Misra, V. (2023). Differentially Private Synthetic Control. AISTATS.
"""

from __future__ import annotations

import math

from dpfast import _arguments as check
from dpfast.papers.bound import Bound
from dpfast.papers.donors_printed import PrintedObjectiveNoise, printed_objective_noise, printed_output_noise
from dpfast.privacy import donor_curvature, l2_laplace_expected_norm


def recommended_ridge(n_pre: int) -> float:
    """Return the paper's guidance for its lambda: the number of pre-periods (Section 4.2).

    Parameters
    ----------
    n_pre : int
        T0, at least 1.

    Returns
    -------
    float

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import recommended_ridge
    >>> recommended_ridge(10)
    10.0
    """
    return float(check.positive_integer("n_pre", n_pre))


def curvature(n_donors: int, n_pre: int) -> Bound:
    """Bound on the eigenvalues of 2 (X'X'^T - XX^T) for neighbours X, X': the paper's c (Algorithm 3, Lemma D.3).

    Parameters
    ----------
    n_donors, n_pre : int
        n and T0, at least 1.

    Returns
    -------
    Bound
        `printed` is the guidance of the arXiv version's Appendix B, T0 (1 + sqrt(16 n - 15)), which is sound;
        `corrected` is the supremum itself, 4 T0 sqrt(n - 1), or 2 T0 for a single donor.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import curvature
    >>> bound = curvature(10, 10)
    >>> round(bound.printed, 2), round(bound.corrected, 2)
    (130.42, 120.0)
    """
    n, periods = check.positive_integer("n_donors", n_donors), check.positive_integer("n_pre", n_pre)
    return Bound(periods * (1.0 + math.sqrt(16.0 * n - 15.0)), donor_curvature(n, math.sqrt(periods)))


def weights_error(*, n_donors: int, n_pre: int, ridge: float, noise_std: float, reach: float, xi: float) -> Bound:
    """Lemma C.6: bound on E||f_reg - f||, the error of the weights without privacy.

    It holds where the smallest nonzero eigenvalue of XX' is at least (1 - xi) T0, which the lemma's Assumptions C.2 to
    C.4 give with probability 1 - n^(-t^2) if T0 >= C (t/xi)^2 k log n.

    Parameters
    ----------
    n_donors, n_pre : int
        n and T0.
    ridge : float
        lambda, positive.
    noise_std : float
        sigma, at least 0.
    reach : float
        s: entries of Z and z lie in [-s, s].
    xi : float
        In (0, 1).

    Returns
    -------
    Bound
        ``((1 + s) sqrt(2 n) sigma T0 + r)/((1 - xi) T0 + r)``, where r is lambda/(2 T0) as printed and lambda/2
        corrected.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import weights_error
    >>> weights_error(n_donors=10, n_pre=10, ridge=10.0, noise_std=0.0, reach=0.0, xi=0.5)
    Bound(printed=0.09090909090909091, corrected=0.5)
    """
    n, periods = check.positive_integer("n_donors", n_donors), check.positive_integer("n_pre", n_pre)
    ridge = check.positive("ridge", ridge)
    xi = check.real("xi", xi)
    if not 0.0 < xi < 1.0:
        raise ValueError(f"xi must lie in (0, 1), got {xi!r}")
    noise = math.sqrt(2.0 * n) * check.nonnegative("noise_std", noise_std) * (1.0 + check.nonnegative("reach", reach))
    rests = ridge / (2.0 * periods), ridge / 2.0
    return Bound(*((noise * periods + rest) / ((1.0 - xi) * periods + rest) for rest in rests))


def objective_distance(
    epsilon_weights: float, delta: float, *, n_donors: int, n_pre: int, ridge: float, curvature: float
) -> Bound:
    """Lemma E.1: bound on E||f_obj - f_reg||, what objective perturbation does to the weights.

    The corrected bound is E||b||/(lambda + Delta) + Delta/(lambda + Delta) sqrt(T0/(2 lambda)). Its first term is the
    change of gradient over the strong convexity (the printed 2 is not needed); the second holds because f_reg less the
    minimiser with penalty lambda + Delta is (Delta/2) (XX' + (lambda + Delta)/2 I)^-1 f_reg, and
    ||f_reg|| <= ||y||/sqrt(2 lambda); the printed one is (1/lambda + 1/(lambda + Delta)) 2 T0^2 sqrt(n).

    Parameters
    ----------
    epsilon_weights : float
        The paper's epsilon_1.
    delta : float
        Gaussian noise above 0, L2-Laplace noise at 0.
    n_donors, n_pre : int
        n and T0.
    ridge : float
        lambda, positive.
    curvature : float
        c.

    Returns
    -------
    Bound

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import curvature, objective_distance
    >>> c = curvature(10, 10).printed
    >>> bound = objective_distance(50.0, 0.0, n_donors=10, n_pre=10, ridge=10.0, curvature=c)
    >>> round(bound.printed, 3), round(bound.corrected, 3)
    (0.759, 3.795)
    """
    noise = printed_objective_noise(
        epsilon_weights,
        1.0,
        delta,
        n_donors=n_donors,
        n_pre=n_pre,
        n_post=1,
        ridge=ridge,
        curvature=curvature,
    )
    norm = _objective_noise_norm(noise, delta, n_donors, n_pre)
    added = noise.strong_convexity - ridge
    printed = 2.0 * norm.printed / noise.strong_convexity
    if added > 0.0:
        printed += (1.0 / ridge + 1.0 / noise.strong_convexity) * 2.0 * n_pre**2 * math.sqrt(n_donors)
    shrunk = added / noise.strong_convexity * math.sqrt(n_pre / (2.0 * ridge))
    return Bound(printed, norm.corrected / noise.strong_convexity + shrunk)


def output_rmse(
    epsilon_weights: float,
    epsilon_donors: float,
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    signal_norm: float,
    weights_error: float,
    largest_weight: float,
    noise_std: float,
) -> Bound:
    """Theorem 3.2: bound on the RMSE of output perturbation (Algorithm 2).

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    n_donors, n_pre, n_post : int
        n, T0 and T - T0.
    ridge : float
        lambda, positive.
    signal_norm : float
        Spectral norm of M_post; at most sqrt(n (T - T0)).
    weights_error : float
        E||f_reg - f||.
    largest_weight : float
        psi: bound on the entries of f_reg.
    noise_std : float
        sigma.

    Returns
    -------
    Bound
        ``||M_post||/sqrt(T - T0) (E||f_reg - f|| + V) + (sqrt(n) sigma + U) (sqrt(n) psi + V)``, where V and U are
        a and sqrt(2)/epsilon_2 as printed, n a and 2 n (T - T0)/epsilon_2 corrected.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import output_rmse
    >>> bound = output_rmse(
    ...     50.0, 50.0, n_donors=10, n_pre=10, n_post=3, ridge=10.0,
    ...     signal_norm=5.0, weights_error=0.3, largest_weight=0.2, noise_std=0.005,
    ... )
    >>> round(bound.printed, 2), round(bound.corrected, 2)
    (1.89, 15.56)
    """
    sizes = {"n_donors": n_donors, "n_pre": n_pre, "n_post": n_post}
    scale = printed_output_noise(epsilon_weights, epsilon_donors, ridge=ridge, **sizes).weight_scale
    distance = Bound(scale, l2_laplace_expected_norm(scale, n_donors))
    return _rmse(distance, epsilon_donors, n_donors, n_post, signal_norm, weights_error, largest_weight, noise_std)


def objective_rmse(
    epsilon_weights: float,
    epsilon_donors: float,
    delta: float,
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    curvature: float,
    signal_norm: float,
    weights_error: float,
    largest_weight: float,
    noise_std: float,
) -> Bound:
    """Theorem 3.5: bound on the RMSE of objective perturbation as printed (Algorithm 3, which is not private).

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    delta : float
        Gaussian noise above 0, L2-Laplace noise at 0.
    n_donors, n_pre, n_post : int
        n, T0 and T - T0.
    ridge : float
        lambda, positive.
    curvature : float
        c.
    signal_norm : float
        Spectral norm of M_post; at most sqrt(n (T - T0)).
    weights_error : float
        E||f_reg - f||.
    largest_weight : float
        psi: bound on the entries of f_reg.
    noise_std : float
        sigma.

    Returns
    -------
    Bound
        That of `output_rmse` with `objective_distance` for V.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import curvature, objective_rmse
    >>> bound = objective_rmse(
    ...     50.0, 50.0, 0.0, n_donors=10, n_pre=10, n_post=3, ridge=10.0, curvature=curvature(10, 10).printed,
    ...     signal_norm=5.0, weights_error=0.3, largest_weight=0.2, noise_std=0.005,
    ... )
    >>> round(bound.printed, 2), round(bound.corrected, 2)
    (3.12, 17.2)
    """
    distance = objective_distance(
        epsilon_weights, delta, n_donors=n_donors, n_pre=n_pre, ridge=ridge, curvature=curvature
    )
    return _rmse(distance, epsilon_donors, n_donors, n_post, signal_norm, weights_error, largest_weight, noise_std)


def output_rmse_closed_form(
    epsilon_weights: float,
    epsilon_donors: float,
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    largest_weight: float,
    noise_std: float,
    reach: float,
    xi: float,
) -> Bound:
    """Corollary C.5: `output_rmse` with ||M_post|| <= sqrt(n (T - T0)) and `weights_error`, under its condition.

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    n_donors, n_pre, n_post : int
        n, T0 and T - T0.
    ridge : float
        lambda, positive.
    largest_weight : float
        psi: bound on the entries of f_reg.
    noise_std, reach, xi : float
        As for `weights_error`.

    Returns
    -------
    Bound

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import output_rmse_closed_form
    >>> bound = output_rmse_closed_form(
    ...     50.0, 50.0, n_donors=10, n_pre=10, n_post=3, ridge=10.0,
    ...     largest_weight=0.2, noise_std=0.005, reach=0.02, xi=0.5,
    ... )
    >>> round(bound.printed, 2), round(bound.corrected, 2)
    (1.53, 17.28)
    """
    errors = weights_error(n_donors=n_donors, n_pre=n_pre, ridge=ridge, noise_std=noise_std, reach=reach, xi=xi)
    printed, corrected = (
        output_rmse(
            epsilon_weights,
            epsilon_donors,
            n_donors=n_donors,
            n_pre=n_pre,
            n_post=n_post,
            ridge=ridge,
            signal_norm=_largest_signal_norm(n_donors, n_post),
            weights_error=error,
            largest_weight=largest_weight,
            noise_std=noise_std,
        )
        for error in errors
    )
    return Bound(printed.printed, corrected.corrected)


def objective_rmse_closed_form(
    epsilon_weights: float,
    epsilon_donors: float,
    delta: float,
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    curvature: float,
    largest_weight: float,
    noise_std: float,
    reach: float,
    xi: float,
) -> Bound:
    """Corollary E.2: `objective_rmse` with ||M_post|| <= sqrt(n (T - T0)) and `weights_error`, under its condition.

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    delta : float
        Gaussian noise above 0, L2-Laplace noise at 0.
    n_donors, n_pre, n_post : int
        n, T0 and T - T0.
    ridge : float
        lambda, positive.
    curvature : float
        c.
    largest_weight : float
        psi: bound on the entries of f_reg.
    noise_std, reach, xi : float
        As for `weights_error`.

    Returns
    -------
    Bound

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.papers.synthetic_control import curvature, objective_rmse_closed_form
    >>> bound = objective_rmse_closed_form(
    ...     50.0, 50.0, 0.0, n_donors=10, n_pre=10, n_post=3, ridge=10.0, curvature=curvature(10, 10).printed,
    ...     largest_weight=0.2, noise_std=0.005, reach=0.02, xi=0.5,
    ... )
    >>> round(bound.printed, 2), round(bound.corrected, 2)
    (2.88, 19.04)
    """
    errors = weights_error(n_donors=n_donors, n_pre=n_pre, ridge=ridge, noise_std=noise_std, reach=reach, xi=xi)
    printed, corrected = (
        objective_rmse(
            epsilon_weights,
            epsilon_donors,
            delta,
            n_donors=n_donors,
            n_pre=n_pre,
            n_post=n_post,
            ridge=ridge,
            curvature=curvature,
            signal_norm=_largest_signal_norm(n_donors, n_post),
            weights_error=error,
            largest_weight=largest_weight,
            noise_std=noise_std,
        )
        for error in errors
    )
    return Bound(printed.printed, corrected.corrected)


def _objective_noise_norm(noise: PrintedObjectiveNoise, delta: float, n: int, n_pre: int) -> Bound:
    """E||b||: Theorem 3.5's, and the mean of the chi law with n degrees of freedom, or of a Gamma radius."""
    if noise.mechanism == "L2-Laplace":
        return Bound(noise.scale, l2_laplace_expected_norm(noise.scale, n))
    # Theorem 3.5 has + epsilon_0 where Algorithm 3 has + 2 epsilon_0, and the root over all of it.
    tail = math.sqrt(2.0 * math.log(2.0 / delta) + noise.noise_epsilon)
    printed = math.sqrt(n * n_pre * 4.0 * math.sqrt(8.0 + n) * tail / noise.noise_epsilon)
    chi_mean = math.sqrt(2.0) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
    return Bound(printed, noise.scale * chi_mean)


def _rmse(
    distance: Bound,
    epsilon_donors: float,
    n: int,
    n_post: int,
    signal_norm: float,
    error: float,
    largest_weight: float,
    noise_std: float,
) -> Bound:
    """Bound the RMSE as Theorems 3.2 and 3.5 do, for a distance E||f_private - f_reg||."""
    signal = check.nonnegative("signal_norm", signal_norm) / math.sqrt(n_post)
    error = check.nonnegative("weights_error", error)
    weights = math.sqrt(n) * check.nonnegative("largest_weight", largest_weight)
    noise = math.sqrt(n) * check.nonnegative("noise_std", noise_std)
    donors = Bound(math.sqrt(2.0) / epsilon_donors, 2.0 * n * n_post / epsilon_donors)
    terms = zip(distance, donors, strict=True)
    return Bound(*(signal * (error + moved) + (noise + added) * (weights + moved) for moved, added in terms))


def _largest_signal_norm(n: int, n_post: int) -> float:
    # Entries of M_post are in [-1, 1], so that its Frobenius norm is at most this.
    return math.sqrt(check.positive_integer("n_donors", n) * check.positive_integer("n_post", n_post))
