"""Noisy counts by size: the share that they cost, the noise that they get, and the bounds that they give."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dpfast import Privacy, io
from dpfast.kernels.columns import FixedPoint
from dpfast.noise import SeededSource
from dpfast.privacy import gaussian_delta, gaussian_mu, keeps_to
from dpfast.releases.size_counts import FEW, Lowered, NoisySizes
from dpfast.statistics.norm_histograms import NormHistograms, size_counts

ALL = NormHistograms(rows=True, outcomes=True, entries=True)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("unit", "histograms"), [("row", 2 + 3), ("person", 2 + 6)])
def test_noise_hides_a_person_in_every_histogram(adjacency, unit, histograms):
    mechanism = NoisySizes.calibrate(Privacy(1.0, 1e-6, adjacency), ALL, 3, unit=unit)
    moved = math.sqrt(histograms * (2 if adjacency == "replace_one" else 1))
    assert 0.99e-6 < gaussian_delta(mechanism.noise.deviation, 1.0, moved) <= 1e-6
    assert mechanism.noise.shape == (histograms, ALL.bins.n_bins)


def test_a_tenth_of_the_budget_is_spent_and_the_rest_is_left():
    whole = Privacy(1.0, 1e-6)
    mechanism, rest = NoisySizes.within(whole, True, ALL, 3)
    mus = [mechanism.noise.mu, gaussian_mu(*rest.target)]
    assert mus[0] ** 2 / (mus[0] ** 2 + mus[1] ** 2) == pytest.approx(0.1)
    assert math.hypot(*mus) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    assert keeps_to([mechanism.noise.privacy, rest], mus, whole)
    assert not keeps_to([mechanism.noise.privacy, rest], [mu * 1.001 for mu in mus], whole)
    mechanism, rest = NoisySizes.within(Privacy(1.0), True, ALL, 3)
    assert mechanism.noise.law == "Laplace"
    assert (mechanism.noise.privacy.epsilon, rest.epsilon) == pytest.approx((0.1, 0.9))


@pytest.mark.parametrize(("n_features", "law"), [(1, "Laplace"), (200, "Gaussian")])
def test_before_a_release_that_is_not_gaussian_epsilons_and_deltas_add(n_features, law):
    whole = Privacy(1.0, 1e-6)
    mechanism, rest = NoisySizes.within(whole, False, NormHistograms(entries=True), n_features)
    assert mechanism.noise.law == law
    assert keeps_to([mechanism.noise.privacy, rest], [mechanism.noise.mu, None], whole)
    assert (mechanism.noise.privacy.epsilon, rest.epsilon) == pytest.approx((0.1, 0.9))
    assert mechanism.noise.privacy.delta + rest.delta == pytest.approx(1e-6)
    others = [
        NoisySizes.calibrate(Privacy(0.1, delta), NormHistograms(entries=True), n_features) for delta in (0.0, 1e-7)
    ]
    assert mechanism.noise.deviation == pytest.approx(min(one.noise.deviation for one in others), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_drawn_has_the_calibrated_law(delta):
    mechanism = NoisySizes.calibrate(Privacy(1.0, delta), ALL, 10)
    counts = FixedPoint.from_integers(np.arange(12 * 321).reshape(12, 321), 0)
    release = mechanism.noise.release(counts, SeededSource(1), "counts")
    noise = (release.values["sum"] - counts.to_float64()).ravel()
    law = stats.norm(scale=mechanism.noise.deviation) if delta else stats.laplace(scale=24.0)
    assert stats.kstest(noise, law.cdf).pvalue > 1e-4
    assert (release.privacy, release.mu) == (Privacy(1.0, delta), mechanism.noise.mu)
    assert release.scales["sum"] == pytest.approx(np.std(noise), rel=0.1)


def found(x, y=None, sizes=ALL, *, epsilon=100.0, adjacency="replace_one", groups=None, seed=2, **options):
    unit = "row" if groups is None else "person"
    mechanism = NoisySizes.calibrate(Privacy(epsilon, 1e-6, adjacency), sizes, x.shape[1], unit=unit)
    counts = size_counts(io.open_table(x, y), sizes, groups=groups, max_rows=None if groups is None else 10)
    release = mechanism.noise.release(counts, SeededSource(seed), "counts")
    return mechanism.found(release, None if adjacency == "add_remove" else int(counts.low[0].sum()), **options)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_bounds_leave_out_one_in_a_hundred(adjacency):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(18, 100, 20_000), rng.integers(0, 2, 20_000), -rng.lognormal(8, 1, 20_000)])
    y = rng.normal(size=20_000) * 1e-3
    bounds = found(x, y, adjacency=adjacency)
    assert bounds.are_certain
    norms = np.linalg.norm(x, axis=1)
    assert 0.7 < bounds.rows / np.quantile(norms, 0.99) < 1.5
    assert 0.7 < bounds.outcomes / np.quantile(abs(y), 0.99) < 1.5
    low, high = bounds.box
    assert low[:2].tolist() == [16.0, 0.0]
    assert high[:2].tolist() == [128.0, 1.0]
    ends = np.quantile(x[:, 2], [0.01, 0.99])
    assert 0.7 < low[2] / ends[0] < 1.5
    assert 0.6 < high[2] / ends[1] < 1.1


def test_a_person_of_several_rows_is_within_their_largest_and_least():
    rng = np.random.default_rng(0)
    x = np.tile([[-3.0], [0.1], [5.0]], (3000, 1)) * rng.uniform(0.95, 1.0, (9000, 1))
    bounds = found(x, sizes=NormHistograms(entries=True), groups=np.repeat(np.arange(3000), 3))
    assert bounds.box[0].tolist() == [-4.0]
    assert bounds.box[1] == pytest.approx(4.0 * math.sqrt(2.0))


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("x", [np.zeros((40, 3)), np.full((40, 3), 1e300), np.full((40, 3), -1e-300), np.ones((1, 3))])
def test_limits_are_in_order_whatever_the_table(x, nonnegative):
    for epsilon in (0.01, 1.0, 1e4):
        bounds = found(np.abs(x) if nonnegative else x, x, epsilon=epsilon, nonnegative=nonnegative)
        low, high = bounds.usable_box
        assert np.all(np.isfinite(low))
        assert np.all(low <= high)
        assert np.any(low < high)
        assert np.all(np.isfinite(high))
        assert (not nonnegative) or np.all(low >= 0.0)
        assert 2.0**-40 <= bounds.rows <= 2.0**40


def test_what_cannot_be_told_from_noise_is_said_so():
    x = np.random.default_rng(0).normal(size=(50, 2))
    assert not found(x, x, epsilon=0.01).are_certain
    assert found(x, x).are_certain


BOX = NormHistograms(entries=True)


@pytest.mark.parametrize("share", [0.001, 0.003, 0.02, 0.05])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_rare_indicator_has_the_limits_of_an_indicator(share, adjacency):
    x = np.column_stack([np.arange(20_000) < share * 20_000, np.random.default_rng(0).uniform(1.0, 9.0, 20_000)])
    low, high = found(x.astype(float), sizes=BOX, adjacency=adjacency).box
    assert (low[0], high[0]) == (0.0, 1.0)
    assert (low[1], high[1]) == (1.0, pytest.approx(8.0 * math.sqrt(2.0)))


def test_a_scale_is_that_of_what_is_not_zero():
    rng = np.random.default_rng(0)
    money = np.where(rng.random(50_000) < 0.004, rng.lognormal(9.0, 1.0, 50_000), 0.0)
    low, high = found(money[:, None], sizes=BOX).box
    assert low[0] == 0.0
    assert 0.7 < high[0] / np.quantile(money[money > 0.0], 0.99) < 2.0


def test_neither_an_empty_bin_nor_that_of_zeros_is_a_scale():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=500), rng.random(500) < 0.01, np.zeros(500)])
    unseen = 0
    for seed in range(50):
        bounds = found(x, sizes=BOX, epsilon=1.0, seed=seed)
        low, high = bounds.box
        widths = high - low
        unseen += widths[1] == 0.0
        assert np.all((widths == 0.0) | (widths > 0.1))
        assert bounds.are_certain == np.all(widths > 0.0)
    assert unseen >= 45  # five people, noise of some thirty


def test_ends_that_noise_has_exchanged_are_put_in_order():
    mechanism = NoisySizes.calibrate(Privacy(1.0, 1e-6), BOX, 1, unit="person")
    counts = np.zeros((2, BOX.bins.n_bins))
    # The largest entries in (1, sqrt(2)], and the least ones beyond.
    for histogram, size in zip(counts, (81, 85), strict=True):
        histogram[BOX.bins.largest_code + size] = 1e6
    low, high = mechanism.found(SimpleNamespace(values={"sum": counts}), 1_000_000).box
    assert (low[0], high[0]) == (1.0, pytest.approx(4.0 * math.sqrt(2.0)))


def test_bounds_of_nothing_leave_nothing_of_the_rows():
    x = np.random.default_rng(0).normal(size=(20, 2))
    bounds = found(x, x, epsilon=0.001)
    assert (bounds.rows, bounds.outcomes) == (2.0**40, 2.0**-40)
    assert [side.tolist() for side in bounds.box] == [[0.0, 0.0], [0.0, 0.0]]
    assert [side.tolist() for side in bounds.usable_box] == [[-(2.0**40)] * 2, [2.0**40] * 2]
    assert found(abs(x), x, epsilon=0.001, nonnegative=True).usable_box[0].tolist() == [0.0, 0.0]


def test_bounds_are_certain_only_where_each_of_them_is():
    """Of tables that have no size, in rows or in outcomes or in neither, nothing tells a bound."""
    some = np.random.default_rng(0).normal(size=(3_000, 2))
    for x in (some, np.zeros_like(some)):
        for y in (some[:, :1], np.zeros((len(some), 1))):
            for sizes in (
                NormHistograms(rows=True, outcomes=True),
                NormHistograms(outcomes=True),
                NormHistograms(rows=True),
                ALL,
            ):
                is_told = (x.any() or not (sizes.rows or sizes.entries)) and (y.any() or not sizes.outcomes)
                assert found(x, y, sizes).are_certain == is_told


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_few_people_get_a_box_that_holds_both_sides(adjacency):
    """Noise of 3% of 500 people in a bin: no column has more than 35% beyond its limits, unless nothing is found."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        x = np.column_stack([rng.normal(size=(500, 2)), rng.standard_t(3, size=(500, 1)), rng.normal(3.0, 1.0, 500)])
        low, high = found(x, sizes=NormHistograms(entries=True), epsilon=1.0, adjacency=adjacency, seed=seed).box
        beyond = np.mean((x < low) | (x > high), axis=0)
        assert np.all((beyond < 0.35) | (low == high))


