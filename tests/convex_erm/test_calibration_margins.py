"""Counts of rows by margin and class: a row in one cell a histogram, whatever is beside it, and for at most 1.

Of classes alone there is one more histogram, in which it counts for less.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

from dpfast import io
from dpfast.convex_erm.calibration import (
    FARTHEST_GAP,
    ClassCells,
    LinkScore,
    MarginCells,
    cell_counts,
    gaps,
    margin_counts,
    score_sum,
    weight_of_class,
)
from dpfast.convex_erm.mechanism import Counts
from dpfast.privacy import Privacy
from dpfast.releases.mechanism import NoisySum
from dpfast.statistics.rows import RowMap

EDGES = np.array([-0.5, 0.0, 0.5])


def cells(n_margins, seed=0, d=3, edges=EDGES):
    rng = np.random.default_rng(seed)
    basis = np.ascontiguousarray(rng.normal(size=(d, n_margins)))
    return MarginCells(RowMap(bound=1.0, basis=basis), 0.1 * rng.normal(size=n_margins), edges)


def rows(n, n_margins, seed=0, d=3):
    """Rows, some of them beyond the bound, and outcomes as a classifier has them: signs, times weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.choice([0.2, 1.0, 30.0], size=(n, 1))
    own = rng.integers(0, max(n_margins, 2), size=n)
    weights = np.array([1.0, 0.25, 1.0 / 3.0, 1.0])[own]
    positive = own[:, None] == np.arange(n_margins) + (n_margins == 1)
    return x, np.where(positive, 1.0, -1.0) * weights[:, None]


def counted(x, y, own):
    return margin_counts(io.open_table(x, y), own, 1).to_float64()


def plain(x, y, own):
    """The same in NumPy, row by row."""
    histograms, _, bins = own.shape
    found = np.zeros((histograms, 2, bins + 1))
    for row, outcome in zip(x, y, strict=True):
        z = row * min(1.0, 1.0 / np.linalg.norm(row)) @ own.row_map.basis + own.offset
        weight = round(np.abs(outcome).max() * 2**20) / 2**20
        for k in range(len(z)):
            above = max([one for j, one in enumerate(z) if j != k], default=0.0)
            found[k, int(outcome[k] > 0), np.sum(z[k] - above >= own.edges)] += weight
            if histograms == 1 or outcome[k] > 0:
                found[k, int(outcome[k] > 0), bins] += weight * (0.625 if histograms == 1 else 1.0)
    return found


@pytest.mark.parametrize("n_margins", [1, 2, 4])
def test_rows_are_counted_by_margin_and_class(n_margins):
    own, (x, y) = cells(n_margins), rows(500, n_margins)
    found = counted(x, y, own)
    assert found.shape == (n_margins, 2 * (len(EDGES) + 2))
    found = found.reshape(n_margins, 2, len(EDGES) + 2)
    np.testing.assert_array_equal(found, plain(x, y, own))
    assert np.all(found[:, :, :-1].sum(axis=2) > 0.0)
    # Indicators say the same as signs.
    np.testing.assert_array_equal(
        found.reshape(n_margins, -1), counted(x, np.maximum(y, 0.0) if n_margins > 1 else y, own)
    )


def test_gaps_are_above_the_largest_of_the_others():
    margins = np.array([[3.0, 1.0, 2.0], [5.0, 5.0, -1.0], [-2.0, -4.0, -3.0]])
    np.testing.assert_array_equal(gaps(margins), [[1.0, -2.0, -1.0], [0.0, 0.0, -6.0], [1.0, -2.0, -1.0]])
    np.testing.assert_array_equal(gaps(margins[:, :1]), margins[:, :1])


@pytest.mark.parametrize("n_margins", [1, 3])
@pytest.mark.parametrize("n_blocks", [1, 2, 500])
def test_a_row_is_counted_alike_beside_any_others(n_margins, n_blocks):
    own, (x, y) = cells(n_margins), rows(500, n_margins)
    expected = counted(x, y, own)
    for laid in (np.asfortranarray(x), x[:, ::-1].copy()[:, ::-1], np.repeat(x, 2, axis=0)[::2]):
        np.testing.assert_array_equal(counted(laid, y, own), expected)
    parts = sum(
        counted(a, b, own) for a, b in zip(np.array_split(x, n_blocks), np.array_split(y, n_blocks), strict=True)
    )
    np.testing.assert_array_equal(parts, expected)
    np.testing.assert_array_equal(margin_counts(io.open_table(x, y), own, 2).to_float64(), expected)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("n_margins", [1, 3])
