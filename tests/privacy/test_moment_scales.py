import itertools
import math
from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import climb, row_in_ball

from dpfast.privacy import MomentScales, moment_mu, moment_scales
from dpfast.privacy.moment_scales import joint_mu

_module = import_module("dpfast.privacy.moment_scales")  # hidden by the function of that name
BLOCKS = ("xx", "x", "xy", "y")
SHAPES = [(1, 1), (1, 2), (2, 1), (3, 2)]
SUBSETS = [blocks for size in range(1, 5) for blocks in itertools.combinations(BLOCKS, size)]


def statistics(z, y):
    """One record's contribution to every block."""
    return {"xx": np.outer(z, z), "x": z, "xy": np.outer(z, y), "y": y, "n": np.ones(1)}


def noise_distance(scales, ours, theirs):
    """How far apart the Gaussian releases of two datasets are, in standard deviations."""
    total = 0.0
    for block in scales.released:
        total += np.sum((ours[block] - theirs[block]) ** 2) / getattr(scales, block) ** 2
    return math.sqrt(total)


def random_scales(blocks, bound_x, bound_y, rng):
    """Noise of the order of each block's bound, so that the blocks compete."""
    units = {"xx": bound_x**2, "x": bound_x, "xy": bound_x * bound_y, "y": bound_y, "n": 1.0}
    return MomentScales(**{block: units[block] * math.exp(rng.uniform(-1, 1)) for block in blocks})


def hill_climbed_ratio(scales, bounds, shape, adjacency, nonnegative, rng, **effort):
    """Largest distance found between neighbours over the claimed mu."""
    d, k = shape
    blocks = set(scales.released) - ({"n"} if adjacency == "replace_one" else set())
    scales = MomentScales(**{block: getattr(scales, block) for block in blocks})

    def change(p):
        z, y = (
            row_in_ball(q, b, nonnegative=nonnegative) for q, b in zip(np.split(p[: d + k], [d]), bounds, strict=True)
        )
        if adjacency == "add_remove":
            theirs = statistics(np.zeros(d), np.zeros(k)) | {"n": np.zeros(1)}
        else:
            v, w = (
                row_in_ball(q, b, nonnegative=nonnegative)
                for q, b in zip(np.split(p[d + k :], [d]), bounds, strict=True)
            )
            theirs = statistics(v, w)
        return noise_distance(scales, statistics(z, y), theirs)

    found, _ = climb(change, 2 * (d + k), rng, **effort)
    mu = moment_mu(
        scales,
        *bounds,
        adjacency=adjacency,
        n_features=d,
        n_outcomes=k if nonnegative else None,
        nonnegative=nonnegative,
    )
    return found / mu


def assert_tight(blocks, shape, adjacency, nonnegative, seed, **effort):
    rng = np.random.default_rng(seed)
    bounds = tuple(np.exp(rng.uniform(-1, 1, size=2)))
    scales = random_scales(blocks, *bounds, rng)
    ratio = hill_climbed_ratio(scales, bounds, shape, adjacency, nonnegative, rng, **effort)
    assert 1.0 - 1e-6 <= ratio <= 1.0, (blocks, shape, adjacency, nonnegative, seed, ratio)


CASES = list(itertools.product(SUBSETS, SHAPES, ("replace_one", "add_remove"), (False, True)))


