"""Hockey-stick divergence of two spherical Gaussians of different widths, by one contour integral.

For P = N(0, r**2 I) and Q = N(v, I) in d dimensions, r**2 = 1 + b > 1 and ||v|| = D, the privacy loss L = ln(dP/dQ)
has under P a moment generating function in closed form. With y = 1 - s b,

    ln E_P[exp(s L)] = s (D**2/2 - (d/2) ln(1 + b)) - (d/2) ln y + s**2 (1 + b) D**2/(2 y)      (s < 1/b),

because L = D**2/2 - (d/2) ln(1 + b) + (b/2)(Y**2 + W) + r D Y for a standard normal Y and W of the chi-square law with
d - 1 degrees of freedom. The divergence is E_P[(1 - exp(epsilon - L))_+], and the Laplace transform of (1 - exp(-x))_+
is 1/(s (s + 1)), so

    delta = 1/(2 pi i) * integral of exp(ln E_P[exp(s L)] - s epsilon)/(s (s + 1)) ds

over a line Re s = sigma in (0, 1/b); over one in (-1, 0) the same integral is delta - 1, the residue at 0 being 1. The
divergence also equals a difference of two noncentral chi-square tails. The difference cancels and overflows; the
integral does neither: not as b -> 0 and the noncentralities grow without bound, not at delta = 1e-300 and not for d =
1e6.

The contour goes through the saddle point of the integrand and turns to the right on both sides: a hyperbola that
encloses the branch cut [1/b, inf). The integrand falls off doubly exponentially along it, and the trapezoidal rule
converges geometrically (Trefethen and Weideman 2014, "The exponentially convergent trapezoidal rule", SIAM Review
56(3)). Over 22,000 random arguments with delta above 1e-300, three times the step used here left an error of at most
4e-6 (relative) and twice the step 3e-8, as the geometric law predicts. At this step only rounding is left: at most
2e-10 at d = 5e5 and 1e-12 at usual sizes. `ACCURACY` allows for several times that. Checked against integrals in 40
digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

#: Largest error of `log_divergence`, for epsilon up to 100 and 1e6 dimensions.
ACCURACY = 1e-9

_BEYOND_FLOATS = -1000.0
_STEP = 1.0 / 16.0
_NODES = _STEP * np.arange(12 * 16)
_COSH_LESS_1, _SINH, _COSH = np.cosh(_NODES) - 1.0, np.sinh(_NODES), np.cosh(_NODES)
# The integrand is symmetric about the real axis; the node on it counts half.
_WEIGHTS = np.where(_NODES > 0.0, _STEP, 0.5 * _STEP) / math.pi


def log_divergence(log_variance_ratio: float, distance: float, epsilon: float, dim: int) -> float:
    """Return the logarithm of the divergence of N(0, exp(log_variance_ratio) I) from N(v, I), ||v|| = distance.

    Parameters
    ----------
    log_variance_ratio : float
        Positive: the first Gaussian is the wider one.
    distance : float
        Between the means, at least 0, in units of the smaller standard deviation.
    epsilon : float
        At least 0.
    dim : int
        Number of coordinates, at least 1.

    Returns
    -------
    float
        At most 0, within `ACCURACY` (absolute, so relative for the divergence itself); only an upper bound below -1000.
    """
    b = math.expm1(log_variance_ratio)
    spread = (1.0 + b) * distance * distance
    drift = 0.5 * (distance * distance - dim * log_variance_ratio) - epsilon
    # Towards 1 the complement keeps the digits: cross the axis left of the pole at 0.
    rare = drift + 0.5 * dim * b <= 0.0

    def crossing(logit: float) -> tuple[float, float]:
        """Return s, from one end of its interval to the other, and y = 1 - s b."""
        odds = math.exp(logit)
        if rare:
            return odds / (1.0 + b * odds), 1.0 / (1.0 + b * odds)
        return -1.0 / (1.0 + odds), 1.0 + b / (1.0 + odds)

    def slope(logit: float) -> float:
        s, y = crossing(logit)
        return drift + 0.5 * dim * b / y + 0.5 * spread * s * (1.0 + y) / (y * y) - 1.0 / s - 1.0 / (1.0 + s)

    saddle, y = crossing(_root(slope))
    log_y = math.log(y) if y < 0.5 else math.log1p(-b * saddle)
    peak = drift * saddle - 0.5 * dim * log_y + 0.5 * spread * saddle**2 / y
    if peak < _BEYOND_FLOATS:
        # Chernoff's bound on the rare side, the divergence or its complement: below the smallest float.
        return peak if rare else 0.0
    curvature = 0.5 * dim * (b / y) ** 2 + spread / y**3 + saddle**-2 + (1.0 + saddle) ** -2
    skew = dim * (b / y) ** 3 + 3.0 * spread * b / y**4 - 2.0 * saddle**-3 - 2.0 * (1.0 + saddle) ** -3
    width = curvature**-0.5
    # Steepest descent has the first as curvature; the bounds keep the hyperbola between upright and the cut.
    bend = min(max(skew / (3.0 * curvature**2), 0.25 * width), 0.7 * width)
    steps = bend * _COSH_LESS_1 + 1j * width * _SINH
    nodes = saddle + steps
    speeds = bend * _SINH + 1j * width * _COSH
    exponents = (
        drift * steps
        - 0.5 * dim * np.log1p(-b / y * steps)
        + 0.5 * spread * (nodes**2 / (y - b * steps) - saddle**2 / y)
    )
    total = float(_WEIGHTS @ (np.exp(exponents) * speeds / (nodes * (1.0 + nodes))).imag)
    return min(0.0, peak + math.log(total)) if rare else math.log1p(math.exp(peak) * total)


def _root(increasing: Callable[[float], float]) -> float:
    """Return the root to 1e-3, enough for a line near the saddle point."""
    low, high, step = -1.0, 1.0, 2.0
    while increasing(low) > 0.0:
        low, step = low - step, 2.0 * step
    step = 2.0
    while increasing(high) < 0.0:
        high, step = high + step, 2.0 * step
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if increasing(middle) > 0.0 else (middle, high)
    return low
