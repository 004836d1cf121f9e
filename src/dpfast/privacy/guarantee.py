"""The guarantee, (epsilon, delta) under one notion of neighbouring tables, and how much noise gives it to one release.

*The guarantee* in plain words is for readers who do not know epsilon. The laws of noise are used by several mechanisms;
their moments follow from public numbers.

*Rounding towards privacy.* Single operations are rounded exactly, and one margin covers the accumulated rounding of a
formula. The results of searches are verified, so no search needs to be exact.

*Gaussian noise*: the analytic calibration [6]_, its inverses, composition and split by mu [4]_. Results are rounded
towards privacy: a scale up, a mu down, and a delta or an epsilon of given noise up. The kernel is accurate to about
2e-15 relative. `_EVALUATION_MARGIN` allows ten times that, and every calibrated value is verified before it is
returned.

*Pure mechanisms*: L2-Laplace [1]_ and Laplace [2]_ noise, and the exponential mechanism's coefficient [3]_.

*The Gaussian of a range.* Of two laws P and Q let log(P/Q) stay within an interval of length r. Examples are the
exponential mechanism, if one person moves its exponents by amounts in an interval of length r, and any epsilon-DP
mechanism, with r = 2 epsilon. Then P and Q are mu-Gaussian-differentially private [4]_ with ``mu = 2 Phi^-1(1/(1 +
exp(-r/2)))``, about .627 r for small r.

*Proof.* P/Q lies in some [a, b] with log(b/a) = r, and its mean under Q is 1. A convex function of it is at most its
chord's value there, so its mean under Q is at most the chord's at 1. The law on {a, b} attains this. Of all such pairs
it thus has the largest divergence for every threshold, and so the least trade-off function (so do Dong, Durfee and
Rogers [5]_). This function is the polygon from (0, 1) over (q, 1 - p) to (1, 0), with p and q the probabilities of b,
and ``logit(p) - logit(q) = log(b) - log(a) = r``. The trade-off function of mu-GDP is convex with the same ends. It is
below the polygon if it is below (q, 1 - p), that is, if Phi^-1(p) - Phi^-1(q) <= mu.

h(u) = Phi^-1(1/(1 + exp(-u))) is odd, and concave where u > 0 (below). So h' is even and falls in |u|, and over all
windows of length r its integral, Phi^-1(p) - Phi^-1(q), is largest over that about 0: 2 h(r/2) = mu.

h is concave where u > 0: with z = h(u), h' = Phi(z) Phi(-z)/phi(z), and its logarithm falls in z if
``D = phi (1 - 2 q) - z q (1 - q) >= 0`` for q = Phi(-z), phi = phi(z) and z > 0. D is 0 at 0 and at infinity, and
``D' = 2 phi^2 - q (1 - q)`` is 1/pi - 1/4 > 0 at 0. ``D'' = phi F`` with F = (1 - 2q) - 4 z phi, and
``F' = phi (4 z^2 - 2)``: F is 0 at 0, falls, then rises to 1. So D' falls, then rises to 0 at infinity: it is positive,
then negative; and D rises, then falls to 0.

References
----------
.. [1] Hardt, M., Talwar, K. (2010). On the geometry of differential privacy. STOC. Section 4, with the Euclidean ball
   for K.
.. [2] Dwork, C., McSherry, F., Nissim, K., Smith, A. (2006). Calibrating noise to sensitivity in private data analysis.
   TCC. Proposition 1.
.. [3] McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Theorem 6.
.. [4] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. JRSS B 84(1). Section 2,
   Corollaries 1 and 2.
.. [5] Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms.
   ICML. Lemma 3.1 and Section 4.
.. [6] Balle, B., Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy. ICML. Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, ParamSpec, TypeVar, cast

from dpfast import _arguments as check
from dpfast._documents import card, facts
from dpfast.kernels import normal

Adjacency = Literal["replace_one", "add_remove"]

Calibration = Literal["sound", "paper"]

#: Whose data a guarantee is for: a row of the fitted table, or all rows of one person in it.
Unit = Literal["row", "person"]


class UnsoundCalibrationWarning(UserWarning):
    """A requested printed algorithm misses the guarantee printed with it."""


class UtilityWarning(UserWarning):
    """Public sizes alone show that the answer will be mostly noise."""


class LargeDeltaWarning(UserWarning):
    """The public number of people shows that delta permits to publish somebody's record as it is."""


