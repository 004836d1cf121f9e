"""Synthetic control by noise on the donors' weights: how far one donor moves them, and how much noise this needs.

Donors are rows x of pre-periods with ``||x|| <= row_norm`` (the root of the number of pre-periods, for entries within
[-1, 1]); y is the target's own pre-period, public. The weights minimise

    ||y - X'f||**2 + (ridge/2) ||f||**2,    f = X (X'X + (ridge/2) I)^-1 y,

the paper's objective times the number of pre-periods. Neighbours differ in one donor's row, from x to x + d; donor i.

*The minimiser.* ``||f|| <= ||y||/sqrt(2 ridge)`` for every X, as ``s/(s**2 + ridge/2)`` is at most 1/sqrt(2 ridge). So
f moves by at most ``||y|| sqrt(2/ridge)``. It does so if one row, c y with ||c y||**2 = ridge/2, is flipped. For large
ridges strong convexity does better: f moves by at most ||h(f)||/ridge. Here h is the change of gradient: ``2 f_i
x_j'd`` for the other donors and ``2 (d'(X'f - y) + f_i d'(x + d))`` for donor i, with ``||X'f - y|| <= ||y||`` and
``|f_i| <= 2 row_norm ||y||/ridge``.

*On the L1 ball* (objective perturbation) write D = ||d||, B = row_norm, a = |f_i|. The other weights are then at most 1
- a in all, and d'(2x + d) <= D (2B - D). Then

    ||h||**2 <= 4 D**2 (a**2 (n - 1) B**2 + (||y|| + (1 - a) B [n > 1] + a (2B - D))**2),

which is convex in a. At a = 0 it grows in D; at a = 1 its derivative in D vanishes at the roots of a quadratic.

*The Hessian* changes by 2 (e_i v' + v e_i') with v_j = d'x_j, v_i = d'(2x + d)/2. Its eigenvalues are
``2 (v_i +- ||v||)``: one positive, one negative, of at most 4 B**2 sqrt(n - 1) where n > 1 (a proof is with
`donor_curvature`), 2 B**2 for a single donor.

References
----------
Rho, Cummings and Misra (2023), "Differentially private synthetic control", AISTATS: Lemmas 3.7 and B.4, whose constants
these replace (the printed ones are in dpfast.papers.synthetic_control).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfast import _arguments as check
from dpfast.privacy import guarantee
from dpfast.privacy.guarantee import ROUND_DOWN, ROUND_UP, Law, Privacy, least_at, remembered
from dpfast.privacy.objective import ObjectiveNoise, objective_noise

# Mean square of an entry that is uniform on [-1, 1]: the guess about donors in a calibration.
_MEAN_SQUARE = 1.0 / 3.0
# The share of the budget for the weights is searched between the first two, to the third.
_SHARES = 0.05, 0.95, 1e-3


def weight_sensitivity(ridge: float, target_norm: float, *, n_donors: int, row_norm: float) -> float:
    """L2 sensitivity of the ridge weights under the replacement of one donor, rounded up.

    This is ``target_norm * sqrt(2/ridge)``, attained for ``ridge <= 2 row_norm**2`` (in the box [-1, 1], if the row is
    within it), or the bound by strong convexity if that is smaller.

    >>> from dpfast.privacy import weight_sensitivity
    >>> round(weight_sensitivity(10.0, 10.0**0.5, n_donors=100, row_norm=10.0**0.5), 3)
    1.414
    """
    ridge, target = check.positive("ridge", ridge), check.positive("target_norm", target_norm)
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    own = target * min(1.0 / math.sqrt(2.0 * ridge), 2.0 * row / ridge)
    convex = 4.0 * row / ridge * math.hypot(target + own * row, own * row * math.sqrt(n - 1.0))
    return min(target * math.sqrt(2.0 / ridge), convex) * ROUND_UP


def donor_gradient(n_donors: int, row_norm: float, target_norm: float) -> float:
    """L: most that replacing one donor changes the gradient of ``||y - X'f||**2``, over weights with ``||f||_1 <= 1``.

    ``4 T0 sqrt(max(4, n))`` for n > 1 and ``4.5 T0`` for n = 1 where both norms are sqrt(T0); rounded up. Attained.
    """
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    target = check.nonnegative("target_norm", target_norm)
    reach = target + 2.0 * row

    def alone(distance: float) -> float:
        """Change of the gradient with all weight on the replaced donor."""
        return 2.0 * distance * math.hypot(reach - distance, row * math.sqrt(n - 1.0))

    discriminant = reach * reach - 8.0 * (n - 1.0) * row * row
    turning = (3.0 * reach - math.sqrt(max(0.0, discriminant))) / 4.0
    elsewhere = 4.0 * row * (target + row) if n > 1 else 0.0
    return max(alone(2.0 * row), alone(min(turning, 2.0 * row)), elsewhere) * ROUND_UP


def donor_curvature(n_donors: int, row_norm: float) -> float:
    """c: largest eigenvalue, in absolute value, of a change of the Hessian of ``||y - X'f||**2`` by one donor.

    ``4 row_norm**2 sqrt(n - 1)`` for n > 1, ``2 row_norm**2`` for n = 1; rounded up. Attained: with v_o the part of v
    on the other donors, the eigenvalue is ``2 (|v_i| + sqrt(v_i**2 + ||v_o||**2))``, where ``||v_o|| <= D B sqrt(n -
    1)`` and ``2 |v_i| <= D (2B - D)``. With t = D/B that is at most B**2 times ``t (2 - t) + t r``, r = sqrt((2 - t)**2
    + 4 (n - 1)), whose derivative ``2 - 2t + r - t (2 - t)/r`` grows with r. If n > 1, it is at least its value at r =
    2, (2 - t) (4 - t)/2, so t = 2 is worst. For a single donor t = 1 is.
    """
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    return (4.0 * math.sqrt(n - 1.0) if n > 1 else 2.0) * row * row * ROUND_UP


@dataclass(frozen=True)
class DonorNoise:
    """Noise of a release in two steps: on the donors' weights or in their objective, then on the prediction from them.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of both steps together; for printed noise the claimed guarantee.
    mechanism : {"Gaussian", "L2-Laplace"}
        Law of the first step, and of the second; printed noise has L2-Laplace noise in the second step.
    weight_scale : float
        Scale of the noise on the weights, or in their objective.
    projection_scale : float
        Scale of the noise on the prediction over the largest released weight in absolute value; 0 as printed.
    donor_scale : float
        Scale of the noise on the donors' post-periods, one draw for all, as printed; else 0.
    expected_error : float
        Rough root mean square error that privacy adds to a predicted entry, for donors uniform on [-1, 1].
    mu : float or None
        Gaussian-differential-privacy parameter of both steps together, if they are Gaussian.
    """

    privacy: Privacy
    mechanism: Law
    weight_scale: float
    projection_scale: float = 0.0
    donor_scale: float = 0.0
    expected_error: float = math.nan
    mu: float | None = None


@dataclass(frozen=True, kw_only=True)
class DonorObjectiveNoise(DonorNoise):
    """The same with the first step's noise in the objective; `weights` is all of its calibration."""

    weights: ObjectiveNoise


