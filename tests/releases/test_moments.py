"""The shared release: sums of real neighbours move as far as the calibration says, and no further."""

import math
from fractions import Fraction

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from scipy import stats

from dpfast import Privacy, noise
from dpfast.privacy import gaussian_delta
from dpfast.releases.moments import JointMoments, RepeatedMoments, unpacked
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
    return JointMoments.calibrate(privacy, radii, (D, L), weights, nonnegative=nonnegative), weights


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
    for name in calibrated.scales:
        change = np.subtract(*pairs[name])
        scale = calibrated.scales[name]
        if calibrated.law == "L2-Laplace":
            scale = calibrated.joint_scale / 2.0 ** round(math.log2(calibrated.scales["xx"] / scale))
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
        moves = (np.sum(change[name] ** 2) * (unit[name] / getattr(calibrated.deviations, name)) ** 2 for name in unit)
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
    least = best.cost(weights)
    for skew in (0.5, 0.8, 1.25, 2.0):
        tilted = {"xx": weights["xx"] * skew, "xy": weights["xy"]}
        other = JointMoments.calibrate(privacy, (rounded_bound(BOUND_X, D), rounded_bound(BOUND_Y, L)), (D, L), tilted)
        assert other.cost(weights) >= least


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
        calibrated.release(sums(rows, outcomes), noise.SeededSource(5), "test").values
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
        JointMoments.calibrate(privacy, radii, (D, L), {"xx": 1.0, "xy": 2.0**170})
    calibrated = JointMoments.calibrate(privacy, radii, (D, L), {"xx": 1.0, "xy": 2.0**150, "n": 1.0})
    exact = sums(np.eye(D)[:2] * 9.0, np.ones((2, L)) * 9.0)
    values = calibrated.release(exact, noise.SeededSource(0), "test").values
    assert all(np.isfinite(value).all() for value in values.values())
    stretch = [round(math.log2(calibrated.scales["xx"] / calibrated.scales[b])) for b in calibrated.scales]
    assert max(stretch) - min(stretch) > 35
    # What a row adds to any block, in units of the finest one once all are stretched, times 2^41 rows.
    blocks = {"xx": exact.exact_xx, "xy": exact.exact_xy, "n": None}
    units = [
        (0 if blocks[b] is None else blocks[b].exponent) + s for b, s in zip(calibrated.scales, stretch, strict=True)
    ]
    lengths = {"xx": radii[0] ** 2, "xy": radii[0] * radii[1], "n": 1.0}
    longest = max(math.log2(lengths[b]) + s for b, s in zip(calibrated.scales, stretch, strict=True))
    assert longest - min(units) + 41 < 127


def test_noise_beyond_floats_is_refused():
    # The joint scale is still a float, its coordinates' standard deviation is not.
    with pytest.raises(ValueError, match="outside the range of floats"):
        JointMoments.calibrate(Privacy(2e-302), (1e3, 1e3), (D, L), {"xx": 1.0, "xy": 1.0})


def test_noise_for_rows_is_not_added_to_sums_over_people():
    rows = np.ones((4, 2)), np.ones((4, 1))
    exact = gram(*rows, bound_x=2.0, bound_y=1.0, groups=[1, 1, 2, 2], max_rows=2)
    privacy = Privacy(1.0, 1e-6)
    calibration = JointMoments.calibrate(privacy, (2.1, 1.1), (2, 1), {"xx": 1.0, "xy": 1.0})
    with pytest.raises(ValueError, match="calibrated for None"):
        calibration.release(exact, noise.SeededSource(0), "test")


WIDE, REPEATS = 24, 30


def repeated_draws(path, delta, adjacency="add_remove"):
    """Release sums that are all 0 by one of the paths; return the calibration and the noise, draws along axis 0."""
    privacy, shape, radii = Privacy(1.3, delta, adjacency), (WIDE, 2), (rounded_bound(1.0, WIDE), rounded_bound(1.0, 2))
    zeros = gram(np.zeros((1, WIDE)), np.zeros((1, 2)), bound_x=1.0, bound_y=1.0, sums=True)
    weights = {"xx": 1.0, "x": 0.5, "xy": 3.0, "y": 0.7}
    if path == "each outcome":
        calibrated = JointMoments.calibrate_each_outcome(privacy, radii, shape, {"xx": 1.0, "xy": 3.0}, "mu")
        values = [calibrated.release(zeros, noise.SeededSource(k), "").values for k in range(REPEATS)]
        parts = {"xx": np.concatenate([one["xx"] for one in values]), "xy": np.array([one["xy"] for one in values])}
        return calibrated, parts
    calibrated = JointMoments.calibrate(privacy, radii, shape, weights)
    if path == "once":
        values = [calibrated.release(zeros, noise.SeededSource(k), "").values for k in range(REPEATS)]
        return calibrated, {name: np.array([one[name] for one in values]) for name in weights}
    if path == "repeatedly":
        return calibrated, unpacked(
            RepeatedMoments(calibrated, REPEATS).release(zeros, noise.SeededSource(0), "").values
        )
    return calibrated, calibrated.noise_alone(REPEATS, noise.SeededSource(0))


