"""Shares of a budget: parts of one joint calibration, and equal releases under the three usual compositions.

Basic composition adds up. Advanced composition [1]_ grows like the root of the number of releases, at a constant cost.
Gaussian releases compose exactly by their mu [2]_, which for them is never worse than the other two.

References
----------
.. [1] Dwork, C., Rothblum, G., Vadhan, S. (2010). Boosting and differential privacy. Theorem III.3.
.. [2] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. Corollary 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dpfast import _arguments as check
from dpfast.privacy.gaussian import compose_mu, gaussian_epsilon, gaussian_mu, split_mu
from dpfast.privacy.guarantee import Privacy
from dpfast.privacy.picks import picks_delta
from dpfast.privacy.rounding import ROUND_DOWN, ROUND_UP, bisected, remembered

Composition = Literal["basic", "advanced", "mu"]


def share_of_mu(privacy: Privacy, releases: int, composition: Composition) -> float:
    """Gaussian-differential-privacy parameter of each of several equal Gaussian releases, rounded down.

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
    down and verified: composed by this formula, the result gives at most `epsilon`.

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

    # Both terms grow with the share, and each alone gives an upper end.
    largest = min(epsilon / root, max(1.0, math.log1p(epsilon)))
    return bisected(lambda share: total(share) <= epsilon * ROUND_DOWN, 0.0, largest, 200)[0]


def parts_of(
    privacy: Privacy, shares: Sequence[float], composition: Literal["mu", "basic"] = "mu"
) -> tuple[Privacy, ...]:
    """Split a guarantee into parts whose releases, chosen adaptively, are together within it.

    Gaussian releases share mu squared: a part is the guarantee of one of them alone, at its share of delta. Its epsilon
    is therefore more than its share of epsilon, and every calibration for a part has that part's mu. Pure releases, and
    any releases under "basic" composition, share epsilon and delta. `keeps_to` checks that the parts compose.

    Examples
    --------
    >>> from dpfast.privacy import Privacy, parts_of
    >>> [round(part.epsilon, 3) for part in parts_of(Privacy(1.0, 1e-6), [0.5, 0.5])]
    [0.715, 0.715]
    """
    return _parts_of(privacy, tuple(check.positives("shares", shares)), composition)


@remembered
def _parts_of(privacy: Privacy, shares: tuple[float, ...], composition: str) -> tuple[Privacy, ...]:
    total = math.fsum(shares)
    deltas = [privacy.delta * (share / total) * ROUND_DOWN for share in shares]
    gaussian = privacy.delta > 0.0 and composition == "mu"
    if not gaussian:
        epsilons = [privacy.epsilon * (share / total) * ROUND_DOWN for share in shares]
    else:
        mus = split_mu(gaussian_mu(*privacy.target), shares)
        # The calibration for a part aims a little below its target, so it does not pass the part's mu.
        epsilons = [gaussian_epsilon(1.0 / mu * ROUND_UP, delta) for mu, delta in zip(mus, deltas, strict=True)]
    each = [Privacy(*target, privacy.adjacency) for target in zip(epsilons, deltas, strict=True)]
    if not keeps_to(each, [gaussian_mu(*part.target) if gaussian else None for part in each], privacy):
        raise ValueError(f"shares must be numbers that a budget can be split by, got {shares!r}")
    return tuple(each)


def keeps_to(
    costs: Sequence[Privacy],
    mus: Sequence[float | None],
    privacy: Privacy,
    ranges: Sequence[float | None] | None = None,
) -> bool:
    """Whether adaptively chosen releases of these costs are within a guarantee; Gaussian ones have these mus.

    One of three rules must show it. If all are Gaussian: their mu. For picks of these ranges beside Gaussian releases:
    `picks_delta`. For any releases: the sums of their epsilons and deltas.
    """
    if privacy.delta > 0.0 and None not in mus:
        known = [mu for mu in mus if mu is not None]
        if compose_mu(known) <= gaussian_mu(privacy.epsilon, privacy.delta):
            return True
        lengths = [length for length in ranges or () if length is not None]
        if not lengths:
            return False
        others = compose_mu([mu for mu, length in zip(known, ranges or (), strict=True) if length is None])
        return picks_delta(privacy.epsilon, max(lengths), len(lengths), others) <= privacy.delta
    return math.fsum([cost.epsilon for cost in costs]) <= privacy.epsilon and (
        math.fsum([cost.delta for cost in costs]) <= privacy.delta
    )