def lowered(outcomes, epsilon, declared, seed):
    """The bound that noisy counts of outcomes by size leave of a declared one."""
    sizes = declared.sizes
    mechanism = NoisySizes.calibrate(Privacy(epsilon, 1e-6), sizes, 2)
    outcomes = np.asarray(outcomes, float)[:, None]
    counts = size_counts(io.open_table(np.zeros((len(outcomes), 2)), outcomes), sizes)
    release = mechanism.noise.release(counts, SeededSource(seed), "counts")
    return mechanism.found(release, len(outcomes), declared=declared).outcomes


@pytest.mark.parametrize("declared", [1e-90, 1.0, 3.0, 1e90])
def test_a_declared_bound_is_lowered_to_sizes_that_the_counts_show_and_never_raised(declared):
    rng = np.random.default_rng(0)
    small = rng.uniform(-declared / 50.0, declared / 50.0, 5_000)
    wide = rng.uniform(-9.0 * declared, 9.0 * declared, 5_000)
    for seed in range(20):
        found = lowered(small, 1.0, Lowered(declared, FEW), seed)
        assert declared / 50.0 * 0.98 < found < declared / 10.0
        assert lowered(small, 1.0, Lowered(declared, FEW, room=2.0), seed) == 2.0 * found
        assert lowered(wide, 1.0, Lowered(declared, FEW), seed) == declared