def test_no_neighbour_moves_a_histogram_by_more_than_one_in_one_cell_or_two(n_margins, adjacency):
    """Random rows, labels, weights, coefficients, and from there uphill; the most is reached, whatever rows weigh."""
    rng, further = np.random.default_rng(1), weight_of_class(n_margins)

    def moved(point):
        row, other, labels, weights, coefficients, offset = point
        own = MarginCells(RowMap(bound=1.0, basis=coefficients), offset, EDGES)
        positive = labels[:, None] == np.arange(n_margins) + (n_margins == 1)
        outcomes = np.where(positive, 1.0, -1.0) * np.maximum(weights, 0.0)[:, None]
        part, another = (counted(one[None], outcomes[[i]], own) for i, one in enumerate((row, other)))
        for counts in (part, another):
            sides = counts.reshape(n_margins, 2, -1)
            assert np.all(np.count_nonzero(sides[:, :, :-1], axis=(1, 2)) <= 1)
            assert np.count_nonzero(sides[:, :, -1]) <= 1
            assert np.all(sides >= 0.0)
            assert np.all(sides[:, :, :-1].sum(axis=(1, 2)) <= 1.0)
            assert sides[:, :, -1].sum() <= further
        change = part - another if adjacency == "replace_one" else part
        assert np.abs(change).sum() <= (2.0 if adjacency == "replace_one" else 1.0) * (n_margins + further)
        return float(np.linalg.norm(change))

    def nearby(point, step):
        row, other, labels, weights, coefficients, offset = point
        drawn = rng.integers(0, max(n_margins, 2), size=2)
        return (
            row + step * rng.normal(size=3),
            other + step * rng.normal(size=3),
            np.where(rng.random(2) < 0.7, labels, drawn),
            weights + step * rng.normal(size=2),
            coefficients * np.exp(step * rng.normal(size=coefficients.shape)),
            offset + step * rng.normal(size=n_margins),
        )

    best = 0.0
    for _ in range(12):
        start = (
            *rng.normal(size=(2, 3)),
            rng.integers(0, max(n_margins, 2), size=2),
            rng.uniform(size=2),
            rng.normal(size=(3, n_margins)) * 10.0 ** rng.uniform(-3, 3),
            rng.normal(size=n_margins),
        )
        for _ in range(25):
            step = 10.0 ** rng.uniform(-2.0, 0.0)
            start = max(start, nearby(start, step), key=moved)
        best = max(best, moved(start))
    most = np.sqrt((n_margins + further**2) * (2.0 if adjacency == "replace_one" else 1.0))
    assert best == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize("n_margins", [1, 4])
@pytest.mark.parametrize("n_blocks", [1, 3, 200])
def test_a_row_is_in_the_cell_of_its_class_and_scores_what_the_link_adds_beside_any_others(n_margins, n_blocks):
    own, (x, y) = cells(n_margins), rows(200, n_margins)
    n_classes, slope = max(n_margins, 2), 1.7
    rates = np.random.default_rng(2).dirichlet(np.ones(n_classes))
    link = LinkScore(own.row_map, own.offset, slope, rates)
    place, weight = np.argmax(y, axis=1) if n_margins > 1 else (y[:, 0] > 0).astype(int), np.abs(y).max(axis=1)
    expected, scores = np.zeros(n_classes), []
    for row, k, heavy in zip(x, place, np.rint(weight * 2**20) / 2**20, strict=True):
        z = row * min(1.0, 1.0 / np.linalg.norm(row)) @ own.row_map.basis + own.offset
        z = np.array([-z[0] / 2.0, z[0] / 2.0]) if n_margins == 1 else z
        chances = expit([slope * (one - max(np.delete(z, j))) for j, one in enumerate(z)])
        expected[k] += heavy
        above = chances / chances.sum() / rates - 1.0
        scores.append(above / max(np.abs(above).max(), 1.0))
        assert rates @ scores[-1] == pytest.approx(0.0, abs=1e-12)
    own_scores = [own[k] for own, k in zip(scores, place, strict=True)]
    sums = []
    for laid in (x, np.asfortranarray(x)):
        parts = zip(np.array_split(laid, n_blocks), np.array_split(y, n_blocks), strict=True)
        tables = [io.open_table(a, b) for a, b in parts]
        found = sum(cell_counts(one, ClassCells(n_classes), 1).to_float64() for one in tables)
        np.testing.assert_array_equal(found, expected[None])
        sums.append(sum(score_sum(one, link, 1).to_float64() for one in tables))
    np.testing.assert_array_equal(*sums)
    assert sums[0].item() == pytest.approx(np.dot(own_scores, weight), abs=200 * 2.0**-20)


def test_what_is_not_finite_is_refused():
    own, (x, y) = cells(1), rows(5, 1)
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        counted(x, y, own)


@pytest.mark.parametrize("n_margins", [1, 4])
def test_of_people_with_several_rows_the_first_counts(n_margins):
    own, (x, y) = cells(n_margins), rows(300, n_margins)
    ids = np.random.default_rng(3).integers(0, 90, size=300)
    first = np.sort(np.unique(ids, return_index=True)[1])
    found = margin_counts(io.open_table(x, y), own, 1, groups=ids).to_float64()
    np.testing.assert_array_equal(found, counted(x[first], y[first], own))
    alone = margin_counts(io.open_table(x, y), own, 1, groups=np.arange(300)).to_float64()
    np.testing.assert_array_equal(alone, counted(x, y, own))


def test_bins_of_margins_reach_as_far_as_intercepts_lie_apart():
    counts = Counts(NoisySum.of_counts(Privacy(1.0), 3, 4), RowMap(bound=1.0), 1.0, np.array([0.5, 1.0, 2.0]))
    coef = np.full((3, 2), 1e-3)
    near = counts.placed(SimpleNamespace(coef=coef, intercept=np.zeros(3)))
    far = counts.placed(SimpleNamespace(coef=coef, intercept=np.array([-40.0, 0.0, 60.0])))
    assert far.unit == 100.0 / FARTHEST_GAP > near.unit
    np.testing.assert_allclose(far.ends, near.ends * far.unit / near.unit)
