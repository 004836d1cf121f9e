"""Differentially private synthetic control (Rho, Cummings, Misra, AISTATS 2023): printed noise, and error bounds.

Algorithm 2 (output perturbation) is private: its 4 T0 sqrt(8 + n)/lambda is far above what one donor can move the
weights (`dpfast.privacy.weight_sensitivity`) for every lambda, 12 to 29 times at n = 10 to 100. Algorithm 3 (objective
perturbation) is **not**: it minimises over all of R^n, where the gradient of a quadratic loss has no bound, and no
larger noise repairs it.

The bounds are on RMSE = E||y_hat - m_post||/sqrt(n_post) of both, for donors X = M + Z and a target y = M'f + z with
entries in [-1, 1], ||f||_1 <= 1, and independent noise Z, z of variance sigma^2. Errors of the printed bounds, and
their corrections:

- The vector v of density exp(-||v||/a) in n dimensions has E||v|| = n a, not a (equation (10)); for W in
  n (T - T0) dimensions, E||W||_F = n (T - T0) b. Then E||W||_F/sqrt(T - T0) = 2 n (T - T0)/epsilon_2, where even with b
  for the norm it would have been 2/epsilon_2, not sqrt(2)/epsilon_2.
- For Gaussian b in the objective, E||b|| is about beta sqrt(n), not the root of n beta.
- The minimiser of the objective has (XX' + lambda/2 I)^-1, not lambda/(2 T0).
- Lemma C.7 bounds the inverse on all of R^n where X has rank k < n. What it proves holds on the span E of the columns
  of X, and no prediction depends on weights outside E: f stands for its projection on E.

Arguments by their letters: `n_donors` n, `n_pre` T0, `n_post` T - T0, `ridge` lambda, `epsilon_weights` and
`epsilon_donors` epsilon_1 and epsilon_2, `delta` (Gaussian noise above 0, L2-Laplace noise at 0), `curvature` c,
`signal_norm` the spectral norm of M_post (at most sqrt(n (T - T0))), `weights_error` E||f_reg - f||, `largest_weight`
psi (a bound on the entries of f_reg), `noise_std` sigma, `reach` s (entries of Z and z lie in [-s, s]), `xi` in (0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpfast import _arguments as check
from dpfast.papers import Bound
from dpfast.privacy import DonorNoise, DonorObjectiveNoise, ObjectiveNoise, Privacy, donor_curvature
from dpfast.privacy.guarantee import l2_laplace_expected_norm, law_for


def printed_output_noise(
    epsilon_weights: float, epsilon_donors: float, *, n_donors: int, n_pre: int, n_post: int, ridge: float
) -> DonorNoise:
    """Noise of Algorithm 2 (DPSC_out): a on the weights, b (`donor_scale`) on the donors' post-periods."""
    n, before, after = _sizes(n_donors=n_donors, n_pre=n_pre, n_post=n_post)
    ridge, epsilon = check.positive("ridge", ridge), check.positive("epsilon_weights", epsilon_weights)
    scale = 4.0 * before * math.sqrt(8.0 + n) / (ridge * epsilon)
    donor_scale = _donor_scale(after, epsilon_donors)
    return DonorNoise(Privacy(epsilon + epsilon_donors), "L2-Laplace", scale, donor_scale=donor_scale)


def printed_objective_noise(
    epsilon_weights: float,
    epsilon_donors: float,
    delta: float,
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    curvature: float,
) -> DonorObjectiveNoise:
    """Noise of Algorithm 3 (DPSC_obj), which is **not private**: beta at epsilon_0 with lambda + Delta (`weights`)."""
    n, before, after = _sizes(n_donors=n_donors, n_pre=n_pre, n_post=n_post)
    ridge, curvature = check.positive("ridge", ridge), check.positive("curvature", curvature)
    epsilon = check.positive("epsilon_weights", epsilon_weights)
    delta = 0.0 if delta == 0.0 else check.delta_value(delta)
    taken = math.log(1.0 + 2.0 * curvature / ridge + curvature**2 / ridge**2)
    if epsilon > taken:
        left, convexity = epsilon - taken, ridge
    else:
        left, convexity = epsilon / 2.0, curvature / math.expm1(epsilon / 4.0)
    gradient = 4.0 * before * math.sqrt(8.0 + n)
    if delta > 0.0:
        scale = gradient * math.sqrt(2.0 * math.log(2.0 / delta) + 2.0 * left) / left
    else:
        scale = min(gradient, curvature * math.sqrt(n) + 4.0 * before) / left
    donor_scale = _donor_scale(after, epsilon_donors)
    own = Privacy(epsilon, delta)
    weights = ObjectiveNoise(own, law_for(own), scale, convexity, left, epsilon - left, 0.0)
    whole = Privacy(epsilon + epsilon_donors, delta)
    return DonorObjectiveNoise(whole, weights.mechanism, scale, donor_scale=donor_scale, weights=weights)


def recommended_ridge(n_pre: int) -> float:
    """Return the paper's guidance for its lambda: T0 (Section 4.2)."""
    return float(check.positive_integer("n_pre", n_pre))


def curvature(n_donors: int, n_pre: int) -> Bound:
    """Algorithm 3 and Lemma D.3, c: bound on the eigenvalues of 2 (X'X'^T - XX^T) for neighbours X, X'.

    Printed is the guidance of the arXiv version's Appendix B, T0 (1 + sqrt(16 n - 15)), which is sound; corrected is
    the supremum itself, 4 T0 sqrt(n - 1), or 2 T0 for a single donor.
    """
    n, before = _sizes(n_donors=n_donors, n_pre=n_pre)
    return Bound(before * (1.0 + math.sqrt(16.0 * n - 15.0)), donor_curvature(n, math.sqrt(before)))


