"""Averaged descent: least squares without noise, and honest of what noise does to it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg

from dpfast.solvers import averaged_descent as descent
from dpfast.solvers.averaged_descent import Coordinates, Iterate, Steps
from dpfast.solvers.ridge import MomentNoise, eigh

NOISELESS = 1e-14


def table(n=400, d=4, outcomes=2, seed=0, condition=10.0):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    x = (rng.normal(size=(n, d)) * np.geomspace(1.0, 1.0 / condition, d)) @ turn.T + 1.0
    return x, x @ rng.normal(size=(d, outcomes)) + rng.normal(size=(n, outcomes)) + 2.0


def coordinates_of(x, noise, power, *, constant, seed=None, pooled=True):
    """Coordinates from moments with noise of such a deviation, or with none drawn though it is reckoned with."""
    n, d = x.shape
    center = x.mean(axis=0) if constant else np.zeros(d)
    rng = np.random.default_rng(seed)
    drawn = 0.0 if seed is None else 1.0
    xx = (x - center).T @ (x - center) + drawn * symmetric(rng, d, noise)
    found = Coordinates.whitened(xx, eigh(xx), noise, power, center, n, constant=constant)
    if not pooled:
        return found
    rows = (x - center) @ found.whitening.T
    own = found.noise or NOISELESS
    moments = MomentNoise(own * math.sqrt(2.0), own, 0.0, own)
    sums = rows.sum(axis=0) + drawn * own * rng.normal(size=d) if constant else None
    return found.with_moments(rows.T @ rows + drawn * symmetric(rng, d, own), moments, sums, n)


def symmetric(rng, d, deviation):
    above = np.triu(rng.normal(size=(d, d)) * deviation, 1)
    return above + above.T + np.diag(rng.normal(size=d) * deviation * math.sqrt(2.0))


def rows_of(coordinates, x):
    rows = (x - coordinates.center) @ coordinates.whitening.T
    return np.column_stack([rows, np.ones(len(x))]) if coordinates.constant else rows


def descended(coordinates, rule, x, y, deviation=NOISELESS, *, start=None, rng=None):
    rows = rows_of(coordinates, x)
    theta = np.zeros((rows.shape[1], y.shape[1])) if start is None else start
    iterate = Iterate.start(theta)
    for number in range(rule.n_steps):
        sums = rows.T @ (y - rows @ iterate.theta)
        drawn = 0.0 if rng is None else deviation * rng.normal(size=sums.shape)
        iterate = descent.next_iterate(iterate, rule, sums + drawn, deviation, averaged=number >= rule.first_averaged)
    return descent.pooled_estimate(iterate, rule, coordinates)


def least_squares(x, y, *, constant):
    design = np.column_stack([x, np.ones(len(x))]) if constant else x
    return np.linalg.lstsq(design, y, rcond=None)[0]


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_shares_of_a_fit_add_to_the_whole(constant, squares):
    for people in np.geomspace(1.0, 1e9, 19):
        for mu in np.geomspace(1e-4, 100.0, 13):
            for features in (1, 2, 10, 300, 10_000):
                shares = descent.schedule(people, mu, features, constant=constant, squares=squares)
                alone = (shares.means, shares.row_sizes, shares.moments, shares.whitened_moments, shares.steps)
                alone += (shares.last_sizes, shares.mean_residual, shares.squares, shares.excess)
                several = [shares.whitened_sizes] * len(shares.powers) + [shares.sizes] * shares.n_sizes
                assert math.fsum([*alone, *several]) == pytest.approx(1.0, rel=1e-12)
                assert min(alone + tuple(several)) >= 0.0
                assert shares.steps > 0.25
                assert (shares.moments > 0.0) == (shares.whitened_moments > 0.0) == (len(shares.powers) > 0)
                assert (shares.means > 0.0) == (shares.mean_residual > 0.0) == constant
                assert (shares.squares > 0.0) == squares
                assert (shares.excess > 0.0) == (shares.moments > 0.0 and people * mu >= 400.0)
                assert shares.n_sizes >= 1


def test_more_people_never_have_less_of_a_share_in_moments():
    for features in (1, 10, 300):
        shares = [
            descent.schedule(people, 0.3, features, constant=True, squares=True).moments
            for people in np.geomspace(1.0, 1e9, 40)
        ]
        assert shares == sorted(shares)
        assert shares[0] == 0.0 < shares[-1]


def test_more_noise_clips_more_people_and_never_nobody_nor_most():
    noisy = [descent.clipped_share(10, people, 0.3) for people in np.geomspace(1e12, 1e-3, 60)]
    assert noisy == sorted(noisy)
    assert 0.0 < noisy[0] < 1e-3
    assert 0.5 < noisy[-1] <= 0.6
    for less, more in (((10, 1e4, 0.3), (40, 1e4, 0.3)), ((10, 1e4, 1.0), (10, 1e4, 0.3))):
        assert descent.clipped_share(*less) < descent.clipped_share(*more)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_size_of_a_share_is_the_first_that_so_few_are_beyond(share):
    rng = np.random.default_rng(1)
    parts = np.exp(rng.normal(size=5_000))
    edges = np.exp2(np.arange(-12, 13) / 2.0)
    counts = np.bincount(np.searchsorted(edges, parts, side="right"), minlength=len(edges) + 1).astype(float)
    size = descent.size_of_share(counts, 0.0, np.append(edges, edges[-1]), share, len(parts))
    assert np.mean(parts >= size) <= share < np.mean(parts >= size / math.sqrt(2.0))
    # Noise moves it by few half-octaves.
    for _ in range(20):
        noisy = counts + 10.0 * rng.normal(size=counts.shape)
        moved = descent.size_of_share(noisy, 10.0, np.append(edges, edges[-1]), share, len(parts))
        assert abs(math.log2(moved / size)) <= 1.5


def test_the_size_of_a_share_is_one_of_those_told_apart_whatever_the_counts():
    rng = np.random.default_rng(2)
    edges = np.exp2(np.arange(20) / 2.0)
    for deviation in (0.0, 1.0, 1e6):
        for people in (1.0, 1e6):
            counts = deviation * rng.normal(size=20)
            assert descent.size_of_share(counts, deviation, edges, 0.1, people) in {None, *edges.tolist()}
    everybody_beyond = np.append(np.zeros(19), 1e6)
    assert descent.size_of_share(everybody_beyond, 0.0, edges, 0.1, 1e6) == edges[-1]
    assert descent.size_of_share(everybody_beyond * 1e-6, 1e3, edges, 0.1, 1.0) is None


def test_noise_beyond_the_last_size_that_is_seen_does_not_add_up_to_people():
    """Over twenty empty bins noise adds up to more than the share: not one fit in ten may take the largest size."""
    rng, sizes = np.random.default_rng(1), 2.0 ** (np.arange(41) / 2.0)
    exact = np.zeros(42)
    exact[12:18] = [100.0, 200.0, 500.0, 800.0, 300.0, 100.0]
    for _ in range(200):
        found = descent.size_of_share(exact + rng.normal(scale=13.0, size=42), 13.0, sizes, 0.003, 2_000.0)
        assert sizes[15] <= found <= sizes[19]


def test_people_who_have_nothing_do_not_make_the_size_that_of_nothing():
    edges = np.exp2(np.arange(20) / 2.0)
    counts = np.zeros(20)
    counts[0], counts[12] = 9_000.0, 1_000.0
    assert descent.size_of_share(counts, 5.0, edges, 0.3, 1e4) == edges[12]


@pytest.mark.parametrize("start", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6])
def test_the_clip_goes_to_where_the_share_is_beyond_it(share, start):
    sizes = np.exp(np.random.default_rng(4).normal(size=20_000))
    clip = start
    for _ in range(2_000):
        clip = descent.next_clip(clip, float(np.mean(sizes > clip)), share)
    assert np.mean(sizes > clip) == pytest.approx(share, abs=0.01)


def test_the_clip_moves_by_a_bounded_factor_whatever_was_counted():
    for beyond in (-1e300, -1.0, 0.5, 2.0, 1e300):
        assert 0.5 < descent.next_clip(1.0, beyond, 0.3) < 2.0
    assert descent.next_clip(1.0, 0.3, 0.3) == 1.0


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3])
def test_without_noise_it_is_least_squares_from_wherever_it_starts(condition, power, constant):
    x, y = table(condition=condition)
    coordinates = coordinates_of(x, NOISELESS, power, constant=constant)
    expected = least_squares(x, y, constant=constant)
    for requested in (1, None):
        rule = descent.steps(coordinates, len(x), requested=requested)
        start = np.random.default_rng(5).normal(size=(4 + constant, 2))
        found = descended(coordinates, rule, x, y, start=start)
        coef = coordinates.as_summed(found.theta, 1.0, 1.0)
        np.testing.assert_allclose(coef[:4], expected[:4], atol=1e-6 * np.max(np.abs(expected)))
        np.testing.assert_allclose(coef[4], expected[4] if constant else 0.0, atol=1e-6 * np.max(np.abs(expected)))


@pytest.mark.parametrize("constant", [False, True])
def test_plain_descent_goes_there_too_where_rows_are_even(constant):
    x, y = table(condition=2.0)
    x = x - x.mean(axis=0)
    coordinates = Coordinates.plain(np.zeros(4), float(np.max(np.linalg.norm(x, axis=1))), len(x), constant=constant)
    rule = descent.steps(coordinates, len(x), requested=3_000)
    found = descended(coordinates, rule, x, y)
    expected = least_squares(x, y, constant=constant)
    late = coordinates.as_summed(found.theta, 1.0, 1.0)
    np.testing.assert_allclose(late[: 4 + constant], expected, atol=0.01)
    rough = descended(coordinates, descent.steps(coordinates, len(x), requested=60), x, y)
    whole = np.linalg.norm(expected)
    assert np.linalg.norm(coordinates.as_summed(rough.theta, 1.0, 1.0)[: 4 + constant] - expected) < whole


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_more_steps_are_taken_where_noise_hides_directions_and_never_more_than_the_most(power):
    x, _ = table(n=5_000, condition=100.0)
    counts = []
    for noise in (1e-6, 1.0, 30.0, 300.0):
        coordinates = coordinates_of(x, noise, power, constant=False)
        counts.append(descent.steps(coordinates, len(x)).n_steps)
        assert descent.steps(coordinates, len(x), most=3).n_steps <= 3
        assert descent.steps(coordinates, len(x), requested=5).n_steps == 5
    assert counts == sorted(counts)
    assert 1 <= counts[0] < counts[-1] <= descent.MOST_STEPS


@pytest.mark.parametrize("n_steps", range(1, 61))
def test_late_steps_are_averaged_and_there_is_one(n_steps):
    rule = Steps(n_steps, np.eye(2), 0.0)
    assert 0 <= rule.first_averaged < n_steps
    assert set(rule.counted) <= set(range(1, n_steps))
    assert len(rule.counted) <= 2


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("noise", [1e-3, 10.0, 30.0])
def test_what_noise_does_to_what_is_found_is_as_large_as_it_says(noise, constant):
    """Whether X'X resolves a direction or not."""
    x, y = table(n=2_000, condition=10.0)
    coordinates = coordinates_of(x, noise, 1.0, constant=constant)
    rule = descent.steps(coordinates, len(x))
    without = descended(coordinates, rule, x, y)
    rng = np.random.default_rng(6)
    errors = [descended(coordinates, rule, x, y, 20.0, rng=rng) for _ in range(400)]
    deviations = np.concatenate([(one.theta - without.theta).T for one in errors])
    # Of 800 draws: each entry within a tenth or so of the largest.
    largest = float(np.max(np.diag(errors[0].covariance)))
    np.testing.assert_allclose(deviations.T @ deviations / len(deviations), errors[0].covariance, atol=0.25 * largest)
    ratio = np.mean(np.sum(deviations @ linalg.inv(errors[0].covariance) * deviations, axis=1)) / deviations.shape[1]
    assert ratio == pytest.approx(1.0, abs=0.12)