class ReleasedUtilityWarning(UtilityWarning):
    """The releases show that the answer will be mostly noise: computed from them alone, it reveals nothing else."""


#: Relative slack: a ledger's sums may be this much above its budget, and calibrations aim as much below their target.
SLACK = 2.0**-40


@dataclass(frozen=True)
class Privacy:
    """An (epsilon, delta) differential-privacy guarantee under one notion of neighbouring tables.

    Parameters
    ----------
    epsilon : float
        Bound on the log likelihood ratio; positive, ``inf`` for no privacy at all.
    delta : float, default 0.0
        Probability mass to which the bound need not apply, in [0, 1); 0 is pure differential privacy.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Which tables are neighbours: one record replaced (the number of records is public), or one record more or
        less (the number of records is private).

    Raises
    ------
    TypeError
        If epsilon or delta is not a real number.
    ValueError
        If epsilon is not positive, delta is outside [0, 1) or the adjacency is unknown.

    Examples
    --------
    >>> from dpfast import Privacy
    >>> Privacy(1.0, 1e-6)
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        epsilon = check.positive_or_inf("epsilon", self.epsilon)
        delta = check.real("delta", self.delta)
        if not 0.0 <= delta < 1.0:
            raise ValueError(f"delta must be in [0, 1), got {delta!r}")
        check.choice("adjacency", self.adjacency, check.ADJACENCIES)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def target(self) -> tuple[float, float]:
        """Epsilon and delta to calibrate for: below the guarantee by the slack of a ledger's sums."""
        return self.epsilon * (1.0 - SLACK), self.delta * (1.0 - SLACK)

    @property
    def finite_target(self) -> tuple[float, float]:
        """The same; refuses a guarantee with infinite epsilon, which needs no noise."""
        if math.isinf(self.epsilon):
            raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
        return self.target

    @classmethod
    def of_sum(cls, epsilon: float, delta: float, adjacency: Adjacency) -> Privacy:
        """Return a sum of guarantees; unlike a single one it may be zero."""
        privacy = object.__new__(cls)
        for name, value in (("epsilon", epsilon), ("delta", delta), ("adjacency", adjacency)):
            object.__setattr__(privacy, name, value)
        return privacy

    def _repr_html_(self) -> str:
        said = {
            "epsilon": f"{self.epsilon:.6g}",
            "delta": f"{self.delta:.6g}",
            "neighbours": NEIGHBOURS[self.adjacency],
        }
        return card("Privacy", facts([*said.items(), ("meaning", plain_words(self))]))

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.6g}, delta {self.delta:.6g}, {self.adjacency.replace('_', '-')}"


#: Independent normal coordinates, or one vector whose length is Gamma distributed and whose direction is uniform.
Law = Literal["Gaussian", "L2-Laplace"]


def law_for(privacy: Privacy) -> Law:
    """Return the law to use for a guarantee: the pure one if delta is 0."""
    return "Gaussian" if privacy.delta > 0.0 else "L2-Laplace"


def coordinate_deviation(law: Law, scale: float, dim: int) -> float:
    """Return the standard deviation of one of `dim` coordinates."""
    return scale if law == "Gaussian" else scale * math.sqrt(dim + 1.0)


def expected_length(law: Law, scale: float, dim: int) -> float:
    """Bound the expected length of noise of `dim` coordinates; that of L2-Laplace noise is this."""
    return scale * (math.sqrt(dim) if law == "Gaussian" else dim)