def in_parts(values):
    """Split X'X into its diagonal and what is above it; every part as (draws, entries)."""
    rows, columns = np.triu_indices(values["xx"].shape[-1], 1)
    assert np.array_equal(values["xx"], values["xx"].transpose(0, 2, 1))
    parts = {"diagonal": np.diagonal(values["xx"], axis1=1, axis2=2), "above": values["xx"][:, rows, columns]}
    parts |= {name: value for name, value in values.items() if name != "xx"}
    return {name: value.reshape(len(value), -1) for name, value in parts.items()}


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("path", ["once", "repeatedly", "each outcome", "noise alone"])
def test_every_block_has_gaussian_noise_of_the_variance_that_is_charged(path, adjacency):
    """On the diagonal of X'X, and half of it above: a chi-square of each part, false-reject rate 1e-6."""
    calibrated, values = repeated_draws(path, 1e-6, adjacency)
    # What the guarantee counts is the Frobenius norm, in which an entry above the diagonal stands twice.
    assert Fraction(calibrated.off_diagonal) ** 2 >= Fraction(calibrated.scales["xx"]) ** 2 / 2
    deviations = {"diagonal": calibrated.scales["xx"], "above": calibrated.scales["xx"] * math.sqrt(0.5)}
    for name, part in in_parts(values).items():
        deviation = deviations.get(name) or calibrated.scales[name]
        low, high = stats.chi2.ppf([5e-7, 1.0 - 5e-7], part.size)
        assert low < np.sum((part / deviation) ** 2) < high, name


@pytest.mark.parametrize("path", ["once", "repeatedly", "noise alone"])
def test_l2_laplace_noise_is_one_vector_over_all_blocks(path):
    """Stretched as calibrated, its radius is Gamma and the share of each part in its square is Beta: 1e-6 each."""
    calibrated, values = repeated_draws(path, 0.0)
    stretched = {}
    for name, part in in_parts(values).items():
        scale = calibrated.scales["xx"] if name in ("diagonal", "above") else calibrated.scales[name]
        stretched[name] = part * 2.0 ** round(math.log2(calibrated.scales["xx"] / scale))
    squares = {name: np.sum(part**2, axis=1) for name, part in stretched.items()}
    dim, whole = sum(part.shape[1] for part in stretched.values()), sum(squares.values())
    assert stats.kstest(np.sqrt(whole) / calibrated.joint_scale, "gamma", args=(dim,)).pvalue > 1e-6
    for name, square in squares.items():
        size = stretched[name].shape[1]
        assert stats.kstest(square / whole, "beta", args=(size / 2, (dim - size) / 2)).pvalue > 1e-6, name


@pytest.mark.parametrize("skew", [2.0**-40, 1.0, 2.0**40])
def test_a_joint_draw_is_calibrated_for_its_blocks_as_they_are_stretched(skew):
    """One row at its bounds comes: the stretched sums move by epsilon times the joint scale, and no more."""
    radii = rounded_bound(BOUND_X, D), rounded_bound(BOUND_Y, L)
    calibrated = JointMoments.calibrate(Privacy(1.3, 0.0, "add_remove"), radii, (D, L), {"xx": 1.0, "xy": skew})
    x, y = np.eye(D)[:1] * BOUND_X, np.eye(L)[:1] * BOUND_Y
    assert 1.0 - 1e-6 < moved(sums(x, y), sums(x[:0], y[:0]), calibrated) / 1.3 <= 1.0


@pytest.mark.parametrize("repeats", [1, 2, 3, 10, 1000])
def test_repetitions_cost_what_they_add_up_to(repeats):
    calibrated, _ = calibration(Privacy(1.0, 1e-6), BLOCKS["pair"])
    exact = sums(np.ones((2, D)), np.ones((2, L)))
    release = RepeatedMoments(calibrated, repeats).release(exact, noise.SeededSource(0), "")
    assert repeats * Fraction(calibrated.mu) ** 2 <= Fraction(release.mu) ** 2
    assert release.mu == pytest.approx(calibrated.mu * math.sqrt(repeats), rel=1e-12)


def test_noise_off_the_diagonal_is_rounded_up():
    """Entries that stand twice have half the variance, in exact arithmetic."""
    for epsilon in np.random.default_rng(0).uniform(0.1, 5.0, 100):
        calibrated, _ = calibration(Privacy(float(epsilon), 1e-6), BLOCKS["pair"])
        assert 2 * Fraction(calibrated.off_diagonal) ** 2 >= Fraction(calibrated.deviations.xx) ** 2
