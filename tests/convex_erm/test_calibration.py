"""Probabilities by noisy counts: near the truth where counts are sure, near what is usual where they are noise."""

import math

import numpy as np
import pytest
from scipy.special import expit, log_expit

from dpfast.convex_erm.calibration import (
    _KNOTS,
    _OFFSETS,
    _SLOPES,
    _mean_log_odds,
    calibrated_log_odds,
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
    return margins, counts + deviation * rng.normal(size=counts.shape), placed(edges, 1.0)


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
    margins, counts, ends = table(100_000, slope, offset, 30.0)
    curve = calibrated_log_odds(counts[None], 30.0, ends, 100_000, 0.5)
    assert loss(interpolated(curve, margins), slope, offset, margins) < 2e-3
    assert np.all(np.diff(curve) > 0.0)
    assert zero_of(curve) == pytest.approx(-offset / slope, abs=0.25 / slope)


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.0, -0.9), (0.5, 1.0), (6.0, 0.0)])
def test_counts_lead_away_from_what_is_usual_only_as_far_as_they_are_sure(slope, offset):
    """Over draws of the noise, at 6 and 15 deviations: no more than a tenth above knowing but frequencies."""
    for people, most in ((200, 0.11), (500, 0.07)):
        losses, constant = [], []
        for seed in range(16):
            margins, counts, ends = table(people, slope, offset, 32.0, seed)
            curve = calibrated_log_odds(counts[None], 32.0, ends, people, 0.3)
            losses.append(loss(interpolated(curve, margins), slope, offset, margins))
            rate = np.mean(expit(slope * margins + offset))
            constant.append(loss(np.full(people, math.log(rate / (1.0 - rate))), slope, offset, margins))
        assert np.mean(losses) < np.mean(constant) + most


def test_noise_alone_says_next_to_nothing():
    """Of an empty table the curve is about that of margins without a meaning, whatever the noise is."""
    ends = placed(limits(10, 1000.0), 1.0)
    found = []
    for seed in range(20):
        noise = 1000.0 * np.random.default_rng(seed).normal(size=(2, len(ends) - 1))
        found.append(interpolated(calibrated_log_odds(noise[None], 1000.0, ends, 10, 0.0), np.array([-1.0, 1.0])))
    np.testing.assert_allclose(np.mean(found, axis=0), np.mean(found), atol=0.5)
    assert np.abs(found).max() < 1.0


@pytest.mark.parametrize("rates", [(0.9, 0.07, 0.03), (0.4, 0.35, 0.25)])
@pytest.mark.parametrize("intercepts", [False, True])
@pytest.mark.parametrize("spread", [1.5, 0.001])
def test_classes_share_a_slope_and_have_an_offset_each(rates, intercepts, spread):
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
    curves = calibrated_log_odds(noisy, 30.0, placed(edges, 1.0), 20_000, 0.5, intercepts=intercepts)
    assert curves.shape[0] == 4
    assert np.all(np.diff(curves) > 0.0)
    for rate, curve in zip(rates, curves[1:], strict=True):
        found = expit(interpolated((curves[0], curve), np.quantile(margins, [0.1, 0.5, 0.9])))
        np.testing.assert_allclose(found, rate, atol=0.03)


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
    curve = calibrated_log_odds(noisy[None], 20.0, ends / unit, 4_000, 0.5)
    assert np.mean(np.abs(expit(interpolated(curve, margins / unit)) - expit(truth))) < 0.04


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
