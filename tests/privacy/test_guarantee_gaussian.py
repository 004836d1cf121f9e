import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference.gaussian import exact_delta

from dpfast import _arguments as check
from dpfast.privacy import (
    classic_gaussian_scale,
    compose_mu,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_scale,
    least_noise_split,
    scale_for_mu,
    split_mu,
)
from dpfast.privacy.guarantee import _verified

EPSILONS = [0.0, 1e-6, 1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e3]
DELTAS = [0.5, 0.1, 1e-3, 1e-6, 1e-10, 1e-20, 1e-30]

log_uniform_epsilon = st.floats(-6.0, 3.0).map(lambda exponent: 10.0**exponent)
log_uniform_delta = st.floats(-30.0, -0.31).map(lambda exponent: 10.0**exponent)
log_uniform_sensitivity = st.floats(-9.0, 9.0).map(lambda exponent: 10.0**exponent)
log_uniform_mu = st.floats(-6.0, 1.5).map(lambda exponent: 10.0**exponent)


def assert_just_below(exact, target, tolerance=1e-12):
    """The exact delta is never above the target and hardly below it."""
    assert exact <= mp.mpf(target)
    assert exact >= mp.mpf(target) * (1 - mp.mpf(tolerance))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_scale_is_the_smallest_on_a_grid(epsilon, delta):
    assert_just_below(exact_delta(gaussian_scale(epsilon, delta), epsilon), delta)


@given(log_uniform_epsilon, log_uniform_delta, log_uniform_sensitivity)
@settings(deadline=None, max_examples=200)
def test_scale_is_the_smallest(epsilon, delta, sensitivity):
    assert_just_below(exact_delta(gaussian_scale(epsilon, delta, sensitivity), epsilon, sensitivity), delta)


@pytest.mark.slow
def test_scale_is_the_smallest_at_many_points():
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        epsilon, delta = 10.0 ** rng.uniform(-6, 3), 10.0 ** rng.uniform(-30, -0.31)
        assert_just_below(exact_delta(gaussian_scale(epsilon, delta), epsilon), delta)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e4, 1e-300), (1e-3, 1e-100), (1e6, 1e-12), (5.0, 0.999), (1e-9, 1e-9)]
)
def test_scale_is_private_beyond_the_usual_range(epsilon, delta):
    # At (1e4, 1e-300) neighbouring floats have deltas 1.2e-12 apart.
    assert_just_below(exact_delta(gaussian_scale(epsilon, delta), epsilon), delta, tolerance=1e-10)


@given(log_uniform_mu, st.floats(-6.0, 30.0), log_uniform_sensitivity)
@settings(deadline=None, max_examples=200)
def test_delta_is_rounded_up(mu, t, sensitivity):
    epsilon = mu * t + mu * mu / 2
    assume(epsilon >= 0.0)
    scale = sensitivity / mu
    delta = gaussian_delta(scale, epsilon, sensitivity)
    exact = exact_delta(scale, epsilon, sensitivity)
    assert exact <= mp.mpf(delta) <= exact * (1 + mp.mpf("1e-12"))


@given(log_uniform_mu, log_uniform_delta)
@settings(deadline=None, max_examples=100)
def test_epsilon_is_rounded_up(mu, delta):
    epsilon = gaussian_epsilon(1.0, delta, sensitivity=mu)
    exact = exact_delta(1.0, epsilon, mu)
    assert exact <= mp.mpf(delta)
    if epsilon > 0.0:
        assert exact_delta(1.0, epsilon * (1 - 1e-9), mu) > delta * (1 - 1e-9)


