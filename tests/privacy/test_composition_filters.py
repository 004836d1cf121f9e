"""Limits on sums: what they admit keeps the promise, whoever chooses; traded or moved along the way they would not."""

import math
import sys
from dataclasses import astuple
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpfast.privacy import Privacy, gaussian_epsilon, gaussian_mu, range_mu
from dpfast.privacy.composition import Charge, Filter, Split, Sums, plain_charge


def gaussian_profile(mu, epsilon):
    """Hockey-stick divergence of mu's Gaussian, for every real epsilon."""
    epsilon = np.asarray(epsilon, float)
    if mu == 0.0:
        return np.maximum(0.0, -np.expm1(epsilon))
    with np.errstate(over="ignore"):
        return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def response_profile(pure, epsilon):
    """That of randomised response."""
    one = 1.0 / (1.0 + math.exp(-pure))
    epsilon = np.asarray(epsilon, float)
    odds = np.exp(np.minimum(epsilon, 50.0))
    return np.maximum(0.0, one - odds * (1 - one)) + np.maximum(0.0, (1 - one) - odds * one)


def both(pure, mu, epsilon):
    """Randomised response, and a Gaussian."""
    one = 1.0 / (1.0 + math.exp(-pure))
    return one * gaussian_profile(mu, epsilon - pure) + (1.0 - one) * gaussian_profile(mu, epsilon + pure)


def after_gaussian(mu, epsilon, rest):
    """The delta of a Gaussian release, and then of whichever of the others is worst at its log ratio."""
    grid = np.linspace(-12.0, 12.0, 40_001)
    weights = np.exp(-grid * grid / 2) / math.sqrt(2 * math.pi) * (grid[1] - grid[0])
    loss = mu * mu / 2 + mu * grid
    return float(weights @ np.max([profile(epsilon - loss) for profile in rest], axis=0))


def after_response(pure, epsilon, rest):
    one = 1.0 / (1.0 + math.exp(-pure))
    return sum(
        chance * max(float(profile(epsilon - loss)) for profile in rest)
        for chance, loss in ((one, pure), (1.0 - one, -pure))
    )


# Section by section of the module's proof: what must not be done.


def test_limits_that_are_traded_along_the_way_do_not_hold():
    mu = gaussian_mu(1.0, 1e-6) / math.sqrt(2.0)
    pure = 1.0 - gaussian_epsilon(1.0, 1e-6, mu)
    assert (mu, pure) == pytest.approx((0.16738, 0.31109), abs=1e-5)
    # Every path is on the curve of what is promised, and choosing between them by the first output is not.
    again, response = (lambda e: gaussian_profile(mu, e)), (lambda e: response_profile(pure, e))
    assert after_gaussian(mu, 1.0, [again]) == pytest.approx(1e-6, rel=1e-6)
    assert after_gaussian(mu, 1.0, [response]) < 1e-6
    assert after_gaussian(mu, 1.0, [again, response]) == pytest.approx(1.453e-6, rel=1e-3)


def test_a_release_that_is_moved_between_sums_later_does_not_keep_to_the_claim():
    """Randomised response at 1, by its answer pure beside what is left of 4, or Gaussian and all of 4 left."""
    mu = range_mu(2.0)
    claimed = float(gaussian_profile(mu, 0.0))
    assert claimed == pytest.approx(0.46212, abs=1e-5)
    pure, gaussian = (lambda e: both(3.0, mu, e)), (lambda e: both(4.0, 0.0, e))
    assert after_response(1.0, 4.0, [pure]) < claimed
    assert after_response(1.0, 4.0, [gaussian]) < claimed
    assert after_response(1.0, 4.0, [pure, gaussian]) == pytest.approx(0.47021, abs=1e-5)


# What is done.

