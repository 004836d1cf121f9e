"""Gaussian noise whose variance depends on the data (smooth sensitivity).

A mechanism outputs N(mu_X, s_X**2 I) in d dimensions, and for all neighbours X, X'

    s_X >= alpha ||mu_X - mu_X'||    and    |ln s_X**2 - ln s_X'**2| <= beta.

All such mechanisms are (epsilon, delta)-DP iff delta is at least the worst hockey-stick divergence H of two spherical
Gaussians that meet the two conditions. Scale the smaller standard deviation to 1; write H(a, b, D) for the divergence
of N(0, a**2 I) from N(v, b**2 I), ||v|| = D <= 1/alpha, and r in [1, exp(beta/2)] for the larger one. The worst pair
is known, by four facts:

1. *H grows with D.* H = 1 - integral of min(p, e q), e = exp(epsilon). By levels, the integral is one of volumes of
   intersections of two balls, {p > t} and {e q > t}. These shrink as the centres part.

2. *The wider one first is worse: H(1, r, D) <= H(r, 1, D) for d >= 2.* Let l be the log ratio of the wide density to
   the narrow one, M the Gaussian law proportional to the root of their product, Z its mass. Then

       H(r, 1, D) = 2 Z exp(epsilon/2) E_M[sinh((l - epsilon)_+/2)],    H(1, r, D) the same with -l for l,

   and E_M[sinh(l/2)] = 0, both densities having mass 1. Under M, l is a rising linear function of a noncentral
   chi-square variable x. Let l = 0 at x = x0, g be the density of l and G that of x. Since
   sinh((u - epsilon)_+/2)/sinh(u/2) does not fall in u > 0, it is enough that g(u) - g(-u) changes sign at most once on
   u > 0, from - to +. If G(x0 - u) > 0, the sign is that of w(u) = ln G(x0 + u) - ln G(x0 - u). This w is convex with
   w(0) = 0 if the third derivative of ln G is at least 0; beyond, the sign is +. With nu = d/2 - 1 >= 0, lambda the
   noncentrality and j_k the zeros of the Bessel function J_nu,

       ln G(x) = const - c x + nu ln x + sum over k of ln(1 + lambda x/j_k**2),    third derivative
       2 nu/x**3 + sum over k of 2/(x + j_k**2/lambda)**3 >= 0.

3. *H(r, 1, D) grows with r where D**2/2 - d ln r <= epsilon.* There the ball {p <= e q} holds the mean of p; widening
   p takes mass from it, so even the old ball's complement does better. For all r, H(r, 1, rho r) grows with r at
   fixed rho (scale by 1/r: now q shrinks, and its mean always lies in the ball). So with loss = D**2/2 the supremum
   over r is

       H(exp(beta/2), 1, D)                                                  if loss <= epsilon,
       at most the larger of that and H(r0, 1, D r0), r0 = exp(min(beta/2, (loss - epsilon)/d)),    otherwise.

   The second case needs a delta above sqrt(epsilon/pi) or so (0.29 at epsilon = 1, and never below a half for large
   epsilon); its bound is sound and nearly tight.

4. *H grows with d*: fewer coordinates are a post-processing. Fact 2 is not proved for d = 1, which is calibrated as
   d = 2: up to 0.6% more noise at the default beta for delta <= 1e-6, 2% to 12% at 0.01.

So no scan over the ratio is needed. The divergence is evaluated by `log_divergence`, rounded up, and every calibrated
pair is verified before it is returned.

*The divergence*, by one contour integral. For P = N(0, r**2 I) and Q = N(v, I) in d dimensions, r**2 = 1 + b > 1 and
||v|| = D, the privacy loss L = ln(dP/dQ) has under P a moment generating function in closed form. With y = 1 - s b,

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
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpfast import _arguments as check
from dpfast.privacy.guarantee import delta_for, down, gaussian_delta, gaussian_scale, largest_within, remembered, up

#: The default beta is the largest with an alpha of at most this many times that of noise of fixed size.
ALPHA_OVER_FLOOR = 1.25

# More than the rounding of `SmoothGaussian.scale` and of the float it returns, in logarithms of the variance.
_SCALE_ROUNDING = 2.0**-48
_LARGEST_ALPHA_OVER_FLOOR = 1e6
_EXTREME = 1e30
_BETA_WITHOUT_PRIVACY = 100.0
_SEARCHED_ALPHAS_OVER_FLOOR = (1.001, 8.0)
_SEARCH_POINTS = 25
# Logarithm of delta that a search may leave unused.
_SLACK = 1e-9


@dataclass(frozen=True)
class SmoothGaussian:
    """A calibration of Gaussian noise to a smooth upper bound on the local sensitivity.

    Let S be a bound on the local L2 sensitivity with a smooth square: ``|ln S(X)**2 - ln S(X')**2| <= smoothness()``
    for all neighbours. Add N(0, s**2) to every coordinate, with s the `scale` of S. **s is private**, as S is: neither
    s nor anything that depends on it (the noise's grid, the error of the release) may leave.

    Parameters
    ----------
    alpha : float
        Noise per unit of local sensitivity; 0 means no noise.
    beta : float
        Largest difference of the logarithms of the noise variances of neighbours; inf if there is no noise.

    Examples
    --------
    >>> from dpfast.privacy import smooth_gaussian
    >>> calibration = smooth_gaussian(epsilon=1.0, delta=1e-6, dim=10)
    >>> round(calibration.alpha, 3), round(calibration.beta, 4)
    (5.281, 0.0207)

    The grid of the noise comes from public numbers: the scales of the least and of the greatest bound that any data
    set could have.

    >>> from dpfast.noise import grid_for_scales
    >>> grid_for_scales(calibration.scale(0.001), calibration.scale(1.0)) == 2.0**-21
    True
    """

    alpha: float
    beta: float

    def scale(self, smooth_sensitivity: float, tau: float = 0.0) -> float:
        """Return the standard deviation of the noise, ``alpha (smooth_sensitivity + 2 tau)``, rounded up; private as S.

        S as computed is at least the exact one. `tau` is a public bound on the L2 error of the statistic **as
        computed**: two computed statistics lie at most ``local sensitivity + 2 tau`` apart. It is the same for all
        data, and so leaves S as smooth as it is: (S + c)/(S' + c) lies between S/S' and 1.
        """
        bound = Fraction(check.nonnegative("smooth_sensitivity", smooth_sensitivity))
        scale = up(Fraction(self.alpha) * (bound + 2 * Fraction(check.nonnegative("tau", tau))))
        if scale == math.inf:
            raise ValueError("the noise's scale is beyond the largest float")
        return scale

    def smoothness(self, relative_error: float = 2.0**-40) -> float:
        """Return the beta with which the exact bound S**2 must be smooth: `beta` minus the effect of rounding.

        This is ``beta - 2 u`` and a little less, as `scale` rounds too, for a public u = `relative_error` in [0, 1]
        with ``S <= smooth_sensitivity as computed <= (1 + u) S``.
        """
        error = check.real("relative_error", relative_error)
        if not 0.0 <= error <= 1.0:
            raise ValueError(f"relative_error must lie in [0, 1], got {error!r}")
        if self.beta == math.inf:
            return math.inf
        left = Fraction(self.beta) - 2 * Fraction(error) - Fraction(_SCALE_ROUNDING)
        if left <= 0:
            raise ValueError(
                "epsilon must be larger for noise whose size depends on the data: it leaves beta = "
                f"{self.beta:.3g}, of which rounding may take {2.0 * error:.3g} or more"
            )
        return down(left)


def smooth_gaussian(epsilon: float, delta: float, dim: int, beta: float | None = None) -> SmoothGaussian:
    """Smallest noise for (epsilon, delta)-DP if the noise variance may differ between neighbours.

    Noise N(0, s_X**2) on every coordinate is (epsilon, delta)-DP if ``s_X >= alpha * ||change of the statistic||`` and
    ``|ln s_X**2 - ln s_X'**2| <= beta`` for all neighbours X, X', under the adjacency for which both hold.

    Parameters
    ----------
    epsilon : float
        Positive; ``float("inf")`` means no noise.
    delta : float
        In (0, 1); 0 is accepted with an infinite epsilon.
    dim : int
        Number of coordinates that get noise, at least 1.
    beta : float, optional
        Positive, chosen without the data (for example by `best_beta`). Default: the largest with an alpha of at most
        1.25 times `gaussian_scale`, the alpha of noise of fixed size.

    Returns
    -------
    SmoothGaussian
        alpha, rounded up (with the default beta: beta rounded down), so `smooth_gaussian_delta` is at most ``delta``
        and less than 1e-8 (relative) below it. For ``dim=1`` it is the alpha of two coordinates.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range, or no alpha gives the target at this beta.

    References
    ----------
    Nissim, Raskhodnikova and Smith (2007), "Smooth sensitivity and sampling in private data analysis", STOC, for the
    idea; the worst case is derived above this module's imports.

    Examples
    --------
    The supplement of Balle, Gomrokchi and Precup (2016) needs alpha = 82.7 at this beta:

    >>> from dpfast.privacy import smooth_gaussian
    >>> round(smooth_gaussian(epsilon=1.0, delta=1e-6, dim=10, beta=0.003683).alpha, 3)
    4.367
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    dim = check.positive_integer("dim", dim)
    given = None if beta is None else check.positive("beta", beta)
    delta = delta_for(epsilon, delta)
    if epsilon == math.inf:
        return SmoothGaussian(0.0, math.inf if given is None else given)
    if given is None:
        alpha = ALPHA_OVER_FLOOR * gaussian_scale(epsilon, delta)
        return SmoothGaussian(alpha, _largest_beta(alpha, epsilon, delta, dim))
    return SmoothGaussian(_smallest_alpha(epsilon, delta, dim, given), given)


def smooth_gaussian_delta(alpha: float, beta: float, epsilon: float, dim: int) -> float:
    """Delta that noise with a smooth variance provides at an epsilon.

    The smallest delta, rounded up by less than 1e-8 relative; an upper bound on it for ``dim=1`` (that of two
    coordinates) and for ``alpha < 1/sqrt(2 epsilon)``. 1 for an alpha of 0, 0 for an infinite epsilon.

    Examples
    --------
    >>> from dpfast.privacy import smooth_gaussian_delta
    >>> f"{smooth_gaussian_delta(alpha=4.367, beta=0.003683, epsilon=1.0, dim=10):.2e}"
    '9.99e-07'
    """
    alpha = check.nonnegative("alpha", alpha)
    beta = check.nonnegative("beta", beta)
    epsilon = check.epsilon_value(epsilon)
    dim = check.positive_integer("dim", dim)
    if epsilon == math.inf:
        return 0.0
    if alpha == 0.0:
        return 1.0
    if beta == 0.0:
        return gaussian_delta(alpha, epsilon)
    return min(
        1.0, math.nextafter(math.exp(_log_delta(math.nextafter(1.0 / alpha, math.inf), beta, epsilon, dim)), 1.0)
    )


def best_beta(epsilon: float, delta: float, dim: int, variance: Callable[[float], float]) -> float:
    """Beta that minimises ``alpha(beta)**2 * variance(beta)``, the expected noise.

    `variance` is the square of the expected smooth sensitivity at a beta, positive and not rising with beta, **from
    public values only** (a guess at how often states are visited, say): a beta chosen from the data is not covered by
    the guarantee. The search covers betas with an alpha between 1.001 and 8 times `gaussian_scale`. Below this range
    alpha has nothing left to gain; above it the variance would have to fall 64 times.

    Examples
    --------
    A thousand people share one mean, so the local sensitivity is 1/1000 as long as nearly all are there:

    >>> from dpfast.privacy import best_beta
    >>> def variance(beta):
    ...     return max(math.exp(-k * beta) / (1000 - k) ** 2 for k in range(1000))
    >>> beta = best_beta(1.0, 1e-6, 10, variance)
    >>> round(beta, 3)
    0.014
    """
    epsilon, delta = check.positive("epsilon", epsilon), check.delta_value(delta)
    dim = check.positive_integer("dim", dim)
    if not callable(variance):
        raise TypeError(f"variance must be a function of beta, got {type(variance).__name__}")
    return (_best_beta if isinstance(variance, UsualVariance) else _search_best_beta)(epsilon, delta, dim, variance)


class UsualVariance(ABC):
    """A variance from public numbers: two of one class with the same numbers are equal."""

    @abstractmethod
    def __call__(self, beta: float) -> float:
        """Return the variance at a beta, in any unit."""


def _search_best_beta(epsilon: float, delta: float, dim: int, variance: Callable[[float], float]) -> float:
    floor = gaussian_scale(epsilon, delta)
    lowest, highest = (math.log(ratio - 1.0) for ratio in _SEARCHED_ALPHAS_OVER_FLOOR)

    def noise(position: float) -> tuple[float, float]:
        ratio = 1.0 + math.exp(position)
        beta = _largest_beta(ratio * floor, epsilon, delta, dim)
        return ratio**2 * check.positive("variance(beta)", variance(beta)), beta

    # A grid first: the maximum over k inside a smooth sensitivity gives the noise several local minima.
    step = (highest - lowest) / (_SEARCH_POINTS - 1)
    positions = [lowest + step * index for index in range(_SEARCH_POINTS)]
    best = min(positions, key=lambda position: noise(position)[0])
    while step > 1e-3:
        step /= 2.0
        around = (best, max(lowest, best - step), min(highest, best + step))
        best = min(around, key=lambda position: noise(position)[0])
    return noise(best)[1]


_best_beta = remembered(_search_best_beta)


def _log_delta(distance: float, beta: float, epsilon: float, dim: int) -> float:
    """Return the logarithm of the worst divergence, rounded up; distance = 1/alpha. Facts 3 and 4 above."""
    if distance > _EXTREME or beta > _BETA_WITHOUT_PRIVACY:
        return 0.0
    # It grows with the first two and falls in the third, so that no square leaves the range of floats.
    distance, beta, epsilon = max(distance, 1.0 / _EXTREME), max(beta, 1.0 / _EXTREME), min(epsilon, _EXTREME)
    dim = max(dim, 2)
    worst = log_divergence(beta, distance, epsilon, dim)
    excess = 0.5 * distance * distance - epsilon
    if excess > 0.0:
        log_ratio = min(beta, 2.0 * excess / dim)
        worst = max(worst, log_divergence(log_ratio, distance * math.exp(0.5 * log_ratio), epsilon, dim))
    return worst + ACCURACY


def _log_target(delta: float) -> float:
    """Return log(delta) minus the rounding errors made here and in the verification."""
    return math.log(delta) - 1e-12


@lru_cache(maxsize=1024)
def _smallest_alpha(epsilon: float, delta: float, dim: int, beta: float) -> float:
    floor = gaussian_scale(epsilon, delta)
    target = _log_target(delta)
    if _log_delta(1.0 / (_LARGEST_ALPHA_OVER_FLOOR * floor), beta, epsilon, dim) > target:
        usual = _largest_beta(ALPHA_OVER_FLOOR * floor, epsilon, delta, dim)
        raise ValueError(
            f"beta = {beta:.6g} is too large: no noise with such different variances is ({epsilon:g}, {delta:g})-DP in "
            f"{dim} dimensions. The default is {usual:.3g}"
        )
    distance = largest_within(lambda one: _log_delta(one, beta, epsilon, dim), target, 1.0 / floor, slack=_SLACK)
    # 1/alpha is rounded up in the verification, hence two more roundings here.
    return up(1 / Fraction(distance)) * (1.0 + 2.0**-51)


@lru_cache(maxsize=1024)
def _largest_beta(alpha: float, epsilon: float, delta: float, dim: int) -> float:
    distance = math.nextafter(1.0 / alpha, math.inf)
    guess = epsilon / (dim + 50.0)
    return largest_within(lambda one: _log_delta(distance, one, epsilon, dim), _log_target(delta), guess, slack=_SLACK)


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
    tilt = min(max(skew / (3.0 * curvature**2), 0.25 * width), 0.7 * width)
    steps = tilt * _COSH_LESS_1 + 1j * width * _SINH
    nodes = saddle + steps
    speeds = tilt * _SINH + 1j * width * _COSH
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
