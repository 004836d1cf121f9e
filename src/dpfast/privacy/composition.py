"""How guarantees add up: shares of a budget, and limits on the sums of costs.

*Shares* are parts of one joint calibration, or equal releases under the three usual compositions. Basic composition
adds up. Advanced composition [5]_ grows like the root of the number of releases, at a constant cost. Gaussian releases
compose exactly by their mu [2]_, which for them is never worse than the other two.

*Privacy filters* are limits, fixed at first, on the sums of costs of releases chosen adaptively. A release is charged
to three sums: E, of pure epsilons; M, of squares of mu; D, of deltas. A charge (its *place* in them) is valid if a
simpler release dominates it, for both orders of two neighbouring tables. The simpler release reveals everything with a
probability of its delta. Otherwise its log likelihood ratio is at most its epsilon plus one of its mu's Gaussian. Valid
places are:

- of an epsilon-DP release (epsilon, 0, 0), and also (0, range_mu(2 epsilon), 0), as its trade-off function is above
  that Gaussian's (privacy.guarantee);
- of an (epsilon, delta)-DP one either of these with delta beside it. Such a release is a post-processing of one that
  reveals everything with probability delta, and is randomised response at epsilon otherwise [1]_;
- of a mu-Gaussian-DP one (0, mu, 0) [2]_.

*Limits.* Let each release's place be chosen before its output and never changed, and the next release be chosen in view
of all outputs. If every sequence that can occur has sums of at most E, M = m^2 and D, all releases together are
(epsilon, delta(epsilon))-DP, for every real epsilon, with

    delta(epsilon) = delta_G(m; epsilon - E) + D,

with delta_G the Gaussian's. *Proof*, by induction on the number of releases, from the limits that are left. Let a first
release have the laws P and Q and the log ratio l, and let the rest be within e, m and d. The hockey-stick divergence of
all releases is the mean under P of the rest's divergence at epsilon - l. It is at most ``d + E_P delta_G(m; epsilon - l
- e)``. delta_G(m; x) falls in x: if l is at most a pure a, the mean is at most ``d + delta_G(m; epsilon - a - e)``. As
a function of the ratio r = dP/dQ, ``r delta_G(m; x - log r)`` is convex, 0 with its slope at 0. So its mean under Q is
a mixture, with nonnegative weights, of hockey-stick divergences of P from Q. If these are at most those of a Gaussian
of mu at ratios shifted by a, then the mean is at most the one for that Gaussian. This Gaussian and the rest's compose
to ``delta_G(sqrt(m^2 + mu^2); epsilon - a - e)``. Finally, everything is revealed with probability delta, and this adds
delta times 1. Privacy filters of mu alone are of Smith and Thakurta [3]_ and Koskela, Tobaben and Honkela [4]_.

*Why they are fixed.* Limits that are traded along the way, E for M on the curve of equal delta, do not hold. At (1,
1e-6) a Gaussian release of mu = .16738 leaves room for another, or else for randomised response at .31109. An analyst
who takes the one or the other by the first output has, on every path, sums on the curve; yet all releases together have
a delta of 1.453e-6. Nor may a release be moved between sums later. Take limits of E = 4 and of the M of randomised
response at 1. Let that response be counted, by its own answer, as pure beside 3 and all of M, or as Gaussian beside 4.
The claim is then .46212 at epsilon = 4, and the truth .47021 (both are among the tests of this module).

*Several sets of limits, any of which may hold.* Releases may be within whichever set they like, found out along the
way, if the deltas of the sets at epsilon add up to the promised delta. In each set a release has a place of its own.
*Proof.* Assign each sequence of outputs to the first set of limits that it is within. This divides an event S into
parts S_1, S_2, ... Consider the releases stopped short of passing the k-th limits. They give S_k the same
probabilities, on either table, and are within those limits, so P(S_k) - e^epsilon Q(S_k) is at most their delta. The
sum over k is P(S) - e^epsilon Q(S).

A budget of (epsilon, delta) has two sets. The *plain* set limits sums of epsilons to epsilon, and sums of deltas to a
share of delta. The *Gaussian* set has a share of epsilon for E, a share of delta for D, and for M the most that the
rest of the budget allows, verified in the exact profile. The first set costs nothing if delta is 0, so pure releases
add up to all of epsilon in any case. Since delta_G falls so fast, giving the second set only the rest of delta costs it
a few percent of epsilon.

*Costs decided beforehand.* An (epsilon, delta)-DP release is a post-processing of the simpler one above. With
probability delta this one reveals everything, and otherwise it is randomised response at epsilon. The log likelihood
ratio of n_k randomised responses at e_k is ``(2 j - n_k) e_k``, with j binomial of n_k and 1/(1 + exp(-e_k));
independent ones add. Beside Gaussian releases, of one mu together, this gives for every real epsilon, and both orders
of the tables,

    delta(epsilon) <= sum of deltas + E delta_G(mu; epsilon - ratio),

with the mean over the sum of those ratios. delta_G falls in epsilon, so ratios may be rounded up, to a grid if they are
many, and an epsilon may be rounded up to another. An accountant of privacy-loss distributions computes the same. It is
not a limit for releases that are chosen along the way.

References
----------
.. [1] Kairouz, P., Oh, S., Viswanath, P. (2015). The composition theorem for differential privacy. ICML. Theorem 3.3.
.. [2] Dong, J., Roth, A., Su, W. (2022). Gaussian differential privacy. JRSS B 84(1). Section 2, Corollary 3.3.
.. [3] Smith, A., Thakurta, A. (2022). Fully adaptive composition for Gaussian differential privacy.
.. [4] Koskela, A., Tobaben, M., Honkela, A. (2023). Individual privacy accounting with Gaussian differential privacy.
.. [5] Dwork, C., Rothblum, G., Vadhan, S. (2010). Boosting and differential privacy. Theorem III.3.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.privacy import guarantee
from dpfast.privacy.guarantee import ROUND_DOWN, ROUND_UP, SLACK, Privacy, bisected, down, remembered, sqrt_down
from dpfast.privacy.support_noise import picks_delta

Composition = Literal["basic", "advanced", "mu"]

# Beyond this a pure release is not usefully Gaussian, and its mu nears the end of the range of floats.
_LARGEST_AS_GAUSSIAN = 100.0


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
        return guarantee.gaussian_mu(epsilon, delta) / math.sqrt(releases) * ROUND_DOWN
    if composition == "basic":
        return guarantee.gaussian_mu(epsilon / releases * ROUND_DOWN, delta / releases * ROUND_DOWN)
    share = advanced_share(epsilon, delta / 2.0, releases)
    return guarantee.gaussian_mu(share, delta / (2.0 * releases) * ROUND_DOWN)


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


def split_budget(
    privacy: Privacy, shares: Sequence[float], composition: Literal["mu", "basic"] = "mu"
) -> tuple[Privacy, ...]:
    """Split a guarantee into parts whose releases, chosen adaptively, are together within it.

    Gaussian releases share mu squared: a part is the guarantee of one of them alone, at its share of delta. Its epsilon
    is therefore more than its share of epsilon, and every calibration for a part has that part's mu. Pure releases, and
    any releases under "basic" composition, share epsilon and delta. `keeps_to` checks that the parts compose.

    Examples
    --------
    >>> from dpfast.privacy import Privacy, split_budget
    >>> [round(part.epsilon, 3) for part in split_budget(Privacy(1.0, 1e-6), [0.5, 0.5])]
    [0.715, 0.715]
    """
    return _split_budget(privacy, tuple(check.positives("shares", shares)), composition)


@remembered
def _split_budget(privacy: Privacy, shares: tuple[float, ...], composition: str) -> tuple[Privacy, ...]:
    total = math.fsum(shares)
    deltas = [privacy.delta * (share / total) * ROUND_DOWN for share in shares]
    gaussian = privacy.delta > 0.0 and composition == "mu"
    if not gaussian:
        epsilons = [privacy.epsilon * (share / total) * ROUND_DOWN for share in shares]
    else:
        mus = guarantee.split_mu(guarantee.gaussian_mu(*privacy.target), shares)
        # The calibration for a part aims a little below its target, so it does not pass the part's mu.
        epsilons = [
            guarantee.gaussian_epsilon(1.0 / mu * ROUND_UP, delta) for mu, delta in zip(mus, deltas, strict=True)
        ]
    each = [Privacy(*target, privacy.adjacency) for target in zip(epsilons, deltas, strict=True)]
    if not keeps_to(each, [guarantee.gaussian_mu(*part.target) if gaussian else None for part in each], privacy):
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
        if guarantee.compose_mu(known) <= guarantee.gaussian_mu(privacy.epsilon, privacy.delta):
            return True
        lengths = [length for length in ranges or () if length is not None]
        if not lengths:
            return False
        others = guarantee.compose_mu([mu for mu, length in zip(known, ranges or (), strict=True) if length is None])
        return picks_delta(privacy.epsilon, max(lengths), len(lengths), others) <= privacy.delta
    return math.fsum([cost.epsilon for cost in costs]) <= privacy.epsilon and (
        math.fsum([cost.delta for cost in costs]) <= privacy.delta
    )


@dataclass(frozen=True)
class Charge:
    """What a release is charged in the sums, or a limit on them: a pure epsilon, a mu, a delta."""

    epsilon: float = 0.0
    mu: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "mu", "delta"):
            value = check.real(name, getattr(self, name))
            if not value >= 0.0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Split:
    """How a budget's epsilon and delta are divided between a ledger's sums; fixed when the ledger is made.

    Parameters
    ----------
    plain : float, default 0.5
        Share of delta up to which deltas may add up plainly, with epsilons up to all of the budget's; in [0, 1]. Pure
        releases may add up in any case.
    pure : float, default 0.1
        Limit on the sum of pure epsilons beside releases counted as Gaussian, as a share of epsilon; in [0, 1).
    deltas : float, default 0.1
        Limit on the sum of deltas beside them, as a share of delta. Gaussian releases have the rest of both; `plain`
        and `deltas` together are below 1.

    Examples
    --------
    >>> from dpfast import Ledger, MultiOutcomeRidge, Privacy
    >>> from dpfast.ledger import Split
    >>> model = MultiOutcomeRidge(0.1, 1e-7, bound_x=1.0, bound_y=1.0)
    >>> splits = Split(), Split(plain=0.0, pure=0.0, deltas=0.0)
    >>> [Ledger(Privacy(1.0, 1e-4), split=split).affords(model) for split in splits]
    [121, 168]
    """

    plain: float = 0.5
    pure: float = 0.1
    deltas: float = 0.1

    def __post_init__(self) -> None:
        for name in ("plain", "pure", "deltas"):
            value = check.real(name, getattr(self, name))
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be a share, in [0, 1], got {value!r}")
            object.__setattr__(self, name, value)
        if self.pure == 1.0 or _decimal(self.plain) + _decimal(self.deltas) >= 1:
            raise ValueError("pure must be below 1, and plain and deltas together: Gaussian releases have the rest")


@remembered
def plain_charge(cost: Privacy) -> Charge:
    """Return the charge of a cost in plain sums."""
    return Charge(cost.epsilon, 0.0, cost.delta)


_NOTHING = Fraction(0)


class _Terms(NamedTuple):
    """The terms that a charge adds to the sums."""

    epsilon: Fraction
    square: Fraction
    delta: Fraction
    infinite: int


@remembered
def _terms(charge: Charge) -> _Terms:
    """Return the terms of a charge; an infinite one adds nothing to the first two sums, and is counted instead."""
    delta = _decimal(charge.delta)
    if math.isinf(charge.epsilon) or math.isinf(charge.mu):
        return _Terms(_NOTHING, _NOTHING, delta, 1)
    return _Terms(_decimal(charge.epsilon), Fraction(charge.mu) ** 2 if charge.mu else _NOTHING, delta, 0)


def _plus(total: Fraction, term: Fraction, times: int) -> Fraction:
    """Return a sum with a term added this many times; most are added once, many to nothing."""
    if term is _NOTHING:
        return total
    term = term if times == 1 else term * times
    return term if total is _NOTHING else total + term


class Sums:
    """Exact sums of charges: of epsilons and deltas as the decimal numbers they print as, and of squares of mu."""

    def __init__(self, charges: Collection[Charge] = ()) -> None:
        self.infinite = 0  # number of infinite charges
        self.epsilon = self.square = self.delta = _NOTHING
        # Equal terms are added at once: a ledger has many.
        for charge, times in Counter(charges).items() if charges else ():
            self._add(_terms(charge), times)

    def _add(self, terms: _Terms, times: int) -> None:
        self.infinite += terms.infinite * times
        self.epsilon = _plus(self.epsilon, terms.epsilon, times)
        self.square = _plus(self.square, terms.square, times)
        self.delta = _plus(self.delta, terms.delta, times)

    @property
    def epsilon_up(self) -> float:
        """The sum of epsilons, rounded up; infinite if one of them is."""
        return math.inf if self.infinite else float(self.epsilon)

    def with_one(self, charge: Charge, times: int = 1) -> Sums:
        """Return sums with a charge added this many times; -1 removes one again."""
        more = object.__new__(Sums)
        vars(more).update(vars(self))
        more._add(_terms(charge), times)
        return more

    def to_list(self) -> list[Any]:
        """Return the exact sums as text, and the number of infinite terms."""
        return [str(self.epsilon), str(self.square), str(self.delta), self.infinite]

    @classmethod
    def from_list(cls, written: list[Any]) -> Self:
        """Return the sums that `to_list` described."""
        sums, (epsilon, square, delta, infinite) = cls(), written
        sums.epsilon, sums.square, sums.delta = map(_exact, (epsilon, square, delta))
        sums.infinite = check.integer_of_at_least("infinite", infinite, 0)
        return sums

    def within(self, limits: Charge) -> bool:
        """Whether no sum passes its limit, except by the slack of epsilons and deltas, which calibrations leave."""
        if self.infinite and not math.isinf(limits.epsilon):
            return False
        room = _room(limits)
        return self.epsilon <= room.epsilon and self.square <= room.square and self.delta <= room.delta


def _exact(written: Any) -> Fraction:
    """Return the number that `Sums.to_list` wrote."""
    try:
        return Fraction(check.text("a sum", written))
    except ZeroDivisionError:
        raise ValueError(f"a sum must be a number, got {written!r}") from None


class _Room(NamedTuple):
    """Limits in the exact form used for comparison."""

    epsilon: Fraction | float
    square: Fraction | float
    delta: Fraction


@remembered
def _room(limits: Charge) -> _Room:
    slack = 1 + Fraction(SLACK)
    return _Room(
        math.inf if math.isinf(limits.epsilon) else _decimal(limits.epsilon) * slack,
        math.inf if math.isinf(limits.mu) else Fraction(limits.mu) ** 2,
        _decimal(limits.delta) * slack,
    )


@dataclass(frozen=True)
class Filter:
    """The limits of a ledger, on plain sums and on Gaussian ones; sums may be within either."""

    budget: Privacy
    plain: Charge
    gaussian: Charge | None = None

    def __post_init__(self) -> None:
        """Refuse limits that do not give the promised guarantee, by the exact profile."""
        if self.plain.epsilon > self.budget.epsilon or self.plain.mu != 0.0:
            raise ValueError("limits on plain sums must be within the budget")
        total = _decimal(self.plain.delta)
        if self.gaussian is not None:
            total += _decimal(self.gaussian.delta)
            left = _decimal(self.budget.epsilon) - _decimal(self.gaussian.epsilon)
            if left < 0:
                raise ValueError("limits on pure parts must be within the budget")
            if self.gaussian.mu > 0.0:
                total += Fraction(guarantee.gaussian_delta(1.0, down(left), self.gaussian.mu))
        if total > _decimal(self.budget.delta):
            raise ValueError("limits must keep to the budget")

    @classmethod
    @remembered
    def basic(cls, budget: Privacy) -> Self:
        """Return the limits of plain sums alone."""
        return cls(budget, plain_charge(budget))

    @classmethod
    def split(cls, budget: Privacy, split: Split) -> Self:
        """Return the limits of a budget divided by a split."""
        if budget.delta == 0.0 or math.isinf(budget.epsilon):
            # A Gaussian release is not purely private; and an infinite budget cannot be divided.
            return cls.basic(budget)
        epsilon, delta = _decimal(budget.epsilon), _decimal(budget.delta)
        plain = Charge(budget.epsilon, 0.0, _float_down(delta * _decimal(split.plain)))
        pure, deltas = _float_down(epsilon * _decimal(split.pure)), _float_down(delta * _decimal(split.deltas))
        left = down(delta - _decimal(plain.delta) - _decimal(deltas))
        if left < sys.float_info.min:
            return cls.basic(budget)
        mu = guarantee.gaussian_mu(down(epsilon - _decimal(pure)), left)
        return cls(budget, plain, Charge(pure, mu, deltas))

    @property
    def whole(self) -> Self:
        """The limits on plain sums, up to all of the budget."""
        return self.basic(self.budget)

    def admits(self, plain: Sums, gaussian: Sums | None) -> bool:
        """Whether sums are within either of the limits."""
        if plain.within(self.plain):
            return True
        return self.gaussian is not None and gaussian is not None and gaussian.within(self.gaussian)

    def place(self, cost: Privacy, mu: float | None, taken: Sums) -> Charge:
        """Return a release's place in the Gaussian sums, given the sums so far.

        Of the places with room for it, this is the one with the least share of the limits.
        """
        assert self.gaussian is not None
        places, room = self._places(cost, mu, self.gaussian), _room(self.gaussian)
        return next((charge for charge in places if _times(charge, taken, room)), places[0])

    @staticmethod
    def _places(cost: Privacy, mu: float | None, limits: Charge) -> list[Charge]:
        """Return the places of a release in Gaussian sums, the one of least share first; a Gaussian one has its mu."""
        if mu is not None:
            return [Charge(0.0, mu, 0.0)]
        places = [plain_charge(cost)]
        if cost.epsilon <= _LARGEST_AS_GAUSSIAN:
            places.append(Charge(0.0, guarantee.range_mu(2.0 * cost.epsilon), cost.delta))

        def share(charge: Charge) -> float:
            parts = zip(_squared(charge), _squared(limits), strict=True)
            return math.fsum(0.0 if part == 0.0 else part / limit if limit > 0.0 else math.inf for part, limit in parts)

        return sorted(places, key=share)

    def more(self, cost: Privacy, mu: float | None, plain: Sums, gaussian: Sums | None) -> int:
        """Return how many more releases there is room for, one after the other; sys.maxsize if nothing ends them."""
        whole = _times(plain_charge(cost), plain, _room(self.plain))
        if self.gaussian is None or gaussian is None:
            return whole
        number, room = 0, _room(self.gaussian)
        for charge in self._places(cost, mu, self.gaussian):
            # A place that has no room for one more never has again.
            times = _times(charge, gaussian, room)
            gaussian, number = gaussian.with_one(charge, times), number + times
        return max(number, whole)

    def left(self, plain: Sums, gaussian: Sums | None) -> Privacy:
        """Return the most that one more release of any kind may cost: the larger epsilon left by either set of sums."""
        epsilon, delta = _left(self.plain, plain) if plain.within(self.plain) else (0.0, 0.0)
        if self.gaussian is not None and gaussian is not None and gaussian.within(self.gaussian):
            pure, deltas = _left(self.gaussian, gaussian)
            mu = sqrt_down(Fraction(self.gaussian.mu) ** 2 - gaussian.square)
            most = max(pure, guarantee.range_of_mu(mu) / 2.0 if mu > 0.0 else 0.0)
            if most > epsilon:
                epsilon, delta = most, deltas
        return Privacy.of_sum(epsilon, delta, self.budget.adjacency)

    def to_dict(self) -> dict[str, Any] | None:
        """Return plain numbers; None for plain sums of the whole budget."""
        if self.gaussian is None:
            return None
        return {"plain": list(astuple(self.plain)), "gaussian": list(astuple(self.gaussian))}

    @classmethod
    def from_dict(cls, budget: Privacy, limits: dict[str, Any]) -> Self:
        """Return the limits described by `to_dict`, after checking that they give the promised guarantee."""
        return cls(budget, Charge(*limits["plain"]), Charge(*limits["gaussian"]))


def _squared(charge: Charge) -> Iterator[float]:
    yield charge.epsilon
    yield charge.mu * charge.mu
    yield charge.delta


def _times(charge: Charge, taken: Sums, room: _Room) -> int:
    """Return how often a charge can be added to sums."""
    if taken.infinite and not math.isinf(room.epsilon):
        return 0
    times, terms = sys.maxsize, _terms(charge)
    parts = (
        (charge.epsilon, terms.epsilon, taken.epsilon, room.epsilon),
        (charge.mu, terms.square, taken.square, room.square),
        (charge.delta, terms.delta, taken.delta, room.delta),
    )
    for part, exact, sum_of, limit in parts:
        if isinstance(limit, float):
            continue  # infinite
        if sum_of > limit or math.isinf(part):
            return 0
        if exact is not _NOTHING:
            times = min(times, (limit - sum_of) // exact)
    return int(times)


def _left(limits: Charge, taken: Sums) -> tuple[float, float]:
    """Return the rest of the limits on epsilons and deltas."""
    epsilon = math.inf
    if not math.isinf(limits.epsilon):
        epsilon = 0.0 if taken.infinite else float(max(_decimal(limits.epsilon) - taken.epsilon, Fraction(0)))
    return epsilon, float(max(_decimal(limits.delta) - taken.delta, Fraction(0)))


@remembered
def _decimal(value: float) -> Fraction:
    return Fraction(repr(value)) if value else _NOTHING


def _float_down(exact: Fraction) -> float:
    """Return a float that prints as a decimal number of at most a rational."""
    value = float(exact)
    return value if _decimal(value) <= exact else math.nextafter(value, 0.0)


# Numbers of distinct ratios, and of distinct epsilons.
_POINTS, _KINDS = 4096, 64
# Margins for the rounding of weights, and for underflow.
_MARGIN, _LOST = 1e-9, 1e-290
_STEPS = 50


def mixture_epsilon(mu: float, epsilons: Iterable[float], delta: float) -> float:
    """Return an epsilon at a delta of a Gaussian of mu (0 for none) and of randomised responses; rounded up.

    >>> from dpfast.privacy.composition import mixture_epsilon
    >>> round(mixture_epsilon(0.1, [0.1, 0.1], 1e-6), 3), mixture_epsilon(0.0, [0.5], 0.0)
    (0.566, 0.5)
    """
    kinds = _of_few_kinds(Counter(epsilons))
    pure = math.fsum(kinds.elements())
    if mu == 0.0 and (not kinds or delta <= _LOST or math.isinf(pure)):
        return pure
    if delta < max(sys.float_info.min, _LOST if kinds else 0.0):
        return math.inf
    gaussian = guarantee.gaussian_epsilon(1.0, delta, mu) if mu > 0.0 else 0.0
    highest = math.nextafter(pure + gaussian, math.inf) if kinds else gaussian
    if not kinds or math.isinf(highest):
        return highest
    ratios, weights = _ratios(kinds)

    def holds(epsilon: float) -> bool:
        total = float(weights @ _profile(mu, epsilon - ratios))
        return total * (1.0 + _MARGIN) + _LOST <= delta

    return 0.0 if holds(0.0) else bisected(lambda epsilon: not holds(epsilon), 0.0, highest, _STEPS)[1]


def _of_few_kinds(counts: Counter[float]) -> Counter[float]:
    """Round epsilons up to a few distinct ones."""
    counts = Counter({epsilon: count for epsilon, count in counts.items() if count})
    if len(counts) <= _KINDS or math.isinf(max(counts)):
        return counts
    # The groups go from the largest downwards, each within a constant factor.
    largest = max(counts)
    step = math.log(largest / min(counts)) / (_KINDS - 1)
    few: Counter[float] = Counter()
    for epsilon, count in counts.items():
        down = math.floor(math.log(largest / epsilon) / step)
        few[max(epsilon, largest * math.exp(-step * down))] += count
    return few


def _ratios(kinds: Counter[float]) -> tuple[FloatArray, FloatArray]:
    """Return the values of the sum of all ratios, rounded up if they are many, and their probabilities."""
    from scipy.special import gammaln  # takes longer to import than all of dpfast.privacy

    ratios, weights = np.zeros(1), np.ones(1)
    for epsilon, count in sorted(kinds.items()):
        heads = np.arange(count + 1.0)
        log_odds = -np.log1p(np.exp(-epsilon))
        chances = gammaln(count + 1.0) - gammaln(heads + 1.0) - gammaln(count - heads + 1.0)
        chances = np.exp(chances + heads * log_odds + (count - heads) * (log_odds - epsilon))
        ratios = np.add.outer(ratios, (2.0 * heads - count) * epsilon).ravel()
        weights = np.multiply.outer(weights, chances).ravel()
        if len(ratios) > _POINTS:
            least = ratios.min()
            step = (ratios.max() - least) / (_POINTS - 2)
            places = np.ceil((ratios - least) / step).astype(np.int64)
            weights = np.bincount(places, weights, _POINTS).astype(np.float64)
            ratios = least + step * np.arange(1.0 * _POINTS)
    # Margin for the rounding of sums and products.
    return ratios + 1e-14 * np.abs(ratios).max(), weights


def _profile(mu: float, epsilon: FloatArray) -> FloatArray:
    """Return delta_G(mu; epsilon), rounded up."""
    if mu == 0.0:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))
    from scipy.special import log_ndtr  # takes longer to import than all of dpfast.privacy

    own, other = log_ndtr(mu / 2.0 - epsilon / mu), log_ndtr(-mu / 2.0 - epsilon / mu)
    room = 1e-15 * (np.abs(epsilon) + np.abs(own) + np.abs(other))
    return np.asarray(-np.exp(own) * np.expm1(np.minimum(epsilon + other - own - room, 0.0)))
