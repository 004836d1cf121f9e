import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference.spherical import exact_divergence

from dpfast.noise import SeededSource, gaussian, grid_for_scales
from dpfast.privacy import (
    SmoothGaussian,
    best_beta,
    gaussian_delta,
    gaussian_scale,
    smooth_gaussian,
    smooth_gaussian_delta,
)
from dpfast.privacy.smooth_gaussian import ACCURACY, log_divergence

# (log of the variance ratio, distance, epsilon, dim), and the divergence in 40 digits: fair and far tails, nearly equal
# widths, means that agree, many dimensions, deltas near 1. `test_the_table_is_right` recomputes it.
HARD_POINTS = {
    (0.1, 0.04, 0.001, 1): "0.02747376300095541351077",
    (0.1, 0.04, 0.001, 2): "0.03916737720310260797786",
    (0.003683, 0.229, 1.0, 10): "0.000001000171388307429839727",
    (0.02, 0.2, 1.0, 2): "0.000001453446049485971222278",
    (0.00036, 0.002631578947368421, 0.01, 10): "0.0000010639664726216382987",
    (0.1, 2.5, 20.0, 100): "5.848412816871108990704e-9",
    (0.0001, 0.2, 1.0, 1000): "1.818371434077683884745e-8",
    (0.0005, 0.19, 1.0, 10_000): "7.933174602168245705517e-9",
    (1e-06, 0.2, 1.0, 3): "1.755230962040701260969e-8",
    (1e-09, 0.12, 1.0, 5): "9.0630871845701220548e-19",
    (0.3, 0.3, 0.1, 1): "0.1006486269310193393352",
    (0.5, 2.0, 0.1, 5): "0.6450225180978963229993",
    (0.05, 0.0, 1.0, 3): "2.06381283392152513076e-10",
    (2.0, 1.0, 20.0, 2): "0.03648125352084267995288",
    (0.001, 0.12, 1.0, 30): "9.339954193867090457053e-18",
    (1.5, 0.7, 0.05, 400): "1.0",
    (0.134, 1.98, 20.0, 10): "9.724674767424754937216e-13",
}

log_uniform = {
    "epsilon": st.floats(-2.0, 1.3).map(lambda exponent: 10.0**exponent),
    "delta": st.floats(-12.0, -1.0).map(lambda exponent: 10.0**exponent),
    "dim": st.floats(0.0, 4.0).map(lambda exponent: round(10.0**exponent)),
}


def lemma_beta(epsilon, delta, dim):
    """The beta of the printed Lemma 1."""
    root = math.sqrt(2.0 * math.log(4.0 / delta))
    return 2.0 * math.log(2.0) * epsilon / (5.0 * (math.sqrt(dim) + root) ** 2)


@pytest.mark.parametrize("point", HARD_POINTS)
def test_divergence_at_hard_points(point):
    log_ratio, distance, epsilon, dim = point
    exact = mp.log(mp.mpf(HARD_POINTS[point]))
    assert abs(log_divergence(log_ratio, distance, epsilon, dim) - exact) <= 0.1 * ACCURACY


@pytest.mark.slow
@pytest.mark.parametrize("point", HARD_POINTS)
def test_the_table_is_right(point):
    log_ratio, distance, epsilon, dim = point
    with mp.workdps(40):
        exact = exact_divergence(mp.exp(mp.mpf(log_ratio) / 2), 1, distance, epsilon, dim)
        assert abs(exact / mp.mpf(HARD_POINTS[point]) - 1) < mp.mpf("1e-18")


