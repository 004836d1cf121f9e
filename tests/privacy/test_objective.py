"""The noise of objective perturbation: exact profiles, rounded towards privacy; the split of a budget."""

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.objective import disk_delta, exact_objective_delta, integrated_objective_delta, vertices_delta
from scipy import stats

from dpfast import Privacy
from dpfast.privacy import gaussian_delta, meets_its_claim, objective_delta, objective_noise, objective_scale
from dpfast.privacy.objective import curvature_cost

GEOMETRIES = ["segment", "line", "two segments", "two lines", "plane"]
EPSILONS = [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0]
DELTAS = [0.1, 1e-3, 1e-6, 1e-15, 1e-30]
ordinary = st.floats(-3.0, 2.0).map(lambda exponent: 10.0**exponent)


def assert_smallest(scale, epsilon, target, gradient, geometry):
    exact = exact_objective_delta(scale, epsilon, gradient, geometry)
    assert exact <= mp.mpf(target)
    # Less noise gives more, by a jump where the condition for two segments or lines ends.
    if exact < mp.mpf(target) * (1 - mp.mpf("1e-11")):
        assert geometry.startswith("two")
        assert exact_objective_delta(scale * (1.0 - 1e-11), epsilon, gradient, geometry) > mp.mpf(target)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_scale_is_the_smallest_on_a_grid(epsilon, geometry):
    for delta in DELTAS:
        assert_smallest(objective_scale(epsilon, delta, geometry=geometry), epsilon, delta, 1.0, geometry)


@given(ordinary, st.floats(-30.0, -1.0), st.floats(-6.0, 6.0), st.sampled_from(GEOMETRIES))
@settings(max_examples=100)
def test_scale_is_the_smallest(epsilon, log_delta, log_gradient, geometry):
    delta, gradient = 10.0**log_delta, 10.0**log_gradient
    scale = objective_scale(epsilon, delta, gradient, geometry=geometry)
    assert_smallest(scale, epsilon, delta, gradient, geometry)
    assert objective_delta(scale, epsilon, gradient, geometry=geometry) <= delta


@given(ordinary, ordinary, st.sampled_from(GEOMETRIES))
@settings(max_examples=100)
def test_delta_is_rounded_up(epsilon, ratio, geometry):
    exact = exact_objective_delta(1.0, epsilon, ratio, geometry)
    delta = objective_delta(1.0, epsilon, ratio, geometry=geometry)
    if exact > 1e-300:
        assert exact <= mp.mpf(delta) <= min(mp.mpf(1), exact * (1 + mp.mpf("1e-10")))


@pytest.mark.parametrize("geometry", ["line", "plane"])
# The last two are below epsilon = u^2/2, where every draw of the noise counts.
@pytest.mark.parametrize(("scale", "epsilon"), [(9.0, 0.5), (1.0, 1.0), (0.5, 1.0), (3.0, 0.01)])
def test_the_closed_forms_are_the_integrals(scale, epsilon, geometry):
    closed, integrated = (f(scale, epsilon, 1.0, geometry) for f in (exact_objective_delta, integrated_objective_delta))
    assert abs(closed / integrated - 1) < 1e-15


ANGLES = np.linspace(0.0, np.pi, 5)
# Lengths in units of the longest that the condition is for, with a product of at most 1.
LENGTHS = [(1.0, 1.0), (0.6, 0.6), (0.9, 0.2), (2.0, 0.5)]


