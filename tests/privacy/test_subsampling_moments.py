"""Covariance from a secret sample, association from all rows: the two bounds, and the scales that meet a target."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfast.privacy import (
    MomentScales,
    gaussian_delta,
    gaussian_mu,
    moment_mu,
    moment_scales,
    subsampled_moment_delta,
    subsampled_moment_scales,
    subsampling,
)

SHAPE = {"n_features": 5}


def exact_delta(sigma, epsilon, sensitivity):
    """Delta of a Gaussian release to 40 digits (Balle and Wang 2018, Theorem 8)."""
    ratio = mp.mpf(sensitivity) / mp.mpf(sigma)
    epsilon = mp.mpf(epsilon)
    return mp.ncdf(ratio / 2 - epsilon / ratio) - mp.exp(epsilon) * mp.ncdf(-ratio / 2 - epsilon / ratio)


def exact_bounds(scales, epsilon, n_sampled, n_total, bound_x, bound_y):
    """Both bounds, the first minimised over 60 splits."""
    with mp.workdps(40):
        gamma = mp.mpf(n_sampled) / n_total
        xx, xy = mp.sqrt(2) * mp.mpf(bound_x) ** 2, 2 * mp.mpf(bound_x) * bound_y
        splits = [
            gamma * exact_delta(scales.xx, mp.log1p(mp.expm1(epsilon * share) / gamma), xx)
            + exact_delta(scales.xy, epsilon * (1 - share), xy)
            for share in mp.linspace(mp.mpf(1) / 60, 1 - mp.mpf(1) / 60, 59)
        ]
        a, b = (xx / scales.xx) ** 2, (xy / scales.xy) ** 2 / 2
        mu = mp.sqrt(a + b + b * b / (4 * a) if b <= 2 * a else 2 * b)
        conditioned = gamma * exact_delta(1, epsilon, mu) + (1 - gamma) * exact_delta(scales.xy, epsilon, xy)
        return min(splits), conditioned


@given(
    st.floats(-2, 1.2),
    st.floats(-12, -2),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(-3, 3),
)
@settings(deadline=None, max_examples=20)
@example(0.0, -6.0, 1000, 9000, 0.0)
@example(-2.0, -2.0, 1, 18, 0.0)
@example(0.0, -2.0, 1, 95, 3.0)
@example(-2.0, -2.0, 1, 10**6, 3.0)
def test_scales_meet_the_target_exactly(log_epsilon, log_delta, n_sampled, n_rest, log_weight):
    epsilon, delta, n_total = 10.0**log_epsilon, 10.0**log_delta, n_sampled + n_rest
    sizes = (n_sampled, n_total, 1.3, 0.7)
    scales = subsampled_moment_scales(epsilon, delta, *sizes, {"xx": math.exp(log_weight), "xy": 1.0}, **SHAPE)
    claimed = subsampled_moment_delta(scales, epsilon, *sizes, **SHAPE)
    assert claimed <= delta
    # Nothing to speak of is left unused.
    assert claimed >= delta * (1 - 1e-5)
    # The finest split found is at least as good as any on the grid, but for rounding; no bound is below the exact one.
    exact = min(exact_bounds(scales, epsilon, *sizes))
    assert claimed <= exact * (1 + 1e-6)


def test_delta_is_never_below_the_exact_bounds():
    rng = np.random.default_rng(0)
    for _ in range(12):
        scales = MomentScales(*np.exp(rng.uniform(0, 3, 1)).tolist(), xy=math.exp(rng.uniform(0, 3)))
        epsilon, sizes = rng.uniform(0.1, 3), (int(rng.integers(1, 900)), 1000, 1.0, 1.0)
        pair = subsampling._pair(*sizes, n_features=5)
        amplified, conditioned = exact_bounds(scales, epsilon, *sizes)
        assert pair.amplified(scales, epsilon) <= float(amplified) * (1 + 1e-9)
        assert float(conditioned) <= pair.conditioned(scales, epsilon) <= float(conditioned) * (1 + 1e-10)
        share = rng.uniform(0.01, 0.99)
        with mp.workdps(40):
            first, second = mp.mpf(epsilon * share), epsilon - mp.mpf(epsilon * share)
            gamma = mp.mpf(sizes[0]) / 1000
            exact = gamma * exact_delta(scales.xx, mp.log1p(mp.expm1(first) / gamma), mp.sqrt(2))
            exact += exact_delta(scales.xy, second, 2)
        assert float(exact) <= pair.split_delta(scales, epsilon, share) <= float(exact) * (1 + 1e-10)


def hockey_stick_of_pair(scales, epsilon, gamma, moved_xx, moved_xy):
    """Exact delta, the larger of both directions, where all other rows are like the replaced person's new one.

    Whether the person is sampled matters to one side only: (1 - gamma) N(0, b) + gamma N(a, b) against N(0, 0), for
    moves a and b in units of the noise. The integral is over a fine grid.
    """
    a, b = moved_xx / scales.xx, moved_xy / scales.xy
    u, v = np.linspace(-9, 9 + a, 1201), np.linspace(-9, 9 + b, 1201)
    ours = np.outer((1 - gamma) * norm.pdf(u) + gamma * norm.pdf(u - a), norm.pdf(v - b))
    theirs = np.outer(norm.pdf(u), norm.pdf(v))
    cell = (u[1] - u[0]) * (v[1] - v[0])
    both = (np.maximum(one - math.exp(epsilon) * other, 0).sum() for one, other in ((ours, theirs), (theirs, ours)))
    return float(max(both)) * cell


@pytest.mark.parametrize("n_sampled", [30, 100, 500, 900])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_real_pair_of_neighbours_stays_within_delta(n_sampled, epsilon):
    """Orthogonal rows (xx moves most), and opposite outcomes (xy moves most): the exact law of what is released."""
    delta = 1e-3
    scales = subsampled_moment_scales(epsilon, delta, n_sampled, 1000, 1.0, 1.0, **SHAPE)

    def worst(scales):
        moves = ((math.sqrt(2.0), math.sqrt(2.0)), (0.0, 2.0), (math.sqrt(1.5), math.sqrt(3.0)))
        return max(hockey_stick_of_pair(scales, epsilon, n_sampled / 1000, *moved) for moved in moves)

    assert worst(scales) <= delta
    # With the noise of a mean over all rows on that over the sample, as Algorithm 4 prints it, it does not hold.
    assert worst(MomentScales(xx=scales.xx * n_sampled / 1000, xy=scales.xy)) > delta or n_sampled >= 500


def test_all_rows_sampled_is_the_joint_calibration():
    mu = gaussian_mu(1.0, 1e-6)
    joint = moment_scales(mu, 1.0, 1.0, {"xx": 2.0, "xy": 1.0}, adjacency="replace_one", **SHAPE)
    assert subsampled_moment_scales(1.0, 1e-6, 70, 70, 1.0, 1.0, {"xx": 2.0, "xy": 1.0}, **SHAPE) == joint
    spent = moment_mu(joint, 1.0, 1.0, adjacency="replace_one", **SHAPE)
    assert subsampled_moment_delta(joint, 1.0, 70, 70, 1.0, 1.0, **SHAPE) == gaussian_delta(1.0, 1.0, spent)


@pytest.mark.parametrize("n_sampled", [20, 300, 5000, 9900])
def test_best_scales_beat_every_other_ratio(n_sampled):
    weights = {"xx": 0.5, "xy": 2.0}
    sizes = (n_sampled, 10_000, 1.0, 1.0)
    best = subsampled_moment_scales(1.0, 1e-6, *sizes, weights, **SHAPE)

    def cost(scales):
        return weights["xx"] * (scales.xx * 10_000 / n_sampled) ** 2 + weights["xy"] * scales.xy**2

    for tilt in np.linspace(-1.5, 1.5, 21):
        low, high = 0.1, 10.0
        for _ in range(45):
            middle = math.sqrt(low * high)
            other = MomentScales(xx=best.xx * math.exp(tilt) * middle, xy=best.xy * middle)
            if subsampled_moment_delta(other, 1.0, *sizes, **SHAPE) <= 1e-6:
                high = middle
            else:
                low = middle
        other = MomentScales(xx=best.xx * math.exp(tilt) * high, xy=best.xy * high)
        assert cost(best) <= cost(other) * (1 + 1e-4)


def test_sampling_never_brings_less_noise():
    joint = moment_scales(gaussian_mu(1.0, 1e-6), 1.0, 1.0, adjacency="replace_one", **SHAPE)
    last = joint.xx**2 + joint.xy**2
    for n_sampled in (9999, 9000, 5000, 1000, 100, 10):
        scales = subsampled_moment_scales(1.0, 1e-6, n_sampled, 10_000, 1.0, 1.0, **SHAPE)
        cost = (scales.xx * 10_000 / n_sampled) ** 2 + scales.xy**2
        assert cost > last * (1 - 1e-6)
        last = cost


def test_limits():
    sizes = (10, 100, 1.0, 1.0)
    assert subsampled_moment_scales(math.inf, 1e-6, *sizes, **SHAPE) == MomentScales(xx=0.0, xy=0.0)
    assert subsampled_moment_delta(MomentScales(xx=0.0, xy=1.0), 1.0, *sizes, **SHAPE) == 1.0
    assert subsampled_moment_delta(MomentScales(xx=1.0, xy=1.0), math.inf, *sizes, **SHAPE) == 0.0
    assert 0.0 < subsampled_moment_delta(MomentScales(xx=1.0, xy=1.0), 0.0, *sizes, **SHAPE) <= 1.0
    # A delta above gamma, which amplification alone cannot use.
    scales = subsampled_moment_scales(0.1, 0.3, *sizes, **SHAPE)
    assert subsampled_moment_delta(scales, 0.1, *sizes, **SHAPE) <= 0.3


def test_splits_add_up():
    rng = np.random.default_rng(0)
    for epsilon, share in zip(10.0 ** rng.uniform(-6, 3, 200), rng.uniform(0, 1, 200), strict=True):
        first, second = subsampling._split(float(epsilon), float(share))
        assert Fraction(first) + Fraction(second) <= Fraction(float(epsilon))
        assert min(first, second) > 0.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"delta": 0.0}, ValueError, "delta = 0"),
        ({"n_sampled": 101}, ValueError, "n_sampled must be at most n_total, 100"),
        ({"n_sampled": 0}, ValueError, "n_sampled"),
        ({"n_total": 2.5}, TypeError, "n_total"),
        ({"bound_x": -1.0}, ValueError, "bound_x"),
        ({"weights": {"xx": 1.0}}, ValueError, "weights must name 'xx' and 'xy'"),
        ({"weights": {"xx": 1.0, "xy": 0.0}}, ValueError, r"weights\['xy'\]"),
        ({"weights": 3.0}, TypeError, "weights must map"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    arguments = {"epsilon": 1.0, "delta": 1e-6, "n_sampled": 10, "n_total": 100, "bound_x": 1.0, "bound_y": 1.0}
    with pytest.raises(error, match=message):
        subsampled_moment_scales(**arguments | change, **SHAPE)