@pytest.mark.parametrize("case", CASES[::7], ids=str)
def test_mu_is_reached_and_never_passed(case):
    assert_tight(*case, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mu_is_reached_and_never_passed_everywhere(case):
    assert_tight(*case, seed=1)


@pytest.mark.parametrize("noise", [(1.0, 4.0, 5.0, 4.0), (1.0, 6.0, 3.0, 4.0), (1.0, 5.0, 5.0, math.inf)])
def test_single_feature_is_worst_inside_its_range(noise):
    """With little noise on xx the worst second row is neither 0 nor on its bound."""
    scales = MomentScales(**dict(zip(BLOCKS, noise, strict=True)))
    rng = np.random.default_rng(0)
    ratio = hill_climbed_ratio(scales, (1.0, 1.0), (1, 2), "replace_one", False, rng)
    assert 1.0 - 1e-6 <= ratio <= 1.0


@pytest.mark.parametrize("shape", SHAPES)
def test_count_is_part_of_add_remove(shape):
    assert_tight(("xx", "x", "xy", "y", "n"), shape, "add_remove", False, seed=3)


def test_hill_climbing_catches_a_missing_factor(monkeypatch):
    """The same property fails for the sensitivity that PRIMO prints: the 2 of x'y missing."""
    signed = _module._signed

    def too_small(*precisions):
        return [(xx, x, xy / 2, y, n) for xx, x, xy, y, n in signed(*precisions)]

    monkeypatch.setattr(_module, "_signed", too_small)
    with pytest.raises(AssertionError):
        assert_tight(("xx", "xy"), (3, 2), "replace_one", False, seed=0)


@given(st.floats(-6, 6), st.floats(-6, 6))
def test_pair_follows_the_closed_form(log_xx, log_xy):
    scales = MomentScales(xx=math.exp(log_xx), xy=math.exp(log_xy))
    bound_x, bound_y = 1.5, 0.7
    a, b = 2 * bound_x**4 / scales.xx**2, 2 * bound_x**2 * bound_y**2 / scales.xy**2
    expected = {
        ("replace_one", False): a + b + b * b / (4 * a) if b <= 2 * a else 2 * b,
        ("replace_one", True): a + b,
        ("add_remove", False): (a + b) / 2,
        ("add_remove", True): (a + b) / 2,
    }
    for (adjacency, nonnegative), squared in expected.items():
        mu = moment_mu(scales, bound_x, bound_y, adjacency=adjacency, n_features=4, nonnegative=nonnegative)
        assert squared * (1 - 1e-15) <= mu**2 <= squared * (1 + 2e-13)


def test_mu_does_not_lose_extreme_scales():
    for size in (1e-150, 1e-60, 1e60, 1e150):
        scales = MomentScales(xx=size, xy=size)
        mu = moment_mu(scales, 1.0, 1.0, adjacency="replace_one", n_features=2)
        assert mu == pytest.approx(math.sqrt(4.5) / size, rel=1e-13)


weights_of_blocks = st.dictionaries(
    st.sampled_from(BLOCKS), st.floats(-4, 4).map(lambda exponent: 10.0**exponent), min_size=1
)


def cost(scales, weights):
    return sum(weight * getattr(scales, block) ** 2 for block, weight in weights.items())


@given(weights_of_blocks, st.sampled_from(SHAPES), st.sampled_from(["replace_one", "add_remove"]), st.booleans())
@settings(deadline=None, max_examples=150)
def test_best_scales_keep_the_budget_and_beat_perturbations(weights, shape, adjacency, nonnegative):
    options = {"adjacency": adjacency, "n_features": shape[0], "n_outcomes": shape[1], "nonnegative": nonnegative}
    scales = moment_scales(0.3, 1.5, 0.7, weights, **options)
    assert set(scales.released) == set(weights)
    assert 0.3 * (1 - 1e-12) <= moment_mu(scales, 1.5, 0.7, **options) <= 0.3
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(10):
            other = MomentScales(**{b: getattr(scales, b) * math.exp(size * rng.normal()) for b in weights})
            spent = moment_mu(other, 1.5, 0.7, **options)
            assert cost(scales, weights) <= cost(other, weights) * (spent / 0.3) ** 2 * (1 + 1e-8)


@pytest.mark.parametrize("n_features", [1, 3])
@pytest.mark.parametrize("blocks", [("xx", "xy"), ("xx", "x", "xy"), ("x", "xy", "y"), ("xx", "xy", "y")])
def test_best_scales_beat_a_fine_grid(blocks, n_features):
    weights = dict(zip(blocks, (1.0, 0.3, 2.0), strict=False))
    options = {"adjacency": "replace_one", "n_features": n_features}
    best = cost(moment_scales(1.0, 1.0, 1.0, weights, **options), weights)
    on_grid = math.inf
    for exponents in itertools.product(np.linspace(-2, 2, 81), repeat=len(blocks) - 1):
        trial = MomentScales(**dict(zip(blocks, (1.0, *np.exp(exponents)), strict=True)))
        on_grid = min(on_grid, cost(trial, weights) * moment_mu(trial, 1.0, 1.0, **options) ** 2)
    assert best <= on_grid <= best * 1.01


def test_numeric_optimiser_agrees_with_the_pair():
    """The pair by sequential quadratic programming, against its closed form on both sides of r = 2."""
    for log_weight in np.linspace(-5, 5, 21):
        weights = (1.0, 0.0, math.exp(log_weight), 0.0, 0.0)
        closed = np.array(_module._best_pair(weights[0], weights[2]))
        numeric = np.array(_module._minimise(weights, (1.0, 0.0, 1.0, 0.0, 0.0), _module._signed))
        assert numeric[2] / numeric[0] == pytest.approx(closed[2] / closed[0], rel=1e-4)


def test_equal_weights_of_the_pair():
    # docs/proofs/moments.md: 1/A + 1/B is 4.41/mu**2 against 6/mu**2 for two halves; A = 2/s_xx**2, B = 2/s_xy**2.
    scales = moment_scales(1.0, 1.0, 1.0, {"xx": 1.0, "xy": 1.0}, adjacency="replace_one", n_features=2)
    assert (scales.xx**2 + scales.xy**2) / 2 == pytest.approx(4.41, abs=0.005)


def test_best_scales_are_the_same_every_time():
    arguments = (0.5, 1.2, 3.4, {"xx": 1.0, "x": 2.0, "xy": 3.0, "y": 4.0})
    first = moment_scales(*arguments, adjacency="replace_one", n_features=7)
    assert all(moment_scales(*arguments, adjacency="replace_one", n_features=7) == first for _ in range(5))


def test_add_remove_includes_the_count():
    scales = moment_scales(1.0, 2.0, None, {"x": 1.0, "n": 1.0}, adjacency="add_remove", n_features=3)
    # Loads 4 and 1: variances (sqrt(w L) summed) sqrt(L/w), hence 3 * 2 and 3 * 1.
    assert scales.x**2 == pytest.approx(6.0, rel=1e-12)
    assert scales.n**2 == pytest.approx(3.0, rel=1e-12)


def test_no_noise():
    scales = moment_scales(math.inf, 1.0, 1.0, adjacency="replace_one", n_features=2)
    assert scales == MomentScales(xx=0.0, xy=0.0)
    assert moment_mu(scales, 1.0, 1.0, adjacency="replace_one", n_features=2) == math.inf
    assert moment_mu(MomentScales(), 1.0, 1.0, adjacency="replace_one", n_features=2) == 0.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mu": 0.0}, "mu must be positive"),
        ({"bound_x": 0.0}, "bound_x must be positive"),
        ({"bound_x": math.inf}, "bound_x must be positive and finite"),
        ({"bound_y": None}, "bound_y is needed"),
        ({"bound_y": -1.0}, "bound_y must be positive"),
        ({"weights": {}}, "at least one block"),
        ({"weights": {"yy": 1.0}}, "'yy'"),
        ({"weights": {"xx": 0.0}}, r"weights\['xx'\] must be positive"),
        ({"weights": {"xx": 1.0, "n": 1.0}}, "must not name 'n' under replace_one"),
        ({"adjacency": "replace"}, "adjacency must be"),
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_outcomes": 0}, "n_outcomes must be at least 1"),
        ({"bound_x": 1e-80}, "between 1e-70 and 1e70"),
    ],
)
def test_bad_values_are_refused(changed, message):
    arguments = {"mu": 1.0, "bound_x": 1.0, "bound_y": 1.0, "weights": {"xx": 1.0, "xy": 1.0}}
    arguments |= {"adjacency": "replace_one", "n_features": 2} | changed
    with pytest.raises(ValueError, match=message):
        moment_scales(**arguments)


