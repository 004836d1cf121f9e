"""How much noise makes the choice of a support private: by scores or votes at once, or by picks one after another.

*Scores* are least sums of losses ``(y - x'theta)**2/2`` over the parameters of a support with ``|theta_j| <= 1``. An
added record z moves the score of a support by an amount between the least and the largest loss of z there. If |y| and
|x'theta| are bounded, these amounts lie, for all supports, within one interval of the length R of `loss_range`. If one
record takes the place of another, the length is 2 R. If every computed score is within tau of the exact one, up to a
shift that all share, the length grows by 4 tau. The exponential mechanism with the rate epsilon/length is epsilon-DP,
since exp(-rate * score)/(their sum) changes by at most exp(rate * length). (This needs neither scores that only grow
nor a bound on each: a common part of the changes cancels.)

*Votes*: rows are assigned to blocks at random, without looking at them, and each block votes for at most s features. A
person who leaves, joins or takes another's place affects one block only. Changing the votes of one block changes the
counts by at most 2 s in the L1 norm and sqrt(2 s) in the L2 norm.

*Picks*, adaptive and of a bounded range, are made beside Gaussian releases. Below are their composition, and their
share of a budget. A pick has the range r if, for any two neighbouring tables, the log ratios of its outcomes lie within
some interval of the length r. An example is the exponential mechanism, if one person moves its exponents by amounts in
an interval of that length. Let k such picks and Gaussian releases of mu together be made in any order, each chosen in
view of all before it. Let G_0(y) = max(1 - y, 0), and for y > 0

    G_j(y) = sup over t in [0, r] of  p_t G_(j-1)(y e^-t) + (1 - p_t) G_(j-1)(y e^(r - t)),
    p_t = (1 - e^(t - r))/(1 - e^-r),

the pick of the two log ratios t and t - r. All of it together is (epsilon, delta(epsilon))-DP with

    delta(epsilon) = E G_k(e^(epsilon - g)),  g ~ N(mu^2/2, mu^2):

The adversary sees the Gaussian first, and then chooses the ratios of each pick in view of all. Without Gaussian
releases this is the recursion of Dong, Durfee and Rogers [1]_; they show that an adaptive adversary attains it.

*Proof.* y -> G_j(y) is convex and falls: so is G_0, and both properties are kept by perspectives, sums and suprema. So
a -> a G_j(y/a) is convex. Let B_(j, m)(y) = E G_j(y e^-g) for a Gaussian of m: the divergence left to j picks and a
budget of m^2. By induction on the number of releases no continuation passes B at any y. *A pick first.* All releases
together have at most the divergence E_P B_(j-1, m)(y/a) = E_Q a B_(j-1, m)(y/a), with a the ratio. This is the mean of
a convex function of a, and a has mean 1 under Q and lies in an interval [b, b e^r]. So it is at most the chord's value
at 1, attained by the pick of the two ends: sup over t of E_g [p_t G_(j-1)(y e^(-g - t)) + ...] <= E_g sup over t [...]
= B_(j, m)(y). *A Gaussian of n first.* The mean of the same convex function is a mixture of hockey-stick divergences,
each at most that of a Gaussian of n. So it is at most E B_(j, sqrt(m^2 - n^2))(y e^-g'). This is B_(j, m)(y), as g + g'
is the g of m. A release of range 0 or of mu 0 changes nothing. The statement is symmetric in the two tables, as the
interval may lie anywhere about 0.

*On a grid.* t lies in some [(i - 1) h, i h], h = r/(n - 1), i from 1 to n - 1. The chord over [t - r, t] (of ratios
e^t) at ratio 1 is at most the chord over the longer [(i - n) h, i h], since chords of a convex function between points
further out lie higher. So the largest of the n - 1 pairs (i h, (i - n) h) bounds the supremum at every grid point, from
bounds at grid points alone, where x = log y is a multiple of h. As G_j(e^x) is 1 - e^x below -j n h and 0 beyond
j n h, the grid ends. A step function above G_k, of its values at the left ends of cells, then has the mean

    sum over i of (G_k(x_i) - G_k(x_(i+1))) P(g > epsilon - x_(i+1))  +  e^(-k n h) delta_G(mu; epsilon + k n h),

the last term for what is below the grid: the mean of (1 - e^x) - (1 - e^(-k n h)) there. Without Gaussian releases it
is the chord between two grid points. Every term is nonnegative, and a relative margin covers rounding.

The bound is never above two others, both of the ledger's limits (`privacy.composition`): delta_G(mu; epsilon - k r),
pure picks beside a Gaussian; and delta_G(sqrt(mu^2 + k range_mu(r)^2); epsilon), picks as Gaussian releases.

References
----------
.. [1] Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms.
   ICML. Lemma 3.1, Section 5; on the range of changes as what counts.

McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Section 3.
Nissim, K., Raskhodnikova, S., Smith, A. (2007). Smooth sensitivity and sampling in private data analysis. STOC.
Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization. COLT. Algorithms 4 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.privacy import guarantee
from dpfast.privacy.guarantee import ROUND_DOWN, ROUND_UP, Adjacency, Privacy, largest_within, remembered, sqrt_up, up


def loss_range(bound_y: float, reach: float) -> float:
    """Largest difference of losses ``(y - t)**2/2`` for ``|t| <= reach`` and ``|y| <= bound_y``; rounded up.

    It is ``(bound_y + reach)**2/2``, or ``2 bound_y reach`` if the reach is below the bound, so that no loss is 0
    there.

    >>> from dpfast.privacy import loss_range
    >>> loss_range(3.0, 3.0), loss_range(3.0, 1.0)
    (18.0, 6.0)
    """
    y, t = Fraction(check.positive("bound_y", bound_y)), Fraction(check.positive("reach", reach))
    return up(2 * y * t if t <= y else (y + t) ** 2 / 2)


def score_rate(epsilon: float, loss_range: float, error: float = 0.0, *, adjacency: Adjacency) -> float:
    """Rate of the exponential mechanism on computed scores, with weights ``exp(-rate * score)``, for epsilon-DP.

    ``epsilon/(2 loss_range + 4 error)`` under replace-one, ``epsilon/(loss_range + 4 error)`` under add/remove, rounded
    down; `error` is tau: how far a computed score may be from the exact one, up to a shift that all share, whatever the
    data.
    """
    check.adjacency_value(adjacency)
    records = 2 if adjacency == "replace_one" else 1
    length = records * Fraction(check.positive("loss_range", loss_range)) + 4 * Fraction(
        check.nonnegative("error", error)
    )
    epsilon = check.positive("epsilon", epsilon)
    return guarantee.exponential_mechanism_coefficient(epsilon, up(length), monotone=True)


@dataclass(frozen=True)
class VoteNoise:
    """Noise on every count of votes, with a scale in votes; `mu` is that of Gaussian noise."""

    privacy: Privacy
    mechanism: Literal["Laplace", "Gaussian"]
    scale: float
    mu: float | None = None


def vote_noise(privacy: Privacy, size: int, n_features: int) -> VoteNoise:
    """Noise of least variance for vote counts, if one person can change the votes of one block: `size` at most.

    Laplace noise does not use the delta of `privacy`.

    >>> from dpfast import Privacy
    >>> from dpfast.privacy import vote_noise
    >>> round(vote_noise(Privacy(1.0), 3, 60).scale, 6)
    6.0
    >>> vote_noise(Privacy(1.0, 1e-6), 20, 60).mechanism
    'Gaussian'
    """
    size = check.positive_integer("size", size)
    moved = min(2 * size, check.positive_integer("n_features", n_features))
    epsilon, delta = privacy.finite_target
    laplace = guarantee.laplace_scale(epsilon, float(moved))
    if delta > 0.0:
        mu = guarantee.gaussian_mu(epsilon, delta)
        gaussian = guarantee.scale_for_mu(mu, sqrt_up(Fraction(moved)))
        if gaussian < math.sqrt(2.0) * laplace:
            return VoteNoise(privacy, "Gaussian", gaussian, mu)
    return VoteNoise(Privacy(privacy.epsilon, 0.0, privacy.adjacency), "Laplace", laplace)


# Pairs of ratios, times picks: a pick on the grid is longer than a pick by one part in this many. Largest number of
# picks.
_PAIRS, _MOST_PAIRS, _LEAST_PAIRS, _MOST_PICKS = 2560, 256, 16, 160
# Margin on a sum of nonnegative terms (differences of values on the grid cancel to their 1,000th part at most), and
# margin for underflow.
_MARGIN, _LOST = 1e-9, 1e-290
# Calibrations aim this much below delta, so that the result, verified with other parts of mu, is within it.
_BELOW = 1.0 - 1e-6


@remembered
def picks_delta(epsilon: float, length: float, picks: int, mu: float = 0.0) -> float:
    """Delta at epsilon of adaptive picks of a range, and of Gaussian releases of mu together, in any order; rounded up.

    Examples
    --------
    >>> from dpfast.privacy import picks_delta
    >>> picks_delta(1.0, 0.2, 4), round(picks_delta(1.0, 0.25, 10), 4)
    (0.0, 0.0014)
    """
    epsilon, length = check.nonnegative("epsilon", epsilon), check.positive("length", length)
    picks, mu = check.positive_integer("picks", picks), check.nonnegative("mu", mu)
    pure = picks * length * ROUND_UP
    if mu == 0.0 and pure <= epsilon:
        return 0.0
    as_gaussian = guarantee.compose_mu([mu, *[guarantee.range_mu(length)] * picks])
    known = [guarantee.gaussian_delta(1.0, epsilon, as_gaussian), 1.0]
    if pure <= epsilon:
        known.append(guarantee.gaussian_delta(1.0, (epsilon - pure) * ROUND_DOWN, mu))
    if picks <= _MOST_PICKS and length <= 64.0:
        known.append(_delta_on_grid(epsilon, length, picks, mu))
    return min(known)


def _delta_on_grid(epsilon: float, length: float, picks: int, mu: float) -> float:
    pairs = min(_MOST_PAIRS, max(_LEAST_PAIRS, _PAIRS // picks))
    step = length / (pairs - 1) * ROUND_UP
    values = _profile(step, pairs, picks)
    ends = step * np.arange(-picks * pairs, picks * pairs + 1)
    if mu == 0.0:
        above = int(np.searchsorted(ends, epsilon))
        if above == len(ends):
            return 0.0
        low, high = ends[above - 1 : above + 1].tolist()
        share = math.expm1(epsilon - high) / math.expm1(low - high)
        found = values[above] + (values[above - 1] - values[above]) * share
    else:
        from scipy.special import ndtr  # takes longer to import than all of dpfast.privacy

        beyond = ndtr(0.5 * mu - (epsilon - ends[1:]) / mu)
        # Rounding may make computed values increase a little.
        found = float(np.maximum(values[:-1] - values[1:], 0.0) @ beyond)
        below = picks * pairs * step
        found += math.exp(-below) * guarantee.gaussian_delta(1.0, epsilon + below, mu)
    return float(found) * (1.0 + _MARGIN) + _LOST


def _profile(step: float, pairs: int, picks: int) -> FloatArray:
    """Return bounds on G at e^x for the multiples x of a step from -picks * pairs to picks * pairs of them."""
    values = np.zeros(1)
    places = np.arange(1, pairs)
    whole = -math.expm1(-pairs * step)
    higher = -np.expm1((places - pairs) * step) / whole
    lower = -np.expm1(-places * step) * np.exp((places - pairs) * step) / whole
    for pick in range(1, picks + 1):
        reach, before = pick * pairs, (pick - 1) * pairs
        below = -np.expm1(step * np.arange(-reach - pairs, -before))
        known = np.concatenate([below, values, np.zeros(2 * pairs)])
        size = 2 * reach + 1
        values = np.zeros(size)
        for place, high, low in zip(places.tolist(), higher.tolist(), lower.tolist(), strict=True):
            # x - t and x - t + r, as places on the longer grid, which begins `pairs` before this one.
            near, far = known[pairs - place : pairs - place + size], known[2 * pairs - place : 2 * pairs - place + size]
            np.maximum(values, high * near + low * far, out=values)
        values *= ROUND_UP
    return values


@remembered
def picks_range(epsilon: float, delta: float, picks: int, mu: float = 0.0) -> float:
    """Return nearly the largest range of so many adaptive picks to be within (epsilon, delta) beside Gaussian releases.

    The Gaussian releases have `mu` together, within the budget. `picks_delta` of the result is at most delta. The range
    is at least the ones by pure composition and by composition of mu.

    Examples
    --------
    >>> from dpfast.privacy import picks_range
    >>> round(picks_range(1.0, 1e-6, 3), 3), round(picks_range(1.0, 1e-6, 3, mu=0.2), 3)
    (0.349, 0.143)
    """
    epsilon, delta = check.positive("epsilon", epsilon), check.delta_value(delta)
    picks, mu = check.positive_integer("picks", picks), check.nonnegative("mu", mu)
    left = guarantee.gaussian_mu(epsilon, delta) ** 2 - mu * mu
    if left <= 0.0:
        raise ValueError(
            f"mu must be below what the budget allows, {guarantee.gaussian_mu(epsilon, delta)!r}, got {mu!r}"
        )
    if not _leaves_room(epsilon, delta, mu):
        raise ValueError(f"mu must leave some of the budget to picks, got {mu!r}")
    guess = guarantee.range_of_mu(_each(math.sqrt(left), picks))
    if mu == 0.0:
        guess = max(guess, epsilon / picks * ROUND_DOWN)
    aim = math.log(delta * _BELOW)

    def log_delta(length: float) -> float:
        found = picks_delta(epsilon, length, picks, mu)
        return math.log(found) if found > 0.0 else -1e4

    return largest_within(log_delta, aim, guess, precision=1e-6)


def _leaves_room(epsilon: float, delta: float, mu: float) -> bool:
    """Whether Gaussian releases alone have less than the delta that calibrations aim at."""
    return mu == 0.0 or guarantee.gaussian_delta(1.0, epsilon, mu) < delta * _BELOW


def _each(mu: float, picks: int) -> float:
    """Return the mu of each of so many equal releases."""
    return mu / math.sqrt(picks) * ROUND_DOWN


class PicksAndRest(NamedTuple):
    """How a budget is divided between picks and Gaussian releases."""

    #: The range of each pick.
    length: float
    #: The guarantee of all the others together, as of one calibration.
    rest: Privacy
    picks: int

    @property
    def mu(self) -> float | None:
        """Mu of all releases together: with other fits it composes more tightly than their epsilon and delta."""
        if self.rest.delta == 0.0:
            return None
        return guarantee.compose_mu(
            [guarantee.gaussian_mu(*self.rest.target), *[guarantee.range_mu(self.length)] * self.picks]
        )


@remembered
def split_with_picks(privacy: Privacy, share: float, picks: int, *, by_mu: bool = False) -> PicksAndRest:
    """Divide a budget between adaptive picks and the other releases, Gaussian if delta is above 0; together within it.

    Picks get a share of mu^2 and the others the rest; the range of picks is the largest beside the rest. It is at least
    the one for a pure share of epsilon, and equal to it if delta is 0; the Gaussian releases then have the rest of the
    budget. With `by_mu` all releases together are one Gaussian release, for a budget that is itself a part of one
    shared by mu.

    >>> from dpfast import Privacy
    >>> from dpfast.privacy import split_with_picks
    >>> length, rest, _ = split_with_picks(Privacy(1.0, 1e-6), 0.5, 3)
    >>> round(length, 3), round(rest.epsilon, 2)
    (0.199, 0.71)
    """
    share, picks = check.share("share", share), check.positive_integer("picks", picks)
    epsilon, delta = privacy.finite_target
    if delta == 0.0:
        rest = Privacy(privacy.epsilon * (1.0 - share) * ROUND_DOWN, 0.0, privacy.adjacency)
        return PicksAndRest(epsilon * share / picks * ROUND_DOWN, rest, picks)
    mu, mu_of_picks = guarantee.split_mu(guarantee.gaussian_mu(epsilon, delta), [1.0 - share, share])
    least = epsilon * share / picks * ROUND_DOWN
    if by_mu:
        length = guarantee.range_of_mu(_each(mu_of_picks, picks))
    else:
        length = picks_range(epsilon, delta, picks, mu) if _leaves_room(epsilon, delta, mu) else 0.0
    if length < least and not by_mu:
        length = least
        mu = largest_within(
            lambda one: math.log(picks_delta(epsilon, length, picks, one)), math.log(delta * _BELOW), mu, precision=1e-6
        )
    of_rest = privacy.delta * (1.0 - share) * ROUND_DOWN
    rest = Privacy(guarantee.gaussian_epsilon(1.0 / mu * ROUND_UP, of_rest), of_rest, privacy.adjacency)
    return PicksAndRest(length, rest, picks)
