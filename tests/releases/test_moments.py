"""The shared release: sums of real neighbours move as far as the calibration says, and no further."""

import math

import numpy as np
import pytest
from neighbours import climb, row_in_ball

from dpfast import Privacy, noise
from dpfast.privacy import gaussian_delta
from dpfast.releases.moments import calibrate, draw, weighted_cost
from dpfast.statistics import gram, rounded_bound

D, L = 3, 2
BLOCKS = {
    "pair": ["xx", "xy"],
    "sums": ["xx", "x", "xy", "y"],
    "sums and count": ["xx", "x", "xy", "y", "n"],
}
# Bounds that are no multiples of anything, so that rows round upwards past them.
BOUND_X, BOUND_Y = 0.7310585, 2.2360679


def calibration(privacy, blocks, nonnegative=False):
    weights = dict(zip(blocks, (1.0, 0.5, 2.0, 0.7, 0.3), strict=False))
    radii = rounded_bound(BOUND_X, D), rounded_bound(BOUND_Y, L)
    return calibrate(privacy, *radii, (D, L), weights, nonnegative=nonnegative), weights


def sums(x, y):
    return gram(x, y, bound_x=BOUND_X, bound_y=BOUND_Y, sums=True)


def moved(first, second, calibrated):
    """How far the exact sums are apart: in units of the noise, or of the joint scale for L2-Laplace."""
    pairs = {
        "xx": (first.xx, second.xx),
        "xy": (first.xy, second.xy),
        "x": (first.exact_x_sum.to_float64(), second.exact_x_sum.to_float64()),
        "y": (first.exact_y_sum.to_float64(), second.exact_y_sum.to_float64()),
        "n": (float(first.n_rows), float(second.n_rows)),
    }
    squared = 0.0
    for name in calibrated.blocks:
        change = np.subtract(*pairs[name])
        scale = getattr(calibrated.scales, name)
        if calibrated.mechanism == "L2-Laplace":
            scale = calibrated.joint_scale / 2.0 ** round(math.log2(calibrated.scales.xx / scale))
            change = change[np.triu_indices(D)] if name == "xx" else change
        squared += np.sum(change**2) / scale**2
    return math.sqrt(squared)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_no_neighbour_moves_the_sums_further_than_calibrated(delta, adjacency, nonnegative, blocks):
    if "count" in blocks and adjacency == "replace_one":
        pytest.skip("the count is public")
    privacy = Privacy(1.3, delta, adjacency)
    calibrated, _ = calibration(privacy, BLOCKS[blocks], nonnegative)
    limit = calibrated.mu if delta > 0.0 else privacy.epsilon
    others = row_in_ball(np.array([0.1, 0.2, 0.3]), BOUND_X), row_in_ball(np.array([0.5, 0.1]), BOUND_Y)

    def change(parameters):
        # Rows may be far beyond the bounds: the sums scale them back.
        parts = np.split(parameters, [D, D + L, 2 * D + L])
        x, y, v, w = (np.abs(part) if nonnegative else part for part in parts)
        first = sums(np.array([others[0], x]), np.array([others[1], y]))
        if adjacency == "add_remove":
            return moved(first, sums(others[0][None, :], others[1][None, :]), calibrated)
        return moved(first, sums(np.array([others[0], v]), np.array([others[1], w])), calibrated)

    rng = np.random.default_rng(0)
    # Real sums move in steps of the grid, on which gradients are noise: random neighbours, then a climb of the smooth
    # problem's solution is left to the tests of privacy.moments; here every random one must obey.
    values = [change(rng.normal(size=2 * (D + L)) * 10.0 ** rng.uniform(-3, 6)) for _ in range(300)]
    assert max(values) <= limit


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("blocks", ["pair", "sums"])
def test_the_bound_is_reached_by_real_rows(blocks, adjacency):
    calibrated, _ = calibration(Privacy(1.0, 1e-6, adjacency), BLOCKS[blocks])
    if adjacency == "add_remove":
        x, y = np.eye(D)[:1] * BOUND_X, np.eye(L)[:1] * BOUND_Y
        empty = sums(x[:0], y[:0])
        assert 1.0 - 1e-6 < moved(sums(x, y), empty, calibrated) / calibrated.mu <= 1.0
        return

    def smooth(parameters):
        x, v = (row_in_ball(part, 1.0) for part in np.split(parameters, 2))
        return rotated(x, v)

    def rotated(x, v):
        y = np.eye(L)[0]
        change = {"xx": np.outer(x, x) - np.outer(v, v), "x": x - v, "xy": np.outer(x + v, y), "y": 2.0 * y}
        unit = {"xx": BOUND_X**2, "x": BOUND_X, "xy": BOUND_X * BOUND_Y, "y": BOUND_Y}
        moves = (np.sum(change[name] ** 2) * (unit[name] / getattr(calibrated.scales, name)) ** 2 for name in unit)
        return math.sqrt(sum(moves))

    _, best = climb(smooth, 2 * D, np.random.default_rng(1))
    x, v = (row_in_ball(part, BOUND_X)[None, :] for part in np.split(best, 2))
    y = np.eye(L)[:1] * BOUND_Y
    # The rows of the smooth worst case, put through the real sums; the rounding pads 2e-7 of the bounds.
    assert 1.0 - 1e-6 < moved(sums(x, y), sums(v, -y), calibrated) / calibrated.mu <= 1.0


