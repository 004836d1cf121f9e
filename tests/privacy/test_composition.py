"""Shares of a budget: put back together they never pass it, and the exact one is never the smallest."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.privacy import Privacy, compose_mu, gaussian_delta, gaussian_mu, keeps_to, share_of_mu, split_budget
from dpfast.privacy.composition import _float_down, advanced_share


@given(st.floats(0.01, 20.0), st.floats(1e-12, 0.1), st.integers(1, 100_000))
def test_shares_recompose_to_the_budget(epsilon, delta, releases):
    privacy = Privacy(epsilon, delta)
    exact, basic, advanced = (share_of_mu(privacy, releases, name) for name in ("mu", "basic", "advanced"))
    assert gaussian_delta(1.0, epsilon, math.sqrt(releases) * exact) <= delta
    # A release at (e, d) is what basic and advanced composition count; e is the share they are calibrated for.
    assert gaussian_delta(1.0, epsilon / releases, basic) <= delta / releases
    share = advanced_share(epsilon, delta / 2.0, releases)
    spent = math.sqrt(2.0 * releases * math.log(2.0 / delta)) * share + releases * share * math.expm1(share)
    assert spent <= epsilon
    assert gaussian_delta(1.0, share, advanced) <= delta / (2.0 * releases)
    assert exact >= 0.999 * max(basic, advanced)


def test_one_release_has_the_whole_budget():
    privacy = Privacy(1.0, 1e-6)
    assert share_of_mu(privacy, 1, "basic") == pytest.approx(share_of_mu(privacy, 1, "mu"), rel=1e-12)


@given(st.floats(1e-300, 1e300))
def test_limits_are_the_largest_floats_that_print_as_no_more(value):
    exact = Fraction(repr(value))
    assert _float_down(exact) == value
    assert _float_down(exact * (1 - Fraction(1, 10**20))) == math.nextafter(value, 0.0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0, "mu"), ValueError, "releases"),
        ((1.5, "mu"), TypeError, "releases"),
        ((2, "zcdp"), ValueError, "composition"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        share_of_mu(Privacy(1.0, 1e-6), *arguments)


def test_pure_budgets_have_no_gaussian_share():
    with pytest.raises(ValueError, match="delta"):
        share_of_mu(Privacy(1.0), 3, "mu")


@given(
    st.floats(1e-3, 1e2),
    st.floats(-15, -2).map(lambda power: 10.0**power),
    st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=8),
)
def test_parts_of_a_guarantee_compose_to_it_and_waste_nothing(epsilon, delta, shares):
    whole = gaussian_mu(epsilon, delta)
    parts = split_budget(Privacy(epsilon, delta), shares)
    mus = [gaussian_mu(*part.target) for part in parts]
    assert whole * (1.0 - 1e-10) < compose_mu(mus) <= whole
    assert mus == pytest.approx([whole * math.sqrt(share / math.fsum(shares)) for share in shares], rel=1e-9)
    assert math.fsum(part.delta for part in parts) <= delta
    assert keeps_to(parts, mus, Privacy(epsilon, delta))
    assert not keeps_to(parts, [mu * 1.001 for mu in mus], Privacy(epsilon, delta))


def test_pure_parts_share_epsilon():
    parts = split_budget(Privacy(1.0, adjacency="add_remove"), [1.0, 3.0])
    assert [part.epsilon for part in parts] == pytest.approx([0.25, 0.75])
    assert {(part.delta, part.adjacency) for part in parts} == {(0.0, "add_remove")}
    assert keeps_to(parts, [None, None], Privacy(1.0))
    assert not keeps_to(parts, [None, None], Privacy(0.999))


def test_a_release_without_a_mu_counts_by_its_sum():
    half = Privacy(0.6, 5e-7)
    assert not keeps_to([half, half], [0.01, None], Privacy(1.0, 1e-6))
    assert keeps_to([half, half], [0.01, None], Privacy(1.2, 1e-6))
    assert not keeps_to([half], [0.01], Privacy(1.0, 0.0))