@given(st.floats(-8.0, 0.4), st.floats(-3.0, 0.7), st.floats(-3.0, 1.3))
@settings(max_examples=200)
def test_divergence_on_a_line(log_ratio, log_distance, log_epsilon):
    """In one dimension the tails are normal and 40 digits are cheap."""
    ratio, distance, epsilon = (10.0**exponent for exponent in (log_ratio, log_distance, log_epsilon))
    with mp.workdps(40):
        exact = mp.log(exact_divergence(mp.exp(mp.mpf(ratio) / 2), 1, distance, epsilon, 1))
        found = log_divergence(ratio, distance, epsilon, 1)
        assert found >= exact - 0.1 * ACCURACY
        if exact > -1000:
            assert found <= exact + 0.1 * ACCURACY


@given(log_uniform["epsilon"], st.floats(0.1, 10.0), log_uniform["dim"])
@settings(max_examples=100)
def test_equal_widths_are_the_analytic_gaussian(epsilon, alpha, dim):
    nearly = smooth_gaussian_delta(alpha, 1e-15, epsilon, dim)
    assert gaussian_delta(alpha, epsilon) == smooth_gaussian_delta(alpha, 0.0, epsilon, dim)
    assert nearly == pytest.approx(gaussian_delta(alpha, epsilon), rel=1e-8)


def test_known_values():
    # docs/proofs/policy_evaluation.md.
    beta = lemma_beta(1.0, 1e-6, 10)
    assert smooth_gaussian(1.0, 1e-6, 10, beta).alpha == pytest.approx(4.367, abs=5e-4)
    assert smooth_gaussian(1.0, 1e-6, 10, 5 * beta).alpha == pytest.approx(5.126, abs=6e-4)


@given(log_uniform["epsilon"], log_uniform["delta"], log_uniform["dim"], st.floats(-3.0, 1.0))
@settings(max_examples=100)
def test_calibration_is_tight_and_put_back_in(epsilon, delta, dim, log_share):
    default = smooth_gaussian(epsilon, delta, dim)
    assert default.alpha == pytest.approx(1.25 * gaussian_scale(epsilon, delta), rel=1e-12)
    pairs = [default, smooth_gaussian(epsilon, delta, dim, default.beta * min(1.0, 10.0**log_share))]
    for pair in pairs:
        assert delta * (1 - 1e-8) <= smooth_gaussian_delta(pair.alpha, pair.beta, epsilon, dim) <= delta
    assert gaussian_scale(epsilon, delta) <= pairs[1].alpha <= default.alpha * (1 + 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "dim", "share"),
    [(1.0, 1e-6, 2, 1.0), (0.05, 1e-9, 7, 0.3), (10.0, 1e-4, 3, 2.0), (0.3, 0.02, 5, 0.7), (0.5, 0.3, 2, 1.0)],
)
def test_no_pair_within_the_conditions_exceeds_delta(epsilon, delta, dim, share):
    """Random standard deviations and distances in both directions, many of them at the limits, in 40 digits."""
    beta = smooth_gaussian(epsilon, delta, dim).beta * share
    alpha = smooth_gaussian(epsilon, delta, dim, beta).alpha
    rng = np.random.default_rng(dim)
    largest = 0
    with mp.workdps(40):
        for place, reach in [(1.0, 1.0), (-1.0, 1.0), tuple(rng.uniform((-1.0, 0.8), 1.0))]:
            first = mp.exp(mp.mpf(place) * mp.mpf(beta) / 4)
            distance = mp.mpf(reach) * min(first, 1 / first) / mp.mpf(alpha)
            found = exact_divergence(first, 1 / first, distance, epsilon, dim)
            assert found <= mp.mpf(delta)
            largest = max(largest, found)
    assert largest >= 0.97 * delta


@pytest.mark.slow
def test_no_pair_anywhere_exceeds_delta():
    rng = np.random.default_rng(0)
    with mp.workdps(40):
        for _ in range(16):
            epsilon, delta = 10 ** rng.uniform(-2, 1.3), 10 ** rng.uniform(-12, -1)
            dim = round(10 ** rng.uniform(0.3, 2.0))
            beta = smooth_gaussian(epsilon, delta, dim).beta * 10 ** rng.uniform(-3, 0)
            alpha = smooth_gaussian(epsilon, delta, dim, beta).alpha
            place, reach = (rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]), rng.choice([1.0, rng.uniform(0.5, 1)]))
            first = mp.exp(mp.mpf(place) * mp.mpf(beta) / 4)
            distance = mp.mpf(reach) * min(first, 1 / first) / mp.mpf(alpha)
            assert exact_divergence(first, 1 / first, distance, epsilon, dim) <= mp.mpf(delta)


