"""Bounds from noisy histograms: where they are, how often noise misleads, and what happens without people."""

import numpy as np
import pytest

from dpfast.solvers.bounds import last_bin, quantile_bin


def test_without_noise_the_share_alone_is_cut_off():
    counts = np.array([0.0, 500.0, 400.0, 70.0, 20.0, 10.0, 0.0, 0.0])
    for share, place in ((0.0, 5), (0.009, 5), (0.01, 4), (0.03, 3), (0.1, 2), (0.3, 2), (0.9, 1)):
        assert last_bin(counts, 0.0, share=share) == (place, True)


def test_people_of_known_number_set_what_few_are():
    counts = np.array([0.0, 500.0, 10.0, 0.0])
    assert last_bin(counts, 0.0, share=0.01, people=999.0).place == 2
    assert last_bin(counts, 0.0, share=0.01, people=1000.0).place == 1


def test_nobody_is_certain_of_nothing():
    assert last_bin(np.zeros(20), 0.0, share=0.01) == (3, False)
    assert last_bin(np.full(3, -5.0), 0.0, share=0.01) == (2, False)


@pytest.mark.parametrize("heavy", [False, True])
def test_noise_hardly_ever_raises_a_bound_without_limit(heavy):
    """Expected: one in a thousand; of 4,000 more than 16 in fewer than one run in 10,000."""
    rng = np.random.default_rng(0)
    counts = np.zeros(161)
    counts[60:66] = [100, 300, 700, 600, 250, 50]
    far = 0
    for _ in range(4000):
        noise = rng.laplace(scale=20.0 / np.sqrt(2.0), size=161) if heavy else rng.normal(scale=20.0, size=161)
        far += last_bin(counts + noise, 20.0, share=0.0, people=2000.0, heavy=heavy).place > 75
    assert far <= 16


def test_bounds_are_near_the_quantile_for_a_tenth_of_a_small_budget():
    """2,000 people at epsilon = 1 and delta = 1e-5: a deviation of 17 in a bin."""
    rng = np.random.default_rng(1)
    for sizes in (np.linalg.norm(rng.normal(size=(2000, 20)), axis=1), rng.exponential(size=2000)):
        counts = np.bincount(np.clip(np.ceil(2 * np.log2(sizes)), -80, 80).astype(int) + 80, minlength=161)
        found = [last_bin(counts + rng.normal(scale=17.0, size=161), 17.0, share=0.01).place for _ in range(400)]
        ratios = 2.0 ** ((np.array(found) - 80) / 2) / np.quantile(sizes, 0.99)
        assert np.mean((ratios >= 0.5) & (ratios <= 2.0)) > 0.9


@pytest.mark.parametrize("people", [100.0, None])
def test_the_quantile_bin_is_the_first_with_enough_people_up_to_it(people):
    counts = np.array([0.0, 10.0, 40.0, 30.0, 20.0, 0.0])
    for share, place, up_to in ((0.05, 1, 0.1), (0.1, 1, 0.1), (0.4, 2, 0.5), (0.51, 3, 0.8), (1.0, 4, 1.0)):
        assert quantile_bin(counts, share, people) == (place, pytest.approx(up_to))


def test_a_quantile_of_noise_is_a_bin_and_a_share():
    rng = np.random.default_rng(0)
    for _ in range(200):
        place, share = quantile_bin(rng.normal(size=8) * 1e3, 0.4, rng.choice([None, 0.0, 10.0]))
        assert 0 <= place < 8
        assert 0.4 <= share <= 1.0
