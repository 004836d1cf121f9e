import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.privacy import (
    exponential_mechanism_coefficient,
    l2_laplace_coordinate_quantile,
    l2_laplace_expected_norm,
    l2_laplace_norm_quantile,
    l2_laplace_scale,
    laplace_scale,
)

ordinary = st.floats(1e-9, 1e9)


@given(ordinary, ordinary)
def test_scales_are_rounded_up_and_coefficients_down(epsilon, sensitivity):
    exact = Fraction(sensitivity) / Fraction(epsilon)
    for scale in (l2_laplace_scale(epsilon, sensitivity), laplace_scale(epsilon, sensitivity)):
        assert Fraction(math.nextafter(scale, 0.0)) < exact <= Fraction(scale)
    for monotone, factor in ((False, 2), (True, 1)):
        coefficient = exponential_mechanism_coefficient(epsilon, sensitivity, monotone=monotone)
        exact_coefficient = Fraction(epsilon) / Fraction(sensitivity) / factor
        assert Fraction(coefficient) <= exact_coefficient < Fraction(math.nextafter(coefficient, math.inf))


def test_norm_has_the_gamma_law():
    assert l2_laplace_expected_norm(0.5, 7) == 3.5
    # Gamma(1) is exponential, Gamma(2) has distribution function 1 - (1 + r) exp(-r).
    assert l2_laplace_norm_quantile(2.0, 1, 0.5) == pytest.approx(2 * math.log(2), rel=1e-13)
    r = l2_laplace_norm_quantile(1.0, 2, 0.9)
    assert 1 - (1 + r) * math.exp(-r) == pytest.approx(0.9, rel=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3, 30])
def test_coordinates_have_the_marginal_law(dim):
    """In three dimensions the tail is closed: exp(-t) (1 + t/2); in one it is Laplace's; else by simulation."""
    level = 0.9
    quantile = l2_laplace_coordinate_quantile(2.0, dim, level) / 2.0
    if dim == 1:
        assert math.exp(-quantile) == pytest.approx(0.1, rel=1e-7)
    elif dim == 3:
        assert math.exp(-quantile) * (1.0 + quantile / 2.0) == pytest.approx(0.1, rel=1e-7)
    else:
        rng = np.random.default_rng(0)
        draws = rng.normal(size=(100_000, dim))
        coordinates = draws[:, 0] / np.linalg.norm(draws, axis=1) * rng.gamma(dim, size=100_000)
        # Six standard errors of a binomial share.
        assert np.mean(np.abs(coordinates) <= quantile) == pytest.approx(level, abs=6.0 * math.sqrt(0.09 / 100_000))


def test_infinite_epsilon_means_no_noise():
    assert l2_laplace_scale(math.inf) == laplace_scale(math.inf, 3.0) == 0.0
    assert exponential_mechanism_coefficient(math.inf, 1.0) == math.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: l2_laplace_scale(0.0), ValueError, "epsilon"),
        (lambda: l2_laplace_scale(math.nan), ValueError, "epsilon"),
        (lambda: l2_laplace_scale(1.0, 0.0), ValueError, "sensitivity"),
        (lambda: laplace_scale(1.0, math.inf), ValueError, "sensitivity"),
        (lambda: laplace_scale(1e-300, 1e300), ValueError, "largest float"),
        (lambda: laplace_scale("1"), TypeError, "epsilon"),
        (lambda: l2_laplace_expected_norm(1.0, 0), ValueError, "dim"),
        (lambda: l2_laplace_expected_norm(-1.0, 1), ValueError, "scale"),
        (lambda: l2_laplace_norm_quantile(1.0, 1, 1.0), ValueError, "level"),
        (lambda: l2_laplace_coordinate_quantile(0.0, 1, 0.5), ValueError, "scale"),
        (lambda: l2_laplace_coordinate_quantile(1.0, 1, 1.0), ValueError, "level"),
        (lambda: l2_laplace_norm_quantile(1.0, 1.5, 0.5), TypeError, "dim"),
        (lambda: exponential_mechanism_coefficient(1.0, -1.0), ValueError, "score_sensitivity"),
        (
            lambda: exponential_mechanism_coefficient(1.0, 1.0, monotone="no"),
            TypeError,
            "monotone must be True or False",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
