"""Shares of a budget: put back together they never pass it, and the exact one is never the smallest."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.privacy import Privacy, gaussian_delta, share_of_mu
from dpfast.privacy.composition import advanced_share


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
