"""Bounds from noisy histograms: where they are, how often noise misleads, and what happens without people."""

import numpy as np
import pytest

from dpfast.solvers.averaged_descent import (
    DEFAULT_CAUTION,
    Caution,
    quantile_bin,
    upper_quantile_bin,
    upper_quantile_of_side,
)


def test_without_noise_the_share_alone_is_cut_off():
    counts = np.array([0.0, 500.0, 400.0, 70.0, 20.0, 10.0, 0.0, 0.0])
    for share, place in ((0.0, 5), (0.009, 5), (0.01, 4), (0.03, 3), (0.1, 2), (0.3, 2), (0.9, 1)):
        assert upper_quantile_bin(counts, 0.0, share=share) == (place, True)


def test_people_of_known_number_set_what_few_are():
    counts = np.array([0.0, 500.0, 10.0, 0.0])
    assert upper_quantile_bin(counts, 0.0, share=0.01, people=999.0).place == 2
    assert upper_quantile_bin(counts, 0.0, share=0.01, people=1000.0).place == 1


def test_nobody_is_certain_of_nothing():
    assert upper_quantile_bin(np.zeros(20), 0.0, share=0.01) == (3, False)
    assert upper_quantile_bin(np.full(3, -5.0), 0.0, share=0.01) == (2, False)


@pytest.mark.parametrize("heavy", [False, True])
def test_noise_hardly_ever_raises_a_bound_without_limit(heavy):
    """Expected: one in a thousand; of 4,000 more than 16 in fewer than one run in 10,000."""
    rng = np.random.default_rng(0)
    counts = np.zeros(161)
    counts[60:66] = [100, 300, 700, 600, 250, 50]
    far = 0
    for _ in range(4000):
        noise = rng.laplace(scale=20.0 / np.sqrt(2.0), size=161) if heavy else rng.normal(scale=20.0, size=161)
        far += upper_quantile_bin(counts + noise, 20.0, share=0.0, people=2000.0, heavy=heavy).place > 75
    assert far <= 16


def test_bounds_are_near_the_quantile_for_a_tenth_of_a_small_budget():
    """2,000 people at epsilon = 1 and delta = 1e-5: a deviation of 17 in a bin."""
    rng = np.random.default_rng(1)
    for sizes in (np.linalg.norm(rng.normal(size=(2000, 20)), axis=1), rng.exponential(size=2000)):
        counts = np.bincount(np.clip(np.ceil(2 * np.log2(sizes)), -80, 80).astype(int) + 80, minlength=161)
        found = [
            upper_quantile_bin(counts + rng.normal(scale=17.0, size=161), 17.0, share=0.01).place for _ in range(400)
        ]
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


def ends(counts, deviation, *, rng=None):
    """Return both ends, in bins from that of zeros, of a histogram of 1,000 people and, if there is a source, noise."""
    zero = len(counts) // 2
    if rng is not None:
        counts = counts + rng.normal(scale=deviation, size=len(counts))
    seen = [
        upper_quantile_bin(side, deviation, share=0.01, people=1000.0).place - zero for side in (counts, counts[::-1])
    ]
    reach = max(abs(seen[0]), abs(seen[1]))
    options = {"deviation": deviation, "share": 0.01, "people": 1000.0}
    sides = zip((counts, counts[::-1]), seen, strict=True)
    high, low = (upper_quantile_of_side(side, zero + place, zero, reach, **options) - zero for side, place in sides)
    return -low, high


def signed(negative, positive):
    """Return counts of bins -40 to 40 from those of 11 to 18."""
    counts = np.zeros(81)
    counts[40 + 11 : 40 + 19], counts[40 - 18 : 40 - 10] = positive, negative[::-1]
    return counts


BELL = np.array([10.0, 20.0, 30.0, 50.0, 80.0, 110.0, 120.0, 80.0])


@pytest.mark.parametrize(
    ("negative", "positive", "expected"),
    [
        (BELL, BELL, (-18, 18)),
        (0.0 * BELL, 2.0 * BELL, (11, 18)),
        (2.0 * BELL, 0.0 * BELL, (-18, -11)),
        # 1% of 1,000 are few.
        (0.015 * BELL, 1.985 * BELL, (11, 18)),
        (0.1 * BELL, 1.9 * BELL, (-17, 18)),
    ],
)
def test_without_noise_a_side_is_left_out_if_few_are_there(negative, positive, expected):
    assert ends(signed(negative, positive), 0.0) == expected


def test_no_side_with_half_of_the_people_is_left_out_because_noise_hides_it():
    """Noise of 1.5 to 3% of the people in a bin. Either side left out: expected in less than 1 of 100."""
    rng = np.random.default_rng(3)
    for deviation in (15.0, 20.0, 30.0):
        found = [ends(signed(BELL, BELL), deviation, rng=rng) for _ in range(300)]
        assert np.mean([low > -11 or high < 11 for low, high in found]) < 0.03


def test_a_side_with_a_third_of_the_people_counts_where_no_run_of_bins_shows_it():
    """Their count is 4 standard deviations of its noise: they are left out in 2 of 100, and by runs alone in half."""
    rng = np.random.default_rng(5)
    found = [ends(signed(0.7 * BELL, 1.3 * BELL), 30.0, rng=rng) for _ in range(400)]
    assert np.mean([low > -11 for low, _ in found]) < 0.08


def test_a_side_without_people_is_mostly_left_out():
    """Noise within two standard deviations: in 97 of 100, and less than 92 in one run of 10,000."""
    rng = np.random.default_rng(4)
    found = [ends(signed(0.0 * BELL, 2.0 * BELL), 20.0, rng=rng)[0] > 0 for _ in range(400)]
    assert np.mean(found) > 0.92


def test_more_caution_lets_noise_raise_a_bound_that_may_clip_nobody_less_often():
    """By three half-octaves or more, with these seeds: one in twenty, and fewer than one in a hundred."""
    rng, counts = np.random.default_rng(12), np.zeros(30)
    counts[:8] = 500.0
    noisy = [counts + 10.0 * rng.normal(size=30) for _ in range(2_000)]

    def raised(caution):
        return np.mean(
            [upper_quantile_bin(one, 10.0, share=0.0, people=4_000.0, caution=caution).place > 9 for one in noisy]
        )

    assert raised(DEFAULT_CAUTION) > 0.03
    assert raised(Caution(1e-4, 2, 1.5)) < 0.01