def test_a_missing_factor_would_be_noticed():
    """The same property fails for a calibration whose cross-moment forgets that an outcome may change sign."""
    calibrated, _ = calibration(Privacy(1.0, 1e-6), BLOCKS["pair"])
    x, y = np.eye(D)[:1] * BOUND_X, np.eye(L)[:1] * BOUND_Y
    broken, _ = calibration(Privacy(1.0, 1e-6, "add_remove"), BLOCKS["pair"])
    assert moved(sums(x, y), sums(x, -y), calibrated) <= calibrated.mu
    assert moved(sums(x, y), sums(x, -y), broken) > broken.mu


def test_the_split_minimises_the_weighted_noise():
    privacy = Privacy(1.0, 1e-6)
    best, weights = calibration(privacy, BLOCKS["pair"])
    least = weighted_cost(best, weights)
    for skew in (0.5, 0.8, 1.25, 2.0):
        tilted = {"xx": weights["xx"] * skew, "xy": weights["xy"]}
        other = calibrate(privacy, rounded_bound(BOUND_X, D), rounded_bound(BOUND_Y, L), (D, L), tilted)
        assert weighted_cost(other, weights) >= least


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
def test_the_scales_give_the_claimed_delta(epsilon):
    calibrated, _ = calibration(Privacy(epsilon, 1e-7), BLOCKS["pair"])
    assert gaussian_delta(1.0, epsilon, calibrated.mu) <= 1e-7 * (1.0 + 1e-12)


def test_draws_of_one_release_are_independent_of_the_order_of_rows():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(50, D)), rng.normal(size=(50, L))
    calibrated, _ = calibration(Privacy(1.0, 1e-6), BLOCKS["sums"])
    order = rng.permutation(50)
    one, other = (
        draw(sums(rows, outcomes), calibrated, noise.SeededSource(5), "test").values
        for rows, outcomes in ((x, y), (x[order], y[order]))
    )
    for name in one:
        assert np.array_equal(one[name], other[name])


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_no_noise_is_refused(delta):
    with pytest.raises(ValueError, match="epsilon must be finite"):
        calibration(Privacy(math.inf, delta), BLOCKS["pair"])


def test_a_joint_draw_that_could_overflow_is_refused_before_data_are_read():
    """Blocks 2^40 apart fit a joint draw of 2^41 rows, and are drawn; further apart they are refused."""
    radii = rounded_bound(BOUND_X, D), rounded_bound(BOUND_Y, L)
    privacy = Privacy(1.0, 0.0, "add_remove")
    # Under add/remove all loads are 1, so the stretches follow the fourth roots of the weights.
    with pytest.raises(ValueError, match="within 2\\^40 of each other"):
        calibrate(privacy, *radii, (D, L), {"xx": 1.0, "xy": 2.0**170})
    calibrated = calibrate(privacy, *radii, (D, L), {"xx": 1.0, "xy": 2.0**150, "n": 1.0})
    exact = sums(np.eye(D)[:2] * 9.0, np.ones((2, L)) * 9.0)
    values = draw(exact, calibrated, noise.SeededSource(0), "test").values
    assert all(np.isfinite(value).all() for value in values.values())
    stretch = [round(math.log2(calibrated.scales.xx / getattr(calibrated.scales, b))) for b in calibrated.blocks]
    assert max(stretch) - min(stretch) > 35
    # What a row adds to any block, in units of the finest one once all are stretched, times 2^41 rows.
    blocks = {"xx": exact.exact_xx, "xy": exact.exact_xy, "n": None}
    units = [
        (0 if blocks[b] is None else blocks[b].exponent) + s for b, s in zip(calibrated.blocks, stretch, strict=True)
    ]
    lengths = {"xx": radii[0] ** 2, "xy": radii[0] * radii[1], "n": 1.0}
    longest = max(math.log2(lengths[b]) + s for b, s in zip(calibrated.blocks, stretch, strict=True))
    assert longest - min(units) + 41 < 127


def test_noise_beyond_floats_is_refused():
    # The joint scale is still a float, its coordinates' standard deviation is not.
    with pytest.raises(ValueError, match="outside the range of floats"):
        calibrate(Privacy(2e-302), 1e3, 1e3, (D, L), {"xx": 1.0, "xy": 1.0})


def test_noise_for_rows_is_not_added_to_sums_over_people():
    rows = np.ones((4, 2)), np.ones((4, 1))
    exact = gram(*rows, bound_x=2.0, bound_y=1.0, groups=[1, 1, 2, 2], max_rows=2)
    privacy = Privacy(1.0, 1e-6)
    calibration = calibrate(privacy, 2.1, 1.1, (2, 1), {"xx": 1.0, "xy": 1.0})
    with pytest.raises(ValueError, match="calibrated for None"):
        draw(exact, calibration, noise.SeededSource(0), "test")
