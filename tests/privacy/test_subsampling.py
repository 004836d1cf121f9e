import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.privacy import gaussian_scale, subsampled_budget


@given(st.floats(-6, 3.5), st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0.0, 0.999))
def test_amplified_budget_is_the_one_asked_for(log_epsilon, n_sampled, n_rest, share):
    epsilon, gamma = 10.0**log_epsilon, Fraction(n_sampled, n_sampled + n_rest)
    delta = float(gamma) * share
    inner_epsilon, inner_delta = subsampled_budget(epsilon, delta, n_sampled, n_sampled + n_rest)
    with mp.workdps(60):
        exact = mp.log1p(mp.expm1(mp.mpf(epsilon)) * (n_sampled + n_rest) / n_sampled)
        # mpmath's own rounding is below 1e-50.
        assert exact * (1 - mp.mpf(2) ** -43) <= inner_epsilon <= exact * (1 + mp.mpf(10) ** -50)
    assert Fraction(inner_delta) * gamma <= Fraction(delta) < Fraction(math.nextafter(inner_delta, 1.0)) * gamma


@pytest.mark.parametrize(("n_sampled", "noise"), [(500, 1.34), (100, 3.4)])
def test_sampling_costs_noise(n_sampled, noise):
    # docs/proofs/moments.md: noise on a sum over the sample, scaled up to all records, against that on the whole sum.
    inner = gaussian_scale(*subsampled_budget(1.0, 1e-6, n_sampled, 1000))
    assert inner / (n_sampled / 1000) / gaussian_scale(1.0, 1e-6) == pytest.approx(noise, rel=5e-3)


def test_limits():
    assert subsampled_budget(0.3, 1e-6, 7, 7) == (0.3, 1e-6)
    assert subsampled_budget(math.inf, 0.25, 1, 2) == (math.inf, 0.5)
    assert subsampled_budget(1000.0, 0.0, 1, 2)[0] == pytest.approx(1000.0 + math.log(2.0), rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.0, 0.1, 1, 2), ValueError, "epsilon"),
        ((1.0, 0.5, 1, 2), ValueError, r"below n_sampled/n_total = 0\.5"),
        ((1.0, -0.1, 1, 2), ValueError, "delta"),
        ((1.0, 0.0, 3, 2), ValueError, "n_sampled must be at most n_total"),
        ((1.0, 0.0, 0, 2), ValueError, "n_sampled"),
        ((1.0, 0.0, 1.0, 2), TypeError, "n_sampled"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        subsampled_budget(*arguments)


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0.0, 0.999), st.sampled_from([1.0, math.inf]))
def test_delta_is_rounded_down_whatever_epsilon_is(n_sampled, n_rest, share, epsilon):
    gamma = Fraction(n_sampled, n_sampled + n_rest)
    delta = float(gamma) * share
    _, inner = subsampled_budget(epsilon, delta, n_sampled, n_sampled + n_rest)
    assert type(inner) is float
    assert Fraction(inner) * gamma <= Fraction(delta) < Fraction(math.nextafter(inner, 1.0)) * gamma
