"""The discrete Gaussian: its table against mpmath, its draws against its exact probabilities."""

import math

import mpmath as mp
import numpy as np
import pytest
from margins import decided_exactly
from scipy import stats

from dpfast.kernels import draws as kernel
from dpfast.noise import SecureSource, SeededSource, discrete, discrete_gaussian

FALSE_REJECT = 1e-7
SCALES = [0.125, 0.3, 1.0, 7.5, 63.9, 64.0, 1000.0, 2.0**30 * 1.37, 2.0**57]


def column_weights(scale, shift, n):
    """Exact probabilities of the proposed columns, the sum taken far beyond them."""
    width = mp.mpf(2) ** shift
    weights = [mp.exp(-((j * width / mp.mpf(scale)) ** 2) / 2) for j in range(n)]
    if shift == 0:
        weights = [w if j == 0 else 2 * w for j, w in enumerate(weights)]
    total = mp.fsum(weights)
    return [w / total for w in weights]


@pytest.mark.parametrize("scale", SCALES)
def test_thresholds_are_the_floors_of_the_distribution_function(scale):
    table = discrete.column_table(scale)
    with mp.workprec(250):
        weights = column_weights(scale, table.shift, 1600)
        cumulative = mp.mpf(0)
        for threshold, weight in zip(table.thresholds, weights, strict=False):
            cumulative += weight
            assert int(threshold) == int(mp.floor(cumulative * mp.mpf(2) ** 63))
    assert int(table.thresholds[-1]) == 2**63 - 1
    assert table.shift == 0 or 32 <= scale / 2.0**table.shift < 64


@pytest.mark.parametrize("scale", SCALES[5:])
def test_quick_acceptance_is_never_beyond_the_least_in_the_column(scale):
    table = discrete.column_table(scale)
    width = mp.mpf(2) ** table.shift
    with mp.workprec(250):
        for j, sure in enumerate(table.sure):
            least = mp.exp(-((width / mp.mpf(scale)) ** 2) * (2 * j + 1) / 2)
            assert int(sure) <= least * mp.mpf(2) ** (64 - table.shift) < int(sure) + 2


@pytest.mark.parametrize("scale", SCALES)
def test_the_guide_starts_at_or_before_the_column(scale):
    table = discrete.column_table(scale)
    starts = np.arange(len(table.guide), dtype=np.uint64) << np.uint64(63 - discrete._GUIDE_BITS)
    for start, column in zip(starts, table.guide, strict=True):
        assert column == 0 or table.thresholds[column - 1] < start


@pytest.mark.parametrize("scale", [1e-300, *SCALES])
def test_deciding_every_draw_exactly_changes_nothing(scale):
    fast = discrete_gaussian(scale, 4000, SeededSource(3))
    with decided_exactly():
        exact = discrete_gaussian(scale, 4000, SeededSource(3))
    assert np.array_equal(fast, exact)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_a_uniform_on_a_threshold_is_decided_by_further_bits(scale):
    """With u equal to a threshold, the draw falls in the column or the next, as the bits to come say."""
    table = discrete.column_table(scale)
    for column in (0, 1, 5):
        u = int(table.thresholds[column])
        words = np.array([u, 0, 0, 0], np.uint64)
        chosen = set()
        for bits in (0, 2**64 - 1):
            stream = type("Fixed", (), {"branch": staticmethod(lambda _index, bits=bits: lambda: bits)})()
            value, _ = discrete._decide(scale, table, words, 0, stream, 0)
            chosen.add(value >> table.shift)
        assert chosen == {column, column + 1}


def test_the_last_column_is_not_the_end():
    """All the known digits of the uniform are ones, and many more: the search runs on beyond the table."""
    table = discrete.column_table(1.0)
    words = np.array([2**63 - 1, 0, 0], np.uint64)
    digits = iter([2**64 - 1, 2**64 - 1, 0, *[5] * 20])
    stream = type("Fixed", (), {"branch": staticmethod(lambda _index: digits.__next__)})()
    value, _ = discrete._decide(1.0, table, words, 0, stream, 0)
    with mp.workprec(500):
        beyond = [2 * mp.exp(-mp.mpf(k * k) / 2) for k in range(value, 60)]
        total = 1 + 2 * mp.fsum(mp.exp(-mp.mpf(k * k) / 2) for k in range(1, 60))
        assert mp.fsum(beyond[1:]) / total <= mp.mpf(2) ** -191 <= mp.fsum(beyond) / total


