"""The paper's generator draws what Appendix A.1 says."""

import numpy as np
import pytest
from scipy import stats

from dpfast.datasets import synthetic_control_panel
from dpfast.datasets.tables import truncated_gaussian


@pytest.mark.parametrize(("variance", "reach"), [(1.0, 1.0), (0.1, 1.0)])
def test_truncated_gaussians_have_their_law(variance, reach):
    drawn = truncated_gaussian(np.random.default_rng(1), 100_000, variance, reach)
    deviation = np.sqrt(variance)
    law = stats.truncnorm(-reach / deviation, reach / deviation, scale=deviation)
    # False-reject rate 1e-6.
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6
    assert np.abs(drawn).max() <= reach


def test_trends_noise_and_public_scale():
    donors, target, signal = synthetic_control_panel(2000, 10, seed=2)
    scale = 5 * 13 + 1
    assert donors.shape == (2000, 13)
    assert np.abs(donors).max() <= 1.0
    slope = signal[0] * scale
    assert 3.0 <= slope <= 5.0
    np.testing.assert_allclose(signal * scale, slope * np.arange(1, 14), rtol=1e-12)
    assert np.abs(target - signal).max() * scale <= 1.0
    times = np.arange(1, 14)
    residuals = scale * donors - np.outer(scale * donors @ times / (times @ times), times)
    # 24,000 degrees of freedom; six standard errors of a variance of bounded noise.
    variance = np.sum(residuals**2) / (2000 * 12)
    expected = stats.truncnorm(-1 / np.sqrt(0.1), 1 / np.sqrt(0.1), scale=np.sqrt(0.1)).var()
    assert variance == pytest.approx(expected, abs=6 * expected * np.sqrt(2 / 24_000))


def test_a_seed_repeats_and_none_does_not():
    first, second = (synthetic_control_panel(5, 4, 2, seed=3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(synthetic_control_panel(5, 4).donors, synthetic_control_panel(5, 4).donors)


@pytest.mark.parametrize(("sizes", "name"), [((0, 4), "n"), ((4, 0), "n_pre"), ((4, 4, 0), "n_post")])
def test_bad_sizes_are_named(sizes, name):
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0"):
        synthetic_control_panel(*sizes)