BUDGETS = [(1.0, 1e-6), (1.0, 1e-4), (0.1, 1e-9), (8.0, 1e-5), (1e-6, 1e-30), (1e3, 1e-30), (1.0, 0.5), (0.3, 1e-300)]
SPLITS = [Split(), Split(0.0, 0.0, 0.0), Split(0.9, 0.5, 0.05), Split(0.0, 0.99, 0.0), Split(0.0, 0.0, 0.999)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_limits_keep_the_promise_by_the_exact_profile(budget, split):
    mpmath = pytest.importorskip("mpmath")
    limits = Filter.split(Privacy(*budget), split)
    assert limits.gaussian is not None
    with mpmath.workdps(60):
        mu, left = (
            mpmath.mpf(limits.gaussian.mu),
            mpmath.mpf(repr(budget[0])) - mpmath.mpf(repr(limits.gaussian.epsilon)),
        )
        tail = mpmath.ncdf(mu / 2 - left / mu) - mpmath.exp(left) * mpmath.ncdf(-mu / 2 - left / mu)
        total = tail + mpmath.mpf(repr(limits.gaussian.delta)) + mpmath.mpf(repr(limits.plain.delta))
        assert total <= mpmath.mpf(repr(budget[1]))
        assert total >= mpmath.mpf(repr(budget[1])) * (1 - mpmath.mpf(10) ** -9)
    assert limits.plain.epsilon == budget[0]


@pytest.mark.parametrize(
    "limits",
    [
        (Charge(1.0, 0.0, 5e-7), Charge(0.1, 0.2056, 1e-7)),
        (Charge(1.0, 0.0, 5.1e-7), Charge(0.1, 0.2055, 1e-7)),
        (Charge(1.0, 0.0, 1.1e-6), None),
        (Charge(1.1, 0.0, 1e-7), None),
        (Charge(1.0, 0.1, 0.0), None),
        (Charge(1.0, 0.0, 0.0), Charge(1.1, 0.0, 0.0)),
    ],
)
def test_limits_beyond_the_budget_are_refused(limits):
    with pytest.raises(ValueError, match="must"):
        Filter(Privacy(1.0, 1e-6), *limits)


def test_pure_budgets_and_those_without_an_end_have_plain_sums():
    for budget in (Privacy(1.0), Privacy(math.inf, 1e-6), Privacy(1.0, 5e-324)):
        assert Filter.split(budget, Split()) == Filter.basic(budget)
    assert Filter.basic(Privacy(1.0)).more(Privacy(0.1), None, Sums(), None) == 10


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-0.1,), ValueError),
        ((1.1,), ValueError),
        ((math.nan,), ValueError),
        ((0.5, 1.0), ValueError),
        ((0.5, 0.1, 0.5), ValueError),
        ((1.0,), ValueError),
        (("1",), TypeError),
        ((True,), TypeError),
    ],
)
def test_a_split_is_of_shares(arguments, error):
    with pytest.raises(error, match="must be"):
        Split(*arguments)


