"""Probabilities by noisy counts: near the truth where counts are sure, near what is usual where they are noise."""

import math

import numpy as np
import pytest
from scipy.special import expit, log_expit, softmax

from dpfast.convex_erm.calibration import (
    _KNOTS,
    _LOG_ODDS,
    _OFFSETS,
    _SLOPES,
    Classes,
    _mean_log_odds,
    _of_rates,
    calibrated_log_odds,
    estimated_rates,
    gaps,
    interpolated,
    limits,
    placed,
    unit_of,
    zero_of,
)


def table(n, slope, offset, deviation, seed=0, spread=1.5):
    """Margins, and noisy counts of them by class, where log-odds are a line."""
    rng = np.random.default_rng(seed)
    margins = spread * rng.normal(size=n)
    second = rng.random(n) < expit(slope * margins + offset)
    edges = limits(n, deviation)
    places = np.searchsorted(edges, margins, side="right")
    counts = np.array([np.bincount(places[second == one], minlength=len(edges) + 1) for one in (False, True)])
    noisy = counts + deviation * rng.normal(size=counts.shape)
    return margins, noisy, placed(edges, 1.0), of_classes(counts.sum(axis=1), deviation, n, rng)


def of_classes(counts, deviation, n_rows, rng):
    return Classes(counts + 1.6 * deviation * rng.normal(size=len(counts)), 1.6 * deviation, n_rows)


def loss(log_odds, slope, offset, margins):
    """Expected logarithmic loss, beyond the least there is."""
    truth = slope * margins + offset
    chance = expit(truth)
    return float(
        np.mean(
            chance * (log_expit(truth) - log_expit(log_odds))
            + (1.0 - chance) * (log_expit(-truth) - log_expit(-log_odds))
        )
    )


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.05, -0.9), (0.5, 1.5), (3.0, -2.0), (20.0, 0.0)])
def test_a_line_of_log_odds_is_found(slope, offset):
    margins, counts, ends, classes = table(100_000, slope, offset, 30.0)
    curve = calibrated_log_odds(counts[None], 30.0, ends, classes, 0.5)
    assert loss(interpolated(curve, margins), slope, offset, margins) < 2e-3
    assert np.all(np.diff(curve) > 0.0)
    assert zero_of(curve) == pytest.approx(-offset / slope, abs=0.25 / slope)


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.0, -0.9), (0.5, 1.0), (6.0, 0.0)])
def test_counts_lead_away_from_what_is_usual_only_as_far_as_they_are_sure(slope, offset):
    """Over draws of the noise, at 6 and 15 deviations: no more than a tenth above knowing but frequencies."""
    for people, most in ((200, 0.11), (500, 0.07)):
        losses, constant = [], []
        for seed in range(16):
            margins, counts, ends, classes = table(people, slope, offset, 32.0, seed)
            curve = calibrated_log_odds(counts[None], 32.0, ends, classes, 0.3)
            losses.append(loss(interpolated(curve, margins), slope, offset, margins))
            rate = np.mean(expit(slope * margins + offset))
            constant.append(loss(np.full(people, math.log(rate / (1.0 - rate))), slope, offset, margins))
        assert np.mean(losses) < np.mean(constant) + most


@pytest.mark.parametrize(("rate", "is_public"), [(0.02, True), (0.05, False), (0.98, False)])
def test_base_rates_of_unequal_classes_are_found_beside_many_bins_of_noise(rate, is_public):
    """Of 12 draws with 30 bins, rates known to .008: a tenth above knowing them, and less than without."""
    losses, without = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        margins, counts, ends, classes = table(4_000, 0.0, math.log(rate / (1.0 - rate)), 30.0, seed)
        if not is_public:
            classes = classes._replace(n_rows=None)
        unsure = Classes(1e6 * rng.normal(size=2), 1e6, 4_000)
        for found, one in ((losses, classes), (without, unsure)):
            curve = calibrated_log_odds(counts[None], 30.0, ends, one, 0.1)
            found.append(loss(interpolated(curve, margins), 0.0, math.log(rate / (1.0 - rate)), margins))
    known = -rate * math.log(rate) - (1.0 - rate) * math.log1p(-rate)
    assert np.mean(losses) < 0.1 * known
    assert np.mean(losses) < np.mean(without)