@given(log_uniform_epsilon, log_uniform_delta)
@settings(deadline=None, max_examples=100)
def test_mu_is_the_largest(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert_just_below(exact_delta(1.0, epsilon, mu), delta)
    assert mu == pytest.approx(1.0 / gaussian_scale(epsilon, delta), rel=1e-14)


@given(log_uniform_epsilon, log_uniform_delta, log_uniform_sensitivity)
@settings(deadline=None, max_examples=300)
def test_scale_put_back_in_keeps_its_promise(epsilon, delta, sensitivity):
    scale = gaussian_scale(epsilon, delta, sensitivity)
    assert gaussian_delta(scale, epsilon, sensitivity) <= delta
    back = gaussian_epsilon(scale, delta, sensitivity)
    # Where rounding the scale moves log delta by 1e-13 (epsilon near 1e3, delta near 1e-30), last digits may differ.
    assert back <= epsilon * (1 + 2.0**-49)
    assert gaussian_delta(scale, back, sensitivity) <= delta


@given(log_uniform_mu, log_uniform_sensitivity)
def test_the_scale_for_mu_is_the_least_float_that_is_enough(mu, sensitivity):
    scale = scale_for_mu(mu, sensitivity)
    below = math.nextafter(scale, 0.0)
    assert Fraction(below) * Fraction(mu) < Fraction(sensitivity) <= Fraction(scale) * Fraction(mu)


def test_known_values():
    # docs/proofs/noise.md: two equal releases share mu**2.
    mu = split_mu(gaussian_mu(1.0, 1e-6), [1, 1])[0]
    assert scale_for_mu(mu) == pytest.approx(5.97, abs=0.005)
    assert classic_gaussian_scale(0.5, 0.5e-6) == pytest.approx(10.86, abs=0.005)
    # epsilon = 0: delta is the total variation distance, erf(mu/sqrt(8)).
    assert gaussian_delta(1.0, 0.0, 1.0) == pytest.approx(math.erf(1 / math.sqrt(8)), rel=1e-13)


def test_delta_stays_above_zero_and_within_one():
    assert gaussian_delta(1e-3, 1.0) == 1.0
    assert gaussian_delta(1e3, 1e3) == 5e-324
    assert gaussian_delta(0.0, 1.0) == 1.0
    assert gaussian_delta(1e300, 0.0) > 0.0
    assert gaussian_delta(1e-300, 1.0, 1e300) == 1.0


def test_infinite_epsilon_means_no_noise():
    assert gaussian_scale(math.inf, 1e-6) == 0.0
    assert gaussian_scale(math.inf, 0.0) == 0.0
    assert gaussian_mu(math.inf, 1e-6) == math.inf
    assert gaussian_delta(0.0, math.inf) == 0.0
    assert gaussian_epsilon(0.0, 1e-6) == math.inf
    assert gaussian_epsilon(1e-160, 1e-6) == math.inf
    assert math.isfinite(gaussian_epsilon(1e-149, 1e-6))
    assert scale_for_mu(math.inf) == 0.0
    assert split_mu(math.inf, [1, 2]) == (math.inf, math.inf)


@given(st.lists(st.floats(1e-200, 1e200), min_size=1, max_size=6))
def test_composition_is_rounded_up_and_tight(mus):
    total = compose_mu(mus)
    with mp.workdps(60):
        exact = mp.sqrt(mp.fsum(mp.mpf(mu) ** 2 for mu in mus))
        assert exact <= total <= exact * (1 + mp.mpf(2) ** -51)


def test_composition_of_special_values():
    assert compose_mu([]) == 0.0
    assert compose_mu([0.0, 0.0]) == 0.0
    assert compose_mu([1.0, math.inf]) == math.inf


@given(st.floats(1e-3, 1e3), st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=8))
def test_split_never_recomposes_to_more(mu, weights):
    shares = split_mu(mu, weights)
    assert mu * (1 - 1e-15) <= compose_mu(shares) <= mu
    for share, weight in zip(shares, weights, strict=True):
        assert share**2 == pytest.approx(mu**2 * weight / math.fsum(weights), rel=1e-14)


@given(
    st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.01, 100.0)), min_size=2, max_size=4), st.integers(0, 2**32)
)
def test_least_noise_split_beats_other_splits(releases, seed):
    sensitivities, weights = zip(*releases, strict=True)

    def cost(shares):
        return sum(w * scale_for_mu(m, s) ** 2 for w, m, s in zip(weights, shares, sensitivities, strict=True))

    best = cost(least_noise_split(1.0, sensitivities, weights))
    rng = np.random.default_rng(seed)
    for other in rng.dirichlet(np.ones(len(releases)), size=20):
        assert best <= cost(split_mu(1.0, np.maximum(other, 1e-6).tolist())) * (1 + 1e-12)
    assert best == pytest.approx(sum(math.sqrt(w) * s for w, s in zip(weights, sensitivities, strict=True)) ** 2)


def test_classic_constant_fails_at_large_epsilon():
    assert gaussian_delta(classic_gaussian_scale(1.0, 1e-6), 1.0) < 1e-6
    assert gaussian_delta(classic_gaussian_scale(10.0, 1e-6), 10.0) > 1.5e-6
    assert gaussian_delta(classic_gaussian_scale(10.0, 1e-5), 10.0) == pytest.approx(2.27e-5, abs=5e-8)


@pytest.mark.parametrize("call", [gaussian_scale, gaussian_mu, gaussian_epsilon, classic_gaussian_scale])
@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-6, math.nan, math.inf, 5e-324])
def test_bad_delta_is_refused(call, delta):
    with pytest.raises(ValueError, match="delta"):
        call(1.0, delta)


@pytest.mark.parametrize("call", [gaussian_scale, gaussian_mu])
def test_delta_is_checked_without_noise_too(call):
    assert call(math.inf, 0.0) == call(math.inf, 1e-6)
    with pytest.raises(ValueError, match="delta must lie in"):
        call(math.inf, 7)
    with pytest.raises(TypeError, match="delta must be a real number"):
        call(math.inf, "x")


@pytest.mark.parametrize("call", [gaussian_scale, gaussian_mu, gaussian_epsilon, classic_gaussian_scale])
def test_subnormal_delta_is_said_to_be_too_small(call):
    with pytest.raises(ValueError, match=r"smallest normal float, 2\.23e-308"):
        call(1.0, 1e-310)