def test_counts_that_are_as_likely_noise_leave_the_declared_bound():
    outcomes = np.random.default_rng(0).normal(size=30)
    kept = [lowered(outcomes, 0.1, Lowered(8.0, FEW), seed) == 8.0 for seed in range(100)]
    # In one of three, that the largest of so many runs is beyond three standard deviations.
    assert np.mean(kept) > 0.6


@pytest.mark.parametrize("declared", [1.0, 64.0])
def test_a_declared_bound_is_lowered_by_three_deviations_in_four_bins(declared):
    """People in neighbouring half-octaves count together, and the noise in four of them is twice that in one."""
    lower = Lowered(declared, 0.0)
    mechanism = NoisySizes.calibrate(Privacy(1.0, 1e-6), lower.sizes, 2)
    counts = np.zeros((1, mechanism.sizes.bins.n_bins))
    for last in (12, 20, 30):
        for people, is_seen in ((1.45, False), (1.55, True)):
            counts[:] = 0.0
            counts[0, mechanism.sizes.bins.largest_code + last - 3 :][:4] = people * mechanism.noise.deviation
            found = mechanism.found(SimpleNamespace(values={"sum": counts}), None, declared=lower).outcomes
            assert found == (mechanism.sizes.bins.size(last) if is_seen else declared)


def test_of_counts_no_one_who_is_seen_is_clipped():
    """Of people with 1 and with 20, one in a hundred has 20: a rule of one in a hundred would clip them."""
    outcomes = np.where(np.arange(20_000) % 101 == 0, 20.0, 1.0)
    for seed in range(10):
        assert lowered(outcomes, 1.0, Lowered(100.0, 0.0, least=1.0), seed) >= 20.0
        assert lowered(outcomes, 1.0, Lowered(100.0, 0.02, least=1.0), seed) < 20.0