NEIGHBOURS = {
    "replace_one": "one person's record is replaced by any other; the number of people is public",
    "add_remove": "one person's record comes or goes; the number of people is private",
}
_SUBJECTS = {
    "replace_one": "what a person's record says",
    "add_remove": "whether a person's record is in the table, and what it says,",
}
UNITS = {
    "row": "a row of the table that was fitted (in a panel a donor, among trajectories a trajectory)",
    "person": "a person, with all of their rows",
}


def plain_words(cost: Privacy) -> str:
    """Return a guarantee, or a sum of guarantees, as a sentence."""
    if math.isinf(cost.epsilon):
        return "no privacy protection: the results are exact"
    if cost.epsilon == cost.delta == 0.0:
        return "nothing has been released"
    # Rounded up: a promise must not sound better than it is.
    excess = math.expm1(cost.epsilon) if cost.epsilon < 700.0 else math.inf
    factor = f"e^{cost.epsilon:.6g}" if excess > 1e6 else f"{1.0 + _up_to_digits(excess, 3):.10g}"
    sentence = f"{_SUBJECTS[cost.adjacency]} changes the probability of any result by a factor of at most {factor}"
    return sentence if cost.delta == 0.0 else f"{sentence}, except with probability about {cost.delta:.2g}"


def _up_to_digits(value: float, digits: int) -> float:
    """Round a number that is not negative up to some significant digits."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit) * unit


Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

#: Factors on a computed positive number. Each covers 500 relative roundings of 2^-53: a formula of a few dozen
#: operations with terms of one sign, and elementary functions, computed by libraries to a few units in the last place.
ROUND_UP, ROUND_DOWN = 1.0 + 2.0**-44, 1.0 - 2.0**-44

_TRIES = 48
_REMEMBERED = 256


def remembered(search: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Cache a search's latest answers: fits with the same public numbers search once.

    Its arguments are checked numbers and words. They alone decide the answer, and nobody can change it. No argument is
    private, so the order of earlier calls is not private either. No object of the caller is kept, as it could change.
    """
    return cast("Callable[Arguments, Result]", lru_cache(maxsize=_REMEMBERED, typed=True)(search))


def first_that_holds(
    candidate: Callable[[float], Result],
    holds: Callable[[Result], bool],
    otherwise: str = "the arguments ask for noise beyond the range of floats",
) -> Result:
    """Return the first candidate that holds, each made with a little more to spare: (2^k - 1) 2^-52, k = 0, 1, ...

    Almost always the first one holds. More are needed if rounding an answer moves the checked value by more than a
    margin.
    """
    for attempt in range(_TRIES):
        found = candidate((2.0**attempt - 1.0) * 2.0**-52)
        if holds(found):
            return found
    raise ValueError(otherwise)


def largest_within(
    function: Callable[[float], float], target: float, guess: float, *, precision: float = 1e-12, slack: float = 0.0
) -> float:
    """Return nearly the largest positive number at which an increasing function is verified to be at most the target.

    To the (relative) precision, or within `slack` of the target. Secant steps in the logarithm of the number,
    bracketed, with Illinois's rule against a side that stays.
    """
    low = high = guess
    at_low = at_high = function(guess) - target
    factor = 1.5
    while at_low > 0.0:
        high, at_high = low, at_low
        low, factor = low / factor, min(factor * factor, 16.0)
        at_low = function(low) - target
    while at_high <= 0.0:
        low, at_low = high, at_high
        high, factor = high * factor, min(factor * factor, 16.0)
        at_high = function(high) - target
    weight_low, weight_high, last = at_low, at_high, 0.0
    while high - low > precision * low and at_low < -slack:
        share = weight_low / (weight_low - weight_high)
        middle = low * (high / low) ** min(max(share, 1e-3), 1.0 - 1e-3)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        at_middle = function(middle) - target
        # If one side stays while the other moves twice, plain secant steps would be slow.
        stays = 0.5 if at_middle * last > 0.0 else 1.0
        if at_middle <= 0.0:
            low, at_low, weight_low, weight_high = middle, at_middle, at_middle, stays * weight_high
        else:
            high, weight_high, weight_low = middle, at_middle, stays * weight_low
        last = at_middle
    return low