def output_noise(
    privacy: Privacy,
    *,
    weight_sensitivity: float,
    projection_sensitivity: float,
    n_donors: int,
    n_post: int,
    weight_norm: float,
) -> DonorNoise:
    """Calibrate output perturbation, splitting the budget for the least error that public numbers predict.

    The sensitivities are those of the computed weights, and of the computed prediction over the largest weight.
    `weight_norm`, the largest norm of the weights before noise, only guides the split. The release is pure if the delta
    of `privacy` is 0.

    >>> from dpfast import Privacy
    >>> from dpfast.privacy import output_noise
    >>> noise = output_noise(
    ...     Privacy(1.0, 1e-6),
    ...     weight_sensitivity=1.5, projection_sensitivity=4.0, n_donors=100, n_post=4, weight_norm=0.7,
    ... )
    >>> (1.5 / noise.weight_scale) ** 2 + (4.0 / noise.projection_scale) ** 2 <= noise.mu**2
    True
    """
    moved = check.positive("weight_sensitivity", weight_sensitivity)
    projected = check.positive("projection_sensitivity", projection_sensitivity)
    n, periods = check.positive_integer("n_donors", n_donors), check.positive_integer("n_post", n_post)
    norm = check.positive("weight_norm", weight_norm)
    epsilon, delta = privacy.finite_target
    mu = guarantee.gaussian_mu(epsilon, delta) if delta > 0.0 else None
    law, budget = guarantee.law_for(privacy), epsilon if mu is None else mu * mu

    def scales(share: float) -> tuple[float, float]:
        parts = share * budget * ROUND_DOWN, (1.0 - share) * budget * ROUND_DOWN
        if mu is None:
            return guarantee.l2_laplace_scale(parts[0], moved), guarantee.l2_laplace_scale(parts[1], projected)
        first, second = (math.sqrt(part) * ROUND_DOWN for part in parts)
        return guarantee.scale_for_mu(first, moved), guarantee.scale_for_mu(second, projected)

    def error(share: float) -> float:
        weights, projection = scales(share)
        in_weights = guarantee.coordinate_deviation(law, weights, n) ** 2
        in_projection = guarantee.coordinate_deviation(law, projection, periods) ** 2
        # The largest weight is a weight before noise or a noise term, and the latter has a mean square of about 2 log(2
        # n) variances.
        largest = norm**2 + 2.0 * math.log(2.0 * n) * in_weights
        return math.sqrt(_MEAN_SQUARE * n * in_weights + largest * in_projection)

    share = least_at(error, *_SHARES)
    return DonorNoise(privacy, law, *scales(share), expected_error=error(share), mu=mu)


