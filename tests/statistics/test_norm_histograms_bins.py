"""Half-octaves: edges, and the order of codes."""

import math

import pytest

from dpfast.statistics.norm_histograms import LogarithmicBins


def test_sizes_are_powers_of_the_root_of_two():
    bins = LogarithmicBins(-3, 4)
    assert (bins.largest_code, bins.n_bins) == (7, 15)
    sizes = [bins.size(code) for code in range(8)]
    assert sizes == pytest.approx([2.0 ** (k / 2) for k in range(-3, 5)], rel=2e-16)
    assert sizes[1::2] == [0.5, 1.0, 2.0, 4.0]


def test_bins_of_numbers_follow_each_other_from_the_most_negative_on():
    bins = LogarithmicBins(-1, 2)
    low, high = bins.limits()
    half, two = math.sqrt(0.5), math.sqrt(2.0)
    assert low.tolist() == pytest.approx([-2.0, -two, -1.0, 0.0, half, 1.0, two])
    assert high.tolist() == pytest.approx([-two, -1.0, -half, 0.0, 1.0, two, 2.0])


@pytest.mark.parametrize("ends", [(3, 3), (4, 3), (-801, 0), (0, 801)])
def test_ends_must_be_in_order_and_where_squares_keep_their_bits(ends):
    with pytest.raises(ValueError, match="in order"):
        LogarithmicBins(*ends)