def told_with_noise_in_xx(condition, noise, fits=200):
    """Return squared errors of what the mean sum says, along eigenvectors as released, and the variances it says."""
    x, y = table(n=2_000, condition=condition)
    exact, rng = coordinates_of(x, NOISELESS, 1.0, constant=False), np.random.default_rng(8)
    exact = replace(exact, whitening=np.eye(len(exact.xx)), xx=x.T @ x)
    sought, made, said = least_squares(x, y, constant=False), [], []
    for _ in range(fits):
        upper = np.triu(noise * rng.normal(size=exact.xx.shape) * np.where(np.eye(len(exact.xx)), math.sqrt(2), 1.0))
        coordinates = replace(exact, noise=noise, xx=exact.xx + upper + np.triu(upper, 1).T)
        history = descended(coordinates, descent.steps(coordinates, len(x)), x, y, 3.0 * noise, rng=rng).history
        unshrunk = history.unshrunk()
        vectors = coordinates.spectrum[1]
        squares = 1.0 + np.sum((unshrunk.lengths @ (sought - unshrunk.mean)) ** 2, axis=0)
        made.append(np.mean((vectors.T @ (unshrunk.theta - sought)) ** 2, axis=1))
        said.append(np.diag(vectors.T @ unshrunk.covariance @ vectors) * np.mean(squares))
    return np.mean(made, axis=0), np.mean(said, axis=0)