def test_bad_types_and_scales_are_refused():
    with pytest.raises(TypeError, match="weights must map"):
        moment_scales(1.0, 1.0, 1.0, ["xx"], adjacency="replace_one", n_features=2)
    with pytest.raises(TypeError, match="n_features must be an integer"):
        moment_scales(1.0, 1.0, 1.0, adjacency="replace_one", n_features=2.5)
    with pytest.raises(ValueError, match=r"scales\.xx must be at least 0"):
        MomentScales(xx=-1.0)
    with pytest.raises(ValueError, match=r"scales\.y must be at least 0"):
        MomentScales(y=math.nan)


@pytest.mark.parametrize("flag", ["False", [False], 0, None])
def test_a_flag_that_lowers_the_noise_is_a_boolean(flag):
    options = {"adjacency": "replace_one", "n_features": 2, "nonnegative": flag}
    with pytest.raises(TypeError, match="nonnegative must be True or False"):
        moment_mu(MomentScales(xx=1.0), 1.0, **options)
    with pytest.raises(TypeError, match="nonnegative must be True or False"):
        moment_scales(1.0, 1.0, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1e308, 1e-69, 1e-69), "outside the range of floats on 'xx': 0.0"),
        ((1e-200, 1e60, 1.0, {"xx": 1.0, "xy": 1.0}), "outside the range of floats on 'xx': inf"),
        ((5e-324, 1e-10, None), "mu must leave floats enough digits"),
        ((1.0, 1.0, 1.0, {"xx": 1e300, "xy": 1e-300}), "too far apart or leave the range of floats, at 'xy'"),
        ((1.0, 1e60, 1.0, {"xx": 1e200}), "leave the range of floats, at 'xx'"),
        ((1.0, 1.0, 1.0, {"x": 1e308, "y": 1e308}), "leave the range of floats, at 'x'"),
    ],
    ids=["no noise", "not released", "subnormal budget", "far apart", "overflow", "overflowing sum"],
)
def test_noise_beyond_floats_is_refused(arguments, message):
    """A scale of 0 would mean no noise, an infinite one that its block is not released."""
    with pytest.raises(ValueError, match=message):
        moment_scales(*arguments, adjacency="replace_one", n_features=3)