def direction(angle):
    return np.array([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_two_records_that_pull_the_same_way_are_the_worst_where_each_has_its_side(epsilon, lengths):
    """The parallelogram by quadrature: delta falls with the angle, from the analytic Gaussian's on one segment."""
    one, two = (math.sqrt(epsilon) * (1.0 - 1e-12) * length for length in lengths)
    deltas = []
    for angle in ANGLES:
        first, second = one * direction(0.0), two * direction(angle)
        deltas.append(vertices_delta([first, second, first + second], epsilon))
    assert np.all(np.diff(deltas) <= 1e-3 * deltas[0])
    assert deltas[0] == pytest.approx(gaussian_delta(1.0, epsilon, one + two), rel=2e-3)
    if one == two:
        assert deltas[0] == pytest.approx(objective_delta(1.0, epsilon, one + two, geometry="two segments"), rel=2e-3)
    assert max(deltas) <= objective_delta(1.0, epsilon, 2.0 * max(one, two), geometry="two segments") * 1.002


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("lengths", LENGTHS[:3])
def test_two_records_on_lines_are_no_worse_than_twice_the_gaussian(epsilon, lengths):
    """The parallelogram of both signs, up to where the condition ends: equal on one line, and never above."""

    def holds(u):
        twice = 2.0 * gaussian_delta(1.0, epsilon, u)
        return objective_delta(1.0, epsilon, u, geometry="two lines") == pytest.approx(twice, rel=1e-13)

    longest = max(filter(holds, np.geomspace(0.1, 3.0, 400) * epsilon / (1.0 + math.sqrt(epsilon))))
    one, two = (0.5 * longest * length for length in lengths)
    claim = objective_delta(1.0, epsilon, 2.0 * max(one, two), geometry="two lines")
    for angle in ANGLES[:3]:
        first, second = one * direction(0.0), two * direction(angle)
        corners = [s * first + t * second for s in (1, -1) for t in (1, -1)]
        delta = vertices_delta(corners, epsilon)
        assert delta <= claim * 1.002
        if angle == 0.0 and one == two and epsilon >= 0.5 * longest**2:
            assert delta == pytest.approx(claim, rel=2e-3)
        if angle == 0.0:
            # One sign's profile would be too little: the line is to both sides.
            assert delta > 1.5 * gaussian_delta(1.0, epsilon, one + two)


@pytest.mark.parametrize(("epsilon", "too_long"), [(0.1, 0.2), (1.0, 1.5)])
def test_where_no_condition_is_met_a_planes_noise_is_taken(epsilon, too_long):
    """Though the form that the condition is for would ask for less."""
    for geometry, u, factor in (("two segments", 2.001 * math.sqrt(epsilon), 1.0), ("two lines", too_long, 2.0)):
        plane = objective_delta(1.0, epsilon, u, geometry="plane")
        assert objective_delta(1.0, epsilon, u, geometry=geometry) == plane > factor * gaussian_delta(1.0, epsilon, u)
    # Just before, it is not.
    u = 2.0 * math.sqrt(epsilon) * (1.0 - 1e-12)
    delta, plane = (objective_delta(1.0, epsilon, u, geometry=geometry) for geometry in ("two segments", "plane"))
    assert delta < 0.9 * plane


@pytest.mark.parametrize("turning", [1e-3, 0.1, 0.5, 0.9])
def test_a_disks_delta_is_the_mean_over_directions(turning):
    for epsilon, delta in ((0.1, 1e-3), (1.0, 1e-5), (1.0, 0.05), (8.0, 1e-9)):
        scale = objective_scale(epsilon, delta, (2.0, 2.0 * turning), geometry="disk")
        exact = exact_objective_delta(scale, epsilon, (2.0, 2.0 * turning), "disk")
        assert exact * (1 - mp.mpf("1e-12")) <= delta
        assert exact >= delta * (1 - mp.mpf("1e-9"))
        ends = [objective_scale(epsilon, delta, 2.0, geometry=geometry) for geometry in ("segment", "plane")]
        assert ends[0] < scale <= ends[1]
    plane = objective_delta(1.0, 0.5, 1.01, geometry="plane")
    assert objective_delta(1.0, 0.5, (1.01, 1.01 * turning), geometry="disk") == plane
    assert objective_delta(1.0, 0.5, 1.0, geometry="disk") == objective_delta(1.0, 0.5, 1.0, geometry="plane")


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_no_disk_within_the_length_and_the_radius_is_worse(epsilon):
    """By quadrature over the plane, the largest over the disk: nearly reached by the longest that turns most."""
    length = 0.7 * math.sqrt(epsilon)
    for radius in (0.1 * length, 0.4 * length, 0.8 * length):
        claim = objective_delta(1.0, epsilon, (length, radius), geometry="disk")
        worst = disk_delta(length - radius, radius, epsilon)
        assert 0.8 * claim < worst <= claim * 1.002
        for part in (0.0, 0.5, 0.9):
            assert disk_delta(length - part * radius, part * radius, epsilon) <= worst * 1.002
            assert disk_delta(part * (length - radius), radius, epsilon) <= worst * 1.002


def test_the_least_noise_that_is_proved_is_taken():
    """And again found to suffice: a little less does not."""
    for delta in (0.0, 1e-6):
        every = {"plane": 80.0, "two lines": 82.0, "line": 160.0}
        alone = [calibrated(Privacy(1.0, delta), changes={what: length}).scale for what, length in every.items()]
        noise = calibrated(Privacy(1.0, delta), changes=every)
        assert noise.scale == min(alone)
        assert meets_its_claim(noise, every)
        assert not meets_its_claim(replace(noise, scale=noise.scale * (1.0 - 1e-6)), every)
        # Curvature and finishing count: convexity of half the size costs more than there is.
        less = replace(noise, curvature_epsilon=math.log1p(240.0 / noise.strong_convexity))
        assert not meets_its_claim(less, every)


def redberg_delta(epsilon, u):
    """Theorem 3.1 of Redberg, Koskela and Wang (2023) at what curvature leaves of epsilon, in their two cases."""

    def hockey_stick(epsilon):
        return float(stats.norm.cdf(u / 2.0 - epsilon / u) - math.exp(epsilon) * stats.norm.cdf(-u / 2.0 - epsilon / u))

    left = epsilon - 0.5 * u * u
    if left >= 0.0:
        return 2.0 * hockey_stick(epsilon)
    return 1.0 - math.exp(left) + math.exp(left) * 2.0 * hockey_stick(0.5 * u * u)


def test_noise_is_never_more_than_redberg_koskela_and_wangs():
    """Whose profile is a line's: even where curvature takes no more of epsilon than ours, which hides errors too."""
    for epsilon, u in ((1.0, 0.3), (1.0, 2.5), (0.1, 0.5), (4.0, 1.2)):
        assert objective_delta(1.0, epsilon, u, geometry="line") == pytest.approx(redberg_delta(epsilon, u), rel=1e-9)
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        for delta in (1e-9, 1e-5, 1e-3):
            for m in (1.0, 10.0, 100.0):
                for geometry, gradient in (("segment", 1.0), ("two segments", 2.0)):
                    noise = calibrated(
                        Privacy(epsilon, delta), changes={geometry: gradient}, curvature=0.25, strong_convexity=m,
                        cost=lambda deviation, convexity: convexity,
                    )  # fmt: skip
                    left = epsilon - math.log1p(0.25 / m)
                    assert noise.strong_convexity == m
                    assert noise.scale < 0.995 * objective_scale(left, delta, gradient, geometry="line")


def test_known_values():
    # docs/proofs/objective.md.
    assert objective_scale(0.5, 1e-6, geometry="plane") == pytest.approx(9.07, abs=0.005)
    assert objective_scale(0.5, 1e-6, geometry="line") == pytest.approx(8.35, abs=0.005)
    assert objective_scale(math.inf, 1e-6, geometry="line") == 0.0
    # The simple formula of the same section, which bounds the exact scale from above by little.
    t = math.sqrt(2.0 * math.log(1e6))
    assert 0.8 < objective_scale(0.5, 1e-6, geometry="plane") / (t + math.sqrt(t * t + 1.0)) < 1.0


def worst_delta(epsilon, v1, v2, relative):
    """Integrate over the plane of b, slopes and curvature at their worst for every b: v1's record has curvature."""
    points = np.linspace(-7.0, 7.0, 141)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    x, y = np.meshgrid(points, points, indexing="ij")
    largest = np.full(x.shape, -np.inf)
    for r in np.linspace(0.0, 1.0, 21):
        for part in (0.0, 1.0):
            h = (1.0 - r) * v1 + part * v2
            gain = np.log1p(4.0 * relative * r * (1.0 - r))
            np.maximum(largest, h[0] * x + h[1] * y + 0.5 * (h @ h) + gain, out=largest)
    return weights @ np.maximum(-np.expm1(np.minimum(epsilon - largest, 0.0)), 0.0) @ weights


@pytest.mark.parametrize("geometry", ["segment", "two segments"])
@pytest.mark.parametrize(("noise", "gradient", "relative"), [(1.0, 0.6, 0.1), (1.0, 0.9, 0.6), (0.3, 0.5, 0.2)])
def test_curvature_that_fades_costs_no_more_than_is_said(noise, gradient, relative, geometry):
    """For records of any length and at any angle; half of the cost, or noise for half of the change, would not do."""
    allowed = objective_delta(1.0, noise, gradient, geometry=geometry)
    cost = curvature_cost(relative, noise, geometry)
    half = 0.5 * gradient
    if geometry == "segment":
        shapes = [(part * gradient, 0.0, 0.0) for part in (1.0, 0.6, 0.2)]
    else:
        shapes = [
            (a * half, b * half, t) for a, b in ((1, 1), (1, 0.3), (0.4, 1), (1, 0)) for t in (0.0, 0.7, 2.0, np.pi)
        ]
    found = [
        worst_delta(
            noise + cost, np.array([a, 0.0]), b * np.array([np.cos(t), np.sin(t)]), relative * a / max(shapes[0])
        )
        for a, b, t in shapes
    ]
    assert max(found) <= allowed * (1.0 + 4e-3)
    assert cost > 0.0 or max(found) >= 0.99 * allowed


def test_less_than_the_cost_of_curvature_that_fades_would_not_do():
    """Where the strong convexity is half of what is free on two segments, a record's curvature is seen."""
    noise, gradient = 2.0, 1.2
    v = np.array([0.5 * gradient, 0.0])
    allowed = objective_delta(1.0, noise, gradient, geometry="two segments")
    free = 0.125 * noise
    assert curvature_cost(free, noise, "two segments") == 0.0
    assert curvature_cost(1.01 * free, noise, "two segments") > 0.0
    assert curvature_cost(2.0 * free, noise, "segment") == 0.0
    assert worst_delta(noise, v, v, free) <= allowed * (1.0 + 4e-3)
    assert curvature_cost(8.0 * free, noise, "two segments") > 0.0
    assert worst_delta(noise, v, v, 8.0 * free) > 1.05 * allowed


@given(ordinary, ordinary, st.sampled_from(["segment", "two segments"]))
@settings(max_examples=60)
def test_the_cost_of_curvature_is_rounded_up(relative, noise, geometry):
    rate = noise * (1.0 if geometry == "segment" else 0.5)
    r = np.append(0.0, np.geomspace(1e-9, 1.0, 4001))
    highest = (np.log1p(4.0 * relative * r * (1.0 - r)) - r * rate).max()
    cost = curvature_cost(relative, noise, geometry)
    assert highest <= cost <= min(highest * 1.0001 + 1e-9, curvature_cost(relative, noise) + 1e-9)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("geometry", ["segment", "two segments"])
def test_noise_beside_curvature_that_fades_adds_up_to_the_guarantee(geometry, delta):
    for epsilon in (0.1, 1.0, 8.0):
        for convexity in (0.1, 0.5, 4.0):
            options = {"changes": {geometry: 2.0, "plane": 2.0}, "curvature": 0.25, "dim": 4}
            options |= {"cost": lambda deviation, m: m if deviation < math.inf else math.inf}
            plain, fading = (
                objective_noise(
                    Privacy(epsilon, delta), strong_convexity=convexity / epsilon, curvature_fades=fades, **options
                )
                for fades in (False, True)
            )
            parts = fading.noise_epsilon + fading.curvature_epsilon + fading.finishing_epsilon
            assert epsilon * (1.0 - 1e-9) <= parts <= epsilon
            relative = 0.25 / fading.strong_convexity
            assert fading.curvature_epsilon >= curvature_cost(relative, fading.noise_epsilon, geometry)
            if delta > 0.0:
                left = delta * math.exp(-0.5 * fading.finishing_epsilon)
                assert objective_delta(fading.scale, fading.noise_epsilon, 2.0, geometry=geometry) <= left
            else:
                assert 2.0 / fading.scale <= fading.noise_epsilon
            if fading.strong_convexity == plain.strong_convexity:
                assert fading.scale < plain.scale


def test_hardly_any_noise_pays_for_all_of_the_curvature():
    """On two segments the proof asks for noise that is not too small; a line would do with more of it."""
    options = {"changes": {"two segments": 2.0}, "curvature": 0.25, "strong_convexity": 4.0, "dim": 1}
    chosen = objective_noise(Privacy(1.0, 0.5), curvature_fades=True, **options)
    assert (1.0 / chosen.scale) ** 2 > 0.5 * chosen.noise_epsilon
    assert chosen.curvature_epsilon >= math.log1p(0.25 / chosen.strong_convexity)


def calibrated(privacy, **changes):
    bounds = {"changes": {"plane": 80.0}, "curvature": 120.0, "strong_convexity": 10.0, "dim": 10}
    return objective_noise(privacy, **(bounds | changes))


@pytest.mark.parametrize("epsilon", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("fades", [False, True])
def test_however_large_epsilon_is_the_claim_is_met_and_delta_is_left(epsilon, fades):
    changes = {"two segments": 2.0, "plane": 2.0}
    noise = calibrated(Privacy(epsilon, 1e-5), changes=changes, curvature_fades=fades, strong_convexity=0.0)
    assert noise.mechanism == "Gaussian"
    assert meets_its_claim(noise, changes)
    assert noise.finishing_epsilon == 1.0


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("convexity", [0.0, 10.0, 1e6])
def test_the_parts_add_up_to_the_guarantee(epsilon, delta, convexity):
    noise = calibrated(Privacy(epsilon, delta), strong_convexity=convexity)
    with mp.workdps(60):
        curvature = mp.log1p(mp.mpf(120.0) / mp.mpf(noise.strong_convexity))
        finishing = 2 * mp.mpf(1e-9) / mp.mpf(noise.finishing_scale(1e-9))
        hidden = mp.mpf(noise.noise_epsilon)
        assert hidden + curvature + finishing <= epsilon
        # All of it is used, but for the slack that calibrations leave to ledgers.
        assert hidden + curvature + finishing >= epsilon * (1 - mp.mpf("1e-11"))
        if delta == 0.0:
            assert mp.mpf(80.0) / mp.mpf(noise.scale) <= hidden
        else:
            exact = exact_objective_delta(noise.scale, noise.noise_epsilon, 80.0, "plane")
            assert exact * mp.exp(finishing / 2) <= delta
    assert noise.strong_convexity >= convexity
    assert meets_its_claim(noise, {"plane": 80.0})


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_split_is_the_best(delta):
    """No other convexity does better in what the two parts can add to the objective together."""
    noise = calibrated(Privacy(1.0, delta))

    def cost(convexity):
        left = 1.0 - noise.finishing_epsilon - math.log1p(120.0 / convexity)
        if left <= 0.0:
            return math.inf
        scale = objective_scale(left, delta, 80.0, geometry="plane") if delta else 80.0 / left * math.sqrt(11.0)
        return math.sqrt(10.0) * scale + 0.5 * (convexity - 10.0)

    best = cost(noise.strong_convexity)
    assert all(cost(convexity) >= best * (1.0 - 1e-5) for convexity in np.geomspace(10.0, 1e6, 400))


def test_a_convexity_that_is_large_enough_is_kept():
    noise = calibrated(Privacy(1.0, 1e-6), strong_convexity=1e6)
    assert noise.strong_convexity == 1e6
    assert noise.curvature_epsilon == pytest.approx(120e-6, rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e3, 1e5, 1e6, 1e9])
def test_noise_is_enough_at_any_epsilon(epsilon):
    """The finishing noise leaves something of delta: no Gaussian noise has a delta of 0."""
    noise = calibrated(Privacy(epsilon, 1e-6))
    assert meets_its_claim(noise, {"plane": 80.0})
    # Most of it goes to noise, of which it is some (80/scale)^2/2.
    assert noise.scale * math.sqrt(2.0 * epsilon) == pytest.approx(80.0, rel=0.15)


def test_coordinates_of_pure_noise():
    noise = calibrated(Privacy(1.0))
    assert noise.mechanism == "L2-Laplace"
    # ||b||^2 has mean dim (dim + 1) scale^2: the radius is Gamma(dim).
    assert noise.coordinate_scale(10) == pytest.approx(noise.scale * math.sqrt(11.0))
    assert replace(noise, mechanism="Gaussian").coordinate_scale(10) == noise.scale


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: objective_scale(0.0, 1e-6, geometry="line"), "epsilon must be positive"),
        (lambda: objective_scale(1.0, 0.0, geometry="line"), "delta = 0"),
        (lambda: objective_scale(1.0, 1e-6, geometry="space"), "geometry must be .* got 'space'"),
        (lambda: objective_scale(1.0, 1e-6, -1.0, geometry="line"), "gradient must be positive"),
        (lambda: objective_delta(0.0, 1.0, geometry="line"), "scale must be positive"),
        (lambda: calibrated(Privacy(math.inf)), "epsilon must be finite"),
        (lambda: calibrated(Privacy(1.0), changes={}), "changes must say what is proved"),
        (lambda: calibrated(Privacy(1.0), changes={"space": 1.0}), "geometry must be .* got 'space'"),
        (lambda: calibrated(Privacy(1.0), changes={"line": 0.0}), r"changes\['line'\] must be positive"),
        (lambda: calibrated(Privacy(1.0), curvature=0.0), "curvature must be positive"),
        (lambda: calibrated(Privacy(1.0), strong_convexity=-1.0), "strong_convexity must be at least 0"),
        (lambda: calibrated(Privacy(1.0)).finishing_scale(0.0), "tolerance must be positive"),
        (lambda: calibrated(Privacy(1.0), dim=0), "dim must be at least 1"),
        (lambda: calibrated(Privacy(1.0), finishing_share=1.0), "finishing_share must lie in"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_convexity_is_asked_for_at_a_large_epsilon():
    assert 0.0 < calibrated(Privacy(1e4, 1e-5), strong_convexity=0.0).strong_convexity < 1e-3


@pytest.mark.parametrize("epsilon", [1e300, 8e307, 1e308, 1.79e308])
@pytest.mark.parametrize("geometry", ["segment", "line", "two segments", "two lines", "plane", "disk"])
def test_the_search_ends_at_the_largest_numbers(epsilon, geometry):
    length = (4.0, 1.0) if geometry == "disk" else 4.0
    scale = objective_scale(epsilon, 1e-6, length, geometry=geometry)
    assert 0.0 < scale < 1e-140
    # Private for less epsilon, so for this one too.
    assert objective_delta(scale, 2.0**960, length, geometry=geometry) <= 1e-6