@given(
    log_uniform["epsilon"],
    log_uniform["delta"],
    st.floats(-2.0, 1.0),
    st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)), min_size=5, max_size=5),
)
@settings(max_examples=40)
def test_no_pair_on_a_line_exceeds_delta(epsilon, delta, log_share, places):
    """One dimension is calibrated as two: the only one without a proof of its own that the wider law first is worse."""
    beta = smooth_gaussian(epsilon, delta, 1).beta * min(1.0, 10.0**log_share)
    alpha = smooth_gaussian(epsilon, delta, 1, beta).alpha
    with mp.workdps(40):
        for place, reach in [(-1000, 1000), (1000, 1000), *places]:
            first = mp.exp(mp.mpf(place) / 1000 * mp.mpf(beta) / 4)
            distance = mp.mpf(reach) / 1000 * min(first, 1 / first) / mp.mpf(alpha)
            assert exact_divergence(first, 1 / first, distance, epsilon, 1) <= mp.mpf(delta)


def test_one_dimension_costs_little_by_being_calibrated_as_two():
    beta = smooth_gaussian(1.0, 1e-6, 1).beta
    alpha = smooth_gaussian(1.0, 1e-6, 1, beta).alpha
    exact = exact_divergence(math.exp(beta / 2), 1, 1 / (0.994 * alpha), 1.0, 1)
    assert exact > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3, 8])
def test_the_wider_law_first_is_worse(dim):
    """Fact 2 of the module, far outside the usual ranges too."""
    rng = np.random.default_rng(dim)
    ratio, distance = math.exp(10 ** rng.uniform(-2, 0.3)), 10 ** rng.uniform(-2, 0.5)
    epsilon = 10 ** rng.uniform(-2, 0.5)
    with mp.workdps(40):
        worse = exact_divergence(ratio, 1, distance, epsilon, dim)
        assert exact_divergence(1, ratio, distance, epsilon, dim) <= worse


@given(st.integers(2, 1000), st.floats(-3.0, 0.5), st.floats(-2.0, 1.0), st.floats(-6.0, 0.3))
def test_divergence_is_monotone_as_the_proof_says(dim, log_distance, log_epsilon, log_beta):
    """Facts 1, 3 and 4."""
    distance, epsilon, beta = 10.0**log_distance, 10.0**log_epsilon, 10.0**log_beta
    value = log_divergence(beta, distance, epsilon, dim)
    assume(value >= -1000.0)  # below, it is an upper bound on some arguments, the divergence itself on others
    slack = 2 * ACCURACY * max(1.0, abs(value) / 1e4)
    assert log_divergence(beta, 1.01 * distance, epsilon, dim) >= value - slack
    assert log_divergence(beta, distance, epsilon, dim + 1) >= value - slack
    # At a fixed distance in units of the wider law, for every epsilon.
    assert log_divergence(1.01 * beta, distance * math.exp(0.005 * beta), epsilon, dim) >= value - slack
    if 0.5 * distance**2 - 0.5 * dim * beta <= epsilon:
        assert log_divergence(1.01 * beta, distance, epsilon, dim) >= value - slack