@pytest.mark.parametrize("noise", [1.0, 100.0, 200.0])
def test_errors_are_as_large_as_it_says_where_noise_spreads_the_spectrum_too(noise):
    made, said = told_with_noise_in_xx(1.0, noise)
    assert 0.8 < np.sum(said) / np.sum(made) < 1.4


def test_a_direction_that_noise_hides_is_said_to_be_unknown():
    """Of the least of four, a hundredth was reached, and .66 was said to be."""
    made, said = told_with_noise_in_xx(1_000.0, 50.0)
    assert np.all(said > 0.8 * made)


@pytest.mark.parametrize(("deviations", "wider"), [(1.5, 14.0), (4.0, 1.1), (20.0, 1.0)])
def test_limits_say_little_of_a_direction_in_which_xx_may_be_noise(deviations, wider):
    """Noise alone shows an eigenvalue of 1.5 deviations now and then: limits for it as it seems were false."""
    noise = 10.0
    values = np.array([deviations * math.sqrt(2.0) * noise, 1e4, 1e4, 1e4])
    coordinates = Coordinates(np.eye(4), np.zeros(4), False, np.diag(values), noise)
    rule, iterate = Steps(3, np.eye(4) / 1e4, 0.0), Iterate.start(np.zeros((4, 1)))
    for number in range(3):
        iterate = descent.next_iterate(iterate, rule, np.zeros((4, 1)), 1.0, averaged=number >= rule.first_averaged)
    said = np.diag(descent.pooled_estimate(iterate, rule, coordinates).history.unshrunk().covariance)
    steps = 3 - rule.first_averaged
    assert math.sqrt(said[0] * steps) * values[0] > wider
    np.testing.assert_allclose(said[1:] * steps, 1e-8, rtol=0.01)


