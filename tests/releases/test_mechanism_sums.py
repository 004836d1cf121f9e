"""Noise for sums of bounded parts: its size against what one person moves, and its law."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpfast import Privacy
from dpfast.kernels.columns import FixedPoint
from dpfast.noise import SeededSource
from dpfast.privacy import compose_mu, gaussian_delta, gaussian_mu
from dpfast.releases.mechanism import NoisySum

ADJACENCIES = ["replace_one", "add_remove"]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_noise_hides_the_farthest_that_one_person_moves_a_sum(adjacency):
    privacy = Privacy(1.0, 1e-6, adjacency)
    moved = 2.0 * 3.0 if adjacency == "replace_one" else 3.0
    scale = NoisySum.calibrate(privacy, 3.0, (4, 2)).scale
    assert 0.99e-6 < gaussian_delta(scale, 1.0, moved) <= 1e-6
    pure = NoisySum.calibrate(Privacy(1.0, 0.0, adjacency), 3.0, (4, 2))
    assert pure.law == "L2-Laplace"
    assert pure.scale == pytest.approx(moved)


@pytest.mark.parametrize("unit", [0.25, 2.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_sum_and_its_count_move_together(adjacency, unit):
    privacy = Privacy(1.0, 1e-6, adjacency)
    moved = math.hypot(6.0 if adjacency == "replace_one" else 3.0, unit)
    alone = NoisySum.calibrate(privacy, 1.0, (5,))
    both = alone.with_count(3.0, unit)
    assert 0.99e-6 < gaussian_delta(both.scale, 1.0, moved) <= 1e-6
    assert both == replace(alone, scale=both.scale, deviation=both.scale)
    whole = Privacy(1.0, 0.0, adjacency)
    pure = NoisySum.calibrate(whole, 1.0, (5,), unit="person").with_count(3.0, unit)
    assert (pure.law, pure.scale, pure.unit) == ("L2-Laplace", pytest.approx(moved), "person")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_person_moves_one_bin_or_two_of_every_histogram(adjacency):
    bins = 3 * (2 if adjacency == "replace_one" else 1)
    scale = NoisySum.of_counts(Privacy(1.0, 1e-6, adjacency), 3, 10).scale
    assert 0.99e-6 < gaussian_delta(scale, 1.0, math.sqrt(bins)) <= 1e-6
    pure = NoisySum.of_counts(Privacy(0.5, 0.0, adjacency), 3, 10)
    assert (pure.law, pure.scale) == ("Laplace", pytest.approx(bins / 0.5))


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("is_gaussian", [True, False])
@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_counts_and_what_is_left_beside_them_keep_to_the_budget(adjacency, delta, is_gaussian, share):
    """Both as Gaussian releases, or both pure; else their epsilons and deltas add up."""
    budget = Privacy(1.0, delta, adjacency)
    counts, rest = NoisySum.counts_within(budget, is_gaussian, share, 3, 10)
    if is_gaussian and delta > 0.0:
        assert 0.999 * gaussian_mu(1.0, delta) < compose_mu([counts.mu, gaussian_mu(*rest.target)])
        assert compose_mu([counts.mu, gaussian_mu(*rest.target)]) <= gaussian_mu(1.0, delta)
    else:
        assert 0.999 < counts.privacy.epsilon + rest.epsilon <= 1.0
        assert counts.privacy.delta + rest.delta <= delta
    assert rest.adjacency == counts.privacy.adjacency == adjacency


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("counts", [False, True])
def test_the_noise_drawn_has_the_calibrated_law(delta, counts):
    shape = (40, 50)
    privacy = Privacy(1.0, delta)
    mechanism = NoisySum.of_counts(privacy, *shape) if counts else NoisySum.calibrate(privacy, 1.0, shape)
    exact = FixedPoint.from_integers(np.arange(2000).reshape(shape), -3)
    release = mechanism.release(exact, SeededSource(3), "a sum")
    assert (release.mechanism, release.mu, release.privacy) == (mechanism.law, mechanism.mu, privacy)
    noise = (release.values["sum"] - exact.to_float64()).ravel()
    if mechanism.law == "L2-Laplace":
        length = np.linalg.norm(noise)
        assert 1e-4 < stats.gamma(2000, scale=mechanism.scale).cdf(length) < 1.0 - 1e-4
        assert stats.kstest(noise / length * math.sqrt(2000), "norm").pvalue > 1e-4
    else:
        law = stats.norm(scale=mechanism.scale) if delta else stats.laplace(scale=mechanism.scale)
        assert stats.kstest(noise, law.cdf).pvalue > 1e-4
    assert np.std(noise) == pytest.approx(mechanism.deviation, rel=0.1)


def test_a_sum_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        NoisySum.calibrate(Privacy(1.0, 1e-6), 1.0, (3,)).release(FixedPoint.zeros((4,), 0), SeededSource(0), "a sum")


WAYS = {
    "L2": lambda privacy, bound: (NoisySum.calibrate(privacy, bound, (4,)), bound * _of(privacy)),
    "L1": lambda privacy, bound: (
        NoisySum.moved_by(privacy, 2.0 * bound, bound, (4,), in_l1=(2.0 * bound, bound)),
        bound * _of(privacy),
    ),
    "counts": lambda privacy, bound: (
        NoisySum.of_counts(privacy, 1, 4),
        math.sqrt(_of(privacy)) * (1.0 - 2.0**-50) if privacy.delta else _of(privacy),
    ),
    "with a count": lambda privacy, bound: (
        NoisySum.calibrate(privacy, 1.0, (4,)).with_count(bound, 0.5 * bound),
        bound * math.sqrt(_of(privacy) ** 2 + 0.25) * (1.0 - 2.0**-50),
    ),
}


def _of(privacy):
    return 2.0 if privacy.adjacency == "replace_one" else 1.0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_scale_is_rounded_below_what_the_budget_needs(adjacency, delta, way):
    """In exact arithmetic: by single precision, or down, half of all scales would be too small."""
    for epsilon in np.geomspace(0.01, 10.0, 8).tolist():
        for bound in np.geomspace(1e-3, 1e3, 8).tolist():
            mechanism, moved = WAYS[way](Privacy(epsilon, delta, adjacency), bound)
            per_scale = Fraction(mechanism.mu) if delta else Fraction(epsilon)
            needed = Fraction(moved) / per_scale
            assert needed <= Fraction(mechanism.scale) <= needed * (1 + Fraction(2) ** -30)


@pytest.mark.parametrize("law", ["Gaussian", "L2-Laplace", "Laplace"])
def test_noise_is_added_to_the_sum_itself_and_rounded_once(law):
    """Sums have more digits than doubles: rounded before the noise, two neighbours' would be farther apart."""
    privacy = Privacy(1.0, 1e-6 if law == "Gaussian" else 0.0)
    in_l1 = (200.0, 100.0) if law == "Laplace" else None
    mechanism = NoisySum.moved_by(privacy, 200.0, 100.0, (6,), in_l1=in_l1)
    assert mechanism.law == law
    exact = [sign * 2**60 + place for sign in (1, -1) for place in (0, 127, 129)]
    sums = FixedPoint.from_integers(exact, 0)
    for seed in range(20):
        alone = mechanism.release(FixedPoint.zeros((6,), 0), SeededSource(seed), "sum").values["sum"]
        found = mechanism.release(sums, SeededSource(seed), "sum").values["sum"]
        expected = [float(whole + Fraction(noise)) for whole, noise in zip(exact, alone.tolist(), strict=True)]
        assert found.tolist() == expected
