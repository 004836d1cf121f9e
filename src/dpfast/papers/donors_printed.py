"""Synthetic control as printed: the noise of its two algorithms.

Algorithm 2 (output perturbation) is private: its 4 T0 sqrt(8 + n)/lambda is far above what one donor can move the
weights (`dpfast.privacy.weight_sensitivity`) for every lambda. Algorithm 3 (objective perturbation) is **not**: it
minimises over all of R^n, where the gradient of a quadratic loss has no bound, and no larger noise repairs it.

References
----------
Rho, Cummings and Misra (2023), "Differentially private synthetic control", AISTATS: Algorithms 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpfast import _arguments as check


@dataclass(frozen=True)
class PrintedOutputNoise:
    """Algorithm 2 as printed.

    Parameters
    ----------
    weight_scale : float
        a: scale of the L2-Laplace noise on the weights.
    donor_scale : float
        b: scale of the L2-Laplace noise on the donors' post-periods, one draw for all.
    """

    weight_scale: float
    donor_scale: float


@dataclass(frozen=True)
class PrintedObjectiveNoise:
    """Algorithm 3 as printed.

    Parameters
    ----------
    mechanism : {"Gaussian", "L2-Laplace"}
        Law of the noise in the objective.
    scale : float
        beta: its scale.
    strong_convexity : float
        lambda + Delta.
    noise_epsilon : float
        epsilon_0.
    donor_scale : float
        b: scale of the L2-Laplace noise on the donors' post-periods, one draw for all.
    """

    mechanism: Literal["Gaussian", "L2-Laplace"]
    scale: float
    strong_convexity: float
    noise_epsilon: float
    donor_scale: float


def printed_output_noise(
    epsilon_weights: float, epsilon_donors: float, *, n_donors: int, n_pre: int, n_post: int, ridge: float
) -> PrintedOutputNoise:
    """Noise scales of Algorithm 2 (DPSC_out) as printed: private, but 12 to 29 times what it takes at n = 10 to 100.

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    n_donors, n_pre, n_post : int
        Numbers of donors, of pre-periods and of post-periods.
    ridge : float
        The paper's lambda, positive.

    Returns
    -------
    PrintedOutputNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    References
    ----------
    Rho, Cummings and Misra (2023), Algorithm 2.

    Examples
    --------
    >>> from dpfast.papers.donors_printed import printed_output_noise
    >>> noise = printed_output_noise(1.0, 1.0, n_donors=10, n_pre=10, n_post=4, ridge=10.0)
    >>> round(noise.weight_scale, 2), noise.donor_scale
    (16.97, 4.0)
    """
    n, before, after = _sizes(n_donors, n_pre, n_post)
    ridge = check.positive("ridge", ridge)
    scale = 4.0 * before * math.sqrt(8.0 + n) / (ridge * check.positive("epsilon_weights", epsilon_weights))
    return PrintedOutputNoise(scale, _printed_donor_scale(after, epsilon_donors))


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
) -> PrintedObjectiveNoise:
    """Noise of Algorithm 3 (DPSC_obj) as printed. It is **not private**: on all of R^n no noise hides the gradient.

    Parameters
    ----------
    epsilon_weights, epsilon_donors : float
        The paper's epsilon_1 and epsilon_2.
    delta : float
        In [0, 1); Gaussian noise above 0.
    n_donors, n_pre, n_post : int
        Numbers of donors, of pre-periods and of post-periods.
    ridge : float
        The paper's lambda, positive.
    curvature : float
        The paper's c.

    Returns
    -------
    PrintedObjectiveNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type.

    References
    ----------
    Rho, Cummings and Misra (2023), Algorithm 3.

    Examples
    --------
    >>> from dpfast.papers.donors_printed import printed_objective_noise
    >>> noise = printed_objective_noise(1.0, 1.0, 0.0, n_donors=1, n_pre=10, n_post=1, ridge=10.0, curvature=20.0)
    >>> round(noise.scale, 2), round(noise.strong_convexity, 2), noise.noise_epsilon
    (120.0, 70.42, 0.5)
    """
    n, before, after = _sizes(n_donors, n_pre, n_post)
    ridge, curvature = check.positive("ridge", ridge), check.positive("curvature", curvature)
    epsilon = check.positive("epsilon_weights", epsilon_weights)
    taken = math.log(1.0 + 2.0 * curvature / ridge + curvature**2 / ridge**2)
    if epsilon > taken:
        left, convexity = epsilon - taken, ridge
    else:
        left, convexity = epsilon / 2.0, curvature / math.expm1(epsilon / 4.0)
    gradient = 4.0 * before * math.sqrt(8.0 + n)
    donor_scale = _printed_donor_scale(after, epsilon_donors)
    if delta == 0.0:
        scale = min(gradient, curvature * math.sqrt(n) + 4.0 * before) / left
        return PrintedObjectiveNoise("L2-Laplace", scale, convexity, left, donor_scale)
    delta = check.delta_value(delta)
    scale = gradient * math.sqrt(2.0 * math.log(2.0 / delta) + 2.0 * left) / left
    return PrintedObjectiveNoise("Gaussian", scale, convexity, left, donor_scale)


def _sizes(n_donors: int, n_pre: int, n_post: int) -> tuple[int, int, int]:
    sizes = {"n_donors": n_donors, "n_pre": n_pre, "n_post": n_post}
    n, before, after = (check.positive_integer(name, size) for name, size in sizes.items())
    return n, before, after


def _printed_donor_scale(n_post: int, epsilon_donors: float) -> float:
    return 2.0 * math.sqrt(n_post) / check.positive("epsilon_donors", epsilon_donors)