def test_steps_show_small_eigenvalues_better_than_the_release_of_xx():
    """They seemed larger by one to two standard errors if a step's effect on later coefficients was not subtracted."""
    rng, noise, values = np.random.default_rng(11), 150.0, np.array([50.0, 300.0, 600.0, 1_000.0])
    sought, off = rng.normal(size=(4, 2)), []
    for _ in range(30):
        coordinates = Coordinates(np.eye(4), np.zeros(4), False, np.diag(values) + symmetric(rng, 4, noise), noise)
        rule, iterate = descent.steps(coordinates, 1_000.0), Iterate.start(np.zeros((4, 2)))
        for number in range(rule.n_steps):
            sums = values[:, None] * (sought - iterate.theta) + 2.0 * noise * rng.normal(size=(4, 2))
            iterate = descent.next_iterate(iterate, rule, sums, 2.0 * noise, averaged=number >= rule.first_averaged)
        found = descent.pooled_estimate(iterate, rule, coordinates).history.curvature()
        said = found.noise_along(np.eye(4))
        off.append((np.diag(found.xx) - values) / said)
    assert said[0] < 0.5 * math.sqrt(2.0) * noise
    assert np.all(said < 0.8 * math.sqrt(2.0) * noise)
    np.testing.assert_allclose(np.mean(off, axis=0), 0.0, atol=0.7)
    np.testing.assert_allclose(np.std(off, axis=0), 1.0, atol=0.4)


def test_whitening_makes_the_noise_of_the_first_release_uneven():
    rng, whitening, h = np.random.default_rng(3), np.diag([1.0, 1.0, 4.0]), 2.0
    noise = h * np.sum(whitening**2) / 3.0
    first = Coordinates(whitening, np.zeros(3), False, np.eye(3), noise)
    made = np.std([np.diag(whitening @ symmetric(rng, 3, h) @ whitening) for _ in range(2_000)], axis=0)
    assert first.noise_along(np.eye(3))[2] == pytest.approx(made[2], rel=0.1)
    even = MomentNoise(noise / math.sqrt(2.0), noise / 2.0, 0.0)
    pooled = first.with_moments(np.eye(3), even, None, 100.0)
    # A fifth of the pooled sum is of the first release.
    expected = math.hypot(made[2] / 5.0, 0.8 * math.sqrt(2.0) * noise / 2.0)
    assert pooled.noise_along(np.eye(3))[2] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("n_steps", [1, 7, 40])