def weights_error(*, n_donors: int, n_pre: int, ridge: float, noise_std: float, reach: float, xi: float) -> Bound:
    """Lemma C.6: bound on E||f_reg - f||, the error of the weights without privacy.

    ``((1 + s) sqrt(2 n) sigma T0 + r)/((1 - xi) T0 + r)``, where r is lambda/(2 T0) as printed and lambda/2 corrected.
    It holds if the smallest nonzero eigenvalue of XX' is at least (1 - xi) T0. By the lemma's Assumptions C.2 to C.4
    this has probability 1 - n^(-t^2) if T0 >= C (t/xi)^2 k log n.
    """
    n, before = _sizes(n_donors=n_donors, n_pre=n_pre)
    ridge, xi = check.positive("ridge", ridge), check.share("xi", xi)
    noise = math.sqrt(2.0 * n) * check.nonnegative("noise_std", noise_std) * (1.0 + check.nonnegative("reach", reach))
    rests = ridge / (2.0 * before), ridge / 2.0
    return Bound(*((noise * before + rest) / ((1.0 - xi) * before + rest) for rest in rests))


def objective_distance(
    epsilon_weights: float, delta: float, *, n_donors: int, n_pre: int, ridge: float, curvature: float
) -> Bound:
    """Lemma E.1: bound on E||f_obj - f_reg||, the effect of objective perturbation on the weights.

    The corrected bound is E||b||/(lambda + Delta) + Delta/(lambda + Delta) sqrt(T0/(2 lambda)). Its first term is the
    change of gradient over the strong convexity (the printed 2 is not needed); the second holds because f_reg less the
    minimiser with penalty lambda + Delta is (Delta/2) (XX' + (lambda + Delta)/2 I)^-1 f_reg, and
    ||f_reg|| <= ||y||/sqrt(2 lambda); the printed one is (1/lambda + 1/(lambda + Delta)) 2 T0^2 sqrt(n).
    """
    sizes: dict[str, Any] = {"n_donors": n_donors, "n_pre": n_pre, "ridge": ridge, "curvature": curvature}
    noise = printed_objective_noise(epsilon_weights, 1.0, delta, n_post=1, **sizes).weights
    norm = _objective_noise_norm(noise, n_donors, n_pre)
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

    ``||M_post||/sqrt(T - T0) (E||f_reg - f|| + V) + (sqrt(n) sigma + U) (sqrt(n) psi + V)``, where V and U are a and
    sqrt(2)/epsilon_2 as printed, n a and 2 n (T - T0)/epsilon_2 corrected.
    """
    sizes: dict[str, Any] = {"n_donors": n_donors, "n_pre": n_pre, "n_post": n_post}
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
    """Theorem 3.5: that of `output_rmse` for Algorithm 3 as printed, with `objective_distance` for V."""
    sizes: dict[str, Any] = {"n_donors": n_donors, "n_pre": n_pre, "ridge": ridge, "curvature": curvature}
    distance = objective_distance(epsilon_weights, delta, **sizes)
    return _rmse(distance, epsilon_donors, n_donors, n_post, signal_norm, weights_error, largest_weight, noise_std)


def output_rmse_closed_form(epsilon_weights: float, epsilon_donors: float, **given: Any) -> Bound:
    """Corollary C.5: `output_rmse` with ||M_post|| <= sqrt(n (T - T0)) and `weights_error`, under its condition."""
    return _closed_form(output_rmse, (epsilon_weights, epsilon_donors), **given)


def objective_rmse_closed_form(epsilon_weights: float, epsilon_donors: float, delta: float, **given: Any) -> Bound:
    """Corollary E.2: `objective_rmse` with ||M_post|| <= sqrt(n (T - T0)) and `weights_error`, under its condition."""
    return _closed_form(objective_rmse, (epsilon_weights, epsilon_donors, delta), **given)


def _closed_form(
    rmse: Callable[..., Bound],
    budget: tuple[float, ...],
    *,
    n_donors: int,
    n_pre: int,
    n_post: int,
    ridge: float,
    noise_std: float,
    reach: float,
    xi: float,
    **given: Any,
) -> Bound:
    given |= {"n_donors": n_donors, "n_pre": n_pre, "ridge": ridge, "noise_std": noise_std}
    errors = weights_error(n_donors=n_donors, n_pre=n_pre, ridge=ridge, noise_std=noise_std, reach=reach, xi=xi)
    # Entries of M_post are in [-1, 1], so that its Frobenius norm is at most this.
    signal = math.sqrt(math.prod(_sizes(n_donors=n_donors, n_post=n_post)))
    printed, corrected = (
        rmse(*budget, n_post=n_post, signal_norm=signal, weights_error=error, **given) for error in errors
    )
    return Bound(printed.printed, corrected.corrected)


def _objective_noise_norm(noise: ObjectiveNoise, n: int, n_pre: int) -> Bound:
    """E||b||: Theorem 3.5's, and the mean of the chi law with n degrees of freedom, or of a Gamma radius."""
    if noise.mechanism == "L2-Laplace":
        return Bound(noise.scale, l2_laplace_expected_norm(noise.scale, n))
    # Theorem 3.5 has + epsilon_0 where Algorithm 3 has + 2 epsilon_0, and the root over all of it.
    tail = math.sqrt(2.0 * math.log(2.0 / noise.privacy.delta) + noise.noise_epsilon)
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


def _sizes(**sizes: object) -> list[int]:
    return [check.positive_integer(name, size) for name, size in sizes.items()]


def _donor_scale(n_post: int, epsilon_donors: float) -> float:
    """b: one draw for all donors' post-periods."""
    return 2.0 * math.sqrt(n_post) / check.positive("epsilon_donors", epsilon_donors)