def bisected(holds: Callable[[float], bool], low: float, high: float, steps: int) -> tuple[float, float]:
    """Halve an interval with a condition that holds at its low end and fails at its high end."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def least_at(cost: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    """Return approximately the minimiser, within an interval, of a function with one minimum."""
    from scipy.optimize import minimize_scalar  # takes longer to import than all of dpfast.privacy

    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": tolerance}).x)


def up(exact: Fraction) -> float:
    """Return the smallest float that is at least a nonnegative rational; inf beyond the largest float."""
    above, below = exact.numerator, exact.denominator
    try:
        value = above / below  # of integers correctly rounded, however long they are
    except OverflowError:
        return math.inf
    numerator, denominator = value.as_integer_ratio()
    return value if numerator * below >= above * denominator else math.nextafter(value, math.inf)


def down(exact: Fraction) -> float:
    """Return the largest float that is at most a nonnegative rational."""
    value = up(exact)
    return value if math.isfinite(value) and Fraction(value) == exact else math.nextafter(value, 0.0)


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least a nonnegative rational."""
    return sqrt_ratio_up(exact.numerator, exact.denominator)


def sqrt_ratio_up(above: int, below: int) -> float:
    """Return the smallest float whose square is at least a nonnegative quotient of integers."""
    if above == 0:
        return 0.0
    # Scaled so that the integer root keeps more than 53 bits and no intermediate leaves the range of floats.
    shift = 2 * ((128 - above.bit_length() + below.bit_length()) // 2)
    root = math.isqrt(-(-(above << max(shift, 0)) // (below << max(-shift, 0))) - 1) + 1
    try:
        value = (root << max(-shift // 2, 0)) / (1 << max(shift // 2, 0))
    except OverflowError:
        return math.inf
    # The nearest float to the root, or the next.
    numerator, denominator = value.as_integer_ratio()
    return value if numerator**2 * below >= above * denominator**2 else math.nextafter(value, math.inf)


def sqrt_down(exact: Fraction) -> float:
    """Return the largest float whose square is at most a nonnegative rational."""
    root = sqrt_up(exact)
    return root if Fraction(root) ** 2 == exact else math.nextafter(root, 0.0)


def quotient_up(**numbers: float) -> float:
    """Return the first number over the second (possibly infinite), rounded up; the names are for error messages."""
    (above, size), (below, bound) = numbers.items()
    if type(bound) is not float or not bound > 0.0:  # most are known without a call
        bound = check.positive_or_inf(below, bound)
    if type(size) is not float or not 0.0 < size < math.inf:
        size = check.positive(above, size)
    if bound == math.inf:
        return 0.0
    quotient = size / bound  # correctly rounded
    if quotient == math.inf:
        raise ValueError(f"{above}/{below} is beyond the largest float")
    (numerator, unit), (found, of_found) = size.as_integer_ratio(), quotient.as_integer_ratio()
    denominator, unit_below = bound.as_integer_ratio()
    is_enough = found * denominator * unit >= numerator * unit_below * of_found
    return quotient if is_enough else math.nextafter(quotient, math.inf)


_EVALUATION_MARGIN = 2e-14
_SOLVING_MARGIN = 1e-13
_INVERTING_MARGIN = 4e-14
_SMALLEST, _LARGEST = 1e-300, 1e300
# Epsilon is at least about mu**2/2, and nearly leaves the range of floats, from here on.
_MU_WITHOUT_EPSILON = 1e150


def gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Smallest Gaussian noise that gives (epsilon, delta)-differential privacy [1]_.

    Adding N(0, scale**2) to every coordinate of a statistic is (epsilon, delta)-DP if one person can move the statistic
    by at most ``sensitivity`` in the L2 norm. It holds under the adjacency of the sensitivity.

    Parameters
    ----------
    epsilon : float
        At least 0; ``float("inf")`` means no noise.
    delta : float
        In (0, 1), at least the smallest normal float (2.2e-308); 0 is accepted with an infinite epsilon.
    sensitivity : float
        L2 sensitivity, positive, in the units of the statistic.

    Returns
    -------
    float
        Standard deviation in the units of the statistic; 0 for ``epsilon=float("inf")``. Its exact delta is never above
        the target and less than 1e-12 (relative) below for epsilon up to 1e3 and delta down to 1e-30.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range; for delta = 0, which no Gaussian noise meets.

    References
    ----------
    .. [1] Balle, B., Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy. ICML. Theorem 8.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_scale
    >>> round(gaussian_scale(epsilon=1.0, delta=1e-6), 4)
    4.2247
    """
    epsilon = check.epsilon_value(epsilon)
    delta = delta_for(epsilon, delta)
    sensitivity = check.positive("sensitivity", sensitivity)
    return 0.0 if epsilon == math.inf else _scale(epsilon, delta, sensitivity)


@remembered
def _scale(epsilon: float, delta: float, sensitivity: float) -> float:
    def scale_at(log_delta: float, bump: float) -> float:
        return sensitivity / normal.solve_mu(epsilon, log_delta) * (1.0 + bump)

    return _verified(scale_at, lambda scale: _delta_up(scale, epsilon, sensitivity), delta)


def gaussian_delta(scale: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """Delta that given Gaussian noise provides at an epsilon; nothing is released, and no data is read.

    Parameters
    ----------
    scale : float
        Standard deviation of the noise, at least 0.
    epsilon : float
        At least 0.
    sensitivity : float
        L2 sensitivity, positive, in the units of the scale.

    Returns
    -------
    float
        The smallest delta, rounded up by less than 1e-12 relative; 1 for a scale of 0, 0 for an infinite epsilon.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_delta
    >>> f"{gaussian_delta(scale=4.2247, epsilon=1.0):.2e}"
    '1.00e-06'
    """
    scale = check.nonnegative("scale", scale)
    epsilon = check.epsilon_value(epsilon)
    sensitivity = check.positive("sensitivity", sensitivity)
    if epsilon == math.inf:
        return 0.0
    return _delta_up(scale, epsilon, sensitivity) if scale > 0.0 else 1.0


def gaussian_epsilon(scale: float, delta: float, sensitivity: float = 1.0) -> float:
    """Epsilon that given Gaussian noise provides at a delta, rounded up.

    The rounding is loose near delta = 1 (about 1e-6 relative at 1 - 1e-8, more beyond). Infinite for a scale of 0, and
    where sensitivity/scale is 1e150 or more.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_epsilon
    >>> round(gaussian_epsilon(scale=4.2247, delta=1e-6), 4)
    1.0
    """
    scale = check.nonnegative("scale", scale)
    delta = check.delta_value(delta)
    sensitivity = check.positive("sensitivity", sensitivity)
    if scale == 0.0 or sensitivity / scale >= _MU_WITHOUT_EPSILON:
        return math.inf
    return _epsilon(scale, delta, sensitivity)


@remembered
def _epsilon(scale: float, delta: float, sensitivity: float) -> float:
    if _delta_up(scale, 0.0, sensitivity) <= delta:
        return 0.0

    def epsilon_at(log_delta: float, bump: float) -> float:
        return normal.solve_epsilon(scale, sensitivity, log_delta) * (1.0 + bump)

    # Less margin than gaussian_scale takes, so that its inverse gives epsilon back, to the last digits.
    return _verified(epsilon_at, lambda epsilon: _delta_up(scale, epsilon, sensitivity), delta, _INVERTING_MARGIN)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-Gaussian-DP implies (epsilon, delta)-DP, rounded down; inf for an infinite epsilon.

    Releases calibrated together share this budget: releases of mu_1, mu_2, ... (also adaptively chosen) are together
    sqrt(mu_1**2 + mu_2**2 + ...)-GDP, and a Gaussian release is (sensitivity/scale)-GDP.

    Examples
    --------
    >>> from dpfast.privacy import gaussian_mu
    >>> round(gaussian_mu(epsilon=1.0, delta=1e-6), 4)
    0.2367
    """
    epsilon = check.epsilon_value(epsilon)
    delta = delta_for(epsilon, delta)
    return math.inf if epsilon == math.inf else _mu(epsilon, delta)


@remembered
def _mu(epsilon: float, delta: float) -> float:
    def mu_at(log_delta: float, bump: float) -> float:
        return normal.solve_mu(epsilon, log_delta) * (1.0 - bump)

    return _verified(mu_at, lambda mu: _delta_up(1.0, epsilon, mu), delta)


def scale_for_mu(mu: float, sensitivity: float = 1.0) -> float:
    """Gaussian noise that makes a release mu-GDP: ``sensitivity/mu``, rounded up; 0 for an infinite mu.

    >>> from dpfast.privacy import scale_for_mu
    >>> scale_for_mu(0.25, sensitivity=2.0)
    8.0
    """
    return quotient_up(sensitivity=sensitivity, mu=mu)


def compose_mu(mus: Iterable[float]) -> float:
    """Return the mu of several mu-GDP releases together, adaptively chosen or not: ``sqrt(sum(mu**2))``, rounded up.

    >>> from dpfast.privacy import compose_mu
    >>> compose_mu([3, 4])
    5.0
    """
    checked = tuple(mus)
    if set(map(type, checked)) != {float}:
        checked = tuple(check.real(f"mus[{index}]", mu) for index, mu in enumerate(checked))
    for index, value in enumerate(checked):
        if not value >= 0.0:
            raise ValueError(f"mus[{index}] must be at least 0, got {value!r}")
    return _compose_mu(checked)


@remembered
def _compose_mu(mus: tuple[float, ...]) -> float:
    if math.inf in mus:
        return math.inf
    return sqrt_up(sum((Fraction(mu) ** 2 for mu in mus), Fraction(0)))


def split_mu(mu: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Split a budget over releases, shares of mu**2 in proportion to the weights; `compose_mu` of them is at most mu.

    >>> from dpfast.privacy import split_mu
    >>> split_mu(5, [9, 16])
    (3.0, 4.0)
    """
    mu = check.positive_or_inf("mu", mu)
    shares = check.positives("weights", weights)
    if mu == math.inf:
        return (math.inf,) * len(shares)
    # Each square is rounded down, so the shares add up to at most mu**2, whatever their number.
    square = Fraction(mu) ** 2
    total = sum(map(Fraction, shares))
    return tuple(sqrt_down(square * Fraction(share) / total) for share in shares)


def least_noise_split(
    mu: float, sensitivities: Sequence[float], weights: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Split a budget over independent releases so that the weighted sum of their noise variances is least.

    Minimises ``sum(weight * scale**2)`` with ``scale = sensitivity/mu_i``; weights are all 1 if omitted. At the optimum
    ``mu_i**2`` is proportional to ``sqrt(weight) * sensitivity``. (The moments of the same rows cannot all be worst at
    once: `moment_scales` does better.)

    Examples
    --------
    >>> from dpfast.privacy import least_noise_split
    >>> least_noise_split(5, sensitivities=[9, 16])
    (3.0, 4.0)
    """
    movable = check.positives("sensitivities", sensitivities)
    costs = [1.0] * len(movable) if weights is None else check.positives("weights", weights)
    if len(costs) != len(movable):
        raise ValueError(f"weights must have the length of sensitivities, {len(movable)}, got {len(costs)}")
    shares = [math.sqrt(cost) * moved for cost, moved in zip(costs, movable, strict=True)]
    for index, share in enumerate(shares):
        if not 0.0 < share < math.inf:
            raise ValueError(f"sqrt(weights[{index}]) * sensitivities[{index}] leaves the range of floats: {share!r}")
    return split_mu(mu, shares)


def classic_gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the textbook scale ``sqrt(2 ln(1.25/delta)) sensitivity/epsilon``, for reproducing printed algorithms.

    Its proof (Dwork and Roth 2014, Theorem A.1) needs epsilon below 1. Above 1, the formula goes on falling like
    1/epsilon, while the noise needed falls like 1/sqrt(2 epsilon). So the guarantee fails at large epsilon (at delta =
    1e-6, from about 9). Below 1 the formula gives 1.2 to 1.5 times the scale of `gaussian_scale` at usual deltas.

    >>> from dpfast.privacy import classic_gaussian_scale
    >>> round(classic_gaussian_scale(epsilon=1.0, delta=1e-6), 4)
    5.2988
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    delta = check.delta_value(delta)
    return math.sqrt(2.0 * math.log(1.25 / delta)) * check.positive("sensitivity", sensitivity) / epsilon


def delta_for(epsilon: float, delta: object) -> float:
    """Return a delta in (0, 1); 0 is accepted if epsilon is infinite and no noise is needed."""
    if epsilon == math.inf and check.real("delta", delta) == 0.0:
        return 0.0
    return check.delta_value(delta)


def _delta_up(scale: float, epsilon: float, sensitivity: float) -> float:
    delta = normal.gaussian_delta(scale, epsilon, sensitivity) * (1.0 + _EVALUATION_MARGIN)
    # Below the range of floats the kernel returns 0, and no exact delta is 0.
    return min(1.0, math.nextafter(delta, 1.0))


def _verified(
    solve: Callable[[float, float], float],
    delta_at: Callable[[float], float],
    delta: float,
    margin: float = _SOLVING_MARGIN,
) -> float:
    """Solve for a log delta a little below the target, until the verified delta of the solution is at most the target.

    The first try almost always holds. If one unit in the last place of the answer moves delta by more than the margin
    (t v > 100 in the kernel's notation), a few more tries each aim a little lower.
    """
    log_delta, outside = math.log(delta), f"the arguments ask for a number outside [{_SMALLEST}, {_LARGEST}]"

    def holds(value: float) -> bool:
        if not _SMALLEST <= value <= _LARGEST and value != 0.0:
            raise ValueError(outside)
        return delta_at(value) <= delta

    return first_that_holds(lambda extra: solve(log_delta - margin * (1.0 + extra * 2.0**52), extra), holds, outside)


def l2_laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Scale of L2-Laplace (K-norm) noise that gives epsilon-differential privacy: ``sensitivity/epsilon``, rounded up.

    The noise vector has density proportional to ``exp(-||v||_2/scale)``: a uniform direction and a radius of law
    Gamma(shape = dimension, scale). Adding it to a statistic is (epsilon, 0)-DP in any dimension, if one person can
    move the statistic by at most ``sensitivity`` in the L2 norm. It holds under the adjacency of the sensitivity. (A
    radius of any other law, such as a one-dimensional Laplace or exponential, is private for no epsilon in two
    dimensions or more.) 0 for an infinite epsilon.

    Examples
    --------
    >>> from dpfast.privacy import l2_laplace_scale
    >>> l2_laplace_scale(epsilon=0.5, sensitivity=2.0)
    4.0
    """
    return quotient_up(sensitivity=sensitivity, epsilon=epsilon)


def laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Scale of independent Laplace noise that gives epsilon-differential privacy: ``sensitivity/epsilon``, rounded up.

    Every coordinate gets density proportional to ``exp(-|v|/scale)``; the sensitivity is the most that one person can
    move the statistic in the **L1** norm.

    Examples
    --------
    >>> from dpfast.privacy import laplace_scale
    >>> laplace_scale(epsilon=0.5, sensitivity=1.0)
    2.0
    """
    return quotient_up(sensitivity=sensitivity, epsilon=epsilon)


def l2_laplace_expected_norm(scale: float, dim: int) -> float:
    """Return the mean Euclidean norm of L2-Laplace noise in `dim` coordinates: ``dim * scale``, of its Gamma radius."""
    return check.nonnegative("scale", scale) * check.positive_integer("dim", dim)


def l2_laplace_norm_quantile(scale: float, dim: int, level: float) -> float:
    """Return the norm that L2-Laplace noise stays below with probability ``level``: a quantile of Gamma(dim, scale)."""
    from scipy.special import gammaincinv  # takes longer to import than all of dpfast.privacy

    level = check.share("level", level)
    return check.nonnegative("scale", scale) * float(gammaincinv(check.positive_integer("dim", dim), level))


def l2_laplace_coordinate_quantile(scale: float, dim: int, level: float) -> float:
    """Return the absolute value that a coordinate of L2-Laplace noise stays below with probability ``level``.

    The same holds for any other direction of unit length. The coordinate is a Gaussian with random variance ``2 W
    scale**2``, W a Gamma((dim + 1)/2) variable. So the tail is the mean of ``erfc(t/(2 scale sqrt(W)))``: a smooth
    function of W's distribution function, integrated over [0, 1].

    Examples
    --------
    >>> from dpfast.privacy import l2_laplace_coordinate_quantile
    >>> round(l2_laplace_coordinate_quantile(1.0, dim=1, level=0.95), 4)
    2.9957
    """
    scale, dim = check.positive("scale", scale), check.positive_integer("dim", dim)
    return scale * _unit_coordinate_quantile(dim, check.share("level", level))


@lru_cache(maxsize=64)
def _unit_coordinate_quantile(dim: int, level: float) -> float:
    from scipy.integrate import quad
    from scipy.special import gammaincinv  # both take longer to import than all of dpfast.privacy

    def tail(t: float) -> float:
        shape = 0.5 * (dim + 1)
        return float(quad(lambda p: math.erfc(0.5 * t / math.sqrt(gammaincinv(shape, p))), 0.0, 1.0, epsabs=1e-12)[0])

    return largest_within(lambda t: -tail(t), level - 1.0, 1.0, precision=1e-10)


def exponential_mechanism_coefficient(epsilon: float, score_sensitivity: float, *, monotone: bool = False) -> float:
    """Coefficient of the score in the weights ``exp(coefficient * score)`` of the exponential mechanism, rounded down.

    Sampling with these weights is (epsilon, 0)-DP. The coefficient is ``epsilon/(2 a)`` if one person can move any
    score **as computed** by at most a. It is ``epsilon/a`` if an added record can move all scores in one direction only
    (`monotone`, add/remove adjacency). It is inf, the best candidate without noise, for an infinite epsilon.

    Examples
    --------
    >>> from dpfast.privacy import exponential_mechanism_coefficient
    >>> exponential_mechanism_coefficient(epsilon=1.0, score_sensitivity=2.0)
    0.25
    """
    epsilon = check.positive_or_inf("epsilon", epsilon)
    spread = Fraction(check.positive("score_sensitivity", score_sensitivity)) * (
        1 if check.boolean("monotone", monotone) else 2
    )
    return math.inf if epsilon == math.inf else down(Fraction(epsilon) / spread)


def range_mu(length: float) -> float:
    """Return the mu of log ratios in an interval of that length, rounded up.

    >>> from dpfast.privacy import range_mu
    >>> round(range_mu(1.0), 4)
    0.6239
    """
    from scipy.special import erfinv, ndtri_exp  # takes longer to import than all of dpfast.privacy

    half = check.positive("length", length) / 2.0
    if half < 1.0:
        # erf(mu/sqrt(8)) = 2 p - 1, without the cancellation of quantiles near one half.
        return float(math.sqrt(8.0) * erfinv(math.tanh(half / 2.0))) * ROUND_UP
    # log(1 - p), without the underflow of 1 - p.
    return float(-2.0 * ndtri_exp(-half - math.log1p(math.exp(-half)))) * ROUND_UP


def range_of_mu(mu: float) -> float:
    """Return a length with `range_mu` at most a mu, near the largest such length.

    >>> from dpfast.privacy import range_mu, range_of_mu
    >>> range_mu(range_of_mu(0.25)) <= 0.25
    True
    """
    from scipy.special import log_ndtr  # takes longer to import than all of dpfast.privacy

    half = check.positive("mu", mu) / 2.0
    length = 2.0 * float(log_ndtr(half) - log_ndtr(-half)) * ROUND_DOWN
    while range_mu(length) > mu:
        # The difference of logarithms cancels if mu is small.
        length *= 1.0 - 2.0**-20
    return length
