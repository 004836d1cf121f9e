"""Noise of data-dependent size: smooth between neighbours, of the calibrated law, and as private as the data."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from walks import problem, statistics_of, summed, walks

from dpfast import Privacy, noise
from dpfast.papers.policy_evaluation import printed_smooth_gaussian
from dpfast.policy_evaluation.mechanism import RidgeFit, WeightedMeans
from dpfast.privacy import SmoothGaussian, gaussian_scale, smooth_gaussian_delta
from dpfast.releases.mechanism import DataDependentGaussian

PRIVACY = Privacy(1.0, 1e-5)


def scale_for(mechanism, counts):
    """The scale of the noise for data with these counts."""
    return mechanism.scale(mechanism.statistic.sensitivity_of_counts(counts, mechanism.smoothness))


@pytest.mark.parametrize("index", range(len(list(statistics_of(4)))))
def test_noise_is_smooth_between_neighbours(index):
    rng = np.random.default_rng(index)
    for m in (2, 30, 1000):
        statistic = list(statistics_of(m))[index]
        mechanism = DataDependentGaussian.calibrate(PRIVACY, statistic)
        least, greatest = mechanism.extreme_scales
        for _ in range(40):
            counts = rng.integers(0, m + 1, 4)
            step = rng.integers(-1, 2, 4)
            if statistic.problem.horizon == 1:
                step = np.zeros(4, np.int64)
                step[rng.choice(4, 2, replace=False)] = (1, -1)
            one, other = (scale_for(mechanism, v) for v in (counts, np.clip(counts + step, 0, m)))
            assert abs(math.log(one**2) - math.log(other**2)) <= mechanism.smooth.beta
            assert least <= one * (1.0 + 1e-12)
            assert one <= greatest


@pytest.mark.parametrize("index", range(len(list(statistics_of(4)))))
def test_a_draw_asks_for_the_smoothness_that_rounding_leaves(index, monkeypatch):
    """The whole beta would leave none to the rounding of the bound: by less than any test of neighbours shows."""
    m, requested = 30, []
    statistic = list(statistics_of(m))[index]
    mechanism = DataDependentGaussian.calibrate(PRIVACY, statistic)
    assert mechanism.smoothness < mechanism.smooth.beta

    def bound(counts, beta):
        requested.append(beta)
        return type(statistic).sensitivity_of_counts(statistic, counts, beta)

    monkeypatch.setattr(statistic, "sensitivity_of_counts", bound)
    visited = np.zeros((m, 4), bool)
    visited[:, 0] = True
    sums = summed(walks(visited, np.full((m, 4), 0.5)), statistic.problem)
    mechanism.release(sums, noise.SeededSource(0), "test")
    assert set(requested) == {mechanism.smoothness}


@pytest.mark.parametrize("kind", ["lsw", "lsl"])
def test_the_noise_has_the_calibrated_law_of_the_data(kind):
    """Standardised by a scale recomputed here, 12,000 coordinates are normal: Kolmogorov-Smirnov and the variance.

    Either test rejects the right law with probability 1e-6; the variance would show 7% more or less noise.
    """
    rng = np.random.default_rng(0)
    scales = []
    for m, share in ((400, 0.9), (400, 0.05)):
        visited = rng.random((m, 12)) < share
        visited[:, 0] = True
        public = problem(weights=np.full(12, 1 / 12))
        sums = summed(walks(visited, rng.random((m, 12))), public)
        statistic = WeightedMeans(public, m) if kind == "lsw" else RidgeFit(public, m, 20.0)
        mechanism = DataDependentGaussian.calibrate(PRIVACY, statistic)
        v = sums.counts.astype(float)
        k = np.arange(m)[:, None]
        if kind == "lsw":
            phi = np.sum(1 / 12 / np.maximum(v - k, 1.0) ** 2, axis=1)
            factor = 1.5
        else:
            visits = np.sum(np.minimum(v + k, m) / 12, axis=1)
            phi = (1 / 12 / math.sqrt(40.0) * np.sqrt(visits) + math.sqrt(1 / 12)) ** 2
            factor = 2 * 1.5 / 20.0
        alpha, beta = mechanism.smooth.alpha, mechanism.smooth.beta
        scale = alpha * factor * math.sqrt(np.max(np.exp(-beta * k[:, 0]) * phi))
        scales.append(scale)
        center = statistic.center(sums)
        noises = [
            mechanism.release(sums, noise.SeededSource(seed), "test").values["coordinates"] for seed in range(1000)
        ]
        standard = ((np.array(noises) - center) / scale).ravel()
        assert stats.kstest(standard, "norm").pvalue > 1e-6
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], standard.size)
        assert low < standard @ standard < high
    assert max(scales) > 1.1 * min(scales)


def test_the_release_shows_neither_the_scale_nor_anything_that_depends_on_it():
    rng = np.random.default_rng(0)
    public = problem()
    mechanism = DataDependentGaussian.calibrate(PRIVACY, WeightedMeans(public, 300))
    releases, scales = [], []
    for share in (1.0, 0.1):
        visited = rng.random((300, 4)) < share
        visited[:, 0] = True
        sums = summed(walks(visited, rng.random((300, 4))), public)
        scales.append(scale_for(mechanism, sums.counts))
        releases.append(mechanism.release(sums, noise.SecureSource(), "test"))
    assert scales[1] > 5 * scales[0]
    records = [release.to_dict(values=False) for release in releases]
    for record in records:
        del record["time"]
    assert records[0] == records[1]
    assert releases[0].grid == releases[1].grid
    assert not releases[0].scales
    assert "data-dependent" in releases[0].summary()


@pytest.mark.parametrize("constants", ["sound", "paper", "icml"])
def test_the_calibration_meets_the_target(constants):
    calibration = DataDependentGaussian.calibrate(PRIVACY, WeightedMeans(problem(), 500), constants).smooth
    assert smooth_gaussian_delta(calibration.alpha, calibration.beta, 1.0, 4) <= 1e-5
    if constants == "sound":
        assert calibration.alpha < 8.0 * gaussian_scale(1.0, 1e-5)
    else:
        assert calibration == printed_smooth_gaussian(1.0, 1e-5, 4, constants)


def test_a_release_with_too_little_noise_is_not_called_guaranteed():
    statistic = WeightedMeans(problem(), 50)
    sums = summed(walks(np.ones((50, 4), bool), np.ones((50, 4))), statistic.problem)
    weak = DataDependentGaussian(PRIVACY, statistic, SmoothGaussian(1.0, 0.01), "icml")
    release = weak.release(sums, noise.SeededSource(0), "test")
    assert not release.guaranteed
    assert release.calibration == "paper"
    assert release.reproducible


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_noise_is_guaranteed_up_to_its_own_delta_at_the_claimed_epsilon(epsilon):
    statistic = WeightedMeans(problem(), 50)
    smooth = DataDependentGaussian.calibrate(Privacy(epsilon, 1e-5), statistic).smooth
    delta = smooth_gaussian_delta(smooth.alpha, smooth.beta, epsilon, statistic.dim)
    claims = [(epsilon, delta), (epsilon, math.nextafter(delta, 0.0)), (0.99 * epsilon, delta), (1.01 * epsilon, delta)]
    kept = [DataDependentGaussian(Privacy(*claim), statistic, smooth).guaranteed for claim in claims]
    assert kept == [True, False, False, True]


def test_the_noise_hides_what_the_computed_statistic_errs_by():
    """Two computed statistics lie up to the sensitivity and twice tau apart."""
    statistic = WeightedMeans(problem(), 50)
    statistic.tau = 0.25
    mechanism = DataDependentGaussian.calibrate(PRIVACY, statistic)
    assert Fraction(mechanism.scale(0.5)) >= Fraction(mechanism.smooth.alpha)