def test_counts_of_classes_are_as_likely_as_their_law_says():
    """Where all rows are known, the sum of noisy counts is no news: of two classes their difference is all."""
    rates, nothing = np.array([0.2, 0.5]), np.zeros(2)
    for several in (2, 4):
        counts = np.full(several, 100.0 / several)
        public = Classes(counts, 5.0, 100)
        moved = public._replace(counts=counts + 30.0)
        np.testing.assert_allclose(
            moved.log_likelihood(1, rates, nothing), public.log_likelihood(1, rates, nothing), rtol=1e-12
        )
        apart = counts[1] - 100.0 * rates
        variance = 25.0 * (1.0 - 1.0 / several) + 100.0 * rates * (1.0 - rates)
        law = -0.5 * (apart**2 / variance + np.log(variance))
        np.testing.assert_allclose(public.log_likelihood(1, rates, nothing), law, rtol=1e-12)
        variance += 25.0 * ((1.0 - rates) ** 2 + (several - 1) * rates**2 - 1.0 + 1.0 / several) + 1e4 * 0.01
        law = -0.5 * (apart**2 / variance + np.log(variance))
        np.testing.assert_allclose(public._replace(n_rows=None).log_likelihood(1, rates, nothing + 0.01), law)


def test_noise_alone_says_next_to_nothing():
    """Of an empty table the curve is about that of margins without a meaning, whatever the noise is."""
    ends = placed(limits(10, 1000.0), 1.0)
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise, classes = 1000.0 * rng.normal(size=(2, len(ends) - 1)), of_classes(np.zeros(2), 1000.0, 10, rng)
        found.append(interpolated(calibrated_log_odds(noise[None], 1000.0, ends, classes, 0.0), np.array([-1.0, 1.0])))
    np.testing.assert_allclose(np.mean(found, axis=0), np.mean(found), atol=0.5)
    assert np.abs(found).max() < 1.0


@pytest.mark.parametrize("rates", [(0.9, 0.07, 0.03), (0.4, 0.35, 0.25)])
@pytest.mark.parametrize("spread", [1.5, 0.001])
def test_classes_share_a_slope_and_have_an_offset_each(rates, spread):
    """Margins that tell nothing leave every class its rate, also where all rows are in one bin or two."""
    rng = np.random.default_rng(2)
    margins = spread * rng.normal(size=20_000)
    own = rng.choice(3, size=20_000, p=rates)
    edges = limits(20_000, 30.0)
    places = np.searchsorted(edges, margins, side="right")
    counts = np.array(
        [[np.bincount(places[(own == k) == one], minlength=len(edges) + 1) for one in (False, True)] for k in range(3)]
    )
    noisy = counts + 30.0 * rng.normal(size=counts.shape)
    classes = of_classes(np.bincount(own), 30.0, None, rng)
    curves = calibrated_log_odds(noisy, 30.0, placed(edges, 1.0), classes, 0.5)
    assert curves.shape[0] == 4
    assert np.all(np.diff(curves) > 0.0)
    for rate, curve in zip(rates, curves[1:], strict=True):
        found = expit(interpolated((curves[0], curve), np.quantile(margins, [0.1, 0.5, 0.9])))
        np.testing.assert_allclose(found, rate, atol=0.03)


def counts_of_gaps(n, several, rng, deviation):
    """Noisy counts of equally frequent classes, each ahead in its own rows: offsets do not differ."""
    margins = rng.normal(size=(n, several))
    own = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    edges = limits(n, deviation)
    places = np.searchsorted(edges, gaps(margins), side="right")
    counts = np.array(
        [
            [np.bincount(places[(own == k) == one, k], minlength=len(edges) + 1) for one in (False, True)]
            for k in range(several)
        ]
    )
    noisy = counts + deviation * rng.normal(size=counts.shape)
    counted = Classes(np.bincount(own, minlength=several) + deviation * rng.normal(size=several), deviation, n)
    return margins, own, calibrated_log_odds(noisy, deviation, placed(edges, 1.0), counted, 0.7)


@pytest.mark.parametrize(("several", "n", "deviation"), [(4, 600, 50.0), (8, 1_000, 60.0), (10, 4_000, 60.0)])
def test_noise_in_counts_of_like_classes_hardly_moves_who_is_the_most_probable(several, n, deviation):
    """Of each class few rows are left beside the noise: all have one offset, and so one curve, nearly."""
    right, before, losses = [], [], []
    for seed in range(10):
        margins, own, (at, *curves) = counts_of_gaps(n, several, np.random.default_rng(seed), deviation)
        odds = np.column_stack([interpolated((at, one), gap) for one, gap in zip(curves, gaps(margins).T, strict=True)])
        right.append(np.mean(odds.argmax(axis=1) == own))
        before.append(np.mean(margins.argmax(axis=1) == own))
        chances = softmax(log_expit(odds), axis=1)
        losses.append(-np.mean(np.log(chances[np.arange(n), own])))
    assert np.mean(right) > np.mean(before) - 0.003
    assert np.mean(losses) < math.log(several)


def test_an_offset_within_its_noise_leaves_the_boundary_of_two_classes():
    """And one that is beyond moves it: of 40 draws each."""
    kept = []
    for offset in (0.0, -2.5):
        zeros = []
        for seed in range(40):
            _, counts, ends, classes = table(500, 0.3, offset, 32.0, seed)
            curve = calibrated_log_odds(counts[None], 32.0, ends, classes, 0.3)
            assert np.all(np.diff(curve) > 0.0)
            zeros.append(zero_of(curve))
        kept.append(np.mean(np.abs(zeros) < 1e-9))
    assert kept[0] > 0.35
    assert kept[1] < 0.2