@pytest.mark.parametrize("scale", [64.0, 1000.0, 2.0**57])
def test_an_acceptance_on_a_knifes_edge_is_decided_exactly(scale):
    """h and the third word are the first digits of the probability itself."""
    table = discrete.column_table(scale)
    column, t = 40, (1 << table.shift) - 1
    h_bits = 64 - table.shift
    with mp.workprec(400):
        first = mp.mpf(column << table.shift)
        probability = mp.exp(-t * (2 * first + t) / (2 * mp.mpf(scale) ** 2))
        digits = int(mp.floor(probability * mp.mpf(2) ** (h_bits + 64)))
    h, third = digits >> 64, digits & (2**64 - 1)
    u = int(table.thresholds[column]) - 1
    words = np.array([u, h << table.shift | t, third], np.uint64)
    outcomes = []
    for bits in (0, 2**64 - 1):
        stream = type("Fixed", (), {"branch": staticmethod(lambda _index, bits=bits: lambda: bits)})()
        value, position = discrete._decide(scale, table, words, 0, stream, 0)
        assert position == 3
        outcomes.append(value)
    assert outcomes == [(column << table.shift) + t, None]


def loop(scale, words):
    """Run the loop for one draw: (draws made, value, words used, whether it stopped undecided)."""
    table = discrete.column_table(scale)
    draws = np.zeros(1, np.int64)
    made, position, undecided = kernel.discrete_gaussian(
        table.thresholds, table.sure, table.guide, discrete._GUIDE_BITS, table.shift, scale,
        discrete._ACCEPTANCE_ERROR, np.array([*words, 0, 0, 0], np.uint64), 0, draws,
    )  # fmt: skip
    return made, int(draws[0]), position, undecided


@pytest.mark.parametrize("scale", [1.0, 64.0, 1000.0])
def test_the_loop_leaves_a_uniform_on_a_threshold_undecided_and_no_other(scale):
    table = discrete.column_table(scale)
    for column, threshold in enumerate(table.thresholds[:8].tolist()):
        assert loop(scale, [threshold]) == (0, 0, 0, True)
        for u, expected in ((threshold - 1, column), (threshold + 1, column + 1)):
            # The first of a column is always accepted.
            made, value, _, undecided = loop(scale, [u])
            assert (made, value, undecided) == (1, expected << table.shift, False)


@pytest.mark.parametrize("scale", [64.0, 1000.0, 2.0**57])
def test_the_loop_accepts_with_the_exact_probability(scale):
    """Of the integers at the start, in the middle and at the end of a column: up to it, not beyond, on it undecided."""
    table = discrete.column_table(scale)
    length, h_bits = 1 << table.shift, 64 - table.shift
    for column in (0, 1, 5, 40, 150):
        u = int(table.thresholds[column]) - 1
        for t in {1, length // 2, length - 1} - {0}:
            with mp.workprec(400):
                exponent = t * (2 * mp.mpf(column << table.shift) + t) / (2 * mp.mpf(scale) ** 2)
                probability = mp.exp(-exponent)
                digits = int(mp.floor(probability * mp.mpf(2) ** (h_bits + 64)))
            # Twice the margin, in the last of the digits.
            step = int(2.0 * discrete._ACCEPTANCE_ERROR * 2.0 ** (h_bits + 64))
            outcomes = []
            for number in (digits - step, digits, digits + step):
                h, third = number >> 64, number & (2**64 - 1)
                if h >> h_bits:
                    continue  # the uniform would be above 1
                outcomes.append(loop(scale, [u, h << table.shift | t, third]))
            value = (column << table.shift) + t
            accepted, undecided, *rejected = outcomes
            assert (accepted[0], accepted[1], accepted[3]) == (1, value, False)
            assert undecided == (0, 0, 0, True)
            # The words that follow, zeros, make the next proposal.
            assert all(one[1] == 0 for one in rejected)


@pytest.mark.parametrize("scale", [64.0, 1000.0, 2.0**57])
def test_quick_acceptance_ends_below_its_bound(scale):
    """A second word at the bound has a third word decide with it: the last of the column might be rejected."""
    table = discrete.column_table(scale)
    for column in (0, 3, 40):
        u, sure = int(table.thresholds[column]) - 1, int(table.sure[column])
        assert loop(scale, [u, (sure - 1) << table.shift, 0])[2] == 2
        if not sure >> (64 - table.shift):
            # The first of the column is accepted, but not before its third word was seen.
            assert loop(scale, [u, sure << table.shift, 0])[2] == 3


def probabilities(scale, radius):
    k = np.arange(-radius, radius + 1)
    weights = np.exp(-(k**2) / (2.0 * scale**2))
    return weights / weights.sum()


def chi_square(draws, scale):
    """The chi-square probability of the counts, integers pooled from the tails inwards until 20 are expected."""
    radius = math.ceil(12 * scale) + 2
    expected = probabilities(scale, radius) * len(draws)
    observed = np.bincount(draws + radius, minlength=2 * radius + 1)
    order = np.argsort(-expected, kind="stable")
    common = order[expected[order] >= 20]
    rare = order[expected[order] < 20]
    groups_expected, groups_observed = expected[common], observed[common]
    if expected[rare].sum() >= 5:
        groups_expected = np.append(groups_expected, expected[rare].sum())
        groups_observed = np.append(groups_observed, observed[rare].sum())
    else:
        groups_expected[0] += expected[rare].sum()
        groups_observed[0] += observed[rare].sum()
    return stats.chisquare(groups_observed, groups_expected).pvalue


def check_distribution(scale, seed):
    draws = discrete_gaussian(scale, 200_000, SeededSource(seed))
    assert chi_square(draws, scale) > FALSE_REJECT


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 64.0, 1000.0])
def test_the_distribution_is_right(scale):
    check_distribution(scale, 0)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.3, 7.5, 1000.0])
