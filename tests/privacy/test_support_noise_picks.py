"""Adaptive picks of a bounded range beside Gaussian releases: what they come to, and what a budget leaves them."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, norm

from dpfast import Privacy
from dpfast.privacy import (
    compose_mu,
    gaussian_delta,
    gaussian_mu,
    keeps_to,
    picks_delta,
    picks_range,
    range_mu,
    range_of_mu,
    split_with_picks,
)

LENGTHS = [1e-3, 0.2, 1.0, 4.0]


def one_pick(x, r):
    """The divergence of one pick at e^x: the supremum over its ratios is at t = (x + r)/2."""
    x = np.asarray(x, float)
    inside = np.expm1((np.clip(x, -r, r) - r) / 2.0) ** 2 / -math.expm1(-r)
    return np.where(x <= -r, -np.expm1(np.minimum(x, 0.0)), np.where(x >= r, 0.0, inside))


def of_pair(t, r):
    """The probability of the ratio e^t, of which the other one is e^(t - r)."""
    return math.expm1(t - r) / math.expm1(-r)


def two_picks(x, r):
    """The divergence of two adaptive picks: the second's closed form, and a search over the first's ratios."""

    def lost(t):
        p = of_pair(t, r)
        return -float(p * one_pick(x - t, r) + (1.0 - p) * one_pick(x - t + r, r))

    start = min(np.linspace(0.0, r, 65), key=lost)
    found = minimize_scalar(lost, bounds=(max(start - r / 64, 0.0), min(start + r / 64, r)), method="bounded")
    return -min(lost(start), found.fun)


def several_picks(epsilon, r, picks, points=1000):
    """From below: on a grid, of values at its next point, over ratios of the grid."""
    h = r / points
    x = epsilon + h * np.arange(-picks * points, picks * points + 1)
    values = one_pick(x, r)
    for _ in range(picks - 1):
        low = np.concatenate(
            [-np.expm1(np.minimum(x[0] - h * np.arange(points, 0, -1), 0.0)), values, np.zeros(points)]
        )
        size, best = len(x), np.zeros(len(x))
        for place in range(0, points + 1, 5):
            p = of_pair(place * h, r)
            near = low[points - place : points - place + size]
            far = low[2 * points - place : 2 * points - place + size]
            best = np.maximum(best, p * near + (1.0 - p) * far)
        values = best
    return values[picks * points]


def decided_beforehand(epsilon, r, picks, t, mu=0.0):
    """The exact divergence of picks that all have the ratios e^t and e^(t - r), beside a Gaussian of mu."""
    heads = np.arange(picks + 1)
    weights = binom.pmf(heads, picks, of_pair(t, r))
    left = epsilon - (heads * t + (picks - heads) * (t - r))
    if mu == 0.0:
        return float(weights @ np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0))
    own, other = norm.sf(left / mu - mu / 2.0), norm.sf(left / mu + mu / 2.0)
    return float(weights @ (own - np.exp(left) * other))


@pytest.mark.parametrize("r", LENGTHS)
def test_one_pick_has_its_closed_form_rounded_up(r):
    for x in r * np.linspace(0.0, 0.99, 23):
        found = picks_delta(float(x), r, 1)
        assert one_pick(x, r) <= found <= one_pick(x, r * (1.0 + 1.0 / 250.0)) * 1.02


@pytest.mark.parametrize("r", LENGTHS)
def test_two_adaptive_picks_have_what_the_worst_pair_has_rounded_up(r):
    for x in r * np.linspace(0.0, 1.9, 9):
        found = picks_delta(float(x), r, 2)
        assert two_picks(x, r) <= found <= two_picks(x, r * (1.0 + 1.0 / 250.0)) * 1.02


@pytest.mark.parametrize(("epsilon", "r", "picks"), [(1.0, 0.4, 3), (0.5, 0.2, 4), (3.0, 1.4, 3)])
def test_more_adaptive_picks_are_bounded_from_both_sides(epsilon, r, picks):
    found = picks_delta(epsilon, r, picks)
    assert several_picks(epsilon, r, picks) <= found <= several_picks(epsilon, r * (1.0 + 1.0 / 200.0), picks) * 1.03


@pytest.mark.parametrize(
    ("epsilon", "r", "mu"), [(1.0, 0.3, 0.15), (0.3, 0.05, 0.05), (3.0, 1.5, 0.3), (1.0, 0.01, 0.2)]
)
def test_a_gaussian_beside_two_picks_is_seen_before_them(epsilon, r, mu):
    """The adversary who sees the Gaussian first, by quadrature."""

    def seen(length):
        # By Simpson's rule where two picks decide; below, all is seen, and above nothing.
        x = np.linspace(-2.0 * length, 2.0 * length, 201)
        divergences = np.array([two_picks(one, length) for one in x])
        own = simpson(divergences * norm.pdf(epsilon - x, mu * mu / 2.0, mu), x=x)
        below = epsilon + 2.0 * length
        rest = norm.sf(below, mu * mu / 2.0, mu) - math.exp(epsilon) * norm.sf(below, -mu * mu / 2.0, mu)
        return own + rest

    found = picks_delta(epsilon, r, 2, mu)
    assert seen(r) * (1.0 - 1e-4) <= found <= seen(r * (1.0 + 1.0 / 250.0)) * 1.05


@pytest.mark.parametrize("mu", [0.0, 0.15, 0.6])
@pytest.mark.parametrize(("r", "picks"), [(0.25, 5), (0.3, 20), (1.0, 4)])
def test_no_picks_decided_beforehand_pass_the_bound(r, picks, mu):
    for epsilon, share in itertools.product(np.linspace(0.0, 1.3, 9) * picks * r, np.linspace(0.02, 0.98, 25)):
        least = decided_beforehand(epsilon, r, picks, share * r, mu)
        assert least <= picks_delta(float(epsilon), r, picks, mu) * (1.0 + 1e-9) + 1e-14


def test_picks_decided_beforehand_would_promise_too_much():
    """What an adaptive adversary gains: calibrated as if all ratios were fixed at first, delta is missed."""
    epsilon, delta, picks = 0.3, 0.08, 3

    def beforehand(r):
        return max(decided_beforehand(epsilon, r, picks, share * r) for share in np.linspace(0.0, 1.0, 401)) - delta

    too_long = brentq(beforehand, 0.2, 1.0)
    assert several_picks(epsilon, too_long, picks, 600) > 1.02 * delta
    assert picks_delta(epsilon, too_long, picks) > 1.02 * delta


def test_the_bound_is_never_above_those_of_the_ledger():
    for epsilon, r, picks, mu in itertools.product([0.5, 2.0], [1e-3, 0.1, 0.4], [1, 4, 300], [0.0, 0.1, 0.5]):
        found = picks_delta(epsilon, r, picks, mu)
        assert found <= gaussian_delta(1.0, epsilon, compose_mu([mu, *[range_mu(r)] * picks]))
        if picks * r < epsilon * (1.0 - 1e-9):
            assert found <= (gaussian_delta(1.0, epsilon - picks * r, mu) * (1.0 + 1e-9) if mu else 0.0)


def test_more_of_anything_costs_more():
    costs = picks_delta(1.0, 0.2, 3, 0.15)
    assert picks_delta(1.0, 0.21, 3, 0.15) > costs
    assert picks_delta(1.0, 0.2, 4, 0.15) > costs
    assert picks_delta(1.0, 0.2, 3, 0.16) > costs
    assert picks_delta(0.9, 0.2, 3, 0.15) > costs


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-9), (1.0, 1e-6), (3.0, 1e-3), (10.0, 1e-30)])
@pytest.mark.parametrize("picks", [1, 3])
def test_the_range_keeps_to_the_budget_and_is_no_shorter_than_by_other_compositions(picks, epsilon, delta, share):
    mu = math.sqrt(share) * gaussian_mu(epsilon, delta)
    length = picks_range(epsilon, delta, picks, mu)
    assert picks_delta(epsilon, length, picks, mu) <= delta
    left = math.sqrt((gaussian_mu(epsilon, delta) ** 2 - mu * mu) / picks)
    assert length >= range_of_mu(left * (1.0 - 1e-9)) * (1.0 - 1e-5)
    if share == 0.0:
        assert length >= epsilon / picks * (1.0 - 1e-5)
    # A little more is too much: by what the grid costs.
    worst = max(
        decided_beforehand(epsilon, 1.15 * length, picks, part * length, mu) for part in np.linspace(0, 1.1, 45)
    )
    assert worst > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "picks", "least"),
    [(0.98, 1e-6, 3, 0.341), (0.98, 1e-3, 10, 0.237), (2.94, 1e-6, 5, 0.651), (2.94, 1e-3, 20, 0.418)],
)
def test_known_ranges(epsilon, delta, picks, least):
    """By mu alone .214, .193, .454 and .339; by pure composition .327, .098, .588 and .147."""
    assert least < picks_range(epsilon, delta, picks) < 1.01 * least


def test_a_gaussian_beyond_the_budget_leaves_no_range():
    with pytest.raises(ValueError, match="mu must be below"):
        picks_range(1.0, 1e-6, 3, 0.24)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-12), (5.0, 1e-3)])
def test_a_split_keeps_to_its_budget(epsilon, delta, share, adjacency):
    privacy = Privacy(epsilon, delta, adjacency)
    split = split_with_picks(privacy, share, 3)
    mu = gaussian_mu(*split.rest.target)
    pick = Privacy(split.length, 0.0, adjacency)
    costs, mus = [pick] * 3 + [split.rest], [range_mu(split.length)] * 3 + [mu]
    assert keeps_to(costs, mus, privacy, [split.length] * 3 + [None])
    assert not keeps_to(costs, mus, privacy)
    assert not keeps_to(costs, mus, privacy, [1.05 * split.length] * 3 + [None])
    assert not keeps_to([*costs, split.rest], [*mus, 0.2 * mu], privacy, [split.length] * 3 + [None, None])
    assert split.mu == compose_mu(mus)
    assert split.rest.adjacency == adjacency
    assert split.length >= epsilon * share / 3 * (1.0 - 1e-9)
    by_mu = split_with_picks(privacy, share, 3, by_mu=True)
    assert by_mu.length < split.length
    assert by_mu.mu <= gaussian_mu(epsilon, delta)


def test_more_delta_never_leaves_less():
    """To picks or to what is beside them; nor less to picks than none of it."""
    for epsilon, share in itertools.product([0.3, 3.0], [0.2, 0.7]):
        none = split_with_picks(Privacy(epsilon), share, 3)
        splits = [split_with_picks(Privacy(epsilon, 10.0**-power), share, 3) for power in (30, 9, 6, 2)]
        lengths = [none.length, *(split.length for split in splits)]
        mus = [gaussian_mu(*split.rest.target) for split in splits]
        assert all(one <= other * (1.0 + 1e-5) for one, other in itertools.pairwise(lengths))
        assert all(one < other for one, other in itertools.pairwise(mus))


def test_a_range_is_of_releases_that_have_a_mu():
    half = Privacy(0.5, 1e-7)
    assert not keeps_to([half, half], [0.01, None], Privacy(0.9, 1e-6), [None, None])
    assert not keeps_to([Privacy(0.4), Privacy(0.4)], [None, None], Privacy(0.7, 1e-6), [0.4, 0.4])


@pytest.mark.parametrize(("name", "bad"), [("epsilon", -1.0), ("length", 0.0), ("picks", 0), ("mu", -0.1)])
def test_what_is_no_number_of_its_kind_is_refused(name, bad):
    given = {"epsilon": 1.0, "length": 0.1, "picks": 3, "mu": 0.1} | {name: bad}
    with pytest.raises(ValueError, match=name):
        picks_delta(**given)


def test_the_largest_epsilons_and_the_smallest_shares_have_an_answer():
    assert picks_delta(1000.0, 64.0, 20) <= 1.0
    assert picks_range(1000.0, 1e-6, 20) > 50.0
    length, rest, _ = split_with_picks(Privacy(1.0, 1e-6), 1e-8, 3)
    assert 0.0 < length <= 1e-8
    assert picks_delta(1.0, length, 3, gaussian_mu(*rest.target)) <= 1e-6
    with pytest.raises(ValueError, match="mu must leave some of the budget to picks"):
        picks_range(1.0, 1e-6, 3, mu=gaussian_mu(1.0, 1e-6) * (1.0 - 1e-9))