def test_plain_descent_says_how_far_noise_alone_takes_it(n_steps):
    coordinates = Coordinates.plain(np.zeros(5), 2.0, 1_000, constant=False)
    rule = descent.steps(coordinates, 1_000, requested=n_steps)
    x, y, rng = np.zeros((1, 5)), np.zeros((1, 400)), np.random.default_rng(15)
    found = descended(coordinates, rule, x, y, 30.0, rng=rng)
    if n_steps > 1:
        assert np.var(found.theta) == pytest.approx(found.covariance[0, 0], rel=0.15)  # of 2,000 draws
    np.testing.assert_allclose(found.covariance, found.covariance[0, 0] * np.eye(5))
    nearer = descended(coordinates, rule, np.eye(5) * 20.0, np.zeros((5, 400)), 30.0, rng=rng)
    assert np.var(nearer.theta) < 1.1 * found.covariance[0, 0] or n_steps == 1


def test_steps_count_by_their_precision():
    x, y = table()
    coordinates = coordinates_of(x, 1e-6, 1.0, constant=False)
    rule = Steps(3, descent.steps(coordinates, len(x)).size, 0.0)
    rng = np.random.default_rng(7)
    iterate, rows = Iterate.start(np.zeros((4, 2))), rows_of(coordinates, x)
    deviations, measured = (9.0, 4.0, 0.5), []
    for number, deviation in enumerate(deviations):
        sums = rows.T @ (y - rows @ iterate.theta) + deviation * rng.normal(size=(4, 2))
        if number >= rule.first_averaged:
            measured.append((deviation**-2, iterate.theta + linalg.solve(rows.T @ rows, sums)))
        iterate = descent.next_iterate(iterate, rule, sums, deviation, averaged=number >= rule.first_averaged)
    weights = [weight for weight, _ in measured]
    expected = sum(weight * theta for weight, theta in measured) / math.fsum(weights)
    np.testing.assert_allclose(
        descent.pooled_estimate(iterate, rule, coordinates).theta, expected, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(iterate.weights(rule)[rule.first_averaged :], np.divide(weights, math.fsum(weights)))


def test_noise_alone_is_shrunk_to_about_nothing():
    rng = np.random.default_rng(8)
    kept = []
    for _ in range(200):
        covariance = np.diag(np.geomspace(1.0, 100.0, 20))
        noise = np.sqrt(np.diag(covariance))[:, None] * rng.normal(size=(20, 3))
        shrunk = descent.shrunk(noise, covariance, np.eye(20))
        kept.append(np.sum(shrunk.coef**2) / np.sum(noise**2))
    assert np.median(kept) < 0.05


def test_a_strong_signal_is_left_as_it_is():
    rng = np.random.default_rng(9)
    coef = 1e3 * rng.normal(size=(20, 3))
    shrunk = descent.shrunk(coef, np.diag(np.geomspace(1.0, 100.0, 20)), np.eye(20))
    np.testing.assert_allclose(shrunk.coef, coef, rtol=1e-3)
    np.testing.assert_allclose(shrunk.covariance, np.diag(np.geomspace(1.0, 100.0, 20)), rtol=1e-3)
    assert shrunk.ridge < 1e-3


def test_shrinking_loses_less_than_noise_does():
    rng = np.random.default_rng(10)
    for size in (0.1, 1.0, 10.0):
        errors = []
        for _ in range(100):
            covariance = np.diag(np.geomspace(0.1, 10.0, 15))
            truth = size * rng.normal(size=(15, 2))
            noisy = truth + np.sqrt(np.diag(covariance))[:, None] * rng.normal(size=(15, 2))
            found = descent.shrunk(noisy, covariance, np.eye(15)).coef
            errors.append((np.sum((found - truth) ** 2), np.sum((noisy - truth) ** 2), np.sum(truth**2)))
        shrunk, left, nothing = np.mean(errors, axis=0)
        assert shrunk < 1.02 * left
        assert shrunk < nothing + 0.05 * left


def test_shrinking_does_not_depend_on_directions_or_units():
    rng = np.random.default_rng(11)
    turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    covariance, xx = (b @ b.T for b in rng.normal(size=(2, 6, 6)))
    coef = 2.0 * rng.normal(size=(6, 3))
    own = descent.shrunk(coef, covariance, xx)
    turned = descent.shrunk(turn @ coef, turn @ covariance @ turn.T, turn @ xx @ turn.T)
    np.testing.assert_allclose(turned.coef, turn @ own.coef, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(turned.covariance, turn @ own.covariance @ turn.T, rtol=1e-8, atol=1e-10)
    assert turned.ridge == pytest.approx(own.ridge)
    larger = descent.shrunk(8.0 * coef, 64.0 * covariance, xx)
    np.testing.assert_allclose(larger.coef, 8.0 * own.coef, rtol=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 5.0, np.array([1.0, 0.0, 20.0, 3.0])])
def test_a_penalty_makes_ridge_regression_of_least_squares(penalty):
    x, y = table()
    xx = x.T @ x
    covariance = linalg.inv(xx)
    unshrunk = descent.penalised(least_squares(x, y, constant=False), covariance, xx, penalty)
    added = xx + np.diag(np.broadcast_to(penalty, 4))
    np.testing.assert_allclose(unshrunk.coef, linalg.solve(added, x.T @ y), rtol=1e-8)
    np.testing.assert_allclose(unshrunk.covariance, linalg.solve(added, linalg.solve(added, xx).T), rtol=1e-8)
    assert unshrunk.ridge == np.max(penalty)


@pytest.mark.parametrize("constant", [False, True])
def test_whitening_by_the_whole_power_whitens(constant):
    x, _ = table(n=3_000, condition=20.0)
    coordinates = coordinates_of(x, 1e-6, 1.0, constant=constant)
    rows = rows_of(coordinates, x)
    np.testing.assert_allclose(rows.T @ rows, len(x) * np.eye(4 + constant), atol=1e-4 * len(x))
    np.testing.assert_allclose(coordinates.xx, len(x) * np.eye(4 + constant), atol=1e-4 * len(x))
    # Noise alike in all coordinates stays so: they are triangular, which is fast.
    assert np.all(np.triu(coordinates.whitening, 1) == 0.0)


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("noise", [1e-6, 10.0, 100.0])
def test_whitened_rows_have_the_mean_square_of_their_number(noise, power):
    x, _ = table(n=3_000, condition=20.0)
    coordinates = coordinates_of(x, noise, power, constant=True, pooled=False)
    rows = rows_of(coordinates, x)[:, :4]
    assert np.sum(rows**2) / len(x) == pytest.approx(4.0, rel=1e-6)
    half = linalg.eigvalsh(rows.T @ rows)
    own = linalg.eigvalsh((x - coordinates.center).T @ (x - coordinates.center))
    assert half[-1] / half[0] < 1.01 * own[-1] / own[0]


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("features", [1, 3])
def test_moments_of_noise_alone_whiten_by_no_more_than_it_hides(features, power):
    for size in (1e-3, 1.0, 1e6):
        xx = -size * np.eye(features)
        nothing = Coordinates.whitened(xx, eigh(xx), size, power, np.zeros(features), 1e3, constant=False)
        rows = np.full(features, math.sqrt(size / 1e3))
        assert 1e-3 < np.linalg.norm(nothing.whitening @ rows) < 1e3
        pooled = nothing.with_moments(-np.eye(features), MomentNoise(2.0, 1.4, 0.0), None, 1e3)
        assert math.isfinite(pooled.noise)
        assert descent.steps(pooled, 1e3).n_steps >= 1


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("units", [(1.0, 1.0), (8.0, 0.25)])
def test_what_is_summed_is_rows_in_coordinates_and_their_predictions(units, constant):
    x, _ = table()
    own = coordinates_of(x, 1.0, 0.5, constant=constant)
    theta = np.random.default_rng(12).normal(size=(4 + constant, 2))
    rows, outcomes = units
    as_they_come = np.column_stack([rows * x, np.ones(len(x))])
    np.testing.assert_allclose(as_they_come @ own.of_rows(rows).T, rows_of(own, x), atol=1e-9)
    predicted = outcomes * (rows_of(own, x) @ theta)
    np.testing.assert_allclose(as_they_come @ own.as_summed(theta, rows, outcomes), predicted, atol=1e-9)


@pytest.mark.parametrize("constant", [False, True])
def test_moments_are_pooled_by_their_precision(constant):
    x, _ = table(n=2_000)
    first = coordinates_of(x, 1e-3, 1.0, constant=constant, pooled=False)
    rows = rows_of(first, x)
    exact, sums = rows[:, :4].T @ rows[:, :4], rows[:, :4].sum(axis=0) if constant else None
    far = exact + 5.0 * np.eye(4)
    for noise, weight in ((first.noise, 0.5), (3.0 * first.noise, 0.1), (1e-9, 1.0)):
        unshrunk = first.with_moments(far, MomentNoise(noise * math.sqrt(2.0), noise, 0.0), sums, len(x))
        np.testing.assert_allclose(unshrunk.xx[:4, :4] - exact, weight * 5.0 * np.eye(4), atol=1e-3)
        assert unshrunk.noise == pytest.approx(math.sqrt(weight) * noise, rel=1e-5)
        if constant:
            np.testing.assert_allclose(unshrunk.xx[4, :4], sums, atol=1e-9)
            assert unshrunk.xx[4, 4] == len(x)


def test_moments_about_the_mean_are_those_without_a_constant():
    x, _ = table()
    design = np.column_stack([x, np.ones(len(x))])
    z = x - x.mean(axis=0)
    np.testing.assert_allclose(descent.without_constant(design.T @ design, has_constant=True), z.T @ z, rtol=1e-9)
    np.testing.assert_array_equal(descent.without_constant(x.T @ x, has_constant=False), x.T @ x)


def test_a_mean_no_longer_than_its_noise_is_none_and_a_long_one_stays():
    rng = np.random.default_rng(13)
    mean = rng.normal(size=10)
    np.testing.assert_allclose(descent.shrunk_mean(mean, 1e-6), mean, rtol=1e-9)
    np.testing.assert_array_equal(descent.shrunk_mean(mean, 100.0), 0.0)
    np.testing.assert_array_equal(descent.shrunk_mean(np.zeros(3), 0.0), 0.0)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_whatever_is_released_there_is_an_answer(power, constant):
    rng = np.random.default_rng(14)
    for _ in range(40):
        sizes = 10.0 ** rng.uniform(-6.0, 8.0, size=5)
        people = 10.0 ** rng.uniform(0.0, 8.0)
        center = rng.normal(size=4)
        xx = symmetric(rng, 4, sizes[0])
        own = Coordinates.whitened(xx, eigh(xx), sizes[1], power, center, people, constant=constant)
        own = own.with_moments(
            symmetric(rng, 4, sizes[2]),
            MomentNoise(sizes[2] * math.sqrt(2.0), sizes[2], 0.0),
            sizes[2] * rng.normal(size=4) if constant else None,
            people,
        )
        rule = descent.steps(own, people)
        iterate = Iterate.start(np.zeros((4 + constant, 2)))
        for number in range(rule.n_steps):
            sums = sizes[3] * rng.normal(size=(4 + constant, 2))
            iterate = descent.next_iterate(iterate, rule, sums, sizes[4], averaged=number >= rule.first_averaged)
        found = descent.pooled_estimate(iterate, rule, own)
        xx = descent.without_constant(own.resolved(), has_constant=constant)
        unshrunk = descent.shrunk(found.theta[:4], found.covariance[:4, :4], xx)
        assert np.all(np.isfinite(unshrunk.coef))
        assert np.all(np.isfinite(unshrunk.covariance))
        assert np.all(np.linalg.eigvalsh(own.resolved()) > 0.0)
        assert math.isfinite(unshrunk.ridge)


def test_moments_stand_out_of_noise_that_they_exceed_and_noise_alone_does_not():
    rng = np.random.default_rng(3)
    for features in (1, 5, 40):
        seen = []
        for size in (0.0, 6.0):
            noise = rng.normal(size=(features, features))
            noise = np.tril(noise) + np.tril(noise, -1).T
            xx = noise + size * np.sqrt(features) * np.outer(np.eye(features)[0], np.eye(features)[0])
            coordinates = descent.Coordinates(np.eye(features), np.zeros(features), constant=False, xx=xx, noise=1.0)
            seen.append(coordinates.is_above_noise)
        assert seen == [False, True]
    assert not descent.Coordinates.plain(np.zeros(3), 1.0, 100.0, constant=True).is_above_noise


@pytest.mark.parametrize("clip", [0.8, 1.0, 1.5, 2.0, 5.0])
@pytest.mark.parametrize("deviations", [[1.0], [3.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.1]])
def test_the_clip_of_squared_residuals_is_undone(clip, deviations):
    """By 100,000 normal residuals: a mean square has a standard error below 1%."""
    rng, people = np.random.default_rng(0), 100_000
    residuals = rng.normal(size=(people, len(deviations))) * deviations
    norms = np.linalg.norm(residuals, axis=1)
    limit = clip * math.sqrt(np.mean(norms**2))

    def squares(scale):
        clipped = residuals * np.minimum(scale, limit / np.maximum(norms, 1e-9))[:, None]
        return np.sum(clipped**2, axis=0)

    found = descent.unclipped(squares(1.0), people, limit)
    whole, clipped = np.sum(residuals**2), np.sum(squares(1.0))
    # Of several outcomes of unlike sizes the law is approximate.
    assert found.square == pytest.approx(whole / clipped, rel=0.03 if len(set(deviations)) == 1 else 0.06)
    growth = (np.sum(squares(1.01)) / np.sum(squares(0.99)) - 1.0) / (1.01**2 / 0.99**2 - 1.0)
    assert found.error == pytest.approx(1.0 / growth, rel=0.1)


def test_squares_that_are_all_clipped_have_a_factor_still():
    for squares in ([100.0], [1e9], [1e-12], [1e-300, 1e-3]):
        found = descent.unclipped(np.array(squares), 100.0, 1.0)
        assert 1.0 - 1e-9 <= found.square < 100.0
        assert 1.0 - 1e-9 <= found.error < 100.0


@pytest.mark.parametrize("resolution", [30.0, 120.0, 1e9])
@pytest.mark.parametrize(("most", "requested", "n_steps"), [(40, None, 30), (3, None, 3), (40, 5, 5), (40, 40, 40)])
def test_steps_of_few_people_are_short_where_noise_takes_them_far(most, requested, n_steps, resolution):
    """And their noise is told: of the last position that of all steps, of a mean no more than of one solution."""
    rule = descent.few_steps((7, 2), 100.0, resolution, most=most, requested=requested)
    assert rule.n_steps == n_steps
    length = 100.0 * rule.size[0, 0]
    np.testing.assert_array_equal(rule.size, rule.size[0, 0] * np.eye(7))
    assert 0.0 < length <= min(1.2, 0.02 * resolution)
    # As if rows were even, a step moves by less than twice what is missing.
    assert length < 2.0
    rng, ends, unshrunk = np.random.default_rng(0), [], 0.0
    for _ in range(200):
        iterate = Iterate.start(np.zeros((7, 2)))
        for number in range(rule.n_steps):
            drawn = 3.0 * rng.normal(size=(7, 2))
            iterate = descent.next_iterate(iterate, rule, drawn, 3.0, averaged=number >= rule.first_averaged)
        found = descent.pooled_estimate_of_few(iterate, rule, 100.0)
        ends.append(found.theta)
        unshrunk = float(found.covariance[0, 0])
    walked = float(np.var(ends))
    if n_steps < 12:
        np.testing.assert_array_equal(ends[-1], iterate.theta)
        assert unshrunk == pytest.approx(walked, rel=0.1)
    else:
        one = (3.0 / 50.0) ** 2 / (n_steps - rule.first_averaged)
        assert unshrunk == pytest.approx(1.0 / (1.0 / walked + 1.0 / one), rel=0.1)


def test_a_level_is_moved_to_a_mean_that_is_surely_another_and_else_stays():
    level = np.array([0.1])
    np.testing.assert_array_equal(descent.surely_moved(level, np.array([0.25]), 0.01, 1.75), level)
    np.testing.assert_allclose(descent.surely_moved(level, np.array([0.6]), 1e-6, 1.75), [0.6], atol=1e-4)


def test_far_more_than_is_usual_must_be_seen_beyond_the_noise():
    covariance, xx = np.ones((1, 1)), np.ones((1, 1))

    def kept(coef, usual=math.inf):
        return float(descent.shrunk(np.array([[coef]]), covariance, xx, usual=usual).coef[0, 0]) / coef

    assert kept(1.5) > 0.6
    assert kept(1.5, 1e-4) < 0.05
    # Surely there, it is kept, whatever is usual.
    assert kept(20.0, 1e-4) > 0.9
    # And what is usual changes nothing much of what is not more.
    assert kept(1.5, 100.0) == pytest.approx(kept(1.5), rel=0.05)


def test_noise_where_rows_may_be_clipped_is_that_of_the_least_slope():
    """Steps that nothing draws back: the slope that X'X seems to have may not be there."""
    rng, noise = np.random.default_rng(5), 30.0
    xx = np.diag([40.0, 3000.0])
    within, beyond = (
        Coordinates(np.eye(2), np.zeros(2), False, xx, noise, radius=1.0, clipped_to=one) for one in (1.0, 0.05)
    )
    rule = descent.steps(within, 3000.0, requested=40)
    iterate = Iterate.start(np.zeros((2, 1)))
    for number in range(rule.n_steps):
        slopes = np.array([[0.0], [3000.0]])
        summed = -slopes * iterate.theta + 10.0 * rng.normal(size=(2, 1))
        iterate = descent.next_iterate(iterate, rule, summed, 10.0, averaged=number >= rule.first_averaged)
    as_seen, as_clipped = (np.diag(descent.pooled_estimate(iterate, rule, one).covariance) for one in (within, beyond))
    assert as_clipped[0] > 3.0 * as_seen[0]
    # A slope far above its noise stays about as it is.
    assert as_seen[1] <= as_clipped[1] < 1.2 * as_seen[1]
    history = descent.StepHistory(iterate, rule, within)
    assert history.least_eigenvalues(np.array([40.0, 3000.0])).tolist() == [40.0, 3000.0]