@pytest.mark.parametrize("seed", range(25))
def test_the_distribution_is_right_for_any_seed(scale, seed):
    check_distribution(scale, seed)


def test_the_chi_square_would_see_a_scale_wrong_by_two_percent():
    draws = discrete_gaussian(7.5, 200_000, SeededSource(0))
    assert chi_square(draws, 7.5 * 1.02) < FALSE_REJECT


@pytest.mark.parametrize("scale", [2.0**20 * 1.9, 2.0**57])
def test_large_scales_are_normal(scale):
    """Here the law is the continuous one, and the low bits are uniform, to far below what 2e5 draws can tell."""
    draws = discrete_gaussian(scale, 200_000, SeededSource(1))
    assert stats.kstest(draws / scale, "norm").pvalue > FALSE_REJECT
    second_moment = np.mean((draws / scale) ** 2)
    assert abs(second_moment - 1) < stats.norm.isf(FALSE_REJECT / 2) * math.sqrt(2 / len(draws))
    assert abs(np.mean(draws / scale)) < stats.norm.isf(FALSE_REJECT / 2) / math.sqrt(len(draws))
    assert stats.chisquare(np.bincount(draws & 63, minlength=64)).pvalue > FALSE_REJECT


def test_seeded_draws_are_frozen():
    assert discrete_gaussian(3.0, 6, SeededSource(0)).tolist() == [3, 0, 3, 1, -1, 2]
    assert discrete_gaussian(1e6, 4, SeededSource(0)).tolist() == [1115422, 1155875, -271188, -133497]


def test_shapes():
    assert discrete_gaussian(2.0, (3, 4), SecureSource()).shape == (3, 4)
    assert discrete_gaussian(2.0, 0, SecureSource()).shape == (0,)
    assert discrete_gaussian(1e4, 100_003, SecureSource()).dtype == np.int64


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ValueError, "scale must be positive and finite", (0.0, 3, SecureSource())),
        (ValueError, "scale must be positive and finite", (math.inf, 3, SecureSource())),
        (ValueError, "scale must be at most 2\\*\\*57", (2.0**57 * 1.01, 3, SecureSource())),
        (TypeError, "scale must be a real number", (None, 3, SecureSource())),
        (ValueError, "size must be at least 0", (1.0, -3, SecureSource())),
        (TypeError, "source must be", (1.0, 3, 0)),
    ],
)
def test_bad_arguments_are_refused(error, match, arguments):
    with pytest.raises(error, match=match):
        discrete_gaussian(*arguments)