@pytest.mark.parametrize("call", [gaussian_scale, gaussian_mu, gaussian_epsilon, classic_gaussian_scale])
def test_zero_delta_points_to_the_pure_mechanism(call):
    with pytest.raises(ValueError, match="l2_laplace_scale"):
        call(1.0, 0.0)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, -math.inf])
def test_bad_epsilon_is_refused(epsilon):
    for call in (gaussian_scale, gaussian_mu, classic_gaussian_scale):
        with pytest.raises(ValueError, match="epsilon"):
            call(epsilon, 1e-6)
    with pytest.raises(ValueError, match="epsilon"):
        gaussian_delta(1.0, epsilon)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_sensitivity_is_refused(value):
    for call in (gaussian_scale, gaussian_delta, classic_gaussian_scale, gaussian_epsilon):
        with pytest.raises(ValueError, match="sensitivity"):
            call(1.0, 0.5, value)
    with pytest.raises(ValueError, match="sensitivity"):
        scale_for_mu(1.0, value)


@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf])
def test_bad_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        gaussian_delta(scale, 1.0)
    with pytest.raises(ValueError, match="scale"):
        gaussian_epsilon(scale, 1e-6)


@pytest.mark.parametrize("value", ["1", None, True, [1.0], np.ones(2), 1j])
def test_other_types_are_refused(value):
    for arguments in ((value, 1e-6), (1.0, value), (1.0, 1e-6, value)):
        with pytest.raises(TypeError, match="must be a real number"):
            gaussian_scale(*arguments)


def test_numbers_of_numpy_and_integers_are_accepted():
    assert (
        gaussian_scale(np.float64(1), np.float32(0.5), np.int64(2))
        == gaussian_scale(1, 0.5, 2)
        == gaussian_scale(1.0, 0.5, 2.0)
    )


@pytest.mark.parametrize(
    "value",
    [
        Fraction(1, 3),
        np.longdouble(1) / np.longdouble(3),
        2**53 + 1,
        np.int64(2**53 + 1),
        10**400,
        Fraction(10**400, 3),
        np.longdouble("1e4000"),
    ],
    ids=["third", "long third", "long int", "int64", "huge int", "huge fraction", "huge longdouble"],
)
def test_numbers_that_no_float_equals_are_refused(value):
    """Rounded to nearest, ``scale_for_mu(1.0, Fraction(1, 3))`` would be below a third."""
    with pytest.raises(ValueError, match="sensitivity must be a number that a float holds exactly"):
        scale_for_mu(1.0, value)


@pytest.mark.parametrize("value", [2, 2**60, Fraction(3, 8), np.longdouble(0.1), np.float32(0.1), np.int64(-(2**62))])
def test_exact_numbers_of_any_kind_are_taken_as_they_are(value):
    assert check.real("x", value) == value


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, np.longdouble])
def test_special_values_keep_their_meaning(kind):
    assert scale_for_mu(kind("inf")) == 0.0
    with pytest.raises(ValueError, match="mu must be positive"):
        scale_for_mu(kind("nan"))


def test_unreachable_scales_are_refused():
    with pytest.raises(ValueError, match="outside"):
        gaussian_scale(0.0, 1e-300, 1e10)
    with pytest.raises(ValueError, match="largest float"):
        scale_for_mu(1e-300, 1e300)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_mu(1.0, []), "weights must hold at least one"),
        (lambda: split_mu(1.0, [1.0, 0.0]), r"weights\[1\] must be positive"),
        (lambda: split_mu(0.0, [1.0]), "mu must be positive"),
        (lambda: compose_mu([1.0, -1.0]), r"mus\[1\] must be at least 0"),
        (lambda: compose_mu([math.nan]), r"mus\[0\] must be at least 0"),
        (lambda: least_noise_split(1.0, [1.0], [1.0, 2.0]), "length of sensitivities"),
        (
            lambda: least_noise_split(1.0, [1.0, 1e200], [1.0, 1e300]),
            r"sqrt\(weights\[1\]\) \* sensitivities\[1\] leaves",
        ),
        (lambda: least_noise_split(1.0, [1e-300], [1e-300]), r"sqrt\(weights\[0\]\) \* sensitivities\[0\] leaves"),
    ],
)
def test_bad_splits_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(TypeError, match="weights must be a sequence"):
        split_mu(1.0, "ab")


@pytest.mark.parametrize("scale", [0.5, 1.0, 7.3])
def test_no_epsilon_is_needed_where_delta_alone_suffices(scale):
    assert gaussian_epsilon(scale, gaussian_delta(scale, 0.0)) == 0.0


def test_a_solution_that_does_not_hold_is_sought_with_more_to_spare():
    """A delta that comes out a thousand margins above what was solved for: the tries double their distance."""
    found = _verified(lambda log_delta, _: math.exp(log_delta), lambda value: value * (1.0 + 1e-10), 1e-6)
    assert 1e-6 * (1.0 - 1e-9) < found <= 1e-6 / (1.0 + 1e-10)
