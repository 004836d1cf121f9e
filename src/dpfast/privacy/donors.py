"""Synthetic control by noise on the donors' weights: how far one donor can move them, and how much noise that asks for.

Donors are rows x of pre-periods with ``||x|| <= row_norm`` (the root of the number of pre-periods, for entries within
[-1, 1]); y is the target's own pre-period, public. The weights minimise

    ||y - X'f||**2 + (ridge/2) ||f||**2,    f = X (X'X + (ridge/2) I)^-1 y,

the paper's objective times the number of pre-periods. Neighbours differ in one donor's row, from x to x + d; donor i.

*The minimiser.* ``||f|| <= ||y||/sqrt(2 ridge)`` for every X, as ``s/(s**2 + ridge/2)`` is at most 1/sqrt(2 ridge): so
f moves by at most ``||y|| sqrt(2/ridge)``, and does so where one row, c y with ||c y||**2 = ridge/2, is flipped. For
large ridges strong convexity does better: f moves by at most ||h(f)||/ridge, h the change of gradient, which is
``2 f_i x_j'd`` for the other donors and ``2 (d'(X'f - y) + f_i d'(x + d))`` for donor i; ``||X'f - y|| <= ||y||`` and
``|f_i| <= 2 row_norm ||y||/ridge``.

*On the L1 ball* (objective perturbation) write D = ||d||, B = row_norm, a = |f_i|, so that the other weights are at
most 1 - a in all, and d'(2x + d) <= D (2B - D). Then

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
from collections.abc import Callable
from dataclasses import dataclass

from dpfast import _arguments as check
from dpfast.privacy.gaussian import gaussian_mu, gaussian_scale, scale_for_mu
from dpfast.privacy.guarantee import Privacy
from dpfast.privacy.laplace import l2_laplace_scale
from dpfast.privacy.law import Law, law_for
from dpfast.privacy.objective import ObjectiveNoise, objective_noise

# Relative: more than the rounding of the few operations that each covers.
_ROUND_DOWN, _ROUND_UP = 1.0 - 2.0**-45, 1.0 + 2.0**-45
# Mean square of an entry that is uniform on [-1, 1]: where a calibration must guess what the donors are like.
_MEAN_SQUARE = 1.0 / 3.0


def weight_sensitivity(ridge: float, target_norm: float, *, n_donors: int, row_norm: float) -> float:
    """L2 sensitivity of the ridge weights under the replacement of one donor.

    Parameters
    ----------
    ridge : float
        The paper's lambda, positive.
    target_norm : float
        L2 norm of the target's pre-period, positive.
    n_donors : int
        Number of donors.
    row_norm : float
        Largest L2 norm of a donor's pre-period.

    Returns
    -------
    float
        ``target_norm * sqrt(2/ridge)``, which is attained for ``ridge <= 2 row_norm**2`` (in the box [-1, 1], if the
        row is within it), or the bound by strong convexity where that is less; rounded up.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.privacy import weight_sensitivity
    >>> round(weight_sensitivity(10.0, 10.0**0.5, n_donors=100, row_norm=10.0**0.5), 3)
    1.414
    """
    ridge, target = check.positive("ridge", ridge), check.positive("target_norm", target_norm)
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    own = target * min(1.0 / math.sqrt(2.0 * ridge), 2.0 * row / ridge)
    convex = 4.0 * row / ridge * math.hypot(target + own * row, own * row * math.sqrt(n - 1.0))
    return min(target * math.sqrt(2.0 / ridge), convex) * _ROUND_UP


def donor_gradient(n_donors: int, row_norm: float, target_norm: float) -> float:
    """L: most that replacing one donor changes the gradient of ``||y - X'f||**2``, over weights with ``||f||_1 <= 1``.

    Parameters
    ----------
    n_donors : int
        Number of donors.
    row_norm : float
        Largest L2 norm of a donor's pre-period.
    target_norm : float
        L2 norm of the target's pre-period.

    Returns
    -------
    float
        ``4 T0 sqrt(max(4, n))`` for n > 1 and ``4.5 T0`` for n = 1 where both norms are sqrt(T0); rounded up. Attained.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.privacy import donor_gradient
    >>> [round(donor_gradient(n, 2.0, 2.0), 6) for n in (1, 2, 100)]
    [18.0, 32.0, 160.0]
    """
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    target = check.nonnegative("target_norm", target_norm)
    reach = target + 2.0 * row

    def alone(distance: float) -> float:
        """Change the gradient where all weight is on the donor that is replaced."""
        return 2.0 * distance * math.hypot(reach - distance, row * math.sqrt(n - 1.0))

    discriminant = reach * reach - 8.0 * (n - 1.0) * row * row
    turning = (3.0 * reach - math.sqrt(max(0.0, discriminant))) / 4.0
    elsewhere = 4.0 * row * (target + row) if n > 1 else 0.0
    return max(alone(2.0 * row), alone(min(turning, 2.0 * row)), elsewhere) * _ROUND_UP


def donor_curvature(n_donors: int, row_norm: float) -> float:
    """c: largest eigenvalue, in absolute value, of a change of the Hessian of ``||y - X'f||**2`` by one donor.

    With v_o the part of v on the other donors, the eigenvalue is ``2 (|v_i| + sqrt(v_i**2 + ||v_o||**2))``, where
    ``||v_o|| <= D B sqrt(n - 1)`` and ``2 |v_i| <= D (2B - D)``. With t = D/B that is at most B**2 times
    ``t (2 - t) + t r``, r = sqrt((2 - t)**2 + 4 (n - 1)), whose derivative ``2 - 2t + r - t (2 - t)/r`` grows with r.
    If n > 1, it is at least its value at r = 2, (2 - t) (4 - t)/2, so t = 2 is worst. For a single donor t = 1 is.

    Parameters
    ----------
    n_donors : int
        Number of donors.
    row_norm : float
        Largest L2 norm of a donor's pre-period.

    Returns
    -------
    float
        ``4 row_norm**2 sqrt(n - 1)`` for n > 1, ``2 row_norm**2`` for n = 1; rounded up. Attained.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast.privacy import donor_curvature
    >>> [round(donor_curvature(n, 2.0), 6) for n in (1, 2, 10)]
    [8.0, 16.0, 48.0]
    """
    n, row = check.positive_integer("n_donors", n_donors), check.positive("row_norm", row_norm)
    return (4.0 * math.sqrt(n - 1.0) if n > 1 else 2.0) * row * row * _ROUND_UP


@dataclass(frozen=True)
class DonorNoise:
    """Noise of a release in two steps: on the donors' weights or in their objective, then on what they predict.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of both steps together; what is claimed, if the noise is as printed.
    mechanism : {"Gaussian", "L2-Laplace"}
        Law of the first step, and of the second but for printed noise, whose second step is always L2-Laplace.
    weight_scale : float
        Scale of the noise on the weights, or in their objective.
    projection_scale : float
        Scale of the noise on the prediction over the largest released weight in absolute value; 0 as printed.
    donor_scale : float
        Scale of the noise on the donors' post-periods, one draw for all, as printed; else 0.
    expected_error : float
        Rough root mean square of what privacy adds to a predicted entry, for donors with entries uniform on [-1, 1].
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
    """The same where the first step's noise is in the objective; `weights` is all of its calibration."""

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
    """Calibrate output perturbation, the budget split for the least error that can be predicted from public numbers.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of weights and prediction together; pure where its delta is 0.
    weight_sensitivity, projection_sensitivity : float
        Most that one donor can move the computed weights, and the computed prediction over the largest weight.
    n_donors, n_post : int
        Numbers of donors and of post-periods.
    weight_norm : float
        Largest norm of the weights before noise; it only guides the split.

    Returns
    -------
    DonorNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
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
    epsilon, delta = _finite_target(privacy)
    mu = gaussian_mu(epsilon, delta) if delta > 0.0 else None
    budget = epsilon if mu is None else mu * mu

    def scales(share: float) -> tuple[float, float]:
        parts = share * budget * _ROUND_DOWN, (1.0 - share) * budget * _ROUND_DOWN
        if mu is None:
            return l2_laplace_scale(parts[0], moved), l2_laplace_scale(parts[1], projected)
        first, second = (math.sqrt(part) * _ROUND_DOWN for part in parts)
        return scale_for_mu(first, moved), scale_for_mu(second, projected)

    def error(share: float) -> float:
        weights, projection = scales(share)
        # Variance of a coordinate of L2-Laplace noise: (dim + 1) scale**2.
        in_weights = weights**2 * (1.0 if mu else n + 1.0)
        in_projection = projection**2 * (1.0 if mu else periods + 1.0)
        # The largest weight is one before noise or one of the noise, whose mean square is about 2 log(2 n) variances.
        largest = norm**2 + 2.0 * math.log(2.0 * n) * in_weights
        return math.sqrt(_MEAN_SQUARE * n * in_weights + largest * in_projection)

    share = _best_share(error)
    return DonorNoise(privacy, law_for(privacy), *scales(share), expected_error=error(share), mu=mu)


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

    The two parts have half of delta each, where there is one, and compose by addition: the objective's profile is not
    that of a Gaussian mechanism.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of weights and prediction together; pure where its delta is 0.
    gradient, curvature : float
        L and c, as `donor_gradient` and `donor_curvature` give them, or smaller if every table keeps to that.
    ridge : float
        The paper's lambda, at least 0; the strong convexity used is at least that.
    projection_sensitivity : float
        Most that one donor can move the computed prediction over the largest weight.
    n_donors, n_pre, n_post : int
        Numbers of donors, of pre-periods and of post-periods.

    Returns
    -------
    DonorObjectiveNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    Examples
    --------
    >>> from dpfast import Privacy
    >>> from dpfast.privacy import donor_curvature, donor_gradient, donor_objective_noise
    >>> noise = donor_objective_noise(
    ...     Privacy(2.0, 1e-6), gradient=donor_gradient(20, 3.0, 3.0), curvature=donor_curvature(20, 3.0), ridge=9.0,
    ...     projection_sensitivity=4.0, n_donors=20, n_pre=9, n_post=4,
    ... )
    >>> noise.weights.privacy.epsilon < 2.0
    True
    """
    projected = check.positive("projection_sensitivity", projection_sensitivity)
    n, periods = check.positive_integer("n_donors", n_donors), check.positive_integer("n_post", n_post)
    before, ridge = check.positive_integer("n_pre", n_pre), check.nonnegative("ridge", ridge)
    epsilon, delta = _finite_target(privacy)

    def error(deviation: float, convexity: float, projection: float) -> float:
        # What more convexity than was asked for takes from a signal that all donors share.
        lost = 0.5 * (convexity - ridge) / (0.5 * convexity + _MEAN_SQUARE * n * before)
        in_weights = deviation / convexity
        largest = min(1.0, math.hypot((1.0 - lost) / math.sqrt(n), math.sqrt(2.0 * math.log(2.0 * n)) * in_weights))
        return math.hypot(math.sqrt(_MEAN_SQUARE * n) * in_weights, lost, largest * projection)

    def calibrated(share: float) -> DonorObjectiveNoise:
        rest = (1.0 - share) * epsilon * _ROUND_DOWN
        if delta > 0.0:
            projection = deviation = gaussian_scale(rest, 0.5 * delta, projected)
        else:
            projection = l2_laplace_scale(rest, projected)
            deviation = projection * math.sqrt(periods + 1.0)
        weights = objective_noise(
            Privacy(share * epsilon * _ROUND_DOWN, 0.5 * delta, privacy.adjacency),
            gradient=gradient,
            curvature=curvature,
            strong_convexity=ridge,
            # Replacing the only donor moves the gradient of the only weight.
            geometry="plane" if n > 1 else "line",
            dim=n,
            cost=lambda scale, convexity: error(scale, convexity, deviation),
            # The finishing noise grows faster with the number of donors than the noise that it is added to.
            finishing_share=min(max(2.0**-7, n * 2.0**-13), 2.0**-3),
        )
        predicted = error(weights.coordinate_scale(n), weights.strong_convexity, deviation)
        return DonorObjectiveNoise(
            privacy, weights.mechanism, weights.scale, projection, expected_error=predicted, weights=weights
        )

    return calibrated(_best_share(lambda share: calibrated(share).expected_error))


def _finite_target(privacy: Privacy) -> tuple[float, float]:
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
    return privacy.target


def _best_share(error: Callable[[float], float]) -> float:
    """Minimise the error over the share of the budget that the weights get."""
    from scipy.optimize import minimize_scalar  # takes longer to import than all of dpfast.privacy

    return float(minimize_scalar(error, bounds=(0.05, 0.95), method="bounded", options={"xatol": 1e-3}).x)