def test_bins_are_as_many_as_people_are_for_them():
    sizes = [len(limits(people, 10.0)) for people in (10, 200, 500, 10_000, None)]
    assert sizes == [1, 3, 9, 15, 9]
    np.testing.assert_array_equal(limits(10_000, 10.0), -limits(10_000, 10.0)[::-1])


@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0, 70.0])
@pytest.mark.parametrize("people", [10, 500, 10_000])
def test_bins_are_about_an_offset_too_and_no_row_is_far_beyond_them(people, offset):
    edges = limits(people, 10.0)
    ends = placed(edges, 0.5, offset)
    assert np.all(np.diff(ends) >= 0.0)
    if len(edges) > 1:
        assert {*np.round(0.5 * edges, 9), *np.round([offset - 0.5, offset, offset + 0.5], 9)} <= {*np.round(ends, 9)}
        assert (ends[0], ends[-1]) == (min(-3.0, offset - 3.0), max(3.0, offset + 3.0))
    else:
        np.testing.assert_allclose(ends, [min(-3.0, 2.0 * offset), offset, max(3.0, 2.0 * offset)])


@pytest.mark.parametrize(("middle", "slope"), [(-1.6, 0.0), (0.0, 20.0)])
def test_margins_beside_a_large_offset_have_bins_of_their_own(middle, slope):
    """About it, where coefficients are next to 0, or about 0, where rows are far from the origin."""
    rng = np.random.default_rng(4)
    margins = middle + 0.05 * rng.normal(size=4_000)
    truth = math.log(0.3 / 0.7) + slope * margins
    second = rng.random(4_000) < expit(truth)
    ends = placed(limits(4_000, 20.0), 0.05, -1.6)
    places = np.searchsorted(ends[1:-1], margins, side="right")
    counts = np.array([np.bincount(places[second == one], minlength=len(ends) - 1) for one in (False, True)])
    noisy = counts + 20.0 * rng.normal(size=counts.shape)
    unit = unit_of(noisy, ends, 0.05, -1.6)
    assert unit == (0.05 if slope > 0.0 else 3.2)
    classes = of_classes(counts.sum(axis=1), 20.0, 4_000, rng)
    curve = calibrated_log_odds(noisy[None], 20.0, ends / unit, classes, 0.5)
    assert np.mean(np.abs(expit(interpolated(curve, margins / unit)) - expit(truth))) < 0.04


@pytest.mark.parametrize("rate", [0.05, 0.9])
def test_a_bin_has_the_rate_that_its_counts_have_however_many_rows_they_are(rate):
    """Most rows may be in a few of many bins: they are known to the noise, whatever an even share would be."""
    for rows in range(300, 3_000, 50):
        counts = np.zeros((2, 21))
        counts[:, 0] = rows * (1.0 - rate), rows * rate
        likeliest = expit(_LOG_ODDS[_of_rates(counts, 9.0, 3_000.0)[0].argmax()])
        assert abs(likeliest - rate) < 2.0 * 9.0 / rows


def test_log_odds_are_those_of_the_mean_probability_over_lines():
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(len(_SLOPES), len(_OFFSETS)))
    lines = np.exp(_SLOPES)[:, None, None] * _KNOTS + _OFFSETS[:, None]
    own, others = (np.einsum("ij,ijk->k", np.exp(logs), expit(sign * lines)) for sign in (1.0, -1.0))
    np.testing.assert_allclose(_mean_log_odds(logs), np.log(own) - np.log(others), rtol=1e-9, atol=1e-9)


def test_a_curve_goes_straight_on():
    curve = np.array([[-1.0, 0.0, 2.0], [-3.0, -1.0, 1.0]])
    np.testing.assert_allclose(interpolated(curve, np.array([-2.0, -1.0, 1.0, 2.0, 4.0])), [-5.0, -3.0, 0.0, 1.0, 3.0])
    assert zero_of(curve) == 1.0
    lifted = np.array([[0.0], [5.0]])
    assert zero_of(curve - lifted) == 6.0
    assert zero_of(curve + lifted) == -2.0


def test_noise_in_counts_of_even_classes_hardly_favours_one():
    """And rates that counts do show are as counted."""
    rng, apart = np.random.default_rng(0), []
    for _ in range(20):
        rates = estimated_rates(Classes(100.0 + 43.0 * rng.normal(size=3), 43.0, 300))
        assert rates.sum() == pytest.approx(1.0)
        apart.append(np.ptp(rates))
    assert np.mean(apart) < 0.06
    counted = estimated_rates(Classes(np.array([420.0, 120.0, 60.0]), 20.0, 600))
    assert counted == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