def test_bound_is_nearly_tight_where_it_is_not_exact():
    """alpha below 1/sqrt(2 epsilon): the largest divergence on a fine scan against the bound."""
    for epsilon, alpha, beta, dim in [(0.01, 3.0, 0.05, 4), (0.1, 1.0, 0.2, 2), (1.0, 0.5, 0.1, 50)]:
        assert alpha < 1 / math.sqrt(2 * epsilon)
        scan = [log_divergence(ratio, 1 / alpha, epsilon, dim) for ratio in np.linspace(0, beta, 301)[1:]]
        worst = max(gaussian_delta(alpha, epsilon), math.exp(max(scan)))
        bound = smooth_gaussian_delta(alpha, beta, epsilon, dim)
        assert worst <= bound <= 1.1 * worst


def test_no_solution_is_said():
    with pytest.raises(ValueError, match=r"beta = 1 is too large.*The default is 0\.0207"):
        smooth_gaussian(1.0, 1e-6, 10, beta=1.0)
    with pytest.raises(ValueError, match="too large"):
        smooth_gaussian(1.0, 1e-6, 10_000, beta=0.01)


def test_no_noise():
    assert smooth_gaussian(math.inf, 0.0, 3) == SmoothGaussian(0.0, math.inf)
    assert smooth_gaussian(math.inf, 1e-6, 3, beta=0.5) == SmoothGaussian(0.0, 0.5)
    assert smooth_gaussian(math.inf, 1e-6, 3).scale(2.0, tau=1.0) == 0.0
    assert smooth_gaussian(math.inf, 1e-6, 3).smoothness() == math.inf
    assert smooth_gaussian_delta(0.0, 0.1, math.inf, 3) == 0.0


def test_delta_of_extreme_arguments_stays_in_range():
    assert smooth_gaussian_delta(0.0, 0.1, 1.0, 3) == 1.0
    assert smooth_gaussian_delta(1.0, 1e3, 1.0, 3) == 1.0
    assert smooth_gaussian_delta(1e-300, 0.1, 1.0, 3) == 1.0
    assert smooth_gaussian_delta(1e-20, 1e-9, 1.0, 3) == 1.0
    assert smooth_gaussian_delta(1e300, 1e-300, 1e300, 10**6) == 5e-324
    assert smooth_gaussian_delta(10.0, 1e-3, 0.0, 10) == pytest.approx(math.erf(0.1 / math.sqrt(8)), rel=0.02)


@pytest.mark.parametrize(
    "variance",
    [
        pytest.param(lambda beta: max(math.exp(-k * beta) / max(300 - k, 1) ** 2 for k in range(301)), id="kinks"),
        pytest.param(lambda beta: beta**-0.5, id="smooth"),
    ],
)
def test_best_beta_is_the_best_of_a_fine_scan(variance):
    def noise(beta):
        return smooth_gaussian(0.5, 1e-6, 8, beta).alpha ** 2 * variance(beta)

    found = best_beta(0.5, 1e-6, 8, variance)
    largest = smooth_gaussian(0.5, 1e-6, 8).beta
    assert noise(found) <= min(noise(beta) for beta in np.geomspace(largest / 100, 1.2 * largest, 200)) * (1 + 1e-3)


def test_noise_stays_near_its_floor_or_beta_is_refused():
    """As beta nears what no noise can hide, the least alpha diverges."""
    low, high = smooth_gaussian(1.0, 1e-6, 10).beta, 100.0
    for _ in range(50):
        middle = (low + high) / 2.0
        try:
            largest = smooth_gaussian(1.0, 1e-6, 10, middle).alpha
            low = middle
        except ValueError:
            high = middle
    assert 1e5 < largest / gaussian_scale(1.0, 1e-6) < 2e6


def test_best_beta_takes_a_positive_function():
    with pytest.raises(TypeError, match="variance must be a function"):
        best_beta(1.0, 1e-6, 2, 0.5)
    with pytest.raises(ValueError, match=r"variance\(beta\) must be positive"):
        best_beta(1.0, 1e-6, 2, lambda beta: 0.0)
    with pytest.raises(ValueError, match="epsilon"):
        best_beta(math.inf, 1e-6, 2, lambda beta: 1.0)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e3), st.floats(0.0, 1e-4), st.floats(0.9, 1.1), st.floats(0.0, 1.0))
