"""How much noise makes the choice of a support private: by scores of all supports, or by votes of blocks of rows.

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

References
----------
McSherry, F., Talwar, K. (2007). Mechanism design via differential privacy. FOCS. Section 3.
Dong, J., Durfee, D., Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms. ICML, on
the range of changes as what counts.
Nissim, K., Raskhodnikova, S., Smith, A. (2007). Smooth sensitivity and sampling in private data analysis. STOC.
Kifer, D., Smith, A., Thakurta, A. (2012). Private convex empirical risk minimization. COLT. Algorithms 4 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpfast import _arguments as check
from dpfast.privacy.guarantee import (
    Adjacency,
    Privacy,
    exponential_mechanism_coefficient,
    gaussian_mu,
    laplace_scale,
    scale_for_mu,
    sqrt_up,
    up,
)


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
    return exponential_mechanism_coefficient(epsilon, up(length), monotone=True)


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
    laplace = laplace_scale(epsilon, float(moved))
    if delta > 0.0:
        mu = gaussian_mu(epsilon, delta)
        gaussian = scale_for_mu(mu, sqrt_up(Fraction(moved)))
        if gaussian < math.sqrt(2.0) * laplace:
            return VoteNoise(privacy, "Gaussian", gaussian, mu)
    return VoteNoise(Privacy(privacy.epsilon, 0.0, privacy.adjacency), "Laplace", laplace)