def largest(fits):
    """The largest number that fits, to a part in 2^40."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class Spender:
    """Somebody who takes what limits admit."""

    def __init__(self, limits, plain=None, gaussian=None):
        self.limits, self.plain, self.gaussian = limits, plain or Sums(), gaussian or Sums()

    def taking(self, cost, mu=None):
        charge = self.limits.place(cost, mu, self.gaussian)
        return Spender(self.limits, self.plain.with_one(plain_charge(cost)), self.gaussian.with_one(charge))

    @property
    def is_admitted(self):
        return self.limits.admits(self.plain, self.gaussian)


@pytest.mark.parametrize("split", [Split(), Split(0.1, 0.5, 0.1), Split(0.9, 0.05, 0.0), Split(0.0, 0.3, 0.0)])
@pytest.mark.parametrize(
    ("budget", "share"), [((1.0, 1e-6), 0.5), ((1.0, 1e-4), 0.9), ((4.0, 1e-5), 0.2), ((0.5, 0.05), 0.7)]
)
def test_whoever_chooses_by_the_first_output_stays_within_the_budget(budget, share, split):
    """After a Gaussian release, the worst of what is left: Gaussian, as pure as it may be, and between."""
    limits = Filter.split(Privacy(*budget), split)
    mu = math.sqrt(share) * limits.gaussian.mu
    # As an (epsilon, delta) that it has: what plain sums count.
    delta = budget[1] / 8.0
    cost = Privacy(gaussian_epsilon(1.0, delta, mu), delta)
    start = Spender(limits).taking(cost, mu)
    assert start.is_admitted

    def gaussian_after(state):
        free = Privacy(1e9, budget[1])  # what it is plainly does not matter where only its mu is counted
        return largest(lambda m: m > 0 and state.taking(free, m).is_admitted)

    def pure_after(state):
        return largest(lambda e: e > 0 and state.taking(Privacy(e)).is_admitted)

    rest = []
    for pure in (1e-12, pure_after(start), 0.5 * pure_after(start), 0.1 * budget[0]):
        state = start.taking(Privacy(pure))
        if state.is_admitted:
            mu_left = gaussian_after(state)
            rest.append(lambda e, p=pure, m=mu_left: both(p, m, e))
    assert len(rest) >= 2
    assert after_gaussian(mu, budget[0], rest) <= budget[1] * (1.0 + 1e-9)


@given(
    st.lists(
        st.tuples(st.floats(1e-6, 0.5), st.sampled_from([0.0, 1e-9, 1e-7]), st.booleans()), min_size=1, max_size=30
    )
)
def test_what_is_admitted_is_within_one_set_of_limits_whatever_the_order(costs):
    limits = Filter.split(Privacy(1.0, 1e-6), Split())
    state, charges = Spender(limits), []
    for epsilon, delta, is_gaussian in costs:
        cost = Privacy(epsilon, delta)
        mu = gaussian_mu(epsilon, delta) if is_gaussian and delta else None
        more = state.taking(cost, mu)
        if more.is_admitted:
            charges.append((cost, limits.place(cost, mu, state.gaussian)))
            state = more
    slack = 1 + Fraction(1, 2**40)
    plain = [sum(Fraction(repr(getattr(cost, name))) for cost, _ in charges) for name in ("epsilon", "delta")]
    keeps_plain = plain[0] <= 1 * slack and plain[1] <= Fraction("5e-7") * slack
    pure = sum(Fraction(repr(charge.epsilon)) for _, charge in charges)
    square = sum(Fraction(charge.mu) ** 2 for _, charge in charges)
    deltas = sum(Fraction(repr(charge.delta)) for _, charge in charges)
    gaussian = limits.gaussian
    keeps_gaussian = (
        pure <= Fraction(repr(gaussian.epsilon)) * slack
        and square <= Fraction(gaussian.mu) ** 2
        and deltas <= Fraction(repr(gaussian.delta)) * slack
    )
    assert keeps_plain or keeps_gaussian


@settings(max_examples=25)
@given(
    st.sampled_from(BUDGETS[:4]),
    st.floats(0.03, 0.7),
    st.sampled_from([0.0, 1e-3, 0.11]),
    st.booleans(),
    st.just(0.0) | st.floats(1e-9, 0.6),
)
def test_what_more_says_is_what_is_admitted(budget, share, of_delta, is_gaussian, used):
    limits = Filter.split(Privacy(*budget), Split())
    start = Spender(limits)
    if used:
        start = start.taking(Privacy(used * budget[0], 0.01 * budget[1]))
    cost = Privacy(share * budget[0], of_delta * budget[1])
    mu = gaussian_mu(cost.epsilon, cost.delta) if is_gaussian and cost.delta else None
    number, state = 0, start.taking(cost, mu)
    while state.is_admitted:
        number, state = number + 1, state.taking(cost, mu)
    assert limits.more(cost, mu, start.plain, start.gaussian) == number


def test_a_release_is_counted_where_it_takes_least_and_elsewhere_once_that_is_full():
    limits = Filter.split(Privacy(1.0, 1e-6), Split())
    small, large = Privacy(0.01, 1e-9), Privacy(0.09)
    assert astuple(limits.place(small, None, Sums())) == (0.0, range_mu(0.02), 1e-9)
    assert astuple(limits.place(large, None, Sums())) == (0.0, range_mu(0.18), 0.0)
    assert astuple(limits.place(Privacy(0.1), 0.01, Sums())) == (0.0, 0.01, 0.0)
    full = Sums([Charge(0.0, limits.gaussian.mu, 0.0)])
    assert astuple(limits.place(large, None, full)) == (0.09, 0.0, 0.0)
    assert not limits.gaussian.epsilon < 0.09


def test_a_hundred_gaussian_fits_have_room():
    mu = gaussian_mu(0.1, 1e-7)
    assert Filter.split(Privacy(1.0, 1e-4), Split()).more(Privacy(0.1, 1e-7), mu, Sums(), Sums()) == 121


def test_sums_without_an_end_fit_only_limits_without_one():
    endless = Sums([Charge(math.inf, 0.0, 1e-7)])
    assert not endless.within(Charge(1.0, 1.0, 1.0))
    assert endless.within(Charge(math.inf, 0.0, 1e-6))
    assert not endless.within(Charge(math.inf, 0.0, 1e-8))
    assert endless.epsilon_up == math.inf
    limits = Filter.basic(Privacy(math.inf, 1e-6))
    assert limits.more(Privacy(5.0), None, endless, None) == sys.maxsize
    assert limits.more(Privacy(5.0, 1e-7), None, endless, None) == 9


def test_what_is_left_can_be_taken():
    limits = Filter.split(Privacy(1.0, 1e-6), Split())
    for costs in ([], [(0.5, 1e-7)], [(0.3, 4e-7), (0.4, 5e-8)], [(0.01, 1e-9)] * 90, [(0.9, 0.0), (0.05, 0.0)]):
        state = Spender(limits)
        for epsilon, delta in costs:
            state = state.taking(Privacy(epsilon, delta))
        assert state.is_admitted
        left = limits.left(state.plain, state.gaussian)
        assert left.epsilon > 0.0
        assert state.taking(Privacy(left.epsilon, left.delta)).is_admitted
        assert not state.taking(Privacy(left.epsilon * 1.001 + 1e-9, left.delta)).is_admitted