def test_rounding_stays_within_both_conditions(bound, tau, error, ratio, rounded):
    """Neighbouring exact bounds S, ratio S, as smooth as they may be; computed up to a factor 1 + error too large."""
    calibration = SmoothGaussian(alpha=3.7, beta=0.3)
    share = calibration.smoothness(error)
    other = bound * max(min(ratio, math.exp(share / 2) * (1 - 1e-15)), math.exp(-share / 2) * (1 + 1e-15))
    scales = [
        calibration.scale(bound * (1 + 0.999 * error * rounded), tau),
        calibration.scale(other * (1 + 0.999 * error * (1 - rounded)), tau),
    ]
    with mp.workdps(40):
        local = min(mp.mpf(bound), mp.mpf(other))
        assert min(scales) >= mp.mpf("3.7") * (1 - mp.mpf(2) ** -52) * (local + 2 * mp.mpf(tau))
        if min(scales) > 0.0:
            assert abs(2 * mp.log(mp.mpf(scales[0]) / mp.mpf(scales[1]))) <= mp.mpf("0.3")


def test_smoothness_leaves_something_or_says_so():
    calibration = smooth_gaussian(1.0, 1e-6, 10)
    assert calibration.beta - 1e-10 < calibration.smoothness() < calibration.beta
    with pytest.raises(ValueError, match="epsilon must be larger"):
        calibration.smoothness(0.5)
    with pytest.raises(ValueError, match="relative_error must lie"):
        calibration.smoothness(-0.1)
    with pytest.raises(ValueError, match="beyond the largest float"):
        SmoothGaussian(10.0, 0.1).scale(1e308)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-6, 2), "epsilon"),
        ((math.nan, 1e-6, 2), "epsilon"),
        ((1.0, 0.0, 2), "delta"),
        ((1.0, 1.0, 2), "delta"),
        ((1.0, 1e-6, 0), "dim"),
        ((1.0, 1e-6, 2, 0.0), "beta"),
        ((1.0, 1e-6, 2, math.inf), "beta"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        smooth_gaussian(*arguments)


def test_bad_types_are_refused():
    with pytest.raises(TypeError, match="dim"):
        smooth_gaussian(1.0, 1e-6, 2.0)
    with pytest.raises(TypeError, match="beta"):
        smooth_gaussian(1.0, 1e-6, 2, "0.1")


def test_noise_on_the_worst_pair_reaches_delta_and_a_tenth_less_is_caught():
    """Drawn as a release is: scales from the local bounds, on the grid that suits them all.

    The best test of the pair has p - exp(epsilon) q = delta; false-reject rate 1e-6: 4.9 standard errors.
    """
    epsilon, delta, dim, n = 1.0, 0.05, 2, 200_000
    pair = smooth_gaussian(epsilon, delta, dim)
    source = SeededSource(5)
    grid = grid_for_scales(pair.scale(1e-3), pair.scale(1.0))

    def excess(weaken):
        scales = [pair.scale(bound) / weaken for bound in (0.1 * math.exp(pair.beta / 2), 0.1)]
        means = np.array([[0.0, 0.0], [0.1, 0.0]])
        hits = []
        for scale, mean in zip(scales, means, strict=True):
            draws = gaussian(scale, (n, dim), source, center=np.tile(mean, (n, 1)), grid=grid)
            distances = [np.sum(((draws - m) / s) ** 2, axis=1) / 2 for m, s in zip(means, scales, strict=True)]
            losses = distances[1] - distances[0] - dim * math.log(scales[0] / scales[1])
            hits.append(np.mean(losses > epsilon))
        p, q = hits
        error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / n)
        return (p - math.exp(epsilon) * q - delta) / error

    assert abs(excess(1.0)) < 4.9
    assert excess(1.1) > 4.9