@remembered
def donor_objective_noise(
    privacy: Privacy,
    *,
    gradient: float,
    curvature: float,
    ridge: float,
    projection_sensitivity: float,
    n_donors: int,
    n_pre: int,
    n_post: int,
) -> DonorObjectiveNoise:
    """Calibrate objective perturbation on the L1 ball, the budget split as for `output_noise`.

    The two parts have half of delta each, if it is positive. They compose by addition, since the objective's profile is
    not that of a Gaussian mechanism. L and c are as `donor_gradient` and `donor_curvature` give them, or smaller if
    every table is within that; the strong convexity used is at least `ridge`, the paper's lambda.
    """
    gradient, curvature = check.positive("gradient", gradient), check.positive("curvature", curvature)
    ridge = check.nonnegative("ridge", ridge)
    projected = check.positive("projection_sensitivity", projection_sensitivity)
    n, before = check.positive_integer("n_donors", n_donors), check.positive_integer("n_pre", n_pre)
    periods = check.positive_integer("n_post", n_post)
    epsilon, delta = privacy.finite_target

    def error(deviation: float, convexity: float, projection: float) -> float:
        # Loss of a signal that all donors share, from convexity beyond the requested one.
        lost = 0.5 * (convexity - ridge) / (0.5 * convexity + _MEAN_SQUARE * n * before)
        in_weights = deviation / convexity
        largest = min(1.0, math.hypot((1.0 - lost) / math.sqrt(n), math.sqrt(2.0 * math.log(2.0 * n)) * in_weights))
        return math.hypot(math.sqrt(_MEAN_SQUARE * n) * in_weights, lost, largest * projection)

    def calibrated(share: float) -> DonorObjectiveNoise:
        rest = (1.0 - share) * epsilon * ROUND_DOWN
        pure = delta == 0.0
        projection = (
            guarantee.l2_laplace_scale(rest, projected)
            if pure
            else guarantee.gaussian_scale(rest, 0.5 * delta, projected)
        )
        deviation = guarantee.coordinate_deviation(guarantee.law_for(privacy), projection, periods)
        weights = objective_noise(
            Privacy(share * epsilon * ROUND_DOWN, 0.5 * delta, privacy.adjacency),
            # Replacing the only donor moves the gradient of the only weight.
            changes={"plane" if n > 1 else "line": gradient},
            curvature=curvature,
            strong_convexity=ridge,
            dim=n,
            cost=lambda scale, convexity: error(scale, convexity, deviation),
            # The finishing noise grows faster with the number of donors than the noise that it is added to.
            finishing_share=min(max(2.0**-7, n * 2.0**-13), 2.0**-3),
        )
        predicted = error(weights.coordinate_scale(n), weights.strong_convexity, deviation)
        return DonorObjectiveNoise(
            privacy, weights.mechanism, weights.scale, projection, expected_error=predicted, weights=weights
        )

    return calibrated(least_at(lambda share: calibrated(share).expected_error, *_SHARES))
