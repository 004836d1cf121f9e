"""What one person moves in the counts and sums that describe a table, and the noise for it."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from attacks import CLAIM
from neighbours import climb
from scipy import stats

from dpfast import Privacy, io
from dpfast.description import attacks
from dpfast.description.mechanism import Histogram, TableCounts, count_rows
from dpfast.io import Boolean, Category, Number
from dpfast.io.frames import FrameBatch
from dpfast.noise import SeededSource
from dpfast.privacy import gaussian_delta
from dpfast.releases.mechanism import release

AGE, DOSE = Number("age", low=18.0, high=90.0), Number("dose", low=-1e-3, high=7.0)
SITE, NEW, ARM = Category("site", ("a", "b")), Boolean("new"), Category("arm", (3, 1))
HISTOGRAMS = [*(Histogram.of(column, 5) for column in (AGE, DOSE, SITE, NEW, ARM)), Histogram.of_pairs(SITE, ARM)]
ADJACENCIES = ["replace_one", "add_remove"]


def frame(*rows):
    return pd.DataFrame(list(rows), columns=["age", "dose", "site", "new", "arm"])


def summed(*rows):
    return count_rows(HISTOGRAMS, [FrameBatch(frame(*rows))]).sums.to_float64()


def person(parameters):
    """A person of any kind: numbers in and out of their limits or missing, levels declared or not, or missing."""
    age, dose, *picks = parameters
    choices = (["a", "b", "c", None], [True, False, 2.0, None], [3.0, 1.0, 9.0, None])
    levels = [
        own[int(4.0 * (0.5 + math.atan(3.0 * pick) / math.pi) % 4)] for own, pick in zip(choices, picks, strict=True)
    ]
    return 54.0 + 40.0 * age, 3.5 + 4.0 * dose if abs(dose) < 2.0 else math.nan, *levels


def bounds(adjacency):
    """Of 6 histograms and 2 numbers: the squared L2 norm, and the L1 norm."""
    return (14.0, 14.0) if adjacency == "replace_one" else (6.5, 7.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_nobody_moves_the_counts_and_sums_further_than_the_noise_is_for_and_some_move_them_as_far(adjacency):
    squared, absolute = bounds(adjacency)
    replaced = adjacency == "replace_one"

    def moved(parameters):
        one = summed(person(parameters[:5]))
        return one - summed(person(parameters[5:])) if replaced else one

    size = 10 if replaced else 5
    rng = np.random.default_rng(0)
    for parameters in 2.0 * rng.normal(size=(200, size)):
        assert np.sum(moved(parameters) ** 2) <= squared
        assert np.abs(moved(parameters)).sum() <= absolute
    worst, _ = climb(lambda given: float(np.sum(moved(given) ** 2)), size, rng, restarts=3, screened=40)
    assert worst <= squared
    least, most = summed((0.0, -9.0, "a", False, 3)), summed((99.0, math.inf, "b", True, 1))
    farthest = least - most if replaced else most
    assert (np.sum(farthest**2), np.abs(farthest).sum()) == (squared, absolute)


MAX_ROWS = 3


def summed_of_people(people):
    """Sum the rows of several people, one after the other, of whom the first three rows count."""
    rows, ids = [row for own in people for row in own], [number for number, own in enumerate(people) for _ in own]
    return count_rows(HISTOGRAMS, [FrameBatch(frame(*rows))], io.people(ids, MAX_ROWS)).sums.to_float64()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_person_with_several_rows_moves_them_as_often_and_no_further(adjacency):
    squared, absolute = bounds(adjacency)
    squared, absolute = squared * MAX_ROWS**2, absolute * MAX_ROWS
    replaced = adjacency == "replace_one"
    rng, other = np.random.default_rng(0), [(30.0, 1.0, "b", True, 3)]

    def moved(one, two):
        return summed_of_people([other, one]) - summed_of_people([other, two] if replaced else [other])

    for _ in range(200):
        sizes = rng.integers(1, MAX_ROWS + 3, size=2)
        one, two = ([person(parameters) for parameters in 2.0 * rng.normal(size=(size, 5))] for size in sizes)
        assert np.sum(moved(one, two) ** 2) <= squared
        assert np.abs(moved(one, two)).sum() <= absolute
    least, most = (0.0, -9.0, "a", False, 3), (99.0, math.inf, "b", True, 1)
    farthest = moved([most] * 5, [least] * 4)
    assert (np.sum(farthest**2), np.abs(farthest).sum()) == (squared, absolute)
    noise = TableCounts.calibrate(Privacy(1.0, 1e-6, adjacency), HISTOGRAMS, MAX_ROWS).single
    assert 0.99e-6 < gaussian_delta(noise.scale, 1.0, math.sqrt(squared)) <= 1e-6
    pure = TableCounts.calibrate(Privacy(0.5, 0.0, adjacency), HISTOGRAMS, MAX_ROWS).single
    assert absolute / 0.5 <= pure.scale < 1.0001 * absolute / 0.5


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_weights_of_a_persons_rows_move_them_further(adjacency):
    squared, absolute = bounds(adjacency)
    replaced = adjacency == "replace_one"
    rng, far = np.random.default_rng(1), [(99.0, math.inf, "b", True, 1), (0.0, -9.0, "a", False, 3)]

    def moved(one, two, shares):
        tables = [(one, shares[: len(one)]), (two, shares[len(one) :])]
        sums = [
            count_rows(HISTOGRAMS, [FrameBatch(frame(*rows))], io.people([0] * len(rows), MAX_ROWS), own)
            for rows, own in tables[: 1 + replaced]
        ]
        return sums[0].sums.to_float64() - (sums[1].sums.to_float64() if replaced else 0.0)

    for least in (0.0, 0.999):
        for _ in range(100):
            one, two = ([person(parameters) for parameters in 2.0 * rng.normal(size=(3, 5))] for _ in range(2))
            for rows in ((one, two), ([far[0]] * 3, [far[1]] * 3)):
                difference = moved(*rows, rng.uniform(least, 1.0, 6))
                assert np.sum(difference**2) <= squared * MAX_ROWS**2
                assert np.abs(difference).sum() <= absolute * MAX_ROWS
    assert np.sum(moved([far[0]] * 3, [far[1]] * 3, np.ones(6)) ** 2) == squared * MAX_ROWS**2


@pytest.mark.parametrize("cuts", [(), (7,), (1, 2, 11)])
def test_a_weight_is_that_of_its_row_however_batches_are_cut(cuts):
    rng = np.random.default_rng(2)
    rows = [person(parameters) for parameters in rng.normal(size=(12, 5))]
    shares, ends = np.round(rng.random(12) * 2**16) / 2**16, [0, *cuts, 12]
    batches = [FrameBatch(frame(*rows[start:stop])) for start, stop in pairwise(ends)]
    for ids, counts in ((None, np.ones(12)), ([0, 0, 0, *range(1, 10)], np.r_[1, 1, 0, np.ones(9)])):
        counted = count_rows(HISTOGRAMS, batches, None if ids is None else io.people(ids, 2), shares)
        assert counted.n_rows == counts.sum()
        each = [share * count * summed(row) for share, count, row in zip(shares, counts, rows, strict=True)]
        np.testing.assert_allclose(counted.sums.to_float64(), np.sum(each, axis=0), rtol=0.0, atol=1e-12)
    for wrong in (shares[:-1], np.append(shares, 1.0)):
        with pytest.raises(ValueError, match="sample_weight have different numbers of rows"):
            count_rows(HISTOGRAMS, batches, None, wrong)


@pytest.mark.parametrize("cuts", [(), (1,), (2, 5)])
def test_rows_that_count_are_the_first_of_each_person_however_batches_are_cut(cuts):
    rows = [(20.0 + 10.0 * k, 0.3 * k, "ab"[k % 2], k % 2 == 0, 3) for k in range(6)]
    table, ends = frame(*rows), [0, *cuts, len(rows)]
    batches = [FrameBatch(table.iloc[start:stop]) for start, stop in pairwise(ends)]
    counted = count_rows(HISTOGRAMS, batches, io.people([7, 3, 7, 7, 3, 7], 2))
    assert counted.n_rows == 4
    assert np.array_equal(counted.sums.to_float64(), summed(*(rows[place] for place in (0, 1, 2, 4))))
    for ids in ([7] * 5, [7] * 7):
        with pytest.raises(ValueError, match="groups must have one id a row: the table has another number of rows"):
            count_rows(HISTOGRAMS, batches, io.people(ids, 2))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_noise_is_calibrated_for_that(adjacency):
    squared, absolute = bounds(adjacency)
    noise = TableCounts.calibrate(Privacy(1.0, 1e-6, adjacency), HISTOGRAMS).single
    assert 0.99e-6 < gaussian_delta(noise.scale, 1.0, math.sqrt(squared)) <= 1e-6
    pure = TableCounts.calibrate(Privacy(0.5, 0.0, adjacency), HISTOGRAMS).single
    assert (pure.law, pure.scale) == ("Laplace", pytest.approx(absolute / 0.5, rel=1e-12))
    assert pure.scale >= absolute / 0.5


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_drawn_has_the_calibrated_law(delta):
    histograms = [Histogram.of(Number("age", low=0.0, high=1.0), 900), *HISTOGRAMS]
    mechanism = TableCounts.calibrate(Privacy(1.0, delta), histograms)
    counted = count_rows(histograms, [FrameBatch(frame((0.5, 1.0, "a", True, 3)))])
    (released,) = release(mechanism, counted.sums, SeededSource(3), "describe")
    assert released.name == "describe: counts of bins and sums of numbers"
    noise = released.values["sum"] - counted.sums.to_float64()
    law = stats.norm(scale=mechanism.single.scale) if delta else stats.laplace(scale=mechanism.single.scale)
    # False-reject rate 1e-4, for one seed.
    assert stats.kstest(noise, law.cdf).pvalue > 1e-4
    assert released.mu == mechanism.single.mu


def test_everybody_is_in_one_bin_of_each_histogram():
    rows = [
        (18.0, 7.0, "a", True, 3),
        (math.nan, 0.0, "?", None, 1),
        (90.0, -5.0, None, 7.0, None),
        (54.0, 3.0, "b", 0, 3),
    ]
    counted = count_rows(HISTOGRAMS, [FrameBatch(frame(*rows[:1])), FrameBatch(frame(*rows[1:]))])
    values, start = counted.sums.to_float64(), 0
    found = {}
    for one in HISTOGRAMS:
        own = values[start : (start := start + len(one.bins))]
        assert own.sum() == counted.n_rows == 4
        found[one.name] = dict(zip(one.bins, own, strict=True))
    assert found["age"] == {"0": 1, "1": 0, "2": 1, "3": 0, "4": 1, "missing": 1}
    assert found["site"] == {"a": 1, "b": 1, "other": 1, "missing": 1}
    assert found["new"] == {"False": 1, "True": 1, "other": 1, "missing": 1}
    assert found["site x arm"] == {"a, 3": 1, "a, 1": 0, "b, 3": 1, "b, 1": 0, "other or missing": 2}
    # Half of z: -1 for 18, 0 for the middle and where nothing is known, 1 for 90.
    assert values[start] == 0.0
    assert values[start + 1] == pytest.approx(
        0.5 * sum((v + 5e-4 - 3.5) / 3.5005 for v in (7.0, 0.0, -1e-3, 3.0)), abs=1e-3
    )


def test_bins_are_of_what_is_below_their_ends():
    """Entries at an end belong to the bin above it, which limits of quantiles count on; the largest to the last."""
    histogram = Histogram.of(AGE, 5)
    rows = [(end, 0.0, "a", True, 3) for end in histogram.edges]
    assert histogram.codes(FrameBatch(frame(*rows))).tolist() == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("others", [0, 1, 5])
def test_what_becomes_of_a_person_does_not_depend_on_others(others):
    one = (33.3, 0.1, "b", False, 1)
    rest = [(20.0 + k, 0.3 * k, "a", True, 3) for k in range(others)]
    for place in (0, others):
        rows = [*rest[:place], one, *rest[place:]]
        alone = summed(*rest) if rest else 0.0
        assert np.array_equal(summed(*rows) - alone, summed(one))


def test_attacks_hold_and_catch_noise_for_half_of_what_a_person_moves(monkeypatch):
    """Bounds and judgements of a form, eight in all, are wrong in one run of a million; 150 outputs tell all apart."""
    error = 1e-7
    found = [attack.run(150, error) for attack in attacks.attacks(CLAIM)]
    assert len(found) == 4
    for one in found:
        assert not one.broken
        assert one.share > 0.5
        assert one.attainable == pytest.approx(1.0, rel=1e-3)
    moved_by = attacks.TableCounts.calibrate.__func__
    halved = [Histogram.of(Number("age", low=0.0, high=1.0), 4)]

    def broken(cls, privacy, histograms):
        noise = moved_by(cls, privacy, histograms).single
        small = moved_by(cls, privacy, halved).single
        small = type(noise)(**vars(noise) | {"scale": small.scale, "deviation": small.deviation})
        return cls("counts", small, tuple(histograms))

    monkeypatch.setattr(attacks.TableCounts, "calibrate", classmethod(broken))
    for attack in attacks.attacks(CLAIM):
        assert attack.run(150, error).epsilon > 1.0