exponents = st.floats(-300.0, 300.0)


@given(
    exponents,
    st.floats(-69.0, 69.0),
    st.floats(-69.0, 69.0),
    st.dictionaries(st.sampled_from(BLOCKS), exponents.map(lambda exponent: 10.0**exponent), min_size=1),
    st.sampled_from(SHAPES),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_extreme_arguments_are_calibrated_or_refused(log_mu, log_x, log_y, weights, shape, nonnegative):
    mu, bounds = 10.0**log_mu, (10.0**log_x, 10.0**log_y)
    options = {"adjacency": "replace_one", "n_features": shape[0], "n_outcomes": shape[1], "nonnegative": nonnegative}
    try:
        scales = moment_scales(mu, *bounds, weights, **options)
    except ValueError:
        return
    assert set(scales.released) == set(weights)
    assert mu * (1 - 1e-11) <= moment_mu(scales, *bounds, **options) <= mu


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_noise_on_a_public_count_is_ignored(noise):
    options = {"adjacency": "replace_one", "n_features": 2}
    assert moment_mu(MomentScales(xx=1.0, n=noise), 1.0, **options) == moment_mu(MomentScales(xx=1.0), 1.0, **options)
    assert moment_mu(MomentScales(xx=1.0, n=0.0), 1.0, adjacency="add_remove", n_features=2) == math.inf


@pytest.mark.parametrize(("scale", "bound"), [(1e300, 1e-60), (1.1e308, 1e-4), (7e307, 3e-8), (1e308, 1.2345)])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_mu_is_rounded_up_where_it_is_subnormal(scale, bound, adjacency):
    mu = moment_mu(MomentScales(xx=scale), bound, adjacency=adjacency, n_features=2)
    loads = 2 if adjacency == "replace_one" else 1
    exact = loads * Fraction(bound) ** 4 / Fraction(scale) ** 2
    assert 5e-324 <= mu < 1e-307
    assert Fraction(mu) ** 2 >= exact
    assert Fraction(max(mu - 4 * 5e-324, 0.0)) ** 2 <= exact * Fraction(1 + 2.0**-40)


@pytest.mark.parametrize("least", [5e-324, 1.5e-323, 2.2250738585072014e-308, 1.0])
def test_mu_is_rounded_up_where_it_is_subnormal_too(least):
    for ratios in ((least, least), (least, 2.0 * least), (3.0 * least, least)):
        found = Fraction(joint_mu(ratios, lambda one, other: one + other))
        assert found**2 >= sum(Fraction(ratio) ** 2 for ratio in ratios)


def test_weights_far_apart_are_no_overflow():
    weights = {"y": 6264.3353665688555, "xy": 2838.7359647587546, "xx": 0.001, "x": 1.0}
    found = moment_scales(0.3, 1.5, 0.7, weights, adjacency="replace_one", n_features=2, n_outcomes=1)
    mu = moment_mu(found, 1.5, 0.7, adjacency="replace_one", n_features=2, n_outcomes=1)
    assert 0.3 * (1.0 - 1e-9) <= mu <= 0.3
