"""Objective perturbation with the noise that the paper prints: valid for generalised linear losses under add/remove.

The printed strong convexity Delta = 2 lambda/epsilon costs log(1 + epsilon/2), the printed noise epsilon/2. What is
left of epsilon, about epsilon**2/8, hides the solver's error here.

References
----------
Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1 and Theorem 2.
"""

from __future__ import annotations

import math

from dpfast import _arguments as check
from dpfast.privacy.guarantee import Privacy
from dpfast.privacy.objective import Geometry, ObjectiveNoise, objective_delta


def printed_objective_perturbation(
    privacy: Privacy, *, gradient: float, curvature: float, strong_convexity: float = 0.0
) -> ObjectiveNoise:
    """Noise and strong convexity of Algorithm 1 as printed.

    Parameters
    ----------
    privacy : Privacy
        What the algorithm claims. Gaussian noise where its delta is above 0, else L2-Laplace ("gamma") noise.
    gradient, curvature : float
        zeta and lambda: bounds on the gradient of one record's loss, and on the eigenvalue of its Hessian.
    strong_convexity : float, default 0.0
        That of the objective without noise, gamma; what is missing to Delta is added.

    Returns
    -------
    ObjectiveNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type, or epsilon is infinite.

    Examples
    --------
    >>> from dpfast import Privacy
    >>> from dpfast.papers.objective_printed import printed_objective_perturbation
    >>> noise = printed_objective_perturbation(Privacy(1.0, 1e-6, "add_remove"), gradient=1.0, curvature=0.25)
    >>> noise.strong_convexity, round(noise.scale, 2)
    (0.5, 10.96)
    """
    gradient, curvature = check.positive("gradient", gradient), check.positive("curvature", curvature)
    least = check.nonnegative("strong_convexity", strong_convexity)
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
    epsilon, delta = privacy.epsilon, privacy.delta
    convexity = max(least, 2.0 * curvature / epsilon)
    spent = math.log1p(curvature / convexity)
    # Rounding cannot use it up: it is at least epsilon - log(1 + epsilon/2) - epsilon/2.
    finishing = (privacy.target[0] - spent - 0.5 * epsilon) * (1.0 - 2.0**-20)
    if not finishing > 0.0:
        raise ValueError(f"epsilon must be larger for the printed calibration in double precision, got {epsilon!r}")
    return ObjectiveNoise(
        privacy=privacy,
        mechanism="Gaussian" if delta > 0.0 else "L2-Laplace",
        scale=gradient * math.sqrt(8.0 * math.log(2.0 / delta) + 4.0 * epsilon) / epsilon
        if delta > 0.0
        else 2.0 * gradient / epsilon,
        strong_convexity=convexity,
        noise_epsilon=0.5 * epsilon,
        curvature_epsilon=spent,
        finishing_epsilon=finishing,
    )


def meets_its_claim(noise: ObjectiveNoise, *, gradient: float, geometry: Geometry) -> bool:
    """Whether a calibration gives what it claims.

    Parameters
    ----------
    noise : ObjectiveNoise
        Whose three shares of epsilon do not add up to more than it.
    gradient : float
        L: most that one person can change the gradient of the loss.
    geometry : {"line", "plane"}
        What the change keeps to.

    Returns
    -------
    bool
    """
    if noise.mechanism == "L2-Laplace":
        return gradient <= noise.scale * noise.noise_epsilon * (1.0 + 2.0**-50)
    left = noise.privacy.target[0] - noise.curvature_epsilon - noise.finishing_epsilon
    exact = objective_delta(noise.scale, max(left, 0.0), gradient, geometry=geometry)
    return exact * math.exp(0.5 * noise.finishing_epsilon) <= noise.privacy.target[1]
