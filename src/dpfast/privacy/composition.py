"""Shares of a budget for several equal releases, by the three compositions that are in use.

Basic composition adds up, advanced composition [1]_ grows like the root of the number of releases at a constant cost,
and Gaussian releases compose exactly by their mu [2]_, which is never worse than either for them.

References
----------
.. [1] Dwork, C., Rothblum, G., Vadhan, S. (2010). Boosting and differential privacy. Theorem III.3.
.. [2] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. Corollary 3.3.
"""

from __future__ import annotations

import math
from typing import Literal

from dpfast import _arguments as check
from dpfast.privacy._search import bisected
from dpfast.privacy.gaussian import gaussian_mu
from dpfast.privacy.guarantee import Privacy
from dpfast.privacy.rounding import ROUND_DOWN

Composition = Literal["basic", "advanced", "mu"]


def share_of_mu(privacy: Privacy, releases: int, composition: Composition) -> float:
    """Gaussian-differential-privacy parameter that each of several equal Gaussian releases may have, rounded down.

    Examples
    --------
    >>> from dpfast.privacy import Privacy, share_of_mu
    >>> [round(share_of_mu(Privacy(1.0, 1e-6), 100, name), 4) for name in ("basic", "advanced", "mu")]
    [0.0024, 0.0041, 0.0237]
    """
    releases = check.positive_integer("releases", releases)
    check.choice("composition", composition, ("basic", "advanced", "mu"))
    epsilon, delta = privacy.target
    if composition == "mu":
        return gaussian_mu(epsilon, delta) / math.sqrt(releases) * ROUND_DOWN
    if composition == "basic":
        return gaussian_mu(epsilon / releases * ROUND_DOWN, delta / releases * ROUND_DOWN)
    share = advanced_share(epsilon, delta / 2.0, releases)
    return gaussian_mu(share, delta / (2.0 * releases) * ROUND_DOWN)


def advanced_share(epsilon: float, slack: float, releases: int) -> float:
    """Epsilon of each of several releases whose advanced composition stays within a total.

    k releases at (e, d) are (sqrt(2 k ln(1/slack)) e + k e (exp(e) - 1), k d + slack)-differentially private. Rounded
    down; put back in, it gives at most `epsilon`.

    Examples
    --------
    >>> from dpfast.privacy.composition import advanced_share
    >>> round(advanced_share(1.0, 1e-6, 100), 4)
    0.0184
    """
    epsilon, slack = check.positive("epsilon", epsilon), check.delta_value(slack)
    releases = check.positive_integer("releases", releases)
    root = math.sqrt(2.0 * releases * math.log(1.0 / slack))

    def total(share: float) -> float:
        return root * share + releases * share * math.expm1(share)

    # Both terms grow with the share, and the first alone gives an upper end.
    return bisected(lambda share: total(share) <= epsilon * ROUND_DOWN, 0.0, epsilon / root, 200)[0]
